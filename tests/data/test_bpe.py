"""GPT-2's tokenizer: known tokens, texts in parts, files that are spoilt."""

from __future__ import annotations

import json
import random
import sys
from functools import cache

import pytest
from byte_letters import letters

from gatelab.data.tokens import read_bpe, text_parts
from gatelab.errors import GatelabError

# As our own encoder gave them, before the library took its place.
KNOWN = {
    "": "",
    "  two  spaces\n\n\n and\tthree   ": "220 734 220 9029 628 198 290 197 15542 220 220 220",
    "it's they're I'VE don't 'tis we'll'd": "270 338 484 821 314 6 6089 836 470 705 48010 356 1183 1549",
    "<|endoftext|> is text": "27 91 437 1659 5239 91 29 318 2420",
    "\x00\x01\x7f\xad": "188 189 221 3907",
    "Half of a pair \ud83d alone, and\ud83d\ude00two": "31305 286 257 5166 5633 3436 11 290 3548 11545",
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


def test_parts_of_a_text_have_the_tokens_of_the_whole(bpe):
    draw = random.Random(0)
    near = [*map(chr, range(128)), *" \n'  s", "\x85", "\xa0", "\u2003", "é", "½", "一"]
    for _ in range(100):
        text = "".join(draw.choice(near) for _ in range(200))
        parts = list(text_parts(text, draw.randrange(1, 20)))
        assert "".join(parts) == text
        whole = bpe.tokenizer.encode(text).ids
        assert [t for part in parts for t in bpe.tokenizer.encode(part).ids] == whole, repr(text)


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


def test_without_the_library_the_user_is_told_to_install_it_and_not_to_copy_files(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(GatelabError, match=r"^byte-pair encoding needs the library tokenizers, .* pip install"):
        read_bpe(*_small(tmp_path))
