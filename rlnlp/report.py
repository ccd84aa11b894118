"""The KL report: tables of the named conditions in, a computed verdict, tables and samples out.

    results = load(params)                  # the conditions that params.reports["kl"] names, never a glob
    text, facts = verdict(results)          # words and numbers, both computed
    write(results, params.reports_folder / "kl")   # metrics.json, curves, samples.md, verdict.json, verdict.md

The same tables give the same bytes. Published numbers are those of arXiv:2210.01241v2, Table 5 (mean of 5 seeds).
"""

from __future__ import annotations

import html
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlnlp import answers, stats
from rlnlp.ablations import ALGORITHM
from rlnlp.figures import NAME, settings
from rlnlp.metrics import BUDGET
from rlnlp.results import ReportError, Results, once
from rlnlp.results import load as load_results
from rlnlp.runs import atomic_json, atomic_write, write_table
from rlnlp.tables import PROMPT_WORDS, join, markdown, safe, short, side_by_side

TOLERANCE = 0.2  # an adaptive target counts as reached within this share of it
MATCH = 1e-9  # relative; two kl_coef are equal
SUMMARY = (
    "score",
    "score_response",
    "judge",
    "generation_log_perplexity",
    "human_log_perplexity",
    "kl",
    "kl_deployed",
    "distinct_1",
    "distinct_2",
    "msttr",
    "entropy_2",
    "repetition",
    "shared_5gram",
    "length",
    "terminated",
)
MAIN = SUMMARY[:5] + ("kl_deployed",)  # the two halves of SUMMARY that fit on a page
REST = ("distinct_1", "distinct_2", "msttr", "entropy_2", "repetition", "shared_5gram", "length", "terminated")
# claim, metric, direction of (without KL) - (with KL)
KL_CLAIMS = (
    ("P01", "score", "greater"),
    ("P01", "generation_log_perplexity", "greater"),
    ("P01 as published", "human_log_perplexity", "greater"),
    ("P03", "distinct_2", "less"),
    ("P03", "msttr", "less"),
    ("P03", "entropy_2", "less"),
    ("not published", "judge", "less"),
)
# claim, metric, direction as kl_coef grows
DOSE_CLAIMS = (
    ("P02", "score", "less"),
    ("P02", "generation_log_perplexity", "less"),
    ("check", "kl_deployed", "less"),
    ("not published", "distinct_2", "greater"),
)
# claim, metric, direction of NLPO - PPO; no claim: interval only
METHOD_CLAIMS = (
    ("P04", "score", "greater"),
    ("P05", "generation_log_perplexity", "less"),
    ("P05 as published", "human_log_perplexity", "less"),
    ("", "judge", ""),
    ("", "distinct_2", ""),
    ("", "kl_deployed", ""),
)
PUBLISHED = {  # [with KL, without KL]; "with": best finite target of its row; "perplexity" is of human reviews
    "source": "arXiv:2210.01241v2, Table 5, IMDB, 5 seeds; its 'no KL' may have kept beta at its first value",
    "ppo": {
        "target": 0.5,
        "score": [0.605, 0.847],
        "human_perplexity": [33.497, 40.650],
        "distinct_2": [0.287, 0.200],
        "msttr": [0.666, 0.566],
        "entropy_2_bits": [13.484, 11.763],
    },
    "nlpo": {
        "target": 1.0,
        "score": [0.637, 0.859],
        "human_perplexity": [32.667, 37.553],
        "distinct_2": [0.288, 0.205],
        "msttr": [0.677, 0.567],
        "entropy_2_bits": [13.484, 11.772],
    },
}
RULE = (
    "Unit: the seed; conditions are compared seed by seed on the test prompts at the final checkpoint. "
    "holds here: the 95 % t interval of the mean difference excludes 0 "
    "in the claimed direction and the exact one-sided sign-flip p is at most 0.05. fails here: both, in the opposite "
    "direction. inconclusive: neither. Where the smallest p that so many seeds can give exceeds 0.05, no test is made: "
    "too few seeds for a test; direction only. A claim on several metrics holds only if it holds on each and fails only if it "
    "fails on each; anything between is inconclusive, and the table shows which metric said what. "
    "p_t_holm (paired t, Holm over the rows of one table) is shown beside and does not enter the rule. The rule is part of the "
    "code and knows no result; its authors had seen earlier runs of this kind when they wrote it."
)


def load(params) -> Results:
    """The results of the conditions in params.reports["kl"]; those that are not there are in `missing` and named first.

    Raises: ReportError where none is there, and as `results.load`.
    """
    found = load_results(params, params.reports["kl"].conditions)
    if not found.conditions:
        raise ReportError("; ".join(found.missing.values()))
    return found


# verdict -------------------------------------------------------------------------------------------------------------


@once
def kl_effects(results: Results) -> pd.DataFrame:
    """(1) What removing the KL penalty does: a row per algorithm and claimed metric, plain decoding."""
    rows = []
    for algorithm, (without, with_) in results.params.reports["kl"].pairs.items():
        for claim, metric, direction in KL_CLAIMS:
            row = _compare(results, without, with_, metric, direction)
            if row:
                rows.append({"algorithm": algorithm, "claim": claim, "without": without, "with": with_, **row})
    return _with_holm(rows)


