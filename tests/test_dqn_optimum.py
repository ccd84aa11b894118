"""Deep Q-learning against dynamic programming on the enumerated MDP, and its exploring and its restrictions against
their definitions."""

import pytest
import torch
from scipy.stats import chisquare

from rlnlp import models, samplers, vocabulary
from rlnlp.learners import dqn
from rlnlp.offpolicy import exploration, td
from rlnlp.rollout import draw, sample
from tests import enumerated
from tests.dqn_made import TARGET, settings, shallow, toy
from tests.enumerated import RESPONSES, STATES, T, V, ends
from tests.tiny import EOS, MAKE, prompts


@pytest.fixture(params=list(MAKE))
def kind(request):
    return request.param


# the enumerated MDP
# ------------------------------------------------------------------------------------------------------


def small(kind, seed=0):
    """A model of the enumerated MDP. The encoder-decoder starts from a token of its own, which cannot be chosen:
    without absolute positions it could not tell a response of start tokens from none."""
    if kind == "causal":
        return MAKE[kind](V, seed=seed, spread=0.12, layers=1)
    model = MAKE[kind](V + 1, seed=seed, spread=0.4, layers=1)
    model.config.decoder_start_token_id = V
    vocabulary.limit_vocabulary(model, list(range(V)))
    return model


def enumerated_state(kind, **changes):
    """A learner whose replay holds all 40 responses, and the scores they are paid at the end."""
    config = settings(**{"max_new_tokens": T, "episodes_per_update": 40, "scale": 0.25, "target_every": 5, **changes})
    state, scores = dqn.init(small(kind), config, seed=0), enumerated.some_scores()
    rewards = torch.zeros(len(RESPONSES), T)
    for row, response in enumerate(RESPONSES):
        rewards[row, len(response) - 1] = scores[response]
    state.replay.add(enumerated.all_episodes(), rewards)
    return state, config, scores


PAIRS = [response[: t + 1] for response in RESPONSES for t in range(len(response))]  # as the replay holds them
ONCE = [PAIRS.index(pair) for pair in dict.fromkeys(PAIRS)]  # each (state, token) one time


@torch.no_grad()
def q_table(model, scale):
    """Q of every state by one plain forward of the whole model each."""
    tables = {}
    for state in STATES:
        if model.config.is_encoder_decoder:
            decoder = torch.tensor([[model.config.decoder_start_token_id, *state]])
            logits = model(input_ids=enumerated.PROMPT[None], decoder_input_ids=decoder).logits
        else:
            logits = model(torch.cat([enumerated.PROMPT, torch.tensor(state, dtype=torch.long)])[None]).logits
        tables[state] = scale * logits[0, -1, :V].double()
    return tables


def nucleus_of(model, p):
    """{state: tokens} of the model's nuclei, by a plain loop."""
    out = {}
    for state, row in enumerated.probs(model).items():
        kept, mass = set(), 0.0
        for token in row[:V].argsort(descending=True).tolist():
            kept.add(token)
            mass += row[token].item()
            if mass >= p:
                break
        out[state] = kept
    return out


def train_on_everything(state, config, which, steps, learning_rate):
    """Gradient steps on the transitions ``which``, all of them in every step, with a falling learning rate."""
    everything = state.replay.transitions(torch.tensor(which), config.n_step, config.gamma)
    state.replay.sample = lambda *_: everything
    for step in range(steps):
        for group in state.optimizer.param_groups:
            group["lr"] = learning_rate * min(1.0, 2 * (1 - step / steps))
        dqn.gradient_step(state, config)
    return q_table(state.policy, config.scale)


def largest_error(found, true):
    return max((found[state] - true[state]).abs().max().item() for state in STATES)


CONVERGES = {  # name: (architecture, settings, steps, learning rate); within 0.03 of scores that lie in [-1, 1]
    "report": ("causal", {}, 140, 3e-3),
    "encoder-decoder": ("encoder-decoder", {}, 200, 4e-3),
    "logits": ("causal", {"head": "logits"}, 200, 2e-3),
    "frozen": ("causal", {"trunk": "frozen"}, 200, 2e-3),
    "double": ("causal", {"double": True, "gamma": 0.8}, 140, 3e-3),
    "truncated": ("causal", {"max_rule": "top_k", "max_value": 2}, 140, 3e-3),
}


