"""The language of filter policies: every operator AWS documents, and the policies that AWS refuses.

Examples are AWS's own, from string-value-matching, numeric-value-matching, attribute-key-matching, and-or-logic and
subscription-filter-policy-constraints of the SNS developer guide (read 2026-11-23), or recorded from AWS in
LocalStack's tests/aws/services/sns/test_sns_filter_policy.py (2024-05 to 2025-03).
"""

import json
from typing import Any

import pytest

from sluice.simulator.model import AwsRefusal, filter_policy


def _string(value: str) -> dict[str, Any]:
    return {"DataType": "String", "StringValue": value}


def _array(*values: object) -> dict[str, Any]:
    """Return an attribute that is an array of these values."""
    return _array_text(json.dumps(values))


def _array_text(text: str) -> dict[str, Any]:
    """Return an attribute that is an array, with this JSON as its text."""
    return {"DataType": "String.Array", "StringValue": text}


def _number(value: str) -> dict[str, Any]:
    return {"DataType": "Number", "StringValue": value}


@pytest.mark.parametrize(
    ("rules", "matching", "others"),
    [
        (["rugby", "tennis"], [_string("rugby"), _array("rugby", "golf")], [_string("baseball"), _array("golf")]),
        ([{"prefix": "bas"}], [_string("baseball"), _string("bas")], [_string("rugby"), _string("Bas"), _number("5")]),
        ([{"suffix": "ball"}], [_string("baseball"), _string("ball")], [_string("rugby"), _string("ballet")]),
        ([{"prefix": "1"}], [_string("12")], [_number("12")]),
        (
            [{"equals-ignore-case": "tennis"}],
            [_string("tennis"), _string("TENNIS"), _string("Tennis")],
            [_string("tenni"), _string("baseball")],
        ),
        (
            [{"wildcard": "*ball"}],
            [_string("baseball"), _string("ball")],
            [_string("rugby"), _string("ballet"), _string("BALL")],
        ),
        ([{"wildcard": "*/src/*.js"}], [_string("a/src/b.js")], [_string("a/src/b.jsx"), _string("src/b.js")]),
        ([{"wildcard": "a.c"}], [_string("a.c")], [_string("abc")]),
        (
            [{"cidr": "10.0.0.0/24"}],
            [_string("10.0.0.0"), _string("10.0.0.255")],
            [_string("10.1.1.0"), _string("10.0.0.256"), _string("here"), _string("2001:db8::1")],
        ),
        ([{"anything-but": ["rugby", "tennis"]}], [_string("golf"), _array("rugby", "golf")], [_string("rugby")]),
        ([{"anything-but": "rugby"}], [_string("golf")], [_string("rugby"), _array("rugby")]),
        (
            [{"anything-but": {"prefix": "order-"}}],
            [_string("data-entry"), _string("order_number")],
            [_string("order-cancelled")],
        ),
        ([{"anything-but": {"wildcard": "*ball"}}], [_string("rugby"), _string("ballet")], [_string("baseball")]),
        ([{"anything-but": [100, 500]}], [_number("101"), _number("100.1")], [_number("100"), _number("1e2")]),
        ([{"numeric": ["=", 301.5]}], [_number("301.5"), _number("3.015e2")], [_number("301"), _string("301.5")]),
        ([{"numeric": ["<", 0]}], [_number("-1")], [_number("0"), _number("1")]),
        ([{"numeric": [">", 0, "<=", 150]}], [_number("0.1"), _number("150")], [_number("0"), _number("150.1")]),
        ([100], [_number("100"), _number("1e2")], [_string("100"), _number("101")]),
        ([{"exists": True}], [_string("fans"), _array("a")], []),
        ([{"exists": False}], [], [_string("fans"), _number("0")]),
        ([True, None], [_array_text("[true]"), _array(None, "a")], [_array(1), _array("true"), _string("true")]),
        ([1], [_array(1)], [_array_text("[true]")]),
    ],
)
def test_an_operator_matches_attributes(
    rules: list[Any], matching: list[dict[str, Any]], others: list[dict[str, Any]]
) -> None:
    policy = {"key": rules}

    filter_policy.check_policy(json.dumps(policy), is_of_body=False)

    assert [filter_policy.accepts_attributes(policy, {"key": value}) for value in matching] == [True] * len(matching)
    assert [filter_policy.accepts_attributes(policy, {"key": value}) for value in others] == [False] * len(others)


def test_a_message_without_any_attribute_matches_no_policy() -> None:
    """`exists: false` matches an absent key only if the message has another attribute; other rules never do."""
    other = {"other": _string("x")}

    assert not filter_policy.accepts_attributes({"key": [{"exists": False}]}, {})
    assert filter_policy.accepts_attributes({"key": [{"exists": False}]}, other)
    assert not filter_policy.accepts_attributes({"key": [None, {"anything-but": "whatever"}]}, {})
    assert not filter_policy.accepts_attributes({"key": [None, {"anything-but": "whatever"}]}, other)