@once
def dose_response(results: Results) -> pd.DataFrame:
    """(2) Trend over fixed kl_coef: each seed's least-squares slope per step to the next larger kl_coef, against 0.

    range: "all" coefficients, or those above 0 (without the arm that (1) tests); 2 coefficients at least.
    """
    look, rows = settings(results.per_seed), []
    for algorithm in NAME:
        fixed = look[(look.algorithm == algorithm) & (look.updates > 0) & (look.kl_target == 0)].sort_values("kl_coef")
        for name, chosen in (("all", fixed), ("above 0", fixed[fixed.kl_coef > 0])):
            chosen = chosen[~chosen.kl_coef.duplicated()]
            if len(chosen) < (3 if name == "all" else 2):
                continue
            rank = np.arange(len(chosen)) - (len(chosen) - 1) / 2
            for claim, metric, direction in DOSE_CLAIMS:
                values = [results.values(c, metric) for c in chosen.index]
                if any(v is None for v in values) or not results.independent(metric):
                    continue
                slopes = rank @ np.array(values) / (rank @ rank)
                row = {
                    "algorithm": algorithm,
                    "claim": claim,
                    "range": name,
                    "metric": metric,
                    "direction": direction,
                    "kl_coefs": " ".join(f"{b:g}" for b in chosen.kl_coef),
                    "means": " ".join(f"{v.mean():.3f}" for v in values),
                }
                rows.append({**row, **_tested(stats.one_sample(slopes, direction))})
    return _with_holm(rows)


@once
def targets(results: Results) -> pd.DataFrame:
    """(3) Is the adaptive target reached? Sampled KL in training, mean of each seed's last quarter of updates.

    reached: the mean over seeds lies within 20 % of the target; "below" and "above" say where it stays. "passing": within,
    but it moves by more than 20 % of the target from the first to the last update of that quarter (line through the
    mean). "there with fixed β too": so is the run whose β stays where this one's starts, so nothing shows that the
    controller did it. Judged is what the controller sees: for PPO a sampled KL; for NLPO the bare policy's log-ratio on
    tokens drawn under its mask, which is no distribution's KL. The exact one stands beside.
    """
    look, rows = settings(results.per_seed), []

    def last_quarter(condition: str) -> pd.DataFrame:
        own = results.curves[results.curves.condition == condition]
        return own[own["update"] > own["update"].max() - max(1, math.ceil(own["update"].nunique() / 4))]

    for condition, row in look[(look.kl_target > 0) & (look.updates > 0)].iterrows():
        late = last_quarter(condition)
        fixed = look[(look.algorithm == row.algorithm) & (look.kl_target == 0) & (look.kl_coef == row.kl_coef) & (look.updates > 0)]
        unsteered = last_quarter(fixed.index[0])["objective/kl"].mean() if len(fixed) else float("nan")
        found = stats.mean_interval(late.groupby("seed")["objective/kl"].mean().to_numpy())
        ratio = found.estimate / row.kl_target
        state = "reached" if abs(ratio - 1) <= TOLERANCE else "below" if ratio < 1 else "above"
        trend = late.groupby("update")["objective/kl"].mean()
        moved = np.polyfit(trend.index, trend, 1)[0] * (trend.index[-1] - trend.index[0]) if len(trend) > 1 else 0.0
        if state == "reached" and abs(moved) > TOLERANCE * row.kl_target:
            state = "passing"
        elif state == "reached" and abs(unsteered / row.kl_target - 1) <= TOLERANCE:
            state = "there with fixed β too"
        test = results.values(condition, "kl")
        rows.append(
            {
                "algorithm": row.algorithm,
                "condition": condition,
                "target": row.kl_target,
                "kl": found.estimate,
                "low": found.low,
                "high": found.high,
                "n": found.n,
                "state": state,
                "fixed_kl": unsteered,
                "final_kl_coef": late[late["update"] == late["update"].max()]["objective/kl_coef"].mean(),
                "test_kl": None if test is None else float(test.mean()),
            }
        )
    return pd.DataFrame(rows)


@once
def method_pairs(results: Results) -> list[dict]:
    """Pairs of conditions for (4): one per kl_coef that both algorithms ran, and the pair that validation chose.

    A chosen kl_coef that was not run is replaced by the nearest one that was (ratio), and the pair says so.
    """
    look = settings(results.per_seed)
    fixed = look[(look.updates > 0) & (look.kl_target == 0)]
    ppo, nlpo = (fixed[fixed.algorithm == a].sort_values("kl_coef") for a in NAME)
    pairs = [
        {"kind": "equal kl_coef", "ppo": p, "nlpo": q, "ppo_kl_coef": a, "nlpo_kl_coef": b, "note": ""}
        for p, a in ppo.kl_coef.items()
        for q, b in nlpo.kl_coef.items()
        if math.isclose(a, b, rel_tol=MATCH)
    ]
    if len(ppo) and len(nlpo) and set(NAME) <= set(results.tune):
        picked, notes = {}, []
        for algorithm, arms in (("ppo", ppo), ("nlpo", nlpo)):
            wanted = float(results.tune[algorithm]["kl_coef"])
            picked[algorithm] = min(arms.index, key=lambda c: abs(math.log((arms.kl_coef[c] + 1e-6) / (wanted + 1e-6))))
            if not math.isclose(arms.kl_coef[picked[algorithm]], wanted, rel_tol=MATCH):
                notes.append(
                    f"{NAME[algorithm]}: validation chose {wanted:g}, which was not run; nearest run {arms.kl_coef[picked[algorithm]]:g}"
                )
        pairs.append(
            {
                "kind": "chosen on validation",
                **picked,
                "ppo_kl_coef": ppo.kl_coef[picked["ppo"]],
                "nlpo_kl_coef": nlpo.kl_coef[picked["nlpo"]],
                "note": "; ".join(notes),
            }
        )
    return pairs


