"""Text as tokens: the real texts, files of a user, batches, the cache, and downloads in parts."""

from __future__ import annotations

import gzip
import hashlib
import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from byte_letters import letters

from gatelab.data import text
from gatelab.data.text import BPE, TextData, gpt2_tokenizer, text_data
from gatelab.errors import GatelabError

WORDS = "".join(f"line {i}: naïve — {i * i}\n" for i in range(400))


def _whole(data):
    return np.concatenate([data.train, data.test])


# ---- the real ones


@pytest.mark.parametrize(("name", "count"), [("tinyshakespeare", 338025), ("fineweb-edu", 217888)])
def test_real_texts(real_data, no_network, tmp_path, name, count):
    if not (real_data / "gpt2_bpe").is_dir() or not (real_data / "text").is_dir():
        pytest.skip("needs text/ and gpt2_bpe/ in GATELAB_DATA")
    data = text_data(name)
    assert len(_whole(data)) == count and data.vocabulary == 50257
    assert data.train.dtype == np.uint16 and len(data.test) == round(0.1 * count)
    assert data.description.startswith(f"{name}: {count - len(data.test)} training tokens, {len(data.test)} test")
    path = real_data / "text" / text.TEXTS[name].file
    assert hashlib.sha256(path.read_bytes()).hexdigest() == text.TEXTS[name].sha256
    assert path.stat().st_size == text.TEXTS[name].size
    assert gpt2_tokenizer().decode(_whole(data)) == path.read_bytes().decode()
    if name == "tinyshakespeare":
        assert len(np.unique(_whole(text_data(name, "bytes")))) == 65
    kept = [np.load(p) for p in (tmp_path / "cache" / "tokens").iterdir()]
    assert any(np.array_equal(tokens, _whole(data)) for tokens in kept)


def test_the_tokenizer_is_the_official_one(real_data):
    if not (real_data / "gpt2_bpe").is_dir():
        pytest.skip("needs gpt2_bpe/ in GATELAB_DATA")
    for archive in text.GPT2_FILES:
        path = real_data / "gpt2_bpe" / archive.file
        assert hashlib.sha256(path.read_bytes()).hexdigest() == archive.sha256
        assert path.stat().st_size == archive.size
    assert gpt2_tokenizer().encode("Hello world").tolist() == [15496, 995]


# ---- files of a user


def _parquet(documents, column="text", group=3):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    out = io.BytesIO()
    pq.write_table(pa.table({column: documents, "id": range(len(documents))}), out, row_group_size=group)
    return out.getvalue()


@pytest.mark.parametrize("packed", [True, False])
def test_a_file_byte_by_byte(tmp_path, no_network, packed):
    path = tmp_path / ("a.txt.gz" if packed else "a.txt")
    path.write_bytes(gzip.compress(WORDS.encode(), mtime=0) if packed else WORDS.encode())
    data = text_data(path, "bytes", test_fraction=0.25)
    assert bytes(_whole(data).astype(np.uint8)) == WORDS.encode()
    assert (data.vocabulary, data.name) == (256, path.name)
    assert len(data.test) == round(0.25 * len(WORDS.encode()))


def test_documents_of_parquet_end_with_a_token(tmp_path):
    bpe = BPE({letter: byte for byte, letter in enumerate(letters())}, [], end=256)
    (tmp_path / "a.parquet").write_bytes(_parquet(["ab", "c", None, "dé"]))
    data = text_data(tmp_path / "a.parquet", bpe, test_fraction=0.2)
    assert _whole(data).tolist() == [97, 98, 256, 99, 256, 256, 100, 0xC3, 0xA9, 256]
    assert data.vocabulary == 257
    assert not (tmp_path / "cache" / "tokens").exists()  # nothing tells this tokenizer from others


def test_tokens_are_kept_and_told_apart(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text(WORDS, encoding="utf-8")
    first = _whole(text_data(path, "bytes"))
    kept = list((tmp_path / "cache" / "tokens").iterdir())
    assert len(kept) == 1 and kept[0].suffix == ".npy"

    def refuse(*_):
        raise AssertionError("encoded again")

    encoded = text.encoded
    monkeypatch.setattr(text, "encoded", refuse)
    assert np.array_equal(_whole(text_data(path, "bytes")), first)
    monkeypatch.setattr(text, "encoded", encoded)
    path.write_text(WORDS + "more", encoding="utf-8")
    assert len(_whole(text_data(path, "bytes"))) == len(first) + 4


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.txt", b"\xff\xfe\x00", "is not UTF-8 text"),
        ("a.txt", b"ab", "has 2 tokens; give a text of which both parts"),
        ("a.txt.gz", gzip.compress(b"abc" * 99, mtime=0)[:20], "cannot be read.*cut short or altered"),
        ("a.parquet", b"PAR1 and no more", "is not a whole Parquet file"),
        ("a.parquet", lambda: _parquet(["abc"], column="words"), "has no column 'text'; it has words, id"),
        ("a.parquet", lambda: _parquet(["abc"] * 9)[:-30], "is not a whole Parquet file"),
    ],
)
def test_bad_files_are_refused(tmp_path, name, content, says):
    (tmp_path / name).write_bytes(content() if callable(content) else content)
    with pytest.raises(GatelabError, match=says):
        text_data(tmp_path / name, "bytes")


@pytest.mark.parametrize(
    ("source", "options", "says"),
    [
        ("nowhere.txt", {}, "there is no file nowhere.txt; give one, or one of 'fineweb-edu'"),
        (__file__, {"tokenizer": "gpt3"}, "no tokenizer is called 'gpt3'; did you mean 'gpt2'"),
        (__file__, {"test_fraction": 0}, "test_fraction is 0; give a number between"),
    ],
)
def test_bad_questions(source, options, says):
    with pytest.raises(GatelabError, match=says):
        text_data(source, **options)


