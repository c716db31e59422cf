"""A relay looks at its topic and database before it leads, says what it does, and gives its lease back at the end."""

import re
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
from sqlalchemy import Engine, select, text
from sqlalchemy.orm import Session

from sluice.declaration import naming
from sluice.errors import ConfigError, EndpointError, MessagingError
from sluice.messaging import Event, Outbox
from sluice.messaging.errors import TransientError
from sluice.messaging.outbox import tables
from sluice.messaging.outbox.store import PublishOutcome
from sluice.messaging.relay import publisher
from sluice.messaging.relay.lease import Lease
from sluice.messaging.relay.relay import run
from tests.integration.messaging.relay.conftest import Endpoint
from tests.support.command_line import KEYS, Run, command_line
from tests.support.declaration import environment
from tests.support.messaging.faulty_calls import Fault, seeded_random
from tests.support.messaging.outbox.simulated_relays import Turns
from tests.support.messaging.world import SETTINGS, World
from tests.support.processes.messaging_process import MessagingProcess

TOPIC = naming.topic_name(environment("local"))
PLACE = "arn:aws:sns:eu-central-1:123456789012:"
ARN = f"{PLACE}events.fifo"
_ALLOWED = "allowed is an ARN such as arn:aws:sns:eu-central-1:123456789012:NAME.fifo; correct --topic-arn"
_STANDARD = f"topic {PLACE}events is a standard topic, allowed is a FIFO topic: it keeps order; correct --topic-arn"
REFUSALS_BY_ARN = {
    "nonsense": f"topic is 'nonsense', {_ALLOWED}",
    "": f"topic is '', {_ALLOWED}",
    f"{ARN}\nx": f"topic is '{ARN}\\nx', {_ALLOWED}",
    "arn:aws:sqs:eu-central-1:123456789012:billing.fifo": (
        f"topic is 'arn:aws:sqs:eu-central-1:123456789012:billing.fifo', {_ALLOWED}"
    ),
    f"{PLACE}events": _STANDARD,
}


def _refusal(code: str) -> tuple[int, str]:
    """Return the status and body with which SNS refuses a call."""
    return 400, f"<ErrorResponse><Error><Code>{code}</Code><Message>as told</Message></Error></ErrorResponse>"


@pytest.mark.parametrize(("arn", "message"), REFUSALS_BY_ARN.items())
def test_an_arn_of_no_fifo_topic_is_refused_without_a_call(endpoint: Endpoint, arn: str, message: str) -> None:
    """A relay of a standard topic would lose the order."""
    with pytest.raises(ConfigError) as refused:
        publisher.check_topic(publisher.client(endpoint.url, "eu-central-1"), arn)

    assert str(refused.value) == message
    assert endpoint.requests == []


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    ids=["missing", "missing by another code", "invalid"],
    argvalues=[
        ("NotFound", EndpointError, f"topic {ARN} is not at "),
        ("NotFoundException", EndpointError, f"topic {ARN} is not at "),
        ("InvalidParameter", ConfigError, f"topic is '{ARN}', which SNS does not take (An error occurred (InvalidPara"),
    ],
)
def test_a_missing_or_invalid_topic_is_refused(
    endpoint: Endpoint, code: str, kind: type[MessagingError], message: str
) -> None:
    """SNS is asked once: neither answer passes by waiting."""
    endpoint.answers = [_refusal(code)]

    with pytest.raises(kind) as refused:
        publisher.check_topic(publisher.client(endpoint.url, "eu-central-1"), ARN)

    assert str(refused.value).startswith(message)
    assert [request["TopicArn"] for request in endpoint.requests] == [ARN]


@pytest.mark.parametrize(
    "answer",
    [
        *map(_refusal, ["AuthorizationError", "AccessDenied", "Throttling", "InternalError", "InvalidClientTokenId"]),
        (0, ""),
        (404, "<html><br>"),
        (200, "<html><body>sign in</body></html>"),
        (200, ""),
    ],
    ids=["not authorized", "denied", "throttled", "internal", "no token", "cut", "HTML 404", "sign-in page", "empty"],
)
def test_a_topic_that_cannot_be_checked_now_is_a_transient_error(endpoint: Endpoint, answer: tuple[int, str]) -> None:
    """The publisher's policy may not allow the check, or the endpoint is away for a while. One line says why."""
    endpoint.answers = [answer]

    with pytest.raises(TransientError) as failed:
        publisher.check_topic(publisher.client(endpoint.url, "eu-central-1"), ARN)

    assert str(failed.value).isprintable()


def test_a_fifo_topic_that_is_there_is_not_refused(world: World) -> None:
    """The check passes without an error."""
    publisher.check_topic(world.sns, world.topic_arn)


