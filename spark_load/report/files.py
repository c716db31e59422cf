"""The files of a run's folder that tell of its verdict, written and read back."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sluice.anomalies import ANOMALIES
from sluice.errors import HistoryError
from sluice.history import Event
from sluice.verdict import SCHEMA_VERSION, Holding, Property, Verdict, Violation
from spark_load import series
from spark_load.report import junit
from spark_load.report.summary import markdown

VERDICT_FILE = "verdict.json"
SUMMARY_FILE = "summary.md"
JUNIT_FILE = "junit.xml"
SERIES_FILE = "series.json"
PAGE_FILE = "report.html"


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
        next_step = instead or f"make room there, or copy it, and judge it: python -m spark_load check {path.parent}"
        raise HistoryError(f"cannot write {path} ({error.strerror}); {next_step}") from error


def read_verdict(folder: Path) -> Verdict:
    """Return the verdict of the run whose folder that is.

    Raises:
        HistoryError: there is none, or it is damaged, or newer than this version of Sluice.
    """
    path = folder / VERDICT_FILE
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise HistoryError(
            f"{folder} is not the folder of a run with a verdict ({VERDICT_FILE} is missing); see the folders in runs/,"
            " or judge it first: python -m spark_load check FOLDER"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path) from error
    if isinstance(said, dict) and isinstance(version := said.get("schema_version"), int) and version > SCHEMA_VERSION:
        raise HistoryError(
            f"{path} has schema version {version}, this version of Sluice reads up to {SCHEMA_VERSION}:"
            " read it with the version that wrote it, or a newer one"
        )
    try:
        return verdict_of(said)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(path) from error


def _damaged(path: Path) -> HistoryError:
    return HistoryError(f"{path} is damaged; judge the run again: python -m spark_load check {path.parent}")


def verdict_of(said: Mapping[str, Any]) -> Verdict:
    """Return the verdict that JSON tells of.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it tells of none.
    """
    verdict = Verdict(
        properties=tuple(_property(one) for one in said["properties"]),
        violations=tuple(violation_of(one) for one in said["violations"]),
        unknowns=tuple(map(str, said["unknowns"])),
        measures=dict(said["measures"]),
        run=dict(said["run"]),
    )
    parts = verdict.measures.get("queues", {}), verdict.run.get("profile", {})
    if not all(isinstance(part, Mapping) for part in parts):
        raise TypeError("queues and profile are mappings")
    if verdict.status.value != said["status"]:
        raise ValueError(f"the status is {said['status']!r}, its parts say {verdict.status.value!r}")
    return verdict


def _property(said: Mapping[str, Any]) -> Property:
    return Property(
        anomaly=ANOMALIES[said["anomaly"]].id,
        opportunities=int(said["opportunities"]),
        violation_count=int(said["violations"]),
        allowed_because=said["allowed_because"],
        is_unknown=said["holding"] == Holding.UNKNOWN,
    )


def violation_of(said: Mapping[str, Any]) -> Violation:
    """Return the violation that JSON tells of."""
    return Violation(
        anomaly=ANOMALIES[said["anomaly"]].id,
        message_group_id=said["message_group_id"],
        queue=said["queue"],
        idxs=tuple(said["idxs"]),
        sentence=said["sentence"],
        witness=tuple(Event(**event) for event in said["witness"]),
    )


def read_series(folder: Path, verdict: Verdict) -> series.Series | None:
    """Return what the page's charts show; None when it is not there, damaged, or of another run or version."""
    try:
        said = json.loads((folder / SERIES_FILE).read_text(encoding="utf-8"))
        is_ours = (said["schema_version"], said["run"]) == (series.SCHEMA_VERSION, verdict.run["run"])
        is_whole = said.keys() >= series.FIELDS
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return dict(said) if is_ours and is_whole else None
