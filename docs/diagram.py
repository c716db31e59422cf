"""A picture of an environment's stacks, drawn from what its templates refer to and from nothing else.

A resource that only says something about another one (a policy, an alias, a role, a task definition) is part of it.
What remains is drawn, with an arrow for every reference between two of them that `_ARROWS` has words for. A reference
it does not know is an error, so the picture cannot fall behind the stacks. Consumers that look alike are drawn once.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from docs.templates import Resource, Synthesized
from sluice import naming
from sluice.declaration import Consumer, Environment

type Key = tuple[str, str]  # stack and logical id
type Path = tuple[str, ...]

_TOPIC, _SUBSCRIPTION, _QUEUE = "AWS::SNS::Topic", "AWS::SNS::Subscription", "AWS::SQS::Queue"
_KEY, _PUBLISH = "AWS::KMS::Key", "AWS::IAM::ManagedPolicy"
_VPC, _SERVICE, _ALARM = "AWS::EC2::VPC", "AWS::ECS::Service", "AWS::CloudWatch::Alarm"
_SCALING, _POLICY = "AWS::ApplicationAutoScaling::ScalableTarget", "AWS::ApplicationAutoScaling::ScalingPolicy"
_TASK, _ROLE, _ROLE_POLICY = "AWS::ECS::TaskDefinition", "AWS::IAM::Role", "AWS::IAM::Policy"

# A resource of the first type is part of the one this property names.
_PART_OF = {
    "AWS::SNS::TopicPolicy": "Topics",
    "AWS::SQS::QueuePolicy": "Queues",
    "AWS::KMS::Alias": "TargetKeyId",
    _ROLE_POLICY: "Roles",
    _POLICY: "ScalingTargetId",
    **dict.fromkeys(("AWS::EC2::Subnet", "AWS::EC2::VPCEndpoint", "AWS::EC2::SecurityGroup"), "VpcId"),
}
# What this property of a resource of the first type names is part of it.
_HAS_PART = {
    _SERVICE: ("TaskDefinition",),
    _TASK: ("TaskRoleArn", "ExecutionRoleArn"),
}
_DRAWN = (_PUBLISH, _TOPIC, _SUBSCRIPTION, _QUEUE, _KEY, _VPC, _SERVICE, _SCALING, _ALARM)

_FORWARD, _DASHED, _REVERSED = "{0} -->|{2}| {1}", "{0} -.->|{2}| {1}", "{1} -->|{2}| {0}"
# (type that refers, its property, type referred to) -> how it is drawn; None where another arrow already says it.
_ARROWS: dict[tuple[str, str, str], tuple[str, str] | None] = {
    (_PUBLISH, "PolicyDocument", _TOPIC): (_FORWARD, "allows sns:Publish"),
    (_PUBLISH, "PolicyDocument", _KEY): (_DASHED, "and its key"),
    (_SUBSCRIPTION, "TopicArn", _TOPIC): (_REVERSED, "every message"),
    (_SUBSCRIPTION, "Endpoint", _QUEUE): (_FORWARD, "delivers"),
    (_SUBSCRIPTION, "RedrivePolicy", _QUEUE): (_FORWARD, "could not deliver"),
    (_QUEUE, "RedrivePolicy", _QUEUE): (_FORWARD, "after {attempts} receives"),
    (_QUEUE, "RedriveAllowPolicy", _QUEUE): None,
    (_QUEUE, "PolicyDocument", _TOPIC): None,
    (_QUEUE, "KmsMasterKeyId", _KEY): (_DASHED, "encrypted with"),
    (_TOPIC, "KmsMasterKeyId", _KEY): (_DASHED, "encrypted with"),
    (_KEY, "KeyPolicy", _TOPIC): (_DASHED, "lets SNS in for"),
    (_SERVICE, "PolicyDocument", _QUEUE): (_REVERSED, "receives, deletes"),
    (_SERVICE, "PolicyDocument", _TOPIC): (_FORWARD, "publishes"),
    (_SERVICE, "ContainerDefinitions", _TOPIC): None,
    (_SERVICE, "PolicyDocument", _KEY): (_DASHED, "kms:Decrypt"),
    (_SERVICE, "NetworkConfiguration", _VPC): (_DASHED, "runs in"),
    (_SCALING, "ResourceId", _SERVICE): (_FORWARD, "sets the number of tasks"),
    (_SCALING, "TargetTrackingScalingPolicyConfiguration", _SERVICE): None,
    (_SCALING, "TargetTrackingScalingPolicyConfiguration", _QUEUE): (_DASHED, "reads metrics of"),
    (_ALARM, "Dimensions", _TOPIC): (_DASHED, "watches"),
    (_ALARM, "Dimensions", _QUEUE): (_DASHED, "watches"),
    (_ALARM, "Metrics", _QUEUE): (_DASHED, "watches"),
    (_ALARM, "Metrics", _SERVICE): (_DASHED, "watches"),
    (_ALARM, "AlarmActions", _TOPIC): (_FORWARD, "rings"),
    (_ALARM, "OKActions", _TOPIC): None,
    (_ALARM, "AlarmActions", _SCALING): (_FORWARD, "starts a task"),
}


@dataclass(frozen=True, slots=True)
class Edge:
    """A reference: who refers, with which property, to what."""

    source: Key
    property: str
    target: Key


class _Graph:
    """The resources of an environment and every reference between them, whatever it is written as."""

    def __init__(self, synthesized: Synthesized) -> None:
        self.environment = synthesized.environment
        self.resources = synthesized.resources()
        self.paths = synthesized.paths
        self._exports = {
            output["Export"]["Name"]: (stack, output["Value"])
            for stack, template in synthesized.templates.items()
            for output in template.get("Outputs", {}).values()
            if "Export" in output
        }
        self._names = {
            name: key
            for key, resource in self.resources.items()
            for property_ in ("QueueName", "TopicName", "ServiceName")
            if isinstance(name := resource.get("Properties", {}).get(property_), str)
        }
        self.edges = [
            Edge(key, path[0], target)
            for key, resource in self.resources.items()
            for path, target in self._references(key[0], resource.get("Properties", {}), ())
            if target != key
        ]
        self._owners = self._find_owners()

    def kind(self, key: Key) -> str:
        """Return the resource's type."""
        return str(self.resources[key]["Type"])

    def properties(self, key: Key) -> Resource:
        """Return the resource's properties."""
        properties: Resource = self.resources[key].get("Properties", {})
        return properties

    def owner(self, key: Key) -> Key:
        """Return what the resource is part of, at the end; itself if nothing."""
        while key in self._owners:
            key = self._owners[key]
        return key

    def parts(self, owner: Key, kind: str) -> list[Resource]:
        """Return the properties of the resources of that type that are part of `owner`."""
        return [self.properties(key) for key in self.resources if self.kind(key) == kind and self.owner(key) == owner]

    def consumer(self, key: Key) -> Consumer | None:
        """Return whose the resource is; None for what all share."""
        for consumer in self.environment.consumers:
            if f"Consumer-{consumer.name}" in self.paths[key].split("/"):
                return consumer
        endpoints = [edge.target for edge in self.edges if edge.source == key and edge.property == "Endpoint"]
        if endpoints:
            return self.consumer(endpoints[0])
        subject, _ = alarm_subject(self.environment, self.properties(key).get("AlarmName", ""))
        return next((one for one in self.environment.consumers if one.name == subject), None)

    def _find_owners(self) -> dict[Key, Key]:
        owners: dict[Key, Key] = {}
        for edge in self.edges:
            if _PART_OF.get(self.kind(edge.source)) == edge.property:
                owners.setdefault(edge.source, edge.target)
            elif edge.property in _HAS_PART.get(self.kind(edge.source), ()):
                owners.setdefault(edge.target, edge.source)
        return owners

    def _references(self, stack: str, value: Any, path: Path) -> Iterator[tuple[Path, Key]]:
        if isinstance(value, dict):
            target = self._intrinsic(stack, value)
            if target is not None:
                yield path, target
                return
            for name, inner in value.items():
                yield from self._references(stack, inner, (*path, name))
        elif isinstance(value, list):
            for inner in value:
                yield from self._references(stack, inner, path)
        elif isinstance(value, str):
            target = self._names.get(value.rpartition(":")[2].rpartition("/")[2])
            if target is not None:
                yield path, target

    def _intrinsic(self, stack: str, value: Mapping[str, Any]) -> Key | None:
        """Return the resource a Ref, GetAtt or ImportValue means; None for anything else."""
        if "Fn::ImportValue" in value:
            exporter, exported = self._exports[value["Fn::ImportValue"]]
            return self._intrinsic(exporter, exported)
        named = value.get("Ref", next(iter(value.get("Fn::GetAtt", [])), None))
        key = (stack, str(named))
        return key if key in self.resources else None


