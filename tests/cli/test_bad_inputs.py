"""Three hundred bad inputs: each ends in one line that says what was wrong, exit code 2, and nothing is written.

A row of the table is a command and a piece of the message that it must end in. Files named in the rows are made by
`folder`; none of them may change and no other may appear.
"""

import io
import pickle
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
fit glu 'x +' | x +
fit glu 'import os' | import os
fit glu '__import__("os").system("id")' | __import__
fit glu 'x.__class__' | x.__class__
fit glu 'open("secret")' | open
fit glu 'x[0]' | x[0]
fit glu 'x**x**x**x**9999' | finite
fit glu '1/x - 1/x' | the target is constant
fit glu 'log(x)' | finite
fit glu '3' | the target is constant
fit glu 'x + q' | q
fit glu 'x10 + x1' | x10
fit glu 'sin()' | sin
fit glu 'x if x > 0 else 1' | x if x
fit glu '9**9**9**9 * x' | 9
fit glu --width 0 | width is 0
fit glu --width 1e3 | 1e3
fit glu --width 99999999999999999999 | a whole number of neurons, from 1 to
fit glu --width 200000 --points 2000000 | GiB
fit glu --width 5000 | parameters
fit glu --points 1 | from 2 to
fit glu --points 1e6 | 1e6
fit glu --points 100000000000 | from 2 to
fit glu --steps 0 | --steps
fit glu --seed 1.5 | --seed
fit glu --solver sgd | no solver is called 'sgd'
fit glu --solver '' | solver
fit swiglu --solver knots | knot
fit glu friedman1 --solver knots | knot
fit glu --solver newton --ridge 1 | ridge
fit glu --ridge -1 | --ridge
fit glu --ridge nan --solver varpro | ridge
fit glu --solver varpro --device nonsense | nonsense
fit glu --solver varpro --device cuda:99 | cuda
fit glu --solver varpro --device meta | meta
fit glu --interval 1:1 | interval
fit glu --interval nan:1 | interval
fit glu --interval 0 | interval
fit glu --interval -1e308:1e308 | interval
fit glu --sampling magic | magic
fit glu --noise -1 | noise
fit glu --noise nan | noise
fit glu --protocol mine | mine
fit glu --nonsense | nonsense
fit glu paper-1d extra | extra
fit glu --data missing.csv | missing.csv
fit glu --data . | .
fit glu --data empty.csv | empty.csv
fit glu --data onerow.csv | onerow.csv
fit glu --data header.csv | header.csv
fit glu --data words.csv | words.csv
fit glu --data nan.csv | nan.csv
fit glu --data inf.csv | inf.csv
fit glu --data ragged.csv | ragged.csv
fit glu --data binary.csv | binary.csv
fit glu --data onecolumn.csv | onecolumn.csv
fit glu --data constant.csv | constant.csv
fit glu --data constantx.csv | constantx.csv
fit glu --data huge.csv | huge.csv
fit glu --data tiny.csv | the targets reach 5e-311
fit glu --data notes.txt | notes.txt
fit glu --data objects.npy | objects.npy
fit glu --data objects.npz | objects.npz
fit glu --data keys.npz | keys.npz
fit glu --data cube.npy | cube.npy
fit glu --data complex.npy | complex.npy
fit glu --data cut.npy | cut.npy
fit glu --data cut.parquet | cut.parquet
fit glu --data pickle.npy | pickle.npy
fit glu x2 --data good.csv | good.csv
fit glu --data good.csv --target z | z
fit glu --data good.csv --target 9 | 9
fit glu --data good.csv --target -5 | -5
fit glu --data good.csv --target y,y | twice
fit glu --data good.csv --target x,y | input
fit glu --data good.csv --inputs y | y
fit glu --data good.csv --inputs '' | no column of good.csv is called ''
fit glu --data good.csv --inputs z | z
fit glu --data good.csv --interval 0:0.1 | outside
fit glu --data good.csv --points 10 | points
fit glu --data good.csv --noise 1 | noise
fit glu --data good.csv --width 100 | parameters
fit glu --target y | --data
fit glu --inputs x | --data
fit glu --out model.pt | .safetensors
fit glu --out good.csv/model.safetensors | good.csv
fit glu --out sub.safetensors | sub.safetensors
fit glu --out /proc/nowhere/model.safetensors | /proc
fit foo | no unit is called 'foo'
fit paper-1d | no unit is given next to 'paper-1d'
fit glu --data book.xlsx | book.xlsx is a spreadsheet
fit glu --data three.csv --inputs 7 | 0 to 2
fit glu 'x*z' | has z but not y
fit glu 'x*y' --sampling gauss | 'random' or 'grid'
fit glu friedman1 --sampling grid | leave it out
fit glu '1e200*sin(x)' --points 99 | the targets reach
fit glu --data index.csv | give it as inputs
fit glu --data spaces.csv | commas
fit glu --data line.npy | N x k numbers
fit glu --interval 0 3 | with a comma between
fit glu mlp | takes one unit
fit --unit glu,mlp x3 | takes one unit
fit glu papr-1d | did you mean 'paper-1d'
scale | unit
scale gllu | glu
scale glu --widths '' | widths
scale glu --widths 5:1 | 5:1
scale glu --widths 1:50:0 | 1:50:0
scale glu --widths 1.5,2 | 1.5
scale glu --widths 1:99999999999 | widths
scale glu --problem '' | empty
scale glu --jobs 0 | --jobs
scale glu --backend spark | spark
scale glu --backend serial --address 10:1 | address
scale glu --max-hours -1 | hours
scale glu --max-hours nan | hours
scale glu --store good.csv | good.csv
scale glu --store . | .
scale glu --retry-failed | --store
scale glu --out figure.bmp | .bmp
scale glu --out table.txt | .csv
scale glu --plot good.csv/figure.png | good.csv
scale glu --device cuda:99 --solver varpro --widths 1:3 --jobs 1 | cuda
scale glu --widths 1:3 --data onerow.csv | onerow.csv
scale glu --data three.csv --out three.csv | three.csv is read by this command
scale glu --store fits.csv --out ./fits.csv | fits.csv is read by this command
scale foo --widths 1:3 | no unit is called 'foo'
scale glu x3 --problem x2 | leave one of them out
scale glu --problem x3 --data good.csv | leave one of them out
scale glu mpl | did you mean 'mlp'
scale glu reglu --widths 2 | different names
scale --unit glu,gllu --widths 1 | did you mean 'glu'
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
predict pickle.npy --data good.csv | pickle.npy
predict cut.safetensors --data good.csv | cut.safetensors
predict other.safetensors --data good.csv | other.safetensors
predict model.safetensors --data missing.csv | missing.csv
predict model.safetensors --data empty.csv | empty.csv
predict model.safetensors --data words.csv | words.csv
predict model.safetensors --data three.csv | three.csv
predict model.safetensors --data good.csv --inputs z | z
predict model.safetensors --data good.csv --inputs x,y | 2
predict model.safetensors --data good.csv --target z | z
predict model.safetensors --data good.csv --out out.txt | .csv
predict model.safetensors --data good.csv --out good.csv/out.csv | good.csv
predict model.safetensors --data good.csv --out good.csv | good.csv is read by this command and would be overwritten
predict model.safetensors --data link.csv --out good.csv | good.csv is read by this command
predict model.safetensors --data good.csv --out sub.safetensors/../link.csv | link.csv is read by this command
predict model.safetensors --data good.csv --out hard.csv | hard.csv is read by this command
ntk | one of
ntk nonsense | nonsense
ntk --gaussian 10 | 10
ntk --gaussian -10,5 | -10,5
ntk --gaussian 200000,10 | 200000
ntk --gaussian 1000000000,1000000000 | GiB
ntk --gaussian 10,5 --data good.csv | one of
ntk --gaussian 10,5 --unit gllu | glu
ntk --gaussian 10,5 --unit '' | unit
ntk --gaussian 10,5 --rows 0 | --rows
ntk --gaussian 10,5 --plot a.bmp | .bmp
ntk --gaussian 10,5 --out a.txt | .npy
ntk --gaussian 10,5 --model missing.safetensors | missing.safetensors
ntk --gaussian 10,5 --model good.csv | good.csv
ntk --gaussian 10,5 --model model.safetensors | 5
ntk --gaussian 10,1 --model model.safetensors --unit glu | unit
ntk --gaussian 10,1 --model model.safetensors --width 3 | width
ntk --data nan.csv | nan.csv
ntk --data good.csv --target z | z
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
dynamics --gaussian 10 | 10
dynamics --gaussian 10,5 --lr 0 | lr
dynamics --gaussian 10,5 --lr nan | lr
dynamics --gaussian 10,5 --steps 100000000000 | steps
dynamics --gaussian 10,5 --rows 1 | --rows
dynamics --gaussian 10,5 --unit gllu | glu
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
train mixer glu --size huge | huge
train mixer glu --set layers | layers
train mixer glu --set layers=-1 | layers
train gpt2 glu --text long.txt --tokenizer bytes --size tiny --set wings=2 | wings
train mixer glu --lr 0 | lr
train mixer glu --lr nan | lr
train mixer glu --steps 0 | --steps
train mixer glu --schedule linear | linear
train mixer glu --precision fp8 | fp8
train mixer glu --tokenizer words | words
train gpt2 glu --text long.txt --tokenizer trained:4k --size tiny | trained:4k
train gpt2 glu --text long.txt --tokenizer bytes --size tiny --device cuda:99 | cuda
train gpt2 glu --text long.txt --tokenizer bytes --size tiny --device meta | meta
train glu | give mixer, vit or gpt2
train mixer glu --text long.txt | --text is for gpt2
train gpt2 glu --text long.txt --data mnist | leave --data out
train mixer glu --out a.txt | .csv
gap --unit gllu | glu
gap --model lstm | lstm
gap --seeds 0 | --seeds
gap --optimizer lion | lion
gap --data nonsense | nonsense
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
linearize gelu --interval 3:1 | interval
linearize gelu --interval 0 | interval
linearize gelu --method hermite --scale 0 | scale
linearize gelu --method hermite --scale nan | scale
linearize gelu --method optimal | d
linearize gelu --method optimal --d 1000 --m 1000000000000 | features
linearize gelu --method optimal --d 3 --m 4 --w-scale 0 | scale
linearize gelu --data missing.npy | missing.npy
linearize gelu --data nan.csv | nan.csv
linearize gelu --data empty.csv | empty.csv
linearize gelu --data objects.npy | objects.npy
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
linearize gelu --option degree=2.5 | whole number, from 0 to 100
linearize gelu --method optimal --d 2 --m 4 --interval 3 | no option of optimal is called 'interval'
linearize silu --compare | leave --compare out
compare --unit gllu | glu
compare --unit glu | two
compare nonsense | nonsense
compare '' | empty
compare --data onerow.csv | onerow.csv
compare --data huge.csv | huge.csv
compare --data good.csv --target z | z
compare --rows 3 | --rows
compare --widths 0 | 0
compare x2 --loss nan | loss
compare --out card.txt | .html
compare --out good.csv/card.html | good.csv
compare | no data are given; give --data FILE
compare glu,gllu | did you mean 'glu'
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
results show zzzz --store runs.db | zzzz
results show '' --store runs.db | key
results export --store runs.db | --out
results export --store runs.db --out runs.txt | .csv
results export --store missing.db --out runs.csv | missing.db
results prune --store runs.db | --failed
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
ladder glu --text long.txt --sizes small,tiny | smallest first
ladder glu --text long.txt --repeats once | --repeats is 'once'
ladder glu --text long.txt --repeats ² | --repeats is
ladder glu --text long.txt --lr 0 | lr of glu is 0
ladder glu --text long.txt --sizes tiny --lr nan --dry-run | lr of glu is nan
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
    table("nan.csv", ["nan,1.0", *lines])
    table("inf.csv", ["0.5,inf", *lines])
    table("ragged.csv", ["0.5", *lines, "1,2,3"])
    table("onecolumn.csv", [f"{a}" for a in x], "x")
    table("constant.csv", [f"{a},1.0" for a in x])
    table("constantx.csv", [f"1.0,{a}" for a in x])
    table("huge.csv", [f"{a},{(a - 0.5) * 3e308}" for a in x])
    table("tiny.csv", [f"{a},{(a - 0.5) * 1e-310}" for a in x])
    table("law.csv", [f"{p},{d},{1 + 9 / p + 9 / d}" for p in (10, 20, 40, 80) for d in (10, 20, 40, 80)], "P,D,L")
    table("lawnan.csv", [f"{p},{d},nan" for p in (10, 20, 40, 80) for d in (10, 20, 40, 80)], "P,D,L")
    table("lawneg.csv", [f"{p},{d},-1" for p in (10, 20, 40, 80) for d in (10, 20, 40, 80)], "P,D,L")
    table("lawword.csv", ["10,10,many"], "P,D,L")
    table("index.csv", ["0,1", "1,3"], ",y")
    table("spaces.csv", ["2 3"], "1 2")
    table("lawtwo.csv", ["10,10,1", "20,20,0.5"], "P,D,L")
    (home / "empty.csv").write_text("")
    (home / "header.csv").write_text("x,y\n")
    (home / "notes.txt").write_text("no data")
    (home / "nothing.txt").write_text("")
    (home / "long.txt").write_text("a text that is long enough to train on. " * 200)
    (home / "binary.csv").write_bytes(np.random.default_rng(0).bytes(4000))
    for name in ("sub.safetensors", "folder.png"):
        (home / name).mkdir()
    with sqlite3.connect(home / "foreign.db") as db:
        db.execute("CREATE TABLE theirs (x)")
    np.save(home / "line.npy", np.ones(9))
    (home / "llm").mkdir()
    (home / "llm" / "config.json").write_text("{}")
    (home / "long.json").write_text("{}")
    (home / "book.xlsx").write_bytes(b"PK")
    (home / "link.csv").symlink_to("good.csv")
    (home / "hard.csv").hardlink_to(home / "good.csv")
    np.save(home / "objects.npy", np.array([{}, []], dtype=object), allow_pickle=True)
    np.savez(home / "objects.npz", x=np.array([{}, []], dtype=object), y=x[:2])
    np.savez(home / "keys.npz", a=x, b=x, c=x)
    np.save(home / "cube.npy", np.zeros((4, 4, 4)))
    np.save(home / "complex.npy", np.ones((9, 2)) * 1j)
    (home / "pickle.npy").write_bytes(pickle.dumps({"x": 1}))
    whole = io.BytesIO()
    np.save(whole, np.stack([x, x], 1))
    (home / "cut.npy").write_bytes(whole.getvalue()[:200])
    (home / "cut.parquet").write_bytes(b"PAR1" + bytes(50))
    from safetensors.numpy import save_file

    save_file({"weight": np.ones((2, 2))}, home / "other.safetensors")
    fit = gl.fit("mlp", gl.Problem.from_file(home / "good.csv"), 2)
    saved = fit.save(home / "model.safetensors").read_bytes()
    (home / "cut.safetensors").write_bytes(saved[: len(saved) // 2])
    gl.scaling(["mlp"], gl.problem("x2", n=50), [1, 2], store=home / "runs.db", jobs=1)
    return home


def test_the_table_has_three_hundred_rows_each_once():
    assert len({words for words, _ in ROWS}) == len(ROWS) >= 300


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
