"""Which shared metrics a comparison will have, said before anything is trained."""

from collections.abc import Collection, Mapping

from jaxpt.evaluation.bigram_pairs import ACCURACY
from jaxpt.judge.bounds import SUFFIX
from jaxpt.report.metrics import METRICS


def list_notes(
    measured: Mapping[str, Collection[str]],
    reasons: Mapping[str, str],
    has_tasks: bool = False,
) -> list[str]:
    """Lines on objectives that will have no verdict, or lack the main shared metric.

    Args:
      measured: by name, the metrics that its runs will have.
      reasons: by name, why it has no bigram-matched cloze; "" if it has.
      has_tasks: the comparison has downstream tasks, which all names share.

    >>> clm, mlm = {"bits_per_byte"}, {"cloze_accuracy"}
    >>> reasons = dict.fromkeys(("clm", "mlm"), "eval.pair_questions=0")
    >>> list_notes({"clm": clm, "mlm": mlm}, reasons)[0][:58]
    'no shared metric will be measured for two of clm, mlm, so '
    """
    if len(measured) < 2:
        return []
    judged = set(measured) if has_tasks else _find_judged(measured)
    unjudged = [name for name in measured if name not in judged]
    label, lines = METRICS[ACCURACY].label, []
    if unjudged:
        who = ", ".join(unjudged)
        none = f"no shared metric will be measured for two of {who}, so the report "
        some = f"{who}: no metric that is shared with another objective, so the report "
        lines.append(
            (none if len(unjudged) == len(measured) else some)
            + f"will have no verdict on {'them' if len(unjudged) > 1 else 'it'} "
            f"({label}: {_join(reasons, unjudged)})"
        )
    lacking = [name for name in measured if name in judged and reasons[name]]
    if lacking and any(not reason for reason in reasons.values()):
        lines.append(f"{label}: not measured for {_join(reasons, lacking)}")
    return lines


def _find_judged(measured: Mapping[str, Collection[str]]) -> set[str]:
    """The names that have a verdict with another one on any metric."""
    judged: set[str] = set()
    for name, metric in METRICS.items():
        if not metric.is_common:
            continue
        exact = {n for n, of in measured.items() if name in of}
        bounded = {n for n, of in measured.items() if name + SUFFIX in of}
        together = exact | bounded if exact else set()
        judged |= together if len(together) > 1 else set()
    return judged


def _join(reasons: Mapping[str, str], names: Collection[str]) -> str:
    """The names of each reason, and the reason."""
    by_reason: dict[str, list[str]] = {}
    for name in filter(reasons.get, names):
        by_reason.setdefault(reasons[name], []).append(name)
    return "; ".join(f"{', '.join(n)}: {reason}" for reason, n in by_reason.items())
