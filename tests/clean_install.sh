#!/usr/bin/env bash
# Install the core alone into a clean environment, at one end of the declared ranges, and run the README's twelve lines there.
#     tests/clean_install.sh newest|lowest [PYTHON]        needs a package index; a few minutes; not part of `make test`
# torch is the locked version in both. Nothing else is installed, and nothing of the repository but the wheel is used.
set -euo pipefail
end=${1:-newest} python=${2:-python3.11} root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
"$python" - "$root" "$end" > "$work/constraints.txt" <<'PY'
import re, sys, tomllib
root, end = sys.argv[1:]
print("torch==" + re.search(r"^torch==(.*)$", open(f"{root}/requirements.lock").read(), re.M)[1])
for requirement in tomllib.load(open(f"{root}/pyproject.toml", "rb"))["project"]["dependencies"]:
    name, lowest = re.match(r"([\w-]+)>=([\w.]+)", requirement).groups()
    if end == "lowest" and name != "torch":
        print(f"{name}=={lowest}")
PY
git -C "$root" ls-files -z rlnlp pyproject.toml README.md LICENSE | (cd "$root" && xargs -0 cp --parents -t "$work")
"$python" -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile -c "$work/constraints.txt" "$work"
mkdir "$work/elsewhere"; cd "$work/elsewhere"
"$work/venv/bin/python" - "$root/README.md" <<'PY'
import re, sys
from importlib import metadata
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration
import rlnlp
assert "site-packages" in rlnlp.__file__
try: import workbook
except ModuleNotFoundError: pass
else: sys.exit("the wheel holds workbook")
lines = re.search(r"in twelve lines\n.*?```python\n(.*?)```", open(sys.argv[1], encoding="utf-8").read(), re.S)[1]
words = ["<pad>", "</s>", *(f"w{i}" for i in range(48))]
made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="</s>"))
made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>", pad_token="<pad>", unk_token="</s>")
def reward(prompts, responses, references, meta): return [response.split().count("w7") for response in responses]
torch.manual_seed(0)
shapes = {"vocab_size": 50, "eos_token_id": 1, "pad_token_id": 0}
gpt2 = GPT2LMHeadModel(GPT2Config(**shapes, bos_token_id=1, n_embd=32, n_layer=2, n_head=2, n_positions=64))
t5 = T5ForConditionalGeneration(T5Config(
    **shapes, decoder_start_token_id=0, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2))
for model in (gpt2, t5):
    print(type(model).__name__)
    exec(lines.replace("updates=20, learning_rate=1e-5", "updates=3, learning_rate=1e-3"), {
        "model": model, "tokenizer": tokenizer, "reward": reward, "texts": [f"w{i} w{i + 1}" for i in range(8)]})
    rlnlp.load("tuned/NLPO")
names = ("torch", "transformers", "numpy", "pydantic", "gymnasium")
print("passed: Python", sys.version.split()[0], *(f"{name} {metadata.version(name)}" for name in names),
      f"and {len(list(metadata.distributions()))} distributions in all")
PY
