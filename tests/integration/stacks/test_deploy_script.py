"""The deployment of `local` says what is missing when it cannot begin."""

import subprocess

from tests.support.project import PROJECT


def test_a_deployment_without_cdk_names_the_next_step() -> None:
    """The PATH has only the system's programs."""
    ended = subprocess.run(
        [PROJECT / "scripts" / "deploy-local.sh"],
        env={"PATH": "/usr/bin:/bin", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 2
    assert (
        ended.stderr == "deploy-local: there is no cdk on the PATH; make setup, then make deploy, which has it there\n"
    )