@pytest.mark.parametrize("name", CONVERGES)
def test_it_converges_to_the_optimum_of_dynamic_programming(name):
    kind, changes, steps, learning_rate = CONVERGES[name]
    state, config, scores = enumerated_state(kind, **changes)
    allowed = None
    if "max_rule" in changes:
        reference = enumerated.probs(state.reference)
        allowed = {s: set(reference[s].topk(2).indices.tolist()) for s in STATES}
        _, unrestricted = enumerated.optimal_values(enumerated.paid_at_end(scores), config.gamma)
    _, true = enumerated.optimal_values(enumerated.paid_at_end(scores), config.gamma, allowed)
    if allowed:
        assert largest_error(unrestricted, true) > 0.2  # the restriction matters here
    before = largest_error(q_table(state.policy, config.scale), true)
    error = largest_error(train_on_everything(state, config, ONCE, steps, learning_rate), true)
    assert error < 0.03 < 0.5 < before, error


def test_n_steps_converge_to_the_value_of_the_data_then_the_best():
    """Two rewards along the stored responses, then the best token: with n = T the mean return of what was stored."""
    state, config, scores = enumerated_state("causal", n_step=2, gamma=0.9)
    reward = enumerated.paid_at_end(scores)
    taken = {s: torch.tensor([float(sum(p == (*s, a) for p in PAIRS)) for a in range(V)]).double() for s in STATES}
    taken = {s: counts / counts.sum() for s, counts in taken.items()}
    q = {}

    def following(s, a):  # what comes after the first of two rewards
        if ends(s, a):
            return 0.0
        after = (*s, a)
        second = [
            reward(after, b) + (0.0 if ends(after, b) else config.gamma * q[(*after, b)].max().item()) for b in range(V)
        ]
        return (taken[after] * torch.tensor(second).double()).sum().item()

    for s in reversed(STATES):
        q[s] = torch.tensor([reward(s, a) + config.gamma * following(s, a) for a in range(V)]).double()
    one_step = enumerated.optimal_values(reward, config.gamma)[1]
    assert largest_error(q, one_step) > 0.2
    error = largest_error(train_on_everything(state, config, range(len(PAIRS)), 300, 2e-3), q)
    assert error < 0.01, error


BACKUPS = {
    "one step": {"gamma": 0.9},
    "two steps": {"n_step": 2, "gamma": 0.9},
    "to the end": {"n_step": 24},
    "double": {"double": True, "gamma": 0.9},
    "frozen trunk": {"trunk": "frozen", "double": True},
    "truncated": {"max_rule": "top_p", "max_value": 0.4},
    "truncated double": {"max_rule": "top_p", "max_value": 0.4, "double": True},
    "no end before two tokens": {"min_new_tokens": 2},
    "gamma 0": {"gamma": 0.0},
}


@pytest.mark.parametrize("name", BACKUPS)
def test_a_target_is_the_enumerated_backup_of_the_target_network(kind, name):
    state, config, scores = enumerated_state(kind, **BACKUPS[name])
    numbers = torch.Generator().manual_seed(4)
    with torch.no_grad():  # three different networks; under a frozen trunk two heads
        networks = ((state.policy, 0.05), (state.target, 0.05)) if config.trunk == "trained" else ()
        for model, size in (
            *networks,
            (state.policy.get_output_embeddings(), 0.3),
            (state.target.get_output_embeddings(), 0.3),
        ):
            for p in model.parameters():
                p.add_(size * torch.randn(p.shape, generator=numbers))
        if config.min_new_tokens:  # the end is the best token, where it may not be chosen too
            state.target.get_output_embeddings().layers[-1].bias[EOS] += 2.0
    online, target = q_table(state.policy, config.scale), q_table(state.target, config.scale)
    nuclei = nucleus_of(state.reference, 0.4) if config.max_rule != "none" else {s: set(range(V)) for s in STATES}
    batch = state.replay.transitions(torch.arange(len(PAIRS)), config.n_step, config.gamma)
    with torch.no_grad():
        found = dqn.targets(state, batch, config, models.hidden_states(state.policy, batch.episodes))
    expected, differs = [], 0
    for response in RESPONSES:
        for t in range(len(response)):
            left = len(response) - t
            y = sum(
                config.gamma**k * scores[response] * (t + k == len(response) - 1)
                for k in range(min(config.n_step, left))
            )
            if left > config.n_step:
                s = response[: t + config.n_step]
                can = [a for a in sorted(nuclei[s]) if a != EOS or len(s) >= config.min_new_tokens]
                best = max(can, key=lambda a: (online if config.double else target)[s][a])
                differs += best != int(target[s].argmax())
                y += config.gamma**config.n_step * target[s][best].item()
            expected.append(y)
    torch.testing.assert_close(found.double(), torch.tensor(expected).double(), atol=1e-4, rtol=0)
    if name in ("double", "truncated", "truncated double", "no end before two tokens"):
        assert differs  # else the test could not tell it from the plain maximum


