"""Real film reviews in fixed roles, for runs that all start from one base model: a draw is a seed and nothing else."""

from __future__ import annotations

from workbook.texts.hub import DataError
from workbook.texts.reviews import SIZES, by_role
from workbook.texts.tasks import Task
from workbook.texts.tasks.imdb import splits_of


def load(params, draw: int) -> dict[str, list[dict]]:
    """The parts of ``workbook.texts.reviews``, of each the first so many as the settings ask for.

    No role depends on the draw or on how much is asked for: so what the base model has read is never a prompt, what
    rewards never judges, and a smaller experiment's reviews are among a larger one's.
    Raises: DataError for a source not found or not of this form, and for more reviews asked for than a role has.
    """
    task, parts = params.task, by_role(splits_of(params), SIZES)
    asked = {
        "language_model": ("task.language_model_reviews", task.language_model_reviews),
        "language_model_validation": (
            "task.language_model_validation_reviews",
            task.language_model_validation_reviews,
        ),
        "evaluator": ("task.evaluator_reviews", task.evaluator_reviews),
        "reward": ("task.reward_reviews", task.reward_reviews),
        "reward_validation": ("task.reward_validation_reviews", task.reward_validation_reviews),
        "judge": ("task.judge_reviews", task.judge_reviews),
        "prompts_train": ("task.train_prompts", task.train_prompts),
        "prompts_validation": ("task.validation_prompts", task.validation_prompts),
        "prompts_test": ("task.test_prompts", task.test_prompts),
        "human_reviews": ("evaluation.human_reviews", params.evaluation.human_reviews),
    }
    for part, (setting, n) in asked.items():
        if n > len(parts[part]):
            raise DataError(f"{setting}: expected at most {len(parts[part])}, the reviews of that role, got {n}")
    return {part: parts[part][:n] for part, (_, n) in asked.items()}


TASK = Task(
    load,
    source="hub id imdb (Maas et al. 2011), in fixed roles",
    licence="none stated; research use, cite Maas et al. 2011",
    hub="imdb",
    draw=lambda draw: 0,
    judge="transformer",
    evaluator="own_texts",
)
