"""The ablation reports on synthetic results whose truth is planted: is what they say computed, and is all of it there?"""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML

import rlnlp.config
from rlnlp import ablation_report, ablations, answers, stats
from rlnlp.results import ReportError
from rlnlp.runs import atomic_json, write_table
from rlnlp.tables import signed

ROOT = Path(__file__).resolve().parent.parent
WORDS = "the film was a slow but warm story about two brothers and i liked the music more than the plot".split()


def truth(run, learner, decoding: str) -> dict[str, float]:
    """Mean of each metric for a run as it is configured: smooth in what the ablations vary, and different for each."""
    trained = learner.get("updates", 0) > 0 or run["algorithm"] == "best_of_n"
    beta, gamma = learner.get("kl_coef", 0.05), learner.get("gamma", 0.99)
    p = learner.get("mask_top_p", learner.get("top_p", 1.0))
    push = trained * (0.3 if run["algorithm"] in ("supervised", "filtered") else 1.0) * (0.5 + gamma / 2)
    kl = push * {0.0: 2.5, 0.02: 0.7, 0.05: 0.4, 0.2: 0.12}[beta]
    rate = learner.get("rate", 0.0)
    sharp = {
        "plain": 0.0,
        "top_p": 0.02,
        "own": 0.03 * (p < 1),
        "greedy": 0.05,
        "beam": 0.04,
        "top_k": 0.01,
        "temperature": 0.02,
    }[decoding]
    data = {"reward": 1.0, "reward_50": 0.9, "reward_10": 0.6, "reward_0": 0.0}[run["reward"]] * learner.get(
        "data_fraction", 1.0
    ) ** 0.2
    start = 0.5 - 0.1 * (run["vocabulary"] > 0)
    score = (
        start + 0.3 * data * (1 - math.exp(-2 * kl)) + sharp - 0.05 * (p < 0.5) - rate / 4 + 0.05 * bool(run["start"])
    )
    return {
        "score": score, "score_response": score, "training_score": score, "judge": 0.5 + 0.3 * data * kl * math.exp(-kl) + sharp,
        "judge_2": 0.5 + 0.25 * data * kl * math.exp(-kl), "generation_log_perplexity": 1.9 + 0.9 * max(0, kl - 0.5) - 4 * sharp,
        "human_log_perplexity": 1.95 + 0.3 * kl, "kl": kl, "kl_deployed": kl, "distinct_2": 0.5 - 0.1 * kl, "msttr": 0.5, "entropy_2": 7.0,
        "length": 20.0, "repetition": 0.05, "terminated": 0.5,
    }  # fmt: skip


def of_training(run, learner, rng) -> dict[str, float | None]:
    rate = learner.get("rate", 0.0)
    if not learner.get("updates") or run["algorithm"] in ("supervised", "filtered"):
        return dict.fromkeys(
            ("first_ratio_error", "clip_fraction", "approx_kl", "gradient_norm", "wobble", "drop", "diverged")
        )
    error = rate * 3 * (learner["mode"] != "same") if rate else 0.0
    return {
        "first_ratio_error": (error or 2e-6) * float(rng.lognormal(0, 0.2)), "clip_fraction": 0.06 + rate + rng.normal(0, 0.003),
        "approx_kl": 0.01 + rate / 10, "gradient_norm": 0.9 + 0.001 * (run["vocabulary"] or 700) + rng.normal(0, 0.05),
        "wobble": 0.02 + 0.01 * rng.uniform() + 0.02 * (run["vocabulary"] == 0), "drop": 0.01 + 0.01 * rng.uniform(),
        "diverged": float(rate >= 0.2 and rng.uniform() < 0.4),
    }  # fmt: skip


def curve(run, learner, score: float, rng) -> list[dict]:
    rows, rate = [], learner.get("rate", 0.0)
    source, every = learner.get("mask_source"), learner.get("sync_every", 10**6)
    for update in range(1, min(25, learner.get("updates", 0)) + 1):
        synced = source not in (None, "initial") and (update - 1) % every == 0
        value = 0.5 + (score - 0.5) * (1 - math.exp(-update / 6)) - 0.06 * (synced and update > 1) + rng.normal(0, 0.01)
        rows.append({"update": update, "objective/score": value, "objective/kl": 0.02 * update, "nlpo/synced": float(synced) if source else None,
                     "policy/first_ratio_error": (rate * 3 or 2e-6) * float(rng.lognormal(0, 0.3))})  # fmt: skip
    return rows


