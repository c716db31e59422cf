"""A mistake stops before a deployment: at cdk-nag in every synth, at cfn-lint, or at the app's exit code."""

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import aws_cdk as cdk
import cdk_nag
import pytest
import yaml
from aws_cdk import aws_sqs as sqs

import app
from sluice.constructs.nag import rule_packs
from sluice.declaration import Consumer, DatabaseUsers, Environment, Lambda, NewDatabase
from sluice.errors import ConfigError
from stacks.stage import EnvironmentStage
from tests.support.declaration import ENVIRONMENTS
from tests.support.project import PROJECT
from tests.support.templates.environments import EDITED, EXTRA, FULL, HOSTED, MIXED, PLAIN, REDRIVEN
from tests.support.templates.resources import StackTemplates, read
from tests.support.templates.synthesis import CONTEXT, synthesize

_DEV = ENVIRONMENTS["dev"]
assert isinstance(_DEV.database, NewDatabase)
VARIED = (
    *(ENVIRONMENTS["prod"], FULL, HOSTED, EDITED[REDRIVEN], EDITED[MIXED]),
    replace(_DEV, database=replace(_DEV.database, users=DatabaseUsers.OWNER)),
)
"""Environments that use every option between them."""
_VARIED = [
    pytest.param(environment, id=environment.name, marks=[pytest.mark.slow] * (environment is not FULL))
    for environment in VARIED
]
type RunApp = Callable[[str], None]
type StacksOf = Callable[[Environment], StackTemplates]


@pytest.fixture(scope="module")
def stacks_of(tmp_path_factory: pytest.TempPathFactory) -> StacksOf:
    """Return what synthesizes an environment, once."""
    folder = tmp_path_factory.mktemp("varied")
    return functools.cache(lambda environment: synthesize(environment, folder / environment.name))


def _findings(checked: cdk.App) -> list[tuple[str, str]]:
    """Return construct and rule of everything cdk-nag has against an app."""
    packs = [pack for pack in rule_packs(checked) if isinstance(pack, cdk_nag.NagPack)]
    assert [pack.name for pack in packs] == ["AwsSolutions", "Serverless"]
    return [
        (str(resource.construct_path), finding.rule_name)
        for pack in packs
        for finding in pack.validate_scope(checked).violations
        for resource in finding.violating_resources
    ]


def _acknowledgements(stacks: StackTemplates) -> list[tuple[str, str, str]]:
    """Return construct, rule and reason of every acknowledgement in an environment's stacks but CDK's own."""
    metadata = [json.loads(stack.metadata.read_text()) for stack in stacks.values()]
    return [
        (path.removeprefix("/"), rule.removeprefix("Annotation::"), reason)
        for paths in metadata
        for path, entries in paths.items()
        for entry in entries
        if entry["type"] == cdk.Validations.ACKNOWLEDGED_RULES_METADATA_KEY
        for rule, reason in entry["data"].items()
        if "CloudFormation-Validate" not in rule
    ]


@pytest.mark.slow  # a minute; cfn-lint reads the same templates
def test_cdk_nag_finds_nothing_that_is_not_acknowledged(tmp_path: Path) -> None:
    """Both rule packs and CDK's own rules check every environment."""
    checked = cdk.App(context=CONTEXT, outdir=str(tmp_path))
    for environment in (*ENVIRONMENTS.values(), *EXTRA.values(), EDITED[REDRIVEN], EDITED[MIXED]):
        EnvironmentStage(checked, environment=environment)

    assert _findings(checked) == []
    checked.synth()


@pytest.mark.slow  # cdk-nag's rules take long to load
def test_cdk_nag_finds_nothing_in_a_function_of_a_zip_package(tmp_path: Path) -> None:
    """The package is of the project, which has a folder with Sluice and the handlers."""
    for module in ("sluice/messaging/__init__.py", "shop/billing.py"):
        (tmp_path / "build" / module).parent.mkdir(parents=True)
        (tmp_path / "build" / module).touch()
    function = Lambda(package="build", maximum_concurrency=5)
    consumer = Consumer(name="billing", handlers="shop.billing", runtime=function)
    checked = cdk.App(context=CONTEXT, outdir=str(tmp_path / "cdk.out"))
    EnvironmentStage(checked, environment=replace(_DEV, image="worker:1", consumers=(consumer,)), project=tmp_path)

    assert _findings(checked) == []


@pytest.mark.slow  # six environments
def test_every_acknowledgement_says_why(stacks_of: StacksOf) -> None:
    """The page lists each rule with its reason, and no other: another is another decision."""
    reasons = {
        (rule.partition("[")[0], reason)
        for environment in VARIED
        for _, rule, reason in _acknowledgements(stacks_of(environment))
    }

    page = (PROJECT / "docs" / "architecture" / "stacks.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([A-Za-z]+-[A-Z]\w+)(?:\[.*?\])?` \| .* \| (.+) \|$", page, flags=re.MULTILINE)
    assert set(listed) == reasons


