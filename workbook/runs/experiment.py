"""One condition, one seed: load its draw's models, train (or resume), evaluate once, and keep the result.

In: params, a condition name, a seed. Out: a folder of small files and the trained policy. A finished seed is reused and
a started one continued only under the fingerprint of everything that decides its numbers.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from rlnlp import checkpoint, encoding, pretrained, vocabulary
from rlnlp.brought import check_function, load_function
from rlnlp.decoding import Decoding, human_log_perplexity
from rlnlp.learners.common import Diverged, TrainingError
from rlnlp.rewards import classifier_reward
from rlnlp.scoring import scorer
from rlnlp.settings import Settings
from rlnlp.types import Experience, Prompts, Rollout, take, to
from workbook.draws import base, fewer_labels, standard, training, worlds
from workbook.draws.judge import load_judge
from workbook.draws.tokenizer import encode
from workbook.runs import algorithms
from workbook.runs.conditions import Condition, ForTune, Measuring, Trained
from workbook.runs.measure import Judges, evaluate
from workbook.runs.settings import Run
from workbook.store import locks, states, tables
from workbook.store.files import atomic_json, atomic_write, is_sealed, seal, whole
from workbook.store.fingerprint import digest, fingerprint_inputs
from workbook.store.identity import here, root_of
from workbook.texts import data

SAVE_EVERY = 5  # updates between checkpoints: a kill costs at most this much work
READ = ("bring", "mirror", "task", "reward_model", "evaluation", "threads", "device")  # beside run and learner
LAST = 3  # updates whose mean score says where training ended


def setup(params: Trained) -> None:
    """Threads, allocator and quiet libraries of this process; call it first. Results depend on the thread count."""
    torch.set_num_threads(params.threads)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # a twelfth of an update; changes no number
    training.keep_memory()
    logging.disable_progress_bar()
    logging.set_verbosity_error()


@dataclass
class Draw:
    """What draw k supplies to a run: models, tokenizer, rewards, judges, prompts; a world has no judges and no
    texts."""

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


def folders_of(params: Trained, draw: int) -> tuple[Path, Path, Path]:
    """A draw's data, models and variants. Raises ``FileNotFoundError`` naming the stage that makes what is missing."""
    found = [params.folder / kind / f"draw{draw}" for kind in ("data", "models", "variants")]
    for folder in found:
        if not folder.is_dir():
            raise FileNotFoundError(
                f"{folder}: no such folder; run the stage {folder.parent.name}@{draw} first (make reproduce)"
            )
    return tuple(found)


def base_folder(params: Trained, draw: int, run: Run) -> str:
    """Path or hub id of the model that a run starts from: the base model, its variant, or another run's policy."""
    if run.start:
        folder = params.folder / "runs" / run.start / f"policy_seed{draw}"
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder}: no such folder; run the stage runs@{run.start} first (make reproduce)")
        return str(folder)
    if run.world:
        return str(world_folder(params, draw, run.world))
    _, trained, further = folders_of(params, draw)
    return base.locate(trained, "policy", params.mirror) if run.base == "policy" else str(further / run.base)


def world_folder(params: Trained, draw: int, world: str) -> Path:
    """Where a draw's model of a world is. Raises ``FileNotFoundError`` naming the stage that makes it."""
    folder = params.folder / "worlds" / f"draw{draw}" / world
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder; run the stage worlds@{draw} first (make reproduce)")
    return folder


def load_world(params: Trained, draw: int, run: Run) -> Draw:
    """A world's model, which is policy and evaluator, its prompts, and the rewards that are measured by and trained on.

    Every run of a world is measured by its default reward. There are no judges, and no human texts.
    """
    policy, tokenizer = pretrained.load(base_folder(params, draw, run), params.device)
    evaluator, _ = pretrained.load(world_folder(params, draw, run.world), params.device)
    default = next(iter(worlds.REWARDS[run.world]))
    name = default if run.reward == "reward" else run.reward
    counts = {split: getattr(params.task, f"{split}_prompts") for split in ("train", "validation", "test")}
    measured = worlds.score_text(run.world, default)
    return Draw(
        policy,
        evaluator,
        tokenizer,
        measured,
        measured if name == default else worlds.score_text(run.world, name),
        worlds.scorer(run.world, name, tokenizer),
        None,
        None,
        None,
        None,
        lambda split: worlds.prompts(tokenizer, counts[split], split, draw),
    )


