"""Every metric: what it is called, how it is made, in which unit, which way is better, how it is compared.

MEASURES["score"].formula                # one record per metric; another metric is another record, nothing more
label("gain:score")                      # what stands on an axis
`python -m workbook.results.measures` writes the table of docs/reference/metrics.md from the records.
B responses, T tokens; logarithms are natural; every mean over tokens leaves padding out.
"""

from __future__ import annotations

import argparse
from itertools import groupby
from pathlib import Path

import pandas as pd

from workbook.results.measure import LOG_RATIO, OWN_UNIT, YARDSTICK, Measure, of_figure, of_run, of_update
from workbook.results.tables import markdown

BEGIN, END = "<!-- metrics: python -m workbook.results.measures -->", "<!-- end of metrics -->"

DISTINCT = "different n-grams / n-grams, over the first `evaluation.diversity_words` words of all responses together"
ENTROPY = "entropy of the n-gram counts, over the same words, base 2"
ONCE = "n-grams that occur once in all responses together"
SYNCED = "1 in the update whose rollout was the first after a refresh of the mask model"
TABLE = (
    Measure(
        "score",
        "reward model's P(positive) of prompt + response, mean over responses",
        "probability",
        "score (reward model)",
        better="more",
        gain="gain in score over untrained",
        spread="spread of the score\n(standard deviation over seeds)",
    ),
    Measure(
        "score_response",
        "the same of the response alone",
        "probability",
        "score of the response alone",
        better="more",
        compared="score",
    ),
    Measure(
        "training_score",
        "what the run itself was trained on (a reward of fewer labels, on the full one's scale); else `score`",
        "–",
        "score by the reward of its training",
        better="more",
        compared="score",
    ),
    Measure(
        "judge",
        "mean over the response's sentences: positive 1, neutral ½, negative or ungrammatical 0 (generated); "
        "P(positive) of a TF-IDF model, or of a transformer, of other reviews (real)",
        "0 to 1",
        "held-out judge",
        better="more",
        compared="score",
        gain="gain in the judge's opinion\nover untrained",
    ),
    Measure(
        "judge_2",
        "P(positive) of a linear model of character 3- to 5-grams of the judge's reviews",
        "probability",
        "second judge",
        better="more",
        compared="score",
        gain="gain in the second judge's\nopinion over untrained",
    ),
    Measure(
        "generation_log_perplexity",
        "− mean log p_evaluator(token), over generated tokens; the evaluator took no part in training",
        "nats/token",
        "log-perplexity of the generations\nunder an independent model (nats/token)",
        "log-perplexity of the texts\n(nats/token)",
        better="less",
    ),
    Measure(
        "human_log_perplexity",
        '− mean log π(token), over human reviews; its exponential is the papers\' "perplexity"',
        "nats/token",
        "log-perplexity of the policy\non human reviews (nats/token)",
        "log-perplexity on human\nreviews (nats/token)",
        better="less",
        measured="model",
        published_as="perplexity",
        yardstick=0.234,  # log(40.650 / 32.171), the published one: ours is .3 to 2.2 as the learning rate is chosen
    ),
    Measure(
        "kl",
        "Σ_v π(v) log(π(v)/π_ref(v)), exact over the vocabulary, mean over tokens; bare policy",
        "nats/token",
        "exact KL to the base model (nats/token)",
        better="less",
    ),
    Measure(
        "kl_deployed",
        "the same with π as decoded (tempered, truncated, renormalised)",
        "nats/token",
        "exact KL to the base model\nas decoded (nats/token)",
        "exact KL as decoded\n(nats/token)",
        better="less",
    ),
    Measure(
        "kl_deployed_per_response",
        "the same summed over each response",
        "nats/response",
        "KL per response (nats)",
        better="less",
    ),
    of_update(
        "objective/score", "mean training score of the responses sampled in the update", "score", "score in training"
    ),
    of_update(
        "objective/kl",
        "mean of log π(a) − log π_ref(a) at sampled tokens (k1): what is penalised",
        "nats/token",
        "sampled KL (nats/token)",
    ),
    of_update("objective/kl_per_episode", "the same summed over each response", "nats/response"),
    of_update("objective/kl_coef", "β", "reward/nat"),
    of_update("objective/reward", "Σ_t r_t = score − β Σ_t KL_t, mean over responses", "reward"),
    of_update("objective/entropy", "− mean log of the sampled tokens' probabilities", "nats/token"),
    of_update("policy/approx_kl", "mean of ratio − 1 − log ratio", "nats/token"),
    of_update("policy/clip_fraction", "share of tokens with |ratio − 1| > clip", "share"),
    of_update("policy/ratio_error", "max |ratio − 1|", "–"),
    of_update(
        "policy/first_ratio_error",
        "the same in the first minibatch, where it must be 0",
        "–",
        "first minibatch: largest |ratio − 1|",
    ),
    of_update("policy/gradient_norm", "norm of the gradient before it is clipped", "–"),
    of_update("rollout/mismatch", "mean |log π as sampled − log π as scored again|; only in tf32, bf16", "nats/token"),
    of_run(
        "first_ratio_error",
        "`policy/first_ratio_error`, mean over updates",
        "–",
        "first minibatch:\nlargest |ratio − 1|",
        better="less",
        compared=OWN_UNIT,
    ),
    of_run(
        "clip_fraction",
        "`policy/clip_fraction`, mean over updates",
        "share",
        "share of clipped tokens",
        compared=OWN_UNIT,
    ),
    of_run(
        "approx_kl",
        "`policy/approx_kl`, mean over updates",
        "nats/token",
        "approximate KL\nper update (nats)",
        compared="kl",
    ),
    of_run(
        "gradient_norm",
        "`policy/gradient_norm`, mean over updates",
        "–",
        "gradient norm,\nmean over training",
        compared=LOG_RATIO,
    ),
    of_run("peak_kl", "largest `objective/kl` of an update", "nats/token", better="less", compared="kl"),
    of_run(
        "wobble",
        "standard deviation of the training score's changes from update to update / √2",
        "score",
        "wobble of the training score",
        better="less",
        compared=LOG_RATIO,
    ),
    of_run(
        "drop",
        "highest mean training score of 3 updates in a row − that of the last 3",
        "score",
        "fall of the training score\nfrom its peak",
        better="less",
        compared="score",
    ),
    of_run(
        "diverged",
        "1 if training ended at a number that is not finite, if the last 3 training scores are on average 2 wobbles "
        "below the first, or if the last KL is ten times an adaptive target",
        "0 or 1",
        "share of diverged runs",
        better="less",
        compared=OWN_UNIT,
    ),
    of_run(
        "rollout_score",
        "mean training score of the last 3 updates: of what was sampled, through the learner's own sampler",
        "score",
        "training score, last 3 updates",
        better="more",
        compared="score",
        spread="spread over seeds of the\nlast training score",
    ),
    of_figure(
        "last_cycle",
        "mean training score over the last cycle of the mask",
        "score",
        "training score, mean over\nthe last mask cycle",
        better="more",
    ),
    of_figure(
        "dip",
        "mean change of the training score in the update after a refresh of the mask",
        "score",
        "change of the training score\nright after a refresh",
        better="more",
    ),
    of_figure("tokens", "tokens sampled in training", "tokens", "tokens sampled in training"),
    of_figure("gradient_steps", "gradient steps taken in training", "steps", "gradient steps"),
    of_run(
        "tokens_per_gradient_step", "tokens sampled in training / gradient steps taken", "tokens", compared=LOG_RATIO
    ),
    Measure(
        "kept_mass",
        "share of the policy's (tempered) distribution that the decoding's sampler allowed, mean over response tokens",
        "share",
        "mass kept by the mask",
        compared=OWN_UNIT,
    ),
    Measure(
        "kept_tokens",
        "how many tokens the decoding's sampler allowed, mean over response tokens",
        "tokens",
        "tokens kept by the mask",
        compared=LOG_RATIO,
    ),
    of_update("policy/loss", "what a gradient step on the policy lessens: PPO's is the clipped surrogate", "reward"),
    of_update("value/loss", "squared error of the values", "reward²"),
    of_update("value/explained_variance", "1 − Var(return − value)/Var(return)", "–"),
    of_update("episodes/length", "tokens per response", "tokens"),
    of_update("episodes/terminated", "share of the responses that ended with EOS", "share"),
    of_update("policy/kl_loss", "GRPO's KL term: sum of k3 / (responses × max_new_tokens)", "nats/token"),
    of_update("trpo/kl", "exact mean KL(old policy ‖ new) of the step", "nats/token"),
    of_update("trpo/gain", "surrogate gain of the step", "reward"),
    of_update("trpo/share", "share of the natural step that was taken (0: refused)", "share"),
    of_update("dqn/td_loss", "squared temporal-difference error", "reward²"),
    of_update("dqn/q_mean", "mean Q of the tokens replayed", "reward"),
    of_update("dqn/epsilon", "share of random tokens", "share"),
    of_update("dqn/tokens", "tokens collected in the update", "tokens"),
    of_update("dqn/gradient_steps", "gradient steps in the update", "steps"),
    of_update("dqn/replay", "tokens held for replay", "tokens"),
    of_update("sac/td_loss", "the critic's squared temporal-difference error", "reward²"),
    of_update("sac/actor_kl", "KL(actor ‖ softmax(log π_ref + Q/α))", "nats/token"),
    of_update("sac/q_mean", "mean Q of the tokens replayed", "reward"),
    of_update("sac/gradient_steps", "gradient steps in the update", "steps"),
    of_update("sac/replay", "tokens held for replay", "tokens"),
    of_update("supervised/loss", "− mean log π(token) of the texts shown", "nats/token"),
    of_update("filtered/score", "mean score of all samples", "score"),
    of_update("filtered/best_score", "mean score of the samples that were kept", "score"),
    of_update("nlpo/synced", SYNCED, "0 or 1"),
    of_update("masked/synced", SYNCED, "0 or 1"),
    Measure("length", "tokens per response", "tokens", "length (tokens)"),
    Measure("words", "words per response", "words"),
    Measure("terminated", "share of the responses that ended with EOS", "share", "share ended by EOS"),
    Measure("distinct_1", DISTINCT, "share", "distinct-1", better="more"),
    Measure("distinct_2", DISTINCT, "share", "distinct-2", better="more"),
    Measure("msttr", "type-token ratio, mean over segments of 100 words", "share", "MSTTR", better="more"),
    Measure("entropy_1", ENTROPY, "bits", "word entropy", better="more"),
    Measure("entropy_2", ENTROPY, "bits", "bigram entropy", better="more"),
    Measure("unique_1", ONCE, "n-grams", better="more"),
    Measure("unique_2", ONCE, "n-grams", better="more"),
    Measure(
        "repetition",
        "repeated 3-grams within a response / its 3-grams",
        "share",
        "repetition rate",
        better="less",
        compared=OWN_UNIT,
    ),
    Measure(
        "shared_5gram",
        "responses that share a 5-gram with more than 1 % of the others",
        "share",
        "share sharing a 5-gram",
        better="less",
    ),
)
MEASURES = {measure.name: measure for measure in TABLE}


