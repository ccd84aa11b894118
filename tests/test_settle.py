"""A registered design run draw by draw, on tiny models: rows, keys, stops, and the end."""

from __future__ import annotations

import os
import shutil
import sys

import pytest

from tests.test_experiment import REPOSITORY, SMALL, write_params
from workbook.ledger import checks as ledger_checks
from workbook.ledger.claim import ClaimError
from workbook.runs import checks, conditions, experiment
from workbook.stages import one_draw, settle
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


def load(folder, **more):
    learner = {**SMALL["learner"], "updates": 2, **more}
    return checks.load(write_params(folder, learner=learner, **CHANGES))


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A design of two draws, of which the first is run."""
    folder = tmp_path_factory.mktemp("design")
    shutil.copy(REPOSITORY / "claims.yaml", folder)
    params = load(folder)
    settle.register(params, KNOWN, [201, 202], [2])
    assert settle.run(settle.Settling(params, KNOWN), jobs=2, draws=1)
    return folder


@pytest.fixture
def folder(begun, tmp_path):
    """A copy, to go on with."""
    shutil.copytree(begun, tmp_path / "design")
    return tmp_path / "design"


def test_a_design_is_registered_once_and_of_unseen_draws(folder, tmp_path):
    with pytest.raises(ClaimError, match="is registered already"):
        settle.register(load(folder), KNOWN, [203, 204], [2])
    (tmp_path / "other").mkdir()
    shutil.copy(REPOSITORY / "claims.yaml", tmp_path / "other")
    with pytest.raises(ClaimError, match=r"draws \[1\] of the design were seen"):
        settle.register(load(tmp_path / "other"), KNOWN, [1, 201], [2])
    with pytest.raises(ClaimError, match="expected a registered design"):
        settle.load_design(load(tmp_path / "other"), KNOWN)


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
    kept = [r for r in tables.read_table(params.reports_folder / settle.TABLE) if r["condition"] == "ppo_kl_0"]
    assert [(r["seed"], r["split"]) for r in kept] == [(201, "test"), (201, "half")] and len(expected) == 2
    for row, whole in zip(kept, expected):
        assert row["key"] and "torch threads 1" in row.pop("machine") and row.pop("key")
        assert {"score", "judge", "human_log_perplexity"} < set(row)  # what P01's tests read
        assert row == {k: pytest.approx(whole.get(k), rel=1e-6) if isinstance(v, float) else v for k, v in row.items()}


def test_it_goes_on_where_the_rows_end_and_then_stops(folder, monkeypatch):
    settling = settle.Settling(load(folder), KNOWN)
    assert settling.next() == (202, list(CONDITIONS)) and "next: draw 202, 5 conditions" in settling.said()
    assert settle.run(settling, jobs=2)
    assert {r["seed"] for r in tables.read_table(settling.path)} == {201, 202}
    assert settling.next() is None and "the design is at its end" in settling.said()
    assert (settling.params.reports_folder / "claims" / "claims.md").is_file()
    before = settling.path.read_bytes()
    monkeypatch.setattr(settle, "ProcessPoolExecutor", None)  # whatever would start a process
    again = settle.Settling(load(folder), KNOWN)
    assert settle.run(again, jobs=2) and settling.path.read_bytes() == before


def test_rows_of_other_settings_do_not_count_and_a_draw_is_of_one_machine(folder):
    changed = settle.Settling(load(folder, gamma=0.9), KNOWN)
    assert changed.next() == (201, list(CONDITIONS)) and "of other code or settings" in changed.said()
    settling = settle.Settling(load(folder), KNOWN)
    rows = tables.read_table(settling.path)
    tables.write_table(settling.path, [row for row in rows if row["condition"] != "nlpo_kl_0"])
    assert settle.Settling(load(folder), KNOWN).next() == (201, list(CONDITIONS))


def test_another_rule_is_refused(folder):
    path = folder / settle.REGISTERED
    path.write_text(path.read_text().replace(load_rule(path), "0" * 64))
    with pytest.raises(ClaimError, match="not the registered one"):
        settle.Settling(load(folder), KNOWN)


def load_rule(path) -> str:
    from ruamel.yaml import YAML

    return YAML(typ="safe").load(path.read_text())["rule"]
