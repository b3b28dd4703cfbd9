"""Reports in headless Chromium: they render, load nothing, run nothing, and are accessible. One browser for all."""

import os
import shutil

import pytest

from tests.helpers import reports

playwright = pytest.importorskip("playwright.sync_api", reason="reports are tried in a browser with playwright")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core is in axe-playwright-python")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: install it, or name its program in CHROMIUM"),
]
SIZES = {1280: 900, 390: 844}
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def tab():
    """One page of a browser, with what it says and what it asks for."""
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.said, page.asked = [], []
        page.on("console", lambda message: page.said.append(message.text))
        page.on("pageerror", lambda error: page.said.append(str(error)))
        page.on("request", lambda request: page.asked.append(request.url))
        yield page
        browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A report of each kind, by name."""
    folder = tmp_path_factory.mktemp("reports")
    made = {"evaluation": reports.evaluation(), "replay": reports.replay(), "replays": reports.replays()}
    made |= {"bad audit": reports.bad_audit(), "rewards": reports.several_rewards()}
    made |= {f"hostile {kind}": result for kind, result in reports.hostile().items()}
    for name, result in made.items():
        result.report(folder / f"{name}.html")
    return {name: (folder / f"{name}.html").as_uri() for name in made}


def opened(page, address, width=1280, colours="light"):
    page.set_viewport_size({"width": width, "height": SIZES[width]})
    page.emulate_media(media="screen", color_scheme=colours)
    page.goto(address)
    return page


def luminance(page, selector, style):
    """How bright a colour is, from 0 to 255."""
    colour = page.eval_on_selector(selector, f"e => getComputedStyle(e).{style}")
    red, green, blue = [float(part) for part in colour.strip("rgba()").split(",")[:3]]
    return 0.3 * red + 0.6 * green + 0.1 * blue


def names():
    kinds = ["evaluation", "replay", "replays", "bad audit", "rewards"]
    return kinds + [f"hostile {kind}" for kind in ("evaluation", "audit", "replay")]


@pytest.mark.parametrize("name", names())
def test_a_report_renders_loads_nothing_and_runs_nothing(name, pages, tab):
    tab.said.clear()
    tab.asked.clear()
    for width in SIZES:
        page = opened(tab, pages[name], width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "it would scroll sideways"
        assert page.evaluate("window.hacked") is None
        assert page.locator("h1").is_visible()
        assert 2 * page.locator("svg:visible").count() == page.locator("svg").count() > 0  # one of two sizes
        assert page.locator("svg:visible").first.bounding_box()["width"] > 0.6 * min(width, 760)
    assert tab.said == []
    assert tab.asked == [pages[name]] * len(SIZES)


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("name", ["evaluation", "replay", "bad audit", "hostile replay"])
def test_axe_finds_nothing_serious(name, colours, pages, tab):
    page = opened(tab, pages[name], 390 if colours == "dark" else 1280, colours)
    page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
    found = axe.Axe().run(page).response
    worse = [(one["id"], one["nodes"][0]["html"][:200]) for one in found["violations"] if one["impact"] in SERIOUS]
    assert worse == []
    assert {"color-contrast", "region", "svg-img-alt"} <= {one["id"] for one in found["passes"]}


def test_light_dark_and_paper(pages, tab):
    page = opened(tab, pages["evaluation"])
    assert luminance(page, "body", "backgroundColor") > 200 > 100 > luminance(page, "h1", "color")
    page.emulate_media(color_scheme="dark")
    assert luminance(page, "body", "backgroundColor") < 60 < 200 < luminance(page, "h1", "color")
    page.emulate_media(media="print")
    assert luminance(page, "body", "backgroundColor") > 250  # also if the reader's screen is dark
    assert not page.locator("nav").is_visible()
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_the_keyboard_reaches_links_and_tables(pages, tab):
    page = opened(tab, pages["evaluation"])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    summary = page.locator("summary", has_text="Table").first
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator("table:visible").count() == 1
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "region"
