"""Where an environment's constructs stand: in the account and region that it declares, and once."""

import aws_cdk as cdk
from constructs import Construct

from sluice.declaration import Environment
from sluice.declaration.validation import require


def require_place(construct: Construct, environment: Environment) -> None:
    """Refuse a stack of another region or account than the declared: names and tasks would be of the declared one.

    A stack that names none is said at synth: it has to be deployed there.

    Raises:
        ConfigError: the stack names another one; or the same construct of the same environment is there already.
    """
    stack = cdk.Stack.of(construct)
    for field, seen in (("region", stack.region), ("account", stack.account)):
        declared = getattr(environment, field)
        if declared is None:
            continue
        if cdk.Token.is_unresolved(seen):
            cdk.Annotations.of(construct).add_warning_v2(
                f"sluice:{field}",
                f"stack {stack.stack_name} names no {field}: deploy it to {declared} and nowhere else",
            )
            continue
        require(
            environment,
            declared == seen,
            field=field,
            allowed=f"{seen}, the {field} of stack {stack.stack_name}; declare it, or give the stack"
            " env=cdk.Environment(account=…, region=…) of the environment",
        )
    place = _place(environment)
    for other in construct.node.root.node.find_all():
        other_environment = getattr(other, "environment", None)
        require(
            environment,
            other is construct
            or type(other) is not type(construct)
            or not isinstance(other_environment, Environment)
            or _place(other_environment) != place,
            field="name",
            allowed=f"an environment whose {type(construct).__name__} is in this app once, and there is"
            f" {other.node.path}: both would make the same names; rename one, or declare another region",
        )


def _place(environment: Environment) -> tuple[str, str, str, str | None]:
    return environment.application, environment.name, environment.region, environment.account
