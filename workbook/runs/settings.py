"""The sections of params.yaml: a frozen, strict model for each, with units, bounds and sources (all: `params.Params`).

Bounds are where a value stops making sense, not where it stops being a good idea.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from rlnlp.settings import Settings, nearest
from workbook.draws.maker import reward_name
from workbook.draws.shapes import MANY, STEPS, TOKENS, Misfit
from workbook.runs import algorithms
from workbook.texts import tasks

DECODINGS = ("top_p", "greedy", "beam", "top_k", "temperature")  # beside plain and own, which every run has
REVERSED = "reversed"  # reward of a planted control: 1 minus the score
NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,79}\z"  # of what names a folder and stands in a command

Name = Annotated[str, StringConstraints(pattern=NAME)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=80)]
Place = Annotated[str, StringConstraints(max_length=400, pattern=r"^[^\x00-\x1f\x7f]*\z")]
Rate = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]


class Pickable(Settings):
    """Settings of which a fingerprint takes some."""

    def pick(self, *names: str) -> dict[str, Any]:
        """The values under dotted names ("sampling", "learner.gamma", ...), flat. Raises KeyError for another name."""
        everything, picked = self.model_dump(mode="json"), {}
        for name in names:
            value: Any = everything
            for part in name.split("."):
                if not isinstance(value, dict) or part not in value:
                    raise KeyError(f"{name}: not among these settings")
                value = value[part]
            picked |= _flat(name, value)
        return picked


def _flat(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, dict) and value:
        return {k: v for key, item in value.items() for k, v in _flat(f"{name}.{key}", item).items()}
    return {name: value}


class Bring(Settings):
    """Bring your own: empty text means "made inside the pipeline"."""

    model: Place = Field("", description="policy to start from: folder saved by save_pretrained, or hub id")
    reward: Place = Field("", description='"path/to/file.py:function", or a classifier\'s folder or hub id')
    prompts: Place = Field(
        "", description="CSV file with columns prompt[, reference[, split]]; replaces the task's prompts"
    )

    @property
    def reward_file(self) -> str:
        """Path of the file of a brought reward function; empty for another kind of reward, or none."""
        file, _, function = self.reward.rpartition(":")
        return file if file.endswith(".py") and function else ""


class Task(Settings):
    """What is generated from, and how many examples of each kind a draw holds."""

    name: str = Field(description="a file of workbook/texts/tasks")
    language_model_reviews: int = Field(ge=1, le=MANY, description="reviews the base model is trained on")
    language_model_validation_reviews: int = Field(ge=1, le=MANY, description="reviews for validation bits per byte")
    evaluator_reviews: int = Field(
        ge=1, le=MANY, description="reviews of another corpus draw, for the reference model used in evaluation only"
    )
    reward_reviews: int = Field(ge=2, le=MANY, description="labelled reviews the reward model is trained on")
    reward_validation_reviews: int = Field(
        ge=2, le=MANY, description="labelled reviews for the reward model's accuracy"
    )
    judge_reviews: int = Field(
        ge=2, le=MANY, description="labelled reviews for the judge, disjoint from the reward model's"
    )
    prompt_tokens: int = Field(
        ge=1, le=TOKENS, description="tokens; longest prompt the policy sees (64 on IMDB: paper, Table 4)"
    )
    train_prompts: int = Field(ge=1, le=MANY, description="prompts that episodes start from")
    validation_prompts: int = Field(
        ge=2, le=MANY, description="prompts for learning curves and for choosing settings; REINFORCE compares two"
    )
    test_prompts: int = Field(
        ge=1, le=MANY, description="prompts used once, at the final checkpoint (5,000 in the paper)"
    )

    @model_validator(mode="after")
    def _a_task_there_is(self):
        if self.name not in (known := tasks.names()):
            raise Misfit((("name",), f"expected one of {', '.join(known)}{nearest(self.name, known)}"))
        return self


class SamplingSettings(Settings):
    """How episodes are sampled; the scored distribution is the same one."""

    max_new_tokens: int = Field(
        ge=1, le=TOKENS, description="tokens; horizon T of the task (48 on IMDB: paper, Table 4)"
    )
    min_new_tokens: int = Field(
        0, ge=0, le=TOKENS, description="tokens; EOS is blocked before (= max_new_tokens in the paper)"
    )
    temperature: float = Field(1.0, gt=0, le=1000, description="divides the logits, in sampling and scoring alike")
    top_k: int = Field(0, ge=0, le=MANY, description="tokens kept; 0 = all (50 in the paper: default of its library)")
    top_p: float = Field(1.0, gt=0, le=1, description="probability mass kept; 1 = all")


def _different(low: str, values: tuple[float, ...], name: str) -> list[tuple[tuple, str]]:
    """What is wrong with the values of a grid."""
    least = min(values, default=1)
    if least < 0 or (least == 0 and low == "> 0") or len(set(values)) < len(values):
        return [((name,), f"expected different numbers {low}, found {list(values)}")]
    return []


class Search(Settings):
    """One algorithm's own grid; what is left out is as `tune` says."""

    learning_rates: tuple[float, ...] = Field(
        (), max_length=100, description="values tried, > 0; none = tune.learning_rates"
    )
    kl_coefs: tuple[float, ...] = Field(
        (), max_length=100, description="values tried, >= 0, reward unit per nat; none = tune.kl_coefs"
    )
    updates: int = Field(0, ge=0, le=MANY, description="updates per candidate; 0 = tune.updates")

    @model_validator(mode="after")
    def _values_that_can_be_tried(self):
        if problems := [
            *_different("> 0", self.learning_rates, "learning_rates"),
            *_different(">= 0", self.kl_coefs, "kl_coefs"),
            *(
                ((name,), f"expected at most {most:g}, found {max(values):g}")
                for name, values, most in (
                    ("learning_rates", self.learning_rates, 1),
                    ("kl_coefs", self.kl_coefs, 1e6),
                )
                if max(values, default=0) > most
            ),
        ]:
            raise Misfit(*problems)
        return self


