"""The worlds of numbers and dates: their texts, tokens, rewards in both payments, and the models that runs start
from."""

import functools
import itertools
import json
import operator
import random
import re
from fractions import Fraction
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlnlp import rewards, rollout, scoring
from rlnlp.env import TextEnv
from rlnlp.learners import ppo
from rlnlp.scoring import RewardError
from rlnlp.types import Rollout, Sampling, generator
from workbook.draws import base, maker, training, worlds
from workbook.draws.language_model import train_language_model
from workbook.draws.shapes import LanguageModel
from workbook.draws.tokenizer import encode
from workbook.runs.settings import World

pytestmark = pytest.mark.xdist_group("worlds")  # what it sets up takes seconds: once, not once a worker

SHAPE = {"layers": 1, "width": 32, "heads": 2, "batch_size": 16, "learning_rate": 1e-2, "steps": 9, "context": 8}


def settings(**changes):
    """Stands in for params.yaml: two worlds whose models are trained for a second or two."""
    model = {**SHAPE, "tokenizer": "word", "vocabulary": 0, **changes.pop("language_model", {})}
    made = {"numbers": {"texts": 400, "steps": 250}, "dates": {"texts": 400, "steps": 120}} | changes.pop("worlds", {})
    params = SimpleNamespace(
        threads=1,
        device="cpu",
        task=SimpleNamespace(name="any"),
        language_model=LanguageModel(**model),
        worlds={name: World(**values) for name, values in made.items() if values},
    )
    nested = SimpleNamespace(**{**vars(params), "worlds": SimpleNamespace(**params.worlds)})
    params.pick = lambda *names: {name: operator.attrgetter(name)(nested) for name in names}
    return params


def content(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """(facts, folder, scratch) of a draw of both worlds."""
    folder = tmp_path_factory.mktemp("worlds")
    facts = worlds.build(settings(), 1, folder / "out", folder / "scratch")
    return facts, folder / "out", folder / "scratch"


@pytest.fixture(scope="module")
def models(built):
    return {
        name: (AutoModelForCausalLM.from_pretrained(built[1] / name), AutoTokenizer.from_pretrained(built[1] / name))
        for name in worlds.WORLDS
    }


@pytest.fixture(scope="module")
def numbers():
    return worlds.number_tokenizer()


def episodes(tokenizer, rows, horizon=worlds.TOKENS):
    """Rows of token ids or number texts as a rollout; shorter rows are padded."""
    rows = [encode(tokenizer, [row])[0] if isinstance(row, str) else row for row in rows]
    mask = torch.tensor([[t < len(row) for t in range(horizon)] for row in rows])
    ids = torch.tensor([row + [tokenizer.pad_token_id] * (horizon - len(row)) for row in rows])
    zeros = torch.zeros(mask.shape)
    start = worlds.prompts(tokenizer, len(rows), "train", 0)
    how = Sampling(tokenizer.eos_token_id, tokenizer.pad_token_id, horizon)
    return Rollout(start, ids, mask, torch.zeros(len(rows), dtype=torch.bool), zeros, zeros, how)


# rewards -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "length", "pairs"),
    [
        ("1 2 3 4", 4, 1),
        ("4 3 2 1", 4, 0),
        ("5 5 5 5", 4, 0),
        ("1 3 2 4", 4, 2 / 3),
        ("1 2", 4, 1 / 3),
        ("7", 4, 0),
        ("", 4, 0),
        ("1 2 3 4 5 6 0", 4, 5 / 6),
        ("1 then 2 or 3", 3, 1),
        ("-1 0.5 1e3", 3, 1),
        ("nan 1 nan 2", 4, 0),
        ("2 10", 2, 1),
        ("0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9", 20, 18 / 19),
    ],
)
def test_ascending_pairs_by_hand(text, length, pairs):
    assert rewards.ascending_pairs(["p"], [text], [[]], [{}], length=length) == [pytest.approx(pairs)]


def test_pairs_need_two_numbers():
    with pytest.raises(ValueError, match="length: expected >= 2, the numbers of one pair, got 1"):
        rewards.ascending_pairs([""], ["1 2"], length=1)


