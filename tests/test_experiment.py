"""A condition end to end on tiny models: reuse, resume after SIGKILL, bring your own, clear failures."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import shutil
import signal
from pathlib import Path

import pytest
import torch

from rlnlp.learners.common import Diverged, TrainingError
from rlnlp.settings import ConfigError
from tests.executed import change, copied, definitions, reached, recorded, run_notebook
from workbook.draws import base, named, training, variants, worlds
from workbook.draws.tokenizer import train_tokenizer
from workbook.results import tidy
from workbook.runs import algorithms, checks, conditions, experiment, measure, train, tune
from workbook.runs.draw import frequent_tokens, load_draw
from workbook.runs.facts import training_facts
from workbook.runs.params import Params
from workbook.runs.settings import Run
from workbook.stages import carry, depends
from workbook.stages.scheduler import Scheduler
from workbook.store import files, identity, locks, rekeyed, states, tables
from workbook.texts import data

from .waiting import DEADLINE_S

REPOSITORY = Path(__file__).parent.parent
SMALL = {
    "root": ".",
    "profile": "tests",
    "draws": [1, 2],
    "seeds": [1],
    "task": {
        "language_model_reviews": 60,
        "language_model_validation_reviews": 8,
        "evaluator_reviews": 60,
        "reward_reviews": 40,
        "reward_validation_reviews": 10,
        "judge_reviews": 10,
        "train_prompts": 24,
        "validation_prompts": 8,
        "test_prompts": 8,
    },
    "language_model": {"steps": 3, "width": 16},
    "reward_model": {"width": 16},
    "learner": {"updates": 12, "episodes_per_update": 8},
    "sampling": {"max_new_tokens": 6},
    "tune": {"draw": 1},
}


def write_params(folder: Path, **changes) -> Path:
    """The smoke profile's values, made smaller still."""
    from ruamel.yaml import YAML

    yaml = YAML()
    values = yaml.load((REPOSITORY / "profiles" / "smoke" / "params.yaml").read_text())
    for source in (SMALL, changes):
        for key, value in source.items():
            whole = (
                (key in WITHOUT_VARIANTS and not key.startswith("world")) or not value or not isinstance(value, dict)
            )
            values[key] = value if whole else {**values[key], **value}
    path = folder / "params.yaml"
    with open(path, "w") as file:
        yaml.dump(values, file)
    return path


WITHOUT_VARIANTS = {  # what is left where a reward is brought: no run on fewer labels
    "runs": {
        "zero_shot": {"algorithm": "ppo", "updates": 0},
        "ppo_kl_0": {"algorithm": "ppo", "kl_coef": 0.0},
        "ppo_kl_default": {"algorithm": "ppo"},
        "supervised": {"algorithm": "supervised"},
    },
    "reports": {"kl": {"conditions": ["ppo_kl_0", "ppo_kl_default"]}},
    "continued": {},
    "claims": [],
    "worlds": {},
}


def build(folder: Path) -> Params:
    params = checks.load(folder / "params.yaml")
    for draw in params.draws:
        texts, trained, further = (folder / kind / f"draw{draw}" for kind in ("data", "models", "variants"))
        data.build(params, draw, texts)
        base.build(params, draw, texts, trained, params.scratch)
        variants.build(params, draw, texts, trained, further, params.scratch)
        worlds.build(params, draw, folder / "worlds" / f"draw{draw}", params.scratch)
    for algorithm in ("ppo", "nlpo", "a2c", "reinforce", "grpo"):
        files.atomic_json(folder / "tune" / f"{algorithm}.json", {"learning_rate": 3e-3})
    return params


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    write_params(folder)
    build(folder)
    return folder


@pytest.fixture
def world(built, tmp_path) -> Path:
    """A copy of the built folder, to spoil freely."""
    shutil.copytree(built, tmp_path / "world", ignore=shutil.ignore_patterns(".scratch"))
    return tmp_path / "world"


def given(folder: Path, condition: str, **overrides) -> conditions.Condition:
    """What the run of a condition is given."""
    return conditions.condition(checks.load(folder / "params.yaml", **overrides), condition)


def run(folder: Path, condition: str = "ppo_kl_default", seed: int = 1) -> Path:
    params = given(folder, condition)
    return experiment.run_seed(params, seed, experiment.chosen(params))


@pytest.fixture
def trainings(monkeypatch) -> list[str]:
    """Labels of every training that really happens."""
    seen, real = [], experiment.train
    monkeypatch.setattr(experiment, "train", lambda *a: seen.append(a[5]) or real(*a))
    return seen


def test_a_repetition_differs_by_the_random_numbers_of_training_alone(world):
    """Untrained, it is the same model on the same stream; trained, another policy on the same prompts."""

    def row(updates: int, **more) -> dict:
        same = {"algorithm": "ppo", "updates": updates}
        params = given(world, "some", **{"runs.first": same, "runs.some": {**same, **more}})
        return tables.read_table(experiment.run_seed(params, 1, {"learning_rate": 3e-3}) / "per_seed.csv")[0]

    once, again = row(2), row(2, replicate=1)
    assert once["prompts"] == again["prompts"] and once["score"] != again["score"] and once["kl"] != again["kl"]
    once, again = row(0), row(0, replicate=1)
    assert once["score"] == again["score"] and once["human_log_perplexity"] == again["human_log_perplexity"]


