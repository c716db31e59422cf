"""A saboteur of long polls notices a call however the threads of the two calls go on."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

from sluice.saboteurs import sabotage
from sluice.simulator.hook import Simulator


def test_a_poll_is_deaf_although_the_thread_that_deletes_goes_on_later() -> None:
    """The answer of the delete is held back until the poll that it released has been answered."""
    simulator, answered = Simulator(), Event()
    sqs: Any = simulator.client("sqs")
    sabotage([sqs], "deafen-polls")
    sqs.meta.events.register_first("after-call.sqs.DeleteMessage", lambda **_: answered.wait(timeout=10))
    url = sqs.create_queue(QueueName="q.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    for body in ("m1", "m2"):
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g", MessageDeduplicationId=body)
    (first,) = sqs.receive_message(QueueUrl=url)["Messages"]
    sent = Event()
    sqs.meta.events.register("before-send.sqs.ReceiveMessage", lambda **_: sent.set())

    with ThreadPoolExecutor() as pool:
        poll = pool.submit(sqs.receive_message, QueueUrl=url, WaitTimeSeconds=20)
        assert sent.wait(timeout=10)
        delete = pool.submit(sqs.delete_message, QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
        released = poll.result(timeout=30)
        answered.set()
        delete.result(timeout=30)

    assert "Messages" not in released
