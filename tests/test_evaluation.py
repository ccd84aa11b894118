"""Decodings and what an evaluation reports of each, on tiny models; nothing is trained."""

import math

import pytest
import torch
from transformers import EpsilonLogitsWarper, TypicalLogitsWarper

from rlnlp.decoding import MASKED_AT_RANDOM, Decoding, generate
from rlnlp.models import score_tokens
from rlnlp.rollout import decode, sample, sampling_from
from rlnlp.samplers import random_mass
from rlnlp.types import generator, take
from tests.tiny import MAKE, gpt2, prompts
from workbook.draws.tokenizer import train_tokenizer
from workbook.runs.measure import Judges, evaluate

TOKENIZER = train_tokenizer(kind="word", words=[f"w{i}" for i in range(47)])
COMMON = {"max_new_tokens": 8}


@pytest.fixture(params=list(MAKE))
def policy(request):
    return MAKE[request.param]()


def words(prompt_texts, responses, references, meta):
    return [float(len(set(r.split()))) for r in responses]


def shorter(prompt_texts, responses, references, meta):
    return [-float(len(r)) for r in responses]


def row_of(policy, decoding, reference=None, mask_model=None, **more):
    by = Judges(gpt2(seed=4), TOKENIZER, words, **more)
    return evaluate(policy, reference or policy, by, prompts(24), decoding, "s", 10, mask_model)


def responses_of(rollouts):
    return [text for rollout in rollouts for text in decode(rollout, TOKENIZER)]


def test_records_name_the_new_settings_only_where_they_act():
    old = "max_new_tokens=8, temperature=1.0, min_new_tokens=0, top_k=0, top_p=1.0"
    assert Decoding("plain", 8).record() == old
    masked = old + ", mask_top_p=0.9, mask_min_tokens=1"
    assert Decoding("own", 8, mask_top_p=0.9).record() == masked
    assert Decoding("own", 8, mask_top_p=0.9, mask_random=True).record() == masked + ", mask_random=True"
    assert Decoding("beam", 8, beams=5).record() == old + ", beams=5"
    assert Decoding("best", 8, best_of=4).record() == old + ", best_of=4"
    rule = Decoding("own", 8, rule="typical", rule_value=0.2, rule_of="mask_model")
    assert rule.record() == old + ", rule=typical, rule_value=0.2, rule_of=mask_model"


@pytest.mark.parametrize(
    "given, message",
    [
        ({"beams": 0}, "decoding 'x': expected beams and best_of >= 1, got 0 and 1"),
        (
            {"beams": 4, "top_k": 5, "temperature": 0.7},
            "beam search draws nothing, so it cannot go with temperature, top_k",
        ),
        ({"beams": 4, "best_of": 2}, "cannot go with best_of"),
        ({"beams": 4, "mask_top_p": 0.9}, "cannot go with mask_top_p"),
        ({"beams": 4, "rule": "min_p", "rule_value": 0.1}, "cannot go with rule"),
        ({"rule": "tipical"}, "sampler 'tipical': expected one of none, .*; nearest typical"),
        ({"rule": "epsilon", "rule_value": 1.5}, "epsilon: expected 0 <= epsilon < 1"),
        ({"rule_of": "reference"}, "expected rule_of policy or mask_model, got 'reference'"),
        (
            {"rule": "eta", "rule_value": 0.1, "rule_of": "mask_model", "mask_top_p": 0.9},
            "mask_top_p cannot go with rule_of",
        ),
    ],
)
def test_decodings_that_make_no_sense_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        Decoding("x", 8, **given)


def test_best_of_one_is_plain_and_of_more_scores_higher_by_its_selector(policy):
    plain, rows = row_of(policy, Decoding("plain", **COMMON)), []
    again = row_of(policy, Decoding("best", best_of=1, **COMMON))
    assert plain[:2] == again[:2] and torch.equal(plain[2], again[2])
    for n in (1, 4, 16):
        rows.append(row_of(policy, Decoding("best", best_of=n, **COMMON))[0])
    assert rows[0]["score"] < rows[1]["score"] < rows[2]["score"]
    by_other = row_of(policy, Decoding("best", best_of=16, **COMMON), training_reward=shorter)[0]
    assert by_other["score"] < rows[0]["score"] and by_other["length"] < rows[0]["length"]


