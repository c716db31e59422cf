"""What holds of a message group: it blocks, it keeps its order, it waits for the visibility timeout."""

from contract_tests.promises.promise import (
    Promise,
    api,
    area,
    asserted,
    guide,
    old,
    peer,
    recorded,
    reported,
    unverified,
)

_GROUP_BLOCKING = area(
    "Group blocking",
    Promise(
        "GRP-01",
        "While a message of a group is in flight, no other message of that group is delivered to anyone.",
        (old("test_fifo_message_group_visibility"), guide("FIFO-queues-understanding-logic")),
        ("leak-group",),
    ),
    Promise(
        "SLU-01",
        "While one group is blocked, messages of other groups are delivered.",
        (old("test_fifo_message_group_visibility"), guide("FIFO-queues-understanding-logic")),
        ("withhold-other-groups",),
    ),
    Promise(
        "GRP-04",
        "A new message sent to a blocked group does not unblock it.",
        (old("test_fifo_message_group_visibility"),),
        ("leak-group",),
    ),
    Promise(
        "GRP-05",
        "Deleting the only message in flight of a group releases the group at once: a long poll that already waits"
        " gets the next message.",
        (old("test_fifo_message_group_visibility"),),
        ("ignore-delete", "deafen-polls"),
    ),
    Promise(
        "GRP-02",
        "When the visibility timeouts of a group's messages in flight end, every message of the group that is not"
        " deleted is delivered, in order.",
        (old("test_fifo_receive_message_visibility_timeout_shared_in_group"),),
        ("stretch-visibility", "reverse-redelivered"),
    ),
    Promise(
        "VIS-11",
        "Changing the visibility timeout of a message to 0 releases the message and its group at once.",
        (old("test_receive_terminate_visibility_timeout"),),
        ("ignore-visibility-change",),
    ),
    Promise(
        "GRP-13",
        "A message that stays invisible for long does not delay the redelivery of messages of other groups.",
        (guide("FIFO-queues-understanding-logic"),),
        ("stretch-visibility",),
    ),
    Promise(
        "GRP-10",
        "Messages behind an invisible message of their group are not delivered: if three are in flight and the second"
        " is extended, only the first comes again.",
        (recorded("test_fifo_group_visibility_extends_with_change_message_visibility", "2025-11-19"),),
        ("ignore-visibility-change",),
    ),
    Promise(
        "SND-20",
        "A standard queue accepts a message group id and does not block the group (comparison).",
        (recorded("test_fair_queue_with_message_group_id", "2025-08-18"), guide("sqs-fair-queues")),
        ("block-standard-queues",),
    ),
    Promise(
        "GRP-03",
        "A receive with a visibility timeout of 0 does not block its groups.",
        (old("test_fifo_receive_message_with_zero_visibility_timeout"),),
        ("block-zero-receives",),
    ),
    Promise(
        "GRP-06",
        "A group with two messages in flight is blocked until both are deleted.",
        (old("test_fifo_message_group_visibility_after_partial_delete"),),
        ("deliver-twice", "ignore-delete"),
    ),
    Promise(
        "GRP-07",
        "When all messages of a group in flight are deleted, the rest of the group is delivered, and so are the groups"
        " that waited, each in its order.",
        (old("test_fifo_message_group_visibility_after_delete"),),
        ("ignore-delete", "reverse-mixed"),
    ),
    Promise(
        "GRP-08",
        "When the first of two messages in flight is released, it is delivered again and the second is not.",
        (old("test_fifo_message_group_visibility_after_terminate_visibility_timeout"),),
        ("ignore-visibility-change", "deliver-twice"),
    ),
    Promise(
        "GRP-09",
        "When the shortened visibility timeout of the first of two messages in flight ends, it is delivered again and"
        " the second is not.",
        (asserted("test_fifo_message_group_visibility_after_change_message_visibility", "2025-11-17"),),
        ("ignore-visibility-change", "deliver-twice"),
    ),
    Promise(
        "GRP-11",
        "If every message in flight of a group is extended, none is delivered; if none is extended, all are delivered"
        " again, in order.",
        (recorded("test_fifo_group_visibility_extends_with_change_message_visibility", "2025-11-19"),),
        ("ignore-visibility-change", "reverse-redelivered"),
    ),
    Promise(
        "GRP-12",
        "Releasing the second of two messages in flight delivers nothing while the first is invisible.",
        (unverified("by GRP-10, which was recorded for a timeout that ends"),),
        ("ignore-visibility-change",),
    ),
    Promise(
        "GRP-15",
        "Messages of a blocked group count as visible, although they cannot be received.",
        (asserted("test_fifo_approximate_number_of_messages_not_visible", "2025-09-26"),),
        ("undercount-queue",),
    ),
    Promise(
        "SLU-37",
        "A later message of a group may be deleted before an earlier one; the others keep their order.",
        (guide("FIFO-queues-understanding-logic"),),
        ("ignore-delete", "stretch-visibility"),
    ),
)

