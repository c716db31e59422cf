"""What holds of a message group: it blocks, it keeps its order, it waits for the visibility timeout."""

from contract_tests.promises.promise import Promise, api, asserted, guide, old, peer, recorded, reported, unverified

_GROUP_BLOCKING = {
    "GRP-01": Promise(
        "While a message of a group is in flight, no other message of that group is delivered to anyone.",
        (old("test_fifo_message_group_visibility"), guide("FIFO-queues-understanding-logic")),
        ("leak-group",),
    ),
    "SLU-01": Promise(
        "While one group is blocked, messages of other groups are delivered.",
        (old("test_fifo_message_group_visibility"), guide("FIFO-queues-understanding-logic")),
        ("withhold-other-groups",),
    ),
    "GRP-04": Promise(
        "A new message sent to a blocked group does not unblock it.",
        (old("test_fifo_message_group_visibility"),),
        ("leak-group",),
    ),
    "GRP-05": Promise(
        "Deleting the only message in flight of a group releases the group at once: a long poll that already waits"
        " gets the next message.",
        (old("test_fifo_message_group_visibility"),),
        ("ignore-delete", "deafen-polls"),
    ),
    "GRP-02": Promise(
        "When the visibility timeouts of a group's messages in flight end, every message of the group that is not"
        " deleted is delivered, in order.",
        (old("test_fifo_receive_message_visibility_timeout_shared_in_group"),),
        ("stretch-visibility", "reverse-redelivered"),
    ),
    "VIS-11": Promise(
        "Changing the visibility timeout of a message to 0 releases the message and its group at once.",
        (old("test_receive_terminate_visibility_timeout"),),
        ("ignore-visibility-change",),
    ),
    "GRP-13": Promise(
        "A message that stays invisible for long does not delay the redelivery of messages of other groups.",
        (guide("FIFO-queues-understanding-logic"),),
        ("stretch-visibility",),
    ),
    "GRP-10": Promise(
        "Messages behind an invisible message of their group are not delivered: if three are in flight and the second"
        " is extended, only the first comes again.",
        (recorded("test_fifo_group_visibility_extends_with_change_message_visibility", "2025-11-19"),),
        ("ignore-visibility-change",),
    ),
    "SND-20": Promise(
        "A standard queue accepts a message group id and does not block the group (comparison).",
        (recorded("test_fair_queue_with_message_group_id", "2025-08-18"), guide("sqs-fair-queues")),
        ("block-standard-queues",),
    ),
    "GRP-03": Promise(
        "A receive with a visibility timeout of 0 does not block its groups.",
        (old("test_fifo_receive_message_with_zero_visibility_timeout"),),
        ("block-zero-receives",),
    ),
    "GRP-06": Promise(
        "A group with two messages in flight is blocked until both are deleted.",
        (old("test_fifo_message_group_visibility_after_partial_delete"),),
        ("deliver-twice", "ignore-delete"),
    ),
    "GRP-07": Promise(
        "When all messages of a group in flight are deleted, the rest of the group is delivered, and so are the groups"
        " that waited, each in its order.",
        (old("test_fifo_message_group_visibility_after_delete"),),
        ("ignore-delete", "reverse-mixed"),
    ),
    "GRP-08": Promise(
        "When the first of two messages in flight is released, it is delivered again and the second is not.",
        (old("test_fifo_message_group_visibility_after_terminate_visibility_timeout"),),
        ("ignore-visibility-change", "deliver-twice"),
    ),
    "GRP-09": Promise(
        "When the shortened visibility timeout of the first of two messages in flight ends, it is delivered again and"
        " the second is not.",
        (asserted("test_fifo_message_group_visibility_after_change_message_visibility", "2025-11-17"),),
        ("ignore-visibility-change", "deliver-twice"),
    ),
    "GRP-11": Promise(
        "If every message in flight of a group is extended, none is delivered; if none is extended, all are delivered"
        " again, in order.",
        (recorded("test_fifo_group_visibility_extends_with_change_message_visibility", "2025-11-19"),),
        ("ignore-visibility-change", "reverse-redelivered"),
    ),
    "GRP-12": Promise(
        "Releasing the second of two messages in flight delivers nothing while the first is invisible.",
        (unverified("by GRP-10, which was recorded for a timeout that ends"),),
        ("ignore-visibility-change",),
    ),
    "GRP-15": Promise(
        "Messages of a blocked group count as visible, although they cannot be received.",
        (asserted("test_fifo_approximate_number_of_messages_not_visible", "2025-09-26"),),
        ("undercount-queue",),
    ),
    "SLU-37": Promise(
        "A later message of a group may be deleted before an earlier one; the others keep their order.",
        (guide("FIFO-queues-understanding-logic"),),
        ("ignore-delete", "stretch-visibility"),
    ),
}

