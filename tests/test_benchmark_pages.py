"""What the benchmark says on the pages of claims, and the pages of what its arms wrote: as in its committed tables."""

from __future__ import annotations

import csv
import dataclasses
import json
import lzma
import re

import pytest
from nltk.tokenize import word_tokenize

from workbook.figures.style import COLORS
from workbook.grue import board, report, settings, tasks
from workbook.grue.pictures import label
from workbook.grue.run import drawn
from workbook.results import tables
from workbook.results.files import TEXTS_OF_A_SEED
from workbook.results.tables import between
from workbook.scores.meteor_stem.meteor_stem import cut
from workbook.site import benchmark, benchmark_texts, board_charts, claim_page, texts

from .site_made import ROOT, found

pytestmark = pytest.mark.xdist_group("site")
RAN = {  # (task, arm) -> its seeds
    (row["task"], row["condition"]): int(row["seeds"])
    for row in csv.DictReader(lzma.open(ROOT / "reports/grue/leaderboard.csv.xz", "rt", encoding="utf-8"))
    if row["kind"] == "model"
}


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
    texts_of = [path.read_text(encoding="utf-8") for path in (ROOT / benchmark_texts.REAL / "draws").glob("*/*.jsonl")]
    drawn = [json.loads(line) for text in texts_of for line in text.split("\n") if line]
    paid = {(str(one["seed"]), tables.number(one["reward"])) for one in drawn}
    nothing = settings.load(ROOT / benchmark_texts.REAL / "params.yaml").meaningless
    for name in found().benchmark:
        text = claim_page.page(found(), name).partition("## On the benchmark\n")[2]
        asked = benchmark.plan(ROOT).tests(name)
        parts = dict(re.findall(r"### ([\w ]+\w).*\n\n((?:.|\n(?!##))+)", text))
        turned, figures, arms, wrote, again = parts.values()
        assert [*parts] == [*TOLD_OF_THE_BENCHMARK], name
        assert all(f"| {test.name} | " in turned for test in asked.values() if test.role == "decides")
        assert all(f"| {label(arm)} |" in arms or f"“{arm}”" in arms for arm in benchmark.named(asked))
        assert "](/reports/grue/hacking.svg)" in figures, name
        assert ("](/reports/grue/ranks.svg)" in figures) == (name in ("P06", "P07", "P09", "P13", "P14", "P33")), name
        lines = [line.strip() for line in wrote.splitlines() if line.startswith("    | ")]
        real = [line for line in lines if re.match(r"\| [123] \| ", line)]
        told = {(cells[1], cells[-2]) for cells in ([cell.strip() for cell in line.split("|")] for line in real)}
        learned = [task for task in benchmark.claims.concerned(list(asked.values())) if task not in nothing]
        assert told <= paid and {seed for seed, _ in told} == ({"1", "2", "3"} if learned else set()), name
        assert "No text" not in wrote and wrote.count(', real rows"') == len(learned), name
        assert f'<span data-task="{benchmark.claims.concerned(list(asked.values()))[0]}"></span>' in figures
        over = benchmark.claims.concerned(list(asked.values()))
        assert all(f"](/{benchmark_texts.place(task)})" in wrote for task in over), name
        policies = {*benchmark.named(asked)}
        generated = [line for line in lines if re.match(r"\| 6 \| ", line)]
        assert len(generated) == report.SHOWN * len([run for run in RAN if run[0] in over and run[1] in policies]), name
        assert "make grue\n" in again and re.search(r"\d+ to \d+ minutes on two cores", again)
        on_the_scale = [test for test in asked.values() if test.column != "metric/words"]
        assert text.count('class="forest-row"') == len(on_the_scale), name
    text = claim_page.page(found(), "P31")
    assert "(supervised + PPO) − (supervised + PPO, METEOR paid), by `metric/parent`, on `totto`" in text
    assert "| supervised | PPO, paid meteor_stem | " in text and "updates `11`" in text
    assert "mean over `common_gen`, `totto` and `narrativeqa`, less that over `cnn_dailymail` and `wmt16`" in (
        claim_page.page(found(), "P13")
    )


