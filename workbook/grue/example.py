"""What flows in the benchmark: an example, and what a task says of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Example:
    """What a task makes of a row of its data set, or of the rows of one concept set, question or dialogue.

    before, body, after: the prompt in three parts; only ``body`` is ever shortened (``encoding`` says how, and records
    by how many tokens). references: all of them; () = hidden: nothing may be scored against it. source: the text that
    may be said (article, passage, cells, sentence to translate). meta: what scores and rewards read beside (concepts,
    table, act, ...); of a generated row ``facts`` is the truth. shorten: which end of ``body`` a limit takes away,
    "right" or "left" (a dialogue: its oldest turns).
    """

    id: str
    before: str
    body: str
    after: str
    references: tuple[str, ...]
    source: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)
    shorten: str = "right"

    def __post_init__(self) -> None:
        if self.shorten not in ("right", "left"):
            raise ValueError(f"example {self.id}: shorten: expected 'right' or 'left', got {self.shorten!r}")

    @property
    def prompt(self) -> str:
        return self.before + self.body + self.after


@dataclass(frozen=True)
class Decode:
    """How a task's answers are written at evaluation. beams 1 and sample False: greedy."""

    max_new_tokens: int
    min_new_tokens: int = 0
    beams: int = 1
    length_penalty: float = 1.0
    sample: bool = False
    temperature: float = 1.0
    top_k: int = 0


@dataclass(frozen=True)
class Published:
    """What the paper used and printed for a task. settings: name -> value, as in its tables; rows: method -> metric ->
    value, in the metric's own unit; source: which table of which version; split: of the rows."""

    settings: Mapping[str, Any]
    rows: Mapping[str, Mapping[str, float]]
    source: str
    split: str


@dataclass(frozen=True)
class Task:
    """One task of the benchmark: everything that is said of it stands in its file.

    hub, config: id of the data set and its configuration ("" = none), as on the hub; mirror: further names under which
    a mirror may hold it. splits: part (train, validation, test) -> split of the data set.
    read: rows of one split, in the hub's columns -> examples; the same for real and generated rows.
    rows: (draw, part, n) -> n rows of the generated version, in the hub's columns.
    judge: (responses, examples of generated rows) -> {name: [B] numbers in [0, 1]}, "judge" among them.
    trivial: name -> example -> an answer that no model wrote.
    reward: scores and their weights that training pays; metrics: scores that are reported, the first one leads.
    prompt_tokens, response_tokens: the published lengths; decode: the published decoding of the evaluation.
    causal: a decoder-only model (else an encoder-decoder); language: of the responses.
    more: further published tables, of other splits.
    another: example of a generated row -> one more good answer, where rows have a single reference; None = there is
    no second writer.
    """

    name: str
    title: str
    hub: str
    config: str
    licence: str
    splits: Mapping[str, str]
    read: Callable[[Sequence[Mapping]], list[Example]]
    rows: Callable[[int, str, int], list[dict]]
    judge: Callable[[Sequence[str], Sequence[Example]], dict[str, list[float]]]
    trivial: Mapping[str, Callable[[Example], str]]
    reward: Mapping[str, float]
    metrics: tuple[str, ...]
    prompt_tokens: int
    response_tokens: int
    decode: Decode
    published: Published
    mirror: tuple[str, ...] = ()
    causal: bool = False
    language: str = "en"
    more: tuple[Published, ...] = ()
    another: Callable[[Example], str] | None = None
