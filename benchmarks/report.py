"""docs/benchmarks.md: what was measured stands between markers, what it means is written by hand around them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = DOCS / "benchmarks.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What one benchmark found: tables by the name of their place in the page, plots by the name of their file."""

    tables: Mapping[str, str]
    plots: Mapping[str, str]


def table(head: Sequence[str], rows: Iterable[Sequence[object]], *, text_columns: int) -> str:
    """Return a table; all columns after the first `text_columns` hold numbers."""
    rule = ["---"] * text_columns + ["---:"] * (len(head) - text_columns)
    lines = [head, rule, *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write(section: Section, *, measured: str = "") -> None:
    """Put tables between their markers in the page, each with how it was measured, and plots beside it."""
    page = PAGE.read_text(encoding="utf-8")
    for name, made in section.tables.items():
        place = re.compile(f"(<!-- generated: {name} -->).*?(<!-- end of {name} -->)", re.DOTALL)
        found = place.search(page)
        assert found is not None, f"{PAGE} has no place for {name}"
        parts = (found[1], made, *([measured] if measured else ()), found[2])
        page = page[: found.start()] + "\n\n".join(parts) + page[found.end() :]
    PAGE.write_text(page, encoding="utf-8")
    for name, drawn in section.plots.items():
        (DOCS / "plots" / f"{name}.svg").write_text(drawn, encoding="utf-8")
