"""Every example of every help text is executed, with small data and models in place of those that it names."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from gatelab import studies
from gatelab.cli import app
from gatelab.data import images
from gatelab.linearization.builders import trained_maps
from tiny_models import tiny

ROOT = Path(__file__).parents[2]
GROUP: Any = typer.main.get_command(app)
TRAIN = "--size tiny --steps 2 --batch 2 --evaluations 1 --device cpu"
MODEL = "--length 16 --device cpu"
# Options that make an example short, by its beginning; later options win, and its own are used all the same. Of few
# neurons all knots are searched for, and fits take longer than those of thirteen.
SHORT = {
    "demo": "--max-width 2 --jobs 1",
    "fit": "--width 13 --seeds 1",
    "fit mlp --data": "--width 3 --seeds 1",
    "regress": "--width 1 --members 1",
    "regress flats.csv --target rooms --classify": "--width 1 --ridge 0.01 --members 1",
    "scale": "--widths 13,14 --seeds 1 --points 100 --jobs 1",
    "scale glu mlp --data": "--widths 2,3 --steps 3 --jobs 1",
    "compare": "--budget 20 --seeds 1 --features 4 --d-model 8 --rows 60",
    "ntk": "--width 32 --rows 40",
    "ntk --gaussian": "--gaussian 40,20",
    "dynamics mlp": "--width 32 --rows 40",
    "train": TRAIN,
    "gap mlp": f"{TRAIN} --seeds 2",
    "gap silu": f"{TRAIN} --seeds 2 --tokenizer bytes",
    "ladder --quick": "--text novel.txt --sizes tiny,mini --seeds 1 --steps 2 --batch 2 --lr 0.01",
    "ladder gelu": "--sizes tiny,mini,small --seeds 1 --steps 2 --batch 2 --lr 0.01 --device cpu",
    "law": "--bootstrap 5",
    "linearize gelu --method optimal": "--m 17",
    "linearize gelu --method learned": "--m 4 --option steps=2",
    "plan": "--quality 0.2 --rows 8",
    "profile": f"{MODEL} --tokens 200 --test 64 --steps 2",
    "shrink": f"{MODEL} --windows 8",
    "reproduce scaling/fig2": "--quick --jobs 1",
    "reproduce all": "--jobs 1",
    "results prune --older-than": "--dry-run",
}
# Files and models in place of those that are large or not there.
STANDS_FOR = {
    "stories260k": "path/to/model",
    "smollm2": "path/to/model",
    "fineweb-edu": "novel.txt",
    "tinyshakespeare": "novel.txt",
    "enwik8": "novel.txt",
}
SLOW = ("compare", "demo", "gap mlp", "ladder --quick", "ladder gelu", "plan", "reproduce all", "reproduce scaling/")
SLOW += ("ladder --record results/ladder/enwik8.json --power",)


def examples(command: Any = GROUP) -> Iterator[str]:
    """All lines of all epilogs that begin with the name of the program."""
    for part in re.split(r"\n\n|Examples?: ", command.epilog or ""):
        if part.startswith("gatelab "):
            yield part.strip()
    for sub in getattr(command, "commands", {}).values():
        yield from examples(sub)


EXAMPLES = [
    pytest.param(line, marks=[pytest.mark.slow] * line.removeprefix("gatelab ").startswith(SLOW), id=line)
    for line in sorted(set(examples()))
]


def run(line: str) -> Any:
    return CliRunner().invoke(app, shlex.split(line)[1:], env={"COLUMNS": "80", "NO_COLOR": "1"}, prog_name="gatelab")


def save_models(folder: Path) -> None:
    """A small Llama and a small BERT with tokenizers, in folders that examples name."""
    tokenizers, transformers = pytest.importorskip("tokenizers"), pytest.importorskip("transformers")
    words = sorted({*NOVEL.split(), "[PAD]", "[UNK]"})
    tokens = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, "[UNK]"))
    tokens.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokens, unk_token="[UNK]", pad_token="[PAD]", bos_token="[UNK]"
    )
    for kind, name in (
        ("llama", "path/to/model"),
        ("llama", "models/stories260K"),
        ("bert", "models/all-MiniLM-L6-v2"),
    ):
        tiny(kind, vocabulary=len(words), hidden=16, width=24).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)


WORDS = ["gate", "opens", "lets", "the", "line", "pass", "and", "one", "that", "closes", "does", "not", "at", "all"]
NOVEL = "\n".join(" ".join(np.random.default_rng(i).choice(WORDS, 16)) for i in range(400)) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that examples name, small ones."""
    folder = tmp_path_factory.mktemp("examples")
    rooms, age = np.random.default_rng(0).uniform(1, 9, (2, 200)).round(3)
    rows = list(zip(rooms.tolist(), age.tolist(), strict=True))
    for name in ("points.csv", "houses.csv", "mine.csv"):
        (folder / name).write_text("rooms,age,price\n" + "".join(f"{a},{b},{a * b + a}\n" for a, b in rows))
    flats = [f"f{i},{round(a)},{b if i else ''},{a + b},{'old' if b > 5 else 'new'}" for i, (a, b) in enumerate(rows)]
    (folder / "flats.csv").write_text("\n".join(["id,rooms,age,rent,kind", *flats, ""]))
    np.save(folder / "z.npy", np.linspace(-3, 4, 500))
    grid = [(p, d, 1 + 40 / p**0.5 + 90 / d**0.5) for p in (100, 400, 1600, 6400) for d in (1000, 4000, 16000, 64000)]
    for name, header in (("runs.csv", "P,D,L"), ("runs2.csv", "params,tokens,loss")):
        (folder / name).write_text(header + "\n" + "".join(f"{p},{d},{loss}\n" for p, d, loss in grid))
    for name in ("novel.txt", "book.txt", "sentences.txt", "stories.txt"):
        (folder / name).write_text(NOVEL)
    (folder / "cifar10").mkdir()
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        images = np.random.default_rng(0).integers(256, size=(20, 3073), dtype=np.uint8)
        images[:, 0] %= 10
        (folder / "cifar10" / name).write_bytes(images.tobytes())
    save_models(folder)
    (folder / "results").symlink_to(ROOT / "results")
    shutil.copytree(ROOT / "results" / "linearize", folder / "gatelab-out" / "linearize")
    before = Path.cwd()
    os.chdir(folder)
    try:
        for line in (
            "gatelab fit mlp --data points.csv --target price --width 3 --out mlp.safetensors",
            "gatelab regress flats.csv --target rent --width 1 --members 1 --out rent.safetensors",
            "gatelab scale glu relu2 --problem x2 --widths 2,3 --seeds 2 --points 60 --jobs 1 --store runs.db",
        ):
            result = run(line)
            assert result.exit_code == 0, (line, result.output)
        for name in ("a.db", "b.db", "gatelab.db"):
            shutil.copy("runs.db", name)
    finally:
        os.chdir(before)
    return folder


