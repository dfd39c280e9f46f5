"""Measured data: found in a folder, in the cache or on a server, and refused when they are not what they should be."""

from __future__ import annotations

import hashlib
import io
import tarfile
from dataclasses import replace

import numpy as np
import pytest

import gatelab as gl
from gatelab.data.named import DATASETS
from gatelab.data.tables import load_measured
from gatelab.errors import GatelabError

AIRFOIL, CALIFORNIA = DATASETS["airfoil"], DATASETS["california"]
ROWS = 40
TABLE = np.random.default_rng(0).normal(size=(ROWS, 6)).round(6)
CONTENT = "".join("\t".join(map(repr, row)) + "\r\n" for row in TABLE.tolist()).encode()
SMALL = replace(AIRFOIL.archive, sha256=hashlib.sha256(CONTENT).hexdigest(), url="http://127.0.0.1:9/gone")


def small(url=SMALL.url):
    return replace(AIRFOIL, rows=ROWS, archive=replace(SMALL, url=url))


def cached(tmp_path):
    return tmp_path / "cache" / "tabular" / "airfoil_self_noise.dat"


# ---- the real ones


def _linear_r2(x, y):
    design = np.c_[np.ones(len(x)), x]
    residual = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    return 1 - residual.var() / y.var()


def test_airfoil_is_what_it_should_be(real_data):
    file = real_data / "tabular" / "airfoil_self_noise.dat"
    assert hashlib.sha1(file.read_bytes()).hexdigest() == "76e5be1548fd8222e5074cf0faae75edff8cf93f"
    assert hashlib.sha256(file.read_bytes()).hexdigest() == AIRFOIL.archive.sha256
    table = load_measured(AIRFOIL)
    assert (table.x.shape, table.y.shape) == ((1503, 5), (1503, 1))
    assert table.columns == ("frequency", "angle", "chord", "speed", "thickness")
    assert (table.x[0].tolist(), table.y[0, 0]) == ([800, 0, 0.3048, 71.3, 0.00266337], 126.201)
    assert round(table.y.mean(), 4) == 124.8359
    assert (table.y.min(), table.y.max()) == (103.38, 140.987)
    assert round(_linear_r2(table.x, table.y), 4) == 0.5157


def test_california_is_what_it_should_be(real_data):
    table = load_measured(CALIFORNIA)
    assert (table.x.shape, table.y.shape) == ((20640, 8), (20640, 1))
    assert table.columns[:4] == ("MedInc", "HouseAge", "AveRooms", "AveBedrms")
    assert round(table.y.mean(), 6) == 2.068558
    assert (table.y.min(), table.y.max()) == (0.14999, 5.00001)
    assert round(_linear_r2(table.x, table.y), 4) == 0.6062


