"""The loop: against a plain one, many seeds against one, and what divergence does."""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from training_data import images, small, text

from gatelab.errors import GatelabError
from gatelab.models import Mixer
from gatelab.train import Recipe, load_models, recipe, train, train_many
from gatelab.train.loop import State
from gatelab.train.members import Members, Source, build
from gatelab.train.optimizers import Optimizers
from gatelab.train.recipes import DEFAULTS, OPTIMIZERS, SIZES, TEXT_MODELS, evaluation_steps, learning_rate


def plainly(made: Recipe) -> list[tuple[float, float]]:
    """Training as anyone would write it down: (running, test) losses where the recipe asks for them."""
    data = images()
    model = Mixer("tiny", made.unit, seed=made.seed, classes=3)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": made.weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimizers: list[torch.optim.Optimizer] = []
    if made.optimizer == "muon":
        hidden = [p for name, p in model.named_parameters() if name.startswith("blocks.") and p.ndim == 2]
        rates = {"lr": made.lr, "weight_decay": made.weight_decay, "adjust_lr_fn": "match_rms_adamw"}
        optimizers.append(torch.optim.Muon(hidden, **rates))
        groups[0]["params"] = [p for p in decayed if all(p is not h for h in hidden)]
    if made.optimizer == "sgd":
        optimizers.append(torch.optim.SGD(groups, lr=made.lr, momentum=made.momentum))
    else:
        optimizers.append(torch.optim.AdamW(groups, lr=made.lr, betas=(0.9, made.beta2)))
    rows, recent = [], []
    for step in range(made.steps + 1):
        if step in evaluation_steps(made):
            with torch.no_grad():
                tested = model.loss(data.normalized(data.test.images), data.test.labels).item()
            rows.append((float(np.mean(recent)) if recent else np.nan, tested))
            recent = []
        if step == made.steps:
            return rows
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            group["lr"] = learning_rate(made, step)
        loss = model.loss(*data.batch(step, made.batch, seed=made.seed, augment=True))
        model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), made.clip or torch.inf)
        for optimizer in optimizers:
            optimizer.step()
        recent.append(loss.item())
    raise AssertionError


@pytest.mark.parametrize(
    "optimizer", [pytest.param(name, marks=pytest.mark.slow) if name == "muon" else name for name in OPTIMIZERS]
)
def test_it_is_the_plain_loop(optimizer: str) -> None:
    made = small(optimizer=optimizer, seed=5)
    history = train(made, data=images())
    expected = np.array(plainly(made))
    # Muon computes in bf16, and sums in another order.
    rtol = {"muon": 5e-3}.get(optimizer, 1e-5)
    np.testing.assert_allclose(history.running, expected[:, 0], rtol=rtol)
    np.testing.assert_allclose(history.test, expected[:, 1], rtol=rtol)
    assert history.steps.tolist() == list(evaluation_steps(made))
    assert history.throughput > 0 and history.counted == "images" and history.diverged is None


@pytest.mark.parametrize("model", ["mixer", *(pytest.param(m, marks=pytest.mark.slow) for m in ("vit", "gpt2"))])
def test_many_seeds_at_once_are_each_alone(model: str) -> None:
    data = text() if model in TEXT_MODELS else images()
    made = [small(model, seed=s, steps=12, clip=0.5) for s in (0, 3)]
    together = train_many(made, data=data)
    for one, history in zip(made, together, strict=True):
        alone = train(one, data=data)
        for name in ("train", "test", "running"):
            np.testing.assert_allclose(getattr(history, name), getattr(alone, name), rtol=2e-4)
        assert history.recipe == one and history.together == 2
    assert not np.allclose(together[0].test, together[1].test)


def test_the_train_loss_is_of_a_fixed_part_without_augmentation() -> None:
    data, made = images(), small(steps=2, evaluations=1)
    source = Source(made, data, torch.device("cpu"), 0)
    bytes_, labels = source.measured["train"]
    assert len(labels) == len(data.test) == 60 < len(data.train)
    again = Source(replace(made, seed=9), data, torch.device("cpu"), 0)
    assert torch.equal(bytes_, again.measured["train"][0])
    model = Mixer("tiny", made.unit, seed=made.seed, classes=3)
    expected = model.loss(data.normalized(bytes_), labels).item()
    assert train(made, data=data).train[0] == pytest.approx(expected, rel=1e-5)


