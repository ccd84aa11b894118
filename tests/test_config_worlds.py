"""Settings of the other learners, of worlds, and of runs that lean on other runs: every kind of mistake is named, and
of several places that give a value the right one counts."""

from pathlib import Path

import pytest

from workbook.ledger.claim import repetitions
from workbook.runs import checks, settings

from .spoiled import problems, settings_edited  # noqa: F401 (a fixture)

MORE = """algorithms:
  masked: {mask_delay: 0}
  grpo: {group: 8}
  trpo: {kl_bound: 0.05}
worlds:
  numbers:
    texts: 100
    steps: 30
    sampling: {max_new_tokens: 20, min_new_tokens: 20}
    learner: {gamma: 0.9, learning_rate: 4e-3}
    algorithms: {nlpo: {learning_rate: 2e-3}, grpo: {group: 16}}
variants:
"""
MORE_RUNS = """  masked: {algorithm: masked, mask_rule: top_p, mask_value: 0.9}
  group: {algorithm: grpo}
  trust: {algorithm: trpo}
  values: {algorithm: dqn, head: logits}
  one_step: {algorithm: a2c}
  counted: {algorithm: ppo, world: numbers}
  counted_nlpo: {algorithm: nlpo, world: numbers, learning_rate: 1e-4}
  counted_end: {algorithm: grpo, world: numbers, reward: pairs_end}
continued:  """


@pytest.fixture
def extended(edited):
    """As `edited`, in a file that has the other learners and a world; the changes are made in what it adds."""

    def write(*changes: tuple[str, str], **rest) -> Path:
        more, runs = MORE, MORE_RUNS
        for old, new in changes:
            assert (more + runs).count(old) == 1, f"{old!r} occurs {(more + runs).count(old)} times"
            more, runs = more.replace(old, new), runs.replace(old, new)
        own = "  own: {ppo: {}, nlpo: {}, a2c: {updates: 60, learning_rates: [1e-2]}, grpo: {}}"
        return edited(("variants:\n", more), ("continued:  ", runs), ("  own: {ppo: {}, nlpo: {}}", own))

    return write


