"""The environments and what is deployed in each. Stacks, names, alarms, load test and contracts follow from them.

Every field: python -c "import sluice.declaration as d; help(d.Environment), help(d.Consumer)"
"""

from sluice.declaration import Consumer, Environment, NewDatabase, NewNetwork, Removal

APPLICATION = "project-name"  # begins the name of all that is deployed, so that projects can share an account

TABLES = "project_module.tables"  # makes the tables of the handlers, in each task before it starts

# Its types are what it is for. A new type for another consumer passes it over, and a type of its own without a handler
# goes to its DLQ. A filter_policy would keep the others from its queue, and then a lost event is no missing number.
INVOICES = Consumer(name="invoices", handlers="project_module.handlers", types=("order.placed",))

ENVIRONMENTS = (
    Environment(
        name="local",
        application=APPLICATION,
        account="000000000000",  # LocalStack's
        removal=Removal.DESTROY,
        image="project-name:local",  # named only: LocalStack runs no task
        network=NewNetwork(restrict_default_security_group=False),
        database=NewDatabase(),
        migrate=TABLES,
        consumers=(INVOICES,),
    ),
    # Its image is built of Dockerfile when it is deployed.
    Environment(
        name="dev",
        application=APPLICATION,
        removal=Removal.DESTROY,
        database=NewDatabase(max_acus=2),  # Aurora PostgreSQL, for the inbox and the outbox
        migrate=TABLES,
        consumers=(INVOICES,),
    ),
)