P = 1 / 19
BY_HAND = {  # world of numbers: reward -> text -> what each token is paid
    "pairs": {"3 5 4 4 9": [0, P, 0, 0, P], "9 8 7": [0, 0, 0], "0": [0]},
    "prefix_token": {  # the run so far / 10, until it ends; beyond ten tokens / their number
        "3 5 4 4 9": [0.1, 0.1, 0, 0, 0],
        "9 8 7": [0.1, 0, 0],
        "0": [0.1],
        "0 1 2 3 4 5 6 7 8 9 10 10 11": [0.1] * 10 + [0, 11 / 12 - 1, 11 / 13 - 11 / 12],
    },
}


@pytest.mark.parametrize(("reward", "text"), [(name, text) for name, texts in BY_HAND.items() for text in texts])
def test_what_each_token_is_paid_by_hand(numbers, reward, text):
    expected = BY_HAND[reward][text]
    scores, parts = worlds.scorer("numbers", reward, numbers)(episodes(numbers, [text, "1 2 3"]))
    assert scores.shape == (2, 20) and scores.dtype == torch.float32 and parts == {}
    assert scores[0].tolist() == pytest.approx(expected + [0] * (20 - len(expected)), abs=1e-6)


def own_score(reward, tokens, first):
    """The two rewards of a list of ids, in exact fractions; ids below ``first`` are no numbers."""
    values = [token for token in tokens if token >= first]
    if reward.startswith("pairs"):
        return Fraction(sum(a < b for a, b in itertools.pairwise(values)), 19)
    run = 0
    while run < len(values) and (run == 0 or values[run - 1] < values[run]):
        run += 1
    return Fraction(run, max(10, len(values)))


@pytest.mark.parametrize(("by_token", "at_end"), [("pairs", "pairs_end"), ("prefix_token", "prefix")])
def test_tokens_together_are_paid_what_the_end_pays(numbers, by_token, at_end):
    """Against a loop over prefixes in fractions; padding, unknown and end tokens may stand anywhere."""
    draw, first = random.Random(7), numbers.convert_tokens_to_ids("0")
    rows = [[draw.randrange(len(numbers)) for _ in range(draw.randint(1, 20))] for _ in range(60)]
    rows += [sorted(row) for row in rows[:20]] + [[0], [1, 1], [2, 5, 1, 6, 0]]
    seen = episodes(numbers, rows)
    tokens, _ = worlds.scorer("numbers", by_token, numbers)(seen)
    ends, _ = worlds.scorer("numbers", at_end, numbers)(seen)
    for row, paid, end in zip(rows, tokens, ends, strict=True):
        running = [own_score(by_token, row[:t], first) for t in range(len(row) + 1)]
        steps = [float(b - a) for a, b in itertools.pairwise(running)]
        assert paid[: len(row)].tolist() == pytest.approx(steps, abs=1e-6) and not paid[len(row) :].any()
        assert end.item() == pytest.approx(float(running[-1]), abs=1e-6) == pytest.approx(paid.sum().item(), abs=2e-6)


@pytest.mark.parametrize("reward", worlds.BY_TOKEN)
def test_a_token_is_paid_for_the_past_alone(numbers, reward):
    score, draw = worlds.scorer("numbers", reward, numbers), random.Random(3)
    row = [draw.randrange(3, 103) for _ in range(20)]
    whole = score(episodes(numbers, [row]))[0][0]
    for t in range(1, 20):
        other = row[:t] + [draw.randrange(3, 103) for _ in range(20 - t)]
        assert torch.equal(score(episodes(numbers, [other, row[:t]]))[0][:, :t], whole[:t].expand(2, -1)), t


def test_a_reward_of_nothing_is_paid_with_the_first_token(numbers):
    """f("") need not be 0: the sum is the score of the response all the same."""
    shorter = rewards.increments(
        lambda prompts, responses, references, meta: [5.0 - len(r.split()) for r in responses], numbers
    )
    seen = episodes(numbers, ["7 8 9", "4"])
    assert shorter(seen.prompts, seen.responses, seen.mask)[:, :4].tolist() == [[4, -1, -1, 0], [4, 0, 0, 0]]


