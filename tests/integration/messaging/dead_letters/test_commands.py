"""`sluice dlq` as an operator types it, on a simulator and an inbox: its output, its effects and its exit codes."""

import json
import os
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from sqlalchemy import Engine

from sluice.declaration import naming
from sluice.errors import ConfigError, EndpointError
from sluice.messaging.envelope import decode
from sluice.messaging.errors import DeadLetterError, EnvelopeError
from sluice.messaging.inbox import operations
from sluice.messaging.sqs import queue
from sluice.simulator.hook import Simulator
from tests.support.messaging.dlq_harness import BILLING, DEAD, LOCAL, QUEUE, UNDELIVERED, DlqHarness, envelope
from tests.support.messaging.inbox_harness import InboxHarness, decoded_message

REASON = ("--reason", "the data was wrong")

type Run = Callable[..., Result]


@pytest.fixture
def no_sqs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forbid commands to call SQS."""
    monkeypatch.setattr(queue, "client", lambda *_, **__: pytest.fail("SQS was asked"))


def _hold_a_message(database: Engine) -> None:
    """Set 3 of group a aside and use up its attempts; 1 was handled."""
    inbox = InboxHarness(database, parks_gaps=True)
    inbox.bring(1, 3, 2)
    inbox.hold()


def _audit(run: Run) -> list[dict[str, Any]]:
    """Return the entries that the command `audit` prints."""
    return [json.loads(line) for line in run("audit").stdout.splitlines()]


def test_dlq_ls_shows_both_dlqs_of_each_consumer(run: Run, harness: DlqHarness) -> None:
    """One of messages that its workers gave up, and one of messages that SNS could not deliver.

    Two consumers have no queues.
    """
    harness.record_dead(("a", 1), ("b", 1))
    harness.send(UNDELIVERED, envelope("c", 1))

    printed = json.loads(run("ls", "--json", env={}).stdout)

    assert printed["environment"] == "local"
    assert printed["is_approximate"] is True
    billing, shipping, audit = printed["consumers"]
    counts = {"is_there": True, "in_flight": 0, "delayed": 0, "move_task": None}
    assert billing["queues"] == [
        {"holds": "dead", "queue": DEAD, "visible": 2, **counts},
        {"holds": "undelivered", "queue": UNDELIVERED, "visible": 1, **counts},
    ]
    assert [entry["is_there"] for consumer in (shipping, audit) for entry in consumer["queues"]] == [False] * 4


def test_dlq_ls_shows_parked_held_and_dead_messages(run: Run, database: Engine) -> None:
    """Message 3 of group a is held and keeps the group parked; message 7 of group b is recorded as dead."""
    _hold_a_message(database)
    InboxHarness(database, parks_poison=True).record_dead(7, group="b")

    shown = run("ls", "--consumer", "billing").stdout

    assert re.search(r"parked +group a waits for number \d+ of epoch 1 since 20\S+; 1 set aside", shown)
    assert re.search(r"held +number 3 of epoch 1 after 1 attempts: boom", shown)
    assert re.search(r"dead +group b number 7 of epoch 1 since 20\S+: no such customer", shown)


def test_ls_of_an_environment_that_is_not_there_says_so(run: Run) -> None:
    """An empty list would look as if nothing were wrong."""
    with pytest.raises(EndpointError, match=r"none of sluice-dev-billing-dlq\.fifo, .* is at http"):
        run("ls", "--env", "dev", "--consumer", "billing")


def test_dlq_inspect_shows_each_dead_letter_with_its_reason(run: Run, harness: DlqHarness, database: Engine) -> None:
    """The reason comes from the inbox. A letter that cannot be decoded is shown with its body."""
    died = harness.send(DEAD, envelope("a", 1))
    with database.begin() as connection:
        dead = replace(decoded_message(1, receive_count=2), sqs_message_id=died)
        assert InboxHarness(database).inbox.record_dead(connection, dead, "no such customer", is_permanent=True)
    harness.send(DEAD, envelope("b", 1), MessageBody='{"sluice": 3}')

    printed = json.loads(run("inspect", "--json").stdout)

    first, second = (group["messages"][0] for group in printed["groups"])
    assert first["type"] == "order.placed"
    assert first["seq"] == 1
    assert first["epoch"] == 1
    assert first["event_id"] == "a-1"
    assert first["data"] == {"n": 1}
    assert first["sqs_message_id"] == died
    assert first["receive_count"] == 1
    assert first["known"]["state"] == "dead"
    assert first["known"]["reason"] == "no such customer"
    assert second["body"] == '{"sluice": 3}'
    assert second["undecodable"] == "sluice is 3, allowed is 1; upgrade whoever is behind"


def test_dlq_skip_gives_up_all_missing_numbers_before_an_epoch(run: Run, database: Engine) -> None:
    """After a restore of the inbox: numbers 2 and 4 were handled in the lost time and will not come.

    Two ways to name numbers cannot be combined, and one is needed.
    """
    inbox = InboxHarness(database, parks_gaps=True)
    inbox.bring(1, 3, 5)
    reason = ("--reason", "restored to 02:00")

    tried = run("skip", "--before-epoch", "2", *reason)
    done = run("skip", "--before-epoch", "2", *reason, "--yes")

    counted = "2 numbers given up; 0 groups wait for a dead or held message, see `dlq ls`"
    assert tried.stdout.splitlines() == [
        "would give up what is missing in epochs before 2; add --yes to do it",
        counted.replace("given up", "to give up"),
    ]
    assert done.stdout.splitlines() == ["done: give up what is missing in epochs before 2", counted]
    assert inbox.drain() == [3, 5]
    assert run("skip", "a", "--before-epoch", "2", "--epoch", "1", *reason).exit_code == 2
    assert run("skip", "a", *reason).exit_code == 2


def test_inspect_tells_of_letters_whose_number_is_done_with(run: Run, harness: DlqHarness, database: Engine) -> None:
    """A copy that was handled and never deleted, say: it needs no redrive."""
    inbox = InboxHarness(database)
    inbox.bring(1, 2, 4)
    for group, seq in (("a", 2), ("a", 3), ("a", 5), ("b", 1)):
        harness.send(DEAD, envelope(group, seq))

    groups = json.loads(run("inspect", "--json").stdout)["groups"]
    shown = run("inspect").stdout

    found = {(group["group"], row["seq"]): row["is_done_with"] for group in groups for row in group["messages"]}
    assert found == {("a", 2): True, ("a", 3): False, ("a", 5): False, ("b", 1): False}
    assert shown.count("its number is handled or given up: the inbox drops it if it is brought back") == 1


def test_inspect_needs_no_database(run: Run, harness: DlqHarness) -> None:
    """Without one the reasons are missing."""
    harness.record_dead(("a", 1))

    printed = json.loads(run("inspect", "--json", "--consumer", "billing", env={}).stdout)

    assert printed["groups"][0]["messages"][0]["known"] is None


def test_d10_inspect_releases_the_messages_that_it_shows(run: Run, harness: DlqHarness) -> None:
    """Five times, and the queue's counts and order stay as they were."""
    harness.record_dead(("a", 1), ("a", 2), ("b", 1))

    for _ in range(5):
        assert run("inspect").exit_code == 0
        assert harness.counts(DEAD) == (3, 0)

    assert harness.places(DEAD) == [("a", 1), ("a", 2), ("b", 1)]


