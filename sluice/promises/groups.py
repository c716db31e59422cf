"""What holds of a message group: it blocks, it keeps its order, it waits for the visibility timeout."""

from sluice.promises.promise import API, GUIDE, Promise, documented, old, recorded

_BLOCKING = "Group blocking"
_ORDER = "Order"
_VISIBILITY = "Visibility"

PROMISES: tuple[Promise, ...] = (
    Promise(
        "GRP-01",
        _BLOCKING,
        "While a message of a group is in flight, no other message of that group is delivered to anyone.",
        (
            old("sqs/test_sqs.py::test_fifo_message_group_visibility"),
            documented(GUIDE + "FIFO-queues-understanding-logic.html"),
        ),
        ("leak-group",),
    ),
    Promise(
        "SLU-01",
        _BLOCKING,
        "While one group is blocked, messages of other groups are delivered.",
        (
            old("sqs/test_sqs.py::test_fifo_message_group_visibility"),
            documented(GUIDE + "FIFO-queues-understanding-logic.html"),
        ),
        ("withhold-later",),
    ),
    Promise(
        "GRP-04",
        _BLOCKING,
        "A new message sent to a blocked group does not unblock it.",
        (old("sqs/test_sqs.py::test_fifo_message_group_visibility"),),
        ("leak-group",),
    ),
    Promise(
        "GRP-05",
        _BLOCKING,
        "Deleting the only message in flight releases its group at once, also for a consumer already long-polling.",
        (old("sqs/test_sqs.py::test_fifo_message_group_visibility"),),
        ("ignore-delete", "withhold-later"),
    ),
    Promise(
        "GRP-02",
        _BLOCKING,
        "When the messages in flight of a group expire, all the remaining messages of the group are delivered, in order.",
        (old("sqs/test_sqs.py::test_fifo_receive_message_visibility_timeout_shared_in_group"),),
        ("stretch-visibility", "reverse-batch"),
    ),
    Promise(
        "VIS-11",
        _BLOCKING,
        "A visibility timeout changed to 0 releases the message, and with it the group, at once.",
        (old("sqs/test_sqs.py::test_receive_terminate_visibility_timeout"),),
        ("ignore-visibility-change",),
    ),
    Promise(
        "GRP-13",
        _BLOCKING,
        "A long-invisible message of one group does not delay the redelivery of another group's.",
        (documented(GUIDE + "FIFO-queues-understanding-logic.html"),),
        ("withhold-later",),
    ),
    Promise(
        "GRP-10",
        _BLOCKING,
        "Nothing behind an invisible message of a group is delivered: of three in flight with the second extended, only the first comes again.",
        (recorded("sqs/test_sqs.py::test_fifo_group_visibility_extends_with_change_message_visibility", "2025-11-19"),),
        ("ignore-visibility-change",),
    ),
    Promise(
        "SND-20",
        _BLOCKING,
        "A standard queue accepts a message group id and does not block the group (comparison).",
        (
            recorded("sqs/test_sqs.py::test_fair_queue_with_message_group_id", "2025-08-18"),
            documented(GUIDE + "sqs-fair-queues.html"),
        ),
        ("withhold-later",),
    ),
    Promise(
        "RCV-16",
        _ORDER,
        "Received one at a time and deleted, the messages of a group come in the order they were sent.",
        (old("sqs/test_sqs.py::test_fifo_queue_send_multiple_messages_multiple_single_receives"),),
        ("swap-bodies",),
    ),
    Promise(
        "RCV-08",
        _ORDER,
        "One receive fills up from one group, in order, before it takes from the next.",
        (
            old("sqs/test_sqs.py::test_fifo_receive_message_group_id_ordering"),
            documented(GUIDE + "FIFO-queues-understanding-logic.html"),
        ),
        ("reverse-batch",),
    ),
    Promise(
        "SND-10",
        _ORDER,
        "Sequence numbers of a group rise with every send.",
        (old("sqs/test_sqs.py::test_fifo_sequence_number_increases"), documented(API + "API_SendMessage.html")),
        ("freeze-sequence-numbers",),
    ),
    Promise(
        "RCV-17",
        _VISIBILITY,
        "A consumer that overruns its visibility timeout is not fenced: a second consumer gets the same message while the first still works on it.",
        (
            old("sqs/test_sqs.py::test_fifo_messages_in_order_after_timeout"),
            documented(GUIDE + "FIFO-queues-exactly-once-processing.html"),
        ),
        ("stretch-visibility",),
    ),
    Promise(
        "VIS-01",
        _VISIBILITY,
        "Deleting with a handle whose visibility timeout has ended fails, and the message stays.",
        (recorded("sqs/test_sqs.py::test_fifo_delete_after_visibility_timeout", "2025-03-28"),),
        ("hide-errors",),
    ),
    Promise(
        "VIS-14",
        _VISIBILITY,
        "Every receive adds one to ApproximateReceiveCount; the time of the first receive stays.",
        (recorded("sqs/test_sqs.py::test_fifo_message_attributes", "2024-04-30"),),
        ("freeze-receive-count",),
    ),
)
