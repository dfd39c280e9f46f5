"""The free memory and the devices of this machine.

Entry points call `check_memory` before they allocate, so that a computation that does not fit raises at once instead of
being killed by the system. Free memory is the least of the system's MemAvailable (Linux; elsewhere half of the
installed memory), the limits of the control group of the process (containers, batch systems) and `ulimit`.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gatelab.errors import GatelabError

if TYPE_CHECKING:
    import torch

SHARE = 0.9  # of the free memory: the sizes are estimates
UNKNOWN = 8 * 2**30
_PROCESS, _GROUPS = Path("/proc"), Path("/sys/fs/cgroup")
# From the error messages of torch, numpy and the system.
_WORDS = ("can't allocate memory", "not enough memory", "out of memory", "unable to allocate", "cannot allocate memory")


def check_memory(
    need: float | Sequence[Sequence[int]], what: str, instead: str, device: str | torch.device = "cpu"
) -> None:
    """Raise if memory is insufficient for `need`: a number of bytes, or float64 arrays of these shapes.

    `what` names the computation in the message, `instead` is the advice.

    >>> check_memory([(353, 353), (353, 10)], "a kernel of 353 rows", "give fewer rows")
    >>> check_memory(8e15, "the kernel of 31622776 rows", "give fewer rows")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    gatelab.errors.GatelabError: the kernel of 31622776 rows needs about 7.45e+06 GiB and ... are free; give fewer rows
    """
    if not isinstance(need, float | int):
        need = 8 * sum(math.prod(shape) for shape in need)
    free = free_memory(device)
    if need > SHARE * free:
        raise GatelabError(f"{what} needs about {size_text(need)} and {size_text(free)} are free; {instead}")


def most_that_fits(each: float, device: str | torch.device = "cpu") -> int:
    """The number of objects of `each` bytes that `check_memory` accepts."""
    return int(SHARE * free_memory(device) / each)


def size_text(size: float) -> str:
    """A readable number of bytes.

    >>> size_text(3.2e11), size_text(10**400)
    ('298 GiB', '9.31e+290 GiB')
    """
    size = float(min(size, 10**300))
    if size >= 2**30:
        return f"{size / 2**30:.3g} GiB"
    return f"{size / 2**20:.3g} MiB"


def free_memory(device: str | torch.device = "cpu") -> int:
    """Free bytes on the device; on a GPU they include torch's unused cache."""
    name = str(device)
    if name.startswith("cuda"):
        import torch

        where = torch.device(name)
        unused = torch.cuda.memory_reserved(where) - torch.cuda.memory_allocated(where)
        return torch.cuda.mem_get_info(where)[0] + unused
    return max(0, min([system_memory(), *_groups(), *_limit()]))


def system_memory() -> int:
    """The free bytes that the system reports, or half of its memory if it reports none."""
    with suppress(OSError, ValueError, IndexError):
        return _kibibytes(_PROCESS / "meminfo", "MemAvailable:")
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return UNKNOWN


def _kibibytes(file: Path, name: str) -> int:
    """The bytes that a line of a file in /proc gives."""
    return 1024 * int(file.read_text().partition(name)[2].split()[0])


def _groups() -> list[int]:
    """The free bytes in each control group of the process, of version 2 or 1."""
    try:
        lines = (_PROCESS / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    free = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        mount = _GROUPS / "memory" if controllers else _GROUPS
        group = mount / path.lstrip("/")
        # Inside a container the path is that of the host, and the container's group is the mount itself.
        for folder in (group, *group.parents):
            if folder.is_relative_to(mount):
                free += _free_in_group(folder)
    return free


def _free_in_group(folder: Path) -> list[int]:
    """The limit of one group minus its use; cached files count as free."""
    for limit, used, dropped in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        # The value may be "max", and a group at the root does not have these files.
        with suppress(OSError, ValueError):
            most, now = (int((folder / name).read_text()) for name in (limit, used))
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            return [most - now + int(stat.get(dropped, 0))]
    return []


def _limit() -> list[int]:
    """The bytes that `ulimit -v` and `ulimit -d` leave to this process."""
    if sys.platform == "win32":
        return []
    import resource

    free = []
    for kind, line in ((resource.RLIMIT_AS, "VmSize:"), (resource.RLIMIT_DATA, "VmData:")):
        most, _ = resource.getrlimit(kind)
        if most != resource.RLIM_INFINITY:
            with suppress(OSError, ValueError, IndexError):
                free.append(most - _kibibytes(_PROCESS / "self" / "status", line))
    return free


def ran_out(error: BaseException) -> bool:
    """Whether memory ran out: a MemoryError of Python or numpy, or a RuntimeError of torch."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's class, without torch
        return True
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in _WORDS)


def check_device(device: str | torch.device | None, dtype: torch.dtype | None = None) -> torch.device:
    """The device of that name, refused unless torch can compute on it in `dtype` (float64 by default)."""
    import torch

    if device is None:
        device = "cpu"
    name = str(device)
    try:
        # Tensors on "meta" have no values, so that `item` raises.
        torch.zeros(1, dtype=dtype or torch.float64, device=name).item()
    except Exception as error:  # RuntimeError, AssertionError, ImportError and others for a missing backend
        remedy = "give 'cpu'" + " or 'cuda'" * torch.cuda.is_available()
        reason = f" ({str(error).splitlines()[0]})" * name.startswith("cuda")
        raise GatelabError(f"device is {name!r}, which torch cannot compute on here{reason}; {remedy}") from None
    return torch.device(name)
