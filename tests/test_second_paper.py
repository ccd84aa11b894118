"""The second paper's reports on invented results whose truth is planted: what they group, count, say and draw."""

import json
import math
import subprocess
import sys
from functools import cache

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

import rlnlp.config
from rlnlp import ablation_report, ablations, answers, drawing, plots, second_paper, second_plots, stats
from rlnlp.second_paper import NONE
from rlnlp.tables import signed
from tests.second_results import ROOT, make
from tests.test_plots import assert_apart, assert_readable, draw, texts_of

SEEDS = {"mini": (1, 2, 3, 4, 5), "follow_up": (1, 2, 3)}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """(profile, report) -> its results, read anew: a test may change the tables."""
    paths = {p: make(tmp_path_factory.mktemp(p), p, seeds) for p, seeds in SEEDS.items()}
    return lambda profile, name: ablations.load(rlnlp.config.load(paths[profile]), name)


@pytest.fixture(scope="module")
def loaded(fresh):
    return cache(fresh)


@pytest.fixture(scope="module")
def drawn(loaded):
    return cache(lambda profile, name: draw(loaded(profile, name), name))


def put(results, condition: str, metric: str, change, decoding: str = "plain") -> None:
    """Change a metric of a condition in the table; before anything was read from it."""
    at = (results.per_seed.condition == condition) & (results.per_seed.decoding == decoding)
    assert at.any()
    results.per_seed.loc[at, metric] = change(results.per_seed.loc[at, metric])


# what the runs are ---------------------------------------------------------------------------------------------------


def test_samplers_run_from_what_cuts_most_to_nothing(loaded):
    found = {s.label: s for s in second_paper.swept(loaded("follow_up", "samplers"))}
    assert list(found) == ["top-p", "typical", "ε", "η", "mirostat", "min-p", "top-k"]
    assert found["top-p"].x == (0.5, 0.7, 0.9, 0.95, 0.99, NONE) and found["ε"].x == (1e-2, 1e-3, 1e-4, 1e-7, NONE)
    assert {s.conditions[-1] for s in found.values()} == {"ppo_kl_default"}
    assert not [c for s in found.values() for c in s.conditions if "delayed" in c or c.startswith("numbers")]
    on_numbers = {s.label: s for s in second_paper.swept(loaded("follow_up", "samplers"), "numbers")}
    assert on_numbers["η"].x == (4e-3, 2e-3, 9e-4, 6e-4, 3e-4, NONE) and on_numbers["η"].conditions[-1] == "numbers_ppo"
    assert second_paper.sweeps(loaded("mini", "samplers")) == [] and len(second_paper.swept(loaded("mini", "samplers"))) == 5


def test_the_usual_values_and_their_delayed_twins(loaded):
    results = loaded("follow_up", "samplers")
    assert second_paper.usual_masks(results) == {
        "top-p": "mask_top_p", "typical": "mask_typical", "ε": "mask_epsilon", "η": "mask_eta", "mirostat": "mask_mirostat",
        "min-p": "mask_min_p", "top-k": "mask_top_k",
    }  # fmt: skip
    pairs = second_paper.delayed(results)
    assert list(pairs) == ["top-p", "typical", "ε", "η", "mirostat"] and pairs["η"] == ("mask_eta_delayed", "mask_eta")
    assert second_paper.mask_rows(results)[:5] == ["zero_shot", "ppo_kl_default", "ppo_top_p", "mask_top_p", "mask_top_p_delayed"]


def test_names_of_conditions_mean_nothing(tmp_path):
    """The value of a mask is what its config says, whatever the run is called."""
    path = make(tmp_path, "mini", (1, 2))
    file = tmp_path / "runs/mask_epsilon/config.json"
    raw = json.loads(file.read_text())
    raw["learner"] |= {"mask_rule": "top_p", "mask_value": 0.5}
    file.write_text(json.dumps(raw))
    found = {s.label: s for s in second_paper.swept(ablations.load(rlnlp.config.load(path), "samplers"))}
    assert found["top-p"].x == (0.5, 0.95, NONE) and found["top-p"].conditions[0] == "mask_epsilon" and "ε" not in found


