"""The benchmark on real rows: a made-up mirror, models of a few thousand weights, from rows to the page."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rlnlp.settings import ConfigError
from tests import scored
from tests.test_grue_tasks import dialogue
from tests.test_style import ROOT
from workbook.grue import gather, real, report, run, tasks
from workbook.grue import settings as grue
from workbook.grue.arms import arm
from workbook.grue.raw import new_t5, t5_tokenizer
from workbook.stages import grue_given, grue_pipeline, grue_plan, outside, reproduce
from workbook.store.files import atomic_json
from workbook.texts.hub import DataError

PEOPLE = "owl cat frog mole hare crow stoat wren".split()
DEEDS = {"finds": "findet", "paints": "malt", "hides": "versteckt", "sells": "verkauft", "loses": "verliert"}
THINGS = {"boat": "Boot", "lamp": "Lampe", "drum": "Trommel", "kite": "Drachen", "clock": "Uhr"}
SEEN = [0, 1]  # places of validation and test rows that stand in train too


def pairs(part: str, n: int) -> list[dict]:
    rng, rows = random.Random(part), []
    for _ in range(n):
        who, deed, thing = (rng.choice([*words]) for words in (PEOPLE, DEEDS, THINGS))
        number = f"{rng.randrange(1000)}"
        rows.append({"en": f"the {who} {deed} {thing} {number}", "de": f"{who} {DEEDS[deed]} {THINGS[thing]} {number}"})
    return rows


def sets(part: str, n: int) -> list[dict]:
    rng, rows = random.Random(part), []
    for number in range(n):
        words = [*rng.sample(PEOPLE, 2), rng.choice([*THINGS]), f"{part}{number}"]
        rows += [
            {"concept_set_idx": number, "concepts": words, "target": f"{words[0]} and {words[1]} {way} a {words[2]}"}
            for way in ("find", "lose")
        ]
    return rows


def talks(part: str, n: int) -> list[dict]:
    rows = [dialogue(8, act=[1, 2, 1, 3, 1, 4, 1, 2]) for _ in range(n)]
    for number, row in enumerate(rows):
        speakers = random.Random(part + str(number)).sample(PEOPLE, 8)
        row["dialog"] = [f"the {who} says {number} to the {part}" for who in speakers]
    return rows


MAKE = {"multi30k": pairs, "wmt16": pairs, "common_gen": sets, "daily_dialog": talks}
SIZES = {"train": 40, "validation": 12, "test": 10}


@pytest.fixture(scope="module")
def mirror(tmp_path_factory):
    import datasets

    root = tmp_path_factory.mktemp("mirror")
    for name, make in MAKE.items():
        rows = {part: make(part, n) for part, n in SIZES.items()}
        if name == "multi30k":  # as DailyDialog's splits have it
            rows["train"] += [rows["validation"][i] for i in SEEN] + [rows["test"][i] for i in SEEN]
        if name == "common_gen":
            rows["test"] = [{**row, "target": ""} for row in rows["test"]]
        task = tasks.task(name)
        folder = root / "datasets" / f"{task.hub}/{task.config}".rstrip("/")
        folder.mkdir(parents=True)
        for part, some in rows.items():
            datasets.Dataset.from_list(some).to_parquet(folder / f"{part}.parquet")
    return root


@pytest.fixture
def at_hand(mirror, monkeypatch):
    monkeypatch.setenv("RLNLP_MIRROR", str(mirror))
    real._every.cache_clear()
    return mirror


TINY = {"layers": 1, "width": 32, "heads": 2, "steps": 4, "batch_size": 8, "learning_rate": 0.003}


TWO = {"rows": {"train": 8, "supervised": 8}}


def small(profile: str, **changes) -> grue.Grue:
    """A profile's settings, with three tasks and sizes that take seconds."""
    full = grue.load(ROOT / "grue" / profile / "params.yaml").model_dump()
    chosen = {
        "tasks": ["multi30k", "daily_dialog", "wmt16"],
        "meaningless": ["wmt16"],
        "overrides": {"multi30k": {}, "daily_dialog": {"prompt_tokens": 70}, "wmt16": TWO},
        "device": "cpu",
        "seeds": [1, 2],
        "rows": {"train": 30, "supervised": 20, "validation": 6, "test": 8},
        "raw": {**full["raw"], **TINY, "vocabulary": 400},
        "causal": {**full["causal"], **TINY, "vocabulary": 300, "context": 90},
        "supervised": {"epochs": 1, "batch_size": 8},
        "learner": {"updates": 1, "episodes_per_update": 8, "epochs": 1, "minibatches": 1, "learning_rate": 0.001},
        "evaluation": {"batch_size": 8, "samples": 2, "spread_prompts": 2, "spread_samples": 2},
    }
    return grue.Grue.model_validate({**full, **chosen, **changes})


