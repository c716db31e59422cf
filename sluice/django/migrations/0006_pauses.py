"""The table of consumers that are paused."""

from django.db import migrations

from sluice.django.operations import UpgradeTables


class Migration(migrations.Migration):
    """Brings the tables to this version; the model is in the first migration, which is made of the tables."""

    dependencies = (("sluice", "0005_outbox_bundles"),)
    operations = (UpgradeTables(outbox=5, inbox=7),)
