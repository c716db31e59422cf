"""Results as JSON in benchmarks/results/, from which the tables in the pages of docs/ are generated.

A table is one file; its name stands between the markers of its place in docs/benchmarks.md. `python -m tools.generate`
writes the pages.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"
_PLOTS = RESULTS.parents[1] / "docs" / "plots"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTable:
    """A table of results; each cell is the text to show.

    Args:
        measured: the day, rounds and load of the measurement, or "" if the note says it.
        note: a sentence below the table, or instead of one.
        text_columns: number of columns that are aligned to the left; the others hold numbers.
    """

    measured: str = ""
    note: str = ""
    text_columns: int = 0
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()

    def markdown(self) -> str:
        """Return the table in Markdown, with note and day."""
        right = len(self.head) - self.text_columns
        rule = ["---"] * self.text_columns + ["---:"] * right
        lines = [f"| {' | '.join(row)} |" for row in (self.head, rule, *self.rows)] if self.head else []
        parts = ("\n".join(lines), self.note, f"*{self.measured}.*" if self.measured else "")
        return "\n\n".join(part for part in parts if part)

    def to_json(self) -> str:
        """Return the table as JSON, one row a line."""
        fields = {"measured": self.measured, "note": self.note, "text_columns": self.text_columns, "head": self.head}
        facts = "".join(f" {json.dumps(name)}: {_dump(value)},\n" for name, value in fields.items())
        rows = ",\n".join(f"  {_dump(row)}" for row in self.rows)
        return f'{{\n{facts} "rows": [\n{rows}\n ]\n}}\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Results of one benchmark: tables by the name of their place in the page, plots by the name of their file."""

    tables: Mapping[str, ResultTable]
    plots: Mapping[str, str]


def table(head: Sequence[str], rows: Iterable[Sequence[object]], *, text_columns: int) -> ResultTable:
    """Return a table; all columns after the first `text_columns` hold numbers."""
    return ResultTable(head=head, rows=[[str(cell) for cell in row] for row in rows], text_columns=text_columns)


def write(section: Section, *, measured: str = "") -> None:
    """Write tables to benchmarks/results/, each with `measured`, and plots to docs/plots/."""
    for name, made in section.tables.items():
        (RESULTS / f"{name}.json").write_text(replace(made, measured=measured).to_json(), encoding="utf-8")
    for name, drawn in section.plots.items():
        (_PLOTS / f"{name}.svg").write_text(drawn, encoding="utf-8")


def read_tables() -> dict[str, ResultTable]:
    """Return the tables in benchmarks/results/, by name."""
    return {
        path.stem: ResultTable(**json.loads(path.read_text(encoding="utf-8")))
        for path in sorted(RESULTS.glob("*.json"))
    }


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
