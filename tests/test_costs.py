"""What a run costs: the plan's formulas against numbers worked by hand."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from workbook.runs import checks
from workbook.runs.params import Params
from workbook.stages import costs, reach, roofline, shapes
from workbook.stages.costs import Cost
from workbook.stages.shapes import Shape

FIXTURE = Path(__file__).parent / "fixtures" / "params.yaml"
POLICY, REWARD = Shape(1000, 2, 8, 100, 64, 16, ""), Shape(10, 1, 4, 50, None, 16, "")
COMPUTED = roofline.rates(Path("no such file"))


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
