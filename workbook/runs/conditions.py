"""What each stage is given of params.yaml: small files of resolved settings, written by the pipeline's first stage.

    python -m workbook.runs.conditions params.yaml build

    build/checked.txt            always the same text: only unsound settings stop the pipeline
    build/brought.json           hashes of the files that `bring` names
    build/conditions/<run>.json  all that the run of a condition reads, and nothing else
    build/settings/<stage>.json  the same for the stages before and after: data, models, ..., tune_ppo, report
    build/origins/<run>.json     where each of the condition's values was decided; nothing depends on it

Of all settings, a stage depends on its own file. A learning rate that is searched is known only later: a run takes it
from tune/<searched>.json, and says so.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, PrivateAttr

from rlnlp.settings import ConfigError, Settings
from workbook.draws.shapes import LanguageModel, RewardModel
from workbook.runs import algorithms, brought, made_here, origins
from workbook.runs.params import Params
from workbook.runs.profiles import load
from workbook.runs.settings import Bring, Pickable, Run, SamplingSettings, Search, Task, Variants
from workbook.store.files import atomic_json, atomic_write


class Given(Pickable):
    """What a stage is given. Its fields are called as in params.yaml, and their meaning stands there."""

    root: str = "."
    profile: str

    _folder: Path = PrivateAttr(default=Path("."))

    @property
    def folder(self) -> Path:
        """The profile's folder, absolute."""
        return self._folder

    @property
    def scratch(self) -> Path:
        """Untracked folder for checkpoints and finished parts of this profile, absolute."""
        return (self.folder / self.root / ".scratch" / self.profile).resolve()

    def replace(self, **changes) -> Given:
        """A validated copy with some fields changed, of the same folder."""
        found = super().replace(**changes)
        found._folder = self._folder
        return found


def as_before(value: Any) -> bool:
    """Whether a setting is what it was before it could be set: no file of settings and no key then names it."""
    return value in (True, 1, "fp32")


# ------------------------------------------------------------------------------------ parts of sections that are read
class TaskName(Settings):
    name: str


class PromptsOf(Settings):
    name: str
    prompt_tokens: int


class PromptCounts(Settings):
    train_prompts: int
    validation_prompts: int
    test_prompts: int


class RewardReading(Settings):
    positive_label: int
    include_prompt: bool
    max_tokens: int


class Measuring(Settings):
    batch_size: int
    samples: int
    diversity_words: int
    everywhere: tuple[str, ...]
    test_prompts: int = 0
    top_p: float | None = None  # these four only where a run is evaluated with that decoding
    top_k: int | None = None
    temperature: float | None = None
    beams: int | None = None


class HumanReviews(Settings):
    human_reviews: int


class BroughtPrompts(Settings):
    prompts: str


class WorldModel(Settings):
    texts: int
    steps: int


# ------------------------------------------------------------------------------------------------------- each stage's
class ForData(Given):
    """data: the texts of a draw."""

    mirror: str
    bring: BroughtPrompts
    task: Task
    evaluation: HumanReviews


class ForModels(Given):
    """models: what is trained on them."""

    mirror: str
    device: str
    threads: int
    bring: Bring
    task: TaskName
    language_model: LanguageModel
    reward_model: RewardModel


class ForVariants(Given):
    """variants: further models of a draw."""

    mirror: str
    device: str
    threads: int
    bring: Bring
    task: PromptsOf
    language_model: LanguageModel
    reward_model: RewardModel
    sampling: SamplingSettings
    variants: Variants


class ForWorlds(Given):
    """worlds: models of the generated tasks."""

    device: str
    threads: int
    task: TaskName
    language_model: LanguageModel
    worlds: dict[str, WorldModel]


