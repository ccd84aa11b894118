"""How the benchmark's scores agree with their libraries' and papers' reference numbers, as a page.

`grue/metrics.md` is the table, computed: `python -m tests.test_grue_agreement` writes it anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_grue_scores import GUIDE, GUIDES, libraries
from workbook.grue import scores as front

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "grue" / "metrics.md"
HEAD = """# The scores against their references

Ours and the reference on the same texts; the largest difference of all values. The libraries' are computed here, the
others were computed elsewhere and stand in the tests. Made by `python -m tests.test_grue_agreement`.

"""
DOGS = ["The dog is the boy 's cat .", "A boy is picking apples from trees and put them into bags ."]
OF_DOGS = [[DOGS[0], "The dog eats the cat of the boy ."], ["A boy is picking apples from trees ."]]
ELSEWHERE = {  # what needs rows or a model that are not here: what it is equal to, and where it is tested
    "parent": (
        "google-research/language, official script: 83.9412, 42.7303, 1.2032 of three answers to five real rows",
        "`test_parent.py::test_real_rows_have_the_official_scripts_values` (with a mirror)",
    ),
    "bertscore": (
        "worked out token by token on a small random BERT",
        "`test_grue_models.py::test_bertscore_is_the_similarity_worked_out_by_hand`",
    ),
    "consistency": (
        "worked out sentence by sentence on a small random classifier of pairs",
        "`test_grue_models.py::test_consistency_is_entailment_less_contradiction_of_the_best_sentences`",
    ),
}


def compared() -> Iterator[tuple[str, str, list[float], list[float]]]:
    """(score, whose reference, our values, theirs)."""
    yield from libraries()
    ours = front.score("meteor_stem").each([GUIDE] * 3, [[given] for given in GUIDES])
    yield "meteor_stem", "nltk 3.10.4, to four places", [round(value, 4) for value in ours], [*GUIDES.values()]
    cider = front.score("cider")
    ours = [*cider.each(DOGS, OF_DOGS), cider.corpus(DOGS, OF_DOGS)]
    yield "cider", "pycocoevalcap 1.2, to seven places", [round(v, 7) for v in ours], [6.2483129, 4.4923457, 5.3703293]
    # of P = 2/3 and R = 2/6, each to the power of 1/1.2
    p, r = (2 / 3) ** (1 / 1.2), (2 / 6) ** (1 / 1.2)
    ours = front.score("rouge_l_max_published").each(
        ["the cat sat", "30"], [["the cat was on the mat"], ["Thirty years old", "30"]]
    )
    yield "rouge_l_max_published", "py-rouge 1.1's formula, by hand", ours, [2 * p * r / (p + r), 1.0]


def page() -> str:
    lines = ["| score | ours | reference | whose | largest difference |", "| --- | --- | --- | --- | --- |"]
    for name, whose, ours, theirs in compared():
        apart = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
        said = (", ".join(f"{value:.4f}" for value in values) for values in (ours, theirs))
        lines.append(f"| `{name}` | {' | '.join(said)} | {whose} | {apart:.0e} |")
    lines += ["", "| score | reference | test |", "| --- | --- | --- |"]
    lines += [f"| `{name}` | {what} | {test} |" for name, (what, test) in ELSEWHERE.items()]
    lines += ["", "Absent, with the reason:", ""]
    lines += [f"- `{name}`: {why}" for name, why in front.ABSENT.items()]
    return HEAD + "\n".join(lines) + "\n"


def test_the_page_of_agreement_is_todays_and_every_difference_is_none():
    for name, _, ours, theirs in compared():
        assert ours == pytest.approx(theirs, abs=1e-9), name
        assert len({*ours}) > 1 or 0 < ours[0] < 100, name  # values that a broken score would not hit
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.test_grue_agreement writes it anew"


def test_what_is_checked_elsewhere_is_a_test_that_is_there():
    for what, named in ELSEWHERE.values():
        file, _, function = named.partition("`")[2].partition("`")[0].partition("::")
        assert f"def {function}(" in (ROOT / "tests" / file).read_text(encoding="utf-8") and what
    reference = {name for name, *_ in compared()} | {*ELSEWHERE}
    with_references = {name for name, each in front.known().items() if "references" in each.columns}
    assert with_references - reference <= {"rouge_lsum", "rouge_l_max", "meteor", "parent_precision", "parent_recall"}


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
