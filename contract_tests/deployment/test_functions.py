"""The Lambda functions of a deployed environment are as declared, with their mappings, schedules and permissions.

The expected values are made from the declaration, not from the stacks. A run against an environment without a function
leaves these contracts out.
"""

import json
from typing import Any

import pytest

from contract_tests.deployment.environment import DeployedEnvironment
from sluice.declaration import Consumer, Lambda, naming, task_settings
from sluice.declaration.fields.functions import SCHEDULED_EVENT
from sluice.declaration.fields.image import Architecture
from sluice.simulator.model.policies import PolicyDecision, PolicyRequest, decide

pytestmark = [pytest.mark.deployment, pytest.mark.functions]

_ALLOW, _DENY, _NOT_STATED = PolicyDecision.ALLOW, PolicyDecision.DENY, PolicyDecision.NOT_STATED
_CODE_OF_PACKAGES = {
    "PackageType": "Zip",
    "Runtime": "python3.13",
    "Architectures": ["arm64"],
}
_ARCHITECTURES = {Architecture.X86_64: "x86_64", Architecture.ARM64: "arm64"}


def _functions(deployment: DeployedEnvironment) -> dict[str, tuple[Consumer, Lambda]]:
    """Return each consumer that runs as a function, with its `runtime`, by the function's name."""
    environment = deployment.environment
    return {
        naming.function_name(environment, consumer): (consumer, consumer.runtime)
        for consumer in environment.consumers
        if consumer.runtime is not None
    }


def _code(deployment: DeployedEnvironment, consumer: Consumer, declared: Lambda) -> dict[str, Any]:
    """Return the fields of a function's configuration that say what it runs."""
    if declared.package is not None:
        return _CODE_OF_PACKAGES | {"Handler": declared.handler}
    architecture = _ARCHITECTURES[deployment.environment.architecture]
    entry = {"EntryPoint": ["python", "-m", "awslambdaric"], "Command": [declared.handler]}
    return {"PackageType": "Image", "Architectures": [architecture], "ImageConfig": entry}


def _is_of_database(variable: str) -> bool:
    """Return whether a variable says where the database is; its value is known only where the database is made."""
    return variable.startswith("SLUICE_DATABASE_")


def _without_account(settings: str) -> dict[str, Any]:
    """Return a task's settings without the account, which may be given to `cdk` in place of the declaration."""
    return {key: value for key, value in json.loads(settings).items() if key != "account"}


@pytest.mark.promise("STK-08")
def test_every_function_is_live_as_declared(deployment: DeployedEnvironment) -> None:
    environment = deployment.environment
    expected, seen = {}, {}
    for name, (consumer, declared) in _functions(deployment).items():
        code = _code(deployment, consumer, declared)
        settings = task_settings.render(task_settings.task_environment(environment, consumer))
        expected[name] = code | {
            "MemorySize": declared.memory_mb,
            "Timeout": declared.timeout_seconds,
            "Variables": {
                "SLUICE_ENV": environment.name,
                "SLUICE_CONSUMER": consumer.name,
                task_settings.VARIABLE: _without_account(settings),
            },
            "reserved concurrency": declared.reserved_concurrency,
            "is in a network": True,
        }
        live = deployment.functions.get_function(FunctionName=name)["Configuration"]
        concurrency = deployment.functions.get_function_concurrency(FunctionName=name)
        variables = dict(live.get("Environment", {}).get("Variables", {}))
        variables[task_settings.VARIABLE] = _without_account(variables.get(task_settings.VARIABLE, "{}"))
        image = live.get("ImageConfigResponse", {}).get("ImageConfig")
        found = live | ({} if image is None else {"ImageConfig": image})
        seen[name] = {field: found.get(field) for field in (*code, "MemorySize", "Timeout")} | {
            "Variables": {key: value for key, value in variables.items() if not _is_of_database(key)},
            "reserved concurrency": concurrency.get("ReservedConcurrentExecutions"),
            "is in a network": bool(live.get("VpcConfig", {}).get("SubnetIds")),
        }

    assert seen == expected


def _mapping(deployment: DeployedEnvironment, consumer: Consumer, declared: Lambda) -> dict[str, Any]:
    """Return the expected settings of a function's mapping."""
    pollers = {"MinimumPollers": declared.pollers_min, "MaximumPollers": declared.pollers_max}
    return {
        "EventSourceArn": deployment.queue_arn(naming.queue_name(deployment.environment, consumer)),
        "BatchSize": declared.batch_size,
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
        "MaximumConcurrency": declared.maximum_concurrency,
        "ProvisionedPollerConfig": {} if declared.pollers_min is None else pollers,
        "MaximumBatchingWindowInSeconds": 0,
        "FilterCriteria": {},
        "State": "Enabled",
    }


