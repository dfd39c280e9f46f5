"""Models with their tokenizers out of a folder: those of Transformers, and llama2.c's binary files. Nothing is fetched.

llama2.c (Karpathy, MIT) writes seven numbers, then all weights as float32: embedding, then layer by layer of each kind
the norms, queries, keys, values, outputs, norms, gate, down, up. Its rotary positions turn neighbours, those of
Transformers turn halves: rows of queries and keys are put in another order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gatelab.display import one_line
from gatelab.errors import GatelabError

_HEADER = struct.Struct("7i")
_BEGIN = 1  # the token before every text


@dataclass(frozen=True, eq=False)
class Pretrained:
    """A model with what makes tokens of text.

    Attributes:
        name: that of its folder.
        model: the module, ready to compute.
        encode: text to token ids (T,).
        context: the most tokens that it reads at once.
        language: whether it predicts the next token; else it gives a vector for each.
    """

    name: str
    model: Any
    encode: Callable[[str], Tensor]
    context: int
    language: bool

    def __repr__(self) -> str:
        return one_line(self, f"{self.name}, context {self.context}")

    def rows(self, text: str, most: int = 256) -> list[Tensor]:
        """Text as rows of tokens: of a language model windows of one length, else a row for each line.

        Args:
            text: the text; lines of fewer than three tokens are left out.
            most: the most tokens of a row.

        Returns:
            Token ids (T,), a tensor a row.
        """
        length = min(most, self.context)
        if not self.language:
            rows = [self.encode(line)[:length] for line in text.splitlines() if line.strip()]
            return [row for row in rows if len(row) > 2]
        tokens = self.encode(text)
        return [tokens[i : i + length] for i in range(0, len(tokens) - length + 1, length)]


def read_pretrained(path: str | Path) -> Pretrained:
    """The model of a folder.

    Args:
        path: a folder of Transformers (config.json, weights, tokenizer), or one with a model of llama2.c and its
            tokenizer (*.bin, tok*.bin).

    Returns:
        A `Pretrained`.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise GatelabError(f"there is no folder {folder}; give one with a model of Transformers or of llama2.c")
    if (folder / "config.json").is_file():
        return _of_transformers(folder)
    tokenizers = sorted(folder.glob("tok*.bin"))
    models = sorted(set(folder.glob("*.bin")) - set(tokenizers))
    if len(models) != 1 or len(tokenizers) != 1:
        raise GatelabError(
            f"{folder} has no config.json, {len(models)} files *.bin and {len(tokenizers)} tok*.bin; give a folder of "
            "Transformers, or one with a model of llama2.c and its tokenizer"
        )
    model = read_llama2c(models[0])
    pieces = LlamaPieces(tokenizers[0], model.config.vocab_size)
    return Pretrained(folder.name, model, pieces, model.config.max_position_embeddings, True)


def _of_transformers(folder: Path) -> Pretrained:
    transformers = transformers_package()
    transformers.utils.logging.disable_progress_bar()
    try:
        config = transformers.AutoConfig.from_pretrained(str(folder), local_files_only=True)
        language = any(name.endswith(("LMHeadModel", "ForCausalLM")) for name in config.architectures or ())
        kind = transformers.AutoModel
        if language:
            kind = transformers.AutoModelForCausalLM
        model = kind.from_pretrained(str(folder), local_files_only=True).float().eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError) as error:
        raise GatelabError(f"Transformers cannot read {folder}: {' '.join(str(error).split())[:300]}") from None

    def encode(text: str) -> Tensor:
        return torch.tensor(tokenizer(text, truncation=not language)["input_ids"])

    return Pretrained(folder.name, model, encode, int(getattr(config, "max_position_embeddings", 512)), language)


def transformers_package() -> Any:
    """Transformers, or an error that says how to install it."""
    try:
        return import_module("transformers")
    except ImportError:
        raise GatelabError("Transformers is not installed: pip install 'gatelab[models]'") from None