MORE_CASES = {  # as CASES
    "unknown algorithm": ("  grpo: {group: 8}", "  gpro: {group: 8}", ["algorithms.gpro", "did you mean 'grpo'"]),
    "unknown field": (
        "{mask_delay: 0}",
        "{mask_dely: 0}",
        ["algorithms.masked.mask_dely", "unknown name", "algorithms.masked.mask_delay"],
    ),
    "field of another learner": (
        "{kl_bound: 0.05}",
        "{kl_bound: 0.05, group: 4}",
        ["algorithms.trpo.group", "unknown name"],
    ),
    "no section": ("  masked: {mask_delay: 0}", "  masked: 0", ["algorithms.masked", "a section"]),
    "bound of nothing": ("{kl_bound: 0.05}", "{kl_bound: 0}", ["algorithms.trpo.kl_bound", "> 0"]),
    "bound below nothing": (
        "{algorithm: trpo}",
        "{algorithm: trpo, kl_bound: -0.1}",
        ["runs.trust.kl_bound", "> 0", "-0.1"],
    ),
    "group of one": ("{algorithm: grpo}", "{algorithm: grpo, group: 1}", ["runs.group.group", "at least 2"]),
    "group of one in the section": (
        "  grpo: {group: 8}",
        "  grpo: {group: 1}",
        ["algorithms.grpo.group", "at least 2"],
    ),
    "a part of a group": (
        "{algorithm: grpo}",
        "{algorithm: grpo, group: 7}",
        ["runs.group (", "episodes_per_update", "multiple"],
    ),
    "mask that keeps nothing": ("mask_value: 0.9}", "mask_value: 0}", ["runs.masked (", "top_p", "0 < p"]),
    "epsilon above one": (
        "mask_rule: top_p, mask_value: 0.9}",
        "mask_rule: epsilon, mask_value: 1.5}",
        ["runs.masked (", "epsilon", "1.5"],
    ),
    "no token": (
        "mask_rule: top_p, mask_value: 0.9}",
        "mask_rule: top_k, mask_value: 0}",
        ["runs.masked (", "top_k", "0"],
    ),
    "unknown rule": ("mask_rule: top_p,", "mask_rule: typicl,", ["runs.masked (", "typicl", "typical"]),
    "exploring in nothing": (
        "head: logits}",
        "head: logits, explore_rule: typical, explore_value: 0}",
        ["runs.values (", "typical"],
    ),
    "a step of two": (
        "{algorithm: a2c}",
        "{algorithm: a2c, minibatches: 2}",
        ["runs.one_step.minibatches", "one step"],
    ),
    "unknown world": (
        "counted: {algorithm: ppo, world: numbers}",
        "counted: {algorithm: ppo, world: nmbers}",
        ["runs.counted.world", "did you mean 'numbers'"],
    ),
    "world that is not here": (
        "counted: {algorithm: ppo, world: numbers}",
        "counted: {algorithm: ppo, world: dates}",
        ["runs.counted.world", "a name in worlds", "'dates'"],
    ),
    "unknown world in the section": ("  numbers:\n", "  number:\n", ["worlds.number", "'numbers'"]),
    "reward of reviews in a world": (
        "world: numbers, reward: pairs_end",
        "world: numbers, reward: reward_10",
        ["runs.counted_end.reward", "the world numbers", "'pairs'"],
    ),
    "reward of a world in reviews": (
        "{algorithm: trpo}",
        "{algorithm: trpo, reward: pairs}",
        ["runs.trust.reward", "'reward_10'"],
    ),
    "reward, near": ("reward: pairs_end", "reward: pair_end", ["runs.counted_end.reward", "did you mean 'pairs_end'"]),
    "base in a world": ("reward: pairs_end", "base: policy_dropout", ["runs.counted_end.base", "one model"]),
    "vocabulary in a world": ("reward: pairs_end", "vocabulary: 50", ["runs.counted_end.vocabulary", "tokens are few"]),
    "imitation in a world": (
        "{algorithm: grpo, world: numbers, reward: pairs_end}",
        "{algorithm: supervised, world: numbers}",
        ["runs.counted_end.world", "supervised"],
    ),
    "too long for a world": (
        "world: numbers, reward: pairs_end",
        "world: numbers, max_new_tokens: 28",
        ["runs.counted_end", "<= 27", "28"],
    ),
    "unknown name of a world": ("    texts: 100\n", "    txts: 100\n", ["worlds.numbers.txts", "worlds.numbers.texts"]),
    "no texts": ("    texts: 100\n", "    texts: 0\n", ["worlds.numbers.texts", ">= 2"]),
    "unknown sampling in a world": (
        "min_new_tokens: 20}",
        "min_new_token: 20}",
        ["worlds.numbers.sampling.min_new_token", "min_new_tokens"],
    ),
    "unknown learner name in a world": (
        "learner: {gamma: 0.9",
        "learner: {gama: 0.9",
        ["worlds.numbers.learner.gama", "learner.gamma"],
    ),
    "least above most in a world": (
        "min_new_tokens: 20}",
        "min_new_tokens: 21}",
        ["worlds.numbers.sampling.min_new_tokens", "(20)", "21"],
    ),
    "least above most in a run": (
        "{algorithm: trpo}",
        "{algorithm: trpo, min_new_tokens: 25}",
        ["runs.trust (", "min_new_tokens 25", "24"],
    ),
    "value in a world": ("learner: {gamma: 0.9", "learner: {gamma: 9", ["worlds.numbers.learner.gamma", "<= 1"]),
    "unknown algorithm in a world": (
        "{nlpo: {learning_rate: 2e-3}",
        "{nlop: {learning_rate: 2e-3}",
        ["worlds.numbers.algorithms.nlop", "'nlpo'"],
    ),
    "unknown field in a world": (
        "{nlpo: {learning_rate: 2e-3}",
        "{nlpo: {learning_rte: 2e-3}",
        ["worlds.numbers.algorithms.nlpo.learning_rte", "learning_rate"],
    ),
}


