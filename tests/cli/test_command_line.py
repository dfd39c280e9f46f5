"""The command line: what it prints, how it refuses, how it ends."""

from __future__ import annotations

import csv
import errno
import json
import os
import re
import signal
import subprocess
import time
import typing
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command_runs import command, document, environment, ok, run
from typer.testing import CliRunner

import gatelab as gl
from gatelab import display
from gatelab.cli import app, options, output, reading
from gatelab.cli.output import check_folder
from gatelab.errors import GatelabError
from gatelab.files import write_whole

pytestmark = pytest.mark.usefixtures("here")
SMALL = ["--points", "200", "--jobs", "1"]


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


# Lists, help, version


def test_version() -> None:
    assert ok("--version") == f"gatelab {gl.__version__}\n"


def test_units_lists_every_unit() -> None:
    text, rows = ok("units"), document("units")
    assert [r["name"] for r in rows] == [u.name for u in gl.units()]
    assert all(r["name"] in text for r in rows)
    glu = next(r for r in rows if r["name"] == "glu")
    assert (glu["order"], glu["parameters_at_50"]) == (3, 251)
    assert "relu(Gx+g)(Ux+u)" in text and max(map(len, text.splitlines())) <= 80


def test_problems_lists_every_problem() -> None:
    text, rows = ok("problems"), document("problems")
    assert [r["name"] for r in rows] == [p.name for p in gl.problems()]
    assert max(map(len, text.splitlines())) <= 80
    wide = re.sub(" +", " ", run("problems", columns=200).stdout)
    for r in rows:
        assert f"{r['name']} {r['inputs']} {r['expression'] or 'measured'} " in wide


# fit


def test_fit_prints_errors_limit_and_advice() -> None:
    text = ok("fit", "glu", "exp(sin(3*x))", "--width", "13", "--interval", "0,3", "--points", "99")
    for part in ("13", "66 parameters", "train RMSE", "test RMSE", "limit", "times that", "status", "solver", "time"):
        assert part in text


def test_fit_json_agrees_with_the_library() -> None:
    row = document("fit", "glu", "x3", "--width", "2", "--points", "300")
    ours = gl.fit("glu", gl.problem("x3", n=300), 2)
    assert row["test_rmse"] == pytest.approx(ours.test_rmse, rel=1e-6)
    assert row["ratio"] == pytest.approx(row["test_rmse"] / gl.limit("glu", gl.problem("x3", n=300), 2), rel=1e-6)
    assert (row["parameters"], row["status"], row["files"]) == (11, str(ours.status), [])


@pytest.mark.parametrize(
    ("words", "limit", "said"),
    [("swiglu x2 --steps 5", None, "none: 'swiglu' has no known algebraic rate"), ("glu x2", 0, "can be exact")],
)
def test_fit_without_a_limit_or_with_limit_0_says_so(words: str, limit: float | None, said: str) -> None:
    args = ("fit", *words.split(), "--width", "3", "--points", "100")
    assert said in ok(*args)
    row = document(*args)
    assert row["limit"] == limit and row["ratio"] is None


def test_fit_to_noisy_rows_has_no_ratio_to_a_limit_that_they_do_not_determine(here: Path) -> None:
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, 400)
    y = np.sin(4 * x) + 0.1 * generator.standard_normal(400)
    np.savez(here / "d.npz", X=x, y=y)
    text = " ".join(ok("fit", "gqu", "--data", "d.npz", "--width", "1").split())
    assert re.search(r"limit none: the data are noisy \(sigma about 0\.(09|1)", text) and "times that" not in text
    row = document("fit", "gqu", "--data", "d.npz", "--width", "1")
    assert row["limit"] is None and row["ratio"] is None and "sigma about" in row["limit_note"]


def test_fit_says_that_noise_sets_the_error_where_the_limit_is_known() -> None:
    args = ("fit", "glu", "sin(4*x)", "--noise", "0.1", "--points", "400", "--width", "13")
    text = " ".join(ok(*args).split())
    assert "but noise (sigma about 0.1) sets the test RMSE" in text and "times that" not in text
    row = document(*args)
    assert row["limit"] == pytest.approx(gl.limit("glu", "sin(4*x)", 13)) and row["ratio"] is None


def test_an_index_column_is_left_out_and_said_on_stderr(here: Path) -> None:
    body = "".join(f"{i},{i / 40},{np.sin(i / 8):.9f}\n" for i in range(40))
    (here / "d.csv").write_text(",x,y\n" + body)
    result = run("fit", "mlp", "--data", "d.csv", "--width", "2", "--json")
    assert result.exit_code == 0 and json.loads(result.stdout)["parameters"] == 7
    said = "gatelab: d.csv: 'column 0' labels the rows and is left out; give the inputs by name to use it"
    assert result.stderr.strip() == said


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