class Tune(Search):
    """The same search for every algorithm, judged on validation prompts of one draw."""

    draw: Seed = Field(description="corpus draw used for the search")
    learning_rates: tuple[float, ...] = Field(min_length=1, max_length=100, description="values tried, > 0")
    kl_coefs: tuple[float, ...] = Field(
        min_length=1, max_length=100, description="values tried, >= 0; reward unit per nat"
    )
    updates: int = Field(ge=1, le=MANY, description="updates per candidate")
    own: dict[str, Search] = Field(
        description="algorithms that are searched: what of the grid is their own; {} = none is, and learning rates are "
        "those of the sections"
    )

    @model_validator(mode="after")
    def _searches_that_somebody_uses(self):
        known = algorithms.searched()
        if wrong := [name for name in self.own if name not in known]:
            text = f"expected one of {', '.join(known)}"
            raise Misfit(*((("own", name), text + nearest(name, known)) for name in wrong))
        return self

    def search(self, algorithm: str) -> Search:
        """The grid of an algorithm. Raises KeyError for one that is not in `own`."""
        own, grid = self.own[algorithm], Search.model_fields
        return Search(**{name: getattr(own, name) or getattr(self, name) for name in grid})


class World(Settings):
    """A generated task with a small model of its own, and what differs there from the sections above."""

    texts: int = Field(ge=2, le=MANY, description="generated texts that its model is trained on")
    steps: int = Field(
        ge=1, le=STEPS, description="optimiser steps of its model, which is otherwise one of `language_model`"
    )
    sampling: dict[str, Any] = Field({}, description="what differs from `sampling`")
    learner: dict[str, Any] = Field({}, description="what differs from `learner`")
    algorithms: dict[str, dict[str, Any]] = Field({}, description="algorithm: what differs from all of these")