def test_checkov_skips_what_the_page_gives_a_reason_for() -> None:
    """`make checkov` itself downloads it, and is no part of the tests."""
    skipped = yaml.safe_load((PROJECT / ".checkov.yaml").read_text(encoding="utf-8"))["skip-check"]

    page = (PROJECT / "docs" / "architecture" / "stacks.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(CKV\w+)` \| .+ \| (.+) \|$", page, flags=re.MULTILINE)
    assert [rule for rule, _ in listed] == skipped
    assert all(len(reason) > 20 for _, reason in listed)


@pytest.mark.parametrize("environment", _VARIED)
def test_no_acknowledgement_is_stale(
    stacks_of: StacksOf, environment: Environment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without acknowledgements cdk-nag finds exactly the rules that they name, on the constructs that they name."""
    for name, module in sys.modules.items():
        if name.startswith("sluice.constructs.") and hasattr(module, "acknowledge"):
            monkeypatch.setattr(module, "acknowledge", lambda *_: None)
    checked = cdk.App(context=CONTEXT, outdir=str(tmp_path))
    EnvironmentStage(checked, environment=environment)

    found = _findings(checked)

    acknowledged = {(path, rule) for path, rule, _ in _acknowledgements(stacks_of(environment))}
    assert acknowledged == {
        (path, rule) for path, rule in acknowledged for where, seen in found if rule == seen and where.startswith(path)
    }


def test_names_that_are_too_long_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    """SQS takes 80 characters. The app exits as it does for every refused declaration."""
    environment = replace(PLAIN, consumers=(Consumer(name=50 * "a"),))

    with pytest.raises(ConfigError, match="has 84 characters, allowed are 80"):
        synthesize(environment, tmp_path)

    assert not list(tmp_path.rglob("*.template.json"))


@pytest.mark.parametrize("environment", _VARIED)
def test_cfn_lint_finds_nothing(stacks_of: StacksOf, environment: Environment) -> None:
    """The exceptions are those in .cfnlintrc, each with its reason."""
    files = [str(stack.file) for stack in stacks_of(environment).values()]

    ended = _run("cfn-lint", "--config-file", ".cfnlintrc", *files)

    assert ended.stdout == ""
    assert ended.stderr == ""
    assert ended.returncode == 0


@pytest.mark.slow  # the demo synthesizes by the app
def test_the_app_synthesizes_the_environment_the_context_names(stacks_of: StacksOf, tmp_path: Path) -> None:
    """Another process writes the same bytes as this one, and does not start Docker.

    It only prints which resource types would be lost.
    """
    context = json.dumps({**CONTEXT, "env": "prod"})
    docker = tmp_path / "docker"
    docker.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n", encoding="utf-8")
    docker.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"

    ended = _run(
        *(sys.executable, "app.py"),
        CDK_CONTEXT_JSON=context,
        CDK_OUTDIR=str(tmp_path),
        CDK_DOCKER=str(docker),
        PATH=path,
    )

    assert not (tmp_path / "started").exists()
    assert ended.returncode == 0
    assert ended.stdout == ""
    assert all(" to its DLQ: " in line for line in ended.stderr.splitlines()), ended.stderr
    assert {part: stack.file.read_bytes() for part, stack in read(tmp_path).items()} == {
        part: stack.file.read_bytes() for part, stack in stacks_of(ENVIRONMENTS["prod"]).items()
    }


def _run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT), **variables},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.fixture
def run_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunApp:
    """Return what runs the app in this process, for the environment of that name, into the test's own folder."""

    def run(name: str) -> None:
        made = partial(cdk.App, context={**CONTEXT, "env": name}, outdir=str(tmp_path))
        monkeypatch.setattr(cdk, "App", made)
        app.main()

    return run


class _Careless(EnvironmentStage):
    """A stage with a queue that has neither TLS nor a DLQ."""

    def __init__(self, scope: cdk.App, *, environment: Environment) -> None:
        super().__init__(scope, environment=environment)
        messaging = self.node.find_child("Messaging")
        assert isinstance(messaging, cdk.Stack)
        sqs.Queue(messaging, "Careless")


def test_the_app_refuses_what_cdk_nag_finds(run_app: RunApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the construct and the rules; Python exits with 1."""
    monkeypatch.setattr(app, "EnvironmentStage", _Careless)

    with pytest.raises(RuntimeError) as refused:
        run_app("local")

    assert "local/Messaging/Careless/Resource" in str(refused.value)
    for rule in ("AwsSolutions-SQS3", "AwsSolutions-SQS4", "Serverless-SQSRedrivePolicy"):
        assert rule in str(refused.value)


def test_the_app_refuses_an_environment_nobody_declared(
    run_app: RunApp, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 3 and one line, which names the environments there are; no traceback, nothing written."""
    with pytest.raises(SystemExit) as exited:
        run_app("nope")

    printed = capsys.readouterr()
    assert exited.value.code == 3
    assert printed.out == ""
    assert printed.err == (
        "app.py: environment 'nope' is not declared, allowed is one of local, dev, staging, prod;"
        " declare it in tests/support/declarations/environments.py\n"
    )
    assert not list(tmp_path.glob("*"))
