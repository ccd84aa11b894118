"""The site's charts: their numbers are the committed tables', their names words, and each point has what hovering
shows."""

from __future__ import annotations

import itertools
import json
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import vl_convert

from workbook.figures.names import decoded, names
from workbook.figures.style import COLORS, GREY
from workbook.results import tables
from workbook.runs import algorithms, checks
from workbook.site import (
    beside,
    charts,
    claim_page,
    committed,
    forest,
    report_charts,
    sweep_charts,
    text_pages,
    texts,
    vega,
)

from .same import same_runs

ROOT = Path(__file__).resolve().parents[1]


@cache
def found() -> committed.Committed:
    return committed.read(ROOT)


@cache
def of_claims() -> dict[str, dict]:
    return {name: charts.of_claim(found(), name) for name in found().claims}


def two_runs() -> list[tuple[str, dict]]:
    """(claim, test) of the registered design's tests of one run against another."""
    rows = found().ledgers[committed.DESIGN]
    tests = [(claim, c) for claim, row in rows.items() for c in row["components"]]
    return [(claim, c) for claim, c in tests if c["kind"] == "contrast" and len(charts.parted(c)) == 2]


def test_the_mean_of_the_draws_is_the_difference_of_the_ledger():
    seen = 0
    for claim, test in two_runs():
        if rows := charts.differences(found(), committed.DESIGN, test):
            seen += 1
            assert len(rows) == test["n"], (claim, test["name"])
            mean = np.mean([row["effect"] for row in rows])
            assert mean == pytest.approx(test["effect"], abs=1e-3), (claim, test["name"])
    assert seen > 80


def test_a_test_of_more_than_two_runs_has_no_draws_of_its_own():
    test = next(c for c in found().ledgers[committed.DESIGN]["P04"]["components"] if c["kind"] == "frontier")
    assert charts.differences(found(), committed.DESIGN, test) == []


def test_every_tested_claim_has_a_chart_and_no_chart_an_id_for_a_name():
    ids = {name for runs in found().runs.values() for name in runs} - {"supervised", "bandit"}  # words as well
    for claim, made in of_claims().items():
        assert made or not found().rows(claim) or claim in ("C12", "C06"), claim
        for name, chart in made.items():
            rows = [row for data in chart["datasets"].values() for row in data]
            assert rows and 0 < len(chart["description"]) <= 1200, name  # read aloud, it has an end
            assert not {row["row"] for row in rows} & ids, name


@pytest.mark.parametrize("field", ["text", "setting", "draw", "value"])
def test_a_point_of_every_draw_says_what_it_is(field):
    chart = of_claims()["P04"]["P04-score"]
    assert all(row[field] not in ("", None) for row in chart["datasets"]["draws"])
    assert field in {tip["field"] for tip in chart["layer"][0]["encoding"]["tooltip"]}


def titles(chart) -> dict[str, str]:
    """Field -> its title, of what hovering shows anywhere in a chart."""
    tips = [one for each in chart["layer"] for one in each["encoding"].get("tooltip", ())]
    return {tip["field"]: tip["title"] for tip in tips}


def of_reports() -> dict[str, dict]:
    return {name: chart for charts_of in beside.beside(found()).values() for name, chart in charts_of.items()}


def test_a_text_is_said_to_be_of_the_plain_decoding_and_along_training_of_its_end():
    made = {name: chart for charts_of in of_claims().values() for name, chart in charts_of.items()} | of_reports()
    said = {name: titles(chart)["text"] for name, chart in made.items() if "text" in titles(chart)}
    assert len(said) > 100 and all(title.endswith("wrote (decoded plainly)") for title in said.values())
    along = {name for name, title in said.items() if title.startswith("after training")}
    assert along == {name for name in said if "-learning_curves-" in name} != set()


