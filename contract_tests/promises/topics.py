"""What a FIFO topic is made of, what may be subscribed to it, and what may be published to it."""

from contract_tests.promises.promise import Promise, peer, recorded, reported, sns_api, sns_guide, unverified, verified

_TESTS = "sns/test_sns.py::"
_STACK_TESTS = "cloudformation/resources/test_sns.py::"
_FILTER_TESTS = "sns/test_sns_filter_policy.py::"

_TOPIC = {
    "SNS-01": Promise(
        "A FIFO topic needs FifoTopic and the suffix .fifo, and a name of at most 256 characters.",
        (
            recorded(_TESTS + "test_create_topic_name_constraints", "2026-02-06"),
            recorded(_STACK_TESTS + "test_sns_topic_fifo_without_suffix_fails", "2025-08-21"),
        ),
        ("accept-topics", "blur-topics"),
    ),
    "SLU-46": Promise(
        "The name of a FIFO topic has at most 256 characters, `.fifo` included.",
        (sns_api("CreateTopic"),),
        ("accept-topics",),
    ),
    "SNS-04": Promise(
        "Setting FifoTopic on an existing topic is refused.",
        (recorded(_TESTS + "test_topic_get_attributes_with_fifo_false", "2025-09-29"),),
        ("accept-topic-attributes", "blur-topic-attributes"),
    ),
    "SNS-46": Promise(
        "A new FIFO topic has content-based deduplication switched off and no subscription.",
        (recorded(_TESTS + "test_publish_fifo_messages_to_dlq", "2023-08-24"),),
        ("strip-topic",),
    ),
    "SNS-84": Promise(
        "A topic counts its confirmed subscriptions.", (sns_api("GetTopicAttributes"),), ("strip-topic",)
    ),
    "SNS-47": Promise(
        "Creating a topic again with the same attributes returns the ARN of the existing topic.",
        (recorded(_TESTS + "test_create_duplicate_topic_check_idempotency", "2025-10-13"),),
        ("rename-repeats",),
    ),
    "SNS-105": Promise(
        "Creating a topic again with other attributes is refused.",
        (recorded(_TESTS + "test_create_topic_different_attrs", "2026-02-06"),),
        ("hide-errors", "blur-errors"),
    ),
    "SNS-106": Promise(
        "A topic goes by its changed ContentBasedDeduplication and MaximumMessageSize.",
        (sns_api("SetTopicAttributes"),),
        ("hide-errors",),
    ),
    "SNS-48": Promise(
        "Creating a topic again with other tags is refused.",
        (recorded(_TESTS + "test_create_duplicate_topic_with_more_tags", "2025-10-13"),),
        ("accept-topics", "blur-topics"),
    ),
    "SNS-49": Promise(
        "Tags of a topic are kept, replaced and removed.",
        (recorded(_TESTS + "test_tags", "2025-10-13"),),
        ("ignore-tags",),
    ),
    "SNS-50": Promise(
        "Two tags with the same key are refused.",
        (recorded(_TESTS + "test_tags", "2025-10-13"),),
        ("accept-topics", "blur-topics"),
    ),
    "SNS-90": Promise(
        "Once a topic's content-based deduplication is switched on, publishes without an id are accepted; once it is"
        " switched off, they are refused.",
        (sns_api("SetTopicAttributes"),),
        ("only-show-topic-ids",),
    ),
    "SNS-51": Promise(
        "FifoThroughputScope accepts MessageGroup, and refuses a value that is neither MessageGroup nor Topic.",
        (sns_api("SetTopicAttributes"),),
        ("accept-topic-attributes", "widen-topic-scope"),
    ),
    "SNS-98": Promise(
        "FifoThroughputScope cannot be set back from MessageGroup to Topic.",
        (sns_guide("fifo-high-throughput"),),
        ("accept-topic-attributes",),
    ),
    "SNS-100": Promise(
        "A topic reports MaximumMessageSize only where it was set.",
        (sns_api("GetTopicAttributes"),),
        ("invent-message-size",),
    ),
    "SNS-30": Promise(
        "MaximumMessageSize of a topic is the size of the largest message it takes, from 1 KiB to 1 MiB.",
        (sns_api("SetTopicAttributes"),),
        ("ignore-message-size", "shrink-topic-size", "raise-topic-size"),
    ),
    "SNS-40": Promise(
        "The retention of an archive is 1 to 365 days; anything else is refused.",
        (
            sns_guide("message-archiving-and-replay-topic-owner"),
            recorded(_STACK_TESTS + "test_sns_topic_with_attributes", "2024-08-16"),
        ),
        ("accept-topic-attributes",),
    ),
    "SNS-132": Promise(
        "A FIFO topic takes an archive policy, a standard topic does not.",
        (sns_guide("message-archiving-and-replay-topic-owner"),),
        ("accept-topic-attributes", "widen-archive-period"),
    ),
    "SNS-103": Promise(
        "A subscription with a replay policy gets what was published before it, in order, and then what is new.",
        (sns_guide("message-archiving-and-replay-subscriber"),),
        ("skip-replays",),
    ),
    "SNS-104": Promise(
        "A replayed message has the message id and the time of its publish, and says that it is replayed.",
        (sns_guide("message-archiving-and-replay-subscriber"),),
        ("disguise-replays",),
    ),
    "SNS-131": Promise(
        "A replay delivers only what the filter policy of the subscription lets through.",
        (sns_guide("message-archiving-and-replay-subscriber"),),
        ("ignore-filter-policy",),
    ),
    "SNS-41": Promise(
        "A topic with an archive cannot be deleted.",
        (
            reported("https://github.com/aws/aws-cdk/pull/37113", "2026-11-21"),
            reported("https://github.com/pulumi/pulumi-aws/issues/4370", "2026-11-21"),
            sns_guide("message-archiving-and-replay-topic-owner", read="2026-11-21"),
        ),
        ("accept-topics", "blur-topics"),
    ),
}

