"""The study of replaced blocks in quick form, its parts against slow twins, and the given model where it is there."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from quick_runs import Quick

from gatelab.errors import GatelabError
from gatelab.linearization import linearize
from gatelab.models.layouts import blocks
from gatelab.models.pretrained import MINILM
from gatelab.studies.linearize import transformer_parts as parts
from gatelab.studies.linearize.transformer import QUICK_WAYS, STUDY

RECORD = Path(__file__).parents[2] / "results" / "linearize"
pytestmark = pytest.mark.skipif(
    find_spec("transformers") is None, reason="needs transformers: pip install 'gatelab[models]'"
)


@pytest.fixture(scope="module")
def small():
    embedder = parts.small_bert()
    text = parts.quick_texts(24, 12)
    layers = parts.traced_layers(embedder.model, embedder.trace(text.calibration, embedder.model).inputs)
    return embedder, text, layers, embedder.trace(text.measured, embedder.model)


@pytest.mark.slow
def test_the_quick_study(quick: Quick):
    run = quick("linearize/transformer")
    assert run.progress[-1] == (len(QUICK_WAYS), len(QUICK_WAYS))
    outcome, tables = run.outcome, run.outcome.tables
    assert set(tables) == {"layers", "cosines", "verdicts", "training", "curves", "setup"}
    assert tables["cosines"]["way"].tolist() == list(QUICK_WAYS)
    assert len(tables["layers"]) == 3 * len(QUICK_WAYS)
    cosine = tables["cosines"].set_index("way")["cosine"]
    # A piecewise fit of degree 6 with clamps is near GELU everywhere; the series leaves it at 3.
    assert cosine["puma"] > 0.999 > 0.5 > cosine["taylor 10"]
    first = tables["layers"][tables["layers"]["layer"] == 1]
    assert np.allclose(first["alone"], first["accumulated"], rtol=1e-3)
    assert tables["layers"]["alone"].between(tables["layers"]["alone_low"], tables["layers"]["alone_high"]).all()
    verdicts = tables["verdicts"]
    assert (verdicts["m needed for 10%"] <= verdicts["m needed for 1%"]).all()
    assert (verdicts["m needed for 1%"] <= verdicts["m enough for 1%"]).all()
    said = {c.what: c for c in outcome.claims}
    assert "puma" in said["ways that keep embeddings at a cosine above 0.999"].support
    assert {c.verdict for c in outcome.claims} == {"new"}
    assert all(c.because and "nan" not in c.because + c.ours for c in outcome.claims)
    assert "random weights" in outcome.notes[0] and "made up" in outcome.notes[0]
    assert len(outcome.figure.axes) == 6 + 6 + 2  # errors and cosines of six families, two panels of training


def test_the_record_makes_its_claims():
    names = ("layers", "cosines", "verdicts", "training", "curves", "setup")
    claims = {c.what: c for c in STUDY.report({n: pd.read_csv(RECORD / f"transformer-{n}.csv") for n in names}).claims}
    assert claims["farthest pre-activation that one polynomial must serve"].value == pytest.approx(24.7, abs=0.05)
    assert list(claims["ways that keep embeddings at a cosine above 0.999"].support) == ["bolt", "puma", "nexus"]
    counts = [claim.value for what, claim in claims.items() if what.startswith("ways")]
    assert sum(counts) == len(parts.WAYS)
    faster = [c for what, c in claims.items() if what.startswith("test loss") and c.high < 0]
    assert not faster


def test_a_layer_alone_is_the_model_with_that_layer_replaced(small):
    embedder, text, layers, plain = small
    traced = partial(embedder.trace, text.measured)
    rows, _ = parts.measure("fit 4", embedder.model, layers, plain, traced, embedder.finish)
    for i in range(len(layers)):
        one = parts.replace_blocks(embedder.model, {i: parts.make("fit 4", layers[i])})
        after = traced(one)
        difference, size = ((after.outputs[i] - plain.outputs[i]).norm(), plain.outputs[i].norm())
        assert rows[i]["alone"] == pytest.approx(float(difference / size), rel=1e-3)


def test_embeddings_are_means_over_the_tokens_of_each_sentence_alone(small):
    embedder, text, _, plain = small
    for n in (0, 7):
        with torch.no_grad():
            hidden = embedder.model(input_ids=embedder.encode(text.measured[n])[None]).last_hidden_state[0]
        mean = hidden.mean(0)
        assert torch.allclose(parts.embeddings(plain)[n], (mean / mean.norm()).double(), atol=1e-5)


def test_counted_fits_are_fits_to_all_pre_activations(small):
    _, _, layers, _ = small
    layer = layers[0]
    z = layer.block.before(layer.X).flatten().double().numpy()
    made = layer.fitted(6)
    slow = linearize("gelu", "fit", degree=6, data=z, interval=layer.data.interval).polynomial
    at = np.linspace(z.min(), z.max(), 101)
    assert np.allclose(made(at), slow(at), atol=1e-4)
    assert layer.rms(layer.data.z) == pytest.approx(np.sqrt((z**2).mean()), rel=1e-4)


@pytest.mark.parametrize("way", parts.MAPS)
def test_whole_maps_have_few_features_and_fits_are_the_best_of_their_kind(small, way):
    _, _, layers, _ = small
    layer = layers[1]
    made = parts.make(way, layer)
    d = layer.X.shape[1]
    assert made.A.shape[1] <= d + 2 + (d // 3) * (d // 3 + 1) // 2
    exact = layer.block(layer.X)

    def error(m):
        return float((m(layer.X) - exact).norm() / exact.norm())

    best = error(parts.make("linear fit", layer))
    assert best < 1
    if way == "linear + quadratic fit":
        assert error(made) < best
    elif way != "folded optimal":  # has a feature of |x|, which no linear map has
        assert error(made) >= best * (1 - 1e-6)


def test_cosines_and_ratios_by_hand():
    rows = torch.randn(30, 5, generator=torch.Generator().manual_seed(0)).double()
    exact = torch.nn.functional.normalize(rows, dim=1)
    same = parts.cosines(exact, exact)
    assert same["cosine"] == pytest.approx(1) and same["neighbour kept"] == 1
    broken = exact.clone()
    broken[3] = torch.nan
    assert parts.cosines(exact, broken)["least"] == 0
    of = torch.tensor([0, 0, 1])
    error = parts.ratio(torch.full((3, 2), 1.5), torch.ones(3, 2), of)
    assert (error.value, error.low, error.high) == pytest.approx((0.5, 0.5, 0.5))
    cubic = linearize("gelu", "minimax", degree=3, interval=(-1.0, 1.0)).polynomial
    assert parts.share_outside(cubic, torch.tensor([-2.0, 0.0, 1.0, 5.0])) == 0.5
    assert parts.share_outside(torch.tanh, torch.zeros(3)) is None


def history(losses, diverged=None):
    steps = np.arange(len(losses)) * 10
    return SimpleNamespace(steps=steps, test=np.array(losses, float), diverged=diverged)


def test_training_rows_tell_the_faster_the_slower_and_the_diverged():
    gelu = tuple(history([5, 4, 3 + s, 2 + s, 1 + s]) for s in (0, 0.1, 0.2))
    runs = {
        "gelu": gelu,
        "faster": tuple(history([5, 2, 1 + s, 1 + s, 0.5 + s]) for s in (0, 0.1, 0.2)),
        "gone": (*(history([5, 4, 3, 2, 1]) for _ in range(2)), history([5, 9], diverged=13)),
    }
    rows = {row["activation"]: row for row in parts.training_rows(runs)}
    assert rows["gelu"]["steps"] == pytest.approx(1) and rows["gelu"]["less_gelu"] == 0
    assert rows["faster"]["less_gelu_high"] < 0 and rows["faster"]["steps"] < 0.6
    assert rows["gone"]["diverged"] == 1 and np.isnan(rows["gone"]["less_gelu"])


def test_text_from_the_folder_of_data(tmp_path, monkeypatch):
    folder = tmp_path / "text"
    folder.mkdir()
    lines = "\n".join(parts.made_up(400, 5))
    for name in ("fineweb_edu_sample.txt", "tinyshakespeare.txt"):
        (folder / name).write_text(lines.replace("\n", " ") + "\n")
    monkeypatch.setenv("GATELAB_DATA", str(tmp_path))
    monkeypatch.setenv("GATELAB_CACHE", str(tmp_path / "cache"))
    text = parts.texts(20, 10)
    assert len(text.calibration) == 20 and len(text.measured) == 10 and "FineWeb" in text.about
    assert not set(text.calibration) & set(text.measured)
    with pytest.raises(GatelabError, match="5000 are needed"):
        parts.texts(5000, 10)


def test_a_missing_package_is_an_error_that_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr("gatelab.models.pretrained.MINILM", "no_such_package_of_gatelab")
    with pytest.raises(GatelabError, match="pip install"):
        parts.minilm()


@pytest.mark.skipif(find_spec(MINILM) is None, reason="all-MiniLM-L6-v2 is not installed")
def test_the_given_model():
    embedder = parts.minilm()
    near, far = ("A cat sits on the mat.", "The mat has a cat on it."), ("Interest rates rose in March.",)
    traced = partial(embedder.trace, (*near, *far))
    plain = traced(embedder.model)
    e = parts.embeddings(plain)
    assert float(e[0] @ e[1]) > 0.7 > 0.3 > float(e[0] @ e[2])
    assert [tuple(b.W1.shape) for b in blocks(embedder.model)] == [(1536, 384)] * 6
    layers = parts.traced_layers(embedder.model, plain.inputs)
    for way, low, high in (("puma", 0.999, 1.001), ("taylor 10", -1.0, 0.5)):
        _, after = parts.measure(way, embedder.model, layers, plain, traced, embedder.finish)
        assert low < parts.cosines(e, parts.embeddings(after))["cosine"] < high
