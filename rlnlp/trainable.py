"""Whether a model can be trained here: what the learners and the sampler take for granted of one, held against what it
does. In: a transformers model. Out: one error that says what is wrong, before anything is trained."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch
from torch import nn

from rlnlp.models import Decoder, evaluating, head, hidden_states
from rlnlp.types import Prompts, Rollout, Sampling
from rlnlp.vocabulary import ABSENT

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NEAR = 5e-2  # of the largest logit: bf16 rounds by less, and a model that forgets what it read is off by more


@torch.no_grad()
def check_policy(model: PreTrainedModel) -> None:
    """Raise ``ValueError`` for a model that cannot be a policy; each learner's ``init`` asks.

    That is one with weights of 16 bits, in which small steps are lost; one whose logits are not its output embedding of
    its last hidden state (soft-capping, ...), and one that predicts otherwise token by token, with a cache and with
    padding before the prompt, than in one pass (many recurrent models): samples and their log-probabilities would then
    be of two distributions. Warns of gradient checkpointing, which has no effect, as
    policies are in evaluation mode.
    """
    check_weights(model)
    if any(getattr(part, "gradient_checkpointing", False) for part in model.modules()):
        warnings.warn("gradient checkpointing has no effect: a policy stays in evaluation mode", stacklevel=4)
    with evaluating(model):
        _check_head(model)
        _check_decoding(model)


def trained(model: PreTrainedModel) -> list[nn.Parameter]:
    """The weights that training moves, tied ones once: all that the caller has not frozen. Raises ``ValueError`` where
    that is none."""
    if not (found := [weight for weight in model.parameters() if weight.requires_grad]):
        raise ValueError(
            f"{model_name(model)}: all of its weights are frozen (requires_grad is False), so nothing would be "
            "trained; model.requires_grad_(True) thaws them"
        )
    return found


def check_weights(model: PreTrainedModel) -> None:
    """Raise ``ValueError`` for weights of 16 bits."""
    if model.dtype in (torch.float16, torch.bfloat16):
        raise ValueError(
            f"model: its weights are {model.dtype}, in which a learner's small steps are lost; load it with "
            "dtype=torch.float32 (transformers keeps the type that was saved; rlnlp.load does not)"
        )


def model_name(model: PreTrainedModel) -> str:
    """What messages call a model."""
    return f"model {type(model).__name__} (model_type {model.config.model_type!r})"


def _check_head(model: PreTrainedModel) -> None:
    ids = torch.arange(4, device=model.device).unsqueeze(0) % model.config.vocab_size
    real = torch.ones_like(ids)
    if model.config.is_encoder_decoder:
        outputs = model(input_ids=ids, attention_mask=real, decoder_input_ids=ids, output_hidden_states=True)
        hidden = outputs.decoder_hidden_states[-1]
    else:
        outputs = model(input_ids=ids, attention_mask=real, output_hidden_states=True)
        hidden = outputs.hidden_states[-1]
    capped = getattr(model.config, "final_logit_softcapping", None)  # of small logits nothing is to be seen of it
    if capped or not torch.allclose(head(model, hidden), outputs.logits, atol=1e-3, rtol=1e-3):
        raise ValueError(
            f"{model_name(model)}: its logits are not its output embedding applied to its last hidden state, which "
            "rlnlp.models.head assumes; extend that function for this model_type"
        )


def _check_decoding(model: PreTrainedModel) -> None:
    """Two prompts, one of them padded, and two tokens after each: as the sampler reads them and as a scorer does."""
    size, device = model.config.vocab_size, model.device
    ids = torch.arange(1, 9, device=device).view(2, 4) % size
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[1, :2] = False
    prompts = Prompts(ids, mask, ["", ""], [[], []], ["0", "1"])
    tokens = torch.tensor([[9, 10, 11], [12, 13, 14]], device=device) % size
    zeros = torch.zeros(tokens.shape, device=device)
    rollout = Rollout(prompts, tokens, zeros == 0, zeros[:, 0] == 1, zeros, zeros, Sampling(0, 0, 3))
    try:
        decoder, stepwise = Decoder(model, prompts), []
        for token in tokens.unbind(1):
            stepwise.append(decoder.logits())
            decoder.append(token)
    except Exception as error:  # a model without a cache raises whatever its layers do
        text = f"{model_name(model)}: it cannot be decoded token by token with a cache: {type(error).__name__}: {error}"
        raise ValueError(text) from error
    whole = head(model, hidden_states(model, rollout)).float()
    exists = whole[0, 0] > ABSENT / 2
    stepwise, whole = torch.stack(stepwise, 1)[..., exists], whole[..., exists]
    stepwise, whole = (logits - logits.mean(-1, keepdim=True) for logits in (stepwise, whole))
    off, most = (stepwise - whole).abs().max(), whole.abs().max()
    if off > NEAR * most:
        raise ValueError(
            f"{model_name(model)}: token by token, with a cache and padding before the prompt, its logits are off "
            f"those of one pass by {off.item():.2g} (the largest is {most.item():.2g}): it is sampled from another "
            "distribution than it would be trained on, as many recurrent models are"
        )
