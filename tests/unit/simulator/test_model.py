"""The model's rules about time. A test sets the instant, so five minutes and fourteen days cost nothing."""

import pytest

from sluice.simulator.model import AwsRefusal
from tests.unit.simulator.service import Service, arn_of, redrive_to

MINUTE = 60
DAY = 86_400


@pytest.mark.parametrize(
    ("after_seconds", "is_new"), [(0, False), (5 * MINUTE - 0.001, False), (5 * MINUTE, True), (DAY, True)]
)
def test_a_deduplication_id_is_remembered_for_exactly_five_minutes(
    service: Service, after_seconds: float, *, is_new: bool
) -> None:
    """DED-08: a repeat counts as a new message from the instant on at which the five minutes end."""
    url = service.queue()
    first = service.send(url, "m", id="same")
    service.now += after_seconds

    again = service.send(url, "m", id="same")

    assert (again["MessageId"] != first["MessageId"]) is is_new


def test_repeats_do_not_extend_the_deduplication_window(service: Service) -> None:
    """DED-08: six sends, one a minute; the sixth is five minutes after the first, and so a new message."""
    url = service.queue()
    ids = []
    for _ in range(6):
        ids.append(service.send(url, "m", id="same")["MessageId"])
        service.now += MINUTE

    assert [id_ == ids[0] for id_ in ids] == [True, True, True, True, True, False]


def test_a_topic_remembers_a_deduplication_id_for_five_minutes(service: Service) -> None:
    """SNS-18: a repeat within five minutes gets the first publish's ids, a later one new ids."""
    topic = service.sns("CreateTopic", Name="t.fifo", Attributes={"FifoTopic": "true"})["TopicArn"]
    publish = {"TopicArn": topic, "Message": "m", "MessageGroupId": "g", "MessageDeduplicationId": "same"}
    first = service.sns("Publish", **publish)
    service.now += 5 * MINUTE - 1
    inside = service.sns("Publish", **publish)
    service.now += 1
    after = service.sns("Publish", **publish)

    assert inside == first
    assert after["MessageId"] != first["MessageId"]
    assert int(after["SequenceNumber"]) > int(first["SequenceNumber"])


def test_a_message_is_kept_for_fourteen_days(service: Service) -> None:
    """VIS-17: one second before the end the message is there, at the end it is gone, and its group is not blocked."""
    url = service.queue(MessageRetentionPeriod=str(14 * DAY))
    service.send(url, "old")
    service.now += 14 * DAY - 1
    before_the_end = service.bodies(url, VisibilityTimeout=0)
    service.now += 1
    at_the_end = service.bodies(url)
    service.send(url, "new")

    assert before_the_end == ["old"]
    assert at_the_end == []
    assert service.bodies(url) == ["new"]


def test_retention_ends_for_a_message_in_flight(service: Service) -> None:
    """VIS-16: a message in flight is removed, and a younger one of its group is delivered."""
    url = service.queue(MessageRetentionPeriod="60")
    service.send(url, "old")
    service.now += 30
    service.receive(url, VisibilityTimeout=43_200)
    service.send(url, "young")

    blocked = service.bodies(url)
    service.now += 30

    assert blocked == []
    assert service.bodies(url) == ["young"]


def test_a_fifo_dlq_starts_retention_anew(service: Service) -> None:
    """DLQ-08: moved to the DLQ on the fourth of four days, the message stays there for another four."""
    dlq = service.queue("dlq.fifo")
    url = service.queue(RedrivePolicy=redrive_to(dlq, 1))
    service.send(url, "m")
    service.receive(url, VisibilityTimeout=0)
    service.now += 4 * DAY - 1
    service.receive(url)
    service.now += 4 * DAY - 1
    before_the_end = service.bodies(dlq, VisibilityTimeout=0)
    service.now += 1

    assert before_the_end == ["m"]
    assert service.bodies(dlq) == []


