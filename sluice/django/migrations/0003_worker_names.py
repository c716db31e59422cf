"""The columns that say when, at which attempt and by whom a number was handled, and since when a relay leads."""

from django.db import migrations

from sluice.django.operations import UpgradeTables


class Migration(migrations.Migration):
    """Brings the tables to this version; the model is in the first migration, which is made of the tables."""

    dependencies = (("sluice", "0002_attempts"),)
    operations = (UpgradeTables(outbox=4, inbox=5),)
