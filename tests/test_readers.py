"""Reports for readers: two sentences, one figure, words for names, one rule elsewhere; what a careful reader sees."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import nbformat
import numpy as np
import pytest

from workbook.figures import about
from workbook.figures.names import everywhere, name, names, spelled
from workbook.figures.parts import compact, short
from workbook.ledger import answer, beside, careful, forest, looks, page, ruling
from workbook.ledger import checks as ledger_checks
from workbook.reports import pages
from workbook.results import design, tables
from workbook.results import results as tables_of
from workbook.results.results import ReportError
from workbook.runs import checks
from workbook.stages import nb
from workbook.stages.page import to_html
from workbook.stages.settling import Settling
from workbook.statistics import paired

pytestmark = pytest.mark.xdist_group("readers")  # tables are read once, not once a worker

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "reports").glob("*/*/verdict.md"))
REPORTS = [p for p in PAGES if "/careful/" not in p]
MARKDOWN = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "reports").rglob("*.md"))
TABLES = ("mini", "full", "imdb", "reviews", "follow_up", "pilot")  # profiles with a table of runs


def read(place: str) -> str:
    return (ROOT / place).read_text(encoding="utf-8")


@cache
def params(profile: str):
    return checks.load(ROOT / ("." if profile == "mini" else f"profiles/{profile}") / "params.yaml")


def ledger(profile: str, report: str) -> list[dict]:
    path = ROOT / f"reports/{profile}/claims/claims.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []
    return [row for row in rows if row["report"] == report]


# every page ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", REPORTS)
def test_a_report_is_title_question_answer_and_one_figure(place):
    head = read(place).split("\n## ")[0]
    title, question, said, shown, *_ = [part for part in head.split("\n\n") if not part.startswith("**MISSING")]
    assert title.startswith("# ") and title.endswith("?") and question.rstrip().endswith((".", "?"))
    assert said.startswith("**Answer.** ") and shown.startswith("![") and head.count("\n![") == 1
    said = said.removeprefix("**Answer.** ")
    assert 1 <= len(re.findall(r"[.!?](?=\s|$)", said)) <= 2, said
    assert len(answer.numbers(said)) <= answer.MOST, said


def by_hand(table: str, groups: answer.Groups) -> list[str]:
    """The numbers of `answer.counted` from the cells of the printed table, "−0.068 [−0.109, −0.027]"."""
    head, _, *lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    said, last = [], 0
    for metric, of, side in groups:
        column = head.index(short(metric))
        cells = {tuple(line[1:]): line for line in lines if line[0].rpartition(" − ")[2].startswith(of)}.values()
        pairs = [tuple(map(float, re.findall(r"-?[\d.]+", line[column].replace("−", "-"))[1:])) for line in cells]
        pairs = [pair for pair in pairs if len(pair) == 2]
        beyond = sum(min(side * low, side * high) > 0 for low, high in pairs)
        said += [str(beyond)] * (beyond > 0) + [str(len(pairs))] * (len(pairs) != last)
        last = len(pairs)
    return said


@pytest.mark.parametrize("profile", TABLES)
def test_every_answer_is_that_of_the_tables_and_of_the_ledger(profile):
    checked = 0
    for report in params(profile).reports:
        found = pages.load(params(profile), report)
        rows = ledger(profile, report) if profile != "pilot" else found.judged[0]
        groups = getattr(found.ablation, "COUNTED", ())
        said = answer.answer(found.headline, rows, beside.elsewhere(rows, ROOT / "reports"), groups=groups)
        text = read(f"reports/{profile}/{report}/verdict.md")
        assert f"\n\n**Answer.** {said}\n\n" in text, report
        table = tables.markdown(pages.headline_table(found))
        assert table in text, report
        checked += 1
        if groups:
            assert answer.numbers(answer.counted(found.headline, groups)) == by_hand(table, groups)[: answer.MOST]
            continue
        label = found.headline[0].label
        row = next(line for line in table.splitlines() if line.startswith(f"| {label} |"))
        for value in answer.numbers(answer.compared(found.headline).split(":", 1)[1].split(", on average")[0]):
            assert value in row, (report, value)
    assert checked == len(params(profile).reports) >= 1


@pytest.mark.parametrize("report", ["kl", "gamma", "warm_start", "budget"])  # of mask, some are of curves of training
def test_a_report_has_the_same_columns_and_intervals_in_every_profile(report):
    kept = {}
    for profile in TABLES:
        if (ROOT / f"reports/{profile}/{report}/verdict.md").is_file():
            text = read(f"reports/{profile}/{report}/verdict.md")
            for part in ("## In numbers", "## Every condition, decoded plain"):
                rows = [line for line in text.partition(part)[2].partition("\n## ")[0].splitlines() if line[:2] == "| "]
                assert len(rows) > 2 and all("[" in row.split("|")[2] for row in rows[2:]), (profile, part)
                kept.setdefault(part, {})[profile] = rows[0]
    assert len(kept["## In numbers"]) >= 2
    assert all(len({*heads.values()}) == 1 for heads in kept.values()), kept


@pytest.mark.parametrize("place", MARKDOWN)
def test_no_report_pastes_the_rule_or_an_old_word_and_there_is_one_minus(place):
    text = read(place)
    if place != "reports/rule.md":
        for part in (ruling.RULE, ruling.WRITTEN):
            assert not any(sentence in text for sentence in part.split(". ")[:3] if len(sentence) > 20)
    if "/synthesis/" not in place:  # which has the words of before, as data
        assert "inconclusive" not in text.lower()
    assert not re.findall(r"\[-\d.{0,30}\]|[\[(, ]-\d+\.\d+[,\]]", text)


def test_the_rule_stands_on_one_page_that_ledgers_and_reports_link():
    rule = read("reports/rule.md")
    assert ruling.RULE in rule and ruling.WRITTEN in rule
    for place in MARKDOWN:
        for link in re.findall(r"\[The rule\]\(([^)]+)\)", read(place)):
            assert ((ROOT / place).parent / link).resolve() == ROOT / "reports/rule.md", place
    judged = [p for p in REPORTS if "No claim of this report was judged" not in read(p)]
    assert len(judged) > 20 and all("[The rule](../../rule.md)" in read(p) for p in judged)


def test_raw_units_come_before_yardsticks():
    text = read("reports/mini/kl/verdict.md")
    head = next(line for line in text.splitlines() if line.startswith("| claim |"))
    assert head.index("here [95 %]") < head.index("in yardsticks [95 %]")
    row = next(r for r in ledger("mini", "kl") if r["id"] == "P01")["components"][0]
    assert f"| {tables.signed(row['difference'], row['low'], row['high'])} probability | " in text


# names ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", [*TABLES, "reviews", "settle", "paper"])
def test_every_run_has_a_name_in_words_and_no_two_the_same(profile):
    found = names(SimpleNamespace(params=params(profile)))
    assert len({*found.values()}) == len(found) and not [said for said in found.values() if "_" in said]
    assert found["zero_shot"] == "untrained"


def test_a_name_says_what_a_run_sets():
    assert name({"algorithm": "ppo", "kl_coef": 0.0}, {}) == "PPO, β = 0"
    assert name({"algorithm": "nlpo", "start": "s"}, {"s": {"algorithm": "supervised"}}) == "NLPO, after supervised"
    masked = {"algorithm": "masked", "mask_rule": "top_p", "mask_value": 0.95, "mask_delay": 5}
    assert name(masked, {}) == "PPO, top-p mask 0.95, delayed"
    many = {"algorithm": "dqn", "head": "logits", "n_step": 24, "explore": "softmax", "double": True}
    assert name(many, {}) == "DQN, logits head, 24-step targets, 2 more settings"
    assert name({**many, "kl_coef": 0.05}, {}) == "DQN, β = 0.05, logits head, 3 more settings"  # β is never left out
    assert name({"algorithm": "ppo", "learning_rate": 0.000025}, {}) == "PPO, learning rate 0.000025"
    twice = SimpleNamespace(params=SimpleNamespace(all_runs={c: {"algorithm": "ppo"} for c in ("a", "b")}))
    assert names(twice) == {"a": "PPO (a)", "b": "PPO (b)"}


def test_no_report_has_a_power_of_ten_for_a_setting():
    """Neither in names of runs nor in the table of settings; of a mask's epsilon, names have the paper's 1e−7."""
    found = pages.load(params("reviews_pilot"), "choices")
    table, same = about.settings(found.results)
    assert "0.000025" in {*table.learning_rate} and not re.search(r"e-\d", f"{table.to_string()} {same}")
    for path in ROOT.glob("reports/*/*/verdict.md"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\d\.\d+e[−-]\d", text), path
        assert not re.search(r"\| \d+e[−-]\d+ \|", text), path


def test_a_sentence_of_the_ledger_has_names_of_runs_before_their_ids():
    of = everywhere(params("imdb"))
    assert {"ppo_target_tiny", "nlpo_kl_0005"}.isdisjoint(params("imdb").all_runs)
    assert spelled("the run ppo_target_tiny; 1 of the runs nlpo_kl_0005 or grpo", of) == (
        "the run PPO, KL target 0.02 (`ppo_target_tiny`); 1 of the runs NLPO, β = 0.005 (`nlpo_kl_0005`) or grpo"
    )
    assert spelled("how far ppo_kl_0 moves distinct_2", of) == "how far PPO, β = 0 (`ppo_kl_0`) moves distinct_2"
    assert spelled("the run grpo beats grpo, the run a_b", {"grpo": "GRPO", "a_b": "PPO (a_b)"}) == (
        "the run GRPO (`grpo`) beats grpo, the run PPO (`a_b`)"
    )


@pytest.mark.parametrize("profile", ["mini", "imdb", "reviews"])
def test_no_table_of_claims_has_a_run_by_its_id_alone(profile):
    of, checked = everywhere(params(profile)), 0
    for report in params(profile).reports:
        claims = read(f"reports/{profile}/{report}/verdict.md").partition("\n## Claims\n")[2].partition("\n## ")[0]
        for cell in (cell for line in claims.splitlines() if line[:2] == "| " for cell in line.split(" | ")):
            assert not {*re.findall(r"\w+_\w+", re.sub(r"`\w+`", "", cell))} & of.keys(), report
            checked += "`" in cell
    assert checked


# answers -------------------------------------------------------------------------------------------------------------


def compared(label: str, values: list[float], metric: str = "score") -> design.Compared:
    return design.Compared(label, metric, paired.one_sample(np.array(values)))


def test_an_answer_of_made_up_rows():
    rows = [compared("A − B", [0.2, 0.3, 0.4]), compared("A − B", [-1.0, 2.0, -2.0], "distinct_2")]
    said = answer.compared([*rows, compared("C − B", [9.0, 9.1, 9.2])])
    assert said == (
        "A minus B: the score (reward model) is 0.300 higher and the distinct-2 is 0.333 lower (within chance), "
        "on average over 3 seeds."
    )
    full = answer.compared([compared("γ = 1 − γ = 0.5", [0.2, 0.3, 0.4]), compared("γ = 1 − γ = 0.5", [1.0, 2.0, 3.0])])
    assert answer.numbers(full) == ["1", "0.5", "0.300"] and full.endswith("over its seeds.")


def test_a_label_with_three_numbers_leaves_no_room_for_a_size():
    rows = [compared("γ = 1, β = 0 − γ = 0.5", [0.2, 0.3, 0.4]), compared("γ = 1, β = 0 − γ = 0.5", [1.0], "judge")]
    said = answer.compared(rows)
    assert said == "γ = 1, β = 0 minus γ = 0.5: the score (reward model) is higher, on average over its seeds."


def test_an_answer_of_all_comparisons_counts_them():
    """A comparison of one seed has no interval, a run under two names counts once, a third group is too many."""
    rows = [
        compared(f"{name} − base", v) for name, v in (("A", [1.0, 1.1, 1.2]), ("B", [1.0, -1.0, 0.5]), ("C", [0.0]))
    ]
    rows += [compared(f"{name} − PPO, β = 0.2", v) for name, v in (("A", [-1.0, -1.1, -1.2]), ("B", [0.1, 0.1, 0.2]))]
    rows += [compared("A − base", [-2.0, -2.1, -2.2], "wobble"), compared("B − base", [-2.0, -2.1, 2.2], "wobble")]
    rows.append(compared("A again − base", [1.0, 1.1, 1.2]))
    groups = (("score", "base", 1), ("score", "PPO", -1), ("wobble", "base", -1))
    said = answer.counted(rows, groups)
    assert said == (
        "By each comparison's own interval, the score (reward model) is higher than base in 1 of 2 comparisons and "
        "lower than PPO in 1 of as many."
    )
    assert "lower than base in 1 of 2 comparisons" in answer.counted(rows, groups[2:])
    assert answer.counted(rows, (("score", "PPO", 1),)).endswith("higher than PPO in none of 2 comparisons.")
    assert answer.counted(rows, (("score", "nothing", 1),)) == answer.counted([], groups) == ""


def test_a_word_is_never_without_its_doubts_and_another_profiles_word_is_told():
    row = {"id": "P01", "word": "holds", "turns": True}
    assert answer.words([row]).endswith("says *holds* of P01 (turns at half the budget).")
    known = {"word": "holds", "profile": "settle", "look": 8, "settled": False, "turns": True}
    other = {"id": "P04", "word": ruling.ELSEWHERE, "registered": known}
    assert answer.words([other]).endswith("of P04 (turns at half the budget, not settled).")
    assert beside.word(other) == "holds (settle, 8 draws, turns at half the budget, not settled)"
    without = [{"id": name, "word": ruling.ELSEWHERE, "lacks": ["4 seeds"]} for name in ("P37", "P23")]
    said = answer.words(without, beside.elsewhere(without, ROOT / "reports"))
    assert said.endswith(
        "the registered design `settle`, on more draws and with runs repeated, says *opposite* of P37."
    )  # of P23 it has no word
    design_of = json.loads(read("reports/settle/claims/claims.json"))["rows"]
    kept = json.loads(read("reports/registered.json"))["settle"]["claims"]
    assert {row["id"]: row["turns"] for row in design_of} == {name: word["turns"] for name, word in kept.items()}


def test_dropout_leads_with_the_mode_of_its_question():
    for profile in ("mini", "full"):
        assert pages.load(params(profile), "dropout").headline[0].label.startswith("Dropout drawn anew"), profile


def test_words_are_the_ledgers_and_a_design_is_named():
    rows = [{"id": "P01", "word": "holds"}, {"id": "P02", "word": "opposite"}, {"id": "P03", "word": "awaiting"}]
    assert answer.words(rows).endswith("the ledger's rule says *holds* of P01 and *opposite* of P02.")
    many = [*rows, *({"id": f"C{i}", "word": "open"} for i in range(9))]
    assert answer.words(many).endswith("*holds* of P01, *opposite* of P02 and *open* of the others.")
    other = {"id": "P04", "word": "not testable here", "registered": {"word": "too small", "profile": "settle"}}
    assert answer.words([other]).endswith(
        "the registered design `settle`, on more draws and with runs repeated, says *too small* of P04."
    )
    assert answer.words(rows[2:]) == answer.UNNAMED and "No claim" in answer.words([])


def test_an_answer_says_why_it_takes_a_word_of_other_draws():
    """By what the claims without a word lack, not by the sentence."""
    other = [{"id": "P04", "word": "not testable here", "registered": {"word": "too small", "profile": "settle"}}]
    for lacks, why in ((["its id in `claims`"], answer.LEFT), (["5 seeds"], answer.FEW)):
        row = {"id": "P04", "word": "not testable here", "lacks": lacks}
        said = answer.words([row], other)
        assert (
            said
            == f"{why}; the registered design `settle`, on more draws and with runs repeated, says *too small* of P04."
        )
    assert answer.words([row], [{**other[0], "registered": {"word": "awaiting", "profile": "settle"}}]) == (
        answer.UNNAMED
    )


def test_without_a_comparison_a_report_of_choices_says_what_was_chosen():
    """Of the profile whose runs do not vary the length: no two of them are in the report's comparison."""
    found = pages.load(params("reviews_pilot"), "choices")
    said = pages.answer(found)
    assert not found.headline and said.startswith(
        "The two rules below chose the learning rates 0.0000125 for PPO and 0.00000625 for GRPO, and β = 0.1."
    )
    assert f"**Answer.** {said}\n" in read("reports/reviews_pilot/choices/verdict.md")
    assert answer.compared([]) == answer.ALONE


