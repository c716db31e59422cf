"""Real processes of `awslambdaric` behind the Runtime API: start, freeze, timeout, crash, memory, half an answer."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, override

import pytest

from sluice.clock import SystemClock, eventually
from sluice.lambda_local.local import FunctionSchedule, LocalFunction
from sluice.lambda_local.process import FunctionProcess
from sluice.simulator.model.mapping import EventSourceMapping, NoAnswer

_FUNCTION = """
import http.client, os, signal, threading, time

ticks = 0

def tick():
    global ticks
    while True:
        time.sleep(0.01)
        ticks += 1

threading.Thread(target=tick, daemon=True).start()
kept = []

def handle(event, context):
    what = event["what"]
    if what == "sleep":
        time.sleep(60)
    if what == "exit":
        os._exit(3)
    if what == "raise":
        raise ValueError("no")
    if what == "memory":
        kept.append(bytearray(400 << 20))
        kept.append(b"x" * (1 << 20))
        time.sleep(60)
    if what == "cut":
        address = os.environ["AWS_LAMBDA_RUNTIME_API"]
        connection = http.client.HTTPConnection(address)
        connection.putrequest("POST", f"/2018-06-01/runtime/invocation/{context.aws_request_id}/response")
        connection.putheader("Content-Length", "100")
        connection.endheaders()
        connection.send(b'{"batchItem')
        os._exit(4)
    return {"pid": os.getpid(), "ticks": ticks, "left": context.get_remaining_time_in_millis()}
"""


@pytest.fixture
def function(tmp_path: Path) -> Iterator[FunctionProcess]:
    """Yield an execution environment of a function that does what its event says."""
    (tmp_path / "plain.py").write_text(_FUNCTION, encoding="utf-8")
    variables = {**os.environ, "PYTHONPATH": str(tmp_path), "AWS_REGION": "us-east-1"}
    process = FunctionProcess("plain.handle", variables, timeout_seconds=2.0, memory_mb=256)
    yield process
    process.close()


def invoke(function: FunctionProcess, what: str = "answer") -> Any:
    """Return what the function answers."""
    return function.invoke({"what": what})


def test_a_warm_process_is_reused_and_frozen_between_invocations(function: FunctionProcess) -> None:
    """The threads of the process do not run between two invocations. The deadline is that of each invocation."""
    first = invoke(function)
    SystemClock().sleep(0.5)  # fifty ticks of a thread that runs
    second = invoke(function)

    assert first["pid"] == second["pid"]
    assert function.starts == 1
    assert second["ticks"] - first["ticks"] < 25
    assert 0 < second["left"] <= 2_000


@pytest.mark.parametrize("end", ["exit", "cut", "sleep", "memory"])
def test_an_invocation_without_an_answer_ends_its_process(function: FunctionProcess, end: str) -> None:
    """A crash, half an answer, a timeout, too much memory: the next invocation is answered by another process."""
    before = invoke(function)["pid"]

    assert invoke(function, end) is NoAnswer.ERROR
    assert invoke(function)["pid"] != before
    assert function.starts == 2


def test_an_exception_is_no_answer_and_keeps_the_process(function: FunctionProcess) -> None:
    """As in Lambda, the process stays warm for the next invocation."""
    assert invoke(function, "raise") is NoAnswer.ERROR
    invoke(function)
    assert function.starts == 1


def test_a_process_that_cannot_start_is_an_invocation_that_fails(tmp_path: Path) -> None:
    """The module is missing; each invocation tries again."""
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    process = FunctionProcess("missing.handle", variables, timeout_seconds=2.0, memory_mb=256)

    assert process.invoke({}) is NoAnswer.ERROR
    assert process.invoke({}) is NoAnswer.ERROR
    process.close()
    assert process.starts == 2


def test_a_killed_process_is_replaced(function: FunctionProcess) -> None:
    """The process is killed while it is frozen, as when Lambda removes an execution environment."""
    invoke(function)
    process_id = function.process_id
    assert process_id is not None, "the process is kept"
    os.kill(process_id, signal.SIGKILL)
    os.waitid(os.P_PID, process_id, os.WEXITED | os.WNOWAIT)

    invoke(function)
    assert function.starts == 2


def test_a_function_that_is_stopped_gives_no_answer(function: FunctionProcess) -> None:
    """As at SIGTERM of `sluice lambda local`, also before the first look at its process."""
    assert function.invoke({"what": "sleep"}, is_stopped=lambda: True) is NoAnswer.ERROR


_OWNER = """
import os
from sluice.lambda_local.process import FunctionProcess
function = FunctionProcess("plain.handle", dict(os.environ), timeout_seconds=2.0, memory_mb=256)
function.invoke({"what": "answer"})
print(function.process_id, flush=True)
os._exit(1)
"""


def test_a_frozen_process_ends_with_the_program_that_started_it(tmp_path: Path) -> None:
    """The program is ended without a chance to end the process; nobody else would ever let it run again."""
    (tmp_path / "plain.py").write_text(_FUNCTION, encoding="utf-8")
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), "AWS_REGION": "us-east-1"}
    ended = subprocess.run(
        [sys.executable, "-c", _OWNER], env=variables, stdout=subprocess.PIPE, text=True, timeout=60, check=False
    )

    def is_gone() -> bool:
        state = Path(f"/proc/{int(ended.stdout.split()[-1])}/stat")
        return not state.exists() or state.read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z"

    assert eventually(is_gone, timeout_seconds=20, describe="the frozen process to end")


class SlowProcess(FunctionProcess):
    """An execution environment whose only invocation takes a second."""

    was_stopped: bool | None = None

    def __init__(self) -> None:
        super().__init__("none.handle", {}, timeout_seconds=10.0, memory_mb=256)

    @override
    def invoke(self, _: object, *, is_stopped: Callable[[], bool] = lambda: False) -> object:
        """Answer after a second, and keep whether it was stopped meanwhile."""
        SystemClock().sleep(1)
        self.was_stopped = is_stopped()
        return {"batchItemFailures": []}


def slow_function(batches: Sequence[list[dict[str, Any]]]) -> tuple[LocalFunction, SlowProcess]:
    """Return a function of one thread, whose polls receive these batches and then nothing; and its process."""
    left = list(batches)

    def call(operation: str, _: object) -> Mapping[str, Any]:
        return {"Messages": left.pop(0) if left and operation == "ReceiveMessage" else []}

    mapping = EventSourceMapping(call=call, queue_url="u", queue_arn="a:b:c:d:e:q", batch_size=1, visibility_seconds=60)
    process, schedule = SlowProcess(), FunctionSchedule(event={}, seconds=3_600)
    return LocalFunction(lambda: mapping, lambda: process, concurrency=1, schedule=schedule), process


MESSAGE = {"MessageId": "m1", "ReceiptHandle": "r1", "Body": "", "Attributes": {}, "MD5OfBody": ""}


def test_a_function_that_is_working_is_not_idle() -> None:
    """`--until-idle 0.3` does not end an invocation that takes longer, such as a cold start."""
    function, process = slow_function([[MESSAGE]])

    function.run(is_stopped=lambda: False, idle_seconds=0.3)

    assert process.was_stopped is False


def test_a_function_is_idle_from_its_first_poll_on() -> None:
    """The start, such as the opening of a journal, may take longer; the third poll receives the message."""
    function, process = slow_function([[], [], [MESSAGE]])
    SystemClock().sleep(1.5)

    function.run(is_stopped=lambda: False, idle_seconds=1.5)

    assert process.was_stopped is False
