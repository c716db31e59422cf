"""What holds of a queue and its calls: attributes, batches, receives, tags, limits, errors."""

from sluice.promises.promise import API, GUIDE, Promise, documented, old, peer, recorded, reported, unverified, verified

_ATTRIBUTES = "Queue attributes"
_BATCH = "Batches"
_RECEIVING = "Receiving"
_TAGS = "Tags"
_LIMITS = "Limits"
_ERRORS = "Errors"

PROMISES: tuple[Promise, ...] = (
    Promise(
        "CRE-01",
        _ATTRIBUTES,
        "A FIFO queue made with nothing but `FifoQueue` has the documented defaults, all as strings.",
        (
            recorded("sqs/test_sqs.py::test_fifo_set_content_based_deduplication_strategy", "2025-08-19"),
            verified("test_sqs/test_sqs.py::test_create_fifo_queue"),
            recorded(
                "sqs/resource_providers/test_aws_sqs_queue.py::test_create_fifo_queue_with_required_properties",
                "2025-12-18",
            ),
        ),
        (
            "lose-encryption",
            "shorten-retention",
        ),
    ),
    Promise(
        "CRE-02",
        _ATTRIBUTES,
        "The default MaximumMessageSize is 1,048,576 bytes.",
        (
            recorded("sqs/test_sqs.py::test_create_and_update_queue_attributes", "2025-08-19"),
            documented(GUIDE + "quotas-messages.html"),
        ),
        ("shrink-messages",),
    ),
    Promise(
        "CRE-04",
        _ATTRIBUTES,
        "Creating a queue again with the same attributes answers its URL.",
        (old("sqs/test_sqs.py::test_create_fifo_queue_with_same_attributes_is_idempotent"),),
        ("move-queues",),
    ),
    Promise(
        "CRE-05",
        _ATTRIBUTES,
        "Creating a queue again with a differing attribute is refused; the error names the attribute.",
        (recorded("sqs/test_sqs.py::test_create_fifo_queue_with_different_attributes_raises_error", "2024-04-30"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "CRE-06",
        _ATTRIBUTES,
        "Creating a queue again without any attributes answers its URL, whatever its attributes are.",
        (recorded("sqs/test_sqs.py::test_create_queue_with_different_attributes_raises_exception", "2024-04-30"),),
        ("move-queues",),
    ),
    Promise(
        "CRE-07",
        _ATTRIBUTES,
        "`FifoQueue=false` is refused: a standard queue is made by leaving the attribute out.",
        (recorded("sqs/test_sqs.py::test_create_standard_queue_with_fifo_attribute_raises_error", "2024-05-15"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "CRE-09",
        _ATTRIBUTES,
        "A standard queue takes neither DeduplicationScope nor FifoThroughputLimit.",
        (recorded("sqs/test_sqs.py::test_create_standard_queue_with_fifo_attribute_raises_error", "2024-05-15"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "CRE-10",
        _ATTRIBUTES,
        "A FIFO queue whose name lacks `.fifo` is refused.",
        (old("sqs/test_sqs.py::test_fifo_queue_requires_suffix"),),
        ("hide-errors",),
    ),
    Promise(
        "CRE-11",
        _ATTRIBUTES,
        "A standard queue whose name ends in `.fifo` is refused.",
        (old("sqs/test_sqs.py::test_standard_queue_cannot_have_fifo_suffix"),),
        ("hide-errors",),
    ),
    Promise(
        "CRE-12",
        _ATTRIBUTES,
        "A queue name has at most 80 characters, `.fifo` included, of letters, digits, hyphen and underscore.",
        (
            documented(GUIDE + "quotas-fifo.html"),
            documented(API + "API_CreateQueue.html"),
        ),
        ("hide-errors",),
    ),
    Promise(
        "CRE-13",
        _ATTRIBUTES,
        "A standard queue does not know the attribute FifoQueue, true or false.",
        (recorded("sqs/test_sqs.py::test_set_unsupported_attribute_standard", "2024-05-14"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "CRE-14",
        _ATTRIBUTES,
        "A FIFO queue accepts `FifoQueue=true` and refuses false.",
        (recorded("sqs/test_sqs.py::test_set_unsupported_attribute_fifo", "2024-05-14"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "CRE-28",
        _ATTRIBUTES,
        "A queue cannot be converted from one type to the other.",
        (
            recorded("sqs/test_sqs.py::test_set_unsupported_attribute_fifo", "2024-05-14"),
            documented(GUIDE + "FIFO-queues-moving.html"),
        ),
        ("hide-errors",),
    ),
    Promise(
        "CRE-16",
        _ATTRIBUTES,
        "`FifoThroughputLimit=perMessageGroupId` needs `DeduplicationScope=messageGroup`.",
        (
            documented(API + "API_CreateQueue.html"),
            documented(API + "API_SetQueueAttributes.html"),
        ),
        ("hide-errors",),
    ),
    Promise(
        "CRE-17",
        _ATTRIBUTES,
        "`DeduplicationScope=messageGroup` goes with the default `FifoThroughputLimit=perQueue`.",
        (recorded("sqs/test_sqs.py::test_sqs_fifo_message_group_scope_no_throughput_setting", "2024-05-24"),),
        ("forget-attributes",),
    ),
    Promise(
        "CRE-18",
        _ATTRIBUTES,
        "A delay, size, retention, wait or visibility timeout out of its range is refused when the queue is created.",
        (
            documented(API + "API_CreateQueue.html"),
            unverified("Inqnuam/local-aws-sqs test/create-queue"),
        ),
        ("hide-errors",),
    ),
    Promise(
        "CRE-20",
        _ATTRIBUTES,
        "The name of a deleted queue cannot be used again for 60 seconds.",
        (
            recorded("sqs/test_sqs.py::test_create_queue_recently_deleted", "2024-04-30"),
            documented(API + "API_DeleteQueue.html"),
        ),
        ("hide-errors",),
    ),
    Promise(
        "CRE-22",
        _ATTRIBUTES,
        "Every call to a queue that does not exist is refused with one code and text.",
        (
            recorded("sqs/test_sqs.py::test_non_existent_queue", "2024-04-30"),
            verified("test_sqs/test_sqs.py::test_get_queue_url_error_not_exists"),
        ),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "CRE-26",
        _ATTRIBUTES,
        "A KMS key and SQS-managed encryption exclude each other.",
        (recorded("sqs/test_sqs.py::test_sse_kms_and_sqs_are_mutually_exclusive", "2024-04-30"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "CRE-27",
        _ATTRIBUTES,
        "Content-based deduplication can be switched on and off later, and the queue reports it.",
        (recorded("sqs/test_sqs.py::test_fifo_set_content_based_deduplication_strategy", "2025-08-19"),),
        ("ignore-attribute-changes",),
    ),
    Promise(
        "SLU-42",
        _ATTRIBUTES,
        "Delayed messages are counted apart from visible ones.",
        (documented(API + "API_GetQueueAttributes.html"),),
        ("undercount-queue",),
    ),
    Promise(
        "SLU-43",
        _ATTRIBUTES,
        "A queue tells the attributes asked for, and refuses a name it does not know.",
        (documented(API + "API_GetQueueAttributes.html"),),
        (
            "hide-errors",
            "tell-all-attributes",
        ),
    ),
    Promise(
        "SLU-44",
        _ATTRIBUTES,
        "A queue is found by its name, and by the start of it.",
        (
            documented(API + "API_GetQueueUrl.html"),
            documented(API + "API_ListQueues.html"),
        ),
        ("hide-queues",),
    ),
    Promise(
        "BAT-01",
        _BATCH,
        "A batch of more than ten entries is refused, be it sends, deletes or visibility changes.",
        (
            recorded("sqs/test_sqs.py::test_too_many_entries_in_batch_request", "2024-04-30"),
            recorded("sqs/test_sqs.py::test_delete_message_batch_with_too_large_batch", "2024-04-30"),
            recorded("sqs/test_sqs.py::test_change_message_visibility_batch_with_too_large_batch", "2024-04-30"),
        ),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "BAT-02",
        _BATCH,
        "An entry id has 1 to 80 letters, digits, hyphens and underscores; another refuses the batch.",
        (
            recorded("sqs/test_sqs.py::test_invalid_batch_id", "2024-04-30"),
            recorded("sqs/test_sqs.py::test_delete_message_batch_invalid_msg_id", "2024-04-30"),
        ),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "BAT-03",
        _BATCH,
        "A batch without entries is refused.",
        (
            recorded("sqs/test_sqs.py::test_send_message_batch_with_empty_list", "2024-04-30"),
            verified("test_sqs/test_sqs.py::test_send_message_batch_errors"),
            verified("test_sqs/test_sqs.py::test_delete_message_batch_with_zero_entries"),
        ),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "BAT-04",
        _BATCH,
        "A batch with one entry id twice is refused; the text names the id.",
        (verified("test_sqs/test_sqs.py::test_send_message_batch_errors"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "BAT-05",
        _BATCH,
        "One entry without deduplication id fails the whole batch, and nothing of it is enqueued.",
        (recorded("sqs/test_sqs.py::test_send_batch_missing_deduplication_id_for_fifo_queue", "2024-04-30"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "BAT-06",
        _BATCH,
        "An entry without message group id fails visibly and is not delivered.",
        (recorded("sqs/test_sqs.py::test_send_batch_missing_message_group_id_for_fifo_queue", "2024-04-30"),),
        ("hide-errors",),
    ),
    Promise(
        "BAT-07",
        _BATCH,
        "Bodies of more than 1,048,576 bytes together are refused as a batch.",
        (recorded("sqs/test_sqs.py::test_send_message_batch_with_oversized_contents", "2025-08-19"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "BAT-08",
        _BATCH,
        "An entry above the queue's MaximumMessageSize fails alone, with a code and a text; the sum of the others may exceed that size.",
        (
            recorded("sqs/test_sqs.py::test_send_batch_message_size", "2024-04-30"),
            recorded(
                "sqs/test_sqs.py::test_send_message_batch_with_oversized_contents_with_updated_maximum_message_size",
                "2024-04-30",
            ),
        ),
        ("hide-batch-failures",),
    ),
    Promise(
        "SLU-30",
        _BATCH,
        "Beside an entry that fails the others are delivered, and the caller is told which failed.",
        (
            recorded("sqs/test_sqs.py::test_send_batch_message_size", "2024-04-30"),
            documented(API + "API_SendMessageBatch.html"),
        ),
        (
            "hide-batch-failures",
            "lose-batch-entries",
        ),
    ),
    Promise(
        "BAT-09",
        _BATCH,
        "The entries of a batch are enqueued in the order of the list.",
        (documented(API + "API_SendMessageBatch.html"),),
        (
            "reverse-batch-sends",
            "lose-batch-entries",
        ),
    ),
    Promise(
        "BAT-12",
        _BATCH,
        "One deduplication id twice in a batch is one message, and both entries succeed with its message id.",
        (
            documented(GUIDE + "FIFO-queues-exactly-once-processing.html"),
            unverified("softwaremill/elasticmq FifoDeduplicationTests"),
        ),
        (
            "forget-deduplication",
            "salt-deduplication-ids",
        ),
    ),
    Promise(
        "BAT-13",
        _BATCH,
        "A bad receipt handle in a batch of deletes fails alone, as the sender's fault.",
        (
            documented(API + "API_DeleteMessageBatch.html"),
            unverified("softwaremill/elasticmq and Inqnuam/local-aws-sqs tests"),
        ),
        ("hide-batch-failures",),
    ),
    Promise(
        "SLU-31",
        _BATCH,
        "A batch of deletes deletes every message, and releases the group.",
        (documented(API + "API_DeleteMessageBatch.html"),),
        (
            "ignore-delete",
            "lose-batch-entries",
        ),
    ),
    Promise(
        "SLU-32",
        _BATCH,
        "A batch of visibility changes changes every message.",
        (documented(API + "API_ChangeMessageVisibilityBatch.html"),),
        (
            "ignore-visibility-change",
            "lose-batch-entries",
        ),
    ),
    Promise(
        "RCV-02",
        _RECEIVING,
        "A wait of more than 20 seconds, or of less than none, is refused.",
        (recorded("sqs/test_sqs.py::test_send_receive_wait_time_seconds", "2025-02-10"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "RCV-03",
        _RECEIVING,
        "The answer to an empty receive has no list of messages.",
        (recorded("sqs/test_sqs.py::test_receive_empty_queue", "2025-02-10"),),
        ("show-empty-lists",),
    ),
    Promise(
        "RCV-04",
        _RECEIVING,
        "A FIFO message has seven system attributes.",
        (recorded("sqs/test_sqs.py::test_fifo_message_attributes", "2024-04-30"),),
        (
            "drop-sender",
            "renumber-messages",
        ),
    ),
    Promise(
        "RCV-06",
        _RECEIVING,
        "AttributeNames still works; MessageSystemAttributeNames wins where both are given.",
        (
            recorded("sqs/test_sqs.py::test_message_system_attribute_names_with_attribute_names", "2024-06-04"),
            recorded("sqs/test_sqs.py::test_receive_message_message_system_attribute_names_filters", "2024-06-04"),
        ),
        ("widen-attribute-names",),
    ),
    Promise(
        "RCV-07",
        _RECEIVING,
        "Message attributes are returned by name, by prefix or all; the checksum covers what is returned.",
        (recorded("sqs/test_sqs.py::test_receive_message_message_attribute_names_filters", "2024-04-30"),),
        (
            "widen-attribute-names",
            "blank-checksums",
        ),
    ),
    Promise(
        "RCV-10",
        _RECEIVING,
        "Long polls together bring every message once, however few one of them brings.",
        (
            peer("WaitingTestBase.ReceiveAllAsync"),
            documented(API + "API_ReceiveMessage.html"),
        ),
        (
            "drop-messages",
            "deliver-twice",
        ),
    ),
    Promise(
        "RCV-11",
        _RECEIVING,
        "A receive repeated with its ReceiveRequestAttemptId returns the same messages and receipt handles.",
        (
            documented(GUIDE + "using-receiverequestattemptid-request-parameter.html"),
            documented(API + "API_ReceiveMessage.html"),
        ),
        ("drop-messages",),
    ),
    Promise(
        "RCV-12",
        _RECEIVING,
        "A ReceiveRequestAttemptId is refused once one of its messages was deleted.",
        (
            reported("https://github.com/awslabs/amazon-sqs-java-messaging-lib/issues/213", "2026-11-20"),
            unverified("softwaremill/elasticmq ReceiveRequestAttemptCacheTest"),
        ),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "RCV-14",
        _RECEIVING,
        "A receive hides a message for twelve hours at most; more is refused.",
        (
            documented(API + "API_ReceiveMessage.html"),
            unverified("Inqnuam/local-aws-sqs test"),
        ),
        ("hide-errors",),
    ),
    Promise(
        "RCV-15",
        _RECEIVING,
        "A long poll returns as soon as a message can be delivered.",
        (old("sqs/test_sqs.py::test_fifo_message_group_visibility"),),
        ("ignore-wait",),
    ),
    Promise(
        "SLU-33",
        _RECEIVING,
        "A receive asks for one to ten messages, and never brings more.",
        (documented(API + "API_ReceiveMessage.html"),),
        (
            "hide-errors",
            "reverse-batch",
        ),
    ),
    Promise(
        "SLU-38",
        _RECEIVING,
        "A queue's ReceiveMessageWaitTimeSeconds makes a long poll of every receive that gives no time.",
        (documented(GUIDE + "sqs-short-and-long-polling.html"),),
        ("forget-attributes",),
    ),
    Promise(
        "SLU-39",
        _RECEIVING,
        "A receive that gives no number of messages brings one.",
        (documented(API + "API_ReceiveMessage.html"),),
        ("fill-receives",),
    ),
    Promise(
        "TAG-01",
        _TAGS,
        "Tags are kept until they are taken off; a queue without tags answers without the key.",
        (recorded("sqs/test_sqs.py::test_tag_untag_queue", "2024-04-30"),),
        ("ignore-tags",),
    ),
    Promise(
        "TAG-03",
        _TAGS,
        "Tags given when the queue is created are there at once.",
        (old("sqs/test_sqs.py::test_create_queue_with_tags"),),
        ("ignore-tags",),
    ),
    Promise(
        "LIM-06",
        _LIMITS,
        "A body has at most 1,048,576 bytes of UTF-8.",
        (
            recorded("sqs/test_sqs.py::test_send_oversized_message", "2025-08-19"),
            documented(GUIDE + "quotas-messages.html"),
        ),
        (
            "hide-errors",
            "blur-errors",
            "corrupt-bodies",
        ),
    ),
    Promise(
        "LIM-07",
        _LIMITS,
        "Group and deduplication ids have 1 to 128 printable ASCII characters without the space.",
        (
            recorded("sqs/test_sqs.py::test_message_deduplication_id_invalid", "2025-07-30"),
            documented(API + "API_SendMessage.html"),
        ),
        ("shorten-ids",),
    ),
    Promise(
        "LIM-09",
        _LIMITS,
        "The least and the most of every range are accepted, and reported.",
        (
            documented(GUIDE + "quotas-fifo.html"),
            documented(API + "API_CreateQueue.html"),
        ),
        (
            "forget-attributes",
            "shorten-retention",
        ),
    ),
    Promise(
        "VIS-16",
        _LIMITS,
        "A message in flight is gone when its retention ends, and its group is not blocked any more.",
        (old("sqs/test_sqs.py::test_message_retention_with_inflight"),),
        ("forget-attributes",),
    ),
    Promise(
        "VIS-17",
        _LIMITS,
        "A message is gone when its retention ends, and its group goes on.",
        (old("sqs/test_sqs.py::test_message_retention_fifo"),),
        ("forget-attributes",),
    ),
    Promise(
        "ERR-02",
        _ERRORS,
        "A missing group is MissingParameter in a send and InvalidParameterValue in a batch.",
        (
            recorded("sqs/test_sqs.py::test_posting_to_fifo_requires_deduplicationid_group_id", "2024-04-30"),
            recorded("sqs/test_sqs.py::test_send_batch_missing_message_group_id_for_fifo_queue", "2024-04-30"),
        ),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "ERR-03",
        _ERRORS,
        "A wrong attribute name is InvalidAttributeName, a wrong value InvalidAttributeValue.",
        (
            recorded("sqs/test_sqs.py::test_create_standard_queue_with_fifo_attribute_raises_error", "2024-05-15"),
            recorded("sqs/test_sqs.py::test_set_unsupported_attribute_fifo", "2024-05-14"),
        ),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "ERR-05",
        _ERRORS,
        "A publish to a topic that does not exist is NotFound, to something that is no ARN InvalidParameter.",
        (
            recorded("sns/test_sns.py::test_unknown_topic_publish", "2023-08-24"),
            recorded("sns/test_sns.py::test_publish_wrong_arn_format", "2024-03-11"),
        ),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "ERR-06",
        _ERRORS,
        "Codes of SQS partly have the prefix `AWS.SimpleQueueService.`, those of SNS have none.",
        (
            recorded("sns/test_sns.py::test_validations_for_fifo", "2025-08-18"),
            recorded("sqs/test_sqs.py::test_too_many_entries_in_batch_request", "2024-04-30"),
        ),
        ("hide-errors",),
    ),
)
