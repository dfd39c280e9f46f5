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

import gatelab as gl
from gatelab.report import build
from gatelab.report.builders import demo_page, scorecard_page
from gatelab.report.pages import Section, page, table
from gatelab.studies import demo, take_record

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
# The contrast of each text upon a map with the pixel of the map that lies in its middle.
CONTRASTS = """async selector => {
    const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
        .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const made = [];
    for (const image of document.querySelectorAll(`${selector} .plot .imagelayer image`)) {
        const picture = new Image();
        picture.src = image.href.baseVal;
        await picture.decode();
        const canvas = document.createElement('canvas');
        [canvas.width, canvas.height] = [picture.width, picture.height];
        const pen = canvas.getContext('2d', { willReadFrequently: true });
        pen.drawImage(picture, 0, 0);
        const area = image.getBoundingClientRect();
        for (const text of image.closest('.plot').querySelectorAll('.annotation-text')) {
            const box = text.getBoundingClientRect();
            const x = (box.left + box.width / 2 - area.left) / area.width;
            const y = (box.top + box.height / 2 - area.top) / area.height;
            if (x < 0 || y < 0 || x > 1 || y > 1) continue;
            const cell = pen.getImageData(Math.floor(x * picture.width), Math.floor(y * picture.height), 1, 1).data;
            const own = getComputedStyle(text).fill.match(/\\d+/g).map(Number);
            const [low, high] = [light(cell), light(own)].sort((p, q) => p - q);
            made.push((high + 0.05) / (low + 0.05));
        }
    }
    return made;
}"""
# Where a point of a series lies in the window.
PLACE = """([selector, group, point]) => {
    const plot = document.querySelector(selector), box = plot.getBoundingClientRect();
    const series = plot.data.find(t => t.meta?.includes(group) && t.mode?.includes('markers'));
    const [x, y] = ['x', 'y'].map(name => {
        const axis = plot._fullLayout[`${name}axis`];
        return box[name] + axis._offset + axis.d2p(series[name][point]);
    });
    return { x, y };
}"""
HOVER = ".hoverlayer .hovertext tspan.line"
LABEL = f"document.querySelector('{FIGURE} .plot .xtick text')"


def show(page: Any, figure: str = FIGURE) -> Any:
    """Scroll to a figure, wait until all its panels are drawn, and hand back the first one."""
    page.locator(figure).scroll_into_view_if_needed()
    page.wait_for_function(
        """figure => {
            const plots = [...document.querySelectorAll(`${figure} .plot:not(.picture)`)];
            const next = plots.find(plot => !plot.data);
            if (next) next.scrollIntoView();
            return plots.length && !next;
        }""",
        arg=figure,
    )
    first = page.locator(f"{figure} .plot").first
    first.scroll_into_view_if_needed()
    return first


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
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, accept_downloads=True
        )
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


def test_charts_are_drawn_when_they_come_into_view(visit: Any) -> None:
    page = visit()
    drawn = "[...document.querySelectorAll('.plot')].map(plot => Boolean(plot.data))"
    assert not all(page.evaluate(drawn))
    for figure in (FIGURE, "#ntk-fig4-figure", "#linearize-table1-figure"):
        show(page, figure)
    assert all(page.evaluate(drawn))


def test_pointing_at_a_place_shows_series_value_and_interval(visit: Any) -> None:
    page = visit()
    show(page)
    hover = page.locator(f"{FIGURE} {HOVER}")
    assert hover.count() == 0
    place = page.evaluate(PLACE, [f"{FIGURE} .plot", 1, 1])  # the second square of the glu: n = 4
    page.mouse.move(place["x"] + 1, place["y"])
    hover.first.wait_for()
    assert hover.all_text_contents() == ["glu", "neurons n: 4", "test RMSE: 0.01563 [0.01563, 0.02344]"]
    page.mouse.move(5, 5)
    hover.first.wait_for(state="detached")


def test_arrow_keys_go_from_point_to_point_and_are_said_aloud(visit: Any) -> None:
    page = visit()
    plot = show(page)
    plot.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.locator("#said").inner_text() == "mlp, neurons n: 4, test RMSE: 0.0625 [0.0625, 0.09375]"
    page.locator(f"{FIGURE} {HOVER}").first.wait_for()
    page.keyboard.press("Escape")
    page.locator(f"{FIGURE} {HOVER}").first.wait_for(state="detached")


