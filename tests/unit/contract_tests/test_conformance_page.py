"""The conformance pages against the results committed with them."""

import json
import re
from collections import Counter
from pathlib import Path

from contract_tests.promises import PROMISES, Promiser
from contract_tests.proving import conformance, conformance_page
from contract_tests.proving.conformance import COLUMNS
from contract_tests.proving.conformance_page import RESULTS
from emulator import peers
from tests.support.project import PROJECT

DOCS = PROJECT / "docs"
MATRIX = conformance_page.read_matrix(DOCS)


def test_results_are_written_one_promise_per_line_and_read_back(tmp_path: Path) -> None:
    conformance_page.write(MATRIX, tmp_path)

    written, whole = ((tmp_path / name).read_text("utf-8") for name in (RESULTS, "conformance.json"))
    rows = len(MATRIX["promises"]) + len(COLUMNS)
    assert written == (DOCS / RESULTS).read_text(encoding="utf-8")
    assert conformance_page.read_matrix(tmp_path) == MATRIX == json.loads(whole)
    assert [sum(line.startswith("{") for line in text.splitlines()) for text in (written, whole)] == [rows + 1] * 2


def test_a_promise_that_the_catalogue_has_lost_is_not_on_the_page(tmp_path: Path) -> None:
    row = MATRIX["promises"][0]
    conformance_page.write(MATRIX | {"promises": [row, row | {"id": "GONE-01"}]}, tmp_path)

    assert conformance_page.read_matrix(tmp_path)["promises"] == [row]


def test_every_promise_of_the_page_has_status_and_evidence_per_target() -> None:
    ids = [row["id"] for row in MATRIX["promises"]]
    results = [result for row in MATRIX["promises"] for result in row["results"].values()]

    assert len(ids) == len(set(ids)) >= 150
    assert [list(row["results"]) for row in MATRIX["promises"]] == [list(COLUMNS)] * len(ids)
    assert {result["status"] for result in results} <= set(conformance_page.STATUSES)
    assert [result for result in results if not result["evidence"] or "\n" in result["evidence"]] == []


def test_the_numbers_of_the_summary_add_up() -> None:
    """Counted again from the rows of the page, not from the results."""
    page = (DOCS / "conformance.md").read_text(encoding="utf-8")
    table, _, areas = page.partition("\n## ")
    summary = [list(map(int, row)) for row in re.findall(r"\| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", table)]
    cells = [row.rsplit("|", len(COLUMNS) + 1)[1:-1] for row in areas.splitlines() if re.match(r"\| [A-Z]{3}-", row)]

    counted = [Counter(cell.strip(" *") for cell in column) for column in zip(*cells, strict=True)]
    assert summary == [[count[status] for status in conformance_page.STATUSES] for count in counted]
    assert f"{len(cells)} promises on {len(COLUMNS)} targets" in table
    assert {sum(row) for row in summary} == {len(cells)}


def test_the_page_loads_nothing_from_the_network() -> None:
    html = conformance_page.html(MATRIX)

    assert re.findall(r"""(?:src|href|action)=["'](?!data:,)[^"']*""", html) == []
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|WebSocket|<(?:iframe|img|object|embed)", html)


def test_a_targets_text_is_escaped_in_the_page() -> None:
    row = MATRIX["promises"][0]
    found = {"status": "deviates", "evidence": "<script>alert(1)</script>"}
    matrix = MATRIX | {"promises": [row | {"results": dict.fromkeys(COLUMNS, found)}]}

    assert "<script>alert" not in conformance_page.html(matrix)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in conformance_page.html(matrix)


def test_an_untested_target_is_a_column_of_unknowns_with_the_reason() -> None:
    kept = {"status": "holds", "evidence": "test.py::test", "seconds": 1.0}
    matrix = conformance.matrix({"simulator": ({"GRP-01": kept}, None), "moto": ({}, "out of disk")}, "2026-11-21")

    assert [row["id"] for row in matrix["promises"]] == ["GRP-01"]
    assert matrix["promises"][0]["results"] == {
        "simulator": {"status": "holds", "evidence": "test.py::test"},
        "moto": {"status": "unknown", "evidence": "out of disk"},
    }


def test_every_promise_is_unknown_without_a_tested_target() -> None:
    matrix = conformance.matrix({"moto": ({}, "out of disk")}, "2026-11-21")

    services = [promise.id for promise in PROMISES.values() if promise.promiser is not Promiser.STACK]
    assert [row["id"] for row in matrix["promises"]] == services
    assert conformance_page.counts(matrix) == {"moto": Counter(unknown=len(services))}


def test_the_versions_on_the_page_are_the_versions_in_the_locks() -> None:
    """Otherwise the page would name a version that no test ran."""
    for peer in peers.PEERS.values():
        lock = (PROJECT / "emulator" / "locks" / f"{peer.name}.lock").read_text(encoding="utf-8")
        assert re.search(
            rf"^(localstack-core|localemu|moto|ministack)=={re.escape(peer.version)}$", lock, flags=re.MULTILINE
        )
