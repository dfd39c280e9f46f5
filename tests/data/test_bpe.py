"""GPT-2's tokenizer: known tokens, the slow obvious way, texts in parts, files that are spoilt; and trained ones."""

from __future__ import annotations

import hashlib
import json
import random
import re
import sys
from collections import Counter
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from byte_letters import letters

from gatelab.data import tokens
from gatelab.data.text import byte_parts, text_data
from gatelab.data.tokens import read_bpe, text_parts, trained_tokenizer
from gatelab.errors import GatelabError

# As our own encoder gave them, before the library took its place.
KNOWN = {
    "": "",
    "\n": "198",
    "  two  spaces\n\n\n and\tthree   ": "220 734 220 9029 628 198 290 197 15542 220 220 220",
    "it's they're I'VE don't 'tis we'll'd": "270 338 484 821 314 6 6089 836 470 705 48010 356 1183 1549",
    "x2 + 3½ = Ⅷ ٣٤ 一二 x²": ("87 17 1343 513 23141 796 2343 227 100 18923 96 149 97 220 31660 12859 234 2124 31185 "),
    "naïve café Ωμέγα Привет 日本語 한국어 العربية": (
        "2616 38776 40304 7377 102 34703 138 255 42063 17394 12466 253 21169 18849 38857 16843 20375 "
        "10545 245 98 17312 105 45739 252 220 47991 250 166 113 255 168 244 112 28981 44690 26897 39848 "
        "22654 45632 "
    ),
    "😀👩\u200d👩\u200d👧 🇩🇪 \u200d️": (
        "47249 222 41840 102 447 235 41840 102 447 235 41840 100 12520 229 102 8582 229 103 564 235 37929 "
    ),
    "a\x1cb\x1d c\x1e\x1f d\x85e\xa0f\u3000g\u2028h": (
        "64 216 65 217 269 218 219 288 126 227 68 1849 69 5099 222 70 447 101 71 "
    ),
    "<|endoftext|> is text": "27 91 437 1659 5239 91 29 318 2420",
    "\x00\x01\x7f\xad": "188 189 221 3907",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa": "24794 24794 24794 24794 24794 24794 24794 24794 64",
    "Half of a pair \ud83d alone, and\ud83d\ude00two": "31305 286 257 5166 5633 3436 11 290 3548 11545",
    "The quick brown fox\n\n    jumps over\r\n\tthe lazy dog.": (
        "464 2068 7586 21831 628 220 220 220 18045 625 201 198 197 1169 16931 3290 13 "
    ),
}


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


@pytest.mark.parametrize("text", KNOWN, ids=ascii)
def test_strange_texts_are_encoded_as_they_were(bpe, text):
    tokens = [int(number) for number in KNOWN[text].split()]
    assert bpe.encode(text).tolist() == tokens
    assert bpe.decode(tokens) == text.encode("utf-8", errors="replace").decode()


def test_a_whole_text_is_encoded_as_it_was(bpe, files):
    digest = "25c01b32b32f41897a6359dd222ec114992dc30c357bcafbfe6c56672f76cd31"
    path = files[0].parents[1] / "text" / "tinyshakespeare.txt"
    if not path.is_file():
        pytest.skip("needs text/tinyshakespeare.txt in GATELAB_DATA")
    assert hashlib.sha256(bpe.encode(path.read_bytes().decode()).tobytes()).hexdigest() == digest


def test_parts_of_a_text_have_the_tokens_of_the_whole(bpe):
    draw = random.Random(0)
    near = [*map(chr, range(128)), *" \n'  s", "\x85", "\xa0", "\u2003", "é", "½", "一"]
    for _ in range(100):
        text = "".join(draw.choice(near) for _ in range(200))
        parts = list(text_parts(text, draw.randrange(1, 20)))
        assert "".join(parts) == text
        whole = bpe.tokenizer.encode(text).ids
        assert [t for part in parts for t in bpe.tokenizer.encode(part).ids] == whole, repr(text)


def _slowly_merged(symbols, merges):
    """The definition: neighbors of the best rank become one, everywhere from left to right, until there are none."""
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


def test_tokens_that_are_none(bpe):
    with pytest.raises(GatelabError, match="50257 is not a token; give numbers from 0 to 50256"):
        bpe.decode([0, 50257])


def _small(tmp_path):
    """The bytes, two merges and the end of text, as GPT-2's files would have them."""
    table = {letter: i for i, letter in enumerate(letters())} | {"ab": 256, "abc": 257, "<|endoftext|>": 258}
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
        (lambda e, v: e.write_text('{"a": 3}'), "does not number its tokens"),
        (lambda e, v: v.write_text("#version\na b\nb d\n"), "do not belong together.*'bd'"),
        (lambda e, v: v.write_text("#version\na b c\n"), "do not belong together"),
    ],
)
def test_spoilt_files_are_refused(tmp_path, spoil, says):
    encoder, vocab = _small(tmp_path)
    spoil(encoder, vocab)
    with pytest.raises(GatelabError, match=says):
        read_bpe(encoder, vocab)


# ---- tokenizers that are trained on a text


def _sentences(count=300, seed=2):
    draw = random.Random(seed)
    words = ["".join(draw.choice("aeinorst") for _ in range(draw.randrange(1, 8))) for _ in range(60)]
    return " ".join(draw.choice(words) for _ in range(count))


