"""The texts, tables and files of the ablation reports.

    text, facts = write(results, "gamma", folder)   # metrics.json, verdict.json, verdict.md, samples.md
    claims_markdown(facts)                          # the claims of this report, each with its tests and its word
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd

from rlnlp import claims, second_paper, tables
from rlnlp import results as run_results
from rlnlp.ablations import (
    IMITATION,
    OF_TRAINING,
    QUALITY,
    budget_lines,
    dropout_lines,
    estimate,
    gamma_lines,
    mask_lines,
    measure,
    plain,
    sampling_rows,
    untrained,
    vocabulary_lines,
    world_of,
    worlds,
)
from rlnlp.answers import answer
from rlnlp.results import ReportError, Results, once
from rlnlp.runs import atomic_json, atomic_write
from rlnlp.tables import between, join

FACTS = ("rollout_score", "tokens_per_gradient_step")  # of training too: the same whatever the decoding
DETAIL = {  # report: what its table shows besides QUALITY
    "gamma": ("distinct_2", "wobble", "drop"),
    "dropout": ("first_ratio_error", "clip_fraction", "approx_kl", "diverged"),
    "mask": ("distinct_2", "last_cycle", "dip", "wobble"),
    "budget": ("training_score", "distinct_2", "length"),
    "warm_start": ("distinct_2", "length", "wobble"),
    "sampling": ("training_score", "distinct_2", "length"),
    "vocabulary": ("gain:score", "gradient_norm", "wobble", "drop"),
    "samplers": ("distinct_2", "repetition", "kept_mass", "kept_tokens", "wobble", "rollout_score"),
    "dqn": ("distinct_2", "repetition", "entropy_2", "length", "wobble", "tokens_per_gradient_step"),
    "family": ("distinct_2", "repetition", "wobble", "drop", "rollout_score"),
}


def judged(results: Results, name: str) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
    """(rows of `claims.ledger` of this report's claims, claims that were not judged -> their runs that are missing).

    Judged on all the runs that they name, also those that only other reports show. Claims that the profile does not list
    have a row that says what they lack. The adjustment over the table is over the tests of the claims judged here.
    """
    params, known = results.params, _claims(results)
    mine = [i for i in params.claims if known[i].report == name]
    named = [c for c in params.all_runs if any(c in claims.conditions_of(known[i]) for i in mine)]
    everything = run_results.load(params, named)
    lost = {i: sorted(claims.conditions_of(known[i]) & set(everything.missing)) for i in mine}
    lost = {i: gone for i, gone in lost.items() if gone}
    rows = claims.ledger(known, everything, [i for i in mine if i not in lost])
    return [r for r in rows if r["report"] == name and r["id"] not in lost], lost


def claims_markdown(facts: dict) -> str:
    """The claims in `facts` (of `write`): those not judged, then each one's word and every test, and the rule."""
    lost = [
        f"**NOT JUDGED: {i}. Its runs are missing: {join([f'`{c}`' for c in gone])}.**"
        for i, gone in facts["not_judged"].items()
    ]
    rows = facts["claims"]
    return "\n\n".join(
        [
            *lost,
            claims.markdown(rows).replace("# Claims", "## Claims", 1)
            if rows
            else "No claim of this report was judged.",
        ]
    )


@once
def _claims(results: Results) -> dict[str, claims.Claim]:
    """The claims of the repository. Raises: ReportError for an id that the profile lists and no claim has."""
    params = results.params
    known = claims.load(params.folder / params.root / "claims.yaml", also=params.all_runs)
    if unknown := [i for i in params.claims if i not in known]:
        raise ReportError(f"{params.path}: claims: no entry of claims.yaml is called {unknown}")
    return known


def rule(results: Results) -> str:
    """The first digits of the hash of the rule and of every test, which were committed before the results."""
    return claims.rule_hash(_claims(results))[:12]


# tables and files ----------------------------------------------------------------------------------------------------


def summary(results: Results, name: str) -> pd.DataFrame:
    """Mean and 95 % interval over seeds (see `estimate`): a row per condition, decoding and metric, test split (tidy)."""
    decodings = list(dict.fromkeys(results.per_seed.decoding[results.per_seed.split == "test"]))
    metrics = (*QUALITY, *DETAIL[name])
    rows = []
    for condition in results.conditions:
        for decoding in decodings:
            for metric in metrics:
                if decoding != "plain" and metric in (*OF_TRAINING, *FACTS, "last_cycle", "dip", "diverged"):
                    continue  # the same whatever the decoding
                values = measure(results, condition, metric, decoding)
                if values is None:
                    continue
                found = estimate(values, metric)
                rows.append(
                    {"condition": condition, "decoding": decoding, "metric": metric, "n": found.n, "mean": found.estimate,
                     "low": found.low, "high": found.high}
                )  # fmt: skip
    return pd.DataFrame(rows)


def summary_table(results: Results, name: str, decoding: str = "plain", world: str | None = None) -> pd.DataFrame:
    """`summary` for people: every condition of the report in its order, "mean [low, high]" per metric; missing runs too.

    world: only the conditions of one ("": reviews), whose scores compare; None: all, for reports that know one only.
    """
    tidy = summary(results, name)
    of_world = tidy.condition.map(lambda c: world in (None, world_of(results, c))).astype(bool)
    tidy = tidy[(tidy.decoding == decoding) & of_world]
    text = [f"{tables.number(r.mean)} {between(r.low, r.high)}".strip() for r in tidy.itertuples()]
    wide = tidy.assign(text=text).pivot(index="condition", columns="metric", values="text")
    listed = [c for c in results.params.reports[name].conditions if c in wide.index or c in results.missing]
    shown = [m for m in (*QUALITY, *DETAIL[name]) if m in wide]
    wide = wide.reindex([c for c in listed if world in (None, world_of(results, c))])[shown]
    for condition in wide.index.intersection(list(results.missing)):
        wide.loc[condition] = "MISSING"
    return wide.fillna("").rename_axis(index=None, columns=None)


def settings_table(results: Results) -> pd.DataFrame:
    """What each run is, from its config.json: a row per condition; a column per setting that differs between those
    that have it, or that only a few have."""
    rows = {c: {**f["run"], **f["learner"]} for c, f in ((c, results.configs[c]) for c in results.conditions)}
    table = pd.DataFrame.from_dict(rows, orient="index").astype(object)
    own = {k: [v for v in table[k] if not _absent(v)] for k in table if k != "decodings"}
    differs = [
        k for k, there in own.items() if len({json.dumps(plain(v)) for v in there}) > 1 or len(there) < len(table) / 2
    ]
    return table[differs].map(_said)


def shared_settings(results: Results) -> str:
    """The settings that all runs of the report have in common, in a line."""
    rows = [{**results.configs[c]["run"], **results.configs[c]["learner"]} for c in results.conditions]
    same = {k: v for k, v in rows[0].items() if all(k in row and row[k] == v for row in rows)}
    same.pop("decodings", None)
    return "The same in all of them: " + ", ".join(f"{k} {_said(v) or '(none)'}" for k, v in sorted(same.items())) + "."


def broken(results: Results) -> str:
    """Which invariant each run breaks on purpose, as its config says; a Markdown list, empty if none does."""
    found = {c: results.configs[c]["learner"].get("breaks") for c in results.conditions}
    return "\n".join(f"- `{c}` breaks on purpose: {', '.join(b)}" for c, b in found.items() if b)


def metrics_json(results: Results, name: str) -> dict[str, float]:
    """Flat numbers for metrics.json: <condition>.<metric>.mean|low|high, plain decoding, and seeds."""
    flat: dict[str, float] = {"seeds": len(results.seeds), "runs_missing": len(results.missing)}
    tidy = summary(results, name)
    for row in tidy[tidy.decoding == "plain"].itertuples():
        for part in ("mean", "low", "high"):
            value = getattr(row, part)
            if value is not None and math.isfinite(value):
                flat[f"{row.condition}.{row.metric}.{part}"] = float(f"{value:.6g}")
    return flat


def extremes(results: Results, name: str, world: str = "") -> list[tuple[str, str]]:
    """(title, condition) of the texts of a world shown side by side: the untrained model and the ends of what is varied."""
    ends: list[str] = []
    if name == "gamma":
        ends = [c for s in gamma_lines(results) if s.joined for c in (s.conditions[0], s.conditions[-1])][:3]
    elif name == "dropout":
        swept = [s for group in dropout_lines(results).values() for s in group]
        ends = [c for s in swept[:1] for c in s.conditions[:1]] + [s.conditions[-1] for s in swept]
    elif name == "mask":
        ends = [c for s in mask_lines(results)[:1] for c in (s.conditions[0], s.conditions[-1])] + ["nlpo_random"]
    elif name == "budget":
        swept = [s for s in budget_lines(results) if s.joined]
        ends = [c for s in swept[:1] for c in (s.conditions[0], s.conditions[-1])]
        imitated = {x: c for s in budget_lines(results) if s.label == IMITATION for x, c in zip(s.x, s.conditions)}
        ends += [imitated[max(imitated)]] if imitated else []
    elif name == "warm_start":
        ends = ["supervised", "ppo_kl_default", "sup_ppo"]
    elif name == "sampling":
        ends = [c for row, c in sampling_rows(results).items()]
    elif name == "vocabulary":
        ends = [c for s in vocabulary_lines(results)[::-1] for c in (s.conditions[0], s.conditions[-1])]
    elif name in second_paper.NAMES:
        ends = second_paper.extremes(results, name, world)
    first = untrained(results, world=world)
    shown = dict.fromkeys(([first] if first else []) + [c for c in ends if c in results.conditions])
    return [("untrained" if c == first else c, c) for c in list(shown)[:4]]


def samples(results: Results, name: str, count: int = 20, world: str = "") -> list[dict[str, str]]:
    """The first `count` test prompts of the first seed, unselected, with each one's response: [{"prompt", title: text}]."""
    shown: dict[str, dict[str, str]] = {}
    for title, condition in extremes(results, name, world):
        for line in [s for s in results.samples.get(condition, ()) if s["seed"] == results.seeds[0]][:count]:
            row = shown.setdefault(str(line["example_id"]), {"prompt": tables.short(line["prompt"])})
            row[title] = f"{' '.join(line['response'].split())} ({line['score']:.2f})"
    return list(shown.values())[:count]


def samples_html(results: Results, name: str, count: int = 6, world: str = "") -> str:
    """`samples` as an HTML table, columns side by side."""
    titles = [t for t, _ in extremes(results, name, world)]
    return tables.side_by_side(samples(results, name, count, world), ["prompt", *titles])


def samples_markdown(results: Results, name: str, count: int = 20) -> str:
    """`samples` as Markdown: a section per condition, the worlds one after the other."""
    parts = ["# Samples", ""]
    for world in worlds(results):
        rows = samples(results, name, count, world)
        if not rows:
            continue
        judge = f"the score of {world}" if world else "the reward model's score"
        intro = (
            f"Seed {results.seeds[0]}, the first {len(rows)} test prompts, plain decoding; nothing was selected. "
            f"At most {tables.PROMPT_WORDS} words of a prompt are shown. In brackets: {judge}."
        )
        parts += [intro, ""]
        for title, condition in extremes(results, name, world):
            here = [
                f"{i}. *{tables.safe(r['prompt'])}* → {tables.safe(r[title])}" for i, r in enumerate(rows, 1) if title in r
            ]
            parts += [f"## {condition if world else title}", "", *here, ""]
    return "\n".join(parts)


def write(results: Results, name: str, folder: str | Path) -> tuple[str, dict]:
    """Write every table and text of the report into `folder`; returns (the opening as Markdown, verdict.json's content).

    metrics.json; verdict.json, verdict.md; samples.md. Same results, same bytes.
    """
    folder = Path(folder)
    rows, lost = judged(results, name)
    said, note = answer(results, name), results.params.reports[name].note
    parts = [said, *([f"**Read with care.** {note}"] if note else [])]
    parts.append(f"Hash of the rule and tests that judge the claims: `{rule(results)}`.")
    text = "\n\n".join(parts) + "\n"
    facts = {
        "profile": results.params.profile, "report": name, "seeds": results.seeds, "rule": rule(results),
        "answer": said, "missing": list(results.missing), "note": note, "not_judged": lost,
        "words": {r["id"]: r["word"] for r in rows}, "claims": rows,
    }  # fmt: skip
    atomic_json(folder / "metrics.json", metrics_json(results, name))
    atomic_json(folder / "verdict.json", facts)
    there = worlds(results)
    shown = "\n\n".join(
        f"## {f'On {second_paper.WORLD[w]}: every' if len(there) > 1 else 'Every'} condition, plain decoding\n\n"
        f"{tables.markdown(summary_table(results, name, world=w))}"
        for w in there
    )
    atomic_write(folder / "verdict.md", f"# {name}\n\n{text}\n{claims_markdown(facts)}\n\n{shown}\n")
    atomic_write(folder / "samples.md", samples_markdown(results, name))
    return text, facts


def _absent(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _said(value: Any) -> str:
    if _absent(value):
        return ""
    return (
        ", ".join(map(str, value))
        if isinstance(value, (list, tuple))
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )
