"""The page in a real browser: it asks for nothing, its controls work, its pictures are Python's, its videos play."""

import json
import os
import shutil
import time
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from clop.game_frame import draw_frame
from clop.kernels.draw import draw
from clop.report.page.build import write_page
from clop.report.page.layer import swapped

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--mute-audio"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


def find_browser():
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("CLOP_BROWSER") or next(filter(None, map(shutil.which, names)), None)


pytestmark = pytest.mark.skipif(
    find_browser() is None, reason="needs Chromium: apt-get install chromium, or name one by CLOP_BROWSER"
)


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=find_browser(), args=list(FLAGS))
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory, write_agent):
    """A page of made-up runs, and of a video that counts."""
    folder = tmp_path_factory.mktemp("site")
    curve = [(k * 50_000, k / 4, k / 5 if k % 5 == 0 else None) for k in range(1, 21)]
    for method, gain in (("ppo", 0.0), ("clop", 1.0)):
        for seed in range(3):
            path = folder / "runs" / f"{method}-{seed}"
            write_agent(path, "bigfish", method, seed, 5 + gain, 4 + gain + 0.1 * seed, curve=curve)
    _write_videos(folder / "runs" / "both")
    return write_page([folder / "runs"], folder / "out").path


def _write_videos(stem: Path) -> None:
    pytest.importorskip("av")
    from PIL import Image

    from clop.rl.video import write_video

    for suffix in (".webm", ".mp4"):
        pictures = ((Image.new("RGB", (64, 48), (8 * k, 90, 200)), False) for k in range(30))
        write_video(pictures, stem.with_suffix(suffix), 15)


class Visit:
    """A page that is open, and what it said and asked for."""

    def __init__(self, browser, site, **options):
        self.page = browser.new_context(viewport={"width": 1280, "height": 900}, **options).new_page()
        self.complaints, self.requests = [], []
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(site.as_uri())
        if options.get("java_script_enabled", True):
            self.wait("document.getElementById('layer-moved').textContent.includes('%')")

    def wait(self, condition, seconds=120):
        """Until something is so; the page's policy forbids playwright's own way, which evaluates text inside it."""
        end = time.monotonic() + seconds
        while not self.page.evaluate(condition):
            assert time.monotonic() < end, f"not so after {seconds} s: {condition}"
            self.page.wait_for_timeout(50)

    def pixels(self):
        """What the canvas after the layer shows, (H, W, 3)."""
        found = self.page.evaluate(
            """() => {
                const canvas = document.getElementById("layer-after");
                const all = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
                return [canvas.width, Array.from(all.data)];
            }"""
        )
        side, values = found
        return np.array(values, np.uint8).reshape(side, side, 4)[..., :3]

    def set_alpha(self, value):
        self.page.eval_on_selector(
            "#layer-alpha",
            "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input', { bubbles: true })); }",
            str(value),
        )


@pytest.fixture(scope="module")
def visit(browser, site):
    opened = Visit(browser, site)
    yield opened
    opened.page.context.close()


# ---- the layer -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("alpha", "seed"), [(0, 0), (0.5, 0), (0.37, 12345678901234567890), (1, 7)])
def test_the_picture_is_pythons_for_every_alpha_and_seed(visit, alpha, seed):
    """Fails if what is drawn is not the layer: another order of random words, or a seed cut to 53 bits."""
    visit.page.fill("#layer-seed", str(seed))
    visit.set_alpha(alpha)
    signed = seed - 2**64 if seed >= 2**63 else seed
    assert np.array_equal(visit.pixels(), swapped(draw_frame(), alpha, signed))
    moved = 100 * np.mean(draw(signed, (64, 64), (1,), alpha, "paper", True)[0] != np.arange(4096))
    assert visit.page.inner_text("#layer-moved") == f"{moved:.1f} %"


