"""The environment is the specification: what a step pays and when an episode ends, against rows written by hand."""

import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rlnlp.env import TextEnv
from rlnlp.losses import token_rewards
from rlnlp.rewards import repeated_ngrams
from rlnlp.scoring import RewardError, evaluate_reward, evaluate_token_reward
from rlnlp.types import Prompts, Sampling, take

PAD, EOS, V, T = 0, 1, 12, 5


def tokenizer():
    vocabulary = {"[PAD]": PAD, "[EOS]": EOS, **{f"w{i}": i for i in range(2, V)}}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[PAD]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", eos_token="[EOS]")


def prompts():
    ids = torch.tensor([[PAD, PAD, 4], [PAD, 5, 6], [7, 8, 9]])
    texts = ["w4", "w5 w6", "w7 w8 w9"]
    return Prompts(ids, ids != PAD, texts, [[] for _ in texts], ["a", "b", "c"], [{"stars": i} for i in range(3)])


def reward(prompts, responses, references, meta):
    """Depends on prompt, words, their order and meta, so that any mix-up shows."""
    scores = []
    for prompt, response, row in zip(prompts, responses, meta):
        words = response.split()
        scores.append(len(prompt) + 10 * row["stars"] + sum((i + 1) * int(w[1:]) for i, w in enumerate(words)) / 100)
    return scores, {"words": [len(response.split()) for response in responses]}


def make(**changes):
    options = {"max_new_tokens": T, "min_new_tokens": 0} | changes
    extra = {key: options.pop(key) for key in list(options) if key in ("vocabulary", "token_reward", "render_mode")}
    return TextEnv(prompts(), tokenizer(), reward, Sampling(EOS, PAD, **options), **extra)


@pytest.mark.parametrize("token_reward", [None, repeated_ngrams(1, 0.5)])
def test_gymnasium_accepts_it(token_reward):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(token_reward=token_reward), skip_render_check=True)


