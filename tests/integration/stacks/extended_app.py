"""The local environment after an engineer has edited it: one consumer more, and billing may fail twice more."""

from dataclasses import replace

import aws_cdk as cdk

from sluice.declaration import Consumer
from stacks.stage import EnvironmentStage
from tests.support.declaration import environment

app = cdk.App()
local = environment("local")
billing, *others = local.consumers
extended = replace(local, consumers=(replace(billing, max_attempts=7), *others, Consumer(name="search")))
EnvironmentStage(app, environment=extended)
app.synth()
