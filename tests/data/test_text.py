"""Text as tokens: the real texts, files of a user, batches, the cache, and downloads in parts."""

from __future__ import annotations

import gzip
import hashlib
import io
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from byte_letters import letters

from gatelab.arrays import fingerprint
from gatelab.data import batches, text
from gatelab.data.text import TextData, text_data
from gatelab.data.tokens import BPE, ByteTokenizer, gpt2_tokenizer
from gatelab.errors import GatelabError
from gatelab.train.members import data_fingerprint, token_fingerprint

WORDS = "".join(f"line {i}: naïve — {i * i}\n" for i in range(400))


def _whole(data):
    return np.concatenate([data.train, data.test])


# ---- the real ones


@pytest.mark.parametrize(
    ("name", "count"), [pytest.param("tinyshakespeare", 338025, marks=pytest.mark.slow), ("fineweb-edu", 217888)]
)
def test_real_texts(real_data, no_network, tmp_path, name, count):
    if not (real_data / "gpt2_bpe").is_dir() or not (real_data / "text").is_dir():
        pytest.skip("needs text/ and gpt2_bpe/ in GATELAB_DATA")
    data = text_data(name)
    assert len(_whole(data)) == count and data.vocabulary == 50257
    assert data.train.dtype == np.uint16 and len(data.test) == round(0.1 * count)
    assert data.description.startswith(f"{name}: {count - len(data.test)} training tokens, {len(data.test)} test")
    path = real_data / "text" / text.TEXTS[name].file
    assert hashlib.sha256(path.read_bytes()).hexdigest() == text.TEXTS[name].sha256
    assert gpt2_tokenizer().decode(_whole(data)) == path.read_bytes().decode()
    if name == "tinyshakespeare":
        assert len(np.unique(_whole(text_data(name, "bytes")))) == 65
    kept = [np.load(p) for p in (tmp_path / "cache" / "tokens").iterdir()]
    assert any(np.array_equal(tokens, _whole(data)) for tokens in kept)


def test_enwik8_has_the_parts_of_the_literature(real_enwik8, no_network):
    data = text_data("enwik8", "bytes")
    parts, whole = (data.train, data.valid, data.test), hashlib.md5(usedforsecurity=False)
    assert [len(part) for part in parts] == [90_000_000, 5_000_000, 5_000_000]
    assert {part.dtype for part in parts} == {np.dtype(np.uint8)} and data.vocabulary == 256
    for part in parts:
        whole.update(part)
    assert whole.hexdigest() == "a1fa5ffddb56f4953e226637dabbb36a"


# ---- files of a user


