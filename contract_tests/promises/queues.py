"""What holds of a queue and its calls: attributes, batches, receives, tags, limits, errors."""

from contract_tests.promises.promise import (
    Promise,
    api,
    asserted,
    documented,
    guide,
    old,
    peer,
    recorded,
    reported,
    unverified,
    verified,
)

_QUEUE_ATTRIBUTES = {
    "CRE-01": Promise(
        "A FIFO queue made with nothing but `FifoQueue` has the documented defaults, all as strings.",
        (
            recorded("test_fifo_set_content_based_deduplication_strategy", "2025-08-19"),
            verified("test_sqs/test_sqs.py::test_create_fifo_queue"),
            recorded(
                "sqs/resource_providers/test_aws_sqs_queue.py::test_create_fifo_queue_with_required_properties",
                "2025-12-18",
            ),
        ),
        ("lose-encryption", "shorten-retention"),
    ),
    "CRE-02": Promise(
        "The default MaximumMessageSize is 1,048,576 bytes.",
        (recorded("test_create_and_update_queue_attributes", "2025-08-19"), guide("quotas-messages")),
        ("shrink-messages",),
    ),
    "CRE-04": Promise(
        "Creating a queue again with the same attributes returns its URL.",
        (old("test_create_fifo_queue_with_same_attributes_is_idempotent"),),
        ("move-queues",),
    ),
    "CRE-05": Promise(
        "Creating a queue again with a differing attribute is refused; the error names the attribute.",
        (recorded("test_create_fifo_queue_with_different_attributes_raises_error", "2024-04-30"),),
        ("accept-queues", "blur-queues"),
    ),
    "CRE-06": Promise(
        "Creating a queue again without any attributes returns its URL, whatever its attributes are.",
        (recorded("test_create_queue_with_different_attributes_raises_exception", "2024-04-30"),),
        ("move-queues",),
    ),
    "CRE-07": Promise(
        "`FifoQueue=false` is refused: a standard queue is made by leaving the attribute out.",
        (recorded("test_create_standard_queue_with_fifo_attribute_raises_error", "2024-05-15"),),
        ("accept-queues", "blur-queues"),
    ),
    "CRE-09": Promise(
        "A standard queue takes neither DeduplicationScope nor FifoThroughputLimit.",
        (recorded("test_create_standard_queue_with_fifo_attribute_raises_error", "2024-05-15"),),
        ("accept-queues", "blur-queues"),
    ),
    "CRE-10": Promise(
        "A FIFO queue whose name lacks `.fifo` is refused.",
        (old("test_fifo_queue_requires_suffix"),),
        ("accept-queues",),
    ),
    "CRE-11": Promise(
        "A standard queue whose name ends in `.fifo` is refused.",
        (old("test_standard_queue_cannot_have_fifo_suffix"),),
        ("accept-queues",),
    ),
    "CRE-12": Promise(
        "A queue name has at most 80 characters, `.fifo` included, of letters, digits, hyphen and underscore.",
        (guide("quotas-fifo"), api("CreateQueue")),
        ("accept-queues",),
    ),
    "CRE-13": Promise(
        "Setting FifoQueue on a standard queue, to true or to false, is refused as an unknown attribute.",
        (recorded("test_set_unsupported_attribute_standard", "2024-05-14"),),
        ("accept-attributes", "blur-attributes"),
    ),
    "CRE-14": Promise(
        "A FIFO queue accepts `FifoQueue=true` and refuses false.",
        (recorded("test_set_unsupported_attribute_fifo", "2024-05-14"),),
        ("accept-attributes", "blur-attributes"),
    ),
    "CRE-28": Promise(
        "A queue cannot be converted from one type to the other.",
        (recorded("test_set_unsupported_attribute_fifo", "2024-05-14"), guide("FIFO-queues-moving")),
        ("accept-attributes",),
    ),
    "CRE-16": Promise(
        "`FifoThroughputLimit=perMessageGroupId` without `DeduplicationScope=messageGroup` is refused.",
        (api("CreateQueue"), api("SetQueueAttributes")),
        ("accept-queues",),
    ),
    "CRE-17": Promise(
        "`DeduplicationScope=messageGroup` is accepted with the default `FifoThroughputLimit=perQueue`.",
        (recorded("test_sqs_fifo_message_group_scope_no_throughput_setting", "2024-05-24"),),
        ("forget-scope",),
    ),
    "CRE-18": Promise(
        "A delay, size, retention, wait or visibility timeout out of its range is refused when the queue is created.",
        (api("CreateQueue"), unverified("Inqnuam/local-aws-sqs test/create-queue")),
        ("accept-queues",),
    ),
    "CRE-20": Promise(
        "The name of a deleted queue cannot be used again for 60 seconds.",
        (asserted("test_create_queue_recently_deleted", "2024-04-30"), api("DeleteQueue")),
        ("accept-queues",),
    ),
    "CRE-22": Promise(
        "Every call to a queue that does not exist is refused with one code and text.",
        (
            recorded("test_non_existent_queue", "2024-04-30"),
            verified("test_sqs/test_sqs.py::test_get_queue_url_error_not_exists"),
        ),
        ("hide-errors", "blur-errors"),
    ),
    "CRE-26": Promise(
        "A queue with both a KMS key and SQS-managed encryption is refused.",
        (recorded("test_sse_kms_and_sqs_are_mutually_exclusive", "2024-04-30"),),
        ("accept-attributes", "blur-attributes"),
    ),
    "CRE-27": Promise(
        "Content-based deduplication can be switched on and off later, and the queue reports it.",
        (recorded("test_fifo_set_content_based_deduplication_strategy", "2025-08-19"),),
        ("ignore-attribute-changes",),
    ),
    "CRE-29": Promise(
        "A changed VisibilityTimeout holds for later receives.",
        (api("SetQueueAttributes"), guide("sqs-visibility-timeout")),
        ("only-show-visibility",),
    ),
    "CRE-30": Promise(
        "A changed MaximumMessageSize holds for later sends.",
        (recorded("test_send_message_with_updated_maximum_message_size", "2024-04-30"), api("SetQueueAttributes")),
        ("only-show-size",),
    ),
    "CRE-31": Promise(
        "A changed ReceiveMessageWaitTimeSeconds holds for later receives without a wait time of their own.",
        (api("SetQueueAttributes"), guide("sqs-short-and-long-polling")),
        ("only-show-wait",),
    ),
    "CRE-32": Promise(
        "A shortened MessageRetentionPeriod also holds for messages already sent.",
        (api("SetQueueAttributes"),),
        ("only-show-retention",),
    ),
    "CRE-33": Promise(
        "A changed DelaySeconds holds for later sends.",
        (api("SetQueueAttributes"), guide("sqs-delay-queues")),
        ("only-show-delay",),
    ),
    "CRE-34": Promise(
        "Once content-based deduplication is switched on, sends without an id are accepted and deduplicated; once it is"
        " switched off, they are refused.",
        (api("SetQueueAttributes"), api("SendMessage")),
        ("only-show-content-ids",),
    ),
    "CRE-46": Promise(
        "LastModifiedTimestamp is the time of the last change of an attribute.",
        (api("GetQueueAttributes"),),
        ("freeze-modified-at",),
    ),
    "CRE-39": Promise(
        "A queue keeps its KMS key and the time its data key is reused for; a key switches SQS-managed encryption off.",
        (recorded("test_sse_queue_attributes", "2024-04-30"),),
        ("ignore-attribute-changes", "lose-encryption"),
    ),
    "CRE-40": Promise(
        "A queue keeps its policy until an empty one takes it away.",
        (old("test_set_queue_policy"), old("test_set_empty_queue_policy")),
        ("ignore-policy-removals",),
    ),
    "CRE-41": Promise(
        "A deleted queue is gone with its messages: calls to it are refused.",
        (api("DeleteQueue"),),
        ("keep-queues",),
    ),
    "CRE-42": Promise(
        "Names of queues are case-sensitive: two that differ in case only are two queues.",
        (api("CreateQueue"),),
        ("fold-queue-names",),
    ),
    "SLU-58": Promise(
        "ListQueues with MaxResults returns a page, and a token that leads to the next one.",
        (api("ListQueues"),),
        ("lose-next-page",),
    ),
    "SLU-42": Promise(
        "Delayed messages are counted apart from visible ones.",
        (api("GetQueueAttributes"),),
        ("undercount-queue",),
    ),
    "SLU-43": Promise(
        "A queue reports the attributes asked for and no others, and refuses a name it does not know.",
        (api("GetQueueAttributes"),),
        ("accept-lookups", "tell-all-attributes"),
    ),
    "SLU-44": Promise(
        "GetQueueUrl finds a queue by its name, and ListQueues finds it by the start of its name.",
        (api("GetQueueUrl"), api("ListQueues")),
        ("ignore-queue-prefix", "misdirect-names"),
    ),
}

