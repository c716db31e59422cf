"""The load a profile makes: messages, calls, backlogs, seconds and dollars. Expected values, no draws."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from sluice import limits
from sluice.cost import prices
from spark_load.profiles.fields import Phase
from spark_load.profiles.profile import Profile
from spark_load.profiles.trace import FRAME_BYTES

CALL_SECONDS = 0.02
_WAIT_SECONDS = 1
_LEASE_SECONDS = 30  # the visibility timeout, if the profile has none
_SLICES = 100  # in which a phase is cut to follow the backlog

# What LocalStack was measured to do on two cores.
_LOCALSTACK_DELIVERIES_PER_SECOND = 270  # from a topic: 90 messages to each of three queues
_LOCALSTACK_SENDS_PER_SECOND = 1_300
_LOCALSTACK_ANSWERS_PER_SECOND = 80  # receives and deletes of one queue: 800 messages a second, ten in each

type EstimateTarget = Literal["aws", "localstack"]


@dataclass(frozen=True)
class LoadEstimate:
    """The load a profile makes on this many queues, whose messages are dead-lettered after `max_receive_count`."""

    profile: Profile
    queue_count: int
    target: EstimateTarget = "aws"
    max_receive_count: int = 5
    event_bytes_max: int = limits.PUBLISH_BYTES_MAX

    @property
    def copies(self) -> int:
        """Return to how many queues each message is delivered."""
        return self.queue_count if self.profile.has_topic else 1

    @cached_property
    def hottest_share(self) -> float:
        """Return the share of the messages that the hottest group has."""
        return 1 / self._weight(step=1) if self.profile.replay is None else self.profile.replay.hottest_share

    def _weight(self, *, step: int) -> float:
        """Return the sum of the Zipf weights of every step-th group, beginning with the first, whose weight is 1."""
        return float(np.sum(np.arange(1, self.profile.group_count + 1, step) ** -float(self.profile.group_skew)))

    @cached_property
    def queue_share(self) -> float:
        """Return the share of the messages that the busiest queue gets: the queue of the hottest group."""
        if self.profile.has_topic:
            return 1.0
        if self.profile.replay is not None:
            return self.hottest_share + (1 - self.hottest_share) / self.queue_count
        return self.hottest_share * self._weight(step=self.queue_count)

    @property
    def body_bytes(self) -> int:
        """Return the approximate size of a body."""
        if self.profile.replay is not None:
            return round(max(self.profile.replay.mean_bytes, FRAME_BYTES))
        return self.profile.payload_bytes + FRAME_BYTES

    def _count_of_share(self, share: float) -> int:
        """Return the number of messages in a share of the load proper."""
        return round(share * self.profile.measured_count)

    @property
    def _suppressed_count(self) -> int:
        """Return the number of repeats inside the deduplication window, which are published and not delivered."""
        return self._count_of_share(self.profile.duplicate_share)

    @property
    def repeat_count(self) -> int:
        """Return the number of repeated publishes, inside the window and after it."""
        return self._suppressed_count + self._count_of_share(self.profile.late_duplicate_share)

    @property
    def published_count(self) -> int:
        """Return the number of publishes: messages, repeats and end markers."""
        return self.profile.message_count + self.repeat_count + self.profile.group_count

    @property
    def _deliverable_count(self) -> int:
        return self.published_count - self._suppressed_count

    @property
    def _poisoned_count(self) -> int:
        return self._count_of_share(self.profile.poison_share)

    @property
    def received_count(self) -> int:
        """Return the number of receives in one queue, those of its dead letters included."""
        again = self._count_of_share(self.profile.failure_share + self.profile.crash_share)
        in_queue, in_dlq, redriven = self.max_receive_count - 1, 1, self.profile.redrive
        return self._deliverable_count + again + self._poisoned_count * (in_queue + in_dlq + redriven)

    @property
    def fails(self) -> bool:
        """Return whether the profile lets messages fail.

        Then each receive asks for one message, see `messages_per_receive`.
        """
        return bool(self.profile.failure_share or self.profile.crash_share or self.profile.poison_share)

    @cached_property
    def messages_per_publish_call(self) -> float:
        """Return how many messages share a publish call."""
        profile = self.profile
        addresses = 1 if profile.has_topic else self.queue_count
        rate = profile.messages_per_second / profile.publish_tasks / addresses
        groups = math.ceil(profile.group_count / profile.publish_tasks)
        room = min(limits.PUBLISH_BATCH_ENTRIES_MAX, self.event_bytes_max // self.profile.largest_bytes, groups)
        return max(1.0, min(rate * (profile.publish_linger_seconds + CALL_SECONDS), room))

    @cached_property
    def messages_per_receive_call(self) -> float:
        """Return how many messages a receive returns, on average of those that return any."""
        if self.fails:
            return 1.0
        if self.profile.consume_after_seconds:
            return float(limits.RECEIVE_MESSAGES_MAX)
        rate = self.profile.messages_per_second * self.queue_share / self.profile.consumers_per_queue
        come = rate * (self.profile.poll_pause_seconds + 2 * CALL_SECONDS)
        return max(1.0, min(come, limits.RECEIVE_MESSAGES_MAX))

    @property
    def handled_per_second(self) -> float:
        """Return how many messages a second the consumers of a queue can handle."""
        profile = self.profile
        in_answer = 1 if self.fails else limits.RECEIVE_MESSAGES_MAX
        seconds = 2 * CALL_SECONDS + profile.poll_pause_seconds + in_answer * profile.handler_seconds
        return profile.consumers_per_queue * in_answer / seconds

    @property
    def offerable_per_second(self) -> float:
        """Return how many messages a second LocalStack passes on."""
        if self.profile.has_topic:
            return _LOCALSTACK_DELIVERIES_PER_SECOND / self.queue_count
        return _LOCALSTACK_SENDS_PER_SECOND

    @property
    def finished_per_second(self) -> float:
        """Return how many messages a second come from the publisher to the end of the busiest queue's consumers."""
        if self.target == "aws":
            return self.handled_per_second
        offered = self.offerable_per_second * self.queue_share
        received = _LOCALSTACK_ANSWERS_PER_SECOND * (1 if self.fails else limits.RECEIVE_MESSAGES_MAX)
        return min(self.handled_per_second, received, offered)

    @cached_property
    def backlogs(self) -> tuple[float, float]:
        """Return (greatest backlog of the busiest queue, its backlog when everything is published)."""
        profile = self.profile
        receives_of_message = (
            self.queue_share * (self.received_count - profile.group_count) / profile.message_count
        )  # receives of each message, failed ones included
        backlog = greatest = at_seconds = 0.0
        for phase, share in (
            *((step, receives_of_message) for step in profile.steps),
            *((step, self.queue_share) for step in self._end_phases()),
        ):
            seconds = phase.duration_seconds / _SLICES
            for number in range(_SLICES):
                rise = (phase.end_per_second - phase.messages_per_second) * (number + 0.5) / _SLICES
                handled_per_second_now = self.finished_per_second if at_seconds >= profile.consume_after_seconds else 0
                backlog = max(
                    0.0, backlog + ((phase.messages_per_second + rise) * share - handled_per_second_now) * seconds
                )
                greatest = max(greatest, backlog)
                at_seconds += seconds
        return greatest, backlog

    def _end_phases(self) -> tuple[Phase, Phase]:
        """Return the phases after the load: the silence before the end markers, and the end markers."""
        profile = self.profile
        silence = profile.end_markers_after_seconds - profile.duration_seconds
        rate = profile.end_markers_per_second
        return (
            Phase(duration_seconds=silence, messages_per_second=0),
            Phase(duration_seconds=min(86_400, profile.group_count / rate), messages_per_second=min(rate, 1_000_000)),
        )

    @property
    def publish_seconds(self) -> float:
        """Return the time from the first message of the warm-up to the last end marker."""
        return self.profile.warm_up_seconds + self.profile.publish_seconds

    @property
    def drain_seconds(self) -> float:
        """Return the time from the last end marker until everything is consumed."""
        waiting = max(0.0, self.profile.consume_after_seconds - self.profile.publish_seconds)
        lease = (self.profile.visibility_timeout_seconds or _LEASE_SECONDS) if self.profile.crash_share else 0
        return waiting + self.backlogs[1] / self.finished_per_second + lease

    @property
    def _answers(self) -> int:
        """Return the number of receives that return messages."""
        return math.ceil(self.copies * self.received_count / self.messages_per_receive_call)

    @property
    def calls(self) -> dict[str, int]:
        """Return the calls of each action, in all queues together."""
        profile = self.profile
        active_seconds = max(0.0, self.publish_seconds + self.drain_seconds - profile.consume_after_seconds)
        consumers = profile.consumers_per_queue * self.queue_count
        polls = math.ceil(consumers * active_seconds / (_WAIT_SECONDS + profile.poll_pause_seconds))
        deleted = self._deliverable_count - (0 if profile.redrive else self._poisoned_count)
        given_back = self._count_of_share(profile.failure_share) + self._poisoned_count * self.max_receive_count
        return {
            "publish": math.ceil(self.published_count / self.messages_per_publish_call),
            "receive": max(self._answers, polls),
            "delete": math.ceil(self.copies * deleted / self.messages_per_receive_call),
            "change visibility": self.copies * given_back,
        }

    @property
    def cost(self) -> dict[str, float]:
        """Return the price of the run on AWS, in US dollars by line of the bill."""
        calls, request = self.calls, prices.usd("SQS FIFO request")
        small = calls["receive"] - self._answers + calls["delete"] + calls["change visibility"]
        consuming = small + self._answers * prices.requests(self.messages_per_receive_call * self.body_bytes)
        if not self.profile.has_topic:
            sending = calls["publish"] * prices.requests(self.messages_per_publish_call * self.body_bytes)
            return {"SQS send": sending * request, "SQS receive, delete": consuming * request}
        delivered = self._deliverable_count * self.copies
        return {
            **prices.fan_out(published=self.published_count, delivered=delivered, message_bytes=self.body_bytes),
            "SQS send": delivered * prices.requests(self.body_bytes) * request,
            "SQS receive, delete": consuming * request,
        }
