"""A shop whose billing parks a group behind a dead number."""

from sluice.declaration import Consumer, Environment, Gaps, Poison

ENVIRONMENTS = (
    Environment(
        name="local",
        account="000000000000",
        consumers=(
            Consumer(name="billing", handlers="examples.services.billing", poison=Poison.PARK, gaps=Gaps.HALT),
            Consumer(name="shipping", handlers="examples.services.shipping"),
        ),
    ),
)