def test_a_run_is_tested_on_as_many_prompts_as_it_says_the_first_ones(world):
    few = {"runs.few": {"algorithm": "ppo", "test_prompts": 3, "updates": 1}}
    params = given(world, "few", **few)
    rows = tables.read_table(experiment.run_seed(params, 1, {"learning_rate": 3e-3}) / "per_seed.csv")
    assert {r["split"]: r["prompts"] for r in rows} == {"test": 3, "half": 8}
    five = {**few, "evaluation.test_prompts": 5}
    assert [given(world, name, **five).evaluation.test_prompts for name in ("few", "ppo_kl_0")] == [3, 5]
    said = r"test_prompts.*: expected at most task.test_prompts \(8\), found 9"
    for changes in ({"runs.few": {**few["runs.few"], "test_prompts": 9}}, {"evaluation.test_prompts": 9}):
        with pytest.raises(ConfigError, match=said):
            given(world, "ppo_kl_0", **changes)


def test_diversity_is_of_as_many_words_as_the_settings_say(world):
    """Of two words, there is one pair, which occurs once; the sampled tokens are the same ones."""

    def row(words: int) -> dict:
        params = given(
            world, "some", **{"runs.some": {"algorithm": "ppo", "updates": 0}, "evaluation.diversity_words": words}
        )
        return tables.read_table(experiment.run_seed(params, 1, {"learning_rate": 3e-3}) / "per_seed.csv")[0]

    two, all_of_them = row(2), row(10**6)
    assert two["unique_2"] == two["distinct_2"] == 1 < all_of_them["unique_2"]
    assert two["score"] == all_of_them["score"] and two["shared_5gram"] == all_of_them["shared_5gram"]


def test_results_are_complete_and_the_policy_loads_in_transformers(world):
    from transformers import pipeline

    params = given(world, "nlpo_target_low")
    out = world / "runs" / "nlpo_target_low"
    experiment.run_condition(params, out)
    rows = tables.read_table(out / "per_seed.csv")
    assert [(r["split"], r["decoding"]) for r in rows] == [
        *(("test", d) for d in ("plain", "top_p", "own")),
        ("half", "plain"),
        ("half", "own"),
    ]
    own, top_p = rows[2], rows[1]
    assert "mask_top_p=0.9" in own["decoding_record"] and "mask" not in top_p["decoding_record"]
    for row in rows:
        assert 0 <= row["score"] <= 1 and row["kl"] >= -1e-6 and row["generation_log_perplexity"] > 0
        assert row["training_score"] == row["score"] and 0 <= row["judge_2"] <= 1 and row["diverged"] in (0, 1)
    assert json.loads((out / "config.json").read_text())["learner"]["kl_target"] == 0.2
    assert len(tables.read_table(out / "curves.csv")) == 12
    samples = [json.loads(line) for line in (out / "samples.jsonl").read_text().splitlines()]
    assert samples and set(samples[0]) == {"condition", "seed", "example_id", "prompt", "response", "score"}
    episode = json.loads((out / "episode.json").read_text())
    assert len(episode["tokens"]) == len(episode["rewards"]) == len(episode["kl"]) > 0
    folder = out / "policy_seed1"
    assert {p.name for p in folder.iterdir()} >= {
        "model.safetensors",
        "tokenizer.json",
        "generation_config.json",
        "README.md",
    }
    assert not [p for p in folder.rglob("*") if p.suffix in (".bin", ".pt", ".pkl")]
    text = pipeline("text-generation", str(folder))(samples[0]["prompt"], max_new_tokens=5)[0]["generated_text"]
    assert text.startswith(samples[0]["prompt"].split()[0])


def test_zero_updates_is_the_base_model(world):
    rows = tables.read_table(run(world, "zero_shot") / "per_seed.csv")
    assert all(abs(row["kl"]) < 1e-6 for row in rows)
    plain, truncated = rows[0], rows[1]
    assert abs(plain["kl_deployed"]) < 1e-6 < truncated["kl_deployed"]  # a truncated decoding is another distribution


def test_a_finished_seed_is_reused(world, trainings):
    first = run(world)
    before = {p.name: p.read_bytes() for p in first.iterdir() if p.is_file()}
    assert run(world) == first and len(trainings) == 1
    assert before == {p.name: p.read_bytes() for p in first.iterdir() if p.is_file()}


def change_value(folder):
    write_params(folder, learner={**SMALL["learner"], "clip": 0.3})


def change_data(folder):
    path = folder / "data" / "draw1" / "prompts_train.jsonl"
    path.write_text(path.read_text().replace("the", "a", 1))


def change_weights(part):
    def change(folder):
        from safetensors.torch import load_file, save_file

        path = folder / "models" / "draw1" / part / "model.safetensors"
        weights = load_file(path)
        name = max(weights, key=lambda n: weights[n].numel())
        weights[name] = weights[name] * 1.01
        save_file(weights, path, metadata={"format": "pt"})

    return change


@pytest.mark.parametrize(
    "change",
    [change_value, change_data, change_weights("policy"), change_weights("reward"), change_weights("evaluator")],
)
def test_whatever_decides_a_result_makes_it_run_again(world, trainings, change):
    first = run(world)
    change(world)
    assert run(world) != first and len(trainings) == 2


def test_changed_code_makes_it_run_again_and_a_comment_or_unused_code_does_not(world, trainings, monkeypatch):
    first, code = run(world), copied(world / "code")
    losses = code / "rlnlp" / "losses.py"
    losses.write_text(losses.read_text() + "\n# a comment\n")
    change(code / "rlnlp" / "learners" / "sac.py", "update")
    monkeypatch.setattr(identity, "here", lambda: identity.Code(code))
    assert run(world) == first and len(trainings) == 1
    change(losses, "ppo_clip")
    assert run(world) != first and len(trainings) == 2


