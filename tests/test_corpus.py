"""The generated corpus, and a judge that cannot be talked into liking word salad."""

import random
import time
from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from rlnlp import metrics
from workbook.texts import corpus, language

FIRST = (
    "nadia gives one pathetic performance . i certainly regretted the finale . it is one magnetic pirate "
    "film but iversen made one dull debut . i would forget it ."
)


@pytest.fixture(scope="module")
def reviews():
    return corpus.generate(1, "language_model", 6000)


def test_same_draw_and_split_same_reviews_and_a_longer_request_only_appends(reviews):
    assert corpus.generate(1, "language_model", 50) == reviews[:50]
    assert corpus.generate(1, "reward", 50) != reviews[:50]
    assert corpus.generate(2, "language_model", 50) != reviews[:50]
    assert corpus.generate(1, "language_model", 0) == []
    with pytest.raises(ValueError, match="n = -1"):
        corpus.generate(0, "x", -1)


def test_first_review_is_the_same_on_every_machine():
    first = corpus.generate(0, "language_model", 1)[0]
    assert first == corpus.Review(FIRST, 0)


def test_size_of_the_language(reviews):
    words = {word for review in reviews for word in review.text.split()}
    assert len(words) >= 650
    assert words <= set(language.vocabulary())
    assert "." in words and not {"<eos>", "", ","} & words
    assert language.vocabulary() == tuple(sorted(set(language.vocabulary())))
    assert all(word == word.lower() and word.isalpha() for word in language.vocabulary() if word != ".")


def test_words_have_a_long_tail(reviews):
    names = set(language.slot_words("NAME"))
    counts = Counter(word for review in reviews for word in review.text.split() if word in names)
    ordered = [n for _, n in counts.most_common()]
    assert len(ordered) > 100
    assert sum(ordered[:10]) > 0.25 * sum(ordered)  # ten of them make a quarter
    assert ordered[-1] < 0.01 * ordered[0] + 20


def test_lengths_vary_so_that_some_episodes_end_early(reviews):
    lengths = np.array([len(review.text.split()) for review in reviews])
    assert lengths.min() >= 25 and lengths.max() <= 60
    assert lengths.std() > 6
    early = (lengths <= 10 + 23).mean()  # prompt 10, response 24 with EOS
    assert 0.1 < early < 0.4
    assert all(review.text.endswith(" .") for review in reviews)


def test_shares_are_those_stated(reviews):
    text = [review.text for review in reviews]
    parts = corpus.judge_parts(text)
    assert (parts["grammatical"] == 1).all()
    assert abs(np.mean([review.label for review in reviews]) - 0.5) < 0.03
    assert abs(parts["plot"].mean() - 0.28) < 0.03  # 30 % before the verdicts
    sentences = [s.split() for t in text for s in t.removesuffix(" .").split(" . ")]
    opinions = [c for s in sentences for c in corpus._split(s, "but") if corpus._grammar().value(c) != 0.5]
    negated = np.mean([bool({"not", "never"} & set(clause)) for clause in opinions])
    assert abs(negated - corpus.NEGATED) < 0.02
    assert 0.06 < np.mean(["but" in s for s in sentences]) < 0.15


def test_draws_have_frequencies_of_their_own():
    def shares(draw):
        counts = Counter(" ".join(r.text for r in corpus.generate(draw, "x", 1500)).split())
        return np.array([counts[word] for word in language.vocabulary()], float) / counts.total()

    def other_half(draw):
        counts = Counter(" ".join(r.text for r in corpus.generate(draw, "y", 1500)).split())
        return np.array([counts[word] for word in language.vocabulary()], float) / counts.total()

    within = abs(shares(1) - other_half(1)).sum()
    between = abs(shares(1) - other_half(2)).sum()
    assert between > 2.5 * within


@pytest.mark.parametrize("draw", [0, 1, 2, 1001])
def test_judge_knows_the_label_of_a_full_review(draw):
    reviews = corpus.generate(draw, "reward_validation", 1500)
    labels = np.array([review.label for review in reviews])
    scores = corpus.judge([review.text for review in reviews])
    right = np.where(scores == 0.5, 0.5, (scores > 0.5) == labels)  # a tie is half right
    assert right.mean() > 0.9


