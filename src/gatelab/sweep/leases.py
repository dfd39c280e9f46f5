"""Leases on runs: several sweeps on one store share the work, and take over the leases of a sweep that was killed.

A lease is valid while the process of its sweep lives. On the same machine Linux knows whether it does; its start time
distinguishes it from a later process with the same number. Elsewhere a lease is valid while a thread renews its
heartbeat.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from gatelab.errors import GatelabError

EXPIRY = 60.0
"""Seconds without a heartbeat after which a lease from another machine expires."""


@dataclass(frozen=True)
class Leaseholder:
    """A sweep as other sweeps see it: its unique name, its process and the time of its last renewal."""

    owner: str
    host: str
    pid: int
    started: str
    heartbeat: float = 0.0

    def alive(self, now: float, me: Leaseholder) -> bool:
        """Whether the sweep still runs, as seen from the sweep `me`."""
        fresh = now - self.heartbeat < EXPIRY
        if self.host != me.host or not self.started:
            return fresh
        if self.pid == me.pid and self.started == me.started:
            # Another sweep in this process, which lives; its heartbeat shows whether the sweep does.
            return self.owner == me.owner or fresh
        return start_time(self.pid) == self.started


class Leases(NamedTuple):
    """The keys of requested runs: leased by this sweep, settled by a record, or busy in another sweep."""

    mine: set[str]
    settled: set[str]
    busy: set[str]


def leaseholder() -> Leaseholder:
    """This process, with a new unique name."""
    return Leaseholder(uuid4().hex, host(), os.getpid(), start_time(os.getpid()))


def host() -> str:
    """The scope of process numbers: machine, boot and, in containers, namespace."""
    parts = [platform.node()]
    with suppress(OSError):  # not Linux
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return "/".join(parts)


def start_time(pid: int) -> str:
    """The start time of a process in clock ticks; empty if there is no such process, or no /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
    if fields[0] in "ZX":
        return ""  # a zombie
    return fields[19]


@contextmanager
def beating(beat: Callable[[float], None], every: float = EXPIRY / 4) -> Iterator[None]:
    """Call `beat(now)` from a thread until the block ends."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(every):
            with suppress(GatelabError):  # the store is locked; three more beats come before the lease expires
                beat(time.time())

    thread = threading.Thread(target=renew, name="gatelab-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
