"""The contracts report no deviation for answers that AWS may give."""

import subprocess
import sys

from tests.support.project import PROJECT

_FILES = [
    f"contract_tests/{name}.py"
    for name in ("groups/test_group_blocking", "groups/test_fifo_ordering", "queues/test_batches")
]


def test_short_answers_and_groups_in_any_order_break_no_promise() -> None:
    command = [sys.executable, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", "-p", "tests.support.lawful"]

    ended = subprocess.run(
        [*command, *_FILES, "--target", "simulator"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout[-3_000:]
