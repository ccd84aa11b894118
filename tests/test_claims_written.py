"""The hash of the rule, and what is written: tables, pages, profiles side by side."""

import csv
import dataclasses
import json
import re
import subprocess

import pytest

from tests.claims_made import MASKS, RANK, ROOT, ROWS, SHIPPED, TOP_K, TOP_P, arms, claim, contrast, results
from workbook.ledger import __main__ as command
from workbook.ledger import checks, combine, judge, looks, page, published, ruling
from workbook.ledger.claim import Claim
from workbook.ledger.ruling import AWAITING, ELSEWHERE, RULE
from workbook.statistics.rule import (
    HOLDS,
    OPEN_FOR,
    OPPOSITE,
)

# the hash ------------------------------------------------------------------------------------------------------------


def test_the_hash_changes_exactly_if_a_test_does(monkeypatch):
    base = {"Z01": claim(contrast(published={"a": 1, "b": -1}, effect="published"), published=ROWS)}
    before = ruling.rule_hash(base)
    assert re.fullmatch(r"[0-9a-f]{64}", before)
    changed = base["Z01"].model_dump()
    prose = {
        **changed,
        "claim": "another way to say it",
        "traps": "more",
        "report": "kl",
        "tests": [{**changed["tests"][0], "name": "n"}],
    }
    assert ruling.rule_hash({"Z01": Claim.model_validate(prose)}) == before
    assert ruling.rule_hash({**base, "Z02": claim(awaiting=["dqn"])}) == before
    plain = {**changed["tests"][0], "effect": 0.3}
    unchanged = ruling.rule_hash({"Z01": Claim.model_validate({**changed, "tests": [plain]})})
    masks_ = claim({"name": "m", **MASKS, "first": [*TOP_P, *TOP_K], "second": [*TOP_P, *TOP_K]}).model_dump()
    rank = claim(RANK).model_dump()
    for whole, field, value in ((masks_, "along", "kl_deployed"), (rank, "second_metric", "judge")):
        other = {**whole, "tests": [{**whole["tests"][0], field: value}]}
        assert ruling.rule_hash({"Z01": Claim.model_validate(whole)}) != ruling.rule_hash(
            {"Z01": Claim.model_validate(other)}
        )
    for field, value in {
        "direction": "less",
        "effect": 0.2,
        "role": "beside",
        "decoding": "own",
        "metric": "judge",
        "terms": {"ppo_gamma_100": 1, "ppo_gamma_090": -1},
    }.items():
        other = Claim.model_validate({**changed, "tests": [{**plain, field: value}, contrast(name="another")]})
        same = Claim.model_validate({**changed, "tests": [plain, contrast(name="another")]})
        assert ruling.rule_hash({"Z01": other}) not in (before, unchanged, ruling.rule_hash({"Z01": same})), field
    assert ruling.rule_hash({"Z01": Claim.model_validate({**changed, "decided_by": "any"})}) != before
    rows = {**ROWS, "a": {"score": [0.7, 0.1], "n": 5}}  # another effect is stated
    assert ruling.rule_hash({"Z01": Claim.model_validate({**changed, "published": rows})}) != before
    monkeypatch.setattr(ruling, "RULE", RULE + " And more.")
    assert ruling.rule_hash(base) != before


def test_the_hash_is_of_what_was_read_and_not_of_what_a_processor_makes_of_it(monkeypatch):
    """Half of a published trend is a least-squares fit, whose last digit differs between processors."""
    before = ruling.rule_hash(SHIPPED)
    weights = published.weights
    monkeypatch.setattr(published, "weights", lambda kind, levels: weights(kind, levels) * (1 + 1e-15))
    trend = next(t for t in SHIPPED["P19"].tests if t.effect == "published")
    assert published.stated(trend, SHIPPED["P19"]) != pytest.approx(0, abs=1e-3)
    assert ruling.rule_hash(SHIPPED) == before
    again = checks.load(ROOT / "claims.yaml")
    assert ruling.rule_hash(dict(reversed(again.items()))) == before


# what is written -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows():
    waiting = claim(awaiting=["a learner"]).replace(id="Z00")
    known = {
        **SHIPPED,
        "Z00": waiting,
        "Z01": claim(contrast()),
        "Z02": claim(contrast(direction="less")).replace(id="Z02"),
    }
    return judge.ledger(known, results(arms(0.3)), ["Z01", "Z02"])


