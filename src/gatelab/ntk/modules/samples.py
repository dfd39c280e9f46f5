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

from gatelab.data.checks import refuse_masked
from gatelab.errors import GatelabError, whole_number

Outputs = int | tuple[int, ...] | Tensor | np.ndarray | Callable[[Any], Tensor] | None

PRECISIONS = (torch.float32, torch.float64)
_WAYS = (
    "give outputs=c for an entry of the last dimension, outputs=(position, c) for a sequence, whole numbers for each"
    " sample, or a function of the model's output to (N,) or (N, k)"
)


@dataclass(frozen=True)
class Samples:
    """The inputs of n samples and the model that they are for.

    `inputs` are tensors by name, samples first; unless they are `named` there is one, X, that the model takes as its
    argument. `outputs` say which numbers of a sample are meant, `device` and `dtype` are the model's.
    """

    model: nn.Module
    inputs: dict[str, Tensor]
    named: bool
    outputs: Outputs
    n: int
    device: torch.device
    dtype: torch.dtype

    @classmethod
    def of(cls, model: nn.Module, X: Any, outputs: Outputs, parameter: Tensor) -> Samples:
        """Check inputs and outputs as a user gives them; `parameter` is one of the model's."""
        named = isinstance(X, Mapping)
        inputs = {str(k): _input(k, v) for k, v in (X if named else {"X": X}).items()}
        if not inputs:
            raise GatelabError("X holds no tensors; give an array of samples, or a dictionary of the model's inputs")
        sizes = {k: next(iter(v.shape), 0) for k, v in inputs.items()}
        n = next(iter(sizes.values()))
        if n == 0 or len(set(sizes.values())) > 1:
            raise GatelabError(f"the first dimension is that of the samples, one or more; given were {sizes}")
        if isinstance(outputs, bool):
            raise GatelabError(f"outputs is {outputs}; {_WAYS}")
        if isinstance(outputs, Tensor | np.ndarray):
            outputs = torch.as_tensor(outputs)
            whole = not outputs.is_floating_point() and outputs.dtype != torch.bool
            if not whole or outputs.ndim not in (1, 2) or len(outputs) != n:
                raise GatelabError(
                    f"outputs has the shape {tuple(outputs.shape)} and is {outputs.dtype}; give whole numbers, an entry"
                    f" for each of the {n} samples, (n,) or (n, dimensions of the output)"
                )
            outputs = outputs.long()
        return cls(model, inputs, named, outputs, n, parameter.device, parameter.dtype)

    def take(self, which: Tensor | slice) -> dict[str, Tensor]:
        """The inputs of some samples on the model's device, numbers in the model's precision."""
        inputs = {k: v[which].to(self.device) for k, v in self.inputs.items()}
        return {k: v.to(self.dtype) if v.is_floating_point() else v for k, v in inputs.items()}

    def index(self, which: Tensor | slice) -> Tensor:
        """The numbers of some samples."""
        return torch.arange(self.n)[which].to(self.device)

    def run(self, inputs: dict[str, Tensor], index: Tensor, call: Callable[..., Any] | None = None) -> Tensor:
        """The numbers (N, k) of these samples; `call` stands in for the model."""
        if call is None:
            call = self.model
        result = call(**inputs) if self.named else call(inputs["X"])
        return read(result, self.outputs, index)


def _input(name: Any, value: Any) -> Tensor:
    refuse_masked(value, f"input {name!r}")
    if isinstance(value, Tensor):
        return value.detach()
    try:
        return torch.as_tensor(np.asarray(value))
    except (TypeError, ValueError) as error:
        raise GatelabError(f"input {name!r} is a {type(value).__name__}; give a tensor or an array") from error


def read(result: Any, outputs: Outputs, index: Tensor) -> Tensor:
    """The numbers (N, k) that `outputs` means of the model's `result`, for the samples of `index`.

    >>> read(torch.arange(6.0).reshape(2, 3), 1, torch.arange(2))
    tensor([[1.],
            [4.]])
    """
    if callable(outputs):
        values = outputs(result)
        if not isinstance(values, Tensor) or values.ndim not in (1, 2) or len(values) != len(index):
            shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise GatelabError(f"outputs gave {shape} for {len(index)} samples; it must give (N,) or (N, k)")
        values = values.reshape(len(index), -1)
    else:
        table = _tensor_of(result)
        if table.ndim == 0 or table.shape[0] != len(index):
            raise GatelabError(f"the output has the shape {tuple(table.shape)} for {len(index)} samples; {_WAYS}")
        values = _picked(table, outputs, index)[:, None]
    if values.is_complex() or not values.is_floating_point():
        raise GatelabError(f"the outputs are {values.dtype}; a kernel is of real numbers: give outputs that are")
    if values.dtype in (torch.float16, torch.bfloat16):
        raise GatelabError(f"the outputs are {values.dtype}; compute in model.float() or .double(), without autocast")
    return values


