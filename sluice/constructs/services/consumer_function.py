"""A consumer's handlers as a Lambda function, and the event source mapping by which Lambda polls the consumer's queue.

Lambda's pollers receive and delete with the function's role, from outside the network. The function itself runs in the
network with the security group of the tasks, so that the rules for tasks let it reach the database. It has the same
variables as a worker's task. It runs the tasks' image or a zip package (`sluice.constructs.services.function_package`).

AWS: https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html,
https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-parameters.html and
https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html (read 2026-11-27).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct, IDependable

from sluice import limits
from sluice.constructs.feature_flags import set_flags
from sluice.constructs.logs import log_group
from sluice.constructs.nag import acknowledge
from sluice.constructs.services.function_package import require_package
from sluice.constructs.services.images import TaskImage
from sluice.constructs.services.task_service import TaskPlace, add_automatic_redrive, rights_on_queues
from sluice.declaration import Consumer, DatabaseRole, Lambda, naming, task_settings
from sluice.declaration.arguments import check_argument_types
from sluice.declaration.fields.functions import SCHEDULED_EVENT
from sluice.declaration.fields.image import Architecture
from sluice.declaration.validation import require

_IMAGE_ENTRY = ["python", "-m", "awslambdaric"]
_PROCESSORS = {Architecture.X86_64: lambda_.Architecture.X86_64, Architecture.ARM64: lambda_.Architecture.ARM_64}
_SCHEDULED_EVENT_AGE = cdk.Duration.minutes(1)
"""How long an event of the schedule waits for a throttled function; by default six hours, one behind the other.

AWS: https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html (read 2026-11-27).
"""
_TOKEN_CHARACTERS = 128  # the assumed length of a value that is known only at deployment, such as an ARN or a host
_OF_INTERFACES = (
    *("CreateNetworkInterface", "DescribeNetworkInterfaces", "DescribeSubnets", "DeleteNetworkInterface"),
    *("AssignPrivateIpAddresses", "UnassignPrivateIpAddresses"),
)
"""The actions with which Lambda connects a function to a network; it calls them with the function's role.

AWS: https://docs.aws.amazon.com/aws-managed-policy/latest/reference/AWSLambdaVPCAccessExecutionRole.html and
https://docs.aws.amazon.com/lambda/latest/dg/configuration-vpc.html, which also says how to keep the function's own code
from doing it (read 2026-11-27).
"""


class ConsumerFunction(Construct):
    """A consumer's function, its mapping, and the schedule by which it handles parked messages.

    Args:
        place: environment, network, database and keys, as tasks have them.
        consumer: whose function it is.
        declared: the consumer's `runtime`.
        tables: a service whose tasks make the tables before they start. CloudFormation makes and updates the function
            after this service.
        project: the folder that the package's path is relative to.
    """

    @check_argument_types
    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        place: TaskPlace,
        consumer: Consumer,
        declared: Lambda,
        tables: IDependable,
        project: Path,
    ) -> None:
        super().__init__(scope, id_)
        set_flags(self)
        environment = place.environment
        image = place.images.of(consumer) if declared.package is None else None
        folder = project / str(declared.package)
        code = _package_code(consumer, declared, folder) if image is None else _image_code(declared, image)
        self.function = self._function(place, consumer, declared, code)
        self.function.node.add_dependency(place.network, tables)
        queue_arn = cdk.Stack.of(self).format_arn(service="sqs", resource=naming.queue_name(environment, consumer))
        self.mapping = lambda_.CfnEventSourceMapping(
            self,
            "Mapping",
            event_source_arn=queue_arn,
            function_name=self.function.function_name,
            batch_size=declared.batch_size,
            function_response_types=["ReportBatchItemFailures"],
            **_scaling(declared),
        )
        acknowledge(
            self.mapping,
            "Serverless-LambdaEventSourceMappingDestination",
            "a mapping of SQS has no destination: what fails goes to the queue's DLQ",
        )
        self._maintain(consumer)
        add_automatic_redrive(self, place=place, consumer=consumer, image=image)

    def _function(
        self, place: TaskPlace, consumer: Consumer, declared: Lambda, code: Mapping[str, Any]
    ) -> lambda_.Function:
        """Make the function with its role, log group and variables; `code` is from `_image_code` or `_package_code`."""
        environment = place.environment
        name = naming.function_name(environment, consumer)
        logs = log_group(self, "Logs", environment=environment, key=place.network.log_key, name=f"/aws/lambda/{name}")
        role = self._role(place, consumer, name)
        logs.grant_write(role)
        variables = _variables(place, consumer)
        _require_room(consumer, variables)
        function = lambda_.Function(
            self,
            "Function",
            function_name=name,
            description=f"Sluice {environment.name}: handlers of {consumer.name}",
            **code,
            memory_size=declared.memory_mb,
            timeout=cdk.Duration.seconds(declared.timeout_seconds),
            reserved_concurrent_executions=declared.reserved_concurrency,
            max_event_age=_SCHEDULED_EVENT_AGE,
            retry_attempts=0,
            environment=variables,
            role=role,
            log_group=logs,
            vpc=place.network.vpc,
            vpc_subnets=place.network.subnets,
            security_groups=[place.network.security_group],
        )
        if declared.package is not None:
            for rule in ("AwsSolutions-L1", "Serverless-LambdaLatestVersion"):
                acknowledge(function, rule, "its package has the wheels of this Python, which the image has, too")
        acknowledge(
            function,
            "Serverless-LambdaDLQ",
            "messages it cannot handle are in the DLQ of its queue; nothing else is lost",
        )
        acknowledge(
            function,
            "Serverless-LambdaAsyncFailureDestination",
            "only its schedule invokes it so, and the next run does what one that failed did not",
        )
        acknowledge(
            function,
            "Serverless-LambdaTracing",
            "each message carries its trace, which goes where the handlers send it",
        )
        return function

    def _role(self, place: TaskPlace, consumer: Consumer, name: str) -> iam.Role:
        """Make the role of the function, which the pollers have, too; CDK's own role would have two policies of AWS."""
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        stack = cdk.Stack.of(self)
        for actions, arn in rights_on_queues(self, place, consumer):
            _allow(role, actions, arn)
        for statement in () if place.database is None else place.database.statements(DatabaseRole.WORKER):
            role.add_to_policy(statement)
        interfaces = [f"ec2:{action}" for action in _OF_INTERFACES]
        _allow(role, interfaces, "*")
        # The ARN is a literal, because the function itself refers to this role. Only Lambda may use these actions: they
        # are denied to the function's own code.
        function_arn = stack.format_arn(
            service="lambda", resource="function", resource_name=name, arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME
        )
        role.add_to_policy(
            iam.PolicyStatement(
                effect=iam.Effect.DENY,
                actions=interfaces,
                resources=["*"],
                conditions={"ArnEquals": {"lambda:SourceFunctionArn": function_arn}},
            )
        )
        acknowledge(
            role,
            "AwsSolutions-IAM5[Resource::*]",
            "Lambda makes network interfaces with this role, whose ids nobody knows before; the function's own code is"
            " denied it",
        )
        return role

    def _maintain(self, consumer: Consumer) -> None:
        """Invoke the function by a schedule, so that it handles parked messages and deletes old groups."""
        rule = events.Rule(
            self,
            "Maintenance",
            description=f"Have {consumer.name} handle what it has set aside, and forget old groups",
            schedule=events.Schedule.rate(cdk.Duration.minutes(consumer.maintenance_minutes)),
        )
        event = events.RuleTargetInput.from_object(SCHEDULED_EVENT)
        rule.add_target(targets.LambdaFunction(self.function, event=event, retry_attempts=0))
        acknowledge(rule, "Serverless-EventBusDLQ", "the next run does what one that failed did not")


