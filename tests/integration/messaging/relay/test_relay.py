"""From the outbox to the topic: nothing lost, each group in order, whatever fails (P5 to P15, X5 to X7).

Each check of a pitfall is a function, because two tests call it: one with the relay, one with a relay that is broken
in just that way and has to be caught.
"""

import io
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import structlog.testing
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, event, text, update
from sqlalchemy.exc import OperationalError

from sluice import limits
from sluice.declaration import metrics
from sluice.errors import ConfigError
from sluice.messaging import failpoints
from sluice.messaging.backoff import Backoff
from sluice.messaging.outbox import store, tables
from sluice.messaging.outbox.store import HEADS_MAX, Head, PublishRetry, PublishSuccess
from sluice.messaging.relay import publisher
from sluice.messaging.relay.calls import RelayPublish
from sluice.messaging.relay.hooks import RelayHooks
from sluice.messaging.relay.publisher import Publisher
from sluice.messaging.relay.relay import Relay, RelaySettings, run
from sluice.messaging.telemetry.metrics import EmbeddedMetrics, RelayMetrics
from tests.integration.messaging.relay.conftest import Endpoint
from tests.support.messaging.faulty_calls import Fault, ProcessKill, failing_at, seeded_random
from tests.support.messaging.outbox.simulated_relays import (
    ClaimsRows,
    IgnoresFailures,
    MarksFirst,
    Meanwhile,
    NewIdOnResend,
    PublishesInTransaction,
    Steps,
    Turns,
    head,
    of_group,
    work,
)
from tests.support.messaging.recorded_metrics import RecordedMetrics
from tests.support.messaging.world import QUEUES, SETTINGS, TOPIC, World, in_memory_world

MINUTE = 60
PAST_LEASE_SECONDS = SETTINGS.lease_seconds + 1
PAST_BACKOFF_SECONDS = SETTINGS.backoff.cap_seconds + 1
_OPEN_TRANSACTIONS = text(
    "SELECT count(*) FROM pg_stat_activity WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid()"
    " AND application_name = current_setting('application_name')"
)


type Build = Callable[[World, RelayPublish], Steps]


def build_real_relay(world: World, publish: RelayPublish) -> Relay:
    """Build the product's own relay."""
    return world.relay(publish)


@pytest.fixture
def in_memory() -> Iterator[World]:
    """Yield an outbox in memory and a simulated topic, for tests that do not depend on the database."""
    with in_memory_world() as made:
        yield made


def assert_no_group_in_two_calls(world: World, build: Build) -> None:
    """P5: three relays, each stepping while another one publishes; no group is ever with two of them."""
    world.commit(*["a"] * 6, *["b"] * 2)
    in_flight: list[str] = []
    shared: list[str] = []
    relays: list[Steps] = []

    def others_step(heads: Sequence[Head]) -> None:
        shared.extend(head.group_id for head in heads if head.group_id in in_flight)
        groups = [head.group_id for head in heads]
        in_flight.extend(groups)
        if len(in_flight) == len(groups):
            for steps in relays:
                steps.step()
        for group in groups:
            in_flight.remove(group)

    relays.extend(build(world, Meanwhile(world.publisher(), others_step)) for _ in range(3))
    for _ in range(30):
        for relay in relays:
            relay.step()

    assert shared == [], "two relays had rows of one group in flight"
    for queue in QUEUES:
        places = world.receive_places(queue)
        assert of_group("a", places) == [1, 2, 3, 4, 5, 6], "out of order"
        assert of_group("b", places) == [1, 2], "out of order"


def test_p5_two_relays_never_have_rows_of_one_group_in_flight(world: World) -> None:
    """Only the relay with the topic's lease publishes."""
    assert_no_group_in_two_calls(world, build_real_relay)


def test_p5_rows_claimed_with_skip_locked_are_caught(postgres: Engine) -> None:
    """Negative control: real SKIP LOCKED hands rows of one group to two relays."""
    with pytest.raises(AssertionError, match="rows of one group in flight"):
        assert_no_group_in_two_calls(World(postgres), ClaimsRows)


