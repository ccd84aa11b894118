"""Items, ratings and their files; simulated raters; the reward that is learned from pairs."""

from __future__ import annotations

import json
import math
import os

import numpy as np
import pandas as pd
import pytest
import torch

from rlnlp import brought, scoring
from workbook.draws.shapes import RewardModel
from workbook.draws.tokenizer import train_tokenizer
from workbook.study import preference_model as learned
from workbook.study import raters as made
from workbook.study import ratings
from workbook.study.ratings import Choice, Likert, Pair, Preference, PreferenceError, Text
from workbook.study.real import load_preferences
from workbook.texts import corpus
from workbook.texts.hub import DataError

from . import tiny

PAIRS = [
    Pair("a-1", "the film", "is good .", "is bad .", "old", "new"),
    Pair("a-2", "the plot", "is bad .", 'is, "well",\ngood .', "new", "old"),
    Pair("a-3", "", "a ü 你", "b", "old", "new"),
]
SMALL = RewardModel(
    layers=1, width=16, heads=2, epochs=30, batch_size=16, learning_rate=1e-2, max_tokens=16, dropout=0.0
)


# files -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv"])
@pytest.mark.parametrize(
    "rows",
    [
        PAIRS,
        [Text("t", "p", 'r\n,"', "s")],
        [Choice("a-1", "ann", "tie", "second", 4, 1.5, 2), Choice("a,2", "ü", "first")],
        [Likert("a-1", "ann", "Is it good?", 5, 3, 0.1, 1)],
        [Preference("p", "c\n", "r", "2/3", "s")],
    ],
)
def test_what_is_saved_or_appended_comes_back(tmp_path, name, rows):
    ratings.save(tmp_path / name, rows)
    assert ratings.load(tmp_path / name, type(rows[0])) == rows
    for row in rows:
        ratings.append(tmp_path / f"new_{name}", row)
    assert (tmp_path / f"new_{name}").read_bytes() == (tmp_path / name).read_bytes()


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv"])
def test_a_torn_last_line_is_no_rating_and_is_cut_off_by_the_next_one(tmp_path, name):
    path, rows = tmp_path / name, [Choice(f"item {i}", "ann", "first", seconds=1.25) for i in range(3)]
    for row in rows[:2]:
        ratings.append(path, row)
    whole = path.read_bytes()
    with open(path, "ab") as file:
        file.write(ratings._line(path, rows[2]).encode()[:-6])
    assert ratings.load(path, Choice) == rows[:2]
    ratings.append(path, rows[2])
    assert ratings.load(path, Choice) == rows and path.read_bytes().startswith(whole)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv"])
