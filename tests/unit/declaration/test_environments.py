"""The declaration refuses what cannot be right, in one line that says what to change; what is declared is pinned."""

import math
import re
from dataclasses import asdict, fields, replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice import environments
from sluice.declaration import (
    Consumer,
    Database,
    Encryption,
    Environment,
    ExistingNetwork,
    Gaps,
    NewNetwork,
    Poison,
    Removal,
    naming,
)
from sluice.environments import ENVIRONMENTS, environment
from sluice.errors import ConfigError

BILLING = Consumer(name="billing")
CREDENTIALS_ARN = "arn:aws:secretsmanager:us-east-1:123456789012:secret:sluice/prod/database-AbCdEf"
KEY_ARN = "arn:aws:kms:us-east-1:123456789012:key/0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
VPC, SUBNET, GROUP = "vpc-0a1b2c3d4e5f60718", "subnet-0a1b2c3d4e5f60718", "sg-0a1b2c3d4e5f60718"
EXISTING = ExistingNetwork(vpc_id=VPC, subnet_ids=(SUBNET,))
DATABASE = Database(secret_arn=CREDENTIALS_ARN, security_group_id=GROUP)
DIGEST = "@sha256:" + "0123456789abcdef" * 4

EDIT = "; change it in sluice/environments.py"
NAME_RULE = ", allowed is lower-case letters, digits and single inner hyphens" + EDIT
RESERVED_RULE = (
    ", allowed is a name not ending in 'dlq', 'dead-letter' or 'undelivered', which its DLQs' names end in" + EDIT
)
LABEL_RULE = ", allowed is up to 32 lower-case letters and digits, a letter first" + EDIT
POLICY_RULE = ", allowed is attribute names, each with a list of conditions such as ['eu', {'prefix': 'us-'}]" + EDIT
MODULE_RULE = ", allowed is the name of a Python module such as 'orders.billing', or None" + EDIT
FILTERED_RULE = (
    ", allowed is Poison.SKIP and Gaps.RECORD with a filter policy: it leaves lawful gaps that look like losses" + EDIT
)
IMAGE_RULE = (
    ", allowed is an image with its tag or digest: 'repository:tag' in the environment's own ECR, or a whole URI" + EDIT
)
LATEST_RULE = (
    ", allowed is a tag that stays what it is: a new 'latest' is not deployed, and there is no old one to go back to"
    + EDIT
)
REGISTRY_RULE = ", allowed is an image in ECR in us-east-1: a new network has no way to any other registry" + EDIT
CIDR_RULE = ", allowed is an IPv4 network from /16 to /24 such as '10.0.0.0/16'" + EDIT
TAG_RULE = (
    ", allowed is letters, digits, spaces and . : / = + @ - _; not 'aws:…', 'application' or 'environment' in any case"
    + EDIT
)
PARTITION_RULE = (
    ", allowed is a region of the partition 'aws': the names AWS has in China, GovCloud and isolated regions are not"
    " known here" + EDIT
)
OPERATOR_RULE = (
    ", allowed is one of SNS's operators: anything-but, cidr, equals-ignore-case, exists, numeric, prefix, suffix"
    + EDIT
)
OR_RULE = ", allowed is '$or' with two or more policies, no attribute in them called like an operator" + EDIT
ATTRIBUTE_RULE = (
    ", allowed is '$or' and names a message attribute can have: letters, digits, '_', '-', inner '.'" + EDIT
)
SECRET_RULE = (
    ", allowed is the whole ARN of a Secrets Manager secret, with the six characters AWS appends to its name:"
    " '…:secret:NAME-AbCdEf'" + EDIT
)

