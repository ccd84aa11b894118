"""Specification curves, effects across profiles and repeated runs: read from settings, of planted numbers."""

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import sem

from workbook.ledger import checks, looks
from workbook.ledger.claim import Claim, ClaimError
from workbook.results.results import Results
from workbook.statistics.random_effects import random_effects
from workbook.synthesis import across, again, changes, curve, files, forest, machines, page, sources, specification
from workbook.synthesis.sources import Source

ROOT = Path(__file__).parents[1]
ASKED = specification.Question(
    question="does it change?", vary="gamma", pairs=((0.95, 1.0),), metrics=("score",), decodings=("plain", "own")
)
CONTRAST = {"name": "score", "kind": "contrast", "metric": "score", "direction": "greater", "effect": 0.1}
CLAIM = Claim.model_validate(
    {
        "id": "Z01", "claim": "a planted effect", "report": "gamma", "traps": "none", "decided_by": "all",
        "source": {"paper": "none", "section": "1"}, "tests": ({**CONTRAST, "terms": {"hundred": 1, "default": -1}},),
    }
)  # fmt: skip


def planted(
    profile: str, effect: float, fixed: bool = False, task: str = "made", seeds=(1, 2, 3, 4, 5), noise=0
) -> Source:
    """Four conditions: `hundred` (gamma 1) has `effect` more score than `default` (gamma 0.95), which has 0.5; a
    yardstick is 0.25. The own decoding of `hundred` and `default` is the plain one."""
    settings = {"algorithm": "x", "max_new_tokens": 8.0, "min_new_tokens": 8.0 * fixed, "gamma": 0.95, "updates": 3.0}
    settings |= {"kl_coef": 0.05, "kl_target": 0.0}
    known = {
        "zero_shot": {**settings, "updates": 0.0},
        "ppo_kl_0": {**settings, "kl_coef": 0.0},
        "default": settings,
        "hundred": {**settings, "gamma": 1.0},
        "strong": {**settings, "kl_coef": 0.2},
    }
    means = {"zero_shot": 0.25, "ppo_kl_0": 0.5, "default": 0.5, "hundred": 0.5 + effect, "strong": 0.4}
    wobble = np.random.default_rng(noise).normal(0, 0.01, len(seeds))
    rows = [
        {"condition": c, "seed": s, "split": "test", "decoding": d, "score": m + (w if c == "hundred" else 0)}
        for c, m in means.items()
        for d in ("plain", "own")
        for s, w in zip(seeds, wobble)
    ]
    params = SimpleNamespace(
        profile=profile, seeds=seeds, task_name=task, learner={"kl_coef": 0.05}, bring=SimpleNamespace(model=""),
        claims=(), all_runs={c: {} for c in known}, continued={},
        model_dump=lambda mode: dict.fromkeys(sources.WHOLE, task),
    )  # fmt: skip
    results = Results(params, pd.DataFrame(rows), pd.DataFrame(), {}, {}, {}, {}, {}, {})
    return Source(profile, params, results, known, {})


def test_a_curve_finds_its_conditions_by_their_settings():
    rows = specification.curve(ASKED, [planted("a", 0.1), planted("b", -0.05, fixed=True)])
    there = [r for r in rows if r.n]
    assert [(r.profile, r.length, r.first, r.second, r.beta) for r in there] == [
        ("b", "fixed", "hundred", "default", "default"),
        ("a", "free", "hundred", "default", "default"),
    ]  # by effect; the same decoding twice counts once
    assert there[1].effect == pytest.approx(0.4, abs=0.03) and there[1].low < 0.4 < there[1].high
    assert there[0].change == "γ 0.95 → 1" and {r.decoding for r in there} == {"plain"}


def test_cells_that_nobody_ran_are_listed_empty():
    rows = specification.curve(ASKED, [planted("a", 0.1), planted("b", 0.1, fixed=True, task="other")])
    nobody = [r for r in rows if not r.n]
    assert {(r.task, r.length) for r in nobody} == {("made", "fixed"), ("other", "free")}
    table = specification.table(rows)
    assert all(row["effect"] is None and row["n"] is None for row in table[-2:]) and table[0]["effect"] is not None