def test_what_a_point_stands_for_is_a_seed_where_all_share_a_base_model_and_a_draw_elsewhere():
    units = {name.partition("-")[0]: titles(chart).get("draw") for name, chart in of_reports().items()}
    assert units.pop("reviews") == "seed" and {*units.values()} - {None} == {"draw"}
    assert {titles(chart)["draws"] for name, chart in of_reports().items() if name.startswith("reviews-sampling")} <= {
        "seeds"
    }
    assert charts.quoted(found(), "reviews", "ppo_kl_0", 999).startswith("(of seed ")
    page = claim_page.page(found(), "P04", [*of_claims()["P04"]])
    assert "Each point is one training on one draw: a run that was repeated on a draw has a point for each" in page
    assert "Each point is one training on one seed" in claim_page.points(found(), {"reviews": {}})
    assert "single seeds" in claim_page.of_draws(found(), {"reviews": {}})


def test_a_repetition_is_told_by_its_name_alone():
    rows = of_claims()["P04"]["P04-score"]["datasets"]["draws"]
    again = [row for row in rows if "repetition" in row["run"]]
    assert len(again) > 100 and not [row for row in rows if "replicate" in row["setting"]]


def test_a_point_leads_to_the_texts_of_its_own_draw():
    """To an anchor of a page that is there; of every draw of the design that has texts."""
    kept, pages = found().texts["settle"], texts.pages(found())
    chart = of_claims()["P04"]["P04-score"]
    for run, seed, page in {(row["run"], row["draw"], row["page"]) for row in chart["datasets"]["draws"]}:
        run = next(name for name, called in found().names["settle"].items() if called == run)
        assert bool(page) == (seed in {text.seed for text in kept.get(run, ())}), (run, seed)
        if page:
            place, _, anchor = page.replace("*", str(seed)).partition("#")
            section = pages[place.replace(".html", ".md")].partition(f"{{ #{anchor} }}")[2].partition("\n\n**")[0]
            assert section.strip() == texts.numbered(found(), "settle", run, seed), (run, seed)
    assert not text_pages.addresses(found(), "full")
    rows = of_claims()["P04"]["P04-effects"]["datasets"]["draws"]
    assert {row["page"] for row in rows} - {""} <= {row["page"] for row in chart["datasets"]["draws"]} != {""}


def test_a_run_is_called_on_the_site_as_in_figures_and_no_two_the_same():
    for profile in found().profiles:
        params = checks.load(ROOT / committed.folder(profile) / "params.yaml")
        assert found().names[profile] == names(SimpleNamespace(params=params)), profile
        assert len({*found().names[profile].values()}) == len(found().runs[profile]), profile
    assert (
        found().names["mini"]["mask_epsilon"] == "PPO, epsilon mask 0.0000001"
    )  # a number, also where YAML 1.1 has none


def test_a_page_of_a_claim_has_names_of_runs_in_its_tables_and_ids_in_its_commands():
    for claim in found().claims:
        cells = "".join(re.findall(r"^\|.*\|$", claim_page.page(found(), claim), re.MULTILINE))
        shown = {name for name in found().names["mini"].keys() | found().names["full"].keys() if f"`{name}`" in cells}
        assert shown <= {*algorithms.names()}, claim  # a setting's value
    page = claim_page.page(found(), "P42")
    assert "| PPO, KL target 0.02 | algorithm `ppo`, kl_target `0.02` | `full` |" in page
    assert "`ppo_target_tiny` is PPO, KL target 0.02; `zero_shot` is untrained; `nlpo" in page


def test_decoding_in_words():
    assert decoded("PPO", "plain") == "PPO" and decoded("PPO", "top_p") == "PPO, decoded by top-p"


def test_numbers_have_no_powers_of_ten():
    said = " ".join(map(tables.number, (3.9e-4, -1.04e-6, 12345.0, 0.25)))
    assert said == "0.00039 −0.0000010 12000 0.250"


def test_a_text_is_of_its_draw_or_says_of_which():
    own, other = (charts.quoted(found(), "mini", "ppo_kl_0", seed) for seed in (101, 999))
    assert other == f"(of draw 101) {own}" and own.count(" → ") == 1 and "*" not in own and "\\" not in own
    assert charts.quoted(found(), "settle", "no_such_run", 101) == "no text of this run is committed"


