"""The benchmark's scores: one contract for all, golden values, rewards made of them, and traps that are closed."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import evaluate
import nltk
import pytest
import sacrebleu
import torch
from rouge_score import rouge_scorer

from rlnlp import scoring
from rlnlp.types import Prompts
from tests import scored
from tests.scored import COLUMNS, PERFECT, POOR, REFERENCES
from workbook import scores
from workbook.grue import scores as front
from workbook.grue.example import Example
from workbook.scores.cider import cider
from workbook.scores.conditional_entropy.conditional_entropy import conditional_entropy
from workbook.scores.family import ScoreError
from workbook.scores.tokens import sentences

HERE = sorted(set(front.known()) - {"meteor"})  # that one needs data: test_meteor_matches_synonyms...
NO_BEST_ANSWER = {"consistency", "sentiment", "conditional_entropy"}  # of made-up classifiers; of a set of texts
GUIDE = "It is a guide to action which ensures that the military always obeys the commands of the party"
GUIDES = {
    "It is a guide to action that ensures that the military will forever heed Party commands": 0.6944,
    "It is the guiding principle which guarantees the military forces always being under the command of the "
    "Party": 0.6250,
    "It is the practical guide for the army always to heed the directions of the party": 0.5114,
}


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """What the scores that need a model or a classifier are given here."""
    folder = tmp_path_factory.mktemp("models")
    nli = scored.save_bert(folder / "nli", ("contradiction", "neutral", "entailment"))
    return {
        "bertscore": {"model": scored.save_bert(folder / "bert"), "language": "en"},
        "consistency": {"model": nli},
        "intent": {"classify": scored.by_length},
        "sentiment": {"positive": scored.of_dogs},
    }


@pytest.mark.parametrize("name", HERE)
def test_every_score_keeps_the_contract(name, settings):
    score = front.score(name, **settings.get(name, {}))
    reads = {key: COLUMNS[key] for key in (*score.columns, *score.optional) if key in COLUMNS}
    each = score.each(PERFECT, REFERENCES, **COLUMNS, whatever=[1, 2, 3, 4])
    assert len(each) == 4 and all(isinstance(value, float) for value in each)
    assert score.each([], [], **{key: [] for key in reads}) == []
    poor, empty = (score.each(texts, REFERENCES, **COLUMNS) for texts in (POOR, ["", " ", "", ""]))
    low, high = score.range
    assert all(low - 1e-6 <= value <= high + 1e-6 for value in each + poor + empty)
    again = score.each(PERFECT, [row[::-1] for row in REFERENCES], **COLUMNS)
    assert again == pytest.approx(each, abs=1e-9)
    if name not in NO_BEST_ANSWER | {"copied"}:
        better = (lambda a, b: a >= b) if score.higher_is_better else (lambda a, b: a <= b)
        assert all(better(a, b) and better(a, c) for a, b, c in zip(each, poor, empty)) and each != poor
    for row in range(4):  # the corpus value of one example of four words or more is the example's own
        one = {key: column[row : row + 1] for key, column in COLUMNS.items()}
        alone = score.each(PERFECT[row : row + 1], REFERENCES[row : row + 1], **one)
        assert score.corpus(PERFECT[row : row + 1], REFERENCES[row : row + 1], **one) == pytest.approx(alone[0])
        if score.alone:
            assert alone[0] == pytest.approx(each[row], abs=1e-5)
    if score.total is None:
        assert score.corpus(POOR, REFERENCES, **COLUMNS) == pytest.approx(sum(poor) / 4)


def test_a_copy_of_the_prompt_is_all_copied_and_other_words_are_not():
    copied = front.score("copied")
    assert copied.each(["write with : cat", "say with : cat then", ""], prompts=["write with : cat mat"] * 3) == [
        1.0,
        2 / 4,
        0.0,
    ]
    assert copied.reward([1.0, 0.25]) == [0.0, 0.75]


def test_families_load_and_combine_with_columns_that_some_do_not_read(settings):
    families = {score.name: module for module in scores.NAMES for score in front_scores(module)}
    loaded = []
    for module in dict.fromkeys(families[name] for name in HERE):
        known = [name for name, of in families.items() if of == module]
        loaded.append(scores.load(module, **{k: v for name in known for k, v in settings.get(name, {}).items()}))
    loaded.append(scores.load("distinct"))
    found = evaluate.combine(loaded).compute(predictions=POOR, references=REFERENCES, **COLUMNS)
    for name in HERE:
        score = front.score(name, **settings.get(name, {}))
        assert found[name] == pytest.approx(score.corpus(POOR, REFERENCES, **COLUMNS)), name
    assert found["distinct"] > 0 and len(found) == len(HERE) + 1
    assert set(scores.load("translation", only=["chrf"]).compute(predictions=POOR, references=REFERENCES)) == {"chrf"}
    with pytest.raises(ScoreError, match="'chrf_2'.*did you mean 'chrf'"):
        scores.load("translation", only=["chrf_2"])
    with pytest.raises(TypeError, match="settings \\['frequencies'\\], got 'frequency'"):
        scores.load("cider", frequency=1)


def front_scores(module: str):
    import importlib

    return getattr(importlib.import_module(f"workbook.scores.{module}.{module}"), "SCORES", ())


# Golden values


def test_meteor_without_wordnet_has_the_librarys_golden_values():
    found = front.score("meteor_stem").each([GUIDE] * 3, [[given] for given in GUIDES])
    assert [round(value, 4) for value in found] == list(GUIDES.values())
    assert round(front.score("meteor_stem").each([GUIDE], [list(GUIDES)])[0], 4) == 0.6944  # the best reference counts
    assert front.score("meteor_stem").each(["dogs run"], [["dog runs"]]) == [1 - 0.5 * (1 / 2) ** 3]  # stems match


def test_meteor_parts_every_full_stop_from_its_word_not_the_last_alone():
    """Worked by hand: five of six tokens match, in two runs; as one line "left." would match nothing."""
    found = front.score("meteor_stem").each(["He left. She ran."], [["he left ; she ran ."]])
    assert found == pytest.approx([5 / 6 * (1 - 0.5 * (2 / 5) ** 3)])


def test_meteor_matches_synonyms_where_a_wordnet_is_found(tmp_path):
    """In a process of its own: nltk keeps the WordNet that it has loaded. The WordNet is made up, of two words."""
    folder = tmp_path / "corpora" / "wordnet"
    folder.mkdir(parents=True)
    for end in ("adj", "adv", "noun", "verb"):
        for name in (f"index.{end}", f"data.{end}", f"{end}.exc"):
            (folder / name).write_text("")
    for name in ("cntlist.rev", "index.sense"):
        (folder / name).write_text("")
    (folder / "lexnames").write_text("".join(f"{number:02d}\tplace{number}\t1\n" for number in range(45)))
    (folder / "data.noun").write_text("00000000 06 n 02 car 0 auto 0 000 | what one drives  \n")
    (folder / "index.noun").write_text("auto n 1 0 1 0 00000000  \ncar n 1 0 1 0 00000000  \n")
    code = (
        "from workbook import scores\nfrom workbook.grue.scores import score\n"
        "given = {'predictions': ['the car stops'], 'references': [['the auto stops']]}\n"
        "print(scores.combine(['meteor', 'meteor_stem']).compute(**given))\n"
        "print(score('meteor').each(given['predictions'], given['references']), score('meteor').needs)\n"
    )
    environment = {**os.environ, "NLTK_DATA": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    whole, chunks = 1 - 0.5 * (1 / 3) ** 3, (1 - 0.5 * (2 / 2) ** 3) * 2 / 3
    assert done.returncode == 0, done.stderr[-2000:]
    both, alone = done.stdout.strip().splitlines()
    assert eval(both) == pytest.approx({"meteor": whole, "meteor_stem": chunks})
    assert alone == f"[{whole}] wordnet"


def test_meteor_is_refused_where_no_wordnet_is_found(monkeypatch):
    monkeypatch.setattr(nltk.data, "path", [])
    for ask in (front.score, scores.load, lambda name: front.reward({name: 1.0})):
        with pytest.raises(ScoreError, match="meteor: needs WordNet.*'meteor_stem' does without"):
            ask("meteor")


def test_cider_has_the_golden_values_and_trap_13_duplicates_and_one_alone():
    """Trap 13: keyed by the prompt's text, duplicates overwrite each other; one example by itself has 0."""
    texts = ["The dog is the boy 's cat .", "A boy is picking apples from trees and put them into bags ."]
    given = [
        ["The dog is the boy 's cat .", "The dog eats the cat of the boy ."],
        ["A boy is picking apples from trees ."],
    ]
    score = front.score("cider")
    assert score.each(texts, given) == pytest.approx([6.2483129, 4.4923457], abs=1e-7)
    assert score.corpus(texts, given) == pytest.approx(5.3703293, abs=1e-7)
    assert score.corpus(texts[1:], given[1:]) == 0.0
    prompts = ["the same prompt"] * 3
    twice = score.each([*texts, "apples"], [*given, given[1]], prompts=prompts)
    assert len(twice) == 3 and len(set(twice)) == 3
    fixed = front.score("cider", frequencies=cider.document_frequencies(given))
    assert fixed.alone and not score.alone
    assert fixed.each(texts[1:], given[1:]) == pytest.approx([4.4923457], abs=1e-7)
    assert fixed.corpus(texts, given) == pytest.approx(5.3703293, abs=1e-7)
    two = front.score("cider", frequencies=cider.document_frequencies([["apples"], ["pears"]]))
    # a word said twice counts once where the reference has it once: cosine 1/2 of one order of four, one bigram more
    assert two.each(["apples apples"], [["apples"]]) == pytest.approx([10 * (1 / 2) / 4 * math.exp(-1 / 72)])
    with pytest.raises(ScoreError, match="degenerate for one example .*expected the setting 'frequencies'"):
        front.reward({"cider": 1.0})
    with pytest.raises(ScoreError, match="expected frequencies of"):
        front.reward({"cider": 1.0}, {"cider": {"frequencies": Counter()}})
    pay = front.reward({"cider": 2.0}, {"cider": {"frequencies": fixed.given["frequencies"]}})
    assert pay([""], texts[1:], given[1:], [{}])[0] == pytest.approx([2 * 0.44923457])


