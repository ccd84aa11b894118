"""The study of P29 from end to end, tiny: policies write, raters compare, a reward is learned, RL, raters compare
again."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest
import torch

from rlnlp.learners import ppo
from workbook.draws import small
from workbook.draws.tokenizer import encode, train_tokenizer
from workbook.lab import annotate
from workbook.study import __main__ as study_main
from workbook.study import collected, pictures, preference_model, protocol, ratings, results
from workbook.study.ratings import Choice, Pair, PreferenceError

pytestmark = pytest.mark.xdist_group("study")  # what it sets up takes seconds: once, not once a worker

TINY = {
    "reviews": 60,
    "steps": 3,
    "pairs": 24,
    "comparisons": 10,
    "updates": 1,
    "episodes": 8,
    "epochs": 1,
    "simulated": 5,
}
ROUNDS = (
    ("first", {protocol.BASE, protocol.TASK}),
    ("second", {protocol.TASK, protocol.BOTH}),
    ("control", {protocol.TWICE, protocol.BOTH}),
)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The folder of one whole study with simulated raters."""
    folder = tmp_path_factory.mktemp("study") / "seed3"
    protocol.run(protocol.Config(**TINY), 3, folder)
    return folder


@pytest.fixture(scope="module")
def row(done):
    return results.per_seed([done], mixed=False)


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix in (".json", ".jsonl")}


def start(done):
    return protocol.draw(protocol.Config(**TINY), 3, done / "models")


def test_the_whole_study_runs_unattended_and_leaves_its_items_and_ratings(done, row):
    for name, systems in ROUNDS:
        pairs = ratings.load(done / f"{name}.jsonl", Pair)
        choices = ratings.load(done / f"{name}_simulated.jsonl", Choice)
        assert {pair.first_system for pair in pairs} | {pair.second_system for pair in pairs} == systems
        assert len(ratings.checked(choices, pairs)) == 3 * len(pairs) and all(
            c.rater.startswith("simulated-") for c in choices
        )
        assert 0 < sum(pair.first_system == min(systems) for pair in pairs) < len(pairs), "sides are drawn"
    row = row.iloc[0]
    assert row["raters"] == "simulated" and row["judgements"] == 3 * row["pairs"] and -1 <= row["alpha"] <= 1
    for other in (protocol.TASK, protocol.TWICE):
        wins, losses, ties = (row[f"over {other}: {name}"] for name in ("wins", "losses", "ties"))
        share, low, high = (row[f"over {other}: {name}"] for name in ("share", "low", "high"))
        assert share == pytest.approx((wins + ties / 2) / (wins + losses + ties)) and low <= share <= high
    assert abs(row[f"{protocol.BASE}: kl"]) < 1e-6 < row[f"{protocol.BOTH}: kl"]
    assert row["held out, the shorter one: accuracy"] == 1 - row["held out, the longer one: accuracy"]
    assert (
        0 <= row["held out, learned: accuracy"] <= 1
        and row["learned from"] + row["held out, learned: n"] <= row["pairs"]
    )


def test_no_text_ends_before_its_shortest_length_in_any_arm(done):
    tokenizer = train_tokenizer()
    for texts in json.loads((done / "texts.json").read_text())["texts"].values():
        assert min(len(ids) for ids in encode(tokenizer, texts)) >= protocol.Config(**TINY).min_new_tokens
    with pytest.raises(ValueError, match="min_new_tokens"):
        protocol.Config(min_new_tokens=small.RESPONSE_TOKENS + 1)
    with pytest.raises(ValueError, match="each 3: expected at most simulated"):
        protocol.Config(simulated=2)


def test_wins_are_counted_for_the_arm_with_preferences_whatever_its_name_sorts_to(done, row):
    pairs = {pair.id: pair for pair in ratings.load(done / "control.jsonl", Pair)}
    choices = ratings.load(done / "control_simulated.jsonl", Choice)
    won = sum(getattr(pairs[c.item], f"{c.chosen}_system", "") == protocol.BOTH for c in choices)
    assert won == row[f"over {protocol.TWICE}: wins"].iloc[0]
    two = [Pair("1", "", "x", "y", "a", "b"), Pair("2", "", "x", "y", "b", "a")]
    table = ratings.table([Choice("1", "ann", "first"), Choice("2", "ann", "first"), Choice("2", "bob", "tie")], two)
    assert results.towards(table, "a")["value"].tolist() == [1, -1, 0] and results.towards(table, "b")[
        "value"
    ].tolist() == [-1, 1, 0]
    assert results.towards(table, "a").attrs["systems"] == ["b", "a"]


