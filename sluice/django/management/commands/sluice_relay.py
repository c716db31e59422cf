"""`manage.py sluice_relay`."""

from sluice.django.management.command import SluiceCommand


class Command(SluiceCommand):
    """`sluice relay` on a database of the project."""

    help = "Publish what is committed to the outbox."
    command = "relay"
