"""Values from the texts and files of a user: widths, intervals, units, problems, and saved models."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gatelab.display import shorten
from gatelab.errors import GatelabError, unknown_name
from gatelab.feedforward.named import ALIASES, CATALOGUE, unit_name

if TYPE_CHECKING:
    from gatelab.arrays import Array

MANY = 100_000
_RANGE = re.compile(r"(0*[1-9][0-9]{0,8})(?::(0*[1-9][0-9]{0,8})(?::(0*[1-9][0-9]{0,8}))?)?")
_NAME = re.compile(r"[a-z][a-z0-9-]*")
_HOW = "give a range 1:50, a range with a step 50:200:10, or a list 4,8,16, of 1 or more"


def widths(text: str) -> list[int]:
    """The widths in a text, both ends included.

    >>> widths("50:200:50"), widths("1:3,10")
    ([50, 100, 150, 200], [1, 2, 3, 10])
    """
    numbers: set[int] = set()
    for part in text.replace(" ", "").split(","):
        match = _RANGE.fullmatch(part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise GatelabError(f"the widths {shorten(text, 60)!r} cannot be read at {shorten(part, 60)!r}; {_HOW}")
        new = range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1))
        # Counted first: a typing error must not fill the memory.
        if len(numbers) + len(new) > MANY:
            raise GatelabError(f"the widths {shorten(text, 60)!r} are more than {MANY}; give fewer, or a larger step")
        numbers.update(new)
    return sorted(numbers)


def interval(text: str | None) -> tuple[float, float] | None:
    """The interval in a text: A,B or A:B, and R for -R,R.

    >>> interval("0,3"), interval("-1:1"), interval("5"), interval(None)
    ((0.0, 3.0), (-1.0, 1.0), (-5.0, 5.0), None)
    """
    if text is None:
        return None
    try:
        ends = [float(end) for end in text.replace(":", ",").split(",")]
    except ValueError:
        ends = []
    if len(ends) == 1 and ends[0] > 0:
        ends.insert(0, -ends[0])
    if len(ends) != 2:
        raise GatelabError(
            f"the interval is {text[:60]!r}; write its ends with a comma between, such as 0,3, or 5 for -5,5"
        )
    return ends[0], ends[1]


def whole_numbers(text: str) -> tuple[int, ...]:
    """Numbers separated by commas; none if one of them is not a whole number from 1 to 10^9.

    >>> whole_numbers("60, 30"), whole_numbers("1,0")
    ((60, 30), ())
    """
    parts = split_names(text)
    if not all(part.isascii() and part.isdecimal() and 0 < int(part) <= 10**9 for part in parts):
        return ()
    return tuple(map(int, parts))


def settings(option: str, texts: list[str] | None, example: str, *, whole: bool = False) -> dict[str, Any]:
    """The values of an option NAME=NUMBER that may be repeated.

    >>> settings("--option", ["terms=4", "base = 0.5"], "degree=4")
    {'terms': 4, 'base': 0.5}
    """
    values: dict[str, Any] = {}
    for text in texts or ():
        name, _, value = (part.strip() for part in text.partition("="))
        kind = (float, int)[whole or value.isdecimal()]
        try:
            values[name] = kind(value)
        except ValueError:
            raise GatelabError(f"{option} is {text!r}; give NAME=NUMBER, such as {option} {example}") from None
    return values


def units(words: list[str] | None, options: list[str] | None) -> tuple[list[str], str | None]:
    """The units among the words of a command and after --unit, and the one word that is not a unit.

    >>> units(["glu", "friedman1"], None), units(["x*y"], ["glu,mlp"]), units(["glu,mlp", "gqu"], [])
    ((['glu'], 'friedman1'), (['glu', 'mlp'], 'x*y'), (['glu', 'mlp', 'gqu'], None))
    >>> units(["mlp", "gllu"], None)
    Traceback (most recent call last):
        ...
    gatelab.errors.GatelabError: no unit is called 'gllu'; did you mean 'glu' ...
    """
    names, others = [], []
    for word in words or ():
        parts = split_names(word)
        if not {part.lower() for part in parts}.isdisjoint({**CATALOGUE, **ALIASES}) or _near_unit(word):
            names += [part for part in parts if unit_name(part)]
        else:
            others.append(word)
    if len(others) > 1:
        raise GatelabError(
            f"{others[0]!r} and {others[1]!r} are both not units (see gatelab units); give at most one, in quotes"
            " if it has spaces, and intervals as A,B"
        )
    names += [part for text in options or () for part in split_names(text)]
    return names, (others or [None])[0]


def units_alone(words: list[str] | None, options: list[str] | None) -> list[str]:
    names, word = units(words, options)
    if word is not None:
        raise unknown_name("unit", word, CATALOGUE)
    return names


def one_unit(names: list[str], command: str, word: str | None = None) -> str:
    """The unit of a command that takes one; `word` is the word that is not a unit."""
    some_unit(names, command, word)
    if len(names) > 1:
        raise GatelabError(f"{', '.join(names)} are given and gatelab {command} takes one unit; leave the others out")
    return names[0]


def some_unit(names: list[str], command: str, word: str | None = None) -> None:
    """Refuse a command without a unit if it has no default."""
    from gatelab.data.named import CATALOGUE as PROBLEMS

    if not names and word not in PROBLEMS and _NAME.fullmatch(word or ""):
        raise unknown_name("unit", word or "", CATALOGUE)
    if not names:
        next_to = f" next to {word!r}" * bool(word)
        raise GatelabError(f"no unit is given{next_to}; name one, such as glu; 'gatelab {command} --help' for help")


def _near_unit(word: str) -> bool:
    """Whether a word is a mistyped unit rather than a problem."""
    from difflib import get_close_matches

    from gatelab.data.named import CATALOGUE as PROBLEMS

    name = word.strip().lower()
    if name in PROBLEMS or not _NAME.fullmatch(name):
        return False
    return bool(get_close_matches(name, (*CATALOGUE, *ALIASES)))


@contextmanager
def shown_warnings() -> Iterator[None]:
    """Warnings of the library as lines on stderr, without their place in the code."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        print(f"gatelab: {warning.message}", file=sys.stderr)


