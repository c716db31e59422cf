"""A dead letter that is a whole bundle, as an older worker leaves it: tools speak of its events, and repeat none."""

import json
from collections.abc import Callable

import pytest
from click.testing import Result
from sqlalchemy import Engine

from sluice.messaging.bundle import events_of, write_bundle
from tests.support.messaging.dlq_harness import DEAD, QUEUE, DlqHarness, envelope
from tests.support.messaging.inbox_harness import InboxHarness

WHY = ("--reason", "the data was wrong", "--yes")

type Run = Callable[..., Result]


@pytest.fixture
def bundle_id(harness: DlqHarness, database: Engine) -> str:
    """Return the id of a bundle of five in the DLQ, of which 1 is handled, 2 was dead by itself, and 4 is set aside."""
    inbox = InboxHarness(database, parks_gaps=True)
    inbox.bring(1)
    inbox.record_dead(2)
    inbox.bring(4)
    body = write_bundle([envelope("a", number).body for number in (1, 2, 3, 4, 5)])
    return harness.send(DEAD, envelope("a", 1), MessageBody=body)


def test_inspect_shows_what_became_of_each_event_of_a_bundle(run: Run, bundle_id: str) -> None:
    """The inbox knows the fate of events 1, 2 and 4; nothing is recorded of 3 and 5, which are behind it."""
    (group,) = json.loads(run("inspect", "--json").stdout)["groups"]
    shown = run("inspect").stdout

    assert [(row["seq"], row["bundle"]["outcome"]) for row in group["messages"]] == [
        (1, "handled or given up: dropped if it is brought back"),
        (2, "dead: no such customer"),
        (3, "not handled, and no attempt is recorded"),
        (4, "set aside in the inbox: dropped if it is brought back"),
        (5, "not handled, and no attempt is recorded"),
    ]
    assert {row["sqs_message_id"] for row in group["messages"]} == {bundle_id}
    assert "event 2 of 5 of that message: dead: no such customer" in shown


def test_redrive_brings_a_bundle_back_once_and_names_its_events(run: Run, harness: DlqHarness, bundle_id: str) -> None:
    """A filter that matches event 3 alone moves the whole message, because SQS can move no part of one."""
    del bundle_id
    result = json.loads(run("redrive", "--event-id", "a-3", "--yes", "--json").stdout)

    (body,) = bodies(harness, QUEUE)
    assert [found.seq for found in events_of(body)] == [1, 2, 3, 4, 5]
    assert harness.drain(DEAD) == []
    assert result["moved"] == [{"group": "a", "seq": number} for number in (1, 2, 3, 4, 5)]


def test_replace_changes_one_event_and_leaves_its_neighbours(run: Run, harness: DlqHarness, bundle_id: str) -> None:
    """The new body is a bundle with the new data of event 3, and with the other four events as they were."""
    done = run("replace", "a", "3", "--data", "-", *WHY, input='{"n": 30}')

    (body,) = bodies(harness, QUEUE)
    assert done.exit_code == 0, done.output
    assert [found.event.data for found in events_of(body)] == [{"n": n} for n in (1, 2, 30, 4, 5)]
    (kept,) = map(json.loads, run("audit").stdout.splitlines())
    assert kept["action"] == "replace"
    assert kept["seq"] == 3


def test_a_bundle_is_deleted_as_a_whole_and_only_by_its_id(run: Run, harness: DlqHarness, bundle_id: str) -> None:
    """`purge-one` takes the SQS message id, and names all five events that it deletes."""
    done = run("purge-one", "--message-id", bundle_id, *WHY)

    assert "which is number 1, 2, 3, 4, 5 of group a" in done.output
    assert harness.drain(DEAD) == []


def bodies(harness: DlqHarness, name: str) -> list[str]:
    return [message["Body"] for message in harness.drain(name)]