def alarm_subject(environment: Environment, name: str) -> tuple[str, str]:
    """Return whose alarm that is (a consumer's name, `topic`, `relay`) and the condition; of another name, nothing."""
    subjects = [*(one.name for one in environment.consumers), "topic", "relay"]
    for subject in sorted(subjects, key=len, reverse=True):
        prefix = naming.alarm_name(environment, subject, "")
        if name.startswith(prefix):
            return subject, name.removeprefix(prefix)
    return "", ""


def mermaid(synthesized: Synthesized) -> str:
    """Return the picture as a mermaid flowchart. The same templates give the same text."""
    graph = _Graph(synthesized)
    nodes = _nodes(graph)
    arrows = _arrows(graph, nodes)
    shapes: dict[frozenset[tuple[str, ...]], list[Consumer]] = defaultdict(list)
    for consumer in graph.environment.consumers:
        shapes[_shape(graph, consumer, nodes, arrows)].append(consumer)
    drawn = {alike[0].name: alike for alike in shapes.values()}
    return "\n".join(_lines(graph, nodes, arrows, drawn))


def _nodes(graph: _Graph) -> dict[Key, tuple[Key, str]]:
    """Return for everything drawn the node that stands for it, and its text. Alarms on the same things are one node."""
    watched: dict[tuple[Key, ...], list[Key]] = defaultdict(list)
    nodes = {}
    for key in graph.resources:
        kind = graph.kind(key)
        if kind == _ALARM:
            watched[_watched(graph, key)].append(key)
        elif kind in _DRAWN and graph.owner(key) == key:
            nodes[key] = (key, _text(graph, key))
    for alarms in watched.values():
        names = [alarm_subject(graph.environment, graph.properties(key)["AlarmName"])[1] for key in alarms]
        nodes |= {key: (alarms[0], f"alarm{'s' if len(names) > 1 else ''}: {', '.join(names)}") for key in alarms}
    return nodes


