"""Which picture of a report has which figures that answer the pointer beside it.

beside(read(Path(".")))["reports/full/mask/p.svg"]   # charts by name
"""

from __future__ import annotations

from collections.abc import Mapping

from workbook.site import charts, forest
from workbook.site.committed import DESIGN, Committed
from workbook.site.report_charts import Draw, against_kl, along_beta, at_equal_cut, curves, frontier, levels
from workbook.site.sweep_charts import along, heat
from workbook.site.vega import Chart

FOREST = "reports/forest.svg"
BOTH = ("plain", "own")  # a mask's runs are decoded with it and without
BESIDE: Mapping[tuple[str, str], Draw] = {
    ("kl", "learning_curves"): curves,
    ("kl", "frontier"): frontier,
    ("gamma", "gamma"): along("gamma", "score", "generation_log_perplexity"),
    ("gamma", "frontiers"): against_kl,
    ("length", "length"): levels("score", "length"),
    ("controls", "levels"): levels("score"),
    ("dropout", "dropout_policy"): levels("score"),
    ("mask", "p"): along("mask_top_p", "score", "generation_log_perplexity", decodings=BOTH),
    ("mask", "refresh"): along("sync_every", "score", "generation_log_perplexity", decodings=BOTH),
    ("mask", "frontiers"): along_beta,
    ("budget", "budget"): levels("score", "judge"),
    ("warm_start", "scores"): levels("score", "judge"),
    ("sampling", "heat"): heat,
    ("vocabulary", "vocabulary"): levels("score"),
    ("family", "frontier"): frontier,
    ("samplers", "mass"): at_equal_cut,
    ("dqn", "levels"): levels("score", "generation_log_perplexity"),
    ("dqn", "language"): levels("repetition"),
}


def beside(found: Committed) -> dict[str, dict[str, Chart]]:
    """Picture of a report -> the charts that show the same; of every profile that has the picture, and runs that it
    shows, and of the forest its headlines."""
    made = {}
    for profile in found.profiles:
        for (report, picture), draw in BESIDE.items():
            file = f"reports/{profile}/{report}/{picture}.svg"
            if (found.root / file).is_file():
                made[file] = draw(found, f"{profile}-{report}-{picture}", profile, found.shown[profile][report])
    headlines = [(f"{claim}: {test['name']}", DESIGN, test) for claim, test in forest.split(found)[0]]
    made[FOREST] = charts.effects(found, "forest", headlines)
    return {file: drawn for file, drawn in made.items() if drawn}
