"""The vision transformer with any unit as its feed-forward part."""

from __future__ import annotations

import image_checks as check
import pytest
import torch

from gatelab.models import VIT_SIZES, ViT
from gatelab.models.block import Attention, patches


def test_every_unit_costs_the_same():
    check.costs_the_same_with_every_unit(ViT, VIT_SIZES)


def test_equal_seeds_are_equal_models_and_the_global_generator_is_left_alone():
    check.is_the_same_for_equal_seeds(ViT)


def test_every_parameter_gets_a_gradient():
    check.has_gradients_everywhere(ViT)


def test_images_do_not_see_each_other():
    check.treats_images_one_by_one(ViT)


def test_it_learns():
    check.learns(ViT)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
def test_compiled_and_in_bfloat16():
    check.compiles_and_runs_in_bfloat16(ViT)


def test_errors_say_the_way_out():
    check.says_the_way_out(ViT, "ViT")


def test_dropout_acts_in_training_alone():
    model = ViT("tiny", dropout=0.3)
    assert not torch.equal(model(check.IMAGES), model(check.IMAGES))
    model.eval()
    assert torch.equal(model(check.IMAGES), model(check.IMAGES))


def _blocks_permuted(images, order):
    """The images with their 2 x 2 patches in another order, moved one by one."""
    moved = torch.empty_like(images)
    for new, old in enumerate(order.tolist()):
        (r, c), (i, j) = divmod(new, 4), divmod(old, 4)
        moved[..., 2 * r : 2 * r + 2, 2 * c : 2 * c + 2] = images[..., 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
    return moved


def test_positions_are_all_that_tells_the_order_of_patches():
    model = ViT("tiny", "swiglu", dtype=torch.float64)
    images = check.IMAGES.double()
    moved = _blocks_permuted(images, torch.randperm(16, generator=torch.Generator().manual_seed(0)))
    assert (model(images) - model(moved)).abs().max() > 1e-4
    with torch.no_grad():
        model.positions.weight.zero_()
    assert torch.allclose(model(images), model(moved), atol=1e-12)


def test_patches_are_squares_of_the_image():
    images = torch.arange(2 * 3 * 8 * 8.0).reshape(2, 3, 8, 8)
    cut = patches(images, 2)
    assert cut.shape == (2, 16, 12)
    for k in range(16):
        r, c = divmod(k, 4)
        assert torch.equal(cut[:, k], images[:, :, 2 * r : 2 * r + 2, 2 * c : 2 * c + 2].flatten(1))


@pytest.mark.parametrize("causal", [True, False])
def test_attention_written_out_is_the_fused_one(causal: bool):
    torch.manual_seed(0)
    attention = Attention(12, 3, causal=causal, dropout=0.0).double()
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    fused = attention(x)
    attention.fused = False
    assert torch.allclose(attention(x), fused, rtol=1e-12, atol=1e-12)