def test_a_standard_dlq_keeps_the_time_of_sending(service: Service) -> None:
    """DLQ-08: retention counts from the sending, so a message moved a second before its end stays for that second."""
    dlq = str(service.sqs("CreateQueue", QueueName="dlq")["QueueUrl"])
    url = str(service.sqs("CreateQueue", QueueName="q", Attributes={"RedrivePolicy": redrive_to(dlq, 1)})["QueueUrl"])
    service.sqs("SendMessage", QueueUrl=url, MessageBody="m")
    service.receive(url, VisibilityTimeout=0)
    service.now += 4 * DAY - 1
    service.receive(url)
    arrived = service.bodies(dlq, VisibilityTimeout=0)
    service.now += 1

    assert arrived == ["m"]
    assert service.bodies(dlq) == []


@pytest.mark.parametrize(("extended", "delivered"), [(None, ["a", "b", "c"]), (0, []), (1, ["a"]), (2, ["a", "b"])])
def test_nothing_behind_an_invisible_message_is_delivered(
    service: Service, extended: int | None, delivered: list[str]
) -> None:
    """GRP-10: of three messages in flight for one second, one is extended; `extended` is its index, None for none.

    The four cases are those with which AWS was recorded.
    """
    url = service.queue()
    for body in ("a", "b", "c"):
        service.send(url, body)
    in_flight = service.receive(url, VisibilityTimeout=1)
    if extended is not None:
        handle = in_flight[extended]["ReceiptHandle"]
        service.sqs("ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=60)
    service.now += 1

    assert service.bodies(url) == delivered


def test_groups_take_turns(service: Service) -> None:
    """GRP-03, GRP-07: a group received with visibility timeout 0 comes again after those that wait (recorded)."""
    url = service.queue()
    for body in ("g1-m1", "g1-m2", "g2-m1", "g2-m2", "g3-m1"):
        service.send(url, body, group=body[:2])

    first = service.bodies(url, most=4, VisibilityTimeout=0)

    assert first == ["g1-m1", "g1-m2", "g2-m1", "g2-m2"]
    assert service.bodies(url) == ["g3-m1", "g1-m1", "g1-m2", "g2-m1", "g2-m2"]


def test_a_handle_expires_to_the_millisecond(service: Service) -> None:
    """VIS-01: a delete at the end of the timeout is refused, a millisecond before it is not."""
    url = service.queue()
    service.send(url, "m")
    (first,) = service.receive(url, VisibilityTimeout=30)
    service.now += 30
    with pytest.raises(AwsRefusal, match="The receipt handle has expired"):
        service.sqs("DeleteMessage", QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    (second,) = service.receive(url, VisibilityTimeout=30)
    service.now += 29.999
    service.sqs("DeleteMessage", QueueUrl=url, ReceiptHandle=second["ReceiptHandle"])
    service.now += DAY

    assert service.bodies(url) == []


def test_visibility_ends_twelve_hours_after_the_receive(service: Service) -> None:
    """VIS-13: 20 seconds after the receive, an extension by 12 hours less 20 seconds is allowed, and no longer one."""
    url = service.queue()
    service.send(url, "m")
    (received,) = service.receive(url)
    change = {"QueueUrl": url, "ReceiptHandle": received["ReceiptHandle"]}
    service.now += 20
    service.sqs("ChangeMessageVisibility", **change, VisibilityTimeout=43_200 - 20)

    with pytest.raises(AwsRefusal, match=r"beyond the limit \[43200 seconds\]"):
        service.sqs("ChangeMessageVisibility", **change, VisibilityTimeout=43_200 - 19)


@pytest.mark.parametrize(("after_seconds", "delivered"), [(5 * MINUTE + 1, []), (10 * MINUTE, ["m"])])
def test_a_forgotten_attempt_id_makes_a_new_receive(
    service: Service, after_seconds: float, delivered: list[str]
) -> None:
    """RCV-11: the receive is then a new one, without a message until the visibility timeout of ten minutes ends."""
    url = service.queue()
    service.send(url, "m")
    service.receive(url, VisibilityTimeout=10 * MINUTE, ReceiveRequestAttemptId="try")
    service.now += after_seconds

    assert service.bodies(url, ReceiveRequestAttemptId="try") == delivered


@pytest.mark.parametrize(
    ("operation", "timeout"),
    [
        ("DeleteMessage", {}),
        ("ChangeMessageVisibility", {"VisibilityTimeout": 40}),
        ("ChangeMessageVisibility", {"VisibilityTimeout": 30}),  # the timeout stays as it is
    ],
)
def test_a_receive_cannot_be_repeated_after_a_delete_or_change(
    service: Service, operation: str, timeout: dict[str, int]
) -> None:
    """RCV-12: AWS refuses the repeat, even if the change had no effect."""
    url = service.queue()
    service.send(url, "m")
    (received,) = service.receive(url, VisibilityTimeout=30, ReceiveRequestAttemptId="try")
    service.sqs(operation, QueueUrl=url, ReceiptHandle=received["ReceiptHandle"], **timeout)

    with pytest.raises(AwsRefusal, match="the receive call is not retryable") as refused:
        service.receive(url, VisibilityTimeout=30, ReceiveRequestAttemptId="try")
    assert refused.value.code == "InvalidParameterValue"


@pytest.mark.parametrize("case", ["expired", "purged", "received again"])
def test_an_attempt_is_over_when_its_messages_are_no_longer_held(service: Service, case: str) -> None:
    """RCV-12: the repeat is refused; with another attempt id the expired message comes, unless it was purged."""
    url = service.queue()
    service.send(url, "m")
    service.receive(url, VisibilityTimeout=30, ReceiveRequestAttemptId="try")
    service.now += 30
    if case == "received again":
        service.receive(url)
    if case == "purged":
        service.sqs("PurgeQueue", QueueUrl=url)

    with pytest.raises(AwsRefusal, match="the receive call is not retryable"):
        service.receive(url, ReceiveRequestAttemptId="try")
    assert service.bodies(url, ReceiveRequestAttemptId="other") == (["m"] if case == "expired" else [])


def test_a_repeated_receive_hides_its_messages_anew(service: Service) -> None:
    """RCV-11: the visibility timeout begins again with the repeat; receipt handle and receive count stay."""
    url = service.queue()
    service.send(url, "m")
    first = service.receive(url, VisibilityTimeout=30, ReceiveRequestAttemptId="try")
    service.now += 29
    again = service.receive(url, VisibilityTimeout=30, ReceiveRequestAttemptId="try")
    service.now += 29
    hidden = service.bodies(url)
    service.sqs("DeleteMessage", QueueUrl=url, ReceiptHandle=first[0]["ReceiptHandle"])

    assert again == first
    assert hidden == []


def test_a_repeated_receive_that_had_no_message_returns_a_new_one(service: Service) -> None:
    url = service.queue()
    nothing = service.bodies(url, ReceiveRequestAttemptId="try")
    service.send(url, "m")

    assert nothing == []
    assert service.bodies(url, ReceiveRequestAttemptId="try") == ["m"]


def test_a_purge_takes_every_earlier_message_and_no_later_one(service: Service) -> None:
    """PUR-02, PUR-04: AWS takes up to a minute for a purge, the model none."""
    url = service.queue(DelaySeconds="60")
    service.send(url, "in-flight")
    service.send(url, "waiting", group="h")
    service.now += 60
    service.receive(url, most=1)
    service.send(url, "delayed", group="i")

    service.sqs("PurgeQueue", QueueUrl=url)
    service.send(url, "later")
    service.now += 60

    assert service.bodies(url) == ["later"]


def test_a_move_task_keeps_to_its_rate_and_can_be_cancelled(service: Service) -> None:
    """MOV-09, MOV-11: at one message a second, a task moves three in two and a half seconds, then it is cancelled."""
    dlq = service.queue("dlq.fifo")
    url = service.queue(RedrivePolicy=redrive_to(dlq, 1))
    for body in ("m1", "m2", "m3", "m4", "m5"):
        service.send(url, body)
    service.receive(url, VisibilityTimeout=0)
    service.receive(url)
    task = service.sqs("StartMessageMoveTask", SourceArn=arn_of(dlq), MaxNumberOfMessagesPerSecond=1)["TaskHandle"]
    service.now += 2.5

    cancelled = service.sqs("CancelMessageMoveTask", TaskHandle=task)
    service.now += 10
    (ended,) = service.sqs("ListMessageMoveTasks", SourceArn=arn_of(dlq))["Results"]

    assert cancelled == {"ApproximateNumberOfMessagesMoved": 3}
    assert ended["Status"] == "CANCELLED"
    assert ended["ApproximateNumberOfMessagesMoved"] == 3
    assert service.bodies(url) == ["m1", "m2", "m3"]
    assert service.bodies(dlq) == ["m4", "m5"]


def test_a_move_task_takes_nothing_behind_a_dead_letter_in_flight(service: Service) -> None:
    """MOV-26: a task receives as any consumer (documented), so it leaves a group in flight, and moves other groups."""
    dlq, target = service.queue("dlq.fifo"), service.queue("target.fifo")
    url = service.queue(RedrivePolicy=redrive_to(dlq, 1))
    for body, group in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        service.send(url, body, group=group)
    service.receive(url, VisibilityTimeout=0)
    service.receive(url)
    in_flight = service.receive(dlq, most=1)

    service.sqs("StartMessageMoveTask", SourceArn=arn_of(dlq), DestinationArn=arn_of(target))
    (task,) = service.sqs("ListMessageMoveTasks", SourceArn=arn_of(dlq))["Results"]

    assert [message["Body"] for message in in_flight] == ["a1"]
    assert task["ApproximateNumberOfMessagesToMove"] == 1
    assert task["ApproximateNumberOfMessagesMoved"] == 1
    assert service.bodies(target) == ["b1"]


def test_dead_letters_of_one_id_survive_together_and_come_back(service: Service) -> None:
    """DLQ-04, DLQ-05, MOV-17: two queues with one DLQ each lose a message with the same id; both messages return."""
    dlq = service.queue("dlq.fifo")
    sources = [service.queue(f"q{number}.fifo", RedrivePolicy=redrive_to(dlq, 1)) for number in (1, 2)]
    for url in sources:
        service.send(url, "m", id="same")
        service.receive(url, VisibilityTimeout=0)
        service.receive(url)
    dead = service.receive(dlq, VisibilityTimeout=0)

    service.sqs("StartMessageMoveTask", SourceArn=arn_of(dlq))

    assert len(dead) == 2
    assert all(message["Attributes"]["MessageDeduplicationId"] == message["MessageId"] for message in dead)
    assert [service.bodies(url) for url in sources] == [["m"], ["m"]]


def test_a_purge_and_a_deleted_name_can_be_repeated_after_a_minute(service: Service) -> None:
    """PUR-01, CRE-20: a second purge, and a queue with a deleted queue's name, are refused for 60 seconds."""
    url = service.queue()
    service.sqs("PurgeQueue", QueueUrl=url)
    service.now += 59.9
    with pytest.raises(AwsRefusal, match="allowed every 60 seconds") as purged:
        service.sqs("PurgeQueue", QueueUrl=url)
    service.now += 0.1
    service.sqs("PurgeQueue", QueueUrl=url)
    service.sqs("DeleteQueue", QueueUrl=url)
    service.now += 59.9
    with pytest.raises(AwsRefusal, match="You must wait 60 seconds"):
        service.queue()
    service.now += 0.1

    assert purged.value.status == 403
    assert service.queue() == url


def test_a_new_delay_applies_to_messages_already_sent(service: Service) -> None:
    """SND-09: a delay that is set after the sending delays the message, for 900 seconds from the sending on."""
    url = service.queue()
    service.send(url, "m")
    service.sqs("SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": "900"})
    service.now += 899
    delayed = service.bodies(url)
    service.now += 1

    assert delayed == []
    assert service.bodies(url) == ["m"]


def test_the_model_knows_the_instant_of_its_next_change(service: Service) -> None:
    """A long poll moves the clock to it: first the end of the visibility timeout, then of retention, then none."""
    url = service.queue(MessageRetentionPeriod="60")
    service.send(url, "m")
    service.receive(url, VisibilityTimeout=30)

    visibility_ends_at = service.account.next_change_at(service.now)
    retention_ends_at = service.account.next_change_at(service.now + 30)
    nothing_changes = service.account.next_change_at(service.now + 60)

    assert visibility_ends_at == service.now + 30
    assert retention_ends_at == service.now + 60
    assert nothing_changes is None


def test_an_operation_without_a_model_is_refused(service: Service) -> None:
    """The model never guesses the answer of an operation that it does not have."""
    answer = service.account.call("sns", "OptInPhoneNumber", {}, service.now)

    assert isinstance(answer, AwsRefusal)
    assert answer.code == "UnsupportedOperation"
    assert answer.text == "OptInPhoneNumber is not modelled."
