"""What holds of one message: it is sent, deduplicated, received, purged."""

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
    verified,
)

_SAME_AS_SHA256 = "moto tests/test_sqs/test_sqs.py::test_fifo_queue_send_deduplicationid_same_as_sha256_of_old_message"

_DEDUPLICATION = area(
    "Deduplication",
    Promise(
        "DED-01",
        "A second send with the same deduplication id inside the window is accepted and not delivered, even after the"
        " first was received and deleted.",
        (recorded("test_fifo_deduplication_arrives_once_after_delete", "2024-04-30"),),
        ("forget-deduplication",),
    ),
    Promise(
        "DED-08",
        "A send with the same deduplication id is a new message after the window, and a repeat inside the window does"
        " not extend it.",
        (asserted("test_deduplication_interval", "2024-05-29"), guide("using-messagededuplicationid-property")),
        ("swallow-repeats", "forget-deduplication"),
    ),
    Promise(
        "RCV-05",
        "With content-based deduplication the deduplication id is the SHA-256 of the body, and the same body is one"
        " message.",
        (recorded("test_fifo_message_attributes", "2024-04-30"), guide("FIFO-queues-exactly-once-processing")),
        ("forget-deduplication",),
    ),
    Promise(
        "DED-10",
        "Content-based deduplication looks at the body only: other attributes do not make another message.",
        (api("SendMessage"),),
        ("forget-deduplication",),
    ),
    Promise(
        "DED-11",
        "An explicit deduplication id overrides the content: one body with two ids is two messages.",
        (api("SendMessage"),),
        ("swallow-bodies",),
    ),
    Promise(
        "SLU-02",
        "With DeduplicationScope `queue`, one deduplication id in two groups is one message.",
        (api("CreateQueue"),),
        ("forget-deduplication",),
    ),
    Promise(
        "DED-04",
        "With DeduplicationScope `messageGroup`, one deduplication id in two groups is two messages, and in one group"
        " it is one message.",
        (recorded("test_fifo_high_throughput_ordering", "2024-04-30"), api("CreateQueue")),
        ("swallow-repeats", "forget-deduplication"),
    ),
    Promise(
        "SLU-03",
        "With DeduplicationScope `messageGroup`, sends to groups A, B and A again with one id make two messages.",
        (api("CreateQueue"),),
        ("forget-deduplication",),
    ),
    Promise(
        "DED-09",
        "A repeated send returns the message id of the first, and the first body is delivered.",
        (guide("FIFO-queues-exactly-once-processing"),),
        ("forget-deduplication",),
    ),
    Promise(
        "DED-14",
        "Purging a queue forgets its deduplication ids.",
        (old("test_purge_queue_clears_fifo_deduplication_cache"),),
        ("swallow-repeats",),
    ),
    Promise(
        "DED-05",
        "DeduplicationScope `messageGroup` works with the throughput limit left at `perQueue`.",
        (recorded("test_sqs_fifo_message_group_scope_no_throughput_setting", "2024-05-24"),),
        ("forget-scope", "swallow-repeats"),
    ),
    Promise(
        "DED-06",
        "A queue reports a scope that was changed to `messageGroup` after creation, and still deduplicates across"
        " groups.",
        (recorded("test_fifo_change_to_high_throughput_after_creation", "2025-08-19"),),
        ("ignore-attribute-changes", "forget-after-change"),
    ),
    Promise(
        "DED-07",
        "A queue reports a scope that was changed to `queue` after creation, and still deduplicates inside each group.",
        (recorded("test_fifo_change_to_regular_throughput_after_creation", "2025-08-19"),),
        ("ignore-attribute-changes", "swallow-repeats", "forget-after-change"),
    ),
    Promise(
        "DED-12",
        "An explicit deduplication id equal to the SHA-256 of a sent body makes a repeat.",
        (api("SendMessage"), unverified(_SAME_AS_SHA256)),
        ("salt-deduplication-ids",),
    ),
    Promise(
        "DED-13",
        "Inside the window, a send with the deduplication id of a message that was moved to the DLQ is a repeat.",
        (api("SendMessage"), unverified("softwaremill/elasticmq FifoDeduplicationTests")),
        ("forget-deduplication",),
    ),
    Promise(
        "DED-15",
        "A repeated send returns the message id of the first message even after that message was deleted.",
        (api("SendMessage"),),
        ("forget-deduplication",),
    ),
    Promise(
        "DED-16",
        "A dead letter that is sent again inside the window is delivered only with a new deduplication id.",
        (
            reported("https://github.com/garryyao/replay-aws-dlq", "2026-11-20"),
            guide("sqs-configure-dead-letter-queue-redrive"),
        ),
        ("forget-deduplication", "swallow-bodies"),
    ),
    Promise(
        "SLU-45",
        "A repeated send returns the sequence number of the first.",
        (unverified("softwaremill/elasticmq FifoDeduplicationTests, and by SNS-18"),),
        ("forget-deduplication",),
    ),
)

