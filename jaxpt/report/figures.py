"""What the models of a report show: the data of its pictures, and samples of text.

Every objective's first run is drawn. All objectives read the same passages, spread
evenly over the held-out text.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxpt.distributed import processes
from jaxpt.errors import CheckpointError, UserError
from jaxpt.evaluation.samples import Piece, write_line
from jaxpt.evaluation.scores import SampleSpec, next_distribution
from jaxpt.evaluation.unmasking import fill_masks
from jaxpt.files import disk
from jaxpt.report import report_charts, task_charts
from jaxpt.report.answer import find_levels, rank_report
from jaxpt.report.drawing import (
    BLUE,
    GREY,
    ORANGE,
    bars,
    document,
    grid,
    heat_map,
    show_token,
    wrap,
)
from jaxpt.report.inspection import passage
from jaxpt.report.task_charts import list_tuned
from jaxpt.report.types import Report, RunEntry, Samples
from jaxpt.runs import passage_samples
from jaxpt.runs.program import Program
from jaxpt.runs.task import Task
from jaxpt.runs.workdir import load_run, load_task
from jaxpt.text.dataset import Split
from jaxpt.text.rows.corpus import Corpus
from jaxpt.text.rows.forms import windows
from jaxpt.text.tokens.tokenizer import Tokenizer

TEMPERATURES = (0.5, 1.0, 1.5)
NUM_EXAMPLES = 4
CONTEXT = 40  # tokens of a prompt
# The row lengths to try for a plot of attention masks, before the run's own length.
MASK_LENGTHS = (12, 24, 48)


NUM_PASSAGES = 3


class Form(NamedTuple):
    """The title of a form of samples, and its description."""

    title: str
    text: str


FORMS = {
    "fakes": Form(
        "detects replaced tokens",
        "one token in seven was drawn from its generator, as in training, and counts "
        "as replaced if it differs from the text. With n replaced tokens, the n that "
        "the discriminator finds most likely replaced are marked.",
    ),
    "spans": Form(
        "fills spans",
        "up to three spans of three tokens were replaced by sentinels; the decoder's "
        "likeliest answer is inserted.",
    ),
    "rewriting": Form(
        "reconstructs the text",
        "up to three spans of three tokens were replaced by one [MASK] each; this is "
        "the decoder's whole output.",
    ),
    "gaps": Form(
        "fills a gap",
        "a span of three tokens was removed; the likeliest tokens, written after both "
        "sides of the gap, are inserted.",
    ),
    "continuation": Form(
        "continues",
        "the first half of the passage is the prompt; tokens are sampled (temperature "
        "0.8, top-p 0.95, a fixed seed), and below them is the text's continuation.",
    ),
    "fills": Form(
        "fills [MASK]s",
        "one token in seven was a [MASK]; the likeliest token is inserted.",
    ),
}
RULE = (
    "The passages are spread evenly over the held-out text, from its first token to "
    "its last, and are the same for all objectives with this text; they were not "
    "selected by hand. The hidden positions are fixed. Samples are of an objective's "
    "first seed; they are illustrations and not measurements."
)


def draw(
    report: Report,
    corpora_of: Mapping[str, dict[str, Split]],
    workdir: Path,
    look: Callable = lambda *run: None,
) -> dict[str, str]:
    """Writes the pictures that apply to these runs as SVG; returns {name: file name}.

    A picture that needs a model uses the first run of each name.

    Args:
      corpora_of: the text of each name; without it a model has no plot.
      look: called with (entry, program, tokenizer, parameters) of each run drawn.
    """
    drawn = {}

    def save(name: str, draw: Callable[..., str], *data: Any, **options: Any) -> None:
        drawn[name] = f"{name}.svg"
        path = workdir / drawn[name]
        try:
            if processes.is_first():
                disk.replace(path, draw(*data, **options).encode())
        except OSError as error:
            raise CheckpointError(
                f"{path}: cannot be written: {error.strerror}"
            ) from error

    for name, content in draw_charts(report).items():
        save(name, lambda content=content: content)
    masks = {}
    for name, (entry, *_) in report.groups.items():
        if name not in corpora_of:
            continue
        corpora = corpora_of[name]
        program, tokenizer, params, _ = load_run(workdir / entry.workdir)
        look(entry, program, tokenizer, params)
        masks[name] = show_mask(program, corpora["train"])
        text = corpora.get("heldout", corpora["valid"]).parts[0]
        if "next_logits" in program.readers:
            data = temperature_effect(program, tokenizer, params, text)
            save(f"temperature_effect_{name}", draw_temperatures, *data)
        if "fill_logits" in program.readers:
            examples = mask_examples(program, tokenizer, params, text)
            save(f"mask_fill_{name}", draw_fills, examples)
        if "masked_accuracy" in entry.metrics:
            rows = {
                label: {
                    "top-1": entry.metrics[f"masked_accuracy{suffix}"],
                    "top-5": entry.metrics[f"masked_top5_accuracy{suffix}"],
                }
                for label, suffix in (("pretrained", ""), ("random init", "_random"))
            }
            save(f"pretrained_vs_random_{name}", draw_gain, rows)
    if masks:
        save("attention_masks", draw_masks, masks)
    return drawn


def draw_charts(report: Report) -> dict[str, str]:
    """The pictures of a report that need no model: SVG by name."""
    shared, groups = report.list_shared(), report.groups
    levels = {metric.metric: find_levels(report, metric) for metric in shared}
    drawn = {
        "learning_curves": report_charts.show_curves(groups, report.budget.kind, levels)
    }
    if pictures := rank_report(report).draw():
        drawn = {"critical_differences": pictures} | drawn
    if shared:
        drawn["shared_metrics"] = report_charts.show_metrics(shared, groups)
    if tasks := list_tuned(groups):
        drawn["finetuning_curves"] = task_charts.show_tuned(groups, tasks)
    return drawn


def show_mask(program: Program, train: Split) -> dict:
    """A row's attention mask, of the first of `MASK_LENGTHS` that is possible."""
    task = program.task
    for length in MASK_LENGTHS:
        try:
            task = passage.shorten(program.task.plan, program.task.vocab, length)
        except UserError:  # rows too short for the objective
            continue
        break
    _, batch = passage.corrupt_row(task, train, step=0)
    return passage.compose_mask(task, batch)


