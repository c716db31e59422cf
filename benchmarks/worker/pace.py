"""Measure the rate of worker processes beside other programs, and the cost of a message in a large inbox."""

import json
import random
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import boto3
from sqlalchemy import Engine, text

from benchmarks import competitor_environment, databases, sink
from benchmarks.charts import Line, lines
from benchmarks.databases import POSTGRES
from benchmarks.report import ResultTable, Section, table
from benchmarks.rounds import Measurement, interleave
from benchmarks.worker.lanes import REGION, cpu_seconds, engine_with_inbox, running_plain_loop
from benchmarks.worker.workers import CONSUMER, make_inbox
from sluice import sdk
from sluice.clock import SystemClock, eventually
from sluice.declaration import metrics
from sluice.messaging.envelope import Envelope, Event
from sluice.messaging.inbox import tables as inbox_tables
from sluice.messaging.inbox.groups import DecodedMessage

_HERE = Path(__file__).resolve().parent
_DELAY_SECONDS = 0.01
_LANES = 64
_SECONDS = 4.0
_PLAIN = f"boto3, {_LANES} threads that receive and delete"
_CELERY = f"Celery on SQS, {_LANES} threads"
_ROWS = (1_000, 100_000, 1_000_000, 10_000_000)
_FILL = text(
    "INSERT INTO sluice_inbox_group (consumer, group_id, epoch, first_seq, last_seq, updated_at_us)"
    " SELECT :consumer, 'order-' || n, 1, 1, 1, 0 FROM generate_series(CAST(:first AS bigint), :last) n"
)
_GROWTH_MESSAGES = 500
_clock = SystemClock()


class _WorkResult(NamedTuple):
    messages: float
    seconds: float
    cpu_seconds: float


def measure(urls: Mapping[str, str], rounds: int) -> Section:
    """Compare workers on Postgres with boto3 and Celery, at a queue that answers after 10 ms; let the inbox grow."""
    url, cells = urls[POSTGRES], dict[str, Callable[[], _WorkResult]]()
    competitor_environment.install()
    with sink.running(_DELAY_SECONDS) as endpoint:
        cells[_PLAIN] = partial(_run_plain_loop, endpoint)
        for processes in (1, 2):
            name = f"worker, {processes} process{'es' * (processes > 1)} with {_LANES // processes} lanes"
            cells[name] = partial(_run_workers, url, processes)
        cells[_CELERY] = partial(_run_celery, endpoint)
        results: dict[str, list[_WorkResult]] = {name: [] for name in cells}
        rates = interleave({name: partial(_rate, cell, results[name]) for name, cell in cells.items()}, rounds)
    rows = [
        (
            name,
            *(f"{rate.median:,.0f}", rate.noise, rate.over(rates[_PLAIN]).ratio),
            f"{1_000 * sum(run.cpu_seconds for run in results[name]) / sum(run.messages for run in results[name]):.2f}",
        )
        for name, rate in rates.items()
    ]
    head = ("what", "messages/s", "noise", "to boto3", "processor, ms a message")
    grown = _growth_results(url, rounds)
    tables = {"worker": table(head, rows, text_columns=1), "start": _start_table(url, rounds), "inbox-growth": grown[0]}
    return Section(tables=tables, plots={"inbox-growth": grown[1]})


def _rate(cell: Callable[[], _WorkResult], results: list[_WorkResult]) -> float:
    results.append(cell())
    return results[-1].messages / results[-1].seconds


def _run_plain_loop(endpoint: str) -> _WorkResult:
    config = sdk.config(answer_seconds=30, connections=_LANES)
    sqs = boto3.client("sqs", endpoint_url=endpoint, region_name=REGION, config=config)
    with running_plain_loop(sqs, f"{endpoint}/000000000000/benchmark.fifo", _LANES, 1) as counts:
        eventually(
            lambda: counts.so_far()[metrics.HANDLED] > _LANES,
            timeout_seconds=60,
            describe="every thread to be connected",
        )
        before, began, cpu = counts.so_far()[metrics.HANDLED], _clock.monotonic(), cpu_seconds()
        _clock.sleep(_SECONDS)
        messages = counts.so_far()[metrics.HANDLED] - before
        return _WorkResult(messages, _clock.monotonic() - began, cpu_seconds() - cpu)


