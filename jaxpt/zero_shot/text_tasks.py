"""Zero-shot tasks by likelihood: questions, last words, long texts.

Each asks by every rule that is named and that it can use, and says what it left out.
"""

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxpt.errors import UserError
from jaxpt.statistics.intervals import mean_interval
from jaxpt.text.sources.source import SourceSpec, read_documents
from jaxpt.zero_shot import (
    last_word,
    multiple_choice,
    sliding_window,
    table_choice,
    verbalised,
)
from jaxpt.zero_shot.continuations import hide_rest, make_score
from jaxpt.zero_shot.few_shot import ShotSpec, draw_prompts, find_spread
from jaxpt.zero_shot.outcomes import Asker, Figure, Options, Outcome, Task
from jaxpt.zero_shot.questions import FORMS, Question, read_questions
from jaxpt.zero_shot.scoring import NO_BEST

SHOTS = ("shots", "num_shots", "num_draws", "num_orders", "shot_seed")
# Rules in which a word's later tokens are hidden from its first one.
BY_WORD = ("pll_word_l2r", "mntp_word_l2r")


def read_cloze(path: str) -> list[Question]:
    """The questions of a task file, or of what it names as shots."""
    spec = verbalised.read_cloze(path)
    return verbalised.ask_all(spec, spec.table)


def read_cloze_shots(path: str) -> list[Question]:
    """The solved questions of a task file.

    Raises:
      UserError: it names none.
    """
    spec = verbalised.read_cloze(path)
    if spec.shots is None:
        raise UserError(f"--shots={path}: must have shots, a table of training data")
    return verbalised.ask_all(spec, spec.shots)


def evaluate_questions(
    asker: Asker, items: Sequence[Question], rules: Sequence[str]
) -> dict[str, Outcome]:
    """Multiple choice (`zero_shot.multiple_choice`), zero- or few-shot."""
    spec = find_shot_spec(asker.options)
    prompts = draw_prompts(asker.shots, spec)
    found = {}
    for rule in rules:
        score = make_score(asker.scorer, asker.encode, rule)
        # Without shots alone: an option's own likelihood has nothing before it.
        has_empty = not spec.num_shots and asker.scorer.is_first_scored(rule)
        asked = [
            multiple_choice.ask([item.behind(text) for item in items], score, has_empty)
            for *_, text in prompts
        ]
        outcome = _join_prompts(asked, len(items))
        if spec.num_shots:
            outcome.groups.update(_group_prompts(asked, spec))
        texts = [item.solved for item in items]
        outcome.notes.extend(_note_unknown(asker, texts))
        if not (spec.num_shots or has_empty):
            outcome.notes.append(
                "An option alone has no likelihood, as nothing stands before a text."
            )
        found[rule] = outcome
    return found


def _join_prompts(asked: list[multiple_choice.Asked], num: int) -> Outcome:
    """The means over prompts of what each question counts, where all prompts fit."""
    kept = sorted(set.intersection(*(set(each.kept) for each in asked)))
    if not kept:
        raise UserError("no question fits the model's window behind every prompt")
    figures, columns = {}, {}
    for name in asked[0].hits:
        rows = []
        for each in asked:
            row = np.full(num, np.nan)
            row[each.kept] = each.hits[name]
            rows.append(row)
        hits = np.mean(rows, axis=0)
        columns[name] = hits
        figures[name] = Figure(float(hits[kept].mean()), *mean_interval(hits[kept]))
    notes = [f"Ties of acc: {asked[0].num_ties}; the right answer has its part of one."]
    if len(asked) > 1:
        notes = ["Each figure is the mean over all prompts."]
    if left := num - len(kept):
        notes.append(f"{left} questions are left out: an option is too long.")
    if num_cut := max(each.num_cut for each in asked):
        notes.append(f"{num_cut} questions lose the beginning of their context.")
    return Outcome(figures, asked[0].trivial, {}, columns, notes)


def _group_prompts(asked, spec: ShotSpec) -> dict:
    """How the figures spread over prompts, and each prompt's own."""
    shape = spec.num_draws, spec.num_orders
    means = {
        name: np.array([each.hits[name].mean() for each in asked])
        for name in asked[0].hits
    }
    spread = {}
    for name, values in means.items():
        numbers = find_spread(values.reshape(shape))._asdict()
        spread[name] = {k: float(v) for k, v in numbers.items() if np.isfinite(v)}
    each = {
        f"draw {i // spec.num_orders} order {i % spec.num_orders}": {
            name: float(values[i]) for name, values in means.items()
        }
        for i in range(len(asked))
    }
    return {"spread": spread, "prompt": each}


def evaluate_last_words(
    asker: Asker, items: Sequence[last_word.Passage], rules: Sequence[str]
) -> dict[str, Outcome]:
    """The last word of passages (`jaxpt.zero_shot.last_word`).

    Raises:
      UserError: no rule names a likeliest token.
    """
    asker.scorer.check_best(rules)
    found = {}
    for rule in rules:
        if rule in NO_BEST:
            continue
        notes = []
        scorer = asker.scorer
        if rule in BY_WORD:
            scorer = hide_rest(scorer)
            notes.append(
                "All tokens of the target that are not known yet are masked, so that "
                "their number is told."
            )
        elif rule in ("pll", "mntp", "infill"):
            notes.append("A target's other tokens are seen, those behind it too.")
        score = make_score(scorer, asker.encode, rule, with_best=True)
        asked = last_word.ask(items, score, scorer.is_first_scored(rule))
        figures = {
            name: Figure(value, *interval)
            for name, (value, interval) in asked.figures.items()
        }
        words = np.full(len(items), np.nan)
        words[asked.kept] = asked.words
        notes.append("Perplexity is per word, the mean over passages.")
        if left := len(items) - len(asked.kept):
            notes.append(f"{left} passages are left out: the target is too long.")
        if asked.num_cut:
            notes.append(f"{asked.num_cut} passages lose their beginning.")
        notes += _note_unknown(asker, ["".join(item) for item in items])
        found[rule] = Outcome(figures, asked.trivial, {}, {"accuracy": words}, notes)
    return found