def _watched(graph: _Graph, alarm: Key) -> tuple[Key, ...]:
    """Return what the alarm's metrics are of, with what it does: two that agree in both are one node."""
    properties = ("Dimensions", "Metrics", "AlarmActions")
    return tuple(sorted({edge.target for edge in graph.edges if edge.source == alarm and edge.property in properties}))


def _text(graph: _Graph, key: Key) -> str:
    properties = graph.properties(key)
    lines: dict[str, Callable[[], list[str]]] = {
        _PUBLISH: lambda: ["managed policy", "for producers"],
        _TOPIC: lambda: _topic(properties),
        _SUBSCRIPTION: lambda: _subscription(properties),
        _QUEUE: lambda: _queue(properties),
        _KEY: lambda: ["KMS key", *(one["AliasName"] for one in graph.parts(key, "AWS::KMS::Alias"))],
        _VPC: lambda: _network(graph, key),
        _SERVICE: lambda: _service(graph, key),
        _SCALING: lambda: _scaling(graph, key),
    }
    return "<br/>".join(lines[graph.kind(key)]())


def _topic(properties: Resource) -> list[str]:
    lines = ["SNS FIFO topic" if properties.get("FifoTopic") else "SNS topic", properties["TopicName"]]
    if "ArchivePolicy" in properties:
        lines.append(f"archive: {properties['ArchivePolicy']['MessageRetentionPeriod']} days")
    return lines


def _subscription(properties: Resource) -> list[str]:
    if properties["Protocol"] != "sqs":
        return ["subscription", f"{properties['Protocol']} to {properties['Endpoint']}"]
    policy = properties.get("FilterPolicy")
    filtered = [] if policy is None else ["filter " + json.dumps(policy).replace('"', "'")]
    return ["subscription", "raw delivery" if properties["RawMessageDelivery"] else "SNS envelope", *filtered]


def _queue(properties: Resource) -> list[str]:
    lines = ["SQS FIFO queue", properties["QueueName"]]
    if "VisibilityTimeout" in properties:
        lines.append(f"visible again after {properties['VisibilityTimeout']} s")
    return [*lines, f"kept {properties['MessageRetentionPeriod'] / 86_400:g} days"]


