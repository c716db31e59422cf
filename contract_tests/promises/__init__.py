"""Every promise that Sluice relies on: its sentence, who keeps it, the evidence, and the saboteurs that break it.

Contract tests name a promise by its id (`@promise("GRP-01")`). The evidence is only in the files beside this one, one
file for each area: under each grade the sources, with the date in brackets. `SLU-nn` are promises that Sluice composed
of several facts; the other ids are each one fact. `docs/promises.md` is generated from here.

A source is one of these:

- a test of LocalStack's: recorded, with the date of the recording; asserted, with that of its last passing run on AWS;
  or old, from before dates were kept;
- a test of the suite that justeattakeaway/LocalSqsSnsMessaging shares with AWS, with the date of its run;
- a test of moto's that is marked there as verified on AWS;
- a page of AWS, or of users who quote AWS's answer, with the day on which it was read;
- what only another emulator, or our inference, says: open.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contract_tests.promises.promise import Evidence, Grade, Promise, Promiser

__all__ = ["CORE", "PROMISES", "Evidence", "Grade", "Promise", "Promiser"]

_AREAS = (
    *("group_blocking", "order", "visibility", "deduplication", "sending", "purge"),
    *("queue_attributes", "batches", "receiving", "tags", "limits", "errors"),
    *("dead_letter_queue", "redrive_policy", "move_task", "mapping"),
    *("fan_out", "topic", "subscription", "publishing", "filter_policy", "deployment"),
)


def _read(area: str) -> Iterator[Promise]:
    """Yield the promises of an area, in the order of its file."""
    path, place = Path(__file__).parent / f"{area}.toml", "its head"  # the place is for an error's note
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
        title, promiser = read.pop("area"), Promiser(read.pop("promiser", Promiser.SERVICE))
        for place, entry in read.items():
            statement, saboteurs = entry.pop("statement"), tuple(entry.pop("saboteurs"))
            evidence = tuple(_evidence(entry))
            yield Promise(
                id=place, statement=statement, evidence=evidence, saboteurs=saboteurs, promiser=promiser, area=title
            )
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
        error.add_note(f"Read in {path}, at {place}.")
        raise


def _evidence(sources_of: dict[str, Any]) -> Iterator[Evidence]:
    """Yield the evidence in a promise's entry: lists of sources by grade, each `SOURCE (DATE)`."""
    for grade, sources in sources_of.items():
        for text in sources:
            found = re.fullmatch(r"(.+) \((.+?)\)", text)
            assert found is not None, f"{text!r} has no date in brackets behind it"
            yield Evidence(Grade(grade), found[1], found[2])


PROMISES: dict[str, Promise] = {promise.id: promise for area in _AREAS for promise in _read(area)}

_CORE = {
    "blocking": "GRP-01 SLU-01 GRP-05 GRP-02 GRP-06 VIS-11",
    "order": "RCV-16 RCV-08 SND-10 ORD-02 SLU-04",
    "visibility": "RCV-17 VIS-01 VIS-14 VIS-13",
    "deduplication": "DED-01 DED-08 RCV-05 DED-11 SLU-02 DED-04 DED-09",
    "messages": "SND-01 SND-02 SLU-30 RCV-11 VIS-17",
    "dead letters": "DLQ-01 DLQ-04 DLQ-06 DLQ-09 DLQ-21",
    "move tasks": "MOV-20 MOV-17 MOV-31 MOV-01",
    "fan-out": "SLU-05 SNS-24 SLU-06 SNS-39 SNS-14 SNS-31",
}
CORE: tuple[str, ...] = tuple(id_ for ids in _CORE.values() for id_ in ids.split())
"""The promises that everybody who builds on FIFO queues and topics should know; `pytest contract_tests -m core`."""