def test_a_text_of_the_registered_design_is_of_its_own_run():
    """Those of a profile that holds runs of the design, to the digit, are the same texts."""
    of_design, full = found().texts["settle"], found().texts["full"]
    same = same_runs(found().measured["settle"], found().measured["full"])
    assert ("ppo_kl_0", 101) in same and len(same) > 200
    for name, seed in same:
        ours, theirs = ([text.line for text in kept[name] if text.seed == seed][:5] for kept in (of_design, full))
        assert ours == theirs and len(ours) == 5, (name, seed)
    own, again = (charts.quoted(found(), profile, "ppo_kl_0", 101) for profile in ("settle", "mini"))
    assert own == charts.quoted(found(), "full", "ppo_kl_0", 101) != again  # `mini` is of another processor


def test_a_long_text_is_cut():
    assert len(charts.quoted(found(), "imdb", "ppo_kl_0", 1)) <= charts.SHORT + 2


def test_a_frontiers_points_are_the_tables():
    chart = report_charts.frontier(found(), "x", "mini", ["ppo_kl_0", "ppo_kl_default"])["x-kl_deployed"]
    table = pd.read_csv(ROOT / "reports/mini/per_seed.csv", low_memory=False)
    table = table[(table.split == "test") & (table.decoding == "plain") & (table.condition == "ppo_kl_0")]
    mine = [row for row in chart["datasets"]["draws"] if row["run"] == "PPO, β = 0"]
    assert [row["y"] for row in mine] == pytest.approx(list(table.score), rel=1e-4)
    assert [row["x"] for row in mine] == pytest.approx(list(table.kl_deployed), rel=1e-4)
    mean = next(row for row in chart["datasets"]["means"] if row["run"] == "PPO, β = 0")
    assert mean["y"] == pytest.approx(table.score.mean(), rel=1e-4) and mean["draws"] == len(table)
    assert {row["line"] for row in chart["datasets"]["means"]} == {"PPO"}  # one line: they differ in β alone


def test_runs_of_an_adaptive_beta_are_one_line_of_the_frontier_along_their_targets():
    runs = ["ppo_target_high", "ppo_target_tiny", "ppo_kl_0", "ppo_kl_default", "nlpo_target_low", "zero_shot"]
    data = report_charts.frontier(found(), "x", "full", runs)["x-kl_deployed"]["datasets"]
    lines = {(mean["line"], mean["run"], mean["along"]) for mean in data["means"]}
    assert lines >= {
        ("PPO, adaptive β", "PPO, KL target 0.15", 0.15),
        ("PPO, adaptive β", "PPO, KL target 0.02", 0.02),
        ("NLPO, adaptive β", "NLPO, KL target 0.1", 0.1),
    }
    assert {line for line, *_ in lines} == {"PPO", "PPO, adaptive β", "NLPO, adaptive β", report_charts.START}


def test_a_frontier_has_the_pictures_colours_and_one_legend():
    runs = ["zero_shot", "nlpo_kl_0", "ppo_kl_0", "grpo"]
    chart = report_charts.frontier(found(), "x", "mini", runs)["x-kl_deployed"]
    (legend,) = vl_convert.vegalite_to_vega({**chart, "width": 300})["legends"]
    assert {legend[part] for part in ("fill", "stroke", "shape")} == {"color", "shape"}
    scale = chart["layer"][1]["encoding"]["color"]["scale"]
    assert dict(zip(scale["domain"], scale["range"])).items() >= {"PPO": COLORS[0], "NLPO": COLORS[1]}.items()
    assert (scale["domain"][-1], scale["range"][-1]) == ("untrained", GREY)
    axis = chart["layer"][1]["encoding"]["x"]["axis"]
    assert axis["values"][:3] == [0, 0.05, 0.1] and axis["format"] == "~g"