@once
def methods(results: Results) -> pd.DataFrame:
    """(4) NLPO - PPO for each pair of `method_pairs`, decoding (plain and top_p: the same for both; own) and metric.

    decoding "own - plain": how much of the difference under own decodings the decodings alone make, seed by seed.
    """
    rows, seen = [], set()
    for pair in method_pairs(results):
        if (pair["ppo"], pair["nlpo"]) in seen:  # validation chose a pair that is there already
            continue
        seen.add((pair["ppo"], pair["nlpo"]))
        arms = {k: pair[k] for k in ("kind", "ppo", "nlpo", "ppo_kl_coef", "nlpo_kl_coef")}
        other_beta = not math.isclose(pair["ppo_kl_coef"], pair["nlpo_kl_coef"], rel_tol=MATCH)
        for claim, metric, direction in METHOD_CLAIMS:
            shown = ("plain",) if metric == "human_log_perplexity" else ("plain", "top_p", "own")
            for decoding in shown:
                row = _compare(results, pair["nlpo"], pair["ppo"], metric, direction or "two-sided", decoding)
                if row:
                    unlike = {(True, True): ", decoders and β differ", (True, False): ", decoders differ", (False, True): ", β differs"}
                    named = claim and claim + unlike.get((decoding == "own", other_beta), "")
                    rows.append({**arms, "claim": named, "decoding": decoding, **row})
            if len(shown) > 1 and results.independent(metric):
                v = {(a, d): results.values(pair[a], metric, d) for a in NAME for d in ("own", "plain")}
                if all(x is not None for x in v.values()):
                    gap = (v["nlpo", "own"] - v["ppo", "own"]) - (v["nlpo", "plain"] - v["ppo", "plain"])
                    rows.append(
                        {
                            **arms,
                            "claim": "",
                            "decoding": "own - plain",
                            "metric": metric,
                            "direction": "two-sided",
                            **_tested(stats.one_sample(gap)),
                        }
                    )
    return _with_holm(rows)


def judged_rows(results: Results, table: pd.DataFrame) -> pd.DataFrame:
    """The rows of a table (per_seed, curves) whose condition this report judges: no baseline's."""
    return table[~table.condition.isin(list(baselines(results)))] if len(table) else table


@once
def baselines(results: Results) -> dict[str, str]:
    """Condition -> algorithm of the learners that only stand beside PPO and NLPO: no claim of this report is about them."""
    look = settings(results.per_seed)
    return {c: r.algorithm for c, r in look.iterrows() if r.updates > 0 and r.algorithm not in NAME}


def missing(results: Results) -> list[str]:
    """What a full KL report would show and this profile has not run, one sentence each."""
    look, said = settings(results.per_seed), []
    trained = look[look.updates > 0]
    if results.zero_shot is None:
        said.append("No zero-shot condition: nothing is compared with the untrained model.")
    for algorithm in NAME:
        own = trained[trained.algorithm == algorithm]
        if not len(own):
            said.append(f"{NAME[algorithm]} was not run.")
            continue
        if algorithm not in results.params.reports["kl"].pairs:
            said.append(
                f"{NAME[algorithm]} has no pair without and with KL penalty: P01 and P03 are not judged for it."
            )
        if (own.kl_target == 0).sum() < 3:
            said.append(
                f"{NAME[algorithm]} has fewer than three fixed KL coefficients: no dose response over all of them."
            )
        if not (own.kl_target > 0).any():
            said.append(f"{NAME[algorithm]} has no adaptive KL target.")
    if not method_pairs(results):
        said.append("PPO and NLPO share no fixed KL coefficient: they are not compared.")
    if results.values(look.index[0], "judge") is None:
        said.append("No held-out judge was measured.")
    return said


def cautions(results: Results) -> list[str]:
    """What weakens this report, one sentence each; the last is the reader's own note."""
    said, params = [], results.params
    if params.bring.model:
        said.append(
            "The model that was brought is also the evaluator (one tokenizer), so the log-perplexity of generations measures what "
            "the KL penalty pushes on: P01, P02 and P05 are not judged on it."
        )
    for name in ("learning_rate", "kl_coef"):
        tried = getattr(params.tune, f"{name}s")
        for end, word in ((max(tried), "largest"), (min(tried), "smallest")):
            there = [NAME[a] for a in results.tune if len(tried) > 1 and math.isclose(float(results.tune[a][name]), end, rel_tol=MATCH)]
            if there:
                said.append(f"The search chose the {word} {name} it tried ({end:g}) for {join(there)}: a better one may lie outside.")
    if {"words", "prompts"} <= set(results.per_seed):
        short = (results.per_seed.words * results.per_seed.prompts < BUDGET).sum()
        if short:
            said.append(
                f"{short} of {len(results.per_seed)} evaluations hold fewer than {BUDGET:,} words; Distinct-n and n-gram entropies are "
                "over what there is, which favours them."
            )
    return said + [params.reports["kl"].note] * bool(params.reports["kl"].note)