@pytest.mark.parametrize("command", [("inspect",), ("redrive",), ("redrive", "--yes")], ids=" ".join)
def test_d10_a_dlq_with_its_own_dlq_is_not_read(run: Run, harness: DlqHarness, command: tuple[str, ...]) -> None:
    """Each receive brings a message nearer to the second DLQ. With `--force` the command reads it even so."""
    harness.record_dead(("a", 1))
    sqs = harness.simulator.client("sqs")
    arn = sqs.get_queue_attributes(QueueUrl=harness.url(UNDELIVERED), AttributeNames=["QueueArn"])["Attributes"]
    policy = json.dumps({"deadLetterTargetArn": arn["QueueArn"], "maxReceiveCount": 1})
    sqs.set_queue_attributes(QueueUrl=harness.url(DEAD), Attributes={"RedrivePolicy": policy})

    with pytest.raises(ConfigError, match=r"has a redrive policy of its own .* give --force"):
        run(*command)
    assert harness.counts(DEAD) == (1, 0)
    assert run("inspect", "--force").exit_code == 0
    run("inspect", "--force")
    assert harness.counts(DEAD) == (0, 0)  # looking has moved the message on, as the refusal said
    assert harness.counts(UNDELIVERED) == (1, 0)


def test_d10_ctrl_c_releases_the_messages_that_were_read(
    run: Run, harness: DlqHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal comes while SQS answers a receive. The received messages are shown, and released."""
    harness.record_dead(("a", 1), ("b", 1))
    receive = harness.sqs_calls.edit_answer

    def interrupt_and_receive(*arguments: Any, **named: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        receive(*arguments, **named)

    monkeypatch.setattr(harness.sqs_calls, "edit_answer", interrupt_and_receive)
    before = signal.getsignal(signal.SIGINT)

    ended = run("inspect", "--limit", "1")

    assert ended.exit_code == 1
    assert "stopped; what was seen is given back" in ended.stderr
    assert harness.counts(DEAD) == (2, 0)
    assert signal.getsignal(signal.SIGINT) is before


def test_d11_inspect_shows_at_most_ten_letters_of_a_group(run: Run, harness: DlqHarness) -> None:
    """SQS hands out no more of a FIFO group at once; the output says that more may be behind them."""
    for seq in range(1, 13):
        harness.send(DEAD, envelope("a", seq))

    shown = run("inspect", "--limit", "100").stdout

    assert shown.splitlines()[0] == "first 10 of group a, more may be behind"
    assert "number 10 " in shown
    assert "number 11 " not in shown
    printed = json.loads(run("inspect", "--limit", "100", "--json").stdout)
    assert printed["may_be_more"] is True
    assert printed["groups"][0]["first"] == 10


def test_inspect_sees_several_groups_beyond_one_receive(run: Run, harness: DlqHarness) -> None:
    """A receive brings ten messages, and 22 are asked for."""
    for number in range(25):
        harness.send(DEAD, envelope(f"g{number:02}", 1))

    printed = json.loads(run("inspect", "--limit", "22", "--json").stdout)

    assert len({group["group"] for group in printed["groups"]}) == 22
    assert harness.counts(DEAD) == (25, 0)


def test_an_empty_dlq_is_said_to_have_nothing(run: Run) -> None:
    """With SQS's approximate counts, because they may disagree."""
    assert run("inspect").stdout == f"nothing to be had in {DEAD}; SQS says about 0, and in flight 0\n"
    assert run("redrive").stdout == f"nothing to be had in {DEAD}; SQS says about 0\n"
    assert run("redrive", "--yes").stdout == "0 brought back\n"


def test_redrive_without_yes_moves_nothing(run: Run, harness: DlqHarness) -> None:
    """The plan without a filter is the queue's count; with a filter it is what of a sample of the messages matches."""
    harness.record_dead(("a", 1), ("a", 2), ("b", 1))

    assert run("redrive").stdout == f"would send about 3 messages of {DEAD} to {QUEUE}; add --yes to do it\n"
    assert run("redrive", "--group", "a").stdout == (
        f"would send what matches of about 3 messages of {DEAD} to {QUEUE}; of the first 3 to be had 2 match;"
        " add --yes to do it\n"
    )
    assert harness.counts(DEAD) == (3, 0)
    assert harness.sqs_calls.send_calls == []


def test_redrive_brings_everything_back(run: Run, harness: DlqHarness) -> None:
    """The JSON has each moved message and the id of the run, by which it can be finished if it dies."""
    harness.record_dead(("a", 1), ("a", 2), ("b", 1))

    ended = run("redrive", "--yes", "--json")

    printed = json.loads(ended.stdout)
    assert ended.exit_code == 0
    assert printed | {"run": None, "moved": None} == {
        "is_done": True,
        "run": None,
        "source": DEAD,
        "destination": QUEUE,
        "moved": None,
        "left": {},
        "error": None,
        "is_whole": True,
    }
    assert len(printed["moved"]) == 3
    assert f"run {printed['run']}: {DEAD} to {QUEUE}" in ended.stderr
    assert harness.places(QUEUE) == [("a", 1), ("a", 2), ("b", 1)]


def test_redrive_brings_back_messages_that_sns_could_not_deliver(run: Run, harness: DlqHarness) -> None:
    """They are in the DLQ of the subscription, not of the queue."""
    harness.send(UNDELIVERED, envelope("a", 1))

    assert run("redrive", "--undelivered", "--yes").exit_code == 0

    assert harness.places(QUEUE) == [("a", 1)]


def test_messages_behind_an_unselected_one_stay_and_are_reported(run: Run, harness: DlqHarness) -> None:
    """a-2 is selected and a-1, before it in the group, is not: a-2 must not overtake it."""
    harness.record_dead(("a", 1), ("a", 2), ("b", 1))

    ended = run("redrive", "--event-id", "b-1", "--event-id", "a-2", "--yes")

    assert ended.exit_code == 1
    assert ended.stdout.splitlines() == [
        "1 brought back",
        "1 left: it does not match",
        "1 left: it is behind one of its group that was left",
        "what is behind a message that does not match cannot be had without it, and stays too",
    ]
    assert run("redrive", "--event-id", "a-2", "--yes").exit_code == 2
    assert run("redrive", "--event-id", "a-1", "--yes").exit_code == 0


def test_a_canary_redrive_says_what_to_check(run: Run, harness: DlqHarness) -> None:
    """One message is brought back, and the operator looks whether it is handled before the rest follows."""
    harness.record_dead(("a", 1), ("a", 2))

    printed = run("redrive", "--canary", "1", "--yes").stdout

    assert printed.startswith("1 brought back\nlook whether the consumer handles number 1 of group a: its log,")
    assert harness.counts(DEAD) == (1, 0)
    assert harness.counts(QUEUE) == (1, 0)


def test_older_than_selects_by_the_time_of_death(run: Run, harness: DlqHarness) -> None:
    """The simulator lives in January 2026, so everything in it is old."""
    harness.record_dead(("a", 1))

    assert json.loads(run("redrive", "--older-than", "1d", "--json").stdout)["matching"] == 1
    assert run("redrive", "--older-than", "7x").exit_code == 2


def test_a_redrive_that_could_not_send_ends_with_2(run: Run, harness: DlqHarness) -> None:
    """SQS refuses each send, so the message stays in the DLQ, and the last error is printed."""
    harness.record_dead(("a", 1))
    harness.sqs_calls.refuse("AccessDenied")

    ended = run("redrive", "--yes")

    assert ended.exit_code == 2
    assert ended.stdout.splitlines()[1] == "1 left: it could not be sent, or not be deleted"
    assert "the last error: An error occurred (AccessDenied)" in ended.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    ids=[
        "to itself",
        "to a standard queue",
        "native with a group",
        "native with a canary",
        "native with a broken rate",
        "native of the undelivered",
        "client without waiting",
        "run with a colon",
        "rate longer than the hold",
    ],
    argvalues=[
        (("--to", DEAD), f"--to is '{re.escape(DEAD)}', allowed is the name of another FIFO queue"),
        (("--to", "standard"), "--to is 'standard', allowed is the name of another FIFO queue"),
        (("--engine", "native", "--group", "a"), "--engine is 'native' with a filter, --limit, --canary or --run"),
        (("--engine", "native", "--canary", "1"), "--engine is 'native' with a filter, --limit, --canary or --run"),
        (("--engine", "native", "--rate", "0.5"), "--rate is 0.5 with the native engine, allowed are whole numbers"),
        (("--engine", "native", "--undelivered"), "--engine is 'native' with --undelivered"),
        (("--no-wait",), "--no-wait is given with the client engine"),
        (("--run", "a:b"), "run is 'a:b', allowed are 1 to 19 letters"),
        (("--rate", "0.1", "--hold", "10"), "--rate is 0.1 a second with a --hold of 10 s, allowed is a hold"),
    ],
)
@pytest.mark.usefixtures("no_sqs")
def test_contradicting_options_are_refused(run: Run, options: tuple[str, ...], message: str) -> None:
    """The command is refused before it calls SQS."""
    with pytest.raises(ConfigError, match=message):
        run("redrive", *options)


