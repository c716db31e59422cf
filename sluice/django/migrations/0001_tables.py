"""The tables of outbox and inbox."""

from django.db import migrations

from sluice.django.models import TABLES, fields, options
from sluice.django.operations import UpgradeTables


class Migration(migrations.Migration):
    """Creates the tables, or brings those that `sluice schema apply` created to this version."""

    initial = True
    dependencies = ()
    operations = (
        UpgradeTables(outbox=3, inbox=3),
        *(migrations.CreateModel(name, fields(table), options(name)) for name, table in TABLES.items()),
    )
