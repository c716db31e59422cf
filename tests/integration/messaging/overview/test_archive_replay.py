"""`sluice replay --archive` starts, watches and ends a replay of the topic's archive, and refuses what goes wrong."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from sluice.cli.replay import archive
from sluice.cli.replay.archive import ArchiveReplay, replay_archive
from sluice.clock import SystemClock, VirtualClock
from sluice.declaration import Consumer, Environment, Gaps
from sluice.errors import ConfigError, EndpointError
from tests.support.messaging.operated_shop import AUDIT, LOCAL, OperatedShop

_HOUR_US = 3_600_000_000
_POLICY = '{"MessageRetentionPeriod": "30"}'


@pytest.fixture
def archived_shop(shop: OperatedShop) -> OperatedShop:
    """Yield a shop whose topic has archived two events of group a, which the consumer audit never received."""
    arn = _topic_of(shop)
    shop.sns.set_topic_attributes(TopicArn=arn, AttributeName="ArchivePolicy", AttributeValue=_POLICY)
    shop.commit("a", 1, 2)
    shop.relay()
    shop.purge("sluice-local-audit.fifo")
    return shop


def _topic_of(shop: OperatedShop) -> str:
    return str(shop.sns.list_topics()["Topics"][0]["TopicArn"])


def _environment(**changed: Any) -> Environment:
    """Return the environment with a consumer audit that waits for missing numbers, or has other fields."""
    audit: Consumer = replace(AUDIT, **({"gaps": Gaps.HALT} | changed))
    return replace(LOCAL, consumers=(*LOCAL.consumers[:2], audit))


def _replay(shop: OperatedShop, do: str = "start", *, environment: Environment | None = None, **more: Any) -> None:
    """Replay the archive to the consumer audit as the command does, from an hour ago unless `more` says otherwise."""
    options: dict[str, Any] = {
        "consumer_name": "audit",
        "topic_arn": _topic_of(shop),
        "dsn": shop.dsn,
        "inboxes": (),
        "endpoint_url": shop.endpoint.url,
        "from_us": SystemClock().now_us() - _HOUR_US,
        "leaves_out": False,
        "late": None,
        "reason": "audit is new",
        "confirmed": True,
        "as_json": False,
    }
    replay_archive(environment=environment or _environment(), archive=do, **(options | more))


def _live_policy(shop: OperatedShop) -> Any:
    arn = shop.subscription_of(AUDIT)
    attributes = shop.sns.get_subscription_attributes(SubscriptionArn=arn)["Attributes"]
    return json.loads(attributes.get("ReplayPolicy") or "{}")


def test_an_archive_is_replayed_in_order_and_audited(
    archived_shop: OperatedShop, capsys: pytest.CaptureFixture[str]
) -> None:
    """Number 3 is live and comes first: the consumer waits for number 1."""
    shop = archived_shop
    shop.environment = _environment()
    audit = shop.environment.consumers[2]
    shop.commit("a", 3)
    shop.relay()
    shop.work(audit)

    _replay(shop)
    shop.work(audit)
    shop.work(audit)

    assert "EndingPoint" not in _live_policy(shop)
    assert capsys.readouterr().out.startswith("done: replay the archive of events to audit from ")
    with shop.engine.connect() as connection:
        position = connection.exec_driver_sql(
            "SELECT first_seq, last_seq FROM sluice_inbox_group WHERE consumer = 'audit'"
        ).one()
        audited = connection.exec_driver_sql("SELECT reason FROM sluice_inbox_audit").scalars().all()
    assert tuple(position) == (1, 3)
    assert list(audited) == ["audit is new"]


def test_a_planned_replay_sets_no_policy(archived_shop: OperatedShop) -> None:
    """Without `confirmed`, which is --yes on the command line, the subscription is left as it is."""
    _replay(archived_shop, confirmed=False)

    assert _live_policy(archived_shop) == {}


def test_a_replay_is_ended(archived_shop: OperatedShop) -> None:
    """Removing the replay policy is all that ends a replay in SNS."""
    _replay(archived_shop)

    _replay(archived_shop, "end", from_us=None)

    assert _live_policy(archived_shop) == {}


@pytest.mark.slow
def test_a_topic_without_an_archive_is_refused(shop: OperatedShop) -> None:
    """The topic has no archive policy, so SNS has nothing to replay."""
    with pytest.raises(ConfigError, match="archives nothing, allowed is one with an archive; declare archive_days"):
        _replay(shop)


@pytest.mark.parametrize(
    ("fields", "options", "refusal"),
    [
        ({"gaps": Gaps.RECORD}, {}, "does not wait for a group's first number, allowed is Gaps.HALT without joined_at"),
        ({}, {"from_us": 0}, "or later: a group may have begun to count anew since"),
        ({}, {"from_us": None}, "--archive start needs --from"),
    ],
    ids=["goes on at gaps", "too old", "without a start"],
)
def test_a_replay_that_would_go_wrong_is_refused(
    archived_shop: OperatedShop, fields: dict[str, Any], options: dict[str, Any], refusal: str
) -> None:
    """The subscription is left without a replay policy."""
    with pytest.raises(ConfigError, match=refusal):
        _replay(archived_shop, environment=_environment(**fields), **options)

    assert _live_policy(archived_shop) == {}


@pytest.mark.slow
def test_a_group_that_began_before_the_replay_is_refused(archived_shop: OperatedShop) -> None:
    """The group's epoch is set two hours back, before the hour that the replay begins with."""
    archived_shop.execute("UPDATE sluice_outbox_group SET epoch = epoch - 7200")

    with pytest.raises(ConfigError, match="1 group began before --from: audit would wait for their earlier numbers"):
        _replay(archived_shop)