def test_a_destination_that_is_not_there_is_named(run: Run, harness: DlqHarness) -> None:
    """The message stays in the DLQ."""
    harness.record_dead(("a", 1))

    with pytest.raises(EndpointError, match=r"queue typo\.fifo is not at"):
        run("redrive", "--to", "typo.fifo", "--yes")
    assert harness.counts(DEAD) == (1, 0)


# On a simulator: LocalStack loses what is taken back to its source inside five minutes (GAP-01), and keeps message id
# and time (GAP-11). What a move task does is MOV-… in the contract tests.


def test_native_redrive_starts_a_move_task_of_sqs(run: Run, harness: DlqHarness) -> None:
    """The native engine lets SQS itself move the messages."""
    harness.record_dead(("a", 1), ("a", 2), ("b", 1))
    assert "would let SQS move about 3 messages" in run("redrive", "--engine", "native").stdout
    assert harness.counts(DEAD) == (3, 0)

    ended = run("redrive", "--engine", "native", "--yes")

    assert ended.exit_code == 0
    assert ended.stdout == "completed, about 3 moved\n"
    assert harness.places(QUEUE) == [("a", 1), ("a", 2), ("b", 1)]
    (task,) = json.loads(run("status", "--json").stdout)["tasks"]
    assert task["status"] == "COMPLETED"
    assert task["moved"] == 3
    assert task["to_move"] == 3
    assert task["rate"] is None


