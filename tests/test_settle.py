"""A registered design run draw by draw, on tiny models: rows, keys, stops, and the end."""

from __future__ import annotations

import builtins
import json
import multiprocessing
import os
import shutil
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from rlnlp.learners.common import Diverged, TrainingError
from tests.built import REPOSITORY, SMALL, write_params
from tests.claims_made import claim
from tests.test_claims_kinds import SPREAD
from workbook.ledger import checks as ledger_checks
from workbook.ledger import looks
from workbook.ledger.claim import METRICS, ClaimError
from workbook.results.files import DRAWS, read_text
from workbook.results.pack import write_packed
from workbook.runs import checks, conditions, experiment
from workbook.stages import one_draw, registration, settle, settled_texts, settling
from workbook.stages.one_draw import Failed
from workbook.stages.settling import Settling
from workbook.statistics.rule import OPENS
from workbook.store import tables

pytestmark = pytest.mark.xdist_group("settle")

CONDITIONS = ("zero_shot", "ppo_kl_0", "ppo_kl_default", "nlpo_kl_0", "nlpo_kl_default")
KNOWN = ledger_checks.load(REPOSITORY / "claims.yaml")
CHANGES = {
    "runs": {name: {"algorithm": name.partition("_")[0].replace("zero", "ppo")} for name in CONDITIONS},
    "continued": {},
    "claims": ["P01"],
    "worlds": {},
    "reports": {"kl": {"conditions": list(CONDITIONS)}},
}
CHANGES["runs"]["zero_shot"]["updates"] = 0
for name, entry in CHANGES["runs"].items():
    entry |= {"learning_rate": 3e-3} | ({"kl_coef": 0.0} if name.endswith("kl_0") else {})


def load(folder, runs=CHANGES["runs"], **more):
    learner = {**SMALL["learner"], "updates": 2, **more}
    return checks.load(write_params(folder, learner=learner, **{**CHANGES, "runs": runs}))


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A design of two draws, of which the first is run."""
    folder = tmp_path_factory.mktemp("design")
    shutil.copy(REPOSITORY / "claims.yaml", folder)
    params = load(folder)
    registration.register(params, KNOWN, [201, 202], [2], [203])
    assert settle.run(Settling(params, KNOWN), jobs=2, draws=1)
    return folder


@pytest.fixture
def folder(begun, tmp_path):
    """A copy, to go on with."""
    shutil.copytree(begun, tmp_path / "design")
    return tmp_path / "design"


@pytest.fixture
def fresh(tmp_path):
    """A place for a profile that has registered nothing."""
    shutil.copy(REPOSITORY / "claims.yaml", tmp_path)
    return tmp_path


def register(folder, draws=(201, 202), replacements=()):
    return registration.register(load(folder), KNOWN, draws, [2], replacements)


def test_a_design_is_registered_once(folder, fresh):
    with pytest.raises(ClaimError, match="is registered already"):
        register(folder, [204, 205])
    with pytest.raises(ClaimError, match="expected a registered design"):
        registration.load_design(load(fresh), KNOWN)


def test_a_design_runs_all_that_its_claims_need(fresh):
    runs = {name: run for name, run in CHANGES["runs"].items() if name != "nlpo_kl_0"}
    params = checks.load(write_params(fresh, **{**CHANGES, "runs": runs, "reports": {"kl": {"conditions": [*runs]}}}))
    with pytest.raises(ClaimError, match="P01: tests does not run what it needs: the run nlpo_kl_0"):
        registration.register(params, KNOWN, [201, 202], [2], [])
    with pytest.raises(ClaimError, match="P01: .* what it needs: 2 or more repetitions .* of nlpo_kl_default and ppo_"):
        registration.register(params, {"P01": claim(SPREAD)}, [201, 202], [2], [])


def test_a_design_is_of_draws_that_no_profile_and_no_other_design_has(fresh):
    """Smoke's seeds are 1 and 2, its search is on draw 1; the others are made up."""
    others = {
        "one/params.yaml": "seeds: [201]\ndraws: [201, 210]\ntune: {draw: 211}\nsizes: {big: {seeds: [212]}}\n",
        "two/registered.yaml": "draws: [213]\nreplacements: [214]\n",
        "three/overlay.yaml": "seeds: [202]\n",
    }
    for name, text in others.items():
        (fresh / "profiles" / name).parent.mkdir(parents=True)
        (fresh / "profiles" / name).write_text(text)
    assert set(registration.seen(load(fresh))) == {1, 2, 201, 210, 211, 212, 213, 214}
    for draws, replacements, met, place in (
        ([1, 300], [], 1, "params.yaml"),
        ([201, 300], [], 201, "profiles/one/params.yaml"),
        ([300, 301], [213], 213, "profiles/two/registered.yaml"),
    ):
        with pytest.raises(ClaimError, match=rf"draws \[{met}\] of the design were seen: they are in {place}"):
            register(fresh, draws, replacements)
    design = registration.load_design(load(register(fresh, [202, 300], [301]).parent), KNOWN)
    assert design.draws == (202, 300) and design.replacements == (301,) and set(design.keys) == set(CONDITIONS)


