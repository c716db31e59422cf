"""The environments and what is deployed in each. Stacks, names, alarms, load test and contracts follow from them.

Every field: python -c "import sluice.declaration as d; help(d.Environment), help(d.Consumer), help(d.Lambda)"
"""

from dataclasses import replace

from sluice.declaration import Architecture, Consumer, Environment, Lambda, NewDatabase, NewNetwork, Removal

APPLICATION = "project-name"  # begins the name of all that is deployed, so that projects can share an account

TABLES = "project_module.tables"  # makes the tables of the handlers, in each task of the relay before it starts

# Its types are what it is for. A new type for another consumer passes it over, and a type of its own without a handler
# goes to its DLQ. A filter_policy would keep the others from its queue, and then a lost event is no missing number.
INVOICES = Consumer(
    name="invoices",
    handlers="project_module.handlers",
    types=("order.placed",),
    visibility_timeout_seconds=60,  # six timeouts of its function, at least
    # It runs the image of Dockerfile; with package="build/function" what `make package` builds.
    runtime=Lambda(timeout_seconds=10, maximum_concurrency=10),
)

ENVIRONMENTS = (
    # LocalStack runs no function without Docker: here a worker handles the same queue.
    Environment(
        name="local",
        application=APPLICATION,
        account="000000000000",  # LocalStack's
        removal=Removal.DESTROY,
        image="project-name:local",  # named only: LocalStack runs no task
        network=NewNetwork(restrict_default_security_group=False),
        database=NewDatabase(),
        migrate=TABLES,
        consumers=(replace(INVOICES, runtime=None),),
    ),
    # The image of the function and of the relay's tasks is built of Dockerfile when it is deployed.
    Environment(
        name="dev",
        application=APPLICATION,
        removal=Removal.DESTROY,
        architecture=Architecture.ARM64,
        database=NewDatabase(max_acus=2),  # Aurora PostgreSQL, for the inbox and the outbox
        migrate=TABLES,
        consumers=(INVOICES,),
    ),
)
