"""The stage ``evaluate``."""

from __future__ import annotations

import time

from bench.gpu.scale import model_of, prompts_of
from bench.gpu.stage import Clock, Stage, by_worth


def words(size: int):
    """A tokeniser whose words are numbers: its work a token is that of a word-level one, less than of a BPE."""
    import tokenizers
    import transformers

    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"n{i}": i for i in range(size)}, unk_token="n0"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=f"n{size - 1}")


def evaluate(stage: Stage) -> None:
    """One decoding of a whole split: sampling, one pass for the exact KL, text and back; wall and CPU seconds."""
    import torch

    from rlnlp import models, rollout
    from rlnlp.precision import numerics
    from rlnlp.static_rollout import sample_static

    scale, (name, shape) = stage.scale, next(iter(stage.scale.shapes.items()))
    policy, tokenizer, device = model_of(shape, stage.device), words(shape.vocabulary), torch.device(stage.device)
    reference, kept = model_of(shape, stage.device, 1), {}
    for precision in by_worth(stage):
        if not stage.time_for(25, precision):
            continue
        with stage.row("one decoding", shape=name, prompts=scale.evaluated, precision=precision) as row:
            sampling, numbers = rollout.sampling_from(policy, scale.new), torch.Generator().manual_seed(0)
            spent, total = {}, 0.0
            cpu = time.process_time()
            for start in range(0, scale.evaluated, scale.together):
                prompts = prompts_of(shape, scale.together, scale.prompt, stage.device, start)
                clock = Clock(stage.device)
                drawn = sample_static(policy, prompts, sampling, numbers, precision=precision, kept=kept)
                clock.mark("sampling")
                with numerics(precision, device):
                    models.exact_kl(policy, reference, drawn)
                clock.mark("exact KL")
                texts = rollout.decode(drawn, tokenizer)
                tokenizer(texts)
                for part, seconds in clock.mark("text").items():
                    spent[part] = spent.get(part, 0.0) + seconds
                    total += seconds
            row |= {"seconds": spent, "total_s": total, "cpu_s": time.process_time() - cpu}