def test_a_last_line_that_only_lacks_its_end_counts(tmp_path, name):
    path, rows = tmp_path / name, [Choice(f"item {i}", "ann", "second") for i in range(3)]
    ratings.save(path, rows[:2])
    path.write_bytes(path.read_bytes()[:-1])  # as spreadsheets and editors leave it
    assert ratings.load(path, Choice) == rows[:2]
    ratings.append(path, rows[2])
    assert ratings.load(path, Choice) == rows


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("r.csv", "item,rater,choosen\na,ann,first\n", r"r.csv, line 2: no column 'chosen'; did you mean 'choosen'\?"),
        ("r.csv", "item,rater,chosen\na,ann,left\n", "line 2: chosen: expected one of first, second, tie; got 'left'"),
        ("r.csv", "item,rater,chosen,place\na,ann,tie,soon\n", "line 2: place: expected int, found 'soon'"),
        ("r.csv", "item,rater,chosen\na,ann\nb,ann,tie\n", "line 2: expected 3 cells"),
        ("r.csv", "item,rater,chosen\n", "no rows; expected the columns item, rater, chosen"),
        ("r.jsonl", '{"item": "a"\n', "line 1: not JSON"),
        ("r.jsonl", '["a"]\n', "line 1: expected a JSON object, found list"),
        ("r.jsonl", '{"item": 3, "rater": "ann", "chosen": "tie"}\n', "item: expected str, found 3"),
        ("r.jsonl", '{"item": "a", "rater": "ann", "chosen": "tie", "place": 1.5}\n', "place: expected int, found 1.5"),
        ("r.txt", "", "expected a name that ends in .jsonl or .csv"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_line(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(PreferenceError, match=message):
        ratings.load(tmp_path / name, Choice)
    with pytest.raises(PreferenceError, match="no such file"):
        ratings.load(tmp_path / "none.csv", Choice)


# ratings ---------------------------------------------------------------------------------------------------------
def test_a_rater_who_contradicts_herself_is_named_and_a_revision_counts():
    once, other = Choice("a-1", "ann", "first"), Choice("a-1", "ann", "tie")
    with pytest.raises(
        PreferenceError, match="rater 'ann' answered item 'a-1' twice: first and tie, both as revision 0"
    ):
        ratings.checked([once, other], PAIRS)
    assert ratings.checked([once, once], PAIRS) == [once]
    later = Choice("a-1", "ann", "tie", revision=1)
    assert ratings.checked([later, once], PAIRS) == ratings.checked([once, later], PAIRS) == [later]
    two = [Likert("t", "ann", "coherent?", 1), Likert("t", "ann", "positive?", 5)]
    assert ratings.checked(two) == two


def test_unknown_and_repeated_items_are_named():
    with pytest.raises(PreferenceError, match="rater 'ann' rated 'a-11', which is no item; did you mean 'a-1'"):
        ratings.checked([Choice("a-11", "ann", "first")], PAIRS)
    with pytest.raises(PreferenceError, match="the id 'a-1' is given to 2 of them"):
        ratings.checked([], [*PAIRS, PAIRS[0]])
    with pytest.raises(PreferenceError, match="no ratings"):
        ratings.table([], PAIRS)
    with pytest.raises(PreferenceError, match="value: expected one of 1, 2, 3, 4, 5; got 6"):
        Likert("t", "ann", "good?", 6)


def test_values_are_signed_by_system_whichever_side_it_wrote():
    choices = [Choice("a-1", "ann", "second"), Choice("a-2", "ann", "second"), Choice("a-3", "simulated-1", "tie")]
    rows = ratings.table(choices, PAIRS)
    assert rows.attrs["systems"] == ["new", "old"]
    assert rows["value"].tolist() == [-1, 1, 0] and rows["simulated"].tolist() == [False, False, True]
    with pytest.raises(PreferenceError, match="the same two systems"):
        ratings.table(choices[:1], [Pair("a-1", "", "x", "y", "one", "one")])
    assert ratings.table([Likert("t", "ann", "q", 2)], [Text("t", "p", "r", "old")])["system"].tolist() == ["old"]


def test_the_majority_makes_a_preference_and_no_majority_makes_none():
    votes = {"a-1": ["first", "second", "second"], "a-2": ["first", "second", "tie"], "a-3": ["tie", "first", "tie"]}
    choices = [Choice(item, f"r{i}", chosen) for item, given in votes.items() for i, chosen in enumerate(given)]
    assert ratings.preferences(PAIRS, choices) == [
        Preference("the film", "is bad .", "is good .", "2/3", "raters"),
        Preference("", "a ü 你", "b", "1/3", "raters"),
    ]
    assert ratings.preferences(PAIRS, [Choice("a-1", "simulated-4", "first")])[0].source == "simulated raters"


def test_order_and_sides_are_drawn_from_seed_and_rater():
    items = [Pair(str(i), "", "a", "b") for i in range(200)]
    shown = made.order(items, "ann", 1)
    assert shown == made.order(items, "ann", 1) and sorted(i.id for i, _ in shown) == sorted(i.id for i in items)
    assert shown != made.order(items, "bob", 1) and shown != made.order(items, "ann", 2)
    assert 70 < sum(left == "first" for _, left in shown) < 130


def test_every_item_gets_its_raters_and_they_share_the_work():
    items = [Pair(str(i), "", "a", "b") for i in range(41)]
    given = made.assign(items, list("abcdefg"), each=3)
    assert all(len({item.id for item in own}) == len(own) for own in given.values())
    assert sorted(i.id for own in given.values() for i in own) == sorted(i.id for i in items for _ in range(3))
    assert max(map(len, given.values())) - min(map(len, given.values())) <= 1
    with pytest.raises(PreferenceError, match="3 raters for each item: expected 1 to 2"):
        made.assign(items, ["a", "b"], each=3)


# simulated raters ------------------------------------------------------------------------------------------------
GOOD, BAD, SALAD = "the plot is superb .", "the plot is dull .", "superb superb plot ."


def items(n=120):
    texts = [(GOOD, BAD), (BAD, GOOD), (SALAD, GOOD)]
    return [Pair(str(i), "", *texts[i % 3], "x", "y") for i in range(n)]


def test_without_noise_a_simulated_rater_is_the_judge_and_says_that_it_is_simulated():
    rater = made.SimulatedRater(1, noise=0.0)
    choices = made.simulate_choices(items(), [rater], each=1)
    assert {c.rater for c in choices} == {"simulated-1"}
    assert {int(c.item) % 3: c.chosen for c in choices} == {0: "first", 1: "second", 2: "second"}
    assert len({c.place for c in choices}) == 120 and {c.left for c in choices} == {"first", "second"}
    texts = [Text("good", "", GOOD), Text("bad", "", BAD), Text("plot", "", "anna plays the thief .")]
    assert {r.item: r.value for r in made.simulate_likert(texts, [rater], each=1)} == {
        "good": 5,
        "bad": 1,
        "plot": 3,
    }


def test_a_repeatable_rater_repeats_itself_and_a_noisy_one_does_not():
    texts = [review.text for review in corpus.generate(0, "raters", 240)]
    pairs, same = [Pair(str(i), "", *texts[2 * i : 2 * i + 2], "x", "y") for i in range(120)], {}
    for repeatability in (0.0, 0.5, 1.0):
        rater = made.SimulatedRater(3, noise=2.0, repeatability=repeatability)
        first, again = (made.simulate_choices(pairs, [rater], 1, occasion=occasion) for occasion in (0, 1))
        same[repeatability] = np.mean([a.chosen == b.chosen for a, b in zip(first, again)])
    assert same[0.0] < same[0.5] < same[1.0] == 1.0 and same[0.0] < 0.75


def test_a_simulated_rater_has_the_biases_it_was_given():
    left = made.simulate_choices(items(), [made.SimulatedRater(1, noise=0.0, leftward=2.0)], 1)
    assert all(c.chosen == c.left for c in left)
    pair = [Pair("0", "", GOOD, " ".join([BAD] * 20), "x", "y")]
    assert made.simulate_choices(pair, [made.SimulatedRater(1, noise=0.0, per_word=0.1)], 1)[0].chosen == "second"
    assert (
        made.simulate_likert([Text("t", "", GOOD)], [made.SimulatedRater(1, noise=0.0, severity=0.5)], 1)[0].value == 3
    )
    raters = made.simulated_raters(20, seed=1)
    assert raters == made.simulated_raters(20, seed=1) != made.simulated_raters(20, seed=2)
    assert len({r.per_word for r in raters}) == len({r.leftward for r in raters}) == 20
    with pytest.raises(PreferenceError, match="repeatability from 0 to 1"):
        made.SimulatedRater(1, repeatability=2.0)


# preference data sets --------------------------------------------------------------------------------------------
def mirror(folder, **columns):
    home = folder / "datasets" / "someone" / "choices"
    home.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(columns).to_parquet(home / "train.parquet")
    return folder


def test_a_preference_data_set_is_read_from_a_mirror(tmp_path):
    columns = {
        "prompt": ["p", "q", "r"],
        "chosen": ["a", "same", "c"],
        "rejected": ["b", "same", "d"],
        "votes": ["2/3"] * 3,
    }
    rows = load_preferences("someone/choices", "train", mirror(tmp_path, **columns))
    assert rows == [Preference("p", "a", "b", "2/3"), Preference("r", "c", "d", "2/3")]
    with pytest.raises(DataError, match="no split 'test'"):
        load_preferences("someone/choices", "test", tmp_path)
    with pytest.raises(DataError, match="was not found"):
        load_preferences("someone/else", "train", tmp_path)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"prompt": ["p"], "chosen": ["a"], "reject": ["b"]}, "train has no column 'rejected'; did you mean 'reject'"),
        ({"prompt": ["p", "q"], "chosen": ["a", None], "rejected": ["b", "c"]}, "row 1: chosen is no text: None"),
        ({"prompt": ["p"], "chosen": ["a"], "rejected": ["a"]}, "no pair of two different responses"),
    ],
)
def test_a_preference_data_set_that_cannot_be_used(tmp_path, columns, message):
    with pytest.raises(DataError, match=message):
        load_preferences("someone/choices", "train", mirror(tmp_path, **columns))


