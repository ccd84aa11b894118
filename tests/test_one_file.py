"""One thing, one file: each kind of addition touches the files listed here and no other, and reaches where one sees it.

All are made in a copy of the code at once; one process then checks the settings, builds the data and writes the page.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from workbook.runs import reading

pytestmark = pytest.mark.xdist_group("one_file")  # what it sets up takes seconds: once, not once a worker

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/use/write_your_own.md").read_text(encoding="utf-8")
SETTINGS = "params.yaml"  # names what is added; the last six entries are all that it takes


def example(name: str, kind: str = "python") -> str:
    """The worked example of that file on the page that has them."""
    return re.search(rf"```{kind}\n(# {re.escape(name)}\b.*?)```", PAGE, re.DOTALL)[1]


SAMPLER = example("my_sampler.py").replace("from rlnlp import samplers\n", "").replace("samplers.RULES", "RULES")
TASK = example("workbook/texts/tasks/weather.py")
METRIC = example("workbook/results/measures.py")
ABLATION = example("workbook/reports/imitation.py")
SHOWN = ABLATION.replace('"ppo"', '"ppo_kl_default"').replace(
    "DETAIL = (", 'DETAIL = ("brevity", "score", '
)  # all six on one page
ADDED = {  # what: its file, "+" where it is added to one that is there; beside it, runs in the settings
    "learner": ("rlnlp/learners/weighted.py", example("rlnlp/learners/weighted.py")),
    "sampler": ("+rlnlp/samplers.py", SAMPLER),
    "reward": ("my_reward.py", example("my_reward.py")),
    "metric": ("+workbook/results/measures.py", METRIC),
    "task": ("workbook/texts/tasks/weather.py", TASK),
    "ablation": ("workbook/reports/imitation.py", SHOWN),
}
PROBE = """
import json
from pathlib import Path
import torch
from rlnlp import samplers
from tests import second_results
from workbook.ledger.claim import Test
from workbook.reports import pages
from workbook.results import measures
from workbook.runs import algorithms, checks, conditions, profiles
from workbook.texts import data

said = {"check": conditions.main(["params.yaml", "build"])}
said["given"] = {name: json.loads(Path(f"build/conditions/{name}.json").read_text()) for name in ("weighted", "top_a")}
said["label"] = algorithms.label("weighted")
said["allowed"] = samplers.named("top_a", 0.8)(torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log())[1].tolist()
said["brought"] = json.loads(Path("build/brought.json").read_text())
said["facts"] = data.build(checks.load("params.yaml"), 1, "data/draw1")
said["prompts"] = Path("data/draw1/prompts_test.jsonl").read_text()
said["readme"] = measures.readme(Path("metrics.md").read_text())
mine = Path("whole/profiles/mine")
(mine / "params.yaml").write_text(json.dumps(profiles.resolved(mine)))
said["mine"] = {name: run["algorithm"] for name, run in checks.load(mine / "params.yaml").runs.items()}
claimed = {"name": "shorter", "kind": "contrast", "metric": "brevity", "direction": "greater", "effect": 0.1}
said["unit"] = Test(**claimed, terms={"weighted": 1, "ppo_kl_default": -1}).unit