def paths(command: Any = GROUP, path: str = "gatelab") -> Iterator[str]:
    """The names of the program, of all groups and of all commands."""
    yield path
    for name, sub in getattr(command, "commands", {}).items():
        yield from paths(sub, f"{path} {name}")


def test_every_command_has_an_example() -> None:
    lines = [str(example.values[0]) for example in EXAMPLES]
    assert {line.split()[1] for line in lines} >= set(GROUP.commands) and len(lines) > 55


@pytest.mark.parametrize("path", list(paths()))
def test_help_has_an_example_and_fits_the_terminal(path: str) -> None:
    text = run(f"{path} --help").stdout
    assert re.search(r"Examples?: gatelab \w+", text) and max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_of_the_help_works(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GATELAB_DATA", str(folder))
    monkeypatch.setenv("GATELAB_CACHE", str(folder / "cache"))
    monkeypatch.setattr(images, "CIFAR10_ROWS", 20)
    monkeypatch.setattr(trained_maps, "_REFIT_ROWS", 256)
    words = line.removeprefix("gatelab ")
    if "--encrypted" in words and find_spec("tenseal") is None:
        pytest.skip("needs TenSEAL: pip install 'gatelab[encrypted]'")
    if words.startswith("reproduce all"):
        few = [study for study in studies.all_studies() if study.name in ("scaling/fig3", "linearize/table1")]
        monkeypatch.setattr(studies, "all_studies", lambda: few)
    if "3f8a" in line:
        listed = json.loads(run("gatelab results list --json").stdout)
        line = line.replace("3f8a", next(iter(re.findall(r'"key": "(\w+)"', json.dumps(listed)))))
    if "--p-column" in line:
        line = line.replace("runs.csv", "runs2.csv")
    if "smaller" in line:
        shutil.rmtree("smaller", ignore_errors=True)
    for name, other in STANDS_FOR.items():
        line = re.sub(rf"\b{name}\b(?!\.)", other, line)
    options = max((short for short in SHORT if words.startswith(short)), key=len, default="")
    result = run(f"{line} {SHORT.get(options, '')}")
    assert result.exit_code == 0, (result.output, result.exception)
    assert "until the next release" not in result.stderr, "an example must use the present names of options"
    assert "times the size of the activation" not in result.stdout, "an example must not show a useless error"
