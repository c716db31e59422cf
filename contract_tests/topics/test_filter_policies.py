"""Filter policies: the messages they let through, and the policies that are refused.

AWS's refusal of a malformed policy has a second line with the position in the JSON; only the first line is compared.
AWS takes up to 15 minutes to apply a new policy.
"""

import json

import pytest

from contract_tests.resources import (
    QueueUnderTest,
    Refusal,
    Resources,
    TopicUnderTest,
    bodies,
    drain_each,
    invalid_parameter,
    refusal,
    require_accepted,
)


def _text(name: str, value: str) -> dict[str, dict[str, str]]:
    """Return message attributes with one text."""
    return {name: {"DataType": "String", "StringValue": value}}


def _number(name: str, value: str) -> dict[str, dict[str, str]]:
    """Return message attributes with one number."""
    return {name: {"DataType": "Number", "StringValue": value}}


def _subscribe_refused(topic: TopicUnderTest, queue: QueueUnderTest, policy: object) -> Refusal:
    """Subscribe with a filter policy that must be refused; return code, status and the first line of the text."""
    code, status, message = refusal(topic.subscribe, queue, FilterPolicy=json.dumps(policy))
    return code, status, message.partition("\n")[0]


def _policy_refusal(text: str) -> Refusal:
    """Return SNS's refusal of a filter policy."""
    return invalid_parameter(f"Attributes Reason: FilterPolicy: {text}")


@pytest.mark.promise("SNS-38")
def test_a_filter_policy_lets_through_what_matches(resources: Resources) -> None:
    filtered, unfiltered = resources.fifo_queue(), resources.fifo_queue()
    topic = resources.fifo_topic(unfiltered)
    topic.subscribe(filtered, FilterPolicy='{"kind": ["order"]}')

    topic.publish("m1", id="m1", MessageAttributes=_text("kind", "order"))
    topic.publish("m2", id="m2", MessageAttributes=_text("kind", "refund"))
    topic.publish("m3", id="m3")
    topic.publish("m4", id="m4", MessageAttributes=_text("kind", "order"))

    assert bodies(unfiltered.drain(4)) == ["m1", "m2", "m3", "m4"]
    assert bodies(filtered.drain(2)) == ["m1", "m4"]


@pytest.mark.promise("SNS-68")
def test_a_filter_policy_can_look_at_the_body(resources: Resources) -> None:
    queue, topic = resources.fifo_queue(), resources.fifo_topic()
    topic.subscribe(queue, FilterPolicy='{"kind": ["order"]}', FilterPolicyScope="MessageBody")

    topic.publish('{"kind": "refund"}', id="m1")
    topic.publish('{"kind": "order"}', id="m2")
    topic.publish("no JSON", id="m3", MessageAttributes=_text("kind", "order"))
    topic.publish('{"kind": "order", "number": 4}', id="m4")

    assert bodies(queue.drain(2)) == ['{"kind": "order"}', '{"kind": "order", "number": 4}']


@pytest.mark.promise("SNS-72")
def test_a_filter_policy_can_ask_whether_an_attribute_is_there(resources: Resources) -> None:
    present, missing = resources.fifo_queue(), resources.fifo_queue()
    topic = resources.fifo_topic()
    topic.subscribe(present, FilterPolicy='{"store": [{"exists": true}]}')
    topic.subscribe(missing, FilterPolicy='{"store": [{"exists": false}]}')

    topic.publish("m1", id="m1", MessageAttributes=_number("store", "99") | _number("def", "99"))
    topic.publish("m2", id="m2", MessageAttributes=_text("attr1", "111"))

    assert bodies(present.drain(1)) == ["m1"]
    assert bodies(missing.drain(1)) == ["m2"]


@pytest.mark.promise("SNS-73")
def test_a_filter_policy_can_ask_for_a_range(resources: Resources) -> None:
    queue, topic = resources.fifo_queue(), resources.fifo_topic()
    topic.subscribe(queue, FilterPolicy='{"price": [{"numeric": [">", 0, "<=", 100]}]}')

    topic.publish("nothing", id="m1", MessageAttributes=_number("price", "0"))
    topic.publish("inside", id="m2", MessageAttributes=_number("price", "99.12"))
    topic.publish("the most", id="m3", MessageAttributes=_number("price", "100"))
    topic.publish("too much", id="m4", MessageAttributes=_number("price", "100.01"))

    assert bodies(queue.drain(2)) == ["inside", "the most"]