def _fit(task: Task, corpus: Corpus) -> int:
    """An example's length in tokens, which the model can read and the text has."""
    return min(CONTEXT, task.read_length, corpus.num_tokens)


def temperature_effect(
    program: Program, tokenizer: Tokenizer, params, corpus: Corpus, num_tokens: int = 12
):
    """The likeliest next tokens after a prompt from the text.

    Returns:
      tokens, {temperature: their probabilities}, prompt.
    """
    task = program.task
    ids = windows(corpus, _fit(task, corpus), 1)
    logits = program.readers["next_logits"](params, ids)[0, -1, : task.vocab.size]
    best = np.argsort(-np.asarray(logits), kind="stable")[:num_tokens]
    probabilities = {
        t: np.asarray(next_distribution(logits, SampleSpec(temperature=t)))[best]
        for t in TEMPERATURES
    }
    names = [tokenizer.token_name(int(i)) for i in best]
    return names, probabilities, tokenizer.decode(ids[0])


def mask_examples(
    program: Program, tokenizer: Tokenizer, params, corpus: Corpus, k: int = 5
) -> list[dict]:
    """Rows of the text with the middle token masked, and the k likeliest tokens."""
    mask, examples = tokenizer.vocab.require("mask"), []
    length = _fit(program.task, corpus)
    for ids in windows(corpus, length, NUM_EXAMPLES):
        position = length // 2
        masked = ids.copy()
        masked[position] = mask
        fill_logits, banned = program.readers["fill_logits"], program.task.nonwords
        (best,) = fill_masks(fill_logits, params, masked, mask, banned, k)
        examples.append(
            {
                "text": tokenizer.decode(ids[:position])
                + "_"
                + tokenizer.decode(ids[position + 1 :]),
                "candidates": [(tokenizer.token_name(i), p) for i, p in best],
                "truth": tokenizer.token_name(int(ids[position])),
            }
        )
    return examples


class Collector:
    """Takes samples of runs while their figures are drawn.

    Attributes:
      by_name: the samples of each name.
    """

    def __init__(
        self, report: Report, corpora_of: Mapping[str, dict[str, Split]], workdir: Path
    ):
        self._corpora_of = corpora_of
        lengths = [
            passage_samples.passage_length(load_task(workdir / entry.workdir)[0])
            for name, (entry, *_) in report.groups.items()
            if name in corpora_of
        ]
        self._length = min(lengths, default=0)
        self.by_name: dict[str, Samples] = {}

    def add(
        self, entry: RunEntry, program: Program, tokenizer: Tokenizer, params
    ) -> None:
        """Takes samples of one run's parameters, in every form that its network has."""
        corpora = self._corpora_of[entry.name]
        split = corpora.get("heldout", corpora["valid"])
        passages = passage_samples.choose_passages(split, self._length, NUM_PASSAGES)
        forms = passage_samples.list_forms(program.task) if len(passages) else []
        taken = {
            form: passage_samples.make_taker(form, program, tokenizer, passages)(params)
            for form in forms
        }
        self.by_name[entry.name] = Samples(
            entry.seed,
            {
                form: tuple(tuple(map(tuple, sample)) for sample in of_passages)
                for form, of_passages in taken.items()
            },
        )


def list_samples(report: Report) -> list[str]:
    """A line for each objective: a sample of its task, on the first passage."""
    lines = []
    for name, taken in (report.samples or {}).items():
        for form, of_passages in list(taken.forms.items())[:1]:
            line = write_line([Piece(*piece) for piece in of_passages[0]])
            lines.append(f"{name} {FORMS[form].title}: {line}")
    if not lines:
        return []
    legend = (
        "[right], [wrong≠truth]; replaced tokens: [detected≠truth], (missed≠truth), "
        "!false alarm!"
    )
    return ["", f"samples of the first held-out passage: {legend}", *lines]


