"""Saved, loaded, predicted: the same bits from every kind of file, by `gl.load` and by `gatelab predict`; or a line."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from typer.testing import CliRunner

import gatelab as gl
from gatelab.cli import app, predict
from gatelab.data import tables
from gatelab.estimators import trees
from gatelab.linearization.exchange import export

QUICK = {"starts": 1, "rounds": 0, "steps": 8}
X = np.random.default_rng(0).uniform([1, 0], [9, 100], (90, 2))
Y = 50_000 * X[:, 0] * np.exp(-X[:, 1] / 100)


def table(x: np.ndarray = X, y: np.ndarray = Y) -> pd.DataFrame:
    return pd.DataFrame({"rooms": x[:, 0], "age": x[:, 1], "price": y})


def run(*args: str):
    return CliRunner().invoke(app, ["predict", *args], env={"COLUMNS": "80", "NO_COLOR": "1"}, prog_name="gatelab")


def ok(*args: str) -> str:
    result = run(*args)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def fit() -> gl.Fit:
    rows = table()
    problem = gl.Problem.from_arrays(rows[["rooms", "age"]], rows["price"], name="houses", standardize=True)
    return gl.fit("swiglu", problem, 2, **QUICK)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fit: gl.Fit) -> Path:
    monkeypatch.chdir(tmp_path)
    fit.save("model.safetensors")
    table().to_csv("points.csv", index=False)
    return tmp_path


def altered(path: str, change) -> None:
    """The file with its metadata or arrays changed."""
    with safe_open(path, framework="pt") as file:
        about, arrays = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    ((key, text),) = about.items()
    facts = json.loads(text)
    change(facts, arrays)
    save_file(arrays, path, metadata={key: json.dumps(facts)})


# load


@pytest.mark.parametrize("unit", ["glu", "gqu", gl.Unit("tanh", 2)])
def test_a_fit_comes_back_to_the_last_bit(unit) -> None:
    problem = gl.Problem.from_arrays(X, np.c_[Y, X[:, 0]], name="two", standardize=True)
    fit = gl.fit(unit, problem, 2, **QUICK)
    again = gl.load(fit.save("new/fit.safetensors"))
    assert isinstance(again, gl.Fit)
    np.testing.assert_array_equal(again.predict(X), fit.predict(X))
    assert again.as_row() == fit.as_row() and again.history == fit.history
    assert (again.d_in, again.columns, again.targets) == (2, (), ())
    assert (again.network.unit, again.network.G.requires_grad) == (fit.network.unit, True)
    assert gl.fit("mlp", gl.problem("x2", n=40), 2).save("raw") and gl.load("raw").scales is None


def test_every_kind_of_file_is_known_by_what_it_says() -> None:
    model = gl.GatedRegressor("glu", width=2, ridge=0.1, random_state=0).fit(X, Y)
    loaded = gl.load(model.save("regressor"))
    assert isinstance(loaded, gl.GatedRegressor)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    polynomial = gl.linearize("gelu", "minimax", degree=4).polynomial
    export(polynomial).save("gelu.json")
    assert gl.load("gelu.json") == polynomial
    with pytest.raises(gl.GatelabError, match=r"holds a Fit, .*GatedRegressor; gl.load\(path\) reads it"):
        gl.GatedRegressor.load("model.safetensors")


def test_no_code_is_told_in_a_file() -> None:
    def softgate(z, v):
        return torch.nn.functional.softplus(z) * v

    class Own(torch.nn.Linear):
        def __init__(self, width: int, d_in: int, d_out: int) -> None:
            super().__init__(d_in, d_out)

    problem = gl.problem("x2", n=40)
    for unit, options in ((softgate, QUICK), (Own, {"solver": "adam", "steps": 2})):
        with pytest.raises(gl.GatelabError, match="which a file of arrays cannot hold"):
            gl.fit(unit, problem, 2, **options).save("own.safetensors")
    assert not Path("own.safetensors").exists()


DAMAGE = {
    "newer": (lambda facts, _: facts.update(format=99), r"\(format 99; this one reads 1\); update gatelab"),
    "older": (lambda facts, _: facts.pop("format"), r"\(format None; this one reads 1\)"),
    "no unit": (lambda facts, _: facts.pop("unit"), "damaged"),
    "code": (lambda facts, _: facts.update(unit={"import": "os:system"}), "code to"),
    "gate": (lambda facts, _: facts["unit"].update(gate="rellu"), "damaged"),
    "huge": (lambda facts, _: facts.update(width=10**15), "damaged"),
    "names": (lambda facts, _: facts.update(columns=["a"]), "not of 2 inputs and 1 outputs"),
    "scales": (lambda facts, _: facts["scales"].update(x={"mean": [0.0], "deviation": [1.0]}), "not of 2 inputs"),
    "no scale": (lambda facts, _: facts["scales"]["y"].update(deviation=[0.0]), "scale"),
    "NaN": (lambda _, arrays: arrays["G"].fill_(torch.nan), "4 of 4 values of G are NaN or infinite; .* damaged"),
    "missing": (lambda _, arrays: arrays.pop("U"), "damaged"),
    "single": (lambda _, arrays: arrays.update(G=arrays["G"].float()), "not float64"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_metadata_and_arrays_that_do_not_fit_are_refused(name: str) -> None:
    change, says = DAMAGE[name]
    altered("model.safetensors", change)
    with pytest.raises(gl.GatelabError, match=says) as refused:
        gl.load("model.safetensors")
    assert "\n" not in str(refused.value)


def foreign(folder: Path) -> dict[str, tuple[str, str]]:
    """Files that are not ours, and what is said of each."""
    content = (folder / "model.safetensors").read_bytes()
    torch.save({"G": torch.zeros(2)}, folder / "torch.pt")
    pd.to_pickle({"a": 1}, folder / "a.pickle", compression=None)
    save_file({"weight": torch.zeros(2)}, folder / "other.safetensors")
    save_file({"weight": torch.zeros(2)}, folder / "future.safetensors", metadata={"gatelab.Oracle": "{}"})
    save_file({"w": torch.zeros(2, dtype=torch.bfloat16)}, folder / "half.safetensors", metadata={"format": "pt"})
    (folder / "short.safetensors").write_bytes(content[:-8])
    (folder / "empty.safetensors").write_bytes(b"")
    (folder / "a.json").write_text('{"format": 1}')
    (folder / "list.json").write_text('{"format": ')
    (folder / "runs.db").write_bytes(b"SQLite format 3\0" + bytes(100))
    return {
        "torch.pt": ("looks like a pickle", "never loaded"),
        "a.pickle": ("looks like a pickle", "never loaded"),
        "other.safetensors": ("another program", "gatelab fit --out"),
        "half.safetensors": ("another program", "gatelab fit --out"),
        "future.safetensors": ("holds a 'Oracle'", "update gatelab"),
        "short.safetensors": ("cannot be read (incomplete safetensors file", "gatelab fit --out"),
        "empty.safetensors": ("cannot be read (incomplete safetensors file", "gatelab fit --out"),
        "a.json": ("JSON of another program", "gatelab fit --out"),
        "list.json": ("incomplete JSON", "gatelab fit --out"),
        "runs.db": ("a store of runs", "write the network"),
        "nowhere": ("there is no file", "gatelab fit --out"),
        ".": ("there is no file", "gatelab fit --out"),
    }


def test_foreign_files_are_refused_in_a_line(here: Path) -> None:
    files = foreign(here)
    before = sorted(here.iterdir())
    for name, says in files.items():
        with pytest.raises(gl.GatelabError) as refused:
            gl.load(name)
        assert all(part in str(refused.value) for part in says), (name, str(refused.value))
        result = run(name, "--data", "points.csv", "--out", "p.csv")
        assert result.exit_code == 2 and result.stdout == "", result.output
        assert re.fullmatch(r"gatelab: .+\n", result.stderr) and says[0] in result.stderr
    assert sorted(here.iterdir()) == before


@pytest.mark.parametrize("path", [None, 3, ["a.safetensors"]])
def test_what_is_no_path_is_refused_in_a_sentence(path: object) -> None:
    for read in (gl.load, gl.Problem.from_file, gl.sweep.Store):
        with pytest.raises(gl.GatelabError, match="is not a path"):
            read(path)


def test_a_network_that_ran_away_is_not_saved(fit: gl.Fit) -> None:
    problem = gl.problem("x2", n=40)
    broken = gl.fit("mlp", problem, 2)
    broken.network.G.data.fill_(torch.nan)
    with pytest.raises(gl.GatelabError, match="2 of 2 values of G are NaN"):
        broken.save("broken.safetensors")
    assert not Path("broken.safetensors").exists()


# gatelab predict


@pytest.mark.parametrize(("ending", "out"), [("csv", ".npy"), ("csv.gz", ".csv"), ("npy", ".parquet"), ("npz", ".csv")])
def test_files_in_and_out(fit: gl.Fit, here: Path, ending: str, out: str) -> None:
    rows = table()
    if ending == "npz":
        np.savez("in.npz", x=X, y=Y)
    elif ending == "npy":
        np.save("in.npy", rows.to_numpy())
    else:
        rows.to_csv(f"in.{ending}", index=False)
    said = ok("model.safetensors", "--data", f"in.{ending}", "--out", f"new/p{out}")
    values = fit.predict(X)
    error = np.sqrt(np.mean((values[:, 0] - Y) ** 2))
    assert said == f"90 rows by the swiglu of width 2, RMSE {error:.4g}\nwrote new/p{out}\n"
    if out == ".npy":
        written = np.load("new/p.npy")
    else:
        frame = pd.read_csv("new/p.csv") if out == ".csv" else pd.read_parquet("new/p.parquet")
        assert list(frame.columns) == ["predicted_price"]
        written = frame.to_numpy()
    np.testing.assert_allclose(written, values, rtol=1e-15)


def test_columns_are_found_by_name_and_others_ignored(fit: gl.Fit) -> None:
    rows = table().assign(id="a house")[["id", "age", "rooms"]]
    rows.to_csv("new.csv", index=False)
    result = run("model.safetensors", "--data", "new.csv")
    lines = result.stdout.splitlines()
    assert lines[0] == "predicted_price" and result.stderr == "gatelab: 90 rows by the swiglu of width 2\n"
    np.testing.assert_allclose([float(line) for line in lines[1:]], fit.predict(X)[:, 0], rtol=1e-15)
    document = json.loads(ok("model.safetensors", "--data", "new.csv", "--json"))
    assert document["rmse"] is None and document["files"] == [] and document["rows"] == 90
    np.testing.assert_array_equal(document["predictions"], fit.predict(X))
    rows.rename(columns={"age": "years"}).to_csv("renamed.csv", index=False)
    document = json.loads(ok("model.safetensors", "--data", "renamed.csv", "--inputs", "rooms,years", "--json"))
    np.testing.assert_array_equal(document["predictions"], fit.predict(X))


def test_an_unknown_target_spoils_no_prediction(fit: gl.Fit) -> None:
    rows = table()
    rows.loc[3, "price"] = np.nan
    rows.to_csv("new.csv", index=False)
    document = json.loads(ok("model.safetensors", "--data", "new.csv", "--json"))
    assert document["rmse"] is None and "line 5: the value in 'price' is missing" in document["note"]
    assert len(document["predictions"]) == 90
    assert "no RMSE: new.csv line 5" in run("model.safetensors", "--data", "new.csv").stderr


@pytest.mark.parametrize("labels", [["dear", "cheap"], [2.0, 1.0]])
def test_a_classifier_gives_classes_and_their_probabilities(labels: list, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees.Deviance, "most", 10)
    monkeypatch.setattr(trees, "_AVERAGED", 5)
    rows = table()
    y = np.where(rows["price"] > rows["price"].median(), labels[0], labels[1])
    model = gl.GatedClassifier("steps", members=3, random_state=0).fit(rows[["rooms", "age"]], y)
    model.save("classes.safetensors")
    p, low, high = model.predict_proba(rows[["rooms", "age"]]), *sorted(labels)
    names = ["predicted", f"probability_{low}", f"probability_{high}"]
    ok("classes.safetensors", "--data", "points.csv", "--out", "out.csv")
    written = pd.read_csv("out.csv")
    assert written.columns.tolist() == names
    assert written["predicted"].tolist() == model.predict(rows[["rooms", "age"]]).tolist()
    assert np.array_equal(written[names[1:]].to_numpy(), p)
    content = json.loads(ok("classes.safetensors", "--data", "points.csv", "--json"))
    assert content["columns"] == names and content["rmse"] is None
    assert content["predictions"][3] == [written["predicted"][3], *p[3]]
    ok("classes.safetensors", "--data", "points.csv", "--out", "out.npy")
    assert np.array_equal(np.load("out.npy"), p)
    result = run("classes.safetensors", "--data", "points.csv", "--target", "price")
    assert result.exit_code == 2 and "--target" in result.stderr


def test_estimators_read_the_tables_that_they_were_fitted_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text, gaps, dates, durations and categories, in parts: what `predict` says of the data frame."""
    monkeypatch.setattr(tables, "PART", 100)
    generator = np.random.default_rng(2)
    n = 90
    rows = pd.DataFrame(
        {
            "size": np.where(generator.random(n) < 0.1, np.nan, X[:, 0]),
            "kind": np.array(["a", "none", None], dtype=object)[generator.integers(0, 3, n)],
            "grade": pd.Categorical(np.where(generator.random(n) < 0.2, np.nan, generator.integers(1, 4, n) * 1.0)),
            "place": [f"p{k}" for k in generator.integers(0, 20, n)],
            "sold": generator.random(n) < 0.5,
            "when": pd.Timestamp("2024-01-01", tz="Asia/Tokyo") + pd.to_timedelta(generator.integers(0, 500, n), "D"),
            "took": pd.to_timedelta(generator.integers(0, 10**6, n), "s"),
            "cost": [Decimal(int(k)) / 100 for k in generator.integers(0, 9999, n)],
        }
    )
    model = gl.GatedRegressor("glu", width=1, ridge=0.1, starts=1, rounds=0, random_state=0).fit(rows, Y)
    model.save("regressor.safetensors")
    kind = gl.GatedClassifier("glu", width=1, ridge=0.1, members=1, random_state=0).fit(rows, np.median(Y) < Y)
    kind.save("classifier.safetensors")
    rows.assign(price=Y).to_csv("rows.csv", index=False)
    rows.to_parquet("rows.parquet")
    for ending, target in (("csv", ["--target", "price"]), ("parquet", [])):
        content = json.loads(ok("regressor.safetensors", "--data", f"rows.{ending}", "--json", *target))
        np.testing.assert_allclose(np.ravel(content["predictions"]), model.predict(rows), rtol=1e-14)
        error = np.sqrt(np.mean((model.predict(rows) - Y) ** 2))
        assert content["rmse"] == (pytest.approx(error) if target else None)
        content = json.loads(ok("classifier.safetensors", "--data", f"rows.{ending}", "--json"))
        np.testing.assert_allclose([row[1:] for row in content["predictions"]], kind.predict_proba(rows), rtol=1e-14)
    rows.assign(when="soon").to_csv("later.csv", index=False)
    refused = run("regressor.safetensors", "--data", "later.csv")
    said = "column 'when' was dates when the model was fitted and holds 'soon'"
    assert refused.exit_code == 2 and said in refused.stderr


