"""Files of a user: every format gives the same rows, columns are found by name or number, and errors say where."""

from __future__ import annotations

import gzip
import pickle
import sys
import warnings

import numpy as np
import pytest

from gatelab.data import Problem
from gatelab.data.tables import read_table
from gatelab.errors import GatelabError

ROWS = np.random.default_rng(0).normal(size=(30, 4)).round(9)
NAMES = ("a", "b", "c", "d")


def lines(delimiter=",", header=True, newline="\n", rows=ROWS):
    body = [delimiter.join(map(repr, row)) for row in rows.tolist()]
    return newline.join([delimiter.join(NAMES), *body] if header else body) + newline


def parquet(path, columns):
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pa.table(columns), path)
    return path


def write(folder, kind):
    """The same 30 x 4 numbers in a file of some kind."""
    path = folder / f"d.{kind.partition(' ')[0]}"
    if kind == "npy":
        np.save(path, ROWS)
    elif kind == "npz one":
        np.savez(path, ROWS)
    elif kind == "npz x and y":
        np.savez(path, x=ROWS[:, :3], y=ROWS[:, 3])
    elif kind == "npz X and y":
        np.savez(path, X=ROWS[:, :3], y=ROWS[:, 3])
    elif kind == "parquet":
        parquet(path, dict(zip(NAMES, ROWS.T, strict=True)))
    elif kind == "csv.gz":
        path.write_bytes(gzip.compress(lines().encode()))
    else:
        delimiter = {"semicolons": ";", "tabs": "\t"}.get(kind.rpartition(" ")[2], ",")
        newline = {"windows": "\r\n", "mac": "\r"}.get(kind.rpartition(" ")[2], "\n")
        mark = "\ufeff" if "mark" in kind else ""
        path.write_text(mark + lines(delimiter, "bare" not in kind, newline), encoding="utf-8", newline="")
    return path


KINDS = ["csv", "csv bare", "csv semicolons", "csv bare tabs", "csv windows", "csv mac", "csv mark", "csv.gz"]
KINDS += ["tsv tabs", "txt", "npy", "npz one", "npz x and y", "npz X and y", "parquet"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_file_gives_the_same_rows(tmp_path, kind):
    table = read_table(write(tmp_path, kind))
    assert np.array_equal(table.x, ROWS[:, :3])
    assert np.array_equal(table.y, ROWS[:, 3:])
    named = not any(word in kind for word in ("bare", "np"))
    assert table.columns == (NAMES[:3] if named else ())


@pytest.mark.parametrize("kind", ["csv", "parquet", "csv bare", "npy"])
@pytest.mark.parametrize(
    ("target", "inputs", "y", "x"),
    [
        (None, None, [3], [0, 1, 2]),
        (1, None, [1], [0, 2, 3]),
        ([2, 0], None, [2, 0], [1, 3]),
        (np.int64(1), np.array([0, 2]), [1], [0, 2]),
        ("b", None, [1], [0, 2, 3]),
        (["d", "a"], "c", [3, 0], [2]),
        ("a", ["d", 1], [0], [3, 1]),
    ],
)
def test_columns_by_name_and_number(tmp_path, kind, target, inputs, y, x):
    path = write(tmp_path, kind)
    named = kind in ("csv", "parquet")
    if not named and any(isinstance(v, str) and not v.isdecimal() for v in [*np.atleast_1d(target)]):
        with pytest.raises(GatelabError, match="columns without names; give numbers, 0 to 3"):
            read_table(path, target=target, inputs=inputs)
        return
    table = read_table(path, target=target, inputs=inputs)
    assert np.array_equal(table.y, ROWS[:, y])
    assert np.array_equal(table.x, ROWS[:, x])
    assert table.columns == (tuple(NAMES[i] for i in x) if named else ())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"target": "e"}, "no column of .*d.csv is called 'e'.*Known: a, b, c, d"),
        ({"target": 4}, "target is column 4 and .*d.csv has 4 columns; give numbers, 0 to 3"),
        ({"target": 1.5}, "target is column 1.5"),
        ({"target": []}, "target is empty"),
        ({"target": ["a", "a"]}, "twice"),
        ({"target": "a", "inputs": ["a", "b"]}, "'a' is both input and target"),
        ({"target": ["a", "b", "c", "d"]}, "no input remains"),
    ],
)
def test_wrong_columns_are_refused(tmp_path, options, says):
    with pytest.raises(GatelabError, match=says):
        read_table(write(tmp_path, "csv"), **options)