# ------------------------------------------------------------------------------------------------ the rows of a draw
def test_draws_share_their_test_rows_and_not_the_order_of_their_training_rows(at_hand):
    ours, task = small("real"), tasks.task("multi30k")
    one, two = ({part: real.examples(ours, task, draw, part) for part in run.PARTS} for draw in (1, 2))
    assert one["test"] == two["test"] and one["validation"] == two["validation"]
    assert one["train"] != two["train"] and one["train"] == real.examples(ours, task, 1, "train")
    assert [len(one[part]) for part in run.PARTS] == [30, 6, 8]
    assert real.about(ours, task) == {"data": f"{task.hub}, from a mirror", "split": "test, the first 8 of 10"}
    whole = ours.replace(rows={**ours.rows.model_dump(), "test": 99, "train": 99})
    assert real.about(whole, task)["split"] == "test"


def test_trap_6_what_is_asked_in_validation_or_test_is_not_trained_on(at_hand):
    ours, task = small("real", rows={"train": 99, "supervised": 9, "validation": 3, "test": 3}), tasks.task("multi30k")
    trained = {e.prompt for e in real.examples(ours, task, 1, "train")}
    for part in ("validation", "test"):
        assert not trained & {e.prompt for e in real.every(task, part)}
    assert len(trained) == len({e.prompt for e in real.every(task, "train")}) - 2 * len(SEEN)
    read = real.texts(ours, False, 1)
    assert {pairs("train", 40)[0]["de"], pairs("train", 40)[0]["en"]} <= {*read} and len({*read}) == len(read)
    asked = {text for part in ("validation", "test") for e in real.every(task, part) for text in e.references}
    assert not asked & {*read} and not any(text.startswith("translate") for text in read)


def test_where_the_hub_hides_the_tests_references_validation_is_the_test_and_training_rows_choose_the_epoch(at_hand):
    task, none = tasks.task("common_gen"), {"tasks": ["common_gen"], "meaningless": []}
    with pytest.raises(DataError, match="hidden in all 10 examples; expected overrides.common_gen.test: validation"):
        real.examples(small("real", **none, overrides={"common_gen": {}}), task, 1, "test")
    ours = small("real", **none, overrides={"common_gen": {"test": "validation"}})
    found = {part: real.examples(ours, task, 1, part) for part in run.PARTS}
    assert found["test"] == list(real.every(task, "validation"))[:8]
    assert real.about(ours, task)["split"] == "validation, the first 8 of 12"
    prompts = {part: {e.prompt for e in found[part]} for part in run.PARTS}
    assert prompts["validation"] <= {e.prompt for e in real.every(task, "train")} and len(prompts["validation"]) == 6
    assert not prompts["validation"] & prompts["train"] and not prompts["test"] & prompts["train"]


