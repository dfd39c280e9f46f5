"""Text as tokens: texts that have a name, such as enwik8, or any file, by the tokenizers of `gatelab.data.tokens`.

Tokens are uint16 in memory, bytes uint8; batches are functions of the step. What was encoded or trained once is kept in
the cache, under the hash of the text and of the tokenizer, and mapped from there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from gatelab.arrays import Tokens, fingerprint
from gatelab.data.archives import Progress, RangeFile, cache_folder, checked_content, content, located
from gatelab.data.batches import OFFSETS, consecutive_rows, stream
from gatelab.data.specification import Archive
from gatelab.data.tokens import BPE, ByteTokenizer, check_tokenizer, find_tokenizer, trained_size, trained_tokenizer
from gatelab.display import one_line, shorten
from gatelab.errors import GatelabError, real_number, unknown_name, whole_number
from gatelab.files import write_whole

SHAKESPEARE = Archive(
    "text",
    "tinyshakespeare.txt",
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
)
# The first million characters of sample-10BT, its documents one after the other; of the 2 GB file at that address only
# the parts that hold them are transferred.
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
# The test text alone, on which papers on pruning measure perplexity; the zip has a training and a validation text too.
WIKITEXT2 = Archive(
    "text",
    "wiki.test.raw",
    "https://wikitext.smerity.com/wikitext-2-raw-v1.zip",
    "173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08",
    member="wikitext-2-raw/wiki.test.raw",
    others=("wiki.test.raw.gz", "wiki.test.raw.zip", "wikitext-2-raw/wiki.test.raw", "wikitext-2-raw-v1.zip"),
)
TEXTS = {"fineweb-edu": FINEWEB, "tinyshakespeare": SHAKESPEARE, "enwik8": ENWIK8, "wikitext-2": WIKITEXT2}
# Training, validation and test bytes, for texts of which the literature knows them.
SPLITS = {"enwik8": (90_000_000, 5_000_000, 5_000_000)}


@dataclass(frozen=True, eq=False)
class TextData:
    """Training and test tokens of one text, the test tokens its end, with validation tokens before them if any.

    Attributes:
        name: that of the text, or of its file.
        train: the training tokens.
        test: the test tokens.
        vocabulary: how many tokens there may be.
        description: what was read, in a line.
        valid: the validation tokens, for choices such as that of a learning rate; None where none were set aside.

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
        parts = {name: getattr(self, name) for name in ("train", "test", "valid")}
        for name, tokens in ((n, np.asarray(t)) for n, t in parts.items() if t is not None):
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
        """The same with the validation tokens in the place of the test tokens, which stay unseen.

        Returns:
            The data on which learning rates and the like are chosen.
        """
        if self.valid is None:
            raise GatelabError(
                f"{self.name} has no validation tokens to choose by; read it with valid_fraction=0.05, or give valid"
            )
        return replace(self, test=self.valid, valid=None)

    def first(self, share: float) -> TextData:
        """The same with the first of its training tokens only, which may then be read more often.

        Args:
            share: How many of the training tokens, above 0 and up to 1.

        Returns:
            The data with fewer training tokens; validation and test tokens are what they were.
        """
        count = round(real_number("share", share, above=0, most=1) * len(self.train))
        if count < 2:
            raise GatelabError(
                f"a share of {share} of the {len(self.train)} training tokens of {self.name} is {count}; give a share"
                " that leaves 2 or more"
            )
        return replace(self, train=self.train[:count])

    def starts(self, step: int, size: int, context: int, seed: int = 0) -> Tensor:
        """Where the windows of `batch` begin in the training tokens."""
        count = self.window_count(self.train, context, "training")
        return torch.randint(count, (whole_number("size", size, 1),), generator=stream(seed, OFFSETS, step))

    def epoch_starts(self, step: int, size: int, context: int, seed: int = 0) -> Tensor:
        """Where windows begin that do not overlap, so that an epoch has every training token of whole windows once.

        Every epoch goes through all windows in an order of its own, and a batch may lie across two epochs.
        """
        count = (self.window_count(self.train, context, "training") - 1) // context + 1
        return context * consecutive_rows(count, whole_number("size", size, 1), step, seed)

    def batch(self, step: int, size: int, context: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Windows of the training tokens, (size, context), from anywhere; and the token that follows each of theirs."""
        return windows(self.train, self.starts(step, size, context, seed), context)

    def batches(self, part: str, size: int, context: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All of "train", "valid" or "test" in windows that do not overlap; what is after the last one is left out."""
        parts = {"train": self.train, "test": self.test, "valid": self.valid}
        tokens = parts.get(part)
        if tokens is None:
            raise unknown_name("part", part, [name for name, tokens in parts.items() if tokens is not None])
        starts = torch.arange(0, self.window_count(tokens, context, part), context)
        for some in starts.split(whole_number("size", size, 1)):
            yield windows(tokens, some, context)

    def window_count(self, tokens: Tokens, context: int, part: str) -> int:
        """At how many places a window of `context` tokens and the token after it can begin."""
        count = len(tokens) - whole_number("context", context, 1)
        if count < 1:
            raise GatelabError(
                f"{self.name} has {len(tokens)} {part} tokens, fewer than a context of {context} and the token after"
                " it; give a longer text or a smaller context"
            )
        return count


def windows(tokens: Tokens, starts: Tensor, context: int) -> tuple[Tensor, Tensor]:
    """The windows of `context` tokens that begin at the starts, and for each of their tokens the one that follows."""
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
            Parquet. A Parquet file, such as one of FineWeb-Edu's own, has its documents in the column "text"; each is
            followed by the tokenizer's end of text. enwik8 has 90, 5 and 5 million bytes for training, validation and
            testing, as in the literature, each encoded by itself. "wikitext-2" is WikiText-2's test text alone, which
            is parted as a file is.
        tokenizer: "gpt2", "bytes" (256 tokens, no file needed), a `BPE`, or "trained:4096" for one of so many tokens,
            257 to 65536, that is trained on the training part of this text; the text is then cut by bytes, and each
            part encoded by itself.
        test_fraction: the share of the tokens that is for testing, a tenth if not given.
        valid_fraction: the share of the tokens before those that is for validation, none if not given.
        progress: called with the bytes received and the bytes there are while something is downloaded, and with those
            read and to be read while a tokenizer is trained.

    Returns:
        A `TextData` with training and test tokens, and validation tokens if asked for or known from the literature.
    """
    shares = checked_shares(source, test_fraction, valid_fraction)
    size = None
    if not isinstance(tokenizer, BPE):
        check_tokenizer(tokenizer)
        size = trained_size(tokenizer)
    path = text_file(source, progress)
    name = str(source) if source in TEXTS else path.name
    # Before it is encoded, where parts are counted in bytes or where the tokenizer must not have seen the others.
    if source in SPLITS or size is not None:
        pieces = byte_parts(path, name, shares)
        encoder = trained_tokenizer(pieces[0], size, progress) if size else find_tokenizer(tokenizer, progress)
        train, valid, test = (text_tokens(piece, encoder) for piece in pieces)
    else:
        encoder = find_tokenizer(tokenizer, progress)
        if is_parquet(path):
            tokens = parquet_tokens(path, encoder)
        else:
            tokens = text_tokens(text_content(path, name), encoder, path)
        n_valid, n_test = (round(share * len(tokens)) for share in shares)
        train, valid, test = np.split(tokens, [len(tokens) - n_test - n_valid, len(tokens) - n_test])
    total = len(train) + len(valid) + len(test)
    if not total:
        raise empty(path)
    if min(len(train), len(test)) < 2 or (valid_fraction and len(valid) < 2):
        raise GatelabError(f"{path} has {total} tokens; give a text of which all parts have 2 or more")
    counted = f"{len(train)} training tokens, " + f"{len(valid)} validation tokens, " * bool(len(valid))
    description = f"{name}: {counted}{len(test)} test tokens of a vocabulary of {encoder.vocabulary}"
    return TextData(name, train, test, encoder.vocabulary, description, valid if len(valid) else None)


def checked_shares(
    source: str | Path, test_fraction: float | None, valid_fraction: float | None
) -> tuple[float, float]:
    """The shares of the tokens for validation and testing; refused where they are none, or where a text has its own."""
    for name, value in (("test_fraction", test_fraction), ("valid_fraction", valid_fraction)):
        if value is not None and source in SPLITS:
            sizes = " + ".join(map(str, SPLITS[str(source)]))
            raise GatelabError(
                f"{name} is {value!r}, but {source} has the parts of the literature, {sizes} bytes; leave {name} out"
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


def byte_parts(path: Path, name: str, shares: tuple[float, float]) -> tuple[bytes, bytes, bytes]:
    """The training, validation and test bytes of a text, cut by the shares of the last two or as the literature does.

    A name in `SPLITS` decides the cut, and is checked by it; of other texts no character is cut in two.
    """
    if is_parquet(path):
        raise GatelabError(
            f"{path} is Parquet, and tokenizers are trained on text; write its documents into a text file, or take the"
            " tokenizer 'gpt2' or 'bytes'"
        )
    raw = text_content(path, name)
    if name in SPLITS:
        first, second = SPLITS[name][0], SPLITS[name][0] + SPLITS[name][1]
        return raw[:first], raw[first:second], raw[second:]
    if not decoded(raw, path):
        raise empty(path)
    n_valid, n_test = (round(share * len(raw)) for share in shares)
    cuts = []
    for cut in (len(raw) - n_test - n_valid, len(raw) - n_test):
        while cut < len(raw) and raw[cut] & 0xC0 == 0x80:  # inside a character
            cut += 1
        cuts.append(cut)
    return raw[: cuts[0]], raw[cuts[0] : cuts[1]], raw[cuts[1] :]


# ---- files


def text_file(source: str | Path, progress: Progress | None) -> Path:
    """The file that holds a text, downloaded if need be and allowed."""
    if source in TEXTS:
        archive = TEXTS[str(source)]
        return located(archive, str(source), progress, write_sample if archive is FINEWEB else None)
    path = Path(source).expanduser()
    if not path.is_file():
        raise GatelabError(f"there is no file {path}; give one, or one of {', '.join(map(repr, TEXTS))}")
    return path


def is_checked(name: str | Path) -> bool:
    """Whether a text is known by the hash of its content, in whatever form a user's folder has it."""
    return name in TEXTS and bool(TEXTS[str(name)].member)


def is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


def text_content(path: Path, name: str | Path) -> bytes:
    """What the file of a text holds, unpacked; refused if it is not the text of that name."""
    if is_checked(name):
        return checked_content(path, TEXTS[str(name)])
    return content(path, "where it came from")


def write_sample(url: str, file: IO[bytes]) -> None:
    """Write the sample of FineWeb-Edu, the first documents of the official file."""
    with RangeFile(url) as remote:
        parts, length = [], 0
        for document in documents(remote, url):
            parts.append(document)
            length += len(document)
            if length >= SAMPLE:
                break
    file.write("".join(parts)[:SAMPLE].encode())


def documents(file: Any, name: object) -> Iterator[str]:
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
                    if not isinstance(document, str | None):
                        raise GatelabError(f"the column 'text' of {name} has {document!r} in it; give texts alone")
                    yield document or ""
    except pa.ArrowException as error:
        raise GatelabError(f"{name} is not a whole Parquet file ({error}); copy it again") from error


def parquet_tokens(path: Path, encoder: BPE | ByteTokenizer) -> Tokens:
    """The tokens of the documents of a Parquet file, each with the end of text, out of the cache if they are there."""

    def tokens() -> Tokens:
        end = np.array([] if encoder.end is None else [encoder.end], encoder.dtype)
        parts = [part for document in documents(path, path) for part in (encoder.encode(document), end)]
        return np.concatenate([np.empty(0, encoder.dtype), *parts])

    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return cached_tokens(f"parquet {digest}", encoder, tokens)


def text_tokens(raw: bytes, encoder: BPE | ByteTokenizer, path: Path | None = None) -> Tokens:
    """The tokens of a text or of a part of one, out of the cache if they are there; `path` is where it is read from.

    A part that is counted in bytes, which has no path, may be no UTF-8.
    """

    def tokens() -> Tokens:
        if path is None and isinstance(encoder, ByteTokenizer):
            return np.frombuffer(raw, np.uint8)
        return encoder.encode(decoded(raw, path))

    return cached_tokens(f"{'part' if path is None else 'text'} {hashlib.sha256(raw).hexdigest()}", encoder, tokens)


def cached_tokens(key: str, encoder: BPE | ByteTokenizer, make: Callable[[], Tokens]) -> Tokens:
    """The tokens that the cache has under a key, mapped from there; made and put there if it has none."""
    # A tokenizer that was made by hand has no fingerprint, so nothing is known of what it would have made.
    if not encoder.fingerprint:
        return make()
    cached = cache_folder() / "tokens" / f"{fingerprint([f'{key} {encoder.fingerprint}'], 24)}.npy"
    with suppress(OSError, ValueError, EOFError):  # it is not there, or damaged
        return np.load(cached, mmap_mode="r", allow_pickle=False)
    tokens = make()
    if not len(tokens):
        return tokens  # nothing, which no system maps

    def save(part: Path) -> None:
        with part.open("wb") as out:
            np.save(out, tokens, allow_pickle=False)

    try:
        return np.load(write_whole(cached, save), mmap_mode="r", allow_pickle=False)
    except GatelabError:
        return tokens  # of a cache that takes no files, such as one on a full disk


def empty(path: Path) -> GatelabError:
    """The error for a text that has nothing in it."""
    return GatelabError(f"{path} is empty; give a text that has something in it")


def decoded(raw: bytes, path: Path | None) -> str:
    """The text of bytes that were read from a file; refused if they are none."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise GatelabError(
            f"{path or 'the text'} is not UTF-8 text ({error}); give a text file, gzipped, zipped or not, or Parquet"
        ) from None