@pytest.mark.parametrize(
    ("cells", "options"),
    [(("TRUE", "FALSE"), {}), ((" u", " v"), {}), (("NA", "DE"), {}), (("#N/A", "DE"), {"keep_default_na": False})],
)
def test_levels_in_a_file_are_those_that_pandas_read_from_it(cells: tuple[str, str], options: dict, here: Path) -> None:
    """Rows were predicted as of no known level, without a word."""
    x = np.random.default_rng(0).uniform(-1, 1, 60)
    rows = [f"{v!r},{cells[k % 2]}" for k, v in enumerate(x.tolist())]
    (here / "rows.csv").write_text("\n".join(["x,kind", *rows]) + "\n")
    frame = pd.read_csv("rows.csv", **options)
    model = gl.GatedRegressor(width=1, ridge=1e-4, starts=1, rounds=0, random_state=0).fit(frame, x + np.arange(60) % 2)
    model.save("model")
    assert run("model", "--data", "rows.csv", "--out", "out.csv").exit_code == 0
    assert np.allclose(pd.read_csv("out.csv")["predicted"], model.predict(frame), rtol=0, atol=1e-12)


def test_a_gap_in_an_array_is_one_for_an_estimator(fit: gl.Fit) -> None:
    gaps = np.where(np.arange(180).reshape(90, 2) % 7 == 0, np.nan, X)
    model = gl.GatedRegressor("glu", width=1, ridge=0.1, starts=1, rounds=0, random_state=0).fit(gaps, Y)
    model.save("regressor.safetensors")
    np.save("gaps.npy", gaps)
    content = json.loads(ok("regressor.safetensors", "--data", "gaps.npy", "--json"))
    assert np.array_equal(np.ravel(content["predictions"]), model.predict(gaps))
    refused = run("model.safetensors", "--data", "gaps.npy")
    assert refused.exit_code == 2 and "the value in column 0 is missing" in refused.stderr


