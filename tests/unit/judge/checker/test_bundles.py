"""Bundles: each event is judged as a message of its own, which travels with the others of its bundle."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sluice.history.events import HistoryEvent, Kind
from sluice.judge import engine, recording
from sluice.judge.checker.group import Group
from sluice.judge.checker.rules import content, existence
from sluice.judge.checker.verdict import PropertyStatus, Verdict
from sluice.judge.engine import JudgeEngine
from sluice.judge.judge import RunFacts, judge
from sluice.judge.report.summary import markdown
from sluice.recorder import journal, rows
from sluice.recorder.journal import events_of, read_journal
from tests.support.histories.bundled_services import EXPECTATION, KNOWN, QUEUES, BundledService, live, send_dead_letter
from tests.support.histories.recordings import engine_of


def _check(folder: Path) -> Verdict:
    read = engine.open_in_memory(folder)
    assert read is not None, "no limit was given"
    return recording.check(read, folder, KNOWN, "endpoint")[0]


def _judge(read: JudgeEngine) -> Verdict:
    return judge(read, RunFacts(expectation=EXPECTATION, target="endpoint", recorders={}))


def _events(folder: Path) -> list[HistoryEvent]:
    (journal,) = folder.iterdir()
    return events_of(read_journal(journal))


def test_no_lawful_recording_with_bundles_is_invalid(tmp_path: Path) -> None:
    """A message that nobody received yet is open; nothing else is."""
    for seed in range(10):
        folder = tmp_path / str(seed)
        live(folder, seed)

        verdict = _check(folder)

        assert verdict.violations == (), seed
        assert all("not drained" in why or "nothing to judge" in why for why in verdict.unknowns), seed


@pytest.mark.deep
def test_no_lawful_recording_of_many_with_bundles_is_invalid(tmp_path: Path) -> None:
    for seed in range(1_000, 2_000):
        live(tmp_path / str(seed), seed)
        assert _check(tmp_path / str(seed)).violations == (), seed


@pytest.mark.parametrize(
    ("saboteur", "anomaly"),
    [
        ("drop-bundled-events", "G3"),  # those behind it have other positions
        ("lose-bundle-tails", "A2"),
        ("swap-bundled-events", "C2"),
        ("repeat-bundled-events", "B1"),
        ("split-bundles", "G3"),
        ("mix-bundles", "G3"),
    ],
)
def test_a_bundle_that_was_changed_on_its_way_is_invalid(saboteur: str, anomaly: str, tmp_path: Path) -> None:
    """The bundle is the last message of its group: nothing later shows what is missing."""
    verdict = _trade(tmp_path, saboteur)

    assert anomaly in {violation.anomaly for violation in verdict.violations}
    assert verdict.status is PropertyStatus.INVALID


@pytest.mark.parametrize("saboteur", ["drop-bundled-events", "lose-bundle-tails"])
def test_a_bundle_of_which_one_event_is_left_is_invalid(saboteur: str, tmp_path: Path) -> None:
    """It comes as a message without a bundle, as a recorder that knows no bundles never writes one."""
    service = BundledService(tmp_path, saboteur_name=saboteur, is_planned=True)
    service.publish(service.events("a", 2))
    service.end()
    service.work()
    service.close()

    verdict = _judge(engine_of(_events(tmp_path)))

    assert {violation.anomaly for violation in verdict.violations} >= {"A1", "G3"}
    assert verdict.status is PropertyStatus.INVALID


_MIXED = "a producer that mixes"


def _trade(folder: Path, misdeed: str | None) -> Verdict:
    """Return the verdict on a bundle of each of two groups, with a saboteur or a producer that mixes the groups."""
    service = BundledService(folder, saboteur_name=None if misdeed == _MIXED else misdeed)
    for group in "ab":
        others = service.events("c", 1) if misdeed == _MIXED else []
        service.publish([*service.events(group, 3), *others])
    service.work()
    service.close()
    return _check(folder)


def test_a_bundle_of_two_groups_is_invalid(tmp_path: Path) -> None:
    assert {violation.anomaly for violation in _trade(tmp_path, _MIXED).violations} == {"G3"}


def _run(folder: Path, *, boundaries: Sequence[int] = (4,), handled: int = 4, acks_after: int = 4) -> Verdict:
    """Return the verdict on a run in which a bundle of four has no answer, and is published again in these parts.

    Without parts it has an answer.
    """
    service = BundledService(folder, is_planned=True)
    events = service.events("a", 4)
    service.publish(events, is_answered=not boundaries)
    begin = 0
    for count in boundaries:
        service.publish(events[begin : begin + count])
        begin += count
    service.end()
    for queue in QUEUES:
        for message in service.receive(queue):
            is_bundle = '"sluice":2' in message["Body"]
            for position, event in enumerate(events if is_bundle else ()):
                if position == acks_after:
                    service.delete(queue, [message])
                if position < handled:
                    service.handle(queue, message, event, position)
            if acks_after == len(events) or not is_bundle:
                service.delete(queue, [message])
    service.close()
    return _judge(engine_of(_events(folder)))


@pytest.mark.parametrize(("boundaries", "suspect_count"), [((), 0), ((4,), 1)])
def test_a_run_with_bundles_is_valid(boundaries: Sequence[int], suspect_count: int, tmp_path: Path) -> None:
    """Screening clears an ordinary bundle; one that was published twice goes to the checker."""
    verdict = _run(tmp_path, boundaries=boundaries)

    assert verdict.violations == ()
    assert verdict.status is PropertyStatus.VALID
    assert verdict.measures["suspect_groups"] == suspect_count
    assert verdict.measures["bundles"] == {"events": 10, "messages": 4}  # five from each of two queues
    summary = markdown(verdict)
    assert "- received 10 events in 4 messages, 2.5 a message" in summary
    assert "- published 4 events in " in summary


@pytest.mark.parametrize(
    ("misdeed", "anomaly"),
    [
        ({"boundaries": (2, 2)}, "B1"),
        ({"boundaries": (1, 3)}, "B1"),
        ({"boundaries": (1, 1, 1, 1)}, "B1"),
        ({"acks_after": 1}, "R4"),
        ({"acks_after": 1, "handled": 1}, "R1"),
        ({"handled": 3}, "R1"),
    ],
)
def test_a_run_that_treats_events_of_a_bundle_apart_is_invalid(
    misdeed: dict[str, Any], anomaly: str, tmp_path: Path
) -> None:
    """The producer splits a bundle at its retry, or the consumer deletes it before all of its events are handled."""
    verdict = _run(tmp_path, **misdeed)

    assert anomaly in {violation.anomaly for violation in verdict.violations}


def _record_bundle(folder: Path) -> list[HistoryEvent]:
    service = BundledService(folder)
    service.publish(service.events("a", 3))
    service.work()
    service.close()
    return _events(folder)


@pytest.mark.parametrize("kind", [Kind.PUBLISHED, Kind.RECEIVED])
def test_a_bundle_that_one_process_did_not_unpack_is_unknown(kind: Kind, tmp_path: Path) -> None:
    """A recorder of an earlier version writes it as one message, without a number."""
    whole = [
        replace(
            event,
            idx=5,
            body_hash="of the bundle",
            batch_position=0,
            deduplication_id=(event.deduplication_id or "").rpartition(".")[0],
            sns_message_id=event.sns_message_id and event.sns_message_id.rpartition(".")[0],
            sqs_message_id=event.sqs_message_id and event.sqs_message_id.rpartition(".")[0],
        )
        if event.kind == kind
        else event
        for event in _record_bundle(tmp_path)
        if event.kind != kind or event.batch_position == 0
    ]

    verdict = recording.check(engine_of(whole), tmp_path, KNOWN, "endpoint")[0]

    assert verdict.status is PropertyStatus.UNKNOWN
    assert "is on record as one message by one process, and as its events by another" in str(verdict.unknowns)


@pytest.mark.parametrize("are_declared", [True, False])
def test_bundles_recorded_by_older_recorders_alone_are_unknown_if_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, are_declared: bool
) -> None:
    """They write no row for an event, and do not say that they would. Other programs' messages have no events."""
    monkeypatch.setattr(journal, "OPENING_DETAIL", None)
    monkeypatch.setattr(rows, "bundled_bodies", lambda _: [])
    _record_bundle(tmp_path)
    queues = {name: replace(queue, may_have_bundles=are_declared) for name, queue in KNOWN.items()}
    read = engine.open_in_memory(tmp_path)
    assert read is not None, "no limit was given"

    verdict = recording.check(read, tmp_path, queues, "endpoint")[0]

    assert verdict.violations == ()
    assert are_declared == any("writes a bundle as one message" in why for why in verdict.unknowns)