def test_a_reward_that_fails_is_named_with_its_example(numbers):
    def fussy(prompts, responses, references, meta):
        return [1 / (text != "4 2") for text in responses]

    seen = episodes(numbers, ["1 2", "4 2 3"])
    with pytest.raises(RewardError, match=r"increments\(fussy\).*ZeroDivisionError.*train-0-1"):
        scoring.evaluate_token_reward(rewards.increments(fussy, numbers), seen.prompts, seen.responses, seen.mask)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("The ship left on 2021-03-04.", 1),
        ("The ship left in 2021.", 0),
        ("The ship left on Monday.", 0),
        ("", 0),
        (" 2021-03-04", 1),
        ("The ship left on 2021-03.", 0),
    ],
)
def test_dates_by_hand(text, score):
    tokenizer = worlds.date_tokenizer()
    scores, parts = worlds.scorer("dates", "dates", tokenizer)(episodes(tokenizer, [text]))
    assert scores.tolist() == [score] == worlds.score_text("dates", "dates")([""], [text]) and parts == {}


def test_every_reward_has_a_payment_and_mistakes_are_named(numbers):
    known = {name for own in worlds.REWARDS.values() for name in own}
    assert set(worlds.BY_TOKEN) < known and worlds.REWARDS.keys() == worlds.WORLDS.keys()
    assert next(iter(worlds.REWARDS["numbers"])) == "pairs"
    for make in (worlds.score_text, functools.partial(worlds.scorer, tokenizer=numbers)):
        with pytest.raises(
            ValueError, match=r"world: expected one of numbers, dates, got 'number'; did you mean 'numbers'\?"
        ):
            make("number", "pairs")
        with pytest.raises(ValueError, match=r"reward: expected one of pairs, .*, got 'pair'; did you mean 'pairs'\?"):
            make("numbers", "pair")


# texts and tokens ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", worlds.WORLDS)
def test_texts_are_their_draws(world):
    texts = worlds.WORLDS[world].texts
    assert texts(300, 1) == texts(300, 1) and texts(300, 1)[:50] == texts(50, 1)
    assert not set(texts(300, 1)) & set(texts(300, 2)) if world == "numbers" else texts(300, 1) != texts(300, 2)


def test_texts_of_numbers_are_mostly_without_order_and_lean_to_no_side():
    rows = [[int(word) for word in text.split()] for text in worlds.number_texts(3000, 4)]
    assert all(len(row) == len(set(row)) == 20 and 0 <= min(row) and max(row) <= 99 for row in rows)
    up, down = (sum(row == sorted(row, reverse=way) for row in rows) / 3000 for way in (False, True))
    assert abs(up - 0.2) < 0.03 and abs(down - 0.2) < 0.03  # 4 standard deviations
    pairs = [a < b for row in rows for a, b in itertools.pairwise(row)]
    assert abs(sum(pairs) / len(pairs) - 0.5) < 0.035
    assert {n for row in rows for n in row} == set(range(100))


def test_some_sentences_have_a_date():
    texts = worlds.date_texts(3000, 4)
    dated = sum(bool(re.search(r" on 20\d\d-(0\d|1[0-2])-[0-2]\d\.", text)) for text in texts) / 3000
    assert abs(dated - 0.19) < 0.03  # 1 - 0.9^2
    assert all(text.count(".") == 2 and text.count("-") in (0, 2, 4) for text in texts)
    assert sum(bool(re.search(r" in 20\d\d\.", text)) for text in texts) > 400, "a year alone is no date"


def test_one_token_for_each_integer(numbers, models):
    for tokenizer in (numbers, models["numbers"][1]):
        ids = encode(tokenizer, [str(n) for n in range(100)])
        assert len(tokenizer) == 103 and all(len(one) == 1 for one in ids) and len({one[0] for one in ids}) == 100
        assert not {one[0] for one in ids} & {tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id}
        texts = worlds.number_texts(100, 3)
        assert tokenizer.batch_decode(encode(tokenizer, texts)) == texts


def test_a_date_is_five_tokens_and_every_sentence_comes_back(models):
    for tokenizer in (worlds.date_tokenizer(), models["dates"][1]):
        (ids,) = encode(tokenizer, [" on 2021-03-04."])
        assert [tokenizer.decode([i]) for i in ids] == [" on", " 2021", "-", "03", "-", "04", "."]
        texts = worlds.date_texts(1000, 3)
        encoded = encode(tokenizer, texts)
        assert tokenizer.batch_decode(encoded) == texts
        assert not any(tokenizer.unk_token_id in row for row in encoded)