def test_numbers_are_told_from_names():
    assert answer.numbers("P01, distinct-2 and top-5: −0.31 [0.2, 3e−04] at 5 seeds") == [
        "−0.31", "0.2", "3e−04", "5",
    ]  # fmt: skip
    assert tables.minus("[-0.03, 2e-04] -> distinct-2, 3-5, x-1") == "[−0.03, 2e−04] -> distinct-2, 3-5, x-1"


# careful readers -----------------------------------------------------------------------------------------------------


def test_stock_phrases_are_read_back_where_they_are_planted():
    results = tables_of.load(params("mini"), ["zero_shot", "ppo_kl_0", "ppo_kl_default", "ppo_kl_large"])
    table = results.per_seed
    for condition, share in {"zero_shot": 0.1, "ppo_kl_0": 0.1, "ppo_kl_default": 0.6, "ppo_kl_large": 0.1}.items():
        rows = table.condition == condition
        table.loc[rows, "shared_5gram"] = share + 0.01 * (table.seed[rows] % 3)
    found = careful.closers(results)
    assert found[0].label == "ppo_kl_default" and found[0].difference.difference == pytest.approx(0.5)
    said = careful.said(results)
    assert (
        said.startswith("1 of 3 trained runs repeat stock phrases")
        and "PPO, β = 0.2: 61 %" in said
        and said.endswith("11 %.")
    )


