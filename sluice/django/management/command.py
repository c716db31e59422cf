"""The commands of `manage.py`: those of `sluice`, on a database of the project."""

import argparse
from typing import Any

from django.core.management.base import BaseCommand, handle_default_options
from django.db import DEFAULT_DB_ALIAS

from sluice.cli.main import main, run
from sluice.django.databases import worker_engine


class SluiceCommand(BaseCommand):
    """Runs a command of `sluice` with its options and exit codes; `--database ALIAS` replaces `--dsn`.

    https://docs.djangoproject.com/en/5.2/howto/custom-management-commands/ (read 2026-11-27)
    """

    command = ""
    requires_system_checks = ()

    def create_parser(self, prog_name: str, subcommand: str, **more: Any) -> Any:
        """Return a parser of Django's options; it leaves the others in `args`, for the command of `sluice`."""
        parser = super().create_parser(prog_name, subcommand, **{"add_help": False, "allow_abbrev": False, **more})
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS)

        def parse_args(args: Any = None, namespace: Any = None) -> argparse.Namespace:
            options, rest = parser.parse_known_args(args, namespace)
            options.args = rest
            return options  # type: ignore[no-any-return]

        parser.parse_args = parse_args
        return parser

    def run_from_argv(self, argv: list[str]) -> None:
        """Run the command, and end the process with the exit code of `sluice`."""
        options = self.create_parser(argv[0], argv[1]).parse_args(argv[2:])
        handle_default_options(options)
        run([self.command, *options.args], database=lambda: worker_engine(options.database))

    def handle(self, *args: str, **options: Any) -> None:
        """Run the command for Django's `call_command`, which does not end the process."""
        main([self.command, *args], database=lambda: worker_engine(options["database"]))
