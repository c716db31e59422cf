"""Documented commands run: each target of the Makefile, and each command of a guide, in `.ci/run` or every night."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.support.project import PROJECT

_MAKEFILE = (PROJECT / "Makefile").read_text(encoding="utf-8")
_NIGHTLY = PROJECT / ".github" / "workflows" / "nightly.yml"
_GUIDES = PROJECT / "docs" / "guides"
_BLOCK = re.compile(r"((?:^<!-- [^\n]+ -->\n)*)^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
_NEEDS = (
    "needs an account",
    "needs Docker",
    "restarts what runs on your machine",
    "nobody knows the id",
)
"""Beginnings of reasons for which no machine of ours runs a command of a guide."""


def _scripts(of: Any) -> Iterator[str]:
    """Yield the text of each `run` of a workflow."""
    if isinstance(of, dict):
        for name, value in of.items():
            yield from (value,) if name == "run" else _scripts(value)
    elif isinstance(of, list):
        for value in of:
            yield from _scripts(value)


def _nightly() -> list[str]:
    workflow = yaml.safe_load(_NIGHTLY.read_text(encoding="utf-8"))
    assert "schedule" in workflow[True]  # what YAML 1.1 makes of `on`
    return [line.partition(" #")[0].strip() for script in _scripts(workflow) for line in script.splitlines()]


def _named_targets(lines: list[str]) -> set[str]:
    """Return the targets that commands name: `make WORKERS=4 contract` names one."""
    commands = [found for line in lines for found in re.findall(r"\bmake\s+([^;|&>#]+)", line)]
    return {word for command in commands for word in command.split() if re.fullmatch("[a-z][a-z-]*", word)}


def _reached_targets(targets: set[str]) -> set[str]:
    """Return targets with all that they need and make, and targets that do nothing but make some of these."""
    rules = dict(re.findall(r"^([a-z-]+):((?:.*\n)(?:\t.*\n)*)", _MAKEFILE, flags=re.MULTILINE))
    recipes = {target: rule.splitlines()[1:] for target, rule in rules.items()}
    makes = {
        target: [word for line in recipe if "$(MAKE)" in line for word in line.split() if word in rules]
        for target, recipe in recipes.items()
    }
    heads = {target: rule.partition("\n")[0].partition("##")[0] for target, rule in rules.items()}
    needs = {target: [word for word in head.split() if word in rules] for target, head in heads.items()}
    reached, waiting = set[str](), [*targets]
    while waiting:
        if (target := waiting.pop()) not in reached:
            reached.add(target)
            waiting += needs[target] + makes[target]
    only_make = {target for target, lines in recipes.items() if lines and all("$(MAKE)" in line for line in lines)}
    return reached | {target for target in only_make if reached.issuperset(makes[target])}


def test_every_target_of_the_makefile_runs_in_ci_or_every_night() -> None:
    documented = set(re.findall(r"^([a-z-]+):.*##", _MAKEFILE, flags=re.MULTILINE))
    ci = (PROJECT / ".ci" / "run").read_text(encoding="utf-8").splitlines()

    run = _reached_targets(
        _named_targets([line for line in ci if not line.startswith("#")]) | _named_targets(_nightly())
    )

    assert documented - run == set(), "add these to .github/workflows/nightly.yml"
    assert {"test", "demo", "test-pages", "unit", "proofs", "server-tests", "slow"} <= run


def _is_left_out(reason: str, commands: str) -> bool:
    """Return whether commands run neither in a named test nor every night, and the reason is not in `_NEEDS`."""
    if reason.startswith(_NEEDS) or all((PROJECT / path).exists() for path in _paths(reason)):
        return False
    lines = [line.partition(" #")[0].strip() for line in commands.replace("\\\n", "").splitlines()]
    nightly = _nightly()
    return not reason.startswith("runs every night") or not all(
        any(line in item for item in nightly) for line in lines if line
    )


def _paths(reason: str) -> list[str]:
    """Return the tests and scripts that a reason names; if it names none, a path that does not exist."""
    return re.findall(r"\b(?:tests|scripts)/[\w/]+\.(?:py|sh)\b", reason) or ["no such test"]


def test_every_command_of_a_guide_is_run_or_says_why_not() -> None:
    """Each block of commands has a mark, see tests/integration/docs.

    A reason names a test, a nightly run, or what the command needs.
    """
    blocks = [(guide.name, *found) for guide in sorted(_GUIDES.iterdir()) for found in _BLOCK.findall(_text(guide))]

    unmarked = [
        (guide, inside) for guide, marks, inside in blocks if "<!-- run" not in marks and not _NOT_RUN.search(marks)
    ]
    left_out = [
        (guide, reason, inside)
        for guide, marks, inside in blocks
        for reason in _NOT_RUN.findall(marks)
        if _is_left_out(reason, inside)
    ]
    assert len(blocks) > 50
    assert unmarked == []
    assert left_out == []


def test_every_guide_with_commands_to_run_is_run() -> None:
    marked = {guide.name for guide in _GUIDES.iterdir() if "<!-- run" in _text(guide)}
    run = set(re.findall(r'"([\w-]+\.md)"', _text(PROJECT / "tests" / "integration" / "docs" / "test_guides.py")))

    assert marked - run == set()
    assert len(marked) > 5


def test_a_block_of_a_guide_that_holds_commands_says_so() -> None:
    """A block of commands without its language would escape the test above."""
    bare = [
        (guide.name, inside)
        for guide in sorted(_GUIDES.iterdir())
        for inside in re.findall(
            r"(?:\A|\n\n|-->\n)```(?:bash|console)?\n(.*?)^```$", _text(guide), re.MULTILINE | re.DOTALL
        )
        if re.match(r"(make|sluice|python|pytest|source|export|aws|docker|pip|npx|cdk|spark-\w+) ", inside)
    ]

    assert bare == []


def _text(guide: Path) -> str:
    return guide.read_text(encoding="utf-8")