def _allow(role: iam.Role, actions: Sequence[str], arn: str) -> None:
    """Allow a role these actions on one resource."""
    role.add_to_policy(iam.PolicyStatement(actions=list(actions), resources=[arn]))


def _scaling(declared: Lambda) -> dict[str, Any]:
    """Return the mapping's arguments that limit concurrent invocations: by pollers, by a maximum, or none."""
    mapping = lambda_.CfnEventSourceMapping
    if declared.pollers_min is not None:
        pollers = mapping.ProvisionedPollerConfigProperty(
            minimum_pollers=declared.pollers_min, maximum_pollers=declared.pollers_max
        )
        return {"provisioned_poller_config": pollers}
    if declared.maximum_concurrency is not None:
        return {"scaling_config": mapping.ScalingConfigProperty(maximum_concurrency=declared.maximum_concurrency)}
    return {}


def _package_code(consumer: Consumer, declared: Lambda, folder: Path) -> dict[str, Any]:
    """Return the function's arguments that make it run a zip package; refuse a wrong package."""
    require_package(consumer, declared, folder, architecture=Architecture.ARM64)
    return {
        "code": lambda_.Code.from_asset(str(folder), exclude=["**/__pycache__"]),
        "runtime": lambda_.Runtime.PYTHON_3_13,
        "handler": declared.handler,
        "architecture": lambda_.Architecture.ARM_64,
    }


def _image_code(declared: Lambda, image: TaskImage) -> dict[str, Any]:
    """Return the function's arguments that make it run the tasks' image."""
    assert image.repository is not None, "the declaration refuses functions of an image that is not in ECR"
    return {
        "code": lambda_.Code.from_ecr_image(
            image.repository, tag_or_digest=image.version, entrypoint=_IMAGE_ENTRY, cmd=[declared.handler]
        ),
        "runtime": lambda_.Runtime.FROM_IMAGE,
        "handler": lambda_.Handler.FROM_IMAGE,
        "architecture": _PROCESSORS[image.architecture],
    }


def _variables(place: TaskPlace, consumer: Consumer) -> dict[str, str]:
    """Return the function's variables; a worker's task has the same."""
    environment = place.environment
    return {
        "SLUICE_ENV": environment.name,
        "SLUICE_CONSUMER": consumer.name,
        task_settings.VARIABLE: task_settings.render(task_settings.task_environment(environment, consumer)),
        **({} if place.database is None else place.database.variables(DatabaseRole.WORKER)),
    }


def _require_room(consumer: Consumer, variables: dict[str, str]) -> None:
    """Refuse variables that are together too large for a function; CloudFormation would fail in the middle.

    AWS: https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html (4 KB in all; read 2026-11-27).
    """
    size = sum(
        len(name) + (_TOKEN_CHARACTERS if cdk.Token.is_unresolved(value) else len(value.encode()))
        for name, value in variables.items()
    )
    most = limits.FUNCTION_VARIABLES_BYTES_MAX
    require(
        consumer,
        size <= most,
        field="runtime",
        seen=f"Lambda(…), whose variables have {size:,} bytes",
        allowed=f"at most {most:,} bytes of variables, most of which are what the consumer declares: shorten its types"
        " and filter_policy, or run it as tasks",
    )
