"""The bill of a month, compared with figures computed by hand from AWS's price list, and rules for every bill."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.cost.bill import Bill, MonthlyMessages, bill
from sluice.cost.prices import fan_out, group_requests, queue_deliveries, requests
from sluice.cost.runtimes import runtime_cost
from sluice.declaration import (
    AutomaticRedrive,
    Consumer,
    Encryption,
    Environment,
    ExistingKeys,
    ExistingNetwork,
    ExistingQueue,
    ExistingTopic,
    Hourly,
    Lambda,
    NewDatabase,
    NewNetwork,
    Topic,
)
from sluice.declaration.fields.image import Architecture
from tests.support.project import PROJECT

ONE = Environment(
    name="prod",
    encryption=Encryption.CMK,
    network=NewNetwork(availability_zones=3),
    consumers=(Consumer(name="billing", processing_seconds=1.0, lanes=4, min_tasks=2, max_tasks=20),),
)
SETTINGS = settings(max_examples=60, deadline=None, database=None, print_blob=True)
ENVIRONMENTS = st.builds(
    lambda network, architecture, spot, encryption, consumers: Environment(
        name="any",
        network=network,
        architecture=architecture,
        spot=spot,
        encryption=encryption,
        consumers=tuple(replace(consumer, name=f"c{number}") for number, consumer in enumerate(consumers)),
    ),
    st.sampled_from(
        [NewNetwork(), ExistingNetwork(vpc_id="vpc-0a1b2c3d4e5f60718", subnet_ids=("subnet-0a1b2c3d4e5f60718",))]
    ),
    st.sampled_from(Architecture),
    st.booleans(),
    st.sampled_from(Encryption),
    st.lists(
        st.builds(
            lambda seconds, lanes, least, more: Consumer(
                name="c", processing_seconds=seconds, lanes=lanes, min_tasks=least, max_tasks=least + more
            ),
            st.floats(0.2, 20),
            st.integers(1, 8),
            st.integers(1, 4),
            st.integers(0, 8),
        ),
        min_size=1,
        max_size=3,
    ),
)
VOLUMES = st.builds(
    lambda count, size: MonthlyMessages(messages=count, message_bytes=size),
    st.integers(0, 10**9),
    st.integers(1, 1_048_576),
)


def _round_all(lines: Mapping[str, float]) -> dict[str, float]:
    return {name: round(usd, 2) for name, usd in lines.items()}


def test_a_month_of_fifty_million_messages_by_hand() -> None:
    """2,000 bytes each to one consumer that takes a second: 50e6 / 2,628,000 s is 19.03 lanes, five tasks of four."""
    made = bill(ONE, MonthlyMessages(messages=50_000_000, message_bytes=2_000))

    assert made.services[0].tasks == 5
    assert _round_all(made.lines) == {
        "SNS publish": 16.70,  # 50 x 0.30 + 100 GB x 0.017
        "SNS delivery": 0.60,  # 50 x 0.01 + 100 GB x 0.001
        "SQS send, receive, delete": 75.00,  # 3 x 50 x 0.50
        "SQS long polls": 1.31,  # 20 lanes x 131,400 polls of 20 s x 0.50 / 1e6
        "Fargate": 45.05,  # 730 h x 5 x (0.25 x 0.04048 + 0.5 x 0.004445)
        "interface endpoints": 87.60,  # 4 x 3 zones x 730 h x 0.01
        "through the endpoints": 1.00,  # 100 GB x 0.01
        "Aurora at its least capacity": 0.0,
        "Container Insights": 11.40,  # (13 + 25) x 0.30
        "alarms": 2.60,  # (2 + 24) x 0.10
        "dashboard": 3.00,
        "KMS keys and their requests": 3.32,  # 3 x 1.00 + 4 x 3 x 8,760 x 0.03 / 10,000
    }
    assert made.usd == pytest.approx(247.57, abs=0.02)


_FIFTY = replace(ONE, topics=(Topic(bundle_events_max=50),))
_THOUSANDS = MonthlyMessages(messages=50_000_000, message_bytes=1_000)


def test_a_month_of_bundles_of_fifty_by_hand() -> None:
    """A million messages of 50,000 bytes, each less than 64 KiB: 3 requests of SQS for each, and the same data."""
    alone, made = bill(ONE, _THOUSANDS), bill(_FIFTY, replace(_THOUSANDS, events_per_message=50))

    less = {name: round(usd, 2) for name, usd in made.lines.items() if usd != alone.lines[name]}
    assert less == {
        "SNS publish": 1.15,  # 1 x 0.30 + 50 GB x 0.017
        "SNS delivery": 0.06,  # 1 x 0.01 + 50 GB x 0.001
        "SQS send, receive, delete": 1.50,  # 3 x 1 x 0.50
    }
    assert made.usd_with_full_bundles is None


def test_the_cost_of_bundles_of_unknown_size_is_a_range() -> None:
    alone, made = bill(ONE, _THOUSANDS), bill(_FIFTY, _THOUSANDS)

    assert made.lines == alone.lines
    assert made.usd_with_full_bundles == bill(_FIFTY, replace(_THOUSANDS, events_per_message=50)).usd
    assert alone.usd_with_full_bundles is None


@pytest.mark.parametrize(("event_bytes", "events"), [(1, 50), (5_000, 50), (5_243, 49), (200_000, 1)])
def test_a_bundle_holds_no_more_events_than_a_message_may_have_bytes(event_bytes: int, events: int) -> None:
    """Of 262,144 bytes, by default."""
    volume = MonthlyMessages(messages=50_000_000, message_bytes=event_bytes)

    assert bill(_FIFTY, volume).usd_with_full_bundles == bill(_FIFTY, replace(volume, events_per_message=events)).usd


def test_bundles_of_a_function_are_invoked_together() -> None:
    """Handlers take their time for each event; the invocation, 0.20 for a million, is divided."""
    consumer = Consumer(name="f", handlers="shop.billing", runtime=Lambda(batch_size=1), processing_seconds=0.1)
    alone, made = (
        bill(
            replace(ONE, topics=(Topic(bundle_events_max=25),), consumers=(consumer,)),
            replace(_THOUSANDS, events_per_message=events),
        )
        for events in (1, 10)
    )

    assert alone.lines["Lambda"] - made.lines["Lambda"] == pytest.approx(9.0)  # 0.9 x 50 x 0.20


def test_requests_of_a_hot_group_by_hand() -> None:
    """A publish and a receive for each message, and a delete for ten."""
    assert group_requests(1_000_000, events_per_message=1) == pytest.approx(2_100_000)
    assert group_requests(1_000_000, events_per_message=21) == pytest.approx(100_000)


def test_alternatives_to_a_declaration_by_hand() -> None:
    """Tasks for 36.04 on ARM, 13.52 at 70 % off; gateways 3 x 730 x 0.045 + 100 GB x 0.045 in place of 88.60."""
    made = bill(ONE, MonthlyMessages(messages=50_000_000, message_bytes=2_000))

    differences = {name: round(usd - made.usd, 2) for name, usd in made.instead.items()}

    assert differences == {
        "architecture=Architecture.ARM64": -9.01,  # 730 x 5 x (0.25 x 0.03238 + 0.5 x 0.00356) = 36.04
        "spot=True": -31.54,
        "NAT gateways, one a zone": 14.45,  # 98.55 + 4.50 - 88.60
    }


def test_the_other_way_round_it_is_the_same_bill() -> None:
    volume = MonthlyMessages(messages=50_000_000, message_bytes=2_000)
    as_declared, on_arm = bill(ONE, volume), bill(replace(ONE, architecture=Architecture.ARM64), volume)
    on_spot = bill(replace(ONE, spot=True), volume)

    assert on_arm.usd == pytest.approx(as_declared.instead["architecture=Architecture.ARM64"])
    assert on_arm.instead["architecture=Architecture.X86_64"] == pytest.approx(as_declared.usd)
    assert on_spot.usd == pytest.approx(as_declared.instead["spot=True"])
    assert on_spot.instead["spot=False"] == pytest.approx(as_declared.usd)


def test_nothing_runs_in_an_idle_environment_that_may_sleep() -> None:
    asleep = Consumer(name="billing", min_tasks=0, acceptable_latency_seconds=1_200)
    made = bill(replace(ONE, consumers=(asleep,)), MonthlyMessages(messages=0, message_bytes=1_024))

    assert made.services[0].tasks == 0
    assert made.lines["Fargate"] == 0
    assert made.lines["SQS long polls"] == 0
    assert made.lines["alarms"] == pytest.approx(2.9)  # four more metrics tell that it is asleep


def test_a_database_and_its_relay_by_hand() -> None:
    """Two instances of one ACU, a secret, a key; two relay tasks, two more endpoints, six more alarms."""
    idle = MonthlyMessages(messages=0, message_bytes=2_000)
    declared = replace(ONE, database=NewDatabase(min_acus=1, standby=True))

    without, made = bill(ONE, idle), bill(declared, idle)

    more = {name: round(usd - without.lines[name], 2) for name, usd in made.lines.items() if usd != without.lines[name]}
    assert more == {
        "Fargate": 18.02,  # 730 h x 2 x (0.25 x 0.04048 + 0.5 x 0.004445)
        "interface endpoints": 43.80,  # 2 x 3 zones x 730 h x 0.01
        "Aurora at its least capacity": 175.60,  # 2 x 730 h x 0.12 + 0.40
        "Container Insights": 7.50,  # 25 x 0.30
        "alarms": 0.60,
        "KMS keys and their requests": 1.00,
    }


def test_a_database_pauses_while_nothing_is_connected() -> None:
    """Half a capacity unit for 730 hours is 43.80; its secret is 0.40 also while it pauses."""
    asleep = Consumer(name="billing", min_tasks=0, acceptable_latency_seconds=1_200)
    pausing = NewDatabase(min_acus=0, max_acus=2, pause_after_seconds=1_800)
    declared = replace(ONE, consumers=(asleep,), database=pausing, relay=False)

    idle, busy = (bill(declared, MonthlyMessages(messages=count, message_bytes=1_024)) for count in (0, 1_000))

    assert idle.lines["Aurora at its least capacity"] == pytest.approx(0.40)
    assert busy.lines["Aurora at its least capacity"] == pytest.approx(44.20)


@pytest.mark.parametrize(
    ("count", "tasks", "warnings"),
    [
        (0, 2, ()),
        (21_024_000, 2, ()),  # eight lanes, all of two tasks
        (21_024_001, 3, ()),
        (210_240_000, 20, ()),
        (
            210_240_001,
            20,
            ("billing needs 21 tasks, max_tasks is 20: it falls behind; raise max_tasks or lanes",),
        ),
    ],
)
def test_tasks_follow_from_the_messages_and_the_handlers_time(
    count: int, tasks: int, warnings: tuple[str, ...]
) -> None:
    made = bill(ONE, MonthlyMessages(messages=count, message_bytes=1_024))

    assert made.services[0].tasks == tasks
    assert made.warnings == warnings


def test_sqs_counts_a_request_for_each_64_kib_begun() -> None:
    """This holds for the send and the receive; a delete is one request."""
    assert [requests(size) for size in (1, 65_536, 65_537, 131_072, 1_048_576)] == [1, 1, 2, 2, 16]
    million = [
        queue_deliveries(delivered=1_000_000, message_bytes=size, is_fifo=True) for size in (65_536, 65_537, 1_048_576)
    ]
    assert million == pytest.approx([1.50, 2.50, 16.50])


def test_a_million_messages_to_three_consumers() -> None:
    """One publish, three deliveries, three requests to each of three queues, a kilobyte each."""
    assert fan_out(published=1_000_000, delivered=3_000_000, message_bytes=1_000) == pytest.approx(
        {"SNS publish": 0.317, "SNS delivery": 0.033}
    )
    assert queue_deliveries(delivered=3_000_000, message_bytes=1_000, is_fifo=True) == pytest.approx(4.50)


def _differences(environment: Environment, before: Environment) -> dict[str, float]:
    """Return by how many USD lines of an environment's bill differ from those of `before`; equal lines are left out.

    Both bills are for a million messages of 1,000 bytes a month. A line of `before` alone is left out, too.
    """
    volume = MonthlyMessages(messages=1_000_000, message_bytes=1_000)
    lines, lines_before = bill(environment, volume).lines, bill(before, volume).lines
    differences = {name: usd - lines_before[name] for name, usd in lines.items()}
    return {name: round(usd, 3) for name, usd in differences.items() if abs(usd) > 1e-9}


def test_a_standard_queue_by_hand() -> None:
    """3 million requests and 1,051,200 polls of 8 lanes at 0.40 in place of 0.50; no alarm for a stuck group."""
    standard = replace(ONE, consumers=(replace(ONE.consumers[0], fifo=False),))

    assert _differences(standard, ONE) == {
        "SQS send, receive, delete": -0.30,
        "SQS long polls": -0.105,
        "alarms": -0.30,
    }


def test_an_existing_queue_is_on_its_owners_bill() -> None:
    """The owner pays for its requests, and for those of its DLQ to a key.

    That is two queues x 26,280 x 0.03 / 10,000.
    """
    queue = ExistingQueue(
        arn="arn:aws:sqs:us-east-1:111122223333:invoices.fifo",
        dead_letter_queue_arn="arn:aws:sqs:us-east-1:111122223333:invoices-dead.fifo",
    )
    owned = replace(ONE, account="111122223333")
    existing = replace(owned, consumers=(replace(ONE.consumers[0], queue=queue),))

    assert _differences(existing, owned) == {
        "SQS send, receive, delete": -1.50,
        "SQS long polls": -0.526,  # 8 lanes x 131,400 x 0.50 / 1e6
        "KMS keys and their requests": -0.158,
    }


@pytest.mark.parametrize("relay", [False, True])
def test_an_existing_topic_is_on_its_owners_bill(relay: bool) -> None:  # noqa: FBT001 (a parameter of the test)
    """Publishing to it, delivery, its alarms and its requests to a key; a relay's tasks and alarms are not."""
    topic = ExistingTopic(arn="arn:aws:sns:us-east-1:111122223333:stock.fifo", relay=relay)
    before = replace(ONE, database=NewDatabase())
    tasks = {} if relay else {"Fargate": -18.02, "Container Insights": -7.50}
    network = {} if relay else {"through the endpoints": -0.01}

    assert _differences(replace(before, topics=(topic,)), before) == {
        "SNS publish": -0.317,
        "SNS delivery": -0.011,
        "alarms": -0.20 if relay else -0.50,
        "KMS keys and their requests": -0.079,
        **tasks,
        **network,
    }