def test_it_says_what_is_open_which_look_decides_next_and_when(fresh, monkeypatch):
    """Six draws of made-up rows, looked at after five and six: P01's scores are settled, its human text is noise."""
    params = load(fresh)
    registration.register(params, KNOWN, [*range(201, 207)], [5, 6], [])
    settling = Settling(params, KNOWN)
    monkeypatch.setattr(settling, "changed", lambda: "")
    rng = np.random.default_rng(0)
    for draw in range(201, 205):
        settling.add(draw, made_up(draw, rng))
    assert settling.said(1800).splitlines()[-2:] == [
        "open: P01",
        "next: draw 205, 5 conditions; 1 draw to the look at 5, which decides next, about 30 minutes from here; "
        "an hour buys 2 draws like the last",
    ]
    settling.add(205, made_up(205, rng))
    *_, left, ahead = settling.said().splitlines()
    assert left.startswith("open: P01 (open") and "human perplexity, " in left and left.endswith(" would settle it)")
    assert "ppo score" not in left
    assert ahead == "next: draw 206, 5 conditions; 1 draw to the look at 6, which decides next"
    settling.add(206, made_up(206, rng))
    *_, left, ahead = settling.said().splitlines()
    assert left.startswith("open: P01 (open") and ahead == "the design is at its registered end"


def made_up(draw: int, rng: np.random.Generator) -> list[dict]:
    """The rows of a draw: without a penalty 0.3 more of score, and human text that differs by chance alone."""
    about = dict.fromkeys(("algorithm", "kl_coef", "kl_target", "updates"), 0)
    return [
        {**about, "condition": name, "seed": draw, "split": split, "decoding": "plain", "judge": rng.normal()}
        | {"score": 0.5 + 0.3 * name.endswith("kl_0") + 0.01 * rng.normal(), "human_log_perplexity": rng.normal()}
        for name in CONDITIONS
        for split in ("test", "half")
    ]


@pytest.mark.parametrize("what", ["run", "texts"])
def test_a_list_of_draws_is_for_the_registration_alone(what, capsys):
    """Elsewhere the number says how many: `--draws 109 110` would have been at most 109."""
    with pytest.raises(SystemExit):
        settle.main([what, "none", "--draws", "109", "110"])
    assert f"--draws: {what} takes one number, how many draws at most; found 109 110" in capsys.readouterr().err


def test_a_draws_rows_are_those_of_the_pipeline(folder):
    """The same draw, its run made as `runs@ppo_kl_0` makes it."""
    params = settle.of_draw(load(folder), 201)
    assert not list(folder.rglob("policy*")) and not list(folder.rglob("models/draw201"))  # of a draw that is done
    out, in_out = sys.stdout, [os.dup(1), os.dup(2)]  # `build` writes into a log
    try:
        one_draw.build(params, 201, CONDITIONS)
    finally:
        for stream, kept in zip((1, 2), in_out):
            os.dup2(kept, stream)
        sys.stdout = out
    experiment.run_condition(conditions.condition(params, "ppo_kl_0"), folder / "out")
    expected = [r for r in tables.read_table(folder / "out" / "per_seed.csv") if r["decoding"] == "plain"]
    kept = [r for r in tables.read_table(params.reports_folder / DRAWS) if r["condition"] == "ppo_kl_0"]
    assert [(r["seed"], r["split"]) for r in kept] == [(201, "test"), (201, "half")] and len(expected) == 2
    for row, whole in zip(kept, expected):
        assert row["key"] and "torch threads 1" in row.pop("machine") and row.pop("key")
        assert {"score", "judge", "human_log_perplexity"} < set(row)  # what P01's tests read
        assert row == {k: pytest.approx(whole.get(k), rel=1e-6) if isinstance(v, float) else v for k, v in row.items()}


