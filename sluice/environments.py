"""THE DECLARATION: which environments there are, and who consumes what in each. This is the file a user edits.

From a value here come the stacks, every name, the alarms' thresholds, the contract tests' expectations and the load
test's targets. Adding a consumer is one more `Consumer(...)` entry. Every field, with unit, default and effect, is in
docs/architecture/stacks.md; what cannot be right is refused by `sluice/declaration.py`.
"""

from typing import Any

from sluice import limits
from sluice.declaration import Consumer, Encryption, Environment, NewNetwork, Removal
from sluice.errors import ConfigError


def _consumers(**overrides: Any) -> tuple[Consumer, ...]:
    return tuple(
        Consumer(name=name, handlers=f"examples.services.{name}", **overrides)
        for name in ("billing", "shipping", "audit")
    )


def _by_name(*environments: Environment) -> dict[str, Environment]:
    declared = {one.name: one for one in environments}
    if len(declared) < len(environments):
        raise ConfigError(
            f"ENVIRONMENTS is {[one.name for one in environments]}, allowed is each name once;"
            " change it in sluice/environments.py"
        )
    return declared


ENVIRONMENTS = _by_name(
    Environment(
        name="local",
        account="000000000000",
        removal=Removal.DESTROY,
        network=NewNetwork(restrict_default_security_group=False),  # takes a Lambda, and LocalStack's take Docker
        consumers=_consumers(),
    ),
    Environment(
        name="dev",
        removal=Removal.DESTROY,
        log_retention_days=7,
        consumers=_consumers(min_tasks=0, max_tasks=2, acceptable_latency_seconds=1_200),
    ),
    Environment(name="staging", encryption=Encryption.CMK, consumers=_consumers()),
    Environment(
        name="prod",
        encryption=Encryption.CMK,
        archive_days=7,
        log_retention_days=90,
        network=NewNetwork(availability_zones=3),
        consumers=_consumers(message_retention_seconds=limits.MESSAGE_RETENTION_SECONDS_MAX, min_tasks=2, max_tasks=20),
    ),
)


def environment(name: str) -> Environment:
    """Return the declared environment of that name.

    Raises:
        ConfigError: there is none.
    """
    try:
        return ENVIRONMENTS[name]
    except KeyError:
        raise ConfigError(
            f"environment {name!r} is not declared, allowed is one of {', '.join(ENVIRONMENTS)};"
            " declare it in sluice/environments.py"
        ) from None
