"""`params.yaml` to frozen, validated settings; every problem in the file is reported at once, before any work starts.

    params = load()                                   # ./params.yaml
    params = load(**{"learner.gamma": 1.0})           # with an override, by dotted name
    config = params.learner_config("ppo_kl_default", tuned={"learning_rate": 1e-3})

`python -m rlnlp.config check params.yaml build/checked.txt build/brought.json` is the first stage of the pipeline.
YAML 1.2 rules (as DVC reads it): `1e-4` is a number, `on` is text; a key given twice is an error.
"""

from __future__ import annotations

import difflib
import importlib
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pydantic
from pydantic import Field, PrivateAttr
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from rlnlp.runs import digest, file_hash, folder_hash
from rlnlp.settings import ConfigError, Settings

ALGORITHMS = {  # a file in rlnlp/learners: the sections of params.yaml that its settings come from
    "ppo": ("sampling", "learner"),
    "nlpo": ("sampling", "learner", "nlpo"),
    "bandit": ("sampling", "learner"),
    "dropout": ("sampling", "learner"),
    "mismatch": ("sampling", "learner"),
    "supervised": ("sampling", "supervised"),
    "filtered": ("sampling", "supervised"),
    "best_of_n": ("sampling",),
    "masked": ("sampling", "learner"),
    "a2c": ("sampling", "learner"),
    "trpo": ("sampling", "learner"),
    "reinforce": ("sampling", "learner"),
    "rloo": ("sampling", "learner"),
    "grpo": ("sampling", "learner"),
    "dqn": ("sampling",),  # off-policy: what `learner` has under the same names means something else there
    "sac": ("sampling",),
}
SEARCHED = {  # whose learning rate, found by the search, an algorithm uses; the others use the one of the file
    "ppo": "ppo", "nlpo": "nlpo", "bandit": "ppo", "dropout": "ppo", "mismatch": "ppo", "masked": "ppo", "a2c": "a2c",
    "reinforce": "reinforce", "rloo": "reinforce", "grpo": "grpo",
}  # fmt: skip
FROM_REWARDS = {*(a for a, sections in ALGORITHMS.items() if "learner" in sections), "dqn", "sac"}  # need no texts to imitate
OWN_SECTIONS = {"learner": "ppo", "nlpo": "nlpo", "supervised": "supervised"}  # sections that hold fields of a learner's Config
DECODINGS = ("greedy", "beam", "top_k", "temperature")  # beside plain, top_p and own, which every run has
WORLDS = {  # generated tasks with a model of their own: their rewards, the default first (rlnlp.worlds.REWARDS)
    "numbers": ("pairs", "pairs_end", "prefix", "prefix_token"),
    "dates": ("dates",),
}
WORLD_TOKENS = 27  # the longest response in a world: what its model's positions leave beside the prompt (rlnlp.worlds)
REPORTS = (
    "kl", "gamma", "dropout", "mask", "budget", "warm_start", "sampling", "vocabulary", "samplers", "dqn", "family",
)  # fmt: skip
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


class Bring(Settings):
    """Bring your own: empty text means "made inside the pipeline"."""

    model: str = Field("", description="policy to start from: folder saved by save_pretrained, or hub id")
    reward: str = Field("", description='"path/to/file.py:function", or a classifier\'s folder or hub id')
    prompts: str = Field(
        "", description="CSV file with columns prompt[, reference[, split]]; replaces the task's prompts"
    )


class Task(Settings):
    """What is generated from, and how many examples of each kind a draw holds."""

    name: Literal["generated_reviews", "imdb", "csv"] = Field(description="a key of rlnlp.tasks.TASKS")
    language_model_reviews: int = Field(ge=1, description="reviews the base model is trained on")
    language_model_validation_reviews: int = Field(ge=1, description="reviews for validation bits per byte")
    evaluator_reviews: int = Field(
        ge=1, description="reviews of another corpus draw, for the reference model used in evaluation only"
    )
    reward_reviews: int = Field(ge=2, description="labelled reviews the reward model is trained on")
    reward_validation_reviews: int = Field(ge=2, description="labelled reviews for the reward model's accuracy")
    judge_reviews: int = Field(ge=2, description="labelled reviews for the judge, disjoint from the reward model's")
    prompt_tokens: int = Field(ge=1, description="tokens; longest prompt the policy sees (64 on IMDB: paper, Table 4)")
    train_prompts: int = Field(ge=1, description="prompts that episodes start from")
    validation_prompts: int = Field(ge=2, description="prompts for learning curves and for choosing settings; REINFORCE compares two")
    test_prompts: int = Field(ge=1, description="prompts used once, at the final checkpoint (5,000 in the paper)")


class LanguageModel(Settings):
    """A GPT-2-shaped model trained from scratch; ignored where bring.model is set."""

    layers: int = Field(ge=1, description="transformer blocks")
    width: int = Field(ge=8, description="hidden units; a multiple of heads")
    heads: int = Field(ge=1, description="attention heads")
    context: int = Field(ge=8, description="tokens; positions the model has")
    tokenizer: Literal["word", "bpe"] = Field(description="whole words (generated text) or byte-level BPE (real text)")
    vocabulary: int = Field(ge=0, description="tokens of the BPE vocabulary; ignored for words")
    steps: int = Field(ge=1, description="optimiser steps")
    batch_size: int = Field(ge=1, description="rows of `context` tokens per optimiser step")
    learning_rate: float = Field(gt=0, le=1, description="AdamW peak, cosine decay")
    warmup_fraction: float = Field(0.05, ge=0, lt=1, description="share of steps with linear warm-up")
    weight_decay: float = Field(0.01, ge=0, description="AdamW")
    max_grad_norm: float = Field(1.0, gt=0, description="L2 norm at which gradients are clipped")
    dropout: float = Field(0.0, ge=0, lt=1, description="probability")