def test_a_native_redrive_can_be_left_alone_and_cancelled(run: Run, harness: DlqHarness) -> None:
    """At one message a second; `ls`, `status` and `cancel` speak of the running task."""
    harness.record_dead(("a", 1), ("a", 2), ("a", 3))
    started = run("redrive", "--engine", "native", "--rate", "1", "--no-wait", "--yes")
    assert started.stdout == f"SQS moves about 3 messages of {DEAD}; see `dlq status`, `dlq cancel`\n"

    assert "a move task has moved 1" in run("ls", "--consumer", "billing").stdout
    assert run("status").stdout.startswith("RUNNING    started 2026-01-01T")
    would = run("cancel").stdout
    assert would == f"would cancel the move task of {DEAD}, which has moved about 1; add --yes to do it\n"
    assert run("cancel", "--yes").stdout == f"done: cancel the move task of {DEAD}, which has moved about 1\n"
    harness.simulator.advance(1)
    assert run("status").stdout.startswith("CANCELLED")
    again = run("cancel", "--yes")
    assert again.exit_code == 2
    assert again.stderr == f"no move task runs on {DEAD}; see `dlq status`\n"
    assert harness.counts(QUEUE)[0] + harness.counts(DEAD)[0] == 3


def test_dlq_status_without_move_tasks_says_so(run: Run) -> None:
    """SQS lists no move task for the DLQ: one line says so, and it is no error."""
    assert run("status").stdout == f"no move tasks of {DEAD}\n"


