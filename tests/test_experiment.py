"""A condition end to end on tiny models: what a run writes, every kind of run, bring your own."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from rlnlp.settings import ConfigError
from tests.built import REPOSITORY, SMALL, WITHOUT_VARIANTS, build, given, run, write_params
from workbook.draws import training
from workbook.draws.tokenizer import train_tokenizer
from workbook.runs import checks, conditions, experiment, measure, train, tune
from workbook.runs.draw import frequent_tokens, load_draw
from workbook.runs.facts import training_facts
from workbook.store import tables


def test_a_repetition_differs_by_the_random_numbers_of_training_alone(world):
    """Untrained, it is the same model on the same stream; trained, another policy on the same prompts."""

    def row(updates: int, **more) -> dict:
        same = {"algorithm": "ppo", "updates": updates}
        params = given(world, "some", **{"runs.first": same, "runs.some": {**same, **more}})
        return tables.read_table(experiment.run_seed(params, 1, {"learning_rate": 3e-3}) / "per_seed.csv")[0]

    once, again = row(2), row(2, replicate=1)
    assert once["prompts"] == again["prompts"] and once["score"] != again["score"] and once["kl"] != again["kl"]
    once, again = row(0), row(0, replicate=1)
    assert once["score"] == again["score"] and once["human_log_perplexity"] == again["human_log_perplexity"]


def test_a_run_is_tested_on_as_many_prompts_as_it_says_the_first_ones(world):
    few = {"runs.few": {"algorithm": "ppo", "test_prompts": 3, "updates": 1}}
    params = given(world, "few", **few)
    rows = tables.read_table(experiment.run_seed(params, 1, {"learning_rate": 3e-3}) / "per_seed.csv")
    assert {r["split"]: r["prompts"] for r in rows} == {"test": 3, "half": 8}
    five = {**few, "evaluation.test_prompts": 5}
    assert [given(world, name, **five).evaluation.test_prompts for name in ("few", "ppo_kl_0")] == [3, 5]
    said = r"test_prompts.*: expected at most task.test_prompts \(8\), found 9"
    for changes in ({"runs.few": {**few["runs.few"], "test_prompts": 9}}, {"evaluation.test_prompts": 9}):
        with pytest.raises(ConfigError, match=said):
            given(world, "ppo_kl_0", **changes)


def test_diversity_is_of_as_many_words_as_the_settings_say(world):
    """Of two words, there is one pair, which occurs once; the sampled tokens are the same ones."""

    def row(words: int) -> dict:
        params = given(
            world, "some", **{"runs.some": {"algorithm": "ppo", "updates": 0}, "evaluation.diversity_words": words}
        )
        return tables.read_table(experiment.run_seed(params, 1, {"learning_rate": 3e-3}) / "per_seed.csv")[0]

    two, all_of_them = row(2), row(10**6)
    assert two["unique_2"] == two["distinct_2"] == 1 < all_of_them["unique_2"]
    assert two["score"] == all_of_them["score"] and two["shared_5gram"] == all_of_them["shared_5gram"]


def test_results_are_complete_and_the_policy_loads_in_transformers(world):
    from transformers import pipeline

    params = given(world, "nlpo_target_low")
    out = world / "runs" / "nlpo_target_low"
    experiment.run_condition(params, out)
    rows = tables.read_table(out / "per_seed.csv")
    assert [(r["split"], r["decoding"]) for r in rows] == [
        *(("test", d) for d in ("plain", "top_p", "own")),
        ("half", "plain"),
        ("half", "own"),
    ]
    own, top_p = rows[2], rows[1]
    assert "mask_top_p=0.9" in own["decoding_record"] and "mask" not in top_p["decoding_record"]
    for row in rows:
        assert 0 <= row["score"] <= 1 and row["kl"] >= -1e-6 and row["generation_log_perplexity"] > 0
        assert row["training_score"] == row["score"] and 0 <= row["judge_2"] <= 1 and row["diverged"] in (0, 1)
    assert json.loads((out / "config.json").read_text())["learner"]["kl_target"] == 0.2
    assert len(tables.read_table(out / "curves.csv")) == 12
    samples = [json.loads(line) for line in (out / "samples.jsonl").read_text().splitlines()]
    assert samples and set(samples[0]) == {"condition", "seed", "example_id", "prompt", "response", "score"}
    episode = json.loads((out / "episode.json").read_text())
    assert len(episode["tokens"]) == len(episode["rewards"]) == len(episode["kl"]) > 0
    folder = out / "policy_seed1"
    assert {p.name for p in folder.iterdir()} >= {
        "model.safetensors",
        "tokenizer.json",
        "generation_config.json",
        "README.md",
    }
    assert not [p for p in folder.rglob("*") if p.suffix in (".bin", ".pt", ".pkl")]
    text = pipeline("text-generation", str(folder))(samples[0]["prompt"], max_new_tokens=5)[0]["generated_text"]
    assert text.startswith(samples[0]["prompt"].split()[0])


def test_zero_updates_is_the_base_model(world):
    rows = tables.read_table(run(world, "zero_shot") / "per_seed.csv")
    assert all(abs(row["kl"]) < 1e-6 for row in rows)
    plain, truncated = rows[0], rows[1]
    assert abs(plain["kl_deployed"]) < 1e-6 < truncated["kl_deployed"]  # a truncated decoding is another distribution


def test_bring_your_own_model_reward_and_prompts(world, monkeypatch):
    """Three settings: a model folder, a reward function and a CSV of prompts; nothing of ours is used for them."""
    from tests.tiny import gpt2

    monkeypatch.chdir(world)  # the pipeline's stages run in the profile's folder
    tokenizer = train_tokenizer(kind="word", words=["hello", "world", "good", "bad", "."])
    model = gpt2(len(tokenizer))
    model.generation_config.eos_token_id = model.config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = model.config.pad_token_id = tokenizer.pad_token_id
    training.save(world / "mine", model, tokenizer, "# mine")
    (world / "mine.py").write_text(
        "def goodness(prompts, responses, references, meta):\n    return [float(r.count('good')) for r in responses]\n"
    )
    (world / "mine.csv").write_text(
        "prompt,reference\n"
        + "".join(f"hello world {'good ' * (1 + i % 4)}{'bad ' * (i // 4)},good .\n" for i in range(40))
    )
    write_params(
        world,
        bring={"model": "mine", "reward": "mine.py:goodness", "prompts": "mine.csv"},
        draws=[1],
        **WITHOUT_VARIANTS,
    )
    for name in ("data", "models", "variants"):
        shutil.rmtree(world / name)
    build(world)
    assert "source.json" in {p.name for p in (world / "models" / "draw1" / "policy").iterdir()}
    final = experiment.run_seed(given(world, "ppo_kl_0"), 1, {"learning_rate": 1e-2})
    samples = json.loads((final / "samples.json").read_text())
    assert all(s["prompt"].startswith("hello world") for s in samples)
    assert all(s["score"] == s["response"].count("good") for s in samples)
    curve = [row["objective/score"] for row in tables.read_table(final / "curves.csv")]
    assert max(curve[-3:]) > curve[0]
    # learns from the references that were brought: the task has no others
    experiment.run_seed(given(world, "supervised"), 1, {})


def test_half_the_budget_is_the_policy_of_a_run_that_stops_there(world):
    """Its row, on validation prompts, is that of a run with half the updates evaluated there at once; the curve's facts
    too."""
    whole = tables.read_table(run(world) / "per_seed.csv")
    half = next(r for r in whole if r["split"] == "half")
    write_params(world, learner={**SMALL["learner"], "updates": 6})
    params = given(world, "ppo_kl_default")
    draw = load_draw(params, 1, params.run)
    settings = params.config(learning_rate=3e-3)
    six = train.train("ppo", settings, draw, 1, world / "elsewhere", "six", "key")
    state, curve = train.ended(six)
    plain, *_ = measure.decodings("ppo", settings, params.evaluation)
    row, _, _ = measure.evaluate_decoding(params, draw, state, 1, "validation", plain)
    for name in ("score", "kl", "generation_log_perplexity", "judge_2", "distinct_2"):
        assert row[name] == pytest.approx(half[name], rel=1e-5), name
    assert training_facts(curve, settings, 6)["wobble"] == pytest.approx(half["wobble"], rel=1e-5)
    assert next(r for r in whole if r["split"] == "test")["wobble"] != half["wobble"]


def test_a_run_continues_the_policy_of_another_and_follows_it(world, trainings):
    params = given(world, "sup_ppo")
    with pytest.raises(
        FileNotFoundError, match=r"runs/supervised/policy_seed1: no such folder; run the stage runs@supervised"
    ):
        run(world, "sup_ppo")
    experiment.run_condition(given(world, "supervised"), world / "runs" / "supervised")
    first = run(world, "sup_ppo")
    from transformers import AutoModelForCausalLM

    start = AutoModelForCausalLM.from_pretrained(world / "runs/supervised/policy_seed1")
    draw = load_draw(params, 1, params.run)
    base = load_draw(other := given(world, "ppo_kl_0"), 1, other.run).policy
    pairs = [(a, b, c) for (a, b, c) in zip(start.parameters(), draw.policy.parameters(), base.parameters())]
    assert all(a.equal(b) for a, b, _ in pairs) and not all(b.equal(c) for _, b, c in pairs)
    assert run(world, "sup_ppo") == first
    readme = world / "runs/supervised/policy_seed1/README.md"
    readme.write_text(readme.read_text() + "another policy\n")
    assert run(world, "sup_ppo") != first
    assert trainings == ["supervised seed 1", "sup_ppo seed 1", "sup_ppo seed 1"]


def test_every_kind_of_run_works_and_says_what_it_is(world):
    """The smoke profile has one of each; a run trained on fewer labels is still measured by the full reward."""
    experiment.run_condition(given(world, "supervised"), world / "runs" / "supervised")
    rows = {}
    for condition in ("bandit", "dropout_update_010", "mismatch_top_p", "filtered_10", "best_of_n_10", "vocabulary_50"):
        rows[condition] = tables.read_table(run(world, condition) / "per_seed.csv")
        assert {"test", "half"} == {r["split"] for r in rows[condition]}, condition
    assert rows["filtered_10"][0]["training_score"] != rows["filtered_10"][0]["score"]
    assert rows["dropout_update_010"][0]["first_ratio_error"] > 1e-3 > rows["bandit"][0]["first_ratio_error"]
    own = next(r for r in rows["best_of_n_10"] if r["decoding"] == "own")
    assert own["training_score"] > rows["best_of_n_10"][0]["training_score"] and "best_of=" in own["decoding_record"]


def test_every_other_learner_is_measured_as_it_samples(world):
    own = {
        "mask_typical": "rule=typical, rule_value=0.2, rule_of=policy",
        "mask_typical_delayed": "rule=typical, rule_value=0.2, rule_of=mask_model",
        "dqn_best": "rule=top_p, rule_value=0.9, rule_of=mask_model",
        "dqn_mlp": "top_k=1",
        "a2c": "",
        "trpo": "",
        "rloo": "",
        "grpo": "",
        "sac": "",
    }
    write_params(world, learner={"updates": 2, "episodes_per_update": 8})
    for condition, said in own.items():
        final = run(world, condition)
        rows = {(r["split"], r["decoding"]): r for r in tables.read_table(final / "per_seed.csv")}
        plain, mine = rows["test", "plain"], rows["test", "own"]
        assert said in mine["decoding_record"] and (said in plain["decoding_record"]) == (not said), condition
        assert ("top_k=1" in mine["decoding_record"]) == condition.startswith("dqn"), condition
        assert (mine["kept_mass"] < 1 == plain["kept_mass"]) == bool(said), condition
        steps = {"a2c": 1, "trpo": 1, "rloo": 1}.get(condition, 2 if condition[:3] in ("dqn", "sac") else 4)
        episodes = 16 if condition == "sac" else 8  # its own number; the others have the section's
        tokens = [r["episodes/length"] * episodes for r in tables.read_table(final / "curves.csv")]
        if not condition.startswith("dqn"):  # whose replay is not warm at once
            assert mine["tokens_per_gradient_step"] == pytest.approx(sum(tokens) / len(tokens) / steps), condition
        assert (final / "episode.json").is_file(), condition


def test_the_vocabulary_is_the_most_frequent_tokens_and_eos(world):
    params = given(world, "vocabulary_50")
    draw = load_draw(params, 1, params.run)
    few, more = (frequent_tokens(draw.data, draw.tokenizer, n) for n in (50, 60))
    assert len(set(few)) == 50 and set(few) < set(more) and draw.tokenizer.eos_token_id in few
    assert draw.tokenizer.convert_tokens_to_ids(".") in few  # every sentence ends in one
    final = run(world, "vocabulary_50")
    samples = json.loads((final / "samples.json").read_text())
    used = {token for s in samples for token in draw.tokenizer(s["response"])["input_ids"]}
    assert used and used <= set(few)
    with pytest.raises(ValueError, match="vocabulary: expected at most"):
        frequent_tokens(draw.data, draw.tokenizer, 10_000)


def test_what_a_curve_says():
    config_ = checks.load(REPOSITORY / "params.yaml").learner_config("ppo_kl_default")

    def curve(scores):
        return [{"objective/score": s, "objective/kl": 0.1} for s in scores]

    rising, falling = [0.5, 0.52, 0.6, 0.62, 0.7], [0.5, 0.6, 0.61, 0.2, 0.18, 0.17]
    good, bad = (training_facts(curve(c), config_, len(c)) for c in (rising, falling))
    assert good["diverged"] == 0 and good["drop"] == 0 and bad["drop"] == pytest.approx(0.57 - 0.55 / 3, abs=1e-6)
    assert good["wobble"] == pytest.approx(0.03 / 2**0.5)  # its changes are .02, .08, .02, .08
    assert training_facts(curve(rising), config_, 9)["diverged"] == 1  # ended before its updates
    steady = training_facts(curve([0.5] * 4 + [0.2] * 12), config_, 16)
    assert steady["diverged"] == 1  # far below where it began
    noisy = training_facts(curve([0.6, 0.5, 0.7, 0.5, 0.7, 0.4]), config_, 6)
    assert noisy["diverged"] == 0 < noisy["drop"]  # it ends lower, by less than 2 wobbles
    aimed = config_.replace(kl_target=0.005)  # the last KL, 0.1, is twenty times the target
    assert training_facts(curve(rising), aimed, 5)["diverged"] == 1
    assert good["rollout_score"] == pytest.approx((0.6 + 0.62 + 0.7) / 3)
    assert training_facts([], config_, 0) | {"diverged": 0.0} == training_facts([], config_, 0)


def test_a_curve_diverged_by_more_than_two_wobbles_or_by_where_its_kl_ends():
    config = checks.load(REPOSITORY / "params.yaml").learner_config("ppo_kl_default").replace(kl_target=0.005)

    def facts(scores, kls):
        curve = [{"objective/score": s, "objective/kl": k} for s, k in zip(scores, kls)]
        return training_facts(curve, config, len(curve))

    lower = facts([0.5, 0.55, 0.5, 0.55, 0.5, 0.55, 0.46, 0.5, 0.46], [0.01] * 9)
    lost = (0.5 + 0.55 + 0.5) / 3 - (0.46 + 0.5 + 0.46) / 3
    assert lower["wobble"] < lost < 2 * lower["wobble"] and lower["diverged"] == 0
    passing, ending = (facts([0.5] * 5, kls) for kls in ([0.01, 0.09, 0.01, 0.01, 0.01], [0.01] * 4 + [0.09]))
    assert (passing["diverged"], passing["peak_kl"], ending["diverged"]) == (0, 0.09, 1)


def test_tune_tries_the_same_grid_and_records_its_rule(world):
    write_params(world, tune={"learning_rates": [1e-3, 1e-2], "kl_coefs": [0.05, 0.2], "updates": 2, "draw": 1})
    params, chosen = checks.load(world / "params.yaml"), {}
    for algorithm in ("ppo", "nlpo", "reinforce"):
        chosen[algorithm] = tune.search(conditions.search(params, algorithm), world / "tune" / f"{algorithm}.json")
        record = json.loads((world / "tune" / f"{algorithm}.json").read_text())
        assert record == chosen[algorithm] and record["rule"] == tune.RULE
        eligible = [c for c in record["candidates"] if c["eligible"]]
        pool = eligible or record["candidates"]
        best = (
            max(pool, key=lambda c: c["score"]) if eligible else min(pool, key=lambda c: c["generation_log_perplexity"])
        )
        assert (record["learning_rate"], record["kl_coef"]) == (best["learning_rate"], best["kl_coef"])
    grids = [[(c["learning_rate"], c["kl_coef"]) for c in chosen[a]["candidates"]] for a in chosen]
    assert grids[0] == grids[1] == grids[2] == [(1e-3, 0.05), (1e-3, 0.2), (1e-2, 0.05), (1e-2, 0.2)]


@pytest.mark.parametrize(
    "log_perplexities, chosen",
    [
        ((2.11, 2.09, 1.5, 2.2), (1e-3, 0.2)),  # zero-shot 2: at most 2.1, and of those the highest score
        ((2.4, 2.2, 2.11, 2.3), (1e-2, 0.05)),  # none: the lowest
    ],
)
def test_tune_takes_no_text_a_tenth_of_a_nat_less_likely_than_the_untrained_models(
    world, monkeypatch, log_perplexities, chosen
):
    """Rows as an evaluation gives them, in the order of the grid; nothing is trained."""
    write_params(world, tune={"learning_rates": [1e-3, 1e-2], "kl_coefs": [0.05, 0.2], "updates": 2, "draw": 1})
    given = iter([(0.5, 2.0), *zip((0.9, 0.8, 0.7, 0.6), log_perplexities)])
    blank = dict.fromkeys(("judge", "kl", "distinct_2"), 0.0)

    def evaluated(*asked):
        score, log_perplexity = next(given)
        return {"score": score, "generation_log_perplexity": log_perplexity, **blank}, [], None

    for name in ("load_draw", "train"):
        monkeypatch.setattr(tune, name, lambda *asked, **more: None)
    monkeypatch.setattr(tune, "ended", lambda training: (training, []))
    monkeypatch.setattr(tune, "evaluate_decoding", evaluated)
    params = conditions.search(checks.load(world / "params.yaml"), "ppo")
    found = tune.search(params.model_copy(update={"scratch": world / "planted"}), world / "ppo.json")
    assert (found["learning_rate"], found["kl_coef"]) == chosen
    assert [c["eligible"] for c in found["candidates"]] == [value <= 2.1 for value in log_perplexities]


def test_setup_asks_for_determinism_and_the_thread_count():
    params = checks.load(REPOSITORY / "params.yaml")
    threads = torch.get_num_threads()
    train.setup(params)
    assert torch.are_deterministic_algorithms_enabled() and torch.get_num_threads() == params.threads
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)
