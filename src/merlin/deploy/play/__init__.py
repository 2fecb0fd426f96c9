"""The playground: a web page for exploring trained policies."""

from merlin.deploy.play.page import write_page

__all__ = ["write_page"]
