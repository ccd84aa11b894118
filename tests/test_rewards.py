"""Rewards against values worked out elsewhere: the original's, closed forms, and one text at a time."""

import functools

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForSequenceClassification,
)

from rlnlp import rewards, scoring
from rlnlp.brought import check_function, load_function
from rlnlp.losses import KLCoefficient, kl_estimate, token_rewards
from rlnlp.rewards import classifier_reward, repeated_ngrams
from rlnlp.scoring import RewardError, evaluate_reward, evaluate_token_reward

from . import tiny

PROMPTS = tiny.prompts(5)
WORDS = "the film was good bad . , and but a long night".split()


def score_by_length(prompts, responses, references, meta):
    return [len(text) for text in responses]


# ------------------------------------------------------------------------------------------------- golden values
@pytest.mark.parametrize(
    ("text", "min_tokens", "expected"),
    [
        ("1 2 3 4 5", 20, 0.5),
        (" ".join(map(str, range(1, 11))), 20, 1.0),
        (" ".join(map(str, range(1, 21))), 20, 1.0),
        ("1 2 2 3", 20, 0.2),
        ("1 a 2 b 3", 4, 0.6),
        ("5 4 3", 20, 0.1),
        ("", 20, 0.0),
        ("no numbers here", 20, 0.0),
        ("nan 1 2", 20, 0.1),
        ("1 2 inf 3", 4, 0.75),
        ("1, 2, 3", 4, 1 / 3),
        ("-2 -1 0", 4, 1.0),
        ("1e3 2e3", 2, 1.0),
    ],
)
def test_increasing_numbers_equals_the_original(text, min_tokens, expected):
    assert rewards.increasing_numbers(["p"], [text], [[]], [{}], min_tokens=min_tokens) == [pytest.approx(expected)]


def test_increasing_numbers_of_nothing_is_zero_not_an_error():
    assert rewards.increasing_numbers([""], [""], min_tokens=0) == [0.0]


def test_dates_equals_the_original():
    texts = ["2020-01-02", "on 2020-01-2", "9999-99-99", "a12020-01-021", "20200102"]
    assert rewards.dates([""] * 5, texts) == [1, 0, 1, 1, 0]


# ------------------------------------------------------------------------------------------- calling and checking
@pytest.mark.parametrize(
    "make",
    [
        list,
        tuple,
        np.array,
        torch.tensor,
        lambda x: torch.tensor(x, requires_grad=True),
        lambda x: torch.tensor(x, dtype=torch.float64),
        lambda x: [np.float64(v) for v in x],
        lambda x: [torch.tensor(v) for v in x],
    ],
)
def test_every_usual_return_type_becomes_float32(make):
    values = [0.5, -1.0, 2.0, 0.0, 0.1]
    scores, parts = evaluate_reward(lambda *_: (make(values), {"half": [v / 2 for v in values]}), PROMPTS, ["x"] * 5)
    assert scores.dtype == parts["half"].dtype == torch.float32
    assert not scores.requires_grad
    torch.testing.assert_close(scores, torch.tensor(values))
    torch.testing.assert_close(parts["half"], torch.tensor(values) / 2)


def test_a_tuple_of_two_scores_is_not_scores_and_parts():
    scores, parts = evaluate_reward(lambda *_: (1.0, 2.0), tiny.prompts(2), ["x", "y"])
    assert scores.tolist() == [1.0, 2.0] and parts == {}


def test_the_function_gets_texts_references_and_meta_and_cannot_change_them():
    def rude(prompts, responses, references, meta):
        assert prompts == [f"prompt {i}" for i in range(5)] and responses == list("abcde")
        assert references == [["reference"]] * 5 and meta == [{}] * 5
        prompts.clear(), references[0].clear(), meta[0].update(x=1)
        return [0.0] * 5

    evaluate_reward(rude, PROMPTS, list("abcde"))
    assert len(PROMPTS.texts) == 5 and PROMPTS.references[0] == ["reference"] and PROMPTS.meta[0] == {}