def _data(tmp_path: Path, text: str) -> tuple[str, str]:
    """Return the options that give a command this text as the file of new data."""
    path = tmp_path / "data.json"
    path.write_text(text, encoding="utf-8")
    return "--data", str(path)


def test_replace_sends_a_dead_message_with_corrected_data(run: Run, harness: DlqHarness, tmp_path: Path) -> None:
    """Number, epoch, event id and attributes stay; the deduplication id is new. The audit keeps the old body."""
    harness.record_dead(("a", 1))
    attributes = {"type": {"DataType": "String", "StringValue": "order.placed"}}
    harness.send(DEAD, envelope("a", 2), MessageAttributes=attributes)
    act = ("replace", "a", "2", *_data(tmp_path, '{"n": "right"}'), *REASON)

    would = f"would replace message 2 of group a of {DEAD} and send it to {QUEUE}; add --yes to do it\n"
    assert run(*act).stdout == would
    assert harness.counts(DEAD) == (2, 0)
    assert harness.sqs_calls.send_calls == []
    assert _audit(run) == []
    assert run(*act, "--yes").exit_code == 0

    (message,) = harness.drain(QUEUE)
    replaced = decode(message["Body"])
    assert replaced.event.id == "a-2"
    assert replaced.event.group == "a"
    assert replaced.seq == 2
    assert replaced.epoch == 1
    assert replaced.event.data == {"n": "right"}
    assert message["MessageAttributes"] == attributes
    assert message["Attributes"]["MessageDeduplicationId"] != "a-2"
    assert len(message["Attributes"]["MessageDeduplicationId"]) <= 128
    assert harness.places(DEAD) == [("a", 1)]
    (row,) = _audit(run)
    assert row["action"] == "replace"
    assert row["group_id"] == "a"
    assert row["seq"] == 2
    assert row["reason"] == REASON[1]
    assert json.loads(row["detail"])["body"] == envelope("a", 2).body


