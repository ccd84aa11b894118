"""The plan's formulas against numbers worked by hand, what it says of missing things, and the profile paper end to end
on tiny models saved under the published names."""

from __future__ import annotations

import contextlib
import dataclasses
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
from workbook.runs.params import Params
from workbook.stages import costs, outside, plan, plan_text, reach, roofline, shapes
from workbook.stages.costs import Cost
from workbook.stages.shapes import Shape
from workbook.store import files, tables
from workbook.texts import data, tasks
from workbook.texts.hub import DataError

from .spoiled import settings_edited  # noqa: F401 (a fixture)

ROOT = Path(__file__).resolve().parents[1]
FIXTURE = ROOT / "tests" / "fixtures" / "params.yaml"
POLICY, REWARD = Shape(1000, 2, 8, 100, 64, 16, ""), Shape(10, 1, 4, 50, None, 16, "")
COMPUTED = roofline.rates(Path("no such file"))
IDS = {"models": ("lvwerra/gpt2-imdb", "lvwerra/distilbert-imdb"), "datasets": ("imdb",)}


def meta(settings) -> Shape:
    with torch.device("meta"):
        return shapes.shape_of(GPT2LMHeadModel(settings), "")


# formulas ------------------------------------------------------------------------------------------------------------
def test_parameters_from_the_config_alone():
    tiny = GPT2Config(vocab_size=11, n_positions=16, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    attention, mlp, norms = (8 * 24 + 24) + (8 * 8 + 8), (8 * 32 + 32) + (32 * 8 + 8), 3 * 16
    assert meta(tiny).parameters == 11 * 8 + 16 * 8 + attention + mlp + norms == 1104  # the head is the embedding
    small = meta(GPT2Config())
    assert (small.parameters, small.layers, small.width) == (124_439_808, 12, 768)
    assert (small.vocabulary, small.positions) == (50_257, 1024)


@pytest.mark.parametrize("gelu", ["gelu_pytorch_tanh", "gelu_new"])
def test_floats_kept_for_the_backward_pass_are_those_measured(gelu):
    width, layers, rows, length = 64, 4, 3, 20
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=11,
            n_embd=width,
            n_layer=layers,
            n_head=4,
            activation_function=gelu,
            resid_pdrop=0,
            embd_pdrop=0,
            attn_pdrop=0,
            bos_token_id=0,
            eos_token_id=0,
        )
    ).eval()
    weights, kept = {w.untyped_storage().data_ptr() for w in model.parameters()}, {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes() / 4
        return tensor

    ids = torch.zeros(rows, length, dtype=torch.long)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = model.transformer(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).last_hidden_state
    assert out.requires_grad
    measured = sum(size for place, size in kept.items() if place not in weights) / (rows * length * width * layers)
    assert measured == pytest.approx(shapes.shape_of(model, "").kept, rel=0.05)


def params(**overrides) -> Params:
    """The fixture with numbers that are easy to multiply: 10 + 6 tokens, 5 updates of 8 episodes, 3 epochs of 2
    minibatches."""
    values = {
        "task.prompt_tokens": 10,
        "sampling.max_new_tokens": 6,
        "learner.updates": 5,
        "learner.episodes_per_update": 8,
        "learner.epochs": 3,
        "learner.minibatches": 2,
        "reward_model.max_tokens": 32,
        "task.test_prompts": 100,
        "task.validation_prompts": 50,
        "evaluation.human_reviews": 7,
        "evaluation.batch_size": 64,
        "supervised.updates": 4,
        "supervised.episodes_per_update": 9,
    }
    return checks.load(FIXTURE, **{**values, **overrides})


def trained(condition: str, **overrides) -> Cost:
    p = params(**overrides)
    return costs.training(p, p.learner_config(condition), POLICY, REWARD)


def test_ppo_by_hand():
    cost = trained("ppo_kl_0")
    assert (cost.episodes, cost.sampled, cost.trained) == (5 * 8, 5 * 8 * 6, 5 * 8 * 6 * 3)
    rollout = reference = value = 2 * 1000 * 8 * 16
    update = 3 * 2 * (6 * 1000) * 8 * 16  # epochs x (policy and value) x 6 N x tokens
    assert cost.flops == 5 * (rollout + reference + value + 2 * 10 * 8 * 32 + update)
    assert cost.passes == 5 * (6 + 3 + 3 * 2 * 3 * 2)
    shared = trained("ppo_kl_0", **{"learner.value": "shared"})
    assert cost.flops - shared.flops == 5 * (value + update / 2) and shared.memory < cost.memory


def test_nlpo_adds_a_mask_model():
    ppo, nlpo = trained("ppo_kl_0"), trained("nlpo_kl_0")
    assert nlpo.flops - ppo.flops == 5 * 2 * 1000 * 8 * 16
    assert nlpo.passes - ppo.passes == 5 * 6
    assert nlpo.memory > ppo.memory


def test_supervised_and_no_training_by_hand():
    cost = trained("supervised")
    assert (cost.episodes, cost.sampled, cost.trained, cost.flops) == (36, 0, 36 * 6, 4 * 6 * 1000 * 9 * 16)
    assert trained("ppo_kl_0", **{"learner.updates": 0}) == Cost()


def test_filtered_samples_first():
    runs_ = {"runs.picked": {"algorithm": "filtered", "samples_per_prompt": 4}}
    cost, plain = trained("picked", **runs_), trained("supervised")
    assert cost.sampled == 4 * 36 * 6 and cost.trained == plain.trained
    assert cost.flops - plain.flops == 4 * 4 * (2 * 2 * 1000 * 9 * 16 + 2 * 10 * 9 * 32)


MORE = {  # runs of the other learners, at the fixture's sizes: 5 updates of 8 episodes of 10 + 6 tokens
    "runs.one_step": {"algorithm": "a2c"},
    "runs.no_values": {"algorithm": "reinforce"},
    "runs.group": {"algorithm": "grpo", "group": 4},
    "runs.synced": {"algorithm": "masked", "mask_rule": "typical", "mask_value": 0.2},
    "runs.delayed": {"algorithm": "masked", "mask_rule": "typical", "mask_value": 0.2, "mask_delay": 5},
    "runs.trust": {"algorithm": "trpo", "fisher_episodes": 2, "cg_steps": 7, "value_epochs": 4},
    "runs.values": {"algorithm": "dqn", "updates": 5, "episodes_per_update": 8, "batch_size": 12, "gradient_steps": 3},
    "runs.soft": {"algorithm": "sac", "updates": 5, "episodes_per_update": 8, "batch_episodes": 4, "gradient_steps": 3},
    "tune.own": {"ppo": {}, "nlpo": {}, "a2c": {"updates": 2}, "reinforce": {}, "grpo": {}},
}
ONE = 2 * 1000 * 8 * 16  # a forward pass over the responses of an update
SCORING = 2 * 10 * 8 * 32


def test_one_step_on_each_rollout_by_hand():
    cost, bare = trained("one_step", **MORE), trained("no_values", **MORE)
    assert cost.flops == 5 * (3 * ONE + SCORING + 2 * 3 * ONE) and cost.trained == 5 * 8 * 6
    assert bare.flops == 5 * (2 * ONE + SCORING + 3 * ONE) and bare.memory < cost.memory  # no value network
    assert (cost.passes, bare.passes) == (5 * (6 + 3 + 6), 5 * (6 + 3 + 3))


def test_a_group_shares_a_prompt_and_costs_as_many_responses():
    cost = trained("group", **MORE)
    assert (cost.episodes, cost.sampled, cost.trained) == (5 * 8, 5 * 8 * 6, 5 * 8 * 6 * 3)
    assert cost.flops == 5 * (2 * ONE + SCORING + 3 * 3 * ONE)


def test_a_mask_costs_something_where_it_is_another_model():
    ppo, synced, delayed = (trained(name, **MORE) for name in ("ppo_kl_0", "synced", "delayed"))
    assert synced == ppo and delayed.flops - ppo.flops == 5 * ONE and delayed.passes - ppo.passes == 5 * 6
    assert delayed.memory - ppo.memory == 4 * (1000 + 64 * 16 * 2 * 2 * 8)  # its weights and its cache
    plain = evaluated("ppo_kl_0", **MORE)
    one = 2 * 1000 * 4 * 16 + 2 * 2 * 10 * 32
    assert evaluated("synced", **MORE).flops == plain.flops + 150 * one  # its own decoding is truncated
    assert evaluated("delayed", **MORE).flops == plain.flops + 150 * (one + 2 * 1000 * 16)


def test_trpo_by_hand():
    cost = trained("trust", **MORE)
    fisher = ONE * 2 / 8  # two of the eight episodes
    update = 3 * ONE + SCORING + 3 * ONE + 3 * fisher + 7 * 6 * fisher + 2 * ONE + 4 * 3 * ONE
    assert cost.flops == 5 * update and cost.trained == 5 * 8 * 6
    assert cost.passes == 5 * (6 + 3 + 3 * 2 + 3 + 6 * 7 + 2 * 2 + 3 * 4 * 2)
    assert cost.memory == trained("ppo_kl_0", **MORE).memory  # policy, value network and their moments, as PPO


def test_q_learning_by_hand():
    cost = trained("values", **MORE)
    drawn = 2 * 1000 * 12 * 16  # a response for each token that is drawn
    assert cost.flops == 5 * (3 * ONE + SCORING + 3 * (3 * drawn + drawn))
    assert (cost.sampled, cost.trained, cost.passes) == (5 * 8 * 6, 5 * 3 * 12, 5 * (6 + 3 + 3 * 4))
    frozen = trained("values", **{**MORE, "runs.values": {**MORE["runs.values"], "trunk": "frozen"}})
    assert cost.flops - frozen.flops == 5 * 3 * 3 * drawn
    ruled = {**MORE["runs.values"], "max_rule": "top_p", "max_value": 0.9}
    assert trained("values", **{**MORE, "runs.values": ruled}).flops - cost.flops == 5 * 3 * drawn
    assert evaluated("values", **MORE).flops == evaluated("ppo_kl_0", ["greedy"]).flops - 50 * (
        2 * 1000 * 4 * 16 + 2 * 2 * 10 * 32
    )
    p = params(**MORE)
    weights, cache = (
        4 * 1000 + 10,
        64 * 16 * 2 * 2 * 8 + 5 * 4096 * 100,
    )  # policy, reference, evaluator, target; reward model
    assert costs.memory(p, p.learner_config("values"), POLICY, REWARD, 1) == 4 * (weights + 2 * 1000 + cache)


def test_soft_actor_critic_by_hand():
    cost = trained("soft", **MORE)
    drawn = 2 * 1000 * 4 * 16
    assert cost.flops == 5 * (5 * ONE + SCORING + 3 * (2 * 3 * drawn + 2 * drawn))
    assert cost.passes == 5 * (6 + 5 + 3 * 8) and cost.trained == 5 * 3 * 4 * 6
    p = params(**MORE)
    weights, cache = 5 * 1000 + 10, 64 * 16 * 2 * 2 * 8 + 5 * 4096 * 100
    assert costs.memory(p, p.learner_config("soft"), POLICY, REWARD, 1) == 4 * (weights + 2 * 2000 + cache)


def test_a_world_has_short_prompts_its_own_model_and_nothing_to_read():
    p = params(**{"worlds.numbers": {"texts": 9, "steps": 3}, "runs.counted": {"algorithm": "ppo", "world": "numbers"}})
    world = Shape(100, 2, 8, 50, 32, 16, "")
    cost = costs.of_run(p, "counted", POLICY, REWARD, {"numbers": world})
    one = 2 * 100 * 8 * 11  # 5 + 6 tokens
    assert cost.flops == 5 * (3 * one + 3 * 2 * 3 * one) + 250 * 2 * 100 * 4 * 11  # trained; evaluated, no reviews read
    rows = p.language_model.batch_size
    made = costs.worlds_of_a_draw(p, {"numbers": world})
    assert (made.flops, made.passes) == (6 * 100 * 3 * rows * 32, 9)


def evaluated(condition: str, extra=(), **overrides) -> Cost:
    p = params(**overrides)
    return costs.evaluation(p, p.learner_config(condition), extra, POLICY, REWARD)


def test_evaluation_by_hand():
    plain = evaluated("ppo_kl_0")  # plain and top_p on test, plain at half time; own is plain
    one = 2 * 1000 * 4 * 16 + 2 * 2 * 10 * 32  # a prompt: generated, read by three models, scored twice
    human = 2 * (2 * 1000 * 64 * 7)  # reviews of 300 tokens, cut at the model's 64 positions
    assert plain.flops == (2 * 100 + 50) * one + human
    assert plain.evaluated == 250 * 6 and plain.passes == (2 * 2 + 1) * (6 + 5) + 2
    assert evaluated("nlpo_kl_0").flops == plain.flops + 150 * (one + 2 * 1000 * 16)  # its own decoding has a mask
    assert evaluated("ppo_kl_0", ["greedy"]).flops == plain.flops + 150 * one + 50 * one  # top-p at half time too, then
    beams = evaluated("ppo_kl_0", ["beam"], **{"evaluation.beams": 3})
    assert beams.flops == plain.flops + 150 * (one + 2 * (2 * 1000 * 16 + 2 * 10 * 32)) + 50 * one
    assert beams.evaluated == 300 * 6 + 3 * 150 * 6
    best = evaluated("drawn", **{"runs.drawn": {"algorithm": "best_of_n", "n": 4}})
    assert best.evaluated == (250 + 4 * 150) * 6


def test_only_the_prompts_that_a_run_is_tested_on_cost():
    def of(**overrides):
        p = params(**{"runs.some": {"algorithm": "ppo", "test_prompts": 7}, **overrides})
        return [costs.of_run(p, name, POLICY, REWARD).evaluated for name in ("ppo_kl_0", "some")]

    assert of() == [250 * 6, (50 + 2 * 7) * 6]
    assert of(**{"evaluation.test_prompts": 30}) == [(50 + 2 * 30) * 6, (50 + 2 * 7) * 6]


def test_memory_by_hand():
    p = params()
    weights = 4 * 1000 + 10  # policy, reference, evaluator, value; reward model
    activations = 2 * 16 * 4 * 16 * 2 * 8 + 3 * 4 * 6 * 100  # policy and value, 4 episodes of a minibatch; logits
    cache = 64 * 16 * 2 * 2 * 8 + 5 * 4096 * 100
    assert 2000 + activations < cache
    assert costs.memory(p, p.learner_config("ppo_kl_0"), POLICY, REWARD, 4) == 4 * (weights + 2 * 2000 + cache)
    activations = 2 * 16 * 999 * 16 * 2 * 8 + 3 * 999 * 6 * 100
    assert costs.memory(p, p.learner_config("ppo_kl_0"), POLICY, REWARD, 999) == 4 * (weights + 3 * 2000 + activations)
    assert costs.memory(p, p.learner_config("supervised"), POLICY, None, 0) == 4 * (3000 + cache)


BODY = roofline.Shape(2, 8, 100, 64)  # POLICY as the GPU's limits see it
STEP = 2 * (2 * (12 * 64 + 13 * 8) + 2 * 8 + 100 * 8)  # bytes of its weights that a decode step reads, in bf16


def test_what_fixed_shapes_move_by_hand():
    ppo, nlpo, best = trained("ppo_kl_0"), trained("nlpo_kl_0"), trained("supervised")
    step = STEP + 8 * (10 + 6 / 2) * 2 * 2 * 8 * 2 + 3 * 4 * 8 * 100  # 8 episodes: keys and values, logits
    assert ppo.decoded == 5 * 6 * step and nlpo.decoded == 2 * ppo.decoded and best.decoded == 0
    assert ppo.stepped == 5 * 3 * 2 * 52 * 2 * BODY.total and best.stepped == 4 * 52 * BODY.total
    step = STEP + 512 * (10 + 6 / 2) * 2 * 2 * 8 * 2 + 3 * 4 * 512 * 100
    assert evaluated("ppo_kl_0").decoded == pytest.approx(250 * 6 * step / 512)
    assert ppo.steps == 5 * 3 * 2 and best.steps == 4
    seconds = COMPUTED.seconds(1e15, 1e12, 1e12, 40)
    assert seconds == pytest.approx(1e15 / (0.4 * 790e12) + 1e12 / (0.35 * 4.3e12) + 1e12 / 4.3e12)
    measured = dataclasses.replace(COMPUTED, gradient_s=0.1)  # of one step, launches and bytes alike
    assert measured.seconds(0, 0, 1e12, 40) == pytest.approx(4.0)


def test_what_stays_on_the_disk_by_hand():
    def left(condition: str, **more) -> tuple[float, float]:
        found = costs.of_run(params(**{**MORE, **more}), condition, POLICY, REWARD)
        return found.left, found.checkpoint

    final = 3 * 4 * 1000  # the policy in scratch, outputs and cache
    assert left("ppo_kl_0", **{"learner.updates": 0}) == (final, 0)
    assert left("ppo_kl_0") == (final, 4 * 6000)  # two networks, two moments of each
    assert left("nlpo_kl_0") == (final, 4 * 7000)  # and the mask model
    assert left("values") == (final, 4 * 4000)  # one network, its moments, the target
    assert left("ppo_kl_0", keep_policies=False) == (0, 4 * 6000)
    assert left("supervised", keep_policies=False)[0] == final  # others start there
    two = costs.of_run(params(), "ppo_kl_0", POLICY, REWARD).times(2)
    assert (two.left, two.checkpoint) == (2 * final, 4 * 6000)


def test_the_largest_units_go_first_and_phases_wait_for_each_other():
    assert reach.spread([1, 1, 1, 3], 2) == 3 and reach.spread([2, 1], 8) == 2 and reach.spread([], 3) == 0
    p = params()
    one = {name: Cost(flops=1) for name in p.all_runs}
    found = reach.phases(p, Cost(flops=7), [Cost(flops=2)], one)
    assert [len(part) for part in found] == [len(p.draws), 1, len(p.runs) * len(p.seeds), len(p.seeds)]
    assert reach.phases(p, Cost(flops=7), [], one)[1] == found[2]
    hours = reach.hours(found, lambda cost: cost.flops)
    assert hours["1"] == 7 * len(p.draws) + 2 + len(p.all_runs) * len(p.seeds)
    draws, runs = -(-len(p.draws) // 8), -(-len(p.runs) * len(p.seeds) // 8)
    assert hours["8"] == 7 * draws + 2 + runs + 1


def test_rates_are_those_of_the_bench_where_it_measured_and_say_what_is_computed(tmp_path):
    assert COMPUTED.why == "computed: copy_tb_s 4.3, bf16 790, decode_share 0.35, update_share 0.4"
    assert (COMPUTED.sustained, COMPUTED.step_s, COMPUTED.gradient_s) == (None, None, None)
    path = tmp_path / "gpu.json"
    known = {"device": "X100", "copy_tb_s": 2.0, "bf16": 500.0, "decode_share": 0.5, "update_share": None}
    path.write_text(
        json.dumps({**known, "fp32": 50.0, "update_fp32_share": 0.5, "readable_ms": 7.0, "gradient_s": 0.1})
    )
    found = roofline.rates(path)
    assert (found.copy, found.product, found.decode, found.update) == (2e12, 500e12, 0.5, 0.4)
    assert (found.sustained, found.step_s, found.gradient_s) == (25e12, 0.007, 0.1)
    assert found.why == "measured on X100 (gpu.json); computed: update_share 0.4; a gradient step 0.1 s"


def test_costs_add_up():
    total = Cost(1, 2, 3, 4, 5, 6, 7) + Cost(1, 1, 1, 1, 1, 1, 1)
    assert total == Cost(2, 3, 4, 5, 6, 7, 7)
    assert Cost(1, 2, 3, 4, 5, 6, 7).times(2) == Cost(2, 4, 6, 8, 10, 12, 7)
    assert Cost(flops=3600e12, passes=7200).hours(1e12, 0.5) == pytest.approx(2.0)


def test_what_is_made_before_the_runs():
    p = params(**{"variants.dropout": 0.1, "variants.label_fractions": [0.1, 0.5]})
    lm, rm = p.language_model, p.reward_model
    made = costs.models_of_a_draw(p, POLICY, REWARD)
    words = 3 * 6 * 1000 * lm.steps * lm.batch_size * lm.context
    assert made.flops == pytest.approx(words + 6 * 10 * 1.6 * p.task.reward_reviews * rm.epochs * 32)
    grid = len(p.tune.learning_rates) * len(p.tune.kl_coefs)
    assert costs.search(p, "ppo", POLICY, REWARD).flops == grid * trained("ppo_kl_0").flops / 5 * p.tune.updates
    p = params(**MORE)  # a2c has its own number of updates
    assert costs.search(p, "a2c", POLICY, REWARD).flops == grid * trained("one_step", **MORE).flops / 5 * 2


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


# the plan ------------------------------------------------------------------------------------------------------------
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
    "nothing": ("my.csv", "", "an empty file; expected a header with a column 'prompt'"),
}
NEVER = 'raise SystemExit("a plan executes nothing")\n'


def planned_with(tmp_path, edited, files: dict[str, str]) -> int:
    """The status of a plan whose reward is my.py:score and whose prompts are my.csv."""
    shutil.copy(ROOT / "claims.yaml", tmp_path)
    brought = ('reward: ""', "reward: my.py:score"), ('prompts: ""', "prompts: my.csv")
    edited(*brought, ("reward: reward_10", "kl_coef: 0.1"), ("claims: [P01]", "claims: []"))
    for name, text in {"my.py": "def score(*four):\n    ...\n", "my.csv": "prompt\na\nb\nc\n", **files}.items():
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