# ---- batches


def _counting(n=100, n_test=20):
    tokens = np.arange(n, dtype=np.uint16)
    return TextData("counting", tokens[:-n_test], tokens[-n_test:], n)


def test_batches_are_functions_of_the_step():
    data = _counting()
    state = torch.get_rng_state()
    x, y = data.batch(7, 16, 8, seed=1)
    assert x.dtype == torch.int64 and x.shape == y.shape == (16, 8)
    assert torch.equal(y, x + 1) and torch.equal(x, x[:, :1] + torch.arange(8))
    assert torch.equal(data.batch(7, 16, 8, seed=1)[0], x)
    assert not torch.equal(data.batch(8, 16, 8, seed=1)[0], x)
    assert not torch.equal(data.batch(7, 16, 8, seed=2)[0], x)
    assert torch.equal(torch.get_rng_state(), state)


def test_windows_start_everywhere():
    """72 starts, 5120 draws: that one is never drawn has the probability 72 e^-71."""
    data = _counting()
    starts = torch.cat([data.batch(step, 512, 8)[0][:, 0] for step in range(10)])
    assert sorted(set(starts.tolist())) == list(range(72))
    assert torch.cat([data.batch(step, 512, 8)[1] for step in range(10)]).max() == 79  # never a test token


def test_windows_in_order_see_each_token_once():
    data = _counting()
    for part, first, last in (("train", 1, 80), ("test", 81, 100)):
        followers = torch.cat([y.flatten() for _, y in data.batches(part, 2, 6)])
        assert followers.tolist() == list(range(first, first + len(followers)))
        assert last - first - 6 < len(followers) <= last - first
    assert [len(x) for x, _ in data.batches("test", 2, 6)] == [2, 1]
    exact = _counting(n_test=19)
    assert sum(len(x) for x, _ in exact.batches("test", 2, 6)) == 3


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda d: d.batch(0, 2, 80), "counting has 80 training tokens, fewer than a context of 80"),
        (lambda d: list(d.batches("test", 2, 20)), "counting has 20 test tokens"),
        (lambda d: d.batch(0, 0, 8), "size is 0"),
        (lambda d: d.batch(0, 2, 0), "context is 0"),
        (lambda d: list(d.batches("tests", 2, 6)), "no part is called 'tests'"),
    ],
)
def test_bad_batches(ask, says):
    with pytest.raises(GatelabError, match=says):
        ask(_counting())


# ---- where they are looked for


def test_a_folder_without_them_is_an_error_and_no_download(tmp_path, monkeypatch, no_network):
    monkeypatch.setenv("GATELAB_DATA", str(tmp_path))
    for name in text.TEXTS:
        with pytest.raises(GatelabError, match=f"{name} is not in GATELAB_DATA.*unset GATELAB_DATA"):
            text_data(name, "bytes")
    with pytest.raises(GatelabError, match=r"GPT-2's tokenizer is not in GATELAB_DATA.*encoder\.json"):
        gpt2_tokenizer()


def test_shakespeare_is_downloaded_once(tmp_path, server, monkeypatch):
    content = WORDS.encode()
    url = server.url("input.txt", content)
    small = replace(text.SHAKESPEARE, url=url, sha256=hashlib.sha256(content).hexdigest(), size=len(content))
    monkeypatch.setitem(text.TEXTS, "tinyshakespeare", small)
    for _ in range(2):
        assert len(_whole(text_data("tinyshakespeare", "bytes"))) == len(content)
    assert server.asked == ["/input.txt"]


def _fineweb(server, monkeypatch, characters=300):
    """A file of the official layout of which the sample is a small part."""
    draw = np.random.default_rng(0)
    documents = ["".join(map(chr, draw.integers(0x20, 0x2FF, 100))) for _ in range(600)]
    url = server.url("000_00000.parquet", _parquet(documents, group=20))
    sample = "".join(documents)[:characters].encode()
    small = replace(text.FINEWEB, url=url, sha256=hashlib.sha256(sample).hexdigest(), size=len(sample))
    monkeypatch.setattr(text, "FINEWEB", small)
    monkeypatch.setattr(text, "SAMPLE", characters)
    monkeypatch.setitem(text.TEXTS, "fineweb-edu", small)
    return sample


def test_of_fineweb_only_the_sample_is_transferred(server, monkeypatch):
    sample = _fineweb(server, monkeypatch)
    for _ in range(2):
        data = text_data("fineweb-edu", "bytes")
        assert bytes(_whole(data).astype(np.uint8)) == sample
    whole = len(server.files["/000_00000.parquet"])
    assert whole > 60_000 and server.sent < 0.5 * whole


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda s: setattr(s, "parts", False), "cannot be downloaded.*does not give parts"),
        (lambda s: s.files.clear(), "cannot be downloaded.*404"),
        (lambda s: s.url("000_00000.parquet", _parquet(["others"] * 99)), "are not those of the sample"),
        (lambda s: s.url("000_00000.parquet", b"no parquet at all"), "is not a whole Parquet file"),
    ],
    ids=["no parts", "404", "others", "no parquet"],
)
def test_a_bad_download_of_fineweb_is_refused_and_not_kept(tmp_path, server, monkeypatch, spoil, says):
    _fineweb(server, monkeypatch)
    spoil(server)
    with pytest.raises(GatelabError, match=says):
        text_data("fineweb-edu", "bytes")
    assert not list((tmp_path / "cache").rglob("*.*"))
