"""Sweeps that survive anything: runs in, records out, each computed once and kept for good.

    from gatelab.sweep import Run, Store, map_runs

    runs = [Run("package.module:function", {"width": w, "seed": s}) for w in widths for s in range(5)]
    for record in map_runs(runs, store="runs.db", backend="processes"):
        print(record.arguments, record.metrics, record.seconds)

A `Run` names a function and its arguments, plain values all. What comes of it is a `Record`, kept in a `Store` (one
SQLite file) as soon as it is there. The same call again computes only what is missing. The package does not know what
it runs: the function takes the arguments as keywords and returns a dict of metrics, or a `RunOutcome` with more.
"""

from gatelab.sweep.backends import BACKENDS, Backend, Plan, Progress, map_runs, plan
from gatelab.sweep.run import Record, Run, RunOutcome, RunStatus
from gatelab.sweep.store import Store, StoreCheck

__all__ = [
    "BACKENDS",
    "Backend",
    "Plan",
    "Progress",
    "Record",
    "Run",
    "RunOutcome",
    "RunStatus",
    "Store",
    "StoreCheck",
    "map_runs",
    "plan",
]
