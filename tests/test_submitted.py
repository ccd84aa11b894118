"""Anybody's table, judged as ours are; a bad one gets one clear message."""

import json
from pathlib import Path

import pandas as pd
import pytest

from workbook.ledger import __main__ as command
from workbook.ledger import checks, judge, page, submitted
from workbook.ledger.claim import ClaimError
from workbook.results import results as tables
from workbook.results.files import per_seed
from workbook.runs.checks import load

ROOT = Path(__file__).parents[1]
KNOWN = checks.load(ROOT / "claims.yaml")
FEW = ["zero_shot", "ppo_kl_0", "ppo_kl_default", "nlpo_kl_0", "nlpo_kl_default"]


@pytest.fixture(scope="module")
def params():
    return load(ROOT / "profiles/full/params.yaml")


@pytest.fixture(scope="module")
def ours():
    """What somebody else would have of these conditions: two metrics on test prompts."""
    table = pd.read_csv(per_seed(ROOT / "reports/full"), low_memory=False)
    rows = table[table.condition.isin(FEW) & (table.split == "test") & (table.decoding == "plain")]
    kept = rows[["condition", "seed", "score", "human_log_perplexity"]].reset_index(drop=True)
    return kept.assign(seed=kept.seed - 100)  # seeds as they count them


def test_the_same_numbers_get_the_same_words(params, ours, tmp_path):
    ours.to_csv(tmp_path / "mine.csv", index=False)
    rows = {r["id"]: r for r in submitted.judged(KNOWN, submitted.read(tmp_path / "mine.csv", params))}
    results = tables.load(params, FEW)
    direct = judge.judge(KNOWN["P01"], results)
    assert rows["P01"]["word"] == direct.word and rows["P01"]["profile"] == "mine"
    said = {c["name"]: c["effect"] for c in rows["P01"]["components"] if c["role"] == "decides"}
    assert said == pytest.approx({c.name: c.effect for c in direct.deciding})
    tested = {name for name, row in rows.items() if row["components"]}
    assert "P01" in tested and "P02" not in tested and "needs" in rows["P02"]["sentence"]


