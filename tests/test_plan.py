"""What the plan says of a profile and of what it misses, and the profile paper end to end on tiny models saved under
the published names. What a run costs: test_costs.py."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from ruamel.yaml import YAML
from transformers import GPT2Config, GPT2LMHeadModel

from workbook.draws import base, training, variants
from workbook.draws.tokenizer import train_tokenizer
from workbook.runs import checks, conditions, experiment, tune
from workbook.stages import outside, plan, plan_text, shapes
from workbook.store import files, tables
from workbook.texts import data, tasks
from workbook.texts.hub import DataError

from .spoiled import settings_edited  # noqa: F401 (a fixture)
from .test_costs import COMPUTED, FIXTURE, params

ROOT = Path(__file__).resolve().parents[1]
IDS = {"models": ("lvwerra/gpt2-imdb", "lvwerra/distilbert-imdb"), "datasets": ("imdb",)}


def test_a_shared_run_is_counted_once():
    p = checks.load(FIXTURE, **{"reports.warm_start.conditions": ["ppo_kl_0", "supervised", "sup_ppo"]})
    found = plan.plan(p, 1e12, 0.0, COMPUTED)
    kl, warm, rest = found["reports"]
    assert (kl["name"], warm["name"], rest["name"]) == ("kl", "warm_start", "(no report)")
    assert [row["counted_in"] for row in warm["conditions"]] == ["kl", "warm_start", "warm_start"]
    assert (
        warm["runs"] == 2 * 5
        and warm["episodes"] == warm["conditions"][1]["episodes"] + warm["conditions"][2]["episodes"]
    )
    assert [row["name"] for row in rest["conditions"]] == ["labels_10"]
    before = sum(row["flops"] for row in found["before"])
    assert found["total"]["flops"] == pytest.approx(before + sum(report["flops"] for report in found["reports"]))
    assert found["runs"] == 5 * len(p.all_runs) == sum(report["runs"] for report in found["reports"])
    said = plan_text.text(found)
    assert "counted in kl: ppo_kl_0" in said and "nothing from outside" in said and "CPU-hours" in said


def test_what_no_profile_searches_costs_nothing():
    assert plan.searched(params(**{"tune.own": {}})) == []
    assert plan.plan(params(**{"tune.own": {}}), 1e12, 0.0, COMPUTED)["before"][1]["hours"] == 0


def test_worlds_are_searched_by_nobody():
    p = params(
        **{
            "worlds.numbers": {"texts": 9, "steps": 3},
            "runs": {"counted": {"algorithm": "nlpo", "world": "numbers"}, "ppo_kl_0": {"algorithm": "ppo"}},
            "continued": {},
            "reports": {"kl": {"conditions": ["ppo_kl_0"]}},
        }
    )
    assert plan.searched(p) == ["ppo"]
    world = shapes.world_shapes(p)["numbers"]
    assert world.vocabulary == 103 and world.positions == 32  # 0 to 99, end, padding, unknown
    assert plan.plan(p, 1e12, 0.0, COMPUTED)["conditions"] == 2


def test_tables_are_aligned():
    lines = plan_text.table(("condition", "n"), [("a", "1"), ("longer name", "1,000")])
    assert lines == ["  condition        n", "  ------------------", "  a                1", "  longer name  1,000"]


def profile_copy(folder: Path, name: str = "paper") -> Path:
    """The profile in a folder of its own, so that nothing is written into the repository."""
    (folder / "profiles" / name).mkdir(parents=True)
    shutil.copy(ROOT / "claims.yaml", folder)
    return Path(shutil.copy(ROOT / "profiles" / name / "params.yaml", folder / "profiles" / name))


def test_missing_ids_are_named_with_the_places_looked_in(tmp_path, monkeypatch, capsys):
    profile_copy(tmp_path)
    monkeypatch.setenv("RLNLP_MIRROR", str(tmp_path / "mirror"))
    (tmp_path / "mirror" / "models" / "lvwerra" / "gpt2-imdb").mkdir(parents=True)  # empty: as good as absent
    assert plan.main(["paper", "--root", str(tmp_path)]) == 3
    said = capsys.readouterr().out
    assert "the settings are sound; 3 ids are missing" in said and said.count("MISSING") == 3
    for kind, names in IDS.items():
        for name in names:
            assert str(tmp_path / "mirror" / kind / name) in said
    assert "an empty folder" in said and "HF_HUB_OFFLINE is set" in said
    assert "124,439,808 parameters" in said and "66,955,010 parameters" in said and "shape assumed" in said
    line = 'hf download lvwerra/distilbert-imdb --local-dir "$RLNLP_MIRROR/models/lvwerra/distilbert-imdb"'
    assert f"{line}  # 0.27 GB of weights" in said
    assert 'hf download imdb --repo-type dataset --local-dir "$RLNLP_MIRROR/datasets/imdb"\n' in said


def test_json_says_the_same(tmp_path, capsys):
    profile_copy(tmp_path)
    assert plan.main(["paper", "--root", str(tmp_path), "--json", "--tflops", "1", "--pass-ms", "0"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert [way["name"][:5] for way in found["ways"]] == ["fp32,", "preci"] and found["rates"] == COMPUTED.why
    today, fixed = (way["hours"] for way in found["ways"])
    assert today["1"] == pytest.approx(found["total"]["hours"]) and today["1"] / 8 <= today["8"] < today["1"] / 7
    assert fixed["1"] == pytest.approx(found["total"]["fixed_hours"])
    assert found["missing"] == 3 and found["total"]["hours"] == pytest.approx(found["total"]["flops"] / 1e12 / 3600)
    ppo = next(row for report in found["reports"] for row in report["conditions"] if row["name"] == "ppo_kl_default")
    assert (
        ppo["episodes"] == 5 * 50 * 27 and ppo["sampled"] == 5 * 50 * 27 * 48 and ppo["trained"] == 5 * ppo["sampled"]
    )


def test_runs_whose_rows_the_paper_prints_are_added_up(tmp_path, capsys):
    """All rows of claims.yaml that the paper prints of reviews, but those of rewards with fewer labels."""
    listed = YAML(typ="safe", pure=True).load(ROOT / "profiles" / "paper" / plan.PRINTED)
    known = YAML(typ="safe", pure=True).load(ROOT / "claims.yaml").values()
    rows = {row for claim in known for row in claim.get("published", ()) if re.match(r"T[5-8] ", row)}
    assert rows - listed.keys() == {f"T7 {name} {share}" for name in ("PPO", "NLPO") for share in ("0.0", "0.1", "0.5")}
    assert listed.keys() - rows == {"T5 PPO+supervised inf", "T5 NLPO+supervised inf"}  # no claim compares with them
    path = profile_copy(tmp_path)
    shutil.copy(ROOT / "profiles" / "paper" / plan.PRINTED, path.parent)
    assert plan.main(["paper", "--root", str(tmp_path), "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    every = {row["name"]: row for report in found["reports"] for row in report["conditions"]}
    (given,) = found["printed"]
    assert given["conditions"] == list(dict.fromkeys(listed.values()))
    for name in ("hours", "fixed_hours", "flops"):
        assert given[name] == pytest.approx(sum(every[condition][name] for condition in given["conditions"]))
    count, hours = plan.printed_hours(checks.load(path), COMPUTED)  # the same, where nothing was looked for
    assert (count, hours) == (len(given["conditions"]), pytest.approx(given["fixed_hours"]))
    said = plan_text.text(found)
    assert f"the paper prints, {count} conditions x 5 seeds: step by step" in said and f"in bf16 {hours:.2f}" in said
    (path.parent / plan.PRINTED).write_text("T5 PPO inf: ppo_kl_1\n")
    assert plan.main(["paper", "--root", str(tmp_path)]) == 1
    assert "expected names of runs, found 'ppo_kl_1'; did you mean 'ppo_kl_0'" in capsys.readouterr().err


def test_the_rates_of_the_bench_replace_the_guesses(tmp_path, capsys):
    profile_copy(tmp_path)
    (tmp_path / plan.RATES).parent.mkdir(parents=True)
    known = {"device": "X100", "fp32": 50.0, "update_fp32_share": 0.5, "readable_ms": 7.0}
    (tmp_path / plan.RATES).write_text(json.dumps(known))
    assert plan.main(["paper", "--root", str(tmp_path)]) == 3
    said = capsys.readouterr().out
    assert "FLOPs at 25 TFLOP/s" in said and "7 ms a forward pass" in said and "measured on X100" in said


@pytest.mark.parametrize(
    ("known", "given", "said"),
    [
        (
            {},
            (),
            "FLOPs at 26.8 TFLOP/s (40 % of an H200's 67 in plain fp32; --tflops), and 10 ms a forward pass (assumed",
        ),
        (
            {"fp32": 50.91104764613092, "update_fp32_share": 0.7642821784701029, "readable_ms": 20.66909344991048},
            (),
            "FLOPs at 38.9 TFLOP/s (measured in fp32: reports/bench/gpu.json; --tflops), and 20.7 ms a forward pass "
            "(measured in fp32: reports/bench/gpu.json; --pass-ms)",
        ),
        ({}, ("--tflops", "100", "--pass-ms", "1"), "at 100 TFLOP/s (--tflops), and 1 ms a forward pass (--pass-ms)"),
    ],
)
def test_the_plan_says_where_its_rates_are_from(known, given, said, tmp_path, capsys):
    profile_copy(tmp_path)
    (tmp_path / plan.RATES).parent.mkdir(parents=True)
    (tmp_path / plan.RATES).write_text(json.dumps({"device": "X100", **known}))
    assert plan.main(["paper", "--root", str(tmp_path), *given]) == 3
    found = " ".join(capsys.readouterr().out.split())
    assert said in found and "as this package computes" not in found


@pytest.mark.parametrize(
    "given", ["--tflops 0", "--tflops -1", "--tflops nan", "--tflops fast", "--pass-ms -1", "--pass-ms inf"]
)
def test_a_rate_that_is_none(given, tmp_path, capsys):
    profile_copy(tmp_path)
    option, value = given.split()
    with pytest.raises(SystemExit) as ended:
        plan.main(["paper", "--root", str(tmp_path), option, value])
    assert ended.value.code == 2 and re.search(f"error: .*{option}: .*{value}", capsys.readouterr().err)


def test_wrong_settings(tmp_path, capsys):
    path = profile_copy(tmp_path)
    path.write_text(path.read_text().replace("  gamma: 0.99", "  gamma: 1.99"))
    assert plan.main(["paper", "--root", str(tmp_path)]) == 1
    assert "learner.gamma" in capsys.readouterr().err


def test_claims_that_the_runs_cannot_decide(tmp_path, capsys):
    path = profile_copy(tmp_path)
    path.write_text(path.read_text().replace("claims: [P01,", "claims: [P01, P25, P08, P99,"))
    assert plan.main(["paper", "--root", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "expected an entry of claims.yaml, found 'P99'" in said and "P01" not in said  # settings come first
    path.write_text(path.read_text().replace(", P99,", ","))
    assert plan.main(["paper", "--root", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "P25: needs 1 of the runs labels_10" in said and "P08: has no tests" in said
    assert "P01" not in said


OWN = {  # the user's file, what it holds, what the plan says of it
    "another name": ("my.py", "def scores(*four):\n    ...\n", "my.py has no 'score'; did you mean 'scores'?"),
    "nothing like it": ("my.py", "def paid():\n    score = 1\n", "my.py has no 'score'; there is paid"),
    "no Python": ("my.py", "def score(*four) return 1\n", "raised SyntaxError"),
    "bytes": ("my.py", "\0", "my.py raised"),
    "no such column": ("my.csv", "promt\nhello\n", "my.csv: unknown column 'promt'; did you mean 'prompt'?"),
    "an odd split": ("my.csv", "prompt,split\na,trian\n", "row 2: expected split train, validation, test, got 'trian'"),
    "too few": ("my.csv", "prompt\na\nb\n", "expected >= 3 different prompts"),
    "too few to train on": ("my.csv", "prompt\na\nb\nc\n", "expected >= 3 prompts to train on, found 1"),
    "nothing": ("my.csv", "", "an empty file; expected a header with a column 'prompt'"),
}
NEVER = 'raise SystemExit("a plan executes nothing")\n'


def planned_with(tmp_path, edited, files: dict[str, str]) -> int:
    """The status of a plan whose reward is my.py:score and whose prompts are my.csv."""
    shutil.copy(ROOT / "claims.yaml", tmp_path)
    brought = ('reward: ""', "reward: my.py:score"), ('prompts: ""', "prompts: my.csv")
    edited(*brought, ("reward: reward_10", "kl_coef: 0.1"), ("claims: [P01]", "claims: []"))
    for name, text in {"my.py": "def score(*four):\n    ...\n", "my.csv": "prompt\na\nb\nc\nd\ne\n", **files}.items():
        (tmp_path / name).write_text(text)
    return plan.main(["--root", str(tmp_path)])


@pytest.mark.parametrize("what", OWN)
def test_the_users_own_files_are_read(what, tmp_path, edited, capsys):
    name, text, said = OWN[what]
    assert planned_with(tmp_path, edited, {name: text}) == 1
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1 and f"bring.{'prompts' if name == 'my.csv' else 'reward'}: " in told


@pytest.mark.parametrize("text", ["def score(*four): ...", "from that import score", "from that import *", "score = 1"])
def test_a_reward_that_may_have_the_function_is_left_to_the_run_and_not_executed(text, tmp_path, edited):
    assert planned_with(tmp_path, edited, {"my.py": NEVER + text + "\n"}) == 0


@pytest.mark.parametrize("name", tasks.names())
def test_the_data_set_that_a_task_is_said_to_read_is_the_one_that_it_asks_for(name, monkeypatch):
    asked = []

    def find(kind: str, hub_id: str, mirror) -> None:
        asked.append((kind, hub_id))
        raise DataError("not here")

    monkeypatch.setattr("workbook.texts.tasks.imdb.find", find)
    p = checks.load(FIXTURE)
    with contextlib.suppress(DataError):
        tasks.task(name).load(p, 1)
    found = outside.named(p.model_copy(update={"task": p.task.model_copy(update={"name": name})}))
    assert (
        [(kind, hub_id) for kind, hub_id, _ in found] == asked == [("datasets", "imdb")] * (name in ("imdb", "reviews"))
    )


def test_a_broken_or_short_model_is_not_called_found(tmp_path, monkeypatch, capsys):
    path = profile_copy(tmp_path)
    monkeypatch.setenv("RLNLP_MIRROR", str(tmp_path))
    folder = tmp_path / "models" / "lvwerra" / "gpt2-imdb"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{")
    assert plan.main(["paper", "--root", str(tmp_path)]) == 3
    assert f"{folder}: " in capsys.readouterr().out
    GPT2Config(n_positions=100, n_embd=8, n_head=2, n_layer=1).save_pretrained(folder)
    assert plan.main(["paper", "--root", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert (
        f"{path}: task.prompt_tokens: expected prompt + response <= positions of lvwerra/gpt2-imdb (100), found 112"
        in said
    )


def test_a_brought_model_is_looked_for_where_a_run_looks_whatever_folder_the_plan_is_typed_in(
    tmp_path, edited, monkeypatch
):
    (tmp_path / "typed").mkdir()
    GPT2Config(n_positions=100).save_pretrained(tmp_path / "typed" / "mine")
    monkeypatch.chdir(tmp_path / "typed")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    params = checks.load(edited(('model: ""', "model: mine")))
    found = outside.look(params, "models", "mine", "policy")
    assert not found.place and "mine (as a folder): no such folder" in found.looked
    shutil.copytree("mine", params.folder / "mine")
    assert outside.look(params, "models", "mine", "policy").place == str(params.folder.resolve() / "mine")


def test_minutes_come_from_measured_stages(tmp_path):
    p = checks.load(profile_copy(tmp_path))
    assert plan.measured(p) is None
    files.atomic_json(p.scratch / "durations.json", {"runs@zero_shot": 60.0, "data@1": 30.0})
    found = plan.measured(p)
    assert found["timed"] == 2 and found["minutes"] > (len(p.all_runs) * 60 + 5 * 30) / 60 / 2


def test_help_and_make():
    done = subprocess.run(
        [sys.executable, "-m", "workbook.stages.plan", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "Exit status: 0" in done.stdout and "--tflops" in done.stdout
    command = ["make", "-n", "plan", "PROFILE=paper", "ARGS=--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "workbook.stages.plan paper --json" in done.stdout


def test_both_published_values_are_runs():
    """Where text, tables and code disagree, each value is run."""
    p = checks.load(ROOT / "profiles" / "paper" / "params.yaml")
    each = [p.learner_config(name) for name in p.all_runs if p.run(name).algorithm in ("ppo", "nlpo", "mismatch")]
    nlpo = [c for c in each if hasattr(c, "mask_top_p")]

    def values(name: str, of=each) -> set:
        return {getattr(c, name) for c in of}

    assert {0.95, 0.99, 0.5, 1.0} <= values("gamma") and {0.01, 0.1} <= values(
        "kl_coef", [c for c in each if c.kl_target]
    )
    assert {0.0, 0.01, 0.1} <= values("kl_coef", [c for c in each if not c.kl_target])  # "no KL"
    assert {0.1, 0.2} <= values("kl_gain") and {1e-6, 1e-5} <= values("learning_rate", nlpo)
    assert {1, 100} <= values("mask_min_tokens", nlpo) and {1, 5, 10, 20} <= values("sync_every", nlpo)
    assert {"lagged", "initial", "random"} <= values("mask_source", nlpo)
    assert {0.1, 0.3, 0.5, 0.7, 0.9, 1.0} <= values("mask_top_p", nlpo)
    for algorithm in ("ppo", "nlpo"):
        targets = {p.learner_config(n).kl_target for n in p.all_runs if p.run(n).algorithm == algorithm}
        assert {0.02, 0.05, 0.1, 0.2, 0.5, 1.0} <= targets


# the profile paper, end to end ---------------------------------------------------------------------------------------
def review(i: int, split: str) -> tuple[str, int]:
    good = i % 2
    tone = ("a great film with a warm and lovely cast", "a bad film with a dull and boring cast")[1 - good]
    told = "well" if good else "badly"
    return f"{split} {i}: this was {tone}, and the story of number {i * 7} was told {told} to the end.", good


@pytest.fixture(scope="module")
def mirror(tmp_path_factory):
    """Tiny random models and a made-up data set under the profile's names, as `save_pretrained` and the hub lay them
    out."""
    import datasets
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    root = tmp_path_factory.mktemp("mirror")
    texts = {}
    for split, n in (("train", 60), ("unsupervised", 80), ("test", 60)):
        rows = [review(i, split) for i in range(n)]
        texts[split] = [text for text, _ in rows]
        labels = datasets.ClassLabel(names=["neg", "pos"])
        table = {"text": texts[split], "label": [-1 if split == "unsupervised" else label for _, label in rows]}
        features = datasets.Features({"text": datasets.Value("string"), "label": labels})
        datasets.Dataset.from_dict(table, features=features).to_parquet(root / "datasets" / "imdb" / f"{split}.parquet")
    tokenizer = train_tokenizer(texts["train"], "bpe", 300)
    common = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 1}
    torch.manual_seed(0)
    policy = GPT2LMHeadModel(
        GPT2Config(vocab_size=len(tokenizer), n_positions=128, n_embd=16, n_layer=2, n_head=2, **common)
    )
    shape = {"dim": 16, "hidden_dim": 32, "n_layers": 1, "n_heads": 2, "pad_token_id": 1}
    reward = DistilBertForSequenceClassification(DistilBertConfig(vocab_size=len(tokenizer), **shape))
    for name, model in zip(IDS["models"], (policy, reward)):
        training.save(root / "models" / name, model, tokenizer, "tiny and random")
    before = datasets.config.HF_DATASETS_CACHE
    datasets.config.HF_DATASETS_CACHE = root / "cache"
    yield root
    datasets.config.HF_DATASETS_CACHE = before


SIZES = {
    "device": "cpu",
    "seeds": [1],
    "draws": [1],
    "learner.updates": 2,
    "learner.episodes_per_update": 4,
    "learner.epochs": 2,
    "learner.minibatches": 2,
    "supervised.updates": 2,
    "supervised.episodes_per_update": 4,
    "sampling.max_new_tokens": 6,
    "sampling.min_new_tokens": 6,
    "task.language_model_reviews": 8,
    "task.language_model_validation_reviews": 2,
    "task.evaluator_reviews": 2,
    "task.reward_reviews": 20,
    "task.reward_validation_reviews": 8,
    "task.judge_reviews": 12,
    "task.prompt_tokens": 16,
    "task.train_prompts": 8,
    "task.validation_prompts": 4,
    "task.test_prompts": 6,
    "evaluation.human_reviews": 4,
    "evaluation.beams": 2,
    "variants.standard_prompts": 4,
    "sampling.top_k": 5,
}


def test_the_profile_paper_end_to_end(mirror, tmp_path, monkeypatch, capsys):
    """The settings of the profile with nothing changed but sizes, through the code that the pipeline's notebooks
    call."""
    path = profile_copy(tmp_path)
    monkeypatch.setenv("RLNLP_MIRROR", str(mirror))
    assert plan.main(["paper", "--root", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "MISSING" not in said and all(
        str(mirror / kind / name) in said for kind, names in IDS.items() for name in names
    )
    assert "config.json of lvwerra/gpt2-imdb" in said and "124,439,808" not in said

    p = checks.load(path, **SIZES)
    real = checks.load(path)
    assert p.runs == real.runs and p.continued == real.continued and p.bring == real.bring  # only sizes differ
    folders = [p.folder / kind / "draw1" for kind in ("data", "models", "variants")]
    data.build(p, 1, folders[0])
    base.build(p, 1, folders[0], folders[1], p.scratch)
    facts = variants.build(p, 1, *folders, p.scratch)
    assert facts["policy_dropout"]["kind"] == "none" and "bring.model" in facts["policy_dropout"]["why"]
    assert facts["judge_2"]["validation_reviews"] == 8
    for algorithm in ("ppo", "nlpo"):
        found = tune.search(conditions.search(p, algorithm), p.folder / "tune" / f"{algorithm}.json")
        assert found["learning_rate"] == 1e-6
    original = GPT2LMHeadModel.from_pretrained(mirror / "models" / IDS["models"][0])
    rows = {}
    for condition in ("ppo_kl_default", "nlpo_kl_default", "supervised", "sup_nlpo"):
        out = p.folder / "runs" / condition
        experiment.run_condition(conditions.condition(p, condition), out)
        rows[condition] = tables.read_table(out / "per_seed.csv")
        written = json.loads((out / "config.json").read_text())
        assert written["learner"]["learning_rate"] == {"supervised": 1e-5}.get(condition, 1e-6)
        tuned = GPT2LMHeadModel.from_pretrained(out / "policy_seed1")
        assert not torch.equal(tuned.transformer.wte.weight, original.transformer.wte.weight)
        for row in rows[condition]:
            assert 0 <= row["score"] <= 1 and row["kl"] >= -1e-6
    extra = {"greedy", "beam", "top_k", "temperature"}
    assert {row["decoding"] for row in rows["ppo_kl_default"]} == {"plain", "top_p", "own"} | extra
    own = next(row for row in rows["nlpo_kl_default"] if row["decoding"] == "own")
    assert "mask_top_p=0.9" in own["decoding_record"] and "top_k=5" in own["decoding_record"]
    assert {row["split"] for row in rows["supervised"]} == {"test", "half"}