def test_a_long_name_of_a_row_is_in_lines_without_an_empty_one():
    long = "DQN, logits head, 24-step targets, 3 more settings"
    chart = {"data": {"values": [{"row": long, "x": 1}]}, "mark": "point", "encoding": {"x": {"field": "x"}}}
    chart["encoding"]["y"] = vega.rows_axis([long])
    drawn = vl_convert.vegalite_to_svg({"$schema": vega.SCHEMA, **chart})
    placed = r"<text[^>]*translate\(-7,([-\d.]+)\)[^>]*>((?:<tspan[^>]*>[^<]*</tspan>)+)</text>"
    at, label = re.search(placed, drawn).groups()
    height = float(re.search(r'class="background"[^>]* d="M[\d.,]+h[\d.]+v([\d.]+)h', drawn)[1])
    assert float(at) + vega.LINE == pytest.approx(height / 2 + 3, abs=0.6)  # its middle line is at the row's middle
    lines = re.findall(r"<tspan[^>]*>([^<]*)</tspan>", label)
    assert len(lines) == 3 and all(0 < len(line) <= vega.LETTERS for line in lines) and " ".join(lines) == long


def test_curves_are_of_draws_where_they_are_committed_and_else_of_their_mean():
    ours = report_charts.curves(found(), "x", "mini", ["ppo_kl_0", "ppo_gamma_050"])["x-score"]["datasets"]
    assert {line["draw"] for line in ours["lines"]} == {101, 102, 103, 104}
    assert {line["run"] for line in ours["lines"]} == {"PPO, β = 0"}  # what differs in more than β is elsewhere
    older = report_charts.curves(found(), "x", "imdb", ["ppo_kl_0"])["x-score"]["datasets"]
    assert {line["draw"] for line in older["lines"]} == {"mean of all"}
    means = pd.read_csv(ROOT / "reports/imdb/kl/curves_score.csv")
    assert [row["value"] for row in older["points"]] == pytest.approx(list(means.ppo_kl_0), rel=1e-3)


def drawn(profile: str, condition: str, decoding: str = "plain") -> pd.DataFrame:
    """The run's rows of the committed table, by draw."""
    table = found().measured[profile]
    return table[(table.condition == condition) & (table.decoding == decoding)].set_index("seed").sort_index()


def test_lines_along_beta_are_of_runs_that_have_another_beside_and_of_the_untrained_model():
    runs = ["zero_shot", "ppo_kl_0", "ppo_kl_default", "ppo_gamma_050"]
    (chart,) = report_charts.along_beta(found(), "x", "full", runs).values()
    assert {row["run"] for row in chart["datasets"]["means"]} == {"untrained", "PPO, β = 0", "PPO, β = 0.2"}


def test_at_equal_cut_a_rules_line_goes_along_its_values_and_the_share_kept_is_its_own_masks():
    shown = found().shown["follow_up"]["samplers"]
    made = report_charts.at_equal_cut(found(), "x", "follow_up", shown)
    assert list(made) == ["x-plain", "x-own"]
    kept = drawn("follow_up", "mask_top_p_050", "own").kept_mass
    for decoding in ("plain", "own"):
        rows = made[f"x-{decoding}"]["datasets"]["draws"]
        mine = [row for row in rows if row["run"] == "PPO, top-p mask 0.5"]
        score = drawn("follow_up", "mask_top_p_050", decoding).score
        assert [row["draw"] for row in mine] == list(score.index) and len(score) == 8
        assert [row["kept"] for row in mine] == pytest.approx(list(kept), rel=1e-4) and kept.max() < 0.9
        assert [row["x"] for row in mine] == pytest.approx(list(1 - kept), abs=1e-4)  # the axis runs by what is cut
        assert [row["y"] for row in mine] == pytest.approx(list(score), rel=1e-4)
        assert {(row["x"], row["kept"]) for row in rows if row["line"] == report_charts.NO_MASK} == {(0.0, 1.0)}
        assert not [row["run"] for row in rows if "delayed" in row["run"] or "numbers" in row["run"]]
        means = made[f"x-{decoding}"]["datasets"]["means"]
        assert sorted(row["along"] for row in means if row["line"] == "top-p") == [0.5, 0.7, 0.9, 0.95, 0.99]


def test_levels_are_a_row_a_run_on_reviews_in_the_reports_order():
    shown = found().shown["follow_up"]["dqn"]
    made = report_charts.levels("score", "repetition")(found(), "x", "follow_up", shown)
    assert list(made) == ["x-score", "x-repetition"]
    rows = made["x-repetition"]["datasets"]["draws"]
    mine = [row["value"] for row in rows if row["row"] == "DQN"]
    assert mine == pytest.approx(list(drawn("follow_up", "dqn_mlp").repetition), rel=1e-4)
    named = list(dict.fromkeys(row["row"] for row in rows))
    assert named == [
        found().names["follow_up"][c] for c in shown if not c.startswith("numbers") and c in found().runs["follow_up"]
    ]


