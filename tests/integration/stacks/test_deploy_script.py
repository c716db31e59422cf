"""The deployment of `local` takes the cdk of `make setup`, and says when there is none."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.project import PROJECT


@pytest.mark.parametrize(
    ("has_cdk", "code", "printed"),
    [
        (False, 2, "deploy-local: there is no cdk in node_modules/.bin or on the PATH; make setup installs it\n"),
        (True, 7, ""),
    ],
)
def test_a_deployment_finds_cdk_without_make(tmp_path: Path, *, has_cdk: bool, code: int, printed: str) -> None:
    """The PATH has only the system's programs, as in a shell that a guide's command is copied to; cdk ends with 7."""
    script = Path(shutil.copytree(PROJECT / "scripts", tmp_path / "scripts")) / "deploy-local.sh"
    if has_cdk:
        cdk = tmp_path / "node_modules" / ".bin" / "cdk"
        cdk.parent.mkdir(parents=True)
        cdk.write_text("#!/bin/sh\nexit 7\n", encoding="utf-8")
        cdk.chmod(0o755)

    ended = subprocess.run(
        [script],
        env={"PATH": "/usr/bin:/bin", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == code
    assert ended.stderr == printed
