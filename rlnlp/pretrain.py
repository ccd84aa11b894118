"""What every experiment starts from, made from text alone: tokenizers, language models, and a draw's four models.

``build`` makes the folder ``models/draw<k>`` that the runs read: policy, evaluator, reward, judge.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import math
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .checkpoint import pack, unpack
from .runs import (
    atomic_json,
    fingerprint_inputs,
    keyed_folder,
    load_state,
    package_files,
    publish,
    save_state,
    writer_lock,
)
from .seeds import stream

END, PAD, UNKNOWN = "<eos>", "<pad>", "<unk>"
PARTS = ("policy", "evaluator", "reward", "judge")


class TrainingError(RuntimeError):
    """Training cannot go on or cannot begin; the message names the step or the setting."""


def keep_memory() -> bool:
    """Ask glibc to keep freed memory for the next allocation; True if it could be asked.

    Tensors of some MB otherwise go back to the system after each step and are fetched, page by page, in the next:
    a quarter of the time of a small model on CPU. Numbers do not change, memory at its peak neither.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return False
    trim_threshold, mmap_threshold = -1, -3
    return bool(mallopt(mmap_threshold, 1 << 30) and mallopt(trim_threshold, 1 << 30))


# tokenizers ----------------------------------------------------------------------------------------------------------


def train_tokenizer(texts: Sequence[str] = (), kind: str = "word", vocabulary: int = 0, words: Sequence[str] = ()):
    """A transformers tokenizer whose <eos> both ends and precedes a document; pads on the left; adds nothing itself.

    kind "word": one token per blank-separated word of ``words`` (default: all words of the generated reviews; others
    become <unk>). kind "bpe": byte-level BPE of ``vocabulary`` tokens learned from texts; knows every string.
    Ids: <eos> 0, <pad> 1, <unk> 2. decode(encode(text)) == text, for "word" if text is known words and single blanks.
    Raises ValueError for another kind, and for a BPE vocabulary that cannot hold the 256 bytes.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    specials = [END, PAD, UNKNOWN]
    if kind == "word":
        if not words:
            from .corpus import vocabulary as known

            words = known()
        table = {word: i for i, word in enumerate([*specials, *words])}
        inner = Tokenizer(models.WordLevel(table, unk_token=UNKNOWN))
        inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    elif kind == "bpe":
        least = 256 + len(specials)
        if vocabulary < least:
            raise ValueError(f"language_model.vocabulary: byte-level BPE needs at least {least}, got {vocabulary}")
        inner = Tokenizer(models.BPE())
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = decoders.ByteLevel()
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
        )
        inner.train_from_iterator(texts, trainer)
    else:
        raise ValueError(f"language_model.tokenizer: expected 'word' or 'bpe', got {kind!r}")
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token=END, bos_token=END, pad_token=PAD, unk_token=UNKNOWN,
        padding_side="left", truncation_side="left", clean_up_tokenization_spaces=False,
    )


def encode(tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text, nothing added, nothing cut."""
    return tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"] if len(texts) else []


# language models -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Training:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: int = 0


def new_language_model(tokenizer, settings, seed: int):
    """A GPT-2-shaped model with random weights. settings: layers, width, heads, context, dropout."""
    from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=len(tokenizer), n_positions=settings.context, n_embd=settings.width, n_layer=settings.layers,
        n_head=settings.heads, resid_pdrop=settings.dropout, embd_pdrop=settings.dropout, attn_pdrop=settings.dropout,
        activation_function="gelu_pytorch_tanh",  # GPT-2's own formula, computed in one kernel
        bos_token_id=tokenizer.eos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream(seed, "language model"))
        model = GPT2LMHeadModel(config)
    model.generation_config = GenerationConfig(
        do_sample=True, bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id,
        pad_token_id=config.pad_token_id,
    )
    return model


