"""The set-up files agree with one another, and dvc.yaml tracks exactly what its notebooks use."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pandas as pd
import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from ruamel.yaml import YAML

from .waiting import DEADLINE_S

ROOT = Path(__file__).resolve().parent.parent
PROFILES = [ROOT, *sorted(p.parent for p in ROOT.glob("profiles/*/params.yaml"))]
NAMES = [p.name if p != ROOT else "mini" for p in PROFILES]


def read(path: Path):
    return YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


LOCK = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if line]
PINS = dict(line.split("==") for line in LOCK if "==" in line)
PIPELINE = read(ROOT / "dvc.yaml")["stages"]


def test_the_page_on_installing_counts_the_conditions_as_they_are():
    text = (ROOT / "docs/use/install.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)`.*?(\d+) conditions(?: \(\d+ different\))?, [458] seeds", text, re.MULTILINE)
    found = {
        name: len(values["runs"]) + len(values.get("continued") or {})
        for name, values in zip(NAMES, map(lambda p: read(p / "params.yaml"), PROFILES))
    }
    assert dict(rows).keys() >= {"mini", "full", "follow_up", "imdb", "paper"}
    assert {name: int(count) for name, count in rows} == {name: found[name] for name, _ in rows}


def test_the_page_on_length_says_how_long_texts_are_as_the_tables_do():
    said = re.search(
        r"have ([\d.]+), ([\d.]+) and ([\d.]+) words for γ = 0.5, 0.95 and 1\n\(([\d.]+) before",
        (ROOT / "docs/findings/length.md").read_text(encoding="utf-8"),
    )
    rows = (
        pd.read_csv(ROOT / "reports/mini/per_seed.csv")
        .query("split == 'test' and decoding == 'plain'")
        .groupby("condition")
        .words.mean()
    )
    assert [float(x) for x in said.groups()] == [
        round(rows[f"free_{c}"], 1) for c in ("ppo_gamma_050", "ppo_gamma_095", "ppo_gamma_100", "zero_shot")
    ]


# environment ---------------------------------------------------------------------------------------------------------


def test_the_lock_is_flat_and_fits_either_torch_build():
    bad = [line for line in LOCK if not re.fullmatch(r"[a-z0-9-]+==[A-Za-z0-9.]+", line)]
    assert not bad, f"expected name==version, without hosts, options or build tags such as +cpu: {bad}"
    assert not [n for n in PINS if n.startswith(("nvidia-", "cuda-", "triton"))]
    assert LOCK == sorted(LOCK, key=lambda line: line.split("==")[0]) and len(PINS) == len(LOCK)
    assert PINS["torch"] == "2.13.0" and "trl" not in PINS


def requirements():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = [project["project"]["dependencies"], *project["project"]["optional-dependencies"].values()]
    return [Requirement(r) for r in [*(r for group in groups for r in group), *project["build-system"]["requires"]]]


def test_the_locked_versions_lie_in_the_declared_ranges():
    for requirement in requirements():
        locked = PINS.get(normal(requirement.name))
        assert locked and requirement.specifier.contains(locked), f"{requirement}: locked {locked}"


def test_every_range_has_two_ends():
    for requirement in requirements():
        ends = {specifier.operator for specifier in requirement.specifier}
        assert ends in ({">=", "<"}, {"=="}) or requirement.name == "setuptools", str(requirement)


def test_the_core_needs_five_packages_and_the_wheel_holds_nothing_else():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {Requirement(r).name for r in project["project"]["dependencies"]}
    assert needed == {"torch", "transformers", "numpy", "pydantic", "gymnasium"}
    folders = {".".join(file.parent.relative_to(ROOT).parts) for file in (ROOT / "rlnlp").rglob("*.py")}
    assert set(project["tool"]["setuptools"]["packages"]) == folders


def test_workbook_is_found_from_anywhere_in_this_environment(tmp_path):
    code = "import rlnlp, workbook; print(rlnlp.__file__, workbook.__file__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count(str(ROOT)) == 2, done.stdout + done.stderr


def test_environment_yml_is_the_same_lock():
    environment = read(ROOT / "environment.yml")
    assert environment["dependencies"] == ["python=3.11", "pip", {"pip": ["-r requirements.lock", "-e ."]}]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "3.11" in SpecifierSet(project["requires-python"])


def test_what_is_installed_is_the_lock():
    wrong = {}
    for name, version in PINS.items():
        try:
            found = metadata.version(name).partition("+")[0]
        except metadata.PackageNotFoundError:
            found = "nothing"
        if found != version:
            wrong[name] = f"locked {version}, installed {found}"
    assert not wrong


def test_every_locked_package_takes_any_python_3_11():
    # Debian 12 has 3.11.2: a package that asks for a later 3.11 would make the set-up fail there
    asked = {name: metadata.metadata(name).get("Requires-Python") or "" for name in PINS}
    assert not {name: said for name, said in asked.items() if "3.11.0" not in SpecifierSet(said)}


@pytest.mark.parametrize(
    ("package", "extra", "along"),
    [
        ("rlnlp", (), {"safetensors", "pydantic-core"}),  # of transformers, of pydantic
        (
            "workbook",
            ("workbook", "slurm", "site"),
            {"traitlets", "ipython", "packaging", "jupyter-client"},
        ),  # of ipykernel, nbconvert
    ],
)
def test_every_import_is_a_direct_dependency(package, extra, along):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = project["dependencies"] + [r for name in extra for r in project["optional-dependencies"][name]]
    known = {normal(Requirement(r).name) for r in asked}
    owners = metadata.packages_distributions()
    missing = {}
    for path in (ROOT / package).rglob("*.py"):
        for name in re.findall(r"^\s*(?:import|from) ([A-Za-z_]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE):
            distributions = {normal(d) for d in owners.get(name, ())} - {"rlnlp"}
            if name not in sys.stdlib_module_names and distributions and not distributions & known:
                missing.setdefault(min(distributions), path.name)
    assert not {d: f for d, f in missing.items() if d not in along}


@pytest.mark.parametrize(
    "name", ["requirements.lock", "pyproject.toml", "environment.yml", "Makefile", ".dvc/config", ".ci/run"]
)
def test_no_registry_is_named(name):
    assert not re.search(r"https?://|index-url|find-links|--extra-index|pypi\.", (ROOT / name).read_text())


def make(*words: str) -> str:
    done = subprocess.run(["make", *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    return done.stdout + done.stderr


def test_make_lists_its_targets_by_default():
    text = make()
    assert all(f"make {target}" in text for target in ("reproduce", "test", "lab", "course", "bench", "clean"))
    assert all(profile in text for profile in NAMES)


def test_make_refuses_an_unknown_profile():
    assert "expected one of mini" in make("reproduce", "PROFILE=mimi")


def test_clean_touches_one_profile_and_nothing_tracked():
    lines = make("-n", "clean", "PROFILE=smoke")
    assert "profiles/smoke/runs" in lines and "profiles/imdb" not in lines and " ./runs" not in lines
    assert "clean -fdXq" in lines  # X: only what git ignores


@pytest.fixture
def bare(tmp_path):
    """A copy of what `make env` needs, with a fake python3.11 that counts installations."""
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    tools = tmp_path / "tools"
    tools.mkdir()
    fake = tools / "python3.11"
    fake.write_text(
        '#!/bin/sh\nif [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; exit; fi\n'
        'case "$*" in *--version*) exit 0;; *-r\\ req*) echo x >> "$COUNT"; [ -z "$FAIL" ];; esac\n'
    )
    fake.chmod(0o755)

    def env(**variables) -> tuple[int, str]:
        path = f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin"
        variables = {"PATH": path, "COUNT": str(tmp_path / "count"), "HOME": str(tmp_path), **variables}
        done = subprocess.run(
            ["make", "env"], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=DEADLINE_S
        )
        count = (tmp_path / "count").read_text().count("x") if (tmp_path / "count").exists() else 0
        return count, done.stdout + done.stderr

    return env, tmp_path


def test_the_environment_is_made_once_and_follows_the_lock(bare):
    env, folder = bare
    assert env()[0] == 1
    assert env() == (1, "")  # nothing said, nothing done
    with open(folder / "requirements.lock", "a") as file:
        file.write("# changed\n")
    assert env()[0] == 2


def test_a_half_made_environment_is_made_anew(bare):
    env, folder = bare
    count, text = env(FAIL="1")
    assert count == 1 and "installing failed" in text and not (folder / ".venv/.ready").exists()
    (folder / ".venv/half").write_text("")
    assert env()[0] == 2 and not (folder / ".venv/half").exists() and (folder / ".venv/.ready").exists()


def test_a_moved_environment_is_made_anew(bare):
    env, folder = bare
    env()
    ready = folder / ".venv/.ready"
    ready.write_text(ready.read_text().split(" ")[0] + " /elsewhere\n")
    (folder / ".venv/old").write_text("")
    assert env()[0] == 2 and not (folder / ".venv/old").exists()


def test_outputs_stay_out_of_commits(bare):
    env, folder = bare

    def git(*words: str) -> str:
        author = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(["git", *author, *words], cwd=folder, capture_output=True, text=True, check=True).stdout

    git("init", "-q")
    env()
    for name in (".gitattributes", "notebooks/start.ipynb"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    # the fake installation has no nbstripout: the real one stands where the filter looks for it
    (folder / ".venv/bin/nbstripout").symlink_to(Path(sys.executable).parent / "nbstripout")
    file = folder / "notebooks/start.ipynb"
    clean, notebook = file.read_text(encoding="utf-8"), json.loads(file.read_text(encoding="utf-8"))
    code = next(c for c in notebook["cells"] if c["cell_type"] == "code")
    code |= {"execution_count": 7, "outputs": [{"output_type": "stream", "name": "stdout", "text": ["seen\n"]}]}
    # what JupyterLab 4 writes when it saves
    notebook["metadata"]["kernelspec"]["display_name"] = "Python 3 (ipykernel)"
    notebook["metadata"]["language_info"] |= {
        "codemirror_mode": {"name": "ipython", "version": 3},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "nbconvert_exporter": "python",
        "pygments_lexer": "ipython3",
        "version": "3.11.7",
    }
    file.write_text(json.dumps(notebook), encoding="utf-8")
    git("add", ".gitattributes", "notebooks"), git("commit", "-qm", "x")
    assert "seen" in file.read_text(encoding="utf-8") and git("show", "HEAD:notebooks/start.ipynb") == clean


@pytest.fixture(scope="module")
def clean_filter() -> str:
    """The command that `make env` gives git, with the nbstripout of this environment."""
    said = subprocess.run(
        ["make", "-s", "--no-print-directory", "--eval", 'say:; @printf %s "$(STRIP)"', "say"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "nbstripout' --keep-id" in said
    return said.replace(str(ROOT / ".venv/bin"), str(Path(sys.executable).parent))


@pytest.mark.parametrize(
    "path", sorted([*ROOT.glob("notebooks/*.ipynb"), *ROOT.glob("course/source/*/*.ipynb")]), ids=lambda p: p.stem
)
def test_the_filter_changes_nothing_in_what_is_committed(path, clean_filter):
    content = path.read_bytes()
    assert subprocess.run(clean_filter, shell=True, input=content, capture_output=True, check=True).stdout == content


# pipeline ------------------------------------------------------------------------------------------------------------


def body(stage: dict) -> dict:
    return stage.get("do", stage)


def test_runs_wait_for_all_that_a_draw_is_made_of():
    made = {name for name, stage in PIPELINE.items() if "draw" in stage.get("matrix", {})}
    assert made == {"data", "models", "variants", "worlds"}
    for name in made:
        outs = PIPELINE[name]["outs"]
        assert outs == [f"{name}/draw${{item.draw}}", f"executed/{name}/${{item.draw}}.ipynb"]
    for name in ("runs", "continued"):
        assert {*made, "tune"} <= set(body(PIPELINE[name])["deps"]), name
    assert not [d for d in PIPELINE["worlds"]["deps"] if not d.startswith("build/")], "they need no texts of the task"


@pytest.mark.parametrize("folder", PROFILES, ids=NAMES)
def test_every_profile_runs_this_pipeline_and_has_what_it_tracks(folder):
    values = read(folder / "params.yaml")
    if folder != ROOT:
        assert (folder / "dvc.yaml").read_bytes() == (ROOT / "dvc.yaml").read_bytes(), "type: make pipelines"
        assert values["root"] == "../.." and values["profile"] == folder.name
    tracked = {stage: body(spec).get("params", []) for stage, spec in PIPELINE.items()}
    for stage, names in tracked.items():
        for name in names:
            if not isinstance(name, str) or "${" in name:
                continue
            places = [values]
            for part in name.split("."):
                assert all(isinstance(place, dict) and (part == "*" or part in place) for place in places), (
                    f"{folder.name}/params.yaml lacks {name}, which {stage} tracks"
                )
                places = [value for place in places for value in (place.values() if part == "*" else [place[part]])]


def dvc(*words: str, cwd: Path = ROOT) -> str:
    command = [sys.executable, "-m", "dvc", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=DEADLINE_S, check=True).stdout


def test_dvc_reads_the_pipeline_of_every_profile():
    for folder in PROFILES:
        values, stages = (
            read(folder / "params.yaml"),
            dvc("stage", "list", "dvc.yaml", "--name-only", cwd=folder).split(),
        )
        for kind in ("runs", "continued"):
            assert {f"{kind}@{name}" for name in values[kind]} == {s for s in stages if s.startswith(f"{kind}@")}
        assert {f"report@{name}" for name in values["reports"]} == {s for s in stages if s.startswith("report@")}
        for kind in ("data", "models", "variants", "worlds"):
            assert {f"{kind}@{k}" for k in values["draws"]} == {s for s in stages if s.startswith(f"{kind}@")}
        assert {f"tune@{name}" for name in values["tune"]["own"]} == {s for s in stages if s.startswith("tune@")}
        if (folder / "dvc.lock").is_file() and folder.name != "smoke":  # DVC itself never takes a stage out
            assert not read(folder / "dvc.lock")["stages"].keys() - {*stages}, "take them out of dvc.lock"


def test_what_a_clone_checks_out_is_as_small_as_the_readme_says():
    """At most 20 MB beside what lets another machine go on: a base model's weights, a profile's finished seeds."""
    named = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = {True: 0, False: 0}  # whether it lets another machine go on: bytes
    for name in filter(None, named.split("\0")):
        carried = bool(re.match(r"profiles/\w+/(base|finished)/", name))
        found[carried] += (ROOT / name).stat().st_size if (ROOT / name).is_file() else 0
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    said, more = map(int, re.search(r"you check out (\d+) MB, and (\d+) MB of weights", text).groups())
    print(f"{found[False]:,} bytes, and {found[True]:,}")
    assert found[False] <= 1e6 * min(said, 20) and found[True] <= 1e6 * more


def test_dvc_keeps_quiet_and_to_itself():
    text = (ROOT / ".dvc/config").read_text()
    assert "analytics = false" in text and "autostage = false" in text and "remote" not in text


def test_outputs_are_ignored_by_git_before_they_exist():
    outs = [
        "data/draw3",
        "models/draw3",
        "tune/ppo.json",
        "runs/ppo_kl_0",
        "build/run.ipynb",
        "executed/data/0.ipynb",
        "variants/draw1",
        "worlds/draw1",
    ]
    paths = [f"{prefix}{out}" for prefix in ("", "profiles/imdb/") for out in outs] + [
        ".scratch/x",
        ".venv/x",
        "reports/smoke/kl/a",
        "reports/mini/kl/report.html",
    ]
    asked = subprocess.run(["git", "check-ignore", *paths], cwd=ROOT, capture_output=True, text=True, check=False)
    assert asked.stdout.split() == paths
    kept = [
        "data/README.md",
        "reports/mini/kl/verdict.md",
        "dvc.lock",
        "profiles/imdb/dvc.lock",
        "profiles/imdb/params.yaml",
    ]
    assert not subprocess.run(
        ["git", "check-ignore", "--no-index", *kept], cwd=ROOT, capture_output=True, text=True
    ).stdout


@pytest.mark.xdist_group("together")
def test_groups_of_tests_stay_together(request):
    """What a group sets up is made once: pytest 9.2 and xdist 3.8 together forget the groups without a word."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert request.node.nodeid.endswith("@together")