_ORDER = area(
    "Order",
    Promise(
        "RCV-16",
        "If the messages of a group are received and deleted one at a time, they come in the order they were sent.",
        (old("test_fifo_queue_send_multiple_messages_multiple_single_receives"),),
        ("swap-late-bodies",),
    ),
    Promise(
        "RCV-08",
        "A receive takes as many messages as it can from one group, in order, before it takes from another group.",
        (old("test_fifo_receive_message_group_id_ordering"), guide("FIFO-queues-understanding-logic")),
        ("reverse-mixed", "interleave-groups"),
    ),
    Promise(
        "SND-10",
        "Sequence numbers of a group rise with every send.",
        (old("test_fifo_sequence_number_increases"), api("SendMessage")),
        ("freeze-sequence-numbers",),
    ),
    Promise(
        "ORD-01",
        "After the visibility timeout, the messages of a group are delivered again in the same order.",
        (old("test_fifo_messages_in_order_after_timeout"),),
        ("stretch-visibility", "reverse-redelivered"),
    ),
    Promise(
        "ORD-02",
        "A redelivered message comes before later messages of its group that were never received.",
        (
            old("test_fifo_messages_in_order_after_timeout"),
            old("test_fifo_receive_message_visibility_timeout_shared_in_group"),
        ),
        ("stretch-visibility", "reverse-redelivered"),
    ),
    Promise(
        "ORD-04",
        "The messages of several producers to one group are delivered in the order of their sequence numbers, which"
        " keeps the order of each producer.",
        (
            peer("SqsFifoTests FifoQueue_EnforcesMessageGroupOrdering"),
            old("test_fifo_sequence_number_increases"),
            guide("FIFO-queues-message-order"),
        ),
        ("reverse-long",),
    ),
    Promise(
        "ORD-05",
        "A queue with a delay delivers nothing before the delay has passed, and then every message in the order it"
        " was sent.",
        (old("test_fifo_queue_send_message_with_delay_on_queue_works"),),
        ("forget-delay", "reverse-delayed", "shorten-delays"),
    ),
)

_VISIBILITY = area(
    "Visibility",
    Promise(
        "RCV-17",
        "A consumer that overruns its visibility timeout is not fenced: a second consumer gets the same message while"
        " the first still works on it.",
        (old("test_fifo_messages_in_order_after_timeout"), guide("FIFO-queues-exactly-once-processing")),
        ("stretch-visibility",),
    ),
    Promise(
        "VIS-01",
        "Deleting with a handle whose visibility timeout has ended fails, and the message stays.",
        (recorded("test_fifo_delete_after_visibility_timeout", "2025-03-28"),),
        ("accept-deletes", "blur-deletes"),
    ),
    Promise(
        "VIS-14",
        "Every receive adds one to ApproximateReceiveCount; the time of the first receive stays.",
        (recorded("test_fifo_message_attributes", "2024-04-30"),),
        ("freeze-receive-count",),
    ),
    Promise(
        "VIS-02",
        "A standard queue deletes a message even after its visibility timeout (comparison).",
        (recorded("test_delete_after_visibility_timeout", "2025-03-28"),),
        ("ignore-delete",),
    ),
    Promise(
        "VIS-04",
        "A message received with a visibility timeout of 0 cannot be deleted with that handle.",
        (reported("https://github.com/aws/aws-sdk-js/issues/1750", "2026-11-20"), guide("sqs-visibility-timeout")),
        ("accept-deletes", "blur-deletes"),
    ),
    Promise(
        "VIS-05",
        "A receipt handle does not delete a message that another consumer has received since.",
        (api("ReceiveMessage"), api("DeleteMessage")),
        ("delete-by-any-handle",),
    ),
    Promise(
        "VIS-06",
        "The visibility of a deleted message cannot be changed.",
        (old("test_change_visibility_on_deleted_message_raises_invalid_parameter_value"),),
        ("accept-changes", "blur-changes"),
    ),
    Promise(
        "VIS-07",
        "Deleting with something that is not a receipt handle is refused; deleting twice is not.",
        (
            old("test_delete_message_with_illegal_receipt_handle"),
            old("test_delete_message_with_deleted_receipt_handle"),
        ),
        ("accept-deletes", "blur-deletes"),
    ),
    Promise(
        "VIS-08",
        "A standard queue accepts a visibility change after the visibility timeout, and the change has no effect"
        " (comparison).",
        (recorded("test_change_message_visibility_after_visibility_timeout_expiration", "2024-04-30"),),
        ("withhold-changed",),
    ),
    Promise(
        "VIS-09",
        "A changed visibility timeout holds for that receive only.",
        (old("test_change_message_visibility_not_permanent"), api("ChangeMessageVisibility")),
        ("sticky-visibility",),
    ),
    Promise(
        "VIS-10",
        "A visibility timeout given to a receive holds for that receive only.",
        (old("test_receive_message_with_visibility_timeout_updates_timeout"),),
        ("sticky-receives",),
    ),
    Promise(
        "VIS-28",
        "A message whose visibility timeout was extended can be deleted with its handle until the extension ends.",
        (recorded("test_fifo_delete_after_visibility_timeout_extended", "2025-10-05"),),
        ("expire-changed-handles", "ignore-visibility-change"),
    ),
    Promise(
        "VIS-29",
        "A visibility change that comes after the visibility timeout does not hide the message from other consumers.",
        (unverified("by VIS-08 and ChangeMessageVisibility: it 'might result in an error'"),),
        ("withhold-changed",),
    ),
    Promise(
        "VIS-30",
        "A changed visibility timeout is counted from the change, not from the receive.",
        (api("ChangeMessageVisibility"),),
        ("hasten-changes", "ignore-visibility-change"),
    ),
    Promise(
        "VIS-13",
        "A visibility change that would hide a message until more than twelve hours after its receive is refused.",
        (
            reported("https://github.com/localstack/localstack/issues/3956", "2026-11-21"),
            api("ChangeMessageVisibility"),
        ),
        ("accept-changes", "blur-changes"),
    ),
    Promise(
        "SLU-36",
        "A receive without a visibility timeout hides its messages for the visibility timeout of the queue.",
        (guide("sqs-visibility-timeout"),),
        ("forget-visibility",),
    ),
)

PROMISES = _GROUP_BLOCKING + _ORDER + _VISIBILITY
