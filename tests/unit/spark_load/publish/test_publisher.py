"""The publisher: sends at planned times, one call of a group at a time, catches up slowly, and retries."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sluice.clock import VirtualClock
from sluice.error_codes import is_throttled
from spark_load.plan.plan import Plan
from spark_load.profiles.profile import Profile
from spark_load.publish.pacing import PublishPace, RetryPolicy
from spark_load.publish.publisher import LoadPublisher
from spark_load.publish.transport import OutgoingMessage, TransportAnswer, TransportCall
from spark_load.runtime.coordinator import RunCoordinator, RunStep, TaskProgress

SECOND_US = 1_000_000
_ROWS_A_BATCH = 7


@dataclass
class Service:
    """A transport in virtual time: each call takes `latency`, and its messages fail as a test says.

    Args:
        fails: takes a message's idx and the instant in seconds, and returns an error code, or None for success.
        stalled: (from, until) in seconds: a call in between is answered at the end.
    """

    clock: VirtualClock = field(default_factory=VirtualClock)
    latency_seconds: float = 0.01
    slots: int = 8
    fails: Callable[[int, float], str | None] = lambda _idx, _now: None
    stalled: tuple[float, float] = (0, 0)
    calls: list[tuple[float, TransportCall]] = field(default_factory=list)
    answered: list[tuple[float, TransportAnswer]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._on_their_way: list[tuple[float, TransportAnswer]] = []

    @property
    def room(self) -> int:
        """Return how many more calls can be in flight."""
        return self.slots - len(self._on_their_way)

    def send(self, calls: Sequence[TransportCall]) -> None:
        """Decide at once the outcome of each call, and the instant of its answer."""
        assert 0 < len(calls) <= self.room
        for call in calls:
            now = self.clock.monotonic()
            self.calls.append((now, call))
            codes = {index: self.fails(message.idx, now) for index, message in enumerate(call.messages)}
            errors = {index: code for index, code in codes.items() if code is not None}
            ready = now + self.latency_seconds
            since, until = self.stalled
            self._on_their_way.append(
                (max(ready, until) if since <= now < until else ready, TransportAnswer(call, errors))
            )

    def answers(self, wait_seconds: float) -> Sequence[TransportAnswer]:
        """Let time pass until the first answer."""
        now = self.clock.monotonic()
        first = min((due for due, _ in self._on_their_way), default=now + wait_seconds)
        self.clock.sleep(min(wait_seconds, first - now))
        came = [item for item in self._on_their_way if item[0] <= self.clock.monotonic() + 1e-9]
        self._on_their_way = [item for item in self._on_their_way if item not in came]
        self.answered += came
        return [answer for _, answer in came]

    def close(self) -> None:
        """Do nothing: no connection is open."""

    def messages(self) -> list[tuple[float, OutgoingMessage]]:
        """Return (instant, message) of every message that was sent."""
        return [(sent_at, message) for sent_at, call in self.calls for message in call.messages]

    def sent_messages(self) -> list[tuple[float, int, float]]:
        """Return (instant, idx, intended instant) of every message that was sent."""
        return [(sent_at, message.idx, message.intended_at_us / SECOND_US) for sent_at, message in self.messages()]


def _publish(tmp_path: Path, service: Service, **profile: Any) -> TaskProgress:
    """Publish a profile's load in virtual time, and return the progress."""
    clock = service.clock
    given = {"messages_per_second": 100, "duration_seconds": 5, "group_count": 20, "payload_bytes": 10} | profile
    plan = Plan(Profile(**given), 3)
    coordinator = RunCoordinator(tmp_path, clock)
    coordinator.reach(RunStep.START, 0)
    coordinator.reach(RunStep.MEASURE, 0)
    straight = given.get("destination") == "queue"
    rows = _rows(plan)
    publisher = LoadPublisher(
        plan,
        run="r",
        addresses=["q0", "q1", "q2"] if straight else ["topic"],
        transport=service,
        coordinator=coordinator,
        clock=clock,
        name="publish-0",
        event_bytes_max=262_144,
    )
    return publisher.publish(rows.slice(index, _ROWS_A_BATCH) for index in range(0, len(rows), _ROWS_A_BATCH))


def _rows(plan: Plan) -> pa.RecordBatch:
    """Return the plan's rows in the order in which they are due."""
    return plan.batch(np.arange(plan.row_count)).sort_by([("offset_us", "ascending"), ("idx", "ascending")])