def _network(graph: _Graph, key: Key) -> list[str]:
    endpoints = sorted(map(_endpoint, graph.parts(key, "AWS::EC2::VPCEndpoint")))
    subnets = len(graph.parts(key, "AWS::EC2::Subnet"))
    return [
        f"VPC {graph.properties(key)['CidrBlock']}",
        f"{subnets} private subnets, no NAT",
        "endpoints: " + ", ".join(endpoints),
    ]


def _endpoint(properties: Resource) -> str:
    """Return the service's short name, such as `ecr.api`; a gateway's whole name is a Join that ends in it."""
    name = properties["ServiceName"]
    return str(name).split(".", 3)[3] if isinstance(name, str) else str(name["Fn::Join"][1][-1]).lstrip(".")


def _service(graph: _Graph, key: Key) -> list[str]:
    (task,) = graph.parts(key, _TASK)
    (container,) = task["ContainerDefinitions"]
    size = f"{int(task['Cpu']) / 1_024:g} vCPU, {task['Memory']} MiB"
    return ["Fargate service", graph.properties(key)["ServiceName"], " ".join(container["Command"]), size]


def _scaling(graph: _Graph, key: Key) -> list[str]:
    properties = graph.properties(key)
    lines = [f"scaling: {properties['MinCapacity']} to {properties['MaxCapacity']} tasks"]
    for policy in graph.parts(key, _POLICY):
        tracking = policy.get("TargetTrackingScalingPolicyConfiguration")
        lines.append(policy["PolicyName"] + ("" if tracking is None else f": {tracking['TargetValue']:g}"))
    return lines


def _arrows(graph: _Graph, nodes: Mapping[Key, tuple[Key, str]]) -> dict[tuple[Key, Key, str], str]:
    """Return every arrow, in the order of the templates: from node to node, and its pattern and words."""
    arrows: dict[tuple[Key, Key, str], str] = {}
    for edge in graph.edges:
        source, target = graph.owner(edge.source), graph.owner(edge.target)
        if source == target or source not in nodes or target not in nodes:
            continue
        triple = (graph.kind(source), edge.property, graph.kind(target))
        if triple not in _ARROWS:
            raise LookupError(f"docs/diagram.py has no word for {triple}: {source} refers to {target}")
        arrow = _ARROWS[triple]
        if arrow is not None:
            pattern, words = arrow
            attempts = graph.properties(source).get("RedrivePolicy", {}).get("maxReceiveCount")
            arrows[nodes[source][0], nodes[target][0], words.format(attempts=attempts)] = pattern
    return arrows


def _shape(
    graph: _Graph,
    consumer: Consumer,
    nodes: Mapping[Key, tuple[Key, str]],
    arrows: Mapping[tuple[Key, Key, str], str],
) -> frozenset[tuple[str, ...]]:
    """Return what is drawn of a consumer, with its name taken out: equal for consumers that look alike."""

    def plain(key: Key) -> str:
        return nodes[key][1].replace(f"-{consumer.name}", "-*")

    mine = {key for key in nodes if graph.consumer(key) == consumer}
    between = {
        (plain(source), words, plain(target)) for source, target, words in arrows if source in mine or target in mine
    }
    return frozenset({(plain(key),) for key in mine} | between)


def _lines(
    graph: _Graph,
    nodes: Mapping[Key, tuple[Key, str]],
    arrows: Mapping[tuple[Key, Key, str], str],
    drawn: Mapping[str, list[Consumer]],
) -> Iterator[str]:
    ids: dict[Key, str] = {}
    shared: list[str] = []
    groups: dict[str, list[str]] = {name: [] for name in drawn}
    for key, (node, text) in nodes.items():
        consumer = graph.consumer(node)
        if key != node or (consumer is not None and consumer.name not in drawn):
            continue
        ids[node] = f"n{len(ids) + 1}"
        (shared if consumer is None else groups[consumer.name]).append(f'{ids[node]}["{text}"]')
    yield "flowchart LR"
    yield from (f"  {line}" for line in shared)
    for number, (name, alike) in enumerate(drawn.items(), start=1):
        others = ", ".join(one.name for one in alike[1:])
        yield f'  subgraph c{number}["{name}{f" (x {len(alike)}: {others} look the same)" if others else ""}"]'
        yield from (f"    {line}" for line in groups[name])
        yield "  end"
    for (source, target, words), pattern in arrows.items():
        if source in ids and target in ids:
            yield "  " + pattern.format(ids[source], ids[target], words)