def test_text_is_measured_on_as_many_windows_of_both_parts() -> None:
    source = Source(small("gpt2"), text(), torch.device("cpu"), 32)
    (x, y), (tested, _) = source.measured["train"], source.measured["test"]
    assert x.shape == tested.shape == (18, 32) and torch.equal(x[:, 1:], y[:, :-1])
    starts = [(text().train == x[i, 0].item()).nonzero()[0].tolist() for i in (0, -1)]
    assert 0 in starts[0] and max(starts[1]) > 3000


def test_a_training_learns() -> None:
    history = train(small(steps=80, lr=5e-3, batch=30, augment=False), data=images())
    assert history.train[-1] < 0.3 < 1.0 < history.train[0]
    assert history.accuracy[-1] > 0.9
    assert "images/s" in str(history) and "accuracy" in str(history)


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_divergence_is_found_said_and_ends_the_training(seeds: tuple[int, ...]) -> None:
    seen: list[int] = []
    made = [small(optimizer="sgd", lr=1e6, clip=None, warmup=0, steps=200, seed=s) for s in seeds]
    found = train_many(made, data=images(), progress=lambda done, total, text: seen.append(done))
    for history in found:
        assert history.diverged is not None and history.diverged < 20
        assert "diverged at step" in str(history) and "lr" in str(history)
        assert (history.steps <= history.diverged).all() and np.isfinite(history.test).all()
    assert seen[-1] < 25