def test_within_chance_no_run_is_the_worst_and_what_is_no_training_is_not_counted():
    results = tables_of.load(params("mini"), ["zero_shot", "best_of_n_10", "ppo_kl_default", "ppo_kl_large"])
    table = results.per_seed
    for condition in ("zero_shot", "best_of_n_10", "ppo_kl_default", "ppo_kl_large"):
        table.loc[table.condition == condition, "shared_5gram"] = 0.1 + 0.01 * (table.seed % 3)
    assert careful.said(results).startswith("None of 2 trained runs") and "Most of all" not in careful.said(results)
    table.loc[table.condition == "ppo_kl_large", "length"] = 4.0
    again = tables_of.with_settings(results)  # what is computed once is computed anew
    assert careful.said(again).endswith("too few for such a phrase: 1.")
    plain = (table.split == "test") & (table.decoding == "plain")
    for metric in ("score", "distinct_2"):
        theirs = list(table[plain & (table.condition == "ppo_kl_default")][metric])
        table.loc[plain & (table.condition == "ppo_kl_large"), metric] = theirs
    assert [row.label for row in careful.closers(tables_of.with_settings(results))] == ["ppo_kl_default"]


def test_the_commonest_words_by_hand():
    texts = ["buy this film at once .", "go and buy this film at once", "nothing of the kind here"]
    assert careful.commonest(texts) == "“buy this film at once” (2 of 3 texts)"
    assert careful.commonest(["too short"]) == "" and careful.commonest([texts[2]]) == "none twice"


