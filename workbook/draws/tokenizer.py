"""Tokenizers made from text alone; their <eos> both ends a document and precedes it."""

from __future__ import annotations

from collections.abc import Sequence

END, PAD, UNKNOWN = "<eos>", "<pad>", "<unk>"


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
            from workbook.texts.language import vocabulary as known

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
        tokenizer_object=inner,
        eos_token=END,
        bos_token=END,
        pad_token=PAD,
        unk_token=UNKNOWN,
        padding_side="left",
        truncation_side="left",
        clean_up_tokenization_spaces=False,
    )


def encode(tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text, nothing added, nothing cut."""
    return tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"] if len(texts) else []