def load_draw(params: Trained, draw: int, run: Run) -> Draw:
    """Everything a run of draw ``draw`` needs, checked before training starts."""
    if run.world:
        return load_world(params, draw, run)
    texts, trained, further = folders_of(params, draw)
    policy, tokenizer = pretrained.load(base_folder(params, draw, run), params.device)
    if run.vocabulary:
        vocabulary.limit_vocabulary(policy, frequent_tokens(texts, tokenizer, run.vocabulary))
    evaluator, _ = pretrained.load(base.locate(trained, "evaluator", params.mirror), params.device)
    reward, alone = load_reward(
        params, trained, data.load_prompts(texts, "train", tokenizer, params.task.prompt_tokens, n=2)
    )
    training_reward = reward if run.reward == "reward" else load_variant_reward(params, further, run.reward)
    judges = [
        load_judge(folder) if (folder / "judge.json").is_file() else None
        for folder in (trained / "judge", further / "judge_2")
    ]
    draw = Draw(
        policy,
        evaluator,
        tokenizer,
        reward,
        training_reward,
        scorer(training_reward, tokenizer),
        alone,
        *judges,
        texts,
        lambda split: data.load_prompts(texts, split, tokenizer, params.task.prompt_tokens),
    )
    if context := getattr(policy.config, "n_positions", None) or getattr(
        policy.config, "max_position_embeddings", None
    ):
        for split in ("train", "validation", "test"):
            encoding.check_context(draw.prompts(split), params.learner["max_new_tokens"], context)
    return draw


def frequent_tokens(texts: Path, tokenizer: PreTrainedTokenizerBase, count: int) -> list[int]:
    """EOS and the ``count`` - 1 most frequent other tokens of the base model's training text: the smaller action spaces
    lie in the larger ones. Ties in the order of the ids. Raises ``ValueError`` where the text has fewer."""
    counted = Counter(token for ids in encode(tokenizer, data.load_texts(texts, "language_model")) for token in ids)
    counted.pop(tokenizer.eos_token_id, None)
    ranked = sorted(counted, key=lambda token: (-counted[token], token))
    if len(ranked) < count - 1:
        raise ValueError(
            f"vocabulary: expected at most {len(ranked) + 1}, the different tokens of the training text, found {count}"
        )
    return [tokenizer.eos_token_id, *ranked[: count - 1]]


def load_variant_reward(params: Trained, further: Path, name: str) -> Callable:
    """A reward model trained on fewer labels, its scores on the scale of the full one (same mean and spread on the
    untrained model's responses), so that beta weighs the same."""
    settings, scales = params.reward_model, json.loads((further / "standard.json").read_text())
    fewer = classifier_reward(
        str(further / name),
        include_prompt=settings.include_prompt,
        label=settings.positive_label,
        max_tokens=settings.max_tokens,
        device=params.device,
    )
    return standard.standardised(fewer, scales[name], scales["reward"])


def load_reward(params: Trained, trained: Path, examples: Prompts) -> tuple[Callable, Callable | None]:
    """The reward function a run optimises: the user's (file.py:function, or a classifier) or the draw's classifier.

    A user's function is called once on ``examples`` before anything is trained. The second is the same classifier on
    the response alone; None for a function, which is never called with a prompt it was not made for.
    """
    source = base.locate(trained, "reward", params.mirror)
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


def start(algorithm: str, config: Settings, draw: Draw, seed: int):
    """The state of a learner before its first update."""
    module = algorithms.module(algorithm)
    extra = (draw.tokenizer,) if module.ABOUT.imitates else ()
    return module.init(draw.policy, config, seed, *extra)


