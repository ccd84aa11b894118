"""The benchmark's models: raw ones from scratch, the warm start, and how answers are decoded."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math

import numpy as np
import pytest
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    MT5Config,
    MT5ForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from rlnlp.decoding import beam_search
from rlnlp.models import score_tokens
from rlnlp.rollout import sample, sampling_from
from rlnlp.types import generator, take
from tests import tiny
from workbook.draws.training import TrainingError
from workbook.grue import warm_start
from workbook.grue.beams import answers
from workbook.grue.example import Decode
from workbook.grue.raw import (
    NAMED,
    Raw,
    causal_tokenizer,
    denoise,
    mean_loss,
    new_t5,
    parts,
    pieces,
    t5_tokenizer,
    train_t5,
)
from workbook.store import states

WORDS = "anna ben saw read the a cup book in park . : tell".split()
TEXTS = [
    f"{who} {did} {what} in the park ." for who in ("anna", "ben") for did in ("saw", "read") for what in WORDS[4:8]
]


def bart(vocabulary=6, seed=0):
    torch.manual_seed(seed)
    return BartForConditionalGeneration(
        BartConfig(
            vocab_size=vocabulary, forced_eos_token_id=None, forced_bos_token_id=None, init_std=0.3, **_absolute()
        )
    ).eval()


def pegasus(vocabulary=6, seed=0):
    torch.manual_seed(seed)
    return PegasusForConditionalGeneration(
        PegasusConfig(vocab_size=vocabulary, forced_eos_token_id=None, init_std=0.3, **_absolute())
    ).eval()


def _absolute():
    sizes = {
        f"{side}_{name}": n
        for side in ("encoder", "decoder")
        for name, n in {"layers": 2, "attention_heads": 2, "ffn_dim": 64}.items()
    }
    return {
        **sizes,
        "d_model": 32,
        "max_position_embeddings": 64,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "pad_token_id": tiny.PAD,
        "eos_token_id": tiny.EOS,
        "bos_token_id": 2,
        "decoder_start_token_id": tiny.EOS,
    }


def mt5(vocabulary=6, seed=0):
    torch.manual_seed(seed)
    return MT5ForConditionalGeneration(
        MT5Config(
            vocab_size=vocabulary,
            d_model=32,
            d_kv=16,
            d_ff=64,
            num_layers=2,
            num_heads=2,
            dropout_rate=0.0,
            initializer_factor=0.3,
            decoder_start_token_id=tiny.PAD,
            eos_token_id=tiny.EOS,
            pad_token_id=tiny.PAD,
        )
    ).eval()


def lively(model, seed=0):
    """T5's kind with a random head of its own: one that is tied, and untrained, says the start token for ever."""
    torch.manual_seed(seed)
    model.set_output_embeddings(torch.nn.Linear(32, model.config.vocab_size, bias=False))
    torch.nn.init.normal_(model.get_output_embeddings().weight, std=2.0)
    return model


SHAPES = {
    "t5": lambda: lively(tiny.t5(6, spread=0.7), 19),
    "mt5": lambda: lively(mt5(), 4),
    "bart": functools.partial(bart, seed=21),
    "pegasus": functools.partial(pegasus, seed=11),
    "gpt2": lambda: tiny.gpt2(6, seed=19),
}
ragged = tiny.prompts(12, 7, vocabulary=6)


@pytest.fixture(params=SHAPES)
def model(request):
    return SHAPES[request.param]()


# --------------------------------------------------------------------------------------------------- shapes of the hub
def test_trap_1_tokens_are_scored_as_they_were_sampled_whatever_the_padding(model):
    drawn = sample(model, ragged, sampling_from(model, 9), generator("x"))
    assert not ragged.mask.all() and len({int(n) for n in drawn.mask.sum(1)}) > 1
    torch.testing.assert_close(score_tokens(model, drawn), drawn.logprobs, atol=2e-5, rtol=0)


def alone(model, row, beams, length_penalty, minimum):
    """transformers' answer to one prompt, in no batch and without padding: its tokens up to EOS."""
    ids = ragged.ids[row][ragged.mask[row]][None]
    own, model.generation_config = (
        model.generation_config,
        type(model.generation_config)(
            eos_token_id=tiny.EOS,
            pad_token_id=tiny.PAD,
            decoder_start_token_id=model.config.decoder_start_token_id if model.config.is_encoder_decoder else None,
        ),
    )
    more = {"length_penalty": length_penalty} if beams > 1 else {}
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        num_beams=beams,
        max_new_tokens=9,
        do_sample=False,
        min_new_tokens=minimum,
        **more,
    )[0]
    model.generation_config = own
    out = out[1 if model.config.is_encoder_decoder else ids.shape[1] :].tolist()
    return out[: out.index(tiny.EOS) + 1] if tiny.EOS in out else out