def label(name: str, panel: bool = False) -> str:
    """What stands on an axis: of a metric, of its "gain:" or "spread:"; the name itself where no record says it.

    panel: shorter, for a small panel.
    """
    kind, _, base = name.rpartition(":")
    measure = MEASURES.get(base)
    if measure is None:
        return name
    if kind:
        return getattr(measure, kind) or name
    return (measure.panel if panel else "") or measure.label or name


def columns() -> tuple[str, ...]:
    """The metrics that claims may compare: columns of per_seed.csv."""
    return tuple(m.name for m in TABLE if m.measured in ("texts", "model", "run"))


def yardstick_of(name: str) -> str:
    """The metric whose yardstick measures this one."""
    compared = MEASURES[name].compared
    return name if compared == YARDSTICK else compared


def table() -> pd.DataFrame:
    """The page's table: a row per formula, neighbours that share it together."""
    rows = []
    for (formula, unit), group in groupby(TABLE, lambda m: (m.formula, m.unit)):
        same = list(group)
        first, names = same[0], ", ".join(f"`{m.name}`" for m in same)
        rows.append((names, formula, unit, first.better or "–", _compared(first)))
    return pd.DataFrame(rows, columns=["name", "formula", "unit", "better", "compared in"])


def readme(text: str) -> str:
    """A page's text with the table between its two marks. Raises: ValueError without the marks."""
    before, mark, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (mark and end):
        raise ValueError(f"the page of metrics: expected the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{markdown(table())}\n{END}{after}"


def _compared(measure: Measure) -> str:
    if measure.name not in columns():
        return "–"
    if measure.yardstick is not None:
        return f"yardsticks of {measure.yardstick:g} {measure.unit}, as published"
    known = {YARDSTICK: "yardsticks", LOG_RATIO: "log ratios", OWN_UNIT: "its own unit"}
    return known.get(measure.compared) or f"yardsticks of `{measure.compared}`"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workbook.results.measures", description=__doc__.partition("\n")[0])
    parser.add_argument("page", nargs="?", type=Path, default=Path("docs/reference/metrics.md"))
    file = parser.parse_args(arguments).page
    file.write_text(readme(file.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{file}: up to date")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