@pytest.mark.slow
@pytest.mark.skipif(
    "RLNLP_TEST_MIRROR" not in os.environ, reason="RLNLP_TEST_MIRROR: a folder with datasets/human-preferences-small"
)
def test_real_preferences_train_the_same_scorer():
    train, test = (
        load_preferences("human-preferences-small", s, os.environ["RLNLP_TEST_MIRROR"]) for s in ("train", "test")
    )
    assert not {row.prompt for row in train} & {row.prompt for row in test}
    tokenizer = train_tokenizer([row.chosen for row in train], "bpe", 500)
    scorer = learned.train(train[:200], tokenizer, SMALL.replace(epochs=1, max_tokens=64), 0)
    found = learned.evaluate(scorer, test)
    assert found.n == len(test) and 0.3 < found.accuracy < 0.8 and found.low < found.accuracy < found.high


# a reward from pairs ---------------------------------------------------------------------------------------------
def test_the_losses_and_their_gradients_against_hand_worked_numbers():
    chosen, rejected = torch.tensor([1.0, 0.0], requires_grad=True), torch.tensor([0.0, 0.0], requires_grad=True)
    loss = learned.bradley_terry(chosen, rejected)
    loss.backward()  # log(1 + e^-1) = 0.3132617, log 2 = 0.6931472; sigmoid(-1) = 0.2689414, sigmoid(0) = 0.5
    assert loss.item() == pytest.approx((0.3132617 + 0.6931472) / 2, abs=1e-6)
    torch.testing.assert_close(chosen.grad, torch.tensor([-0.1344707, -0.25]))
    torch.testing.assert_close(rejected.grad, torch.tensor([0.1344707, 0.25]))
    shifted = learned.bradley_terry(torch.tensor([4.0, 3.0]), torch.tensor([3.0, 3.0]))
    torch.testing.assert_close(shifted, loss.detach())  # a constant changes nothing
    both = learned.good_or_bad(torch.tensor([0.0]), torch.tensor([math.log(3.0)]))  # log 2 and log 4
    assert both.item() == pytest.approx((0.6931472 + 1.3862944) / 2, abs=1e-6)


