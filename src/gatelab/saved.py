"""`load`: read any object that gatelab saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from gatelab.errors import GatelabError
from gatelab.files import as_path
from gatelab.plain import from_plain
from gatelab.solve import Fit
from gatelab.solve import files as fits
from gatelab.solve.files import GIVE
from gatelab.tensors import kind_of

if TYPE_CHECKING:
    from gatelab.estimators import GatedClassifier, GatedRegressor
    from gatelab.linearization import EncryptedPlan, Polynomial
    from gatelab.train import Gap


def load(path: str | Path) -> Fit | GatedRegressor | GatedClassifier | Polynomial | EncryptedPlan | Gap:
    """Read an object that gatelab saved; the file names its type.

    Predictions are the same to the last bit. No code in a file is executed; a pickle is refused.

    Args:
        path: a file of the `save` method of a fit, a regressor, a classifier or a gap, of `Store.save_arrays`, or of
            `--out` of `gatelab fit`, `gatelab linearize` or `gatelab plan`.

    Returns:
        The object that was saved.

    >>> import gatelab as gl
    >>> import tempfile
    >>> fit = gl.fit("glu", "exp(x)", 4)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = gl.load(fit.save(Path(folder) / "glu.safetensors"))
    >>> again.unit, bool((again.predict([0.1, 0.2]) == fit.predict([0.1, 0.2])).all())
    ('glu', True)
    """
    path = as_path(path, GIVE)
    if not path.is_file():
        raise GatelabError(f"there is no file {path}; {GIVE}")
    try:
        with path.open("rb") as file:
            beginning = file.read(64)
    except OSError as error:
        raise GatelabError(f"{path} cannot be read ({error.strerror or error}); {GIVE}") from error
    # Text has no zero bytes; a safetensors file begins with the length of its header, which has some.
    if beginning.lstrip().startswith(b"{") and b"\0" not in beginning:
        return _of_json(path)
    if beginning.startswith(b"SQLite"):
        raise GatelabError(
            f"{path} is a store of runs; write the network of one of them with 'gatelab results show KEY --store "
            f"{path} --out FILE' and give that file"
        )
    kind = kind_of(path, GIVE)
    if kind == fits.KIND:
        return fits.read(Fit, path)
    if kind in ("GatedRegressor", "GatedClassifier"):
        from gatelab import estimators

        return getattr(estimators, kind).load(path)
    if kind == "train":
        raise GatelabError(
            f"{path} is the state of a training; gl.train.load_models({str(path.parent)!r}) gives its models"
        )
    if kind:
        raise GatelabError(f"{path} holds a {kind!r}, which this gatelab does not know; update gatelab")
    raise GatelabError(f"{path} holds arrays of another program; {GIVE}")


def _of_json(path: Path) -> Polynomial | EncryptedPlan | Gap:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise GatelabError(f"{path} cannot be read (incomplete JSON: {error}); {GIVE}") from error
    form = str(content.get("format", ""))
    if form == "gatelab polynomial 1":
        from gatelab.linearization.exchange import read_polynomial

        return read_polynomial(content, path)
    if form == "gatelab plan 1":
        from gatelab.linearization import EncryptedPlan

        return from_plain(EncryptedPlan, content, f"the plan in {path}")
    if "runs" in content:
        from gatelab.train import Gap

        return Gap.load(path)
    raise GatelabError(f"{path} is JSON of another program; {GIVE}")