def test_p5_relays_that_take_over_from_each_other_keep_the_order(world: World) -> None:
    """Five relays take random steps, and now and then a lease runs out."""
    rng = seeded_random(5)
    relays = [world.relay() for _ in range(5)]
    for _ in range(10):
        world.commit(*rng.choices("abc", k=3))
    leaders = set()

    for _ in range(100):
        chosen = rng.choice(relays)
        chosen.step()
        leaders |= {chosen} if chosen.is_leading else set()
        if rng.random() < 0.2:
            world.clock.sleep(PAST_LEASE_SECONDS)
    world.clock.sleep(PAST_LEASE_SECONDS)
    work(world.relay())

    places = world.receive_places()
    assert len(leaders) > 1
    assert len(places) == 30
    assert all(of_group(group, places) == list(range(1, 1 + len(of_group(group, places)))) for group in "abc")


def _open_transactions(engine: Engine) -> int:
    """Return how many transactions others than the caller have open on its database, as another one sees it."""
    if engine.dialect.name == "sqlite":
        # Every transaction but one that only reads is BEGIN IMMEDIATE, and a second one is refused at once.
        probe = sqlite3.connect(str(engine.url.database), timeout=0, isolation_level=None)
        try:
            probe.execute("BEGIN IMMEDIATE").close()
            probe.execute("ROLLBACK").close()
        except sqlite3.OperationalError:
            return 1
        finally:
            probe.close()
        return 0
    with engine.connect() as connection:
        return int(connection.execute(_OPEN_TRANSACTIONS).scalar_one())


def assert_no_transaction_while_publishing(world: World, build: Build) -> None:
    """P7: at each publish no connection is taken from the pool, and the database has no transaction open."""
    world.commit("a", "a", "b")
    seen: list[tuple[int, int]] = []

    def look(_: object) -> None:
        seen.append((world.engine.pool.checkedout(), _open_transactions(world.engine)))  # type: ignore[attr-defined]

    work(build(world, Meanwhile(world.publisher(), look)))

    assert seen == [(0, 0)] * 2, "a transaction was open while publish ran"


def test_p7_no_transaction_is_open_while_publish_runs(world: World) -> None:
    """So no lock is held during a call of SNS, and producers can commit (P6)."""
    assert_no_transaction_while_publishing(world, build_real_relay)


def test_p7_publish_inside_the_transaction_is_caught(world: World) -> None:
    """P7, negative control: a relay that publishes while its transaction is open."""
    with pytest.raises(AssertionError, match="a transaction was open"):
        assert_no_transaction_while_publishing(
            world, lambda world, publish: world.relay(publish, kind=PublishesInTransaction)
        )


def assert_failed_entries_stay_pending(world: World, build: Build) -> None:
    """P8: one entry fails in an answer of HTTP 200; it alone stays, and goes before what is behind it."""
    world.commit("a", "a", "b", "b")
    world.sns_calls.faults = [Fault(failed={"a": ("InternalError", False)})]
    relay = build(world, world.publisher())

    work(relay)
    before = world.statuses()
    world.clock.sleep(PAST_BACKOFF_SECONDS)
    work(relay)

    assert before == {("a", 1): "pending", ("a", 2): "pending", ("b", 1): "sent", ("b", 2): "sent"}, "not in the topic"
    assert world.receive_places() == [("b", 1), ("b", 2), ("a", 1), ("a", 2)]
    assert set(world.statuses().values()) == {"sent"}


def test_p8_only_successful_entries_become_sent(world: World) -> None:
    """HTTP 200 can hold failed entries."""
    assert_failed_entries_stay_pending(world, build_real_relay)


def test_p8_a_relay_that_ignores_failed_entries_is_caught(world: World) -> None:
    """P8, negative control: a relay that takes HTTP 200 for the success of every entry marks a lost message as sent."""
    with pytest.raises(AssertionError, match="not in the topic"):
        assert_failed_entries_stay_pending(world, lambda world, publish: world.relay(IgnoresFailures(publish)))


_CODES = st.sampled_from([("InternalError", False), ("Throttling", True), ("KMSThrottling", True)])
_FAULTS = st.builds(
    Fault,
    unreachable=st.sampled_from([False, False, True]),
    lost=st.booleans(),
    refused=st.sampled_from(["", "", "InternalFailure", "Throttled", "InvalidParameter"]),
    failed=st.dictionaries(st.sampled_from("abcd"), _CODES),
)


