"""Deploy an environment: judge the changes of all stacks, then change one stack after the other.

The cdk command synthesizes, publishes images and calls CloudFormation. This module decides whether it may: each change
set is read and judged before it is executed.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sluice.declaration import Environment, Removal, naming
from sluice.declaration.loading import VARIABLE
from sluice.deployment.account import DeployedAccount
from sluice.deployment.assembly import SynthesizedStack, read_assembly
from sluice.deployment.guard import GuardFinding, Template, bundled_schemas, judge, judge_change_set
from sluice.errors import ConfigError, EndpointError
from sluice.terminal import output

_CHANGE_SET = "sluice-env-deploy"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackDeployment:
    """The deployment of one environment by the cdk command.

    Args:
        environment: the declared environment, whose account is known.
        declaration: the file with the declaration.
        approval: cdk's option: `never`, or `broadening` where somebody can be asked about wider permissions.
    """

    environment: Environment
    declaration: Path | None
    approval: str = field(default_factory=lambda: "broadening" if sys.stdin.isatty() else "never")

    def synthesize(self, folder: Path) -> list[SynthesizedStack]:
        """Write the environment's templates to a folder, and return its stacks."""
        environment = self.environment
        stage = naming.stage_name(environment)
        account = () if environment.account is None else ("-c", f"account={environment.account}")
        self._cdk("synth", "--quiet", "-o", str(folder), "-c", f"env={environment.name}", *account, f"{stage}/*")
        return read_assembly(folder, stage)

    def check(self, stacks: Sequence[SynthesizedStack], account: DeployedAccount) -> list[GuardFinding]:
        """Return a finding for each resource in an account that a deployment would harm."""
        named = {stack.name: stack for stack in stacks}
        before = {stack.name: found for stack in stacks if (found := account.template(stack)) is not None}
        findings = judge(
            before,
            {stack.name: stack.template for stack in stacks},
            account.schemas(),
            importers=lambda name, export: account.importers(named[name], export),
        )
        return account.with_deployed_names(findings, named)

    def run(self, account: DeployedAccount, *, allowed: Collection[str]) -> None:
        """Deploy the environment.

        Args:
            account: the account that is deployed to.
            allowed: logical ids of the resources that may be harmed.

        Raises:
            ConfigError: another resource would be harmed; its stack and all later stacks are unchanged.
            EndpointError: the cdk command failed.
        """
        with tempfile.TemporaryDirectory(prefix="sluice-env-deploy-") as directory:
            folder = Path(directory)
            stacks = self.synthesize(folder)
            ids = {id_ for stack in stacks for id_ in stack.template["Resources"]}
            require_allowed(self.check(stacks, account), allowed, later=ids)
            for stack in stacks:
                self._change(stack, folder, account, allowed)

    def _change(
        self, stack: SynthesizedStack, folder: Path, account: DeployedAccount, allowed: Collection[str]
    ) -> None:
        """Deploy one stack: prepare a change set, judge it, and execute it.

        A retained stack gets its policy again afterwards; during the change the policy allows what the caller has
        allowed.
        """
        deployed = account.template(stack)
        cdk = ("deploy", stack.path, "--app", str(folder), "--exclusively", "--progress", "events")
        change_set = ("--change-set-name", _CHANGE_SET, "--require-approval")
        self._cdk(*cdk, "--method", "prepare-change-set", *change_set, self.approval)
        changes = account.changes(stack, _CHANGE_SET)
        if changes is None:
            return
        if deployed is not None:
            self._judge_change_set(stack, changes, deployed, account, allowed)
        is_retained = self.environment.removal is Removal.RETAIN
        allowed_here = [id_ for id_ in allowed if id_ in (deployed or {}).get("Resources", {})]
        if allowed_here and is_retained:
            self._protect(stack, account, allowed_here)
        elif allowed_here:  # the stack may have been retained before: its policy would deny the change
            account.protect(stack, None)
        try:
            self._cdk(*cdk, "--method", "execute-change-set", *change_set, "never")
        finally:
            if is_retained:
                self._protect(stack, account, ())

    def _judge_change_set(
        self,
        stack: SynthesizedStack,
        changes: list[Mapping[str, Any]],
        deployed: Template,
        account: DeployedAccount,
        allowed: Collection[str],
    ) -> None:
        """Refuse a change set that would harm more than is allowed, and delete it, so that nobody executes it."""
        try:
            require_allowed(judge_change_set(stack.name, changes, deployed), allowed, later=allowed)
        except ConfigError:
            account.delete_change_set(stack, _CHANGE_SET)
            raise

    def _protect(self, stack: SynthesizedStack, account: DeployedAccount, allowed: Collection[str]) -> None:
        """Set the stack's policy, and warn if it cannot be set."""
        failure = account.protect(stack, allowed)
        if failure is not None:
            output.line(
                f"{stack.name}: no stack policy was set ({failure}); a plain `cdk deploy` may replace what it holds",
                is_error=True,
            )

    def _cdk(self, *arguments: str) -> None:
        """Run the cdk command with the declaration's file in its environment; its output goes to the terminal."""
        command = ["cdk", *arguments, "--no-notices"]
        variables = dict(os.environ)
        if self.declaration is not None:
            variables[VARIABLE] = str(self.declaration)
        try:
            ended = subprocess.run(command, env=variables, check=False)
        except FileNotFoundError as error:
            raise EndpointError(
                "there is no cdk on PATH; run this through make, or put node_modules/.bin there"
            ) from error
        if ended.returncode:
            raise EndpointError(f"cdk {arguments[0]} ended with {ended.returncode}; what it printed above says why")


