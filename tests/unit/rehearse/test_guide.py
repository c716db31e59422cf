"""The commands of docs/guides/scaling.md, as far as the command line reads them."""

import re
import shlex
from pathlib import Path

import pytest

from sluice.rehearse.command import rehearse
from tests.support.project import PROJECT

_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_command_of_the_guide_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command with an unknown option or a refused value would end with a usage error."""
    guide = (PROJECT / "docs" / "guides" / "scaling.md").read_text(encoding="utf-8")
    for name in ("template.yaml", "parameters.json"):
        (tmp_path / name).touch()
    (tmp_path / "tuesday").mkdir()
    monkeypatch.chdir(tmp_path)
    lines = "".join(_BLOCK.findall(guide)).replace("\\\n", "").splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith("sluice rehearse")]

    assert len(commands) == 7
    for _, name, *arguments in commands:
        assert rehearse.make_context(name, arguments).params["as_json"] is False
