"""The letters that stand for bytes in GPT-2's files."""

from __future__ import annotations


def letters() -> list[str]:
    """The letter of each byte: itself where it can be seen, else one from 256 on."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = iter(range(256, 512))
    return [chr(b if b in visible else next(hidden)) for b in range(256)]