def test_invented_words_by_hand():
    human = ["good film zzz good"] * 100
    rows = careful.invented({"a": ["good blorp", "good film"], "b": ["film"]}, human, frozenset({"good", "film"}))
    assert [(r["condition"], r["texts"], r["words"], r["share"]) for r in rows] == [("a", 2, 4, 0.25), ("b", 1, 1, 0.0)]
    assert rows[0]["human"] == 0.0 and rows[0]["low"] <= 0.25 <= rows[0]["high"]  # two words of each: "good film"


def test_invented_words_are_looked_for_in_texts_of_the_first_seed_alone(tmp_path):
    lines = [{"condition": c, "seed": s, "response": f"{c} {s}"} for c in "ab" for s in (3, 4)]
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert careful.samples(tmp_path) == {"a": ["a 3"], "b": ["b 3"]}


@pytest.mark.parametrize("profile", ["mini", "settle", "imdb", "reviews", "full", "follow_up"])
def test_what_a_careful_reader_sees_is_said_of_the_committed_tables(profile):
    text = read(f"reports/{profile}/careful/verdict.md")
    within = "None of" in text  # of real reviews no run is beyond chance
    real = profile in ("imdb", "reviews")
    told = text.partition("**Answer.** ")[2].partition("\n\n")[0]
    settings = re.compile(r"[βγ] = [\d.]+")  # of a run's name
    assert told.count(". ") + 1 == 1 + real and len(answer.numbers(settings.sub("", told))) <= 3
    assert ("one in a hundred of its others, of the untrained model's" in text) == (not within) == (not real)
    assert "## Stock phrases" in text and ("by 20 texts of one seed" in text) == real
    assert ("## Words that are none" in text) == real
    (alt,) = re.findall(r"!\[(.*)\]\(stock_phrases\.svg\)", text.partition("## Stock phrases")[0])
    assert json.loads(read(f"reports/{profile}/careful/alt.json")) == {careful.PICTURE: alt}
    first = re.search(
        r"^\| (?!run |---)(.*?) \| ([\d.]+) \|", text, re.MULTILINE
    )  # of the table: the picture's first row
    assert f"{first[1]} share sharing a 5-gram {first[2]}" in alt and "Dashed" in read(
        f"reports/{profile}/careful/{careful.PICTURE}.svg"
    )
    if profile in TABLES:
        conditions = dict.fromkeys(c for r in params(profile).reports.values() for c in r.conditions)
        assert text == careful.text(tables_of.load(params(profile), list(conditions)))


