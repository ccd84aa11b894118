"""Gradient steps of fixed shapes are those of ``ppo.update``: the same loss, gradients, metrics and ends, read-backs
aside. Without a GPU nothing is recorded: the eager twin is held against the written path."""

from __future__ import annotations

import functools
import gc
import weakref

import pytest
import torch

from rlnlp import engine as engine_file
from rlnlp.engine import Engine
from rlnlp.learners import a2c, nlpo, ppo
from rlnlp.learners.common import Diverged
from rlnlp.recorded import WARM
from rlnlp.static_update import StaticSteps, cells, minibatch_loss, serves
from rlnlp.types import take, to
from tests.test_engine import SETTINGS, score, trained
from tests.tiny import gpt2, prompts, t5

WHOLE = {"min_new_tokens": 6}  # of 6: no episode ends early
CASES = {
    "ppo": (ppo, {}),
    "shared value": (ppo, {"value": "shared"}),
    "tempered, cut": (ppo, {"temperature": 0.8, "top_k": 20, "top_p": 0.9}),
    "bonus, value clip": (ppo, {"entropy_coef": 0.01, "value_clip": 0.2}),
    "unequal minibatches": (ppo, {"minibatches": 3}),
    "nlpo": (nlpo, {"top_k": 20, "mask_top_p": 0.8}),
}


def collected(module=ppo, make=gpt2, **changes):
    """(state, experience, config) before the first update."""
    config = module.Config(**{**SETTINGS, **WHOLE, **changes})
    state = module.init(make(), config, 3)
    return state, module.collect(state, prompts(8), score, config), config


@pytest.mark.parametrize("which", CASES)
def test_loss_gradients_and_metrics_are_those_of_the_written_minibatch(which):
    module, changes = CASES[which]
    state, seen, config = collected(module, **changes)
    rows = torch.tensor([5, 0, 3])
    weights = [*state.policy.parameters(), *state.value.parameters()]
    sampling, vocabulary = seen.rollout.sampling, 50
    written = ppo.minibatch_loss(state, take(seen, rows), config)
    batch = {name: tensor[rows] for name, tensor in cells(seen).items()}
    assert ("bits" in batch) == (seen.rollout.allowed is not None)
    found = minibatch_loss(state, batch, sampling, vocabulary, config)
    torch.testing.assert_close(found[0], written[0], atol=1e-6, rtol=1e-5)
    assert found[1].keys() == written[1].keys()
    for name, value in written[1].items():
        torch.testing.assert_close(found[1][name], value, atol=1e-5, rtol=1e-4)
    grads = [torch.autograd.grad(one[0], weights, allow_unused=True) for one in (found, written)]
    for ours, theirs in zip(*grads, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, atol=2e-6, rtol=1e-4)


@pytest.mark.parametrize("which", CASES)
def test_a_training_by_steps_of_fixed_shapes_ends_where_the_written_one_does(which):
    module, changes = CASES[which]
    engine = Engine(static=True)
    (weights, metrics), (ours, found) = trained(module, **WHOLE, **changes), trained(module, engine, **WHOLE, **changes)
    assert sorted(key[0] for key in engine.recorded) == ([2, 3] if "minibatches" in changes else [4])
    torch.testing.assert_close(ours, weights, atol=3e-5, rtol=0)
    for theirs, mine in zip(metrics, found, strict=True):
        assert {name: mine[name] for name in theirs} == pytest.approx(theirs, abs=1e-3, nan_ok=True)


def test_what_it_does_not_serve_goes_step_by_step():
    assert not serves(*collected(min_new_tokens=0)[:2])
    assert not serves(*collected(make=t5)[:2])
    state, seen, _ = collected()
    assert serves(state, seen)
    state.value = torch.nn.Identity()
    assert not serves(state, seen)
    for module, changes in ((ppo, {"min_new_tokens": 5}), (a2c, {"min_new_tokens": 6})):  # may end early; another loss
        engine = Engine(static=True)
        ours, theirs = trained(module, engine, **changes)[0], trained(module, **changes)[0]
        torch.testing.assert_close(ours, theirs, atol=3e-5, rtol=0)
        assert engine.kept and not engine.recorded


def test_another_shape_leaves_no_memory_behind():
    state, seen, config = collected()
    state.engine = engine = Engine(static=True)
    ppo.update(state, seen, config)
    (old,) = map(weakref.ref, engine.recorded.values())
    longer = ppo.experience(state, ppo.rollout(state, prompts(8, length=9)), score, config)
    ppo.update(state, longer, config)
    gc.collect()  # as before each recording
    assert [key[1] for key in engine.recorded] == [9 + 6 - 1] and old() is None


@pytest.mark.parametrize("change", [{"clip": 0.01}, {"max_grad_norm": 0.01}, {"entropy_coef": 0.1}, "rate"])
def test_numbers_that_a_graph_holds_are_recorded_anew_where_they_change(change):
    ends = []
    for engine in (None, Engine(static=True)):
        state, seen, config = collected()
        if engine is not None:
            state.engine = engine
        ppo.update(state, seen, config)
        later = config.model_copy(update={} if change == "rate" else change)
        if change == "rate":
            state.optimizer.param_groups[0]["lr"] /= 10
        ppo.update(state, seen, later.model_copy(update={"breaks": ("ratio",)}))
        ends.append(torch.cat([weight.detach().flatten() for weight in state.policy.parameters()]))
    torch.testing.assert_close(*ends, atol=3e-5, rtol=0)


