"""Sampling: cached = uncached, padding and neighbours change nothing, episodes end where they should."""

import dataclasses
import itertools

import pytest
import torch

from rlnlp import models, samplers
from rlnlp.decoding import beam_search, best_rows
from rlnlp.rollout import batch_of, decode, draw, from_references, repeat, sample, sampling_from, trim
from rlnlp.types import take
from tests.tiny import EOS, MAKE, prompts


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(params=list(MAKE))
def model(request):
    return MAKE[request.param]()


def uncached(model, batch, sampling, seed):
    """The same process without a cache, without a batch: one full forward of the whole model per token."""
    uniform = torch.rand(len(batch), sampling.max_new_tokens, generator=generator(seed), dtype=torch.float64)
    rows = []
    for row in range(len(batch)):
        prompt, tokens = batch.ids[row][batch.mask[row]], []
        for t in range(sampling.max_new_tokens):
            if model.config.is_encoder_decoder:
                start = torch.tensor([[model.config.decoder_start_token_id, *tokens]])
                logits = model(input_ids=prompt[None], decoder_input_ids=start).logits[:, -1]
            else:
                logits = model(torch.cat([prompt, torch.tensor(tokens, dtype=torch.long)])[None]).logits[:, -1]
            tokens.append(int(draw(logits, uniform[row, t : t + 1])))
            if tokens[-1] == EOS:
                break
        rows.append(tokens)
    return rows


@torch.no_grad()
def test_cached_batched_sampling_equals_uncached_one_by_one(model):
    """Covers left padding, rows leaving the batch early, and the cache: any of them wrong gives other tokens."""
    batch = prompts(16)
    model.get_output_embeddings().weight.data[EOS] *= 1.5  # more rows end early, so that the batch is compacted
    sampling = sampling_from(model, 12)
    rollout = sample(model, batch, sampling, generator(4))
    assert rollout.terminated.any() and not rollout.terminated.all()
    ours = [row[keep].tolist() for row, keep in zip(rollout.responses, rollout.mask)]
    assert ours == uncached(model, batch, sampling, 4)


def test_scoring_equals_sampling_and_extra_padding_changes_nothing(model):
    batch = prompts(16)
    rollout = sample(model, batch, sampling_from(model, 12), generator())
    torch.testing.assert_close(models.score_tokens(model, rollout), rollout.logprobs, atol=2e-5, rtol=0)
    ids = torch.nn.functional.pad(batch.ids, (5, 0))
    wide = dataclasses.replace(batch, ids=ids, mask=torch.nn.functional.pad(batch.mask, (5, 0)))
    padded = dataclasses.replace(
        rollout,
        prompts=wide,
        responses=torch.nn.functional.pad(rollout.responses, (0, 4)),
        **{n: torch.nn.functional.pad(getattr(rollout, n), (0, 4)) for n in ("mask", "behavior_logprobs", "logprobs")},
    )
    scored = models.score_tokens(model, padded)
    torch.testing.assert_close(scored[:, :-4], rollout.logprobs, atol=2e-5, rtol=0)
    assert (scored[:, -4:] == 0).all()
    again = sample(model, wide, rollout.sampling, generator())
    assert torch.equal(again.responses, rollout.responses)
    narrow = trim(padded)
    assert narrow.responses.shape == rollout.responses.shape and narrow.prompts.ids.shape == batch.ids.shape


def test_a_row_does_not_depend_on_its_neighbours(model):
    batch = prompts(8)
    rollout = sample(model, batch, sampling_from(model, 10), generator())
    order = torch.tensor([5, 2, 7])
    scored = models.score_tokens(model, take(rollout, order))
    torch.testing.assert_close(scored, rollout.logprobs[order], atol=2e-5, rtol=0)


def test_episodes_end_at_eos_or_at_the_horizon(model):
    rollout = sample(model, prompts(64), sampling_from(model, 12), generator())
    for row, keep, ended in zip(rollout.responses, rollout.mask, rollout.terminated):
        tokens = row[keep].tolist()
        assert EOS not in tokens[:-1]
        assert (tokens[-1] == EOS) == bool(ended)
        assert bool(ended) or len(tokens) == 12
    assert (rollout.logprobs[~rollout.mask] == 0).all() and (rollout.behavior_logprobs[~rollout.mask] == 0).all()
    assert (rollout.responses[~rollout.mask] == rollout.sampling.pad_id).all()


