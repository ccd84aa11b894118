"""Six tasks told in the generated world: rows in the hub's columns, and a judge that sees what a score does not."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rouge_score import rouge_scorer

from workbook.grue.example import Example
from workbook.grue.world import (
    cnn_dailymail,
    common_gen,
    daily_dialog,
    english,
    judging,
    narrativeqa,
    raw,
    totto,
    translation,
)
from workbook.grue.world.phrases import sentences
from workbook.grue.world.scenes import PARTS, home

TASKS = {
    "common_gen": common_gen,
    "totto": totto,
    "translation": translation,
    "cnn_dailymail": cnn_dailymail,
    "narrativeqa": narrativeqa,
    "daily_dialog": daily_dialog,
}
WHERE = {
    "common_gen": "common_gen",
    "totto": "totto-genuine-sample",
    "translation": "wmt16/de-en",
    "cnn_dailymail": "cnn_dailymail/3.0.0",
    "narrativeqa": "narrativeqa",
    "daily_dialog": "daily_dialog",
}
REFERENCES = {
    "common_gen": lambda row: [row["target"]],
    "totto": lambda row: row["sentence_annotations"]["final_sentence"],
    "translation": lambda row: [row["translation"]["de"]],
    "cnn_dailymail": lambda row: [row["highlights"]],
    "narrativeqa": lambda row: [answer["text"] for answer in row["answers"]],
}
COPIED = {  # what an answer that copies its source would be
    "common_gen": lambda row: " ".join(row["concepts"]),
    "totto": lambda row: " ".join(totto.facts(row)["cells"].values()),
    "translation": lambda row: row["translation"]["en"],
    "cnn_dailymail": lambda row: row["article"],
    "narrativeqa": lambda row: row["document"]["summary"]["text"],
    "daily_dialog": lambda row: row["dialog"][0],
}
TEXT = {  # the text of a row by which parts must differ
    "common_gen": lambda row: tuple(sorted(row["concepts"])),
    "totto": lambda row: json.dumps(totto.facts(row)),
    "translation": lambda row: row["translation"]["en"],
    "cnn_dailymail": lambda row: row["article"],
    "narrativeqa": lambda row: row["document"]["summary"]["text"],
    "daily_dialog": lambda row: tuple(row["dialog"]),
}


def example(facts: dict | None, name: str = "x") -> Example:
    return Example(name, "", "", "", (), meta={} if facts is None else {"facts": facts})


def answered(name: str, row: dict) -> list[tuple[str, dict]]:
    """(reference, facts) of a row; of a dialogue, those of each turn after the first."""
    if name == "daily_dialog":
        return [(turn, daily_dialog.facts(row, i)) for i, turn in enumerate(row["dialog"]) if i]
    return [(text, TASKS[name].facts(row)) for text in REFERENCES[name](row)]


def verdict(name: str, response: str, facts: dict) -> dict[str, float]:
    found = TASKS[name].judge([response], [example(facts)])
    return {key: values[0] for key, values in found.items()}


def shape(kind: pa.DataType):
    """A type as names and nesting: widths of numbers left out."""
    if pa.types.is_struct(kind):
        return {kind.field(i).name: shape(kind.field(i).type) for i in range(kind.num_fields)}
    if pa.types.is_list(kind):
        return [shape(kind.value_type)]
    return "int" if pa.types.is_integer(kind) else str(kind)


def shapes(schema: pa.Schema) -> dict:
    return {field.name: shape(field.type) for field in schema}


CELL = {"column_span": "int", "is_header": "bool", "row_span": "int", "value": "string"}
TOKENS = {"text": "string", "tokens": ["string"]}
SENTENCES = "original_sentence sentence_after_deletion sentence_after_ambiguity final_sentence"
COLUMNS = {
    "common_gen": {"concept_set_idx": "int", "concepts": ["string"], "target": "string"},
    "totto": {
        "id": "int",
        **dict.fromkeys("table_page_title table_webpage_url table_section_title table_section_text".split(), "string"),
        "table": [[CELL]],
        "highlighted_cells": [["int"]],
        "example_id": "string",
        "sentence_annotations": {name: ["string"] for name in SENTENCES.split()},
        "overlap_subset": "string",
    },
    "translation": {"translation": {"de": "string", "en": "string"}},
    "cnn_dailymail": {"article": "string", "highlights": "string", "id": "string"},
    "narrativeqa": {
        "document": {
            **{"id": "string", "kind": "string", "url": "string", "file_size": "int", "word_count": "int"},
            **{"start": "string", "end": "string"},
            "summary": {**TOKENS, "url": "string", "title": "string"},
            "text": "string",
        },
        "question": TOKENS,
        "answers": [TOKENS],
    },
    "daily_dialog": {"dialog": ["string"], "act": ["int"], "emotion": ["int"]},
}


@pytest.mark.parametrize("name", TASKS)
def test_rows_have_the_hubs_columns(name):
    assert shapes(pa.Table.from_pylist(TASKS[name].rows(0, "train", 20)).schema) == COLUMNS[name]


@pytest.mark.skipif("RLNLP_TEST_MIRROR" not in os.environ, reason="RLNLP_TEST_MIRROR: a folder with datasets/<hub id>")
@pytest.mark.parametrize("name", TASKS)
def test_the_mirrors_files_have_the_same_columns(name):
    folder = Path(os.environ["RLNLP_TEST_MIRROR"]) / "datasets" / WHERE[name]
    if not folder.is_dir():
        pytest.skip(f"no {folder.name} in the mirror")
    for file in folder.glob("*.parquet"):
        assert shapes(pq.read_schema(file)) == COLUMNS[name]
        rows = pq.read_table(file).slice(0, 50).to_pylist()
        turn = (0,) if name == "daily_dialog" else ()
        assert all(TASKS[name].facts(row, *turn) is None for row in rows), "nobody knows the truth of a real row"


@pytest.mark.parametrize("name", TASKS)
def test_rows_depend_on_draw_part_and_place_alone(name):
    rows = TASKS[name].rows
    many = rows(2, "validation", 90)
    assert rows(2, "validation", 41) == many[:41] and len(many) == 90 and rows(2, "validation", 0) == []
    assert many != rows(1, "validation", 90) and many != rows(2, "test", 90)
    with pytest.raises(ValueError, match="did you mean 'train'?"):
        rows(0, "trai", 3)


@pytest.mark.parametrize("name", TASKS)
def test_parts_share_nothing_over_draws_too(name):
    found = {part: {TEXT[name](row) for draw in (0, 1) for row in TASKS[name].rows(draw, part, 500)} for part in PARTS}
    for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert not found[one] & found[other]
    assert all(len(texts) > 60 for texts in found.values())


def scenes_of(name: str, row: dict) -> list[dict]:
    texts = {
        "common_gen": lambda: [row["target"]],
        "translation": lambda: [row["translation"]["en"]],
        "cnn_dailymail": lambda: [row["article"], row["highlights"]],
        "narrativeqa": lambda: [row["document"]["summary"]["text"]],
        "daily_dialog": lambda: row["dialog"],
    }[name]()
    return [scene for text in texts for scene in judging.truths(text)]


@pytest.mark.parametrize("name", [name for name in TASKS if name != "totto"])
def test_every_scene_of_a_row_is_of_its_part(name):
    for part in PARTS:
        for row in TASKS[name].rows(0, part, 100):
            whole = [each for each in scenes_of(name, row) if each["agent"] not in ("", "you") and each["object"]]
            assert {home(each["agent"], each["verb"], each["object"]) for each in whole} <= {part}


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("part", PARTS)
def test_every_reference_is_judged_1_and_of_known_words(name, part):
    pairs = [pair for row in TASKS[name].rows(0, part, 300) for pair in answered(name, row)]
    found = TASKS[name].judge([text for text, _ in pairs], [example(facts) for _, facts in pairs])
    assert list(found) == ["judge", *judging.ASPECTS]
    for key, values in found.items():
        assert len(values) == len(pairs) and set(values) == {1.0}, key
    assert {word for text, _ in pairs for word in text.split()} <= raw.vocabulary()


@pytest.mark.parametrize("name", TASKS)
def test_copying_the_source_is_no_answer(name):
    for row in TASKS[name].rows(0, "test", 60):
        _, facts = answered(name, row)[0]
        assert verdict(name, COPIED[name](row), facts)["judge"] < 0.45


LONG = "the teacher opened the door in the house . " * 1112
HOSTILE = {
    "empty": "",
    "blanks": " \n\t ",
    "a mark": ".",
    "10,000 words": LONG,
    "a long word": "a" * 100_000,
    "control characters": "the teacher opened\x00 the door .",
    "a control character for a blank": "emma\x1fopened the door .",
    "half a pair": "emma \ud800 .",
    "other language": "der mann hat den ball nicht gefunden .",
    "markup": "<pad> <extra_id_0> | </s>",
    "signs": "((((( *** \\ [a-z]+ .",
    "capitals": "THE TEACHER OPENED THE DOOR .",
}


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_answers_are_worth_nothing(name, case):
    for row in TASKS[name].rows(0, "validation", 4):
        for reference, facts in answered(name, row):
            assert set(verdict(name, HOSTILE[case], facts).values()) == {0.0}
            for control in "\x00\x1c\x7f\x85":  # some of which str.split takes for a blank
                assert verdict(name, reference + control, facts)["judge"] == 0.0


@pytest.mark.parametrize("name", TASKS)
def test_whatever_is_said_the_judge_stays_between_0_and_1(name):
    texts = raw.texts(0, 150) + [f"{one} {two}" for one, two in zip(raw.texts(1, 50), raw.texts(2, 50))]
    row = TASKS[name].rows(0, "test", 1)[0]
    _, facts = answered(name, row)[0]
    for key, values in TASKS[name].judge(texts, [example(facts)] * len(texts)).items():
        assert all(0.0 <= value <= 1.0 for value in values), key


def test_a_real_row_has_no_truth_and_cannot_be_judged():
    sentence = "The hall was full when the music began ."
    real = {
        "common_gen": {"concepts": ["garden", "box"], "target": sentence},
        "translation": {"translation": {"en": sentence, "de": sentence}},
        "cnn_dailymail": {"article": sentence, "highlights": sentence},
        "narrativeqa": {"question": {"text": "Who ?"}, "document": {"summary": {"text": sentence}}},
        "totto": {"sentence_annotations": {"final_sentence": [sentence]}, "highlighted_cells": [[0, 0]]},
    }
    for name, row in real.items():
        assert TASKS[name].facts(row) is None
    assert totto.facts({"sentence_annotations": {"final_sentence": []}, "highlighted_cells": []}) is None
    assert daily_dialog.facts({"dialog": [sentence, sentence], "act": [1, 1]}, 1) is None
    for task in TASKS.values():
        with pytest.raises(ValueError, match="'seven' has none"):
            task.judge(["a"], [example(None, "seven")])
        with pytest.raises(ValueError, match="got 2 for 1"):
            task.judge(["a", "b"], [example({})])


# ------------------------------------------------------------------------------------------------------- CommonGen
CONCEPTS = {"concepts": ["garden", "carry", "teacher", "box"]}


@pytest.mark.parametrize(
    ("response", "grammar", "sense", "coverage", "faithful"),
    [
        ("in the garden a box was carried by the teacher on monday .", 1, 1, 1, 1),
        ("the teacher was carrying a heavy box in the garden.", 1, 1, 1, 1),
        ("the box carried the teacher in the garden .", 1, 0, 1, 1),
        ("the teacher carried the box .", 1, 1, 0.75, 1),
        ("the teacher carried the bag in the garden .", 1, 1, 0.75, 0.75),
        ("the farmer carried the box in the park .", 1, 1, 0.5, 0.5),
        ("did the teacher carry the box ?", 0, 0, 0, 0),
        ("in the garden the teacher the box the carry .", 0, 0, 0, 0),
        ("the teacher carried the box . the teacher was in the garden .", 0, 0, 0, 0),
    ],
)
def test_common_gen_sees_roles_missing_and_foreign_concepts(response, grammar, sense, coverage, faithful):
    found = verdict("common_gen", response, CONCEPTS)
    assert found == {
        "judge": grammar * sense * coverage * faithful,
        **{"grammar": grammar, "sense": sense, "coverage": coverage, "faithful": faithful},
    }


def test_common_gens_template_pays_in_overlap_and_not_with_the_judge():
    scorer = rouge_scorer.RougeScorer(["rouge1"])
    rows = common_gen.rows(0, "test", 400)
    sets: dict[int, list[dict]] = {}
    for row in rows:
        sets.setdefault(row["concept_set_idx"], []).append(row)
    template, another, judged = [], [], []
    for same in sets.values():
        targets = [row["target"] for row in same]
        text = f"a {' the '.join(same[0]['concepts'])} in the {same[0]['concepts'][0]} ."
        template.append(scorer.score_multi(targets, text)["rouge1"].fmeasure)
        another.append(scorer.score_multi(targets[1:], targets[0])["rouge1"].fmeasure)
        judged.append(verdict("common_gen", text, common_gen.facts(same[0]))["judge"])
    print(f"ROUGE-1 of the template {np.mean(template):.2f}, of another reference {np.mean(another):.2f}")
    assert np.mean(template) > 0.5 and max(judged) == 0.0


def test_common_gens_sets_have_1_to_4_rows_of_different_sentences():
    for part, least in (("train", 1), ("test", 4)):
        rows = common_gen.rows(0, part, 1000)
        sets: dict[int, list[dict]] = {}
        for row in rows:
            sets.setdefault(row["concept_set_idx"], []).append(row)
        whole = list(sets.values())[:-1]
        assert list(sets) == list(range(len(sets))) and {len(same) for same in whole} <= {least, 2, 3, 4}
        assert all(len({row["target"] for row in same}) == len(same) for same in whole)
        assert all(same[0]["concepts"] == row["concepts"] for same in whole for row in same)
        assert len({tuple(sorted(same[0]["concepts"])) for same in whole}) == len(whole)
        assert {len(same[0]["concepts"]) for same in whole} == {3, 4, 5}


def test_common_gen_says_when_its_sets_are_used_up(monkeypatch):
    monkeypatch.setattr(common_gen, "TRIALS", 0)
    with pytest.raises(ValueError, match="all sets are used"):
        common_gen.rows(0, "test", 100)


# ----------------------------------------------------------------------------------------------------------- ToTTo
CELLS = {"name": "emma", "cells": {"event": "race", "role": "judge"}}


@pytest.mark.parametrize(
    ("response", "sense", "coverage", "faithful"),
    [
        ("emma was the judge of the race .", 1, 1, 1),
        ("the judge of the race was emma .", 1, 1, 1),
        ("emma was a judge at the race .", 1, 1, 1),
        ("emma was the judge of the race in 2007 .", 1, 1, 0.75),
        ("in the park emma was the judge of the race .", 1, 1, 0.75),
        ("in the museum emma was the judge of the race .", 0, 1, 0.75),
        ("emma was the winner of the race .", 1, 0.5, 2 / 3),
        ("emma was the singer of the race .", 0, 0.5, 2 / 3),
        ("emma was a judge .", 1, 0.5, 1),
        ("ben was the judge of the race .", 1, 1, 2 / 3),
    ],
)
def test_totto_sees_values_of_other_rows_and_missing_cells(response, sense, coverage, faithful):
    found = verdict("totto", response, CELLS)
    assert found["grammar"] == 1.0 and found["sense"] == sense
    assert found["coverage"] == pytest.approx(coverage) and found["faithful"] == pytest.approx(faithful)
    assert found["judge"] == pytest.approx(sense * coverage * faithful)


@pytest.mark.parametrize("text", ["emma was .", "emma was the race .", "in 2007 emma was a judge in 2007 .", "emma"])
def test_totto_reads_only_its_sentences(text):
    assert verdict("totto", text, CELLS)["judge"] == 0.0


def test_tottos_tables_let_a_hallucination_be_seen_and_scored():
    scorer = rouge_scorer.RougeScorer(["rouge1"])
    for row in totto.rows(0, "test", 200):
        table = [[cell["value"] for cell in line] for line in row["table"]]
        assert all(len(set(column)) == len(table) for column in zip(*table)), "no value twice in a column"
        known = totto.facts(row)
        [line] = {line for line, _ in row["highlighted_cells"]}
        other = table[1 if line != 1 else 2]
        cells = {name: other[totto.COLUMNS.index(name)] for name in known["cells"]}
        foreign = totto.render(totto.Record(known["name"], **cells))
        assert max(scorer.score(text, foreign)["rouge1"].fmeasure for text, _ in answered("totto", row)) > 0.4
        assert verdict("totto", foreign, known) == {
            **{"grammar": 1.0, "sense": 1.0, "coverage": 0.0, "judge": 0.0},
            "faithful": pytest.approx(1 / 3),
        }


def test_tottos_unseen_pair_is_the_non_overlap_subset():
    pairs = {part: [set(totto.facts(row)["cells"]) for row in totto.rows(0, part, 1000)] for part in PARTS}
    assert set(totto.UNSEEN) not in pairs["train"] and len({tuple(sorted(pair)) for pair in pairs["train"]}) == 5
    subset = [row["overlap_subset"] for row in totto.rows(0, "test", 1000)]
    assert subset.count("False") / 1000 == pytest.approx(totto.UNSEEN_SHARE, abs=0.04)
    assert [mark == "False" for mark in subset] == [pair == set(totto.UNSEEN) for pair in pairs["test"]]
    assert {row["overlap_subset"] for row in totto.rows(0, "train", 50)} == {"none"}
    counts = {part: {len(answered("totto", row)) for row in totto.rows(0, part, 50)} for part in PARTS}
    assert counts == {"train": {1}, "validation": {2}, "test": {2}}


# ----------------------------------------------------------------------------------------------------- translation
SAID = translation.facts({"translation": {"en": "in the park a girl was met by emma on monday ."}})


@pytest.mark.parametrize(
    ("response", "whole"),
    [
        ("im park wurde ein mädchen am montag von emma getroffen .", True),
        ("am montag wurde ein mädchen im park von emma getroffen .", True),
        ("ein mädchen wurde am montag im park von emma getroffen .", True),
        ("im park wurde emma am montag von einem mädchen getroffen .", False),
        ("im park wurde das mädchen am montag von emma getroffen .", False),
        ("im museum wurde ein mädchen am montag von emma getroffen .", False),
        ("im park wurde ein mädchen von emma getroffen .", False),
        ("im park hat emma am montag ein mädchen getroffen .", False),
    ],
)
def test_translation_is_free_in_what_stands_first_and_in_nothing_else(response, whole):
    found = verdict("translation", response, SAID)
    assert found["grammar"] == found["sense"] == 1.0
    assert (found["judge"] == 1.0) == whole
    if not whole:
        assert 0.3 < found["judge"] < 0.9


def test_more_than_the_source_says_is_unfaithful_and_less_does_not_cover():
    short = translation.facts({"translation": {"en": "emma found the ball ."}})
    more = verdict("translation", "emma hat am montag den roten ball gefunden .", short)
    assert more["coverage"] == 1.0 and more["faithful"] < 1.0
    less = verdict("translation", "emma hat ein mädchen getroffen .", SAID)
    assert less["coverage"] < 1.0 and less["faithful"] < 1.0 and less["grammar"] == 1.0


def test_another_translation_is_good_and_often_in_another_order():
    differ = 0
    for row in translation.rows(0, "test", 300):
        text = translation.another(row["translation"]["en"], 1)
        assert verdict("translation", text, translation.facts(row))["judge"] == 1.0
        differ += text != row["translation"]["de"]
    assert 90 < differ < 180
    with pytest.raises(ValueError, match="got 'hello'"):
        translation.another("hello", 0)


def test_collections_of_translations_differ():
    assert translation.rows(0, "test", 5) != translation.rows(0, "test", 5, "iwslt2017")


# --------------------------------------------------------------------------------------------------- CNN/DailyMail
ARTICLE = (
    "ben lost a key in the park . a small dog was chased by emma in the garden on monday . "
    "emma sold the lamp at the lake . the singer opened the door in the house . emma met the woman in the park ."
)
TOLD = cnn_dailymail.facts(
    {"article": ARTICLE, "highlights": "emma chased the dog in the garden .\nemma sold the lamp at the lake ."}
)


@pytest.mark.parametrize(
    ("response", "grammar", "sense", "coverage", "faithful"),
    [
        ("emma chased the dog in the garden .\nemma sold the lamp at the lake .", 1, 1, 1, 1),
        ("emma sold a lamp . the small dog was chased by emma .", 1, 1, 1, 1),
        ("emma chased the dog in the garden .", 1, 1, 2 / 3, 1),
        ("emma chased the dog . emma chased the dog .", 1, 1, 0.5, 1),
        ("ben lost a key . emma chased the dog .", 1, 1, 0.5, 1),
        ("emma chased the dog in the forest . emma sold the lamp .", 1, 1, 1, 0.5),
        ("emma chased the dog on sunday . emma sold the lamp .", 1, 1, 1, 0.5),
        ("emma chased the dog . ben sold the lamp .", 1, 1, 0.5, 0.5),
        ("the dog chased emma . emma sold the lamp .", 1, 0.5, 0.5, 0.5),
        ("emma chased the dog . emma the lamp .", 0.5, 1, 0.5, 1),
        ("emma chased the dog . emma sold the lamp", 0.5, 1, 0.5, 1),
        ("did emma chase the dog ?", 0, 0, 0, 0),
    ],
)
def test_highlights_must_tell_the_main_facts_and_only_what_the_article_says(
    response, grammar, sense, coverage, faithful
):
    found = verdict("cnn_dailymail", response, TOLD)
    assert [found[key] for key in judging.ASPECTS] == pytest.approx([grammar, sense, coverage, faithful])
    assert found["judge"] == pytest.approx(grammar * sense * coverage * faithful)


def test_articles_have_seven_sentences_and_the_main_fact_first_in_three_of_four():
    first = 0
    rows = cnn_dailymail.rows(0, "train", 1000)
    for row in rows:
        known = cnn_dailymail.facts(row)
        people = Counter(scene["agent"] for scene in known["article"])
        [person, count], *others = people.most_common()
        assert count == 3 and {n for _, n in others} == {1} and len(known["article"]) == 7
        own = [scene for scene in known["article"] if scene["agent"] == person]
        assert [scene["object"] for scene in own[:2]] == [scene["object"] for scene in known["highlights"]]
        first += known["article"][0]["agent"] == person
    assert first / 1000 == pytest.approx(cnn_dailymail.MAIN_FIRST, abs=0.04)
    assert len({row["id"] for row in rows}) == 1000


# ----------------------------------------------------------------------------------------------------- NarrativeQA
STORY = "emma cooked the red soup in the kitchen on monday . a farmer met the singer in the park ."


def asked(question: str) -> dict:
    return narrativeqa.facts({"question": {"text": question}, "document": {"summary": {"text": STORY}}})


WHO, WHAT, WHERE_ = "who cooked the soup ?", "what did emma cook ?", "where did emma cook the soup ?"


@pytest.mark.parametrize(
    ("question", "response", "grammar", "sense", "coverage", "faithful"),
    [
        (WHO, "emma", 1, 1, 1, 1),
        (WHO, "emma cooked it .", 1, 1, 1, 1),
        (WHO, "emma cooked the soup in the kitchen .", 1, 1, 1, 1),
        (WHO, "ben", 1, 1, 0, 1),
        (WHO, "the soup", 1, 0, 0, 1),
        (WHO, "emma cooked it in the garden .", 1, 1, 1, 0),
        (WHO, "emma washed it .", 1, 1, 1, 0),
        (WHO, "the red emma", 0, 0, 0, 0),
        (WHO, STORY, 0, 0, 0, 0),
        (WHAT, "the soup", 1, 1, 1, 1),
        (WHAT, "a red soup", 1, 1, 1, 1),
        (WHAT, "the green soup", 1, 1, 1, 0),
        (WHAT, "the door", 1, 0, 0, 1),
        (WHAT, "emma cooked it .", 1, 1, 0, 1),
        (WHAT, "ben cooked the soup .", 1, 1, 1, 0),
        (WHERE_, "in the kitchen", 1, 1, 1, 1),
        (WHERE_, "the kitchen", 1, 1, 1, 1),
        (WHERE_, "the garden", 1, 1, 0, 1),
        (WHERE_, "the library", 1, 0, 0, 1),
        (WHERE_, "at the kitchen", 0, 0, 0, 0),
        (WHERE_, "emma cooked it .", 1, 1, 0, 1),
        (WHERE_, "emma", 1, 0, 0, 0),
    ],
)
def test_an_answer_fills_the_slot_and_says_nothing_untrue(question, response, grammar, sense, coverage, faithful):
    found = verdict("narrativeqa", response, asked(question))
    assert [found[key] for key in judging.ASPECTS] == [grammar, sense, coverage, faithful]


def test_questions_have_one_answer_two_texts_and_three_kinds():
    rows = narrativeqa.rows(0, "test", 600)
    kinds = Counter(row["question"]["text"].split()[0] for row in rows)
    assert set(kinds) == {"who", "what", "where"} and min(kinds.values()) > 150
    for row in rows:
        assert len(row["answers"]) == 2 and len(sentences(row["document"]["summary"]["text"])) == 5
        scene = narrativeqa.facts(row)["scene"]
        assert scene["place"] and scene["agent"] in row["question"]["text"] + row["answers"][1]["text"]
        persons = {each["agent"] for each in judging.truths(row["document"]["summary"]["text"])}
        assert len(persons) == 5
    constant = np.mean([row["answers"][0]["text"] == "in the park" for row in rows])
    assert constant < 0.1


# ----------------------------------------------------------------------------------------------------- DailyDialog
TURN = {"object": "ball", "act": 2, "earlier": ["emma found the ball .", "who lost the ball ?"]}


@pytest.mark.parametrize(
    ("response", "sense", "coverage", "faithful"),
    [
        ("where did ben lose the ball ?", 1, 1, 1),
        ("did you lose the ball in the park ?", 1, 1, 1),
        ("did you lose the ball in the kitchen ?", 0, 1, 1),
        ("who lost the ball ?", 1, 1, 0),
        ("who lost the key ?", 1, 1, 0),
        ("i lost the ball .", 1, 0, 1),
        ("please find the ball .", 1, 0, 1),
        ("i will carry the ball on monday .", 1, 0, 1),
    ],
)
def test_a_turn_has_the_act_keeps_the_object_and_says_something_new(response, sense, coverage, faithful):
    found = verdict("daily_dialog", response, TURN)
    assert [found[key] for key in judging.ASPECTS] == [1, sense, coverage, faithful]


def test_what_two_answers_without_a_model_reach_is_what_the_chain_says():
    assert np.allclose(daily_dialog.CHAIN.sum(axis=1), 1.0)
    assert np.allclose(daily_dialog.start() @ daily_dialog.CHAIN, daily_dialog.start())
    said = daily_dialog.shares()
    assert said == pytest.approx({"always inform": 0.555, "after the previous act": 0.594}, abs=0.001)
    acts = [row["act"] for row in daily_dialog.rows(0, "train", 2000)]
    pairs = [pair for each in acts for pair in zip(each, each[1:])]
    best = {before: int(np.argmax(daily_dialog.CHAIN[before - 1])) + 1 for before in daily_dialog.ACTS}
    assert best == {1: 1, 2: 1, 3: 4, 4: 1}  # as the trivial answer "what mostly follows" has it
    assert np.mean([after == 1 for _, after in pairs]) == pytest.approx(said["always inform"], abs=0.015)
    right = np.mean([after == best[before] for before, after in pairs])
    assert right == pytest.approx(said["after the previous act"], abs=0.015)


def test_a_dialogue_has_an_act_and_an_emotion_a_turn_and_no_turn_twice():
    for row in daily_dialog.rows(0, "test", 300):
        assert len(row["dialog"]) == len(row["act"]) == len(row["emotion"]) == len(set(row["dialog"]))
        assert 6 <= len(row["dialog"]) <= 10 and set(row["act"]) <= {1, 2, 3, 4} and set(row["emotion"]) == {0}
        said = [english.parse(turn.split()) for turn in row["dialog"]]
        assert [clause.act for clause in said] == row["act"]
        assert len({asdict(clause.scene)["object"] for clause in said} - {""}) == 1


# ---------------------------------------------------------------------------------------------------------- lengths
LENGTHS = {  # words of a source and of an answer
    "common_gen": (4, 10),
    "totto": (2, 8),
    "translation": (10, 10),
    "cnn_dailymail": (66, 17),
    "narrativeqa": (53, 4),
    "daily_dialog": (7, 7),
}


@pytest.mark.parametrize("name", TASKS)
def test_sources_and_answers_are_as_long_as_designed(name):
    rows = TASKS[name].rows(0, "train", 200)
    source = np.mean([len(COPIED[name](row).split()) for row in rows])
    answer = np.mean([len(text.split()) for row in rows for text, _ in answered(name, row)])
    assert (source, answer) == pytest.approx(LENGTHS[name], abs=1)
