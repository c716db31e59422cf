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
    """An event that is sent, or read, and what comes of it at a consumer.

    Args:
        version: of what is sent; None where nothing is.
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
        """Return it as `--json` prints it."""
        findings = [{"answer": each.answer.value, "field": each.field, "reason": each.reason} for each in self.findings]
        names = {"consumer": self.consumer, "type": self.type, "version": self.version}
        return {**names, "answer": self.answer.value, "findings": findings}

    def lines(self) -> Iterator[tuple[str, ...]]:
        """Yield its lines of the table."""
        names = (self.consumer, self.type, "" if self.version is None else str(self.version))
        for finding in self.findings or [Finding(Answer.OK, "", "")]:
            yield (*names, finding.answer.value, finding.field, finding.reason)


def event_types_of_all(modules: Iterable[str]) -> list[EventType]:
    """Return the event types of several modules; what they share counts once.

    Raises:
        ConfigError: a module has none, or two of them have different classes for one version.
    """
    found: dict[tuple[str, int], EventType] = {}
    for name in modules:
        for of in event_types_of(load_module(name)):
            other = found.setdefault((of.type_, of.version), of)
            if other is not of:
                raise ConfigError(
                    f"{of} is {other.model.__module__}.{other.model.__qualname__} and in module {name} another class;"
                    " allowed is one producer of a type on a topic"
                )
    return list(found.values())


def documents(sends: Sequence[str]) -> list[Document]:
    """Return what producers send: one document for all modules, and one for each file."""
    modules = [name for name in sends if not name.endswith(".json")]
    read = [read_document(Path(name)) for name in sends if name.endswith(".json")]
    return [*([write_document(event_types_of_all(modules), "")] if modules else []), *read]


def compare_all(
    environment: Environment, topic: str | None, sent: Sequence[Document], names: Sequence[str]
) -> list[ComparedEvent]:
    """Return what comes of each event at each consumer that gets it, then of what is read and not sent.

    Args:
        environment: whose consumers read.
        topic: by its declared name; None is the first.
        sent: what producers send.
        names: the consumers to look at; empty is all.

    Raises:
        ConfigError: there is no such topic or consumer, or handlers cannot be loaded.
    """
    wanted = [consumer_of(environment, name) for name in names]
    consumers = [each for each in environment.consumers_of(environment.topic(topic)) if not wanted or each in wanted]
    types = {type_ for document in sent for type_, _, _ in sent_messages(document)}
    found: list[ComparedEvent] = []
    for consumer in consumers:
        if consumer.handlers is None or consumer.image is not None:
            why = "it has no handlers" if consumer.handlers is None else "its handlers are in an image of its own"
            found.append(ComparedEvent(consumer.name, ANY, None, [Finding(Answer.UNKNOWN, "", why)]))
            continue
        handlers = Handlers.load(consumer.handlers).of_consumer(consumer, environment)
        found += [row for document in sent for row in _compare_document(consumer, handlers, document)]
        unsent = Finding(Answer.UNKNOWN, "", "it is read, and nobody named here sends it")
        found += [ComparedEvent(consumer.name, type_, None, [unsent]) for type_ in sorted(handlers.names - types)]
    return found


def _compare_document(consumer: Consumer, handlers: Handlers, document: Document) -> Iterator[ComparedEvent]:
    for type_, version, schema in sent_messages(document):
        is_delivered = _is_delivered(consumer, type_)
        if is_delivered is False or handlers.passes_over(type_):
            continue
        findings = _compare(handlers, type_, version, schema, document)
        if is_delivered is None:
            held = "; its filter policy may hold the event back"
            findings = [replace(each, answer=Answer.UNKNOWN, reason=each.reason + held) for each in findings]
        yield ComparedEvent(consumer.name, type_, version, findings)


def _compare(handlers: Handlers, type_: str, version: int, sent: Schema, document: Document) -> list[Finding]:
    if handlers.find(type_) is None:
        return [Finding(Answer.MISTAKE, "", "it has no handler, and goes to the DLQ")]
    model = handlers.model_of(type_)
    if model is None:
        return [Finding(Answer.UNKNOWN, "", "its handler is given no class: @handler(CLASS) says what it reads")]
    of = event_type_of(model)
    if version not in of.versions:
        newer = version > of.version
        next_step = "deploy a consumer that reads it first" if newer else "read it too, with previous and upcast"
        reason = f"version {version} is sent, read is {of.versions_text}; {next_step}"
        return [Finding(Answer.MISTAKE, "", reason)]
    ((read, named),) = [data_schemas([of.versions[version]], "validation")]
    look_up = partial(find_schema, document["components"]["schemas"])
    return Comparison(look_up, partial(find_schema, named)).compare(sent, read[type_, version])


def _is_delivered(consumer: Consumer, type_: str) -> bool | None:
    """Return whether the consumer's filter policy lets a type pass; None where other things decide as well."""
    policy = consumer.filter_policy
    if policy is None or not policy.keys() & {"type", "$or"}:
        return True
    conditions = policy.get("type")
    if conditions is None or not all(isinstance(condition, str) for condition in conditions):
        return None
    return type_ in conditions
