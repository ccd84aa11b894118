"""Files of the shape that TRL's trainers write, as a table that the ledger judges. TRL itself is not needed."""

import json
from pathlib import Path

import pandas as pd
import pytest

import workbook.runs.checks
from bench import trl_runs
from rlnlp.settings import ConfigError
from workbook.ledger import checks, submitted, trl
from workbook.ledger.claim import ClaimError, conditions_of
from workbook.results.tables import minus, number, signed
from workbook.runs import conditions
from workbook.statistics.paired import compare

ROOT = Path(__file__).parents[1]
SCORES = {"zero_shot": 0.5, "ppo_kl_default": 0.8, "ppo_kl_0": 0.95, "nlpo_kl_default": 0.78, "nlpo_kl_0": 0.9}
SAID = ["good", "film", "bad", "plot", "actor", "music", "scene", "story"]


def log_of(folder: Path, step: int, name: str, values: list[float], chat: bool = False) -> None:
    """completions_<step>.parquet, as GRPOTrainer with log_completions writes it."""
    texts = [" ".join(SAID[(i + j) % 8] for j in range(6)) for i in range(len(values))]
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
                {"prompt": "p", "response": f"{SAID[i]} {SAID[i - 1]}", "mood": mean + 0.004 * seed} for i in range(8)
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


def test_the_log_of_a_real_run(tmp_path):
    """One entry of each of TRL 1.12.0's logs, as its trainers wrote them."""
    ppo = {"episode": 64, "epoch": 0.032, "eps": 51, "loss/policy_avg": -0.0096, "lr": 0.0008, "objective/kl": 3.7e-08}
    ppo |= {"objective/non_score_reward": -7.5e-09, "objective/rlhf_reward": 0.5254, "objective/scores": 0.5254}
    grpo = {"entropy": 1.846, "epoch": 0.0625, "kl": 0.0, "reward": 0.5885, "reward_std": 0.1947, "step": 1}
    grpo |= {"rewards/mood/mean": 0.3646, "rewards/mood/std": 0.099, "rewards/tone/mean": 0.2240, "step_time": 0.14}
    for name, entry in {"ppo": ppo, "grpo": grpo}.items():
        (tmp_path / name / "checkpoint-25").mkdir(parents=True)
        (tmp_path / name / "checkpoint-25/trainer_state.json").write_text(json.dumps({"log_history": [entry]}))
    assert trl.of_training(tmp_path / "ppo", "score") == {"rollout_score": 0.5254}
    assert trl.of_training(tmp_path / "grpo", "tone") == {"rollout_score": 0.2240}  # not `reward`, which adds the two
    assert trl.of_training(tmp_path / "grpo") == {"rollout_score": 0.5885}


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet"])
def test_responses_stay_as_they_were_written(tmp_path, name):
    """A policy that may end when it likes leaves some of them empty; others are numbers, or read like nothing."""
    table = pd.DataFrame({"response": ["", "NA", "007", "2020-01-01"], "mood": [0.0, 1.0, 0.5, 0.5]})
    write = {"t.csv": table.to_csv, "t.parquet": table.to_parquet}.get(name)
    write(tmp_path / name) if write else table.to_json(tmp_path / name, orient="records", lines=True)
    found, score = trl.of_texts(tmp_path / name, "mood")
    assert score == "mood" and found["score"] == 0.5 and found["words"] == 0.75 and found["unique_1"] == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"log_history": [', "expected the JSON that a trainer writes, found"),
        ("[1, 2]", "expected an object with a list of objects `log_history`, found list"),
        ('{"log_history": {"reward": 1}}', "`log_history`, found other entries in it"),
        ('{"log_history": [3]}', "`log_history`, found other entries in it"),
        ('{"log_history": [{"reward": "high"}]}', "expected numbers, found 'high'"),
        ('{"log_history": [{"reward": null}]}', "expected numbers, found None"),
    ],
)
def test_a_log_that_is_none_is_named(tmp_path, text, said):
    (tmp_path / "trainer_state.json").write_text(text)
    with pytest.raises(ClaimError) as error:
        trl.of_training(tmp_path)
    assert said in str(error.value) and "trainer_state.json: " in str(error.value)


def test_a_list_without_runs_and_a_folder_that_is_not_there(runs, tmp_path, capsys):
    (tmp_path / "none.csv").write_text("condition,seed,folder\n")
    assert trl.main([str(tmp_path / "none.csv"), "--out", str(tmp_path / "mine.csv")]) == 1
    assert "none.csv: no rows; expected one for each run" in capsys.readouterr().err
    assert trl.main([str(runs), "--out", str(tmp_path / "nowhere/mine.csv")]) == 1
    assert "nowhere/mine.csv: expected a place for a CSV file, in a folder that is there" in capsys.readouterr().err


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
    assert trl.of_texts(tmp_path / "t.csv", "tone")[0]["score"] == 6


