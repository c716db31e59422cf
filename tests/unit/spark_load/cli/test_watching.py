"""A running load test shows its progress; the tests make the tasks' reports, and move the clock by hand."""

import io
from dataclasses import replace

from rich.console import Console

from sluice.clock import VirtualClock
from sluice.history.events import Identity
from spark_load.cli.watching import ProgressTable, Watcher, line
from spark_load.consume.job import LiveChecks
from spark_load.profiles.profile import Profile
from spark_load.runtime.coordinator import TaskProgress

_LOAD = Profile(messages_per_second=10, duration_seconds=100, group_count=100, duplicate_share=0.1)
_QUEUES = ["sluice-local-billing.fifo", "sluice-local-audit.fifo"]


def _progress(published: int, billing: int, audit: int, **seen: int) -> list[TaskProgress]:
    return [
        TaskProgress(worker="publish-0", role="publish", done=published // 2),
        TaskProgress(worker="publish-1", role="publish", done=published - published // 2),
        TaskProgress(worker="consume-0", role="consume", queue=_QUEUES[0], done=billing, **seen),
        TaskProgress(worker="consume-1", role="consume", queue=_QUEUES[1], done=audit),
    ]


def test_a_row_shows_a_queues_progress_and_its_end() -> None:
    """Of 1,200 publishes a twelfth are repeats, so 1,100 messages and end markers arrive.

    The rate is of the last seconds.
    """
    clock = VirtualClock()
    gauge = ProgressTable(_LOAD, _QUEUES, clock)

    gauge.rows(_progress(0, 0, 0))
    clock.sleep(5)
    published, billing, audit = gauge.rows(_progress(600, 500, 0, again=2, strangers=1))

    assert published.name == "published"
    assert published.done == 600
    assert published.expected == 1_200
    assert published.per_second == 120
    assert published.left_seconds == 5
    assert billing.name == "billing"
    assert billing.sent == 550
    assert billing.done == 500
    assert billing.expected == 1_100
    assert billing.waiting == 50
    assert billing.per_second == 100
    assert billing.left_seconds == 6
    assert billing.seen == "2 again, 1 of strangers"
    assert audit.waiting == 550
    assert audit.per_second == 0
    assert audit.left_seconds is None
    assert audit.seen == ""


def test_the_progress_of_workers_is_unknown() -> None:
    """Workers send no reports; a 0 would say that nothing was consumed."""
    gauge = ProgressTable(replace(_LOAD, consumer="worker"), _QUEUES, VirtualClock())

    _, billing, audit = rows = gauge.rows([TaskProgress(worker="publish-0", role="publish", done=600)])

    assert billing.sent == 550
    assert billing.done is None
    assert billing.waiting is None
    assert billing.left_seconds is None
    assert replace(billing, name="audit") == audit
    assert line("draining", rows) == (
        "draining; published 600 of about 1,200 at 0/s; billing — of about 1,100 at —, seen so far: workers do not say"
        " how far they are; audit — of about 1,100 at —, seen so far: workers do not say how far they are"
    )


def test_the_shown_rate_is_of_the_last_seconds() -> None:
    """Everything was published in ten seconds; twenty seconds later the rate is 0 and there is no estimate."""
    clock = VirtualClock()
    gauge = ProgressTable(_LOAD, _QUEUES, clock)

    for index in range(30):
        rows = gauge.rows(_progress(min(100 * index, 1_000), 0, 0))
        clock.sleep(1)

    assert rows[0].per_second == 0
    assert rows[0].left_seconds is None


def test_a_queue_without_a_topic_has_its_share_and_no_estimate() -> None:
    """Publishers do not report to which queue they sent a message."""
    direct = Profile(messages_per_second=10, duration_seconds=100, group_count=100, destination="queue")

    _, billing, _ = ProgressTable(direct, _QUEUES, VirtualClock()).rows(_progress(600, 100, 100))

    assert billing.sent is None
    assert billing.waiting is None
    assert billing.expected == 550


def test_progress_without_a_terminal_is_a_line_each_ten_seconds() -> None:
    """And one when the phase changes; the seconds left follow from the rate of the last seconds."""
    clock, output = VirtualClock(), io.StringIO()
    console = Console(file=output, width=40, force_terminal=False)

    with Watcher(_LOAD, _QUEUES, clock, console) as watch:
        watch("starting Spark", [])
        for index in range(25):
            watch("publishing", _progress(40 * index, 30 * index, 20 * index))
            clock.sleep(1)
        watch("draining", _progress(1_000, 900, 800, fallen_back=3))

    assert output.getvalue().splitlines() == [
        "starting Spark",
        "publishing; published 0 of about 1,200 at 0/s; billing 0 of about 1,100 at 0/s, 0 waiting;"
        " audit 0 of about 1,100 at 0/s, 0 waiting",
        "publishing; published 400 of about 1,200 at 40/s, 20 s left;"
        " billing 300 of about 1,100 at 30/s, 67 waiting, 27 s left;"
        " audit 200 of about 1,100 at 20/s, 167 waiting, 45 s left",
        "publishing; published 800 of about 1,200 at 40/s, 10 s left;"
        " billing 600 of about 1,100 at 30/s, 133 waiting, 17 s left;"
        " audit 400 of about 1,100 at 20/s, 333 waiting, 35 s left",
        "draining; published 1,000 of about 1,200 at 40/s, 5 s left;"
        " billing 900 of about 1,100 at 45/s, 17 waiting, 4 s left, seen so far: 3 behind a later one;"
        " audit 800 of about 1,100 at 50/s, 117 waiting, 6 s left",
    ]


def test_progress_on_a_terminal_is_a_table_that_is_redrawn() -> None:
    """`\x1b[1A` moves the cursor up: the table is removed at the end."""
    output = io.StringIO()
    console = Console(file=output, width=120, force_terminal=True, color_system=None)

    with Watcher(_LOAD, _QUEUES, VirtualClock(), console) as watch:
        watch("publishing", _progress(600, 500, 0, again=2))
        shown = output.getvalue()

    assert "publishing" in shown
    assert "seen so far, no verdict" in shown
    rows = {words[0]: words[1:] for text in shown.splitlines() if (words := text.split())}
    assert rows["billing"] == ["550", "500", "1,100", "50", "0/s", "—", "2", "again"]
    assert rows["audit"] == ["550", "0", "1,100", "550", "0/s", "—"]
    assert "\x1b[1A" in output.getvalue()[len(shown) :]  # at the end it goes away


def test_a_consumer_counts_suspicious_receives() -> None:
    """Message 2 of group a comes behind 3, message 3 comes again, and two messages are not of this run."""
    progress = TaskProgress(worker="consume-0", role="consume")
    live_checks = LiveChecks(progress, "r", _LOAD)

    for group, idx, receive_count in [("a", 1, 1), ("a", 3, 1), ("a", 2, 1), ("b", 2, 1), ("a", 3, 2), ("a", -1, 1)]:
        live_checks.look(Identity(run="r", message_group_id=group, idx=idx), receive_count=receive_count)
    live_checks.look(Identity(run="other", message_group_id="a", idx=9), receive_count=1)
    live_checks.look(None, receive_count=1)

    assert progress.fallen_back == 1
    assert progress.again == 1
    assert progress.strangers == 2


def test_a_message_behind_a_later_one_may_be_lawful() -> None:
    """A repeat outside the deduplication window is a message of its own, behind later ones."""
    load = replace(_LOAD, late_duplicate_share=0.1, late_duplicate_after_seconds=400)
    progress = TaskProgress(worker="consume-0", role="consume")
    live_checks = LiveChecks(progress, "r", load)

    for idx in (3, 2):
        live_checks.look(Identity(run="r", message_group_id="a", idx=idx), receive_count=1)

    assert progress.fallen_back == 0


def test_progress_without_oddities_does_not_mention_any() -> None:
    rows = ProgressTable(_LOAD, _QUEUES, VirtualClock()).rows(_progress(600, 500, 0))

    assert "seen so far" not in line("publishing", rows)
