"""The token MDP of ``tiny.py`` (4 tokens, horizon 3, one prompt) solved exactly, by plain loops over its 13 states.

Nothing here uses the package's maths: models are read by one uncached forward of the whole model per state, values are
backward induction in float64. A state is the tuple of response tokens so far; an episode ends at EOS or at the horizon.
Tables are ``dict[state, Tensor [V]]`` (one number per token) or ``dict[state, float]``. A reward is a function
``(state, token) -> float``; ``paid_at_end`` makes one from the scores of whole responses.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from rlnlp.types import Prompts, Rollout
from tests.tiny import EOS, as_rollout, every_response

V, T, PROMPT = 4, 3, torch.tensor([2, 3])
State = tuple[int, ...]
Table = dict[State, torch.Tensor]
Reward = Callable[[State, int], float]

RESPONSES = every_response(V, T)  # 40
STATES: list[State] = sorted(
    {r[:t] for r in RESPONSES for t in range(len(r))}, key=lambda s: (len(s), s)
)  # 13, roots first


def ends(state: State, token: int) -> bool:
    """Whether choosing ``token`` in ``state`` ends the episode."""
    return token == EOS or len(state) + 1 == T


# the package's types, filled with the MDP's episodes
# ---------------------------------------------------------------------


def all_episodes() -> Rollout:
    """Each of the 40 responses once, in the order of ``RESPONSES``; log-probabilities are zero."""
    return as_rollout(RESPONSES, PROMPT, T)


def start(n: int) -> Prompts:
    """The MDP's prompt ``n`` times."""
    return as_rollout([(EOS,)] * n, PROMPT, T).prompts


def some_scores(seed: int = 5) -> dict[State, float]:
    """A score in [-1, 1] for every response, in no order that a model could guess."""
    order = torch.randperm(len(RESPONSES), generator=torch.Generator().manual_seed(seed))
    return dict(zip(RESPONSES, torch.linspace(-1, 1, len(RESPONSES), dtype=torch.float64)[order].tolist()))


def as_score(scores: dict[State, float]):
    """The scores as the function that learners take: a rollout to ([B], no parts)."""

    def score(rollout):
        rows = [tuple(row[keep].tolist()) for row, keep in zip(rollout.responses, rollout.mask)]
        return torch.tensor([scores[row] for row in rows]), {}

    return score


# the model's distributions
# -----------------------------------------------------------------------------------------------


def logprobs_at(model, state: State) -> torch.Tensor:
    """log pi(. | prompt, state) [V], differentiable, by one plain forward of the whole model."""
    if model.config.is_encoder_decoder:
        decoder = torch.tensor([[model.config.decoder_start_token_id, *state]])
        logits = model(input_ids=PROMPT[None], decoder_input_ids=decoder).logits
    else:
        logits = model(torch.cat([PROMPT, torch.tensor(state, dtype=torch.long)])[None]).logits
    return logits[0, -1].log_softmax(-1)


def logprobs(model) -> Table:
    """log pi(. | s) [V] float64 of every state."""
    with torch.no_grad():
        return {state: logprobs_at(model, state).double() for state in STATES}


def probs(model) -> Table:
    """pi(. | s) [V] float64 of every state."""
    return {state: row.exp() for state, row in logprobs(model).items()}


def visits(policy: Table) -> dict[State, float]:
    """The probability that an episode of ``policy`` (probabilities) passes through each state."""
    reached = {(): 1.0}
    for state in STATES:
        for token in range(V):
            if not ends(state, token):
                reached[(*state, token)] = reached[state] * policy[state][token].item()
    return reached


# rewards
# -----------------------------------------------------------------------------------------------------------------


def paid_at_end(scores: dict[State, float]) -> Reward:
    """The score of the whole response, paid at its last token."""
    return lambda state, token: scores[(*state, token)] if ends(state, token) else 0.0


def with_kl(reward: Reward, beta: float, policy: Table, reference: Table) -> Reward:
    """reward - beta (log pi - log pi_ref) of the token; both tables are log-probabilities."""
    return lambda state, token: reward(state, token) - beta * (policy[state][token] - reference[state][token]).item()


# dynamic programming
# -----------------------------------------------------------------------------------------------------


def backward(
    reward: Reward, gamma: float, value_of: Callable[[State, torch.Tensor], float]
) -> tuple[dict[State, float], Table]:
    """Backward induction: Q(s, a) = r(s, a) + gamma V(s a), V(s) = value_of(s, Q(s, .)); nothing follows an end."""
    values: dict[State, float] = {}
    q: Table = {}
    for state in reversed(STATES):
        row = []
        for token in range(V):
            following = 0.0 if ends(state, token) else values[(*state, token)]
            row.append(reward(state, token) + gamma * following)
        q[state] = torch.tensor(row, dtype=torch.float64)
        values[state] = float(value_of(state, q[state]))
    return values, q


def policy_values(policy: Table, reward: Reward, gamma: float = 1.0) -> tuple[dict[State, float], Table]:
    """V^pi and Q^pi of probabilities ``policy``."""
    return backward(reward, gamma, lambda state, q: (policy[state] * q).sum().item())


def optimal_values(
    reward: Reward, gamma: float = 1.0, allowed: dict[State, set[int]] | None = None
) -> tuple[dict[State, float], Table]:
    """V* and Q*; with ``allowed`` the max goes over those tokens only (a truncated max)."""
    return backward(reward, gamma, lambda state, q: max(q[a].item() for a in (allowed[state] if allowed else range(V))))


def soft_values(
    policy: Table, reference: Table, reward: Reward, alpha: float, gamma: float = 1.0
) -> tuple[dict[State, float], Table]:
    """Soft V^pi and Q^pi: V(s) = sum_a pi (Q - alpha log(pi / pi_ref)); both tables are log-probabilities."""

    def value(state, q):
        p = policy[state]
        return (p.exp() * (q - alpha * (p - reference[state]))).sum().item()

    return backward(reward, gamma, value)


def soft_optimum(
    reference: Table, reward: Reward, alpha: float, gamma: float = 1.0
) -> tuple[dict[State, float], Table, Table]:
    """Soft V* and Q*, V(s) = alpha log sum_a pi_ref exp(Q / alpha), and log pi* = log pi_ref + (Q - V) / alpha."""
    values, q = backward(
        reward, gamma, lambda state, q: alpha * torch.logsumexp(reference[state] + q / alpha, 0).item()
    )
    return values, q, {state: reference[state] + (q[state] - values[state]) / alpha for state in STATES}


# gradients
# ---------------------------------------------------------------------------------------------------------------


def policy_gradient(model, reward: Reward, gamma: float = 1.0) -> list[torch.Tensor | None]:
    """sum_s d(s) sum_a (grad pi(a|s)) Q^pi(s, a), one tensor per parameter of ``model`` (None: not used).

    d(s): the probability of passing through s, not discounted. At gamma = 1 it is the gradient of E[sum_t r_t]; below,
    it is the form without gamma^t that all policy-gradient code estimates. ``reward`` counts as a constant (the
    gradient of a KL reward's own log pi has expectation zero).
    """
    policy = probs(model)
    reached, (_, q) = visits(policy), policy_values(policy, reward, gamma)
    objective = sum(reached[s] * (logprobs_at(model, s).exp() * q[s].to(torch.float32)).sum() for s in STATES)
    return list(torch.autograd.grad(objective, list(model.parameters()), allow_unused=True))