@pytest.mark.promise("SNS-74")
def test_a_filter_policy_can_match_prefix_suffix_and_anything_but(resources: Resources) -> None:
    queue, topic = resources.fifo_queue(), resources.fifo_topic()
    policy = {"type": [{"prefix": "order-"}], "file": [{"suffix": ".json"}], "state": [{"anything-but": ["lost"]}]}
    topic.subscribe(queue, FilterPolicy=json.dumps(policy))

    wanted = _text("type", "order-new") | _text("file", "a.json") | _text("state", "kept")
    topic.publish("start", id="m1", MessageAttributes=wanted | _text("type", "new-order-new"))
    topic.publish("end", id="m2", MessageAttributes=wanted | _text("file", "a.json.csv"))
    topic.publish("but", id="m3", MessageAttributes=wanted | _text("state", "lost"))
    topic.publish("wanted", id="m4", MessageAttributes=wanted)

    assert bodies(queue.drain(1)) == ["wanted"]


@pytest.mark.promise("SNS-109")
def test_a_filter_policy_matches_cases_networks_and_all_but_a_prefix(resources: Resources) -> None:
    queue, topic = resources.fifo_queue(), resources.fifo_topic()
    policy = {
        "game": [{"equals-ignore-case": "tennis"}],
        "address": [{"cidr": "10.0.0.0/24"}],
        "event": [{"anything-but": {"prefix": "order-"}}],
    }
    topic.subscribe(queue, FilterPolicy=json.dumps(policy))

    wanted = _text("game", "TENNIS") | _text("address", "10.0.0.255") | _text("event", "order_number")
    topic.publish("game", id="m1", MessageAttributes=wanted | _text("game", "TENNI"))
    topic.publish("address", id="m2", MessageAttributes=wanted | _text("address", "10.1.1.0"))
    topic.publish("event", id="m3", MessageAttributes=wanted | _text("event", "order-cancelled"))
    topic.publish("wanted", id="m4", MessageAttributes=wanted)
    topic.publish("wanted too", id="m5", MessageAttributes=wanted | _text("game", "tennis"))

    assert bodies(queue.drain(2)) == ["wanted", "wanted too"]


@pytest.mark.promise("SNS-110")
def test_a_filter_policy_can_ask_for_a_pattern(resources: Resources) -> None:
    queue, topic = resources.fifo_queue(), resources.fifo_topic()
    policy = '{"path": [{"wildcard": "*/src/*.js"}], "kind": [{"anything-but": {"wildcard": "*-test"}}]}'

    require_accepted(topic.subscribe, queue, FilterPolicy=policy)

    wanted = _text("path", "a/src/b.js") | _text("kind", "unit")
    topic.publish("path", id="m1", MessageAttributes=wanted | _text("path", "a/src/b.jsx"))
    topic.publish("kind", id="m2", MessageAttributes=wanted | _text("kind", "unit-test"))
    topic.publish("wanted", id="m3", MessageAttributes=wanted)
    assert bodies(queue.drain(1)) == ["wanted"]


@pytest.mark.promise("SNS-111")
def test_one_side_of_an_or_is_enough(resources: Resources) -> None:
    queue, topic = resources.fifo_queue(), resources.fifo_topic()
    policy = {"source": ["metrics"], "$or": [{"name": ["cpu"]}, {"space": ["compute"]}]}
    topic.subscribe(queue, FilterPolicy=json.dumps(policy))

    metrics = _text("source", "metrics")
    topic.publish("left", id="m1", MessageAttributes=metrics | _text("name", "cpu"))
    topic.publish("neither", id="m2", MessageAttributes=metrics | _text("name", "disk"))
    topic.publish("right", id="m3", MessageAttributes=metrics | _text("name", "disk") | _text("space", "compute"))
    topic.publish("no source", id="m4", MessageAttributes=_text("name", "cpu"))

    assert bodies(queue.drain(2)) == ["left", "right"]


@pytest.mark.promise("SNS-112")
def test_a_filter_policy_looks_into_objects_and_lists_of_the_body(resources: Resources) -> None:
    queue, topic = resources.fifo_queue(), resources.fifo_topic()
    policy = '{"headers": {"route-to": ["q1"]}}'
    topic.subscribe(queue, FilterPolicy=policy, FilterPolicyScope="MessageBody")

    topic.publish('{"headers": {"route-to": ["q3"]}}', id="m1")
    topic.publish('{"headers": {"route-to": ["q2", "q1"]}}', id="m2")
    topic.publish('{"route-to": ["q1"]}', id="m3")
    topic.publish('{"headers": {"route-to": "q1"}}', id="m4")

    assert bodies(queue.drain(2)) == ['{"headers": {"route-to": ["q2", "q1"]}}', '{"headers": {"route-to": "q1"}}']


