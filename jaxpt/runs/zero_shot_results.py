"""Zero-shot results of a run: evaluated once, stored in its folder, shown as a table.

    <workdir>/evaluations/blimp-1a2b3c4d.json   figures, groups and notes, by rule
                          blimp-1a2b3c4d.npz    values of each item, "RULE/good", ...

The digits are a hash of path, rules, number of items and options. A stored result is
used again for the same checkpoint and the same items.
"""

import dataclasses
import functools
import hashlib
import io
import json
import numbers
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxpt import trust
from jaxpt.distributed import processes
from jaxpt.errors import ConfigError, argument
from jaxpt.files import checksums
from jaxpt.files.folder import hold, load_measured, write_json
from jaxpt.files.remote import localise
from jaxpt.judge.examples import Examples
from jaxpt.nn.networks.abilities import ScoresTexts, name_writing
from jaxpt.runs.continuing import TextContinuer
from jaxpt.runs.embedding import TextEmbedder
from jaxpt.runs.scorer import make_scorer
from jaxpt.runs.text_judge import RunJudge
from jaxpt.runs.workdir import LoadedRun, load_run
from jaxpt.text.sources.reading import is_data_set
from jaxpt.version import __version__
from jaxpt.zero_shot.generation import WritingContext
from jaxpt.zero_shot.outcomes import (
    LIKELIHOOD,
    SAMPLES,
    STATES,
    EvalContext,
    TaskOptions,
    ZeroShotTask,
)
from jaxpt.zero_shot.tasks import (
    TASKS,
    check_options,
    find_own_rules,
    find_rules,
    list_tasks,
    pick_options,
    spread_items,
    to_json,
)
from jaxpt.zero_shot.text_tasks import read_shots


def load_folder(name: str) -> LoadedRun:
    """The run of a folder."""
    return load_run(Path(name))


FOLDER = "evaluations"
_END = (numbers.Real, None)
_FIGURE = {"value": numbers.Real, "method": str, "low": _END, "high": _END}
# The schema of a stored result.
RESULT_FORM = {
    "task": str,
    "path": str,
    "rules": {str: str},
    "num_items": int,
    "num_all": int,
    "results": {
        str: {
            "figures": {str: _FIGURE},
            "trivial": {str: numbers.Real},
            "groups": {str: {str: {str: (numbers.Real, None)}}},
            "notes": [str],
        }
    },
}
NO_OPTIONS = TaskOptions()
MOST_ROWS = 16  # groups of one kind that are printed


def evaluate_tasks(
    workdir: Path,
    task_args: Sequence[str],
    rule: str,
    num_items: int,
    options: TaskOptions = NO_OPTIONS,
    has_left: bool = True,
    load_model: Callable[[str], LoadedRun] = load_folder,
    as_harness: bool = False,
) -> list[dict]:
    """A run's stored result for each task (`NAME:PATH`).

    All paths are read before anything is evaluated.

    Args:
      has_left: rules that read the past alone give a text the ids that precede it in
        training (`TextForm.left`); otherwise its first token is not scored.
      load_model: loads a judge by its name.
      as_harness: the id before a text is the tokenizer's [BOS], or else its [EOS], as
        lm-eval's hf model does for a text without context.
    """
    if num_items < 0:
        raise ConfigError(
            f"{argument('num_items')}={num_items}: must be at least 0, which is all"
        )

    def read():
        named = list_tasks(task_args)
        check_options([name for name, _ in named], options)
        return [
            (name, path, task.read(localise(path)), _read_shots(task, options))
            for name, path in named
            for task in [TASKS[name]]
        ]

    tasks = processes.on_all(read)
    run = load_run(workdir)
    left = _find_left(run, has_left, as_harness)
    contexts = _make_contexts(run, tasks, rule, options, left, load_model)
    with hold(workdir):
        return [
            _evaluate_task(
                workdir / FOLDER, context, run.step, options, num_items, *task
            )
            for context, task in zip(contexts, tasks, strict=True)
        ]


def has_ability(network: Any, name: str) -> bool:
    """Whether a network has what a task reads."""
    reads = TASKS[name].reads
    if reads == SAMPLES:
        return bool(name_writing(network))
    return reads == STATES or isinstance(network, ScoresTexts)