class RewardModel(Settings):
    """A small transformer classifier; ignored where bring.reward is set, but for positive_label and include_prompt."""

    layers: int = Field(ge=1, description="transformer blocks")
    width: int = Field(ge=8, description="hidden units; a multiple of heads")
    heads: int = Field(ge=1, description="attention heads")
    epochs: int = Field(ge=1, description="passes over the labelled reviews")
    batch_size: int = Field(ge=1, description="reviews per optimiser step")
    learning_rate: float = Field(gt=0, le=1, description="AdamW peak")
    weight_decay: float = Field(0.01, ge=0, description="AdamW; keeps word weights small (saturation hides hacking)")
    dropout: float = Field(0.1, ge=0, lt=1, description="probability")
    max_tokens: int = Field(ge=8, description="tokens; longer text loses its left end (as the original)")
    positive_label: int = Field(1, ge=0, description="class whose probability is the score")
    include_prompt: bool = Field(True, description="score prompt + response (the original), else the response only")


class SamplingSettings(Settings):
    """How episodes are sampled; the scored distribution is the same one."""

    max_new_tokens: int = Field(ge=1, description="tokens; horizon T of the task (48 on IMDB: paper, Table 4)")
    min_new_tokens: int = Field(0, ge=0, description="tokens; EOS is blocked before (= max_new_tokens in the paper)")
    temperature: float = Field(1.0, gt=0, description="divides the logits, in sampling and scoring alike")
    top_k: int = Field(0, ge=0, description="tokens kept; 0 = all (50 in the paper: default of the original's library)")
    top_p: float = Field(1.0, gt=0, le=1, description="probability mass kept; 1 = all")


class Search(Settings):
    """One algorithm's own grid; what is left out is as `tune` says."""

    learning_rates: tuple[float, ...] = Field((), description="values tried, > 0; none = tune.learning_rates")
    kl_coefs: tuple[float, ...] = Field((), description="values tried, >= 0, reward unit per nat; none = tune.kl_coefs")
    updates: int = Field(0, ge=0, description="updates per candidate; 0 = tune.updates")


class Tune(Settings):
    """The same search for every algorithm, judged on validation prompts of one draw."""

    draw: int = Field(ge=0, description="corpus draw used for the search")
    learning_rates: tuple[float, ...] = Field(min_length=1, description="values tried, > 0")
    kl_coefs: tuple[float, ...] = Field(min_length=1, description="values tried, >= 0; reward unit per nat")
    updates: int = Field(ge=1, description="updates per candidate")
    own: dict[str, Search] = Field(
        {"ppo": Search(), "nlpo": Search()}, description="algorithms that are searched: what of the grid is their own"
    )

    def search(self, algorithm: str) -> Search:
        """The grid of an algorithm. Raises KeyError for one that is not in `own`."""
        own, grid = self.own[algorithm], ("learning_rates", "kl_coefs", "updates")
        return Search(**{name: getattr(own, name) or getattr(self, name) for name in grid})


class World(Settings):
    """A generated task with a small model of its own, and what differs there from the sections above."""

    texts: int = Field(ge=2, description="generated texts that its model is trained on")
    steps: int = Field(ge=1, description="optimiser steps of its model, which is otherwise one of `language_model`")
    sampling: dict[str, Any] = Field({}, description="what differs from `sampling`")
    learner: dict[str, Any] = Field({}, description="what differs from `learner`")
    algorithms: dict[str, dict[str, Any]] = Field({}, description="algorithm: what differs from all of these")


class Evaluation(Settings):
    """Evaluation on fixed prompts, with the decoding recorded beside the numbers."""

    batch_size: int = Field(ge=1, description="episodes per forward pass; also decides which random numbers a row gets")
    top_p: float = Field(0.9, gt=0, le=1, description="nucleus mass of the second, truncated decoding")
    top_k: int = Field(50, ge=1, description="tokens kept by the decoding top_k")
    temperature: float = Field(0.7, gt=0, description="of the decoding temperature")
    beams: int = Field(5, ge=2, description="width of the decoding beam")
    human_reviews: int = Field(ge=1, description="reviews for the policy's perplexity on human text")
    samples: int = Field(20, ge=1, description="unselected responses kept per seed")


class Variants(Settings):
    """Further models of every draw: what the data-budget and dropout ablations start from."""

    label_fractions: tuple[float, ...] = Field(description="shares of the reward model's labels, each a reward model reward_<percent>")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout of a second base model, policy_dropout; 0 = none is made")
    standard_prompts: int = Field(256, ge=2, description="prompts whose untrained responses put all reward models on one scale")


class Run(Settings):
    """What a run is, beside its learner's own settings."""

    algorithm: Literal[tuple(ALGORITHMS)] = Field(description="a file in rlnlp/learners")
    world: Literal[("", *WORLDS)] = Field("", description="generated task of `worlds`; empty = the task of the file")
    start: str = Field("", description="run whose trained policy this one continues; empty = the base model")
    base: Literal["policy", "policy_dropout"] = Field("policy", description="base model; policy_dropout was pretrained with dropout")
    reward: str = Field("reward", description="reward it is trained on: reward (all labels, or a world's default), reward_<percent>, or one of a world's")
    decodings: tuple[Literal[DECODINGS], ...] = Field((), description="decodings it is evaluated with beside plain, top_p and own")
    vocabulary: int = Field(0, ge=0, description="tokens that exist, the most frequent ones; 0 = all")


