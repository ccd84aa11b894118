"""The 30 traps of the original benchmark: each has a test that names it (`test_trap_N_...`) or a line why it cannot be.

`grue/traps.md` is the table, made of the names of the tests: `python -m tests.test_grue_traps` writes it anew.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
import yaml

from workbook.grue import contrasts, tasks
from workbook.grue import settings as grue
from workbook.grue.arms import arm
from workbook.grue.scores import score

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "grue" / "traps.md"
HEAD = """# The traps of the original benchmark

What went wrong in it, and what keeps it out here: a test that names the trap, or why it cannot occur.
Made of the tests' names by `python -m tests.test_grue_traps`.

"""
TRAPS = {
    1: "padding moves positions or leaks through the cross-attention's mask: log-probabilities are off",
    2: "an answer that has not ended at the horizon is paid 0; the horizon in training is not the evaluation's",
    3: "two settings of truncation: the question goes, the passage stays",
    4: "hidden or placeholder references are scored against",
    5: "one target of several is used, and the same prompt returns with another",
    6: "the same rows are in training and validation",
    7: "a reward that is shaped over the steps keeps a growing list",
    8: "the intent classifier reads another input than it learned; no constant answer stands beside it",
    9: "the penalty for copying fires on the prompt's own words, and fails on another prompt",
    10: "ROUGE-L-max is of powers of precision and recall, under the plain name",
    11: "ROUGE-Lsum without newlines is ROUGE-L",
    12: 'a score that fails is the text "n/a"',
    13: "CIDEr is keyed by the prompt, so that duplicates overwrite each other, and is 0 for one example",
    14: "TER as a reward has no bound",
    15: "PARENT is a process of its own for each episode, and reads placeholders",
    16: "the prompt has the cells twice",
    17: "a prefix that T5 was not trained with",
    18: "which turns are targets, and that <EOU> is text, is nowhere said",
    19: "a step that takes out apostrophes does nothing",
    20: "samples come from a truncated distribution and are scored under the whole one; decoding differs at evaluation",
    21: "German is scored by an English model",
    22: "the source that faithfulness is judged by has the instruction in it",
    23: "a classifier sees a whole split at once, and the scores of every step are kept",
    24: "NLPO is evaluated under its mask, PPO is not",
    25: "NLPO and PPO differ in reward, horizon or sampling beside the mask",
    26: "printed tables have cells that are copies or typing errors",
    27: "the supervised model of NarrativeQA had seen other data of its kind",
    28: "data sets are scripts, or ids without a namespace",
    29: "text that is tokenised already is tokenised again by BLEU",
    30: "the model has more logits than the tokenizer has tokens",
}
CANNOT = {
    20: "a rollout keeps the log-probability under the distribution that it was drawn from (`behavior_logprobs`); the "
    "ratio of the first minibatch is checked to be 1 at run time. Decoding does differ at evaluation, as published "
    "(beams after training on samples): every table says how its answers were decoded",
}


def naming() -> dict[int, list[str]]:
    """Trap -> the tests that name it, as file::name."""
    found: dict[int, list[str]] = {}
    for path in sorted((ROOT / "tests").glob("test_*.py")):
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.M):
            for number in re.findall(r"trap_(\d+)", name):
                found.setdefault(int(number), []).append(f"{path.name}::{name}")
    return found


def table() -> str:
    named = naming()
    lines = ["| trap | what happened | what keeps it out |", "| --- | --- | --- |"]
    for number, what in TRAPS.items():
        kept = "<br>".join(f"`{name}`" for name in named.get(number, ())) or f"cannot occur: {CANNOT.get(number)}"
        lines.append(f"| {number} | {what} | {kept} |")
    return HEAD + "\n".join(lines) + "\n"


def test_every_trap_has_a_test_that_names_it_or_a_line_why_it_cannot_occur():
    named = {number for number in naming() if number in TRAPS}
    assert [*TRAPS] == [*range(1, 31)]
    assert not named & {*CANNOT} and named | {*CANNOT} == {*TRAPS}
    assert TABLE.read_text(encoding="utf-8") == table(), "python -m tests.test_grue_traps writes it anew"


@pytest.mark.parametrize("folder", ["grue", "grue/real", "grue/paper"])
def test_trap_25_nlpo_and_ppo_differ_in_the_mask_alone(folder):
    ours = grue.load(ROOT / folder / "params.yaml")
    for name in ours.tasks:
        horizon = ours.horizon(tasks.task(name))
        ppo, nlpo = (ours.learner_of(arm(each), name, horizon).model_dump() for each in ("ppo", "nlpo"))
        assert {key for key in nlpo if key not in ppo or nlpo[key] != ppo[key]} == {
            "mask_top_p",
            "mask_min_tokens",
            "mask_source",
            "sync_every",
        }
        assert not {*ppo} - {*nlpo} and ppo["max_new_tokens"] == horizon
    assert not arm("nlpo").reward and arm("nlpo").start == arm("ppo").start and arm("nlpo").pay is arm("ppo").pay


def test_trap_26_no_verdict_reads_a_printed_table():
    """Effects are numbers of their own in contrasts.yaml; the printed tables stand under headings of their own."""
    text = (ROOT / "grue" / "contrasts.yaml").read_text(encoding="utf-8")
    sizes = [
        test.get("effect") or test.get("margin") or 0.0
        for c in yaml.safe_load(text).values()
        for test in c.get("tests", ())
    ]
    assert len(sizes) > 40 and all(isinstance(size, float) for size in sizes)
    for module in (contrasts.__file__, contrasts.__file__.replace("contrasts", "claims")):
        assert "published" not in Path(module).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*grue.load(ROOT / "grue" / "params.yaml").tasks])
def test_trap_26_no_table_that_is_shown_has_two_rows_alike_or_the_slips(name):
    """The rows that are copies are of METEOR as ToTTo's reward, the slips of ROUGE combined as NarrativeQA's: a shown
    table has neither, and none whose ROUGE-Lsum is below its ROUGE-L or whose every distinct-n is another method's."""
    for about in (tasks.task(name).published, *tasks.task(name).more):
        for method, row in about.rows.items():
            assert row.get("rouge_lsum", 1.0) >= row.get("rouge_l", 0.0), method
            assert 0.971 != row.get("bertscore"), method
        for one, other in itertools.combinations(about.rows.values(), 2):
            alike = [key for key in one if one[key] == other.get(key)]
            assert len(alike) <= len(one) / 2, alike


def test_trap_27_supervision_starts_from_the_raw_model_of_the_draw_and_the_printed_one_says_what_it_was():
    assert arm("supervised").start == "" and arm("supervised").imitates
    assert "UnifiedQA" in tasks.task("narrativeqa").published.settings["supervised"]["model"]
    for board in ("grue", "grue_real"):
        page = (ROOT / f"reports/{board}/leaderboard.md").read_text(encoding="utf-8")
        printed = page.partition("### Printed by the paper: v2, Tables 27 and 28")[2].partition("\n###")[0]
        assert "supervised lines, and RL after them, are of another model: UnifiedQA" in printed, board


def test_trap_29_bleu_of_words_leaves_tokens_as_they_are_and_every_translation_has_both():
    said, given = ["das haus ist rot ."], [["das haus ist rot."]]  # 13a parts the mark from its word
    whole, parted = (score(name).corpus(said, given) for name in ("bleu_words", "sacrebleu"))
    assert whole < 50 < parted
    for name in ("wmt16", "iwslt2017", "multi30k"):
        assert {"bleu_words", "sacrebleu"} <= {*tasks.task(name).metrics}


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
