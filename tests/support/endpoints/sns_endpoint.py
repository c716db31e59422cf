"""A server in SNS's place, which says what a test wants it to."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qsl

from tests.support.endpoints.capturing_server import Reply, Server, capturing


class Endpoint:
    def __init__(self, server: Server) -> None:
        self.url, self._captured = server.url, server.captured
        self.answers: list[tuple[int, str]] = []
        server.reply = lambda _: self._reply()

    def _reply(self) -> Reply:
        status, body = self.answers.pop(0)
        return Reply(status, body.encode())

    @property
    def requests(self) -> list[dict[str, str]]:
        return [dict(parse_qsl(request.body.decode())) for request in self._captured]


@contextmanager
def serving() -> Iterator[Endpoint]:
    with capturing(lambda _: Reply()) as server:
        yield Endpoint(server)
