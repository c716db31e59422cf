"""Compare each event that is sent to a topic with what each of its consumers reads."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sluice.cli.events.document import (
    data_schemas,
    event_types_of,
    find_schema,
    load_module,
    read_document,
    sent_messages,
    write_document,
)
from sluice.cli.events.schemas import Answer, Comparison, Finding, Schema, worst
from sluice.cli.targets import consumer_of
from sluice.declaration import Consumer, Environment
from sluice.errors import ConfigError
from sluice.messaging.event_types import EventType, event_type_of
from sluice.messaging.handlers import ANY, Handlers

type Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ComparedEvent:
    """The comparison of one version of an event with what one consumer reads.

    Args:
        consumer: its name.
        type: of the event.
        version: the version that is sent; None where the consumer reads the type and nobody sends it.
        findings: the places that do not fit; none where all of it is read.
    """

    consumer: str
    type: str
    version: int | None
    findings: Sequence[Finding]

    @property
    def answer(self) -> Answer:
        """Return the worst of the findings."""
        return worst(finding.answer for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as `--json` prints it."""
        findings = [{"answer": each.answer.value, "field": each.field, "reason": each.reason} for each in self.findings]
        names = {"consumer": self.consumer, "type": self.type, "version": self.version}
        return {**names, "answer": self.answer.value, "findings": findings}

    def lines(self) -> Iterator[tuple[str, ...]]:
        """Yield the comparison's rows of the printed table, one for each finding."""
        names = (self.consumer, self.type, "" if self.version is None else str(self.version))
        for finding in self.findings or [Finding(Answer.OK, "", "")]:
            yield (*names, finding.answer.value, finding.field, finding.reason)


def event_types_of_all(modules: Iterable[str]) -> list[EventType]:
    """Return the event types of several modules; a class that two modules share counts once.

    Raises:
        ConfigError: a module has no event type, or two modules have different classes for one version of a type.
    """
    found: dict[tuple[str, int], EventType] = {}
    for name in modules:
        for event_type in event_types_of(load_module(name)):
            other = found.setdefault((event_type.type_, event_type.version), event_type)
            if other is not event_type:
                raise ConfigError(
                    f"{event_type} is {other.model.__module__}.{other.model.__qualname__} and in module {name} another"
                    " class; allowed is one producer of a type on a topic"
                )
    return list(found.values())


def documents(sends: Sequence[str]) -> list[Document]:
    """Return the AsyncAPI documents of `--sends`: one for all modules together, and one for each .json file."""
    modules = [name for name in sends if not name.endswith(".json")]
    read_documents = [read_document(Path(name)) for name in sends if name.endswith(".json")]
    return [*([write_document(event_types_of_all(modules), "")] if modules else []), *read_documents]


def compare_all(
    environment: Environment, topic: str | None, sent: Sequence[Document], names: Sequence[str]
) -> list[ComparedEvent]:
    """Compare each event with each consumer that receives it; then name the types that are read and never sent.

    Args:
        environment: whose consumers are compared.
        topic: the declared name of the topic; None is the environment's first.
        sent: the documents of the producers.
        names: the consumers to compare; empty is all of the topic.

    Raises:
        ConfigError: there is no such topic or consumer, or handlers cannot be loaded.
    """
    wanted = [consumer_of(environment, name) for name in names]
    consumers = [each for each in environment.consumers_of(environment.topic(topic)) if not wanted or each in wanted]
    types = {type_ for document in sent for type_, _, _ in sent_messages(document)}
    compared: list[ComparedEvent] = []
    for consumer in consumers:
        if consumer.handlers is None or consumer.image is not None:
            why = "it has no handlers" if consumer.handlers is None else "its handlers are in an image of its own"
            compared.append(ComparedEvent(consumer.name, ANY, None, [Finding(Answer.UNKNOWN, "", why)]))
            continue
        handlers = Handlers.load(consumer.handlers).of_consumer(consumer, environment)
        compared += [row for document in sent for row in _compare_document(consumer, handlers, document)]
        unsent = Finding(Answer.UNKNOWN, "", "it is read, and nobody named here sends it")
        compared += [ComparedEvent(consumer.name, type_, None, [unsent]) for type_ in sorted(handlers.names - types)]
    return compared


def _compare_document(consumer: Consumer, handlers: Handlers, document: Document) -> Iterator[ComparedEvent]:
    """Compare each event of a document with a consumer; leave out events that its filter or handlers pass over."""
    for type_, version, schema in sent_messages(document):
        is_delivered = _is_delivered(consumer, type_)
        if is_delivered is False or handlers.passes_over(type_):
            continue
        findings = _compare(handlers, type_, version, schema, document)
        if is_delivered is None:
            remark = "; its filter policy may hold the event back"
            findings = [replace(each, answer=Answer.UNKNOWN, reason=each.reason + remark) for each in findings]
        yield ComparedEvent(consumer.name, type_, version, findings)


def _compare(handlers: Handlers, type_: str, version: int, sent: Schema, document: Document) -> list[Finding]:
    """Compare one version of an event with the class of its handler; `sent` is the schema of the event's data."""
    if handlers.find(type_) is None:
        return [Finding(Answer.MISTAKE, "", "it has no handler, and goes to the DLQ")]
    model = handlers.model_of(type_)
    if model is None:
        return [Finding(Answer.UNKNOWN, "", "its handler is given no class: @handler(CLASS) says what it reads")]
    event_type = event_type_of(model)
    if version not in event_type.versions:
        newer = version > event_type.version
        next_step = "deploy a consumer that reads it first" if newer else "read it too, with previous and upcast"
        reason = f"version {version} is sent, read is {event_type.versions_text}; {next_step}"
        return [Finding(Answer.MISTAKE, "", reason)]
    ((read, named),) = [data_schemas([event_type.versions[version]], "validation")]
    look_up = partial(find_schema, document["components"]["schemas"])
    return Comparison(look_up, partial(find_schema, named)).compare(sent, read[type_, version])


def _is_delivered(consumer: Consumer, type_: str) -> bool | None:
    """Return whether a consumer's filter policy lets a type pass; None where it depends on more than the type."""
    policy = consumer.filter_policy
    if policy is None or not policy.keys() & {"type", "$or"}:
        return True
    conditions = policy.get("type")
    if conditions is None or not all(isinstance(condition, str) for condition in conditions):
        return None
    return type_ in conditions
