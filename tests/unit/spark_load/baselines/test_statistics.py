"""The comparison of two samples and Holm's correction, against published tables and calculations by hand."""

import math

import numpy as np
import pytest

from spark_load.baselines.statistics import detectable, holm, slower, upper_tail


@pytest.mark.parametrize(
    ("t", "freedom", "probability"),
    [(1.0, 1, 0.25), (2.262157, 9, 0.025), (2.527977, 20, 0.01), (3.551808, 20, 0.001), (0.0, 7, 0.5), (-1.0, 1, 0.75)],
)
def test_students_distribution_is_that_of_the_tables(t: float, freedom: int, probability: float) -> None:
    """Source: tables of Student's t, https://www.itl.nist.gov/div898/handbook/eda/section3/eda3672.htm."""
    assert upper_tail(t, freedom) == pytest.approx(probability, rel=1e-5)


def test_ratios_are_of_geometric_means() -> None:
    """Means of 1, 4, 2 and of 6, 6: 2 and 6. In units of log 2 the squares are 2, so t is log2(3) / sqrt(2/3 * 5/6)."""
    found = slower([1, 4, 2], [6, 6])

    assert found.ratio == pytest.approx(3)
    assert found.p == pytest.approx(upper_tail(math.log2(3) / math.sqrt(2 / 3 * 5 / 6), 3))


def test_a_difference_is_less_sure_if_deviations_last_until_the_next_run() -> None:
    """Deviations -1, 0, 1 have an autocorrelation of 0, without its bias of 1/3: factors 41/27 of three, 4/3 of two."""
    found = slower([1, 2, 4], [6, 6])

    assert found.ratio == pytest.approx(3)
    assert found.p == pytest.approx(upper_tail(math.log2(3) / math.sqrt(2 / 3 * (41 / 27 / 3 + 4 / 3 / 2)), 3))


def test_any_difference_from_a_constant_past_is_slower() -> None:
    """`p` is the probability that the difference is chance; without any variation it is 0 or 1."""
    assert slower([1, 1, 1], [1.01]).p == 0
    assert slower([1, 1, 1], [1]).p == 1


def test_a_run_slower_by_the_detectable_ratio_is_just_called_slower() -> None:
    """0.1 % more is found at the level of 0.001, and 0.1 % less is not."""
    before = np.exp(np.random.default_rng(1).normal(0, 0.1, 12)).tolist()
    needed = detectable(before, level=0.001) * math.exp(np.log(before).mean())

    assert slower(before, [needed * 1.001]).p < 0.001 < slower(before, [needed * 0.999]).p


def test_holms_correction_multiplies_probabilities_and_keeps_their_order() -> None:
    """The smallest of three is multiplied by 3, the next by 2; no result is above 1 or below the one before it."""
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})
    assert holm({"a": 0.6, "b": 0.9}) == {"a": 1.0, "b": 1.0}