def test_best_of_n_keeps_the_best_of_the_samples_it_drew(policy):
    batch, n = prompts(24), 5

    def select(rollout):
        return torch.tensor(words(None, decode(rollout, TOKENIZER), None, None)) + rollout.responses[:, 0] / 1000

    kept = generate(policy, batch, Decoding("best", best_of=n, **COMMON), "s", 20, select=select)
    assert [len(r) for r in kept] == [4] * 6 and [i for r in kept for i in r.prompts.example_ids] == batch.example_ids
    numbers = generator("evaluation", "s")
    for part in kept:
        first = int(part.prompts.example_ids[0].split("-")[1])
        rows = torch.arange(first, first + 4).repeat_interleave(n)
        drawn = sample(policy, take(batch, rows), sampling_from(policy, 8), numbers)
        torch.testing.assert_close(select(part), select(drawn).view(4, n).max(1).values)
    with pytest.raises(ValueError, match="decoding 'best' keeps the best of 5 samples and was not told by what"):
        generate(policy, batch, Decoding("best", best_of=n, **COMMON), "s", 20)


def test_kl_is_left_out_where_there_is_no_distribution(policy):
    other = MAKE["encoder-decoder" if policy.config.is_encoder_decoder else "causal"](seed=6)
    plain = row_of(policy, Decoding("plain", **COMMON), other)[0]
    assert plain["kl_deployed"] == pytest.approx(plain["kl"]) and plain["kl"] > 0.01
    beam = row_of(policy, Decoding("beam", beams=3, **COMMON), other)[0]
    assert beam["kl"] > 0.01 and beam["kl_deployed"] is beam["kl_deployed_per_response"] is None
    best = row_of(policy, Decoding("best", best_of=4, **COMMON), other)[0]
    assert best["kl"] > 0.01 and best["kl_deployed"] is best["kl_deployed_per_response"] is None
    start = row_of(policy, Decoding("best", best_of=4, **COMMON))[0]
    assert start["kl"] == pytest.approx(0, abs=1e-6) and start["kl_deployed"] is None
    assert start["kl_deployed_per_response"] == pytest.approx(math.log(4) - 3 / 4)


def test_likelihood_is_per_token_and_the_deployed_kl_per_response_too(policy):
    """Three batches of unequal numbers of responses, which are of unequal lengths; without an evaluator, the reference
    reads."""
    other = MAKE["encoder-decoder" if policy.config.is_encoder_decoder else "causal"](seed=6)
    decoding = Decoding("plain", **COMMON)
    row = evaluate(policy, other, Judges(None, TOKENIZER, words), prompts(24), decoding, "s", 10)[0]
    rollouts = generate(policy, prompts(24), decoding, "s", 10)
    lengths = [int(n) for rollout in rollouts for n in rollout.mask.sum(1)]
    assert [len(r) for r in rollouts] == [10, 10, 4] and len(set(lengths)) > 1
    read = sum(score_tokens(other, rollout)[rollout.mask].sum().item() for rollout in rollouts)
    assert row["generation_log_perplexity"] == pytest.approx(-read / sum(lengths))
    assert row["length"] == pytest.approx(sum(lengths) / 24)
    assert row["kl_deployed_per_response"] == pytest.approx(row["kl_deployed"] * row["length"]) and row["kl"] > 0.01


@pytest.mark.parametrize(
    "how", [{}, {"top_p": 0.5}, {"mask_top_p": 0.5}, {"mask_top_p": 0.5, "mask_random": True}, {"best_of": 3}], ids=str
)
def test_no_token_depends_on_the_size_of_a_batch_or_on_later_prompts(policy, how):
    def tokens(n, size):
        def select(rollout):
            return rollout.responses.double().sum(1)

        drawn = generate(policy, prompts(n), Decoding("own", **how, **COMMON), "s", size, policy, select)
        wide = [torch.nn.functional.pad(r.responses, (0, 8 - r.responses.shape[1]), value=-1) for r in drawn]
        cells = torch.cat([w.masked_fill(~_wide(r.mask), -1) for w, r in zip(wide, drawn)])
        return cells

    whole = tokens(128, 128)
    assert torch.equal(tokens(128, 24), whole) and torch.equal(tokens(128, 7), whole)
    assert torch.equal(tokens(64, 64), whole[:64]) and not torch.equal(whole[:64], whole[64:])


