"""Documents are what their templates and the records give: docs/render.py."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def render() -> ModuleType:
    spec = importlib.util.spec_from_file_location("render", ROOT / "docs/render.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_documents_are_what_templates_and_records_give(render: ModuleType) -> None:
    behind = [path.name for path, text in render.documents().items() if path.read_text(encoding="utf-8") != text]
    assert behind == [], "run python docs/render.py"


def test_a_name_that_is_not_there_is_an_error(render: ModuleType) -> None:
    template = render.environment().from_string('{{ claim("ntk/orders", "nothing").value }}')
    with pytest.raises(KeyError, match="ntk/orders has no claim 'nothing'; it has"):
        template.render()


def test_numbers_are_formatted(render: ModuleType) -> None:
    line = '{{ x | f(".2f") }}, {{ i | f(".1f") }}, {{ s | f(".0e") }}, {{ [x, x] | f(".1f") }}'
    text = render.environment().from_string(line).render(x=1.234, s=3e-5, i=render.Interval(1.0, 0.5, 1.5))
    assert text == "1.23, 1.0 [0.5, 1.5], 3e-5, 1.2, 1.2"
