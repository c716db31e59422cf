"""SQS of one account: its queues, the operations on queues, and the table of all operations."""

import json
from collections.abc import Callable, Iterable, Mapping

from sluice import limits
from sluice.simulator.model import permissions
from sluice.simulator.model.operation import AnswerFields, ModelOperation, Params, as_spelled
from sluice.simulator.model.queues import settings
from sluice.simulator.model.queues.fifo import FifoQueue
from sluice.simulator.model.queues.moving import SimulatedMoveTasks
from sluice.simulator.model.queues.queue import SimulatedQueue
from sluice.simulator.model.queues.receiving import Receiving
from sluice.simulator.model.queues.sending import Sending
from sluice.simulator.model.refusal import AwsRefusal, invalid_parameter, unknown_queue

_NAME_FREE_AFTER_SECONDS = 60
_LIST_MAX = 1_000
_COMPUTED = ("QueueArn", "CreatedTimestamp", "LastModifiedTimestamp")
_COUNTERS = ("", "NotVisible", "Delayed")
_GETTABLE = {
    *settings.SETTABLE,
    *_COMPUTED,
    *(f"ApproximateNumberOfMessages{which}" for which in _COUNTERS),
}


class Sqs:
    """All queues of one account and region.

    Args:
        base_url: the beginning of queue URLs.
        arn_prefix: the beginning of queue ARNs.
        new_id: makes message and task ids.
    """

    def __init__(self, *, base_url: str, arn_prefix: str, new_id: Callable[[], str]) -> None:
        self._base_url, self._arn_prefix = base_url, arn_prefix
        self.queues: dict[str, SimulatedQueue] = {}
        self._deleted_at: dict[str, float] = {}
        self._moves = SimulatedMoveTasks(self.queues, new_id)
        sending, receiving = Sending(self._named_queue, new_id), Receiving(self._named_queue, self.queues)
        self.operations: Mapping[str, ModelOperation] = {
            "CreateQueue": self._create_queue,
            "DeleteQueue": self._delete_queue,
            "GetQueueUrl": lambda params, _: {"QueueUrl": self._queue_by_name(params["QueueName"]).url},
            "ListQueues": self._list_queues,
            "GetQueueAttributes": self._get_queue_attributes,
            "SetQueueAttributes": self._set_queue_attributes,
            "ListDeadLetterSourceQueues": self._list_dead_letter_source_queues,
            "SendMessage": sending.send,
            "SendMessageBatch": sending.send_batch,
            "ReceiveMessage": receiving.receive,
            "DeleteMessage": receiving.delete,
            "DeleteMessageBatch": receiving.delete_batch,
            "ChangeMessageVisibility": receiving.change_visibility,
            "ChangeMessageVisibilityBatch": receiving.change_visibility_batch,
            "PurgeQueue": self._purge_queue,
            "AddPermission": self._add_permission,
            "RemovePermission": self._remove_permission,
            "StartMessageMoveTask": self._moves.start,
            "ListMessageMoveTasks": self._moves.list,
            "CancelMessageMoveTask": self._moves.cancel,
            "TagQueue": self._tag_queue,
            "UntagQueue": self._untag_queue,
            "ListQueueTags": self._list_queue_tags,
        }

    def settle(self, now: float) -> None:
        """Apply every change that time alone makes up to `now`: steps of move tasks, ends of periods in queues."""
        self._moves.settle(now)
        for queue in self.queues.values():
            queue.settle(now)

    def changes_after(self, now: float) -> Iterable[float]:
        """Yield the instants after `now` at which a queue changes without a call, or a move task takes a step."""
        yield from self._moves.changes_after(now)
        for queue in self.queues.values():
            yield from queue.changes_after(now)

    def wait_seconds(self, params: Params) -> int:
        """Return how many seconds a receive waits for a message: by its WaitTimeSeconds, else the queue's default."""
        queues_default = self._named_queue(params).seconds("ReceiveMessageWaitTimeSeconds")
        return int(params.get("WaitTimeSeconds", queues_default))

    def _named_queue(self, params: Params) -> SimulatedQueue:
        """Return the queue that a call's QueueUrl names at its end; the rest of the URL does not count."""
        return self._queue_by_name(params["QueueUrl"].rpartition("/")[2])

    def _queue_by_name(self, name: str) -> SimulatedQueue:
        queue = self.queues.get(self._arn_prefix + name)
        if queue is None:
            raise unknown_queue()
        return queue

    def _attributes_of(self, arn: str) -> Mapping[str, str] | None:
        queue = self.queues.get(arn)
        return None if queue is None else queue.attributes

    def _create_queue(self, params: Params, now: float) -> AnswerFields:
        name, requested = params["QueueName"], as_spelled(params.get("Attributes", {}), settings.BOOLEANS)
        arn = self._arn_prefix + name
        existing = self.queues.get(arn)
        if existing is not None:
            return self._repeat_creation(existing, requested)
        is_fifo = requested.get("FifoQueue") == "true"
        if requested.get("FifoQueue") == "false" and not name.endswith(limits.FIFO_SUFFIX):
            raise AwsRefusal("InvalidAttributeName", "Unknown Attribute FifoQueue.")  # [CRE-07]
        settings.check_name(name, is_fifo=is_fifo)
        attributes = settings.check(
            requested, current=settings.defaults(is_fifo=is_fifo), arn=arn, find_queue=self._attributes_of
        )
        if now < self._deleted_at.get(name, -_NAME_FREE_AFTER_SECONDS) + _NAME_FREE_AFTER_SECONDS:  # [CRE-20]
            raise AwsRefusal(
                "AWS.SimpleQueueService.QueueDeletedRecently",
                "You must wait 60 seconds after deleting a queue before you can create another with the same name.",
            )
        url = f"{self._base_url}/{name}"
        kind = FifoQueue if is_fifo else SimulatedQueue
        self.queues[arn] = kind(name, arn=arn, url=url, attributes=attributes, created_at=now)
        self.queues[arn].tags.update(params.get("tags", {}))  # [TAG-03]
        return {"QueueUrl": url}

    @staticmethod
    def _repeat_creation(existing: SimulatedQueue, requested: Mapping[str, str]) -> AnswerFields:
        """Return the URL of a queue that exists, if each requested attribute is the same [CRE-04, CRE-05, CRE-06]."""
        for name, value in requested.items():
            if not _same(existing.attributes.get(name), value):
                raise AwsRefusal(
                    "QueueAlreadyExists",
                    f"A queue already exists with the same name and a different value for attribute {name}",
                    shape="QueueNameExists",
                )
        return {"QueueUrl": existing.url}

    def _delete_queue(self, params: Params, now: float) -> AnswerFields:
        queue = self._named_queue(params)
        del self.queues[queue.arn]
        self._deleted_at[queue.name] = now
        return {}

    def _list_queues(self, params: Params, _: float) -> AnswerFields:
        prefix, most = params.get("QueueNamePrefix", ""), params.get("MaxResults", _LIST_MAX)
        urls = sorted(queue.url for queue in self.queues.values() if queue.name.startswith(prefix))
        return _page("QueueUrls", urls, params, most)

    def _list_dead_letter_source_queues(self, params: Params, _: float) -> AnswerFields:
        """Return the URLs of the queues whose DLQ is the named one, under `queueUrls` with a small `q` [DLQ-19]."""
        target = self._named_queue(params).arn
        urls = sorted(queue.url for queue in self.queues.values() if queue.dead_letter_arn() == target)
        return {"queueUrls": []} | _page("queueUrls", urls, params, params.get("MaxResults", _LIST_MAX))

    def _get_queue_attributes(self, params: Params, now: float) -> AnswerFields:
        queue, requested = self._named_queue(params), params.get("AttributeNames", [])
        for name in requested:
            if name != "All" and name not in _GETTABLE:
                raise AwsRefusal("InvalidAttributeName", f"Unknown Attribute {name}.")
        known = queue.attributes | queue.counts(now)
        known["QueueArn"] = queue.arn
        known["CreatedTimestamp"] = str(int(queue.created_at))
        known["LastModifiedTimestamp"] = str(int(queue.modified_at))
        returned = {name: value for name, value in known.items() if "All" in requested or name in requested}
        return {"Attributes": returned} if returned else {}

    def _set_queue_attributes(self, params: Params, now: float) -> AnswerFields:
        queue = self._named_queue(params)
        attributes = settings.check(
            params["Attributes"], current=queue.attributes, arn=queue.arn, find_queue=self._attributes_of
        )
        queue.change_attributes(attributes, now)
        return {}

    def _purge_queue(self, params: Params, now: float) -> AnswerFields:
        self._named_queue(params).purge(now)
        return {}

    def _add_permission(self, params: Params, _: float) -> AnswerFields:
        """Allow accounts some actions, by a statement whose label the policy does not have yet [CRE-47]."""
        queue, label = self._named_queue(params), params["Label"]
        policy = queue.policy() or {"Version": "2008-10-17", "Id": f"{queue.arn}/SQSDefaultPolicy"}
        if permissions.has_label(policy, label):  # [CRE-51]
            raise invalid_parameter("Label", label, "Already exists.")
        added = permissions.statement(
            service="SQS",
            label=label,
            accounts=params["AWSAccountIds"],
            actions=params["Actions"],
            resource=queue.arn,
        )
        queue.set_policy(permissions.with_statement(policy, added))
        return {}

    def _remove_permission(self, params: Params, _: float) -> AnswerFields:
        """Remove the statement of a label; without a statement left, the queue has no policy [CRE-47, CRE-48]."""
        queue, label = self._named_queue(params), params["Label"]
        policy = queue.policy()
        if not permissions.has_label(policy, label):
            raise invalid_parameter("Label", label, "can't find label.")
        left = permissions.without_label(policy, label)
        queue.set_policy(left if left["Statement"] else {})
        return {}

    def _tag_queue(self, params: Params, _: float) -> AnswerFields:
        self._named_queue(params).tags.update(params["Tags"])
        return {}

    def _untag_queue(self, params: Params, _: float) -> AnswerFields:
        queue = self._named_queue(params)
        queue.tags = {name: value for name, value in queue.tags.items() if name not in params["TagKeys"]}
        return {}

    def _list_queue_tags(self, params: Params, _: float) -> AnswerFields:
        tags = self._named_queue(params).tags
        return {"Tags": dict(tags)} if tags else {}  # [TAG-01]


def _same(stored: str | None, requested: str) -> bool:
    """Return whether two values of an attribute are equal, as JSON if both are JSON."""
    try:
        return bool(json.loads(stored or "") == json.loads(requested))
    except ValueError:
        return stored == requested


def _page(key: str, items: list[str], params: Params, most: int) -> AnswerFields:
    """Return one page of a listing as SQS answers it: up to `most` items under `key`, from where NextToken says."""
    token = params.get("NextToken") or "0"
    if not 1 <= most <= _LIST_MAX:  # texts not recorded
        raise invalid_parameter("MaxResults", most, f"Must be between 1 and {_LIST_MAX}, if provided.")
    if not token.isdecimal():
        raise invalid_parameter("NextToken", token, "The token is not valid.")
    start = int(token)
    page = items[start : start + most]
    more = {"NextToken": str(start + most)} if "MaxResults" in params and start + most < len(items) else {}
    return ({key: page} if page else {}) | more