def test_at_equal_mass_is_the_mean_gap_of_two_interpolated_lines(fresh):
    results = fresh("follow_up", "samplers")
    for c in second_paper.sweeps(results)[2].conditions[:-1]:  # ε
        put(results, c, "score", lambda v: v + 0.05)
    found = second_paper.at_equal_mass(results, "score")
    arms = {s.label: s.conditions for s in second_paper.sweeps(results)}
    cells = results.per_seed.set_index(["condition", "decoding", "seed"])
    gaps = []
    for seed in results.seeds:
        lines = []
        for label in ("ε", "top-p"):
            points = sorted((cells.kept_mass[c, "own", seed], cells.score[c, "plain", seed]) for c in arms[label])
            lines.append(tuple(zip(*points)))
        low, high = max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines)
        grid = np.linspace(low, high, 21)
        gaps.append(np.mean(np.interp(grid, *lines[0]) - np.interp(grid, *lines[1])))
    assert found["ε"].difference == pytest.approx(np.mean(gaps), abs=1e-9) and found["ε"].difference > 0.03
    assert "top-p" not in found and "top-k" not in found  # three masses only: no curve


def test_the_mask_of_ppo_keeps_everything_where_nothing_was_measured(fresh):
    results = fresh("follow_up", "samplers")
    put(results, "ppo_kl_default", "kept_mass", lambda v: np.nan, "own")
    assert second_paper.kept_mass(results, "ppo_kl_default").tolist() == [1.0] * 3
    put(results, "mask_top_p_050", "kept_mass", lambda v: np.nan, "own")
    results.__dict__.pop("_cells_of")
    assert second_paper.at_mass(results)[0].conditions == (
        "mask_top_p_070", "mask_top_p_090", "mask_top_p", "mask_top_p_099", "ppo_kl_default",
    )  # fmt: skip


def test_what_a_run_used_is_counted_from_its_curve(loaded):
    results = loaded("mini", "dqn")
    ppo, dqn = (results.configs[c]["learner"] for c in ("ppo_kl_default", "dqn_mlp"))
    each = np.mean([20 + s % 2 for s in results.seeds])  # tokens of an episode, as invented
    tokens = second_paper.used(results, "ppo_kl_default", "tokens")
    assert tokens.loc[[1, 5]].tolist() == pytest.approx([each * ppo["episodes_per_update"] * u for u in (1, 5)])
    assert second_paper.used(results, "ppo_kl_default", "gradient_steps").loc[[1, 5]].tolist() == [4, 20]  # 2 epochs of 2 minibatches
    assert second_paper.used(results, "dqn_mlp", "gradient_steps").loc[[1, 2, 5]].tolist() == [0, dqn["gradient_steps"], 4 * dqn["gradient_steps"]]
    assert second_paper.used(results, "sac", "gradient_steps").loc[3] == 3 * results.configs["sac"]["learner"]["gradient_steps"]  # reports none
    assert second_paper.used(loaded("mini", "family"), "reinforce", "gradient_steps").loc[3] == 3
    with pytest.raises(ValueError, match="unit: expected tokens or gradient_steps, found 'hours'"):
        second_paper.used(results, "dqn_mlp", "hours")


def test_dqn_along_the_penalty_and_part_by_part(loaded):
    results = loaded("follow_up", "dqn")
    mlp, best = second_paper.penalty_lines(results)
    assert mlp.x == (0.0, 1e-3, 1e-2, 0.1, 1.0) and mlp.conditions[0] == "dqn_mlp" and mlp.label == "MLP head, 1-step returns"
    assert best.conditions == ("dqn_best", "dqn_best_kl")
    assert {p[1] for p in second_paper.dqn_pairs(results)} < set(second_paper.variants(results))
    assert not [c for c in second_paper.dqn_rows(results) if c.startswith("numbers")]
    mini = second_paper.dqn_pairs(loaded("mini", "dqn"))
    assert [p[1:3] for p in mini] == [("dqn_logits", "dqn_mlp"), ("dqn_mlp_kl_001", "dqn_mlp"), ("dqn_best", "dqn_mlp")]
    assert [p[2] for p in second_paper.ppo_pairs(loaded("mini", "dqn"))] == ["ppo_kl_default"] * 3


