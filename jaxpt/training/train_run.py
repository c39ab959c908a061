"""Trains one run from a config: prepares its text, teacher and task."""

from collections.abc import Collection
from pathlib import Path

from jaxpt.by_name import load_place
from jaxpt.config.plan import make_plan
from jaxpt.distributed import processes
from jaxpt.files.folder import hold
from jaxpt.runs.data import with_token_counts
from jaxpt.runs.progress_bars import SILENT, make_reporter
from jaxpt.runs.stored_form import with_text_form
from jaxpt.runs.task import make_task
from jaxpt.text.dataset import load_text
from jaxpt.training import loop
from jaxpt.training.hooks import NO_HOOKS, Hooks


def train_run(
    config,
    workdir: Path,
    explicit_names: Collection[str] = (),
    is_stored: bool = False,
    hooks: Hooks = NO_HOOKS,
) -> dict:
    """Trains a run to its end, from its last checkpoint if there is one.

    Args:
      config: a ConfigDict, or plain values.
      explicit_names: full names of the settings that the user has set; the needs of the
        objective do not change them.
      is_stored: the config is that of an existing run, and no setting is changed.
      hooks: called during training.

    Returns:
      the run's entry in a report, as in its `result.json`.

    Raises:
      UserError, DivergedError, Stopped: as `jaxpt.training.loop.train`.
    """
    plan = processes.on_all(make_plan, config, explicit_names, is_stored, True)
    reporter = make_reporter() if processes.is_first() else SILENT
    with hold(workdir):  # before the text, which may take long to prepare
        tokenizer, corpora = processes.first_then_rest(
            lambda: load_text(plan.text, reporter=reporter)
        )
        if plan.lacks_teacher:
            with_teacher = load_place("jaxpt.training.teacher:with_teacher")
            folder = workdir / "teacher"
            plan = with_teacher(plan, tokenizer, corpora, folder, explicit_names)
        own_vocab = with_text_form(tokenizer.vocab, workdir)
        vocab = with_token_counts(plan, own_vocab, corpora["train"])
        task = processes.on_all(make_task, plan, vocab)
        return loop.train(task, tokenizer, corpora, workdir, hooks=hooks)