def again_with(source: Source, **more: float) -> Source:
    """The source with one repetition of each named condition, of so much more score."""
    rows, runs = source.results.per_seed, dict(source.settings)
    for name, extra in more.items():
        own = rows[rows.condition == name]
        rows = pd.concat([rows, own.assign(condition=f"{name}_2", score=own.score + extra)])
        runs[f"{name}_2"] = {**runs[name], "replicate": 1.0}
    params = SimpleNamespace(**{**vars(source.params), "all_runs": runs})
    return replace(source, settings=runs, results=replace(source.results, params=params, per_seed=rows))


def test_a_repetition_is_no_specification_of_its_own_and_counts_in_the_mean():
    source = planted("a", 0.1)
    [single] = [r for r in specification.curve(ASKED, [source]) if r.n]
    [row] = [r for r in specification.curve(ASKED, [again_with(source, hundred=0.06, default=0.02)]) if r.n]
    assert row.difference == pytest.approx(single.difference + 0.03 - 0.01) and (single.runs, row.runs) == (2, 4)
    [row] = [r for r in specification.curve(ASKED, [again_with(source, hundred=0.06)]) if r.n]  # of one end alone
    assert row.difference == pytest.approx(single.difference + 0.03) and row.runs == 3


def test_a_profile_that_has_the_same_runs_without_their_repetitions_adds_none():
    once, twice = planted("a", 0.1), again_with(planted("b", 0.1), hundred=0.06)
    [row] = [r for r in specification.curve(ASKED, [once, twice]) if r.n]
    assert (row.profile, row.runs) == ("a + b", 3)


def test_a_curve_says_where_text_length_is_hardly_an_axis():
    made = [planted("a", 0.1), planted("b", 0.2, fixed=True), planted("c", 0.2, fixed=True, task="other")]
    said = curve.rarer(specification.curve(ASKED, made))
    assert "1 of 3 specifications have free length, all of them with learner x and β default" in said
    assert curve.rarer(specification.curve(ASKED, made[1:])) == ""


def test_the_committed_curve_has_the_ledgers_effect():
    """Of P20 in the design: the same draws, the means of the same repetitions."""
    rows = pd.read_csv(ROOT / "reports/synthesis/P20_specifications.csv")
    here = rows[(rows["first"] == "ppo_gamma_100") & (rows["second"] == "ppo_gamma_095") & (rows["n"] == 32)]
    ledger = pd.read_csv(ROOT / "reports/settle/claims/claims.csv").query("id == 'P20'").set_index("test")
    for metric, test in (("human_log_perplexity", "ppo human perplexity"), ("score", "ppo score the same")):
        [effect] = here.effect[here.metric == metric]
        assert effect == pytest.approx(ledger.effect[test], rel=5e-3)


def test_the_same_numbers_in_two_profiles_are_one_specification():
    made = [planted("a", 0.1), planted("b", 0.1), planted("c", 0.1, noise=1), planted("d", 0.1, task="other")]
    rows = [r for r in specification.curve(ASKED, made) if r.n]
    assert sorted((r.profile, r.n) for r in rows) == [("a + b", 5), ("c", 5), ("d", 5)]  # c: other runs; d: other draws
    made[1].settings["hundred"] = {**made[1].settings["hundred"], "lam": 0.5}  # then they are of other settings
    made[1].settings["default"] = {**made[1].settings["default"], "lam": 0.5}
    assert sorted(r.profile for r in specification.curve(ASKED, made[:2]) if r.n) == ["a", "b"]
    caption = " ".join(curve.drawn("Z01", "does it change?", ["score"], rows).get_supxlabel().split())
    assert "Of 1, two profiles or more hold the same numbers, which count once." in caption


def test_draws_that_a_profile_has_beside_more_count_once():
    small, large = planted("a", 0.1, seeds=(1, 2, 3)), planted("b", 0.1, seeds=(1, 2, 3, 4))
    rows = large.results.per_seed
    first = small.results.per_seed.set_index(["condition", "seed", "decoding"]).score
    rows["score"] = [first.get((r.condition, r.seed, r.decoding), r.score) for r in rows.itertuples()]
    [row] = [r for r in specification.curve(ASKED, [small, large]) if r.n]
    assert (row.profile, row.n) == ("a + b", 4)


