"""Every anomaly that Sluice has a name for, and whether the checker judges it.

The ids are stable and appear in verdicts; the definitions are the checker's contract. Families: A existence,
B duplication, C order within a group, D group blocking, E fan-out, F dead letters and redrive, G content,
H liveness and latency, R effects of the runtime's consumers.
"""

import re
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """The effect of an anomaly on a verdict.

    SAFETY makes it INVALID. LIVENESS is measured against a threshold. HARNESS means the run itself was at fault, which
    makes it UNKNOWN. INFORMATION is lawful and only counted.
    """

    SAFETY = "safety"
    LIVENESS = "liveness"
    HARNESS = "harness"
    INFORMATION = "information"


@dataclass(frozen=True, slots=True)
class Anomaly:
    """An anomaly: one way in which a history can be wrong.

    Args:
        id: family letter and number.
        name: the name for people.
        severity: its effect on the verdict.
        counted: the count of opportunities for this anomaly; if in doubt, too few are counted. None if `checker` does
            not look for it; such an anomaly is never reported as holding. Some are not judged because no run records
            them: B4 needs one deduplication id in two groups, and no run of ours has that.
        given: the facts that have to be known of the history. Without end markers (`ends`) no group was drained;
            without a visibility timeout of every queue (`timeouts`) no message was held; and a message that nobody
            recorded may have been published (`publishing`).
        definition: one sentence.
    """

    id: str
    name: str
    severity: Severity
    counted: str | None
    given: tuple[str, ...]
    definition: str


