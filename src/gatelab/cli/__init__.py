"""The command line: parse, call, print.

`shell` turns errors, Ctrl-C and closed pipes into exit codes; `read` turns texts and files into values; `write` makes
files whole or not at all; `show` prints tables, JSON and progress; `sweeps` is what commands that compute share and
`records` what those share that look into a store. The commands are in `lists`, `measure`, `scale`, `paper`, `results`
and `exchange`, and import what computes where they need it.
"""

from gatelab.cli.app import app, main

__all__ = ["app", "main"]
