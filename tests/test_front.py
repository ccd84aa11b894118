"""README and docs/: small, their numbers those of the committed tables, their code run, what they name there."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats

from workbook.results.files import per_seed
from workbook.runs.settings import Bring
from workbook.site import charts, committed, effects, front, picture

from .same import same_runs

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")}
PAGES = {"README.md": README, **DOCS}
FRONT = re.compile(f"{re.escape(front.BEGIN)}.*{re.escape(front.END)}", re.DOTALL)  # compared as a whole
NUMBER = r"[+−-]?\d*\.?\d+"
SETTLED = "docs/findings/settled.md"
EFFECT = re.compile(rf"({NUMBER}) \[({NUMBER}), ({NUMBER})\]")


def test_readme_is_short_and_leads_on():
    assert len(README) <= 8000
    for wanted in ("arXiv:2210.01241", "CS224N", "make reproduce", "make test", "```bibtex", "docs/learn/lessons.md"):
        assert wanted in README, wanted
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"article", "report"} == {each["type"] for each in cited["references"]}
    assert f"version = {{{cited['version']}}}" in re.sub(r" +", " ", README) and cited["title"] in README


def test_the_front_is_made_from_the_committed_tables():
    assert front.readme(README, committed.read(ROOT)) == README, "type: python -m workbook.site readme"
    drawn = picture.draw(picture.three(ROOT / "reports" / front.KEPT))
    assert (ROOT / front.PICTURE).read_text(encoding="utf-8") == drawn, "type: python -m workbook.site readme"
    with pytest.raises(ValueError, match="README: expected the lines"):
        front.readme("no marks", committed.read(ROOT))


def test_the_picture_shows_three_texts_of_one_prompt_and_their_scores():
    three = picture.three(ROOT / "reports" / front.KEPT)
    written, drawn = three.written, picture.draw(three)
    assert "The first test prompt of draw 101, nothing selected" in drawn
    assert [each.title for each in written] == [*picture.SHOWN.values()]
    text = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", drawn))
    for each in written:
        assert each.response in text and f"score {each.score:.2f}" in text
        assert re.search(rf'class="bar" x="\d+" y="\d+" width="{round(picture.BAR * each.score)}"', drawn)


def test_the_pictures_texts_are_of_the_registered_designs_own_runs():
    found = committed.read(ROOT)
    own, again = (found.measured[name] for name in (committed.DESIGN, committed.DRAWN))
    same = same_runs(own, found.measured[front.KEPT])
    assert {(name, 101) for name in picture.SHOWN} <= same and ("ppo_kl_0", 108) in same
    assert not same_runs(own, again)  # run again on another processor
    assert [f"{each.score:.2f}" for each in picture.three(ROOT / "reports/full").written] == ["0.00", "0.79", "1.00"]


def test_the_first_lines_say_of_what_their_differences_are():
    text = front.lines(committed.read(ROOT))
    assert "it is less: 1.55 times for a piece of a word, and 1.04 times with a larger model, which moves less" in text
    assert "than trained with it" in text and "(+0.009 in a later version, by hearsay)" in text
    assert "keeps 0.32 of the gain there, 0.43 here" in front.legend(committed.read(ROOT))


def test_a_picture_needs_all_its_runs(tmp_path):
    line = {"condition": "zero_shot", "example_id": "1", "prompt": "p", "response": "r", "score": 0.5, "seed": 1}
    (tmp_path / "samples.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(ValueError, match="found none of ppo_kl_default and ppo_kl_0"):
        picture.three(tmp_path)
    others = [{**line, "condition": name, "example_id": "2"} for name in picture.SHOWN if name != "zero_shot"]
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps(each) + "\n" for each in [line, *others]))
    with pytest.raises(ValueError, match="the same first prompt"):
        picture.three(tmp_path)


# numbers -------------------------------------------------------------------------------------------------------------


def value(text: str) -> float:
    return float(text.replace("−", "-"))


PAIRED = [  # profile, run, run, metric: shown on a page, and in no table as it is
    ("mini", "ppo_kl_0", "ppo_kl_default", "judge"),
    ("mini", "nlpo_kl_0", "nlpo_kl_default", "judge"),
    ("imdb", "nlpo_kl_0", "nlpo_kl_default", "judge"),
    *(("follow_up", "ppo_kl_0", "ppo_kl_default", m) for m in ("score", "generation_log_perplexity", "judge")),
    ("reviews", "nlpo_kl_0", "nlpo_kl_default", "msttr"),
    *(("reviews", f"{learner}_kl_0", "supervised", "score") for learner in ("ppo", "nlpo")),
    ("reviews", "ppo_kl_0", "supervised", "human_log_perplexity"),
    ("reviews", "grpo", "ppo_kl_default", "score"),
    *(("follow_up", learner, "ppo_kl_default", "judge") for learner in ("reinforce", "rloo", "sac")),
    ("follow_up", "sac", "ppo_kl_default", "kl_deployed"),
    *(("follow_up", f"mask_{cut}", "ppo_kl_default", "score") for cut in ("top_p_050", "min_p_020", "top_k_10")),
    *(("follow_up", f"mask_{cut}, own", "ppo_kl_default", "score") for cut in ("top_p_050", "min_p_020", "top_k_10")),
    ("follow_up", "ppo_top_p, own", "ppo_kl_default, top_p", "score"),
    *(("follow_up", "mask_top_p_050, own", "ppo_kl_default, top_p", m) for m in ("score", "judge")),
    *(("follow_up", "dqn_best, own", "ppo_kl_default, greedy", m) for m in ("score", "judge")),
    ("follow_up", "numbers_dqn", "numbers_zero_shot", "score"),
]


def interval(values: pd.Series) -> list[float]:
    """Mean and its 95 % interval."""
    half = stats.t.ppf(0.975, len(values) - 1) * values.std() / len(values) ** 0.5
    return [values.mean(), values.mean() - half, values.mean() + half]


@cache
def arms(profile: str, metric: str) -> pd.DataFrame:
    """Seed -> run, decoded plainly ("dqn_mlp") or with a decoding ("dqn_mlp, own"), on test prompts."""
    table = pd.read_csv(per_seed(ROOT / "reports" / profile), low_memory=False).query("split == 'test'")
    plain = table.decoding == "plain"
    names = table.condition.where(plain, table.condition + ", " + table.decoding)
    return table.assign(arm=names).pivot(index="seed", columns="arm", values=metric)


def paired(profile: str, first: str, second: str, metric: str) -> list[float]:
    """Mean difference over seeds and its 95 % interval, from per_seed.csv; runs as `arms` names them."""
    wide = arms(profile, metric)
    return interval(wide[first] - wide[second])


DRAWN = [  # condition, condition, decoding: of the registered design's table, over all draws that both have
    ("nlpo_kl_default", "ppo_kl_default", "plain"),
    ("nlpo_kl_default", "ppo_kl_default", "own"),
    ("nlpo_kl_default", "nlpo_p_030", "plain"),
]
EVERY = {"metric": "score", "n": 32}


def drawn(condition: str, decoding: str) -> pd.Series:
    """Draw -> score, the mean of the run and its repetitions."""
    return charts.values(committed.read(ROOT), "settle", EVERY, condition, decoding).mean(axis=1)


def over_draws(first: str, second: str, decoding: str) -> list[float]:
    """Mean difference over draws and its 95 % interval, from draws.csv."""
    apart = (drawn(first, decoding) - drawn(second, decoding)).dropna()
    return interval(apart)


def with_share_kept(decoding: str) -> pd.Series:
    """Seed -> rank correlation, over the masks on reviews, of the share kept in training's decoding with the score."""
    kept = arms("follow_up", "kept_mass").filter(regex=r"^mask_(?!.*_delayed).*, own$").rename(columns=lambda n: n[:-5])
    score = arms("follow_up", "score")[[f"{name}, own" if decoding == "own" else name for name in kept]]
    ranks = score.set_axis(kept.columns, axis=1).rank(axis=1)
    assert len(kept.columns) == 25
    return kept.rank(axis=1).corrwith(ranks, axis=1)


