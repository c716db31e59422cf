"""A contract run prints one line a promise for an endpoint that stops answering before the first promise."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.support.project import PROJECT

_ANSWERED = 3  # the run's own questions: whether this is LocalStack, or LocalEmu, and whether it is SQS


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(404, b"")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200, b"{}")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def dying() -> Iterator[str]:
    """Yield the URL of an endpoint that answers three times and then stops listening."""
    server = HTTPServer(("127.0.0.1", 0), _Handler)

    def serve() -> None:
        for _ in range(_ANSWERED):
            server.handle_request()
        server.server_close()

    serving = threading.Thread(target=serve)
    serving.start()
    yield f"http://127.0.0.1:{server.server_port}"
    serving.join(timeout=30)


def test_a_dead_endpoint_takes_one_line_a_promise_and_no_traceback(dying: str) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key", "AWS_DEFAULT_REGION": "us-east-1"}
    command = [sys.executable, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", "contract_tests"]
    selected = ["--endpoint-url", dying, "-m", "not deployment", "-k", "second_message_of_a_group or other_groups_flow"]

    ended = subprocess.run(
        [*command, *selected],
        cwd=PROJECT,
        env=os.environ | keys,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    lines = [line.split(" - ")[1][:24] for line in ended.stdout.splitlines() if line.startswith("FAILED ")]
    assert lines == ["GRP-01: test_group_block", "SLU-01: test_group_block"], ended.stdout
    assert "no answer: Could not connect to the endpoint URL" in ended.stdout
    assert "Traceback" not in ended.stdout
    assert len(ended.stdout.splitlines()) < 20, ended.stdout


def test_a_baseline_of_an_endpoint_that_keeps_nothing_is_kept(dying: str, tmp_path: Path) -> None:
    """A promise that was unknown before is unknown again: nothing has changed."""
    keys = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key", "AWS_DEFAULT_REGION": "us-east-1"}
    promises = {promise: {"status": "unknown"} for promise in ("GRP-01", "SLU-01")}
    (tmp_path / "results.json").write_text(json.dumps({"promises": promises}), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", "contract_tests"]
    selected = ["--endpoint-url", dying, "-m", "not deployment", "-k", "second_message_of_a_group or other_groups_flow"]

    ended = subprocess.run(
        [*command, *selected, "--expect", str(tmp_path / "results.json")],
        cwd=PROJECT,
        env=os.environ | keys,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout
    assert "2 xfailed" in ended.stdout