def test_prompts_are_five_real_padding_tokens(numbers):
    found = worlds.prompts(numbers, 3, "validation", 2)
    assert found.ids.tolist() == [[numbers.pad_token_id] * 5] * 3 and found.mask.tolist() == [[True] * 5] * 3
    assert found.texts == [""] * 3 and found.example_ids == ["validation-2-0", "validation-2-1", "validation-2-2"]
    with pytest.raises(
        ValueError, match=r"split: expected one of train, validation, test, got 'tset'; did you mean 'test'\?"
    ):
        worlds.prompts(numbers, 3, "tset", 2)
    with pytest.raises(ValueError, match="prompts: expected at least 1, got 0"):
        worlds.prompts(numbers, 0, "test", 2)


# models --------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_padding_makes_the_models_begin(models):
    for world, begins in (("numbers", [str(n) for n in range(100)]), ("dates", ["The", "Her"])):
        model, tokenizer = models[world]
        start = torch.full((1, 5), tokenizer.pad_token_id)
        chances = model(input_ids=start, attention_mask=torch.ones_like(start)).logits[0, -1].softmax(-1)
        first = [encode(tokenizer, [text])[0][0] for text in begins]
        assert chances[first].sum() > 0.95, world
        if world == "numbers":
            assert chances[first].max() < 0.1, "no number is preferred"


def test_the_untrained_model_has_no_order_to_its_numbers(models, built):
    """Mean of 400 texts, whose standard deviation is about 0.1: 0.5 within what a model of one draw leans to a side."""
    model, tokenizer = models["numbers"]
    texts = worlds.responses(model, tokenizer, "numbers", 400, 11)
    rows = [[int(word) for word in text.split()] for text in texts]
    assert sum(len(row) for row in rows) / 400 > 19.5 and len(set(texts)) == 400
    mean = sum(sum(a < b for a, b in itertools.pairwise(row)) / 19 for row in rows) / 400
    assert abs(mean - 0.5) < 0.08 and abs(built[0]["numbers"]["response_scores"]["ascending_pairs"] - 0.5) < 0.08


def test_facts_say_what_there_is(built):
    facts, out, _ = built
    assert json.loads((out / "worlds.json").read_text()) == facts and list(facts) == ["draw", "numbers", "dates"]
    assert sorted(p.name for p in out.iterdir()) == ["dates", "numbers", "worlds.json"]
    one = facts["numbers"]
    assert (one["training_texts"], one["training_tokens"], one["tokens_seen"]) == (400, 8000, 250 * 16 * 32)
    texts = worlds.number_texts(400, 1)
    assert one["training_scores"]["increasing_numbers"] == pytest.approx(
        sum(rewards.increasing_numbers(texts, texts)) / 400
    )
    assert one["training_scores"].keys() == one["response_scores"].keys() == {"ascending_pairs", "increasing_numbers"}
    assert 0 < facts["dates"]["response_scores"]["dates"] < 0.6
    first, *_, last = base.loss_curve(out, "numbers")
    assert last[0] == 250 and last[1] < first[1] < base.guessing_loss(one) + 0.3


def test_a_change_makes_again_only_what_depends_on_it(built, tmp_path, monkeypatch):
    made, once = [], maker.once

    def spy(parent, inputs, make, *more):
        def making(*folders):
            made.append((int(parent.parent.name.removeprefix("worlds_draw")), parent.name))
            make(*folders)

        return once(parent, inputs, making, *more)

    monkeypatch.setattr(maker, "once", spy)

    def again(draw=1, **changes):
        made.clear()
        worlds.build(settings(**changes), draw, tmp_path / "out", built[2])
        return made

    left = tmp_path / ".out.part" / "left.txt"  # by a build that was killed
    left.parent.mkdir()
    left.touch()
    assert again() == [] and content(tmp_path / "out") == content(built[1])
    assert again(language_model={"context": 16, "steps": 8, "tokenizer": "bpe"}) == [], (
        "not read: the world has its own"
    )
    assert again(worlds={"dates": {"texts": 400, "steps": 5}}) == [(1, "dates")]
    assert again(worlds={"dates": {"texts": 400, "steps": 5, "learner": {"gamma": 0.5}}}) == []
    assert again(worlds={"numbers": {}, "dates": {"texts": 100, "steps": 5}}) == [(1, "dates")]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["dates", "worlds.json"]
    assert again(worlds={"numbers": {}, "dates": {}}) == [] and content(tmp_path / "out").keys() == {"worlds.json"}
    assert again(worlds={"numbers": {"texts": 400, "steps": 5}, "dates": {}}, language_model={"width": 16}) == [
        (1, "numbers")
    ]
    before = content(tmp_path / "out")
    assert again(2, worlds={"numbers": {"texts": 400, "steps": 5}, "dates": {}}, language_model={"width": 16}) == [
        (2, "numbers")
    ]
    assert content(tmp_path / "out")["numbers/model.safetensors"] != before["numbers/model.safetensors"]