@given(
    groups=st.lists(st.sampled_from("abcd"), min_size=1, max_size=8),
    faults=st.lists(_FAULTS, max_size=6),
)
@example(groups=["a", "a"], faults=[Fault(lost=True, failed={"a": ("InternalError", False)})])
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
def test_p9_order_holds_with_any_set_of_failures(in_memory: World, groups: list[str], faults: list[Fault]) -> None:
    """Random calls are unreachable, refused, without an answer, or fail for some groups.

    Each group still arrives in order.
    """
    in_memory.start_over()
    in_memory.commit(*groups)
    in_memory.sns_calls.faults = list(faults)
    relay = in_memory.relay()

    for _ in range(len(groups) + len(faults) + 1):
        work(relay)
        if set(in_memory.statuses().values()) == {"sent"}:
            break
        in_memory.change(status="pending")  # what an operator does about what was refused
        in_memory.clock.sleep(PAST_BACKOFF_SECONDS)

    numbers = {group: list(range(1, 1 + groups.count(group))) for group in "abcd"}
    for queue in QUEUES:
        places = list(
            dict.fromkeys(in_memory.receive_places(queue))
        )  # an answer lost long enough ago makes a copy (P11)
        assert {group: of_group(group, places) for group in "abcd"} == numbers


def assert_resends_are_unchanged(world: World, build: Build, fault: Fault) -> None:
    """P10: a message without an answer is published again unchanged."""
    world.commit("a", "b")
    world.sns_calls.faults = [fault]
    relay = build(world, world.publisher())

    work(relay)
    world.clock.sleep(PAST_BACKOFF_SECONDS)
    work(relay)

    entries_by_group = [
        {entry["MessageGroupId"]: {**entry, "Id": ""} for entry in call} for call in world.sns_calls.requests
    ]
    assert len(entries_by_group) > 1
    assert all(
        value == entries_by_group[0][value["MessageGroupId"]] for call in entries_by_group for value in call.values()
    ), "not the same again"
    assert sorted(world.receive_places()) == [("a", 1), ("b", 1)]


_NO_ANSWERS = [
    pytest.param(Fault(lost=True), id="answer lost"),
    pytest.param(Fault(unreachable=True), id="unreachable"),
    pytest.param(Fault(refused="InternalFailure"), id="5xx"),
    pytest.param(Fault(failed=dict.fromkeys("ab", ("InternalError", False))), id="all entries failed"),
]


@pytest.mark.parametrize("fault", _NO_ANSWERS)
def test_p10_a_resend_carries_the_same_id_body_and_group(world: World, fault: Fault) -> None:
    """So the topic drops the second copy if the first has arrived."""
    assert_resends_are_unchanged(world, build_real_relay, fault)


def test_p10_a_new_id_on_resend_is_caught(world: World) -> None:
    """P10, negative control: the topic would take the second copy for another message."""
    with pytest.raises(AssertionError, match="not the same again"):
        assert_resends_are_unchanged(
            world, lambda world, publish: world.relay(NewIdOnResend(publish)), Fault(lost=True)
        )


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param((0, ""), id="connection cut"),
        pytest.param((500, "oops"), id="500"),
        pytest.param((503, "<html><body>gateway</body></html>"), id="503 in HTML"),
        pytest.param((502, "<html><br>"), id="502 in HTML that is not XML"),
        pytest.param((403, "<html><body>proxy</body></html>"), id="403 in HTML"),
        pytest.param((404, "<html><br>"), id="404 in HTML that is not XML"),
        pytest.param((200, "<html><body>sign in</body></html>"), id="200 in HTML"),
        pytest.param((200, "<html><br>"), id="200 in HTML that is not XML"),
        pytest.param((200, ""), id="200 and nothing"),
        pytest.param((200, "<PublishBatchResponse><PublishBatchResult/></PublishBatchResponse>"), id="nothing named"),
    ],
)
def test_p10_an_answer_without_entries_counts_as_no_answer(
    in_memory: World, endpoint: Endpoint, answer: tuple[int, str]
) -> None:
    """P10, X6: a proxy may answer in SNS's place. The relay repeats the same request after its backoff, not at once."""
    in_memory.commit("a")
    endpoint.answers = [answer, answer]
    relay = in_memory.relay(Publisher(publisher.client(endpoint.url, "us-east-1"), in_memory.topic_arn))

    work(relay)
    single_call = len(endpoint.requests)
    in_memory.clock.sleep(PAST_BACKOFF_SECONDS)
    work(relay)

    assert single_call == 1
    assert len(endpoint.requests) == 2
    assert endpoint.requests[0] == endpoint.requests[1]
    assert in_memory.statuses() == {("a", 1): "pending"}