def test_trap_10_rouge_l_max_is_of_the_powers_of_p_and_r_as_published_and_plain_beside():
    """Trap 10: the published ROUGE-L-max takes P and R to 1/1.2, over stems."""
    plain, published = front.score("rouge_l_max"), front.score("rouge_l_max_published")
    for score in (plain, published):
        assert score.each(["30"], [["Thirty years old", "30"]]) == [1.0]
    text, given = "the cat sat", "the cat was on the mat"  # P 2/3, R 2/6
    p, r = (2 / 3) ** (1 / 1.2), (2 / 6) ** (1 / 1.2)
    assert published.each([text], [[given]]) == pytest.approx([2 * p * r / (p + r)])
    assert plain.each([text], [[given]]) == pytest.approx([4 / 9])
    # Porter's: "walked" and "walks" are "walk"; a word of three letters stays
    assert published.each(["she walked", "was"], [["she walks"], ["wa"]]) == [1.0, 0.0]
    assert plain.each(["she walked"], [["she walks"]]) == [0.5]


def test_trap_11_rouge_lsum_differs_from_rouge_l_on_texts_without_newlines():
    """Trap 11: without newlines the library's ROUGE-Lsum is its ROUGE-L."""
    text, given = "a dog barked . the cat slept .", "the cat slept . a dog barked ."
    kinds = rouge_scorer.RougeScorer(["rougeL", "rougeLsum"]).score(given, text)
    assert kinds["rougeLsum"] == kinds["rougeL"]
    assert front.score("rouge_l").each([text], [[given]]) == [kinds["rougeL"].fmeasure] == [0.5]
    assert front.score("rouge_lsum").each([text], [[given]]) == [1.0]
    assert sentences('One. Two! "Three?" four\nfive . six') == ["One.", "Two!", '"Three?"', "four", "five .", "six"]


