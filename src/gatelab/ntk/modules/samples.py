"""What the kernel is of: the samples that go in, and the numbers of each sample that come out.

Models that have no kernel, or none that a user would mean, are refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gatelab.errors import GatelabError

Outputs = int | tuple[int, ...] | Tensor | np.ndarray | Callable[[Any], Tensor] | None

_WAYS = (
    "give outputs=c for an entry of the last dimension, outputs=(position, c) for a sequence, whole numbers for each"
    " sample, or a function of the model's output to (N,) or (N, k)"
)


@dataclass(frozen=True)
class Samples:
    """The inputs of n samples and the model that they are for."""

    model: nn.Module
    inputs: dict[str, Tensor]
    named: bool
    outputs: Outputs
    n: int
    device: torch.device
    dtype: torch.dtype

    @classmethod
    def of(cls, model: nn.Module, X: Any, outputs: Outputs, parameter: Tensor) -> Samples:
        named = isinstance(X, Mapping)
        inputs = {str(k): _tensor(k, v) for k, v in (X.items() if named else [("X", X)])}
        if not inputs:
            raise GatelabError("X holds no tensors; give an array of samples, or a dictionary of the model's inputs")
        sizes = {k: (v.shape[0] if v.ndim else 0) for k, v in inputs.items()}
        n = next(iter(sizes.values()))
        if n == 0 or len(set(sizes.values())) > 1:
            raise GatelabError(f"the first dimension is that of the samples, one or more; given were {sizes}")
        if isinstance(outputs, Tensor | np.ndarray):
            outputs = _indices(outputs, n)
        return cls(model, inputs, named, outputs, n, parameter.device, parameter.dtype)

    def take(self, which: Tensor | slice) -> dict[str, Tensor]:
        """The inputs of some samples on the model's device, numbers in the model's precision."""
        taken = {k: v[which].to(self.device) for k, v in self.inputs.items()}
        return {k: v.to(self.dtype) if v.is_floating_point() else v for k, v in taken.items()}

    def index(self, which: Tensor | slice) -> Tensor:
        return torch.arange(self.n)[which].to(self.device)

    def run(self, inputs: dict[str, Tensor], index: Tensor, call: Callable[..., Any] | None = None) -> Tensor:
        """The numbers (N, k) of these samples; `call` stands in for the model."""
        call = self.model if call is None else call
        found = call(**inputs) if self.named else call(inputs["X"])
        return read(found, self.outputs, index)


def _tensor(name: Any, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach()
    try:
        return torch.as_tensor(np.asarray(value))
    except (TypeError, ValueError) as error:
        raise GatelabError(f"input {name!r} is a {type(value).__name__}; give a tensor or an array") from error


def _indices(outputs: Tensor | np.ndarray, n: int) -> Tensor:
    indices = torch.as_tensor(outputs)
    if indices.is_floating_point() or indices.dtype == torch.bool or indices.ndim not in (1, 2) or len(indices) != n:
        raise GatelabError(
            f"outputs has the shape {tuple(indices.shape)} and is {indices.dtype}; give whole numbers, an entry for"
            f" each of the {n} samples, (n,) or (n, dimensions of the output)"
        )
    return indices.long()


def read(found: Any, outputs: Outputs, index: Tensor) -> Tensor:
    """The numbers (N, k) that `outputs` means of the model's output `found`, for the samples of `index`.

    >>> read(torch.arange(6.0).reshape(2, 3), 1, torch.arange(2))
    tensor([[1.],
            [4.]])
    """
    if callable(outputs):
        values = outputs(found)
        if not isinstance(values, Tensor) or values.ndim not in (1, 2) or len(values) != len(index):
            shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise GatelabError(f"outputs gave {shape} for {len(index)} samples; it must give (N,) or (N, k)")
        return _real(values.reshape(len(index), -1))
    table = _tensor_of(found)
    if table.ndim == 0 or table.shape[0] != len(index):
        raise GatelabError(f"the output has the shape {tuple(table.shape)} for {len(index)} samples; {_WAYS}")
    return _real(_pick(table, outputs, index)[:, None])


def _pick(table: Tensor, outputs: Any, index: Tensor) -> Tensor:
    shape = tuple(table.shape)
    if outputs is None:
        if table.numel() != len(index):
            raise GatelabError(f"the output has the shape {shape}, more than one number a sample; {_WAYS}")
        return table.reshape(len(index))
    try:
        if isinstance(outputs, Tensor):
            chosen = outputs.to(index.device)[index]
            chosen = chosen[:, None] if chosen.ndim == 1 else chosen
            if chosen.shape[1] == 1 and table.ndim == 3:
                table = table[:, -1]
            if chosen.shape[1] != table.ndim - 1:
                raise IndexError
            rows = torch.arange(len(index), device=table.device)
            return table[(rows, *chosen.unbind(1))]
        entry = (outputs,) if isinstance(outputs, int) else tuple(outputs)
        if len(entry) != table.ndim - 1:
            raise IndexError
        return table[(slice(None), *entry)]
    except (IndexError, TypeError) as error:
        given = f"of shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else repr(outputs)
        raise GatelabError(f"outputs {given} does not fit the output's shape {shape}; {_WAYS}") from error


def _tensor_of(found: Any) -> Tensor:
    if isinstance(found, Tensor):
        return found
    for name in ("logits", "last_hidden_state"):
        value = found.get(name) if isinstance(found, Mapping) else getattr(found, name, None)
        if isinstance(value, Tensor):
            return value
    held = f", which holds {', '.join(map(str, found))}," if isinstance(found, Mapping) and found else ""
    raise GatelabError(
        f"the model gives a {type(found).__name__}{held} without logits or last_hidden_state; give outputs as a "
        "function"
    )


def _real(values: Tensor) -> Tensor:
    if values.is_complex() or not values.is_floating_point():
        raise GatelabError(f"the outputs are {values.dtype}; a kernel is of real numbers: give outputs that are")
    if values.dtype in (torch.float16, torch.bfloat16):
        raise GatelabError(f"the outputs are {values.dtype}; compute in model.float() or .double(), without autocast")
    return values


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