def _zipped(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return out.getvalue()


def _parquet(documents, column="text", group=3):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    out = io.BytesIO()
    pq.write_table(pa.table({column: documents, "id": range(len(documents))}), out, row_group_size=group)
    return out.getvalue()


def _packed(name, content):
    """The content as a file of that name would hold it."""
    if name.endswith(".gz"):
        return gzip.compress(content, mtime=0)
    if name.endswith(".zip"):
        return _zipped({"inside": content})
    return content


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.zip"])
def test_a_file_byte_by_byte(tmp_path, no_network, name):
    path = tmp_path / name
    path.write_bytes(_packed(name, WORDS.encode()))
    data = text_data(path, "bytes", test_fraction=0.25)
    assert bytes(_whole(data)) == WORDS.encode() and data.train.dtype == np.uint8
    assert (data.vocabulary, data.name, data.valid) == (256, name, None)
    assert len(data.test) == round(0.25 * len(WORDS.encode()))


def test_a_part_for_validation(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(WORDS, encoding="utf-8")
    raw = WORDS.encode()
    data = text_data(path, "bytes", valid_fraction=0.2, test_fraction=0.1)
    n_valid, n_test = round(0.2 * len(raw)), round(0.1 * len(raw))
    assert bytes(data.test) == raw[-n_test:] == bytes(text_data(path, "bytes").test)
    assert bytes(data.valid) == raw[-n_valid - n_test : -n_test]
    assert bytes(data.train) == raw[: -n_valid - n_test]
    assert f"{n_valid} validation" in repr(data) and f"{n_valid} validation tokens" in data.description
    followers = torch.cat([y.flatten() for _, y in data.batches("valid", 3, 10)])
    assert bytes(followers.tolist()) == bytes(data.valid[1 : 1 + len(followers)]) and n_valid - len(followers) <= 10


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

    with monkeypatch.context() as patch:
        patch.setattr(ByteTokenizer, "encode", refuse)
        assert np.array_equal(_whole(text_data(path, "bytes")), first)
    path.write_text(WORDS + "more", encoding="utf-8")
    assert len(_whole(text_data(path, "bytes"))) == len(first) + 4


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.txt", b"\xff\xfe\x00", "is not UTF-8 text"),
        ("a.txt", b"", "a.txt is empty; give a text"),
        ("a.parquet", lambda: _parquet(["", None]), "is empty; give a text"),
        ("a.zip", lambda: _zipped({"one": b"a" * 99, "two": b"b"}), "cannot be read.*2 files instead of one"),
        ("a.zip", lambda: _zipped({"one": b"a" * 99})[:50], "cannot be read.*cut short or altered"),
        ("a.txt", b"ab", "has 2 tokens; give a text of which all parts"),
        ("a.txt.gz", gzip.compress(b"abc" * 99, mtime=0)[:20], "cannot be read.*cut short or altered"),
        ("a.parquet", b"PAR1 and no more", "is not a whole Parquet file"),
        ("a.parquet", lambda: _parquet(["abc"], column="words"), "has no column 'text'; it has words, id"),
    ],
)
def test_bad_files_are_refused(tmp_path, name, content, says):
    (tmp_path / name).write_bytes(content() if callable(content) else content)
    with pytest.raises(GatelabError, match=says):
        text_data(tmp_path / name, "bytes")


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


def _slow_epochs(data, context, epochs, seed):
    """The definition: cut the training tokens, and go through the windows in the order that each epoch draws."""
    tokens, cut = data.train.tolist(), []
    while len(tokens) > context:
        cut.append((tokens[:context], tokens[1 : context + 1]))
        tokens = tokens[context:]
    orders = [torch.randperm(len(cut), generator=batches.stream(seed, batches.ORDER, epoch)) for epoch in range(epochs)]
    return [cut[int(i)] for order in orders for i in order], len(cut)


@pytest.mark.parametrize("n_test", [19, 20])
@pytest.mark.parametrize(("size", "context"), [(3, 8), (25, 8), (1, 76), (7, 1)])
def test_an_epoch_has_every_window_once(size, context, n_test):
    data = _counting(n_test=n_test)
    slow, count = _slow_epochs(data, context, 4, seed=3)
    steps = len(slow) // size
    starts = torch.cat([data.epoch_starts(step, size, context, 3) for step in range(steps)])
    assert starts.dtype == torch.int64 and count == (len(data.train) - 1) // context
    x, y = (part.tolist() for part in text.windows(data.train, starts, context))
    assert list(zip(x, y, strict=True)) == slow[: steps * size]


def test_tuning_takes_validation_tokens_for_test_tokens():
    tokens = np.arange(100, dtype=np.uint8)
    data = TextData("counting", tokens[:70], tokens[90:], 100, valid=tokens[70:90])
    tuned = data.tuning()
    assert tuned.test.tolist() == list(range(70, 90)) and tuned.train is data.train and tuned.valid is None
    assert data.test.tolist() == list(range(90, 100))  # the data themselves are what they were
    with pytest.raises(GatelabError, match="counting has no validation tokens to choose by; read it with valid_frac"):
        tuned.tuning()