class Report(Settings):
    """Which runs a report shows."""

    conditions: tuple[str, ...] = Field(min_length=1, description="names in `runs` and `continued`, in the order of the figures")
    pairs: dict[str, list[str]] = Field({}, description="of the KL report: algorithm: [run without KL, run with KL]")
    note: str = Field("", description="what a reader should know about how these settings came to be; shown in the report")


class Params(Settings):
    """Everything in params.yaml. `learner`, `nlpo`, `supervised` and the runs are checked against the learners' Config classes."""

    root: str = Field(description="folder of the repository, relative to this file")
    profile: str = Field(pattern=RUN_NAME.pattern + r"\z", description="name of this scale; outputs are kept by it")
    mirror: str = Field("", description="folder with datasets/<hub id> and models/<hub id>; else $RLNLP_MIRROR")
    device: str = Field("cpu", pattern=r"^(cpu|cuda(:\d+)?)\z", description="cpu, cuda or cuda:<n>")
    threads: int = Field(1, ge=1, le=256, description="torch threads per process; results depend on it")
    seeds: tuple[int, ...] = Field(min_length=1, description="seed k trains on draw k")
    draws: tuple[int, ...] = Field(min_length=1, description="corpus draws, each with its own models")
    size: str = Field("", description="which of `sizes` replaces values of this file; empty = none")
    sizes: dict[str, dict[str, Any]] = Field({}, description="named replacements of values, by section")
    bring: Bring = Field(Bring(), description="bring your own model, reward, prompts")
    task: Task
    language_model: LanguageModel
    reward_model: RewardModel
    sampling: SamplingSettings
    learner: dict[str, Any] = Field(description="fields of rlnlp.learners.ppo.Config that `sampling` does not have")
    nlpo: dict[str, Any] = Field({}, description="fields that rlnlp.learners.nlpo.Config adds")
    supervised: dict[str, Any] = Field(description="fields of rlnlp.learners.supervised.Config that `sampling` does not have")
    algorithms: dict[str, dict[str, Any]] = Field({}, description="algorithm: what its Config has beside, or differently from, the sections above")
    worlds: dict[Literal[tuple(WORLDS)], World] = Field({}, description="generated tasks that runs may be about")
    variants: Variants
    tune: Tune
    runs: dict[str, dict[str, Any]] = Field(
        min_length=1,
        description="condition: {algorithm, what else a Run has, and what differs from the sections above}",
    )
    continued: dict[str, dict[str, Any]] = Field(
        {}, description="the same for runs that start from the trained policy of another: {start: condition, ...}"
    )
    evaluation: Evaluation
    reports: dict[Literal[REPORTS], Report] = Field(min_length=1, description="report: the runs it shows")
    claims: tuple[str, ...] = Field((), description="entries of claims.yaml that this profile decides; their runs must be here")

    _path: Path = PrivateAttr(default=Path("params.yaml"))

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
        """The file of a brought reward function and what it may import beside it; none for another kind of reward."""
        file, _, function = self.bring.reward.rpartition(":")
        return sorted((self.folder / file).parent.glob("*.py")) if file.endswith(".py") and function else []

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
        return Run.model_validate({k: v for k, v in self._entry(condition).items() if k in Run.model_fields})

    def _entry(self, condition: str) -> dict[str, Any]:
        if condition not in self.all_runs:
            hint = _nearest(condition, self.all_runs)
            raise ConfigError(f"{self.path}: runs: no run is called {condition!r}{hint} (runs: {', '.join(self.all_runs)})")
        return self.all_runs[condition]

    def algorithm_config(self, algorithm: str, **changes) -> Settings:
        """The learner's Config: its sections of this file, then `changes`. Raises ConfigError naming the first bad field."""
        return self._config(algorithm, "", changes)

    def _config(self, algorithm: str, world: str, changes: Mapping[str, Any]) -> Settings:
        if algorithm not in ALGORITHMS:
            raise ConfigError(f"{self.path}: expected an algorithm of {list(ALGORITHMS)}, found {algorithm!r}")
        model = learner_class(algorithm)
        sections = {**dict(self), "sampling": dict(self.sampling), "worlds": {k: dict(v) for k, v in self.worlds.items()}}
        values = {k: v for _, found in _layers(model, algorithm, world, sections) for k, v in found.items()} | dict(changes)
        try:
            return model.model_validate(values)
        except pydantic.ValidationError as error:
            found = [
                f"{_dotted(e['loc'])}: {_explain(e, model, e['loc'], ('runs', algorithm))}" for e in error.errors()
            ]
            raise ConfigError(f"{self.path}: " + "; ".join(found), found) from None

    def learner_config(self, condition: str, tuned: Mapping[str, Any] | None = None) -> Settings:
        """The learner's Config of one run: its sections of this file, then `tuned`, then what the run itself says.

        tuned: learner fields chosen by the search, e.g. {"learning_rate": 1e-3}; in a world nothing is searched, and its
        own sections take their place.
        Raises: ConfigError for an unknown condition or a value the learner refuses.
        """
        run, entry = self.run(condition), self._entry(condition)
        overrides = {k: v for k, v in entry.items() if k not in Run.model_fields}
        found = {} if run.world else dict(tuned or {})
        return self._config(run.algorithm, run.world, {**found, **overrides})

    def pick(self, *names: str) -> dict[str, Any]:
        """The values under dotted names ("sampling", "learner.gamma", ...), flat, for a fingerprint.

        Raises: KeyError for a name that does not exist.
        """
        everything = self.model_dump(mode="json")
        picked: dict[str, Any] = {}
        for name in names:
            value: Any = everything
            for part in name.split("."):
                if not isinstance(value, dict) or part not in value:
                    raise KeyError(f"{name}: not a name in {self.path}")
                value = value[part]
            picked.update(_flatten(name, value))
        return picked


