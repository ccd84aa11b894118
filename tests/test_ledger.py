"""The ledger's page: its sentences and tables say what the rows say, and the notebook makes it from the runs alone."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import nbformat
import numpy as np
import pytest
from ruamel.yaml import YAML

from workbook.ledger import checks, judge, page, ruling
from workbook.ledger.claim import METRICS, conditions_of
from workbook.results import tidy
from workbook.stages import digests, nb
from workbook.statistics.rule import AGAINST, FOR, OPENS
from workbook.store.tables import write_table

pytestmark = pytest.mark.xdist_group("ledger")  # what it sets up takes seconds: once, not once a worker

ROOT = Path(__file__).resolve().parent.parent


def component(name="t", word="holds", role="decides", **more) -> dict:
    return {
        "name": name,
        "role": role,
        "word": word,
        "unit": "yardsticks",
        "direction": "greater",
        "stated": 0.25,
        "n": 5,
        "n_needed": 9,
        "effect": 0.5,
        "effect_low": 0.3,
        "effect_high": 0.7,
        "published": 0.6,
        "published_low": None,
        "published_high": None,
        "note": "",
        "smaller": False,
        **more,
    }


def row(name: str, word: str, *components: dict, **more) -> dict:
    return {
        "id": name,
        "claim": f"{name} says so.",
        "word": word,
        "half_word": word if components else None,
        "turns": False,
        "seeds": 5,
        "profile": "mini",
        "lacks": [],
        "components": list(components),
        "parts_held": "",
        "p": 0.04 if components else None,
        "q": 0.2 if components else None,
        "assay": {"holds": 0.9, "refuted": 0.8} if components else None,
        **more,
    }


ROWS = [
    row("P01", "holds", component("score"), component("aside", role="beside")),
    row(
        "P02",
        "opposite",
        component("trend", "opposite", effect=-0.5, effect_low=-0.8, effect_high=-0.2),
        turns=True,
    ),
    row(
        "P03",
        "open",
        component("a", "open, leans for", n_needed=1200),
        component("b", "holds, but smaller than stated", smaller=True),
        component(
            "c", "not measured", effect=None, n_needed=None, unit="share of runs", note="no KL in common in seed 2"
        ),
        p=None,
        q=None,
        assay=None,
        parts_held="1 of 3",
    ),
    row("P04", "awaiting", lacks=["dqn", "the task commongen"]),
    row("P05", "not testable here", lacks=["the run x"]),
]


def test_the_answer_is_two_sentences_of_counts_and_names():
    assert page.answer(ROWS) == (
        "Of the 5 claims, in profile mini with n = 5 seeds: 1 holds; 1 opposite; 1 open; 1 awaiting; "
        "1 not testable here. "
        "The evidence goes against P02; at half the training budget P02 reads differently."
    )
    assert page.answer(ROWS[:1]).endswith(
        "against none of them; at half the training budget no verdict reads differently."
    )
    against = [row("P01", "too small"), row("P02", "opposite"), row("P06", "too small")]
    assert "2 too small; 1 opposite. The evidence goes against P01, P02 and P06;" in page.answer(against)
    others = ["holds, but smaller than stated", *("open, leans for",) * 2, *("open, leans against",) * 2]
    said = page.answer([row(f"P{i}", word) for i, word in enumerate(others)])
    assert "1 holds, but smaller than stated; 2 open, leaning for; 2 open, leaning against. " in said
    assert "The evidence goes against none of them;" in said


def test_what_was_decided_shows_published_beside_ours_test_by_test():
    table = page.decided(ROWS)
    assert list(table.columns) == [
        "claim",
        "test",
        "in its unit [95 %]",
        "published",
        "here [95 %]",
        "alone",
        "verdict",
        "at half the budget",
    ]
    assert list(table.claim) == ["**P01** P01 says so.", "**P02** P02 says so.", "**P03** P03 says so.", "", ""]
    assert list(table.test) == ["score", "trend", "a", "b", "c"]
    assert table.loc[0, "published"] == "+0.60" and table.loc[0, "here [95 %]"] == "+0.50 [+0.30, +0.70]"
    assert (
        table.loc[4, "published"] == "+0.60 (share of runs)"
        and table.loc[4, "here [95 %]"] == "no KL in common in seed 2"
    )
    assert list(table.alone[2:]) == ["open, leans for", "holds, but smaller than stated", "not measured"]
    assert list(table.verdict) == ["**holds**", "**opposite**", "**open**", "", ""]
    named = {"tau": " (tau)", "own unit": " (its own unit)", "log ratio": " (log ratio)", "yardsticks": ""}
    shown = {unit: page.decided([row("C16", "holds", component(unit=unit))]).loc[0, "here [95 %]"] for unit in named}
    assert shown == {unit: f"+0.50 [+0.30, +0.70]{said}" for unit, said in named.items()}
    assert list(table["at half the budget"]) == ["holds", "opposite (turns)", "open", "", ""]


def test_every_test_of_a_registered_design_has_its_look_and_the_level_of_its_intervals():
    shapes = {"metric": "score", "difference": 0.1, "low": 0.05, "high": 0.15, "conditions": "a b"}
    shapes |= dict.fromkeys(("p_t", "p_t_holm", "p_t_table", "p_exact"), 0.01)
    more = {"rule": "0" * 64, "p": None, "source": "", "published_text": "", "sentence": "so"}
    rows = [row("P01", "holds", component(**shapes), **more), row("P02", "holds", component(**shapes), **more)]
    looks = [{**each, "look": look, "level": level} for each, look, level in zip(rows, (8, 32), (0.0125, 0.0322))]
    table, usual = page.every_test(looks), page.every_test(rows)
    assert table[f"difference [{page.AT_LOOK}]"].str.startswith("+0.10").all() and "difference [95 %]" not in table
    assert list(table["look"]) == ["8 draws", "32 draws"] and list(table["level"]) == ["0.0125", "0.0322"]
    assert "difference [95 %]" in usual and not {"look", "level"} & {*usual}
    text = page.markdown(looks)
    assert "Intervals are of 1 minus that level (98.75 or 96.78 %)" in text and "Alpha is 0.05 for all looks" in text
    assert page.markdown(rows).endswith("Alpha is 0.05.\n") and page.coverage(rows) == "95 %"


def test_the_committed_ledgers_pages_are_those_of_their_rows():
    for path in sorted((ROOT / "reports").glob("*/claims/claims.json")):
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        assert page.markdown(rows) == path.with_name("claims.md").read_text(encoding="utf-8"), path


def test_what_is_open_names_the_seeds_that_would_settle_it():
    table = page.unsettled(ROWS)
    assert list(table.test) == ["a", "c"] and set(table.claim) == {"P03"}
    assert list(table["seeds that would settle it"]) == ["1,200", "not known"]
    assert list(table["stated beforehand"]) == ["0.25", "0.25 (share of runs)"]


@pytest.mark.parametrize("word", ["open", "open, leans for", "open, leans against"])
def test_every_open_word_is_unsettled_and_no_other_is(word):
    parts = [component("a", word), component("b"), component("c", "too small"), component("aside", word, "beside")]
    assert list(page.unsettled([row("P07", word, *parts)]).test) == ["a"]
    assert not len(page.unsettled([row("P07", "too small", *parts), row("P08", "opposite", *parts)]))


def test_how_sharp_the_tests_are_is_shown_of_what_was_tested():
    several = row("P06", "too small", component("a", "too small"), component("b"), parts_held="1 of 2", p=1.0, q=1.0)
    spread = row("P07", "opposite", component("s", "opposite"), p=0.0004, q=0.0011, assay=None)
    table = page.sharpness([*ROWS, several, spread])
    assert list(table.claim) == ["P01", "P02", "P06", "P07"]  # not P03, of which a part was not measured
    assert list(table["parts that hold"]) == ["1 of 1", "0 of 1", "1 of 2", "0 of 1"]
    assert list(table["p (holds)"]) == ["0.040", "0.040", "1.000", "<0.001"]
    assert list(table.q) == ["0.200", "–", "–", "–"], "beside what holds, and beside nothing else"
    assert list(table["holds, if as stated"]) == ["0.90", "0.90", "0.90", "–"]
    assert list(table["refuted, if nothing is there"]) == ["0.80", "0.80", "0.80", "–"]
    held = [row(f"P{i}", word, component()) for i, word in enumerate(("holds", "holds, but smaller than stated"))]
    assert list(page.sharpness(held)["parts that hold"]) == ["1 of 1", "1 of 1"]
    assert list(page.sharpness(held).q) == ["0.200", "0.200"]
    assert page.text(page.sharpness(ROWS[3:])) == "None."


def test_what_cannot_be_decided_says_what_it_lacks():
    assert page.awaiting(ROWS).to_dict("records") == [
        {"claim": "**P04** P04 says so.", "waits for": "dqn; the task commongen"}
    ]
    assert list(page.elsewhere(ROWS).needs) == ["the run x"]
    assert page.text(page.awaiting(ROWS[:1])) == "None." and "| dqn; the task" in page.text(page.awaiting(ROWS))


# the notebook --------------------------------------------------------------------------------------------------------


def make_run(folder: Path, condition: str, entry: dict, seeds, gain: float) -> None:
    """The files of a run whose every metric lies `gain` above that of the untrained model, up to noise."""
    trained = entry.get("updates") != 0
    rng = np.random.default_rng(len(condition))
    rows = []
    for split in ("test", "half"):
        for decoding in dict.fromkeys(("plain", "top_p", "own", *(entry.get("decodings") or ()))):
            for seed in seeds:
                row = {
                    "condition": condition,
                    "algorithm": entry["algorithm"],
                    "kl_coef": 0.05,
                    "kl_target": 0.0,
                    "updates": 5 * trained,
                }
                row |= {"seed": seed, "split": split, "decoding": decoding}
                row |= {m: 1 + 0.05 * seed + gain + rng.normal() * 0.02 for m in METRICS}
                rows.append({**row, "diverged": int(seed == seeds[0]), "kl_deployed": 0.1 + gain + 0.01 * rng.random()})
    write_table(folder / condition / "per_seed.csv", rows)
    if trained:
        write_table(
            folder / condition / "curves.csv", [{"condition": condition, "seed": s, "update": 1} for s in seeds]
        )
    (folder / condition / "samples.jsonl").write_text("")
    (folder / condition / "config.json").write_text("{}")


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    """The profile mini with five seeds, which are enough for words, and with runs that nobody trained: removing the KL
    penalty does most."""
    folder = tmp_path_factory.mktemp("profile")
    for name in ("params.yaml", "claims.yaml"):
        shutil.copy(ROOT / name, folder / name)
    text = (folder / "params.yaml").read_text(encoding="utf-8")
    assert text.count("[101, 102, 103, 104]") == 2  # seeds and draws
    text = text.replace("[101, 102, 103, 104]", "[1, 2, 3, 4, 5]").replace("draw: 101", "draw: 1")
    (folder / "params.yaml").write_text(text, encoding="utf-8")
    values = YAML(typ="safe", pure=True).load(folder / "params.yaml")
    for i, (condition, entry) in enumerate({**values["runs"], **values["continued"]}.items()):
        gain = 0.0 if condition == "zero_shot" else 1.0 if condition.endswith("_kl_0") else 0.2 + 0.01 * i
        make_run(folder / "runs", condition, entry, values["seeds"], gain)
    assert tidy.main([str(folder / "params.yaml")]) == 0
    return folder, values


def test_the_notebook_judges_the_profiles_claims_from_its_runs(profile, monkeypatch):
    folder, values = profile
    reports = folder / "reports/mini/claims"
    monkeypatch.chdir(folder)
    assert (
        nb.run(str(ROOT / "notebooks/claims.ipynb"), str(reports / "report.ipynb"), {}, str(reports / "report.html"))
        == 0
    )
    found = json.loads((reports / "claims.json").read_text())
    words = {r["id"]: r["word"] for r in found["rows"]}
    assert len(words) == 64 and words["P01"] in FOR and "opposite" in words.values()
    assert {name for name, word in words.items() if word in (*FOR, *AGAINST, *OPENS)} == set(values["claims"])
    made = nbformat.read(reports / "report.ipynb", as_version=4)
    shown = [
        o["data"].get("text/markdown", "")
        for c in made.cells
        if c.cell_type == "code"
        for o in c.outputs
        if "data" in o
    ]
    assert shown[0] == page.answer(found["rows"])
    assert ruling.rule_hash(checks.load(folder / "claims.yaml"))[:12] in shown[1] and ruling.RULE not in shown[1]
    assert all(f"**{name}**" in shown[2] for name in values["claims"])
    sharp = next(text for text in shown if "refuted, if nothing is there" in text)
    assert re.findall(r"^\| ([PCOK]\d\d) ", sharp, re.MULTILINE) == [
        r["id"] for r in found["rows"] if r["p"] is not None
    ]
    raw_first = r"\| nlpo score \| [+−]0\.\d+ \[.*?\] probability \| \+0\.62 \[\+0\.48, \+0\.76\] \| \+0\."
    assert (reports / "forest.svg").exists() and re.search(raw_first, shown[2])
    pages = [o["data"].get("text/html", "") for c in made.cells for o in c.get("outputs", ()) if "data" in o]
    drawn = [page for page in pages if "<img" in page]
    assert [re.match(r'<img src="(\w+).svg" alt="Forest plot of ', page)[1] for page in drawn] == [
        "forest",
        "forest_rest",
    ]


def test_a_missing_run_of_a_listed_claim_stops_the_notebook_and_is_named(profile, tmp_path, capsys, monkeypatch):
    folder, _ = profile
    shutil.copytree(folder, tmp_path / "p")
    shutil.rmtree(tmp_path / "p/runs/ppo_kl_0")
    assert tidy.main([str(tmp_path / "p/params.yaml")]) == 0
    monkeypatch.chdir(tmp_path / "p")
    assert nb.run(str(ROOT / "notebooks/claims.ipynb"), "out.ipynb", {}) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("ClaimError: mini: runs of listed claims have no results: P01 needs ppo_kl_0;")


def test_the_digest_of_the_ledger_covers_what_its_notebook_reads(profile):
    folder, values = profile
    known = checks.load(folder / "claims.yaml")
    compared = {name: (claim.report, conditions_of(claim)) for name, claim in known.items()}
    params = SimpleNamespace(claims=values["claims"], all_runs={**values["runs"], **values["continued"]})
    assert digests.shown(values, compared)["claims"] == judge.runs_of(known, params)
