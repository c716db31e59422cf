"""`manage.py sluice_dlq`."""

from sluice.django.management.command import SluiceCommand


class Command(SluiceCommand):
    """`sluice dlq` on a database of the project."""

    help = "Look at dead letters, mend them, bring them back."
    command = "dlq"
