"""`manage.py sluice_worker` of the project, with the arguments of `sluice worker`: `--dsn` names the database."""

import sys

from tests.chaos.system import django_project


def main() -> None:
    """Run the command."""
    from django.core.management import execute_from_command_line  # noqa: PLC0415 (once it is set up)

    django_project.set_up(django_project.take_dsn(sys.argv))
    command, *arguments = sys.argv[1:]
    execute_from_command_line(["manage.py", f"sluice_{command}", *arguments])


if __name__ == "__main__":
    main()
