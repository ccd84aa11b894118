"""``import rlnlp``: light, and in the README's twelve lines it trains, saves and compares with a model of one's own."""

import copy
import re
import subprocess
import sys
from pathlib import Path

import datasets
import numpy
import pandas
import pytest
import torch
import transformers

import rlnlp
from rlnlp.rollout import sample, sampling_from
from rlnlp.types import generator, take
from rlnlp.vocabulary import limit_vocabulary
from tests.test_pretrained import tokenizer_of
from tests.test_trpo import distributions
from tests.tiny import MAKE

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LINES = re.search(r"in twelve lines\n.*?```python\n(.*?)```", README, re.S).group(1)

PAGE = (ROOT / "docs/use/twelve_lines.md").read_text(encoding="utf-8")
TRY = re.findall(r"```python\n(.*?)```", PAGE, re.S)[1]


def reward(prompts, responses, references, meta):
    return [float(response.split().count("w7")) for response in responses]


def test_they_are_twelve():
    assert 0 < len([line for line in LINES.splitlines() if line.strip()]) <= 12


@pytest.mark.parametrize("kind", MAKE)
def test_they_train_watch_save_and_compare(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model, tokenizer = MAKE[kind]().train(), tokenizer_of(50)  # as a model is that nobody has put into eval mode
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.5
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    given = {"model": model, "tokenizer": tokenizer, "reward": reward, "texts": [f"w{i} w{i + 1}" for i in range(8)]}
    exec(LINES.replace("updates=20, learning_rate=1e-5", "updates=6, learning_rate=3e-3"), given)

    said = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in said[:12]] == [
        [label, "update", f"{n}:"] for label in ("PPO", "NLPO") for n in range(1, 7)
    ]
    table = {line.split()[0]: line.split() for line in said[12:]}
    assert list(table) == ["policy", "start", "PPO", "NLPO"]
    assert float(table["start"][2]) == 0 < float(table["PPO"][2])
    for name in ("PPO", "NLPO"):
        assert float(table[name][1]) > float(table["start"][1]), "it learned nothing"
        loaded, _ = rlnlp.load(tmp_path / "tuned" / name)
        trained = given["policies"][name].state_dict()
        assert all(torch.equal(weight, trained[part]) for part, weight in loaded.state_dict().items())
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items()), "the start changed"


def test_what_to_try_them_on_is_all_that_they_need(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", lambda name: MAKE["causal"]())
    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", lambda name: tokenizer_of(50))
    exec(TRY + LINES.replace("updates=20", "updates=1"), given := {})
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]] == ["policy", "start", "PPO", "NLPO"]
    assert given["reward"](None, ["a, b, c", "d"], None, None) == [2.0, 0.0]


def test_what_the_lines_spell_out_is_the_default_of_every_learner_that_has_it():
    for name in rlnlp.LEARNERS:
        fields = getattr(rlnlp, name).Config.model_fields
        if "gamma" in fields:
            assert fields["gamma"].default == 1.0, name
        if "learning_rate" in fields and name != "trpo":  # there it is the value network's: the policy's has no rate
            assert fields["learning_rate"].default == 1e-5, name
    assert "learning_rate=1e-5, gamma=1.0" in LINES


def test_the_import_is_light_and_every_name_behind_the_door_is_there():
    code = "import rlnlp, sys; print(sorted({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT).stdout == "[]\n"
    for name in dir(rlnlp):
        assert getattr(rlnlp, name) is not None
    assert rlnlp.ppo is sys.modules["rlnlp.learners.ppo"]
    with pytest.raises(AttributeError, match="no attribute 'pppo'"):
        _ = rlnlp.pppo


def test_prompts_lie_where_the_model_is_and_fit_it():
    model, tokenizer = MAKE["causal"](positions=16), tokenizer_of(50)
    with pytest.warns(UserWarning, match="1 of 2 prompts are longer than 8 tokens and lose .* up to 22 tokens"):
        found = rlnlp.prompts_for(model, tokenizer, ["w1", " ".join(["w2"] * 30)])
    assert found.ids.device == model.device and found.ids.shape == (2, 8) and found.meta[1]["cut"] == 22
    texts = ["w1", "w2 w3"]
    for column in (datasets.Dataset.from_dict({"text": texts})["text"], numpy.array(texts), pandas.Series(texts)):
        assert rlnlp.prompts_for(model, tokenizer, column).texts == texts