def growing(many: int, lost: str) -> Source:
    """`planted` of so many seeds, of which the condition `lost` has the first five, as where a claim is settled."""
    every = planted("settled", 0.1, seeds=tuple(range(1, many + 1)))
    first = planted("settled", 0.1)
    own = {c: run for c, run in every.params.all_runs.items() if c != lost}
    params = SimpleNamespace(**{**vars(every.params), "all_runs": own})
    rows = every.results.per_seed
    some = replace(every.results, params=params, per_seed=rows[rows.condition != lost])
    return replace(first, results=replace(first.results, per_seed=rows[rows.seed < 6]), more=(some,))


def test_a_difference_has_all_draws_of_its_conditions():
    source = growing(9, "strong")
    [row] = [r for r in specification.curve(ASKED, [source]) if r.n]
    assert row.n == 9
    asked = ASKED.replace(vary="kl_coef", pairs=(("default", "none"), ("default", "stronger")))
    found = {r.change: r.n for r in specification.curve(asked, [source]) if r.n}
    assert found == {"β default → 0": 9, "β default → stronger": 5}
    other = planted("b", 0.1, task="other")
    [made] = across.across({"Z01": CLAIM}, [source, other])
    assert [(e.name, e.n, len(e.per_draw)) for e in made.profiles] == [("settled", 9, 9), ("b", 5, 5)]
    [made] = across.across({"Z01": CLAIM}, [growing(9, "ppo_kl_0"), other])  # the yardstick's draws count too
    assert [e.n for e in made.profiles] == [5, 5]


def test_the_committed_effects_have_all_draws_of_the_design():
    """At least as many as the ledger's word of the same test, which is that of the look at which its claim left."""
    from workbook.runs.checks import load

    source = sources.source(load(ROOT / "profiles/settle/params.yaml"))
    assert [len(one.seeds) for one in source.more] == [32, 16, 8] and len(source.results.seeds) == 8
    rows = json.loads((ROOT / "reports/settle/claims/claims.json").read_text())["rows"]
    looks = {row["id"]: row["look"] for row in rows}
    made = pd.read_csv(ROOT / "reports/synthesis/across.csv").query("of == 'settle' and claim in @looks")
    assert len(made) > 50 and (made.n >= made.claim.map(looks)).all()
    assert not (source.of({"zero_shot", "nowhere"}).seeds == source.results.seeds)  # what it never had counts for none


def test_levels_of_the_penalty_are_the_profiles_own():
    asked = ASKED.replace(vary="kl_coef", pairs=(("default", "none"), ("default", "stronger")))
    found = {r.change: r for r in specification.curve(asked, [planted("a", 0.1)]) if r.n}
    assert found["β default → 0"].effect == pytest.approx(0) and found["β default → stronger"].effect < -0.3
    source = planted("a", 0.1)
    source.settings["strong"]["kl_target"] = 0.5
    assert specification.beta(source, "strong") == "adaptive"


def test_no_yardstick_no_effect():
    source = planted("a", 0.1)
    flat = source.results.per_seed.assign(score=lambda t: t.score.where(t.condition != "ppo_kl_0", 0.25))
    row = specification.curve(ASKED, [replace(source, results=replace(source.results, per_seed=flat))])[0]
    assert row.effect is None and row.difference == pytest.approx(0.1, abs=0.01)


def test_a_run_that_broke_down_in_a_seed_has_no_effect_and_stops_nothing():
    """Of the condition: no specification; of the yardstick's: one without an effect in yardsticks."""
    source = planted("a", 0.1)
    rows = source.results.per_seed

    def curve(condition: str):
        lost = rows.assign(score=rows.score.where((rows.condition != condition) | (rows.seed != 2)))
        return specification.curve(ASKED, [replace(source, results=replace(source.results, per_seed=lost))])

    assert all(row.n == 0 for row in curve("hundred"))
    (row, *_) = curve("ppo_kl_0")
    assert row.n == 5 and row.effect is None


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"metrics": ["scor"]}, "no metric is called 'scor'"),
        ({"decodings": ["plane"]}, "no decoding is called 'plane'"),
        ({"metrics": ["repetition"]}, "repetition has no yardstick"),
        ({"pears": []}, "pears"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path, entry, said):
    whole = {"question": "does it change?", "vary": "gamma", "pairs": [[0.5, 1]], "metrics": ["score"]}
    (tmp_path / "s.yaml").write_text(json.dumps({"P99": {**whole, "decodings": ["plain"], **entry}}))
    with pytest.raises(ClaimError, match="P99") as error:
        specification.load(tmp_path / "s.yaml")
    assert said in str(error.value)


