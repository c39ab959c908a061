"""Zero-shot tasks by likelihood: questions, last words, long texts.

Each task is evaluated by all requested rules that it supports, with notes on omissions.
"""

import functools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxpt.errors import ConfigError, DataError, argument
from jaxpt.judge.intervals import mean_interval
from jaxpt.text.sources.source import read_documents
from jaxpt.text.sources.source_spec import SourceSpec
from jaxpt.zero_shot import (
    last_word,
    multiple_choice,
    sliding_window,
    table_choice,
    verbalised,
)
from jaxpt.zero_shot.continuations import hide_rest, make_score
from jaxpt.zero_shot.few_shot import ShotSpec, draw_prompts, find_spread
from jaxpt.zero_shot.outcomes import (
    EvalContext,
    Figure,
    Outcome,
    TaskOptions,
    ZeroShotTask,
    make_figures,
)
from jaxpt.zero_shot.questions import FORMS, Question, read_questions
from jaxpt.zero_shot.scoring import NO_BEST

MAX_CHARS = 1 << 28  # of the texts of a task, which are in memory as a whole
SHOTS = ("shots", "num_shots", "num_draws", "num_orders", "shot_seed")
# Rules that hide the later tokens of a word from its first token.
BY_WORD = ("pll_word_l2r", "mntp_word_l2r")


def read_cloze(path: str) -> list[Question]:
    """The questions of a task file."""
    spec = verbalised.read_cloze(path)
    return verbalised.ask_all(spec, spec.table)


def read_cloze_shots(path: str) -> list[Question]:
    """The solved questions of a task file; UserError if it has none."""
    spec = verbalised.read_cloze(path)
    return verbalised.ask_all(spec, verbalised.require_shots(path, spec.shots))


def evaluate_questions(
    eval_context: EvalContext, items: Sequence[Question], rules: Sequence[str]
) -> dict[str, Outcome]:
    """Multiple choice (`zero_shot.multiple_choice`), zero- or few-shot."""
    spec = find_shot_spec(eval_context.options)
    prompts = draw_prompts(eval_context.shots, spec)
    outcomes = {}
    for rule in rules:
        score = make_score(eval_context.scorer, eval_context.encode, rule)
        # Options are scored without context only in zero-shot prompts.
        has_empty = not spec.num_shots and eval_context.scorer.is_first_scored(rule)
        results = [
            multiple_choice.evaluate(
                [item.behind(text) for item in items], score, has_empty
            )
            for *_, text in prompts
        ]
        outcome = _join_prompts(results, len(items))
        if spec.num_shots:
            outcome.groups.update(_group_prompts(results, spec))
        texts = [item.solved for item in items]
        outcome.notes.extend(_note_unknown(eval_context, texts))
        if not (spec.num_shots or has_empty):
            outcome.notes.append(
                "An option without context cannot be scored, as no id precedes a text."
            )
        outcomes[rule] = outcome
    return outcomes


def _join_prompts(results: list[multiple_choice.QuestionResults], num: int) -> Outcome:
    """The means over prompts, of the questions that fit with all prompts."""
    evaluated = sorted(set.intersection(*(set(each.evaluated) for each in results)))
    if not evaluated:
        raise DataError("no question fits the model's window after every prompt")
    figures, columns = {}, {}
    for name in results[0].hits:
        rows = []
        for each in results:
            row = np.full(num, np.nan)
            row[each.evaluated] = each.hits[name]
            rows.append(row)
        hits = np.mean(rows, axis=0)
        columns[name] = hits
        figures[name] = Figure(
            float(hits[evaluated].mean()), *mean_interval(hits[evaluated])
        )
    notes = [f"Ties of acc: {results[0].num_ties}; a tie of k options counts 1 / k."]
    if len(results) > 1:
        notes = ["Each figure is the mean over all prompts."]
    if num_left_out := num - len(evaluated):
        notes.append(f"{num_left_out} questions are left out: an option is too long.")
    if num_cut := max(each.num_cut for each in results):
        notes.append(f"The context of {num_cut} questions is truncated.")
    return Outcome(figures, results[0].trivial, {}, columns, notes)