def _picked(table: Tensor, outputs: Any, index: Tensor) -> Tensor:
    """One number (N,) of each sample out of the table of a model's outputs."""
    if outputs is None:
        if table.numel() != len(index):
            raise GatelabError(f"the output has the shape {tuple(table.shape)}, more than one number a sample; {_WAYS}")
        return table.reshape(len(index))
    shape = tuple(table.shape)
    try:
        if isinstance(outputs, Tensor):
            entries = outputs.to(index.device)[index].reshape(len(index), -1)
            if entries.shape[1] == 1 and table.ndim == 3:
                table = table[:, -1]
            place = (torch.arange(len(index), device=table.device), *entries.unbind(1))
        else:
            place = (slice(None), *((outputs,) if isinstance(outputs, int) else outputs))
        if len(place) != table.ndim:
            raise IndexError
        return table[place]
    except (IndexError, TypeError) as error:
        text = f"of shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else repr(outputs)
        raise GatelabError(f"outputs {text} does not fit the output's shape {shape}; {_WAYS}") from error


def _tensor_of(result: Any) -> Tensor:
    """The tensor that a model gives, alone or among others."""
    if isinstance(result, Tensor):
        return result
    for name in ("logits", "last_hidden_state"):
        value = result.get(name) if isinstance(result, Mapping) else getattr(result, name, None)
        if isinstance(value, Tensor):
            return value
    contents = ""
    if isinstance(result, Mapping) and result:
        contents = f", which holds {', '.join(map(str, result))},"
    raise GatelabError(
        f"the model gives a {type(result).__name__}{contents} without logits or last_hidden_state; give outputs as a "
        "function"
    )


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that the kernel is of, each once; the model must be one whose gradients are meant.

    >>> list(trainable(nn.Linear(2, 1)))
    ['weight', 'bias']
    """
    if not isinstance(model, nn.Module):
        raise GatelabError(f"the model is a {type(model).__name__}; give an nn.Module")
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not parameters:
        raise GatelabError(
            f"{type(model).__name__} has no parameter that requires a gradient; unfreeze some: p.requires_grad_(True)"
        )
    _check_precision(model, parameters)
    for name, module in model.named_modules():
        reason = _disturbance(module)
        if reason:
            raise GatelabError(
                f"{name or 'the model'} ({type(module).__name__}) is in training mode, {reason};"
                " call model.eval() first (gradients are taken all the same)"
            )
    return parameters


def _check_precision(model: nn.Module, parameters: dict[str, nn.Parameter]) -> None:
    floats = {str(p.dtype) for p in model.parameters() if p.dtype not in PRECISIONS}
    if floats:
        raise GatelabError(
            f"the model has parameters in {', '.join(sorted(floats))}; a kernel is computed in float32 or float64: give"
            " model.float() or model.double()"
        )
    if any(p.is_meta for p in parameters.values()):
        raise GatelabError("the model is on the device 'meta', which holds no numbers; give one on the CPU or a GPU")
    kinds = {(p.dtype, p.device) for p in parameters.values()}
    if len(kinds) > 1:
        text = ", ".join(sorted(f"{d} on {place}" for d, place in kinds))
        raise GatelabError(f"the parameters are {text}; give them one precision and one device")


def _disturbance(module: nn.Module) -> str | None:
    """What a module does in training mode that a kernel cannot do with; None where it is in evaluation mode or fine."""
    if not module.training:
        return None
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return "where samples share a mean and variance"
    share = getattr(module, "p", 0.0)
    if "Dropout" in type(module).__name__ and isinstance(share, float | int) and share > 0:
        return f"where it drops at random (p = {share})"
    return None


def check_values(alone: Tensor, together: Tensor) -> None:
    """Refuse outputs that are not finite, not repeatable, or not each sample's own."""
    check_finite(together)
    slack = 1e-3 if alone.dtype == torch.float32 else 1e-7
    scale = together.abs().max().clamp_min(torch.finfo(together.dtype).tiny)
    if (alone - together[: len(alone)]).abs().max() > slack * scale:
        raise GatelabError(
            "the outputs of a sample change with the call or with the other samples of the batch; a kernel needs a"
            " model that is fixed (no random layers) and takes each sample for itself"
        )


def check_finite(values: Tensor) -> None:
    """Refuse outputs that are not finite."""
    if not torch.isfinite(values).all():
        raise GatelabError("the model's outputs are not finite; look for NaN or overflow in weights and inputs")


def check_batch(batch: int | None) -> None:
    """Refuse what is no whole number of samples; None leaves it to the plan."""
    if batch is not None:
        whole_number("batch", batch, 1, of="samples")