def test_one_that_diverges_takes_nobody_along(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [small(seed=s, steps=10) for s in (0, 1)]
    whole = Source.batch

    def spoilt(self: Source, step: int, seeds: list[int]):
        x, y = whole(self, step, seeds)
        if step == 4:
            x[0] = torch.nan
        return x, y

    monkeypatch.setattr(Source, "batch", spoilt)
    bad, good = train_many(made, data=images())
    assert bad.diverged == 4 and bad.steps.max() <= 4
    assert good.diverged is None and good.steps[-1] == 10 and np.isfinite(good.test).all()


def test_a_loss_beyond_the_bound_is_divergence() -> None:
    history = train(small(optimizer="sgd", lr=30.0, clip=None, warmup=0, steps=60), data=images())
    assert history.diverged is not None and (history.test <= 10 * np.log(3)).all()


def test_clipping_has_an_effect_and_constant_rates_are_constant() -> None:
    loose, tight = (train(small(optimizer="sgd", clip=c, steps=8), data=images()) for c in (None, 0.01))
    assert abs(tight.test[-1] - tight.test[0]) < abs(loose.test[-1] - loose.test[0])
    level = small(schedule="constant", warmup=2, lr=0.5)
    assert [learning_rate(level, t) for t in (0, 1, 2, 15)] == [0.25, 0.5, 0.5, 0.5]


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # on CPUs without bf16, where torch takes another way
@pytest.mark.slow
def test_bf16_is_near_float32() -> None:
    exact, rough = (train(small(steps=3, evaluations=1, precision=p), data=images()) for p in ("float32", "bf16"))
    assert rough.test[-1] == pytest.approx(exact.test[-1], rel=0.05) and rough.test[-1] != exact.test[-1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
@pytest.mark.parametrize("model", ["vit", "gpt2"])
def test_stacked_attention_trains_in_bf16(model: str) -> None:
    """Backward passes under vmap and autocast meet dtypes that a single model never sees."""
    data = text() if model in TEXT_MODELS else images()
    made = [small(model, seed=s, steps=1, warmup=0, batch=4, evaluations=1, precision="bf16") for s in (0, 1)]
    for h, one in zip(train_many(made, data=data), made, strict=True):
        assert h.test[-1] == pytest.approx(train(one, data=data).test[-1], rel=0.02)


def test_averaged_weights_are_the_moving_average_of_every_step() -> None:
    data, made = images(), [small(seed=s, steps=8, average=0.5) for s in (0, 1)]

    def state() -> State:
        models = [build(r, data) for r in made]
        return State(made, models, Source(made[0], data, torch.device("cpu"), 0), bf16=False, compile=False)

    running = state()
    expected = {name: p.detach().clone() for name, p in running.members.params.items()}
    for _ in range(8):
        running.advance()
        expected = {name: 0.75 * p + 0.25 * running.members.params[name].detach() for name, p in expected.items()}
    torch.testing.assert_close(running.averages, expected)
    running.measure()
    for member, model in enumerate(build(r, data) for r in made):
        model.load_state_dict({name: p[member] for name, p in expected.items()})
        loss = model.loss(data.normalized(data.test.images), data.test.labels)
        assert loss.item() == pytest.approx(running.rows[-1]["averaged"][member], rel=1e-5)
    resumed = state()
    resumed.load(running.tensors(), running.facts())
    torch.testing.assert_close(resumed.averages, expected)
    plain = train_many([replace(r, average=0.0) for r in made], data=data)
    assert all(np.isnan(history.averaged).all() for history in plain)
    assert plain[0].test[-1] == pytest.approx(running.rows[-1]["test"][0], rel=1e-6)
    assert Recipe.from_plain(made[0].plain()) == made[0] and "average" not in plain[0].recipe.plain()


def test_a_trained_model_comes_back_from_its_folder(tmp_path) -> None:
    data, made = images(), [small(seed=s, steps=6) for s in (0, 1)]
    histories = train_many(made, data=data, folder=tmp_path)
    for model, history in zip(load_models(tmp_path, data=data), histories, strict=True):
        loss = model.loss(data.normalized(data.test.images), data.test.labels)
        assert loss.item() == pytest.approx(history.test[-1], rel=1e-5)
    with pytest.raises(GatelabError, match="there is no"):
        load_models(tmp_path / "none")
    with pytest.raises(GatelabError, match="a model for other data"):
        load_models(tmp_path, data=replace(data, classes=(*data.classes, "another")))


def test_recipes_have_defaults_for_every_model_and_refuse_what_is_wrong() -> None:
    assert set(DEFAULTS) == set(SIZES)
    for changed, says in (
        ({"lr": 0.0}, "lr is 0.0"),
        ({"lr": "0.1"}, "lr is '0.1'; give a number above 0"),
        ({"beta2": "0.9"}, "beta2 is '0.9'"),
        ({"steps": 0}, "steps is 0"),
        ({"steps": None}, "steps is None; give a whole number"),
        ({"batch": 1.5}, "batch is 1.5"),
        ({"warmup": 99}, "warmup is 99 steps of 16"),
        ({"clip": -1.0}, "clip"),
        ({"average": 1.5}, "average is 1.5; give a number at least 0"),
        ({"momentum": 1.0}, "momentum"),
        ({"schedule": "linear"}, "no schedule"),
        ({"size": "huge"}, "no size of the mixer"),
        ({"optimizer": "adam"}, "did you mean 'adamw'"),
        ({"color": 1}, "no value of a recipe"),
        ({"tokenizer": "words"}, "no tokenizer is called 'words'. Known: bytes, gpt2"),
        ({"options": {"dropout": 0.1}}, "dropout"),
    ):
        with pytest.raises(GatelabError, match=says):
            small(**changed)
    with pytest.raises(GatelabError, match="no model"):
        recipe("resnet", "glu")
    plain = recipe("gpt2", "glu", lr=0.5, clip=2.0, steps=20, options={"context": 16})
    numpy = {"lr": np.float32(0.5), "clip": np.float16(2), "steps": np.int16(20), "options": {"context": np.int8(16)}}
    assert recipe("gpt2", "glu", **numpy) == plain and recipe("gpt2", "glu", **numpy).key() == plain.key()


def test_it_refuses_data_of_the_other_kind_too_large_batches_and_unlike_recipes() -> None:
    with pytest.raises(GatelabError, match="does not take text"):
        train(small(), data=text())
    with pytest.raises(GatelabError, match="batch is 500 of 120"):
        train(small(batch=500), data=images())
    with pytest.raises(GatelabError, match="more than seed and learning rate"):
        train_many([small(), small(unit="mlp")], data=images())
    with pytest.raises(GatelabError, match="seed and learning rate once"):
        train_many([small(), small()], data=images())
    with pytest.raises(GatelabError, match="device"):
        train(small(), data=images(), device="nowhere")


def test_losses_are_measured_at_further_steps() -> None:
    made = small("decoder", evaluations=1, steps=12, batch=4)
    marked, plain = train(made, data=text(), marks=(3, 6)), train(made, data=text())
    assert marked.steps.tolist() == [0, 3, 6, 12]
    assert marked.test[-1] == plain.test[-1]
    assert marked.test[2] == train(replace(made, evaluations=6), data=text(), marks=(6,)).test[-3]


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "muon"])
def test_running_means_go_on_with_a_training_and_come_back_from_its_folder(optimizer: str, tmp_path) -> None:
    made = small("decoder", "gelu", steps=8, batch=4, evaluations=1, optimizer=optimizer, options={"centered": True})

    def press(done: int, total: int, text: str) -> None:
        if done == 4:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(made, folder=tmp_path, data=text(), progress=press, save_seconds=1e9)
    resumed, alone = train(made, folder=tmp_path, data=text()), train(made, data=text())
    assert resumed.test[-1] == alone.test[-1]
    (model,) = load_models(tmp_path, data=text())
    assert model.blocks[0].passes.item() == 8
    tokens = torch.from_numpy(text().test.astype(np.int64))
    windows = tokens[: (len(tokens) - 1) // 32 * 32]
    loss = model.eval().loss(windows.view(-1, 32), tokens[1 : len(windows) + 1].view(-1, 32))
    assert loss.item() == pytest.approx(alone.test[-1], rel=1e-4)


def test_muon_leaves_weights_that_act_per_column_to_adamw() -> None:
    made = small("decoder", optimizer="muon", options={"taps": 4})
    models = [build(made, text())]
    optimizers = Optimizers(made, Members(models, torch.device("cpu"), bf16=False, compile=False).params)
    assert optimizers.muon is not None
    shapes = {tuple(p.shape[1:]) for p in optimizers.muon.param_groups[0]["params"]}
    assert (4, 64) not in shapes and (96, 32) in shapes
    assert any(p.shape == (4, 64) for p in optimizers.views[0])


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a compiler")
@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_compiled_it_is_the_same(seeds: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[object] = []
    whole = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **how: compiled.append(function) or whole(function, **how))
    made = [small(steps=3, evaluations=1, seed=s) for s in seeds]
    fast = train_many(made, data=images(), compile=True)
    assert len(compiled) == 1
    for a, b in zip(fast, train_many(made, data=images()), strict=True):
        np.testing.assert_allclose(a.test, b.test, rtol=1e-5)


@pytest.mark.slow
def test_models_of_two_widths_are_compiled_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each for its own shapes: torch's second choice, symbols for what has changed, is what it fails to infer."""
    how: list[dict] = []
    whole = torch.compile

    def traced(function, **options):
        how.append(options)
        return whole(function, backend="eager", **options)

    monkeypatch.setattr(torch, "compile", traced)
    for width in (24, 36):
        made = [small("gpt2", steps=2, evaluations=1, batch=4, options={"width": width}, seed=s) for s in (0, 1)]
        fast, plain = train_many(made, data=text(), compile=True), train_many(made, data=text())
        for a, b in zip(fast, plain, strict=True):
            np.testing.assert_allclose(a.test, b.test, rtol=1e-5)
    assert how == [{"dynamic": False}] * 2


def test_models_that_do_not_fit_are_refused_before_they_are_built() -> None:
    with pytest.raises(GatelabError, match=r"parameters needs about .* GiB"):
        train(small(options={"width": 10**12}), data=images())
    with pytest.raises(GatelabError, match=r"needs about .* GiB"):
        train(small("gpt2", batch=10**12), data=text())
    with pytest.raises(GatelabError, match="no mixer option is called 'depth'"):
        train(small(options={"depth": 3}), data=images())
