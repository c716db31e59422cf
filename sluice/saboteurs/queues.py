"""Saboteurs of a queue's attributes, tags, permissions and name, and of the lists of queues."""

from collections.abc import Mapping
from typing import Any

from botocore.awsrequest import AWSResponse

from sluice.saboteurs.base import (
    QUEUE_ATTRIBUTES,
    Hook,
    IgnoreCall,
    Saboteur,
    change,
    ignore,
    misreport,
    omit,
    only_show,
)


def _shorten_delay(params: dict[str, Any]) -> None:
    attributes = params.get("Attributes", {})
    if attributes.get("DelaySeconds", "0") != "0":
        attributes["DelaySeconds"] = "1"


class _MoveQueues(Hook):
    """Answers another URL if a queue is created that was created before."""

    operations = ("sqs.CreateQueue",)

    def begin(self) -> None:
        self._created: set[str] = set()

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if params["QueueName"] in self._created and "QueueUrl" in parsed:
            parsed["QueueUrl"] = parsed["QueueUrl"].removesuffix(".fifo") + "-moved.fifo"
        self._created.add(params["QueueName"])


class _IgnoreAttributeChanges(IgnoreCall):
    """Confirms changes of attributes, and does not send them, unless the policy is among them."""

    operations = ("sqs.SetQueueAttributes",)

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        return None if "Policy" in params["Attributes"] else super().answer(operation, params)


class _IgnorePolicyRemovals(IgnoreCall):
    """Confirms an empty policy, which removes the policy, and does not send it."""

    operations = ("sqs.SetQueueAttributes",)

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        return super().answer(operation, params) if params["Attributes"].get("Policy") == "" else None


class _KeepFirstPolicy(IgnoreCall):
    """Sends the first policy of each queue to the service, and only confirms the later ones."""

    operations = ("sqs.SetQueueAttributes",)

    def begin(self) -> None:
        self._queues_with_policy: set[str] = set()

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        if not params["Attributes"].get("Policy"):
            return None
        if params["QueueUrl"] in self._queues_with_policy:
            return super().answer(operation, params)
        self._queues_with_policy.add(params["QueueUrl"])
        return None


class _IgnoreTags(IgnoreCall):
    """Confirms tags, and does not send them; a queue is created without its tags."""

    operations = ("sqs.TagQueue", "sqs.CreateQueue", "sns.TagResource")

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        params.pop("tags", None)

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        return None if operation == "sqs.CreateQueue" else super().answer(operation, params)


def _freeze_modified_at(parsed: dict[str, Any]) -> None:
    if "LastModifiedTimestamp" in parsed.get("Attributes", {}):
        parsed["Attributes"]["LastModifiedTimestamp"] = "1"


def _undercount(parsed: dict[str, Any]) -> None:
    for name in parsed.get("Attributes", {}):
        if name.startswith("ApproximateNumber"):
            parsed["Attributes"][name] = "0"


def _widen_queue_scope(params: dict[str, Any]) -> None:
    if params.get("Attributes", {}).get("FifoQueue") == "true":
        params["Attributes"]["DeduplicationScope"] = "messageGroup"


def _fold_name(params: dict[str, Any]) -> None:
    params["QueueName"] = params["QueueName"].lower()


def _fold_tags(params: dict[str, Any]) -> None:
    params["Tags"] = {key.lower(): value for key, value in params["Tags"].items()}


def _shrink_messages(parsed: dict[str, Any]) -> None:
    if "MaximumMessageSize" in parsed.get("Attributes", {}):
        parsed["Attributes"]["MaximumMessageSize"] = "262144"


SABOTEURS = {
    **{
        f"forget-{suffix}": Saboteur(f"makes queues without the {name} asked for", omit(name, of="sqs.CreateQueue"))
        for suffix, name in (
            ("scope", "DeduplicationScope"),
            ("delay", "DelaySeconds"),
            ("size", "MaximumMessageSize"),
            ("wait", "ReceiveMessageWaitTimeSeconds"),
            ("retention", "MessageRetentionPeriod"),
            ("visibility", "VisibilityTimeout"),
        )
    },
    "shorten-delays": Saboteur("makes every delay of a queue a second", change(_shorten_delay, "sqs.CreateQueue")),
    "move-queues": Saboteur("answers another URL when a queue is created again", _MoveQueues),
    "ignore-attribute-changes": Saboteur(
        "confirms a change of attributes other than the policy and does not do it", _IgnoreAttributeChanges
    ),
    **{
        f"only-show-{suffix}": Saboteur(f"shows a changed {name} and does not apply it", only_show(name, "sqs.Queue"))
        for suffix, name in (
            ("visibility", "VisibilityTimeout"),
            ("size", "MaximumMessageSize"),
            ("wait", "ReceiveMessageWaitTimeSeconds"),
            ("retention", "MessageRetentionPeriod"),
            ("delay", "DelaySeconds"),
            ("content-ids", "ContentBasedDeduplication"),
            ("redrive-policy", "RedrivePolicy"),
            ("redrive-permission", "RedriveAllowPolicy"),
        )
    },
    "freeze-modified-at": Saboteur(
        "says that no attribute was ever changed", misreport(_freeze_modified_at, "sqs.GetQueueAttributes")
    ),
    "keep-first-policy": Saboteur("confirms another policy and keeps the first", _KeepFirstPolicy),
    "ignore-policy-removals": Saboteur("confirms that a policy is taken away and keeps it", _IgnorePolicyRemovals),
    "ignore-purge": Saboteur("confirms a purge and does not do it", ignore("sqs.PurgeQueue")),
    "ignore-tags": Saboteur("confirms tags and does not keep them", _IgnoreTags),
    "tell-all-attributes": Saboteur(
        "tells every attribute whatever was asked for",
        change(lambda params: params.update(AttributeNames=["All"]), QUEUE_ATTRIBUTES),
    ),
    "undercount-queue": Saboteur("reports queues as empty", misreport(_undercount, QUEUE_ATTRIBUTES)),
    "shrink-messages": Saboteur("reports queues of small messages", misreport(_shrink_messages, QUEUE_ATTRIBUTES)),
    "widen-queue-scope": Saboteur(
        "makes queues that deduplicate per group", change(_widen_queue_scope, "sqs.CreateQueue")
    ),
    "ignore-permissions": Saboteur(
        "confirms a permission and does not add it", ignore("sqs.AddPermission", "sns.AddPermission")
    ),
    "keep-permissions": Saboteur(
        "confirms that a permission is removed and keeps it", ignore("sqs.RemovePermission", "sns.RemovePermission")
    ),
    "keep-queues": Saboteur("confirms that a queue is deleted and keeps it", ignore("sqs.DeleteQueue")),
    "fold-queue-names": Saboteur("makes queues in small letters only", change(_fold_name, "sqs.CreateQueue")),
    "fold-tags": Saboteur("keeps keys of tags in small letters only", change(_fold_tags, "sqs.TagQueue")),
    "lose-next-page": Saboteur(
        "lists queues as if the first page were all",
        misreport(lambda parsed: parsed.pop("NextToken", None), "sqs.ListQueues"),
    ),
    "ignore-queue-prefix": Saboteur("lists queues of any name", omit("QueueNamePrefix", of="sqs.ListQueues")),
    "misdirect-names": Saboteur(
        "finds another queue than the one of that name",
        misreport(lambda parsed: parsed.update(QueueUrl=parsed["QueueUrl"] + "-other"), "sqs.GetQueueUrl"),
    ),
}