MASKS_PER_ROW = 4
CAPTIONS = {
    "critical_differences": (
        "Means of the shared metrics. A bar joins objectives that do not differ "
        "significantly."
    ),
    "learning_curves": (
        "Learning curves of the shared metrics against the budget's cost. Thin lines "
        "are seeds, the thick line is their mean; dotted lines are baselines."
    ),
    "attention_masks": (
        "Attention masks. A row is a query, a column a key; a filled cell means that "
        "the query may attend to the key. Lines divide encoder from decoder."
    ),
    "temperature_effect": (
        "The next-token distribution at several temperatures, same tokens in the same "
        "order. A low temperature concentrates the probability on the likeliest token, "
        "a high one flattens the distribution."
    ),
    "mask_fill": (
        "The model's predictions for the masked token _, likeliest first. The bar of "
        "the true token is orange; the true token is also given below each panel."
    ),
    "pretrained_vs_random": (
        "Accuracy on masked tokens of held-out text, after pretraining and at random "
        "initialization. The difference of the two is due to pretraining."
    ),
    "shared_metrics": (
        "The shared metrics. A dot is the mean over seeds, its bar one standard "
        "deviation over seeds to either side; a dot without a bar is a single seed."
    ),
    "finetuning_curves": (
        "Fine-tuning by number of labels: the mean over seeds, with Student's 95 % "
        "interval as a band. Dashed lines are random initialization and the baselines "
        "without a network."
    ),
}


def draw_masks(masks: Mapping[str, Mapping[str, Any]]) -> str:
    """Boolean attention masks, `MASKS_PER_ROW` in a row, one cell per (query, key).

    Args:
      masks: title -> {"mask": bool [T, S], True = may attend; "query_labels": T tokens;
        "key_labels": S tokens; optional "split": (query, key), the decoder's first}.
    """
    panels = [
        heat_map(
            wrap(title, 30, num_lines=3),
            np.asarray(entry["mask"], float),
            [show_token(token) for token in entry["query_labels"]],
            [show_token(token) for token in entry["key_labels"]],
            splits=[entry["split"]] if "split" in entry else [],
            axes=("query", "key"),
        )
        for title, entry in masks.items()
    ]
    label = f"attention masks of {', '.join(masks)}"
    return document(grid(panels, min(len(panels), MASKS_PER_ROW)), label)


def draw_temperatures(
    tokens: Sequence[str], probabilities: Mapping[float, np.ndarray], prompt: str
) -> str:
    """The next-token distribution over the top tokens, one panel per temperature.

    Args:
      tokens: the tokens shown, likeliest first.
      probabilities: temperature -> float [len(tokens)]; they need not sum to one.
      prompt: the text before the token.
    """
    labels = [show_token(token) for token in tokens]
    most = max(float(np.max(values)) for values in probabilities.values())
    panels = [
        bars(
            f"temperature {temperature:g}\n{values.sum():.0%} of the probability",
            labels,
            values.tolist(),
            [BLUE] * len(labels),
            most,
        )
        for temperature in sorted(probabilities)
        for values in [np.asarray(probabilities[temperature], float)]
    ]
    heading = wrap(f"Next token after: {prompt}", 32 * len(panels), num_lines=3)
    return document(grid(panels, len(panels), heading), heading)


def draw_fills(examples: Sequence[Mapping[str, Any]]) -> str:
    """The candidates for one masked position per panel, the truth highlighted.

    Args:
      examples: each {"text": the sentence with the masked position shown as _,
        "candidates": [(token, probability)], likeliest first, "truth": token}.
    """
    most = max(p for example in examples for _, p in example["candidates"])
    panels = []
    for example in examples:
        tokens = [token for token, _ in example["candidates"]]
        truth = example["truth"]
        missing = "" if truth in tokens else f" (not in the top {len(tokens)})"
        text = _crop(example["text"], around="_", reach=80)
        panels.append(
            bars(
                wrap(text, 46, num_lines=5),
                [show_token(token) for token in tokens],
                [probability for _, probability in example["candidates"]],
                [ORANGE if token == truth else BLUE for token in tokens],
                most,
                f"truth: {show_token(truth)}{missing}",
            )
        )
    return document(grid(panels, min(2, len(panels))), "predictions of masked tokens")


def draw_gain(rows: Mapping[str, Mapping[str, float]]) -> str:
    """Bars of accuracy on held-out masks, pretrained and randomly initialised.

    Args:
      rows: {"pretrained": {"top-1": 0.41, "top-5": 0.70}, "random init": {...}}.
    """
    colors = dict(zip(rows, (BLUE, GREY), strict=False))
    cells = [
        (f"{group}, {name}", values[group], colors[name])
        for group in next(iter(rows.values()))
        for name, values in rows.items()
    ]
    names, values, fills = zip(*cells, strict=True)
    title = "accuracy on held-out masks"
    return document(bars(title, names, values, fills), title)


def _crop(text: str, around: str, reach: int) -> str:
    center = text.index(around)
    start, end = max(0, center - reach), center + 1 + reach
    return "…" * (start > 0) + text[start:end] + "…" * (end < len(text))
