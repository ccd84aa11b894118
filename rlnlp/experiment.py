"""One condition, one seed: load its draw's models, train (or resume), evaluate once, and keep the result.

In: params, a condition name, a seed. Out: a folder of small files and the trained policy. A finished seed is reused and
a started one continued only under the fingerprint of everything that decides its numbers.
"""

from __future__ import annotations

import functools
import importlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from . import checkpoint, classify, data, models, pretrain, runs
from .config import Params
from .evaluation import Decoding, evaluate, human_log_perplexity
from .learners.ppo import TrainingError
from .rewards import check_function, classifier_reward, evaluate_reward, load_function
from .rollout import decode
from .settings import Settings
from .types import Experience, Prompts, Rollout, take, to

SAVE_EVERY = 5  # updates between checkpoints: a kill costs at most this much work
SETTINGS_READ = ("bring", "mirror", "task", "reward_model", "evaluation", "threads", "device")


def setup(params: Params) -> None:
    """Threads, allocator and quiet libraries of this process; call it first. Results depend on the thread count."""
    torch.set_num_threads(params.threads)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # a twelfth of an update; changes no number
    pretrain.keep_memory()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    _code.cache_clear()


@dataclass
class Draw:
    """What draw k supplies to a run: models, tokenizer, reward, judge and prompts."""

    policy: PreTrainedModel
    evaluator: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    reward: Callable
    alone: Callable | None  # the reward of a response without its prompt, where the reward is a classifier
    judge: Callable | None
    data: Path
    prompt_tokens: int
    read: dict[str, Prompts] = field(default_factory=dict)  # split -> its prompts

    def prompts(self, split: str) -> Prompts:
        if split not in self.read:
            self.read[split] = to(data.load_prompts(self.data, split, self.tokenizer, self.prompt_tokens), self.policy.device)
        return self.read[split]


def folders_of(params: Params, draw: int) -> tuple[Path, Path]:
    """A draw's data and models. Raises ``FileNotFoundError`` naming the stage that makes what is missing."""
    found = [params.folder / kind / f"draw{draw}" for kind in ("data", "models")]
    for folder in found:
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder}: no such folder; run the stage {folder.parent.name}@{draw} first (make reproduce)")
    return found[0], found[1]


def load_draw(params: Params, draw: int) -> Draw:
    """Everything a run of draw ``draw`` needs, checked before training starts."""
    texts, trained = folders_of(params, draw)
    policy, tokenizer = models.load(pretrain.locate(trained, "policy", params.mirror), params.device)
    evaluator, _ = models.load(pretrain.locate(trained, "evaluator", params.mirror), params.device)
    reward, alone = load_reward(params, trained, data.load_prompts(texts, "train", tokenizer, params.task.prompt_tokens, n=2))
    judge = classify.load_judge(trained / "judge") if (trained / "judge" / "judge.json").is_file() else None
    draw = Draw(policy, evaluator, tokenizer, reward, alone, judge, texts, params.task.prompt_tokens)
    if context := getattr(policy.config, "n_positions", None) or getattr(policy.config, "max_position_embeddings", None):
        for split in ("train", "validation", "test"):
            data.check_context(draw.prompts(split), params.sampling.max_new_tokens, context)
    return draw


def load_reward(params: Params, trained: Path, examples: Prompts) -> tuple[Callable, Callable | None]:
    """The reward function a run optimises: brought by the user (file.py:function, or a classifier) or the draw's classifier.

    A user's function is called once on ``examples`` before anything is trained. The second is the same classifier on
    the response alone; None for a function, which is never called with a prompt it was not made for.
    """
    source = pretrain.locate(trained, "reward", params.mirror)
    if ".py:" in source:
        file, name = source.rsplit(":", 1)
        function = load_function(f"{(params.folder / file).resolve()}:{name}")
        check_function(function, examples)
        return function, None
    settings = params.reward_model
    common = {"label": settings.positive_label, "max_tokens": settings.max_tokens, "device": params.device}
    return (
        classifier_reward(source, include_prompt=settings.include_prompt, **common),
        classifier_reward(source, include_prompt=False, **common),
    )


