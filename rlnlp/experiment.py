"""One condition, one seed: load its draw's models, train (or resume), evaluate once, and keep the result.

In: params, a condition name, a seed. Out: a folder of small files and the trained policy. A finished seed is reused and
a started one continued only under the fingerprint of everything that decides its numbers.
"""

from __future__ import annotations

import functools
import importlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from . import checkpoint, classify, data, models, pretrain, runs, variants, worlds
from .config import ALGORITHMS, SEARCHED, Evaluation, Params, Run, learner_class
from .evaluation import Decoding, evaluate, human_log_perplexity
from .learners.ppo import Diverged, TrainingError
from .rewards import check_function, classifier_reward, evaluate_reward, load_function
from .rollout import decode
from .settings import Settings
from .types import Experience, Prompts, Rollout, take, to

SAVE_EVERY = 5  # updates between checkpoints: a kill costs at most this much work
SETTINGS_READ = ("bring", "mirror", "task", "reward_model", "evaluation", "threads", "device")
READ_IN_A_WORLD = ("task.train_prompts", "task.validation_prompts", "task.test_prompts", "evaluation", "threads", "device")
LAST = 3  # updates whose mean score says where training ended


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
    """What draw k supplies to a run: models, tokenizer, rewards, judges and prompts. In a world: its model, rewards and prompts."""

    policy: PreTrainedModel
    evaluator: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    reward: Callable  # trained on all labels: what every run is measured by
    training_reward: Callable  # what this run is trained on
    score: Callable[[Rollout], tuple]  # the same, of a rollout: what the learner calls
    alone: Callable | None  # the reward of a response without its prompt, where the reward is a classifier
    judge: Callable | None
    judge_2: Callable | None
    data: Path | None
    load: Callable[[str], Prompts]
    read: dict[str, Prompts] = field(default_factory=dict)  # split -> its prompts

    def prompts(self, split: str) -> Prompts:
        if split not in self.read:
            self.read[split] = to(self.load(split), self.policy.device)
        return self.read[split]


def folders_of(params: Params, draw: int) -> tuple[Path, Path, Path]:
    """A draw's data, models and variants. Raises ``FileNotFoundError`` naming the stage that makes what is missing."""
    found = [params.folder / kind / f"draw{draw}" for kind in ("data", "models", "variants")]
    for folder in found:
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder}: no such folder; run the stage {folder.parent.name}@{draw} first (make reproduce)")
    return tuple(found)


def base_folder(params: Params, draw: int, run: Run) -> str:
    """Path or hub id of the model that a run starts from: the base model, its variant, or another run's policy."""
    if run.start:
        folder = params.folder / "runs" / run.start / f"policy_seed{draw}"
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder}: no such folder; run the stage runs@{run.start} first (make reproduce)")
        return str(folder)
    if run.world:
        return str(world_folder(params, draw, run.world))
    _, trained, further = folders_of(params, draw)
    return pretrain.locate(trained, "policy", params.mirror) if run.base == "policy" else str(further / run.base)


def world_folder(params: Params, draw: int, world: str) -> Path:
    """Where a draw's model of a world is. Raises ``FileNotFoundError`` naming the stage that makes it."""
    folder = params.folder / "worlds" / f"draw{draw}" / world
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder; run the stage worlds@{draw} first (make reproduce)")
    return folder


def load_world(params: Params, draw: int, run: Run) -> Draw:
    """A world's model, which is policy and evaluator, its prompts, and the rewards that are measured by and trained on.

    Every run of a world is measured by its default reward. There are no judges, and no human texts.
    """
    policy, tokenizer = models.load(base_folder(params, draw, run), params.device)
    evaluator, _ = models.load(world_folder(params, draw, run.world), params.device)
    default = next(iter(worlds.REWARDS[run.world]))
    name = default if run.reward == "reward" else run.reward
    counts = {split: getattr(params.task, f"{split}_prompts") for split in ("train", "validation", "test")}
    measured = worlds.score_text(run.world, default)
    return Draw(
        policy, evaluator, tokenizer, measured, measured if name == default else worlds.score_text(run.world, name),
        worlds.scorer(run.world, name, tokenizer), None, None, None, None,
        lambda split: worlds.prompts(tokenizer, counts[split], split, draw),
    )


