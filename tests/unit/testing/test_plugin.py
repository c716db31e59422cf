"""The plug-in as pytest finds it: the documented examples run, a broken handler fails, and other runs pay nothing."""

import re
import sys
from pathlib import Path

import pytest

import sluice.testing.harness  # noqa: F401 (pytester forgets what is first imported inside; SQLAlchemy's hooks stay)
from tests.support.project import PROJECT
from tests.support.pytest_plugin import install

pytest_plugins = ["pytester"]

_OPTIONS = ("-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")  # which imports Hypothesis for its last line
_FILE = re.compile(r"<!-- file: (\S+) -->\n```python\n(.*?)```", re.DOTALL)


@pytest.fixture
def project(pytester: pytest.Pytester, tmp_path: Path) -> pytest.Pytester:
    """Return an empty folder, with the plug-in installed."""
    pytester.syspathinsert(install(tmp_path))
    pytester.syspathinsert()
    return pytester


def _write_files(project: pytest.Pytester, page: str) -> None:
    for name, content in _FILE.findall((PROJECT / "docs" / page).read_text(encoding="utf-8")):
        (project.path / name).write_text(content, encoding="utf-8")


@pytest.mark.parametrize(("page", "passed"), [("guides/testing.md", 2), ("simulator.md", 1)])
def test_a_documented_example_passes(project: pytest.Pytester, page: str, passed: int) -> None:
    _write_files(project, page)

    result = project.runpytest_inprocess(*_OPTIONS, "-W", "error")

    result.assert_outcomes(passed=passed)


def test_the_guides_example_fails_for_an_effect_outside_the_transaction(project: pytest.Pytester) -> None:
    """The handler also counts e-mails that it sends. After the crash it sends one again."""
    _write_files(project, "guides/testing.md")
    shop = project.path / "shop.py"
    text = shop.read_text(encoding="utf-8")
    inside = 'session.add(Invoice(order=event.group, cents=event.data["cents"]))'
    assert inside in text
    broken = "SENT.append(event.group)\n    session.add(Invoice(order=event.group, cents=len(SENT) * 1250))"
    shop.write_text("SENT = []\n" + text.replace(inside, broken), encoding="utf-8")

    result = project.runpytest_inprocess(*_OPTIONS, "-k", "one_invoice")

    result.assert_outcomes(failed=1, deselected=1)
    result.stdout.fnmatch_lines(["*assert [[]2500[]] == [[]1250[]]*"])


def test_a_run_without_its_fixtures_imports_two_small_files(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plug-in adds only these files and their package to pytest's imports.

    A run without the plug-in comes first.
    """
    pytester.makepyfile("def test_nothing(): pass")
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    collect = """
import sys, pytest
options = ["-q", "--collect-only"]
assert pytest.main(options) == 0
before = set(sys.modules)
assert pytest.main([*options, "-p", "sluice.testing.plugin"]) == 0
print("added:", *sorted(set(sys.modules) - before))
"""

    ended = pytester.run(sys.executable, "-c", collect)

    ended.stdout.fnmatch_lines(["added: sluice sluice.testing sluice.testing.plugin"])