def libraries() -> Iterator[tuple[str, str, list[float], list[float]]]:
    """(score, whose reference, our values, theirs), of the scores that a library has under the same name."""
    for name, kind in {"rouge_1": "rouge1", "rouge_2": "rouge2", "rouge_l": "rougeL"}.items():
        library = rouge_scorer.RougeScorer([kind])
        theirs = [library.score_multi(row, text)[kind].fmeasure for row, text in zip(REFERENCES, POOR)]
        yield name, "rouge-score 0.1.2", front.score(name).each(POOR, REFERENCES), theirs
    columns = [[row[i] if i < len(row) else None for row in REFERENCES] for i in range(3)]
    corpora = {
        "sacrebleu": sacrebleu.corpus_bleu(POOR, columns),
        "bleu_words": sacrebleu.corpus_bleu(POOR, columns, tokenize="none"),
        "chrf": sacrebleu.corpus_chrf(POOR, columns),
        "ter": sacrebleu.corpus_ter(POOR, columns),
    }
    for name, theirs in corpora.items():
        yield name, f"sacrebleu {sacrebleu.__version__}", [front.score(name).corpus(POOR, REFERENCES)], [theirs.score]


def test_rouge_and_the_translation_scores_are_the_libraries_own():
    for name, _, ours, theirs in libraries():
        assert ours == theirs and max(ours) > 0, name
    assert front.score("sacrebleu").each(POOR, REFERENCES) == [
        sacrebleu.sentence_bleu(text, row).score for text, row in zip(POOR, REFERENCES)
    ]
    glued = ["the cat sat on the mat."], [["the cat sat on the mat ."]]
    assert front.score("sacrebleu").corpus(*glued) == pytest.approx(100)
    assert front.score("bleu_words").corpus(*glued) < 90