def test_columns_of_one_name_are_taken_by_number(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("a,a,b\n1,2,3\n4,5,6\n")
    assert read_table(path).columns == ("a", "a")
    assert np.array_equal(read_table(path, target=1).y.ravel(), [2, 5])
    with pytest.raises(GatelabError, match="2 columns called 'a'; give target by number, 0 to 2"):
        read_table(path, target="a")


def test_text_and_gaps_in_columns_that_nobody_asked_for_do_no_harm(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text('town,x,when,y\n"Rome, old",1,,2\nBonn,3,may,4\n')
    table = read_table(path, inputs="x")
    assert (table.x.tolist(), table.y.tolist(), table.columns) == ([[1], [3]], [[2], [4]], ("x",))
    with pytest.raises(GatelabError, match=r"line 2: 'Rome, old' in 'town' is not a number.*leave the column out"):
        read_table(path)
    other = parquet(tmp_path / "d.parquet", {"town": ["Rome", "Bonn"], "x": [1, 3], "n": [None, 1.0], "y": [2.0, 4.0]})
    assert read_table(other, inputs="x").x.tolist() == [[1], [3]]
    with pytest.raises(GatelabError, match=r"the column 'town' holds \w+, not numbers"):
        read_table(other)
    with pytest.raises(GatelabError, match=r"row 0 \(counted from 0\): the value in 'n' is missing"):
        read_table(other, inputs=["x", "n"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no rows; give a CSV file"),
        ("a,b\n", "has a header and no rows"),
        ("1\n2\n", "one column; .*commas, semicolons or tabs"),
        ("a,b\n1,2\n\n3\n", "line 4 has 1 column; line 1 has 2: give the"),
        ("a,b\n1,two\n", "line 2: 'two' in 'b' is not a number"),
        ("a,b\n1,2\n,3\n", r"line 3: the value in 'a' is missing \(''\); remove or replace it"),
        ("a,b\n1,-inf\n", r"line 2: the value in 'b' is infinite \('-inf'\)"),
        ("a;b\n1,5;2,5\n", "line 2: '1,5' in 'a' is not a number; write numbers with a decimal point"),
        ("a,b\n1_0,2\n", "'1_0' in 'a' is not a number"),
        ('a,b\n"1\n",2\n"x\n\n",3\n', "line 6: 'x' in 'a'"),
        ("a,b\n1,2\x00\n", "line 2"),
        ("a,b\n" + "9" * 200_000 + ",1\n", "line 2"),
    ],
)
def test_bad_text_is_refused_with_the_line(tmp_path, text, says):
    path = tmp_path / "d.csv"
    path.write_text(text)
    with pytest.raises(GatelabError, match=says) as caught:
        read_table(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_commas_within_quotes_do_not_decide_the_separator(tmp_path, delimiter):
    path = tmp_path / "d.csv"
    path.write_text(f'"a, b"{delimiter}c\n1{delimiter}2\n')
    assert read_table(path).columns == ("a, b",)


BROKEN = {
    "d.npy": [
        (lambda p: np.save(p, np.ones(5)), r"shape \(5,\); give N x k numbers"),
        (lambda p: np.save(p, np.ones((5, 2)) * 1j), "complex128, not real numbers"),
        (lambda p: np.save(p, np.array([[1, None]]), allow_pickle=True), "not a plain .npy array"),
        (lambda p: p.write_bytes(pickle.dumps([1, 2])), "not a plain .npy array"),
        (lambda p: np.save(p, [[1, 2], [3, np.nan]]), r"row 1 \(counted from 0\): the value in column 1 is missing"),
    ],
    "d.npz": [
        (lambda p: np.savez(p, a=[1], b=[2]), "holds the arrays 'a', 'b'; give one array .* or two called x and y"),
        (lambda p: np.savez(p, x=np.ones((3, 2)), y=np.ones(4)), r"x of shape \(3, 2\) and y of shape \(4,\)"),
        (lambda p: np.savez(p, x=np.array(["a", "b"]), y=np.ones(2)), "not real numbers"),
        (lambda p: np.savez(p, x=np.array([None, 1]), y=np.ones(2), allow_pickle=True), "not a plain .npz|arrays"),
        (lambda p: p.write_bytes(b"PK\x03\x04"), "not a plain .npz"),
    ],
    "d.csv.gz": [
        (lambda p: p.write_text("1,2"), "not a whole gzip file"),
        (lambda p: p.write_bytes(gzip.compress(b"1,2\n" * 999)[:20]), "not a whole gzip file"),
    ],
    "d.parquet": [
        (lambda p: p.write_text("1,2"), "not a Parquet file"),
        (lambda p: parquet(p, {"a": [1.0, float("inf")], "b": [1, 2]}), "row 1 .* in 'a' is infinite"),
        (lambda p: parquet(p, {}), "no columns"),
    ],
    "d.dat": [(lambda p: p.write_bytes(b"\xff\xfe1\x00"), "not a text file")],
    "d.xlsx": [(lambda p: p.write_bytes(b"PK\x03\x04"), "is a spreadsheet, .*; save its sheet as a CSV file")],
    "d": [(lambda p: p.mkdir(), "there is no file .*give a CSV, Parquet")],
}


@pytest.mark.parametrize(
    ("name", "make", "says"),
    [(name, make, says) for name, cases in BROKEN.items() for make, says in cases],
    ids=[f"{name} {i}" for name, cases in BROKEN.items() for i in range(len(cases))],
)
def test_broken_files_are_refused(tmp_path, name, make, says):
    make(tmp_path / name)
    with pytest.raises(GatelabError, match=says) as caught:
        read_table(tmp_path / name)
    assert name in str(caught.value)


def test_no_pickle_is_ever_loaded(tmp_path, monkeypatch):
    """A pickle in disguise would call what it names."""
    called = []

    class Trap:
        def __reduce__(self):
            return called.append, (1,)

    for name in ("d.npy", "d.npz", "d.csv", "d.parquet"):
        (tmp_path / name).write_bytes(pickle.dumps(Trap()))
        with pytest.raises(GatelabError):
            read_table(tmp_path / name)
    np.save(tmp_path / "e.npy", np.array([[Trap(), 1]]), allow_pickle=True)
    with pytest.raises(GatelabError, match="not a plain"):
        read_table(tmp_path / "e.npy")
    assert not called


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "d.parquet").touch()
    with pytest.raises(GatelabError, match=r"needs pyarrow.*pip install 'gatelab\[parquet\]'"):
        read_table(tmp_path / "d.parquet")


# ---- problems from files


def test_a_problem_from_a_file(tmp_path):
    path = write(tmp_path, "csv")
    p = Problem.from_file(path, target=["b", "d"], test_fraction=0.5, seed=3)
    twin = Problem.from_arrays(ROWS[:, [0, 2]], ROWS[:, [1, 3]], test_fraction=0.5, seed=3)
    assert np.array_equal(p.train.x, twin.train.x) and np.array_equal(p.test.y, twin.test.y)
    assert (p.name, p.columns, p.d_in, p.d_out, p.interval) == ("d.csv", ("a", "c"), 2, 2, None)
    assert Problem.from_file(str(path), name="mine").name == "mine"
    assert Problem.from_file(path, standardize=True).train.x.std() == pytest.approx(1)


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("1,2\n3,2\n5,2\n7,2\n9,2\n", {}, "target is constant = 2"),
        ("1,2,0\n3,4,1\n5,6,2\n7,9,3\n", {"interval": (0, 9)}, "an interval is given with 2 inputs"),
    ],
)
def test_unfit_data_are_refused_with_the_files_name(tmp_path, text, options, says):
    (tmp_path / "d.csv").write_text(text)
    with pytest.raises(GatelabError, match=rf"d\.csv: .*{says}"):
        Problem.from_file(tmp_path / "d.csv", **options)