def test_no_examples_no_call():
    assert evaluate_reward(None, rewards.take(PROMPTS, torch.tensor([], dtype=torch.long)), [])[0].shape == (0,)


def raises_on_c(prompts, responses, references, meta):
    return [1 / (text != "c") for text in responses]


def test_an_exception_names_function_line_and_the_example_that_causes_it():
    with pytest.raises(RewardError) as caught:
        evaluate_reward(raises_on_c, PROMPTS, list("abcde"))
    message = str(caught.value)
    assert "raises_on_c: raised ZeroDivisionError" in message
    assert f"test_rewards.py, line {raises_on_c.__code__.co_firstlineno + 1}" in message
    assert message.endswith("example example-2")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_an_exception_of_the_batch_as_a_whole_names_all_examples():
    def needs_all(prompts, responses, references, meta):
        raise KeyError("five") if len(responses) == 5 else ValueError("not five")

    with pytest.raises(RewardError, match=r"KeyError: 'five'.*examples example-0, .*example-4$"):
        evaluate_reward(needs_all, PROMPTS, list("abcde"))


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ([1.0] * 4, "expected 5 numbers, one per response, got 4 values"),
        (torch.zeros(5, 1), r"shape \(5, 1\)"),
        (3.0, r"shape \(\)"),
        (None, "got NoneType None"),
        ([1, 2, None, 4, 5], "expected 5 numbers, got list"),
        (["good"] * 5, "expected 5 numbers, got list"),
        (["1"] * 5, "expected 5 numbers, got list"),
        ("12345", "expected 5 numbers, got str '12345'"),
        (b"12345", "expected 5 numbers, got bytes"),
        ({0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0}, "expected 5 numbers, got dict"),
        ({1, 2, 3, 4, 5}, "expected 5 numbers, got set"),
        ([1, float("nan"), 3, float("inf"), 5], r"not finite \(nan\); examples example-1, example-3$"),
        ([1, 2, 3, 4, 1e300], r"not finite \(inf\); example example-4$"),
        (torch.zeros(5, dtype=torch.complex64), "real numbers"),
        (([1.0] * 5, {"style": [1.0] * 3}), "part 'style': expected 5 numbers"),
    ],
)
def test_what_cannot_be_scores_is_named(out, message):
    def mine(*_):
        return out

    with pytest.raises(RewardError, match="reward mine: .*" + message):
        evaluate_reward(mine, PROMPTS, ["x"] * 5)


def test_many_bad_examples_are_counted_not_listed():
    with pytest.raises(RewardError, match="example-7 and 12 more$"):
        evaluate_reward(lambda p, *_: [float("nan")] * len(p), tiny.prompts(20), ["x"] * 20)


def test_names_of_partials_and_objects():
    assert scoring.name_of(functools.partial(rewards.increasing_numbers, min_tokens=4)) == "increasing_numbers"

    class Judge:
        def __call__(self, *_):
            return [0.0]

    assert scoring.name_of(Judge()) == "Judge"


def test_wrong_number_of_responses():
    with pytest.raises(ValueError, match="responses: expected 5, one per prompt, got 4"):
        evaluate_reward(score_by_length, PROMPTS, ["x"] * 4)


# ----------------------------------------------------------------------------------------------- bring your own
@pytest.fixture
def brought(tmp_path):
    (tmp_path / "beside_me.py").write_text("BONUS = 2.0\n")
    file = tmp_path / "my_reward.py"
    file.write_text(
        "from dataclasses import dataclass\n"
        "from beside_me import BONUS\n"
        "LIMIT = 3\n"
        "@dataclass\n"
        "class Thing:\n"
        "    x: int\n"
        "def brevity(prompts, responses, references, meta):\n"
        "    return [BONUS - len(r.split()) for r in responses]\n"
        "def options(prompts, responses, *others, scale=1.0):\n"
        "    return [scale] * len(responses)\n"
        "def two(prompts, responses):\n"
        "    return [0.0] * len(responses)\n"
        "def single(prompts, responses, references, meta):\n"
        "    return 0.0\n"
        "def first_word(prompts, responses, references, meta):\n"
        "    return [len(r.split()[0]) for r in responses]\n"
    )
    return file


