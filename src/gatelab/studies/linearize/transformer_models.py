"""What the study of transformers runs on: text, and models of sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gatelab.data.archives import data_folder
from gatelab.data.text import TextData, text_data
from gatelab.errors import GatelabError
from gatelab.models.pretrained import import_transformers, load_model
from gatelab.models.replace import trace

# ---- text


@dataclass(frozen=True, eq=False)
class Texts:
    """Sentences to calibrate on, others to measure on, and bytes for a model that is trained."""

    calibration: tuple[str, ...]
    measured: tuple[str, ...]
    letters: TextData
    about: str


def texts(quick: bool, calibration: int, measured: int) -> Texts:
    """FineWeb-Edu and Shakespeare out of the folder of data; sentences made of a few words where none is named."""
    if quick:
        return made_up_texts(calibration, measured, "in a quick run")
    if data_folder() is None:
        return made_up_texts(calibration, measured, "since GATELAB_DATA names no folder of data")
    whole = text_data("fineweb-edu", "bytes")
    return Texts(
        sentences_of(whole.train, calibration),
        sentences_of(whole.test, measured),
        text_data("tinyshakespeare", "bytes"),
        "FineWeb-Edu's sample for sentences, Shakespeare for training",
    )


def made_up_texts(calibration: int, measured: int, reason: str) -> Texts:
    """Texts of a small grammar."""
    train, test = made_up(4000, 0), made_up(400, 1)
    letters = [np.frombuffer(" ".join(part).encode(), np.uint8).astype(np.uint16) for part in (train, test)]
    return Texts(
        by_length(train[:calibration]),
        by_length(test[:measured]),
        TextData("made up", letters[0], letters[1], 256),
        f"sentences made up of 30 words, {reason}",
    )


def made_up(count: int, seed: int) -> list[str]:
    """Sentences of a small grammar.

    >>> made_up(1, 0) == made_up(1, 0) != made_up(1, 1)
    True
    """
    draw = np.random.default_rng(seed)
    whose, how, what = ("the", "a", "every", "this", "no"), ("old", "quiet", "green", "broken", "small"), (
        "river", "teacher", "engine", "garden", "letter", "winter", "painter", "number", "window", "horse"
    )  # fmt: skip
    does = ("follows", "forgets", "carries", "explains", "repairs", "counts", "leaves", "paints")
    where = ("", " in the morning", " near the sea", " without a word", " for a friend", " after the war")

    def some() -> str:
        return f"{draw.choice(whose)} {draw.choice(how)} {draw.choice(what)}"

    return [f"{some().capitalize()} {draw.choice(does)} {some()}{draw.choice(where)}." for _ in range(count)]


def sentences_of(tokens: Any, count: int) -> tuple[str, ...]:
    """Sentences of one line and 40 to 300 characters, spread evenly over the text."""
    text = bytes(np.asarray(tokens, np.uint8)).decode(errors="ignore")
    fitting = [s for s in re.split(r"(?<=[.!?])\s+", text) if 40 <= len(s) <= 300 and "\n" not in s]
    if len(fitting) < count:
        raise GatelabError(f"the text has {len(fitting)} sentences of 40 to 300 characters, {count} are needed")
    return by_length([fitting[i] for i in np.linspace(0, len(fitting) - 1, count).round().astype(int)])


def by_length(sentences: Sequence[str]) -> tuple[str, ...]:
    """Neighbours of one length: batches of them have little padding."""
    return tuple(sorted(sentences, key=len))


# ---- models of sentences


@dataclass(frozen=True, eq=False)
class Embedder:
    """A model built as BERT is, and how sentences become its tokens and mask, a pair a batch."""

    name: str
    model: Any
    encode: Callable[[Sequence[str]], list[tuple[Tensor, Tensor]]]

    def finish(self, layer: int, x: Tensor, y: Tensor) -> Tensor:
        """What the layer makes of its block's input and output: the norm of their sum."""
        return self.model.encoder.layer[layer].output.LayerNorm(x + y)


def minilm() -> Embedder:
    """all-MiniLM-L6-v2 out of its package."""
    model, tokenizer = load_model("minilm")

    def encode(sentences: Sequence[str]) -> list[tuple[Tensor, Tensor]]:
        parts = [list(sentences[i : i + 32]) for i in range(0, len(sentences), 32)]
        batches = [tokenizer(p, padding=True, truncation=True, max_length=256, return_tensors="pt") for p in parts]
        return [(b["input_ids"], b["attention_mask"].bool()) for b in batches]

    return Embedder("all-MiniLM-L6-v2", model, encode)


def small_bert(seed: int = 0) -> Embedder:
    """A BERT of 3 layers with random weights that reads bytes: every step of the study, in seconds."""
    transformers = import_transformers()
    config = transformers.BertConfig(
        vocab_size=256, hidden_size=24, num_hidden_layers=3, num_attention_heads=2, intermediate_size=96,
        max_position_embeddings=96, initializer_range=0.3,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.BertModel(config, add_pooling_layer=False).eval()

    def encode(sentences: Sequence[str]) -> list[tuple[Tensor, Tensor]]:
        rows = [torch.tensor(list(s.encode())[:96]) for s in sentences]
        ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        return [(ids, torch.arange(ids.shape[1]) < torch.tensor([len(r) for r in rows])[:, None])]

    return Embedder("a BERT of 3 layers and random weights", model, encode)


@dataclass(frozen=True, eq=False)
class Traced:
    """Tokens of all sentences one after the other: what entered each block, left each layer; `of` is the sentence."""

    inputs: list[Tensor]
    outputs: list[Tensor]
    of: Tensor
    embeddings: Tensor


def trace_sentences(embedder: Embedder, model: nn.Module, sentences: Sequence[str]) -> Traced:
    """The model on the sentences; an embedding is the mean over tokens, of length 1."""
    inputs, outputs, of, before = [], [], [], 0
    for ids, mask in embedder.encode(sentences):
        traced = trace(model, lambda m, ids=ids, mask=mask: m(input_ids=ids, attention_mask=mask.long()))
        inputs.append([x[mask] for x in traced.inputs])
        outputs.append([x[mask] for x in traced.outputs])
        of.append(before + mask.nonzero()[:, 0])
        before += len(ids)
    entered, left = ([torch.cat(parts) for parts in zip(*batches, strict=True)] for batches in (inputs, outputs))
    which = torch.cat(of)
    mean = torch.zeros(before, left[-1].shape[1]).index_add(0, which, left[-1])
    mean /= torch.bincount(which)[:, None]
    return Traced(entered, left, which, functional.normalize(mean.double(), dim=1))
