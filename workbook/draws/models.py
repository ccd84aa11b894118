"""A language model of a draw: trained on a part of its texts, measured beside a 5-gram model, saved with its card."""

from __future__ import annotations

from pathlib import Path

from rlnlp.types import stream
from workbook.draws.language_model import bits_per_byte, train_language_model
from workbook.draws.maker import Maker
from workbook.draws.tokenizer import encode
from workbook.draws.training import save
from workbook.texts.data import load_texts
from workbook.texts.ngram import KneserNey


def trained(make: Maker, fresh: Path, states: Path, name: str, part: str, tokenizer) -> tuple[dict, list]:
    """Train on the texts ``part`` and save as ``name``, "policy" or "evaluator"; returns (facts, loss curve)."""
    settings, draw = make.params.language_model, make.draw
    texts, validation = load_texts(make.data, part), load_texts(make.data, "language_model_validation")
    model, curve = train_language_model(
        texts, tokenizer, settings, stream(draw, name), states, f"draw {draw} {name}", make.params.device
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
    save(fresh, model.cpu(), tokenizer, card(make.params, draw, name, facts))
    return facts, curve


def card(params, draw: int, name: str, facts: dict) -> str:
    """A short model card."""
    what = {
        "policy": "Language model that the policies start from.",
        "evaluator": "Language model for perplexity of generations; trained on reviews that the policy's has not seen.",
        "reward": "Sentiment classifier; its probability of 'positive' is the reward. Easy to fool, on purpose.",
    }[name]
    lines = "\n".join(f"- {k}: {round(v, 4) if isinstance(v, float) else v}" for k, v in facts.items())
    title = f"# rlnlp {name}, task {params.task.name}, draw {draw}"
    return f"{title}\n\n{what}\nTrained from scratch by rlnlp.\n\n{lines}\n"
