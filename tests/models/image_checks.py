"""What a model of images is held to, whichever it is."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gatelab.errors import GatelabError
from gatelab.feedforward import Unit, units

IMAGES = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 3, 9, 9])


class Tanh(nn.Module):
    """A user's own block, biases and all."""

    def __init__(self, width, d_in, d_out):
        super().__init__()
        self.a, self.b = nn.Linear(d_in, width), nn.Linear(width, d_out)

    def forward(self, x):
        assert x.ndim == 2
        return self.b(torch.tanh(self.a(x)))


def count(model):
    return sum(p.numel() for p in model.parameters())


def costs_the_same_with_every_unit(model, sizes):
    plain = count(model("tiny", "mlp"))
    for unit in units():
        built = model("tiny", unit)
        assert built(IMAGES).shape == (6, 10)
        assert count(built) == plain == sizes["tiny"].parameter_count(unit)
    for name in sizes:
        assert len({sizes[name].parameter_count(u) for u in units()}) == 1
    for unit in (Tanh, Unit("silu", factors=3), "glu", "gqu"):
        built = model("tiny", unit, width=100)
        assert count(built) == built.config.parameter_count(unit)
        assert abs(count(built) / count(model("tiny", "mlp", width=100)) - 1) < 0.02
    small = model("small", "swiglu", image_size=64, patch=8, classes=200, channels=1)
    assert small(torch.zeros(2, 1, 64, 64)).shape == (2, 200)
    assert count(small) == small.config.parameter_count("swiglu")
    unmatched = model("tiny", "glu", match_mlp=False)
    assert count(unmatched) == unmatched.config.parameter_count("glu", match_mlp=False) > plain


def is_the_same_for_equal_seeds(model):
    state = torch.get_rng_state()
    one, same, other = (model("tiny", "glu", seed=s) for s in (1, 1, 2))
    model("tiny", Tanh)
    assert torch.equal(torch.get_rng_state(), state)
    wide = model("tiny", "glu", seed=1, dtype=torch.float64)
    for name, p in one.named_parameters():
        assert torch.equal(p, same.get_parameter(name))
        assert torch.equal(p, wide.get_parameter(name).float())
        if "norm" not in name and "bias" not in name:
            assert not torch.equal(p, other.get_parameter(name))
    assert wide(IMAGES.double()).dtype == torch.float64


def has_gradients_everywhere(model):
    for unit in ("gelu", "swiglu", "gqu", Tanh):
        built = model("tiny", unit)
        built.loss(IMAGES, LABELS).backward()
        for name, p in built.named_parameters():
            assert p.grad is not None and p.grad.abs().sum() > 0, (unit, name)


def treats_images_one_by_one(model):
    built = model("tiny", "swiglu", dtype=torch.float64)
    x = IMAGES.double()
    alone = torch.cat([built(image[None]) for image in x])
    assert torch.allclose(built(x), alone, atol=1e-12)


def learns(model):
    built = model("tiny", "swiglu")
    optimiser = torch.optim.SGD(built.parameters(), lr=0.05, momentum=0.9)
    for _ in range(40):
        loss = built.loss(IMAGES, LABELS)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.1


def compiles_and_runs_in_bfloat16(model):
    built = model("tiny", "swiglu")
    expected = built(IMAGES)
    compiled = torch.compile(built, backend="aot_eager", fullgraph=True)
    assert torch.allclose(compiled(IMAGES), expected, atol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low, loss = built(IMAGES), built.loss(IMAGES, LABELS)
    assert low.dtype == torch.bfloat16 and loss.dtype == torch.float32
    assert (low - expected).abs().max() < 0.05 * expected.abs().max()


def says_the_way_out(model, kind):
    for make, says in (
        (lambda: model("tinny"), f"no {kind} size is called 'tinny'; did you mean 'tiny'"),
        (lambda: model("tiny", patch=3), "image_size is 8, which patch = 3 does not divide"),
        (lambda: model("tiny", clases=3), "did you mean 'classes'"),
        (lambda: model("tiny")(torch.zeros(2, 1, 8, 8)), r"shape \(2, 1, 8, 8\), the model takes \(N, 3, 8, 8\)"),
        (lambda: model("tiny")(torch.zeros(2, 3, 8, 8, dtype=torch.uint8)), "torch.uint8.*data.normalised"),
    ):
        with pytest.raises(GatelabError, match=says):
            make()
