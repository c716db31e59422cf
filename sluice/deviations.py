"""Known deviations of targets, a promise not kept or an anomaly shown, and why: one table for contracts and judge.

A contract test of a listed promise must fail on that target (a strict expected failure): the day it passes, the entry
is out of date and the run says so. A listed anomaly does not make a verdict INVALID on that target; the verdict names
it. GAP ids number the deviations of LocalStack 4.14.0, and from GAP-85 on of LocalEmu 1.3.2, found by experiment from
2026-11-20 on.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deviation:
    """One known deviation: GAP id and one sentence."""

    gap: str
    reason: str

    def __str__(self) -> str:
        return f"{self.gap}: {self.reason}"


_LOCALSTACK: Mapping[str, Deviation] = {
    "GRP-13": Deviation("GAP-03", "an invisible message holds back every message received after it, of all groups"),
    "SLU-03": Deviation("GAP-06", "a queue remembers one message per deduplication id, not one per group"),
    "SLU-45": Deviation("GAP-07", "the repeat gets a sequence number of its own"),
    "GRP-12": Deviation("GAP-04", "giving back any message in flight frees the whole group"),
    "VIS-05": Deviation("GAP-10", "every handle of a message deletes it, whoever holds it now"),
    "VIS-13": Deviation("GAP-25", "any visibility timeout is accepted"),
    "RCV-19": Deviation("GAP-72", "every message is sent by the account"),
    "RCV-14": Deviation("GAP-25", "any visibility timeout is accepted"),
    "SLU-47": Deviation("GAP-60", "0 is taken for one message"),
    "RCV-11": Deviation("GAP-08", "ReceiveRequestAttemptId is accepted and ignored"),
    "RCV-12": Deviation("GAP-08", "ReceiveRequestAttemptId is accepted and ignored"),
    "RCV-28": Deviation("GAP-08", "ReceiveRequestAttemptId is accepted and ignored"),
    "RCV-30": Deviation("GAP-08", "ReceiveRequestAttemptId is accepted and ignored"),
    "RCV-32": Deviation("GAP-08", "ReceiveRequestAttemptId is accepted and ignored"),
    "RCV-31": Deviation("GAP-08", "ReceiveRequestAttemptId is accepted and ignored"),
    "SND-09": Deviation("GAP-58", "a message keeps the delay its queue had when it was sent"),
    "SND-17": Deviation("GAP-26", "any number of message attributes is accepted"),
    "SND-18": Deviation("GAP-59", "any system attribute is accepted from the sender"),
    "SND-36": Deviation("GAP-62", "neither the length of a name nor two periods in a row are checked"),
    "BAT-03": Deviation("GAP-27", "the text is empty"),
    "BAT-04": Deviation("GAP-27", "the text is empty"),
    "BAT-08": Deviation("GAP-28", "the failed entry has the name of the exception as its code, and another text"),
    "BAT-13": Deviation("GAP-28", "the failure is reported as not the sender's fault"),
    "CRE-16": Deviation("GAP-24", "the limit is accepted with any scope"),
    "CRE-18": Deviation("GAP-19", "CreateQueue accepts any value"),
    "CRE-20": Deviation("GAP-31", "a name can be used again at once, unless SQS_DELAY_RECENTLY_DELETED is set"),
    "CRE-32": Deviation("GAP-30", "messages are kept for ever, unless SQS_ENABLE_MESSAGE_RETENTION_PERIOD is set"),
    "CRE-26": Deviation("GAP-49", "both kinds of encryption are accepted and reported"),
    "CRE-46": Deviation("GAP-83", "LastModifiedTimestamp stays the time the queue was created"),
    "VIS-16": Deviation("GAP-30", "messages are kept for ever, unless SQS_ENABLE_MESSAGE_RETENTION_PERIOD is set"),
    "VIS-17": Deviation("GAP-30", "messages are kept for ever, unless SQS_ENABLE_MESSAGE_RETENTION_PERIOD is set"),
    "PUR-01": Deviation("GAP-32", "a queue can be purged again at once, unless SQS_DELAY_PURGE_RETRY is set"),
    "DLQ-04": Deviation("GAP-02", "the DLQ copy keeps the original deduplication id"),
    "DLQ-05": Deviation("GAP-02", "the second message is dropped from the DLQ as a duplicate of the first, and lost"),
    "DLQ-08": Deviation("GAP-46", "the DLQ copy keeps the time of the original send"),
    "DLQ-09": Deviation("GAP-22", "any queue may be the DLQ"),
    "DLQ-10": Deviation("GAP-22", "a DLQ that does not exist is accepted"),
    "DLQ-12": Deviation("GAP-20", "CreateQueue accepts any maxReceiveCount"),
    "DLQ-14": Deviation("GAP-20", "the target of a redrive policy is not checked"),
    "DLQ-15": Deviation("GAP-21", "other keys of a redrive policy are kept"),
    "DLQ-18": Deviation("GAP-23", "RedriveAllowPolicy is kept and not enforced"),
    "DLQ-26": Deviation("GAP-23", "RedriveAllowPolicy is kept and not enforced"),
    "MOV-12": Deviation("GAP-18", "the reason is the name of an exception of its own"),
    "MOV-13": Deviation("GAP-14", "a task that has ended is set to be cancelled, for ever"),
    "MOV-14": Deviation("GAP-12", "any rate is accepted"),
    "MOV-15": Deviation("GAP-12", "any number of tasks can be asked for"),
    "MOV-16": Deviation("GAP-12", "a destination of the other type is accepted, and the task fails later"),
    "MOV-18": Deviation("GAP-11", "a moved message keeps its message id and its time"),
    "MOV-22": Deviation("GAP-12", "the DLQ itself is accepted as destination"),
    "MOV-23": Deviation("GAP-12", "an ARN that is none ends in an internal error"),
    "MOV-17": Deviation("GAP-01", "the moved message is dropped as a duplicate of itself and lost"),
    "MOV-45": Deviation("GAP-01", "the moved message is dropped as a duplicate of itself and lost"),
    "MOV-46": Deviation("GAP-01", "the moved message is dropped as a duplicate of itself and lost"),
    "SLU-46": Deviation("GAP-61", "the suffix is not counted"),
    "SNS-07": Deviation("GAP-38", "any protocol is accepted"),
    "SNS-18": Deviation("GAP-36", "topics do not deduplicate: a repeat gets new ids"),
    "SNS-20": Deviation("GAP-37", "topics do not deduplicate: a standard queue gets every repeat"),
    "SNS-21": Deviation("GAP-36", "topics do not deduplicate: a queue that was not there gets the repeat"),
    "SNS-30": Deviation("GAP-42", "MaximumMessageSize is kept and has no effect"),
    "SNS-32": Deviation("GAP-44", "the whole batch goes to the DLQ, also what was delivered"),
    "SNS-34": Deviation("GAP-53", "the DLQ of a subscription is not looked at beyond its name"),
    "SNS-40": Deviation("GAP-41", "any archive policy is accepted"),
    "SNS-41": Deviation("GAP-41", "a topic is deleted with its archive"),
    "SNS-84": Deviation("GAP-43", "the number of subscriptions is always 0"),
    "SNS-95": Deviation("GAP-36", "topics do not deduplicate: a repeat gets new ids"),
    "SNS-98": Deviation("GAP-40", "any scope is accepted"),
    "SNS-101": Deviation("GAP-42", "MaximumMessageSize is kept and has no effect"),
    "SNS-103": Deviation("GAP-41", "a replay policy is refused as an unknown attribute"),
    "SNS-104": Deviation("GAP-41", "a replay policy is refused as an unknown attribute"),
    "SNS-125": Deviation("GAP-63", "the subscriptions of a deleted topic are kept"),
    "SNS-128": Deviation("GAP-64", "the length of a subject is not checked"),
    "SNS-130": Deviation("GAP-45", "the second entry gets ids of its own"),
    "SNS-131": Deviation("GAP-41", "a replay policy is refused as an unknown attribute"),
    "SNS-132": Deviation("GAP-41", "a standard topic accepts an archive policy"),
    "SNS-44": Deviation("GAP-52", "the policies of queues are kept and not enforced"),
    "SNS-51": Deviation("GAP-40", "any scope is accepted"),
    "SNS-57": Deviation("GAP-39", "ids of a publish are not checked"),
    "SNS-106": Deviation("GAP-36", "topics do not deduplicate: a repeat gets new ids"),
    "SNS-108": Deviation("GAP-52", "the policies of queues are kept and not enforced"),
    "SNS-110": Deviation("GAP-81", "the operator wildcard is refused"),
    "SNS-113": Deviation("GAP-36", "topics do not deduplicate: a repeat gets new ids"),
    "SNS-114": Deviation("GAP-82", "a batch without an entry ends in an internal error"),
    "SNS-59": Deviation("GAP-36", "topics do not deduplicate: a repeat gets new ids"),
    "SNS-83": Deviation("GAP-26", "messages with any number of attributes are delivered"),
    "RCV-37": Deviation("GAP-08", "ReceiveRequestAttemptId is accepted and ignored"),
    "RCV-38": Deviation("GAP-08", "ReceiveRequestAttemptId is accepted and ignored"),
    "SLU-67": Deviation("GAP-10", "every handle of a message deletes it, whoever holds it now"),
    "SLU-68": Deviation("GAP-10", "every handle of a message deletes it, whoever holds it now"),
    "SNS-156": Deviation("GAP-84", "a filter policy does not look at the type of an attribute"),
    "SNS-161": Deviation("GAP-36", "topics do not deduplicate: a repeat gets new ids"),
    "SNS-136": Deviation("GAP-41", "a replay policy is refused as an unknown attribute"),
    "SNS-162": Deviation("GAP-41", "a replay policy is refused as an unknown attribute"),
    "SNS-163": Deviation("GAP-41", "a replay policy is refused as an unknown attribute"),
    "SNS-164": Deviation("GAP-41", "a replay policy is refused as an unknown attribute"),
    "ESM-01": Deviation("GAP-87", "a mapping works on one batch at a time, each of one group"),
    "ESM-21": Deviation("GAP-87", "a mapping works on one batch at a time, each of one group"),
    "ESM-14": Deviation("GAP-88", "a throttled batch is not tried again before its messages are received again"),
    "ESM-16": Deviation("GAP-90", "a batching window is accepted for a FIFO queue"),
    "ESM-30": Deviation("GAP-91", "the function's timeout is not compared with the visibility timeout"),
    "ESM-33": Deviation("GAP-89", "a body that is JSON is parsed and written anew"),
}
_KEPT_BY_LOCALEMU = ("SNS-18", "SNS-20", "SNS-21", "SNS-59", "SNS-95", "SNS-113", "SNS-125", "SNS-130", "SNS-161")
_LOCALEMU: Mapping[str, Deviation] = {
    **{id_: deviation for id_, deviation in _LOCALSTACK.items() if id_ not in _KEPT_BY_LOCALEMU},
    "SNS-39": Deviation("GAP-85", "topics deduplicate across groups, whatever their FifoThroughputScope"),
    "SNS-106": Deviation("GAP-42", "MaximumMessageSize is kept and has no effect"),
    "SNS-150": Deviation("GAP-86", "the subscriptions of a deleted topic are gone at once"),
}
"""LocalEmu descends from LocalStack, whose deviations it has, but for those of topics that do not deduplicate."""

PROMISES: Mapping[str, Mapping[str, Deviation]] = {"localstack": _LOCALSTACK, "localemu": _LOCALEMU}
"""Target -> promise id -> deviation."""

ANOMALIES: Mapping[str, Mapping[str, Deviation]] = {
    "localstack": {
        "B5": Deviation("GAP-36", "topics do not deduplicate: a repeat gets new ids"),
        "F6": Deviation("GAP-02", "the DLQ copy keeps the original deduplication id"),
        "F8": Deviation("GAP-01", "what comes back within five minutes of its send is dropped as its own duplicate"),
        "F11": Deviation("GAP-11", "a redriven message keeps its message id and receive count"),
    },
}
"""Target -> anomaly id -> deviation."""


def of_promise(target: str, promise: str) -> Deviation | None:
    """Return why that target does not keep that promise, or None when it should."""
    return PROMISES.get(target, {}).get(promise)