@pytest.mark.slow
def test_keys_zoom_and_all_is_shown_again(visit: Any) -> None:
    page = visit()
    plot = show(page)
    ends = f"document.querySelector('{FIGURE} .plot')._fullLayout.xaxis.range"
    marks = f"document.querySelector('{FIGURE} .plot').layout.xaxis.ticktext"
    whole, texts = page.evaluate(ends), page.evaluate(marks)
    button = page.locator(f"{FIGURE} button[data-act='reset']")
    assert button.is_hidden()
    plot.focus()
    for _ in range(3):
        page.keyboard.press("+")
    low, high = page.evaluate(ends)
    assert high - low == pytest.approx((whole[1] - whole[0]) * 0.7**3)
    assert page.evaluate(marks) != texts  # a logarithmic axis has marks of its own at each size
    button.click()
    button.wait_for(state="hidden")
    assert page.evaluate(ends) == pytest.approx(whole)
    assert page.evaluate(marks) == texts


@pytest.mark.slow
def test_the_legend_hides_a_unit_in_every_panel_and_shows_it_again(visit: Any) -> None:
    page = visit()
    plot = show(page)
    button = page.locator(f"{FIGURE} .legend button", has_text="glu").first
    series = """figure => [...document.querySelectorAll(`${figure} .plot`)].flatMap(plot => plot.data)
        .filter(t => t.meta.includes(1) && t.visible !== false).length"""
    before = page.evaluate(series, FIGURE)
    assert before >= 4
    button.click()
    assert page.evaluate(series, FIGURE) == 0
    assert page.locator(f"{FIGURE} button[data-group='1'][aria-pressed='false']").count() == 2
    plot.focus()
    page.keyboard.press("End")
    assert page.locator("#said").inner_text().startswith("mlp")
    button.click()
    assert page.evaluate(series, FIGURE) == before


@pytest.mark.slow
def test_the_switch_shows_panels_against_n_or_p_or_both(visit: Any) -> None:
    page = visit()
    labels = page.locator(f"{FIGURE} .plot .xtitle")
    show(page)
    assert labels.all_text_contents() == ["neurons n", "parameters P"]
    for view, expected in (("P", ["parameters P"]), ("n", ["neurons n"]), ("both", ["neurons n", "parameters P"])):
        page.locator(f"{FIGURE} button[data-view='{view}']").click()
        show(page)
        assert labels.all_text_contents() == expected
        assert page.locator(f"{FIGURE} button[data-view='{view}']").get_attribute("aria-pressed") == "true"
    assert page.locator("#ntk-fig4-figure .switch").count() == 0


@pytest.mark.slow
def test_a_cell_of_a_heat_map_says_its_value(visit: Any) -> None:
    page = visit()
    show(page, "#ntk-fig4-figure")
    box = page.locator("#ntk-fig4-figure .imagelayer image").bounding_box()
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 0.9 * box["height"])  # column 1 of row 3
    hover = page.locator(f"#ntk-fig4-figure {HOVER}")
    hover.first.wait_for()
    assert hover.all_text_contents() == ["sample j: 1", "sample i: 3", "value: 13"]


@pytest.mark.slow
def test_the_values_of_a_figure_are_a_table_too(visit: Any) -> None:
    page = visit()
    page.locator(f"{FIGURE} details.values summary").click()
    page.locator(f"{FIGURE} .values td").first.wait_for()
    rows = [row.inner_text().split("\t") for row in page.locator(f"{FIGURE} .values tr").all()]
    assert rows[0] == ["panel", "series", "x", "y", "low", "high"]
    assert ["test RMSE against neurons n", "glu", "4", "0.01563", "0.015625", "0.0234375"] in rows


@pytest.mark.slow
def test_the_theme_goes_round_is_remembered_and_redraws(visit: Any) -> None:
    page = visit(theme="light")
    background = "getComputedStyle(document.body).backgroundColor"
    stroke = f"getComputedStyle({LABEL}).fill"
    show(page)
    light, ink = page.evaluate(background), page.evaluate(stroke)
    button = page.locator("#theme")
    for expected in ("Theme: light", "Theme: dark"):
        button.click()
        assert button.inner_text() == expected
    assert page.evaluate(background) != light
    show(page)
    assert page.evaluate(stroke) != ink
    page.reload()
    assert button.inner_text() == "Theme: dark"
    assert page.evaluate(background) != light
    button.click()
    assert (button.inner_text(), page.evaluate(background)) == ("Theme: automatic", light)


