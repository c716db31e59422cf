"""The CDK app: `cdk synth -c env=NAME` writes the templates of one environment of environments.py (default: local)."""

import sys
from dataclasses import replace

import aws_cdk as cdk
from sluice.constructs.nag import rule_packs
from sluice.declaration import load_declaration
from sluice.errors import ConfigError
from sluice.messaging.handlers import require_handlers

from stacks.stage import EnvironmentStage


def main() -> None:
    """Synthesize the environment that the CDK context names."""
    app = cdk.App()
    cdk.Validations.of(app).add_plugins(*rule_packs(app))
    try:
        declaration = load_declaration()
        environment = declaration.environment(app.node.try_get_context("env") or "local")
        account = app.node.try_get_context("account")  # `sluice env deploy` says where it is going to
        if account is not None:
            environment = replace(environment, account=str(account))
        require_handlers(environment, source=declaration.source)
        EnvironmentStage(app, environment=environment)
    except ConfigError as error:
        print(f"app.py: {error}", file=sys.stderr)
        sys.exit(3)
    app.synth()


if __name__ == "__main__":
    main()