def test_coverage_counts_words_and_stems():
    given = {"concepts": [["dog", "run"], ["dog", "run"], ["ice cream"]]}
    texts = ["The dogs ran , a Dog", "dogs running", "cream , then ice"]
    assert front.score("coverage").each(texts, **given) == [0.5, 0.0, 1.0]
    assert front.score("coverage_stem").each(texts, **given) == [0.5, 1.0, 1.0]


def test_conditional_entropy_of_texts_worked_out_by_hand():
    assert conditional_entropy(["a b a c", "a b"], 2) == pytest.approx(3 / 4 * (math.log2(3) - 2 / 3))
    assert conditional_entropy(["a b a b a"], 2) == conditional_entropy(["a", ""], 2) == 0.0
    assert conditional_entropy(["a b c", "a b d"], 3) == 1.0
    with pytest.raises(ScoreError, match="n >= 2, got 1"):
        front.score("conditional_entropy", n=1)
    with pytest.raises(ScoreError, match="conditional_entropy is degenerate for one example"):
        front.reward({"conditional_entropy": 1.0})


# Rewards


def of(pay, responses, rows=range(4), **meta):
    rows = list(rows)
    given = [{key: COLUMNS[key][row] for key in COLUMNS} | meta for row in rows]
    return pay([COLUMNS["prompts"][row] for row in rows], responses, [REFERENCES[row] for row in rows], given)


def test_a_reward_is_the_weighted_sum_of_its_scores_and_shows_its_parts():
    pay = front.reward({"meteor_stem": 0.25, "intent": 0.75}, {"intent": {"classify": scored.by_length}})
    texts = [*PERFECT[:2], "she reads", PERFECT[3]]
    total, parts = of(pay, texts)
    meteor = front.score("meteor_stem").each(texts, REFERENCES)
    assert parts == {"meteor_stem": meteor, "intent": [1.0, 1.0, 0.0, 1.0]}
    assert total == pytest.approx([0.25 * a + 0.75 * b for a, b in zip(meteor, parts["intent"])])
    assert pay.__name__ == "0.25*meteor_stem+0.75*intent"
    points, _ = of(front.reward({"sacrebleu": 1.0}), PERFECT)
    assert points == pytest.approx([1.0] * 4)  # 100 points pay 1


