"""`gatelab predict`: what a saved model says of the rows of a file."""

from __future__ import annotations

import io
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gatelab.cli import output
from gatelab.cli.options import Json
from gatelab.cli.output import check_file, check_pyarrow
from gatelab.cli.reading import Predictor, SavedClassifier, check_inputs, column_names, columns_by_name, read_predictor
from gatelab.errors import GatelabError
from gatelab.files import write_whole

if TYPE_CHECKING:
    import numpy as np

    from gatelab.arrays import Array
    from gatelab.data.tables import Columns

ENDINGS = (".csv", ".npy", ".npz", ".parquet")
_PROBABILITY = "probability_"
PREDICT = """Examples: gatelab predict mlp.safetensors --data points.csv

gatelab predict mlp.safetensors --data points.csv --out predicted.csv"""


def predict_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A file that gatelab fit --save wrote, or save().")],
    data: Annotated[Path, typer.Option(metavar="FILE", help="CSV, Parquet, .npy or .npz file with the rows.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write them, .csv, .npy, .npz or .parquet.", show_default="print them"),
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option(metavar="NAME[,NAME]", help="Its columns to predict from.", show_default="those of the model"),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="NAME[,NAME]", help="Its columns to compare with.", show_default="those of the model"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Predict the rows of a file with a saved model, in the data's own units; of a classifier with probabilities."""
    check_file(out, ENDINGS)
    if out is not None and out.suffix.lower() == ".parquet":
        check_pyarrow()
    network = read_predictor(model)
    if isinstance(network, SavedClassifier) and target:
        raise GatelabError("--target compares numbers, and the model tells classes; leave --target out")
    if not data.is_file():
        raise GatelabError(f"there is no file {data}; give a CSV, Parquet, .npy or .npz file")
    from gatelab.data.tables import open_columns

    source = open_columns(data)
    ins, outs = _columns(network, source, data=data, inputs=inputs, target=target)
    check_inputs(model, network, len(ins))
    values = _predictions(network, source, ins)
    rmse, doubt = None, None
    if isinstance(network, SavedClassifier):
        predicted = _with_classes(values, network)
    else:
        rmse, doubt = _rmse(values, source, outs)
        names = [f"predicted_{name}" for name in network.targets or range(values.shape[1])]
        if not network.targets and len(names) == 1:
            names = ["predicted"]
        predicted = dict(zip(names, values.T, strict=True))
    if out is not None:
        write_whole(out, _content(predicted, out.suffix.lower()))
    if as_json:
        about = {"model": model, "network": network.name, "data": data, "rows": len(values), "columns": [*predicted]}
        predictions = None
        if out is None:
            predictions = [list(row) for row in zip(*(column.tolist() for column in predicted.values()), strict=True)]
        output.document({**about, "rmse": rmse, "out": out, "predictions": predictions, "note": doubt})
        return
    summary = f"{len(values)} rows by the {network.name}"
    if rmse is not None:
        summary += f", RMSE {rmse:.4g}"
    if doubt:
        summary += f"; no RMSE: {doubt}"
    if out is None:
        # Beside predictions on stdout, which another program may read, the error is on stderr.
        sys.stdout.write(_content(predicted, ".csv").decode())
        print(f"gatelab: {summary}", file=sys.stderr)
    else:
        output.say(f"wrote {out}, {summary}", wrap=False)


def _columns(
    network: Predictor, source: Columns, *, data: Path, inputs: str | None, target: str | None
) -> tuple[list[int], list[int]]:
    """The columns to predict from and those to compare with: by name, else the first and the others, if any."""
    from gatelab.data.tables import indices

    if target:
        outs = indices("target", column_names(target), source, data)
    elif network.columns and source.names:
        outs = [source.names.index(name) for name in network.targets if source.names.count(name) == 1]
    elif source.count == network.d_in + network.d_out:
        outs = list(range(network.d_in, source.count))
    else:
        outs = []
    if inputs:
        ins = indices("inputs", column_names(inputs), source, data)
    elif (by_name := columns_by_name(source, data, network.columns)) is not None:
        ins = by_name
    else:
        ins = [i for i in range(source.count) if i not in outs and i not in source.labels]
    return ins, [i for i in outs if i not in ins]


def _predictions(network: Predictor, source: Columns, ins: list[int]) -> Array:
    import numpy as np

    parts: list[Array] = []
    with output.progress("predicting") as report:
        for rows, share in source.parts(ins, tabular=network.tabular):
            parts.append(network.predict(rows))
            report(int(1000 * share), 1000)
    if not parts:
        raise GatelabError("the file has no rows; give one with at least one")
    return np.concatenate(parts)


def _rmse(values: Array, source: Columns, outs: list[int]) -> tuple[float | None, str | None]:
    """The error against the targets in the file, or why there is none: their being absent spoils no prediction."""
    import numpy as np

    if len(outs) != values.shape[1]:
        return None, None
    try:
        targets = source.take(outs)
    except GatelabError as error:
        return None, str(error)
    return math.sqrt(float(np.mean(np.square(values - targets)))), None


def _with_classes(probabilities: Array, network: SavedClassifier) -> dict[str, np.ndarray]:
    """The most probable class of each row, and the probability of each class, by the names of columns."""
    import numpy as np

    labels = np.array(network.classes)
    columns = zip(network.classes, probabilities.T, strict=True)
    return {"predicted": labels[probabilities.argmax(axis=1)]} | {f"{_PROBABILITY}{c}": column for c, column in columns}


def _content(predicted: dict[str, np.ndarray], ending: str) -> bytes:
    """The predictions as a file of that kind, a row for each row of the data; .npy has numbers alone, without names."""
    import numpy as np

    content = io.BytesIO()
    if ending in (".npy", ".npz"):
        numbers = {n: column for n, column in predicted.items() if n.startswith(_PROBABILITY)} or predicted
        values = np.stack(list(numbers.values()), axis=1)
        if ending == ".npy":
            np.save(content, values)
        elif len(numbers) < len(predicted):
            np.savez(content, predicted=predicted["predicted"], probability=values)
        else:
            np.savez(content, predicted=values)
    else:
        import pandas as pd

        table = pd.DataFrame(predicted)
        if ending == ".csv":
            return table.to_csv(index=False).encode()
        table.to_parquet(content, engine="pyarrow", index=False)
    return content.getvalue()