class _Context(NamedTuple):
    """What a task reads of a run, and the rules by which it does, with descriptions."""

    reader: Any
    rules: dict[str, str]


def _make_contexts(
    run: LoadedRun,
    tasks: Sequence,
    rule: str,
    options: TaskOptions,
    left: tuple[int, ...] | None,
    load_model: Callable[[str], LoadedRun],
) -> list[_Context]:
    """The context of each task; each reader is made once."""
    made: dict[str, Any] = {}
    makers = {
        LIKELIHOOD: lambda: make_likelihood(run, options, left),
        STATES: lambda: TextEmbedder.of_run(run).embed_pools,
        SAMPLES: lambda: WritingContext(
            TextContinuer(run),
            functools.cache(lambda name: RunJudge(load_model(name), name)),
        ),
    }
    contexts = []
    for name, *_ in tasks:
        reads, own = TASKS[name].reads, TASKS[name].own_rules
        if reads not in made:
            made[reads] = processes.on_all(makers[reads])
        reader = made[reads]
        if own:
            rules = {each: own[each] for each in find_own_rules(name, rule)}
        else:
            found = find_rules(reader.scorer, rule)
            rules = {each: reader.scorer.describe(each) for each in found}
        contexts.append(_Context(reader, rules))
    return contexts


def _find_left(
    run: LoadedRun, has_left: bool, as_harness: bool
) -> tuple[int, ...] | None:
    """The ids before a text, as of `evaluate_tasks`; None is the form's own."""
    if as_harness:
        vocab = run.program.task.vocab
        return tuple(id_ for id_ in (vocab.bos, vocab.eos) if id_ is not None)[:1]
    return None if has_left else ()


def make_likelihood(
    run: LoadedRun,
    options: TaskOptions = NO_OPTIONS,
    left: tuple[int, ...] | None = None,
) -> EvalContext:
    """The context of tasks that read the likelihood of texts.

    Args:
      left: the ids before a text; None is those of its form.
    """
    program, tokenizer, params, _ = run
    scorer = make_scorer(program, params)
    if left is not None:
        scorer = scorer.with_form(dataclasses.replace(scorer.form, left=left))
    return EvalContext(
        scorer,
        tokenizer.encode,
        tokenizer.encode_sized,
        options,
        count_unknown=tokenizer.count_unknown,
        unknown_bits=tokenizer.vocab.unknown_bits,
        trained_len=program.task.model_spec.max_len,
    )


def _evaluate_task(
    folder: Path,
    context: _Context,
    step: int,
    all_options: TaskOptions,
    num_items: int,
    name: str,
    path: str,
    items: Sequence,
    shots: Sequence,
) -> dict:
    """The result of one task, new or stored."""
    reader, rules = context.reader, list(context.rules)
    if shots:
        reader = reader._replace(shots=shots)
    options = pick_options(TASKS[name], all_options)
    indices = spread_items(items, num_items)
    chosen = [items[i] for i in indices]
    request = {
        "task": name,
        "path": path,
        "step": step,
        "rules": context.rules,
        "num_items": len(indices),
        "num_all": len(items),
        "items": _fingerprint(chosen),
    }
    if TASKS[name].reads == LIKELIHOOD:
        request["left"] = list(reader.scorer.form.left)
    if options:
        request |= {"options": options, "shots": _fingerprint(shots)}
    if TASKS[name].reads == SAMPLES:
        request["judge"] = reader.load_judge(chosen[0].spec.judge).fingerprint()
    place = folder / f"{name}-{_name(path, rules, num_items, options)}.json"
    if (known := _find_known(place, request)) is not None:
        return known | {"is_known": True, "file": place.name}
    outcomes = processes.on_all(TASKS[name].evaluate, reader, chosen, rules)
    results = {rule: to_json(outcome) for rule, outcome in outcomes.items()}
    result = {"version": __version__} | request | {"results": results}
    if processes.is_first():
        columns = {
            f"{rule}/{column}": values
            for rule, outcome in outcomes.items()
            for column, values in outcome.columns.items()
        }
        _write(place, result, columns | {"index": np.array(indices)})
    return result | {"is_known": False, "file": place.name}


def _find_known(place: Path, request: dict) -> dict | None:
    """The stored result of the same evaluation, if any."""
    if not place.exists():
        return None
    known = load_measured(place, RESULT_FORM)
    same = all(known.get(name) == value for name, value in request.items())
    return known if same else None


