"""The widget that compares finished runs, without a browser: runs are chosen in Python, what it shows is read."""

from __future__ import annotations

from pathlib import Path

from workbook.lab import browse, finished
from workbook.store import tables

from .made_up import write_run
from .shown import alts, text

ROOT = Path(__file__).resolve().parent.parent


def chosen(at) -> list[str]:
    return [name for name, box in at.boxes.items() if box.value]


def choose(at, *names: str) -> None:
    for name, box in at.boxes.items():
        box.value = name in names


def test_where_nothing_was_run_it_says_what_to_type(tmp_path):
    view = browse.runs(tmp_path / "runs", tmp_path / "reports")
    for page in (view.controls.shown.value, view._repr_mimebundle_()["text/html"]):
        assert "No run is finished yet" in page and "make reproduce" in page and str(tmp_path / "runs") in page
    write_run(tmp_path / "runs", "ppo_a", 0.2)
    view.controls.again.click()
    assert chosen(view.controls) == ["ppo_a"] and "ppo_a objective/score" in alts(view.controls.shown.value)[0]


def test_finished_runs_are_compared(tmp_path):
    write_run(tmp_path, "ppo_a", 0.2)
    write_run(tmp_path, "ppo_b", 0.3)
    write_run(tmp_path, "zero_shot", 0.1, updates=0)
    write_run(tmp_path, "ppo_c.part", 0.9)  # one that is being written
    at = browse.runs(tmp_path, tmp_path / "none").controls
    assert [box.description for box in at.column.children] == ["ppo_a", "ppo_b", "zero_shot"] == chosen(at)
    choose(at, "ppo_a", "ppo_b")
    at.name.value = "shot"  # and what is chosen stays in the list
    assert [box.description for box in at.column.children] == ["ppo_a", "ppo_b", "zero_shot"]
    at.name.value = "ppo"
    assert [box.description for box in at.column.children] == ["ppo_a", "ppo_b"]
    alt = alts(at.shown.value)[0]
    assert (
        "n = 3 seeds" in alt
        and "ppo_b objective/score 0.3 at first, 0.9 at last" in alt
        and "objective/kl 0.1 at first" in alt
    )
    at.metric.value = "length"
    assert "ppo_a length 5 at first" in alts(at.shown.value)[0] and at.gain.layout.display == "none"

    at.view.value = "frontier"
    assert (
        "score against kl_deployed" in alts(at.shown.value)[0]
        and "ppo_a score 0.220 at kl_deployed 0.100" in alts(at.shown.value)[0]
    )
    at.gain.value, at.decoding.value = "judge", "top_p"
    assert "ppo_b judge 0.500" in alts(at.shown.value)[0] and "decoding top_p" in alts(at.shown.value)[0]

    at.view.value, at.seed.value, at.first.value = "samples", 2, 3
    words = text(at.shown.value)
    assert "ppo_a says 2 at 2 (0.25)" in words and "ppo_b says 5 at 2 (0.25)" in words and "says 1 at 2" not in words
    assert at.first.max == 3 and not at.first.continuous_update
    choose(at, "ppo_a", "zero_shot")
    at.view.value = "curves"
    assert "no curves in zero_shot (not trained)" in text(at.shown.value)
    choose(at)
    assert "choose a run" in at.shown.value


def test_a_fresh_clone_has_the_numbers_of_the_report(tmp_path):
    view = browse.runs(tmp_path / "runs", ROOT / "reports/mini")
    at = view.controls
    assert {"zero_shot", "ppo_kl_0", "nlpo_kl_default"} <= set(chosen(at)) and len(at.boxes) > 40
    assert at.view.value == "frontier"  # opened where there is something to see
    rows = finished.find(tmp_path, ROOT / "reports/mini").per_seed
    mean = rows[(rows.condition == "ppo_kl_0") & (rows.split == "test") & (rows.decoding == "plain")].score.mean()
    assert f"ppo_kl_0 score {mean:.3f} at kl_deployed" in alts(at.shown.value)[0]
    assert alts(view._repr_mimebundle_()["text/html"]) == alts(at.shown.value)
    at.view.value = "curves"
    assert "only the numbers of zero_shot" in text(at.shown.value) and not alts(at.shown.value)
    write_run(tmp_path / "runs", "ppo_kl_0", 0.2)  # what is here counts, not what the report says
    assert (
        "ppo_kl_0 score 0.220"
        in alts(browse.runs(tmp_path / "runs", ROOT / "reports/mini")._repr_mimebundle_()["text/html"])[1]
    )


def test_more_than_eight_runs_and_a_broken_one(tmp_path):
    for i in range(9):
        write_run(tmp_path, f"ppo_{i}", i / 10, seeds=(1,))
    (tmp_path / "ppo_bad").mkdir()
    (tmp_path / "ppo_bad" / "per_seed.csv").write_text("condition,seed\nppo_bad,1\n")
    at = browse.runs(tmp_path, tmp_path / "none").controls
    choose(at, *(f"ppo_{i}" for i in range(9)))
    assert "only the first 8 of the 9 chosen" in at.shown.value and "ppo_8 objective" not in alts(at.shown.value)[0]
    assert "ppo_bad cannot be read" in at.shown.value and "no column split" in at.shown.value


def test_seeds_that_ended_early_and_runs_of_other_seeds_are_named(tmp_path):
    write_run(tmp_path, "ppo_a", 0.2)
    write_run(tmp_path, "ppo_b", 0.3, seeds=(1, 2))
    path = tmp_path / "ppo_a" / "curves.csv"
    tables.write_table(path, [row for row in tables.read_table(path) if not (row["seed"] == 2 and row["update"] > 1)])
    at = browse.runs(tmp_path, tmp_path / "none").controls
    assert "ppo_a ended early in seed 2 after update 1" in text(at.shown.value)
    assert "n = 3, 2 seeds (ppo_a, ppo_b)" in alts(at.shown.value)[0]
    at.view.value = "frontier"
    assert "n = 3, 2 seeds (ppo_a, ppo_b)" in alts(at.shown.value)[0]
    choose(at, "ppo_b")
    assert ", n = 2 seeds, decoding" in alts(at.shown.value)[0]


def test_a_name_is_found_in_any_case_and_one_torn_file_hides_one_run(tmp_path):
    write_run(tmp_path, "ppo_a", 0.2)
    write_run(tmp_path, "nlpo_b", 0.3)
    write_run(tmp_path, "NLPO_c", 0.3)
    with open(tmp_path / "ppo_a" / "samples.jsonl", "a") as file:
        file.write('{"torn')
    write_run(tmp_path, "a_few", 0.3)
    few = tmp_path / "a_few" / "samples.jsonl"
    few.write_text(
        "".join(line for line in few.read_text().splitlines(keepends=True) if '"e5"' not in line and '"e4"' not in line)
    )
    at = browse.runs(tmp_path, tmp_path / "none").controls
    at.view.value = "samples"
    at.first.value = 3
    choose(at, "a_few")
    assert "prompts 1 to 4 of 4" in at.shown.value  # the slider goes as far as the longest run
    choose(at, "ppo_a", "nlpo_b")
    at.first.value = 1
    words = text(at.shown.value)
    assert "nlpo_b says 0 at 1" in words and "ppo_a cannot be read" in words and "samples.jsonl" in words
    choose(at)
    at.name.value = "NLPO"
    assert [box.description for box in at.column.children] == ["NLPO_c", "nlpo_b"]
