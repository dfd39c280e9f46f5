"""What the study of transformers runs on: text, models of sentences, and a small GPT that is trained from scratch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gatelab.arrays import Array
from gatelab.data.archives import data_folder
from gatelab.data.text import TextData, text_data
from gatelab.errors import GatelabError
from gatelab.feedforward import Unit
from gatelab.models.pretrained import import_transformers, load_model
from gatelab.models.replace import trace
from gatelab.statistics import LEVEL, t_interval
from gatelab.train import History, recipe, train_many

SMALL_BERT = "a BERT of 3 layers and random weights"
Size = Mapping[str, int]  # how long and how wide the small GPT is trained
FULL: Size = {"steps": 250, "batch": 8, "context": 32, "d_model": 64, "width": 192, "seeds": 3, "test": 64}
QUICK: Size = {"steps": 24, "batch": 8, "context": 16, "d_model": 16, "width": 32, "seeds": 2, "test": 16}


# ---- text


class Texts(NamedTuple):
    """Sentences to calibrate on, others to measure on, and bytes for a model that is trained."""

    calibration: list[str]
    measured: list[str]
    letters: TextData
    about: str


def texts(quick: bool, calibration: int, measured: int) -> Texts:
    """FineWeb-Edu and Shakespeare out of the folder of data; sentences made of a few words where none is named."""
    if quick or data_folder() is None:
        reason = "in a quick run" if quick else "since GATELAB_DATA names no folder of data"
        parts = made_up(4000, 0), made_up(400, 1)
        letters = [np.frombuffer(" ".join(part).encode(), np.uint8).astype(np.uint16) for part in parts]
        chosen = [sorted(part[:count], key=len) for part, count in zip(parts, (calibration, measured), strict=True)]
        data = TextData("made up", letters[0], letters[1], 256)
        return Texts(chosen[0], chosen[1], data, f"sentences made up of 30 words, {reason}")
    whole = text_data("fineweb-edu", "bytes")
    return Texts(
        sentences_of(whole.train, calibration),
        sentences_of(whole.test, measured),
        text_data("tinyshakespeare", "bytes"),
        "FineWeb-Edu's sample for sentences, Shakespeare for training",
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


def sentences_of(tokens: Any, count: int) -> list[str]:
    """Sentences of one line and 40 to 300 characters, spread evenly over the text; by length, for little padding."""
    text = bytes(np.asarray(tokens, np.uint8)).decode(errors="ignore")
    fitting = [s for s in re.split(r"(?<=[.!?])\s+", text) if 40 <= len(s) <= 300 and "\n" not in s]
    if len(fitting) < count:
        raise GatelabError(f"the text has {len(fitting)} sentences of 40 to 300 characters, {count} are needed")
    return sorted((fitting[i] for i in np.linspace(0, len(fitting) - 1, count).round().astype(int)), key=len)


# ---- models of sentences


class Traced(NamedTuple):
    """Tokens of all sentences one after the other: what entered each block, left each layer; `of` is the sentence."""

    inputs: list[Tensor]
    outputs: list[Tensor]
    of: Tensor
    embeddings: Tensor


@dataclass(frozen=True, eq=False)
class Embedder:
    """A model built as BERT is, and how sentences become its tokens and mask, a pair per batch."""

    name: str
    model: Any
    encode: Callable[[Sequence[str]], list[tuple[Tensor, Tensor]]]

    def finish(self, layer: int, x: Tensor, y: Tensor) -> Tensor:
        """What the layer makes of its block's input and output: the norm of their sum."""
        return self.model.encoder.layer[layer].output.LayerNorm(x + y)

    def trace(self, model: nn.Module, sentences: Sequence[str]) -> Traced:
        """The model, or a changed copy, on sentences; an embedding is the mean over tokens, of length 1."""
        inputs, outputs, of, before = [], [], [], 0
        for ids, mask in self.encode(sentences):
            flow = trace(model, lambda m, ids=ids, mask=mask: m(input_ids=ids, attention_mask=mask.long()))
            inputs.append([x[mask] for x in flow.inputs])
            outputs.append([x[mask] for x in flow.outputs])
            of.append(before + mask.nonzero()[:, 0])
            before += len(ids)
        entered, left = ([torch.cat(parts) for parts in zip(*batches, strict=True)] for batches in (inputs, outputs))
        which = torch.cat(of)
        mean = torch.zeros(before, left[-1].shape[1]).index_add(0, which, left[-1])
        mean /= torch.bincount(which)[:, None]
        return Traced(entered, left, which, functional.normalize(mean.double(), dim=1))