def test_the_committed_questions_are_of_claims():
    assert set(specification.load(ROOT / "specifications.yaml")) <= set(checks.load(ROOT / "claims.yaml"))


def test_rows_of_other_settings_are_seen():
    rows = pd.DataFrame({"decoding": ["plain"], "seed": [1], "kl_coef": [0.05], "updates": [25],
                         "decoding_record": ["max_new_tokens=24, min_new_tokens=0"]})  # fmt: skip
    own = {"kl_coef": 0.05, "updates": 25.0, "max_new_tokens": 24.0, "min_new_tokens": 0.0}
    assert sources.otherwise(rows, own, [1]) == ""
    assert sources.otherwise(rows, {**own, "min_new_tokens": 24.0}, [1]) == "min_new_tokens 0"
    assert sources.otherwise(rows, {**own, "kl_coef": 0.2}, [1]) == "kl_coef 0.05"
    assert sources.otherwise(rows, own, [1, 2]) == "seeds 1"


def test_draws_that_chose_settings_do_not_count(tmp_path):
    (tmp_path / "per_seed.csv").write_text("")
    params = SimpleNamespace(
        task=SimpleNamespace(name="imdb"), seeds=(1, 2), profile="a", claims=("P01",), reports_folder=tmp_path
    )
    assert sources.counts(params) and not sources.counts(params, ["a"])
    assert not sources.counts(SimpleNamespace(**{**vars(params), "claims": ()}))
    assert not sources.counts(SimpleNamespace(**{**vars(params), "reports_folder": tmp_path / "none"}))


def test_runs_of_one_study_count_once():
    made = [planted("a", 0.1, noise=1), planted("again", 0.1, noise=2), planted("c", -0.1, task="other", noise=3)]
    [row] = across.across({"Z01": CLAIM}, made)
    assert [(e.name, e.study) for e in row.profiles] == [("a", 1), ("again", 1), ("c", 2)]
    assert [(e.name, e.n) for e in row.studies] == [("a + again", 5), ("c", 5)]
    each = [list(e.per_draw.values()) for e in row.profiles]
    assert row.studies[0].value == pytest.approx(np.mean(each[:2]))
    assert row.pooled.k == 2 and row.pooled.tau2 == pytest.approx(0.32, abs=0.05)
    assert [r["of"] for r in across.table([row])] == ["a", "again", "c", "all"]


def test_a_planted_claim_is_not_pooled():
    made = [planted("a", 0.1, noise=1), planted("c", -0.1, task="other", noise=3)]
    known = {"K01": CLAIM.model_copy(update={"id": "K01"}), "Z01": CLAIM}
    assert [row.claim for row in across.across(known, made)] == ["Z01"]
    committed = pd.read_csv(ROOT / "reports/synthesis/across.csv")
    assert not committed.claim.str.startswith("K").any()


def test_more_draws_of_one_study_widen_it_by_draws():
    [row] = across.across({"Z01": CLAIM}, [planted("a", 0.1), planted("more", 0.1, seeds=(5, 6, 7))])
    assert row.pooled is None and row.studies[0].n == 7  # draw 5 once


def test_other_settings_on_the_same_draws_are_not_pooled():
    [row] = across.across({"Z01": CLAIM}, [planted("a", 0.1), planted("b", 0.1, fixed=True)])
    assert len(row.studies) == 2 and row.pooled is None and row.note == across.SHARED


def test_a_claim_about_length_takes_a_profile_of_the_length_that_its_test_means():
    """`hundred` against `default` at fixed length, and a run of free length beside: a profile whose runs of the same
    names may end says nothing of the first."""
    home, other, like = planted("home", 0.1, fixed=True), planted("free", -0.4, task="b"), planted("c", 0.2, True, "c")
    home.settings["free_run"] = {**home.settings["default"], "min_new_tokens": 0.0}
    tests = [
        CLAIM.tests[0],
        CLAIM.tests[0].model_copy(update={"name": "free", "terms": {"free_run": 1, "default": -1}}),
    ]
    claim = CLAIM.model_copy(update={"tests": tests})
    home.params.claims = (claim.id,)
    [row] = across.across({claim.id: claim}, [home, other, like])
    assert [e.name for e in row.profiles] == ["home", "c"]
    [row] = across.across({CLAIM.id: CLAIM}, [home, other, like])  # one that is not about length takes all
    assert [e.name for e in row.profiles] == ["home", "free", "c"]


