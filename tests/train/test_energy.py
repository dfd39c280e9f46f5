"""Energy distance and its permutation test: against loops, against scipy, and how often it cries wolf."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from gatelab.errors import GatelabError
from gatelab.train import permutation_test

rng = np.random.default_rng(0)
A, B = rng.normal(size=(17, 2)), 0.4 + rng.normal(size=(11, 2))


def slowly(a: np.ndarray, b: np.ndarray) -> float:
    """The definition, a pair at a time."""

    def mean(x: np.ndarray, y: np.ndarray) -> float:
        return sum(float(np.sqrt(sum((p - q) ** 2))) for p in x for q in y) / (len(x) * len(y))

    return 2 * mean(a, b) - mean(a, a) - mean(b, b)


def distance(a: np.ndarray, b: np.ndarray) -> float:
    return permutation_test([a], [b], scale=False).distance


def test_distance_is_its_definition() -> None:
    assert distance(A, B) == pytest.approx(slowly(A, B), rel=1e-12)
    assert distance(A, A) == pytest.approx(0.0, abs=1e-12)
    x, y = A[:, 0], B[:, 1]
    assert distance(x, y) == pytest.approx(stats.energy_distance(x, y) ** 2, rel=1e-10)


def runs_of(generator: np.random.Generator, count: int, shift: float = 0.0, apart: float = 0.2) -> list[np.ndarray]:
    """Trajectories of 12 points (loss, gap); `apart` is the deviation of the gap from run to run."""
    loss = np.linspace(2.0, 0.4, 12)
    return [
        np.stack([loss * np.exp(apart / 4 * generator.normal()), shift + (2 - loss) + apart * generator.normal()], 1)
        for _ in range(count)
    ]


@pytest.mark.parametrize("exchange", ["runs", "points"])
@pytest.mark.parametrize("scale", [True, False])
def test_the_test_is_a_loop_over_all_arrangements(exchange: str, scale: bool) -> None:
    generator = np.random.default_rng(3)
    a, b = runs_of(generator, 3, 0.1), runs_of(generator, 2)
    if exchange == "points":
        a, b = [r[:2] for r in a[:2]], [r[:3] for r in b[:1]]
    found = permutation_test(a, b, exchange=exchange, scale=scale)
    pool = np.concatenate([*a, *b])
    spread = pool.std(0) if scale else 1.0
    whole = [r / spread for r in (*a, *b)]
    parts = whole if exchange == "runs" else [p[None] for r in whole for p in r]
    first = len(a) if exchange == "runs" else sum(len(r) for r in a)

    def apart(chosen: tuple[int, ...]) -> float:
        x = np.concatenate([parts[i] for i in chosen])
        y = np.concatenate([parts[i] for i in range(len(parts)) if i not in chosen])
        return slowly(x, y)

    every = [apart(c) for c in combinations(range(len(parts)), first)]
    assert found.exact and found.arrangements == len(every)
    assert found.distance == pytest.approx(every[0], rel=1e-10)
    assert found.p == pytest.approx(np.mean([v >= every[0] - 1e-12 for v in every]))


def test_the_least_p_is_reached_and_halved_only_by_unequal_groups() -> None:
    generator = np.random.default_rng(1)
    for n_a, n_b, least in ((3, 3, 0.1), (4, 4, 2 / 70), (3, 4, 1 / 35)):
        found = permutation_test(runs_of(generator, n_a), runs_of(generator, n_b, shift=50.0))
        assert found.p == found.least_p == pytest.approx(least)
        assert found.coefficient > 0.5 and "the smallest possible" in str(found)


def test_drawn_arrangements_agree_with_all_of_them() -> None:
    generator = np.random.default_rng(5)
    a, b = runs_of(generator, 6, 0.15), runs_of(generator, 6)
    every, drawn = permutation_test(a, b), permutation_test(a, b, permutations=600)
    assert every.exact and not drawn.exact and every.arrangements == 924
    # Three deviations of a share of 600 draws: a false alarm in 370 seeds, and the seed is fixed.
    assert drawn.p == pytest.approx(every.p, abs=3 * (0.25 / 600) ** 0.5)
    assert drawn.least_p == pytest.approx(1 / 601)


def test_false_alarms_of_runs_are_as_stated_and_those_of_points_are_not() -> None:
    """300 comparisons of 4 against 4 equal runs: p <= 2/35 in that share, up to three deviations (0.999)."""
    generator = np.random.default_rng(7)
    level = 2 / 35 + 1e-9
    runs = points = 0
    for _ in range(300):
        a, b = runs_of(generator, 4, apart=1.5), runs_of(generator, 4, apart=1.5)
        runs += permutation_test(a, b).p <= level
        points += permutation_test(a, b, exchange="points", permutations=99).p <= level
    assert runs / 300 <= level + 3 * (level * (1 - level) / 300) ** 0.5
    assert points / 300 > 0.4


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        ([], [A], "0 and 1 runs"),
        ([A], [B[:, :1]], "coordinates"),
        ([A], [np.array([[np.nan, 1.0]])], "not finite"),
        ([np.empty((0, 2))], [B], "one or more"),
    ],
)
def test_it_refuses_what_it_cannot_compare(a: list, b: list, says: str) -> None:
    with pytest.raises(GatelabError, match=says):
        permutation_test(a, b)
    with pytest.raises(GatelabError, match="'runs' or 'points'"):
        permutation_test([A], [B], exchange="seeds")  # type: ignore[arg-type]
