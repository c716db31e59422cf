"""The plug-in as pytest finds it: the guide's example runs, a broken handler fails it, and other runs pay nothing."""

import re
import sys
from pathlib import Path

import pytest

import sluice.testing.harness  # noqa: F401 (pytester forgets what is first imported inside; SQLAlchemy's hooks stay)
from tests.support.project import PROJECT
from tests.support.pytest_plugin import install

pytest_plugins = ["pytester"]

_FILE = re.compile(r"<!-- file: (\S+) -->\n```python\n(.*?)```", re.DOTALL)


@pytest.fixture
def guide(pytester: pytest.Pytester, tmp_path: Path) -> pytest.Pytester:
    """Return a folder with the files of docs/guides/testing.md, and the plug-in installed."""
    pytester.syspathinsert(install(tmp_path))
    pytester.syspathinsert()
    text = (PROJECT / "docs" / "guides" / "testing.md").read_text(encoding="utf-8")
    for name, content in _FILE.findall(text):
        (pytester.path / name).write_text(content, encoding="utf-8")
    return pytester


def test_the_guides_example_passes(guide: pytest.Pytester) -> None:
    """Its two tests, with warnings as errors."""
    result = guide.runpytest_inprocess("-q", "-W", "error", "-p", "no:cacheprovider")

    result.assert_outcomes(passed=2)


def test_the_guides_example_fails_for_an_effect_outside_the_transaction(guide: pytest.Pytester) -> None:
    """The handler also counts what it sends elsewhere, as e-mails are: after the crash it sends again."""
    shop = guide.path / "shop.py"
    text = shop.read_text(encoding="utf-8")
    inside = 'session.add(Invoice(order=event.group, cents=event.data["cents"]))'
    assert inside in text
    broken = "SENT.append(event.group)\n    session.add(Invoice(order=event.group, cents=len(SENT) * 1250))"
    shop.write_text("SENT = []\n" + text.replace(inside, broken), encoding="utf-8")

    result = guide.runpytest_inprocess("-q", "-k", "one_invoice", "-p", "no:cacheprovider")

    result.assert_outcomes(failed=1, deselected=1)
    result.stdout.fnmatch_lines(["*assert [[]2500[]] == [[]1250[]]*"])


def test_a_run_that_does_not_use_it_imports_two_small_files(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They and their package are all that the plug-in adds to what pytest imports."""
    pytester.makepyfile("def test_nothing(): pass")
    monkeypatch.setenv("PYTHONPATH", f"{PROJECT}:{install(tmp_path)}")
    collect = (
        "import pathlib, sys, pytest\n"
        "pytest.main(['-q', '--collect-only', *sys.argv[2:]])\n"
        "pathlib.Path(sys.argv[1]).write_text(' '.join(sys.modules))\n"
    )

    def imported(*options: str) -> set[str]:
        ended = pytester.run(sys.executable, "-c", collect, tmp_path / "modules", *options)
        assert ended.ret == 0
        return set((tmp_path / "modules").read_text(encoding="utf-8").split())

    assert imported() - imported("-p", "no:sluice") == {"sluice", "sluice.testing", "sluice.testing.plugin"}
