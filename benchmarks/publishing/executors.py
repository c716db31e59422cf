"""What more executors bring to the load test: JVMs of their own, on a standalone cluster, the driver elsewhere.

Where this process may, master, driver and endpoint are in one network namespace and each executor is in another, a
millisecond away. Every executor has one core, so a job of so many publish tasks runs on so many executors.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from benchmarks import sink
from benchmarks.charts import Line, lines
from benchmarks.publishing import standalone
from benchmarks.publishing.namespaces import Network
from benchmarks.publishing.scaling import Scaled, measured, publishers, scaling_table
from benchmarks.report import Section

_EXECUTORS = (1, 2, 4)
_EXECUTOR_PER_SECOND = 2_500
_DELAY_SECONDS = 0.001
_MEMORY = "1g"
_WARM_UP = {"transport": "sockets", "service": "sqs", "messages": 1_000, "rate": 1_000.0}


def measure(_: Mapping[str, str], rounds: int) -> Section:
    """Measure what executors publish that are offered the same each."""
    most = max(_EXECUTORS)
    with (
        tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder,
        _network() as (host, node, where),
        sink.running(0, host=host) as url,
        standalone.running(Path(folder), cores=1, memory=_MEMORY, workers=most, host=host, node=node) as cluster,
        publishers("--master", cluster.master, "--slots", str(most)) as publish_with,
    ):
        publish_with(**_WARM_UP, url=url, tasks=most)  # what comes first pays for what is made once
        found = measured(publish_with, url, _EXECUTORS, _EXECUTOR_PER_SECOND, rounds, cluster.worker_pids)
    made = (
        "![Messages a second, by executors](plots/executors.svg)",
        scaling_table("executors", _EXECUTOR_PER_SECOND, found),
        where,
    )
    return Section(tables={"executors": "\n\n".join(made)}, plots={"executors": _plot(found)})


@contextmanager
def _network() -> Iterator[tuple[str, Callable[[], AbstractContextManager[str]] | None, str]]:
    """Yield the driver's address, how to be where the next executor is, and a sentence about it."""
    network = Network(_DELAY_SECONDS)
    with ExitStack() as stack:
        try:
            host = stack.enter_context(network.running())
        except OSError as error:
            print(f"executors: without network namespaces, because {error}; run as root for them", flush=True)
            yield "127.0.0.1", None, f"Without namespaces and delay, on the loopback: {error}."
            return
        yield host, network.node, f"Each packet between two namespaces was {_DELAY_SECONDS * 1_000:g} ms on its way."


def _plot(found: Mapping[int, Scaled]) -> str:
    given = [
        Line("offered", [(count, count * _EXECUTOR_PER_SECOND, "") for count in found]),
        Line(
            "answered", [(count, scaled.rate.median, f"{scaled.rate.median:,.0f}") for count, scaled in found.items()]
        ),
    ]
    return lines("What more executors publish", "executors", "messages a second", given)
