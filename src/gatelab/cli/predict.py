"""`gatelab regress`, estimators for tables with text and gaps, and `gatelab predict`, predictions of saved models."""

from __future__ import annotations

import io
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from gatelab.cli import output
from gatelab.cli.options import FitDevice, argument, columns_option, option, out_option, unit_option
from gatelab.cli.reading import Predictor, column_names, read_predictor, shown_warnings, split_names
from gatelab.display import counted, duration
from gatelab.errors import GatelabError, real_number
from gatelab.files import write_whole

if TYPE_CHECKING:
    from gatelab.arrays import Array
    from gatelab.data.tables import Columns

Table = Any  # a data frame
Series = Any  # a column of one
ENDINGS = (".csv", ".npy", ".parquet")
REGRESS = """Examples: gatelab regress flats.csv --target rent --out rent.safetensors
gatelab regress flats.csv --target kind --inputs rooms,age --time-budget 20
gatelab regress flats.csv --target rooms --classify --test 0.3 --json"""
PREDICT = """Examples: gatelab predict mlp.safetensors --data points.csv
gatelab predict rent.safetensors --data flats.csv --keep id --out predicted.csv"""


@dataclass(frozen=True)
class EstimatorOptions:
    """Settings of the estimators; those left out are chosen by validation."""

    width: Annotated[int | None, option("Neurons.", min=1, default="chosen by validation")] = None
    ridge: Annotated[float | None, option("Penalty.", min=0, default="chosen by validation")] = None
    members: Annotated[int, option("Networks that are averaged.", min=1)] = 8
    time_budget: Annotated[float | None, option("Try no new network after this time.", metavar="SECONDS")] = None


def regress_command(
    *,
    table: Annotated[Path, argument("TABLE", "CSV, Parquet, .npy or .npz file.")],
    target: Annotated[str | None, option("The column to predict.", metavar="NAME")] = None,
    inputs: Annotated[str | None, columns_option("Columns to predict from.", "all others")] = None,
    classify: Annotated[bool, option("Predict classes; the default for a target that is text.", "--classify")] = False,
    unit: Annotated[list[str] | None, unit_option("chosen by validation")] = None,
    settings: EstimatorOptions,
    test: Annotated[float, option("Share of the rows held out for the test; 0 for none.")] = 0.2,
    seed: Annotated[int, option("The seed of the fit and of the test rows.", min=0)] = 0,
    device: FitDevice = "auto",
    out: Annotated[Path | None, out_option("Write the model, .safetensors.", ".safetensors")] = None,
) -> None:
    """Fit a table by validated networks, with text columns and gaps; classes if the target is text."""
    real_number("test", test, least=0, below=1)
    X, y = read_rows(table, target, inputs)
    import numpy as np

    from gatelab.estimators import GatedClassifier, GatedRegressor

    kind, y = GatedClassifier, y.to_numpy()
    if not classify and (numbers := as_numbers(y)) is not None:
        kind, y = GatedRegressor, numbers
    options: dict[str, Any] = {**vars(settings), "device": {"auto": "cpu"}.get(device, device)}
    if given := [name for text in unit or () for name in split_names(text)]:
        options["unit"] = given[0] if len(given) == 1 else given
    model = kind(random_state=seed, **options)
    order, tested = np.random.default_rng(seed).permutation(len(y)), round(test * len(y))
    fitted, held_out = np.sort(order[tested:]), np.sort(order[:tested])
    began = time.monotonic()
    with output.progress("fitting"), shown_warnings():
        model.fit(X.iloc[fitted], y[fitted])
    seconds = time.monotonic() - began
    scores = scores_of(model, X.iloc[held_out], y[held_out])
    output.write(model, out)
    facts = {"estimator": kind.__name__, "unit": model.unit_, "width": model.width_, "ridge": model.ridge_}
    facts |= {"rows": len(fitted), "test_rows": len(held_out), "test": scores, "seconds": seconds}
    rows = {
        "fitted on": f"{counted(len(fitted), 'row')} of {counted(model.n_features_in_, 'column')}",
        "best network": f"{model.unit_} of width {model.width_}, ridge {model.ridge_:.3g}",
        **{name: f"{value:.4g} on {len(held_out)} test rows" for name, value in scores.items()},
        "time": duration(seconds),
    }
    title = f"{kind.__name__} for {target or 'the last column'} of {table.name}"
    output.emit({**facts, "validation": model.validation_}, title, output.pairs(rows.items()), files=(out,))


def read_rows(path: Path, target: str | None, inputs: str | None) -> tuple[Table, Series]:
    """The inputs and the target of a file; rows without a target are left out, with a note."""
    from gatelab.data.tables import indices, is_gap, open_columns, other_columns

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
    whole = read_frame(source, [*ins, *outs]).infer_objects()
    whole = whole.map(lambda cell: None if isinstance(cell, str) and is_gap(cell) else cell)
    known = whole[whole.iloc[:, -1].notna()].reset_index(drop=True)
    if len(known) < len(whole):
        output.note(f"{path}: {counted(len(whole) - len(known), 'row')} without a target, left out")
    return known.iloc[:, :-1], known.iloc[:, -1]


def as_numbers(y: Any) -> Any:
    """A target as numbers, text such as "1.5" included; None unless every row is a number."""
    import pandas as pd

    numbers: Series = pd.to_numeric(pd.Series(y), errors="coerce")
    if y.dtype == bool or numbers.isna().any():
        return None
    return numbers.to_numpy(float)