def test_the_arms_differ_in_their_reward_alone(done):
    begun, texts = start(done), (["the plot is"] * 2, ["superb .", "dull ."])
    learned = preference_model.load(done / "models" / "preference")
    arms, task, preferred = (
        protocol.arms(begun, learned, protocol.Config()),
        begun.reward(*texts),
        preference_model.reward(learned)(*texts),
    )
    torch.testing.assert_close(arms[protocol.TASK](*texts), task)
    torch.testing.assert_close(arms[protocol.TWICE](*texts), 2 * task)
    torch.testing.assert_close(arms[protocol.BOTH](*texts)[0], task + preferred)
    assert set(protocol.arms(begun, learned, protocol.Config(control=False))) == {protocol.TASK, protocol.BOTH}


def test_a_seed_is_a_whole_draw_and_its_prompts_are_new(done, tmp_path):
    here, other = start(done), protocol.draw(protocol.Config(**TINY), 4, tmp_path)
    assert here.texts != other.texts and here.prompts.texts != other.prompts.texts
    weights = zip(here.policy.parameters(), other.policy.parameters())
    assert any(not torch.equal(a, b) for a, b in weights)
    assert not torch.equal(here.reward([""], ["superb ."]), other.reward([""], ["superb ."]))
    prompts = [
        set(here.prompts.texts),
        *(set(protocol.new_prompts(here, name, 100, 3).texts) for name in ("first", "second")),
    ]
    openings = {" ".join(text.split()[: small.PROMPT_WORDS]) for text in here.texts}
    for i, one in enumerate(prompts):
        assert len(one & openings) <= 2 and all(len(one & two) <= 2 for two in prompts[:i]), (
            "chance alone repeats ten words"
        )


def test_what_is_there_is_not_made_again_and_gives_the_same_numbers(done, tmp_path, monkeypatch):
    """Stopped anywhere and called again: the same files, digit for digit."""
    fresh = tmp_path / "again"
    calls, train = [], ppo.train

    def dies(state, *args):
        calls.append(state)
        if len(calls) == 2:  # the first arm is done, the second begins
            raise KeyboardInterrupt
        return train(state, *args)

    monkeypatch.setattr(ppo, "train", dies)
    with pytest.raises(KeyboardInterrupt):
        protocol.run(protocol.Config(**TINY), 3, fresh)
    assert (fresh / "first.jsonl").exists() and not (fresh / "second.jsonl").exists()
    protocol.run(protocol.Config(**TINY), 3, fresh)
    assert len(calls) == 4, "three arms, one of them begun twice"
    assert contents(fresh) == contents(done)
    monkeypatch.setattr(ppo, "train", lambda *a: pytest.fail("trained again"))
    (fresh / "measured.json").unlink()
    protocol.run(protocol.Config(**TINY), 3, fresh)
    assert contents(fresh) == contents(done)
    with pytest.raises(PreferenceError, match="holds a study of other settings"):
        protocol.run(protocol.Config(**TINY | {"pairs": 25}), 3, fresh)


def made_up(shares, other=(0.5, 0.5, 0.5, 0.5, 0.5), **columns):
    """Rows of finished seeds with these shares over the two others."""
    base = {"raters": "simulated", "judgements": 90, "alpha": 0.3, "learned from": 80}
    base |= {f"held out, {r}: accuracy": 0.6 for r in results.READERS}
    rows = []
    for seed, pair in enumerate(zip(shares, other)):
        facts = {"wins": 10, "losses": 9, "ties": 1, "low": 0.2, "high": 0.9, "p_naive": 0.01, "p": 0.2, "p_mixed": 0.3}
        rows.append(
            {"seed": seed, **base}
            | {
                f"over {o}: {k}": v
                for o, share in zip(results.OTHERS, pair)
                for k, v in {**facts, "share": share + seed / 1000}.items()
            }
        )
    return pd.DataFrame(rows).assign(**columns)