def test_a_function_from_a_file(brought):
    fn = load_function(f"{brought}:brevity")
    check_function(fn)
    check_function(load_function(f"{brought}:options"))
    assert evaluate_reward(fn, PROMPTS, ["a b", "", "a", "b", "c"])[0].tolist() == [0, 2, 1, 1, 1]


def test_this_file_can_be_named_too():
    fn = load_function(f"{rewards.__file__}:increasing_numbers")
    check_function(fn)
    assert fn([""], ["1 2 3 4 5"], [[]], [{}]) == [0.5]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my_reward.py:brevty", r"my_reward.py has no 'brevty'; did you mean 'brevity'\?"),
        ("my_reward.py:LIMIT", "LIMIT is int, not a function"),
        ("my_reward.py:two", r"two\(prompts, responses\) cannot be called with \(prompts, responses, references, m"),
        ("my_rewards.py:brevity", r"no such file: .*my_rewards.py; did you mean 'my_reward.py'\?"),
        ("nowhere/x.py:brevity", "no such file"),
        ("my_reward.py:", 'expected "path/to/file.py:function"'),
        ("broken.py:f", "importing .*broken.py raised SyntaxError"),
        ("needs.py:f", "raised ModuleNotFoundError: No module named 'not_installed'"),
        ("exits.py:f", "raised SystemExit"),
    ],
)
def test_what_cannot_be_loaded_is_named(brought, name, message):
    (brought.parent / "broken.py").write_text("def f(:\n")
    (brought.parent / "needs.py").write_text("import not_installed\n")
    (brought.parent / "exits.py").write_text("raise SystemExit(1)\n")
    with pytest.raises(RewardError, match=message):
        load_function(f"{brought.parent}/{name}")


def test_no_colon():
    with pytest.raises(RewardError, match="expected"):
        load_function("my_reward.py")


def test_the_trial_call_finds_what_the_signature_does_not_show(brought):
    with pytest.raises(RewardError, match=r"single: scores: expected 2 numbers.*\(a trial call before training\)"):
        check_function(load_function(f"{brought}:single"))
    with pytest.raises(RewardError, match="first_word: raised IndexError.*example probe-2"):  # an empty response
        check_function(load_function(f"{brought}:first_word"))
    with pytest.raises(RewardError, match=r"shape \(\)"):  # right for a batch, wrong for one
        check_function(lambda p, *_: torch.zeros(len(p), 1).squeeze())


def test_the_trial_call_can_use_the_task_s_own_examples():
    def by_label(prompts, responses, references, meta):
        return [row["stars"] for row in meta]

    with pytest.raises(RewardError, match="KeyError"):
        check_function(by_label)
    own = tiny.prompts(2)
    own.meta[0]["stars"], own.meta[1]["stars"] = 1, 5
    check_function(by_label, own)


# --------------------------------------------------------------------------------------------------- classifiers
def word_tokenizer(special=True):
    vocabulary = {w: i for i, w in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if special:
        backend.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


def bert(labels=2):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=4 + len(WORDS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=12,
        num_labels=labels,
        initializer_range=1.0,
        pad_token_id=0,
    )
    return BertForSequenceClassification(config)  # in train mode, dropout on


def gpt2():
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=4 + len(WORDS),
        n_embd=16,
        n_layer=1,
        n_head=2,
        n_positions=12,
        num_labels=2,
        initializer_range=0.3,
        bos_token_id=3,
        eos_token_id=3,
    )
    return GPT2ForSequenceClassification(config)


TEXTS = [
    "the film was good",
    "",
    "bad",
    "a long night and a long film but good . bad , bad",
    "good",
    "was bad , but good .",
    "the",
]


