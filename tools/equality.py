"""Whether two trees of gatelab compute the same, bit by bit.

    python tools/equality.py record before.json     in the one tree
    python tools/equality.py check before.json      in the other, on the same machine
    python tools/equality.py check before.json numbers     either of them without the studies

It hashes a hundred fits, kernels, spectra and linearizations, all reached by public names, and keeps every claim of the
quick studies as text. A hash of floating-point numbers holds for one machine and one build of torch: what one tree has
recorded is to be checked where it was recorded.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import gatelab as gl

ONE_INPUT = ("paper-1d", "exp(sin(3*x))", "abs(x)")
KNOT_UNITS = ("mlp", "glu", "gqu", "relu2", "relu3")
MANY_UNITS = ("mlp", "glu", "swiglu", "geglu", "bilinear", "gqu")
METHODS: dict[str, dict[str, Any]] = {
    "taylor": {"degree": 6},
    "chebyshev": {"degree": 8, "interval": 4.0},
    "minimax": {"degree": 8, "interval": 4.0},
    "hermite": {"degree": 8},
    "maclaurin": {"m": 60, "d": 5},
    "tensorsketch": {"m": 60, "d": 5},
    "optimal": {"m": 40, "d": 5},
    "tangent": {"reference": 0.5, "d": 5},
}


def digest(*values: Any) -> str:
    """A hash of the bits of arrays, tensors and numbers."""
    total = hashlib.sha256()
    for value in values:
        array = np.ascontiguousarray(torch.as_tensor(value).detach().cpu().numpy())
        total.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return total.hexdigest()[:16]


def weights(network: nn.Module) -> list[torch.Tensor]:
    return [tensor for _, tensor in sorted(network.state_dict().items())]


def fits() -> Iterator[tuple[str, str]]:
    for problem in ONE_INPUT:
        for unit in KNOT_UNITS:
            for width in (3, 12):
                fit = gl.fit(unit, gl.problem(problem, n=1000), width)
                yield f"fit {unit} {width} {problem}", digest(*weights(fit.network), fit.test_rmse)
    for problem in ("friedman1", "sin(4*x)*sin(4*y)"):
        for unit in MANY_UNITS:
            for width in (2, 5):
                fit = gl.fit(unit, gl.problem(problem, n=300), width, steps=20)
                yield f"fit {unit} {width} {problem}", digest(*weights(fit.network), fit.test_rmse)
    for solver in ("newton", "adam", "lbfgs"):
        fit = gl.fit("glu", gl.problem("paper-1d", n=500), 5, solver=solver, steps=10)
        yield f"fit glu 5 by {solver}", digest(*weights(fit.network), fit.test_rmse)
    for unit in KNOT_UNITS[:3]:
        yield f"construct {unit}", digest(*weights(gl.construct(unit, "exp(sin(3*x))", 20, (0, 3)).network))
        yield f"limit {unit}", digest(gl.limit(unit, "paper-1d", 30))


def kernels() -> Iterator[tuple[str, str]]:
    X = torch.randn(60, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = X[:, 0] * X[:, 1]
    for unit in ("mlp", "glu", "gqu", "swiglu", "geglu", "gelu", "relu2"):
        kernel = gl.ntk.analytic(unit, X, width=512)
        spectrum = gl.ntk.spectrum(kernel)
        yield f"analytic {unit}", digest(kernel.matrix)
        yield f"spectrum {unit}", digest(spectrum.lambda_max, spectrum.lambda_min)
        yield f"expected loss {unit}", digest(gl.dynamics.expected_loss(kernel, y, 512, 1e-4, 50).loss)
    models = {
        "two layers": nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)),
        "norm": nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.SiLU(), nn.Linear(16, 1)),
        "convolution": nn.Sequential(nn.Unflatten(1, (1, 8)), nn.Conv1d(1, 4, 3), nn.Flatten(), nn.Linear(24, 1)),
    }
    for name, model in models.items():
        with torch.random.fork_rng():
            torch.manual_seed(1)
            for p in model.parameters():
                p.data = torch.randn(p.shape, dtype=torch.float64) / 4
        yield f"empirical {name}", digest(gl.ntk.empirical(model.double(), X).matrix)


def linearizations() -> Iterator[tuple[str, str]]:
    draw = torch.Generator().manual_seed(2)
    W, X = (torch.randn(n, 5, dtype=torch.float64, generator=draw) / 3 for n in (4, 6))
    for method, options in METHODS.items():
        for gate in ("gelu", "silu"):
            if method == "tangent":
                options = {"reference": torch.zeros(5, dtype=torch.float64), "d": 5}
            maps = gl.linearize(gate, method, **{"d": 5, **options})
            yield f"{method} {gate}", digest(maps.phi(W), maps.psi(X), maps.product(W, X))


def claims() -> Iterator[tuple[str, str]]:
    """Every claim of every quick study, by study and number."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "gatelab", "reproduce", "all", "--quick", "--out", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for path in sorted(Path(folder).rglob("*.json")):
            document = json.loads(path.read_text())
            for k, claim in enumerate(document.get("claims", ())):
                claim.pop("place", None)  # older trees do not say where in the paper a claim belongs
                yield f"claim {path.relative_to(folder)} {k}", json.dumps(claim, sort_keys=True)


def measured(studies: bool) -> dict[str, str]:
    torch.set_num_threads(1)
    parts = (fits, kernels, linearizations, *([claims] * studies))
    return dict(pair for part in parts for pair in part())


def main(word: str, file: str, studies: bool) -> int:
    """Record, or compare and print what differs."""
    if word == "record":
        Path(file).write_text(json.dumps(measured(studies), indent=1) + "\n", encoding="utf-8")
        return 0
    before, now = json.loads(Path(file).read_text()), measured(studies)
    before = {key: value for key, value in before.items() if studies or not key.startswith("claim ")}
    differing = [key for key in sorted({*before, *now}) if before.get(key) != now.get(key)]
    for key in differing:
        print(f"{key}\n    before {before.get(key)}\n    now    {now.get(key)}")
    print(f"{len(before)} values before, {len(now)} now, {len(differing)} differ")
    return int(bool(differing))


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in ("record", "check") or sys.argv[3:] not in ([], ["numbers"]):
        sys.exit("give 'record FILE' or 'check FILE', and 'numbers' to leave the studies out")
    sys.exit(main(*sys.argv[1:3], studies=len(sys.argv) == 3))
