"""The gradient steps of ``ppo.update`` at fixed shapes: forward, backward and AdamW, which one CUDA graph can record.

For episodes that all have T tokens, as in the papers (``min_new_tokens`` = ``max_new_tokens``): every cell of [B, T] is
then a real token, so that no index is made of a mask and no number is read back. As written, a step waits while Python
launches its kernels one by one; recorded, it waits for one launch. ``minibatch_loss`` is ``ppo.minibatch_loss``.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from rlnlp.losses import entropy, ppo_clip, value_loss
from rlnlp.models import SharedValue, ValueModel, chosen_logprobs, head, positions, restrict
from rlnlp.recorded import WARM, Step
from rlnlp.static import attention_mask
from rlnlp.types import Allowed, Experience, Sampling


def serves(state: Any, experience: Experience) -> bool:
    """Whether the gradient steps of ``ppo.update`` can be those of here: a causal policy with a value network of ours,
    and no episode that may end early."""
    sampling = experience.rollout.sampling
    whole = sampling.min_new_tokens >= sampling.max_new_tokens == experience.rollout.responses.shape[1]
    known = isinstance(state.value, ValueModel | SharedValue) and not state.policy.training
    return whole and known and not state.policy.config.is_encoder_decoder


def cells(experience: Experience) -> dict[str, Tensor]:
    """What the loss reads of B episodes of T tokens, a row each: ids, what is seen and positions [B, P + T - 1];
    responses, old log-probabilities, advantages, values and returns [B, T]; bits [B, T, bytes] where a rule cut."""
    rollout = experience.rollout
    seen = nn.functional.pad(rollout.prompts.mask, (0, rollout.responses.shape[1] - 1), value=True)
    found = {
        "ids": torch.cat([rollout.prompts.ids, rollout.responses[:, :-1]], 1),
        "seen": seen,
        "position": positions(seen),
        "responses": rollout.responses,
        "old": rollout.behavior_logprobs,
        "advantages": experience.advantages,
        "values": experience.values,
        "returns": experience.returns,
    }
    return found | ({} if rollout.allowed is None else {"bits": rollout.allowed.bits})


def minibatch_loss(
    state: Any, batch: dict[str, Tensor], sampling: Sampling, vocabulary: int, config: Any
) -> tuple[Tensor, dict[str, Tensor]]:
    """``ppo.minibatch_loss`` of ``cells``, without a look at a number. vocabulary: that ``bits`` are of."""
    (B, T), (L, device) = batch["responses"].shape, (batch["ids"].shape[1], batch["ids"].device)
    before = torch.ones(L, L, dtype=torch.bool, device=device).tril()
    itself = torch.eye(L, dtype=torch.bool, device=device)  # padding sees itself: no row of attention is empty
    given = {"input_ids": batch["ids"], "position_ids": batch["position"], "use_cache": False}
    engine = getattr(state, "engine", None)
    seen = before & batch["seen"][:, None, None] | itself
    given["attention_mask"] = attention_mask(seen, engine.precision if engine else "fp32")

    def states(model: nn.Module) -> Tensor:
        """Hidden states [B T, H]; a response's first token is predicted by the prompt's last."""
        return model.base_model(**given).last_hidden_state[:, L - T :].flatten(0, 1)

    hidden = states(state.policy)
    own = isinstance(state.value, ValueModel)  # a trunk of its own
    values = state.value.head(states(state.value.trunk)).squeeze(-1) if own else state.value(None, hidden)
    every, allowed = torch.arange(B * T, device=device), None
    if "bits" in batch:
        allowed = Allowed(batch["bits"].flatten(0, 1), vocabulary).unpack(every)
    logits = restrict(head(state.policy, hidden).float(), sampling, every % T, allowed)
    flat = {name: batch[name].flatten() for name in ("responses", "old", "advantages", "values", "returns")}
    logprobs = chosen_logprobs(logits, flat["responses"])
    policy_part, metrics = ppo_clip(logprobs, flat["old"], flat["advantages"], config.clip)
    value_part = value_loss(values, flat["values"], flat["returns"], config.value_clip)
    loss = policy_part + config.value_coef * value_part
    if config.entropy_coef:
        loss = loss - config.entropy_coef * entropy(logits)
    return loss, {"policy/loss": policy_part.detach(), "value/loss": value_part.detach(), **metrics}


class StaticSteps:
    """Gradient steps of minibatches of one shape, in the same memory: on cuda recorded at the fourth.

    experience: the first one, of which ``rows`` episodes are a minibatch; graph=False: always as written, the twin.
    Recorded with the steps are numbers (config, sampling, learning rates) and places (weights, the optimiser's state):
    none of them may change.
    """

    def __init__(self, state: Any, experience: Experience, rows: int, config: Any, graph: bool = True) -> None:
        whole, allowed = cells(experience), experience.rollout.allowed
        self.state, self.config, self.sampling = state, config, experience.rollout.sampling
        self.vocabulary = 0 if allowed is None else allowed.vocabulary
        self.batch = {name: tensor.new_zeros(rows, *tensor.shape[1:]) for name, tensor in whole.items()}
        self.stopped = whole["seen"].new_zeros(())
        self.found: dict[str, Tensor] = {}
        self.step = Step(self._work, whole["ids"].device, graph)
        if self.step.stream is not None:
            for group in state.optimizer.param_groups:
                group["capturable"] = True
            state.optimizer._warned_capturable_if_run_uncaptured = True  # of the first steps, which are as written

    def __call__(self, whole: dict[str, Tensor], rows: Tensor, stopped: Tensor) -> dict[str, Tensor]:
        """One step on the episodes ``rows`` [n] of ``cells``; loss, metrics and the gradient's norm, each []. stopped:
        as of ``guarded_step``."""
        rows = rows.pin_memory().to(stopped.device, non_blocking=True) if stopped.is_cuda else rows
        for name, out in self.batch.items():
            torch.index_select(whole[name], 0, rows, out=out)
        self.stopped.copy_(stopped)
        if why := self._not_recorded():  # once
            warnings.warn(f"a gradient step cannot be recorded ({why}): it is done as written", stacklevel=2)
            self.state.optimizer.zero_grad(set_to_none=True)
            self.step = Step(self._work, stopped.device, graph=False)
            self.step()
        stopped.copy_(self.stopped)
        return {name: value.clone() for name, value in self.found.items()}  # the next step overwrites them

    def _not_recorded(self) -> str:
        """One step, recorded where it is its turn; why it could not be recorded, where that was tried and failed."""
        recording = self.step.stream is not None and self.step.graph is None and self.step.calls >= WARM
        try:
            self.step()
        except RuntimeError as error:
            if not recording:
                raise
            return str(error.__context__ or error)  # what ended the recording, before what closing it says
        return ""

    def _work(self) -> None:
        loss, metrics = minibatch_loss(self.state, self.batch, self.sampling, self.vocabulary, self.config)
        norm = guarded_step(self.state, loss, self.config.max_grad_norm, self.stopped)
        self.found = {"loss": loss.detach(), **metrics, "policy/gradient_norm": norm}


def guarded_step(state: Any, loss: Tensor, max_norm: float, stopped: Tensor) -> Tensor:
    """``gradient_step`` without a look at its numbers; returns the gradient's norm [].

    stopped: [] bool, set here where loss or norm is not finite; then no step is taken, nor any after it.
    """
    loss.backward()
    weights = [weight for group in state.optimizer.param_groups for weight in group["params"]]
    norm = nn.utils.clip_grad_norm_(weights, max_norm)
    stopped |= ~torch.isfinite(loss.detach() + norm)
    state.optimizer.found_inf = stopped.float()  # by which fused AdamW is told to skip a step, on the device
    state.optimizer.step()
    state.optimizer.zero_grad(set_to_none=True)
    return norm