def _group_prompts(
    results: list[multiple_choice.QuestionResults], spec: ShotSpec
) -> dict:
    """The spread of the metrics over prompts, and the metrics of each prompt."""
    shape = spec.num_draws, spec.num_orders
    means = {
        name: np.array([each.hits[name].mean() for each in results])
        for name in results[0].hits
    }
    spread = {}
    for name, values in means.items():
        numbers = find_spread(values.reshape(shape))._asdict()
        spread[name] = {k: float(v) for k, v in numbers.items() if np.isfinite(v)}
    each = {
        f"draw {i // spec.num_orders} order {i % spec.num_orders}": {
            name: float(values[i]) for name, values in means.items()
        }
        for i in range(len(results))
    }
    return {"spread": spread, "prompt": each}


def evaluate_last_words(
    eval_context: EvalContext, items: Sequence[last_word.Passage], rules: Sequence[str]
) -> dict[str, Outcome]:
    """The last word of passages (`jaxpt.zero_shot.last_word`)."""
    eval_context.scorer.check_best(rules)
    outcomes = {}
    for rule in rules:
        if rule in NO_BEST:
            continue
        notes = []
        scorer = eval_context.scorer
        if rule in BY_WORD:
            scorer = hide_rest(scorer)
            notes.append(
                "All remaining tokens of the target are masked, which reveals their "
                "number."
            )
        elif rule in ("pll", "mntp", "infill"):
            notes.append("The other tokens of a target are visible, also later ones.")
        score = make_score(scorer, eval_context.encode, rule, with_best=True)
        result = last_word.evaluate(items, score, scorer.is_first_scored(rule))
        words = np.full(len(items), np.nan)
        words[result.evaluated] = result.words
        notes.append("Perplexity is per word, the mean over passages.")
        if num_left_out := len(items) - len(result.evaluated):
            notes.append(
                f"{num_left_out} passages are left out: the target is too long."
            )
        if result.num_cut:
            notes.append(f"{result.num_cut} passages are truncated.")
        notes += _note_unknown(eval_context, ["".join(item) for item in items])
        figures, columns = make_figures(result.figures), {"accuracy": words}
        outcomes[rule] = Outcome(figures, result.trivial, {}, columns, notes)
    return outcomes


def _note_unknown(eval_context: EvalContext, texts: Sequence[str]) -> list[str]:
    """A note on texts with parts that are not in the vocabulary."""
    num = sum(eval_context.count_unknown(text) > 0 for text in texts)
    if not num:
        return []
    return [
        f"{num} of {len(texts)} texts have parts outside the tokenizer's vocabulary."
    ]


def read_texts(path: str, documents: str = "file") -> list[str]:
    """The documents of a file, folder or glob, as `data.path` reads them.

    Args:
      documents: as the setting `data.documents`.
    """
    parts: list[list[str]] = []
    num_chars = 0
    for document in read_documents(SourceSpec(path, documents=documents)):
        num_chars += len(document.text)
        if num_chars > MAX_CHARS:
            raise DataError(f"{path}: has more than {MAX_CHARS:,} characters")
        if document.is_start:
            parts.append([])
        parts[-1].append(document.text)
    return list(map("".join, parts))