def test_the_ledger_has_a_row_for_every_claim(rows):
    assert [row["id"] for row in rows] == [*SHIPPED, "Z00", "Z01", "Z02"]
    assert judge.summary(rows)[HOLDS] == judge.summary(rows)[OPPOSITE] == 1
    assert sum(judge.summary(rows).values()) == len(rows)
    assert judge.summary(rows)[AWAITING] == 1
    p42 = next(row for row in rows if row["id"] == "P42")
    assert "needs the run ppo_target_tiny" in p42["sentence"]


def test_the_same_rows_give_the_same_bytes_and_read_back(rows, tmp_path):
    page.write(rows, tmp_path / "one")
    page.write(rows, tmp_path / "two")
    for name in ("claims.csv", "claims.json", "claims.md"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert json.loads((tmp_path / "one" / "claims.json").read_text())["rows"] == json.loads(json.dumps(rows))
    with open(tmp_path / "one" / "claims.csv", newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [line["id"] for line in lines] == [row["id"] for row in rows for _ in (row["components"] or [0])]
    planted = next(line for line in lines if line["id"] == "Z01")
    assert float(planted["effect"]) == pytest.approx(0.6)
    text = (tmp_path / "one" / "claims.md").read_text()
    assert rows[0]["rule"][:12] in text and f"[The rule]({page.PLACE})" in text and RULE not in text
    assert RULE in (said := combine.rule_page([rows[0]["rule"]])) and rows[0]["rule"][:12] in said


def test_profiles_stand_side_by_side_and_another_rule_is_named(rows, tmp_path):
    other = [
        {**row, "word": OPEN_FOR, "rule": "0" * 64} if row["id"] == "Z01" else {**row, "rule": "0" * 64} for row in rows
    ]
    page.write(rows, tmp_path / "mini" / "claims")
    page.write(other[:-1], tmp_path / "full" / "claims")
    assert command.main(["combine", "--reports", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "claims.json").read_text())
    z01, z02 = found["rows"][-2:]
    assert z01["words"] == {"full": OPEN_FOR, "mini": HOLDS}
    assert z02["words"] == {"mini": OPPOSITE}
    text = (tmp_path / "claims.md").read_text()
    assert "Not all were judged by the same rule" in text and "000000000000" in text
    with open(tmp_path / "claims.csv", newline="", encoding="utf-8") as file:
        assert list(csv.DictReader(file))[-1]["full"] == ""


def test_a_hash_of_fewer_claims_is_no_other_rule(rows, tmp_path):
    """Of a registered design, whose hash is of the rule and of the tests of its own claims: while these are as they
    were, one rule judged all; one of them edited, and two did."""
    some = [dict(row) for row in rows if row["id"] in ("P01", "P02")]
    known = checks.load(ROOT / "claims.yaml")
    judged_by = {"mini": (rows, ruling.rule_hash(known)), "settle": (some, looks.fixed_by(["P01", "P02"], known))}
    for profile, (found, rule) in judged_by.items():
        page.write([{**row, "rule": rule, "word": HOLDS} for row in found], tmp_path / "reports" / profile / "claims")
    text = (ROOT / "claims.yaml").read_text(encoding="utf-8")
    (tmp_path / "claims.yaml").write_text(text, encoding="utf-8")
    assert command.main(["combine", "--reports", str(tmp_path / "reports")]) == 0
    said = (tmp_path / "reports/claims.md").read_text(encoding="utf-8")
    assert "All were judged by one rule" in said and "that of settle of the tests of its 2 claims alone" in said
    first = text.index("metric: score,", text.index("\nP01:"))
    edited = text[:first] + text[first:].replace("metric: score,", "metric: score, decoding: own,", 1)
    (tmp_path / "claims.yaml").write_text(edited, encoding="utf-8")
    assert command.main(["combine", "--reports", str(tmp_path / "reports")]) == 0
    assert "Not all were judged by the same rule" in (tmp_path / "reports/claims.md").read_text(encoding="utf-8")


def test_a_readme_shows_what_was_put_to_a_test_and_counts_the_rest(rows, tmp_path, capsys):
    page.write(rows, tmp_path / "mini" / "claims")
    page.write(rows[:-1], tmp_path / "full" / "claims")
    command.main(["combine", "--reports", str(tmp_path)])
    file = tmp_path / "README.md"
    file.write_text(f"before\n{combine.BEGIN}\nold\n{combine.END}\nafter\n")
    assert command.main(["readme", "--reports", str(tmp_path), "--file", str(file)]) == 0
    text = file.read_text()
    assert (
        text.startswith(f"before\n{combine.BEGIN}\n| claim")
        and text.endswith(f"{combine.END}\nafter\n")
        and "\nold\n" not in text
    )
    tested = [row["id"] for row in rows if row["word"] not in (AWAITING, ELSEWHERE)]
    ids = re.findall(r"^\| \*\*\[(\w+)\]\(([^)]+)\)\*\*", text, re.MULTILINE)
    assert ids[: len(tested)] == [(name, combine.LEDGER.format("mini")) for name in tested]
    assert {*ids[len(tested) :]} == {(row["id"], combine.WRITTEN) for row in rows if row["id"] not in tested}
    assert re.search(
        rf"^\| \*\*\[{rows[-1]['id']}\]\S*\*\*.*\| {combine.NOT_TESTED}\s*\| opposite\s*\|$", text, re.MULTILINE
    )
    assert f"{len(rows) - len(tested)} further claims" in text
    command.main(["readme", "--reports", str(tmp_path), "--file", str(file)])
    assert file.read_text() == text, "twice is as good as once"
    assert (
        "not tested by these profiles: 1 wait for a learner, sampler or task, "
        f"{len(rows) - len(tested) - 1} are tested nowhere here." in text
    )
    combined = json.loads((tmp_path / "claims.json").read_text())
    for left, said in (
        (
            [*SHIPPED],
            f"{len(SHIPPED)} further claims are not tested by these profiles: {len(SHIPPED)} are tested nowhere",
        ),
        ([], None),
    ):
        kept = [row for row in combined["rows"] if row["id"] in (*left, "Z01", "Z02")]
        (tmp_path / "claims.json").write_text(json.dumps({**combined, "rows": kept}))
        text = combine.readme(f"{combine.BEGIN}{combine.END}", tmp_path / "claims.json")
        assert said in text if said else "further" not in text
        assert "wait" not in text
    file.write_text("no marks")
    assert command.main(["readme", "--reports", str(tmp_path), "--file", str(file)]) == 1
    assert "expected the lines" in capsys.readouterr().err


def test_a_file_that_is_missing_or_another_is_named_by_readme(tmp_path, capsys):
    page, combined = tmp_path / "ledger.md", tmp_path / "claims.json"
    given = ["readme", "--reports", str(tmp_path), "--file", str(page)]
    assert command.main(given) == 1
    assert capsys.readouterr().err.startswith(f"{page}: no such file")
    page.write_text(f"{combine.BEGIN}{combine.END}")
    expected = f"{combined}: expected what `python -m workbook.ledger combine` writes, found"
    assert command.main(given) == 1
    assert capsys.readouterr().err == f"{expected} no such file\n"
    for text in ("{", "[]", "{}", '{"rows": [{}]}'):
        combined.write_text(text)
        assert command.main(given) == 1
        assert capsys.readouterr().err.startswith(expected)


@pytest.mark.parametrize("name", ["combine", "readme"])
def test_help_says_what_each_option_is(name, capsys):
    with pytest.raises(SystemExit):
        command.main([name, "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "--reports REPORTS the folder" in said
    assert name != "readme" or "--file FILE the page" in said


def test_a_tables_ledger_cannot_be_written_into_a_file(tmp_path, capsys, monkeypatch):
    from workbook.ledger import submitted

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(submitted, "read", lambda table, params: None)
    monkeypatch.setattr(submitted, "judged", lambda known, results: [])
    monkeypatch.setattr(page, "summary", lambda rows: "")
    out = tmp_path / "a_file"
    out.write_text("mine")
    for place, found in ((out, "a file"), (out / "below", "[Errno")):
        assert command.main(["submit", "mine.csv", "--out", str(place)]) == 1
        expected = f"{place}: expected a folder for claims.json, claims.csv and claims.md, found {found}"
        assert capsys.readouterr().err.startswith(expected)
    assert out.read_text() == "mine"


def test_this_repositorys_page_shows_the_ledger_that_is_committed_with_it(tmp_path):
    """The committed ones: a ledger of your own settings is no mistake of the page's. Without git, the files as they
    are."""

    def committed(name: str) -> str:
        if not (ROOT / ".git").exists():
            return (ROOT / name).read_text(encoding="utf-8")
        return subprocess.run(
            ["git", "show", f"HEAD:{name}"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout

    (tmp_path / "grue").mkdir()
    for name in ("claims.json", "grue/claims.csv"):
        (tmp_path / name).write_text(committed(f"reports/{name}"))
    text = committed("docs/findings/ledger.md")
    assert combine.readme(text, tmp_path / "claims.json") == text, "type: python -m workbook.ledger readme"
    headings = committed("reports/grue/claims.md").splitlines()
    slugs = {re.sub(r"[:,]", "", line[3:]).lower().replace(" ", "-") for line in headings if line.startswith("## ")}
    assert {*re.findall(r"claims\.md#([\w-]+)\)", text)} <= slugs
    assert {*re.findall(r"^\| \*\*\[(\w+)\]", text, re.MULTILINE)} == {*SHIPPED}


def test_a_profile_that_judges_nothing_has_no_column(tmp_path):
    row = {"id": "P01", "claim": "c", "source": "s", "published_text": "p", "sentence": "", "turns": False, "rule": "r"}
    sources = {}
    for profile, word in (("mini", HOLDS), ("pilot", ELSEWHERE)):
        sources[profile] = tmp_path / f"{profile}.json"
        sources[profile].write_text(json.dumps({"rows": [{**row, "word": word}]}))
    (found,) = combine.combine(sources, tmp_path)
    assert found["words"] == {"mini": HOLDS} and "pilot" not in (tmp_path / "claims.md").read_text()


def test_nothing_to_combine_is_an_error(tmp_path, capsys):
    assert command.main(["combine", "--reports", str(tmp_path)]) == 1
    assert "no ledger to combine" in capsys.readouterr().err
    (tmp_path / "mini" / "claims").mkdir(parents=True)
    (tmp_path / "mini" / "claims" / "claims.json").write_text("{}")
    assert command.main(["combine", "--reports", str(tmp_path)]) == 1
    assert "expected a ledger" in capsys.readouterr().err


def test_components_are_plain_numbers():
    (component,) = judge.judge(claim(contrast()), results(arms(0.3))).components
    written = json.loads(json.dumps(dataclasses.asdict(component), allow_nan=False))
    assert (written["effect"], written["word"]) == (component.effect, HOLDS)


def test_the_page_marks_what_is_not_settled_and_names_what_the_benchmark_tested(tmp_path):
    row = {"claim": "c", "source": "s", "published_text": "p", "sentence": "", "turns": True, "rule": "r"}
    for profile, settled in (("settle", False), ("full", None)):
        rows = [{**row, "id": "P01", "word": "holds", "settled": settled}]
        lacks = {"word": ELSEWHERE, "sentence": "Not testable here: needs human raters."}
        rows += [{**row, **lacks, "id": name} for name in ("P13", "P16")]
        (tmp_path / profile / "claims").mkdir(parents=True)
        (tmp_path / profile / "claims" / "claims.json").write_text(json.dumps({"rows": rows}))
    combine.combine(combine.find_ledgers(tmp_path), tmp_path)
    page = lambda: combine.readme(f"{combine.BEGIN}{combine.END}", tmp_path / "claims.json")
    turns = "holds (turns at half the budget"
    assert f"| {turns}) | {turns}, not settled) |" in page() and "have words" not in page()
    assert f"| {turns}) | {turns}, not settled) |" in (tmp_path / "claims.md").read_text()
    (tmp_path / "grue").mkdir()
    (tmp_path / "grue" / "claims.csv").write_text(f"id,word\nP13,holds\nP13,holds\nP16,{ELSEWHERE}\n")
    assert f": 1 have words [on the benchmark]({combine.BENCHMARK}), 1 are tested nowhere here." in page()
    assert f"| **[P13]({combine.BENCHMARK}#p13-holds)** c | holds | human raters |" in page()
    combine.combine(combine.find_ledgers(tmp_path), tmp_path)
    assert "\n\n1 have words [on the benchmark](grue/claims.md), which" in (tmp_path / "claims.md").read_text()
    assert f"| **[P16]({combine.WRITTEN})** c | {combine.NOT_TESTED} | human raters |" in page()