def rows_of(chart, **which) -> list[dict]:
    return [row for row in chart["datasets"]["draws"] if which.items() <= row.items()]


def test_along_p_stand_the_runs_that_set_nothing_else_decoded_in_both_ways_as_in_the_table():
    shown = found().shown["full"]["mask"]
    draw = sweep_charts.along("mask_top_p", "score", decodings=("plain", "own"))
    chart = draw(found(), "x", "full", shown)["x-score"]
    values = ["0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "0.95", "0.99", "1"]
    assert chart["layer"][0]["encoding"]["x"]["sort"] == [*values, "no mask", "untrained"]
    of = {"0.3": "nlpo_p_030", "0.9": "nlpo_kl_default", "1": "nlpo_p_100"}  # 0.9 is usual, and so is β = 0.2
    for (at, run), (line, decoding) in itertools.product(
        of.items(), {"NLPO, decoded plainly": "plain", "NLPO, decoded as trained": "own"}.items()
    ):
        mine, table = rows_of(chart, at=at, line=line), drawn("full", run, decoding)
        assert [row["y"] for row in mine] == pytest.approx(list(table.score), rel=1e-4) and len(mine) == 8
        (mean,) = (row for row in chart["datasets"]["means"] if (row["at"], row["line"]) == (at, line))
        assert mean["y"] == pytest.approx(table.score.mean(), rel=1e-4) and mean["draws"] == 8
    order = [row["at"] for row in chart["datasets"]["means"] if row["line"] == "NLPO, decoded plainly"]
    assert order == values  # a line goes through them in this order
    lines = {"NLPO, decoded plainly", "NLPO, decoded as trained", "PPO", "untrained"}
    assert {row["line"] for row in chart["datasets"]["draws"]} == lines
    assert [row["y"] for row in rows_of(chart, at="no mask")] == pytest.approx(
        list(drawn("full", "ppo_kl_default").score), rel=1e-4
    )
    assert len(rows_of(chart, at="untrained")) == 8  # decoded once


def test_along_the_updates_between_refreshes_a_mask_that_is_never_refreshed_is_the_last():
    shown = found().shown["full"]["mask"]
    chart = sweep_charts.along("sync_every", "score")(found(), "x", "full", shown)["x-score"]
    assert chart["layer"][0]["encoding"]["x"]["sort"] == ["1", "2", "5", "8", "never", "no mask", "untrained"]
    never = [row["y"] for row in rows_of(chart, at="never")]
    assert never == pytest.approx(list(drawn("full", "nlpo_initial").score), rel=1e-4)
    assert sweep_charts.along("sync_every", "score")(found(), "x", "imdb", found().shown["imdb"]["mask"]) == {}


def test_along_gamma_each_learner_has_its_line_and_what_has_no_gamma_a_place_of_its_own():
    chart = sweep_charts.along("gamma", "score")(found(), "x", "full", found().shown["full"]["gamma"])["x-score"]
    assert {row["line"] for row in chart["datasets"]["draws"]} == {"PPO", "NLPO", "bandit", "untrained"}
    assert {row["run"] for row in rows_of(chart, at="one action")} == {"bandit"}
    assert {row["run"] for row in rows_of(chart, line="PPO", at="0.99")} == {"PPO, β = 0.2"}


def test_a_cell_is_what_is_gained_over_the_untrained_model_that_is_decoded_alike():
    (chart,) = sweep_charts.heat(found(), "x", "full", found().shown["full"]["sampling"]).values()
    cells = {(row["trained"], row["decoded"]): row for row in chart["datasets"]["cells"]}
    assert len(cells) == 17 and [way for way, row in cells.items() if row["own"] == "yes"] == [
        (way, way) for way in ("ancestral", "top-k", "top-p", "temperature")
    ]
    gain = drawn("full", "ppo_top_k", "top_p").score - drawn("full", "zero_shot", "top_p").score
    assert cells["top-k", "top-p"]["gain"] == pytest.approx(gain.mean(), rel=1e-3)
    scale = chart["layer"][0]["encoding"]["color"]["scale"]["domain"]
    assert chart["usermeta"] == {"colours": "own"}  # its numbers' contrast is with them: assets/site.css
    assert scale[1] < cells["ancestral", "greedy"]["gain"]  # greedy decoding does not take the scale
    half = scipy.stats.t.ppf(0.975, 7) * gain.std() / 8**0.5
    assert cells["top-k", "top-p"]["interval"] == tables.signed(gain.mean(), gain.mean() - half, gain.mean() + half)


def test_a_row_is_as_high_as_its_name():
    short, long = ["PPO"], ["PPO with dropout, pretrained with dropout, in the update only, rate 0.05"]
    assert vega.rows_height(short) == {"step": vega.ROW} and vega.rows_height([*short, *long]) == {"step": 62}
    three = ["DQN, logits head, 24-step targets, 3 more settings"]
    assert vega.rows_height(three)["step"] >= 3 * vega.LINE + 8  # the next row's name begins a line's gap below


def test_every_report_with_such_a_picture_has_charts_beside_it():
    made = beside.beside(found())
    assert {"reports/mini/kl/frontier.svg", "reports/imdb/kl/learning_curves.svg"} <= made.keys()
    assert {"reports/follow_up/dqn/levels.svg", "reports/full/mask/frontiers.svg"} <= made.keys()
    assert all(made.values()) and all((ROOT / file).is_file() for file in made)
    assert beside.FOREST in made
    assert {Path(file).with_suffix("").parts[2:] for file in made if file != beside.FOREST} == {*beside.BESIDE}


def test_the_forests_chart_has_its_headlines_in_the_ledgers_numbers():
    (chart,) = beside.beside(found())[beside.FOREST].values()
    rows, drawn = chart["datasets"]["means"], chart["datasets"]["draws"]
    assert [row["row"].partition(": ")[0] for row in rows] == [*forest.HEADLINES]
    for row in rows:
        claim, _, name = row["row"].partition(": ")
        tests = found().ledgers[committed.DESIGN][claim]["components"]
        (test,) = [test for test in tests if test["name"] == name]
        assert (row["effect"], row["published"]) == (test["effect"], test["published"]) and row["published"] is not None
        pair = test["kind"] == "contrast" and len(charts.parted(test)) == 2
        assert len([one for one in drawn if one["row"] == row["row"]]) == (test["n"] if pair else 0)
    assert len({row["row"] for row in drawn}) > 4


def read_back(fields: dict) -> list[dict]:
    """Rows, as docs/assets/charts.js makes them; that it does is seen where a browser hovers (test_site_browser)."""
    whole = {name: [at[0][i] for i in at[1]] if len(at) > 1 else at[0] for name, at in fields.items()}
    return [dict(zip(whole, row)) for row in zip(*whole.values())]


def test_a_charts_file_is_one_assignment_and_its_rows_can_be_read_back():
    rows = [{"a": "“é”", "b": 1, "c": None}, {"a": "“é”", "b": 2.5, "c": None}, {"a": "", "b": 3, "c": "x"}]
    text = vega.script("a-b", {"description": "“é”", "datasets": {"rows": rows, "none": []}})
    name, _, value = text.removeprefix("charts[").partition("] = ")
    chart = json.loads(value)
    assert json.loads(name) == "a-b" and chart["description"] == "“é”"
    assert read_back(chart["datasets"]["rows"]) == rows and read_back(chart["datasets"]["none"]) == []
    assert chart["datasets"]["rows"]["b"] == [[1, 2.5, 3]] and text.count("“é”") == 2
    of_a_report = report_charts.frontier(found(), "x", "full", ["zero_shot", "ppo_kl_0"])["x-kl_deployed"]
    packed = json.loads(vega.script("x", of_a_report).partition("] = ")[2])["datasets"]
    assert {data: read_back(fields) for data, fields in packed.items()} == of_a_report["datasets"]
