"""Tags of a queue."""

import pytest

from contract_tests.resources import Resources


@pytest.mark.promise("TAG-01")
def test_tags_are_kept_until_they_are_taken_off(resources: Resources) -> None:
    """TAG-01: an empty value is a value; a queue without tags answers without the key."""
    queue = resources.fifo_queue()

    before = queue.sqs.list_queue_tags(QueueUrl=queue.url)
    queue.sqs.tag_queue(QueueUrl=queue.url, Tags={"team": "orders", "empty": ""})
    tagged = queue.sqs.list_queue_tags(QueueUrl=queue.url)
    queue.sqs.untag_queue(QueueUrl=queue.url, TagKeys=["team", "empty"])
    after = queue.sqs.list_queue_tags(QueueUrl=queue.url)

    assert tagged.get("Tags") == {"team": "orders", "empty": ""}
    assert "Tags" not in before
    assert "Tags" not in after


@pytest.mark.promise("TAG-03")
def test_tags_given_at_creation_are_there_at_once(resources: Resources) -> None:
    """TAG-03: no second call is needed."""
    queue = resources.fifo_queue()

    url = resources.create(f"{resources.name('q')}.fifo", tags={"team": "orders"}, FifoQueue="true")

    assert queue.sqs.list_queue_tags(QueueUrl=url).get("Tags") == {"team": "orders"}
