"""The report in headless Chromium: it works, asks nobody outside, and can be read by everybody."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from report_records import EVIL, ITEMS, write_records

from gatelab.report import build
from gatelab.studies import take_record

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'gatelab[browser]'")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed on this machine")
FIGURE = "#scaling-fig2-figure"
# Pairs of texts of one figure that lie upon each other.
OVERLAPS = """selector => [...document.querySelectorAll(selector)].flatMap(figure => {
    const texts = [...figure.querySelectorAll('text')].filter(t => t.textContent && t.getBoundingClientRect().width);
    const boxes = texts.map(t => [t.textContent, t.getBoundingClientRect()]);
    const meet = (p, q, length, start, free) =>
        p[start] < q[start] + q[length] - free && q[start] < p[start] + p[length] - free;
    return boxes.flatMap(([a, p], i) => boxes.slice(i + 1)
        .filter(([b, q]) => meet(p, q, 'width', 'x', 1) && meet(p, q, 'height', 'y', 3))
        .map(([b]) => `${a} on ${b}`));
})"""
FIGURES = (FIGURE, "#ntk-fig4-figure", "#linearize-table1-figure")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as tool:
        started = tool.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build(write_records(tmp_path_factory.mktemp("out")), ITEMS).as_uri()


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Any]:
    """Open the page; in the end nothing may have gone wrong and nobody outside may have been asked."""
    contexts, wrong = [], []

    def look(request: Any) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            wrong.append(f"request: {request.url}")

    def go(width: int = 1200, theme: str = "light", script: str = "", where: str = address) -> Any:
        size = {"width": width, "height": 900}
        context = browser.new_context(viewport=size, color_scheme=theme, accept_downloads=True)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda m: wrong.append(f"{m.type}: {m.text}") if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: wrong.append(f"exception: {e}"))
        page.on("request", look)
        if script:
            page.add_init_script(script)
        page.goto(where)
        return page

    yield go
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.mark.slow
def test_the_switch_shows_panels_against_n_or_p_or_both(visit: Any) -> None:
    page = visit()
    svg = page.locator(f"{FIGURE} svg")
    whole = svg.get_attribute("viewBox")
    boxes = {}
    for view in ("P", "n", ""):
        button = page.locator(f"{FIGURE} button[data-view='{view}']")
        button.click()
        assert button.get_attribute("aria-pressed") == "true"
        boxes[view] = svg.get_attribute("viewBox")
        text = page.get_by_text("parameters P", exact=True).first.bounding_box()
        inside = svg.bounding_box()["x"] <= text["x"] <= svg.bounding_box()["x"] + svg.bounding_box()["width"]
        assert inside == (view != "n")
    assert boxes[""] == whole and len(set(boxes.values())) == 3
    assert page.locator("#ntk-fig4-figure .switch").count() == 0


@pytest.mark.slow
def test_the_theme_goes_round_is_remembered_and_colors_figures(visit: Any) -> None:
    page = visit(theme="light")
    background = "getComputedStyle(document.body).backgroundColor"
    stroke = f"getComputedStyle(document.querySelector('{FIGURE} text')).fill"
    light, ink = page.evaluate(background), page.evaluate(stroke)
    button = page.locator("#theme")
    for expected in ("Theme: light", "Theme: dark"):
        button.click()
        assert button.inner_text() == expected
    assert page.evaluate(background) != light
    assert page.evaluate(stroke) != ink
    page.reload()
    assert button.inner_text() == "Theme: dark"
    assert page.evaluate(background) != light
    button.click()
    assert (button.inner_text(), page.evaluate(background)) == ("Theme: automatic", light)
    # Where storage is denied, it lasts for the visit.
    denied = "{ get() { throw new DOMException('no', 'SecurityError'); } }"
    page = visit(script=f"Object.defineProperty(window, 'localStorage', {denied})")
    for _ in range(2):
        page.locator("#theme").click()
    assert page.locator("#theme").inner_text() == "Theme: dark"


def test_filters_show_claims_of_one_verdict_and_paper(visit: Any) -> None:
    page = visit()
    rows = page.locator("#all-claims tbody tr[data-verdict]:visible")
    assert rows.count() == 6
    page.locator("button[data-value='differs']").click()
    assert rows.count() == 1
    assert page.locator("#all-claims tr[data-heading]:visible").count() == 1
    assert page.locator("[data-count]").inner_text() == "1 of 6 claims"
    page.locator("button[data-value='differs']").click()
    page.locator("button[data-key='paper'][data-value='scaling']").click()
    assert rows.count() == 2


@pytest.mark.slow
def test_the_search_goes_with_the_filters_and_is_said_aloud(visit: Any) -> None:
    page = visit()
    rows = page.locator("#all-claims tbody tr[data-verdict]:visible")
    field = page.get_by_label("Search the claims")
    field.focus()
    page.keyboard.type("SLOPE glu")
    assert rows.count() == 3
    assert page.locator("#said").inner_text() == "3 of 6 claims"
    field.fill("slope ntk/fig4")  # the name of the study stands in the row above
    assert rows.count() == 1
    page.locator("button[data-value='reproduced']").click()
    assert rows.count() == 0
    assert page.locator("[data-count]").inner_text() == "0 of 6 claims"
    page.get_by_role("button", name="Show all").press("Enter")
    assert rows.count() == 6
    assert page.locator("button[aria-pressed='true'][data-key]").count() == 0
    assert page.evaluate("document.activeElement.id") == "all-claims-search"


def test_without_scripts_the_table_is_plain_and_whole(browser: Any, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator("#all-claims tbody tr[data-verdict]:visible").count() == 6
    assert page.get_by_label("Search the claims").is_hidden()
    assert page.locator("button[data-key]:visible").count() == 0
    page.locator("#scaling-fig2 details.numbers summary").click()
    assert page.locator("#scaling-fig2 .csv").inner_text().splitlines()[:2] == ["n,rmse,unit", f"2,0.1,{EVIL}"]
    context.close()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a committed record with a finding."""
    out = tmp_path_factory.mktemp("recorded")
    take_record("ntk/fig6", out)
    return build(out, ()).as_uri()


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1400])
def test_the_first_screen_shows_a_finding_with_its_figure(visit: Any, recorded: str, width: int) -> None:
    page = visit(width=width, theme="dark", where=recorded)
    card = page.locator(".finding").first
    box = card.locator(".sketch svg").bounding_box()
    assert box["y"] + box["height"] < 900
    assert card.locator("p").first.bounding_box()["y"] < 900
    overlaps = page.evaluate(OVERLAPS, ".sketch")
    assert overlaps == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    card.get_by_role("link").click()
    assert page.evaluate("location.hash") == "#ntk-fig6"


