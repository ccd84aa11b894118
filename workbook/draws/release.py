"""A finished base model as others get it: half precision, measured as it is given away, with its card and samples."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

from rlnlp import pretrained
from workbook.draws.language_model import bits_per_byte
from workbook.draws.prose import Prose, Shop, check_size
from workbook.draws.samples import write
from workbook.draws.tokenizer import encode
from workbook.draws.training import TrainingError, save
from workbook.store.files import atomic_json, atomic_write, whole
from workbook.texts.invented import beside, known_words

SHOWN = 20
CARD = """---
language: en
license: other
license_name: research-use
pipeline_tag: text-generation
library_name: transformers
---
# A base model of film reviews

A GPT-2-shaped language model that `rlnlp` trained from scratch on {reviews:,} film reviews without labels (hub id imdb,
split unsupervised; Maas et al. 2011, "Learning word vectors for sentiment analysis"). It is what reinforcement learning
starts from here, no more: it is small, knows nothing but reviews, and repeats what they say, insults and names
included. Words about runs on it hold for this base model.

| | |
|---|---|
{table}

Bits per byte: all tokens and the end of each review, unseen reviews, of these weights as they lie here; the 5-gram is
an interpolated modified Kneser-Ney model of the same tokens and the same reviews. Invented words: runs of letters that
no review it learned from has, in {samples} unselected samples at temperature 1 and in the beginnings of as many unseen
human reviews, cut to the same numbers of words (95 % interval: bootstrap over texts). {shown} samples: samples.md.

Texts of the reviews are not in this folder. The data set states no licence; it is for research, cite Maas et al. 2011,
and treat the weights alike.

    from rlnlp import pretrained
    model, tokenizer = pretrained.load("{folder}")     # or transformers' AutoModelForCausalLM, AutoTokenizer
"""


def release(
    shop: Shop,
    settings: Prose,
    validation: Sequence[str],
    human: Sequence[str],
    out: Path,
    samples: int,
    largest_mb: float,
) -> dict:
    """Train (or find) the model, write it into ``out`` and return what was measured, which stands there in facts.json;
    loss.json: (step, mean nats per token since the entry before).

    validation, human: reviews that nothing else has used, for bits per byte and to set beside the samples; samples:
    number of texts in which invented words are counted, the first 20 of which are written out.
    Raises: TrainingError before any work, for a model that would be larger than ``largest_mb`` (10^6 bytes), for too
    few human reviews, and as training does.
    """
    check_size(settings, largest_mb)
    if not 1 <= samples <= len(human):
        raise TrainingError(f"samples: expected 1 to {len(human)}, as many as there are human reviews, found {samples}")
    trained, words, curve = shop.model(settings, "base model")
    with whole(out) as fresh:
        save(fresh, copy.deepcopy(trained).cpu().half(), words, "")
        model, tokenizer = pretrained.load(
            fresh, shop.device
        )  # as anybody gets it: the rounding is in every number below
        facts = _measured(shop, settings, model, tokenizer, validation)
        texts = write(model, tokenizer, samples, shop.seed)
        found = beside(texts, human, known_words(shop.read(settings.reviews)))
        facts |= {"invented": found, "single_precision_bits_per_byte": bits_per_byte(trained, words, validation)}
        facts["megabytes"] = sum(path.stat().st_size for path in fresh.glob("*.safetensors")) / 1e6
        atomic_json(fresh / "facts.json", facts)
        atomic_json(fresh / "loss.json", curve)
        atomic_write(fresh / "samples.md", _samples(texts[:SHOWN]))
        atomic_write(fresh / "README.md", card(facts, out.name))
    return facts


def _measured(shop: Shop, settings: Prose, model, tokenizer, validation: Sequence[str]) -> dict:
    texts = shop.read(settings.reviews)
    ids = encode(tokenizer, validation)
    bits, predicted = bits_per_byte(model, tokenizer, validation), sum(len(row) + 1 for row in ids)
    five_gram = shop.five_gram(settings.vocabulary, settings.reviews, validation)
    size = sum(len(text.encode()) for text in validation)
    return {
        "settings": settings.model_dump(mode="json"),
        "seed": shop.seed,
        "threads": shop.threads,
        "weights": sum(weight.numel() for weight in model.parameters()),
        "vocabulary": len(tokenizer),
        "training_reviews": len(texts),
        "training_tokens": sum(map(len, encode(tokenizer, texts))),
        "tokens_seen": settings.tokens,
        "validation_reviews": len(validation),
        "bits_per_byte": bits,
        "five_gram_bits_per_byte": five_gram,
        "beats_five_gram": bits < five_gram,
        "perplexity_per_token": 2 ** (bits * size / predicted),
        "perplexity_per_word": 2 ** (bits * size / sum(len(text.split()) for text in validation)),
        "bytes_per_token": size / sum(map(len, ids)),
    }


def card(facts: dict, folder: str) -> str:
    """README.md of the folder. folder: its name, for the example."""
    shape, found = facts["settings"], facts["invented"]
    times = "not known" if found["times"] is None else f"{found['times']:.2f} times the human share"
    if found["low"] is not None:
        times += f" [{found['low']:.2f}, {found['high']:.2f}]"
    rows = {
        "shape": f"{shape['layers']} layers, width {shape['width']}, {shape['heads']} heads, {shape['context']} tokens "
        f"of context, vocabulary {facts['vocabulary']:,} (byte-level BPE), tied embeddings, "
        f"{facts['weights']:,} weights",
        "file": f"{facts['megabytes']:.1f} MB, float16",
        "training": f"{shape['steps']:,} steps of {shape['batch_size']} x {shape['context']} tokens, "
        f"{facts['tokens_seen']:,} tokens of {facts['training_tokens']:,} different places; AdamW, peak "
        f"{shape['learning_rate']:g}, cosine; products in {shape['precision']}; seed {facts['seed']}",
        "bits per byte": f"{facts['bits_per_byte']:.4f} ({facts['validation_reviews']:,} reviews); Kneser-Ney 5-gram "
        f"{facts['five_gram_bits_per_byte']:.4f}",
        "perplexity": f"{facts['perplexity_per_token']:.1f} a token, {facts['perplexity_per_word']:.0f} a word",
        "invented words": f"{found['share']:.2%} of {found['words']:,}; human text {found['human_share']:.2%} of "
        f"{found['human_words']:,}; {times}",
    }
    table = "\n".join(f"| {name} | {said} |" for name, said in rows.items())
    return CARD.format(
        reviews=facts["training_reviews"], table=table, samples=found["samples"], shown=SHOWN, folder=folder
    )


def _samples(texts: Sequence[str]) -> str:
    head = "# The first samples\n\nUnselected, temperature 1, no prompt, until the end token or the context is full.\n"
    return head + "".join(f"\n{number}. {' '.join(text.split())}\n" for number, text in enumerate(texts, 1))
