"""A consumer on Lambda has a function, a mapping and a role, beside a consumer that runs as tasks."""

import json
from collections.abc import Mapping

import aws_cdk as cdk
import pytest

from sluice.declaration import Consumer, Environment, ExistingNetwork, Lambda, NewDatabase, Removal
from sluice.errors import ConfigError
from stacks.stage import EnvironmentStage
from tests.support.templates.environments import EDITED, MIXED
from tests.support.templates.resources import Resource, StackTemplates, of_kind, resources, statements
from tests.unit.constructs.expectations import allow

FUNCTION, MAPPING, QUEUE = "AWS::Lambda::Function", "AWS::Lambda::EventSourceMapping", "AWS::SQS::Queue"
QUEUE_ARN = "arn:aws:sqs:eu-central-1:111122223333:sluice-mixed-{}.fifo"
INTERFACES = [
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
]


@pytest.fixture(scope="module")
def both_kinds(edited_stacks: Mapping[str, StackTemplates]) -> list[Resource]:
    """Return the resources of an environment with functions beside tasks."""
    return resources(edited_stacks[MIXED])


def test_a_function_runs_the_image_of_tasks_with_their_variables(both_kinds: list[Resource]) -> None:
    """The function is in the tasks' network and security group, so that the database lets it in as it lets tasks in."""
    functions = of_kind(both_kinds, FUNCTION)
    billing = functions["ConsumersConsumerbillingFunction"]
    variables = billing.pop("Environment")["Variables"]

    assert billing == {
        "FunctionName": "sluice-mixed-billing",
        "Description": "Sluice mixed: handlers of billing",
        "PackageType": "Image",
        "Code": {"ImageUri": "111122223333.dkr.ecr.eu-central-1.<AWS::URLSuffix>/team/worker:stable"},
        "ImageConfig": {
            "EntryPoint": ["python", "-m", "awslambdaric"],
            "Command": ["sluice.cli.services.function.handle"],
        },
        "Architectures": ["arm64"],
        "MemorySize": 1_024,
        "Timeout": 30,
        "ReservedConcurrentExecutions": 25,
        "LoggingConfig": {"LogGroup": "Ref(/aws/lambda/sluice-mixed-billing)"},
        "Role": "Arn(ConsumersConsumerbillingRole)",
        "VpcConfig": {
            "SecurityGroupIds": ["GroupId(NetworkTasks)"],
            "SubnetIds": ["Ref(NetworkVpcTasksSubnet1Subnet)", "Ref(NetworkVpcTasksSubnet2Subnet)"],
        },
    }
    settings = json.loads(variables.pop("SLUICE_TASK_SETTINGS"))["consumers"][0]
    assert settings["name"] == "billing"
    assert settings["runtime"]["batch_size"] == 10
    assert variables == {
        "SLUICE_ENV": "mixed",
        "SLUICE_CONSUMER": "billing",
        "SLUICE_DATABASE_USER": "sluice_worker",
        "SLUICE_DATABASE_HOST": "Endpoint.Address(DatabaseCluster)",
        "SLUICE_DATABASE_PORT": "5432",
        "SLUICE_DATABASE_NAME": "sluice",
    }


def test_each_mapping_polls_its_queue_and_takes_partial_answers(both_kinds: list[Resource]) -> None:
    """No window, which a FIFO queue does not have; a bound on concurrency, or provisioned pollers."""
    assert of_kind(both_kinds, MAPPING) == {
        "ConsumersConsumerbillingMapping": {
            "EventSourceArn": QUEUE_ARN.format("billing"),
            "FunctionName": "Ref(ConsumersConsumerbillingFunction)",
            "FunctionResponseTypes": ["ReportBatchItemFailures"],
            "BatchSize": 10,
            "ScalingConfig": {"MaximumConcurrency": 20},
        },
        "ConsumersConsumersearchMapping": {
            "EventSourceArn": QUEUE_ARN.format("search"),
            "FunctionName": "Ref(ConsumersConsumersearchFunction)",
            "FunctionResponseTypes": ["ReportBatchItemFailures"],
            "BatchSize": 1,
            "ProvisionedPollerConfig": {"MinimumPollers": 2, "MaximumPollers": 3},
        },
    }


def test_a_throttled_function_keeps_no_old_events_of_its_schedule(both_kinds: list[Resource]) -> None:
    """Lambda keeps them for six hours by default, and tries each that failed twice more."""
    configured = of_kind(both_kinds, "AWS::Lambda::EventInvokeConfig").values()

    assert [(each["MaximumEventAgeInSeconds"], each["MaximumRetryAttempts"]) for each in configured] == [(60, 0)] * 2


