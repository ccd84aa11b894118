"""All of params.yaml as one frozen record: its sections, and what of it a run's learner gets.

`workbook.runs.checks.load` reads a file into it; `workbook.runs.conditions` cuts from it what each stage is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import pydantic
from pydantic import Field, PrivateAttr, model_validator

from rlnlp.settings import ConfigError, Settings, nearest
from workbook.draws.shapes import LanguageModel, Misfit, RewardModel
from workbook.runs import ablations, algorithms, brought, resolve
from workbook.runs.settings import (
    Bring,
    Evaluation,
    Label,
    Name,
    Pickable,
    Place,
    Report,
    Run,
    SamplingSettings,
    Seed,
    Task,
    Tune,
    Variants,
    World,
)

REPORTS = ablations.names()


class Params(Pickable):
    """Everything in params.yaml. What learners own (`learner`, `nlpo`, ..., the runs) their Config classes check."""

    root: Literal[".", "../.."] = Field(description="folder of the repository, relative to this file")
    profile: Name = Field(description="name of this scale; outputs are kept by it")
    mirror: Place = Field("", description="folder with datasets/<hub id> and models/<hub id>; else $RLNLP_MIRROR")
    device: str = Field("cpu", pattern=r"^(cpu|cuda(:\d{1,3})?)\z", description="cpu, cuda or cuda:<n>")
    threads: int = Field(1, ge=1, le=256, description="torch threads per process; results depend on it")
    precision: Literal["fp32", "tf32", "bf16"] = Field(
        "fp32",
        description="of matrix products in runs: fp32; tf32 (10 bits multiplied, GPUs only); bf16 (7 bits). Weights, "
        "log-probabilities and moments are fp32; TRPO, DQN, SAC and PPO with dropout need fp32; results depend on it",
    )
    shards: int = Field(
        1,
        ge=1,
        le=256,
        description="parts of a batch whose gradients are added in one order, a power of two that divides "
        "`episodes_per_update`: so many processes at most can train a run together, with the same bits. Of learners "
        "with PPO's update; others have 1. Results depend on it by rounding",
    )
    keep_policies: bool = Field(
        True,
        description="keep trained policies, three times each: scratch, outputs, DVC's cache. false = tables and "
        "samples alone, and the policies that runs of `continued` start from",
    )
    seeds: tuple[Seed, ...] = Field(min_length=1, max_length=1000, description="seed k trains on draw k")
    draws: tuple[Seed, ...] = Field(min_length=1, max_length=1000, description="corpus draws, each with its own models")
    size: str = Field("", description="which of `sizes` replaces values of this file; empty = none")
    sizes: dict[str, dict[str, Any]] = Field({}, description="named replacements of values, by section")
    bring: Bring = Field(Bring(), description="bring your own model, reward, prompts")
    task: Task
    language_model: LanguageModel
    reward_model: RewardModel
    sampling: SamplingSettings
    learner: dict[str, Any] = Field(description="fields of rlnlp.learners.ppo.Config that `sampling` does not have")
    nlpo: dict[str, Any] = Field({}, description="fields that rlnlp.learners.nlpo.Config adds")
    supervised: dict[str, Any] = Field(
        description="fields of rlnlp.learners.supervised.Config that `sampling` does not have"
    )
    algorithms: dict[str, dict[str, Any]] = Field(
        {}, description="algorithm: what its Config has beside, or differently from, the sections above"
    )
    worlds: dict[str, World] = Field({}, description="generated tasks that runs may be about")
    variants: Variants
    tune: Tune
    runs: dict[str, dict[str, Any]] = Field(
        min_length=1,
        max_length=2000,
        description="condition: {algorithm, what else a Run has, and what differs from the sections above}",
    )
    continued: dict[str, dict[str, Any]] = Field(
        max_length=2000,
        description="the same for runs that start from the trained policy of another: {start: condition, ...}",
    )
    evaluation: Evaluation
    reports: dict[Literal[REPORTS], Report] = Field(min_length=1, description="report: the runs it shows")
    claims: tuple[Label, ...] = Field(
        (), description="entries of claims.yaml that this profile decides; their runs must be here"
    )

    _path: Path = PrivateAttr(default=Path("params.yaml"))

    @model_validator(mode="after")
    def _values_that_go_together(self):
        if problems := list(self._misfits()):
            raise Misfit(*problems)
        return self

    def _misfits(self) -> Iterator[tuple[tuple, str]]:
        for name in ("seeds", "draws", "claims"):
            if len(set(values := getattr(self, name))) < len(values):
                yield (name,), f"expected different {'names' if name == 'claims' else 'whole numbers'}"
        if missing := [s for s in self.seeds if s not in self.draws]:
            known = list(self.draws)
            yield ("seeds",), f"expected seeds that are in draws {known} (seed k uses draw k), found {missing}"
        if self.tune.draw not in self.draws:
            yield ("tune", "draw"), f"expected one of draws {list(self.draws)}, found {self.tune.draw}"
        if self.precision == "tf32" and self.device == "cpu":
            yield ("precision",), "expected fp32 or bf16 on a cpu: tf32 is a GPU's"
        if self.shards & (self.shards - 1):
            yield ("shards",), f"expected a power of two, found {self.shards}"
        model = self.language_model
        if not self.bring.model and model.tokenizer == "bpe" and model.vocabulary < 260:
            place = ("language_model", "vocabulary")
            yield place, f"expected >= 260 (256 bytes + special), found {model.vocabulary}"
        if self.task.name == "csv" and not self.bring.prompts:
            yield ("task", "name"), "csv needs bring.prompts: the CSV file with a column `prompt`"
        for name in self.runs.keys() & self.continued.keys():
            yield ("continued", name), "expected a name that is not in runs too"
        yield from self._misfits_of_reports()

    def _misfits_of_reports(self) -> Iterator[tuple[tuple, str]]:
        known = list(self.all_runs)
        for report, shown in self.reports.items():
            place = ("reports", report)
            for i, name in enumerate(shown.conditions):
                if name not in known:
                    yield (*place, "conditions", i), f"expected a name in runs, found {name!r}{nearest(name, known)}"
            if len(set(shown.conditions)) < len(shown.conditions):
                yield (*place, "conditions"), "expected different names"
            for label, pair in shown.pairs.items():
                if len(pair) != 2:
                    yield (*place, "pairs", label), f"expected [run without KL, run with KL], found {pair}"
                for name in pair:
                    if name not in shown.conditions and (name not in known or set(shown.conditions) <= set(known)):
                        text = f"expected names in reports.{report}.conditions, found {name!r}"
                        yield (*place, "pairs", label), text + nearest(name, shown.conditions)

    @property
    def path(self) -> Path:
        """The file these values came from, absolute."""
        return self._path

    @property
    def folder(self) -> Path:
        """The profile's folder, absolute."""
        return self._path.parent

    @property
    def scratch(self) -> Path:
        """Untracked folder for checkpoints and finished seeds of this profile, absolute."""
        return (self.folder / self.root / ".scratch" / self.profile).resolve()

    @property
    def reports_folder(self) -> Path:
        """Folder of this profile's reports, absolute."""
        return (self.folder / self.root / "reports" / self.profile).resolve()

    @property
    def reward_files(self) -> list[Path]:
        """The file of a brought reward function and what is followed with it; none for another kind of reward."""
        return brought.reward_files(self.folder, self.bring)

    @property
    def task_name(self) -> str:
        """The task in force: bring.prompts replaces the named one."""
        return "csv" if self.bring.prompts else self.task.name

    @property
    def all_runs(self) -> dict[str, dict[str, Any]]:
        """`runs` and `continued` together, by condition."""
        return {**self.runs, **self.continued}

    def run(self, condition: str) -> Run:
        """What the run of a condition is. Raises ConfigError for an unknown one, naming the nearest."""
        if condition not in self.all_runs:
            known, hint = ", ".join(self.all_runs), nearest(condition, self.all_runs)
            raise ConfigError(f"{self.path}: runs: no run is called {condition!r}{hint} (runs: {known})")
        return Run.model_validate(resolve.own(self.all_runs[condition], Run, inside=True))

    def keeps(self, condition: str) -> bool:
        """Whether the policies of a run are kept: all are, or others start there."""
        return self.keep_policies or condition in {entry.get("start") for entry in self.continued.values()}

    def searched(self, condition: str) -> str:
        """The search from which a run takes its learning rate; "" where it or its sections say it."""
        run = self.run(condition)
        search = algorithms.module(run.algorithm).ABOUT.searched_as
        own = run.world or "learning_rate" in self.all_runs[condition] or search not in self.tune.own
        return "" if own else search

    def algorithm_config(self, algorithm: str, **changes) -> Settings:
        """The learner's Config: its sections of this file, then `changes`. Raises ConfigError naming the bad fields."""
        return self._config(algorithm, "", changes)

    def learner_config(self, condition: str, tuned: Mapping[str, Any] | None = None) -> Settings:
        """The learner's Config of one run: its sections of this file, then `tuned`, then what the run itself says.

        tuned: learner fields chosen by the search, e.g. {"learning_rate": 1e-3}; in a world nothing is searched, and
        its own sections take their place.
        Raises: ConfigError for an unknown condition or a value the learner refuses.
        """
        run = self.run(condition)
        entry = resolve.own(self.all_runs[condition], Run, inside=False)
        return self._config(run.algorithm, run.world, {**({} if run.world else tuned or {}), **entry})

    def _config(self, algorithm: str, world: str, changes: Mapping[str, Any]) -> Settings:
        if algorithm not in algorithms.names():
            raise ConfigError(f"{self.path}: expected an algorithm of {algorithms.names()}, found {algorithm!r}")
        model = algorithms.module(algorithm).Config
        values = resolve.given(algorithm, world, self.model_dump())
        try:
            return model.model_validate({**{k: v for k, (_, v) in values.items()}, **changes})
        except pydantic.ValidationError as error:
            said = [f"{'.'.join(map(str, e['loc']))}: {_said(e, model)}" for e in error.errors()]
            raise ConfigError(f"{self.path}: {algorithm}: " + "; ".join(said), said) from None


def _said(error: dict, model: type[Settings]) -> str:
    if error["type"] == "extra_forbidden":
        return f"unknown name{nearest(error['loc'][-1], model.model_fields)}"
    return f"{error['msg']}, found {error['input']!r}"