def verdict(results: Results) -> tuple[str, dict]:
    """The answer in two sentences and what stands beside it, as Markdown, and as numbers; all of it computed."""
    effects, dose, reached, compared = kl_effects(results), dose_response(results), targets(results), methods(results)
    pairs = method_pairs(results)
    overall = _overall(effects)
    smallest = stats.smallest_p(len(results.seeds), "greater")
    gaps = missing(results)
    lines = [_answer(results, effects, overall), _paragraph(results, effects, overall, reached, compared, pairs)]
    lines += [_published_line(a) for a in results.params.reports["kl"].pairs]
    for pair in _headline(pairs, results)[1:]:
        note = f" ({pair['note']})" if pair["note"] else ""
        lines.append(f"**With each one's own β.**{note} {_attribution(compared, pair)}")
    if beside := _baselines(results):
        lines.append(beside)
    if any(p["kind"] != "equal kl_coef" for p in pairs) and len(_headline(pairs, results)) == 1:
        note = next(p["note"] for p in pairs if p["kind"] != "equal kl_coef")
        lines.append(f"**With each one's own β.** Validation chose the same pair{f' ({note})' if note else ''}.")
    if weak := cautions(results):
        lines.append("**Read with care.** " + " ".join(weak))
    if gaps:
        lines.append("**Not in this report.** " + " ".join(gaps))
    facts = {
        "profile": results.params.profile,
        "seeds": results.seeds,
        "alpha": stats.ALPHA,
        "smallest_p_one_sided": smallest,
        "rule": RULE,
        "overall": overall,
        "kl_effects": _records(effects),
        "dose_response": _records(dose),
        "targets": _records(reached),
        "methods": _records(compared),
        "method_pairs": pairs,
        "missing": gaps,
        "cautions": weak,
        "published": PUBLISHED,
    }
    return answers.missing(results) + "\n\n".join(lines) + "\n", _rounded(facts)


def details(results: Results) -> str:
    """Every tested effect as Markdown tables, one per question, and the rule behind the words."""
    parts = []
    for title, table in (
        ("Without the KL penalty (paired, without − with)", effects_table(results)),
        ("Dose response over fixed β", dose_table(results)),
        (f"Adaptive targets (reached: within {TOLERANCE:.0%})", targets_table(results)),
        ("NLPO beside PPO", methods_table(results)),
    ):
        parts += [f"## {title}", markdown(table) if len(table) else "Not run in this profile."]
    smallest = stats.smallest_p(len(results.seeds), "greater")
    parts.append(
        f"**How the words are chosen.** {RULE} Here n = {len(results.seeds)}: the smallest possible one-sided p is {_p(smallest)}"
        + (", so no test is made." if smallest > stats.ALPHA else ".")
    )
    return "\n\n".join(parts) + "\n"


def _overall(effects: pd.DataFrame) -> dict[str, dict[str, str]]:
    """algorithm -> claim -> verdict; a claim on several metrics holds only if each does, and fails only if each does.

    Where no test is made, the direction of the means is added.
    """
    found: dict[str, dict[str, str]] = {}
    wanted = {claim: {m for c, m, _ in KL_CLAIMS if c == claim} for claim, _, _ in KL_CLAIMS}
    for (algorithm, claim), rows in effects.groupby(["algorithm", "claim"], sort=False) if len(effects) else ():
        if set(rows.metric) != wanted[claim]:  # a claim is not judged on the part that was measured
            continue
        words = set(rows.verdict)
        word = stats.FEW if stats.FEW in words else words.pop() if len(words) == 1 else stats.INCONCLUSIVE
        if word == stats.FEW:
            claimed = [d > 0 if way == "greater" else d < 0 for d, way in zip(rows.difference, rows.direction)]
            word += ": as claimed" if all(claimed) else ": mixed" if any(claimed) else ": against the claim"
        found.setdefault(algorithm, {})[claim] = word
    return found


def _answer(results, effects, overall) -> str:
    """Two sentences: what taking the penalty away does, and what becomes of the two claims about it."""
    n, told = len(results.seeds), [a for a in results.params.reports["kl"].pairs if a in overall]
    counted = f"{n} seed{'s' * (n > 1)}"
    if not told:
        return f"**Answer.** The runs that would answer it were not made in profile `{results.params.profile}` ({counted})."
    rows = {a: effects[effects.algorithm == a].set_index("metric") for a in told}
    parts = [
        f"{name} went {join([f'from {r.second[metric]:.2f} to {r.first[metric]:.2f} ({NAME[a]})' for a, r in rows.items()])}"
        for metric, name in (
            ("score", "the score it is trained on"),
            ("generation_log_perplexity", "the log-perplexity of what it writes"),
            ("distinct_2", "the share of distinct word pairs"),
            ("judge", "the opinion of a judge it never met"),
        )
        if all(metric in r.index for r in rows.values())
    ]
    return (
        f"**Answer.** When the KL penalty is taken away from a model's training, {'; '.join(parts)} (means over {counted}). "
        f"That it then games its reward, score up and fluency of its own text down: {_words(overall, told, 'P01')}; that its text becomes "
        f"less diverse: {_words(overall, told, 'P03')} (by this report's tests; the paper's claims ask for other measures too and are judged below)."
    )


