"""GPT-2's byte-level byte-pair encoding, from its files encoder.json and vocab.bpe.

Text is cut into words (a space in front belongs to the word), each word into its bytes, and neighbours are merged in
the order of the list of merges until none of the list is left. Words that were seen are remembered: text of a natural
language is encoded at some megabytes a second.

Text as tokens: FineWeb-Edu's sample, Shakespeare, or any file, encoded by GPT-2's tokenizer or byte by byte.

Tokens are uint16 in memory; batches are functions of the step. What was encoded once is kept in the cache, under the
hash of the text and of the tokenizer, and mapped from there.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import re
import unicodedata
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from http.client import HTTPException
from itertools import groupby
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gatelab.arrays import Tokens
from gatelab.data.archives import (
    Archive,
    Progress,
    RangeFile,
    cache_folder,
    content,
    fetched,
    first_file,
    missing,
    places,
)
from gatelab.data.batches import OFFSETS, stream
from gatelab.display import one_line, shorten
from gatelab.errors import GatelabError, unknown_name
from gatelab.files import write_whole

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


_OPENAI = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/"
GPT2_FILES = tuple(
    Archive("gpt2_bpe", file, _OPENAI + file, sha256, size)
    for file, sha256, size in (
        ("encoder.json", "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783", 1042301),
        ("vocab.bpe", "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5", 456318),
    )
)
SHAKESPEARE = Archive(
    "text",
    "tinyshakespeare.txt",
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    1115394,
)
# The first million characters of sample-10BT, its documents one after the other; of the 2 GB file at that address only
# the parts that hold them are transferred.
FINEWEB = Archive(
    "text",
    "fineweb_edu_sample.txt",
    "https://huggingface.co/datasets/HuggingFaceFW/fineweb-edu/resolve/main/sample/10BT/000_00000.parquet",
    "898138edfad3ff17d91697ee8c758d64b79356720c427accddbbdf6612bb5a6e",
    1004029,
)
SAMPLE = 10**6
TEXTS = {"fineweb-edu": FINEWEB, "tinyshakespeare": SHAKESPEARE}
TOKENIZERS = ("gpt2", "bytes")


@dataclass(frozen=True, eq=False)
class TextData:
    """Training and test tokens of one text, the test tokens its end, and how many tokens there may be.

    >>> data = TextData("abc", np.arange(90, dtype=np.uint16), np.arange(90, 100, dtype=np.uint16), 256)
    >>> x, y = data.batch(step=0, size=2, context=8)
    >>> x.shape, bool((y == x + 1).all())
    (torch.Size([2, 8]), True)
    """

    name: str
    train: Tokens
    test: Tokens
    vocabulary: int
    description: str = ""

    def __repr__(self) -> str:
        return one_line(
            self,
            f"{shorten(self.name)}: {len(self.train)} training and {len(self.test)} test tokens of {self.vocabulary}",
        )

    def batch(self, step: int, size: int, context: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Windows of the training tokens, (size, context), from anywhere; and the token that follows each of theirs."""
        last = self._windows(self.train, context, "training")
        starts = torch.randint(last, (_positive(size, "size"),), generator=stream(seed, OFFSETS, step)).numpy()
        return _pair(self.train[starts[:, None] + np.arange(context + 1)])

    def batches(self, part: str, size: int, context: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All of "train" or "test" in windows that do not overlap; the tokens after the last whole one are left out."""
        if part not in ("train", "test"):
            raise unknown_name("part", part, ("train", "test"))
        tokens = self.train if part == "train" else self.test
        starts = np.arange(0, self._windows(tokens, context, part), context)
        for i in range(0, len(starts), _positive(size, "size")):
            yield _pair(tokens[starts[i : i + size, None] + np.arange(context + 1)])

    def _windows(self, tokens: Tokens, context: int, part: str) -> int:
        count = len(tokens) - _positive(context, "context")
        if count < 1:
            raise GatelabError(
                f"{self.name} has {len(tokens)} {part} tokens, fewer than a context of {context} and the token after"
                " it; give a longer text or a smaller context"
            )
        return count


def text_data(
    source: str | Path = "fineweb-edu",
    tokenizer: str | BPE = "gpt2",
    *,
    test_fraction: float = 0.1,
    progress: Progress | None = None,
) -> TextData:
    """The tokens of "fineweb-edu", of "tinyshakespeare", or of a file: text, gzipped text, or Parquet.

    A Parquet file, such as one of FineWeb-Edu's own, has its documents in the column "text"; each is followed by the
    tokenizer's end of text. `tokenizer` is "gpt2", "bytes" (256 tokens, no file needed) or a `BPE`.
    """
    if not (isinstance(test_fraction, Real) and 0 < test_fraction < 1):
        raise GatelabError(f"test_fraction is {test_fraction!r}; give a number between 0 and 1, such as 0.1")
    path = _found(source, progress)
    encoder = _Bytes() if tokenizer == "bytes" else tokenizer
    if isinstance(encoder, str):
        if encoder != "gpt2":
            raise unknown_name("tokenizer", encoder, TOKENIZERS)
        encoder = gpt2_tokenizer(progress)
    tokens = _tokens(path, encoder)
    n_test = round(test_fraction * len(tokens))
    if min(n_test, len(tokens) - n_test) < 2:
        raise GatelabError(f"{path} has {len(tokens)} tokens; give a text of which both parts have 2 or more")
    train, test = tokens[: len(tokens) - n_test], tokens[len(tokens) - n_test :]
    name = str(source) if source in TEXTS else path.name
    description = (
        f"{name}: {len(train)} training tokens, {len(test)} test tokens of a vocabulary of {encoder.vocabulary}"
    )
    return TextData(name, train, test, encoder.vocabulary, description)


def gpt2_tokenizer(progress: Progress | None = None) -> BPE:
    """GPT-2's tokenizer, from `GATELAB_DATA` (gpt2_bpe/encoder.json, gpt2_bpe/vocab.bpe), the cache or OpenAI."""
    folders = places("gpt2_bpe")
    paths = []
    for archive in GPT2_FILES:
        path = fetched(archive, progress) if folders is None else first_file(folders, [archive.file])
        if path is None:
            raise missing("GPT-2's tokenizer", (f / archive.file for f in folders or ()), archive.url)
        paths.append(path)
    return read_bpe(*paths)


class _Bytes:
    """Each byte of the text is a token."""

    vocabulary, end, fingerprint = 256, None, "bytes"

    def encode(self, text: str) -> Tokens:
        return np.frombuffer(text.encode(), np.uint8).astype(np.uint16)


def _found(source: str | Path, progress: Progress | None) -> Path:
    if source in TEXTS:
        archive = TEXTS[str(source)]
        folders = places(archive.folder)
        if folders is not None:
            path = first_file(folders, [archive.file])
            if path is None:
                raise missing(str(source), (folder / archive.file for folder in folders), archive.url)
            return path
        return _fineweb(archive) if archive is FINEWEB else fetched(archive, progress)
    path = Path(source).expanduser()
    if not path.is_file():
        raise GatelabError(f"there is no file {path}; give one, or one of {', '.join(map(repr, TEXTS))}")
    return path


def _fineweb(archive: Archive) -> Path:
    """The sample in the cache; made of the first documents of the official file if it is not there."""
    cached = cache_folder() / archive.folder / archive.file
    if cached.is_file() and hashlib.sha256(cached.read_bytes()).hexdigest() == archive.sha256:
        return cached
    way_out = f"give a file of your own, or put {archive.file} into a folder's text/ and set GATELAB_DATA to that"
    try:
        with RangeFile(archive.url) as remote:
            parts, length = [], 0
            for document in _documents(remote, archive.url):
                parts.append(document)
                length += len(document)
                if length >= SAMPLE:
                    break
    except (OSError, HTTPException) as error:
        raise GatelabError(f"fineweb-edu cannot be downloaded from {archive.url} ({error}); {way_out}") from error
    sample = "".join(parts)[:SAMPLE].encode()
    found = hashlib.sha256(sample).hexdigest()
    if found != archive.sha256:
        raise GatelabError(
            f"the documents at {archive.url} are not those of the sample: sha256 {found} instead of {archive.sha256};"
            f" {way_out}"
        )
    return write_whole(cached, sample)


def _documents(file: Any, name: object) -> Iterator[str]:
    """The column "text" of a Parquet file, a batch of rows at a time."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise GatelabError(
            f"{name} needs pyarrow, which is not installed: pip install 'gatelab[parquet]', or give a text file"
        ) from None
    try:
        opened = pq.ParquetFile(file)
        if "text" not in opened.schema_arrow.names:
            raise GatelabError(f"{name} has no column 'text'; it has {', '.join(opened.schema_arrow.names)}")
        for group in range(opened.num_row_groups):  # one at a time: of a file on a server no more is wanted
            for rows in opened.iter_batches(batch_size=256, row_groups=[group], columns=["text"]):
                for document in rows.column(0).to_pylist():
                    yield document or ""
    except pa.ArrowException as error:
        raise GatelabError(f"{name} is not a whole Parquet file ({error}); copy it again") from error


def _tokens(path: Path, encoder: BPE | _Bytes) -> Tokens:
    """The tokens of a file, out of the cache if they are there."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    # The kind of file is a part of what is hashed: documents of one kind end with a token, texts do not.
    kind = "parquet" if path.suffix == ".parquet" else "text"
    known = hashlib.sha256(f"{kind} {digest} {encoder.fingerprint}".encode()).hexdigest()
    cached = cache_folder() / "tokens" / f"{known[:24]}.npy"
    # A tokenizer that was made by hand has no fingerprint, so nothing is known of what it would have made.
    if not encoder.fingerprint:
        return _encoded(path, encoder)
    if not cached.is_file():
        tokens = _encoded(path, encoder)

        def save(part: Path) -> None:
            with part.open("wb") as out:
                np.save(out, tokens, allow_pickle=False)

        write_whole(cached, save)
    return np.load(cached, mmap_mode="r", allow_pickle=False)


def _encoded(path: Path, encoder: BPE | _Bytes) -> Tokens:
    if path.suffix == ".parquet":
        end = np.array([] if encoder.end is None else [encoder.end], np.uint16)
        parts = [part for document in _documents(path, path) for part in (encoder.encode(document), end)]
        return np.concatenate(parts) if parts else np.empty(0, np.uint16)
    try:
        return encoder.encode(content(path, "where it came from").decode())
    except UnicodeDecodeError as error:
        raise GatelabError(
            f"{path} is not UTF-8 text ({error}); give a text file, gzipped or not, or Parquet"
        ) from None


def _pair(windows: Tokens) -> tuple[Tensor, Tensor]:
    wide = torch.from_numpy(windows.astype(np.int64))
    return wide[:, :-1], wide[:, 1:]


def _positive(value: Any, what: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < 1:
        raise GatelabError(f"{what} is {value!r}; give a whole number, 1 or more")
    return int(value)