true = second_results.truth
second_results.truth = lambda run, *given: {**true(run, *given), "brevity": 0.1 + 0.1 * (run["algorithm"] != "ppo")}
second_results.ROOT, second_results.NAMES = Path.cwd(), ("imitation",)
page = pages.load(checks.load(second_results.make(Path("made"), seeds=(1, 2, 3))), "imitation")
pages.write(page, Path("page"))
said["page"] = Path("page/verdict.md").read_text()
said["table"] = dict(pages.every_condition(page))["decoded plainly"].to_dict()
print(json.dumps(said))
"""


def files(folder: Path) -> dict[str, bytes]:
    """The code and the settings below a folder."""
    found = [*(folder / "rlnlp").rglob("*.py"), *(folder / "workbook").rglob("*.py"), *folder.glob("*.*")]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found if path.is_file()}


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> tuple[set[str], dict]:
    """(files that the six additions touched, what the process said)."""
    folder = tmp_path_factory.mktemp("copy")
    for name in ("rlnlp", "workbook", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "fixtures"))
    shutil.copy(ROOT / "docs/reference/metrics.md", folder)
    shutil.copy(ROOT / "claims.yaml", folder)
    raw, _ = reading.read(ROOT / "tests" / "fixtures" / "params.yaml")
    raw |= {"runs": {name: run for name, run in raw["runs"].items() if "reward" not in run}, "continued": {}}
    raw |= {"reports": {"kl": {"conditions": ["ppo_kl_0"]}}}
    (folder / SETTINGS).write_text(json.dumps(raw))
    before = files(folder)

    for file, text in ADDED.values():
        path = folder / file.lstrip("+")
        path.write_text((path.read_text() + "\n\n" if file.startswith("+") else "") + text)
    raw["runs"]["weighted"] = {"algorithm": "weighted", "sharpness": 3, "learning_rate": 1e-3}
    raw["runs"]["top_a"] = {"algorithm": "masked", "mask_rule": "top_a", "mask_value": 0.2, "learning_rate": 1e-3}
    raw["bring"]["reward"] = "my_reward.py:score"
    raw["task"]["name"] = "weather"
    raw["runs"]["weighted_sharp"] = {**raw["runs"]["weighted"], "sharpness": 4}
    shown = ["ppo_kl_default", "weighted", "weighted_sharp", "top_a"]
    raw["reports"]["imitation"] = {"conditions": shown}
    (folder / SETTINGS).write_text(json.dumps(raw))
    mine = folder / "whole/profiles/mine/overlay.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text(example("profiles/mine/overlay.yaml", "yaml"))
    for name in (SETTINGS, "claims.yaml"):
        shutil.copy(ROOT / name, folder / "whole")
    (folder / "made").mkdir()
    shutil.copy(folder / "my_reward.py", folder / "made")
    after = files(folder)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", PROBE], cwd=folder, env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {name for name in after if after[name] != before.get(name)}, json.loads(done.stdout.splitlines()[-1])


def test_six_additions_touch_six_files_and_the_settings(copy):
    touched, said = copy
    assert touched == {SETTINGS, *(file.lstrip("+") for file, _ in ADDED.values())}
    assert said["check"] == 0


def test_a_learner_is_checked_and_shown(copy):
    _, said = copy
    assert said["given"]["weighted"]["learner"]["sharpness"] == 3 and said["label"] == "weighted"
    assert "weighted − PPO" in said["page"]


def test_a_sampler_is_what_a_learner_trains_with(copy):
    _, said = copy
    assert said["given"]["top_a"]["learner"]["mask_rule"] == "top_a"
    assert said["allowed"] == [[True, True, False, False]] and "top_a" in said["page"]


def test_a_reward_is_tried_and_followed(copy):
    _, said = copy
    assert said["given"]["weighted"]["bring"]["reward"] == "my_reward.py:score" and said["brought"]["reward"]


def test_a_metric_is_one_record_in_the_readme_the_pages_and_the_claims(copy):
    _, said = copy
    assert "| `brevity` | 1 / words, mean over responses | 1/words | more | its own unit |" in said["readme"]
    assert said["unit"] == "own unit"
    shown = [v for name, v in said["table"]["brevity"].items() if name.startswith("weighted, ")]
    assert len(shown) == 2 and all(v.startswith("0.2") for v in shown) and "brevity" in said["page"]


def test_a_task_is_where_the_data_comes_from(copy):
    _, said = copy
    assert said["facts"]["task"] == "weather" and said["facts"]["source"] == "this page"
    assert json.loads(said["prompts"].splitlines()[0])["id"].startswith("weather-")


def test_an_ablation_is_a_file_of_at_most_90_lines_and_its_runs(copy):
    _, said = copy
    assert len(ABLATION.splitlines()) <= 90
    assert said["page"].startswith("# Is it enough to imitate") and "(levels.svg)" in said["page"]


def test_the_pages_profile_is_sound_beside_the_projects_own_settings(copy):
    _, said = copy
    assert said["mine"] == {"zero_shot": "ppo", "ppo": "ppo", "weighted": "weighted", "weighted_sharp": "weighted"}