def test_switches_change_the_rule(visit):
    page, frame = visit.page, draw_frame().reshape(-1, 3)
    page.fill("#layer-seed", "5")
    visit.set_alpha(0.8)
    page.uncheck("#layer-consistent")
    permutations = draw(5, (64, 64), (3,), 0.8, "paper", True)
    expected = np.stack([frame[permutations[channel], channel] for channel in range(3)], -1).reshape(64, 64, 3)
    assert np.array_equal(visit.pixels(), expected)
    page.check("#layer-consistent")
    page.uncheck("#layer-local")
    page.check("input[name=variant][value=raster]", force=True)
    page.check("input[name=size][value='8']", force=True)
    (permutation,) = draw(5, (8, 8), (1,), 0.8, "raster", False)
    tiles = draw_frame().reshape(8, 8, 8, 8, 3).transpose(0, 2, 1, 3, 4).reshape(64, 8, 8, 3)[permutation]
    assert np.array_equal(visit.pixels(), tiles.reshape(8, 8, 8, 8, 3).transpose(0, 2, 1, 3, 4).reshape(64, 64, 3))
    page.check("#layer-local")
    page.check("input[name=variant][value=paper]", force=True)
    page.check("input[name=size][value='64']", force=True)


def test_a_change_is_drawn_within_50_milliseconds(visit):
    """In the slowest setting, three permutations of 64×64. The quicker quarter of several, since the clock also counts
    what other processes take of a busy machine."""
    visit.page.uncheck("#layer-consistent")
    times = []
    for alpha in np.linspace(0.1, 1, 12):
        visit.set_alpha(round(float(alpha), 2))
        times.append(float(visit.page.inner_text("#layer-time")))
    visit.page.check("#layer-consistent")
    assert np.quantile(times, 0.25) < 50, times


def test_the_browser_draws_the_permutations_of_python(visit):
    source = (files("clop.report.page") / "assets" / "sampler.mjs").read_text().replace("export ", "")
    rng = np.random.default_rng(1)
    cases = [
        {"seed": str(seed), "alpha": float(rng.random()), "variant": variant, "local": bool(k % 2)}
        for k, seed in enumerate(rng.integers(-(2**63), 2**63 - 1, 334).tolist())
        for variant in ("paper", "raster", "clamp")
    ]
    call = "Array.from(draw(BigInt(c.seed), [5, 7], 1, c.alpha, c.variant, c.local)[0])"
    found = visit.page.evaluate(f"(cases) => {{ {source}\nreturn cases.map((c) => {call}); }}", cases)
    assert len(found) > 1000
    for case, permutation in zip(cases, found, strict=True):
        (expected,) = draw(int(case["seed"]), (5, 7), (1,), case["alpha"], case["variant"], case["local"])
        assert permutation == expected.tolist()


# ---- results ---------------------------------------------------------------------------------------------------------


def test_a_method_can_be_switched_off_and_on(visit):
    page = visit.page
    assert "clop unseen 5.10" in page.inner_text(".readout")  # the end of training, before anybody points
    line = page.locator("g[data-method=clop][data-split=test]").first
    assert line.is_visible()
    page.uncheck("[data-toggle-method=clop]")
    assert not line.is_visible()
    assert page.locator("g[data-method=ppo][data-split=test]").first.is_visible()
    page.hover("svg.chart")
    assert "clop" not in page.inner_text(".readout")
    page.check("[data-toggle-method=clop]")
    assert line.is_visible()
    page.uncheck("[data-toggle-part=train]")
    assert not page.locator("g[data-method=clop][data-split=train]").first.is_visible()
    page.check("[data-toggle-part=train]")


def test_arrow_keys_show_numbers_of_the_runs(visit):
    page = visit.page
    page.focus("svg.chart")
    page.keyboard.press("End")
    shown = page.inner_text(".readout")
    assert "at 1\u202f000\u202f000 steps" in shown
    assert "clop unseen 5.10 [" in shown  # the mean of 5.0, 5.1 and 5.2
    assert "(3 seeds)" in shown
    page.keyboard.press("ArrowLeft")
    assert page.inner_text(".readout") != shown


def test_a_number_leads_to_its_runs(visit):
    page = visit.page
    page.click("#results td a >> nth=0")
    opened = page.locator("details.runs[open]")
    opened.first.wait_for()  # a script unfolds it when the address has changed
    assert opened.count() == 1
    assert "clop train bigfish" in opened.inner_text()
    assert "made up" in opened.inner_text()  # the machine


def test_a_number_of_several_methods_leads_to_their_runs(visit):
    """Fails if the list that it leads to stays folded within another."""
    page = visit.page
    page.click("#evidence tbody tr >> nth=0 >> td a >> nth=2")
    place = page.evaluate("location.hash")
    assert place.startswith("#list-")
    page.click(f"{place} a >> nth=0")
    page.locator(page.evaluate("location.hash")).get_by_text("clop train bigfish").first.wait_for(state="visible")