@pytest.mark.parametrize("condition", ["ppo_kl_default", "numbers_ppo"])
def test_all_code_that_runs_is_in_the_fingerprint(world, condition):
    params = given(world, condition)
    tuned = experiment.chosen(params)
    with recorded() as called:
        experiment.run_seed(params, 1, tuned)
    used, known = definitions(called), reached(*experiment.code_of(params.run, getattr(params.task, "name", "")))
    # what a run is given is hashed as values, and brought files by content: the class that holds them is not looked at
    given_as = tuple(f"workbook.runs.{module}:" for module in ("conditions", "settings", "brought"))
    used = {each for each in used if not each.startswith(given_as)}
    assert len(used) > 100 and used <= known, sorted(used - known)


@pytest.mark.parametrize(
    "stage, notebook, parameters",
    [
        ("data", "data", {"draw": 1}),
        ("models", "models", {"draw": 1}),
        ("variants", "variants", {"draw": 1}),
        ("worlds", "worlds", {"draw": 1}),
        ("runs/ppo_kl_default", "run", {"condition": "ppo_kl_default"}),
        ("runs/numbers_ppo", "run", {"condition": "numbers_ppo"}),
    ],
)
def test_all_code_that_a_stage_runs_is_in_what_it_depends_on(world, monkeypatch, stage, notebook, parameters):
    monkeypatch.chdir(world)
    assert conditions.main(["params.yaml", "build"]) == 0
    used = definitions(run_notebook(REPOSITORY / "notebooks" / f"{notebook}.ipynb", **parameters))
    known = reached(*depends.stages(depends.read(world / "params.yaml"), identity.here())[stage])
    assert len(used) > 10 and used <= known, sorted(used - known)


def test_a_finished_seed_whose_files_changed_is_made_again(world, trainings):
    final = run(world)
    was = (final / "per_seed.csv").read_bytes()
    (final / "per_seed.csv").write_bytes(was.replace(b"ppo", b"pqo", 1))
    with pytest.warns(UserWarning, match="not as they were when it was finished"):
        again = run(world)
    assert (again / "per_seed.csv").read_bytes() == was and len(trainings) == 2
    run(world)
    assert len(trainings) == 2


