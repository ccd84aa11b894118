"""The benchmark's settings, ``grue/params.yaml``: one value for all tasks, and what a task has otherwise."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Literal

import pydantic
from pydantic import Field, model_validator

from rlnlp.settings import ConfigError, Settings, nearest
from workbook.draws.shapes import MANY, TOKENS, LanguageModel
from workbook.grue import warm_start
from workbook.grue.arms import ARMS, Arm, arm
from workbook.grue.example import Decode, Task
from workbook.grue.raw import Raw
from workbook.runs import algorithms
from workbook.runs.messages import dotted, explain
from workbook.runs.reading import read

ANY = Arm("learner", "any learner", learner="ppo")
LATER = Arm("later", "any learner after supervision", start="supervised", learner="ppo")
FREE = "sampling", "learner", "nlpo"  # sections whose names a learner's Config decides


class Sizes(Settings):
    """How much of a draw is used."""

    train: int = Field(2000, ge=1, le=MANY, description="prompts that reinforcement learning samples from, examples")
    supervised: int = Field(800, ge=1, le=MANY, description="of them, those with references to imitate, examples")
    validation: int = Field(200, ge=1, le=MANY, description="choose the epoch of imitation, examples")
    test: int = Field(256, ge=1, le=MANY, description="all numbers of the tables, examples")

    @model_validator(mode="after")
    def _imitated_are_of_the_train_prompts(self):
        if self.supervised > self.train:
            raise ValueError(f"supervised {self.supervised}: expected, at most train ({self.train})")
        return self


class Evaluation(Settings):
    batch_size: int = Field(128, ge=1, le=MANY, description="prompts answered at once; no number depends on it")
    samples: int = Field(8, ge=0, le=MANY, description="answers kept to be shown, per seed")
    spread_prompts: int = Field(64, ge=1, le=MANY, description="prompts on which the reward's spread is measured")
    spread_samples: int = Field(8, ge=2, le=1000, description="answers to each of them")


class Bring(Settings):
    """Models of others to begin with, by hub id or folder; "" = trained here from scratch."""

    encoder_decoder: str = Field("", description="of the tasks that answer a source, as google-t5/t5-base")
    causal: str = Field("", description="of the tasks that continue a text, as openai-community/gpt2")

    def named(self, causal: bool) -> str:
        return self.causal if causal else self.encoder_decoder


class Overrides(Settings):
    """What one task has otherwise. {} = nothing."""

    rows: dict[str, int] = Field({}, description="of the section rows")
    test: Literal["test", "validation"] = Field(
        "test", description="real rows: the part that tables are about; validation where the hub hides the test's"
    )
    prompt_tokens: int = Field(0, ge=0, le=TOKENS, description="longest prompt, tokens; 0 = as published")
    response_tokens: int = Field(0, ge=0, le=TOKENS, description="horizon, tokens; 0 = as published")
    supervised: dict[str, Any] = Field({}, description="of the section supervised")
    sampling: dict[str, Any] = Field({}, description="of the section sampling")
    learner: dict[str, Any] = Field({}, description="of the section learner")
    nlpo: dict[str, Any] = Field({}, description="of the section nlpo")
    continued: dict[str, Any] = Field({}, description="of all three, for arms that begin with another arm's weights")
    decode: dict[str, Any] = Field({}, description="of the task's decoding at evaluation")
    reward: dict[str, float] = Field({}, description="scores and weights that training pays; {} = the task's own")
    models: dict[str, str] = Field(
        {},
        description="score -> the model it reads, by hub id or folder: bertscore, consistency; the tables have it then",
    )


class Grue(Settings):
    profile: str = Field("mini", pattern=r"^[a-z]+\z", description="name of the folder; for dvc.yaml")
    root: str = Field("..", description="of the repository, seen from the file; for dvc.yaml")
    data: Literal["generated", "real"] = Field("generated", description="rows: made here, or of the mirror or the hub")
    device: str = Field("cpu", pattern=r"^(cpu|cuda(:\d{1,3})?)\z", description="cpu, cuda or cuda:<n>")
    bring: Bring = Bring()
    meaningless: tuple[str, ...] = Field((), description="tasks that only show that they run; their tables say so")
    seeds: tuple[int, ...] = Field(min_length=1, description="replicates; each is a draw with its own raw model")
    threads: int = Field(1, ge=1, le=1024, description="of torch, per process; last digits depend on it")
    rows: Sizes
    raw: Raw
    causal: LanguageModel
    supervised: warm_start.Config
    sampling: dict[str, Any] = Field({}, description="of learners that sample: temperature, top_k, top_p")
    learner: dict[str, Any] = Field(description="of every reinforcement learner: fields of PPO's Config")
    nlpo: dict[str, Any] = Field({}, description="of NLPO alone")
    evaluation: Evaluation
    tasks: tuple[str, ...] = Field(min_length=1, description="files of workbook/grue/tasks")
    conditions: tuple[str, ...] = Field(min_length=1, description="arms that begin with the raw model")
    continued: tuple[str, ...] = Field((), description="arms that begin with another arm's weights")
    control_tasks: tuple[str, ...] = Field((), description="tasks that have the controls too")
    controls: tuple[str, ...] = Field((), description="arms of those tasks only")
    reward_tasks: tuple[str, ...] = Field((), description="tasks that have the arms of other rewards too")
    rewards: tuple[str, ...] = Field((), description="arms of those tasks only")
    overrides: dict[str, Overrides] = Field(description="task -> what it has otherwise; one entry a task")

    @model_validator(mode="after")
    def _names_and_learners(self):
        for name in (*self.conditions, *self.continued, *self.controls, *self.rewards):
            found = arm(name)
            if found.learner:
                for task in self.overrides:
                    self.learner_of(found, task, 10**5)
        if started := [name for name in self.conditions if arm(name).start]:
            raise ValueError(f"conditions: expected, arms of the raw model; {started} go into continued or controls")
        if missing := {*self.tasks} - {*self.overrides}:
            raise ValueError(f"overrides: expected, an entry for each task ({{}} = nothing); none for {min(missing)}")
        if spare := {*self.control_tasks, *self.reward_tasks, *self.overrides, *self.meaningless} - {*self.tasks}:
            raise ValueError(
                f"control_tasks, reward_tasks, overrides, meaningless: expected, names in tasks; found {min(spare)}"
            )
        decodes = [field.name for field in dataclasses.fields(Decode)]
        for name, own in self.overrides.items():
            self.rows_of(name), self.supervised_of(name)
            if spare := {*own.decode} - {*decodes}:
                raise ValueError(f"overrides.{name}.decode: unknown name{nearest(min(spare), decodes)}")
            if own.models:
                self._see_models(name)
        if self.real and not self.bring.encoder_decoder and (self.raw.mixed or not self.raw.vocabulary):
            raise ValueError("raw: expected, a BPE vocabulary and mixed 0, as rows are real: there is no mix of them")
        if self.real and not self.bring.causal and self.causal.tokenizer != "bpe":
            raise ValueError("causal.tokenizer: expected, bpe, as rows are real")
        return self

    def _see_models(self, name: str) -> None:
        from workbook.grue import scoring, tasks  # nltk, sacrebleu, evaluate: only where a score reads a model

        for score, model in self.models_of(name).items():
            try:
                scoring.reading(score, model, tasks.task(name), self.device)
            except ValueError as error:
                raise ValueError(f"overrides.{name}.models: expected, what a score can read: {error}") from None

    @property
    def real(self) -> bool:
        return self.data == "real"

    def rows_of(self, task: str) -> Sizes:
        """How much of a draw a task uses."""
        return self.rows.replace(**self.overrides[task].rows)

    def learner_of(self, chosen: Arm, task: str, horizon: int) -> Settings:
        """The settings of an arm's learner on a task: shared sections, the task's, the arm's. horizon: tokens."""
        module, values = algorithms.module(chosen.learner), {"max_new_tokens": horizon}
        for section in (name for name in FREE if name in module.ABOUT.sections):
            values |= getattr(self, section) | getattr(self.overrides[task], section)
        if chosen.start:
            values |= self.overrides[task].continued
        try:
            return module.Config(**values | chosen.settings)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            key = str(first["loc"][0]) if first["loc"] else chosen.learner
            hint = nearest(key, module.Config.model_fields) if first["type"] == "extra_forbidden" else ""
            said = f"unknown name{hint}" if hint or first["type"] == "extra_forbidden" else first["msg"]
            raise ValueError(f"{chosen.name} on {task}: expected, {key}: {said}") from None

    def supervised_of(self, task: str) -> warm_start.Config:
        """The settings of imitation on a task."""
        return self.supervised.replace(**self.overrides[task].supervised)

    def sampling_of(self, task: Task) -> Settings:
        """How training samples on a task, whatever arm trains: PPO's settings without an arm's own."""
        return self.learner_of(ANY, task.name, self.horizon(task))

    def steps_of_learning(self, task: Task) -> int:
        """Optimiser steps that reinforcement learning takes on a task after supervision."""
        config = self.learner_of(LATER, task.name, self.horizon(task))
        return config.updates * config.epochs * config.minibatches

    def horizon(self, task: Task) -> int:
        return self.overrides[task.name].response_tokens or task.response_tokens

    def prompt_tokens(self, task: Task) -> int:
        return self.overrides[task.name].prompt_tokens or task.prompt_tokens

    def decode(self, task: Task) -> Decode:
        """The task's decoding, at most as long as training allowed."""
        own = dataclasses.replace(task.decode, **self.overrides[task.name].decode)
        longest = min(own.max_new_tokens, self.horizon(task))
        return dataclasses.replace(own, max_new_tokens=longest, min_new_tokens=min(own.min_new_tokens, longest))

    def models_of(self, task: str) -> dict[str, str]:
        """Score -> the model that it reads on a task."""
        return dict(self.overrides[task].models)

    def reward(self, task: Task) -> dict[str, float]:
        return self.overrides[task.name].reward or dict(task.reward)


def load(path: str | Path) -> Grue:
    """Raises: ConfigError with a line for every problem: key, expected, found, the nearest name."""
    path = Path(path)
    raw, _ = read(path)
    try:
        return Grue.model_validate(raw)
    except pydantic.ValidationError as error:
        problems = [f"{dotted(e['loc'])}: {_said(e)}".removeprefix(": ") for e in error.errors()]
        raise ConfigError("\n  ".join([f"{path}: {len(problems)} problem(s)", *problems]), problems) from None


def _said(error: dict) -> str:
    if error["type"] != "extra_forbidden":
        return explain(error, Grue, error["loc"])
    model: Any = Grue
    for key in error["loc"][:-1]:
        field = getattr(model, "model_fields", {}).get(key)
        model = field.annotation if field is not None else Overrides
    return f"unknown name{nearest(error['loc'][-1], model.model_fields)}"


def arms_of(settings: Grue, task: str) -> list[str]:
    """The names of a task's arms, in the order of ``ARMS``."""
    named = {*settings.conditions, *settings.continued, *(settings.controls if task in settings.control_tasks else ())}
    named |= {*settings.rewards} if task in settings.reward_tasks else set()
    return [name for name in ARMS if name in named]
