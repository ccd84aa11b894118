"""The report on synthetic results whose truth is planted: does the verdict say what was put in, and nothing more?"""

import dataclasses
import json
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from rlnlp import figures, report, second_plots, stats
from rlnlp.runs import atomic_json, write_table

RUNS = {
    "zero_shot": {"algorithm": "ppo", "updates": 0},
    **{
        f"{a}_{name}": {"algorithm": a, **values}
        for a in ("ppo", "nlpo")
        for name, values in {
            "kl_0": {"kl_coef": 0.0},
            "kl_small": {"kl_coef": 0.02},
            "kl_default": {"kl_coef": 0.05},
            "kl_large": {"kl_coef": 0.2},
            "target_low": {"kl_target": 0.2},
            "target_high": {"kl_target": 0.3},
        }.items()
    },
}
BESIDE = {"grpo": {"algorithm": "grpo"}, "rloo": {"algorithm": "rloo", "kl_coef": 0.02}}  # baselines
TEXT = "the film was a slow but warm story about two brothers and i liked the music more than the plot ."
WORDS = TEXT.split()


def make(
    folder: Path,
    conditions=tuple(RUNS),
    seeds=(1, 2, 3, 4, 5),
    effect=1.0,
    nlpo=0.0,
    nlpo_own=0.06,
    updates=30,
    tuned=(0.05, 0.05),
) -> SimpleNamespace:
    """A results folder in the pipeline's schema, and the params that name it.

    effect: 1 = no KL hacks the reward, 0 = KL changes nothing, -1 = the reverse; nlpo: NLPO's lead in score under every
    decoding; nlpo_own: what its own decoding adds.
    """
    rng = np.random.default_rng(7)
    for condition in conditions:
        run = {"kl_coef": 0.05, "kl_target": 0.0, "updates": updates, **(RUNS | BESIDE)[condition]}
        beta, trained = run["kl_coef"], run["updates"] > 0
        drift = {0.0: 3.0, 0.02: 0.45, 0.05: 0.25, 0.2: 0.12}[beta] if trained else 0.0
        drift = run["kl_target"] or drift
        hack = effect * (drift > 1) if effect else 0.0
        if effect == 0 and trained and not run["kl_target"]:
            drift = 0.25
        facts = {
            "condition": condition,
            "algorithm": run["algorithm"],
            "kl_coef": beta,
            "kl_target": run["kl_target"],
            "learning_rate": 1e-3,
            "updates": run["updates"],
        }
        rows, curves, samples = [], [], []
        for seed in seeds:
            shift = 0.03 * np.sin(seed) + rng.normal(0, 0.012)
            gain = 0.5 + 0.3 * min(drift, 0.8) ** 0.5 * trained + 0.14 * hack
            for split in ("validation", "test"):
                for decoding in ("plain", "top_p", "own"):
                    own = nlpo_own if run["algorithm"] == "nlpo" and decoding == "own" else 0.02 * (decoding == "top_p")
                    noise = partial(rng.normal, 0)
                    kl = drift * (1 + noise(0.08))
                    rows.append(
                        {
                            **facts,
                            "seed": seed,
                            "split": split,
                            "decoding": decoding,
                            "decoding_record": f"max_new_tokens=24, top_p={0.9 if decoding == 'top_p' else 1.0}",
                            "prompts": 256,
                            "score": gain + shift + own + nlpo * (run["algorithm"] == "nlpo") + noise(0.006),
                            "score_response": gain + shift + noise(0.01),
                            "judge": 0.5 + 0.35 * min(drift, 0.8) - 0.15 * hack + noise(0.03),
                            "generation_log_perplexity": 1.85 - own + 1.6 * hack * (1 + noise(0.3)) + noise(0.03),
                            "kl": kl,
                            "kl_deployed": kl * 0.95,
                            "kl_deployed_per_response": kl * 20,
                            "length": 20.0,
                            "terminated": 0.4,
                            "distinct_1": 0.08 - 0.03 * hack,
                            "distinct_2": 0.33 - 0.1 * min(drift, 1) - 0.12 * hack + noise(0.01),
                            "msttr": 0.69 - 0.2 * hack + noise(0.01),
                            "entropy_2": 6.9 - 1.9 * hack + noise(0.05),
                            "repetition": 0.03 + 0.25 * hack + noise(0.005),
                            "shared_5gram": 0.05 + 0.4 * hack,
                            "human_log_perplexity": 1.9 + 0.5 * hack + noise(0.02),
                        }
                    )
            for update in range(run["updates"]):
                done = 1 - np.exp(-update / 8)
                curves.append(
                    {
                        "condition": condition,
                        "seed": seed,
                        "update": update,
                        "objective/score": 0.5 + (gain - 0.5) * done + shift * done + rng.normal(0, 0.012),
                        "objective/kl": drift * done * (1 + rng.normal(0, 0.06)) + rng.normal(0, 0.004),
                        "objective/kl_coef": beta,
                    }
                )
            for i in range(20):
                words = list(rng.permutation(WORDS))
                samples.append(
                    {
                        "condition": condition,
                        "seed": seed,
                        "example_id": f"test-{i}",
                        "prompt": " ".join(words + words[:9]),
                        "response": " ".join(words[:12]),
                        "score": float(rng.uniform()),
                    }
                )
        out = folder / "runs" / condition
        write_table(out / "per_seed.csv", rows)
        write_table(out / "curves.csv", curves)
        atomic_json(out / "config.json", {"condition": condition, "run": {"algorithm": run["algorithm"]}, "learner": run})
        (out / "samples.jsonl").write_text("".join(json.dumps(s) + "\n" for s in samples))
        tokens = [*WORDS, "<eos>"] if hack <= 0 else ["wonderful", "and", "brilliant"] * 7
        kl = np.abs(rng.normal(drift, 0.3 * drift + 0.02, len(tokens))).tolist()
        rewards = [-beta * k for k in kl]
        rewards[-1] += 0.9
        atomic_json(
            out / "episode.json",
            {
                "condition": condition,
                "seed": seeds[0],
                "example_id": "val-0",
                "prompt": " ".join(WORDS[:10]),
                "tokens": tokens,
                "kl": kl,
                "rewards": rewards,
                "advantages": rng.normal(0, 1, len(tokens)).tolist(),
                "values": [0.5] * len(tokens),
                "score": 0.9,
            },
        )
    for algorithm, beta in zip(("ppo", "nlpo"), tuned):
        atomic_json(
            folder / "tune" / f"{algorithm}.json",
            {
                "algorithm": algorithm,
                "learning_rate": 1e-3,
                "kl_coef": beta,
                "rule": "highest validation score",
                "draw": 0,
                "zero_shot": {"score": 0.5, "generation_log_perplexity": 1.85},
                "candidates": [
                    {
                        "learning_rate": lr,
                        "kl_coef": b,
                        "score": 0.6,
                        "generation_log_perplexity": 1.8,
                        "kl": 0.2,
                        "eligible": True,
                    }
                    for lr in (5e-4, 1e-3)
                    for b in (0.02, 0.05, 0.1)
                ],
            },
        )
    for seed in seeds:
        atomic_json(
            folder / "models" / f"draw{seed}" / "models.json",
            {"parameters": {"policy": 284_352}, "bits_per_byte": 0.61 + seed / 100},
        )
    pairs = {
        a: [f"{a}_kl_0", f"{a}_kl_default"]
        for a in ("ppo", "nlpo")
        if {f"{a}_kl_0", f"{a}_kl_default"} <= set(conditions)
    }
    return SimpleNamespace(
        folder=folder,
        profile="synthetic",
        seeds=seeds,
        reports={"kl": SimpleNamespace(conditions=tuple(conditions), pairs=pairs, note="")},
        reports_folder=folder / "reports" / "synthetic",
        continued={},
        bring=SimpleNamespace(model="", reward="", prompts=""),
        tune=SimpleNamespace(learning_rates=(5e-4, 1e-3, 2e-3), kl_coefs=(0.01, *{*tuned}, 0.5)),
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return report.load(make(tmp_path_factory.mktemp("full")))


def effects(tmp_path, **changes):
    return report.kl_effects(report.load(make(tmp_path, ("ppo_kl_0", "ppo_kl_default"), **changes))).set_index("metric")


def test_planted_effect_holds(results):
    _, facts = report.verdict(results)
    for algorithm in ("ppo", "nlpo"):
        assert facts["overall"][algorithm] == {
            "P01": "holds here",
            "P01 as published": "holds here",
            "P03": "holds here",
            "not published": facts["overall"][algorithm]["not published"],
        }
    score = next(r for r in facts["kl_effects"] if r["algorithm"] == "ppo" and r["metric"] == "score")
    assert score["p_permutation"] == score["smallest_p"] == 1 / 32 and score["low"] > 0.1
    assert score["p_t_holm"] >= score["p_t"]


def test_the_answer_is_two_sentences(results, tmp_path):
    first = report.verdict(results)[0].split("\n\n")[0]
    assert first.startswith("**Answer.** When the KL penalty is taken away") and len(re.findall(r"\.(?= |$)", first.partition("** ")[2])) == 2
    assert "down: **holds here** (PPO and NLPO); that its text becomes less diverse: **holds here** (PPO and NLPO)" in first
    alone = report.verdict(report.load(make(tmp_path, ("ppo_kl_default",))))[0]
    assert alone.startswith("**Answer.** The runs that would answer it were not made in profile `")


def test_planted_null_is_inconclusive(tmp_path):
    table = effects(tmp_path, effect=0.0)
    assert set(table.verdict) <= {stats.INCONCLUSIVE}


def test_planted_reverse_fails(tmp_path):
    table = effects(tmp_path, effect=-1.0)
    assert table.verdict["generation_log_perplexity"] == stats.FAILS and table.verdict["distinct_2"] != stats.HOLDS
    text, facts = report.verdict(report.load(make(tmp_path, ("ppo_kl_0", "ppo_kl_default"), effect=-1.0)))
    words = {r["verdict"] for r in facts["kl_effects"] if r["claim"] == "P01"}
    assert stats.FAILS in words  # the metrics say it one by one; a claim fails as a whole only if each of them does
    assert facts["overall"]["ppo"]["P01"] == (stats.FAILS if words == {stats.FAILS} else stats.INCONCLUSIVE)


def test_one_seed_that_disagrees_is_not_averaged_away(tmp_path):
    params = make(tmp_path, ("ppo_kl_0", "ppo_kl_default"))
    found = report.load(params)
    bad = (found.per_seed.condition == "ppo_kl_0") & (found.per_seed.seed == 3)
    found.per_seed.loc[bad, "score"] = 0.3
    row = report.kl_effects(found).set_index("metric").loc["score"]
    assert row.verdict == stats.INCONCLUSIVE and report.verdict(found)[1]["overall"]["ppo"]["P01"] == stats.INCONCLUSIVE


@pytest.mark.parametrize("seeds", [(1,), (1, 2), (1, 2, 3)])
def test_few_seeds_give_direction_only(tmp_path, seeds):
    found = report.load(make(tmp_path, ("zero_shot", "ppo_kl_0", "ppo_kl_default", "nlpo_kl_default"), seeds))
    text, facts = report.write(found, tmp_path / "out")
    assert {r["verdict"] for r in facts["kl_effects"]} == {stats.FEW}
    assert all(r["p_permutation"] is None for r in facts["kl_effects"])
    assert "holds here**" not in text and "fails here**" not in text and "direction only: as claimed" in text
    assert "NLPO has no pair" in text and "no adaptive KL target" in text


def test_published_numbers_are_shown_with_their_table(results):
    text, facts = report.verdict(results)
    for number in (
        "0.605 → 0.847",
        "33.497 → 40.650",
        "0.637 → 0.859",
        "32.667 → 37.553",
        "0.287 → 0.200",
        "v2 Table 5",
    ):
        assert number in text
    assert "2210.01241v2" in facts["published"]["source"]


def test_lead_from_decoding_is_called_that(tmp_path):
    """Planted: NLPO gains 0.06 from its own decoding and nothing else."""
    text, facts = report.verdict(
        report.load(make(tmp_path, ("ppo_kl_default", "nlpo_kl_default"), nlpo=0.0, nlpo_own=0.15))
    )
    assert "ahead with its own decoding (decoding alone makes +" in text and "P04: **inconclusive**" in text
    gap = next(r for r in facts["methods"] if r["decoding"] == "own - plain" and r["metric"] == "score")
    assert 0.1 < gap["low"] and gap["high"] < 0.2


def test_real_lead_survives_the_same_decoding(tmp_path):
    text, _ = report.verdict(
        report.load(make(tmp_path, ("ppo_kl_default", "nlpo_kl_default"), nlpo=0.15, nlpo_own=0.0))
    )
    assert "under the same decoding too: **holds here**" in text and "decoding alone makes" not in text


def test_planted_inferiority_fails(tmp_path):
    text, _ = report.verdict(
        report.load(make(tmp_path, ("ppo_kl_default", "nlpo_kl_default"), nlpo=-0.15, nlpo_own=0.0))
    )
    assert "NLPO is behind (P04: **fails here**)" in text


def test_chosen_kl_coef_is_used_and_a_missing_one_is_named(tmp_path):
    wanted = ("ppo_kl_small", "ppo_kl_default", "nlpo_kl_default", "nlpo_kl_large")
    found = report.load(make(tmp_path, wanted, tuned=(0.02, 0.1)))
    equal, chosen = report.method_pairs(found)
    assert (equal["ppo"], equal["nlpo"]) == ("ppo_kl_default", "nlpo_kl_default")
    assert chosen["ppo"] == "ppo_kl_small" and chosen["nlpo"] in ("nlpo_kl_default", "nlpo_kl_large")
    assert "NLPO: validation chose 0.1, which was not run" in chosen["note"] and "PPO" not in chosen["note"].replace(
        "NLPO", ""
    )


def test_dose_response_slope_is_least_squares(results):
    dose = report.dose_response(results)
    row = dose[(dose.algorithm == "ppo") & (dose["range"] == "all") & (dose.metric == "score")].iloc[0]
    names = ("ppo_kl_0", "ppo_kl_small", "ppo_kl_default", "ppo_kl_large")
    values = np.array([results.values(c, "score") for c in names])
    slopes = [np.polyfit(range(4), values[:, i], 1)[0] for i in range(5)]
    assert row.difference == pytest.approx(np.mean(slopes)) and row.kl_coefs == "0 0.02 0.05 0.2"
    assert row.verdict == stats.HOLDS and set(dose["range"]) == {"all", "above 0"}


def test_targets_reached_or_not(results):
    table = report.targets(results).set_index("condition")
    assert set(table.state) <= {"reached", "there with fixed β too"} and "reached" in set(table.state)
    for condition, row in table.iterrows():  # where the fixed β's KL is in the band as well, nothing is claimed
        near = abs(row.fixed_kl / row.target - 1) <= report.TOLERANCE
        assert row.state == ("there with fixed β too" if near else "reached")
    curves = results.curves.copy()
    curves.loc[curves.condition == "ppo_target_low", "objective/kl"] *= 0.5
    halved = dataclasses.replace(results, curves=curves)
    assert report.targets(halved).set_index("condition").state["ppo_target_low"] == "below"


def test_a_kl_that_only_passes_the_target_is_not_called_reached(results):
    curves = results.curves.copy()
    own = curves.condition == "ppo_target_low"
    curves.loc[own, "objective/kl"] = 0.2 + 0.02 * (curves.loc[own, "update"] - 26)  # 0.14 to 0.26 in the last quarter
    state = report.targets(dataclasses.replace(results, curves=curves)).set_index("condition").state
    assert state["ppo_target_low"] == "passing"


def test_a_brought_model_is_no_independent_evaluator(results):
    bring = SimpleNamespace(model="mine", reward="", prompts="mine.csv")
    brought = dataclasses.replace(results, params=SimpleNamespace(**{**vars(results.params), "bring": bring}))
    text, facts = report.verdict(brought)
    assert "P01, P02 and P05 are not judged on it" in text and "**not measured** (PPO and NLPO)" in text
    assert "each with its own reward model and all with the same texts and base model." in text
    assert "P01" not in facts["overall"]["ppo"] and facts["overall"]["ppo"]["P03"] == stats.HOLDS
    told = [r["metric"] for t in ("kl_effects", "dose_response", "methods") for r in facts[t]]
    assert "score" in told and "generation_log_perplexity" not in told
    text, facts = report.verdict(results)
    assert "each with its own texts, base model and reward model." in text and facts["overall"]["ppo"]["P01"] == stats.HOLDS


def test_a_seed_without_a_metric_stops_the_report(results):
    table = results.per_seed.copy()
    place = (table.condition == "ppo_kl_0") & (table.seed == 3)
    table.loc[place, "generation_log_perplexity"] = np.nan
    with pytest.raises(report.ReportError, match="ppo_kl_0: generation_log_perplexity .* missing for seed 3; run the stage"):
        report.verdict(dataclasses.replace(results, per_seed=table))


def test_what_weakens_a_report_is_said(results):
    assert report.cautions(results) == []
    params = SimpleNamespace(**vars(results.params))
    params.tune = SimpleNamespace(learning_rates=(5e-4, 1e-3), kl_coefs=(0.05,))
    params.reports["kl"] = SimpleNamespace(**{**vars(params.reports["kl"]), "note": "Chosen by trial."})
    table = results.per_seed.assign(words=10.0)
    table.loc[0, "words"] = 1499 / 256
    edge, short, note = report.cautions(dataclasses.replace(results, params=params, per_seed=table))
    assert "the largest learning_rate it tried (0.001) for PPO and NLPO" in edge and note == "Chosen by trial."
    assert short.startswith(f"1 of {len(table)} evaluations hold fewer than 1,500 words")
    assert "Chosen by trial." in report.verdict(dataclasses.replace(results, params=params))[0]


def test_the_untrained_model_stands_beside_the_penalised_ones(results):
    text = report.verdict(results)[0]
    zero = {m: results.values("zero_shot", m).mean() for m in ("score", "distinct_2")}
    assert f"The untrained model stands at score {zero['score']:.2f}," in text and f"distinct pairs {zero['distinct_2']:.2f}." in text
    table = results.per_seed.copy()
    table.loc[table.condition.isin(["ppo_kl_default", "zero_shot"]), "generation_log_perplexity"] -= 0.5
    table.loc[table.condition == "ppo_kl_default", "generation_log_perplexity"] -= 0.5
    assert "Even with the penalty, PPO writes text" in report.verdict(dataclasses.replace(results, per_seed=table))[0]


def test_claims_between_different_coefficients_say_so(tmp_path):
    found = report.methods(report.load(make(tmp_path, tuned=(0.02, 0.05))))
    chosen = found[found.kind == "chosen on validation"]
    assert set(chosen.claim[chosen.claim != ""]) == {
        "P04, β differs", "P04, decoders and β differ", "P05, β differs", "P05, decoders and β differ", "P05 as published, β differs",
    }
    assert not found[found.kind == "equal kl_coef"].claim.str.contains("β").any()


def test_same_results_same_bytes(results, tmp_path):
    for name in ("one", "two"):
        report.write(report.load(results.params), tmp_path / name)
    files = sorted(p.name for p in (tmp_path / "one").iterdir())
    assert files == [
        "curves_kl.csv",
        "curves_score.csv",
        "metrics.json",
        "samples.md",
        "verdict.json",
        "verdict.md",
    ]
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    flat = json.loads((tmp_path / "one" / "metrics.json").read_text())
    assert all(isinstance(v, (int, float)) for v in flat.values())
    mean = np.mean(results.values("ppo_kl_0", "score"))
    assert flat["ppo_kl_0.score.mean"] == pytest.approx(mean, rel=1e-5)


def test_samples_show_twenty_each_and_short_prompts(results):
    text = report.samples_markdown(results)
    for title in ("## zero-shot (before)", "## with KL (ppo_kl_default)", "## without KL (ppo_kl_0)"):
        assert title in text
    assert text.count(" → ") == 60
    rows = report.samples(results)
    assert [r["prompt"].startswith("… ") for r in rows] == [True] * 20
    assert max(len(r["prompt"].removeprefix("… ").split()) for r in rows) == report.PROMPT_WORDS


def test_text_in_samples_cannot_become_markup(results):
    line = {
        "seed": 1,
        "example_id": "x",
        "prompt": "<script>alert(1)</script>",
        "response": "*a* | [b](c)",
        "score": 1.0,
    }
    found = dataclasses.replace(results, samples={"ppo_kl_0": [line]})
    assert "<script>" not in report.samples_markdown(found) and "<script>" not in report.samples_html(found)
    assert r"\*a\* \| \[b\](c)" in report.samples_markdown(found)
    assert "Not run in this profile." in report.samples_markdown(found)


def test_missing_condition_is_named(tmp_path):
    params = make(tmp_path, ("ppo_kl_0", "ppo_kl_default"))
    params.reports["kl"].conditions = (*params.reports["kl"].conditions, "nlpo_kl_0")
    text, _ = report.write(report.load(params), tmp_path / "out")
    assert text.startswith("**MISSING: 1 of 3 runs of this report is not there: `nlpo_kl_0` (stage runs@nlpo_kl_0)")
    assert "missing" in report.summary_table(report.load(params)).loc["nlpo_kl_0"].tolist()
    params.reports["kl"].conditions = ("nlpo_kl_0",)
    with pytest.raises(report.ReportError, match=r"runs/nlpo_kl_0/per_seed.csv: no such file.*runs@nlpo_kl_0"):
        report.load(params)


def test_other_folders_are_not_read(tmp_path):
    params = make(tmp_path, ("ppo_kl_0", "ppo_kl_default", "nlpo_kl_0"))
    params.reports["kl"].conditions = ("ppo_kl_0", "ppo_kl_default")
    params.reports["kl"].pairs = {"ppo": ["ppo_kl_0", "ppo_kl_default"]}
    assert set(report.load(params).per_seed.condition) == {"ppo_kl_0", "ppo_kl_default"}


def test_missing_seed_is_named(tmp_path):
    params = make(tmp_path, ("ppo_kl_0", "ppo_kl_default"), seeds=(1, 2))
    params.seeds = (1, 2, 3)
    with pytest.raises(report.ReportError, match=r"each seed of \[1, 2, 3\], found seeds \[1, 2\]"):
        report.load(params)


def test_report_without_a_judge(tmp_path):
    params = make(tmp_path, ("ppo_kl_0", "ppo_kl_default"))
    found = report.load(params)
    found.per_seed["judge"] = None
    text, facts = report.write(found, tmp_path / "out")
    assert "No held-out judge" in text and not any(r["metric"] == "judge" for r in facts["kl_effects"])


def test_chosen_pair_that_is_also_an_equal_pair_is_tested_once(results):
    assert not report.methods(results).duplicated(["ppo", "nlpo", "decoding", "metric"]).any()
    assert [p["kind"] for p in report.method_pairs(results)].count("chosen on validation") == 1
    assert len(report.headline(results)) == 1


def test_tables_for_people(results):
    table = report.summary_table(results)
    assert list(table.index) == list(RUNS) and "[" in table.loc["ppo_kl_0", "score"]
    assert len(report.tune_table(results)) == 12 and (report.tune_table(results).chosen == "chosen").sum() == 2
    assert "β 0.05" in report.tune_rule(results) and "of 6 candidates" in report.tune_rule(results)
    assert report.models_table(results).shape == (2, 5)
    assert "own decoding" in report.settings_table(results)


# baselines -----------------------------------------------------------------------------------------------------------

ARMS = ("zero_shot", "ppo_kl_0", "ppo_kl_small", "ppo_kl_default", "nlpo_kl_default")


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    return report.load(make(tmp_path_factory.mktemp("beside"), (*ARMS, *BESIDE)))


def test_baselines_stand_beside_and_decide_nothing(beside, tmp_path):
    text, facts = report.verdict(beside)
    without = dataclasses.replace(beside, per_seed=report.judged_rows(beside, beside.per_seed), curves=report.judged_rows(beside, beside.curves))
    alone, judged = report.verdict(without)
    assert facts == judged  # every word and number that is judged
    score = beside.values("rloo", "score").mean()
    (line,) = [p for p in text.split("\n\n") if p not in alone.split("\n\n")]
    assert line.startswith("**Baselines, beside and not judged here.** GRPO (`grpo`, β = 0.05) at score ")
    assert f"and RLOO (`rloo`, β = 0.02) at score {score:.2f}" in line and "(means over 5 seeds)" in line
    moved = beside.per_seed.assign(score=beside.per_seed.score + 0.2 * (beside.per_seed.condition == "rloo"))
    assert f"(`rloo`, β = 0.02) at score {score + 0.2:.2f}" in report.verdict(dataclasses.replace(beside, per_seed=moved))[0]
    assert report.baselines(report.load(make(tmp_path, ARMS))) == {} and "Baselines" not in alone


def test_baselines_have_rows_and_points_that_are_named(beside):
    table = report.summary_table(beside)
    assert list(table.index) == [*ARMS, "grpo (baseline)", "rloo (baseline)"] and "[" in table.loc["grpo (baseline)", "score"]
    figure = second_plots.frontier(beside)
    plain = figures.frontier(report.judged_rows(beside, beside.per_seed))
    for axis, old, metric in zip(figure.axes, plain.axes, ("generation_log_perplexity", "kl_deployed")):
        large = [tuple(c.get_offsets()[0]) for c in axis.collections[len(old.collections):] if len(c.get_offsets()) == 1]
        assert large == [(beside.values(c, metric).mean(), beside.values(c, "score").mean()) for c in BESIDE]
    (legend,) = figure.legends
    labels = [t.get_text() for t in legend.get_texts()]
    assert labels[-2:] == ["GRPO (baseline)", "RLOO (baseline)"] and labels[:-2] == [t.get_text() for t in plain.legends[0].get_texts()]
    assert "RLOO (baseline): score" in figure.get_label() and figure.get_label().startswith(plain.get_label())
