"""The guard of deployments finds each harm in a change of templates, and leaves harmless changes alone."""

from typing import Any

import pytest

from sluice.deployment.account import stack_policy
from sluice.deployment.deploy import require_allowed
from sluice.deployment.guard import GuardFinding, HarmKind, bundled_schemas, judge, judge_change_set
from sluice.errors import ConfigError

QUEUE = {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": "billing.fifo", "FifoQueue": True}}
CLUSTER = {
    "Type": "AWS::RDS::DBCluster",
    "Properties": {"EngineVersion": "17.9", "DeletionProtection": True, "DBSubnetGroupName": {"Ref": "Subnets"}},
    "DeletionPolicy": "Snapshot",
}


def with_properties(resource: dict[str, Any], **properties: Any) -> dict[str, Any]:
    """Return a resource with other properties; None takes one away."""
    changed = {**resource["Properties"], **properties}
    return {**resource, "Properties": {name: value for name, value in changed.items() if value is not None}}


def harms_of(before: dict[str, Any], after: dict[str, Any], **sections: Any) -> list[tuple[str, HarmKind]]:
    """Return the harms of a change of one stack's resources; `sections` are further sections of the new template."""
    was = {"Resources": before, **{name: {} for name in sections}}
    findings = judge({"prod": was}, {"prod": {"Resources": after, **sections}}, bundled_schemas())
    return [(finding.logical_id, finding.harm) for finding in findings]


def test_a_removed_queue_is_named_with_what_is_lost() -> None:
    (finding,) = judge({"prod": {"Resources": {"Q": QUEUE}}}, {"prod": {"Resources": {}}}, bundled_schemas())

    assert str(finding) == (
        "prod: AWS::SQS::Queue billing.fifo (Q) would be removed: it is no longer in the template; lost would be the"
        " messages in it"
    )


@pytest.mark.parametrize(
    ("before", "after", "harm"),
    [
        (QUEUE, with_properties(QUEUE, QueueName="invoices.fifo"), HarmKind.REPLACE),
        (QUEUE, with_properties(QUEUE, FifoQueue=None), HarmKind.REPLACE),
        (QUEUE, {**QUEUE, "Type": "AWS::SNS::Topic"}, HarmKind.REPLACE),
        (QUEUE, {**QUEUE, "Condition": "IsProd"}, HarmKind.REPLACE),
        (QUEUE, with_properties(QUEUE, VisibilityTimeout=90), None),
        (
            with_properties(QUEUE, MessageRetentionPeriod=600),
            with_properties(QUEUE, MessageRetentionPeriod=60),
            HarmKind.SHORTEN,
        ),
        (with_properties(QUEUE, MessageRetentionPeriod=60), with_properties(QUEUE, MessageRetentionPeriod=600), None),
        (with_properties(QUEUE, MessageRetentionPeriod=60), QUEUE, HarmKind.SHORTEN),  # the default is not known here
        (CLUSTER, with_properties(CLUSTER, EngineVersion="16.10"), HarmKind.DOWNGRADE),
        (CLUSTER, with_properties(CLUSTER, EngineVersion="17.10"), None),
        (
            CLUSTER,
            with_properties(CLUSTER, EngineVersion={"Ref": "Version"}),
            HarmKind.DOWNGRADE,
        ),  # of which nobody knows
        (CLUSTER, with_properties(CLUSTER, Engine="aurora-mysql"), HarmKind.REPLACE),  # at times, which counts
        (CLUSTER, with_properties(CLUSTER, DeletionProtection=False), None),  # it is still retained
        ({**CLUSTER, "DeletionPolicy": "Retain"}, CLUSTER, None),
        (CLUSTER, {**CLUSTER, "DeletionPolicy": "Delete"}, None),  # it is still protected
        (
            CLUSTER,
            {**with_properties(CLUSTER, DeletionProtection=False), "DeletionPolicy": "Delete"},
            HarmKind.UNPROTECT,
        ),
        (
            {**CLUSTER, "DeletionPolicy": "Delete"},  # retention went first, and protection goes now
            {**with_properties(CLUSTER, DeletionProtection=False), "DeletionPolicy": "Delete"},
            HarmKind.UNPROTECT,
        ),
        (with_properties(CLUSTER, EngineVersion=None), CLUSTER, HarmKind.DOWNGRADE),  # which one runs is not known
        ({**QUEUE, "DeletionPolicy": "Retain"}, QUEUE, HarmKind.UNPROTECT),
    ],
)
def test_a_change_of_one_resource_has_its_kind_of_harm(
    before: dict[str, Any], after: dict[str, Any], harm: HarmKind | None
) -> None:
    assert harms_of({"Q": before}, {"Q": after}) == ([] if harm is None else [("Q", harm)])


def test_a_replacement_is_followed_through_references_into_the_next_stack() -> None:
    """The VPC changes.

    A resource in another stack that refers to it by a property that cannot be updated is replaced, too.
    """
    vpc = {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16"}}
    subnet = {"Type": "AWS::EC2::Subnet", "Properties": {"VpcId": {"Ref": "Vpc"}}}
    exported = {"Subnet": {"Value": {"Ref": "S"}, "Export": {"Name": "net:S"}}}
    cluster = with_properties(CLUSTER, DBSubnetGroupName={"Fn::ImportValue": "net:S"})
    data = {"Resources": {"C": cluster}}
    before: dict[str, Any] = {"net": {"Resources": {"Vpc": vpc, "S": subnet}, "Outputs": exported}, "data": data}
    moved = with_properties(vpc, CidrBlock="10.1.0.0/16")
    after: dict[str, Any] = {"net": {"Resources": {"Vpc": moved, "S": subnet}, "Outputs": exported}, "data": data}

    findings = judge(before, after, bundled_schemas())

    assert [(finding.logical_id, finding.because) for finding in findings] == [
        ("S", "VpcId is Vpc, which is another one then"),
        ("Vpc", "CidrBlock changes"),
        ("C", "DBSubnetGroupName is S, which is another one then"),
    ]
    assert judge(before, before, bundled_schemas()) == []


def _exporting(**exported: str) -> dict[str, Any]:
    """Return a stack that exports a queue's attribute under each name."""
    values = {name: {"Fn::GetAtt": ["Q", attribute]} for name, attribute in exported.items()}
    outputs = {f"Of{name}": {"Value": value, "Export": {"Name": name}} for name, value in values.items()}
    return {"Resources": {"Q": QUEUE}, "Outputs": outputs}


def _importing(*names: str) -> dict[str, Any]:
    metadata = {"Imported": [{"Fn::ImportValue": name} for name in names]}
    return {"Resources": {"W": {"Type": "AWS::CloudFormation::WaitConditionHandle", "Metadata": metadata}}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"net": _exporting(a="Arn"), "app": _importing("a")}, {"net": _exporting(), "app": _importing()}),
        ({"net": _exporting(a="Arn"), "app": _importing("a")}, {"net": _exporting()}),  # it stays as it is
        ({"net": _exporting(a="Arn"), "app": _importing("a")}, {"net": _exporting(a="QueueName"), "app": _importing()}),
        ({"net": _exporting(a="Arn"), "app": _importing("a")}, {"app": _importing("a"), "net": _exporting()}),
    ],
)
def test_an_export_stays_as_long_as_it_is_imported(before: dict[str, Any], after: dict[str, Any]) -> None:
    """CloudFormation refuses to change it, after it has changed the stacks before."""
    (finding,) = judge(before, after, bundled_schemas())

    assert str(finding).startswith(
        "net: export a (Ofa) would be taken away or given another value: it is imported by app;"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"net": _exporting(a="Arn"), "app": _importing()}, {"net": _exporting(), "app": _importing()}),
        ({"net": _exporting(a="Arn"), "app": _importing("a")}, {"app": _importing(), "net": _exporting()}),  # before it
        ({"net": _exporting(a="Arn"), "app": _importing("a")}, {"net": _exporting(a="Arn", b="Arn"), "app": {}}),
        ({}, {"net": _exporting(a="Arn"), "app": _importing("a")}),
    ],
)
def test_an_export_that_nobody_imports_any_more_may_go(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert judge(before, after, bundled_schemas()) == []


def test_an_account_knows_who_else_imports() -> None:
    """Stacks of other apps may import, and their templates are not read."""
    before, after = ({"net": _exporting(a="Arn")}, {"net": _exporting()})

    (finding,) = judge(before, after, bundled_schemas(), importers=lambda stack, name: {f"shop-{stack}-{name}", "net"})

    assert finding.because == "it is imported by shop-net-a"


def test_a_parameter_with_another_default_is_another_value() -> None:
    queue = with_properties(QUEUE, QueueName={"Ref": "Name"})

    assert harms_of({"Q": queue}, {"Q": queue}, Parameters={"Name": {"Default": "b"}}) == [("Q", HarmKind.REPLACE)]


@pytest.mark.parametrize(
    "queue",
    [
        {**QUEUE, "Condition": "IsOurs"},
        with_properties(QUEUE, QueueName={"Fn::If": ["IsOurs", "a", "b"]}),
        with_properties(QUEUE, QueueName={"Fn::Sub": "${Name}-billing"}),
        with_properties(QUEUE, QueueName={"Fn::Sub": ["${Of}-billing", {"Of": {"Ref": "Name"}}]}),
    ],
)
def test_a_parameter_counts_in_conditions_and_texts(queue: dict[str, Any]) -> None:
    ours = {"Fn::Equals": [{"Ref": "Name"}, "a"]}
    conditions = {"IsOurs": {"Fn::And": [{"Condition": "IsNamed"}, {"Condition": "IsNamed"}]}, "IsNamed": ours}

    def harms_with_default(default: str) -> list[HarmKind]:
        was, now = (
            {"Resources": {"Q": queue}, "Conditions": conditions, "Parameters": {"Name": {"Default": name}}}
            for name in ("a", default)
        )
        return [finding.harm for finding in judge({"prod": was}, {"prod": now}, bundled_schemas())]

    assert harms_with_default("b") == [HarmKind.REPLACE]
    assert harms_with_default("a") == []


def test_a_retained_resource_of_any_type_is_guarded() -> None:
    table = {"Type": "AWS::DynamoDB::Table", "Properties": {"TableName": "carts"}, "DeletionPolicy": "Retain"}

    assert harms_of({"T": table}, {}) == [("T", HarmKind.REMOVE)]
    assert harms_of({"T": table}, {"T": with_properties(table, TableName="c")}) == [
        ("T", HarmKind.REPLACE)
    ]  # not known here
    assert harms_of({"T": {**table, "DeletionPolicy": "Delete"}}, {}) == []
    assert harms_of({"T": {**table, "Type": "AWS::Logs::LogGroup"}}, {}) == []  # it stays, and has its name


def test_a_service_may_go_but_not_be_replaced() -> None:
    service = {"Type": "AWS::ECS::Service", "Properties": {"LaunchType": "FARGATE"}}

    assert harms_of({"S": service}, {}) == []
    assert harms_of({"S": service}, {"S": with_properties(service, LaunchType=None)}) == [("S", HarmKind.REPLACE)]


def test_a_new_stack_and_one_that_stays_lose_nothing() -> None:
    assert judge({"old": {"Resources": {"Q": QUEUE}}}, {"new": {"Resources": {}}}, bundled_schemas()) == []


@pytest.mark.parametrize("of", ["before", "after"])
def test_a_template_with_a_macro_is_refused(of: str) -> None:
    """The guard cannot know the resources that a macro makes."""
    plain: dict[str, Any] = {"Resources": {}}
    macro = {**plain, "Transform": "AWS::Serverless-2016-10-31"}
    stacks = {"before": (macro, plain), "after": (plain, macro)}[of]

    with pytest.raises(ConfigError, match=r"the template of prod has a Transform, allowed is"):
        judge({"prod": stacks[0]}, {"prod": stacks[1]}, bundled_schemas())


@pytest.mark.parametrize(
    ("change", "harm"),
    [
        ({"Action": "Remove"}, HarmKind.REMOVE),
        ({"Action": "Modify", "Replacement": "True"}, HarmKind.REPLACE),
        ({"Action": "Modify", "Replacement": "Conditional"}, HarmKind.REPLACE),
        ({"Action": "Modify"}, HarmKind.REPLACE),  # it does not say
        ({"Action": "Dynamic"}, HarmKind.REPLACE),
        ({"Action": "Modify", "Replacement": "False"}, None),
        ({"Action": "Add"}, None),
    ],
)
def test_a_change_set_is_judged_by_what_cloudformation_says(change: dict[str, str], harm: HarmKind | None) -> None:
    resource = {"LogicalResourceId": "Q", "ResourceType": "AWS::SQS::Queue", **change}

    findings = judge_change_set("prod", [{"ResourceChange": resource}], {"Resources": {"Q": QUEUE}})

    assert [finding.harm for finding in findings] == ([] if harm is None else [harm])


def _finding(logical_id: str) -> GuardFinding:
    return GuardFinding(
        stack="prod", logical_id=logical_id, kind="AWS::SQS::Queue", name="q", harm=HarmKind.REMOVE, because="", lost=""
    )


def test_each_harm_is_allowed_by_its_logical_id_and_by_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    findings = [_finding("A"), _finding("B")]

    require_allowed(findings, ["A", "B"])
    with pytest.raises(ConfigError, match=r"^1 of the resources in prod would lose .* add --allow B$"):
        require_allowed(findings, ["A"])
    with pytest.raises(ConfigError, match=r"^--allow is C, allowed is .* A, B; leave it out$"):
        require_allowed(findings, ["A", "B", "C"])
    assert capsys.readouterr().err == f"{findings[1]}\n"


def test_harm_that_only_a_change_set_reports_can_be_allowed_before() -> None:
    """CloudFormation calls a subscription Conditional whose queue changes in place; the templates show no harm."""
    require_allowed([], ["Subscription"], later=["Queue", "Subscription"])
    with pytest.raises(ConfigError, match=r"^--allow is Misspelt, allowed is .*: there is none; leave it out$"):
        require_allowed([], ["Misspelt"], later=["Queue", "Subscription"])


def test_a_stack_policy_denies_to_all_but_what_is_allowed() -> None:
    closed, opened = stack_policy(())["Statement"][1], stack_policy(["Q"])["Statement"][1]

    assert closed["Effect"] == "Deny"
    assert closed["Action"] == ["Update:Replace", "Update:Delete"]
    assert closed["Resource"] == "*"
    assert opened.get("Resource") is None
    assert opened["NotResource"] == ["LogicalResourceId/Q"]
    assert [statement["Effect"] for statement in stack_policy(None)["Statement"]] == ["Allow"]