def test_of_five_texts_a_draw_no_habit_is_said():
    """The registered design's page is that of its table, whether texts are kept beside it or not."""
    settling = Settling(params("settle"), ledger_checks.load(ROOT / "claims.yaml"))
    first = settling.design.draws[: settling.design.looks[0]]
    kept = careful.samples(settling.params.reports_folder)["ppo_kl_0"]
    assert len(kept) < careful.FEWEST and careful.commonest(kept)
    made = careful.text(tables_of.with_settings(looks.results_of(settling.table, first, settling.params)))
    assert made == read("reports/settle/careful/verdict.md") and "commonest" not in made


def test_tables_of_other_settings_are_refused():
    imdb = params("imdb")
    other = imdb.model_copy(update={"learner": {**imdb.learner, "updates": 7}})
    other._path = imdb.path
    with pytest.raises(ReportError, match="updates is 7, but the committed table is of a run with 40$"):
        tables_of.load(other, ["ppo_kl_0"])


# figures and code ----------------------------------------------------------------------------------------------------


def contrast(claim: str, test: str, decides: bool = True, profiles: int = 1) -> forest.Contrast:
    measured = {f"p{i}": forest.Effect(0.1, 0.0, 0.2, 5) for i in range(profiles)}
    return forest.Contrast(claim, test, decides, forest.Effect(0.3, 0.2, 0.4), measured)


