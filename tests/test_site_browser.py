"""The site in headless Chromium: a page of each kind at every width, charts under the pointer, tables, the search, and
what a visitor finds in three clicks."""

from __future__ import annotations

import shutil

import pytest
from axe_playwright_python.sync_playwright import Axe

from workbook.site import board_charts, charts

from .lab import MARKS, SHOTS, SLOWER, browser_page, serve
from .site_made import ROOT, found

pytestmark = [pytest.mark.xdist_group("site"), pytest.mark.timeout(900 * SLOWER)]  # built once, not once a worker
SEARCHES = {  # what a visitor wants to know: the links that lead there from home, and what stands there
    "Does NLPO beat PPO?": (["The claim, tested"], ["P04. NLPO scores higher than PPO"]),
    "The texts of seed 4 without the penalty on real reviews": (
        ["What they wrote without the penalty, of real reviews"],
        ["PPO, β = 0; reviews, seed 4"],
    ),
    "Train my own model with my own reward": (
        ["Twelve lines of Python"],
        ["With a model and its tokenizer", "def reward(prompts, responses", "rlnlp.scorer(reward, tokenizer)"],
    ),
    "Run one claim again": (
        ["Choose it, its page has the command", "P20", "Run just this again"],
        [".venv/bin/dvc repro runs@"],
    ),
    "What to give students in week one": (
        ["The course, week by week"],
        ["In week one", "before the first class", "lesson 1 and lesson 2", "hand out ps1 and ps2"],
    ),
}
KINDS = (  # a page of each kind
    "index.html",
    "findings/index.html",
    "claims/P20/index.html",
    "texts/ppo_kl_0/index.html",
    "reports/mini/kl/index.html",
    "reports/grue/leaderboard/index.html",
    "texts/grue/common_gen/index.html",
    "learn/06_nlpo/index.html",
    "teach/checklist/index.html",
    "use/twelve_lines/index.html",
    "reference/settings/index.html",
    "reference/api/rlnlp.learners.ppo/index.html",
    "differences/index.html",
)
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]


def draw_all(page) -> int:
    """Scroll every chart into view and wait until it is there; how many there are."""
    places = page.locator("[data-chart]").all()
    for place in places:
        place.scroll_into_view_if_needed()
    page.wait_for_function("[...document.querySelectorAll('[data-chart]')].every(place => place.dataset.drawn)")
    return len(places)


ASKED = {  # what a visitor types: the page that the search shows first
    "does NLPO beat PPO": "claims/P04/",
    "train my own model": "use/",
    "twelve lines": "use/twelve_lines/",
    "own reward": "use/",
}