CONSUMER_REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "Consumer.name is ''" + NAME_RULE),
    ({"name": "Billing"}, "Consumer.name is 'Billing'" + NAME_RULE),
    ({"name": "2billing"}, "Consumer.name is '2billing'" + NAME_RULE),
    ({"name": "bill_ing"}, "Consumer.name is 'bill_ing'" + NAME_RULE),
    ({"name": "-billing"}, "Consumer.name is '-billing'" + NAME_RULE),
    ({"name": "billing-"}, "Consumer.name is 'billing-'" + NAME_RULE),
    ({"name": "bill--ing"}, "Consumer.name is 'bill--ing'" + NAME_RULE),
    ({"name": "billing.fifo"}, "Consumer.name is 'billing.fifo'" + NAME_RULE),
    ({"name": "bülling"}, "Consumer.name is 'bülling'" + NAME_RULE),
    ({"name": "billing\n"}, "Consumer.name is 'billing\\n'" + NAME_RULE),
    ({"name": "dlq"}, "Consumer.name is 'dlq'" + RESERVED_RULE),
    ({"name": "billing-dlq"}, "Consumer.name is 'billing-dlq'" + RESERVED_RULE),
    ({"name": "billingdlq"}, "Consumer.name is 'billingdlq'" + RESERVED_RULE),
    ({"name": "billing-dead-letter"}, "Consumer.name is 'billing-dead-letter'" + RESERVED_RULE),
    ({"name": "undelivered"}, "Consumer.name is 'undelivered'" + RESERVED_RULE),
    ({"name": "billing-undelivered"}, "Consumer.name is 'billing-undelivered'" + RESERVED_RULE),
    ({"name": "relay"}, "Consumer.name is 'relay', allowed is another name: the relay's service has this one" + EDIT),
    ({"name": "topic"}, "Consumer.name is 'topic', allowed is another name: the topic's alarms have this one" + EDIT),
    (
        {"filter_policy": {}},
        "Consumer('billing').filter_policy is {}, allowed is 1 to 5 attributes, or None" + EDIT,
    ),
    (
        {"filter_policy": {"a": ["1"], "b": ["1"], "c": ["1"], "d": ["1"], "e": ["1"], "f": ["1"]}},
        "Consumer('billing').filter_policy is"
        " {'a': ['1'], 'b': ['1'], 'c': ['1'], 'd': ['1'], 'e': ['1'], 'f': ['1']},"
        " allowed is 1 to 5 attributes, or None" + EDIT,
    ),
    ({"filter_policy": {"": ["eu"]}}, "Consumer('billing').filter_policy is {'': ['eu']}" + ATTRIBUTE_RULE),
    ({"filter_policy": {"region": []}}, "Consumer('billing').filter_policy is {'region': []}" + POLICY_RULE),
    ({"filter_policy": {"r": [math.nan]}}, "Consumer('billing').filter_policy is {'r': [nan]}" + POLICY_RULE),
    ({"filter_policy": {"r": [{}]}}, "Consumer('billing').filter_policy is {'r': [{}]}" + POLICY_RULE),
    *(
        (
            {"filter_policy": {name: ["eu"]}},
            f"Consumer('billing').filter_policy is {{'{name}': ['eu']}}" + ATTRIBUTE_RULE,
        )
        for name in ("$and", "$", "a b", "é", ".a", "a.", "a..b", "AWS.a", "amazon.a", "a" * 257)
    ),
    *(
        ({"filter_policy": {"r": ["eu", one]}}, f"Consumer('billing').filter_policy['r'] is {one!r}" + OPERATOR_RULE)
        for one in ({"prefx": "eu"}, {"wildcard": "eu*"}, {"$or": ["eu"]}, {1: 2})
    ),
    *(
        (
            {"filter_policy": {"r": [{operator: operand}]}},
            f"Consumer('billing').filter_policy['r'] is {{{operator!r}: {operand!r}}}, allowed is {operator!r} with"
            f" {words}" + EDIT,
        )
        for operator, words, operands in (
            ("prefix", "a string", (1, None, ["eu"])),
            ("suffix", "a string", (True, {})),
            ("equals-ignore-case", "a string", (["eu"],)),
            ("exists", "True or False", ("true", 1, None)),
            ("cidr", "a range of addresses such as '10.0.0.0/24'", ("10.0.0.1", "10.0.0.1/24", "here/24", 10)),
            (
                "anything-but",
                "a string, a number, a list of them, or {'prefix': 'us-'}",
                ([], None, [None], [True], {"suffix": "x"}, {"prefix": 1}, {}, math.inf),
            ),
            (
                "numeric",
                "comparisons such as ['>=', 0, '<', 100]",
                (
                    *(5, [], [">"], [">", "1"], ["!=", 1], [">", True], [1, ">"], [">", math.nan]),
                    *([">", 1, "<"], [">", 5, "<", 5], ["<", 1, ">", 5], [">=", 1, "<=", 2, "<", 3]),
                ),
            ),
        )
        for operand in operands
    ),
    *(
        ({"filter_policy": {"$or": one}}, f"Consumer('billing').filter_policy is {{'$or': {one!r}}}" + OR_RULE)
        for one in ([{"a": ["1"]}], ["a", "b"], [{"a": ["1"]}, {}], [{"a": ["1"]}, {"prefix": ["x"]}])
    ),
    (
        {"filter_policy": {"$or": [{"a": ["1"]}, {"b": "1"}]}},
        "Consumer('billing').filter_policy is {'$or': [{'a': ['1']}, {'b': '1'}]}" + POLICY_RULE,
    ),
    (
        {"filter_policy": {"$or": [{"a": ["1"]}, {"b": [{"prefx": "x"}]}]}},
        "Consumer('billing').filter_policy['b'] is {'prefx': 'x'}" + OPERATOR_RULE,
    ),
    (
        {"filter_policy": {"a": (0,) * 50, "$or": [{"b": (0, 1)}, {"c": (0,), "d": (0, 1)}]}},
        f"Consumer('billing').filter_policy is {{'a': {(0,) * 50}, '$or': [{{'b': (0, 1)}},"
        " {'c': (0,), 'd': (0, 1)}]}, allowed is at most 150 combinations of conditions (200 here)" + EDIT,
    ),
    ({"filter_policy": {"r": [b"eu"]}}, "Consumer('billing').filter_policy is {'r': [b'eu']}" + POLICY_RULE),
    ({"filter_policy": {"region": "eu"}}, "Consumer('billing').filter_policy is {'region': 'eu'}" + POLICY_RULE),
    (
        {"filter_policy": {"region": {"prefix": "eu"}}},
        "Consumer('billing').filter_policy is {'region': {'prefix': 'eu'}}" + POLICY_RULE,
    ),
    (
        {"filter_policy": {"a": (0,) * 8, "b": (0,) * 19}},
        "Consumer('billing').filter_policy is {'a': (0, 0, 0, 0, 0, 0, 0, 0),"
        " 'b': (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)},"
        " allowed is at most 150 combinations of conditions (152 here)" + EDIT,
    ),
    (
        {"visibility_timeout_seconds": 0},
        "Consumer('billing').visibility_timeout_seconds is 0, allowed is 1 to 43200 seconds" + EDIT,
    ),
    (
        {"visibility_timeout_seconds": 43_201},
        "Consumer('billing').visibility_timeout_seconds is 43201, allowed is 1 to 43200 seconds" + EDIT,
    ),
    (
        {"visibility_timeout_seconds": 31, "processing_seconds": 1, "stop_timeout_seconds": 30},
        "Consumer('billing').visibility_timeout_seconds is 31, allowed is more than processing_seconds"
        " + stop_timeout_seconds (31), or a stopping task's message is delivered to another while it still works on it"
        + EDIT,
    ),
    (
        {"visibility_timeout_seconds": 31, "processing_seconds": 1.5, "stop_timeout_seconds": 30},
        "Consumer('billing').visibility_timeout_seconds is 31, allowed is more than processing_seconds"
        " + stop_timeout_seconds (31.5), or a stopping task's message is delivered to another while it still works"
        " on it" + EDIT,
    ),
    ({"max_attempts": 0}, "Consumer('billing').max_attempts is 0, allowed is 1 to 1000 receives" + EDIT),
    ({"max_attempts": 1_001}, "Consumer('billing').max_attempts is 1001, allowed is 1 to 1000 receives" + EDIT),
    (
        {"message_retention_seconds": 59},
        "Consumer('billing').message_retention_seconds is 59, allowed is 60 to 1209600 seconds" + EDIT,
    ),
    (
        {"message_retention_seconds": 1_209_601},
        "Consumer('billing').message_retention_seconds is 1209601, allowed is 60 to 1209600 seconds" + EDIT,
    ),
    (
        {"dead_letter_retention_seconds": 59},
        "Consumer('billing').dead_letter_retention_seconds is 59, allowed is 60 to 1209600 seconds" + EDIT,
    ),
    (
        {"dead_letter_retention_seconds": 1_209_601},
        "Consumer('billing').dead_letter_retention_seconds is 1209601, allowed is 60 to 1209600 seconds" + EDIT,
    ),
    (
        {"message_retention_seconds": 345_600, "dead_letter_retention_seconds": 345_599},
        "Consumer('billing').dead_letter_retention_seconds is 345599,"
        " allowed is at least message_retention_seconds (345600)" + EDIT,
    ),
    (
        {"visibility_timeout_seconds": 60, "max_attempts": 50, "message_retention_seconds": 3_600},
        "Consumer('billing').message_retention_seconds is 3600,"
        " allowed is more than 14760, which max_attempts (50) may take with visibility_timeout_seconds (60) each, or a"
        " wait of up to 300 s between two, or a failing message expires before it is dead-lettered; raise it, or lower"
        " max_attempts" + EDIT,
    ),
    (
        {"visibility_timeout_seconds": 600, "max_attempts": 5, "message_retention_seconds": 3_000},
        "Consumer('billing').message_retention_seconds is 3000,"
        " allowed is more than 3000, which max_attempts (5) may take with visibility_timeout_seconds (600) each, or a"
        " wait of up to 300 s between two, or a failing message expires before it is dead-lettered; raise it, or lower"
        " max_attempts" + EDIT,
    ),
    (
        {"processing_seconds": 0},
        "Consumer('billing').processing_seconds is 0, allowed is more than 0, at most 43200 seconds" + EDIT,
    ),
    (
        {"processing_seconds": -0.5},
        "Consumer('billing').processing_seconds is -0.5, allowed is more than 0, at most 43200 seconds" + EDIT,
    ),
    (
        {"processing_seconds": 43_201},
        "Consumer('billing').processing_seconds is 43201, allowed is more than 0, at most 43200 seconds" + EDIT,
    ),
    (
        {"processing_seconds": math.nan},
        "Consumer('billing').processing_seconds is nan, allowed is more than 0, at most 43200 seconds" + EDIT,
    ),
    (
        {"processing_seconds": math.inf},
        "Consumer('billing').processing_seconds is inf, allowed is more than 0, at most 43200 seconds" + EDIT,
    ),
    (
        {"acceptable_latency_seconds": 1, "processing_seconds": 1.5},
        "Consumer('billing').acceptable_latency_seconds is 1, allowed is at least processing_seconds (1.5)"
        " and less than half of message_retention_seconds (172800)" + EDIT,
    ),
    (
        {"acceptable_latency_seconds": 172_800},
        "Consumer('billing').acceptable_latency_seconds is 172800, allowed is at least processing_seconds (1)"
        " and less than half of message_retention_seconds (172800)" + EDIT,
    ),
    (
        {"acceptable_latency_seconds": 3_001, "processing_seconds": 1, "lanes": 4, "max_tasks": 10},
        "Consumer('billing').acceptable_latency_seconds is 3001, allowed is a target backlog (latency x lanes"
        " / processing_seconds) x max_tasks of at most 120000 messages (120040 here): behind more, SQS finds no further"
        " groups" + EDIT,
    ),
    ({"lanes": 0}, "Consumer('billing').lanes is 0, allowed is 1 to 120000 message groups" + EDIT),
    ({"lanes": 120_001}, "Consumer('billing').lanes is 120001, allowed is 1 to 120000 message groups" + EDIT),
    ({"expected_groups": 0}, "Consumer('billing').expected_groups is 0, allowed is 1 or more" + EDIT),
    ({"max_tasks": 0}, "Consumer('billing').max_tasks is 0, allowed is 1 to 5000 tasks" + EDIT),
    ({"max_tasks": 5_001}, "Consumer('billing').max_tasks is 5001, allowed is 1 to 5000 tasks" + EDIT),
    (
        {"max_tasks": 4, "expected_groups": 9, "lanes": 3},
        "Consumer('billing').max_tasks is 4, allowed is at most expected_groups / lanes (3): a group is worked on by"
        " one lane at a time, so further tasks never have work" + EDIT,
    ),
    ({"min_tasks": -1}, "Consumer('billing').min_tasks is -1, allowed is 0 to 10 tasks (max_tasks)" + EDIT),
    (
        {"min_tasks": 4, "max_tasks": 3},
        "Consumer('billing').min_tasks is 4, allowed is 0 to 3 tasks (max_tasks)" + EDIT,
    ),
    (
        {"min_tasks": 0, "acceptable_latency_seconds": 1_199, "max_tasks": 1},
        "Consumer('billing').min_tasks is 0, allowed is 1 or more while acceptable_latency_seconds (1199) is under"
        " 1200: an idle queue's metrics, which wake it, come up to 15 minutes late" + EDIT,
    ),
    (
        {"stop_timeout_seconds": 0},
        "Consumer('billing').stop_timeout_seconds is 0, allowed is 1 to 120 seconds" + EDIT,
    ),
    (
        {"stop_timeout_seconds": 121, "visibility_timeout_seconds": 600},
        "Consumer('billing').stop_timeout_seconds is 121, allowed is 1 to 120 seconds" + EDIT,
    ),
    ({"cpu": 300}, "Consumer('billing').cpu is 300, allowed is one of 256, 512, 1024, 2048, 4096, 8192, 16384" + EDIT),
    (
        {"cpu": 256, "memory_mib": 4_096},
        "Consumer('billing').memory_mib is 4096, allowed is with cpu 256 one of 512, 1024, 2048" + EDIT,
    ),
    ({"image": ""}, "Consumer('billing').image is ''" + IMAGE_RULE),
    ({"image": "worker"}, "Consumer('billing').image is 'worker'" + IMAGE_RULE),
    ({"image": "worker:"}, "Consumer('billing').image is 'worker:'" + IMAGE_RULE),
    ({"image": ":1"}, "Consumer('billing').image is ':1'" + IMAGE_RULE),
    ({"image": "worker:latest"}, "Consumer('billing').image is 'worker:latest'" + LATEST_RULE),
    ({"image": "Worker:1"}, "Consumer('billing').image is 'Worker:1'" + IMAGE_RULE),
    ({"image": "worker:a b"}, "Consumer('billing').image is 'worker:a b'" + IMAGE_RULE),
    ({"image": "worker:1\n"}, "Consumer('billing').image is 'worker:1\\n'" + IMAGE_RULE),
    ({"image": "localhost:5000/worker:1"}, "Consumer('billing').image is 'localhost:5000/worker:1'" + IMAGE_RULE),
    ({"image": "worker:1@sha256:0"}, "Consumer('billing').image is 'worker:1@sha256:0'" + IMAGE_RULE),
    ({"image": "a//b:1"}, "Consumer('billing').image is 'a//b:1'" + IMAGE_RULE),
    ({"image": "a:b:1"}, "Consumer('billing').image is 'a:b:1'" + IMAGE_RULE),
    ({"image": "worker@sha256:0123"}, "Consumer('billing').image is 'worker@sha256:0123'" + IMAGE_RULE),
    ({"handlers": "orders/billing.py"}, "Consumer('billing').handlers is 'orders/billing.py'" + MODULE_RULE),
    ({"handlers": ""}, "Consumer('billing').handlers is ''" + MODULE_RULE),
    ({"handlers": "orders."}, "Consumer('billing').handlers is 'orders.'" + MODULE_RULE),
    (
        {"poison": Poison.PARK},
        "Consumer('billing').gaps is <Gaps.RECORD: 'record'>, allowed is Gaps.WAIT or Gaps.HALT with Poison.PARK: what"
        " kills its worker at every try is dead-lettered by the queue alone, and shows only as a missing number" + EDIT,
    ),
    (
        {"poison": Poison.PARK, "gaps": Gaps.HALT, "filter_policy": {"region": ["eu"]}},
        "Consumer('billing').poison is <Poison.PARK: 'park'>" + FILTERED_RULE,
    ),
    (
        {"gaps": Gaps.WAIT, "filter_policy": {"region": ["eu"]}},
        "Consumer('billing').gaps is <Gaps.WAIT: 'wait'>" + FILTERED_RULE,
    ),
    ({"gap_wait_seconds": 0}, "Consumer('billing').gap_wait_seconds is 0, allowed is 1 to 86400 seconds" + EDIT),
    (
        {"joined_at": datetime.fromisoformat("2026-11-22")},
        "Consumer('billing').joined_at is datetime.datetime(2026, 11, 22, 0, 0), allowed is an instant with its time"
        " zone, such as datetime(2026, 11, 22, tzinfo=UTC), or None" + EDIT,
    ),
    (
        {"gap_wait_seconds": 86_401},
        "Consumer('billing').gap_wait_seconds is 86401, allowed is 1 to 86400 seconds" + EDIT,
    ),
    (
        {
            "message_retention_seconds": 3_600,
            "dead_letter_retention_seconds": 7_200,
            "inbox_retention_seconds": 14_400,
        },
        "Consumer('billing').inbox_retention_seconds is 14400, allowed is more than 2 x message_retention_seconds +"
        " dead_letter_retention_seconds (14400), the way of a message through the queue, its DLQ and back, and at most"
        " 315360000" + EDIT,
    ),
]

