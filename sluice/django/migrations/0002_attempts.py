"""The table of attempts that the inbox counts, for consumers that Lambda invokes."""

from django.db import migrations

from sluice.django.operations import UpgradeTables


class Migration(migrations.Migration):
    """Brings the tables to this version; the first migration already has models of all present tables."""

    dependencies = (("sluice", "0001_tables"),)
    operations = (UpgradeTables(outbox=3, inbox=4),)