@pytest.mark.parametrize(
    ("beams", "penalty", "minimum"), [(1, 1.0, 0), (1, 1.0, 3), (4, 1.0, 0), (4, 0.2, 2), (3, 4.0, 0)]
)
def test_greedy_and_beams_equal_generate_of_each_prompt_alone(model, beams, penalty, minimum):
    found = beam_search(model, ragged, sampling_from(model, 9, min_new_tokens=minimum), beams, penalty)
    rows = [row[keep].tolist() for row, keep in zip(found.responses, found.mask)]
    assert rows == [alone(model, row, beams, penalty, minimum) for row in range(len(ragged))]
    torch.testing.assert_close(found.logprobs, score_tokens(model, found))


def test_a_length_penalty_makes_answers_longer_and_the_models_own_settings_do_not_interfere(model):
    sampling = sampling_from(model, 9)
    found = {penalty: beam_search(model, ragged, sampling, 4, penalty) for penalty in (-4.0, 1.0, 6.0)}
    lengths = [float(each.mask.sum(1).float().mean()) for each in found.values()]
    assert lengths[0] < lengths[2] and lengths == sorted(lengths)
    model.generation_config.repetition_penalty, model.generation_config.length_penalty = 5.0, -3.0
    assert torch.equal(beam_search(model, ragged, sampling, 4, 1.0).responses, found[1.0].responses)
    assert model.generation_config.repetition_penalty == 5.0
    for wrong in ({"beams": 0}, {"sampling": dataclasses.replace(sampling, temperature=0.5)}):
        with pytest.raises(ValueError, match="beam search: expected >= 1 beams at temperature 1"):
            beam_search(model, ragged, **{"sampling": sampling, "beams": 1, **wrong})


def test_answers_follow_the_task_and_not_the_batch(model):
    def said(decode, size, name="x", rows=12):
        batch = take(ragged, torch.arange(rows))
        return [
            row[keep].tolist()
            for each in answers(model, batch, decode, name, size)
            for row, keep in zip(each.responses, each.mask)
        ]

    drawn = Decode(9, 2, sample=True, temperature=0.7, top_k=5)
    assert said(drawn, 5) == said(drawn, 12) != said(drawn, 12, "y")
    assert said(drawn, 5, rows=6) == said(drawn, 12)[:6]
    assert said(Decode(9, sample=True, top_k=1), 5) == said(Decode(9), 4) != said(Decode(9, beams=4), 4)
    assert all(len(row) >= 3 for row in said(drawn, 12))  # two tokens before an end
    assert [row[keep].tolist() for row, keep in zip(*_by_hand(model, drawn))] == said(drawn, 12)


def _by_hand(model, decode):
    from rlnlp.rollout import truncation

    settings = sampling_from(model, decode.max_new_tokens, decode.temperature, decode.min_new_tokens)
    drawn = sample(model, ragged, settings, generator("evaluation", "x"), truncation(decode.top_k))
    return drawn.responses, drawn.mask


# ---------------------------------------------------------------------------------------------------------- raw models
def test_what_denoising_takes_out_it_can_put_back():
    draw = np.random.default_rng(0)
    for length in range(2, 60):
        ids, sentinels = list(range(100, 100 + length)), list(range(32))
        source, target = denoise(ids, sentinels, 99, 0.3, 2.0, draw)
        assert source.pop() == target.pop() == 99
        spans, name = {}, None
        for token in target:
            if token < 32:
                spans[name := token] = []
            else:
                spans[name].append(token)
        assert [t for token in source for t in (spans[token] if token < 32 else [token])] == ids
        hidden = sum(map(len, spans.values()))
        assert hidden == min(max(1, round(0.3 * length)), length - 1) and min(map(len, spans.values())) >= 1
        assert list(spans) == sentinels[: len(spans)] == [t for t in source if t < 32] and source[0] == 100
    with pytest.raises(ValueError, match="expected a text of at least 2 tokens, got 1"):
        denoise([5], [0], 99, 0.15, 3.0, draw)


def test_every_way_to_part_a_number_is_equally_likely():
    draw = np.random.default_rng(1)
    seen = [tuple(parts(4, 2, draw).tolist()) for _ in range(3000)]
    assert {way: round(seen.count(way) / 3000, 1) for way in set(seen)} == {(1, 3): 0.3, (2, 2): 0.3, (3, 1): 0.3}


