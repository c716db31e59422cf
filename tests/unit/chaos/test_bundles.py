"""The checks of a run with bundles find what is wrong with messages and deaths, and a run that shows nothing."""

from sluice.judge.databases import DatabaseEvidence, InboxNumbers, OutboxMessage
from tests.chaos.system import bundles
from tests.chaos.system.bundles import SentMessage
from tests.chaos.system.calls import HandlerCall

_NOTHING = DatabaseEvidence()


def test_an_event_in_two_messages_is_found_unless_it_was_resent() -> None:
    """The same message twice has the same deduplication id, and consumers get one."""
    sent = [SentMessage("x", ("a", "b")), SentMessage("x", ("a", "b")), SentMessage("y", ("b", "c"))]

    assert list(bundles.objections(sent, _NOTHING, (), (), ())) == ["event b was sent in 2 different messages"]
    assert list(bundles.objections(sent, _NOTHING, (), {"b"}, ())) == []


def test_an_event_that_died_with_its_neighbour_is_found() -> None:
    """Its handler was never called; or an operator found it in the DLQ, and its inbox knows of no death."""
    listed = [
        InboxNumbers(consumer="audit", group="g", epoch=1, seq=seq, through=seq, state=state, reason="poison")
        for seq, state in ((1, "dead"), (2, "redriven"), (3, "skipped"))
    ]
    published = [OutboxMessage(event_id=event_id, group="g", seq=seq) for seq, event_id in enumerate("abc", start=1)]
    found = DatabaseEvidence(published=published, listed=listed)
    calls = [HandlerCall("audit", "a", is_doomed=True), HandlerCall("ledger", "b", is_doomed=True)]

    brought_back = {("audit", event_id) for event_id in "abd"}

    assert list(bundles.objections([], found, calls, (), brought_back)) == [
        "audit: event d was in the DLQ without a death of its own: it went there with a neighbour",
        "audit: event b died, and its handler was never called: poison",
    ]


def test_a_run_that_spares_bundles_is_no_proof() -> None:
    sent = [SentMessage("x", tuple("abcd")), SentMessage("y", tuple("efgh"))]
    poison = [HandlerCall("audit", event_id, is_doomed=True) for event_id in "adeg"]
    calls = [*poison, HandlerCall("ledger", "f", is_doomed=True), HandlerCall("ledger", "b", is_doomed=False)]

    found = bundles.count_places(sent, bundles.failed_events(calls))

    assert found == {"first": 2, "middle": 2, "last": 1, "several in one": 2}
    assert bundles.why_no_proof(bundles.sizes(sent), found) is None
    assert bundles.why_no_proof({1: 3, 5: 1}, found) == (
        "a message had 2.0 events in the mean, and less than 3 say nothing about bundles"
    )
    assert bundles.why_no_proof(bundles.sizes(sent), found | {"last": 0}) == (
        "no handler failed on these events of a bundle: last"
    )