ENVIRONMENT_REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "Environment.name is ''" + LABEL_RULE),
    ({"name": "Dev"}, "Environment.name is 'Dev'" + LABEL_RULE),
    ({"name": "1dev"}, "Environment.name is '1dev'" + LABEL_RULE),
    ({"name": "dev-eu"}, "Environment.name is 'dev-eu'" + LABEL_RULE),
    ({"name": "dev\n"}, "Environment.name is 'dev\\n'" + LABEL_RULE),
    ({"name": "e" * 33}, "Environment.name is 'eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee'" + LABEL_RULE),
    ({"topic": ""}, "Environment.topic is ''" + LABEL_RULE),
    ({"topic": "events.fifo"}, "Environment.topic is 'events.fifo'" + LABEL_RULE),
    ({"topic": "t" * 33}, "Environment.topic is 'ttttttttttttttttttttttttttttttttt'" + LABEL_RULE),
    (
        {"account": "12345678901"},
        "Environment('dev').account is '12345678901', allowed is twelve digits, or None for the caller's account"
        + EDIT,
    ),
    (
        {"account": "my-account"},
        "Environment('dev').account is 'my-account', allowed is twelve digits, or None for the caller's account" + EDIT,
    ),
    (
        {"region": "europe"},
        "Environment('dev').region is 'europe', allowed is a region name such as 'eu-central-1'" + EDIT,
    ),
    (
        {"region": "eu-central-\u0661"},
        "Environment('dev').region is 'eu-central-\u0661', allowed is a region name such as 'eu-central-1'" + EDIT,
    ),
    (
        {"consumers": (BILLING, Consumer(name="audit", image="ghcr.io/worker:1"))},
        "Consumer('audit').image is 'ghcr.io/worker:1'" + REGISTRY_RULE,
    ),
    (
        {"alarm_emails": ("ops@example.com", "ops@example.com")},
        "Environment('dev').alarm_emails is ('ops@example.com', 'ops@example.com'), allowed is each address once"
        + EDIT,
    ),
    (
        {"region": "eu-central-1a"},
        "Environment('dev').region is 'eu-central-1a', allowed is a region name such as 'eu-central-1'" + EDIT,
    ),
    *(
        ({"region": region}, f"Environment('dev').region is '{region}'" + PARTITION_RULE)
        for region in ("cn-north-1", "us-gov-west-1", "us-iso-east-1", "us-isob-east-1", "eu-isoe-west-1")
    ),
    (
        {"database": DATABASE, "region": "eu-west-1"},
        f"Database.secret_arn is '{CREDENTIALS_ARN}', allowed is an ARN in eu-west-1, the region of environment 'dev'"
        + EDIT,
    ),
    (
        {"database": replace(DATABASE, secret_key_arn=KEY_ARN.replace("us-east-1", "us-east-2"))},
        f"Database.secret_key_arn is '{KEY_ARN.replace('us-east-1', 'us-east-2')}', allowed is an ARN in us-east-1,"
        " the region of environment 'dev'" + EDIT,
    ),
    (
        {"database": DATABASE, "account": "210987654321"},
        f"Database.secret_arn is '{CREDENTIALS_ARN}', allowed is a secret of account 210987654321, or one with a"
        " secret_key_arn: without a key of its own no other account reads it" + EDIT,
    ),
    ({"consumers": ()}, "Environment('dev').consumers is (), allowed is at least one Consumer" + EDIT),
    (
        {"consumers": (BILLING, Consumer(name="audit"), Consumer(name="billing", max_attempts=9))},
        "Environment('dev').consumers is ['billing', 'audit', 'billing'], allowed is each consumer name once,"
        " hyphens not counted" + EDIT,
    ),
    (
        {"consumers": (Consumer(name="a1"), Consumer(name="a-1"))},
        "Environment('dev').consumers is ['a1', 'a-1'], allowed is each consumer name once, hyphens not counted" + EDIT,
    ),
    ({"archive_days": 0}, "Environment('dev').archive_days is 0, allowed is 1 to 365 days, or None" + EDIT),
    ({"archive_days": 366}, "Environment('dev').archive_days is 366, allowed is 1 to 365 days, or None" + EDIT),
    (
        {"archive_days": 7, "removal": Removal.DESTROY},
        "Environment('dev').archive_days is 7, allowed is None with Removal.DESTROY: AWS refuses to delete a topic that"
        " archives" + EDIT,
    ),
    ({"image": "worker"}, "Environment('dev').image is 'worker'" + IMAGE_RULE),
    ({"image": "worker:latest"}, "Environment('dev').image is 'worker:latest'" + LATEST_RULE),
    ({"image": "docker.io/worker:1"}, "Environment('dev').image is 'docker.io/worker:1'" + REGISTRY_RULE),
    (
        {"image": "123456789012.dkr.ecr.eu-west-1.amazonaws.com/worker:1"},
        "Environment('dev').image is '123456789012.dkr.ecr.eu-west-1.amazonaws.com/worker:1'" + REGISTRY_RULE,
    ),
    (
        {"relay": True},
        "Environment('dev').relay is True, allowed is False without a database: the relay reads the outbox there"
        + EDIT,
    ),
    (
        {"outbox_lag_seconds": 9},
        "Environment('dev').outbox_lag_seconds is 9, allowed is 10 to 86400 seconds" + EDIT,
    ),
    (
        {"outbox_lag_seconds": 86_401},
        "Environment('dev').outbox_lag_seconds is 86401, allowed is 10 to 86400 seconds" + EDIT,
    ),
    (
        {"log_retention_days": 2},
        "Environment('dev').log_retention_days is 2, allowed is one of 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365,"
        " 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653 days" + EDIT,
    ),
    ({"alarm_emails": ("ops",)}, "Environment('dev').alarm_emails is 'ops', allowed is e-mail addresses" + EDIT),
    (
        {"alarm_emails": ("ops@example.com", "on call@example.com")},
        "Environment('dev').alarm_emails is 'on call@example.com', allowed is e-mail addresses" + EDIT,
    ),
    (
        {"alarm_emails": ("ops@localhost",)},
        "Environment('dev').alarm_emails is 'ops@localhost', allowed is e-mail addresses" + EDIT,
    ),
    ({"tags": {"": "x"}}, "Environment('dev').tags is {'': 'x'}" + TAG_RULE),
    ({"tags": {"team": "a*b"}}, "Environment('dev').tags is {'team': 'a*b'}" + TAG_RULE),
    ({"tags": {"owner": "me", "te\nam": "x"}}, "Environment('dev').tags is {'te\\nam': 'x'}" + TAG_RULE),
    ({"tags": {"Aws:team": "x"}}, "Environment('dev').tags is {'Aws:team': 'x'}" + TAG_RULE),
    ({"tags": {"application": "x"}}, "Environment('dev').tags is {'application': 'x'}" + TAG_RULE),
    ({"tags": {"environment": "x"}}, "Environment('dev').tags is {'environment': 'x'}" + TAG_RULE),
    ({"tags": {"Application": "x"}}, "Environment('dev').tags is {'Application': 'x'}" + TAG_RULE),
    ({"tags": {"ENVIRONMENT": "x"}}, "Environment('dev').tags is {'ENVIRONMENT': 'x'}" + TAG_RULE),
    ({"tags": {"team": "aWS:x"}}, "Environment('dev').tags is {'team': 'aWS:x'}" + TAG_RULE),
    (
        {"tags": {"team": "x", "Team": "x"}},
        "Environment('dev').tags is ['team', 'Team'], allowed is each key once, in any case: IAM takes 'Team' and"
        " 'team' for one" + EDIT,
    ),
    (
        {"tags": {f"key{number}": "" for number in range(46)}},
        "Environment('dev').tags is '46 tags', allowed is at most 45: AWS takes 50 on a resource, and Sluice and CDK"
        " add up to 5" + EDIT,
    ),
    ({"tags": {"k" * 129: ""}}, f"Environment('dev').tags is {{'{'k' * 129}': ''}}" + TAG_RULE),
    ({"tags": {"k": "v" * 257}}, f"Environment('dev').tags is {{'k': '{'v' * 257}'}}" + TAG_RULE),
]