def test_bradley_terry_recovers_planted_utilities():
    truth = torch.tensor([-1.5, -0.5, 0.0, 0.7, 1.3])
    draw = torch.Generator().manual_seed(0)
    i, j = torch.randint(0, 5, (2, 6000), generator=draw)
    wins = torch.rand(6000, generator=draw) < torch.sigmoid(truth[i] - truth[j])
    better, worse = torch.where(wins, i, j), torch.where(wins, j, i)
    found = torch.zeros(5, requires_grad=True)
    optimizer = torch.optim.LBFGS([found], max_iter=100)

    def closure():
        optimizer.zero_grad()
        loss = learned.bradley_terry(found[better], found[worse])
        loss.backward()
        return loss

    optimizer.step(closure)
    torch.testing.assert_close((found - found.mean()).detach(), truth - truth.mean(), atol=0.15, rtol=0)


def planted(n=240):
    """Pairs of one-word responses; the later word of the alphabet is preferred, mostly."""
    draw, words = torch.Generator().manual_seed(1), [f"w{i}" for i in range(8)]
    rows = []
    for number in range(n):
        i, j = torch.randperm(8, generator=draw)[:2].tolist()
        if torch.rand((), generator=draw) > torch.sigmoid(torch.tensor(float(i - j))):
            i, j = j, i
        rows.append(Preference(f"say {number % 40}", words[i], words[j]))
    return rows, train_tokenizer(words=[*words, "say", *map(str, range(40))])


@pytest.mark.parametrize("kind", ["bradley-terry", "classifier"])
def test_the_scorer_learns_planted_utilities_and_pays_a_reward(kind):
    rows, tokenizer = planted()
    known, unseen = learned.split(rows, seed=1)
    assert not {r.prompt for r in known} & {r.prompt for r in unseen} and len(known) + len(unseen) == len(rows)
    scorer = learned.train(known, tokenizer, SMALL, 0, kind)
    s = learned.scores(scorer, ["say 3"] * 8, [f"w{i}" for i in range(8)])
    assert np.corrcoef(s.numpy(), np.arange(8))[0, 1] > 0.9
    found, chance = learned.evaluate(scorer, unseen), learned.longer(unseen)
    assert found.accuracy > 0.7 and found.auc > 0.7 and chance.accuracy == 0.5
    reward = learned.reward(scorer)
    brought.check_function(reward)
    scores, _ = scoring.evaluate_reward(reward, tiny.prompts(3), ["w0", "", "w7"])
    assert ((0 < scores) & (scores < 1)).all() and scores[2] > scores[0]
    torch.testing.assert_close(reward(["say 3"], ["w4"]), torch.sigmoid(s[4:5] - scorer.centre))
    if kind == "bradley-terry":
        texts = [r.chosen for r in known] + [r.rejected for r in known]
        assert learned.scores(scorer, [r.prompt for r in known] * 2, texts).mean().item() == pytest.approx(
            scorer.centre, abs=1e-4
        )
    else:
        assert scorer.centre == 0.0


