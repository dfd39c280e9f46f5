"""Leases: mine, another's, a dead one's."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace

from gatelab.sweep import Record, Run, Store
from gatelab.sweep.leases import EXPIRY, Leaseholder, beating, host, leaseholder, start_time

KEYS = [Run("lab:fit", {"n": n}).key for n in range(4)]


def test_each_run_has_one_leaseholder_until_it_is_released(store: Store) -> None:
    a, b = leaseholder(), leaseholder()
    assert store.lease(KEYS[:3], a).mine == set(KEYS[:3])
    answer = store.lease(KEYS, b)
    assert (answer.mine, answer.busy, answer.settled) == ({KEYS[3]}, set(KEYS[:3]), frozenset())
    assert store.lease(KEYS[:1], a).mine == {KEYS[0]}  # mine already
    store.release(a)
    assert store.lease(KEYS, b).mine == set(KEYS)


def test_a_record_ends_the_lease_and_settles_the_run(store: Store) -> None:
    a, b = leaseholder(), leaseholder()
    runs = [Run("lab:fit", {"n": n}) for n in range(2)]
    store.lease(KEYS[:2], a)
    store.put(Record(runs[0], "done"))
    store.put(Record(runs[1], "failed", error="no", time="noon"))
    assert store.lease(KEYS[:2], b).settled == set(KEYS[:2])
    assert store.lease(KEYS[:2], b, redo={KEYS[0]: "", KEYS[1]: "noon"}).mine == {KEYS[1]}
    # Failed again meanwhile, for another sweep: that was the retry.
    assert store.lease(KEYS[:2], a, redo={KEYS[1]: "morning"}).settled == set(KEYS[:2])


def test_who_is_alive() -> None:
    now = time.time()
    me = leaseholder()
    here = Leaseholder("other", host(), os.getppid(), start_time(os.getppid()), heartbeat=0.0)
    assert here.alive(now, me)  # a process that lives needs no heartbeat: it may be asleep
    assert not replace(here, started="1").alive(now, me)  # another process has its number now
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    theirs = Leaseholder("child", host(), child.pid, start_time(child.pid), heartbeat=now)
    assert theirs.alive(now, me)
    child.kill()
    while start_time(child.pid):
        time.sleep(0.01)
    assert not theirs.alive(now, me)  # a zombie, not yet reaped
    child.communicate()
    assert not theirs.alive(now, me)
    away = Leaseholder("away", "elsewhere", 1, "1", heartbeat=now)
    assert away.alive(now + EXPIRY - 1, me) and not away.alive(now + EXPIRY + 1, me)
    unknown = replace(here, started="", heartbeat=now)  # where the system does not tell when processes began
    assert unknown.alive(now, me) and not unknown.alive(now + EXPIRY + 1, me)
    mine = replace(me, owner="an earlier sweep of this process", heartbeat=now)
    assert mine.alive(now, me) and not mine.alive(now + EXPIRY + 1, me)


def test_leases_of_the_dead_are_taken_over(store: Store) -> None:
    dead = Leaseholder("dead", host(), 2**22 + 1, "12345")
    away = Leaseholder("away", "elsewhere", 1, "1")
    store.lease(KEYS[:1], dead)
    store.lease(KEYS[1:3], away)
    assert store.lease(KEYS[:3], leaseholder()).busy == set(KEYS[1:3])
    store.heartbeat(away, time.time() - EXPIRY - 1)
    assert store.lease(KEYS[1:3], leaseholder()).mine == set(KEYS[1:3])


def test_the_heart_beats_while_the_block_is_busy(store: Store) -> None:
    me = leaseholder()
    store.lease(KEYS[:1], me)
    store.heartbeat(me, 0.0)
    with beating(lambda now: store.heartbeat(me, now), every=0.01):
        for _ in range(2):
            began = time.time()
            while store._read("SELECT heartbeat FROM claims")[0][0] < began:
                assert time.time() < began + 120, "the heart does not beat"
                time.sleep(0.01)
