"""Pages from templates. What a template shows is text: escaped for HTML, with escapes for what is not printable."""

import json
from difflib import unified_diff
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from sluice.cli.overview.screen import span_text
from sluice.clock import utc
from sluice.terminal.output import printable_json
from sluice.terminal.printable import printable

_FOLDER = Path(__file__).resolve().parent
_TEXT_CHARACTERS_MAX = 4_000
BODY_CHARACTERS_MAX = 20_000
"""Of a body, unless all of it is asked for."""
_DIFF_CONTEXT_LINES = 3
_DIFF_BYTES_MAX = 400_000  # of both; comparing more would take minutes


def _finalize(value: Any) -> Any:
    """Return what is shown of a value: one line of printable text, unless a template made it HTML."""
    if isinstance(value, Markup):
        return value
    if value is None:
        return ""
    return value if isinstance(value, int | float) else printable(value, characters_max=_TEXT_CHARACTERS_MAX)


def _url(path: str, **parameters: object) -> str:
    """Return an address of ours; what is empty is left out."""
    given = {name: value for name, value in parameters.items() if value not in (None, "")}
    return quote(path, safe="/") + (f"?{urlencode(given)}" if given else "")


def lines_of_text(text: str) -> Markup:
    """Return text of several lines for a `pre` or a text area, each line printable."""
    shown = "\n".join(printable(line, characters_max=len(line) * 10 + 1) for line in text.split("\n"))
    return Markup.escape(shown)


def pretty_json(data: object) -> str:
    """Return data as JSON of several lines, in which everything that is not printable is escaped."""
    text = json.dumps(data, ensure_ascii=False, indent=2)
    return "\n".join(map(printable_json, text.split("\n")))


def diff_lines(before: str, after: str) -> list[tuple[str, str]]:
    """Return the difference of two texts as lines, each with its kind: `same`, `less`, `more` or `place`."""
    if len(before) + len(after) > _DIFF_BYTES_MAX:
        return [("same", f"{len(before)} characters become {len(after)}: too many to compare here")]
    kinds = {"+": "more", "-": "less", "@": "place"}
    compared = unified_diff(before.split("\n"), after.split("\n"), lineterm="", n=_DIFF_CONTEXT_LINES)
    return [(kinds.get(line[:1], "same"), line) for line in list(compared)[2:]]


def _instant(at_us: int | None) -> str:
    return "" if at_us is None else utc(at_us).strftime("%Y-%m-%d %H:%M:%S UTC")


def template_environment(**names: Any) -> Environment:
    """Return the templates, which know the names given."""
    made = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        finalize=_finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"instant": _instant, "span": span_text, "text_lines": lines_of_text}
    made.globals |= {"url": _url, **names}
    return made
