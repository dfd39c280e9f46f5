"""Who computes what: so that two sweeps on one store share the work, and the leases of the killed are taken over.

A sweep takes a lease on a run before it computes it. The lease holds while the process of the sweep lives. On the same
machine we ask the system whether that process still runs, and tell it from a later one with the same number by its
start time. Elsewhere all we have is a heartbeat, renewed by a thread. In the store leases are the table `claims`.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from gatelab.errors import GatelabError

EXPIRY = 60.0
"""Seconds without a heartbeat after which a lease from elsewhere is void."""


@dataclass(frozen=True)
class Leaseholder:
    """A sweep, as the other sweeps see it.

    `owner` is its name, which no other sweep has; `host` says where its process number `pid` means something, `started`
    when the process began, and `heartbeat` when the lease was last renewed.
    """

    owner: str
    host: str
    pid: int
    started: str
    heartbeat: float = 0.0

    def alive(self, now: float, me: Leaseholder) -> bool:
        """Whether the sweep goes on, as far as `me` can tell."""
        fresh = now - self.heartbeat < EXPIRY
        if self.host != me.host:
            return fresh
        if self.pid == me.pid and self.started == me.started:
            # Another sweep of our own process. The process lives, so only the heartbeat says whether the sweep does.
            return self.owner == me.owner or fresh
        if not self.started:
            return fresh and process_exists(self.pid)
        return start_time(self.pid) == self.started


@dataclass(frozen=True)
class Leases:
    """The keys of runs that were asked for: mine to compute, settled by a record meanwhile, busy in another sweep."""

    mine: frozenset[str]
    settled: frozenset[str] = frozenset()
    busy: frozenset[str] = frozenset()


def leaseholder() -> Leaseholder:
    """This process, under a name that no other sweep has."""
    return Leaseholder(uuid4().hex, host(), os.getpid(), start_time(os.getpid()))


def host() -> str:
    """A name for the space in which process numbers mean something: machine, boot and, in containers, namespace."""
    parts = [platform.node()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    except OSError:
        pass  # not Linux: the name of the machine must do
    return "/".join(parts)


def start_time(pid: int) -> str:
    """When a process started, in the system's own ticks; empty where there is no such process or nobody to ask.

    >>> start_time(os.getpid()) == start_time(os.getpid())
    True
    >>> start_time(2**30)
    ''
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
    if fields[0] in "ZX":
        return ""  # a zombie computes nothing any more
    return fields[19]


def process_exists(pid: int) -> bool:
    """Whether there is a process with that number.

    >>> process_exists(os.getpid()), process_exists(2**22 + 1)
    (True, False)
    """
    if os.name == "nt":  # there os.kill(pid, 0) would end the process
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def beating(beat: Callable[[float], None], every: float = EXPIRY / 4) -> Iterator[None]:
    """Call `beat(now)` from a thread until the block ends: the block itself may be deep in one long run."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(every):
            try:
                beat(time.time())
            except GatelabError:
                continue  # a lock held too long costs one beat of four

    thread = threading.Thread(target=renew, name="gatelab-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