_BATCHES = {
    "BAT-01": Promise(
        "A batch of more than ten sends, deletes or visibility changes is refused.",
        (
            recorded("test_too_many_entries_in_batch_request", "2024-04-30"),
            recorded("test_delete_message_batch_with_too_large_batch", "2024-04-30"),
            recorded("test_change_message_visibility_batch_with_too_large_batch", "2024-04-30"),
        ),
        ("accept-batches", "blur-batches"),
    ),
    "BAT-02": Promise(
        "A batch with an entry id that is not 1 to 80 letters, digits, hyphens and underscores is refused.",
        (
            recorded("test_invalid_batch_id", "2024-04-30"),
            recorded("test_delete_message_batch_invalid_msg_id", "2024-04-30"),
        ),
        ("accept-batches", "blur-batches"),
    ),
    "BAT-03": Promise(
        "A batch of sends or of deletes without entries is refused.",
        (
            asserted("test_send_message_batch_with_empty_list", "2024-04-30"),
            verified("test_sqs/test_sqs.py::test_send_message_batch_errors"),
            verified("test_sqs/test_sqs.py::test_delete_message_batch_with_zero_entries"),
        ),
        ("accept-batches", "blur-batches"),
    ),
    "BAT-04": Promise(
        "A batch with one entry id twice is refused; the text names the id.",
        (verified("test_sqs/test_sqs.py::test_send_message_batch_errors"),),
        ("accept-batches", "blur-batches"),
    ),
    "BAT-05": Promise(
        "One entry without deduplication id fails the whole batch, and nothing of it is enqueued.",
        (recorded("test_send_batch_missing_deduplication_id_for_fifo_queue", "2024-04-30"),),
        ("accept-batches", "blur-batches"),
    ),
    "BAT-06": Promise(
        "An entry without message group id is not delivered, and the caller gets an error for the entry or for the"
        " whole batch.",
        (recorded("test_send_batch_missing_message_group_id_for_fifo_queue", "2024-04-30"),),
        ("accept-batches",),
    ),
    "BAT-07": Promise(
        "A batch whose bodies have more than 1,048,576 bytes together is refused.",
        (recorded("test_send_message_batch_with_oversized_contents", "2025-08-19"),),
        ("accept-batches", "blur-batches"),
    ),
    "BAT-08": Promise(
        "An entry above the queue's MaximumMessageSize fails alone, with a code and a text; the sum of the others may"
        " exceed that size.",
        (
            recorded("test_send_batch_message_size", "2024-04-30"),
            recorded("test_send_message_batch_with_oversized_contents_with_updated_maximum_message_size", "2024-04-30"),
        ),
        ("hide-batch-failures",),
    ),
    "SLU-30": Promise(
        "If one entry of a batch fails, the others are delivered and the answer names the one that failed.",
        (recorded("test_send_batch_message_size", "2024-04-30"), api("SendMessageBatch")),
        ("hide-batch-failures", "lose-batch-entries"),
    ),
    "BAT-09": Promise(
        "The entries of a batch are enqueued in the order of the list.",
        (api("SendMessageBatch"),),
        ("reverse-batch-sends", "lose-batch-entries", "freeze-batch-numbers"),
    ),
    "BAT-12": Promise(
        "One deduplication id twice in a batch is one message, and both entries succeed with its message id.",
        (guide("FIFO-queues-exactly-once-processing"), unverified("softwaremill/elasticmq FifoDeduplicationTests")),
        ("forget-deduplication", "salt-deduplication-ids"),
    ),
    "BAT-13": Promise(
        "A bad receipt handle in a batch of deletes fails as ReceiptHandleIsInvalid and as the sender's fault.",
        (api("DeleteMessageBatch"), unverified("softwaremill/elasticmq and Inqnuam/local-aws-sqs tests")),
        ("hide-delete-failures",),
    ),
    "BAT-14": Promise(
        "A bad receipt handle in a batch of deletes is reported as failed, and the other messages are deleted.",
        (api("DeleteMessageBatch"),),
        ("hide-delete-failures",),
    ),
    "BAT-15": Promise(
        "A bad receipt handle in a batch of visibility changes is reported as failed, and the other messages are"
        " changed.",
        (api("ChangeMessageVisibilityBatch"),),
        ("hide-change-failures",),
    ),
    "BAT-16": Promise(
        "The answer to a batch of sends states of each entry the message id, sequence number and MD5 sums that its"
        " message is received with.",
        (api("SendMessageBatchResultEntry"), api("ReceiveMessage")),
        (
            "misname-batch-entries",
            "misnumber-batch-entries",
            "misdigest-batch-bodies",
            "misdigest-batch-attributes",
        ),
    ),
    "SLU-31": Promise(
        "A batch of deletes deletes every message, and releases the group.",
        (api("DeleteMessageBatch"),),
        ("ignore-delete", "lose-batch-entries"),
    ),
    "SLU-32": Promise(
        "A batch of visibility changes changes every message.",
        (api("ChangeMessageVisibilityBatch"),),
        ("ignore-visibility-change", "lose-batch-entries"),
    ),
}

