"""Models from disk, texts as windows, and errors for those that cannot be read."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from gatelab.anatomy import load_model, log_perplexity, split, windows
from gatelab.data.archives import data_folder
from gatelab.errors import GatelabError
from gatelab.models import GPT2
from tiny_models import tiny

pytest.importorskip("transformers")


def tiny_llama():
    return tiny("llama", vocabulary=64, width=40, tie_word_embeddings=True)


class Letters:
    """A tokenizer of 64 letters."""

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) % 64 for letter in text]}


def test_a_folder_of_transformers_gives_the_model_that_was_saved(tmp_path: Path):
    model = tiny_llama()
    model.save_pretrained(tmp_path)
    read, tokenizer = load_model(tmp_path)
    rows = torch.randint(64, (2, 9))
    assert type(read) is type(model) and tokenizer is None and not read.training
    assert torch.equal(read(rows).logits, model(rows).logits)
    by_file, _ = load_model(tmp_path / "model.safetensors")
    assert torch.equal(by_file(rows).logits, model(rows).logits)


@pytest.mark.skipif(data_folder() is None, reason="GATELAB_DATA names no folder of data")
def test_stories260k_tells_the_story_that_it_is_known_to_tell():
    model, tokenizer = load_model("stories260k")
    text = model.generate(torch.tensor([[1]]), max_new_tokens=24, do_sample=False)[0, 1:]
    assert tokenizer.decode(text).startswith("Once upon a time, there was a little girl named Lily.")
    assert tokenizer.decode(tokenizer("A café, near the sea")["input_ids"]) == "A café, near the sea"
    story = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park."
    assert log_perplexity(model, windows(story, tokenizer, 16)) < 3


def test_pickled_weights_are_refused(tmp_path: Path):
    (tmp_path / "config.json").write_text("{}")
    torch.save({"weight": torch.zeros(3)}, tmp_path / "model.pt")
    for path in (tmp_path, tmp_path / "model.pt"):
        with pytest.raises(GatelabError, match=r"pickled.*give safetensors"):
            load_model(path)


def test_paths_without_a_model_are_refused(tmp_path: Path):
    with pytest.raises(GatelabError, match=r"does not exist.*not downloaded"):
        load_model(tmp_path / "none")
    with pytest.raises(GatelabError, match="holds no weights"):
        load_model(tmp_path)
    (tmp_path / "notes.txt").write_text("no model")
    with pytest.raises(GatelabError, match="not a model"):
        load_model(tmp_path / "notes.txt")
    (tmp_path / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(GatelabError, match=r"no config\.json"):
        load_model(tmp_path)
    tiny_llama().config.save_pretrained(tmp_path)
    with pytest.raises(GatelabError, match="cannot be read as a model"):
        load_model(tmp_path)


@pytest.mark.skipif(find_spec("gguf") is None, reason="GGUF files need the package gguf")
def test_a_damaged_gguf_file_is_refused(tmp_path: Path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF and no more")
    with pytest.raises(GatelabError, match="cannot be read as a model"):
        load_model(tmp_path / "model.gguf")
    (tmp_path / "other.gguf").write_bytes(b"GGUF")
    with pytest.raises(GatelabError, match=r"2 models: model\.gguf, other\.gguf"):
        load_model(tmp_path)


def test_windows_of_strings_files_and_numbers_are_the_same(tmp_path: Path):
    text = "It is a truth universally acknowledged."
    (tmp_path / "book.txt").write_text(text)
    rows = windows(text, Letters(), 6)
    assert rows.shape == (6, 6) and rows.flatten().tolist() == Letters()(text)["input_ids"][:36]
    for same in (tmp_path / "book.txt", str(tmp_path / "book.txt"), rows.flatten().tolist(), rows.numpy(), rows):
        assert torch.equal(windows(same, Letters(), 6), rows)
    assert torch.equal(windows(text, Letters(), 6, most=2), rows[:2])
    np.save(tmp_path / "tokens.npy", rows.flatten().numpy())
    assert torch.equal(windows(tmp_path / "tokens.npy", None, 6), rows)
    (tmp_path / "broken.npy").write_bytes(b"no numbers")
    with pytest.raises(GatelabError, match="not an array of numbers"):
        windows(str(tmp_path / "broken.npy"), None, 6)
    images = torch.rand(3, 1, 4, 4)
    assert torch.equal(windows(images), images)
    np.save(tmp_path / "tokens.npy", np.arange(8, dtype=np.uint16))
    assert windows(tmp_path / "tokens.npy", length=4).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize(
    ("text", "length", "message"),
    [
        ("short", 8, "5 tokens and a window 8"),
        ("bok.txt", 16, "7 tokens and a window 16; .*the path of a file"),
        (Path("no/such/none.txt"), 2, r"none\.txt"),
        ([[1, 2, 3]], 2, "give length=3"),
        *((wrong, 2, "token") for wrong in ([0.5, 1.5], [[[1]]], [True, False], object(), [-1, 2])),
    ],
)
def test_texts_that_cannot_be_windows_are_refused(text, length: int, message: str):
    with pytest.raises(GatelabError, match=message):
        windows(text, Letters(), length)


def test_calibration_and_test_windows_never_overlap():
    rows = torch.arange(40).view(10, 4)
    calibration, test = split(rows, 0.3)
    assert torch.equal(torch.cat([calibration, test]), rows) and len(test) == 3
    repeated = torch.cat([rows, rows[:2], rows[:1] + 100])
    _, fresh = split(repeated, 3 / 13)
    assert torch.equal(fresh, rows[:1] + 100)
    with pytest.raises(GatelabError, match="does not repeat itself"):
        split(torch.zeros(4, 3, dtype=torch.long))
    with pytest.raises(GatelabError, match="two are needed"):
        split(rows[:1])
    with pytest.raises(GatelabError, match="between 0 and 1"):
        split(rows, 1.0)


def test_log_perplexity_is_the_mean_loss_of_the_next_token():
    model, rows = tiny_llama(), torch.randint(64, (5, 12))
    logits = model(rows).logits
    losses = [-functional.log_softmax(logits[i, j], dim=0)[rows[i, j + 1]].item() for i in range(5) for j in range(11)]
    assert log_perplexity(model, rows) == pytest.approx(np.mean(losses), rel=1e-6)
    own = GPT2("tiny", "swiglu").eval()
    assert log_perplexity(own, rows) == pytest.approx(
        functional.cross_entropy(own(rows)[:, :-1].flatten(0, 1), rows[:, 1:].flatten()).item(), rel=1e-6
    )


def test_models_and_tokens_without_a_perplexity_are_refused():
    rows = torch.randint(64, (2, 8))
    with pytest.raises(GatelabError, match="no logits of next tokens"):
        log_perplexity(tiny("bert", vocabulary=64), rows)
    with pytest.raises(GatelabError, match="a token is 64"):
        log_perplexity(tiny_llama(), rows * 0 + 64)
    with pytest.raises(GatelabError, match="the model reads 64"):
        log_perplexity(tiny_llama(), torch.zeros(1, 65, dtype=torch.long))