TOLD_OF_THE_BENCHMARK = (
    "What would change our mind",
    "The figures",
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


def test_every_arm_and_seed_of_the_benchmark_has_five_texts_on_the_page_of_its_task():
    """The answers to the first test rows, the same of every arm: none is selected."""
    made, pages = benchmark_texts.written(ROOT), benchmark.pages(ROOT, found().benchmark)
    runs: dict[tuple, list[dict]] = {}
    for one in made:
        runs.setdefault((one["task"], one["condition"], one["seed"]), []).append(one)
    assert {run[:2] for run in runs} == {*RAN} and len(runs) == sum(RAN.values())
    assert {len(each) for each in runs.values()} == {TEXTS_OF_A_SEED}
    asked: dict[tuple, set] = {}
    for (task, _, seed), each in runs.items():
        asked.setdefault((task, seed), set()).add(tuple(one["example_id"] for one in each))
    assert all(len(rows) == 1 for rows in asked.values())
    assert {*pages} == {benchmark_texts.place(task) for task, _ in RAN}
    for task, arm in RAN:
        text = pages[benchmark_texts.place(task)]
        part = text.partition(f"\n## {label(arm)}\n")[2].partition("\n## ")[0]
        shown = [[cell.strip() for cell in line.split(" | ")] for line in part.strip().splitlines()[2:]]
        mine = [(one["seed"], one["reward"]) for run, each in runs.items() if run[:2] == (task, arm) for one in each]
        assert [(cells[0].strip("| "), cells[3]) for cells in shown] == [
            (str(seed), tables.number(reward)) for seed, reward in mine
        ]
    assert all(f"](/{page})" in texts.pages(found())[texts.INDEX] for page in pages)


def test_the_page_of_a_task_names_the_claims_tested_on_it():
    pages = benchmark.pages(ROOT, found().benchmark)
    for claim in found().benchmark:
        over = benchmark.claims.concerned(list(benchmark.plan(ROOT).tests(claim).values()))
        there = {place for place, text in pages.items() if f"[{claim}](/claims/{claim}/index.md)" in text}
        assert there == {benchmark_texts.place(task) for task in over}, claim


def test_without_committed_texts_a_page_says_so(tmp_path):
    assert benchmark_texts.section(tmp_path, ["common_gen"], ["ppo"]).startswith("No text of these runs is committed")
    assert benchmark_texts.pages(tmp_path, {}) == {} and benchmark_texts.links(tmp_path) == []


def test_the_chart_of_reward_and_judge_has_a_point_a_seed_and_the_leaderboards_means():
    chart = board_charts.beside(ROOT)[board_charts.PICTURE][board_charts.NAME]
    each, means = (chart["datasets"][name] for name in ("draws", "means"))
    table = list(csv.DictReader(lzma.open(ROOT / "reports/grue/leaderboard.csv.xz", "rt", encoding="utf-8")))
    told = {(r["task"], label(r["condition"]), r["column"]): (float(r["mean"]), int(r["seeds"])) for r in table}
    judged = {(task, run) for task, run, column in told if column == board.JUDGE}
    assert {(row["task"], row["run"]) for row in means} == judged
    for row in means:
        for axis, column in (("x", board.REWARD), ("y", board.JUDGE)):
            mean, seeds = told[row["task"], row["run"], column]
            assert row[axis] == pytest.approx(mean, abs=1e-3) and row["draws"] == seeds
    assert len(each) == sum(row["draws"] for row in means) > 300
    wrote: dict[tuple, str] = {}
    for one in benchmark_texts.written(ROOT):
        wrote.setdefault((one["task"], label(one["condition"]), one["seed"]), one["response"])
    models = board_charts.of_models(each)
    assert {(row["task"], row["run"], row["draw"]) for row in models} == wrote.keys()
    for row in models:
        said = wrote[row["task"], row["run"], row["draw"]]
        assert said.startswith(row["text"].removesuffix(" …")) and row["asked"] and row["how"].startswith("from ")
    assert len(chart["description"]) <= 1200
    color, shape = (chart["layer"][0]["encoding"][look]["scale"] for look in ("color", "shape"))
    look = dict(zip(color["domain"], zip(color["range"], shape["range"])))
    picture = {"zero-shot": (COLORS[0], "circle"), "PPO": (COLORS[1], "square"), "NLPO": (COLORS[2], "triangle-up")}
    assert look.items() >= picture.items()  # as in the picture above it
    pairs = {*look.values()}
    assert len(pairs) == len(color["domain"]) and {*color["domain"]} == {row["line"] for row in each}
    assert chart["params"][0]["bind"]["options"] == list(dict.fromkeys(row["task"] for row in each))


def test_without_committed_numbers_of_seeds_there_is_no_chart(tmp_path):
    assert board_charts.beside(tmp_path) == {}


def test_generated_texts_are_parted_for_meteor_as_they_were_as_one_line():
    """As the page of the five runs says: their full stops stand alone."""
    ours = settings.load(ROOT / "grue" / "params.yaml")
    asked = [each for name in ours.tasks for each in drawn(tasks.task(name), ours.seeds[0], "test", 64)]
    texts_of = {one["response"] for one in benchmark_texts.written(ROOT)} | {r for e in asked for r in e.references}
    assert len(texts_of) > 1000 and [t for t in texts_of if cut(t) != word_tokenize(t, preserve_line=True)] == []