_SENDING = area(
    "Sending",
    Promise(
        "SND-01",
        "A send without a deduplication id to a queue without content-based deduplication is refused.",
        (recorded("test_posting_to_fifo_requires_deduplicationid_group_id", "2024-04-30"),),
        ("accept-sends", "blur-sends"),
    ),
    Promise(
        "SND-02",
        "A send without a message group id is refused.",
        (recorded("test_posting_to_fifo_requires_deduplicationid_group_id", "2024-04-30"),),
        ("accept-sends", "blur-sends"),
    ),
    Promise(
        "SNS-09",
        "A publish to a FIFO topic without a message group id is refused.",
        (recorded("sns/test_sns.py::test_validations_for_fifo", "2025-08-18"),),
        ("accept-publishes", "blur-publishes"),
    ),
    Promise(
        "SND-03",
        "A deduplication id that is empty, too long or has a space is refused.",
        (recorded("test_message_deduplication_id_invalid", "2025-07-30"),),
        ("accept-sends", "blur-sends"),
    ),
    Promise(
        "SND-04",
        "A deduplication id of 128 letters, digits and punctuation marks is accepted.",
        (asserted("test_message_deduplication_id_success", "2025-07-30"),),
        ("shorten-ids",),
    ),
    Promise(
        "SND-05",
        "A message group id that is empty, too long or has a space is refused.",
        (
            recorded("test_send_message_to_standard_queue_with_invalid_message_group_id", "2025-07-30"),
            asserted("test_message_group_id_too_long", "2024-04-30"),
        ),
        ("accept-sends", "blur-sends"),
    ),
    Promise(
        "SND-06",
        "A send to a FIFO queue with a delay of its own is refused.",
        (
            recorded("test_fifo_queue_send_message_with_delay_seconds_fails", "2024-04-30"),
            verified("test_sqs/test_sqs.py::test_send_message_delay_seconds_validation"),
        ),
        ("accept-sends", "blur-sends"),
    ),
    Promise(
        "SND-09",
        "A changed delay of a FIFO queue also applies to messages already sent.",
        (guide("sqs-delay-queues"), api("SetQueueAttributes")),
        ("ignore-attribute-changes", "forget-delay"),
    ),
    Promise(
        "SND-11",
        "Message id, group, deduplication id and sequence number are those of the send, at every receive.",
        (recorded("test_fifo_message_attributes", "2024-04-30"),),
        ("change-message-ids", "renumber-messages", "misnumber-sends"),
    ),
    Promise(
        "SND-12",
        "An empty body is refused.",
        (recorded("test_send_empty_message", "2025-09-22"),),
        ("accept-sends", "blur-sends"),
    ),
    Promise(
        "SND-14",
        "A body longer than the queue's MaximumMessageSize is refused.",
        (recorded("test_send_message_with_updated_maximum_message_size", "2024-04-30"),),
        ("accept-sends", "blur-sends", "forget-size"),
    ),
    Promise(
        "SND-32",
        "Name, type and value of message attributes count towards the size of a message.",
        (guide("sqs-message-metadata"),),
        ("strip-sent-attributes",),
    ),
    Promise(
        "SND-33",
        "The trace header does not count towards the size of a message.",
        (api("SendMessage"),),
        ("lose-trace",),
    ),
    Promise(
        "SND-34",
        "A send to a FIFO queue with a delay of 0 is accepted, and the delay of the queue applies.",
        (recorded("test_fifo_queue_send_message_with_zero_delay_defaults_to_queue_delay", "2025-07-31"),),
        ("forget-delay",),
    ),
    Promise(
        "SND-15",
        "A body with a character that XML does not allow is refused; tab, line feed, carriage return and the ends of"
        " the allowed ranges arrive unchanged.",
        (old("test_send_message_with_invalid_payload_characters"), api("SendMessage")),
        ("accept-sends", "flatten-bodies"),
    ),
    Promise(
        "SND-16",
        "A message attribute of type String without a value is refused.",
        (recorded("test_send_message_with_empty_string_attribute", "2024-04-30"),),
        ("accept-sends", "blur-sends"),
    ),
    Promise(
        "SND-17",
        "A message with more than ten message attributes is refused.",
        (guide("sqs-message-metadata"), unverified("Inqnuam/local-aws-sqs test")),
        ("accept-sends", "drop-message-attributes"),
    ),
    Promise(
        "SND-18",
        "The only system attribute a sender may set is AWSTraceHeader.",
        (peer("commit 3b6c1da"), api("SendMessage")),
        ("accept-sends", "blur-sends", "lose-trace"),
    ),
    Promise(
        "SLU-34",
        "The trace header of a send arrives as a system attribute.",
        (api("SendMessage"), peer("commit 3b6c1da")),
        ("lose-trace",),
    ),
    Promise(
        "SLU-35",
        "Send and receive state the MD5 of the body and of the message attributes that arrive, which are those sent.",
        (api("SendMessage"), api("ReceiveMessage")),
        ("blank-checksums", "corrupt-bodies", "drop-message-attributes"),
    ),
    Promise(
        "SND-21",
        "A send whose answer was lost can be repeated with its deduplication id: one message comes.",
        (guide("FIFO-queues-exactly-once-processing"), guide("using-messagededuplicationid-property")),
        ("forget-deduplication",),
    ),
    Promise(
        "SLU-40",
        "Message attributes of every type arrive as they were sent.",
        (guide("sqs-message-metadata"),),
        ("drop-message-attributes",),
    ),
    Promise(
        "SND-36",
        "A message attribute with a malformed name, or one of more than 256 characters, is refused.",
        (guide("sqs-message-metadata"),),
        ("accept-sends", "strip-sent-attributes"),
    ),
    Promise(
        "SLU-41",
        "Names of message attributes that AWS reserves are refused.",
        (guide("sqs-message-metadata"),),
        ("accept-sends",),
    ),
)

_PURGE = area(
    "Purge",
    Promise(
        "PUR-02",
        "A purge removes the waiting messages and the messages in flight.",
        (old("test_purge_queue_deletes_inflight_messages"),),
        ("ignore-purge",),
    ),
    Promise(
        "PUR-16",
        "A purge removes messages whose delay has not passed.",
        (old("test_purge_queue_deletes_delayed_messages"),),
        ("ignore-purge",),
    ),
    Promise(
        "PUR-01",
        "A second purge of a queue within 60 seconds is refused.",
        (recorded("test_successive_purge_calls_fail", "2024-04-30"),),
        ("accept-purges", "blur-purges"),
    ),
    Promise(
        "PUR-05",
        "A purge releases the group of a message in flight.",
        (unverified("by PUR-02 and DED-14"),),
        ("ignore-purge",),
    ),
)

PROMISES = _DEDUPLICATION + _SENDING + _PURGE
