"""What a FIFO topic is made of, what may be subscribed to it, and what may be published to it."""

from contract_tests.promises.promise import (
    SNS_GUIDE,
    Promise,
    documented,
    peer,
    recorded,
    reported,
    unverified,
    verified,
)

_TOPIC = "Topic"
_SUBSCRIPTION = "Subscription"
_PUBLISHING = "Publishing"
_FILTER = "Filter policy"

_TESTS = "sns/test_sns.py::"
_FILTER_TESTS = "sns/test_sns_filter_policy.py::"
_API = "https://docs.aws.amazon.com/sns/latest/api/"

PROMISES: tuple[Promise, ...] = (
    Promise(
        "SNS-01",
        _TOPIC,
        "A FIFO topic needs FifoTopic and the suffix .fifo, and a name of at most 256 characters.",
        (
            recorded(_TESTS + "test_create_topic_name_constraints", "2026-02-06"),
            recorded(_TESTS + "test_sns_topic_fifo_without_suffix_fails", "2025-08-21"),
        ),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SLU-46",
        _TOPIC,
        "The name of a FIFO topic has at most 256 characters, `.fifo` included.",
        (documented(_API + "API_CreateTopic.html"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-04",
        _TOPIC,
        "FifoTopic cannot be changed.",
        (recorded(_TESTS + "test_topic_get_attributes_with_fifo_false", "2025-09-29"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-46",
        _TOPIC,
        "A new FIFO topic has content-based deduplication switched off and no subscription.",
        (recorded(_TESTS + "test_publish_fifo_messages_to_dlq", "2023-08-24"),),
        ("strip-topic",),
    ),
    Promise(
        "SNS-84",
        _TOPIC,
        "A topic counts its confirmed subscriptions.",
        (documented(_API + "API_GetTopicAttributes.html"),),
        ("strip-topic",),
    ),
    Promise(
        "SNS-47",
        _TOPIC,
        "Making a topic again with the same attributes returns the ARN of the topic there is.",
        (recorded(_TESTS + "test_create_duplicate_topic_check_idempotency", "2023-08-24"),),
        ("rename-repeats",),
    ),
    Promise(
        "SNS-48",
        _TOPIC,
        "Making a topic again with other tags is refused.",
        (recorded(_TESTS + "test_create_duplicate_topic_with_more_tags", "2023-08-24"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-49",
        _TOPIC,
        "Tags of a topic are kept, replaced and removed.",
        (recorded(_TESTS + "test_tags", "2023-08-24"),),
        ("ignore-tags",),
    ),
    Promise(
        "SNS-50",
        _TOPIC,
        "Two tags of one key are refused.",
        (recorded(_TESTS + "test_tags", "2023-08-24"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-51",
        _TOPIC,
        "FifoThroughputScope may be MessageGroup; what is neither that nor Topic is refused.",
        (documented(_API + "API_SetTopicAttributes.html"),),
        (
            "hide-errors",
            "widen-topic-scope",
        ),
    ),
    Promise(
        "SNS-30",
        _TOPIC,
        "A topic with MaximumMessageSize takes messages of up to 1 MiB.",
        (documented(_API + "API_SetTopicAttributes.html"),),
        ("ignore-message-size",),
    ),
    Promise(
        "SNS-40",
        _TOPIC,
        "The retention of an archive is 1 to 365 days; anything else is refused.",
        (
            documented(SNS_GUIDE + "message-archiving-and-replay-topic-owner.html"),
            recorded(_TESTS + "test_sns_topic_with_attributes", "2025-07-03"),
        ),
        ("hide-errors",),
    ),
    Promise(
        "SNS-41",
        _TOPIC,
        "A topic with an archive cannot be deleted.",
        (
            reported("https://github.com/aws/aws-cdk/pull/37113", "2026-11-21"),
            reported("https://github.com/pulumi/pulumi-aws/issues/4370", "2026-11-21"),
            documented(SNS_GUIDE + "message-archiving-and-replay-topic-owner.html", read="2026-11-21"),
        ),
        ("hide-errors", "blur-errors"),
    ),
    Promise(
        "SNS-05",
        _SUBSCRIPTION,
        "A FIFO queue cannot be subscribed to a standard topic.",
        (
            recorded(_TESTS + "test_validations_for_fifo", "2025-08-18"),
            verified("test_sns/test_publishing.py::test_publish_from_standard_sns_to_fifo_sqs"),
        ),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-06",
        _SUBSCRIPTION,
        "A standard queue can be subscribed to a FIFO topic.",
        (
            recorded(_TESTS + "test_fifo_topic_to_regular_sqs", "2025-08-18"),
            verified("test_sns/test_publishing.py::test_publish_from_sns_fifo_to_standard_sqs"),
        ),
        ("ignore-subscribe",),
    ),
    Promise(
        "SNS-07",
        _SUBSCRIPTION,
        "Nothing but a queue can be subscribed to a FIFO topic.",
        (
            reported("https://github.com/hashicorp/terraform-provider-aws/issues/38441", "2026-11-20"),
            documented(SNS_GUIDE + "fifo-message-delivery.html"),
        ),
        ("hide-errors",),
    ),
    Promise(
        "SNS-08",
        _SUBSCRIPTION,
        "The DLQ of a FIFO subscription must be a FIFO queue.",
        (recorded(_TESTS + "test_validations_for_fifo", "2025-08-18"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-34",
        _SUBSCRIPTION,
        "The DLQ of a subscription must be in the same Region.",
        (documented(SNS_GUIDE + "sns-dead-letter-queues.html"),),
        ("hide-errors",),
    ),
    Promise(
        "SNS-35",
        _SUBSCRIPTION,
        "A queue is subscribed by its ARN, which need not exist; a URL is refused.",
        (
            recorded(_TESTS + "test_subscribe_sqs_queue_url", "2025-10-06"),
            recorded(_TESTS + "test_subscribe_unknown_sqs_queue", "2025-10-06"),
        ),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-36",
        _SUBSCRIPTION,
        "Subscribing a queue again returns the subscription there is, and is refused when the attributes differ.",
        (recorded(_TESTS + "test_subscribe_idempotency", "2025-10-06"),),
        (
            "rename-repeats",
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-60",
        _SUBSCRIPTION,
        "A subscription of a queue of the same account is confirmed at once.",
        (recorded(_TESTS + "test_create_subscriptions_with_attributes", "2025-10-06"),),
        ("wrap-raw-deliveries",),
    ),
    Promise(
        "SNS-61",
        _SUBSCRIPTION,
        "An attribute of a subscription with an unknown name, or with a value it cannot have, is refused.",
        (
            recorded(_TESTS + "test_validate_set_sub_attributes", "2025-10-06"),
            recorded(_TESTS + "test_create_subscriptions_with_attributes", "2025-10-06"),
        ),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-62",
        _SUBSCRIPTION,
        "A subscription with an unknown protocol is refused.",
        (recorded(_TESTS + "test_subscribe_with_invalid_protocol", "2025-10-06"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-63",
        _SUBSCRIPTION,
        "An unsubscribed queue gets nothing more, and its subscription is gone.",
        (recorded(_TESTS + "test_not_found_error_on_set_subscription_attributes", "2025-10-06"),),
        (
            "ignore-unsubscribe",
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-64",
        _SUBSCRIPTION,
        "Unsubscribing what is unsubscribed already is accepted.",
        (recorded(_TESTS + "test_unsubscribe_from_non_existing_subscription", "2025-10-06"),),
        ("ignore-unsubscribe",),
    ),
    Promise(
        "SNS-31",
        _SUBSCRIPTION,
        "What cannot be delivered goes to the DLQ of the subscription, in order, with its group and deduplication id.",
        (recorded(_TESTS + "test_publish_fifo_messages_to_dlq", "2023-08-24"),),
        ("lose-undelivered", "regroup-messages"),
    ),
    Promise(
        "SNS-65",
        _SUBSCRIPTION,
        "The envelope of a message that could not be delivered has the message id and sequence number of the publish.",
        (recorded(_TESTS + "test_publish_fifo_messages_to_dlq", "2023-08-24"),),
        (
            "lose-undelivered",
            "freeze-sequence-numbers",
        ),
    ),
    Promise(
        "SNS-32",
        _SUBSCRIPTION,
        "Of a batch only the entry that cannot be delivered goes to the DLQ of the subscription.",
        (
            documented(SNS_GUIDE + "sns-dead-letter-queues.html"),
            unverified("inferred for a batch that fails in part"),
        ),
        ("lose-undelivered",),
    ),
    Promise(
        "SNS-44",
        _SUBSCRIPTION,
        "A queue whose policy does not allow the topic gets nothing, and the publish succeeds.",
        (
            peer("SetupFifoTopicAndQueue"),
            documented(SNS_GUIDE + "sns-fifo-topics.html"),
        ),
        ("deliver-twice",),
    ),
    Promise(
        "SNS-10",
        _PUBLISHING,
        "A publish without a deduplication id to a topic without content-based deduplication is refused.",
        (recorded(_TESTS + "test_validations_for_fifo", "2025-08-18"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-11",
        _PUBLISHING,
        "A standard topic takes a message group id and refuses a deduplication id.",
        (
            recorded(_TESTS + "test_validations_for_fifo", "2025-08-18"),
            recorded(_TESTS + "test_publish_message_group_id", "2025-08-18"),
        ),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-25",
        _PUBLISHING,
        "A batch of more than ten entries, or with one entry id twice, is refused.",
        (recorded(_TESTS + "test_publish_batch_exceptions", "2023-08-24"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-26",
        _PUBLISHING,
        "A batch with an entry that lacks group or deduplication id is refused as a whole.",
        (recorded(_TESTS + "test_publish_batch_exceptions", "2023-08-24"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-27",
        _PUBLISHING,
        "The id of a batch entry is 1 to 80 letters, digits, hyphens and underscores.",
        (recorded(_TESTS + "test_publish_batch_invalid_entry_id", "2025-12-23"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-28",
        _PUBLISHING,
        "A batch of more than 256 KiB in all is refused.",
        (recorded(_TESTS + "test_publish_batch_too_long_message", "2025-11-19"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-29",
        _PUBLISHING,
        "A message of more than 256 KiB is refused.",
        (recorded(_TESTS + "test_publish_too_long_message", "2025-11-19"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-52",
        _PUBLISHING,
        "An empty message, and an empty subject, are refused.",
        (
            recorded(_TESTS + "test_empty_sns_message", "2023-08-24"),
            recorded(_TESTS + "test_publish_with_empty_subject", "2023-08-24"),
        ),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-53",
        _PUBLISHING,
        "With MessageStructure `json`, a message that is not a JSON object with a default entry is refused.",
        (recorded(_TESTS + "test_message_structure_json_exc", "2023-08-24"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-54",
        _PUBLISHING,
        "A message attribute without a value of its type is refused.",
        (recorded(_TESTS + "test_empty_or_wrong_message_attributes", "2024-11-15"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-55",
        _PUBLISHING,
        "A message attribute with a malformed name is refused.",
        (recorded(_TESTS + "test_empty_or_wrong_message_attributes", "2024-11-15"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-56",
        _PUBLISHING,
        "A batch to a topic that does not exist is refused.",
        (recorded(_TESTS + "test_publish_batch_messages_without_topic", "2023-08-24"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-57",
        _PUBLISHING,
        "Group and deduplication id of a publish have 1 to 128 letters, digits and punctuation marks; others are"
        " refused.",
        (documented(_API + "API_Publish.html"),),
        ("hide-errors",),
    ),
    Promise(
        "SNS-58",
        _PUBLISHING,
        "A batch returns for each entry a message id and a rising sequence number, in the order given.",
        (recorded(_TESTS + "test_publish_batch_messages_from_fifo_topic_to_fifo_queue", "2023-12-07"),),
        ("lose-publishes",),
    ),
    Promise(
        "SNS-59",
        _PUBLISHING,
        "A batch published again returns the ids of the first, entry by entry.",
        (recorded(_TESTS + "test_publish_batch_messages_from_fifo_topic_to_fifo_queue", "2025-12-17"),),
        ("forget-deduplication",),
    ),
    Promise(
        "SNS-38",
        _FILTER,
        "A filter policy lets through the messages whose attributes match, in order, and no other.",
        (
            documented(SNS_GUIDE + "fifo-message-filtering.html"),
            documented(SNS_GUIDE + "sns-subscription-filter-policies.html"),
        ),
        ("ignore-filter-policy",),
    ),
    Promise(
        "SNS-68",
        _FILTER,
        "A filter policy with the scope MessageBody looks at a JSON body instead.",
        (documented(SNS_GUIDE + "sns-message-filtering-scope.html", read="2026-11-21"),),
        ("ignore-filter-policy",),
    ),
    Promise(
        "SNS-72",
        _FILTER,
        "A filter policy can ask whether an attribute is there, or is not.",
        (recorded(_FILTER_TESTS + "test_exists_filter_policy", "2024-05-14"),),
        ("ignore-filter-policy",),
    ),
    Promise(
        "SNS-73",
        _FILTER,
        "A filter policy can ask for a number in a range.",
        (
            recorded(_FILTER_TESTS + "test_filter_policy", "2024-05-14"),
            documented(SNS_GUIDE + "numeric-value-matching.html", read="2026-11-21"),
        ),
        ("ignore-filter-policy",),
    ),
    Promise(
        "SNS-74",
        _FILTER,
        "A filter policy can ask for the start of a text, for its end, or for anything but a text.",
        (documented(SNS_GUIDE + "string-value-matching.html", read="2026-11-21"),),
        ("ignore-filter-policy",),
    ),
    Promise(
        "SNS-75",
        _FILTER,
        "Every key of a filter policy must match, and for each key any of its values.",
        (documented(SNS_GUIDE + "and-or-logic.html", read="2026-11-21"),),
        ("ignore-filter-policy",),
    ),
    Promise(
        "SNS-76",
        _FILTER,
        "The entries of a batch are filtered one by one.",
        (
            documented(SNS_GUIDE + "sns-subscription-filter-policies.html"),
            unverified("inferred: a policy is about messages"),
        ),
        ("ignore-filter-policy",),
    ),
    Promise(
        "SNS-77",
        _FILTER,
        "A subscription reports its filter policy, with the scope MessageAttributes unless another was given.",
        (
            recorded(_FILTER_TESTS + "test_filter_policy", "2024-05-14"),
            recorded(_FILTER_TESTS + "test_set_subscription_filter_policy_scope", "2024-05-14"),
        ),
        ("ignore-filter-scope",),
    ),
    Promise(
        "SNS-78",
        _FILTER,
        "A malformed filter policy is refused.",
        (
            recorded(_FILTER_TESTS + "test_validate_policy", "2024-05-14"),
            recorded(_FILTER_TESTS + "test_validate_policy_string_operators", "2024-05-15"),
        ),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-79",
        _FILTER,
        "A filter policy with an operand of the wrong type, or a range whose bottom is above its top, is refused.",
        (
            recorded(_FILTER_TESTS + "test_validate_policy_numeric_operator", "2024-05-14"),
            recorded(_FILTER_TESTS + "test_validate_policy_exists_operator", "2024-05-14"),
            recorded(_FILTER_TESTS + "test_validate_policy_string_operators", "2024-05-15"),
        ),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-80",
        _FILTER,
        "A filter policy of more than 5 keys, or of more than 150 combinations of values, is refused.",
        (
            recorded(_FILTER_TESTS + "test_policy_complexity", "2024-05-14"),
            documented(SNS_GUIDE + "subscription-filter-policy-constraints.html", read="2026-11-21"),
        ),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-81",
        _FILTER,
        "A filter policy of attributes cannot be nested; one of the body can.",
        (recorded(_FILTER_TESTS + "test_sub_filter_policy_nested_property", "2024-05-14"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
    Promise(
        "SNS-82",
        _FILTER,
        "A scope of a filter policy other than MessageAttributes and MessageBody is refused.",
        (recorded(_FILTER_TESTS + "test_set_subscription_filter_policy_scope", "2024-05-14"),),
        (
            "hide-errors",
            "blur-errors",
        ),
    ),
)
