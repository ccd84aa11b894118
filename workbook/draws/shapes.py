"""What the models that are made here are like: their sizes, how they are trained, and the bounds of both."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from rlnlp.settings import Settings

MANY, STEPS, TOKENS, WIDTH = 10**7, 10**8, 10**5, 10**5  # more than these is a slip of the keyboard

Weight = Annotated[float, Field(ge=0, le=1e6)]


class Misfit(ValueError):
    """Values that do not go together. problems: (keys below the model that refuses, what was expected and found)."""

    def __init__(self, *problems: tuple[tuple, str]):
        super().__init__("; ".join(text for _, text in problems))
        self.problems = problems


class Shape(Settings):
    """Size of a transformer."""

    layers: int = Field(ge=1, le=1000, description="transformer blocks")
    width: int = Field(ge=8, le=WIDTH, description="hidden units; a multiple of heads")
    heads: int = Field(ge=1, le=1000, description="attention heads")

    @model_validator(mode="after")
    def _heads_share_the_width(self):
        if self.width % self.heads:
            raise Misfit((("width",), f"expected a multiple of heads ({self.heads}), found {self.width}"))
        return self


class LanguageModel(Shape):
    """A GPT-2-shaped model trained from scratch; ignored where bring.model is set."""

    context: int = Field(ge=8, le=TOKENS, description="tokens; positions the model has")
    tokenizer: Literal["word", "bpe"] = Field(description="whole words (generated text) or byte-level BPE (real text)")
    vocabulary: int = Field(ge=0, le=MANY, description="tokens of the BPE vocabulary; ignored for words")
    steps: int = Field(ge=1, le=STEPS, description="optimiser steps")
    batch_size: int = Field(ge=1, le=MANY, description="rows of `context` tokens per optimiser step")
    learning_rate: float = Field(gt=0, le=1, description="AdamW peak, cosine decay")
    warmup_fraction: float = Field(0.05, ge=0, lt=1, description="share of steps with linear warm-up")
    weight_decay: Weight = Field(0.01, description="AdamW")
    max_grad_norm: float = Field(1.0, gt=0, le=1e6, description="L2 norm at which gradients are clipped")
    dropout: float = Field(0.0, ge=0, lt=1, description="probability")


class RewardModel(Shape):
    """A small transformer classifier; ignored where bring.reward is set, but for positive_label and include_prompt."""

    epochs: int = Field(ge=1, le=10_000, description="passes over the labelled reviews")
    batch_size: int = Field(ge=1, le=MANY, description="reviews per optimiser step")
    learning_rate: float = Field(gt=0, le=1, description="AdamW peak")
    weight_decay: Weight = Field(0.01, description="AdamW; keeps word weights small (saturation hides hacking)")
    dropout: float = Field(0.1, ge=0, lt=1, description="probability")
    max_tokens: int = Field(ge=8, le=TOKENS, description="tokens; longer text loses its left end (as the original)")
    positive_label: int = Field(1, ge=0, le=TOKENS, description="class whose probability is the score")
    include_prompt: bool = Field(True, description="score prompt + response (the original), else the response only")
