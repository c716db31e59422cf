"""The Dockerfile puts enough into the image to run it, and the image fits what the stacks say of it."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest

from sluice.constructs.services import task_service
from sluice.declaration import task_settings
from tests.support.declaration import ENVIRONMENTS
from tests.support.project import PROJECT

DOCKERFILE = (PROJECT / "Dockerfile").read_text(encoding="utf-8")
LOCKED = dict(
    re.findall(
        r"^([A-Za-z0-9._-]+)==(\S+) \\$", (PROJECT / "requirements-worker.lock").read_text("utf-8"), re.MULTILINE
    )
)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the COPY lines of the Dockerfile copy, except the lock file."""
    app = tmp_path_factory.mktemp("app")
    for source, destination in re.findall(r"^COPY (\w+) (\w+)/$", DOCKERFILE, re.MULTILINE):
        shutil.copytree(PROJECT / source, app / destination, ignore=shutil.ignore_patterns("__pycache__"))
    return app


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed files of the locked packages and of no other."""
    deployment = tmp_path_factory.mktemp("site")
    for name in LOCKED:
        files = metadata.files(name)
        assert files, name
        for part in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            installed = Path(str(metadata.distribution(name).locate_file(part)))
            (deployment / part).symlink_to(installed)
    return deployment


def python(arguments: Sequence[str], app: Path, packages: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run Python as the image has it: without this project's environment, in the image's folder."""
    variables = {"PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8", **more}
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        cwd=app,
        env=variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", ["worker", "relay", "alive"])
def test_the_image_holds_all_that_a_command_imports(command: str, image: Path, packages: Path) -> None:
    """Copied folders and locked packages are enough, and running it writes nothing beside them."""
    before = sorted(image.rglob("*"))

    ran = python(["-m", "sluice", command, "--help"], image, packages)

    assert ran.returncode == 0
    assert ran.stderr == ""
    assert ran.stdout.startswith(f"Usage: sluice {command}")
    assert sorted(image.rglob("*")) == before


def test_the_image_holds_the_declared_handlers(image: Path, packages: Path) -> None:
    """Every module an environment names for consumers without an image of their own."""
    names = sorted(
        {
            consumer.handlers
            for environment in ENVIRONMENTS.values()
            for consumer in environment.consumers
            if consumer.handlers is not None and consumer.image is None
        }
    )
    loading = (
        "import sys; from sluice.messaging.handlers import Handlers; [Handlers.load(name) for name in sys.argv[1:]]"
    )

    ran = python(["-c", loading, *names], image, packages)

    assert names != []
    assert ran.returncode == 0
    assert ran.stderr == ""


@pytest.mark.parametrize("command", ["worker", "relay"])
def test_a_task_reads_the_settings_that_its_stack_wrote(command: str, image: Path, packages: Path) -> None:
    """The image holds no declaration: with the settings a task looks for its database next; without, it is refused."""
    prod = ENVIRONMENTS["prod"]
    part = task_settings.task_environment(prod, prod.consumers[0] if command == "worker" else None)
    given = {"SLUICE_ENV": "prod", "SLUICE_CONSUMER": "billing", "SLUICE_TASK_SETTINGS": task_settings.render(part)}

    completed_process = python(["-m", "sluice", command], image, packages, **given)
    untold = python(["-m", "sluice", command], image, packages)

    assert not (image / "environments.py").exists()
    assert completed_process.returncode == 3
    assert untold.returncode == 3
    assert completed_process.stderr == (
        "sluice: no database is named: give --dsn, or set SLUICE_DSN, SLUICE_DATABASE_SECRET_ARN or"
        " SLUICE_DATABASE_USER\n"
    )
    assert untold.stderr.startswith("sluice: there is no declaration environments.py (No such file or directory);")


def test_a_task_is_unhealthy_until_its_process_gives_a_sign(image: Path, packages: Path, tmp_path: Path) -> None:
    """The test runs the command of the health check, with its variable."""
    ran = python(["-m", "sluice", "alive"], image, packages, SLUICE_ALIVE_FILE=str(tmp_path / "alive"))

    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.startswith(f"sluice: no sign of life in '{tmp_path}/alive'")


@pytest.mark.parametrize("package", ["pytest", "pyarrow", "aws_cdk", "pyspark"])
def test_the_image_lacks_packages_of_tests_and_deployments(package: str, image: Path, packages: Path) -> None:
    """Packages that only tests and deployments need stay outside."""
    ran = python(["-c", f"import {package}"], image, packages)

    assert f"ModuleNotFoundError: No module named '{package}'" in ran.stderr


def test_the_image_and_the_tests_lock_the_same_versions() -> None:
    """The image's lock file and that of the tests have the same versions."""
    assert len(LOCKED) > 10
    assert {name: metadata.version(name) for name in LOCKED} == LOCKED


def test_the_image_runs_as_the_user_of_its_tasks() -> None:
    """The user is given by number, because ECS does not compare names, and a task definition overrides the image."""
    assert re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE) == [task_service._USER]
    assert f"--uid {task_service._USER} " in DOCKERFILE


def test_signals_of_ecs_reach_python() -> None:
    """Exec form and no entry point: the stack's command replaces CMD whole, and no shell is process 1."""
    commands = re.findall(r"^(CMD|ENTRYPOINT) (.+)$", DOCKERFILE, re.MULTILINE)

    assert [(name, json.loads(found)) for name, found in commands] == [("CMD", ["python", "-m", "sluice", "worker"])]


def test_only_copied_files_are_sent_to_the_builder() -> None:
    """The builder gets only the files that the Dockerfile copies, so no secret lying about gets in."""
    ignored = (PROJECT / ".dockerignore").read_text(encoding="utf-8").splitlines()

    copied = re.findall(r"^COPY (\S+) \S+$", DOCKERFILE, re.MULTILINE)

    assert [line for line in ignored if not line.startswith("#")] == [
        "*",
        *(f"!{item}" for item in copied),
        "**/__pycache__",
    ]


@pytest.mark.parametrize("folder", [PROJECT, PROJECT / "sluice" / "templates" / "project"])
def test_the_base_is_pinned_by_the_digest_that_the_registry_names(folder: Path, tmp_path: Path) -> None:
    """A script in skopeo's place knows one image: pinning is repeatable, and of an unknown image nothing is changed."""
    for name in ("Makefile", "Dockerfile"):
        shutil.copy(folder / name, tmp_path)
    dockerfile, skopeo, digest = tmp_path / "Dockerfile", tmp_path / "bin" / "skopeo", "sha256:" + 32 * "ab"
    skopeo.parent.mkdir()
    base = "docker.io/library/python:3.13-slim-trixie"
    skopeo.write_text(f'#!/bin/sh\n[ "$4" = docker://{base} ] && echo {digest}\n', encoding="utf-8")
    skopeo.chmod(0o755)

    def pin() -> int:
        variables = {"PATH": f"{skopeo.parent}:/usr/bin:/bin"}
        return subprocess.run(["make", "pin"], cwd=tmp_path, env=variables, capture_output=True, check=False).returncode

    assert [pin(), pin()] == [0, 0]
    pinned = dockerfile.read_text(encoding="utf-8")
    assert re.findall(r"^ARG BASE=(.*)", pinned, re.MULTILINE) == [f"{base}@{digest}"]

    dockerfile.write_text(pinned.replace("3.13-slim", "3.0-slim"), encoding="utf-8")

    assert pin() != 0
    assert dockerfile.read_text(encoding="utf-8") == pinned.replace("3.13-slim", "3.0-slim")