def test_eos_can_be_blocked_and_is_then_blocked_in_scoring_too(model):
    sampling = sampling_from(model, 12, min_new_tokens=12)
    rollout = sample(model, prompts(32), sampling, generator())
    assert rollout.mask.all() and not (rollout.responses[:, :-1] == EOS).any()
    torch.testing.assert_close(rollout.behavior_logprobs, rollout.logprobs)  # both without EOS: no mask, temperature 1
    torch.testing.assert_close(models.score_tokens(model, rollout), rollout.logprobs, atol=2e-5, rtol=0)
    free = models.score_tokens(
        model, dataclasses.replace(rollout, sampling=dataclasses.replace(sampling, min_new_tokens=0))
    )
    assert (rollout.logprobs > free).all()  # there the end has its share


def test_same_seed_same_tokens_other_seed_other_tokens(model):
    batch, sampling = prompts(16), sampling_from(model, 12)
    first, again, other = (sample(model, batch, sampling, generator(s)).responses for s in (1, 1, 2))
    assert torch.equal(first, again) and first.shape == other.shape and not torch.equal(first, other)


def test_draw_never_returns_a_token_without_mass():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]])
    drawn = [
        int(draw(logits, torch.tensor([u], dtype=torch.float64))) for u in (0.0, 0.25, 0.4999999, 0.5, 0.75, 1 - 2**-53)
    ]
    assert drawn == [1, 1, 1, 3, 3, 3]


def test_packed_bits_hold_exactly_what_the_sampler_allowed(model):
    rollout = sample(model, prompts(8), sampling_from(model, 6), generator(), samplers.top_k(3))
    kept = rollout.allowed.unpack(rollout.mask)
    assert kept.shape == (int(rollout.mask.sum()), 50) and (kept.sum(1) == 3).all()
    assert kept.gather(1, rollout.responses[rollout.mask][:, None]).all()


@pytest.mark.parametrize("minimum", [0, 4])
def test_one_beam_is_greedy(model, minimum):
    """Ragged prompts: left padding is where a search by other code goes wrong first."""
    batch, sampling = prompts(16), sampling_from(model, 10, min_new_tokens=minimum)
    greedy, found = (
        sample(model, batch, sampling, generator(), samplers.top_k(1)),
        beam_search(model, batch, sampling, 1),
    )
    assert torch.equal(found.responses, greedy.responses) and torch.equal(found.mask, greedy.mask)
    assert torch.equal(found.terminated, greedy.terminated)
    torch.testing.assert_close(found.logprobs, greedy.logprobs, atol=2e-5, rtol=0)


def test_more_beams_find_more_probable_responses_and_no_setting_of_the_model_interferes(model):
    batch, sampling = prompts(16), sampling_from(model, 10)
    found = {n: beam_search(model, batch, sampling, n) for n in (1, 4)}
    means = {n: (r.logprobs.sum(1) / r.mask.sum(1)) for n, r in found.items()}
    assert means[4].mean() > means[1].mean() and (means[4] != means[1]).any()
    model.generation_config.repetition_penalty = 5.0
    model.generation_config.do_sample = True
    model.generation_config.temperature = 3.0
    assert torch.equal(beam_search(model, batch, sampling, 4).responses, found[4].responses)
    with pytest.raises(ValueError, match="beam search: expected >= 1 beams at temperature 1, got 4 at 0.5"):
        beam_search(model, batch, dataclasses.replace(sampling, temperature=0.5), 4)


def test_several_samples_per_prompt_and_the_best_of_each():
    batch = repeat(prompts(3), 2)
    assert batch.example_ids == [f"example-{i}" for i in (0, 0, 1, 1, 2, 2)]
    assert best_rows(torch.tensor([0.1, 0.2, 0.9, 0.3, 0.5, 0.4]), 2).tolist() == [1, 2, 4]