def train_language_model(
    texts: Sequence[str],
    tokenizer,
    settings,
    seed: int,
    checkpoint_folder: str | Path | None = None,
    progress: str = "",
    device: str = "cpu",
    save_every_s: float = 20.0,
):
    """Train a GPT2LMHeadModel from scratch on the texts; returns (model in eval mode, loss curve).

    The texts, each followed by <eos>, are one long row of tokens with <eos> in front. Epoch e cuts it from a random
    offset into rows of ``settings.context`` and shuffles them; a step takes the next ``batch_size`` rows, so batches
    depend on the step alone. AdamW (0.9, 0.99), decay on matrices only, linear warm-up, cosine to 2 %, fp32.
    settings: rlnlp.config.LanguageModel. checkpoint_folder: a kill continues from the state there, digit for digit on
    one CPU thread. progress: label of the bar on stderr, "" for none. Loss curve: list of (step, mean nats per token
    since the entry before), 100 entries at most.
    Raises TrainingError for fewer tokens than one row, and for a loss or gradient that is not finite (names the step).
    """
    from tqdm import tqdm

    keep_memory()
    tokens = _one_row(encode(tokenizer, texts), tokenizer.eos_token_id).to(device)
    rows = len(tokens) // settings.context - 1
    if rows < 1:
        raise TrainingError(
            f"language_model.context: {settings.context} tokens a row need at least {2 * settings.context} tokens of "
            f"text, got {len(tokens)}"
        )
    model = new_language_model(tokenizer, settings, seed).to(device).train()
    state = _Training(model, _adamw(model, settings))
    meta = _resume(state, checkpoint_folder)
    curve, summed, since = meta.get("curve", []), meta.get("summed", 0.0), meta.get("since", 0)
    every, saved = math.ceil(settings.steps / 100), time.monotonic()
    bar = tqdm(
        total=settings.steps, initial=state.step, desc=progress, disable=not progress, file=sys.stderr, mininterval=5
    )
    while state.step < settings.steps:
        loss = _language_model_step(state, tokens, rows, settings, seed)
        if not math.isfinite(loss):
            last = f"; last good state: {checkpoint_folder}" if checkpoint_folder else ""
            raise TrainingError(
                f"language model: loss or gradient is not finite at step {state.step} of {settings.steps}{last}; "
                f"a lower language_model.learning_rate than {settings.learning_rate} may help"
            )
        state.step, summed, since = state.step + 1, summed + loss, since + 1
        bar.update()
        if state.step % every == 0 or state.step == settings.steps:
            curve.append([state.step, summed / since])
            summed, since = 0.0, 0
        if checkpoint_folder and time.monotonic() - saved > save_every_s:
            save_state(checkpoint_folder, *_packed(state, curve=curve, summed=summed, since=since))
            saved = time.monotonic()
    bar.close()
    return model.eval(), [tuple(point) for point in curve]


def _one_row(documents: list[list[int]], end: int) -> Tensor:
    return torch.tensor([end] + [token for document in documents for token in (*document, end)])


def _adamw(model: nn.Module, settings) -> torch.optim.AdamW:
    weights = list(model.parameters())
    groups = [
        {"params": [w for w in weights if w.dim() >= 2], "weight_decay": settings.weight_decay},
        {"params": [w for w in weights if w.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.99), fused=True)


def learning_rate(step: int, steps: int, peak: float, warmup_fraction: float) -> float:
    """Linear warm-up to the peak, then a cosine to 2 % of it. step: 0 to steps - 1."""
    warm = max(1.0, warmup_fraction * steps)
    if step + 1 < warm:
        return peak * (step + 1) / warm
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step + 1 - warm) / max(1.0, steps + 1 - warm))))


def _language_model_step(state: _Training, tokens: Tensor, rows: int, settings, seed: int) -> float:
    """One optimiser step; returns the loss before it, nats per token (NaN if loss or gradient is not finite)."""
    batch = _batch(tokens, rows, state.step, settings, seed)
    if settings.dropout:
        torch.manual_seed(stream(seed, "dropout", state.step))
    logits = state.model(batch[:, :-1], use_cache=False).logits
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    return optimizer_step(state.model, state.optimizer, loss, settings, state.step, settings.steps)


def _batch(tokens: Tensor, rows: int, step: int, settings, seed: int) -> Tensor:
    """Rows [batch_size, context + 1] of a step: a function of step and seed only."""
    picked, size = [], settings.context
    for place in range(step * settings.batch_size, (step + 1) * settings.batch_size):
        epoch, index = divmod(place, rows)
        offset, order = _epoch(len(tokens), rows, size, seed, epoch)
        begin = offset + int(order[index]) * size
        picked.append(tokens[begin : begin + size + 1])
    return torch.stack(picked)


_epochs: dict[tuple, tuple[int, Tensor]] = {}


def _epoch(length: int, rows: int, size: int, seed: int, epoch: int) -> tuple[int, Tensor]:
    key = (length, rows, size, seed, epoch)
    if key not in _epochs:
        draw = torch.Generator().manual_seed(stream(seed, "epoch", epoch))
        offset = int(torch.randint(0, min(size, length - rows * size), (), generator=draw))
        if len(_epochs) > 4:
            _epochs.clear()
        _epochs[key] = offset, torch.randperm(rows, generator=draw)
    return _epochs[key]


