"""Every anomaly Sluice has a name for, and whether the checker judges it yet.

The ids are stable and appear in verdicts; the definitions are the checker's contract. Families: A existence,
B duplication, C order within a group, D group blocking, E fan-out, F dead letters and redrive, G content,
H liveness and latency, R effects of the runtime's consumers.
"""

from dataclasses import dataclass, field
from enum import StrEnum


class Severity(StrEnum):
    """What an anomaly does to a verdict.

    SAFETY makes it INVALID. LIVENESS is measured against a threshold. HARNESS means the run itself was at fault, which
    makes it UNKNOWN. INFORMATION is lawful and only counted.
    """

    SAFETY = "safety"
    LIVENESS = "liveness"
    HARNESS = "harness"
    INFORMATION = "information"


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One thing that can be wrong with a history.

    Args:
        id: family letter and number.
        name: for people.
        severity: what it does to the verdict.
        definition: one sentence.
        is_judged: whether `checker` looks for it; what it does not look for is never reported as holding. Not judged
            is what no run records: B4 needs one deduplication id in two groups, and no run of ours has that.
    """

    id: str
    name: str
    severity: Severity
    definition: str
    is_judged: bool = field(default=True, kw_only=True)


_S, _L, _P, _I = Severity.SAFETY, Severity.LIVENESS, Severity.HARNESS, Severity.INFORMATION

ANOMALIES: dict[str, Anomaly] = {
    anomaly.id: anomaly
    for anomaly in (
        Anomaly(
            "A1", "lost", _S, "An acknowledged message was received from no queue, although the group was drained."
        ),
        Anomaly(
            "A2",
            "lost-prefix",
            _S,
            "A later message of the group was received from a queue, an earlier acknowledged one never was.",
        ),
        Anomaly(
            "A3", "vanished", _S, "A message was received, never settled, its lease ended, and it never came again."
        ),
        Anomaly("A4", "phantom", _S, "A message of this run was received that nobody had tried to publish by then."),
        Anomaly("A5", "aborted-delivery", _S, "A message was received although every publish of it was refused."),
        Anomaly("A6", "foreign", _P, "A message of another run, or of none, was received: the run was not isolated."),
        Anomaly("A7", "recovered", _I, "A message was received whose publish had no known outcome."),
        Anomaly("A8", "resurrected", _S, "A message was received after its delete had settled."),
        Anomaly(
            "B1",
            "duplicate-in-window",
            _S,
            "One deduplication id became two messages in a queue inside the deduplication window.",
        ),
        Anomaly(
            "B2",
            "duplicate-outside-window",
            _I,
            "One deduplication id became two messages, published at least a window apart.",
        ),
        Anomaly(
            "B3",
            "suppressed-too-long",
            _S,
            "A repeat published after the window was dropped, or acknowledged as a repeat.",
        ),
        Anomaly(
            "B4",
            "scope-leak",
            _S,
            "Deduplication acted across groups, or did not, against the declared scope.",
            is_judged=False,
        ),
        Anomaly(
            "B5", "dedup-ack-mismatch", _S, "A repeat inside the window was acknowledged with another sequence number."
        ),
        Anomaly("B6", "redelivery", _I, "A message came again after its lease could have ended."),
        Anomaly("B7", "early-redelivery", _S, "A message came again while it was certainly still leased."),
        Anomaly(
            "B8",
            "receive-count-jump",
            _S,
            "A receive count fits no possible number of receives, or two receives have the same.",
        ),
        Anomaly(
            "C1",
            "reordered",
            _S,
            "Two messages of a group were first received in the opposite of their order, by calls that do not overlap.",
        ),
        Anomaly("C2", "reordered-in-batch", _S, "One answer holds messages of a group out of order."),
        Anomaly("C3", "head-skip", _S, "A receive passed over an earlier message that had become available again."),
        Anomaly(
            "C4",
            "sqs-sequence-non-monotonic",
            _S,
            "SQS sequence numbers fall along the group's order, or one message shows two.",
        ),
        Anomaly(
            "C5",
            "sns-sequence-non-monotonic",
            _S,
            "A later publish of the group was given a lower sequence number, or two messages share one.",
        ),
        Anomaly(
            "C6",
            "fan-out-order-divergence",
            _S,
            "Two queues first received two messages of a group, of which one has no known order, in opposite orders.",
        ),
        Anomaly(
            "C7", "producer-reorder", _P, "The generator published a message before the one before it was acknowledged."
        ),
        Anomaly(
            "D1",
            "group-overlap",
            _S,
            "A worker was handed a message while one before it in its group, its own, was still in the queue.",
        ),
        Anomaly(
            "D2",
            "group-interleave",
            _S,
            "A worker was handed a message while one before it in its group, another's, was still in the queue.",
        ),
        Anomaly(
            "D3",
            "over-blocking",
            _L,
            "A group with an available message was passed over for longer than allowed, while others were served.",
        ),
        Anomaly(
            "D4",
            "blocked-after-dlq",
            _S,
            "Behind a dead-lettered message the group never moved on, although the queue was polled.",
        ),
        Anomaly(
            "D5",
            "batch-underfill",
            _I,
            "Receives that asked for more returned one message although the next of its group was in the queue.",
        ),
        Anomaly(
            "E1",
            "fan-out-incomplete",
            _S,
            "An acknowledged message reached some of its queues and not others, although the group was drained.",
        ),
        Anomaly("E2", "wrong-queue", _S, "A message was received from a queue its subscription excludes."),
        Anomaly("E3", "fan-out-skew", _L, "The queues got a message too far apart in time."),
        Anomaly(
            "E4",
            "subscription-dead-lettered",
            _S,
            "SNS could not deliver a message and put it into the subscription's DLQ.",
        ),
        Anomaly(
            "E5", "silent-drop-in-fault", _I, "A message was dropped during an injected fault that documents the loss."
        ),
        Anomaly(
            "F1",
            "dlq-premature",
            _S,
            "A message was dead-lettered before maxReceiveCount receives, or while it was held.",
        ),
        Anomaly("F2", "dlq-late", _S, "A queue delivered a message more than maxReceiveCount times."),
        Anomaly("F3", "dlq-missing", _S, "A message used up its receives and was neither deleted nor dead-lettered."),
        Anomaly("F4", "dlq-wrong-target", _S, "A message of one queue was found in another queue's DLQ."),
        Anomaly("F5", "dlq-after-delete", _S, "A message was dead-lettered after its delete had settled."),
        Anomaly(
            "F6",
            "dlq-content",
            _S,
            "Body, attributes, group or message id changed in the DLQ, or the deduplication id is not the message id.",
        ),
        Anomaly("F7", "dlq-order", _S, "Two messages of a group stand in the DLQ in the opposite order."),
        Anomaly("F8", "redrive-loss", _S, "A finished move task left a message in neither queue."),
        Anomaly("F9", "redrive-duplicate", _S, "A move task left a message in both queues, or twice in one."),
        Anomaly(
            "F10",
            "redrive-reorder",
            _S,
            "Redriven messages of a group came out in another order than they stood in the DLQ.",
        ),
        Anomaly("F11", "redrive-stale-identity", _S, "A redriven message kept its message id."),
        Anomaly(
            "F12", "poison-escape", _L, "A message was dead-lettered that stood behind a poisoned one in every answer."
        ),
        Anomaly("F13", "dlq-escape", _S, "A dead letter came back to its queue, and no move task brought it."),
        Anomaly("G1", "corrupted", _S, "A received body is not the published one."),
        Anomaly("G2", "md5-mismatch", _S, "The service's MD5 does not fit the body."),
        Anomaly("G3", "attribute-loss", _S, "Message attributes, group or deduplication id changed."),
        Anomaly("G4", "envelope-mismatch", _S, "An SNS envelope contradicts the publish's acknowledgement."),
        Anomaly(
            "H1",
            "stuck-group",
            _L,
            "A group with an available message stood still for longer than allowed, while its queue was polled.",
        ),
        Anomaly("H2", "false-empty", _L, "A long poll came back empty while a message was certainly available."),
        Anomaly("H3", "late", _L, "Latency from the intended publish time is above its threshold."),
        Anomaly("H4", "drain-slow", _L, "A backlog drained more slowly than allowed."),
        Anomaly("H5", "recovery-slow", _L, "After a fault the first success came too late."),
        Anomaly("H6", "throttled", _L, "Too many calls were throttled."),
        Anomaly(
            "H7", "generator-late", _P, "The generator kept its own schedule too badly for latencies to mean anything."
        ),
        Anomaly("R1", "effect-missing", _S, "A message was received and deleted, and its effect was never committed."),
        Anomaly("R2", "effect-twice", _S, "The effect of a message was committed twice."),
        Anomaly(
            "R3",
            "effects-reordered",
            _S,
            "The effect of a message was committed before that of an earlier one of its group was begun.",
        ),
        Anomaly("R4", "effect-after-delete", _S, "A message was deleted before its effect was begun."),
    )
}

JUDGED: tuple[Anomaly, ...] = tuple(anomaly for anomaly in ANOMALIES.values() if anomaly.is_judged)

OPPORTUNITIES: dict[str, tuple[str, tuple[str, ...]]] = {
    anomaly: (of, tuple(given))
    for of, texts in {
        "acked": "A1:ends A2 C5 C7:order E1:ends:fan_out E3:threshold",
        "calls": "H6:threshold",
        "dead": "D4 F1 F4 F5 F6 F7 F12 F13:publishing",
        "deleted": "A8:timeouts",
        "empty_polls": "H2",
        "enveloped": "G4",
        "handled": "R1:effects R2 R3 R4:timeouts",
        "later": "C1 D1:timeouts D2:timeouts D3:threshold D5 H1:threshold",
        "lossy_faults": "E5",
        "moved": "F8 F9 F10 F11",
        "numbered": "C4",
        "publishes": "H7:plan",
        "queues": "H4:threshold",
        "received": "A3:ends A4:publishing A6 B6 B7:timeouts B8 E2 F2:receives G1 G3 H3:threshold",
        "recovered": "H5:threshold",
        "redelivered": "C3 F3:emptied",
        "refused": "A5:publishing",
        "repeated": "B1 B5",
        "repeated_late": "B2 B3:ends",
        "shared": "C2",
        "summed": "G2",
        "unanswered": "A7 C6",
        "undelivered_polls": "E4",
    }.items()
    for anomaly, *given in (text.split(":") for text in texts.split())
}
"""Each judged anomaly to the count of what it could have happened to, and to what has to be known of the history.

In doubt the count is too small. Without end markers (`ends`) nothing was drained, without a visibility timeout of every
queue (`timeouts`) nothing was held, and what nobody recorded may have been published (`publishing`).
"""
