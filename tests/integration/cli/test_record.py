"""`sluice record` records the clients of programs that do not know it, and the programs end as without it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.history.events import Kind
from sluice.recorder import every_client
from sluice.recorder.journal import SUFFIX, events_of, read_journal
from tests.support.command_line import KEYS
from tests.support.endpoints import fake_aws
from tests.support.project import PROJECT

_SERVICE = """
import boto3, os, sys
sqs = boto3.client("sqs", endpoint_url=os.environ["ENDPOINT"], region_name="us-east-1")
boto3.client("s3", region_name="us-east-1")
url = sqs.create_queue(QueueName="orders.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
for number in range(3):
    sqs.send_message(QueueUrl=url, MessageBody=str(number), MessageGroupId="g", MessageDeduplicationId=str(number))
"""


@pytest.fixture
def endpoint() -> Iterator[fake_aws.Endpoint]:
    with fake_aws.running() as found:
        yield found


def _record(
    folder: Path, program: str, endpoint: fake_aws.Endpoint, *options: str, **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sluice", "record", *options, str(folder), "--", sys.executable, "-c", program],
        env={**os.environ, **KEYS, "ENDPOINT": endpoint.url, "PYTHONPATH": str(PROJECT), **more},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _kinds(folder: Path) -> list[str]:
    events = [event for path in sorted(folder.glob(f"*{SUFFIX}")) for event in events_of(read_journal(path))]
    return sorted(event.kind for event in events)


def test_a_program_is_recorded_without_a_change(endpoint: fake_aws.Endpoint, tmp_path: Path) -> None:
    """The program sends three messages and knows nothing of the recorder."""
    ended = _record(tmp_path / "tuesday", _SERVICE, endpoint)

    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.startswith(f"journals in {tmp_path}/tuesday: 1; judge them: sluice check {tmp_path}/tuesday ")
    assert _kinds(tmp_path / "tuesday").count(Kind.PUBLISHED) == 3
    assert _kinds(tmp_path / "tuesday").count(Kind.CLOSED) == 1


def test_an_earlier_recording_in_the_folder_is_not_taken_for_this_one(
    endpoint: fake_aws.Endpoint, tmp_path: Path
) -> None:
    """The second program calls no AWS, so the one journal in the folder is the first one's."""
    _record(tmp_path / "tuesday", _SERVICE, endpoint)

    ended = _record(tmp_path / "tuesday", "print()", endpoint)

    assert ended.stderr.startswith(f"journals in {tmp_path}/tuesday: 1, of which this made none; no Python program")
    assert "judge them" not in ended.stderr


def test_programs_that_it_starts_are_recorded_too(endpoint: fake_aws.Endpoint, tmp_path: Path) -> None:
    """The recorded program sends nothing itself; its subprocess sends the three messages."""
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_SERVICE!r}], check=True)"

    ended = _record(tmp_path / "tuesday", program, endpoint)

    assert ended.returncode == 0, ended.stderr
    assert _kinds(tmp_path / "tuesday").count(Kind.PUBLISHED) == 3


_FORKING = f"""
import multiprocessing, os, sys, warnings
warnings.simplefilter("ignore")  # that threads and fork do not go together
def serve(name): exec(SERVICE.replace("orders", name))
SERVICE = {_SERVICE!r}
serve("parent")
child = multiprocessing.get_context("fork").Process(target=serve, args=("child",))
child.start(); child.join()
pid = os.fork()
serve("forked") if pid == 0 else os.waitpid(pid, 0)
"""


def test_children_that_are_forked_have_a_journal_each_and_close_it(endpoint: fake_aws.Endpoint, tmp_path: Path) -> None:
    """A child of multiprocessing ends without `atexit`; an open journal would make its history unknown."""
    ended = _record(tmp_path / "tuesday", _FORKING, endpoint)

    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.startswith(f"journals in {tmp_path}/tuesday: 3; ")
    assert _kinds(tmp_path / "tuesday").count(Kind.PUBLISHED) == 9
    assert _kinds(tmp_path / "tuesday").count(Kind.CLOSED) == 3


def test_the_exit_code_is_the_programs(endpoint: fake_aws.Endpoint, tmp_path: Path) -> None:
    """A program that a signal ends has 128 and the signal's number, as in a shell."""
    assert _record(tmp_path / "a", "import sys; sys.exit(7)", endpoint).returncode == 7
    assert _record(tmp_path / "b", "import os; os.kill(os.getpid(), 9)", endpoint).returncode == 137


