"""Measure the comparison of an outbox with a consumer's inbox: seconds and memory by the number of messages.

`SLUICE_BENCH_LARGE=1` adds ten million.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from resource import RUSAGE_SELF, getrusage

from sqlalchemy import Engine, text

from benchmarks import databases
from benchmarks.checking.check import LARGE
from benchmarks.databases import POSTGRES, TOPIC
from benchmarks.outbox.growth import without_indexes
from benchmarks.report import Section, table
from benchmarks.rounds import Measurement, interleave
from sluice.messaging.database import engines
from sluice.messaging.inbox import tables as inbox
from sluice.messaging.reconciliation.comparison import Reconciliation
from sluice.messaging.reconciliation.routes import QueuePlace, Route

_SIZES = (100_000, 1_000_000)
_LARGE_SIZE = 10_000_000
_GROUP_MESSAGES = 10
_HOUR_US = 3_600_000_000
_LOST = 100
"""The number of groups whose last message the consumer has not handled."""
_FILL = (
    """
    INSERT INTO sluice_outbox (
        topic, group_id, group_seq, event_id, type, body, attributes, deduplication_id, created_at_us, status,
        sent_at_us, sns_message_id
    )
    SELECT :topic, 'order-' || (n % :groups), n / :groups + 1, n, 'a.b', repeat('x', 250), '{"type": "a.b"}', n,
        0, 'sent', 0, n
    FROM generate_series(CAST(0 AS bigint), CAST(:messages AS bigint) - 1) AS n
    """,
    """
    INSERT INTO sluice_outbox_group (topic, group_id, last_seq)
    SELECT :topic, 'order-' || n, :numbers FROM generate_series(CAST(0 AS bigint), CAST(:groups AS bigint) - 1) AS n
    """,
    """
    INSERT INTO sluice_inbox_group (consumer, group_id, epoch, first_seq, last_seq, updated_at_us)
    SELECT 'billing', 'order-' || n, 1, 1, :numbers - CASE WHEN n < :lost THEN 1 ELSE 0 END, 0
    FROM generate_series(CAST(0 AS bigint), CAST(:groups AS bigint) - 1) AS n
    """,
)


def measure(urls: Mapping[str, str], rounds: int) -> Section:
    """Return seconds and peak memory of comparing outbox and inbox on Postgres, by the number of messages."""
    rows = []
    for size in (*_SIZES, *([_LARGE_SIZE] if os.environ.get(LARGE) else [])):
        with databases.with_empty_tables(urls[POSTGRES]) as engine:
            _fill(engine, size)
            databases.vacuum(engine)
            memory: list[float] = []
            (found,) = interleave({"compare": partial(_compare_in_process, urls[POSTGRES], memory)}, rounds).values()
        largest = Measurement(tuple(memory))
        rows.append(
            (f"{size:,}", f"{size // _GROUP_MESSAGES:,}", f"{found.median:.1f}", f"{largest.median:.0f}", found.noise)
        )
    head = ("messages", "groups", "seconds", "memory of the process, MiB", "noise")
    return Section(tables={"verdict": table(head, rows, text_columns=0)}, plots={})


def _fill(engine: Engine, messages: int) -> None:
    parameters = {
        "topic": TOPIC,
        "messages": messages,
        "groups": messages // _GROUP_MESSAGES,
        "numbers": _GROUP_MESSAGES,
        "lost": _LOST,
    }
    with engine.begin() as connection:
        inbox.metadata.drop_all(connection)
        inbox.metadata.create_all(connection)
        connection.execute(
            text("ALTER TABLE sluice_outbox DROP CONSTRAINT sluice_outbox_event")
        )  # the comparison does not use this index
        connection.execute(text("ALTER TABLE sluice_outbox SET UNLOGGED"))  # filling takes half the time without a log
        with without_indexes(connection):
            for statement in _FILL:
                connection.execute(
                    text(statement), {name: parameters[name] for name in parameters if f":{name}" in statement}
                )


def _compare_in_process(url: str, memory: list[float]) -> float:
    """Compare in a process of its own; append its peak memory in MiB to `memory`, and return the seconds."""
    done = subprocess.run([sys.executable, "-m", __name__, url], check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert found["lost"] == _LOST, f"{found['lost']} are lost, planted are {_LOST}"
    memory.append(found["mib"])
    return float(found["seconds"])


def _compare(url: str) -> None:
    """Compare, and print seconds, peak memory and the number of lost messages as JSON."""
    engine = engines.engine(url)
    with engines.reading(engine) as connection:
        now_us = engines.now_us(connection, None)
    places = (QueuePlace(name="billing.fifo", about=0, retention_us=_HOUR_US),)
    route = Route(consumer="billing", engine=engine, places=places, is_subscribed=True)
    began = time.perf_counter()
    compared = Reconciliation(engine, TOPIC, [route], now_us=now_us, in_flight_us=_HOUR_US, counts_young=False)
    compared.compare()
    seconds = time.perf_counter() - began
    kibibytes = getrusage(RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": seconds, "mib": kibibytes / 1_024, "lost": compared.judgements["billing"].missing}))


if __name__ == "__main__":
    _compare(sys.argv[1])