def test_the_core_takes_a_reward_and_names_the_example_with_a_hidden_reference():
    ids = torch.ones(4, 2, dtype=torch.long)
    given = [*REFERENCES[:3], ["empty reference"]]
    meta = [{key: COLUMNS[key][row] for key in ("act", "concepts")} for row in range(4)]
    prompts = Prompts(ids, ids.bool(), COLUMNS["prompts"], REFERENCES, COLUMNS["id"], meta)
    pay = front.reward({"rouge_1": 1.0, "coverage": 1.0})
    found, parts = scoring.evaluate_reward(pay, prompts, PERFECT)
    assert found.tolist() == [2.0] * 4 and set(parts) == {"rouge_1", "coverage"}
    hidden = Prompts(ids, ids.bool(), COLUMNS["prompts"], given, COLUMNS["id"], meta)
    with pytest.raises(scoring.RewardError, match="rouge_1: a hidden or placeholder reference.*example four"):
        scoring.evaluate_reward(pay, hidden, PERFECT)


@pytest.mark.parametrize("given", [[], [""], ["a cat", " "], ["empty reference"], ["Empty Reference"], ["<null>"]])
def test_trap_4_hidden_and_placeholder_references_are_refused_with_their_ids(given):
    """Trap 4: hidden references were scored, ToTTo's as "", CommonGen's as "empty reference"."""
    rows = [REFERENCES[0], given, REFERENCES[2], given]
    for name in ("rouge_1", "sacrebleu", "cider", "parent"):
        with pytest.raises(ScoreError, match=f"{name}: a hidden or placeholder reference in two, four; nothing"):
            front.score(name).each(PERFECT, rows, **COLUMNS)
        with pytest.raises(ScoreError, match="two, four"):
            front.score(name).corpus(PERFECT, rows, **COLUMNS)
    with pytest.raises(ScoreError, match="in row 1"):
        scores.load("rouge_all").compute(predictions=PERFECT[:2], references=rows[:2])
    assert front.score("coverage").each(PERFECT, rows, **COLUMNS) == [1.0] * 4  # reads none


def test_trap_7_a_reward_keeps_nothing_from_call_to_call():
    """Trap 7: the METEOR part of the intent reward was taken over a list that grew with every episode."""
    pay = front.reward({"meteor_stem": 0.25, "intent": 0.75}, {"intent": {"classify": scored.by_length}})
    first, _ = of(pay, [POOR[0]], [0])
    of(pay, PERFECT)
    assert of(pay, [POOR[0]], [0])[0] == first
    assert of(pay, [PERFECT[1], POOR[0]], [1, 0])[0][1] == first[0]


def test_trap_9_the_penalty_is_for_copies_not_for_words_and_any_prompt_will_do():
    """Trap 9: the verbatim list, or the words "generate" and "sentence"; an IndexError with another prefix."""
    plain = front.reward({"coverage": 1.0})
    listed = front.penalised(plain, front.copying())
    texts = ["a cat mat .", "generate a sentence , dogs and ball", "the cat is on a mat", "train and station"]
    total, parts = of(listed, texts)
    assert parts["copies"] == [-1.0, 0.0, 0.0, 0.0] and total == [0.0, 1.0, 0.0, 1.0]
    three = front.penalised(plain, front.copying(3, amount=-0.5))
    assert of(three, ["say write with : cat", "with ball", "x", ""])[1]["copies"] == [-0.5, 0.0, 0.0, 0.0]
    assert listed.__name__ == "1*coverage+copies"
    with pytest.raises(ScoreError, match="n >= 1"):
        front.copying(-1)


def test_trap_12_a_score_is_a_number_or_an_error_that_names_the_row():
    """Trap 12: BLEU became the string "n/a" where the library raised."""
    for name in ("sacrebleu", "bleu_words"):
        score = front.score(name)
        for texts in ([""], ["\x00\u200b"], ["|"], ["\n"]):
            assert score.each(texts, [["a b"]]) == [0.0] and score.corpus(texts, [["a b"]]) == 0.0
        with pytest.raises(ScoreError, match=f"{name}: expected a string, got None \\(row 1\\)"):
            score.each(["a", None], [["a"], ["b"]])
        with pytest.raises(ScoreError, match="one prediction or more"):
            score.corpus([], [])


