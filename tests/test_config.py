"""Settings: every kind of mistake gives one message that names the place, what was expected, and the nearest name."""

import shutil

import pytest
from pydantic import Field
from ruamel.yaml import YAML

from rlnlp.settings import ConfigError, Settings
from workbook.runs import algorithms, checks, messages, settings
from workbook.runs.params import Params

from .spoiled import ROOT, problems, settings_edited  # noqa: F401 (a fixture)

PROFILES = [ROOT / "params.yaml", *sorted(ROOT.glob("profiles/*/params.yaml"))]


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


def test_an_adaptive_penalty_that_cannot_move_is_refused(edited):
    with pytest.raises(ConfigError, match="kl_coef 0: expected > 0 with a kl_target"):
        checks.load(edited(), **{"learner.kl_coef": 0.0, "learner.kl_target": 0.2})