def column_names(text: str | None) -> list[str] | None:
    """Columns separated by commas; None if none are named."""
    return None if text is None else split_names(text)


def split_names(text: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in text.split(",")]


@dataclass(frozen=True, eq=False)
class Predictor:
    """A saved model: `predict` maps raw rows to raw targets, or to probabilities in the order of `classes`.

    Rows of a `tabular` model may hold text, dates and gaps.
    """

    name: str
    d_in: int
    d_out: int
    columns: tuple[str, ...]
    predict: Callable[[Any], Array]
    targets: tuple[str, ...] = ()
    classes: tuple[str | int | float | bool, ...] = ()
    tabular: bool = True


def read_predictor(path: Path) -> Predictor:
    from gatelab.saved import load
    from gatelab.solve import Fit

    saved = load(path)
    if isinstance(saved, Fit):
        name, d_out = f"{saved.unit} of width {saved.width}", len(saved.network.state_dict()["d"])
        return Predictor(name, saved.d_in, d_out, saved.columns, saved.predict, saved.targets, tabular=False)
    from gatelab.estimators import GatedClassifier, GatedRegressor

    if not isinstance(saved, GatedRegressor | GatedClassifier):
        raise GatelabError(f"{path} holds a {type(saved).__name__}, not a network; give a file of gatelab fit --out")
    name, columns = f"{saved.unit_} of width {saved.width_}", saved.columns_
    names, inputs = tuple(getattr(saved, "feature_names_in_", ())), saved.n_features_in_
    if isinstance(saved, GatedClassifier):
        classes = tuple(saved.classes_.tolist())
        return Predictor(f"classifier, {name} first", inputs, 1, names, saved.encoded_probabilities, classes=classes)

    def predict(rows: Any) -> Array:
        return saved.encoded_predictions(columns.encode(rows))[0]

    return Predictor(name, inputs, len(saved.frame_.y_mean), names, predict)


def read_tokenizer(path: Path | None) -> Any:
    """The tokenizer of Transformers in a folder; None without a folder."""
    if path is None:
        return None
    from gatelab.models.pretrained import import_transformers

    try:
        tokenizer = import_transformers().AutoTokenizer.from_pretrained(str(path), local_files_only=True)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise GatelabError(f"{path} does not hold a tokenizer ({reason}); give a folder with tokenizer.json") from None
    tokenizer.model_max_length = 10**12  # texts are cut into windows afterwards
    return tokenizer