@cache
def known() -> np.ndarray:
    """[n, 3]: every effect with its interval that a committed table or page has, and those of `PAIRED`."""
    rows = []
    for file in (ROOT / "reports").glob("*/claims/claims.json"):
        for test in (c for row in json.loads(file.read_text(encoding="utf-8"))["rows"] for c in row["components"]):
            rows += [[test[n] for n in ("difference", "low", "high")]]
            rows += [[test[n] for n in ("effect", "effect_low", "effect_high")]]
    for file in (ROOT / "reports").rglob("*.md"):
        rows += [[*map(value, found.groups())] for found in EFFECT.finditer(file.read_text(encoding="utf-8"))]
    rows += [*(paired(*contrast) for contrast in PAIRED), *(over_draws(*contrast) for contrast in DRAWN)]
    rows += [interval(with_share_kept(decoding)) for decoding in ("plain", "own")]
    return np.array([row for row in rows if None not in row], dtype=float)


@pytest.mark.parametrize("page", sorted(name for name, text in PAGES.items() if EFFECT.search(FRONT.sub("", text))))
def test_each_effect_on_a_page_is_one_of_the_committed_tables(page):
    for found in EFFECT.finditer(FRONT.sub("", PAGES[page])):
        shown = np.array([*map(value, found.groups())])
        rounded = 0.5001 * 10.0 ** -np.array([len(part.partition(".")[2]) for part in found.groups()])
        assert (np.abs(known() - shown) <= rounded).all(1).any(), f"{page}: {found[0]} is in no committed table"


