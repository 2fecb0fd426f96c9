"""Elements of HTML and SVG from small functions; text is escaped unless it is markup already."""

import html


class Markup(str):
    """Text that is already HTML or SVG."""

    __slots__ = ()


VOID = {"input", "meta", "line", "rect", "circle", "path", "br"}
Child = str | None


def tag(name: str, /, *children: Child, **attributes: object) -> Markup:
    """`tag("td", "a < b", class_="wide")`: names lose a last `_`, other `_` become `-`.

    An attribute that is None or False is left away; True stands without a value.
    """
    opened = name
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        opened += f" {key}" if value is True else f' {key}="{html.escape(_text(value))}"'
    if name in VOID and not children:
        return Markup(f"<{opened}/>")
    return Markup(f"<{opened}>{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    """Several pieces one after another."""
    return Markup("".join(escape(child) for child in children if child is not None))


def escape(text: str) -> Markup:
    return text if isinstance(text, Markup) else Markup(html.escape(text))


def _text(value: object) -> str:
    """Numbers of a drawing need no more than two digits."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
