"""The pages of claims and of findings: their numbers, words and texts are those of the committed tables, and what each
says of tests, runs and commands is so."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from workbook.results.files import SAMPLES, read_text, standing
from workbook.site import (
    build,
    charts,
    claim_page,
    claim_runs,
    committed,
    effects,
    five,
    forest,
    front,
    opening,
    sums,
    text_pages,
    texts,
)

from .lab import SLOWER
from .site_made import ROOT, found

pytestmark = [pytest.mark.xdist_group("site"), pytest.mark.timeout(900 * SLOWER)]  # built once, not once a worker


def test_a_claims_page_shows_each_profiles_numbers_in_their_unit_first(site):
    row = found().ledgers["settle"]["P04"]
    test = next(c for c in row["components"] if c["name"] == "equal beta and decoding")
    text = re.sub(r"<[^>]+>", "", (site / "claims/P04/index.html").read_text(encoding="utf-8"))
    low, high = text.index(effects.raw(test)), text.index(effects.yardsticks(test))
    assert low < high and effects.raw_published(test) in text and "dvc repro runs@" in text
    assert "ppo_kl_default" in text and "What would change our mind" in text
    said = (site / "claims/P01/index.html").read_text(encoding="utf-8")
    assert "reviews, 5 seeds of one base model" in said and "imdb, 5 draws" in said and "reviews, 5 draws" not in said


def test_the_ledgers_page_leads_to_the_page_of_every_claim(site):
    text = (site / "findings/ledger/index.html").read_text(encoding="utf-8")
    linked = re.findall(r'<strong><a href="../../claims/(\w+)/index.html">(\w+)</a></strong>', text)
    assert {*linked} == {(claim, claim) for claim in found().claims} and len(linked) == len(found().claims)


def test_a_claims_page_has_five_texts_of_every_seed_and_run_shown():
    """Of the registered design the first draw's, and a page of its own for each run, with every draw that it has."""
    rows = found().rows("P01")
    text = texts.section(found(), rows)
    assert set(re.findall(r'\?\?\? note "(.+); (\w+), seed (\d+)"', text)) >= {
        *((run, "imdb", str(seed)) for run in ("PPO, β = 0", "NLPO, β = 0") for seed in range(1, 6)),
        *(("PPO, β = 0", "reviews", str(seed)) for seed in range(1, 6)),
        ("PPO, β = 0", "settle", "101"),
    }
    blocks = text.split("???")[1:]
    assert blocks and all(len(re.findall(r"^    \d\. ", block, re.MULTILINE)) == 5 for block in blocks)
    assert (
        f"[PPO, β = 0](/texts/ppo_kl_0/index.md) ({texts.how_many(found(), 'ppo_kl_0')})" in text
        and "settle, seed 102" not in text
    )
    lines = map(json.loads, read_text(standing(ROOT / "reports/mini", SAMPLES)).splitlines())
    first = next(line["response"] for line in lines if line["condition"] == "ppo_kl_0")
    assert committed.safe(" ".join(first.split())) in texts.section(found(), {"mini": rows["mini"]})


def test_a_claims_page_names_the_seeds_that_have_numbers_and_no_text():
    first = {c: [text for text in kept if text.seed == 1] for c, kept in found().texts["imdb"].items()}
    fewer = dataclasses.replace(found(), texts={**found().texts, "imdb": first})
    said = "Of seeds 2, 3, 4 and 5 no text is committed, their numbers are; `dvc repro` of the run in `profiles/imdb`"
    assert said in texts.section(fewer, found().rows("P01"))


OF_DRAW = re.compile(r"^\*\*\[Draw (\d+)(?:, again \((\d)\))?\].*$", re.MULTILINE)


def test_every_run_of_the_registered_design_has_five_texts_of_each_draw_on_its_page():
    """Those of a run's repetitions are on its page."""
    table, pages, there = found().measured["settle"], texts.pages(found()), set()
    for name, runs in text_pages.of_pages(found()).items():
        _, *parts = OF_DRAW.split(pages[text_pages.place(name)])
        for seed, again, block in zip(parts[::3], parts[1::3], parts[2::3]):
            there.add((runs[int(again or 1) - 1], int(seed)))
            assert [*"12345"] == re.findall(r"^(\d)\. ", block, re.MULTILINE), (name, seed, again)
        assert f", {texts.how_many(found(), name)}: " in pages[text_pages.place(name)]
    committed_texts = {(name, text.seed) for name, each in found().texts["settle"].items() for text in each}
    assert there == committed_texts == {*zip(table.condition, table.seed)}
    assert "[P01](/claims/P01/index.md)" in pages["texts/ppo_kl_0/index.md"]
    assert f"- [untrained](/{text_pages.place('zero_shot')})" in pages[texts.INDEX]


