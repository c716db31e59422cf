"""Producer, relay and worker of one version of the code, driven by lines of JSON: runs also beside an earlier version.

A program by itself: it is started with an earlier commit's tree as PYTHONPATH, and uses only what that has, too. The
topic and the queues are simulated in the process, so bodies go from a relay to a worker through whoever drives both.
"""

import json
import sys
from typing import Any

from sqlalchemy.orm import Session

from sluice.messaging import Event
from sluice.messaging.database import engines, migrations
from sluice.messaging.inbox import tables as inbox_tables
from sluice.messaging.outbox import tables
from tests.support.messaging import worker_harness
from tests.support.messaging.outbox import simulated_relays

_LEASE_AND_MORE_SECONDS = 120
_PARTS = (tables.versioned, inbox_tables.versioned)


class Version:
    """What one version does when it is told."""

    def __init__(self, dsn: str) -> None:
        self._engine = engines.engine(dsn)
        self._relays = simulated_relays.World(self._engine)
        self._workers = worker_harness.World(self._engine)

    def apply(self) -> list[int]:
        """Upgrade the tables; return the versions that were made."""
        return [version for part in _PARTS for version in migrations.upgrade(self._engine, part)]

    def require(self) -> None:
        """Refuse tables that this version cannot use."""
        with self._engine.connect() as connection:
            for part in _PARTS:
                migrations.require(connection, part)

    def commit(self, groups: list[str]) -> None:
        """Commit an event of each group."""
        with Session(self._engine) as session:
            for group in groups:
                self._relays.outbox.add(session, Event(type="order.placed", group=group, data={"n": 1}))
            session.commit()

    def relay(self) -> list[list[str]]:
        """Take over and publish everything; return groups and bodies in the order in which a queue has them."""
        self._relays.simulator.advance(_LEASE_AND_MORE_SECONDS)
        relay = self._relays.relay()
        simulated_relays.work(relay)
        relay.close()
        return [[simulated_relays.place(message)[0], message["Body"]] for message in self._relays.received()]

    def work(self, bodies: list[list[str]]) -> None:
        """Handle messages."""
        for group, body in bodies:
            self._workers.put_body(body, group)
        self._workers.work_off(self._workers.worker(poll_seconds=0), steps_max=10_000)


def main() -> None:
    """Do what each line says, and answer with a line: a result, or an error."""
    version = Version(sys.argv[1])
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            answer: dict[str, Any] = {"result": getattr(version, name)(*arguments)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
