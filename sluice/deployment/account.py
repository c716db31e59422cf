"""An environment's stacks in an account, and the changes that CloudFormation announces for them.

They are read with the lookup role of `cdk bootstrap`, as the cdk command does, or with the caller's credentials if
these may not assume the role.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from sluice import sdk
from sluice.deployment.assembly import SynthesizedStack
from sluice.deployment.guard import GuardFinding, HarmKind, Schemas, Template, bundled_schemas
from sluice.errors import ConfigError, EndpointError

_CONFIG = sdk.config(answer_seconds=30, tries=3)
_NEVER_DEPLOYED = ("REVIEW_IN_PROGRESS", "DELETE_COMPLETE")
_PROTECTED = (
    "AWS::SQS::Queue",
    "AWS::SNS::Topic",
    "AWS::KMS::Key",
    "AWS::RDS::DBCluster",
    "AWS::RDS::DBInstance",
    "AWS::Backup::BackupVault",
)


class DeployedAccount:
    """The account and region that an environment is deployed to, as CloudFormation there describes it.

    Args:
        account: the account's id, twelve digits.
        region: the region's name.
    """

    def __init__(self, *, account: str, region: str) -> None:
        self._account, self._region = account, region
        self._caller = boto3.Session(region_name=region)
        self._sessions: dict[str | None, boto3.Session] = {None: self._caller}
        self._described: dict[str, frozenset[str] | None] = {}

    def template(self, stack: SynthesizedStack) -> Template | None:
        """Return the template that a stack has in the account; None if the stack was never deployed.

        Raises:
            ConfigError: the template cannot be read, so that nobody knows what a deployment would destroy.
            EndpointError: CloudFormation does not answer.
        """
        client = self._client("cloudformation", stack.lookup_role_arn)
        try:
            if not _is_deployed(client, stack.name):
                return None
            body = client.get_template(StackName=stack.name, TemplateStage="Processed")["TemplateBody"]
        except ClientError as error:
            raise _unreadable(stack, error) from error
        except BotoCoreError as error:
            raise EndpointError(f"CloudFormation does not answer for {stack.name} ({_first_line(error)})") from error
        if isinstance(body, str):
            try:
                body = json.loads(body)
            except ValueError as error:
                raise _unreadable(stack, error) from error
        if not isinstance(body, Mapping) or "Resources" not in body:
            raise _unreadable(stack, ValueError("it has no Resources"))
        return body

    def schemas(self) -> Schemas:
        """Return a function from a resource type to its replacing properties: Sluice's schemas, else the registry's."""
        bundled = bundled_schemas()

        def property_names(kind: str) -> frozenset[str] | None:
            found = bundled(kind)
            return self._describe(kind) if found is None and kind.startswith("AWS::") else found

        return property_names

    def _describe(self, kind: str) -> frozenset[str] | None:
        """Return the properties for which CloudFormation replaces resources of a type, from the account's registry.

        None if the registry does not say.
        """
        if kind not in self._described:
            try:
                answer = self._caller.client("cloudformation", config=_CONFIG).describe_type(
                    Type="RESOURCE", TypeName=kind
                )
                schema = json.loads(answer["Schema"])
            except (BotoCoreError, ClientError, KeyError, ValueError):
                self._described[kind] = None
            else:
                self._described[kind] = replacing_properties(schema)
        return self._described[kind]

    def importers(self, stack: SynthesizedStack, export: str) -> list[str]:
        """Return the names of the stacks that import a stack's export, stacks of other apps included.

        CloudFormation returns ValidationError for an export without importers.
        AWS: https://docs.aws.amazon.com/AWSCloudFormation/latest/APIReference/API_ListImports.html (read 2026-11-27).

        Raises:
            ConfigError: the role may not read the importers, or CloudFormation refuses the call otherwise.
            EndpointError: CloudFormation does not answer.
        """
        pages = self._client("cloudformation", stack.lookup_role_arn).get_paginator("list_imports")
        try:
            return [name for page in pages.paginate(ExportName=export) for name in page["Imports"]]
        except ClientError as error:
            if error.response["Error"]["Code"] == "ValidationError":
                return []
            raise ConfigError(
                f"who imports {export} cannot be read ({_first_line(error)}), so nobody knows whether it may change;"
                f" allow cloudformation:ListImports to {stack.lookup_role_arn or 'your role'}"
            ) from error
        except BotoCoreError as error:
            raise EndpointError(f"CloudFormation does not answer for {stack.name} ({_first_line(error)})") from error

    def with_deployed_names(
        self, findings: Iterable[GuardFinding], stacks: Mapping[str, SynthesizedStack]
    ) -> list[GuardFinding]:
        """Return findings with the physical names of their resources, and with the number of messages in each queue."""
        names: dict[str, dict[str, str]] = {}
        shown = []
        for found in findings:
            if found.stack not in names:
                names[found.stack] = self._physical_names(stacks[found.stack])
            physical = names[found.stack].get(found.logical_id, found.name)
            lost = found.lost
            if found.kind == "AWS::SQS::Queue" and found.harm in (HarmKind.REMOVE, HarmKind.REPLACE):
                lost += f" ({self._count(physical, stacks[found.stack])})"
            shown.append(replace(found, name=physical.rpartition("/")[2], lost=lost))
        return shown

    def _physical_names(self, stack: SynthesizedStack) -> dict[str, str]:
        """Return the physical id of each resource of a stack, by logical id; nothing if it cannot be read."""
        pages = self._client("cloudformation", stack.lookup_role_arn).get_paginator("list_stack_resources")
        try:
            return {
                resource["LogicalResourceId"]: resource["PhysicalResourceId"]
                for page in pages.paginate(StackName=stack.name)
                for resource in page["StackResourceSummaries"]
                if "PhysicalResourceId" in resource
            }
        except (BotoCoreError, ClientError):
            return {}

    def _count(self, url: str, stack: SynthesizedStack) -> str:
        """Return the count of messages in a queue as the text at the end of a finding, such as `about 12 now`."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        names.append("ApproximateNumberOfMessagesDelayed")
        try:
            found = self._client("sqs", stack.lookup_role_arn).get_queue_attributes(QueueUrl=url, AttributeNames=names)
        except (BotoCoreError, ClientError) as error:
            return f"how many is not known: {_first_line(error)}"
        return f"about {sum(int(count) for count in found['Attributes'].values()):,} now"

    def changes(self, stack: SynthesizedStack, change_set: str) -> list[Mapping[str, Any]] | None:
        """Return all changes of a change set; None if it cannot be executed, because nothing changes.

        A change set that changes only outputs can be executed, and has an empty list. AWS:
        https://docs.aws.amazon.com/AWSCloudFormation/latest/APIReference/API_DescribeChangeSet.html (read 2026-11-26).
        """
        client = self._client("cloudformation", stack.lookup_role_arn)
        changes: list[Mapping[str, Any]] = []
        token: dict[str, str] = {}
        try:
            while True:
                page = client.describe_change_set(StackName=stack.name, ChangeSetName=change_set, **token)
                if page["ExecutionStatus"] != "AVAILABLE":
                    return None
                changes += page["Changes"]
                if not page.get("NextToken"):
                    return changes
                token = {"NextToken": page["NextToken"]}
        except ClientError as error:
            if error.response["Error"]["Code"] in ("ChangeSetNotFound", "ChangeSetNotFoundException"):
                return None
            raise EndpointError(f"the change set of {stack.name} cannot be read ({_first_line(error)})") from error

    def delete_change_set(self, stack: SynthesizedStack, change_set: str) -> None:
        """Delete a change set, so that nobody executes it."""
        self._client("cloudformation", stack.deploy_role_arn).delete_change_set(
            StackName=stack.name, ChangeSetName=change_set
        )

    def protect(self, stack: SynthesizedStack, allowed: Collection[str] | None) -> str | None:
        """Set a stack policy under which no update by any tool can remove or replace resources that hold data.

        AWS: https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/protect-stack-resources.html (read
        2026-11-26).

        Args:
            stack: a deployed stack.
            allowed: logical ids that may be removed or replaced nevertheless; None is all.

        Returns:
            The reason why the policy could not be set; None if it was set, or if nothing in the stack holds data.
        """
        types_with_data = {resource["Type"] for resource in stack.template["Resources"].values()} & {*_PROTECTED}
        if not types_with_data and allowed is not None and not allowed:
            return None
        try:
            self._caller.client("cloudformation", config=_CONFIG).set_stack_policy(
                StackName=stack.name, StackPolicyBody=json.dumps(stack_policy(allowed))
            )
        except (BotoCoreError, ClientError) as error:
            return _first_line(error)
        return None

    def _client(self, service: str, role_arn: str | None) -> Any:
        """Return a client of a service with the credentials of a role; None is the caller's own."""
        if role_arn not in self._sessions:
            self._sessions[role_arn] = self._assume(str(role_arn))
        return self._sessions[role_arn].client(service, config=_CONFIG)

    def _assume(self, role_arn: str) -> boto3.Session:
        """Return a session with the credentials of a role, or the caller's own if the caller may not take the role."""
        places = {"Partition": "aws", "AccountId": self._account, "Region": self._region}
        for name, value in places.items():
            role_arn = role_arn.replace(f"${{AWS::{name}}}", value)
        try:
            credentials = self._caller.client("sts", config=_CONFIG).assume_role(
                RoleArn=role_arn, RoleSessionName="sluice-env-deploy"
            )["Credentials"]
        except (BotoCoreError, ClientError):
            return self._caller  # whether the caller may do it, the call itself finds out
        return boto3.Session(
            aws_access_key_id=credentials["AccessKeyId"],
            aws_secret_access_key=credentials["SecretAccessKey"],
            aws_session_token=credentials["SessionToken"],
            region_name=self._region,
        )


