"""The example with a Lambda function beside tasks; $PACKAGE_ROOT is the folder in which its package was built."""

import os
from pathlib import Path

import aws_cdk as cdk

from examples.functions.environments import ENVIRONMENTS
from stacks.stage import EnvironmentStage

app = cdk.App()
EnvironmentStage(app, environment=ENVIRONMENTS[0], project=Path(os.environ["PACKAGE_ROOT"]))
app.synth()