def test_references_and_what_else_is_known_reach_the_reward():
    model, tokenizer, seen = MAKE["causal"](), tokenizer_of(50), []

    def reward(prompts, responses, references, meta):
        seen.extend((references, meta))
        return [0.0] * len(prompts)

    given = {"references": [["w3"], []], "meta": [{"label": 1}, {"label": 0}]}
    prompts = rlnlp.prompts_for(model, tokenizer, ["w1", "w2"], **given)
    rlnlp.compare({"start": model}, prompts, reward, tokenizer, max_new_tokens=2)
    assert seen == [[["w3"], []], [{"label": 1, "cut": 0}, {"label": 0, "cut": 0}]]
    with pytest.raises(ValueError, match="prompts.references: expected 2 entries, got 1"):
        rlnlp.prompts_for(model, tokenizer, ["w1", "w2"], references=[["w3"]])


def test_what_is_compared_is_a_mean_over_all_tokens_that_a_policy_writes():
    """The KL from plain forwards over the vocabulary, of the policy to the start; more prompts than go at once."""
    start, tuned, tokenizer = MAKE["causal"](seed=0), MAKE["causal"](seed=9), tokenizer_of(50)
    prompts = rlnlp.prompts_for(start, tokenizer, [f"w{i % 7} w{i % 5}" for i in range(70)])
    rows = rlnlp.compare({"start": start, "tuned": tuned}, prompts, reward, tokenizer, max_new_tokens=6, seed=3)
    parts = [
        sample(tuned, take(prompts, torch.arange(first, last)), sampling_from(tuned, 6), generator(3, "compare", first))
        for first, last in ((0, 64), (64, 70))
    ]
    with torch.no_grad():
        mine, theirs = (torch.cat([distributions(model, part) for part in parts]) for model in (tuned, start))
    assert 70 < len(mine) < 70 * 6
    assert rows[1]["KL"] == pytest.approx((mine.exp() * (mine - theirs)).sum(1).mean().item(), rel=1e-3)
    assert abs((theirs.exp() * (theirs - mine)).sum(1).mean().item() / rows[1]["KL"] - 1) > 0.05  # not the other way
    assert rows[1]["tokens"] == len(mine) / 70
    assert rows[1]["ended"] == sum(int(part.terminated.sum()) for part in parts) / 70
    assert rows[0]["KL"] == 0.0


def test_equal_policies_have_equal_rows():
    """Whatever their names are: the same random numbers for all."""
    start, tokenizer = MAKE["causal"](), tokenizer_of(50)
    prompts = rlnlp.prompts_for(start, tokenizer, [f"w{i}" for i in range(16)])
    policies = {"start": start, "a": copy.deepcopy(start), "b": copy.deepcopy(start)}
    rows = rlnlp.compare(policies, prompts, reward, tokenizer, max_new_tokens=6)
    assert [row.pop("policy") for row in rows] == ["start", "a", "b"]
    assert rows[0] == rows[1] == rows[2] and rows[0]["KL"] == 0.0


def test_what_cannot_be_compared_is_named():
    model, tokenizer = MAKE["causal"](), tokenizer_of(50)
    prompts = rlnlp.prompts_for(model, tokenizer, ["w1"])
    state = rlnlp.ppo.init(copy.deepcopy(model), rlnlp.ppo.Config(updates=1), seed=0)
    with pytest.raises(ValueError, match="'PPO': expected a model, got State; .* state.policy"):
        rlnlp.compare({"start": model, "PPO": state}, prompts, reward, tokenizer)
    with pytest.raises(ValueError, match="prompts: expected what rlnlp.prompts_for returns, got list"):
        rlnlp.compare({"start": model}, ["w1"], reward, tokenizer)
    with pytest.raises(ValueError, match="tokenizer: expected the model's, .* got function"):
        rlnlp.compare({"start": model}, prompts, tokenizer, reward)
    with pytest.raises(ValueError, match="expected one vocabulary.*'start': 50, 'wider': 60"):
        rlnlp.compare({"start": model, "wider": MAKE["causal"](60)}, prompts, reward, tokenizer)