def test_the_words_on_the_page_of_what_was_settled_are_the_designs():
    rows = committed.read(ROOT).ledgers["settle"]
    text = DOCS["docs/findings/settled.md"]
    said = re.findall(r"\b([PCO]\d\d)(?:, [PCO]\d\d)*,? (too small|opposite|holds)\b", text)
    assert len(said) >= 8
    for claim, word in said:
        assert rows[claim]["word"].startswith(word), (claim, word)


def test_where_two_decodings_disagree_both_stand_there():
    lead = {test["name"]: test for test in committed.read(ROOT).ledgers["settle"]["P04"]["components"]}
    for name in ("equal beta and decoding", "each with its own decoding", "against ppo in its own nucleus"):
        assert README.count(effects.raw(lead[name])) >= 1, name
    masks = [f"mask_{rule}" for rule in ("typical", "mirostat", "eta", "epsilon", "top_p")]
    for decoding in ("plain", "own"):
        levels = pd.DataFrame({mask: drawn(mask, decoding) for mask in masks}).dropna().mean()
        rest = levels[masks[1:]]
        assert f"{levels['mask_typical']:.3f} against {rest.min():.3f} to {rest.max():.3f}" in DOCS[SETTLED], decoding


def test_the_levels_on_the_page_of_the_second_paper_are_those_of_its_table():
    page = DOCS["docs/findings/second_paper.md"]
    score, judge, kl, dearer, repeats, kept, wobble, pairs = (
        arms("follow_up", metric)
        for metric in (
            *("score", "judge", "kl_deployed", "generation_log_perplexity", "repetition"),
            *("kept_mass", "wobble", "distinct_2"),
        )
    )
    mean, median = score.mean(), score.median()
    mild = [f"mask_{rule}" for rule in ("top_p", "epsilon", "eta", "mirostat", "min_p", "top_k")]
    moved = score[mild].sub(score.ppo_kl_default, axis=0)
    rules = ("top_p", "typical", "epsilon", "eta", "mirostat")
    late, steady = (pd.DataFrame({r: t[f"mask_{r}_delayed"] - t[f"mask_{r}"] for r in rules}) for t in (score, wobble))
    for apart in (moved, late, steady):
        assert all(low < 0 < high for _, low, high in map(interval, (apart[name] for name in apart)))
    word, greedy = score["dqn_mlp, own"], "ppo_kl_default, greedy"
    salad, best = dearer["dqn_mlp, own"].mean(), "dqn_best, own"
    told = [
        f"end {moved.mean().min():+.3f} to {moved.mean().max():+.3f} from PPO's {mean.ppo_kl_default:.3f} in score",
        f"it keeps {kept['mask_typical, own'].mean():.3f} of",
        f"the six keep {kept[[f'{m}, own' for m in mild]].mean().min():.3f} and more",
        f"decoded in top-p 0.9 has {mean['ppo_kl_default, top_p']:.3f}",
        f"{kl['mask_top_p_050, own'].mean():.3f} nats a token against {kl['ppo_kl_default, top_p'].mean():.3f}",
        f"is {late.mean().min():+.3f} to {late.mean().max():+.3f} of score over five rules",
        f"wobbles {steady.mean().min():+.3f} to {steady.mean().max():+.3f} "
        f"(PPO's is {wobble.ppo_kl_default.mean():.3f})",
        f"scores from {word.min():.2f} to {word.max():.2f}, by the draw",
        f"(log-perplexity {salad:.2f} against the untrained {dearer.zero_shot.mean():.2f},",
        f"logits as values {mean['dqn_logits, own']:.3f}, judge {judge['dqn_logits, own'].mean():.3f}",
        f"nucleus {mean['dqn_truncated, own']:.3f}, judge {judge['dqn_truncated, own'].mean():.3f}",
        f"best token {mean['zero_shot, greedy']:.3f}, judge {judge['zero_shot, greedy'].mean():.3f})",
        f"by best token: {mean[best]:.3f} at log-perplexity {dearer[best].mean():.2f}, judge {judge[best].mean():.3f}",
        f"to greedy PPO's {mean[greedy]:.3f}",
        f"less repetition, {repeats[best].mean():.3f} against {repeats[greedy].mean():.3f}",
        f"language too: {mean.dqn_best:.3f} at log-perplexity {dearer.dqn_best.mean():.2f} "
        f"(twice the untrained perplexity is {dearer.zero_shot.mean() + np.log(2):.2f})",
        f"judge {judge.dqn_best.mean():.3f} against the untrained {judge.zero_shot.mean():.3f}",
        f"wobbles about twice as much, {wobble.reinforce.mean():.3f} and {wobble.rloo.mean():.3f} against PPO's "
        f"{wobble.ppo_kl_default.mean():.3f}",
        f"median of 8 draws; untrained {median.numbers_zero_shot:.3f}): PPO {median.numbers_ppo:.3f}, "
        f"NLPO {median['numbers_nlpo, own']:.3f}, A2C {median.numbers_a2c:.3f}, TRPO {median.numbers_trpo:.3f}, "
        f"GRPO {median.numbers_grpo:.3f}, REINFORCE {median.numbers_reinforce:.3f}, RLOO {median.numbers_rloo:.3f}, "
        f"soft actor-critic {median.numbers_sac:.3f}",
        f"PPO has {median.numbers_ppo_end:.3f}, but {score.numbers_ppo_end.nlargest(7).min():.2f} and "
        f"{score.numbers_ppo_end.min():.2f} in two draws",
        f"{median.numbers_prefix_ppo:.3f} paid token by token and {median.numbers_prefix_end_ppo:.3f} at the end",
        f"best token is at {median['numbers_dqn, own']:.3f}",
        f"Dates: PPO {median.dates_ppo:.3f}, untrained {median.dates_zero_shot:.3f}",
    ]
    assert [said for said in told if said.replace("-", "−") not in page.replace("-", "−")] == []
    assert not judge["dqn_mlp, own"].round(2).any() and len(score) == 8  # "0.00 in all eight"
    three = [f"mask_{cut}, own" for cut in ("top_p_050", "min_p_020", "top_k_10")]
    assert pairs[three].mean().max() < 0.5 * pairs.zero_shot.mean()
    assert arms("follow_up", "score").dqn_best.equals(score.dqn_best_kl)
    assert set(arms("follow_up", "kl_coef").filter(regex=r"^dqn_(?!mlp_kl)").stack()) == {0.05}


