"""The learners: protocol, invariants, the three NLPO bugs of the original, resume = uninterrupted, and that they
learn."""

import ast
import dataclasses
import inspect
import io
import itertools
import math
import re
import tokenize
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from rlnlp import checkpoint, learners, models
from rlnlp.learners import common, nlpo, ppo, supervised, trpo
from rlnlp.losses import KLCoefficient
from rlnlp.rollout import sample
from rlnlp.samplers import top_p
from rlnlp.types import Experience
from tests.tiny import EOS, MAKE, as_rollout, gpt2, prompts
from workbook.runs import algorithms

LEARNERS = algorithms.names()
ROOT = Path(__file__).resolve().parents[1]
TARGET = 7  # the toy's score is the share of this token in a response


def toy(rollout):
    hits = ((rollout.responses == TARGET) & rollout.mask).sum(1) / rollout.mask.sum(1)
    return hits.float(), {"hits": hits.float()}


def settings(module, **changes):
    base = {
        "updates": 6,
        "episodes_per_update": 16,
        "epochs": 2,
        "minibatches": 2,
        "learning_rate": 3e-3,
        "max_new_tokens": 6,
        "kl_coef": 0.05,
    }
    free = module.Config.model_fields.keys() - getattr(module.Config, "fixed", {})
    return module.Config(**{**{k: v for k, v in base.items() if k in free}, **changes})


class Tokenizer:
    def __call__(self, text, add_special_tokens):
        return {"input_ids": [5, 6, 7]}


SMALL = {"updates": 6, "episodes_per_update": 8, "max_new_tokens": 6}
CASES = {  # every learner, and each way it can be set that changes what it has to remember: (name, settings)
    "supervised": ("supervised", SMALL),
    "ppo": ("ppo", {}),
    "nlpo": ("nlpo", {"sync_every": 2}),
    "nlpo random": ("nlpo", {"sync_every": 2, "mask_source": "random"}),
    "nlpo initial": ("nlpo", {"sync_every": 2, "mask_source": "initial"}),
    "bandit": ("bandit", {}),
    "dropout update_only": ("dropout", {"mode": "update_only", "breaks": ["ratio"]}),
    "dropout independent": ("dropout", {"mode": "independent", "breaks": ["ratio"]}),
    "dropout same": ("dropout", {"mode": "same"}),
    "mismatch": ("mismatch", {"breaks": ["scoring"], "top_p": 0.7}),
    "filtered": ("filtered", {**SMALL, "temperature": 0.9}),
    "best_of_n": ("best_of_n", {"max_new_tokens": 6}),
    "a2c": ("a2c", {"value": "shared"}),
    "reinforce": ("reinforce", {"gamma": 0.9}),
    "rloo": ("rloo", {"group": 2, "top_p": 0.9}),
    "grpo": ("grpo", {"group": 4, "temperature": 0.9}),
}


def case(which, **changes):
    """(module, config, further arguments of init) of one of ``CASES``."""
    name, given = CASES[which]
    module = algorithms.module(name)
    given = {k: v for k, v in {**given, **changes}.items() if k in module.Config.model_fields}
    config = settings(module, **given) if "kl_coef" in module.Config.model_fields else module.Config(**given)
    return module, config, {"tokenizer": Tokenizer()} if name == "supervised" else {}


ALWAYS = {"dropout": {"mode": "same"}, "mismatch": {"breaks": ["scoring"]}}  # what a config cannot do without


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.fixture(params=list(MAKE))
def kind(request):
    return request.param


@pytest.mark.parametrize("name", LEARNERS)
def test_protocol(name):
    module = algorithms.module(name)
    assert module.Config.model_config["frozen"]
    expected = {
        "init": ["policy", "config", "seed"],
        "collect": ["state", "prompts", "score", "config"],
        "update": ["state", "experience", "config"],
        "train": ["state", "prompts", "score", "config"],
    }
    for function, names in expected.items():
        parameters = inspect.signature(getattr(module, function)).parameters
        assert [p for p, v in parameters.items() if v.default is v.empty] == names
    assert inspect.isgeneratorfunction(module.train)
    for field, info in module.Config.model_fields.items():
        assert info.description, f"{name}.Config.{field} has no unit, range and source"