def test_existing_keys_are_on_their_owners_bill() -> None:
    """Two of three: log groups have their own. Requests to them are asked for here."""
    arn = "arn:aws:kms:us-east-1:444455556666:key/0a1b2c3d-1111-2222-3333-444455556666"

    assert _differences(replace(ONE, keys=ExistingKeys(topic_arn=arn, queues_arn=arn)), ONE) == {
        "KMS keys and their requests": -2.0
    }


@pytest.mark.parametrize("spot", [False, True])
def test_automatic_redrive_by_hand(spot: bool) -> None:  # noqa: FBT001 (a parameter of the test)
    """730 runs of 60 s, and 30 with 10,000 messages at ten a second; a quarter of a vCPU and half a GB are not on spot.

    21 hours x (0.25 x 0.04048 + 0.5 x 0.004445); two alarms.
    """
    before = replace(ONE, spot=spot, consumers=(replace(ONE.consumers[0], handlers="their.handlers"),))
    declared = replace(before.consumers[0], automatic_redrive=AutomaticRedrive(messages_max=10_000))

    assert _differences(replace(before, consumers=(declared,)), before) == {"Fargate": 0.259, "alarms": 0.20}


def test_a_verdict_every_hour_by_hand() -> None:
    """730 runs of 120 s: 24.3 hours x (0.25 x 0.04048 + 0.5 x 0.004445); two alarms."""
    before = replace(ONE, database=NewDatabase())

    assert _differences(replace(before, verification=Hourly()), before) == {"Fargate": 0.300, "alarms": 0.20}


