"""`manage.py sluice_worker`."""

from sluice.django.management.command import SluiceCommand


class Command(SluiceCommand):
    """`sluice worker` on a database of the project."""

    help = "Hand a consumer's messages to its handlers."
    command = "worker"
