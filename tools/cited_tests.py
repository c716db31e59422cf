"""Find the days on which LocalStack's tests ran on AWS, for those that promises and `docs/untested.md` cite.

`python -m tools.cited_tests CLONE` writes `tests/unit/contract_tests/cited_tests.json`; a unit test compares every
grade and date with it. LocalStack keeps two files beside a test: in `*.snapshot.json` the answers
it recorded on AWS, with their date, and in `*.validation.json` the day of its last passing run on AWS.
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contract_tests.promises import PROMISES, Evidence, Grade
from contract_tests.promises.promise import LOCALSTACK_TESTS

_PROJECT = Path(__file__).resolve().parents[1]
CITED = _PROJECT / "tests" / "unit" / "contract_tests" / "cited_tests.json"


def untested_evidence() -> dict[str, list[Evidence]]:
    """Return the evidence of every fact of docs/untested.md, by its id."""
    page = (_PROJECT / "docs" / "untested.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([A-Z]+-\d+) \| .+? \| (.+) \| .+? \|$", page, flags=re.MULTILINE)
    graded = re.compile(r"(\w+) \((.+?)\) [<`](.+?)[>`]")
    return {
        id_: [Evidence(Grade(kind), source, date) for kind, date, source in graded.findall(cell)] for id_, cell in rows
    }


def evidence() -> list[tuple[str, Evidence]]:
    """Return the evidence of every promise and of every untested fact, each with the id."""
    known = {id_: [*promise.evidence] for id_, promise in PROMISES.items()} | untested_evidence()
    return [(id_, source) for id_, sources in known.items() for source in sources]


def cited_tests() -> list[str]:
    """Return every test of LocalStack that the evidence names, as `path::function`."""
    sources = {found.source for _, found in evidence()}
    names = {source.removeprefix(LOCALSTACK_TESTS) for source in sources if source.startswith(LOCALSTACK_TESTS)}
    return sorted(name.partition(" ")[0] for name in names)


def _run_days(answers: Mapping[str, Any], runs: Mapping[str, Any], source: str, function: str) -> dict[str, Any]:
    """Return the days on which one test ran on AWS, with all its parameters together.

    Returns:
        recorded: the days on which answers were recorded; asserted: the day of the last passing run of each parameter;
        is_validated: whether its source marks it as one that ran on AWS.
    """
    recorded = {
        _iso_day(kept["recorded-date"])
        for name, kept in _entries_of_function(answers, function)
        if kept["recorded-content"]
    }
    asserted = {kept["last_validated_date"][:10] for _, kept in _entries_of_function(runs, function)}
    decorators = source.partition(f"def {function}(")[0].rpartition("\n\n")[2]
    is_validated = "aws.validated" in decorators
    return {"recorded": sorted(recorded), "asserted": sorted(asserted), "is_validated": is_validated}


def _entries_of_function(table: Mapping[str, Any], function: str) -> list[tuple[str, Any]]:
    return [(name, kept) for name, kept in table.items() if re.search(rf"::{function}(\[|$)", name)]


def _iso_day(recorded_date: str) -> str:
    """Return LocalStack's `27-11-2026…` as `2026-11-27`."""
    day, month, year = recorded_date[:10].split("-")
    return f"{year}-{month}-{day}"


def _collect(clone: Path) -> dict[str, Any]:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(clone), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def show(path: str) -> str:
        return git("show", f"HEAD:tests/aws/services/{path}")

    tests = {}
    for test in cited_tests():
        path, _, function = test.partition("::")
        stem = path.removesuffix(".py")
        answers, runs = (json.loads(show(f"{stem}.{kind}.json")) for kind in ("snapshot", "validation"))
        tests[test] = _run_days(answers, runs, show(path), function)
    return {"localstack": git("rev-parse", "HEAD").strip(), "tests": tests}


def main() -> None:
    """Read the clone named on the command line and write the file, one test a line."""
    (clone,) = sys.argv[1:]
    collected = _collect(Path(clone))
    rows = ",\n".join(f"{json.dumps(test)}: {json.dumps(runs)}" for test, runs in collected["tests"].items())
    CITED.write_text(f'{{"localstack": "{collected["localstack"]}",\n"tests": {{\n{rows}\n}}}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
