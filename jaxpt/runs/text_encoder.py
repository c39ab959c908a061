"""The encoder of a task's texts for a run: special tokens, length, how answers end."""

import dataclasses

from jaxpt.errors import ConfigError
from jaxpt.nn.networks.abilities import WritesText
from jaxpt.nn.networks.one_stack import PrefixLM
from jaxpt.runs.task import Task
from jaxpt.tasks.encoder import TextEncoder
from jaxpt.tasks.writing import Writing
from jaxpt.text.tokens.post_processor import read_pair_template
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.text_form import TextForm

# Families that separate two texts by `after` twice (fairseq: models/roberta).
DOUBLE = ("roberta", "bart")


def make_encoder(
    task: Task, tokenizer: Tokenizer, form: str, max_len: int
) -> TextEncoder:
    """The encoder of texts for a run."""
    spec = task.model_spec
    has_places = spec.positions in ("learned", "sinusoidal")
    if has_places and max_len > spec.max_len:
        raise ConfigError(
            f"task.max_len={max_len}: must be at most the model's {spec.max_len}, or 0 "
            f"for the model's"
        )
    text_form = find_task_form(task, tokenizer, form)
    pad = task.vocab.pad or 0
    writing = find_writing(task)
    return TextEncoder(tokenizer, text_form, max_len or spec.max_len, pad, writing)


def find_writing(task: Task) -> Writing | None:
    """How the run's network generates an answer; None if not from left to right.

    In one stack, the special tokens after a text separate the answer from it, or else a
    [SEP] or an [EOS], if there is one. The answer ends with the first of [EOS], [SEP],
    [BOS], [CLS] and [PAD] that the vocabulary has.
    """
    vocab, kind = task.vocab, type(task.model)
    if not isinstance(task.model, WritesText):
        return None
    form, after = task.text_form, task.text_form.after
    ids = [getattr(vocab, role) for role in ("eos", "sep", "bos", "cls", "pad")]
    marks = [*form.ends, *(x for x in ids if x is not None)]
    if not marks:
        return None
    if not kind.HAS_DECODER and not after:
        after = tuple(x for x in (vocab.sep, vocab.eos) if x is not None)[:1]
    ends = form.ends or (marks[0],)
    return Writing(
        has_decoder=kind.HAS_DECODER,
        sees_all=isinstance(task.model, PrefixLM),
        form=dataclasses.replace(form, after=after, ends=ends),
        end=marks[0],
        max_len=task.model_spec.max_len,
        banned=tuple(sorted(set(task.nonwords) - set(ends))),
        pad=vocab.pad or 0,
    )


def find_task_form(task: Task, tokenizer: Tokenizer, form: str) -> TextForm:
    """The run's form with the special tokens of pairs, as in the family's rows.

    A tokenizer with a template for pairs keeps it. Otherwise the special tokens after a
    text also separate two texts; if there are none, a [SEP] or an [EOS] does. The head
    "gpt" reads the last token, an [EOS] if the rows have none (GPT-1 adds a start, a
    delimiter and an end to the vocabulary for this; here nothing is added).
    """
    vocab, own = task.vocab, task.text_form
    before, after = own.opening, own.after
    is_framed = bool(before or after)
    template = read_pair_template(tokenizer.to_core()["post_processor"])
    if template is not None and vocab.text_form is not None:
        known = vocab.text_form.before, vocab.text_form.after
        if (template.before, template.after) == known:
            between, second_type = template.between, template.second_type
            return dataclasses.replace(own, between=between, second_type=second_type)
    marks = [x for x in (vocab.sep, vocab.eos) if x is not None][:1]
    between = after * 2 if form in DOUBLE else after
    if not is_framed:
        between = tuple(marks)
    if form == "gpt":
        if not before and vocab.bos is not None:
            before = (vocab.bos,)
        if not after and vocab.eos is not None:
            after = (vocab.eos,)
        between = between or tuple(marks)
    has_types = is_framed and task.model_spec.num_types > 1
    return dataclasses.replace(
        own,
        before=before,
        mode=(),
        after=after,
        between=between,
        second_type=int(has_types),
    )
