"""Studies that `reproduce all` does not compute again: finished ones, and committed records."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gatelab.cli.application import app
from gatelab.errors import GatelabError
from gatelab.studies import done_before, engine, records, reproduce, take_record
from gatelab.studies.definition import Outcome, Request

NAME = "scaling/fig3"


@pytest.fixture(autouse=True, scope="module")
def empty_pictures() -> Iterator[None]:
    """Drawing takes longer than all else here; tests of studies look at pictures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gatelab.studies.reproduction.save", lambda figure, path: path.touch())
        yield


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("written")
    reproduce(NAME, out, quick=True)
    return out


@pytest.fixture
def out(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "out"))


def edit(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_only_whole_outcomes_of_this_code_count_as_done(out: Path) -> None:
    outcome = done_before(NAME, out, quick=True)
    assert outcome is not None and outcome["fingerprint"] == records.code_fingerprint() and "cores" in outcome["device"]
    assert done_before(NAME, out, quick=False) is None
    assert done_before("scaling/fig2", out, quick=True) is None
    path = out / f"{NAME}.json"
    before = path.read_text()
    for change in ({"fingerprint": "other"}, {"recorded": True}, {"files": ["fig3.png", "gone.csv"]}):
        path.write_text(json.dumps({**json.loads(before), **change}))
        assert done_before(NAME, out, quick=True) is None
    path.write_text(before[:100])
    assert done_before(NAME, out, quick=True) is None


def test_a_record_is_its_tables(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figure, claims and notes are made of the committed tables again; the date and the machine are the record's."""
    monkeypatch.setattr(records, "COMMITTED", (out,))
    monkeypatch.chdir(tmp_path)
    for made in ("fig3.png", "fig3.svg"):
        (out / "scaling" / made).unlink()
    edit(out / f"{NAME}.json", device="one H200", claims=[], notes=[])
    outcome = take_record(NAME, tmp_path / "new")
    assert outcome is not None and outcome["recorded"] and outcome["device"] == "one H200" and outcome["claims"]
    folder = tmp_path / "new/scaling"
    assert sorted(p.name for p in folder.iterdir()) == sorted(outcome["files"])
    assert take_record("scaling/fig2", tmp_path / "new") is None
    (out / "scaling/fig3-gates.csv").unlink()
    with pytest.raises(GatelabError, match="missing from the records; compute the study with --full"):
        take_record(NAME, tmp_path / "again")


@pytest.mark.slow
def test_all_goes_on_takes_records_and_computes_with_full(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three studies: one done, one long with a record, one to be computed; then the same again, and with --full."""
    ran: list[str] = []
    plain = engine.study(NAME)

    class Counted(engine.Study):
        def run(self, request: Request) -> Outcome:
            ran.append(self.name)
            return super().run(replace(request, quick=True))

    def counted(name: str) -> Counted:
        values = {field.name: getattr(plain, field.name) for field in fields(plain)}
        return Counted(**{**values, "name": name, "long": name.endswith("long")})

    names = ("scaling/fig3", "scaling/fig9", "scaling/long")
    studies = {n: counted(n) for n in names}
    monkeypatch.setattr(engine, "studies_by_name", lambda: studies)
    monkeypatch.chdir(tmp_path)
    reproduce("scaling/long", "results")
    reproduce(NAME, "here")
    ran.clear()

    def run_all(*more: str) -> str:
        result = CliRunner().invoke(app, ["reproduce", "all", "--out", "here", "--jobs", "1", *more])
        assert result.exit_code == 0, result.output
        return result.output

    text = run_all()
    assert ran == ["scaling/fig9"] and "record of" in text and "gatelab report --out here" in text
    assert run_all() and ran == ["scaling/fig9"]
    rows = json.loads(run_all("--json"))
    assert [r["recorded"] for r in rows] == [False, False, True] and ran == ["scaling/fig9"]
    assert run_all("--full") and ran[1:] == list(names)
    assert run_all() and len(ran) == 4  # what was computed in full stays, also of the long one


def test_one_that_cannot_be_made_does_not_keep_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = engine.study(NAME)

    lacking = replace(plain, name="scaling/a", measures={}, _functions={})

    @lacking.tables
    def images(request: Request) -> Any:
        raise GatelabError("there are no images; set GATELAB_DATA")

    studies = {"scaling/a": lacking, NAME: plain}
    monkeypatch.setattr(engine, "studies_by_name", lambda: studies)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["reproduce", "all", "--quick", "--out", "here"])
    assert result.exit_code == 2 and (tmp_path / f"here/{NAME}.png").is_file()
    assert "1 of 2 figures could not be made. scaling/a: there are no images" in " ".join(result.output.split())


def test_every_long_study_has_a_record() -> None:
    """Else `reproduce all` would take hours, and a page would say that it was not run."""
    for study in engine.all_studies():
        if study.long:
            path = records.record_path(f"{study.name}.json", "gatelab reproduce")
            outcome = records.read_outcome(path)
            assert outcome["study"] == study.name and not outcome["quick"] and outcome["device"] and outcome["date"]
            assert all((path.parent / file).is_file() for file in outcome["files"])