def test_what_was_carried_to_another_machine_is_not_trained_again(world, trainings, tmp_path):
    """The tables are the same bytes; the policy's weights stay behind, and what follows a run is trained with it."""
    here, there = world / ".scratch" / "tests", tmp_path / "there"
    first, followed = "ppo_kl_default", "supervised"
    for name in (first, followed):
        run(world, name)
    whole = checks.load(world / "params.yaml")
    assert whole.scratch == here and {followed} == {entry.get("start") for entry in whole.all_runs.values()} - {None}
    out = carry.pack(whole)
    assert out.stat().st_size < 50_000 and carry.pack(whole) is None
    assert carry.unpack(world, there) == 1 and carry.unpack(world, there) == 0
    params, other = given(world, first), tmp_path / "out"
    experiment.run_condition(params.model_copy(update={"seeds": (1,)}), tmp_path / "whole")
    shutil.rmtree(here)
    shutil.move(there, here)
    done = len(trainings)
    experiment.run_condition(params.model_copy(update={"seeds": (1,)}), other)
    assert len(trainings) == done
    for name in ("per_seed.csv", "samples.jsonl", "episode.json", "config.json"):
        assert (other / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    kept, full = (tables.read_table(folder / "curves.csv") for folder in (other, tmp_path / "whole"))
    assert tidy.thinned(kept) == tidy.thinned(full) != full and list(kept[0]) == list(full[0])
    assert [path.name for path in (other / "policy_seed1").iterdir()] == ["README.md"]
    run(world, followed)
    assert len(trainings) == done + 1


def test_a_seed_finished_before_edits_that_changed_no_digit_counts(world, trainings, tmp_path, monkeypatch):
    """A scheduler makes it so before the run starts; the code is known by another name, nothing else may differ."""

    def edited(name: str) -> None:
        class Edited(identity.Code):
            def identity(self, roots, without=()):
                return name + super().identity(roots, without)

        monkeypatch.setattr(identity, "here", lambda: Edited(REPOSITORY))

    monkeypatch.setattr(rekeyed, "RECORD", tmp_path / "rekeyed.json")
    stage, condition = "runs@ppo_kl_default", "ppo_kl_default"
    first, params = run(world), given(world, condition)
    was = identity.here().identity(*experiment.code_of(params.run, params.task.name))
    rekeyed.add(tmp_path, {"code": {"seed": [[was, "b" + was]]}})
    rekeyed.add(tmp_path, {"code": {"seed": [["b" + was, "c" + was]]}})
    edited("d")
    assert conditions.main([str(world / "params.yaml"), str(world / "build")]) == 0
    assert carry.recount(world, condition) == 0  # no record is of this code
    edited("c")
    kept = (first / "per_seed.csv").read_bytes()
    (first / "per_seed.csv").write_bytes(kept[:-2])
    assert carry.recount(world, condition) == 0  # damaged
    (first / "per_seed.csv").write_bytes(kept)
    assert Scheduler(world, params.scratch, {stage: set()}, {stage}, 1).next_stage() == stage
    assert carry.recount(world, condition) == 0  # it counts already
    real, places = experiment.inputs, set()
    monkeypatch.setattr(experiment, "inputs", lambda *a: places.add(Path.cwd()) or real(*a))
    assert carry.recount(world, condition) == 0 and places == {world}  # a brought base model's place is relative to it
    monkeypatch.setattr(experiment, "inputs", real)
    found = run(world)
    assert found != first and found.resolve() == first and len(trainings) == 1
    out = carry.pack(checks.load(world / "params.yaml"))
    assert [name for name in carry.names(out) if name.endswith("per_seed.csv")] == [
        str((first / "per_seed.csv").relative_to(params.scratch))
    ]
    write_params(world, learner={**SMALL["learner"], "gamma": 0.5})
    assert conditions.main([str(world / "params.yaml"), str(world / "build")]) == 0
    assert carry.recount(world, condition) == 0  # other settings
    assert run(world) != found and len(trainings) == 2


def test_a_checkpoint_of_another_seed_is_refused(world, monkeypatch):
    monkeypatch.setenv(states.EVERY_UPDATE, "1")
    with monkeypatch.context() as patch:  # checkpoints that stay
        patch.setattr(experiment, "forget", lambda folder: None)
        folders = {seed: run(world, seed=seed).parent for seed in (1, 2)}
    shutil.rmtree(folders[2] / "final")
    shutil.rmtree(folders[2] / "checkpoint")
    shutil.copytree(folders[1] / "checkpoint", folders[2] / "checkpoint")
    with pytest.raises(TrainingError, match="checkpoint is of another run or seed"):
        run(world, seed=2)


def test_a_new_seed_trains_only_itself(world, trainings):
    out = world / "runs" / "ppo_kl_0"
    experiment.run_condition(given(world, "ppo_kl_0"), out)
    old = (out / "per_seed.csv").read_text()
    write_params(world, seeds=[1, 2])
    experiment.run_condition(given(world, "ppo_kl_0"), out)
    assert trainings == ["ppo_kl_0 seed 1", "ppo_kl_0 seed 2"]
    assert (out / "per_seed.csv").read_text().startswith(old.rstrip("\n"))


def test_of_a_finished_seed_no_checkpoint_is_left(world, monkeypatch):
    monkeypatch.setenv(states.EVERY_UPDATE, "1")
    kept = []
    monkeypatch.setattr(states, "sync", lambda folder: kept.append(len(list(folder.glob("state-*")))))
    folder = run(world).parent
    assert len(kept) == 12 and max(kept) == 2  # the newest, and for a moment the one before it
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["final"]
    (folder / "checkpoint").mkdir()  # a kill just before it would have been removed
    run(world)
    assert not (folder / "checkpoint").exists()


def test_policies_are_kept_where_the_settings_say_so_or_others_start_there(world, trainings):
    write_params(world, keep_policies=False)
    out = world / "runs" / "ppo_kl_0"
    experiment.run_condition(given(world, "ppo_kl_0"), out)
    assert not list(world.glob("**/runs/ppo_kl_0/**/model.safetensors")) and (out / "per_seed.csv").is_file()
    assert given(world, "supervised").keep_policies  # others continue it
    write_params(world)
    assert "keep_policies" not in given(world, "ppo_kl_0").model_dump()  # nothing that is there depends on it
    tables = (out / "per_seed.csv").read_bytes()
    experiment.run_condition(given(world, "ppo_kl_0"), out)  # asked for now: made again
    assert (out / "policy_seed1" / "model.safetensors").is_file() and (out / "per_seed.csv").read_bytes() == tables
    assert trainings == ["ppo_kl_0 seed 1"] * 2


def run_in(folder: Path, condition: str, killed_at: int = 0) -> None:
    """A run's stage, in a process of its own, with a checkpoint at every fifth update, which kills itself as soon as
    it has done ``killed_at`` of them."""
    os.chdir(folder)
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    locks.die_with_parent()
    p = conditions.condition(checks.load("params.yaml"), condition)
    train.setup(p)
    learner, done = algorithms.module(p.run.algorithm), []
    real = learner.train

    def updates(state, *given):
        for metrics in real(state, *given):
            done[:] = [state.update]
            if killed_at and state.update >= killed_at:
                os.kill(os.getpid(), signal.SIGKILL)
            yield metrics

    learner.train = updates
    states.Pace.due = lambda self, end=False: done[0] % 5 == 0
    experiment.run_condition(p, p.folder / "runs" / condition)


@pytest.fixture
def processes():
    """Processes forked from one that has done the imports: each starts in a moment."""
    method = multiprocessing.get_context("forkserver")
    method.set_forkserver_preload([__name__])
    return method


@pytest.mark.slow
@pytest.mark.parametrize("condition", ["nlpo_target_low"])
def test_killed_at_any_moment_the_tables_are_the_same(world, condition, processes):
    """SIGKILL four times at chosen updates, with a checkpoint just before or four updates ago, then let it finish;
    compare with an uninterrupted run."""
    write_params(world, learner={**SMALL["learner"], "updates": 25})
    whole = world.parent / "whole"
    shutil.copytree(world, whole)

    def start(folder: Path, killed_at: int = 0) -> multiprocessing.Process:
        process = processes.Process(target=run_in, args=(folder, condition, killed_at))
        process.start()
        return process

    uninterrupted = start(whole)
    scratch = world / ".scratch" / "tests" / "runs" / condition
    for update, state in ((3, 0), (9, 1), (11, 2), (25, 4)):
        process = start(world, update)
        process.join(DEADLINE_S)
        assert process.exitcode == -signal.SIGKILL and not (world / "runs" / condition).exists()
        assert [int(re.search(r"state-0*(\d+)", p.name)[1]) for p in scratch.glob("*/checkpoint/state-*")] == [state][
            : state > 0
        ]
    last = start(world)
    for process in (last, uninterrupted):
        process.join(DEADLINE_S)
        assert process.exitcode == 0
    for name in ("per_seed.csv", "curves.csv", "samples.jsonl", "episode.json"):
        assert (world / "runs" / condition / name).read_bytes() == (whole / "runs" / condition / name).read_bytes(), (
            name
        )


def test_bring_your_own_model_reward_and_prompts(world, monkeypatch):
    """Three settings: a model folder, a reward function and a CSV of prompts; nothing of ours is used for them."""
    from tests.tiny import gpt2

    monkeypatch.chdir(world)  # the pipeline's stages run in the profile's folder
    tokenizer = train_tokenizer(kind="word", words=["hello", "world", "good", "bad", "."])
    model = gpt2(len(tokenizer))
    model.generation_config.eos_token_id = model.config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = model.config.pad_token_id = tokenizer.pad_token_id
    training.save(world / "mine", model, tokenizer, "# mine")
    (world / "mine.py").write_text(
        "def goodness(prompts, responses, references, meta):\n    return [float(r.count('good')) for r in responses]\n"
    )
    (world / "mine.csv").write_text(
        "prompt,reference\n"
        + "".join(f"hello world {'good ' * (1 + i % 4)}{'bad ' * (i // 4)},good .\n" for i in range(40))
    )
    write_params(
        world,
        bring={"model": "mine", "reward": "mine.py:goodness", "prompts": "mine.csv"},
        draws=[1],
        **WITHOUT_VARIANTS,
    )
    for name in ("data", "models", "variants"):
        shutil.rmtree(world / name)
    build(world)
    assert "source.json" in {p.name for p in (world / "models" / "draw1" / "policy").iterdir()}
    final = experiment.run_seed(given(world, "ppo_kl_0"), 1, {"learning_rate": 1e-2})
    samples = json.loads((final / "samples.json").read_text())
    assert all(s["prompt"].startswith("hello world") for s in samples)
    assert all(s["score"] == s["response"].count("good") for s in samples)
    curve = [row["objective/score"] for row in tables.read_table(final / "curves.csv")]
    assert max(curve[-3:]) > curve[0]
    # learns from the references that were brought: the task has no others
    experiment.run_seed(given(world, "supervised"), 1, {})


def test_a_reward_that_turns_nan_names_update_examples_and_checkpoint(world, monkeypatch):
    monkeypatch.setenv(states.EVERY_UPDATE, "1")
    (world / "bad.py").write_text(
        "calls = []\ndef nan_later(prompts, responses, references, meta):\n    calls.append(1)\n"
        "    return [float('nan') if len(calls) > 10 else 1.0 for _ in responses]\n"
    )
    write_params(world, bring={"reward": "bad.py:nan_later"}, **WITHOUT_VARIANTS)
    params = checks.load(world / "params.yaml")
    for draw in params.draws:
        base.build(params, draw, world / "data" / f"draw{draw}", world / "models" / f"draw{draw}", params.scratch)
    with pytest.raises(TrainingError) as error:
        run(world)
    message = str(error.value)
    assert re.search(r"ppo_kl_default seed 1: update 8: .*nan_later.*draw1/prompts_train/\d+", message, re.S), message
    assert re.search(r"Last good checkpoint: update 7, in .*checkpoint", message)


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lambda w: shutil.rmtree(w / "models" / "draw1"), r"models/draw1: no such folder; run the stage models@1"),
        (
            lambda w: shutil.rmtree(w / "variants" / "draw1"),
            r"variants/draw1: no such folder; run the stage variants@1",
        ),
        (lambda w: (w / "data/draw1/prompts_train.jsonl").write_text(""), r"prompts_train"),
        (lambda w: (w / "tune/ppo.json").unlink(), r"tune/ppo.json: no such file; run the stage tune@ppo"),
        (
            lambda w: shutil.rmtree(w / "worlds" / "draw1"),
            r"worlds/draw1/numbers: no such folder; run the stage worlds@1",
        ),
    ],
)
def test_what_is_missing_is_said_before_training(world, trainings, spoil, message):
    spoil(world)
    with pytest.raises((FileNotFoundError, ValueError), match=message):
        run(world, "numbers_ppo" if "worlds" in message else "ppo_kl_default")
    assert not trainings


