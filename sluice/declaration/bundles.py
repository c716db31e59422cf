"""The rules for topics whose messages may be bundles: a consumer has to manage all events of one message.

SQS counts the receives of a message, and bounds them and the time that a consumer holds it, however many events it has
([decision 24](docs/decisions/0024-bundles.md)).
"""

from sluice import limits
from sluice.declaration.consumer import HANDLER_TIMEOUTS_MAX, Consumer
from sluice.declaration.fields.functions import RECEIVES_OF_AN_ATTEMPT
from sluice.declaration.fields.topics import ExistingTopic, Topic
from sluice.declaration.validation import require


def check_bundle_events(topic: Topic | ExistingTopic, consumer: Consumer) -> None:
    """Refuse bundles of more events than a consumer can work on within the receives and the time of one message.

    Raises:
        FieldError: the topic's `bundle_events_max` is too much, and `consumer` is why.
    """
    function, label = consumer.runtime, f"with consumer {consumer.name!r}"
    require(
        topic,
        consumer.fifo,
        field="bundle_events_max",
        allowed=f"1 {label}, which has a standard queue: copies of a bundle would be worked on side by side",
    )
    if function is None:
        receives, of_event = limits.BUNDLE_RECEIVES_MAX, f"max_attempts + 1 ({consumer.max_attempts + 1})"
        receives_each = consumer.max_attempts + 1
        seconds_each: float = HANDLER_TIMEOUTS_MAX * consumer.visibility_timeout_seconds
        time = (limits.VISIBILITY_TIMEOUT_SECONDS_MAX, f"{HANDLER_TIMEOUTS_MAX} x visibility_timeout_seconds")
    else:
        receives = function.receives_max
        receives_each = RECEIVES_OF_AN_ATTEMPT * function.batch_size * consumer.max_attempts
        of_event = f"{RECEIVES_OF_AN_ATTEMPT} x batch_size x max_attempts ({receives_each})"
        seconds_each = function.batch_size * consumer.processing_seconds
        time = (function.timeout_seconds, "batch_size x processing_seconds")
    require(
        topic,
        topic.bundle_events_max * receives_each <= receives,
        field="bundle_events_max",
        allowed=f"at most {max(1, receives // receives_each)} {label}: {receives} receives / {of_event}, which an event"
        " may cost",
    )
    most_seconds, of_time = time
    require(
        topic,
        topic.bundle_events_max * seconds_each <= most_seconds,
        field="bundle_events_max",
        allowed=f"at most {max(1, int(most_seconds / seconds_each))} {label}: {most_seconds} s / ({of_time},"
        f" {seconds_each:g} s), which an event may take",
    )
