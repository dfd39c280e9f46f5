"""One grammar of options: names, old names, help, --quiet, --dry-run, and tables in and out."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import command_runs
import numpy as np
import pandas as pd
import pytest
import typer

import gatelab as gl
from gatelab.cli import app
from gatelab.cli.linearize import METHODS
from tiny_models import tiny

pytestmark = pytest.mark.usefixtures("here")
GROUP: Any = typer.main.get_command(app)
FIT = "fit glu x3 --width 2 --points 60"


def run(line: str) -> Any:
    return command_runs.run(*shlex.split(line))


def ok(line: str) -> str:
    return command_runs.ok(*shlex.split(line))


def options(command: Any = GROUP, path: str = "") -> dict[str, set[str]]:
    """The names of all options, by command."""
    if not hasattr(command, "commands"):
        return {path: {name for option in command.params for name in (*option.opts, *option.secondary_opts)}}
    found: dict[str, set[str]] = {}
    for name, sub in command.commands.items():
        found |= options(sub, f"{path} {name}".strip())
    return found


def test_options_have_one_name_and_short_flags() -> None:
    for command, names in options().items():
        assert {"--json", "--quiet", "-q"} <= names, command
        assert not names & {"--save", "--csv", "--export", "--folder", "--optimiser", "--standardise"}, command
        assert ("--out" in names) == ("-o" in names) and ("--jobs" in names) == ("-j" in names)
    for command in ("reproduce", "gap", "shrink", "scale", "ladder"):
        assert "--dry-run" in options()[command]
    for command in ("train", "gap", "ladder", "profile", "shrink", "plan"):
        assert {"--text", "--tokenizer"} <= options()[command]


def test_help_has_all_methods() -> None:
    assert gl.linearization.methods() == METHODS
    assert "tensorsketch" in ok("linearize --help")


def test_help_is_a_command_too() -> None:
    assert ok("help") == ok("-h")
    assert ok("help results list").split() == ok("results list --help").split()
    assert "no command is called 'fitt'; did you mean 'fit'" in run("help fitt").stderr


@pytest.mark.parametrize(
    ("old", "file"),
    [
        ("ntk --gaussian 6,3 --save=k.npz", "k.npz"),
        ("linearize gelu --interval 3 --export p.json", "p.json"),
        ("linearize gelu --interval 3 --out f.svg", "f.svg"),
    ],
)
def test_old_names_work_with_a_warning(here: Path, old: str, file: str) -> None:
    result = run(old)
    name, now = old.replace("=", " ").split()[-2], "--plot" if file == "f.svg" else "--out"
    assert result.exit_code == 0 and f"{name} is now called {now}; the old name works" in result.stderr
    assert (here / file).exists()


def test_quiet_shows_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    from gatelab.cli import output

    asked = []
    honest = output.reporting
    monkeypatch.setattr(output, "reporting", lambda shown, *rest: asked.append(shown) or honest(False, *rest))
    for words in ("", "-q", "--quiet"):
        ok(f"linearize gelu --interval 3 --d 2 {words}")
    assert asked == [True, True, False, False, False, False]


@pytest.fixture
def flats(here: Path) -> pd.DataFrame:
    """A table with ids, text and gaps."""
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"id": [f"f{i}" for i in range(80)], "rooms": generator.integers(1, 6, 80)})
    frame["kind"] = generator.choice(["old", "new"], 80)
    frame["rent"] = 3.0 * frame["rooms"] + (frame["kind"] == "new")
    frame.loc[3, "kind"] = None
    frame.loc[5, "rent"] = np.nan
    frame.to_csv("flats.csv", index=False)
    return frame


def test_regress_fits_a_table_and_predict_keeps_ids(flats: pd.DataFrame) -> None:
    result = run("regress flats.csv --target rent --inputs rooms,kind --width 2 --members 1 --out m.safetensors --json")
    facts = json.loads(result.stdout)
    assert (facts["estimator"], facts["rows"], facts["test_rows"]) == ("GatedRegressor", 63, 16)
    assert facts["test"]["R²"] > 0.9 and "1 row without a target" in result.stderr
    ok("predict m.safetensors --data flats.csv --keep id --out p.csv")
    written = pd.read_csv("p.csv")
    assert written.columns.tolist() == ["id", "predicted"] and written["id"].tolist() == flats["id"].tolist()
    model: Any = gl.load("m.safetensors")
    assert np.allclose(written["predicted"], model.predict(flats[["rooms", "kind"]]))
    assert "without names" in run("predict m.safetensors --data flats.csv --keep id --out p.npy").stderr


def test_regress_predicts_classes_of_text(flats: pd.DataFrame) -> None:
    words = "--inputs rooms,rent --width 2 --members 1 --test 0.25"
    flats.dropna().to_csv("whole.csv", index=False)
    text = ok(f"regress whole.csv --target kind {words} --out m.safetensors")
    assert "GatedClassifier for kind" in text and "accuracy" in text
    assert ok("predict m.safetensors --data whole.csv").splitlines()[0] == "predicted,probability_new,probability_old"
    assert "GatedClassifier" in ok(f"regress whole.csv --target rooms --classify {words.replace('rooms,', '')}")


def test_dry_runs_compute_nothing(here: Path) -> None:
    facts = json.loads(ok("gap mlp glu --model mixer --seeds 3 --steps 10 --dry-run --json"))
    assert facts["trainings"] == 12 and facts["steps"] == 120
    plan = json.loads(ok("reproduce 'scaling/*' --dry-run --json"))
    assert {row["work"] for row in plan["studies"]} == {"compute"} and plan["recorded_seconds"] > 0
    whole = {row["work"] for row in json.loads(ok("reproduce all --dry-run --json"))["studies"]}
    assert "take the record" in whole and not (here / "gatelab-out").exists()


def test_shrink_plans_and_reads_another_tokenizer(here: Path) -> None:
    tokenizers, transformers = pytest.importorskip("tokenizers"), pytest.importorskip("transformers")
    tiny("llama").save_pretrained("model")
    tokens = tokenizers.Tokenizer(tokenizers.models.WordLevel({str(i): i for i in range(40)}, unk_token="0"))
    tokens.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokens).save_pretrained("words")
    (here / "text.txt").write_text(" ".join(map(str, np.random.default_rng(0).integers(40, size=640))))
    line = "shrink model --text text.txt --length 32 --keep 0.5 --dry-run --json"
    assert "tokenizer" in run(line).stderr
    facts = json.loads(ok(f"{line} --tokenizer words"))
    assert (facts["neurons"], facts["neurons_kept"], facts["tokens"]) == (48, 24, 640)
    assert "does not hold a tokenizer" in run(f"{line} --tokenizer .").stderr