def optimizer_step(model: nn.Module, optimizer, loss: Tensor, settings, step: int, steps: int) -> float:
    """Backward, clip, step at the schedule's rate; returns the loss.

    Where loss or gradient is not finite it returns NaN or infinity and leaves the weights as they are.
    """
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), getattr(settings, "max_grad_norm", 1.0))
    value = float(loss.detach()) + 0.0 * float(norm)
    if math.isfinite(value):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps, settings.learning_rate, getattr(settings, "warmup_fraction", 0.05))
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return value


def _packed(state: _Training, **more) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tensors, numbers = pack(state)
    return tensors, {"numbers": numbers, **more}


def _resume(state: _Training, folder: str | Path | None) -> dict[str, Any]:
    found = load_state(folder) if folder else None
    if found is None:
        return {}
    unpack(state, found[0], found[1]["numbers"])
    return found[1]


@torch.no_grad()
def bits_per_byte(model, tokenizer, texts: Sequence[str], batch_size: int = 32) -> float:
    """Bits per byte of the texts under a causal model: -sum log2 p / utf-8 bytes.

    Each text is a document: it starts after <eos>, and all its tokens and its closing <eos> are predicted; <eos> has
    no bytes. Windows of the model's context move by half of it, so a token sees at least half a context where there is
    one. ``ngram.KneserNey.bits_per_byte`` keeps the same rule.
    """
    size, end, device = model.config.max_position_embeddings, tokenizer.eos_token_id, model.device
    windows = [w for ids in encode(tokenizer, texts) for w in _windows([end, *ids, end], size)]
    windows.sort(key=lambda w: len(w[0]))
    total, was_training = 0.0, model.training
    model.eval()
    for begin in range(0, len(windows), batch_size):
        part = windows[begin : begin + batch_size]
        ids = torch.full((len(part), max(len(w) for w, _ in part)), end)
        targets = torch.full_like(ids, -100)
        for row, (window, skip) in enumerate(part):
            ids[row, : len(window)] = torch.tensor(window)
            targets[row, skip : len(window)] = ids[row, skip : len(window)]
        logits = model(ids[:, :-1].to(device), use_cache=False).logits
        total += float(nn.functional.cross_entropy(
            logits.flatten(0, 1).double(), targets[:, 1:].flatten().to(device), reduction="sum"
        ))
    model.train(was_training)
    return total / math.log(2) / sum(len(text.encode()) for text in texts)


