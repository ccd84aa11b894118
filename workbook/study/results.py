"""What the preference study found: one row per seed, statistics over seeds, the answer in words, figures.

    rows = per_seed(folders)        # of ``protocol.run``; every number is computed from items, ratings and measurements
    text, facts = verdict(rows)     # words and numbers, both computed

The seed, a whole draw, is the unit: intervals and the verdict are over seeds. P-values inside a seed are beside them in
three
ways: every judgement for itself (as the paper), whole raters and whole texts (``agreement.clustered``), a mixed model.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from workbook.results.tables import between, join, number, p_value, signed
from workbook.statistics import paired, rule
from workbook.study import agreement
from workbook.study.protocol import BASE, BOTH, TASK, TWICE, Config, rounds
from workbook.study.ratings import SIMULATED, Choice, Pair, PreferenceError, checked, load, table

OTHERS = {TASK: "the task reward alone", TWICE: "twice the task reward"}
MEASURES = {
    "task": "task reward",
    "preference": "learned preference",
    "judge": "judge",
    "grammatical": "grammatical sentences",
    "kl": "KL to the base model\n(nats/token)",
    "words": "words per text",
}
READERS = ("learned", "the longer one", "the shorter one", "task reward", "judge")
SPLITS = {"held out": "held-out pairs, first round", "second round": "pairs of the second round"}


def per_seed(folders: Sequence[str | Path], mixed: bool = True) -> pd.DataFrame:
    """A row per folder that ``protocol.run`` has finished. mixed: fit mixed models too (some seconds for each
    comparison).

    Raises: FileNotFoundError for an unfinished one, PreferenceError for files that cannot be used.
    """
    return pd.DataFrame([_row(Path(folder), mixed) for folder in folders])


def _row(folder: Path, mixed: bool) -> dict:
    said, measured = (
        json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in ("study", "measured")
    )
    config, seed = Config.model_validate(said["config"]), said["seed"]
    row = {"seed": seed, "raters": said["raters"], "learned from": measured["learned from"]}
    pairs, rows = _ratings(folder, "first", said["raters"])
    found = agreement.alpha_interval(rows, value="chosen", resamples=500, seed=seed)
    row |= {
        "pairs": len(pairs),
        "judgements": len(rows),
        "alpha": found.estimate,
        "alpha low": found.low,
        "alpha high": found.high,
    }
    for split in SPLITS:
        for reader, quality in measured[split].items():
            row |= {f"{split}, {reader}: {name}": value for name, value in quality.items()}
        if longer := measured[split].get("the longer one"):  # its opposite, where raters like what is short
            row |= {f"{split}, the shorter one: {name}": 1 - longer[name] for name in ("accuracy", "auc")}
            row[f"{split}, the shorter one: n"] = longer["n"]
    for round, other in rounds(config).items():
        pairs, rows = _ratings(folder, round, said["raters"])
        rows = towards(rows, BOTH)
        found = agreement.compare(rows, seed=seed)
        facts = {
            name: getattr(found, name) for name in ("wins", "losses", "ties", "share", "low", "high", "p_naive", "p")
        }
        facts |= {"alpha": agreement.alpha(rows, value="chosen"), "equal texts": config.comparisons - len(pairs)}
        if mixed:
            facts["p_mixed"] = agreement.mixed_mean(rows).p if rows["value"].nunique() > 1 else float("nan")
        row |= {f"over {other}: {name}": value for name, value in facts.items()}
    for name, numbers in measured["policies"].items():
        row |= {f"{name}: {what}": value for what, value in numbers.items()}
    return row


def _ratings(folder: Path, name: str, raters: str) -> tuple[list[Pair], pd.DataFrame]:
    pairs, made = load(folder / f"{name}.jsonl", Pair), folder / f"{name}_simulated.jsonl"
    files = [made] if raters == "simulated" else sorted(set(folder.glob(f"{name}_*.jsonl")) - {made})
    choices = checked([row for file in files for row in load(file, Choice)], pairs)
    if any(row.rater.startswith(SIMULATED) != (raters == "simulated") for row in choices):
        raise PreferenceError(f"{folder}: {name}: ratings by people and by simulated raters are mixed")
    return pairs, table(choices, pairs)


def towards(choices: pd.DataFrame, system: str) -> pd.DataFrame:
    """A table of choices with +1 where ``system`` was chosen, -1 where the other was, whatever their names sort to."""
    systems = choices.attrs["systems"]
    out = choices.assign(value=choices["value"] * (1 if systems[1] == system else -1))
    out.attrs["systems"] = [*(name for name in systems if name != system), system]
    return out


def who(rows: pd.DataFrame) -> str:
    """ "simulated raters" or "raters"."""
    return "simulated raters" if (rows["raters"] == "simulated").all() else "raters"


def compared(rows: pd.DataFrame) -> list[str]:
    """What task + preference was compared with."""
    return [other for other in OTHERS if f"over {other}: share" in rows]


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean over seeds of every estimate, with its 95 % t interval (low and high empty for one seed). P-values and
    interval
    ends of single seeds are left out: their means say nothing."""
    out, single = {}, ("seed", "raters", "low", "high", "alpha low", "alpha high", "p", "p_naive", "p_mixed", "n")
    for name in rows:
        if name.rpartition(": ")[2] not in single:
            found = paired.mean_interval(rows[name])
            out[name] = {"mean": found.estimate, "low": found.low, "high": found.high, "seeds": found.n}
    return pd.DataFrame(out).T


