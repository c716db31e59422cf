"""AWS's prices of messages, with where they come from; and what messages cost by them.

What an environment costs without messages: docs/architecture/stacks.md.

No price here was checked against AWS's live price list: it cannot be reached from where Sluice is built. The lists are
https://aws.amazon.com/sns/pricing/ and https://aws.amazon.com/sqs/pricing/; free tiers are not deducted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

PRICE_DATE = "2026-11-21"
PRICE_REGION = "us-east-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """A price in US dollars, for `quantity` of `unit`, and where it was read."""

    usd: float
    unit: str
    source: str
    quantity: int = 1


_MILLION = 1_000_000
_GIGABYTE = 1e9
REQUEST_BYTES = 65_536  # of SQS: what is larger counts as several requests
PRICES = {
    "interface endpoint, data": Price(usd=0.01, unit="GB", source="Infracost vpc_endpoint; press"),
    "SNS FIFO publish": Price(
        usd=0.30, quantity=_MILLION, unit="million requests", source="Infracost sns_topic; press"
    ),
    "SNS FIFO publish, data": Price(usd=0.017, unit="GB", source="Infracost sns_topic"),
    "SNS FIFO delivery": Price(usd=0.01, quantity=_MILLION, unit="million messages", source="Infracost sns_topic"),
    "SNS FIFO delivery, data": Price(usd=0.001, unit="GB", source="Infracost sns_topic"),
    "SQS FIFO request": Price(
        usd=0.50, quantity=_MILLION, unit="million requests of up to 64 KB", source="Infracost sqs_queue; press"
    ),
}


def usd(name: str) -> float:
    """Return the price of one."""
    return PRICES[name].usd / PRICES[name].quantity


def million_messages(*, consumers: int, kilobytes: float) -> dict[str, float]:
    """Return what a million messages cost that each consumer gets, in US dollars by line.

    Args:
        consumers: queues each message is delivered to; at least one.
        kilobytes: size of a message; at most 64, above which SQS counts it as more requests.
    """
    return {
        **fan_out(published=_MILLION, delivered=consumers * _MILLION, message_bytes=1_000 * kilobytes),
        "SQS send, receive, delete": consumers * 3 * _MILLION * usd("SQS FIFO request"),
        "through the endpoint": consumers
        * kilobytes
        * usd("interface endpoint, data"),  # a kilobyte is a gigabyte here
    }


def requests(call_bytes: float) -> int:
    """Return as how many requests SQS counts a call with so many bytes in it, or in its answer; a batch is one call."""
    return max(1, ceil(call_bytes / REQUEST_BYTES))


def fan_out(*, published: int, delivered: int, message_bytes: float) -> Mapping[str, float]:
    """Return what an SNS FIFO topic costs, in US dollars by line; each message of a batch counts.

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
