"""The benchmark's arms and runs, on made-up tasks and models of a few thousand weights."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch

from rlnlp import pretrained
from rlnlp.learners.common import TrainingError
from rlnlp.rollout import sample, sampling_from
from rlnlp.samplers import top_p
from rlnlp.types import generator
from tests import tiny
from tests.grue_made import VALUES, made_up, read, rows
from tests.test_grue_training import MIX, TEXTS, WORDS, same, weights
from workbook.grue import beams, run, tasks, warm_start
from workbook.grue import settings as grue
from workbook.grue.arms import ARMS, arm, shuffled
from workbook.grue.encoding import encode
from workbook.grue.evaluate import evaluate, said, spread
from workbook.grue.example import Decode, Example
from workbook.grue.run import Bench, Read, collect, inputs, part
from workbook.grue.scoring import families, ready
from workbook.runs import algorithms
from workbook.scores.family import ScoreError
from workbook.store import states
from workbook.store.fingerprint import digest
from workbook.store.tables import read_table


def texts(draw, count):
    return TEXTS[:count]


def mix(draw, count):
    return MIX[:count]


def bench(work, **changes) -> Bench:
    words = sorted({*WORDS, "tell", ":"})
    return Bench(grue.Grue.model_validate({**VALUES, **changes}), work, words, Read(texts, mix))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Work folders in which the raw and the supervised weights of seed 0 are made, for both kinds of model."""
    folder = tmp_path_factory.mktemp("grue")
    for causal in (False, True):
        part(bench(folder), made_up(causal), arm("supervised"), 0)
    return folder


@pytest.fixture
def work(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "work")
    return tmp_path / "work"


def policy_of(folder):
    return weights(pretrained.load(folder / "policy")[0])


