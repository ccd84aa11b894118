"""The table of metrics: the page of metrics is made from it, and it knows every number that runs and learners write."""

import csv
import inspect
from pathlib import Path

import pytest

from tests import golden
from workbook.results import measures
from workbook.results.measures import MEASURES, columns, label, readme, yardstick_of

ROOT = Path(__file__).parent.parent
SETTINGS = (
    "condition algorithm kl_coef kl_target learning_rate updates seed split decoding decoding_record prompts".split()
)


def test_the_page_has_the_table_of_metrics():
    text = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    assert readme(text) == text, "type: python -m workbook.results.measures"


def test_the_command_writes_the_table_between_the_marks(tmp_path):
    file = tmp_path / "README.md"
    file.write_text(f"before\n{measures.BEGIN}\nwhat stood here\n{measures.END}\nafter\n", encoding="utf-8")
    assert measures.main([str(file)]) == 0
    text = file.read_text(encoding="utf-8")
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "what stood here" not in text
    assert f"| {MEASURES['msttr'].formula} | share | more | yardsticks |" in text
    with pytest.raises(ValueError, match="expected the lines"):
        readme("no marks")


def test_the_columns_of_results_are_in_the_table():
    with open(ROOT / "reports" / "mini" / "per_seed.csv", encoding="utf-8") as file:
        written = next(csv.reader(file))
    assert sorted({*written} - {*SETTINGS}) == sorted(columns())


@pytest.mark.parametrize("name", [name for name in golden.CASES if ":" not in name and name != "best_of_n"])
def test_what_a_learner_reports_is_in_the_table(name):
    module = golden.learner(name)
    given = {**golden.SETTINGS, "warm_up": 1, **golden.CASES[name], "updates": 1}
    config = module.Config(**{k: v for k, v in given.items() if k in module.Config.model_fields})
    extra = {"tokenizer": golden.tokenizer} if "tokenizer" in inspect.signature(module.init).parameters else {}
    state = module.init(golden.policy("causal"), config, golden.SEED, **extra)
    reported = next(module.train(state, golden.examples(), lambda r: (golden.paid_at_the_end(r)[0], {}), config))
    assert {*reported} - {*MEASURES} == {"update"}


def test_labels_say_what_is_drawn():
    assert label("score") == "score (reward model)"
    assert label("kl_deployed") != label("kl_deployed", panel=True)
    assert label("judge", panel=True) == label("judge")
    assert label("gain:score") == "gain in score over untrained"
    assert label("gain:msttr") == "gain:msttr" and label("my_metric") == "my_metric"


def test_a_metric_has_its_own_yardstick_or_that_of_another():
    assert yardstick_of("score") == "score" and yardstick_of("judge") == "score" and yardstick_of("peak_kl") == "kl"
    named = {m.compared for m in MEASURES.values()} - {measures.YARDSTICK, measures.LOG_RATIO, measures.OWN_UNIT}
    assert named <= {*columns()}
    assert len(MEASURES) == len(measures.TABLE)