def read_llama2c(path: str | Path) -> Any:
    """The model of a file that llama2.c wrote, as Transformers' `LlamaForCausalLM`.

    Args:
        path: the file.

    Returns:
        The model, ready to compute.
    """
    content = Path(path).read_bytes()
    if len(content) < _HEADER.size:
        raise GatelabError(f"{path} has {len(content)} bytes, less than a header of llama2.c; give its model file")
    d, width, layers, heads, groups, words, context = _HEADER.unpack_from(content)
    numbers = np.frombuffer(content, np.float32, offset=_HEADER.size)
    size = d // max(heads, 1)
    needed = abs(words) * d + layers * (2 * d + 2 * d * d + 2 * groups * size * d + 3 * d * width) + d
    if min(d, width, layers, heads, groups, context) < 1 or words < 1 or len(numbers) < needed:
        raise GatelabError(
            f"{path} has {len(numbers)} numbers and its header asks for {needed}; give a model of llama2.c whose "
            "embedding is also its head"
        )
    place = 0

    def take(*shape: int) -> Tensor:
        nonlocal place
        count = int(np.prod(shape))
        part = torch.from_numpy(numbers[place : place + count].reshape(shape).copy())
        place += count
        return part

    def halves(weights: Tensor) -> Tensor:
        """Rows of each head: those that neighbours turn become halves."""
        return weights.unflatten(1, (-1, size // 2, 2)).transpose(2, 3).reshape(weights.shape)

    named = {"model.embed_tokens.weight": take(words, d)}
    stacks = {"input_layernorm": take(layers, d), "self_attn.q_proj": halves(take(layers, d, d))}
    stacks["self_attn.k_proj"] = halves(take(layers, groups * size, d))
    stacks |= {"self_attn.v_proj": take(layers, groups * size, d), "self_attn.o_proj": take(layers, d, d)}
    stacks |= {"post_attention_layernorm": take(layers, d), "mlp.gate_proj": take(layers, width, d)}
    stacks |= {"mlp.down_proj": take(layers, d, width), "mlp.up_proj": take(layers, width, d)}
    named["model.norm.weight"] = take(d)
    for name, stack in stacks.items():
        named |= {f"model.layers.{i}.{name}.weight": stack[i] for i in range(layers)}
    transformers = transformers_package()
    config = transformers.LlamaConfig(
        vocab_size=words, hidden_size=d, intermediate_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=groups, max_position_embeddings=context, rms_norm_eps=1e-5, tie_word_embeddings=True,
        bos_token_id=_BEGIN, eos_token_id=2, pad_token_id=None,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    missing, unexpected = model.load_state_dict(named, strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        raise GatelabError(f"Transformers' Llama has other weights than llama2.c's: {missing}, {unexpected}")
    model.tie_weights()
    return model.eval()


class LlamaPieces:
    """llama2.c's tokenizer: characters, or their bytes; then the best pair is merged, again and again."""

    def __init__(self, path: str | Path, count: int) -> None:
        content, place = Path(path).read_bytes(), 4
        self.pieces: list[bytes] = []
        self.scores: list[float] = []
        for _ in range(count):
            score, length = struct.unpack_from("fi", content, place)
            self.pieces.append(content[place + 8 : place + 8 + length])
            self.scores.append(score)
            place += 8 + length
        self.ids = {piece: i for i, piece in enumerate(self.pieces)}

    def __call__(self, text: str) -> Tensor:
        """Text to token ids (T,), the token of the beginning first."""
        ids: list[int] = []
        for letter in " " + text:
            known = self.ids.get(letter.encode())
            if known is None:
                ids += [byte + 3 for byte in letter.encode()]
            else:
                ids.append(known)
        while True:
            pairs = [self.ids.get(self.pieces[a] + self.pieces[b]) for a, b in pairwise(ids)]
            known = [(self.scores[new], -i) for i, new in enumerate(pairs) if new is not None]
            if not known:
                return torch.tensor([_BEGIN, *ids])
            i = -max(known)[1]
            new = pairs[i]
            assert new is not None
            ids[i : i + 2] = [new]

    def text(self, ids: Sequence[int]) -> str:
        """The text of token ids."""
        return b"".join(self.pieces[i] for i in ids if i > 2).decode(errors="replace").removeprefix(" ")
