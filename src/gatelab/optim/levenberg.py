"""Levenberg-Marquardt for the residuals of any module."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gatelab.display import one_line
from gatelab.errors import GatelabError, real_number, unknown_name
from gatelab.memory import size_text
from gatelab.optim.jacobians import Graph, Jacobian, Residuals, blocks, row_jacobian
from gatelab.optim.systems import DenseSystem, FreeSystem, RowLoss, quadratic_model, row_losses
from gatelab.solve.marquardt import Damping, MemberSearch
from gatelab.solve.solution import Status

# The length of the difference for the second derivative along a step, and the longest acceleration, by the step.
_DIFFERENCE, _CURVED = 0.1, 0.75
# A dense step needs about this many arrays of the size of the Jacobian.
_ARRAYS = 4
# The damping of linear parameters, as a share of that of the others.
_EASE = 1e-6
# The values of the search that a saved state contains.
_STATE = ("loss", "damping", "growth", "idle", "promised")


class LevenbergMarquardt:
    """Minimize the mean square of residuals in all trainable parameters of a module.

    A step solves min |J s + r|^2 + damping |D s|^2, D being the root mean square of the norms of the columns of the
    Jacobian J, and is repeated with a larger damping until the loss falls. The damping follows the ratio of the gain to
    its prediction (H. Nielsen, 1999), the same rule as in `gl.fit`. The system is solved by normal equations where the
    damping makes them accurate, by QR otherwise, and by conjugate gradients if J does not fit into `memory`.

    Args:
        model: the module; parameters that do not require gradients are left alone.
        loss: a function of what the closure returns, then the outputs (N, C), with one convex and twice differentiable
            loss per row, such as `lambda z: cross_entropy(z, y, reduction="none")`; its mean is minimized instead.
        linear: the name of a submodule, or names of parameters, in which the residuals are affine. They are always at
            their least-squares optimum, and steps are those of the other parameters (variable projection).
        weights: of the blocks, if the closure returns several tensors: the loss is the sum of weight times mean square.
        acceleration: whether steps follow the curvature along them (geodesic acceleration), for one more evaluation.
        damping: the first damping, relative to the mean squared norm of the columns of J.
        tolerance: three steps in a row that gain less than this share of the loss are convergence.
        longest: the largest Euclidean norm of a step, without linear parameters; longer steps are shortened.
        memory: bytes for the Jacobian and its factorization.

    >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
    <torch...
    >>> x = torch.linspace(-1, 1, 200, dtype=torch.float64)[:, None]
    >>> model = nn.Sequential(nn.Linear(1, 10), nn.Tanh(), nn.Linear(10, 1)).double()
    >>> optimizer = LevenbergMarquardt(model)
    >>> for _ in range(100):
    ...     loss = optimizer.step(lambda: model(x) - torch.sin(3 * x))
    >>> loss**0.5 < 1e-5
    True
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        loss: RowLoss | None = None,
        linear: str | Sequence[str] | None = None,
        weights: Sequence[float] | None = None,
        acceleration: bool = True,
        damping: float = 1e-2,
        tolerance: float = 1e-9,
        longest: float = math.inf,
        memory: float = 2**31,
    ) -> None:
        self.model, self.acceleration, self._row_loss = model, acceleration, loss
        if loss is not None and (linear is not None or weights is not None):
            raise GatelabError("loss is given with linear or weights, which are for squares; give loss alone")
        self.memory = real_number("memory", memory, above=0)
        self.longest = longest
        if longest != math.inf:
            self.longest = real_number("longest", longest, above=0)
        self.tolerance = real_number("tolerance", tolerance, least=0, below=1)
        self.weights = None
        if weights is not None:
            self.weights = [real_number("a weight", w, least=0) for w in weights]
        head = _head(model, linear)
        trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self._head = [p for name, p in trained if name in head]
        self._free = [p for name, p in trained if name not in head]
        check_parameters(trained, len(self._head))
        eps = torch.finfo(self._free[0].dtype).eps
        self._rule = Damping(first=real_number("damping", damping, above=0), least=eps**1.5)
        self._search = MemberSearch(self._rule, self.tolerance, math.inf, -1.0)
        # Whether rows of residuals are independent, by the number of parameters: of all, or of the linear ones.
        self._independent: dict[int, bool] = {}
        self._generator = torch.Generator().manual_seed(0)
        self.steps = 0

    def __repr__(self) -> str:
        count = sum(p.numel() for p in self._parameters)
        return one_line(self, f"{count} parameters, {self.steps} steps, {self.status.value}")

    @property
    def _parameters(self) -> list[nn.Parameter]:
        return [*self._head, *self._free]

    @property
    def loss(self) -> float:
        """The loss after the last step."""
        return self._search.loss

    @property
    def status(self) -> Status:
        """How the last step ended: `BUDGET` while steps improve; its `advice` is what to do next."""
        if not self.steps:
            return Status.BUDGET
        return self._search.status

    def step(self, residuals: Residuals) -> float:
        """Take one step; if no step lowers the loss, or an exception is raised, the model is exactly as before.

        Args:
            residuals: a closure that returns a tensor of residuals of any shape, or a tuple of such blocks, computed
                with the model. Its result must not be random. It is called several times. If row n of a block depends
                on row n of the inputs alone and weights are applied by `nn.Linear`, the Jacobian costs little.

        Returns:
            The loss after the step: the sum over blocks of weight times mean square.
        """
        start = self._saved()
        try:
            with torch.enable_grad():
                self._improve(residuals)
        except BaseException:
            self._restore(start)
            raise
        self.steps += 1
        return self._search.loss

    def _improve(self, residuals: Residuals) -> None:
        """Try steps from the current parameters until one lowers the loss."""
        search = self._search
        if search.damping > self._rule.most:
            search.damping, search.growth = self._rule.first, 2.0
        flat = self._checked(residuals)
        if self._head and float(flat.detach().square().sum()) != search.loss:
            self._project(residuals, check=not self.steps)
        system, start = self._system(residuals, flat), self._saved()
        search.loss = float(system.r.square().sum())
        if self._row_loss is not None:
            search.loss = self._value(residuals)
        while search.damping <= self._rule.most:
            after, promised = self._trial(residuals, system, start)
            if search.takes(after, promised):
                return
            self._restore(start)

    def _checked(self, residuals: Residuals) -> Tensor:
        """The residuals with their graph, which must be finite and depend on the parameters."""
        flat, dtype = blocks(residuals, self.weights).flat, self._free[0].dtype
        if flat.dtype != dtype:
            raise GatelabError(f"residuals() is in {flat.dtype} and the model in {dtype}; give both in one precision")
        wrong = int((~torch.isfinite(flat)).sum())
        if wrong:
            raise GatelabError(f"residuals() has {wrong} of {len(flat)} elements that are not finite; start elsewhere")
        used: Sequence[Tensor | None] = ()
        if flat.requires_grad and self.steps:
            return flat
        if flat.requires_grad:
            used = torch.autograd.grad(flat.sum(), self._parameters, retain_graph=True, allow_unused=True)
        if all(g is None for g in used):
            raise GatelabError("residuals() depends on no trainable parameter of the model; compute it with the model")
        return flat

    def _system(self, residuals: Residuals, flat: Tensor) -> DenseSystem | FreeSystem:
        """The damped systems at the current parameters, without the linear ones."""
        parameters = self._parameters
        m, p = len(flat), sum(q.numel() for q in parameters)
        need = _ARRAYS * m * p * flat.element_size()
        if need > self.memory and not self._head and self._row_loss is None:
            return FreeSystem(Graph(flat, parameters), self._generator)
        if need > self.memory:
            raise GatelabError(
                f"a Jacobian of {m} by {p} needs {size_text(need)} and memory is {size_text(self.memory)};"
                " give more memory, or squares without linear"
            )
        J = self._jacobian(residuals, parameters)
        r = J.r
        if self._row_loss is not None:
            r, root = quadratic_model(self._row_loss, blocks(residuals, None).tensors[0])
            # The Jacobian is that of residuals divided by the root of their number.
            matrix = (root.mT @ (r.numel() ** 0.5 * J.matrix).view(*r.shape, p)).reshape(m, p) / len(r) ** 0.5
            r = r.flatten() / len(r) ** 0.5
            J = Jacobian(r, p, matrix=matrix)
        system = DenseSystem(J, r, sum(q.numel() for q in self._head), _EASE)
        if not system.finite:
            raise GatelabError("the derivatives of residuals() are not finite; start elsewhere")
        return system

    def _jacobian(self, residuals: Residuals, parameters: Sequence[nn.Parameter]) -> Jacobian:
        """The Jacobian with its residuals, by rows if that has been right at the first time."""
        independent = self._independent.get(len(parameters), True)
        by_rows = None
        if independent:
            by_rows = row_jacobian(residuals, self.weights, parameters)
        if by_rows is not None and len(parameters) in self._independent:
            return by_rows
        graph = Graph(blocks(residuals, self.weights).flat, parameters)
        if by_rows is not None:
            t = torch.randn(graph.shape[1], generator=self._generator, device="cpu").to(graph.value)
            product, difference = graph.times(t), by_rows.times(t)
            small = torch.finfo(t.dtype).eps ** 0.5 * float(product.norm())
            self._independent[len(parameters)] = float((difference - product).norm()) <= small
            if self._independent[len(parameters)]:
                return by_rows
        self._independent[len(parameters)] = False
        return Jacobian(graph.value, graph.shape[1], matrix=graph.jacobian())

    def _project(self, residuals: Residuals, *, check: bool = False) -> float:
        """Set the linear parameters to their least-squares optimum; the loss there."""
        F = self._jacobian(residuals, self._head)
        if check:
            self._check_affine(residuals, F)
        # Damped as in the steps, for features that depend on each other.
        step, change = DenseSystem(F, F.r).step(max(_EASE * self._search.damping, self._rule.least))
        if not bool(torch.isfinite(step).all()):
            return math.inf
        self._move(self._head, [p.detach().clone() for p in self._head], step)
        return float((F.r + change).square().sum())

    def _check_affine(self, residuals: Residuals, F: Jacobian) -> None:
        start = [p.detach().clone() for p in self._head]
        r = F.r
        step = torch.randn(F.shape[1], generator=self._generator, device="cpu").to(r)
        self._move(self._head, start, step)
        moved = blocks(residuals, self.weights).flat.detach()
        self._move(self._head, start, torch.zeros_like(step))
        expected = r + F.times(step)
        if not float((moved - expected).norm()) <= torch.finfo(r.dtype).eps ** 0.5 * float(expected.norm() + r.norm()):
            raise GatelabError("residuals() is not affine in the parameters of linear; give others, or linear=None")

    def _trial(
        self, residuals: Residuals, system: DenseSystem | FreeSystem, start: list[Tensor]
    ) -> tuple[float, float]:
        """The loss after a step with the current damping, infinite where the step fails, and the predicted decrease."""
        step, along = system.step(self._search.damping)
        parameters, values = self._parameters, start[: len(self._parameters)]
        short = self._shortened(step)
        if short is not step:
            step, along = short, system.times(short)
        promised = -float((2 * system.r + along) @ along)
        if not (bool(torch.isfinite(step).all()) and math.isfinite(promised)):
            return math.inf, 0.0
        if self._row_loss is not None:
            promised = promised / 2
        elif self.acceleration:
            self._move(parameters, values, _DIFFERENCE * step)
            change = (blocks(residuals, self.weights).flat.detach() - system.r) / _DIFFERENCE
            self._restore(start)
            bend = system.second(2 / _DIFFERENCE * (change - along))
            if float((system.size * bend).norm()) <= _CURVED / 2 * float((system.size * step).norm()):
                step = self._shortened(step + bend / 2)
        self._move(parameters, values, step)
        if self._head:
            return self._project(residuals), promised
        return self._value(residuals), promised

    def _shortened(self, step: Tensor) -> Tensor:
        """The step, not longer than the longest in the parameters that are not linear."""
        length = float(step[sum(p.numel() for p in self._head) :].norm())
        if length <= self.longest:
            return step
        return step * (self.longest / length)

    def _value(self, residuals: Residuals) -> float:
        """The loss at the current parameters."""
        values = blocks(residuals, self.weights)
        if self._row_loss is not None:
            return float(row_losses(self._row_loss, values.tensors[0].detach()).mean())
        return float(values.flat.detach().square().sum())

    def _saved(self) -> list[Tensor]:
        """Copies of the parameters and of the buffers."""
        return [t.detach().clone() for t in (*self._parameters, *self.model.buffers())]

    def _restore(self, values: list[Tensor]) -> None:
        # Through `data`, since the graph of products with J is used again at the same parameters.
        for t, value in zip((*self._parameters, *self.model.buffers()), values, strict=True):
            t.data.copy_(value)

    def _move(self, parameters: Sequence[nn.Parameter], values: Sequence[Tensor], step: Tensor) -> None:
        parts = step.split([p.numel() for p in parameters])
        for p, value, part in zip(parameters, values, parts, strict=True):
            p.data.copy_(value + part.view_as(p))

    def state_dict(self) -> dict[str, Any]:
        """The state of the search; the parameters are those of the model."""
        state = {name: getattr(self._search, name) for name in _STATE}
        own = {"independent": dict(self._independent), "generator": self._generator.get_state()}
        return state | own | {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with the state of another optimizer, to the last bit if its options and residuals are the same.

        Args:
            state: what `state_dict` returned.
        """
        for name in _STATE:
            setattr(self._search, name, state[name])
        self.steps, self._independent = state["steps"], dict(state["independent"])
        self._generator.set_state(state["generator"])


def _head(model: nn.Module, linear: str | Sequence[str] | None) -> set[str]:
    """The names of the linear parameters."""
    names = {name for name, _ in model.named_parameters()}
    head: set[str] = set()
    if isinstance(linear, str):
        linear = [linear]
    for entry in linear or ():
        chosen = {name for name in names if name == entry or name.startswith(f"{entry}.")}
        if not chosen:
            raise unknown_name("submodule or parameter", entry, names | {n for n, _ in model.named_modules() if n})
        head |= chosen
    return head


def check_parameters(trained: Sequence[tuple[str, nn.Parameter]], linear: int = 0) -> None:
    """Refuse parameters of several kinds or of half precision, and models that have none besides the linear ones."""
    if len(trained) <= linear:
        raise GatelabError("the model has no trainable parameters besides the linear ones; give one that has some")
    kinds = {(str(p.dtype).removeprefix("torch."), str(p.device)) for _, p in trained}
    if len(kinds) > 1 or next(iter(kinds))[0] not in ("float32", "float64"):
        text = ", ".join(" on ".join(kind) for kind in sorted(kinds))
        raise GatelabError(f"the parameters are {text}; give them all in float32 or float64 on one device")