def test_trap_14_a_reward_of_ter_has_a_bound():
    """Trap 14: TER has none, so that one long answer outweighed a batch."""
    text, given = "a " * 60, ["a b c"]
    assert front.score("ter").each([text], [given]) == pytest.approx([1966.67], abs=0.01)
    pay = front.reward({"ter": 1.0})
    assert pay([""] * 3, [text, "a b c", "a b"], [given] * 3, [{}] * 3)[0] == pytest.approx([-1.0, 1.0, 2 / 3])


def test_trap_21_bertscore_must_know_the_language(settings):
    """Trap 21: German was scored by an English model, because the language was "en" whatever the task."""
    model = settings["bertscore"]["model"]
    with pytest.raises(ScoreError, match="bertscore: expected the setting language"):
        front.score("bertscore", model=model)
    with pytest.raises(ScoreError, match="roberta-large reads 'en', the responses are 'de'.*multilingual"):
        front.known()["bertscore"].at(model="FacebookAI/roberta-large", language="de")
    front.known()["bertscore"].at(model="google-bert/bert-base-multilingual-cased", language="de")


# What cannot be had


@pytest.mark.parametrize("name", sorted(front.ABSENT))
def test_what_is_absent_says_why(name):
    with pytest.raises(ScoreError) as error:
        front.score(name)
    assert front.ABSENT[name] in str(error.value) and name not in front.known()
    with pytest.raises(ScoreError, match="is absent"):
        front.reward({name: 1.0})


def test_bad_requests_get_one_clear_message(monkeypatch, tmp_path):
    with pytest.raises(ScoreError, match="'rouge_3': expected one of .*did you mean 'rouge_"):
        front.score("rouge_3")
    with pytest.raises(ScoreError, match="rouge_1: expected no setting, got 'stem'"):
        front.score("rouge_1", stem=True)
    with pytest.raises(ScoreError, match="intent: expected the setting classify .a classifier"):
        front.reward({"intent": 1.0})
    with pytest.raises(ScoreError, match="expected classify.prompts, responses. -> labels, got 3"):
        front.score("intent", classify=3)
    with pytest.raises(ScoreError, match="expected 4 labels of classify, got 0"):
        front.score("intent", classify=lambda prompts, responses: []).each(PERFECT, **COLUMNS)
    with pytest.raises(ScoreError, match="settings of 'intnet', which has no weight; did you mean 'intent'"):
        front.reward({"intent": 1.0}, {"intnet": {}})
    with pytest.raises(ScoreError, match="one score or more"):
        front.reward({})
    with pytest.raises(ScoreError, match="reads 'concepts', got only .*did you mean 'concept'"):
        front.score("coverage").each(["a"], concept=[["a"]])
    with pytest.raises(ScoreError, match="coverage: no concepts in two"):
        front.score("coverage").each(["a", "b"], concepts=[["a"], []], id=["one", "two"])
    with pytest.raises(ScoreError, match="as many of each, got 1 references for 2"):
        front.score("rouge_1").each(["a", "b"], [["a"]])
    pay = front.reward({"coverage": 1.0})
    with pytest.raises(ScoreError, match="no concepts in b"):
        pay(["", ""], ["x", "y"], [[], []], [{"id": "a", "concepts": ["x"]}, {"id": "b"}])
    monkeypatch.setenv("RLNLP_MIRROR", str(tmp_path))
    with pytest.raises(ValueError, match="nli/none.* was not found"):
        front.score("consistency", model="nli/none")


def test_a_score_of_examples_reads_their_meta():
    examples = [
        Example("e1", "write : ", "cat mat", " .", ("the cat on a mat",), "s", {"concepts": ["cat", "mat"], "act": 1}),
        Example("e2", "write : ", "dog", " .", ("a dog",), "t", {"concepts": ["dog"]}),
    ]
    read = front.columns(examples)
    assert read["prompts"] == ["write : cat mat .", "write : dog ."] and read["source"] == ["s", "t"]
    assert "act" not in read and read["id"] == ["e1", "e2"]
    assert front.score("coverage").each(["a cat", "a dog"], **read) == [0.5, 1.0]
    assert front.score("rouge_1").corpus(["the cat on a mat", "a dog"], **read) == 1.0
