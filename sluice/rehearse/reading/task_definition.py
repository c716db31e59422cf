"""Read a service's tasks out of a template: the queue they receive from, their permissions, and their size."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from sluice import limits
from sluice.rehearse.model.policies import QueueSettings
from sluice.rehearse.reading.cloudformation import Properties, Stacks, TemplateResource, is_unknown, name_in

_QUEUE, _ROLE = "AWS::SQS::Queue", "AWS::IAM::Role"
_QUEUE_MARKS = ("://sqs.", "://queue.", ":sqs:")
"""Texts that every URL or ARN of a queue contains one of."""
_UNITS = {"vcpu": 1024, "gb": 1024}


@dataclass(frozen=True, slots=True)
class TaskDefinition:
    """The tasks of one service.

    Args:
        stacks: all resources.
        task: the task definition; None if the templates have none.
        near: a resource of the template to search first.
    """

    stacks: Stacks
    task: TemplateResource | None
    near: TemplateResource

    def queues(self, watched: Sequence[str]) -> list[str]:
        """Return the names of the queues that the tasks may receive from; several if the templates do not decide.

        The tasks' role names the queues; if it names none, the containers' environment does, and after that the metrics
        of the policies. If one source names several queues, the later sources choose among these.

        Args:
            watched: the names of the queues whose metrics the policies watch.
        """
        by_environment = self._environment_queues()
        names = self.allowed_queues or by_environment or list(dict.fromkeys(watched))
        for others in (by_environment, watched):
            names = [name for name in names if name in others] or names
        return names

    def is_protected(self) -> bool:
        """Return whether a task may protect itself from scale-in."""
        return any(_allows(statement, "ecs:updatetaskprotection") for statement in self._statements())

    def may_be_protected(self) -> bool:
        """Return whether a policy outside the templates may let a task protect itself from scale-in.

        AWS's managed policies for other services than ECS do not let it.
        """
        if self.task is None:
            return True
        if self.task.properties.get("TaskRoleArn") is None:
            return False
        return any(not _is_of_another_service(arn) for arn in self._unread_policies())

    def can_extend(self) -> bool:
        """Return whether a task may extend a visibility timeout, as far as the templates show.

        The result is False only if it is certain: every policy of the role is in the templates, one of them allows
        receives, and neither these nor the queues' policies allow ChangeMessageVisibility.
        """
        by_role = [*self._statements()]
        by_queue = [
            statement.values
            for policy in self.stacks.of_kind("AWS::SQS::QueuePolicy")
            for statement in policy.properties.part("PolicyDocument").parts("Statement")
            if statement.get("Effect") == "Allow"
        ]
        is_known = any(_allows(each, "sqs:receivemessage") for each in by_role) and not self._unread_policies()
        may_change = any(_allows(each, "sqs:changemessagevisibility") for each in (*by_role, *by_queue))
        return may_change or not is_known

    def _unread_policies(self) -> list[str]:
        """Return the ARNs of the role's managed policies that no template has; the role's ARN if no template has it."""
        reference = None if self.task is None else self.task.properties.get("TaskRoleArn")
        role = self.stacks.find(_ROLE, reference, self.near)
        if role is None:
            return [str(reference)]
        arns = role.properties.items("ManagedPolicyArns")
        return [str(arn) for arn in arns if self.stacks.find("AWS::IAM::ManagedPolicy", arn, role) is None]

    def sizes(self) -> dict[str, Any]:
        """Return stop timeout, CPU and memory by their names in `ScaledService`; an unknown size is None."""
        if self.task is None:
            return {"cpu_units": None, "memory_mib": None}
        properties = self.task.properties
        containers = properties.parts("ContainerDefinitions")
        essential = [container for container in containers if container.is_true("Essential", default=True)]
        timeouts = [container.integer("StopTimeout", default=30) for container in essential]
        return {
            "stop_timeout_seconds": max(timeouts, default=30),
            **{
                field: _total(_size(properties, name), [_size(container, name) for container in containers]) or None
                for field, name in (("cpu_units", "Cpu"), ("memory_mib", "Memory"))
            },
        }

    def _statements(self) -> Iterator[Mapping[str, Any]]:
        """Yield every statement of the policies of the tasks' role that allows something."""
        reference = None if self.task is None else self.task.properties.get("TaskRoleArn")
        if reference is None:
            return
        role = self.stacks.find(_ROLE, reference, self.near)
        inline = [] if role is None else [policy.part("PolicyDocument") for policy in role.properties.parts("Policies")]
        for document in (*inline, *self._attached_policies(str(reference), role)):
            for statement in document.parts("Statement"):
                if statement.get("Effect") == "Allow":
                    yield statement.values

    def _attached_policies(self, reference: str, role: TemplateResource | None) -> Iterator[Properties]:
        """Yield the documents of the role's policies that are resources of their own.

        Args:
            reference: the role as the task definition names it.
            role: the role; None if it is in no template.
        """
        arns = [] if role is None else role.properties.items("ManagedPolicyArns")
        for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy", "AWS::IAM::RolePolicy"):
            by_role = [] if role is None else [self.stacks.find(kind, arn, role) for arn in arns]
            for policy in self.stacks.of_kind(kind):
                roles = (*policy.properties.items("Roles"), *policy.properties.items("RoleName"))
                if any(_is_same_resource(each, policy) for each in by_role) or any(
                    self._is_the_role(each, policy, reference, role) for each in roles
                ):
                    yield policy.properties.part("PolicyDocument")

    def _is_the_role(
        self, named: object, policy: TemplateResource, reference: str, role: TemplateResource | None
    ) -> bool:
        """Return whether a policy names the tasks' role; roles of several templates may have the same name."""
        if role is None:
            return name_in(str(named)) == name_in(reference)
        return _is_same_resource(self.stacks.find(_ROLE, named, policy), role)

    @property
    def known_queues(self) -> tuple[str, ...]:
        """Return the names of the queues that the templates have."""
        return tuple(queue.name for queue in self.stacks.of_kind(_QUEUE))

    @property
    def allowed_queues(self) -> list[str]:
        """Return the names of the queues that the role may receive from.

        A pattern stands for all queues of the templates.
        """
        found: dict[str, None] = {}
        for statement in self._statements():
            if _allows(statement, "sqs:receivemessage"):
                for resource in _as_list(statement.get("Resource")):
                    pattern = name_in(str(resource))
                    is_pattern = "*" in pattern or "?" in pattern
                    names = (
                        [name for name in self.known_queues if fnmatchcase(name, pattern)] if is_pattern else [pattern]
                    )
                    found |= dict.fromkeys(names)
        return list(found)

    def _environment_queues(self) -> list[str]:
        """Return the names of queues in the containers' environment variables.

        A value counts if it names a queue of the templates, or is a URL or an ARN of a queue.
        """
        known = self.known_queues
        containers = [] if self.task is None else self.task.properties.parts("ContainerDefinitions")
        values = [str(entry.get("Value")) for container in containers for entry in container.parts("Environment")]
        marked = (value for value in values if name_in(value) in known or any(mark in value for mark in _QUEUE_MARKS))
        return list(dict.fromkeys(map(name_in, marked)))

    def settings(self, name: str) -> QueueSettings:
        """Return the queue's settings; SQS's defaults for a queue that is in no template."""
        queue = self.stacks.find(_QUEUE, name, self.near)
        if queue is None:
            return QueueSettings(name=name, is_fifo=name.endswith(".fifo"), is_in_template=False)
        properties = queue.properties
        return QueueSettings(
            name=queue.name,
            is_fifo=properties.is_true("FifoQueue"),
            visibility_timeout_seconds=properties.integer("VisibilityTimeout", default=30),
            max_receive_count=properties.part("RedrivePolicy").integer("maxReceiveCount", default=0) or None,
        )