_TABLE = """
A1 lost safety acked:ends
    An acknowledged message was received from no queue, although the group was drained.
A2 lost-prefix safety acked
    A later message of the group was received from a queue, an earlier acknowledged one never was.
A3 vanished safety received:ends
    A message was received, never settled, its lease ended, and it never came again.
A4 phantom safety received:publishing
    A message of this run was received that nobody had tried to publish by then.
A5 aborted-delivery safety refused:publishing
    A message was received although every publish of it was refused.
A6 foreign harness received
    A message of another run, or of none, was received: the run was not isolated.
A7 recovered information unanswered
    A message was received whose publish had no known outcome.
A8 resurrected safety deleted:timeouts
    A message was received after its delete had settled, or long after its queue was purged.
B1 duplicate-in-window safety repeated
    One deduplication id became two messages in a queue inside the deduplication window.
B2 duplicate-outside-window information repeated_late
    One deduplication id became two messages, published at least a window apart.
B3 suppressed-too-long safety repeated_late:ends
    A repeat published after the window was dropped, or acknowledged as a repeat.
B4 scope-leak safety
    Deduplication acted across groups, or did not, against the declared scope.
B5 dedup-ack-mismatch safety repeated
    A repeat inside the window was acknowledged with another sequence number or message id.
B6 redelivery information received
    A message came again after its lease could have ended.
B7 early-redelivery safety received:timeouts
    A message came again while it was certainly still leased.
B8 receive-count-jump safety received
    A receive count fits no possible number of receives, or two receives have the same.
C1 reordered safety later
    Two messages of a group were first received in the opposite of their order, by calls that do not overlap.
C2 reordered-in-batch safety shared
    One answer holds messages of a group out of order.
C3 head-skip safety redelivered
    A receive passed over an earlier message that had become available again.
C4 sqs-sequence-non-monotonic safety numbered
    SQS sequence numbers fall along the group's order, or one message shows two.
C5 sns-sequence-non-monotonic safety acked
    A later publish of the group was given a lower sequence number, or two messages share one.
C6 fan-out-order-divergence safety unanswered
    Two queues first received two messages of a group, of which one has no known order, in opposite orders.
C7 producer-reorder harness acked:order
    The generator published a message before the one before it was acknowledged.
D1 group-overlap safety later:timeouts
    A worker was handed a message while one before it in its group, its own, was still in the queue.
D2 group-interleave safety later:timeouts
    A worker was handed a message while one before it in its group, another's, was still in the queue.
D3 over-blocking liveness later:threshold
    A group with an available message was passed over for longer than allowed, while others were served.
D4 blocked-after-dlq safety dead
    Behind a dead-lettered message the group never moved on, although the queue was polled.
D5 batch-underfill information later
    Receives that asked for more returned one message although the next of its group was in the queue.
E1 fan-out-incomplete safety acked:ends:fan_out
    An acknowledged message reached some of its queues and not others, although the group was drained.
E2 wrong-queue safety received
    A message was received from a queue its subscription excludes.
E3 fan-out-skew liveness acked:threshold
    The queues got a message too far apart in time.
E4 subscription-dead-lettered safety undelivered_polls
    SNS could not deliver a message and put it into the subscription's DLQ.
E5 silent-drop-in-fault information lossy_faults
    A message was dropped during an injected fault that documents the loss.
F1 dlq-premature safety dead
    A message was dead-lettered before maxReceiveCount receives, or while it was held.
F2 dlq-late safety received:receives
    A queue delivered a message more than maxReceiveCount times.
F3 dlq-missing safety redelivered:emptied
    A message used up its receives and was neither deleted nor dead-lettered.
F4 dlq-wrong-target safety dead
    A message of one queue was found in another queue's DLQ.
F5 dlq-after-delete safety dead
    A message was dead-lettered after its delete had settled.
F6 dlq-content safety dead
    Body, attributes, group or message id changed in the DLQ, or the deduplication id is not the message id.
F7 dlq-order safety dead
    Two messages of a group stand in the DLQ in the opposite order.
F8 redrive-loss safety moved
    A finished move task left a message in neither queue.
F9 redrive-duplicate safety moved
    A move task left a message in both queues, or twice in one.
F10 redrive-reorder safety moved
    Redriven messages of a group came out in another order than they stood in the DLQ.
F11 redrive-stale-identity safety moved
    A redriven message kept its message id.
F12 poison-escape information dead
    A message was dead-lettered that stood behind a poisoned one in every answer.
F13 dlq-escape safety dead:publishing
    A dead letter came back to its queue, and no move task brought it.
G1 corrupted safety received
    A received body is not the published one.
G2 md5-mismatch safety summed
    The service's MD5 does not fit the body.
G3 attribute-loss safety received
    Message attributes, group or deduplication id changed.
G4 envelope-mismatch safety identified
    A message's envelope, message id or sequence number contradicts the acknowledgement of its publish.
H1 stuck-group liveness later:threshold
    A group with an available message stood still for longer than allowed, while its queue was polled.
H2 false-empty liveness empty_polls
    A long poll came back empty while a message was certainly available.
H3 late liveness received:threshold
    Latency from the intended publish time is above its threshold.
H4 drain-slow liveness queues:threshold
    A backlog drained more slowly than allowed.
H5 recovery-slow liveness recovered:threshold
    After a fault the first success came too late.
H6 throttled liveness calls:threshold
    Too many calls were throttled.
H7 generator-late harness publishes:plan
    The generator kept its own schedule too badly for latencies to mean anything.
R1 effect-missing safety handled:effects
    A message was received and deleted, and its effect was never committed.
R2 effect-twice safety handled
    The effect of a message was committed twice.
R3 effects-reordered safety handled
    The effect of a message was committed before that of an earlier one of its group was begun.
R4 effect-after-delete safety handled:timeouts
    A message was deleted before its effect was begun.
"""
"""Each anomaly's id, name and severity; if it is judged, also `counted` and, after colons, `given`."""

ANOMALIES: dict[str, Anomaly] = {
    id_: Anomaly(id_, name, Severity(severity), counted or None, tuple(given.split(":")[1:]), definition)
    for id_, name, severity, counted, given, definition in re.findall(
        r"^(\w+) (\S+) (\w+) ?(\w*)(\S*)\n    (.+)$", _TABLE, re.MULTILINE
    )
}

JUDGED: tuple[Anomaly, ...] = tuple(anomaly for anomaly in ANOMALIES.values() if anomaly.counted is not None)
NOT_JUDGED: tuple[Anomaly, ...] = tuple(anomaly for anomaly in ANOMALIES.values() if anomaly.counted is None)