INDEXES = {
    "numbers": range(30),
    "shuffled": np.random.default_rng(0).permutation(30),
    "names": [f"r{i}" for i in range(30)],
}


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_index_of_a_data_frame_is_no_input(tmp_path, index, ending):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(ROWS, columns=list(NAMES), index=list(INDEXES[index]))
    path = tmp_path / f"d.{ending}"
    if ending == "csv":
        frame.to_csv(path)
        with pytest.warns(UserWarning, match="'column 0' labels the rows and is left out; give the inputs by name"):
            table = read_table(path)
    else:
        pytest.importorskip("pyarrow")
        frame.to_parquet(path)
        table = read_table(path)
    assert table.columns == ("a", "b", "c")
    assert np.array_equal(table.x, ROWS[:, :3])


def test_an_index_is_an_input_where_it_is_asked_for_or_is_measured(tmp_path):
    pd = pytest.importorskip("pandas")
    path = tmp_path / "d.csv"
    pd.DataFrame(ROWS, columns=list(NAMES)).to_csv(path)
    for first in (0, "column 0"):
        table = read_table(path, inputs=[first, "a"])
        assert np.array_equal(table.x[:, 0], np.arange(30))
    # Read by pandas and written again, it has a name, and beside it stands another.
    pd.read_csv(path).to_csv(path)
    with pytest.warns(UserWarning, match="'column 0', 'Unnamed: 0' label"):
        assert read_table(path).columns == ("a", "b", "c")
    # Numbers that are not whole are measured, whoever forgot their name.
    pd.DataFrame(ROWS, columns=list(NAMES), index=np.linspace(0, 1, 30)).to_csv(path)
    assert read_table(path).x.shape == (30, 4)