def reward_name(fraction: float) -> str:
    """The reward model trained on a share of the labels: reward_10 for 0.1."""
    return f"reward_{100 * fraction:g}"


def learner_class(algorithm: str) -> type[Settings]:
    """`Config` of rlnlp.learners.<algorithm>; imported here, because it brings torch with it."""
    return importlib.import_module(f"rlnlp.learners.{algorithm}").Config


def _layers(model: type[Settings], algorithm: str, world: str, values: Mapping[str, Any]) -> list[tuple[tuple, dict]]:
    """Where a learner's settings stand, each replacing those before: (keys, values). `values`: the file's.

    Of the sections that algorithms share, only what the learner has and what is not fixed by what it is (a bandit's gamma is 1).
    """
    fixed, names = getattr(model, "fixed", {}), ALGORITHMS[algorithm]

    def section(*keys: str, shared: bool = True) -> tuple[tuple, dict]:
        found: Any = values
        for key in keys:
            found = (found.get(key) if isinstance(found, Mapping) else None) or {}
        kept = {k: v for k, v in found.items() if not shared or (k in model.model_fields and k not in fixed)}
        return keys, kept

    layers = [*(section(name) for name in names), section("algorithms", algorithm, shared=False)]
    if world:
        layers += [section("worlds", world, name) for name in ("sampling", "learner") if name in names]
        layers.append(section("worlds", world, "algorithms", algorithm, shared=False))
    return layers


def load(path: str | Path = "params.yaml", **overrides) -> Params:
    """Read and check a params file.

    path: the file; overrides: values by dotted name, given as `**{"learner.gamma": 1.0}`. They win over `sizes`.
    Raises: ConfigError listing every problem found, each with line, dotted key, expected, found and the nearest name.
    """
    path = Path(path)
    raw, lines = _read(path)
    check = _Check(path, lines, raw, overrides)
    params = check.run()
    if check.problems:
        head = f"{path}: " + ("1 problem" if len(check.problems) == 1 else f"{len(check.problems)} problems")
        raise ConfigError("\n  ".join([head, *check.problems]), check.problems)
    params._path = path.resolve()
    return params


