"""`jaxpt fit-scaling`: scaling laws of finished runs, or of a table of them.

    scaling.json   the points, both fits, their intervals, the best sizes of each budget
    scaling.svg    the loss over sizes and budgets, with the fits

Losses of different objectives have different scales, so each objective has its own fit.
N is the number of trained parameters (of both networks of ELECTRA, of a distillation's
student), with or without the embeddings of tokens and positions; D is the number of
tokens read, including repetitions; C is the run's count of training FLOPs. A run is one
point, at its end: the loss in the middle of a schedule is not that of a shorter run.
"""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import numpy as np

from jaxpt.errors import CheckpointError, ConfigError, argument
from jaxpt.files import checksums, disk
from jaxpt.files.folder import check_output, replaced_folder, write_json
from jaxpt.judge import scaling_laws
from jaxpt.judge.scaling_laws import Points, ScalingLaw
from jaxpt.learn.frozen import is_frozen
from jaxpt.nn.networks.network import Network
from jaxpt.report.formats import format_count, format_flops
from jaxpt.report.scaling_charts import draw_laws
from jaxpt.runs.finished_runs import FoundRun, is_same_text
from jaxpt.version import __version__

NAME, FIGURE = "scaling.json", "scaling.svg"
COLUMNS = ("params", "tokens", "flops", "loss")
LEVEL = 0.05  # outside of an interval
USUAL_FACTOR = 6.0  # C = 6 N D, if a table has no FLOPs
# Parameters of embeddings: of the vocabulary, also for values, of positions and of
# segment types, and of an untied head over the vocabulary.
TABLES = re.compile(
    r"(^|/)(embed|decoder_embed)/(tokens|types|positions)"
    r"|(^|/)value_embed/table$|(^|/)head/(out/(kernel|bias)|bias)$"
    r"|^(words|contexts)$|^words/table$"
)
Groups = Mapping[str, Points]


def count_params(network: Network, count: str = "all") -> int:
    """The number of trained parameters of a network.

    Args:
      count: "all", or "no_embeddings" to leave out `TABLES`.
    """
    shapes = jax.eval_shape(network.init_params, jax.random.key(0))
    total = 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(shapes):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        is_left_out = count == "no_embeddings" and TABLES.search(name)
        if not is_left_out and not is_frozen(path, network.frozen):
            total += leaf.size
    return total


def read_runs(
    runs: Sequence[FoundRun], metric: str = "valid_loss", count: str = "all"
) -> dict[str, Points]:
    """The points of each objective."""
    groups: dict[str, list[tuple[float, ...]]] = {}
    first: dict[str, FoundRun] = {}
    for run in runs:
        value = run.result["metrics"].get(metric)
        if value is None:
            known = ", ".join(run.result["metrics"])
            raise ConfigError(
                f"{argument('metric')}={metric}: {run.folder} has only {known}"
            )
        if not math.isfinite(value) or value <= 0:
            raise CheckpointError(
                f"{argument('runs')}={run.folder}: {metric}={value}; must be above 0"
            )
        other = first.setdefault(run.objective, run)
        if not is_same_text(run, other):
            raise CheckpointError(
                f"{argument('runs')}={run.folder}: has read other text than "
                f"{other.folder}; all losses of a fit must be of the same text and "
                "tokenizer"
            )
        params = count_params(run.task.model, count)
        if not params:
            raise ConfigError(
                f"{argument('count')}={count}: leaves no parameters of {run.folder}"
            )
        point = params, run.result["raw_tokens"], run.result["flops"], value
        groups.setdefault(run.objective, []).append(point)
    return _make_points(groups)


def read_csv(path: Path) -> dict[str, Points]:
    """The points of a table by its column `name`, if it has one.

    Without a column `flops`, C is 6 N D.
    """
    try:
        text = disk.read(path).decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""))
        rows, header = list(reader), reader.fieldnames or []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or "is not CSV in UTF-8"
        raise ConfigError(
            f"{argument('csv')}={path}: cannot be read: {reason}"
        ) from None
    for column in COLUMNS:
        if column not in header and column != "flops":
            raise ConfigError(
                f"{argument('csv')}={path}: has no column {column}; must have params, "
                "tokens, loss and may have flops and name, not "
                f"{', '.join(header) or 'nothing'}"
            )
    groups: dict[str, list[tuple[float, ...]]] = {}
    for number, row in enumerate(rows, 2):
        values = {c: _read_number(path, number, c, row[c]) for c in COLUMNS if c in row}
        flops = USUAL_FACTOR * values["params"] * values["tokens"]
        values = {"flops": flops} | values
        point = tuple(values[column] for column in COLUMNS)
        groups.setdefault(row.get("name") or "runs", []).append(point)
    if not groups:
        raise ConfigError(f"{argument('csv')}={path}: has no rows")
    return _make_points(groups)


