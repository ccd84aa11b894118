"""The groups of the second paper's reports: samplers as masks, DQN beside PPO, and the on-policy learners side by side.

    swept(results)                                  # a series per sampler, from what cuts most to no truncation at all
    at_mass(results)                                # the same along the mass that the mask keeps
    better(results, "plain")                        # which DQN beats the untrained model without losing its language
    members(results, "numbers")                     # learner -> its run

What a condition is comes from its config.json (`ablations.design`); names are those of the controls. Scores of one world
are never set beside those of another. Sentences: `answers`; pictures: `plots` and `second_plots`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rlnlp import curves, stats
from rlnlp.ablations import ALGORITHM, Series, contrast, design, lines, trained, untrained
from rlnlp.results import Results
from rlnlp.tables import join

NAMES = ("samplers", "dqn", "family")
RULE = {
    "top_p": "top-p", "typical": "typical", "epsilon": "ε", "eta": "η", "mirostat": "mirostat", "min_p": "min-p", "top_k": "top-k",
}  # fmt: skip
USUAL = {  # the values the paper chose; of the last two, which it has not, ours
    "top_p": 0.95, "typical": 0.2, "epsilon": 1e-7, "eta": 3e-4, "mirostat": 4.0, "min_p": 0.05, "top_k": 50.0,
}  # fmt: skip
FALLING = ("epsilon", "eta", "min_p")  # a larger value keeps fewer tokens
NONE = math.inf  # stands for no truncation along a sampler's values
WORLD = {"": "reviews", "numbers": "numbers", "dates": "dates"}
BASE = {"": "ppo_kl_default", "numbers": "numbers_ppo", "dates": "dates_ppo"}  # PPO that samples from all tokens
FAMILY = ("ppo", "nlpo", "a2c", "trpo", "reinforce", "rloo", "grpo")
PAYMENT = {  # the reward of a world, the usual one first
    "pairs": "each ascending pair, paid at its token", "pairs_end": "ascending pairs, paid at the end",
    "prefix_token": "ascending prefix, paid token by token", "prefix": "ascending prefix, paid at the end",
    "dates": "dates, paid at the end",
}  # fmt: skip
DEFAULT = {"numbers": "pairs", "dates": "dates"}  # what "reward" means in a world
GOAL = 0.9  # median score over seeds from which a learner counts as having learnt numbers
TWICE = math.log(2)  # nats per token by which the log-perplexity of twice the perplexity is higher
DQN_PARTS = (  # what is changed, first, second
    ("Q = the scaled logits, not an MLP", "dqn_logits", "dqn_mlp"),
    ("Q = a linear head, not an MLP", "dqn_linear", "dqn_mlp"),
    ("trunk frozen, not trained", "dqn_frozen", "dqn_mlp"),
    ("head first, then all, not all for as long", "dqn_then_trained", "dqn_mlp_long"),
    ("double Q", "dqn_double", "dqn_mlp"),
    ("Polyak target, not hard copies", "dqn_polyak", "dqn_mlp"),
    ("24-step returns, not 1-step", "dqn_n_step", "dqn_mlp"),
    ("truncated exploration and max", "dqn_truncated", "dqn_mlp"),
    ("a KL of 0.01 in the reward", "dqn_mlp_kl_001", "dqn_mlp"),
    ("logits, 24 steps and truncation", "dqn_best", "dqn_mlp"),
    ("the same with KL in the reward", "dqn_best_kl", "dqn_mlp"),
)
AGAINST_PPO = (
    ("DQN − PPO, as many tokens sampled", "dqn_mlp", "ppo_equal_tokens"),
    ("DQN − PPO, as many gradient steps", "dqn_mlp", "ppo_equal_steps"),
    ("DQN − PPO, each its own budget", "dqn_mlp", "ppo_kl_default"),
    ("best DQN − PPO, as many tokens sampled", "dqn_best", "ppo_equal_tokens"),
    ("best DQN − PPO, each its own budget", "dqn_best", "ppo_kl_default"),
    ("actor-critic − PPO, each its own budget", "sac", "ppo_kl_default"),
)
CURVES = {  # panel -> what a line is called: run
    "Heads and trunk": {
        "DQN, MLP head": "dqn_mlp", "DQN, linear head": "dqn_linear", "DQN, logits": "dqn_logits", "DQN, frozen trunk": "dqn_frozen",
        "PPO": "ppo_kl_default",
    },
    "Against PPO": {
        "DQN, MLP head": "dqn_mlp", "DQN, best": "dqn_best", "soft actor-critic": "sac", "PPO": "ppo_kl_default",
    },
}  # fmt: skip


@dataclass(frozen=True)
class Better:
    """A DQN beside the untrained model, decoded alike: differences in score and in log-perplexity of the texts (nats)."""

    condition: str
    score: stats.Paired
    perplexity: stats.Paired

    @property
    def holds(self) -> bool | None:
        """The score is higher and the perplexity less than twice as high, both by their intervals; None below three seeds."""
        if self.score.low is None or self.score.n < 3:
            return None
        return self.score.low > 0 and self.perplexity.high < TWICE


# samplers ------------------------------------------------------------------------------------------------------------


def swept(results: Results, world: str = "") -> list[Series]:
    """A series per sampler along its values, synced, from what cuts most to what cuts least; last PPO without a mask (x = NONE)."""
    found, base = [], BASE[world]
    for rule, name in RULE.items():
        for s in lines(results, "mask_value", world=world, algorithm="masked", mask_rule=rule, mask_delay=0):
            points = list(zip(s.x, s.conditions))[:: -1 if rule in FALLING else 1]
            points += [(NONE, base)] * (base in results.conditions)
            found.append(Series(name, tuple(c for _, c in points), tuple(x for x, _ in points)))
    return found


def sweeps(results: Results, world: str = "") -> list[Series]:
    """Those of `swept` with at least two values of the sampler."""
    return [s for s in swept(results, world) if len(set(s.x) - {NONE}) > 1]


def usual_masks(results: Results, world: str = "") -> dict[str, str]:
    """Sampler -> its run at the paper's value (where that was not run: at the one that cuts most)."""
    values = {RULE[rule]: value for rule, value in USUAL.items()}
    return {
        s.label: next((c for x, c in zip(s.x, s.conditions) if math.isclose(x, values[s.label])), s.conditions[0])
        for s in swept(results, world)
    }