def test_every_other_run_on_the_designs_draws_has_its_texts_on_the_page_of_a_report():
    """Each run once, with five of every draw that its table has; and every claim's page leads to those of its runs."""
    pages, kept = texts.pages(found()), text_pages.of_reports(found())
    for profile in committed.SAME:
        lacking = {name for name in found().texts[profile] if name not in found().texts[committed.DESIGN]}
        runs = [name for of in kept.values() if of.profile == profile for name in of.runs]
        assert sorted(runs) == sorted(lacking) and lacking
    for place, of in kept.items():
        parts = re.split(r"^## .* \{ #(\w+) \}$", pages[place], flags=re.MULTILINE)
        told = dict(zip(parts[1::2], parts[2::2]))
        assert [*told] == of.runs
        table = found().measured[of.profile]
        for name, text in told.items():
            draws = {int(seed) for seed in re.findall(r"^\*\*Draw (\d+)\*\*$", text, re.MULTILINE)}
            assert draws == {int(seed) for seed in table[table.condition == name].seed}, name
            assert text.count("\n5. ") == len(draws) and "\n6. " not in text
    of_design = {name: place for place, names in text_pages.of_pages(found()).items() for name in names}
    where = {(of.profile, name): place for place, of in kept.items() for name in of.runs}
    for claim in found().claims:
        page = claim_page.page(found(), claim)
        for profile, row in found().rows(claim).items():
            for name in committed.named_conditions({profile: row}):
                assert (profile, name) not in where or f"](/{where[profile, name]}#{name})" in page, (claim, name)
                if profile in committed.SAME and name in of_design and name in found().texts[profile]:
                    assert f"](/{text_pages.place(of_design[name])})" in page, (claim, name)


def test_a_page_says_of_how_many_of_its_draws_it_has_texts():
    kept = found().texts["settle"]
    fewer = {"settle": {**kept, "ppo_kl_0": kept["ppo_kl_0"][5:]}}  # without the five of its first draw
    assert texts.how_many(found(), "ppo_kl_0") == "32 draws"
    assert texts.how_many(dataclasses.replace(found(), texts=fewer), "ppo_kl_0") == "31 of its 32 draws"


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
    again = "[PPO, β = 0.2, repetition 2](/texts/ppo_kl_default/index.md) (32 draws)"  # on the page of its run
    assert f"a page a run: {again} and " in texts.section(found(), found().rows("K02"))
    assert "[K02](/claims/K02/index.md)" in texts.pages(found())["texts/ppo_kl_default/index.md"]


def test_a_claim_nobody_tested_says_what_it_would_take():
    untested = [name for name in found().claims if not found().rows(name) and name not in found().benchmark]
    assert untested
    for name in untested:
        text = claim_page.page(found(), name)
        assert "**Not tested here.**" in text and "It would take: ." not in text and "## What was found" not in text
        section = text.partition("## What would change our mind\n")[2].partition("\n## ")[0]
        assert all(f"- {lack}\n" in section for lack in found().claims[name]["needs"]), name
    assert "People cannot be asked here." in claim_page.untested(found(), "P08")
    assert "](/reports/grue/claims.md)" in claim_page.untested(found(), "P16")
    assert claim_page.page(found(), "P35").count("What would change our mind") == 1  # the benchmark's


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
        "**[*opposite*](/docs/sure/design.md#the-rule) in `settle`, not settled: +0.053 [0.048, 0.058]"
    )
    words = text.partition("Of its 4 deciding tests (all must hold)")[2].partition(". ")[0]
    assert sum(int(n) for n in re.findall(r"(?:: |; )(\d+) ", words)) == len(deciding) == 4