@SETTINGS
@given(environment=ENVIRONMENTS, volume=VOLUMES, more=st.integers(0, 10**9), larger=st.integers(0, 100_000))
def test_no_line_is_less_for_more_or_larger_messages(
    environment: Environment, volume: MonthlyMessages, more: int, larger: int
) -> None:
    small = bill(environment, volume)
    for other in (
        replace(volume, messages=volume.messages + more),
        replace(volume, message_bytes=volume.message_bytes + larger),
    ):
        large: Bill = bill(environment, other)

        assert {name for name, usd in large.lines.items() if usd < small.lines[name] - 1e-9} == set()


@SETTINGS
@given(environment=ENVIRONMENTS, volume=VOLUMES)
def test_the_lines_add_up_to_the_month_and_nothing_is_negative(
    environment: Environment, volume: MonthlyMessages
) -> None:
    made = bill(environment, volume)
    fields: dict[str, Any] = dict(made.lines)

    assert made.usd == pytest.approx(sum(fields.values()))
    assert min(fields.values()) >= 0
    assert min(made.instead.values()) > 0
    for service, consumer in zip(made.services, environment.consumers, strict=True):
        assert consumer.min_tasks <= service.tasks <= consumer.max_tasks


def test_a_function_is_paid_for_by_time_and_invocations() -> None:
    """A million messages of a second with 512 MB: 500,000 GB-seconds at 0.0000166667, a million invocations at 0.20.

    Its mapping polls five times at once: 5 x 131,400 polls of 20 s at 0.50 a million. No task, so no Container Insights
    of a service.
    """
    function = replace(
        ONE.consumers[0],
        handlers="their.billing",
        visibility_timeout_seconds=60,
        runtime=Lambda(timeout_seconds=10, maximum_concurrency=20),
    )
    made = bill(replace(ONE, consumers=(function,)), MonthlyMessages(messages=1_000_000, message_bytes=1_000))

    seen = {name: round(made.lines[name], 2) for name in ("Lambda", "Fargate", "SQS long polls", "Container Insights")}
    assert seen == {"Lambda": 8.53, "Fargate": 0.0, "SQS long polls": 0.33, "Container Insights": 3.90}
    assert made.services == ()
    assert made.runtimes[0].is_function