class Trained(Given):
    """What training and evaluating needs, whichever the condition."""

    device: str
    threads: int
    run: Run
    learner: dict[str, Any] = Field(description="the learner's settings, resolved")
    evaluation: Measuring
    precision: str = Field("fp32", exclude_if=as_before)
    shards: int = Field(1, exclude_if=as_before)
    mirror: str = ""  # in a world, these four are not read
    bring: Bring = Bring()
    task: PromptsOf | PromptCounts
    reward_model: RewardReading | None = None

    @property
    def reward_files(self) -> list[Path]:
        """The file of a brought reward function and what is followed with it; none for another kind of reward."""
        return brought.reward_files(self.folder, self.bring)

    def config(self, **changes) -> Settings:
        """The learner's Config, with some fields changed."""
        return algorithms.module(self.run.algorithm).Config.model_validate({**self.learner, **changes})


class ForTune(Trained):
    """tune: the search of one algorithm."""

    draw: int
    search: Search


class Condition(Trained):
    """A run: every seed of one condition."""

    condition: str
    seeds: tuple[int, ...]
    searched: str = Field("", description="tune/<this>.json has its learning rate; empty = it is in `learner`")
    keep_policies: bool = Field(True, exclude_if=as_before, description="its policies are kept, or others start there")


STAGES = {"data": ForData, "models": ForModels, "variants": ForVariants, "worlds": ForWorlds}
SHOWN = tuple("seeds bring task sampling learner nlpo supervised algorithms worlds variants tune".split())


def cut(model: type[Settings], values: Mapping[str, Any]) -> dict[str, Any]:
    """What of `values` a model has, down to its smallest section."""
    found = {}
    for name, field in model.model_fields.items():
        kind, value = field.annotation, values.get(name)
        if name not in values:
            continue
        if isinstance(kind, type) and issubclass(kind, Settings):
            found[name] = cut(kind, value)
        elif getattr(kind, "__origin__", None) is dict and isinstance(kind.__args__[1], type):
            inner = kind.__args__[1]
            found[name] = {k: cut(inner, v) if issubclass(inner, Settings) else v for k, v in value.items()}
        else:
            found[name] = value
    return found


def _trained(values: Mapping[str, Any], run: Run, learner: Settings) -> dict[str, Any]:
    """What a training is given: of its decodings, its task and its reward, what this run reads."""
    evaluation = cut(Measuring, values["evaluation"]) | ({"test_prompts": n} if (n := run.test_prompts) else {})
    used = {"top_p": "top_p", "top_k": "top_k", "temperature": "temperature", "beam": "beams"}
    unused = {field for name, field in used.items() if name not in (*evaluation["everywhere"], *run.decodings)}
    base = {name: values[name] for name in ("root", "profile", "device", "threads", "precision")}
    base["shards"] = 1 if algorithms.uncut(run.algorithm, learner) else values["shards"]
    base |= {"run": run.model_dump(mode="json"), "learner": learner.model_dump(mode="json")}
    base["evaluation"] = {k: v for k, v in evaluation.items() if k not in unused}
    if run.world:
        return {**base, "task": cut(PromptCounts, values["task"])}
    return {
        **base,
        "mirror": values["mirror"],
        "bring": values["bring"],
        "task": cut(PromptsOf, values["task"]),
        "reward_model": cut(RewardReading, values["reward_model"]),
    }


def condition(params: Params, name: str) -> Condition:
    """All that the run of a condition is given. Raises ConfigError for an unknown one."""
    run, searched, values = params.run(name), params.searched(name), params.model_dump(mode="json")
    own = {"condition": name, "seeds": list(params.seeds), "searched": searched}
    own["keep_policies"] = params.keeps(name)
    learner = params.learner_config(name)
    found = Condition.model_validate({**_trained(values, run, learner), **own})
    found._folder = params.folder
    if not searched:
        return found
    return found.replace(learner={k: v for k, v in found.learner.items() if k != "learning_rate"})