def test_figures_say_what_they_show(tmp_path):
    made = [planted("a", 0.1, noise=1), planted("c", -0.1, task="other", fixed=True, noise=3)]
    rows = specification.curve(ASKED, made)
    picture = curve.drawn("Z01", "does it change?", ["score"], rows)
    assert "free length: 1 specification, 1 above 0" in picture.get_label()
    drawn = [line for line in picture.axes[0].lines if line.get_gid() in ("free", "fixed")]
    assert sorted(y for line in drawn for y in line.get_ydata()) == sorted(r.effect for r in rows if r.n)
    text = files.keep(picture, tmp_path, "curve").read_text()
    assert "never run (2 cells" in text and "no word is taken" in " ".join(text.split())
    whole = forest.drawn("Z01", "planted", across.across({"Z01": CLAIM}, made))
    assert "a +0.4" in whole.get_label() and "τ²" in whole.get_label()
    assert set(json.loads((tmp_path / "alt.json").read_text())) == {"curve"}


def test_a_tight_picture_keeps_its_strokes():
    zero = '<path d="M 10.12 20.46 \nL 10.12 30.96"/>\n'
    assert files.tight(zero + '<path d="M 1.0 2.0 "/>\n') == '<path d="m10.1 20.5v10.5"/>\n'
    two = '<path d="M 10.12 20.46 \nL 10.12 30.96 \nM 12.0 31.46 \nL 12.0 21.0"/>\n'
    assert files.tight(two) == '<path d="m10.1 20.5v10.5m1.9 0.5v-10.5"/>\n'  # the second from the end of the first
    text = '<g id="line2d_3">\n<path d="M 10.123 20.456 \nL 10.123 30.96 \nL 12.04 3.0" x="1.26"/>\n</g>'
    assert files.tight(text) == '<path d="M10.1 20.5L10.1 31L12 3" x="1.3"/>\n'


def test_repeated_runs_of_the_same_draws():
    """The committed extract: three runs, the same tests on each, and a table that adds up."""
    out = ROOT / "reports/synthesis"
    params = SimpleNamespace(bring=SimpleNamespace(model=""), model_copy=lambda update: SimpleNamespace(
        **update, all_runs=update["runs"], bring=SimpleNamespace(model="")))  # fmt: skip
    again = machines.runs(out, params)
    known = checks.load(ROOT / "claims.yaml")
    assert list(again) == list(machines.COMMITS) and all(len(r.seeds) == 5 for r in again.values())
    rows = machines.said({name: known[name] for name in ("P20",)}, again)
    assert len(rows) == len(known["P20"].deciding) and all(len(row.effects) == 3 for row in rows)
    found = machines.table(rows, again)[0]
    commits = list(machines.COMMITS)
    effects = [found[f"effect {c}"] for c in commits]
    assert found["largest difference"] == pytest.approx(max(effects) - min(effects))
    parts = {(p["metric"], p["decoding"]): p for p in machines.parts(known, again, out)}
    score = parts["score", "plain"]
    assert score["total"] == pytest.approx(score["draw"] + score["run within a draw"])
    assert 0 < score["share of evaluation"] < 1 and parts["human_log_perplexity", "plain"]["evaluation"] is None