def test_without_rows_there_is_one_message_that_names_all_that_is_missing(at_hand, tmp_path, monkeypatch, capsys):
    ours = small("real")
    real.check(ours.tasks)
    monkeypatch.setenv("RLNLP_MIRROR", str(tmp_path))
    with pytest.raises(DataError) as caught:
        real.check(ours.tasks)
    said = str(caught.value)
    assert said.startswith("real rows: 3 of 3 data sets were not found") and "RLNLP_MIRROR" in said
    assert "multi30k: datasets/bentrevett/multi30k or datasets/multi30k" in said and len(said.splitlines()) == 4
    monkeypatch.setattr(grue_given, "GIVEN", "nothing.json")  # as if no rows were committed
    assert grue_pipeline.main(["--profile", "real"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("error: real rows: 9 of 9 data sets") and "Traceback" not in told


BAD = [
    ({"data": "reel"}, "data: "),
    ({"raw": {**TINY, "mixed": 0.5, "vocabulary": 400}}, "a BPE vocabulary and mixed 0"),
    ({"raw": {**TINY, "mixed": 0.0}}, "a BPE vocabulary and mixed 0"),
    ({"meaningless": ["wmt17"]}, "meaningless: expected, names in tasks; found wmt17"),
    ({"device": "gpu"}, "device"),
    ({"overrides": {"multi30k": {"rows": {"trian": 3}}, "daily_dialog": {}, "wmt16": {}}}, "trian"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[message for _, message in BAD])
def test_wrong_settings_of_real_rows_are_named(tmp_path, changes, message):
    values = {**small("real").model_dump(mode="json"), **changes}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(values))))
    with pytest.raises(ConfigError, match=message):
        grue.load(tmp_path / "params.yaml")


# --------------------------------------------------------------------------------------------- from rows to the page
def drawn(ours: grue.Grue, folder, monkeypatch, *only: str) -> None:
    """Every task of every draw, as the pipeline's stages make them."""
    folder.mkdir(exist_ok=True)
    (folder / "params.yaml").write_text(yaml.safe_dump(ours.model_dump(mode="json")))
    monkeypatch.chdir(folder)
    monkeypatch.setattr(grue_pipeline, "SCRATCH", folder / "scratch")
    monkeypatch.setattr(grue_pipeline.bench, "__defaults__", (folder / "params.yaml", folder / "scratch", None))
    for seed in ours.seeds:
        for name in only or ours.tasks:
            assert grue_pipeline.main(["draw", name, str(seed)]) == 0


def test_a_draw_is_rows_for_git_and_draws_are_a_page_that_says_what_means_nothing(at_hand, tmp_path, monkeypatch):
    ours = small("real")
    drawn(ours, tmp_path / "real", monkeypatch)
    rows, samples = gather.draws(ours, tmp_path / "real" / "draws")
    assert {row["seed"] for row in rows} == {1, 2} and {row["task"] for row in rows} == {*ours.tasks}
    arms = [*grue.arms_of(ours, "multi30k"), "source"]
    assert {row["condition"] for row in rows if row["task"] == "multi30k"} == {*arms}
    assert not any(name.startswith("judge/") for row in rows for name in row)
    shown = [row for row in rows if (row["task"], row["condition"], row["seed"]) == ("multi30k", "sup_ppo", 2)]
    assert [(row["n"], row["split"], row["data"]) for row in shown] == [
        (8, "test, the first 8 of 10", "bentrevett/multi30k, from a mirror")
    ]
    assert shown[0]["checkpoint"].startswith("raw ")
    references = {text for name in ours.tasks for e in real.every(tasks.task(name), "test") for text in e.references}
    assert samples and all("references" not in one and not {*one.values()} & references for one in samples)
    assert max(len(one["prompt"].removeprefix("… ").split()) for one in samples) == 20  # dialogues are longer

    odd = tmp_path / "real" / "draws" / "1" / "wmt16.jsonl"
    said = json.loads(odd.read_text().partition("\n")[0]) | {"response": "a\u2028b\x85c"}  # no line ends here
    odd.write_text(json.dumps(said, ensure_ascii=False) + "\n")
    assert said in gather.draws(ours, tmp_path / "real" / "draws")[1]
    (tmp_path / "real" / "draws" / "2" / "wmt16.csv").unlink()
    assert {row["seed"] for row in gather.draws(ours, tmp_path / "real" / "draws")[0]} == {1}  # not finished: left out
    chosen = [tasks.task(name) for name in ours.tasks]
    assert report.write(rows, chosen, {}, {}, samples, tmp_path, ours) == []
    page = (tmp_path / "leaderboard.md").read_text()
    assert page.startswith("# The benchmark on real rows\n\n3 tasks, 2 draws: profile real.")
    assert page.count("mean nothing at this size") == 1
    assert page.index("## WMT-16") < page.index("mean nothing at this size")
    assert not {"samples.jsonl.bz2", "per_seed.csv.xz"} & {path.name for path in tmp_path.iterdir()}  # draws have them
    assert not (tmp_path / "claims.md").exists() and "judge - reward" not in page
    over = page[: page.index("## Multi30k")]
    assert "wmt16" not in over  # in no mean, rank or figure
    assert "Not to be compared with ours." in page  # what the paper printed of WMT-16