@pytest.mark.slow
def test_the_theme_works_where_storage_is_denied(visit: Any) -> None:
    denied = (
        "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('no', 'SecurityError'); } })"
    )
    page = visit(script=denied)
    page.locator("#theme").click()
    page.locator("#theme").click()
    assert page.locator("#theme").inner_text() == "Theme: dark"
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


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


@pytest.mark.slow
def test_without_scripts_figures_are_pictures(browser: Any, recorded: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(recorded)
    picture = page.locator("#linearize-transformer-figure noscript img")
    assert picture.bounding_box()["width"] > 600
    assert picture.get_attribute("alt").startswith("Feed-forward blocks")
    context.close()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of two committed records: one with a finding, one with a heat map that has numbers in its cells."""
    out = tmp_path_factory.mktemp("recorded")
    for name in ("ntk/fig6", "linearize/transformer"):
        take_record(name, out)
    return build(out, ()).as_uri()


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1400])
def test_the_first_screen_shows_a_finding_with_its_figure(visit: Any, recorded: str, width: int) -> None:
    page = visit(width=width, theme="dark", where=recorded)
    card = page.locator(".finding").first
    box = card.locator("svg.sketch").bounding_box()
    assert box["y"] + box["height"] < 900
    assert card.locator("p").first.bounding_box()["y"] < 900
    overlaps = page.evaluate(OVERLAPS, ".sketch")
    assert overlaps == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    card.get_by_role("link").click()
    assert page.evaluate("location.hash") == "#ntk-fig6"


@pytest.mark.slow
@pytest.mark.parametrize(("width", "theme"), [(1400, "light"), (1400, "dark"), (800, "light")])
def test_numbers_on_a_heat_map_can_be_read(visit: Any, recorded: str, width: int, theme: str) -> None:
    """Contrast of every number with the pixels of its own cell, 4.5 is WCAG's level AA."""
    page = visit(width=width, theme=theme, where=recorded)
    show(page, "#linearize-transformer-figure")
    contrasts = page.evaluate(CONTRASTS, "#linearize-transformer-figure")
    assert len(contrasts) >= 126
    assert min(contrasts) >= 4.5
    assert page.evaluate(OVERLAPS, "#linearize-transformer-figure .plot") == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [1400, 1900])
def test_figures_use_the_width_of_the_page(visit: Any, recorded: str, width: int) -> None:
    page = visit(width=width, where=recorded)
    figure = page.locator("#linearize-transformer-figure")
    assert figure.bounding_box()["width"] > 0.75 * width - 20
    lefts = "f => [...f.querySelectorAll('.panel')].map(p => [p.style.gridRow, p.getBoundingClientRect().left])"
    rows = figure.evaluate(lefts)
    assert [len({left for row, left in rows if row == name}) for name in dict.fromkeys(row for row, _ in rows)] == [
        3,
        2,
    ]