@pytest.mark.parametrize("kind, spread", [("causal", 0.12), ("encoder-decoder", 0.4)])
def test_whoever_follows_the_batch_hears_which_rows_stay(kind, spread):
    """The rows left, followed from the start, hold the longest responses; every row that ended before is gone."""
    model, left = MAKE[kind](4, spread=spread), [torch.arange(32)]
    batch = prompts(32, vocabulary=4)
    rollout = sample(
        model, batch, sampling_from(model, 12), generator(4), follow=lambda rows: left.append(left[-1][rows])
    )
    lengths = rollout.mask.sum(1)
    assert len(left) > 2
    for before, after in itertools.pairwise(left):
        gone = set(before.tolist()) - set(after.tolist())
        assert gone and lengths[list(gone)].max() < lengths[after].min()


def test_references_become_a_rollout():
    class Tokenizer:
        def __call__(self, text, add_special_tokens):
            return {"input_ids": [int(w) for w in text.split()]}

    batch = dataclasses.replace(prompts(2), references=[["5 6"], ["7 8 9 10 11"]])
    rollout = from_references(batch, Tokenizer(), sampling_from(MAKE["causal"](), 4))
    assert rollout.responses.tolist() == [[5, 6, EOS, 0], [7, 8, 9, 10]]
    assert rollout.terminated.tolist() == [True, False]
    with pytest.raises(ValueError, match="example-1 has no reference"):
        from_references(dataclasses.replace(batch, references=[["5"], []]), Tokenizer(), rollout.sampling)


def test_every_prompt_is_used_once_per_pass():
    batch = prompts(10)
    seen = [i for update in range(5) for i in batch_of(batch, 4, seed=0, update=update).example_ids]
    assert sorted(seen[:10]) == sorted(batch.example_ids) and sorted(seen[10:]) == sorted(batch.example_ids)
    assert seen[:10] != seen[10:]


def test_decode_leaves_padding_and_end_out():
    class Tokenizer:
        def batch_decode(self, rows, skip_special_tokens):
            return [" ".join(str(i) for i in row if i > EOS) for row in rows]

    model = MAKE["causal"]()
    rollout = sample(model, prompts(4), sampling_from(model, 6), generator())
    for text, row, keep in zip(decode(rollout, Tokenizer()), rollout.responses, rollout.mask):
        assert text == " ".join(str(i) for i in row[keep].tolist() if i > EOS)


def test_a_rollout_is_what_the_environment_would_have_done(model):
    """Drive the Gymnasium environment with the rollout's tokens: same rewards, same ends, same allowed first tokens."""
    from rlnlp.env import TextEnv
    from rlnlp.losses import token_rewards
    from rlnlp.scoring import scorer
    from workbook.draws.tokenizer import train_tokenizer

    tokenizer = train_tokenizer(kind="word", words=[f"w{i}" for i in range(50 - 3)])
    batch = prompts(24, vocabulary=len(tokenizer))

    def reward(prompt_texts, responses, references, meta):
        return [len(set(r.split())) / (1 + len(p)) for p, r in zip(prompt_texts, responses)]

    sampling = dataclasses.replace(
        sampling_from(model, 8, min_new_tokens=2), eos_id=tokenizer.eos_token_id, pad_id=tokenizer.pad_token_id
    )
    rollout = sample(model, batch, sampling, generator())
    scores, _ = scorer(reward, tokenizer)(rollout)
    paid = token_rewards(scores, torch.zeros_like(rollout.logprobs), rollout.mask, 0.0)
    env = TextEnv(batch, tokenizer, reward, sampling, vocabulary=50)
    assert rollout.terminated.any() and not rollout.terminated.all()
    for row in range(len(batch)):
        _, info = env.reset(options={"row": row})
        length = int(rollout.mask[row].sum())
        for t in range(length):
            assert bool(info["allowed"][sampling.eos_id]) == (t >= 2)
            _, payment, terminated, truncated, info = env.step(int(rollout.responses[row, t]))
            assert payment == pytest.approx(paid[row, t].item(), abs=1e-6)
            assert (terminated or truncated) == (t == length - 1)
        assert terminated == bool(rollout.terminated[row]) and truncated != terminated
