"""Texts as windows of a model's tokens.

model, tokenizer = load_model("smollm2")           `gatelab.models.pretrained`
rows = windows("book.txt", tokenizer, 256)         (windows, 256) tokens
calibration, test = split(rows, share=0.25)        no window is in both
log_perplexity(model, test)                        nats per token
continued(model, test[:, :8], 256)                 windows that the model generates from these prompts
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gatelab.data.text import TEXTS, decoded, empty, text_content, text_file
from gatelab.data.tokens import text_parts
from gatelab.display import ProgressLike, reporting
from gatelab.errors import GatelabError, whole_number
from gatelab.memory import most_that_fits

LOGITS = 2**28  # bytes of logits per batch
MOST_WRITTEN = 1024  # windows generated together; larger batches are not faster
LONGEST_PATH = 1024  # characters; a longer string is a text


class Parts(NamedTuple):
    """Windows for calibration and for the test."""

    calibration: Tensor
    test: Tensor


def windows(text: Any, tokenizer: Any = None, length: int = 256, *, most: int | None = None) -> Tensor:
    """A text as consecutive windows of tokens; an incomplete last window is dropped.

    Args:
        text: a string; a file as `pathlib.Path` or its path as a string, .npy for token numbers; the name of a text,
            such as "fineweb-edu", or "wikitext-2" for its test text; token numbers in one dimension, or windows of
            them in two; or images (count, channels, height, width), which are returned unchanged.
        tokenizer: a tokenizer of Transformers; None for token numbers.
        length: tokens per window.
        most: the maximal number of windows; None for all. The rest of a long text is not read.

    Returns:
        (windows, length) tokens.

    >>> windows(range(7), length=3)
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    length = whole_number("length", length, 2, of="tokens")
    if most is not None:
        most = whole_number("most", most, 1, of="windows")
    if isinstance(text, str | Path) and str(text).endswith(".npy") and is_file(str(text)):
        try:
            text = np.load(Path(text).expanduser(), allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            message = f"{text} is not an array of numbers ({error}); write it by numpy.save, without objects"
            raise GatelabError(message) from None
    if isinstance(text, str | Path):
        numbers = tokens_of_text(text, tokenizer, None if most is None else most * length)
    else:
        numbers = given_numbers(text)
        if not len(numbers):
            raise GatelabError(f"the text has the shape {tuple(numbers.shape)}; give one window or more")
    if numbers.ndim == 2 and numbers.shape[1] != length:
        raise GatelabError(
            f"the windows have {numbers.shape[1]} tokens, length is {length}; give length={numbers.shape[1]}"
        )
    if numbers.ndim > 1:
        return numbers[:most]
    if len(numbers) < length:
        raise GatelabError(
            f"the text has {len(numbers)} tokens and a window {length}; give a longer text, or check the path of a file"
        )
    return numbers[: len(numbers) // length * length].view(-1, length)[:most]


def window_length(model: Any, text: Any, length: int | None, usual: int) -> int:
    """Tokens per window: `length`, that of given windows, or the usual number if the model's context allows it."""
    if length is not None:
        return whole_number("length", length, 2, of="tokens")
    if getattr(text, "ndim", 1) == 2:
        return text.shape[1]
    config = getattr(model, "config", None)
    longest = getattr(config, "max_position_embeddings", None) or getattr(config, "context", None)
    return min(usual, longest) if isinstance(longest, int) and longest > 1 else usual


def given_numbers(text: Any) -> Tensor:
    """Token numbers or images as a tensor."""
    try:
        numbers = torch.as_tensor(np.asarray(text) if isinstance(text, Sequence | range) else text)
    except (TypeError, ValueError, RuntimeError):
        raise GatelabError(f"the text is a {type(text).__name__}; give a string, a path, tokens or images") from None
    if numbers.is_floating_point() and numbers.ndim == 4:
        return numbers.float()
    if numbers.is_floating_point() or numbers.is_complex() or numbers.dtype == torch.bool or numbers.ndim not in (1, 2):
        raise GatelabError(
            f"the text is {tuple(numbers.shape)} of {numbers.dtype}; give token numbers, windows or images (N, C, H, W)"
        )
    numbers = numbers.long()  # torch has no minimum of uint16
    if numbers.numel() and int(numbers.min()) < 0:
        raise GatelabError(f"a token is {int(numbers.min())}; token numbers begin at 0")
    return numbers


def tokens_of_text(text: str | Path, tokenizer: Any, most: int | None = None) -> Tensor:
    """The tokens of a string, a file or a named text, up to about `most`."""
    if tokenizer is None:
        raise GatelabError("the text is a string and the model has no tokenizer; give token numbers or tokenizer=")
    characters = str(text)
    if isinstance(text, Path) or characters in TEXTS or is_file(characters):
        path = text_file(text, None)
        characters = decoded(text_content(path, str(text)), path)
        if not characters:
            raise empty(path)
    numbers: list[int] = []
    for part in text_parts(characters):
        numbers += tokenizer(part, add_special_tokens=False)["input_ids"]
        if most is not None and len(numbers) >= most:
            break
    return torch.tensor(numbers, dtype=torch.long)


def is_file(text: str) -> bool:
    try:
        return len(text) < LONGEST_PATH and "\n" not in text and Path(text).expanduser().is_file()
    except (OSError, ValueError, RuntimeError):
        return False


def split(rows: Tensor, share: float = 0.25) -> Parts:
    """Split windows into a calibration part and a test part: the last ones, without copies of calibration windows.

    Args:
        rows: windows of tokens, or images.
        share: the share of the windows for the test.

    Returns:
        Calibration and test windows, without common windows.

    >>> split(torch.arange(8).view(4, 2)).test
    tensor([[6, 7]])
    """
    if not 0 < share < 1:
        raise GatelabError(f"share is {share!r}; give the share of the windows for the test, between 0 and 1")
    count = max(1, round(share * len(rows)))
    if len(rows) - count < 1:
        raise GatelabError(f"the text has {len(rows)} window, two are needed; give a longer text or a smaller length")
    calibration, test = rows[:-count], rows[-count:]
    fresh = ~found_in(calibration, test)
    if not bool(fresh.any()):
        raise GatelabError("every test window is in the calibration part too; give a text that does not repeat itself")
    return Parts(calibration, test[fresh])


def found_in(rows: Tensor, others: Tensor) -> Tensor:
    """A mask of the other windows that are among the rows."""
    known = {row.numpy().tobytes() for row in rows.cpu()}
    return torch.tensor([row.numpy().tobytes() in known for row in others.cpu()])


def check_tokens(model: nn.Module, rows: Tensor) -> None:
    """Raise for tokens outside of the vocabulary and for windows longer than the context."""
    config = getattr(model, "config", None)
    vocabulary = getattr(config, "vocab_size", None)
    longest = getattr(config, "max_position_embeddings", None)
    if rows.is_floating_point():
        return
    if vocabulary is not None and int(rows.max()) >= vocabulary:
        raise GatelabError(f"a token is {int(rows.max())}, the model knows {vocabulary}; give tokens of its tokenizer")
    if longest is not None and rows.shape[1] > longest:
        raise GatelabError(f"a window has {rows.shape[1]} tokens and the model reads {longest}; give a smaller length")


@torch.no_grad()
def check_reads(model: nn.Module, rows: Tensor) -> None:
    """Raise for weights that are not finite, and for models that need more arguments than these windows."""
    for name, weights in model.named_parameters():
        if not bool(weights.isfinite().all()):
            raise GatelabError(f"the weights {name} contain NaN or infinity; give a model with finite weights")
    try:
        model(rows[:1].to(next(model.parameters()).device))
    except torch.OutOfMemoryError:
        raise
    except (TypeError, ValueError, IndexError, RuntimeError) as error:
        first = str(error).strip().split("\n")[0]
        raise GatelabError(
            f"{type(model).__name__} cannot be called with these windows alone ({first}); give other windows, or a"
            " part of it that takes them, such as model.encoder"
        ) from error


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Set the model to evaluation mode within the block, and restore the mode of each module."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def without_cache(model: nn.Module) -> Iterator[None]:
    """Disable the cache of keys and values within the block."""
    config: Any = getattr(model, "config", None)
    cached = getattr(config, "use_cache", None)
    try:
        if cached is not None:
            config.use_cache = False
        yield
    finally:
        if cached is not None:
            config.use_cache = cached


def log_perplexity(model: nn.Module, rows: Tensor) -> float:
    """The mean loss of the next token in nats, the logarithm of the perplexity.

    Args:
        model: a language model of Transformers or of gatelab.
        rows: (windows, length) tokens; the first token of a window is not predicted.

    Returns:
        The loss in nats per token.
    """
    return float(token_losses(model, rows).double().mean())


@torch.no_grad()
def token_losses(model: nn.Module, rows: Tensor) -> Tensor:
    """The loss of each token except the first of a window in nats, (windows, length - 1), on the CPU."""
    check_tokens(model, rows)
    device = next(model.parameters()).device
    vocabulary = getattr(getattr(model, "config", None), "vocab_size", None) or 2**16
    losses = []
    for batch in rows.split(max(1, LOGITS // (4 * rows.shape[1] * vocabulary))):
        batch = batch.to(device)
        logits = logits_of(model(batch), model)[:, :-1].flatten(0, 1).float()
        losses.append(functional.cross_entropy(logits, batch[:, 1:].flatten(), reduction="none").cpu())
    return torch.cat(losses).view(len(rows), -1)


@torch.no_grad()
def continued(
    model: Any,
    beginnings: Tensor,
    length: int,
    *,
    temperature: float | Tensor = 1.0,
    seed: int = 0,
    progress: ProgressLike = False,
) -> Tensor:
    """Generate windows from prompts by sampling from the model's predictions.

    Args:
        model: a language model of Transformers.
        beginnings: prompts (windows, tokens) of one or more tokens.
        length: tokens per window, including the prompt.
        temperature: the divisor of the logits, one number or one per window.
        seed: seed of the samples.
        progress: see `gatelab.display`.

    Returns:
        (windows, length) tokens, on the CPU.
    """
    check_tokens(model, beginnings)
    temperatures = torch.as_tensor(temperature, dtype=torch.float32)
    of_windows = temperatures.shape in ((), (1,), (len(beginnings),))
    if not of_windows or not bool(((temperatures > 0) & temperatures.isfinite()).all()):
        raise GatelabError(f"temperature is {temperature!r}; give a positive number, or one per window")
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    at_once = max(1, min(MOST_WRITTEN, most_that_fits(2 * length * state_bytes(model), device)))
    parts = []
    steps, done = -(-len(beginnings) // at_once) * (length - beginnings.shape[1]), 0
    with reporting(progress, "writing") as report:
        divided = temperatures.expand(len(beginnings))[:, None].to(device).split(at_once)
        for rows, divisors in zip(beginnings.to(device).split(at_once), divided, strict=True):
            states, new = None, rows
            for _ in range(length - beginnings.shape[1]):
                result = model(new, past_key_values=states, use_cache=True)
                states = result.past_key_values
                shares = (logits_of(result, model)[:, -1].float() / divisors).softmax(-1)
                new = torch.multinomial(shares, 1, generator=generator)
                rows = torch.cat([rows, new], 1)
                done += 1
                if report:
                    report(done, steps)
            parts.append(rows.cpu())
    return torch.cat(parts)


def state_bytes(model: Any) -> int:
    """Bytes per token in the cache of keys and values of all layers."""
    config = model.config
    heads = config.num_attention_heads
    head_size = getattr(config, "head_dim", None) or config.hidden_size // heads
    shared = getattr(config, "num_key_value_heads", None) or heads
    return 2 * config.num_hidden_layers * shared * head_size * next(model.parameters()).element_size()


@torch.no_grad()
def is_language_model(model: nn.Module, rows: Tensor) -> bool:
    """Whether a model predicts the next token: it maps tokens to logits that do not depend on later tokens."""
    if rows.is_floating_point():
        return False
    batch = rows[:1, : min(16, rows.shape[1])].to(next(model.parameters()).device)
    try:
        logits = logits_of(model(batch), model)
    except GatelabError:
        return False
    if int(rows.max()) >= logits.shape[-1]:
        return False  # a classifier of tokens without a configuration
    other = batch.clone()
    other[0, -1] = (other[0, -1] + 1) % logits.shape[-1]
    changes = (logits_of(model(other), model) - logits)[0].abs()
    return not bool(changes[:-1].max() > 1e-5 * changes[-1].max())


def logits_of(result: Any, model: nn.Module) -> Tensor:
    logits = getattr(result, "logits", result)
    vocabulary = getattr(getattr(model, "config", None), "vocab_size", None)
    is_vector = isinstance(logits, Tensor) and logits.ndim == 3
    if not is_vector or (vocabulary is not None and logits.shape[-1] != vocabulary):
        raise GatelabError(f"{type(model).__name__} has no logits of next tokens; give a language model")
    return logits