def test_the_same_seed_gives_the_same_scorer_and_files_give_it_back(tmp_path):
    rows, tokenizer = planted(40)
    before = torch.get_rng_state()
    one, same, other = (
        learned.train(rows, tokenizer, SMALL.replace(epochs=2, dropout=0.1), seed) for seed in (0, 0, 1)
    )
    assert torch.equal(before, torch.get_rng_state())
    texts = ["w1", "w5 w2", ""]
    torch.testing.assert_close(learned.scores(one, texts, texts), learned.scores(same, texts, texts), rtol=0, atol=0)
    assert not torch.equal(learned.scores(one, texts, texts), learned.scores(other, texts, texts))
    learned.save(one, tmp_path / "m")
    torch.testing.assert_close(
        learned.reward(learned.load(tmp_path / "m"))(texts, texts), learned.reward(one)(texts, texts)
    )
    with pytest.raises(PreferenceError, match="no preference model here"):
        learned.load(tmp_path)


def test_a_scorer_may_start_from_a_language_models_body():
    rows, tokenizer = planted(40)
    policy = tiny.gpt2(vocabulary=len(tokenizer))
    model = learned.from_language_model(policy, 0)
    assert torch.equal(model.base_model.wte.weight, policy.transformer.wte.weight)
    scorer = learned.train(rows, tokenizer, SMALL.replace(epochs=2), 0, model=model)
    assert scorer.model is model and not torch.equal(model.base_model.wte.weight, policy.transformer.wte.weight)
    alone, padded = learned.scores(scorer, ["say"], ["w1"]), learned.scores(scorer, ["say", "say"], ["w1", "w1 w2 w3"])
    torch.testing.assert_close(alone[0], padded[0])


def test_quality_against_hand_counted_numbers():
    found = learned.quality(torch.tensor([1.0, 2.0, 0.0, 5.0]), torch.tensor([0.0, 2.0, 1.0, 4.0]))
    assert found.n == 4 and found.accuracy == (1 + 0.5 + 0 + 1) / 4
    # of 16 pairs of a chosen and a rejected text: 1 > 0; 2 > 0, 2 = 2, 2 > 1; 0 = 0; 5 > all; 1 = 1
    assert found.auc == pytest.approx((1.5 + 2.5 + 0.5 + 4) / 16)
    rows = [Preference("p", "a b", "a"), Preference("p", "a", "b"), Preference("p", "a", "b c")]
    assert learned.longer(rows).accuracy == 0.5
    with pytest.raises(PreferenceError, match="no pairs"):
        learned.quality(torch.zeros(0), torch.zeros(0))


def test_task_and_preference_add_up_and_are_kept_apart():
    fn = learned.combined(lambda *_: ([0.25, 0.5], {"x": [1, 1]}), lambda *_: [1.0, 2.0])
    scores, parts = scoring.evaluate_reward(fn, tiny.prompts(2), ["a", "b"])
    assert (
        scores.tolist() == [1.25, 2.5]
        and parts["task"].tolist() == [0.25, 0.5]
        and parts["preference"].tolist() == [1, 2]
    )


def test_scorers_that_cannot_be_trained():
    rows, tokenizer = planted(4)
    with pytest.raises(PreferenceError, match="expected one of bradley-terry, classifier; got 'dpo'"):
        learned.train(rows, tokenizer, SMALL, 0, "dpo")
    with pytest.raises(PreferenceError, match="needs pairs to learn from"):
        learned.train([], tokenizer, SMALL, 0)
    with pytest.raises(PreferenceError, match="two prompts or more"):
        learned.split(rows[:1])
    two = learned.new_model(tokenizer, SMALL, 0)
    two.config.num_labels = 2
    with pytest.raises(PreferenceError, match="has 2"):
        learned.train(rows, tokenizer, SMALL, 0, model=two)


def test_the_file_of_a_simulated_study_names_its_raters(tmp_path):
    ratings.save(tmp_path / "r.jsonl", made.simulate_choices(items(6), made.simulated_raters(3), 2))
    assert all(
        json.loads(line)["rater"].startswith("simulated-") for line in (tmp_path / "r.jsonl").read_text().splitlines()
    )