def test_every_tested_claims_page_opens_with_its_word_and_a_number_that_gave_it():
    """Of every claim by one rule, in its first line: the word leads to its meaning; the number is the row that the
    page's own table has for a deciding test of that word, so of the right test, profile and unit."""
    assert "\n## The rule\n" in (ROOT / opening.RULE[1:].partition("#")[0]).read_text(encoding="utf-8")
    for claim in [name for name in found().claims if found().rows(name) or name in found().benchmark]:
        rows = found().rows(claim)
        name, row = next(((name, row) for name, row in rows.items() if committed.tested(row)), ("", None))
        text = claim_page.page(found(), claim)
        first = text.split("\n\n")[1]
        said = re.match(
            rf"\*\*\[\*(?P<word>[^*]+)\*\]\({opening.RULE}\) (?P<where>on the benchmark|in `\w+`)[^:]*: "
            r"(?P<number>[−+][\d.]+(?: \[[^]]+\])?).*?\.\*\* The number is of \*(?P<test>[^*]+)\*",
            first,
        )
        assert said, (claim, first)
        if row is None:
            table = text.partition("## On the benchmark")[2]
            cells = next(line for line in table.splitlines() if line.startswith(f"| {said['test']} |")).split(" | ")
            assert (said["where"], said["number"]) == ("on the benchmark", cells[2]), claim
            assert f">{said['word']}<" in cells[-1] and said["word"] == found().benchmark[claim].word.iloc[0], claim
            continue
        section = text.partition(f"### {said['test']}\n")[2]
        cells = next(line for line in section.splitlines() if line.startswith(f"| {name}, ")).split(" | ")
        assert (said["word"], said["where"], said["number"]) == (row["word"], f"in `{name}`", cells[2]), claim
        words = {test["name"]: test["word"] for test in committed.deciding(row)}
        assert words[said["test"]] == row["word"] or row["word"] not in words.values(), claim
        assert (", published " in first) == (cells[3] != "–"), claim


def test_a_page_says_in_what_an_effect_is_smaller_that_is_not_so_in_the_metrics_unit():
    said = "yardsticks, how far PPO without the penalty moves that metric: 0.567 here, 0.676 published."
    assert said in claim_page.page(found(), "P01") and "Sizes are judged" not in claim_page.page(found(), "P10")
    smaller = component(word="too small", effect=0.5, difference=0.1, published=1.0)  # in both
    assert effects.smaller_by_its_yardstick(smaller) == ""


def test_a_page_opens_with_what_its_number_is_the_difference_of():
    """All runs of its test, or none: names of runs may have a minus of their own."""
    for claim in found().ledgers["settle"]:
        what = re.search(r"The number is of \*([^*]+)\*: (.+?), in ", claim_page.page(found(), claim))
        written = what and next(test for test in found().claims[claim]["tests"] if test["name"] == what[1])
        if what and what[2] != opening.OF_A_PEAK:
            sides = re.sub(r"\([^()]*\)", "a run", what[2])
            assert sides.count(" − ") + sides.count(" + ") == len(written["terms"]) - 1, claim
    assert sums.bracketed("supervised + PPO") == "(supervised + PPO)"


def test_claims_about_supervised_policies_say_that_their_texts_may_end():
    told = {c for c in found().claims for p, r in found().rows(c).items() if claim_page.supervised(found(), p, r)}
    assert told == {"P09", "P10", "P26", "P27"}
    assert claim_page.page(found(), "P10").split("\n\n").count(claim_page.MAY_END) == 1
    assert claim_page.MAY_END not in claim_page.page(found(), "P20")


def test_claims_about_a_dqn_say_what_it_is_paid():
    assert claim_page.page(found(), "C11").split("\n\n").count(claim_page.KL_PAID) == 1
    assert claim_page.KL_PAID not in claim_page.page(found(), "C10")


def test_a_peak_says_what_its_number_is_and_what_would_turn_it():
    """P18 is opposite with a height above 0: the word is not of that number."""
    page = claim_page.page(found(), "P18")
    assert page.count(claim_page.PEAK) == 2 and claim_page.PEAK not in claim_page.page(found(), "P20")
    turned = "values inside the range that are no longer all shown to lie below one of its ends"
    assert f"| {turned} |" in page and turned not in claim_page.page(found(), "P21")
    assert "p = 0.5 − p = 0.1, decoded as trained" in page  # of `full`, in the closer look


def test_running_a_claim_again_says_what_becomes_of_the_other_tables():
    text = claim_runs.again(found(), found().rows("P04"))
    runs = len(text.partition("dvc repro ")[2].partition("\n")[0].split())
    assert f"These are {runs} of the profile's {len(found().runs['mini'])} runs." in text
    assert "`git checkout reports/mini` brings the committed ones back" in text and "the command says so" in text


def test_the_commands_of_a_claim_make_the_runs_of_all_its_tests_in_every_profile_shown():
    for claim in found().claims:
        rows = found().rows(claim)
        text = claim_runs.again(found(), rows) if rows else ""
        for profile in rows.keys() - {"settle"}:
            part = text.partition(f"**In `{profile}`**")[2].partition("**In `")[0]
            made = {stage.partition("@")[2] for stage in re.search(r"dvc repro ([^)\n]+)", part)[1].split()}
            tested = {t.split("@")[0] for c in rows[profile]["components"] for t in c["conditions"].split()}
            assert tested & found().runs[profile].keys() <= made, (claim, profile)
            assert f"ledger judge profiles/{profile}/params.yaml" in text or not committed.tested(rows[profile]), claim
    text = claim_runs.again(found(), found().rows("P04"))
    assert "runs@mismatch_top_p" in text and " runs@ppo_kl_default_2 " in text  # of a test beside; of a mean
    assert "effects of 4 draws, no words: those are of `settle`, after 8 of its draws" in text
    assert "**In `imdb`**: effects of 5 draws, on the report's pages" in claim_runs.again(found(), found().rows("P01"))