NEW_NETWORK_REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"cidr": "10.0.0.0/15"}, "NewNetwork.cidr is '10.0.0.0/15'" + CIDR_RULE),
    ({"cidr": "10.0.0.0/25"}, "NewNetwork.cidr is '10.0.0.0/25'" + CIDR_RULE),
    ({"cidr": "10.0.0.1/16"}, "NewNetwork.cidr is '10.0.0.1/16'" + CIDR_RULE),
    ({"cidr": "10.0.0.0/255.255.0.0"}, "NewNetwork.cidr is '10.0.0.0/255.255.0.0'" + CIDR_RULE),
    ({"cidr": "10.0.0.0"}, "NewNetwork.cidr is '10.0.0.0'" + CIDR_RULE),
    ({"cidr": "fd00::/16"}, "NewNetwork.cidr is 'fd00::/16'" + CIDR_RULE),
    ({"cidr": ""}, "NewNetwork.cidr is ''" + CIDR_RULE),
    ({"availability_zones": 0}, "NewNetwork.availability_zones is 0, allowed is 1 to 3 zones" + EDIT),
    ({"availability_zones": 4}, "NewNetwork.availability_zones is 4, allowed is 1 to 3 zones" + EDIT),
]

EXISTING_NETWORK_REFUSALS: list[tuple[dict[str, Any], str]] = [
    (
        {"vpc_id": "10.0.0.0/16"},
        "ExistingNetwork.vpc_id is '10.0.0.0/16', allowed is a VPC id such as 'vpc-0a1b2c3d4e5f60718'" + EDIT,
    ),
    (
        {"vpc_id": "vpc-0A1B2C3D"},
        "ExistingNetwork.vpc_id is 'vpc-0A1B2C3D', allowed is a VPC id such as 'vpc-0a1b2c3d4e5f60718'" + EDIT,
    ),
    (
        {"subnet_ids": ()},
        "ExistingNetwork.subnet_ids is (), allowed is one or more subnet ids such as 'subnet-0a1b2c3d4e5f60718',"
        " each once" + EDIT,
    ),
    (
        {"subnet_ids": (SUBNET, SUBNET)},
        "ExistingNetwork.subnet_ids is ('subnet-0a1b2c3d4e5f60718', 'subnet-0a1b2c3d4e5f60718'), allowed is one or more"
        " subnet ids such as 'subnet-0a1b2c3d4e5f60718', each once" + EDIT,
    ),
    (
        {"subnet_ids": (SUBNET, VPC)},
        "ExistingNetwork.subnet_ids is ('subnet-0a1b2c3d4e5f60718', 'vpc-0a1b2c3d4e5f60718'), allowed is one or more"
        " subnet ids such as 'subnet-0a1b2c3d4e5f60718', each once" + EDIT,
    ),
]

DATABASE_REFUSALS: list[tuple[dict[str, Any], str]] = [
    (
        {"secret_arn": "sluice/prod/database"},
        "Database.secret_arn is 'sluice/prod/database'" + SECRET_RULE,
    ),
    *(
        ({"secret_arn": arn}, f"Database.secret_arn is '{arn}'" + SECRET_RULE)
        for arn in (
            CREDENTIALS_ARN.removesuffix("-AbCdEf"),
            CREDENTIALS_ARN.removesuffix("f"),
            CREDENTIALS_ARN + "-??????",
            CREDENTIALS_ARN.replace("arn:aws:", "arn:aws-cn:"),
        )
    ),
    (
        {"secret_key_arn": KEY_ARN.replace("arn:aws:", "arn:aws-us-gov:")},
        f"Database.secret_key_arn is '{KEY_ARN.replace('arn:aws:', 'arn:aws-us-gov:')}', allowed is the whole ARN of a"
        " KMS key, or None" + EDIT,
    ),
    (
        {"secret_arn": KEY_ARN},
        "Database.secret_arn is 'arn:aws:kms:us-east-1:123456789012:key/0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9'"
        + SECRET_RULE,
    ),
    (
        {"security_group_id": "database"},
        "Database.security_group_id is 'database', allowed is a security group id such as 'sg-0a1b2c3d4e5f60718'"
        + EDIT,
    ),
    ({"port": 0}, "Database.port is 0, allowed is 1 to 65535" + EDIT),
    ({"port": 65_536}, "Database.port is 65536, allowed is 1 to 65535" + EDIT),
    (
        {"secret_key_arn": "alias/database"},
        "Database.secret_key_arn is 'alias/database', allowed is the whole ARN of a KMS key, or None" + EDIT,
    ),
]


@pytest.mark.parametrize(("changes", "message"), CONSUMER_REFUSALS)
def test_a_consumer_refuses_what_cannot_be_right(changes: dict[str, Any], message: str) -> None:
    """One line names the field, the value seen, the values allowed and the file to edit."""
    with pytest.raises(ConfigError) as refused:
        Consumer(**{"name": "billing"} | changes)

    assert str(refused.value) == message
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(("changes", "message"), ENVIRONMENT_REFUSALS)
def test_an_environment_refuses_what_cannot_be_right(changes: dict[str, Any], message: str) -> None:
    """One line names the field, the value seen, the values allowed and the file to edit."""
    with pytest.raises(ConfigError) as refused:
        Environment(**{"name": "dev", "consumers": (BILLING,)} | changes)

    assert str(refused.value) == message
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(("changes", "message"), NEW_NETWORK_REFUSALS)
def test_a_new_network_refuses_what_cannot_be_right(changes: dict[str, Any], message: str) -> None:
    """Only IPv4 networks a VPC may have, written with their own first address, and the zones subnets are cut for."""
    with pytest.raises(ConfigError) as refused:
        NewNetwork(**changes)

    assert str(refused.value) == message