def train(
    algorithm: str,
    config: Settings,
    draw: Draw,
    seed: int,
    folder: Path,
    label: str,
    key: str,
    prompts: Prompts | None = None,
    half: Callable[[object, list[dict]], None] | None = None,
) -> Iterator[dict]:
    """Train, or continue from the last checkpoint in ``folder``: yields the metrics of each update, those before the
    checkpoint too, and returns the final state and all of them.

    key: identity of the run, which its checkpoints carry: one of another run or seed is refused, never continued.
    prompts: what episodes start from, by default the training prompts; half: called at half the updates with the state
    and the curve so far, once (again only where a kill lost that update).
    Raises ``TrainingError`` naming the last good checkpoint where a run cannot go on. A run that says
    ``breaks: [finite]`` ends at a number that is not finite instead: its curve is then shorter than its updates.
    """
    module, middle = algorithms.module(algorithm), getattr(config, "updates", 0) // 2
    state, curve = start(algorithm, config, draw, seed), []
    saved = states.load_state(folder / "checkpoint")
    if saved is not None:
        tensors, meta = saved
        if meta.get("run") != key:
            raise TrainingError(f"{label}: {folder / 'checkpoint'} is of another run or seed; remove that folder")
        checkpoint.unpack(state, tensors, meta["numbers"])
        curve = meta["curve"]
    if half and middle == state.update == 0:
        half(state, curve)
    yield from list(curve)
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
                states.save_state(folder / "checkpoint", tensors, {"run": key, "numbers": numbers, "curve": curve})
            yield metrics
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


def ended(training: Iterator[dict]) -> Any:
    """What ``train`` returns, once it has gone through all its updates."""
    while True:
        try:
            next(training)
        except StopIteration as end:
            return end.value


def decodings(algorithm: str, config: Settings, settings: Measuring, extra: tuple[str, ...] = ()) -> list[Decoding]:
    """Plain and top-p, the same for every algorithm, the one the algorithm trained with, and those of ``extra``."""
    common = {"max_new_tokens": config.max_new_tokens, "min_new_tokens": getattr(config, "min_new_tokens", 0)}
    own = {**common, **algorithms.decoding(algorithm, config)}
    named = {
        "greedy": {"top_k": 1},
        "beam": {"beams": settings.beams},
        "top_k": {"top_k": settings.top_k},
        "temperature": {"temperature": settings.temperature},
    }
    return [
        Decoding("plain", **common),
        Decoding("top_p", top_p=settings.top_p, **common),
        Decoding("own", **own),
        *(Decoding(name, **named[name], **common) for name in extra),
    ]


def measure(params: Trained, draw: Draw, state, seed: int, split: str, decoding: Decoding):
    """``evaluate`` of a learner's policy on a split: (row, responses, scores)."""
    training = None if draw.training_reward is draw.reward else draw.training_reward
    by = Judges(draw.evaluator, draw.tokenizer, draw.reward, training, draw.alone, draw.judge, draw.judge_2)
    stream, size, mask_model = f"{seed}/{split}", params.evaluation.batch_size, getattr(state, "mask_model", None)
    return evaluate(state.policy, state.reference, by, draw.prompts(split), decoding, stream, size, mask_model)


def evaluate_state(params: Trained, draw: Draw, state, seed: int, split: str, chosen: list[Decoding]):
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
        rows.append(
            {
                "split": split,
                "decoding": decoding.name,
                "decoding_record": record,
                "prompts": len(prompts),
                **row,
                "human_log_perplexity": human,
            }
        )
        if decoding.name == "plain":
            samples = [
                {"example_id": i, "prompt": p, "response": r, "score": s}
                for i, p, r, s in zip(prompts.example_ids, prompts.texts, responses, scores.tolist())
            ][: settings.samples]
    return rows, samples


