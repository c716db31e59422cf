"""The cells of the table that are no mutants, each with the reason why.

A reason is one of three: the rule never meets the circumstance, the mutant would be equivalent to the model, or AWS's
answer is disputed or unknown, so that no promise can say which of the two is right.
"""

from collections.abc import Iterator, Mapping

_REASONS: tuple[tuple[str, str, str, str], ...] = (
    # Table, rows, columns (each divided by commas), and why.
    (
        "queue",
        "hiding, receive count, first receive, dying, living, order, move task, dead letter's group, expired handle",
        "extended",
        "what can be received is visible, and what was extended is not",
    ),
    (
        "queue",
        "blocking, release, extension, replaced handle, attempts",
        "released, expired",
        "what is in flight is not visible, and what was released or has expired is",
    ),
    ("queue", "attempts", "extended", "a changed visibility makes the attempt void [RCV-30]"),
    ("queue", "attempts", "later", "what is before it in its group blocks it, so no attempt begins with it"),
    ("queue", "delete", "released", "a delete after a release is refused or in vain: nobody recorded which [VIS-33]"),
    (
        "queue",
        "delete, expired handle, replaced handle, release, extension, purge, deduplication, repeat's answer, counters",
        "polled",
        "no receive does this",
    ),
    (
        "queue",
        "expired handle, replaced handle, release, extension, purge, deduplication, repeat's answer, window, sequence"
        " numbers, move task, counters, attempts",
        "mapped",
        "a mapping receives and deletes what it holds, and makes no other call",
    ),
    ("queue", "retention", "mapped", "what is too old is removed at each call, so nothing is seen of it"),
    ("queue", "move task", "polled", "a move task takes its steps before a receive, not in it"),
    ("queue", "retention", "polled", "what is too old is removed before the poll too, so nothing is seen of it"),
    ("queue", "window", "polled", "an id is forgotten at the next call that is no poll, before anything is sent"),
    (
        "queue",
        "order",
        "delayed, scope, purged, changed, polled, mapped",
        "it holds of all messages of a queue: order is kept",
    ),
    ("queue", "order", "later", "a later message is behind the first of its group anyway"),
    ("queue", "dying, living", "later", "a later message is received no more often than the first of its group"),
    (
        "queue",
        "deduplication, repeat's answer, window",
        "dead",
        "a DLQ remembers no id of what was moved to it [DED-13]",
    ),
    (
        "queue",
        "deduplication, repeat's answer, window",
        "redriven",
        "it comes under its old message id as deduplication id, which no send has [DLQ-04]",
    ),
    ("queue", "repeat's answer", "delivered", "nobody sees what a queue answers a topic"),
    (
        "queue",
        "dead letter's group",
        "redriven, batch, delivered",
        "a DLQ does not know how a message came to its source",
    ),
    ("queue", "sequence numbers", "received, released, extended, expired", "a number is given before any receive"),
    ("queue", "retention", "later", "once the first of its group is too old and gone, the next is no later message"),
    ("queue", "purge", "purged", "two purges are a minute apart [PUR-01], and this one would be about both"),
    (
        "topic",
        "deduplication, answered id, answered number",
        "enveloped, filtered, undelivered, standard, delayed",
        "a topic answers and remembers before it looks at subscriptions",
    ),
    (
        "topic",
        "deduplication, answered id, answered number, filter policy",
        "replayed",
        "a replay is no publish: it answers nothing and remembers nothing; SNS-131 holds the filter policy",
    ),
    ("topic", "body", "structure", "the other body would be one that is no message by protocol: it could not be read"),
    ("topic", "copy's id", "structure", "what the content of a message by protocol is, nobody recorded"),
    ("topic", "copy's id, subscription's DLQ", "standard", "a standard queue has no id, and is there"),
    ("topic", "group", "standard", "a standard queue gets no group of a FIFO topic [SNS-96]"),
    ("topic", "message attributes", "enveloped", "the attributes are in the envelope; SNS-159 holds them"),
    ("topic", "filter policy", "undelivered", "a queue that is gone gets nothing, wanted or not"),
    ("topic", "subscription's DLQ", "delayed", "what can be delivered goes to no DLQ"),
)


def _cells() -> Iterator[tuple[tuple[str, str, str], str]]:
    for table, rows, columns, reason in _REASONS:
        for row in rows.split(", "):
            for column in columns.split(", "):
                yield (table, row, column), reason


REASONS: Mapping[tuple[str, str, str], str] = dict(_cells())
"""Table, row and column of a cell that is no mutant, to the reason."""
