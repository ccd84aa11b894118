"""Tasks of the benchmark: made-up rows in the hub's columns to prompts and references; hostile rows; the original's
traps that concern rows and prompts.

trap  what the original does                                    here
2     no EOS by the end of the episode pays 0; NarrativeQA      test_trap_2
      answers end at 20 tokens, episodes at 50
3     two truncations; the question is cut away                 test_trap_3 in test_grue_encoding.py
4     hidden references are scored against a placeholder        test_trap_4
5     one target of many                                        test_trap_5
6     imdb_seq2seq: train and validation overlap                test_trap_6: a part is a split; so of real rows in
                                                                test_grue_real.py
8     the act's classifier lacks the separator; the act is not  test_trap_8
      in the prompt; no constant answer is shown
9     the copying penalty takes the prompt apart by its prefix  test_trap_9: concepts are in meta, whatever the prompt
16    ToTTo's prompt holds the cells twice                      test_trap_16
17    "Summarize:" where T5 knows "summarize:"                  test_trap_17
18    five turns are never targets; <EOU> is no token           test_trap_18 (and test_eou_... in test_grue_encoding.py)
19    removing apostrophes has no effect                        test_trap_19: nothing is removed
22    SummaC reads the prompt with its prefix                   test_trap_22
28    data sets that are scripts, ids without a namespace       test_trap_28, test_a_script_... in test_grue_rows.py
30    a tokenizer of 32,100 tokens, 32,128 logits               test_trap_30 in test_grue_encoding.py
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from rlnlp.scoring import scorer
from tests import tiny
from workbook.draws.tokenizer import train_tokenizer
from workbook.grue import tasks
from workbook.grue.arms import ARMS
from workbook.grue.example import Example
from workbook.grue.published import METHODS, table
from workbook.grue.rows import RowsError, examples, usable
from workbook.grue.scoring import acts
from workbook.texts.hub import DataError

ALL = tasks.names()
TRANSLATION = ("iwslt2017", "multi30k", "wmt16")
CONTROL = "\x00\x85\x1b"


def cell(value: str, header: bool = False, wide: int = 1, tall: int = 1) -> dict:
    return {"value": value, "is_header": header, "column_span": wide, "row_span": tall}


def totto(**changed) -> dict:
    lines = [
        [cell("Season", True), cell("Club", True), cell("Goals", True)],
        [cell("1998", True), cell("Rovers | B"), cell("7")],
        [cell("1999", True), cell("United"), cell("12")],
    ]
    row = {
        "id": 1,
        "table_page_title": "Ada Quill",
        "table_webpage_url": "",
        "table_section_title": "Career",
        "table_section_text": "",
        "table": lines,
        "highlighted_cells": [[1, 1], [2, 2]],
        "example_id": "77",
        "sentence_annotations": {"final_sentence": ["Ada Quill left Rovers B.", "She scored 12 goals in 1999."]},
        "overlap_subset": "True",
    }
    return {**row, **changed}


def cnn(**changed) -> dict:
    article = "Dr. Ada Quill won. She was glad!  So was\nher dog. It rained."
    return {"article": article, "highlights": "Quill wins .\nDog is glad .", "id": "ab1", **changed}


def narrative(document: str = "d", **changed) -> dict:
    answers = [{"text": "To find the Captain's hat", "tokens": []}, {"text": "the hat", "tokens": []}]
    summary = {"text": "A Sailor looked for\x92a hat .", "tokens": [], "url": "", "title": ""}
    row = {"document": {"id": document, "summary": summary}, "question": {"text": "Why did the Sailor's boat sail ?"}}
    return {**row, "answers": answers, **changed}


def dialogue(turns: int = 7, **changed) -> dict:
    acts = [2, 1, 3, 4, 1, 2, 1]
    return {"dialog": [f" turn {n} . " for n in range(turns)], "act": acts[:turns], "emotion": [0] * turns, **changed}


def pair(**changed) -> dict:
    return {"translation": {"en": "The owl sleeps.", "de": "Die Eule schläft.", **changed}}


def concepts(number: int = 3, target: str = "An owl sits in a tree.", words=("owl", "tree", "sit")) -> dict:
    return {"concept_set_idx": number, "concepts": list(words), "target": target}


def review(text: str = "Ada Quill was an owl<br /><br />in a tree.", label: int = 1) -> dict:
    return {"text": text, "label": label}


MADE = {
    "cnn_dailymail": cnn,
    "common_gen": concepts,
    "daily_dialog": dialogue,
    "imdb": review,
    "iwslt2017": pair,
    "multi30k": pair,
    "narrativeqa": narrative,
    "totto": totto,
    "wmt16": pair,
}


def read(name: str, *rows: dict):
    return examples(tasks.task(name), list(rows))


# --------------------------------------------------------------------------------------------- prompts and references
def test_common_gen():
    rows = [concepts(), concepts(4, "A cat naps.", ("nap", "cat")), concepts(target="The owl sits.")]
    first, second = read("common_gen", *rows)
    assert (first.before, first.body, first.after) == ("generate a sentence with: ", "owl tree sit", ".")
    assert first.references == ("An owl sits in a tree.", "The owl sits.") and second.references == ("A cat naps.",)
    assert first.id == "common_gen-3" and first.source == "owl tree sit" and "facts" not in first.meta
    trivial = tasks.task("common_gen").trivial
    assert {name: answer(first) for name, answer in trivial.items()} == {
        "a X the Y in the X": "a owl the tree the sit in the owl.",
        "the X the Y": "the owl the tree the sit.",
        "concepts": "owl tree sit",
    }


def test_cnn_dailymail():
    (example,) = read("cnn_dailymail", cnn())
    assert example.prompt == "summarize: Dr. Ada Quill won. She was glad! So was her dog. It rained."
    assert example.before == "summarize: " and not example.after and example.id == "ab1"
    assert example.references == ("Quill wins .\nDog is glad .",)  # a line is a sentence for ROUGE-Lsum
    trivial = tasks.task("cnn_dailymail").trivial
    assert trivial["lead-3"](example) == "Dr. Ada Quill won. She was glad! So was her dog."
    assert trivial["lead-2"](example) == "Dr. Ada Quill won. She was glad!"
    (tokenised,) = read("cnn_dailymail", cnn(article="the owl slept . a cat ran . it rained ."))
    assert trivial["lead-2"](tokenised) == "the owl slept . a cat ran ."


def test_totto():
    (example,) = read("totto", totto())
    assert example.before == "<page_title> Ada Quill <section_title> Career "
    assert example.body == (
        "<cell> Rovers | B <col_header> Club <row_header> 1998 <cell> 12 <col_header> Goals <row_header> 1999"
    )
    assert example.references == ("Ada Quill left Rovers B.", "She scored 12 goals in 1999.")
    assert example.id == "77" and example.source == "Ada Quill Career Rovers | B 12"
    titles = (("Ada Quill", "page_title"), ("Career", "section_title"))
    assert example.meta["overlap"] is True
    assert example.meta["cells"] == (("Rovers | B", "cell"), ("12", "cell"), *titles)
    assert example.meta["table"][3:6] == (("1998", "header"), ("Rovers | B", "cell"), ("7", "cell"))
    assert example.meta["table"][-2:] == titles and len(example.meta["table"]) == 11
    assert tasks.task("totto").trivial["title and cells"](example) == "Ada Quill Rovers | B 12"
    assert tasks.task("totto").trivial["X was at the Z in Y"](example) == "Ada Quill was at the 12 in Rovers | B ."
    unsaid = read("totto", totto(overlap_subset="False"), totto(overlap_subset="none", table_section_title=""))
    assert [each.meta["overlap"] for each in unsaid] == [False, None] and unsaid[1].id == "77#2"
    assert unsaid[1].before == "<page_title> Ada Quill "


def test_totto_headers_follow_spans():
    lines = [
        [cell("Wide", True, wide=2), cell("Alone", True)],
        [cell("left", True), cell("right", True), cell("far", True)],
        [cell("tall", tall=2), cell("a"), cell("b")],
        [cell("c"), cell("d")],  # its first column is the tall cell's
        [cell("below", True, wide=3)],
    ]
    (example,) = read("totto", totto(table=lines, highlighted_cells=[[3, 0], [3, 1], [2, 0]]))
    assert example.body == (
        "<cell> c <col_header> Wide <col_header> right "
        "<cell> d <col_header> Alone <col_header> far "
        "<cell> tall <col_header> Wide <col_header> left"
    )


@pytest.mark.parametrize("name", TRANSLATION)
def test_translation(name):
    first, second = read(name, pair(), {"en": "It rains.", "de": "Es regnet."})  # a copy with two columns
    assert first.prompt == "translate English to German: The owl sleeps."
    assert first.references == ("Die Eule schläft.",) and second.references == ("Es regnet.",)
    assert (first.id, second.id) == ("pair-0", "pair-1")
    task = tasks.task(name)
    assert task.trivial["source"](first) == "The owl sleeps." and task.language == "de"
    assert task.decode.beams == 4 and task.decode.length_penalty == 0.6
    assert not {"meteor_stem", "rouge_1"} & set(task.metrics)  # English stems and tokens


def test_narrativeqa():
    rows = [narrative("d"), narrative("e"), narrative("d")]
    first, other, again = read("narrativeqa", *rows)
    assert first.before == "why did the sailor's boat sail ? \\n " and first.body == "a sailor looked for a hat ."
    assert first.references == ("To find the Captain's hat", "the hat")
    assert [first.id, other.id, again.id] == ["d-0", "e-0", "d-1"] and again.prompt == first.prompt
    trivial = tasks.task("narrativeqa").trivial
    assert [trivial[name](first) for name in trivial] == ["the park", "the", "A Sailor looked for a"]


def test_imdb():
    found = read("imdb", review(), review("An owl sleeps well , all day long .", 0))
    first, other = sorted(found, key=lambda example: example.id)
    assert first.prompt == "Ada Quill was an" and first.references == ("owl in a tree.",) and first.id == "review-0"
    assert other.prompt == "An owl sleeps well" and other.meta == {"label": 0} and other.shorten == "left"
    task = tasks.task("imdb")
    assert task.trivial["the prompt again"](first) == "Ada Quill was an" and task.causal
    assert task.splits["validation"] == "unsupervised"  # a split of its own, whose labels nobody needs
    by_label = [review(label=int(place >= 500)) for place in range(1000)]  # as the files are
    found = read("imdb", *by_label)
    assert 35 < sum(example.meta["label"] for example in found[:100]) < 65 and found == read("imdb", *by_label)
    assert {int(example.id.split("-")[1]) for example in found if example.meta["label"]} == {*range(500, 1000)}


def test_daily_dialog():
    first, second = read("daily_dialog", dialogue())
    assert first.prompt == "turn 0 . <EOU> turn 1 . <EOU> turn 2 . <EOU> turn 3 . <EOU> turn 4 . <EOU>"
    assert first.references == ("turn 5 .",) and second.prompt.startswith("turn 1 .")
    assert first.shorten == "left" and first.after == " <EOU>" and tasks.task("daily_dialog").causal
    assert (first.id, second.id) == ("dialogue-0-5", "dialogue-0-6")
    assert first.meta["act"] == 2 and first.meta["previous_acts"] == (2, 1, 3, 4, 1)
    trivial = tasks.task("daily_dialog").trivial
    assert trivial["last turn"](first) == "turn 4 ." and trivial["always inform"](first) == "i think so ."
    after = {last: replace(first, meta={**first.meta, "previous_acts": (2, 1, 3, 4, last)}) for last in (1, 2, 3, 4)}
    said = {1: "i think so .", 2: "i think so .", 3: "ok , i will .", 4: "i think so ."}
    assert {last: trivial["what mostly follows"](example) for last, example in after.items()} == said


# ------------------------------------------------------------------------------------------------------- hostile rows
def test_no_reference_is_kept_and_hidden():
    hidden = {
        "cnn_dailymail": cnn(highlights=" "),
        "common_gen": concepts(target=""),
        "iwslt2017": pair(de=CONTROL),
        "multi30k": pair(de=""),
        "narrativeqa": narrative(answers=[]),
        "totto": totto(sentence_annotations={"final_sentence": [""]}),
        "wmt16": pair(de="\t"),
    }
    for name, row in hidden.items():
        (example,) = read(name, row)
        assert example.references == () and example.body, name
    # a turn without words is refused, and half a review has words
    assert set(hidden) == set(ALL) - {"daily_dialog", "imdb"}


REFUSED = [
    ("cnn_dailymail", cnn(article=CONTROL), "article: expected a text, found an empty one"),
    ("cnn_dailymail", {"article": "a", "id": "1"}, "no column 'highlights'"),
    ("cnn_dailymail", cnn(article=None), "article: expected str, found NoneType"),
    ("cnn_dailymail", {"articles": "a"}, "no column 'article'; did you mean 'articles'"),
    ("common_gen", concepts(words=()), r"concepts: expected words, found \[\]"),
    ("common_gen", concepts(words=("owl", " ")), "concepts: expected words"),
    ("daily_dialog", dialogue(act=[1, 1, 1, 1, 1, 1, 9]), "act: expected one of 1 inform, 2 question, .* found 9"),
    ("daily_dialog", dialogue(act=[0] * 7), "found 0"),
    ("daily_dialog", dialogue(act=[1, 2]), "act: expected 7, one a turn, found 2"),
    ("daily_dialog", dialogue(dialog=["a", "", "b", "c", "d", "e", "f"]), "found turn 1 empty"),
    ("daily_dialog", {"dialog": [], "act": [], "emotion": []}, "found none"),
    ("imdb", review(" "), "text: expected a text, found an empty one"),
    ("imdb", review("An owl sleeps"), "text: expected 4 words or more, found 3"),
    ("imdb", review(label=2), "label: expected 0 .negative., 1 .positive. or -1 .not said., found 2"),
    ("multi30k", pair(en=" "), "en: expected a text"),
    ("narrativeqa", narrative(question={"text": ""}), "question.text: expected a text"),
    ("narrativeqa", narrative(document=None), "document.id: expected str, found NoneType"),
    ("totto", totto(highlighted_cells=[]), "highlighted_cells: expected a cell with a value, found none"),
    ("totto", totto(highlighted_cells=[[3, 0]]), r"no cell \[3, 0\] in a table of 3 rows"),
    ("totto", totto(highlighted_cells=[[0, -1]]), r"no cell \[0, -1\]"),
]


@pytest.mark.parametrize(("name", "row", "message"), REFUSED, ids=lambda value: value if isinstance(value, str) else "")
def test_what_cannot_be_taken_is_named_by_its_place(name, row, message):
    good = MADE[name]()
    task = tasks.task(name)
    with pytest.raises(RowsError, match=f"^row 1: .*{message}"):
        examples(task, [good, row, good])
    taken, refused = usable(task, [good, row, good])
    assert len(taken) == len(read(name, good, good)) and len(refused) == 1 and refused[0].startswith("row 1: ")


def test_a_concept_set_with_two_lists_of_concepts_is_named():
    with pytest.raises(RowsError, match=r"row 1: concept set 3: expected the concepts \['owl', 'tree', 'sit'\]"):
        read("common_gen", concepts(), concepts(words=("owl",)))


def test_many_bad_rows_are_one_short_message():
    with pytest.raises(RowsError, match="and 7 more rows") as caught:
        read("multi30k", *[pair(en="")] * 10)
    assert list(caught.value.problems) == list(range(10)) and len(str(caught.value)) < 300
    with pytest.raises(DataError, match="multi30k: no rows"):
        read("multi30k")


@pytest.mark.parametrize("name", ALL)
def test_control_characters_become_blanks_and_the_same_row_twice_stays_twice(name):
    text = json.dumps(MADE[name](), ensure_ascii=False)
    dirty = json.loads(
        text.replace("owl", "o\\u0000wl").replace("turn 1", "tu\\u0085rn 1").replace("Quill", "Qu\\u001bill")
    )
    found = read(name, dirty, dirty) if name != "common_gen" else read(name, dirty, {**dirty, "concept_set_idx": 9})
    assert len({example.id for example in found}) == len(found) >= 2
    for example in found:
        said = example.prompt + "".join(example.references) + str(sorted(example.meta.values(), key=str))
        assert not [letter for letter in said if ord(letter) < 32 and letter != "\n" or 127 <= ord(letter) < 160]


def test_an_unknown_task_is_named_with_the_nearest():
    with pytest.raises(DataError, match="expected one of cnn_dailymail, .* got 'toto'; did you mean 'totto'"):
        tasks.task("toto")


# ------------------------------------------------------------------------------------------ what every task says
@pytest.mark.parametrize("name", ALL)
def test_generated_and_real_rows_are_read_by_the_same_code(name):
    task = tasks.task(name)
    assert task.name == name and set(task.splits) == {"train", "validation", "test"}
    made = task.rows(0, "test", 12)
    found = examples(task, made)
    assert all("facts" in example.meta and example.references for example in found)
    judged = task.judge([example.references[0] for example in found], found)
    assert min(judged["grammar"]) == 1.0
    assert name == "imdb" or min(judged["judge"]) == 1.0  # the reference of a negative review is no good answer
    (real, *_) = read(name, MADE[name]())
    assert "facts" not in real.meta
    assert {*real.meta} == {*found[0].meta} - {"facts"}
    for label, answer in task.trivial.items():
        assert all(isinstance(answer(example), str) and answer(example) for example in [*found, real]), label


@pytest.mark.parametrize("name", ALL)
def test_scores_weights_and_published_numbers_hold_together(name):
    task = tasks.task(name)
    assert sum(task.reward.values()) == pytest.approx(1) and set(task.reward) <= set(task.metrics)
    assert len(set(task.metrics)) == len(task.metrics) and task.trivial and task.licence
    for printed in (task.published, *task.more):
        assert set(printed.settings) == {"rl", "sup_rl", "supervised"} and printed.source
        assert not printed.rows or list(printed.rows) == list(METHODS)
        for numbers in printed.rows.values():
            assert set(numbers) - {"meteor"} <= set(task.metrics)  # their METEOR is with WordNet: another name
    assert task.published.settings["rl"]["gamma"] == 0.99


def test_published_spot_checks():
    said = {name: tasks.task(name).published.rows for name in ALL}
    assert said["multi30k"] == {}
    assert said["common_gen"]["sup_ppo"]["cider"] == 1.474 and said["totto"]["nlpo"]["parent"] == 0.36
    assert said["cnn_dailymail"]["sup_nlpo"]["meteor"] == 0.319 and said["wmt16"]["sup_nlpo"]["ter"] == 0.533
    assert said["iwslt2017"]["ppo"]["unique1"] == 8285 and said["daily_dialog"]["nlpo"]["intent"] == 0.490
    assert said["narrativeqa"]["supervised"]["rouge_l_max_published"] == 0.581
    assert said["imdb"]["sup_nlpo"]["sentiment"] == 0.645
    with pytest.raises(ValueError, match="expected one of .* and 2 cells, got 1"):
        table("a b", {"ppo": "0.1"})
    assert table("a b", {"ppo": "0.1 -"}) == {"ppo": {"a": 0.1}}


# ------------------------------------------------------------------------------------------------- the traps
SAID = [("what is that ?", 2), ("please go there !", 3)]


@pytest.mark.parametrize("name", ALL)
def test_trap_2_an_answer_has_as_long_in_training_as_at_evaluation(name):
    task = tasks.task(name)
    assert task.decode.max_new_tokens == task.response_tokens >= task.decode.min_new_tokens


def test_trap_2_an_answer_that_is_cut_at_the_horizon_is_paid_as_its_text_is():
    """Trap 2: what has not ended is paid what the same words are paid that have."""
    tokenizer = train_tokenizer((), "word", words=["owl", "sea", "."])
    words = tokenizer("owl sea owl", add_special_tokens=False)["input_ids"]
    both = tiny.as_rollout([tuple(words), (*words[:2], tokenizer.eos_token_id)], torch.tensor([2, 2]), 3)
    both.terminated[:] = torch.tensor([False, True])
    long = lambda prompts, responses, references, meta: [len(text.split()) for text in responses]
    for chosen in ARMS.values():
        paid, _ = chosen.pay(scorer(long, tokenizer), 0)(both)
        assert sorted(paid.tolist()) == [2.0, 3.0], chosen.name


def test_trap_4_an_empty_target_is_no_reference():
    (example,) = read("common_gen", concepts(target=""), concepts(target="An owl."))
    assert example.references == ("An owl.",)
    (example,) = read("totto", totto(sentence_annotations={"final_sentence": ["", "She left."]}))
    assert example.references == ("She left.",)


def test_trap_5_every_target_of_a_concept_set_is_a_reference_of_one_example():
    rows = tasks.task("common_gen").rows(0, "test", 40)
    found = read("common_gen", *rows)
    assert sum(len(example.references) for example in found) == 40 > len(found)
    assert len({example.prompt for example in found}) == len(found)


@pytest.mark.parametrize("name", ALL)
def test_trap_6_a_part_is_a_split_of_its_own(name):
    task = tasks.task(name)
    assert len(set(task.splits.values())) == 3
    parts = [{example.prompt for example in examples(task, task.rows(0, part, 30))} for part in task.splits]
    assert not parts[0] & parts[1] and not parts[0] & parts[2] and not parts[1] & parts[2]


def test_trap_8_the_act_is_beside_the_prompt_with_what_a_classifier_needs():
    for example in read("daily_dialog", *tasks.task("daily_dialog").rows(0, "test", 5)):
        assert (
            example.meta["act"] in (1, 2, 3, 4)
            and len(example.meta["previous_acts"]) == len(example.meta["turns"]) == 5
        )
        assert (
            example.prompt == " <EOU> ".join(example.meta["turns"]) + " <EOU>"
        )  # turns and separator: nothing of the act
    assert "always inform" in tasks.task("daily_dialog").trivial
    train = [Example(f"{n}", "", "so .", "", (text,), "so .", {"act": act}) for n, (text, act) in enumerate(SAID * 3)]
    classify = acts(train)["classify"]
    for text, act in SAID:  # the prompt is of the other act, as loudly as can be: the classifier learned of answers
        (other,) = (words for words, named in SAID if named != act)
        assert classify([f"{other} " * 20], [text]) == [act]


def test_trap_9_concepts_are_known_without_taking_the_prompt_apart():
    (example,) = read("common_gen", concepts(words=("sentence", "generate", "with:")))
    assert example.meta["concepts"] == ("sentence", "generate", "with:")


def test_trap_16_cells_stand_in_the_prompt_once():
    (example,) = read("totto", totto())
    for text in ("Ada Quill", "Career", "Rovers | B", "<cell> 12"):
        assert example.prompt.count(text) == 1


def test_trap_17_the_prefix_is_what_t5_was_trained_with():
    assert read("cnn_dailymail", cnn())[0].before == "summarize: "
    assert all(read(name, pair())[0].before == "translate English to German: " for name in TRANSLATION)


@pytest.mark.parametrize(("turns", "targets"), [(2, 0), (5, 0), (6, 1), (7, 2)])
def test_trap_18_a_target_has_five_turns_before_it(turns, targets):
    assert len(tasks.task("daily_dialog").read([dialogue(turns)])) == targets


def test_trap_19_apostrophes_stay():
    (example,) = read("narrativeqa", narrative())
    assert "sailor's" in example.prompt and "Captain's" in example.references[0]


@pytest.mark.parametrize("name", ALL)
def test_trap_22_the_source_has_no_instruction_in_it(name):
    (example, *_) = read(name, MADE[name]())
    prefix = example.before.split(":")[0]
    assert example.source and (not prefix or prefix not in example.source) and "<EOU>" not in example.source


@pytest.mark.parametrize("name", ALL)
def test_trap_28_hub_ids_have_a_namespace(name):
    task = tasks.task(name)
    owner, _, rest = task.hub.partition("/")
    assert owner and rest and "/" not in rest and task.mirror
