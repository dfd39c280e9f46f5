"""`gl.compare` as a whole, on small data."""

from __future__ import annotations

import dataclasses
import html
import re

import numpy as np
import pytest
import torch

import gatelab as gl
from gatelab.report.builders import scorecard_page
from gatelab.scorecard import Scorecard, compare

QUICK = {"seeds": 2, "features": 16, "d_model": 8}


def softgate(z, v):
    return torch.nn.functional.softplus(z) * v


class Square(torch.nn.Module):
    def __init__(self, width: int, d_in: int, d_out: int) -> None:
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(d_in, width), torch.nn.Linear(width, d_out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(self.inner(x).square())


def rows() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).uniform(-1, 1, (90, 2))
    return x, np.sin(2 * x[:, 0]) * x[:, 1]


@pytest.fixture(scope="module")
def card() -> Scorecard:
    return compare([softgate, "glu", Square], rows(), budget=15, widths=[1, 2], **QUICK)


def test_own_units_stand_beside_ours(card: Scorecard):
    assert card.units == ("softgate", "glu", "Square")
    frame = card.table()
    assert list(frame["unit"]) == list(card.units) and (frame["parameters"] <= 15).all()
    assert np.isfinite(frame[["rmse", "slope", "condition_low", "rows_per_second", "steps"]]).all(axis=None)
    # What has no formula is not made up.
    assert np.isnan(card.score("softgate").linear.value) and np.isfinite(card.score("glu").linear.value)
    assert card.score("softgate").sampled > 0 == card.score("glu").sampled
    assert card.recommendation.unit in card.units and "sampled networks" in card.advice


def test_numbers_are_those_of_the_fits(card: Scorecard):
    problem = gl.Problem.from_arrays(*rows())
    best = card.score("glu")
    fits = gl.fit_many("glu", problem, [best.width], seeds=2, starts=1, rounds=4)
    assert best.rmse.value == pytest.approx(np.mean([f.test_rmse for f in fits]), rel=1e-9)
    assert best.train_rmse == pytest.approx(np.mean([f.train_rmse for f in fits]), rel=1e-9)
    assert best.rmse.low < best.rmse.value < best.rmse.high
    assert min(s.ratio.value for s in card.scores) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        card.scores = ()  # pyright: ignore[reportAttributeAccessIssue]


def test_errors_on_a_standardized_problem_are_those_of_its_fits():
    card = compare(["mlp", "glu"], gl.problem("100 + 50*x*y", n=60, standardise=True), widths=[1], **QUICK)
    found = {(p.unit, p.width): [] for p in card.scaling.points}
    for p in card.scaling.points:
        found[p.unit, p.width].append(p.test_rmse)
    assert all(n.rmse.value == pytest.approx(np.mean(found[n.unit, n.width]), rel=1e-9) for n in card.networks)


def test_the_page_has_all_numbers_and_a_hostile_name_is_text_in_it(card: Scorecard):
    figure = card.plot()
    assert len(figure.axes) == 6 and "not known" in [t.get_text() for t in figure.axes[4].texts]
    hostile = dataclasses.replace(card, facts={**card.facts, "problem": "<script>alert(1)</script>"})
    page = scorecard_page(hostile, "gatelab compare --data a.csv")
    assert "<script>alert(1)" not in page and "&lt;script&gt;alert(1)" in page and page.count("<section") == 4
    text = html.unescape(re.sub(r"<[^>]+>", "", page))
    for part in (*card.units, f"Take {card.recommendation}", "gatelab compare --data a.csv"):
        assert part in text
    assert all(str(s.rmse) in text for s in card.scores)
    assert all(item.replace(" %", "\u00a0%") in text for items in list(card.sections.values())[1:] for item in items)


def test_what_was_fitted_is_compared_or_left_out_with_a_reason():
    """glu of width 3 has 22 parameters; units are compared at the 13 of mlp of width 3."""
    uneven = compare(["mlp", "glu"], rows(), widths=[2, 3], seeds=1, features=4, d_model=8)
    fitted = {(p.unit, p.width) for p in uneven.scaling.points}
    absent = uneven.left_out()
    assert set(absent["why"]) == {"budget"} and uneven.facts["budget"] == 13
    assert {("glu", 2), ("glu", 3)} == fitted - {(n.unit, n.width) for n in uneven.networks}
    assert list(zip(absent["width"], absent["parameters"], absent["fits"], strict=True)) == [(2, 15, 1), (3, 22, 1)]
    assert any("a budget of 22 would compare it" in item for item in uneven.sections["Left out"])
    again = compare(["mlp", "glu"], rows(), widths=[2, 3], budget=22, seeds=1, features=4, d_model=8)
    assert again.left_out().empty and ("glu", 3) in {(n.unit, n.width) for n in again.networks}


def test_points_that_the_slope_leaves_out_are_named():
    x = np.linspace(-1, 1, 40)
    card = compare(["mlp", "bilinear"], (x, x**2), widths=[1, 6], seeds=1, features=64, d_model=8)
    absent = card.left_out()
    flagged = {(p.unit, p.width, p.flag) for p in card.scaling.points if p.flag}
    left = {(unit, width, why) for unit, width, _, why, _ in absent.to_numpy().tolist() if why != "budget"}
    assert left == flagged and {why for *_, why in left} == {"floor", "interpolation"}
    # The product of two linear maps has no more than 2 x 2 features, whatever was asked for.
    assert card.score("bilinear").features == 4 and card.score("bilinear").linear.value < 1e-6


def test_equal_calls_give_equal_numbers_but_for_the_clock_and_progress_runs_to_its_end():
    told: list[tuple[int, int]] = []
    small = {"widths": [1], "seeds": 1, "features": 4, "d_model": 8}
    first = compare(["mlp", "glu"], rows(), progress=lambda *now: told.append(now), **small)
    second = compare(["mlp", "glu"], rows(), **small)
    clock = [c for c in first.table().columns if c.startswith("rows_per_second")]
    assert first.table().drop(columns=clock).equals(second.table().drop(columns=clock))
    assert first.networks == second.networks and first.recommendation.regime == "open"
    done, total = zip(*told, strict=True)
    assert set(total) == {2 + 3} and done[-1] == total[0] and list(done) == sorted(done)


@pytest.mark.parametrize(
    ("units", "options", "said"),
    [
        (["glu"], {}, "1 unit given; a comparison needs two"),
        (["glu", "reglu"], {}, "different names"),
        (["glu", "gllu"], {}, "no unit is called 'gllu'"),
        (["glu", "mlp"], {"budget": 0}, "budget is 0"),
        (["glu", "mlp"], {"seeds": 0}, "seeds is 0"),
        (["glu", "mlp"], {"budget": 5}, "one neuron of glu has 8 parameters"),
        (["glu", "mlp"], {"budget": 5000}, "more data"),
        (["glu", "mlp"], {"loss": 0}, "loss is 0"),
        (["glu", "mlp"], {"features": 0}, "features is 0"),
        (["glu", "mlp"], {"d_model": 0}, "d_model is 0"),
    ],
)
def test_what_cannot_be_compared_is_refused(units: list, options: dict, said: str):
    with pytest.raises(gl.GatelabError, match=said):
        compare(units, rows(), **options)
