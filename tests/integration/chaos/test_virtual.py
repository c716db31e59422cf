"""Virtual runs: the product is valid under every seed, what does without a part is not, and each repeats itself."""

from dataclasses import replace

import pytest

from spark_load.faults.drawing import ScheduledFault
from spark_load.faults.shapes import FaultKind
from tests.chaos.virtual.running import Result, result, witness
from tests.chaos.virtual.schedules import function_story, story
from tests.chaos.virtual.variants import story_of


@pytest.mark.parametrize(
    "seed", [*range(1, 4), *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(4, 201))]
)
def test_the_product_does_everything_once_and_in_order_under_chaos(seed: int) -> None:
    """The rows of its database and the history of its calls are both judged."""
    found = result(story(seed, messages=12, seconds=16), "sound")

    assert found.violations == ()
    assert found.unfinished is None
    assert found.events == 12
    assert found.hits.total() > 0


@pytest.mark.parametrize("seed", [2, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(3, 101))])
def test_an_asyncio_handler_does_everything_once_and_in_order_under_chaos(seed: int) -> None:
    """The handler first waits, while other handlers run, and then begins its transaction."""
    found = result(story(seed, messages=12, seconds=16), "asyncio")

    assert found.violations == ()
    assert found.unfinished is None
    assert found.events == 12


def test_an_async_handler_whose_mark_is_committed_first_is_found_invalid() -> None:
    found = result(story(2, messages=12, seconds=16), "asyncio-marks-before")

    assert any("it has no effect, is in no queue" in violation for violation in found.violations)


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.slow if seed < 4 else pytest.mark.deep) for seed in range(2, 101)]
)
def test_so_do_djangos_atomic_blocks_and_orm_handlers(seed: int) -> None:
    found = result(story(seed, messages=12, seconds=16), "django")

    assert found.violations == ()
    assert found.unfinished is None
    assert found.events == 12


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "seed"), [("django-marks-before", 2), ("django-outside-atomic", 4)])
def test_a_broken_django_project_is_found_invalid(variant: str, seed: int) -> None:
    """The same seed is valid with the product."""
    whole = story(seed, messages=12, seconds=16)

    assert result(whole, "django").violations == ()
    assert any("it has no effect, is in no queue" in violation for violation in result(whole, variant).violations)


_FUNCTION_SEED = 1
"""With it a process is killed and another one takes too long, both in the middle of a batch, and six batches are
throttled."""


def _function_result(variant: str, seed: int = _FUNCTION_SEED) -> Result:
    return result(function_story(seed, shape="crashes", messages=8, seconds=6), variant)


@pytest.mark.parametrize(
    "seed",
    [
        _FUNCTION_SEED,
        *(pytest.param(seed, marks=pytest.mark.slow if seed < 6 else pytest.mark.deep) for seed in range(2, 101)),
    ],
)
def test_a_function_does_everything_once_and_in_order_under_chaos(seed: int) -> None:
    """No message dies whose attempts are not used up, and no answer reports too much or too little."""
    found = _function_result("lambda", seed)

    assert found.violations == ()
    assert found.unfinished is None
    assert found.events == 8
    assert found.hits.total() > 0


def test_a_function_whose_concurrency_changes_does_everything_once_and_in_order() -> None:
    """First one of two invocations is refused, then both, then the other, each for longer than a batch is tried again.

    The queue's visibility timeout is twelve seconds: batches are dropped, and come again.
    """
    throttles = tuple(
        ScheduledFault(kind=FaultKind.THROTTLE, target=target, at_seconds=at_seconds, until_seconds=at_seconds + 15)
        for target, at_seconds in (("worker-0", 0.0), ("consumer", 15.0), ("worker-1", 30.0))
    )
    whole = function_story(_FUNCTION_SEED, messages=8, seconds=40)

    found = result(replace(whole, faults=throttles), "lambda")

    assert found.violations == ()
    assert found.unfinished is None
    assert found.hits["throttle"] > len(throttles)


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ("report-only-the-failed", "out of order"),
        ("stop-the-whole-batch", "was reported untouched, and nothing of its group had failed"),
        ("delete-before-commit", "it has no effect, is in no queue"),
        ("count-receives-as-attempts", "is in the DLQ, and its attempts are not used up"),
    ],
)
def test_a_function_with_a_classic_mistake_is_found_invalid(mistake: str, sentence: str) -> None:
    """The same seed is valid with the product's function."""
    found = _function_result(f"lambda-{mistake}")

    assert any(sentence in violation for violation in found.violations)