def test_answers_are_extracted_from_the_commit_of_their_table(tmp_path):
    """What stands in the working tree is of another edition by then, and may be packed."""
    here = {**os.environ, "GIT_AUTHOR_DATE": "2026-11-23T12:00:00", "GIT_COMMITTER_DATE": "2026-11-23T12:00:00"}
    here |= {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", tmp_path, *words], env=here, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    folder = tmp_path / "reports/mini"
    folder.mkdir(parents=True)
    rows = [(c, s, 0.1 * s + k) for c, k in (("default", 0.0), ("hundred", 0.5)) for s in (1, 2)]
    table = pd.DataFrame(rows, columns=["condition", "seed", "score"]).assign(decoding="plain", split="test", prompts=2)
    table.assign(**dict.fromkeys(machines.SETTINGS, 1.0)).to_csv(folder / "per_seed.csv", index=False)
    answers = [{"condition": c, "seed": s, "example_id": i, "score": k + i} for c, s, k in rows for i in (0, 1)]
    (folder / "samples.jsonl").write_text("\n".join(map(json.dumps, answers)))
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "runs")):
        git(*words)
    (folder / "samples.jsonl").write_text(json.dumps({**answers[0], "score": 9.0}))
    tests = (CLAIM.tests[0].model_copy(update={"yardstick": ("hundred", "default")}),)
    commits = {git("rev-parse", "--short", "HEAD"): "2026-11-23"}
    machines.extract(tmp_path, {"Z01": CLAIM.model_copy(update={"tests": tests})}, tmp_path / "out", commits)
    found = pd.read_csv(tmp_path / "out" / machines.PROMPTS, index_col="condition")
    assert found.loc["hundred"].tolist() == [0.6, 1.6] and found.loc["default"].tolist() == [0.1, 1.1]


def test_the_page_names_every_picture():
    text = (ROOT / "reports/synthesis/synthesis.md").read_text()
    alts = json.loads((ROOT / "reports/synthesis/alt.json").read_text())
    for path in (ROOT / "reports/synthesis").glob("*.svg"):
        assert f"({path.name})" in text and alts[path.stem]
    assert page.HEAD in text


# what changed ----------------------------------------------------------------------------------------------------
TEST = {"name": "score", "terms": {"nlpo_p_100": 1, "zero_shot": -1}, "effect": "half"}


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ([TEST], "same"),
        ([{**TEST, "terms": {"ppo_kl_default": 1, "zero_shot": -1}}], "same"),  # the same runs under their other name
        ([TEST, {**TEST, "name": "more", "role": "beside"}], "same"),
        ([{**TEST, "effect": "published"}], "stated effect"),
        ([{**TEST, "terms": {"nlpo_p_070": 1, "zero_shot": -1}}], "tests"),
        ([TEST, {**TEST, "name": "more"}], "tests"),
        ([{**TEST, "role": "beside"}], "tests"),
    ],
)
def test_what_became_of_a_claims_tests(new, said):
    assert changes.compared([TEST], new) == said


def test_each_change_of_a_word_has_the_step_that_made_it(tmp_path):
    words = {
        "Z01": ("open", "too small", "too small", "same"),
        "Z02": ("open", "open, leans for", "holds", "stated effect"),
        "Z03": ("holds", "opposite", "open", "tests"),
        "Z04": ("awaiting", "not testable here", "not testable here", "same"),
        "Z05": ("holds", "holds, but smaller than stated", "holds", "tests"),
        "Z06": ("not testable here", "not testable here", "holds", "new claim"),
        "Z07": ("not testable here", "open", "open", "new claim"),
        "Z08": ("open", "holds", "not testable here", "same"),  # no longer listed, and the design has it
        "Z09": ("holds", "holds", "not testable here", "same"),  # no longer listed
        "Z10": ("holds", "holds", "not testable here", "same"),  # listed: it lacks seeds
    }
    out = tmp_path / "reports/synthesis"
    changes.write_table(
        out / "before.csv",
        [
            {"id": i, "profile": profile, "before": a, "judged_again": b, "tests": t}
            for profile in ("mini", "other")
            for i, (a, b, _, t) in words.items()
        ],
    )
    early = {"Z02": "open", "Z03": "opposite", "Z05": "too small", "Z06": "open"}
    changes.write_table(
        out / "first_five.csv",
        [{"id": i, "profile": "settle" if i == "Z03" else "mini", "word": word} for i, word in early.items()],
    )
    lacks = {"Z08": ["its id in `claims`"], "Z09": ["its id in `claims`"], "Z10": ["at least 5 seeds (here 4)"]}
    rows = [
        {"id": i, "word": now, "turns": i == "Z02", "lacks": lacks.get(i, [])} for i, (_, _, now, _) in words.items()
    ]
    registered = [{"id": "Z01", "word": "opposite", "look": 8, "settled": True},
                  {"id": "Z03", "word": "open", "look": 16, "settled": False}]  # fmt: skip
    elsewhere = {"id": "Z08", "word": "holds", "look": 8, "settled": True}
    for profile, found in (("mini", rows), ("other", rows), ("settle", [*registered, elsewhere])):
        path = tmp_path / "reports" / profile / "claims/claims.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"rows": found}))
    assert "(changes.md)" in changes.write(tmp_path, {i: CLAIM for i in words}, out)
    head, mini, other = (out / "changes.md").read_text().split("\n## ")
    assert cells_of(mini) == {
        "Z01": ["open", "too small", "–", "opposite (8 draws)", "rule and settings and draws"],
        "Z02": ["open", "open, leans for", "open", "holds (turns at half the budget)", "draws"],
        "Z03": ["holds", "opposite", "opposite", "open (16 draws, not settled)", "rule and tests and draws"],
        "Z05": ["holds", "holds, but smaller than stated", "too small", "holds", "settings and draws"],
        "Z06": ["not tested", "not tested", "open", "holds", "new claim and draws"],
        "Z07": ["not tested", "open", "–", "open", "new claim"],
        "Z08": ["open", "holds", "–", "holds (8 draws)", "rule"],
        "Z09": ["holds", "holds", "–", "not listed", "no longer listed here"],
        "Z10": ["holds", "holds", "–", "not tested", "settings and draws"],
    }  # Z04: nobody tested it
    assert "The words of 7 of 9 claims changed their kind on the way: 2 by draws; 2 by settings and draws;" in mini
    assert " Z05 ended as they began." in mini
    assert "1 of them are no longer listed here. 2 of them are new." in mini and "no step turned a word" in head
    left = cells_of(other)
    assert left["Z01"][2:] == ["–", "too small", "rule"]
    assert left["Z08"] == ["open", "holds", "–", "not listed", "rule and no longer listed here (its word is in settle)"]
    assert "2 of them are no longer listed here." in other