def scorer(reward: Callable, tokenizer: PreTrainedTokenizerBase) -> Callable[[Rollout], tuple]:
    """The ``score`` a learner calls: decode a rollout's responses and score them."""

    def score(rollout: Rollout):
        scores, parts = evaluate_reward(reward, rollout.prompts, decode(rollout, tokenizer))
        return scores.to(rollout.responses.device), {k: v.to(rollout.responses.device) for k, v in parts.items()}

    return score


def learner(algorithm: str):
    """The module ``rlnlp.learners.<algorithm>``."""
    return importlib.import_module(f"rlnlp.learners.{algorithm}")


def train(
    algorithm: str, config: Settings, draw: Draw, seed: int, folder: Path, label: str
) -> tuple[object, list[dict]]:
    """Train, or continue from the last checkpoint in ``folder``; returns the final state and the metrics of every update.

    Raises ``TrainingError`` naming the last good checkpoint where a run cannot go on.
    """
    module = learner(algorithm)
    state, curve = module.init(draw.policy, config, seed), []
    saved = runs.load_state(folder / "checkpoint")
    if saved is not None:
        tensors, meta = saved
        checkpoint.unpack(state, tensors, meta["numbers"])
        curve = meta["curve"]
    progress = tqdm(total=config.updates, initial=state.update, desc=label, unit="update")
    try:
        for metrics in module.train(state, draw.prompts("train"), scorer(draw.reward, draw.tokenizer), config):
            curve.append(metrics)
            progress.update()
            progress.set_postfix(score=f"{metrics['objective/score']:.3f}", kl=f"{metrics['objective/kl']:.3f}")
            if state.update % SAVE_EVERY == 0 or state.update == config.updates:
                tensors, numbers = checkpoint.pack(state)
                runs.save_state(folder / "checkpoint", tensors, {"numbers": numbers, "curve": curve})
    except (TrainingError, ValueError) as error:  # RewardError and failed checks of records are ValueErrors
        what = str(error) if isinstance(error, TrainingError) else f"update {state.update + 1}: {error}"
        last = state.update - state.update % SAVE_EVERY
        kept = f"update {last}, in {folder / 'checkpoint'}" if last else "none yet"
        raise TrainingError(f"{label}: {what}. Last good checkpoint: {kept}") from error
    finally:
        progress.close()
    return state, curve


def decodings(algorithm: str, config: Settings, nucleus: float) -> list[Decoding]:
    """The same two decodings for every algorithm, and the one the algorithm trained with."""
    common = {"max_new_tokens": config.max_new_tokens, "min_new_tokens": config.min_new_tokens}
    own = {**common, "temperature": config.temperature, "top_k": config.top_k, "top_p": config.top_p}
    if algorithm == "nlpo":
        own |= {"mask_top_p": config.mask_top_p, "mask_min_tokens": config.mask_min_tokens}
    return [Decoding("plain", **common), Decoding("top_p", top_p=nucleus, **common), Decoding("own", **own)]


def measure(params: Params, draw: Draw, state, seed: int, split: str, decoding: Decoding):
    """``evaluate`` of a learner's policy on a split: (row, responses, scores)."""
    return evaluate(
        state.policy, state.reference, draw.evaluator, draw.prompts(split), draw.tokenizer, draw.reward, draw.alone,
        draw.judge, decoding, f"{seed}/{split}", params.evaluation.batch_size, getattr(state, "mask_model", None),
    )


def evaluate_state(params: Params, algorithm: str, config: Settings, draw: Draw, state, seed: int, split: str):
    """Rows of metrics on ``split`` for each decoding, and the first responses of the plain one."""
    settings, rows, samples = params.evaluation, [], []
    human = human_log_perplexity(state.policy, draw.tokenizer, data.load_texts(draw.data, "human_reviews"))
    prompts, done = draw.prompts(split), {}
    for decoding in decodings(algorithm, config, settings.top_p):
        record = decoding.record()
        if record not in done:
            done[record] = measure(params, draw, state, seed, split, decoding)
        row, responses, scores = done[record]
        rows.append({
            "split": split, "decoding": decoding.name, "decoding_record": record, "prompts": len(prompts),
            **row, "human_log_perplexity": human,
        })
        if decoding.name == "plain":
            samples = [
                {"example_id": i, "prompt": p, "response": r, "score": s}
                for i, p, r, s in zip(prompts.example_ids, prompts.texts, responses, scores.tolist())
            ][: settings.samples]
    return rows, samples


