"""`sluice env deploy`: deploy a declared environment; refuse a change that loses data, unless its resource is named."""

import tempfile
from dataclasses import replace
from pathlib import Path

import click

from sluice.declaration import load_declaration, naming
from sluice.terminal import output
from sluice.terminal.options import declaration_option


@click.command(short_help="Deploy ENV; refuse what would lose data.")
@click.argument("name", metavar="ENV")
@click.option("--allow", "allowed", multiple=True, metavar="LOGICAL_ID", help="May be lost; repeat it for others.")
@click.option("--check", "only_checks", is_flag=True, help="Judge the change, and change nothing.")
@click.option(
    "--against",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="FOLDER",
    help="Judge it against an output folder of cdk synth; needs no account, and changes nothing.",
)
@declaration_option
def deploy(
    name: str, allowed: tuple[str, ...], only_checks: bool, against: Path | None, declaration: Path | None
) -> None:
    """Deploy ENV with the cdk command on PATH, after everything that it would destroy was looked for.

    All stacks are compared with what is deployed before the first is changed, and each change set is read before it is
    executed. A queue, topic, subscription, key, cluster or database that would be removed or replaced, an older engine,
    protection that goes off together with retention, and a shorter retention are refused, by name and with what would
    be lost. Whoever means it allows it by its logical id.

    \b
      sluice env deploy dev
      sluice env deploy prod --check
      sluice env deploy prod --allow FanoutConsumerbillingQueue4D0E8A3C
      sluice env deploy prod --against cdk.out.before
    Exit codes: 0 done, 2 could not, 3 refused.
    """
    from sluice.deployment.account import DeployedAccount
    from sluice.deployment.assembly import read_assembly
    from sluice.deployment.confirmation import caller, require_confirmation
    from sluice.deployment.deploy import StackDeployment, compare, require_allowed
    from sluice.deployment.deploy import deploy_stacks as deploy_environment

    declared = load_declaration(declaration)
    environment = declared.environment(name)
    if against is None:
        environment = replace(environment, account=caller(environment))
        if not only_checks:
            require_confirmation("deploy", environment)
            deploy_environment(environment, declared.path, allowed=allowed)
            return
    deployment = StackDeployment(environment=environment, declaration=declared.path)
    with tempfile.TemporaryDirectory() as folder:
        stacks = deployment.synthesize(Path(folder))
        if against is not None:
            findings = compare(read_assembly(against, naming.stage_name(environment)), stacks)
        else:
            findings = deployment.check(
                stacks, DeployedAccount(account=str(environment.account), region=environment.region)
            )
    require_allowed(findings, allowed)
    count = f"{len(findings)} resources would lose what they hold, as allowed" if findings else "nothing would be lost"
    output.line(f"{name}: {count}")