def _paragraph(results, effects, overall, reached, compared, pairs) -> str:
    """What was compared, and what stands beside the answer."""
    n, told = len(results.seeds), [a for a in results.params.reports["kl"].pairs if a in overall]
    bring = results.params.bring
    own, same = [], []
    for name, brought in (("texts", bring.prompts), ("base model", bring.model), ("reward model", bring.reward)):
        (same if brought else own).append(name)
    shared = f"{' and' if own else ''} all with the same {join(same)}" if same else ""
    said = [
        f"Profile `{results.params.profile}`, {n} seed{'s' if n > 1 else ''},{f' each with its own {join(own)}' if own else ''}{shared}."
    ]
    if told:
        said += _beside_zero_shot(results, {a: effects[effects.algorithm == a].set_index("metric") for a in told})
    if len(reached):
        said.append(
            f"An adaptive penalty reached its KL target in {(reached.state == 'reached').sum()} of {len(reached)} settings."
        )
    for pair in _headline(pairs, results)[:1]:
        said.append(_attribution(compared, pair))
    return "**Beside it.** " + " ".join(said)


def _beside_zero_shot(results: Results, effects: dict[str, pd.DataFrame]) -> list[str]:
    """Where the penalised models stand beside the untrained one, and what a low log-perplexity then does not mean."""
    if results.zero_shot is None:
        return []
    names = (("score", "score"), ("generation_log_perplexity", "log-perplexity"), ("distinct_2", "distinct pairs"))
    start = {m: results.values(results.zero_shot, m) for m, _ in names}
    if any(v is None for v in start.values()) or any(m not in e.index for e in effects.values() for m in start):
        return []
    told = ", ".join(f"{name} {start[m].mean():.2f}" for m, name in names)
    said = [f"The untrained model stands at {told}."]
    narrowed = [
        NAME[a] for a, e in effects.items()
        if all(e.second[m] < start[m].mean() for m in ("generation_log_perplexity", "distinct_2"))
    ]
    if narrowed:
        said.append(
            f"Even with the penalty, {join(narrowed)} write{'s' * (len(narrowed) == 1)} text that is more predictable and less varied than before training: a "
            "low log-perplexity is not fluency alone."
        )
    return said


def _baselines(results: Results) -> str:
    """Where the baselines stand, a sentence; empty if none was run."""
    look, told = settings(results.per_seed), []
    names = (("score", "score"), ("generation_log_perplexity", "log-perplexity"), ("kl_deployed", "KL"))
    for condition, algorithm in baselines(results).items():
        found = {name: v for m, name in names if (v := results.values(condition, m)) is not None}
        numbers = ", ".join(f"{name} {v.mean():.2f}" for name, v in found.items())
        told.append(f"{ALGORITHM.get(algorithm, algorithm)} (`{condition}`, β = {look.kl_coef[condition]:g}) at {numbers}")
    if not told:
        return ""
    return f"**Baselines, beside and not judged here.** {join(told)} (means over {len(results.seeds)} seed{'s' * (len(results.seeds) > 1)})."


def _words(overall: dict, algorithms: list[str], claim: str) -> str:
    """Verdicts with the algorithms they are of: "**holds here** (PPO and NLPO)"."""
    groups: dict[str, list[str]] = {}
    for a in algorithms:
        groups.setdefault(overall[a].get(claim, "not measured"), []).append(NAME[a])
    return join([f"**{word}** ({join(names)})" for word, names in groups.items()])


def _published_line(algorithm: str) -> str:
    paper = PUBLISHED[algorithm]
    return (
        f"**Published** for {NAME[algorithm]} on IMDB (target {paper['target']:g} → no KL; v2 Table 5, 5 seeds): score {_arrow(paper['score'])}, "
        f"perplexity of human reviews {_arrow(paper['human_perplexity'])} (log: {math.log(paper['human_perplexity'][0]):.2f} → "
        f"{math.log(paper['human_perplexity'][1]):.2f}), Distinct-2 {_arrow(paper['distinct_2'])}, MSTTR {_arrow(paper['msttr'])}."
    )


_DECODED = {"plain": "both plain", "top_p": "both top-p", "own": "each its own decoding"}


def _attribution(compared: pd.DataFrame, pair: dict) -> str:
    """`_lead`, and the difference in log-perplexity beside it."""
    rows = _of(compared, pair)
    rows = rows[(rows.metric == "generation_log_perplexity") & (rows.decoding == "plain")]
    beside = "".join(
        f" The log-perplexity of its text differs by {r.difference:+.3f} with both plain (lower would support P05: **{r.verdict}**)."
        for r in rows.itertuples()
    )
    return _lead(compared, pair) + beside


def _lead(compared: pd.DataFrame, pair: dict) -> str:
    """Whether a lead in score survives the same decoding for both, in a sentence."""
    rows = _of(compared, pair)
    rows = rows[rows.metric == "score"].set_index("decoding")
    same = [d for d in ("plain", "top_p") if d in rows.index]
    if not same:
        return f"{_named(pair, True)}: no decoding in common was measured."
    numbers = ", ".join(f"{rows.difference[d]:+.3f} with {_DECODED[d]}" for d in (*same, "own") if d in rows.index)
    start = f"{_named(pair, True)}, NLPO minus PPO in score is {numbers}: "
    words = [rows.verdict[d] for d in same]
    if stats.FEW in words:
        if "own - plain" in rows.index:
            gap = rows.loc["own - plain"]
            return (
                start
                + f"too few seeds for a test; decoding alone accounts for {gap.difference:+.3f} {_between(gap.low, gap.high)} of the last."
            )
        return start + "too few seeds for a test."
    own = rows.verdict.get("own", stats.INCONCLUSIVE)
    if set(words) == {stats.HOLDS}:
        return start + "NLPO is ahead (P04) under the same decoding too: **holds here**."
    if stats.HOLDS in words:
        return start + "NLPO's lead (P04) depends on which shared decoding is used: **inconclusive**."
    behind = set(words) == {stats.FAILS}
    end = "NLPO is behind" if behind else "no lead of NLPO is shown"
    word = stats.FAILS if behind else stats.INCONCLUSIVE
    if own == stats.HOLDS:
        gap = rows.loc["own - plain"] if "own - plain" in rows.index else None
        if gap is not None and gap.low > 0:
            why = f"decoding alone makes {gap.difference:+.3f} {_between(gap.low, gap.high)} of it"
        else:
            why = "whether decoding makes the difference is not shown"
        return start + f"it is ahead with its own decoding ({why}); under the same decoding {end} (P04: **{word}**)."
    return start + f"under the same decoding {end} (P04: **{word}**)."


