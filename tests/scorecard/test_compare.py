"""`gl.compare` as a whole, on small data."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest
import torch

import gatelab as gl
from gatelab.cli.output import plain
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


@pytest.mark.slow
def test_own_units_stand_beside_ours(card: Scorecard):
    assert card.units == ("softgate", "glu", "Square")
    frame = card.table()
    assert list(frame["unit"]) == list(card.units) and (frame["parameters"] <= 15).all()
    assert np.isfinite(frame[["rmse", "slope", "condition_low", "rows_per_second", "steps"]]).all(axis=None)
    # What has no formula is not made up.
    assert np.isnan(card.score("softgate").linear_error) and np.isfinite(card.score("glu").linear_error)
    assert card.score("softgate").kernel_networks > 0 == card.score("glu").kernel_networks


def test_numbers_are_those_of_the_fits(card: Scorecard):
    problem = gl.Problem.from_arrays(*rows())
    best = card.score("glu")
    fits = gl.fit_many("glu", problem, [best.width], seeds=2, starts=1, rounds=4)
    assert best.rmse == pytest.approx(np.mean([f.test_rmse for f in fits]), rel=1e-9)
    assert best.train_rmse == pytest.approx(np.mean([f.train_rmse for f in fits]), rel=1e-9)
    assert best.rmse_low < best.rmse < best.rmse_high
    assert min(s.behind for s in card.scores) == 1
    assert card.recommendation.unit in card.units


def test_it_is_plain_and_frozen(card: Scorecard):
    made = json.loads(json.dumps(plain(card), allow_nan=False))
    assert made["recommendation"]["unit"] == card.recommendation.unit
    assert made["scores"][0]["linear_error"] is None and len(made["scaling"]["points"]) == len(card.scaling.points)
    with pytest.raises(dataclasses.FrozenInstanceError):
        card.problem = "other"  # pyright: ignore[reportAttributeAccessIssue]


@pytest.fixture(scope="module")
def page(card: Scorecard) -> str:
    """The page of a card whose problem has a hostile name."""
    return scorecard_page(
        dataclasses.replace(card, problem="<script>alert(1)</script>"), "gatelab compare --data a.csv"
    )


def test_the_figure_has_a_panel_for_every_question_and_the_page_all_numbers(card: Scorecard, page: str):
    figure = card.plot()
    assert len(figure.axes) == 6
    assert "not known" in [t.get_text() for t in figure.axes[4].texts]
    for text in (*card.units, f"Take {card.recommendation}", "gatelab compare --data a.csv", "rows a second"):
        assert text in page
    text = re.sub(r"<[^>]+>", "", page)
    for s in card.scores:
        assert f"{s.rmse:.3g} [{s.rmse_low:.3g}, {s.rmse_high:.3g}]" in text
    assert page.count("<section") == 4


def test_a_hostile_name_is_text_in_the_page(page: str):
    assert "<script>alert(1)" not in page and "&lt;script&gt;alert(1)" in page


@pytest.fixture(scope="module")
def uneven() -> Scorecard:
    """Two widths of units that have different numbers of parameters at the same width."""
    return compare(["mlp", "glu"], rows(), widths=[2, 3], seeds=1, features=4, d_model=8)


@pytest.mark.slow
def test_what_was_fitted_is_compared_or_left_out_with_a_reason(uneven: Scorecard):
    """glu of width 3 has 22 parameters; units are held against each other at the 13 of mlp of width 3."""
    fitted = {(p.unit, p.width) for p in uneven.scaling.points}
    compared = {(n.unit, n.width) for n in uneven.networks}
    absent = {(one.unit, one.width) for one in uneven.left_out if one.left_out_of == "comparison"}
    assert uneven.settings.budget == 13 and absent == {("glu", 2), ("glu", 3)} == fitted - compared
    largest = next(one for one in uneven.left_out if one.width == 3)
    assert largest.parameters == 22 and "a budget of 22 would compare it" in str(largest)
    page = re.sub(r"<[^>]+>", "", scorecard_page(uneven))
    document = json.loads(json.dumps(plain(uneven), allow_nan=False))
    assert [one["width"] for one in document["left_out"]] == [2, 3]
    for one in uneven.left_out:
        assert str(one) in page
    again = compare(["mlp", "glu"], rows(), widths=[2, 3], budget=22, seeds=1, features=4, d_model=8)
    assert not again.left_out and ("glu", 3) in {(n.unit, n.width) for n in again.networks}


def test_points_that_the_slope_leaves_out_are_named():
    x = np.linspace(-1, 1, 40)
    card = compare(["mlp", "bilinear"], (x, x**2), widths=[1, 6], seeds=1, features=4, d_model=8)
    flagged = {(p.unit, p.width) for p in card.scaling.points if p.flag}
    assert flagged and {(one.unit, one.width) for one in card.left_out if one.left_out_of == "slope"} == flagged
    assert any("exact to rounding" in one.reason for one in card.left_out)
    assert any("half of the 32 values" in one.reason for one in card.left_out)


@pytest.fixture(scope="module")
def smallest() -> tuple[Scorecard, list[tuple[int, int]]]:
    """A card of one width, and the progress that it reported."""
    told: list[tuple[int, int]] = []
    small = {"seeds": 1, "features": 4, "d_model": 8}
    return compare(["mlp", "glu"], rows(), widths=[1], progress=lambda *now: told.append(now), **small), told


def test_two_widths_are_not_called_one(uneven: Scorecard, smallest: tuple[Scorecard, list[tuple[int, int]]]):
    """mlp was fitted at widths 2 and 3, 9 and 13 parameters: less than twice the width."""
    first = uneven.recommendation.reasons[0]
    assert "alone" not in first and "from 9 to 13 parameters" in first
    alone, _ = smallest
    assert re.match(r"within 8 parameters \w+ was fitted at width 1 alone", alone.recommendation.reasons[0])


def test_equal_calls_give_equal_numbers_but_for_the_clock(smallest: tuple[Scorecard, list[tuple[int, int]]]):
    first, second = smallest[0], compare(["mlp", "glu"], rows(), widths=[1], seeds=1, features=4, d_model=8)
    clock = [c for c in first.table().columns if c.startswith("rows_per_second")]
    assert first.table().drop(columns=clock).equals(second.table().drop(columns=clock))
    assert first.networks == second.networks


def test_progress_runs_to_its_end(smallest: tuple[Scorecard, list[tuple[int, int]]]):
    done, total = zip(*smallest[1], strict=True)
    assert set(total) == {2 + 6} and done[-1] == total[0] and list(done) == sorted(done)


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
    ids=["one", "same", "unknown", "budget", "seeds", "small", "large", "loss", "features", "model"],
)
def test_what_cannot_be_compared_is_refused(units: list, options: dict, said: str):
    with pytest.raises(gl.GatelabError, match=said):
        compare(units, rows(), **options)