def test_half_the_budget_is_the_policy_of_a_run_that_stops_there(world):
    """Its row, on validation prompts, is that of a run with half the updates evaluated there at once; the curve's facts
    too."""
    whole = tables.read_table(run(world) / "per_seed.csv")
    half = next(r for r in whole if r["split"] == "half")
    write_params(world, learner={**SMALL["learner"], "updates": 6})
    params = given(world, "ppo_kl_default")
    draw = load_draw(params, 1, params.run)
    settings = params.config(learning_rate=3e-3)
    six = train.train("ppo", settings, draw, 1, world / "elsewhere", "six", "key")
    state, curve = train.ended(six)
    plain, *_ = measure.decodings("ppo", settings, params.evaluation)
    row, _, _ = measure.evaluate_decoding(params, draw, state, 1, "validation", plain)
    for name in ("score", "kl", "generation_log_perplexity", "judge_2", "distinct_2"):
        assert row[name] == pytest.approx(half[name], rel=1e-5), name
    assert training_facts(curve, settings, 6)["wobble"] == pytest.approx(half["wobble"], rel=1e-5)
    assert next(r for r in whole if r["split"] == "test")["wobble"] != half["wobble"]


def test_a_run_continues_the_policy_of_another_and_follows_it(world, trainings):
    params = given(world, "sup_ppo")
    with pytest.raises(
        FileNotFoundError, match=r"runs/supervised/policy_seed1: no such folder; run the stage runs@supervised"
    ):
        run(world, "sup_ppo")
    experiment.run_condition(given(world, "supervised"), world / "runs" / "supervised")
    first = run(world, "sup_ppo")
    from transformers import AutoModelForCausalLM

    start = AutoModelForCausalLM.from_pretrained(world / "runs/supervised/policy_seed1")
    draw = load_draw(params, 1, params.run)
    base = load_draw(other := given(world, "ppo_kl_0"), 1, other.run).policy
    pairs = [(a, b, c) for (a, b, c) in zip(start.parameters(), draw.policy.parameters(), base.parameters())]
    assert all(a.equal(b) for a, b, _ in pairs) and not all(b.equal(c) for _, b, c in pairs)
    assert run(world, "sup_ppo") == first
    readme = world / "runs/supervised/policy_seed1/README.md"
    readme.write_text(readme.read_text() + "another policy\n")
    assert run(world, "sup_ppo") != first
    assert trainings == ["supervised seed 1", "sup_ppo seed 1", "sup_ppo seed 1"]


