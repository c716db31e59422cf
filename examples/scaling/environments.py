"""One slow consumer, which runs no task while there is nothing to do.

    SLUICE_DECLARATION=examples/scaling/environments.py sluice load run scale

Its handler takes two minutes, which are two seconds where the load profile lets a minute of the policy pass in one.
"""

from sluice.declaration import Consumer, Environment, NewDatabase, NewNetwork, Removal

ENVIRONMENTS = (
    Environment(
        name="local",
        application="scaling",  # beside the project's own local environment
        account="000000000000",
        removal=Removal.DESTROY,
        image="sluice-worker:local",  # named only: LocalStack runs no task
        network=NewNetwork(restrict_default_security_group=False),  # its Lambda needs Docker in LocalStack
        database=NewDatabase(),
        consumers=(
            Consumer(
                name="billing",
                handlers="sluice.testing.load.handlers",
                visibility_timeout_seconds=180,
                processing_seconds=120,
                acceptable_latency_seconds=1_200,
                lanes=1,
                min_tasks=0,
                max_tasks=3,
            ),
        ),
    ),
)