_SUBSCRIPTION = {
    "SNS-05": Promise(
        "A FIFO queue cannot be subscribed to a standard topic.",
        (
            recorded(_TESTS + "test_validations_for_fifo", "2025-08-18"),
            verified("test_sns/test_publishing.py::test_publish_from_standard_sns_to_fifo_sqs"),
        ),
        ("accept-subscriptions", "blur-subscriptions"),
    ),
    "SNS-06": Promise(
        "A standard queue can be subscribed to a FIFO topic.",
        (
            recorded(_TESTS + "test_fifo_topic_to_regular_sqs", "2025-08-18"),
            verified("test_sns/test_publishing.py::test_publish_from_sns_fifo_to_standard_sqs"),
        ),
        ("ignore-standard-queues",),
    ),
    "SNS-07": Promise(
        "Nothing but a queue can be subscribed to a FIFO topic.",
        (
            reported("https://github.com/hashicorp/terraform-provider-aws/issues/38441", "2026-11-20"),
            sns_guide("fifo-message-delivery"),
        ),
        ("accept-subscriptions",),
    ),
    "SNS-08": Promise(
        "The DLQ of a FIFO subscription must be a FIFO queue.",
        (recorded(_TESTS + "test_validations_for_fifo", "2025-08-18"),),
        ("accept-subscription-attributes", "blur-subscription-attributes"),
    ),
    "SNS-34": Promise(
        "The DLQ of a subscription must be in the same Region.",
        (sns_guide("sns-dead-letter-queues"),),
        ("accept-subscription-attributes",),
    ),
    "SNS-35": Promise(
        "A queue is subscribed by its ARN, which need not exist; a URL is refused.",
        (
            recorded(_TESTS + "test_subscribe_sqs_queue_url", "2025-10-06"),
            recorded(_TESTS + "test_subscribe_unknown_sqs_queue", "2025-10-06"),
        ),
        ("accept-subscriptions", "blur-subscriptions"),
    ),
    "SNS-36": Promise(
        "Subscribing a queue again returns the existing subscription, and is refused if the attributes differ.",
        (recorded(_TESTS + "test_subscribe_idempotency", "2025-10-06"),),
        ("rename-repeats", "accept-subscriptions", "blur-subscriptions"),
    ),
    "SNS-60": Promise(
        "A subscription of a queue of the same account is confirmed at once.",
        (recorded(_TESTS + "test_create_subscriptions_with_attributes", "2025-10-06"),),
        ("leave-pending",),
    ),
    "SNS-61": Promise(
        "An attribute of a subscription with an unknown name, or with a value it cannot have, is refused.",
        (
            recorded(_TESTS + "test_validate_set_sub_attributes", "2025-10-06"),
            recorded(_TESTS + "test_create_subscriptions_with_attributes", "2025-10-06"),
        ),
        ("accept-subscription-attributes", "blur-subscription-attributes"),
    ),
    "SNS-62": Promise(
        "A subscription with an unknown protocol is refused.",
        (recorded(_TESTS + "test_subscribe_with_invalid_protocol", "2025-10-06"),),
        ("accept-subscriptions", "blur-subscriptions"),
    ),
    "SNS-63": Promise(
        "An unsubscribed queue gets nothing more, and its subscription is gone.",
        (recorded(_TESTS + "test_not_found_error_on_set_subscription_attributes", "2025-10-06"),),
        ("ignore-unsubscribe", "accept-subscription-attributes", "blur-subscription-attributes"),
    ),
    "SNS-64": Promise(
        "Unsubscribing a subscription a second time is accepted.",
        (recorded(_TESTS + "test_unsubscribe_from_non_existing_subscription", "2025-10-06"),),
        ("ignore-unsubscribe",),
    ),
    "SNS-127": Promise(
        "ListSubscriptionsByTopic lists the subscriptions of the topic, and no others.",
        (sns_api("ListSubscriptionsByTopic"),),
        ("hide-subscription",),
    ),
    "SNS-125": Promise(
        "Deleting a topic deletes its subscriptions, and deleting it again is accepted.",
        (recorded(_TESTS + "test_delete_topic_idempotency", "2025-09-29"), sns_api("DeleteTopic")),
        ("keep-topics",),
    ),
    "SNS-31": Promise(
        "Messages that cannot be delivered go to the DLQ of the subscription, in order, with their group and"
        " deduplication id.",
        (recorded(_TESTS + "test_publish_fifo_messages_to_dlq", "2023-08-24"),),
        ("lose-undelivered", "regroup-messages"),
    ),
    "SNS-65": Promise(
        "The envelope of a message that could not be delivered has the message id and sequence number of the publish.",
        (recorded(_TESTS + "test_publish_fifo_messages_to_dlq", "2023-08-24"),),
        ("lose-undelivered", "freeze-sequence-numbers"),
    ),
    "SNS-32": Promise(
        "Only the entries of a batch that cannot be delivered go to the DLQ of the subscription.",
        (sns_guide("sns-dead-letter-queues"), unverified("inferred for a batch that fails in part")),
        ("lose-undelivered",),
    ),
    "SNS-86": Promise(
        "Raw delivery that is switched on or off later holds for later publishes.",
        (sns_api("SetSubscriptionAttributes"),),
        ("only-show-raw-delivery",),
    ),
    "SNS-89": Promise(
        "A DLQ that a subscription is given later gets what cannot be delivered from then on.",
        (sns_api("SetSubscriptionAttributes"), sns_guide("sns-dead-letter-queues")),
        ("only-show-undelivered",),
    ),
    "SNS-108": Promise(
        "A queue whose policy denies the send, or allows another topic only, gets nothing.",
        (sns_guide("subscribe-sqs-queue-to-sns-topic"), unverified("IAM's rules: an explicit deny wins")),
        ("keep-first-policy",),
    ),
    "SNS-44": Promise(
        "A queue whose policy does not allow the topic gets nothing, and the publish succeeds; once it is allowed, the"
        " queue gets what is published from then on.",
        (peer("SetupFifoTopicAndQueue"), sns_guide("sns-fifo-topics")),
        ("ignore-queue-policies", "lose-second-subscription"),
    ),
}