def code_lines(path: Path) -> int:
    """Lines of code, without blank ones, comments, docstrings and the settings (class Config)."""
    text = path.read_text(encoding="utf-8")
    left_out = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and node.name == "Config":
            left_out |= set(range(node.lineno, node.end_lineno + 1))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            left_out |= set(range(node.lineno, node.end_lineno + 1))
    words = [
        t
        for t in tokenize.generate_tokens(io.StringIO(text).readline)
        if t.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)
    ]
    return len({line for word in words for line in range(word.start[0], word.end[0] + 1)} - left_out)


def test_every_learner_is_one_short_file():
    """Every file beside what they share is a learner, and none needs more than a reader takes in at once."""
    folders = (ROOT / "rlnlp" / "learners", ROOT / "workbook" / "arms")
    files = {p.stem: code_lines(p) for folder in folders for p in folder.glob("*.py") if p.stem != "__init__"}
    assert {"ppo", "sac", "bandit"} < set(files) - {"common"} == set(LEARNERS)
    assert not {name: lines for name, lines in files.items() if lines > 150}
    table = re.findall(
        r"^\| (`\w+`(?:, `\w+`)*) \| ([\d, ]+) \|",
        (ROOT / "docs/reference/learners.md").read_text("utf-8"),
        re.MULTILINE,
    )
    said = {
        name: int(lines) for names, counts in table for name, lines in zip(re.findall(r"\w+", names), counts.split(","))
    }
    assert len(said) == 10 and said == {name: files[name] for name in said}, "the page's table of the learners"


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_says_what_it_is(name):
    about = algorithms.module(name).ABOUT
    assert about.label and about.sections and set(about.sections) < {"sampling", "learner", "nlpo", "supervised"}
    assert about.searched_as in ("", *LEARNERS)
    takes = inspect.signature(algorithms.module(name).init).parameters
    assert about.imitates == ("tokenizer" in takes) and not (about.imitates and about.explores)


def test_a_file_is_all_that_a_new_learner_is(tmp_path, monkeypatch):
    (tmp_path / "fresh.py").write_text("from rlnlp.learners.ppo import *\n\nABOUT = 1\n")
    (tmp_path / "helper.py").write_text("x = 1\n")
    with monkeypatch.context() as patch:
        patch.setattr(learners, "__path__", [*learners.__path__, str(tmp_path)])
        algorithms.files.cache_clear()
        assert set(algorithms.names()) == {*LEARNERS, "fresh"} and algorithms.module("fresh").ABOUT == 1
    algorithms.files.cache_clear()
    assert set(algorithms.names()) == set(LEARNERS)
    with pytest.raises(KeyError, match="pppo"):
        algorithms.module("pppo")


@pytest.mark.parametrize("name", [n for n in LEARNERS if n != "supervised"])  # which samples nothing
def test_an_end_that_is_blocked_beyond_the_horizon_is_refused(name):
    module = algorithms.module(name)
    given = ALWAYS.get(name, {})
    assert module.Config(**given, min_new_tokens=6, max_new_tokens=6).min_new_tokens == 6
    with pytest.raises(ValueError, match="min_new_tokens 7: expected at most max_new_tokens"):
        module.Config(**given, min_new_tokens=7, max_new_tokens=6)


@pytest.mark.parametrize("module", [ppo, nlpo])
def test_learning_rate_zero_changes_nothing_and_every_ratio_is_one(kind, module):
    policy = MAKE[kind]()
    before, config = weights(policy), settings(module, learning_rate=0.0, kl_coef=0.1, top_k=20, temperature=0.8)
    state = module.init(policy, config, seed=0)
    for metrics in module.train(state, prompts(32), toy, config):
        assert metrics["policy/ratio_error"] < 1e-4 and metrics["policy/clip_fraction"] == 0
        assert abs(metrics["objective/kl"]) < 1e-5
    assert torch.equal(weights(policy), before)


