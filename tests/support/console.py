"""A console without a browser, in this process; and a shop with troubles for it to show."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
import structlog
from sqlalchemy import Engine, select
from starlette.testclient import TestClient

from sluice.cli.main import main
from sluice.cli.overview.sources import Sources, Unknown
from sluice.clock import Clock, SystemClock
from sluice.console.app import build_app
from sluice.console.security import ConsoleGate
from sluice.console.state import Console
from sluice.declaration import Environment, load_declaration, naming
from sluice.messaging.database import engines
from sluice.messaging.inbox import tables as inbox
from sluice.messaging.outbox import tables as outbox
from sluice.messaging.sqs.dead_letter_queue import counts
from tests.support.command_line import KEYS
from tests.support.declaration import FILE
from tests.support.messaging.operated_shop import OperatedShop, operated_shop

HOSTILE_TEXT = '<script>alert(1)</script>{{ 7*7 }}"\u202e'
PORT = 8642
HOST = f"127.0.0.1:{PORT}"
ORIGIN = f"http://{HOST}"
NO_DATABASE = Unknown("no database is named; give --dsn")


def sources_without_database(environment: Environment, endpoint_url: str = "http://127.0.0.1:9") -> Sources:
    """Return sources in which nothing can be read."""
    inboxes = {consumer.name: NO_DATABASE for consumer in environment.consumers}
    return Sources(environment=environment, outbox=NO_DATABASE, inboxes=inboxes, endpoint_url=endpoint_url)


class ConsoleBrowser:
    """A browser that shows a console; `client` is what it sends requests with."""

    def __init__(self, sources: Sources, *, may_act: bool = True, clock: Clock | None = None) -> None:
        self.gate = ConsoleGate(port=PORT, clock=SystemClock() if clock is None else clock)
        self.console = Console(
            sources=sources, consumers=sources.environment.consumers, may_act=may_act, clock=SystemClock()
        )
        app = build_app(self.console, self.gate)
        self.client = TestClient(app, base_url=ORIGIN, raise_server_exceptions=True, follow_redirects=False)

    def open(self) -> None:
        """Use the printed address."""
        opened = self.client.get("/", params={"token": self.gate.token})
        assert opened.status_code == 200, opened.text

    def get(self, path: str, **parameters: str) -> str:
        """Return a page, which has to be there."""
        answer = self.client.get(path, params=parameters)
        assert answer.status_code == 200, answer.text
        return str(answer.text)

    def post(self, path: str, fields: Mapping[str, str | Sequence[str]], **headers: str) -> Any:
        """Return the answer to a form, which our own pages would send so."""
        return self.client.post(
            path, data={"form_token": self.gate.form_token, **fields}, headers={"origin": ORIGIN, **headers}
        )

    def act(self, action: str, owner: str, keys: Sequence[str], **fields: str) -> str:
        """Return the page of an action's dry run, or of its result."""
        answer = self.post("/act", {"action": action, "owner": owner, "key": list(keys), **fields})
        if answer.status_code == 303:
            return self.get(answer.headers["location"])
        assert answer.status_code == 200, answer.text
        return str(answer.text)


PARKING_FILE = FILE.parent / "parking.py"
PARKING = load_declaration(PARKING_FILE).environment("local")
BILLING = PARKING.consumers[0]
QUEUE, DLQ = naming.queue_name(PARKING, BILLING), naming.dead_letter_queue_name(PARKING, BILLING)


@contextmanager
def troubled_shop(folder: Path, *groups: str, url: str | None = None) -> Iterator[OperatedShop]:
    """Yield a shop whose billing has refused number 1 of each group; number 2 waits behind it in the parked group.

    Its database is that of `url`, which is empty; None is SQLite in the folder.
    """
    engine = engines.engine(f"sqlite:///{folder / 'shop.db'}" if url is None else url)
    with engine.begin() as connection:
        outbox.metadata.create_all(connection)
    with pytest.MonkeyPatch.context() as patch, running_shop(engine, patch) as made:
        for group in groups:
            made.commit(group, -3, 5, type_="refund.asked", note=HOSTILE_TEXT)
        made.relay()
        made.work(BILLING)
        yield made
    engine.dispose()


@contextmanager
def running_shop(engine: Engine, patch: pytest.MonkeyPatch) -> Iterator[OperatedShop]:
    """Yield the shop, whose simulated AWS is served over HTTP; this process has test credentials meanwhile."""
    for name, value in KEYS.items():
        patch.setenv(name, value)
    patch.setattr(boto3, "DEFAULT_SESSION", None)
    patch.setattr("sluice.messaging.waiting.Stop.on_signals", lambda _: None)

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            main(arguments)
        except SystemExit as ended:
            return int(ended.code or 0), "", ""
        return 0, "", ""

    log = structlog.get_config()
    with operated_shop(engine, run, PARKING) as made:
        yield made
    structlog.configure(**log)


def count_messages(shop: OperatedShop, name: str) -> int:
    """Return how many messages a queue has, in flight or not."""
    attributes = shop.sqs.get_queue_attributes(QueueUrl=shop.url(name), AttributeNames=["All"])["Attributes"]
    return sum(counts(attributes).values())


def acts_of(shop: OperatedShop, group: str | None) -> list[tuple[str, int | None, str]]:
    """Return action, number and reason of what operators did to a group of billing; None is what concerns no group."""
    a = inbox.audit.c
    with shop.engine.connect() as connection:
        rows = connection.execute(select(a.action, a.seq, a.reason).where(a.group_id == group).order_by(a.id))
        return [tuple(row) for row in rows]


def state_of(shop: OperatedShop, group: str, seq: int = 1) -> str | None:
    """Return the state in which billing's inbox has a number; None where it has no record."""
    e = inbox.exceptions.c
    with shop.engine.connect() as connection:
        return connection.execute(select(e.state).where(e.group_id == group, e.seq == seq)).scalar_one_or_none()