@pytest.mark.parametrize("case", MORE_CASES)
def test_a_mistake_about_other_learners_and_worlds_is_named(extended, case):
    old, new, words = MORE_CASES[case]
    path = extended((old, new))
    found = problems(path)
    assert any(all(word in line for word in words) for line in found), found
    wrong = {1 + i for i, line in enumerate(path.read_text().splitlines()) if new.strip().splitlines()[0] in line}
    assert any(f"(line {n})" in line for n in wrong for line in found), (found, wrong)
    if case not in ("unknown name of a world", "unknown world in the section"):
        assert len(found) == 1, found


def test_the_order_of_what_decides_a_run_in_a_world(extended):
    params = checks.load(extended())
    tuned = {"learning_rate": 0.5}
    plain, nlpo, group = (params.learner_config(name, tuned) for name in ("counted", "counted_nlpo", "counted_end"))
    assert (plain.gamma, plain.learning_rate, plain.lam) == (0.9, 4e-3, 0.95)  # the world's, the world's, the section's
    assert (plain.max_new_tokens, plain.min_new_tokens) == (20, 20)
    assert (
        nlpo.learning_rate == 1e-4
        and params.model_copy(update={"runs": {"counted_nlpo": {"algorithm": "nlpo", "world": "numbers"}}})
        .learner_config("counted_nlpo")
        .learning_rate
        == 2e-3
    )
    assert group.group == 16 and params.learner_config("group").group == 8  # algorithms, replaced by the world's
    assert params.learner_config("group", tuned).learning_rate == 0.5
    assert (params.learner_config("trust").kl_bound, params.learner_config("one_step").epochs) == (0.05, 1)


def test_every_algorithm_that_is_searched_has_a_grid(extended):
    params = checks.load(extended())
    assert params.tune.search("a2c") == settings.Search(learning_rates=(1e-2,), kl_coefs=(0.02, 0.05, 0.1), updates=60)
    assert params.tune.search("ppo") == settings.Search(
        learning_rates=(5e-4, 1e-3, 2e-3), kl_coefs=(0.02, 0.05, 0.1), updates=30
    )
    text = extended().read_text()

    def told(old, new):
        path = extended()
        path.write_text(text.replace(old, new))
        return problems(path)

    assert told(", grpo: {}}", "}") == [
        f"tune.own (line {line_of(text, '  own:')}): expected an entry `grpo: {{}}`, a learning rate that these "
        f"runs use: group"
    ]
    assert "tune.own.gpro" in told("grpo: {}}", "grpo: {}, gpro: {}}")[0]
    assert "tune.own.a2c.learning_rates" in told("learning_rates: [1e-2]", "learning_rates: [0]")[0]


def line_of(text: str, start: str) -> int:
    return next(i for i, line in enumerate(text.splitlines(), 1) if line.startswith(start))


def test_a_continued_run_stays_in_its_world(extended):
    changes = {"continued.more": {"algorithm": "ppo", "start": "counted"}}
    assert problems(extended(), **changes) == [
        "continued.more.start (override): expected a run of the same world (none), found 'counted'"
    ]
    checks.load(extended(), **{"continued.more": {"algorithm": "ppo", "start": "counted", "world": "numbers"}})


def test_a_repetition_says_what_it_repeats(edited):
    """Else a claim that asks for repetitions would have none, and nobody would know."""
    own = {"algorithm": "ppo", "gamma": 0.5, "kl_coef": 0.3}
    runs = {"runs.halved": own, "runs.halved_2": {**own, "replicate": 1, "test_prompts": 4}}
    params = checks.load(edited(), **runs)
    assert repetitions(params.all_runs, "halved") == ["halved", "halved_2"]  # the ledger's word for it
    place = "runs.halved_3.replicate (override): expected"
    beside = "a run that says the same but for replicate, decodings, test_prompts, found none"
    for slip, keys in (({"gamma": 0.05}, "gamma"), ({"gamma": 0.05, "epochs": 2}, "gamma, epochs")):
        changes = {**runs, "runs.halved_3": {**own, **slip, "replicate": 2}}
        assert problems(edited(), **changes) == [f"{place} {beside}; the nearest, 'halved', differs in {keys}"]
    assert problems(edited(), **{**runs, "runs.halved_3": {**own, "replicate": 1}}) == [
        f"{place} another number than that of 'halved_2', which repeats 'halved' too"
    ]
