"""The wheel of this checkout, built once, and fresh environments it is installed in."""

import functools
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.project import PROJECT

KEYS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
_BIN = PROJECT / ".venv" / "bin"
_DROPPED = ("AWS_", "LOCALSTACK_", "MAKE", "MFLAGS", "PYSPARK_", "PYTEST", "PYTHON", "SLUICE_", "SPARK_", "VIRTUAL_ENV")
_SECONDS_MAX = 240


def run(*command: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Return how a command ended that saw nothing of this checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
    elsewhere = [part for part in kept["PATH"].split(os.pathsep) if not part.startswith(str(PROJECT))]
    kept["PATH"] = os.pathsep.join([str(PROJECT / ".venv" / "node" / "bin"), *elsewhere])  # cdk needs a node
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=kept | KEYS | variables,
        capture_output=True,
        text=True,
        timeout=_SECONDS_MAX,
        check=False,
    )


def run_to_end(*command: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Return how a command ended, which has to be with 0."""
    ended = run(*command, cwd=cwd, **variables)
    assert ended.returncode == 0, f"{command} ended with {ended.returncode}:\n{ended.stdout}\n{ended.stderr}"
    return ended


def build_wheel(source: Path, folder: Path) -> Path:
    options = ("--quiet", "--wheel", "--no-build-isolation", "--python", _BIN / "python", "--out-dir", folder)
    run_to_end(_BIN / "uv", "build", *options, cwd=source)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(PROJECT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def next_wheel(tmp_path: Path) -> Path:
    """Return the wheel of a later version, whose templates have changed."""
    source = tmp_path / "source"
    for name in ("sluice", "contract_tests", "spark_load"):
        shutil.copytree(PROJECT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "LICENSE", "hatch_build.py"):
        shutil.copy(PROJECT / name, source)
    settings = (PROJECT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'version = "0.1.0"' in settings
    (source / "pyproject.toml").write_text(settings.replace('version = "0.1.0"', 'version = "0.1.1"'), encoding="utf-8")
    for template in (source / "sluice" / "templates" / "project").rglob("*.*"):
        template.write_text(template.read_text(encoding="utf-8") + "\n# later\n", encoding="utf-8")
    return build_wheel(source, tmp_path)


def install(environment: Path, wanted: str, *options: str) -> None:
    """Install something into an environment, in the versions that are locked."""
    into = ("--python", str(environment / "bin" / "python"), "--constraint", str(PROJECT / "requirements.lock"))
    command = ("pip", "install", "--quiet", *into, *options, wanted)
    if run(_BIN / "uv", *command, "--offline", cwd=environment.parent).returncode != 0:  # set-up fills uv's cache
        run_to_end(_BIN / "uv", *command, cwd=environment.parent)


@pytest.fixture(scope="session")
def environment_with(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return what makes a fresh environment with the wheel and one of its extras, or none; of each extra one."""

    @functools.cache
    def make(extra: str) -> Path:
        folder = tmp_path_factory.mktemp(f"environment-{extra or 'base'}") / ".venv"
        run_to_end(_BIN / "uv", "venv", "--quiet", "--python", _BIN / "python", folder, cwd=folder.parent)
        install(folder, f"sluice-fifo[{extra}] @ {wheel.as_uri()}")
        return folder

    return make
