"""Results in Python: comparisons and fine-tunings that print as tables.

Each is the dict of its file, report.json or result.json, with tables of it: as text, in
a notebook, and as a pandas DataFrame.
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxpt.api.arguments import name_arguments
from jaxpt.api.runs import Folder
from jaxpt.errors import ConfigError
from jaxpt.files import remote
from jaxpt.finetuning.summary import format_summary, show_rate
from jaxpt.report import writers
from jaxpt.report.answer import list_conclusions, rank_report, write_first_note
from jaxpt.report.formats import MISSING, format_number
from jaxpt.report.ranking import Verdicts
from jaxpt.report.tables import tabulate_results
from jaxpt.report.terminal import format_table, list_verdicts, list_warnings
from jaxpt.report.types import Report, load_report
from jaxpt.report.writers import Grid

MADE_BY = "must be the folder of a comparison or of jaxpt report"


class Comparison(dict[str, Any]):
    """The report of a comparison: report.json as a dict, which prints as a table.

    `jaxpt.compare` returns it, and `jaxpt.load_comparison` reads it.

    Attributes:
      verdicts: the objectives on each shared metric, best first
        (`jaxpt.report.ranking.Verdicts`).

    >>> changes = {"compare.objectives": ("clm", "mlm"), "compare.seeds": (0,)}
    >>> changes |= {"compare.budget": "steps", "train.steps": 2}
    >>> file = "runs/clm/config.json"
    >>> result = jaxpt.compare(file, "runs/compared", changes, quiet=True)
    >>> type(result).__name__, len(result["runs"])
    ('Comparison', 2)
    >>> result.to_pandas(runs=True)["name"].tolist()
    ['clm', 'mlm']
    """

    @functools.cached_property
    def report(self) -> Report:
        """The same as dataclasses."""
        return Report.from_json(dict(self))

    @functools.cached_property
    def verdicts(self) -> Verdicts:
        """The objectives on each shared metric, best first."""
        return rank_report(self.report)

    def to_pandas(self, pairs: bool = False, runs: bool = False) -> Any:
        """A pandas DataFrame with a row for each objective and metric.

        Args:
          pairs: a row for every two objectives and metric instead.
          runs: a row for each run instead, with its costs and metrics.

        Raises:
          ConfigError: pairs and runs are both set.
          DataError: pandas is not installed.
        """
        if pairs and runs:
            raise ConfigError("pairs=True, runs=True: must be one of the two")
        if not runs:
            return self.verdicts.to_pandas(pairs)
        header, rows = tabulate_results(self.report)
        return writers.make_frame([dict(zip(header, row, strict=True)) for row in rows])

    def format(self, form: str = "text", with_pairs: bool = False) -> str:
        """The tables as "text", "markdown", "latex", "html", "csv" or "json"."""
        return self.verdicts.format(form, with_pairs)

    def __repr__(self) -> str:
        return format_table(self.report)

    def _repr_html_(self) -> str:
        report, verdicts = self.report, self.verdicts
        grids = [x.grid(verdicts.kind, verdicts.cost) for x in verdicts.rankings[:1]]
        note = write_first_note(report, verdicts)
        lines = [*list_warnings(report), *list_verdicts(report)]
        sentence = " ".join(list_conclusions(report))
        part = writers.write_html(sentence, grids, note, lines)
        return part + "".join(x.write_picture() for x in verdicts.rankings[:1])


@name_arguments(workdir="folder")
def load_comparison(folder: Folder) -> Comparison:
    """Reads the report of a comparison, or of `jaxpt report`, from its folder.

    Raises:
      CheckpointError: the folder has no report, or it is damaged.

    >>> jaxpt.load_comparison("runs/mlm")
    Traceback (most recent call last):
    jaxpt.errors.CheckpointError: runs/mlm/report.json: not found; must be the ...
    """
    place = Path(remote.fetch(folder))
    return Comparison(load_report(place / "report.json", MADE_BY).to_json())


class FineTuning(dict[str, Any]):
    """The result of a fine-tuning: result.json as a dict, which prints as a table.

    >>> task = {"data.train": "reviews.tsv", "data.dev": "reviews.tsv"}
    >>> task |= {"task.labels": ("good", "bad"), "task.max_len": 16}
    >>> config = jaxpt.default_finetune_config("classification")
    >>> result = jaxpt.finetune(config, "runs/mlm", "runs/tuned", task, quiet=True)
    >>> result.to_pandas()["picked"].tolist()
    [True]
    """

    def to_pandas(self, runs: bool = False) -> Any:
        """A pandas DataFrame with a row for each setting of the grid.

        Args:
          runs: a row for each run instead: a setting with a seed.
        """
        return writers.make_frame(self.list_runs() if runs else self.list_settings())

    def list_settings(self) -> list[dict[str, Any]]:
        """The settings, with the mean of the main metric on dev and its interval."""
        picked = self["picked"] or {}
        chosen = [picked.get(key) for key in ("lr", "batch_size", "epochs")]
        records = []
        for each in self["settings"]:
            setting = {key: each[key] for key in ("lr", "batch_size", "epochs")}
            dev = (each["dev"] or {}).get(self["metric"], {})
            values = {f"dev_{self['metric']}": dev.get("mean")}
            values |= {key: dev.get(key) for key in ("low", "high")}
            values |= {"seeds": dev.get("num", 0), "diverged": each["diverged"]}
            is_picked = [*setting.values()] == chosen
            records.append({**setting, **values, "picked": is_picked})
        return records

    def list_runs(self) -> list[dict[str, Any]]:
        """The runs, with every metric on each split."""
        return [_flatten(cell) for cell in self["cells"]]

    def grid(self) -> Grid:
        """The table of settings."""
        rows = [
            [
                show_rate(x["lr"]),
                *(str(x[key]) for key in ("batch_size", "epochs")),
                _write(x[f"dev_{self['metric']}"]),
                f"[{_write(x['low'])}, {_write(x['high'])}]",
                str(x["seeds"]),
                "picked" if x["picked"] else "",
            ]
            for x in self.list_settings()
        ]
        header = ["lr", "batch size", "epochs", f"dev {self['metric']}", "interval"]
        return Grid([*header, "seeds", ""], rows, (6,))

    @property
    def sentence(self) -> str:
        """What was fine-tuned, and how good it is next to the constant baseline."""
        metric, picked = self["metric"], self["picked"]
        if picked is None:
            return f"{self['task']}: every run diverged"
        split = "test" if picked.get("test") else "dev"
        mean = picked[split][metric]["mean"]
        constant = self["constant"].get(split, {}).get(metric)
        return (
            f"{self['task']}: {split} {metric} {_write(mean)}; the best constant "
            f"prediction reaches {_write(constant)}"
        )

    def __repr__(self) -> str:
        return f"{self.sentence}\n\n{format_summary(self)}"

    def _repr_html_(self) -> str:
        return writers.write_html(self.sentence, [self.grid()], "", [])


def _write(value: float | None) -> str:
    return MISSING if value is None else format_number(value)


def _flatten(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record whose nested names are joined by "_", without lists."""
    flat: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            flat |= {f"{name}_{key}": x for key, x in _flatten(value).items()}
        elif not isinstance(value, list):
            flat[name] = value
    return flat