def test_a_filter_policy_does_not_see_binary_attributes() -> None:
    binary = {"key": {"DataType": "Binary", "BinaryValue": "AAEC"}}

    assert not filter_policy.accepts_attributes({"key": [{"exists": True}]}, binary)
    assert filter_policy.accepts_attributes({"key": [{"exists": False}]}, binary | {"other": _string("x")})


def test_an_array_whose_text_is_no_json_matches_nothing() -> None:
    torn = {"key": {"DataType": "String.Array", "StringValue": "[torn"}, "other": _string("x")}

    assert not filter_policy.accepts_attributes({"key": [{"anything-but": "a"}]}, torn)


def test_an_empty_policy_lets_everything_through() -> None:
    """AWS's guide removes a policy by setting an empty one."""
    assert filter_policy.accepts_attributes({}, {})
    assert filter_policy.accepts_body({}, "no JSON")


@pytest.mark.parametrize(
    ("policy", "body", "is_accepted"),
    [
        ({"headers": {"route-to": ["q1"]}}, {"headers": {"route-to": ["q1", "q2"]}}, True),
        ({"headers": {"route-to": ["q1"]}}, {"headers": {"route-to": ["q3"]}}, False),
        ({"headers": {"route-to": ["q1"]}}, {"headers": "q1"}, False),
        ({"object.nested": ["v"]}, {"object": {"nested": "v"}}, True),
        ({"object.nested": ["v"]}, {"object.nested": "v"}, True),
        ({"object": {"nested": ["v"]}}, {"object.nested": "v"}, True),
        ({"a.b.c": ["v"]}, {"a.b": {"c": "v"}}, True),
        ({"a": {"b": [{"prefix": "x"}]}}, {"a": [[{"b": "xy"}]]}, True),  # a list of a list of objects
        ({"a": {"b": [{"prefix": "x"}]}}, {"a": [{"b": 5}, {"b": "xy"}]}, True),
        ({"a": [{"numeric": [">", 0]}]}, {"a": [[1], ["b"]]}, True),
        ({"a": [{"numeric": [">", 0]}]}, {"a": [["b"], True]}, False),
        ({"a": [{"exists": True}]}, {"a": {"b": 1}}, False),  # leaves only
        ({"a": [{"exists": True}]}, {"a": None}, False),  # a value that is neither null nor empty
        ({"a": [{"exists": True}]}, {"a": ""}, False),
        ({"a": [{"exists": True}]}, {"a": []}, False),
        ({"a": [{"exists": True}]}, {"a": False}, True),
        ({"a": [{"exists": False}]}, {"b": 1}, True),
        ({"a": [{"exists": False}]}, {"a": 1}, False),
        ({"a": [None]}, {"a": None}, True),
        ({"a": [True]}, {"a": 1}, False),
        ({"a": [1]}, {"a": True}, False),
        ({"a": [""]}, {"a": "", "b": []}, True),
        ({"price": [{"anything-but": [100, 500]}]}, {"price": [100, 50]}, True),
        ({"ip": [{"cidr": "2001:db8:1234:1a00::/64"}]}, {"ip": "2001:0db8:1234:1a00:0:0:0:0"}, True),
        ({"ip": [{"cidr": "2001:db8:1234:1a00::/64"}]}, {"ip": "2001:0db8:123f:1a01::"}, False),
        ({"ip": [{"cidr": "10.0.0.0/24"}]}, {"ip": 167772160}, False),
        ({"a": [{"exists": False}]}, "a string", False),
        ({"a": [{"exists": False}]}, ["a list"], False),
        ({"a": [{"exists": False}]}, 5, False),
    ],
)
def test_a_policy_of_the_body_matches_the_values_at_a_path(
    policy: dict[str, Any], body: Any, *, is_accepted: bool
) -> None:
    filter_policy.check_policy(json.dumps(policy), is_of_body=True)

    assert filter_policy.accepts_body(policy, json.dumps(body)) is is_accepted


def test_a_body_that_is_no_json_is_not_accepted() -> None:
    """100,000 open brackets exceed the recursion limit of Python's parser."""
    assert not filter_policy.accepts_body({"a": [{"exists": False}]}, "no JSON")
    assert not filter_policy.accepts_body({"a": [{"exists": False}]}, "[" * 100_000)


_OR = {
    "$or": [{"metricName": ["CPU", "Latency"]}, {"namespace": ["EC2", "ES"]}],
    "detail": {"scope": ["Service"], "$or": [{"source": ["cloudwatch"]}, {"type": ["Alarm"]}]},
}