def test_claims_can_be_filtered_by_verdict_and_words(visit):
    page = visit.page
    rows = page.locator("#claims tbody tr:visible")
    everything = rows.count()
    page.select_option("#claims-form select", "reproduced")
    marks = page.eval_on_selector_all("#claims tbody tr:not([hidden])", "(all) => all.map((r) => r.dataset.verdict)")
    assert set(marks) == {"reproduced"}
    assert len(marks) < everything
    page.fill("#claims-form input", "evaluation mode")
    assert 0 < rows.count() < len(marks)
    assert page.inner_text("#claims-count") == f"{rows.count()} of {everything}"
    page.fill("#claims-form input", "")
    page.select_option("#claims-form select", "all")


# ---- videos ----------------------------------------------------------------------------------------------------------


def test_videos_play(visit):
    page = visit.page
    page.eval_on_selector("video", "(video) => video.play()")
    visit.wait("document.querySelector('video').readyState >= 2")
    visit.wait("document.querySelector('video').currentTime > 0.2")
    assert page.eval_on_selector_all("source", "(all) => all.map((each) => each.type.slice(0, 10))") == [
        "video/webm",
        "video/mp4",
    ]


# ---- the page as a whole ---------------------------------------------------------------------------------------------


def test_it_says_nothing_in_the_console_and_asks_for_nothing_but_itself(visit, site):
    """Comes after all that was clicked above."""
    assert visit.complaints == []
    allowed = {site.as_uri(), *(path.as_uri() for path in (site.parent / "videos").iterdir())}
    assert {url.partition("#")[0] for url in visit.requests if not url.startswith("data:")} <= allowed


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_a_phone_and_a_desk_in_light_and_dark(visit, tmp_path, scheme, width):
    page, picture = visit.page, tmp_path / "page.png"
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 844})
    page.evaluate("scrollTo({ top: 0, behavior: 'instant' })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=picture)
    from PIL import Image

    with Image.open(picture) as image:
        red, *_ = image.convert("RGB").getpixel((2, 300))
        assert (red > 200) == (scheme == "light")
        assert len(image.convert("RGB").getcolors(1 << 24) or []) > 100  # something is there
    assert visit.complaints == []


@pytest.mark.parametrize(("width", "height", "cards"), [(1280, 800, 2), (390, 844, 1)])
def test_the_first_screen_says_what_clop_does_and_what_came_of_it(visit, width, height, cards):
    """Fails if the findings slip below what is seen without scrolling."""
    page = visit.page
    page.set_viewport_size({"width": width, "height": height})
    page.evaluate("scrollTo({ top: 0, behavior: 'instant' })")
    pictures = page.locator(".pair img")
    assert pictures.count() == 2
    for each in (*pictures.all(), *page.locator(".card strong").all()[:cards]):
        box = each.bounding_box()
        assert box["y"] + box["height"] < height
    page.click(".card >> nth=0")
    assert page.evaluate("location.hash") == "#evidence"


def test_on_a_phone_the_pictures_stand_above_the_slider(visit):
    """Fails if one has to scroll between the slider and what it changes."""
    page = visit.page
    page.set_viewport_size({"width": 390, "height": 844})
    after, slider = (page.locator(f"#layer-{name}").bounding_box() for name in ("after", "alpha"))
    assert 0 < slider["y"] - after["y"] < 400


def test_without_javascript_tables_and_pictures_are_there(browser, site):
    page = Visit(browser, site, java_script_enabled=False).page
    assert page.locator("#results table").first.is_visible()
    assert page.locator("svg.chart g[data-method=clop] path.mean").first.is_visible()
    assert page.locator("noscript img").count() == 6 or page.locator(".tiles img").count() == 6
    assert not page.locator("#layer-form").is_visible()
    assert page.locator(".legend .key", has_text="clop").first.is_visible()  # which line is whose
    assert not page.locator(".legend input").first.is_visible()
    assert page.locator(".card").first.is_visible()
    page.context.close()


def test_the_page_is_small(site):
    assert site.stat().st_size < 2_000_000
    assert "http" not in json.dumps(
        [line for line in site.read_text().splitlines() if "src=" in line or "href=" in line]
    )