def test_gymnasium_accepts_it_registered_with_rendering():
    gymnasium.register("rlnlp/TextEnvTest-v0", entry_point=TextEnv)
    try:
        env = gymnasium.make(
            "rlnlp/TextEnvTest-v0",
            prompts=prompts(),
            tokenizer=tokenizer(),
            reward=reward,
            render_mode="ansi",
            sampling=Sampling(EOS, PAD, T),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_env(env.unwrapped)
    finally:
        gymnasium.registry.pop("rlnlp/TextEnvTest-v0")


@pytest.mark.parametrize("minimum", [0, 2, T])
def test_random_agents_end_in_time_and_stay_in_the_spaces(minimum):
    env = make(min_new_tokens=minimum)
    env.action_space.seed(0)
    rows, ends = set(), set()
    for episode in range(60):
        observation, info = env.reset(seed=episode)
        rows.add(info["row"])
        for t in range(T):  # noqa: B007 (used below)
            observation, payment, terminated, truncated, info = env.step(env.action_space.sample(mask=info["allowed"]))
            assert observation in env.observation_space and isinstance(payment, float)
            if terminated or truncated:
                break
            assert payment == 0.0
        assert terminated != truncated
        assert not info["allowed"].any()
        ends.add((t + 1, terminated))
        assert t + 1 > minimum or not terminated
    assert rows == {0, 1, 2}
    assert (T, False) in ends and (minimum == T or {length for length, by_eos in ends if by_eos} >= {minimum + 1})


# One row per way to end: at once, early, at T by EOS, cut at T; with a prompt of each length.
RESPONSES = torch.tensor([[EOS, 0, 0, 0, 0], [3, 3, EOS, 0, 0], [2, 11, 5, 4, EOS], [6, 6, 7, 6, 6], [9, 0, 0, 8, EOS]])
LENGTHS = [1, 3, 5, 5, 5]  # the last response has padding ids among its tokens: a policy may sample them
ENDS = [True, True, True, False, True]
ROWS = [0, 1, 2, 1, 0]


@pytest.mark.parametrize("token_reward", [None, repeated_ngrams(1, 0.25)])
def test_steps_pay_what_token_rewards_pay(token_reward):
    mask = torch.arange(T) < torch.tensor(LENGTHS).unsqueeze(1)
    batch = take(prompts(), torch.tensor(ROWS))
    rows = [row[keep].tolist() for row, keep in zip(RESPONSES, mask)]
    texts = tokenizer().batch_decode(rows, skip_special_tokens=True)
    scores, parts = evaluate_reward(reward, batch, texts)
    expected = token_rewards(scores, torch.zeros(mask.shape), mask, 0.0)
    if token_reward:
        expected = expected + evaluate_token_reward(token_reward, batch, RESPONSES, mask)

    env = make(token_reward=token_reward)
    for i, row in enumerate(ROWS):
        observation, info = env.reset(options={"row": row})
        assert info["row"] == row and info["example_id"] == "abc"[row]
        for t in range(LENGTHS[i]):
            observation, payment, terminated, truncated, info = env.step(int(RESPONSES[i, t]))
            assert payment == pytest.approx(expected[i, t].item(), abs=1e-6), (i, t)
            last = t == LENGTHS[i] - 1
            assert (terminated, truncated) == (last and ENDS[i], last and not ENDS[i]), (i, t)
        assert info["response"] == texts[i] and info["score"] == pytest.approx(scores[i].item())
        assert info["reward_parts"] == {"words": parts["words"][i].item()}
        assert observation["ids"].tolist() == prompts().ids[row].tolist() + RESPONSES[i].tolist()
        assert observation["mask"].tolist() == prompts().mask[row].int().tolist() + mask[i].int().tolist()


def test_scores_by_hand():
    env = make()
    env.reset(options={"row": 1})
    assert [env.step(token)[1] for token in (3, 2)] == [0.0, 0.0]
    assert env.step(EOS)[1] == pytest.approx(5 + 10 + (1 * 3 + 2 * 2) / 100)


def test_observation_is_left_padded_prompt_then_response():
    env = make()
    observation, _ = env.reset(options={"row": 1})
    assert observation["ids"].tolist() == [PAD, 5, 6] + [PAD] * T
    assert observation["mask"].tolist() == [0, 1, 1] + [0] * T
    later = env.step(3)[0]
    assert later["ids"].tolist() == [PAD, 5, 6, 3] + [PAD] * (T - 1)
    assert later["mask"].tolist() == [0, 1, 1, 1] + [0] * (T - 1)
    assert observation["ids"].tolist() == [PAD, 5, 6] + [PAD] * T  # what was handed out does not change


def test_eos_is_blocked_at_first():
    env = make(min_new_tokens=2)
    _, info = env.reset(options={"row": 0})
    for t in range(2):
        assert info["allowed"].tolist() == [int(token != EOS) for token in range(V)]
        with pytest.raises(gymnasium.error.InvalidAction, match=rf"\(EOS\) is not allowed before 2 .*token {t + 1}$"):
            env.step(EOS)
        info = env.step(4)[4]
    assert info["allowed"].all()
    assert env.step(EOS)[2]


def test_horizon_of_one_ends_at_once():
    env = make(max_new_tokens=1)
    env.reset(options={"row": 0})
    assert env.step(4)[2:4] == (False, True)
    env.reset(options={"row": 0})
    assert env.step(EOS)[2:4] == (True, False)


def test_the_same_seed_draws_the_same_prompts():
    env = make()

    def drawn():
        return [env.reset(seed=4)[1]["row"], *(env.reset()[1]["row"] for _ in range(20))]

    rows = drawn()
    assert rows == drawn() and set(rows) == {0, 1, 2}


def test_a_model_s_head_may_be_wider_than_the_tokenizer():
    env = make(vocabulary=16)
    assert env.action_space.n == 16 and env.reset()[1]["allowed"].shape == (16,)
    assert env.step(np.int64(13))[0]["ids"].max() == 13
    with pytest.raises(ValueError, match=r"prompts.ids: expected 0 to 8, got 9"):
        make(vocabulary=9)


def test_what_it_refuses():
    env = make(render_mode="ansi")
    with pytest.raises(gymnasium.error.ResetNeeded, match="no episode is running"):
        env.step(3)
    with pytest.raises(ValueError, match="unknown option 'rows'"):
        env.reset(options={"rows": 1})
    for row, message in ((3, "0 to 2, got 3"), (-1, "0 to 2"), (1.5, "whole number"), ("1", "whole number")):
        with pytest.raises(ValueError, match=message):
            env.reset(options={"row": row})
    env.reset(options={"row": 2})
    for token in (V, -1, 1.0, None):
        with pytest.raises(gymnasium.error.InvalidAction, match="expected 0 to 11"):
            env.step(token)
    env.step(3)
    assert env.render() == "w7 w8 w9 | w3"
    env.step(EOS)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(3)
    with pytest.raises(ValueError, match="render_mode"):
        make(render_mode="human")
    with pytest.raises(ValueError, match="sampling.eos_id: expected 0 to 11, got 12"):
        TextEnv(prompts(), tokenizer(), reward, Sampling(V, PAD, T))


def test_a_reward_that_fails_stops_the_episode_with_its_name():
    env = TextEnv(prompts(), tokenizer(), lambda *_: [float("nan")], Sampling(EOS, PAD, T))
    env.reset(options={"row": 2})
    with pytest.raises(RewardError, match="not finite.*example c$"):
        env.step(EOS)
