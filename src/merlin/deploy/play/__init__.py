"""The playground: trained policies in a page of their own."""

from merlin.deploy.play.page import write_page

__all__ = ["write_page"]
