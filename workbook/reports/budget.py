"""Labelled data: a reward, or examples."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from matplotlib.figure import Figure

from workbook.figures import dots, lines
from workbook.results.design import Compared, Pair, Series, compare, trained, untrained, usual
from workbook.results.design import lines as alike
from workbook.results.results import Results
from workbook.runs.algorithms import label

TITLE = "Is a little labelled data better spent on a reward than on examples?"
QUESTION = """Labelled reviews can train a reward model that reinforcement learning then follows, or, the positive
ones, be examples to imitate. The paper claims that a better reward model gives a better language model, that a reward
learnt from few labels beats imitation of five to ten times as many, and that more examples do not help imitation. What
do other judges say?"""
TERMS = """The share is of the same labelled reviews for all. The score is by the reward model of *all* labels, for
every run; the two judges had no part in any training. Two controls use the small reward without reinforcement
learning: imitating what it accepts of the model's own texts, and taking the best of n."""
DETAIL = ("training_score", "distinct_2", "length")
READ = {
    "budget": """Gains over the untrained model. A method that leads in the first panel and not in the judges' has
learnt its reward's taste. At 0 the reward is untrained: a gain there is chance.""",
    "accuracy": """Where this is flat, more labels cannot help reinforcement learning either.""",
    "rewards": """High on the left and low further right is a reward that was gamed.""",
}
LIMITS = (
    "A label is cheaper than a whole text, so equal shares are not equal cost.",
    "The reward model is as small as the task; the paper's, pretrained, knows much before its first label.",
)


def shares(results: Results) -> list[Series]:
    """Each method along the share of the labelled reviews it uses; what only decodes is decoded as it is meant."""
    table, start = trained(results, ""), untrained(results)
    usual_beta = set(table.index[[b is None or b == usual(results, "kl_coef") for b in table.kl_coef]])
    found = []
    for s in alike(results, "share", lambda r: label(r.algorithm), start=""):
        if set(s.conditions) <= usual_beta:
            decoding = "plain" if any(table.updates[c] for c in s.conditions) else "own"
            found.append(Series(s.label, s.conditions, s.x, decoding, (start,) * len(s.x) if start else ()))
    return found


def accuracies(results: Results) -> pd.DataFrame:
    """Validation accuracy of the reward models: columns share, seed, accuracy."""
    facts = [
        (s, f)
        for s, fs in results.variants.items()
        for k, f in fs.items()
        if k.startswith("reward") and "fraction" in f
    ]
    rows = [{"share": f["fraction"], "seed": s, "accuracy": f["validation_accuracy"]} for s, f in facts]
    return pd.DataFrame(rows, columns=["share", "seed", "accuracy"]).sort_values(["share", "seed"])


def figures(results: Results) -> Iterator[tuple[str, str, Figure]]:
    metrics = ("gain:score", "gain:judge", "gain:judge_2", "generation_log_perplexity")
    figure = lines.sweep(results, shares(results), metrics, "share of the labelled reviews")
    yield "budget", "Along the data", figure
    yield "accuracy", "How good the rewards are", dots.accuracy(results, accuracies(results))
    figure = dots.arms(
        results, results.conditions, ("training_score", "score", "judge"), "Own reward, full reward, judge"
    )
    yield "rewards", "What they were trained on, and are judged by", figure


def headline(results: Results) -> list[Compared]:
    series, pairs = shares(results), []
    for s in series:
        points = dict(zip(s.x, s.conditions))
        top, low = max(points), min((x for x in points if x > 0), default=0)
        if top > low > 0:
            said = f"{s.label}, {100 * top:g} % of the labels − {100 * low:g} %"
            pairs.append(Pair(said, points[top], points[low], s.decoding))
    least = {s.label: dict(zip(s.x, s.conditions)) for s in series}
    imitated = least.get(label("supervised"), {})
    for x, c in least.get(label("ppo"), {}).items():
        beside = {f"PPO, {100 * x:g} % − imitating {100 * y:g} %": d for y, d in imitated.items() if 0 < x <= y}
        pairs += [Pair(said, c, d) for said, d in beside.items()]
    return compare(results, pairs, ("score", "judge", "judge_2"))


def texts(results: Results, world: str) -> list[str | None]:
    ends = [c for s in shares(results) if len(s.x) > 1 for c in (s.conditions[0], s.conditions[-1])]
    return [c for c in (untrained(results), *ends) if c][:4]