def test_the_tokenizers_know_marks_names_and_ends():
    tokenizer = t5_tokenizer(pieces(["tell : anna saw <cell> the im grünen park ."]))
    ids = tokenizer("tell: anna <cell> cow.")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["tell", ":", "anna", "<cell>", "<unk>", ".", "</s>"]
    assert (
        tokenizer.decode(tokenizer("the grünen park .")["input_ids"], skip_special_tokens=True) == "the grünen park ."
    )
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id) == (0, 1, 2)
    assert tokenizer.convert_tokens_to_ids(NAMED) == list(range(len(tokenizer) - 32, len(tokenizer)))
    assert tokenizer("anna " + NAMED[3])["input_ids"][1] == len(tokenizer) - 29
    causal = causal_tokenizer(WORDS)
    assert causal("anna read")["input_ids"] == causal.convert_tokens_to_ids(["anna", "read"])
    both = t5_tokenizer(texts=TEXTS * 3, vocabulary=320)
    assert len(both) == 320 and both.decode(both("Größe <x>")["input_ids"], skip_special_tokens=True) == "Größe <x>"


SMALL = Raw(layers=1, width=32, heads=2, steps=12, batch_size=16, mixed=0.25, learning_rate=5e-3)
MIX = [(f"tell : {text}", text) for text in TEXTS]


def weights(model):
    return {name: weight.clone() for name, weight in model.state_dict().items()}


def same(one, other):
    return all(torch.equal(value, other[name]) for name, value in one.items())


def test_a_raw_model_learns_is_seeded_and_goes_on_after_a_kill(tmp_path, monkeypatch):
    tokenizer = t5_tokenizer(pieces([*TEXTS, *(prompt for prompt, _ in MIX)]))
    model, curve = train_t5(TEXTS, MIX, tokenizer, SMALL, 3)
    longer, falling = train_t5(TEXTS, MIX, tokenizer, SMALL.replace(steps=60), 3)
    assert falling[-1][1] < 0.7 * falling[0][1] and not model.training
    assert same(weights(model), weights(train_t5(TEXTS, MIX, tokenizer, SMALL, 3)[0]))
    assert not same(weights(model), weights(train_t5(TEXTS, MIX, tokenizer, SMALL, 4)[0]))

    import workbook.grue.raw as raw

    with monkeypatch.context() as patch:  # from the same weights: the batches are of the seed too
        patch.setattr(raw, "new_t5", lambda tokenizer, shape, seed: new_t5(tokenizer, shape, 0))
        one, other = (weights(train_t5(TEXTS, MIX, tokenizer, SMALL, seed)[0]) for seed in (3, 4))
    assert not same(one, other)

    drawn, calls = raw.denoise, []

    def dies(*args):
        calls.append(1)
        if len(calls) > 7 * 12:
            raise KeyboardInterrupt
        return drawn(*args)

    monkeypatch.setattr(raw, "denoise", dies)
    with pytest.raises(KeyboardInterrupt):
        train_t5(TEXTS, MIX, tokenizer, SMALL, 3, tmp_path, save_every_s=0)
    assert states.load_state(tmp_path)[1]["numbers"]["step"] == 7
    monkeypatch.setattr(raw, "denoise", drawn)
    again, resumed = train_t5(TEXTS, MIX, tokenizer, SMALL, 3, tmp_path)
    assert same(weights(model), weights(again)) and resumed == curve


def test_the_loss_of_rows_is_a_mean_over_tokens_however_they_are_padded():
    tokenizer = t5_tokenizer(WORDS)
    model = new_t5(tokenizer, SMALL, 0)
    rows = [(list(range(3, 3 + n)), [3 + n, 4, 1][-size:]) for n, size in ((2, 3), (9, 1), (4, 2), (7, 3), (3, 3))]
    logprobs = []
    for source, target in rows:
        logits = model(torch.tensor([source]), decoder_input_ids=torch.tensor([[0, *target[:-1]]])).logits[0]
        logprobs += logits.log_softmax(-1)[range(len(target)), target].tolist()
    assert mean_loss(model, rows, 0).item() == pytest.approx(-np.mean(logprobs), rel=1e-5)
    assert mean_loss(model, rows[:1], 0).item() == pytest.approx(-np.mean(logprobs[:3]), rel=1e-5)


def test_a_raw_model_is_t5_with_tied_embeddings_and_no_dropout():
    tokenizer = t5_tokenizer(WORDS)
    model = new_t5(tokenizer, Raw(layers=2, width=96, heads=4, steps=1), 0)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert model.config.is_gated_act and model.config.dropout_rate == 0 and model.config.d_kv == 24
    assert 4e5 < sum(w.numel() for w in model.parameters()) < 6e5