@pytest.mark.slow
def test_an_inbox_that_has_handled_messages_is_refused(archived_shop: OperatedShop) -> None:
    """The replay is taken if the caller agrees to leave out what is handled."""
    shop = archived_shop
    shop.commit("b", 1)
    shop.relay()
    shop.work(AUDIT)

    with pytest.raises(ConfigError, match="audit has handled messages of 1 group, and would drop those that come"):
        _replay(shop)
    _replay(shop, leaves_out=True)


class _Statuses:
    """The answers of SNS to a watching command, one after the other."""

    def __init__(self, *statuses: str | None) -> None:
        self._statuses: Iterator[str | None] = iter(statuses)

    def call(self, _service: str, _call: Any) -> Any:
        status = next(self._statuses)
        return {} if status is None else {"ReplayStatus": status, "ReplayPolicy": '{"PointType": "Timestamp"}'}


@pytest.mark.parametrize("last", ["Completed", "Failed", None])
def test_a_replay_is_watched_to_its_end(capsys: pytest.CaptureFixture[str], last: str | None) -> None:
    """SNS shows four states, one a second; a subscription without a replay has no state."""
    clock = VirtualClock(0)
    sources: Any = _Statuses("Pending", "In progress", "In progress", last)

    ended = ArchiveReplay(sources=sources, subscription_arn="arn").watch(clock)

    assert ended == last
    assert capsys.readouterr().out.splitlines() == ["replay: Pending", "replay: In progress", f"replay: {last}"]
    assert clock.monotonic() >= 3


def test_a_replay_beside_another_is_refused(archived_shop: OperatedShop, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would replace the other one, and what that has not delivered would never come."""
    monkeypatch.setattr(ArchiveReplay, "status", lambda _: ("In progress", "{}"))

    with pytest.raises(ConfigError, match="a replay to audit is In progress"):
        _replay(archived_shop)


@pytest.mark.slow
def test_a_subscription_that_may_not_be_changed_is_an_error(archived_shop: OperatedShop) -> None:
    """The caller's policy denies SetSubscriptionAttributes."""
    archived_shop.denied = {"SetSubscriptionAttributes"}

    with pytest.raises(EndpointError, match="SNS did not do it"):
        _replay(archived_shop)


@pytest.mark.slow
def test_a_failed_replay_ends_with_2(archived_shop: OperatedShop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that watches the replay sees the failure by the exit code."""
    monkeypatch.setattr(ArchiveReplay, "status", lambda _: (archive.FAILED, "{}"))

    with pytest.raises(SystemExit) as ended:
        _replay(archived_shop, "watch", from_us=None)
    assert ended.value.code == 2