_RECEIVING = {
    "RCV-02": Promise(
        "A receive with a wait of more than 20 seconds or of less than 0 is refused.",
        (recorded("test_send_receive_wait_time_seconds", "2025-02-10"),),
        ("accept-receives", "blur-receives"),
    ),
    "RCV-03": Promise(
        "The answer to an empty receive has no list of messages.",
        (recorded("test_receive_empty_queue", "2025-02-10"),),
        ("show-empty-lists",),
    ),
    "RCV-04": Promise(
        "A FIFO message has seven system attributes.",
        (recorded("test_fifo_message_attributes", "2024-04-30"),),
        ("drop-sender", "renumber-messages"),
    ),
    "RCV-06": Promise(
        "AttributeNames still works; MessageSystemAttributeNames wins where both are given.",
        (
            recorded("test_message_system_attribute_names_with_attribute_names", "2024-06-04"),
            recorded("test_receive_message_message_system_attribute_names_filters", "2024-06-04"),
        ),
        ("widen-attribute-names",),
    ),
    "RCV-07": Promise(
        "Message attributes are returned by name, by prefix or all; the checksum covers what is returned.",
        (recorded("test_receive_message_message_attribute_names_filters", "2024-04-30"),),
        ("widen-attribute-names", "blank-checksums"),
    ),
    "RCV-10": Promise(
        "Repeated long polls deliver every message exactly once, even if a single poll delivers only a few.",
        (peer("WaitingTestBase.ReceiveAllAsync"), api("ReceiveMessage")),
        ("drop-each-tenth", "repeat-each-tenth"),
    ),
    "RCV-11": Promise(
        "A receive repeated with its ReceiveRequestAttemptId returns the same messages and receipt handles.",
        (guide("using-receiverequestattemptid-request-parameter"), api("ReceiveMessage")),
        ("ignore-attempt-ids",),
    ),
    "RCV-12": Promise(
        "A ReceiveRequestAttemptId is refused once one of its messages was deleted.",
        (
            reported("https://github.com/awslabs/amazon-sqs-java-messaging-lib/issues/213", "2026-11-20"),
            unverified("softwaremill/elasticmq ReceiveRequestAttemptCacheTest"),
        ),
        ("ignore-attempt-ids", "accept-receives", "blur-receives"),
    ),
    "RCV-28": Promise(
        "A receive repeated with its ReceiveRequestAttemptId starts the visibility timeout of its messages anew.",
        (api("ReceiveMessage"),),
        ("shorten-attempts", "ignore-attempt-ids"),
    ),
    "RCV-32": Promise(
        "A ReceiveRequestAttemptId still brings the same messages after a minute; it is honoured for five.",
        (api("ReceiveMessage"),),
        ("ignore-attempt-ids",),
    ),
    "RCV-30": Promise(
        "A ReceiveRequestAttemptId brings nothing more once the visibility of one of its messages was changed.",
        (api("ReceiveMessage"),),
        ("repeat-attempts", "ignore-attempt-ids"),
    ),
    "RCV-31": Promise(
        "A ReceiveRequestAttemptId has 1 to 128 letters, digits and punctuation marks.",
        (api("ReceiveMessage"),),
        ("accept-receives", "ignore-attempt-ids"),
    ),
    "RCV-13": Promise(
        "Five minutes after its receive, a ReceiveRequestAttemptId is that of a new receive.",
        (api("ReceiveMessage"), guide("using-receiverequestattemptid-request-parameter")),
        ("repeat-attempts",),
    ),
    "RCV-14": Promise(
        "A receive hides a message for twelve hours at most; more is refused.",
        (api("ReceiveMessage"), unverified("Inqnuam/local-aws-sqs test")),
        ("accept-receives",),
    ),
    "RCV-15": Promise(
        "A long poll returns as soon as a message can be delivered.",
        (old("test_fifo_message_group_visibility"),),
        ("ignore-wait",),
    ),
    "RCV-18": Promise(
        "SentTimestamp is the time of the send, in milliseconds since the epoch.",
        (api("ReceiveMessage"),),
        ("backdate-messages", "freeze-sent-at"),
    ),
    "RCV-19": Promise(
        "SenderId is the id of the user or role that sent the message, as STS tells it to the caller.",
        (
            api("ReceiveMessage"),
            documented("https://docs.aws.amazon.com/STS/latest/APIReference/API_GetCallerIdentity.html"),
        ),
        ("misname-sender",),
    ),
    "SLU-33": Promise(
        "A receive that asks for more than ten messages is refused, and none brings more than ten.",
        (api("ReceiveMessage"),),
        ("accept-receives", "reverse-long"),
    ),
    "SLU-47": Promise(
        "A receive that asks for less than one message is refused.",
        (api("ReceiveMessage"),),
        ("accept-receives",),
    ),
    "SLU-38": Promise(
        "A receive without a wait time waits for the queue's ReceiveMessageWaitTimeSeconds.",
        (guide("sqs-short-and-long-polling"),),
        ("forget-wait",),
    ),
    "SLU-39": Promise(
        "A receive without a number of messages returns one message.",
        (api("ReceiveMessage"),),
        ("fill-receives",),
    ),
}

