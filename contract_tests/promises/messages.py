"""What holds of one message: it is sent, deduplicated, received, purged."""

from contract_tests.promises.promise import (
    Promise,
    api,
    asserted,
    guide,
    old,
    peer,
    recorded,
    reported,
    unverified,
    verified,
)

_SAME_AS_SHA256 = "moto tests/test_sqs/test_sqs.py::test_fifo_queue_send_deduplicationid_same_as_sha256_of_old_message"

_DEDUPLICATION = {
    "DED-01": Promise(
        "A second send with the same deduplication id inside the window is accepted and not delivered, even after the"
        " first was received and deleted.",
        (recorded("test_fifo_deduplication_arrives_once_after_delete", "2024-04-30"),),
        ("forget-deduplication",),
    ),
    "DED-08": Promise(
        "A send with the same deduplication id is a new message after the window, and a repeat inside the window does"
        " not extend it.",
        (asserted("test_deduplication_interval", "2024-05-29"), guide("using-messagededuplicationid-property")),
        ("swallow-repeats", "forget-deduplication"),
    ),
    "RCV-05": Promise(
        "With content-based deduplication the deduplication id is the SHA-256 of the body, and the same body is one"
        " message.",
        (recorded("test_fifo_message_attributes", "2024-04-30"), guide("FIFO-queues-exactly-once-processing")),
        ("forget-deduplication",),
    ),
    "DED-10": Promise(
        "Content-based deduplication looks at the body only: other attributes do not make another message.",
        (api("SendMessage"),),
        ("forget-deduplication",),
    ),
    "DED-11": Promise(
        "An explicit deduplication id overrides the content: one body with two ids is two messages.",
        (api("SendMessage"),),
        ("swallow-bodies",),
    ),
    "SLU-02": Promise(
        "With DeduplicationScope `queue`, one deduplication id in two groups is one message.",
        (api("CreateQueue"),),
        ("forget-deduplication",),
    ),
    "DED-04": Promise(
        "With DeduplicationScope `messageGroup`, one deduplication id in two groups is two messages, and in one group"
        " it is one message.",
        (recorded("test_fifo_high_throughput_ordering", "2024-04-30"), api("CreateQueue")),
        ("swallow-repeats", "forget-deduplication"),
    ),
    "SLU-03": Promise(
        "With DeduplicationScope `messageGroup`, sends to groups A, B and A again with one id make two messages.",
        (api("CreateQueue"),),
        ("forget-deduplication",),
    ),
    "DED-09": Promise(
        "A repeated send returns the message id of the first, and the first body is delivered.",
        (guide("FIFO-queues-exactly-once-processing"),),
        ("forget-deduplication",),
    ),
    "DED-14": Promise(
        "Purging a queue forgets its deduplication ids.",
        (old("test_purge_queue_clears_fifo_deduplication_cache"),),
        ("swallow-repeats",),
    ),
    "DED-05": Promise(
        "DeduplicationScope `messageGroup` works with the throughput limit left at `perQueue`.",
        (recorded("test_sqs_fifo_message_group_scope_no_throughput_setting", "2024-05-24"),),
        ("forget-scope", "swallow-repeats"),
    ),
    "DED-06": Promise(
        "A queue reports a scope that was changed to `messageGroup` after creation, and still deduplicates across"
        " groups.",
        (recorded("test_fifo_change_to_high_throughput_after_creation", "2025-08-19"),),
        ("ignore-attribute-changes", "forget-after-change"),
    ),
    "DED-07": Promise(
        "A queue reports a scope that was changed to `queue` after creation, and still deduplicates inside each group.",
        (recorded("test_fifo_change_to_regular_throughput_after_creation", "2025-08-19"),),
        ("ignore-attribute-changes", "swallow-repeats", "forget-after-change"),
    ),
    "DED-12": Promise(
        "An explicit deduplication id equal to the SHA-256 of a sent body makes a repeat.",
        (api("SendMessage"), unverified(_SAME_AS_SHA256)),
        ("salt-deduplication-ids",),
    ),
    "DED-13": Promise(
        "Inside the window, a send with the deduplication id of a message that was moved to the DLQ is a repeat.",
        (api("SendMessage"), unverified("softwaremill/elasticmq FifoDeduplicationTests")),
        ("forget-deduplication",),
    ),
    "DED-15": Promise(
        "A repeated send returns the message id of the first message even after that message was deleted.",
        (api("SendMessage"),),
        ("forget-deduplication",),
    ),
    "DED-16": Promise(
        "A dead letter that is sent again inside the window is delivered only with a new deduplication id.",
        (
            reported("https://github.com/garryyao/replay-aws-dlq", "2026-11-20"),
            guide("sqs-configure-dead-letter-queue-redrive"),
        ),
        ("forget-deduplication", "swallow-bodies"),
    ),
    "SLU-45": Promise(
        "A repeated send returns the sequence number of the first.",
        (unverified("softwaremill/elasticmq FifoDeduplicationTests, and by SNS-18"),),
        ("forget-deduplication",),
    ),
}

