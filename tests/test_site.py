"""The site: built once, then every page is read as a browser would: links, headings, alternatives, no network."""

from __future__ import annotations

import json
import posixpath
import re
from collections import Counter
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest

from workbook.site import build, cite, claim_page, effects, front, lessons, reference
from workbook.site.links import LinkError, Links

from . import readable
from .lab import SLOWER
from .site_made import ROOT, found

pytestmark = [pytest.mark.xdist_group("site"), pytest.mark.timeout(900 * SLOWER)]  # built once, not once a worker
LARGEST = 40e6  # bytes of the whole site
LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """What a test asks of a page: links, what it loads, anchors, headings, pictures without an alternative, tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links, self.loads, self.anchors, self.tags, self.mute = [], [], set(), Counter(), []
        self.charts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags[tag] += 1
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        if "data-chart" in found:
            self.charts.append(found["data-chart"])
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag in LOADS and found.get(LOADS[tag]) and found.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(found[LOADS[tag]])
        if (tag == "img" and not found.get("alt")) or (found.get("role") == "img" and not found.get("aria-label")):
            self.mute.append(found)


@pytest.fixture(scope="module")
def pages(site) -> dict[str, Page]:
    """Path of every page below the site -> the page."""
    return {path.relative_to(site).as_posix(): Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def test_every_claim_has_an_address_that_ends_in_a_slash(pages):
    assert {f"claims/{name}/index.html" for name in found().claims} <= pages.keys()
    assert {name for name in pages if not name.endswith("index.html")} == {"404.html"}
    assert "reports/mini/kl/index.html" in pages and "learn/06_nlpo/index.html" in pages


def test_every_link_leads_somewhere(site, pages):
    broken = []
    for name, page in pages.items():
        for link in [*page.links, *page.loads]:
            target = urlsplit(link)
            if target.scheme or target.netloc or name == "404.html":  # the server sends 404.html for any path
                continue
            path = (
                posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(target.path)))
                if target.path
                else name
            )
            if not (site / path).is_file():
                broken.append((name, link))
            elif target.fragment and path in pages and unquote(target.fragment) not in pages[path].anchors:
                broken.append((name, link))
    assert not broken and sum(len(page.links) for page in pages.values()) > 5000


def test_no_page_asks_the_network_for_anything(site, pages):
    asked = {load for page in pages.values() for load in page.loads if urlsplit(load).netloc}
    assert not asked
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert not re.findall(r"url\(['\"]?https?:|@import", styles)


def test_every_page_has_one_heading_of_the_first_rank_and_words_for_its_pictures(pages):
    assert not {name: page.tags["h1"] for name, page in pages.items() if page.tags["h1"] != 1}
    assert not {name: page.mute for name, page in pages.items() if page.mute}


def test_words_on_a_colour_of_their_own_can_be_read(site):
    faint = {path: readable.faint(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    assert not {path.parent.name: found for path, found in faint.items() if found}, "of a lesson, type: make lessons"


def test_the_site_is_small(site):
    sizes = {path: path.stat().st_size for path in site.rglob("*") if path.is_file()}
    print(f"{len(sizes)} files, {sum(sizes.values()):,} bytes")
    assert sum(sizes.values()) <= LARGEST


def test_the_search_leaves_out_texts_of_runs(site):
    """Pages that hold nothing else, and what stands below a heading that says so; what a claim says is found."""
    known = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))["docs"]
    places = {each["location"].removesuffix("index.html") for each in known}
    aside = re.compile(r"/samples/|^texts/|/claims/claims/|grue_real/leaderboard/|#(texts-of|what-the-arms-wrote)")
    assert not [place for place in places if aside.search(place)]
    assert "claims/P09/index.html#what-they-wrote" in places
    assert 'id="texts-of-reviews"' in (site / "claims/P09/index.html").read_text(encoding="utf-8")


def test_nothing_of_this_machine_is_on_it(site):
    for path in [*site.rglob("*.html"), *site.rglob("*.js")]:
        assert str(ROOT) not in path.read_text(encoding="utf-8"), path


def test_no_page_has_powers_of_ten_for_a_number_of_ours(site):
    for path in [*site.rglob("*.html"), *(site / "charts").glob("*.js")]:
        assert not re.findall(r"\d\.\de[−+]\d\d", path.read_text(encoding="utf-8")), path


def test_a_page_is_told_apart_by_its_title_and_ranked_for_the_search(site):
    for name in ("P20", "P04"):
        text = (site / f"claims/{name}/index.html").read_text(encoding="utf-8")
        assert f"<title>{name}. " in text
    slides = [path.read_text(encoding="utf-8") for path in site.glob("teach/slides/*/index.html")]
    assert len({re.search("<title>(.*?)</title>", text)[1] for text in slides}) == len(slides) > 12
    known = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))["docs"]
    rank = {each["location"]: each.get("boost", 1) for each in known}
    assert rank["claims/P04/index.html"] > rank["index.html"] > rank["reports/mini/kl/index.html"]


def test_a_page_that_is_cited_has_its_year_and_its_address(monkeypatch):
    monkeypatch.delenv("SITE_URL", raising=False)
    assert "url =" not in cite.whole(ROOT) and "claim P20. [" in cite.claim(ROOT, "P20")
    monkeypatch.setenv("SITE_URL", "https://example.org/rlnlp")
    assert "  url = {https://example.org/rlnlp/}," in cite.whole(ROOT)
    assert "<https://example.org/rlnlp/claims/P20/>" in cite.claim(ROOT, "P20")
    text = cite.whole(ROOT)
    assert text.count("@") == 4 and "eprint = {2210.01241}" in text and re.search(r"  year = \{20\d\d\},", text)
    assert "## Cite this" in build.home(found()) and "## Cite this" in claim_page.page(found(), "P35")


@pytest.fixture
def links(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "table.csv").write_text("a\n")
    places = {"docs/a.md": "a/index.md", "reports/x/verdict.md": "reports/x/index.md"}
    return Links(tmp_path, tmp_path / "out", places, {"claims/P1/index.md"})


def test_links_move_with_their_page(links):
    assert links.move("[a](a.md#there)", "docs/b.md", "b/index.md") == "[a](../a/index.md#there)"
    assert links.move("[r](../reports/x/verdict.md)", "docs/b.md", "b/index.md") == "[r](../reports/x/index.md)"
    assert links.move("[c](/claims/P1/index.md)", "index.md", "index.md") == "[c](claims/P1/index.md)"
    assert links.move("[t](../table.csv)", "docs/b.md", "b/index.md") == "[t](../files/table.csv)"
    assert (links.out / "files/table.csv").read_text() == "a\n"
    assert links.move("[`code`](a.md)", "docs/b.md", "b/index.md") == "[`code`](../a/index.md)"
    assert links.move("```\n[a](nothing.md)\n```", "docs/b.md", "b/index.md") == "```\n[a](nothing.md)\n```"
    assert links.move("`[a](nothing.md)`, [o](https://example.org)", "docs/b.md", "b/index.md").endswith("example.org)")
    shown = links.move("![words [x]](../table.csv)", "docs/b.md", "b/index.md")
    assert shown == "[![words [x]](../files/table.csv)](../files/table.csv)"


def test_a_link_to_nothing_is_an_error_that_names_the_nearest(links):
    with pytest.raises(LinkError, match=r"docs/b.md: link to docs/aa.md: expected .*did you mean 'docs/a.md'"):
        links.move("[a](aa.md)", "docs/b.md", "b/index.md")


def test_every_setting_of_every_learner_is_on_the_page_of_settings():
    text = reference.settings()
    for name in ("gamma", "kl_coef", "sync_every", "train_prompts", "max_new_tokens", "description"):
        assert (f"| `{name}` |" in text) == (name != "description"), name
    assert "| `gamma` | `1.0` | ≥ 0, ≤ 1 | discount per token" in text
    unsourced = [line for line in text.splitlines() if line.startswith("| `width` |")]
    assert unsourced and not any(re.search("paper|report|RL4LMs", line) for line in unsourced)
    assert "where it names none, the default is our choice" in text and "meaning, unit, source" not in text


def test_the_map_names_every_lesson_and_module(site):
    text = (site / "reference/api/index.html").read_text(encoding="utf-8")
    assert all(f"rlnlp.learners.{name}" in text for name in ("ppo", "nlpo", "dqn"))
    assert [*lessons.read(ROOT)] == sorted(file.stem for file in (ROOT / "notebooks").glob("[0-9]*.ipynb"))
    ppo = (site / "reference/api/rlnlp.learners.ppo/index.html").read_text(encoding="utf-8")
    assert "Proximal policy optimisation on text" in ppo and 'id="rlnlp.learners.ppo.Config"' in ppo


def test_home_shows_what_readme_shows(site):
    text = re.sub(r"\s+", " ", (site / "index.html").read_text(encoding="utf-8"))
    assert effects.raw(front.test(found(), "P01", "ppo score")) in text
    assert all(f'href="claims/{claim}/index.html"' in text for claim in front.FIVE)


def test_a_checklist_has_boxes(site):
    assert build.boxed("- [ ] a\n  - [ ] b, [ ]\n[ ] c") == "- ☐ a\n  - ☐ b, [ ]\n[ ] c"
    text = (site / "teach/checklist/index.html").read_text(encoding="utf-8")
    assert "[ ]" not in text and text.count("☐ ") >= 8


def test_a_picture_is_followed_by_its_charts(tmp_path):
    (tmp_path / "a.svg").write_text("<svg/>")
    links = Links(tmp_path, tmp_path / "out", {}, set(), {"a.svg": '<div data-chart="a"></div>'})
    text = links.move("![words](a.svg)\n\n[the same](a.svg)", "b.md", "b/index.md")
    assert text.startswith("[![words](../files/a.svg)](../files/a.svg)\n\n<div") and text.count("<div") == 1


def test_every_chart_of_a_page_is_there_and_the_library_once(site, pages):
    drawn = {name: page.charts for name, page in pages.items() if page.charts}
    assert len(drawn) > 40 and "claims/P04/index.html" in drawn and "findings/real_reviews/index.html" in drawn
    for names in drawn.values():
        assert all((site / "charts" / f"{name}.js").is_file() for name in names)
    assert (site / "assets/vega.js").stat().st_size < 1.5e6
    heaviest = max(sum((site / f"charts/{name}.js").stat().st_size for name in names) for names in drawn.values())
    assert heaviest < 6e5, heaviest  # bytes that one page loads, when it is read to its end