def delayed(results: Results, world: str = "") -> dict[str, tuple[str, str]]:
    """Sampler -> (run with the older copy's mask, run with the current policy's), alike in everything else."""
    found = lines(results, "mask_delay", lambda r: RULE[r.mask_rule], world=world, algorithm="masked")
    pairs = {s.label: (s.conditions[-1], s.conditions[0]) for s in found if s.x[0] == 0 and len(s.x) > 1}
    return {name: pairs[name] for name in RULE.values() if name in pairs}


def mask_rows(results: Results, world: str = "") -> list[str]:
    """Conditions of the figure of levels: untrained, no mask, PPO's own truncation, then each sampler, synced and delayed."""
    late, table = {synced: old for old, synced in delayed(results, world).values()}, trained(results)
    first = [untrained(results, world=world), BASE[world], *table.index[(table.algorithm == "ppo") & (table.world == world) & (table.top_p < 1)]]
    rows = [c for synced in usual_masks(results, world).values() for c in (synced, late.get(synced))]
    return [c for c in (*first, *rows) if c in results.conditions]


def mask_pairs(results: Results, world: str = "", decoding: str = "plain") -> list[tuple[str, str, str, str, str]]:
    """Each sampler against no truncation, for `plots.differences`; the run without a mask is decoded plainly."""
    base = BASE[world]
    return [(f"{n} − no truncation", c, base, decoding, "plain") for n, c in usual_masks(results, world).items()]


def delay_pairs(results: Results, world: str = "", decoding: str = "plain") -> list[tuple[str, str, str, str, str]]:
    """Delayed minus synced, a row per sampler."""
    return [(f"{n}: delayed − synced", a, b, decoding, decoding) for n, (a, b) in delayed(results, world).items()]


def kept_mass(results: Results, condition: str) -> np.ndarray | None:
    """[n seeds]: the mean share of the policy's distribution that its own mask let through; 1 without a mask."""
    found = results.values(condition, "kept_mass", "own")
    if found is None and condition in BASE.values():
        return np.ones(len(results.seeds))
    return found


def at_mass(results: Results, world: str = "", decoding: str = "plain") -> list[Series]:
    """`sweeps` along the mass kept (mean over seeds) instead of the sampler's own number."""
    found = []
    for s in sweeps(results, world):
        points = sorted((float(m.mean()), c) for c in s.conditions if (m := kept_mass(results, c)) is not None)
        if len(points) > 1:
            found.append(Series(s.label, tuple(c for _, c in points), tuple(x for x, _ in points), decoding))
    return found


def at_equal_mass(
    results: Results, metric: str, world: str = "", decoding: str = "plain", other: str = "top-p"
) -> dict[str, stats.Paired]:
    """Sampler -> its metric minus the other's, each seed's mean over the kept mass that both its sweeps cover.

    Linear between the values that were run, no truncation (mass 1) included; needs four of them on both sides, and is left
    out where a seed's sweeps share no mass.
    """
    known = {}
    for s in at_mass(results, world, decoding):
        arm = [(kept_mass(results, c), results.values(c, metric, decoding)) for c in s.conditions]
        if len(arm) >= curves.MIN_SWEEP and all(v is not None for pair in arm for v in pair):
            known[s.label] = [np.array(v) for v in zip(*arm)]
    matched = {n: curves.matched_kl(*v, *known[other]) for n, v in known.items() if other in known and n != other}
    return {n: m.test() for n, m in matched.items() if not m.without_overlap}


