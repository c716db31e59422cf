"""Facts about AWS that no contract test holds, and why; and the ids of all facts that were collected.

A fact is a promise or stands here: nothing is dropped silently.
"""

from collections.abc import Mapping

_NUMBERS = {
    "BAT": "01 02 03 04 05 06 07 08 09 11 12 13",
    "CRE": "01 02 04 05 06 07 09 10 11 12 13 14 16 17 18 19 20 21 22 23 24 25 26 27 28",
    "DED": "01 04 05 06 07 08 09 10 11 12 13 14 15 16",
    "DLQ": "01 04 05 06 07 08 09 10 11 12 13 14 15 17 18 19 20 21 22 23 24 25",
    "ERR": "02 03 04 05 06",
    "GRP": "01 02 03 04 05 07 08 09 10 11 12 13 15 17 18",
    "LIM": "01 02 03 04 05 06 07 08 09 11",
    "MET": "01 02 03 04 05 06 07",
    "MOV": "01 02 04 06 07 09 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28",
    "ORD": "01 02 04 05 07",
    "PUR": "01 02 04 05",
    "RCV": "02 03 04 05 06 07 08 09 10 11 12 13 14 15 16 17",
    "SND": "01 02 03 04 05 06 09 10 11 12 14 15 16 17 18 20 21",
    "SNS": "01 04 05 06 07 08 09 10 11 12 14 16 17 18 19 20 24 25 26 27 28 29 30 31 32 34 35 36 37 38 39 40 42 43 44",
    "TAG": "01 03 04 06",
    "VIS": "01 02 04 05 06 07 08 09 10 11 12 13 14 15 16 17",
}

FACTS: tuple[str, ...] = tuple(f"{area}-{number}" for area, numbers in _NUMBERS.items() for number in numbers.split())
"""Id of every fact, sorted."""

NOT_TESTED: Mapping[str, str] = {
    "BAT-11": "nobody recorded what a delay in one entry of a batch does, and emulators disagree",
    "CRE-19": "that a change takes up to 60 s to be seen allows any answer meanwhile; the tests wait for effects",
    "CRE-21": "that a deletion takes up to 60 s allows any answer meanwhile",
    "CRE-23": "a CloudFormation stack takes two minutes; STK-01 compares what our own stacks deploy",
    "CRE-24": "updating a CloudFormation stack takes three minutes, and our stacks never remove a property",
    "CRE-25": "updating a CloudFormation stack takes three minutes, and our stacks name their queues",
    "DLQ-22": "metrics come 90 s after the traffic and later",
    "DLQ-24": "needs a Lambda function as consumer; DLQ-01 holds the same of any consumer",
    "DLQ-25": "needs a Lambda function as consumer; DLQ-01 holds the same of any consumer",
    "ERR-04": "recorded as refused, and seen to be accepted at times since",
    "GRP-17": "needs a Lambda function as consumer; GRP-01 and RCV-17 hold the same of any consumer",
    "GRP-18": "needs a backlog of 120,000 messages",
    "LIM-01": "needs 120,000 messages in flight",
    "LIM-02": "needs load near AWS's quota of 300 calls per second",
    "LIM-03": "needs load near AWS's quota of high throughput",
    "LIM-04": "needs load near AWS's quota of one partition",
    "LIM-05": "needs a caller that AWS throttles",
    "LIM-08": "that there is no limit cannot be contradicted by a finite test",
    "LIM-11": "needs more than 1,000 queues",
    "MET-01": "metrics come 90 s after the traffic and later",
    "MET-02": "metrics come 90 s after the traffic and later",
    "MET-03": "metrics come 90 s after the traffic, and whether repeats count as sent was not recorded",
    "MET-04": "metrics come 90 s after the traffic, and an age has to grow first",
    "MET-05": "a queue is inactive after six hours",
    "MET-06": "metrics come a minute late; GRP-15 holds the same of the queue's attributes",
    "MET-07": "advice; STK-05 and STK-06 hold it of our own alarms",
    "MOV-19": "whether a moved message counts its receives anew is disputed: documented as new, seen to be kept",
    "MOV-24": "needs identities with and without permissions, and IAM to enforce them",
    "MOV-28": "how slow a move task is allows any wait; the tests wait for its end",
    "ORD-07": "needs a Lambda function as consumer; GRP-01 and RCV-16 hold the same of any consumer",
    "PUR-04": "that a purge takes up to 60 s allows any answer meanwhile",
    "RCV-09": "there is no parameter with which to ask for a group, so nothing to try",
    "SNS-42": "needs 100 subscriptions, or 1,000 topics",
    "SNS-43": "a queue name is free again after 60 s only, and what happens then was not recorded",
    "TAG-04": "clients refuse to send a tag without a value",
    "TAG-06": "AWS recommends the number and does not enforce it; the rate is a quota of the account",
    "VIS-12": "that a message may come twice in one answer allows either",
    "VIS-15": "that a message may come later than its timeout allows any delay; the tests wait for it",
}
"""Id of a fact that is no promise -> why; sorted."""
