"""`sluice`: its commands. Each is a module's, or a group's, and is imported when it is named.

The module of a command has its options and its help, which need nothing but click. What the command itself needs is
imported when it runs: `--help` and wrong usage load neither SQLAlchemy nor boto3.
"""

import click

from sluice.terminal.groups import Group, Lazy

COMMANDS = {
    "alive": Lazy("sluice.cli.alive:alive", "Check that a worker or relay makes progress."),
    "check": Lazy(
        "spark_load.cli.check:check", "Judge a recorded history: nothing lost, doubled, reordered.", "checker"
    ),
    "compare": Lazy("spark_load.cli.report:compare", "Compare two judged runs.", "checker"),
    "conformance": Lazy("contract_tests.command:conformance", "Test every promise on every emulator.", "contracts"),
    "contracts": Lazy("contract_tests.command:contracts", "Verify every promise against an endpoint.", "contracts"),
    "delays": Lazy("sluice.cli.delays:delays", "Show where the time went in a recorded history.", "recorder"),
    "dlq": Lazy("sluice.cli.dlq.commands:dlq", "Look at dead letters, mend them, bring them back."),
    "env": Lazy("sluice.cli.env:env", "List the declared environments, their names, and what they cost.", "rehearse"),
    "inbox": Lazy("sluice.cli.inbox:inbox", "Look after a consumer's inbox."),
    "init": Lazy("sluice.cli.init:init", "Write a new project: a consumer, its tests, its stacks."),
    "load": Lazy("spark_load.cli.commands:load", "Load-test a deployed environment.", "load"),
    "outbox": Lazy("sluice.cli.outbox:outbox", "Look at an outbox, and act on its messages."),
    "record": Lazy("sluice.cli.record:record", "Run a program, and record its SNS and SQS calls.", "recorder"),
    "rehearse": Lazy("sluice.rehearse.command:rehearse", "Try the deployed scaling on a day of traffic.", "rehearse"),
    "relay": Lazy("sluice.cli.services.commands:relay", "Publish what is committed to the outbox."),
    "report": Lazy("spark_load.cli.report:report", "Draw the page of a judged run again.", "checker"),
    "schema": Lazy("sluice.cli.schema:schema", "Create or upgrade the tables of outbox and inbox."),
    "worker": Lazy("sluice.cli.services.commands:worker", "Hand a consumer's messages to its handlers."),
}


@click.group(cls=Group, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sluice-fifo", prog_name="sluice")
def cli() -> None:
    """Ordered fan-out messaging on AWS: run it, look after it, prove it, load-test it.

    \b
    Exit codes: 0 done, 1 partly done (check, load: invalid), 2 could not (unknown),
    3 wrong usage or refused, 99 (check, load) valid with a threshold crossed.
    """