@pytest.mark.parametrize(("name", "train", "test"), [("airfoil", 1202, 301), ("california", 16512, 4128)])
def test_measured_problems_are_split_and_standardized(real_data, no_network, name, train, test):
    p = gl.problem(name)
    assert (p.name, p.train.n, p.test.n) == (name, train, test)
    assert len(p.columns) == p.d_in == next(s.inputs for s in gl.problems() if s.name == name)
    assert "standardized" in p.description
    np.testing.assert_allclose(p.train.x.mean(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(p.train.x.std(axis=0), 1)
    np.testing.assert_allclose([p.train.y.mean(), p.train.y.std()], [0, 1], atol=1e-10)
    assert abs(p.test.y.mean()) > 1e-4  # by the training part, not by its own
    raw = gl.problem(name, standardize=False)
    assert "standardized" not in raw.description
    mean, deviation = raw.train.y.mean(), raw.train.y.std()
    np.testing.assert_allclose(p.test.y * deviation + mean, raw.test.y, rtol=1e-12)
    rows = {row.tobytes() for row in raw.train.x}
    assert not any(row.tobytes() in rows for row in raw.test.x)


def test_fewer_training_rows_are_among_more_and_the_test_rows_stay(real_data):
    few, more, every = (gl.problem("airfoil", n=n, standardize=False) for n in (50, 100, None))
    assert np.array_equal(few.train.x, more.train.x[:50])
    everything = {row.tobytes() for row in every.train.x}
    assert all(row.tobytes() in everything for row in more.train.x)
    assert np.array_equal(few.test.y, every.test.y)
    assert not np.array_equal(gl.problem("airfoil", seed=1, standardize=False).test.y[:9], every.test.y[:9])
    paper = gl.problem("airfoil", n=50, protocol="paper")
    assert paper.test is paper.train and paper.train.n == 50
    with pytest.raises(GatelabError, match="n is 1203; give a whole number, from 2 to 1202"):
        gl.problem("airfoil", n=1203)


# ---- where they are looked for


@pytest.mark.parametrize("folder", ["tabular", "."])
def test_found_in_the_users_folder(tmp_path, monkeypatch, no_network, folder):
    (tmp_path / "mine" / folder).mkdir(parents=True)
    (tmp_path / "mine" / folder / "airfoil_self_noise.dat").write_bytes(CONTENT)
    monkeypatch.setenv("GATELAB_DATA", str(tmp_path / "mine"))
    table = load_measured(small())
    assert np.array_equal(np.c_[table.x, table.y], TABLE)
    assert not (tmp_path / "cache").exists()


def test_a_users_folder_without_the_file_is_an_error_and_no_download(tmp_path, monkeypatch, no_network):
    monkeypatch.setenv("GATELAB_DATA", str(tmp_path))
    cached(tmp_path).parent.mkdir(parents=True)
    cached(tmp_path).write_bytes(CONTENT)  # the cache does not stand in for the folder
    with pytest.raises(GatelabError, match=r"none of .*tabular/airfoil_self_noise\.dat.*unset GATELAB_DATA"):
        load_measured(small())
    with pytest.raises(GatelabError, match=r"california_housing\.csv\.gz"):
        load_measured(CALIFORNIA)


# ---- what is in them


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (CONTENT[: CONTENT.rindex(b"\n", 0, -2) + 1], "holds 39 rows of 5 inputs"),
        (CONTENT.replace(b"\t", b" "), "one column"),
        (b"a\tb\tc\td\te\tf\n" + CONTENT, "inputs a, b, c, d, e; airfoil has 40 of frequency, angle"),
        (b"\xff\xfe", "not a text file"),
    ],
)
def test_another_file_of_that_name_is_refused(tmp_path, monkeypatch, content, says):
    monkeypatch.setenv("GATELAB_DATA", str(tmp_path))
    (tmp_path / "airfoil_self_noise.dat").write_bytes(content)
    with pytest.raises(GatelabError, match=says):
        load_measured(small())


def _archive(path, text, member="CaliforniaHousing/cal_housing.data"):
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo(member)
        info.size = len(text)
        archive.addfile(info, io.BytesIO(text.encode()))
    return path


def test_californias_columns_are_scikit_learns(tmp_path):
    """The archive's first two rows, and what scikit-learn makes of them."""
    original = "-122.23,37.88,41,880,129,322,126,8.3252,452600\n-122.22,37.86,21,7099,1106,2401,1138,8.3014,358500\n"
    table = CALIFORNIA.read(_archive(tmp_path / "cal_housing.tgz", original))
    first = [8.3252, 41, 6.984126984, 1.023809524, 322, 2.555555556, 37.88, -122.23]
    second = [8.3014, 21, 6.238137083, 0.9718804921, 2401, 2.109841828, 37.86, -122.22]
    np.testing.assert_allclose(table.x, [first, second], rtol=1e-9)
    np.testing.assert_allclose(table.y, [[4.526], [3.585]])


@pytest.mark.parametrize("damage", ["cut", "member", "text"])
def test_a_spoilt_archive_is_refused(tmp_path, monkeypatch, damage):
    path = _archive(tmp_path / "cal_housing.tgz", "1,2\n" * 99, "other" if damage == "member" else "x/y")
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:60])
    if damage == "text":
        _archive(path, "a,b\n")
    monkeypatch.setenv("GATELAB_DATA", str(tmp_path))
    with pytest.raises(GatelabError, match="cannot be read as california"):
        load_measured(CALIFORNIA)


def test_the_address_and_checksum_are_those_of_scikit_learn():
    theirs = pytest.importorskip("sklearn.datasets._california_housing").ARCHIVE
    assert (CALIFORNIA.archive.url, CALIFORNIA.archive.sha256) == (theirs.url, theirs.checksum)
