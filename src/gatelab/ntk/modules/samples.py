"""Inputs and outputs of a kernel: checks of models and samples, and the selection of outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gatelab.arrays import refuse_masked
from gatelab.errors import GatelabError

Outputs = int | tuple[int, ...] | Tensor | np.ndarray | Callable[[Any], Tensor] | None

_WAYS = (
    "give outputs=c for an entry of the last dimension, outputs=(position, c) for a sequence, one whole number per"
    " sample, or a function of the model's output to (N,) or (N, k)"
)


@dataclass(frozen=True)
class Samples:
    """A model and the inputs of n samples by name; unless they are `named`, X is the only argument of the model."""

    model: nn.Module
    inputs: dict[str, Tensor]
    named: bool
    outputs: Outputs
    n: int
    device: torch.device
    dtype: torch.dtype

    @classmethod
    def of(cls, model: nn.Module, X: Any, outputs: Outputs, parameter: Tensor) -> Samples:
        """Check a user's inputs and outputs; `parameter` is any parameter of the model."""
        named = isinstance(X, Mapping)
        inputs = {str(name): input_tensor(name, value) for name, value in (X if named else {"X": X}).items()}
        sizes = {name: next(iter(value.shape), 0) for name, value in inputs.items()}
        n = next(iter(sizes.values()), 0)
        if n == 0 or len(set(sizes.values())) > 1:
            raise GatelabError(f"the inputs have {sizes} samples; give the same number, 1 or more, in all")
        if isinstance(outputs, bool):
            raise GatelabError(f"outputs is {outputs}; {_WAYS}")
        if isinstance(outputs, Tensor | np.ndarray):
            outputs = torch.as_tensor(outputs)
            whole = not outputs.is_floating_point() and outputs.dtype != torch.bool
            if not whole or outputs.ndim not in (1, 2) or len(outputs) != n:
                raise GatelabError(
                    f"outputs is {outputs.dtype} {tuple(outputs.shape)}; give rows of whole numbers for the {n} samples"
                )
            outputs = outputs.long()
        return cls(model, inputs, named, outputs, n, parameter.device, parameter.dtype)

    def take(self, which: Tensor | slice) -> tuple[dict[str, Tensor], Tensor]:
        """The inputs of some samples in the model's device and precision; and their indices."""
        inputs = {name: value[which].to(self.device) for name, value in self.inputs.items()}
        inputs = {name: v.to(self.dtype) if v.is_floating_point() else v for name, v in inputs.items()}
        return inputs, torch.arange(self.n)[which].to(self.device)

    def run(self, inputs: dict[str, Tensor], index: Tensor) -> Tensor:
        """The selected outputs (N, k) of these samples."""
        result = self.model(**inputs) if self.named else self.model(inputs["X"])
        return read(result, self.outputs, index)


def input_tensor(name: Any, value: Any) -> Tensor:
    refuse_masked(value, f"input {name!r}")
    if isinstance(value, Tensor):
        return value.detach()
    try:
        return torch.as_tensor(np.asarray(value))
    except (TypeError, ValueError) as error:
        raise GatelabError(f"input {name!r} is a {type(value).__name__}; give a tensor or an array") from error


def read(result: Any, outputs: Outputs, index: Tensor) -> Tensor:
    """The numbers (N, k) that `outputs` selects from the model's `result`, for the samples `index`.

    >>> read(torch.arange(6.0).reshape(2, 3), 1, torch.arange(2))
    tensor([[1.],
            [4.]])
    """
    values = outputs(result) if callable(outputs) else picked(tensor_of(result), outputs, index)
    if not isinstance(values, Tensor) or values.ndim not in (1, 2) or len(values) != len(index):
        shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise GatelabError(f"outputs gave {shape} for {len(index)} samples; it must give (N,) or (N, k)")
    if values.dtype not in (torch.float32, torch.float64):
        raise GatelabError(f"the outputs are {values.dtype}; give real numbers, without autocast")
    return values.reshape(len(index), -1)


def picked(table: Tensor, outputs: Any, index: Tensor) -> Tensor:
    """One number per sample (N,) from the model's outputs."""
    shape = tuple(table.shape)
    if outputs is None:
        if table.ndim == 0 or table.numel() != len(index):
            raise GatelabError(f"the output has the shape {shape}, not one number per sample; {_WAYS}")
        return table.reshape(len(index))
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


def tensor_of(result: Any) -> Tensor:
    """The tensor that a model returns, possibly among other values."""
    if isinstance(result, Tensor):
        return result
    for name in ("logits", "last_hidden_state"):
        value = result.get(name) if isinstance(result, Mapping) else getattr(result, name, None)
        if isinstance(value, Tensor):
            return value
    contents = f", which holds {', '.join(map(str, result))}," if isinstance(result, Mapping) else ""
    raise GatelabError(f"the model returns a {type(result).__name__}{contents} without logits; give a function outputs")


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The trainable parameters, each once, of a model that is ready for gradients.

    >>> list(trainable(nn.Linear(2, 1)))
    ['weight', 'bias']
    """
    if not isinstance(model, nn.Module):
        raise GatelabError(f"the model is a {type(model).__name__}; give an nn.Module")
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not parameters:
        raise GatelabError(f"{type(model).__name__} has no parameter that requires a gradient; use requires_grad_()")
    kinds = {(str(p.dtype), str(p.device)) for p in parameters.values()}
    wrong = any(p.dtype not in (torch.float32, torch.float64) for p in model.parameters())
    if wrong or len(kinds) > 1 or ("meta" in {device for _, device in kinds}):
        text = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
        raise GatelabError(f"the parameters are {text}; give model.float() or model.double() on one CPU or GPU")
    for name, module in model.named_modules():
        # Batch norms mix samples, and dropout is random.
        share = getattr(module, "p", 0.0) if "Dropout" in type(module).__name__ else 0.0
        if module.training and (share > 0 or isinstance(module, nn.modules.batchnorm._BatchNorm)):
            raise GatelabError(
                f"{name or 'the model'} ({type(module).__name__}) is in training mode; call model.eval()"
            )
    return parameters


def check_values(alone: Tensor, together: Tensor) -> None:
    """Raise for outputs that are not finite, not repeatable, or depend on other samples."""
    check_finite(together)
    slack = 1e-3 if alone.dtype == torch.float32 else 1e-7
    scale = together.abs().max().clamp_min(torch.finfo(together.dtype).tiny)
    if (alone - together[: len(alone)]).abs().max() > slack * scale:
        raise GatelabError("outputs change with the call or with other samples; use model.eval()")


def check_finite(values: Tensor) -> None:
    if not torch.isfinite(values).all():
        raise GatelabError("the model's outputs are not finite; look for NaN or overflow in weights and inputs")
