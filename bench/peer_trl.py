"""A worker that lets TRL 1.12.0's PPOTrainer do one iteration each time the driver asks for one.

``PPOTrainer.train`` is one long loop, so the worker stands in the loop's data loader: asked for the next batch, it
reports the iteration that just ended, garbage collection included, and waits until the driver wants another.
Settings are TRL's own where the work does not fix them; those that would cost it time (logging, saving, sample
generations, gradient checkpointing, bf16 emulation on a CPU) are off.
"""

from __future__ import annotations

import tempfile

from bench import work


def main() -> None:
    job = work.asked("bench.peer_trl", __doc__)
    work.pin(job["core"])
    channel, meter = work.Channel(), work.Meter()
    meter.start()

    import torch
    from datasets import Dataset
    from torch import nn
    from transformers import TrainerCallback
    from trl.experimental.ppo import PPOConfig, PPOTrainer

    tokenizer = work.tokenizer(job["shape"])
    policy, reference = work.build(job["shape"]), work.build(job["shape"])
    value = work.build(job["shape"], sequence_classifier=True)
    eos, pad = policy.config.eos_token_id, tokenizer.pad_token_id
    policy.generation_config.min_new_tokens = work.NEW_TOKENS  # with stop_token="eos": EOS blocked, as the work says
    policy.generation_config.pad_token_id = 0

    class Backbone(nn.Module):
        """Scores instead of hidden states: TRL takes a reward model, so a Python reward function is dressed as one."""

        def forward(self, input_ids, attention_mask, **unused):
            responses = input_ids[:, work.PADDING + 1 :]
            work.inspect_episodes(meter, responses[attention_mask[:, work.PADDING + 1 :]].view(len(input_ids), -1), eos)
            scores = torch.tensor(work.increasing(tokenizer.batch_decode(responses, skip_special_tokens=True)))
            return Hidden([scores[:, None, None].expand(*input_ids.shape, 1)])

    class Hidden:
        def __init__(self, hidden_states):
            self.hidden_states = hidden_states

    class Reward(nn.Module):
        base_model_prefix = "backbone"

        def __init__(self):
            super().__init__()
            self.backbone, self.score = Backbone(), nn.Identity()

    class Gate:
        """The trainer's data loader, with the wait in front of each batch."""

        def __init__(self, loader):
            self.loader, self.first = loader, True

        def __iter__(self):
            if not self.first:
                channel.reply(meter.stop())
            self.first = False
            channel.wait()
            meter.start()
            yield from self.loader

    class StepEnd(TrainerCallback):
        def on_step_end(self, args, state, control, **unused):
            meter.mark("rest")  # garbage collection follows, once per iteration however many epochs

    with tempfile.TemporaryDirectory() as folder:
        config = PPOConfig(
            output_dir=folder,
            total_episodes=work.EPISODES * 10**6,
            per_device_train_batch_size=work.EPISODES,
            gradient_accumulation_steps=1,
            num_mini_batches=work.MINIBATCHES,
            num_ppo_epochs=job["epochs"],
            response_length=work.NEW_TOKENS,
            stop_token="eos",
            temperature=1.0,
            kl_coef=work.KL_COEF,
            gamma=work.GAMMA,
            lam=work.LAM,
            cliprange=work.CLIP,
            cliprange_value=work.VALUE_CLIP,
            learning_rate=work.LEARNING_RATE,
            lr_scheduler_type="constant",
            bf16=False,
            gradient_checkpointing=False,
            use_cpu=True,
            report_to=[],
            num_sample_generations=0,
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            seed=1,
        )
        prompt = [eos if job["prompt"] == "full" else pad] * work.PADDING + [eos]
        trainer = PPOTrainer(
            args=config,
            processing_class=tokenizer,
            model=policy,
            ref_model=reference,
            reward_model=Reward(),
            value_model=value,
            train_dataset=Dataset.from_dict({"input_ids": [prompt] * work.EPISODES}),
            callbacks=[StepEnd()],
        )
        accumulate = trainer.accelerator.accumulate

        def first_minibatch(*models):
            meter.mark("update")
            return accumulate(*models)

        trainer.accelerator.accumulate = first_minibatch
        trainer.dataloader = Gate(trainer.dataloader)
        work.count_optimizer_steps(meter)
        work.count_passes(meter, "policy", policy.base_model)
        work.count_passes(meter, "value", value.base_model)
        channel.reply(work.describe([policy, reference, value], policy))
        trainer.train()


if __name__ == "__main__":
    main()
