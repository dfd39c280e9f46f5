"""Values that flow through the modules of a model, and other functions for modules.

    with captured({"x": layer.entrance}, {"y": layer.exit}) as values:
        model(rows)                              values["x"] and values["y"]: a tensor for each call
    with replaced({layer.exit: changed_output(layer.exit, torch.zeros_like)}):
        model(rows)                              the model without this block

The model is restored on exit, after an error too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from torch import Tensor, nn

from gatelab.errors import GatelabError

K = TypeVar("K", bound=Hashable)
NONE: Mapping[Any, nn.Module] = MappingProxyType({})


def first_tensor(value: Any) -> Tensor:
    """The input or output of a module; the first one of several."""
    if isinstance(value, tuple | list):
        value = value[0]
    value = getattr(value, "last_hidden_state", value)
    if not isinstance(value, Tensor) or not value.is_floating_point():
        kind = f"tensor of {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
        raise GatelabError(f"a module by name must map floating point numbers to such, and here is a {kind}")
    return value


@contextmanager
def captured(
    inputs: Mapping[K, nn.Module] = NONE,
    outputs: Mapping[K, nn.Module] = NONE,
    listen: Callable[[K, Any], object] | None = None,
) -> Iterator[dict[K, list[Tensor]]]:
    """Capture the first input and the output of modules while a model runs in the block.

    Args:
        inputs: modules whose inputs are captured, by a key of your choice.
        outputs: modules whose outputs are captured, by other keys.
        listen: called with the key and the unchanged value at every call; no values are kept then.

    Returns:
        The tensors by key, one per call. They are copies, since Falcon changes the output of its blocks in place.
    """
    values: dict[K, list[Tensor]] = {key: [] for key in (*inputs, *outputs)}

    def hear(key: K, value: Any) -> None:
        if listen is None:
            values[key].append(first_tensor(value).clone())
        else:
            listen(key, value)

    def enter(key: K, _: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        for value in (*arguments, *options.values())[:1]:
            hear(key, value)

    def leave(key: K, _: nn.Module, __: Any, result: Any) -> None:
        hear(key, result)

    with ExitStack() as stack:
        for key, module in inputs.items():
            stack.callback(module.register_forward_pre_hook(partial(enter, key), with_kwargs=True).remove)
        for key, module in outputs.items():
            stack.callback(module.register_forward_hook(partial(leave, key)).remove)
        yield values


@contextmanager
def replaced(functions: Mapping[nn.Module, Callable[..., Any]]) -> Iterator[None]:
    """Let modules compute other functions within the block."""
    own = {module: vars(module).get("forward") for module in functions}  # only where set on the instance
    try:
        for module, function in functions.items():
            module.forward = function
        yield
    finally:
        for module, forward in own.items():
            vars(module).pop("forward", None)
            if forward is not None:
                module.forward = forward


def changed_output(module: nn.Module, change: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    """The forward function of a module with its (first) output changed, for `replaced`."""
    forward = module.forward

    def compute(*arguments: Any, **options: Any) -> Any:
        result = forward(*arguments, **options)
        value = change(first_tensor(result))
        return (value, *result[1:]) if isinstance(result, tuple) else value

    return compute