def test_the_first_of_the_training_tokens():
    tokens = np.arange(100, dtype=np.uint8)
    data = TextData("counting", tokens[:70], tokens[90:], 100, valid=tokens[70:90])
    few = data.first(0.1)
    assert few.train.tolist() == list(range(7)) and few.valid is data.valid and few.test is data.test
    assert data.first(1).train.tolist() == list(range(70))
    assert np.shares_memory(few.train, tokens)
    # A tenth of the tokens, read ten times: every window ten times in as many steps as once through ten of them takes.
    starts = torch.cat([few.epoch_starts(step, 3, 2, seed=0) for step in range(10)]).tolist()
    assert sorted(starts) == [0] * 10 + [2] * 10 + [4] * 10
    for share in (0, -0.1, 1.01, float("nan"), "0.5"):
        with pytest.raises(GatelabError, match=r"share is .*; give a number above 0 and at most 1"):
            data.first(share)
    with pytest.raises(GatelabError, match=r"a share of 0\.02 of the 70 training tokens of counting is 1; give"):
        data.first(0.02)


def test_hashes_of_tokens_depend_on_their_parts_and_not_on_their_type():
    tokens = np.random.default_rng(0).integers(0, 256, 100, dtype=np.uint8)
    narrow, wide = (TextData("chance", t[:80], t[80:], 256) for t in (tokens, tokens.astype(np.uint16)))
    assert data_fingerprint(narrow) == data_fingerprint(wide)
    joined = {token_fingerprint(data.train, data.test) for data in (narrow, wide)}
    assert joined == {fingerprint([tokens.astype(np.uint16)], 16)}
    # Whatever the parts are, their tokens one after the other are the same.
    parts = [narrow, TextData("chance", tokens[:70], tokens[70:], 256), replace(narrow, vocabulary=300)]
    parts += [replace(narrow, valid=tokens[:10]), replace(narrow, valid=tokens[:20])]
    large = [np.arange(10, dtype=np.int32) + first for first in (70_000, 70_000 - 2**16)]
    parts += [TextData("wide", tokens, tokens, 80_000) for tokens in large]
    assert len({data_fingerprint(data) for data in parts}) == 7


def test_a_damaged_cache_is_made_again_and_one_that_takes_no_files_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("GATELAB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "a.txt").write_text("some text of my own " * 10)
    tokens = np.array(text_data(tmp_path / "a.txt", "bytes").train)
    (cached,) = (tmp_path / "cache" / "tokens").iterdir()
    for damage in (b"", b"junk", cached.read_bytes()[:-50]):
        cached.write_bytes(damage)
        assert (text_data(tmp_path / "a.txt", "bytes").train == tokens).all()
    monkeypatch.setenv("GATELAB_CACHE", str(tmp_path / "a.txt"))
    assert (text_data(tmp_path / "a.txt", "bytes").train == tokens).all()


def test_parquet_is_known_by_its_ending_in_capitals_and_has_texts_alone(tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pd.DataFrame({"text": ["some text"] * 9}).to_parquet(tmp_path / "A.PARQUET")
    assert bytes(text_data(tmp_path / "A.PARQUET", "bytes").test) == b"some text"[1:]
    pd.DataFrame({"text": [1, 2]}).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(GatelabError, match=r"the column 'text' of .*b\.parquet contains 1; give texts"):
        text_data(tmp_path / "b.parquet", "bytes")


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (np.arange(9) - 1, "the train tokens are -1 to 7 and the vocabulary has 8; give tokens from 0 to 7"),
        (np.arange(9, dtype=np.uint8), "the train tokens are 0 to 8 and the vocabulary has 8"),
        (np.arange(8) + 0.5, r"the train tokens have the shape \(8,\) and float64; give whole numbers"),
        (np.zeros((2, 4), int), r"shape \(2, 4\)"),
        (["a"], "give whole numbers"),
    ],
)
def test_tokens_are_numbers_of_the_vocabulary(tokens, message):
    with pytest.raises(GatelabError, match=message):
        TextData("own", tokens, np.arange(4), 8)
    lists = TextData("own", [1, 2, 3], torch.arange(4), 8)
    assert lists.train.tolist() == [1, 2, 3] and lists.test.tolist() == [0, 1, 2, 3]


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
        (lambda d: d.batch(0, 0, 8), "size is 0"),
        (lambda d: d.epoch_starts(-1, 2, 8), "step is -1"),
        (lambda d: list(d.batches("valid", 2, 6)), "no part is called 'valid'"),
        (lambda _: text_data("nowhere.txt"), "there is no file nowhere.txt; give one, or one of 'fineweb-edu'"),
        (lambda _: text_data(__file__, "gpt3"), "no tokenizer is called 'gpt3'; did you mean 'gpt2'"),
        (lambda _: text_data(__file__, test_fraction=0), "test_fraction is 0; give a number above"),
        (lambda _: text_data(__file__, valid_fraction=0.95), "are 0.95 and 0.1, which leaves no token for training"),
        (lambda _: text_data("enwik8", test_fraction=0.1), "test_fraction is 0.1, but enwik8 has the standard.*leave"),
        (lambda _: text_data("enwik8", valid_fraction=0.1), r"0 \+ 5000000 \+ 5000000 bytes; leave valid_fraction out"),
    ],
)
def test_bad_questions(ask, says):
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