def test_a_raw_model_computes_what_t5_does_as_transformers_writes_it():
    model = new_t5(t5_tokenizer(WORDS), SMALL, 0)
    values = {**model.config.to_dict(), "feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu_new"}
    theirs = T5ForConditionalGeneration(T5Config(**values, attn_implementation="sdpa")).eval()
    theirs.load_state_dict(model.state_dict())
    said = {"input_ids": torch.tensor([[5, 4, 3, 1]]), "decoder_input_ids": torch.tensor([[0, 4, 5]])}
    assert theirs.config.dense_act_fn == "gelu_new" and theirs.config._attn_implementation == "sdpa"
    torch.testing.assert_close(model.eval()(**said).logits, theirs(**said).logits, rtol=1e-4, atol=1e-6)


# ---------------------------------------------------------------------------------------------------------- warm start
STARTS = {"t5": tiny.t5, "gpt2": tiny.gpt2}


@pytest.fixture(params=STARTS)
def start(request):
    tokenizer = t5_tokenizer(WORDS) if request.param == "t5" else causal_tokenizer(WORDS)
    return STARTS[request.param](vocabulary=len(tokenizer), spread=0.3), tokenizer


def given(tokenizer, count=10, seed=0, **changes):
    """Prompts of the small vocabulary, ragged, with one to three references each."""
    from workbook.grue.encoding import encode
    from workbook.grue.example import Example

    rng = np.random.default_rng(seed)
    said = lambda: " ".join(rng.choice(WORDS, rng.integers(2, 6)))
    made = [
        Example(f"e{i}", "tell :", " " + said(), "", tuple(said() for _ in range(1 + i % 3)), **changes)
        for i in range(count)
    ]
    return encode(made, tokenizer, 30)


def by_hand(model, tokenizer, prompts, rows, longest):
    """(summed cross-entropy, tokens) of (prompt row, reference) pairs, one at a time, from the logits of the model."""
    total, count = 0.0, 0
    for row, reference in rows:
        prompt = prompts.ids[row][prompts.mask[row]]
        answer = torch.tensor((tokenizer(reference, add_special_tokens=False)["input_ids"] + [1])[:longest])
        if model.config.is_encoder_decoder:
            shifted = torch.cat([torch.tensor([0]), answer[:-1]])
            logits = model(input_ids=prompt[None], decoder_input_ids=shifted[None]).logits[0]
        else:
            logits = model(torch.cat([prompt, answer])[None]).logits[0, len(prompt) - 1 : -1]
        for t, token in enumerate(answer):
            total, count = total - math.log(logits[t].softmax(-1)[token].item()), count + 1
    return total, count


def test_the_loss_is_the_cross_entropy_of_every_reference(start):
    model, tokenizer = start
    prompts = given(tokenizer)
    rows = [(row, text) for row, texts in enumerate(prompts.references) for text in texts]
    total, count = by_hand(model, tokenizer, prompts, rows, 4)  # some are cut there
    assert len(rows) == 19 and count < sum(len(text.split()) + 1 for _, text in rows)
    for size in (4, 100):
        assert warm_start.held_out(model, tokenizer, prompts, 4, size) == pytest.approx(total / count, rel=1e-5)
    every = warm_start.pairs(prompts)
    assert [(every.example_ids[i], every.references[i]) for i in range(3)] == [
        ("e0", [rows[0][1]]),
        ("e1", [rows[1][1]]),
        ("e1", [rows[2][1]]),
    ]


CONFIG = warm_start.Config(epochs=3, batch_size=8, learning_rate=3e-3, weight_decay=0.1)


def test_the_first_step_is_adamws_on_the_mean_over_the_batch(start):
    model, tokenizer = start
    prompts = given(tokenizer)
    config = CONFIG.replace(
        batch_size=19, schedule="constant", warmup_fraction=0.0, weight_decay=0.0, max_grad_norm=1e6
    )
    mine = copy.deepcopy(model)
    rows = [(row, text) for row, texts in enumerate(prompts.references) for text in texts]
    logits = []  # the same loss through transformers' own, one pair after another
    for row, text in rows:
        answer = torch.tensor((tokenizer(text, add_special_tokens=False)["input_ids"] + [1])[:9])
        ids = prompts.ids[row][prompts.mask[row]]
        if mine.config.is_encoder_decoder:
            shifted = torch.cat([torch.tensor([0]), answer[:-1]])
            out = mine(input_ids=ids[None], decoder_input_ids=shifted[None]).logits[0]
        else:
            out = mine(torch.cat([ids, answer])[None]).logits[0, len(ids) - 1 : -1]
        logits.append((out, answer))
    torch.nn.functional.cross_entropy(torch.cat([a for a, _ in logits]), torch.cat([b for _, b in logits])).backward()
    torch.optim.AdamW(mine.parameters(), lr=3e-3, betas=(0.9, 0.99), weight_decay=0.0).step()
    found, curve = warm_start.fine_tune(model, tokenizer, prompts, prompts, config, 9, 0, steps=1)
    assert curve[1]["train"] == pytest.approx(curve[0]["validation"], rel=1e-5)
    far = torch.cat([(a - b).abs().flatten() for a, b in zip(weights(found).values(), weights(mine).values())])
    # Adam's first step is the gradient's sign: where the gradient is rounding noise it may be either
    assert (far > 1e-5).float().mean() < 0.01