def files_of(folder):
    return {p.relative_to(folder): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# ------------------------------------------------------------------------------------------ arms
def test_every_arm_is_a_record_that_starts_from_one_that_is_there():
    assert [*ARMS] == [
        "zero_shot",
        "ppo",
        "nlpo",
        "supervised",
        "sup_ppo",
        "sup_nlpo",
        "sup_more",
        "sup_shuffled",
        "ppo_kl_0",
        "sup_ppo_meteor",
        "sup_ppo_bleu",
    ]
    for each in ARMS.values():
        assert each.start in ("", *ARMS) and not (each.imitates and each.learner)
        assert not each.learner or each.learner in algorithms.names()
    with pytest.raises(ValueError, match="condition: .*, found .sup_pop.; did you mean 'sup_ppo'"):
        arm("sup_pop")


def test_shuffled_rewards_are_the_same_numbers_dealt_anew():
    model, prompts = tiny.t5(spread=0.7), tiny.prompts(32)
    drawn = sample(model, prompts, sampling_from(model, 6), generator("a"))
    other = sample(model, prompts, sampling_from(model, 6), generator("b"))
    paid = torch.arange(32.0)
    score = lambda rollout: (paid, {"part": 2 * paid})
    dealt, parts = shuffled(score, 0)(drawn)
    assert sorted(dealt.tolist()) == paid.tolist() and torch.equal(parts["part"], 2 * dealt)
    assert (dealt == paid).float().mean() < 0.2
    assert torch.equal(shuffled(score, 0)(drawn)[0], dealt)  # whatever was dealt before
    assert not torch.equal(shuffled(score, 1)(drawn)[0], dealt)
    assert not torch.equal(shuffled(score, 0)(other)[0], dealt)


@pytest.mark.parametrize("causal", [False, True])
def test_every_arm_runs_and_a_continuation_starts_from_the_supervised_weights_bit_for_bit(work, causal, monkeypatch):
    task, here, begun = made_up(causal), bench(work), {}
    learn, imitate = run.reinforce, warm_start.fine_tune

    def noted(learner, model, *rest, **more):
        begun[learner.__name__, rest[-1]] = weights(model)
        return learn(learner, model, *rest, **more)

    def imitated(model, *rest, **more):
        begun["imitated", rest[-1]] = weights(model)
        return imitate(model, *rest, **more)

    monkeypatch.setattr(run, "reinforce", noted)
    monkeypatch.setattr(warm_start, "fine_tune", imitated)
    made = {name: part(here, task, each, 0) for name, each in ARMS.items()}
    begin = {"": weights(pretrained.load(run.raw(here, causal, 0))[0]), "supervised": policy_of(made["supervised"])}
    assert not same(begin[""], begin["supervised"]) and same(begin[""], policy_of(made["zero_shot"]))
    for name, each in ARMS.items():
        if each.learner:
            found = begun[f"rlnlp.learners.{each.learner}", f"made_up {name} seed 0"]
            assert same(found, begin[each.start]) and not same(found, policy_of(made[name])), name
    assert same(begun["imitated", 7 * 2 * 2], begin["supervised"])  # as many steps as PPO's 7 updates have
    curves = {name: json.loads((folder / "curve.json").read_text()) for name, folder in made.items()}
    assert curves["zero_shot"] == [] and curves["sup_more"][-1]["step"] == 28
    assert [e["update"] for e in curves["nlpo"]] == [1, 2, 3, 4, 5, 6, 7]
    assert sum(e["nlpo/synced"] for e in curves["nlpo"]) == 4
    assert (
        {e["objective/kl_coef"] for e in curves["ppo_kl_0"]} == {0.0} != {e["objective/kl_coef"] for e in curves["ppo"]}
    )


@pytest.mark.parametrize("name", ["supervised", "ppo"])
@pytest.mark.parametrize("progress", [False, True])
def test_an_arm_shows_how_far_it_is_where_bars_are_wanted(finished, tmp_path, name, progress, capsys):
    shutil.copytree(finished, tmp_path / "work")
    here = dataclasses.replace(bench(tmp_path / "work"), progress=progress)
    part(here, made_up(), arm(name), 1)
    assert (f"made_up {name} seed 1: 100%" in capsys.readouterr().err) == progress


# ------------------------------------------------------------------------------------------ runs
@pytest.mark.parametrize("name", ["ppo", "sup_nlpo", "sup_shuffled"])
def test_a_killed_run_goes_on_and_equals_one_that_was_not(work, tmp_path, name, monkeypatch):
    shutil.copytree(work, tmp_path / "other")
    task, chosen = made_up(), arm(name)
    whole = part(bench(work), task, chosen, 0)
    save, module = states.save_state, algorithms.module(chosen.learner)
    train = module.train

    def dies(state, *rest):
        for metrics in train(state, *rest):
            if state.update == 7:
                raise KeyboardInterrupt
            yield metrics

    monkeypatch.setattr(module, "train", dies)
    with pytest.raises(KeyboardInterrupt):
        part(bench(tmp_path / "other"), task, chosen, 0)
    monkeypatch.setattr(module, "train", train)
    seen = []
    monkeypatch.setattr(states, "save_state", lambda *args: seen.append(args[2]["numbers"]["update"]) or save(*args))
    resumed = part(bench(tmp_path / "other"), task, chosen, 0)
    assert files_of(whole) == files_of(resumed) and len(files_of(whole)) > 6
    assert seen == []  # it went on from update 5, and the next state would be of 10
    assert not list(resumed.parent.glob("state-*"))


def test_a_finished_part_is_not_made_again_and_another_setting_makes_another(work, monkeypatch):
    task = made_up()
    folder = part(bench(work), task, arm("supervised"), 0)
    monkeypatch.setattr(run, "ready", None)
    assert part(bench(work), task, arm("supervised"), 0) == folder
    assert part(bench(work, seeds=[0, 7], conditions=["ppo"]), task, arm("supervised"), 0) == folder
    with pytest.raises(TypeError):
        part(bench(work), task, arm("supervised"), 1)


CHANGES = {
    "nlpo": ({"nlpo": {"mask_top_p": 0.5}}, {"nlpo", "sup_nlpo"}),
    "supervised": (
        {"supervised": {"epochs": 4}},
        {*(name for name, each in ARMS.items() if "supervised" in (name, each.start))},
    ),
    "updates": ({"learner": {"updates": 8}}, {*ARMS} - {"zero_shot", "supervised"}),
    "raw": ({"raw": {**VALUES["raw"], "steps": 7}}, {*ARMS}),
    "test": ({"rows": {**VALUES["rows"], "test": 11}}, {*ARMS}),
    "of the task": ({"overrides": {"made_up": {"nlpo": {"sync_every": 3}}}}, {"nlpo", "sup_nlpo"}),
    "horizon": ({"overrides": {"made_up": {"response_tokens": 5}}}, {*ARMS}),
    "batch": ({"evaluation": {**VALUES["evaluation"], "batch_size": 5}}, set()),
    "tables": ({"seeds": [3], "controls": []}, set()),
}


@pytest.mark.parametrize("case", CHANGES)
def test_what_decides_a_part_and_what_does_not(tmp_path, case):
    changes, expected = CHANGES[case]
    before, after = bench(tmp_path), bench(tmp_path, **changes)
    changed = {
        name
        for name, each in ARMS.items()
        if digest(inputs(before, made_up(), each, 0)) != digest(inputs(after, made_up(), each, 0))
    }
    assert changed == expected


@pytest.mark.parametrize("own", [5, 24])
def test_a_task_imitates_as_many_examples_as_it_has_itself(tmp_path, monkeypatch, own):
    """Fewer or more than the others (16)."""
    given = []
    once = warm_start.fine_tune
    monkeypatch.setattr(warm_start, "fine_tune", lambda *a, **k: given.append(len(a[2])) or once(*a, **k))
    here = bench(tmp_path, overrides={"made_up": {"rows": {"supervised": own}}})
    part(here, made_up(), arm("supervised"), 0)
    assert given == [own]


def test_the_same_seed_gives_the_same_digits_and_another_gives_others(work, tmp_path):
    task, chosen = made_up(), arm("sup_ppo")
    first = files_of(part(bench(work), task, chosen, 0))
    again = files_of(part(bench(tmp_path / "anew"), task, chosen, 0))
    other = files_of(part(bench(tmp_path / "anew"), task, chosen, 1))
    assert first == again and first.keys() == other.keys()
    assert all(first[name] != other[name] for name in first if name.suffix == ".safetensors" or name.name == "row.json")


def test_trap_24_nlpo_answers_without_its_mask_as_ppo_does(work):
    """The numbers are those of the plain policy: what is kept of it gives the same answers when it is loaded alone; and
    where a task samples its answers, any token may come, as none may under a nucleus."""
    here, task = bench(work), made_up()
    folder = part(here, task, arm("nlpo"), 0)
    model, tokenizer = pretrained.load(folder / "policy")
    test = run.drawn(task, 0, "test", here.settings.rows.test)
    prompts = encode(test, tokenizer, here.settings.prompt_tokens(task))
    scoring = ready(task, here.settings.reward(task), run.drawn(task, 0, "train", here.settings.rows.train))
    found = evaluate(model, tokenizer, prompts, test, task, here.settings.decode(task), scoring, "any")
    row = json.loads((folder / "row.json").read_text())
    assert {name: row[name] for name in found.row} == found.row and found.row["reward"] > 0
    sampling = sampling_from(model, 12)
    (answered,) = beams.answers(model, prompts, Decode(max_new_tokens=12, sample=True), "any")
    plain = sample(model, prompts, sampling, generator("evaluation", "any"))
    nucleus = sample(model, prompts, sampling, generator("evaluation", "any"), top_p(0.5))
    assert answered.responses.equal(plain.responses) and not answered.responses.equal(nucleus.responses)


def test_trap_23_no_number_depends_on_how_many_are_answered_at_once(work, tmp_path):
    found = files_of(part(bench(work), made_up(), arm("ppo"), 0))
    shutil.rmtree(work / "parts" / "made_up" / "ppo")
    at_once = {**VALUES["evaluation"], "batch_size": 100}
    assert files_of(part(bench(work, evaluation=at_once), made_up(), arm("ppo"), 0)) == found


@pytest.mark.parametrize("sample", [True, False])
def test_no_batch_of_answers_is_larger_than_was_asked(monkeypatch, sample):
    """What trap 23 costs is memory, which no number shows."""
    sizes = []
    for name in ("sample", "beam_search"):
        drawn = getattr(beams, name)
        monkeypatch.setattr(beams, name, lambda p, some, *a, to=drawn: sizes.append(len(some)) or to(p, some, *a))
    answered = beams.answers(tiny.t5(), tiny.prompts(10), Decode(max_new_tokens=3, sample=sample), "any", 4)
    assert sizes == [4, 4, 2] and sum(map(len, answered)) == 10


def test_all_seeds_become_tables_of_which_every_number_can_be_found_again(work, tmp_path):
    task, here = made_up(), bench(work)
    collect(here, task, arm("supervised"), tmp_path / "out")
    table = read_table(tmp_path / "out" / "per_seed.csv")
    each = json.loads((tmp_path / "out" / "each.json").read_text())
    assert [(row["task"], row["condition"], row["seed"]) for row in table] == [
        ("made_up", "supervised", s) for s in (0, 1)
    ]
    for row in table:
        mine = each[str(row["seed"])]
        assert row["n"] == 10 == len(mine["example_id"]) and row["split"] == "test" and row["absent"] == "bertscore"
        for name in ("reward", "judge/judge", "metric/rouge_1", "length"):
            assert row[name] == pytest.approx(np.mean(mine[name]), abs=1e-6), name
        assert row["reward"] == pytest.approx(row["metric/rouge_1"], abs=1e-6)
        assert row["checkpoint"].startswith("raw ") and row["decoding"] == "greedy, max_new_tokens=6, min_new_tokens=0"
    assert table[0]["checkpoint"] != table[1]["checkpoint"]
    samples = [json.loads(line) for line in (tmp_path / "out" / "samples.jsonl").read_text().splitlines()]
    assert len(samples) == 6 and {"prompt", "response", "reward", "judge"} <= samples[0].keys()
    assert "references" not in samples[0]
    assert {row["step"] for row in read_table(tmp_path / "out" / "curves.csv")} >= {0, 3, 6}


def test_a_seed_that_fails_is_named_and_the_others_are_made(work, tmp_path, monkeypatch):
    here, learn = bench(work), run.reinforce

    def fails(*args, **more):
        if args[5] == 0:
            raise TrainingError("made_up ppo seed 0, update 1: no")
        return learn(*args, **more)

    monkeypatch.setattr(run, "reinforce", fails)
    with pytest.raises(TrainingError, match="1 of 2 seeds failed: made_up ppo seed 0, update 1: no"):
        collect(here, made_up(), arm("ppo"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(run, "ready", None)
    assert part(here, made_up(), arm("ppo"), 1).is_dir()


def test_a_reward_that_cannot_be_paid_names_task_arm_seed_and_update(work):
    hidden = made_up(
        read=lambda given: [dataclasses.replace(e, references=()) if "test" in e.id else e for e in read(given)]
    )
    assert part(bench(work), hidden, arm("zero_shot"), 0).is_dir()
    broken = made_up(rows=lambda draw, name, count: rows(draw, name, count)[:3])
    with pytest.raises(ValueError, match="made_up: expected 24 examples of 96 rows .train., got 3"):
        part(bench(work, seeds=[5]), broken, arm("zero_shot"), 5)


# ------------------------------------------------------------------------------------------ evaluation
def scores_of(task, examples):
    return ready(task, task.reward, examples)


def test_scores_are_made_ready_on_training_examples_and_what_lacks_a_model_is_named():
    task, shown = made_up(), read(rows(0, "train", 12))
    found = scores_of(task, shown)
    assert [*found.metrics] == ["rouge_1", "cider"] and [*found.plain] == ["words"] and [*found.absent] == ["bertscore"]
    each, corpus = found.measure([e.references[0] for e in shown], shown)
    assert each["rouge_1"] == [1.0] * 12 and corpus["words"] == 5.0 and corpus["cider"] > 1
    alone, _ = found.measure([shown[1].references[0]], [shown[1]])
    assert alone["cider"][0] == pytest.approx(each["cider"][1])  # the frequencies are those of training
    with pytest.raises(ValueError, match="'rouge_7'"):
        scores_of(made_up(metrics=("rouge_7",)), shown)
    with pytest.raises(ValueError, match="hidden"):
        found.measure(["x"], [dataclasses.replace(shown[0], references=())])
    roots = families({"rouge_1", "cider"})
    assert len(roots) == 2 and all(run.here().has(root) for root in roots)


def test_an_act_is_recognised_by_a_classifier_that_is_not_the_judge():
    shown = [
        Example(f"{i}", "", "x", "", (text,), meta={"act": act})
        for i, (text, act) in enumerate(
            [("did anna see it ?", 2), ("anna saw the cup .", 1), ("ben saw a book .", 1), ("did ben read it ?", 2)]
        )
    ]
    task = made_up(reward={"intent": 1.0}, metrics=("intent",))
    found = ready(task, task.reward, shown)
    total, parts = found.reward(
        ["x", "x"], ["did ben see a cup ?", "ben read the cup ."], [["-"], ["-"]], [{"act": 2}, {"act": 2}]
    )
    assert [float(value) for value in total] == [1.0, 0.0] and [*parts] == ["intent"]


@pytest.mark.parametrize("name", tasks.names())
def test_every_tasks_scores_and_judge_read_its_references_as_answers(name):
    task = tasks.task(name)
    shown, test = (run.drawn(task, 0, part, 24) for part in ("train", "test"))
    found = ready(task, task.reward, shown)
    said = [e.references[0] for e in test]
    each, corpus = found.measure(said, test)
    assert {*corpus} | {*found.absent} == {*task.metrics} and all(np.isfinite(v).all() for v in each.values())
    paid, _ = found.reward(
        [e.prompt for e in test],
        said,
        [list(e.references) for e in test],
        [{**e.meta, "source": e.source} for e in test],
    )
    worse, _ = found.reward(
        [e.prompt for e in test],
        said[1:] + said[:1],
        [list(e.references) for e in test],
        [{**e.meta, "source": e.source} for e in test],
    )
    if name == "imdb":  # no reference is read: see the next test
        return
    assert np.mean([float(v) for v in paid]) > 0.8 > np.mean([float(v) for v in worse])
    assert np.mean(task.judge(said, test)["judge"]) > 0.99


def test_a_continuation_that_praises_is_paid_more_and_judged_better_than_one_that_does_not():
    task = tasks.task("imdb")
    shown, test = (run.drawn(task, 0, part, n) for part, n in (("train", 600), ("test", 120)))
    found, given = ready(task, task.reward, shown), [e.prompt for e in test]
    said, none = [e.references[0] for e in test], [{}] * len(test)
    paid = [float(v) for v in found.reward(given, said, [[]] * len(test), none)[0]]
    judged, labels = task.judge(said, test), [e.meta["label"] for e in test]
    right = np.mean([(value > 0.5) == label for value, label in zip(paid, labels)])
    assert right > 0.7 and 40 < sum(labels) < 80
    for values in (paid, judged["judge"]):
        good, bad = ([v for v, label in zip(values, labels) if label == which] for which in (1, 0))
        assert np.mean(good) - np.mean(bad) > 0.2
    assert min(judged["grammar"]) == 1.0 and max(task.judge(["the the the ."] * 2, test[:2])["judge"]) < 0.6
    with pytest.raises(ScoreError, match="sentiment: expected training reviews of both labels"):
        ready(task, task.reward, [e for e in shown if e.meta["label"]])


def test_how_it_was_decoded_is_said_in_one_line():
    assert said(Decode(9)) == "greedy, max_new_tokens=9, min_new_tokens=0"
    assert (
        said(Decode(9, 2, beams=4, length_penalty=0.6))
        == "4 beams, max_new_tokens=9, min_new_tokens=2, length_penalty=0.6"
    )
    drawn = "samples, max_new_tokens=9, min_new_tokens=0, temperature=0.7, top_k=50"
    assert said(Decode(9, sample=True, temperature=0.7, top_k=50)) == drawn


def test_the_spread_of_a_reward_is_that_of_samples_of_one_prompt(work):
    here, task = bench(work), made_up()
    model, tokenizer = pretrained.load(run.raw(here, False, 0))
    prompts = run.encode(read(rows(0, "train", 6)), tokenizer, 12)
    config = here.settings.sampling_of(task)
    reward = ready(task, task.reward, read(rows(0, "train", 6))).reward
    found = spread(model, tokenizer, prompts, config, reward, 0, 6, 5)
    assert 0 <= found["spread_p10"] < found["spread_mean"] < 0.6
    constant = lambda prompts, responses, references, meta: [float(len(text)) for text in prompts]
    assert spread(model, tokenizer, prompts, config, constant, 0, 6, 5) == {"spread_mean": 0.0, "spread_p10": 0.0}
    greedy = config.replace(top_k=1)
    assert spread(model, tokenizer, prompts, greedy, reward, 0, 6, 5)["spread_mean"] == 0.0
    with_ends = evaluate(
        model,
        tokenizer,
        prompts,
        read(rows(0, "train", 6)),
        task,
        Decode(3),
        ready(task, task.reward, read(rows(0, "train", 6))),
        "x",
        4,
    )
    assert 0 < with_ends.row["length"] <= 3 and 0 <= with_ends.row["finished"] <= 1 and len(with_ends.responses) == 6
