"""`gatelab predict`: predictions of a saved model for the rows of a file."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli import output
from gatelab.cli.options import out_option
from gatelab.cli.output import check_file, check_pyarrow
from gatelab.cli.reading import Predictor, check_exists, check_inputs, column_names, columns_by_name, read_predictor
from gatelab.errors import GatelabError
from gatelab.files import write_whole

if TYPE_CHECKING:
    import numpy as np

    from gatelab.arrays import Array
    from gatelab.data.tables import Columns

ENDINGS = (".csv", ".npy", ".npz", ".parquet")
_PROBABILITY = "probability_"
PREDICT = """Examples: gatelab predict mlp.safetensors --data points.csv

gatelab predict rent.safetensors --data flats.csv --keep id --out predicted.csv"""


def predict_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A file of gatelab fit --out or regress --out.")],
    data: Annotated[Path, typer.Option(metavar="FILE", help="CSV, Parquet, .npy or .npz file with the rows.")],
    keep: Annotated[
        str | None,
        typer.Option(metavar="NAME[,NAME]", help="Columns to write next to the predictions, such as ids."),
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option(metavar="NAME[,NAME]", help="Its columns to predict from.", show_default="those of the model"),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="NAME[,NAME]", help="Its columns to compare with.", show_default="those of the model"),
    ] = None,
    out: Annotated[Path | None, out_option("Write them, .csv, .npy, .npz or .parquet, instead of printing.")] = None,
) -> None:
    """Predict the rows of a file with a saved model, in the units of the data; classifiers add probabilities."""
    check_file(out, ENDINGS)
    if out is not None and out.suffix.lower() == ".parquet":
        check_pyarrow()
    if out is not None and keep and out.suffix.lower() == ".npy":
        raise GatelabError(f"{out} holds numbers without names; give .csv, .npz or .parquet with --keep")
    network = read_predictor(model)
    if network.classes and target:
        raise GatelabError("--target compares numbers, and the model predicts classes; leave --target out")
    check_exists(data)
    from gatelab.data.tables import indices, open_columns

    source = open_columns(data)
    kept = indices("keep", column_names(keep), source, data) if keep else []
    ins, outs = _columns(network, source, data=data, inputs=inputs, target=target, kept=kept)
    check_inputs(model, network, len(ins))
    values = _predictions(network, source, ins)
    rmse, doubt = None, None
    if network.classes:
        predicted = _with_classes(values, network)
    else:
        rmse, doubt = _rmse(values, source, outs)
        names = [f"predicted_{name}" for name in network.targets or range(values.shape[1])]
        if not network.targets and len(names) == 1:
            names = ["predicted"]
        predicted = dict(zip(names, values.T, strict=True))
    predicted = _kept_columns(source, kept) | predicted
    if out is not None:
        write_whole(out, _content(predicted, out.suffix.lower()))
    summary = f"{len(values)} rows by the {network.name}"
    if rmse is not None:
        summary += f", RMSE {rmse:.4g}"
    if doubt:
        summary += f"; no RMSE: {doubt}"
    predictions, lines = None, [output.Line(summary)]
    if out is None:
        predictions = [list(row) for row in zip(*(column.tolist() for column in predicted.values()), strict=True)]
        lines = [output.Line(_content(predicted, ".csv").decode().rstrip("\n"))]
        output.note(summary)  # another program may read the predictions on stdout
    about = {"model": model, "network": network.name, "data": data, "rows": len(values), "columns": [*predicted]}
    output.emit({**about, "rmse": rmse, "predictions": predictions, "note": doubt}, *lines, files=(out,))


def _kept_columns(source: Columns, places: list[int]) -> dict[str, np.ndarray]:
    """Columns of the file as they are, by name."""
    import pandas as pd

    if not places:
        return {}
    table = pd.concat([pd.DataFrame(rows) for rows, _ in source.parts(places, tabular=True)], ignore_index=True)
    names = [source.names[i] if source.names else f"column {i}" for i in places]
    return {name: table.iloc[:, k].to_numpy() for k, name in enumerate(names)}


def _columns(
    network: Predictor, source: Columns, *, data: Path, inputs: str | None, target: str | None, kept: list[int]
) -> tuple[list[int], list[int]]:
    """The columns to predict from and those to compare with: by name, else the first and the others, if any."""
    from gatelab.data.tables import indices

    if target:
        outs = indices("target", column_names(target), source, data)
    elif network.columns and source.names:
        outs = [source.names.index(name) for name in network.targets if source.names.count(name) == 1]
    elif source.count - len(kept) == network.d_in + network.d_out:
        outs = [i for i in range(source.count) if i not in kept][network.d_in :]
    else:
        outs = []
    if inputs:
        ins = indices("inputs", column_names(inputs), source, data)
    elif (by_name := columns_by_name(source, data, network.columns)) is not None:
        ins = by_name
    else:
        ins = [i for i in range(source.count) if i not in (*outs, *kept, *source.labels)]
    return ins, [i for i in outs if i not in ins]


def _predictions(network: Predictor, source: Columns, ins: list[int]) -> Array:
    import numpy as np

    parts: list[Array] = []
    with output.progress("rows") as report:
        done = 0
        for rows, share in source.parts(ins, tabular=network.tabular):
            parts.append(network.predict(rows))
            done += len(rows)
            report(done, max(done, round(done / share)))
    if not parts:
        raise GatelabError("the file has no rows; give one with at least one")
    return np.concatenate(parts)


def _rmse(values: Array, source: Columns, outs: list[int]) -> tuple[float | None, str | None]:
    """The error against the targets in the file, or the reason if there is none."""
    import numpy as np

    if len(outs) != values.shape[1]:
        return None, None
    try:
        targets = source.take(outs)
    except GatelabError as error:
        return None, str(error)
    return math.sqrt(float(np.mean(np.square(values - targets)))), None


def _with_classes(probabilities: Array, network: Predictor) -> dict[str, np.ndarray]:
    """The most probable class of each row, and the probability of each class, by the names of columns."""
    import numpy as np

    labels = np.array(network.classes)
    columns = zip(network.classes, probabilities.T, strict=True)
    return {"predicted": labels[probabilities.argmax(axis=1)]} | {f"{_PROBABILITY}{c}": column for c, column in columns}


def _content(predicted: dict[str, np.ndarray], ending: str) -> bytes:
    """The predictions as a file of that kind, one row per row of the data; .npy has numbers without names."""
    import numpy as np

    content = io.BytesIO()
    if ending in (".npy", ".npz"):
        classified = any(name.startswith(_PROBABILITY) for name in predicted)
        start = _PROBABILITY if classified else "predicted"
        numbers = {name: column for name, column in predicted.items() if name.startswith(start)}
        others: dict[str, Any] = {name: column for name, column in predicted.items() if name not in numbers}
        values = np.stack(list(numbers.values()), axis=1)
        if ending == ".npy":
            np.save(content, values)
        elif classified:
            np.savez(content, probability=values, **others)
        else:
            np.savez(content, predicted=values, **others)
    else:
        import pandas as pd

        table = pd.DataFrame(predicted)
        if ending == ".csv":
            return table.to_csv(index=False).encode()
        table.to_parquet(content, engine="pyarrow", index=False)
    return content.getvalue()
