"""Rules that all batches of SQS share: some mistakes refuse the whole batch, others only the entry that has them."""

import re
from collections.abc import Callable

from sluice.simulator.model.operation import AnswerFields, Params
from sluice.simulator.model.refusal import AwsRefusal

_ENTRIES_MAX = 10


def check(entries: list[Params], kind: str) -> None:
    """Refuse the whole batch for its number of entries or for their ids [BAT-01..BAT-04].

    Args:
        entries: the batch.
        kind: the name of an entry in AWS's error text.
    """
    prefix = "AWS.SimpleQueueService."
    if not entries:
        raise AwsRefusal(prefix + "EmptyBatchRequest", f"There should be at least one {kind} in the request.")
    if len(entries) > _ENTRIES_MAX:
        raise AwsRefusal(
            prefix + "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {_ENTRIES_MAX}. You have sent {len(entries)}.",
        )
    ids = [entry["Id"] for entry in entries]
    if not all(re.fullmatch(r"[A-Za-z0-9_-]{1,80}", id_) for id_ in ids):
        raise AwsRefusal(
            prefix + "InvalidBatchEntryId",
            "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
            "It can be at most 80 letters long.",
        )
    for number, id_ in enumerate(ids):
        if id_ in ids[:number]:
            raise AwsRefusal(prefix + "BatchEntryIdsNotDistinct", f"Id {id_} repeated.")


def handle_each(entries: list[Params], handle: Callable[[Params], AnswerFields]) -> AnswerFields:
    """Return the answer to a batch, entry by entry: `handle`'s answer, or its refusal [BAT-08, BAT-13]."""
    successful, failed = [], []
    for entry in entries:
        try:
            successful.append({"Id": entry["Id"]} | handle(entry))
        except AwsRefusal as refusal:
            failed.append({"Id": entry["Id"], "Code": refusal.code, "Message": refusal.text, "SenderFault": True})
    return ({"Successful": successful} if successful else {}) | ({"Failed": failed} if failed else {})
