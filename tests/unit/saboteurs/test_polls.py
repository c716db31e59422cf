"""`deafen-polls` notices a delete during a long poll, in whatever order the two threads get their answers."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

from sluice.saboteurs import sabotage
from sluice.simulator.hook import Simulator


def test_a_poll_is_emptied_although_its_answer_comes_before_the_deletes() -> None:
    """The delete unblocks m2, which ends the poll; the delete's own answer is delayed until the poll has ended."""
    simulator, poll_ended = Simulator(), Event()
    sqs: Any = simulator.client("sqs")
    sabotage([sqs], "deafen-polls")
    sqs.meta.events.register_first("after-call.sqs.DeleteMessage", lambda **_: poll_ended.wait(timeout=10))
    url = sqs.create_queue(QueueName="q.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    for body in ("m1", "m2"):
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g", MessageDeduplicationId=body)
    (first,) = sqs.receive_message(QueueUrl=url)["Messages"]
    poll_began = Event()
    sqs.meta.events.register("before-send.sqs.ReceiveMessage", lambda **_: poll_began.set())

    with ThreadPoolExecutor() as pool:
        poll = pool.submit(sqs.receive_message, QueueUrl=url, WaitTimeSeconds=20)
        assert poll_began.wait(timeout=10)
        delete = pool.submit(sqs.delete_message, QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
        answer = poll.result(timeout=30)
        poll_ended.set()
        delete.result(timeout=30)

    assert "Messages" not in answer