@pytest.mark.parametrize(("changes", "message"), EXISTING_NETWORK_REFUSALS)
def test_an_existing_network_refuses_what_cannot_be_right(changes: dict[str, Any], message: str) -> None:
    """Ids of what they name, and one subnet at least."""
    with pytest.raises(ConfigError) as refused:
        ExistingNetwork(**{"vpc_id": VPC, "subnet_ids": (SUBNET,)} | changes)

    assert str(refused.value) == message


@pytest.mark.parametrize(("changes", "message"), DATABASE_REFUSALS)
def test_a_database_refuses_what_cannot_be_right(changes: dict[str, Any], message: str) -> None:
    """Whole ARNs, because IAM allows by them, and a port."""
    with pytest.raises(ConfigError) as refused:
        Database(**{"secret_arn": CREDENTIALS_ARN, "security_group_id": GROUP} | changes)

    assert str(refused.value) == message


RIGHT: dict[type[Any], dict[str, Any]] = {
    Consumer: {"name": "billing"},
    Environment: {"name": "dev", "consumers": (BILLING,)},
    NewNetwork: {},
    ExistingNetwork: {"vpc_id": VPC, "subnet_ids": (SUBNET,)},
    Database: {"secret_arn": CREDENTIALS_ARN, "security_group_id": GROUP},
}


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (Consumer, {"name": None}, "Consumer(None).name is None, allowed is a value of type str"),
        (Consumer, {"lanes": "4"}, "Consumer('billing').lanes is '4', allowed is a value of type int"),
        (Consumer, {"lanes": 2.5}, "Consumer('billing').lanes is 2.5, allowed is a value of type int"),
        (Consumer, {"lanes": 4.0}, "Consumer('billing').lanes is 4.0, allowed is a value of type int"),
        (Consumer, {"max_tasks": True}, "Consumer('billing').max_tasks is True, allowed is a value of type int"),
        (
            Consumer,
            {"max_attempts": None},
            "Consumer('billing').max_attempts is None, allowed is a value of type int",
        ),
        (
            Consumer,
            {"processing_seconds": "1"},
            "Consumer('billing').processing_seconds is '1', allowed is a value of type float",
        ),
        (
            Consumer,
            {"processing_seconds": True},
            "Consumer('billing').processing_seconds is True, allowed is a value of type float",
        ),
        (Consumer, {"cpu": 256.0}, "Consumer('billing').cpu is 256.0, allowed is a value of type int"),
        (Consumer, {"image": 1}, "Consumer('billing').image is 1, allowed is a value of type str | None"),
        (
            Consumer,
            {"filter_policy": ["eu"]},
            "Consumer('billing').filter_policy is ['eu'],"
            " allowed is a value of type Mapping[str, Sequence[object]] | None",
        ),
        (
            Consumer,
            {"filter_policy": {1: ["eu"]}},
            "Consumer('billing').filter_policy is {1: ['eu']},"
            " allowed is a value of type Mapping[str, Sequence[object]] | None",
        ),
        (
            Environment,
            {"consumers": ("billing",)},
            "Environment('dev').consumers is ('billing',), allowed is a value of type tuple[Consumer, ...]",
        ),
        (
            Environment,
            {"account": 123456789012},
            "Environment('dev').account is 123456789012, allowed is a value of type str | None",
        ),
        (
            Environment,
            {"removal": "retain"},
            "Environment('dev').removal is 'retain', allowed is a value of type Removal",
        ),
        (
            Environment,
            {"encryption": "cmk"},
            "Environment('dev').encryption is 'cmk', allowed is a value of type Encryption",
        ),
        (
            Environment,
            {"relay": "no"},
            "Environment('dev').relay is 'no', allowed is a value of type bool",
        ),
        (
            Environment,
            {"network": "vpc-1"},
            "Environment('dev').network is 'vpc-1', allowed is a value of type NewNetwork | ExistingNetwork",
        ),
        (
            Environment,
            {"alarm_emails": "a@b.cc"},
            "Environment('dev').alarm_emails is 'a@b.cc', allowed is a value of type tuple[str, ...]",
        ),
        (
            Environment,
            {"tags": {"team": 1}},
            "Environment('dev').tags is {'team': 1}, allowed is a value of type Mapping[str, str]",
        ),
        (NewNetwork, {"cidr": None}, "NewNetwork.cidr is None, allowed is a value of type str"),
        (
            NewNetwork,
            {"availability_zones": 2.5},
            "NewNetwork.availability_zones is 2.5, allowed is a value of type int",
        ),
        (
            ExistingNetwork,
            {"subnet_ids": SUBNET},
            "ExistingNetwork.subnet_ids is 'subnet-0a1b2c3d4e5f60718', allowed is a value of type tuple[str, ...]",
        ),
        (
            Database,
            {"port": "5432"},
            "Database.port is '5432', allowed is a value of type int",
        ),
    ],
)
def test_a_value_of_another_type_is_refused_like_any_other(
    kind: type[Any], changes: dict[str, Any], message: str
) -> None:
    """In one line, before any relation trips over it; True is no number, 4.0 no whole number, and 1 a float."""
    with pytest.raises(ConfigError) as refused:
        kind(**RIGHT[kind] | changes)

    assert str(refused.value) == message + EDIT


_ANYTHING = st.sampled_from(
    [None, True, "4", 2.5, 4.0, math.nan, math.inf, -1, 10**400, b"x", [], {}, (), 1 + 2j, object, ["x"], (1,), {1: 2}]
)


@settings(deadline=None, database=None, print_blob=True)
@given(
    kind=st.sampled_from([Consumer, Environment, NewNetwork, ExistingNetwork, Database]),
    value=_ANYTHING,
    data=st.data(),
)
def test_anything_at_all_is_accepted_or_refused_in_one_line(
    kind: type[Any], value: object, data: st.DataObject
) -> None:
    """No field of any value answers a wrong type with a traceback."""
    name = data.draw(st.sampled_from([one.name for one in fields(kind)]))

    refusal = _refusal(kind, RIGHT[kind] | {name: value})

    assert refusal is None or (refusal.endswith(EDIT) and len(refusal.splitlines()) == 1 and name in refusal)


