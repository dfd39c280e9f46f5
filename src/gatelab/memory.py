"""What this machine has: free memory, and devices that can compute; asked before anything large is made.

An entry point knows how large its arrays will be. It says so to `check_memory` before the first of them is made, so
that what cannot fit is refused at once, in one line, where the system would end the process without a word.

Memory is free in so far as the system says so (Linux: MemAvailable), as the limits of the control group that the
process is in leave room (containers and batch systems set them), and as `ulimit -v` does. Other systems do not say how
much is free: half of the memory that they have is taken to be, and `UNKNOWN` where they do not even tell that.
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

SHARE = 0.9  # of the free memory: needs are estimates, and what is sure not to fit is refused, no more
UNKNOWN = 8 * 2**30
_PROCESS, _GROUPS = Path("/proc"), Path("/sys/fs/cgroup")
# What torch, numpy and the system call it when memory runs out.
_WORDS = ("can't allocate memory", "not enough memory", "out of memory", "unable to allocate", "cannot allocate memory")


def check_memory(
    need: float | Sequence[Sequence[int]], what: str, instead: str, device: str | torch.device = "cpu"
) -> None:
    """Refuse what needs more memory than is free: so many bytes, or float64 arrays of these shapes at once.

    `what` is the thing that needs it, `instead` what to do.

    >>> check_memory(1e6, "a kernel of 353 rows", "give fewer rows")
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
    """How many things of so many bytes each `check_memory` lets through."""
    return int(SHARE * free_memory(device) / each)


def size_text(size: float) -> str:
    """Bytes as people read them.

    >>> size_text(3.2e11), size_text(5e6), size_text(10**400)
    ('298 GiB', '4.77 MiB', '9.31e+290 GiB')
    """
    size = float(min(size, 10**300))
    if size >= 2**30:
        return f"{size / 2**30:.3g} GiB"
    return f"{size / 2**20:.3g} MiB"


def free_memory(device: str | torch.device = "cpu") -> int:
    """Bytes free on the device; of a GPU what torch keeps for itself without using it is free too."""
    name = str(device)
    if name.startswith("cuda"):
        import torch

        where = torch.device(name)
        unused = torch.cuda.memory_reserved(where) - torch.cuda.memory_allocated(where)
        return torch.cuda.mem_get_info(where)[0] + unused
    return max(0, min([system_memory(), *_groups(), *_limit()]))


def system_memory() -> int:
    """The bytes that the system says are free; where it does not say, half of what there is."""
    with suppress(OSError, ValueError, IndexError):
        for line in (_PROCESS / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return UNKNOWN


def _groups() -> list[int]:
    """What each control group around the process leaves, of version 2 or 1; none where there are none."""
    try:
        lines = (_PROCESS / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    rooms = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        mount = _GROUPS / "memory" if controllers else _GROUPS
        # Inside a container the path is that of the host, and the container's own group is the mount itself.
        for folder in (mount / path.lstrip("/"), *(mount / path.lstrip("/")).parents):
            if folder == mount.parent:
                break
            rooms += _room(folder)
    return rooms


def _room(folder: Path) -> list[int]:
    """The limit of one group less what it uses; files that it has read and can drop count as free."""
    for limit, used, dropped in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        # "max" is no number, and a group at the root has none of these files.
        with suppress(OSError, ValueError):
            most, now = (int((folder / name).read_text()) for name in (limit, used))
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            return [most - now + int(stat.get(dropped, 0))]
    return []


def _limit() -> list[int]:
    """What `ulimit -v`, `ulimit -d` and a sweep's own memory_limit leave to this process."""
    if sys.platform == "win32":
        return []
    import resource

    rooms = []
    for kind, line in ((resource.RLIMIT_AS, "VmSize:"), (resource.RLIMIT_DATA, "VmData:")):
        most, _ = resource.getrlimit(kind)
        if most != resource.RLIM_INFINITY:
            with suppress(OSError, ValueError, IndexError):
                status = (_PROCESS / "self" / "status").read_text()
                rooms.append(most - 1024 * int(status.partition(line)[2].split()[0]))
    return rooms


def ran_out(error: BaseException) -> bool:
    """Whether an error says that memory ran out: Python's and numpy's MemoryError, and torch's RuntimeErrors.

    >>> ran_out(RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory"))
    True
    >>> ran_out(RuntimeError("shapes do not fit")), ran_out(MemoryError())
    (False, True)
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's class, without torch
        return True
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in _WORDS)


def check_device(device: str | torch.device | None, dtype: torch.dtype | None = None) -> torch.device:
    """The device of that name, if torch can compute on it here in `dtype`, float64 unless given; None is the CPU.

    >>> check_device("cpu")
    device(type='cpu')
    """
    import torch

    name, remedy = str(device), "give 'cpu'"
    if device is None:
        name = "cpu"
    if torch.cuda.is_available():
        remedy = "give 'cpu' or 'cuda'"
    try:
        # Tensors on "meta" have a shape and no numbers: `item` is where that shows.
        torch.zeros(1, dtype=dtype or torch.float64, device=name).item()
    except Exception as error:
        # Torch has no one kind of error for a backend that is not there: RuntimeError, AssertionError, ImportError ...
        reason = ""
        if name.startswith("cuda"):
            reason = f" ({str(error).splitlines()[0]})"
        raise GatelabError(f"device is {name!r}, which torch cannot compute on here{reason}; {remedy}") from None
    return torch.device(name)