_PUBLISHING = {
    "SNS-10": Promise(
        "A publish without a deduplication id to a topic without content-based deduplication is refused.",
        (recorded(_TESTS + "test_validations_for_fifo", "2025-08-18"),),
        ("accept-publishes", "blur-publishes"),
    ),
    "SNS-11": Promise(
        "A standard topic takes a message group id and refuses a deduplication id.",
        (
            recorded(_TESTS + "test_validations_for_fifo", "2025-08-18"),
            recorded(_TESTS + "test_publish_message_group_id", "2025-08-18"),
        ),
        ("accept-publishes", "blur-publishes"),
    ),
    "SNS-25": Promise(
        "A batch of more than ten entries, or with one entry id twice, is refused.",
        (recorded(_TESTS + "test_publish_batch_exceptions", "2023-08-24"),),
        ("accept-publish-batches", "blur-publish-batches"),
    ),
    "SNS-114": Promise(
        "A batch without an entry is refused.",
        (sns_api("PublishBatch"),),
        ("hide-errors",),
    ),
    "SNS-26": Promise(
        "A batch with an entry that lacks group or deduplication id is refused as a whole.",
        (recorded(_TESTS + "test_publish_batch_exceptions", "2023-08-24"),),
        ("accept-publish-batches", "blur-publish-batches"),
    ),
    "SNS-27": Promise(
        "The id of a batch entry is 1 to 80 letters, digits, hyphens and underscores.",
        (recorded(_TESTS + "test_publish_batch_invalid_entry_id", "2025-12-23"),),
        ("accept-publish-batches", "blur-publish-batches"),
    ),
    "SNS-28": Promise(
        "A batch of more than 256 KiB in all is refused.",
        (recorded(_TESTS + "test_publish_batch_too_long_message", "2024-09-04"),),
        ("accept-publish-batches", "blur-publish-batches"),
    ),
    "SNS-29": Promise(
        "A message of more than 256 KiB is refused.",
        (recorded(_TESTS + "test_publish_too_long_message", "2024-09-04"),),
        ("accept-publishes", "blur-publishes"),
    ),
    "SNS-99": Promise(
        "Message attributes count towards the size of a publish.",
        (sns_api("Publish"), sns_guide("large-message-payloads", read="2026-11-23")),
        ("strip-published-attributes",),
    ),
    "SNS-128": Promise(
        "A subject that has more than 100 characters, or more than one line, is refused.",
        (sns_api("Publish"),),
        ("accept-publishes",),
    ),
    "SNS-52": Promise(
        "An empty message, and an empty subject, are refused.",
        (
            recorded(_TESTS + "test_empty_sns_message", "2023-08-24"),
            recorded(_TESTS + "test_publish_with_empty_subject", "2023-08-24"),
        ),
        ("accept-publishes", "blur-publishes"),
    ),
    "SNS-53": Promise(
        "With MessageStructure `json`, a message that is not a JSON object with a default entry is refused.",
        (recorded(_TESTS + "test_message_structure_json_exc", "2023-08-24"),),
        ("accept-publishes", "blur-publishes"),
    ),
    "SNS-107": Promise(
        "With MessageStructure `json`, a queue gets the entry for `sqs`, else the default.",
        (sns_api("Publish"),),
        ("corrupt-bodies",),
    ),
    "SNS-54": Promise(
        "A message attribute without a value of its type is refused.",
        (recorded(_TESTS + "test_empty_or_wrong_message_attributes", "2024-11-15"),),
        ("accept-publishes", "blur-publishes"),
    ),
    "SNS-55": Promise(
        "A message attribute with a malformed name is refused.",
        (recorded(_TESTS + "test_empty_or_wrong_message_attributes", "2024-11-15"),),
        ("accept-publishes", "blur-publishes"),
    ),
    "SNS-56": Promise(
        "A batch to a topic that does not exist is refused.",
        (recorded(_TESTS + "test_publish_batch_messages_without_topic", "2023-08-24"),),
        ("accept-publish-batches", "blur-publish-batches"),
    ),
    "SNS-57": Promise(
        "Group and deduplication id of a publish have 1 to 128 letters, digits and punctuation marks; others are"
        " refused.",
        (sns_api("Publish"),),
        ("accept-publishes",),
    ),
    "SNS-58": Promise(
        "A batch returns for each entry a message id and a rising sequence number, in the order given.",
        (recorded(_TESTS + "test_publish_batch_messages_from_fifo_topic_to_fifo_queue", "2025-12-17"),),
        ("reverse-publish-results",),
    ),
    "SNS-59": Promise(
        "A batch that is published again returns for each entry the ids of the first publish.",
        (recorded(_TESTS + "test_publish_batch_messages_from_fifo_topic_to_fifo_queue", "2025-12-17"),),
        ("forget-deduplication",),
    ),
}