def load_draw(params: Params, draw: int, run: Run) -> Draw:
    """Everything a run of draw ``draw`` needs, checked before training starts."""
    if run.world:
        return load_world(params, draw, run)
    texts, trained, further = folders_of(params, draw)
    policy, tokenizer = models.load(base_folder(params, draw, run), params.device)
    if run.vocabulary:
        models.limit_vocabulary(policy, frequent_tokens(texts, tokenizer, run.vocabulary))
    evaluator, _ = models.load(pretrain.locate(trained, "evaluator", params.mirror), params.device)
    reward, alone = load_reward(params, trained, data.load_prompts(texts, "train", tokenizer, params.task.prompt_tokens, n=2))
    training_reward = reward if run.reward == "reward" else load_variant_reward(params, further, run.reward)
    judges = [
        classify.load_judge(folder) if (folder / "judge.json").is_file() else None
        for folder in (trained / "judge", further / "judge_2")
    ]
    draw = Draw(
        policy, evaluator, tokenizer, reward, training_reward, scorer(training_reward, tokenizer), alone, *judges, texts,
        lambda split: data.load_prompts(texts, split, tokenizer, params.task.prompt_tokens),
    )
    if context := getattr(policy.config, "n_positions", None) or getattr(policy.config, "max_position_embeddings", None):
        for split in ("train", "validation", "test"):
            data.check_context(draw.prompts(split), params.sampling.max_new_tokens, context)
    return draw


def frequent_tokens(texts: Path, tokenizer: PreTrainedTokenizerBase, count: int) -> list[int]:
    """EOS and the ``count`` - 1 most frequent other tokens of the base model's training text: the smaller action spaces
    lie in the larger ones. Ties in the order of the ids. Raises ``ValueError`` where the text has fewer different tokens."""
    counted = Counter(token for ids in pretrain.encode(tokenizer, data.load_texts(texts, "language_model")) for token in ids)
    counted.pop(tokenizer.eos_token_id, None)
    ranked = sorted(counted, key=lambda token: (-counted[token], token))
    if len(ranked) < count - 1:
        raise ValueError(f"vocabulary: expected at most {len(ranked) + 1}, the different tokens of the training text, found {count}")
    return [tokenizer.eos_token_id, *ranked[: count - 1]]


def load_variant_reward(params: Params, further: Path, name: str) -> Callable:
    """A reward model trained on fewer labels, its scores on the scale of the full one (same mean and spread on the
    untrained model's responses), so that beta weighs the same."""
    settings, scales = params.reward_model, json.loads((further / "standard.json").read_text())
    fewer = classifier_reward(
        str(further / name), include_prompt=settings.include_prompt, label=settings.positive_label,
        max_tokens=settings.max_tokens, device=params.device,
    )
    return variants.standardised(fewer, scales[name], scales["reward"])


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
    algorithm: str, config: Settings, draw: Draw, seed: int, folder: Path, label: str,
    prompts: Prompts | None = None, half: Callable[[object, list[dict]], None] | None = None,
) -> tuple[object, list[dict]]:
    """Train, or continue from the last checkpoint in ``folder``; returns the final state and the metrics of every update.

    prompts: what episodes start from, by default the training prompts; half: called at half the updates with the state
    and the curve so far, once (again only where a kill lost that update).
    Raises ``TrainingError`` naming the last good checkpoint where a run cannot go on. A run that says
    ``breaks: [finite]`` ends at a number that is not finite instead: its curve is then shorter than its updates.
    """
    module, middle = learner(algorithm), getattr(config, "updates", 0) // 2
    extra = (draw.tokenizer,) if "supervised" in ALGORITHMS[algorithm] else ()
    state, curve = module.init(draw.policy, config, seed, *extra), []
    saved = runs.load_state(folder / "checkpoint")
    if saved is not None:
        tensors, meta = saved
        checkpoint.unpack(state, tensors, meta["numbers"])
        curve = meta["curve"]
    if half and middle == state.update == 0:
        half(state, curve)
    progress = tqdm(total=config.updates, initial=state.update, desc=label, unit="update")
    try:
        for metrics in module.train(state, prompts or draw.prompts("train"), draw.score, config):
            curve.append(metrics)
            progress.update()
            shown = {"score": "objective/score", "kl": "objective/kl", "loss": "supervised/loss"}
            progress.set_postfix({k: f"{metrics[name]:.3f}" for k, name in shown.items() if name in metrics})
            if half and state.update == middle:
                half(state, curve)
            if state.update % SAVE_EVERY == 0 or state.update == config.updates:
                tensors, numbers = checkpoint.pack(state)
                runs.save_state(folder / "checkpoint", tensors, {"numbers": numbers, "curve": curve})
    except (TrainingError, ValueError) as error:  # RewardError and failed checks of records are ValueErrors
        if isinstance(error, Diverged) and "finite" in getattr(config, "breaks", ()):
            return state, curve
        what = str(error) if isinstance(error, TrainingError) else f"update {state.update + 1}: {error}"
        last = state.update - state.update % SAVE_EVERY
        kept = f"update {last}, in {folder / 'checkpoint'}" if last else "none yet"
        raise TrainingError(f"{label}: {what}. Last good checkpoint: {kept}") from error
    finally:
        progress.close()
    return state, curve


