"""`gatelab predict`: what a saved model says of the rows of a file."""

from __future__ import annotations

import io
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gatelab.cli import output
from gatelab.cli.lists import Json
from gatelab.cli.output import check_file
from gatelab.cli.reading import SavedModel, check_inputs, column_names, columns_by_name, read_model
from gatelab.errors import GatelabError
from gatelab.files import write_whole

if TYPE_CHECKING:
    from gatelab.cli.reading import Array
    from gatelab.data.tables import Columns

ENDINGS = (".csv", ".npy", ".npz", ".parquet")
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
    """Predict the rows of a file with a saved model, in the data's own units."""
    check_file(out, ENDINGS)
    if out is not None and out.suffix.lower() == ".parquet":
        from gatelab.cli.exchange import need_pyarrow

        need_pyarrow()
    chosen = read_model(model)
    source = _open(data)
    ins, outs = _columns(chosen, source, model=model, data=data, inputs=inputs, target=target)
    values = _predicted(chosen, source, ins)
    error, doubt = _rmse(values, source, outs)
    names = _names(chosen, values.shape[1])
    if out is not None:
        write_whole(out, _content(values, names, out.suffix.lower()))
    if as_json:
        about = {"model": model, "network": chosen.name, "data": data, "rows": len(values), "columns": names}
        shown = None if out else values.tolist()
        output.document({**about, "rmse": error, "out": out, "predictions": shown, "note": doubt})
        return
    # Beside predictions on stdout, which another program may read, the error is on stderr.
    about = f"{len(values)} rows by the {chosen.name}" + (f", RMSE {error:.4g}" if error is not None else "")
    about += f"; no RMSE: {doubt}" if doubt else ""
    if out is None:
        sys.stdout.write(_content(values, names, ".csv").decode())
        print(f"gatelab: {about}", file=sys.stderr)
    else:
        output.say(f"wrote {out}, {about}", wrap=False)


def _open(path: Path) -> Columns:
    from gatelab.data.tables import open_columns

    if not path.is_file():
        raise GatelabError(f"there is no file {path}; give a CSV, Parquet, .npy or .npz file")
    return open_columns(path)


def _columns(
    chosen: SavedModel, source: Columns, *, model: Path, data: Path, inputs: str | None, target: str | None
) -> tuple[list[int], list[int]]:
    """The columns to predict from and those to compare with: by name, else the first and the rest, if any."""
    from gatelab.data.tables import indices

    outs = indices("target", column_names(target), source, data) if target else _targets(chosen, source)
    if inputs:
        ins = indices("inputs", column_names(inputs), source, data)
    elif (by_name := columns_by_name(source, data, chosen.columns)) is not None:
        ins = by_name
    else:
        ins = [i for i in range(source.count) if i not in outs and i not in source.labels]
    check_inputs(model, chosen, len(ins))
    return ins, [i for i in outs if i not in ins]


def _targets(chosen: SavedModel, source: Columns) -> list[int]:
    """Those with the names that the model knows; without names, as many as it predicts beyond its inputs."""
    if chosen.columns and source.names:
        return [source.names.index(name) for name in chosen.targets if source.names.count(name) == 1]
    return [*range(chosen.d_in, source.count)] if source.count == chosen.d_in + chosen.d_out else []


def _predicted(chosen: SavedModel, source: Columns, ins: list[int]) -> Array:
    import numpy as np

    parts: list[Array] = []
    with output.progress("predicting") as report:
        for rows, done in source.parts(ins):
            parts.append(chosen.predict(rows))
            report(int(1000 * done), 1000)
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


def _names(chosen: SavedModel, outputs: int) -> list[str]:
    if chosen.targets:
        return [f"predicted_{name}" for name in chosen.targets]
    return ["predicted"] if outputs == 1 else [f"predicted_{i}" for i in range(outputs)]


def _content(values: Array, names: list[str], ending: str) -> bytes:
    """The predictions as a file of that kind, a row for each row of the data."""
    import numpy as np

    into = io.BytesIO()
    if ending == ".npy":
        np.save(into, values)
    elif ending == ".npz":
        np.savez(into, predicted=values)
    else:
        import pandas as pd

        table = pd.DataFrame(values, columns=pd.Index(names))
        if ending == ".csv":
            return table.to_csv(index=False).encode()
        table.to_parquet(into, engine="pyarrow", index=False)
    return into.getvalue()