# ------------------------------------------------------------------- the committed table: real runs of TRL 1.12.0
WORDS = {"O01": "too small", "K01": "holds", "K02": "too small", "K03": "opposite"}
HELD = {"score": "score", "kl_deployed": "KL, nats a token", "human_log_perplexity": "log perplexity of human text"}


@pytest.fixture(scope="module")
def theirs():
    return pd.read_csv(ROOT / "reports/bench/trl.csv").set_index(["condition", "seed"])


@pytest.fixture(scope="module")
def ours():
    """The registered design's runs of the same conditions on the same draws."""
    table = pd.read_csv(ROOT / "reports/settle/draws.csv.xz", low_memory=False)
    return table[(table.split == "test") & (table.decoding == "plain")].set_index(["condition", "seed"])


@pytest.fixture(scope="module")
def page():
    return (ROOT / "reports/bench/trl.md").read_text(encoding="utf-8")


def test_the_untrained_model_is_measured_as_ours_is(theirs, ours):
    """Same draws, prompts, judges, decoding: what differs below is the training."""
    same = ["score", "judge", "judge_2", "human_log_perplexity", "generation_log_perplexity", "msttr"]
    found, known = theirs.loc["zero_shot"], ours.loc["zero_shot"].loc[101:108]
    assert [*found.index] == [*known.index] == [*range(101, 109)]
    for name in same:
        assert found[name].to_numpy() == pytest.approx(known[name].to_numpy(), rel=1e-5), name


def test_the_page_has_each_difference_from_ours(theirs, ours, page):
    trained = [name for name in theirs.index.get_level_values(0).unique() if name != "zero_shot"]
    assert len(trained) == 9 and page.count("| `") == len(trained) * len(HELD)
    apart = []
    for name in trained:
        assert [*theirs.loc[name].index] == [*range(101, 109)]
        for metric, label in HELD.items():
            mine, other = theirs.loc[name][metric], ours.loc[name][metric].loc[101:108]
            found = compare(mine.to_numpy(), other.to_numpy())
            difference = signed(found.difference, found.low, found.high)
            apart += [(name, metric)] if found.low > 0 or found.high < 0 else []
            assert f"| `{name}` | {label} | {number(mine.mean())} | {number(other.mean())} | {difference} |" in page
    assert apart == [("ppo_kl_0", "human_log_perplexity")] and "Of 27 differences from ours one has" in page


def test_the_page_has_each_word(page):
    params = workbook.runs.checks.load(ROOT / "profiles/settle/params.yaml")
    known = checks.load(ROOT / "claims.yaml")
    judged = submitted.judged(known, submitted.read(ROOT / "reports/bench/trl.csv", params))
    words = {row["id"]: row["word"] for row in judged if row["components"]}
    assert words == WORDS
    others = [row for row in judged if row["id"][0] in "PCOK" and known[row["id"]].tests and row["id"] not in words]
    of_nlpo = [row for row in others if any("nlpo" in c for c in conditions_of(known[row["id"]], beside=False))]
    said = f"Of the {len(others)} other claims on film reviews and on the generated tasks, {len(of_nlpo)} need runs of"
    assert said in " ".join(page.split())
    for row in judged:
        line = next((line for line in page.splitlines() if line.startswith(f"| {row['id']}: ")), "")
        assert line.endswith(f"| {row['word']} |") if row["components"] else not line
        for part in (c for c in row["components"] if c.get("effect") is not None and c["role"] == "decides"):
            assert part["n"] == 8 and minus(f"{part['effect']:+.2f}") in line


@pytest.mark.parametrize(
    ("name", "said"),
    [("ppo_top_p", "top_p 0.9 (expected (1,))"), ("ppo_target_low", "kl_target"), ("nlpo_kl_default", "expected PPO")],
)
def test_what_PPOTrainer_does_not_have_is_refused(name, said):
    params = workbook.runs.checks.load(ROOT / "profiles/settle/params.yaml")
    with pytest.raises(ConfigError) as error:
        trl_runs.checked(conditions.condition(params, name))
    assert name in str(error.value) and said in str(error.value)


def test_finished_runs_are_listed_for_the_converter(tmp_path):
    folder = tmp_path / "ppo_kl_0/seed7"
    state_of(folder / "trainer", [0.2, 0.4, 0.6], "objective/scores")
    (folder / "held_out.jsonl").write_text('{"prompt": "a", "response": "b b", "score": 0.5}\n')
    row = {"score": 0.5, "distinct_1": 0.5, "judge": 0.4, "kl_deployed": 1.5, "judge_2": None}
    (folder / "run.json").write_text(json.dumps({"condition": "ppo_kl_0", "seed": 7, "row": row}))
    trl_runs.listed(tmp_path).to_csv(tmp_path / "runs.csv", index=False)
    table, notes = trl.converted(tmp_path / "runs.csv", "score")
    found = table.iloc[0]
    assert (found.condition, found.seed, found.score, found.judge, notes) == ("ppo_kl_0", 7, 0.5, 0.4, [])
    assert found.rollout_score == pytest.approx(0.4) and found.kl_deployed == 1.5 and found.distinct_1 == 0.5
