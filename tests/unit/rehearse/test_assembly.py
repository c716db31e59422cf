"""The CDK app of the working directory is run as the CDK command line runs it, and refused in one line."""

import json
import sys
from pathlib import Path

import pytest

from sluice.declaration import load_declaration
from sluice.errors import ConfigError
from sluice.rehearse.reading.sources import synthesized_templates
from tests.support.declaration import FILE

APP = """
import json, os, pathlib
made = {name: os.environ[name] for name in ("CDK_CONTEXT_JSON", "SLUICE_DECLARATION")}
pathlib.Path(os.environ["CDK_OUTDIR"], "made.json").write_text(json.dumps(made))
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("app.py").write_text(APP)


def test_a_cdk_app_gets_environment_context_and_declaration() -> None:
    """The named environment takes precedence over cdk.json's. The folder of templates is removed afterwards."""
    settings = {"app": f"{sys.executable} app.py", "context": {"flag": True, "env": "other"}}
    Path("cdk.json").write_text(json.dumps(settings))

    with synthesized_templates("prod", load_declaration(FILE)) as folder:
        made = json.loads((folder / "made.json").read_text())

    assert json.loads(made["CDK_CONTEXT_JSON"]) == {"flag": True, "env": "prod"}
    assert made["SLUICE_DECLARATION"] == str(FILE)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (None, "there is no cdk.json in "),
        ("{", "cdk.json cannot be used"),
        ("[]", "cdk.json cannot be used"),
        ('{"context": {}}', 'it needs a line "app"'),
        ('{"app": 7}', "cdk.json cannot be used"),
        ('{"app": "true", "context": 7}', "cdk.json cannot be used"),
        ('{"app": "nowhere app.py"}', "'nowhere app.py' of cdk.json cannot be run"),
        ('{"app": "false"}', "'false' of cdk.json ended with 1: it wrote nothing"),
        ('{"app": "ls nowhere"}', "'ls nowhere' of cdk.json ended with 2: ls: "),
    ],
)
def test_an_app_that_cannot_be_run_is_refused(settings: str | None, message: str) -> None:
    if settings is not None:
        Path("cdk.json").write_text(settings)

    with pytest.raises(ConfigError) as refused, synthesized_templates("prod", load_declaration(FILE)):
        pass

    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