@pytest.mark.promise("SNS-75")
def test_every_key_of_a_filter_policy_must_match_any_of_its_values(resources: Resources) -> None:
    queue, topic = resources.fifo_queue(), resources.fifo_topic()
    topic.subscribe(queue, FilterPolicy='{"kind": ["order", "refund"], "place": ["north"]}')

    topic.publish("m1", id="m1", MessageAttributes=_text("kind", "order") | _text("place", "north"))
    topic.publish("m2", id="m2", MessageAttributes=_text("kind", "order") | _text("place", "south"))
    topic.publish("m3", id="m3", MessageAttributes=_text("kind", "order"))
    topic.publish("m4", id="m4", MessageAttributes=_text("kind", "refund") | _text("place", "north"))

    assert bodies(queue.drain(2)) == ["m1", "m4"]


@pytest.mark.promise("SNS-76")
def test_the_entries_of_a_batch_are_filtered_one_by_one(resources: Resources) -> None:
    queue, topic = resources.fifo_queue(), resources.fifo_topic()
    topic.subscribe(queue, FilterPolicy='{"kind": ["order"]}')

    topic.publish_batch(
        {"Message": "m1", "MessageAttributes": _text("kind", "order")},
        {"Message": "m2", "MessageAttributes": _text("kind", "refund")},
        {"Message": "m3", "MessageAttributes": _text("kind", "order")},
    )

    assert bodies(queue.drain(2)) == ["m1", "m3"]


@pytest.mark.promise("SNS-87")
def test_a_filter_policy_may_come_and_go(resources: Resources) -> None:
    queue, topic = resources.fifo_queue(), resources.fifo_topic()
    subscription = topic.subscribe(queue)
    topic.publish("before", id="m1")

    topic.set_subscription(subscription, "FilterPolicy", '{"kind": ["order"]}')
    topic.publish("refused", id="m2", MessageAttributes=_text("kind", "refund"))
    topic.publish("wanted", id="m3", MessageAttributes=_text("kind", "order"))
    filtered = bodies(queue.drain(2))
    topic.set_subscription(subscription, "FilterPolicy", "{}")
    topic.publish("after", id="m4", MessageAttributes=_text("kind", "refund"))

    assert filtered == ["before", "wanted"]
    assert bodies(queue.drain(1)) == ["after"]


@pytest.mark.promise("SNS-88")
def test_a_scope_that_is_changed_later_has_its_effect(resources: Resources) -> None:
    queue, topic = resources.fifo_queue(), resources.fifo_topic()
    subscription = topic.subscribe(queue, FilterPolicy='{"kind": ["order"]}')

    topic.set_subscription(subscription, "FilterPolicyScope", "MessageBody")
    topic.publish('{"kind": "refund"}', id="m1", MessageAttributes=_text("kind", "order"))
    topic.publish('{"kind": "order"}', id="m2")

    assert bodies(queue.drain(1)) == ['{"kind": "order"}']


@pytest.mark.promise("SNS-77")
def test_a_subscription_says_its_filter_policy_and_the_scope(resources: Resources) -> None:
    topic = resources.fifo_topic()
    of_attributes = topic.subscribe(resources.fifo_queue(), FilterPolicy='{"kind": ["order"]}')
    of_body = topic.subscribe(
        resources.fifo_queue(), FilterPolicy='{"kind": ["order"]}', FilterPolicyScope="MessageBody"
    )

    attributes = [
        topic.sns.get_subscription_attributes(SubscriptionArn=subscription)["Attributes"]
        for subscription in (of_attributes, of_body)
    ]

    assert [read.get("FilterPolicyScope") for read in attributes] == ["MessageAttributes", "MessageBody"]
    assert [json.loads(read["FilterPolicy"]) for read in attributes] == [{"kind": ["order"]}, {"kind": ["order"]}]


@pytest.mark.promise("SNS-78")
def test_a_malformed_filter_policy_is_refused(resources: Resources) -> None:
    topic, queue = resources.fifo_topic(), resources.fifo_queue()

    nested = _subscribe_refused(topic, queue, {"key": [["value"]]})
    unknown = _subscribe_refused(topic, queue, {"key": [{"wrong-operator": True}]})
    two = _subscribe_refused(topic, queue, {"key": [{"suffix": "value", "prefix": "value2"}]})
    no_list = _subscribe_refused(topic, queue, {"key": {"suffix": "value"}})
    no_json = refusal(topic.subscribe, queue, FilterPolicy="invalid")

    assert nested == _policy_refusal("Match value must be String, number, true, false, or null")
    assert unknown == _policy_refusal("Unrecognized match type wrong-operator")
    assert two == _policy_refusal("Only one key allowed in match expression")
    assert no_list == _policy_refusal('"suffix" must be an object or an array')
    assert no_json[:2] == ("InvalidParameter", 400)


