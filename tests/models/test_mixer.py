"""The MLP-Mixer with any unit in both of its places."""

from __future__ import annotations

import image_checks as check
import pytest
import torch
from torch.nn import functional

from gatelab.models import MIXER_SIZES, Mixer


def test_every_unit_costs_the_same():
    check.costs_the_same_with_every_unit(Mixer, MIXER_SIZES)


def test_equal_seeds_are_equal_models_and_the_global_generator_is_left_alone():
    check.is_the_same_for_equal_seeds(Mixer)


def test_every_parameter_gets_a_gradient():
    check.has_gradients_everywhere(Mixer)


def test_images_do_not_see_each_other():
    check.treats_images_one_by_one(Mixer)


def test_it_learns():
    check.learns(Mixer)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
@pytest.mark.slow
def test_compiled_and_in_bfloat16():
    check.compiles_and_runs_in_bfloat16(Mixer)


def test_errors_say_the_way_out():
    check.says_the_way_out(Mixer, "Mixer")


def test_dropout_acts_in_training_alone():
    model = Mixer("tiny", dropout=0.3)
    assert not torch.equal(model(check.IMAGES), model(check.IMAGES))
    model.eval()
    assert torch.equal(model(check.IMAGES), model(check.IMAGES))


def test_a_block_is_what_the_formula_says():
    """Token by token and channel by channel, in loops."""
    model = Mixer("tiny", "swiglu", dtype=torch.float64)
    block = model.blocks[0]
    x = torch.randn(2, 16, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def swiglu(v, part):
        return part.D @ (functional.silu(part.G @ v) * (part.U @ v))

    expected = x.clone()
    normed = functional.layer_norm(x, (32,))
    for n in range(2):
        for channel in range(32):
            expected[n, :, channel] += swiglu(normed[n, :, channel], block.over_tokens)
    normed = functional.layer_norm(expected, (32,))
    for n in range(2):
        for token in range(16):
            expected[n, token] = expected[n, token] + swiglu(normed[n, token], block.over_channels)
    assert torch.allclose(block(x), expected, atol=1e-12)


def test_both_units_are_the_one_asked_for():
    block = Mixer("tiny", "gqu").blocks[1]
    assert block.over_tokens.unit.name == block.over_channels.unit.name == "gqu"
    assert (block.over_tokens.width, block.over_channels.width) == (12, 48)