def test_a_replacement_is_no_larger_than_its_queue_takes(run: Run, harness: DlqHarness, tmp_path: Path) -> None:
    """Attributes count; of exactly the limit is taken, of one byte more nothing is sent and nothing written down."""
    attributes = {
        "type": {"DataType": "String", "StringValue": "order.placed"},
        "raw": {"DataType": "Binary", "BinaryValue": b"123"},
    }
    harness.send(DEAD, envelope("a", 2), MessageAttributes=attributes)
    empty = replace(envelope("a", 2).event, data="")
    besides = len("typeStringorder.placedrawBinary123") + len(replace(envelope("a", 2), event=empty).body.encode())
    room = 262_144 - besides
    too_large = _data(tmp_path, json.dumps("x" * (room + 1)))

    with pytest.raises(EnvelopeError) as refused:
        run("replace", "a", "2", *too_large, *REASON, "--yes")
    assert harness.sqs_calls.send_calls == []
    assert _audit(run) == []
    assert run("replace", "a", "2", *_data(tmp_path, json.dumps("x" * room)), *REASON, "--yes").exit_code == 0

    assert str(refused.value) == (
        "the message would have 262145 bytes with its attributes, allowed are 262144, the environment's"
        " event_bytes_max; keep what is large elsewhere and send where it is"
    )
    assert len(harness.drain(QUEUE)) == 1


def test_replacing_an_undecodable_message_needs_a_whole_body(run: Run, harness: DlqHarness) -> None:
    """A body of another group, or one that is no envelope, is refused before anything is sent."""
    undecodable = harness.send(DEAD, envelope("a", 1), MessageBody="{}")
    act = ("replace", "--message-id", undecodable, "--body", "-", *REASON, "--yes")

    with pytest.raises(EnvelopeError, match="group is 'b', allowed is 'a', the message's own"):
        run(*act, input=envelope("b", 1).body)
    with pytest.raises(EnvelopeError, match="sluice is None"):
        run(*act, input="{}")
    assert harness.counts(DEAD) == (1, 0)
    assert harness.sqs_calls.send_calls == []
    assert _audit(run) == []
    assert run(*act, input=envelope("a", 1).body).exit_code == 0

    assert harness.places(QUEUE) == [("a", 1)]
    assert harness.counts(DEAD) == (0, 0)


