"""What does not fit is refused before it is made: the guard itself, every entry point, and whether needs are true."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import gatelab as gl
from gatelab import memory
from gatelab.cli import app
from gatelab.errors import GatelabError
from gatelab.linearization import linearize, verdict
from gatelab.memory import check_device, check_memory, free_memory, most_that_fits, ran_out
from gatelab.train import recipe, train

GIB = 2**30
rng = np.random.default_rng(0)
X = rng.standard_normal((200, 3))
Y = np.sin(X).sum(axis=1)
LINE = gl.Problem.from_arrays(np.linspace(0, 1, 40_000), np.sin(np.linspace(0, 9, 40_000)))
# A million rows that take no memory: only their number is looked at.
MANY = torch.ones(1, 2, dtype=torch.float64).expand(10**6, 2)


def system(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    available: int = 8 * GIB,
    group: str = "0::/job/step",
    files: dict[str, str] | None = None,
) -> None:
    """A /proc and a /sys/fs/cgroup of one's own."""
    process, groups = folder / "proc", folder / "cgroup"
    (process / "self").mkdir(parents=True)
    (process / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {available // 1024} kB\n")
    (process / "self" / "cgroup").write_text(group + "\n")
    for name, text in (files or {}).items():
        path = groups / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(memory, "_PROCESS", process)
    monkeypatch.setattr(memory, "_GROUPS", groups)
    monkeypatch.setattr(memory, "_limit", list)


def limits(folder: str, most: object, used: int, dropped: int, version: int = 2) -> dict[str, str]:
    names = ("memory.max", "memory.current", "inactive_file")
    if version == 1:
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    values = (str(most), str(used))
    return {f"{folder}/{name}": value for name, value in zip(names[:2], values, strict=True)} | {
        f"{folder}/memory.stat": f"cache 1\n{names[2]} {dropped}\n"
    }


@pytest.mark.parametrize(
    ("group", "files", "expected"),
    [
        ("0::/job/step", limits("job/step", 3 * GIB, 2 * GIB, GIB // 2), 1.5),
        ("0::/job/step", limits("job", 4 * GIB, 3 * GIB, 0) | limits("job/step", "max", GIB, 0), 1),
        ("0::/on/the/host", limits(".", 2 * GIB, GIB, 0), 1),
        ("4:memory:/job", limits("memory/job", 3 * GIB, GIB, GIB, version=1), 3),
        ("4:cpu,memory:/elsewhere", limits("memory", 2 * GIB, GIB, 0, version=1), 1),
        ("3:cpuset:/job", limits("memory/job", GIB, 0, 0, version=1), 8),
    ],
)
def test_control_groups_leave_less(
    group: str, files: dict[str, str], expected: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system(tmp_path, monkeypatch, group=group, files=files)
    assert free_memory() == expected * GIB
    assert most_that_fits(GIB) == int(0.9 * expected)


def test_other_systems_have_half_of_their_memory_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_PROCESS", tmp_path)
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert memory.system_memory() == whole // 2
    monkeypatch.delattr(os, "sysconf")
    assert memory.system_memory() == memory.UNKNOWN


@pytest.mark.parametrize(("kind", "line"), [("RLIMIT_AS", "VmSize:"), ("RLIMIT_DATA", "VmData:")])
def test_ulimit_counts(kind: str, line: str) -> None:
    # After the imports, for libraries reserve address space by the gigabyte.
    code = f"""
import resource
from pathlib import Path
from gatelab.memory import free_memory
used = 1024 * int(Path("/proc/self/status").read_text().partition("{line}")[2].split()[0])
resource.setrlimit(resource.{kind}, (used + 2**29, resource.RLIM_INFINITY))
print(free_memory())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert 2**28 < int(done.stdout) <= 2**29


def test_the_guard_refuses_what_is_sure_not_to_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda device="cpu": 22 * GIB)
    check_memory(19 * GIB, "a kernel", "give fewer rows")
    with pytest.raises(GatelabError, match=r"^a kernel needs about 298 GiB and 22 GiB are free; give fewer rows$"):
        check_memory(298 * GIB, "a kernel", "give fewer rows")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (np._core._exceptions._ArrayMemoryError((10**9,), np.dtype("f8")), True),  # type: ignore[attr-defined]
        (torch.cuda.OutOfMemoryError("the device is full"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_errors_that_mean_that_memory_ran_out(error: Exception, expected: bool) -> None:
    assert ran_out(error) is expected


@pytest.mark.parametrize("raised", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_the_command_line_says_so_in_one_line(raised: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr("gatelab.ntk.analytic", fails)
    result = CliRunner().invoke(app, ["ntk", "--gaussian", "9,3"])
    assert result.exit_code == 2 and result.stdout == ""
    assert result.stderr.startswith("gatelab: memory ran out") and result.stderr.count("\n") == 1


# ---- devices


@pytest.mark.parametrize("device", ["meta", "nonsense", "", "vulkan", "cuda:999", 5])
def test_devices_that_cannot_compute(device: Any) -> None:
    with pytest.raises(GatelabError, match=f"^device is '{device}', which torch cannot compute on here"):
        check_device(device)


DEVICES: dict[str, Callable[[], object]] = {
    "fit": lambda: gl.fit("swiglu", LINE, 2, solver="varpro", device="meta"),
    "fit_many": lambda: gl.fit_many("glu", LINE, [2], device="meta"),
    "GatedRegressor": lambda: gl.GatedRegressor(width=3, device="meta").fit(X, Y),
    "dynamics.train": lambda: gl.dynamics.train("glu", X, Y, 10, 0.01, 5, device="meta"),
    "compare": lambda: gl.compare(["glu", "mlp"], (X, Y), device="meta"),
}


@pytest.mark.parametrize("name", DEVICES)
def test_every_entry_point_refuses_a_device_without_numbers(name: str) -> None:
    with pytest.raises(GatelabError, match="device is 'meta'"):
        DEVICES[name]()


def test_samples_and_models_without_numbers_are_refused() -> None:
    with pytest.raises(GatelabError, match="device is 'meta'"):
        gl.ntk.analytic("glu", torch.ones(3, 2, device="meta"))
    with pytest.raises(GatelabError, match=r"on meta; give model\.float\(\)"):
        gl.ntk.empirical(torch.nn.Linear(2, 1, device="meta"), torch.ones(3, 2))


# ---- entry points: sizes that would take the machine down if anything were made of them


K = np.eye(4) + 0.1
TOO_LARGE: dict[str, Callable[[], object]] = {
    "ntk.analytic": lambda: gl.ntk.analytic("glu", MANY),
    "ntk.empirical": lambda: gl.ntk.empirical(torch.nn.Linear(2, 1).double(), MANY),
    "ntk.spectrum": lambda: gl.ntk.spectrum(torch.ones(1, 1).expand(10**6, 10**6)),
    "scaling, knots": lambda: gl.scaling("glu", gl.Problem.from_function(np.sin, n=2 * 10**6), [200_000], jobs=1),
    "fit, varpro": lambda: gl.fit("glu", LINE, 6000, solver="varpro"),
    "fit, newton": lambda: gl.fit("glu", LINE, 6000, solver="newton"),
    "fit_many": lambda: gl.fit_many("glu", LINE, [2, 6000]),
    "dynamics.expected_loss": lambda: gl.dynamics.expected_loss(K, [1, 2, 3, 4], width=3, lr=0.1, steps=10**11),
    "dynamics.finite_width_loss": lambda: gl.dynamics.finite_width_loss("glu", X, Y, 10, 0.01, steps=10**10),
    "dynamics.train, width": lambda: gl.dynamics.train("glu", X, Y, 10**9, 0.01, 5),
    "dynamics.train, seeds": lambda: gl.dynamics.train("glu", X, Y, 10, 0.01, 5, seeds=10**10),
    "linearize, maclaurin": lambda: linearize("gelu", "maclaurin", d=100, m=10**10),
    "linearize, tensorsketch": lambda: linearize("gelu", "tensorsketch", d=100, m=10**12),
    "linearize, optimal": lambda: linearize("gelu", "optimal", d=100, m=10**12),
    "linearize, learned": lambda: linearize("gelu", "learned", d=100, m=10**9),
    "linearize, error": lambda: linearize("gelu", "minimax", d=10**9).error(),
    "linearize, samples": lambda: linearize("gelu", "minimax", d=10).error(samples=10**12),
    "linearize, phi": lambda: linearize("gelu", "minimax", degree=40, d=100).phi(torch.ones(1, 100)),
    "linearize, verdict": lambda: verdict("gelu", MANY, MANY, 0.1, most=10**6),
    "Problem.from_function": lambda: gl.Problem.from_function(lambda x: x.sum(1), n=10**8, d_in=1000),
    "construct": lambda: gl.construct("glu", "exp(x)", 10**12),
    "train": lambda: train(recipe("gpt2", "glu", size="tiny", options={"d_model": 10**8, "heads": 1}), data=text()),
}


def text() -> Any:
    from gatelab.data.text import TextData

    return TextData("counting", *(np.arange(n, dtype=np.uint16) % 16 for n in (4000, 400)), 16)


@pytest.mark.parametrize("name", TOO_LARGE)
def test_every_entry_point_knows_its_need_before_it_begins(name: str) -> None:
    with pytest.raises(GatelabError, match=r"needs about \S+ GiB and \S+ [GM]iB are free; "):
        TOO_LARGE[name]()


def test_more_neurons_than_values_are_refused_at_once() -> None:
    for ridge in (None, 0.1):
        with pytest.raises(GatelabError, match="width is 1000000000 and there are 200 different target values"):
            gl.GatedRegressor(width=10**9, ridge=ridge).fit(X, Y)
    # More parameters than values are another matter: a ridge holds them.
    with pytest.warns(UserWarning, match="parameters but there are only"):
        gl.GatedRegressor(width=30, ridge=0.1, starts=1, rounds=0, steps=2).fit(X, Y)


COMMANDS = {
    "fit": ("fit glu --points 2000000 --width 200000", "needs about"),
    "steps": ("dynamics --gaussian 20,10 --steps 10000000000", "needs about"),
    "rows": ("ntk --gaussian 900000,10 --rows 900000", "needs about"),
    "gaussian": ("dynamics --gaussian 100000,100000", "needs about"),
    "scale": ("linearize --method hermite --scale 1e300", "at least 1e-06 and at most 200000"),
    "w-scale": ("linearize --d 3 --w-scale 1e300", "w_scale is 1e+300"),
    "device": ("fit swiglu friedman1 --width 4 --device meta", "device is 'meta'"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_end_in_one_line(name: str) -> None:
    command, says = COMMANDS[name]
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 2 and result.stdout == "", result.output
    assert says in result.stderr and result.stderr.count("\n") == 1


# ---- whether the needs are true


MEASURED = ["analytic", "empirical", "steps", "varpro", "adam", "knots", "construct", "points"]


@pytest.fixture(scope="module")
def taken() -> dict[str, dict[str, float]]:
    """What each call asked for and took, in a process of its own."""
    program = [sys.executable, str(Path(__file__).with_name("memory_measured.py"))]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    return {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is read from /proc")
@pytest.mark.parametrize("name", MEASURED)
def test_needs_are_within_a_factor_of_two_of_what_is_taken(name: str, taken: dict[str, dict[str, float]]) -> None:
    measured = taken[name]
    assert 0.5 < measured["need"] / measured["peak"] < 2, measured