def test_every_field_that_can_be_wrong_is_refused_above() -> None:
    """A field nobody refuses anything of is one of the few whose every value of its type is right."""
    refused = {
        Consumer: {name for changes, _ in CONSUMER_REFUSALS for name in changes},
        Environment: {name for changes, _ in ENVIRONMENT_REFUSALS for name in changes},
        NewNetwork: {name for changes, _ in NEW_NETWORK_REFUSALS for name in changes},
        ExistingNetwork: {name for changes, _ in EXISTING_NETWORK_REFUSALS for name in changes},
        Database: {name for changes, _ in DATABASE_REFUSALS for name in changes},
    }

    never = {f"{kind.__name__}.{one.name}" for kind, names in refused.items() for one in fields(kind)} - {
        f"{kind.__name__}.{name}" for kind, names in refused.items() for name in names
    }
    assert never == {
        "Environment.encryption",
        "Environment.network",
        "NewNetwork.restrict_default_security_group",
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "b"},
        {"name": "billing-2-eu"},
        {"name": "dlq-reader"},
        {"name": "undelivered-reader"},
        {"name": "dead-letters"},
        {"name": "relay-2"},
        {"filter_policy": {"a": ["1"], "b": ["1"], "c": ["1"], "d": ["1"], "e": ["1"]}},
        {"filter_policy": {"a": tuple(range(10)), "b": tuple(range(15))}},
        {"filter_policy": {"a": list(range(150))}},
        {"filter_policy": {"region": ["eu", {"prefix": "us-"}], "amount": [{"numeric": [">", 0]}, None, True]}},
        {"filter_policy": {"a" * 256: [None], "a_-.b": [True], "prefix": [0.5]}},
        {"filter_policy": {"r": [{"prefix": ""}, {"suffix": "x"}, {"equals-ignore-case": "x"}, {"exists": False}]}},
        {"filter_policy": {"r": [{"cidr": "10.0.0.0/24"}, {"cidr": "2001:db8::/32"}]}},
        {"filter_policy": {"r": [{"anything-but": one} for one in ("x", 1, ["x", 1], {"prefix": "x"})]}},
        {"filter_policy": {"r": [{"numeric": one} for one in (["=", 0], ["<=", 1], [">", -1.5, "<=", 2])]}},
        {"filter_policy": {"a": (0,) * 50, "$or": [{"b": ["x"]}, {"c": ["x"], "$or": [{"d": [1]}, {"e": [1]}]}]}},
        {"visibility_timeout_seconds": 2, "processing_seconds": 0.99, "stop_timeout_seconds": 1},
        {"visibility_timeout_seconds": 32, "processing_seconds": 1, "stop_timeout_seconds": 30},
        {"visibility_timeout_seconds": 43_200, "max_attempts": 7},
        {"max_attempts": 1},
        {"max_attempts": 1_000, "visibility_timeout_seconds": 60},
        {
            "message_retention_seconds": 60,
            "dead_letter_retention_seconds": 60,
            "visibility_timeout_seconds": 11,
            "stop_timeout_seconds": 1,
            "acceptable_latency_seconds": 29,
            "max_attempts": 1,
        },
        {"message_retention_seconds": 1_209_600, "dead_letter_retention_seconds": 1_209_600},
        {"message_retention_seconds": 1_261, "visibility_timeout_seconds": 60, "max_attempts": 5},
        {"processing_seconds": 0.03, "acceptable_latency_seconds": 1},
        {
            "processing_seconds": 43_198.5,
            "visibility_timeout_seconds": 43_200,
            "stop_timeout_seconds": 1,
            "acceptable_latency_seconds": 43_199,
            "max_attempts": 1,
        },
        {"acceptable_latency_seconds": 1, "processing_seconds": 1},
        {"acceptable_latency_seconds": 172_799, "processing_seconds": 25, "lanes": 1},
        {"acceptable_latency_seconds": 3_000, "processing_seconds": 1, "lanes": 4, "max_tasks": 10},
        {"acceptable_latency_seconds": 120_000, "processing_seconds": 1, "lanes": 1, "max_tasks": 1},
        {"lanes": 1},
        {"lanes": 120_000, "acceptable_latency_seconds": 1, "max_tasks": 1},
        {"expected_groups": 1, "max_tasks": 1},
        {"expected_groups": 10, "lanes": 3, "max_tasks": 4},
        {"max_tasks": 5_000, "expected_groups": 5_000, "lanes": 1, "acceptable_latency_seconds": 24},
        {"max_tasks": 1, "min_tasks": 1},
        {"min_tasks": 10, "max_tasks": 10},
        {"min_tasks": 0, "acceptable_latency_seconds": 1_200},
        {"stop_timeout_seconds": 1},
        {"stop_timeout_seconds": 120, "visibility_timeout_seconds": 122},
        {"image": None},
        {"image": "w:1"},
        {"image": "team/sluice-worker:2026-11-21_rc.1"},
        {"image": "worker" + DIGEST},
        {"image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/worker:1"},
    ],
)
def test_a_consumer_may_be_at_its_bounds(changes: dict[str, Any]) -> None:
    """Every bound is itself allowed, and so is the first value beyond a relation."""
    made = Consumer(**{"name": "billing"} | changes)

    assert {name: getattr(made, name) for name in changes} == changes


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "e" * 32},
        {"name": "e2"},
        {"topic": "t" * 32},
        {"account": None},
        {"account": "123456789012"},
        {"region": "eu-central-1"},
        {"region": "ap-southeast-5"},
        {"consumers": (BILLING,)},
        {"consumers": (Consumer(name="a1"), Consumer(name="a-2"))},
        {"removal": Removal.DESTROY},
        {"removal": Removal.DESTROY, "archive_days": None},
        {"archive_days": 1},
        {"archive_days": 365},
        {"encryption": Encryption.CMK},
        {"image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/worker:1"},
        {"image": "worker:1.4"},
        {"network": EXISTING, "image": "docker.io/sluice/worker:1"},
        {"network": EXISTING, "consumers": (Consumer(name="billing", image="ghcr.io/worker" + DIGEST),)},
        {"relay": True, "database": DATABASE},
        {"relay": False, "database": DATABASE},
        {"account": "123456789012", "database": DATABASE},
        {"account": "123456789012", "database": replace(DATABASE, secret_key_arn=KEY_ARN.replace("1234", "4321"))},
        {"account": "210987654321", "database": replace(DATABASE, secret_key_arn=KEY_ARN)},
        {"alarm_emails": ("ops@example.com", "on-call+sluice@example.co.uk")},
        {"tags": {}},
        {"tags": {"k" * 128: "v" * 256, "team": "", "cost centre": "a.b:c/d=e+f@g-h_1", "owner": "Zoë"}},
        {"tags": {f"key{number}": "" for number in range(45)}},
    ],
)
def test_an_environment_may_be_at_its_bounds(changes: dict[str, Any]) -> None:
    """The longest names, any registry from a network that reaches it, keys and secrets where a task may read them."""
    made = Environment(**{"name": "dev", "consumers": (BILLING,)} | changes)

    assert {name: getattr(made, name) for name in changes} == changes


@pytest.mark.parametrize(
    "changes",
    [
        {"cidr": "10.0.0.0/16"},
        {"cidr": "192.168.7.0/24"},
        {"availability_zones": 1},
        {"availability_zones": 3},
        {"restrict_default_security_group": False},
    ],
)
def test_a_new_network_may_be_at_its_bounds(changes: dict[str, Any]) -> None:
    """The largest and the smallest, one zone and three."""
    made = NewNetwork(**changes)

    assert {name: getattr(made, name) for name in changes} == changes


@pytest.mark.parametrize(
    "changes",
    [{"vpc_id": "vpc-0a1b2c3d"}, {"subnet_ids": ("subnet-0a1b2c3d",)}, {"subnet_ids": (SUBNET, "subnet-0a1b2c3d")}],
)
def test_an_existing_network_may_be_at_its_bounds(changes: dict[str, Any]) -> None:
    """Ids of eight digits, as AWS gave them before 2016, and of seventeen."""
    made = ExistingNetwork(**{"vpc_id": VPC, "subnet_ids": (SUBNET,)} | changes)

    assert {name: getattr(made, name) for name in changes} == changes


@pytest.mark.parametrize(
    "changes",
    [
        {"port": 1},
        {"port": 65_535},
        {"secret_key_arn": None},
        {"secret_key_arn": KEY_ARN},
        {"secret_key_arn": "arn:aws:kms:us-east-1:123456789012:key/mrk-0a1b2c3d4e5f60718293a4b5c6d7e8f9"},
        {"security_group_id": "sg-0a1b2c3d"},
        {"secret_arn": "arn:aws:secretsmanager:eu-central-1:123456789012:secret:a/b+c=d.e@f_g-AbCd01"},
    ],
)
def test_a_database_may_be_at_its_bounds(changes: dict[str, Any]) -> None:
    """Any port, with or without a key of its own, in any region."""
    made = Database(**{"secret_arn": CREDENTIALS_ARN, "security_group_id": GROUP} | changes)

    assert {name: getattr(made, name) for name in changes} == changes


@pytest.mark.parametrize(
    ("cpu", "allowed", "refused"),
    [
        (256, (512, 1_024, 2_048), (256, 768, 3_072)),
        (512, (1_024, 2_048, 3_072, 4_096), (512, 1_536, 5_120)),
        (1_024, (2_048, 3_072, 7_168, 8_192), (1_024, 2_560, 9_216)),
        (2_048, (4_096, 5_120, 15_360, 16_384), (3_072, 4_608, 17_408)),
        (4_096, (8_192, 9_216, 29_696, 30_720), (7_168, 8_704, 31_744)),
        (8_192, (16_384, 20_480, 57_344, 61_440), (12_288, 18_432, 65_536)),
        (16_384, (32_768, 40_960, 114_688, 122_880), (24_576, 36_864, 131_072)),
    ],
)
def test_memory_is_what_fargate_has_for_the_cpu(cpu: int, allowed: tuple[int, ...], refused: tuple[int, ...]) -> None:
    """The smallest, the largest and the steps between are allowed; a step below, half a step and one above are not."""
    made = {Consumer(name="billing", cpu=cpu, memory_mib=memory).memory_mib for memory in allowed}
    for memory in refused:
        with pytest.raises(ConfigError, match=rf"memory_mib is {memory}, allowed is with cpu {cpu} one of "):
            Consumer(name="billing", cpu=cpu, memory_mib=memory)

    assert made == set(allowed)


def test_logs_are_kept_for_the_periods_cloudwatch_knows() -> None:
    """Every one of the 22, written again here, and no day between."""
    known = {1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653}

    accepted = set()
    for days in range(3_655):
        try:
            Environment(name="dev", consumers=(BILLING,), log_retention_days=days)
        except ConfigError:
            continue
        accepted.add(days)

    assert accepted == known


def test_the_target_backlog_counts_the_lanes() -> None:
    """A minute with four lanes and one second a message is 240 messages; with one lane 60."""
    assert Consumer(name="billing").target_backlog == 240
    assert Consumer(name="billing", lanes=1).target_backlog == 60
    assert Consumer(name="billing", processing_seconds=0.5).target_backlog == 480


