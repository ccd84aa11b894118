"""What is measured: systems, shapes, and how many times as fast as TRL each is meant to be."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRIVATE = ROOT / ".bench"  # ignored: the peer's packages and the workers' logs
PEER = "TRL"
SYSTEMS = {
    PEER: {"module": "bench.peer_trl", "networks": 3, "value": "separate"},
    "rlnlp": {"module": "bench.ours", "networks": 3, "value": "separate"},
    "rlnlp, shared trunk": {"module": "bench.ours", "networks": 2, "value": "shared"},
}
CASES = {  # epochs: how many of the five are timed; rounds and memory (GB, all systems alive at once) by default
    "tiny": {"shape": "tiny", "prompt": "padded", "epochs": 5, "rounds": 20, "warmup": 3, "memory": 3},
    "tiny-full": {"shape": "tiny", "prompt": "full", "epochs": 5, "rounds": 10, "warmup": 3, "memory": 3},
    "117m": {"shape": "117m", "prompt": "padded", "epochs": 1, "rounds": 6, "warmup": 1, "memory": 19},
    "117m-full": {"shape": "117m", "prompt": "full", "epochs": 1, "rounds": 6, "warmup": 1, "memory": 19},
}
TITLES = {
    "tiny": "GPT-2 2x128, vocabulary 1,000",
    "tiny-full": "GPT-2 2x128, five real prompt tokens instead of 4 PAD + EOS",
    "117m": "GPT-2 117M shape, random weights",
    "117m-full": "GPT-2 117M shape, five real prompt tokens",
}
TARGETS = {  # x TRL, end to end
    ("tiny", "rlnlp"): 1.25,
    ("tiny", "rlnlp, shared trunk"): 1.5,
    ("117m", "rlnlp"): 0.95,
    ("117m", "rlnlp, shared trunk"): 1.5,
}