_ORDER = {
    "RCV-16": Promise(
        "If the messages of a group are received and deleted one at a time, they come in the order they were sent.",
        (old("test_fifo_queue_send_multiple_messages_multiple_single_receives"),),
        ("swap-late-bodies",),
    ),
    "RCV-08": Promise(
        "A receive takes as many messages as it can from one group, in order, before it takes from another group.",
        (old("test_fifo_receive_message_group_id_ordering"), guide("FIFO-queues-understanding-logic")),
        ("reverse-mixed", "interleave-groups"),
    ),
    "SND-10": Promise(
        "Sequence numbers of a group rise with every send.",
        (old("test_fifo_sequence_number_increases"), api("SendMessage")),
        ("freeze-sequence-numbers",),
    ),
    "ORD-01": Promise(
        "After the visibility timeout, the messages of a group are delivered again in the same order.",
        (old("test_fifo_messages_in_order_after_timeout"),),
        ("stretch-visibility", "reverse-redelivered"),
    ),
    "ORD-02": Promise(
        "A redelivered message comes before later messages of its group that were never received.",
        (
            old("test_fifo_messages_in_order_after_timeout"),
            old("test_fifo_receive_message_visibility_timeout_shared_in_group"),
        ),
        ("stretch-visibility", "reverse-redelivered"),
    ),
    "ORD-04": Promise(
        "The messages of several producers to one group are delivered in the order of their sequence numbers, which"
        " keeps the order of each producer.",
        (
            peer("SqsFifoTests FifoQueue_EnforcesMessageGroupOrdering"),
            old("test_fifo_sequence_number_increases"),
            guide("FIFO-queues-message-order"),
        ),
        ("reverse-long",),
    ),
    "ORD-05": Promise(
        "A queue with a delay delivers nothing before the delay has passed, and then every message in the order it"
        " was sent.",
        (old("test_fifo_queue_send_message_with_delay_on_queue_works"),),
        ("forget-delay", "reverse-delayed", "shorten-delays"),
    ),
}

_VISIBILITY = {
    "RCV-17": Promise(
        "A consumer that overruns its visibility timeout is not fenced: a second consumer gets the same message while"
        " the first still works on it.",
        (old("test_fifo_messages_in_order_after_timeout"), guide("FIFO-queues-exactly-once-processing")),
        ("stretch-visibility",),
    ),
    "VIS-01": Promise(
        "Deleting with a handle whose visibility timeout has ended fails, and the message stays.",
        (recorded("test_fifo_delete_after_visibility_timeout", "2025-03-28"),),
        ("accept-deletes", "blur-deletes"),
    ),
    "VIS-14": Promise(
        "Every receive adds one to ApproximateReceiveCount; the time of the first receive stays.",
        (recorded("test_fifo_message_attributes", "2024-04-30"),),
        ("freeze-receive-count",),
    ),
    "VIS-02": Promise(
        "A standard queue deletes a message even after its visibility timeout (comparison).",
        (recorded("test_delete_after_visibility_timeout", "2025-03-28"),),
        ("ignore-delete",),
    ),
    "VIS-04": Promise(
        "A message received with a visibility timeout of 0 cannot be deleted with that handle.",
        (reported("https://github.com/aws/aws-sdk-js/issues/1750", "2026-11-20"), guide("sqs-visibility-timeout")),
        ("accept-deletes", "blur-deletes"),
    ),
    "VIS-05": Promise(
        "A receipt handle does not delete a message that another consumer has received since.",
        (api("ReceiveMessage"), api("DeleteMessage")),
        ("delete-by-any-handle",),
    ),
    "VIS-06": Promise(
        "The visibility of a deleted message cannot be changed.",
        (old("test_change_visibility_on_deleted_message_raises_invalid_parameter_value"),),
        ("accept-changes", "blur-changes"),
    ),
    "VIS-07": Promise(
        "Deleting with something that is not a receipt handle is refused; deleting twice is not.",
        (
            old("test_delete_message_with_illegal_receipt_handle"),
            old("test_delete_message_with_deleted_receipt_handle"),
        ),
        ("accept-deletes", "blur-deletes"),
    ),
    "VIS-08": Promise(
        "A standard queue accepts a visibility change after the visibility timeout, and the change has no effect"
        " (comparison).",
        (recorded("test_change_message_visibility_after_visibility_timeout_expiration", "2024-04-30"),),
        ("withhold-changed",),
    ),
    "VIS-09": Promise(
        "A changed visibility timeout holds for that receive only.",
        (old("test_change_message_visibility_not_permanent"), api("ChangeMessageVisibility")),
        ("sticky-visibility",),
    ),
    "VIS-10": Promise(
        "A visibility timeout given to a receive holds for that receive only.",
        (old("test_receive_message_with_visibility_timeout_updates_timeout"),),
        ("sticky-receives",),
    ),
    "VIS-28": Promise(
        "A message whose visibility timeout was extended can be deleted with its handle until the extension ends.",
        (recorded("test_fifo_delete_after_visibility_timeout_extended", "2025-10-05"),),
        ("expire-changed-handles", "ignore-visibility-change"),
    ),
    "VIS-29": Promise(
        "A visibility change that comes after the visibility timeout does not hide the message from other consumers.",
        (unverified("by VIS-08 and ChangeMessageVisibility: it 'might result in an error'"),),
        ("withhold-changed",),
    ),
    "VIS-30": Promise(
        "A changed visibility timeout is counted from the change, not from the receive.",
        (api("ChangeMessageVisibility"),),
        ("hasten-changes", "ignore-visibility-change"),
    ),
    "VIS-13": Promise(
        "A visibility change that would hide a message until more than twelve hours after its receive is refused.",
        (
            reported("https://github.com/localstack/localstack/issues/3956", "2026-11-21"),
            api("ChangeMessageVisibility"),
        ),
        ("accept-changes", "blur-changes"),
    ),
    "SLU-36": Promise(
        "A receive without a visibility timeout hides its messages for the visibility timeout of the queue.",
        (guide("sqs-visibility-timeout"),),
        ("forget-visibility",),
    ),
}

AREAS = {
    "Group blocking": _GROUP_BLOCKING,
    "Order": _ORDER,
    "Visibility": _VISIBILITY,
}
