"""Check that an environment's constructs are in the right account and region, and find the stack of a consumer."""

import aws_cdk as cdk
from constructs import Construct

from sluice.constructs.feature_flags import set_flags
from sluice.declaration import Consumer, Environment
from sluice.declaration.validation import require


def require_place(construct: Construct, environment: Environment) -> None:
    """Refuse a construct whose stack has another region or account than its environment: names and ARNs would be wrong.

    If the stack names no region or account, synth only prints a warning that says where to deploy it.

    Raises:
        ConfigError: the stack has another region or account; or the app has the same construct of the same environment
            already.
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
    """Return the scope for a consumer's part of a construct: the construct, or its counterpart in the consumer's stack.

    A consumer with `stack` is in a stack `STACK-NAME` beside the construct's stack. It is made for the first consumer
    that names it, and is deployed after the construct's stack.
    """
    if consumer.stack is None:
        return construct
    stack = cdk.Stack.of(construct)
    scope = stack.node.scope
    assert isinstance(scope, Construct), "every stack is in an app"
    id_ = f"{stack.node.id}-{consumer.stack}"
    other_stack = scope.node.try_find_child(id_) or cdk.Stack(
        scope,
        id_,
        stack_name=f"{stack.stack_name}-{consumer.stack}",
        description=f"{stack.template_options.description or stack.stack_name}; consumers in {consumer.stack}",
        env=cdk.Environment(account=stack.account, region=stack.region),
        termination_protection=stack.termination_protection,
    )
    assert isinstance(other_stack, cdk.Stack)
    other_stack.add_stack_dependency(stack)
    counterpart = other_stack.node.try_find_child(construct.node.id)
    if counterpart is None:
        counterpart = Construct(other_stack, construct.node.id)
        set_flags(counterpart)
    assert isinstance(counterpart, Construct)
    return counterpart


def _place(environment: Environment) -> tuple[str, str, str, str | None]:
    """Return the values that make an environment's names unique."""
    return environment.application, environment.name, environment.region, environment.account
