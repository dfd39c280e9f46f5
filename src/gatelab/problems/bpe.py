"""GPT-2's byte-level byte-pair encoding, from its files encoder.json and vocab.bpe.

Text is cut into words (a space in front belongs to the word), each word into its bytes, and neighbours are merged in
the order of the list of merges until none of the list is left. Words that were seen are remembered: text of a natural
language is encoded at some megabytes a second.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import re
import unicodedata
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gatelab.display import one_line
from gatelab.errors import GatelabError

END = "<|endoftext|>"
# The white space of Unicode. Python's own \s has four control characters more, which GPT-2 takes for symbols.
_SPACE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_REMEMBERED = 2**20


@dataclass(frozen=True, eq=False)
class BPE:
    """A vocabulary of byte strings and the order of their merges.

    >>> pairs = {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4}
    >>> small = BPE({k.encode(): i for k, i in pairs.items()}, {(0, 1): (0, 3), (3, 2): (1, 4)})
    >>> small.encode("abcab").tolist(), small.decode([4, 3])
    ([4, 3], 'abcab')
    """

    ids: dict[bytes, int]
    merges: dict[tuple[int, int], tuple[int, int]]  # two neighbours -> rank of the merge, what they become
    end: int | None = None
    fingerprint: str = ""
    _seen: dict[str, tuple[int, ...]] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        return one_line(self, f"{self.vocabulary} tokens, {len(self.merges)} merges")

    @property
    def vocabulary(self) -> int:
        return len(self.ids) + (self.end is not None)

    def encode(self, text: str) -> NDArray[np.uint16]:
        """The tokens of a text; `<|endoftext|>` in it is text like any other."""
        seen, out = self._seen, array("H")
        for word in _words().findall(text):
            tokens = seen.get(word)
            if tokens is None:
                tokens = self._word(word)
                if len(seen) < _REMEMBERED:
                    seen[word] = tokens
            out.extend(tokens)
        return np.frombuffer(out, dtype=np.uint16) if out else np.empty(0, np.uint16)

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of the tokens; bytes that are no UTF-8 become the replacement character."""
        names = self._names()
        given = [int(t) for t in tokens]
        for t in given:
            if not 0 <= t < len(names):
                raise GatelabError(f"{t} is no token; give numbers from 0 to {len(names) - 1}")
        return b"".join(names[t] for t in given).decode("utf-8", errors="replace")

    def _names(self) -> list[bytes]:
        names = [b""] * self.vocabulary
        for name, i in self.ids.items():
            names[i] = name
        if self.end is not None:
            names[self.end] = END.encode()
        return names

    def _word(self, word: str) -> tuple[int, ...]:
        raw = word.encode("utf-8", errors="replace")  # a lone half of a surrogate pair has no UTF-8
        return _merged([self.ids[raw[i : i + 1]] for i in range(len(raw))], self.merges)


def _merged(symbols: list[int], merges: dict[tuple[int, int], tuple[int, int]]) -> tuple[int, ...]:
    """The symbols after all merges, best rank first and leftmost among equals, in n log n.

    Symbols form a linked list, candidates a heap; one that no longer matches what stands there is passed over.
    """
    n = len(symbols)
    following = list(range(1, n + 1))
    before = list(range(-1, n - 1))
    heap: list[tuple[int, int, int, int]] = []

    def offer(i: int) -> None:
        j = following[i]
        if j < n and (found := merges.get((symbols[i], symbols[j]))):
            heapq.heappush(heap, (found[0], i, symbols[i], symbols[j]))

    for i in range(n - 1):
        offer(i)
    while heap:
        _, i, left, right = heapq.heappop(heap)
        j = following[i]
        if j >= n or symbols[i] != left or symbols[j] != right:
            continue
        symbols[i] = merges[left, right][1]
        symbols[j] = -1
        following[i] = following[j]
        if following[j] < n:
            before[following[j]] = i
        offer(i)
        if before[i] >= 0:
            offer(before[i])
    return tuple(s for s in symbols if s >= 0)


def read_bpe(encoder: str | Path, vocab: str | Path) -> BPE:
    """The tokenizer of GPT-2's two files: encoder.json (token -> number) and vocab.bpe (the merges in order)."""
    encoder, vocab = Path(encoder), Path(vocab)
    try:
        raw, lines = encoder.read_bytes(), vocab.read_bytes()
        table = json.loads(raw)
        pairs = [line.split(" ") for line in lines.decode().split("\n")[1:] if line]
    except (OSError, ValueError) as error:
        raise GatelabError(
            f"{encoder} and {vocab} cannot be read as a tokenizer ({error}); copy GPT-2's encoder.json and vocab.bpe"
            " again"
        ) from error
    whole = "copy GPT-2's encoder.json and vocab.bpe again, both from one place"
    if not isinstance(table, dict) or sorted(table.values()) != list(range(len(table))) or len(table) > 2**16:
        raise GatelabError(f"{encoder} does not number its tokens 0, 1, 2, ... up to 65535; {whole}")
    letters = {letter: byte for byte, letter in enumerate(_letters())}
    end = table.pop(END, None)
    try:
        ids = {bytes(letters[letter] for letter in token): i for token, i in table.items()}
        merges = {}
        for rank, (left, right) in enumerate(pairs):
            merges[table[left], table[right]] = rank, table[left + right]
        for byte in range(256):
            ids[bytes([byte])]
    except (KeyError, ValueError) as error:
        raise GatelabError(f"{encoder} and {vocab} do not belong together ({error!r}); {whole}") from error
    return BPE(ids, merges, end, hashlib.sha256(raw + lines).hexdigest()[:12])


@cache
def _letters() -> Sequence[str]:
    """The letter that stands for each byte in the files: itself where it can be seen, else one from 256 on."""
    seen = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = iter(range(256, 512))
    return [chr(b if b in seen else next(hidden)) for b in range(256)]


@cache
def _words() -> re.Pattern[str]:
    """GPT-2's pattern of words, the classes of letters and numbers written out since `re` has no names for them."""
    letter, number = _classes()
    other = rf"[^{_SPACE}{letter}{number}]"
    return re.compile(
        rf"'(?:s|t|re|ve|m|ll|d)| ?[{letter}]+| ?[{number}]+| ?{other}+|[{_SPACE}]+(?![^{_SPACE}])|[{_SPACE}]+"
    )


def _classes() -> tuple[str, str]:
    """The letters and the numbers of Unicode as ranges; beyond its fourth plane there are none."""
    kinds = {"L": "", "N": ""}
    start = 0
    for kind, run in groupby(range(0x40000), lambda code: unicodedata.category(chr(code))[0]):
        length = sum(1 for _ in run)
        if kind in kinds:
            kinds[kind] += re.escape(chr(start)) + "-" + re.escape(chr(start + length - 1))
        start += length
    return kinds["L"], kinds["N"]
