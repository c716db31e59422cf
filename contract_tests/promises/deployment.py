"""What holds of a deployed environment."""

from contract_tests.promises.promise import Promise, Promiser, api, documented, guide, sns_api, sns_guide

_DEPLOYMENT = {
    "STK-01": Promise(
        "Every queue, DLQ and undelivered DLQ is live with exactly the attributes the declaration gives it.",
        (api("SetQueueAttributes"),),
        ("lose-redrive-policy", "lose-encryption", "shorten-retention"),
        promiser=Promiser.STACK,
    ),
    "STK-02": Promise(
        "The topic is live as declared: FIFO, deduplicating inside a group, with the declared archive and key.",
        (sns_api("SetTopicAttributes"),),
        ("widen-topic-scope",),
        promiser=Promiser.STACK,
    ),
    "STK-03": Promise(
        "The subscriptions of the topic are exactly the consumers' queues, each with raw delivery, its filter and a"
        " DLQ of its own.",
        (sns_guide("sns-dead-letter-queues"),),
        ("hide-subscription", "share-undelivered-queue", "match-by-body", "invent-filters", "keep-pending"),
        promiser=Promiser.STACK,
    ),
    "STK-04": Promise(
        "Policies allow only the topic to send to its queues and only alarms to publish to the operator topic, and"
        " deny requests without TLS.",
        (documented("https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html"),),
        ("allow-plain-http", "allow-foreign-sources"),
        promiser=Promiser.STACK,
    ),
    "STK-05": Promise(
        "Every alarm is live with the declared metrics, threshold, period and missing-data policy, and notifies the"
        " operator topic, and nobody else.",
        (documented("https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html"),),
        ("mute-alarms", "raise-thresholds", "misdirect-expressions", "tell-without-data"),
        promiser=Promiser.STACK,
    ),
    "STK-06": Promise(
        "A poison message goes to its consumer's DLQ, the alarm rings, and the subscribers of the operator topic are"
        " notified.",
        (guide("sqs-dead-letter-queues"),),
        ("withhold-dead-letters", "ignore-subscribe"),
        promiser=Promiser.STACK,
    ),
}

AREAS = {
    "Deployment": _DEPLOYMENT,
}