# scale


def test_scale_prints_slopes_and_writes_files(here: Path) -> None:
    args = ("--problem", "paper-1d", "--widths", "13,16,20,24", "--points", "400", "--jobs", "1")
    text = ok("scale", "glu", "mlp", *args, "--plot", "f/s.svg", "--out", "s.csv")
    assert re.search(r"glu +-\d\.\d\d \[-\d\.\d\d, -\d\.\d\d\]", text)
    assert "at width 24" in text and max(map(len, text.splitlines())) <= 80
    with (here / "s.csv").open() as file:
        assert [(r["unit"], r["width"]) for r in csv.DictReader(file)][:2] == [("glu", "13"), ("glu", "16")]
    assert (here / "f/s.svg").read_text().lstrip().startswith("<?xml")
    assert names(here) == ["f", "s.csv"] and names(here / "f") == ["s.svg"]


def test_scale_says_where_a_slope_has_no_interval() -> None:
    """Three widths printed -1.60 [-1.61, -1.60]."""
    assert "no slope, which needs two widths" in ok("scale", "glu", "--widths", "4", *SMALL, "--steps", "3")
    text = ok("scale", "mlp", "--widths", "13,14,16", *SMALL)
    assert re.search(r"mlp +-\d\.\d\d +-\d\.\d\d", text)
    assert "mlp: no interval of the slope, which needs four widths or more" in " ".join(text.split())


@pytest.mark.slow
def test_scale_gives_noise_as_the_reason_of_its_own() -> None:
    args = ("scale", "glu", "--problem", "sin4x", "--widths", "2,13,14", "--points", "400", "--jobs", "1")
    text = " ".join(ok(*args, "--noise", "0.1").split())
    assert "glu: 2 of 3 fits are left out of the slopes, since noise of the data sets their error (noise)" in text
    assert "optimizer" not in text
    assert "noise" not in ok(*args)


def test_scale_json_has_slopes_points_and_null() -> None:
    args = ("scale", "swiglu", "--widths", "1,2", *SMALL, "--steps", "3", "--seeds", "2")
    found, text = document(*args), ok(*args)
    assert "best" in text and "median" in text and max(map(len, text.splitlines())) <= 80
    assert {s["aggregate"] for s in found["slopes"]} == {"best", "median"}
    assert len(found["points"]) == 4 and found["points"][0]["limit"] is None


# demo and reproduce


@pytest.mark.slow
def test_demo(here: Path) -> None:
    text = ok("demo", "--max-width", "2", "--jobs", "1", "--out", "d")
    assert all(re.search(rf"^{u} ", text, re.M) for u in ("mlp", "glu", "gqu", "swiglu", "gelu"))
    assert "-3.08" in text and "s of computing" in text
    assert text.splitlines()[-1] == "wrote d/demo.html" and (here / "d/demo.png").exists()
    page = (here / "d/demo.html").read_text()
    assert page.startswith("<!doctype html>") and "gatelab demo --max-width 2" in page and "relu2" in page
    found = document("demo", "--max-width", "2", "--jobs", "1")
    assert "gatelab-out/demo.png" in found["files"] and found["reason"]
    assert {"unit", "slope_n", "paper_n", "ratio_to_limit"} <= set(found["slopes"][0])


def test_reproduce_lists_every_study() -> None:
    text, rows = ok("reproduce", "--list"), document("reproduce", "--list")
    assert all(r["name"] in text for r in rows) and "scaling/fig2" in [r["name"] for r in rows]