def test_a_loss_that_is_not_finite_takes_no_step_and_neither_do_those_after_it():
    state, seen, config = collected()
    state.engine = Engine(static=True)
    seen.advantages[:] = float("nan")
    before = torch.cat([weight.detach().flatten() for weight in state.policy.parameters()])
    with pytest.raises(Diverged, match="update 1: the loss is nan; examples of this minibatch: example"):
        ppo.update(state, seen, config)
    assert torch.equal(before, torch.cat([weight.detach().flatten() for weight in state.policy.parameters()]))


def test_after_a_step_that_was_stopped_steps_of_another_shape_are_too():
    state, seen, config = collected()
    seen.advantages[0] = float("nan")
    whole, stopped = cells(seen), torch.zeros((), dtype=torch.bool)
    before = torch.cat([weight.detach().flatten() for weight in state.policy.parameters()])
    for rows in ([0, 1], [2, 3, 4]):
        StaticSteps(state, seen, len(rows), config)(whole, torch.tensor(rows), stopped)
        assert stopped
    assert torch.equal(before, torch.cat([weight.detach().flatten() for weight in state.policy.parameters()]))


def test_steps_reuse_their_memory_and_return_copies():
    """A replay writes where the one before it wrote, inputs and outputs alike."""
    state, seen, config = collected()
    steps, whole, stopped = StaticSteps(state, seen, 2, config), cells(seen), torch.zeros((), dtype=torch.bool)
    places = {name: tensor.data_ptr() for name, tensor in steps.batch.items()}
    first = steps(whole, torch.tensor([0, 1]), stopped)
    steps.step = type("Replayed", (), {"stream": None, "__call__": lambda self: steps.found["loss"].add_(1)})()
    second = steps(whole, torch.tensor([2, 3]), stopped)
    steps(whole, torch.tensor([2, 3]), stopped)
    assert second["loss"] == first["loss"] + 1 and not stopped
    assert torch.equal(steps.batch["responses"], seen.rollout.responses[2:4])
    assert places == {name: tensor.data_ptr() for name, tensor in steps.batch.items()}


class Broken:
    """A recorded step that fails: while it is recorded, or when it is replayed."""

    stream = "a stream"

    def __init__(self, why, graph=None, calls=WARM, before=lambda: None):
        self.why, self.graph, self.calls, self.before = why, graph, calls, before

    def __call__(self):
        self.before()
        raise RuntimeError(self.why)


def test_a_step_that_cannot_be_recorded_is_done_as_written_and_says_so():
    (state, seen, config), (other, *_) = collected(), collected()
    steps, plain = (StaticSteps(one, seen, 3, config) for one in (state, other))
    whole, rows, stopped = cells(seen), torch.tensor([0, 1, 2]), torch.zeros((), dtype=torch.bool)

    def leaves_gradients():
        minibatch_loss(state, steps.batch, steps.sampling, 0, config)[0].backward()

    steps.step = Broken("operation not permitted when stream is capturing", before=leaves_gradients)
    with pytest.warns(UserWarning, match="cannot be recorded .operation not permitted"):
        steps(whole, rows, stopped)
    for one in (steps, plain, plain):
        one(whole, rows, stopped)
    ends = [torch.cat([w.detach().flatten() for w in one.policy.parameters()]) for one in (state, other)]
    assert torch.equal(*ends)


def test_an_error_of_a_recorded_step_or_of_one_before_it_is_recorded_is_not_swallowed():
    state, seen, config = collected()
    steps = StaticSteps(state, seen, 2, config)

    for broken in (Broken("out of memory", graph="recorded"), Broken("out of memory", calls=0)):
        steps.step = broken
        with pytest.raises(RuntimeError, match="out of memory"):
            steps(cells(seen), torch.tensor([0, 1]), torch.zeros((), dtype=torch.bool))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_on_a_gpu_recorded_steps_are_their_twin_bit_for_bit(precision):
    """Three minibatches of 3, 3 and 2 episodes, several epochs: two graphs share weights and optimiser."""
    ends, recorded = [], []
    for graph in (True, False):
        engine, policy = Engine(precision, static=True), gpt2().to("cuda")
        engine.install(policy)
        config = ppo.Config(**{**SETTINGS, **WHOLE, "epochs": 6, "minibatches": 3, "top_k": 20, "breaks": ("ratio",)})
        state = ppo.init(policy, config, 3)
        seen = ppo.collect(state, to(prompts(8), "cuda"), score, config)
        state.engine = engine
        with pytest.MonkeyPatch.context() as patch:
            if not graph:
                patch.setattr(engine_file, "StaticSteps", functools.partial(StaticSteps, graph=False))
            ppo.update(state, seen, config)
        recorded.append([steps.step.graph is not None for steps in engine.recorded.values()])
        ends.append(torch.cat([weight.detach().flatten() for weight in state.policy.parameters()]))
    assert recorded == [[True, True], [False, False]] and torch.equal(*ends)


def test_the_loss_reads_no_number_back():
    """On the meta device a read-back is an error. (A copy from the CPU is none there: `bench.gpu` records the step.)"""
    state, seen, config = collected(top_k=20)
    batch = {name: tensor[:3].to("meta") for name, tensor in cells(seen).items()}
    for part in (state.policy, state.value):
        part.to("meta")
    loss, metrics = minibatch_loss(state, batch, seen.rollout.sampling, 50, config)
    loss.backward()
    assert {tensor.device.type for tensor in (loss, *metrics.values())} == {"meta"}
    assert all(w.grad.device.type == "meta" for w in state.policy.parameters() if w.grad is not None)