def test_the_family_has_a_run_of_each_learner_in_each_world(loaded):
    results = loaded("follow_up", "family")
    everyone = ["PPO", "NLPO", "A2C", "TRPO", "REINFORCE", "RLOO", "GRPO"]
    assert list(second_paper.members(results)) == list(second_paper.members(results, "numbers")) == everyone
    assert second_paper.members(results)["PPO"] == "ppo_kl_default" and second_paper.members(results, "numbers")["PPO"] == "numbers_ppo"
    assert second_paper.members(results, "numbers", "pairs_end") == {"PPO": "numbers_ppo_end"}
    assert second_paper.payments(results, "numbers") == ["pairs", "pairs_end", "prefix_token", "prefix"]
    assert second_paper.members(loaded("mini", "dqn"), "numbers") == {}


def test_medians_over_seeds_and_the_seeds_that_arrive(fresh):
    results = fresh("mini", "family")
    scores = [0.2, 0.95, 0.91, 0.9, 0.4]
    put(results, "numbers_a2c", "score", lambda v: scores, "own")
    row = second_paper.finals(results).loc["numbers_a2c"]
    assert (row["median"], row.reached, row.n) == (0.9, 3, 5)  # a mean would say 0.672
    assert second_paper.finals_table(results).loc["numbers_a2c"].tolist()[2:] == ["0.900", "3 of 5"]
    assert set(second_paper.finals(results).index) == {c for c in results.conditions if c.startswith("numbers_")} - {"numbers_zero_shot"}


def test_some_dqn_is_better_only_if_both_intervals_say_so(fresh, tmp_path):
    results = fresh("mini", "dqn")
    found = {b.condition: b for b in second_paper.better(results, "plain")}
    assert {c: b.holds for c, b in found.items()} == {"dqn_mlp": False, "dqn_logits": True, "dqn_best": True, "dqn_mlp_kl_001": False}
    gap = results.values("dqn_best", "score") - results.values("zero_shot", "score")
    assert found["dqn_best"].score.difference == pytest.approx(gap.mean())
    strange = fresh("mini", "dqn")
    put(strange, "dqn_best", "generation_log_perplexity", lambda v: v + math.log(2) - 0.25)  # 0.3 above before: now past twice
    assert {b.condition for b in second_paper.better(strange, "plain") if b.holds} == {"dqn_logits"}
    assert {b.condition for b in second_paper.better(strange, "own") if b.holds} == {"dqn_logits", "dqn_best"}
    few = ablations.load(rlnlp.config.load(make(tmp_path, "mini", (1, 2))), "dqn")
    assert {b.holds for b in second_paper.better(few, "plain")} == {None}
    assert "a question that so few seeds cannot answer" in answers.answer(few, "dqn")


# worlds do not mix ---------------------------------------------------------------------------------------------------


def test_a_worlds_start_and_lines_are_its_own(loaded):
    results = loaded("follow_up", "family")
    assert ablations.worlds(results) == ["", "dates", "numbers"]
    assert [ablations.untrained(results, world=w) for w in ("", "numbers", "dates")] == ["zero_shot", "numbers_zero_shot", "dates_zero_shot"]
    gain = ablations.measure(results, "numbers_ppo", "gain:score")
    np.testing.assert_allclose(gain, results.values("numbers_ppo", "score") - results.values("numbers_zero_shot", "score"))
    everywhere = [c for s in ablations.lines(results, "gamma") for c in s.conditions]
    assert "ppo_kl_default" in everywhere and not [c for c in everywhere if ablations.world_of(results, c)]


def test_scores_of_two_worlds_are_never_set_beside_each_other(loaded):
    results = loaded("mini", "family")
    with pytest.raises(ValueError, match=r"scores of different worlds do not compare: a2c \(reviews\), numbers_a2c \(numbers\)"):
        plots.arms(results, ["a2c", "numbers_a2c"], ("score",), "mixed")
    tables = {w: ablation_report.summary_table(results, "family", "plain", w) for w in ablations.worlds(results)}
    assert not set(tables[""].index) & set(tables["numbers"].index) and sum(map(len, tables.values())) == len(results.conditions)
    assert "human_log_perplexity" in tables[""] and "human_log_perplexity" not in tables["numbers"]