def test_a_share_of_what_was_published_is_computed():
    tests = committed.read(ROOT).ledgers["imdb"]["P20"]["components"]
    ppo, nlpo = (next(c for c in tests if c["name"] == f"{name} human perplexity") for name in ("ppo", "nlpo"))
    shares = [f"{100 * c['effect'] / c['published']:.0f} %" for c in (ppo, nlpo)]
    assert f"for PPO, {shares[0]} of what was published" in DOCS["docs/findings/real_reviews.md"]
    assert f"for NLPO, {shares[1]} (P20)" in DOCS["docs/findings/real_reviews.md"]


def test_a_run_is_called_by_the_settings_that_its_table_is_of():
    found = committed.read(ROOT)
    for profile, runs in found.runs.items():
        table = found.measured[profile].query("decoding == 'plain'").groupby("condition").kl_coef.first()
        for name, entry in runs.items():
            if name in table and "kl_coef" in entry:
                assert entry["kl_coef"] == pytest.approx(table[name], rel=1e-5), (profile, name)
        sampling = committed.read_params(ROOT, profile)["sampling"]
        if "decoding_record" in found.measured[profile]:
            plain = found.measured[profile].query("decoding == 'plain' and condition == 'zero_shot'").decoding_record
            assert all(f"min_new_tokens={sampling['min_new_tokens']}," in record for record in plain), profile
    assert {found.names[p]["ppo_kl_default"] for p in ("full", "follow_up", "mini")} == {"PPO, β = 0.2"}