def search(params: Params, algorithm: str) -> ForTune:
    """All that the search of an algorithm is given."""
    values, grid = params.model_dump(mode="json"), params.tune.search(algorithm)
    own = {"draw": params.tune.draw, "search": grid.model_dump(mode="json")}
    run, learner = Run(algorithm=algorithm), params.algorithm_config(algorithm)
    found = ForTune.model_validate({**_trained(values, run, learner), **own})
    found._folder = params.folder
    return found


def stage(params: Params, name: str) -> Given:
    """All that the stage data, models, variants or worlds is given."""
    found = STAGES[name].model_validate(cut(STAGES[name], params.model_dump(mode="json")))
    found._folder = params.folder
    return found


def read(path: str | Path, model: type[Given]) -> Given:
    """What a stage is given, from its file in build/. Raises FileNotFoundError naming the stage that writes it."""
    path = Path(path)
    if not path.is_file():
        near = ", ".join(sorted(p.stem for p in path.parent.glob("*.json"))[:100])
        known = f" (there: {near})" if near else ""
        raise FileNotFoundError(f"{path}: no such file{known}; `dvc repro -s check` writes them from params.yaml")
    found = model.model_validate_json(path.read_text(encoding="utf-8"))
    found._folder = path.resolve().parents[2]
    return found


def load_condition(name: str, folder: str | Path = ".") -> Condition:
    """What the run of a condition is given, from the build folder of the profile in `folder`."""
    return read(Path(folder) / "build" / "conditions" / f"{name}.json", Condition)


def load_search(algorithm: str, folder: str | Path = ".") -> ForTune:
    """What the search of an algorithm is given, from the build folder of the profile in `folder`."""
    return read(Path(folder) / "build" / "settings" / f"tune_{algorithm}.json", ForTune)


def load_stage(name: str, folder: str | Path = ".") -> Given:
    """What the stage data, models, variants or worlds is given, from the build folder of the profile in `folder`."""
    return read(Path(folder) / "build" / "settings" / f"{name}.json", STAGES[name])


def files(params: Params) -> dict[str, Any]:
    """Path below build/ -> what is written there, as JSON."""
    values = params.model_dump(mode="json")
    shown = {name: values[name] for name in ("profile", "size", *SHOWN, "evaluation", "claims")}
    found: dict[str, Any] = {"brought.json": brought.contents(params.folder, params.bring)}
    found |= {f"settings/{name}.json": stage(params, name).model_dump(mode="json") for name in STAGES}
    found |= {
        f"settings/tune_{name}.json": search(params, name).model_dump(mode="json", exclude_none=True)
        for name in params.tune.own
    }
    found["settings/report.json"] = shown
    found["settings/claims.json"] = {name: values[name] for name in ("profile", "size", "seeds", "bring", "claims")}
    where = origins.Origins(params)
    for name in params.all_runs:
        given = condition(params, name)
        found[f"conditions/{name}.json"] = given.model_dump(mode="json", exclude_none=True)
        found[f"origins/{name}.json"] = where.of(given)
    return found


def main(arguments: list[str]) -> int:
    """`PARAMS OUT`: write the files into the folder OUT if PARAMS is sound, else print what is wrong and return 1."""
    if len(arguments) != 2:
        print("usage: python -m workbook.runs.conditions params.yaml build", file=sys.stderr)
        return 2
    try:
        params = load(arguments[0])
        if "claims" not in params.model_fields_set:  # they have a default, but DVC looks for them in the file
            raise ConfigError(f"{params.path}: claims: expected a list, found nothing; add `claims: []`")
        made_here.check(params)
        brought.tried(params.folder, params.bring)
        found = files(params)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    out = Path(arguments[1])
    (params.folder / "tune").mkdir(exist_ok=True)  # runs depend on it, also where nothing is searched
    for name in ("settings", "conditions", "origins"):  # of a condition that is gone, no file stays
        for path in (out / name).glob("*.json"):
            if f"{name}/{path.name}" not in found:
                path.unlink()
    for name, value in found.items():
        atomic_json(out / name, value)
    atomic_write(out / "checked.txt", "The settings are valid.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