def compare(before: Sequence[SynthesizedStack], after: Sequence[SynthesizedStack]) -> list[GuardFinding]:
    """Return a finding for each resource that a change between two synthesized environments would harm."""
    was, now = ({stack.name: stack.template for stack in stacks} for stacks in (before, after))
    return judge(was, now, bundled_schemas())


def deploy_stacks(environment: Environment, declaration: Path | None, *, allowed: Collection[str]) -> None:
    """Deploy an environment whose account is known.

    Args:
        environment: the declared environment.
        declaration: the file with the declaration.
        allowed: logical ids of the resources that may be harmed.
    """
    account = DeployedAccount(account=str(environment.account), region=environment.region)
    StackDeployment(environment=environment, declaration=declaration).run(account, allowed=allowed)


def require_allowed(
    findings: Collection[GuardFinding], allowed: Collection[str], *, later: Collection[str] = ()
) -> None:
    """Refuse findings that are not allowed, and names that are allowed although no finding has them.

    Refused findings are printed to stderr.

    Args:
        findings: the guard's findings.
        allowed: logical ids of the resources that may be harmed.
        later: logical ids that a change set may still name; any other that no finding has is misspelt.

    Raises:
        ConfigError: something would be harmed that is not allowed; the message has the options that allow it.
    """
    refused = [found for found in findings if found.logical_id not in allowed]
    for found in refused:
        output.line(str(found), is_error=True)
    if refused:
        options = " ".join(f"--allow {id_}" for id_ in dict.fromkeys(found.logical_id for found in refused))
        raise ConfigError(
            f"{len(refused)} of the resources in {', '.join(dict.fromkeys(found.stack for found in refused))} would"
            " lose what is named above, and were left as they are; declare them as they were or, if it is meant, add"
            f" {options}"
        )
    unknown = sorted({*allowed} - {found.logical_id for found in findings} - {*later})
    if unknown:
        raise ConfigError(
            f"--allow is {', '.join(unknown)}, allowed is the logical id of a resource that this deployment would harm:"
            f" {', '.join(found.logical_id for found in findings) or 'there is none'}; leave it out"
        )