_TAGS = {
    "TAG-01": Promise(
        "A queue keeps its tags until they are removed; ListQueueTags of a queue without tags returns no key Tags.",
        (recorded("test_tag_untag_queue", "2024-04-30"),),
        ("ignore-tags",),
    ),
    "TAG-17": Promise(
        "Keys of tags are case-sensitive; a later value replaces the earlier, and a key that is not there can be"
        " removed.",
        (
            old("test_tags_case_sensitive"),
            old("test_tag_queue_overwrites_existing_tag"),
            old("test_untag_queue_ignores_non_existing_tag"),
        ),
        ("fold-tags", "ignore-tags"),
    ),
    "TAG-03": Promise(
        "Tags given when the queue is created are there at once.",
        (old("test_create_queue_with_tags"),),
        ("ignore-tags",),
    ),
}

_LIMITS = {
    "LIM-06": Promise(
        "A body has at most 1,048,576 bytes of UTF-8.",
        (recorded("test_send_oversized_message", "2025-08-19"), guide("quotas-messages")),
        ("accept-sends", "blur-sends", "flatten-bodies"),
    ),
    "LIM-07": Promise(
        "Group and deduplication ids have 1 to 128 printable ASCII characters without the space.",
        (recorded("test_message_deduplication_id_invalid", "2025-07-30"), api("SendMessage")),
        ("shorten-ids",),
    ),
    "LIM-09": Promise(
        "A queue accepts and reports both ends of the range of every attribute.",
        (guide("quotas-fifo"), api("CreateQueue")),
        ("forget-visibility", "shorten-retention"),
    ),
    "VIS-16": Promise(
        "A message in flight is gone when its retention ends, and its group is not blocked any more.",
        (old("test_message_retention_with_inflight"),),
        ("forget-retention",),
    ),
    "VIS-17": Promise(
        "A message is gone when its retention ends, and its group goes on.",
        (old("test_message_retention_fifo"),),
        ("forget-retention",),
    ),
}

