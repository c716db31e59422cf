"""Staging in LocalStack: in its account; nothing of it takes Docker, as a Lambda and an image to build would."""

from dataclasses import replace

import aws_cdk as cdk

from sluice.declaration import NewNetwork
from stacks.stage import EnvironmentStage
from tests.support.declaration import environment

app = cdk.App()
network = NewNetwork(restrict_default_security_group=False)
staging = replace(environment("staging"), account="000000000000", network=network, image="sluice-worker:local")
EnvironmentStage(app, environment=staging)
app.synth()