def test_every_message_is_sent_once_and_at_its_planned_time(tmp_path: Path) -> None:
    """500 messages and 20 end markers, each within 0.1 s."""
    service = Service()

    progress = _publish(tmp_path, service)

    assert progress.done == 520
    assert progress.abandoned == 0
    assert progress.failed == 0
    assert progress.throttled == 0
    assert sorted(idx for _, idx, _ in service.sent_messages()) == list(range(-20, 500))
    assert all(0 <= sent_at - intended < 0.1 for sent_at, _, intended in service.sent_messages())
    first = next(message for _, message in service.messages() if message.idx == 7)
    assert first.deduplication_id == "r.7"
    assert first.phase == "measure"
    assert first.intended_at_us == 70_000


def test_without_a_topic_each_group_is_sent_to_one_queue(tmp_path: Path) -> None:
    """Groups are dealt to the three queues by their number."""
    service = Service()

    _publish(tmp_path, service, destination="queue", publish_linger_seconds=0.1)

    where = {
        (call.address, int(message.message_group_id[1:]) % 3) for _, call in service.calls for message in call.messages
    }
    assert where == {("q0", 0), ("q1", 1), ("q2", 2)}


def test_lingering_fills_calls_and_counts_as_latency(tmp_path: Path) -> None:
    """A publisher that waits 55 ms for more messages needs a quarter of the calls. Its messages are that much later."""
    plain, lingering = Service(), Service()

    _publish(tmp_path / "0", plain, group_count=400)
    _publish(tmp_path / "1", lingering, group_count=400, publish_linger_seconds=0.055)

    assert len(lingering.calls) < len(plain.calls) / 4
    assert 0.05 < max(sent_at - intended for sent_at, _, intended in lingering.sent_messages()) < 0.08


def test_a_slow_endpoint_is_asked_with_fuller_calls_not_with_more(tmp_path: Path) -> None:
    """During one answer twenty messages become due, so all calls after the first are full."""
    service = Service(latency_seconds=0.2)

    _publish(tmp_path, service, group_count=400, publish_linger_seconds=0.01)

    assert [len(call.messages) for _, call in service.calls[1:40]] == [10] * 39


def test_overdue_messages_go_first_without_lingering(tmp_path: Path) -> None:
    """A hot group that a pause has delayed catches up, although messages of other groups keep coming."""
    service = Service(latency_seconds=0.02, stalled=(1, 2))

    _publish(tmp_path, service, group_count=100, group_skew=1.2, publish_linger_seconds=0.25)

    late = [sent_at - intended for sent_at, _, intended in service.sent_messages() if intended > 4]
    assert max(late) < 0.3


def test_a_publisher_catches_up_after_a_stall_within_the_ratio(tmp_path: Path) -> None:
    """Nothing is answered for two seconds. After that, at most twice the rate is sent, besides two full calls."""
    service = Service(slots=2, stalled=(1, 3))

    progress = _publish(tmp_path, service, duration_seconds=8, group_count=400, catch_up_ratio=2)

    per_tenth = Counter(int(sent_at * 10) for sent_at, idx, _ in service.sent_messages() if idx >= 0)
    assert progress.done == 1_200
    assert max(count for tenth, count in per_tenth.items() if tenth > 30) <= 2 * 10 + 2
    assert per_tenth[30] <= 2 * 10 + 2 + 20
    assert sum(count for tenth, count in per_tenth.items() if 30 <= tenth < 40) > 190


def test_latency_counts_from_the_intended_time_so_a_stall_shows(tmp_path: Path) -> None:
    """In ten seconds the endpoint stalls for two: a fifth of all messages is affected.

    The control is a closed loop, which sends the same number, each call after the last answer: only one call is
    affected.
    """
    service = Service(slots=4, stalled=(4, 6))
    _publish(tmp_path, service, duration_seconds=10, group_count=1_000, catch_up_ratio=10)
    open_loop = sorted(
        number - message.intended_at_us / SECOND_US
        for number, answer in service.answered
        for message in answer.call.messages
        if message.idx >= 0
    )

    control = Service(stalled=(4, 6))
    clock = control.clock
    closed_loop = []
    for index in range(1_000):
        began = clock.monotonic()
        first = service.calls[0][1]
        control.send([first._replace(end=first.begin + 1)])
        control.answers(60)
        closed_loop.append(clock.monotonic() - began)
        clock.sleep(index / 100 - clock.monotonic())

    share = {
        name: sum(value > 0.1 for value in values) / len(values)
        for name, values in (("open", open_loop), ("closed", closed_loop))
    }
    assert 0.19 < share["open"] < 0.30
    assert share["closed"] == 0.001
    assert 1.7 < open_loop[int(0.99 * len(open_loop))] < 2.1
    assert sorted(closed_loop)[990] == pytest.approx(0.01)


