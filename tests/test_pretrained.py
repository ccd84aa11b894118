"""Loading what others saved: all of it is there, none of its code runs, and an error names the file."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers import models as tokens
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from rlnlp import pretrained
from rlnlp.rewards import classifier_reward
from rlnlp.scoring import RewardError
from tests.tiny import MAKE, gpt2


def tokenizer_of(size: int) -> PreTrainedTokenizerFast:
    words = ["<pad>", "</s>", *(f"w{i}" for i in range(size - 2))]
    made = Tokenizer(tokens.WordLevel({word: i for i, word in enumerate(words)}, unk_token="</s>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>", pad_token="<pad>", unk_token="</s>")


def saved(folder, model, size=50):
    model.save_pretrained(folder)
    tokenizer_of(size).save_pretrained(folder)
    return folder


def classifier():
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return BertForSequenceClassification(BertConfig(vocab_size=50, max_position_embeddings=32, **shape)).eval()


LOADERS = {
    "causal": (MAKE["causal"], pretrained.load, ValueError),
    "encoder-decoder": (MAKE["encoder-decoder"], pretrained.load, ValueError),
    "classifier": (classifier, classifier_reward, RewardError),
}


@pytest.fixture(params=LOADERS)
def loader(request, tmp_path):
    make, load, error = LOADERS[request.param]
    return saved(tmp_path / "model", make()), load, error


def change_weights(folder, change):
    file = folder / "model.safetensors"
    weights = load_file(file)
    change(weights)
    save_file(weights, file, metadata={"format": "pt"})


def layer(weights):
    """A weight in the middle: no embedding, no head."""
    return sorted(name for name, weight in weights.items() if weight.dim() == 2 and "embed" not in name)[1]


def test_a_whole_folder_loads(loader):
    folder, load, _ = loader
    load(folder)


def test_a_missing_weight_is_an_error_that_names_it(loader):
    folder, load, error = loader
    name = layer(load_file(folder / "model.safetensors"))
    change_weights(folder, lambda weights: weights.pop(name))
    with pytest.raises(error, match="no trained weights for .*" + name.split(".")[-2]):
        load(folder)


def test_a_weight_that_is_not_a_number_is_an_error_that_names_it(loader):
    folder, load, error = loader
    name = layer(load_file(folder / "model.safetensors"))
    change_weights(folder, lambda weights: weights[name][0].fill_(float("nan")))
    with pytest.raises(error, match=f"weight .*{name.split('.')[-2]}.* holds NaN"):
        load(folder)


def test_a_tokenizer_larger_than_the_model_is_an_error_with_both_sizes(loader):
    folder, load, error = loader
    tokenizer_of(51).save_pretrained(folder)
    with pytest.raises(error, match="tokenizer has 51 tokens and the input embedding of the model only 50"):
        load(folder)


def test_a_head_of_its_own_that_is_smaller_is_an_error():
    model = gpt2()
    model.lm_head = torch.nn.Linear(32, 40, bias=False)
    pretrained.check_tokens(model, tokenizer_of(40), "here")
    with pytest.raises(ValueError, match="here: the tokenizer has 41 tokens and the head of the model only 40"):
        pretrained.check_tokens(model, tokenizer_of(41), "here")


def test_broken_weights_are_named_by_their_file(loader):
    folder, load, error = loader
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(error, match="model.safetensors"):
        load(folder)


def test_a_folder_that_is_not_there_is_said_to_be_missing(loader):
    folder, load, error = loader
    with pytest.raises(error, match="no such folder"):
        load(folder.parent / "elsewhere")


@pytest.mark.parametrize("where", ["config.json", "tokenizer_config.json"])
def test_code_in_a_folder_is_never_executed_and_nobody_is_asked(loader, where, monkeypatch):
    folder, load, error = loader
    (folder / "theirs.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n")
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asked on standard input"))
    record = json.loads((folder / where).read_text())
    if where == "config.json":
        record |= {"model_type": "unheard_of", "architectures": ["Theirs"]}
        record["auto_map"] = {"AutoConfig": "theirs.Theirs", "AutoModelForCausalLM": "theirs.Theirs"}
    else:
        record |= {"tokenizer_class": "Theirs", "auto_map": {"AutoTokenizer": ["theirs.Theirs", "theirs.Theirs"]}}
    (folder / where).write_text(json.dumps(record))
    try:
        load(folder)  # a tokenizer's files may be enough without the class it names
    except error as raised:
        assert "no code from a model's folder is executed" in str(raised)
    else:
        assert where == "tokenizer_config.json"
    assert not (folder / "ran").exists()


def test_a_tied_head_needs_no_weights_of_its_own(tmp_path):
    folder = saved(tmp_path / "model", gpt2())
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    model, _ = pretrained.load(folder)
    assert model.lm_head.weight is model.get_input_embeddings().weight


def test_one_place_calls_from_pretrained():
    """A new caller would have to remember what ``pretrained.options`` says."""
    from pathlib import Path

    root = Path(pretrained.__file__).parents[1]
    files = [*(root / "rlnlp").rglob("*.py"), *(root / "workbook").rglob("*.py")]
    callers = [str(file.relative_to(root)) for file in files if ".from_pretrained(" in file.read_text()]
    assert callers == ["rlnlp/pretrained.py"]


def test_a_folder_is_read_without_a_network(tmp_path):
    assert pretrained.options(tmp_path) == {"trust_remote_code": False, "local_files_only": True}
    assert pretrained.options("gpt2")["local_files_only"] is False
    shutil.rmtree(tmp_path)
    with pytest.raises(ValueError, match="no such folder"):
        pretrained.options(tmp_path)
