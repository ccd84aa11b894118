"""rlnlp: reinforcement learning for language generation, one readable file for each algorithm.

With a model, a tokenizer, texts to begin from and a function that says how good a response is:

    prompts = rlnlp.prompts_for(model, tokenizer, texts)
    config = rlnlp.ppo.Config(updates=20)
    state = rlnlp.ppo.init(model, config, seed=0)
    for metrics in rlnlp.ppo.train(state, prompts, rlnlp.scorer(reward, tokenizer), config):
        print(rlnlp.one_line(metrics))
    print(rlnlp.compare({"start": state.reference, "PPO": model}, prompts, reward, tokenizer))
    rlnlp.save(model, tokenizer, "tuned")

Nothing heavy is imported before it is used. ``dir(rlnlp)`` lists the rest: each learner and each name of DOOR.
"""

from importlib import import_module
from pathlib import Path

__version__ = "0.1.0"

DOOR = {  # name -> the module it is in
    "load": "pretrained",
    "save": "pretrained",
    "prompts_for": "encoding",
    "sample": "rollout",
    "decode": "rollout",
    "scorer": "scoring",
    "one_line": "comparison",
    "compare": "comparison",
    "Prompts": "types",
    "Rollout": "types",
    "Experience": "types",
}
LEARNERS = sorted(file.stem for file in (Path(__file__).parent / "learners").glob("[!_]*.py") if file.stem != "common")


def __getattr__(name: str):
    if name in DOOR:
        return getattr(import_module(f"rlnlp.{DOOR[name]}"), name)
    if name in LEARNERS:
        return import_module(f"rlnlp.learners.{name}")
    raise AttributeError(f"module 'rlnlp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*DOOR, *LEARNERS, "__version__"])
