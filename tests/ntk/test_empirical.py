"""Empirical kernels against one gradient a sample, for every kind of layer and every way to say which output."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from empirical_models import CASES, Cnn, Twice, case, draw, gpt2, mlp, naive, tokens
from torch import nn
from torch.nn import functional

from gatelab.errors import GatelabError
from gatelab.models import GPT2, Mixer, ViT
from gatelab.ntk import Kernel, empirical
from gatelab.ntk.modules.rules import parts_of
from gatelab.ntk.modules.samples import Samples, trainable
from gatelab.ntk.modules.surveys import survey


def close(K, expected):
    assert torch.allclose(K, expected, rtol=1e-10, atol=1e-10 * float(expected.abs().max()))


def surveyed(model, X, outputs=None):
    parameters = trainable(model)
    return survey(Samples.of(model, X, outputs, next(iter(parameters.values()))), parameters)


@pytest.mark.parametrize("name", CASES)
def test_equal_to_the_product_of_jacobians(name):
    model, X, outputs, pick = case(name)
    K = empirical(model, X, outputs)
    assert isinstance(K, Kernel)
    assert K.label == type(model).__name__
    assert K.matrix.dtype == torch.float64
    assert K.error == 0
    assert torch.equal(K.matrix, K.matrix.T)
    close(K.matrix, naive(model, X, pick))
    if name in ("mlp", "glu", "cnn", "twice", "gpt2", "vit"):
        assert surveyed(model, X, outputs).free == ()


def test_what_has_no_rule_is_found_out():
    model, X, outputs, _ = case("free")
    assert set(surveyed(model, X, outputs).free) == {"mixed", "angle"}
    model, X, outputs, _ = case("positions first")
    assert {"a.weight", "a.bias"} <= set(surveyed(model, X, outputs).free)


@pytest.mark.parametrize("unit", ["gelu", "swiglu", "gqu"])
def test_gatelabs_own_models(unit):
    text = GPT2("tiny", unit, context=8, layers=1).double().eval()
    X = tokens(5, 8, high=256)
    assert surveyed(text, X, (-1, 7)).free == ()
    close(empirical(text, X, (-1, 7)).matrix, naive(text, X, lambda out, i: out[:, -1, 7], 5))
    for make in (ViT, Mixer):
        model = make("tiny", unit).double().eval()
        X = draw(4, *(getattr(model.config, k) for k in ("channels", "image_size", "image_size")))
        assert surveyed(model, X, 2).free == ()
        close(empirical(model, X, 2).matrix, naive(model, X, lambda out, i: out[:, 2], 4))


def test_fused_attention_masks_and_all_positions():
    model = gpt2(attn_implementation="sdpa")
    mask = torch.ones(4, 9, dtype=torch.long)
    mask[1, 5:] = 0
    X = {"input_ids": tokens(4, 9, high=19), "attention_mask": mask}
    K = empirical(model, X, lambda out: out.logits[..., 3].mean(1))
    close(K.matrix, naive(model, X, lambda out, i: out.logits[..., 3].mean(1), 4))


def test_every_way_to_say_which_output():
    model = Twice().double().eval()
    X = tokens(5, 4, high=11)
    places = tokens(5, 2, high=4, seed=1)
    ways = [
        ((1, 2), lambda out, i: out[:, 1, 2]),
        (places, lambda out, i: out[:, places[i, 0], places[i, 1]]),
        (places[:, 0].numpy(), lambda out, i: out[:, -1, places[i, 0]]),
        (lambda out: out.square().sum((1, 2)), lambda out, i: out.square().sum()),
        (lambda out: out[:, -1, :3], lambda out, i: out[0, -1, :3]),
    ]
    for outputs, pick in ways:
        close(empirical(model, X, outputs).matrix, naive(model, X, pick, 5))
    last = mlp().double()
    close(empirical(last, draw(3, 3).numpy(), lambda out: out[:, 0]).matrix, naive(last, draw(3, 3), lambda o, i: o, 3))


def test_one_sample_duplicates_zero_rows_and_frozen_parameters():
    model = mlp().double()
    X = draw(4, 3)
    X[1], X[3] = X[0], 0
    K = empirical(model, X).matrix
    close(K, naive(model, X, lambda o, i: o, 4))
    assert torch.allclose(K[0], K[1], rtol=1e-12)
    close(empirical(model, X[:1]).matrix, K[:1, :1])
    close(empirical(model, X[:2]).matrix, K[:2, :2])
    model[0].requires_grad_(False)
    close(empirical(model, X).matrix, naive(model, X, lambda o, i: o, 4))
    assert float(empirical(model, X).matrix[0, 0]) < float(K[0, 0])
    assert not empirical(model, X, lambda out: out[:, 0].detach()).matrix.any()


def test_float32_is_close_and_says_so():
    model, X, outputs, pick = case("gpt2")
    expected = naive(model, X, pick)
    K = empirical(model.float(), X, outputs)
    scale = expected.diagonal().sqrt()
    assert K.matrix.dtype == torch.float64
    assert 0 < float(((K.matrix - expected).abs() / (scale[:, None] * scale)).max()) < K.error < 1e-5
    assert torch.allclose(empirical(mlp().float(), draw(3, 3).numpy()).matrix.diagonal() > 0, torch.tensor(True))


def test_samples_that_go_another_way_than_the_first_three():
    class Late(nn.Module):
        """Where the gradient arrives, and which parameters are used, depends on the sample."""

        def __init__(self):
            super().__init__()
            self.inner, self.rare = nn.Linear(3, 3), nn.Parameter(torch.ones(3))

        def forward(self, x):
            h = torch.tanh(self.inner(x))
            special = x[:, 0, 0] > 5
            if special.any():
                h = torch.where(special[:, None, None], h * torch.exp(self.rare), h)
            return torch.where(special, h.sum((1, 2)), h[:, -1, 0])

    torch.manual_seed(0)
    model, X = Late().double(), draw(7, 6, 3)
    X[5, 0, 0] = 9
    close(empirical(model, X, batch=2).matrix, naive(model, X, lambda o, i: o, 7))


def test_a_later_sample_with_gradients_at_more_positions():
    class Some(nn.Module):
        """The last position counts, or all of them, as the sample says."""

        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(20, 20), nn.Linear(20, 20)

        def forward(self, x):
            h = self.b(torch.tanh(self.a(x)))
            return torch.where(x[:, 0, 0] > 5, h.sum((1, 2)), h[:, -1, 0])

    torch.manual_seed(0)
    model, X = Some().double(), draw(6, 7, 20)
    # Factors of one position, or the bias itself.
    assert {share.numbers for share in surveyed(model, X).shares} == {20 + 20, 20}
    X[4, 0, 0] = 9
    for batch in (2, None):
        close(empirical(model, X, batch=batch).matrix, naive(model, X, lambda out, i: out, 6))


def test_positions_that_are_routed_between_experts():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = nn.ModuleList(nn.Linear(3, 1) for _ in range(2))

        def forward(self, x):
            flat, out = x.flatten(0, 1), x.new_zeros(x.shape[0] * x.shape[1], 1)
            for k, expert in enumerate(self.experts):
                chosen = (flat[:, 0] > 0) == bool(k)
                out[chosen] = expert(flat[chosen])
            return torch.tanh(out).reshape(len(x), -1).sum(1)

    torch.manual_seed(0)
    model, X = Experts().double(), draw(6, 4, 3).abs()
    # The first four all go to one expert; of the last two, three and one go to the other, as if they were two each.
    X[4, :3, 0], X[5, 3:, 0] = -1, -1
    close(empirical(model, X, batch=2).matrix, naive(model, X, lambda o, i: o, 6))


def test_the_model_is_left_as_it_was():
    model, X, outputs, _ = case("cnn")
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with torch.no_grad():
        empirical(model, X, outputs)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


def test_progress_goes_up_to_its_total():
    told = []
    model, X, outputs, _ = case("free")
    empirical(model, X, outputs, batch=2, progress=lambda done, total: told.append((done, total)))
    assert [d for d, _ in told] == sorted(d for d, _ in told)
    assert told[-1][0] == told[-1][1]
    assert len(told) > 3


class Changed(nn.Linear):
    """A linear map of changed inputs."""

    def __init__(self, change):
        super().__init__(3, 1)
        self.change = change

    def forward(self, x):
        return super().forward(self.change(x))


class Dictionary(nn.Module):
    """A model that returns a dictionary."""

    def __init__(self, name):
        super().__init__()
        self.name, self.head = name, nn.Linear(3, 2).double()

    def forward(self, x):
        return {"loss": None, self.name: self.head(x)}


def refused():
    dropout = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.1), nn.Linear(3, 1))
    frozen = mlp().requires_grad_(False)
    broken = mlp()
    broken[0].weight.data[0, 0] = float("nan")
    wide, X = nn.Linear(3, 4), draw(5, 3)
    return [
        (dropout, X, None, r"1 \(Dropout\) is in training mode.*model.eval\(\)"),
        (Cnn().train(), draw(2, 2, 9, 8), None, r"body.1 \(BatchNorm2d\) is in training mode"),
        (mlp().half(), X, None, r"torch.float16.*model.float\(\) or model.double\(\)"),
        (mlp().bfloat16(), X, None, "torch.bfloat16"),
        (frozen, X, None, "no parameter that requires a gradient.*requires_grad_"),
        (broken, X, None, "not finite.*NaN"),
        (Changed(nn.functional.dropout), X, None, "change with the call"),
        (Changed(lambda x: x - x.mean(0)), X, None, "other samples"),
        (wide, X, None, r"shape \((2|3), 4\), not one number per sample; give outputs="),
        (wide, X, True, "outputs is True; give outputs="),
        (wide, np.ma.masked_array(np.ones((5, 3)), mask=np.eye(5, 3)), 0, "input 'X' has 3 masked values"),
        (wide, X, 4, r"outputs 4 does not fit the output's shape"),
        (wide, X, (0, 1), r"outputs \(0, 1\) does not fit"),
        (wide, X, torch.zeros(3, dtype=torch.long), "the 5 samples"),
        (wide, X, torch.zeros(5), "whole numbers"),
        (wide, X, lambda out: out.sum(), r"it must give \(N,\) or \(N, k\)"),
        (wide, X, lambda out: torch.complex(out, out)[:, 0], "complex.*real numbers"),
        (nn.LSTM(3, 2, batch_first=True), draw(4, 2, 3), None, "a tuple without logits"),
        (Dictionary("scores"), X, 1, "which holds loss, scores, without logits"),
        (wide, {"a": X, "b": X[:2]}, None, r"\{'a': 5, 'b': 2\}"),
        (wide, {}, None, r"\{\} samples"),
        (wide, X[:0], 0, "1 or more"),
        (len, X, None, "give an nn.Module"),
    ]


@pytest.mark.parametrize("k", range(len(refused())))
def test_what_is_refused_is_refused_with_a_way_out(k):
    model, X, outputs, message = refused()[k]
    with pytest.raises(GatelabError, match=message):
        empirical(model, X, outputs)


def test_active_dropout_of_probability_zero_is_no_obstacle():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0), nn.Linear(3, 1)).double().train()
    close(empirical(model, draw(3, 3)).matrix, naive(model, draw(3, 3), lambda o, i: o, 3))
    assert model.training


@pytest.mark.parametrize("name", ["logits", "last_hidden_state"])
def test_a_plain_dictionary_is_read_as_an_output_of_transformers_is(name):
    model, X = Dictionary(name), draw(4, 3)
    close(empirical(model, X, 1).matrix, empirical(model.head, X, 1).matrix)


def test_calls_that_no_rule_covers_have_no_parts():
    p, x = nn.Parameter(draw(4, 4)), draw(4, 4)
    table, image = nn.Parameter(draw(2, 2, 3, 3)), draw(2, 5, 5)
    calls = [
        (torch.matmul, (p, x), {}),
        (torch.matmul, (x[0], p), {}),
        (torch.addmm, (x[0], x, p), {"alpha": 2}),
        (functional.embedding, (torch.tensor([1]), p), {"max_norm": 1.0}),
        (functional.conv2d, (image, table), {}),
        (functional.batch_norm, (x, x[0], x[0] ** 2, p), {"training": True}),
        (torch.add, (x, p), {"alpha": 2}),
        (torch.mul, (p, 3.0), {}),
        (torch.Tensor.__getitem__, (p, torch.tensor([0, 2])), {}),
        (functional.linear, (), {"tensor": x, "weight": p}),
    ]
    for function, args, kwargs in calls:
        assert parts_of(function, args, kwargs, {id(p): "p", id(table): "table"}) == []
