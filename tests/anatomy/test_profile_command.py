"""`gatelab profile`: what it prints and writes, and how it ends where it cannot."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gatelab.cli import app
from tiny_models import tiny

pytest.importorskip("transformers")


def gatelab(*words: object):
    return CliRunner().invoke(app, [str(word) for word in ("profile", *words)], env={"COLUMNS": "140", "NO_COLOR": "1"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama and tokens for it."""
    place = tmp_path_factory.mktemp("model")
    tiny("llama", vocabulary=64, width=40).save_pretrained(place)
    np.save(place / "tokens.npy", np.random.default_rng(0).integers(64, size=640))
    return place


def test_sentences_table_and_page(folder: Path, tmp_path: Path):
    few = ("--text", folder / "tokens.npy", "--length", 16, "--tokens", 480, "--test", 96, "--steps", 2)
    page = tmp_path / "page.html"
    result = gatelab(folder, *few, "--out", page)
    assert result.exit_code == 0, result.output
    assert "% linear" in result.stdout and "swiglu" in result.stdout and f"wrote {page}" in result.stdout
    html = page.read_text(encoding="utf-8")
    assert "Blocks of LlamaForCausalLM" in html and "gatelab profile" in html and "participation ratio" in html
    numbers = tmp_path / "profile.json"
    result = gatelab(folder, *few, "--no-losses", "--module", "model.layers.1.mlp", "--out", numbers, "--json")
    document = json.loads(result.stdout)
    assert document["blocks"][0]["name"] == "model.layers.1" and document["blocks"][0]["skipped"] is None
    assert document["files"] == [str(numbers)]
    assert json.loads(numbers.read_text())["blocks"] == document["blocks"]


def test_errors_are_one_line(folder: Path, tmp_path: Path):
    tokens = folder / "tokens.npy"
    short = tmp_path / "short.npy"
    np.save(short, np.arange(10))
    wrong = {
        (tmp_path, "--text", tokens): "holds no weights",
        (folder, "--text", short): "10 tokens and a window 64",
        (folder, "--text", tokens, "--length", 16, "--module", "mlp"): "has no module 'mlp'; did you mean",
        (folder, "--text", tokens, "--length", 16, "--device", "cuda:99"): "cuda:99",
    }
    for words, message in wrong.items():
        result = gatelab(*words)
        assert result.exit_code == 2 and result.stdout == "", result.output
        assert message in result.stderr and len(result.stderr.splitlines()) == 1, result.stderr
