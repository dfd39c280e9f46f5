"""Pages that are executed: their blocks in order, in one namespace and one folder.

    ```python    what it prints, and the value of its last line, as in a notebook
    ```sh        a command a line; so are indented lines that begin with `gatelab`
    ```text      right after one of these: what it must have said

Numbers agree if they differ by no more than one unit of the last digit that the page shows, and "..." stands for
anything. Commands that set up or leave the process (SET_UP) are not run here; `test_docs` holds them against the
files that they name.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from gatelab.cli import app

SET_UP = ("git", "cd", "pip", "make", "python")
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?")


@dataclass(frozen=True)
class Block:
    """A block of a page: its language, its lines, where it begins, and what the page says that it prints."""

    kind: str
    text: str
    line: int
    says: str | None = None


def blocks(page: str) -> list[Block]:
    """The blocks of a page that are executed, each with the text block that follows it at once.

    >>> [(b.kind, b.says) for b in blocks("```python\\n1 + 1\\n```\\n\\n```text\\n2\\n```\\n")]
    [('python', '2\\n')]
    """
    found: list[Block] = []
    lines = page.splitlines()
    at, may_say = 0, False
    while at < len(lines):
        fence = re.fullmatch(r"```(\w*)", lines[at])
        if fence:
            end = lines.index("```", at + 1)
            body = "\n".join(lines[at + 1 : end]) + "\n"
            if fence[1] in ("python", "sh"):
                found.append(Block(fence[1], body, at + 2))
            elif fence[1] == "text" and may_say:
                found[-1] = Block(found[-1].kind, found[-1].text, found[-1].line, body)
            may_say = fence[1] in ("python", "sh")
            at = end
        elif lines[at].startswith("    gatelab "):
            found.append(Block("sh", lines[at].strip() + "\n", at + 1))
            may_say = True
        elif lines[at].strip():
            may_say = False
        at += 1
    return found


def commands(block: Block) -> list[list[str]]:
    """The words of each command of a block; a backslash at the end of a line carries on."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def run_page(path: Path, folder: Path, names: dict[str, Any] | None = None) -> Iterator[tuple[Block, str]]:
    """Execute a page in `folder`; each block with what it printed. The first that raises ends it."""
    names = {"__name__": "__page__"} if names is None else names
    with contextlib.chdir(folder):
        for block in blocks(path.read_text(encoding="utf-8")):
            where = f"{path.name}, line {block.line}"
            yield block, _python(block, names, where) if block.kind == "python" else _shell(block, where)


def _python(block: Block, names: dict[str, Any], where: str) -> str:
    tree = ast.parse(block.text, where)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(tree, where, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), where, "eval"), names)
            if value is not None:
                print(value if isinstance(value, str) else repr(value))
    return said.getvalue()


def _shell(block: Block, where: str) -> str:
    said = ""
    for words in commands(block):
        if words[0] in SET_UP:
            continue
        assert words[0] == "gatelab", f"{where}: {words[0]} is not run by the tests"
        said += run_command(words)
    return said


def run_command(words: list[str]) -> str:
    """What `gatelab ...` prints; it must end well."""
    result = CliRunner().invoke(app, words[1:])
    assert result.exit_code == 0, f"{shlex.join(words)}\n{result.output}"
    return result.output


def differences(says: str, said: str) -> str:
    """What is wrong with what was said, or nothing.

    >>> differences("RMSE 1.07e-05 at ...", "RMSE 1.0684e-05 at width 50"), differences("0.52", "0.5441")
    ('', '0.52 on the page, 0.5441 now')
    """
    numbers = _NUMBER.findall(says)
    pattern = r"\s+".join(_as_pattern(word) for word in says.split())
    match = re.fullmatch(rf"\s*{pattern}\s*", said, re.S)
    if match is None:
        return f"the page says\n{says}\nand it is\n{said}"
    found = [group for group in match.groups() if group is not None]
    wrong = [f"{a} on the page, {b} now" for a, b in zip(numbers, found, strict=True) if not agree(a, b)]
    return "; ".join(wrong)


def _as_pattern(word: str) -> str:
    parts, at = [], 0
    for number in _NUMBER.finditer(word):
        parts += [_plain(word[at : number.start()]), rf"({_NUMBER.pattern})"]
        at = number.end()
    return "".join([*parts, _plain(word[at:])])


def _plain(text: str) -> str:
    return ".*?".join(map(re.escape, text.split("...")))


def agree(shown: str, now: str) -> bool:
    """Whether two numbers differ by one unit of the last digit of the first, or less; whole numbers are exact.

    >>> agree("0.107", "0.1064"), agree("1.07e-05", "1.09e-05"), agree("12", "13")
    (True, False, False)
    """
    mantissa, _, power = shown.lower().partition("e")
    if "." not in mantissa and not power:
        return float(shown) == float(now)
    unit = 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))
    return abs(float(shown) - float(now)) <= 1.0000001 * unit
