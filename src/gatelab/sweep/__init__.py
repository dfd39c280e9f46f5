"""Sweeps that resume after any interruption: each run is computed once and its record is kept.

    from gatelab.sweep import Run, Store, map_runs

    runs = [Run("package.module:function", {"width": w, "seed": s}) for w in widths for s in range(5)]
    for record in map_runs(runs, store="runs.db", backend="processes"):
        print(record.arguments, record.metrics, record.seconds)

A `Run` names a function and its arguments, which are plain values. Its result is a `Record`, written to a `Store` (one
SQLite file) at once. The same call again computes only the missing runs. Any function can be a task: it takes the
arguments as keywords and returns a dict of metrics, or a `RunOutcome`, which also holds a loss history and arrays.
"""

from gatelab.sweep.backends import BACKENDS, Backend, Plan, Progress, map_runs, plan
from gatelab.sweep.run import Record, Run, RunOutcome, RunStatus
from gatelab.sweep.store import Store

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
    "map_runs",
    "plan",
]
