"""What `sluice env` does."""

from pathlib import Path
from typing import Any

from sluice.declaration import Environment, load_declaration, naming
from sluice.terminal import output


def env(*, name: str | None, declaration: Path | None, as_json: bool) -> None:
    """Run the command."""
    declared = load_declaration(declaration)
    if name is None:
        _list(list(declared.values()), as_json=as_json)
    else:
        _show(declared.environment(name), as_json=as_json)


def _list(environments: list[Environment], *, as_json: bool) -> None:
    rows: list[dict[str, Any]] = [
        {
            "environment": environment.name,
            "account": environment.account,
            "region": environment.region,
            "consumers": [consumer.name for consumer in environment.consumers],
        }
        for environment in environments
    ]
    if as_json:
        output.as_json(rows)
        return
    shown = [(row["environment"], row["account"] or "-", row["region"], ", ".join(row["consumers"])) for row in rows]
    output.table(("environment", "account", "region", "consumers"), shown)


def _show(environment: Environment, *, as_json: bool) -> None:
    queues = [
        {
            "consumer": consumer.name,
            "queue": naming.queue_name(environment, consumer),
            "dlq": naming.dead_letter_queue_name(environment, consumer),
            "undelivered_dlq": naming.undelivered_queue_name(environment, consumer),
            "service": naming.service_name(environment, consumer.name),
        }
        for consumer in environment.consumers
    ]
    topic = naming.topic_name(environment)
    if as_json:
        output.as_json({"environment": environment.name, "topic": topic, "consumers": queues})
        return
    output.line(f"topic: {topic}")
    output.table(tuple(queues[0]), [tuple(queue.values()) for queue in queues])
