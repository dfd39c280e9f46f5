"""What all tests share."""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def ctrl_c_is_heard() -> Iterator[None]:
    """A shell starts background jobs with Ctrl-C ignored, and gatelab ignores it once it has been pressed.

    Whoever runs next in the same process would then wait for ever for an interrupt that is never heard.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, signal.default_int_handler)
