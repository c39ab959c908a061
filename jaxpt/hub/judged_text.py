"""Judges the text of any program by a model, next to real text: `jaxpt judge-text`."""

from collections.abc import Sequence
from typing import Any

from jaxpt.errors import DataError, argument
from jaxpt.hub.opened import load_model
from jaxpt.runs.text_judge import RunJudge
from jaxpt.setting_types import NonNegativeInt, check_value
from jaxpt.zero_shot.outcomes import Outcome, to_numbers
from jaxpt.zero_shot.tasks import spread_items
from jaxpt.zero_shot.text_tasks import read_texts
from jaxpt.zero_shot.written_text import OF_REAL, compare_texts

HEAD = ("", "samples", "real text", "95 % interval of the samples")


def judge_text(
    samples: str | Sequence[str],
    reference: str | Sequence[str],
    judge: str,
    num_items: int = 0,
    num_clusters: int = 0,
) -> dict[str, Any]:
    """The measures of samples and of real text, as plain values.

    Args:
      samples, reference: texts, or the path of a file that has one on each line, or as
        the field "text" of JSON lines or of a table.
      judge: a model, as of `hub.opened.load_model`.
      num_items: at most this many of each, evenly spaced; 0: all. Of the reference at
        most as many as there are samples are read, as most measures depend on the
        amount of text.
      num_clusters: of MAUVE; 0: a tenth of the smaller number of texts.

    Returns:
      "measures": by name "value", "low", "high", "method" and "real", the value of the
      reference, which is None for MAUVE; "notes"; the numbers of texts.
    """
    check_value(argument("num_items"), num_items, NonNegativeInt)
    check_value(argument("num_clusters"), num_clusters, NonNegativeInt)
    ours = _choose(_read(samples, "samples"), num_items)
    real = _choose(_read(reference, "reference"), len(ours))
    outcome = compare_texts(
        RunJudge(load_model(judge), judge), ours, real, num_clusters
    )
    return {
        "judge": judge,
        "num_samples": len(ours),
        "num_reference": len(real),
        "measures": _list_measures(outcome),
        "notes": outcome.notes,
    }


def _read(source: str | Sequence[str], name: str) -> list[str]:
    """The texts of a file, or those that were given, without blank ones."""
    if not isinstance(source, str):
        texts = list(source)
    elif source:
        texts = [text.rstrip("\n") for text in read_texts(source, "line")]
    else:
        raise DataError(f"{argument(name)}: must name a file of texts")
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise DataError(f"{argument(name)}: must have at least one text")
    return texts


def _choose(texts: list[str], num: int) -> list[str]:
    return [texts[i] for i in spread_items(texts, num)]


def _list_measures(outcome: Outcome) -> dict[str, dict[str, Any]]:
    return {
        name: to_numbers(figure._asdict())
        | {"real": outcome.trivial.get(name + OF_REAL)}
        for name, figure in outcome.figures.items()
    }


def format_judged(result: dict[str, Any]) -> list[str]:
    """Lines of a table: each measure of the samples and of real text."""
    lines = [f"{HEAD[0]:22s}{HEAD[1]:>10s}{HEAD[2]:>11s}  {HEAD[3]}"]
    for name, measure in result["measures"].items():
        real = "" if measure["real"] is None else f"{measure['real']:.4f}"
        interval = ""
        if measure["low"] is not None:
            interval = f"[{measure['low']:.4f}, {measure['high']:.4f}]"
        line = f"{name:22s}{measure['value']:10.4f}{real:>11s}  {interval}"
        lines.append(line.rstrip())
    num_samples, num_real = result["num_samples"], result["num_reference"]
    counts = f"{num_samples:,} samples, {num_real:,} real texts"
    return [*lines, counts, *result["notes"]]