def test_p11_a_longer_outage_makes_a_copy_with_the_same_event_id(world: World) -> None:
    """The topic has forgotten the first copy, so the queue gets a second one, still before the group's next message.

    A consumer's inbox recognizes the copy by its event id.
    """
    [first, second] = world.commit("a", "a")
    world.sns_calls.faults = [Fault(lost=True), *[Fault(unreachable=True)] * 6]
    relay = world.relay()

    for _ in range(8):
        work(relay)
        world.clock.sleep(MINUTE)

    bodies = [json.loads(message["Body"]) for message in world.receive_all()]
    assert [body["id"] for body in bodies] == [first.id, first.id, second.id]
    assert bodies[0] == bodies[1]


def test_p11_an_outage_within_the_window_makes_no_copy(world: World) -> None:
    """SNS drops a second copy within five minutes; the outage lasts three."""
    world.commit("a", "a")
    world.sns_calls.faults = [Fault(lost=True), Fault(unreachable=True), Fault(unreachable=True)]
    relay = world.relay()

    for _ in range(4):
        work(relay)
        world.clock.sleep(MINUTE)

    assert world.receive_places() == [("a", 1), ("a", 2)]


def test_p13_a_relay_that_slept_past_its_lease_notices_and_changes_nothing(world: World) -> None:
    """It sleeps before its publish of the first message. Meanwhile another relay publishes and marks both messages.

    The late publish repeats the first message under its id, so the topic drops it, and nothing is marked again.
    """
    world.commit("a", "a")
    other = world.relay()

    def sleep(_: object) -> None:
        world.clock.sleep(PAST_LEASE_SECONDS)
        work(other)

    zombie = world.relay(Meanwhile(world.publisher(), sleep))
    work(zombie)

    assert zombie.is_leading is False
    assert other.is_leading is True
    assert [len(call) for call in world.sns_calls.requests] == [1, 1, 1]
    assert world.sns_calls.requests[2] == world.sns_calls.requests[0]
    with world.engine.connect() as connection:
        assert connection.execute(text("SELECT attempts FROM sluice_outbox")).scalars().all() == [1, 1]
    assert world.receive_places() == [("a", 1), ("a", 2)]


def test_p13_a_relay_that_slept_before_publish_does_not_publish(world: World) -> None:
    """The only call is that of the relay which took over."""
    world.commit("a")
    other = world.relay()

    def sleep(here: str) -> None:
        if here == "after_claim":
            world.clock.sleep(PAST_LEASE_SECONDS)
            work(other)

    zombie = world.relay(failpoint=sleep)
    work(zombie)

    assert not zombie.is_leading
    assert len(world.sns_calls.requests) == 1


def test_p13_a_relay_that_leads_again_looks_again(world: World) -> None:
    """Another relay has meanwhile published the message that the first had read and not published."""
    groups = [f"g{number:02}" for number in range(11)]
    world.commit(*groups)
    relay = world.relay()
    relay.step()
    relay.step()
    unpublished_count = 11 - len(world.sns_calls.requests[0])

    world.clock.sleep(PAST_LEASE_SECONDS)
    work(world.relay())
    world.clock.sleep(PAST_LEASE_SECONDS)
    lost = relay.step()
    work(relay)

    assert unpublished_count == 1
    assert lost is False
    assert relay.is_leading is True
    assert [entry["MessageGroupId"] for call in world.sns_calls.requests for entry in call] == groups


def test_p13_a_zombies_copy_after_five_minutes_is_delivered(world: World) -> None:
    """The topic has forgotten the message by then. The copy has the event id of the first one."""
    [first, second] = world.commit("a", "a")
    other = world.relay()

    def sleep(_: object) -> None:
        world.clock.sleep(PAST_LEASE_SECONDS)
        work(other)
        world.clock.sleep(5 * MINUTE)

    work(world.relay(Meanwhile(world.publisher(), sleep)))

    ids = [json.loads(message["Body"])["id"] for message in world.receive_all()]
    assert ids == [first.id, second.id, first.id]


def test_a_message_that_an_operator_changes_during_its_publish_stays_changed(world: World) -> None:
    """P13: the leader, too, changes only rows that are still pending."""
    world.commit("a")

    work(world.relay(Meanwhile(world.publisher(), lambda _: world.change(status="quarantined"))))

    assert world.statuses() == {("a", 1): "quarantined"}


