"""An account names the stacks that import an export; LocalStack knows none."""

from collections.abc import Iterator

import pytest

from sluice.deployment.account import DeployedAccount
from sluice.deployment.assembly import SynthesizedStack
from sluice.errors import ConfigError
from tests.support.endpoints.raw_server import Server, serving

STACK = SynthesizedStack(
    name="net", path="prod/Network", template={"Resources": {}}, lookup_role_arn=None, deploy_role_arn=None
)


@pytest.fixture
def cloudformation(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Yield a server in place of CloudFormation's."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with serving() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        yield server


def _answer(status: str, body: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def _error(code: str) -> str:
    return f"<ErrorResponse><Error><Code>{code}</Code><Message>no</Message></Error></ErrorResponse>"


def _importers() -> list[str]:
    return DeployedAccount(account="111122223333", region="us-east-1").importers(STACK, "net:Vpc")


def test_each_importer_of_an_export_is_named(cloudformation: Server) -> None:
    names = "<Imports><member>app</member><member>shop</member></Imports>"
    result = f"<ListImportsResult>{names}</ListImportsResult>"
    cloudformation.answer = _answer("200 OK", f"<ListImportsResponse>{result}</ListImportsResponse>")

    assert _importers() == ["app", "shop"]


def test_an_export_that_nobody_imports_has_no_importers(cloudformation: Server) -> None:
    cloudformation.answer = _answer("400 Bad Request", _error("ValidationError"))

    assert _importers() == []


def test_importers_that_cannot_be_read_are_refused(cloudformation: Server) -> None:
    """The refusal is one line, with the permission that is missing."""
    cloudformation.answer = _answer("403 Forbidden", _error("AccessDenied"))

    with pytest.raises(ConfigError, match=r"^who imports net:Vpc cannot be read .*allow cloudformation:ListImports"):
        _importers()