def best_values(results: Results, metric: str = "score", world: str = "", decoding: str = "own") -> dict[str, tuple[float, np.ndarray]]:
    """Sampler -> (its value with the highest mean, NONE for no truncation; that run's seeds), of those with a sweep."""
    found = {}
    for s in sweeps(results, world):
        arms = {x: v for x, c in zip(s.x, s.conditions) if (v := results.values(c, metric, decoding)) is not None}
        if arms:
            best = max(arms, key=lambda x, arms=arms: arms[x].mean())
            found[s.label] = best, arms[best]
    return found


# DQN -----------------------------------------------------------------------------------------------------------------


def variants(results: Results, world: str = "") -> list[str]:
    """The DQN runs of a world, in the report's order."""
    table = trained(results)
    return list(table.index[(table.algorithm == "dqn") & (table.world == world)])


def dqn_rows(results: Results) -> list[str]:
    """Conditions of the figure of levels: untrained, every DQN, the actor-critic, and PPO."""
    table = trained(results)
    others = list(table.index[table.algorithm.isin(["sac", "ppo"]) & (table.world == "")])
    return [c for c in (untrained(results), *variants(results), *others) if c]


def dqn_pairs(results: Results, decoding: str = "plain") -> list[tuple[str, str, str, str, str]]:
    """One part of DQN at a time, for `plots.differences`."""
    return [(said, a, b, decoding, decoding) for said, a, b in DQN_PARTS if {a, b} <= set(results.conditions)]


def ppo_pairs(results: Results, decoding: str = "plain") -> list[tuple[str, str, str, str, str]]:
    """DQN against PPO at equal tokens, at equal gradient steps and as they are."""
    return [(said, a, b, decoding, decoding) for said, a, b in AGAINST_PPO if {a, b} <= set(results.conditions)]


def penalty_lines(results: Results) -> list[Series]:
    """DQN along the weight of the KL in its reward, from 0 on, decoded plainly."""
    name = {"mlp": "MLP head", "linear": "linear head", "logits": "logits"}
    found = lines(results, "kl_coef", lambda r: f"{name[r['head']]}, {r.n_step:g}-step returns", algorithm="dqn")
    return [s for s in found if len(s.x) > 1]


def curve_groups(results: Results) -> dict[str, dict[str, str]]:
    """For `plots.training`: the runs of `CURVES` that are there."""
    return {title: {n: c for n, c in arms.items() if c in results.conditions} for title, arms in CURVES.items()}


def better(results: Results, decoding: str) -> list[Better]:
    """Every DQN against the untrained model under the same decoding; empty without one, or where it was not decoded so."""
    zero, found = untrained(results), []
    for condition in variants(results) if zero else ():
        score, perplexity = (contrast(results, condition, zero, m, decoding) for m in ("score", "generation_log_perplexity"))
        if score is not None and perplexity is not None:
            found.append(Better(condition, score, perplexity))
    return found


def used(results: Results, condition: str, unit: str) -> pd.Series:
    """What a run had used by the end of each update, mean over seeds: update -> tokens sampled, or gradient steps.

    tokens: mean length of the update's episodes times their number; gradient_steps: as the learner reports them, else
    as it is configured: gradient_steps, or epochs times minibatches (1 where it has none of them). Raises: ValueError for another unit.
    """
    rows, learner = results.curves[results.curves.condition == condition], results.configs[condition]["learner"]
    if unit == "tokens":
        spent = rows["episodes/length"].astype(float) * learner["episodes_per_update"]
    elif unit == "gradient_steps":
        reported = rows[[c for c in rows if c.endswith("/gradient_steps")]].astype(float)
        each = learner.get("gradient_steps", learner.get("epochs", 1) * learner.get("minibatches", 1))
        spent = reported.sum(axis=1).where(reported.notna().any(axis=1), each)
    else:
        raise ValueError(f"unit: expected tokens or gradient_steps, found {unit!r}")
    return rows.assign(spent=spent).pivot(index="update", columns="seed", values="spent").cumsum().mean(axis=1)


# the on-policy family ------------------------------------------------------------------------------------------------


