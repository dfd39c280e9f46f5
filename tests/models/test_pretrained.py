"""Models out of folders: llama2.c's files against a forward pass written out, its tokenizer, `gatelab plan` on one."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import rms_norm, silu, softmax
from typer.testing import CliRunner

import gatelab as gl
from gatelab.cli import app
from gatelab.errors import GatelabError
from gatelab.models.pretrained import llama2c_tokenizer, load_model, token_rows

pytest.importorskip("transformers", reason="needs transformers: pip install 'gatelab[models]'")
D, WIDTH, LAYERS, HEADS, GROUPS, CONTEXT = 8, 12, 2, 2, 1, 32
LETTERS = "abcdefgh ."
PIECES = [b"<unk>", b"<s>", b"</s>", *(f"<0x{i:02X}>".encode() for i in range(256)), *(c.encode() for c in LETTERS)]
MERGED = [(b"ab", 5.0), (b"abc", 4.0), (b" a", 1.0)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    words = len(PIECES) + len(MERGED)
    sizes = [words * D, LAYERS * D, LAYERS * D * D, 2 * LAYERS * GROUPS * (D // HEADS) * D, LAYERS * D * D, LAYERS * D]
    count = sum(sizes) + 3 * LAYERS * D * WIDTH + D + CONTEXT * (D // HEADS)
    weights = np.random.default_rng(0).normal(0, 0.7, count).astype(np.float32)
    header = struct.pack("7i", D, WIDTH, LAYERS, HEADS, GROUPS, words, CONTEXT)
    (path / "model.bin").write_bytes(header + weights.tobytes())
    pieces = [(p, -1e9) for p in PIECES] + MERGED
    tokens = b"".join(struct.pack("fi", score, len(p)) + p for p, score in pieces)
    (path / "tok.bin").write_bytes(struct.pack("i", 8) + tokens)
    return path


def written_out(path: Path, ids: torch.Tensor) -> torch.Tensor:
    """llama2.c's forward pass, in its own order of weights and with neighbours turned."""
    content = (path / "model.bin").read_bytes()
    words = struct.unpack("7i", content[:28])[5]
    numbers, size = torch.from_numpy(np.frombuffer(content, np.float32, offset=28).copy()), D // HEADS
    shapes = [(words, D), (LAYERS, D), (LAYERS, D, D), (LAYERS, GROUPS * size, D), (LAYERS, GROUPS * size, D)]
    shapes += [(LAYERS, D, D), (LAYERS, D), (LAYERS, WIDTH, D), (LAYERS, D, WIDTH), (LAYERS, WIDTH, D), (D,)]
    counts = [int(np.prod(s)) for s in shapes]
    parts = torch.split(numbers[: sum(counts)], counts)
    E, a, Q, K, V, O, b, W1, W2, W3, last = (p.view(s) for p, s in zip(parts, shapes, strict=True))
    angles = torch.arange(len(ids))[:, None] / 10000 ** (torch.arange(0, size, 2) / size)
    turn = torch.polar(torch.ones_like(angles), angles)

    def turned(x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * turn[:, None]).flatten(-2)

    x = E[ids]
    for i in range(LAYERS):
        h = rms_norm(x, (D,), a[i], 1e-5)
        q, k = (turned((h @ w[i].T).unflatten(-1, (-1, size))) for w in (Q, K))
        v = (h @ V[i].T).unflatten(-1, (-1, size))
        k, v = (t.repeat_interleave(HEADS // GROUPS, 1) for t in (k, v))
        scores = torch.einsum("ihd,jhd->hij", q, k) / size**0.5
        scores = scores.masked_fill(torch.ones(len(ids), len(ids)).triu(1).bool(), -torch.inf)
        x = x + torch.einsum("hij,jhd->ihd", softmax(scores, -1), v).flatten(1) @ O[i].T
        h = rms_norm(x, (D,), b[i], 1e-5)
        x = x + (silu(h @ W1[i].T) * (h @ W3[i].T)) @ W2[i].T
    return rms_norm(x, (D,), last, 1e-5) @ E.T


@torch.no_grad()
def test_a_file_of_llama2c_is_its_forward_pass(folder: Path) -> None:
    model, _ = load_model(folder)
    ids = torch.randint(3, 272, (20,), generator=torch.Generator().manual_seed(1))
    assert model.config.max_position_embeddings == CONTEXT
    assert torch.allclose(model(ids[None]).logits[0], written_out(folder, ids), atol=1e-4)


def test_the_best_pair_is_merged_first(folder: Path) -> None:
    tokenizer = llama2c_tokenizer(folder / "tok.bin", len(PIECES) + len(MERGED))
    names = tokenizer.convert_ids_to_tokens(tokenizer("abc aé")["input_ids"])
    assert names == [" ", "abc", " a", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(tokenizer("abc a.")["input_ids"]) == "abc a."
    (row,) = token_rows(*load_model(folder), "abc", 3)
    assert row.tolist() == [1, *tokenizer("abc")["input_ids"]]


def test_a_plan_is_made_on_the_command_line(folder: Path, tmp_path: Path) -> None:
    text, plan = tmp_path / "text.txt", tmp_path / "plan.json"
    letters = np.random.default_rng(0).choice(list(LETTERS), 600)
    text.write_text("".join(letters), encoding="utf-8")
    words = ["plan", str(folder), "--text", str(text), "--quality", "0.5", "--out", str(plan)]
    result = CliRunner().invoke(app, words, env={"COLUMNS": "100", "NO_COLOR": "1"})
    assert result.exit_code == 0, result.output
    assert "levels in total, perplexity kept" in result.stdout and str(plan) in result.stdout
    document = json.loads(plan.read_text())
    assert len(document["layers"]) == LAYERS and gl.load(plan).document() == document
    missing = CliRunner().invoke(app, ["plan", str(folder), "--text", str(tmp_path / "none.txt")])
    assert missing.exit_code == 2 and "No such file" in missing.stderr


def test_a_model_without_a_tokenizer_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes((folder / "model.bin").read_bytes())
    with pytest.raises(GatelabError, match="no tokenizer"):
        token_rows(*load_model(tmp_path), "abc")