def episode(algorithm: str, config: Settings, draw: Draw, state) -> dict:
    """One episode on the first validation prompt, token by token, as the learner saw it."""
    prompts = draw.prompts("validation")
    prompts = take(prompts, torch.arange(min(8, len(prompts))))
    seen: Experience = learner(algorithm).collect(state, prompts, scorer(draw.reward, draw.tokenizer), config)
    rollout = seen.rollout
    real = rollout.mask[0]
    return {
        "example_id": prompts.example_ids[0],
        "prompt": prompts.texts[0],
        "tokens": [draw.tokenizer.decode([i]) for i in rollout.responses[0][real].tolist()],
        "score": seen.scores[0].item(),
        **{
            name: value[0][real].tolist()
            for name, value in {
                "logprobs": rollout.logprobs, "ref_logprobs": seen.ref_logprobs, "kl": seen.kl,
                "rewards": seen.rewards, "values": seen.values, "advantages": seen.advantages,
            }.items()
        },
    }


def run_seed(params: Params, condition: str, seed: int, tuned: dict) -> Path:
    """Train and evaluate one seed of a condition; returns the folder of its finished files, reused if it is there."""
    algorithm = params.runs[condition]["algorithm"]
    config = params.learner_config(condition, {**params.sampling.model_dump(), **tuned})
    key = fingerprint(params, seed, {"condition": condition, "algorithm": algorithm, "seed": seed, **config.model_dump()})
    folder = params.scratch / "runs" / condition / f"seed{seed}-{key[:16]}"
    with runs.writer_lock(folder):
        final = folder / "final"
        if final.is_dir():
            return final
        draw = load_draw(params, seed)
        state, curve = train(algorithm, config, draw, seed, folder, f"{condition} seed {seed}")
        rows, samples = evaluate_state(params, algorithm, config, draw, state, seed, "test")
        who = {"condition": condition, "seed": seed}
        facts = {
            "condition": condition, "algorithm": algorithm, "kl_coef": config.kl_coef, "kl_target": config.kl_target,
            "learning_rate": config.learning_rate, "updates": config.updates, "seed": seed,
        }
        with finished(final) as work:
            runs.write_table(work / "per_seed.csv", [{**facts, **row} for row in rows])
            runs.write_table(work / "curves.csv", [{**who, **metrics} for metrics in curve])
            runs.atomic_json(work / "samples.json", [{**who, **sample} for sample in samples])
            runs.atomic_json(work / "episode.json", {**who, **episode(algorithm, config, draw, state)})
            pretrain.save(work / "policy", state.policy.cpu(), draw.tokenizer, card(params, condition, seed, config))
        return final


def run_condition(params: Params, condition: str, out: Path) -> None:
    """Every seed of a condition into ``out``: per_seed.csv, curves.csv, samples.jsonl, episode.json, policy_seed<k>/."""
    tuned = chosen(params, params.runs[condition]["algorithm"])
    finals = {seed: run_seed(params, condition, seed, tuned) for seed in params.seeds}
    with finished(out) as work:
        for name in ("per_seed.csv", "curves.csv"):
            runs.write_table(work / name, [row for f in finals.values() for row in runs.read_table(f / name)])
        samples = [line for f in finals.values() for line in json.loads((f / "samples.json").read_text())]
        runs.atomic_write(work / "samples.jsonl", "".join(json.dumps(s, ensure_ascii=False) + "\n" for s in samples))
        runs.atomic_write(work / "episode.json", (finals[params.seeds[0]] / "episode.json").read_text())
        for seed, final in finals.items():
            shutil.copytree(final / "policy", work / f"policy_seed{seed}")


@contextmanager
def finished(out: Path) -> Iterator[Path]:
    """A folder to write results into; it becomes ``out`` whole, and only when everything in it is written."""
    work = out.with_name(f"{out.name}.part")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    yield work
    runs.publish(work, out)
    shutil.rmtree(work)


def chosen(params: Params, algorithm: str) -> dict:
    """The learning rate that the search on validation prompts chose for this algorithm."""
    path = params.folder / "tune" / f"{algorithm}.json"
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; run the stage tune@{algorithm} first (make reproduce)")
    return {"learning_rate": json.loads(path.read_text())["learning_rate"]}