def test_paper_runs_from_a_t5_and_a_gpt2_under_their_hub_ids(at_hand, mirror, tmp_path, monkeypatch):
    from tests import tiny
    from workbook.draws.tokenizer import train_tokenizer

    texts = [e.prompt for name in ("common_gen", "daily_dialog") for e in real.every(tasks.task(name), "train")]
    tokenizer = t5_tokenizer((), texts, 500)
    full = grue.load(ROOT / "grue" / "paper" / "params.yaml")
    assert (full.bring.encoder_decoder, full.bring.causal) == ("google-t5/t5-base", "openai-community/gpt2")
    for place, model, tokens in (
        (full.bring.encoder_decoder, new_t5(tokenizer, full.raw.replace(layers=1, width=32, heads=2), 0), tokenizer),
        (full.bring.causal, tiny.gpt2(300, positions=256), train_tokenizer(texts, "bpe", 300)),
    ):
        model.save_pretrained(mirror / "models" / place)
        tokens.save_pretrained(mirror / "models" / place)
    few = {"updates": 1, "episodes_per_update": 8, "minibatches": 1}
    own = {
        name: each.model_dump()
        | {"rows": {}, "learner": each.learner | few, "supervised": {}, "continued": each.continued | few}
        for name, each in full.overrides.items()
        if name in ("common_gen", "daily_dialog")
    }
    scored.save_bert(mirror / "models" / own["common_gen"]["models"]["bertscore"], layers=17)
    own["daily_dialog"]["models"] = {"consistency": "some/nli"}  # beside bertscore, which then is absent
    scored.save_bert(mirror / "models" / "some" / "nli", ("contradiction", "neutral", "entailment"))
    ours = small("paper", tasks=[*own], meaningless=[], seeds=[1], overrides=own)
    drawn(ours, tmp_path / "paper", monkeypatch)
    rows, _ = gather.draws(ours, tmp_path / "paper" / "draws")
    found = {(row["task"], row["condition"]): row for row in rows}
    assert found["common_gen", "sup_nlpo"]["checkpoint"] == "google-t5/t5-base"
    assert found["daily_dialog", "ppo"]["checkpoint"] == "openai-community/gpt2"
    for name, read, absent in (("common_gen", "bertscore", None), ("daily_dialog", "consistency", "bertscore")):
        told = [row for row in rows if row["task"] == name]
        assert len(told) > 6 and all(-1 <= row[f"metric/{read}"] <= 1 for row in told)
        assert found[name, "ppo"]["absent"] == absent
    assert found["common_gen", "ppo"]["split"] == "validation, the first 8 of 12"
    assert found["common_gen", "ppo"]["decoding"].startswith("5 beams, max_new_tokens=20, min_new_tokens=5")
    trained = [found["common_gen", name]["reward"] for name in ("zero_shot", "supervised")]
    assert all(0 <= value <= 1 for value in trained)