def cells_of(text: str) -> dict[str, list[str]]:
    return {line[2:5]: [c.strip() for c in line.split("|")[2:-1]] for line in text.splitlines() if line[2:3] == "Z"}


def test_draws_that_another_profile_ran_too_are_compared():
    design, other = planted("settled", 0.1), planted("a", 0.1)
    assert again.sentence(design, planted("b", 0.1, task="other")) == ""  # other texts
    assert again.sentence(design, planted("b", 0.1, seeds=(11, 12, 13))) == ""
    assert "run 5 draws of settled again: of 50 numbers that both tables have, 0 differ" in again.said(design, [other])
    table = other.results.per_seed
    table.loc[(table.condition == "strong") & (table.seed == 2), "score"] += 1e-5
    assert "2 differ in seven digits (`strong`)" in again.sentence(design, other)
    assert "| a second run |" in again.sentence(design, other)
    other.settings["strong"] = {**other.settings["strong"], "gamma": 0.5}  # then it is another run
    assert "of 40 numbers that both tables have, 0 differ" in again.sentence(design, other)


def test_how_far_a_second_machine_is_apart_is_told_beside_the_draws():
    """Three conditions, four draws: the second run is the first and a step up or down; hand-worked. Nothing was trained
    in the third, and the judge says the same twice."""
    draws, step = np.array([0.0, 0.1, 0.2, 0.3]), np.array([0.2, -0.1, 0.1, -0.1])
    frames = []
    for name, base, change in (("a", 0.0, step), ("b", 0.5, 2 * step), ("zero_shot", 0.2, 0 * step)):
        about = {"condition": name, "seed": [1, 2, 3, 4], "split": "test", "decoding": "plain", "judge": draws}
        scores = {"score": base + draws, "score_again": base + draws + change, "judge_again": draws}
        frames.append(pd.DataFrame({**about, **scores}))
    (line,) = again.apart(pd.concat(frames)).to_dict("records")
    mean_square = (0.04 + 3 * 0.01) / 4
    runs = np.sqrt([mean_square / 2, 4 * mean_square / 2])
    over = [np.sqrt((np.var(draws, ddof=1) + np.var(draws + k * step, ddof=1)) / 2) for k in (1, 2)]
    assert (line["conditions"], line["largest run to run"]) == (2, f"{runs[1]:.3f} (`b`)")
    assert (line["a second run"], line["over draws"]) == (f"{runs.mean():.3f}", f"{np.mean(over):.3f}")
    assert line["share"] == f"{np.mean((runs / over) ** 2):.0%}"
    assert line["shift"].startswith("+0.038 [")  # of .025 and .05