def _wide(mask):
    return torch.nn.functional.pad(mask, (0, 8 - mask.shape[1]))


def test_greedy_and_beams_are_deterministic(policy):
    greedy = generate(policy, prompts(24), Decoding("greedy", top_k=1, **COMMON), "s", 10)
    other = generate(policy, prompts(24), Decoding("greedy", top_k=1, **COMMON), "other stream", 10)
    assert responses_of(greedy) == responses_of(other)
    beams = [generate(policy, prompts(24), Decoding("beam", beams=4, **COMMON), s, 10) for s in ("s", "other stream")]
    assert responses_of(beams[0]) == responses_of(beams[1]) != responses_of(greedy)


def test_second_judge_and_training_score_are_columns():
    given = []

    def judge(responses, prompt_texts):
        given.append((responses, prompt_texts))
        return [0.25] * len(responses)

    row, responses, scores = row_of(gpt2(), Decoding("plain", **COMMON), judge_2=judge, training_reward=shorter)
    assert row["judge"] is None and row["judge_2"] == 0.25 and given == [(responses, prompts(24).texts)]
    assert row["training_score"] == pytest.approx(sum(shorter(0, responses, 0, 0)) / 24)
    assert row["score"] == pytest.approx(scores.mean().item()) == pytest.approx(sum(words(0, responses, 0, 0)) / 24)
    row = row_of(gpt2(), Decoding("plain", **COMMON))[0]
    assert row["training_score"] == row["score"] and row["judge_2"] is None


def test_a_tasks_own_metrics_are_columns():
    row, responses, _ = row_of(
        gpt2(), Decoding("plain", **COMMON), metrics=(lambda said, asked: {"both": len(said) + len(asked.texts)},)
    )
    assert row["both"] == len(responses) + 24 and "both" not in row_of(gpt2(), Decoding("plain", **COMMON))[0]


def test_a_random_mask_can_be_deployed(policy):
    masked = Decoding("own", mask_top_p=0.5, mask_random=True, **COMMON)
    rollouts = generate(policy, prompts(24), masked, "s", 24, mask_model=policy)
    expected = sample(
        policy,
        prompts(24),
        sampling_from(policy, 8),
        generator("evaluation", "s"),
        mask_model=policy,
        mask_rule=random_mass(0.5, generator("evaluation", "s", "mask", 0)),
    )
    assert torch.equal(rollouts[0].responses, expected.responses) and torch.equal(
        rollouts[0].allowed.bits, expected.allowed.bits
    )
    nucleus = generate(policy, prompts(24), Decoding("own", mask_top_p=0.5, **COMMON), "s", 24, mask_model=policy)
    assert not torch.equal(rollouts[0].allowed.bits[:, 0], nucleus[0].allowed.bits[:, 0])


def test_no_two_batches_have_the_same_random_mask():
    """Of 65 times one prompt at its first token, where the mask is of the prompt and of its own numbers alone."""
    one, rows = prompts(1), torch.zeros(MASKED_AT_RANDOM + 1, dtype=torch.long)
    masked = Decoding("own", mask_top_p=0.5, mask_random=True, **COMMON)
    first, second = generate(policy := gpt2(), take(one, rows), masked, "s", 10, policy)
    assert len(first) == 64 and len(second) == 1
    assert not torch.equal(first.allowed.bits[0, 0], second.allowed.bits[0, 0])


# rules ----------------------------------------------------------------------------------------------------------------
# -
# -


def same_rollouts(ours, theirs):
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.equal(mine.responses, other.responses) and torch.equal(mine.allowed.bits, other.allowed.bits)