def _windows(ids: list[int], size: int) -> list[tuple[list[int], int]]:
    """(ids of at most size + 1 tokens, how many at its start are not predicted here) so that each is predicted once."""
    out, begin, done = [], 0, 1
    while True:
        window = ids[begin : begin + size + 1]
        out.append((window, done - begin))
        done = begin + len(window)
        if done >= len(ids):
            return out
        begin += max(1, size // 2)


def save(folder: str | Path, model, tokenizer, card: str) -> None:
    """save_pretrained of model and tokenizer, with a README.md; loads without a network and without pickle."""
    folder = Path(folder)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text(card.strip() + "\n", encoding="utf-8")


# the models of a draw ------------------------------------------------------------------------------------------------


def build(params, draw: int, data_folder: str | Path, out: str | Path, scratch: str | Path) -> dict:
    """Make the models of one draw and return what ``models.json`` in ``out`` holds.

    out/policy and out/evaluator: language models on disjoint reviews, one tokenizer; out/reward: a sentiment
    classifier; out/judge: see ``classify.load_judge``. What ``bring.model`` and ``bring.reward`` name is recorded, not
    copied or trained (``locate`` finds it); a brought model is also the evaluator, because a score per token needs one
    tokenizer.
    params: rlnlp.config.Params; data_folder: as ``data.build`` leaves it; scratch: where states and finished parts
    live, keyed by all that decides them, so that a kill or a change costs only what depends on it.
    Raises TrainingError, at once where the data folder lacks the texts that a model would be trained on.
    """
    torch.set_num_threads(params.threads)
    work = Path(scratch) / f"models_draw{draw}"
    make = _Draw(params, draw, Path(data_folder), work)
    make.check()
    done = {"policy": make.language_model("policy"), "reward": make.reward(), "judge": make.judge()}
    done["evaluator"] = make.language_model("evaluator")
    facts = {"draw": draw, **{name: json.loads((done[name] / "facts.json").read_text()) for name in PARTS}}
    whole = work / f"whole.{draw}"
    shutil.rmtree(whole, ignore_errors=True)
    for name in PARTS:
        shutil.copytree(done[name], whole / name)
    atomic_json(whole / "models.json", facts)
    publish(whole, out)
    shutil.rmtree(whole)
    return facts


def locate(models_folder: str | Path, part: str, mirror: str = "") -> str:
    """Path or hub id of a draw's part: its folder, or what ``bring`` names (a model is looked for in the mirror)."""
    folder = Path(models_folder) / part
    source = folder / "source.json"
    if not source.is_file():
        return str(folder)
    brought = json.loads(source.read_text())["source"]
    if part == "reward" and ".py:" in brought:
        return brought
    from .data import find

    return str(find("models", brought, mirror))


def loss_curve(models_folder: str | Path, part: str) -> list[tuple[int, float]]:
    """(step, loss in nats) of a trained part, in order; empty for a brought one."""
    path = Path(models_folder) / part / "loss.json"
    return [tuple(point) for point in json.loads(path.read_text())] if path.is_file() else []


def guessing_loss(facts: dict) -> float:
    """Loss in nats of a model that knows nothing: log of the vocabulary, or of two classes where there is none."""
    return math.log(facts.get("vocabulary", 2))


class _Draw:
    """The steps of ``build``: each returns the finished folder of a part, from scratch if it is there already."""

    def __init__(self, params, draw: int, data: Path, work: Path):
        self.params, self.draw, self.data, self.work = params, draw, data, work

    def check(self) -> None:
        """Raises TrainingError if something that is to be trained here has no texts."""
        needed = {"bring.model": ("language_model", "evaluator", "language_model_validation")}
        needed["bring.reward"] = ("reward", "reward_validation")
        for setting, files in needed.items():
            missing = [f"{file}.jsonl" for file in files if not (self.data / f"{file}.jsonl").is_file()]
            if missing and not getattr(self.params.bring, setting.removeprefix("bring.")):
                raise TrainingError(
                    f"{self.data}: no {', '.join(missing)} to train on (task {self.params.task.name}); set {setting}"
                )

    def _part(self, name: str, settings: Sequence[str], files: Sequence[str], module: str, train: Callable) -> Path:
        # not followed: what only hands over values and rows, hashed themselves (config, data), and the other kind's code
        other = "rlnlp.classify" if module == "rlnlp.pretrain" else "rlnlp.ngram"
        code = package_files(module, without=("rlnlp.config", "rlnlp.data", other))
        values = {"part": name, "draw": self.draw, **self.params.pick("task.name", "device", "threads", *settings)}
        inputs = fingerprint_inputs(values, [*code, *(self.data / f"{file}.jsonl" for file in files)])
        folder = keyed_folder(self.work / name, inputs)
        with writer_lock(folder):
            if not (folder / "finished").is_dir():
                fresh = folder / "fresh"
                shutil.rmtree(fresh, ignore_errors=True)
                fresh.mkdir()
                facts, curve = train(fresh, folder)
                atomic_json(fresh / "facts.json", facts)
                if curve:
                    atomic_json(fresh / "loss.json", curve)
                publish(fresh, folder / "finished")
                shutil.rmtree(fresh)
                for left in folder.glob("state-*.safetensors"):
                    left.unlink()
        return folder / "finished"

    def _brought(self, name: str, source: str) -> Path:
        return self._part(name, ["bring"], [], "rlnlp.pretrain", lambda fresh, _: (
            atomic_json(fresh / "source.json", {"source": source}) or {"source": source}, None,
        ))

    def language_model(self, name: str) -> Path:
        """name "policy" or "evaluator"."""
        if source := self.params.bring.model:
            return self._brought(name, source)
        text_part = {"policy": "language_model", "evaluator": "evaluator"}[name]
        files = sorted({text_part, "language_model_validation", *self._tokenizer_files()})
        return self._part(name, ["language_model"], files, "rlnlp.pretrain", lambda fresh, folder: (
            self._train_language_model(name, text_part, fresh, folder)
        ))

    def _tokenizer_files(self) -> list[str]:
        return [] if self.params.language_model.tokenizer == "word" else ["language_model"]

    def tokenizer(self):
        """The draw's tokenizer: learned from the policy's training text."""
        settings = self.params.language_model
        texts = [] if settings.tokenizer == "word" else self._texts("language_model")
        return train_tokenizer(texts, settings.tokenizer, settings.vocabulary)

    def _texts(self, part: str) -> list[str]:
        from .data import load_texts

        return load_texts(self.data, part)

    def _train_language_model(self, name: str, part: str, fresh: Path, folder: Path):
        from .ngram import KneserNey

        settings, tokenizer = self.params.language_model, self.tokenizer()
        texts, validation = self._texts(part), self._texts("language_model_validation")
        model, curve = train_language_model(
            texts, tokenizer, settings, stream(self.draw, name), folder, f"draw {self.draw} {name}", self.params.device
        )
        ids, validation_ids = encode(tokenizer, texts), encode(tokenizer, validation)
        counts = KneserNey(ids, len(tokenizer), tokenizer.eos_token_id, order=5)
        bits, predicted = bits_per_byte(model, tokenizer, validation), sum(len(x) + 1 for x in validation_ids)
        five_gram = counts.bits_per_byte(validation_ids, validation)
        size = sum(len(text.encode()) for text in validation)
        facts = {
            "parameters": sum(w.numel() for w in model.parameters()),
            "vocabulary": len(tokenizer),
            "training_reviews": len(texts),
            "training_tokens": sum(map(len, ids)),
            "tokens_seen": settings.steps * settings.batch_size * settings.context,
            "validation_reviews": len(validation),
            "validation_bits_per_byte": bits,
            "five_gram_bits_per_byte": five_gram,
            "beats_five_gram": bits < five_gram,
            "validation_perplexity_per_token": 2 ** (bits * size / predicted),
            "bytes_per_token": size / (predicted - len(validation)),
        }
        save(fresh, model.cpu(), tokenizer, _card(self.params, self.draw, name, facts))
        return facts, curve

    def reward(self) -> Path:
        """The sentiment classifier whose probability is the reward."""
        if source := self.params.bring.reward:
            return self._brought("reward", source)
        files = ["reward", "reward_validation"] + ([] if self.params.bring.model else self._tokenizer_files())
        settings = ["reward_model", "language_model.tokenizer", "language_model.vocabulary", "bring.model"]
        return self._part("reward", settings, files, "rlnlp.classify", self._train_reward)

    def _train_reward(self, fresh: Path, folder: Path):
        from .classify import accuracy, train_classifier
        from .data import load_labelled

        if self.params.bring.model:
            tokenizer = train_tokenizer(self._texts("reward"), "bpe", max(2048, self.params.language_model.vocabulary))
        else:
            tokenizer = self.tokenizer()
        texts, labels = load_labelled(self.data, "reward")
        model, curve = train_classifier(
            texts, labels, tokenizer, self.params.reward_model, stream(self.draw, "reward"), folder,
            f"draw {self.draw} reward", self.params.device,
        )
        validation, truth = load_labelled(self.data, "reward_validation")
        facts = {
            "parameters": sum(w.numel() for w in model.parameters()),
            "training_reviews": len(texts),
            "validation_reviews": len(validation),
            "validation_accuracy": accuracy(model, tokenizer, validation, truth, self.params.reward_model.max_tokens),
        }
        save(fresh, model.cpu(), tokenizer, _card(self.params, self.draw, "reward", facts))
        return facts, curve

    def judge(self) -> Path:
        """A scorer that no policy is trained on; only facts.json where the task has no labelled reviews."""
        files = [file for file in ("judge", "reward_validation") if (self.data / f"{file}.jsonl").is_file()]
        return self._part("judge", [], files, "rlnlp.classify", self._train_judge)

    def _train_judge(self, fresh: Path, folder: Path):
        from .classify import judge_accuracy, load_judge, save_grammar_judge, train_judge
        from .data import load_labelled

        grammar = self.params.task.name == "generated_reviews"
        if grammar:
            save_grammar_judge(fresh)
        elif not (self.data / "judge.jsonl").is_file():
            return {"kind": "none"}, None
        else:
            texts, labels = load_labelled(self.data, "judge")
            train_judge(texts, labels).save(fresh)
        validation, truth = load_labelled(self.data, "reward_validation")
        facts = {"kind": "grammar" if grammar else "tfidf", "validation_reviews": len(validation)}
        return {**facts, "validation_accuracy": judge_accuracy(load_judge(fresh), validation, truth)}, None


def _card(params, draw: int, name: str, facts: dict) -> str:
    what = {
        "policy": "Language model that the policies start from.",
        "evaluator": "Language model for perplexity of generations; trained on reviews that the policy's has not seen.",
        "reward": "Sentiment classifier; its probability of 'positive' is the reward. Easy to fool, on purpose.",
    }[name]
    lines = "\n".join(f"- {k}: {round(v, 4) if isinstance(v, float) else v}" for k, v in facts.items())
    title = f"# rlnlp {name}, task {params.task.name}, draw {draw}"
    return f"{title}\n\n{what}\nTrained from scratch by rlnlp.\n\n{lines}\n"
