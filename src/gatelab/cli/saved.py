"""Networks that gatelab saved, read back: arrays and plain values, nothing is ever unpickled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gatelab.errors import GatelabError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gatelab.units import Network

    Array = NDArray[np.float64]

_GIVE = "give a file that 'gatelab fit --save' or GatedRegressor.save wrote"


@dataclass(frozen=True, eq=False)
class Saved:
    """A network, what it is called, and the rows as it takes them."""

    network: Network
    name: str
    x: Array


def read_network(path: Path, x: Array) -> Saved:
    """The network in a safetensors file, and x as it goes in: a GatedRegressor scales its inputs."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise GatelabError(f"there is no file {path}; {_GIVE}")
    try:
        with safe_open(path, framework="pt") as file:
            about = dict(file.metadata() or {})
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is not a dict
    except (OSError, SafetensorError) as error:
        raise GatelabError(f"{path} cannot be read ({str(error).splitlines()[0]}); {_GIVE}") from error
    if "gatelab.GatedRegressor" in about:
        from gatelab.estimators import GatedRegressor

        model = GatedRegressor.load(path)
        _check_inputs(path, x, model.n_features_in_)
        return Saved(model.network_, f"{model.unit_} of width {model.width_}", model.frame_.inputs(x))
    from gatelab.units import Network, Unit, unit

    if "unit" not in about or "G" not in state or "D" not in state:
        raise GatelabError(f"{path} holds no network of gatelab; {_GIVE}")
    found = unit(about["unit"])
    assert isinstance(found, Unit)  # a name is of a product unit
    width, d_in = state["G"].shape
    network = Network(found, width, d_in, len(state["D"]), state["G"].dtype)
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise GatelabError(f"{path} does not hold a {found.name} of width {width} ({error}); {_GIVE}") from error
    _check_inputs(path, x, d_in)
    return Saved(network, f"{found.name} of width {width}", x)


def _check_inputs(path: Path, x: Array, d_in: int) -> None:
    if x.shape[1] != d_in:
        raise GatelabError(
            f"the network in {path} has {d_in} inputs and the data have {x.shape[1]}; choose columns with --inputs"
        )
