"""What stands between a mistake and a deployment: cdk-nag at every synth, cfn-lint, and the app's exit code."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import cdk_nag
import pytest

from sluice.constructs import alarms, fan_out, task_service
from sluice.constructs.nag import rule_packs
from sluice.declaration import Consumer, Environment
from sluice.errors import ConfigError
from tests.support.declaration import ENVIRONMENTS
from tests.support.project import PROJECT
from tests.unit.stacks import synthesis
from tests.unit.stacks.extra import FULL, HOSTED, PLAIN
from tests.unit.stacks.synthesis import CONTEXT, Stacks


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A command that ended, and the directory it was to write to."""

    returncode: int
    stdout: str
    stderr: str
    directory: Path


type Command = Future[Ended]

CARELESS = """
from aws_cdk import aws_sqs as sqs

import app


class Careless(app.EnvironmentStage):
    def __init__(self, scope, *, environment):
        super().__init__(scope, environment=environment)
        sqs.Queue(self.messaging, "Careless")


app.EnvironmentStage = Careless
app.main()
"""


def _findings(app: cdk.App) -> list[tuple[str, str]]:
    """Return construct and rule of everything cdk-nag has against the app."""
    packs = [pack for pack in rule_packs(app) if isinstance(pack, cdk_nag.NagPack)]
    assert [pack.name for pack in packs] == ["AwsSolutions", "Serverless"]
    return [
        (str(resource.construct_path), finding.rule_name)
        for pack in packs
        for finding in pack.validate_scope(app).violations
        for resource in finding.violating_resources
    ]


def _acknowledged(parts: Stacks) -> list[tuple[str, str, str]]:
    """Return construct, rule and reason of every acknowledgement in an environment's stacks but CDK's own."""
    metadata = [json.loads(part.metadata.read_text()) for part in parts.values()]
    return [
        (path.removeprefix("/"), rule.removeprefix("Annotation::"), reason)
        for paths in metadata
        for path, entries in paths.items()
        for entry in entries
        if entry["type"] == cdk.Validations.ACKNOWLEDGED_RULES_METADATA_KEY
        for rule, reason in entry["data"].items()
        if "CloudFormation-Validate" not in rule
    ]


def test_cdk_nag_finds_nothing_that_is_not_acknowledged(app: cdk.App) -> None:
    """Both rule packs, every environment."""
    assert _findings(app) == []


def test_every_acknowledgement_says_why(stacks: Mapping[str, Stacks]) -> None:
    """Six reasons there are, each for one rule, on the page too; another is another decision."""
    reasons = {
        (rule.partition("[")[0], reason) for parts in stacks.values() for _, rule, reason in _acknowledged(parts)
    }

    assert reasons == {
        ("Serverless-SQSRedrivePolicy", "it is a DLQ: what it holds waits for an operator"),
        ("AwsSolutions-SQS3", "it is the DLQ of a subscription"),
        (
            "AwsSolutions-ECS2",
            "the variables are names, numbers and the ARN of a secret; the secret itself is read by the task",
        ),
        (
            "AwsSolutions-IAM5",
            "ecr:GetAuthorizationToken knows no resource; pulling itself is allowed from one repository",
        ),
        (
            "AwsSolutions-IAM5",
            "a task protects itself, and its id is known only once it runs; other clusters are out of reach",
        ),
        ("Serverless-SNSRedrivePolicy", "a mail that does not arrive is still in CloudWatch"),
    }
    page = (PROJECT / "docs" / "architecture" / "stacks.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([A-Za-z]+-[A-Z]\w+)(?:\[.*?\])?` \| .* \| (.+) \|$", page, flags=re.MULTILINE)
    assert set(listed) == reasons