def test_every_kind_of_run_works_and_says_what_it_is(world):
    """The smoke profile has one of each; a run trained on fewer labels is still measured by the full reward."""
    experiment.run_condition(given(world, "supervised"), world / "runs" / "supervised")
    rows = {}
    for condition in ("bandit", "dropout_update_010", "mismatch_top_p", "filtered_10", "best_of_n_10", "vocabulary_50"):
        rows[condition] = tables.read_table(run(world, condition) / "per_seed.csv")
        assert {"test", "half"} == {r["split"] for r in rows[condition]}, condition
    assert rows["filtered_10"][0]["training_score"] != rows["filtered_10"][0]["score"]
    assert rows["dropout_update_010"][0]["first_ratio_error"] > 1e-3 > rows["bandit"][0]["first_ratio_error"]
    own = next(r for r in rows["best_of_n_10"] if r["decoding"] == "own")
    assert own["training_score"] > rows["best_of_n_10"][0]["training_score"] and "best_of=" in own["decoding_record"]


def test_every_other_learner_is_measured_as_it_samples(world):
    own = {
        "mask_typical": "rule=typical, rule_value=0.2, rule_of=policy",
        "mask_typical_delayed": "rule=typical, rule_value=0.2, rule_of=mask_model",
        "dqn_best": "rule=top_p, rule_value=0.9, rule_of=mask_model",
        "dqn_mlp": "top_k=1",
        "a2c": "",
        "trpo": "",
        "rloo": "",
        "grpo": "",
        "sac": "",
    }
    write_params(world, learner={"updates": 2, "episodes_per_update": 8})
    for condition, said in own.items():
        final = run(world, condition)
        rows = {(r["split"], r["decoding"]): r for r in tables.read_table(final / "per_seed.csv")}
        plain, mine = rows["test", "plain"], rows["test", "own"]
        assert said in mine["decoding_record"] and (said in plain["decoding_record"]) == (not said), condition
        assert ("top_k=1" in mine["decoding_record"]) == condition.startswith("dqn"), condition
        assert (mine["kept_mass"] < 1 == plain["kept_mass"]) == bool(said), condition
        steps = {"a2c": 1, "trpo": 1, "rloo": 1}.get(condition, 2 if condition[:3] in ("dqn", "sac") else 4)
        episodes = 16 if condition == "sac" else 8  # its own number; the others have the section's
        tokens = [r["episodes/length"] * episodes for r in tables.read_table(final / "curves.csv")]
        if not condition.startswith("dqn"):  # whose replay is not warm at once
            assert mine["tokens_per_gradient_step"] == pytest.approx(sum(tokens) / len(tokens) / steps), condition
        assert (final / "episode.json").is_file(), condition


# worlds --------------------------------------------------------------------------------------------------------------
def ascending(text: str) -> float:
    """The share of a text's neighbouring numbers that ascend."""
    numbers = [int(word) for word in text.split()]
    return sum(b > a for a, b in zip(numbers, numbers[1:])) / 19