@pytest.mark.parametrize(
    ("body", "is_accepted"),
    [
        ({"metricName": "CPU", "detail": {"scope": "Service", "source": "cloudwatch"}}, True),
        ({"namespace": "ES", "detail": {"scope": "Service", "type": "Alarm"}}, True),
        ({"metricName": "CPU", "namespace": "other", "detail": {"scope": "Service", "type": "Alarm"}}, True),
        ({"metricName": "CPU", "detail": {"scope": "Other", "type": "Alarm"}}, False),
        ({"metricName": "CPU", "detail": {"scope": "Service"}}, False),
        ({"metricName": "EC2", "detail": {"scope": "Service", "type": "Alarm"}}, False),
        ({"metricName": "CPU", "detail": {"type": "Alarm"}}, False),
    ],
)
def test_one_side_of_an_or_is_enough(body: dict[str, Any], *, is_accepted: bool) -> None:
    filter_policy.check_policy(json.dumps(_OR), is_of_body=True)

    assert filter_policy.accepts_body(_OR, json.dumps(body)) is is_accepted


@pytest.mark.parametrize(
    "policy",
    [
        {"$or": ["a", "b"]},  # no objects
        {"$or": [{"prefix": "a"}]},  # one of them
        {"$or": [{"prefix": "a"}, {"suffix": "b"}]},  # reserved words
    ],
)
def test_an_or_that_is_no_list_of_policies_is_an_attribute_name(policy: dict[str, Any]) -> None:
    filter_policy.check_policy(json.dumps(policy), is_of_body=False)

    assert filter_policy.accepts_attributes(policy, {"$or": _string("a")})
    assert not filter_policy.accepts_attributes(policy, {"a": _string("a")})


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ({"key": []}, "Empty arrays are not allowed"),
        ({"key": [["value"]]}, "Match value must be String, number, true, false, or null"),
        ({"key": "value"}, '"key" must be an object or an array'),
        ({"key": [{}]}, "Only one key allowed in match expression"),
        ({"key": [{"suffix": "a", "prefix": "b"}]}, "Only one key allowed in match expression"),
        ({"key": [{"other": 1}]}, "Unrecognized match type other"),
        ({"key": [{"suffix": None}]}, "suffix match pattern must be a string"),
        ({"key": [{"wildcard": 5}]}, "wildcard match pattern must be a string"),
        ({"key": [{"equals-ignore-case": ["a"]}]}, "equals-ignore-case match pattern must be a string"),
        ({"key": [{"exists": None}]}, "exists match pattern must be either true or false."),
        ({"key": [{"cidr": ["a"]}]}, "prefix match pattern must be a string"),
        ({"key": [{"cidr": "bad-filter"}]}, "Malformed CIDR, one '/' required"),
        ({"key": [{"cidr": "bad-filter/64"}]}, "Nonstandard IP address: bad-filter"),
        ({"key": [{"cidr": "bad-/64filter"}]}, "Malformed CIDR, mask bits must be an integer"),
        ({"key": [{"cidr": "xxxx:db8:1234:1a00::/64"}]}, "Nonstandard IP address: xxxx:db8:1234:1a00::"),
        ({"key": [{"anything-but": {"suffix": "a"}}]}, "Unsupported anything-but pattern: suffix"),
        ({"key": [{"anything-but": {"exists": False}}]}, "Unsupported anything-but pattern: exists"),
        ({"key": [{"anything-but": {"prefix": False}}]}, "prefix match pattern must be a string"),
        ({"key": [{"anything-but": [["a"]]}]}, "Match value must be String, number, true, false, or null"),
        ({"key": [{"anything-but": {}}]}, "Only one key allowed in match expression"),
        ({"key": [{"numeric": []}]}, "Invalid member in numeric match: ]"),
        ({"key": [{"numeric": 5}]}, "Invalid member in numeric match: 5"),
        ({"key": [{"numeric": ["operator"]}]}, "Unrecognized numeric range operator: operator"),
        ({"key": [{"numeric": [1, "<="]}]}, "Invalid member in numeric match: 1"),
        ({"key": [{"numeric": ["=", "000"]}]}, "Value of equals must be numeric"),
        ({"key": [{"numeric": ["=", True]}]}, "Value of equals must be numeric"),
        ({"key": [{"numeric": [">="]}]}, "Value of >= must be numeric"),
        ({"key": [{"numeric": ["<", 100, ">", 10]}]}, "Too many elements in numeric expression"),
        ({"key": [{"numeric": [">=", 1, ">", 2]}]}, "Bad numeric range operator: >"),
        ({"key": [{"numeric": [">", 3, "<", 1]}]}, "Bottom must be less than top"),
        ({"key": [{"numeric": [">", 20, "<="]}]}, "Value of <= must be numeric"),
        ({"key": [{"numeric": [">", 20, 30]}]}, "Bad value in numeric range: 30"),
        ({"key": [{"numeric": [">", 20, "<", "30"]}]}, "Value of < must be numeric"),
        ({"key": [{"numeric": [">", 20, "<", 30, "<", 50]}]}, "Too many terms in numeric range expression"),
        ({"$or": [{"numeric": 123}, {"prefix": "abc"}]}, "Invalid member in numeric match: 123"),
        ({"key": [str(number) for number in range(151)]}, "Filter policy is too complex"),
        ({"key": [{"wildcard": "*a*b*c*"}]}, "Filter policy is too complex"),
        ({"key": [{"wildcard": "*a"}] * 11}, "Filter policy is too complex"),
        ({"key": [{"wildcard": "*a*"}] * 6}, "Filter policy is too complex"),
        ({key: ["a"] for key in "abcdef"}, "Filter policy can not have more than 5 keys"),
    ],
)
@pytest.mark.parametrize("reason", ["", "Attributes Reason: "])
def test_an_invalid_filter_policy_is_refused(policy: dict[str, Any], text: str, reason: str) -> None:
    """The texts are recorded, except those about wildcards; `Attributes Reason: ` is Subscribe's own beginning."""
    with pytest.raises(AwsRefusal) as refused:
        filter_policy.check_policy(json.dumps(policy), is_of_body=False, reason=reason)

    assert refused.value.text == f"Invalid parameter: {reason}FilterPolicy: {text}"


