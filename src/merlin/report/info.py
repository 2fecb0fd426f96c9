"""What `merlin info` found, as one page that needs nothing but itself."""

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def page(title: str, summary: str, facts: list[str], about: Mapping[str, Any]) -> str:
    """The page; `about` is what `merlin.data.describe.describe` returns."""
    environment = Environment(
        loader=PackageLoader("merlin.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("info.html").render(
        title=title, summary=summary, facts=facts, about=about
    )
