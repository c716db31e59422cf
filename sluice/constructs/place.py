"""The place of an environment's constructs: its account and region, once, and stacks beside for some consumers."""

import aws_cdk as cdk
from constructs import Construct

from sluice.constructs.feature_flags import set_flags
from sluice.declaration import Consumer, Environment
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


def consumer_scope(construct: Construct, consumer: Consumer) -> Construct:
    """Return where a consumer's part of a construct goes: into it, or into a stack beside the construct's own.

    Such a stack is made for the first consumer that names it, and is deployed after the construct's own.
    """
    if consumer.stack is None:
        return construct
    stack = cdk.Stack.of(construct)
    scope = stack.node.scope
    assert isinstance(scope, Construct), "every stack is in an app"
    id_ = f"{stack.node.id}-{consumer.stack}"
    beside = scope.node.try_find_child(id_) or cdk.Stack(
        scope,
        id_,
        stack_name=f"{stack.stack_name}-{consumer.stack}",
        description=f"{stack.template_options.description or stack.stack_name}; consumers in {consumer.stack}",
        env=cdk.Environment(account=stack.account, region=stack.region),
        termination_protection=stack.termination_protection,
    )
    assert isinstance(beside, cdk.Stack)
    beside.add_stack_dependency(stack)
    found = beside.node.try_find_child(construct.node.id)
    if found is None:
        found = Construct(beside, construct.node.id)
        set_flags(found)
    assert isinstance(found, Construct)
    return found


def _place(environment: Environment) -> tuple[str, str, str, str | None]:
    return environment.application, environment.name, environment.region, environment.account
