"""Models that have no kernel, or none that a user would mean, are refused here."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gatelab.errors import GatelabError

_TAKEN = (torch.float32, torch.float64)


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that the kernel is of, each once; the model must be one whose gradients are meant.

    >>> list(trainable(nn.Linear(2, 1)))
    ['weight', 'bias']
    """
    if not isinstance(model, nn.Module):
        raise GatelabError(f"the model is a {type(model).__name__}; give an nn.Module")
    found = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not found:
        raise GatelabError(
            f"{type(model).__name__} has no parameter that requires a gradient; unfreeze some: p.requires_grad_(True)"
        )
    _check_precision(model, found)
    _check_mode(model)
    return found


def _check_precision(model: nn.Module, found: dict[str, nn.Parameter]) -> None:
    floats = {str(p.dtype) for p in model.parameters() if p.dtype not in _TAKEN}
    if floats:
        raise GatelabError(
            f"the model has parameters in {', '.join(sorted(floats))}; a kernel is computed in float32 or float64: give"
            " model.float() or model.double()"
        )
    if any(p.is_meta for p in found.values()):
        raise GatelabError("the model is on the device 'meta', which holds no numbers; give one on the CPU or a GPU")
    kinds = {(p.dtype, p.device) for p in found.values()}
    if len(kinds) > 1:
        text = ", ".join(sorted(f"{d} on {place}" for d, place in kinds))
        raise GatelabError(f"the parameters are {text}; give them one precision and one device")


def _check_mode(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if not module.training:
            continue
        what = _disturbs(module)
        if what:
            raise GatelabError(
                f"{name or 'the model'} ({type(module).__name__}) is in training mode, {what}; call model.eval() first"
                " (gradients are taken all the same)"
            )


def _disturbs(module: nn.Module) -> str | None:
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return "where samples share a mean and variance"
    share = getattr(module, "p", 0.0)
    if "Dropout" in type(module).__name__ and isinstance(share, float | int) and share > 0:
        return f"where it drops at random (p = {share})"
    return None


def check_values(alone: Tensor, together: Tensor) -> None:
    """Outputs are finite, repeatable, and each sample's own."""
    if not torch.isfinite(together).all():
        raise GatelabError("the model's outputs are not finite; look for NaN or overflow in weights and inputs")
    slack = 1e-3 if alone.dtype == torch.float32 else 1e-7
    scale = together.abs().max().clamp_min(torch.finfo(together.dtype).tiny)
    if (alone - together[: len(alone)]).abs().max() > slack * scale:
        raise GatelabError(
            "the outputs of a sample change with the call or with the other samples of the batch; a kernel needs a"
            " model that is fixed (no random layers) and takes each sample for itself"
        )


def check_batch(batch: int | None) -> None:
    """A batch is a whole number, or left to the plan."""
    if batch is not None and (isinstance(batch, bool) or not isinstance(batch, int) or batch < 1):
        raise GatelabError(f"batch is {batch!r}; give a whole number of samples, 1 or more, or leave it out")