def test_p14_a_message_that_sns_refuses_is_quarantined_and_blocks_its_group(world: World) -> None:
    """SNS calls it the sender's fault, so no repeat can succeed. Other groups are published."""
    world.commit("a", "a", "b", "b")
    world.sns_calls.faults = [Fault(failed={"a": ("InvalidParameter", True)})]

    work(world.relay())

    assert world.statuses() == {("a", 1): "quarantined", ("a", 2): "pending", ("b", 1): "sent", ("b", 2): "sent"}
    assert world.receive_places() == [("b", 1), ("b", 2)]


def test_the_metrics_count_a_quarantined_message_and_the_one_behind_it(world: World) -> None:
    """Message a1 is quarantined, a2 waits behind it, and both messages of b are published."""
    world.commit("a", "a", "b", "b")
    world.sns_calls.faults = [Fault(failed={"a": ("InvalidParameter", True)})]
    log = io.StringIO()
    measured = EmbeddedMetrics(log, {"Topic": TOPIC}, clock=world.clock)
    relay = world.relay(hooks=[RelayMetrics(measured, world.clock)])

    work(relay)
    world.clock.sleep(metrics.OUTBOX_INTERVAL_SECONDS)
    work(relay)

    last = json.loads(log.getvalue().splitlines()[-1])
    assert {name: value for name, value in last.items() if name in metrics.UNITS} == {
        "OutboxLag": pytest.approx(30, abs=1),
        "OutboxPending": 1,
        "OutboxQuarantined": 1,
        "OutboxPublished": 2,
    }
    assert last["Topic"] == TOPIC


def test_p14_an_unquarantined_message_is_published_first(world: World) -> None:
    """An operator sets it to pending again, and it goes before the message behind it."""
    world.commit("a", "a")
    world.sns_calls.faults = [Fault(failed={"a": ("InvalidParameter", True)})]
    relay = world.relay()
    work(relay)

    world.change(status="pending")
    work(relay)

    assert world.receive_places() == [("a", 1), ("a", 2)]


@pytest.mark.parametrize(
    "code",
    ["Throttling", "ThrottledException", "KMSThrottling", "KMSAccessDenied", "KMSDisabled", "AuthorizationError"],
)
@pytest.mark.parametrize("is_whole", [False, True], ids=["entry", "call"])
def test_p14_throttling_and_missing_rights_quarantine_nothing(in_memory: World, code: str, *, is_whole: bool) -> None:
    """SNS calls some of these errors the sender's fault. The message stays pending and is published unchanged later."""
    in_memory.commit("a", "a")
    in_memory.sns_calls.faults = [Fault(refused=code) if is_whole else Fault(failed={"a": (code, True)})]
    relay = in_memory.relay()

    work(relay)
    after_one = in_memory.statuses()
    in_memory.clock.sleep(PAST_BACKOFF_SECONDS)
    work(relay)

    assert after_one == {("a", 1): "pending", ("a", 2): "pending"}
    assert in_memory.receive_places() == [("a", 1), ("a", 2)]


def test_p14_entries_of_a_refused_call_are_published_one_by_one(in_memory: World) -> None:
    """SNS refuses ten entries for one of them and does not say which; only that one is quarantined."""
    groups = [f"g{number}" for number in range(10)]
    in_memory.commit(*groups)
    in_memory.sns_calls.poisoned = {"g4"}

    work(in_memory.relay())

    assert [len(call) for call in in_memory.sns_calls.requests] == [10, *[1] * 10]
    assert sorted(in_memory.receive_places()) == [(group, 1) for group in groups if group != "g4"]
    assert [place for place, status in in_memory.statuses().items() if status == "quarantined"] == [("g4", 1)]


def test_p14_a_missing_topic_quarantines_nothing(in_memory: World) -> None:
    """The topic is wrong, and not the message: another name, no valid ARN, and only a name."""
    in_memory.commit("a")
    for arn in (in_memory.topic_arn.replace("events", "others"), "arn:aws:sns:us-east-1:nobody", "events.fifo"):
        work(in_memory.relay(Publisher(in_memory.sns, arn)))
        in_memory.clock.sleep(PAST_BACKOFF_SECONDS)

    assert in_memory.statuses() == {("a", 1): "pending"}