@torch.no_grad()
def one_at_a_time(model, tokenizer, texts, label, length=10**6):
    """What the score is, with no batch, no padding, and truncation written out."""
    out = []
    for text in texts:
        ids = tokenizer(text)["input_ids"]
        if len(ids) > length:
            special = ids[0] == tokenizer.cls_token_id
            ids = [ids[0], *ids[1:-1][-(length - 2) :], ids[-1]] if special else ids[-length:]
        ids = ids or [tokenizer.sep_token_id]
        out.append(model.eval()(input_ids=torch.tensor([ids])).logits[0].softmax(0)[label].item())
    return torch.tensor(out)


@pytest.mark.parametrize("batch_size", [1, 3, 64])
@pytest.mark.parametrize(("make", "special"), [(bert, True), (gpt2, False)])
def test_classifier_equals_one_text_at_a_time(make, special, batch_size):
    model, tokenizer = make().train(), word_tokenizer(special)
    fn = classifier_reward(model, tokenizer, label=1, include_prompt=False, batch_size=batch_size, max_tokens=8)
    scores, _ = evaluate_reward(fn, tiny.prompts(len(TEXTS)), TEXTS)
    torch.testing.assert_close(scores, one_at_a_time(model, tokenizer, TEXTS, 1, 8), atol=1e-5, rtol=0)
    assert scores.unique().numel() == len(TEXTS)  # else the order could not show
    assert tokenizer.truncation_side == "right"  # the caller's tokenizer is as it was


@pytest.mark.parametrize("pad", [0, 4])
def test_what_pads_is_what_the_classifier_takes_for_padding(pad):
    """A GPT-2-shaped one reads the last token that is not its own padding, whatever its tokenizer pads with."""
    model, tokenizer = gpt2(), word_tokenizer(False)
    model.config.pad_token_id = pad  # 4 is "the", with which no text here ends
    texts = ["the film was good", "bad", "good", "was bad , but good ."]
    fn = classifier_reward(model, tokenizer, include_prompt=False)
    torch.testing.assert_close(fn([""] * 4, texts), one_at_a_time(model, tokenizer, texts, 1), atol=1e-5, rtol=0)


def test_positions_that_padding_has_are_no_room_for_a_text():
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = RobertaConfig(vocab_size=4 + len(WORDS), max_position_embeddings=12, pad_token_id=0, **sizes)
    model, long = RobertaForSequenceClassification(config), " ".join(WORDS * 2)
    fn = classifier_reward(model, word_tokenizer())
    assert torch.isfinite(fn([""], [long])).all()
    with pytest.raises(RewardError, match="max_tokens: expected 1 to 11"):
        classifier_reward(model, word_tokenizer(), max_tokens=12)


def test_classifier_keeps_the_end_of_a_long_text():
    fn = classifier_reward(bert(), word_tokenizer(), max_tokens=6)
    ends, begins = ["bad bad the film was good"], ["the film was good bad bad"]
    long = fn(["but and"], ends)
    torch.testing.assert_close(long, fn(["a long night"], ends), atol=1e-6, rtol=0)
    assert (long - fn(["a long night"], begins)).abs() > 1e-3


def test_classifier_stays_in_evaluation_mode_and_without_gradient():
    model = bert()
    fn = classifier_reward(model, word_tokenizer())
    first = fn(["the film"], ["was good"])
    model.train()  # what a careless caller does
    assert torch.equal(first, fn(["the film"], ["was good"])) and not first.requires_grad


def test_prompt_is_scored_or_not():
    model, tokenizer = bert(), word_tokenizer()
    both, alone = (classifier_reward(model, tokenizer, include_prompt=flag) for flag in (True, False))
    expected = one_at_a_time(model, tokenizer, ["the film was good", "was good"], 1)
    torch.testing.assert_close(both(["the film"], ["was good"]), expected[:1], atol=1e-5, rtol=0)
    torch.testing.assert_close(alone(["the film"], ["was good"]), expected[1:], atol=1e-5, rtol=0)
    torch.testing.assert_close(both([""], ["was good"]), expected[1:], atol=1e-5, rtol=0)


