"""The options that relay and worker share."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from sluice.cli.options import ProcessOptions, process_options


@click.command()
@process_options("taken")
def show_client(process: ProcessOptions) -> None:
    """Print which client is chosen."""
    click.echo(process.client)


@pytest.mark.parametrize(
    ("arguments", "variable", "client"),
    [
        ([], None, "light"),
        (["--client", "boto3"], None, "boto3"),
        ([], "boto3", "boto3"),
        (["--client", "light"], "boto3", "light"),
        (["--record", "DIR"], None, "boto3"),
    ],
)
def test_client_is_light_unless_boto3_is_named_or_calls_are_recorded(
    arguments: list[str], variable: str | None, client: str, tmp_path: Path
) -> None:
    """The light client starts faster; the recorder is a hook of boto3. An option takes precedence over the variable."""
    arguments = [str(tmp_path) if argument == "DIR" else argument for argument in arguments]

    ended = CliRunner().invoke(show_client, arguments, env={"SLUICE_CLIENT": variable}, catch_exceptions=False)

    assert ended.output == f"{client}\n"