def receives_that_are_no_attempts(queue: QueueSettings | None) -> Iterator[str]:
    """Yield the end of the sentence "not simulated: …" for a queue that has SQS's most receives.

    They are no attempts: who sets them counts attempts elsewhere, as Sluice's workers do where messages are bundles.
    """
    if queue is not None and queue.max_receive_count == limits.MAX_RECEIVE_COUNT_MAX:
        yield (
            f"attempts that are counted elsewhere than by the receives of {queue.name}: its maxReceiveCount is"
            f" {queue.max_receive_count:,}, so here a message that always fails is received as often"
        )


def _allows(statement: Mapping[str, Any], action: str) -> bool:
    """Return whether a policy's statement covers an action; the action is in lower case."""

    def is_among(name: str) -> bool:
        return any(fnmatchcase(action, str(pattern).lower()) for pattern in _as_list(statement.get(name)))

    return is_among("Action") if statement.get("NotAction") is None else not is_among("NotAction")


def _is_of_another_service(arn: str) -> bool:
    """Return whether an ARN is of an AWS managed policy that is neither for ECS nor for administrators."""
    words = ("ECS", "ContainerService", "Administrator", "PowerUser")
    return ":iam::aws:policy/" in arn and not any(word in name_in(arn) for word in words)


def _as_list(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _is_same_resource(found: TemplateResource | None, other: TemplateResource) -> bool:
    return found is not None and (found.stack, found.id) == (other.stack, other.id)


def _total(of_task: int | None, of_containers: Sequence[int | None]) -> int | None:
    """Return the size of a task, or else the sum of its containers' sizes; None if one is unknown, 0 without sizes."""
    if of_task != 0:
        return of_task
    return None if None in of_containers else sum(size or 0 for size in of_containers)


def _size(properties: Properties, name: str) -> int | None:
    """Return CPU units or MiB, also written as `.5 vCPU` or `2 GB`; 0 if there are none; None if unknown."""
    if is_unknown(properties.get(name)):
        return None
    written = str(properties.get(name) or 0).lower().replace(" ", "")
    unit = next((unit for unit in _UNITS if written.endswith(unit)), "")
    try:
        return int(float(written.removesuffix(unit)) * _UNITS.get(unit, 1))
    except (ValueError, OverflowError) as error:
        raise properties.refusal(name, "a number, or one of vCPU or GB, or a parameter with a default") from error
