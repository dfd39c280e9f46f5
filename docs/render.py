"""Numbers in documents: `python docs/render.py` writes every document that has a template in docs/templates.

A template is the document with its numbers as expressions (Jinja2), which know the functions of this script: `claim`
is one claim of a study with value, low and high, `claims` all of them by what they measure, `record` and `table` read
files in results/, `tables` are those of a study made from a record, and `gl` is for what is computed in a second.
`| f(".2f")` formats a number, an interval ("-2.14 [-2.20, -2.08]") or a list of them.
`python docs/render.py FOLDER` first takes the claims of the full runs in FOLDER, as `gatelab reproduce` wrote them.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd

import gatelab as gl
from gatelab.plain import from_plain
from gatelab.statistics import Interval
from gatelab.studies import Request, study
from gatelab.studies.claims import Claim

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
record = cache(lambda name: json.loads((RESULTS / name).read_text(encoding="utf-8")))
table = cache(lambda name: pd.read_csv(RESULTS / name, comment="#"))
tables = cache(lambda name: study(name).measured(Request()))


def take_claims(folder: Path) -> None:
    """Write results/claims.json from the full runs in a folder; studies that are not there stay as they are."""
    taken = record("claims.json")
    for file in folder.glob("*/*.json"):
        outcome = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(outcome, dict) and not outcome.get("quick", True):
            taken[outcome["study"]] = {name: outcome[name] for name in ("command", "date", "device", "claims", "notes")}
    text = json.dumps(dict(sorted(taken.items())), indent=1, ensure_ascii=False)
    (RESULTS / "claims.json").write_text(f"{text}\n", encoding="utf-8")


@cache
def claims(name: str) -> dict[str, Claim]:
    return {c["what"]: from_plain(Claim, c) for c in record("claims.json")[name]["claims"]}


def claim(name: str, what: str) -> Claim:
    """One claim; a title that the study does not have is an error that lists those it has."""
    if what not in claims(name):
        raise KeyError(f"{name} has no claim {what!r}; it has\n" + "\n".join(claims(name)))
    return claims(name)[what]


def formatted(value: Any, form: str = ".3g") -> str:
    """A number, an interval, a claim or a list of them, with each number in the given format."""
    if isinstance(value, Claim):
        value = value.interval if np.isfinite(value.low) else value.value
    if isinstance(value, list | tuple | pd.Series | np.ndarray):
        return ", ".join(formatted(part, form) for part in value)
    if isinstance(value, Interval) or "e" not in form:
        return format(value, form)
    mantissa, _, exponent = format(value, form).partition("e")
    return f"{mantissa}e{int(exponent)}"


def environment() -> jinja2.Environment:
    """Templates that know the records; an unknown name is an error."""
    loader = jinja2.FileSystemLoader(ROOT / "docs" / "templates")
    style: dict[str, Any] = {"keep_trailing_newline": True, "trim_blocks": True, "lstrip_blocks": True}
    templates = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, autoescape=False, **style)
    templates.filters["f"] = formatted
    templates.globals |= {"claim": claim, "claims": claims, "record": record, "table": table, "tables": tables}
    templates.globals |= {"gl": gl, "np": np, "min": min, "max": max, "abs": abs, "zip": zip, "Interval": Interval}
    return templates


def documents() -> dict[Path, str]:
    """The text of every document that has a template."""
    templates = environment()
    places = {name: ROOT / ("docs" * (name != "README.md")) / name for name in templates.list_templates(["md"])}
    return {place: templates.get_template(name).render() for name, place in places.items()}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        take_claims(Path(sys.argv[1]))
    for path, text in documents().items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))