@pytest.mark.promise("SNS-79")
def test_the_operands_of_a_filter_policy_are_checked(resources: Resources) -> None:
    topic, queue = resources.fifo_topic(), resources.fifo_queue()

    suffix = _subscribe_refused(topic, queue, {"key": [{"suffix": 100}]})
    numeric = _subscribe_refused(topic, queue, {"key": [{"numeric": [">", 3, "<", 1]}]})
    exists = _subscribe_refused(topic, queue, {"key": [{"exists": "no"}]})

    assert suffix == _policy_refusal("suffix match pattern must be a string")
    assert numeric == _policy_refusal("Bottom must be less than top")
    assert exists == _policy_refusal("exists match pattern must be either true or false.")


@pytest.mark.promise("SNS-80")
def test_a_filter_policy_has_at_most_5_keys_and_150_combinations(resources: Resources) -> None:
    topic, queue = resources.fifo_topic(), resources.fifo_queue()
    five_keys = {"k1": ["a"], "k2": ["a"], "k3": ["a"], "k4": ["a"], "k5": ["a"]}
    values = [str(number) for number in range(151)]
    most_combinations = {"k1": values[:15], "k2": values[:10]}

    topic.subscribe(resources.fifo_queue(), FilterPolicy=json.dumps(five_keys))
    topic.subscribe(resources.fifo_queue(), FilterPolicy=json.dumps(most_combinations))
    six_keys = _subscribe_refused(topic, queue, five_keys | {"k6": ["a"]})
    one_more = _subscribe_refused(topic, queue, {"k1": values})
    multiplied = _subscribe_refused(topic, queue, most_combinations | {"k3": ["a", "b"]})
    deep = {"a": {"b": {"c": values[:4]}}, "d": {"e": values[:3]}, "f": values[:3]}  # 3 x 4 x 2 x 3 x 3
    of_body = refusal(topic.subscribe, queue, FilterPolicy=json.dumps(deep), FilterPolicyScope="MessageBody")

    assert six_keys == _policy_refusal("Filter policy can not have more than 5 keys")
    assert one_more == _policy_refusal("Filter policy is too complex")
    assert multiplied == _policy_refusal("Filter policy is too complex")
    assert of_body == _policy_refusal("Filter policy is too complex")


@pytest.mark.promise("SNS-81")
def test_a_filter_policy_of_attributes_cannot_be_nested(resources: Resources) -> None:
    topic = resources.fifo_topic()
    subscription = topic.subscribe(resources.fifo_queue())
    nested = '{"object": {"key": [{"prefix": "auto-"}]}}'

    refused = refusal(topic.set_subscription, subscription, "FilterPolicy", nested)
    topic.set_subscription(subscription, "FilterPolicyScope", "MessageBody")
    topic.set_subscription(subscription, "FilterPolicy", nested)

    assert refused == invalid_parameter("Filter policy scope MessageAttributes does not support nested filter policy")


@pytest.mark.promise("SNS-82")
def test_an_unknown_filter_policy_scope_is_refused(resources: Resources) -> None:
    topic = resources.fifo_topic()
    subscription = topic.subscribe(resources.fifo_queue())

    assert refusal(topic.set_subscription, subscription, "FilterPolicyScope", "RandomValue") == invalid_parameter(
        "FilterPolicyScope: Invalid value [RandomValue]. Please use either MessageBody or MessageAttributes"
    )


@pytest.mark.promise("SNS-155")
def test_a_binary_attribute_matches_nothing(resources: Resources) -> None:
    queue, topic = resources.fifo_queue(), resources.fifo_topic()
    topic.subscribe(queue, FilterPolicy='{"kind": ["order"]}')

    topic.publish("binary", id="m1", MessageAttributes={"kind": {"DataType": "Binary", "BinaryValue": b"order"}})
    topic.publish("text", id="m2", MessageAttributes=_text("kind", "order"))

    assert bodies(queue.drain(1)) == ["text"]


@pytest.mark.promise("SNS-156")
def test_a_text_is_no_number(resources: Resources) -> None:
    numbers, texts, topic = resources.fifo_queue(), resources.fifo_queue(), resources.fifo_topic()
    topic.subscribe(numbers, FilterPolicy='{"price": [100, {"numeric": [">", 150]}]}')
    topic.subscribe(texts, FilterPolicy='{"price": ["100", {"prefix": "2"}]}')

    topic.publish("number 100", id="m1", MessageAttributes=_number("price", "100"))
    topic.publish("text 100", id="m2", MessageAttributes=_text("price", "100"))
    topic.publish("number 200", id="m3", MessageAttributes=_number("price", "200"))
    topic.publish("text 200", id="m4", MessageAttributes=_text("price", "200"))

    drained = [bodies(messages) for messages in drain_each([numbers, texts], 2)]
    assert drained == [["number 100", "number 200"], ["text 100", "text 200"]]