def test_reproduce(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = ok("reproduce", "scaling/fig3", "--quick", "--jobs", "1", "--out", "r")
    assert "paper" in text and "verdict" in text and max(map(len, text.splitlines())) <= 80
    assert "wrote r/scaling/fig3.svg" in text and (here / "r/scaling/fig3.svg").exists()
    monkeypatch.setattr("gatelab.studies.reproduction.save", lambda figure, path: path.touch())
    (found,) = document("reproduce", "scaling/fig3", "--quick", "--jobs", "1")
    assert found["study"] == "scaling/fig3" and all(Path(f).exists() for f in found["files"])
    assert {"what", "value", "low", "high", "paper", "rule", "verdict", "ours", "because"} <= set(found["claims"][0])


# Errors: exit code 2, one line that says what to do, nothing on stdout, nothing left behind


@pytest.mark.parametrize(
    "args",
    [["fit", "glu", "--width", "2.5"], ["scale"], ["demo", "--jobs", "0"], ["bogus"], ["units", "--bogus"]],
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
    for one in (c for group in groups for c in group.registered_commands):
        assert one.cls is options.CheckedCommand, one.name
        assert one.callback is not None
        hints = typing.get_type_hints(one.callback)
        paths |= {name for name, hint in hints.items() if hint in (Path, Path | None, list[Path] | None)}
    assert paths <= {*options.WRITTEN, *options.READ}


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
    monkeypatch.setattr("gatelab.studies.reproduction.save", lambda figure, path: path.touch())
    try:
        result = run("reproduce", "scaling/fig3", "scaling/fig1", "--quick", "--jobs", "1")
    finally:
        signal.signal(signal.SIGINT, handler)
    assert result.exit_code == 130 and result.stdout == ""
    assert "interrupted; complete: gatelab-out/scaling/fig3.png" in result.stderr


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
def test_closed_pipe_ends_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command("units"), stdout=writer, stderr=subprocess.PIPE, env=environment(), check=False)
    os.close(writer)
    assert done.returncode == 141 and done.stderr == b""


# Pieces


@pytest.mark.parametrize("text", ["", "5:", "1.5", "-3", "4,,8", "1:2:3:4", "²", "0:3", "10:5", "1:5:0", "9" * 5000])
def test_bad_widths_are_explained(text: str) -> None:
    with pytest.raises(GatelabError, match=r"cannot be read at .*; give a range 1:50") as caught:
        reading.widths(text)
    assert len(str(caught.value)) < 400
    assert reading.widths("16, 4, 4,3:3") == [3, 4, 16] and reading.widths("1:10:4") == [1, 5, 9]
    for many in ("1:999999999", "1:90000,90001:180000"):  # refused before they fill the memory
        with pytest.raises(GatelabError, match="are more than 100000; give fewer"):
            reading.widths(many)


STEPS = [(4, 1), (8, 2), (12, 3), (16, 4), (20, 5), (24, 6), (36, 9)]


@pytest.mark.parametrize(
    ("stored", "calls", "said"),
    [
        (0, STEPS, ["3 of 9, about 24 s", "6 of 9, about 12 s"]),
        (0, [(11, 1)], ["1 of 9"]),  # the first step includes imports: no time left is told of it
        (5, [(0, 5), (4, 6), (12, 8)], ["8 of 9, about 4 s"]),  # what was stored took no time
    ],
)
def test_progress_without_a_terminal_speaks_seldom(stored, calls, said, capsys, monkeypatch) -> None:
    """Reports of (seconds since the start, done) of nine, by a clock that needs no waiting."""
    clock = [0.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: clock[0])
    with output.progress("fitting", stored=stored) as report:
        for clock[0], done in calls:
            report(done, 9)
    lines = [f"gatelab: fitting: {line}{' left' * ('about' in line)}\n" for line in said]
    assert capsys.readouterr() == ("", "".join(lines))


# One grammar


def test_units_are_words_or_options_in_every_command() -> None:
    words = ("x3", "GLU", "--units", "mlp")
    scale = document("scale", *words, "--widths", "13,14", *SMALL)
    assert {p["unit"] for p in scale["points"]} == {"glu", "mlp"} and scale["problem"] == "x3"
    ntk = document("ntk", *words, "--rows", "5")
    assert [k["kernel"] for k in ntk["kernels"]] == ["glu", "mlp"] and ntk["data"].startswith("x3")
    dynamics = document("dynamics", *words, "--rows", "5", "--steps", "2")
    assert [u["unit"] for u in dynamics["units"]] == ["glu", "mlp"]


# Completion


def question(words: str) -> dict[str, str]:
    """What bash asks with."""
    return {"_GATELAB_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}


def completed(words: str) -> list[str]:
    done = CliRunner().invoke(app, [], env=question(words), prog_name="gatelab")
    assert done.stderr == ""
    return done.stdout.split()


def test_the_shell_completes_commands_units_and_problems() -> None:
    assert completed("gatelab sca") == ["scale"]
    assert completed("gatelab fit sw") == ["swiglu"]
    assert completed("gatelab ntk --unit glu,gq") == ["glu,gqu"]
    assert completed("gatelab compare glu fried") == ["friedman1", "friedman2", "friedman3"]
    assert completed("gatelab train v") == ["vit"]
