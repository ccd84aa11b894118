"""Settings that name files: these are checked, and their contents are followed; and the command line that reads
settings, with nothing heavy brought for it."""

import subprocess
import sys
from pathlib import Path

import pytest

from rlnlp.settings import ConfigError
from workbook.runs import brought, checks, conditions, settings

from .spoiled import ROOT, problems, settings_edited  # noqa: F401 (a fixture)


def test_a_brought_model_decides_the_length(edited, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text('{"n_positions": 32}')
    assert "expected weights (*.safetensors or" in " ".join(problems(edited(('model: ""', "model: mine"))))
    (tmp_path / "mine" / "model.safetensors").touch()
    assert "positions of mine (32)" in problems(edited(('model: ""', "model: mine")))[0]
    (tmp_path / "mine" / "config.json").write_text('{"n_positions": 34}')
    checks.load(edited(('model: ""', "model: mine")))
    (tmp_path / "mine" / "config.json").write_text('{"n_positions": 8, "is_encoder_decoder": true}')
    checks.load(edited(('model: ""', "model: mine")))


def test_brought_files(edited, tmp_path, capsys):
    (tmp_path / "my.py").write_text("")
    (tmp_path / "my.csv").write_text("prompt\nhello\n")
    brought = ('reward: ""', "reward: my.py:score"), ('prompts: ""', "prompts: my.csv")
    told = problems(edited(*brought))
    assert len(told) == 1 and "bring.reward" in told[0] and "labels_10" in told[0]  # it has no version of fewer labels
    sound = edited(*brought, ("reward: reward_10", "kl_coef: 0.1"))
    (tmp_path / "my.csv").write_text("text\nhello\n")
    assert conditions.main([str(sound), str(tmp_path / "out")]) == 1
    assert "my.csv: unknown column 'text'" in capsys.readouterr().err
    (tmp_path / "my.csv").write_text("prompt\nhello\nthere\n")  # the stage `data` could not split them
    assert conditions.main([str(sound), str(tmp_path / "out")]) == 1
    assert "my.csv: expected >= 3 different prompts" in capsys.readouterr().err
    (tmp_path / "my.csv").write_text("prompt\nhello\nthere\nyou\nhere\n")  # a run's notebook shows three of training's
    assert conditions.main([str(sound), str(tmp_path / "out")]) == 1
    assert "my.csv: expected >= 3 prompts to train on, found 2; without" in capsys.readouterr().err
    params = checks.load(sound)
    assert params.task_name == "csv" and params.task.name == "generated_reviews"


def test_the_contents_of_brought_files_are_recorded(tmp_path):
    """What DVC follows instead of the files, whose names are values: it changes with any byte of any of them."""
    assert set(brought.contents(tmp_path, settings.Bring()).values()) == {""}
    files = {"mine/deep/weights": "1", "paid/reward.py": "def score(): ...", "prompts.csv": "prompt"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    bring = settings.Bring(model="mine", reward="paid/reward.py:score", prompts="prompts.csv")
    before = brought.contents(tmp_path, bring)
    assert all(before.values()) and brought.contents(tmp_path, bring) == before
    for (name, text), setting in zip(files.items(), before):
        (tmp_path / name).write_text(text + " ")
        after = brought.contents(tmp_path, bring)
        assert {k for k in before if after[k] != before[k]} == {setting}
        before = after
    for name in (
        "paid/words.txt",
        "paid/deep/words.py",
        "paid/deep/down/more.csv",
    ):  # it may read or import any of them
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("good")
        after = brought.contents(tmp_path, bring)
        assert after != before
        before = after
    (tmp_path / "paid/.hidden").write_text("")
    (tmp_path / "paid/__pycache__").mkdir()
    (tmp_path / "paid/__pycache__/reward.pyc").write_text("")
    assert brought.contents(tmp_path, bring) == before
    assert brought.contents(tmp_path, settings.Bring(model="gpt2"))["model"] == ""  # a hub id: nothing here to hash


def test_of_a_reward_beside_the_settings_what_it_imports_is_followed(tmp_path):
    """The folder of params.yaml holds everything else too, so only imports say what belongs to the reward."""
    texts = {
        "reward.py": "import words\nfrom deep.down import best\nfrom lists import good as g\n",
        "words.py": "",
        "deep/__init__.py": "",
        "deep/down.py": "from . import more\nbest = 1\n",
        "deep/more.py": "",
        "lists/__init__.py": "from .inner import good\n",
        "lists/inner.py": "good = 1\n",
        "other.py": "",
        "data/draw1/x.py": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    bring = settings.Bring(reward="reward.py:score")
    found = [path.relative_to(tmp_path).as_posix() for path in brought.reward_files(tmp_path, bring)]
    assert found == sorted(set(texts) - {"other.py", "data/draw1/x.py"})


def test_a_rewards_folder_has_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(brought, "MOST_FILES", 3)
    (tmp_path / "paid").mkdir()
    for i in range(4):
        (tmp_path / f"paid/{i}.py").write_text("")
    with pytest.raises(ConfigError, match="at most 3 files"):
        brought.reward_files(tmp_path, settings.Bring(reward="paid/0.py:score"))


def check(path: Path, out: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "workbook.runs.conditions", str(path), str(out)]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)


def test_command_line(edited, tmp_path):
    out = tmp_path / "build" / "checked.txt"
    done = check(edited(), out.parent)
    assert done.returncode == 0, done.stderr
    first = out.read_bytes()
    out.unlink()
    assert conditions.main([str(edited(("  gamma: 0.95", "  gamma: 0.9"))), str(out.parent)]) == 0
    assert out.read_bytes() == first  # constant: other values do not re-run what follows
    out.unlink()
    done = check(edited(("  gamma: 0.95", "  gama: 0.9")), out.parent)
    assert done.returncode == 1 and not out.exists()
    assert "learner.gama" in done.stderr and "Traceback" not in done.stderr
    done = subprocess.run(
        [sys.executable, "-m", "workbook.runs.conditions"], check=False, capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 2 and "usage: " in done.stderr


def test_reading_the_settings_does_not_bring_the_models():
    code = "import workbook.runs.checks, sys; workbook.runs.checks.load(); print('transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "False\n"


def test_reading_the_module_does_not_bring_torch():
    code = (
        "import workbook.runs.params, workbook.store.files, workbook.store.fingerprint, sys; print('torch' in "
        "sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "False\n"
