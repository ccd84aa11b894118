"""A user's reward function: it can change nothing but the score, may be written in TRL's manner, and is tried first."""

import random

import numpy as np
import pytest
import torch

from rlnlp.brought import load_function, try_reward
from rlnlp.learners import ppo
from rlnlp.rewards import ascending_pairs, classifier_reward, dates, increasing_numbers
from rlnlp.scoring import RewardError, contained, evaluate_reward, evaluate_token_reward, scorer
from rlnlp.types import changed
from tests import tiny

PROMPTS = tiny.prompts(4)
TEXTS = ["1 2 3", "", "2020-01-02", "3 2 1"]


def scored(rollout):
    return rollout.responses.eq(7).sum(1).float(), {}


def rough(change):
    """A score whose reward function does ``change`` to the process each time it is called."""

    def reward(prompts, responses, references, meta):
        change()
        return [float(len(response)) for response in responses]

    def score(rollout):
        evaluate_reward(reward, rollout.prompts, [str(row) for row in rollout.responses.tolist()])
        return scored(rollout)

    return score


def trained(score):
    torch.manual_seed(0), np.random.seed(0), random.seed(0)
    policy = tiny.gpt2()
    config = ppo.Config(updates=2, episodes_per_update=8, max_new_tokens=4, learning_rate=1e-2, gamma=1.0)
    state = ppo.init(policy, config, seed=1)
    metrics = list(ppo.train(state, PROMPTS, score, config))
    drawn = [torch.rand(1).item(), np.random.rand(), random.random()]
    return metrics, drawn, torch.cat([weight.flatten() for weight in policy.parameters()])