def test_consumers_and_environments_can_be_keys_though_they_hold_mappings() -> None:
    """Equal values hash alike; filter policy and tags do not count, and cannot be hashed."""
    filtered = Consumer(name="billing", filter_policy={"region": ["eu"]})
    tagged = Environment(name="dev", consumers=(filtered,), tags={"team": "a"})

    assert hash(filtered) == hash(Consumer(name="billing", filter_policy={"region": ["eu"]}))
    assert hash(tagged) == hash(replace(tagged, tags={"team": "a"}))


# The relations once more, from the documentation and not from the code, so that neither is judged by itself.

_MEMORY_MIB = {
    256: {512, 1_024, 2_048},
    512: set(range(1_024, 4_097, 1_024)),
    1_024: set(range(2_048, 8_193, 1_024)),
    2_048: set(range(4_096, 16_385, 1_024)),
    4_096: set(range(8_192, 30_721, 1_024)),
    8_192: set(range(16_384, 61_441, 4_096)),
    16_384: set(range(32_768, 122_881, 8_192)),
}
_NAME = "[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
_IMAGE = (
    rf"(?:[a-z0-9-]+(?:\.[a-z0-9-]+)+(?::[0-9]+)?/)?{_NAME}(?:/{_NAME})*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|@sha256:[0-9a-f]{64})"
)


def _refusal(kind: type[Any], values: dict[str, Any]) -> str | None:
    try:
        kind(**values)
    except ConfigError as refused:
        return str(refused)
    return None


def _is_right_consumer(one: dict[str, Any]) -> bool:
    policy, tasks = one["filter_policy"], one["max_tasks"]
    combinations = 1
    for conditions in (policy or {}).values():
        combinations *= len(conditions)
    return all(
        (
            re.fullmatch("[a-z][a-z0-9]*(-[a-z0-9]+)*", one["name"]),
            not re.search("(dlq|dead-letter|undelivered)$", one["name"]),
            one["name"] not in {"relay", "topic"},
            policy is None or (1 <= len(policy) <= 5 and all(re.fullmatch("[A-Za-z0-9_-]", name) for name in policy)),
            1 <= combinations <= 150,
            1 <= one["max_attempts"] <= 1_000,
            one["visibility_timeout_seconds"] <= 43_200,
            one["visibility_timeout_seconds"] > one["processing_seconds"] + one["stop_timeout_seconds"],
            (one["max_attempts"] - 1) * max(300, one["visibility_timeout_seconds"]) + one["visibility_timeout_seconds"]
            < one["message_retention_seconds"],
            60 <= one["message_retention_seconds"] <= one["dead_letter_retention_seconds"] <= 1_209_600,
            0 < one["processing_seconds"] <= one["acceptable_latency_seconds"],
            one["acceptable_latency_seconds"] * 2 < one["message_retention_seconds"],
            1 <= one["lanes"] <= 120_000,
            one["expected_groups"] >= 1,
            0 <= one["min_tasks"] <= tasks,
            1 <= tasks <= 5_000,
            (tasks - 1) * one["lanes"] < one["expected_groups"],
            one["min_tasks"] > 0 or one["acceptable_latency_seconds"] >= 1_200,
            1 <= one["stop_timeout_seconds"] <= 120,
            one["memory_mib"] in _MEMORY_MIB.get(one["cpu"], ()),
            one["image"] is None or re.fullmatch(_IMAGE, one["image"]),
            one["image"] is None or not one["image"].endswith(":latest"),
        )
    ) and bool(one["acceptable_latency_seconds"] * one["lanes"] / one["processing_seconds"] * tasks <= 120_000)


def _near(*usual: int) -> st.SearchStrategy[int]:
    """Draw what is usual, what is one off, and now and then any integer."""
    edges = sorted({value + off for value in usual for off in (-1, 0, 1)})
    return st.sampled_from(usual) | st.sampled_from(edges) | st.integers(-10, 10**7)


