"""The table of bundles that come again."""

from django.db import migrations

from sluice.django.operations import UpgradeTables


class Migration(migrations.Migration):
    """Brings the tables to this version; the model is in the first migration, which is made of the tables."""

    dependencies = (("sluice", "0003_worker_names"),)
    operations = (UpgradeTables(outbox=4, inbox=6),)