def test_a_sitecustomize_of_their_own_is_still_imported(endpoint: fake_aws.Endpoint, tmp_path: Path) -> None:
    """Sluice's sitecustomize comes first on the path, and imports the program's."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import builtins; builtins.OWN = 'here'\n", encoding="utf-8")

    ended = _record(
        tmp_path / "c", "import json; print(json.dumps(OWN))", endpoint, PYTHONPATH=f"{tmp_path / 'own'}:{PROJECT}"
    )

    assert json.loads(ended.stdout) == "here"


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    ids=[
        "no such program",
        "no program",
        "proxy without --to",
        "--to without a proxy",
        "ftp",
        "no port",
        "no folder",
        "no share",
    ],
    argvalues=[
        (["{folder}", "--", "no-such-program"], 3, "sluice: there is no program 'no-such-program'; name one"),
        (["{folder}"], 3, "sluice: no program is named, and no proxy; name a program after `--`, or give --proxy"),
        (["{folder}", "--proxy", "0"], 3, "sluice: a proxy needs --proxy and --to, and takes no program; give both"),
        (["{folder}", "--to", "aws", "--", "true"], 3, "sluice: a proxy needs --proxy and --to, and takes no program"),
        (["{folder}", "--proxy", "0", "--to", "ftp://x"], 3, "sluice: endpoint is 'ftp://x', allowed is a URL such as"),
        (["{folder}", "--proxy", "70000", "--to", "aws"], 3, "sluice: Invalid value for '--proxy': it is '70000'"),
        (["{folder}/file/below", "--", "true"], 3, "sluice: cannot write to {folder}/file/below (Not a directory)"),
        (["--one-group-in", "0", "{folder}", "--", "true"], 3, "sluice: Invalid value for '--one-group-in'"),
    ],
)
def test_an_impossible_recording_is_refused_in_one_line(
    arguments: list[str], code: int, line: str, tmp_path: Path
) -> None:
    """The refusal comes before the program is started."""
    (tmp_path / "file").touch()
    ended = subprocess.run(
        [sys.executable, "-m", "sluice", "record", *(text.format(folder=tmp_path) for text in arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == code, ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert ended.stderr.startswith(line.format(folder=tmp_path))


def test_a_program_without_the_recorder_is_named_as_such(endpoint: fake_aws.Endpoint, tmp_path: Path) -> None:
    """`python -I` reads no environment variables, by which the recorder is loaded."""
    ended = subprocess.run(
        [sys.executable, "-m", "sluice", "record", str(tmp_path / "none"), "--", sys.executable, "-I", "-c", "1"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    refused = _record(tmp_path / "absent" / "folder", "", endpoint, "--one-group-in", "0")

    assert ended.returncode == 0
    assert ended.stderr.partition("; ")[0] == f"journals in {tmp_path}/none: 0"
    assert "-I, -E or -S" in ended.stderr
    assert refused.returncode == 3
    assert not (tmp_path / "absent").exists()


def test_a_program_whose_recording_cannot_be_written_works_as_before(
    endpoint: fake_aws.Endpoint, tmp_path: Path
) -> None:
    """The folder is gone when its first client is made: that is said, and its messages are sent."""
    (tmp_path / "file").touch()

    ended = subprocess.run(
        [sys.executable, "-c", _SERVICE],
        env=every_client.environment(tmp_path / "file" / "below", 1, {**os.environ, **KEYS, "ENDPOINT": endpoint.url}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert "not recorded: " in ended.stderr, ended.stderr


def test_a_program_without_the_recorders_packages_works_as_before(endpoint: fake_aws.Endpoint, tmp_path: Path) -> None:
    """The program's Python is another one than that of `sluice record`, and the extra is not installed in it."""
    (tmp_path / "hidden").mkdir()
    absent = "raise ModuleNotFoundError('No module named pyarrow', name='pyarrow')\n"
    (tmp_path / "hidden" / "pyarrow.py").write_text(absent, encoding="utf-8")
    own = {**os.environ, **KEYS, "ENDPOINT": endpoint.url, "PYTHONPATH": f"{tmp_path / 'hidden'}:{PROJECT}"}

    ended = subprocess.run(
        [sys.executable, "-c", _SERVICE],
        env=every_client.environment(tmp_path, 1, own),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert (
        "not recorded: pyarrow is not installed, which this needs; pip install 'sluice-fifo[recorder]'" in ended.stderr
    )


def test_a_python_that_is_too_old_is_named(tmp_path: Path) -> None:
    """The program runs; it is not recorded, and its own sitecustomize is imported."""
    (tmp_path / "sitecustomize.py").write_text("print('own')\n", encoding="utf-8")
    old = "import runpy, sys; sys.version_info = (3, 11, 7); runpy.run_path(sys.argv[1])"

    ended = subprocess.run(
        [sys.executable, "-S", "-c", old, str(PROJECT / "sluice" / "recorder" / "startup" / "sitecustomize.py")],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 0
    assert ended.stdout == "own\n"
    assert ended.stderr == (
        "sluice: not recorded: this program runs on Python 3.11, the recorder needs 3.12 or newer; run it on that\n"
    )


def test_a_program_without_such_a_client_writes_no_journal(endpoint: fake_aws.Endpoint, tmp_path: Path) -> None:
    """A shell script's helpers in Python leave nothing behind that a check would call unfinished or empty."""
    ended = _record(tmp_path / "none", "print(1)", endpoint)

    assert ended.returncode == 0
    assert list((tmp_path / "none").glob(f"*{SUFFIX}")) == []