def scores_of(model: Any, X: Table, y: Any) -> dict[str, float]:
    """R² and RMSE of a regressor, accuracy and log loss of a classifier, on rows that were held out, if any."""
    import numpy as np
    from sklearn.metrics import log_loss, root_mean_squared_error

    if not len(y):
        return {}
    if not hasattr(model, "classes_"):
        return {"R²": model.score(X, y), "RMSE": float(root_mean_squared_error(y, model.predict(X)))}
    scores = {"accuracy": model.score(X, y)}
    if np.isin(y, model.classes_).all():  # other classes have no probability
        scores["log loss"] = float(log_loss(y, model.predict_proba(X), labels=model.classes_))
    return scores


def predict_command(
    model: Annotated[Path, argument("MODEL", "A file of gatelab fit --out or regress --out.")],
    data: Annotated[Path, option("CSV, Parquet, .npy or .npz file with the rows.", metavar="FILE")],
    keep: Annotated[str | None, columns_option("Columns to write next to the predictions, such as ids.")] = None,
    inputs: Annotated[str | None, columns_option("Its columns to predict from.", "those of the model")] = None,
    target: Annotated[str | None, columns_option("Its columns to compare with.", "those of the model")] = None,
    out: Annotated[Path | None, out_option("Write them, .csv, .npy or .parquet; else printed.", *ENDINGS)] = None,
) -> None:
    """Predict the rows of a file with a saved model, in the units of the data; classifiers add probabilities."""
    if out is not None and keep and out.suffix.lower() == ".npy":
        raise GatelabError(f"{out} holds numbers without names; give .csv or .parquet with --keep")
    network = read_predictor(model)
    if network.classes and target:
        raise GatelabError("--target compares numbers, and the model predicts classes; leave --target out")
    import numpy as np
    import pandas as pd

    from gatelab.data.tables import indices, open_columns

    source = open_columns(data)
    kept = indices("keep", column_names(keep), source, data) if keep else []
    ins, outs = chosen_columns(network, source, data=data, inputs=inputs, target=target, kept=kept)
    if len(ins) != network.d_in:
        raise GatelabError(
            f"the network in {model} has {network.d_in} inputs and the data have {len(ins)}; choose them with --inputs"
        )
    values = predictions_of(network, source, ins)
    rmse, doubt, summary = None, None, f"{len(values)} rows by the {network.name}"
    frame = read_frame(source, kept) if kept else pd.DataFrame(index=range(len(values)))
    if network.classes:
        labels = [f"probability_{label}" for label in network.classes]
        frame["predicted"] = np.array(network.classes)[values.argmax(axis=1)]
    else:
        labels = [f"predicted_{name}" for name in network.targets or range(values.shape[1])]
        if not network.targets and len(labels) == 1:
            labels = ["predicted"]
        if len(outs) == values.shape[1]:
            try:
                rmse = math.sqrt(float(np.mean(np.square(values - source.take(outs)))))
                summary += f", RMSE {rmse:.4g}"
            except GatelabError as error:
                doubt = str(error)
                summary += f"; no RMSE: {doubt}"
    frame[labels] = values
    predictions, lines = None, [output.Line(summary)]
    if out is None:
        predictions = frame.to_dict("split")["data"]
        lines = [output.Line(frame.to_csv(index=False).rstrip("\n"))]
        output.note(summary)  # another program may read the predictions on stdout
    elif out.suffix.lower() == ".npy":
        content = io.BytesIO()
        np.save(content, values)
        write_whole(out, content.getvalue())
    else:
        output.write_frame(out, frame)
    about = {"model": model, "network": network.name, "data": data, "rows": len(values), "columns": list(frame)}
    output.emit({**about, "rmse": rmse, "predictions": predictions, "note": doubt}, *lines, files=(out,))


def read_frame(source: Columns, places: list[int]) -> Table:
    """Columns of a file with text, dates and gaps."""
    import pandas as pd

    names = [source.names[i] if source.names else f"column {i}" for i in places]
    parts = [pd.DataFrame(rows).set_axis(names, axis=1) for rows, _ in source.parts(places, tabular=True)]
    return pd.concat(parts, ignore_index=True)


def chosen_columns(
    network: Predictor, source: Columns, *, data: Path, inputs: str | None, target: str | None, kept: list[int]
) -> tuple[list[int], list[int]]:
    """The columns to predict from and those to compare with: by name, else the first and the others, if any."""
    from gatelab.data.tables import indices

    outs, named = [], column_names(inputs) or (network.columns if source.names else ())
    if target:
        outs = indices("target", column_names(target), source, data)
    elif network.columns and source.names:
        outs = [source.names.index(name) for name in network.targets if source.names.count(name) == 1]
    elif source.count - len(kept) == network.d_in + network.d_out:
        outs = [i for i in range(source.count) if i not in kept][network.d_in :]
    if named:
        ins = indices("inputs", named, source, data)
    else:
        ins = [i for i in range(source.count) if i not in (*outs, *kept, *source.labels)]
    return ins, [i for i in outs if i not in ins]


def predictions_of(network: Predictor, source: Columns, ins: list[int]) -> Array:
    import numpy as np

    parts, done = [], 0
    with output.progress("rows") as report:
        for rows, share in source.parts(ins, tabular=network.tabular):
            parts.append(network.predict(rows))
            done += len(rows)
            report(done, max(done, round(done / share)))
    return np.concatenate(parts)