@pytest.mark.parametrize("which", [c for c in CASES if c != "best_of_n"])
def test_without_a_learning_rate_the_policy_stays_as_it_is(which):
    module, config, more = case(which, learning_rate=0.0, updates=2)
    policy = gpt2()
    before = weights(policy)
    assert len(list(module.train(module.init(policy, config, seed=0, **more), prompts(32), toy, config))) == 2
    assert torch.equal(weights(policy), before)


@pytest.mark.parametrize("source", ["lagged", "random"])
def test_nlpo_at_p_one_is_ppo(kind, source):
    """Same seed, same numbers: the mask path itself adds nothing."""
    results = {}
    masked = {"mask_top_p": 1.0, "sync_every": 2, "mask_source": source}
    for name, module, extra in (("ppo", ppo, {}), ("nlpo", nlpo, masked)):
        policy = MAKE[kind](seed=2)
        config = settings(module, **extra)
        results[name] = (
            list(module.train(module.init(policy, config, seed=1), prompts(32), toy, config)),
            weights(policy),
        )
    for ours, theirs in zip(results["nlpo"][0], results["ppo"][0]):
        for metric, value in theirs.items():
            assert ours[metric] == pytest.approx(value, abs=1e-5), metric
    torch.testing.assert_close(results["nlpo"][1], results["ppo"][1], atol=1e-5, rtol=0)


