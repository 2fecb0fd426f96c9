"""The output of `merlin info` as a self-contained page."""

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def page(title: str, summary: str, facts: list[str], about: Mapping[str, Any]) -> str:
    """Render the page; `about` is the return value of `merlin.data.describe.describe`."""
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
