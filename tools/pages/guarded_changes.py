"""Let the guard of deployments judge typical changes of a declaration, from the templates before and after.

Only the stacks that a change concerns are synthesized. The guard ships with a file of the properties whose change
replaces a resource; it is written here, from the schemas of cfn-lint, for all types in these templates.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import aws_cdk as cdk

from sluice.declaration import (
    Consumer,
    Encryption,
    Environment,
    ExistingKeys,
    ExistingNetwork,
    NewDatabase,
    NewNetwork,
    Removal,
    Topic,
)
from sluice.deployment.account import replacing_properties
from sluice.deployment.guard import STATE, GuardFinding, judge
from sluice.stacks import ConsumersStack, DatabaseStack, MessagingStack, NetworkStack

FILE = Path(__file__).resolve().parents[2] / "sluice" / "deployment" / "replacement.json"
COLUMNS = ("change", "deployed", "refused, and what would be lost")
_BILLING, _AUDIT = (Consumer(name=name, topic="orders") for name in ("billing", "audit"))
_DATABASE = NewDatabase(standby=True)
_KEY = "arn:aws:kms:us-east-1:111122223333:key/0a1b2c3d-1111-2222-3333-444455556666"
BASE = Environment(
    name="prod",
    account="111122223333",
    encryption=Encryption.CMK,
    archive_days=7,
    image="worker:1",
    database=_DATABASE,
    topics=(Topic(name="orders"),),
    consumers=(_BILLING, _AUDIT),
    silent=True,
)
_MESSAGING, _DATA, _TASKS = ("messaging",), ("network", "database"), ("network", "consumers")
_ALL = ("network", "database", "messaging")
_HOLD_NOTHING = (
    *("AWS::Chatbot::SlackChannelConfiguration", "AWS::CloudWatch::Dashboard", "AWS::Events::Rule"),
    *("AWS::Lambda::EventInvokeConfig", "AWS::Lambda::EventSourceMapping", "AWS::Lambda::Permission"),
)
"""Types of our stacks that hold no data and that no change here concerns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedChange:
    """An edit of `before`: its title, the environment declared after it, and the stacks that it concerns."""

    title: str
    after: Callable[[], Environment]
    parts: tuple[str, ...]
    before: Environment = BASE


def _edit_billing(title: str, **fields: Any) -> GuardedChange:
    return GuardedChange(
        title=title,
        after=lambda: replace(BASE, consumers=(replace(_BILLING, **fields), _AUDIT)),
        parts=_MESSAGING,
    )


def _edit_base(title: str, parts: tuple[str, ...], **fields: Any) -> GuardedChange:
    return GuardedChange(title=title, after=lambda: replace(BASE, **fields), parts=parts)


def _environment_with_new_first_topic() -> Environment:
    first = (Topic(name="payments", subscriber_accounts=("444455556666",)), *BASE.topics)
    return replace(BASE, topics=first)


def _environment_with_moved_queue() -> Environment:
    topics = (*BASE.topics, Topic(name="payments"))
    return replace(BASE, topics=topics, consumers=(replace(_BILLING, topic="payments"), _AUDIT))


