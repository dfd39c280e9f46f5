"""Tokenized texts: registered ones, such as enwik8, or any file, by the tokenizers of `gatelab.data.tokens`.

Encoded texts are cached under the hash of the text and of the tokenizer, and memory-mapped.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gatelab.arrays import Tokens, fingerprint
from gatelab.data.archives import Progress, RangeFile, cache_folder, checked_content, content, import_pyarrow, locate
from gatelab.data.batches import OFFSETS, consecutive_rows, stream
from gatelab.data.specification import Archive
from gatelab.data.tokens import BPE, ByteTokenizer, find_tokenizer
from gatelab.display import one_line, shorten
from gatelab.errors import GatelabError, real_number, unknown_name, whole_number
from gatelab.files import write_whole

SHAKESPEARE = Archive(
    "text",
    "tinyshakespeare.txt",
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
)
# The first million characters of sample-10BT; only the required parts of the 2 GB file are transferred.
FINEWEB = Archive(
    "text",
    "fineweb_edu_sample.txt",
    "https://huggingface.co/datasets/HuggingFaceFW/fineweb-edu/resolve/main/sample/10BT/000_00000.parquet",
    "898138edfad3ff17d91697ee8c758d64b79356720c427accddbbdf6612bb5a6e",
)
SAMPLE = 10**6
# The first 10^8 bytes of a dump of the English Wikipedia, md5 a1fa5ffddb56f4953e226637dabbb36a.
ENWIK8 = Archive(
    "text",
    "enwik8",
    "http://mattmahoney.net/dc/enwik8.zip",
    "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8",
    member="enwik8",
    others=("enwik8.gz", "enwik8.zip"),
)
# The test text alone, on which papers on pruning measure perplexity.
WIKITEXT2 = Archive(
    "text",
    "wiki.test.raw",
    "https://wikitext.smerity.com/wikitext-2-raw-v1.zip",
    "173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08",
    member="wikitext-2-raw/wiki.test.raw",
    others=("wiki.test.raw.gz", "wiki.test.raw.zip", "wikitext-2-raw/wiki.test.raw", "wikitext-2-raw-v1.zip"),
)
TEXTS = {"fineweb-edu": FINEWEB, "tinyshakespeare": SHAKESPEARE, "enwik8": ENWIK8, "wikitext-2": WIKITEXT2}
# The standard numbers of training, validation and test bytes in the literature.
SPLITS = {"enwik8": (90_000_000, 5_000_000, 5_000_000)}


@dataclass(frozen=True, eq=False)
class TextData:
    """Training tokens of one text, then its validation tokens, if any, then its test tokens.

    Attributes:
        name: the name of the text or of its file.
        train: the training tokens.
        test: the test tokens.
        vocabulary: the size of the vocabulary.
        description: a one-line description.
        valid: the validation tokens, for choices such as the learning rate, or None.

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
    valid: Tokens | None = None

    def __post_init__(self) -> None:
        whole_number("vocabulary", self.vocabulary, 1)
        for name in ("train", "test", "valid"):
            if getattr(self, name) is None:
                continue
            tokens = np.asarray(getattr(self, name))
            if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
                raise GatelabError(
                    f"the {name} tokens have the shape {tokens.shape} and {tokens.dtype}; give whole numbers in a row"
                )
            unsure = tokens.dtype.kind == "i" or np.iinfo(tokens.dtype).max >= self.vocabulary
            if unsure and len(tokens) and not 0 <= tokens.min() <= tokens.max() < self.vocabulary:
                raise GatelabError(
                    f"the {name} tokens are {tokens.min()} to {tokens.max()} and the vocabulary has {self.vocabulary};"
                    f" give tokens from 0 to {self.vocabulary - 1}, or the vocabulary that they are of"
                )
            object.__setattr__(self, name, tokens)

    def __repr__(self) -> str:
        valid = "" if self.valid is None else f", {len(self.valid)} validation"
        counted = f"{len(self.train)} training{valid} and {len(self.test)} test tokens"
        return one_line(self, f"{shorten(self.name)}: {counted} of {self.vocabulary}")

    def tuning(self) -> TextData:
        """The data with the validation tokens as test tokens, by which hyperparameters are chosen."""
        if self.valid is None:
            raise GatelabError(
                f"{self.name} has no validation tokens to choose by; read it with valid_fraction=0.05, or give valid"
            )
        return replace(self, test=self.valid, valid=None)

    def first(self, share: float) -> TextData:
        """The data with the first part of its training tokens.

        Args:
            share: The share of the training tokens, above 0 and up to 1.

        Returns:
            The data with fewer training tokens, and the same validation and test tokens.
        """
        count = round(real_number("share", share, above=0, most=1) * len(self.train))
        if count < 2:
            raise GatelabError(
                f"a share of {share} of the {len(self.train)} training tokens of {self.name} is {count}; give a larger"
                " share, which leaves 2 or more"
            )
        return replace(self, train=self.train[:count])

    def starts(self, step: int, size: int, context: int, seed: int = 0) -> Tensor:
        """The starts of the windows of `batch` in the training tokens."""
        count = self.window_count(self.train, context, "training")
        return torch.randint(count, (whole_number("size", size, 1),), generator=stream(seed, OFFSETS, step))

    def epoch_starts(self, step: int, size: int, context: int, seed: int = 0) -> Tensor:
        """The starts of windows that do not overlap: every epoch visits every complete window once, in a new order."""
        count = (self.window_count(self.train, context, "training") - 1) // context + 1
        return context * consecutive_rows(count, whole_number("size", size, 1), step, seed)

    def batch(self, step: int, size: int, context: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Random windows of the training tokens, (size, context), and the next token of each of their tokens."""
        return windows(self.train, self.starts(step, size, context, seed), context)

    def batches(self, part: str, size: int, context: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All of "train", "valid" or "test" in windows that do not overlap; an incomplete last window is left out."""
        parts = {"train": self.train, "test": self.test, "valid": self.valid}
        tokens = parts.get(part)
        if tokens is None:
            raise unknown_name("part", part, [name for name, tokens in parts.items() if tokens is not None])
        starts = torch.arange(0, self.window_count(tokens, context, part), context)
        for some in starts.split(whole_number("size", size, 1)):
            yield windows(tokens, some, context)

    def window_count(self, tokens: Tokens, context: int, part: str) -> int:
        """The number of possible starts of a window of `context` tokens and the token after it."""
        count = len(tokens) - whole_number("context", context, 1)
        if count < 1:
            raise GatelabError(
                f"{self.name} has {len(tokens)} {part} tokens, fewer than a context of {context} and the token after"
                " it; give a longer text or a smaller context"
            )
        return count


def windows(tokens: Tokens, starts: Tensor, context: int) -> tuple[Tensor, Tensor]:
    """The windows of `context` tokens at the starts, and the next token of each of their tokens."""
    places = starts.numpy()[:, None] + np.arange(context + 1)
    wide = torch.from_numpy(tokens[places].astype(np.int64))
    return wide[:, :-1], wide[:, 1:]


def text_data(
    source: str | Path = "fineweb-edu",
    tokenizer: str | BPE = "gpt2",
    *,
    test_fraction: float | None = None,
    valid_fraction: float | None = None,
    progress: Progress | None = None,
) -> TextData:
    """The tokens of a text, the last of them for testing.

    Args:
        source: "fineweb-edu", "tinyshakespeare", "enwik8", "wikitext-2", or a file: text, gzipped or zipped text, or
            Parquet, with documents in the column "text", each followed by the tokenizer's end of text. enwik8 has 90, 5
            and 5 million bytes for training, validation and testing, as in the literature. "wikitext-2" is the test
            text of WikiText-2, split like a file.
        tokenizer: "gpt2", "bytes" (256 tokens), or a `BPE`.
        test_fraction: the share of the tokens for testing, by default a tenth.
        valid_fraction: the share of the tokens for validation, by default none.
        progress: called with the received and total bytes of a download.

    Returns:
        A `TextData` with training and test tokens, and validation tokens if requested or standard in the literature.
    """
    shares = checked_shares(source, test_fraction, valid_fraction)
    path = text_file(source, progress)
    name = str(source) if source in TEXTS else path.name
    encoder = find_tokenizer(tokenizer, progress)
    if source in SPLITS:
        raw, cuts = text_content(path, name), np.cumsum(SPLITS[name])
        train, valid, test = (text_tokens(raw[a:b], encoder) for a, b in zip((0, *cuts[:2]), cuts, strict=True))
    else:
        if path.suffix.lower() == ".parquet":
            tokens = parquet_tokens(path, encoder)
        else:
            tokens = text_tokens(text_content(path, name), encoder, path)
        n_valid, n_test = (round(share * len(tokens)) for share in shares)
        train, valid, test = np.split(tokens, [len(tokens) - n_test - n_valid, len(tokens) - n_test])
    if not (total := len(train) + len(valid) + len(test)):
        raise empty(path)
    if min(len(train), len(test)) < 2 or (valid_fraction and len(valid) < 2):
        raise GatelabError(f"{path} has {total} tokens; give a text of which all parts have 2 or more")
    counted = f"{len(train)} training tokens, " + f"{len(valid)} validation tokens, " * bool(len(valid))
    description = f"{name}: {counted}{len(test)} test tokens of a vocabulary of {encoder.vocabulary}"
    return TextData(name, train, test, encoder.vocabulary, description, valid if len(valid) else None)


def checked_shares(
    source: str | Path, test_fraction: float | None, valid_fraction: float | None
) -> tuple[float, float]:
    """The shares of the tokens for validation and testing; refused for a text with a standard split."""
    for name, value in (("test_fraction", test_fraction), ("valid_fraction", valid_fraction)):
        if value is not None and source in SPLITS:
            sizes = " + ".join(map(str, SPLITS[str(source)]))
            raise GatelabError(
                f"{name} is {value!r}, but {source} has the standard split of {sizes} bytes; leave {name} out"
            )
        if value is not None:
            real_number(name, value, above=0, below=1)
    shares = valid_fraction or 0.0, test_fraction or 0.1
    if sum(shares) >= 1:
        raise GatelabError(
            f"valid_fraction and test_fraction are {shares[0]} and {shares[1]}, which leaves no token for training;"
            " give shares whose sum is below 1"
        )
    return shares


# ---- files


def text_file(source: str | Path, progress: Progress | None) -> Path:
    if source in TEXTS:
        archive = TEXTS[str(source)]
        return locate(archive, str(source), progress, read_sample if archive is FINEWEB else None)
    path = Path(source).expanduser()
    if not path.is_file():
        raise GatelabError(f"there is no file {path}; give one, or one of {', '.join(map(repr, TEXTS))}")
    return path


def is_checked(name: str | Path) -> bool:
    return name in TEXTS and bool(TEXTS[str(name)].member)


def text_content(path: Path, name: str) -> bytes:
    """The content of a text's file, unpacked; that of a zip's member is checked by its hash."""
    if is_checked(name):
        return checked_content(path, TEXTS[name])
    return content(path, "its source")


def read_sample(url: str) -> bytes:
    """The first documents of the official file of FineWeb-Edu."""
    text = ""
    with RangeFile(url) as remote:
        for document in documents(remote, url):
            text += document
            if len(text) >= SAMPLE:
                break
    return text[:SAMPLE].encode()


def documents(file: Any, name: object) -> Iterator[str]:
    """The column "text" of a Parquet file, a batch of rows at a time."""
    pa, pq = import_pyarrow(name, "a text file")
    try:
        opened = pq.ParquetFile(file)
        if "text" not in opened.schema_arrow.names:
            raise GatelabError(f"{name} has no column 'text'; it has {', '.join(opened.schema_arrow.names)}")
        for group in range(opened.num_row_groups):  # one at a time, since few are needed of a file on a server
            for rows in opened.iter_batches(batch_size=256, row_groups=[group], columns=["text"]):
                for document in rows.column(0).to_pylist():
                    if not isinstance(document, str | None):
                        raise GatelabError(f"the column 'text' of {name} contains {document!r}; give texts only")
                    yield document or ""
    except pa.ArrowException as error:
        raise GatelabError(f"{name} is not a whole Parquet file ({error}); copy it again") from error


def parquet_tokens(path: Path, encoder: BPE | ByteTokenizer) -> Tokens:
    """The tokens of the documents of a Parquet file, each with the end of text, cached."""

    def tokens() -> Tokens:
        end = np.array([] if encoder.end is None else [encoder.end], encoder.dtype)
        parts = [part for document in documents(path, path) for part in (encoder.encode(document), end)]
        return np.concatenate([end[:0], *parts])

    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return cached_tokens(f"parquet {digest}", encoder, tokens)


def text_tokens(raw: bytes, encoder: BPE | ByteTokenizer, path: Path | None = None) -> Tokens:
    """The tokens of a text, or of a part of one, which has no `path` and need not be valid UTF-8; cached."""

    def tokens() -> Tokens:
        if path is None and isinstance(encoder, ByteTokenizer):
            return np.frombuffer(raw, np.uint8)
        return encoder.encode(decoded(raw, path))

    return cached_tokens(f"{'part' if path is None else 'text'} {hashlib.sha256(raw).hexdigest()}", encoder, tokens)


def cached_tokens(key: str, encoder: BPE | ByteTokenizer, make: Callable[[], Tokens]) -> Tokens:
    """The cached tokens under a key, memory-mapped; `make` computes them if they are missing."""
    if not encoder.fingerprint:  # a tokenizer without files
        return make()
    cached = cache_folder() / "tokens" / f"{fingerprint([f'{key} {encoder.fingerprint}'], 24)}.npy"
    with suppress(OSError, ValueError, EOFError):  # missing or damaged
        return np.load(cached, mmap_mode="r", allow_pickle=False)
    tokens = make()
    if not len(tokens):
        return tokens  # an empty file cannot be mapped

    file = io.BytesIO()
    np.save(file, tokens, allow_pickle=False)
    try:
        return np.load(write_whole(cached, file.getvalue()), mmap_mode="r", allow_pickle=False)
    except GatelabError:
        return tokens  # the cache cannot be written, such as on a full disk


def empty(path: Path) -> GatelabError:
    return GatelabError(f"{path} is empty; give a text with content")


def decoded(raw: bytes, path: Path | None) -> str:
    """The text of bytes that were read from a file; refused unless they are UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise GatelabError(
            f"{path or 'the text'} is not UTF-8 text ({error}); give a text file, gzipped, zipped or not, or Parquet"
        ) from None