def test_labels_by_number_and_by_name():
    model, tokenizer = bert(labels=3), word_tokenizer()
    model.config.label2id = {"NEG": 0, "NEUTRAL": 1, "POS": 2}
    each = torch.stack([classifier_reward(model, tokenizer, label=i)(["the"], ["film"]) for i in range(3)])
    torch.testing.assert_close(each.sum(0), torch.ones(1))
    assert torch.equal(classifier_reward(model, tokenizer, label="POS")(["the"], ["film"]), each[2])
    with pytest.raises(RewardError, match=r"no label 'POSITIVE' .*did you mean 'POS'\?"):
        classifier_reward(model, tokenizer, label="POSITIVE")
    with pytest.raises(RewardError, match="expected 0 to 2, got 3"):
        classifier_reward(model, tokenizer, label=3)


def test_separator_follows_the_tokenizer():
    assert rewards.join("the film", "was", " ") == "the film was"
    assert rewards.join("the film", " was", " ") == "the film was"
    assert rewards.join("", "was", " ") == "was" and rewards.join("the", "", " ") == "the"
    alphabet = ["<pad>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    byte_level = Tokenizer(models.BPE({byte: i for i, byte in enumerate(alphabet)}, []))
    byte_level.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_level, pad_token="<pad>")
    config = GPT2Config(vocab_size=257, n_embd=8, n_layer=1, n_head=1, n_positions=16, initializer_range=1.0)
    fn = classifier_reward(GPT2ForSequenceClassification(config), tokenizer)
    assert torch.equal(fn(["go"], ["ing on"]), fn([""], ["going on"]))
    assert not torch.equal(fn(["go"], ["ing on"]), fn([""], ["go ing on"]))


@pytest.mark.parametrize("size", [0, -1])  # of -1 every score was 0
def test_a_classifier_needs_batches(size):
    with pytest.raises(RewardError, match=f"batch_size {size}: expected 1 or more"):
        classifier_reward("no-such-folder", batch_size=size)


def test_classifier_folder_and_its_errors(tmp_path):
    model, tokenizer = bert(), word_tokenizer()
    model.save_pretrained(tmp_path / "reward")
    tokenizer.save_pretrained(tmp_path / "reward")
    fn = classifier_reward(tmp_path / "reward", device="cpu")
    assert scoring.name_of(fn) == "classifier_reward(reward)"
    check_function(fn)
    direct = classifier_reward(model, tokenizer)
    torch.testing.assert_close(fn(["the film"], ["was bad"]), direct(["the film"], ["was bad"]))
    with pytest.raises(RewardError, match="max_tokens: expected 1 to 12, .*got 13"):
        classifier_reward(tmp_path / "reward", max_tokens=13)
    with pytest.raises(RewardError, match="cannot be loaded"):
        classifier_reward(tmp_path / "nothing")
    with pytest.raises(RewardError, match="needs its tokenizer"):
        classifier_reward(model)
    with pytest.raises(RewardError, match="1 output"):
        classifier_reward(bert(labels=1), tokenizer, label=0)
    tiny.gpt2(vocabulary=16).save_pretrained(tmp_path / "language_model")  # no head for labels
    with pytest.raises(RewardError, match="no trained weights for score.weight; is it a GPT2ForSequenceClassification"):
        classifier_reward(tmp_path / "language_model", tokenizer)