def members(results: Results, world: str = "", payment: str = "") -> dict[str, str]:
    """Learner -> its run in a world: the first listed of the usual reward (or of `payment`), with a KL penalty where there is one."""
    table = trained(results)
    table = table[(table.world == world) & table.algorithm.isin(FAMILY)]
    if world:
        table = table[table.index.map(lambda c: paid(results, c) == (payment or DEFAULT[world])).astype(bool)]
    found = {}
    for algorithm in FAMILY:
        own = table[table.algorithm == algorithm]
        named = [c for c in own.index if own.kl_coef[c] != 0] or list(own.index)
        if named:
            found[ALGORITHM[algorithm]] = named[0]
    return found


def paid(results: Results, condition: str) -> str:
    """The reward of a run of a world, by its own name."""
    row = design(results).loc[condition]
    return DEFAULT.get(row.world, "") if row.payment in (None, "reward") else row.payment


def family_pairs(results: Results, world: str = "") -> list[tuple[str, str, str, str, str]]:
    """Each learner minus PPO in the same world, decoded plainly."""
    own = members(results, world)
    ppo = own.pop("PPO", None)
    return [(f"{name} − PPO", c, ppo, "plain", "plain") for name, c in own.items()] if ppo else []


def family_points(results: Results) -> dict[str, list[Series]]:
    """For `plots.frontiers`: each learner's run on reviews as a point."""
    points = [Series(name, (c,), (0.0,), joined=False) for name, c in members(results).items()]
    return {"decoded plainly": points} if points else {}


def payments(results: Results, world: str) -> list[str]:
    """The rewards that the trained runs of a world were paid by, the usual one first."""
    table = trained(results)
    there = {paid(results, c) for c in table.index[table.world == world]}
    return [p for p in PAYMENT if p in there]


def number_groups(results: Results) -> dict[str, dict[str, str]]:
    """For `plots.training`: a panel per reward of numbers, a line per learner."""
    found = {PAYMENT[p]: members(results, "numbers", p) for p in payments(results, "numbers")}
    return {title: arms for title, arms in found.items() if arms}


def finals(results: Results, world: str = "numbers", decoding: str = "own") -> pd.DataFrame:
    """A row per trained run of a world that no mask truncates: learner, paid, median over seeds, seeds (of n) at GOAL or above."""
    table, rows = trained(results), []
    for condition in table.index[(table.world == world) & (table.algorithm != "masked")]:
        values = results.values(condition, "score", decoding)
        if values is not None:
            own = {"condition": condition, "learner": ALGORITHM[table.algorithm[condition]], "paid": PAYMENT[paid(results, condition)]}
            rows.append({**own, "median": float(np.median(values)), "reached": int((values >= GOAL).sum()), "n": len(values)})
    return pd.DataFrame(rows, columns=["condition", "learner", "paid", "median", "reached", "n"]).set_index("condition")


def finals_table(results: Results, world: str = "numbers") -> pd.DataFrame:
    """`finals` for people."""
    found = finals(results, world)
    return pd.DataFrame(
        {
            "learner": found.learner, "paid": found.paid, "median score, own sampler": found["median"].map("{:.3f}".format),
            f"seeds at {GOAL:g} or above": [f"{r.reached} of {r.n}" for r in found.itertuples()],
        }
    ).rename_axis(None)  # fmt: skip


def extremes(results: Results, name: str, world: str = "") -> list[str]:
    """The runs whose texts are shown beside the untrained model's."""
    if name == "samplers":
        masks = usual_masks(results, world)
        return [BASE[world], *(masks[n] for n in ("top-p", "mirostat") if n in masks)]
    if name == "dqn":
        return variants(results, world)[:2] if world else ["dqn_mlp", "dqn_best", BASE[""]]
    own = members(results, world)
    return [own[n] for n in ("PPO", "GRPO", "REINFORCE", "A2C") if n in own]


def memory_table(results: Results) -> pd.DataFrame:
    """What a replay takes, in MB, a row per capacity in the runs: as it is, and if it kept logits over the vocabulary instead of ids."""
    from rlnlp.replay import Replay  # brings torch with it

    each = sum(dtype.itemsize for dtype in Replay.CELLS.values())
    sizes = [m["policy"]["vocabulary"] for m in results.models.values() if "vocabulary" in m.get("policy", {})]
    runs: dict[int, list[str]] = {}
    for condition in results.conditions:
        if buffer := results.configs[condition]["learner"].get("buffer"):
            runs.setdefault(int(buffer), []).append(condition)
    rows = {
        f"{capacity:,} tokens": {
            "runs": join(names), "bytes per token": each, "MB": f"{capacity * each / 1e6:,.1f}",
            "MB with logits": f"{capacity * (each + 4 * max(sizes)) / 1e6:,.1f}" if sizes else "",
        }
        for capacity, names in sorted(runs.items())
    }  # fmt: skip
    return pd.DataFrame.from_dict(rows, orient="index")
