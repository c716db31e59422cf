"""An outbox with a simulated topic, and a server in SNS's place with the answers of a test."""

from collections.abc import Iterator
from urllib.parse import parse_qsl

import pytest
from sqlalchemy import Engine

from tests.support.endpoints.capturing_server import Reply, Server, capturing
from tests.support.messaging.world import World


@pytest.fixture
def world(engine: Engine) -> World:
    """Return an outbox, once on SQLite and once on Postgres, and a simulated topic."""
    return World(engine)


class Endpoint:
    """A server in SNS's place that gives prepared answers: a status with a body."""

    def __init__(self, server: Server) -> None:
        self.url, self._captured = server.url, server.captured
        self.answers: list[tuple[int, str]] = []
        server.reply = lambda _: self._reply()

    def _reply(self) -> Reply:
        """Return the next of the answers that the test has prepared."""
        status, body = self.answers.pop(0)
        return Reply(status, body.encode())

    @property
    def requests(self) -> list[dict[str, str]]:
        """Return the parameters of each request that came."""
        return [dict(parse_qsl(request.body.decode())) for request in self._captured]


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    """Yield a server in SNS's place, with credentials for its client."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "checks")
    with capturing(lambda _: Reply()) as server:
        yield Endpoint(server)