# answers and files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", second_paper.NAMES)
@pytest.mark.parametrize("profile", SEEDS)
def test_the_answer_is_two_sentences_with_n_and_intervals(loaded, profile, name):
    text = answers.answer(loaded(profile, name), name)
    assert text.startswith("**Answer.** ") and text.count(". ") == 1
    assert text.endswith(f"(n = {len(SEEDS[profile])} seeds; in brackets: 95 % intervals).")
    assert "[" in text and "None" not in text and "nan" not in text


def test_the_answers_numbers_are_those_of_the_tables(loaded):
    results = loaded("mini", "samplers")
    gap = stats.paired(results.values("mask_eta", "score"), results.values("ppo_kl_default", "score"))
    assert f"η {signed(gap.difference, gap.low, gap.high)}" in answers.answer(results, "samplers").partition("; the log-perplexity")[0]
    own = stats.paired(results.values("mask_eta", "score", "own"), results.values("ppo_kl_default", "score"))
    assert f"η {signed(own.difference, own.low, own.high)}" in answers.answer(results, "samplers").partition("decoded through the mask, the score rises")[2]
    late = stats.paired(results.values("mask_eta_delayed", "wobble"), results.values("mask_eta", "wobble"))
    assert f"η {signed(late.difference, late.low, late.high)}" in answers.answer(results, "samplers").partition("the wobble of training falls")[2]
    results = loaded("mini", "dqn")
    greedy, plain = (results.values("zero_shot", "score", d).mean() for d in ("greedy", "plain"))
    assert f"without any training, scores {greedy:.3f} where plain decoding scores {plain:.3f}" in answers.answer(results, "dqn")
    assert "no sampler's values were swept on reviews" in answers.answer(loaded("mini", "samplers"), "samplers")
    follow_up = answers.answer(loaded("follow_up", "samplers"), "samplers")
    assert "were swept" not in follow_up and "at equal kept mass the score differs from top-p's by" in follow_up


PLANTED = [  # report, condition, metric, decoding, words that must come
    ("samplers", "mask_top_p", "score", "plain", "decoded plainly, the score rises (top-p +0.2"),
    ("samplers", "mask_eta_delayed", "wobble", "plain", "rises (η +0.2"),
    ("dqn", "dqn_mlp_kl_001", "score", "plain", "a KL of 0.01 in the reward +0.2"),
    ("dqn", "dqn_mlp", "score", "own", "by its best token, by `dqn_logits`"),
    ("family", "a2c", "score", "plain", "A2C +0.1"),
    ("family", "numbers_trpo", "score", "own", "TRPO 1.1"),
]


@pytest.mark.parametrize(("name", "condition", "metric", "decoding", "words"), PLANTED)
def test_other_numbers_give_another_answer(fresh, loaded, name, condition, metric, decoding, words):
    before, results = answers.answer(loaded("mini", name), name), fresh("mini", name)
    assert results.seeds == [1, 2, 3, 4, 5]
    put(results, condition, metric, lambda v: v + 0.25, decoding)
    after = answers.answer(results, name)
    assert words in after and (condition == "dqn_mlp" or words not in before)


def test_a_winner_that_loses_is_no_longer_named(fresh):
    results = fresh("mini", "dqn")
    for c in ("dqn_logits", "dqn_best"):
        put(results, c, "score", lambda v: v - 0.5)
    text = answers.answer(results, "dqn")
    assert "decoded plainly, by none of 4 (of them `dqn_mlp" in text and "by its best token, by `dqn_logits`" in text


def test_missing_runs_are_named_and_nothing_fails(tmp_path):
    gone = ("ppo_kl_default", "mask_top_p", "dqn_mlp", "numbers_zero_shot", "grpo")
    params = rlnlp.config.load(make(tmp_path, "mini", (1, 2, 3), leave_out=gone))
    for name in second_paper.NAMES:
        results = ablations.load(params, name)
        text, facts = ablation_report.write(results, name, tmp_path / name)
        assert text.startswith("**MISSING: ") and set(facts["missing"]) == set(gone) & set(params.reports[name].conditions)
        made = draw(results, name)
        assert all("MISSING: ppo_kl_default" in f.get_label() for f in made.values())
        table = ablation_report.summary_table(results, name, "plain", "")
        assert set(table.loc["ppo_kl_default"]) == {"MISSING"} and "numbers_zero_shot" not in table.index