def test_a_run_in_a_world_starts_from_its_model_and_is_measured_by_its_reward(world):
    shutil.rmtree(world / "tune")  # nothing is searched there
    more = {"runs.numbers_prefix": {"algorithm": "ppo", "world": "numbers", "reward": "prefix_token"}}
    for condition in ("numbers_ppo", "numbers_prefix"):
        experiment.run_condition(given(world, condition, **more), world / "runs" / condition)
    rows, other = (tables.read_table(world / "runs" / c / "per_seed.csv") for c in ("numbers_ppo", "numbers_prefix"))
    assert {(r["split"], r["decoding"]) for r in rows} == {
        ("test", "plain"),
        ("test", "top_p"),
        ("test", "own"),
        ("half", "plain"),
        ("half", "own"),
    }
    samples = [json.loads(line) for line in (world / "runs/numbers_ppo/samples.jsonl").read_text().splitlines()]
    assert samples and all(s["score"] == pytest.approx(ascending(s["response"])) and s["prompt"] == "" for s in samples)
    assert all(len(s["response"].split()) <= 20 for s in samples) and all(
        r["length"] == 20 for r in rows
    )  # padding is not shown
    for row in rows:
        assert row["judge"] is row["judge_2"] is row["score_response"] is row["human_log_perplexity"] is None
        assert row["training_score"] == row["score"]
    plain, prefix = rows[0], other[0]
    assert plain["tokens_per_gradient_step"] == 8 * 20 / 4  # 8 episodes, 2 epochs of 2 minibatches
    curve = tables.read_table(world / "runs/numbers_ppo/curves.csv")
    assert plain["rollout_score"] == pytest.approx(sum(r["objective/score"] for r in curve[-3:]) / 3)
    assert prefix["training_score"] != prefix["score"]  # measured by the world's default reward all the same
    samples = [json.loads(line) for line in (world / "runs/numbers_prefix/samples.jsonl").read_text().splitlines()]
    assert all(s["score"] == pytest.approx(ascending(s["response"])) for s in samples)
    zero = tables.read_table(run(world, "numbers_zero_shot") / "per_seed.csv")[0]
    assert abs(zero["kl"]) < 1e-6 and zero["generation_log_perplexity"] > 0 and zero["tokens_per_gradient_step"] is None
    draw = load_draw(params := given(world, "numbers_ppo"), 1, params.run)
    assert draw.evaluator is None  # the policy as it begins
    with pytest.raises(ValueError, match="start"):
        checks.load(world / "params.yaml", **{"continued.more": {"algorithm": "ppo", "start": "numbers_ppo"}})


def test_a_reward_in_a_world_is_paid_as_its_name_says(world):
    params = given(world, "numbers_ppo")
    from tests.tiny import as_rollout

    numbers = (3, 7, 5, 9)
    for reward, paid in {
        "reward": [0, 1 / 19, 0, 1 / 19],
        "pairs_end": [2 / 19],
        "prefix": [2 / 10],
        "prefix_token": None,
    }.items():
        draw = load_draw(params, 1, params.run.replace(reward=reward))
        ids = draw.tokenizer.convert_tokens_to_ids([str(n) for n in numbers])
        scores, _ = draw.score(as_rollout([tuple(ids)], torch.tensor([0] * 5), 4))
        if paid:
            assert scores.flatten().tolist() == pytest.approx(paid), reward
        else:
            assert scores.shape == (1, 4) and scores.sum().item() == pytest.approx(2 / 10)


def world_weights(folder):
    from safetensors.torch import load_file, save_file

    path = folder / "worlds/draw1/numbers/model.safetensors"
    save_file({k: v * 1.01 for k, v in load_file(path).items()}, path, metadata={"format": "pt"})


def world_settings(folder):
    write_params(
        folder,
        worlds={
            "numbers": {
                "texts": 100,
                "steps": 30,
                "sampling": {"max_new_tokens": 20, "min_new_tokens": 20},
                "learner": {"gamma": 0.5},
            }
        },
    )


@pytest.mark.parametrize(
    "change, reviews, numbers",
    [
        (world_weights, False, True),
        (world_settings, False, True),
        (change_data, True, False),
        (change_weights("policy"), True, False),
        (lambda folder: write_params(folder, reward_model={"width": 16, "positive_label": 0}), True, False),
        (lambda folder: write_params(folder, evaluation={"samples": 3}), True, True),
        (lambda folder: write_params(folder, task={**SMALL["task"], "test_prompts": 7}), False, True),
        (lambda folder: write_params(folder, task={**SMALL["task"], "judge_reviews": 11}), False, False),
    ],
)
def test_a_fingerprint_holds_what_a_run_depends_on_and_nothing_else(world, change, reviews, numbers):
    """Of reviews and of numbers. How many prompts of reviews there are, a run sees in the files of its draw."""

    def keys() -> list[dict[str, str]]:
        both = [given(world, condition) for condition in ("ppo_kl_default", "numbers_ppo")]
        return [experiment.inputs(params, 1, params.run, params.learner) for params in both]

    before = keys()
    change(world)
    assert [a != b for a, b in zip(before, keys())] == [reviews, numbers]


def test_the_code_of_worlds_counts_in_worlds_only():
    def names(**run) -> set[str]:
        return reached(*experiment.code_of(Run(**run), "" if run.get("world") else "generated_reviews"))

    inside, outside = names(algorithm="ppo", world="numbers"), names(algorithm="ppo")
    judges = reached([*named.roots("grammar", named.LOADED), *named.roots("characters", named.LOADED)])
    assert "workbook.runs.draw:load_world" in inside - outside and outside - inside <= judges  # a world has none
    dqn = names(algorithm="dqn")
    assert "rlnlp.offpolicy.td:targets" in dqn - outside and "rlnlp.learners.dqn:train" in dqn - outside


def test_the_vocabulary_is_the_most_frequent_tokens_and_eos(world):
    params = given(world, "vocabulary_50")
    draw = load_draw(params, 1, params.run)
    few, more = (frequent_tokens(draw.data, draw.tokenizer, n) for n in (50, 60))
    assert len(set(few)) == 50 and set(few) < set(more) and draw.tokenizer.eos_token_id in few
    assert draw.tokenizer.convert_tokens_to_ids(".") in few  # every sentence ends in one
    final = run(world, "vocabulary_50")
    samples = json.loads((final / "samples.json").read_text())
    used = {token for s in samples for token in draw.tokenizer(s["response"])["input_ids"]}
    assert used and used <= set(few)
    with pytest.raises(ValueError, match="vocabulary: expected at most"):
        frequent_tokens(draw.data, draw.tokenizer, 10_000)