@pytest.mark.parametrize("text", ['"abc"', "abc", "", "[]", "5", "null", "{", '{"key": ["a"]', "[" * 100_000])
def test_a_policy_that_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(AwsRefusal, match="Invalid parameter: FilterPolicy: "):
        filter_policy.check_policy(text, is_of_body=True)


def test_a_policy_has_at_most_256_kib() -> None:
    policy = {"key": ["a" * 262_144]}

    with pytest.raises(AwsRefusal, match="Invalid parameter: FilterPolicy: "):
        filter_policy.check_policy(json.dumps(policy), is_of_body=False)


def _flat(*, sources: int, spaces: int) -> dict[str, Any]:
    """Return the policy with which LocalStack recorded AWS; it has sources x (6 + 4 x (4 + spaces)) combinations."""
    inner = [{"id": [1, 2, 3, 4]}, {"space": list(range(spaces))}]
    return {
        "source": [str(number) for number in range(sources)],
        "$or": [{"name": list("abcdef")}, {"type": list("abcd"), "$or": inner}],
    }


def test_combinations_are_counted_over_both_sides_of_an_or() -> None:
    """AWS accepts 3 x (6 + 4 x 11) = 150 combinations, and refuses 4 x (6 + 4 x 8) = 152: both are recorded."""
    filter_policy.check_policy(json.dumps(_flat(sources=3, spaces=7)), is_of_body=False)

    with pytest.raises(AwsRefusal, match="Filter policy is too complex"):
        filter_policy.check_policy(json.dumps(_flat(sources=4, spaces=4)), is_of_body=False)


def test_combinations_of_nested_keys_count_their_level() -> None:
    """A list multiplies by its values and by the depth of its key, so `deep` has (3 x 4) x (2 x 3) x (1 x 3) = 216.

    `nested_or` is the policy with 160 combinations that AWS was recorded with; 150 are allowed.
    """
    deep = {"a": {"b": {"c": list("abcd")}}, "d": {"e": list("abc")}, "f": list("abc")}
    nested_or = {
        "$or": [{"name": list("abc")}, {"space": list("ab")}],
        "detail": {"scope": list("ab"), "$or": [{"source": ["a"]}, {"type": list("abc")}]},
    }

    for policy in (deep, nested_or):
        with pytest.raises(AwsRefusal, match="Filter policy is too complex"):
            filter_policy.check_policy(json.dumps(policy), is_of_body=True)


def test_only_the_outermost_keys_count_as_keys_of_a_policy() -> None:
    """A policy may have five keys: this one has two, with six keys below them."""
    policy = {"a": {key: ["x"] for key in "bcd"}, "e": {key: ["x"] for key in "fgh"}}

    filter_policy.check_policy(json.dumps(policy), is_of_body=True)


def test_a_policy_of_attributes_is_not_nested_but_may_have_an_or() -> None:
    filter_policy.check_policy('{"$or": [{"a": ["x"]}, {"b": ["y"]}]}', is_of_body=False)

    with pytest.raises(AwsRefusal, match="does not support nested filter policy"):
        filter_policy.check_policy('{"$or": [{"a": {"c": ["x"]}}, {"b": ["y"]}]}', is_of_body=False)