def _headline(pairs: list[dict], results: Results) -> list[dict]:
    """The pairs told first: the equal kl_coef of the default arms (else the first above 0), and the chosen pair."""
    equal = [p for p in pairs if p["kind"] == "equal kl_coef"]
    named = {name for pair in results.params.reports["kl"].pairs.values() for name in pair[1:]}
    equal.sort(key=lambda p: (-len(named & {p["ppo"], p["nlpo"]}), p["ppo_kl_coef"] == 0))
    first = equal[:1]
    same = [(p["ppo"], p["nlpo"]) for p in first]
    return first + [p for p in pairs if p["kind"] != "equal kl_coef" and (p["ppo"], p["nlpo"]) not in same]


def headline(results: Results) -> list[dict]:
    """At most two pairs of `method_pairs`: the equal kl_coef told first, and the chosen pair if it is another one."""
    return _headline(method_pairs(results), results)


def _of(compared: pd.DataFrame, pair: dict) -> pd.DataFrame:
    """The rows of a pair; `methods` tests a chosen pair that is also one of equal kl_coef only once, as the latter."""
    return compared[(compared.ppo == pair["ppo"]) & (compared.nlpo == pair["nlpo"])]


def _named(pair: dict, sentence: bool = False) -> str:
    if pair["kind"] == "equal kl_coef":
        return f"{'At' if sentence else 'at'} the same β = {pair['ppo_kl_coef']:g}"
    return f"{'At' if sentence else 'at'} the β that validation chose (PPO {pair['ppo_kl_coef']:g}, NLPO {pair['nlpo_kl_coef']:g})"


# tables --------------------------------------------------------------------------------------------------------------


def summary(results: Results, decoding: str = "plain") -> pd.DataFrame:
    """Mean and 95 % t interval over seeds of each metric: a row per condition and metric (tidy), test split."""
    rows = []
    for condition in results.params.reports["kl"].conditions:
        for metric in SUMMARY:
            values = results.values(condition, metric, decoding)
            if values is None:
                continue
            found = stats.mean_interval(values)
            rows.append(
                {
                    "condition": condition,
                    "metric": metric,
                    "n": found.n,
                    "mean": found.estimate,
                    "low": found.low,
                    "high": found.high,
                }
            )
    return pd.DataFrame(rows)


def summary_table(results: Results, decoding: str = "plain", metrics: tuple[str, ...] | None = None) -> pd.DataFrame:
    """`summary` for people: a row per condition, "mean [low, high]" per metric."""
    tidy = summary(results, decoding)
    tidy["text"] = [f"{r['mean']:.3f} {_between(r.low, r.high)}".strip() for _, r in tidy.iterrows()]
    wide = tidy.pivot(index="condition", columns="metric", values="text")
    shown = [m for m in (metrics or SUMMARY) if m in wide]
    wide = wide.reindex(list(results.params.reports["kl"].conditions))[shown].fillna("missing").rename_axis(index=None, columns=None)
    return wide.rename({c: f"{c} (baseline)" for c in baselines(results)})


def effects_table(results: Results) -> pd.DataFrame:
    """`kl_effects` for people, the published change beside."""
    rows = [
        {
            "algorithm": NAME[r.algorithm],
            "claim": r.claim,
            "without the penalty": f"{r.metric} {'rises' if r.direction == 'greater' else 'falls'}",
            "with KL": f"{r.second:.3f}",
            "without": f"{r.first:.3f}",
            **_cells(r),
            "published": _published(r.algorithm, r.metric),
        }
        for r in kl_effects(results).itertuples()
    ]
    return _bare(rows)


def dose_table(results: Results) -> pd.DataFrame:
    """`dose_response` for people: means along β, and the slope per step to the next larger β."""
    rows = [
        {
            "algorithm": NAME[r.algorithm],
            "claim": r.claim,
            "as β grows": f"{r.metric} {'rises' if r.direction == 'greater' else 'falls'}",
            "β": r.kl_coefs.replace(" ", " → "),
            "means": r.means.replace(" ", " → "),
            **_cells(r, "slope per step [95 %]"),
        }
        for r in dose_response(results).itertuples()
    ]
    return _bare(rows)


def targets_table(results: Results) -> pd.DataFrame:
    """`targets` for people."""
    rows = [
        {
            "algorithm": NAME[r.algorithm],
            "target (nats/token)": f"{r.target:g}",
            "sampled KL, last quarter [95 %]": f"{r.kl:.3f} {_between(r.low, r.high)}",
            "state": r.state,
            "with β fixed at the start value": "" if pd.isna(r.fixed_kl) else f"{r.fixed_kl:.3f}",
            "β at the end": f"{r.final_kl_coef:.3g}",
            "exact KL, test": "" if pd.isna(r.test_kl) else f"{r.test_kl:.3f}",
        }
        for r in targets(results).itertuples()
    ]
    return _bare(rows)