def test_a_functions_role_may_no_more_than_it_needs(both_kinds: list[Resource]) -> None:
    """The pollers use it, too; its own code may not touch the network interfaces that Lambda makes with it."""
    assert statements(both_kinds, "ConsumersConsumerbillingRole") == [
        allow(
            [
                "sqs:ChangeMessageVisibility",
                "sqs:DeleteMessage",
                "sqs:GetQueueAttributes",
                "sqs:GetQueueUrl",
                "sqs:ReceiveMessage",
            ],
            QUEUE_ARN.format("billing"),
        ),
        allow(["sqs:GetQueueUrl", "sqs:SendMessage"], QUEUE_ARN.format("billing-dlq")),
        allow(["kms:Decrypt", "kms:GenerateDataKey"], "Arn(FanoutKeysQueues)"),
        allow(
            "rds-db:connect",
            "arn:aws:rds-db:eu-central-1:111122223333:dbuser:DBClusterResourceId(DatabaseCluster)/sluice_worker",
        ),
        allow(INTERFACES, "*"),
        {
            "Effect": "Deny",
            "Action": INTERFACES,
            "Resource": "*",
            "Condition": {
                "ArnEquals": {
                    "lambda:SourceFunctionArn": "arn:aws:lambda:eu-central-1:111122223333:function:sluice-mixed-billing"
                }
            },
        },
        allow(["logs:CreateLogStream", "logs:PutLogEvents"], "Arn(/aws/lambda/sluice-mixed-billing)"),
    ]


def test_a_function_is_made_after_a_task_has_made_the_tables(
    both_kinds: list[Resource], edited_stacks: Mapping[str, StackTemplates]
) -> None:
    """The relay's tasks make them before they start; a function in a stack beside comes after that whole stack."""
    (function,) = [resource for resource in both_kinds if resource.name == "ConsumersConsumerbillingFunction"]

    assert "sluice-mixed-relay" in function.depends_on
    assert "consumers" in edited_stacks[MIXED]["consumers-more"].dependencies


def test_only_consumers_without_a_function_have_services_and_scaling(both_kinds: list[Resource]) -> None:
    """A redrive by itself is a task in either case, and the only one of its consumer."""
    targets = of_kind(both_kinds, "AWS::ApplicationAutoScaling::ScalableTarget")

    assert set(of_kind(both_kinds, "AWS::ECS::Service")) == {"sluice-mixed-ledger", "sluice-mixed-relay"}
    assert set(of_kind(both_kinds, "AWS::ECS::TaskDefinition")) == {
        "sluice-mixed-ledger",
        "sluice-mixed-relay",
        "sluice-mixed-search_redrive",
    }
    assert [target["ResourceId"] for target in targets.values()] == ["service/sluice-mixed/sluice-mixed-ledger"]


def test_receives_of_a_functions_queue_are_no_attempts(both_kinds: list[Resource]) -> None:
    """The queue of tasks has their attempts as maxReceiveCount, that of a function the receives that it declares."""
    queues = of_kind(both_kinds, QUEUE)
    receives = {
        name: queues[f"sluice-mixed-{name}.fifo"]["RedrivePolicy"]["maxReceiveCount"]
        for name in ("ledger", "billing", "search")
    }

    assert receives == {"ledger": 7, "billing": 1_000, "search": 500}


def test_a_schedule_lets_a_function_handle_what_it_has_set_aside(both_kinds: list[Resource]) -> None:
    """The schedule is each minute if the consumer parks, else each hour, when the function only deletes old groups."""
    rules = {
        name: rule for name, rule in of_kind(both_kinds, "AWS::Events::Rule").items() if name.endswith("Maintenance")
    }

    assert {name: rule["ScheduleExpression"] for name, rule in rules.items()} == {
        "ConsumersConsumerbillingMaintenance": "rate(1 hour)",
        "ConsumersConsumersearchMaintenance": "rate(1 minute)",
    }
    assert [rule["Targets"] for rule in rules.values()] == [
        [
            {
                "Arn": f"Arn(ConsumersConsumer{consumer}Function)",
                "Id": "Target0",
                "Input": '{"sluice":"maintenance"}',
                "RetryPolicy": {"MaximumRetryAttempts": 0},
            }
        ]
        for consumer in ("billing", "search")
    ]