def test_replace_of_a_held_message_stays_in_the_inbox(
    run: Run, harness: DlqHarness, database: Engine, tmp_path: Path
) -> None:
    """A held message's attempts are used up, and it is stored there: its row gets the data, and SQS is not called."""
    _hold_a_message(database)

    printed = run("replace", "a", "3", *_data(tmp_path, "null"), *REASON, "--yes").stdout

    assert printed == "done: replace message 3 of group a, which is held, and have it tried again\n"
    with database.begin() as connection:
        row = operations.parked_message(connection, "billing", "a", 3)
    assert row is not None
    assert decode(row.body).event.data is None
    assert row.held_at_us is None
    assert row.attempts == 0
    assert harness.sqs_calls.send_calls == []


def test_a_message_that_cannot_be_seen_is_not_replaced(run: Run, harness: DlqHarness, tmp_path: Path) -> None:
    """The message may be behind ten others of its group.

    The received messages are released, and the refusal names a next step that works.
    """
    ids = [harness.send(DEAD, envelope("a", seq)) for seq in range(1, 13)]

    found = (
        r"message 12 of group a is not among the 10 messages that can be seen, which are at most the first 10 of each"
        r" group; .* bring these back \(`dlq redrive`\) or delete them \(`dlq purge-one`\) first"
    )
    with pytest.raises(DeadLetterError, match=found):
        run("replace", "a", "12", *_data(tmp_path, "1"), *REASON, "--yes")
    assert harness.counts(DEAD) == (12, 0)
    for front in ids[:2]:
        run("purge-one", "--message-id", front, *REASON, "--yes")
    run("replace", "a", "12", *_data(tmp_path, "1"), *REASON, "--yes")
    assert harness.counts(DEAD) == (9, 0)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("a",),
        ("a", "1"),
        ("--message-id", "x"),
        ("a", "1", "--message-id", "x", "--data", "-"),
        ("--message-id", "x", "--data", "-"),
        ("a", "1", "--body", "-"),
    ],
    ids=lambda arguments: " ".join(arguments) or "nothing",
)
@pytest.mark.usefixtures("no_sqs")
def test_replace_takes_one_of_two_forms(run: Run, arguments: tuple[str, ...]) -> None:
    """Either group and number with new data, or a message id with a whole body; each other mixture is refused."""
    ended = run("replace", *arguments, *REASON, input="1")

    assert ended.exit_code == 2  # 3 by `main`
    assert "give GROUP and SEQ with --data, or --message-id with --body" in ended.output


@pytest.mark.parametrize(
    ("arguments", "given", "message"),
    ids=["data is no JSON", "body is no UTF-8", "reason is empty"],
    argvalues=[
        (("a", "1", "--data", "-", *REASON), "right", r"--data is not JSON \(Expecting value: line 1 column 1"),
        (("--message-id", "x", "--body", "-", *REASON), b"\xff", "--body is not text in UTF-8"),
        (("--message-id", "x", "--body", "-", "--reason", " "), "{}", "the reason is empty"),
    ],
)
@pytest.mark.usefixtures("no_sqs")
def test_an_impossible_replacement_is_refused(
    run: Run, arguments: tuple[str, ...], given: str | bytes, message: str
) -> None:
    """The command is refused before it calls SQS."""
    with pytest.raises(ConfigError, match=message):
        run("replace", *arguments, input=given)


def test_purge_one_deletes_one_message_and_keeps_its_body(run: Run, harness: DlqHarness) -> None:
    """The audit keeps it, so that the deletion can be mended."""
    harness.record_dead(("a", 1), ("b", 1))
    unwanted = harness.send(DEAD, envelope("a", 2))
    act = ("purge-one", "--message-id", unwanted, *REASON)

    would = f"would delete message {unwanted} of {DEAD}, which is number 2 of group a; add --yes to do it\n"
    assert run(*act).stdout == would
    assert harness.counts(DEAD) == (3, 0)
    assert run(*act, "--yes").exit_code == 0

    assert harness.places(DEAD) == [("a", 1), ("b", 1)]
    (row,) = _audit(run)
    assert row["action"] == "purge-one"
    assert json.loads(row["detail"])["body"] == envelope("a", 2).body


