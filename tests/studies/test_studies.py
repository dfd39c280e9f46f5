"""Studies run quickly and write their files."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from quick_runs import Quick, each_study

from gatelab.errors import GatelabError
from gatelab.feedforward import unit
from gatelab.studies import Outcome, Request, Study, engine, reproduce
from gatelab.studies.claims import Claim
from gatelab.studies.scaling.random_networks import contributions, hinges

# Panels with data: maps have collections, curves have lines. Color bars are axes too.
FIGURES = {"fig1": 15, "fig2": 6, "fig3": 2, "fig4": 6, "fig5": 1, "fig6": 3, "units": 2}
FIGURES |= {"fig7": 4, "fig8": 2, "table1": 3}
KERNELS = {"fig1": 3, "fig2": 4, "fig4": 7, "width": 1, "fig5": 6, "early": 1, "thm31": 9, "lemma-b8": 3, "orders": 4}
PANELS = {f"scaling/{stem}": count for stem, count in FIGURES.items()} | {"models/pde": 1}
PANELS |= {f"ntk/{stem}": count for stem, count in KERNELS.items()}


@pytest.fixture(autouse=True)
def no_measured_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Quick studies need no measured data: an attempt to read them fails."""
    monkeypatch.setenv("GATELAB_DATA", str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("name", PANELS)
def test_a_quick_study_writes_its_files(name: str, quick: Quick) -> None:
    done = quick(name)
    paper, stem = name.split("/")
    folder, tables = done.files[0].parent, done.outcome.tables
    assert folder.name == paper
    assert sorted(p.name for p in folder.iterdir()) == sorted(p.name for p in done.files)
    assert all(p.stat().st_size > 0 for p in done.files)
    assert {f"{stem}.png", f"{stem}.json"} < {p.name for p in done.files}
    written = {key: pd.read_csv(folder / f"{stem}-{key}.csv") for key in tables}
    assert all(len(written[key]) == len(table) > 0 for key, table in tables.items())
    record = json.loads((folder / f"{stem}.json").read_text())
    assert record["command"] == f"gatelab reproduce {name} --quick"
    parts = {"what", "value", "low", "high", "paper", "rule", "place", "unit", "support", "verdict"}
    assert record["claims"] and all(parts < set(c) for c in record["claims"])
    assert not any("nan" in c[part] for c in record["claims"] for part in ("because", "ours"))
    assert all(1 <= finished <= total for finished, total in done.progress)
    # Claims and figure are made of the tables alone, as they are read from a record.
    assert [c.verdict for c in done.study.report(written).claims] == [c.verdict for c in done.outcome.claims]


@each_study(PANELS)
def test_the_figure_has_its_panels_with_labels_and_data(name: str, quick: Quick) -> None:
    figure = quick(name).outcome.figure
    assert isinstance(figure, Figure) and len(figure.axes) == PANELS[name]
    for panel in figure.axes:
        assert panel.get_lines() or panel.collections or panel.patches or panel.images
    assert any(panel.get_xlabel() for panel in figure.axes)


@each_study([f"scaling/fig{number}" for number in range(1, 7)])
def test_claims_and_findings_come_from_the_written_tables(name: str, quick: Quick) -> None:
    run = quick(name)
    tables = {key: pd.read_csv(StringIO(table.to_csv(index=False))) for key, table in run.outcome.tables.items()}
    assert isinstance(run.study, Study)
    for ours, read in zip(run.outcome.claims, run.study.report(tables).claims, strict=True):
        assert isinstance(ours, Claim)
        assert (ours.what, ours.verdict, ours.because) == (read.what, read.verdict, read.because)
    topics = {"fig2": ["Slopes at the optimum"], "fig6": ["Order 4 of the GQU", "Powers without gates"]}
    findings = run.study.findings(tables)
    assert [finding.topic for finding in findings] == topics.get(name.split("/")[1], [])
    assert all("1/(1+cos²πx)" in finding.sizes for finding in findings)


def test_figures_come_as_png_and_svg_and_a_failure_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Figure):
        def savefig(self, *args: object, **kwargs: object) -> None:
            raise RuntimeError("no ink")

    png, svg = reproduce("scaling/fig3", tmp_path).files[:2]
    assert png.read_bytes()[:4] == b"\x89PNG" and svg.read_text().startswith("<?xml")
    broken = replace(engine.study("scaling/fig3"), name="scaling/fig9", figure=lambda tables: Broken())
    monkeypatch.setitem(engine.studies_by_name(), "scaling/fig9", broken)
    with pytest.raises(RuntimeError, match="no ink"):
        reproduce("scaling/fig9", tmp_path)
    names = ["fig3-activations.csv", "fig3-gates.csv", "fig3.json", "fig3.png", "fig3.svg"]
    assert [p.name for p in sorted((tmp_path / "scaling").iterdir())] == names


def test_an_unwritable_folder_is_said_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(request: Request) -> Outcome:
        raise AssertionError("the study was run")

    monkeypatch.setitem(engine.studies_by_name(), "scaling/fig9", Study("scaling/fig9", "t", "p", never))
    (tmp_path / "scaling").write_text("a file where the folder should be")
    with pytest.raises(GatelabError, match="cannot be written to"):
        reproduce("scaling/fig9", tmp_path)
    with pytest.raises(GatelabError, match="scaling/fig2"):  # a hint for an unknown name
        reproduce("scaling/fig22", tmp_path)


def test_the_random_networks_are_what_torch_computes_and_every_hinge_is_seen(quick: Quick) -> None:
    gates = quick("scaling/fig1").outcome.tables["gates"]
    x = np.random.default_rng(0).uniform(-1, 1, (50, 2))
    for name in ("mlp", "glu"):
        neurons = gates[(gates["unit"] == name) & (gates["inputs"] == 2)]
        network = unit(name).network(4, 2, 1, init="normal", seed=597)
        with torch.no_grad():
            expected = network.neurons(torch.from_numpy(x)) * network.D[0]
        np.testing.assert_allclose(contributions(neurons, x), expected.numpy())
        paths = list(hinges(neurons))
        assert len(paths) == 4 and all(len(path) > 100 and np.abs(path).max() <= 1 for path in paths)
        for i, path in enumerate(paths):
            np.testing.assert_allclose(contributions(neurons, path)[:, i], 0, atol=1e-12)
        assert neurons["share_open"].between(0.2, 0.8).all()