def _run_workers(url: str, processes: int) -> _WorkResult:
    """Return the result of worker processes.

    They get a sink of their own: messages that other programs took would be gaps, and a gap costs a worker time.
    """
    with engine_with_inbox(url), sink.running(_DELAY_SECONDS) as endpoint:
        command = [sys.executable, "-m", "benchmarks.worker.one_process", url, endpoint, str(_LANES // processes)]
        started = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(processes)
        ]
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "warm\n"
        for pause_seconds in (_SECONDS, 0):
            for process in started:
                assert process.stdin is not None
                process.stdin.write("\n")
                process.stdin.flush()
            _clock.sleep(pause_seconds)
        each = [_WorkResult(*json.loads(process.communicate()[0])) for process in started]
        return _WorkResult(sum(done.messages for done in each), each[0].seconds, sum(done.cpu_seconds for done in each))


def _start_table(url: str, rounds: int) -> ResultTable:
    """Return the table of the time from a command's start to its end, or to a worker's first message."""
    spent: dict[str, list[float]] = {"sluice --help": [], "sluice worker, to its first handler": []}
    cells = {
        name: partial(start, seconds)
        for (name, seconds), start in zip(spent.items(), (_run_help, _first_message_timer(url)), strict=True)
    }
    walls = interleave(cells, rounds)
    rows = [
        (
            name,
            f"{Measurement(tuple(spent[name])).median:.2f}",
            Measurement(tuple(spent[name])).noise,
            f"{wall.median:.2f}",
        )
        for name, wall in walls.items()
    ]
    return table(("what", "processor seconds", "noise", "seconds"), rows, text_columns=1)


def _run_help(spent: list[float]) -> float:
    began, before = _clock.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "sluice", "--help"], check=True, stdout=subprocess.DEVNULL)
    seconds, after = _clock.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return seconds


def _first_message_timer(url: str) -> Callable[[list[float]], float]:
    """Return a function that times a worker from its start to its first message, with an empty inbox."""
    command = [sys.executable, "-m", "sluice"]

    def start(spent: list[float]) -> float:
        with databases.with_empty_tables(url, inbox_tables.metadata):
            apply = [*command, "schema", "apply", "inbox", "--dsn", url, "--log-level", "error"]
            subprocess.run(apply, check=True, stdout=subprocess.DEVNULL)
        with sink.running(_DELAY_SECONDS) as endpoint:
            arguments = ["--env", "local", "--consumer", "billing", "--handlers", "benchmarks.worker.first_message"]
            place = ["--dsn", url, "--endpoint-url", endpoint, "--queue-url", f"{endpoint}/000000000000/benchmark.fifo"]
            began = _clock.monotonic()
            ended = subprocess.run(
                [*command, "worker", *arguments, *place, "--log-level", "error"],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
        processor_seconds, handled_at = json.loads(ended.stdout.splitlines()[0])
        spent.append(processor_seconds)
        return float(handled_at - began)

    return start


def _run_celery(endpoint: str) -> _WorkResult:
    command = [competitor_environment.PYTHON, str(_HERE / "celery_workers.py"), endpoint, str(_LANES), str(_SECONDS)]
    shown = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return _WorkResult(*json.loads(shown.splitlines()[-1]))  # the last line: Celery prints a banner before it


def _growth_results(url: str, rounds: int) -> tuple[ResultTable, str]:
    """Return table and plot of a message's cost, by the number of groups in the inbox."""
    rows, points, first_seconds = [], list[tuple[float, float, str]](), 0.0
    with databases.with_empty_tables(url, inbox_tables.metadata) as engine:
        filled = 0
        for count in _ROWS:
            with engine.begin() as connection:
                connection.execute(_FILL, {"consumer": CONSUMER, "first": filled, "last": count - 1})
            filled = count
            databases.vacuum(engine)
            seqs: dict[str, int] = {}
            rate = interleave({"": partial(_milliseconds, engine, count, seqs)}, rounds)[""]
            first_seconds = first_seconds or rate.median
            size = _size_bytes(engine) / 1_000_000
            rows.append(
                (f"{count:,}", f"{size:,.0f}", f"{rate.median:.2f}", rate.noise, f"{rate.median / first_seconds:.2f}")
            )
            points.append((count, rate.median, f"{rate.median:.2f}"))
    head = ("groups remembered", "MB with indexes", "ms a message", "noise", "to the first row")
    plot = lines("A message in a full inbox", "groups remembered", "ms", [Line("Postgres", points)])
    return table(head, rows, text_columns=0), plot


def _milliseconds(engine: Engine, groups: int, seqs: dict[str, int]) -> float:
    """Return the mean milliseconds from BEGIN to COMMIT of a message of a random group."""
    inbox, rng = make_inbox(), random.Random(groups)
    began = _clock.monotonic()
    for _ in range(_GROWTH_MESSAGES):
        group = f"order-{rng.randrange(groups)}"
        seqs[group] = seqs.get(group, 1) + 1
        envelope = Envelope(event=Event(type="order.placed", group=group, data={}), seq=seqs[group], epoch=1)
        came = DecodedMessage(envelope=envelope, body=envelope.body, attributes={}, sqs_message_id="m", receive_count=1)
        with engine.begin() as connection:
            inbox.mark(connection, envelope, inbox.admit(connection, came))
    return 1_000 * (_clock.monotonic() - began) / _GROWTH_MESSAGES


def _size_bytes(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT pg_total_relation_size('sluice_inbox_group')")).scalar_one())