@pytest.mark.parametrize("ending", ["csv", "npy", "parquet"])
def test_files_are_predicted_in_parts(fit: gl.Fit, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    monkeypatch.setattr(tables, "PART", 7)
    rows = table()
    writers = {
        "csv": lambda p: rows.to_csv(p, index=False),
        "npy": lambda p: np.save(p, rows),
        "parquet": rows.to_parquet,
    }
    writers[ending](f"in.{ending}")
    sizes = []
    monkeypatch.setattr(predict, "read_predictor", spied(predict.read_predictor, sizes))
    document = json.loads(ok("model.safetensors", "--data", f"in.{ending}", "--json"))
    np.testing.assert_allclose(document["predictions"], fit.predict(X), rtol=1e-13)  # products of other sizes
    assert document["rmse"] == pytest.approx(float(np.sqrt(np.mean((fit.predict(X)[:, 0] - Y) ** 2))))
    assert sum(sizes) == 90 and max(sizes) <= 7


def spied(read, sizes: list[int]):
    """A reader of models that note how many rows they are given at once."""
    from dataclasses import replace

    def wrapped(path: Path):
        model = read(path)
        return replace(model, predict=lambda rows: sizes.append(len(rows)) or model.predict(rows))

    return wrapped


def test_the_command_line_saves_what_it_fitted() -> None:
    words = ["fit", "mlp", "--data", "points.csv", "--width", "2", "--standardize", "--steps", "5"]
    told = CliRunner().invoke(app, [*words, "--out", "mlp.safetensors", "--json"], prog_name="gatelab")
    row = json.loads(told.stdout)
    assert row["test_rmse_raw"] == pytest.approx(row["test_rmse"] * gl.load("mlp.safetensors").scales.y.deviation[0])
    fit = gl.load("mlp.safetensors")
    assert (fit.columns, fit.targets) == (("rooms", "age"), ("price",))
    said = CliRunner().invoke(app, words, prog_name="gatelab").stdout
    assert f"{row['test_rmse_raw']:.3e} in the units of the target" in said
    plain = CliRunner().invoke(app, words[:-3] + words[-2:], prog_name="gatelab").stdout
    assert "test RMSE" in plain and "own units" not in plain


ERRORS = {
    "no file": (["model.safetensors", "--data", "no.csv"], "no.csv cannot be read"),
    "missing": (["model.safetensors", "--data", "missing.csv"], "no column of missing.csv is called 'age'"),
    "twice": (["model.safetensors", "--data", "twice.csv"], "2 columns called 'age'"),
    "unknown": (["model.safetensors", "--data", "points.csv", "--inputs", "age,size"], "no column of points.csv"),
    "header alone": (["model.safetensors", "--data", "header.csv"], "has a header and no rows"),
    "no rows": (["model.safetensors", "--data", "none.npy"], "no rows"),
    "no network": (["gelu.json", "--data", "points.csv"], "holds a Polynomial, not a network"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_one_line_and_nothing_is_written(name: str, here: Path) -> None:
    args, says = ERRORS[name]
    texts = {"missing": "rooms,years\n1,2\n", "twice": "rooms,age,age\n1,2,3\n", "header": "rooms,age\n"}
    for file, text in texts.items():
        (here / f"{file}.csv").write_text(text)
    np.save("none.npy", np.ones((0, 2)))
    export(gl.linearize("gelu", "minimax", degree=2).polynomial).save("gelu.json")
    before = sorted(here.iterdir())
    for more in ([], ["--json"], ["--out", "p.csv"]):
        result = run(*args, *more)
        assert result.exit_code == 2 and result.stdout == "", result.output
        assert says in " ".join(result.stderr.split()), result.stderr
        assert re.fullmatch(r"gatelab: .+\n", result.stderr)
    assert sorted(here.iterdir()) == before