def decodings(algorithm: str, config: Settings, settings: Evaluation, extra: tuple[str, ...] = ()) -> list[Decoding]:
    """Plain and top-p, the same for every algorithm, the one the algorithm trained with, and those of ``extra``.

    DQN's own is the policy that its values define: greedy, among the tokens that its max may choose.
    """
    common = {"max_new_tokens": config.max_new_tokens, "min_new_tokens": getattr(config, "min_new_tokens", 0)}
    own = {**common, **{k: getattr(config, k) for k in ("temperature", "top_k", "top_p") if hasattr(config, k)}}
    if algorithm == "nlpo":
        own |= {"mask_top_p": config.mask_top_p, "mask_min_tokens": config.mask_min_tokens, "mask_random": config.mask_source == "random"}
    if algorithm == "masked" and config.mask_rule != "none":
        whose = "mask_model" if config.mask_delay else "policy"
        own |= {"rule": config.mask_rule, "rule_value": config.mask_value, "rule_of": whose}
    if algorithm == "dqn":
        own |= {"top_k": 1}
        if config.max_rule != "none":
            own |= {"rule": config.max_rule, "rule_value": config.max_value, "rule_of": "mask_model"}
    if algorithm == "best_of_n":
        own |= {"best_of": config.n}
    named = {
        "greedy": {"top_k": 1}, "beam": {"beams": settings.beams}, "top_k": {"top_k": settings.top_k},
        "temperature": {"temperature": settings.temperature},
    }
    return [
        Decoding("plain", **common), Decoding("top_p", top_p=settings.top_p, **common), Decoding("own", **own),
        *(Decoding(name, **named[name], **common) for name in extra),
    ]


def measure(params: Params, draw: Draw, state, seed: int, split: str, decoding: Decoding):
    """``evaluate`` of a learner's policy on a split: (row, responses, scores)."""
    return evaluate(
        state.policy, state.reference, draw.evaluator, draw.prompts(split), draw.tokenizer, draw.reward, draw.alone,
        draw.judge, decoding, f"{seed}/{split}", params.evaluation.batch_size, getattr(state, "mask_model", None),
        judge_2=draw.judge_2, training_reward=None if draw.training_reward is draw.reward else draw.training_reward,
    )


def evaluate_state(params: Params, draw: Draw, state, seed: int, split: str, chosen: list[Decoding]):
    """Rows of metrics on a split for each decoding, and the first responses of the plain one.

    A policy that is not finite any more (it ended so, ``breaks: [finite]``) has rows without numbers.
    """
    settings, rows, samples = params.evaluation, [], []
    prompts, done = draw.prompts(split), {}
    if not all(torch.isfinite(weights).all() for weights in state.policy.parameters()):
        about = {"split": split, "prompts": len(prompts), "score": None}
        return [{**about, "decoding": d.name, "decoding_record": d.record()} for d in chosen], []
    texts = data.load_texts(draw.data, "human_reviews") if draw.data else []
    human = human_log_perplexity(state.policy, draw.tokenizer, texts) if texts else None
    for decoding in chosen:
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