_ERRORS = {
    "ERR-02": Promise(
        "A missing group is MissingParameter in a send and InvalidParameterValue in a batch.",
        (
            recorded("test_posting_to_fifo_requires_deduplicationid_group_id", "2024-04-30"),
            recorded("test_send_batch_missing_message_group_id_for_fifo_queue", "2024-04-30"),
        ),
        ("hide-errors", "blur-errors"),
    ),
    "ERR-03": Promise(
        "A wrong attribute name is InvalidAttributeName, a wrong value InvalidAttributeValue.",
        (
            recorded("test_create_standard_queue_with_fifo_attribute_raises_error", "2024-05-15"),
            recorded("test_set_unsupported_attribute_fifo", "2024-05-14"),
        ),
        ("hide-errors", "blur-errors"),
    ),
    "ERR-05": Promise(
        "A publish to a topic that does not exist is NotFound, to something that is not an ARN InvalidParameter.",
        (
            recorded("sns/test_sns.py::test_unknown_topic_publish", "2023-08-24"),
            recorded("sns/test_sns.py::test_publish_wrong_arn_format", "2024-03-11"),
        ),
        ("hide-errors", "blur-errors"),
    ),
    "ERR-06": Promise(
        "Some error codes of SQS have the prefix `AWS.SimpleQueueService.`; those of SNS have none.",
        (
            recorded("sns/test_sns.py::test_validations_for_fifo", "2025-08-18"),
            recorded("test_too_many_entries_in_batch_request", "2024-04-30"),
        ),
        ("hide-errors",),
    ),
}

AREAS = {
    "Queue attributes": _QUEUE_ATTRIBUTES,
    "Batches": _BATCHES,
    "Receiving": _RECEIVING,
    "Tags": _TAGS,
    "Limits": _LIMITS,
    "Errors": _ERRORS,
}
