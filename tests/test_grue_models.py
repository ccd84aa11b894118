"""Scores that read a model: BERTScore and consistency, worked out by hand on tiny random ones."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertForSequenceClassification,
    BertModel,
)

from tests import scored
from workbook.grue import scores as front
from workbook.scores.bertscore import bertscore
from workbook.scores.family import ScoreError


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return scored.save_bert(tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture(scope="module")
def nli(tmp_path_factory):
    return scored.save_bert(tmp_path_factory.mktemp("models") / "nli", ("CONTRADICTION", "neutral", "Entailment"))


def by_hand(model: str, text: str, given: str, layer: int) -> float:
    """F of BERTScore, token by token: every vector of the other text may be matched, only words are averaged."""
    tokenizer, encoder = AutoTokenizer.from_pretrained(model), AutoModel.from_pretrained(model).eval()
    vectors = []
    for one in (text, given):
        with torch.no_grad():
            hidden = encoder(**tokenizer(one, return_tensors="pt"), output_hidden_states=True).hidden_states[layer][0]
        vectors.append([row / row.norm() for row in hidden])
    best = [
        [max(float(a @ b) for b in other) for a in side[1:-1]] for side, other in (vectors, vectors[::-1])
    ]  # without the first, [CLS], and the last, [SEP]
    p, r = (sum(values) / len(values) for values in best)
    return 2 * p * r / (p + r)


@pytest.mark.parametrize("layer", [1, 2])
def test_bertscore_is_the_similarity_worked_out_by_hand(bert, layer):
    score = front.score("bertscore", model=bert, language="en", layer=layer)
    texts = ["the cat sat on the mat", "two dogs chase a ball in the park today", "nine"]
    given = [["a cat was sitting"], ["the red ball"], ["she reads at home .", "nine in the morning"]]
    found = score.each(texts, given)
    expected = [max(by_hand(bert, text, one, layer) for one in row) for text, row in zip(texts, given)]
    assert found == pytest.approx(expected, abs=1e-5)
    assert max(found) < 0.99 and len({round(value, 3) for value in found}) == 3


def test_bertscore_of_the_same_text_is_one_and_of_no_text_zero(bert):
    score = front.score("bertscore", model=bert, language="en")
    text = "the cat sat on the old mat today ."
    assert score.each([text, "", " "], [[text]] * 3) == pytest.approx([1.0, 0.0, 0.0], abs=1e-6)
    long = "cat " * 500  # more than the model has places for: cut, not an error
    assert score.each([long], [[long]]) == pytest.approx([1.0], abs=1e-6)


def test_bertscore_does_not_depend_on_the_batch(bert, monkeypatch):
    score = front.score("bertscore", model=bert, language="en")
    together = score.each(scored.POOR, scored.REFERENCES)
    monkeypatch.setattr(bertscore, "BATCH", 1)
    assert score.each(scored.POOR, scored.REFERENCES) == pytest.approx(together, abs=1e-5)


def test_published_models_have_their_layer_and_others_the_last(bert, tmp_path):
    named = scored.save_bert(tmp_path / "bert-base-multilingual-cased")
    with pytest.raises(IndexError):  # layer 9 of two: the choice by name is really made
        front.score("bertscore", model=named, language="de").each(["a"], [["a"]])
    last, second = (front.score("bertscore", model=bert, language="en", **given) for given in ({}, {"layer": 2}))
    assert last.each(scored.POOR, scored.REFERENCES) == second.each(scored.POOR, scored.REFERENCES)


def chances(model: str, premise: str, claim: str) -> list[float]:
    tokenizer, classifier = (
        AutoTokenizer.from_pretrained(model),
        AutoModelForSequenceClassification.from_pretrained(model),
    )
    with torch.no_grad():
        return classifier.eval()(**tokenizer(premise, claim, return_tensors="pt")).logits[0].softmax(-1).tolist()


def test_consistency_is_entailment_less_contradiction_of_the_best_sentences(nli):
    """Labels are found by name; sentences of ten characters or fewer are left out."""
    known, said = (
        ["two dogs chase a ball .", "she reads the book at home ."],
        ["a cat sat on the mat .", "she reads at home ."],
    )
    expected = 0.0
    for claim in said:
        rows = [chances(nli, premise, claim) for premise in known]
        expected += (max(row[2] for row in rows) - max(row[0] for row in rows)) / 2
    score = front.score("consistency", model=nli)
    text, source = " ".join([*said, "a cat ."]), " ".join(["Oh no !", *known])
    assert score.each([text], source=[source]) == pytest.approx([expected], abs=1e-5) and abs(expected) > 1e-3
    assert score.each(["", "a cat .", said[0]], source=[source, source, "a mat ."]) == [0.0, 0.0, 0.0]
    two = score.each([said[0], said[1]], source=[known[0], known[1]])
    assert two == pytest.approx([score.each([s], source=[k])[0] for s, k in zip(said, known)], abs=1e-5)


def test_a_model_that_scores_never_sees_a_whole_split_at_once(bert, nli, monkeypatch):
    """Trap 23 once more: a classifier's memory grows with its batch, and no number shows it."""
    sizes = []
    for kind in (BertModel, BertForSequenceClassification):
        forward = kind.forward
        noted = lambda *a, to=forward, **k: sizes.append(len([*a[1:], *k.values()][0])) or to(*a, **k)
        monkeypatch.setattr(kind, "forward", noted)
    texts = [f"the {one} sat on the {other} ." for one in scored.WORDS for other in scored.WORDS][:150]
    front.score("bertscore", model=bert, language="en").each(texts, [[text] for text in reversed(texts)])
    assert sum(sizes) >= 150 and max(sizes) <= 64
    sizes.clear()
    many = " ".join(f"the cat sat on the old {word} ." for word in scored.WORDS[:12])
    front.score("consistency", model=nli).each([many], source=[many])  # 144 pairs
    assert sum(sizes) >= 144 and max(sizes) <= 32


def test_consistency_refuses_a_classifier_of_something_else(tmp_path):
    model = scored.save_bert(tmp_path / "sentiment", ("negative", "positive"))
    with pytest.raises(ScoreError, match="expected a classifier with labels 'entailment' and 'contradiction', got"):
        front.score("consistency", model=model).each(["a long enough text"], source=["a long enough source"])


def test_a_model_is_found_in_the_mirror(tmp_path, monkeypatch):
    scored.save_bert(tmp_path / "models" / "some" / "bert")
    monkeypatch.setenv("RLNLP_MIRROR", str(tmp_path))
    score = front.score("bertscore", model="some/bert", language="de")
    assert score.each(["cat"], [["cat"]]) == pytest.approx([1.0])