def test_from_nothing_and_after_a_kill_the_same_bytes(tmp_path, monkeypatch):
    small = settings(worlds={"numbers": {"texts": 50, "steps": 12}, "dates": {"texts": 50, "steps": 12}})
    worlds.build(small, 1, tmp_path / "whole", tmp_path / "one")
    monkeypatch.setattr(
        worlds, "train_language_model", functools.partial(train_language_model, save_every_s=0)
    )  # a state after every step
    step, calls = training.optimizer_step, []

    def dies(*arguments):
        calls.append(1)
        if len(calls) == 18:
            raise KeyboardInterrupt
        return step(*arguments)

    monkeypatch.setattr(training, "optimizer_step", dies)
    with pytest.raises(KeyboardInterrupt):
        worlds.build(small, 1, tmp_path / "out", tmp_path / "two")
    assert not (tmp_path / "out").exists() and list((tmp_path / "two").rglob("dates/*/state-*.safetensors"))
    worlds.build(small, 1, tmp_path / "out", tmp_path / "two")
    assert len(calls) == 24 + 1, "steps done before the kill are not done again"
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_an_unknown_world_is_named_before_anything_is_made(tmp_path):
    params = settings()
    params.worlds["date"] = params.worlds["dates"]
    with pytest.raises(
        ValueError, match=r"worlds: expected some of numbers, dates, got 'date'; did you mean 'dates'\?"
    ):
        worlds.build(params, 1, tmp_path / "out", tmp_path / "scratch")
    assert not list(tmp_path.iterdir())


# with the rest of the package ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("reward", ["pairs", "pairs_end"])
def test_a_learner_is_paid_either_way_and_learns(models, reward):
    """Both payments have the same score for the same responses; after some updates numbers ascend more often."""
    model, tokenizer = models["numbers"]
    model = AutoModelForCausalLM.from_pretrained(model.name_or_path)
    start, score = worlds.prompts(tokenizer, 32, "train", 1), worlds.scorer("numbers", reward, tokenizer)
    config = ppo.Config(
        updates=12,
        episodes_per_update=32,
        learning_rate=5e-3,
        gamma=0.9,
        kl_coef=0.0,
        max_new_tokens=20,
        min_new_tokens=20,
    )
    state = ppo.init(model, config, 1)
    seen = ppo.collect(state, start, score, config)
    texts = rollout.decode(seen.rollout, tokenizer)
    assert seen.scores.tolist() == pytest.approx(rewards.ascending_pairs(texts, texts), abs=1e-6)
    if reward == "pairs":
        assert (seen.rewards > 0).sum(1).float().mean() > 5, "paid along the way"
        curve = [m["objective/score"] for m in ppo.train(state, start, score, config)]
        assert sum(curve[-3:]) / 3 > sum(curve[:3]) / 3 + 0.05
    else:
        assert (seen.rewards[:, :-1] == 0).all() and torch.equal(seen.rewards[:, -1], seen.scores)


def test_the_environment_pays_what_a_rollout_pays(models):
    model, tokenizer = models["numbers"]
    start = worlds.prompts(tokenizer, 2, "test", 1)
    seen = rollout.sample(model, start, rollout.sampling_from(model, 20, min_new_tokens=20), generator(5))
    paid, _ = worlds.scorer("numbers", "prefix_token", tokenizer)(seen)
    env = TextEnv(
        start,
        tokenizer,
        lambda *_: [0.0],
        seen.sampling,
        token_reward=rewards.increments(rewards.increasing_numbers, tokenizer),
    )
    for row in range(2):
        env.reset(options={"row": row})
        assert [env.step(token)[1] for token in seen.responses[row].tolist()] == pytest.approx(
            paid[row].tolist(), abs=1e-6
        )