@pytest.mark.slow
def test_downloads_are_the_numbers_and_the_view_and_the_command_is_copied(visit: Any, tmp_path: Path) -> None:
    page = visit(theme="dark")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#ntk-fig4 .copy").click()
    playwright.expect(page.locator("#ntk-fig4 .copy")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "gatelab reproduce ntk/fig4"

    def saved(selector: str) -> tuple[str, bytes]:
        with page.expect_download() as waiting:
            page.locator(selector).click()
        path = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(path)
        return path.name, path.read_bytes()

    name, csv = saved("#scaling-fig2 .table-row button")
    assert name == "scaling-fig2-errors.csv"
    assert csv.decode().splitlines()[0] == "n,rmse,unit"
    assert EVIL in csv.decode()
    name, svg = saved(f"{FIGURE} [aria-label='Download this view as SVG']")
    text = svg.decode()
    assert name == "scaling-fig2.svg" and "parameters P" in text and "glu: slope" in text and "var(" not in text
    name, png = saved(f"{FIGURE} [aria-label='Download this view as PNG']")
    image = Image.open(BytesIO(png)).convert("RGB")
    colors = {color for _, color in image.getcolors(1 << 24)}
    assert name == "scaling-fig2.png" and (213, 94, 0) in colors and (255, 255, 255) in colors  # the glu, upon paper


@pytest.mark.slow
def test_tables_open_as_tables_and_long_ones_say_so(visit: Any) -> None:
    page = visit()
    page.locator("#scaling-fig2 details.numbers summary").click()
    page.locator("#scaling-fig2 .numbers td").first.wait_for()
    cells = page.locator("#scaling-fig2 .numbers td").all_inner_texts()
    assert cells == ["2", "0.1", EVIL, "4", "0.333333", EVIL]
    page.locator("#linearize-table1 details.numbers summary").click()
    page.locator("#linearize-table1 .numbers td").first.wait_for()
    assert page.locator("#linearize-table1 .numbers tbody tr").count() == 500
    assert "first 500 of 700 rows" in page.locator("#linearize-table1 .numbers .sheet").inner_text()


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("findings", [False, True])
def test_axe_finds_nothing(visit: Any, address: str, recorded: str, theme: str, findings: bool) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = visit(theme=theme, where=recorded if findings else address)
    # Without the table of 700 rows, which takes most of the time.
    folded = "details.fold" if findings else "details:not(#linearize-table1 *)"
    page.evaluate("folded => document.querySelectorAll(folded).forEach(d => { d.open = true; })", folded)
    found = axe.Axe().run(page).response["violations"]
    assert [(v["id"], [n["html"][:200] for n in v["nodes"][:3]]) for v in found] == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 800, 1400])
def test_nothing_scrolls_sideways(visit: Any, width: int) -> None:
    page = visit(width=width)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # A figure that is wider than its frame scrolls in it, and is not made too small to read.
    shares = """() => [...document.querySelectorAll('.views svg')].map(
        s => s.getBoundingClientRect().width / s.viewBox.baseVal.width)"""
    assert min(page.evaluate(shares)) >= 0.79
    for figure in FIGURES if width == 1400 else ():
        assert page.evaluate(OVERLAPS, f"{figure} svg") == []
