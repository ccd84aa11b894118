"""Made-up examples with every column that a score may read, and tiny random encoders that scores can be given."""

from __future__ import annotations

from pathlib import Path

import torch

REFERENCES = [
    ["the cat sat on the old mat today .", "a cat was sitting on a mat ."],
    ["two dogs chase a red ball in the park ."],
    [
        "she reads the long book at home . then she sleeps well .",
        "at home she reads .",
        "she is reading a book there .",
    ],
    ["the train leaves the station at nine in the morning ."],
]
COLUMNS = {
    "prompts": [
        "write with : cat mat",
        "write with : dog ball",
        "write with : read book",
        "write with : train station",
    ],
    "concepts": [["cat", "mat"], ["dogs", "ball"], ["reads", "book"], ["train", "station"]],
    "cells": [
        [("cat", "animal"), ("old mat", "place")],
        [("red ball", "toy"), ("park", "place")],
        [("book", "thing"), ("", "empty")],
        [("nine in the morning", "time"), ("train | station", "place")],
    ],
    "table": [
        [("cat", "animal"), ("old mat", "place"), ("today", "day")],
        [("two dogs", "animal"), ("red ball", "toy"), ("park", "place")],
        [("book", "thing"), ("home", "place")],
        [("nine in the morning", "time"), ("train | station", "place")],
    ],
    "source": [
        "A cat lives here. It sat on a mat today.",
        "Two dogs were in the park.",
        "She was at home with a book.",
        "The train leaves at nine.",
    ],
    "act": ["inform"] * 4,
    "id": ["one", "two", "three", "four"],
}
PERFECT = [row[0] for row in REFERENCES]
POOR = ["the cat ran", "a ball", "the book is on the mat at home", "nine"]
WORDS = sorted({word for row in REFERENCES for text in row for word in text.split()} | set("abcdefghijklmnopqrstuvw"))


def by_length(prompts: list[str], responses: list[str]) -> list[str]:
    """A classifier of intent that is worked out by hand: seven words or more inform."""
    return ["inform" if len(text.split()) >= 7 else "question" for text in responses]


def of_dogs(texts: list[str]) -> list[float]:
    """A classifier of sentiment that is worked out by hand: the share of the words that are "dogs"."""
    return [text.split().count("dogs") / max(1, len(text.split())) for text in texts]


def save_bert(folder: Path, labels: tuple[str, ...] = (), layers: int = 2) -> str:
    """A tiny random BERT with a tokenizer of whole words; with labels, a classifier of pairs."""
    from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizer

    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        initializer_range=0.5,
        **(
            {"id2label": dict(enumerate(labels)), "label2id": {name: i for i, name in enumerate(labels)}}
            if labels
            else {}
        ),
    )
    (BertForSequenceClassification if labels else BertModel)(config).eval().save_pretrained(folder)
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    return str(folder)