def test_the_table_has_the_metrics_that_tests_read_and_nothing_else():
    tests = [test for known in ledger_checks.load(REPOSITORY / "claims.yaml").values() for test in known.tests]
    found = settling.columns(tests)
    assert set(found) - {*settling.NEEDED} <= set(METRICS) and {"score", "judge", "wobble", "kept_mass"} < set(found)


def test_it_goes_on_where_the_rows_end_and_then_stops(folder, monkeypatch, capsys):
    settling = Settling(load(folder), KNOWN)
    assert settling.next() == (202, list(CONDITIONS)) and "next: draw 202, 5 conditions" in settling.said()
    assert settle.run(settling, jobs=2)
    assert {r["seed"] for r in tables.read_table(settling.path)} == {201, 202}
    assert settling.next() is None and "the design is at its registered end" in settling.said()
    assert (settling.params.reports_folder / "claims" / "claims.md").is_file()
    before = settling.path.read_bytes()
    monkeypatch.setattr(settle, "ProcessPoolExecutor", None)  # whatever would start a process
    again = Settling(load(folder), KNOWN)
    capsys.readouterr()
    assert settle.run(again, jobs=2) and settling.path.read_bytes() == before
    assert "the design is at its registered end" in capsys.readouterr().out  # nothing is left to do: it says so


def test_other_settings_are_refused_and_the_rows_of_the_registered_ones_still_stand(folder, capsys):
    """A learner's setting of all, and of one condition; `status` says so and goes on."""
    changed = Settling(load(folder, gamma=0.9), KNOWN)
    with pytest.raises(ClaimError, match="^settings, code or libraries of zero_shot, .* a new registration and draws"):
        settle.run(changed, jobs=2)
    assert len(changed.table) and "no draw can be added" in changed.said() and "next" not in changed.said()
    runs = {**CHANGES["runs"], "nlpo_kl_0": {**CHANGES["runs"]["nlpo_kl_0"], "learning_rate": 1e-3}}
    with pytest.raises(ClaimError, match="libraries of nlpo_kl_0 differ from the registered ones"):
        settle.run(Settling(load(folder, runs=runs), KNOWN), jobs=2)
    assert Settling(load(folder), KNOWN).changed() == ""


