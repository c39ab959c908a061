"""A run as something that scores texts: what stands around them, as in its training."""

from jaxpt.training.program import Program
from jaxpt.training.random_parts import check_language_model
from jaxpt.training.run_framing import find_framing
from jaxpt.training.task import Task
from jaxpt.zero_shot.score_rows import TextForm, mark_words
from jaxpt.zero_shot.scoring import TextScorer

# Positions that a table has, and no more.
TABLES = ("learned", "sinusoidal")


def make_scorer(program: Program, params) -> TextScorer:
    """What scores texts by a run's network.

    Raises:
      UserError: no rule scores them by it, or its head was drawn at random.
    """
    task = program.task
    check_language_model(task, "the likelihood of a text")
    return TextScorer(
        task.model,
        params,
        find_form(task),
        task.plan.objective_name,
        program.compile_reader,
    )


def find_form(task: Task) -> TextForm:
    """How this run's network is shown a text.

    What stands before a text from left to right: what its model came with, else the
    [EOS] that closed the text before it where rows are joined texts, else nothing.
    """
    vocab, spec, framing = task.vocab, task.spec, find_framing(task)
    mode = () if vocab.framing else spec.feature_mode(vocab)
    lead, mark = spec.continuation(vocab)
    if vocab.framing:
        lead = ()
    gap = spec.gap(vocab)
    if not gap and "fill_logits" in task.model.ABILITIES:
        gap = (vocab.require("mask"),)
    has_table = task.model_spec.positions in TABLES
    return TextForm(
        before=framing.before + mode,
        after=framing.after,
        left=_find_left(task),
        right=() if vocab.eos is None else (vocab.eos,),
        gap=gap,
        lead=framing.before + lead,
        mark=mark,
        tail=framing.after,
        start=vocab.start if task.model.HAS_DECODER else 0,
        rewrites=spec.REWRITES,
        is_word_start=mark_words(
            vocab.word_starts, vocab.pieces, task.model_spec.vocab_size
        ),
        max_len=task.model_spec.max_len if has_table else 0,
    )


def _find_left(task: Task) -> tuple[int, ...]:
    framing = find_framing(task)
    if framing.before or framing.bos is None:
        return framing.before
    return (framing.bos,)
