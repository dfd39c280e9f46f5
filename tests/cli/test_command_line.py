"""The command line: what it prints, how it refuses, how it ends."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import typing
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from rich.progress import Progress
from safetensors import safe_open
from typer.testing import CliRunner

import gatelab as gl
from gatelab import display
from gatelab.cli import app, options, output, reading
from gatelab.cli.output import check_folder
from gatelab.errors import GatelabError
from gatelab.files import write_whole

SRC = Path(__file__).parents[2] / "src"
SMALL = ["--points", "200", "--jobs", "1"]


def run(*args: str, columns: int = 80):
    return CliRunner().invoke(app, list(args), env={"COLUMNS": str(columns), "NO_COLOR": "1"}, prog_name="gatelab")


def ok(*args: str) -> str:
    result = run(*args)
    assert result.exit_code == 0, result.output
    return result.stdout


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "gatelab", *args]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SRC), "COLUMNS": "80"}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def wave(path: Path, rows: int = 60, header: str = "") -> Path:
    x = np.linspace(0, 2, rows)
    path.write_text(header + "".join(f"{a!r},{b!r}\n" for a, b in zip(x.tolist(), np.sin(3 * x).tolist(), strict=True)))
    return path


# Lists, help, version


@pytest.mark.parametrize("args", [[], ["demo"], ["units"], ["problems"], ["fit"], ["scale"], ["reproduce"]])
def test_help_has_an_example(args: list[str]) -> None:
    text = ok(*args, "--help")
    assert re.search(r"Examples?: gatelab \w+", text)
    assert max(map(len, text.splitlines())) <= 80


def test_version() -> None:
    assert ok("--version") == f"gatelab {gl.__version__}\n"


def test_units_lists_every_unit() -> None:
    text, rows = ok("units"), json.loads(ok("units", "--json"))
    assert [r["name"] for r in rows] == [u.name for u in gl.units()]
    assert all(r["name"] in text for r in rows)
    glu = next(r for r in rows if r["name"] == "glu")
    assert (glu["order"], glu["parameters_at_50"]) == (3, 251)
    assert "relu(Gx+g)(Ux+u)" in text and max(map(len, text.splitlines())) <= 80


def test_problems_lists_every_problem() -> None:
    text, rows = ok("problems"), json.loads(ok("problems", "--json"))
    assert [r["name"] for r in rows] == [p.name for p in gl.problems()]
    assert all(r["name"] in text and str(r["inputs"]) in text for r in rows)
    assert max(map(len, text.splitlines())) <= 80
    wide = run("problems", columns=200).stdout
    for r in rows:
        assert re.search(
            rf"^{re.escape(r['name'])} +{r['inputs']} +{re.escape(r['expression'] or 'measured')} ", wide, re.M
        )


# fit


def test_fit_prints_errors_limit_and_advice() -> None:
    text = ok("fit", "glu", "exp(sin(3*x))", "--width", "8", "--interval", "0,3", "--points", "500")
    for part in ("8", "41 parameters", "train RMSE", "test RMSE", "limit", "times that", "status", "solver", "time"):
        assert part in text


def test_fit_json_agrees_with_the_library() -> None:
    row = json.loads(ok("fit", "glu", "x3", "--width", "2", "--points", "300", "--json"))
    ours = gl.fit("glu", gl.problem("x3", n=300), 2)
    assert row["test_rmse"] == pytest.approx(ours.test_rmse, rel=1e-6)
    assert row["ratio"] == pytest.approx(row["test_rmse"] / gl.limit("glu", gl.problem("x3", n=300), 2), rel=1e-6)
    assert (row["parameters"], row["status"], row["files"]) == (11, str(ours.status), [])


def test_fit_without_a_limit_says_so() -> None:
    args = ("fit", "swiglu", "--width", "3", "--points", "100", "--steps", "5")
    assert "none: 'swiglu' has no known algebraic rate" in ok(*args)
    row = json.loads(ok(*args, "--json"))
    assert row["limit"] is None and row["ratio"] is None and row["solver"] == "poles"


def test_fit_of_a_target_that_the_unit_holds_has_limit_0() -> None:
    args = ("fit", "glu", "x2", "--width", "3", "--points", "200")
    assert "can be exact" in ok(*args)
    row = json.loads(ok(*args, "--json"))
    assert row["limit"] == 0 and row["ratio"] is None


def test_fit_to_noisy_rows_has_no_ratio_to_a_limit_that_they_do_not_determine(here: Path) -> None:
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, 400)
    y = np.sin(4 * x) + 0.1 * generator.standard_normal(400)
    np.savez(here / "d.npz", X=x, y=y)
    text = " ".join(ok("fit", "gqu", "--data", "d.npz", "--width", "1").split())
    assert re.search(r"limit none: the data are noisy \(sigma about 0\.(09|1)", text) and "times that" not in text
    row = json.loads(ok("fit", "gqu", "--data", "d.npz", "--width", "1", "--json"))
    assert row["limit"] is None and row["ratio"] is None and "sigma about" in row["limit_note"]


def test_fit_says_that_noise_sets_the_error_where_the_limit_is_known() -> None:
    args = ("fit", "glu", "sin(4*x)", "--noise", "0.1", "--points", "400", "--width", "8")
    text = " ".join(ok(*args).split())
    assert "but noise (sigma about 0.1) sets the test RMSE" in text and "times that" not in text
    row = json.loads(ok(*args, "--json"))
    assert row["limit"] == pytest.approx(gl.limit("glu", "sin(4*x)", 8)) and row["ratio"] is None


def test_an_index_column_is_left_out_and_said_on_stderr(here: Path) -> None:
    body = "".join(f"{i},{i / 40},{np.sin(i / 8):.9f}\n" for i in range(40))
    (here / "d.csv").write_text(",x,y\n" + body)
    result = run("fit", "mlp", "--data", "d.csv", "--width", "2", "--json")
    assert result.exit_code == 0 and json.loads(result.stdout)["parameters"] == 7
    assert result.stderr.strip() == (
        "gatelab: d.csv: 'column 0' labels the rows and is left out; give the inputs by name to use it"
    )


def test_fit_takes_the_best_of_seeds() -> None:
    args = ("fit", "swiglu", "--width", "3", "--points", "100", "--steps", "5", "--json")
    rows = [json.loads(ok(*args, "--seed", str(s))) for s in (3, 4, 5)]
    best = json.loads(ok(*args, "--seed", "3", "--seeds", "3"))
    assert best["train_rmse"] == min(r["train_rmse"] for r in rows)


@pytest.mark.parametrize("header", ["", "x,y\n", "\ufeffx, y\n"])
def test_fit_reads_csv(here: Path, header: str) -> None:
    wave(here / "d.csv", header=header)
    row = json.loads(ok("fit", "relu2", "--data", "d.csv", "--width", "4", "--json"))
    assert row["problem"] == "d.csv" and row["test_rmse"] < 0.05


def test_fit_reads_npy_as_csv(here: Path) -> None:
    wave(here / "d.csv")
    np.save(here / "d.npy", np.loadtxt(here / "d.csv", delimiter=","))
    a, b = (json.loads(ok("fit", "mlp", "--data", f"d.{kind}", "--width", "4", "--json")) for kind in ("csv", "npy"))
    assert a["test_rmse"] == b["test_rmse"]


def surface(path: Path, header: str = "a;b;u;v") -> Path:
    a, b = np.random.default_rng(0).uniform(-1, 1, (2, 60))
    rows = np.c_[a, b, np.sin(a + b), 1000 * a * b]
    path.write_text("\n".join([header, *(";".join(map(repr, row)) for row in rows.tolist())]))
    return path


def test_fit_reads_files_of_several_inputs(here: Path) -> None:
    surface(here / "d.csv")
    args = ("fit", "glu", "--data", "d.csv", "--width", "2", "--steps", "9", "--json")
    row = json.loads(ok(*args))
    assert (row["problem"], row["parameters"]) == ("d.csv", gl.unit("glu").parameter_count(2, 3, 1))
    row = json.loads(ok(*args, "--target", "u, v", "--protocol", "paper", "--standardize"))
    assert (row["problem"], row["parameters"]) == ("d.csv (paper's protocol)", gl.unit("glu").parameter_count(2, 2, 2))
    assert row["train_rmse"] == row["test_rmse"] < 2
    one = json.loads(ok(*args, "--target", "u", "--inputs", "a"))
    assert one["parameters"] == gl.unit("glu").parameter_count(2, 1, 1)


def test_fit_of_a_surface_and_of_friedman() -> None:
    args = ("--width", "3", "--points", "200", "--steps", "9", "--json")
    row = json.loads(ok("fit", "glu", "sin(4*x)*sin(4*y)", *args))
    assert row["limit"] is None and row["parameters"] == gl.unit("glu").parameter_count(3, 2, 1)
    assert json.loads(ok("fit", "mlp", "friedman1", *args))["train_rmse"] < 1.01
    assert json.loads(ok("fit", "mlp", "friedman1", "--raw", *args))["train_rmse"] > 1.01


def test_fit_saves_parameters_that_load(here: Path) -> None:
    row = json.loads(ok("fit", "glu", "x3", "--width", "4", "--points", "200", "--out", "m/glu.safetensors", "--json"))
    with safe_open(here / "m/glu.safetensors", framework="pt") as file:
        about, state = file.metadata(), {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
    facts = json.loads(about["gatelab.Fit"])
    assert (facts["unit"]["name"], facts["width"], facts["scales"]) == ("glu", 4, None)
    net = gl.unit("glu").network(4)
    net.load_state_dict(state)
    target = gl.problem("x3", n=200)
    from gatelab.solve import rmse

    assert rmse(net, target.test.x, target.test.y) == pytest.approx(row["test_rmse"])
    assert names(here / "m") == ["glu.safetensors"]


# scale


def test_scale_prints_slopes_and_writes_files(here: Path) -> None:
    text = ok("scale", "glu", "mlp", "--widths", "8,12,14,16", *SMALL, "--plot", "f/s.svg", "--out", "s.csv")
    assert re.search(r"glu +-\d\.\d\d \[-\d\.\d\d, -\d\.\d\d\]", text)
    assert "at width 16" in text and max(map(len, text.splitlines())) <= 80
    with (here / "s.csv").open() as file:
        assert [(r["unit"], r["width"]) for r in csv.DictReader(file)][:2] == [("glu", "8"), ("glu", "12")]
    assert (here / "f/s.svg").read_text().lstrip().startswith("<?xml")
    assert names(here) == ["f", "s.csv"] and names(here / "f") == ["s.svg"]


def test_scale_says_where_a_slope_has_no_interval() -> None:
    """Three widths printed -1.60 [-1.61, -1.60]."""
    text = ok("scale", "mlp", "--widths", "4,8,16", *SMALL)
    assert re.search(r"mlp +-\d\.\d\d +-\d\.\d\d", text)
    assert "mlp: no interval of the slope, which needs four widths or more" in " ".join(text.split())


def test_scale_reads_files(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATELAB_CACHE", str(here / "cache"))
    surface(here / "d.csv")
    args = ("--data", "d.csv", "--target", "u", "--inputs", "a,b", "--widths", "1,2", "--steps", "9", "--jobs", "1")
    found = json.loads(ok("scale", "glu", *args, "--json"))
    assert found["problem"] == "d.csv" and [p["width"] for p in found["points"]] == [1, 2]
    assert all(p["flag"] != "failed" for p in found["points"])
    paper = json.loads(ok("scale", "glu", *args, "--protocol", "paper", "--json"))
    assert paper["problem"] == "d.csv (paper's protocol)"


@pytest.mark.slow
def test_scale_says_what_is_left_out_and_why() -> None:
    text = ok("scale", "glu", "--widths", "1,2,12", "--points", "100", "--jobs", "1")
    assert re.search(r"glu: 1 of 3 fits are left out of the slopes, .*\n?.*interpolation", text)


@pytest.mark.slow
def test_scale_gives_noise_as_the_reason_of_its_own() -> None:
    args = ("scale", "glu", "--problem", "sin4x", "--widths", "2,13,14", "--points", "400", "--jobs", "1")
    text = " ".join(ok(*args, "--noise", "0.1").split())
    assert "glu: 2 of 3 fits are left out of the slopes, since noise of the data sets their error (noise)" in text
    assert "optimiser" not in text
    assert "noise" not in ok(*args)


def test_scale_of_one_width_says_why_there_is_no_slope() -> None:
    assert "no slope, which needs two widths" in ok("scale", "glu", "--widths", "4", *SMALL, "--steps", "3")


def test_scale_json_has_slopes_points_and_null() -> None:
    found = json.loads(ok("scale", "swiglu", "--widths", "1,2", *SMALL, "--steps", "3", "--seeds", "2", "--json"))
    assert {s["aggregate"] for s in found["slopes"]} == {"best", "median"}
    assert len(found["points"]) == 4 and found["points"][0]["limit"] is None


def test_scale_shows_best_and_median_of_several_seeds() -> None:
    text = ok("scale", "sigmoid-glu", "--widths", "1,2", *SMALL, "--steps", "3", "--seeds", "2")
    assert "best" in text and "median" in text and max(map(len, text.splitlines())) <= 80


# demo and reproduce


@pytest.mark.slow
def test_demo(here: Path) -> None:
    text = ok("demo", "--max-width", "2", "--jobs", "1", "--out", "d")
    assert all(re.search(rf"^{u} ", text, re.M) for u in ("mlp", "glu", "gqu"))
    assert "-3.08" in text and "s of computing" in text
    assert text.splitlines()[-1] == "wrote d/demo.html" and (here / "d/demo.png").exists()
    page = (here / "d/demo.html").read_text()
    assert page.startswith("<!doctype html>") and "gatelab demo --max-width 2" in page and "relu2" in page


@pytest.mark.slow
def test_demo_json() -> None:
    found = json.loads(ok("demo", "--max-width", "2", "--jobs", "1", "--json"))
    assert "gatelab-out/demo.png" in found["files"] and found["reason"]
    assert {"unit", "slope_n", "paper_n", "ratio_to_limit"} <= set(found["slopes"][0])


def test_reproduce_lists_every_study() -> None:
    text, rows = ok("reproduce", "--list"), json.loads(ok("reproduce", "--list", "--json"))
    assert all(r["name"] in text for r in rows) and "scaling/fig2" in [r["name"] for r in rows]


def test_reproduce(here: Path) -> None:
    text = ok("reproduce", "scaling/fig3", "--quick", "--jobs", "1", "--out", "r")
    assert "paper" in text and "verdict" in text and max(map(len, text.splitlines())) <= 80
    assert "wrote r/scaling/fig3.svg" in text and (here / "r/scaling/fig3.svg").exists()


def test_reproduce_json() -> None:
    (found,) = json.loads(ok("reproduce", "scaling/fig3", "--quick", "--jobs", "1", "--json"))
    assert found["study"] == "scaling/fig3" and all(Path(f).exists() for f in found["files"])
    assert {"what", "value", "low", "high", "paper", "rule", "verdict", "ours", "because", "place", "outside"} <= set(
        found["claims"][0]
    )


# Errors: exit code 2, one line that says what to do, nothing on stdout, nothing left behind


def text_file(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


def rows_of(size: float) -> str:
    return "".join(f"{i / 40},{size * np.sin(i / 8):.9e}\n" for i in range(40))


ERRORS = {
    "few rows": (["fit", "glu", "--data", "d.csv"], text_file("d.csv", "1,2,3\n2,3,4\n"), "give more"),
    "column in scale": (["scale", "glu", "--data", "d.csv", "--inputs", "7"], text_file("d.csv", "1,2\n"), "0 to 1"),
    "two targets in scale": (["scale", "glu", "--problem", "x3", "--data", "d.csv"], None, "leave one of them out"),
    "gap": (["fit", "glu", "x*z"], None, "has z but not y"),
    "gauss in the plane": (["fit", "glu", "x*y", "--sampling", "gauss"], None, "'random' or 'grid'"),
    "friedman's points": (["fit", "glu", "friedman1", "--sampling", "grid"], None, "leave it out"),
    "empty formula in scale": (["scale", "glu", "--problem", ""], None, "the expression is empty"),
    "empty formula in compare": (["compare", ""], None, "the expression is empty"),
    "huge in compare": (["compare", "--data", "d.csv"], text_file("d.csv", rows_of(1e308)), "1e-60 to 1e+60"),
    "huge formula": (["fit", "glu", "1e200*sin(x)", "--points", "99"], None, "the targets reach"),
    "index alone": (["fit", "glu", "--data", "d.csv"], text_file("d.csv", ",y\n0,1\n1,3\n"), "give it as inputs"),
    "spaces": (["fit", "glu", "--data", "d.csv"], text_file("d.csv", "1 2\n2 3\n"), "commas"),
    "1-D npy": (["fit", "glu", "--data", "d.npy"], lambda p: np.save(p / "d.npy", np.ones(9)), "N x k numbers"),
    "interval of two words": (["fit", "glu", "--interval", "0", "3"], None, "with a comma between"),
    "interval of three": (["compare", "glu", "--interval", "1,2,3"], None, "with a comma between"),
    "two units in fit": (["fit", "glu", "mlp"], None, "takes one unit"),
    "two problems": (["ntk", "glu", "x3", "x*y"], None, "both not units"),
    "unit in a list": (["compare", "glu,gllu"], None, "did you mean 'glu'"),
    "unit after --unit": (["scale", "--unit", "glu,gllu", "--widths", "1"], None, "did you mean 'glu'"),
    "unit in gap": (["gap", "mlp", "vit"], None, "no unit is called 'vit'"),
    "no model": (["train", "glu"], None, "give mixer, vit or gpt2"),
    "no unit in train": (["train", "mixer"], None, "no unit is given"),
    "unit twice in linearize": (["linearize", "gelu", "--unit", "silu"], None, "leave one of them out"),
    "problem twice": (["scale", "glu", "x3", "--problem", "x2"], None, "leave one of them out"),
    "unit in scale": (["scale", "glu", "mpl"], None, "did you mean 'mlp'"),
    "unit twice": (["scale", "glu", "reglu", "--widths", "2"], None, "different names"),
    "problem": (["fit", "glu", "papr-1d"], None, "did you mean 'paper-1d'"),
    "problem in scale": (["scale", "glu", "--problem", "rungee9"], None, "'runge9'"),
    "solver in scale": (["scale", "glu", "--solver", "knot"], None, "did you mean 'knots'"),
    "parameters in scale": (["scale", "glu", "--widths", "50", *SMALL, "--out", "s.csv"], None, "a width of at most"),
    "out below a file": (["scale", "glu", "--plot", "f/a.png"], text_file("f", "a"), "not a folder"),
    "plot of a kind": (["scale", "glu", "--plot", "a.doc"], None, ".png, .svg or .pdf"),
    "out a folder": (["scale", "glu", "--plot", "a.png"], lambda p: (p / "a.png").mkdir(), "is a folder"),
    "demo below a file": (["demo", "--out", "f/a"], text_file("f", "a"), "not a folder"),
    "reproduce below a file": (["reproduce", "all", "--out", "f/a"], text_file("f", "a"), "not a folder"),
}


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("name", ERRORS)
def test_error_is_one_line_and_leaves_nothing(here: Path, name: str, as_json: bool) -> None:
    args, prepare, says = ERRORS[name]
    if prepare:
        prepare(here)
    before = sorted(here.rglob("*"))
    result = run(*args, *(["--json"] if as_json else []))
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert re.fullmatch(r"gatelab: .+\n", result.stderr) and says in result.stderr
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize(
    "args",
    [
        ["fit", "glu", "--width", "2.5"],
        ["fit"],
        ["scale"],
        ["fit", "glu", "--seeds", "0"],
        ["demo", "--max-width", "1"],
        ["demo", "--jobs", "0"],
        ["bogus"],
        ["units", "--bogus"],
    ],
    ids=" ".join,
)
def test_usage_error_points_to_help(here: Path, args: list[str]) -> None:
    result = run(*args)
    assert result.exit_code == 2 and result.stdout == ""
    assert "for help" in result.stderr and not names(here)


def test_full_disk_is_an_error_of_one_line(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    result = run("fit", "glu", "x3", "--width", "2", "--points", "100", "--out", "a.safetensors")
    assert result.exit_code == 2 and result.stdout == "" and "No space left" in result.stderr
    assert not names(here)


def test_read_only_folder_is_refused(monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # for tests that run as root
    with pytest.raises(GatelabError, match="read-only"):
        check_folder(here / "a" / "b")


def test_every_path_of_every_command_is_known_as_written_or_read() -> None:
    """An option with a path that is in neither list could overwrite a file that the command reads."""
    paths: set[str] = set()
    groups = [app, *(group.typer_instance for group in app.registered_groups)]
    for command in (c for group in groups for c in group.registered_commands):
        assert command.cls is options.CheckedCommand, command.name
        assert command.callback is not None
        hints = typing.get_type_hints(command.callback)
        paths |= {name for name, hint in hints.items() if hint in (Path, Path | None, list[Path] | None)}
    assert paths <= {*options.WRITTEN, *options.READ}


@pytest.mark.parametrize(
    ("variables", "words", "says"),
    [
        ({"COLUMNS": "0"}, ("units",), "swiglu"),
        ({"COLUMNS": "1"}, ("fit", "--help"), "gatelab fit glu"),
        ({"MPLBACKEND": "foo"}, ("linearize", "gelu", "--degree", "3", "--plot", "a.png"), "wrote a.png"),
    ],
)
def test_an_odd_environment_changes_nothing(here: Path, variables: dict[str, str], words: tuple, says: str) -> None:
    ended = subprocess.run(command(*words), env={**environment(), **variables}, capture_output=True, text=True)
    assert ended.returncode == 0 and says in ended.stdout, ended.stderr


def test_a_deleted_folder_is_named_and_not_the_disk(here: Path) -> None:
    (here / "gone").mkdir()
    words = shlex.join(command("fit", "glu", "--width", "2", "--points", "50", "--out", "m.safetensors"))
    script = f"cd gone && rmdir ../gone && exec {words}"
    ended = subprocess.run(["sh", "-c", script], env=environment(), capture_output=True, text=True)
    message = "gatelab: the folder that this was started in is gone; change to one that is there (cd)\n"
    assert (ended.returncode, ended.stderr) == (2, message)


def test_write_whole_keeps_the_old_file_when_it_fails(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_whole(here / "a", b"old")

    def fail(self: Path, target: Path) -> Path:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(GatelabError, match="Permission denied"):
        write_whole(here / "a", b"new")
    assert (here / "a").read_bytes() == b"old" and names(here) == ["a"]


def test_write_whole_keeps_links_and_replaces_no_device(here: Path) -> None:
    (here / "link").symlink_to("file")
    write_whole(here / "link", b"new")
    assert (here / "link").is_symlink() and (here / "file").read_bytes() == b"new"
    os.mkfifo(here / "pipe")
    for path in (here / "pipe", here, "."):
        with pytest.raises(GatelabError, match="folder or a device"):
            write_whole(path, b"new")
    assert (here / "pipe").is_fifo()
    with pytest.raises(GatelabError, match="None is not a path"):
        write_whole(None, b"new")  # type: ignore[arg-type]


# Ends from outside


def test_interrupted_reproduce_names_what_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    from gatelab import studies

    honest, handler = studies.reproduce, signal.getsignal(signal.SIGINT)

    def second_is_interrupted(name: str, *args, **options):
        if name == "scaling/fig1":
            raise KeyboardInterrupt
        return honest(name, *args, **options)

    monkeypatch.setattr(studies, "reproduce", second_is_interrupted)
    try:
        result = run("reproduce", "scaling/fig3", "scaling/fig1", "--quick", "--jobs", "1")
    finally:
        signal.signal(signal.SIGINT, handler)
    assert result.exit_code == 130 and result.stdout == ""
    assert "interrupted; complete: gatelab-out/scaling/fig3.png" in result.stderr


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are counted through /proc")
def test_interrupt_ends_workers_too(here: Path) -> None:
    args = command("scale", "glu", "mlp", "--widths", "1:50", "--seeds", "20", "--jobs", "2", "--plot", "a.png")
    # A group of its own, so that the signal reaches it and its workers alone, as Ctrl-C does.
    process = subprocess.Popen(
        args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True
    )
    try:
        wait_for(lambda: living(process.pid) >= 3, 120)  # itself and two workers
        time.sleep(2)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=300)
        assert process.returncode == 130 and out == ""
        assert err.splitlines()[-1] == "gatelab: interrupted; nothing was written"
        assert "Traceback" not in err
        wait_for(lambda: living(process.pid) == 0, 120)
        assert not names(here)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def living(session: int) -> int:
    """How many processes of the session run; a zombie has ended and only waits to be collected."""
    count = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, sid = stat.read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        count += int(sid) == session and state not in "ZX"
    return count


def wait_for(until: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
@pytest.mark.parametrize("args", [["units"], pytest.param(["units", "--json"], marks=pytest.mark.slow)], ids=" ".join)
def test_closed_pipe_ends_quietly(args: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command(*args), stdout=writer, stderr=subprocess.PIPE, env=environment(), check=False)
    os.close(writer)
    assert done.returncode == 141 and done.stderr == b""


# Pieces


@pytest.mark.parametrize(
    ("text", "widths"),
    [
        ("7", [7]),
        ("1:3", [1, 2, 3]),
        ("4,8,16", [4, 8, 16]),
        ("16, 4, 4", [4, 16]),
        ("50:200:50", [50, 100, 150, 200]),
        ("1:10:4", [1, 5, 9]),
        ("3:3", [3]),
        ("1:3,10", [1, 2, 3, 10]),
    ],
)
def test_widths(text: str, widths: list[int]) -> None:
    assert reading.widths(text) == widths


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "cannot be read"),
        ("5:", "cannot be read at '5:'"),
        (":5", "cannot be read"),
        ("a", "cannot be read at 'a'"),
        ("1.5", "cannot be read"),
        ("-3", "cannot be read"),
        ("4,,8", "cannot be read"),
        ("1:2:3:4", "cannot be read"),
        ("²", "cannot be read"),
        ("0:3", "1 neuron or more"),
        ("0", "1 neuron or more"),
        ("10:5", "write 5:10"),
        ("1:5:0", "step of 1 or more"),
        ("1:999999999", "a step such as"),
        ("9" * 5000, "cannot be read"),
        ("1:90000,90001:180000", "give fewer"),
    ],
)
def test_bad_widths_are_explained(text: str, says: str) -> None:
    with pytest.raises(GatelabError, match=re.escape(says)) as caught:
        reading.widths(text)
    assert len(str(caught.value)) < 400


def progress_at(monkeypatch: pytest.MonkeyPatch, *calls: tuple[float, int, int]) -> None:
    """Reports of (seconds since the start, done, total), by a clock that needs no waiting."""
    clock = [0.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: clock[0])
    with output.progress("fitting") as report:
        for clock[0], done, total in calls:
            report(done, total)


def test_progress_without_a_terminal_speaks_seldom(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    progress_at(monkeypatch, (4, 1, 9), (8, 2, 9), (12, 3, 9), (16, 4, 9), (20, 5, 9), (24, 6, 9), (36, 9, 9))
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "gatelab: fitting: 3 of 9, about 24 s left\ngatelab: fitting: 6 of 9, about 12 s left\n"


@pytest.mark.parametrize(
    "calls",
    [
        [(11, 1, 9)],  # of one step, imports and all, nothing follows
        [(5, 1, 9), (11, 2, 9)],
        [(0.1, 50, 100), (0.2, 90, 100), (30, 91, 100)],  # what was fast is slow
        [(9, 1, 100), (9.1, 2, 100), (9.2, 40, 100), (10, 80, 100)],  # what was slow is fast
    ],
)
def test_time_left_is_not_said_before_it_can_be_known(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, calls: list[tuple[float, int, int]]
) -> None:
    progress_at(monkeypatch, *calls)
    _, done, total = calls[-1]
    assert capsys.readouterr().err == f"gatelab: fitting: {done} of {total}\n"


def test_time_left_on_a_terminal_appears_when_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: clock[0])
    bar = Progress(console=Console(file=io.StringIO()))
    report = display.Report("fitting", bar)
    texts = []
    for clock[0], done in ((1, 1), (2, 2), (3, 3), (40, 40)):
        report(done, 100)
        texts.append(display.countdown(bar.tasks[0].fields["ends"]))
    clock[0] = 50  # no step has ended since
    later = display.countdown(bar.tasks[0].fields["ends"])
    assert [*texts, later] == ["", "", "left 0:01:37", "left 0:01:00", "left 0:00:50"]


# One grammar


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["glu", "mlp", "x3"], id="words", marks=pytest.mark.slow),
        pytest.param(["x3", "GLU,mlp"], id="one word", marks=pytest.mark.slow),
        pytest.param(["x3", "--unit", "glu", "--unit", "mlp"], id="options", marks=pytest.mark.slow),
        pytest.param(["x3", "glu", "--units", "mlp"], id="both"),
        pytest.param(["--unit", "reglu,mlp", "x3"], id="an option for both", marks=pytest.mark.slow),
    ],
)
def test_units_are_words_or_options_in_every_command(words: list[str]) -> None:
    scale = json.loads(ok("scale", *words, "--widths", "13,14", *SMALL, "--json"))
    assert {p["unit"] for p in scale["points"]} == {"glu", "mlp"} and scale["problem"] == "x3"
    ntk = json.loads(ok("ntk", *words, "--rows", "5", "--json"))
    assert [k["kernel"] for k in ntk["kernels"]] == ["glu", "mlp"] and ntk["data"].startswith("x3")
    dynamics = json.loads(ok("dynamics", *words, "--rows", "5", "--steps", "2", "--json"))
    assert [u["unit"] for u in dynamics["units"]] == ["glu", "mlp"]


@pytest.mark.parametrize("words", [["glu", "x3"], ["x3", "glu"], ["--unit", "glu", "x3"], ["x3", "--unit", "glu"]])
def test_fit_takes_its_unit_either_way(words: list[str]) -> None:
    row = json.loads(ok("fit", *words, "--width", "2", "--points", "100", "--steps", "3", "--json"))
    assert (row["unit"], row["problem"]) == ("glu", "x3")


def test_linearize_takes_its_unit_either_way() -> None:
    one, other = (ok("linearize", *words, "--degree", "2") for words in (["silu"], ["--unit", "silu"]))
    assert one == other and "silu" in one


def test_intervals_are_written_one_way() -> None:
    fit = ("fit", "glu", "x**2", "--width", "2", "--points", "100", "--json")
    rmse = [
        json.loads(ok(*fit, *i))["train_rmse"]
        for i in (["--interval", "-2,2"], ["--interval=-2:2"], ["--interval", "2"])
    ]
    assert rmse[0] == rmse[1] == rmse[2]
    texts = [ok("linearize", "gelu", "--degree", "2", "--interval", i) for i in ("-2,2", "-2:2", "2")]
    assert texts[0] == texts[1] == texts[2] and "[-2, 2]" in texts[0]


# Completion


def question(words: str) -> dict[str, str]:
    """What bash asks with."""
    return {"_GATELAB_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}


def completed(words: str) -> list[str]:
    done = CliRunner().invoke(app, [], env=question(words), prog_name="gatelab")
    assert done.stderr == ""
    return done.stdout.split()


def test_the_shell_is_answered_by_a_process() -> None:
    env = environment() | question("gatelab ntk --unit glu,gq")
    done = subprocess.run(command(), capture_output=True, text=True, env=env, timeout=120)
    assert (done.stdout.split(), done.stderr) == (["glu,gqu"], "")


def test_the_shell_completes_commands_units_and_problems() -> None:
    assert completed("gatelab sca") == ["scale"]
    assert completed("gatelab fit sw") == ["swiglu"]
    assert completed("gatelab ntk --unit glu,gq") == ["glu,gqu"]
    assert completed("gatelab compare glu fried") == ["friedman1", "friedman2", "friedman3"]
    assert completed("gatelab train v") == ["vit"]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("scale mlp --problem x3 --widths 2,3 --points 100 --jobs 1 --out", id="scale"),
        pytest.param("law runs.csv --bootstrap 5 --plot", id="law", marks=pytest.mark.slow),
        pytest.param("ntk --gaussian 12,4 --plot", id="ntk", marks=pytest.mark.slow),
        pytest.param("dynamics --gaussian 12,4 --steps 20 --plot", id="dynamics", marks=pytest.mark.slow),
        pytest.param("linearize gelu --plot", id="linearize", marks=pytest.mark.slow),
    ],
)
def test_figures_are_written_as_pdf(here: Path, words: str) -> None:
    sizes = [(p, d) for p in (1e7, 1e8, 1e9) for d in (1e9, 1e10, 1e11)]
    (here / "runs.csv").write_text(
        "P,D,L\n" + "".join(f"{p},{d},{1 + 400 / p**0.3 + 400 / d**0.3}\n" for p, d in sizes)
    )
    result = run(*words.split(), "figure.pdf")
    assert result.exit_code == 0, result.output
    assert (here / "figure.pdf").read_bytes().startswith(b"%PDF-")