def methods_table(results: Results) -> pd.DataFrame:
    """`methods` for people: score and the two log-perplexities, NLPO - PPO."""
    rows = [
        {
            "β (PPO, NLPO)": f"{r.ppo_kl_coef:g}, {r.nlpo_kl_coef:g}"
            + (" chosen" if r.kind != "equal kl_coef" else ""),
            "metric": r.metric,
            "decoding": _DECODED.get(r.decoding, "made by decoding alone"),
            "claim": r.claim,
            **_cells(r, "NLPO − PPO [95 %]"),
        }
        for r in methods(results).itertuples()
        if r.metric in ("score", "generation_log_perplexity", "human_log_perplexity")
    ]
    return _bare(rows)


def metrics_json(results: Results) -> dict[str, float]:
    """Flat numbers for metrics.json: <condition>.<metric>.mean|low|high, effect_of_no_kl.<algorithm>.<metric>.*.

    low, high: 95 % t interval; <condition>.score.iqm*: interquartile mean and its BCa bootstrap interval.
    """
    flat: dict[str, float] = {"seeds": len(results.seeds)}
    for row in summary(results).itertuples():
        if row.metric in (
            "score",
            "judge",
            "generation_log_perplexity",
            "human_log_perplexity",
            "kl_deployed",
            "distinct_2",
        ):
            for part in ("mean", "low", "high"):
                flat[f"{row.condition}.{row.metric}.{part}"] = getattr(row, part)
        if row.metric == "score":
            middle = stats.bootstrap(results.values(row.condition, "score"))
            flat |= {
                f"{row.condition}.score.iqm{p}": v
                for p, v in (("", middle.estimate), ("_low", middle.low), ("_high", middle.high))
            }
    for row in kl_effects(results).itertuples():
        for part in ("difference", "low", "high", "p_permutation"):
            flat[f"effect_of_no_kl.{row.algorithm}.{row.metric}.{part}"] = getattr(row, part)
    return {k: v for k, v in _rounded(flat).items() if v is not None}


def curve_table(results: Results, metric: str) -> list[dict]:
    """Mean over seeds of a training metric: a row per update, a column per condition (None after its last update)."""
    if not len(results.curves):
        return []
    wide = results.curves.groupby(["update", "condition"])[metric].mean().unstack("condition")
    wide = wide[[c for c in results.params.reports["kl"].conditions if c in wide]]
    return [
        {"update": int(u), **{k: None if pd.isna(v) else float(f"{v:.6g}") for k, v in row.items()}}
        for u, row in wide.iterrows()
    ]


def settings_table(results: Results) -> pd.DataFrame:
    """How each condition was set and where its learning rate and kl_coef come from."""
    first = results.per_seed.drop_duplicates("condition").set_index("condition")
    wanted = ["algorithm", "kl_coef", "kl_target", "learning_rate", "updates", "prompts"]
    table = first[[c for c in wanted if c in first]].copy()
    own = results.per_seed[results.per_seed.decoding == "own"].drop_duplicates("condition").set_index("condition")
    table["own decoding"] = own["decoding_record"].reindex(table.index).fillna("")
    return table.rename_axis(None)


def tune_table(results: Results) -> pd.DataFrame:
    """The search on validation prompts: every candidate of each algorithm, and the one chosen."""
    rows = []
    for algorithm, found in results.tune.items():
        for c in found["candidates"]:
            same = c["learning_rate"] == found["learning_rate"] and c["kl_coef"] == found["kl_coef"]
            numbers = {
                k: round(v, 3) if isinstance(v, float) and k not in ("learning_rate", "kl_coef") else v
                for k, v in c.items()
            }
            rows.append({"algorithm": NAME.get(algorithm, algorithm), **numbers, "chosen": "chosen" if same else ""})
    return _bare(rows)


def tune_rule(results: Results) -> str:
    """How β and learning rate were chosen, a line of Markdown per algorithm."""
    return "\n".join(
        f"- {NAME.get(a, a)}: learning rate {t['learning_rate']:g}, β {t['kl_coef']:g}, of {len(t['candidates'])} candidates on draw "
        f"{t['draw']}. Rule: {t['rule']}."
        for a, t in results.tune.items()
    )


def models_table(results: Results) -> pd.DataFrame:
    """Facts about each seed's models (sizes, bits per byte, accuracies): a row per fact, a column per seed."""
    return pd.DataFrame({f"seed {s}": {k: _said(v) for k, v in _flat(f).items()} for s, f in results.models.items()})


def arms(results: Results) -> list[tuple[str, str]]:
    """(title, condition) of the texts shown side by side; a condition that was not run has an empty name."""
    pairs = results.params.reports["kl"].pairs
    without, with_ = next(iter(pairs.values())) if pairs else ("", "")
    return [
        ("zero-shot (before)", results.zero_shot or ""),
        (f"with KL ({with_})", with_),
        (f"without KL ({without})", without),
    ]


def samples(results: Results, count: int = 20) -> list[dict]:
    """The first `count` test prompts of the first seed, unselected, with each arm's response: [{"prompt", title: text}]."""
    shown: dict[str, dict] = {}
    for title, condition in arms(results):
        for line in [s for s in results.samples.get(condition, ()) if s["seed"] == results.seeds[0]][:count]:
            row = shown.setdefault(str(line["example_id"]), {"prompt": short(line["prompt"])})
            row[title] = f"{' '.join(line['response'].split())} ({line['score']:.2f})"
    return list(shown.values())[:count]


