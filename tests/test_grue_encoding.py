"""Examples to prompts: only the body is shortened, whatever the tokenizer; else its own tokens of the whole string."""

from __future__ import annotations

import functools

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import ByT5Tokenizer, PreTrainedTokenizer, PreTrainedTokenizerFast

from rlnlp.rollout import decode, sample, sampling_from
from rlnlp.scoring import scorer
from rlnlp.types import generator
from tests import tiny
from workbook.draws.tokenizer import train_tokenizer
from workbook.grue import tasks
from workbook.grue.encoding import encode
from workbook.grue.example import Example
from workbook.grue.scores import reward
from workbook.texts.hub import DataError

STORY = "a tall keeper carried the lamp up the stairs and the light of it went far over the sea . "
TEXTS = [f"who carried the lamp ? \\n {STORY}", "summarize: turn 1 . <EOU> turn 2 . <EOU>", "zwölf größere Bäume 😀"]
WORDS = sorted({word for text in TEXTS for word in text.split()})


def t5_like() -> PreTrainedTokenizerFast:
    """Unigram pieces, a blank before every text, </s> after it: as T5's."""
    inner = Tokenizer(models.Unigram())
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=120, special_tokens=special, unk_token="<unk>", show_progress=False)
    inner.train_from_iterator(TEXTS * 20, trainer)
    inner.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


MAKE = {
    "words": functools.partial(train_tokenizer, kind="word", words=WORDS),
    "gpt2-like": functools.partial(train_tokenizer, TEXTS * 20, "bpe", 330),
    "t5-like": t5_like,
    "byt5": ByT5Tokenizer,  # not fast: asked for the parts
}
BYTES = 6  # tokens of ByT5 for one of the others


@pytest.fixture(scope="module", params=list(MAKE))
def tokenizer(request):
    return MAKE[request.param]()


def example(times: int = 1, shorten: str = "right", before="who carried the lamp ? \\n ", after="", **more) -> Example:
    body = " ".join(f"{STORY.strip()}" for _ in range(times))
    return Example("one", before, body, after, ("a keeper",), body, {"act": 1}, shorten, **more)


def kept(prompts, row: int = 0) -> list[int]:
    return prompts.ids[row][prompts.mask[row]].tolist()


def limit_of(tokenizer) -> int:
    return 40 * (1 if tokenizer.is_fast else BYTES)


def test_where_nothing_is_cut_the_tokens_are_those_of_the_whole_string(tokenizer):
    rows = [example(), example(before="", after=" <EOU>", shorten="left"), Example("b", "", "a sea", "", ())]
    prompts = encode(rows, tokenizer, 10_000)
    for row, given in enumerate(rows):
        assert kept(prompts, row) == tokenizer(given.prompt)["input_ids"]
        assert prompts.meta[row]["cut"] == 0 and prompts.texts[row] == given.prompt
    assert prompts.mask.shape[1] == max(map(int, prompts.mask.sum(1)))  # no wider than the longest


@pytest.mark.parametrize("times", [6, 60])
def test_of_the_right_end_only_the_body_goes(tokenizer, times):
    limit = limit_of(tokenizer)
    given = example(times, after=" <EOU>")
    whole = tokenizer(given.prompt)["input_ids"]
    prompts = encode([given], tokenizer, limit)
    ids = kept(prompts)
    assert len(ids) == limit and prompts.meta[0]["cut"] == len(whole) - limit > 0
    added = 1 if tokenizer("")["input_ids"] else 0  # T5's and ByT5's </s>
    text = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert text.startswith(given.before) and text.endswith(given.after)
    assert given.body.startswith(text[len(given.before) : -len(given.after)])
    end = next(n for n in range(len(ids)) if ids[n] != whole[n])
    assert ids[end:] == whole[len(whole) - (limit - end) :]  # one piece is missing, nothing else
    assert not added or ids[-1] == tokenizer.eos_token_id


def test_at_the_limit_nothing_is_cut_and_one_above_it_one_token_is(tokenizer):
    given = example(2)
    tokens = len(tokenizer(given.prompt)["input_ids"])
    assert [encode([given], tokenizer, tokens - n).meta[0]["cut"] for n in (0, 1, 2)] == [0, 1, 2]


def test_a_body_can_go_whole_with_the_blank_that_its_first_word_brings():
    tokenizer = MAKE["gpt2-like"]()
    before = tokenizer("who carried the lamp ? \\n")["input_ids"]
    assert kept(encode([example(2)], tokenizer, len(before))) == before
    with pytest.raises(DataError, match=f"has {len(before)} tokens, expected at most {len(before) - 1}"):
        encode([example(2)], tokenizer, len(before) - 1)


def test_of_the_left_end_the_oldest_goes(tokenizer):
    limit = limit_of(tokenizer)
    given = example(9, "left", before="", after=" <EOU>")
    prompts = encode([given], tokenizer, limit)
    whole = tokenizer(given.prompt)["input_ids"]
    assert kept(prompts) == whole[-limit:] and prompts.meta[0]["cut"] == len(whole) - limit
    given = example(9, "left", before="who carried the lamp ? \\n ")
    text = tokenizer.decode(kept(encode([given], tokenizer, limit)), skip_special_tokens=True)
    assert text.startswith(given.before.strip()) and text.endswith("far over the sea .")