def test_throttled_messages_are_retried_with_growing_pauses_and_counted_apart(tmp_path: Path) -> None:
    """The endpoint throttles for two seconds. Everything is published in the end, each group in order."""
    service = Service(fails=lambda _, index: "ThrottlingException" if 1 <= index < 3 else None)

    progress = _publish(tmp_path, service)

    assert progress.done == 520
    assert progress.abandoned == 0
    assert progress.failed == 0
    assert progress.throttled == sum(len(answer.errors) for _, answer in service.answered) > 40
    succeeded = [
        message
        for answered_at, answer in service.answered
        for i, message in enumerate(answer.call.messages)
        if i not in answer.errors
    ]
    for group in {message.message_group_id for message in succeeded}:
        of_group = [message.idx for message in succeeded if message.message_group_id == group]
        assert of_group[:-1] == sorted(of_group[:-1])


def test_a_group_is_abandoned_after_thirty_seconds_of_failures(tmp_path: Path) -> None:
    """Message 50 fails at each try. Its group's later messages are not sent, and other groups go on."""
    service = Service(fails=lambda idx, _: "InternalError" if idx == 50 else None)

    progress = _publish(tmp_path, service, duration_seconds=40)

    group = next(message.message_group_id for _, message in service.messages() if message.idx == 50)
    tries = [sent_at for sent_at, idx, _ in service.sent_messages() if idx == 50]
    assert 30 <= tries[-1] - tries[0] <= 31
    assert progress.failed == len(tries) > 50
    later = [message for _, message in service.messages() if message.idx > 50 or message.idx < 0]
    assert group not in {message.message_group_id for message in later}
    assert progress.done + progress.abandoned == 4_020
    assert 100 < progress.abandoned < 300


@pytest.mark.parametrize("seed", range(5))
def test_any_answers_leave_groups_in_order_and_every_message_accounted_for(tmp_path: Path, seed: int) -> None:
    """Calls take different times, entries fail or are throttled, and two messages fail for good."""

    def fails(idx: int, _now: float) -> str | None:
        service.latency_seconds = rng.choice([0.001, 0.01, 0.3])
        failure = rng.choice(["ThrottlingException", "ReadTimeoutError", *[None] * 8])
        return "InternalError" if idx in doomed else failure

    rng, service = Random(seed), Service(fails=fails)  # noqa: S311 (no secret)
    doomed = rng.sample(range(400), 2)
    profile: dict[str, Any] = {
        "messages_per_second": 10,
        "duration_seconds": 40,
        "group_count": 6,
        "duplicate_share": 0.1,
        "payload_bytes": 10,
    }
    progress = _publish(tmp_path, service, **profile)

    answered_at = {answer.call: instant for instant, answer in service.answered}
    requests, intervals = (
        defaultdict[str, list[tuple[int, int]]](list),
        defaultdict[str, list[tuple[float, float]]](list),
    )
    for sent_at, call in service.calls:
        for message in call.messages:
            requests[message.message_group_id].append((message.idx, message.publish_attempt))
            assert message.deduplication_id == f"r.{message.idx}"
            intervals[message.message_group_id].append((sent_at, answered_at[call]))
    assert all(
        earlier[1] <= later[0] + 1e-6 for of_group in intervals.values() for earlier, later in pairwise(of_group)
    )

    planned = defaultdict[str, list[tuple[int, int]]](list)
    for row in _rows(Plan(Profile(**profile), 3)).to_pylist():
        planned[f"g{row['group_number']:06d}"].append((row["idx"], row["publish_attempt"]))
    for group, of_group in requests.items():
        in_order = [key for key, _ in groupby(of_group)]
        assert in_order == planned[group][: len(in_order)]

    acked = Counter(
        (message.idx, message.publish_attempt)
        for _, answer in service.answered
        for position, message in enumerate(answer.call.messages)
        if position not in answer.errors
    )
    assert set(acked.values()) == {1}
    assert progress.done == len(acked)
    assert progress.done + progress.abandoned == sum(map(len, planned.values()))
    assert progress.failed + progress.throttled == sum(len(answer.errors) for _, answer in service.answered)


