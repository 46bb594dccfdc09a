"""The report in a browser: figures are drawn, nothing is loaded, labels are sorted, filtered and reviewed."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import report_runs as runs
from command_line import s2e
from s2e.audit.run_audit import AuditedRun, audit_run
from s2e.report.gallery import gallery
from s2e.runs.directory import Run

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
PAGE_OF_IMAGES = 30
"""Samples shown at first."""

TEXT_CONTRAST = """one => {
    const parts = text => text.match(/[0-9.]+/g).map(Number);
    const over = (top, below) => {
        const alpha = top.length > 3 ? top[3] : 1;
        return [0, 1, 2].map(i => alpha * top[i] + (1 - alpha) * below[i]);
    };
    const layers = [];
    for (let each = one; each; each = each.parentElement) layers.push(parts(getComputedStyle(each).backgroundColor));
    const ground = layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
    const light = colour => {
        const linear = colour.map(x => x / 255).map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    };
    const [a, b] = [over(parts(getComputedStyle(one).color), ground), ground].map(light);
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}"""
"""Contrast ratio of a text and what is behind it, as defined by the WCAG."""


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
    """IDs of the visible samples of the first run, in order."""
    visible = tab.locator("ol.samples").first.locator("li.sample:visible")
    return visible.evaluate_all("all => all.map(card => card.dataset.name)")


def all_ids(tab: object) -> list[str]:
    """IDs of the visible samples after all pages are shown."""
    while tab.locator("[data-more]").first.is_visible():
        tab.locator("[data-more]").first.click()
    return ids(tab)


def status(tab: object) -> str:
    return tab.locator("[data-status]").first.inner_text()


def decisions(tab: object) -> list[list[str]]:
    """The rows of the downloaded decisions, without the header."""
    with tab.expect_download() as download:
        tab.locator("[data-download]").first.click()
    header, *rows = csv.reader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8"), newline=""))
    assert header == ["id", "row", "given_label", "decision", "label"]
    return rows


def test_every_figure_is_drawn_without_errors_and_requests(opened, page_of_all):
    seen = opened(page_of_all)
    assert seen.messages == []
    assert [url for url in seen.requests if not url.startswith("data:")] == [page_of_all.as_uri()], (
        "nothing else is loaded"
    )
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
    images = seen.tab.locator(".image img").evaluate_all("all => all.map(image => image.naturalWidth)")
    assert images
    assert set(images) == {8}


def test_markup_of_users_is_shown_and_never_executed(opened, page_of_all):
    tab = opened(page_of_all).tab
    assert "evil" not in tab.title()
    assert tab.locator("script").count() == 1
    assert runs.MARKUP in tab.locator(".cells dd").all_text_contents()
    assert runs.CLASSES[1] in tab.locator(".matrix th").all_inner_texts()


def test_labels_are_ordered_and_shown_in_pages(opened, page_of_images):
    tab = opened(page_of_images).tab
    assert len(ids(tab)) == PAGE_OF_IMAGES
    by_quality = all_ids(tab)
    order = tab.locator("[data-order]")
    order.select_option("id")
    assert len(ids(tab)) == PAGE_OF_IMAGES
    assert all_ids(tab) == sorted(by_quality, key=int) != by_quality
    order.select_option("quality")
    assert all_ids(tab) == by_quality
    tab.locator("[data-show]").select_option("worth")
    assert order.input_value() == "worth"
    shown = gallery(*opened_run(runs.images()), None, 60).samples
    by_worth = sorted((sample for sample in shown if sample.worth), key=lambda sample: sample.worth)
    assert all_ids(tab) == [sample.id for sample in by_worth]
    assert len(by_worth) <= 50


def opened_run(path: Path) -> tuple[Run, AuditedRun, dict[str, object]]:
    run = Run.open(path)
    return run, audit_run(run), run.read_json("config.json")


def test_labels_are_filtered_by_class(opened, page_of_images):
    tab = opened(page_of_images).tab
    everything = len(all_ids(tab))
    select = tab.locator("select[data-filter=given]")
    chosen = select.locator("option").evaluate_all("all => all.map(option => option.value)")[1]
    select.select_option(chosen)
    given = tab.locator("li.sample:visible").evaluate_all("all => all.map(card => card.dataset.classGiven)")
    assert set(given) == {chosen}
    assert chosen in runs.CLASSES
    assert 0 < len(given) < everything
    select.select_option("")
    assert len(all_ids(tab)) == everything


def test_marks_are_downloaded_and_kept(opened, page_of_images):
    seen = opened(page_of_images)
    tab = seen.tab
    assert tab.locator("[data-download]").is_disabled()
    first, second, third = (tab.locator("li.sample").nth(place) for place in range(3))
    first.get_by_role("button", name="Right").click()
    second.get_by_role("button", name="Wrong").click()
    third.get_by_role("button", name="Unsure").click()
    names, rows, given, other = (
        tab.locator("li.sample").evaluate_all(f"all => all.slice(0, 3).map(card => card.dataset.{key})")
        for key in ("name", "row", "classGiven", "alternative")
    )
    choice = second.get_by_role("combobox")
    assert choice.input_value() == other[1]
    assert set(choice.locator("option").all_inner_texts()) == {"choose the class …", *runs.CLASSES} - {given[1]}
    another = next(name for name in runs.CLASSES if name not in (given[1], other[1]))
    choice.select_option(another)
    expected = [
        [names[0], rows[0], given[0], "right", given[0]],
        [names[1], rows[1], given[1], "wrong", another],
        [names[2], rows[2], given[2], "unsure", ""],
    ]
    assert decisions(tab) == expected
    assert status(tab).split(" (")[0].endswith("decided: 1 right, 1 wrong, 1 unsure")
    tab.reload()
    assert decisions(tab) == expected
    assert tab.locator("li.sample").nth(1).get_by_role("combobox").input_value() == another
    pressed = tab.locator("[aria-pressed=true]").all_inner_texts()
    assert pressed == ["Right", "Wrong", "Unsure"]
    third.get_by_role("button", name="Unsure").click()
    assert decisions(tab) == expected[:2]
    tab.locator("[data-show]").select_option("open")
    assert not {names[0], names[1]} & set(all_ids(tab))
    tab.locator("[data-show]").select_option("done")
    assert ids(tab) == names[:2]
    tab.once("dialog", lambda dialog: dialog.accept())
    tab.locator("[data-clear]").click()
    assert status(tab).startswith("0 of ")
    assert tab.evaluate("localStorage.length") == 0
    assert seen.messages == []


def test_labels_are_reviewed_by_keyboard(opened, page_of_images):
    tab = opened(page_of_images).tab
    names = ids(tab)
    tab.locator("[data-how] summary").focus()
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.dataset.name") == names[0]
    for key in ("r", "w", "ArrowDown", "u", "k", "c"):
        tab.keyboard.press(key)
    assert tab.evaluate("document.activeElement.tagName") == "SELECT"
    tab.keyboard.press("Escape")
    assert tab.evaluate("document.activeElement.dataset.name") == names[3]
    assert [(row[0], row[3]) for row in decisions(tab)] == [
        (names[0], "right"),
        (names[1], "wrong"),
        (names[3], "wrong"),
    ]
    tab.locator("li.sample").nth(3).focus()
    tab.keyboard.press("Delete")
    assert len(decisions(tab)) == 2
    tab.locator("li.sample:visible").last.focus()
    tab.keyboard.press("ArrowDown")
    assert len(ids(tab)) > PAGE_OF_IMAGES, "the next page is shown"


def test_a_search_takes_the_downloaded_decisions(opened, tmp_path):
    tab = opened(write_page("table.html", runs.table())).tab
    for place, key in enumerate("wrwwurww"):
        tab.locator("li.sample").nth(place).focus()
        tab.keyboard.press(key)
    with tab.expect_download() as download:
        tab.locator("[data-download]").click()
    assert download.value.suggested_filename == "reviewed-table.csv"
    download.value.save_as(tmp_path / "reviewed.csv")
    decided = {row[0]: row[4] for row in decisions(tab) if row[4]}
    command = ["search", str(runs.home() / "table.csv"), "--label", "kind", "--id", "name", *runs.SEARCH]
    done = s2e(*command, "--reviewed", str(tmp_path / "reviewed.csv"), "--out", str(tmp_path / "again"))
    assert done.exit_code == 0, done.output
    audited = audit_run(Run.open(tmp_path / "again"))
    reviewed = {audited.ids[index]: index for index in np.flatnonzero(audited.reviewed)}
    assert {name: audited.class_names[audited.labels[index]] for name, index in reviewed.items()} == decided
    assert (audited.audit.quality[list(reviewed.values())] == 1).all()


def test_a_browser_that_keeps_nothing_says_so_and_can_download(opened, page_of_images):
    seen = opened(page_of_images)
    seen.tab.evaluate("() => { Storage.prototype.setItem = () => { throw new DOMException('no'); }; }")
    seen.tab.locator("[data-how] summary").click()
    assert not seen.tab.locator("[data-not-kept]").is_visible()
    seen.tab.locator("li.sample").first.get_by_role("button", name="Right").click()
    assert seen.tab.locator("[data-not-kept]").is_visible()
    assert len(decisions(seen.tab)) == 1
    assert seen.messages == []


def test_decisions_that_were_tampered_with_are_ignored(opened, page_of_images):
    seen = opened(page_of_images)
    key = "'s2e-review-' + document.querySelector('[data-review]').dataset.review"
    for stored in (
        "garbage",
        "[1]",
        '{"0": null, "1": {"decision": "evil"}, "2": {"decision": "wrong", "label": "none"}}',
    ):
        seen.tab.evaluate(f"stored => localStorage.setItem({key}, stored)", stored)
        seen.tab.reload()
        assert status(seen.tab).startswith("0 of ")
    assert seen.messages == []


def test_decisions_fill_the_reliability_table(opened):
    tab = opened(write_page("table.html", runs.table())).tab
    table = tab.locator("[data-reliability]")
    assert not table.is_visible()
    for place in range(4):
        tab.locator("li.sample").nth(place).get_by_role("button", name="Wrong" if place else "Right").click()
    assert table.is_visible()
    counts = table.locator("tbody td:nth-child(2)").all_inner_texts()
    assert sum(map(int, counts)) == 4
    assert not tab.locator("[data-no-reliability]").is_visible()


def test_all_controls_are_reached_by_the_tab_key(opened, page_of_images):
    tab = opened(page_of_images).tab
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    reached = set()
    while not {"Right", "Wrong", "Unsure"} <= reached and len(reached) < 60:
        tab.keyboard.press("Tab")
        reached.add(
            tab.evaluate(
                """() => {
                    const one = document.activeElement;
                    return one.tagName === "SELECT" ? Object.keys(one.dataset)[0] : one.textContent.trim();
                }"""
            )
        )
    assert {"show", "order", "filter", "Right", "Wrong", "Unsure"} <= reached
    unnamed = tab.locator("button, select:visible, a, summary").evaluate_all(
        """all => all.filter(one => !one.hidden && !(one.textContent.trim() || one.getAttribute("aria-label")))
                     .map(one => one.outerHTML)"""
    )
    assert unnamed == []


def test_a_phone_never_scrolls_sideways(opened, page_of_all):
    tab = opened(page_of_all, viewport=PHONE).tab
    assert tab.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    tab.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert tab.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    for card in tab.locator("li.sample:visible").all()[:3]:
        card.get_by_role("button", name="Wrong").click()
    assert tab.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    heights = tab.locator("[data-mark]:visible").evaluate_all("all => all.map(one => one.offsetHeight)")
    assert min(heights) >= 40, "buttons are large enough for fingers"


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(opened, page_of_all, scheme):
    tab = opened(page_of_all, color_scheme=scheme).tab
    for place, mark in enumerate(("Right", "Wrong", "Unsure")):
        tab.locator("li.sample").nth(place).get_by_role("button", name=mark).click()
    selectors = (
        ".explanation",
        ".numbers",
        ".quiet",
        "[aria-pressed=true]",
        "[data-download]",
        ".matrix td",
        "dt",
        "a",
    )
    for selector in selectors:
        for ratio in tab.locator(f"{selector}:visible").evaluate_all(f"all => all.slice(0, 40).map({TEXT_CONTRAST})"):
            assert ratio >= 4.5, selector


def test_without_scripts_all_samples_are_shown_by_quality(opened, page_of_images):
    with_scripts = all_ids(opened(page_of_images).tab)
    tab = opened(page_of_images, java_script_enabled=False).tab
    assert ids(tab) == with_scripts
    assert not tab.locator("[data-mark]").first.is_visible()
    assert not tab.locator("[data-controls]").is_visible()
    assert tab.locator("figure svg[role=img]").count() > 5