def test_alarms_of_a_function_are_about_invocations_and_not_about_tasks(both_kinds: list[Resource]) -> None:
    """The alarms by which ECS judges a version are missing: nothing takes a function's version back."""
    alarms = of_kind(both_kinds, "AWS::CloudWatch::Alarm")
    throttled = alarms["sluice-mixed-billing-throttled"]

    assert {name for name in alarms if name.startswith("sluice-mixed-billing-")} == {
        f"sluice-mixed-billing-{condition}"
        for condition in (
            *("dead-letters", "undelivered", "late", "expiring", "stuck", "pinned"),
            *("throttled", "erring"),
        )
    }
    assert {key: throttled[key] for key in ("Namespace", "MetricName", "Dimensions", "Statistic", "Threshold")} == {
        "Namespace": "AWS/Lambda",
        "MetricName": "Throttles",
        "Dimensions": [{"Name": "FunctionName", "Value": "sluice-mixed-billing"}],
        "Statistic": "Sum",
        "Threshold": 1,
    }
    late, concurrent = "(FILL(age, REPEAT) > 60)", "FILL(FILL(concurrent, REPEAT), 0)"
    assert {
        condition: [
            query["Expression"]
            for query in alarms[f"sluice-mixed-billing-{condition}"]["Metrics"]
            if "Expression" in query
        ]
        for condition in ("stuck", "pinned")
    } == {
        "stuck": [f"IF(({late} AND ({concurrent} < 20)), 1, 0)"],
        "pinned": [f"IF(({late} AND ({concurrent} >= 20)), 1, 0)"],
    }


def test_the_dashboard_has_a_functions_invocations_in_place_of_tasks(both_kinds: list[Resource]) -> None:
    pages = of_kind(both_kinds, "AWS::CloudWatch::Dashboard")
    widgets = json.loads(pages["sluice-mixed-eu-central-1"]["DashboardBody"])["widgets"]
    titles = [widget["properties"].get("title", widget["properties"].get("markdown")) for widget in widgets]

    assert titles[titles.index("## billing") + 4 :] == [
        "Invocations a minute, errors and throttles",
        "Concurrent invocations, and groups in flight",
        "Longest invocation, ms",
    ]


def test_a_functions_logs_and_its_way_to_the_dlq_are_let_through(both_kinds: list[Resource]) -> None:
    """The log group is encrypted with the environment's key. The endpoint of SQS allows sends to the DLQ."""
    (key,) = [resource for resource in both_kinds if resource.name == "NetworkLogKey"]
    (endpoint,) = [
        resource.properties
        for resource in both_kinds
        if resource.kind == "AWS::EC2::VPCEndpoint" and resource.properties["ServiceName"].endswith(".sqs")
    ]
    (statement,) = endpoint["PolicyDocument"]["Statement"]

    assert "log-group:/aws/lambda/sluice-mixed-*" in json.dumps(key.properties["KeyPolicy"])
    assert "sqs:SendMessage" in statement["Action"]
    assert statement["Resource"] == "arn:aws:sqs:eu-central-1:111122223333:sluice-mixed-*"


NETWORK = ExistingNetwork(
    vpc_id="vpc-0a1b2c3d4e5f60718", subnet_ids=("subnet-0a1b2c3d4e5f60718", "subnet-0f1e2d3c4b5a69788")
)


def _refusal(consumer: Consumer, *, relay: bool = True) -> str:
    """Return why an environment with that consumer is not synthesized."""
    environment = Environment(
        name="dev",
        removal=Removal.DESTROY,
        image="worker:1",
        network=NETWORK,
        database=NewDatabase(),
        relay=relay,
        consumers=(consumer,),
    )
    with pytest.raises(ConfigError) as refused:
        EnvironmentStage(cdk.App(), environment=environment)
    return str(refused.value)


def test_a_function_is_refused_where_no_task_makes_the_tables() -> None:
    consumer = Consumer(name="billing", handlers="their.billing", runtime=Lambda(maximum_concurrency=5))

    assert _refusal(consumer, relay=False) == (
        "Consumer('billing').runtime is 'Lambda(…)', allowed is None, or Lambda(…) in an environment with a task that"
        " makes the tables: declare relay=True in environment 'dev', or a consumer that runs as tasks, of the"
        " environment's image and with min_tasks of 1 or more"
    )


def test_more_variables_than_a_function_may_have_are_refused() -> None:
    """The declared consumer is one of the variables. CloudFormation would refuse them in the middle of a deployment."""
    types = tuple(f"order.{number:060}" for number in range(50))
    consumer = Consumer(name="billing", handlers="their.billing", types=types, runtime=Lambda(maximum_concurrency=5))

    assert "allowed is at most 4,096 bytes of variables" in _refusal(consumer)


def test_the_mixed_environment_has_functions_and_tasks() -> None:
    """The tests above would hold for nothing otherwise."""
    assert [consumer.runtime is None for consumer in EDITED[MIXED].consumers] == [True, False, False]
