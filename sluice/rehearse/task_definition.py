"""What a template tells of a service's tasks: which queue they receive from, what they may do, and their size."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from sluice.rehearse.cloudformation import Properties, Resource, Stacks, name_in
from sluice.rehearse.policies import QueueSettings

_QUEUE, _ROLE = "AWS::SQS::Queue", "AWS::IAM::Role"
_QUEUE_MARKS = ("://sqs.", "://queue.", ":sqs:")
"""What a queue's URL or ARN has in it."""
_UNITS = {"vcpu": 1024, "gb": 1024}


@dataclass(frozen=True, slots=True)
class TaskDefinition:
    """The tasks of one service.

    Args:
        stacks: all resources.
        task: its task definition; None where the templates have none.
        near: a resource of the template to look into first.
    """

    stacks: Stacks
    task: Resource | None
    near: Resource

    def queue(self, watched: Sequence[str]) -> QueueSettings | None:
        """Return the queue the tasks receive from; None where it cannot be told.

        By their role, else by the containers' environment, else by what the policies watch. Where there are several,
        the others decide.

        Args:
            watched: the names of the queues whose metrics the policies watch.
        """
        by_environment = self._by_environment()
        names = self._by_role() or by_environment or list(dict.fromkeys(watched))
        for others in (by_environment, watched):
            names = [name for name in names if name in others] or names
        return self._settings(names[0]) if len(names) == 1 else None

    def is_protected(self) -> bool:
        """Whether a task may protect itself from scale-in."""
        return any(_allows(statement, "ecs:updatetaskprotection") for statement in self._statements())

    def sizes(self) -> dict[str, int]:
        """Return stop timeout, CPU and memory by their names in `ScaledService`; without those that cannot be told."""
        if self.task is None:
            return {}
        properties = self.task.properties
        containers = properties.parts("ContainerDefinitions")
        essential = [container for container in containers if container.is_true("Essential", default=True)]
        timeouts = [container.integer("StopTimeout", default=30) for container in essential]
        sizes = {
            "stop_timeout_seconds": max(timeouts, default=30),
            "cpu_units": _size(properties, "Cpu") or sum(_size(container, "Cpu") for container in containers),
            "memory_mib": _size(properties, "Memory") or sum(_size(container, "Memory") for container in containers),
        }
        return {name: size for name, size in sizes.items() if size}

    def _statements(self) -> Iterator[Mapping[str, Any]]:
        """Yield every statement of the policies of the tasks' role that allows something."""
        reference = None if self.task is None else self.task.properties.get("TaskRoleArn")
        if reference is None:
            return
        role = self.stacks.find(_ROLE, reference, self.near)
        inline = [] if role is None else [policy.part("PolicyDocument") for policy in role.properties.parts("Policies")]
        for document in (*inline, *self._attached(name_in(str(reference)) if role is None else role.name, role)):
            for statement in document.items("Statement"):
                if isinstance(statement, Mapping) and statement.get("Effect") == "Allow":
                    yield statement

    def _attached(self, name: str, role: Resource | None) -> Iterator[Properties]:
        """Yield the documents of the policies that are resources of their own."""
        by_role = set() if role is None else {name_in(str(arn)) for arn in role.properties.items("ManagedPolicyArns")}
        for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy", "AWS::IAM::RolePolicy"):
            for policy in self.stacks.of_kind(kind):
                properties = policy.properties
                roles = {name_in(str(each)) for each in (*properties.items("Roles"), *properties.items("RoleName"))}
                if name in roles or policy.name in by_role:
                    yield properties.part("PolicyDocument")

    def _by_role(self) -> list[str]:
        """Return the names of the queues the role may receive from; a pattern stands for the templates' queues."""
        known = [queue.name for queue in self.stacks.of_kind(_QUEUE)]
        found: dict[str, None] = {}
        for statement in self._statements():
            if _allows(statement, "sqs:receivemessage"):
                for resource in _items(statement.get("Resource")):
                    pattern = name_in(str(resource))
                    is_pattern = "*" in pattern or "?" in pattern
                    names = [name for name in known if fnmatchcase(name, pattern)] if is_pattern else [pattern]
                    found |= dict.fromkeys(names)
        return list(found)

    def _by_environment(self) -> list[str]:
        """Return the names of the queues in the containers' environment: of the templates', or in a URL or an ARN."""
        known = {queue.name for queue in self.stacks.of_kind(_QUEUE)}
        containers = [] if self.task is None else self.task.properties.parts("ContainerDefinitions")
        values = [str(entry.get("Value")) for container in containers for entry in container.parts("Environment")]
        marked = (value for value in values if name_in(value) in known or any(mark in value for mark in _QUEUE_MARKS))
        return list(dict.fromkeys(map(name_in, marked)))

    def _settings(self, name: str) -> QueueSettings:
        """Return the queue's settings; of one that no template has, SQS's defaults."""
        queue = self.stacks.find(_QUEUE, name, self.near)
        if queue is None:
            return QueueSettings(name=name, is_fifo=name.endswith(".fifo"))
        properties = queue.properties
        return QueueSettings(
            name=queue.name,
            is_fifo=properties.is_true("FifoQueue"),
            visibility_timeout_seconds=properties.integer("VisibilityTimeout", default=30),
            max_receive_count=properties.part("RedrivePolicy").integer("maxReceiveCount", default=0) or None,
        )


def _allows(statement: Mapping[str, Any], action: str) -> bool:
    return any(fnmatchcase(action, str(pattern).lower()) for pattern in _items(statement.get("Action")))


def _items(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _size(properties: Properties, name: str) -> int:
    """Return CPU units or MiB, which may be written as `.5 vCPU` or `2 GB`; 0 where there are none."""
    written = str(properties.get(name) or 0).lower().replace(" ", "")
    unit = next((unit for unit in _UNITS if written.endswith(unit)), "")
    try:
        return int(float(written.removesuffix(unit)) * _UNITS.get(unit, 1))
    except (ValueError, OverflowError) as error:
        raise properties.refused(name, "a number, or one of vCPU or GB, or a parameter with a default") from error
