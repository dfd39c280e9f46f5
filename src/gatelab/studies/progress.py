"""What a study reports while it runs."""

from __future__ import annotations

from collections.abc import Callable

from gatelab.studies.definition import Request


def ticker(request: Request, total: int) -> Callable[..., None]:
    """Count what is finished and report it to whoever asked for the study.

    >>> tick = ticker(Request(progress=lambda done, total: print(f"{done} of {total}")), 2)
    >>> tick()
    1 of 2
    """
    count = 0

    def tick(*_: object) -> None:
        nonlocal count
        count += 1
        if request.progress:
            request.progress(count, total)

    return tick