class TestInABrowser:
    pytestmark = MARKS

    @pytest.mark.parametrize("width", [390, 768, 1440])
    @pytest.mark.parametrize(("scheme", "look"), [("light", "default"), ("dark", "slate")])
    def test_a_page_of_each_kind_fits_and_can_be_used_by_everyone(self, site, width, scheme, look):
        with browser_page() as page:
            page.emulate_media(color_scheme=scheme)  # before the first page, which remembers it
            page.set_viewport_size({"width": width, "height": 900})
            wrong = {}
            for name in KINDS:
                page.goto((site / name).as_uri())
                assert page.locator("body").get_attribute("data-md-color-scheme") == look
                draw_all(page)
                if SHOTS:
                    page.screenshot(path=f"{SHOTS}/{name.replace('/', '_')}_{width}_{scheme}.png", full_page=True)
                found = Axe().run(page, options={"runOnly": RULES}).response["violations"]
                wrong |= {(name, each["id"]): [node["html"][:120] for node in each["nodes"][:2]] for each in found}
                if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                    wrong[name, "wider than the window"] = width
            assert not wrong

    def test_every_deck_can_be_used_by_everyone_on_a_phone(self, site):
        with browser_page() as page:
            page.set_viewport_size({"width": 390, "height": 900})
            decks, wrong = sorted(site.glob("teach/slides/*/index.html")), {}
            for deck in decks:
                page.goto(deck.as_uri())
                found = Axe().run(page, options={"runOnly": RULES}).response["violations"]
                wrong |= {(deck.parent.name, each["id"]): each["nodes"][0]["html"][:120] for each in found}
            assert not wrong and len(decks) == 13

    def test_on_a_phone_a_wide_picture_keeps_its_letters_and_scrolls_by_itself(self, site):
        with browser_page() as page:
            page.set_viewport_size({"width": 390, "height": 900})
            page.goto((site / "claims/P20/index.html").as_uri())
            picture = page.locator("img[src$='P20_specifications.svg']")
            assert (
                picture.bounding_box()["width"] >= 700
            )  # of 960 that it is drawn for, in letters of 9 points and more
            around = picture.evaluate("it => [it.closest('p').clientWidth, it.closest('p').scrollWidth]")
            assert around[0] <= 390 < 700 <= around[1]
            assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")

    def test_on_a_phone_a_lessons_pictures_keep_their_letters_and_what_is_cut_shows_that_it_scrolls(self, site):
        cut = "box => box.hasAttribute('data-cut')"
        with browser_page() as page:
            page.set_viewport_size({"width": 390, "height": 900})
            for name in ("10_reward_hacking", "05_ppo"):
                page.goto((site / f"learn/{name}/index.html").as_uri())
                sizes = "all => all.map(one => [Math.min(one.naturalWidth, 700), one.clientWidth])"
                pictures = page.eval_on_selector_all(".given img", sizes)
                assert len(pictures) > 2 and not [one for one in pictures if one[1] < one[0]]
                assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
                assert not Axe().run(page, options={"runOnly": RULES}).response["violations"]
            boxes = [page.locator(".given:has(img)").last, page.locator(".given:has(> a > img)").first]
            page.goto((site / "teach/slides/06_nlpo/index.html").as_uri())
            formula = page.locator("pre", has_text="kept mass").first
            assert formula.evaluate(cut) and formula.get_attribute("tabindex") == "0"
            page.go_back()
            for box in boxes:
                box.scroll_into_view_if_needed()
                page.wait_for_function(cut, arg=box.element_handle())
                box.evaluate("box => { box.scrollLeft = box.scrollWidth }")
                page.wait_for_function("box => !box.hasAttribute('data-cut')", arg=box.element_handle())

    def test_a_chart_shows_draw_value_setting_and_text_under_the_pointer(self, site):
        asked = []
        with browser_page() as page:
            page.on("request", lambda request: asked.append(request.url))
            page.goto((site / "claims/P04/index.html").as_uri())
            assert draw_all(page) == 2
            page.locator("[data-chart=P04-score] .mark-symbol path").first.hover(force=True)
            page.wait_for_function("document.querySelector('#vg-tooltip-element')?.classList.contains('visible')")
            said = page.locator("#vg-tooltip-element").inner_text()
            rows = charts.of_claim(found(), "P04")["P04-score"]["datasets"]["draws"]
            fields = ("run", "draw", "value", "setting", "text")
            assert [row for row in rows if all(str(row[field]) in said for field in fields)], said
            assert page.locator('[data-chart=P04-effects][aria-label*="published +0.032"]').count() == 1
            page.locator("[data-chart=P04-score] .mark-symbol path").first.click(force=True)
            page.wait_for_url("**/texts/*/index.html#draw-*")
            assert page.locator(f"[id='{page.url.rpartition('#')[2]}']").count() == 1
        assert not [url for url in asked if not url.startswith(("file:", "blob:", "data:", "about:"))]

    def test_a_finger_that_taps_a_point_reads_what_it_says_inside_the_window(self, site):
        chart = charts.of_claim(found(), "P04")["P04-score"]
        phone = {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True}
        box = "document.querySelector('#vg-tooltip-element')"
        with browser_page(**phone) as page:
            page.goto((site / "claims/P04/index.html").as_uri())
            draw_all(page)
            points = page.locator("[data-chart=P04-score] .mark-symbol path")
            for point in (points.first, points.last, points.nth(len(chart["datasets"]["draws"]) // 2)):
                point.evaluate("it => it.scrollIntoView({block: 'center'})")  # not below the page's head
                around = point.bounding_box()
                page.touchscreen.tap(around["x"] + around["width"] / 2, around["y"] + around["height"] / 2)
                page.wait_for_function(f"{box}?.classList.contains('visible')")
                said = page.locator("#vg-tooltip-element")
                assert any(row["setting"] in said.inner_text() for row in chart["datasets"]["draws"])
                place = said.bounding_box()
                assert place["x"] >= 0 and place["x"] + place["width"] <= 390, place
                assert page.url.endswith("claims/P04/index.html")
                page.touchscreen.tap(5, 5)
                page.wait_for_function(f"!{box}.classList.contains('visible')")

    def test_a_claims_chart_of_the_benchmark_begins_with_its_own_task(self, site):
        with browser_page() as page:
            for claim, task in (("P12", "cnn_dailymail"), ("P31", "totto"), ("P06", "common_gen")):
                page.goto((site / f"claims/{claim}/index.html").as_uri())
                draw_all(page)
                assert page.locator(f"[data-chart={board_charts.NAME}]").get_by_label("task").input_value() == task

    def test_reward_against_judge_is_of_the_task_that_is_chosen(self, site):
        chart = board_charts.beside(ROOT)[board_charts.PICTURE][board_charts.NAME]
        with browser_page() as page:
            page.goto((site / "reports/grue/leaderboard/index.html").as_uri())
            draw_all(page)
            place = page.locator(f"[data-chart={board_charts.NAME}]")
            for task in chart["params"][0]["bind"]["options"][::-1]:
                place.get_by_label("task").select_option(task)
                drawn = len([row for rows in chart["datasets"].values() for row in rows if row["task"] == task])
                marks = f"[data-chart={board_charts.NAME}] .mark-symbol.role-mark path"
                page.wait_for_function(f"document.querySelectorAll('{marks}').length === {drawn}")

    def test_a_grouped_tables_rows_keep_their_claim_when_sorted_and_when_filtered(self, tmp_path):
        lines = [("P03: one", "b", "holds"), *(("", name, "") for name in "adefghijkl"), ("P04: two", "c", "open")]
        rows = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in line) + "</tr>" for line in lines)
        head = "".join(f"<th>{name}</th>" for name in ("claim", "test", "word"))
        script = (ROOT / "docs/assets/tables.js").as_uri()
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        (tmp_path / "a.html").write_text(f'<div class="md-content">{table}</div><script src="{script}"></script>')
        with browser_page() as page:
            page.goto((tmp_path / "a.html").as_uri())
            shown = page.locator("tbody tr:visible")
            page.get_by_label("Show rows with").fill("P03")
            assert shown.count() == 11
            page.get_by_label("Show rows with").fill("p03 b")
            assert shown.count() == 1
            page.get_by_label("Show rows with").fill("")
            page.locator("th", has_text="test").locator("button").click()
            of = page.eval_on_selector_all("tbody tr", "rows => rows.map(row => row.dataset.group)")
            assert of == ["P03: one"] * 2 + ["P04: two"] + ["P03: one"] * 9
            assert page.locator("tbody td").first.get_attribute("data-of") == "P03"
            page.locator("th", has_text="word").locator("button").click()
            of = page.eval_on_selector_all("tbody tr", "rows => rows.map(row => row.dataset.group)")
            assert of == ["P03: one"] * 11 + ["P04: two"]

    def test_a_table_sorts_by_any_column_and_shows_the_rows_asked_for(self, site):
        with browser_page() as page:
            page.goto((site / "claims/P04/index.html").as_uri())
            table = page.locator("table", has_text="perplexity").first
            heading = table.locator("th", has_text="perplexity")
            cells = "tbody td:nth-child(3)"
            values = lambda: [float(cell.split()[0]) for cell in table.locator(cells).all_inner_texts()]
            assert values() != sorted(values())
            heading.locator("button").focus()
            page.keyboard.press("Enter")
            assert heading.get_attribute("aria-sort") == "ascending" and values() == sorted(values())
            heading.locator("button").click()
            assert heading.get_attribute("aria-sort") == "descending" and values() == sorted(values(), reverse=True)
            page.goto((site / "findings/index.html").as_uri())
            page.get_by_label("Show rows with").nth(1).fill("nlpo ppo")  # the first paper's; the forest is folded
            shown = page.locator(".filter + *").nth(1).locator("tbody tr:visible").all_inner_texts()
            assert 0 < len(shown) < 42 and all("nlpo" in row.lower() and "ppo" in row.lower() for row in shown)

    @pytest.mark.parametrize("wanted", SEARCHES)
    def test_a_visitor_finds_what_the_issue_asks_for_in_three_clicks(self, site, wanted):
        clicks, said = SEARCHES[wanted]
        assert len(clicks) <= 3
        with browser_page() as page:
            page.goto((site / "index.html").as_uri())
            for click in clicks:
                with page.expect_navigation():  # a click by itself does not wait for the page that it opens
                    page.locator("main").get_by_role("link", name=click, exact=True).first.click()
            print(f"{wanted}: {' > '.join(clicks)} > {page.url.removeprefix(site.as_uri())}")
            there = "said => said.every(one => document.querySelector('main').innerText.includes(one))"
            page.wait_for_function(there, arg=said)

    def test_in_a_jupyterlab_home_has_links_that_open_notebooks(self, site, tmp_path):
        (tmp_path / "notebooks").mkdir()
        shutil.copy(ROOT / "notebooks/quickstart.ipynb", tmp_path / "notebooks")
        with browser_page() as page:
            page.goto((site / "index.html").as_uri())
            assert not page.locator(".launch").first.is_visible()  # from a disk there is nothing to launch
        with serve(tmp_path, "", f"--ServerApp.extra_static_paths=['{site}']") as address, browser_page() as page:
            page.goto(address.replace("/lab/tree/", "/static/index.html"))
            page.locator(".launch a", has_text="quick start").click()
            page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=180_000 * SLOWER)

    def test_search_works_from_a_disk(self, site):
        with browser_page() as page:
            page.goto((site / "claims/P20/index.html").as_uri())
            page.evaluate("document.querySelector('[data-md-toggle=search]').click()")
            page.wait_for_function("document.querySelector('.md-search-result__meta').innerText.startsWith('Type')")
            page.locator("input[name=query]").press_sequentially("mirostat")  # it listens to keys
            page.wait_for_selector(".md-search-result__link")
            assert "claims/C05/" in " ".join(
                link.get_attribute("href") for link in page.locator(".md-search-result__link").all()
            )
            for asked, answer in ASKED.items():
                page.locator("input[name=query]").fill("")
                page.locator("input[name=query]").press_sequentially(asked)
                first = page.locator(f".md-search-result__item:first-child > a[href*='{answer}']")
                first.wait_for(state="attached")