def _read(path: Path) -> tuple[dict, dict[tuple, int]]:
    """The file's values, and the line of each key."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        near = sorted(p.name for p in path.parent.glob("*.y*ml")) if path.parent.is_dir() else []
        raise ConfigError(f"{path}: no such file (looked in {path.parent.resolve()}; YAML there: {near})") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as UTF-8 text: {error}") from None
    try:
        raw = YAML(typ="safe", pure=True).load(text)
        node = YAML(pure=True).compose(text)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        where = f" line {mark.line + 1}, column {mark.column + 1}:" if mark else ""
        said = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError(f"{path}:{where} not valid YAML: {said}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: expected lines of `name: value`, found {_show(raw)}")
    lines: dict[tuple, int] = {}

    def walk(item, keys):
        for i, child in enumerate(item.value if not isinstance(item.value, str) else ()):
            key, value = (child[0].value, child[1]) if isinstance(child, tuple) else (i, child)
            lines[keys + (key,)] = (child[0] if isinstance(child, tuple) else child).start_mark.line + 1
            walk(value, keys + (key,))

    walk(node, ())
    return raw, lines


class _Check:
    """One pass over a file's values that collects problems instead of stopping at the first."""

    def __init__(self, path: Path, lines: dict, raw: dict, overrides: Mapping[str, Any]):
        self.path, self.lines, self.problems = path, lines, []
        self.origin: dict[tuple, str] = {}  # values that do not come from their own line
        self.raw = raw
        self.reported: set[tuple] = set()
        self.overrides = overrides

    def add(self, keys: tuple, text: str) -> None:
        for i in range(len(keys), 0, -1):
            if keys[:i] in self.origin:
                where = self.origin[keys[:i]]
                break
            if keys[:i] in self.lines:
                where = f"line {self.lines[keys[:i]]}"
                break
        else:
            where = ""
        self.reported.add(keys)
        line = f"{_dotted(keys)}{f' ({where})' if where else ''}: {text}" if keys else text
        if line not in self.problems:
            self.problems.append(line)

    def run(self) -> Params | None:
        for keys, key in _bad_keys(self.raw):
            self.add(keys, f"expected text as a name, found {_show(key)}")
        if self.problems:
            return None
        self.raw = json.loads(json.dumps(self.raw, default=str))  # one copy; YAML anchors share their parts
        self.merge()
        params = None
        try:
            params = Params.model_validate(self.raw)
        except pydantic.ValidationError as error:
            for e in error.errors():
                self.add(e["loc"], _explain(e, Params, e["loc"]))
        self.learners()
        if params is not None:
            self.across(params)
        return params

    def merge(self) -> None:
        """Put `sizes.<size>` and then the overrides over the file's values."""
        overlay, sizes = [], self.raw.get("sizes") or {}
        size = self.overrides.get("size", self.raw.get("size")) or ""
        if isinstance(size, str) and isinstance(sizes, dict):
            for name, values in sizes.items():
                for keys in _leaves(values if isinstance(values, dict) else {}):
                    if not _known(keys):
                        self.add(("sizes", name) + keys, f"unknown name{_suggest(keys)}")
            if size and size not in sizes:
                self.add(("size",), f"expected a name in sizes {list(sizes)}, found {size!r}{_nearest(size, sizes)}")
            for keys in _leaves(chosen) if isinstance(chosen := sizes.get(size), dict) else ():
                value = chosen
                for key in keys:
                    value = value[key]
                overlay.append((keys, value, f"from sizes.{size}"))
        overlay += [(tuple(name.split(".")), value, "override") for name, value in self.overrides.items()]
        for keys, value, origin in overlay:
            place = self.raw
            for i, key in enumerate(keys[:-1]):
                if key not in place and _known(keys[: i + 1]):
                    place[key] = {}
                place = place.get(key)
                if not isinstance(place, dict):
                    self.add(keys, f"unknown name ({origin}){_suggest(keys)}")
                    break
            else:
                place[keys[-1]] = value
                self.origin[keys] = origin

    def learners(self) -> None:
        """Check the sections that learners' Config classes decide, and every run, against those classes."""
        shared = {name: self.raw.get(name, {}) for name in ("sampling", *OWN_SECTIONS)}
        groups = {name: self.raw.get(name) or {} for name in ("runs", "continued", "algorithms", "worlds")}
        if not all(isinstance(section, dict) for section in (*shared.values(), *groups.values())):
            return  # already reported
        before = len(self.problems)
        for section in OWN_SECTIONS:
            self.known_names((section,), shared[section], section)
        for name, world in groups["worlds"].items():
            for part in ("sampling", "learner"):
                self.known_names(("worlds", name, part), world.get(part) if isinstance(world, dict) else {}, part)
        whole = self.horizon("")
        for section, algorithm in OWN_SECTIONS.items():
            self.validate(algorithm, *self.given(algorithm, ""), (section,), whole)
        for algorithm, entry in groups["algorithms"].items():
            self.algorithm_entry(algorithm, "", entry, whole)
        for world in groups["worlds"].keys() & WORLDS.keys():
            if isinstance(groups["worlds"][world], dict):
                right = self.horizon(world) and whole
                self.validate("ppo", *self.given("ppo", world), ("worlds", world), right)
                own = groups["worlds"][world].get("algorithms")
                for algorithm, entry in own.items() if isinstance(own, dict) else ():
                    self.algorithm_entry(algorithm, world, entry, right)
        sound = len(self.problems) == before
        for group in ("runs", "continued"):
            for name, run in groups[group].items():
                if not RUN_NAME.fullmatch(name):
                    self.add((group, name), "expected a name of letters, digits, _ and - (no dots), as it names a folder")
                if isinstance(run, dict):
                    self.run_entry((group, name), run, sound)

    def known_names(self, keys: tuple, values: Any, section: str) -> None:
        """Report the names in `values`, which stand at `keys`, that the section does not have."""
        for name in [n for n in values if n not in _names(section)] if isinstance(values, dict) else ():
            self.add((*keys, name), f"unknown name{_suggest((*keys, name))}")

    def given(self, algorithm: str, world: str) -> tuple[dict, dict]:
        """The values that an algorithm takes from the sections, and where each stands."""
        layers = _layers(learner_class(algorithm), algorithm, world, self.raw)
        found = {k: ((*keys, k), v) for keys, values in layers for k, v in values.items()}
        return {k: v for k, (_, v) in found.items()}, {k: keys for k, (keys, _) in found.items()}

    def horizon(self, world: str) -> bool:
        """Whether EOS can be blocked for as long as the sections say; else reported here, as every learner would say so."""
        values, places = self.given("ppo", world)
        least, most = (values.get(f"{name}_new_tokens") for name in ("min", "max"))
        if turned := isinstance(least, int) and isinstance(most, int) and least > most:
            self.add(places["min_new_tokens"], f"expected at most max_new_tokens ({most}), found {least}")
        return not turned

    def algorithm_entry(self, algorithm: str, world: str, entry: Any, whole: bool) -> None:
        """Check one entry of `algorithms`, or of a world's."""
        place = (*(("worlds", world) if world else ()), "algorithms", algorithm)
        if algorithm not in ALGORITHMS:
            self.add(place, f"expected one of {', '.join(ALGORITHMS)}{_nearest(algorithm, ALGORITHMS)}")
        elif isinstance(entry, dict):
            self.validate(algorithm, *self.given(algorithm, world), place, whole)

    def run_entry(self, place: tuple, run: dict, sound: bool) -> None:
        """Check one entry of `runs` or `continued`: what a Run has, and what its learner has."""
        algorithm, world = run.get("algorithm"), run.get("world", "")
        if algorithm not in ALGORITHMS:
            found = "none" if algorithm is None else f"{_show(algorithm)}{_nearest(algorithm, ALGORITHMS)}"
            self.add((*place, "algorithm"), f"expected one of {', '.join(ALGORITHMS)}; found {found}")
            return
        try:
            Run.model_validate({k: v for k, v in run.items() if k in Run.model_fields})
        except pydantic.ValidationError as error:
            for e in error.errors():
                self.add(place + e["loc"], _explain(e, Run, e["loc"]))
        if not isinstance(world, str) or world not in ("", *(self.raw.get("worlds") or {})):
            if (*place, "world") not in self.reported:
                self.add((*place, "world"), f"expected a name in worlds, found {_show(world)}{_nearest(world, self.raw.get('worlds') or {})}")
            return
        own = {k: v for k, v in run.items() if k not in Run.model_fields}
        self.validate(algorithm, {**self.given(algorithm, world)[0], **own}, {k: (*place, k) for k in own}, place, sound)

    def validate(self, algorithm: str, values: dict, origins: dict, section: tuple, whole: bool = True) -> None:
        """Report what the learner refuses, for the keys in `origins` (and as a whole, if `whole`)."""
        config = learner_class(algorithm)
        try:
            config.model_validate(values)
        except pydantic.ValidationError as error:
            for e in error.errors():
                loc = e["loc"]
                if loc and loc[0] not in origins and not (whole and e["type"] == "missing"):
                    continue
                if loc or whole:
                    keys = origins.get(loc[0], section + loc[:1]) + loc[1:] if loc else section
                    if keys not in self.reported:
                        self.add(keys, _explain(e, config, loc, section))

    def across(self, p: Params) -> None:
        """Rules that tie several values together."""
        for name in ("seeds", "draws"):
            values = getattr(p, name)
            if min(values) < 0 or len(set(values)) < len(values):
                self.add((name,), f"expected different whole numbers >= 0, found {list(values)}")
        if missing := [s for s in p.seeds if s not in p.draws]:
            self.add(
                ("seeds",), f"expected seeds that are in draws {list(p.draws)} (seed k uses draw k), found {missing}"
            )
        if p.tune.draw not in p.draws:
            self.add(("tune", "draw"), f"expected one of draws {list(p.draws)}, found {p.tune.draw}")
        for place, grid in ((("tune",), p.tune), *((("tune", "own", k), v) for k, v in p.tune.own.items())):
            for name, low in (("learning_rates", "> 0"), ("kl_coefs", ">= 0")):
                values = getattr(grid, name)
                if min(values, default=1) < 0 or (min(values, default=1) == 0 and low == "> 0") or len(set(values)) < len(values):
                    self.add((*place, name), f"expected different numbers {low}, found {list(values)}")
        for name in p.tune.own.keys() - set(SEARCHED.values()):
            known = sorted(set(SEARCHED.values()))
            self.add(("tune", "own", name), f"expected one of {', '.join(known)}{_nearest(name, known)}")
        for name in ("language_model", "reward_model"):
            model = getattr(p, name)
            if model.width % model.heads:
                self.add((name, "width"), f"expected a multiple of heads ({model.heads}), found {model.width}")
        model = p.language_model
        if not p.bring.model and model.tokenizer == "bpe" and model.vocabulary < 260:
            self.add(
                ("language_model", "vocabulary"), f"expected >= 260 (256 bytes + special), found {model.vocabulary}"
            )
        self.lengths(p)
        self.brought(p)
        if p.task.name == "csv" and not p.bring.prompts:
            self.add(("task", "name"), "csv needs bring.prompts: the CSV file with a column `prompt`")
        self.named_runs(p)
        root = self.path.resolve().parent / p.root
        if not root.is_dir():
            self.add(("root",), f"expected a folder, relative to {self.path}; found {p.root!r}")
        here = self.path.resolve().parent
        if here.parent.name == "profiles" and p.profile != here.name:
            self.add(("profile",), f"expected {here.name!r}, the name of this file's folder, found {p.profile!r}")

    def named_runs(self, p: Params) -> None:
        """What runs and reports name is there."""
        names = list(p.all_runs)
        for name in p.runs.keys() & p.continued.keys():
            self.add(("continued", name), "expected a name that is not in runs too")
        fractions = [f for f in p.variants.label_fractions if 0 <= f < 1]
        if len(fractions) < len(p.variants.label_fractions) or len(set(fractions)) < len(fractions):
            self.add(("variants", "label_fractions"), f"expected different numbers >= 0 and < 1, found {list(p.variants.label_fractions)}")
        rewards = ["reward", *(reward_name(f) for f in fractions)]
        used: dict[str, list[str]] = {}  # search: the runs that need it
        for group, runs in (("runs", p.runs), ("continued", p.continued)):
            for name, entry in runs.items():
                try:
                    run = Run.model_validate({k: v for k, v in entry.items() if k in Run.model_fields})
                except pydantic.ValidationError:
                    continue  # already reported
                if group == "runs" and run.start:
                    self.add((group, name, "start"), "expected no start here: runs that continue another stand in `continued`")
                if group == "continued" and run.start not in p.runs:
                    self.add((group, name, "start"), f"expected a name in runs, found {_show(run.start)}{_nearest(run.start, p.runs)}")
                elif group == "continued" and p.runs[run.start].get("world", "") != run.world:
                    self.add((group, name, "start"), f"expected a run of the same world ({run.world or 'none'}), found {run.start!r}")
                if run.world:
                    self.world_run((group, name), run)
                    continue
                if run.algorithm in SEARCHED and (entry.get("updates") != 0 or "learning_rate" not in entry):
                    used.setdefault(SEARCHED[run.algorithm], []).append(name)
                if run.reward not in rewards:
                    self.add((group, name, "reward"), f"expected one of {rewards} (variants.label_fractions), found {run.reward!r}{_nearest(run.reward, rewards)}")
                if run.base == "policy_dropout" and not p.variants.dropout:
                    self.add((group, name, "base"), "policy_dropout is not made: variants.dropout is 0")
                if run.vocabulary and run.algorithm not in FROM_REWARDS:
                    self.add((group, name, "vocabulary"), f"expected 0 for {run.algorithm}: the texts it imitates use all tokens")
        for search in used.keys() - p.tune.own.keys():
            self.add(("tune", "own"), f"expected an entry `{search}: {{}}`, a learning rate that these runs use: {', '.join(used[search])}")
        for setting, own in (("reward", "reward"), ("model", "base")):  # variants are made of models that are trained here
            plain = Run.model_fields[own].default
            lost = [name for name, entry in p.all_runs.items() if entry.get(own, plain) != plain and not entry.get("world")]
            if getattr(p.bring, setting) and lost and ("bring", setting) not in self.reported:
                self.add(("bring", setting), f"these runs need a {own} that is made here; take them out of runs and reports: {', '.join(lost)}")
        for report, shown in p.reports.items():
            place = ("reports", report)
            for i, name in enumerate(shown.conditions):
                if name not in names:
                    self.add((*place, "conditions", i), f"expected a name in runs, found {name!r}{_nearest(name, names)}")
            if len(set(shown.conditions)) < len(shown.conditions):
                self.add((*place, "conditions"), "expected different names")
            for label, pair in shown.pairs.items():
                if len(pair) != 2:
                    self.add((*place, "pairs", label), f"expected [run without KL, run with KL], found {pair}")
                for name in pair:
                    if name not in shown.conditions and (name not in names or set(shown.conditions) <= set(names)):
                        hint = _nearest(name, shown.conditions)
                        self.add((*place, "pairs", label), f"expected names in reports.{report}.conditions, found {name!r}{hint}")
        if len(set(p.claims)) < len(p.claims):
            self.add(("claims",), "expected different names")

    def world_run(self, place: tuple, run: Run) -> None:
        """What a run in a world may say: it has a reward of that world, and no texts, variants or labels to choose from."""
        rewards = ["reward", *WORLDS[run.world]]
        if run.reward not in rewards:
            self.add((*place, "reward"), f"expected one of {rewards} in the world {run.world}, found {run.reward!r}{_nearest(run.reward, rewards)}")
        if run.algorithm not in FROM_REWARDS:
            self.add((*place, "world"), f"expected none for {run.algorithm}: in a world there are only rewards to learn from")
        longest = {**self.given(run.algorithm, run.world)[0], **self.raw[place[0]][place[1]]}.get("max_new_tokens")
        if isinstance(longest, int) and longest > WORLD_TOKENS:
            self.add((*place, "world"), f"expected max_new_tokens <= {WORLD_TOKENS} (its model's positions), found {longest}")
        for name, why in (("base", "a world has one model"), ("vocabulary", "its tokens are few")):
            if getattr(run, name) != Run.model_fields[name].default:
                self.add((*place, name), f"expected nothing in the world {run.world}: {why}")

    def lengths(self, p: Params) -> None:
        """Prompt and response fit into the models."""
        own = [run.get("max_new_tokens") for run in p.all_runs.values() if not run.get("world")]
        longest = max(n for n in [p.sampling.max_new_tokens, *own] if isinstance(n, int))
        need = p.task.prompt_tokens + longest
        parts = f"task.prompt_tokens {p.task.prompt_tokens} + max_new_tokens {longest} = {need}"
        context, name = p.language_model.context, "language_model.context"
        if p.bring.model:
            context, name = _positions(self.path.resolve().parent / p.bring.model), f"positions of {p.bring.model}"
        if context is not None and need > context:
            self.add(("task", "prompt_tokens"), f"expected prompt + response <= {name} ({context}), found {parts}")
        if not p.bring.reward and p.reward_model.include_prompt and need > p.reward_model.max_tokens:
            self.add(
                ("reward_model", "max_tokens"),
                f"expected >= prompt + response, {parts}; found {p.reward_model.max_tokens}",
            )

    def brought(self, p: Params) -> None:
        """What the user brings is there (a hub id is looked for by the stage that needs it)."""
        here = self.path.resolve().parent
        if p.bring.prompts and not (here / p.bring.prompts).is_file():
            self.add(
                ("bring", "prompts"), f"expected a CSV file, relative to {self.path}; found none at {p.bring.prompts!r}"
            )
        file, _, function = p.bring.reward.rpartition(":")
        if p.bring.reward.endswith(".py"):
            self.add(("bring", "reward"), f'expected "{p.bring.reward}:function", found no function name')
        elif file.endswith(".py"):
            if not (here / file).is_file():
                self.add(
                    ("bring", "reward"), f"expected a Python file, relative to {self.path}; found none at {file!r}"
                )
            elif not function.isidentifier():
                self.add(("bring", "reward"), f"expected the name of a function after the colon, found {function!r}")
        if p.bring.model and p.bring.model.startswith((".", "/")) and not (here / p.bring.model).is_dir():
            self.add(("bring", "model"), f"expected a folder, relative to {self.path}; found none at {p.bring.model!r}")