def _live_mapping(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return a live mapping's settings as `_mapping` has the expected ones."""
    return {
        "EventSourceArn": mapping["EventSourceArn"],
        "BatchSize": mapping["BatchSize"],
        "FunctionResponseTypes": mapping.get("FunctionResponseTypes", []),
        "MaximumConcurrency": mapping.get("ScalingConfig", {}).get("MaximumConcurrency"),
        "ProvisionedPollerConfig": mapping.get("ProvisionedPollerConfig", {}),
        "MaximumBatchingWindowInSeconds": mapping.get("MaximumBatchingWindowInSeconds", 0),
        "FilterCriteria": mapping.get("FilterCriteria", {}),
        "State": mapping["State"],
    }


@pytest.mark.promise("STK-09")
def test_every_function_gets_its_own_queue_by_one_mapping(deployment: DeployedEnvironment) -> None:
    expected, seen = {}, {}
    for name, (consumer, declared) in _functions(deployment).items():
        expected[name] = [_mapping(deployment, consumer, declared)]
        pages = deployment.functions.get_paginator("list_event_source_mappings").paginate(FunctionName=name)
        seen[name] = [_live_mapping(mapping) for page in pages for mapping in page["EventSourceMappings"]]

    assert seen == expected


@pytest.mark.promise("STK-10")
def test_every_function_has_a_schedule_for_its_inbox(deployment: DeployedEnvironment) -> None:
    expected, seen = {}, {}
    for name, (consumer, _) in _functions(deployment).items():
        rate = "rate(1 minute)" if consumer.parks else "rate(1 hour)"
        expected[name] = [(rate, "ENABLED", [SCHEDULED_EVENT])]
        arn = deployment.functions.get_function(FunctionName=name)["Configuration"]["FunctionArn"]
        rules = deployment.events.list_rule_names_by_target(TargetArn=arn)["RuleNames"]
        seen[name] = [_schedule(deployment, rule, arn) for rule in rules]

    assert seen == expected


def _schedule(deployment: DeployedEnvironment, name: str, function_arn: str) -> tuple[Any, ...]:
    """Return a rule's schedule, its state, and the events that it invokes a function with."""
    rule = deployment.events.describe_rule(Name=name)
    targets = deployment.events.list_targets_by_rule(Rule=name)["Targets"]
    events = [json.loads(target["Input"]) for target in targets if target["Arn"] == function_arn]
    return rule.get("ScheduleExpression"), rule["State"], events


@pytest.mark.promise("STK-11")
def test_a_function_uses_its_own_queues_and_nobody_else_calls_it(deployment: DeployedEnvironment) -> None:
    environment = deployment.environment
    expected, seen = {}, {}
    for name, (consumer, _) in _functions(deployment).items():
        live = deployment.functions.get_function(FunctionName=name)["Configuration"]
        role, arn = live["Role"].rpartition("/")[2], live["FunctionArn"]
        own, dead = (
            deployment.queue_arn(name_of(environment, consumer))
            for name_of in (naming.queue_name, naming.dead_letter_queue_name)
        )
        others = deployment.queue_arn("somebody-elses.fifo")
        requests = {
            **{("sqs:" + action, own): _ALLOW for action in ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes")},
            ("sqs:ChangeMessageVisibility", own): _ALLOW,
            ("sqs:SendMessage", dead): _ALLOW,
            ("sqs:SendMessage", own): _NOT_STATED,
            ("sqs:ReceiveMessage", dead): _NOT_STATED,
            ("sqs:ReceiveMessage", others): _NOT_STATED,
            ("sqs:DeleteMessage", others): _NOT_STATED,
            ("sns:Publish", deployment.topic_arn): _NOT_STATED,
            ("ec2:CreateNetworkInterface", "*"): _ALLOW,
        }
        expected[name] = requests | {
            "an interface, by its own code": _DENY,
            "policies of others": [],
            "invoked by its schedule": _ALLOW,
            "invoked by a stranger's rule": _NOT_STATED,
            "invoked by a stranger": _NOT_STATED,
        }
        policy = _role_policy(deployment, role)
        seen[name] = {request: _decide(policy, *request) for request in requests} | {
            "an interface, by its own code": _decide(policy, "ec2:CreateNetworkInterface", "*", of=arn),
            "policies of others": deployment.iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"],
            **_callers(deployment, arn),
        }

    assert seen == expected


def _role_policy(deployment: DeployedEnvironment, role: str) -> dict[str, Any]:
    """Return the inline policies of a role as one."""
    names = deployment.iam.list_role_policies(RoleName=role)["PolicyNames"]
    documents = [deployment.iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"] for name in names]
    return {"Statement": [statement for document in documents for statement in document["Statement"]]}


def _decide(policy: dict[str, Any], action: str, resource: str, *, of: str | None = None) -> PolicyDecision:
    """Return a policy's decision about a call, which the code of the function `of` makes, or Lambda itself."""
    context = {} if of is None else {"lambda:sourcefunctionarn": of}
    return decide(policy, PolicyRequest(principal="the role", action=action, resource=resource, context=context))


def _callers(deployment: DeployedEnvironment, arn: str) -> dict[str, PolicyDecision]:
    """Return a function's own policy's decision about each caller."""
    policy = json.loads(deployment.functions.get_policy(FunctionName=arn)["Policy"])
    (rule,) = deployment.events.list_rule_names_by_target(TargetArn=arn)["RuleNames"]
    region, account = deployment.environment.region, deployment.account
    schedule = f"arn:aws:events:{region}:{account}:rule/{rule}"
    strangers = f"arn:aws:events:{region}:999999999999:rule/theirs"

    def decision_for(principal: str, source: str | None = None) -> PolicyDecision:
        context = {} if source is None else {"aws:sourcearn": source}
        request = PolicyRequest(principal=principal, action="lambda:InvokeFunction", resource=arn, context=context)
        return decide(policy, request)

    return {
        "invoked by its schedule": decision_for("events.amazonaws.com", schedule),
        "invoked by a stranger's rule": decision_for("events.amazonaws.com", strangers),
        "invoked by a stranger": decision_for("arn:aws:iam::999999999999:user/stranger"),
    }