def test_trap_3_the_question_is_whole_before_a_passage_of_10000_tokens(tokenizer):
    task = tasks.task("narrativeqa")
    row = task.rows(0, "test", 1)[0]
    row["document"]["summary"]["text"] = STORY * 600
    row["question"]["text"] = "who carried the lamp ?"
    (given,) = task.read([row])
    prompts = encode([given], tokenizer, limit_of(tokenizer))
    assert prompts.meta[0]["cut"] > 10_000
    text = tokenizer.decode(kept(prompts), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert text.startswith("who carried the lamp ? \\n a tall keeper")


def test_what_is_never_shortened_is_refused_where_it_is_too_long(tokenizer):
    given = example(2, after=" the end")
    others = len(tokenizer(given.prompt)["input_ids"]) - len(tokenizer(example(2).body)["input_ids"])
    with pytest.raises(DataError, match=r"prompt one: what is never shortened .* expected at most 3; raise prompt_tok"):
        encode([given], tokenizer, 3)
    assert others > 3
    with pytest.raises(DataError, match="prompt_tokens: expected >= 1, got 0"):
        encode([given], tokenizer, 0)
    with pytest.raises(DataError, match="no examples"):
        encode([], tokenizer, 3)


def test_an_empty_prompt_is_named():
    with pytest.raises(DataError, match="prompt none: no tokens"):
        encode([Example("none", "", "", "", ())], MAKE["gpt2-like"](), 5)


def test_prompts_carry_references_source_and_meta(tokenizer):
    rows = [example(), Example("hidden", "", "the sea", "", ())]
    prompts = encode(rows, tokenizer, 10_000)
    assert prompts.references == [["a keeper"], []] and prompts.example_ids == ["one", "hidden"]
    assert prompts.meta[0] == {"act": 1, "source": rows[0].source, "cut": 0}
    assert not prompts.mask[1, 0] and prompts.mask[:, -1].all()  # left padded


@pytest.mark.parametrize("shorten", ["right", "left"])
def test_no_character_is_cut_in_two(shorten):
    tokenizer = MAKE["gpt2-like"]()
    body = "😀" * 30  # four bytes each, most of them tokens of their own
    for limit in range(4, 24):
        prompts = encode([Example("x", "", body, "", (), shorten=shorten)], tokenizer, limit)
        text = tokenizer.decode(kept(prompts))
        assert set(text) <= {"😀"} and len(kept(prompts)) + prompts.meta[0]["cut"] == len(tokenizer(body)["input_ids"])
        assert limit - len(kept(prompts)) < 4


class Pairs(PreTrainedTokenizer):
    """Two letters a token: its tokens of parts are others than those of the whole; it does not say where they lie."""

    def __init__(self, **options):
        super().__init__(**options)

    vocab_size = 3

    def get_vocab(self):
        return {}

    def _tokenize(self, text, **_):
        return [text[i : i + 2] for i in range(0, len(text), 2)]

    def _convert_token_to_id(self, token):
        return sum(map(ord, token))

    def _convert_id_to_token(self, index):
        return str(index)


def test_a_tokenizer_whose_parts_differ_and_that_does_not_say_where_is_refused():
    with pytest.raises(DataError, match="prompt x: the tokenizer gives other tokens for the prompt's parts"):
        encode([Example("x", "abc", "defghijk", "lmn", ())], Pairs(), 5)


def test_eou_is_text_that_comes_back():
    for name in ("gpt2-like", "byt5"):
        tokenizer = MAKE[name]()
        ids = tokenizer("so . <EOU> yes", add_special_tokens=False)["input_ids"]
        assert tokenizer.decode(ids) == "so . <EOU> yes"


def test_trap_30_every_token_of_a_prompt_is_one_of_the_tokenizers(tokenizer):
    prompts = encode([example(3)], tokenizer, 30 * limit_of(tokenizer))
    assert int(prompts.ids.max()) < len(tokenizer)


@pytest.mark.parametrize("name", ["words", "gpt2-like", "t5-like"])
@pytest.mark.parametrize("make", [tiny.gpt2, tiny.t5])
def test_a_model_may_have_more_logits_than_the_tokenizer_has_tokens(name, make):
    """Trap 30, from the samples to what they are paid: a token without a name is no word, and nothing fails."""
    tokenizer = MAKE[name]()
    size = len(tokenizer)
    model, prompts = make(vocabulary=size + 28 * 8), tiny.prompts(16, vocabulary=size)
    drawn = sample(model, prompts, sampling_from(model, 8), generator("any"))
    beyond = drawn.mask & (drawn.responses >= size)
    assert beyond.any(1).sum() > 4
    texts = decode(drawn, tokenizer)
    known = [[one for one in row[keep].tolist() if one < size] for row, keep in zip(drawn.responses, drawn.mask)]
    assert texts == tokenizer.batch_decode(known, skip_special_tokens=True)
    paid, _ = scorer(reward({"rouge_1": 1.0}), tokenizer)(drawn)
    assert paid.shape == (16,) and paid.isfinite().all()


def test_an_example_says_which_end_is_shortened():
    with pytest.raises(ValueError, match="example one: shorten: expected 'right' or 'left', got 'middle'"):
        example(1, "middle")
