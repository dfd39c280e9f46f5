"""`profile`: measure the blocks of a model; and inputs and outputs of single blocks for other fits.

The text is cut into windows for training, validation and test. Every block is compared with the best linear map and
with units of the same kind and growing width; then the model is run with one block at a time skipped or made linear.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gatelab.anatomy import texts
from gatelab.anatomy.fits import Affine, BlockRows, best_affine, fit_block
from gatelab.anatomy.flows import Flow, Moments, Tap, tapped, taps_of, without_head
from gatelab.anatomy.profiles import BlockProfile, Profile
from gatelab.data import Problem
from gatelab.display import ProgressLike, counted, reporting
from gatelab.errors import GatelabError, whole_number
from gatelab.memory import check_memory
from gatelab.models.hooks import captured, changed_output, first_tensor, replaced
from gatelab.models.layouts import layers_of, unit_of
from gatelab.scaling_laws import slope
from gatelab.statistics import Interval, bootstrap, t_interval

TOKENS, TEST, LENGTH = 6144, 512, 128
VALIDATION = 0.125  # share of the windows that are not for the test
WIDTHS = (16, 32, 64, 128)
STEPS = 20
DRAWS = 1000

Parts = tuple[Tensor, Tensor, Tensor]
Step = Callable[[int], None]


def profile(
    model: nn.Module,
    text: Any,
    *,
    tokenizer: Any = None,
    modules: Sequence[str] | None = None,
    tokens: int = TOKENS,
    test: int = TEST,
    length: int | None = None,
    widths: Sequence[int] = WIDTHS,
    steps: int = STEPS,
    losses: bool = True,
    progress: ProgressLike = None,
) -> Profile:
    """Measure every feed-forward block of a model, and how well smaller maps can replace it.

    Args:
        model: a model of Transformers in a known layout (Llama, GPT-2, BERT, ViT, GPT-NeoX and similar), or gatelab's
            own; with `modules` any module. Computations are on its device.
        text: a string, a file, the name of a text, token numbers, or images for image models.
        tokenizer: the tokenizer of the model, if the text is a string or a file.
        modules: names of modules to profile; None for all blocks of the layout.
        tokens: number of tokens for training and validation.
        test: number of tokens for the test.
        length: tokens per window; None for 128, or the context of the model if that is shorter.
        widths: widths of the units that are fitted to every block; if empty, no units are fitted.
        steps: steps of Adam for every such unit.
        losses: whether to run the model with blocks skipped and made linear.
        progress: shown on a terminal and in a notebook unless it is False, or a function of (done, total).

    Returns:
        A `Profile`.
    """
    began = time.perf_counter()
    widths = tuple(whole_number("widths", width, 1, of="neurons") for width in np.atleast_1d(widths))
    steps = whole_number("steps", steps, 0)
    taps = taps_of(model, modules)
    parts = parts_of(model, text, tokenizer, tokens, test, length)
    fit_work = 1 + 10 * len(widths)  # relative to one window in one layer
    with ready(model, parts), reporting(progress, "profiling") as report:
        total, done = len(taps) * (sum(map(len, parts)) + fit_work + 2 * len(parts[2]) * losses), 0

        def step(amount: int) -> None:
            nonlocal done
            done = min(done + amount, total)
            if report:
                report(done, total)

        moments, rows, counts = collect(model, taps, parts, step)
        blocks, maps = [], []
        for tap, sums, its_rows in zip(taps, moments, rows, strict=True):
            grams = sums.centered("x", "x"), sums.centered("x", "y")
            maps.append(best_affine(grams, (sums.mean("x"), sums.mean("y")), its_rows.validation))
            blocks.append(block_profile(tap, sums, its_rows, maps[-1], widths, steps, len(parts[2])))
            step(fit_work)
        loss = math.nan
        if losses:
            costs, loss = model_losses(model, taps, parts[2], maps, step)
            blocks = [replace(block, skipped=a, linearised=b) for block, (a, b) in zip(blocks, costs, strict=True)]
    return Profile(type(model).__name__, tuple(blocks), counts, loss, time.perf_counter() - began)


def parts_of(model: nn.Module, text: Any, tokenizer: Any, tokens: int, test: int, length: int | None) -> Parts:
    length = texts.window_length(model, text, length, LENGTH)
    to_fit = max(1, whole_number("tokens", tokens, 2) // length)
    to_test = max(1, whole_number("test", test, 1) // length)
    rows = texts.windows(text, tokenizer, length, most=to_fit + to_test)
    if len(rows) < 3:
        raise GatelabError(
            f"the text has {counted(len(rows), 'window')} and three are needed; give a longer text or a smaller length"
        )
    share = to_test / (to_fit + to_test)
    calibration, measured = texts.split(rows, min(max(share, 1 / len(rows)), 1 - 2 / len(rows)))
    fitted, chosen = texts.split(calibration, max(VALIDATION, 1 / len(calibration)))
    for part in (fitted, chosen, measured):
        texts.check_tokens(model, part)
    return fitted, chosen, measured


@contextmanager
def ready(model: nn.Module, parts: Parts) -> Iterator[None]:
    """Run the model in evaluation mode, without gradients and without a cache of keys."""
    with texts.evaluating(model), texts.without_cache(model), torch.no_grad():
        texts.check_reads(model, parts[0])
        yield


def batches(rows: Tensor) -> Iterator[Tensor]:
    """Batches of about 512 tokens or 8 images."""
    return iter(rows.split(8 if rows.is_floating_point() else max(1, 512 // rows.shape[1])))


def collect(
    model: nn.Module, taps: Sequence[Tap], parts: Parts, step: Step
) -> tuple[list[Moments], list[BlockRows], tuple[int, int, int]]:
    """Counters and Gram matrices of the training part; rows of all parts; and the number of tokens of each part."""
    model, device = without_head(model), next(model.parameters()).device
    shapes: dict[int, tuple[int, int, int]] = {}

    def listen(i: int, flow: Flow) -> None:
        shapes[i] = (len(flow.x), flow.x.shape[1], flow.y.shape[1])

    with tapped(taps, listen):
        model(parts[0][:1].to(device))
    needed = 0
    for i, tap in enumerate(taps):
        if i not in shapes:
            raise GatelabError(f"the model does not call {tap.name}; give other modules")
        count, d_in, d_out = shapes[i]
        width = 0 if tap.block is None else tap.block.width
        needed += 8 * (d_in**2 + d_in * d_out + d_out**2 + width**2)
        needed += 4 * sum(map(len, parts)) * count * (d_in + d_out)
    check_memory(needed, "a profile", "give fewer tokens, or fewer blocks by modules=[...]", device)
    moments, each = [Moments(tap, len(parts[0]) * shapes[i][0]) for i, tap in enumerate(taps)], shapes[0][0]
    fit = part_rows(model, taps, parts[0], step, moments)
    chosen, test = (part_rows(model, taps, rows, step) for rows in parts[1:])
    rows = [BlockRows(*known, *others) for known, *others in zip(fit, chosen, test, strict=True)]
    return moments, rows, (each * len(parts[0]), each * len(parts[1]), each * len(parts[2]))


def part_rows(
    model: nn.Module, taps: Sequence[Tap], rows: Tensor, step: Step, moments: Sequence[Moments] = ()
) -> list[tuple[Tensor, Tensor]]:
    """Inputs and outputs of every block on some windows."""
    stored: list[list[tuple[Tensor, Tensor]]] = [[] for _ in taps]

    def listen(i: int, flow: Flow) -> None:
        if moments:
            moments[i].add(flow)
        stored[i].append((flow.x, flow.y))

    place = next(model.parameters()).device
    with tapped(taps, listen):
        for batch in batches(rows):
            model(batch.to(place))
            step(len(taps) * len(batch))
    return [(torch.cat(x), torch.cat(y)) for x, y in (zip(*pairs, strict=True) for pairs in stored)]


def block_profile(
    tap: Tap, moments: Moments, rows: BlockRows, affine: Affine, widths: Sequence[int], steps: int, windows: int
) -> BlockProfile:
    """The profile of one block without the losses of the model; `windows` is their number in the test."""
    x, y = rows.test
    center = moments.mean("y").to(y.dtype)
    wrong, whole = (affine(x) - y).double().square().sum(1), (y - center).double().square().sum(1)
    if not bool(whole.any()):
        raise GatelabError(f"{tap.name} has the same output for every token; leave it out: modules=[...] names others")
    sums = [part.view(windows, -1).sum(1).cpu().numpy() for part in (wrong, whole)]
    linear = bootstrap(sums, lambda a, b: a.sum(-1) / b.sum(-1), paired=True, draws=DRAWS)
    typical = float((wrong / whole.clamp_min(1e-300)).median())
    unit, name, width, line = None, "", 0, None
    if tap.block is not None:
        unit, width = unit_of(tap.block), tap.block.width
        name = unit.name
    fits = [fit_block(rows, unit or "swiglu", w, start=tap.block, steps=steps) for w in widths]
    if len(fits) > 2:
        line = slope(np.array([fit.parameters for fit in fits]), np.sqrt([fit.error for fit in fits]))
    return BlockProfile(
        number=tap.number, name=tap.name, unit=name, width=width, d_in=x.shape[1], d_out=y.shape[1],
        statistics=moments.statistics(), linear=linear, typical=typical,
        curve=tuple((fit.width, fit.parameters, fit.error) for fit in fits), slope=line, skipped=None, linearised=None,
    )  # fmt: skip


def layer_rows(
    model: nn.Module,
    layers: Sequence[str | int],
    text: Any,
    *,
    tokenizer: Any = None,
    tokens: int = TOKENS,
    test: int = TEST,
    length: int | None = None,
) -> list[BlockRows]:
    """Inputs and outputs of some blocks of a model for training, validation and test.

    `model`, `text`, `tokenizer`, `tokens`, `test` and `length` are as in `profile`.

    Args:
        layers: indices of layers with a block, or names of modules.

    Returns:
        The rows of each block.
    """
    taps = taps_of(model, [layer_name(model, layer) for layer in layers])
    parts = parts_of(model, text, tokenizer, tokens, test, length)
    with ready(model, parts):
        return collect(model, taps, parts, lambda _: None)[1]


def layer_name(model: nn.Module, layer: str | int) -> str:
    """The name of a layer that is given by its index among those with a block; names unchanged."""
    if isinstance(layer, str):
        return layer
    layers = layers_of(model)
    return layers[whole_number("layer", layer, 0, len(layers) - 1)].name


def layer_problem(model: nn.Module, layer: str | int, text: Any, **options: Any) -> Problem:
    """Inputs and outputs of a block as a problem for any solver.

    Args:
        model: as in `profile`.
        layer: the index of a layer with a block, or the name of a module.
        text: as in `profile`.
        **options: further options of `layer_rows`.

    Returns:
        A problem with the inputs and outputs of the block; its test rows are from other windows.
    """
    (rows,) = layer_rows(model, [layer], text, **options)
    # numpy has no bfloat16.
    x, y = (torch.cat(pair).float().cpu().numpy() for pair in zip((rows.x, rows.y), rows.validation, strict=True))
    x_test, y_test = (part.float().cpu().numpy() for part in rows.test)
    # Windows with the same first token have the same first row.
    known = {row.tobytes() for row in x}
    fresh = np.array([row.tobytes() not in known for row in x_test])
    name = f"{type(model).__name__} {layer_name(model, layer)}"
    return Problem.from_arrays(x, y, test=(x_test[fresh], y_test[fresh]), name=name)


def model_losses(
    model: nn.Module, taps: Sequence[Tap], rows: Tensor, maps: Sequence[Affine | None], step: Step
) -> tuple[list[tuple[Interval, Interval]], float]:
    """For each block, the increase of the model's loss without it and with a linear map instead; and the loss."""
    speaks = texts.is_language_model(model, rows)
    lost: list[tuple[list[Tensor], list[Tensor]]] = [([], []) for _ in taps]
    losses, device = [], next(model.parameters()).device
    for batch in batches(rows):
        batch = batch.to(device)
        with earlier_outputs(taps) as earlier:
            clean = outcome(model, batch, speaks)
        losses.append(clean)
        for tap, affine, outputs, costs in zip(taps, maps, earlier, lost, strict=True):
            # Layers before the block return their earlier outputs.
            known = {module: lambda *_, output=output, **__: output for module, output in outputs.items()}
            for function, part in zip((None, affine), costs, strict=True):
                with replaced(known), block_function(tap, function):
                    part.append(cost(outcome(model, batch, speaks), clean, speaks))
                step(len(batch))
    loss = float(torch.cat(losses).mean()) if speaks else math.nan
    return [(t_interval(torch.cat(a).numpy()), t_interval(torch.cat(b).numpy())) for a, b in lost], loss