def training_facts(curve: list[dict], config: Settings, updates: int) -> dict[str, float | None]:
    """What a curve says about how training went, up to its end; None where a learner does not measure it.

    Means over updates: first_ratio_error, clip_fraction, approx_kl, gradient_norm. peak_kl: the largest sampled KL, nats per token.
    wobble: standard deviation of the training score's changes from update to update / sqrt 2. drop: its highest mean over
    3 updates in a row minus the last one. diverged: 1 if training ended before ``updates``, if the mean score of the last 3
    updates is more than 2 wobbles below that of the first 3, or the last KL is more than ten times an adaptive target.
    rollout_score: mean training score of the last 3 updates. tokens_per_gradient_step: new response tokens that were sampled for
    each gradient step of the policy.
    """
    def series(name: str) -> np.ndarray:
        return np.array([m[name] for m in curve if name in m])

    def mean(name: str) -> float | None:
        return float(found.mean()) if len(found := series(name)) else None

    score, kl = series("objective/score"), series("objective/kl")
    facts = {
        "first_ratio_error": mean("policy/first_ratio_error"), "clip_fraction": mean("policy/clip_fraction"),
        "approx_kl": mean("policy/approx_kl"), "gradient_norm": mean("policy/gradient_norm"),
        "peak_kl": float(kl.max()) if len(kl) else None, "wobble": None, "drop": None, "diverged": float(len(curve) < updates),
        "rollout_score": float(score[-LAST:].mean()) if len(score) else None,
        "tokens_per_gradient_step": tokens_per_gradient_step(curve, config),
    }
    if len(score) > LAST:
        level = np.convolve(score, np.ones(LAST) / LAST, "valid")
        facts["wobble"] = float(np.diff(score).std() / np.sqrt(2))
        facts["drop"] = float(level.max() - level[-1])
        lost = level[-1] < level[0] - 2 * facts["wobble"]
        far = getattr(config, "kl_target", 0) and kl[-1] > 10 * config.kl_target
        facts["diverged"] = float(facts["diverged"] or lost or far)
    return facts


def tokens_per_gradient_step(curve: list[dict], config: Settings) -> float | None:
    """Response tokens sampled in a training for each gradient step of the policy; None for one that samples none.

    DQN counts its steps, of which there are none before its replay is warm; the others say how many they take an update: SAC
    ``gradient_steps``, TRPO one, the others ``epochs`` times ``minibatches``.
    """
    if not any("episodes/length" in m for m in curve):
        return None
    each = getattr(config, "gradient_steps", None) or (config.epochs * config.minibatches if hasattr(config, "epochs") else 1)
    steps = sum(m.get("dqn/gradient_steps", each) for m in curve)
    return sum(m["episodes/length"] for m in curve) * config.episodes_per_update / steps if steps else None


