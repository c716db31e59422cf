"""The example services, with billing as a Lambda function beside shipping and audit as tasks.

    export SLUICE_DECLARATION=examples/functions/environments.py
    sluice lambda local --consumer billing

Handlers, topic, queues and tables are those of `examples.services`: what runs the handlers is one field.
"""

from sluice.declaration import Consumer, Environment, Lambda, NewDatabase, NewNetwork, Removal

ENVIRONMENTS = (
    Environment(
        name="local",
        application="functions",  # beside the project's own local environment
        account="000000000000",
        removal=Removal.DESTROY,
        image="sluice-worker:local",  # named only: LocalStack runs no task
        network=NewNetwork(restrict_default_security_group=False),  # its Lambda needs Docker in LocalStack
        database=NewDatabase(),
        migrate=("python", "-m", "examples.services", "init"),
        consumers=(
            Consumer(
                name="billing",
                handlers="examples.services.billing",
                processing_seconds=0.5,
                visibility_timeout_seconds=60,  # six timeouts of its function, at least
                runtime=Lambda(
                    timeout_seconds=10,
                    batch_size=10,
                    maximum_concurrency=10,
                    package="build/function",
                ),
            ),
            Consumer(name="shipping", handlers="examples.services.shipping"),
            Consumer(name="audit", handlers="examples.services.audit"),
        ),
    ),
)