def test_from_the_command_line(ours, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    ours.to_csv(tmp_path / "mine.csv", index=False)
    assert command.main(["submit", str(tmp_path / "mine.csv"), "--out", str(tmp_path / "out")]) == 0
    assert "# Claims, profile mine" in capsys.readouterr().out
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["claims.csv", "claims.json", "claims.md"]
    assert command.main(["submit", str(tmp_path / "no.csv")]) == 1
    assert "no.csv: no such file; expected a CSV file" in capsys.readouterr().err


def test_a_condition_that_another_profile_has_comes_with_that_profile(ours, tmp_path):
    """The nucleus of 0.1 is in `full` alone; a name that nobody has comes without."""
    mini = load(ROOT / "params.yaml")
    theirs = ours.replace("nlpo_kl_0", "nlpo_p_010").replace("nlpo_kl_default", "nobody")
    theirs.to_csv(tmp_path / "mine.csv", index=False)
    with pytest.raises(ClaimError) as error:
        submitted.read(tmp_path / "mine.csv", mini)
    one, two = str(error.value).splitlines()[1:]
    assert "no condition is called 'nlpo_p_010'" in one and one.endswith("profiles/full/params.yaml has it)")
    assert "no condition is called 'nobody'" in two and "--params" not in two


def test_a_claim_that_the_table_cannot_decide_says_what_it_lacks(params, ours, tmp_path):
    """Nobody who submits a table has a list `claims`: P03 lacks its metrics; P05's spread takes repetitions."""
    more = ours[ours.condition == "ppo_kl_default"]
    names = ("ppo_kl_large", "nlpo_kl_large")
    ours = pd.concat([ours, *(more.assign(condition=c, score=more.score + 0.01) for c in names)])
    ours.to_csv(tmp_path / "mine.csv", index=False)
    rows = {r["id"]: r for r in submitted.judged(KNOWN, submitted.read(tmp_path / "mine.csv", params))}
    assert "needs what its tests read (" in rows["P03"]["sentence"] and "no distinct_2" in rows["P03"]["sentence"]
    assert rows["P05"]["lacks"][0].startswith("2 or more repetitions") and "`claims`" not in json.dumps(
        [*rows.values()]
    )


def spoiled(ours: pd.DataFrame, how: str) -> pd.DataFrame:
    if how == "column":
        return ours.rename(columns={"score": "scor"})
    if how == "condition":
        return ours.replace("ppo_kl_0", "ppo_kl_O")
    if how == "seed":
        return ours[~((ours.condition == "ppo_kl_0") & (ours.seed == 3))]
    if how == "twice":
        return pd.concat([ours, ours[:1]])
    if how == "copied seed":
        copy = ours[ours.seed == 2].assign(seed=9)
        return pd.concat([ours, copy])
    if how == "copied run":
        first = ours[(ours.condition == "zero_shot") & (ours.seed == 1)].iloc[0]
        return ours.assign(
            **{m: ours[m].where(ours.condition != "zero_shot", first[m]) for m in ("score", "human_log_perplexity")}
        )
    if how == "no rows":
        return ours[:0]
    if how == "no name":
        return ours.assign(condition=ours.condition.where(ours.index != 3))
    if how == "no score":
        return ours.assign(score=ours.score.where((ours.condition != "ppo_kl_0") | (ours.seed != 3)))
    if how == "number":
        return ours.assign(score=ours.score.where(ours.seed != 2, float("inf")))
    if how == "whole":
        return ours.assign(seed=ours.seed + 0.5)
    if how == "few":
        return ours[ours.condition == "zero_shot"]
    if how == "semicolons":
        return ours.astype(str).agg(";".join, axis=1).to_frame(";".join(ours.columns))
    if how == "commas":
        return ours
    return ours.drop(columns="condition")


def test_every_split_and_decoding_has_every_seed(params, ours, tmp_path):
    """A row at half the budget does not stand for one that is missing at the end."""
    half = ours.assign(split="half", decoding="plain")
    lost = ours.assign(split="test", decoding="plain").query("not (condition == 'ppo_kl_0' and seed == 3)")
    greedy = lost.query("condition == 'zero_shot' and seed != 2").assign(decoding="greedy")
    for table, said in (
        ([lost, half], "ppo_kl_0 (test, plain): no row of seed 3"),
        ([ours.assign(split="test", decoding="plain"), greedy], "zero_shot (test, greedy): no row of seed 2"),
    ):
        pd.concat(table).to_csv(tmp_path / "mine.csv", index=False)
        with pytest.raises(ClaimError) as error:
            submitted.read(tmp_path / "mine.csv", params)
        assert said in str(error.value)
    pd.concat([ours.assign(split="test", decoding="plain"), half]).to_csv(tmp_path / "mine.csv", index=False)
    assert submitted.read(tmp_path / "mine.csv", params).params.seeds == (1, 2, 3, 4, 5, 6, 7, 8)


@pytest.mark.parametrize(
    "how, said",
    [
        ("column", "no column is called 'scor'; did you mean 'score'?"),
        ("condition", "no condition is called 'ppo_kl_O'; did you mean 'ppo_kl_0'?"),
        ("seed", "ppo_kl_0 (test, plain): no row of seed 3"),
        ("twice", "two rows of zero_shot, seed 1"),
        ("number", "score: expected finite numbers, found inf in row"),
        ("whole", "seed: expected whole numbers, found 1.5 in row 2"),
        ("commas", "rows have more cells than the header has columns"),
        ("semicolons", "one column, 'condition;seed;"),
        ("gone", "no such file; expected a CSV file"),
        ("few", "mine: decides no claim"),
        ("copied seed", "every condition: the numbers of seeds 2 and 9 are the same; expected runs and an evaluation"),
        ("copied run", "zero_shot (test, plain): the numbers of seeds 1, 2, 3, 4, 5, 6, 7 and 8 are the same"),
        ("no rows", "no rows; expected one for each condition and seed"),
        ("no name", "condition: empty in row 5"),
        ("no score", "(ppo_kl_0, seed 3); expected a number for every seed of a condition, or for none"),
        ("keys", "no column 'condition'"),
    ],
)
def test_a_bad_table_is_refused(params, ours, tmp_path, how, said):
    if how != "gone":
        spoiled(ours, how).to_csv(tmp_path / "mine.csv", index=False)
    if how == "commas":
        (tmp_path / "mine.csv").write_text(ours.to_csv(index=False, lineterminator=",\n").replace(",\n", "\n", 1))
    with pytest.raises(ClaimError) as error:
        submitted.judged(KNOWN, submitted.read(tmp_path / "mine.csv", params))
    message = str(error.value)
    assert said in message and ("mine.csv:" in message) == (how != "few")
    assert "nan" not in message and "run the stage" not in message and message.count("the same") <= 1


def test_one_number_may_be_met_twice_and_a_seed_that_diverged_has_none(params, ours, tmp_path):
    """Two seeds at the best score there is are no copies; a seed that diverged is said without advice about stages."""
    best = ours.drop(columns="human_log_perplexity")
    best = best.assign(score=best.score.where(best.condition != "ppo_kl_0", 1.0))
    best.to_csv(tmp_path / "mine.csv", index=False)
    assert len(submitted.read(tmp_path / "mine.csv", params).params.seeds) == 8
    lost = (ours.condition == "ppo_kl_0") & (ours.seed == 3)
    ours.assign(score=ours.score.where(~lost), diverged=lost * 1.0).to_csv(tmp_path / "mine.csv", index=False)
    rows = submitted.judged(KNOWN, submitted.read(tmp_path / "mine.csv", params))
    assert "missing for seed 3" in json.dumps(rows) and "run the stage" not in json.dumps(rows)


def test_the_page_leads_nowhere_that_is_not_there(params, ours, tmp_path):
    """The rule was not written after somebody else's results, and no page of ours stands beside theirs."""
    ours.to_csv(tmp_path / "mine.csv", index=False)
    text = page.markdown(submitted.judged(KNOWN, submitted.read(tmp_path / "mine.csv", params)))
    rule = text[text.index("## The rule") :]
    assert "](" not in rule and "had been seen" not in rule and "judges this project's own runs: hash" in rule