def outcome(model: nn.Module, batch: Tensor, speaks: bool) -> Tensor:
    """The loss of each window, or the outputs of a model without logits."""
    if speaks:
        return texts.token_losses(model, batch).mean(1).double().cpu()
    return first_tensor(without_head(model)(batch)).double().cpu()


def cost(changed: Tensor, clean: Tensor, speaks: bool) -> Tensor:
    """The increase of the loss per token in each window; or the relative squared error of each output."""
    if speaks:
        return changed - clean
    wrong = (changed - clean).flatten(1).square().sum(1)
    return wrong / (clean - clean.mean(dim=tuple(range(clean.ndim - 1)))).flatten(1).square().sum(1)


@contextmanager
def block_function(tap: Tap, function: Callable[[Tensor], Tensor] | None) -> Iterator[None]:
    """Replace a block by another function, or by zeros for None, within the block of the context."""
    with captured({"x": tap.entrance}) as values:

        def change(y: Tensor) -> Tensor:
            x = values["x"].pop()
            return torch.zeros_like(y) if function is None else function(x)

        with replaced({tap.exit: changed_output(tap.exit, change)}):
            yield


@contextmanager
def earlier_outputs(taps: Sequence[Tap]) -> Iterator[list[dict[nn.Module, Any]]]:
    """For every block, the outputs of the layers that the model finishes before it calls the block, and calls once."""
    outputs: dict[nn.Module, Any] = {}
    earlier: list[dict[nn.Module, Any] | None] = [None] * len(taps)
    again = set[nn.Module]()

    def hear(key: int | nn.Module, value: Any) -> None:
        if isinstance(key, int):
            if earlier[key] is None:
                earlier[key] = dict(outputs)
            return
        if key in outputs:
            again.add(key)
        outputs[key] = value

    layers = {tap.layer.module: tap.layer.module for tap in taps if tap.layer is not None}
    results: list[dict[nn.Module, Any]] = []
    with captured(dict(enumerate(tap.entrance for tap in taps)), layers, hear):
        yield results
    results += [{key: value for key, value in (known or {}).items() if key not in again} for known in earlier]