def episode(algorithm: str, config: Settings, draw: Draw, state) -> dict:
    """One episode on the first validation prompt, token by token, as the learner saw it."""
    prompts = draw.prompts("validation")
    prompts = take(prompts, torch.arange(min(8, len(prompts))))
    seen: Experience = learner(algorithm).collect(state, prompts, draw.score, config)
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
    """Train and evaluate one seed of a condition; returns the folder of its finished files, reused if it is there.

    Evaluated are the final policy on the test prompts (split "test") and, for the verdict at half the budget, the policy
    after half the updates on the validation prompts (split "half": every decoding; top-p only where the run adds others, as
    it decides no other claim).
    A run that ended before (``breaks: [finite]``) is measured as it was then, in both splits.
    """
    run = params.run(condition)
    algorithm = run.algorithm
    config = params.learner_config(condition, tuned)
    about = {"condition": condition, "seed": seed, **run.model_dump(), **config.model_dump()}
    key = fingerprint(params, seed, run, about)
    folder = params.scratch / "runs" / condition / f"seed{seed}-{key[:16]}"
    with runs.writer_lock(folder):
        final = folder / "final"
        if final.is_dir():
            return final
        draw = load_draw(params, seed, run)
        positives = None
        if algorithm == "supervised" and not params.bring.prompts:  # brought prompts bring their own references
            positives = variants.positive_prompts(params, draw.data, seed, config.data_fraction, draw.tokenizer)
            positives = to(positives, draw.policy.device)
        measured = decodings(algorithm, config, params.evaluation, run.decodings)
        updates = getattr(config, "updates", 0)

        def half(state, curve: list[dict]) -> None:
            rows, _ = evaluate_state(params, draw, state, seed, "validation", [d for d in measured if d.name != "top_p" or run.decodings])
            so_far = training_facts(curve, config, updates // 2)
            runs.atomic_json(folder / "half.json", [{**row, "split": "half", **so_far} for row in rows])

        state, curve = train(algorithm, config, draw, seed, folder, f"{condition} seed {seed}", positives, half)
        if not (folder / "half.json").is_file():
            half(state, curve)
        rows, samples = evaluate_state(params, draw, state, seed, "test", measured)
        rows = [{**row, **training_facts(curve, config, updates)} for row in rows] + json.loads((folder / "half.json").read_text())
        who = {"condition": condition, "seed": seed}
        facts = {
            "condition": condition, "algorithm": algorithm,
            **{k: getattr(config, k, None) for k in ("kl_coef", "kl_target", "learning_rate")}, "updates": updates, "seed": seed,
        }
        with finished(final) as work:
            runs.write_table(work / "per_seed.csv", [{**facts, **row} for row in rows])
            runs.write_table(work / "curves.csv", [{**who, **metrics} for metrics in curve])
            runs.atomic_json(work / "samples.json", [{**who, **sample} for sample in samples])
            if hasattr(state, "kl"):  # learners without token rewards have no episode to show
                runs.atomic_json(work / "episode.json", {**who, **episode(algorithm, config, draw, state)})
            pretrain.save(work / "policy", state.policy.cpu(), draw.tokenizer, card(params, condition, seed, config))
        return final


def run_condition(params: Params, condition: str, out: Path) -> None:
    """Every seed of a condition into ``out``: per_seed.csv, curves.csv, samples.jsonl, config.json, episode.json, policy_seed<k>/.

    A seed that fails does not keep the others from being trained; then ``TrainingError`` names it and ``out`` is not written.
    """
    run = params.run(condition)
    tuned = {} if run.world else chosen(params, run.algorithm)
    finals, failed = {}, {}
    for seed in params.seeds:
        try:
            finals[seed] = run_seed(params, condition, seed, tuned)
        except TrainingError as error:  # the other seeds are trained and kept
            failed[seed] = error
    if failed:
        said = "; ".join(str(error) for error in failed.values())
        raise TrainingError(f"{len(failed)} of {len(params.seeds)} seeds failed: {said}") from next(iter(failed.values()))
    with finished(out) as work:
        for name in ("per_seed.csv", "curves.csv"):
            runs.write_table(work / name, [row for f in finals.values() for row in runs.read_table(f / name)])
        samples = [line for f in finals.values() for line in json.loads((f / "samples.json").read_text())]
        runs.atomic_write(work / "samples.jsonl", "".join(json.dumps(s, ensure_ascii=False) + "\n" for s in samples))
        learner_settings = params.learner_config(condition, tuned).model_dump(mode="json")
        runs.atomic_json(work / "config.json", {"condition": condition, "run": run.model_dump(mode="json"), "learner": learner_settings})
        if (shown := finals[params.seeds[0]] / "episode.json").is_file():
            runs.atomic_write(work / "episode.json", shown.read_text())
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
    """The learning rate that the search on validation prompts chose for this algorithm; nothing for one without a search."""
    if algorithm not in SEARCHED:
        return {}
    path = params.folder / "tune" / f"{SEARCHED[algorithm]}.json"
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; run the stage tune@{SEARCHED[algorithm]} first (make reproduce)")
    return {"learning_rate": json.loads(path.read_text())["learning_rate"]}


TUNE_RULE = (
    "highest validation score, plain decoding, among candidates whose generations' log perplexity under the evaluator "
    "is at most 0.1 nats per token above the zero-shot policy's; if none is, the lowest log perplexity"
)


def tune(params: Params, algorithm: str, out: Path) -> dict:
    """Search learning rate x kl_coef on validation prompts of one draw, in the algorithm's grid; writes ``out``."""
    settings, candidates = params.tune.search(algorithm), []
    grid = [(None, None)] + [(lr, beta) for lr in settings.learning_rates for beta in settings.kl_coefs]
    for learning_rate, kl_coef in grid:
        zero_shot = learning_rate is None
        changes = {"updates": 0} if zero_shot else {"learning_rate": learning_rate, "kl_coef": kl_coef, "updates": settings.updates}
        if not zero_shot and "kl_target" in learner_class(algorithm).model_fields:
            changes["kl_target"] = 0.0
        config = params.algorithm_config(algorithm, **changes)
        seed = 1000 + params.tune.draw  # random numbers of its own, also where the draw is one of the seeds
        run = Run(algorithm=algorithm)
        key = fingerprint(params, params.tune.draw, run, {"tune": algorithm, "seed": seed, **config.model_dump()})
        name = "zero-shot" if zero_shot else f"lr{learning_rate:g}-kl{kl_coef:g}"
        folder = params.scratch / "tune" / algorithm / f"{name}-{key[:16]}"
        with runs.writer_lock(folder):
            if not (folder / "row.json").is_file():
                draw = load_draw(params, params.tune.draw, run)
                state, _ = train(algorithm, config, draw, seed, folder, f"tune {algorithm} {name}")
                plain, *_ = decodings(algorithm, config, params.evaluation)  # the only one that the rule looks at
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
        "draw": params.tune.draw, "updates": settings.updates, "zero_shot": zero, "candidates": tried,
    }
    runs.atomic_json(out, result)
    return result


