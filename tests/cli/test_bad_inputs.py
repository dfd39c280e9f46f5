"""Bad inputs of every command: each ends in one line that says what was wrong, exit code 2, and nothing is written.

A row of the table is a command and a piece of the message that it must end in. Files named in the rows are made by
`folder`; none of them may change and no other may appear. Inputs that the library refuses have their own tests.
"""

import shlex
import sqlite3

import numpy as np
import pytest
from typer.testing import CliRunner

import gatelab as gl
from gatelab.cli import app

TABLE = """
fit | no unit is given
fit gllu | did you mean 'glu'
fit glu '' | empty
fit glu paper-1d extra | extra
fit glu --data missing.csv | missing.csv
fit glu --data words.csv | words.csv
fit glu --data objects.npy | objects.npy
fit glu x2 --data good.csv | good.csv
fit glu --data good.csv --inputs '' | no column of good.csv is called ''
fit glu --data good.csv --points 10 | points
fit glu --target y | --data
fit glu --out model.pt | .safetensors
fit glu --out good.csv/model.safetensors | good.csv
fit glu --out sub.safetensors | sub.safetensors
fit glu --out /proc/nowhere/model.safetensors | /proc
fit paper-1d | no unit is given next to 'paper-1d'
fit glu --interval 0 3 | with a comma between
fit glu mlp | takes one unit
fit glu papr-1d | did you mean 'paper-1d'
scale | unit
scale glu --widths 5:1 | 5:1
scale glu --store . | .
scale glu --retry-failed | --store
scale glu --out table.txt | .csv
scale glu --data three.csv --out three.csv | three.csv is read by this command
scale glu --store fits.csv --out ./fits.csv | fits.csv is read by this command
scale glu x3 --problem x2 | leave one of them out
scale glu --problem x3 --data good.csv | leave one of them out
scale glu --widths 50 --points 200 --jobs 1 --out s.csv | a width of at most
scale glu --plot folder.png | is a folder
scale glu --max-hours 0 | --max-hours is 0.0
scale glu --store foreign.db --dry-run | another program
law | Missing argument
law missing.csv | missing.csv
law lawnan.csv | lawnan.csv
law lawword.csv | lawword.csv line 2: 'many' in 'L' is not a number
predict good.csv --data good.csv | good.csv
predict model.safetensors --data three.csv | three.csv
predict model.safetensors --data good.csv --inputs x,y | 2
predict model.safetensors --data good.csv --out out.txt | .csv
predict model.safetensors --data good.csv --out good.csv | good.csv is read by this command and would be overwritten
predict model.safetensors --data link.csv --out good.csv | good.csv is read by this command
predict model.safetensors --data good.csv --out hard.csv | hard.csv is read by this command
ntk | one of
ntk --gaussian 10 | 10
ntk --gaussian 200000,10 | 200000
ntk --gaussian 10,5 --data good.csv | one of
ntk glu x3 'x*y' | both not units
ntk friedmann1 | did you mean 'friedman1'
ntk x2 --gaussian 9,9 | a problem and --gaussian is given; give one of them
ntk x2 --target y | --data FILE
ntk --gaussian 9,3 --raw | leave --standardize
ntk --gaussian 9,3 --out a.npy | ends in .npz
ntk --data good.csv --no-target --target x | leave --target
dynamics | one of
train lstm glu | lstm
train gpt2 glu --text missing.txt | missing.txt
train gpt2 glu --text notes.txt --tokenizer bytes --size tiny | notes.txt
train mixer glu --set layers | layers
train glu | give mixer, vit or gpt2
train mixer glu --text long.txt | --text is for gpt2
train gpt2 glu --text long.txt --data mnist | leave --data out
gap --record none.json | none.json
linearize gellu | gelu
linearize gelu --method minimax --degree 8 --interval 1: | interval
linearize gelu --data missing.npy | missing.npy
linearize gelu --method taylor --degree 4 --interval 3 --out poly.txt | .json
linearize gelu --method optimal --d 2 --m 4 --out poly.json | polynomial
linearize gelu --unit silu | leave one of them out
linearize gelu --interval 5 --data good.csv | leave one of them out
linearize gelu --margin nan --data good.csv | margin
linearize gelu --method fit | fit needs data
linearize gelu --option degrees=3 | did you mean 'degree'
linearize gelu --option degree=high | give NAME=NUMBER
linearize silu --compare | leave --compare out
compare --out card.txt | .html
compare | no data are given; give --data FILE
compare glu --interval 1,2,3 | with a comma between
compare friedman1 --data good.csv | leave one of them out
reproduce | name
reproduce nonsense | nonsense
report --out good.csv | good.csv
demo --out good.csv/a | not a folder
results list --store missing.db | missing.db
results list --store runs.db --status fine | fine
results show 0 --store model.safetensors --out model.safetensors | is read by this command
results list | the store gatelab.db does not exist; give --store FILE
units extra | extra
ladder glu --text long.txt --repeats once | --repeats is 'once'
ladder glu --text long.txt --sizes tiny --max-hours nan --dry-run | max_hours is nan
ladder glu --text long.txt --record long.json | leave out the units glu, --text
ladder --record none.json | not a record of a ladder
plan llm --text long.txt --out llm/config.json | config.json is read by this command
profile llm --text long.json --out long.json | long.json is read by this command
regress none.csv | no such file
regress three.csv --target a,b | give one column
regress three.csv --target a --inputs a | both input and target
regress three.csv --test 1 | test
regress onecolumn.csv | onecolumn.csv has one column
"""
ROWS = [tuple(part.strip() for part in line.rsplit(" | ", 1)) for line in TABLE.strip().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Good and bad files of every kind that commands read."""
    home = tmp_path_factory.mktemp("inputs")
    x = np.linspace(0, 1, 60)
    lines = [f"{a:.6f},{np.sin(4 * a):.6f}" for a in x]

    def table(name: str, rows: list[str], header: str = "x,y") -> None:
        (home / name).write_text("\n".join([header, *rows]) + "\n")

    table("good.csv", lines)
    table("three.csv", [f"{a},{a * a},{a + 1}" for a in x], "a,b,c")
    table("words.csv", ["one,two", *lines])
    table("onecolumn.csv", [f"{a}" for a in x], "x")
    table("lawnan.csv", [f"{p},{d},nan" for p in (10, 20, 40, 80) for d in (10, 20, 40, 80)], "P,D,L")
    table("lawword.csv", ["10,10,many"], "P,D,L")
    (home / "notes.txt").write_text("no data")
    (home / "long.txt").write_text("a text that is long enough to train on. " * 200)
    for name in ("sub.safetensors", "folder.png"):
        (home / name).mkdir()
    with sqlite3.connect(home / "foreign.db") as db:
        db.execute("CREATE TABLE theirs (x)")
    (home / "llm").mkdir()
    (home / "llm" / "config.json").write_text("{}")
    (home / "long.json").write_text("{}")
    (home / "link.csv").symlink_to("good.csv")
    (home / "hard.csv").hardlink_to(home / "good.csv")
    np.save(home / "objects.npy", np.array([{}, []], dtype=object), allow_pickle=True)
    gl.fit("mlp", gl.Problem.from_file(home / "good.csv"), 2).save(home / "model.safetensors")
    gl.scaling(["mlp"], gl.problem("x2", n=50), [1, 2], store=home / "runs.db", jobs=1)
    return home


@pytest.mark.parametrize(("words", "reason"), ROWS, ids=[words for words, _ in ROWS])
def test_bad_input_is_one_line_and_changes_nothing(folder, monkeypatch, words, reason):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GATELAB_CACHE", str(folder.parent / "cache"))
    before = contents(folder)
    done = CliRunner().invoke(app, shlex.split(words), prog_name="gatelab")
    assert done.exit_code == 2, (done.exit_code, done.output, done.exception)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("gatelab: "), done.stderr
    assert reason.lower() in lines[0].lower()
    assert done.stdout == ""
    assert contents(folder) == before


def contents(folder):
    files = [p for p in folder.rglob("*") if p.is_file() and not p.name.endswith(("-wal", "-shm"))]
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(files)}
