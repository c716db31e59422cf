"""Producer, relay and worker of one version of the code, driven by lines of JSON: runs also beside an earlier version.

A program by itself: it is started with an earlier commit's tree as PYTHONPATH, whose helpers have other names. Topic
and queues are simulated in the process, so bodies go from a relay to a worker through whoever drives both.
"""

import importlib
import json
import os
import sys
from dataclasses import replace
from typing import Any

from sqlalchemy import text

from sluice.messaging.database import engines, migrations
from sluice.messaging.inbox import tables as inbox_tables
from sluice.messaging.outbox import tables
from tests.support.messaging.outbox import simulated_relays

try:
    worlds: Any = importlib.import_module("tests.support.messaging.world")
    relays, RECEIVE, WORK = worlds, "receive_all", "work_until_idle"
except ModuleNotFoundError:  # the commit before issue 31
    RECEIVE, WORK = "received", "work_off"
    worlds, relays = importlib.import_module("tests.support.messaging.worker_harness"), simulated_relays

_LEASE_AND_MORE_SECONDS = 120
_PARTS = (tables.versioned, inbox_tables.versioned)


class _DiedError(Exception):
    """Raised where a relay dies."""


class Version:
    """One version of the product, which acts on commands; an earlier one has bundles of one event."""

    def __init__(self, dsn: str, bundle_events_max: int) -> None:
        self._engine = engines.engine(dsn)
        more = {"has_bundles": True} if bundle_events_max > 1 else {}
        self._relays, self._workers = relays.World(self._engine), worlds.World(self._engine, **more)
        self._more = (
            {"settings": replace(worlds.SETTINGS, bundle_events_max=bundle_events_max)} if bundle_events_max > 1 else {}
        )

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
        self._relays.commit(*groups)

    def switch_bundles(self, bundle_events_max: int) -> None:
        """Let relays bundle, as an operator does."""
        self._relays.switch_bundles(bundle_events_max)

    def relay(self, dies_at: str | None = None) -> list[list[str]]:
        """Take over and publish everything, or die before; return groups and bodies in the order of a queue."""

        def reach(place: str) -> None:
            if place == dies_at:
                raise _DiedError

        self._relays.simulator.advance(_LEASE_AND_MORE_SECONDS)
        relay = self._relays.relay(failpoint=reach, **self._more)
        try:
            simulated_relays.work(relay)
            relay.close()
        except _DiedError:
            with self._engine.begin() as connection:  # each process has a clock of its own, so none sees it run out
                connection.execute(text("UPDATE sluice_outbox_lease SET expires_at_us = 0"))
        return [[group_of(body), body] for body in (message["Body"] for message in getattr(self._relays, RECEIVE)())]

    def work(self, bodies: list[list[str]]) -> None:
        """Handle messages."""
        for group, body in bodies:
            self._workers.put_body(body, group)
        getattr(self._workers, WORK)(self._workers.worker(poll_seconds=0), steps_max=10_000)

    def dead_letters(self) -> list[str]:
        """Return the bodies in the DLQ of this process's worker."""
        found: list[str] = self._workers.bodies_in_dlq()
        return found


def group_of(body: str) -> str:
    """Return the group of a message: of one event, or of a bundle."""
    fields = json.loads(body)
    return str(fields.get("events", [fields])[0]["group"])


def main() -> None:
    """Carry out the command of each line, and answer with a line: a result, or an error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # log lines of a version must not mix with the answers
    version = Version(sys.argv[1], int(sys.argv[2]))
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            answer: dict[str, Any] = {"result": getattr(version, name)(*arguments)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
