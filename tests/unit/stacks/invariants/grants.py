"""Who may do what, and what is encrypted: no more is allowed than is needed, and that is."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from sluice import naming
from sluice.declaration import Encryption, Environment
from tests.unit.stacks.invariants.found import (
    KEY,
    QUEUE,
    QUEUE_POLICY,
    TOPIC,
    TOPIC_POLICY,
    Found,
    allowances,
    as_list,
    of_kind,
)
from tests.unit.stacks.synthesis import Properties


def _encryption(found: Found, environment: Environment) -> Iterator[str]:
    is_own, keys = environment.encryption is Encryption.CMK, of_kind(found, KEY)
    expected = {"KmsMasterKeyId": "Arn(FanoutKeysQueues)"} if is_own else {"SqsManagedSseEnabled": True}
    for queue in of_kind(found, QUEUE):
        seen = {key: value for key, value in queue.properties.items() if re.match("Kms|SqsManaged", key)}
        if seen != expected:
            yield f"{queue.name} is encrypted with {seen}"
    for topic in of_kind(found, TOPIC):
        key = topic.properties.get("KmsMasterKeyId")
        if key != ("Arn(FanoutKeysTopic)" if is_own else None):
            yield f"{topic.name} is encrypted with {key}"
    let_in = {key.name: [one for statement in allowances(key) for one in _principals(statement)] for key in keys}
    services = {name: principals[1:] for name, principals in let_in.items()}  # after the account itself
    replaying = ["sns.amazonaws.com"] if environment.archive_days is not None else []
    expected_services = {
        "FanoutKeysTopic": ["cloudwatch.amazonaws.com", *replaying],
        "FanoutKeysQueues": ["sns.amazonaws.com"],
    }
    if services != (expected_services if is_own else {}):
        yield f"keys let in {services}"
    yield from (f"{key.name} does not rotate" for key in keys if key.properties.get("EnableKeyRotation") is not True)


def _transport(found: Found, environment: Environment) -> Iterator[str]:
    denying = {
        attached
        for policy in (*of_kind(found, QUEUE_POLICY), *of_kind(found, TOPIC_POLICY))
        for statement in policy.properties["PolicyDocument"]["Statement"]
        for attached in as_list(policy.properties.get("Queues", policy.properties.get("Topics")))
        if statement["Effect"] == "Deny"
        and statement["Principal"] in ("*", {"AWS": "*"})
        and statement["Action"] in ("sqs:*", "sns:Publish")
        and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        and re.sub("^Arn", "Ref", statement["Resource"]) == attached
    }
    for one in (*of_kind(found, QUEUE), *of_kind(found, TOPIC)):
        if f"Ref({one.name})" not in denying:
            yield f"{one.name} takes what is not encrypted in transit"


def _privileges(found: Found, environment: Environment) -> Iterator[str]:
    account = environment.account or "<AWS::AccountId>"
    topic = f"Ref({naming.topic_name(environment)})"
    of_topic_key = naming.topic_arn(environment, account)  # the topic names its key, so the key does not name it
    for resource in found:
        on_behalf_of = {
            "sns.amazonaws.com": {
                "ArnEquals": {"aws:SourceArn": of_topic_key if resource.name == "FanoutKeysTopic" else topic}
            },
            "cloudwatch.amazonaws.com": {"StringEquals": {"aws:SourceAccount": account}},
        }
        excesses = _let_in if resource.kind in (KEY, QUEUE_POLICY, TOPIC_POLICY) else _allowed
        for statement in allowances(resource):
            # CDK lets a key's account administer the key; without this nobody could.
            is_administration = resource.kind == KEY and re.fullmatch(
                rf"arn:[a-z-]+:iam::{re.escape(account)}:root", str(*_principals(statement))
            )
            if not is_administration:
                yield from (f"{resource.name}: {excess}" for excess in _wildcards(statement))
                yield from (f"{resource.name}: {excess}" for excess in excesses(statement, on_behalf_of))


def _principals(statement: Properties) -> list[Any]:
    principal = statement.get("Principal", {})
    return [one for kind in principal.values() for one in as_list(kind)] if isinstance(principal, dict) else [principal]


def _wildcards(statement: Properties) -> Iterator[str]:
    if "*" in _principals(statement):
        yield "anybody is allowed something"
    if any(key.startswith("Not") for key in statement):
        yield "something is allowed by what it is not"
    yield from (f"{action} is allowed" for action in as_list(statement.get("Action", [])) if "*" in action)


def _let_in(statement: Properties, on_behalf_of: Mapping[str, Properties]) -> Iterator[str]:
    """Check a policy of a resource: it lets in services only, and each only on behalf of what is ours."""
    for principal in _principals(statement):
        if statement.get("Condition") != on_behalf_of.get(principal, "nobody"):
            yield f"{principal} is let in on whoever's behalf"


def _allowed(statement: Properties, _: Mapping[str, Properties]) -> Iterator[str]:
    """Check a policy of a role: every resource is named, but for a token of ECR and a task's own id."""
    actions = as_list(statement.get("Action", []))
    for resource in map(str, as_list(statement.get("Resource", []))):
        is_token = (actions, resource) == (["ecr:GetAuthorizationToken"], "*")
        is_task = all(action.endswith("TaskProtection") for action in actions) and resource.endswith("/*")
        if "*" in resource and not is_token and not is_task:
            yield f"something is allowed on {resource}"


def _delivery(found: Found, environment: Environment) -> Iterator[str]:
    topic = f"Ref({naming.topic_name(environment)})"
    takers = {
        statement["Resource"]
        for policy in of_kind(found, QUEUE_POLICY)
        for statement in allowances(policy)
        if statement["Action"] == "sqs:SendMessage"
        and statement["Principal"] == {"Service": "sns.amazonaws.com"}
        and statement.get("Condition") == {"ArnEquals": {"aws:SourceArn": topic}}
    }
    expected = {
        f"Arn({name(environment, consumer)})"
        for consumer in environment.consumers
        for name in (naming.queue_name, naming.undelivered_queue_name)
    }
    for arn in sorted(expected ^ takers):
        yield f"SNS {'may not' if arn in expected else 'may'} send to {arn}"


CHECKS = (_encryption, _transport, _privileges, _delivery)
