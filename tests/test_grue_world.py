"""The generated world: sentences of both languages and back, what can happen, which part a scene belongs to."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from workbook.grue.world import daily_dialog, english, german, raw, totto
from workbook.grue.world.phrases import sentences
from workbook.grue.world.scenes import PARTS, Clause, Scene, articles, generator, home, scene, sensible, styled
from workbook.grue.world.words import ACTORS, NAMES, PLACES, VERBS

AGENTS = (*NAMES, *ACTORS)
LANGUAGES = {"english": english, "german": german}


def clauses(language: str, n: int) -> list[Clause]:
    """Random clauses that a language can say: English of every act, voice and order, German statements."""
    found = []
    for i in range(n):
        rng = generator("test of the world", language, i)
        said = scene(rng, rng.choice(PARTS), AGENTS, place=0.7)
        if language == "german":
            front = rng.choice(["", *(slot for slot in ("place", "day") if getattr(said, slot))])
            found.append(replace(styled(rng, said, ("past", "passive")), front=front))
        elif i % 3:
            found.append(styled(rng, said))
        else:
            object_ = raw.daily_dialog.topic(rng, "train")
            found.append(daily_dialog.utterance(rng, "train", object_, rng.choice(daily_dialog.ACTS)))
    return found


def read(text: str, language: str = "english") -> Clause | None:
    [words] = sentences(text)
    return LANGUAGES[language].parse(words)


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_said_is_read_back_in_every_one_of_5000_sentences(language):
    said = clauses(language, 5000)
    wrong = [clause for clause in said if read(LANGUAGES[language].render(clause), language) != clause]
    assert not wrong, [LANGUAGES[language].render(clause) for clause in wrong[:5]]
    assert len({(clause.voice, clause.front) for clause in said}) == 6
    assert {clause.act for clause in said} == ({1, 2, 3, 4} if language == "english" else {1})


@pytest.mark.parametrize("language", LANGUAGES)
def test_words_in_random_order_are_grammatical_in_less_than_one_of_100(language):
    rng = random.Random(0)
    texts = [LANGUAGES[language].render(clause) for clause in clauses(language, 3000)]
    shuffled = []
    for text in texts:
        words = text.split()[:-1]
        rng.shuffle(words)
        shuffled.append(" ".join([*words, text[-1]]))
    changed = [new for new, old in zip(shuffled, texts) if new != old]
    right = [text for text in changed if read(text, language)]
    print(f"{language}: {len(right)} of {len(changed)} shuffled sentences are grammatical")
    assert len(changed) > 2900 and len(right) < 0.01 * len(changed)


def test_records_are_read_back():
    for i in range(2000):
        rng = generator("test of records", i)
        record, way = totto.record(rng, rng.choice(PARTS)), rng.randrange(3)
        assert totto.parse(sentences(totto.render(record, way))[0]) == record
        assert totto.sensible(record)


GERMAN = [
    ("das mädchen hat den roten ball gefunden .", "das mädchen hat der roten ball gefunden ."),
    ("der lehrer hat den ball gefunden .", "den lehrer hat den ball gefunden ."),
    ("emma hat einen alten ball gefunden .", "emma hat einen altes ball gefunden ."),
    ("emma hat ein altes boot gefunden .", "emma hat ein alte boot gefunden ."),
    ("emma hat das alte boot gefunden .", "emma hat die alte boot gefunden ."),
    ("emma hat den ball im park gefunden .", "emma hat den ball in dem park gefunden ."),
    ("emma hat den ball am see gefunden .", "emma hat den ball im see gefunden ."),
    ("emma hat den ball auf dem markt verkauft .", "emma hat den ball auf der markt verkauft ."),
    ("der ball wurde vom lehrer gefunden .", "der ball wurde von der lehrer gefunden ."),
    ("der ball wurde von einer frau gefunden .", "der ball wurde von einem frau gefunden ."),
    ("am sonntag hat emma den ball gefunden .", "am sonntag emma hat den ball gefunden ."),
    ("im park hat emma den ball gefunden .", "im park hat emma gefunden den ball ."),
    ("die frau hat den alten ball gefunden .", "die alte frau hat den ball gefunden ."),
    ("emma hat am sonntag den ball gefunden .", "emma hat den ball am sonntag gefunden ."),
    ("der ball wurde im park von emma gefunden .", "der ball hat im park von emma gefunden ."),
]


@pytest.mark.parametrize(("right", "wrong"), GERMAN)
def test_german_needs_gender_case_contraction_and_the_verbs_in_their_places(right, wrong):
    assert read(right, "german") and read(wrong, "german") is None


ENGLISH = [
    ("an old dog was chased by emma .", "a old dog was chased by emma ."),
    ("a dog chased the cat .", "an dog chased the cat ."),
    ("in the garden the girl carried the box .", "in the garden the girl carried the box in the park ."),
    ("the girl met emma at the lake .", "the girl met emma in the lake ."),
    ("the girl was opening the box .", "the girl was open the box ."),
    ("the box was broken by the girl .", "the box was broke by the girl ."),
    ("emma opened it .", "emma opened it"),
    ("did emma open the box ?", "did emma open the box ."),
    ("please open the box .", "please opened the box ."),
    ("the girl carried the box on monday .", "the old girl carried the box on monday ."),
]


@pytest.mark.parametrize(("right", "wrong"), ENGLISH)
def test_english_needs_its_articles_prepositions_forms_and_marks(right, wrong):
    assert read(right) and read(wrong) is None


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("the teacher carried the box .", "the box carried the teacher ."),
        ("the dog ate the cake .", "the dog cooked the cake ."),
        ("emma cooked the soup in the kitchen .", "emma cooked the soup in the library ."),
        ("emma ate the small egg .", "emma ate the heavy egg ."),
        ("emma met anna .", "emma met emma ."),
        ("the cat chased the dog .", "the cat chased the table ."),
    ],
)
def test_a_wrong_role_place_or_adjective_is_grammatical_and_cannot_be(right, wrong):
    assert sensible(read(right).scene) and not sensible(read(wrong).scene)


def test_a_scene_says_its_slots_whatever_its_form():
    said = Scene("teacher", "carry", "box", "garden", "monday", "red")
    active = "the teacher carried a red box in the garden on monday ."
    assert read(active) == Clause(said, "past", "", ("the", "a"))
    assert read("in the garden a red box was carried by the teacher on monday .") == Clause(
        said, "passive", "place", ("the", "a")
    )
    german_one = read("am montag wurde eine rote kiste im garten vom lehrer getragen .", "german")
    assert german_one == Clause(said, "passive", "day", ("the", "a"))
    assert read(active.replace(" .", ".")) == read(active), "a mark may stand against its word"


def test_scenes_are_sensible_of_their_part_and_reverses_stay_together():
    for i in range(2000):
        part = PARTS[i % 3]
        new = scene(generator("test of parts", i), part, AGENTS)
        assert sensible(new) and home(new.agent, new.verb, new.object) == part
        assert new.object not in ("", new.agent) and new.place in PLACES
    assert home("dog", "chase", "cat") == home("cat", "chase", "dog")


def test_parts_have_their_shares_of_what_can_happen():
    can = [
        home(agent, verb, object_)
        for agent in AGENTS
        for verb in VERBS
        for object_ in (*english.NOUNS, *NAMES)
        if sensible(Scene(agent, verb, object_))
    ]
    shares = {part: count / len(can) for part, count in Counter(can).items()}
    assert shares == pytest.approx({"train": 0.65, "validation": 0.15, "test": 0.2}, abs=0.02) and len(can) > 5000


def test_an_unknown_part_is_refused_with_the_nearest_one():
    with pytest.raises(ValueError, match="got 'tests'; did you mean 'test'?"):
        scene(generator(0), "tests")


def test_names_have_no_article():
    assert articles(Scene("emma", "find", "box"), "a", "a") == ("", "a")
    assert articles(Scene("dog", "find", "it"), "a", "a") == ("a", "")


def test_the_vocabulary_is_about_300_words():
    assert 250 < len(raw.vocabulary()) < 350


def test_raw_texts_and_the_mix_are_of_the_train_part_and_known_words():
    texts, pairs = raw.texts(3, 3000), raw.mix(3, 400)
    assert texts[:50] == raw.texts(3, 50) and pairs[:5] == raw.mix(3, 5) and texts[:50] != raw.texts(4, 50)
    words = raw.vocabulary()
    assert {word for text in texts for word in text.split()} <= words
    assert {word for pair in pairs for text in pair for word in text.split()} <= words
    kinds = Counter()
    for text in texts:
        clause = read(text) or read(text, "german")
        kinds["german" if read(text, "german") else "english" if clause else "record"] += 1
        if clause is None:
            assert totto.parse(text.split())
        elif clause.scene.agent in AGENTS and clause.scene.object:
            assert home(clause.scene.agent, clause.scene.verb, clause.scene.object) == "train"
    assert kinds["german"] > 900 and kinds["english"] > 1500 and kinds["record"] > 150
    for i, (source, target) in enumerate(pairs):
        told = source.removeprefix(raw.SUMMARIZE if i % 2 else raw.TRANSLATE)
        assert told != source
        found = [english.parse(words) for words in sentences(told)]
        assert all(home(each.scene.agent, each.scene.verb, each.scene.object) == "train" for each in found)
        if i % 2:  # the main fact alone, where the task has two
            assert len(found) == 7 and len(sentences(target)) == 1
        else:  # nothing passive, where the task has it
            assert all(each.voice == "past" for each in found) and read(target, "german")
