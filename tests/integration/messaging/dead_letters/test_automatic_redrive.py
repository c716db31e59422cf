"""`sluice dlq automatic-redrive` on a simulator and both databases: which messages return, and what stops it."""

import json
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, select, update

from sluice.cli.main import cli
from sluice.clock import SystemClock, VirtualClock
from sluice.declaration import AutomaticRedrive, task_settings
from sluice.errors import ConfigError
from sluice.messaging import failpoints
from sluice.messaging.database.audit import acts
from sluice.messaging.errors import DeadLetterError, TransientError
from sluice.messaging.inbox import maintenance, redrive_guard
from sluice.messaging.inbox.redrive_guard import ACTOR, LEASE_SECONDS, Past, RedriveGuard
from sluice.messaging.inbox.tables import audit, redrives
from sluice.messaging.sqs import queue
from sluice.messaging.sqs.dead_letter_queue import DeadLetterQueue
from tests.support.messaging.dlq_harness import BILLING, DEAD, LOCAL, QUEUE, DlqHarness, envelope
from tests.support.messaging.faulty_calls import GroupPlace
from tests.support.messaging.inbox_harness import InboxHarness, decoded_message

ONE_ATTEMPT = AutomaticRedrive()


class Billing:
    """Billing's queue, DLQ and inbox, its commands, and a worker that fails at every message."""

    def __init__(self, harness: DlqHarness, inbox: Engine, patch: pytest.MonkeyPatch) -> None:
        self._harness, self.engine, self._patch = harness, inbox, patch
        self._inbox = InboxHarness(inbox).inbox
        patch.setattr(queue, "client", lambda *_, **__: harness.tools_sqs)
        self.declare(ONE_ATTEMPT)

    def declare(self, automatic_redrive: AutomaticRedrive | None) -> None:
        """Declare the consumer with this automatic redrive, in the variable that the task reads."""
        handlers = "examples.services.billing"
        declared = replace(LOCAL, consumers=(replace(BILLING, automatic_redrive=automatic_redrive, handlers=handlers),))
        self._patch.setenv(task_settings.VARIABLE, task_settings.render(declared))

    def die(self, *places: GroupPlace, is_permanent: bool = False) -> None:
        """Let messages die for the first time, and record the reason."""
        ids = {place: self._harness.send(QUEUE, envelope(*place)) for place in places}
        self._record(ids, is_permanent=is_permanent)

    def die_again(self, *places: GroupPlace, is_permanent: bool = False) -> None:
        """Let the copies die that a run brought back."""
        waiting = self._waiting()
        self._record({place: waiting[place] for place in places}, is_permanent=is_permanent)

    def _waiting(self) -> dict[GroupPlace, str]:
        """Return the SQS id of each message in the queue, by group and number."""
        received = self._harness._receive(QUEUE, hidden_seconds=0)
        bodies = [(json.loads(message["Body"]), message["MessageId"]) for message in received]
        return {(body["group"], body["seq"]): sqs_message_id for body, sqs_message_id in bodies}

    def _record(self, ids: dict[GroupPlace, str], *, is_permanent: bool) -> None:
        """Record messages as dead in the inbox, and let SQS move them to the DLQ."""
        with self.engine.begin() as connection:
            for (group, seq), sqs_message_id in ids.items():
                came = replace(decoded_message(seq, group=group, id=f"{group}-{seq}"), sqs_message_id=sqs_message_id)
                assert self._inbox.record_dead(connection, came, "the bank is away", is_permanent=is_permanent)
        self._harness.kill()

    def park(self) -> None:
        """Park groups behind their dead messages from now on."""
        self._inbox = InboxHarness(self.engine, parks_poison=True, parks_gaps=True).inbox

    def handle(self, *places: GroupPlace, is_deleted: bool = True) -> None:
        """Let a worker handle returned messages; a message that it does not delete dies in the end."""
        assert list(self._waiting()) == list(places)
        if is_deleted:
            self._harness.drain(QUEUE)
        else:
            self._harness.kill()
        with self.engine.begin() as connection:
            for group, seq in places:
                came = replace(decoded_message(seq, group=group, id=f"{group}-{seq}"), sqs_message_id="a copy")
                admission = self._inbox.admit(connection, came)
                self._inbox.mark(connection, came.envelope, admission)

    def run(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        ended = self.command("automatic-redrive", *arguments)
        return ended.exit_code, json.loads(ended.stdout)

    def command(self, *arguments: str) -> Any:
        dsn = self.engine.url.render_as_string(hide_password=False)
        variables = {"SLUICE_CONSUMER": "billing", "SLUICE_DSN": dsn}
        return CliRunner().invoke(cli, ["dlq", *arguments], env=variables, catch_exceptions=False)

    def switch_on(self) -> None:
        """Switch automatic redrive on with `sluice dlq automatic-on`, as an operator does."""
        assert self.command("automatic-on", "--reason", "the bank is back", "--yes").exit_code == 0

    @property
    def dead(self) -> list[GroupPlace]:
        """Return the messages in the DLQ, and leave them there."""
        received = self._harness._receive(DEAD, hidden_seconds=0)
        bodies = [json.loads(message["Body"]) for message in received]
        return sorted((body["group"], body["seq"]) for body in bodies)

    @property
    def gauge(self) -> int:
        """Return the gauge that is 1 while automatic redrive is off."""
        return maintenance.counts(self.engine, "billing")["redrive_off"]

    def acts(self) -> list[tuple[str, str, str | None, int | None]]:
        """Return the rows of the audit: action, actor, group and number; the oldest first."""
        with self.engine.connect() as connection:
            rows = acts(connection, audit.c.consumer, "billing", most=100)
        return [(row["action"], row["actor"], row["group_id"], row["seq"]) for row in reversed(rows)]

    def guard(self, run: str, **more: Any) -> RedriveGuard:
        """Return the guard of a run of automatic redrive with the default bounds."""
        return RedriveGuard(self.engine, "billing", ONE_ATTEMPT, run=run, **more)


@pytest.fixture
def billing(harness: DlqHarness, inbox: Engine, monkeypatch: pytest.MonkeyPatch) -> Billing:
    """Return billing's queue, DLQ and inbox, with automatic redrive switched on."""
    return Billing(harness, inbox, monkeypatch)


def test_messages_without_attempts_left_come_back_in_order(billing: Billing) -> None:
    """Each message is audited before it is sent; the run releases its lease."""
    billing.die(("a", 1), ("a", 2), ("b", 1))

    code, printed = billing.run()

    assert code == 0
    assert printed["moved"] == 3
    assert printed["left"] == {}
    assert printed["is_off"] is False
    billing.handle(("a", 1), ("a", 2), ("b", 1))
    assert billing.acts() == [("automatic-redrive", ACTOR, group, seq) for group, seq in (("a", 1), ("a", 2), ("b", 1))]
    assert billing.gauge == 0
    assert billing.run()[0] == 0, "nothing is there, and nothing holds the lease"


def test_a_copy_that_dies_while_its_run_works_switches_it_off(
    billing: Billing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that dies a second time shows that the cause is not mended; the gauge rings an alarm."""
    billing.die(("a", 1), ("b", 1))
    again = [("a", 1)]

    def dies(name: str) -> None:
        if name == "after_delete" and again:
            billing.die_again(again.pop())

    monkeypatch.setattr(failpoints, "from_environment", lambda *_: dies)

    code, printed = billing.run()

    assert code == 1
    assert printed["is_off"] is True
    assert billing.gauge == 1


def test_failures_before_it_was_switched_on_do_not_switch_it_off(billing: Billing) -> None:
    """An operator has looked at the second deaths, and switched automatic redrive on again."""
    billing.declare(replace(ONE_ATTEMPT, attempts_max=2))
    billing.die(("a", 1), ("b", 1))
    assert billing.run()[1]["moved"] == 2
    billing.die_again(("a", 1), ("b", 1))
    assert billing.run()[1]["is_off"]

    billing.switch_on()
    code, printed = billing.run()

    assert code == 0
    assert printed["moved"] == 2
    assert printed["is_off"] is False


def test_a_copy_that_died_without_a_record_is_poison(billing: Billing, harness: DlqHarness) -> None:
    """An operator brought the message back, and it may have killed its worker."""
    billing.die(("a", 1))
    (dead,) = harness.drain(DEAD)
    harness.send(DEAD, envelope("a", 1), MessageBody=dead["Body"])

    code, printed = billing.run()

    assert code == 0
    assert printed["moved"] == 0
    assert printed["left"] == {"poison": 1}


def test_poison_stays_together_with_the_messages_behind_it(billing: Billing, harness: DlqHarness) -> None:
    """The poison was refused, is unreadable, or died without a record; messages of other groups return."""
    billing.die(("a", 1))
    billing.die(("a", 2), is_permanent=True)
    billing.die(("a", 3), ("b", 1))
    harness.send(DEAD, envelope("c", 1), MessageBody="{}")
    harness.send(DEAD, envelope("d", 1))

    code, printed = billing.run()

    assert code == 0
    assert printed["moved"] == 2
    assert printed["left"] == {"poison": 3}
    assert harness.places(QUEUE) == [("a", 1), ("b", 1)]
    left = [message["Body"] for message in harness.drain(DEAD)]
    assert left == [envelope("a", 2).body, envelope("a", 3).body, "{}", envelope("d", 1).body]


def test_a_parked_group_goes_on_once_its_message_is_back(billing: Billing) -> None:
    """Also with Poison.PARK only messages whose attempts were used up come back."""
    billing.park()
    billing.die(("a", 1))
    billing.die(("b", 1), is_permanent=True)
    assert maintenance.counts(billing.engine, "billing")["parked_groups"] == 2

    assert billing.run()[1]["moved"] == 1
    billing.handle(("a", 1))

    counted = maintenance.counts(billing.engine, "billing")
    assert counted["open_exceptions"] == 1
    assert billing.dead == [("b", 1)]


def test_a_number_an_operator_gave_up_stays(billing: Billing, harness: DlqHarness) -> None:
    """The inbox would drop its message; in the DLQ an operator still sees it."""
    billing.die(("a", 1))
    assert billing.command("skip", "a", "1", "--reason", "never mind", "--yes").exit_code == 0

    assert billing.run()[1]["left"] == {"poison": 1}
    assert harness.places(QUEUE) == []


def test_one_run_brings_back_no_more_than_is_declared(billing: Billing) -> None:
    """The next run goes on."""
    billing.declare(AutomaticRedrive(messages_max=2))
    billing.die(("a", 1), ("a", 2), ("a", 3))

    assert billing.run()[1]["moved"] == 2
    assert billing.dead == [("a", 3)]
    assert billing.run()[1]["moved"] == 1
    assert billing.dead == []


def _check_one_that_fails_again(billing: Billing) -> None:
    """Check a run that finds messages dead for the second time. It moves nothing and switches automatic redrive off."""
    billing.die(("a", 1), ("b", 1))
    billing.run()
    billing.die_again(("a", 1), ("b", 1))
    billing.die(("c", 1))

    code, printed = billing.run()

    assert code == 1
    assert printed["moved"] == 0
    assert printed["is_off"] is True
    assert billing.dead == [("a", 1), ("b", 1), ("c", 1)]


def test_a_repeated_death_switches_it_off_until_an_operator_intervenes(billing: Billing) -> None:
    """The run that sees the second death brings no message back, of other groups neither.

    After an operator has switched it on, messages that came back once stay.
    """
    _check_one_that_fails_again(billing)

    assert billing.gauge == 1
    with pytest.raises(DeadLetterError, match=r"automatic redrive of billing is off; see `dlq audit`, mend the cause"):
        billing.run()
    assert billing.acts()[-2:] == [("automatic-off", ACTOR, group, 1) for group in ("a", "b")]

    billing.switch_on()
    assert billing.gauge == 0
    code, printed = billing.run()
    assert code == 0
    assert printed["moved"] == 1
    assert printed["left"] == {"used_up": 2}
    assert billing.dead == [("a", 1), ("b", 1)]


def test_a_message_refused_after_its_return_switches_it_off(billing: Billing) -> None:
    """A second failure counts, for any reason."""
    billing.die(("a", 1))
    billing.run()
    billing.die_again(("a", 1), is_permanent=True)

    assert billing.run()[1]["is_off"]


@pytest.mark.parametrize("attempts_max", [2, 3])
def test_a_message_comes_back_as_often_as_is_declared(billing: Billing, attempts_max: int) -> None:
    """Switching automatic redrive on again after each failure gives a message no further attempt."""
    billing.declare(AutomaticRedrive(attempts_max=attempts_max))
    billing.die(("a", 1))
    for _ in range(attempts_max):
        assert billing.run()[1]["moved"] == 1
        billing.die_again(("a", 1))
        assert billing.run()[1]["is_off"]
        billing.switch_on()

    assert billing.run()[1]["left"] == {"used_up": 1}


def _forgetful(_: RedriveGuard, __: Any, ___: Any) -> Past:
    """Return no past redrive of any message, in place of the guard's own memory."""
    return Past()


def test_a_guard_that_does_not_remember_is_caught(billing: Billing, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check above fails with a guard that takes each message for a new one."""
    monkeypatch.setattr(RedriveGuard, "_past", _forgetful)

    with pytest.raises(AssertionError):
        _check_one_that_fails_again(billing)


def test_two_runs_are_not_at_work_at_once(billing: Billing, harness: DlqHarness) -> None:
    """The second is refused; and where it comes after the first's lease, the first sends nothing more."""
    billing.die(("a", 1))
    (dead_letter,) = harness.dead_letters().receive_some(1)
    slow, other = billing.guard("slow"), billing.guard("other")
    slow.begin()
    with pytest.raises(DeadLetterError, match=r"run slow of billing works, or died less than 120 s ago; wait for it"):
        other.begin()

    _end_lease(billing)
    assert billing.gauge == 1, "a run that never gave its lease back"
    other.begin()

    with pytest.raises(TransientError, match="another run has taken over"):
        slow.claim(dead_letter)
    slow.end()
    other.claim(dead_letter)
    assert [act[0] for act in billing.acts()] == ["automatic-redrive"]


def _end_lease(billing: Billing) -> None:
    """Let the lease of the running redrive have ended."""
    with billing.engine.begin() as connection:
        connection.execute(update(redrives).values(held_until_us=1))


def test_a_run_that_only_looks_keeps_its_lease(
    billing: Billing, harness: DlqHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No message here may be brought back.

    Each look takes so long that a lease would end after two looks unless the run renews it.
    """
    monkeypatch.setattr(redrive_guard, "_RENEWED_SECONDS", 0)
    billing.die(("a", 1), ("b", 1), ("c", 1), is_permanent=True)
    looks: list[int] = []
    receive_some = DeadLetterQueue.receive_some

    def slow(queue: DeadLetterQueue, most: int) -> Any:
        looks.append(most)
        with billing.engine.begin() as connection:
            connection.execute(update(redrives).values(held_until_us=redrives.c.held_until_us - 70_000_000))
        with pytest.raises(DeadLetterError, match="works, or died"):
            billing.guard("other").begin()
        return receive_some(queue, most)

    monkeypatch.setattr(DeadLetterQueue, "receive_some", slow)

    assert billing.run()[1]["left"] == {"poison": 3}
    assert len(looks) > 2


def test_a_lease_is_not_renewed_at_each_look(billing: Billing) -> None:
    """The run renews its lease only after a quarter of the lease's time."""
    clock = VirtualClock()
    guard = billing.guard("r", own_clock=clock)
    guard.begin()
    _end_lease(billing)

    assert guard.may_go_on() is True
    assert billing.gauge == 1
    clock.sleep(LEASE_SECONDS / 4)
    assert guard.may_go_on() is True
    assert billing.gauge == 0


@pytest.mark.parametrize("taken", [{"run": "other"}, {"off_at_us": 1}], ids=["another run", "switched off"])
def test_a_run_without_its_lease_looks_no_further(
    billing: Billing, monkeypatch: pytest.MonkeyPatch, taken: dict[str, Any]
) -> None:
    """The run ends, and leaves the lease to the other run."""
    monkeypatch.setattr(redrive_guard, "_RENEWED_SECONDS", 0)
    billing.die(("a", 1), ("b", 1))

    def take(name: str) -> None:
        if name == "after_delete":
            with billing.engine.begin() as connection:
                connection.execute(update(redrives).values(taken))

    monkeypatch.setattr(failpoints, "from_environment", lambda *_: take)

    code, printed = billing.run()

    assert code == 1
    assert printed["moved"] == 1
    assert printed["is_whole"] is False
    assert printed["error"] is None
    assert billing.dead == [("b", 1)]


def test_a_run_that_fails_gives_its_lease_back(billing: Billing, harness: DlqHarness) -> None:
    """The next run need not wait for the end of the lease."""
    billing.die(("a", 1))
    harness.sqs_calls.refuse("ServiceUnavailable", 1, operation="ReceiveMessage")
    with pytest.raises(TransientError):
        billing.run()

    assert billing.run()[1]["moved"] == 1


def test_a_run_that_is_switched_off_sends_nothing_more(billing: Billing, harness: DlqHarness) -> None:
    """The run asks its guard before each send."""
    billing.die(("a", 1))
    (dead_letter,) = harness.dead_letters().receive_some(1)
    guard = billing.guard("r")
    guard.begin()

    assert billing.command("automatic-off", "--reason", "look first", "--yes").exit_code == 0

    with pytest.raises(TransientError, match="switched off"):
        guard.claim(dead_letter)


def test_automatic_on_releases_the_ended_lease_of_a_dead_run(billing: Billing) -> None:
    """The operator is refused while the lease lasts, because the run may still live."""
    run_that_dies = billing.guard("r")
    run_that_dies.begin()  # takes the lease; nothing gives it back
    with pytest.raises(DeadLetterError, match="is on already, and no run has died"):
        billing.switch_on()
    _end_lease(billing)

    billing.switch_on()

    assert billing.gauge == 0
    with billing.engine.connect() as connection:
        row = connection.execute(select(redrives)).one()
    assert row._asdict() == {"consumer": "billing", "run": None, "held_until_us": None, "off_at_us": None}


def test_a_scheduled_run_leaves_messages_that_have_just_died(billing: Billing, harness: DlqHarness) -> None:
    """Such a run still notices that a message died again.

    The simulator's time is January 2026, so the ages here are years.
    """
    billing.die(("a", 1), ("b", 1))
    hours = (SystemClock().now_us() - harness.clock.now_us()) // 3_600_000_000

    code, printed = billing.run("--older-than", f"{hours + 1}h")
    assert code == 0
    assert printed["moved"] == 0
    assert printed["left"] == {"too_fresh": 2}
    assert billing.run("--older-than", f"{hours - 1}h")[1]["moved"] == 2

    billing.die_again(("a", 1))
    assert billing.run("--older-than", f"{hours + 1}h")[1]["is_off"]


def test_a_copy_that_died_after_it_was_handled_is_no_failure(billing: Billing) -> None:
    """A worker committed the effect and died before each delete.

    The message comes back once more, and the inbox drops it.
    """
    billing.die(("a", 1))
    billing.run()
    billing.handle(("a", 1), is_deleted=False)

    code, printed = billing.run()

    assert code == 0
    assert printed["moved"] == 1
    assert printed["is_off"] is False


def test_finishing_an_interrupted_run_later_stays_within_the_declared_attempts(
    billing: Billing, harness: DlqHarness
) -> None:
    """Five minutes later the queue would take a second copy: that is a further time."""
    billing.declare(AutomaticRedrive(attempts_max=2))
    billing.die(("a", 1))
    for moved in (0, 0):
        harness.sqs_calls.refuse("ServiceUnavailable", 1, operation="DeleteMessage")
        assert billing.run()[1]["moved"] == moved
        with billing.engine.begin() as connection:
            connection.execute(update(audit).values(at_us=audit.c.at_us - 300_000_000))

    assert billing.run()[1]["left"] == {"used_up": 1}

    assert len(billing.acts()) == 2
    assert billing.dead == [("a", 1)]


def test_messages_an_interrupted_run_left_are_finished(billing: Billing, harness: DlqHarness) -> None:
    """The message counts as brought back once. Within five minutes SQS drops the second copy, later the inbox does."""
    billing.die(("a", 1))
    harness.sqs_calls.refuse("ServiceUnavailable", 1, operation="DeleteMessage")

    assert billing.run()[0] == 1
    assert billing.run()[1]["moved"] == 1

    assert billing.dead == []
    billing.handle(("a", 1))
    assert len(billing.acts()) == 1


@pytest.mark.parametrize("act", ["automatic-on", "automatic-off"])
def test_a_switch_without_yes_changes_nothing(billing: Billing, act: str) -> None:
    """The command prints what it would do. `gauge` is the metric, `acts` are the entries of the audit."""
    if act == "automatic-on":
        billing.command("automatic-off", "--reason", "x", "--yes")
    before = (billing.gauge, billing.acts())

    ended = billing.command(act, "--reason", "x")

    assert ended.stdout == f"would switch automatic redrive of billing {act[10:]}; add --yes to do it\n"
    assert (billing.gauge, billing.acts()) == before


@pytest.mark.parametrize(
    "arguments",
    [("automatic-redrive",), ("automatic-on", "--reason", "x"), ("automatic-off", "--reason", "x")],
    ids=["run", "on", "off"],
)
def test_an_undeclared_redrive_is_refused(billing: Billing, arguments: tuple[str, ...]) -> None:
    """Each command is refused for a consumer whose declaration has no `automatic_redrive`."""
    billing.declare(None)

    with pytest.raises(ConfigError, match=r"Consumer\('billing'\).automatic_redrive is None, allowed is AutomaticRedr"):
        billing.command(*arguments)


def test_automatic_redrive_of_undelivered_messages_is_refused(billing: Billing) -> None:
    """They failed between SNS and SQS, and no record of the inbox guards them."""
    with pytest.raises(ConfigError, match="--undelivered is given, allowed is the consumer's own DLQ"):
        billing.run("--undelivered")
