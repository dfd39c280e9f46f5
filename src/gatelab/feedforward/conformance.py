"""The conformance suite for units: `check_unit` runs every check of `SUITE` and reports which fail."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.func import functional_call

from gatelab.display import Compact
from gatelab.feedforward.definition import AnyUnit
from gatelab.feedforward.registry import unit as as_unit


@dataclass(frozen=True)
class Check(Compact):
    """One line of the suite's report.

    Attributes:
        name: the name of the check.
        passed: whether the unit passed.
        message: the error, empty if it passed.
    """

    name: str
    passed: bool
    message: str = ""


def check_unit(spec: object, *, raise_on_failure: bool = True) -> tuple[Check, ...]:
    """Run the suite on a unit.

    Args:
        spec: the unit as a name, `Unit`, function or module class.
        raise_on_failure: raise an `AssertionError` that lists the failed checks, if any.

    Returns:
        A `Check` for each part of the suite.

    >>> [c.name for c in check_unit("glu") if not c.passed]
    []
    >>> check_unit(lambda z, v: z.relu().sum() * v, raise_on_failure=False)[3].passed
    False
    """
    chosen = as_unit(spec)  # pyright: ignore[reportArgumentType]
    report = []
    for check in SUITE:
        passed, message = True, ""
        try:
            check(chosen)
        except Exception as error:  # a user's unit may raise anything
            passed, message = False, f"{type(error).__name__}: {error}"
        report.append(Check(check.__name__.replace("_", " "), passed, message))
    failed = [c for c in report if not c.passed]
    if failed and raise_on_failure:
        lines = "\n".join(f"  {c.name}: {c.message}" for c in failed)
        raise AssertionError(f"unit {chosen.name!r} fails {len(failed)} of {len(report)} checks:\n{lines}")
    return tuple(report)


def inputs(rows: int, d_in: int) -> torch.Tensor:
    return torch.randn(rows, d_in, dtype=torch.float64, generator=torch.Generator().manual_seed(7))


def maps_rows_to_rows(unit: AnyUnit) -> None:
    for d_in, d_out in ((1, 1), (3, 2)):
        y = unit.network(5, d_in, d_out)(inputs(11, d_in))
        assert y.shape == (11, d_out), f"(11, {d_in}) went to {tuple(y.shape)}, expected (11, {d_out})"
        assert y.dtype == torch.float64, f"float64 input gave {y.dtype}"


def counts_its_parameters(unit: AnyUnit) -> None:
    for width, d_in, d_out in ((1, 1, 1), (4, 1, 1), (7, 3, 2)):
        net = unit.network(width, d_in, d_out)
        count = sum(p.numel() for p in net.parameters())
        claim = unit.parameter_count(width, d_in, d_out)
        assert count == claim, f"parameter_count({width}, {d_in}, {d_out}) says {claim}, the network has {count}"


def is_finite(unit: AnyUnit) -> None:
    y = unit.network(6, 2, 1)(10 * inputs(50, 2))
    assert torch.isfinite(y).all(), "inputs of size 10 gave NaN or infinite outputs"


def treats_rows_alone(unit: AnyUnit) -> None:
    net, x = unit.network(6, 2, 1), inputs(8, 2)
    alone = torch.cat([net(row[None]) for row in x])
    worst = (net(x) - alone).abs().max().item()
    assert worst <= 1e-10 * (1 + alone.abs().max().item()), f"a row's output moves by {worst:.2g} with its batch"


def has_true_gradients(unit: AnyUnit) -> None:
    net, x = unit.network(3, 2, 1), inputs(20, 2)
    names = [name for name, _ in net.named_parameters()]

    def loss(*values: torch.Tensor) -> torch.Tensor:
        return functional_call(net, dict(zip(names, values, strict=True)), (x,)).square().mean()

    values = tuple(p.detach().clone().requires_grad_() for p in net.parameters())
    torch.autograd.gradcheck(loss, values, rtol=1e-4, atol=1e-6)


def every_parameter_matters(unit: AnyUnit) -> None:
    net = unit.network(4, 2, 1)
    net(inputs(200, 2)).square().mean().backward()
    idle = [name for name, p in net.named_parameters() if p.grad is None or not p.grad.any()]
    assert not idle, f"the output does not depend on {', '.join(idle)}: they would be counted but never used"


def equal_seeds_give_equal_networks(unit: AnyUnit) -> None:
    first, again, other = (list(unit.network(5, seed=s).parameters()) for s in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True)), "seed 0 gave two different networks"
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True)), "seeds 0 and 1 gave the same network"


def leaves_the_global_generator_alone(unit: AnyUnit) -> None:
    before = torch.random.get_rng_state()
    unit.network(5, seed=3)
    assert torch.equal(before, torch.random.get_rng_state()), "building a network moved torch's global generator"


SUITE = (
    maps_rows_to_rows,
    counts_its_parameters,
    is_finite,
    treats_rows_alone,
    has_true_gradients,
    every_parameter_matters,
    equal_seeds_give_equal_networks,
    leaves_the_global_generator_alone,
)