def test_a_dead_endpoint_ends_the_run_instead_of_every_group_alone(tmp_path: Path) -> None:
    """From second 1 on every call fails; half a minute later each failure gives its group up at once."""
    service = Service(fails=lambda _, index: "EndpointConnectionError" if index >= 1 else None)

    progress = _publish(tmp_path, service, duration_seconds=35, group_count=350)

    assert progress.done + progress.abandoned == 3_850
    assert service.clock.monotonic() < 37 + 1


def test_the_warm_up_precedes_the_load_that_the_driver_starts(tmp_path: Path) -> None:
    """All 200 messages of the warm-up are sent before the first measured one."""
    service = Service()

    progress = _publish(tmp_path, service, warm_up_seconds=2)

    phases = {
        phase: [(sent_at, message.idx) for sent_at, message in service.messages() if message.phase == phase]
        for phase in ("warm_up", "measure")
    }
    assert progress.done == 720
    assert sorted(idx for _, idx in phases["warm_up"]) == list(range(200))
    assert max(phases["warm_up"]) < min(phases["measure"])


def test_nothing_of_the_load_goes_with_a_late_warm_up(tmp_path: Path) -> None:
    """The warm-up's calls are answered a second late, but the load begins at the driver's instant.

    The load's first message is number 200; the warm-up's messages are due in the two seconds before.
    """
    service = Service(stalled=(0, 3))

    _publish(tmp_path, service, warm_up_seconds=2)

    intended = {idx: intended_at for _, idx, intended_at in service.sent_messages()}
    assert intended[200] == 0
    assert [idx for idx in range(200) if not 0 <= intended[idx] < 2] == []


def test_a_publisher_ends_when_it_is_stopped(tmp_path: Path) -> None:
    """The run is stopped after two of five seconds."""
    service = Service(fails=lambda _, index: _stop(tmp_path) if index >= 2 else None)

    progress = _publish(tmp_path, service)

    assert 150 < progress.done < 250
    assert service.clock.monotonic() < 2.5


def _stop(folder: Path) -> None:
    """Stop the run; a call fails with no error."""
    RunCoordinator(folder, VirtualClock()).reach(RunStep.STOP)


def test_backoff_is_capped_jittered_and_the_same_for_the_same_seed() -> None:
    """Full jitter: each pause is random up to a maximum, which doubles up to five seconds, for three minutes in all."""
    policy, highest = RetryPolicy(lambda _: 0.5), RetryPolicy(lambda _: 0.999)

    half = [policy.rest_seconds(1, "ThrottlingException", 0) for _ in range(9)]
    assert half == [0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.5, 2.5]
    assert highest.rest_seconds(1, "SlowDown", 0) == pytest.approx(0.05, abs=0.001)
    assert policy.rest_seconds(1, "ThrottlingException", 180) is not None
    assert policy.rest_seconds(1, "ThrottlingException", 181) is None
    policy.forget_failures([1])
    assert policy.rest_seconds(1, "429", 182) == 0.025


def test_only_throttling_codes_are_throttling() -> None:
    codes = ["ThrottlingException", "Throttled", "TooManyRequestsException", "RequestThrottled", "SlowDown"]

    assert [code for code in (*codes, "ServiceUnavailable", "429", "503") if not is_throttled(code)] == []
    assert [code for code in ("InternalError", "500", "AccessDenied", "NotInAnswer", "") if is_throttled(code)] == []


def test_the_pace_follows_time_until_something_blocks() -> None:
    """After three blocked seconds it is three seconds behind, and at twice the pace it needs three to catch up."""
    pace = PublishPace(ratio=2, start_us=0, now_us=0)

    assert pace.until_us(1 * SECOND_US, is_blocked=False) == 1 * SECOND_US
    assert pace.until_us(4 * SECOND_US, is_blocked=True) == 1 * SECOND_US
    assert pace.seconds_to(3 * SECOND_US, 4 * SECOND_US) == 1
    assert pace.until_us(5 * SECOND_US, is_blocked=False) == 3 * SECOND_US
    assert pace.until_us(7 * SECOND_US, is_blocked=False) == 7 * SECOND_US
    assert pace.until_us(8 * SECOND_US, is_blocked=False) == 8 * SECOND_US