def test_the_schedule_and_the_steps():
    config = CONFIG.replace(warmup_fraction=0.1)
    rates = [warm_start.rate(config, step, 100) for step in range(100)]
    assert rates[9] == max(rates) == 3e-3 and rates[0] == pytest.approx(3e-4) and rates[-1] < 0.03 * 3e-3
    flat = [warm_start.rate(config.replace(schedule="constant"), step, 100) for step in range(100)]
    assert flat[:10] == pytest.approx(rates[:10]) and set(flat[10:]) == {3e-3}
    prompts = given(t5_tokenizer(WORDS))
    assert warm_start.steps_of(CONFIG, prompts) == (round(3 * 19 / 8), 3)


def test_validation_picks_the_epoch(start):
    model, tokenizer = start
    train, other = given(tokenizer), given(tokenizer, 30, seed=1)
    config = CONFIG.replace(epochs=40, learning_rate=2e-2)
    found, curve = warm_start.fine_tune(model, tokenizer, train, other, config, 9, 0)
    losses = [entry["validation"] for entry in curve]
    best = losses.index(min(losses))
    assert 0 < best < len(losses) - 1, "the made-up data should overfit"
    assert warm_start.held_out(found, tokenizer, other, 9) == pytest.approx(min(losses), rel=1e-6)
    assert losses[-1] > min(losses) and not found.training
    assert curve[-1]["train"] < 0.5 * curve[1]["train"]


def test_imitation_that_only_spoils_leaves_the_start(start):
    model, tokenizer = start
    before, prompts = weights(model), given(tokenizer)
    opposed = dataclasses.replace(prompts, references=[["park park park park"] for _ in prompts.texts])
    mine, _ = warm_start.fine_tune(model, tokenizer, opposed, opposed, CONFIG.replace(epochs=20), 9, 0)
    learned = weights(mine)
    assert not same(before, learned)
    again, curve = warm_start.fine_tune(mine, tokenizer, prompts, opposed, CONFIG.replace(epochs=1), 9, 0)
    assert same(learned, weights(again)) and curve[0]["validation"] == min(e["validation"] for e in curve)


def test_a_killed_warm_start_goes_on_digit_for_digit(start, tmp_path, monkeypatch):
    model, tokenizer = start
    train, other = given(tokenizer), given(tokenizer, 30, seed=1)
    run = lambda *where, seed=0, **more: warm_start.fine_tune(
        copy.deepcopy(model), tokenizer, train, other, CONFIG, 9, seed, *where, **more
    )
    whole, curve = run()
    assert same(weights(whole), weights(run()[0])) and not same(weights(whole), weights(run(seed=1)[0]))
    batch_of = warm_start.batch_of

    def dies(prompts, size, seed, step):
        if step == 5:
            raise KeyboardInterrupt
        return batch_of(prompts, size, seed, step)

    monkeypatch.setattr(warm_start, "batch_of", dies)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, save_every_s=0)
    assert states.load_state(tmp_path)[1]["numbers"]["step"] == 5
    monkeypatch.setattr(warm_start, "batch_of", batch_of)
    again, resumed = run(tmp_path)
    assert same(weights(whole), weights(again)) and resumed == curve


def test_bad_input_is_named(start):
    model, tokenizer = start
    prompts = given(tokenizer)
    hidden = dataclasses.replace(prompts, references=[[], *prompts.references[1:]])
    with pytest.raises(ValueError, match="example e0 has no reference"):
        warm_start.fine_tune(model, tokenizer, hidden, prompts, CONFIG, 9, 0)
    with torch.no_grad():
        model.get_input_embeddings().weight[5] = math.nan
    with pytest.raises(TrainingError, match="not finite at step 0"):
        warm_start.fine_tune(model, tokenizer, prompts, prompts, CONFIG, 9, 0)
