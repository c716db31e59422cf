"""What scales the workers of each queue of a run."""

from collections.abc import Mapping
from dataclasses import dataclass

from sluice.declaration import Environment, naming
from sluice.rehearse.model.policies import ScaledService


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedService:
    """A service whose workers are started and stopped as its policy says.

    Args:
        consumer: whose workers they are.
        lanes: messages a worker works on at once.
        service: what scales it.
    """

    consumer: str
    lanes: int
    service: ScaledService


def rehearsed_services(environment: Environment) -> Mapping[str, RehearsedService]:
    """Return what scales the workers of each queue of the environment's first topic, by the queue's name."""
    from sluice.rehearse.declared import service_of  # noqa: PLC0415 (it needs numba, and few runs scale)

    return {
        naming.queue_name(environment, consumer): RehearsedService(
            consumer=consumer.name, lanes=consumer.lanes, service=service_of(environment, consumer)
        )
        for consumer in environment.consumers_of(environment.topics[0])
    }
