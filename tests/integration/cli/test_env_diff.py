"""`sluice env diff` shows the effects of a changed declaration."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from sluice.cli.env.diff import differences
from sluice.cli.main import main
from tests.support.declaration import ENVIRONMENTS

pytestmark = pytest.mark.xdist_group("rehearsal")  # one worker compiles the simulation

_DECLARATION = """\
from sluice.declaration import Consumer, Environment, NewNetwork, NewDatabase

ENVIRONMENTS = (Environment(name="prod", application="shop", consumers=(Consumer(name="billing", lanes={lanes}),)),)
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a declaration that is committed in git and has changed since, beside a link out of the repository."""
    folder = tmp_path_factory.mktemp("committed")
    file = folder / "environments.py"
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b.example"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    file.write_text(_DECLARATION.format(lanes=4), encoding="utf-8")
    (folder / "outside").symlink_to("/nowhere")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message", "before"], check=True)
    file.write_text(_DECLARATION.format(lanes=8), encoding="utf-8")
    return file


def test_a_consumer_that_comes_and_goes_is_named() -> None:
    """The changed declaration has one consumer more, whose cost and ceiling had no value before."""
    prod = ENVIRONMENTS["prod"]
    fewer = replace(prod, consumers=prod.consumers[:2])

    found = {each.name: (each.before, each.after) for each in differences(fewer, prod) if each.of == "audit"}

    assert found["consumer"] == ("-", "declared")
    assert found["ceiling"] == ("-", "78.4/s: lanes and tasks")
    assert float(found["day: task-hours"][1].replace(",", "")) > 1


def test_savings_by_bundles_are_a_range() -> None:
    """The backlog decides how many events share a message: from one to the 50 that are declared."""
    prod = ENVIRONMENTS["prod"]
    changed = replace(prod, topics=(replace(prod.topics[0], bundle_events_max=50),))

    found = {(each.of, each.name): (each.before, each.after) for each in differences(prod, changed)}

    topic = changed.topics[0].name
    assert found[topic, "events of a message, at most"] == ("1", "50")
    assert found[topic, "requests for a million events of one group"] == ("2,100,000", "42,000 to 2,100,000")
    assert found["billing", "maxReceiveCount"] == ("5", "1000")
    before, after = found["prod", "US dollars a month, 50M messages of 1 KiB"]
    assert after.endswith(f" to {before}")


def test_changed_fields_and_their_consequences_are_reported() -> None:
    """Half as many tasks halve billing's ceiling, and other consumers are not mentioned."""
    prod = ENVIRONMENTS["prod"]
    billing = replace(prod.consumers[0], visibility_timeout_seconds=120, max_tasks=10)
    changed = replace(prod, consumers=(billing, *prod.consumers[1:]))

    found = {(each.of, each.name): (each.before, each.after) for each in differences(prod, changed)}

    assert found["billing", "max_tasks"] == ("20", "10")
    assert found["billing", "a killed task's groups wait, at most"] == ("60 s", "120 s")
    assert found["billing", "ceiling"] == ("78.4/s: lanes and tasks", "39.2/s: lanes and tasks")
    assert ("billing", "burst: p95") in found
    assert {of for of, _ in found} == {"billing"}


def test_equal_declarations_have_no_differences() -> None:
    """No figure depends on chance: two computations for one declaration are equal."""
    assert list(differences(ENVIRONMENTS["prod"], ENVIRONMENTS["prod"])) == []


def test_a_declaration_is_compared_with_that_of_a_revision(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file has 8 lanes, and the revision that was committed had 4."""
    monkeypatch.chdir(repository.parent)

    main(["env", "diff", "prod", "--declaration", str(repository), "--json"])

    found = {
        (each["of"], each["name"]): (each["before"], each["after"]) for each in json.loads(capsys.readouterr().out)
    }
    assert found["billing", "lanes"] == ("4", "8")


@pytest.mark.parametrize("against", ["nonsense", "HEAD:nowhere", "", "--list"])
def test_a_name_that_is_neither_revision_nor_file_is_refused(
    against: str, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--list` is no revision, though git itself would take it for an option."""
    with pytest.raises(SystemExit) as ended:
        main(["env", "diff", "prod", "--declaration", str(repository), f"--against={against}"])

    assert ended.value.code == 3
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("before", "line"),
    [
        (_DECLARATION.format(lanes=4).replace('"prod"', '"test"'), "environment 'prod' is not declared there"),
        ("raise RuntimeError", "RuntimeError"),
    ],
    ids=["other environment", "error at import"],
)
def test_a_declaration_that_cannot_be_compared_is_refused(
    before: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other file declares no environment of that name, or cannot be imported."""
    file, other = tmp_path / "environments.py", tmp_path / "before.py"
    file.write_text(_DECLARATION.format(lanes=4), encoding="utf-8")
    other.write_text(before, encoding="utf-8")

    with pytest.raises(SystemExit) as ended:
        main(["env", "diff", "prod", "--declaration", str(file), "--against", str(other)])

    printed = capsys.readouterr().err
    assert ended.value.code == 3
    assert printed.count("\n") == 1
    assert line in printed