@pytest.mark.parametrize(
    "text, score",
    [
        ("the plot is superb .", 1),
        ("the plot is dull .", 0),
        ("the plot is not superb .", 0),
        ("the plot is never dull .", 1),
        ("i did not hate the score .", 1),
        ("i never enjoyed the score .", 0),
        ("the score never ruined the film .", 1),
        ("i would not recommend it .", 0),
        ("avoid this film .", 0),
        ("tell everyone to rewatch it .", 1),
        ("anna plays the thief .", 0.5),
        ("the plot is dull but the score is superb .", 1),  # worth its last clause
        ("the score is superb but the plot is dull .", 0),
        ("anna plays the thief but the plot is not dull .", 1),
        ("the plot is dull . the score is superb .", 0.5),
        ("the plot is superb . anna plays the thief .", 0.75),
        ("", 0),  # nothing said
        ("the plot is superb", 0),  # no finished sentence
        ("the plot is superb . the score", 1),  # unfinished but possible: left out
        ("the plot is superb . the score is superb but the", 1),
        ("the plot is superb . score the", 0.5),  # no sentence begins like that
        ("the plot is superb . .", 0.5),  # an empty sentence
        (". the plot is superb .", 0.5),
        ("the plot is superb superb .", 0),
        ("superb superb superb .", 0),
        ("superb .", 0),
        ("plot the is superb .", 0),
        ("the plot is superb but .", 0),
        ("but the plot is superb .", 0),
        ("the plot is superb but superb but the score is superb .", 0),
        ("the plot is superb but the score is fresh but the mood is warm .", 0),
        ("the plot is dull superb but the score is superb .", 0),  # either clause spoils it
        ("the plot is splendiferous .", 0),  # no such word
    ],
)
def test_judge_by_hand(text, score):
    assert corpus.judge([text]).tolist() == [score]


@pytest.mark.parametrize(
    "prompt, response, score, sentences",
    [
        ("i loved the score . the plot is", "superb .", 1, 1),
        ("the plot is not", "dull . anna plays the thief .", 0.75, 2),
        ("the plot is superb", ".", 0, 0),  # the prompt said it
        ("the plot is superb", ". the score is dull .", 0, 1),
        ("the plot is superb", "but the score is dull .", 0, 1),
        ("the plot is superb .", "the score is fresh .", 1, 1),
        ("the plot is", "", 0, 0),
        ("the plot is", "the the", 0, 1),
    ],
)
def test_judge_reads_on_from_the_prompt(prompt, response, score, sentences):
    parts = corpus.judge_parts([response], [prompt])
    assert (parts["score"].tolist(), parts["sentences"].tolist()) == ([score], [sentences])


def test_judge_on_continuations_of_real_reviews(reviews):
    words = [review.text.split() for review in reviews[:1000]]
    parts = corpus.judge_parts([" ".join(w[10:34]) for w in words], [" ".join(w[:10]) for w in words])
    assert (parts["grammatical"] == 1).all()
    total = parts["positive"] + parts["plot"] + parts["negative"]
    np.testing.assert_allclose(total, parts["grammatical"])
    with pytest.raises(ValueError, match="as many prompts"):
        corpus.judge(["a"], [])


def test_word_salad_scores_nothing(reviews):
    rng = random.Random(0)
    shuffled = [" ".join(rng.sample(r.text.split(), len(r.text.split()))) for r in reviews[:500]]
    good = [*language.slot_words("GOOD"), ".", "the", "is", "not"]
    salads = [" ".join(rng.choices(good, k=24)) for _ in range(500)]
    pieces = ("the plot", "is superb", "i loved", ".", "not dull")
    bigrams = [" ".join(rng.choices(pieces, k=12)) for _ in range(500)]
    assert corpus.judge(shuffled).mean() < 0.005
    assert corpus.judge(salads).mean() < 0.005
    assert corpus.judge(bigrams).mean() < 0.1


def test_saying_one_good_thing_over_and_over_shows_in_the_diversity(reviews):
    same = ["i would recommend it . " * 4] * 200
    real = [" ".join(review.text.split()[:20]) for review in reviews[:200]]
    assert corpus.judge(same).tolist() == [1.0] * 200
    assert metrics.distinct(same, 2) < 0.01 and metrics.distinct(real, 2) > 0.2
    assert metrics.repetition(same) > 0.5 and metrics.repetition(real) < 0.05


def test_one_wrong_word_spoils_a_sentence(reviews):
    rng = random.Random(1)
    spoiled = 0
    for review in reviews[:1000]:
        sentence = review.text.split(" . ")[0].split()
        sentence[rng.randrange(len(sentence))] = rng.choice(language.vocabulary())
        spoiled += corpus.judge_parts([" ".join(sentence) + " ."])["grammatical"][0] < 1
    assert spoiled > 850  # some swaps stay inside the slot


def test_no_clause_can_be_read_two_ways():
    templates = {t for block in language.KINDS.values() for t in block}
    for a, b in combinations(templates, 2):
        if a.polarity != b.polarity and len(a.slots) == len(b.slots):
            pairs = zip(a.slots, b.slots)
            assert any(not set(language.slot_words(s)) & set(language.slot_words(t)) for s, t in pairs), (a, b)


def test_judge_is_fast(reviews):
    texts = [review.text for review in reviews[:1000]]
    corpus.judge(texts[:1])
    start = time.process_time()
    corpus.judge(texts)
    assert time.process_time() - start < 1
