"""The report opened in a browser: everything is drawn, nothing is asked of the outside, the gallery can be sorted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import report_runs as runs
from command_line import s2e

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]
PHONE = {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    playwright = pytest.importorskip("playwright.sync_api", reason="the playwright package is not installed")
    found = next((path for path in map(shutil.which, BROWSERS) if path), None)
    if found is None:
        pytest.skip(f"no browser is installed: none of {', '.join(BROWSERS)} is on the PATH")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def page_of_pictures() -> Path:
    return written("pictures.html", runs.pictures())


@pytest.fixture(scope="module")
def page_of_all() -> Path:
    return written("all.html", runs.pictures(), runs.table(), runs.trained(), runs.compared())


def written(name: str, *paths: Path) -> Path:
    page = runs.home() / name
    done = s2e("report", *map(str, paths), "--out", str(page))
    assert done.exit_code == 0, done.output
    return page


@pytest.fixture
def opened(browser):
    """Opens a page and notes all that it asks for and complains about."""
    contexts = []

    def opener(page: Path, **options: object) -> SimpleNamespace:
        context = browser.new_context(**options)
        contexts.append(context)
        tab = context.new_page()
        seen = SimpleNamespace(tab=tab, requests=[], complaints=[])
        tab.on("request", lambda request: seen.requests.append(request.url))
        tab.on("console", lambda message: seen.complaints.append(message.text))
        tab.on("pageerror", lambda error: seen.complaints.append(str(error)))
        tab.goto(page.as_uri(), wait_until="load")
        return seen

    yield opener
    for context in contexts:
        context.close()


def ids(tab: object) -> list[str]:
    """IDs of the samples that are shown, in their order."""
    return tab.locator("[data-gallery] tbody tr:visible td.id").all_inner_texts()


def test_every_figure_is_drawn_without_a_complaint_and_without_a_request_to_the_outside(opened, page_of_all):
    seen = opened(page_of_all)
    assert seen.complaints == []
    assert [url for url in seen.requests if not url.startswith("data:")] == [page_of_all.as_uri()]
    charts = seen.tab.locator("figure svg[role=img]")
    assert charts.count() >= 20
    drawn = charts.evaluate_all(
        """all => all.map(chart => {
            const box = chart.getBoundingClientRect();
            const lines = Array.from(chart.querySelectorAll("path.line")).map(line => line.getTotalLength());
            return {wide: box.width, high: box.height, lines: lines, words: chart.getAttribute("aria-label")};
        })"""
    )
    for chart in drawn:
        assert chart["wide"] > 100
        assert chart["high"] > 100
        assert chart["lines"]
        assert min(chart["lines"]) > 0, chart["words"]
        assert "nan" not in chart["words"].lower()
    images = seen.tab.locator("td.picture img").evaluate_all("all => all.map(image => image.naturalWidth)")
    assert images
    assert set(images) == {8}


def test_what_users_write_is_shown_and_never_run(opened, page_of_all):
    tab = opened(page_of_all).tab
    assert "evil" not in tab.title()
    assert tab.locator("script").count() == 1
    assert runs.EVIL in tab.locator("td.cell").all_inner_texts()
    assert runs.CLASSES[1] in tab.locator(".matrix th").all_inner_texts()


def test_the_gallery_is_sorted_by_click_and_by_key(opened, page_of_pictures):
    tab = opened(page_of_pictures).tab
    by_quality = ids(tab)
    button = tab.locator("th[data-key=id] button")
    button.click()
    assert ids(tab) == sorted(by_quality, key=int) != by_quality
    assert tab.locator("th[aria-sort]").evaluate_all("all => all.map(head => [head.dataset.key, head.ariaSort])") == [
        ["id", "ascending"]
    ]
    button.click()
    assert ids(tab) == sorted(by_quality, key=int, reverse=True)
    assert tab.locator("th[data-key=id]").get_attribute("aria-sort") == "descending"
    tab.locator("th[data-key=quality] button").focus()
    tab.keyboard.press("Enter")
    assert ids(tab) == by_quality
    assert tab.locator("th[data-key=quality]").get_attribute("aria-sort") == "ascending"


def test_the_gallery_is_filtered_by_class(opened, page_of_pictures):
    tab = opened(page_of_pictures).tab
    everything = len(ids(tab))
    select = tab.locator("select[data-filter=given]")
    select.select_option(runs.CLASSES[1])
    given = tab.locator("[data-gallery] tbody tr:visible td.given").all_inner_texts()
    assert set(given) == {runs.CLASSES[1]}
    assert 0 < len(given) < everything
    assert tab.locator("[data-status]").inner_text() == f"{len(given)} of {everything} shown"
    select.select_option("")
    assert len(ids(tab)) == everything


def test_everything_that_can_be_used_is_reached_by_the_tab_key(opened, page_of_pictures):
    tab = opened(page_of_pictures).tab
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    reached = set()
    while "BUTTONQuality" not in reached and len(reached) < 60:
        tab.keyboard.press("Tab")
        reached.add(tab.evaluate("document.activeElement.tagName + (document.activeElement.textContent || '').trim()"))
    assert {"BUTTONID", "BUTTONGiven", "BUTTONSuggested", "BUTTONQuality"} <= reached
    assert any(one.startswith("SELECT") for one in reached)
    assert any(one.startswith("SUMMARY") for one in reached)


def test_a_phone_scrolls_down_and_never_sideways(opened, page_of_all):
    tab = opened(page_of_all, viewport=PHONE).tab
    assert tab.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    tab.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert tab.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    wide = tab.locator(".samples:not(.pictures)").first.evaluate("one => one.scrollWidth")
    assert wide > PHONE["width"], "the table of many columns scrolls inside its section"


def contrast(tab: object, selector: str) -> float:
    """Contrast between the colour of a line and the page's ground, as the accessibility guidelines compute it."""
    return tab.locator(selector).first.evaluate(
        """line => {
            const light = text => {
                const part = text.match(/[0-9.]+/g).slice(0, 3).map(x => x / 255);
                const linear = part.map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
                return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
            };
            const [a, b] = [getComputedStyle(line).stroke, getComputedStyle(document.body).backgroundColor].map(light);
            return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        }"""
    )


def test_light_and_dark_differ_and_print_is_light(opened, page_of_pictures):
    def ground(tab: object) -> str:
        return tab.evaluate("getComputedStyle(document.body).backgroundColor")

    light, dark = (opened(page_of_pictures, color_scheme=scheme).tab for scheme in ("light", "dark"))
    assert ground(light) != ground(dark)
    for tab in (light, dark):
        for colour in ("--of-standard", "--of-coteaching", "--of-s2e"):
            assert contrast(tab, f'path.line[style*="{colour})"]') > 4
    dark.emulate_media(media="print")
    assert ground(dark) == ground(light)
    assert not dark.locator("[data-controls]").is_visible()
    assert dark.locator("figure svg[role=img]").first.is_visible()


def test_without_scripts_everything_is_there_in_the_order_of_doubt(opened, page_of_pictures):
    with_scripts = ids(opened(page_of_pictures).tab)
    tab = opened(page_of_pictures, java_script_enabled=False).tab
    assert ids(tab) == with_scripts
    assert tab.locator("[data-gallery] th button").first.is_disabled()
    assert not tab.locator("[data-controls]").is_visible()
    assert tab.locator("figure svg[role=img]").count() > 5