def test_a_row_of_the_front_says_what_its_word_does_not():
    found = committed.read(ROOT)
    rows = {line.split("[")[-1][:3]: line for line in front.five(found).splitlines()[2:]}
    assert rows.keys() == front.FIVE.keys()
    for claim, row in rows.items():
        ledger = found.ledgers["settle"][claim]
        assert ("turns at half the budget" in row) == ledger["turns"], claim
        against = [
            c
            for c in ledger["components"]
            if c["role"] == "beside" and f"the opposite: {c['name']}" in ledger["sentence"]
        ]
        for component in against:
            assert effects.raw(component) in row, (claim, component["name"])
    assert [name for name, row in rows.items() if "turns" in row] == ["P10"]


# code ----------------------------------------------------------------------------------------------------------------


def blocks(language: str) -> list[tuple[str, str]]:
    """(page, code) of every block of that language."""
    found = re.compile(rf"^```{language}\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return [(page, code) for page, text in PAGES.items() for code in found.findall(text)]


def test_every_block_of_python_is_one_that_a_test_runs():
    ran = {"docs/use/write_your_own.md"}  # tests/test_write_your_own.py, test_one_file.py
    lines = re.search(r"in twelve lines\n.*?```python\n(.*?)```", README, re.DOTALL)[1]  # tests/test_front_door.py
    others = [(page, code) for page, code in blocks("python") if page not in ran]
    assert [page for page, _ in others] == ["README.md", *["docs/use/twelve_lines.md"] * 2]
    assert [code == lines for _, code in others] == [True, True, False]  # the last is what to try them on: there too
    assert len([page for page, _ in blocks("python") if page in ran]) == 6


def test_the_settings_that_bring_your_own_are_settings():
    brought = [found["bring"] for _, code in blocks("yaml") if "bring" in (found := yaml.safe_load(code))]
    assert brought and all(Bring(**settings) for settings in brought)


def test_every_command_of_a_page_is_there():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    pattern = re.compile(r"(?:^|`|&& )(?:RLNLP_MIRROR=\S+ )?(make|python -m) ([a-z][\w.]*)", re.MULTILINE)
    named = {(page, *found) for page, text in PAGES.items() for found in pattern.findall(text)}
    assert len(named) > 25
    for page, tool, name in named:
        assert name in targets if tool == "make" else find_spec(name), (page, tool, name)


def test_every_test_that_the_differences_name_is_there():
    named = re.findall(r"`(tests/\w+\.py)::(\w+)`", DOCS["docs/differences.md"])
    assert len(named) >= 12
    for file, name in named:
        assert re.search(rf"^(?:    )?def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), (
            file,
            name,
        )


def test_every_relative_link_of_a_page_leads_to_a_file_in_git():
    tracked = set(
        subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    )
    folders = {parent.as_posix() for name in tracked for parent in Path(name).parents}
    for page, text in PAGES.items():
        for link in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
            path = (ROOT / page).parent.joinpath(link).resolve().relative_to(ROOT).as_posix()
            assert path in tracked | folders, (page, link)


def test_every_page_has_one_title():
    for page, text in PAGES.items():
        assert len(re.findall(r"^# ", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)) == 1, page


def test_every_row_of_the_differences_says_where_and_names_a_test():
    """That the tests are there is tested above; where lines are given, the page says of which commit they are."""
    rows = [line.strip("| ").split(" | ") for line in DOCS["docs/differences.md"].splitlines() if line.startswith("| ")]
    rows = [row for row in rows if row[0] != "what"]
    dated = " ".join(re.findall(r"^- [0-9a-f]{7}: (.*)$", DOCS["docs/differences.md"], re.MULTILINE))
    assert len(rows) >= 29
    for row in rows:
        assert len(row) == 5 and re.search(r"\b(?:(?:lines?|tables?|figure) \d|section \w)", row[2]), row
        assert re.search(r"`tests/\w+\.py::\w+`", row[4]), row
        assert all(name in dated for name in re.findall(r"(\w+\.(?:py|yml))`", row[2])), row
