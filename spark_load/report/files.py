"""The files of a run's folder that tell of its verdict, written and read back."""

import json
from pathlib import Path

from sluice.errors import HistoryError
from sluice.history.checker.verdict import SCHEMA_VERSION, Holding, Property, Verdict, Violation
from spark_load import shapes
from spark_load.judge import series
from spark_load.report import junit
from spark_load.report.summary import markdown

VERDICT_FILE = "verdict.json"
SUMMARY_FILE = "summary.md"
JUNIT_FILE = "junit.xml"
SERIES_FILE = "series.json"
PAGE_FILE = "report.html"
_FROM_HISTORY = "it is made again from the history"


def write(verdict: Verdict, folder: Path) -> None:
    """Write summary, JUnit and verdict into the run's folder; the verdict last and by rename: it is there whole or not.

    The page is not drawn here: nothing that draws may cost a verdict. One of an older verdict is removed.

    Raises:
        HistoryError: they cannot be written there.
    """
    replace(folder / SUMMARY_FILE, markdown(verdict))
    replace(folder / JUNIT_FILE, junit.xml(verdict))
    (folder / PAGE_FILE).unlink(missing_ok=True)
    (folder / SERIES_FILE).unlink(missing_ok=True)
    replace(folder / VERDICT_FILE, json.dumps(verdict.as_json(), indent=2) + "\n")


def write_series(said: series.Series, folder: Path) -> None:
    """Write what the page's charts show into the run's folder.

    Raises:
        HistoryError: they cannot be written there.
    """
    replace(folder / SERIES_FILE, json.dumps(said, separators=(",", ":")) + "\n")


def write_page(verdict: Verdict, said: series.Series, path: Path) -> None:
    """Draw the page and write it.

    Raises:
        HistoryError: it cannot be written there.
    """
    from spark_load.report import page  # noqa: PLC0415 (what draws takes a second to load, and few commands draw)

    replace(path, page.html(verdict, said), instead="name another file with -o")


def replace(path: Path, text: str, *, instead: str = "") -> None:
    """Write a file as a whole: whoever looks sees all of it, or what was there before.

    Args:
        path: of the file.
        text: all of it.
        instead: what to do where it cannot be written.

    Raises:
        HistoryError: it cannot be written there; nothing recorded is lost.
    """
    draft = path.with_name(f".{path.name}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        next_step = instead or f"make room there, or copy it, and judge it: sluice check {path.parent}"
        raise HistoryError(f"cannot write {path} ({error.strerror}); {next_step}") from error


def read_verdict(folder: Path) -> Verdict:
    """Return the verdict of the run whose folder that is.

    Raises:
        HistoryError: there is none, or it is damaged, or newer than this version of Sluice.
    """
    path = folder / VERDICT_FILE
    again = f"judge the run again: sluice check {folder}"
    try:
        version = shapes.read(path, shapes.VERSIONED, instead=again).get("schema_version", SCHEMA_VERSION)
    except FileNotFoundError as error:
        raise HistoryError(
            f"{folder} is not the folder of a run with a verdict ({VERDICT_FILE} is missing); see the folders in runs/,"
            " or judge it first: sluice check FOLDER"
        ) from error
    if version > SCHEMA_VERSION:
        raise HistoryError(
            f"{path} has schema version {version}, this version of Sluice reads up to {SCHEMA_VERSION}:"
            " read it with the version that wrote it, or a newer one"
        )
    said = shapes.read(path, shapes.VERDICT, instead=again)
    verdict = _verdict(said)
    if verdict.status is not said["status"]:
        raise HistoryError(
            f"{path} is damaged: its status is {said['status'].value}, and what it tells makes"
            f" {verdict.status.value}; {again}"
        )
    return verdict


def _verdict(said: shapes.VerdictShape) -> Verdict:
    return Verdict(
        properties=tuple(
            Property(
                anomaly=one["anomaly"],
                opportunities=one["opportunities"],
                violation_count=one["violations"],
                allowed_because=one["allowed_because"],
                is_unknown=one["holding"] is Holding.UNKNOWN,
                crossed=one.get("crossed", ()),
            )
            for one in said["properties"]
        ),
        violations=tuple(Violation(**one) for one in said["violations"]),
        unknowns=said["unknowns"],
        measures=dict(said["measures"]),
        run=dict(said["run"]),
    )


def read_series(folder: Path, verdict: Verdict) -> series.Series | None:
    """Return what the page's charts show; None when it is not there, or of another run or version.

    Raises:
        HistoryError: it is damaged.
    """
    path = folder / SERIES_FILE
    try:
        of_what = shapes.read(path, shapes.SERIES_OF, instead=_FROM_HISTORY)
    except FileNotFoundError:
        return None
    if (of_what["schema_version"], of_what["run"]) != (series.SCHEMA_VERSION, verdict.run.get("run")):
        return None
    said = shapes.read(path, shapes.SERIES, instead=_FROM_HISTORY)
    return dict(said)