# --------------------------------------------------------------------------------------------------- KL estimates
def categorical(seed, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    return (spread * torch.randn(6, generator=generator, dtype=torch.float64)).log_softmax(0)


def test_k1_and_k3_are_unbiased_and_k2_is_not():
    policy, reference = categorical(0, 1.5), categorical(1, 1.5)
    exact = torch.nn.functional.kl_div(reference, policy, reduction="sum", log_target=True)
    # The expectation over the policy's tokens is a finite sum: no sampling error.
    mean = {
        kind: (policy.exp() * kl_estimate(logprobs=policy, ref_logprobs=reference, kind=kind)).sum().item()
        for kind in ("k1", "k2", "k3")
    }
    assert exact > 0.3
    assert mean["k1"] == pytest.approx(exact.item(), abs=1e-12)
    assert mean["k3"] == pytest.approx(exact.item(), abs=1e-12)
    assert abs(mean["k2"] - exact.item()) > 0.05
    # Close models: k2's bias goes with the third power of the distance, the KL with the second.
    near = (policy + 1e-3 * reference).log_softmax(0)
    exact = torch.nn.functional.kl_div(near, policy, reduction="sum", log_target=True).item()
    assert (policy.exp() * kl_estimate(logprobs=policy, ref_logprobs=near, kind="k2")).sum().item() == pytest.approx(
        exact, rel=0.01
    )


def test_estimates_one_by_one():
    logprobs, reference = torch.tensor([[-1.0, -3.0, 0.0]]), torch.tensor([[-2.0, -1.0, 0.0]])
    pair = {"logprobs": logprobs, "ref_logprobs": reference}
    torch.testing.assert_close(kl_estimate(**pair), torch.tensor([[1.0, -2.0, 0.0]]))
    torch.testing.assert_close(kl_estimate(**pair, kind="k2"), torch.tensor([[0.5, 2.0, 0.0]]))
    torch.testing.assert_close(kl_estimate(**pair, kind="k3"), torch.tensor([[0.367879, 4.389056, 0.0]]))


def test_kl_estimate_refuses():
    pair = {"logprobs": torch.zeros(2, 3), "ref_logprobs": torch.zeros(2, 3)}
    with pytest.raises(TypeError):
        kl_estimate(*pair.values())
    with pytest.raises(ValueError, match="k1, k2 or k3, got 'K1'"):
        kl_estimate(**pair, kind="K1")
    with pytest.raises(ValueError, match="logprobs: expected shape"):
        kl_estimate(logprobs=torch.zeros(2, 1), ref_logprobs=torch.zeros(2, 3))
    with pytest.raises(ValueError, match="ref_logprobs: not finite"):
        kl_estimate(logprobs=torch.zeros(2, 3), ref_logprobs=torch.full((2, 3), -torch.inf))


# ---------------------------------------------------------------------------------------------------- controllers
def test_adaptive_equals_the_original():
    control = KLCoefficient(0.1, 0.1)
    for kl, expected in ((-0.2, 0.098), (0.3, 0.09996), (0.4, 0.1019592)):
        control.update(kl)
        assert control.coef == pytest.approx(expected, abs=1e-12)


def test_adaptive_bounds_and_fixed_point():
    up, down, still, small = (KLCoefficient(1.0, 0.1) for _ in range(4))
    for _ in range(100):
        up.update(1e6), down.update(-1e6), still.update(0.1)
    assert up.coef == pytest.approx(7.24, abs=0.01) and down.coef == pytest.approx(0.1326, abs=1e-4)
    assert still.coef == 1.0
    small.update(0.11)
    assert small.coef == pytest.approx(1.01)  # inside the clip: 10 % above target, gain 0.1


@pytest.mark.parametrize("make", [lambda: KLCoefficient(0.3), lambda: KLCoefficient(0.3, 0.1)])
def test_a_coefficient_resumes_bit_for_bit(make):
    whole, first = make(), make()
    for kl in (0.3, 0.05):
        whole.update(kl), first.update(kl)
    second = make()
    second.coef = first.coef
    second.update(0.07), whole.update(0.07)
    assert second.coef == whole.coef


def test_without_a_target_it_stays():
    control = KLCoefficient(0.05)
    control.update(100.0)
    assert control.coef == 0.05 and KLCoefficient(0).coef == 0


# -------------------------------------------------------------------------------------------------- token rewards
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]).bool()
SCORES = torch.tensor([1.0, 2.0, 3.0])
KL = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.5, -0.6, 9.0, 9.0], [0.7, 9.0, 9.0, 9.0]])


