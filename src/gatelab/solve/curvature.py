"""The exact gradient and Hessian of the squared loss, two ways.

The Hessian of a product unit is cheap, since its output is d + sum_i D_i h(z_i1, z_i2, ...), z affine in x. With
residuals r and the Jacobian J of the output,

    H = 2/N [ J^T J + blockdiag over neurons of sum_n r_n hess(D_i h_i)(x_n) ]

and J and the blocks need only h, dh/dz and d2h/dz2, each an (N, width) array. The dense way differentiates the gradient
and takes any module: the paper's code works so, and the tests hold the one against the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev

from gatelab.units import Network, factor_names

_CHUNK = 4_000_000  # entries of the Jacobian held at once: 32 MB


@dataclass(frozen=True)
class Curvature:
    """A loss, and its gradient (P,) and Hessian (P, P) in the chosen parameters."""

    loss: float
    gradient: Tensor
    hessian: Tensor


def is_elementwise(net: Network, x: Tensor) -> bool:
    """Whether each neuron sees only its own pre-activations: a user's function may break that promise.

    >>> from gatelab.units import unit
    >>> x = torch.ones(3, 1, dtype=torch.float64)
    >>> is_elementwise(unit("glu").network(4), x), is_elementwise(unit(lambda z: z.softmax(1)).network(4), x)
    (True, False)
    """
    with torch.no_grad():
        z = net.affine(x[:4])
        alone = [net.unit.neuron(*(v.view(1, 1) for v in one)) for one in zip(*(v.flatten() for v in z), strict=True)]
        return torch.allclose(net.unit.neuron(*z).flatten(), torch.cat(alone).flatten(), rtol=1e-9, atol=1e-12)


def dense_curvature(net: nn.Module, x: Tensor, y: Tensor, names: Sequence[str]) -> Curvature:
    """For any module, by differentiating the gradient: P backward passes."""
    held = {n: p.detach() for n, p in net.named_parameters()}
    sizes = [held[n].numel() for n in names]

    def loss(theta: Tensor) -> Tensor:
        moved = {n: v.view_as(held[n]) for n, v in zip(names, theta.split(sizes), strict=True)}
        return (functional_call(net, held | moved, (x,)) - y).square().mean()

    theta = torch.cat([held[n].flatten() for n in names])
    # A few rows at a time: the activations of all P passes at once would not fit.
    hessian = jacrev(grad(loss), chunk_size=8)(theta)
    return Curvature(loss(theta).item(), grad(loss)(theta), hessian)


def structured_curvature(net: Network, x: Tensor, y: Tensor, names: Sequence[str]) -> Curvature:
    """For product units: the formula at the top. `names` has a bias next to every weight it has."""
    D, place = net.D.detach(), _places(net, names)
    size = sum(p.numel() for p in place.values())
    # lines[k] is (width, d_in + 1): where the weights and the bias of each neuron's k-th affine map stand.
    lines = {
        k: torch.cat([place[n], place[n.lower()][:, None]], 1)
        for k, n in enumerate(("G", *factor_names(net.unit.factors)))
        if n in place
    }
    loss, g, H = 0.0, torch.zeros(size, dtype=x.dtype), torch.zeros(size, size, dtype=x.dtype)
    rows = max(1, _CHUNK // max(size, net.width))
    for x_part, y_part in zip(x.split(rows), y.split(rows), strict=True):
        with torch.no_grad():
            z = net.affine(x_part)
            h = net.unit.neuron(*z)
            r = h @ D.T + net.d - y_part
        x1 = torch.cat([x_part, torch.ones_like(x_part[:, :1])], 1)
        slopes, bends = _neuron_derivatives(net.unit.neuron, z, tuple(lines))
        loss += r.square().sum().item()
        for o in range(net.d_out):
            J = torch.zeros(len(x_part), size, dtype=x.dtype)
            for k, slope in slopes.items():
                J[:, lines[k].flatten()] = ((D[o] * slope)[:, :, None] * x1[:, None, :]).flatten(1)
            if "D" in place:
                J[:, place["D"][o]] = h
                J[:, place["d"][o]] = 1.0
                for k, slope in slopes.items():
                    mixed = (r[:, o, None] * slope).T @ x1
                    H[place["D"][o][:, None], lines[k]] += mixed
                    H[lines[k], place["D"][o][:, None]] += mixed
            g += J.T @ r[:, o]
            H += J.T @ J
        pull, x2 = r @ D, (x1[:, :, None] * x1[:, None, :]).flatten(1)
        for (k, m), bend in bends.items():
            block = ((pull * bend).T @ x2).view(net.width, x1.shape[1], x1.shape[1])
            H[lines[k][:, :, None], lines[m][:, None, :]] += block
    return Curvature(loss / y.numel(), 2 / y.numel() * g, 2 / y.numel() * H)


def _places(net: nn.Module, names: Sequence[str]) -> dict[str, Tensor]:
    """Where each parameter's entries stand in the vector of all that are named, in the parameter's shape."""
    shapes = {n: net.get_parameter(n).shape for n in names}
    sizes = [s.numel() for s in shapes.values()]
    return {n: i.view(shapes[n]) for n, i in zip(names, torch.arange(sum(sizes)).split(sizes), strict=True)}


def _neuron_derivatives(
    neuron: Callable[..., Tensor], z: Sequence[Tensor], lines: tuple[int, ...]
) -> tuple[dict[int, Tensor], dict[tuple[int, int], Tensor]]:
    """dh/dz_k and d2h/dz_k dz_m: for an elementwise h these are the gradients of sums."""
    if not lines:
        return {}, {}
    slope = grad(lambda *v: neuron(*v).sum(), argnums=lines)
    slopes, bends = slope(*z), {}
    for i, k in enumerate(lines):
        row = grad(lambda *v, i=i: slope(*v)[i].sum(), argnums=lines)(*z)
        bends |= {(k, m): bend for m, bend in zip(lines, row, strict=True)}
    return dict(zip(lines, slopes, strict=True)), bends
