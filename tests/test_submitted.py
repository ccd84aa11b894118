"""Anybody's table, judged as ours are; a bad one gets one clear message."""

from pathlib import Path

import pandas as pd
import pytest

from workbook.ledger import __main__ as command
from workbook.ledger import checks, judge, submitted
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


def spoiled(ours: pd.DataFrame, how: str) -> pd.DataFrame:
    if how == "column":
        return ours.rename(columns={"score": "scor"})
    if how == "condition":
        return ours.replace("ppo_kl_0", "ppo_kl_O")
    if how == "seed":
        return ours[~((ours.condition == "ppo_kl_0") & (ours.seed == 3))]
    if how == "twice":
        return pd.concat([ours, ours[:1]])
    if how == "number":
        return ours.assign(score=ours.score.where(ours.seed != 2, float("inf")))
    if how == "whole":
        return ours.assign(seed=ours.seed + 0.5)
    if how == "few":
        return ours[ours.condition == "zero_shot"]
    if how == "semicolons":
        return ours.astype(str).agg(";".join, axis=1).to_frame(";".join(ours.columns))
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
        ("semicolons", "one column, 'condition;seed;"),
        ("gone", "no such file; expected a CSV file"),
        ("few", "decides no claim"),
        ("keys", "no column 'condition'"),
    ],
)
def test_a_bad_table_is_refused(params, ours, tmp_path, how, said):
    if how != "gone":
        spoiled(ours, how).to_csv(tmp_path / "mine.csv", index=False)
    with pytest.raises(ClaimError) as error:
        submitted.judged(KNOWN, submitted.read(tmp_path / "mine.csv", params))
    assert said in str(error.value) and "mine.csv" in str(error.value) or how == "few"