def fingerprint(params: Params, draw: int, run: Run, settings: dict) -> str:
    """Hash of all that decides a run's numbers: settings read, package files used, the models, texts and policies it starts from."""
    start = [Path(base_folder(params, draw, run))] if run.start else []
    if run.world:
        read, files, scales = READ_IN_A_WORLD, _code(runs.package_files, run.algorithm, True), {}
        folders = [world_folder(params, draw, run.world), *start]
    else:
        read, files, scales = SETTINGS_READ, [*_code(runs.package_files, run.algorithm, False), *params.reward_files], {}
        texts, trained, further = folders_of(params, draw)
        folders = [texts, trained, *(p for p in (further / "judge_2", further / run.base, further / run.reward) if p.is_dir()), *start]
        for part in ("policy", "evaluator", "reward"):  # a brought model is used where it is: its content counts
            place = Path(pretrain.locate(trained, part, params.mirror))
            if place.is_dir() and trained not in (place, *place.parents):
                folders.append(place)
        if run.reward != "reward":
            known = json.loads((further / "standard.json").read_text())
            scales = {"scales": [known[run.reward], known["reward"]]}
    return runs.fingerprint({**params.pick(*read), **settings, **scales, "algorithm": run.algorithm}, files=files, folders=folders)


@functools.cache
def _code(find: Callable, algorithm: str, world: bool) -> list[Path]:
    """The package files that runs of an algorithm use; read once, as this process has imported them once.

    What only worlds need does not count for runs outside them.
    """
    without = ("rlnlp.config",) if world else ("rlnlp.config", "rlnlp.worlds")
    return find("rlnlp.experiment", f"rlnlp.learners.{algorithm}", without=without)


def card(params: Params, condition: str, seed: int, config: Settings) -> str:
    """A short model card: what this policy is, how it was trained, what it is not for."""
    lines = "\n".join(f"- {k}: {v}" for k, v in config.model_dump().items())
    return (
        f"---\nlibrary_name: transformers\npipeline_tag: text-generation\n---\n# {condition}, seed {seed}\n\n"
        f"A language model fine-tuned by reinforcement learning in profile `{params.profile}` of rlnlp, for the study of "
        f"reward hacking. Not for any other use.\n\nSettings:\n{lines}\n"
    )