def _forget(*_: object, **__: object) -> dict[str, Mapping[object, object]]:
    return defaultdict(dict)


@pytest.mark.parametrize(
    ("module", "name", "broken", "misdeed", "anomaly"),
    [
        (existence, "_received_bundles", _forget, "lose-bundle-tails", "A2"),
        (content, "_find_mixed_bundles", lambda _: iter(()), _MIXED, "G3"),
        (rows, "_with_other_group", lambda row, _: row, _MIXED, "G3"),
        (rows, "part_id", lambda id_, _: id_, "repeat-bundled-events", "B1"),
        (rows, "part_number", lambda number, _: number, None, None),
    ],
)
def test_a_judge_or_recorder_that_forgets_bundles_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    module: ModuleType,
    name: str,
    broken: Any,
    misdeed: str | None,
    anomaly: str | None,
) -> None:
    """A broken one misses its anomaly, or finds one in a lawful run."""
    monkeypatch.setattr(module, name, broken)

    found = {violation.anomaly for violation in _trade(tmp_path, misdeed).violations}

    assert bool(found) if anomaly is None else anomaly not in found


def test_an_event_that_its_consumer_sent_to_the_dlq_is_lawful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQS would have moved the message after three receives, under another deduplication id and as a whole."""
    service = BundledService(tmp_path)
    service.publish(service.events("a", 3))
    for queue in QUEUES:
        (message,) = service.receive(queue)
        send_dead_letter(service, queue, message)
        service.delete(queue, [message])
    service.work()
    service.close()

    lawful = _check(tmp_path)
    monkeypatch.setattr(Group, "is_sent_by_consumer", lambda *_: False)
    by_a_broken_judge = _check(tmp_path)

    assert lawful.violations == ()
    assert "F6" in {violation.anomaly for violation in by_a_broken_judge.violations}