class Evaluation(Settings):
    """Evaluation on fixed prompts, with the decoding recorded beside the numbers."""

    test_prompts: int = Field(
        0,
        ge=0,
        le=MANY,
        description="of task.test_prompts, the first so many are used; 0 = all; a run may ask for more",
    )
    batch_size: int = Field(ge=1, le=MANY, description="episodes per forward pass: speed, and nothing else")
    everywhere: tuple[Literal[DECODINGS], ...] = Field(
        ("top_p",), description="decodings that every run is evaluated with beside plain and own"
    )
    top_p: float = Field(0.9, gt=0, le=1, description="nucleus mass of the decoding top_p")
    top_k: int = Field(50, ge=1, le=MANY, description="tokens kept by the decoding top_k")
    temperature: float = Field(0.7, gt=0, le=1000, description="of the decoding temperature")
    beams: int = Field(5, ge=2, le=1000, description="width of the decoding beam")
    human_reviews: int = Field(ge=1, le=MANY, description="reviews for the policy's perplexity on human text")
    diversity_words: int = Field(
        1500,
        ge=1,
        le=MANY,
        description="words of all responses together by which distinct, entropy and unique are counted; fewer than any "
        "run that is compared writes",
    )
    samples: int = Field(20, ge=1, le=MANY, description="unselected responses kept per seed")


class Variants(Settings):
    """Further models of every draw: what the data-budget and dropout ablations start from."""

    label_fractions: tuple[float, ...] = Field(
        max_length=100, description="shares of the reward model's labels, each a reward model reward_<percent>"
    )
    dropout: float = Field(
        0.0, ge=0, lt=1, description="dropout of a second base model, policy_dropout; 0 = none is made"
    )
    standard_prompts: int = Field(
        256, ge=2, le=MANY, description="prompts whose untrained responses put all reward models on one scale"
    )

    @model_validator(mode="after")
    def _a_name_for_each_share(self):
        shares, names = self.label_fractions, [reward_name(f) for f in self.label_fractions]
        if not all(0 <= f < 1 for f in shares) or len(set(names)) < len(names):
            text = f"expected numbers >= 0 and < 1 whose names differ, found {list(shares)}: {', '.join(names)}"
            raise Misfit((("label_fractions",), text))
        return self

    @property
    def rewards(self) -> list[str]:
        """Names of the rewards on reviews: of all labels, the same reversed, and of fewer labels."""
        return ["reward", REVERSED, *map(reward_name, self.label_fractions)]


class Run(Settings):
    """What a run is, beside its learner's own settings."""

    algorithm: Name = Field(description="a file in rlnlp/learners or workbook/arms")
    world: str = Field("", description="generated task of `worlds`; empty = the task of the file")
    start: str = Field("", description="run whose trained policy this one continues; empty = the base model")
    base: Literal["policy", "policy_dropout"] = Field(
        "policy", description="base model; policy_dropout was pretrained with dropout"
    )
    reward: str = Field(
        "reward",
        description="reward it is trained on: reward (all labels, or a world's default), reversed (1 minus that), "
        "reward_<percent>, or one of a world's",
    )
    decodings: tuple[Literal[DECODINGS], ...] = Field(
        (), description="decodings it is evaluated with beside plain, own and evaluation.everywhere"
    )
    vocabulary: int = Field(0, ge=0, le=MANY, description="tokens that exist, the most frequent ones; 0 = all")
    replicate: int = Field(
        0, ge=0, le=999, description="number of a repetition: other random numbers in training, the same draw and test"
    )
    test_prompts: int = Field(
        0, ge=0, le=MANY, description="prompts it is tested on, the first ones of the draw; 0 = evaluation.test_prompts"
    )


class Report(Settings):
    """Which runs a report shows."""

    conditions: tuple[str, ...] = Field(
        min_length=1, description="names in `runs` and `continued`, in the order of the figures"
    )
    pairs: dict[Label, list[str]] = Field({}, description="of the KL report: algorithm: [run without KL, run with KL]")
    note: Annotated[str, StringConstraints(max_length=5000)] = Field(
        "", description="what a reader should know about how these settings came to be; shown in the report"
    )