@pytest.fixture
def run_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Yield a function that runs `sluice` in this process, and returns exit code, output and error output."""
    with command_line(monkeypatch, capsys) as made:
        yield made


def test_a_relay_with_a_wrong_topic_ends_before_it_leads(engine: Engine, endpoint: Endpoint, run_command: Run) -> None:
    """Exit code 3 for a wrong option, 2 for a topic that is not there. The table of leases stays empty."""
    dsn = engine.url.render_as_string(hide_password=False)
    relay = ["relay", "--until-empty", "--dsn", dsn, "--endpoint-url", endpoint.url, "--topic-arn"]
    endpoint.answers = [_refusal("NotFound")]

    *wrong, absent = [run_command(*relay, arn)[::2] for arn in [*filter(None, REFUSALS_BY_ARN), ARN]]

    assert [(code, message.splitlines()[-1]) for code, message in wrong] == [
        (3, f"sluice: {found}") for arn, found in REFUSALS_BY_ARN.items() if arn
    ]
    assert absent[0] == 2
    assert absent[1].splitlines()[-1].startswith(f"sluice: topic {ARN} is not at {endpoint.url}; deploy ")
    assert not any("Traceback" in found for _, found in [*wrong, absent])
    with engine.connect() as connection:
        assert connection.execute(select(tables.leases)).all() == []


@pytest.mark.parametrize("refusal", [None, "InvalidClientTokenId", "ExpiredToken"])
def test_until_empty_ends_without_valid_credentials(
    engine: Engine, endpoint: Endpoint, run_command: Run, monkeypatch: pytest.MonkeyPatch, refusal: str | None
) -> None:
    """The credentials are missing, or AWS refuses them. The command does not wait: nobody gives it others meanwhile."""
    _commit(engine)
    dsn = engine.url.render_as_string(hide_password=False)
    endpoint.answers = [] if refusal is None else [_refusal(refusal)]
    nothing = {"AWS_CONFIG_FILE": "/nowhere", "AWS_SHARED_CREDENTIALS_FILE": "/nowhere"}
    keys = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "") if refusal is None else {}

    for name, value in (nothing | keys).items():
        monkeypatch.setenv(name, value)

    code, _, text = run_command(
        "relay", "--until-empty", "--dsn", dsn, "--endpoint-url", endpoint.url, "--topic-arn", ARN
    )

    assert code == 2
    assert re.match(r"sluice: AWS takes no credentials \(.*\); set AWS_PROFILE, or \w+ and \w+$", text.splitlines()[-1])


def test_until_empty_ends_if_the_database_does_not_answer(run_command: Run) -> None:
    """A relay that runs for ever would wait; one that ends by itself would never end."""
    dsn = "postgresql://user@127.0.0.1:1/name"
    relay = ["relay", "--until-empty", "--dsn", dsn, "--endpoint-url", "http://127.0.0.1:1", "--topic-arn", ARN]

    code, _, text = run_command(*relay)

    assert code == 2
    assert text.splitlines()[-1].startswith("sluice: the database does not do it (connection failed: ")


def test_tables_without_a_needed_column_are_refused_at_the_start(engine: Engine, run_command: Run) -> None:
    """Otherwise the relay would fail again and again at that column."""
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE sluice_outbox_lease DROP COLUMN lease_us"))
    dsn = engine.url.render_as_string(hide_password=False)

    code, _, message = run_command("relay", "--dsn", dsn, "--endpoint-url", "http://127.0.0.1:1")

    assert code == 2
    assert (
        message
        == "sluice: the outbox's tables are not as this version needs them (column sluice_outbox_lease.lease_us is"
        " missing); see `sluice outbox check`, and `sluice schema apply outbox`\n"
    )


def _events(logged: list[Any]) -> list[str]:
    """Return the names of the logged events."""
    return [entry["event"] for entry in logged]


def test_a_leader_logs_its_beginning_and_its_counts(world: World) -> None:
    """Of three messages b was published at its second try, and c refused."""
    world.commit("a", "b", "c")
    world.sns_calls.faults = [Fault(failed={"b": ("InternalError", False), "c": ("InvalidParameter", True)})]

    with structlog.testing.capture_logs() as logged:
        run(world.relay(), Turns(world.clock, 300), SETTINGS, rng=seeded_random(3))

    found = [entry for entry in logged if entry["event"] in ("leading", "standing by", "lease lost", "stopped")]
    assert _events(found) == ["leading", "stopped"]
    counts = {name: found[-1][name] for name in ("published", "retried", "refused", "lease_given_back")}
    assert counts == {"published": 2, "retried": 1, "refused": 1, "lease_given_back": True}
    assert found[0]["owner"] == found[-1]["owner"]


def test_a_standby_logs_each_leader_once(world: World) -> None:
    """With the end of its lease. At the fifth wait another relay begins to lead."""
    first, second = (
        Lease(world.engine, "events.fifo", lease_seconds=30, owner=owner, clock=world.clock)
        for owner in ("first", "second")
    )
    until = datetime.fromtimestamp(world.clock.now_us() / 1_000_000, UTC) + timedelta(seconds=30)
    first.acquire()

    class LeaseTurns(Turns):
        def wait(self, seconds: float) -> None:
            super().wait(seconds)
            if len(self.waited) == 5:
                first.release()
                second.acquire()

    with structlog.testing.capture_logs() as logged:
        run(world.relay(), LeaseTurns(world.clock, 10), SETTINGS, rng=seeded_random(3))

    assert _events(logged) == ["standing by", "standing by", "stopped"]
    assert [(entry["leader"], entry["token"]) for entry in logged[:2]] == [("first", 1), ("second", 2)]
    assert logged[0]["until"] == until.isoformat()
    assert logged[2]["published"] == 0
    assert logged[2]["lease_given_back"] is False


def test_a_leader_that_lost_its_lease_logs_it_and_stands_by(world: World) -> None:
    """At its second wait a minute passes, and another relay takes the lease."""
    other = Lease(world.engine, "events.fifo", lease_seconds=300, owner="other", clock=world.clock)

    class LeaseTurns(Turns):
        def wait(self, seconds: float) -> None:
            super().wait(seconds)
            if len(self.waited) == 2:
                world.clock.sleep(60)
                other.acquire()

    with structlog.testing.capture_logs() as logged:
        run(world.relay(), LeaseTurns(world.clock, 10), SETTINGS, rng=seeded_random(3))

    assert _events(logged) == ["leading", "lease lost", "standing by", "stopped"]
    assert logged[2]["leader"] == "other"


@pytest.mark.parametrize("error", [ValueError("nobody foresaw it"), BrokenPipeError(), KeyboardInterrupt()])
def test_a_relay_that_an_error_ends_releases_its_lease(world: World, error: BaseException) -> None:
    """The next relay need not wait for the end of the lease."""

    class BrokenPublisher:
        def publish(self, _: object) -> list[PublishOutcome]:
            raise error

    world.commit("a")

    with structlog.testing.capture_logs() as logged, pytest.raises(type(error)):
        run(world.relay(BrokenPublisher()), Turns(world.clock, 5), SETTINGS, rng=seeded_random(3))

    assert _events(logged) == ["leading", "stopped"]
    assert world.lease().acquire()


def test_a_lease_that_cannot_be_given_back_is_reported(world: World) -> None:
    """The table of leases is gone; the relay still stops."""
    relay = world.relay()
    relay.step()
    with world.engine.begin() as connection:
        tables.leases.drop(connection)

    with structlog.testing.capture_logs() as logged:
        relay.close()

    assert _events(logged) == ["the lease was not given back and runs out by itself", "stopped"]
    assert not logged[-1]["lease_given_back"]


def _relay(engine: Engine, folder: Path, *options: str) -> MessagingProcess:
    """Start `sluice relay` in a process of its own, on a port where nothing listens."""
    dsn = engine.url.render_as_string(hide_password=False)
    command = ["relay", "--dsn", dsn, "--endpoint-url", "http://127.0.0.1:1", *options]
    return MessagingProcess(command, environment=KEYS, log=folder / f"relay{len(options)}.log")


def _commit(engine: Engine) -> None:
    """Commit one event of group a."""
    with Session(engine) as session:
        Outbox(TOPIC).add(session, Event(type="t", group="a", data=None))
        session.commit()


def test_until_empty_that_is_stopped_early_ends_with_1(engine: Engine, tmp_path: Path) -> None:
    """A deployment must not take it for success. A relay without --until-empty ends with 0 when it is stopped."""
    _commit(engine)

    with _relay(engine, tmp_path, "--until-empty") as relay:
        relay.await_logged("not published, will be tried again")
        relay.send(signal.SIGTERM)
        code, log = relay.wait_for_exit(), relay.log
    with _relay(engine, tmp_path) as usual:
        usual.await_logged("starting")
        usual.stop()  # a relay that is to stay ends with 0

    assert code == 1
    assert log.splitlines()[-1] == "0 quarantined, 1 not published yet; see `outbox ls`"
    assert relay.log_entries("the topic could not be looked at")


def test_a_relay_warns_of_events_for_other_topics(engine: Engine, tmp_path: Path) -> None:
    """Without the warning the relay would seem to have published everything."""
    with Session(engine) as session:
        Outbox("others.fifo").add(session, Event(type="t", group="a", data=None))
        session.commit()

    with _relay(engine, tmp_path, "--until-empty") as relay:
        assert relay.wait_for_exit() == 0

    (warned,) = relay.log_entries("events wait for other topics, which this relay does not publish")
    assert warned["level"] == "warning"
    assert warned["pending"] == {"others.fifo": 1}


def test_until_empty_ends_beside_another_leader_when_nothing_is_left(engine: Engine, tmp_path: Path) -> None:
    """The outbox is empty, so it need not lead.

    Its log says with which settings it started, and who leads.
    """
    leader = Lease(engine, TOPIC, lease_seconds=300, owner="leader")
    assert leader.acquire()

    with _relay(engine, tmp_path, "--until-empty") as relay:
        assert relay.wait_for_exit() == 0

    (started,), (standing_by,), (stopped,) = map(relay.log_entries, ("starting", "standing by", "stopped"))
    assert started["topic"] == TOPIC
    assert started["database"] == engine.dialect.name
    assert started["poll_seconds"] == 0.1
    assert started["lease_seconds"] == 30
    assert started["listen"] is False
    assert started["owner"] == standing_by["owner"] == stopped["owner"]
    assert standing_by["leader"] == "leader"
    assert stopped["lease_given_back"] is False