def test_the_loss_is_the_mean_square_and_its_gradient_stops_at_the_target(kind):
    state, config, _ = enumerated_state(kind, head="logits", gamma=0.9)  # policy and target are equal and so is their Q
    batch = state.replay.transitions(torch.arange(len(PAIRS)), 1, config.gamma)
    loss, values = dqn.loss_of(state, batch, config)
    hidden = models.hidden_states(state.policy, batch.episodes)
    y = dqn.targets(state, batch, config, hidden.detach())
    online = q_table(state.policy, config.scale)
    q = torch.tensor([online[pair[:-1]][pair[-1]] for pair in PAIRS])
    torch.testing.assert_close(values.double(), q.double(), atol=1e-5, rtol=0)
    assert loss.item() == pytest.approx(((y - q) ** 2).mean().item(), abs=1e-5)
    loss.backward()
    gradient = models.head(state.policy, hidden[batch.rows, batch.steps]).gather(1, batch.tokens[:, None])[:, 0]
    by_hand = (2 * (values - y) / len(y) * config.scale * gradient).sum()
    direct = torch.autograd.grad(by_hand, list(state.policy.parameters()), allow_unused=True)
    for p, g in zip(state.policy.parameters(), direct):
        if g is not None:
            torch.testing.assert_close(p.grad, g, atol=1e-6, rtol=1e-4)
    assert all(p.grad is None for p in (*state.target.parameters(), *state.reference.parameters()))


def test_targets_by_hand():
    q = torch.tensor([[1.0, 3.0, 2.0], [5.0, -torch.inf, 4.0]])
    assert td.best_value(q).tolist() == [3.0, 5.0]
    assert td.best_value(q, torch.tensor([[9.0, 0.0, 0.0], [0.0, -torch.inf, 1.0]])).tolist() == [1.0, 4.0]
    y = td.targets(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.0]), torch.tensor([3.0, 100.0]))
    assert y.tolist() == [2.5, 2.0]
    assert td.td_loss(torch.tensor([2.0, 2.0]), y).item() == 0.125
    assert td.n_step_returns(torch.tensor([[1.0, 2.0, 4.0]]), 0.5).tolist() == [3.0]
    assert td.n_step_returns(torch.tensor([[1.0, 2.0, 4.0]]), 0.0).tolist() == [1.0]


def test_the_kl_is_that_of_the_softmax_of_the_values_when_collected(kind):
    config = settings(max_new_tokens=T, kl_coef=0.3, scale=0.25, gamma=0.9)
    state, scores = dqn.init(small(kind), config, seed=0), enumerated.some_scores()
    seen = dqn.collect(state, enumerated.start(30), enumerated.as_score(scores), config)
    q, ref = q_table(state.policy, config.scale), enumerated.logprobs(state.reference)
    table = {s: (row / config.scale).log_softmax(-1) for s, row in q.items()}
    reward = enumerated.with_kl(enumerated.paid_at_end(scores), 0.3, table, {s: row[:V] for s, row in ref.items()})
    for row, keep, paid, value, advantage, to_go in zip(
        seen.rollout.responses, seen.rollout.mask, seen.rewards, seen.values, seen.advantages, seen.returns
    ):
        tokens = tuple(row[keep].tolist())
        expected = [reward(tokens[:t], tokens[t]) for t in range(len(tokens))]
        assert paid[keep].tolist() == pytest.approx(expected, abs=1e-4)
        assert value[keep].tolist() == pytest.approx([q[tokens[:t]].max().item() for t in range(len(tokens))], abs=1e-4)
        chosen = [(q[tokens[:t]][tokens[t]] - q[tokens[:t]].max()).item() for t in range(len(tokens))]
        assert advantage[keep].tolist() == pytest.approx(chosen, abs=1e-4)
        assert to_go[0].item() == pytest.approx(sum(0.9**t * r for t, r in enumerate(expected)), abs=1e-4)


# exploring and restricting
# -----------------------------------------------------------------------------------------------


def test_epsilon_falls_linearly_and_then_stays():
    config = settings(epsilon_start=1.0, epsilon_end=0.2, epsilon_updates=4)
    assert [round(dqn.epsilon(update, config), 6) for update in (0, 1, 2, 4, 5, 100)] == [1.0, 0.8, 0.6, 0.2, 0.2, 0.2]
    assert dqn.epsilon(0, settings(epsilon_start=1.0, epsilon_end=0.2, epsilon_updates=0)) == pytest.approx(0.2)


