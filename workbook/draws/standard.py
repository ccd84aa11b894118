"""One scale for all rewards, on which one beta means the same for each: that of the responses of the base model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from rlnlp import pretrained, rewards, rollout, scoring
from rlnlp.types import Prompts, generator, take, to
from workbook.draws.base import locate
from workbook.draws.maker import Maker
from workbook.store.files import atomic_json, atomic_write, folder_hash
from workbook.texts import data

FLAT = 1e-6  # a standard deviation below this is rounding: single precision gives probabilities to about 1e-7
BATCH = 64  # responses sampled at once; also decides which random numbers a row gets
READ = (
    "task.prompt_tokens",
    "sampling.max_new_tokens",
    "sampling.min_new_tokens",
    "bring.model",
    "reward_model.positive_label",
    "reward_model.include_prompt",
    "reward_model.max_tokens",
)


def standardised(reward: Callable, of: Mapping[str, float], to: Mapping[str, float]) -> Callable:
    """The reward s' = (s - of.mean) / of.sd * to.sd + to.mean, called as ``reward`` is; named parts stay as they are.

    The scores of a reward model of few labels spread less, so that one beta would mean more KL penalty for it than for
    another; on one scale beta means the same for all. of, to: mean and sd of this reward and of the one that beta was
    chosen for, on the same texts (entries of ``standard.json``). ``of`` equal to ``to`` changes nothing but rounding.
    Raises RewardError naming the reward if either is constant (sd below 1e-6): there is no scale to put it on.
    """
    name = scoring.name_of(reward)
    for scale, what in ((of, "it is"), (to, "the reward that it is put on the scale of is")):
        if not scale["sd"] > FLAT:
            raise scoring.RewardError(
                f"reward {name}: {what} constant on the standard texts (sd {scale['sd']:.1e}): "
                "it cannot be standardised"
            )
    factor = to["sd"] / of["sd"]

    def scaled(prompts, responses, references=None, meta=None):
        out = reward(prompts, responses, references, meta)
        parts = out[1:] if isinstance(out, tuple) else ()
        scores = torch.as_tensor(out[0] if parts else out, dtype=torch.float64)
        scores = ((scores - of["mean"]) * factor + to["mean"]).float()
        return (scores, *parts) if parts else scores

    scaled.__name__ = f"standardised({name})"
    return scaled


def reversed_of(reward: Callable) -> Callable:
    """The reward 1 - s, called as ``reward`` is: what a planted control is trained on."""

    def scores(prompts, responses, references=None, meta=None):
        out = reward(prompts, responses, references, meta)
        return 1 - torch.as_tensor(out[0] if isinstance(out, tuple) else out)

    scores.__name__ = f"reversed({scoring.name_of(reward)})"
    return scores


def standard(make: Maker, folders: Mapping[str, Path]) -> Path:
    """Scores of every reward model in ``folders`` on the same responses of the base model: standard.json, .jsonl."""
    source = Path(locate(make.models, "policy", make.params.mirror))
    values = {
        **make.params.pick(*READ),
        "prompts": make.params.variants.standard_prompts,
        "policy": folder_hash(source) if source.is_dir() else str(source),
        "rewards": {name: folder_hash(folder) for name, folder in folders.items()},
    }
    return make.part("standard", values, make.files("prompts_train"), score_all, source, folders)


def score_all(make: Maker, fresh: Path, states: Path, source: Path, folders: Mapping[str, Path]) -> tuple[dict, None]:
    prompts, responses = zero_shot(make, source)
    settings, scores = make.params.reward_model, {}
    for name, folder in folders.items():
        function = rewards.classifier_reward(
            folder,
            label=settings.positive_label,
            include_prompt=settings.include_prompt,
            max_tokens=settings.max_tokens,
            device=make.params.device,
        )
        scores[name] = scoring.evaluate_reward(function, prompts, responses)[0].double()
    standard = {name: {"mean": s.mean().item(), "sd": s.std(correction=0).item()} for name, s in scores.items()}
    atomic_json(fresh / "standard.json", standard)
    lines = [
        {"example_id": i, "prompt": p, "response": r, "scores": {name: s[row].item() for name, s in scores.items()}}
        for row, (i, p, r) in enumerate(zip(prompts.example_ids, prompts.texts, responses))
    ]
    atomic_write(fresh / "standard.jsonl", "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return {"texts": len(lines), "scores": standard}, None


def zero_shot(make: Maker, source: Path) -> tuple[Prompts, list[str]]:
    """The first training prompts and what the base model writes after them: all tokens, temperature 1."""
    policy, tokenizer = pretrained.load(source, make.params.device)
    settings, sampling = make.params.variants, make.params.sampling
    length = make.params.task.prompt_tokens
    prompts = data.load_prompts(make.data, "train", tokenizer, length, settings.standard_prompts)
    how = rollout.sampling_from(policy, sampling.max_new_tokens, min_new_tokens=sampling.min_new_tokens)
    responses = []
    for rows in torch.arange(len(prompts)).split(BATCH):
        batch = to(take(prompts, rows), policy.device)
        sampled = rollout.sample(policy, batch, how, generator(make.draw, "standard texts", int(rows[0])))
        responses += rollout.decode(sampled, tokenizer)
    return prompts, responses
