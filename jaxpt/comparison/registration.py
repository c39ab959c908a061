"""Registers what a comparison is expected to find, before anything is trained.

    <folder>/registration.json    the expected outcomes (`compare.expected`), the rule
                                  that decides them, the seeds and the error rate

The report contains the file's text and its SHA-256, and says of each expected outcome
whether it was found. The hash proves that nothing was changed after the hash was
published. Nothing proves that no other comparison was tried before it.
"""

import dataclasses
import datetime
import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from jaxpt.config.plan import make_compare_spec
from jaxpt.config.sections import CompareSpec, parse_expected
from jaxpt.errors import CheckpointError, ConfigError
from jaxpt.files import checksums, schema
from jaxpt.files.folder import load_json
from jaxpt.files.stored import Stored
from jaxpt.report.metrics import METRICS
from jaxpt.report.types import Metric, Registration, Verdict
from jaxpt.report.wording import word_pair
from jaxpt.runs.workdir import flatten
from jaxpt.version import __version__

FILE = "registration.json"
RULE = (
    "A > B is found if the simultaneous confidence interval of their difference on the "
    "metric excludes 0 and A is the better one; A = B is found if it includes 0. "
    "Intervals are Welch's over seeds, with the error of test documents, and "
    "Bonferroni's correction for all pairs on all shared metrics. Fewer than four "
    "seeds find nothing."
)
BEGUN = ("runs", "tuning", "teachers")  # folders of a comparison that has begun
FOUND, REVERSED, OTHERWISE, UNKNOWN = "found", "reversed", "not found", "not tested"
HINT = "put it back as it was, or use another folder"


@dataclasses.dataclass(frozen=True)
class Content(Stored):
    """registration.json.

    Attributes:
      settings_sha256: of all settings of the comparison.
    """

    created: str
    version: str
    expected: tuple[str, ...]
    rule: str
    alpha: float
    seeds: tuple[int, ...]
    objectives: tuple[str, ...]
    control: str
    budget: str
    amount: float
    settings_sha256: str


def check_expected(spec: CompareSpec, measured: Mapping[str, Collection[str]]) -> None:
    """Raises ConfigError for an expected outcome that the report cannot have.

    Args:
      measured: by name, the metrics that its runs will have; a name may be missing.
    """
    for expected in spec.expected:
        metric, *names = parse_expected(expected)
        place = f"compare.expected: {expected}"
        shared = [name for name, info in METRICS.items() if info.is_common]
        if metric not in shared:
            raise ConfigError(f"{place}: the metric must be one of {', '.join(shared)}")
        for name in names:
            if name in measured and metric not in measured[name]:
                raise ConfigError(f"{place}: {name} will not have this metric")
        if spec.control and spec.control not in names:
            raise ConfigError(
                f"{place}: with compare.control={spec.control} only pairs with "
                f"{spec.control} have verdicts"
            )


def keep_registration(config: dict, spec: CompareSpec, workdir: Path) -> str:
    """The text of registration.json, which is written if nothing was trained yet.

    Args:
      config: of the comparison, plain values; `spec` are its settings.

    Returns:
      "" if nothing is expected.

    Raises:
      UserError: another comparison is registered, or the file is not there though
        runs are.
    """
    if not spec.expected:
        return ""
    path = workdir / FILE
    if path.exists():
        return _load_text(path, config)
    if begun := [name for name in BEGUN if (workdir / name).exists()]:
        raise CheckpointError(
            f"{path}: does not exist, but {workdir / begun[0]} does; what is expected "
            f"must be registered before the first run: put the file back, or use "
            f"another folder"
        )
    content = Content(
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        version=__version__,
        expected=spec.expected,
        rule=RULE,
        alpha=spec.alpha,
        seeds=spec.seeds,
        objectives=spec.objectives,
        control=spec.control,
        budget=spec.budget,
        amount=spec.amount,
        settings_sha256=_fingerprint(config),
    )
    text = json.dumps(content.to_json(), indent=1)
    checksums.write(path, text.encode())
    return text


def find_sha256(text: str) -> str:
    """The SHA-256 of registration.json, as `sha256sum` prints it."""
    return hashlib.sha256(text.encode()).hexdigest()


def judge_registration(text: str, metrics: Sequence[Metric]) -> Registration:
    """What became of each expected outcome.

    Args:
      text: of registration.json.
      metrics: the verdicts of the report.
    """
    content = Content.from_json(schema.parse(text))
    by_name = {metric.metric: metric for metric in metrics}
    outcomes, words = {}, []
    for expected in content.expected:
        name, *names = parse_expected(expected)
        outcomes[expected], verdict = UNKNOWN, "no verdict"
        pairs = by_name[name].pairs if name in by_name else ()
        for pair in pairs:
            if {*pair.names} == {*names}:
                outcomes[expected] = _decide(pair, expected, names[0])
                verdict = word_pair(pair, by_name[name].margin)
        words.append(f"expected {expected}: {outcomes[expected]} ({verdict})")
    sha256 = find_sha256(text)
    num = sum(outcome == FOUND for outcome in outcomes.values())
    first = (
        f"registered {content.created}, before the first run: {num} of {len(outcomes)} "
        f"expected outcomes found; sha256 of {FILE}: {sha256}"
    )
    return Registration(text, sha256, outcomes, (first, *words))


def list_faults(registered: Mapping[str, str], config: dict) -> Iterator[str]:
    """What shows that a study's registration is not that of its comparison.

    Args:
      registered: "text" and "sha256".
      config: of the comparison. Paths in it may be shortened, so that the hash of its
        settings cannot be verified.
    """
    text = registered["text"]
    if find_sha256(text) != registered["sha256"]:
        yield f"the text of its {FILE} does not have the SHA-256 that is stored with it"
    try:
        content = Content.from_json(schema.parse(text))
    except ValueError as error:
        yield f"its {FILE}: {error}"
        return
    spec = make_compare_spec(config)
    for name in ("expected", "alpha", "seeds", "objectives", "control", "budget"):
        if (value := getattr(content, name)) != getattr(spec, name):
            yield f"its {FILE} has {name} {value}; the comparison {getattr(spec, name)}"


def _decide(pair: Verdict, expected: str, first: str) -> str:
    if pair.outcome == "untested":
        return UNKNOWN
    if "=" in expected:
        return FOUND if pair.is_same else OTHERWISE
    if pair.is_same:
        return OTHERWISE
    return FOUND if pair.better == first else REVERSED


def _load_text(path: Path, config: dict) -> str:
    """The text of a stored registration, which must be of these settings."""
    content = Content.from_json(load_json(path, object, HINT, HINT))
    if content.settings_sha256 != _fingerprint(config):
        raise CheckpointError(
            f"{path}: was registered with other settings, or by another version than "
            f"{content.version}; {HINT}"
        )
    return checksums.read(path, HINT).decode()


def _fingerprint(config: dict) -> str:
    """The SHA-256 of all settings, by their full names."""
    return find_sha256(json.dumps(flatten(config), sort_keys=True))