def tests(rows: pd.DataFrame) -> dict[str, paired.Paired]:
    """For each comparison: share of judgements for task + preference, less one half, over seeds; claimed to be above
    0."""
    return {other: paired.one_sample(rows[f"over {other}: share"] - 0.5, "greater") for other in compared(rows)}


def verdict(rows: pd.DataFrame) -> tuple[str, dict]:
    """The question's answer as Markdown, and the numbers in it. The rule is ``paired.decide``'s, as in every report."""
    found, n, raters = tests(rows), len(rows), who(rows)
    words = {other: rule.decide(test) for other, test in found.items()}
    shares = {other: paired.mean_interval(rows[f"over {other}: share"]) for other in found}
    said = [
        f"{number(s.estimate)} {between(s.low, s.high)} against {OTHERS[o]} (**{words[o]}**)" for o, s in shares.items()
    ]
    lines = [
        f"**Do {raters} prefer what a policy writes once a reward learned from their choices is added to the task "
        f"reward?** "
        f"Of the judgements by {raters}, the share for *{BOTH}* was {join(said)}; ½ is no preference; "
        f"mean of {n} {'seed' if n == 1 else 'seeds'} [95 % interval over seeds].",
        _meaning(words, raters),
        _scorer(rows),
    ]
    judgements = int(sum(rows[f"over {o}: {x}"].sum() for o in found for x in ("wins", "losses", "ties")))
    lines.append(
        f"n: {n} seeds, each a whole draw (texts, base model, task reward, raters, scorer, RL); "
        f"{int(rows['judgements'].sum())} judgements "
        f"to learn from and {judgements} that compare. Raters agree with α = {mean_said(rows['alpha'])} in the "
        f"first round."
    )
    if raters != "raters":
        lines.append(
            "**All raters here are simulated**: programs that read a grammar's judgement with errors of their own. "
            "Nothing here is about people, and claim P29 stays *not testable here* in the ledger."
        )
    facts = {
        "question": "share of judgements for task + preference, less one half",
        "raters": raters,
        "seeds": n,
        "verdicts": {
            o: {
                "word": words[o],
                "difference": t.difference,
                "low": t.low,
                "high": t.high,
                "p_permutation": t.p_permutation,
                "p_t_two_sided": t.p_two_sided,
            }
            for o, t in found.items()
        },
    }
    return "\n\n".join(line for line in lines if line) + "\n", facts


def _meaning(words: dict[str, str], raters: str) -> str:
    if TWICE not in words:
        return "Without the control, a preference could come from more reward rather than from the learned one."
    if words[TASK] == rule.HOLDS and words[TWICE] == rule.HOLDS:
        return f"It beats both, so that more reward alone does not explain why {raters} prefer it."
    if words[TASK] == rule.HOLDS:
        return (
            f"It beats the task reward but is not shown to beat twice that reward: a larger reward against the same "
            f"KL penalty is "
            f"another explanation of what {raters} prefer, and the paper has no such control."
        )
    return f"That {raters} prefer it to the task reward alone is not shown."