TUNE_RULE = (
    "highest validation score, plain decoding, among candidates whose generations' log perplexity under the evaluator "
    "is at most 0.1 nats per token above the zero-shot policy's; if none is, the lowest log perplexity"
)


def tune(params: Params, algorithm: str, out: Path) -> dict:
    """Search learning rate x kl_coef on validation prompts of one draw, the same grid for every algorithm; writes ``out``."""
    settings, candidates = params.tune, []
    grid = [(None, None)] + [(lr, beta) for lr in settings.learning_rates for beta in settings.kl_coefs]
    for learning_rate, kl_coef in grid:
        zero_shot = learning_rate is None
        changes = {"updates": 0} if zero_shot else {
            "learning_rate": learning_rate, "kl_coef": kl_coef, "kl_target": 0.0, "updates": settings.updates,
        }
        config = params.algorithm_config(algorithm, **params.sampling.model_dump(), **changes)
        seed = 1000 + settings.draw  # random numbers of its own, also where the draw is one of the seeds
        key = fingerprint(params, settings.draw, {"tune": algorithm, "algorithm": algorithm, "seed": seed, **config.model_dump()})
        name = "zero-shot" if zero_shot else f"lr{learning_rate:g}-kl{kl_coef:g}"
        folder = params.scratch / "tune" / algorithm / f"{name}-{key[:16]}"
        with runs.writer_lock(folder):
            if not (folder / "row.json").is_file():
                draw = load_draw(params, settings.draw)
                state, _ = train(algorithm, config, draw, seed, folder, f"tune {algorithm} {name}")
                plain, *_ = decodings(algorithm, config, params.evaluation.top_p)  # the only one that the rule looks at
                runs.atomic_json(folder / "row.json", measure(params, draw, state, seed, "validation", plain)[0])
            row = json.loads((folder / "row.json").read_text())
        candidates.append({"learning_rate": learning_rate, "kl_coef": kl_coef} | {
            k: row[k] for k in ("score", "judge", "generation_log_perplexity", "kl", "distinct_2")
        })
    zero, tried = candidates[0], candidates[1:]
    limit = zero["generation_log_perplexity"] + 0.1
    for c in tried:
        c["eligible"] = c["generation_log_perplexity"] <= limit
    eligible = [c for c in tried if c["eligible"]]
    best = max(eligible, key=lambda c: c["score"]) if eligible else min(tried, key=lambda c: c["generation_log_perplexity"])
    result = {
        "algorithm": algorithm, "learning_rate": best["learning_rate"], "kl_coef": best["kl_coef"], "rule": TUNE_RULE,
        "draw": settings.draw, "updates": settings.updates, "zero_shot": zero, "candidates": tried,
    }
    runs.atomic_json(out, result)
    return result


def fingerprint(params: Params, draw: int, settings: dict) -> str:
    """Hash of all that decides a run's numbers: settings read, package files used, the draw's data and models."""
    texts, trained = folders_of(params, draw)
    folders = [texts, trained]
    for part in ("policy", "evaluator", "reward"):  # a brought model is used where it is: its content counts
        place = Path(pretrain.locate(trained, part, params.mirror))
        if place.is_dir() and trained not in (place, *place.parents):
            folders.append(place)
    return runs.fingerprint(
        {**params.pick(*SETTINGS_READ), **settings},
        files=[*_code(runs.package_files, settings["algorithm"]), *params.reward_files], folders=folders,
    )


@functools.cache
def _code(find: Callable, algorithm: str) -> list[Path]:
    """The package files that runs of an algorithm use; read once, as this process has imported them once."""
    return find("rlnlp.experiment", f"rlnlp.learners.{algorithm}")


def card(params: Params, condition: str, seed: int, config: Settings) -> str:
    """A short model card: what this policy is, how it was trained, what it is not for."""
    lines = "\n".join(f"- {k}: {v}" for k, v in config.model_dump().items())
    return (
        f"---\nlibrary_name: transformers\npipeline_tag: text-generation\n---\n# {condition}, seed {seed}\n\n"
        f"A language model fine-tuned by reinforcement learning in profile `{params.profile}` of rlnlp, for the study of "
        f"reward hacking. Not for any other use.\n\nSettings:\n{lines}\n"
    )
