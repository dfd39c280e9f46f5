"""Text as tokens: texts that have a name, such as enwik8, or any file, by GPT-2's tokenizer, its own, or as bytes.

GPT-2's byte-pair encoding is that of the library `tokenizers`, made of GPT-2's files encoder.json and vocab.bpe; the
library can train another on the training part of a text. Tokens are uint16 in memory, bytes uint8; batches are
functions of the step. What was encoded or trained once is kept in the cache, under the hash of the text and of the
tokenizer, and mapped from there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from http.client import HTTPException
from numbers import Real
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gatelab.arrays import Tokens, fingerprint
from gatelab.data.archives import (
    Archive,
    Progress,
    RangeFile,
    cache_folder,
    checked_content,
    content,
    fetched,
    first_file,
    missing,
    places,
)
from gatelab.data.batches import OFFSETS, consecutive_rows, stream
from gatelab.display import one_line, shorten
from gatelab.errors import GatelabError, unknown_name, whole_number
from gatelab.files import write_whole
from gatelab.interrupts import apart

if TYPE_CHECKING:
    from tokenizers import Tokenizer

END = "<|endoftext|>"
PART = 2**20  # characters that are encoded at once: the library keeps some hundred bytes for each of their tokens

OPENAI = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/"
GPT2_FILES = tuple(
    Archive("gpt2_bpe", file, OPENAI + file, sha256, size)
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
# The first 10^8 bytes of a dump of the English Wikipedia, md5 a1fa5ffddb56f4953e226637dabbb36a.
ENWIK8 = Archive(
    "text",
    "enwik8",
    "http://mattmahoney.net/dc/enwik8.zip",
    "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8",
    10**8,
    member="enwik8",
    zip_size=36445475,
)
# The test text alone, on which papers on pruning measure perplexity; the zip has a training and a validation text too.
WIKITEXT2 = Archive(
    "text",
    "wiki.test.raw",
    "https://wikitext.smerity.com/wikitext-2-raw-v1.zip",
    "173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08",
    1290590,
    member="wikitext-2-raw/wiki.test.raw",
    zip_size=4721645,
)
TEXTS = {"fineweb-edu": FINEWEB, "tinyshakespeare": SHAKESPEARE, "enwik8": ENWIK8, "wikitext-2": WIKITEXT2}
# Training, validation and test bytes, for texts of which the literature knows them.
SPLITS = {"enwik8": (90_000_000, 5_000_000, 5_000_000)}
TOKENIZERS = ("gpt2", "bytes")
TRAINED, FEWEST, MOST = "trained:", 257, 2**16  # all bytes and a pair of them; what 16 bits hold
COPY = "copy GPT-2's encoder.json and vocab.bpe again, both from one place"


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
        counted = f"{len(self.train)} training and {len(self.test)} test tokens"
        if self.valid is not None:
            counted = f"{len(self.train)} training, {len(self.valid)} validation and {len(self.test)} test tokens"
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
        if not (isinstance(share, Real) and 0 < share <= 1):
            raise GatelabError(f"share is {share!r}; give a number above 0 and up to 1, such as 0.05")
        count = round(share * len(self.train))
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
        """Where the windows of `epoch_batch` begin in the training tokens."""
        count = (self.window_count(self.train, context, "training") - 1) // context + 1
        return context * consecutive_rows(count, whole_number("size", size, 1), step, seed)

    def batch(self, step: int, size: int, context: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Windows of the training tokens, (size, context), from anywhere; and the token that follows each of theirs."""
        return windows(self.train, self.starts(step, size, context, seed), context)

    def epoch_batch(self, step: int, size: int, context: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Windows of the training tokens, (size, context), such that an epoch has every token once.

        The training tokens are cut into windows that do not overlap; the tokens after the last whole one are left out.
        Every epoch goes through all windows in an order of its own, and a batch may lie across two epochs. It is a
        function of seed and step alone: a training that was cut off goes on with the batches that it would have had.
        """
        return windows(self.train, self.epoch_starts(step, size, context, seed), context)

    def batches(self, part: str, size: int, context: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All of "train", "valid" or "test" in windows that do not overlap; what is after the last one is left out."""
        parts = {"train": self.train, "test": self.test}
        if self.valid is not None:
            parts["valid"] = self.valid
        if part not in parts:
            raise unknown_name("part", part, parts)
        tokens = parts[part]
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
    name = path.name
    if source in TEXTS:
        name = str(source)
    # Before it is encoded, where parts are counted in bytes or where the tokenizer must not have seen the others.
    if source in SPLITS or size is not None:
        parts = byte_parts(path, name, shares)
        if size is not None:
            encoder = trained_tokenizer(parts[0], size, progress)
        else:
            encoder = encoder_of(tokenizer, progress)
        train, valid, test = (part_tokens(part, encoder) for part in parts)
    else:
        encoder = encoder_of(tokenizer, progress)
        if is_checked(source):
            tokens = part_tokens(text_content(path, source), encoder)
        else:
            tokens = tokens_of(path, encoder)
        n_valid, n_test = (round(share * len(tokens)) for share in shares)
        end = len(tokens) - n_test
        train, valid, test = tokens[: end - n_valid], tokens[end - n_valid : end], tokens[end:]
    total = len(train) + len(valid) + len(test)
    if not total:
        raise empty(path)
    if min(len(train), len(test)) < 2 or (valid_fraction and len(valid) < 2):
        raise GatelabError(f"{path} has {total} tokens; give a text of which all parts have 2 or more")
    counted = f"{len(train)} training tokens, "
    if len(valid):
        counted += f"{len(valid)} validation tokens, "
    description = f"{name}: {counted}{len(test)} test tokens of a vocabulary of {encoder.vocabulary}"
    return TextData(name, train, test, encoder.vocabulary, description, valid if len(valid) else None)


def checked_shares(
    source: str | Path, test_fraction: float | None, valid_fraction: float | None
) -> tuple[float, float]:
    """The shares of the tokens for validation and testing; refused where they are none, or where a text has its own."""
    given = {"test_fraction": test_fraction, "valid_fraction": valid_fraction}
    for name, value in given.items():
        if value is None:
            continue
        if source in SPLITS:
            sizes = " + ".join(map(str, SPLITS[str(source)]))
            raise GatelabError(
                f"{name} is {value!r}, but {source} has the parts of the literature, {sizes} bytes; leave {name} out"
            )
        if not (isinstance(value, Real) and 0 < value < 1):
            raise GatelabError(f"{name} is {value!r}; give a number between 0 and 1, such as 0.1")
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
    if path.suffix.lower() == ".parquet":
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
        while cut < len(raw) and raw[cut] & 0xC0 == 0x80:
            cut += 1
        cuts.append(cut)
    return raw[: cuts[0]], raw[cuts[0] : cuts[1]], raw[cuts[1] :]


# ---- tokenizers


def trained_size(tokenizer: str) -> int | None:
    """How many tokens "trained:4096" asks for; None for names that ask for no training.

    >>> trained_size("trained:4096"), trained_size("gpt2")
    (4096, None)
    """
    if not str(tokenizer).startswith(TRAINED.rstrip(":")):
        return None
    number = tokenizer.removeprefix(TRAINED)
    if not (number.isascii() and number.isdigit() and len(number) < 6 and FEWEST <= int(number) <= MOST):
        raise GatelabError(
            f"tokenizer is {tokenizer!r}; give {TRAINED}4096, or another number of tokens from {FEWEST} to {MOST}"
        )
    return int(number)


def check_tokenizer(tokenizer: str) -> None:
    """Refuse what is no name of a tokenizer: "gpt2", "bytes", or "trained:" and a number of tokens."""
    if tokenizer not in TOKENIZERS and trained_size(tokenizer) is None:
        raise unknown_name("tokenizer", str(tokenizer), (*TOKENIZERS, f"{TRAINED}4096"))


def encoder_of(tokenizer: str | BPE, progress: Progress | None) -> BPE | ByteTokenizer:
    """The tokenizer of a name that asks for no training, or one that is given."""
    if isinstance(tokenizer, BPE):
        return tokenizer
    if tokenizer == "bytes":
        return ByteTokenizer()
    return gpt2_tokenizer(progress)


class ByteTokenizer:
    """Each byte of the text is a token, and takes a byte."""

    vocabulary, end, fingerprint, dtype = 256, None, "bytes, uint8", np.uint8

    def encode(self, text: str) -> Tokens:
        """The bytes of a text."""
        return np.frombuffer(text.encode(), np.uint8)


@dataclass(frozen=True, eq=False)
class BPE:
    """A byte-level byte-pair encoding: what GPT-2's two files hold, encoded by the library `tokenizers`.

    Attributes:
        ids: the number of every token, the end of text aside; a token is written in letters that stand for bytes, as in
            encoder.json.
        merges: pairs of neighbours that become one token, in the order of their rank.
        end: the number of the end of text, None where there is none.
        fingerprint: a hash of the files, empty for a tokenizer that was made by hand.

    >>> small = BPE({"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4}, [("a", "b"), ("ab", "c")])
    >>> small.encode("abcab").tolist(), small.decode([4, 3])
    ([4, 3], 'abcab')
    """

    ids: Mapping[str, int]
    merges: Sequence[tuple[str, str]]
    end: int | None = None
    fingerprint: str = ""
    dtype: ClassVar = np.uint16

    def __repr__(self) -> str:
        return one_line(self, f"{self.vocabulary} tokens, {len(self.merges)} merges")

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        return len(self.ids) + (self.end is not None)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The same as a tokenizer of the library."""
        tokenizers = import_tokenizers()
        ids = dict(self.ids)
        if self.end is not None:
            ids[END] = self.end
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(ids, list(self.merges)))
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        return tokenizer

    def encode(self, text: str) -> Tokens:
        """The tokens of a text; `<|endoftext|>` in it is text like any other."""
        # A lone half of a surrogate pair has no UTF-8, and becomes a question mark.
        whole = text.encode("utf-8", errors="replace").decode()
        parts = [np.array(self.tokenizer.encode(part).ids, dtype=np.uint16) for part in text_parts(whole)]
        return np.concatenate([np.empty(0, np.uint16), *parts])

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of the tokens; bytes that are no UTF-8 become the replacement character."""
        numbers = [int(t) for t in tokens]
        for t in numbers:
            if not 0 <= t < self.vocabulary:
                raise GatelabError(f"{t} is no token; give numbers from 0 to {self.vocabulary - 1}")
        return self.tokenizer.decode(numbers, skip_special_tokens=False)


def text_parts(text: str, size: int = PART) -> Iterator[str]:
    """A text in parts of about `size` characters, cut where a word ends before a space: no token lies across.

    >>> list(text_parts("one two  three", 5))
    ['one two', '  three']
    """
    start = 0
    while start < len(text):
        end = start + size
        while end < len(text) and (text[end] not in " \n" or text[end - 1].isspace()):
            end += 1
        yield text[start:end]
        start = end


def read_bpe(encoder: str | Path, vocab: str | Path, way_out: str = COPY) -> BPE:
    """The tokenizer of GPT-2's two files: encoder.json (token -> number) and vocab.bpe (the merges in order)."""
    encoder, vocab = Path(encoder), Path(vocab)
    try:
        raw, lines = encoder.read_bytes(), vocab.read_bytes()
        table = json.loads(raw)
        pairs = [line.split(" ") for line in lines.decode().split("\n")[1:] if line]
    except (OSError, ValueError) as error:
        raise GatelabError(f"{encoder} and {vocab} cannot be read as a tokenizer ({error}); {way_out}") from error
    if not isinstance(table, dict) or sorted(table.values()) != list(range(len(table))) or len(table) > 2**16:
        raise GatelabError(f"{encoder} does not number its tokens 0, 1, 2, ... up to 65535; {way_out}")
    end = table.pop(END, None)
    alphabet = import_tokenizers().pre_tokenizers.ByteLevel.alphabet()
    # The library would not say which of its tokens a list of merges lacks, and would leave out bytes without a word.
    try:
        merges = [(left, right) for left, right in pairs]
        for left, right in merges:
            _ = table[left], table[right], table[left + right]
        for letter in alphabet:
            table[letter]
    except (KeyError, ValueError) as error:
        raise GatelabError(f"{encoder} and {vocab} do not belong together ({error!r}); {way_out}") from error
    return BPE(table, merges, end, fingerprint([raw, lines], 12))


def import_tokenizers() -> Any:
    """The library `tokenizers`, which only this encoding needs."""
    try:
        import tokenizers
    except ImportError:
        raise GatelabError(
            "byte-pair encoding needs the library tokenizers, which is not installed: pip install 'gatelab[models]', or"
            " take the tokenizer 'bytes'"
        ) from None
    return tokenizers


def trained_tokenizer(raw: bytes, size: int, progress: Progress | None = None) -> BPE:
    """A byte-level byte-pair encoding trained on a text, out of the cache if it is there.

    The pair of neighbours that is most frequent within words becomes a token, until there are enough; of equally
    frequent ones it is that of the lowest numbers, so that a text and a size have one tokenizer.

    `size` counts the 256 bytes; there is no end of text. `progress` is called with bytes read and to be read.
    """
    key = fingerprint([f"trained {size} {hashlib.sha256(raw).hexdigest()}"], 24)
    encoder, vocab = (cache_folder() / "tokenizers" / f"{key}.{file}" for file in ("encoder.json", "vocab.bpe"))
    if not (encoder.is_file() and vocab.is_file()):
        tokenizer = train_bpe(raw, size, progress)
        with TemporaryDirectory() as folder:
            for file, saved in zip((encoder, vocab), tokenizer.model.save(folder), strict=True):
                write_whole(file, Path(saved).read_bytes())
    return read_bpe(encoder, vocab, "delete both, and the tokenizer is trained again")


def train_bpe(raw: bytes, size: int, progress: Progress | None) -> Tokenizer:
    """The same as a tokenizer of the library, trained now; an error if the text does not have so many tokens."""
    tokenizers = import_tokenizers()
    words = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = words
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size, min_frequency=2, initial_alphabet=words.alphabet(), show_progress=False
    )

    def parts() -> Iterator[str]:
        read = 0
        for part in text_parts(raw.decode(), PART // 64):  # the library reads 256 of them at once
            yield part
            read += len(part.encode())
            if progress:
                progress(read, len(raw))

    apart(tokenizer.train_from_iterator, parts(), trainer)  # minutes for 100 MB, of which the library hears no Ctrl-C
    count = tokenizer.get_vocab_size()
    if count < size:
        raise GatelabError(
            f"tokenizer is {TRAINED}{size}, but the training part of the text, {len(raw)} bytes, has pairs that occur"
            f" twice for {count} tokens only; give a longer text, fewer tokens, or the tokenizer 'bytes'"
        )
    return tokenizer


def gpt2_tokenizer(progress: Progress | None = None) -> BPE:
    """GPT-2's tokenizer, from `GATELAB_DATA` (gpt2_bpe/encoder.json, gpt2_bpe/vocab.bpe), the cache or OpenAI."""
    folders = places("gpt2_bpe")
    if folders is None:
        encoder, vocab = (fetched(archive, progress) for archive in GPT2_FILES)
        return read_bpe(encoder, vocab)
    paths = []
    for archive in GPT2_FILES:
        path = first_file(folders, [archive.file])
        if path is None:
            raise missing("GPT-2's tokenizer", (folder / archive.file for folder in folders), archive.url)
        paths.append(path)
    return read_bpe(paths[0], paths[1])


# ---- files


def text_file(source: str | Path, progress: Progress | None) -> Path:
    """The file that holds a text, downloaded if need be and allowed."""
    if source in TEXTS:
        archive = TEXTS[str(source)]
        folders = places(archive.folder)
        if folders is not None:
            path = first_file(folders, archive.names)
            if path is None:
                raise missing(str(source), (folder / name for folder in folders for name in archive.names), archive.url)
            return path
        if archive is FINEWEB:
            return fineweb_sample(archive)
        return fetched(archive, progress)
    path = Path(source).expanduser()
    if not path.is_file():
        raise GatelabError(f"there is no file {path}; give one, or one of {', '.join(map(repr, TEXTS))}")
    return path


def is_checked(name: str | Path) -> bool:
    """Whether a text is known by the hash of its content, in whatever form a user's folder has it."""
    return name in TEXTS and bool(TEXTS[str(name)].member)


def text_content(path: Path, name: str | Path) -> bytes:
    """What the file of a text holds, unpacked; refused if it is not the text of that name."""
    if is_checked(name):
        return checked_content(path, TEXTS[str(name)])
    return content(path, "where it came from")


def fineweb_sample(archive: Archive) -> Path:
    """The sample in the cache; made of the first documents of the official file if it is not there."""
    cached = cache_folder() / archive.folder / archive.file
    if cached.is_file() and hashlib.sha256(cached.read_bytes()).hexdigest() == archive.sha256:
        return cached
    way_out = f"give a file of your own, or put {archive.file} into a folder's text/ and set GATELAB_DATA to that"
    try:
        with RangeFile(archive.url) as remote:
            parts, length = [], 0
            for document in documents(remote, archive.url):
                parts.append(document)
                length += len(document)
                if length >= SAMPLE:
                    break
    except (OSError, HTTPException) as error:
        raise GatelabError(f"fineweb-edu cannot be downloaded from {archive.url} ({error}); {way_out}") from error
    sample = "".join(parts)[:SAMPLE].encode()
    digest = hashlib.sha256(sample).hexdigest()
    if digest != archive.sha256:
        raise GatelabError(
            f"the documents at {archive.url} are not those of the sample: sha256 {digest} instead of {archive.sha256};"
            f" {way_out}"
        )
    return write_whole(cached, sample)


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


def tokens_of(path: Path, encoder: BPE | ByteTokenizer) -> Tokens:
    """The tokens of a file, out of the cache if they are there."""
    # A tokenizer that was made by hand has no fingerprint, so nothing is known of what it would have made.
    if not encoder.fingerprint:
        return encoded(path, encoder)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    # The kind of file is a part of what is hashed: documents of one kind end with a token, texts do not.
    kind = {".parquet": "parquet"}.get(path.suffix.lower(), "text")
    return cached_tokens(f"{kind} {digest} {encoder.fingerprint}", lambda: encoded(path, encoder))


def part_tokens(raw: bytes, encoder: BPE | ByteTokenizer) -> Tokens:
    """The tokens of a part of a text, out of the cache if they are there."""

    def tokens() -> Tokens:
        if isinstance(encoder, ByteTokenizer):
            return np.frombuffer(raw, np.uint8)
        return encoder.encode(raw.decode())

    if not encoder.fingerprint:
        return tokens()
    return cached_tokens(f"part {hashlib.sha256(raw).hexdigest()} {encoder.fingerprint}", tokens)


def cached_tokens(key: str, make: Callable[[], Tokens]) -> Tokens:
    """The tokens that the cache has under a key, mapped from there; made and put there if it has none."""
    cached = cache_folder() / "tokens" / f"{fingerprint([key], 24)}.npy"
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


def encoded(path: Path, encoder: BPE | ByteTokenizer) -> Tokens:
    """The tokens of a file."""
    if path.suffix.lower() == ".parquet":
        end = np.array([e for e in (encoder.end,) if e is not None], encoder.dtype)
        parts = [part for document in documents(path, path) for part in (encoder.encode(document), end)]
        return np.concatenate([np.empty(0, encoder.dtype), *parts])
    return encoder.encode(decoded(content(path, "where it came from"), path))


def empty(path: Path) -> GatelabError:
    """The error for a text that has nothing in it."""
    return GatelabError(f"{path} is empty; give a text that has something in it")


def decoded(raw: bytes, path: Path) -> str:
    """The text of bytes that were read from a file; refused if they are none."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise GatelabError(
            f"{path} is not UTF-8 text ({error}); give a text file, gzipped, zipped or not, or Parquet"
        ) from None