def minilm() -> Embedder:
    """all-MiniLM-L6-v2 out of its package."""
    model, tokenizer = load_model("minilm")

    def encode(sentences: Sequence[str]) -> list[tuple[Tensor, Tensor]]:
        parts = [list(sentences[i : i + 32]) for i in range(0, len(sentences), 32)]
        batches = [tokenizer(p, padding=True, truncation=True, max_length=256, return_tensors="pt") for p in parts]
        return [(b["input_ids"], b["attention_mask"].bool()) for b in batches]

    return Embedder("all-MiniLM-L6-v2", model, encode)


def seeded(make: Callable[[], Any]) -> Any:
    """A model with random weights, the same at every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make().eval()


def small_bert() -> Embedder:
    """A BERT with random weights that reads bytes: every step of the study, in seconds."""
    transformers = import_transformers()
    config = transformers.BertConfig(
        vocab_size=256, hidden_size=24, num_hidden_layers=3, num_attention_heads=2, intermediate_size=96,
        max_position_embeddings=96, initializer_range=0.3,
    )  # fmt: skip
    model = seeded(lambda: transformers.BertModel(config, add_pooling_layer=False))

    def encode(sentences: Sequence[str]) -> list[tuple[Tensor, Tensor]]:
        rows = [torch.tensor(list(s.encode())[:96]) for s in sentences]
        ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        return [(ids, torch.arange(ids.shape[1]) < torch.tensor([len(r) for r in rows])[:, None])]

    return Embedder(SMALL_BERT, model, encode)


# ---- a small GPT


def train(size: Size, data: TextData, unit: Unit | str, folder: str | None = None) -> tuple[History, ...]:
    """A GPT with that unit, a history per seed, all from the same weights on the same batches; models into a folder."""
    options = {**{name: size[name] for name in ("context", "d_model", "width")}, "heads": 2}
    first = recipe(
        "gpt2", unit, "letters", size="tiny", options=options, steps=size["steps"], batch=size["batch"],
        lr=2e-3, evaluations=12, test_size=size["test"], tokenizer="bytes", precision="float32",
    )  # fmt: skip
    recipes = [first.with_seed(seed) for seed in range(size["seeds"])]
    return train_many(recipes, data=data, folder=folder, device="cpu")


def training_rows(runs: Mapping[str, Sequence[History]]) -> list[dict[str, Any]]:
    """Ends of the curves: test loss, the difference to GELU of the same seed with an interval, and steps needed.

    The intervals hold together with 95 % (Bonferroni): one of many functions is below GELU at random soon enough.
    `steps` is how long a function takes to the loss that GELU of the same seed has half-way, over that half.
    """
    level = 1 - (1 - LEVEL) / (len(runs) - 1)
    plain, rows = runs["gelu"], []
    half = float(plain[0].steps[-1]) / 2
    targets = [float(np.interp(half, h.steps, h.test)) for h in plain]
    for name, histories in runs.items():
        # A run that diverged has no end.
        ends = np.array([h.test[-1] if h.diverged is None else np.nan for h in histories])
        away = t_interval(ends - [h.test[-1] for h in plain], level)
        times = [first_step(h.steps, h.test, target) / half for h, target in zip(histories, targets, strict=True)]
        rows.append(
            {
                "activation": name,
                "seeds": len(ends),
                "diverged": sum(h.diverged is not None for h in histories),
                "test loss": float(ends.mean()),
                "less gelu": away.value,
                "less gelu low": away.low,
                "less gelu high": away.high,
                "steps": float(np.mean(times)),
            }
        )
    return rows


def first_step(steps: Any, loss: Array, level: float) -> float:
    """The step, between two entries by a line, at which the loss first is at the level; infinite if never.

    >>> first_step(np.array([0.0, 10.0]), np.array([3.0, 1.0]), 2.0)
    5.0
    """
    below = np.flatnonzero(loss <= level)
    if not len(below):
        return np.inf
    i = below[0]
    if i == 0:
        return float(steps[0])
    return float(np.interp(level, loss[[i, i - 1]], steps[[i, i - 1]]))