def _positions(folder: Path) -> int | None:
    """Longest input of a saved model, tokens; None if unknown or not bounded by position."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if config.get("is_encoder_decoder"):
        return None
    return next((config[k] for k in ("n_positions", "max_position_embeddings") if isinstance(config.get(k), int)), None)


_EXPECTED = {
    "float_type": "a number",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "string_type": "text",
    "dict_type": "a section (lines of `name: value`)",
    "model_type": "a section (lines of `name: value`)",
    "model_attributes_type": "a section (lines of `name: value`)",
    "tuple_type": "a list",
    "list_type": "a list",
    "finite_number": "a finite number",
    "greater_than": "> {gt}",
    "greater_than_equal": ">= {ge}",
    "less_than": "< {lt}",
    "less_than_equal": "<= {le}",
    "literal_error": "one of {expected}",
    "too_short": "at least {min_length} of them",
    "string_pattern_mismatch": "text of the form {pattern}",
}


def _explain(error: dict, model: type[Settings], loc: tuple, section: tuple = ()) -> str:
    """One pydantic error in our words."""
    kind, found = error["type"], error.get("input")
    key = str(error["loc"][-1]) if error["loc"] else ""
    if kind == "extra_forbidden":
        return f"unknown name{_suggest(section + loc, model)}"
    description = _description(model, loc or error["loc"])
    if kind == "missing":
        return f"expected a value{f' ({description})' if description else ''}, found nothing; add `{key}: ...`"
    if kind in ("value_error", "assertion_error"):
        return error["msg"].split(", ", 1)[-1]
    expected = _EXPECTED.get(kind, error["msg"]).format(**error.get("ctx", {}))
    hint = ""
    if kind == "literal_error" and isinstance(found, str):
        hint = _nearest(found, re.findall(r"'([^']*)'", expected))
    unit = f" ({description})" if description else ""
    return f"expected {expected}, found {_show(found)}{hint}{unit}"


def _description(model: type[Settings], loc: tuple) -> str:
    """The description of the field at `loc`."""
    field, keys = None, list(loc)
    while keys:
        if get_origin(model) is dict:  # a key of the user's
            keys.pop(0)
            model = get_args(model)[1]
            continue
        key = keys.pop(0)
        if not (isinstance(model, type) and issubclass(model, Settings)) or key not in model.model_fields:
            break
        field = model.model_fields[key]
        model = field.annotation
    return (field.description or "") if field is not None else ""


def _show(value: Any) -> str:
    kind = {str: "text", bool: "true/false", type(None): "nothing", dict: "a section", list: "a list"}.get(type(value))
    shown = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return "nothing" if value is None else f"{shown} ({kind})" if kind else shown


def _dotted(keys: tuple) -> str:
    return "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in keys).lstrip(".")


def _nearest(name: Any, names) -> str:
    near = difflib.get_close_matches(str(name), [str(n) for n in names], 1, 0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def _names(section: str = "") -> dict[str, Any]:
    """Field name -> type of a section ("" = the top level; a learner section has the fields it may set)."""
    if section == "":
        return {k: f.annotation for k, f in Params.model_fields.items()}
    if section in OWN_SECTIONS:
        others = learner_class("ppo") if section == "nlpo" else SamplingSettings
        return {k: None for k in learner_class(OWN_SECTIONS[section]).model_fields if k not in others.model_fields}
    kind = Params.model_fields[section].annotation if section in Params.model_fields else None
    return dict.fromkeys(kind.model_fields) if isinstance(kind, type) and issubclass(kind, Settings) else {}


def _known(keys: tuple) -> bool:
    """Whether dotted `keys` name a value of params.yaml (as far as the names are fixed)."""
    if keys[0] not in Params.model_fields:
        return False
    return len(keys) == 1 or keys[0] in ("runs", "continued", "sizes", "reports", "algorithms", "worlds") or keys[1] in _names(keys[0])


def _suggest(keys: tuple, model: type[Settings] | None = None) -> str:
    """The nearest valid name: first in the same section, then the same name in another section, then anywhere."""
    *section, name = [str(k) for k in keys]
    if section[:1] in (["runs"], ["continued"]):
        names, prefix = [*(model or learner_class("ppo")).model_fields, *Run.model_fields], ".".join(section)
    elif "algorithms" in section:
        names, prefix = list((model or learner_class("ppo")).model_fields), ".".join(section)
    elif section[:1] == ["worlds"]:
        names, prefix = list(_names(section[2]) if len(section) > 2 else World.model_fields), ".".join(section)
    else:
        names, prefix = list(_names(section[0] if section else "")), section[0] if section else ""
    if near := difflib.get_close_matches(name, names, 1, 0.6):
        return f"; did you mean {prefix + '.' if prefix else ''}{near[0]}?"
    places = {f: f"{s}.{f}" for s in reversed(Params.model_fields) for f in _names(s)}  # of two, the first section
    if near := difflib.get_close_matches(name, places, 1, 0.75):
        return f"; did you mean {places[near[0]]}?"
    return f"; valid names: {', '.join(names)}" if names else ""


def _bad_keys(value: Any, keys: tuple = ()):
    for key, item in value.items() if isinstance(value, dict) else ():
        if not isinstance(key, str):
            yield keys + (key,), key
        else:
            yield from _bad_keys(item, keys + (key,))


def _leaves(value: Any, keys: tuple = ()):
    for key, item in value.items():
        if isinstance(item, dict) and item:
            yield from _leaves(item, keys + (key,))
        else:
            yield keys + (key,)


def _flatten(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, dict) and value:
        return {k: v for key, item in value.items() for k, v in _flatten(f"{name}.{key}", item).items()}
    return {name: value}


def brought_contents(params: Params) -> dict[str, str]:
    """Content hash of each file or folder that `bring` names, by setting; "" where nothing is brought or a hub is to be asked."""
    found = {}
    for name, value in params.bring.model_dump().items():
        place = params.folder / value
        if name == "reward" and params.reward_files:
            found[name] = digest({path.name: file_hash(path) for path in params.reward_files})
        elif value and place.is_dir():
            found[name] = folder_hash(place)
        else:
            found[name] = file_hash(place) if value and place.is_file() else ""
    return found


def main(arguments: list[str]) -> int:
    """`check PARAMS CHECKED BROUGHT`: write the two files if PARAMS is sound, else print what is wrong and return 1.

    CHECKED never changes, so only bad settings stop the pipeline; BROUGHT holds `brought_contents`, which DVC follows.
    """
    if len(arguments) != 4 or arguments[0] != "check":
        print("usage: python -m rlnlp.config check params.yaml checked.txt brought.json", file=sys.stderr)
        return 2
    try:
        params = load(arguments[1])
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    texts = ("The settings are valid.\n", json.dumps(brought_contents(params), indent=1) + "\n")
    for out, text in zip(map(Path, arguments[2:]), texts):
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