SMALL = tuple(WORDS[i : i + n].encode() for i, n in ((0, 5000), (5000, 300), (5300, 400)))


def _small_enwik8(monkeypatch, url="http://127.0.0.1/enwik8.zip"):
    """A text of three parts in the place of enwik8."""
    raw = b"".join(SMALL)
    small = replace(text.ENWIK8, url=url, sha256=hashlib.sha256(raw).hexdigest())
    monkeypatch.setitem(text.TEXTS, "enwik8", small)
    monkeypatch.setitem(text.SPLITS, "enwik8", tuple(map(len, SMALL)))
    return raw


def test_parts_of_enwik8_are_encoded_by_themselves(tmp_path, monkeypatch):
    bpe = BPE({**{letter: byte for byte, letter in enumerate(letters())}, "in": 256}, [("i", "n")], fingerprint="small")
    (tmp_path / "enwik8").write_bytes(_small_enwik8(monkeypatch))
    monkeypatch.setenv("GATELAB_DATA", str(tmp_path))
    for _ in range(2):
        data = text_data("enwik8", bpe)
        assert [bpe.decode(part) for part in (data.train, data.valid, data.test)] == [part.decode() for part in SMALL]
        assert data.train.dtype == np.uint16 and data.vocabulary == 257 and len(data.train) < len(SMALL[0])


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda s: s.url("enwik8.zip", b"no zip at all"), "not a zip file.*by hand as enwik8.zip"),
        (lambda s: s.url("enwik8.zip", _zipped({"a": b"", "b": b""})), "2 files instead of one or enwik8"),
        (lambda s: s.url("enwik8.zip", _zipped({"enwik8": b"other"})), "does not match the known hash"),
    ],
    ids=["no zip", "elsewhere", "other"],
)
def test_a_bad_download_of_enwik8_is_refused_and_not_kept(tmp_path, server, monkeypatch, spoil, says):
    _small_enwik8(monkeypatch, server.url("enwik8.zip", _zipped({"enwik8": b"".join(SMALL)})))
    spoil(server)
    with pytest.raises(GatelabError, match=says):
        text_data("enwik8", "bytes")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


WIKI, ALTERED = WORDS.encode(), WORDS.encode()[:-1]
WIKI_ZIP = "wikitext-2-raw-v1.zip"
WIKI_NAMES = ["wiki.test.raw", "wiki.test.raw.gz", "wiki.test.raw.zip", "wikitext-2-raw/wiki.test.raw", WIKI_ZIP]


def _small_wikitext2(monkeypatch, url=f"http://127.0.0.1/{WIKI_ZIP}"):
    """A short text in the place of WikiText-2's test text."""
    small = replace(text.WIKITEXT2, url=url, sha256=hashlib.sha256(WIKI).hexdigest())
    monkeypatch.setitem(text.TEXTS, "wikitext-2", small)


