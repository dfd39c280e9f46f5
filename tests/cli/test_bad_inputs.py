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
fit '' | no unit is given
fit glu '' | empty
fit glu nonsense | nonsense
fit glu '__import__("os").system("id")' | __import__
fit glu '3' | the target is constant
fit glu --width 0 | width is 0
fit glu --width 99999999999999999999 | a whole number of neurons, from 1 to
fit glu --width 5000 | parameters
fit glu --points 1 | from 2 to
fit glu --steps 0 | --steps
fit glu --seed 1.5 | --seed
fit glu --solver sgd | no solver is called 'sgd'
fit swiglu --solver knots | knot
fit glu --solver newton --ridge 1 | ridge
fit glu --ridge nan --solver varpro | ridge
fit glu --solver varpro --device nonsense | nonsense
fit glu --solver varpro --device cuda:99 | cuda
fit glu --interval 1:1 | interval
fit glu --sampling magic | magic
fit glu --noise -1 | noise
fit glu --protocol mine | mine
fit glu --nonsense | nonsense
fit glu paper-1d extra | extra
fit glu --data missing.csv | missing.csv
fit glu --data . | .
fit glu --data empty.csv | empty.csv
fit glu --data words.csv | words.csv
fit glu --data constant.csv | constant.csv
fit glu --data huge.csv | huge.csv
fit glu --data tiny.csv | the targets reach 5e-311
fit glu --data objects.npy | objects.npy
fit glu x2 --data good.csv | good.csv
fit glu --data good.csv --target z | z
fit glu --data good.csv --inputs '' | no column of good.csv is called ''
fit glu --data good.csv --interval 0:0.1 | outside
fit glu --data good.csv --points 10 | points
fit glu --data good.csv --width 100 | parameters
fit glu --target y | --data
fit glu --out model.pt | .safetensors
fit glu --out good.csv/model.safetensors | good.csv
fit glu --out sub.safetensors | sub.safetensors
fit glu --out /proc/nowhere/model.safetensors | /proc
fit paper-1d | no unit is given next to 'paper-1d'
fit glu --interval 0 3 | with a comma between
fit glu mlp | takes one unit
fit --unit glu,mlp x3 | takes one unit
fit glu papr-1d | did you mean 'paper-1d'
scale | unit
scale gllu | glu
scale glu --widths '' | widths
scale glu --widths 5:1 | 5:1
scale glu --jobs 0 | --jobs
scale glu --backend spark | spark
scale glu --backend serial --address 10:1 | address
scale glu --max-hours -1 | hours
scale glu --store good.csv | good.csv
scale glu --store . | .
scale glu --retry-failed | --store
scale glu --out figure.bmp | .bmp
scale glu --out table.txt | .csv
scale glu --plot good.csv/figure.png | good.csv
scale glu --data three.csv --out three.csv | three.csv is read by this command
scale glu --store fits.csv --out ./fits.csv | fits.csv is read by this command
scale glu x3 --problem x2 | leave one of them out
scale glu --problem x3 --data good.csv | leave one of them out
scale glu reglu --widths 2 | different names
scale glu --widths 50 --points 200 --jobs 1 --out s.csv | a width of at most
scale glu --plot folder.png | is a folder
scale glu --max-hours 0 | --max-hours is 0.0
scale glu --store foreign.db | another program
scale glu --store foreign.db --dry-run | another program
law | Missing argument
law missing.csv | missing.csv
law good.csv | P
law empty.csv | empty.csv
law lawnan.csv | lawnan.csv
law lawtwo.csv | lawtwo.csv
law lawneg.csv | lawneg.csv
law law.csv --delta 0 | delta
law law.csv --delta nan | delta
law law.csv --bootstrap -1 | --bootstrap
law law.csv --p-column Q | Q
law law.csv --plot law.gif | .gif
law objects.npy | objects.npy
law lawword.csv | lawword.csv line 2: 'many' in 'L' is not a number
predict | Missing
predict model.safetensors | --data
predict missing.safetensors --data good.csv | missing.safetensors
predict good.csv --data good.csv | good.csv
predict cut.safetensors --data good.csv | cut.safetensors
predict other.safetensors --data good.csv | other.safetensors
predict model.safetensors --data words.csv | words.csv
predict model.safetensors --data three.csv | three.csv
predict model.safetensors --data good.csv --inputs x,y | 2
predict model.safetensors --data good.csv --target z | z
predict model.safetensors --data good.csv --out out.txt | .csv
predict model.safetensors --data good.csv --out good.csv | good.csv is read by this command and would be overwritten
predict model.safetensors --data link.csv --out good.csv | good.csv is read by this command
predict model.safetensors --data good.csv --out sub.safetensors/../link.csv | link.csv is read by this command
predict model.safetensors --data good.csv --out hard.csv | hard.csv is read by this command
ntk | one of
ntk nonsense | nonsense
ntk --gaussian 10 | 10
ntk --gaussian 200000,10 | 200000
ntk --gaussian 1000000000,1000000000 | GiB
ntk --gaussian 10,5 --data good.csv | one of
ntk --gaussian 10,5 --rows 0 | --rows
ntk --gaussian 10,5 --plot a.bmp | .bmp
ntk --gaussian 10,5 --model missing.safetensors | missing.safetensors
ntk --gaussian 10,5 --model model.safetensors | 5
ntk --gaussian 10,1 --model model.safetensors --unit glu | unit
ntk --gaussian 10,1 --model model.safetensors --width 3 | width
ntk glu --data cube.npy --out cube.npy | cube.npy is read by this command
ntk glu x3 'x*y' | both not units
ntk friedmann1 | did you mean 'friedman1'
ntk x2 --gaussian 9,9 | a problem and --gaussian is given; give one of them
ntk x2 --target y | --data FILE
ntk --gaussian 9,3 --raw | leave --standardize
ntk --gaussian 9,3 --out a.npy | ends in .npz
ntk --data good.csv --no-target --target x | leave --target
ntk --data good.csv --model other.safetensors | another program
ntk --data good.csv --model model.safetensors --standardize | leave --standardize
ntk --data three.csv --no-target --model model.safetensors | has 1 inputs
dynamics | one of
dynamics nonsense | nonsense
dynamics --gaussian 10,5 --lr 0 | lr
dynamics --gaussian 10,5 --steps 100000000000 | steps
dynamics --gaussian 10,5 --rows 1 | --rows
dynamics --gaussian 10,5 --plot a.jpeg | .jpeg
dynamics --gaussian 10,5 --measure --width 100000000000 | width
dynamics --data constant.csv | constant.csv
train | Missing
train mixer | unit
train lstm glu | lstm
train mixer gllu | glu
train mixer glu --data nonsense | nonsense
train gpt2 glu --text missing.txt | missing.txt
train gpt2 glu --text notes.txt --tokenizer bytes --size tiny | notes.txt
train gpt2 glu --text nothing.txt --tokenizer bytes | nothing.txt
train mixer glu --optimizer lion | lion
train mixer glu --set layers | layers
train gpt2 glu --text long.txt --tokenizer bytes --size tiny --set wings=2 | wings
train mixer glu --steps 0 | --steps
train mixer glu --precision fp8 | fp8
train gpt2 glu --text long.txt --tokenizer bytes --size tiny --device cuda:99 | cuda
train glu | give mixer, vit or gpt2
train mixer glu --text long.txt | --text is for gpt2
train gpt2 glu --text long.txt --data mnist | leave --data out
train mixer glu --out a.txt | .csv
gap --unit gllu | glu
gap --seeds 0 | --seeds
gap --plot gap.bmp | .bmp
gap --record long.json --out long.json | long.json is read by this command
gap mlp vit | no unit is called 'vit'
gap --units glu,reglu | each once
gap --record none.json | none.json
linearize gellu | gelu
linearize gelu --method nonsense | nonsense
linearize gelu --degree -1 | --degree
linearize gelu --degree 1000000 | degree
linearize gelu --method minimax --degree 8 --interval 1: | interval
linearize gelu --interval 1e300 | interval
linearize gelu --method hermite --scale 0 | scale
linearize gelu --method optimal | d
linearize gelu --method optimal --d 1000 --m 1000000000000 | features
linearize gelu --data missing.npy | missing.npy
linearize gelu --margin nan --data good.csv | margin
linearize gelu --method taylor --degree 4 --interval 3 --out poly.txt | .json
linearize gelu --method taylor --degree 4 --interval 3 --plot p.bmp | .bmp
linearize gelu --method optimal --d 2 --m 4 --out poly.json | polynomial
linearize gelu --unit silu | leave one of them out
linearize relu --method taylor | kink
linearize gelu --interval 5 --data good.csv | leave one of them out
linearize gelu --interval 3 --scale 2 | no option of minimax is called 'scale'
linearize gelu --method fit | fit needs data
linearize gelu --method monte-carlo | does not factor
linearize gelu --option degrees=3 | did you mean 'degree'
linearize gelu --option degree=high | give NAME=NUMBER
linearize gelu --method optimal --d 2 --m 4 --interval 3 | no option of optimal is called 'interval'
linearize silu --compare | leave --compare out
compare --unit glu | two
compare nonsense | nonsense
compare --data onerow.csv | onerow.csv
compare --rows 3 | --rows
compare --widths 0 | 0
compare x2 --loss nan | loss
compare --out card.txt | .html
compare | no data are given; give --data FILE
compare glu --interval 1,2,3 | with a comma between
compare friedman1 --data good.csv | leave one of them out
reproduce | name
reproduce nonsense | nonsense
reproduce scaling/fig99 | scaling/fig99
reproduce '' | no study is called
reproduce scaling/fig1 --out good.csv | good.csv
reproduce scaling/fig1 --backend spark | spark
reproduce scaling/fig2 --store words.csv | words.csv
reproduce scaling/fig1 --max-hours -1 | hours
reproduce scaling/fig2 --backend rya | did you mean 'ray'
report --out missing | missing
report --out good.csv | good.csv
demo --max-width 1 | --max-width
demo --out good.csv | good.csv
demo --out good.csv/a | not a folder
demo --max-hours -1 | --max-hours is -1.0
results nonsense | nonsense
results list --store missing.db | missing.db
results list --store good.csv | good.csv
results list --store . | .
results list --store runs.db --status fine | fine
results list --store runs.db --limit 0 | --limit
results show | Missing
results export --store runs.db | --out
results export --store missing.db --out runs.csv | missing.db
results prune --store runs.db --older-than -1 --yes | --older-than
results prune --store missing.db --failed --yes | missing.db
results lst | lst
results show 0 --store model.safetensors --out model.safetensors | is read by this command
results list | the store gatelab.db does not exist; give --store FILE
results prune --failed --store foreign.db | another program
units extra | extra
problems --json=3 | json
nonsense | nonsense
--nonsense | nonsense
ladder --record long.json --out long.json | long.json is read by this command
ladder nounit | nounit
ladder glu --text long.txt --repeats once | --repeats is 'once'
ladder glu --text long.txt --repeats ² | --repeats is
ladder glu --text long.txt --lr 0 | lr of glu is 0
ladder glu --text long.txt --steps 2 --sizes tiny --repeats 500 --dry-run | repeats 500 a run has
ladder glu --text long.txt --sizes tiny --max-hours nan --dry-run | max_hours is nan
ladder glu --plot ladder.txt | ladder.txt
ladder glu --text long.txt --record long.json | leave out the units glu, --text
ladder --record none.json | not a record of a ladder
plan llm --text long.txt --out llm/config.json | config.json is read by this command
profile llm --text long.json --out long.json | long.json is read by this command
regress none.csv | there is no file
regress three.csv --target a,b | give one column
regress three.csv --target a --inputs a | both input and target
regress three.csv --test 1 | test
regress three.csv --target cost | cost
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
    table("onerow.csv", lines[:1])
    table("words.csv", ["one,two", *lines])
    table("onecolumn.csv", [f"{a}" for a in x], "x")
    table("constant.csv", [f"{a},1.0" for a in x])
    table("huge.csv", [f"{a},{(a - 0.5) * 3e308}" for a in x])
    table("tiny.csv", [f"{a},{(a - 0.5) * 1e-310}" for a in x])
    table("law.csv", [f"{p},{d},{1 + 9 / p + 9 / d}" for p in (10, 20, 40, 80) for d in (10, 20, 40, 80)], "P,D,L")
    table("lawnan.csv", [f"{p},{d},nan" for p in (10, 20, 40, 80) for d in (10, 20, 40, 80)], "P,D,L")
    table("lawneg.csv", [f"{p},{d},-1" for p in (10, 20, 40, 80) for d in (10, 20, 40, 80)], "P,D,L")
    table("lawword.csv", ["10,10,many"], "P,D,L")
    table("lawtwo.csv", ["10,10,1", "20,20,0.5"], "P,D,L")
    (home / "empty.csv").write_text("")
    (home / "notes.txt").write_text("no data")
    (home / "nothing.txt").write_text("")
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
    np.save(home / "cube.npy", np.zeros((4, 4, 4)))
    from safetensors.numpy import save_file

    save_file({"weight": np.ones((2, 2))}, home / "other.safetensors")
    fit = gl.fit("mlp", gl.Problem.from_file(home / "good.csv"), 2)
    saved = fit.save(home / "model.safetensors").read_bytes()
    (home / "cut.safetensors").write_bytes(saved[: len(saved) // 2])
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