def test_eight_rows_come_first_one_of_each_claim():
    found = [contrast(f"P{i:02}", name, name != "beside") for i in range(6) for name in ("one", "two", "beside")]
    first, rest = forest.halves([*found, contrast("P09", "one", profiles=3)])
    assert len(first) == forest.HEADLINE and len(rest) == 19 - forest.HEADLINE
    assert Counter(c.claim for c in first) == Counter({**{f"P{i:02}": 1 for i in range(6)}, "P09": 1}) + Counter(
        ["P00"]
    )
    assert all(c.decides for c in first) and [c.claim for c in first] == sorted(c.claim for c in first)


def test_what_is_compact_shows_the_same():
    mark = "M 5.00 7.00\nC 5.5 7 6 6.8 6.4 6.4\nC 6.8 6 7 5.5 7 5\nC 7 4.5 6.8 4 6.4 3.6\nC 6 3.2 5.5 3 5 3\n"
    mark += "C 4.5 3 4 3.2 3.6 3.6\nC 3.2 4 3 4.5 3 5\nC 3 5.5 3.2 6 3.6 6.4\nC 4 6.8 4.5 7 5 7\nz\n"
    text = (
        '<svg>\n<g id="a">\n<!-- x -->\n<defs>\n<path id="m1" d="M 0 0" class="k"/>\n'
        '</defs>\n<use xlink:href="#m1"/>\n</g>\n'
        '<g id="b">\n<defs>\n<path id="m2" d="M 0 0" class="k"/>\n</defs>\n<use xlink:href="#m2"/>\n</g>\n<g id="c"/>\n'
        f'<path d="{mark}" class="s"/>\n<text transform="rotate(-0 1.0 2.0)">t</text>\n</svg>\n'
    )
    found = compact(text)
    assert found.count("#i0") == 2 and 'id="i0"' in found and "m2" not in found and found.count("<path") == 1
    assert '<circle cx="5.00" cy="5.00" r="2.00" class="s"/>' in found and "<text>t</text>" in found
    assert "<!--" not in found and "<g" not in found and "</g>" not in found  # no group of these says anything
    cut = text.replace('<g id="b">', '<g clip-path="url(#c7)">').replace('<g id="c"/>', '<clipPath id="c7"/>')
    cut = compact(cut.replace("<svg>\n", "<svg>\n<metadata>\n<a/>\n</metadata>\n"))
    assert cut.count("<g") == cut.count("</g>") == 1 and "metadata" not in cut and compact(cut) == cut
    assert '<g clip-path="url(#i1)">' in cut and '<clipPath id="i1"/>' in cut and cut.count("#i0") == 2
    wide = text.replace("C 7 4.5", "C 9 4.5").replace("7 5\n", "9 5\n", 1)
    assert "<circle" not in compact(wide)


