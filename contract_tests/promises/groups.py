"""What holds of a message group: it blocks, it keeps its order, it waits for the visibility timeout."""

from contract_tests.promises.promise import API, GUIDE, Promise, documented, old, peer, recorded, reported, unverified

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
        "When the visibility timeouts of the messages in flight of a group end, all messages of the group that are"
        " left are delivered, in order.",
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
        ("stretch-visibility",),
    ),
    Promise(
        "GRP-10",
        _BLOCKING,
        "Nothing behind an invisible message of a group is delivered: of three in flight with the second extended,"
        " only the first comes again.",
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
        "GRP-03",
        _BLOCKING,
        "A receive with a visibility timeout of 0 does not block its groups.",
        (old("sqs/test_sqs.py::test_fifo_receive_message_with_zero_visibility_timeout"),),
        ("ignore-receive-visibility",),
    ),
    Promise(
        "GRP-06",
        _BLOCKING,
        "A group with two messages in flight is blocked until both are deleted.",
        (old("sqs/test_sqs.py::test_fifo_message_group_visibility_after_partial_delete"),),
        ("deliver-twice", "ignore-delete"),
    ),
    Promise(
        "GRP-07",
        _BLOCKING,
        "A group whose messages in flight were all deleted does not overtake a group that waited.",
        (old("sqs/test_sqs.py::test_fifo_message_group_visibility_after_delete"),),
        ("ignore-delete", "reverse-batch"),
    ),
    Promise(
        "GRP-08",
        _BLOCKING,
        "Giving back the first of two messages in flight releases that one, and not the second.",
        (old("sqs/test_sqs.py::test_fifo_message_group_visibility_after_terminate_visibility_timeout"),),
        ("ignore-visibility-change", "deliver-twice"),
    ),
    Promise(
        "GRP-09",
        _BLOCKING,
        "The first of two messages in flight comes again when its shortened timeout ends, and the second does not.",
        (
            recorded(
                "sqs/test_sqs.py::test_fifo_message_group_visibility_after_change_message_visibility", "2025-11-17"
            ),
        ),
        ("ignore-visibility-change", "deliver-twice"),
    ),
    Promise(
        "GRP-11",
        _BLOCKING,
        "With all messages in flight of a group extended nothing of it comes; with none extended all come again in"
        " order.",
        (recorded("sqs/test_sqs.py::test_fifo_group_visibility_extends_with_change_message_visibility", "2025-11-19"),),
        ("ignore-visibility-change", "reverse-batch"),
    ),
    Promise(
        "GRP-12",
        _BLOCKING,
        "Giving back the second of two messages in flight releases nothing while the first is invisible.",
        (unverified("by GRP-10, which was recorded for a timeout that ends"),),
        ("ignore-visibility-change",),
    ),
    Promise(
        "GRP-15",
        _BLOCKING,
        "Messages of a blocked group count as visible, although they cannot be received.",
        (recorded("sqs/test_sqs.py::test_fifo_approximate_number_of_messages_not_visible", "2025-09-26"),),
        ("undercount-queue",),
    ),
    Promise(
        "SLU-37",
        _BLOCKING,
        "A later message of a group may be deleted before an earlier one; the others keep their order.",
        (documented(GUIDE + "FIFO-queues-understanding-logic.html"),),
        ("ignore-delete", "stretch-visibility"),
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
        "ORD-01",
        _ORDER,
        "After the visibility timeout the messages of a group come again in the order they came first.",
        (old("sqs/test_sqs.py::test_fifo_messages_in_order_after_timeout"),),
        ("stretch-visibility", "reverse-batch"),
    ),
    Promise(
        "ORD-02",
        _ORDER,
        "A message that comes again comes before younger ones of its group that were never received.",
        (
            old("sqs/test_sqs.py::test_fifo_messages_in_order_after_timeout"),
            old("sqs/test_sqs.py::test_fifo_receive_message_visibility_timeout_shared_in_group"),
        ),
        ("stretch-visibility", "reverse-batch"),
    ),
    Promise(
        "ORD-04",
        _ORDER,
        "With several producers the messages of a group come in the order of their sequence numbers, and so in the"
        " order of each producer.",
        (
            peer("SqsFifoTests FifoQueue_EnforcesMessageGroupOrdering"),
            old("sqs/test_sqs.py::test_fifo_sequence_number_increases"),
            documented(GUIDE + "FIFO-queues-message-order.html"),
        ),
        ("reverse-batch",),
    ),
    Promise(
        "ORD-05",
        _ORDER,
        "With a queue delay nothing comes before it has passed, and then everything in the order it was sent.",
        (old("sqs/test_sqs.py::test_fifo_queue_send_message_with_delay_on_queue_works"),),
        ("forget-attributes", "reverse-batch"),
    ),
    Promise(
        "RCV-17",
        _VISIBILITY,
        "A consumer that overruns its visibility timeout is not fenced: a second consumer gets the same message while"
        " the first still works on it.",
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
        ("hide-errors", "blur-errors"),
    ),
    Promise(
        "VIS-14",
        _VISIBILITY,
        "Every receive adds one to ApproximateReceiveCount; the time of the first receive stays.",
        (recorded("sqs/test_sqs.py::test_fifo_message_attributes", "2024-04-30"),),
        ("freeze-receive-count",),
    ),
    Promise(
        "VIS-02",
        _VISIBILITY,
        "On a standard queue a message is deleted also after its visibility timeout (comparison).",
        (recorded("sqs/test_sqs.py::test_delete_after_visibility_timeout", "2025-03-28"),),
        ("ignore-delete",),
    ),
    Promise(
        "VIS-04",
        _VISIBILITY,
        "A message received with a visibility timeout of 0 cannot be deleted with that handle.",
        (
            reported("https://github.com/aws/aws-sdk-js/issues/1750", "2026-11-20"),
            documented(GUIDE + "sqs-visibility-timeout.html"),
        ),
        ("hide-errors", "blur-errors"),
    ),
    Promise(
        "VIS-05",
        _VISIBILITY,
        "A handle older than another consumer's does not delete the message.",
        (documented(GUIDE + "sqs-visibility-timeout.html"),),
        ("hide-errors", "blur-errors"),
    ),
    Promise(
        "VIS-06",
        _VISIBILITY,
        "The visibility of a deleted message cannot be changed.",
        (old("sqs/test_sqs.py::test_change_visibility_on_deleted_message_raises_invalid_parameter_value"),),
        ("hide-errors", "blur-errors"),
    ),
    Promise(
        "VIS-07",
        _VISIBILITY,
        "Deleting with something that is not a receipt handle is refused; deleting twice is not.",
        (
            old("sqs/test_sqs.py::test_delete_message_with_illegal_receipt_handle"),
            old("sqs/test_sqs.py::test_delete_message_with_deleted_receipt_handle"),
        ),
        ("hide-errors", "blur-errors"),
    ),
    Promise(
        "VIS-08",
        _VISIBILITY,
        "On a standard queue a visibility change after the timeout is confirmed and does nothing (comparison).",
        (
            recorded(
                "sqs/test_sqs.py::test_change_message_visibility_after_visibility_timeout_expiration", "2024-04-30"
            ),
        ),
        ("withhold-changed",),
    ),
    Promise(
        "VIS-09",
        _VISIBILITY,
        "A changed visibility timeout holds for that receive only.",
        (
            old("sqs/test_sqs.py::test_change_message_visibility_not_permanent"),
            documented(API + "API_ChangeMessageVisibility.html"),
        ),
        ("sticky-visibility",),
    ),
    Promise(
        "VIS-10",
        _VISIBILITY,
        "A visibility timeout given to a receive holds for that receive only.",
        (old("sqs/test_sqs.py::test_receive_message_with_visibility_timeout_updates_timeout"),),
        ("ignore-receive-visibility", "sticky-receives"),
    ),
    Promise(
        "VIS-13",
        _VISIBILITY,
        "A visibility change that would hide a message for more than twelve hours from its receive is refused.",
        (
            reported("https://github.com/localstack/localstack/issues/3956", "2026-11-21"),
            documented(API + "API_ChangeMessageVisibility.html"),
        ),
        ("hide-errors", "blur-errors"),
    ),
    Promise(
        "SLU-36",
        _VISIBILITY,
        "A receive that gives no visibility timeout hides a message for the visibility timeout of the queue.",
        (documented(GUIDE + "sqs-visibility-timeout.html"),),
        ("forget-attributes",),
    ),
)
