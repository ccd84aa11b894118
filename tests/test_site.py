"""The site: built once, then every page is read as a browser would: links, headings, alternatives, no network."""

from __future__ import annotations

import csv
import dataclasses
import json
import posixpath
import re
import shutil
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe

from workbook.grue.pictures import label
from workbook.results.files import SAMPLES, read_text, standing
from workbook.results.tables import between
from workbook.site import (
    benchmark,
    build,
    charts,
    cite,
    claim_page,
    committed,
    effects,
    five,
    forest,
    front,
    lessons,
    reference,
    texts,
)
from workbook.site.links import LinkError, Links

from . import readable
from .lab import MARKS, SHOTS, SLOWER, browser_page, serve

pytestmark = [pytest.mark.xdist_group("site"), pytest.mark.timeout(900 * SLOWER)]  # built once, not once a worker

ROOT = Path(__file__).resolve().parents[1]
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
def site(tmp_path_factory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    build.write(ROOT, folder / "made", folder / "site")
    build.build(ROOT, folder / "made")
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site) -> dict[str, Page]:
    """Path of every page below the site -> the page."""
    return {path.relative_to(site).as_posix(): Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


@cache
def found() -> committed.Committed:
    return committed.read(ROOT)


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


def test_a_claims_page_shows_each_profiles_numbers_in_their_unit_first(site):
    row = found().ledgers["settle"]["P04"]
    test = next(c for c in row["components"] if c["name"] == "equal beta and decoding")
    text = re.sub(r"<[^>]+>", "", (site / "claims/P04/index.html").read_text(encoding="utf-8"))
    low, high = text.index(effects.raw(test)), text.index(effects.yardsticks(test))
    assert low < high and effects.raw_published(test) in text and "dvc repro runs@" in text
    assert "ppo_kl_default" in text and "What would change our mind" in text
    said = (site / "claims/P01/index.html").read_text(encoding="utf-8")
    assert "reviews, 5 seeds of one base model" in said and "imdb, 5 draws" in said and "reviews, 5 draws" not in said


def test_a_claims_page_has_five_texts_of_every_seed_and_run_shown():
    """Of the registered design the first draw's, and a page of its own for each run, with every draw that it has."""
    rows = found().rows("P01")
    text = texts.section(found(), rows)
    assert set(re.findall(r'\?\?\? note "(.+); (\w+), seed (\d+)"', text)) >= {
        ("PPO, β = 0", "imdb", "1"),
        *(("PPO, β = 0", "reviews", str(seed)) for seed in range(1, 6)),
        ("PPO, β = 0", "settle", "101"),
    }
    assert "**Not of every seed:** of `imdb`, 1 of 5 seeds." in text.partition("###")[0]
    assert "Of seeds 2, 3, 4 and 5 no text is committed" in text  # of imdb
    blocks = text.split("???")[1:]
    assert blocks and all(len(re.findall(r"^    \d\. ", block, re.MULTILINE)) == 5 for block in blocks)
    assert (
        f"[PPO, β = 0](/texts/ppo_kl_0/index.md) ({texts.how_many(found(), 'ppo_kl_0')})" in text
        and "settle, seed 102" not in text
    )
    lines = map(json.loads, read_text(standing(ROOT / "reports/mini", SAMPLES)).splitlines())
    first = next(line["response"] for line in lines if line["condition"] == "ppo_kl_0")
    assert committed.safe(" ".join(first.split())) in texts.section(found(), {"mini": rows["mini"]})


OF_DRAW = re.compile(r"^\*\*\[Draw (\d+)(?:, again \((\d)\))?\].*$", re.MULTILINE)


def test_every_run_of_the_registered_design_has_five_texts_of_each_draw_on_its_page():
    """Those of a run's repetitions are on its page; a page says of how many of its draws it has texts."""
    table, pages, there = found().measured["settle"], texts.pages(found()), set()
    for name, runs in texts.of_pages(found()).items():
        _, *parts = OF_DRAW.split(pages[texts.place(name)])
        for seed, again, block in zip(parts[::3], parts[1::3], parts[2::3]):
            there.add((runs[int(again or 1) - 1], int(seed)))
            assert [*"12345"] == re.findall(r"^(\d)\. ", block, re.MULTILINE), (name, seed, again)
        kept, every = ({s for n, s in pairs if n == name} for pairs in (there, zip(table.condition, table.seed)))
        assert ("of its" in texts.how_many(found(), name)) == (kept != every)
        assert f", {texts.how_many(found(), name)}: " in pages[texts.place(name)]
    committed_texts = {(name, text.seed) for name, each in found().texts["settle"].items() for text in each}
    assert there == committed_texts <= {*zip(table.condition, table.seed)} and len(there) >= 352
    assert "[P01](/claims/P01/index.md)" in pages["texts/ppo_kl_0/index.md"]
    assert f"- [untrained](/{texts.place('zero_shot')})" in pages[texts.INDEX]


def test_no_claims_page_denies_texts_that_are_committed():
    denied = []
    for name in found().claims:
        if rows := found().rows(name):
            there = [c for p in rows for c in committed.named_conditions(rows) if c in found().texts[p]]
            assert texts.section(found(), rows).startswith("No text of these runs") != bool(there), name
            denied += [] if there else [name]
    assert not {"P05", "P21", "P37", "K02"} & {*denied}
    for name in ("P05", "P21", "P37", "K02"):  # of these the registered design alone has numbers, or it and others
        text = texts.section(found(), found().rows(name))
        assert {*re.findall(r"; settle, seed (\d+)\"", text)} == {"101"} and "**Draw by draw**" in text, name


def test_no_page_has_powers_of_ten_for_a_number_of_ours(site):
    for path in [*site.rglob("*.html"), *(site / "charts").glob("*.js")]:
        assert not re.findall(r"\d\.\de[−+]\d\d", path.read_text(encoding="utf-8")), path


def test_a_claim_nobody_tested_says_what_it_would_take():
    untested = [name for name in found().claims if not found().rows(name) and name not in found().benchmark]
    assert untested
    for name in untested:
        text = claim_page.page(found(), name)
        assert "**Not tested here.**" in text and "It would take: ." not in text and "## What was found" not in text


def test_the_commands_of_a_claim_name_stages_that_there_are():
    for name, claim in found().claims.items():
        for runs in re.findall(
            r"(?:cd (\S+) && \S*/)?(?:\.venv/bin/)?dvc repro ([^)\n]*)", claim_page.page(found(), name)
        ):
            profile = Path(runs[0]).name if runs[0] else "mini"
            for stage in runs[1].split():
                kind, _, run = stage.partition("@")
                assert kind in ("runs", "continued") and run in found().runs[profile], (claim, stage)


def test_a_word_in_the_table_of_findings_has_its_doubts():
    lines = claim_page.index(found(), [*found().claims]).splitlines()
    for claim, row in found().ledgers["settle"].items():
        line = next(line for line in lines if f"/claims/{claim}/" in line)
        said = line.split(" | ")[1]
        assert ("not settled" in said) == (committed.tested(row) and row.get("settled") is False), claim
        assert ("turns at half the budget" in said) == (committed.tested(row) and bool(row.get("turns"))), claim
    assert "not settled" in next(line for line in lines if "/claims/P20/" in line).split(" | ")[1]


def test_a_claims_page_opens_with_its_words_in_a_sentence():
    text = claim_page.page(found(), "P20").split("\n\n")[1]
    deciding = committed.deciding(found().ledgers["settle"]["P20"])
    assert text.startswith(
        "**In `settle`: *opposite*, not settled.** Of its 4 deciding tests (all must hold): 2 hold, but"
    )
    assert sum(int(n) for n in re.findall(r"(?:: |; )(\d+) ", text.partition("tests")[2])) == len(deciding) == 4


def test_claims_about_supervised_policies_say_that_their_texts_may_end():
    told = {c for c in found().claims for p, r in found().rows(c).items() if claim_page.supervised(found(), p, r)}
    assert told == {"P09", "P10", "P26", "P27"}
    assert claim_page.page(found(), "P10").split("\n\n").count(claim_page.MAY_END) == 1
    assert claim_page.MAY_END not in claim_page.page(found(), "P20")


def test_running_a_claim_again_says_what_becomes_of_the_other_tables():
    text = claim_page.again(found(), found().rows("P04"))
    runs = len(text.partition("dvc repro ")[2].partition("\n")[0].split())
    assert f"These are {runs} of the profile's {len(found().runs['mini'])} runs." in text
    assert "`git checkout reports/mini` brings the committed ones back" in text and "the command says so" in text


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


def component(**other):
    zero = {"difference": 0.1, "low": 0.05, "high": 0.15, "effect": 0.2, "effect_low": 0.1, "effect_high": 0.3}
    made = {"unit": "yardsticks", "metric": "score", "direction": "greater", "stated": 0.4, "word": "holds"}
    return {**zero, **made, "published": None, "published_low": None, "published_high": None, **other}


def test_a_published_effect_is_shown_in_the_metrics_own_unit():
    told = component(published=0.5, published_low=0.2521, published_high=0.7515)
    assert effects.raw_published(told) == "+0.179 [0.090, 0.269]"  # one yardstick: .847 - .489
    assert effects.raw(told) == "+0.100 [0.050, 0.150]"
    assert effects.raw_published(component()) == "" and effects.raw(component(difference=None)) == ""


def test_a_row_of_the_forest_lies_where_its_numbers_are():
    drawn = effects.row(component(published=-0.4), 0.4)
    (at,) = re.findall(r'circle class="measured" cx="([\d.]+)"', drawn)
    low, high = map(float, re.search(r'interval" d="M([\d.]+) 9H([\d.]+)"', drawn).groups())
    edge = float(re.search(r'published" d="M([\d.]+) ', drawn)[1])
    assert (float(at), low, high, edge) == (146.0, 123.0, 169.0, 8.0)
    assert 'aria-label="measured +0.200 [0.100, 0.300], published −0.400 yardsticks; the axis goes to 0.4"' in drawn
    assert effects.reach([component()]) == pytest.approx(0.44) and effects.reach([]) > 0


@pytest.mark.parametrize(
    ("word", "direction", "said"),
    [
        ("holds", "greater", "an interval that takes in 0, or lies below 0"),
        ("holds", "less", "an interval that takes in 0, or lies above 0"),
        ("holds, but smaller than stated", "greater", "an interval that takes in 0, or reaches 0.4 yardsticks"),
        ("too small", "greater", "an interval that reaches 0.4 yardsticks, either way"),
        ("opposite", "greater", "an interval that takes in 0, or lies on the other side of it"),
        ("open", "greater", "more draws: an interval on one side of 0, or inside ±0.4 yardsticks"),
        ("holds", "equal", "an interval that leaves ±0.4 yardsticks"),
        ("opposite", "equal", "an interval that reaches into ±0.4 yardsticks"),
    ],
)
def test_what_would_turn_a_word_is_what_the_rule_says(word, direction, said):
    assert effects.turning(component(word=word, direction=direction)) == said


def test_a_claim_of_the_benchmark_has_its_word_its_tests_and_what_is_said_of_them():
    rows = list(csv.DictReader((ROOT / "reports/grue/claims.csv").open()))
    told, index = found().benchmark, claim_page.index(found(), [*found().claims])
    words = {row["id"]: row["word"] for row in rows if row["role"] == "decides"}
    assert {*told} == {*words} and len(told) == 15
    assert "not testable here" not in words.values()  # each has a supervised start where it needs one
    for name in told:
        text, mine = claim_page.page(found(), name), [row for row in rows if row["id"] == name]
        assert "Not tested here" not in text and f">{mine[0]['word']}</span> | – |" in text
        section = text.partition("## On the benchmark")[2]
        assert mine[0]["said"] in section
        for row in mine:
            low, high = (float(row[end]) for end in ("low", "high"))
            assert between(low, high) in section and f">{row['test_word']}<" in section
        line = next(line for line in index.splitlines() if f"/claims/{name}/" in line)
        assert line.endswith(f">{mine[0]['word']}</span> |")
    alone = dataclasses.replace(found(), benchmark={})
    assert "**Not tested here.**" in claim_page.page(alone, "P35") and "grue" not in claim_page.index(alone, ["P35"])


def test_a_claim_of_the_benchmark_has_arms_what_would_turn_it_texts_and_a_command():
    board = (ROOT / "reports/grue/leaderboard.md").read_text(encoding="utf-8")
    for name in found().benchmark:
        text = claim_page.page(found(), name).partition("## On the benchmark\n")[2]
        asked = benchmark.plan(ROOT).tests(name)
        parts = dict(re.findall(r"### ([\w ]+\w).*\n\n((?:.|\n(?!##))+)", text))
        turned, arms, wrote, again = parts.values()
        assert [*parts] == [*TOLD_OF_THE_BENCHMARK], name
        assert all(f"| {test.name} | " in turned for test in asked.values() if test.role == "decides")
        assert all(f"| {label(arm)} |" in arms or f"“{arm}”" in arms for arm in benchmark.named(asked))
        written = [line for line in wrote.splitlines() if line.startswith("    | ")]
        assert "No text" not in wrote and written and all(line.strip() in board for line in written)
        assert "make grue\n" in again and re.search(r"\d+ to \d+ minutes on two cores", again)
        on_the_scale = [test for test in asked.values() if test.column != "metric/words"]
        assert text.count('class="forest-row"') == len(on_the_scale), name
    text = claim_page.page(found(), "P31")
    assert "supervised + PPO − (supervised + PPO, METEOR paid), by `metric/parent`, on `totto`" in text
    assert "| supervised | PPO, paid meteor_stem | " in text and "updates `11`" in text
    assert "mean over `common_gen`, `totto` and `narrativeqa`, less that over `cnn_dailymail` and `wmt16`" in (
        claim_page.page(found(), "P13")
    )


TOLD_OF_THE_BENCHMARK = (
    "What would change our mind",
    "The arms and their settings",
    "What the arms wrote",
    "Run it again",
)


@pytest.mark.parametrize(
    ("word", "stated", "high", "said"),
    [
        ("too small", 0.02, 0.01, "an interval that reaches 0.02 on the scale, either way"),
        ("holds", 0.0, 0.1, "an interval that takes in 0, or lies below 0"),
        ("opposite", 0.0, -0.1, "an interval on the other side of 0"),
        ("open", 0.0, 0.1, "more seeds: an interval on one side of 0"),
        ("no supervised start", 0.02, 0.1, "a supervised start: one that beats the raw model on validation references"),
    ],
)
def test_what_would_turn_a_test_of_the_benchmark(word, stated, high, said):
    row = {"word": word, "stated": stated, "high": high, "direction": "greater", "unit": benchmark.SCALE}
    assert benchmark.turning(row) == said


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


def test_each_of_the_five_results_leads_to_a_section_of_a_page_made_from_the_tables():
    text = (ROOT / five.PAGE).read_text(encoding="utf-8")
    assert five.page(found()) == text, "type: python -m workbook.site readme"
    assert re.findall(r"^## (\w+)$", text, re.MULTILINE) == [*front.FIVE] and "forest row" not in text
    for claim, name in front.FIVE.items():
        section = text.partition(f"\n## {claim}\n")[2].partition("\n## ")[0]
        assert f"{five.PAGE}#{claim.lower()})" in front.five(found()), claim
        assert f"| {effects.raw(front.test(found(), claim, name))} |" in section, claim
        assert len(re.findall("^### ", section, re.MULTILINE)) >= len(
            [each for each in committed.deciding(found().ledgers["settle"][claim]) if each["effect"] is not None]
        ), claim


def test_a_result_of_the_front_names_a_report_that_is_there():
    rows = [line for line in front.five(found()).splitlines() if line.startswith("| [")]
    pages = [re.search(r"\| \[\w+\]\((reports/[\w/]+\.md)\) \|$", row)[1] for row in rows]
    assert len(pages) == len(front.FIVE) and all((ROOT / page).is_file() for page in pages)


def test_a_claims_page_has_its_numbers_before_the_axis_that_all_tests_share():
    text = claim_page.page(found(), "P01", [f"P01-{charts.EFFECTS}", "P01-score"])
    numbers, axis = text.index("| +0.283 [0.268, 0.299] |"), text.index(f'data-chart="P01-{charts.EFFECTS}"')
    assert text.index("## What was found") < numbers < axis < text.index("## What would change our mind")


def test_findings_open_with_eight_rows_of_the_forest_and_fold_the_rest():
    first, rest = forest.split(found())
    assert len(first) == 8 and len(rest) > 20 and not [row for row in rest if row in first]
    text = build.findings(found())
    assert not re.search(r' d="[^"]*−', text), "a minus of text in a path: a browser draws none of what follows"
    before, _, folded = text.partition("??? note")
    assert before.count('class="forest-row"') == 8 and folded.count('class="forest-row"') == len(rest)
    for claim, test in first:
        assert f"| {effects.raw(test)} |" in before and found().claims[claim]["claim"].split()[0] in before


def test_a_headline_without_a_published_effect_is_an_error_that_names_it(monkeypatch):
    monkeypatch.setitem(forest.HEADLINES, "P41", "score")
    with pytest.raises(ValueError, match="no published effect beside one of settle in P41"):
        forest.split(found())


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


SEARCHES = {  # what a visitor wants to know: the links that lead there from home, and what stands there
    "Does NLPO beat PPO?": (["The claim, tested"], ["P04. NLPO scores higher than PPO"]),
    "The texts of seed 4 without the penalty on real reviews": (
        ["Texts of real reviews without the penalty"],
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
        assert not [url for url in asked if not url.startswith(("file:", "blob:", "data:", "about:"))]

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