def training_facts(curve: list[dict], config: Settings, updates: int) -> dict[str, float | None]:
    """What a curve says about how training went, up to its end; None where a learner does not measure it.

    Means over updates: first_ratio_error, clip_fraction, approx_kl, gradient_norm. peak_kl: the largest sampled KL,
    nats per token. wobble: standard deviation of the training score's changes from update to update / sqrt 2. drop: its
    highest mean over 3 updates in a row minus the last one. diverged: 1 if training ended before ``updates``, if the
    mean score of the last 3 updates is more than 2 wobbles below that of the first 3, or the last KL is more than ten
    times an adaptive target. rollout_score: mean training score of the last 3 updates. tokens_per_gradient_step: new
    response tokens that were sampled for each gradient step of the policy.
    """

    def series(name: str) -> np.ndarray:
        return np.array([m[name] for m in curve if name in m])

    def mean(name: str) -> float | None:
        return float(found.mean()) if len(found := series(name)) else None

    score, kl = series("objective/score"), series("objective/kl")
    facts = {
        "first_ratio_error": mean("policy/first_ratio_error"),
        "clip_fraction": mean("policy/clip_fraction"),
        "approx_kl": mean("policy/approx_kl"),
        "gradient_norm": mean("policy/gradient_norm"),
        "peak_kl": float(kl.max()) if len(kl) else None,
        "wobble": None,
        "drop": None,
        "diverged": float(len(curve) < updates),
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

    DQN counts its steps, of which there are none before its replay is warm; the others say how many they take an
    update: SAC ``gradient_steps``, TRPO one, the others ``epochs`` times ``minibatches``.
    """
    if not any("episodes/length" in m for m in curve):
        return None
    each = getattr(config, "gradient_steps", None) or (
        config.epochs * config.minibatches if hasattr(config, "epochs") else 1
    )
    steps = sum(m.get("dqn/gradient_steps", each) for m in curve)
    return sum(m["episodes/length"] for m in curve) * config.episodes_per_update / steps if steps else None


def episode(algorithm: str, config: Settings, draw: Draw, state) -> dict:
    """One episode on the first validation prompt, token by token, as the learner saw it."""
    prompts = draw.prompts("validation")
    prompts = take(prompts, torch.arange(min(8, len(prompts))))
    seen: Experience = algorithms.module(algorithm).collect(state, prompts, draw.score, config)
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
                "logprobs": rollout.logprobs,
                "ref_logprobs": seen.ref_logprobs,
                "kl": seen.kl,
                "rewards": seen.rewards,
                "values": seen.values,
                "advantages": seen.advantages,
            }.items()
        },
    }


def run_seed(params: Condition, seed: int, tuned: dict) -> Path:
    """Train and evaluate one seed; returns the folder of its finished files, reused if it is there."""
    return ended(updates_of(params, seed, tuned))


def updates_of(params: Condition, seed: int, tuned: dict) -> Iterator[dict]:
    """``run_seed`` update by update: yields the metrics of each, of a finished seed too; returns the folder at the end.

    Evaluated are the final policy on the test prompts (split "test") and, for the verdict at half the budget, the
    policy after half the updates on the validation prompts (split "half": every decoding; top-p only where the run adds
    others, as it decides no other claim).
    A run that ended before (``breaks: [finite]``) is measured as it was then, in both splits.
    """
    run, condition = params.run, params.condition
    algorithm, config = run.algorithm, params.config(**tuned)
    about = {"condition": condition, "seed": seed, **run.model_dump(), **config.model_dump()}
    key = fingerprint(params, seed, run, about)
    folder = params.scratch / "runs" / condition / f"seed{seed}-{key[:16]}"
    with locks.writer_lock(folder):
        final = folder / "final"
        if is_sealed(final):
            yield from tables.read_table(final / "curves.csv")
            return final
        draw = load_draw(params, seed, run)
        positives = None
        if algorithms.module(algorithm).ABOUT.imitates and not params.bring.prompts:  # which bring their references
            positives = fewer_labels.positive_prompts(params, draw.data, seed, config.data_fraction, draw.tokenizer)
            positives = to(positives, draw.policy.device)
        measured = decodings(algorithm, config, params.evaluation, run.decodings)
        updates = getattr(config, "updates", 0)

        def half(state, curve: list[dict]) -> None:
            rows, _ = evaluate_state(
                params, draw, state, seed, "validation", [d for d in measured if d.name != "top_p" or run.decodings]
            )
            so_far = training_facts(curve, config, updates // 2)
            atomic_json(folder / "half.json", [{**row, "split": "half", **so_far} for row in rows])

        label = f"{condition} seed {seed}"
        state, curve = yield from train(algorithm, config, draw, seed, folder, label, key, positives, half)
        if not (folder / "half.json").is_file():
            half(state, curve)
        rows, samples = evaluate_state(params, draw, state, seed, "test", measured)
        rows = [{**row, **training_facts(curve, config, updates)} for row in rows] + json.loads(
            (folder / "half.json").read_text()
        )
        who = {"condition": condition, "seed": seed}
        facts = {
            "condition": condition,
            "algorithm": algorithm,
            **{k: getattr(config, k, None) for k in ("kl_coef", "kl_target", "learning_rate")},
            "updates": updates,
            "seed": seed,
        }
        with whole(final) as work:
            tables.write_table(work / "per_seed.csv", [{**facts, **row} for row in rows])
            tables.write_table(work / "curves.csv", [{**who, **metrics} for metrics in curve])
            atomic_json(work / "samples.json", [{**who, **sample} for sample in samples])
            if hasattr(state, "kl"):  # learners without token rewards have no episode to show
                atomic_json(work / "episode.json", {**who, **episode(algorithm, config, draw, state)})
            training.save(work / "policy", state.policy.cpu(), draw.tokenizer, card(params, condition, seed, config))
            seal(work)
        return final


def run_condition(params: Condition, out: Path) -> None:
    """Every seed into ``out``: per_seed.csv, curves.csv, samples.jsonl, config.json, episode.json, policy_seed<k>/.

    A seed that fails does not keep the others from being trained; then ``TrainingError`` names it and ``out`` is not
    written.
    """
    run, tuned = params.run, chosen(params)
    finals, failed = {}, {}
    for seed in params.seeds:
        try:
            finals[seed] = run_seed(params, seed, tuned)
        except TrainingError as error:  # the other seeds are trained and kept
            failed[seed] = error
    if failed:
        said = "; ".join(str(error) for error in failed.values())
        raise TrainingError(f"{len(failed)} of {len(params.seeds)} seeds failed: {said}") from next(
            iter(failed.values())
        )
    with whole(out) as work:
        for name in ("per_seed.csv", "curves.csv"):
            tables.write_table(work / name, [row for f in finals.values() for row in tables.read_table(f / name)])
        samples = [line for f in finals.values() for line in json.loads((f / "samples.json").read_text())]
        atomic_write(work / "samples.jsonl", "".join(json.dumps(s, ensure_ascii=False) + "\n" for s in samples))
        learner = params.config(**tuned).model_dump(mode="json")
        about = {"condition": params.condition, "run": run.model_dump(mode="json"), "learner": learner}
        atomic_json(work / "config.json", about)
        if (shown := finals[params.seeds[0]] / "episode.json").is_file():
            atomic_write(work / "episode.json", shown.read_text())
        for seed, final in finals.items():
            shutil.copytree(final / "policy", work / f"policy_seed{seed}")


def chosen(params: Condition) -> dict:
    """The learning rate that the search on validation prompts chose for this run; nothing where none is searched."""
    if not (search := params.searched):
        return {}
    path = params.folder / "tune" / f"{search}.json"
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; run the stage tune@{search} first (make reproduce)")
    return {"learning_rate": json.loads(path.read_text())["learning_rate"]}


TUNE_RULE = (
    "highest validation score, plain decoding, among candidates whose generations' log perplexity under the evaluator "
    "is at most 0.1 nats per token above the zero-shot policy's; if none is, the lowest log perplexity"
)


def tune(params: ForTune, out: Path) -> dict:
    """Search learning rate x kl_coef on validation prompts of one draw, in the algorithm's grid; writes ``out``."""
    settings, candidates, run = params.search, [], params.run
    algorithm = run.algorithm
    grid = [(None, None)] + [(lr, beta) for lr in settings.learning_rates for beta in settings.kl_coefs]
    for learning_rate, kl_coef in grid:
        zero_shot = learning_rate is None
        changes = (
            {"updates": 0}
            if zero_shot
            else {"learning_rate": learning_rate, "kl_coef": kl_coef, "updates": settings.updates}
        )
        if not zero_shot and "kl_target" in params.learner:
            changes["kl_target"] = 0.0
        config = params.config(**changes)
        seed = 1000 + params.draw  # random numbers of its own, also where the draw is one of the seeds
        key = fingerprint(params, params.draw, run, {"tune": algorithm, "seed": seed, **config.model_dump()})
        name = "zero-shot" if zero_shot else f"lr{learning_rate:g}-kl{kl_coef:g}"
        folder = params.scratch / "tune" / algorithm / f"{name}-{key[:16]}"
        with locks.writer_lock(folder):
            if not (folder / "row.json").is_file():
                draw = load_draw(params, params.draw, run)
                state, _ = ended(train(algorithm, config, draw, seed, folder, f"tune {algorithm} {name}", key))
                plain, *_ = decodings(algorithm, config, params.evaluation)  # the only one that the rule looks at
                atomic_json(folder / "row.json", measure(params, draw, state, seed, "validation", plain)[0])
            row = json.loads((folder / "row.json").read_text())
        candidates.append(
            {"learning_rate": learning_rate, "kl_coef": kl_coef}
            | {k: row[k] for k in ("score", "judge", "generation_log_perplexity", "kl", "distinct_2")}
        )
    zero, tried = candidates[0], candidates[1:]
    limit = zero["generation_log_perplexity"] + 0.1
    for c in tried:
        c["eligible"] = c["generation_log_perplexity"] <= limit
    eligible = [c for c in tried if c["eligible"]]
    best = (
        max(eligible, key=lambda c: c["score"])
        if eligible
        else min(tried, key=lambda c: c["generation_log_perplexity"])
    )
    result = {
        "algorithm": algorithm,
        "learning_rate": best["learning_rate"],
        "kl_coef": best["kl_coef"],
        "rule": TUNE_RULE,
        "draw": params.draw,
        "updates": settings.updates,
        "zero_shot": zero,
        "candidates": tried,
    }
    atomic_json(out, result)
    return result


def fingerprint(params: Trained, draw: int, run: Run, settings: dict) -> str:
    """Hash of all that decides a run's numbers: settings read, code that runs, models and texts it starts from."""
    start = [Path(base_folder(params, draw, run))] if run.start else []
    files, scales, (code, without) = params.reward_files, {}, code_of(run)
    if run.world:
        files, folders = [], [world_folder(params, draw, run.world), *start]
    else:
        texts, trained, further = folders_of(params, draw)
        folders = [
            texts,
            trained,
            *(p for p in (further / "judge_2", further / run.base, further / run.reward) if p.is_dir()),
            *start,
        ]
        for part in ("policy", "evaluator", "reward"):  # a brought model is used where it is: its content counts
            place = Path(base.locate(trained, part, params.mirror))
            if place.is_dir() and trained not in (place, *place.parents):
                folders.append(place)
        if run.reward != "reward":
            known = json.loads((further / "standard.json").read_text())
            scales = {"scales": [known[run.reward], known["reward"]]}
    values = {**params.pick(*READ), **settings, **scales, "algorithm": run.algorithm}
    return digest(fingerprint_inputs(values, files=files, folders=folders, code=code, without=without))


def code_of(run: Run) -> tuple[list[str], list[str]]:
    """Roots of the code that decides a seed's numbers, and what a run of this kind never calls."""
    return [root_of(run_seed), *algorithms.roots(run.algorithm, here())], [] if run.world else [root_of(load_world)]


def card(params: Trained, condition: str, seed: int, config: Settings) -> str:
    """A short model card: what this policy is, how it was trained, what it is not for."""
    lines = "\n".join(f"- {k}: {v}" for k, v in config.model_dump().items())
    return (
        f"---\nlibrary_name: transformers\npipeline_tag: text-generation\n---\n# {condition}, seed {seed}\n\n"
        f"A language model fine-tuned by reinforcement learning in profile `{params.profile}` of rlnlp, for the study "
        f"of reward hacking. Not for any other use.\n\nSettings:\n{lines}\n"
    )