def test_purge_one_of_a_message_that_cannot_be_seen_is_refused(run: Run, harness: DlqHarness) -> None:
    """The command looks for the id among the messages that it can receive, and deletes no other message."""
    harness.record_dead(("a", 1))

    with pytest.raises(DeadLetterError, match="message nobody is not among the 1 messages that can be seen"):
        run("purge-one", "--message-id", "nobody", *REASON, "--yes")
    assert harness.counts(DEAD) == (1, 0)


def test_retry_and_skip_act_on_the_inbox(run: Run, database: Engine) -> None:
    """On a message whose attempts are used up; each prints its plan, is done with --yes, and is audited."""
    _hold_a_message(database)

    assert run("retry", "a", "3", *REASON).stdout == (
        "would have message 3 of group a tried again; add --yes to do it\n"
    )
    assert _audit(run) == []
    assert run("retry", "a", "3", *REASON, "--yes").stdout == "done: have message 3 of group a tried again\n"
    assert run("skip", "a", "3", *REASON).stdout == "would give up number 3 of group a; add --yes to do it\n"
    assert run("skip", "a", "3", *REASON, "--yes").stdout == "done: give up number 3 of group a\n"

    assert [row["action"] for row in _audit(run)] == ["skip", "retry"]


@pytest.mark.parametrize(
    "command",
    [("skip", "a", "1"), ("retry", "a", "1"), ("purge-one", "--message-id", "x")],
    ids=["skip", "retry", "purge"],
)
def test_audited_commands_need_a_reason_and_a_database(run: Run, command: tuple[str, ...]) -> None:
    """The audit is a table of the consumer's database, and each of its rows has a reason."""
    assert "Missing option '--reason'" in run(*command).output
    with pytest.raises(ConfigError, match="no database is named: give --dsn"):
        run(*command, *REASON, env={"SLUICE_CONSUMER": "billing"})


@pytest.mark.parametrize(
    ("variables", "message"),
    ids=["no consumer", "unknown consumer", "unknown environment", "endpoint is no URL", "database without tables"],
    argvalues=[
        ({}, "no consumer is named, and environment 'local' has billing, shipping, audit; give --consumer"),
        (
            {"SLUICE_CONSUMER": "biling"},
            r"'biling' \(did you mean 'billing'\?\), and environment 'local' has billing, shipping, audit",
        ),
        (
            {"SLUICE_ENV": "lokal"},
            r"'lokal' is not declared \(did you mean 'local'\?\), allowed is one of local, dev",
        ),
        ({"SLUICE_CONSUMER": "billing", "AWS_ENDPOINT_URL": "localhost:4566"}, "endpoint is 'localhost:4566'"),
        ({"SLUICE_CONSUMER": "billing", "SLUICE_DSN": "sqlite:///no.db"}, "create it with .* schema apply inbox"),
    ],
)
def test_an_invalid_place_is_refused(run: Run, variables: dict[str, str], message: str) -> None:
    """The consumer, environment, endpoint and database come from variables; each refusal names what is allowed."""
    with pytest.raises(ConfigError, match=message):
        run("inspect", env=variables)


def test_a_queue_that_is_not_deployed_is_named(run: Run, simulator: Simulator) -> None:
    """The simulator was emptied, as AWS is before the stacks are deployed."""
    simulator.reset()
    name = re.escape(naming.dead_letter_queue_name(LOCAL, BILLING))

    with pytest.raises(EndpointError, match=rf"queue {name} is not at http\S+; deploy the environment's stacks there"):
        run("inspect")