def test_a_rule_of_the_policy_or_of_the_mask_model_decodes_as_the_older_fields_do(policy):
    other = MAKE["encoder-decoder" if policy.config.is_encoder_decoder else "causal"](seed=6)
    own = generate(
        policy, prompts(24), Decoding("a", rule="top_p", rule_value=0.6, **COMMON), "s", 10, mask_model=other
    )
    same_rollouts(own, generate(policy, prompts(24), Decoding("b", top_p=0.6, **COMMON), "s", 10))
    masked = Decoding("a", rule="top_p", rule_value=0.6, rule_of="mask_model", top_k=9, **COMMON)
    given = generate(policy, prompts(24), masked, "s", 10, mask_model=other)
    nlpo = Decoding("b", mask_top_p=0.6, top_k=9, **COMMON)
    same_rollouts(given, generate(policy, prompts(24), nlpo, "s", 10, mask_model=other))
    assert not torch.equal(own[0].allowed.bits[:, 0], given[0].allowed.bits[:, 0])
    with pytest.raises(ValueError, match="decoding 'a' needs a mask model and none was given"):
        generate(policy, prompts(24), masked, "s", 10)
    before = generate(policy, prompts(24), Decoding("a", rule="top_k", rule_value=9, top_p=0.5, **COMMON), "s", 10)
    same_rollouts(before, generate(policy, prompts(24), Decoding("b", top_k=9, top_p=0.5, **COMMON), "s", 10))


@torch.no_grad()
def next_logits(model, prompt, prefix):
    if not model.config.is_encoder_decoder:
        return model(torch.cat([prompt, prefix])[None]).logits[:, -1]
    start = torch.tensor([model.config.decoder_start_token_id])
    return model(input_ids=prompt[None], decoder_input_ids=torch.cat([start, prefix])[None]).logits[:, -1]


@pytest.mark.parametrize("of", ["policy", "mask_model"])
@pytest.mark.parametrize(
    "rule, value, warper", [("typical", 0.6, TypicalLogitsWarper), ("epsilon", 0.03, EpsilonLogitsWarper)]
)
def test_kept_mass_and_tokens_are_those_of_every_token_counted_one_by_one(policy, rule, value, warper, of):
    """Whole forward passes without a cache, transformers' processor, and the share of the tempered policy that is
    left."""
    other = MAKE["encoder-decoder" if policy.config.is_encoder_decoder else "causal"](seed=6)
    decoding = Decoding(
        "own", rule=rule, rule_value=value, rule_of=of, temperature=0.8, min_new_tokens=2, max_new_tokens=4
    )
    row = row_of(policy, decoding, mask_model=other)[0]
    mass, tokens, n = 0.0, 0, 0
    for rollout in generate(policy, prompts(24), decoding, "s", 10, mask_model=other):
        for i in range(len(rollout)):
            prompt = rollout.prompts.ids[i][rollout.prompts.mask[i]]
            for t in range(int(rollout.mask[i].sum())):
                seen = [policy, other] if of == "mask_model" else [policy]
                seen = [next_logits(m, prompt, rollout.responses[i, :t]) / 0.8 for m in seen]
                for logits in seen:
                    if t < 2:
                        logits[:, rollout.sampling.eos_id] = -torch.inf
                kept = warper(value)(None, seen[-1]) > -torch.inf
                mass, tokens, n = mass + seen[0].softmax(-1)[kept].sum().item(), tokens + int(kept.sum()), n + 1
    assert row["kept_mass"] == pytest.approx(mass / n, abs=1e-5) and row["kept_tokens"] == pytest.approx(tokens / n)
    assert 0.05 < row["kept_mass"] < 0.99 and 1 < row["kept_tokens"] < 45


def test_kept_mass_where_nothing_is_cut_where_little_is_and_where_nothing_is_drawn(policy):
    plain = row_of(policy, Decoding("plain", **COMMON))[0]
    assert (plain["kept_mass"], plain["kept_tokens"]) == (1.0, 50.0)
    late = row_of(policy, Decoding("late", temperature=0.7, min_new_tokens=8, **COMMON))[0]
    assert (late["kept_mass"], late["kept_tokens"]) == (1.0, 50.0)
    greedy = row_of(policy, Decoding("greedy", top_k=1, **COMMON))[0]
    assert greedy["kept_tokens"] == 1.0 and 1 / 50 < greedy["kept_mass"] < 1
    nucleus = row_of(policy, Decoding("top_p", top_p=0.9, **COMMON))[0]
    assert 0.9 <= nucleus["kept_mass"] < 1 and 1 < nucleus["kept_tokens"] < 50
    best = row_of(policy, Decoding("best", best_of=4, rule="top_k", rule_value=3, **COMMON))[0]
    assert best["kept_tokens"] == 3.0 and best["kl_deployed_per_response"] is None  # truncated: the bound does not hold
    beam = row_of(policy, Decoding("beam", beams=3, **COMMON))[0]
    assert beam["kept_mass"] is beam["kept_tokens"] is None