# ------------------------------------------------------------------------------------------------ the two profiles
def test_the_profiles_share_a_pipeline_that_asks_for_what_the_settings_have():
    text = (ROOT / "grue" / "real" / "dvc.yaml").read_text()
    assert text == (ROOT / "grue" / "paper" / "dvc.yaml").read_text()
    stages = yaml.safe_load(text)["stages"]
    for profile in ("real", "paper"):
        values = yaml.safe_load((ROOT / "grue" / profile / "params.yaml").read_text())
        asked = {key.partition(".")[0] for stage in stages.values() for key in stage["params"]}
        assert asked - {*values} <= {"bring", "device", "meaningless"} or profile == "paper"
        ours = grue.load(ROOT / "grue" / profile / "params.yaml")
        assert ours.profile == profile and ours.real and (ours.device == "cuda") == (profile == "paper")
        for name in ours.tasks:
            task = tasks.task(name)
            for each in grue.arms_of(ours, name):
                if arm(each).learner:
                    ours.learner_of(arm(each), name, ours.horizon(task))
    real_ones = grue.load(ROOT / "grue" / "real" / "params.yaml")
    assert len(real_ones.seeds) == 3
    assert {*real_ones.tasks} - {*real_ones.meaningless} == {"multi30k", "common_gen", "daily_dialog"}
    assert {*real_ones.tasks} == {*tasks.names()}


