"""The wheel of this checkout, built once, and fresh environments it is installed in."""

import os
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


def done(*command: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Return how a command ended, which has to be with 0."""
    ended = run(*command, cwd=cwd, **variables)
    assert ended.returncode == 0, f"{command} ended with {ended.returncode}:\n{ended.stdout}\n{ended.stderr}"
    return ended


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    done(_BIN / "uv", "build", "--quiet", "--wheel", "--no-build-isolation", "--out-dir", folder, cwd=PROJECT)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def environment_with(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return what makes a fresh environment with the wheel and one of its extras, or none."""

    def make(extra: str) -> Path:
        folder = tmp_path_factory.mktemp(f"environment-{extra or 'base'}") / ".venv"
        done(_BIN / "uv", "venv", "--quiet", "--python", _BIN / "python", folder, cwd=folder.parent)
        into = ("--python", folder / "bin" / "python", "--constraint", PROJECT / "requirements.lock")
        wanted = f"sluice-fifo[{extra}] @ {wheel.as_uri()}"
        install = (_BIN / "uv", "pip", "install", "--quiet", *into, wanted)
        if run(*install, "--offline", cwd=folder.parent).returncode != 0:  # set-up has filled uv's cache, mostly
            done(*install, cwd=folder.parent)
        return folder

    return make
