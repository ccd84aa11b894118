"""Q heads: modules that stand in a language model's output embedding, so that its logits are action values.

Q(s, a) = scale x logit, whatever the head: the softmax of the logits is then the policy softmax(Q / scale), and
sampling, scoring, KL and evaluation read it like any other model. With a head of the language model's own logits, that
policy is the
base model to begin with. In: a model. Out: the same model; ``pretrained.load`` installs a saved head again.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

KINDS = ("mlp", "linear", "logits")
HIDDEN = 64  # width of the mlp's two hidden layers, as in the report


class QHead(nn.Module):
    """Hidden states [..., H] to logits [..., V] = values / scale.

    mlp     H -> 64 -> 64 -> V with ReLU between, random: the report's. Its values have rank 64 at most
    linear  H -> V, zero: every value is 0 to begin with
    logits  the language model's own output layer, copied: scale x logits to begin with
    ``generator`` draws the mlp's weights, uniform within 1 / sqrt(fan in) as PyTorch's layers do.
    """

    def __init__(self, kind: str, output: nn.Module, scale: float, generator: torch.Generator | None = None):
        super().__init__()
        if kind not in KINDS:
            raise ValueError(f"Q head {kind!r}: expected one of {', '.join(KINDS)}")
        if not 0 < scale < float("inf"):
            raise ValueError(f"Q head: expected a scale > 0, got {scale}")
        weight, size, width = output.weight, output.out_features, output.in_features
        if kind == "logits" and tuple(weight.shape) != (size, width):
            raise ValueError(
                f"Q head: expected one layer to copy for the kind logits, got a head of the kind {output.kind!r}"
            )
        if kind == "mlp":
            layers = [
                nn.Linear(width, HIDDEN),
                nn.ReLU(),
                nn.Linear(HIDDEN, HIDDEN),
                nn.ReLU(),
                nn.Linear(HIDDEN, size),
            ]
        else:
            own = kind == "logits" and "bias" in output._parameters and output.bias is not None
            layers = [nn.Linear(width, size, bias=own or kind == "linear")]
        self.kind, self.scale = kind, scale
        self.layers = nn.Sequential(*layers)
        for layer in self.layers[::2]:
            for name, parameter in layer.named_parameters():
                if kind == "mlp":
                    nn.init.uniform_(
                        parameter, -(layer.in_features**-0.5), layer.in_features**-0.5, generator=generator
                    )
                elif kind == "linear":
                    nn.init.zeros_(parameter)
                else:
                    parameter.data.copy_(getattr(output, name).data)
        # What ``vocabulary.limit_vocabulary`` writes, or wrote, into; no parameter, and not saved, as there.
        absent = output._buffers.get("bias")
        self.register_buffer("bias", torch.zeros(size) if absent is None else absent.clone(), persistent=False)
        self.to(weight.device, weight.dtype)

    @property
    def weight(self) -> Tensor:
        return self.layers[-1].weight

    @property
    def in_features(self) -> int:
        return self.layers[0].in_features

    @property
    def out_features(self) -> int:
        return self.layers[-1].out_features

    def forward(self, hidden: Tensor) -> Tensor:
        values = self.layers(hidden)
        return (values if self.kind == "logits" else values / self.scale) + self.bias


def install(model: PreTrainedModel, kind: str, scale: float, generator: torch.Generator | None = None) -> QHead:
    """Put a new Q head of that kind in the place of ``model``'s output embedding, and its record into the model's
    config.

    The input embedding stays: it is no longer tied to what gives the logits. A limited vocabulary stays limited.
    Raises ``ValueError`` for an unknown kind or a scale that is not positive.
    """
    head = QHead(kind, model.get_output_embeddings(), scale, generator)
    model.set_output_embeddings(head)
    model.config.q_head = {"kind": kind, "scale": scale}
    return head


def rescale(model: PreTrainedModel, kind: str, scale: float) -> None:
    """Another scale for an installed head: the same values, another policy (a ``logits`` head: the same policy, other
    values).

    Raises ``ValueError`` where the installed head is of another kind.
    """
    if (found := model.config.q_head["kind"]) != kind:
        raise ValueError(f"Q head: expected the kind {found!r} that the model has, got {kind!r}")
    model.get_output_embeddings().scale = scale
    model.config.q_head = {"kind": kind, "scale": scale}


def restore(model: PreTrainedModel, folder: str) -> None:
    """Install the head that ``model.config.q_head`` names, with the weights saved in ``folder`` (or under a hub id)."""
    from safetensors import safe_open
    from transformers.utils import cached_file

    head = install(model, **model.config.q_head)
    place = next(name for name, module in model.named_modules() if module is head)
    with safe_open(cached_file(str(folder), "model.safetensors"), "pt") as saved:
        head.load_state_dict({name: saved.get_tensor(f"{place}.{name}") for name in head.state_dict()})


def installed(model: PreTrainedModel) -> bool:
    """Whether a Q head gives the model's logits."""
    return getattr(model.config, "q_head", None) is not None


def critic(
    model: PreTrainedModel, kind: str, scale: float, generator: torch.Generator | None = None
) -> PreTrainedModel:
    """A copy of ``model``, trunk and all, with a Q head of its own; ``scale x models.head(critic, hidden)`` are its
    values."""
    network = copy.deepcopy(model)
    install(network, kind, scale, generator)
    return network.requires_grad_(True)