@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize("restricted", [False, True])
def test_tokens_are_drawn_with_the_probabilities_that_epsilon_says(greedy, restricted):
    logits = torch.tensor([0.1, 1.5, -0.4, 0.9, 0.2]).expand(4000, -1).clone()
    if restricted:
        logits[:, 1] = -torch.inf
    _, allowed, _ = exploration.exploring(0.4, greedy, torch.Generator().manual_seed(0))(logits)
    left = logits.masked_fill(~allowed, -torch.inf)
    numbers = torch.rand(4000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    tokens = draw(left, numbers)
    can = [0, 2, 3, 4] if restricted else [0, 1, 2, 3, 4]
    best = 3 if restricted else 1
    soft = logits[0].double().softmax(-1).tolist()
    expected = [0.6 * ((token == best) if greedy else soft[token]) + 0.4 / len(can) for token in can]
    counts = [int((tokens == token).sum()) for token in can]
    assert sum(counts) == 4000
    assert chisquare(counts, [4000 * p for p in expected]).pvalue > 1e-3


def test_tokens_that_a_smaller_vocabulary_lacks_are_never_tried(kind):
    policy, config = shallow(kind), settings(epsilon_start=1.0, epsilon_end=1.0)
    vocabulary.limit_vocabulary(policy, [EOS, 3, TARGET, 9])
    state = dqn.init(policy, config, seed=0)
    rollout = dqn.rollout(state, prompts(32), config)
    assert set(rollout.responses[rollout.mask].tolist()) == {EOS, 3, TARGET, 9}
    assert list(dqn.train(state, prompts(16), toy, config))[-1]["dqn/q_mean"] > -10
    drawn = sample(policy, prompts(32), state.sampling, torch.Generator().manual_seed(0))
    assert set(drawn.responses[drawn.mask].tolist()) <= {EOS, 3, TARGET, 9}


def one_by_one(model, rule, rollout, row, steps):
    """What ``rule`` allows before each of the first ``steps`` tokens of a row, by uncached forwards and its own
    memory."""
    memory, out = None, []
    ids = rollout.prompts.ids[row][rollout.prompts.mask[row]]
    for t in range(steps):
        prefix = rollout.responses[row, :t]
        with torch.no_grad():
            if model.config.is_encoder_decoder:
                start = torch.tensor([model.config.decoder_start_token_id])
                logits = model(input_ids=ids[None], decoder_input_ids=torch.cat([start, prefix])[None]).logits[:, -1]
            else:
                logits = model(torch.cat([ids, prefix])[None]).logits[:, -1]
        if t < rollout.sampling.min_new_tokens:
            logits[:, EOS] = -torch.inf
        _, allowed, memory = rule(logits, memory)
        memory = None if memory is None else memory.observe(rollout.responses[row, t : t + 1])
        out.append(allowed[0])
    return out


RULES = {
    "top_k": 5,
    "top_p": 0.8,
    "min_p": 0.1,
    "typical": 0.7,
    "epsilon": 0.01,
    "eta": 0.01,
    "mirostat": 2.0,
    "none": 0.0,
}


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_restricts_the_maximum_to_what_it_allows_under_the_reference(kind, rule):
    assert set(RULES) == set(samplers.RULES)
    config = settings(
        explore_rule=rule, explore_value=RULES[rule], max_rule=rule, max_value=RULES[rule], min_new_tokens=2
    )
    state = dqn.init(shallow(kind), config, seed=0)
    state.update = 2
    rollout = dqn.rollout(state, prompts(8), config)
    named, tried = samplers.named(rule, RULES[rule]), 0
    rows, steps = rollout.mask.nonzero().unbind(1)
    found = exploration.allowed_at(state.reference, named, rollout, rows, steps)
    for row in range(8):
        expected = one_by_one(state.reference, named, rollout, row, int(rollout.mask[row].sum()))
        for t, allowed in enumerate(expected):
            assert torch.equal(found[(rows == row) & (steps == t)][0], allowed), (row, t)
            assert allowed[rollout.responses[row, t]], "a token was tried that the rule does not allow"
            tried += 1
    assert tried > 20
    assert (state.mask_model is None) == (rule == "none") and (rule == "none" or state.mask_model is state.reference)
    assert rule == "none" or not found.all()


@pytest.mark.parametrize("explore", ["greedy", "softmax"])
def test_epsilon_zero_follows_the_policy(kind, explore):
    config = settings(head="logits", epsilon_start=0.0, epsilon_end=0.0, explore=explore, min_new_tokens=2)
    policy = shallow(kind)
    state = dqn.init(policy, config, seed=0)
    rollout = dqn.rollout(state, prompts(8), config)
    rule = samplers.top_k(1) if explore == "greedy" else None
    plain = sample(policy, prompts(8), state.sampling, dqn.generator(0, "rollout", 0), rule)
    assert torch.equal(rollout.responses, plain.responses)
