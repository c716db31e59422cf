"""From environments to templates: `python -m tests.support.templates.synthesis FOLDER` writes every one."""

import json
import sys
from pathlib import Path

import aws_cdk as cdk

from sluice.constructs.database import Database
from sluice.constructs.fan_out import Fanout, Producers
from sluice.constructs.monitoring.alarms import Alarms, OperatorTopic
from sluice.constructs.monitoring.dashboard import Dashboard
from sluice.constructs.network import Network
from sluice.constructs.services.consumers import Consumers
from sluice.declaration import Environment, NewDatabase
from stacks.stage import EnvironmentStage
from tests.support.declaration import ENVIRONMENTS
from tests.support.project import PROJECT
from tests.support.templates.environments import ALONE, EDITED, EXTRA, FULL
from tests.support.templates.resources import StackTemplates, read

CONTEXT = json.loads((PROJECT / "cdk.json").read_text())["context"]
_NO_COPIES = {"aws:cdk:disable-asset-staging": True}
"""Leaves what an image is built of where it is; no template names its place."""


def synthesize(environment: Environment, directory: Path) -> StackTemplates:
    """Return the stacks of one environment, from an app of its own and without checking them."""
    app = cdk.App(context=CONTEXT | _NO_COPIES, outdir=str(directory))
    EnvironmentStage(app, environment=environment, project=PROJECT).synth()
    return read(directory)


def synthesize_alone(environment: Environment, directory: Path) -> None:
    """Write the template of its constructs in one stack of somebody's, in an app that sets nothing of the template.

    What CDK says of a template is nothing that a test looks at here, and its rules take longer to load than all else.
    """
    app = cdk.App(context=_NO_COPIES, outdir=str(directory), builtin_cloud_formation_validation=False)
    stack = cdk.Stack(app, "Alone")
    fanout = Fanout(stack, "Fanout", environment=environment)
    assert fanout.keys is not None
    network = Network(stack, "Network", environment=environment)
    assert isinstance(environment.database, NewDatabase)
    database = Database(
        stack, "Database", environment=environment, declared=environment.database, network=network
    ).access
    Producers(stack, "Producers", environment=environment, fanout=fanout, database=database)
    Consumers(
        stack,
        "Consumers",
        environment=environment,
        network=network,
        database=database,
        keys=fanout.keys,
    )
    operators = OperatorTopic(stack, "Operators", environment=environment, key=fanout.keys.topic)
    Alarms(stack, "Alarms", environment=environment, topic=operators.topic)
    Dashboard(stack, "Dashboard", environment=environment)
    app.synth()


def synthesize_all(directory: Path) -> None:
    """Write the templates of every environment that the tests know, each into a folder of its name."""
    synthesize_alone(FULL, directory / ALONE)
    for name, environment in {**ENVIRONMENTS, **EXTRA, **EDITED}.items():
        synthesize(environment, directory / name)


if __name__ == "__main__":
    synthesize_all(Path(sys.argv[1]))