def test_a_named_index_of_parquet_is_left_out_and_said(tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    path = tmp_path / "d.parquet"
    pd.DataFrame(ROWS, columns=list(NAMES), index=pd.Index(list("ab") * 15, name="when")).to_parquet(path)
    with pytest.warns(UserWarning, match="'when' labels the rows"):
        assert read_table(path, target="d").columns == ("a", "b", "c")


def test_an_index_alone_is_no_problem_to_fit(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text(",y\n" + "".join(f"{i},{i * i}\n" for i in range(9)))
    with pytest.raises(GatelabError, match="the only input 'column 0' labels the rows; give it as"):
        read_table(path)
    assert read_table(path, inputs=0).x.shape == (9, 1)


DRAWS = np.random.default_rng(1).normal(size=(40, 5)).round(6)
YEARS = (DRAWS * 100).round(3)


@pytest.mark.parametrize(
    ("header", "rows", "names", "says"),
    [
        ("2019,2020,2021", YEARS[:, :3], True, "line 1: 2019,2020,2021 is taken as names of columns; if it is data, "),
        ("id,2019,2020", YEARS[:, :3] + 2000, True, "taken as names"),
        (",2019,2020,2021", np.c_[np.arange(40), YEARS[:, :3]], True, "taken as names"),
        ("0,1,2,3,4", DRAWS, True, "taken as names"),
        ("0,1", DRAWS[:, :2], False, "line 1: 0,1 is taken as data; if these are names of columns, write them"),
        ("2019,2020,5", DRAWS[:, :3], False, None),
        ("1990,2000", np.c_[np.arange(1991, 2031), np.arange(2001, 2041)], False, None),
        ("1,2,3,4", np.arange(5, 165).reshape(40, 4), False, None),
        ("128,256", np.c_[2.0 ** -np.arange(40), 2.0 ** -np.arange(40)], False, None),
    ],
)
def test_a_header_of_numbers_is_told_from_data_and_said(tmp_path, header, rows, names, says):
    """Before, every first row with a number was data, and 2019,2020,2021 a row of a table."""
    path = tmp_path / "d.csv"
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows.tolist())]) + "\n")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = read_table(path)
    assert len(table.y) == len(rows) + (not names)
    assert table.targets == ((header.rpartition(",")[2],) if names else ())
    messages = [str(w.message) for w in caught if "taken as" in str(w.message)]
    assert len(messages) == (says is not None) and all(says in message for message in messages)
