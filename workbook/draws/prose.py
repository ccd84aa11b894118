"""A base model of real reviews that many runs start from: larger than a draw's, trained once, kept in half precision.

Each part (tokenizer, five-gram, model) is made once and found again by what decides it; a kill costs a minute at most.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from pydantic import Field

from rlnlp import pretrained
from rlnlp.types import stream
from workbook.draws.language_model import bits_per_byte, train_language_model
from workbook.draws.shapes import MANY, LanguageModel
from workbook.draws.tokenizer import encode, train_tokenizer
from workbook.draws.training import TrainingError, save
from workbook.store.files import atomic_json, read_json
from workbook.store.fingerprint import fingerprint_inputs
from workbook.store.identity import root_of
from workbook.store.once import once
from workbook.texts.ngram import KneserNey

SAVE_EVERY_S = 60.0
ORDER = 5


class Prose(LanguageModel):
    """A base model of real text: its shape, its training, and how much it reads."""

    tokenizer: Literal["bpe"] = Field("bpe", description="byte-level BPE, learned from the same reviews")
    reviews: int = Field(ge=0, le=MANY, description="reviews of the base role that it learns from; 0 = all")
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="of matrix products in training; weights and optimiser are float32 in any case"
    )

    @property
    def weights(self) -> int:
        """Number of weights of GPT-2's shape with tied embeddings, if the vocabulary is as large as it may be."""
        block = 12 * self.width**2 + 13 * self.width
        return (self.vocabulary + self.context) * self.width + self.layers * block + 2 * self.width

    @property
    def megabytes(self) -> float:
        """Size of the weights in half precision, 10^6 bytes."""
        return 2 * self.weights / 1e6

    @property
    def tokens(self) -> int:
        """Tokens that training sees, counted as often as they are seen."""
        return self.steps * self.batch_size * self.context


@dataclass(frozen=True)
class Shop:
    """Where base models of one set of reviews are made.

    texts: all of the base role, in order; work: folder of states and finished parts; seed: of weights and batches;
    threads of torch and device: part of what decides the last digits.
    """

    texts: Sequence[str]
    work: Path
    seed: int
    threads: int
    device: str = "cpu"

    def read(self, reviews: int) -> list[str]:
        """The first of the texts; 0: all. Raises: TrainingError for more than there are."""
        if reviews > len(self.texts):
            raise TrainingError(f"reviews: {reviews} were asked for, and the base role has {len(self.texts)}")
        return list(self.texts[: reviews or None])

    def tokenizer(self, vocabulary: int, reviews: int):
        """The BPE tokenizer of these reviews."""
        texts = self.read(reviews)
        inputs = fingerprint_inputs(
            {"vocabulary": vocabulary, "texts": _digest(texts)}, code=[root_of(train_tokenizer)]
        )
        made = once(
            self.work / "tokenizer",
            inputs,
            lambda fresh, states: _keep(train_tokenizer(texts, "bpe", vocabulary), fresh),
            wait_s=600,
        )
        return pretrained.read_tokenizer(made)

    def five_gram(self, vocabulary: int, reviews: int, held_out: Sequence[str]) -> float:
        """Bits per byte of held-out texts under the modified Kneser-Ney 5-gram of the same tokens and texts."""
        texts = self.read(reviews)
        values = {"vocabulary": vocabulary, "texts": _digest(texts), "held out": _digest(held_out), "order": ORDER}

        def compute() -> float:
            tokenizer = self.tokenizer(vocabulary, reviews)
            model = KneserNey(encode(tokenizer, texts), len(tokenizer), tokenizer.eos_token_id, ORDER)
            return model.bits_per_byte(encode(tokenizer, held_out), held_out)

        return self._number("five_gram", values, (KneserNey, train_tokenizer), compute)

    def bits(self, settings: Prose, held_out: Sequence[str], progress: str = "") -> float:
        """Bits per byte of held-out texts under the model of these settings, which is trained if it is not there."""
        values = self._values(settings) | {"held out": _digest(held_out)}

        def compute() -> float:
            model, tokenizer, _ = self.model(settings, progress)
            return bits_per_byte(model, tokenizer, held_out)

        return self._number("bits", values, (train, train_tokenizer, bits_per_byte), compute)

    def model(self, settings: Prose, progress: str = ""):
        """(trained model, tokenizer, loss curve): continued where a kill has left it. progress: label of the bar."""
        inputs = fingerprint_inputs(self._values(settings), code=[root_of(train), root_of(train_tokenizer)])

        def make(fresh: Path, states: Path) -> None:
            tokenizer, texts = self.tokenizer(settings.vocabulary, settings.reviews), self.read(settings.reviews)
            model, curve = train(texts, tokenizer, settings, self.seed, states, progress, self.device)
            save(fresh, model.cpu(), tokenizer, "A base model in single precision, before its export.")
            atomic_json(fresh / "loss.json", curve)

        made = once(self.work / "model", inputs, make, wait_s=600)
        model, tokenizer = pretrained.load(made, self.device)
        return model, tokenizer, [tuple(point) for point in read_json(made / "loss.json")]

    def _values(self, settings: Prose) -> dict:
        """What decides a model beside code and libraries."""
        texts = _digest(self.read(settings.reviews))
        return {"settings": settings, "texts": texts, "seed": self.seed, "threads": self.threads, "device": self.device}

    def _number(self, name: str, values: dict, code: Sequence[Callable], compute: Callable[[], float]) -> float:
        """A number that takes minutes to compute, computed once."""
        inputs = fingerprint_inputs(values, code=[root_of(function) for function in code])
        make = lambda fresh, states: atomic_json(fresh / f"{name}.json", compute())
        return read_json(once(self.work / name, inputs, make, wait_s=600) / f"{name}.json")


def train(
    texts: Sequence[str],
    tokenizer,
    settings: Prose,
    seed: int,
    states: Path | None = None,
    progress: str = "",
    device: str = "cpu",
):
    """``train_language_model`` in the precision of the settings: (model, loss curve). Raises: as that does."""
    with arithmetic(settings.precision, device):
        return train_language_model(
            texts, tokenizer, settings, stream(seed, "prose"), states, progress, device, SAVE_EVERY_S
        )


@contextmanager
def arithmetic(precision: str, device: str = "cpu") -> Iterator[None]:
    """Matrix products in this precision while the block runs.

    bfloat16: autocast without its cache of weights, which would keep those of the first step.
    """
    on = precision == "bfloat16"
    with torch.autocast(torch.device(device).type, dtype=torch.bfloat16, enabled=on, cache_enabled=False):
        yield


def check_size(settings: Prose, largest_mb: float) -> None:
    """Raises: TrainingError where the weights in half precision are more than so many megabytes (10^6 bytes)."""
    if settings.megabytes > largest_mb:
        shape = f"{settings.layers} layers of {settings.width}, {settings.vocabulary} tokens"
        raise TrainingError(
            f"{shape}: {settings.weights:,} weights are {settings.megabytes:.1f} MB in half precision, "
            f"expected at most {largest_mb:g} MB"
        )


def _keep(tokenizer, folder: Path) -> None:
    tokenizer.save_pretrained(folder)


def _digest(texts: Sequence[str]) -> str:
    total = hashlib.sha256()
    for text in texts:
        total.update(hashlib.sha256(text.encode()).digest())
    return total.hexdigest()