CHANGES = {
    "torch's random numbers": lambda: torch.manual_seed(3),
    "numpy's random numbers": lambda: np.random.seed(3),
    "python's random numbers": lambda: random.seed(3),
    "gradients": lambda: torch.set_grad_enabled(not torch.is_grad_enabled()),
    "default type": lambda: torch.set_default_dtype(torch.float64),
    "default device": lambda: torch.set_default_device("meta"),
    "threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_reward_function_changes_of_the_process_does_not_reach_the_policy(name):
    threads = torch.get_num_threads()
    try:
        metrics, drawn, weights = trained(scored)
        again, drawn_again, same = trained(rough(CHANGES[name]))
        assert again == metrics and drawn_again == drawn and torch.equal(same, weights)
        assert torch.get_num_threads() == threads
    finally:  # where it does reach, other tests shall not see it
        torch.set_grad_enabled(True), torch.set_default_dtype(torch.float32), torch.set_default_device("cpu")
        torch.set_num_threads(threads)


@pytest.mark.parametrize("enabled", [True, False])
def test_gradients_are_on_or_off_as_before(enabled):
    """Learners score where they take none, and would not notice."""

    def turns(prompts, responses, references, meta):
        torch.set_grad_enabled(not enabled)
        return [0.0] * len(responses)

    with torch.set_grad_enabled(enabled):
        evaluate_reward(turns, PROMPTS, TEXTS)
        assert torch.is_grad_enabled() == enabled


@pytest.mark.parametrize(
    "draw",
    [torch.rand, np.random.rand, lambda n: [random.random() for _ in range(n)]],
    ids=["torch", "numpy", "python"],
)
def test_a_reward_functions_own_random_numbers_are_those_of_what_it_scores(draw):
    """So that a run which was stopped, and one after another, is scored as it would have been alone."""

    def noise(prompts, responses, references, meta):
        return draw(len(responses))

    def scores(prompts=PROMPTS, texts=TEXTS):
        return evaluate_reward(noise, prompts, texts)[0].tolist()

    first, other = scores(), scores(texts=[*TEXTS[:3], "3 2"])
    assert len({*first, *other}) == 8  # also the rows that are alike
    torch.manual_seed(1), np.random.seed(1), random.seed(1)
    assert scores() == first
    assert scores(prompts=changed(PROMPTS, example_ids=["a", "b", "c", "d"])) != first


def test_what_cannot_be_called_as_a_reward_is_refused_when_the_score_is_made():
    for given, said in (
        (0.5, "reward float is float, not a function"),
        (
            lambda texts: [0.0],
            r"reward <lambda>\(texts\) cannot be called with \(prompts, responses, references",
        ),
    ):
        with pytest.raises(RewardError, match=said):
            scorer(given, None)
    for many in (lambda p, r, f, m: map(len, r), lambda p, r, f, m: (float(len(text)) for text in r)):
        assert scorer(many, None) and evaluate_reward(many, PROMPTS, TEXTS)[0].tolist() == [5, 0, 10, 5]
    assert evaluate_reward(lambda p, r, f, m: [0.0] * 4, PROMPTS, ["\ud83d", *TEXTS[1:]])[0].tolist() == [0.0] * 4
    for fine in (dates, lambda completions, **more: [0.0], lambda prompts, *rest: [0.0], max):
        scorer(fine, None)


def test_a_token_reward_is_contained_and_so_is_one_that_raises():
    before = torch.get_rng_state()

    def of_tokens(prompts, responses, mask):
        torch.manual_seed(5)
        return torch.zeros(mask.shape)

    mask = torch.ones(4, 3, dtype=torch.bool)
    evaluate_token_reward(of_tokens, PROMPTS, torch.zeros(4, 3, dtype=torch.long), mask)
    with pytest.raises(KeyError), contained():
        torch.manual_seed(6)
        raise KeyError
    assert torch.equal(torch.get_rng_state(), before)


def test_a_reward_that_leaves_the_program_is_an_error_of_that_reward():
    def leave(prompts, responses, references, meta):
        raise SystemExit(0)

    with pytest.raises(RewardError, match="reward leave: raised SystemExit"):
        evaluate_reward(leave, PROMPTS, TEXTS)


# --------------------------------------------------------------------------------------------------------------- TRL
def test_a_reward_in_trls_manner_is_called_by_name_with_what_it_takes():
    seen = {}

    def by_name(prompts, completions, **kwargs):
        seen.update(kwargs, prompts=prompts)
        return [float(len(text)) for text in completions]

    def of_texts(completions, label):
        return [float(given) for given in label]

    prompts = tiny.prompts(2)
    prompts = type(prompts)(
        prompts.ids, prompts.mask, prompts.texts, prompts.references, prompts.example_ids, [{"label": 1}, {"label": 0}]
    )
    assert evaluate_reward(by_name, prompts, ["ab", ""])[0].tolist() == [2, 0]
    assert seen["prompts"] == prompts.texts and seen["label"] == [1, 0]
    assert seen["references"] == prompts.references and seen["meta"] == prompts.meta
    assert evaluate_reward(of_texts, prompts, ["ab", ""])[0].tolist() == [1, 0]


def classifier():
    from tests.test_pretrained import classifier as made
    from tests.test_pretrained import tokenizer_of

    return classifier_reward(made(), tokenizer_of(50))


@pytest.mark.parametrize("make", [lambda: increasing_numbers, lambda: ascending_pairs, lambda: dates, classifier])
def test_our_rewards_can_be_called_as_trl_calls_its_own(make):
    """By name, with completions, the columns of the data set and what the trainer adds."""
    reward = make()
    texts = PROMPTS.texts
    theirs = reward(prompts=texts, completions=TEXTS, completion_ids=[[1]] * 4, label=[0] * 4, trainer_state=None)
    assert isinstance(theirs, list) and all(isinstance(score, float) for score in theirs)
    assert theirs == torch.as_tensor(reward(texts, TEXTS, [[]] * 4, [{}] * 4)).tolist()
    assert isinstance(reward.__name__, str)


# ------------------------------------------------------------------------------------------------------------- tried
FILE = """
def fine(prompts, responses, references, meta):
    return [0.5] * len(responses)

def trl(prompts, completions, **kwargs):
    return [0.5] * len(completions)

def raises(prompts, responses, references, meta):
    return [1 / len(text) for text in responses]

def leaves(prompts, responses, references, meta):
    raise SystemExit(0)

def words(prompts, responses, references, meta):
    return list(responses)

def other(texts):
    return [1.0] * len(texts)
"""


@pytest.mark.parametrize("name", ["fine", "trl"])
def test_a_reward_that_works_passes_the_trial(tmp_path, name):
    (tmp_path / "mine.py").write_text(FILE)
    try_reward(f"{tmp_path / 'mine.py'}:{name}")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fin", "has no 'fin'; did you mean 'fine'"),
        ("raises", r"ZeroDivisionError: .*mine.py, line 9.*a trial call before training"),
        ("leaves", "raised SystemExit"),
        ("words", "expected 2 numbers, got list"),
        ("other", r"cannot be called with .*\(prompts, completions, \*\*kwargs\) is another way"),
    ],
)
def test_a_reward_that_does_not_work_is_one_clear_message(tmp_path, name, said):
    (tmp_path / "mine.py").write_text(FILE)
    with pytest.raises(RewardError, match=said):
        try_reward(f"{tmp_path / 'mine.py'}:{name}")


def test_a_missing_file_a_syntax_error_and_a_missing_model_are_said(tmp_path):
    (tmp_path / "bad.py").write_text("def score(:\n")
    (tmp_path / "rough.py").write_text(
        "import torch\ntorch.manual_seed(1)\ndef score(prompts, completions): return 1\n"
    )
    for source, said in (
        (f"{tmp_path}/gone.py:score", "no such file"),
        (f"{tmp_path}/bad.py:score", "bad.py raised SyntaxError"),
        (f"{tmp_path}/model", "no such folder"),
    ):
        with pytest.raises(RewardError, match=said):
            try_reward(source)
    before = torch.get_rng_state()
    load_function(f"{tmp_path}/rough.py:score")
    assert torch.equal(torch.get_rng_state(), before)