def _make_points(groups: Mapping[str, list[tuple[float, ...]]]) -> dict[str, Points]:
    return {
        name: Points(*np.array(points, np.float64).T) for name, points in groups.items()
    }


def _read_number(path: Path, line: int, column: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(
            f"{argument('csv')}={path}: line {line} has {column}={text!r}; must be a "
            "number above 0"
        )
    return value


def fit_scaling(groups: Groups, to: Path | None, num_draws: int = 200) -> list[str]:
    """Fits every group and writes the folder, if any; returns the lines to print."""
    if num_draws < 20:
        raise ConfigError(f"{argument('num_draws')}={num_draws}: must be at least 20")
    if to is not None:
        check_output(to, NAME)
    lines, fits = [], {}
    for name, points in groups.items():
        fit = fit_group(name, points, num_draws)
        fits[name] = fit
        lines += [f"{name}: {len(points.loss)} runs", *format_fit(fit), ""]
    if to is not None:
        write(groups, fits, to)
        lines.append(f"scaling: {to / NAME}, {to / FIGURE}")
    return lines


def write(groups: Groups, fits: Mapping[str, dict], to: Path) -> None:
    """Writes scaling.svg and scaling.json; a killed process leaves the earlier ones."""
    points = {
        name: {column: values.tolist() for column, values in p._asdict().items()}
        for name, p in groups.items()
    }
    result = {"version": __version__, "points": points, "fits": dict(fits)}
    try:
        with replaced_folder(to, NAME, own=(NAME, FIGURE, checksums.FILE)) as place:
            disk.replace(place / FIGURE, draw_laws(groups, fits).encode())
            write_json(place / NAME, result)
            checksums.record(place, [FIGURE])
    except OSError as error:
        raise CheckpointError(
            f"{argument('to')}={to}: cannot be written: {error.strerror}"
        ) from None


def fit_group(name: str, points: Points, num_draws: int) -> dict:
    """Both approaches on the points of one objective, as scaling.json has them.

    An approach without a fit has the reasons in its "lacks".
    """
    parametric = _fit_parametric(points, num_draws)
    parabolas = _fit_parabolas(points, num_draws)
    if "law" not in parametric and not parabolas["valleys"]:
        raise ConfigError(
            f"{name}: cannot be fitted. Approach 3: {parametric['lacks']}. Approach 2: "
            f"{'; '.join(parabolas['lacks'])}"
        )
    return {
        "flops_per_param_and_token": points.factor,
        "parametric": parametric,
        "parabolas": parabolas,
    }


def _fit_parametric(points: Points, num_draws: int) -> dict:
    lacking = scaling_laws.find_lacks(points)
    if lacking:
        return {"lacks": lacking}
    law = scaling_laws.fit_law(points)
    draws = scaling_laws.bootstrap_law(points, law, num_draws)
    constants = {
        name: {"value": getattr(law, name)}
        | _interval([getattr(draw, name) for draw in draws])
        for name in ("A", "B", "E", "alpha", "beta")
    }
    fit = {"law": constants, "objective": law.objective}
    if not law.is_sound:
        return fit | {"lacks": "an exponent is not above 0, so no size is optimal"}
    sound = [draw for draw in draws if draw.is_sound]
    fit["draws_without_best"] = len(draws) - len(sound)
    fit["exponent"] = {"value": law.exponents[0]} | _interval(
        [draw.exponents[0] for draw in sound]
    )
    fit["best"] = [
        _describe_best(float(flops), law, sound, points.factor)
        for flops in list_budgets(points)
    ]
    return fit


def list_budgets(points: Points) -> list[float]:
    """Budgets to report: the smallest, the largest, and ten times the largest."""
    low, high = float(points.flops.min()), float(points.flops.max())
    return [*dict.fromkeys((low, high)), 10 * high]


def _describe_best(
    flops: float, law: ScalingLaw, draws: Sequence[ScalingLaw], factor: float
) -> dict:
    params, tokens = law.best(flops, factor)
    sizes = [draw.best(flops, factor) for draw in draws]
    return {
        "flops": flops,
        "params": {"value": params} | _interval([each[0] for each in sizes]),
        "tokens": {"value": tokens} | _interval([each[1] for each in sizes]),
        "loss": float(law.loss(params, tokens)),
    }


def _fit_parabolas(points: Points, num_draws: int) -> dict:
    valleys, lacks = scaling_laws.find_valleys(points)
    fit: dict = {"valleys": [valley._asdict() for valley in valleys], "lacks": lacks}
    if len(valleys) < 2:
        return fit
    draws = scaling_laws.bootstrap_valleys(points, num_draws)
    usable = [draw for draw in draws if len(draw) == len(valleys)]
    fit["draws_without_lowest"] = len(draws) - len(usable)
    for name in ("params", "tokens"):
        fits = [
            scaling_laws.fit_power(
                [v.flops for v in draw], [getattr(v, name) for v in draw]
            )
            for draw in [valleys, *usable]
        ]
        fit[f"{name}_exponent"] = {
            "value": fits[0].exponent,
            "intercept": fits[0].intercept,
        } | _interval([each.exponent for each in fits[1:]])
    return fit


def _interval(values: Sequence[float]) -> dict:
    """The middle 95 % of the draws; None if there are too few."""
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 20:
        return {"low": None, "high": None}
    low, high = np.quantile(finite, [LEVEL / 2, 1 - LEVEL / 2])
    return {"low": float(low), "high": float(high)}


def format_fit(fit: dict) -> list[str]:
    """A fit as lines for the terminal."""
    lines = [f"  C = {fit['flops_per_param_and_token']:.3g} N D (median of the runs)"]
    parametric, parabolas = fit["parametric"], fit["parabolas"]
    lines.append("  approach 3: L = E + A / N^alpha + B / D^beta")
    for name, value in parametric.get("law", {}).items():
        lines.append(f"    {name:6s} {_show(value, '.4g')}")
    if "lacks" in parametric:
        lines.append(f"    {parametric['lacks']}")
    if "exponent" in parametric:
        lines.append(f"    N_opt ~ C^{_show(parametric['exponent'], '.3f')}")
        if parametric["draws_without_best"]:
            lines.append(
                f"    {parametric['draws_without_best']} resampled fits have no best "
                f"size and are left out of its intervals"
            )
    for best in parametric.get("best", ()):
        params, tokens = (_show_count(best[key]) for key in ("params", "tokens"))
        lines.append(
            f"    C={format_flops(best['flops'])}: N={params}, D={tokens}, "
            f"L={best['loss']:.4f}"
        )
    lines.append("  approach 2: the lowest point of a parabola at each budget")
    for valley in parabolas["valleys"]:
        lines.append(
            f"    C={format_flops(valley['flops'])}: N={format_count(valley['params'])}"
            f", D={format_count(valley['tokens'])}, L={valley['loss']:.4f} "
            f"({valley['num_sizes']} sizes)"
        )
    lines += [f"    {note}" for note in parabolas["lacks"]]
    if "params_exponent" in parabolas:
        lines.append(f"    N_opt ~ C^{_show(parabolas['params_exponent'], '.3f')}")
        if parabolas["draws_without_lowest"]:
            lines.append(
                f"    {parabolas['draws_without_lowest']} resamples lack a lowest "
                f"point at some budget and are left out of the interval"
            )
    return lines


def _show(value: dict, spec: str) -> str:
    if value["low"] is None:
        return f"{value['value']:{spec}} (too few resampled fits for an interval)"
    return f"{value['value']:{spec}} ({value['low']:{spec}} to {value['high']:{spec}})"


def _show_count(value: dict) -> str:
    if value["low"] is None:
        return format_count(value["value"])
    low, high = format_count(value["low"]), format_count(value["high"])
    return f"{format_count(value['value'])} ({low} to {high})"
