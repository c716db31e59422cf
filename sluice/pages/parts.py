"""Parts of every page, which is one file of HTML and inline SVG, asks the network for nothing and needs no script."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import altair as alt

_BASE, _STYLE = (Path(__file__).resolve().parent / name for name in ("base.html", "style.css"))
_HEADING = re.compile(r'<h2 id="([^"]+)">(.*?)</h2>')


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart as SVG, with its heading and a description of what it shows."""

    title: str
    description: str
    svg: str


@dataclass(frozen=True, slots=True)
class Table:
    """The numbers that a chart shows, as a table."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def draw_figure(
    chart: "alt.LayerChart | alt.VConcatChart", *, name: str, title: str, description: str, svg_title: str | None = None
) -> Figure:
    """Draw a chart and return it as a figure.

    `name` is unique on the page; `svg_title` is the title of the SVG, if it is not `title`.
    """
    from sluice.pages import charts  # noqa: PLC0415 (a page without a chart needs no Altair)

    svg = charts.svg(chart, name=name, title=svg_title or title, description=description)
    return Figure(title, description, svg)


def fill(template: Path, parts: Mapping[str, str]) -> str:
    """Return a page: base.html with its links to what has a heading in the template, and each `{{name}}` replaced.

    Args:
        template: a file of HTML, which comes below the verdict.
        parts: HTML, escaped, by the name it replaces: the names in the template, and those of base.html: title, status
            (a class), heading, word, means, reasons (items of a list), and the one below the reasons.
    """
    main = _replace_parts(template, parts)
    sections = "".join(f'<li><a href="#{anchor}">{title}</a></li>' for anchor, title in _HEADING.findall(main))
    style = _STYLE.read_text(encoding="utf-8")
    return _replace_parts(_BASE, {**parts, "style": style, "sections": sections, "main": main})


def _replace_parts(template: Path, parts: Mapping[str, str]) -> str:
    """Return a template's text with each `{{name}}` replaced by the part of that name."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template.read_text(encoding="utf-8"))


def list_items(lines: Iterable[str]) -> str:
    """Return lines of text as items of an HTML list."""
    return "".join(f"<li>{escape(line)}</li>" for line in lines)


def figure_html(figure: Figure) -> str:
    """Return a figure as HTML: heading, chart, and the description as its caption."""
    caption = f"<figcaption>{escape(figure.description)}</figcaption>"
    return f"<figure><h3>{escape(figure.title)}</h3>{figure.svg}{caption}</figure>"


def table_html(table: Table) -> str:
    """Return a table as HTML that the reader unfolds; the first cell of a row is its heading."""
    rows = "\n".join(
        f'<tr><th scope="row" class="number">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in table.rows
    )
    return (
        f"<details><summary>{escape(table.title)}</summary>"
        f'<div class="scroll">{rows_html(table.head, rows, css="numbers", numbers=table.head)}</div></details>'
    )


def rows_html(head: Iterable[str], rows: str, *, css: str = "", numbers: Collection[str] = ()) -> str:
    """Return an HTML table of rows below the names of its columns.

    Columns in `numbers` hold numbers, which stand to the right.
    """
    names = "".join(
        f'<th scope="col"{" class='number'" if name in numbers else ""}>{escape(name)}</th>' for name in head
    )
    return f'<table class="{css}"><thead><tr>{names}</tr></thead><tbody>{rows}</tbody></table>'


def pairs(rows: Iterable[tuple[str, str]]) -> str:
    """Return an HTML table of two columns, names and values, all of them escaped."""
    return (
        "<table class='pairs'><tbody>"
        + "".join(f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>' for name, value in rows)
        + "</tbody></table>"
    )