@pytest.mark.parametrize(
    ("shares", "other", "words", "meaning"),
    [
        ([0.7, 0.72, 0.69, 0.71, 0.7], [0.6, 0.62, 0.61, 0.6, 0.6], ("holds", "holds"), "beats both"),
        ([0.7, 0.72, 0.69, 0.71, 0.7], [0.5, 0.45, 0.55, 0.5, 0.5], ("holds", "open, leans for"), "a larger reward"),
        ([0.4, 0.6, 0.5, 0.45, 0.55], [0.3, 0.31, 0.29, 0.3, 0.3], ("open, leans for", "opposite"), "is not shown"),
    ],
)
def test_the_answer_is_computed_from_the_seeds_and_names_simulated_raters(shares, other, words, meaning):
    rows = made_up(shares, other)
    text, facts = results.verdict(rows)
    assert tuple(v["word"] for v in facts["verdicts"].values()) == words and meaning in text
    assert facts["verdicts"][protocol.TASK]["difference"] == pytest.approx(sum(shares) / 5 + 0.002 - 0.5)
    assert "All raters here are simulated" in text and f"{sum(shares) / 5 + 0.002:.3f}" in text and "5 seeds" in text
    people = results.verdict(rows.assign(raters="people"))[0]
    assert "simulated" not in people
    alone = results.rejected(rows)
    ahead = sum(share + seed / 1000 > 0.5 for seed, share in enumerate(shares))
    assert (
        f"{protocol.TASK}*, {ahead} for it and {5 - ahead} against it by the naive p; 0 for it and 0 against it by "
        f"the cl" in alone
    )


def test_numbers_are_summarised_over_seeds_and_the_figures_say_simulated(done, row):
    two = pd.concat([row, row.assign(seed=4, **{"alpha": row["alpha"] + 0.1})])
    rows = results.summary(two)
    assert rows.loc["alpha", "mean"] == pytest.approx(row["alpha"].iloc[0] + 0.05) and rows.loc["alpha", "seeds"] == 2
    assert "over task: share" in rows.index and not {"over task: p", "over task: p_naive", "over task: low"} & set(
        rows.index
    )
    assert rows.loc["alpha", "low"] < rows.loc["alpha", "mean"] < rows.loc["alpha", "high"]
    figure = pictures.shares(two)
    texts = [axis.get_xlabel() for axis in figure.axes]
    assert len(texts) == 2 and all("simulated raters" in text for text in texts) and "simulated" in figure.get_label()
    assert protocol.BASE in pictures.what_is_written(two).get_label()
    assert list(results.shares_table(two)["compared with"]) == [protocol.TASK] * 2 + [protocol.TWICE] * 2


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_with_people_it_waits_for_their_ratings_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(annotate, "TOO_SOON_S", 0.0)  # a test types faster than people
    config = protocol.Config(**TINY | {"pairs": 12, "each": 2, "control": False})
    for name in ("first", "second"):
        with pytest.raises(collected.Waiting, match=rf"ratings of .*{name}.jsonl are missing") as told:
            protocol.run(config, 0, tmp_path, raters="people")
        assert "annotate.pairs" in str(told.value)
        items = ratings.load(tmp_path / f"{name}.jsonl", Pair)
        for rater, keys in (("ann", "121"), ("bob", "120")):
            widget = annotate.pairs(items, tmp_path / f"{name}_{rater}.jsonl", rater)
            for _ in items:
                widget.press(keys[widget.place % 3])
            assert widget.done
    protocol.run(config, 0, tmp_path, raters="people")
    rows = results.per_seed([tmp_path], mixed=False)
    assert (
        rows["raters"].tolist() == ["people"]
        and f"over {protocol.TASK}: share" in rows
        and f"over {protocol.TWICE}: share" not in rows
    )
    assert not list(tmp_path.glob("*simulated*")) and "simulated" not in pictures.shares(rows).get_label()
    assert "simulated" not in results.verdict(rows)[0] and "Without the control" in results.verdict(rows)[0]


def test_ratings_by_simulated_raters_do_not_pass_for_peoples(done, tmp_path):
    for name in ("first.jsonl", "first_simulated.jsonl"):
        shutil.copy(done / name, tmp_path / name.replace("_simulated", "_ann"))
    with pytest.raises(PreferenceError, match="expected ratings by people, found some by simulated-1"):
        collected.rated(tmp_path, "first", protocol.Config(**TINY), 3, "people")


@pytest.mark.slow
def test_the_command_line_writes_a_summary_and_names_a_wrong_setting(tmp_path, capsys):
    options = [word for name, value in TINY.items() for word in (f"--{name}", str(value))]
    assert study_main.main([str(tmp_path), *options, "--control", "false"]) == 0
    assert "simulated raters" in capsys.readouterr().out and (tmp_path / "shares.png").exists()
    assert "p_naive" in (tmp_path / "per_seed.csv").read_text()
    assert json.loads((tmp_path / "seed0/study.json").read_text())["config"]["control"] is False
    assert study_main.main([str(tmp_path / "x"), "--pairs", "2"]) == 1 and "pairs" in capsys.readouterr().err
    assert study_main.main([str(tmp_path / "y"), *options, "--control", "false", "--raters", "people"]) == 0
    assert "annotate.pairs" in capsys.readouterr().out