def test_what_a_curve_says():
    config_ = checks.load(REPOSITORY / "params.yaml").learner_config("ppo_kl_default")

    def curve(scores):
        return [{"objective/score": s, "objective/kl": 0.1} for s in scores]

    rising, falling = [0.5, 0.52, 0.6, 0.62, 0.7], [0.5, 0.6, 0.61, 0.2, 0.18, 0.17]
    good, bad = (training_facts(curve(c), config_, len(c)) for c in (rising, falling))
    assert good["diverged"] == 0 and good["drop"] == 0 and bad["drop"] == pytest.approx(0.57 - 0.55 / 3, abs=1e-6)
    assert good["wobble"] == pytest.approx(0.03 / 2**0.5)  # its changes are .02, .08, .02, .08
    assert training_facts(curve(rising), config_, 9)["diverged"] == 1  # ended before its updates
    steady = training_facts(curve([0.5] * 4 + [0.2] * 12), config_, 16)
    assert steady["diverged"] == 1  # far below where it began
    noisy = training_facts(curve([0.6, 0.5, 0.7, 0.5, 0.7, 0.4]), config_, 6)
    assert noisy["diverged"] == 0 < noisy["drop"]  # it ends lower, by less than 2 wobbles
    aimed = config_.replace(kl_target=0.005)  # the last KL, 0.1, is twenty times the target
    assert training_facts(curve(rising), aimed, 5)["diverged"] == 1
    assert good["rollout_score"] == pytest.approx((0.6 + 0.62 + 0.7) / 3)
    assert training_facts([], config_, 0) | {"diverged": 0.0} == training_facts([], config_, 0)


def test_tune_tries_the_same_grid_and_records_its_rule(world):
    write_params(world, tune={"learning_rates": [1e-3, 1e-2], "kl_coefs": [0.05, 0.2], "updates": 2, "draw": 1})
    params, chosen = checks.load(world / "params.yaml"), {}
    for algorithm in ("ppo", "nlpo", "reinforce"):
        chosen[algorithm] = tune.search(conditions.search(params, algorithm), world / "tune" / f"{algorithm}.json")
        record = json.loads((world / "tune" / f"{algorithm}.json").read_text())
        assert record == chosen[algorithm] and record["rule"] == tune.RULE
        eligible = [c for c in record["candidates"] if c["eligible"]]
        pool = eligible or record["candidates"]
        best = (
            max(pool, key=lambda c: c["score"]) if eligible else min(pool, key=lambda c: c["generation_log_perplexity"])
        )
        assert (record["learning_rate"], record["kl_coef"]) == (best["learning_rate"], best["kl_coef"])
    grids = [[(c["learning_rate"], c["kl_coef"]) for c in chosen[a]["candidates"]] for a in chosen]
    assert grids[0] == grids[1] == grids[2] == [(1e-3, 0.05), (1e-3, 0.2), (1e-2, 0.05), (1e-2, 0.2)]


def test_setup_asks_for_determinism_and_the_thread_count():
    params = checks.load(REPOSITORY / "params.yaml")
    threads = torch.get_num_threads()
    train.setup(params)
    assert torch.are_deterministic_algorithms_enabled() and torch.get_num_threads() == params.threads
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)


def test_a_run_that_says_so_may_end_at_a_number_that_is_not_finite_and_is_measured_as_it_was(world, monkeypatch):
    """Such an end is what the dropout ablation counts; before half the updates both splits see the same policy."""
    from workbook.arms import dropout

    real = dropout.update
    monkeypatch.setattr(
        dropout,
        "update",
        lambda state, seen, settings: real(state, seen, settings) if state.update < 2 else explode(state),
    )

    def explode(state):
        raise Diverged(f"update {state.update + 1}: the loss is nan")

    rows = tables.read_table(run(world, "dropout_update_010") / "per_seed.csv")
    assert {r["split"] for r in rows} == {"test", "half"} and all(r["diverged"] == 1 for r in rows)
    assert all(0 <= r["score"] <= 1 for r in rows)


def test_a_policy_that_is_not_finite_has_rows_without_numbers(world):
    params = given(world, "ppo_kl_default")
    draw = load_draw(params, 1, params.run)
    settings = params.config()
    state = algorithms.module("ppo").init(draw.policy, settings, 1)
    with torch.no_grad():
        next(state.policy.parameters())[0, 0] = float("nan")
    rows, samples = measure.evaluate_state(
        params, draw, state, 1, "test", measure.decodings("ppo", settings, params.evaluation)
    )
    assert [r["decoding"] for r in rows] == ["plain", "top_p", "own"] and not samples
    assert all(r["score"] is None for r in rows)


def test_a_seed_that_fails_does_not_keep_the_others_from_being_trained(world, trainings, monkeypatch):
    write_params(world, seeds=[1, 2])
    params, real = given(world, "ppo_kl_0"), experiment.updates_of

    def fail(params, seed, *given):
        if seed == 1:
            raise TrainingError(f"{params.condition} seed 1: update 3: the loss is nan")
        return real(params, seed, *given)

    monkeypatch.setattr(experiment, "updates_of", fail)
    with pytest.raises(TrainingError, match="1 of 2 seeds failed: ppo_kl_0 seed 1: update 3"):
        experiment.run_condition(params, world / "runs" / "ppo_kl_0")
    assert trainings == ["ppo_kl_0 seed 2"] and not (world / "runs" / "ppo_kl_0").exists()
