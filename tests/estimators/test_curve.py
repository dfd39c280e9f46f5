"""`scaling_curve` against a loop of fits, its slope, its table and its figure."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.model_selection import KFold

from gatelab import GatedClassifier, GatedRegressor, GatelabError, scaling_curve

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
QUICK = GatedRegressor("mlp", ridge=0.0, starts=2, rounds=1, steps=40, random_state=0)


@pytest.fixture(scope="module")
def line() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).uniform(-1, 1, (400, 1))
    return x, np.sin(4 * x[:, 0])


@pytest.mark.slow
def test_it_is_a_loop_of_fits(line) -> None:
    x, y = line
    cv = KFold(3, shuffle=True, random_state=0)
    curve = scaling_curve(QUICK, x, y, [4, 2], cv=cv)
    assert curve.widths == (2, 4)
    assert curve.parameters == (7, 13)
    for i, width in enumerate(curve.widths):
        for j, (train, test) in enumerate(cv.split(x)):
            model = clone(QUICK).set_params(width=width).fit(x[train], y[train])
            expected = np.sqrt(np.mean((model.predict(x[test]) - y[test]) ** 2))
            assert curve.test_rmse[i, j] == pytest.approx(expected, rel=1e-12)
    table = curve.table()
    assert table["test_rmse"].tolist() == pytest.approx(curve.test_rmse.mean(axis=1))
    assert table["train_std"].tolist() == pytest.approx(curve.train_rmse.std(axis=1))


def test_its_slope_is_at_most_the_order_of_the_unit(line) -> None:
    """Piecewise lines on a smooth function of one input: order 2 at best, and beyond 1 even when fitted quickly."""
    curve = scaling_curve(QUICK, *line, [4, 6, 8, 16], cv=2)
    assert -2.3 < curve.slope.value < -1.0
    assert curve.slope.low <= curve.slope.value <= curve.slope.high
    axes = curve.plot().axes[0]
    assert axes.get_xlabel() == "neurons n"
    assert "slope" in axes.get_legend().get_texts()[0].get_text()


def test_parameters_are_those_of_the_network(line) -> None:
    """A column of three levels is two directions beside a number: 19 parameters, where 15 were stated."""
    x, y = line
    table = pd.DataFrame({"x": x[:, 0], "kind": np.array(["a", "b", "c"])[np.arange(400) % 3]})
    glu = clone(QUICK).set_params(unit="glu", rounds=0, steps=2)
    assert scaling_curve(glu, table, y, [2], cv=2).parameters == (19,)
    network = clone(glu).set_params(width=2).fit(table, y).network_
    assert sum(p.numel() for p in network.parameters()) == 19
    assert scaling_curve(glu, pa.Table.from_pandas(table), y, [2], cv=2).parameters == (19,)


@pytest.mark.parametrize(
    "shape", [lambda y: y[:, None], lambda y: pd.DataFrame({"y": y}), lambda y: pd.Series(y.astype(str))]
)
def test_targets_in_a_column_have_the_errors_of_targets_in_a_row(line, shape) -> None:
    """Each prediction was compared with every target: 1.2 where 0.2 is right."""
    x, y = line
    flat = scaling_curve(QUICK, x, y, [1], cv=2)
    assert np.array_equal(scaling_curve(QUICK, x, shape(y), [1], cv=2).test_rmse, flat.test_rmse)


def test_what_cannot_be_used_is_refused(line) -> None:
    x, y = line
    for widths in ([], 3, None):
        with pytest.raises(GatelabError, match="widths is"):
            scaling_curve(QUICK, x, y, widths)  # type: ignore[arg-type]
    with pytest.raises(GatelabError, match="y has 200 masked values"):
        scaling_curve(QUICK, x, np.ma.masked_array(y, mask=np.arange(400) % 2), [1])
    with pytest.raises(GatelabError, match="estimator is a GatedClassifier"):
        scaling_curve(GatedClassifier(), x, y, [1])  # type: ignore[arg-type]
    with pytest.raises(GatelabError, match="cv has no splits"):
        scaling_curve(QUICK, x, y, [1], cv=[])
