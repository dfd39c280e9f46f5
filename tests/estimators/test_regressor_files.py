"""Saved and loaded: the same bits, or a sentence."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from gatelab import GatedRegressor, GatelabError, Unit

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
KEY = "gatelab.GatedRegressor"


@pytest.fixture(scope="module")
def rows() -> tuple[pd.DataFrame, np.ndarray]:
    x = np.random.default_rng(0).uniform(-1, 1, (80, 3))
    y = np.stack([np.sin(x[:, 0]) * x[:, 1], x[:, 2] ** 2], axis=1)
    return pd.DataFrame(np.column_stack([x, np.ones(80)]), columns=["a", "b", "c", "one"]), y


@pytest.mark.parametrize(
    "unit", ["swiglu", "mlp", *(pytest.param(u, marks=pytest.mark.slow) for u in (("glu", "swiglu"), Unit("tanh", 2)))]
)
def test_predictions_are_the_same_to_the_last_bit(rows, tmp_path, unit) -> None:
    x, y = rows
    model = GatedRegressor(unit, width=2, starts=1, rounds=0, steps=10, random_state=np.random.RandomState(0)).fit(x, y)
    loaded = GatedRegressor.load(model.save(tmp_path / "new" / "model.safetensors"))
    assert np.array_equal(loaded.predict(x), model.predict(x))
    given, kept = model.get_params(), loaded.get_params()
    assert kept.pop("random_state") is None
    assert kept == {k: v for k, v in given.items() if k != "random_state"}
    for name in ("unit_", "width_", "ridge_", "gates_", "status_", "n_iter_", "validation_", "n_features_in_"):
        assert getattr(loaded, name) == getattr(model, name), name
    assert list(loaded.feature_names_in_) == ["a", "b", "c", "one"]
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(x.rename(columns={"a": "z"}))


def test_damaged_foreign_and_missing_files_are_refused(saved, tmp_path) -> None:
    path, whole = tmp_path / "m", saved
    for content in (whole[:-8], whole[: len(whole) // 2], b"", b"\x80\x04pickle", whole[:4]):
        path.write_bytes(content)
        with pytest.raises(GatelabError, match="cannot be read"):
            GatedRegressor.load(path)
    save_file({"a": np.ones(3)}, path)
    with pytest.raises(GatelabError, match="not a GatedRegressor"):
        GatedRegressor.load(path)


@pytest.fixture(scope="module")
def saved(rows, tmp_path_factory) -> bytes:
    return GatedRegressor(width=1, ridge=0.1).fit(*rows).save(tmp_path_factory.mktemp("saved") / "m").read_bytes()


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.update(format=1),
        lambda content: content.pop("attributes"),
        lambda content: content["attributes"].update(width_=5),
        lambda content: content["attributes"].update(n_features_in_=5),
        lambda content: content["parameters"].update(colour="red"),
        lambda content: content.update(network={"import": "os:system"}),
        lambda content: content["parameters"].update(unit=[{"import": "os:system"}]),
        lambda content: content.update(status="splendid"),
    ],
)
def test_metadata_that_does_not_fit_is_refused(saved, tmp_path, change) -> None:
    path = tmp_path / "m"
    path.write_bytes(saved)
    assert GatedRegressor.load(path).width_ == 1
    with safe_open(path, framework="numpy") as file:
        content = json.loads(file.metadata()[KEY])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is not a dict
    change(content)
    save_file(arrays, path, metadata={KEY: json.dumps(content)})
    with pytest.raises(GatelabError, match="damaged or was written by another version"):
        GatedRegressor.load(path)


def test_a_function_of_ones_own_and_an_unfitted_model_are_not_saved(rows, tmp_path) -> None:
    model = GatedRegressor(lambda z, v: z.sin() * v, width=1, ridge=0.1)
    with pytest.raises(ValueError, match="not fitted"):
        model.save(tmp_path / "m")
    with pytest.raises(GatelabError, match="your own function"):
        model.fit(*rows).save(tmp_path / "m")
    assert not (tmp_path / "m").exists()
