"""The KL penalty: what a language model does without it."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure

from workbook.figures import dots, frontier, lines, tokens
from workbook.figures.names import decoded_how, names
from workbook.results import design
from workbook.results.results import Results
from workbook.runs.algorithms import label

TITLE = "What happens to a language model when the KL penalty is removed?"
QUESTION = """A language model is trained to write texts that a reward model scores highly. A penalty, β times the KL
divergence from the model as it was before, keeps it close to ordinary language. *Is Reinforcement Learning (Not) for
Natural Language Processing?* (arXiv:2210.01241) claims that without it the model games its reward."""
TERMS = """β: weight of the penalty. Log-perplexity, nats per token: of the texts under a model that took no part (text
that is easy to foresee scores low, fluent or merely repetitive); of the policy on human reviews (what it has
forgotten)."""
DETAIL = ("distinct_2", "msttr", "entropy_2", "repetition", "shared_5gram", "length")
DECODINGS = ("plain", "top_p")
READ = {
    "learning_curves": """A score that climbs together with an exploding KL is the sign of a gamed reward. NLPO's KL
is the bare policy's log-ratio under its mask.""",
    "perplexities": """They can disagree: one judges what is written; the other, how likely human reviews still are.""",
    "diversity": """Left of the dashed line in the first two: more generic than before.""",
    "decodings": """A lead under its own decoding only is the decoder's.""",
    "frontier": """A method is better only if its whole line lies further up and left, under the same decoding, and
its texts are not one text.""",
    "episode": """The score arrives on the last token; before, with a penalty, every token pays for its KL.""",
}
LIMITS = (
    "The paper's runs without KL may have kept β at its first value; here they have β = 0.",
    "One task, one reward model per seed, and no human readers: fluency is judged by models.",
)
METRICS = ("score", "generation_log_perplexity", "human_log_perplexity", "distinct_2")


def swept(results: Results, decoding: str = "plain") -> list[design.Series]:
    """Learners along β; those with an adaptive β and those that ran one β only stand alone."""
    fixed = design.lines(results, "kl_coef", lambda r: label(r.algorithm), kl_target=0.0)
    found = [design.Series(s.label, s.conditions, s.x, decoding, joined=len(s.x) > 1) for s in fixed]
    for s in design.lines(results, "kl_target", lambda r: f"{label(r.algorithm)}, adaptive β"):
        if own := [(c, x) for c, x in zip(s.conditions, s.x) if x > 0]:
            found.append(design.Series(s.label, *map(tuple, zip(*own)), decoding, joined=False))
    return found


def figures(results: Results) -> Iterator[tuple[str, str, Figure]]:
    several = {s.label.split(",")[0] for s in swept(results) if s.joined or "adaptive" in s.label}
    steered = [s for s in swept(results) if s.label.split(",")[0] in several]
    groups: dict[str, dict[str, str]] = {}
    for s in steered:
        sign = "KL target {:g}" if "adaptive" in s.label else "β = {:g}"
        groups.setdefault(s.label.split(",")[0], {}).update({sign.format(x): c for c, x in zip(s.conditions, s.x)})
    axes = (("generation_log_perplexity", "score"), ("kl_deployed", "score"))
    for name, decoding in (("frontier", "plain"), ("frontier_top_p", "top_p")):
        there = [design.measure(results, c, "score", decoding) for s in swept(results) for c in s.conditions]
        if sum(values is not None for values in there) > 1:
            figure = frontier.frontier(results, {"": swept(results, decoding)}, axes, named="β, or the target")
            yield name, f"What the score costs, {decoded_how(decoding)}", figure
    yield "learning_curves", "Training", lines.training(results, groups, ("objective/score", "objective/kl"))
    every, measures = results.conditions, ("distinct_2", "msttr", "repetition")
    yield "perplexities", "Two numbers called perplexity", dots.arms(results, every, METRICS[1:3], "Log-perplexities")
    yield "diversity", "Diversity", dots.arms(results, every, measures, "Diversity")
    decodings = {"plain": "plain", "top_p": "top-p", "own": "as trained"}
    pair = [c for _, two in sorted(results.params.reports["kl"].pairs.items()) for c in two]
    metrics = ("score", "generation_log_perplexity", "distinct_2")
    yield "decodings", "What decoding does", dots.arms(results, pair, metrics, "By decoding", decodings=decodings)
    if shown := [(names(results)[c], results.episodes[c]) for c in pair[:2][::-1] if c in results.episodes]:
        yield "episode", "One episode, token by token", tokens.episode(shown)


def headline(results: Results) -> list[design.Compared]:
    pairs = [
        design.Pair(f"{label(a)} without the penalty − with it", *two)
        for a, two in results.params.reports["kl"].pairs.items()
    ]
    table = design.trained(results, "", kl_target=0.0)
    for beta in sorted(set(table.kl_coef.dropna())):
        first, second = (table.index[(table.algorithm == a) & (table.kl_coef == beta)] for a in ("nlpo", "ppo"))
        pairs += [design.Pair(f"NLPO − PPO at β = {beta:g}", a, b) for a in first for b in second]
    return design.compare(results, pairs, METRICS)


def texts(results: Results, world: str) -> list[str | None]:
    two = next(iter(results.params.reports["kl"].pairs.values()), [])
    return [c for c in (design.untrained(results), *two[::-1]) if c]
