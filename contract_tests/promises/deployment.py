"""What holds of a deployed environment."""

from contract_tests.promises.promise import API, GUIDE, SNS_GUIDE, Promise, Promiser, documented

_DEPLOYMENT = "Deployment"

PROMISES: tuple[Promise, ...] = (
    Promise(
        "STK-01",
        _DEPLOYMENT,
        "Every queue, DLQ and undelivered DLQ is live with exactly the attributes the declaration gives it.",
        (documented(API + "API_SetQueueAttributes.html"),),
        ("lose-redrive-policy", "lose-encryption", "shorten-retention"),
        Promiser.STACK,
    ),
    Promise(
        "STK-02",
        _DEPLOYMENT,
        "The topic is live as declared: FIFO, deduplicating inside a group, with the declared archive and key.",
        (documented("https://docs.aws.amazon.com/sns/latest/api/API_SetTopicAttributes.html"),),
        ("widen-topic-scope",),
        Promiser.STACK,
    ),
    Promise(
        "STK-03",
        _DEPLOYMENT,
        "Each consumer's queue and nothing else is subscribed, raw, with its filter and a DLQ of its own for what SNS"
        " cannot deliver.",
        (documented(SNS_GUIDE + "sns-dead-letter-queues.html"),),
        ("hide-subscription", "share-undelivered-queue"),
        Promiser.STACK,
    ),
    Promise(
        "STK-04",
        _DEPLOYMENT,
        "The policies of queues and topics let in the topic for its queues and alarms for the operator topic, nobody"
        " from elsewhere, and nothing without TLS.",
        (documented("https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html"),),
        ("allow-plain-http", "allow-foreign-sources"),
        Promiser.STACK,
    ),
    Promise(
        "STK-05",
        _DEPLOYMENT,
        "Every alarm is live with the declared threshold, period and missing-data policy, and tells the operator"
        " topic.",
        (documented("https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html"),),
        ("mute-alarms", "raise-thresholds"),
        Promiser.STACK,
    ),
    Promise(
        "STK-06",
        _DEPLOYMENT,
        "A poison message in a consumer's queue ends in its DLQ, rings the alarm, and whoever subscribed to the"
        " operator topic hears of it.",
        (documented(GUIDE + "sqs-dead-letter-queues.html"),),
        ("withhold-dead-letters", "ignore-subscribe"),
        Promiser.STACK,
    ),
)