@pytest.mark.slow
def test_downloads_are_the_numbers_and_the_view(visit: Any, tmp_path: Path) -> None:
    page = visit()

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
    page.locator(f"{FIGURE} button[data-view='P']").click()
    page.locator(f"{FIGURE} .legend button", has_text="mlp").first.click()
    name, svg = saved(f"{FIGURE} button[data-act='svg']")
    assert name == "scaling-fig2.svg"
    text = svg.decode()
    assert "parameters P" in text
    assert "neurons n" not in text
    assert "glu: slope" in text
    assert "mlp: slope" not in text
    name, png = saved(f"{FIGURE} button[data-act='png']")
    image = Image.open(BytesIO(png)).convert("RGB")
    assert name == "scaling-fig2.png"
    assert (213, 94, 0) in {colour for _, colour in image.getcolors(1 << 24)}  # the glu is drawn


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
def test_the_command_can_be_copied(visit: Any) -> None:
    page = visit()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#ntk-fig4 .copy").click()
    playwright.expect(page.locator("#ntk-fig4 .copy")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "gatelab reproduce ntk/fig4"


def test_hostile_text_does_nothing(visit: Any) -> None:
    page = visit()
    page.wait_for_timeout(100)
    assert page.evaluate("window.broken") is None
    assert page.locator("img[src='x']").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(visit: Any, theme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = visit(theme=theme)
    for figure in (FIGURE, "#ntk-fig4-figure", "#linearize-table1-figure"):
        show(page, figure)
    # All but the table of 700 rows, one like the other, which would take most of the time.
    folded = "details:not(#linearize-table1 *)"
    page.evaluate("folded => document.querySelectorAll(folded).forEach(d => { d.open = true; })", folded)
    found = axe.Axe().run(page).response["violations"]
    assert [(v["id"], [n["html"][:200] for n in v["nodes"][:3]]) for v in found] == []


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_among_findings(visit: Any, recorded: str, theme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = visit(theme=theme, where=recorded)
    page.evaluate("document.querySelectorAll('details.fold').forEach(d => { d.open = true; })")
    found = axe.Axe().run(page).response["violations"]
    assert [(v["id"], [n["html"][:200] for n in v["nodes"][:3]]) for v in found] == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 800, 1400])
def test_nothing_scrolls_sideways(visit: Any, width: int) -> None:
    page = visit(width=width)
    for figure in (FIGURE, "#ntk-fig4-figure", "#linearize-table1-figure"):
        show(page, figure)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    beyond = """() => [...document.querySelectorAll('.plot')].filter(
        s => s.getBoundingClientRect().right > document.documentElement.clientWidth).length"""
    assert page.evaluate(beyond) == 0


@pytest.fixture(scope="module")
def other_pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The pages of a small demonstration and of a small comparison."""
    out = tmp_path_factory.mktemp("pages")
    few = demo(out, widths=(1, 2, 4), jobs=1)
    card = gl.compare(["mlp", "glu"], "sin4x", budget=30, seeds=1, rows=200)
    pages = {"demo": demo_page(few), "scorecard": scorecard_page(card)}
    for name, text in pages.items():
        (out / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: (out / f"{name}.html").as_uri() for name in pages}


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 800, 1400])
@pytest.mark.parametrize("name", ["demo", "scorecard"])
def test_the_other_pages_are_drawn_and_fit(
    visit: Any, other_pages: dict[str, str], name: str, width: int, theme: str
) -> None:
    page = visit(width=width, theme=theme, where=other_pages[name])
    figures = page.evaluate("[...document.querySelectorAll('.chart[id]')].map(f => '#' + f.id)")
    assert figures
    for figure in figures:
        show(page, figure)
        assert page.evaluate(OVERLAPS, figure) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_panels_stack_on_a_phone_and_stand_side_by_side_at_a_desk(visit: Any) -> None:
    page = visit(width=1400)
    places = f"() => [...document.querySelectorAll('{FIGURE} .panel')].map(p => p.getBoundingClientRect().left)"
    assert len(set(page.evaluate(places))) == 2
    page.set_viewport_size({"width": 400, "height": 900})
    page.wait_for_function(f"new Set(({places})()).size === 1")


def test_a_page_of_one_section_has_the_whole_width(visit: Any, tmp_path: Path) -> None:
    """Beside the sections of longer pages stand their contents; where there are none, nothing keeps their place."""
    lone = tmp_path / "lone.html"
    lone.write_text(page("One", "Alone.", [Section("only", "Only", body="<p>here</p>")]))
    width = "document.querySelector('.sections').offsetWidth"
    assert visit(width=1300, where=lone.as_uri()).evaluate(width) > 1000


def test_a_long_label_on_a_phone_takes_two_lines_and_pushes_the_next_one_down(visit: Any, tmp_path: Path) -> None:
    body = table(("unit", "over the limit", "test RMSE"), [("glu", "0.35", "9.2e-04")], right=(1, 2))
    phone = tmp_path / "phone.html"
    phone.write_text(page("Labels", "", [Section("only", "Only", body=body)]))
    heights = "[...document.querySelectorAll('.cards td[data-label]')].map(cell => cell.offsetHeight)"
    long, short = visit(width=390, where=phone.as_uri()).evaluate(heights)
    assert long > 1.6 * short


@pytest.mark.slow
def test_texts_in_a_figure_do_not_overlap(visit: Any) -> None:
    for width in (400, 800, 1400):
        page = visit(width=width)
        for figure in (FIGURE, "#ntk-fig4-figure", "#linearize-table1-figure"):
            show(page, figure)
        assert page.evaluate(OVERLAPS, ".plot") == []


@pytest.mark.slow
def test_on_paper_it_is_light_and_whole(visit: Any) -> None:
    page = visit(theme="dark")
    colour = f"getComputedStyle({LABEL}).fill"
    show(page)
    dark = page.evaluate(colour)
    assert page.pdf()[:4] == b"%PDF"
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("#theme").is_hidden()
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(colour) != dark
    assert page.evaluate("[...document.querySelectorAll('.plot')].every(plot => plot.data)")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    show(page)
    assert page.evaluate(colour) == dark
