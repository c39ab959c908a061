"""Samples of a run on held-out passages: continuations, filled masks and spans.

The forms depend on the network's abilities and on what its objective hides, not on the
objective's name:

    fakes         a generator fills masks, a discriminator marks what it finds replaced
    spans         hidden spans, each behind its sentinel, as a text is corrupted for T5
    rewriting     hidden spans, one [MASK] each, and the whole text written (BART)
    gaps          one hidden span, written after both sides of it
    continuation  the second half of a passage, from left to right or by unmasking
    fills         one token in seven is a [MASK]

Answers take the likeliest tokens. Continuations are drawn (`DRAWN`), because the
likeliest ones repeat themselves, and a generator's fakes are drawn as in training, with
a key that nothing else uses. No result of a run depends on its samples.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxpt.by_name import ByName
from jaxpt.evaluation import samples
from jaxpt.evaluation.samples import Part, Sample
from jaxpt.evaluation.scores import SampleSpec
from jaxpt.nn.networks.abilities import (
    DetectsReplaced,
    FillsGaps,
    FillsMasks,
    WritesText,
    name_writing,
)
from jaxpt.rng import row_keys, stream
from jaxpt.runs.program import Program
from jaxpt.runs.task import Task
from jaxpt.text.rows.corpus import split_count
from jaxpt.text.rows.forms import windows
from jaxpt.text.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from jaxpt.text.dataset import Split

LENGTH = 64  # tokens of a passage, if the model can read them
# How continuations are drawn; the seed is fixed.
DRAWN = SampleSpec(temperature=0.8, top_p=0.95)
LIKELIEST = SampleSpec(temperature=0.0)
MIN_LENGTH = 2 * samples.EVERY  # shorter passages have no samples
# Imported by the samples of networks that write.
WRITERS: ByName[Callable] = ByName({"Writer": "jaxpt.runs.writer:Writer"})
# (params) -> a sample for each passage.
Taker = Callable[[Any], list[Sample]]


def passage_length(task: Task) -> int:
    """The number of tokens of a passage that every form of sample has room for."""
    num_special = task.text_form.num_special()
    length = min(LENGTH, task.read_length - num_special, task.spec.row_length)
    if {"spans", "gaps"} & {*list_forms(task)} and not task.model.HAS_DECODER:
        # The answer follows in the same stack: three spans with their sentinels,
        # and an end; a single span with three sentinels needs less.
        room = task.model_spec.max_len - num_special
        length = min(length, room - 2 * samples.SPAN - 1)
    return length


def choose_passages(split: "Split", length: int, num: int) -> np.ndarray:
    """Passages spread evenly over a split, from its first token on: int32 [n, length].

    [0, length] if the model reads, or a part of the text has, fewer tokens.
    """
    is_short = any(part.num_tokens < length for part in split.parts)
    if not num or length < MIN_LENGTH or is_short:
        return np.zeros((0, max(length, 0)), np.int32)
    pairs = zip(split.parts, split_count(num, split.fractions), strict=True)
    return np.concatenate([windows(part, length, n) for part, n in pairs])[:num]


def list_forms(task: Task) -> list[str]:
    """The forms of sample of a network; first the one that it is trained for."""
    model = task.model
    has_sentinels = task.has_sentinels
    is_infilling = model.HAS_DECODER and bool(task.text_form.gap)
    writes = isinstance(model, WritesText)
    is_plain = not (has_sentinels or is_infilling)
    rules = {
        "fakes": isinstance(model, DetectsReplaced),
        "spans": writes and has_sentinels,
        "rewriting": writes and is_infilling and not has_sentinels,
        "gaps": isinstance(model, FillsGaps),
        "continuation": bool(name_writing(model)) and is_plain,
        "fills": isinstance(model, FillsMasks),
    }
    return [form for form, is_given in rules.items() if is_given]


def make_lines(
    program: Program, tokenizer: Tokenizer, split: "Split", num: int
) -> Callable[[Any], list[str]]:
    """(params) -> a line for each passage: its sample in the first form, if any."""
    passages = choose_passages(split, passage_length(program.task), num)
    forms = list_forms(program.task)
    if not len(passages) or not forms:
        return lambda params: []
    take = make_taker(forms[0], program, tokenizer, passages)
    return lambda params: [
        f"{forms[0]}: {samples.write_line(sample)}" for sample in take(params)
    ]


def make_taker(
    form: str, program: Program, tokenizer: Tokenizer, passages: np.ndarray
) -> Taker:
    """A compiled function from parameters to samples in one of `list_forms`."""
    makers = {
        "fakes": _make_fakes,
        "spans": _make_spans,
        "rewriting": _make_rewriting,
        "gaps": _make_gaps,
        "continuation": _make_continuation,
        "fills": _make_fills,
    }
    return makers[form](program, tokenizer, passages)


def _hide(program: Program, passages: np.ndarray) -> np.ndarray:
    """Which tokens are hidden one by one, bool [n, T]."""
    is_special = program.task.vocab.is_special[passages]
    return np.stack([samples.hide_tokens(row) for row in is_special])


def _make_rows(program: Program, passages: np.ndarray, is_hidden: np.ndarray) -> dict:
    """Masked passages as the network reads them, and the masked positions."""
    task = program.task
    form = task.text_form
    masked = np.where(is_hidden, task.vocab.require("mask"), passages)
    beside = len(form.before), len(form.after)
    return {
        "tokens": form.wrap(passages),
        "masked": form.wrap(masked),
        "is_hidden": np.pad(is_hidden, ((0, 0), beside)),
        "index": np.arange(len(passages), dtype=np.int32),
    }


def _fill_scores(task: Task, params, rows: dict) -> jax.Array:
    """Logits [B, T, V], with -inf for special tokens."""
    model: Any = task.model
    logits = model.fill_logits(params, rows["masked"]).astype(jnp.float32)
    return logits.at[..., np.array(task.nonwords, int)].set(-jnp.inf)


def _make_fills(program: Program, tokenizer: Tokenizer, passages: np.ndarray) -> Taker:
    is_hidden = _hide(program, passages)
    rows = _make_rows(program, passages, is_hidden)
    before = len(program.task.text_form.before)

    def fill(params, rows):
        return jnp.argmax(_fill_scores(program.task, params, rows), axis=-1)

    compiled = program.compile_reader(fill)

    def label_parts(row, hidden, best):
        for id_, is_masked, guess in zip(row, hidden, best, strict=True):
            if not is_masked:
                yield [id_], "given", []
            else:
                is_right = guess == id_
                yield [guess], *(("right", []) if is_right else ("wrong", [id_]))

    def take(params):
        guesses = np.asarray(compiled(params, rows))[:, before:]
        guesses = guesses[:, : passages.shape[1]]
        triples = zip(passages, is_hidden, guesses, strict=True)
        return [samples.spell(tokenizer, label_parts(*triple)) for triple in triples]

    return take


def _make_fakes(program: Program, tokenizer: Tokenizer, passages: np.ndarray) -> Taker:
    """A generator fills masks; tokens that differ from the text are fakes."""
    task = program.task
    is_hidden = _hide(program, passages)
    rows = _make_rows(program, passages, is_hidden)
    before, model = len(task.text_form.before), cast(Any, task.model)

    def spot(params, rows):
        keys = row_keys(stream(0, 0, "sample"), rows["index"])
        scores = _fill_scores(task, params, rows)
        sampled = jax.vmap(jax.random.categorical)(keys, scores).astype(jnp.int32)
        tokens = jnp.where(rows["is_hidden"], sampled, rows["tokens"])
        return tokens, model.replaced_logits(params, tokens)

    compiled = program.compile_reader(spot)

    def label_parts(row, tokens, is_marked):
        for id_, token, mark in zip(row, tokens, is_marked, strict=True):
            if token != id_:
                yield [token], "caught" if mark else "missed", [id_]
            else:
                yield [token], "alarm" if mark else "given", []

    def take(params):
        filled, logits = (
            np.asarray(output)[:, before:][:, : passages.shape[1]]
            for output in compiled(params, rows)
        )
        spelled = []
        for row, tokens, scores in zip(passages, filled, logits, strict=True):
            # The number of fakes: early in training few scores are above 0.
            scores = np.where(task.vocab.is_special[row], -np.inf, scores)
            marked = np.argsort(-scores, kind="stable")[: np.sum(tokens != row)]
            is_marked = np.isin(np.arange(len(row)), marked)
            spelled.append(
                samples.spell(tokenizer, label_parts(row, tokens, is_marked))
            )
        return spelled

    return take


def _make_writer(
    program: Program,
    tokenizer: Tokenizer,
    prompts: list[np.ndarray],
    num_tokens: int,
    spec: SampleSpec = LIKELIEST,
) -> Callable[[Any], list[np.ndarray]]:
    """(params) -> the tokens of each answer or continuation, cut at its end.

    Args:
      prompts: as the network reads them, with the special tokens around a text.
    """
    writer = WRITERS["Writer"](program, tokenizer, spec)
    if program.decoder is None:  # by unmasking, one token a pass
        rows = np.stack(prompts)
        return lambda params: list(writer.unmask(params, rows, num_tokens))
    num_tokens = min(num_tokens, writer.room(max(map(len, prompts))))
    has_sentinels = program.task.has_sentinels
    return lambda params: writer.write(params, prompts, num_tokens, has_sentinels)


def _make_continuation(
    program: Program, tokenizer: Tokenizer, passages: np.ndarray
) -> Taker:
    half = passages.shape[1] // 2
    prompts = [program.task.text_form.wrap(row[:half]) for row in passages]
    write = _make_writer(program, tokenizer, prompts, passages.shape[1] - half, DRAWN)

    def make_sample(row, new) -> Sample:
        prompt: Part = (row[:half], "given", [])
        sample = samples.spell(tokenizer, [prompt, (new, "written", [])])
        true = samples.spell(tokenizer, [prompt, (row[half:], "truth", [])])
        return *sample, true[-1]

    def take(params):
        return [
            make_sample(*pair) for pair in zip(passages, write(params), strict=True)
        ]

    return take


def _make_spans(program: Program, tokenizer: Tokenizer, passages: np.ndarray) -> Taker:
    task = program.task
    sentinels = task.vocab.sentinels
    most = min(3, task.spec.needs.num_sentinels)
    form = task.text_form
    spans = [samples.hide_spans(task.vocab.is_special[row], most) for row in passages]
    prompts = [
        form.wrap_read(_put_marks(row, row_spans, sentinels))
        for row, row_spans in zip(passages, spans, strict=True)
    ]
    num_tokens = most * (2 * samples.SPAN + 1) + 1
    write = _make_writer(program, tokenizer, prompts, num_tokens)

    def label_parts(row, row_spans, answer):
        answers, place = samples.split_answer(answer, sentinels, form.ends), 0
        for sentinel, (start, stop) in zip(sentinels, row_spans, strict=False):
            yield row[place:start], "given", []
            written, truth = answers.get(sentinel, []), row[start:stop].tolist()
            is_right = written == truth
            yield written, *(("right", []) if is_right else ("wrong", truth))
            place = stop
        yield row[place:], "given", []

    def take(params):
        triples = zip(passages, spans, write(params), strict=True)
        return [samples.spell(tokenizer, label_parts(*triple)) for triple in triples]

    return take


def _make_gaps(program: Program, tokenizer: Tokenizer, passages: np.ndarray) -> Taker:
    task, model = program.task, cast(FillsGaps, program.task.model)
    before, middle = task.text_form.before, passages.shape[1] // 2
    spans = [
        (*samples.hide_spans(task.vocab.is_special[row], 1), (middle, middle))[0]
        for row in passages
    ]
    pairs = list(zip(passages, spans, strict=True))
    prompts = [
        np.concatenate([before, model.gap_prompt(row[None, :i], row[None, j:])[0]])
        for row, (i, j) in pairs
    ]
    prompts = [prompt.astype(np.int32) for prompt in prompts]
    write = _make_writer(program, tokenizer, prompts, 2 * samples.SPAN + 1)

    def label_parts(row, span, written):
        truth, new = row[slice(*span)].tolist(), written.tolist()
        yield row[: span[0]], "given", []
        yield new, *(("right", []) if new == truth else ("wrong", truth))
        yield row[span[1] :], "given", []

    def take(params):
        triples = ((*pair, new) for pair, new in zip(pairs, write(params), strict=True))
        return [samples.spell(tokenizer, label_parts(*triple)) for triple in triples]

    return take


def _make_rewriting(
    program: Program, tokenizer: Tokenizer, passages: np.ndarray
) -> Taker:
    task = program.task
    form, length = task.text_form, passages.shape[1]
    marks = [task.vocab.require("mask")] * length
    spans = [samples.hide_spans(task.vocab.is_special[row], 3) for row in passages]
    pairs = list(zip(passages, spans, strict=True))
    prompts = [form.wrap(_put_marks(row, row_spans, marks)) for row, row_spans in pairs]
    write = _make_writer(program, tokenizer, prompts, length + samples.SPAN)

    def take(params):
        spelled = []
        for (row, row_spans), answer in zip(pairs, write(params), strict=True):
            is_hidden = np.zeros(length, bool)
            for start, stop in row_spans:
                is_hidden[start:stop] = True
            parts = samples.align(row, answer, is_hidden)
            spelled.append(samples.spell(tokenizer, parts))
        return spelled

    return take


def _put_marks(row: np.ndarray, spans: list[tuple[int, int]], marks) -> np.ndarray:
    """A row with one mark for each span, the i-th mark for the i-th span."""
    parts, place = [], 0
    for (start, stop), mark in zip(spans, marks, strict=False):
        parts += [row[place:start], [mark]]
        place = stop
    return np.concatenate([*parts, row[place:]]).astype(np.int32)