def assert_no_death_loses_a_message(
    world: World, build: Callable[[World, failpoints.Failpoint], Relay], step: str
) -> None:
    """P15: a relay dies at that place again and again, and each time another takes over."""
    world.commit("a", "a", "b")

    for _ in range(3):
        with pytest.raises(ProcessKill):
            work(build(world, failing_at(step)))
        world.clock.sleep(PAST_LEASE_SECONDS)
        if "pending" not in world.statuses().values():
            break
    work(world.relay())

    for queue in QUEUES:
        places = world.receive_places(queue)
        assert of_group("a", places) == [1, 2], "lost"
        assert of_group("b", places) == [1], "lost"
    assert set(world.statuses().values()) == {"sent"}


@pytest.mark.parametrize("step", failpoints.RELAY)
def test_p15_no_committed_row_is_lost_wherever_a_relay_dies(world: World, step: str) -> None:
    """The next relay publishes within five minutes, so SNS drops second copies."""
    assert_no_death_loses_a_message(world, lambda world, failpoint: world.relay(failpoint=failpoint), step)


def test_p15_a_relay_that_marks_before_it_publishes_is_caught(world: World) -> None:
    """P15, negative control: a relay that marks a message as sent and then dies has lost it."""
    with pytest.raises(AssertionError, match="lost"):
        assert_no_death_loses_a_message(
            world, lambda world, failpoint: world.relay(kind=MarksFirst, failpoint=failpoint), "before_publish"
        )


def test_x5_a_lease_must_be_longer_than_two_calls() -> None:
    """A leader may lose its lease only between calls. Each call ends within the client's timeouts."""
    config = publisher.client("http://127.0.0.1:1", "us-east-1").meta.config

    assert config.connect_timeout + config.read_timeout <= publisher.CALL_SECONDS_MAX
    RelaySettings(lease_seconds=2 * publisher.CALL_SECONDS_MAX + 1)
    with pytest.raises(ConfigError, match="lease_seconds is 24, allowed is more than 24"):
        RelaySettings(lease_seconds=2 * publisher.CALL_SECONDS_MAX)


