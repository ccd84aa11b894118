"""Files of the shape that TRL's trainers write, as a table that the ledger judges. TRL itself is not needed."""

import json
from pathlib import Path

import pandas as pd
import pytest

import workbook.runs.checks
from workbook.ledger import checks, submitted, trl
from workbook.ledger.claim import ClaimError

ROOT = Path(__file__).parents[1]
SCORES = {"zero_shot": 0.5, "ppo_kl_default": 0.8, "ppo_kl_0": 0.95, "nlpo_kl_default": 0.78, "nlpo_kl_0": 0.9}
WORDS = ["good", "film", "bad", "plot", "actor", "music", "scene", "story"]


def log_of(folder: Path, step: int, name: str, values: list[float], chat: bool = False) -> None:
    """completions_<step>.parquet, as GRPOTrainer with log_completions writes it."""
    texts = [" ".join(WORDS[(i + j) % 8] for j in range(6)) for i in range(len(values))]
    said = [[{"role": "assistant", "content": t}] for t in texts] if chat else texts
    (folder / "completions").mkdir(parents=True, exist_ok=True)
    columns = {"step": step, "prompt": "a", "completion": said, name: values, "advantage": 0.0}
    pd.DataFrame(columns).to_parquet(folder / f"completions/completions_{step:05d}.parquet")


def state_of(folder: Path, rewards: list[float], name: str = "reward") -> None:
    history = [{"step": i + 1, name: r, "kl": 0.1, "loss": 0.0} for i, r in enumerate(rewards)]
    (folder / "checkpoint-9").mkdir(parents=True, exist_ok=True)
    (folder / "checkpoint-10").mkdir(parents=True, exist_ok=True)
    (folder / "checkpoint-9/trainer_state.json").write_text(json.dumps({"log_history": []}))
    (folder / "checkpoint-10/trainer_state.json").write_text(json.dumps({"log_history": [*history, {"runtime": 1}]}))


@pytest.fixture
def runs(tmp_path):
    """Five conditions on six seeds: held-out responses as JSONL, perplexity of human text measured elsewhere."""
    rows = []
    for condition, mean in SCORES.items():
        for seed in range(1, 7):
            folder = tmp_path / condition / str(seed)
            state_of(folder, [0.1, 0.2, 0.3, 0.4])
            lines = [
                {"prompt": "p", "response": f"{WORDS[i]} {WORDS[i - 1]}", "mood": mean + 0.004 * seed} for i in range(8)
            ]
            (folder / "held_out.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            place = f"{condition}/{seed}"
            rows.append([condition, seed, place, f"{place}/held_out.jsonl", 2 + mean + 0.01 * (seed % 3) * mean])
    table = pd.DataFrame(rows, columns=["condition", "seed", "folder", "texts", "human_log_perplexity"])
    table.to_csv(tmp_path / "runs.csv", index=False)
    return tmp_path / "runs.csv"


def test_from_files_to_a_word(runs, tmp_path, capsys):
    assert trl.main([str(runs), "--out", str(tmp_path / "mine.csv")]) == 0
    assert "30 runs of 5 conditions" in capsys.readouterr().out
    table = pd.read_csv(tmp_path / "mine.csv")
    one = table[(table.condition == "ppo_kl_0") & (table.seed == 2)].iloc[0]
    assert (one.score, one.words, one.rollout_score) == (pytest.approx(0.958), 2, pytest.approx(0.3))
    params = workbook.runs.checks.load(ROOT / "params.yaml")
    known = checks.load(ROOT / "claims.yaml")
    rows = {r["id"]: r for r in submitted.judged(known, submitted.read(tmp_path / "mine.csv", params))}
    first = rows["P01"]["components"][0]
    assert first["effect"] == pytest.approx(0.15 / 0.45) and first["n"] == 6


def test_completion_logs_of_the_last_step_are_of_training_prompts(tmp_path):
    log_of(tmp_path / "run", 90, "mood", [0.0, 0.2], chat=True)
    log_of(tmp_path / "run", 100, "mood", [0.5, 0.7], chat=True)
    state_of(tmp_path / "run", [0.5, 0.6], "objective/scores")
    (tmp_path / "runs.csv").write_text("condition,seed,folder\ngrpo,1,run\n")
    table, notes = trl.converted(tmp_path / "runs.csv")
    assert notes == ["grpo, seed 1: responses to training prompts (completions_00100.parquet)"]
    assert (
        table.score[0] == pytest.approx(0.6) and table.words[0] == 6 and table.rollout_score[0] == pytest.approx(0.55)
    )


def test_no_log_no_training_score(tmp_path):
    assert trl.of_training(tmp_path) == {}


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("two rewards", "--score with one of ['mood', 'tone']"),
        ("no text", "expected rows with a column completion or response"),
        ("not finite", "mood of response 1"),
        ("no file", "expected a table"),
        ("no folder", "no column folder"),
        ("metric", "did you mean 'judge'"),
        ("nothing", "no responses"),
    ],
)
def test_one_clear_message(tmp_path, how, said):
    texts = {"response": ["a b", "c d"], "mood": [0.1, float("nan") if how == "not finite" else 0.2]}
    if how == "two rewards":
        texts["tone"] = [1.0, 2.0]
    if how == "no text":
        del texts["response"]
    if how != "no file":
        pd.DataFrame(texts).to_csv(tmp_path / "t.csv", index=False)
    row = {"condition": "grpo", "seed": 1, "folder": "run", "texts": "t.csv"}
    row = {k: v for k, v in row.items() if (how, k) not in {("no folder", "folder"), ("nothing", "texts")}}
    row |= {"juge": 1.0} if how == "metric" else {}
    pd.DataFrame([row]).to_csv(tmp_path / "runs.csv", index=False)
    with pytest.raises(ClaimError) as error:
        trl.converted(tmp_path / "runs.csv")
    assert said in str(error.value)


def test_of_two_rewards_one_is_named(tmp_path):
    pd.DataFrame({"completion": ["a", "b"], "mood": [0.0, 1.0], "tone": [5.0, 7.0]}).to_csv(tmp_path / "t.csv")
    assert trl.of_texts(tmp_path / "t.csv", "tone")["score"] == 6