def test_other_code_and_other_libraries_are_refused(folder, monkeypatch, tmp_path):
    settling, root = Settling(load(folder), KNOWN), tmp_path / "code"
    for package in ("rlnlp", "workbook"):
        shutil.copytree(REPOSITORY / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(one_draw.depends, "ROOT", root)
    assert settling.changed() == ""  # what decides the rows is all of the code that the keys look at
    path = root / "rlnlp/learners/nlpo.py"
    text = path.read_text()
    path.write_text("# a comment\n" + text)
    (root / "workbook/stages/nb.py").write_text("")  # notebooks play no part
    assert settling.changed() == ""
    path.write_text(text.replace("def collect(", "print()\n\n\ndef collect(").replace("def sync(", "def sync(x, "))
    assert settling.changed().startswith("settings, code or libraries of nlpo_kl_0, nlpo_kl_default differ")
    path.write_text("def (")
    assert "zero_shot, ppo_kl_0" in settling.changed()
    path.write_text(text)
    for file, old, new in (  # found by their names: the task, who judges
        ("workbook/texts/corpus.py", "ZIPF = 0.9", "ZIPF = 0.5"),
        ("workbook/draws/named/characters.py", "(3, 5)", "(3, 4)"),
    ):
        whole = (root / file).read_text()
        assert old in whole
        (root / file).write_text(whole.replace(old, new))
        assert "zero_shot, ppo_kl_0" in settling.changed(), file
        (root / file).write_text(whole)
    assert settling.changed() == ""
    monkeypatch.setattr(one_draw, "libraries", lambda: {"torch": "0"})
    assert "zero_shot, ppo_kl_0" in settling.changed()


def test_a_key_reads_back_as_the_text_it_is(folder, monkeypatch):
    monkeypatch.setattr(one_draw, "digest", lambda inputs: "12e4567890123456" * 4)
    key = one_draw.keys(load(folder), CONDITIONS[:1])["zero_shot"]
    tables.write_table(folder / "x.csv", [{"key": key}])
    assert tables.read_table(folder / "x.csv") == [{"key": key}]


def test_code_that_changes_while_a_draw_runs_leaves_nothing_of_it(folder, monkeypatch):
    settling = Settling(load(folder), KNOWN)
    before, made = settling.path.read_bytes(), []
    monkeypatch.setattr(settle, "_made", lambda *given: made.append(given) or [{}])
    monkeypatch.setattr(settling, "changed", lambda: "the code is another" if made else "")
    left = settling.params.scratch / "runs" / "ppo_kl_0" / "seed202-x"
    left.mkdir(parents=True)
    with pytest.raises(ClaimError, match="draw 202: nothing of it is kept: while it ran, the code is another"):
        settle.run(settling, jobs=2)
    assert len(made) == 1 and settling.path.read_bytes() == before and not left.exists()
    monkeypatch.setattr(settle, "_made", lambda *given: made.append(given) or Failed("ppo_kl_0", "SyntaxError: ("))
    made.clear()
    with pytest.raises(ClaimError, match="while it ran"):
        settle.run(settling, jobs=2)
    assert not settling.lost.exists()  # a file in the middle of an edit is no reason to lose a draw


def test_rows_that_count_no_more_are_set_aside(folder, monkeypatch):
    """A draw that is not whole runs again as a whole, and rows of other keys leave; nothing that was run is gone."""
    path = Settling(load(folder), KNOWN).path
    rows = tables.read_table(path)
    other = [{**row, "key": "another"} for row in rows if row["condition"] == "ppo_kl_0"]
    part = [row for row in rows if row["condition"] != "nlpo_kl_0"]
    tables.write_table(path, [*part, *({**row, "seed": 199} for row in other)])
    settling = Settling(load(folder), KNOWN)
    assert settling.next() == (201, list(CONDITIONS))
    assert f"{len(other)} committed rows are of other code or settings and do not count" in settling.said()
    texts = settled_texts.Texts(settling.params, settling.table).path
    lines = [
        json.dumps({"condition": name, "seed": seed, "response": "a\u2028b"}, ensure_ascii=False) + "\n"
        for name, seed in (("zero_shot", 201), ("ppo_kl_0", 202))
    ]  # a text may hold what Python splits lines at
    write_packed(texts, "".join(lines).encode())
    settling.add(201, rows)
    assert tables.read_table(path) == rows and settling.next()[0] == 202
    assert read_text(texts) == lines[1]  # a row that counts no more takes its texts with it
    aside = tables.read_table(settling.superseded)
    assert [row["seed"] for row in aside] == [201] * len(part) + [199] * len(other)
    assert aside[: len(part)] == part and list(aside[0]) == list(rows[0])
    tables.write_table(path, [*part, *({**row, "seed": 199} for row in other)])  # as a kill leaves them: in both
    again = Settling(load(folder), KNOWN)
    again.add(201, rows)
    assert tables.read_table(again.superseded) == aside


def test_a_draw_without_a_row_that_a_test_reads_is_not_added(folder):
    settling = Settling(load(folder), KNOWN)
    rows = [{**row, "seed": 202} for row in tables.read_table(settling.path)]
    before = settling.path.read_bytes()
    lacking = [row for row in rows if (row["condition"], row["split"]) != ("nlpo_kl_0", "test")]
    with pytest.raises(ClaimError, match=r"draw 202: .* that a registered test reads: nlpo_kl_0 \(plain\)$"):
        settling.add(202, lacking)
    assert settling.path.read_bytes() == before


def _train_but(params, draw, condition):
    """As `train`; what goes wrong says the file `wrong` beside the settings."""
    _, name, times = (params.folder / "wrong").read_text().split()
    tries = params.folder / f"tries-{draw}-{condition}"
    if condition == "ppo_kl_0" and draw == 202:
        tried = len(tries.read_text()) if tries.exists() else 0
        tries.write_text("x" * (tried + 1))
        if tried < int(times):
            raise getattr(builtins, name)("no such luck")
    return [{"condition": condition, "seed": draw, "split": s, "decoding": "plain"} for s in ("test", "half")]


@pytest.fixture
def going_wrong(folder, monkeypatch):
    """Draw 202 of a design with made-up rows, in which ppo_kl_0 raises an error so many times."""
    monkeypatch.setattr(settle, "build", _built)
    monkeypatch.setattr(settle, "train", _train_but)
    monkeypatch.setattr(settle, "ProcessPoolExecutor", _Threads)

    def begin(name: str, times: int) -> Settling:
        (folder / "wrong").write_text(f"raise {name} {times}")
        settling = Settling(load(folder), KNOWN)
        monkeypatch.setattr(settling, "write", lambda: None)
        return settling

    return begin


def _built(params, draw, names):
    return None


class _Threads(ThreadPoolExecutor):
    """Of this process: a process of its own imports for seconds."""

    def __init__(self, jobs, mp_context):
        super().__init__(jobs)


def test_a_run_that_raises_once_is_tried_once_more(going_wrong, capsys):
    settling = going_wrong("ZeroDivisionError", 1)
    assert settle.run(settling, jobs=2) and settling.gone == [] and not settling.lost.exists()
    assert set(settling.table.seed) == {201, 202}
    assert "draw 202: ppo_kl_0: ZeroDivisionError: no such luck; once more" in capsys.readouterr().err


def test_a_draw_in_which_a_run_raises_twice_is_lost_and_replaced(going_wrong):
    settling = going_wrong("ZeroDivisionError", 2)
    assert settle.run(settling, jobs=2)
    (lost,) = tables.read_table(settling.lost)
    assert (lost["draw"], lost["condition"]) == (202, "ppo_kl_0") and "torch threads 1" in lost["machine"]
    assert lost["error"] == "ZeroDivisionError: no such luck" and lost["key"] == settling.registered.keys["ppo_kl_0"]
    assert set(settling.table.seed) == {201, 203} and settling.design.draws == (201, 203)
    assert settling.next() is None and "lost to errors (lost.csv): draws 202" in settling.said()
    again = Settling(settling.params, KNOWN)
    assert again.next() is None and again.gone == [202]
    assert (settling.params.folder / "tries-202-ppo_kl_0").read_text() == "xx"


@pytest.mark.parametrize("name", ["FileNotFoundError", "MemoryError", "ImportError"])
def test_what_the_machine_lacks_loses_no_draw(going_wrong, name, capsys):
    settling = going_wrong(name, 1)
    assert not settle.run(settling, jobs=2) and not settling.lost.exists() and settling.next()[0] == 202
    assert "draw 202: no such luck; once that is mended, the same command goes on" in capsys.readouterr().err
    assert settle.run(settling, jobs=2) and set(settling.table.seed) == {201, 202}


def test_memory_that_torch_does_not_get_is_no_fault_of_a_draw():
    def job(said: str):
        return lambda params, draw, given: (_ for _ in ()).throw(RuntimeError(said))

    with pytest.raises(RuntimeError, match="allocate"):
        one_draw.tried(job("DefaultCPUAllocator: can't allocate memory: 9 bytes"), None, 201, "ppo_kl_0")
    assert one_draw.tried(job("odd"), None, 201, "ppo_kl_0") == Failed("ppo_kl_0", "RuntimeError: odd")


def test_it_says_where_other_code_judges_than_was_registered(folder, monkeypatch):
    settling = Settling(load(folder), KNOWN)
    assert "judged by other code" not in settling.said()
    monkeypatch.setattr(registration, "judging", lambda: "0" * 64)
    assert "judged by other code (000000000000) than that of the registration" in settling.said()


def test_a_process_that_is_ended_from_outside_loses_no_draw(folder, monkeypatch):
    settling = Settling(load(folder), KNOWN)
    monkeypatch.setattr(settle, "build", _ended)
    assert not settle.run(settling, jobs=2) and not settling.lost.exists() and settling.next()[0] == 202


def _ended(params, draw, names):
    os.kill(os.getpid(), signal.SIGKILL)


def test_an_error_of_the_models_comes_back_from_its_process(folder, monkeypatch):
    settling = Settling(load(folder), KNOWN)
    monkeypatch.setattr(settle, "build", _raises)
    assert settle.run(settling, jobs=2, draws=1) and settling.next()[0] == 203
    (lost,) = tables.read_table(settling.lost)
    assert (lost["condition"], lost["error"]) == ("models", "tests.test_settle.Odd: a text and a number")


class Odd(Exception):
    """One that cannot be sent from process to process: it is made of two things and tells one."""

    def __init__(self, text, number):
        super().__init__(text)


def _raises(params, draw, names):
    raise Odd("a text and a number", 1)


def test_what_still_runs_is_ended_with_the_draw(folder, monkeypatch):
    """One condition raises; another would run for minutes."""
    settling = Settling(load(folder), KNOWN)
    monkeypatch.setattr(settle, "build", _built)
    monkeypatch.setattr(settle, "train", _long)
    began = time.monotonic()
    assert isinstance(settle._made(settling.params, 202, ["zero_shot", "ppo_kl_0"], 2), Failed)
    assert time.monotonic() - began < 250 and not multiprocessing.active_children()


def _long(params, draw, condition):
    if condition == "ppo_kl_0":
        raise KeyError
    time.sleep(300)


def test_two_draws_in_a_row_are_not_the_draws_fault(folder, monkeypatch, capsys):
    settling = Settling(load(folder), KNOWN)
    monkeypatch.setattr(settle, "_made", lambda *given: Failed("models", "KeyError: 'x'"))
    assert not settle.run(settling, jobs=2)
    assert [(row["draw"], row["key"]) for row in tables.read_table(settling.lost)] == [(202, None)]
    assert settling.next()[0] == 203 and "two draws in a row" in capsys.readouterr().err
    settling.lose(203, Failed("models", "KeyError: 'x'"))
    assert settling.next() is None and "no registered draw is left for the next look" in settling.said()


def test_a_run_that_diverged_has_rows_whatever_its_settings_say(folder, monkeypatch):
    """Without `breaks: [finite]` it raises; that is a result, and loses no draw."""
    params = settle.of_draw(load(folder), 202)
    monkeypatch.setattr(one_draw, "_into", lambda *given: None)

    def ends(given, draw, tuned):
        raise TrainingError("update 2: no number") from cause

    monkeypatch.setattr(one_draw.experiment, "run_seed", ends)
    cause = Diverged("the loss is not finite")
    rows = one_draw.tried(one_draw.train, params, 202, "ppo_kl_0")
    assert {row["diverged"] for row in rows} == {1.0} and {row["seed"] for row in rows} == {202}
    assert {(row["split"], row["decoding"]) for row in rows} >= {
        ("test", "plain"),
        ("half", "plain"),
        ("test", "top_p"),
    }
    settling = Settling(load(folder), KNOWN)
    others = [{**r, "seed": 202} for r in tables.read_table(settling.path) if r["condition"] != "ppo_kl_0"]
    settling.add(202, [*others, *rows])
    settling.write()
    (found,) = looks.ledger(settling.design, KNOWN, settling.table, settling.params)
    assert settling.next() is None and found["word"] in OPENS
    cause = ValueError("a broken check")
    assert one_draw.tried(one_draw.train, params, 202, "ppo_kl_0") == Failed(
        "ppo_kl_0", "rlnlp.learners.common.TrainingError: update 2: no number"
    )


def test_the_page_says_how_many_draws_were_lost(folder, monkeypatch):
    settling = Settling(load(folder), KNOWN)
    rows = tables.read_table(settling.path)
    settling.lose(202, Failed("ppo_kl_0", "KeyError: 'x'"))
    settling.add(203, [{**row, "seed": 203} for row in rows])
    settling.write()
    text = (settling.params.reports_folder / "claims" / "claims.md").read_text()
    assert "Draws lost so far, because one of their runs ended twice with an error: 1. A registered" in text


def test_the_texts_of_committed_rows_are_kept_where_their_numbers_come_out_again(folder, monkeypatch, capsys):
    """Of five runs of draw 201, one row was measured elsewhere, one run broke down, one run's texts are there: two are
    kept, and once."""
    monkeypatch.setattr(settled_texts, "TEXTS_OF_A_SEED", 3)
    settling = Settling(load(folder), KNOWN)
    rows = tables.read_table(settling.path)
    next(r for r in rows if (r["condition"], r["split"]) == ("ppo_kl_default", "half"))["judge"] += 1e-6
    for row in (r for r in rows if r["condition"] == "zero_shot"):
        row["score"] = None
    tables.write_table(settling.path, rows)
    settling.read()
    there = {"condition": "nlpo_kl_0", "seed": 201}
    write_packed(settled_texts.Texts(settling.params, settling.table).path, (json.dumps(there) + "\n").encode())
    assert settled_texts.Texts(settling.params, settling.table).lacking(201) == [*CONDITIONS[1:3], "nlpo_kl_default"]
    assert not settle.texts(settling, jobs=2)
    said = capsys.readouterr()
    assert "1 run has other numbers here" in said.err and "draw 201: texts of 2 runs" in said.out
    found = settled_texts.Texts(settling.params, settling.table)
    named = ["ppo_kl_0"] * 3 + ["nlpo_kl_0"] + ["nlpo_kl_default"] * 3
    assert [text["condition"] for text in found.kept] == named and found.kept[3] == there
    of_run = found.kept[:3]
    assert len({text["prompt"] for text in of_run}) == 3 and all(text["response"].split() for text in of_run)
    assert not list((settling.params.scratch / "runs").glob("*/seed201-*"))
    assert found.lacking(201) == ["ppo_kl_default"] and found.lacking(202) == []


@pytest.fixture
def lacking_texts(going_wrong, monkeypatch):
    """A design of so many draws of one run each, whose texts are lacking, and the draws that were made."""
    monkeypatch.setattr(settled_texts, "of_run", lambda params, draw, name: [{"condition": name, "seed": draw}])

    def begin(scores, said=lambda draw: None) -> tuple[Settling, list[int]]:
        """scores: draw -> what its committed row has, where 0.5 comes out; said: what a draw comes to instead."""
        settling, made = going_wrong("ZeroDivisionError", 0), []
        row = next(r for r in settling.rows if r["condition"] == "ppo_kl_0" and r["split"] == "test")
        settling.table = pd.DataFrame([{**row, "seed": draw, "score": score} for draw, score in scores.items()])
        settling.design = settling.design.model_copy(update={"draws": tuple(scores)})

        def rows(params, draw, names, jobs):
            made.append(draw)
            return said(draw) or [{**row, "seed": draw, "score": 0.5}]

        monkeypatch.setattr(settle, "_made", rows)
        return settling, made

    return begin


def kept(settling) -> list[int]:
    return [text["seed"] for text in settled_texts.Texts(settling.params, settling.table).kept]


def test_texts_end_after_two_draws_in_a_row_that_go_wrong(lacking_texts, capsys):
    """Of five draws the first, third and fourth are of another machine: the fifth is not tried."""
    settling, made = lacking_texts({211: 1.5, 212: 0.5, 213: 1.5, 214: 1.5, 215: 1.5})
    assert not settle.texts(settling, jobs=1)
    assert made == [211, 212, 213, 214] and "two draws in a row" in capsys.readouterr().err
    assert kept(settling) == [212]


def test_texts_go_on_after_a_draw_in_which_a_run_raises_twice(lacking_texts, capsys):
    failed = Failed("ppo_kl_0", "KeyError: 'x'")
    settling, _ = lacking_texts({211: 0.5, 212: 0.5, 213: 0.5}, lambda draw: failed if draw == 212 else None)
    assert not settle.texts(settling, jobs=1) and kept(settling) == [211, 213]
    said = capsys.readouterr()
    assert "draw 212: ppo_kl_0 raised twice: KeyError: 'x'" in said.err and "draw 212: texts of 0 runs" in said.out


def test_texts_that_were_stopped_go_on_where_they_ended(lacking_texts, capsys):
    stops = [212]

    def stopped(draw):
        if draw in stops:
            stops.remove(draw)
            raise OSError("no room")

    settling, made = lacking_texts({211: 0.5, 212: 0.5, 213: 0.5}, stopped)
    assert not settle.texts(settling, jobs=1) and kept(settling) == [211]
    assert "draw 212: no room; once that is mended, the same command goes on" in capsys.readouterr().err
    assert settle.texts(settling, jobs=1) and kept(settling) == [211, 212, 213] and made == [211, 212, 212, 213]


def test_for_the_texts_of_a_run_what_it_starts_from_is_trained_too():
    runs = {"ppo": {}, "supervised": {}, "nlpo": {}, "sup_ppo": {"start": "supervised"}}
    texts = settled_texts.Texts.__new__(settled_texts.Texts)
    texts.params = SimpleNamespace(all_runs=runs)
    assert texts.needed(["sup_ppo", "ppo"]) == ["ppo", "supervised", "sup_ppo"]
    assert texts.needed(["nlpo"]) == ["nlpo"]


def test_another_rule_is_refused(folder):
    path = folder / registration.REGISTERED
    path.write_text(path.read_text().replace(load_rule(path), "0" * 64))
    with pytest.raises(ClaimError, match="not the registered one"):
        Settling(load(folder), KNOWN)


def load_rule(path) -> str:
    from ruamel.yaml import YAML

    return YAML(typ="safe").load(path.read_text())["rule"]
