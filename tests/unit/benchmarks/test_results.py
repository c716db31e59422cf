"""Results of benchmarks are kept as JSON, from which pages show them."""

from pathlib import Path

import pytest

from benchmarks import report


def test_a_table_keeps_and_shows_the_day_of_its_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    made = report.table(("what", "bytes"), [("a row", 7), ("another", "1,092")], text_columns=1)

    report.write(report.Section(tables={"storage": made}, plots={}), measured="2026-11-26, 1 round")

    assert list(report.read_tables()) == ["storage"]
    assert report.read_tables()["storage"].markdown() == (
        "| what | bytes |\n| --- | ---: |\n| a row | 7 |\n| another | 1,092 |\n\n*2026-11-26, 1 round.*"
    )


def test_every_kept_table_is_written_as_the_benchmarks_write_it() -> None:
    """A result is one row a line, so that a diff shows which was measured again."""
    kept = {path.name: path.read_text(encoding="utf-8") for path in report.RESULTS.iterdir()}

    assert {f"{name}.json": made.to_json() for name, made in report.read_tables().items()} == kept