def test_files_are_the_same_for_the_same_results(fresh, tmp_path):
    for folder in ("one", "two"):
        ablation_report.write(fresh("mini", "family"), "family", tmp_path / folder)
    files = sorted(p.name for p in (tmp_path / "one").iterdir())
    assert files == ["metrics.json", "samples.md", "verdict.json", "verdict.md"]
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file
    samples = (tmp_path / "one" / "samples.md").read_text()
    assert "## untrained" in samples and "## numbers_zero_shot" in samples and "the score of numbers" in samples
    shown = (tmp_path / "one" / "verdict.md").read_text()
    assert "## On reviews: every condition" in shown and "## On numbers: every condition" in shown


def test_the_replays_memory_is_counted_per_token(loaded):
    table = second_paper.memory_table(loaded("follow_up", "dqn"))
    buffer = loaded("follow_up", "dqn").configs["dqn_mlp"]["learner"]["buffer"]
    row = table.loc[f"{buffer:,} tokens"]
    assert row["MB"] == f"{buffer * 16 / 1e6:,.1f}"  # id, reward, prompt: 4 bytes; 2 places: 2
    assert row["MB with logits"] == f"{buffer * (16 + 4 * 713) / 1e6:,.1f}" and "dqn_mlp" in row["runs"] and "ppo" not in row["runs"]


# figures -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", second_paper.NAMES)
@pytest.mark.parametrize("profile", SEEDS)
def test_figures_of_every_report_can_be_read(drawn, loaded, profile, name):
    made = drawn(profile, name)
    assert len(made) >= 6 and all(len(f.get_label()) > 40 for f in made.values())
    if profile == "follow_up":  # the fuller ones; laying out a picture takes longest
        assert_readable(made, loaded(profile, name))
        assert_apart(made)


def said(figure: Figure) -> str:
    return " ".join(t.get_text().replace("\n", " ") for t in texts_of(figure))


def test_what_mini_does_not_run_is_said_in_the_picture(drawn):
    for name, kinds in {"samplers": ("values", "mass", "numbers"), "dqn": ("finals_numbers",)}.items():
        for kind in kinds:
            assert "Not run in this profile" in said(drawn("mini", name)[kind]), kind
    assert "Not run" not in said(drawn("follow_up", "samplers")["values"])


def test_a_panel_per_sampler_goes_through_the_means(drawn, loaded):
    results, figure = loaded("follow_up", "samplers"), drawn("follow_up", "samplers")["values"]
    for axis, item in zip(figure.axes, second_paper.sweeps(results)):
        lines = [line for line in axis.lines if line.get_marker() in ("o", "s")]
        for line, decoding in zip(lines, ("plain", "own")):
            np.testing.assert_allclose(line.get_ydata(), [results.values(c, "score", decoding).mean() for c in item.conditions])
        assert [t.get_text() for t in axis.get_xticklabels()] == [*(f"{x:g}" for x in item.x[:-1]), "none"]
    assert figure.axes[0].get_ylabel() == "score (reward model)"
    assert drawn("follow_up", "samplers")["numbers"].axes[0].get_ylabel() == "score of the numbers"


def test_samplers_stand_at_the_mass_they_keep(loaded):
    results = loaded("follow_up", "samplers")
    axis = second_plots.at_mass(results, ("repetition",), decoding="own").axes[0]
    line = next(line for line in axis.lines if line.get_marker() == "o")
    arms = ("mask_top_p_050", "mask_top_p_070", "mask_top_p_090", "mask_top_p", "mask_top_p_099", "ppo_kl_default")
    cut = [0.7 * (1 - p) for p in (0.5, 0.7, 0.9, 0.95, 0.99)]  # as invented; nothing is cut without a mask
    np.testing.assert_allclose(line.get_xdata(), [*(-np.log10(cut)), 4.0])
    np.testing.assert_allclose(line.get_ydata(), [results.values(c, "repetition", "own").mean() for c in arms])