def _note_unknown(asker: Asker, texts: Sequence[str]) -> list[str]:
    """What is said of texts that the vocabulary lacks a part of."""
    num = sum(asker.count_unknown(text) > 0 for text in texts)
    if not num:
        return []
    return [f"{num} of {len(texts)} texts hold what the tokenizer's vocabulary lacks."]


def read_texts(path: str) -> list[str]:
    """The documents of a file, folder or glob, as `data.path` reads them."""
    texts: list[str] = []
    for document in read_documents(SourceSpec(path)):
        if document.is_start:
            texts.append(document.text)
        else:
            texts[-1] += document.text
    return texts


def evaluate_texts(
    asker: Asker, items: Sequence[str], rules: Sequence[str]
) -> dict[str, Outcome]:
    """Perplexity in windows that overlap (`jaxpt.zero_shot.sliding_window`).

    Raises:
      UserError: no rule gives a likelihood, or a window does not fit the model.
    """
    allowed = [rule for rule in rules if rule in sliding_window.ALLOWED]
    if not allowed:
        sliding_window.pick_rule(rules)
    ids = [asker.encode(text) for text in items]
    found = {}
    for rule in allowed:
        window, stride = _find_window(asker, rule)
        read = functools.partial(
            sliding_window.read_texts,
            items,
            asker.encode_sized,
            asker.scorer,
            rule,
            window,
        )
        has_start = asker.scorer.is_first_scored(rule)
        reading = read(stride)
        apart = read(window - (not has_start))
        figures = {
            name: Figure(value, *interval)
            for name, (value, interval) in reading.find_figures().items()
        }
        trivial = {
            f"{name}_no_overlap": value
            for name, (value, _) in apart.find_figures().items()
        }
        unigram = sliding_window.unigram_nats(ids)
        whole = reading.counts._replace(tokens=sum(map(len, ids)))
        rates = sliding_window.find_rates(unigram, whole)
        trivial["perplexity_per_token_unigram"] = rates["perplexity_per_token"]
        notes = [
            f"Windows of {window} tokens, {stride} apart; the texts have "
            f"{reading.counts.tokens:,} tokens, {reading.counts.words:,} words, "
            f"{reading.counts.lines:,} line ends and {reading.counts.num_bytes:,} "
            f"bytes that are scored."
        ]
        if reading.num_unscored:
            notes.append(
                f"The first tokens of {reading.num_unscored} texts have no score and "
                f"are not counted."
            )
        notes += _note_unknown(asker, items)
        columns = {"nats": reading.nats, "bytes": reading.sizes}
        found[rule] = Outcome(figures, trivial, {}, columns, notes)
    return found


def _find_window(asker: Asker, rule: str) -> tuple[int, int]:
    """The window and the stride that are asked for, or else the model's."""
    window, room = asker.options.window, asker.scorer.room(rule)
    if window < 0 or not (window or room) or (room and window > room):
        allowed = f"at least 2 and at most {room}" if room else "at least 2"
        raise UserError(f"--window={window}: must be {allowed} for this model")
    window = window or room
    return window, asker.options.stride or max(1, window // 2)


def make_tasks() -> dict[str, Task]:
    """The tasks of this file by name."""
    tasks = {
        "lambada": Task(last_word.read_passages, evaluate_last_words),
        "text": Task(read_texts, evaluate_texts, ("window", "stride")),
        "choice": Task(
            table_choice.read_choices,
            evaluate_questions,
            SHOTS,
            table_choice.read_choice_shots,
        ),
        "cloze": Task(read_cloze, evaluate_questions, SHOTS, read_cloze_shots),
    }
    for name in FORMS:
        read = functools.partial(read_questions, name)
        tasks[name] = Task(read, evaluate_questions, SHOTS)
    return tasks


def read_shots(task: Task, options: Options) -> Sequence:
    """The solved items that the options name.

    Raises:
      UserError: shots are asked for and no file is named, or the other way round.
    """
    if bool(options.shots) != bool(options.num_shots):
        raise UserError(
            f"--num_shots={options.num_shots}, --shots={options.shots}: both must be "
            f"given, or neither"
        )
    if not options.shots:
        for name in ("num_draws", "num_orders"):
            if getattr(options, name) != 1:
                raise UserError(
                    f"--{name}={getattr(options, name)}: must be 1 without --shots"
                )
        return ()
    if not Path(options.shots).exists():
        raise UserError(f"--shots={options.shots}: there is no such file")
    shots = (task.read_shots or task.read)(options.shots)
    find_shot_spec(options).check(len(shots))
    return shots


def find_shot_spec(options: Options) -> ShotSpec:
    """Which prompts the options ask for."""
    return ShotSpec(
        options.num_shots, options.num_draws, options.num_orders, options.shot_seed
    )
