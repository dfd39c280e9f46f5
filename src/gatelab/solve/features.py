"""Models for variable projection: an output that is linear in some parameters, and its derivatives by the others.

`ProductModel` is a batch of networks of a product unit or a function, y(x) = F(x; theta) c. For a scalar output and at
least one factor, the last factor is eliminated together with D: given the gates a GLU is linear in the lines
D_i (U_i x + u_i), so that c holds n lines and d. Otherwise c holds D and d. The derivative of a neuron's column by its
map l is b_il(x) (x, 1), so that the Jacobian is a row-wise Kronecker product; vector outputs do not enlarge it: with
c = D the normal matrix is that of b (x) (x, 1), multiplied neuron by neuron by D^T D. Maps in which the neuron is
homogeneous (every factor; the gate, if it is a power of relu) are kept at length one.

`ModuleModel` is a batch of modules of a user's class, by automatic differentiation, whose linear parameters are
detected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import mul

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from gatelab.errors import GatelabError
from gatelab.feedforward import FunctionUnit, Network, Unit
from gatelab.feedforward.definition import neuron_slopes
from gatelab.linalg.least_squares import Projection, SpreadColumns, crossed, on_gpu, project


@dataclass(frozen=True)
class Standard:
    """The data with inputs and targets of mean zero and unit variance, on the device, and the inverse scaling."""

    x: Tensor
    y: Tensor
    root_weight: Tensor | None
    x_mean: Tensor
    x_scale: Tensor
    y_mean: Tensor
    y_scale: float

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray, weights: np.ndarray | None, device: torch.device) -> Standard:
        """The data x (N, d_in) and y (N, d_out), with optional weights of the rows (members or 1, N)."""
        inputs, targets = (torch.tensor(np.asarray(a, dtype=np.float64)) for a in (x, y))
        x_mean, x_scale = inputs.mean(0), _spread(inputs)
        y_mean, y_scale = targets.mean(0), float(_spread(targets).max())
        root = None
        if weights is not None:
            w = torch.tensor(weights, dtype=torch.float64)
            root = (w / w.mean(-1, keepdim=True)).sqrt().to(device)
        scaled = torch.cat([(inputs - x_mean) / x_scale, torch.ones_like(inputs[:, :1])], 1).to(device)
        return cls(scaled, ((targets - y_mean) / y_scale).to(device), root, x_mean, x_scale, y_mean, y_scale)

    @torch.no_grad()
    def maps_of(self, net: Network) -> Tensor:
        """The affine maps (1, maps, n, d_in + 1) of a network as functions of the scaled data, on their device."""
        maps = [torch.cat([W * self.x_scale, (b + W @ self.x_mean)[:, None]], 1) for W, b in net.maps]
        return torch.stack(maps)[None].to(self.x.device)

    @torch.no_grad()
    def undo(self, net: Network) -> Network:
        """The same network as a function of the unscaled data."""
        for weight, bias in net.maps:
            weight /= self.x_scale
            bias -= weight @ self.x_mean
        net.D.mul_(self.y_scale)
        net.d.mul_(self.y_scale).add_(self.y_mean)
        return net


def _spread(a: Tensor) -> Tensor:
    """The standard deviation of each column, one where a column is constant."""
    largest = a.abs().amax(0).clamp_min(torch.finfo(a.dtype).tiny)
    deviation = (a / largest).std(0, correction=0) * largest
    return torch.where(deviation > 1e-14 * largest, deviation, 1.0)


@dataclass(frozen=True)
class ProductModel:
    """A batch of networks of one unit on the same rows, padded to one width.

    x (N, d_in + 1) ends with a column of ones; y is (N, d_out); `present` (B, n) marks the neurons that exist. The loss
    is |y(x) - y|^2 + ridge N |c|^2 without d, `ridge` (B,). `root_weight` (B, N) holds the square roots of the weights
    of the rows, which have mean one, or is None.
    """

    unit: Unit
    x: Tensor
    y: Tensor
    present: Tensor
    ridge: Tensor
    root_weight: Tensor | None = None

    @property
    def lines(self) -> bool:
        """Whether the last factor is eliminated."""
        return self.unit.factors > 0 and self.y.shape[1] == 1 and not isinstance(self.unit, FunctionUnit)

    @property
    def maps(self) -> int:
        """The number of affine maps that are not eliminated."""
        return self.unit.factors + (not self.lines)

    @property
    def homogeneous(self) -> tuple[bool, ...]:
        """Whether the neuron is homogeneous in each map."""
        if isinstance(self.unit, FunctionUnit):
            return (False,) * self.maps
        return (self.unit.gate_power is not None or self.unit.gate.name == "identity", *(True,) * (self.maps - 1))

    def take(self, index: Tensor) -> ProductModel:
        weight = None if self.root_weight is None else self.root_weight[index]
        return replace(self, present=self.present[index], ridge=self.ridge[index], root_weight=weight)

    def columns(self, theta: Tensor) -> Tensor:
        """F (B, N, m), rows weighted; the last column is the constant."""
        return self._columns_of(self._neurons(self.affine(theta)))

    def hidden(self, theta: Tensor) -> Tensor:
        """The neurons (B, N, n), rows weighted, all of them present."""
        whole = replace(self, present=torch.ones_like(theta[:, 0, :, 0], dtype=torch.bool))
        return whole._neurons(whole.affine(theta))

    def project(self, theta: Tensor) -> Projection:
        """The optimal linear parameters for these maps."""
        # Kinked neurons that coincide are redundant; smooth ones that nearly coincide represent a derivative.
        rank = 1e-6 if self.unit.gate_power else 1e-10
        y = self.y.expand(len(theta), -1, -1)
        if self.root_weight is not None:
            y = y * self.root_weight[..., None]
        penalty = self.ridge[:, None] * len(self.x) * self._size(theta)
        if self.lines:
            penalty = penalty.repeat_interleave(theta.shape[-1], -1)
        penalty = torch.cat([penalty, torch.zeros_like(self.ridge[:, None])], -1)
        neurons, spread = self._neurons(self.affine(theta)), None
        if self.lines and on_gpu(theta):
            spread = SpreadColumns(neurons, self.x, self._constant())
        return project(self._columns_of(neurons), y, penalty, rank=rank, spread=spread)

    def normal(self, theta: Tensor, projection: Projection) -> tuple[Tensor, Tensor]:
        """The normal matrix (B, p, p) and the downhill gradient (B, p) of half the projected loss, after Kaufman."""
        batch, maps, n, d = theta.shape
        z = self.affine(theta)
        partial = self._partials(z)
        if self.lines:
            line = (projection.coefficients[:, :-1, 0].view(batch, n, d) @ self.x.T).mT
            partial = [b * line for b in partial]
        J, F = self._spread(partial), self._columns_of(self._neurons(z))
        if self.lines and on_gpu(theta):
            border = self._products(partial, self._constant()).mT
            K = projection.reduced_gram(F, J, torch.cat([crossed(F[..., :-1], J), border], 1))
            g = self._products(partial, projection.residual)
        else:
            K, g = projection.reduced_gram(F, J), J.mT @ projection.residual
        if self.lines:
            g = g[..., 0]
        else:
            D = projection.coefficients[:, :-1].repeat_interleave(d, 1).repeat(1, maps, 1)
            K, g = K * (D @ D.mT), (g * D).sum(-1)
        g = g.view_as(theta)
        if self._has_size:
            weight = projection.coefficients[:, :-1].reshape(batch, n, -1).square().sum(-1)
            weight = self.ridge[:, None] * len(self.x) * weight
            g = torch.cat([g[:, :1] - weight[:, None, :, None] * theta[:, :1], g[:, 1:]], 1)
            K.diagonal(dim1=-2, dim2=-1)[:, : n * d] += weight.repeat_interleave(d, -1)
        # Maps of length one only move orthogonally to themselves.
        tangent = g - (g * theta).sum(-1, keepdim=True) * theta
        return K, torch.where(self._unit_length(theta), tangent, g).flatten(1)

    def moved(self, theta: Tensor, step: Tensor) -> Tensor:
        return self.normalized(theta + step.view_as(theta))

    def normalized(self, theta: Tensor) -> Tensor:
        """The maps, scaled to length one where the neuron is homogeneous."""
        length = theta.norm(dim=-1, keepdim=True)
        scaled = torch.where(length > 0, theta / length, theta)
        return torch.where(self._unit_length(theta), scaled, theta)

    def _unit_length(self, theta: Tensor) -> Tensor:
        return torch.tensor(self.homogeneous, device=theta.device)[None, :, None, None]

    def affine(self, theta: Tensor) -> list[Tensor]:
        """The values of each map (B, N, n)."""
        if on_gpu(theta):
            return [(theta[:, i] @ self.x.T).mT for i in range(theta.shape[1])]
        return [self.x @ theta[:, i].mT for i in range(theta.shape[1])]

    def _neurons(self, z: list[Tensor]) -> Tensor:
        neurons = reduce(mul, z[1:], self.unit.gate(z[0])) if self.lines else self.unit.neuron(*z)
        return neurons * self._mask()

    def _mask(self) -> Tensor:
        mask = self.present[:, None].to(self.x.dtype)
        return mask if self.root_weight is None else mask * self.root_weight[..., None]

    def _constant(self) -> Tensor:
        """The column of the constant (B or 1, N, 1), rows weighted."""
        return self.x[None, :, -1:] if self.root_weight is None else self.root_weight[..., None]

    def _columns_of(self, neurons: Tensor) -> Tensor:
        if self.lines:
            return self._spread([neurons], self._constant())
        return torch.cat([neurons, self._constant().expand(len(neurons), -1, -1)], -1)

    def _spread(self, factors: list[Tensor], last: Tensor | None = None) -> Tensor:
        """(B, N, n) each -> (B, N, n (d_in + 1)) side by side: each column times (x, 1), and optionally a last column.

        Every entry is written once, in place, and columns are contiguous on a GPU: a copy would double the time.
        """
        x, d, count = self.x, self.x.shape[1], sum(b.shape[-1] for b in factors)
        columns = count * d + (last is not None)
        if on_gpu(x):
            x = x.mT.contiguous().mT
            out = x.new_empty(len(factors[0]), columns, len(x)).mT
        else:
            out = x.new_empty(len(factors[0]), len(x), columns)
        first = 0
        for b in factors:
            here = out[..., first : first + b.shape[-1] * d].unflatten(-1, (b.shape[-1], d))
            first += b.shape[-1] * d
            if b.requires_grad:
                here.copy_(b[..., None] * x[:, None])  # autograd does not support out=
            else:
                torch.mul(b[..., None], x[:, None], out=here)
        if last is not None:
            out[..., -1:] = last
        return out

    def _products(self, factors: list[Tensor], r: Tensor) -> Tensor:
        """The products (B, p, 1) of the columns of `_spread` with r (B or 1, N, 1), without the columns."""
        return torch.cat([(b.mT @ (r * self.x)).flatten(1) for b in factors], 1)[..., None]

    def _partials(self, z: list[Tensor]) -> list[Tensor]:
        """The derivative of the neurons by each map, (B, N, n) each."""
        mask = self._mask()
        if isinstance(self.unit, FunctionUnit):
            return [s * mask for s in neuron_slopes(self.unit, z)[1]]
        value, slope = self.unit.gate(z[0]), self.unit.gate.slope(z[0])
        out = [slope * mask]
        for l in range(1, len(z)):
            out = [b * z[l] for b in out] + [reduce(mul, [value * mask, *z[1:l]])]
        return out

    @property
    def _has_size(self) -> bool:
        return not self.homogeneous[0] and self.unit.gate.growth == 1

    def _size(self, theta: Tensor) -> Tensor:
        """The weight of each neuron's squared coefficient in the ridge (B, n): the squared length of the gate's map.

        A penalty on the coefficient alone would reward gates that grow steeper.
        """
        if self._has_size:
            return theta[:, 0].square().sum(-1)
        return torch.ones_like(theta[:, 0, :, 0])

    @torch.no_grad()
    def network(self, theta: Tensor, coefficients: Tensor, row: int, width: int) -> Network:
        """One network of the batch, on the CPU, its neurons packed to `width`."""
        here = self.present[row].nonzero()[:width, 0]
        maps, c = theta[row][:, here].cpu(), coefficients[row].cpu()
        net = Network(self.unit, width, self.x.shape[1] - 1, self.y.shape[1])
        if self.lines:
            lines = c[:-1, 0].view(-1, self.x.shape[1])[here.cpu()]
            D = lines.norm(dim=-1)[None]
            maps = torch.cat([maps, torch.where(D.T > 0, lines / D.T, lines)[None]])
        else:
            D = c[:-1][here.cpu()].T
        for (weight, bias), value in zip(net.maps, maps, strict=True):
            weight[: len(here)], bias[: len(here)] = value[:, :-1], value[:, -1]
        net.D[:, : len(here)] = D
        net.d.copy_(c[-1])
        return net


@dataclass(frozen=True)
class ModuleModel:
    """A batch of modules of one class: theta (B, p) holds the nonlinear parameters, in the order of `moving`."""

    net: nn.Module
    x: Tensor
    y: Tensor
    ridge: float
    linear: tuple[str, ...]
    moving: tuple[str, ...]

    @classmethod
    def of(cls, net: nn.Module, x: Tensor, y: Tensor, ridge: float) -> ModuleModel:
        """The model of a module's class, with its linear parameters detected."""
        names, linear = [name for name, p in net.named_parameters() if p.requires_grad], linear_parameters(net, x)
        return cls(net, x, y, ridge, linear, tuple(n for n in names if n not in linear))

    def start(self, net: nn.Module) -> Tensor:
        """The nonlinear parameters of a module."""
        values = dict(net.named_parameters())
        return torch.cat([torch.zeros(0, dtype=self.x.dtype), *(values[n].detach().flatten() for n in self.moving)])

    def take(self, index: Tensor) -> ModuleModel:
        return self  # all members share it

    def moved(self, theta: Tensor, step: Tensor) -> Tensor:
        return theta + step

    def project(self, theta: Tensor) -> Projection:
        """The optimal linear parameters for these nonlinear ones."""
        F, at_zero = self._columns(theta)
        penalty = torch.full(F.shape[::2], self.ridge * len(self.x), dtype=F.dtype)
        return project(F, self.y.reshape(1, -1, 1) - at_zero, penalty)

    def normal(self, theta: Tensor, projection: Projection) -> tuple[Tensor, Tensor]:
        """The normal matrix (B, p, p) and the downhill gradient (B, p) of half the projected loss."""
        pairs = zip(theta, projection.coefficients, strict=True)
        J = torch.stack([self._jacobian(self._values(t, c), self.moving) for t, c in pairs])
        return projection.reduced_gram(self._columns(theta)[0], J), (J.mT @ projection.residual)[..., 0]

    @torch.no_grad()
    def network(self, theta: Tensor, coefficients: Tensor) -> nn.Module:
        """The module with these parameters: `net` itself, changed."""
        for name, value in self._values(theta, coefficients).items():
            self.net.get_parameter(name).copy_(value)
        return self.net

    def _columns(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """F (B, N d_out, m) and the output where the linear parameters are zero (B, N d_out, 1)."""
        columns, outputs = [], []
        for t in theta:
            values = self._values(t, t.new_zeros(sum(self.net.get_parameter(n).numel() for n in self.linear), 1))
            with torch.no_grad():
                outputs.append(functional_call(self.net, values, (self.x,)).reshape(-1, 1))
            columns.append(self._jacobian(values, self.linear) if self.linear else torch.zeros_like(outputs[-1]))
        return torch.stack(columns), torch.stack(outputs)

    def _jacobian(self, values: Mapping[str, Tensor], names: tuple[str, ...]) -> Tensor:
        """d output / d the named parameters, (N d_out, count)."""

        def output(moving: dict[str, Tensor], row: Tensor) -> Tensor:
            return functional_call(self.net, {**values, **moving}, (row[None],))[0]

        try:
            parts = vmap(jacrev(output), in_dims=(None, 0))({n: values[n] for n in names}, self.x)
        except RuntimeError as error:
            raise GatelabError(
                f"{type(self.net).__name__} cannot be differentiated row by row ({str(error).splitlines()[0]}); "
                "use solver='lbfgs' or 'adam'"
            ) from error
        return torch.cat([parts[n].reshape(self.y.numel(), -1) for n in names], -1).detach()

    def _values(self, theta: Tensor, coefficients: Tensor) -> dict[str, Tensor]:
        """The parameters by name, from flat nonlinear and linear ones (m, 1)."""
        values = {}
        for names, flat in ((self.moving, theta), (self.linear, coefficients[:, 0])):
            for n in names:
                shape = self.net.get_parameter(n).shape
                values[n], flat = flat[: shape.numel()].view(shape), flat[shape.numel() :]
        return values


@torch.no_grad()
def linear_parameters(net: nn.Module, x: Tensor) -> tuple[str, ...]:
    """The names of parameters in which the output is jointly affine, found from the last to the first."""
    generator = torch.Generator().manual_seed(0)
    rows = x[: min(len(x), 256)]
    named = [(n, p) for n, p in net.named_parameters() if p.requires_grad]
    values, steps = ({n: torch.randn(p.shape, generator=generator, dtype=p.dtype) for n, p in named} for _ in range(2))
    linear: list[str] = []
    for name, _ in reversed(named):
        tried = [name, *linear]
        low, middle, high = (
            functional_call(net, {n: v + s * steps[n] * (n in tried) for n, v in values.items()}, (rows,))
            for s in (-1.0, 0.0, 1.0)
        )
        if bool((low - 2 * middle + high).abs().max() <= 1e-10 * (high.abs() + low.abs()).max()):
            linear = tried
    return tuple(linear)
