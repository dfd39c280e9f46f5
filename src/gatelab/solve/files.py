"""Fits as files: the network's parameters as arrays, everything else as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from gatelab import tensors
from gatelab.errors import GatelabError
from gatelab.feedforward import FunctionUnit, Network, Unit
from gatelab.feedforward import unit as as_unit
from gatelab.feedforward.registry import describe, restore
from gatelab.plain import from_plain, to_plain

if TYPE_CHECKING:
    from gatelab.solve.fits import Fit

KIND, _FORMAT = "Fit", 1
GIVE = "give a file that gatelab fit --out, Fit.save or GatedRegressor.save wrote"
# The errors that inconsistent values of a file raise.
DAMAGED = (AssertionError, AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)


def packed(fit: Fit) -> bytes:
    """The content of the file; stores keep networks in the same form."""
    if not isinstance(fit.network, Network):
        raise GatelabError(
            f"the network of {fit.unit!r} is your own class, which a file of arrays cannot hold; "
            "save fit.network.state_dict() yourself"
        )
    facts = {name: to_plain(value) for name, value in vars(fit).items() if name != "network"}
    facts |= {"format": _FORMAT, "unit": describe_unit(fit.network.unit)}
    return tensors.pack(fit.network.state_dict(), KIND, facts)


def write(fit: Fit, path: str | Path) -> Path:
    """Save the fit; parameters that are not finite are refused."""
    content = packed(fit)
    tensors.check_finite(path, fit.network.state_dict(), "the file was not written: fit again, with a ridge")
    return tensors.write_packed(path, content)


def read(kind: type[Fit], path: str | Path) -> Fit:
    """The fit that was saved."""
    content = tensors.read(path, GIVE, "pt")
    tensors.check_format(path, content.facts, _FORMAT)
    tensors.check_finite(path, content.arrays, "the file is damaged: save the fit again")
    facts, arrays = content.facts, content.arrays
    try:
        unit = restored_unit(facts["unit"])
        network = restored_network(unit, facts["width"], facts["d_in"], len(arrays["D"]), arrays)
        fit = from_plain(kind, facts | {"unit": unit.name, "network": network})
        scaled = sizes = (network.d_in, network.d_out)
        if fit.scales is not None:
            scaled = (len(fit.scales.x.mean), len(fit.scales.y.mean))
        if scaled != sizes or len(fit.columns) not in (0, network.d_in):
            raise ValueError(f"its scales or names are not of {network.d_in} inputs and {network.d_out} outputs")
        return fit
    except DAMAGED as error:
        raise damaged(path, error) from error


def damaged(path: str | Path, error: Exception) -> GatelabError:
    """The error for a file with inconsistent values."""
    reason = " ".join(str(error).split())
    return GatelabError(
        f"{path} is damaged or was written by another version of gatelab ({type(error).__name__}: {reason}); save it "
        "again"
    )


def restored_network(unit: Unit, width: int, d_in: int, d_out: int, state: Mapping[str, torch.Tensor]) -> Network:
    """The network with these parameters; RuntimeError or ValueError if they do not match."""
    # Without memory until the shapes are known to match: a damaged width could be huge.
    with torch.device("meta"):
        network = Network(unit, width, d_in, d_out)
    network.load_state_dict(state, assign=True)
    if any(p.dtype != torch.float64 for p in network.parameters()):
        raise ValueError("its parameters are not float64")
    return network


def describe_unit(unit: Any) -> str | dict[str, Any]:
    """A name, or the gate and factors of any other unit: a file must not name code to import."""
    if isinstance(unit, str):
        return unit
    chosen = as_unit(unit)
    if not isinstance(chosen, Unit) or isinstance(chosen, FunctionUnit):
        raise GatelabError(
            f"the unit {chosen.name!r} is your own function, which a file of arrays cannot hold; "
            "save the network's state_dict() yourself, or use a gate that gatelab knows"
        )
    return describe(chosen)


def restored_unit(description: dict[str, Any]) -> Unit:
    """The unit of such a description; ValueError if it names code to import."""
    if "import" in description:
        raise ValueError("it names code to import")
    unit = restore(description)
    assert isinstance(unit, Unit)
    return unit
