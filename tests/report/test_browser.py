"""The report in a browser: figures are drawn, nothing is loaded, the gallery can be sorted and filtered."""

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
# Starting a browser takes seconds; `test_page.py`, `test_gallery.py` and `test_charts.py` test the page without one.
pytestmark = pytest.mark.slow

PHONE = {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next((path for path in map(shutil.which, BROWSERS) if path), None)
    if found is None:
        pytest.skip(f"no browser is installed: none of {', '.join(BROWSERS)} is on the PATH")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def page_of_images() -> Path:
    return write_page("images.html", runs.images())


@pytest.fixture(scope="module")
def page_of_all() -> Path:
    return write_page("all.html", runs.images(), runs.table(), runs.training(), runs.comparison())


def write_page(name: str, *paths: Path) -> Path:
    page = runs.home() / name
    done = s2e("report", *map(str, paths), "--out", str(page))
    assert done.exit_code == 0, done.output
    return page


@pytest.fixture
def opened(browser):
    """Opens a page and records its requests, console messages and errors."""
    contexts = []

    def opener(page: Path, **options: object) -> SimpleNamespace:
        context = browser.new_context(**options)
        contexts.append(context)
        tab = context.new_page()
        seen = SimpleNamespace(tab=tab, requests=[], messages=[])
        tab.on("request", lambda request: seen.requests.append(request.url))
        tab.on("console", lambda message: seen.messages.append(message.text))
        tab.on("pageerror", lambda error: seen.messages.append(str(error)))
        tab.goto(page.as_uri(), wait_until="load")
        return seen

    yield opener
    for context in contexts:
        context.close()


def ids(tab: object) -> list[str]:
    """IDs of the visible samples, in order."""
    return tab.locator("[data-gallery] tbody tr:visible td.id").all_inner_texts()


def test_every_figure_is_drawn_without_errors_and_requests(opened, page_of_all):
    seen = opened(page_of_all)
    assert seen.messages == []
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
    images = seen.tab.locator("td.image img").evaluate_all("all => all.map(image => image.naturalWidth)")
    assert images
    assert set(images) == {8}


def test_markup_of_users_is_shown_and_never_executed(opened, page_of_all):
    tab = opened(page_of_all).tab
    assert "evil" not in tab.title()
    assert tab.locator("script").count() == 1
    assert runs.MARKUP in tab.locator("td.cell").all_inner_texts()
    assert runs.CLASSES[1] in tab.locator(".matrix th").all_inner_texts()


def test_the_gallery_is_sorted_by_click_and_by_key(opened, page_of_images):
    tab = opened(page_of_images).tab
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


def test_the_gallery_is_filtered_by_class(opened, page_of_images):
    tab = opened(page_of_images).tab
    everything = len(ids(tab))
    select = tab.locator("select[data-filter=given]")
    select.select_option(runs.CLASSES[1])
    given = tab.locator("[data-gallery] tbody tr:visible td.given").all_inner_texts()
    assert set(given) == {runs.CLASSES[1]}
    assert 0 < len(given) < everything
    assert tab.locator("[data-status]").inner_text() == f"{len(given)} of {everything} shown"
    select.select_option("")
    assert len(ids(tab)) == everything


def test_all_controls_are_reached_by_the_tab_key(opened, page_of_images):
    tab = opened(page_of_images).tab
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    reached = set()
    while "BUTTONQuality" not in reached and len(reached) < 60:
        tab.keyboard.press("Tab")
        reached.add(tab.evaluate("document.activeElement.tagName + (document.activeElement.textContent || '').trim()"))
    assert {"BUTTONID", "BUTTONGiven", "BUTTONSuggested", "BUTTONQuality"} <= reached
    assert any(one.startswith("SELECT") for one in reached)
    assert any(one.startswith("SUMMARY") for one in reached)


def test_a_phone_never_scrolls_sideways(opened, page_of_all):
    tab = opened(page_of_all, viewport=PHONE).tab
    assert tab.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    tab.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert tab.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    wide = tab.locator(".samples:not(.images)").first.evaluate("one => one.scrollWidth")
    assert wide > PHONE["width"], "the wide table scrolls inside its section"


def contrast(tab: object, selector: str) -> float:
    """Contrast ratio of a line and the background, as defined by the WCAG."""
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


def test_light_and_dark_differ_and_print_is_light(opened, page_of_images):
    def background(tab: object) -> str:
        return tab.evaluate("getComputedStyle(document.body).backgroundColor")

    light, dark = (opened(page_of_images, color_scheme=scheme).tab for scheme in ("light", "dark"))
    assert background(light) != background(dark)
    for tab in (light, dark):
        for colour in ("--of-standard", "--of-coteaching", "--of-s2e"):
            assert contrast(tab, f'path.line[style*="{colour})"]') > 4
    dark.emulate_media(media="print")
    assert background(dark) == background(light)
    assert not dark.locator("[data-controls]").is_visible()
    assert dark.locator("figure svg[role=img]").first.is_visible()


def test_without_scripts_all_samples_are_shown_by_quality(opened, page_of_images):
    with_scripts = ids(opened(page_of_images).tab)
    tab = opened(page_of_images, java_script_enabled=False).tab
    assert ids(tab) == with_scripts
    assert tab.locator("[data-gallery] th button").first.is_disabled()
    assert not tab.locator("[data-controls]").is_visible()
    assert tab.locator("figure svg[role=img]").count() > 5