def _up_to_four(values: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw values for a few of the fields, so that what is drawn is often right."""
    pairs = [st.tuples(st.just(name), value) for name, value in values.items()]
    return st.lists(st.one_of(pairs), max_size=4).map(dict)


_CONDITIONS = st.lists(st.sampled_from(["eu", 1, None]), max_size=3).map(tuple)
_IMAGES = st.sampled_from(
    [
        "worker:1",
        "worker:latest",
        "docker.io/worker:1",
        "123456789012.dkr.ecr.eu-west-1.amazonaws.com/w:1",
        "Worker",
        "w" + DIGEST,
    ]
)
_CONSUMERS = _up_to_four(
    {
        "name": st.sampled_from(["billing", "audit-2"]) | st.text("ab-2", max_size=6) | st.text(max_size=6),
        "filter_policy": st.none() | st.dictionaries(st.text(max_size=1), _CONDITIONS, max_size=6),
        "visibility_timeout_seconds": _near(1, 30, 32, 60, 300, 43_200),
        "max_attempts": _near(1, 5, 1_000),
        "message_retention_seconds": _near(60, 300, 1_260, 345_600, 1_209_600),
        "dead_letter_retention_seconds": _near(60, 345_600, 1_209_600),
        "processing_seconds": st.floats(0.01, 100) | st.floats(),
        "acceptable_latency_seconds": _near(1, 60, 1_200, 3_000, 172_800),
        "lanes": _near(1, 4, 10),
        "expected_groups": _near(1, 8, 100, 20_000),
        "min_tasks": _near(0, 1, 2),
        "max_tasks": _near(1, 2, 10, 25, 5_000),
        "stop_timeout_seconds": _near(1, 30, 120),
        "cpu": st.sampled_from([256, 512, 1_024]) | st.integers(0, 20_000),
        "memory_mib": st.sampled_from([512, 1_024, 2_048, 4_096]) | st.integers(0, 200_000),
        "image": st.none() | _IMAGES | st.text("aB:/.@", max_size=6),
    }
)


def test_any_consumer_satisfies_every_relation_or_is_refused_in_one_line() -> None:
    """Accepted is right, refused is wrong, and nothing else happens, whatever the values of the right types."""
    defaults = {one.name: one.default for one in fields(Consumer)} | {"name": "billing"}
    verdicts: list[bool] = []

    @settings(max_examples=600, deadline=None, database=None, print_blob=True)
    @given(changes=_CONSUMERS)
    def judge(changes: dict[str, Any]) -> None:
        refusal = _refusal(Consumer, defaults | changes)

        assert (refusal is None) == _is_right_consumer(defaults | changes)
        assert refusal is None or (refusal.endswith(EDIT) and len(refusal.splitlines()) == 1)
        verdicts.append(refusal is None)

    judge()

    assert verdicts.count(True) > 50  # neither side goes unexercised
    assert verdicts.count(False) > 50


_OWN_REGISTRY = r"[0-9]{12}\.dkr\.ecr\.%s\.amazonaws\.com/.+"


def _is_right_environment(one: dict[str, Any]) -> bool:
    names = [consumer.name.replace("-", "") for consumer in one["consumers"]]
    images = [one["image"], *(consumer.image for consumer in one["consumers"] if consumer.image is not None)]
    known_days = (*(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096), *(1827, 2192, 2557, 2922))
    return all(
        (
            re.fullmatch("[a-z][a-z0-9]{0,31}", one["name"]),
            re.fullmatch("[a-z][a-z0-9]{0,31}", one["topic"]),
            one["account"] is None or re.fullmatch("[0-9]{12}", one["account"]),
            re.fullmatch(r"[a-z]{2}-[a-z]+-[0-9]", one["region"]),
            not one["region"].startswith("cn-"),
            len(names) >= 1,
            len(set(names)) == len(names),
            one["archive_days"] is None or (1 <= one["archive_days"] <= 365 and one["removal"] is Removal.RETAIN),
            re.fullmatch(_IMAGE, one["image"]),
            not one["image"].endswith(":latest"),
            isinstance(one["network"], ExistingNetwork)
            or all(
                re.fullmatch(r"[^./]*(/.*|:.*)", image) or re.fullmatch(_OWN_REGISTRY % one["region"], image)
                for image in images
            ),
            one["database"] is not None or not one["relay"],
            one["database"] is None or (one["region"] == "us-east-1" and one["account"] in {None, "123456789012"}),
            10 <= one["outbox_lag_seconds"] <= 86_400,
            one["log_retention_days"] in (*known_days, 3288, 3653),
            len(set(one["alarm_emails"])) == len(one["alarm_emails"]),
            all(re.fullmatch(r"[^@\s]+@[^@\s]+\.[^@\s]+", address) for address in one["alarm_emails"]),
            all(
                re.fullmatch(r"[\w .:/=+@-]{1,128}", key) and re.fullmatch(r"[\w .:/=+@-]{0,256}", value)
                for key, value in one["tags"].items()
            ),
            not any(text.lower().startswith("aws:") for pair in one["tags"].items() for text in pair),
            not {key.lower() for key in one["tags"]} & {"application", "environment"},
            len({key.lower() for key in one["tags"]}) == len(one["tags"]),
        )
    )


_SOME_CONSUMERS = (
    BILLING,
    Consumer(name="a-1"),
    Consumer(name="a1"),
    Consumer(name="audit", image="123456789012.dkr.ecr.eu-west-1.amazonaws.com/w:1"),
)
_ENVIRONMENTS = _up_to_four(
    {
        "name": st.sampled_from(["dev", "e" * 32]) | st.text("abZ09-.", max_size=34),
        "consumers": st.lists(st.sampled_from(_SOME_CONSUMERS), max_size=4).map(tuple),
        "account": st.none() | st.sampled_from(["123456789012", "12345678901"]) | st.text(max_size=13),
        "region": st.sampled_from(["us-east-1", "eu-west-1", "us-gov-west-1", "cn-north-1"])
        | st.text("aeu-1", max_size=9),
        "topic": st.sampled_from(["events", "t" * 33]) | st.text(max_size=6),
        "removal": st.sampled_from(Removal),
        "encryption": st.sampled_from(Encryption),
        "archive_days": st.none() | _near(1, 365),
        "network": st.sampled_from([NewNetwork(), EXISTING]),
        "image": _IMAGES | st.text("aB:/.@", max_size=6),
        "database": st.sampled_from([None, DATABASE]),
        "relay": st.booleans(),
        "outbox_lag_seconds": _near(10, 60, 86_400),
        "log_retention_days": _near(1, 30, 365, 3_653),
        "alarm_emails": st.lists(st.just("ops@example.com") | st.text("a@. ", max_size=6), max_size=2).map(tuple),
        "tags": st.dictionaries(
            st.sampled_from(["team", "Team", "AWS:x", "Application"]) | st.text(max_size=3), st.text()
        ),
    }
)


def test_any_environment_satisfies_every_relation_or_is_refused_in_one_line() -> None:
    """Accepted is right, refused is wrong, and nothing else happens, whatever the values of the right types."""
    defaults = {one.name: one.default for one in fields(Environment)}
    defaults |= {"name": "dev", "consumers": (BILLING,), "tags": {}}
    verdicts: list[bool] = []

    @settings(max_examples=600, deadline=None, database=None, print_blob=True)
    @given(changes=_ENVIRONMENTS)
    def judge(changes: dict[str, Any]) -> None:
        refusal = _refusal(Environment, defaults | changes)

        assert (refusal is None) == _is_right_environment(defaults | changes)
        assert refusal is None or (refusal.endswith(EDIT) and len(refusal.splitlines()) == 1)
        verdicts.append(refusal is None)

    judge()

    assert verdicts.count(True) > 50  # neither side goes unexercised
    assert verdicts.count(False) > 50


# The four environments, value by value: a default that changes is seen here.


def _pinned_consumers(**changes: object) -> tuple[dict[str, object], ...]:
    numbers: dict[str, object] = {
        "filter_policy": None,
        "visibility_timeout_seconds": 60,
        "max_attempts": 5,
        "message_retention_seconds": 345_600,
        "dead_letter_retention_seconds": 1_209_600,
        "processing_seconds": 1.0,
        "acceptable_latency_seconds": 60,
        "lanes": 4,
        "expected_groups": 100,
        "min_tasks": 1,
        "max_tasks": 10,
        "stop_timeout_seconds": 30,
        "cpu": 256,
        "memory_mib": 512,
        "image": None,
        "poison": Poison.SKIP,
        "gaps": Gaps.RECORD,
        "gap_wait_seconds": 300,
        "joined_at": None,
        "inbox_retention_seconds": 5_184_000,
    }
    return tuple(
        {"name": name, "handlers": f"examples.services.{name}"} | numbers | changes
        for name in ("billing", "shipping", "audit")
    )


PINNED: dict[str, dict[str, object]] = {
    "local": {
        "name": "local",
        "consumers": _pinned_consumers(),
        "account": "000000000000",
        "region": "us-east-1",
        "topic": "events",
        "removal": Removal.DESTROY,
        "encryption": Encryption.SQS_MANAGED,
        "archive_days": None,
        "network": {"cidr": "10.0.0.0/16", "availability_zones": 2, "restrict_default_security_group": False},
        "image": "sluice-worker:0.1.0",
        "database": None,
        "relay": False,
        "outbox_lag_seconds": 60,
        "log_retention_days": 30,
        "alarm_emails": (),
        "tags": {},
    },
    "dev": {
        "name": "dev",
        "consumers": _pinned_consumers(min_tasks=0, max_tasks=2, acceptable_latency_seconds=1_200),
        "account": None,
        "region": "us-east-1",
        "topic": "events",
        "removal": Removal.DESTROY,
        "encryption": Encryption.SQS_MANAGED,
        "archive_days": None,
        "network": {"cidr": "10.0.0.0/16", "availability_zones": 2, "restrict_default_security_group": True},
        "image": "sluice-worker:0.1.0",
        "database": None,
        "relay": False,
        "outbox_lag_seconds": 60,
        "log_retention_days": 7,
        "alarm_emails": (),
        "tags": {},
    },
    "staging": {
        "name": "staging",
        "consumers": _pinned_consumers(),
        "account": None,
        "region": "us-east-1",
        "topic": "events",
        "removal": Removal.RETAIN,
        "encryption": Encryption.CMK,
        "archive_days": None,
        "network": {"cidr": "10.0.0.0/16", "availability_zones": 2, "restrict_default_security_group": True},
        "image": "sluice-worker:0.1.0",
        "database": None,
        "relay": False,
        "outbox_lag_seconds": 60,
        "log_retention_days": 30,
        "alarm_emails": (),
        "tags": {},
    },
    "prod": {
        "name": "prod",
        "consumers": _pinned_consumers(message_retention_seconds=1_209_600, min_tasks=2, max_tasks=20),
        "account": None,
        "region": "us-east-1",
        "topic": "events",
        "removal": Removal.RETAIN,
        "encryption": Encryption.CMK,
        "archive_days": 7,
        "network": {"cidr": "10.0.0.0/16", "availability_zones": 3, "restrict_default_security_group": True},
        "image": "sluice-worker:0.1.0",
        "database": None,
        "relay": False,
        "outbox_lag_seconds": 60,
        "log_retention_days": 90,
        "alarm_emails": (),
        "tags": {},
    },
}


def test_four_environments_are_declared() -> None:
    """In this order, each under its own name."""
    assert list(ENVIRONMENTS) == ["local", "dev", "staging", "prod"]


@pytest.mark.parametrize("name", PINNED)
def test_a_declared_environment_is_what_it_was(name: str) -> None:
    """Every field of it, and of its consumers."""
    assert asdict(ENVIRONMENTS[name]) == PINNED[name]


@pytest.mark.parametrize("name", ["local", "dev", "staging", "prod"])
def test_a_declared_environment_is_found_by_its_name(name: str) -> None:
    """The very value that was declared is returned."""
    assert environment(name) is ENVIRONMENTS[name]


def test_an_environment_nobody_declared_is_refused() -> None:
    """One line names what was asked for, what there is, and the file to edit."""
    with pytest.raises(ConfigError) as refused:
        environment("nope")

    assert str(refused.value) == (
        "environment 'nope' is not declared, allowed is one of local, dev, staging, prod;"
        " declare it in sluice/environments.py"
    )


def test_two_environments_of_one_name_are_refused() -> None:
    """Or the first would silently not be there."""
    with pytest.raises(ConfigError) as refused:
        environments._by_name(ENVIRONMENTS["dev"], ENVIRONMENTS["prod"], ENVIRONMENTS["dev"])

    assert str(refused.value) == (
        "ENVIRONMENTS is ['dev', 'prod', 'dev'], allowed is each name once; change it in sluice/environments.py"
    )


def test_adding_a_consumer_is_one_entry() -> None:
    """`Consumer(name=…)` alone brings a queue, two DLQs, a service and numbers; nothing else is to be declared."""
    local = ENVIRONMENTS["local"]

    search = Consumer(name="search")
    extended = replace(local, consumers=(*local.consumers, search))

    assert [consumer.name for consumer in extended.consumers] == ["billing", "shipping", "audit", "search"]
    assert naming.queue_name(extended, search) == "sluice-local-search.fifo"
    assert naming.dead_letter_queue_name(extended, search) == "sluice-local-search-dlq.fifo"
    assert naming.undelivered_queue_name(extended, search) == "sluice-local-search-undelivered-dlq.fifo"
    assert naming.service_name(extended, "search") == "sluice-local-search"
    assert asdict(search) == _pinned_consumers()[0] | {"name": "search", "handlers": None}
