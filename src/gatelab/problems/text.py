"""Text as tokens: FineWeb-Edu's sample, Shakespeare, or any file, encoded by GPT-2's tokenizer or byte by byte.

Tokens are uint16 in memory; batches are functions of the step. What was encoded once is kept in the cache, under the
hash of the text and of the tokenizer, and mapped from there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gatelab.display import one_line, shorten
from gatelab.errors import GatelabError, unknown_name
from gatelab.files import write_whole
from gatelab.problems.archives import Archive, Progress, RangeFile, content, fetched, first_file, missing, places
from gatelab.problems.batches import OFFSETS, stream
from gatelab.problems.bpe import BPE, read_bpe
from gatelab.problems.folders import cache_folder

Tokens = NDArray[np.uint16]
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
