"""Metrics as modules of ``evaluate``: loaded from here without a network, equal to the functions they are of."""

import inspect
import os
import subprocess
import sys

import pytest
import sacrebleu
from rouge_score import rouge_scorer

from rlnlp import metrics
from workbook import scores

TEXTS = ["the film was good , the film was long", "a dull film", "the film was good , and so on and so on", ""]
REFERENCES = [["the film was good , if long", "a good film"], ["dull", "a dull film"], ["good", "so on"], ["x", "y"]]
OF_TEXTS = sorted(set(scores.NAMES) & set(vars(metrics)))


def value_of(name: str):
    value = getattr(metrics, name)(TEXTS)
    return value if isinstance(value, dict) else {name: value}


@pytest.mark.parametrize("name", OF_TEXTS)
def test_each_equals_the_cores_function(name):
    assert scores.load(name).compute(predictions=TEXTS) == value_of(name)


def test_every_function_of_texts_in_the_core_has_its_module():
    """Those that give numbers, not further texts or a number for each."""
    signatures = {name: inspect.signature(found) for name, found in vars(metrics).items() if inspect.isfunction(found)}
    found = {
        name
        for name, signature in signatures.items()
        if name[0] != "_" and next(iter(signature.parameters)) == "texts" and "list" not in signature.return_annotation
    }
    assert found == set(OF_TEXTS) and {"distinct", "diversity"} < found


def test_they_combine():
    together = scores.combine(OF_TEXTS).compute(predictions=TEXTS)
    expected = {key: value for name in OF_TEXTS for key, value in value_of(name).items()}
    for name in OF_TEXTS:  # evaluate puts a module's name before a key that two of them have
        for key, value in value_of(name).items():
            assert together.get(f"{name}_{key}", together.get(key)) == value
    assert len(together) >= len(expected)


def test_settings_reach_the_function_and_bad_ones_fail_at_once():
    assert scores.load("distinct", n=1).compute(predictions=TEXTS) == {"distinct": metrics.distinct(TEXTS, 1)}
    with pytest.raises(TypeError, match="window"):
        scores.load("distinct", window=3)
    with pytest.raises(ValueError, match="expected one of .*'bleu'.* got 'blue'"):
        scores.load("blue")


def test_bleu_is_sacrebleus_and_rouge_is_rouge_scores():
    found = scores.load("bleu").compute(predictions=TEXTS, references=REFERENCES)
    assert found["bleu"] == sacrebleu.corpus_bleu(TEXTS, [list(column) for column in zip(*REFERENCES)]).score > 0
    found = scores.load("rouge").compute(predictions=TEXTS[:2], references=REFERENCES[:2])
    one = [rouge_scorer.RougeScorer(["rougeL"]).score_multi(r, t)["rougeL"] for r, t in zip(REFERENCES, TEXTS)]
    assert found["rougeL"] == (one[0].fmeasure + one[1].fmeasure) / 2 and found["rouge1"] > found["rouge2"] > 0


def test_bleu_refuses_references_of_unequal_number():
    for rows in ([["a b", "c d"], ["a b"]], [[], []]):
        with pytest.raises(ValueError, match="equally many references of each response, at least one, found"):
            scores.load("bleu").compute(predictions=["a b", "a b"], references=rows)


def test_they_load_with_an_empty_cache_and_no_network(tmp_path):
    code = (
        "import socket\n"
        "def refuse(*a, **k): raise AssertionError('the network was asked')\n"
        "socket.socket.connect = socket.create_connection = refuse\n"
        "from workbook import scores\n"
        "print(scores.combine(['distinct', 'words']).compute(predictions=['a b', 'a']))\n"
    )
    environment = {**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "'words': 1.5" in done.stdout