@pytest.mark.parametrize(
    ("variant", "seed", "sentence", "messages_left"),
    [
        pytest.param("no-inbox", 5, "has 2 effects", 2, marks=pytest.mark.slow),
        pytest.param("delete-first", 2, "it has no effect, is in no queue", 1, marks=pytest.mark.slow),
        pytest.param("outside-outbox", 5, "it has no effect, is in no queue", 1, marks=pytest.mark.slow),
        # Two of several groups wait for one call, which takes 36 tries to find.
        pytest.param("whole-batches", 1, "was taken for deleted and came again", 4, marks=pytest.mark.slow),
    ],
)
def test_a_product_without_one_part_is_found_invalid_and_shrunk(
    variant: str, seed: int, sentence: str, messages_left: int
) -> None:
    """The product is valid under the same seed; one fault and a few messages of it are left."""
    whole = story(seed, messages=12, seconds=16)

    assert result(whole, "sound").violations == ()
    assert result(whole, variant).violations  # else there is nothing to cut down
    least = witness(whole, variant)

    assert any(sentence in found for found in least.result.violations)
    assert len(least.story.faults) == 1
    assert len(least.story.publishes) == messages_left
    assert len(whole.faults) >= 8
    assert result(least.story, variant).violations == least.result.violations


_BUNDLE_SEED = 8
"""With it the answer to a bundle is missed, and events of its group are committed then; an event dies in a bundle."""


def _bundle_result(variant: str, seed: int = _BUNDLE_SEED) -> Result:
    return result(story_of(variant)(seed, shape="crashes", messages=16), variant)


@pytest.mark.parametrize(
    ("variant", "seed"),
    [
        ("bundles", _BUNDLE_SEED),
        *(pytest.param("bundles", seed, marks=pytest.mark.deep) for seed in range(9, 101)),
        pytest.param("bundles-together", _BUNDLE_SEED, marks=pytest.mark.slow),
        *(pytest.param("bundles-together", seed, marks=pytest.mark.deep) for seed in range(9, 101)),
        pytest.param("bundled-lambda", _BUNDLE_SEED, marks=pytest.mark.slow),
        *(pytest.param("bundled-lambda", seed, marks=pytest.mark.deep) for seed in range(9, 101)),
    ],
)
def test_bundled_events_are_handled_once_in_order_and_poison_dies_alone(variant: str, seed: int) -> None:
    """No event is sent in two different messages, and no neighbour of a rejected one is in the DLQ."""
    found = _bundle_result(variant, seed)

    assert found.violations == ()
    assert found.unfinished is None
    assert found.events == 16


@pytest.mark.parametrize(
    ("variant", "sentence"),
    [
        ("bundles-unstored", "was sent in 2 different messages"),
        pytest.param("bundles-die-together", "is in the DLQ, and its attempts are not used up", marks=pytest.mark.slow),
        pytest.param("bundles-after-the-first", "it has no effect, is in no queue", marks=pytest.mark.slow),
        pytest.param("bundled-lambda-after-the-first", "it has no effect, is in no queue", marks=pytest.mark.slow),
    ],
)
def test_bundles_with_a_classic_mistake_are_found_invalid(variant: str, sentence: str) -> None:
    """The same seed is valid with the product."""
    found = _bundle_result(variant)

    assert any(sentence in violation for violation in found.violations)


def test_a_schedule_has_what_a_virtual_run_can_do_and_nothing_else() -> None:
    """A fault that a virtual run cannot do would have no effect, and take the place of one that has."""
    drawn = {fault.kind.value for seed in range(1, 20) for fault in story(seed).faults}

    assert drawn == {
        *("kill", "terminate", "freeze", "deploy", "lock"),
        *("cut", "stall", "slow", "lose", "answer"),
    }


def test_a_delete_batch_taken_as_a_whole_is_found_invalid() -> None:
    found = result(story(1, messages=12, seconds=16), "whole-batches")

    assert any("was taken for deleted and came again" in violation for violation in found.violations)


def test_the_same_seed_takes_the_same_steps() -> None:
    """Without this a failing seed could be neither repeated nor shrunk."""
    first, again, other = (result(story(seed, messages=12, seconds=16), "sound").hits for seed in (4, 4, 5))

    assert first == again
    assert first != other