def test_x6_the_sns_client_tries_each_call_once(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """The relay owns the retries, whatever the environment asks of botocore."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "5")
    monkeypatch.setenv("AWS_RETRY_MODE", "standard")
    endpoint.answers = [(500, "<ErrorResponse/>")] * 5
    [outcome] = Publisher(publisher.client(endpoint.url, "us-east-1"), "arn:aws:sns:us-east-1:1:t.fifo").publish(
        [head()]
    )

    assert isinstance(outcome, PublishRetry)
    assert len(endpoint.requests) == 1


def _delays_us(world: World) -> list[int]:
    """Return after how many microseconds each message may be tried again, the shortest first."""
    with world.engine.connect() as connection:
        rows = connection.execute(text("SELECT not_before_us FROM sluice_outbox ORDER BY group_id")).scalars()
        return sorted(not_before_us - world.clock.now_us() for not_before_us in rows)


def test_x7_groups_that_failed_together_are_retried_at_different_times(in_memory: World) -> None:
    """Of 100 delays each quarter of the backoff's range has about 25.

    The range is 2 to 10 s after the first failure, and 2 to 20 s after the second.
    """
    in_memory.commit(*[f"g{number:03}" for number in range(100)])
    in_memory.sns_calls.faults = [Fault(unreachable=True)] * 20
    backoff = Backoff(base_seconds=10, cap_seconds=60, floor_seconds=2)
    relay = in_memory.relay(settings=RelaySettings(backoff=backoff), rng=seeded_random(7))

    work(relay)
    first = _delays_us(in_memory)
    in_memory.clock.sleep(10)
    work(relay)
    second = _delays_us(in_memory)

    for delays, longest_us in ((first, 10_000_000), (second, 20_000_000)):
        width = (longest_us - 2_000_000) / 4
        quarters = [int((delay - 2_000_000) // width) for delay in delays]
        assert len(set(delays)) == 100
        assert {quarter: 15 <= quarters.count(quarter) <= 35 for quarter in quarters} == dict.fromkeys(range(4), True)


def test_every_group_is_published_once_before_any_group_again(world: World) -> None:
    """So that no busy group holds up others. Each call is full."""
    groups = [f"g{number:03}" for number in range(120)]
    world.commit(*groups, *groups)

    work(world.relay())

    seqs = [json.loads(entry["Message"])["seq"] for call in world.sns_calls.requests for entry in call]
    assert seqs == [1] * 120 + [2] * 120
    assert {len(call) for call in world.sns_calls.requests} == {limits.PUBLISH_BATCH_ENTRIES_MAX}


def test_many_blocked_groups_hold_up_no_other_group(world: World) -> None:
    """The relay walks over all groups: 150 are quarantined, and the last one is published.

    Then nothing is due, and it rests.
    """
    world.commit(*[f"g{number:03}" for number in range(150)])
    world.change(status="quarantined")
    world.commit("z")
    relay = world.relay()

    work(relay)
    rests = [relay.step() for _ in range(4)]

    assert world.receive_places() == [("z", 1)]
    # A walk over 151 groups takes two looks. Only the second can tell that nothing is due.
    assert HEADS_MAX < 151
    assert rests == [True, False, True, False]


def test_a_relay_rests_while_groups_wait_for_their_next_try(world: World) -> None:
    """A step that finds nothing to do returns False, and makes no call."""
    world.commit("a", "b")
    world.sns_calls.faults = [Fault(unreachable=True)]
    relay = world.relay()

    work(relay)
    request_count = len(world.sns_calls.requests)

    assert [relay.step(), relay.step()] == [False, False]
    assert len(world.sns_calls.requests) == request_count == 1


def test_large_messages_are_split_into_calls_of_an_allowed_size(in_memory: World) -> None:
    """SNS takes 256 KiB in a call, so two of these messages of 100 KiB fit."""
    groups = [f"g{number}" for number in range(10)]
    in_memory.commit(*groups)
    with in_memory.engine.begin() as connection:
        connection.execute(update(tables.messages).values(body="x" * 100 * 1_024))

    work(in_memory.relay())

    assert [len(call) for call in in_memory.sns_calls.requests] == [2] * 5
    assert set(in_memory.statuses().values()) == {"sent"}


def test_only_sent_messages_are_deleted_by_age(world: World) -> None:
    """Sent messages are kept for an hour; pending and quarantined ones for ever."""
    world.commit("a", "b", "c", "c")
    world.sns_calls.faults = [
        Fault(failed={"b": ("InvalidParameter", True), "c": ("InternalError", False)}),
        *[Fault(unreachable=True)] * 10,
    ]
    relay = world.relay(settings=RelaySettings(keep_sent_seconds=3_600))
    work(relay)

    world.clock.sleep(3_500)
    work(relay)
    before = world.statuses()
    world.clock.sleep(200)
    work(relay)

    unfinished = {("b", 1): "quarantined", ("c", 1): "pending", ("c", 2): "pending"}
    assert before == {("a", 1): "sent", **unfinished}
    assert world.statuses() == unfinished


def test_old_messages_are_deleted_a_thousand_in_each_transaction(world: World) -> None:
    """So that no writer waits long. A run deletes all 1,500."""
    world.commit(*["a"] * 1_500)
    with world.engine.begin() as connection:
        connection.execute(update(tables.messages).values(status="sent", sent_at_us=world.clock.now_us()))
    world.clock.sleep(61)

    work(world.relay(settings=RelaySettings(keep_sent_seconds=60)))

    assert world.statuses() == {}


def test_a_relay_deletes_no_old_messages_of_other_topics(world: World) -> None:
    """The other topic's relay may keep them for longer."""
    world.commit("a")
    with world.engine.begin() as connection:
        old = {"status": "sent", "sent_at_us": 0, "topic": "others.fifo"}
        connection.execute(update(tables.messages).values(**old))

    work(world.relay(settings=RelaySettings(keep_sent_seconds=0)))

    assert world.statuses() == {("a", 1): "sent"}


def test_lag_is_the_age_of_the_oldest_unsent_message(world: World) -> None:
    """Quarantined messages count too, because somebody waits for them."""
    empty_lag = world.store.lag()
    world.commit("a", "a")
    world.change(status="quarantined")
    world.clock.sleep(10)
    world.commit("b", "b", "b")
    world.clock.sleep(2.5)

    lag = world.store.lag()
    world.clock.sleep(1)
    work(world.relay())
    with_quarantined_only = world.store.lag()

    assert empty_lag.seconds == 0
    assert empty_lag.pending_count == 0
    assert empty_lag.quarantined_count == 0
    assert lag.seconds == 12.5
    assert lag.pending_count == 3
    assert lag.quarantined_count == 2
    assert with_quarantined_only.seconds == pytest.approx(13.5, abs=0.1)
    assert with_quarantined_only.pending_count == 0
    assert with_quarantined_only.quarantined_count == 2


def test_counts_of_unsent_messages_stop_at_a_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting a large backlog would cost more each minute. The lag, which needs one row, is exact."""
    monkeypatch.setattr(store, "COUNTED_MAX", 3)
    world.commit("a", "a", "b", "c")
    world.change(status="quarantined")
    world.clock.sleep(10)
    world.commit("d", "d", "d")
    as_many = world.store.lag()
    world.commit("e", "e")

    more = world.store.lag()

    assert as_many.seconds == 10
    assert as_many.pending_count == 3
    assert as_many.quarantined_count == 3
    assert more == as_many
    assert more.count_text(more.pending_count) == "3 or more"
    assert more.count_text(2) == "2"


def test_a_closed_relays_lease_is_free_at_once(world: World) -> None:
    """The standby, which had nothing to do before, publishes."""
    world.commit("a")
    leader, standby = world.relay(), world.relay()
    leader.step()

    standby_did = standby.step()
    leader.close()
    work(standby)

    assert standby_did is False
    assert leader.is_leading is False
    assert standby.is_leading is True
    assert world.receive_places() == [("a", 1)]


def test_a_relay_without_messages_polls_less_often_and_releases_its_lease(world: World) -> None:
    """Between two messages it rests 3 to 5 ms; after two seconds without one `poll_seconds` (100 ms), with jitter."""
    world.commit(*["a"] * 5)
    wait = Turns(world.clock, 100)

    run(world.relay(), wait, SETTINGS, rng=seeded_random(3))

    assert world.receive_places() == [("a", seq) for seq in range(1, 6)]
    assert all(0.003 <= seconds <= 0.005 for seconds in wait.waited[:10])
    assert all(0.075 <= seconds <= 0.125 for seconds in wait.waited[-10:])
    assert len(set(wait.waited)) == 100
    assert world.lease().acquire()


def test_a_relay_that_listens_rests_as_long_as_its_lease_allows(world: World) -> None:
    """A commit wakes it up, so it looks only every 5 s, with jitter."""
    world.commit("a")
    wait = Turns(world.clock, 5)

    run(world.relay(), wait, SETTINGS, rng=seeded_random(3), is_notified=lambda: True)

    assert all(3.75 <= seconds <= 6.25 for seconds in wait.waited)


def test_a_relay_survives_a_database_that_does_not_answer(world: World) -> None:
    """It waits longer after each of five failures, and publishes afterwards."""
    world.commit("a")
    failures = iter([True] * 5)

    @event.listens_for(world.engine, "begin")
    def refuse(_: object) -> None:
        if next(failures, False):
            raise OperationalError("BEGIN", None, Exception("the database is starting up"))

    wait = Turns(world.clock, 8)
    run(world.relay(), wait, SETTINGS, rng=seeded_random(3))

    assert world.receive_places() == [("a", 1)]
    assert max(wait.waited[:5]) > 1 > max(wait.waited[5:])


def test_a_relay_publishes_by_any_object_with_a_publish_method(in_memory: World) -> None:
    """A host may publish elsewhere than to SNS. The returned ids are stored."""

    class Sink:
        def publish(self, heads: Any) -> list[Any]:
            return [PublishSuccess(f"message of {head.group_id}", "17") for head in heads]

    in_memory.commit("a")

    work(in_memory.relay(Sink()))

    with in_memory.engine.connect() as connection:
        kept = connection.execute(text("SELECT sns_message_id, sns_sequence_number, sent_at_us FROM sluice_outbox"))
        assert tuple(kept.one())[:2] == ("message of a", "17")


@pytest.mark.parametrize("name", ["before_publish", "after_publish", "tick", "after_end"])
def test_a_hook_that_fails_keeps_nothing_from_being_published(world: World, name: str) -> None:
    """The error is logged, and the next hook, which writes metrics, is called."""
    recorded = RecordedMetrics()

    def fails(*_: object) -> None:
        raise RuntimeError("boom")

    world.commit("a", "a", "b")
    failing = RelayHooks()
    setattr(failing, name, fails)
    relay = world.relay(hooks=[failing, RelayMetrics(recorded, world.clock)])
    with structlog.testing.capture_logs() as logged:
        work(relay)
        relay.close()

    assert {
        "event": "a hook failed",
        "hook": "RelayHooks",
        "error": "RuntimeError: boom",
        "log_level": "warning",
    } in logged
    assert sorted(world.receive_places()) == [("a", 1), ("a", 2), ("b", 1)]
    assert [put[metrics.OUTBOX_PUBLISHED] for put in recorded] == [0, 3]
