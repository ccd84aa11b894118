"""The models of a profile as their costs depend on them: counted on torch's meta device, without their weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    DistilBertConfig,
    GPT2Config,
)

from workbook.draws import worlds
from workbook.draws.classifier import new_classifier
from workbook.draws.language_model import new_language_model
from workbook.runs.params import Params
from workbook.stages.outside import Found, config_of, planned
from workbook.texts import language

# Floats a GPT-2 keeps for the backward pass per token, layer and unit of width: with its gelu in one kernel, and with
# the published models' gelu_new in several (measured, see tests/test_costs.py). No attention matrix is stored.
KEPT, KEPT_GELU_NEW = 16, 28


@dataclass(frozen=True)
class Shape:
    """A model as its cost depends on it. parameters: count; positions: longest input in tokens, None = no limit; kept:
    floats kept for a backward pass per token, layer and unit of width; source: how it is known."""

    parameters: int
    layers: int
    width: int
    vocabulary: int
    positions: int | None
    kept: int
    source: str


def shape_of(model, source: str) -> Shape:
    """The shape of a transformers model, which may be on the meta device: it has sizes there and no numbers."""
    c = model.config
    return Shape(
        sum(w.numel() for w in model.parameters()),
        c.num_hidden_layers,
        c.hidden_size,
        c.vocab_size,
        None if c.is_encoder_decoder else getattr(c, "max_position_embeddings", None),
        KEPT_GELU_NEW if getattr(c, "activation_function", "") == "gelu_new" else KEPT,
        source,
    )


class _Tokens:
    """All that a model's shape needs of a tokenizer."""

    eos_token_id, pad_token_id = 0, 1

    def __init__(self, size: int):
        self.size = size

    def __len__(self) -> int:
        return self.size


def shapes(params: Params, found: Sequence[Found]) -> tuple[Shape, Shape | None]:
    """(policy, reward model; None for a reward function of the user's), built on torch's meta device.

    A brought model that is missing is taken to have the published one's shape: GPT-2's, DistilBERT's; a base model that
    is made beside the profile has that of its settings.
    """

    def brought(name: str, assumed, what: str):
        place = next(f.place for f in found if f.kind == "models" and f.name == name)
        if not place:
            return assumed, f"missing; {what}'s shape assumed"
        return config_of(name if place == "the hub" else place), f"config.json of {name}"

    tokens, reward = _Tokens(vocabulary(params)), None
    with torch.device("meta"):
        if params.bring.model:
            settings, source = brought(params.bring.model, GPT2Config(), "GPT-2")
            if source.startswith("missing") and (own := planned(params)):
                sizes = {"n_layer": own["layers"], "n_embd": own["width"], "n_head": own["heads"]}
                sizes |= {
                    "n_positions": own["context"],
                    "vocab_size": own["vocabulary"],
                    "bos_token_id": 0,
                    "eos_token_id": 0,
                }
                settings = GPT2Config(activation_function="gelu_pytorch_tanh", **sizes)
                source = "not made yet; base_model.yaml"
            kind = AutoModelForSeq2SeqLM if settings.is_encoder_decoder else AutoModelForCausalLM
            policy = shape_of(kind.from_config(settings), source)
        else:
            policy = shape_of(new_language_model(tokens, params.language_model, 0), "section language_model")
        if params.bring.reward and not params.reward_files:
            settings, source = brought(params.bring.reward, DistilBertConfig(), "DistilBERT")
            reward = shape_of(AutoModelForSequenceClassification.from_config(settings), source)
        elif not params.bring.reward:
            reward = shape_of(new_classifier(tokens, params.reward_model, 0), "section reward_model")
    return policy, reward


def world_shapes(params: Params) -> dict[str, Shape]:
    """The models of the worlds that params.yaml names, as its runs need them."""
    found = {}
    settings = params.language_model.replace(context=worlds.CONTEXT)
    for name in params.worlds:
        tokens = _Tokens(len(worlds.WORLDS[name].tokenizer()))
        with torch.device("meta"):
            found[name] = shape_of(new_language_model(tokens, settings, 0), f"world {name}")
    return found


def vocabulary(params: Params) -> int:
    """Tokens of the tokenizer that the profile would train."""
    settings = params.language_model
    return settings.vocabulary if settings.tokenizer == "bpe" else len(language.vocabulary()) + 3  # <eos>, <pad>, <unk>