def test_code_is_folded_in_reports_and_shown_in_lessons(tmp_path):
    cells = [nbformat.v4.new_code_cell(f"x = {i}") for i in range(3)]
    cells[0].metadata["tags"], cells[1].metadata["tags"] = ["hide-input"], ["injected-parameters"]
    made = nb.scrub(nbformat.v4.new_notebook(cells=cells))
    assert [c.metadata.get("jupyter") for c in made.cells] == [{"source_hidden": True}] * 2 + [None]
    to_html(made, tmp_path / "page.html", "page")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert text.count("<details") == 2 and len(re.findall(r"<details[^>]*><summary>Code</summary>", text)) == 2
    for notebook in ("ablation", "claims"):
        every = nbformat.read(ROOT / f"notebooks/{notebook}.ipynb", as_version=4).cells
        assert all("hide-input" in c.metadata.tags for c in every if c.cell_type == "code")


def test_a_ledgers_page_links_the_rule():
    rows = json.loads(read("reports/mini/claims/claims.json"))["rows"]
    assert page.markdown(rows) == read("reports/mini/claims/claims.md")


@pytest.mark.parametrize("profile", [*TABLES, "settle"])
def test_a_ledger_says_when_its_rule_was_written(profile):
    if profile != "pilot":
        text = read(f"reports/{profile}/claims/claims.md")
        assert ("was fixed before it judged" in text) == (profile == "settle")
        assert (f"was written after {page.SEEN} had been seen" in text) == (profile != "settle")


@pytest.mark.parametrize("profile", TABLES)
def test_the_learning_rate_of_a_run_is_that_of_its_table(profile):
    results = tables_of.load(params(profile), list(params(profile).all_runs))
    rates = results.per_seed.groupby("condition").learning_rate.first().dropna()
    told = {c: results.configs[c]["learner"].get("learning_rate") for c in rates.index}
    assert told == {c: pytest.approx(rate, rel=1e-5) for c, rate in rates.items()} and len(told) > 15