def _write(place: Path, result: dict, columns: dict[str, np.ndarray]) -> None:
    """Writes the values by item first, so that a result is complete if it exists."""
    place.parent.mkdir(exist_ok=True)
    data = io.BytesIO()
    np.savez_compressed(data, allow_pickle=False, **columns)
    checksums.write(place.with_suffix(".npz"), data.getvalue())
    write_json(place, result)


def load_columns(workdir: Path, result: dict, rule: str) -> dict[str, np.ndarray]:
    """The values by item of a task by one rule, and "index", the items' numbers.

    Args:
      result: an element of `evaluate_tasks`.
    """
    path = (workdir / FOLDER / result["file"]).with_suffix(".npz")
    with np.load(io.BytesIO(checksums.read(path)), allow_pickle=False) as arrays:
        names = [name for name in arrays if name.startswith(f"{rule}/")]
        columns = {name.removeprefix(f"{rule}/"): arrays[name] for name in names}
        return columns | {"index": arrays["index"]}


def load_main(
    workdir: Path, result: dict, rule: str, figure: str = ""
) -> Examples | None:
    """The values by item whose mean is a figure of a task, if it is a mean.

    Args:
      result: an element of `evaluate_tasks`.
      figure: its name; "" is the main one, which alone may have weights.
    """
    columns = load_columns(workdir, result, rule)
    main = next(iter(result["results"][rule]["figures"]))
    names = ("hit", main) if figure in ("", main) else (figure,)
    name = next((n for n in names if n in columns), None)
    if name is None:
        return None
    hits, index = columns[name], columns["index"]
    weights = np.ones(len(hits))
    if figure in ("", main):
        weights = columns.get("weight", weights)
    is_asked = np.isfinite(hits)
    hits, weights, index = hits[is_asked], weights[is_asked], index[is_asked]
    return Examples(hits * weights, weights, index)


def _fingerprint(items: Sequence) -> str:
    text = json.dumps([repr(item) for item in items])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _read_shots(task: ZeroShotTask, options: TaskOptions) -> Sequence:
    return read_shots(task, options) if "shots" in task.options else ()


def _name(path: str, rules: Sequence[str], num_items: int, options: dict) -> str:
    is_name = trust.is_url(path) or is_data_set(path)
    place = path if is_name else str(Path(path).resolve())
    text = json.dumps([place, list(rules), num_items, *options.values()])
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def format_result(result: dict, place: Path | None) -> list[str]:
    """Lines of a table for the terminal.

    Args:
      place: the run's folder; None if nothing is kept of it.
    """
    num_items, total = result["num_items"], result["num_all"]
    spread = "" if num_items == total else f" of {total:,}, spread evenly"
    known = "; asked before" if result["is_known"] else ""
    items = f"{num_items:,} item{'s' * (num_items != 1)}"
    lines = [f"{result['task']}: {result['path']}: {items}{spread}{known}"]
    for rule, outcome in result["results"].items():
        lines.append(f"  {result['rules'][rule]}")
        for name, figure in outcome["figures"].items():
            ends = "[unknown]"
            if figure["low"] is not None:
                ends = f"[{figure['low']:.4f}, {figure['high']:.4f}]"
            lines.append(
                f"    {name:28s} {figure['value']:.4f} {ends} {figure['method']}"
            )
        for name, value in outcome["trivial"].items():
            lines.append(f"    {name:28s} {value:.4f}")
        for kind, groups in outcome["groups"].items():
            lines += _format_groups(kind, groups)
        lines += [f"    {note}" for note in outcome["notes"]]
    return lines if place is None else [*lines, f"  all of it: {place / FOLDER}"]


def _format_groups(kind: str, groups: dict[str, dict[str, float | None]]) -> list[str]:
    """A line for each group, unless there are too many."""
    if len(groups) > MOST_ROWS:
        return [f"    by {kind}: {len(groups)} groups, in the file"]
    return [f"    by {kind}:"] + [
        f"      {name:30s} "
        + "  ".join(
            f"{key} {value:.4f}"
            if value % 1 or key == "accuracy"
            else f"{key} {value:g}"
            for key, value in numbers.items()
            if value is not None
        )
        for name, numbers in groups.items()
    ]