@pytest.mark.parametrize(
    "environment",
    [
        ENVIRONMENTS["prod"],
        FULL,
        HOSTED,
    ],
    ids=lambda environment: environment.name,
)
def test_no_acknowledgement_is_stale(
    stacks: Mapping[str, Stacks], environment: Environment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without them cdk-nag finds exactly what they say, where they say it."""
    for module in (alarms, fan_out, task_service):
        monkeypatch.setattr(module, "acknowledge", lambda *_: None)
    app = cdk.App(context=CONTEXT, outdir=str(tmp_path))
    synthesis.build(app, [environment])

    found = _findings(app)

    acknowledged = [(path, rule) for path, rule, _ in _acknowledged(stacks[environment.name])]
    answers = [
        (path, rule) for path, rule in acknowledged for where, seen in found if rule == seen and where.startswith(path)
    ]
    assert sorted(set(answers)) == sorted(acknowledged)


def test_names_that_are_too_long_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    """SQS takes 80 characters; what the app then exits with is what it does for every refused declaration."""
    environment = replace(PLAIN, consumers=(Consumer(name=50 * "a"),))

    with pytest.raises(ConfigError, match="has 84 characters, allowed are 80"):
        synthesis.synthesize(environment, tmp_path)

    assert not list(tmp_path.rglob("*.template.json"))


def _run(command: list[str], *, directory: Path, context: dict[str, Any] | None = None) -> Ended:
    ended = subprocess.run(
        command,
        cwd=PROJECT,
        env={
            **os.environ,
            "CDK_CONTEXT_JSON": json.dumps(context),
            "CDK_OUTDIR": str(directory),
            "PYTHONPATH": str(PROJECT),
        },
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    return Ended(returncode=ended.returncode, stdout=ended.stdout, stderr=ended.stderr, directory=directory)


@pytest.fixture(scope="module")
def commands(stacks: Mapping[str, Stacks], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Command]]:
    """Run what this file asks about, two at a time: each command takes ten seconds, most of them to start."""
    root = tmp_path_factory.mktemp("commands")
    careless = root / "careless.py"
    careless.write_text(CARELESS)
    lint = ["cfn-lint", "--config-file", ".cfnlintrc"]
    files = [str(stack.file) for parts in stacks.values() for stack in parts.values()]
    app = [sys.executable, "app.py"]
    local, prod, nope = ({**CONTEXT, "env": name} for name in ("local", "prod", "nope"))
    with ThreadPoolExecutor(max_workers=2) as executor:
        yield {
            "cfn-lint": executor.submit(_run, [*lint, *files], directory=root),
            "prod": executor.submit(_run, app, directory=root / "prod", context=prod),
            "careless": executor.submit(_run, [sys.executable, str(careless)], directory=root / "out", context=local),
            "nope": executor.submit(_run, app, directory=root / "nope", context=nope),
        }


def test_cfn_lint_finds_nothing(commands: dict[str, Command]) -> None:
    """In every template there is, with the exceptions .cfnlintrc gives reasons for."""
    ended = commands["cfn-lint"].result()

    assert (ended.stdout, ended.stderr, ended.returncode) == ("", "", 0)


def test_the_app_synthesizes_the_environment_the_context_names(
    stacks: Mapping[str, Stacks], commands: dict[str, Command]
) -> None:
    """A process of its own writes, to the byte, the templates this one made, and says nothing."""
    ended = commands["prod"].result()

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    written = synthesis.read(ended.directory, "prod")
    assert {part: stack.file.read_bytes() for part, stack in written.items()} == {
        part: stack.file.read_bytes() for part, stack in stacks["prod"].items()
    }


def test_the_app_refuses_what_cdk_nag_finds(commands: dict[str, Command]) -> None:
    """A queue without TLS and without a DLQ, added to the stage: a non-zero exit code and each rule by its name."""
    ended = commands["careless"].result()

    assert ended.returncode == 1
    assert "local/Messaging/Careless/Resource" in ended.stderr
    for rule in ("AwsSolutions-SQS3", "AwsSolutions-SQS4", "Serverless-SQSRedrivePolicy"):
        assert rule in ended.stderr


def test_the_app_refuses_an_environment_nobody_declared(commands: dict[str, Command]) -> None:
    """Exit code 3 and one line, which names the environments there are; no traceback, nothing written."""
    ended = commands["nope"].result()

    assert ended.returncode == 3
    assert ended.stdout == ""
    assert ended.stderr == (
        "app.py: environment 'nope' is not declared, allowed is one of local, dev, staging, prod;"
        " declare it in tests/support/declared/environments.py\n"
    )
    assert not list(ended.directory.glob("*"))