CHANGES = (
    _edit_base("one consumer more", _MESSAGING, consumers=(*BASE.consumers, Consumer(name="search", topic="orders"))),
    _edit_base(
        "one consumer more, with a `stack`",
        _MESSAGING,
        consumers=(*BASE.consumers, Consumer(name="search", topic="orders", stack="more")),
    ),
    _edit_billing("`stack` of a consumer that is deployed", stack="more"),
    _edit_base("a consumer removed", _MESSAGING, consumers=(_AUDIT,)),
    _edit_billing("a consumer renamed", name="invoices"),
    _edit_billing("`fifo` off", fifo=False),
    GuardedChange(title="a consumer moved to another topic", after=_environment_with_moved_queue, parts=_MESSAGING),
    _edit_billing(
        "`filter_policy`, `max_attempts`, `visibility_timeout_seconds`",
        filter_policy={"region": ["eu"]},
        max_attempts=9,
        visibility_timeout_seconds=120,
    ),
    _edit_billing("`message_retention_seconds` lower", message_retention_seconds=7_200),
    GuardedChange(
        title="one topic more, in front of the others", after=_environment_with_new_first_topic, parts=_MESSAGING
    ),
    _edit_base(
        "a topic renamed",
        _MESSAGING,
        topics=(Topic(name="sales"),),
        consumers=tuple(replace(consumer, topic="sales") for consumer in BASE.consumers),
    ),
    _edit_base("`archive_days` lower, or None", _MESSAGING, archive_days=None),
    _edit_base("the environment renamed: other stacks, and these stay", _MESSAGING, name="production"),
    _edit_base("`encryption` from CMK to SQS_MANAGED", _ALL, encryption=Encryption.SQS_MANAGED),
    GuardedChange(
        title="`encryption` from SQS_MANAGED to CMK",
        before=replace(BASE, encryption=Encryption.SQS_MANAGED),
        after=lambda: BASE,
        parts=_ALL,
    ),
    _edit_base("`keys` of somebody else", _MESSAGING, keys=ExistingKeys(topic_arn=_KEY, queues_arn=_KEY)),
    _edit_base("`removal` from RETAIN to DESTROY", _ALL, removal=Removal.DESTROY, archive_days=None),
    _edit_base(
        "`engine_version` higher, `min_acus`, `max_acus`",
        _DATA,
        database=replace(_DATABASE, engine_version="17.10", min_acus=1, max_acus=8),
    ),
    _edit_base("`engine_version` lower", _DATA, database=replace(_DATABASE, engine_version="16.9")),
    _edit_base("`vault_days`", _DATA, database=replace(_DATABASE, vault_days=35)),
    GuardedChange(
        title="`vault_days` back to None",
        before=replace(BASE, database=replace(_DATABASE, vault_days=35)),
        after=lambda: BASE,
        parts=_DATA,
    ),
    GuardedChange(
        title="`generated_identifier` back to None",
        before=replace(BASE, database=replace(_DATABASE, generated_identifier="prod-databasecluster-1a2b3c")),
        after=lambda: BASE,
        parts=_DATA,
    ),
    _edit_base("`standby` off", _DATA, database=replace(_DATABASE, standby=False)),
    _edit_base("`backup_days` lower", _DATA, database=replace(_DATABASE, backup_days=1)),
    _edit_base("`cidr`", _DATA, network=NewNetwork(cidr="10.1.0.0/16")),
    _edit_base("`availability_zones` 3 in place of 2", _DATA, network=NewNetwork(availability_zones=3)),
    GuardedChange(
        title="`availability_zones` 2 in place of 3",
        before=replace(BASE, network=NewNetwork(availability_zones=3)),
        after=lambda: BASE,
        parts=_DATA,
    ),
    _edit_base("`availability_zones_max`", _DATA, network=NewNetwork(availability_zones_max=2)),
    _edit_base(
        "`network` of somebody else",
        _DATA,
        network=ExistingNetwork(vpc_id="vpc-0a1b2c3d", subnet_ids=("subnet-0a1b2c3d", "subnet-0f1e2d3c")),
    ),
    _edit_base("`image`, `relay` off", _TASKS, image="worker:2", relay=False),
    _edit_base("`spot` on", _TASKS, spot=True),
    _edit_base("`cluster` of somebody else", _TASKS, cluster="everybodys"),
)


def rows() -> Iterator[tuple[str, str, str]]:
    """Yield a row for each change, in the order of the declaration's fields."""
    for change in CHANGES:
        found = findings(change)
        harmed = Counter((item.harm.value, item.kind.removeprefix("AWS::"), item.lost) for item in found)
        lost = "; ".join(f"{count} `{kind}` {harm}: {lost}" for (harm, kind, lost), count in sorted(harmed.items()))
        yield change.title, "no" if found else "yes", lost or "-"


def findings(change: GuardedChange) -> list[GuardFinding]:
    """Return the guard's findings about a change."""
    return judge(_templates(change.before, change.parts), _templates(change.after(), change.parts), _schema)


def schemas_text() -> str:
    """Return the file of schemas: for every type, the properties whose change makes CloudFormation replace it."""
    kinds = {
        resource["Type"]
        for change in CHANGES
        for environment in (change.before, change.after())
        for template in _templates(environment, change.parts).values()
        for resource in template["Resources"].values()
    }
    known = {
        kind: sorted(found) for kind in sorted({*kinds, *STATE, *_HOLD_NOTHING}) if (found := _schema(kind)) is not None
    }
    return json.dumps(known, indent=1) + "\n"


@cache
def _schema(kind: str) -> frozenset[str] | None:
    if kind == "AWS::CloudFormation::Stack":
        return frozenset({"TemplateURL"})  # the guard does not look into a nested stack
    if not kind.startswith("AWS::") or kind == "AWS::CDK::Metadata":
        return None
    from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER  # noqa: PLC0415 (seconds, for every xdist worker)

    return replacing_properties(PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", kind).schema)


_template_cache: dict[tuple[str, tuple[str, ...]], Mapping[str, Any]] = {}


def _templates(environment: Environment, parts: tuple[str, ...]) -> Mapping[str, Any]:
    key = (repr(environment), parts)
    if key not in _template_cache:
        _template_cache[key] = _synthesize(environment, parts)
    return _template_cache[key]


def _synthesize(environment: Environment, parts: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the templates of some stacks of an environment, by their name, as the project's stage wires them."""
    context = json.loads((FILE.parents[2] / "cdk.json").read_text(encoding="utf-8"))["context"]
    with tempfile.TemporaryDirectory() as directory:
        app = cdk.App(context=context, outdir=directory, builtin_cloud_formation_validation=False)
        region = cdk.Environment(account=environment.account, region=environment.region)
        stage = cdk.Stage(app, environment.name, env=region)
        access = None
        if "network" in parts:
            network = NetworkStack(stage, "Network", environment=environment).network
            if "database" in parts and isinstance(environment.database, NewDatabase):
                access = DatabaseStack(
                    stage, "Database", environment=environment, declared=environment.database, network=network
                ).database.access
        if "messaging" in parts:
            MessagingStack(stage, "Messaging", environment=environment, database=access)
        if "consumers" in parts:
            ConsumersStack(stage, "Consumers", environment=environment, network=network, database=access, keys=None)
        return {stack.stack_name: stack.template for stack in stage.synth().stacks}
