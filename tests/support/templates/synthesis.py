"""From environments to templates: `python -m tests.support.templates.synthesis FOLDER` writes those that tests read."""

import json
import sys
from pathlib import Path

import aws_cdk as cdk

from sluice.declaration import Environment
from stacks.stage import EnvironmentStage
from tests.support.declaration import ENVIRONMENTS
from tests.support.project import PROJECT
from tests.support.templates.environments import EDITED, EXTRA
from tests.support.templates.resources import Stacks, read

CONTEXT = json.loads((PROJECT / "cdk.json").read_text())["context"]


def synthesize(environment: Environment, directory: Path) -> Stacks:
    """Return the stacks of one environment, from an app of its own and without checking them."""
    app = cdk.App(context=CONTEXT, outdir=str(directory))
    EnvironmentStage(app, environment=environment).synth()
    return read(directory)


if __name__ == "__main__":
    for name, environment in {**ENVIRONMENTS, **EXTRA, **EDITED}.items():
        synthesize(environment, Path(sys.argv[1]) / name)