def test_the_large_point_on_numbers_is_the_median(fresh):
    results = fresh("mini", "family")
    put(results, "numbers_ppo", "score", lambda v: [0.1, 0.2, 0.93, 0.94, 0.95], "own")
    figure = second_plots.finals(results)
    axis = figure.axes[0]
    row = [t.get_text() for t in axis.get_yticklabels()].index("PPO (numbers_ppo)")
    large = [c.get_offsets() for c in axis.collections if c.get_sizes()[0] > 40]
    assert [x for at in large for x, y in at if y == row] == [0.93]
    assert any(set(line.get_xdata()) == {0.9} for line in axis.lines) and "numbers_ppo: median 0.930, 3 of 5 seeds" in figure.get_label()


def test_curves_stand_at_what_they_used(loaded):
    results = loaded("mini", "dqn")
    for unit in ("tokens", "gradient_steps"):
        figure = plots.training(results, {"all": {"PPO": "ppo_kl_default", "DQN": "dqn_mlp"}}, "objective/score", x=unit)
        for line, condition in zip(figure.axes[0].lines, ("ppo_kl_default", "dqn_mlp")):
            np.testing.assert_allclose(line.get_xdata(), second_paper.used(results, condition, unit))
        assert figure.axes[0].get_xlabel() == drawing.LABELS[unit]


def test_greedy_zero_shot_is_marked_as_a_trap(drawn, loaded):
    results, figure = loaded("mini", "dqn"), drawn("mini", "dqn")["levels"]
    dotted = [line for line in figure.axes[0].lines if line.get_linestyle() == ":"]
    assert [set(line.get_xdata()) for line in dotted] == [{results.values("zero_shot", "score", "greedy").mean()}]
    assert "Dotted: zero-shot, by greedy decoding." in said(figure)
    assert not [line for line in figure.axes[2].lines if line.get_linestyle() == ":"]  # no decoding changes the human perplexity


def test_the_penalty_has_a_logarithmic_axis(drawn):
    axis = drawn("follow_up", "dqn")["penalty"].axes[0]
    at = dict(zip([t.get_text() for t in axis.get_xticklabels()], axis.get_xticks()))
    assert at["0"] == 0 and at["0.001"] == 1 and at["0.01"] == 2 and at["1"] == 4
    assert at["0.05"] == pytest.approx(2 + math.log10(5))


def test_what_no_run_has_measured_has_no_row(drawn):
    rows = [t.get_text() for t in drawn("mini", "samplers")["variance"].axes[0].get_yticklabels()]
    assert "zero_shot" not in rows and "mask_eta_delayed" in rows
    assert "zero-shot" not in said(drawn("mini", "samplers")["variance"])


def test_learners_can_be_told_apart_without_colour(drawn):
    axis = drawn("follow_up", "family")["frontier"].axes[0]
    markers = [line.get_marker() for line in axis.lines if line.get_marker() not in ("", "None", None)]
    assert len(markers) == len(set(markers)) == 7
    lines = drawn("follow_up", "family")["numbers"].axes[0].lines
    assert len({str(line._unscaled_dash_pattern) for line in lines if len(line.get_xdata()) > 2}) == 7
    assert mpl.colors.to_hex(lines[0].get_color()) == drawing.COLORS[0].lower()


@pytest.mark.slow
@pytest.mark.parametrize("name", second_paper.NAMES)
def test_the_notebook_runs_as_the_pipeline_runs_it(tmp_path, name):
    make(tmp_path, "mini", (1, 2))
    out = tmp_path / "reports" / "mini" / name
    done = subprocess.run(
        [sys.executable, "-m", "rlnlp.nb", "run", str(ROOT / f"notebooks/report_{name}.ipynb"), str(out / "report.ipynb"), "--html", str(out / "report.html")],
        check=False, cwd=tmp_path, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    outputs = [o for c in json.loads((out / "report.ipynb").read_text())["cells"] if c["cell_type"] == "code" for o in c["outputs"]]
    pictures = [o for o in outputs if "image/png" in o.get("data", {})]
    assert pictures and all(o["metadata"]["image/png"]["alt"] for o in pictures)
    assert "".join(outputs[0]["data"]["text/markdown"]).startswith("**Answer.**")
    assert {p.name for p in out.glob("*.png")} == {f"{key}.png" for key in json.loads((out / "alt.json").read_text())}