def test_each_deciding_test_is_made_on_the_draws_that_both_have():
    found = {s.profile: s for s in sources.sources(ROOT)}
    design, other = found["settle"], found["mini"]
    rows = {(r["claim"], r["test"]): r for r in again.by_test(checks.load(ROOT / "claims.yaml"), design, other)}
    row, seeds = rows["P01", "ppo score"], [101, 102, 103, 104]
    for name, reports in (("difference", "settle/draws.csv.xz"), ("again", "mini/per_seed.csv")):
        table = pd.read_csv(ROOT / "reports" / reports)
        table = table[(table.split == "test") & (table.decoding == "plain") & table.seed.isin(seeds)]
        wide = table.pivot_table(index="seed", columns="condition", values="score")
        again_of = [c for c in wide if re.fullmatch(r"ppo_kl_default(_\d+)?", c)]
        with_penalty = wide[again_of].mean(axis=1)
        assert row[name] == pytest.approx((wide["ppo_kl_0"] - with_penalty).mean())
    assert len(other.results.seeds) == 4 and ("P18", "best inside the range") in rows
    said = again.of_tests([{**row, "again": -row["difference"], "effect again": row["effect"] - 2}], design, other)
    assert "on the same 4 draws, of settle and of mini" in said
    assert "of 1 tests of 1 claims, 1 have an effect of another sign (P01 ppo score)" in said
    assert "the design's words of these are 1 holds, but smaller than stated" in said
    assert "differ by 2.000 (median)" in said


def test_the_end_of_a_pipeline_tells_of_committed_rows_of_the_same_draws():
    """Of this repository's own tables: `mini` runs the first draws of `settle`, `imdb` draws of its own."""
    told = again.told(ROOT / "params.yaml")
    assert (
        told.startswith("The profile mini has run 4 draws of settle again: of ") and " differ in seven digits" in told
    )
    assert again.told(ROOT / "profiles/imdb/params.yaml") == again.told(ROOT / "profiles/settle/params.yaml") == ""


def test_the_committed_page_of_changes_is_that_of_the_committed_ledgers(tmp_path):
    for name in ("before.csv", "first_five.csv"):
        (tmp_path / name).write_text((ROOT / "reports/synthesis" / name).read_text())
    changes.write(ROOT, checks.load(ROOT / "claims.yaml"), tmp_path)
    assert (tmp_path / "changes.md").read_text() == (ROOT / "reports/synthesis/changes.md").read_text()


def test_a_word_that_more_draws_turned_is_told_from_one_that_settings_did(tmp_path):
    """P07 and P25 are open on the design's first five draws, by today's settings and rule: what settled them is n."""
    from workbook.runs.checks import load

    known, rows = checks.load(ROOT / "claims.yaml"), looks.results(load(ROOT / "profiles/settle/params.yaml"))
    design = Source("settle", rows.params.model_copy(update={"claims": ("P07", "P25")}), rows, {}, {}, True)
    few = rows.params.model_copy(update={"seeds": (101, 102)})  # which are not five
    changes.first_five(known, [design, Source("few", few, replace(rows, params=few), {}, {})], tmp_path)
    made, committed = (pd.read_csv(folder / "first_five.csv") for folder in (tmp_path, ROOT / "reports/synthesis"))
    assert dict(zip(made.id, made.word)) == {"P07": "open, leans against", "P25": "open, leans for"}
    assert len(made.merge(committed)) == len(made)
    lines = (ROOT / "reports/synthesis/changes.md").read_text().splitlines()
    shown = [next(line for line in lines if line.startswith(f"| {name} ")) for name in made.id]
    assert all(line.endswith("| draws |") for line in shown)


def test_studies_are_pooled_by_the_standard_errors_of_their_means():
    made = [planted("a", 0.1, noise=1), planted("c", 0.08, task="other", seeds=(1, 2, 3), noise=3)]
    [row] = across.across({"Z01": CLAIM}, made)
    each = [list(effect.per_draw.values()) for effect in row.studies]
    expected = random_effects([np.mean(v) for v in each], [sem(v) ** 2 for v in each])
    assert (row.pooled.q, row.pooled.low) == pytest.approx((expected.q, expected.low))
    assert expected.q > 0.1
