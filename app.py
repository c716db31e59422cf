"""The CDK app: `cdk synth -c env=NAME` writes the templates of one declared environment (default: local)."""

import sys
from dataclasses import replace

import aws_cdk as cdk

from sluice.constructs.nag import rule_packs
from sluice.declaration import load_declaration
from sluice.errors import ConfigError
from sluice.messaging.handlers import require_handlers
from stacks.stage import EnvironmentStage


def main() -> None:
    """Synthesize the environment the CDK context names, for the account it names if it does."""
    app = cdk.App()
    cdk.Validations.of(app).add_plugins(*rule_packs(app))
    name, account = app.node.try_get_context("env"), app.node.try_get_context("account")
    try:
        declaration = load_declaration()
        declared = declaration.environment("local" if name is None else str(name))
        require_handlers(declared, source=declaration.source)
        EnvironmentStage(app, environment=declared if account is None else replace(declared, account=str(account)))
    except ConfigError as error:
        sys.exit(_refuse(error))
    app.synth()


def _refuse(error: ConfigError) -> int:
    print(f"app.py: {error}", file=sys.stderr)
    return 3


if __name__ == "__main__":
    main()