def make(folder: Path, profile: str = "full", seeds=(1, 2, 3, 4, 5), shift=None, leave_out=()) -> Path:
    """A profile's folder with results of every run in the pipeline's schema; returns its params.yaml.

    shift: {(condition, metric): what is added to the truth}; leave_out: conditions whose runs are not there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    yaml = YAML(typ="safe")
    raw = yaml.load((ROOT / ("" if profile == "mini" else f"profiles/{profile}") / "params.yaml").read_text())
    raw |= {"root": ".", "seeds": list(seeds), "draws": sorted({raw["tune"]["draw"], *seeds})}
    with open(folder / "params.yaml", "w") as file:
        yaml.dump(raw, file)
    shutil.copy(ROOT / "claims.yaml", folder / "claims.yaml")
    params, shift = rlnlp.config.load(folder / "params.yaml"), shift or {}
    assert params.folder == folder.resolve()
    first = {c for name in ("kl", *ablations.NAMES) if name in params.reports for c in params.reports[name].conditions}
    for number, condition in enumerate(c for c in params.all_runs if c in first - {"grpo", "rloo", *leave_out}):
        run, learner = (
            m.model_dump(mode="json") for m in (params.run(condition), params.learner_config(condition, {}))
        )
        rng, rows, curves, samples = np.random.default_rng(number), [], [], []
        facts = {
            "condition": condition,
            "algorithm": run["algorithm"],
            **{k: learner.get(k) for k in ("kl_coef", "kl_target", "learning_rate")},
        }
        for seed in seeds:
            own, training = 0.02 * math.sin(3 * seed) + rng.normal(0, 0.008), of_training(run, learner, rng)
            for split in ("test", "half"):
                for decoding in ("plain", "top_p", "own", *run["decodings"]):
                    level = {k: v + shift.get((condition, k), 0.0) for k, v in truth(run, learner, decoding).items()}
                    noisy = {k: v + (own + rng.normal(0, 0.004)) * (v != 0) for k, v in level.items()}
                    rows.append({**facts, "updates": learner.get("updates", 0), "seed": seed, "split": split, "decoding": decoding,
                                 "decoding_record": decoding, "prompts": 256, "words": 18.0, **noisy, **training})  # fmt: skip
            curves += [
                {"condition": condition, "seed": seed, **row}
                for row in curve(run, learner, truth(run, learner, "plain")["score"], rng)
            ]
            for i in range(20 if seed == seeds[0] else 1):
                words = list(rng.permutation(WORDS)) * 2
                samples.append({"condition": condition, "seed": seed, "example_id": f"test-{i}", "prompt": " ".join(words),
                                "response": " ".join(words[:12]), "score": float(rng.uniform())})  # fmt: skip
        out = folder / "runs" / condition
        write_table(out / "per_seed.csv", rows)
        write_table(out / "curves.csv", curves)
        (out / "samples.jsonl").write_text("".join(json.dumps(s) + "\n" for s in samples))
        atomic_json(out / "config.json", {"condition": condition, "run": run, "learner": learner})
    for seed in seeds:
        atomic_json(folder / "models" / f"draw{seed}" / "models.json", {"policy": {"vocabulary": 710 + seed}})
        rewards = {"reward_0": 0.0, "reward_10": 0.1, "reward_50": 0.5, "reward": 1.0}
        facts = {
            k: {"fraction": f, "validation_accuracy": 0.5 + 0.3 * f**0.3 + 0.005 * seed} for k, f in rewards.items()
        }
        atomic_json(
            folder / "variants" / f"draw{seed}" / "variants.json",
            {"draw": seed, **facts, "judge_2": {"validation_accuracy": 0.8}},
        )
    return folder / "params.yaml"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return rlnlp.config.load(make(tmp_path_factory.mktemp("full")))


@pytest.fixture(scope="module")
def every(world):
    return {name: ablations.load(world, name) for name in ablations.NAMES}


def mean_gap(results, first, second, metric, decoding="plain"):
    return float((results.values(first, metric, decoding) - results.values(second, metric, decoding)).mean())


# what a run is -------------------------------------------------------------------------------------------------------


def test_lines_join_what_differs_in_one_setting_alone(every):
    ppo, nlpo, bandit = ablations.gamma_lines(every["gamma"])
    assert ppo.x == nlpo.x == (0.5, 0.9, 0.95, 0.99, 1.0) and ppo.conditions[3] == "ppo_kl_default"
    assert bandit.conditions == ("bandit",) and not bandit.joined
    sweeps = ablations.gamma_frontiers(every["gamma"])
    assert [len(s.x) for s in sweeps["PPO"]] == [4] * 6 and [s.label for s in sweeps["PPO"]][-2:] == ["γ = 1", "bandit"]
    plain, own, ppo = ablations.mask_lines(every["mask"])
    assert plain.x == own.x == (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0) and own.decoding == "own"
    assert not {"nlpo_min_100", "nlpo_random", "nlpo_initial"} & set(plain.conditions)  # they differ in something else
    plain, _ = ablations.refresh_lines(every["mask"])
    assert plain.x == (1, 2, 5, 8, math.inf) and plain.conditions[-1] == "nlpo_initial"


def test_dropout_starts_from_the_same_ppo_in_every_mode(every):
    lines = ablations.dropout_lines(every["dropout"])
    assert list(lines) == ["pretrained without dropout", "pretrained with dropout"]
    for series, zero in zip(lines.values(), ("ppo_kl_default", "base_dropout_000")):
        assert [s.label for s in series] == ["update only", "independent masks", "same masks"]
        assert {(s.conditions[0], s.x) for s in series} == {(zero, (0.0, 0.05, 0.1, 0.2))}


def test_budget_shares_come_from_the_reward_or_the_examples(every):
    found = {s.conditions[-1]: s for s in ablations.budget_lines(every["budget"])}
    assert found["ppo_kl_default"].x == found["nlpo_kl_default"].x == (0.0, 0.1, 0.5, 1.0)
    assert found["supervised"].x == (0.1, 0.5, 1.0) and found["filtered"].x == (0.1, 1.0)
    assert found["best_of_n"].decoding == "own"  # decoded plainly it is the untrained model
    assert set(found["supervised"].base) == {"zero_shot"}
    accuracy = ablations.reward_accuracy(every["budget"])
    assert sorted(accuracy.share.unique()) == [0.0, 0.1, 0.5, 1.0] and accuracy.seed.nunique() == 5


def test_gains_are_from_the_model_with_the_same_tokens(every):
    results = every["vocabulary"]
    ppo, zero = ablations.vocabulary_lines(results)
    assert ppo.x == zero.x == (50, 150, 400, 713) and ppo.base == (
        "zero_shot_50",
        "zero_shot_150",
        "zero_shot_400",
        "zero_shot",
    )
    np.testing.assert_allclose(
        ablations.measure(results, "vocabulary_50", "gain:score"),
        results.values("vocabulary_50", "score") - results.values("zero_shot_50", "score"),
    )
    assert ablations.measure(results, "zero_shot_50", "gain:score") is None


def test_names_of_conditions_mean_nothing(tmp_path):
    """The x of a run is what its config says, whatever it is called."""
    path = make(tmp_path, "smoke", (1, 2))
    raw = json.loads((tmp_path / "runs/ppo_gamma_100/config.json").read_text())
    raw["learner"]["gamma"] = 0.7
    atomic_json(tmp_path / "runs/ppo_gamma_100/config.json", raw)
    (line, *_) = ablations.gamma_lines(ablations.load(rlnlp.config.load(path), "gamma"))
    assert dict(zip(line.conditions, line.x)) == {"ppo_gamma_100": 0.7, "ppo_kl_default": 0.99}


# numbers -------------------------------------------------------------------------------------------------------------


def test_estimates_against_closed_forms():
    values = np.array([1.0, 2.0, 3.0, 4.0, 6.0])
    spread = ablations.estimate(values, "spread:score")
    assert spread.estimate == pytest.approx(values.std(ddof=1))
    assert spread.low == pytest.approx(
        values.std(ddof=1) * math.sqrt(4 / 11.143), rel=1e-3
    )  # chi-square quantiles, 4 degrees
    assert spread.high == pytest.approx(values.std(ddof=1) * math.sqrt(4 / 0.4844), rel=1e-3)
    geometric = ablations.estimate(np.array([1e-6, 1e-4]), "first_ratio_error")
    assert geometric.estimate == pytest.approx(1e-5) and geometric.low > 0
    none, two = ablations.estimate(np.zeros(5), "diverged"), ablations.estimate(np.array([1, 1, 0, 0, 0.0]), "diverged")
    assert (none.estimate, none.low) == (0.0, 0.0) and none.high == pytest.approx(1 - 0.025 ** (1 / 5))
    assert two.low == pytest.approx(0.0527, abs=1e-3) and two.high == pytest.approx(
        0.8534, abs=1e-3
    )  # Clopper-Pearson, 2 of 5
    assert ablations.estimate(values, "score") == stats.mean_interval(values)


def test_the_last_cycle_and_the_dip_after_a_refresh(every):
    results = every["mask"]
    curve = results.curves[(results.curves.condition == "nlpo_sync_8") & (results.curves.seed == 2)].set_index(
        "update"
    )["objective/score"]
    assert ablations.syncs(results, "nlpo_sync_8") == [9, 17, 25]
    assert ablations.measure(results, "nlpo_sync_8", "last_cycle")[1] == pytest.approx(curve.loc[18:25].mean())
    dips = [curve[u] - curve[u - 1] for u in (9, 17, 25)]
    assert ablations.measure(results, "nlpo_sync_8", "dip")[1] == pytest.approx(np.mean(dips)) and np.mean(dips) < -0.03
    assert ablations.measure(results, "nlpo_initial", "dip") is None
    never = results.curves[(results.curves.condition == "nlpo_initial") & (results.curves.seed == 1)].set_index(
        "update"
    )["objective/score"]
    assert ablations.measure(results, "nlpo_initial", "last_cycle")[0] == pytest.approx(
        never.loc[18:25].mean()
    )  # the longest finite cycle


def test_matched_decoding_is_the_one_with_the_same_settings(every):
    results = every["sampling"]
    assert ablations.sampling_rows(results) == {
        "ancestral": "ppo_kl_default", "top-k": "ppo_top_k", "top-p": "ppo_top_p", "temperature": "ppo_temperature",
    }  # fmt: skip
    cells = ablations.sampling_grid(results, "gain:score")
    expected = results.values("ppo_top_k", "score", "beam") - results.values("zero_shot", "score", "beam")
    np.testing.assert_allclose(cells["top-k", "beam"], expected)


def test_a_planted_interaction_is_found_and_main_effects_are_not(tmp_path):
    path = make(tmp_path, "mini")
    before = ablations.matched_contrast(ablations.load(rlnlp.config.load(path), "sampling"), "gain:score")
    assert before.low < 0 < before.high  # the truth has none, but strong main effects of decoding
    decodings = {
        "ppo_kl_default": "plain",
        "ppo_top_k": "top_k",
        "ppo_top_p": "top_p",
        "ppo_temperature": "temperature",
    }
    results = ablations.load(rlnlp.config.load(path), "sampling")
    for condition, decoding in decodings.items():
        at = (results.per_seed.condition == condition) & (results.per_seed.decoding == decoding)
        results.per_seed.loc[at, "score"] += 0.1
    after = ablations.matched_contrast(results, "gain:score")
    assert after.difference - before.difference == pytest.approx(0.1)


# the answer ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ablations.NAMES)
def test_the_answer_is_two_sentences_with_n_and_intervals(every, name):
    text = answers.answer(every[name], name)
    assert text.startswith("**Answer.** ") and "MISSING" not in text
    assert text.count(". ") == 1 and text.endswith(
        "(n = 5 seeds; in brackets: 95 % intervals)."
    )  # "**Answer.** One. Two (...)."
    assert "[" in text and "None" not in text and "nan" not in text


def test_the_answers_numbers_are_those_of_the_tables(every):
    results = every["gamma"]
    gap = stats.paired(results.values("ppo_gamma_100", "score"), results.values("ppo_gamma_095", "score"))
    assert f"PPO {signed(gap.difference, gap.low, gap.high)}" in answers.answer(results, "gamma")
    results = every["mask"]
    gap = mean_gap(results, "nlpo_kl_default", "nlpo_random", "score")
    assert f"against a random mask {'+' if gap >= 0 else '−'}{abs(gap):.3f}" in answers.answer(results, "mask")


PLANTED = {  # report: (condition and metric that is moved, words that must come)
    "gamma": (("ppo_gamma_050", "score"), "with γ = 0.5 instead of 0.95, the score rises"),
    "dropout": (("dropout_same_010", "score"), "+0.2"),
    "mask": (("nlpo_kl_default", "score"), "with NLPO, all decoded plainly, the score rises"),
    "budget": (
        ("supervised", "score"),
        "instead of supervised training on 100% of the positive reviews: the score falls (PPO",
    ),
    "warm_start": (("sup_ppo", "generation_log_perplexity"), "the log-perplexity of the texts rises (PPO +0.2"),
    "vocabulary": (("vocabulary_50", "wobble"), "the wobble of training rises"),
}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return make(tmp_path_factory.mktemp("mini"), "mini")


@pytest.mark.parametrize("name", PLANTED)
def test_other_numbers_give_another_answer(small, name):
    (condition, metric), words = PLANTED[name]
    results = ablations.load(rlnlp.config.load(small), name)
    before = answers.answer(results, name)
    moved = results.per_seed.condition == condition
    assert moved.any() and words.lower() not in before.lower()
    results = ablations.load(rlnlp.config.load(small), name)
    results.per_seed.loc[moved, metric] += 0.25
    assert words.lower() in answers.answer(results, name).lower()


def test_missing_runs_come_first_and_loudly(tmp_path):
    path = make(tmp_path, "smoke", (1, 2), leave_out=("bandit", "ppo_gamma_100"))
    results = ablations.load(rlnlp.config.load(path), "gamma")
    text, facts = ablation_report.write(results, "gamma", tmp_path / "out")
    assert text.startswith(
        "**MISSING: 2 of 5 runs of this report are not there: `ppo_gamma_100` (stage runs@ppo_gamma_100); `bandit`"
    )
    assert (
        facts["missing"] == ["ppo_gamma_100", "bandit"]
        and list(ablation_report.summary_table(results, "gamma").score)[-1] == "MISSING"
    )
    assert "were not run in profile `smoke`" in text
    flat = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert flat["runs_missing"] == 2
    with pytest.raises(ReportError, match=r"runs/.*no such file"):
        shutil.rmtree(tmp_path / "runs")
        ablations.load(rlnlp.config.load(path), "gamma")


def test_one_seed_has_no_intervals(tmp_path):
    results = ablations.load(rlnlp.config.load(make(tmp_path, "smoke", (1,))), "warm_start")
    text = answers.answer(results, "warm_start")
    assert "(n = 1 seed, so no intervals)" in text and "[" not in text and "cannot be judged from so few seeds" in text


# claims and files ----------------------------------------------------------------------------------------------------


def test_a_report_judges_its_own_claims(small):
    params = rlnlp.config.load(small)
    rows, lost = ablation_report.judged(ablations.load(params, "mask"), "mask")
    assert {r["id"] for r in rows} == {"P04", "P05", "P18", "P19", "P39"} and not lost
    assert all(r["word"] in ("holds here", "fails here", "inconclusive", "not testable here") for r in rows)
    assert {r["rule"][:12] for r in rows} == {
        ablation_report.rule(ablations.load(params, "mask"))
    }  # the ledger's own, of all claims


def test_a_claim_whose_runs_are_missing_is_not_judged(tmp_path):
    """ppo_kl_0 is no run of the mask report, but the yardstick of its claims."""
    path = make(tmp_path, "mini", leave_out=("ppo_kl_0",))
    results = ablations.load(rlnlp.config.load(path), "mask")
    _, facts = ablation_report.write(results, "mask", tmp_path / "out")
    assert not results.missing and "ppo_kl_0" in facts["not_judged"]["P04"] and "P04" not in facts["words"]
    said = (tmp_path / "out" / "verdict.md").read_text()
    assert "**NOT JUDGED: P04. Its runs are missing: `ppo_kl_0`.**" in said


@pytest.mark.parametrize("name", ablations.NAMES)
def test_same_results_same_bytes(small, tmp_path, name):
    for folder in ("one", "two"):
        ablation_report.write(ablations.load(rlnlp.config.load(small), name), name, tmp_path / folder)
    files = sorted(p.name for p in (tmp_path / "one").iterdir())
    assert files == ["metrics.json", "samples.md", "verdict.json", "verdict.md"]
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file
    flat = json.loads((tmp_path / "one" / "metrics.json").read_text())
    assert all(isinstance(v, (int, float)) and math.isfinite(v) for v in flat.values())
    facts = json.loads((tmp_path / "one" / "verdict.json").read_text())
    assert facts["rule"] in (tmp_path / "one" / "verdict.md").read_text() and facts["words"]


def test_the_numbers_of_a_report_are_means_over_seeds(small, tmp_path):
    results = ablations.load(rlnlp.config.load(small), "sampling")
    ablation_report.write(results, "sampling", tmp_path)
    flat = json.loads((tmp_path / "metrics.json").read_text())
    assert flat["ppo_top_k.score.mean"] == pytest.approx(results.values("ppo_top_k", "score").mean(), rel=1e-5)


def test_tables_hold_every_condition_and_the_settings_that_differ(every):
    for name, results in every.items():
        assert list(ablation_report.summary_table(results, name).index) == list(results.params.reports[name].conditions)
    table = ablation_report.settings_table(every["gamma"])
    assert table.loc["ppo_gamma_050_kl_0", ["gamma", "kl_coef"]].tolist() == ["0.5", "0"] and "clip" not in table
    assert "clip 0.2" in ablation_report.shared_settings(every["gamma"])
    assert "data_fraction" in ablation_report.settings_table(every["warm_start"])
    broken = ablation_report.broken(every["dropout"])
    assert "`dropout_update_010` breaks on purpose: ratio, finite" in broken and "ppo_kl_default" not in broken


@pytest.mark.parametrize("name", ablations.NAMES)
def test_samples_are_unselected_short_and_side_by_side(every, name):
    results = every[name]
    titles = [t for t, _ in ablation_report.extremes(results, name)]
    rows = ablation_report.samples(results, name)
    assert titles[0] == "untrained" and 3 <= len(titles) <= 4 and len(rows) == 20
    assert all(set(row) == {"prompt", *titles} for row in rows)
    assert max(len(row["prompt"].removeprefix("… ").split()) for row in rows) == 20
    page = ablation_report.samples_html(results, name, 3)
    assert page.count("<tr>") == 4 and page.count('scope="col"') == len(titles) + 1


@pytest.mark.parametrize("profile", ["mini", "full"])
def test_the_budgets_samples_are_the_ends_of_the_reward_and_the_most_imitated(tmp_path, profile):
    shown = dict(ablation_report.extremes(ablations.load(rlnlp.config.load(make(tmp_path, profile)), "budget"), "budget"))
    assert list(shown.values())[1:] == ["labels_0", "ppo_kl_default", "supervised"]


def test_text_in_samples_cannot_become_markup(every):
    line = {
        "seed": 1,
        "example_id": "x",
        "prompt": "<script>alert(1)</script>",
        "response": "*a* | [b](c)",
        "score": 1.0,
    }
    results = every["sampling"]
    results.samples["zero_shot"], kept = [line], results.samples["zero_shot"]
    page, text = ablation_report.samples_html(results, "sampling"), ablation_report.samples_markdown(results, "sampling")
    results.samples["zero_shot"] = kept
    assert "<script>" not in page and "<script>" not in text and r"\*a\* \| \[b\](c)" in text


def test_a_seed_without_a_metric_stops_the_report_unless_the_run_may_end_early(small):
    results = ablations.load(rlnlp.config.load(small), "dropout")
    at = (results.per_seed.seed == 3) & (results.per_seed.condition == "dropout_update_010")
    results.per_seed.loc[at, "clip_fraction"] = np.nan
    assert ablations.measure(results, "dropout_update_010", "clip_fraction") is None
    results.per_seed.loc[at, "score"] = np.nan
    results.__dict__.pop("_cells_of")
    with pytest.raises(ReportError, match="dropout_update_010: score .* missing for seed 3"):
        ablations.measure(results, "dropout_update_010", "score")


def test_an_unknown_report_is_named(small):
    with pytest.raises(ReportError, match="no report is called 'gama'"):
        ablations.load(rlnlp.config.load(small), "gama")
