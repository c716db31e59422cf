"""What the tests of several stacks expect to find."""

from tests.unit.stacks.synthesis import Properties

QUEUE_METRICS = {
    "visible": ("ApproximateNumberOfMessagesVisible", "Average"),
    "inflight": ("ApproximateNumberOfMessagesNotVisible", "Average"),
    "empty": ("NumberOfEmptyReceives", "Sum"),
    "received": ("NumberOfMessagesReceived", "Sum"),
    "age": ("ApproximateAgeOfOldestMessage", "Maximum"),
}


def of_queue(id_: str, queue: str, **more: int) -> Properties:
    """Return the query for a metric of a queue; an alarm's has a period more."""
    name, statistic = QUEUE_METRICS[id_]
    return {
        "Id": id_,
        "MetricStat": {
            "Metric": {
                "Namespace": "AWS/SQS",
                "MetricName": name,
                "Dimensions": [{"Name": "QueueName", "Value": queue}],
            },
            "Stat": statistic,
            **more,
        },
        "ReturnData": False,
    }
