"""Write the pages that follow from the code: `python -m tools.generate` (or `make docs`).

docs/promises.md and docs/conformance.md are generated whole; so are docs/conformance.html and .json, which are not in
git. In docs/architecture/stacks.md and outbox.md, docs/guides/deploy.md, docs/benchmarks.md and docs/capacity.md
only the text between `<!-- generated: NAME -->` and `<!-- end of NAME -->` is generated. The resource schemas that the
guard of deployments needs are written beside it, in sluice/deployment.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks import report
from contract_tests.proving import conformance_page
from sluice.declaration import DatabaseRole
from sluice.messaging.database import roles
from tools.pages import alarm_table, capacity, cost_table, declared_fields, guarded_changes, promises_page, stack_counts
from tools.pages.declared_fields import ENVIRONMENTS

DOCS = Path(__file__).resolve().parents[1] / "docs"


def pages() -> dict[Path, str]:
    """Return the current text of every generated file that is in git, by its path."""
    deploy = DOCS / "guides" / "deploy.md"
    stacks, needs, measured = (DOCS / name for name in ("architecture/stacks.md", "capacity.md", "benchmarks.md"))
    outbox = DOCS / "architecture/outbox.md"
    return {
        DOCS / "promises.md": promises_page.page(),
        DOCS / "conformance.md": conformance_page.markdown(conformance_page.read_matrix(DOCS)),
        stacks: fill(stacks.read_text(encoding="utf-8"), _parts()),
        outbox: fill(outbox.read_text(encoding="utf-8"), {"rights": _rights()}),
        measured: fill(measured.read_text("utf-8"), {name: of.markdown() for name, of in report.read_tables().items()}),
        needs: fill(needs.read_text(encoding="utf-8"), {"capacity": _capacity(), "bundles": _bundles()}),
        deploy: fill(
            deploy.read_text(encoding="utf-8"), {"changes": _table(guarded_changes.COLUMNS, guarded_changes.rows())}
        ),
        guarded_changes.FILE: guarded_changes.schemas_text(),
    }


def built_pages() -> dict[Path, str]:
    """Return the current text of the generated files that are not in git, by their path."""
    matrix = conformance_page.read_matrix(DOCS)
    return {DOCS / path: make(matrix) for path, make in conformance_page.BUILT.items()}


def fill(page: str, generated: Mapping[str, str]) -> str:
    """Return the page with every generated part put between its markers.

    Raises:
        LookupError: the parts marked in the page are not the keys of `generated`.
    """
    found = re.findall(r"<!-- generated: (.+?) -->", page)
    if sorted(found) != sorted(generated):
        raise LookupError(f"the page has the parts {sorted(found)}, generated are {sorted(generated)}")

    def put(match: re.Match[str]) -> str:
        """Return the two markers of a part, with its new text between them."""
        return f"{match[1]}\n\n{generated[match[2]]}\n\n{match[3]}"

    return re.sub(r"(<!-- generated: (.+?) -->).*?(<!-- end of \2 -->)", put, page, flags=re.DOTALL)


def _parts() -> dict[str, str]:
    names = tuple(ENVIRONMENTS)
    differences = [(f"`{name}`", *shown) for name, shown in declared_fields.differences()]
    return {
        "counts": _table(("stack", "type", *names), stack_counts.rows(), right=len(names)),
        "environments": _table(("field", *names), differences),
        "alarms": _table(alarm_table.COLUMNS, alarm_table.rows()),
        "costs": _table(("US dollars a month", *cost_table.COLUMNS), cost_table.rows(), right=len(cost_table.COLUMNS)),
        "prices": _table(("for", "US dollars", "per", "read in"), cost_table.price_rows()),
        **{f"fields of {kind.__name__}": _fields(kind) for kind in declared_fields.DECLARED},
    }


def _capacity() -> str:
    rates = [f"{rate:,}/s" for rate in capacity.RATES]
    return _table(("messages of 1 KiB", *rates, "measured, computed or documented"), capacity.rows())


def _bundles() -> str:
    sizes = [f"US dollars, events of {size // 1_024} KiB" for size in capacity.BUNDLED_BYTES]
    return _table(("events a message", "requests of one group", *sizes), capacity.bundle_rows(), right=4)


def _rights() -> str:
    parts = ("\n".join(roles.statements(role)) for role in DatabaseRole)
    return "```sql\n{}\n```".format("\n\n".join(parts))


def _fields(of: type) -> str:
    rows = [(f"`{row.name}`", row.unit, row.default, row.effect, row.allowed) for row in declared_fields.rows(of)]
    return _table(("field", "unit", "default", "effect", "allowed"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]], *, right: int = 0) -> str:
    """Return a table; the last `right` columns hold numbers."""
    rule = ["---"] * (len(head) - right) + ["---:"] * right
    lines = [head, rule, *([str(cell).replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    for path, text in (pages() | built_pages()).items():
        path.write_text(text, encoding="utf-8")