_SENDING = {
    "SND-01": Promise(
        "A send without a deduplication id to a queue without content-based deduplication is refused.",
        (recorded("test_posting_to_fifo_requires_deduplicationid_group_id", "2024-04-30"),),
        ("accept-sends", "blur-sends"),
    ),
    "SND-02": Promise(
        "A send without a message group id is refused.",
        (recorded("test_posting_to_fifo_requires_deduplicationid_group_id", "2024-04-30"),),
        ("accept-sends", "blur-sends"),
    ),
    "SNS-09": Promise(
        "A publish to a FIFO topic without a message group id is refused.",
        (recorded("sns/test_sns.py::test_validations_for_fifo", "2025-08-18"),),
        ("accept-publishes", "blur-publishes"),
    ),
    "SND-03": Promise(
        "A deduplication id that is empty, too long or has a space is refused.",
        (recorded("test_message_deduplication_id_invalid", "2025-07-30"),),
        ("accept-sends", "blur-sends"),
    ),
    "SND-04": Promise(
        "A deduplication id of 128 letters, digits and punctuation marks is accepted.",
        (asserted("test_message_deduplication_id_success", "2025-07-30"),),
        ("shorten-ids",),
    ),
    "SND-05": Promise(
        "A message group id that is empty, too long or has a space is refused.",
        (
            recorded("test_send_message_to_standard_queue_with_invalid_message_group_id", "2025-07-30"),
            asserted("test_message_group_id_too_long", "2024-04-30"),
        ),
        ("accept-sends", "blur-sends"),
    ),
    "SND-06": Promise(
        "A send to a FIFO queue with a delay of its own is refused.",
        (
            recorded("test_fifo_queue_send_message_with_delay_seconds_fails", "2024-04-30"),
            verified("test_sqs/test_sqs.py::test_send_message_delay_seconds_validation"),
        ),
        ("accept-sends", "blur-sends"),
    ),
    "SND-09": Promise(
        "A changed delay of a FIFO queue also applies to messages already sent.",
        (guide("sqs-delay-queues"), api("SetQueueAttributes")),
        ("ignore-attribute-changes", "forget-delay"),
    ),
    "SND-11": Promise(
        "Message id, group, deduplication id and sequence number are those of the send, at every receive.",
        (recorded("test_fifo_message_attributes", "2024-04-30"),),
        ("change-message-ids", "renumber-messages", "misnumber-sends"),
    ),
    "SND-12": Promise(
        "An empty body is refused.",
        (recorded("test_send_empty_message", "2025-09-22"),),
        ("accept-sends", "blur-sends"),
    ),
    "SND-14": Promise(
        "A body longer than the queue's MaximumMessageSize is refused.",
        (recorded("test_send_message_with_updated_maximum_message_size", "2024-04-30"),),
        ("accept-sends", "blur-sends", "forget-size"),
    ),
    "SND-32": Promise(
        "Name, type and value of message attributes count towards the size of a message.",
        (guide("sqs-message-metadata"),),
        ("strip-sent-attributes",),
    ),
    "SND-33": Promise(
        "The trace header does not count towards the size of a message.",
        (api("SendMessage"),),
        ("lose-trace",),
    ),
    "SND-34": Promise(
        "A send to a FIFO queue with a delay of 0 is accepted, and the delay of the queue applies.",
        (recorded("test_fifo_queue_send_message_with_zero_delay_defaults_to_queue_delay", "2025-07-31"),),
        ("forget-delay",),
    ),
    "SND-15": Promise(
        "A body with a character that XML does not allow is refused; tab, line feed, carriage return and the ends of"
        " the allowed ranges arrive unchanged.",
        (old("test_send_message_with_invalid_payload_characters"), api("SendMessage")),
        ("accept-sends", "flatten-bodies"),
    ),
    "SND-16": Promise(
        "A message attribute of type String without a value is refused.",
        (recorded("test_send_message_with_empty_string_attribute", "2024-04-30"),),
        ("accept-sends", "blur-sends"),
    ),
    "SND-17": Promise(
        "A message with more than ten message attributes is refused.",
        (guide("sqs-message-metadata"), unverified("Inqnuam/local-aws-sqs test")),
        ("accept-sends", "drop-message-attributes"),
    ),
    "SND-18": Promise(
        "The only system attribute a sender may set is AWSTraceHeader.",
        (peer("commit 3b6c1da"), api("SendMessage")),
        ("accept-sends", "blur-sends", "lose-trace"),
    ),
    "SLU-34": Promise(
        "The trace header of a send arrives as a system attribute.",
        (api("SendMessage"), peer("commit 3b6c1da")),
        ("lose-trace",),
    ),
    "SLU-35": Promise(
        "Send and receive state the MD5 of the body and of the message attributes that arrive, which are those sent.",
        (api("SendMessage"), api("ReceiveMessage")),
        ("blank-checksums", "corrupt-bodies", "drop-message-attributes"),
    ),
    "SND-21": Promise(
        "A send whose answer was lost can be repeated with its deduplication id: one message comes.",
        (guide("FIFO-queues-exactly-once-processing"), guide("using-messagededuplicationid-property")),
        ("forget-deduplication",),
    ),
    "SLU-40": Promise(
        "Message attributes of every type arrive as they were sent.",
        (guide("sqs-message-metadata"),),
        ("drop-message-attributes",),
    ),
    "SND-36": Promise(
        "A message attribute with a malformed name, or one of more than 256 characters, is refused.",
        (guide("sqs-message-metadata"),),
        ("accept-sends", "strip-sent-attributes"),
    ),
    "SLU-41": Promise(
        "Names of message attributes that AWS reserves are refused.",
        (guide("sqs-message-metadata"),),
        ("accept-sends",),
    ),
}

_PURGE = {
    "PUR-02": Promise(
        "A purge removes the waiting messages and the messages in flight.",
        (old("test_purge_queue_deletes_inflight_messages"),),
        ("ignore-purge",),
    ),
    "PUR-16": Promise(
        "A purge removes messages whose delay has not passed.",
        (old("test_purge_queue_deletes_delayed_messages"),),
        ("ignore-purge",),
    ),
    "PUR-01": Promise(
        "A second purge of a queue within 60 seconds is refused.",
        (recorded("test_successive_purge_calls_fail", "2024-04-30"),),
        ("accept-purges", "blur-purges"),
    ),
    "PUR-05": Promise(
        "A purge releases the group of a message in flight.",
        (unverified("by PUR-02 and DED-14"),),
        ("ignore-purge",),
    ),
}

AREAS = {
    "Deduplication": _DEDUPLICATION,
    "Sending": _SENDING,
    "Purge": _PURGE,
}