def _slowly_trained(text, size):
    """The definition: again and again the most frequent pair within words, of equal ones that of the lowest numbers."""
    ids = {letter: i for i, letter in enumerate(sorted(letters()))}
    words = [[letters()[byte] for byte in word.encode()] for word in re.findall(" ?[a-z]+", text)]
    merges = []
    while len(ids) < size:
        counts = Counter(pair for word in words for pair in pairwise(word))
        best = min(counts, key=lambda pair: (-counts[pair], ids[pair[0]], ids[pair[1]]))
        merges.append(best)
        ids.setdefault("".join(best), len(ids))
        rank = {best: (0, "".join(best))}
        words = [list(_slowly_merged(word, rank)) for word in words]
    return ids, merges


def test_training_is_that_of_the_definition():
    text = _sentences()
    bpe = trained_tokenizer(text.encode(), 330)
    ids, merges = _slowly_trained(text, 330)
    assert (dict(bpe.ids), list(bpe.merges)) == (ids, merges)
    assert (bpe.vocabulary, bpe.end) == (330, None)
    strange = "x2 + 3½ — naïve 日本語\n<|endoftext|>"
    assert bpe.decode(bpe.encode(strange)) == strange  # every byte is a token


def test_a_trained_tokenizer_is_kept(tmp_path, monkeypatch):
    raw, seen = _sentences().encode(), []
    first = trained_tokenizer(raw, 300, lambda *pair: seen.append(pair))
    assert seen[-1] == (len(raw), len(raw))
    assert len(list((tmp_path / "cache" / "tokenizers").iterdir())) == 2
    train = tokens.train_bpe

    def refuse(*_):
        raise AssertionError("trained again")

    monkeypatch.setattr(tokens, "train_bpe", refuse)
    again = trained_tokenizer(raw, 300)
    assert (again.ids, again.merges, again.fingerprint) == (first.ids, first.merges, first.fingerprint)
    for other in ((raw, 301), (raw + b" more", 300)):
        with pytest.raises(AssertionError, match="trained again"):
            trained_tokenizer(*other)
    monkeypatch.setattr(tokens, "train_bpe", train)
    monkeypatch.setenv("GATELAB_CACHE", str(tmp_path / "another"))
    assert trained_tokenizer(raw, 300).fingerprint == first.fingerprint
    for file in (tmp_path / "another" / "tokenizers").glob("*.json"):
        file.write_text("{")
    with pytest.raises(GatelabError, match=r"cannot be read as a tokenizer.*delete both"):
        trained_tokenizer(raw, 300)


def test_a_tokenizer_sees_the_training_part_alone(tmp_path):
    """Another end of the text changes neither the tokenizer nor the training tokens, and its words are no tokens."""
    path, start = tmp_path / "a.txt", _sentences(900)
    data = []
    for word in ("zebra", "quick"):
        path.write_text(start + f" {word}" * (len(start) // 24), encoding="utf-8")  # a fifth of the whole
        data.append(text_data(path, "trained:320", test_fraction=0.1, valid_fraction=0.1))
    assert np.array_equal(data[0].train, data[1].train) and not np.array_equal(data[0].test, data[1].test)
    assert min(len(part) / path.stat().st_size for part in (data[0].valid, data[0].test)) > 0.09  # letter by letter


def test_parts_are_cut_between_characters(tmp_path):
    path = tmp_path / "a.txt"
    for shift in range(4):
        text = "x" * shift + "naïve — 日本 " * 60
        path.write_text(text, encoding="utf-8")
        data = text_data(path, "trained:260", test_fraction=0.15, valid_fraction=0.1)
        parts = byte_parts(path, "a.txt", (0.1, 0.15))
        bpe = trained_tokenizer(parts[0], 260)
        assert "".join(part.decode() for part in parts) == text
        assert [bpe.decode(part) for part in (data.train, data.valid, data.test)] == [part.decode() for part in parts]
        raw = len(text.encode())
        assert 0 <= round(0.15 * raw) - len(parts[2]) < 3 and abs(round(0.1 * raw) - len(parts[1])) < 3
        assert (data.vocabulary, data.train.dtype) == (260, np.uint16)


@pytest.mark.parametrize("tokenizer", ["trained", "trained:256", "trained:65537", "trained:4k"])
def test_sizes_that_are_none(tokenizer):
    with pytest.raises(GatelabError, match=f"tokenizer is '{tokenizer}'; give trained:4096, .* from 257 to 65536"):
        text_data(__file__, tokenizer)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.txt", b"", "a.txt is empty"),
        ("a.txt", b"abc", "tokenizer is trained:300, but the training part.* 3 bytes, has pairs.*for 256 tokens only"),
        ("a.txt", b"\xff\xfe\x00", "is not UTF-8 text"),
        ("a.parquet", b"PAR1", "a.parquet is Parquet, and tokenizers are trained on text; write its documents"),
    ],
)
def test_texts_that_train_no_tokenizer(tmp_path, name, content, says):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(GatelabError, match=says):
        text_data(tmp_path / name, "trained:300")
    assert not (tmp_path / "cache").exists()


def test_without_the_library_the_user_is_told_to_install_it_and_not_to_copy_files(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(GatelabError, match=r"^byte-pair encoding needs the library tokenizers, .* pip install"):
        read_bpe(*_small(tmp_path))