def evaluate_texts(
    eval_context: EvalContext, items: Sequence[str], rules: Sequence[str]
) -> dict[str, Outcome]:
    """Perplexity in overlapping windows (`jaxpt.zero_shot.sliding_window`)."""
    allowed = [rule for rule in rules if rule in sliding_window.ALLOWED]
    if not allowed:
        sliding_window.pick_rule(rules)
    ids = [eval_context.encode(text) for text in items]

    def charge(text: str) -> float:
        bits = eval_context.unknown_bits(*eval_context.encode_sized(text))
        return float(bits.sum()) * math.log(2)

    outcomes = {}
    for rule in allowed:
        window, stride = _find_window(eval_context, rule)
        read = functools.partial(
            sliding_window.read_texts,
            items,
            eval_context.encode_sized,
            eval_context.scorer,
            rule,
            window,
            unknown_bits=eval_context.unknown_bits,
        )
        has_start = eval_context.scorer.is_first_scored(rule)
        reading = read(stride)
        separate = read(window - (not has_start))
        trivial = {
            f"{name}_no_overlap": value
            for name, (value, _) in separate.find_figures().items()
        }
        unigram = sliding_window.unigram_nats(ids) + sum(map(charge, items))
        whole = reading.counts._replace(tokens=sum(map(len, ids)))
        rates = sliding_window.find_rates(unigram, whole)
        trivial["perplexity_per_token_unigram"] = rates["perplexity_per_token"]
        notes = [
            f"Windows of {window} tokens, {stride} apart; the texts have "
            f"{reading.counts.tokens:,} tokens, {reading.counts.words:,} words, "
            f"{reading.counts.lines:,} line ends and {reading.counts.num_bytes:,} "
            f"bytes that are scored."
        ]
        if 0 < eval_context.trained_len < window:
            notes.append(
                f"These windows are longer than the rows of training (model.max_len="
                f"{eval_context.trained_len}), which may make the scores worse."
            )
        if reading.num_unscored:
            notes.append(
                f"The first tokens of {reading.num_unscored} texts have no score and "
                f"are not counted."
            )
        notes += _note_unknown(eval_context, items)
        figures = make_figures(reading.find_figures())
        columns = {"nats": reading.nats, "bytes": reading.sizes}
        outcomes[rule] = Outcome(figures, trivial, {}, columns, notes)
    return outcomes


def _find_window(eval_context: EvalContext, rule: str) -> tuple[int, int]:
    """The requested window and stride, or the defaults."""
    window, room = eval_context.options.window, eval_context.scorer.room(rule)
    if window < 0 or not (window or room) or (room and window > room):
        allowed = f"at least 2 and at most {room}" if room else "at least 2"
        raise ConfigError(
            f"{argument('window')}={window}: must be {allowed} for this model"
        )
    window = window or room
    return window, eval_context.options.stride or max(1, window // 2)


def make_tasks() -> dict[str, ZeroShotTask]:
    """The tasks of this module by name."""
    tasks = {
        "lambada": ZeroShotTask(last_word.read_passages, evaluate_last_words),
        "text": ZeroShotTask(read_texts, evaluate_texts, ("window", "stride")),
        "choice": ZeroShotTask(
            table_choice.read_choices,
            evaluate_questions,
            SHOTS,
            table_choice.read_choice_shots,
        ),
        "cloze": ZeroShotTask(read_cloze, evaluate_questions, SHOTS, read_cloze_shots),
    }
    for name in FORMS:
        read = functools.partial(read_questions, name)
        tasks[name] = ZeroShotTask(read, evaluate_questions, SHOTS)
    return tasks


def read_shots(task: ZeroShotTask, options: TaskOptions) -> Sequence:
    """The solved items of the options' file."""
    if bool(options.shots) != bool(options.num_shots):
        raise ConfigError(
            f"{argument('num_shots')}={options.num_shots}, "
            f"{argument('shots')}={options.shots}: both must be given, or neither"
        )
    if not options.shots:
        for name in ("num_draws", "num_orders"):
            if getattr(options, name) != 1:
                raise ConfigError(
                    f"{argument(name)}={getattr(options, name)}: must be 1 without "
                    f"{argument('shots')}"
                )
        return ()
    if not Path(options.shots).exists():
        raise ConfigError(
            f"{argument('shots')}={options.shots}: must be an existing file"
        )
    shots = (task.read_shots or task.read)(options.shots)
    find_shot_spec(options).check(len(shots))
    return shots


def find_shot_spec(options: TaskOptions) -> ShotSpec:
    """The few-shot settings of the options."""
    return ShotSpec(
        options.num_shots, options.num_draws, options.num_orders, options.shot_seed
    )
