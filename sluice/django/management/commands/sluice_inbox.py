"""`manage.py sluice_inbox`."""

from sluice.django.management.command import SluiceCommand


class Command(SluiceCommand):
    """`sluice inbox` on a database of the project."""

    help = "Look at a consumer's groups, pause the consumer and resume it."
    command = "inbox"
