"""What is deployed where. Stacks, names, alarms, load test and contracts follow from it.

Every field: python -c "import sluice.declaration as d; help(d.Environment), help(d.Consumer)"
"""

from sluice.declaration import Consumer, Environment, NewNetwork, Removal

APPLICATION = "project-name"  # begins the name of all that is deployed, so that projects can share an account

INVOICES = Consumer(name="invoices", handlers="project_module.handlers")

ENVIRONMENTS = (
    Environment(
        name="local",
        application=APPLICATION,
        account="000000000000",  # LocalStack's
        removal=Removal.DESTROY,
        network=NewNetwork(restrict_default_security_group=False),
        consumers=(INVOICES,),
    ),
    # Before its first deployment: push the image (Dockerfile), and give it database=Database(secret_arn=…), relay=True.
    Environment(
        name="dev",
        application=APPLICATION,
        removal=Removal.DESTROY,
        image="project-name:1",
        consumers=(INVOICES,),
    ),
)
