"""The benchmark's settings and its pipelines' files."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import yaml

from rlnlp.settings import ConfigError
from tests.grue_made import VALUES, made_up
from tests.test_style import ROOT
from tests.waiting import alive, until
from workbook.grue import run, tasks
from workbook.grue import settings as grue
from workbook.grue.arms import ARMS, Arm, arm
from workbook.grue.world import raw as world
from workbook.stages.pipeline import DAG, kind, read_graph
from workbook.stages.processes import environment

PARAMS = ROOT / "grue" / "params.yaml"


def test_the_settings_of_the_benchmark_are_whole_and_draw_0_is_not_among_the_seeds():
    ours = grue.load(PARAMS)
    assert len(ours.seeds) == 5 and 0 not in ours.seeds
    for name in ours.tasks:
        task = tasks.task(name)
        assert ours.decode(task).max_new_tokens <= ours.horizon(task)
        for each in grue.arms_of(ours, name):
            if arm(each).learner:
                assert ours.learner_of(arm(each), name, ours.horizon(task)).max_new_tokens == ours.horizon(task)
    every = {*ours.conditions, *ours.continued}
    assert {*grue.arms_of(ours, ours.control_tasks[0])} == every | {*ours.controls}
    assert {*grue.arms_of(ours, "totto")} == every | {*ours.rewards} and "totto" not in ours.control_tasks
    assert every | {*ours.controls, *ours.rewards} == {*ARMS}


@pytest.mark.parametrize("name", grue.load(PARAMS).tasks)
def test_lengths_hold_every_generated_prompt_and_reference(name):
    from workbook.grue.raw import causal_tokenizer, t5_tokenizer
    from workbook.grue.words import words

    ours, task = grue.load(PARAMS), tasks.task(name)
    tokenizer = (causal_tokenizer if task.causal else t5_tokenizer)(words(ours.tasks))
    for which in run.PARTS:
        shown = run.drawn(task, 3, which, 150)
        prompts = run.encode(shown, tokenizer, ours.prompt_tokens(task))
        assert max(known["cut"] for known in prompts.meta) == 0
        assert not (prompts.ids == tokenizer.unk_token_id).any()
        ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for e in shown for text in e.references]
        assert max(map(len, ids)) + 1 <= ours.horizon(task)
        assert tokenizer.unk_token_id not in {token for row in ids for token in row}


BAD = [
    ("learner: {updates: 2, clipp: 0.1}", "ppo on .*clipp: unknown name; did you mean 'clip'"),
    ("conditions: [zero_shot, ppoo]", "condition: .*found 'ppoo'; did you mean 'ppo'"),
    ("conditions: [sup_ppo]", "arms of the raw model; .'sup_ppo'. go into continued"),
    ("rows: {train: 10, supervised: 11, validation: 1, test: 1}", "supervised 11: .*at most train .10."),
    ("rows: {trian: 10, supervised: 1, validation: 1, test: 1}", "rows.trian: unknown name; did you mean 'train'"),
    ("seed: [1]", "seed: unknown name; did you mean 'seeds'"),
    ("seeds: []", "seeds: expected at least 1"),
    ("overrides: {}", "an entry for each task .* none for made_up"),
    ("control_tasks: [made_pu]", "names in tasks; found made_pu"),
    ("overrides: {made_up: {reponse_tokens: 3}}", "reponse_tokens: unknown name; did you mean 'response_tokens'"),
    ("overrides: {made_up: {decode: {beam: 2}}}", "made_up.decode: unknown name; did you mean 'beams'"),
    ("overrides: {made_up: {supervised: {epoch: 2}}}", "epoch"),
    ("threads: many", "threads: expected a whole number, found 'many'"),
]


@pytest.mark.parametrize(("line", "message"), BAD, ids=[line for line, _ in BAD])
def test_a_wrong_setting_is_named_with_what_was_expected(tmp_path, line, message):
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({**VALUES, **yaml.safe_load(line)}))
    with pytest.raises(ConfigError, match=message):
        grue.load(tmp_path / "params.yaml")


UNREADABLE = [
    ("common_gen", {"bertscor": "some/bert"}, "common_gen.models: .*bertscor: .* did you mean 'bertscore'"),
    ("common_gen", {"rouge_1": "some/bert"}, r"rouge_1: expected one of \['bertscore', 'consistency'\]"),
    ("wmt16", {"bertscore": "FacebookAI/roberta-large"}, "wmt16.models: .*reads 'en', the responses are 'de'"),
]


@pytest.mark.parametrize(("task", "models", "message"), UNREADABLE)
def test_a_model_that_no_score_of_the_task_can_read_is_refused_before_any_work(tmp_path, task, models, message):
    values = yaml.safe_load(PARAMS.read_text())
    values["overrides"][task] = {**values["overrides"][task], "models": models}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(ConfigError, match=message):
        grue.load(tmp_path / "params.yaml")


def test_a_run_is_of_the_content_of_the_model_that_a_score_reads(tmp_path):
    task, values = tasks.task("common_gen"), grue.load(PARAMS).model_dump()
    kept = []
    for folder, content in (("", ""), ("one", "a"), ("one", "b"), ("two", "b")):
        own = {**values["overrides"]["common_gen"], "models": {"bertscore": str(tmp_path / folder)} if folder else {}}
        (tmp_path / (folder or "none")).mkdir(exist_ok=True)
        (tmp_path / (folder or "none") / "weights").write_text(content)
        ours = grue.Grue.model_validate({**values, "overrides": {**values["overrides"], "common_gen": own}})
        kept.append(run.inputs(run.Bench(ours, tmp_path, ["a"]), task, arm("zero_shot"), 1))
    assert len({json.dumps(one, sort_keys=True) for one in kept}) == 4
    assert {*kept[1]} - {*kept[0]} == {"setting models"}


def test_an_arms_own_settings_win_over_the_tasks_and_the_tasks_over_all():
    ours = grue.Grue.model_validate({**VALUES, "overrides": {"made_up": {"learner": {"kl_coef": 0.3, "updates": 4}}}})
    assert (
        ours.learner_of(arm("ppo"), "made_up", 6).kl_coef,
        ours.learner_of(arm("ppo_kl_0"), "made_up", 6).kl_coef,
    ) == (0.3, 0.0)
    assert ours.steps_of_learning(made_up()) == 16
    warm = Arm("x", "x", learner="nlpo", settings={"mask_top_p": 0.2})
    assert ours.learner_of(warm, "made_up", 6).mask_top_p == 0.2


def test_the_pipeline_names_only_what_there_is():
    pipeline, values = (yaml.safe_load((ROOT / "grue" / f"{name}.yaml").read_text()) for name in ("dvc", "params"))
    for name in ("runs", "continued", "controls", "rewards"):
        stage = pipeline["stages"][name]
        keys = {key.partition(".")[0] for key in stage["params"]}
        decides = {
            "seeds",
            "threads",
            "rows",
            "raw",
            "causal",
            "supervised",
            "sampling",
            "learner",
            "nlpo",
            "evaluation",
        }
        assert keys == decides | {"overrides"} and keys - {"sampling"} <= {*values}
        assert stage["outs"] == ["runs/${item.task}/${item.condition}"]
    assert all(arm(name).start == "supervised" for name in values["continued"])
    begins = [e.prompt for name in values["tasks"] for e in run.drawn(tasks.task(name), 0, "train", 2)]
    assert all(any(text.startswith(word) for text in begins) for word in (world.TRANSLATE, world.SUMMARIZE))
    assert {*values["overrides"]} == {*values["tasks"]} <= {*tasks.names()}
    rule = [line for line in (ROOT / "Makefile").read_text().splitlines() if "grue_pipeline" in line]
    pipeline = ".venv/bin/python -m workbook.stages.grue_pipeline --profile $(PROFILE) --jobs $(JOBS) --tied"
    assert rule == [f"\t@exec {pipeline}"]


@pytest.mark.parametrize("folder", ["grue", "grue/real", "grue/paper"])
def test_a_pipeline_of_the_benchmark_brings_no_stage_of_another(folder):
    """`make grue` starts the stages that DVC names; DVC follows a dependency into whichever pipeline makes it."""
    dag = [sys.executable, "-m", *DAG["dag"]]
    done = subprocess.run(dag, cwd=ROOT / folder, env=environment(), capture_output=True, text=True, check=True)
    stages = yaml.safe_load((ROOT / folder / "dvc.yaml").read_text())["stages"]
    assert {kind(name) for name in read_graph(done.stdout)} == {*stages}
    assert "../" not in done.stdout


@pytest.mark.parametrize("folder", ["grue", "grue/real", "grue/paper"])
def test_the_settings_of_the_benchmark_have_whatever_its_stages_depend_on(folder):
    """DVC refuses a stage that names a setting which the file has not, however good its default is."""
    values = yaml.safe_load((ROOT / folder / "params.yaml").read_text())
    stages = yaml.safe_load((ROOT / folder / "dvc.yaml").read_text())["stages"].values()
    named = {name for stage in stages for name in stage.get("do", stage).get("params", [])}
    named = {name.replace("${item.task}", task) for name in named for task in values["tasks"]} - {"*all"}
    assert named and [name for name in sorted(named) if not has(values, name.split("."))] == []


def has(values, names) -> bool:
    return not names or (names[0] in values and has(values[names[0]], names[1:]))


def test_the_code_of_every_task_is_known_by_its_content(tmp_path, monkeypatch):
    from workbook.stages import grue_pipeline

    (tmp_path / "params.yaml").write_text(PARAMS.read_text())
    monkeypatch.chdir(tmp_path)
    assert grue_pipeline.main(["code"]) == 0
    made = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "build" / "code").glob("*.json")}
    assert {*made} == {"raw", "report", *grue.load(PARAMS).tasks} and len(
        {each["code"] for each in made.values()}
    ) == len(made)
    assert "torch" in made["raw"]
    with pytest.raises(SystemExit):
        grue_pipeline.main(["run", "common_gen"])


def test_a_stage_ends_with_the_dvc_that_started_it(tmp_path):
    """A killed dvc does not take along what it started: a draw went on for hours beside its successor."""
    pipe = tmp_path / "answers"
    os.mkfifo(pipe)
    stage = [
        sys.executable,
        "-m",
        "workbook.stages.grue_pipeline",
        "row",
        "mine",
        str(pipe),
    ]  # reads until the pipe ends
    code = f"import subprocess; p = subprocess.Popen({stage}); print(p.pid, flush=True); p.wait()"
    dvc = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**environment(), "DVC_STAGE": "draws@1-totto"},
        stdout=subprocess.PIPE,
    )
    pid = int(dvc.stdout.readline())
    try:
        with open(pipe, "w"):  # opens when the stage reads
            assert alive(pid)
            dvc.kill()
            dvc.wait()
            until(lambda: not alive(pid), "the end of the stage")
    finally:
        if alive(pid):
            os.kill(pid, 9)
        dvc.stdout.close()


def test_a_gpu_that_is_not_there_is_said_before_anything_begins(capsys):
    import torch

    from workbook.stages import grue_pipeline

    if torch.cuda.is_available():
        pytest.skip("a GPU is here")
    assert grue_pipeline.main(["--profile", "paper"]) == 1
    assert "error: device cuda: expected a GPU" in capsys.readouterr().err
