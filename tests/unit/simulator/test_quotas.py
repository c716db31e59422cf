"""The quotas of 120,000 messages. The tests set them to three; the model reads them at each call.

AWS: avoid-backlog-with-the-same-message-group-id, API_ReceiveMessage (read 2026-11-23).
"""

import pytest

from sluice import limits
from sluice.simulator.model import AwsRefusal
from tests.unit.simulator.service import Service


def test_both_quotas_are_120000_messages() -> None:
    assert limits.FIFO_WINDOW_MESSAGES == 120_000
    assert limits.IN_FLIGHT_MESSAGES_MAX == 120_000


def test_a_fifo_queue_looks_for_groups_in_its_oldest_messages_only(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GRP-18: a backlog in one group hides the groups behind it, until enough of it is deleted."""
    monkeypatch.setattr(limits, "FIFO_WINDOW_MESSAGES", 3)
    url = service.queue()
    for number in range(4):
        service.send(url, f"a{number}", group="a")
    service.send(url, "b", group="b")

    in_flight = service.receive(url, most=2)
    while_b_is_hidden = service.bodies(url)  # the three oldest messages are a0, a1, a2
    for message in in_flight:
        service.sqs("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    service.receive(url, most=1)  # a2, which blocks a3; b is the third message now

    assert [message["Body"] for message in in_flight] == ["a0", "a1"]
    assert while_b_is_hidden == []
    assert service.bodies(url) == ["b"]


def test_a_fifo_queue_with_too_much_in_flight_answers_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIM-01: a receive returns no message and no error; after a delete it returns one."""
    monkeypatch.setattr(limits, "IN_FLIGHT_MESSAGES_MAX", 3)
    url = service.queue()
    for number in range(5):
        service.send(url, f"m{number}", group=f"g{number}")

    in_flight = service.receive(url, most=2)
    third = service.bodies(url, most=10)
    beyond_the_quota = service.bodies(url)
    service.sqs("DeleteMessage", QueueUrl=url, ReceiptHandle=in_flight[0]["ReceiptHandle"])

    assert third == ["m2"]
    assert beyond_the_quota == []
    assert service.bodies(url) == ["m3"]


def test_a_standard_queue_with_too_much_in_flight_refuses(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """LIM-01: a receive is refused with OverLimit (API_ReceiveMessage)."""
    monkeypatch.setattr(limits, "IN_FLIGHT_MESSAGES_MAX", 3)
    url = service.standard_queue()
    for number in range(4):
        service.sqs("SendMessage", QueueUrl=url, MessageBody=f"m{number}")

    received = service.bodies(url)

    assert len(received) == 3
    with pytest.raises(AwsRefusal) as refused:
        service.bodies(url)
    assert refused.value.code == "OverLimit"
    assert refused.value.status == 403
    assert refused.value.shape == "OverLimit"