def component(**other):
    zero = {"difference": 0.1, "low": 0.05, "high": 0.15, "effect": 0.2, "effect_low": 0.1, "effect_high": 0.3}
    made = {
        "unit": "yardsticks",
        "metric": "score",
        "direction": "greater",
        "stated": 0.4,
        "word": "holds",
        "yardstick": 0.5,
    }
    return {**zero, **made, "published": None, "published_low": None, "published_high": None, **other}


def test_a_published_effect_is_shown_in_the_metrics_own_unit():
    told = component(published=0.5, published_low=0.2521, published_high=0.7515)
    assert effects.raw_published(told) == "+0.179 [0.090, 0.269]"  # one yardstick: .847 - .489
    assert effects.raw(told) == "+0.100 [0.050, 0.150]"
    assert effects.raw_published(component()) == "" and effects.raw(component(difference=None)) == ""


def test_a_word_whose_interval_includes_the_published_effect_says_by_what_size_it_goes():
    told = component(word="too small", stated=0.0894, published=0.0894, yardstick=0.5, low=-0.024, high=0.035)
    assert effects.another_margin(told) == (
        "includes the published +0.032; *too small* goes by the size stated in yardsticks, 0.045 probability (0.089 "
        "yardsticks) here, where one is 0.500, in the paper 0.358."
    )
    assert not any(effects.another_margin(told | other) for other in ({"high": 0.03}, {"word": "open, leans for"}))
    page = claim_page.page(found(), "P04")
    section = page.partition("### against ppo in its own nucleus\n")[2].partition("\n### ")[0]
    assert "The interval of `settle` includes the published +0.032; " in section
    assert page.count("in the paper 0.358") == 1


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
        (
            "holds, but smaller than stated",
            "greater",
            "an interval that takes in 0, or reaches 0.200 probability (0.4 yardsticks)",
        ),
        ("too small", "greater", "an interval that reaches 0.200 probability (0.4 yardsticks), either way"),
        ("opposite", "greater", "an interval that takes in 0, or lies on the other side of it"),
        ("open", "greater", "more draws: an interval on one side of 0, or inside ±0.200 probability (0.4 yardsticks)"),
        ("holds", "equal", "an interval that leaves ±0.200 probability (0.4 yardsticks)"),
        ("opposite", "equal", "an interval that reaches into ±0.200 probability (0.4 yardsticks)"),
    ],
)
def test_what_would_turn_a_word_is_what_the_rule_says(word, direction, said):
    assert effects.turning(component(word=word, direction=direction)) == said


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


def test_a_result_of_the_front_leads_to_its_own_numbers():
    """A report's page has the same comparison on fewer draws: other numbers, once of another sign."""
    text = (ROOT / "docs/findings/five.md").read_text(encoding="utf-8")
    for row in front.five(found()).splitlines()[2:]:
        _, _, published, here, *_, where, _ = (cell.strip() for cell in row.split("|"))
        page, name = re.fullmatch(r"\[(\w+)\]\(docs/findings/five\.md#\w+\)", where), where[1:4]
        section = text.partition(f"## {name}\n")[2].partition("\n## ")[0]
        assert page and here in section and (published in section or published == "no number"), where


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


def test_a_contrast_is_told_by_its_runs():
    """Positive first; with how texts were drawn where that is not plainly; larger sums and other kinds are not told."""
    called = {"ppo": "PPO", "far": "NLPO, β = 0.8"}
    test = {"terms": {"ppo": -0.5, "far@own": 1.0, "gone": -0.5}}
    assert sums.of(test, called) == "(NLPO, β = 0.8, decoded as trained) − 0.5 PPO − 0.5 `gone`"
    assert sums.of({"terms": {"ppo": 1, "far": -1}, "decoding": "greedy"}, called) == (
        "(PPO, decoded greedily) − (NLPO, β = 0.8, decoded greedily)"
    )
    assert (
        sums.of({"terms": {name: 0.2 for name in "abcde"}}, called) == sums.of({"points": {0.1: "ppo"}}, called) == ""
    )
    page = claim_page.page(found(), "P04")
    assert "*equal beta and decoding*: (NLPO, β = 0.2) − (PPO, β = 0.2), in score" in page.split("\n\n")[1]
    assert "of (NLPO, β = 0.2, decoded as trained) − (PPO, top-p 0.9, decoded as trained); asked beforehand" in page
