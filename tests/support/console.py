"""A console without a browser: its application, asked in this process as its own pages would ask."""

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.testclient import TestClient

from sluice.cli.overview.sources import Sources, Unknown
from sluice.clock import Clock, SystemClock
from sluice.console.app import build_app
from sluice.console.security import ConsoleGate
from sluice.console.state import Console
from sluice.declaration import Environment

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
