"""`gatelab regress`: the estimators for tables, with text columns and gaps."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from gatelab.cli import output
from gatelab.cli.options import FitDevice, out_option, unit_option
from gatelab.cli.output import check_file
from gatelab.cli.reading import check_exists, column_names, shown_warnings, split_names
from gatelab.display import counted, duration
from gatelab.errors import GatelabError, real_number

Table = Any  # a data frame
Series = Any  # a column of one
REGRESS = """Examples: gatelab regress flats.csv --target rent --out rent.safetensors

gatelab regress flats.csv --target kind --inputs rooms,age --time-budget 20

gatelab regress flats.csv --target rooms --classify --test 0.3 --json"""


def regress_command(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="CSV, Parquet, .npy or .npz file.")],
    target: Annotated[str | None, typer.Option(metavar="NAME", help="The column to predict.")] = None,
    inputs: Annotated[
        str | None, typer.Option(metavar="NAME[,NAME]", help="Columns to predict from.", show_default="all others")
    ] = None,
    classify: Annotated[
        bool, typer.Option("--classify", help="Predict classes; the default for a target that is text.")
    ] = False,
    unit: Annotated[list[str] | None, unit_option("chosen by validation")] = None,
    width: Annotated[int | None, typer.Option(min=1, help="Neurons.", show_default="chosen by validation")] = None,
    ridge: Annotated[float | None, typer.Option(min=0, help="Penalty.", show_default="chosen by validation")] = None,
    members: Annotated[int, typer.Option(min=1, help="Networks that are averaged.")] = 8,
    time_budget: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Try no new network after this time.")
    ] = None,
    test: Annotated[float, typer.Option(help="Share of the rows held out for the test; 0 for none.")] = 0.2,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the fit and of the test rows.")] = 0,
    device: FitDevice = "auto",
    out: Annotated[Path | None, out_option("Write the estimator, .safetensors, for gatelab predict.")] = None,
) -> None:
    """Fit a table by validated networks, with text columns and gaps; classes if the target is text."""
    check_file(out, (".safetensors",))
    real_number("test", test, least=0, below=1)
    X, y = read_rows(table, target, inputs)
    labels = classify or not are_numbers(y)
    from gatelab.estimators import GatedClassifier, GatedRegressor

    given = [name for text in unit or () for name in split_names(text)]
    settings: dict[str, Any] = {"unit": given[0] if len(given) == 1 else given} if given else {}
    settings |= {"width": width, "ridge": ridge, "members": members, "time_budget": time_budget}
    kind = GatedClassifier if labels else GatedRegressor
    model = kind(random_state=seed, device="cpu" if device == "auto" else device, **settings)
    fitted, held_out = split_rows(len(y), test, seed)
    y = y.to_numpy() if labels else y.astype(float).to_numpy()
    began = time.monotonic()
    with output.progress("fitting"), shown_warnings():
        model.fit(X.iloc[fitted], y[fitted])
    seconds = time.monotonic() - began
    scores = {}
    if len(held_out):
        scores = classifier_scores(model, X, y, held_out) if labels else regressor_scores(model, X, y, held_out)
    if out:
        model.save(out)
    facts = {"estimator": kind.__name__, "unit": model.unit_, "width": model.width_, "ridge": model.ridge_}
    rows = [
        ("fitted on", f"{counted(len(fitted), 'row')} of {counted(model.n_features_in_, 'column')}"),
        ("best network", f"{model.unit_} of width {model.width_}, ridge {model.ridge_:.3g}"),
        *((name, f"{value:.4g} on {len(held_out)} test rows") for name, value in scores.items()),
        ("time", duration(seconds)),
    ]
    output.emit(
        {
            **facts,
            "rows": len(fitted),
            "test_rows": len(held_out),
            "test": scores,
            "seconds": seconds,
            "validation": model.validation_,
        },
        f"{kind.__name__} for {target or 'the last column'} of {table.name}",
        output.pairs(rows),
        files=(out,),
    )


def read_rows(path: Path, target: str | None, inputs: str | None) -> tuple[Table, Series]:
    """The inputs and the target of a file; rows without a target are left out, with a note."""
    import pandas as pd

    from gatelab.data.tables import indices, is_gap, open_columns, other_columns

    check_exists(path)
    source = open_columns(path)
    if source.count < 2:
        raise GatelabError(f"{path} has one column; give a column for each input and one for the target")
    outs = indices("target", column_names(target), source, path) if target else [source.count - 1]
    if len(outs) > 1:
        raise GatelabError(f"the target is {target}; give one column")
    with shown_warnings():
        ins = indices("inputs", column_names(inputs), source, path) if inputs else other_columns(source, outs, path)
    if outs[0] in ins:
        raise GatelabError(f"{source.label(outs[0])} is both input and target; leave it out of --inputs")
    names = [source.names[i] if source.names else f"column {i}" for i in (*ins, *outs)]
    parts = [pd.DataFrame(rows).set_axis(names, axis=1) for rows, _ in source.parts([*ins, *outs], tabular=True)]
    if not parts:
        raise GatelabError(f"{path} has no rows; give one row per example")
    whole = pd.concat(parts, ignore_index=True).infer_objects()
    whole = whole.map(lambda cell: None if isinstance(cell, str) and is_gap(cell) else cell)
    known = whole[whole.iloc[:, -1].notna()].reset_index(drop=True)
    if len(known) < len(whole):
        output.note(f"{path}: {counted(len(whole) - len(known), 'row')} without a target, left out")
    return known.iloc[:, :-1], known.iloc[:, -1]


def are_numbers(y: Series) -> bool:
    """Whether a target is a number in every row, text such as "1.5" included."""
    import pandas as pd

    numbers: Series = pd.to_numeric(y, errors="coerce")
    return y.dtype != bool and bool(numbers.notna().all())


def split_rows(count: int, share: float, seed: int) -> tuple[Any, Any]:
    """The rows to fit and those held out, each in their order."""
    import numpy as np

    order = np.random.default_rng(seed).permutation(count)
    tested = round(share * count)
    return np.sort(order[tested:]), np.sort(order[:tested])


def regressor_scores(model: Any, X: Table, y: Any, held_out: Any) -> dict[str, float]:
    """R² and RMSE on rows that were held out."""
    import numpy as np

    rows = X.iloc[held_out]
    error = np.ravel(model.predict(rows)) - y[held_out]
    return {"R²": model.score(rows, y[held_out]), "RMSE": math.sqrt(float(np.mean(error**2)))}


def classifier_scores(model: Any, X: Table, y: Any, held_out: Any) -> dict[str, float]:
    """Accuracy and log loss on rows that were held out."""
    import numpy as np

    rows = X.iloc[held_out]
    scores = {"accuracy": model.score(rows, y[held_out])}
    places = {label: i for i, label in enumerate(model.classes_.tolist())}
    if all(label in places for label in y[held_out].tolist()):  # other classes have no probability
        logs = model.predict_log_proba(rows)
        scores["log loss"] = -float(np.mean([log[places[label]] for log, label in zip(logs, y[held_out], strict=True)]))
    return scores
