"""What holds of one message: it is sent, deduplicated, received, purged."""

from sluice.promises.promise import API, GUIDE, Promise, documented, old, recorded

_DEDUP = "Deduplication"
_SEND = "Sending"
_PURGE = "Purge"

PROMISES: tuple[Promise, ...] = (
    Promise(
        "DED-01",
        _DEDUP,
        "A second send with the same deduplication id inside the window is accepted and not delivered, even after the first was received and deleted.",
        (recorded("sqs/test_sqs.py::test_fifo_deduplication_arrives_once_after_delete", "2024-04-30"),),
        ("forget-deduplication",),
    ),
    Promise(
        "DED-08",
        _DEDUP,
        "After the window the same deduplication id is a new message; a repeat inside it does not extend it.",
        (
            recorded("sqs/test_sqs.py::test_deduplication_interval", "2024-05-29"),
            documented(GUIDE + "using-messagededuplicationid-property.html"),
        ),
        ("swallow-repeats", "forget-deduplication"),
    ),
    Promise(
        "RCV-05",
        _DEDUP,
        "With content-based deduplication the deduplication id is the SHA-256 of the body, and the same body is one message.",
        (
            recorded("sqs/test_sqs.py::test_fifo_message_attributes", "2024-04-30"),
            documented(GUIDE + "FIFO-queues-exactly-once-processing.html"),
        ),
        ("forget-deduplication",),
    ),
    Promise(
        "DED-10",
        _DEDUP,
        "Content-based deduplication looks at the body only: other attributes do not make another message.",
        (documented(API + "API_SendMessage.html"),),
        ("forget-deduplication",),
    ),
    Promise(
        "DED-11",
        _DEDUP,
        "An explicit deduplication id overrides the content: one body with two ids is two messages.",
        (documented(API + "API_SendMessage.html"),),
        ("swallow-bodies",),
    ),
    Promise(
        "SLU-02",
        _DEDUP,
        "With DeduplicationScope `queue`, one deduplication id in two groups is one message.",
        (documented(API + "API_CreateQueue.html"),),
        ("forget-deduplication",),
    ),
    Promise(
        "DED-04",
        _DEDUP,
        "With DeduplicationScope `messageGroup`, one deduplication id in two groups is two messages, and in one group one.",
        (recorded("sqs/test_sqs.py::test_sqs_fifo_message_group_scope_no_throughput_setting", "2024-05-24"),),
        ("swallow-repeats", "forget-deduplication"),
    ),
    Promise(
        "SLU-03",
        _DEDUP,
        "With DeduplicationScope `messageGroup`, sends to groups A, B and A again with one id make two messages.",
        (recorded("sqs/test_sqs.py::test_fifo_high_throughput_ordering", "2024-04-30"),),
        ("forget-deduplication",),
    ),
    Promise(
        "DED-09",
        _DEDUP,
        "A repeated send returns the message id of the first, and the first body is delivered.",
        (documented(GUIDE + "FIFO-queues-exactly-once-processing.html"),),
        ("forget-deduplication",),
    ),
    Promise(
        "DED-14",
        _DEDUP,
        "Purging a queue forgets its deduplication ids.",
        (old("sqs/test_sqs.py::test_purge_queue_clears_fifo_deduplication_cache"),),
        ("swallow-repeats",),
    ),
    Promise(
        "SND-01",
        _SEND,
        "A send without a deduplication id to a queue without content-based deduplication is refused.",
        (recorded("sqs/test_sqs.py::test_posting_to_fifo_requires_deduplicationid_group_id", "2024-04-30"),),
        ("hide-errors",),
    ),
    Promise(
        "SND-02",
        _SEND,
        "A send without a message group id is refused.",
        (recorded("sqs/test_sqs.py::test_posting_to_fifo_requires_deduplicationid_group_id", "2024-04-30"),),
        ("hide-errors",),
    ),
    Promise(
        "SNS-09",
        _SEND,
        "A publish to a FIFO topic without a message group id is refused.",
        (recorded("sns/test_sns.py::test_validations_for_fifo", "2025-08-18"),),
        ("hide-errors",),
    ),
    Promise(
        "PUR-02",
        _PURGE,
        "A purge removes what waits and what is in flight.",
        (old("sqs/test_sqs.py::test_purge_queue_deletes_inflight_messages"),),
        ("ignore-purge",),
    ),
)
