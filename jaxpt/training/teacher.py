"""Trains a teacher for distillation, if the user names none."""

from collections.abc import Collection
from pathlib import Path

from jaxpt.config.plan import Plan, make_plan
from jaxpt.distributed import processes
from jaxpt.files import copies
from jaxpt.objectives import find_section
from jaxpt.runs.data import with_token_counts
from jaxpt.runs.task import Task, make_task
from jaxpt.text.dataset import Split
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.training.loop import train


def make_teacher_task(
    plan: Plan,
    tokenizer: Tokenizer,
    corpora: dict[str, Split],
    explicit_names: Collection[str],
) -> Task:
    """The teacher's task: the plan's config with the teacher's objective."""
    needed = plan.spec.needs.teacher
    assert needed is not None  # of an objective with a teacher
    train_section = plan.config.get("train", {}) | {"init_from": ""}  # the student's
    config = plan.config | {
        "objective": needed.objective,
        "train": train_section,
    }
    teacher = make_plan(config, explicit_names, is_run=True)
    vocab = with_token_counts(teacher, tokenizer.vocab, corpora["train"])
    return make_task(teacher, vocab)


def with_teacher(
    plan: Plan,
    tokenizer: Tokenizer,
    corpora: dict[str, Split],
    folder: Path,
    explicit_names: Collection[str] = (),
) -> Plan:
    """The plan with its teacher, which is trained in `folder` first.

    Args:
      plan: one that `lacks_teacher`.

    Training of the teacher resumes; a finished teacher is used as it is.

    Raises:
      UserError, DivergedError, Stopped: as `loop.train`.
    """
    teacher = plan.spec.needs.teacher
    assert teacher is not None  # of an objective that lacks one
    task = processes.on_all(make_teacher_task, plan, tokenizer, corpora, explicit_names)
    train(task, tokenizer, corpora, folder, label="teacher")
    section = find_section(plan.objective_name)
    student_plan = processes.on_all(
        plan.change, {section: {teacher.setting: copies.with_urls(folder)}}
    )
    name = f"{section}.{teacher.setting}"
    return student_plan.add_filled(
        f"{name}={folder} ({task.plan.objective_name}, trained first)"
    )