@pytest.mark.parametrize("seconds", [0.05, 1.0, 10.0])
def test_from_the_break_even_on_tasks_cost_less_than_a_function(seconds: float) -> None:
    """Just there both cost the same; with a tenth less the function does, with a tenth more the tasks do."""
    consumer = Consumer(name="billing", processing_seconds=seconds, visibility_timeout_seconds=120)
    messages = runtime_cost(ONE, consumer, 0).break_even_messages
    assert messages is not None

    equal, fewer, more = (runtime_cost(ONE, consumer, int(messages * share)) for share in (1, 0.9, 1.1))

    assert equal.tasks_usd == pytest.approx(equal.function_usd, rel=0.001)
    assert fewer.function_usd < fewer.tasks_usd
    assert more.tasks_usd < more.function_usd


def test_the_guide_to_runtimes_has_the_figures_of_a_bill() -> None:
    """Handler, each runtime idle and with a million messages a month, and where tasks begin to cost less."""
    guide = (PROJECT / "docs" / "guides" / "runtimes.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| ([\d.]+) s \| (\d.+?) \| (\d.+?) \| ([\d.]+) million", guide, re.MULTILINE)

    def expectation(seconds: str, digits: int) -> tuple[str, ...]:
        consumer = Consumer(name="billing", processing_seconds=float(seconds), lanes=4)
        environment = Environment(name="prod", architecture=Architecture.ARM64, consumers=(consumer,))
        idle, million = (runtime_cost(environment, consumer, messages) for messages in (0, 1_000_000))
        assert idle.break_even_messages is not None
        costs = (f"{each.tasks_usd:.2f}, {each.function_usd:.2f}" for each in (idle, million))
        return seconds, *costs, f"{idle.break_even_messages / 1_000_000:.{digits}f}"

    assert len(table) == 4
    assert table == [expectation(row[0], len(row[3].partition(".")[2])) for row in table]
