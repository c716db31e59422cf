"""The tables of the messages that hold several events, and of the switch for them."""

from django.db import migrations

from sluice.django.operations import UpgradeTables


class Migration(migrations.Migration):
    """Brings the tables to this version; the models are in the first migration, which is made of the tables."""

    dependencies = (("sluice", "0004_bundles"),)
    operations = (UpgradeTables(outbox=5, inbox=6),)