def samples_html(results: Results, count: int = 6) -> str:
    """`samples` as an HTML table, columns side by side."""
    return side_by_side(samples(results, count), ["prompt", *(title for title, _ in arms(results))])


def samples_markdown(results: Results, count: int = 20) -> str:
    """`samples` as Markdown: a section per arm."""
    rows, lines = samples(results, count), ["# Samples", ""]
    intro = (
        f"Seed {results.seeds[0]}, the first {len(rows)} test prompts, plain decoding; nothing was selected. "
        f"At most {PROMPT_WORDS} words of a prompt are shown. In brackets: the reward model's score."
    )
    lines += [intro, ""]
    for title, condition in arms(results):
        lines += [f"## {title}", ""]
        here = [f"{i}. *{safe(r['prompt'])}* → {safe(r[title])}" for i, r in enumerate(rows, 1) if title in r]
        lines += [*(here or ["Not run in this profile."]), ""]
    return "\n".join(lines)


def episode_pair(results: Results) -> list[tuple[str, dict]]:
    """(title, episode) with and without KL of the first pair, for `figures.episode`."""
    return [(title, results.episodes[c]) for title, c in arms(results) if c in results.episodes]


def write(results: Results, folder: str | Path) -> tuple[str, dict]:
    """Write every table and text of the report into `folder`; returns the verdict. Same results, same bytes."""
    folder = Path(folder)
    text, facts = verdict(results)
    for metric in ("objective/score", "objective/kl"):
        write_table(folder / f"curves_{metric.split('/')[1]}.csv", curve_table(results, metric))
    atomic_json(folder / "metrics.json", metrics_json(results))
    atomic_json(folder / "verdict.json", facts)
    atomic_write(folder / "verdict.md", f"# Verdict\n\n{text}\n{details(results)}")
    atomic_write(folder / "samples.md", samples_markdown(results))
    return text, facts


# parts ---------------------------------------------------------------------------------------------------------------


def _compare(
    results: Results, first: str, second: str, metric: str, direction: str, decoding: str = "plain"
) -> dict | None:
    """first - second of a metric, paired by seed; None where it was not measured."""
    a, b = results.values(first, metric, decoding), results.values(second, metric, decoding)
    if a is None or b is None or not results.independent(metric):
        return None
    return {
        "metric": metric,
        "direction": direction,
        "first": float(a.mean()),
        "second": float(b.mean()),
        **_tested(stats.paired(a, b, direction)),
    }


def _tested(result: stats.Paired) -> dict:
    found = asdict(result)
    del found["alternative"], found["alpha"], found["p_opposite"]
    return {**found, "verdict": "" if result.alternative == "two-sided" else stats.decide(result)}


def _with_holm(rows: list[dict]) -> pd.DataFrame:
    """The family is the rows of one table that have a verdict."""
    family = [i for i, r in enumerate(rows) if r["verdict"] and r["p_t"] is not None]
    corrected = dict(zip(family, stats.holm([rows[i]["p_t"] for i in family])))
    return pd.DataFrame([{**r, "p_t_holm": corrected.get(i)} for i, r in enumerate(rows)])


def _cells(row, name: str = "difference [95 %]") -> dict[str, str]:
    return {
        name: f"{row.difference:+.3f} {_between(row.low, row.high)}".strip(),
        "p": _p(row.p_permutation),
        "p_t, Holm": _p(row.p_t_holm),
        "verdict": row.verdict,
    }


def _bare(rows: list[dict]) -> pd.DataFrame:
    """Without the row numbers."""
    return pd.DataFrame(rows, index=[""] * len(rows))


def _published(algorithm: str, metric: str) -> str:
    """The published change of a metric; perplexity as its logarithm."""
    paper = PUBLISHED.get(algorithm, {})
    if metric == "human_log_perplexity" and "human_perplexity" in paper:
        return " → ".join(f"{math.log(v):.3f}" for v in paper["human_perplexity"])
    if metric == "entropy_2" and "entropy_2_bits" in paper:
        return f"{' → '.join(f'{v:.2f}' for v in paper['entropy_2_bits'])} bits"
    return _arrow(paper[metric]) if metric in paper else ""


def _between(low, high) -> str:
    return "" if low is None or pd.isna(low) else f"[{low:.3f}, {high:.3f}]"


def _p(value) -> str:
    if value is None or pd.isna(value):
        return ""
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1e}"


def _arrow(pair: list[float]) -> str:
    return f"{pair[0]:.3f} → {pair[1]:.3f}"


def _said(value: Any) -> str:
    """A fact in words: yes/no, whole numbers with commas, others to 4 digits."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)


def _flat(tree: dict, before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{before}{key}.") if isinstance(value, dict) else {before + key: _rounded(value)}
    return flat


def _records(table: pd.DataFrame) -> list[dict]:
    return [
        {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in r.items()}
        for r in table.to_dict("records")
    ]


def _rounded(value: Any) -> Any:
    """Floats to 6 significant digits, NaN to None, numpy numbers to plain ones."""
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(v) for v in value]
    if isinstance(value, (np.floating, np.integer, np.bool_)):
        value = value.item()
    if isinstance(value, float):
        return None if not math.isfinite(value) else float(f"{value:.6g}")
    return value