_FILTER_POLICY = {
    "SNS-38": Promise(
        "A filter policy lets through the messages whose attributes match, in order, and no other.",
        (sns_guide("fifo-message-filtering"), sns_guide("sns-subscription-filter-policies")),
        ("ignore-filter-policy",),
    ),
    "SNS-68": Promise(
        "A filter policy with the scope MessageBody is matched against the JSON body instead of the attributes.",
        (sns_guide("sns-message-filtering-scope", read="2026-11-21"),),
        ("ignore-filter-policy",),
    ),
    "SNS-72": Promise(
        "A filter policy can require that an attribute exists, or that it does not.",
        (recorded(_FILTER_TESTS + "test_exists_filter_policy", "2024-05-14"),),
        ("ignore-filter-policy",),
    ),
    "SNS-73": Promise(
        "A filter policy can require a number in a range.",
        (
            recorded(_FILTER_TESTS + "test_filter_policy", "2024-05-14"),
            sns_guide("numeric-value-matching", read="2026-11-21"),
        ),
        ("ignore-filter-policy",),
    ),
    "SNS-74": Promise(
        "A filter policy can match the start of a text, the end of a text, or anything but a text.",
        (sns_guide("string-value-matching", read="2026-11-21"),),
        ("ignore-filter-policy",),
    ),
    "SNS-109": Promise(
        "A filter policy can match text in any case, an address in a network, and what has not a prefix.",
        (
            recorded(_FILTER_TESTS + "test_filter_policy_ip_address_condition", "2024-12-04"),
            recorded(_FILTER_TESTS + "test_validate_policy_nested_anything_but_operator", "2024-05-15"),
            sns_guide("string-value-matching"),
        ),
        ("ignore-filter-policy",),
    ),
    "SNS-110": Promise(
        "A filter policy can match a pattern with wildcards, and what has not its form.",
        (
            reported("chaosreload.github.io/aws-hands-on-lab: sns-message-filtering-operators", "2026-03-28"),
            sns_guide("string-value-matching"),
        ),
        ("ignore-filter-policy",),
    ),
    "SNS-111": Promise(
        "Of the objects of an $or in a filter policy one is enough, beside the other keys.",
        (
            recorded(_FILTER_TESTS + "test_filter_policy_on_message_body_or_attribute", "2024-12-03"),
            sns_guide("and-or-logic"),
        ),
        ("ignore-filter-policy",),
    ),
    "SNS-112": Promise(
        "A filter policy of the body matches keys of objects, and any element of a list.",
        (
            recorded(_FILTER_TESTS + "test_filter_policy_on_message_body", "2024-12-03"),
            recorded(_FILTER_TESTS + "test_filter_policy_on_message_body_array_attributes", "2024-12-03"),
        ),
        ("ignore-filter-policy",),
    ),
    "SNS-75": Promise(
        "A filter policy matches a message if each of its keys matches one of the key's values.",
        (sns_guide("and-or-logic", read="2026-11-21"),),
        ("ignore-filter-policy",),
    ),
    "SNS-76": Promise(
        "The entries of a batch are filtered one by one.",
        (sns_guide("sns-subscription-filter-policies"), unverified("inferred: a policy is about messages")),
        ("ignore-filter-policy",),
    ),
    "SNS-87": Promise(
        "A filter policy that is set later keeps out later publishes that do not match; once it is taken off, all are"
        " delivered.",
        (sns_api("SetSubscriptionAttributes"), sns_guide("sns-subscription-filter-policies")),
        ("only-show-filter-policy",),
    ),
    "SNS-88": Promise(
        "Once the scope of a filter policy is changed to MessageBody, later publishes are matched by their body.",
        (sns_api("SetSubscriptionAttributes"), sns_guide("sns-message-filtering-scope", read="2026-11-21")),
        ("only-show-filter-scope",),
    ),
    "SNS-77": Promise(
        "A subscription reports its filter policy, with the scope MessageAttributes unless another was given.",
        (
            recorded(_FILTER_TESTS + "test_filter_policy", "2024-05-14"),
            recorded(_FILTER_TESTS + "test_set_subscription_filter_policy_scope", "2024-05-14"),
        ),
        ("ignore-filter-scope",),
    ),
    "SNS-78": Promise(
        "A malformed filter policy is refused.",
        (
            recorded(_FILTER_TESTS + "test_validate_policy", "2024-05-14"),
            recorded(_FILTER_TESTS + "test_validate_policy_string_operators", "2024-12-03"),
        ),
        ("accept-subscriptions", "blur-subscriptions"),
    ),
    "SNS-79": Promise(
        "A filter policy with an operand of the wrong type, or a range whose bottom is above its top, is refused.",
        (
            recorded(_FILTER_TESTS + "test_validate_policy_numeric_operator", "2024-05-14"),
            recorded(_FILTER_TESTS + "test_validate_policy_exists_operator", "2024-05-14"),
            recorded(_FILTER_TESTS + "test_validate_policy_string_operators", "2024-12-03"),
        ),
        ("accept-subscriptions", "blur-subscriptions"),
    ),
    "SNS-80": Promise(
        "A filter policy of more than 5 keys, or of more than 150 combinations of values, is refused.",
        (
            recorded(_FILTER_TESTS + "test_policy_complexity", "2024-05-14"),
            sns_guide("subscription-filter-policy-constraints", read="2026-11-21"),
        ),
        ("accept-subscriptions", "blur-subscriptions"),
    ),
    "SNS-81": Promise(
        "A nested filter policy is refused for attributes and accepted for the body.",
        (recorded(_FILTER_TESTS + "test_sub_filter_policy_nested_property", "2024-05-14"),),
        ("accept-subscription-attributes", "blur-subscription-attributes"),
    ),
    "SNS-82": Promise(
        "A scope of a filter policy other than MessageAttributes and MessageBody is refused.",
        (recorded(_FILTER_TESTS + "test_set_subscription_filter_policy_scope", "2024-05-14"),),
        ("accept-subscription-attributes", "blur-subscription-attributes"),
    ),
}

AREAS = {
    "Topic": _TOPIC,
    "Subscription": _SUBSCRIPTION,
    "Publishing": _PUBLISHING,
    "Filter policy": _FILTER_POLICY,
}