def stack_policy(allowed: Collection[str] | None) -> dict[str, Any]:
    """Return a stack policy that allows all changes, except to replace or remove a resource that holds data.

    Args:
        allowed: logical ids of resources that may be replaced or removed nevertheless; None allows all of them. A stack
            keeps its policy until another one is set.
    """
    statements: list[dict[str, Any]] = [
        {"Effect": "Allow", "Action": "Update:*", "Principal": "*", "Resource": "*"},
        {
            "Effect": "Deny",
            "Action": ["Update:Replace", "Update:Delete"],
            "Principal": "*",
            "Resource": "*",
            "Condition": {"StringEquals": {"ResourceType": list(_PROTECTED)}},
        },
    ]
    if allowed is None:
        del statements[1]
    elif named := [f"LogicalResourceId/{id_}" for id_ in allowed]:
        # A denial wins over a permission, so the denial leaves out the resources that are allowed.
        del statements[1]["Resource"]
        statements[1]["NotResource"] = named
    return {"Statement": statements}


def replacing_properties(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the properties of a resource schema for which CloudFormation replaces it, always or at times.

    AWS: https://docs.aws.amazon.com/cloudformation-cli/latest/userguide/resource-type-schema.html (read 2026-11-26).
    """
    paths = [*schema.get("createOnlyProperties", ()), *schema.get("conditionalCreateOnlyProperties", ())]
    return frozenset(path.removeprefix("/properties/").partition("/")[0] for path in paths)


def _is_deployed(client: Any, name: str) -> bool:
    """Return whether a stack has a template. CloudFormation returns ValidationError for a stack that does not exist.

    AWS: https://docs.aws.amazon.com/AWSCloudFormation/latest/APIReference/API_DescribeStacks.html (read 2026-11-26).
    """
    try:
        stack = client.describe_stacks(StackName=name)["Stacks"][0]
    except ClientError as error:
        if error.response["Error"]["Code"] == "ValidationError":
            return False
        raise
    return stack["StackStatus"] not in _NEVER_DEPLOYED


def _unreadable(stack: SynthesizedStack, error: Exception) -> ConfigError:
    """Return the refusal of a deployment that cannot be judged because a stack's template cannot be read."""
    return ConfigError(
        f"the deployed template of {stack.name} cannot be read ({_first_line(error)}), so nobody knows what a"
        f" deployment would destroy; allow cloudformation:GetTemplate to {stack.lookup_role_arn or 'your role'}"
    )


def _first_line(error: Exception) -> str:
    """Return the first line of an error's text, shortened for a message of one line."""
    return str(error).splitlines()[0][:200]