def test_token_rewards_by_hand():
    expected = torch.tensor([[-0.2, -0.4, -0.6, 1 - 0.8], [-1.0, 2 + 1.2, 0, 0], [3 - 1.4, 0, 0, 0]])
    torch.testing.assert_close(token_rewards(SCORES, KL, MASK, 2.0), expected)
    alone = torch.tensor([[0, 0, 0, 1.0], [0, 2, 0, 0], [3, 0, 0, 0]])
    assert torch.equal(token_rewards(SCORES, KL, MASK, 0.0), alone)


def test_token_rewards_sum():
    each = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    for scores, paid in ((SCORES, SCORES), (each, (each * MASK).sum(1))):
        got = token_rewards(scores, KL, MASK, 0.3)
        torch.testing.assert_close(got.sum(1), paid - 0.3 * (KL * MASK).sum(1))
        assert (got[~MASK] == 0).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mask": torch.tensor([[1, 1, 1, 1], [0, 0, 0, 0], [1, 0, 0, 0]]).bool()}, "row 1 has no real token"),
        ({"mask": torch.tensor([[1, 1, 1, 1], [0, 1, 0, 0], [1, 0, 0, 0]]).bool()}, "right padded"),
        ({"mask": MASK.float()}, "expected bool"),
        ({"scores": torch.zeros(3, 1)}, "scores: expected shape"),
        ({"scores": torch.tensor([1.0, float("nan"), 1.0])}, "scores: not finite at index"),
        ({"kl": torch.zeros(3, 3)}, "kl: expected shape"),
        ({"kl": KL / 0}, "kl: not finite"),
        ({"kl_coef": -0.1}, "kl_coef"),
        ({"scores": torch.zeros(3, 3)}, r"scores: expected shape \(3,\) or \(3, 4\), got \(3, 3\)"),
    ],
)
def test_token_rewards_refuses(change, message):
    with pytest.raises(ValueError, match=message):
        token_rewards(**{"scores": SCORES, "kl": KL, "mask": MASK, "kl_coef": 0.1, **change})


def test_repeated_ngrams():
    tokens = torch.tensor([[5, 6, 5, 6, 5, 6], [5, 5, 5, 5, 7, 7], [5, 6, 7, 8, 9, 1]])
    mask = torch.tensor([[1] * 6, [1, 1, 1, 0, 0, 0], [1] * 6]).bool()
    got = evaluate_token_reward(repeated_ngrams(2, 0.5), tiny.prompts(3), tokens, mask)
    assert got.tolist() == [[0, 0, 0, -0.5, -0.5, -0.5], [0, 0, -0.5, 0, 0, 0], [0] * 6]
    assert repeated_ngrams(1)(None, tokens[:1], mask[:1]).tolist() == [[0, 0, -1, -1, -1, -1]]
    with pytest.raises(ValueError, match="n: expected >= 1"):
        repeated_ngrams(0)


def test_token_reward_checks():
    prompts, mask = tiny.prompts(3), MASK

    def mine(prompts, responses, mask):
        return out

    for out, message in (  # noqa: B007 (mine returns it)
        (torch.zeros(3, 3), r"token reward mine: expected shape \(3, 4\), got \(3, 3\)"),
        (torch.tensor([[0.0] * 4, [0.0, float("nan"), 0, 0], [0.0] * 4]), "not finite; example example-1"),
        ("no", "token reward mine: raised"),
    ):
        with pytest.raises(RewardError, match=message):
            evaluate_token_reward(mine, prompts, mask.long(), mask)
    out = torch.full((3, 4), float("nan")).masked_fill(mask, 1.0)  # padding may hold anything
    assert torch.equal(evaluate_token_reward(mine, prompts, mask.long(), mask), mask.float())