def _scorer(rows: pd.DataFrame) -> str:
    """How good the learned reward is beside the cheapest rules and the reward that was there before."""
    learned, *others = (rows[f"held out, {reader}: accuracy"] for reader in READERS[:4])
    gaps = [paired.compare(learned, other) for other in others]
    beside = [
        f"*{name}* {mean_said(other)} (learned less this: {signed(gap.difference, gap.low, gap.high)})"
        for name, other, gap in zip(
            ("choose the longer one", "choose the shorter one", "the task reward"), others, gaps
        )
    ]
    after = f"second round, {READERS[0]}: accuracy"
    last = (
        f" Of the second round's pairs, half of whose texts were written to please it, it orders "
        f"{mean_said(rows[after])}."
        if after in rows
        else ""
    )
    return f"The learned reward orders {mean_said(learned)} of held-out pairs as the raters did, {join(beside)}.{last}"


def mean_said(values: Sequence[float]) -> str:
    """ "0.612 [0.581, 0.643]": mean and 95 % t interval."""
    found = paired.mean_interval(values)
    return f"{number(found.estimate)} {between(found.low, found.high)}".strip()


# -------------------------------------------------------------------------------------------------------------- tables
def shares_table(rows: pd.DataFrame) -> pd.DataFrame:
    """A row per seed and comparison: counts, share with its interval, and the three p."""
    out = []
    for other in compared(rows):
        for _, row in rows.iterrows():
            of = {name: row.get(f"over {other}: {name}") for name in ("wins", "losses", "ties", "share", "low", "high")}
            ps = {name: row.get(f"over {other}: {key}") for name, key in P_NAMES.items()}
            out.append(
                {
                    "compared with": other,
                    "seed": row["seed"],
                    "for : against : ties": f"{of['wins']} : {of['losses']} : {of['ties']}",
                    "share [95 %]": f"{number(of['share'])} {between(of['low'], of['high'])}",
                    **{name: p_value(p) for name, p in ps.items()},
                }
            )
    return pd.DataFrame(out)


P_NAMES = {
    "p, judgements independent (naive)": "p_naive",
    "p, whole raters and texts": "p",
    "p, mixed model": "p_mixed",
}


def rejected(rows: pd.DataFrame, level: float = 0.05) -> str:
    """What each seed alone, as the paper's one run, would have been taken for: how often p is below the level, by
    direction."""
    said = []
    for other in compared(rows):
        above, counts = rows[f"over {other}: share"] > 0.5, []
        for name, key in (("naive p", "p_naive"), ("clustered p", "p"), ("mixed model", "p_mixed")):
            if f"over {other}: {key}" in rows:
                small = rows[f"over {other}: {key}"] < level
                counts.append(
                    f"{int((small & above).sum())} for it and {int((small & ~above).sum())} against it by the {name}"
                )
        said.append(f"compared with *{other}*, {'; '.join(counts)}")
    return f"Each of the {len(rows)} seeds alone, as the paper's one run, at p < {level}: {'. And '.join(said)}."


def scorer_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Accuracy and AUC of each reader of pairs, mean over seeds [95 %]."""
    out = {}
    for split, title in SPLITS.items():
        for reader in READERS:
            if f"{split}, {reader}: accuracy" in rows:
                out[f"{reader}, {title}"] = {
                    what: mean_said(rows[f"{split}, {reader}: {what}"]) for what in ("accuracy", "auc")
                } | {"pairs a seed": f"{rows[f'{split}, {reader}: n'].mean():.0f}"}
    return pd.DataFrame(out).T.rename(columns={"auc": "AUC"})


def policies_table(rows: pd.DataFrame) -> pd.DataFrame:
    """What each policy writes: mean over seeds [95 %]."""
    names = [name for name in (BASE, TASK, TWICE, BOTH) if f"{name}: task" in rows]
    return pd.DataFrame(
        {
            name: {title.replace("\n", " "): mean_said(rows[f"{name}: {what}"]) for what, title in MEASURES.items()}
            for name in names
        }
    ).T
