"""GPT-2's tokenizer: known tokens, other implementations, the slow obvious way, and files that are spoilt."""

from __future__ import annotations

import json
import random
import time
import unicodedata
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from gatelab.data.text import _letters, _merged, read_bpe
from gatelab.errors import GatelabError

STRANGE = [
    "",
    " ",
    "\n",
    "  two  spaces\n\n\n and\tthree   ",
    "it's they're I'VE don't 'tis we'll'd",
    "x2 + 3½ = Ⅷ ٣٤ 一二 x²",
    "naïve café Ωμέγα Привет 日本語 한국어 العربية",
    "😀👩‍👩‍👧 🇩🇪 \u200d\ufe0f",
    "a\x1cb\x1d c\x1e\x1f d\x85e\xa0f\u3000g\u2028h",
    "<|endoftext|> is text",
    "_under__score_ --- ...!?",
    "\x00\x01\x7f\xad",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
]


@pytest.fixture
def files(real_data):
    folder = real_data / "gpt2_bpe"
    if not folder.is_dir():
        pytest.skip("needs GPT-2's encoder.json and vocab.bpe: set GATELAB_DATA")
    return folder / "encoder.json", folder / "vocab.bpe"


@cache
def _read_once(encoder, vocab):
    return read_bpe(encoder, vocab)


@pytest.fixture
def bpe(files):
    return _read_once(*files)


def test_known_tokens(bpe):
    assert (bpe.vocabulary, bpe.end) == (50257, 50256)
    assert bpe.encode("Hello world").tolist() == [15496, 995]
    assert bpe.encode("Hello world").dtype == np.uint16
    assert bpe.decode([15496, 995, 50256]) == "Hello world<|endoftext|>"


@pytest.mark.parametrize(("name", "count"), [("tinyshakespeare", 338025), ("fineweb_edu_sample", 217888)])
def test_counts_of_whole_texts_and_back(bpe, files, name, count):
    path = files[0].parents[1] / "text" / f"{name}.txt"
    if not path.is_file():
        pytest.skip(f"needs text/{name}.txt in GATELAB_DATA")
    text = path.read_bytes().decode()
    start = time.perf_counter()
    tokens = bpe.encode(text)
    assert time.perf_counter() - start < 20  # about one second; a word that is not remembered makes it minutes
    assert len(tokens) == count
    assert bpe.decode(tokens) == text


def test_the_tokenizers_library_agrees(bpe, files):
    """Every strange text, and 400 texts of letters drawn from all of Unicode that both know."""
    tokenizers = pytest.importorskip("tokenizers")
    theirs = tokenizers.ByteLevelBPETokenizer(*map(str, files))
    draw = random.Random(0)
    # Letters that are newer than one of the two versions of Unicode may be words in one and symbols in the other.
    old = [c for c in range(0x30000) if unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cs")]
    texts = STRANGE + ["".join(chr(draw.choice(old)) for _ in range(30)) for _ in range(200)]
    near = [*map(chr, range(128)), *" \n'  s", "\x85", "\xa0", "\u2003", "é", "½", "一"]
    texts += ["".join(draw.choice(near) for _ in range(40)) for _ in range(200)]
    for text in texts:
        assert bpe.encode(text).tolist() == theirs.encode(text).ids, repr(text)
        assert bpe.decode(bpe.encode(text)) == text


def _slowly_merged(symbols, merges):
    """The definition: neighbours of the best rank become one, everywhere from left to right, until there are none."""
    symbols = list(symbols)
    while True:
        ranks = [merges.get(pair, (len(merges),))[0] for pair in pairwise(symbols)]
        if not ranks or min(ranks) == len(merges):
            return tuple(symbols)
        best = symbols[ranks.index(min(ranks))], symbols[ranks.index(min(ranks)) + 1]
        out, i = [], 0
        while i < len(symbols):
            if tuple(symbols[i : i + 2]) == best:
                out.append(merges[best][1])
                i += 2
            else:
                out.append(symbols[i])
                i += 1
        symbols = out


def test_merging_is_that_of_the_definition(bpe):
    draw = random.Random(1)
    bytes_of = [bpe.ids[bytes([b])] for b in range(256)]
    for text in (b"aaaaaaa", b"abababab", b" the theatre", b"mississippi" * 3):
        symbols = [bytes_of[b] for b in text]
        assert _merged(list(symbols), bpe.merges) == _slowly_merged(symbols, bpe.merges)
    for _ in range(300):
        symbols = [bytes_of[draw.choice(b" aeinorst")] for _ in range(draw.randrange(1, 40))]
        assert _merged(list(symbols), bpe.merges) == _slowly_merged(symbols, bpe.merges)


def test_a_word_without_end_takes_no_square_of_time(bpe):
    start = time.perf_counter()
    tokens = bpe.encode("ab" * 50_000)
    assert time.perf_counter() - start < 20  # 10^10 steps if it were quadratic
    assert bpe.decode(tokens) == "ab" * 50_000


def test_no_letters_or_numbers_beyond_the_fourth_plane():
    assert not any(unicodedata.category(chr(c))[0] in "LN" for c in range(0x40000, 0x110000))


def test_tokens_that_are_none(bpe):
    with pytest.raises(GatelabError, match="50257 is no token; give numbers from 0 to 50256"):
        bpe.decode([0, 50257])


def _small(tmp_path):
    """The bytes, two merges and the end of text, as GPT-2's files would have them."""
    table = {letter: i for i, letter in enumerate(_letters())} | {"ab": 256, "abc": 257, "<|endoftext|>": 258}
    (tmp_path / "encoder.json").write_text(json.dumps(table), encoding="utf-8")
    (tmp_path / "vocab.bpe").write_text("#version: 0.2\na b\nab c\n", encoding="utf-8")
    return tmp_path / "encoder.json", tmp_path / "vocab.bpe"


def test_a_small_tokenizer(tmp_path):
    small = read_bpe(*_small(tmp_path))
    assert small.encode("abc ab é").tolist() == [257, 32, 256, 32, 0xC3, 0xA9]
    assert small.decode([0xC3]) == "\ufffd"
    assert (small.vocabulary, small.end) == (259, 258)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda e, v: e.unlink(), "cannot be read as a tokenizer"),
        (lambda e, v: e.write_text(e.read_text()[:1000]), "cannot be read as a tokenizer.*copy GPT-2's"),
        (lambda e, v: e.write_text("{}"), "do not belong together"),
        (lambda e, v: e.write_text('{"a": 3}'), "does not number its tokens"),
        (lambda e, v: v.write_text("#version\na b\nb d\n"), "do not belong together.*'bd'"),
        (lambda e, v: v.write_text("#version\na b c\n"), "do not belong together"),
        (lambda e, v: v.write_bytes(b"\xff\xfe"), "cannot be read as a tokenizer"),
    ],
)
def test_spoilt_files_are_refused(tmp_path, spoil, says):
    encoder, vocab = _small(tmp_path)
    spoil(encoder, vocab)
    with pytest.raises(GatelabError, match=says):
        read_bpe(encoder, vocab)