def _wikitext2_zip(test, folder="wikitext-2-raw/"):
    """An archive of the official layout; one block of a download does not hold the training text."""
    train = np.random.default_rng(0).bytes(2**20 + 2**16)
    files = {"wiki.train.raw": train, "wiki.valid.raw": b"valid", "wiki.test.raw": test}
    return _zipped({f"{folder}{name}": content for name, content in files.items()})


def _put_wikitext2(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_wikitext2_zip(content) if path.name == WIKI_ZIP else _packed(path.name, content))


@pytest.mark.parametrize("folder", ["text", "."])
@pytest.mark.parametrize("name", WIKI_NAMES)
def test_wikitext2_in_a_folder_and_another_text_in_its_place(tmp_path, monkeypatch, no_network, name, folder):
    _small_wikitext2(monkeypatch)
    monkeypatch.setenv("GATELAB_DATA", str(tmp_path))
    path = tmp_path / folder / name
    _put_wikitext2(path, WIKI)
    for _ in range(2):
        data = text_data("wikitext-2", "bytes", test_fraction=0.25)
        assert bytes(_whole(data)) == WIKI and len(data.test) == round(0.25 * len(WIKI))
        assert (data.name, data.vocabulary, data.train.dtype, data.valid) == ("wikitext-2", 256, np.uint8, None)
    _put_wikitext2(path, ALTERED)
    if name != WIKI_ZIP:  # as a file of the user it may be anything; that its tokens are then kept changes nothing
        assert bytes(_whole(text_data(path, "bytes"))) == ALTERED
    refused = rf"{path.name} is not wiki\.test\.raw: it holds {len(ALTERED)} bytes.*instead of.*copy"
    with pytest.raises(GatelabError, match=refused):
        text_data("wikitext-2", "bytes")


def test_wikitext2_is_downloaded_once_and_its_test_text_kept(tmp_path, server, monkeypatch):
    packed = _wikitext2_zip(WIKI)
    assert len(packed) > 2**20
    _small_wikitext2(monkeypatch, server.url(WIKI_ZIP, packed))
    seen = []
    for _ in range(2):
        data = text_data("wikitext-2", "bytes", progress=lambda *pair: seen.append(pair))
        assert bytes(_whole(data)) == WIKI
    assert server.asked == [f"/{WIKI_ZIP}"] and seen[-1] == (len(packed), len(packed))
    assert [path.name for path in (tmp_path / "cache" / "text").iterdir()] == ["wiki.test.raw"]
    assert (tmp_path / "cache" / "text" / "wiki.test.raw").read_bytes() == WIKI


def _fineweb(server, monkeypatch, characters=300):
    """A file of the official layout of which the sample is a small part."""
    draw = np.random.default_rng(0)
    documents = ["".join(map(chr, draw.integers(0x20, 0x2FF, 100))) for _ in range(600)]
    url = server.url("000_00000.parquet", _parquet(documents, group=20))
    sample = "".join(documents)[:characters].encode()
    small = replace(text.FINEWEB, url=url, sha256=hashlib.sha256(sample).hexdigest())
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
        (lambda s: setattr(s, "parts", False), "cannot be downloaded.*does not support range"),
        (lambda s: s.url("000_00000.parquet", _parquet(["others"] * 99)), "does not match the known hash"),
        (lambda s: s.url("000_00000.parquet", b"no parquet at all"), "is not a whole Parquet file"),
    ],
    ids=["no parts", "others", "no parquet"],
)
def test_a_bad_download_of_fineweb_is_refused_and_not_kept(tmp_path, server, monkeypatch, spoil, says):
    _fineweb(server, monkeypatch)
    spoil(server)
    with pytest.raises(GatelabError, match=says):
        text_data("fineweb-edu", "bytes")
    assert not list((tmp_path / "cache").rglob("*.*"))
