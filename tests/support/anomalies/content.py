"""G: what was received is what was published."""

from dataclasses import replace
from typing import Any

from tests.support.anomalies.case import Case
from tests.support.histories.by_hand import publish_of, receive_of, sane

_GOOD = receive_of(sane(), 1)
_PUBLISHED = publish_of(sane(), 1)


def _changed(anomaly: str, sentence: str, change: dict[str, Any], harmless: dict[str, Any]) -> Case:
    """Return billing delivering message 1 with one change, and with a harmless one."""
    bad, good = replace(_GOOD, **change), replace(_GOOD, **harmless)
    return Case(
        anomaly=anomaly,
        events=[bad if event == _GOOD else event for event in sane()],
        idxs=(1,),
        sentence=sentence,
        witness=(_PUBLISHED, bad),
        near_miss=[good if event == _GOOD else event for event in sane()],
    )


CASES = [
    _changed("G1", "the received body is not the published one", {"body_hash": "other"}, {"body_hash": None}),
    _changed("G2", "the MD5 the service gave is not that of the body", {"md5_ok": False}, {"md5_ok": True}),
    _changed(
        "G3",
        "the received deduplication id are not the published ones",
        {"deduplication_id": "other"},
        {"deduplication_id": None},
    ),
    _changed(
        "G4",
        "the envelope names another message than the publish was acknowledged as",
        {"sns_sequence_number": "99".zfill(39)},
        {"sns_sequence_number": _PUBLISHED.sns_sequence_number},
    ),
]
