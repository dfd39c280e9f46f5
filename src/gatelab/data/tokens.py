"""Tokenizers: bytes, and byte-pair encodings of the library `tokenizers`, with files such as GPT-2's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gatelab.arrays import Tokens, fingerprint
from gatelab.data.archives import Progress, locate
from gatelab.data.specification import Archive
from gatelab.display import Compact
from gatelab.errors import GatelabError, unknown_name

if TYPE_CHECKING:
    from tokenizers import Tokenizer

END = "<|endoftext|>"
PART = 2**20  # characters per call: the library uses some hundred bytes per token
OPENAI = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/"
GPT2_FILES = tuple(
    Archive("gpt2_bpe", file, OPENAI + file, sha256)
    for file, sha256 in (
        ("encoder.json", "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"),
        ("vocab.bpe", "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"),
    )
)
TOKENIZERS = ("gpt2", "bytes")
MOST = 2**16  # tokens are 16 bits
COPY = "copy GPT-2's encoder.json and vocab.bpe again, both from one place"


class ByteTokenizer:
    """A tokenizer whose tokens are the bytes of the text."""

    vocabulary, end, fingerprint, dtype = 256, None, "bytes, uint8", np.uint8

    def encode(self, text: str) -> Tokens:
        return np.frombuffer(text.encode(), np.uint8)


@dataclass(frozen=True, eq=False)
class BPE(Compact):
    """A byte-level byte-pair encoding: the content of GPT-2's two files.

    Attributes:
        ids: the number of every token except the end of text, written in letters for bytes as in encoder.json.
        merges: pairs of neighbors that become one token, in the order of their rank.
        end: the number of the end of text, or None.
        fingerprint: a hash of the files, empty for a tokenizer without files.

    >>> small = BPE({"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4}, [("a", "b"), ("ab", "c")])
    >>> small.encode("abcab").tolist(), small.decode([4, 3])
    ([4, 3], 'abcab')
    """

    ids: Mapping[str, int]
    merges: Sequence[tuple[str, str]]
    end: int | None = None
    fingerprint: str = ""
    dtype: ClassVar = np.uint16

    @property
    def vocabulary(self) -> int:
        return len(self.ids) + (self.end is not None)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        tokenizers = import_tokenizers()
        ids = dict(self.ids)
        if self.end is not None:
            ids[END] = self.end
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(ids, list(self.merges)))
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        return tokenizer

    def encode(self, text: str) -> Tokens:
        """The tokens of a text; `<|endoftext|>` in it is ordinary text."""
        # Half of a surrogate pair has no UTF-8, and becomes a question mark.
        whole = text.encode("utf-8", errors="replace").decode()
        parts = [np.array(self.tokenizer.encode(part).ids, dtype=np.uint16) for part in text_parts(whole)]
        return np.concatenate([np.empty(0, np.uint16), *parts])

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of the tokens; invalid UTF-8 becomes the replacement character."""
        numbers = [int(t) for t in tokens]
        for t in numbers:
            if not 0 <= t < self.vocabulary:
                raise GatelabError(f"{t} is not a token; give numbers from 0 to {self.vocabulary - 1}")
        return self.tokenizer.decode(numbers, skip_special_tokens=False)


def text_parts(text: str, size: int = PART) -> Iterator[str]:
    """A text in parts of about `size` characters, cut before the space after a word, so that no token is split."""
    start = 0
    while start < len(text):
        end = start + size
        while end < len(text) and (text[end] not in " \n" or text[end - 1].isspace()):
            end += 1
        yield text[start:end]
        start = end


def import_tokenizers() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise GatelabError(
            "byte-pair encoding needs the library tokenizers, which is not installed: pip install 'gatelab[models]', or"
            " give the tokenizer 'bytes'"
        ) from None
    return tokenizers


def read_bpe(encoder: str | Path, vocab: str | Path) -> BPE:
    """The tokenizer of GPT-2's two files: encoder.json (token -> number) and vocab.bpe (the merges in order)."""
    encoder, vocab = Path(encoder), Path(vocab)
    try:
        raw, lines = encoder.read_bytes(), vocab.read_bytes()
        table = json.loads(raw)
        pairs = [line.split(" ") for line in lines.decode().split("\n")[1:] if line]
    except (OSError, ValueError) as error:
        raise GatelabError(f"{encoder} and {vocab} cannot be read as a tokenizer ({error}); {COPY}") from error
    if not isinstance(table, dict) or sorted(table.values()) != list(range(len(table))) or len(table) > MOST:
        raise GatelabError(f"{encoder} does not number its tokens 0, 1, 2, ... up to 65535; {COPY}")
    end = table.pop(END, None)
    alphabet = import_tokenizers().pre_tokenizers.ByteLevel.alphabet()
    # The library would neither name the missing token of a merge nor report missing bytes.
    try:
        merges = [(left, right) for left, right in pairs]
        for token in (*alphabet, *(token for left, right in merges for token in (left, right, left + right))):
            table[token]
    except (KeyError, ValueError) as error:
        raise GatelabError(f"{encoder} and {vocab} do not belong together ({error!r}); {COPY}") from error
    return BPE(table, merges, end, fingerprint([raw, lines], 12))


def gpt2_tokenizer(progress: Progress | None = None) -> BPE:
    """GPT-2's tokenizer, from `GATELAB_DATA` (gpt2_bpe/encoder.json, gpt2_bpe/vocab.bpe), the cache or OpenAI."""
    encoder, vocab = (locate(archive, "GPT-2's tokenizer", progress) for archive in GPT2_FILES)
    return read_bpe(encoder, vocab)


def find_tokenizer(tokenizer: str | BPE, progress: Progress | None) -> BPE | ByteTokenizer:
    if isinstance(tokenizer, BPE):
        return tokenizer
    if tokenizer not in TOKENIZERS:
        raise unknown_name("tokenizer", str(tokenizer), TOKENIZERS)
    return ByteTokenizer() if tokenizer == "bytes" else gpt2_tokenizer(progress)