def test_first_gradient_is_the_policy_gradient(kind):
    policy = MAKE[kind]()
    config = settings(ppo, value_coef=0.0)
    state = ppo.init(policy, config, seed=0)
    seen = ppo.collect(state, prompts(16), toy, config)
    loss, _ = ppo.minibatch_loss(state, seen, config)
    ours = torch.autograd.grad(loss, list(policy.parameters()), allow_unused=True)
    mask = seen.rollout.mask
    logits = models.head(policy, models.hidden_states(policy, seen.rollout)[mask])
    plain = -(models.chosen_logprobs(logits, seen.rollout.responses[mask]) * seen.advantages[mask]).mean()
    true = torch.autograd.grad(plain, list(policy.parameters()), allow_unused=True)
    assert max(g.abs().max() for g in true if g is not None) > 1e-3
    for mine, other in zip(ours, true):
        if other is not None:
            torch.testing.assert_close(mine, other, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("other", [0, 9])
@pytest.mark.parametrize("name", [n for n in LEARNERS if "kl_target" in algorithms.module(n).Config.model_fields])
def test_an_adaptive_beta_takes_a_step_at_each_update(name, other):
    """Down where the policy is at the reference, up where it is far from it; told is the beta that was used."""
    module = algorithms.module(name)
    config = settings(module, updates=2, kl_coef=0.1, kl_target=0.01, kl_gain=0.5, **ALWAYS.get(name, {}))
    state = module.init(gpt2(), config, seed=0)
    models.sync(state.reference, gpt2(seed=other))
    first, second = module.train(state, prompts(32), toy, config)
    off = (first["objective/kl"] - 0.01) / 0.01
    assert off > 0.2 if other or name == "dropout" else off < -0.2  # whose reference drops nothing
    assert first["objective/kl_coef"] == 0.1
    assert second["objective/kl_coef"] == pytest.approx(0.1 * (1 + 0.5 * math.copysign(0.2, off)))


@pytest.mark.parametrize("name", [n for n in LEARNERS if n not in ("supervised", "best_of_n")])
def test_every_update_draws_its_responses_anew(name):
    """To the same prompts, from the same weights. Of the two left out, one draws none and one has no updates."""
    module = algorithms.module(name)
    given = {"max_new_tokens": 6, **ALWAYS.get(name, {})}
    config = settings(module, **given) if "kl_coef" in module.Config.model_fields else module.Config(**given)
    state, drawn = module.init(gpt2(), config, seed=0), []
    for state.update in (0, 1, 0):
        drawn.append(module.collect(state, prompts(16), toy, config).rollout.responses.tolist())
    assert drawn[0] == drawn[2] != drawn[1]


def test_every_update_draws_its_random_mask_anew():
    """A first token's mask is of the prompt and the mask's own numbers alone."""
    config = settings(nlpo, mask_source="random", mask_top_p=0.5)
    state, masks = nlpo.init(gpt2(), config, seed=0), []
    for state.update in (0, 1, 0):
        masks.append(nlpo.rollout(state, prompts(16), config).allowed.bits[:, 0].tolist())
    assert masks[0] == masks[2] != masks[1]


@pytest.mark.parametrize("module", [ppo, trpo])
def test_every_update_draws_its_minibatches_anew(module, monkeypatch):
    config = settings(module, learning_rate=0.0)
    state, cut, real = module.init(gpt2(), config, seed=0), [], module.gradient_step
    seen = module.collect(state, prompts(16), toy, config)
    seen = dataclasses.replace(seen, advantages=torch.zeros_like(seen.advantages))  # TRPO's step has no rate
    monkeypatch.setattr(
        module, "gradient_step", lambda *given: cut[-1].append(given[3].prompts.example_ids) or real(*given)
    )
    for state.update in (0, 1, 0):
        cut.append([])
        module.update(state, seen, config)
    assert cut[0] == cut[2] != cut[1] and sorted(sum(cut[0][:2], [])) == sorted(seen.rollout.prompts.example_ids)


def test_the_value_network_has_a_rate_of_its_own_where_one_is_given():
    for given, rates in ((0.02, [0.003, 0.02]), (0.0, [0.003, 0.003])):
        config = settings(ppo, learning_rate=0.003, value_learning_rate=given)
        state = ppo.init(gpt2(), config, seed=0)
        assert [group["lr"] for group in state.optimizer.param_groups] == rates
        held = {id(p) for p in state.policy.parameters()}
        assert [{id(p) in held for p in group["params"]} for group in state.optimizer.param_groups] == [{True}, {False}]


def test_what_is_said_of_a_rollout_is_of_its_tokens_and_of_its_episodes():
    """By hand, of a response that was cut after two tokens and one that ends at once, in a table of three columns."""
    drawn = as_rollout([(2, 3), (EOS,)], torch.tensor([4]), 3)
    log_ratio = torch.tensor([[0.1, 0.3, 0.0], [0.2, 0.0, 0.0]])
    drawn = dataclasses.replace(
        drawn,
        behavior_logprobs=torch.tensor([[-1.0, -2.0, 0.0], [-3.0, 0.0, 0.0]]),
        logprobs=(logprobs := torch.tensor([[-1.5, -2.5, 0.0], [-4.0, 0.0, 0.0]])),
    )
    values, returns = torch.tensor([[1.0, 3, 0], [2, 0, 0]]), torch.tensor([[1.0, 3, 0], [5, 0, 0]])
    rewards, none = torch.tensor([[1.0, 2, 0], [4, 0, 0]]), torch.zeros(2, 3)
    seen = Experience(drawn, torch.tensor([3.0, 5.0]), {}, logprobs - log_ratio, none, rewards, values, none, returns)
    expected = {
        "objective/score": 4.0,
        "objective/kl": 0.2,
        "objective/kl_per_episode": 0.3,
        "objective/kl_coef": 0.7,
        "objective/reward": 3.5,
        "objective/entropy": 2.0,
        "value/explained_variance": 0.25,  # 1 - Var(0, 0, 3) / Var(1, 3, 5)
        "episodes/length": 1.5,
        "episodes/terminated": 0.5,
    }
    assert common.describe(SimpleNamespace(kl=KLCoefficient(0.7)), seen) == pytest.approx(expected)


# the three bugs of the original's NLPO --------------------------------------------------------------------------------


def test_a_mask_sync_reaches_the_very_next_sample(kind):
    """Bug A: the original's sampler keeps the first mask model for ever."""
    policy = MAKE[kind](seed=0)
    config = settings(nlpo, mask_top_p=0.5, sync_every=5)
    state = nlpo.init(policy, config, seed=0)
    batch = prompts(32)
    before = nlpo.rollout(state, batch, config)
    models.sync(policy, MAKE[kind](seed=9))  # the policy moves far; the mask model does not yet
    models.sync(state.mask_model, state.policy)
    after = nlpo.rollout(state, batch, config)
    fresh = sample(
        policy, batch, state.sampling, ppo.generator(0, "rollout", 0), mask_model=policy, mask_rule=top_p(0.5)
    )
    assert torch.equal(after.responses, fresh.responses) and torch.equal(after.allowed.bits, fresh.allowed.bits)
    assert not torch.equal(before.responses[:, : after.responses.shape[1]], after.responses)


def test_sync_happens_on_schedule_and_not_between():
    """Before updates 1, 4 and 7; after the last update the mask model is the one the last rollouts used."""
    policy = gpt2()
    config = settings(nlpo, sync_every=3, updates=8)
    state = nlpo.init(policy, config, seed=0)
    history = [weights(policy)]
    for metrics in nlpo.train(state, prompts(32), toy, config):
        history.append(weights(policy))
        since = (metrics["update"] - 1) // 3 * 3
        assert metrics["nlpo/synced"] == (metrics["update"] - 1 == since)
        assert torch.equal(weights(state.mask_model), history[since])
    assert not torch.equal(weights(state.mask_model), weights(policy))


def test_a_sync_that_does_not_reach_the_sampler_stops_the_run(monkeypatch):
    policy = gpt2()
    config = settings(nlpo, mask_top_p=0.5, sync_every=2, learning_rate=3e-2)
    state = nlpo.init(policy, config, seed=0)
    monkeypatch.setattr(nlpo.models, "sync", lambda target, source: None)  # the original's bug
    with pytest.raises(
        common.TrainingError, match="update 3: the mask model was synced and the sampler does not use it"
    ):
        list(nlpo.train(state, prompts(32), toy, config))


@pytest.mark.parametrize("source, random", [("lagged", False), ("initial", False), ("random", True)])
def test_nlpo_is_deployed_under_the_mask_it_was_trained_with(source, random):
    config = settings(nlpo, mask_min_tokens=7, mask_top_p=0.8, mask_source=source)
    assert nlpo.decoding(config) == {"mask_top_p": 0.8, "mask_min_tokens": 7, "mask_random": random}


def test_masked_log_probabilities_are_renormalised(kind):
    """Bug B: the original scores with the unnormalised log-probabilities; then their sum over allowed tokens is below
    1."""
    policy, config = MAKE[kind](seed=0), settings(nlpo, mask_top_p=0.4)
    state = nlpo.init(policy, config, seed=0)
    models.sync(state.mask_model, MAKE[kind](seed=9))
    state.update = 1  # no sync is due
    rollout = nlpo.rollout(state, prompts(16), config)
    logits = models.head(policy, models.hidden_states(policy, rollout)[rollout.mask]).detach()
    total = models.behavior_logits(logits, rollout).softmax(-1)
    allowed = rollout.allowed.unpack(rollout.mask)
    torch.testing.assert_close((total * allowed).sum(1), torch.ones(len(total)))
    assert (rollout.behavior_logprobs[rollout.mask] >= rollout.logprobs[rollout.mask] - 1e-5).all()
    assert (rollout.behavior_logprobs[rollout.mask] > rollout.logprobs[rollout.mask] + 0.05).any()


def test_the_mask_model_reads_its_own_encoder_and_cache(kind):
    """Bug C: the original hands the policy's encoder output to the mask model. Expected sets are computed without a
    cache."""
    policy, mask_model = MAKE[kind](seed=0), MAKE[kind](seed=9)
    batch = prompts(6, ragged=False)
    rollout = sample(
        policy, batch, ppo.sampling_from(policy, 5), ppo.generator(0), mask_model=mask_model, mask_rule=top_p(0.5)
    )
    stored, at = rollout.allowed.unpack(rollout.mask), 0
    for row in range(6):
        for t in range(int(rollout.mask[row].sum())):
            prefix = rollout.responses[row, :t]
            with torch.no_grad():
                if kind == "causal":
                    logits = mask_model(torch.cat([batch.ids[row], prefix])[None]).logits[:, -1]
                else:
                    start = torch.tensor([mask_model.config.decoder_start_token_id])
                    logits = mask_model(
                        input_ids=batch.ids[row : row + 1], decoder_input_ids=torch.cat([start, prefix])[None]
                    ).logits[:, -1]
            expected = top_p(0.5)(logits, None)[1][0]
            assert torch.equal(stored[at], expected), (
                f"row {row}, token {t}: the mask is not the mask model's own nucleus"
            )
            at += 1


# stopping, resuming
# -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", CASES)
def test_resumed_equals_uninterrupted(kind, which):
    module, config, more = case(which, kl_target=0.01)
    policy = MAKE[kind]()
    whole = module.init(policy, config, 3, **more)
    curve = list(module.train(whole, prompts(32), toy, config))
    assert len(curve) == (0 if which == "best_of_n" else 6)
    state = module.init(MAKE[kind](), config, 3, **more)
    running = module.train(state, prompts(32), toy, config)
    first = list(itertools.islice(running, 3))
    tensors, numbers = checkpoint.pack(state)
    tensors = {k: v.clone() for k, v in tensors.items()}
    resumed = module.init(MAKE[kind](), config, 3, **more)
    checkpoint.unpack(resumed, tensors, numbers)
    assert first + list(module.train(resumed, prompts(32), toy, config)) == curve
    assert torch.equal(weights(resumed.policy), weights(policy))


def test_a_broken_ratio_stops_the_run_unless_the_experiment_says_so(monkeypatch):
    policy = gpt2()
    config = settings(ppo)
    state = ppo.init(policy, config, seed=0)
    seen = ppo.collect(state, prompts(16), toy, config)
    wrong = dataclasses.replace(
        seen,
        rollout=dataclasses.replace(
            seen.rollout, behavior_logprobs=seen.rollout.behavior_logprobs - 0.01 * seen.rollout.mask
        ),
    )
    with pytest.raises(common.TrainingError, match="update 1: the ratio of the first minibatch is off 1 by 0.01"):
        ppo.update(state, wrong, config)
    metrics = ppo.update(state, wrong, settings(ppo, breaks=("ratio",)))
    assert metrics["policy/first_ratio_error"] == pytest.approx(0.01, abs=1e-3)


def test_a_non_finite_loss_names_update_and_examples():
    policy, config = gpt2(), settings(ppo, breaks=("ratio",))
    state = ppo.init(policy, config, seed=0)
    seen = ppo.collect(state, prompts(16), toy, config)
    with torch.no_grad():
        policy.transformer.ln_f.weight.fill_(float("nan"))
    with pytest.raises(common.Diverged, match=r"update 1: the loss is nan; examples of this minibatch: example-\d+"):
        ppo.update(state, seen, config)


@pytest.mark.parametrize("which", [c for c in CASES if c not in ("best_of_n", "supervised", "filtered")])
def test_a_policy_that_breaks_while_it_samples_has_diverged(which):
    module, config, more = case(which)
    policy = gpt2()
    state = module.init(policy, config, seed=0, **more)
    running = module.train(state, prompts(32), toy, config)
    next(running)
    with torch.no_grad():
        policy.transformer.ln_f.weight.fill_(float("nan"))
    with pytest.raises(common.Diverged, match="update 2: .*not finite"):
        next(running)


@pytest.mark.parametrize("which", ["ppo", "supervised"])
def test_a_gradient_that_is_not_finite_changes_nothing(which):
    module, config, more = case(which)
    policy = gpt2()
    before = weights(policy)
    state = module.init(policy, config, seed=0, **more)
    policy.transformer.h[0].ln_1.bias.register_hook(lambda grad: grad * float("inf"))
    with pytest.raises(common.Diverged, match=r"update 1: the gradient norm is (nan|inf); examples"):
        list(module.train(state, prompts(32), toy, config))
    assert torch.equal(weights(policy), before)


def test_same_seed_same_numbers(kind):
    runs = []
    for _ in range(2):
        policy, config = MAKE[kind](), settings(nlpo)
        runs.append(list(nlpo.train(nlpo.init(policy, config, seed=5), prompts(32), toy, config)))
    assert runs[0] == runs[1]


# learning
# ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["separate", "shared"])
@pytest.mark.parametrize("module", [ppo, nlpo])
def test_learns_the_toy(kind, module, value):
    """Share of one token among 24: 0.04 by chance; must pass 0.8 within 40 updates of 32 episodes."""
    policy = MAKE[kind](24, spread={"causal": 0.02, "encoder-decoder": 0.3}[kind])
    config = settings(
        module,
        updates=40,
        episodes_per_update=32,
        epochs=4,
        learning_rate=1e-2,
        kl_coef=0.0,
        value=value,
        gamma=1.0,
        min_new_tokens=6,
    )
    state = module.init(policy, config, seed=0)
    curve = [m["objective/score"] for m in module.train(state, prompts(32, vocabulary=24), toy, config)]
    assert curve[0] < 0.2 and max(curve[-5:]) > 0.8, curve


def test_supervised_learns_its_references(kind):
    class Tokenizer:
        def __call__(self, text, add_special_tokens):
            return {"input_ids": [9, 8, 7]}

    policy = MAKE[kind](24)
    config = supervised.Config(updates=60, episodes_per_update=16, learning_rate=1e-2, max_new_tokens=6)
    state = supervised.init(policy, config, 0, tokenizer=Tokenizer())
    curve = [m["supervised/loss"] for m in supervised.train(state, prompts(32, vocabulary=24), None, config)]
    assert curve[0] > 1 and curve[-1] < 0.1
    rollout = sample(policy, prompts(8, vocabulary=24), state.sampling, ppo.generator(0))
    assert rollout.responses[:, :3].tolist() == [[9, 8, 7]] * 8 and rollout.terminated.all()


def test_kl_penalty_holds_the_policy_back():
    ends = {}
    for beta in (0.0, 1.0):
        policy = gpt2(24, spread=0.02)
        config = settings(ppo, updates=15, learning_rate=1e-2, kl_coef=beta, min_new_tokens=6, gamma=1.0)
        state = ppo.init(policy, config, seed=0)
        ends[beta] = list(ppo.train(state, prompts(32, vocabulary=24), toy, config))[-1]
    assert ends[1.0]["objective/kl"] < 0.2 * ends[0.0]["objective/kl"]
    assert ends[1.0]["objective/score"] < ends[0.0]["objective/score"]


def test_no_gradient_is_held_during_the_next_forward_pass():
    """At 117M parameters that would be a gigabyte more at the peak."""
    policy, config = gpt2(), settings(ppo, epochs=2, minibatches=3)
    state = ppo.init(policy, config, seed=0)
    seen, real, looked = ppo.collect(state, prompts(16), toy, config), ppo.minibatch_loss, []

    def watch(s, b, c):
        looked.append([p for group in s.optimizer.param_groups for p in group["params"] if p.grad is not None])
        return real(s, b, c)

    ppo.update(state, seen, config, watch)
    assert len(looked) == 6 and not any(looked) and all(p.grad is None for p in policy.parameters())


def test_minibatches_use_every_episode_once_an_epoch():
    policy, config = gpt2(), settings(ppo, epochs=1, minibatches=3)
    state = ppo.init(policy, config, seed=0)
    seen, used = ppo.collect(state, prompts(16), toy, config), []
    real = ppo.minibatch_loss
    ppo.update(state, seen, config, lambda s, b, c: used.extend(b.rollout.prompts.example_ids) or real(s, b, c))
    assert sorted(used) == sorted(seen.rollout.prompts.example_ids)