def test_a_model_that_cannot_be_trained_as_it_is_is_refused_before_anything_runs():
    model, tokenizer = MAKE["causal"](), tokenizer_of(50)
    for kind in (torch.bfloat16, torch.float16):  # transformers loads what was saved in 16 bits as such
        with pytest.raises(ValueError, match=f"its weights are {kind}, .*torch.float32"):
            rlnlp.prompts_for(copy.deepcopy(model).to(kind), tokenizer, ["w1"])
    with pytest.raises(ValueError, match="expected a list of prompts, got one string"):
        rlnlp.prompts_for(model, tokenizer, "w1 w2")
    with pytest.raises(ValueError, match="model: expected a language model of transformers.* got Tokenizers"):
        rlnlp.prompts_for(tokenizer, model, ["w1"])
    for table in (pandas.DataFrame({"text": ["w1"]}), {"text": ["w1"]}):  # the names of their columns are strings
        with pytest.raises(ValueError, match=f"expected a list of prompts, got a {type(table).__name__}: give one col"):
            rlnlp.prompts_for(model, tokenizer, table)
    with pytest.raises(ValueError, match=r"the token 55 \('w\d+'\) and the model has embeddings for 50, 0 to 49"):
        rlnlp.prompts_for(model, wide := tokenizer_of(60), ["w1", wide.convert_ids_to_tokens(55)])
    assert len(rlnlp.prompts_for(model, tokenizer_of(60), ["w1"])) == 1  # of a token more, which no text has
    for texts in (["w1", None], ["w1", ["w2"]]):
        with pytest.raises(ValueError, match=f"texts: expected strings, got {type(texts[1]).__name__} at place 1"):
            rlnlp.prompts_for(model, tokenizer, texts)
    with pytest.raises(ValueError, match="policies: expected at least one"):
        rlnlp.compare({}, rlnlp.prompts_for(model, tokenizer, ["w1"]), None, tokenizer)
    with pytest.raises(ValueError, match="policies: 'start' and 'PPO' are one model.*deepcopy"):  # both were trained
        prompts = rlnlp.prompts_for(model, tokenizer, ["w1"])
        rlnlp.compare({"start": model, "other": copy.deepcopy(model), "PPO": model}, prompts, reward, tokenizer)
    bare = transformers.GPT2Model(model.config)  # as AutoModel loads it: what it writes cannot be read off
    with pytest.raises(ValueError, match="one that writes text, as AutoModelForCausalLM .* got GPT2Model"):
        rlnlp.prompts_for(bare, tokenizer, ["w1"])
    with pytest.raises(ValueError, match="tokenizer: expected the model's, .* got list"):
        rlnlp.prompts_for(model, ["w1"], tokenizer)
    with pytest.raises(ValueError, match="references: expected a list of strings for each prompt, got a string"):
        rlnlp.prompts_for(model, tokenizer, ["w1"], references=["w2"])
    for limit in (0, -3):  # 0 kept every token, -3 dropped the first three
        with pytest.raises(ValueError, match=f"max_prompt_tokens: expected 1 or more, got {limit}"):
            rlnlp.prompts_for(model, tokenizer, ["w1"], max_prompt_tokens=limit)


def test_saving_onto_a_file_names_it_and_leaves_it(tmp_path):
    (file := tmp_path / "tuned").write_text("notes")
    for folder in (file, file / "PPO"):
        with pytest.raises(ValueError, match=f"^{re.escape(str(file))}: expected a folder to save into, found a file$"):
            rlnlp.save(MAKE["causal"](), tokenizer_of(50), folder)
    assert file.read_text() == "notes"


def test_tokens_that_no_text_has_are_said_until_they_are_taken_away(recwarn):
    model, tokenizer = MAKE["causal"](), tokenizer_of(50)
    rlnlp.prompts_for(model, tokenizer, ["w1"])
    assert not recwarn.list
    small = tokenizer_of(40)
    with pytest.warns(UserWarning, match="can choose 50 tokens and the tokenizer has 40: .*list\\(range\\(40\\)\\)"):
        rlnlp.prompts_for(model, small, ["w1"])
    recwarn.clear()
    limit_vocabulary(model, list(range(40)))
    rlnlp.prompts_for(model, small, ["w1"])
    assert not recwarn.list


def test_a_model_that_ends_with_another_token_than_its_tokenizer_is_said():
    model, tokenizer = MAKE["causal"](), tokenizer_of(50)
    end = tokenizer.eos_token_id
    model.generation_config.eos_token_id = end + 5
    with pytest.warns(UserWarning, match=f"texts end with token {end + 5} and the tokenizer's with {end} "):
        rlnlp.prompts_for(model, tokenizer, ["w1"])


def test_prompts_are_prompts_where_a_learner_will_refuse_the_end():
    model, tokenizer = MAKE["causal"](), tokenizer_of(50)
    for ends in ([1, 2], 50, None):
        model.generation_config.eos_token_id = model.config.eos_token_id = ends
        assert len(rlnlp.prompts_for(model, tokenizer, ["w1"])) == 1