@pytest.mark.parametrize("name", grue.load(ROOT / "grue" / "paper" / "params.yaml").tasks)
def test_the_paper_profiles_budgets_are_the_published_ones(name):
    ours, task = grue.load(ROOT / "grue" / "paper" / "params.yaml"), tasks.task(name)
    first = lambda value: value[0] if isinstance(value, tuple) else value
    for section, chosen in (("rl", "ppo"), ("rl", "nlpo"), ("sup_rl", "sup_ppo"), ("sup_rl", "sup_nlpo")):
        printed = task.published.settings[section]
        found = ours.learner_of(arm(chosen), name, ours.horizon(task))
        assert found.max_new_tokens == task.response_tokens and ours.prompt_tokens(task) == task.prompt_tokens
        assert found.updates == round(printed["total_tokens"] / printed["update_tokens"])
        assert found.episodes_per_update == round(printed["update_tokens"] / task.response_tokens)
        assert (found.epochs, found.gamma, found.lam, found.clip) == (5, 0.99, 0.95, 0.2)
        assert found.minibatches == min(printed["update_tokens"] // printed["minibatch"], found.episodes_per_update)
        names = {"learning_rate": "learning_rate", "kl_coef": "kl_coef", "target_kl": "kl_target"}
        names |= {"entropy_coef": "entropy_coef", "top_k": "top_k"}
        assert {key: getattr(found, ours_) for key, ours_ in names.items()} == {
            key: first(printed[key]) for key in names
        }
        if "nlpo" in chosen:
            assert (found.mask_top_p, found.sync_every) == (printed["mask_p"], first(printed["sync"]))
    printed, found = task.published.settings["supervised"], ours.supervised_of(name)
    if "batch" in printed:
        assert (found.epochs, found.batch_size) == (printed["epochs"], printed["batch"])
        assert found.learning_rate == printed["learning_rate"] and found.schedule in printed["schedule"]
        assert found.weight_decay == printed.get("weight_decay", 0.0)
    assert ours.decode(task) == task.decode


def test_draws_whose_rows_are_there_need_no_data(at_hand, tmp_path, monkeypatch):
    """Whoever has no mirror makes the report of the committed rows; for rows that are missing data are asked for."""
    ours = small("real").replace(seeds=(1, 2))
    for seed in ours.seeds:
        (tmp_path / "draws" / str(seed)).mkdir(parents=True)
        for name in ours.tasks:
            (tmp_path / "draws" / str(seed) / f"{name}.csv").write_text("task\n")
    with_data = grue_given.identities(ours, tmp_path)
    assert [*with_data] == [*ours.tasks] and all(len(one["data"]) == 64 for one in with_data.values())
    code = {name: f"code of {name}" for name in ours.tasks}
    grue_given.keep(tmp_path, with_data, code)
    assert grue_given.standing(ours, tmp_path) == {}  # with data, what was edited is made anew
    monkeypatch.setenv("RLNLP_MIRROR", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert grue_given.identities(ours, tmp_path) == with_data
    assert grue_given.standing(ours, tmp_path) == code
    newer = code | {ours.tasks[0]: "of the hub's rows, made since"}
    grue_given.keep(tmp_path, {ours.tasks[0]: {"data": "a hub's id"}}, newer)  # of rows that need no mirror too
    assert grue_given.standing(ours, tmp_path) == newer and grue_given.identities(ours, tmp_path) == with_data
    grue_given.keep(tmp_path, {}, code)
    first, *_, last = ours.tasks
    (tmp_path / f"draws/2/{last}.csv").unlink()
    assert grue_given.standing(ours, tmp_path) == {name: code[name] for name in ours.tasks if name != last}
    with pytest.raises(DataError, match="1 of 1 data sets") as caught:
        grue_given.identities(ours, tmp_path)
    assert f"{last}: datasets/" in str(caught.value) and first not in str(caught.value)


def test_the_code_of_rows_that_stand_is_the_one_that_made_them(tmp_path, monkeypatch):
    """So that DVC finds nothing changed where nothing can be made; with data the edited code is seen."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(small("real").model_dump(mode="json")))
    atomic_json(grue_pipeline.STANDING, {"wmt16": "of before"})
    grue_pipeline.code("code")
    found = {path.stem: json.loads(path.read_text())["code"] for path in Path("code").iterdir()}
    assert found["wmt16"] == "of before" and len(found["multi30k"]) == 64
    atomic_json(grue_pipeline.STANDING, {})
    grue_pipeline.code("code")
    assert len(json.loads(Path("code/wmt16.json").read_text())["code"]) == 64


def test_a_hub_that_cannot_be_asked_is_said_before_anything_begins(tmp_path, monkeypatch):
    def away(kind, name):
        raise OSError(f"no way to {kind}/{name}")

    monkeypatch.delenv("RLNLP_MIRROR", raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(outside, "ask_the_hub", away)
    with pytest.raises(DataError, match="real rows of multi30k: not in a mirror, and the hub: no way to"):
        grue_given.identities(small("real"), tmp_path)


def test_what_rows_are_of_is_noted_when_they_are_there(at_hand, tmp_path, monkeypatch):
    """Noted before, a run that fails would give the rows that stand another origin."""
    began = []
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(small("real").model_dump(mode="json")))
    monkeypatch.setitem(grue_pipeline.PROFILES, "real", str(tmp_path))
    monkeypatch.setattr(grue_pipeline, "ROOT", tmp_path)
    for ends_well in (False, True):
        monkeypatch.setattr(reproduce, "reproduce", lambda *_, ends=ends_well, **__: began.append(ends) or ends)
        assert grue_pipeline.of_draws("real", 1) == ends_well
        assert (tmp_path / grue_given.GIVEN).exists() == ends_well
    assert began == [False, True]
    assert grue_given.identities(small("real"), tmp_path) == json.loads((tmp_path / grue_given.GIVEN).read_text())


@pytest.mark.parametrize("profile", ["real", "paper"])
def test_committed_rows_stand_where_making_them_anew_fails(profile, tmp_path):
    """DVC removes what a stage makes before it begins, where it is not told to leave it."""
    folder = tmp_path / "grue" / profile
    pipeline = yaml.safe_load((ROOT / "grue" / profile / "dvc.yaml").read_text())
    draws = pipeline["stages"]["draws"]
    settings = yaml.safe_load((ROOT / "grue" / profile / "params.yaml").read_text())
    task, seed = settings["tasks"][0], settings["seeds"][0]
    names = [f"draws/{seed}/{task}.{kind}" for kind in ("csv", "jsonl")]
    for name in (f"build/code/{task}.json", f"build/given/{task}.json", *names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("before")
    begins = f"import pathlib; pathlib.Path('began').touch(); assert pathlib.Path('{names[0]}').exists(); exit(7)"
    (folder / "dvc.yaml").write_text(
        yaml.safe_dump({"stages": {"draws": {**draws, "cmd": f'{sys.executable} -c "{begins}"'}}})
    )
    shutil.copy(ROOT / "grue" / profile / "params.yaml", folder)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    dvc = [sys.executable, "-m", "dvc"]
    subprocess.run([*dvc, "init", "-q"], cwd=tmp_path, check=True)
    ran = subprocess.run([*dvc, "repro", "-s", f"draws@{seed}-{task}"], cwd=folder, capture_output=True, text=True)
    assert (folder / "began").exists() and ran.returncode, ran.stderr
    assert "exited with 7" in ran.stderr and all((folder / name).read_text() == "before" for name in names)


def test_what_the_committed_rows_are_of_is_committed():
    ours = grue.load(ROOT / "grue" / "real" / "params.yaml")
    known = json.loads((ROOT / "grue" / "real" / grue_given.GIVEN).read_text())
    lock = yaml.safe_load((ROOT / "grue" / "real" / "dvc.lock").read_text())["stages"]
    code = json.loads((ROOT / "grue" / "real" / grue_given.CODE).read_text())
    assert {*known} == {*code} == {*ours.tasks} and {*map(len, code.values())} == {64}
    for name, told in known.items():
        text = json.dumps(told, indent=1) + "\n"
        for seed in ours.seeds:
            (read,) = [one for one in lock[f"draws@{seed}-{name}"]["deps"] if one["path"] == f"build/given/{name}.json"]
            assert read["md5"] == hashlib.md5(text.encode()).hexdigest()


# ----------------------------------------------------------------------------------------------------------- the plan
def test_the_plan_says_what_is_missing_and_grows_with_what_is_asked(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("RLNLP_MIRROR", raising=False)
    assert grue_plan.main(["paper"]) == 3
    said = capsys.readouterr().out
    assert "MISSING: download it, or a mirror's models/google-t5/t5-base" in said and "222,903,552 parameters" in said
    assert said.count("MISSING") == 2 + 3 + 7  # three that scores read
    assert grue_plan.main(["real"]) == 1 and "trains its own models" in capsys.readouterr().err
    assert grue_plan.main(["papre"]) == 1
    assert (
        capsys.readouterr().err == "error: profile: expected one of paper, real, got 'papre'; did you mean 'paper'?\n"
    )
    assert grue_plan.main(["mini"]) == 1  # make grue-plan without a profile
    said = capsys.readouterr().err
    assert (
        "need no plan (make grue, 45 to 120 minutes); expected PROFILE=paper\n" in said and "No such file" not in said
    )

    ours, task = grue.load(ROOT / "grue" / "paper" / "params.yaml"), tasks.task("common_gen")
    model = grue_plan.shape(ours, False)
    cost = lambda settings: {p.arm: p for p in grue_plan.parts(settings, task, model, 1e12, 0.0)}
    before = cost(ours)
    own = ours.overrides["common_gen"]
    more = own.model_dump() | {"learner": own.learner | {"updates": 2 * own.learner["updates"]}}
    twice = cost(ours.replace(overrides={**ours.model_dump()["overrides"], "common_gen": more}))
    tested = before["zero_shot"].hours  # every arm is evaluated so
    assert twice["ppo"].hours - tested == pytest.approx(2 * (before["ppo"].hours - tested))
    assert twice["sup_ppo"].hours == before["sup_ppo"].hours  # its own number of updates
    # of each example of 20 + 20 tokens: N a token and beam, five beams; 993 of them
    assert tested == pytest.approx(993 * 5 * 40 * model.parameters / 1e12 / 3600)
    assert before["nlpo"].memory - before["ppo"].memory == 4 * model.parameters  # the mask model
    assert before["ppo"].memory > 4 * 9 * model.parameters  # three models, and gradients and moments of two


def test_the_plan_counts_the_model_that_is_at_hand(tmp_path, monkeypatch):
    tokenizer = t5_tokenizer((), ["owl cat"], 400)
    shape = grue.load(ROOT / "grue" / "real" / "params.yaml").raw.replace(layers=1, width=32, heads=2)
    model = new_t5(tokenizer, shape, 0)
    model.save_pretrained(tmp_path / "models" / "google-t5" / "t5-base")
    monkeypatch.setenv("RLNLP_MIRROR", str(tmp_path))
    found = grue_plan.shape(grue.load(ROOT / "grue" / "paper" / "params.yaml"), False)
    assert found.parameters == sum(w.numel() for w in model.parameters()) and "config.json" in found.source
