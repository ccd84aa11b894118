"""Settings: every kind of mistake gives one message that names the place, what was expected, and the nearest name."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import Field
from ruamel.yaml import YAML

from rlnlp.settings import ConfigError, Settings
from workbook.ledger.claim import repetitions
from workbook.runs import algorithms, brought, checks, conditions, messages, settings
from workbook.runs.params import Params

ROOT = Path(__file__).resolve().parents[1]
PROFILES = [ROOT / "params.yaml", *sorted(ROOT.glob("profiles/*/params.yaml"))]
SOUND = (ROOT / "tests" / "fixtures" / "params.yaml").read_text(encoding="utf-8")


@pytest.fixture
def edited(tmp_path):
    """Write a sound params.yaml with some text replaced; the replaced text must be there."""

    def write(*changes: tuple[str, str]) -> Path:
        text = SOUND
        for old, new in changes:
            assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
            text = text.replace(old, new)
        path = tmp_path / "params.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def problems(path, **overrides) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        checks.load(path, **overrides)
    assert str(caught.value).startswith(f"{path}:")
    return caught.value.problems


@pytest.mark.parametrize("path", PROFILES, ids=lambda p: p.parent.name)
def test_every_profile_is_valid(path):
    params = checks.load(path)
    assert params.folder == path.parent
    assert params.scratch == ROOT / ".scratch" / params.profile
    assert params.reports_folder == ROOT / "reports" / params.profile
    for name, entry in params.all_runs.items():
        run, learner = params.run(name), params.learner_config(name)
        for key, value in entry.items():
            found = getattr(run if key in settings.Run.model_fields else learner, key)
            assert (list(found) if isinstance(found, tuple) else found) == value


@pytest.mark.parametrize("path", PROFILES, ids=lambda p: p.parent.name)
def test_every_profile_writes_out_every_name(path):
    """`dvc exp run -S section.name=...` needs the name to be in the file."""
    raw = YAML(typ="safe").load(path)
    for section in Params.model_fields:
        assert section in raw
        if messages.names_in(section):
            assert set(messages.names_in(section)) <= set(raw[section]), section


def test_the_larger_size_is_valid_too():
    path = ROOT / "profiles/imdb/params.yaml"
    small, large = checks.load(path), checks.load(path, size="gpu")
    assert large.device == "cuda" and large.language_model.width > small.language_model.width
    assert large.language_model.warmup_fraction == small.language_model.warmup_fraction


CASES = {  # name: (old text, new text, words the one problem must contain)
    "unknown name": ("  clip: 0.2", "  clp: 0.2", ["learner.clp", "line", "unknown name", "learner.clip"]),
    "unknown top-level name": ("threads: 1 ", "thread: 1 ", ["thread", "did you mean threads"]),
    "name in the wrong section": ("mirror: ", "gamma: 0.9\nmirror: ", ["gamma", "did you mean learner.gamma"]),
    "sampling name in learner": ("  lam: 0.95", "  lam: 0.95\n  top_k: 5", ["learner.top_k", "sampling.top_k"]),
    "unknown nlpo name": ("  sync_every: 5", "  sync_evry: 5", ["nlpo.sync_evry", "nlpo.sync_every"]),
    "text for a number": (
        "  temperature: 1.0",
        "  temperature: warm",
        ["sampling.temperature", "number", "'warm' (text)"],
    ),
    "quoted number": ("  gamma: 0.95", '  gamma: "0.95"', ["learner.gamma", "a number", "'0.95' (text)"]),
    "boolean for a whole number": ("threads: 1 ", "threads: true ", ["threads", "whole number", "true (true/false)"]),
    "float for a whole number": ("  updates: 30\n  episodes", "  updates: 2.5\n  episodes", ["learner.updates", "2.5"]),
    "number for a boolean": ("  include_prompt: true", "  include_prompt: 1", ["include_prompt", "true or false", "1"]),
    "out of range": ("  gamma: 0.95", "  gamma: 1.5", ["learner.gamma", "<= 1", "found 1.5"]),
    "negative": ("  kl_coef: 0.05  ", "  kl_coef: -0.05  ", ["learner.kl_coef", ">= 0", "-0.05"]),
    "not a number": ("  lam: 0.95", "  lam: .nan", ["learner.lam", "finite", "nan"]),
    "choice": ("  kl_estimator: k1", "  kl_estimator: k4", ["learner.kl_estimator", "'k1', 'k2' or 'k3'", "k4"]),
    "choice, near": ("  tokenizer: word", "  tokenizer: words", ["language_model.tokenizer", "did you mean 'word'"]),
    "missing value": ("  batch_size: 32  ", "  # batch_size: 32  ", ["language_model.batch_size", "nothing"]),
    "missing section": ("tune:   ", "#tune:   ", ["tune"]),
    "empty section": ("nlpo:   ", "nlpo:\nx:  ", ["nlpo"]),
    "device": ("device: cpu", "device: gpu", ["device", "cuda", "'gpu'"]),
    "list element": ("learning_rates: [5e-4,", "learning_rates: [small,", ["tune.learning_rates[0]", "'small'"]),
    "empty list": ("seeds: [1, 2, 3, 4, 5]", "seeds: []", ["seeds", "at least 1"]),
    "list of text": (
        "seeds: [1, 2, 3, 4, 5]",
        'seeds: ["1"]',
        ["seeds[0]", "a whole number", "'1' (text)"],
    ),
    "seeds without draw": ("seeds: [1,", "seeds: [9,", ["seeds", "draws", "[9]"]),
    "seed twice": ("seeds: [1, 2,", "seeds: [2, 2,", ["seeds", "different"]),
    "tune draw": ("  draw: 0", "  draw: 7", ["tune.draw", "7"]),
    "learning rate zero": ("learning_rates: [5e-4,", "learning_rates: [0,", ["tune.learning_rates", "> 0"]),
    "run algorithm": ("kl_0: {algorithm: nlpo,", "kl_0: {algorithm: nlop,", ["runs.nlpo_kl_0.algorithm", "'nlpo'"]),
    "run without algorithm": ("ppo_kl_large: {algorithm: ppo, ", "ppo_kl_large: {", ["ppo_kl_large.algorithm", "none"]),
    "run override": (
        "{algorithm: ppo, kl_coef: 0.2}",
        "{algorithm: ppo, kl_cof: 0.2}",
        ["ppo_kl_large.kl_cof", "kl_coef"],
    ),
    "run value": (
        "{algorithm: ppo, kl_coef: 0.2}",
        "{algorithm: ppo, kl_coef: much}",
        ["ppo_kl_large.kl_coef", "much"],
    ),
    "nlpo name in a ppo run": ("{algorithm: ppo, kl_coef: 0.2}", "{algorithm: ppo, sync_every: 2}", ["sync_every"]),
    "run name": ("  ppo_target_high: {", "  ppo_1.0: {}\n  ppo_target_high: {", ["ppo_1.0", "no dots"]),
    "report names no run": (
        "conditions: [ppo_kl_0, ppo_kl_s",
        "conditions: [ppo_kl_O, ppo_kl_s",
        ["reports.kl.conditions[0]", "'ppo_kl_0'"],
    ),
    "report pair": ("      ppo: [ppo_kl_0,", "      ppo: [ppo_kl_9,", ["reports.kl.pairs.ppo", "'ppo_kl_9'"]),
    "unknown report": ("  warm_start:\n", "  warm_stat:\n", ["reports.warm_stat", "'warm_start'"]),
    "start of a run that is not there": (
        "start: supervised",
        "start: supervise",
        ["continued.sup_ppo.start", "did you mean 'supervised'"],
    ),
    "start outside continued": (
        "  labels_10: {algorithm: ppo,",
        "  labels_10: {algorithm: ppo, start: supervised,",
        ["runs.labels_10.start", "`continued`"],
    ),
    "continued without start": (
        "{algorithm: ppo, start: supervised}",
        "{algorithm: ppo}",
        ["continued.sup_ppo.start", "a name in runs"],
    ),
    "reward that is not made": (
        "reward: reward_10",
        "reward: reward_20",
        ["runs.labels_10.reward", "'reward_10'", "label_fractions"],
    ),
    "base that is not made": (
        "reward: reward_10",
        "base: policy_dropout",
        ["runs.labels_10.base", "variants.dropout is 0"],
    ),
    "unknown base": ("reward: reward_10", "base: polcy", ["runs.labels_10.base", "'policy' or 'policy_dropout'"]),
    "unknown decoding": ("reward: reward_10", "decodings: [greedi]", ["runs.labels_10.decodings[0]", "'greedy'"]),
    "share of labels": (
        "label_fractions: [0.0, 0.1]",
        "label_fractions: [0.0, 0.1, 1.0]",
        ["variants.label_fractions", "< 1"],
    ),
    "unknown supervised name": (
        "  data_fraction: 1.0",
        "  data_fracton: 1.0",
        ["supervised.data_fracton", "supervised.data_fraction"],
    ),
    "ppo name in a supervised run": (
        "  supervised: {algorithm: supervised}",
        "  supervised: {algorithm: supervised, kl_coef: 0.1}",
        ["runs.supervised.kl_coef", "unknown name"],
    ),
    "a name twice": (
        "  sup_ppo: {",
        "  labels_10: {algorithm: ppo, start: supervised}\n  sup_ppo: {",
        ["continued.labels_10", "not in runs too"],
    ),
    "too long for the model": (
        "  prompt_tokens: 10",
        "  prompt_tokens: 50",
        ["task.prompt_tokens", "context (64)", "74"],
    ),
    "a run too long": ("ppo, kl_coef: 0.2}", "ppo, max_new_tokens: 60}", ["language_model.context", "70"]),
    "too long for the reward": ("  max_tokens: 96", "  max_tokens: 16", ["reward_model.max_tokens", "16"]),
    "width and heads": ("  heads: 4\n  context", "  heads: 5\n  context", ["language_model.width", "multiple", "5"]),
    "least above most": ("  min_new_tokens: 0", "  min_new_tokens: 25", ["sampling.min_new_tokens", "24", "25"]),
    "bpe vocabulary": ("  tokenizer: word", "  tokenizer: bpe", ["language_model.vocabulary", "260"]),
    "size": ('size: ""', "size: huge", ["size", "'huge'"]),
    "name in sizes": (
        "sizes: {}",
        "sizes: {big: {language_model: {witdh: 9}}}",
        ["sizes.big.language_model.witdh", "width"],
    ),
    "root": ("root: .", "root: nowhere", ["root", "folder", "nowhere"]),
    "no such model": ('model: ""', "model: ./models/mine", ["bring.model", "./models/mine"]),
    "no such prompts": ('prompts: ""', "prompts: my.csv", ["bring.prompts", "my.csv"]),
    "no such reward file": ('reward: ""', "reward: my.py:score", ["bring.reward", "my.py"]),
    "no function": ('reward: ""', "reward: my.py", ["bring.reward", "my.py:function"]),
    "csv without a file": ("name: generated_reviews", "name: csv", ["task.name", "bring.prompts"]),
    "number as a name": ("sizes: {}", "sizes: {1: {}}", ["sizes[1]", "text as a name"]),
}


@pytest.mark.parametrize("case", CASES)
def test_mistake_is_named(edited, case):
    old, new, words = CASES[case]
    path = edited((old, new))
    found = problems(path)
    assert any(all(word in line for word in words) for line in found), found
    if not case.startswith(("unknown top-level", "empty section", "missing section", "run name")):
        assert len(found) == 1, found


def test_the_line_number_is_right(edited):
    path = edited(("  gamma: 0.95", "  gamma: 1.5"))
    line = 1 + path.read_text().splitlines().index(next(x for x in path.read_text().splitlines() if "gamma: 1.5" in x))
    assert f"(line {line})" in problems(path)[0]


def test_all_problems_at_once(edited):
    found = problems(edited(("  gamma: 0.95", "  gama: 0.95"), ("  heads: 4\n  context", "  heads: no\n  context")))
    assert len(found) == 2
    found = problems(edited(("threads: 1 ", "threads: 0 "), ("  clip: 0.2", "  clip: -1"), ("  draw: 0", "  draw: x")))
    assert {line.split(" ")[0] for line in found} == {"threads", "learner.clip", "tune.draw"}


def test_duplicate_key(edited):
    path = edited(("  lam: 0.95", "  lam: 0.95\n  gamma: 0.5"))
    first, second = (i + 1 for i, text in enumerate(path.read_text().splitlines()) if text.startswith("  gamma: "))
    with pytest.raises(ConfigError) as caught:
        checks.load(path)
    said = "not valid YAML: the key 'gamma' stands twice in one section, the first time on line"
    assert str(caught.value) == f"{path}: line {second}, column 3: {said} {first}; keep one"


@pytest.mark.parametrize("text", ["a: [1", "a:\n\t- 1", "- 1\n- 2", "just words", "", "a: 1\n---\nb: 2", "\x00"])
def test_not_a_params_file(tmp_path, text):
    path = tmp_path / "params.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"params.yaml:.*(not valid YAML|expected lines)"):
        checks.load(path)


def test_missing_file(tmp_path):
    (tmp_path / "parms.yaml").write_text("")
    with pytest.raises(ConfigError, match=r"no such file.*parms.yaml"):
        checks.load(tmp_path / "params.yaml")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("smoke", "; did you mean profiles/smoke/params.yaml (smoke)?"),
        ("profiles/smok/params.yaml", "; did you mean profiles/smoke/params.yaml (smoke)?"),
        ("profiles/mimi/params.yaml", "; did you mean params.yaml (mini)?"),
        ("parms.yaml", "; did you mean params.yaml (params)?"),
        ("profiles/zzz/params.yaml", "(looked in {}; known there: 'mini', 'follow_up'"),
        ("nothing/zzz.yaml", "(looked in {}/nothing; known there: none)"),
    ],
)
def test_a_file_that_is_not_there_names_the_nearest_profile(name, said, monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(ConfigError) as caught:
        checks.load(name)
    assert str(caught.value).startswith(f"{name}: no such file") and said.format(ROOT) in str(caught.value)


def test_numbers_are_read_as_dvc_reads_them(edited):
    params = checks.load(edited(("  gamma: 0.95", "  gamma: 1"), ("  lam: 0.95", "  lam: 5e-1")))
    assert params.algorithm_config("ppo").lam == 0.5
    gamma = params.algorithm_config("ppo").gamma
    assert gamma == 1.0 and isinstance(gamma, float)


def test_overrides(edited):
    path = edited()
    params = checks.load(path, **{"learner.gamma": 0.5, "threads": 2, "runs.ppo_kl_0.kl_coef": 0.25})
    assert params.threads == 2 and params.algorithm_config("nlpo").gamma == 0.5
    assert params.learner_config("ppo_kl_0").kl_coef == 0.25
    assert "learner.gamma (override): expected <= 1.0, found 2.0" in problems(path, **{"learner.gamma": 2.0})[0]
    assert "did you mean learner.gamma?" in problems(path, **{"learner.gama": 1.0})[0]
    assert "did you mean learner.gamma?" in problems(path, **{"learnr.gamma": 1.0})[0]


def test_sizes_replace_and_overrides_win(edited):
    path = edited(('size: ""', "size: big"), ("sizes: {}", "sizes: {big: {language_model: {width: 128, layers: 3}}}"))
    params = checks.load(path, **{"language_model.layers": 5})
    assert (params.language_model.width, params.language_model.layers, params.language_model.heads) == (128, 5, 4)
    path = edited(('size: ""', "size: big"), ("sizes: {}", "sizes: {big: {language_model: {width: 130}}}"))
    assert "language_model.width (from sizes.big)" in problems(path)[0]


def test_order_of_what_decides_a_run(edited):
    params = checks.load(edited())
    tuned = {"learning_rate": 2e-3, "kl_coef": 0.1}
    plain, chosen = params.learner_config("ppo_target_low"), params.learner_config("ppo_target_low", tuned)
    assert (plain.learning_rate, chosen.learning_rate) == (1e-3, 2e-3)
    assert (chosen.kl_coef, chosen.kl_target) == (0.1, 0.2)
    assert params.learner_config("ppo_kl_0", tuned).kl_coef == 0.0  # what the run says wins
    assert params.learner_config("nlpo_kl_0").sync_every == 5
    assert params.learner_config("ppo_kl_0").max_new_tokens == params.sampling.max_new_tokens
    assert not hasattr(params.learner_config("ppo_kl_0"), "sync_every")
    with pytest.raises(ConfigError, match="learning_rte.*learning_rate"):
        params.learner_config("ppo_kl_0", {"learning_rte": 1.0})
    with pytest.raises(ConfigError, match="no run is called 'ppo_kl_1'; did you mean 'ppo_kl_"):
        params.learner_config("ppo_kl_1")
    with pytest.raises(ConfigError, match="'a3c'"):
        params.algorithm_config("a3c")


# other learners, and worlds -------------------------------------------------------------------------------------------
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


def test_a_brought_model_decides_the_length(edited, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text('{"n_positions": 32}')
    assert "expected weights (*.safetensors or" in " ".join(problems(edited(('model: ""', "model: mine"))))
    (tmp_path / "mine" / "model.safetensors").touch()
    assert "positions of mine (32)" in problems(edited(('model: ""', "model: mine")))[0]
    (tmp_path / "mine" / "config.json").write_text('{"n_positions": 34}')
    checks.load(edited(('model: ""', "model: mine")))
    (tmp_path / "mine" / "config.json").write_text('{"n_positions": 8, "is_encoder_decoder": true}')
    checks.load(edited(('model: ""', "model: mine")))


def test_brought_files(edited, tmp_path, capsys):
    (tmp_path / "my.py").write_text("")
    (tmp_path / "my.csv").write_text("prompt\nhello\n")
    brought = ('reward: ""', "reward: my.py:score"), ('prompts: ""', "prompts: my.csv")
    told = problems(edited(*brought))
    assert len(told) == 1 and "bring.reward" in told[0] and "labels_10" in told[0]  # it has no version of fewer labels
    sound = edited(*brought, ("reward: reward_10", "kl_coef: 0.1"))
    (tmp_path / "my.csv").write_text("text\nhello\n")
    assert conditions.main([str(sound), str(tmp_path / "out")]) == 1
    assert "my.csv: unknown column 'text'" in capsys.readouterr().err
    params = checks.load(sound)
    assert params.task_name == "csv" and params.task.name == "generated_reviews"


def test_a_copied_profile_must_be_renamed(tmp_path):
    folder = tmp_path / "profiles" / "mine"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "profiles/smoke/params.yaml", folder)
    assert "profile" in problems(folder / "params.yaml")[0] and "'mine'" in problems(folder / "params.yaml")[0]


def test_every_field_says_what_it_is():
    def walk(model):
        for name, field in model.model_fields.items():
            if isinstance(field.annotation, type) and issubclass(field.annotation, Settings):
                assert field.annotation.__doc__, f"{model.__name__}.{name}"
                walk(field.annotation)
            else:
                assert field.description, f"{model.__name__}.{name}"

    walk(Params)
    for algorithm in algorithms.names():
        walk(algorithms.module(algorithm).Config)


def test_settings_are_frozen_and_strict():
    class Example(Settings):
        rate: float = Field(1.0, ge=0)
        names: tuple[str, ...] = ()

    assert Example(rate=1, names=["a"]).names == ("a",)
    assert Example().replace(rate=2).rate == 2.0
    with pytest.raises(ValueError, match="frozen"):
        Example().rate = 3.0
    for bad in ({"rate": "1"}, {"rate": True}, {"rate": float("inf")}, {"rate": -1}, {"names": [1]}, {"raet": 1}):
        with pytest.raises(ValueError):
            Example(**bad)
        with pytest.raises(ValueError):
            Example().replace(**bad)


def check(path: Path, out: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "workbook.runs.conditions", str(path), str(out)]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)


def test_command_line(edited, tmp_path):
    out = tmp_path / "build" / "checked.txt"
    done = check(edited(), out.parent)
    assert done.returncode == 0, done.stderr
    first = out.read_bytes()
    out.unlink()
    assert conditions.main([str(edited(("  gamma: 0.95", "  gamma: 0.9"))), str(out.parent)]) == 0
    assert out.read_bytes() == first  # constant: other values do not re-run what follows
    out.unlink()
    done = check(edited(("  gamma: 0.95", "  gama: 0.9")), out.parent)
    assert done.returncode == 1 and not out.exists()
    assert "learner.gama" in done.stderr and "Traceback" not in done.stderr
    done = subprocess.run(
        [sys.executable, "-m", "workbook.runs.conditions"], check=False, capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 2 and "usage: " in done.stderr


def test_the_contents_of_brought_files_are_recorded(tmp_path):
    """What DVC follows instead of the files, whose names are values: it changes with any byte of any of them."""
    assert set(brought.contents(tmp_path, settings.Bring()).values()) == {""}
    files = {"mine/deep/weights": "1", "paid/reward.py": "def score(): ...", "prompts.csv": "prompt"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    bring = settings.Bring(model="mine", reward="paid/reward.py:score", prompts="prompts.csv")
    before = brought.contents(tmp_path, bring)
    assert all(before.values()) and brought.contents(tmp_path, bring) == before
    for (name, text), setting in zip(files.items(), before):
        (tmp_path / name).write_text(text + " ")
        after = brought.contents(tmp_path, bring)
        assert {k for k in before if after[k] != before[k]} == {setting}
        before = after
    for name in (
        "paid/words.txt",
        "paid/deep/words.py",
        "paid/deep/down/more.csv",
    ):  # it may read or import any of them
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("good")
        after = brought.contents(tmp_path, bring)
        assert after != before
        before = after
    (tmp_path / "paid/.hidden").write_text("")
    (tmp_path / "paid/__pycache__").mkdir()
    (tmp_path / "paid/__pycache__/reward.pyc").write_text("")
    assert brought.contents(tmp_path, bring) == before
    assert brought.contents(tmp_path, settings.Bring(model="gpt2"))["model"] == ""  # a hub id: nothing here to hash


def test_of_a_reward_beside_the_settings_what_it_imports_is_followed(tmp_path):
    """The folder of params.yaml holds everything else too, so only imports say what belongs to the reward."""
    texts = {
        "reward.py": "import words\nfrom deep.down import best\nfrom lists import good as g\n",
        "words.py": "",
        "deep/__init__.py": "",
        "deep/down.py": "from . import more\nbest = 1\n",
        "deep/more.py": "",
        "lists/__init__.py": "from .inner import good\n",
        "lists/inner.py": "good = 1\n",
        "other.py": "",
        "data/draw1/x.py": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    bring = settings.Bring(reward="reward.py:score")
    found = [path.relative_to(tmp_path).as_posix() for path in brought.reward_files(tmp_path, bring)]
    assert found == sorted(set(texts) - {"other.py", "data/draw1/x.py"})


def test_a_rewards_folder_has_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(brought, "MOST_FILES", 3)
    (tmp_path / "paid").mkdir()
    for i in range(4):
        (tmp_path / f"paid/{i}.py").write_text("")
    with pytest.raises(ConfigError, match="at most 3 files"):
        brought.reward_files(tmp_path, settings.Bring(reward="paid/0.py:score"))


def test_reading_the_settings_does_not_bring_the_models():
    code = "import workbook.runs.checks, sys; workbook.runs.checks.load(); print('transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "False\n"


def test_an_adaptive_penalty_that_cannot_move_is_refused(edited):
    with pytest.raises(ConfigError, match="kl_coef 0: expected > 0 with a kl_target"):
        checks.load(edited(), **{"learner.kl_coef": 0.0, "learner.kl_target": 0.2})


def test_reading_the_module_does_not_bring_torch():
    code = (
        "import workbook.runs.params, workbook.store.files, workbook.store.fingerprint, sys; print('torch' in "
        "sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "False\n"
