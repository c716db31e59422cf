"""`sluice simulator serve`: SQS and SNS on the loopback, without LocalStack, Docker or an account."""

import os
import signal
import sys
from typing import NoReturn

import click

from sluice.terminal import output
from sluice.terminal.groups import CommandGroup
from sluice.terminal.programs import require_program, run_program
from sluice.terminal.values import Whole


@click.group(cls=CommandGroup)
def simulator() -> None:
    """Run the model of SQS FIFO and SNS FIFO that tests use, as a server.

    It keeps every promise of `sluice contracts`; what it holds is forgotten when it ends.
    """


@simulator.command()
@click.option(
    "--port",
    type=Whole(0, 65_535),
    default=4566,
    show_default=True,
    metavar="PORT",
    help="On 127.0.0.1; 0 takes a free one.",
)
def serve(port: int) -> None:
    """Answer SNS and SQS calls on the loopback, in real time, until Ctrl-C or SIGTERM.

    \b
    Any SDK may call it, with any credentials. In a second terminal:
      export AWS_ENDPOINT_URL=http://127.0.0.1:4566 AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test
      sluice topology apply --env local
    """
    from sluice.simulator.server import SimulatorServer

    ends = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # new threads inherit the mask, so that `sigwait` below gets them
    with SimulatorServer(port=port) as server:
        output.line(
            f"SQS and SNS at {server.url}, in memory; set AWS_ENDPOINT_URL to it; Ctrl-C ends it", is_error=True
        )
        signal.sigwait(ends)


@simulator.command()
@click.argument("command", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def run(command: tuple[str, ...]) -> NoReturn:
    """Run a program whose SNS and SQS calls go to a simulator of its own, and end with its exit code.

    \b
    It finds the simulator in AWS_ENDPOINT_URL, and sees no profile and no key of an account.
      sluice simulator run -- sh -c 'sluice topology apply && python -m shop.producer'
    """
    from sluice.simulator.server import SimulatorServer

    require_program(command)
    with SimulatorServer(port=0) as server:
        code = run_program(command, simulated_variables(server.url))
    sys.exit(code)


def simulated_variables(url: str) -> dict[str, str]:
    """Return this process's variables, with AWS's replaced so that every client of AWS calls the simulator at `url`."""
    other_variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("AWS_") or name in ("AWS_REGION", "AWS_DEFAULT_REGION")
    }
    return {
        "AWS_DEFAULT_REGION": "us-east-1",
        **other_variables,
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
