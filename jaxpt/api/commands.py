"""The commands `train`, `compare`, `finetune` and `evaluate` as functions."""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from jaxpt import trust as trust_list
from jaxpt.api.arguments import name_arguments
from jaxpt.api.preparing import Config, read_config
from jaxpt.api.results import Comparison, FineTuning
from jaxpt.api.runs import Folder, load
from jaxpt.comparison.compare import compare as compare_runs
from jaxpt.comparison.controls import add_controls
from jaxpt.config.finetuning import make_finetune_plan
from jaxpt.distributed import compilation_cache
from jaxpt.distributed.processes import set_up_jax
from jaxpt.files import remote
from jaxpt.finetuning.grid import finetune as run_grid
from jaxpt.hub.judged_text import judge_text as judge_texts
from jaxpt.hub.opened import load_model
from jaxpt.logs import terminal
from jaxpt.runs.workdir import check_workdir
from jaxpt.runs.zero_shot_results import evaluate_tasks
from jaxpt.training.train_run import train_run
from jaxpt.zero_shot.outcomes import TaskOptions


@name_arguments()
def train(
    config: Config,
    workdir: Folder,
    settings: Mapping[str, Any] | None = None,
    quiet: bool = False,
    trust: str | Sequence[str] = (),
) -> dict[str, Any]:
    """Trains a run, or resumes it; returns its result, as in result.json.

    Args:
      config: as of `read_config`.
      workdir: the run's folder.
      settings, trust: as of `read_config`.
      quiet: prints no progress.

    Raises:
      ConfigError: a setting is wrong.
      CheckpointError: the folder holds another run, or is damaged.
      DivergedError: a loss is not finite.

    >>> changes = {"train.steps": 4, "data.path": "my.txt"}
    >>> result = jaxpt.train("runs/clm/config.json", "runs/mine", changes, quiet=True)
    >>> result["steps"], "bits_per_byte" in result["metrics"]
    (4, True)
    """
    whole, folder = read_config(config, settings, trust), check_workdir(str(workdir))
    set_up_jax()
    with terminal(quiet):
        return train_run(whole, folder, list(settings or ()))


@name_arguments()
def compare(
    config: Config,
    workdir: Folder,
    settings: Mapping[str, Any] | None = None,
    quiet: bool = False,
    trust: str | Sequence[str] = (),
    controls: bool = False,
) -> Comparison:
    """Trains several objectives at an equal budget; writes and returns a report.

    Args, Raises: as of `train`; with `controls`, the controls that the objectives
    declare are compared too.

    >>> changes = {"compare.objectives": ("clm", "mlm"), "compare.seeds": (0,)}
    >>> changes |= {"compare.budget": "steps", "train.steps": 2}
    >>> file = "runs/clm/config.json"
    >>> report = jaxpt.compare(file, "runs/compared", changes, quiet=True)
    >>> [run["objective"] for run in report["runs"]]
    ['clm', 'mlm']
    >>> print(str(report).splitlines()[0])
    At costs that are not equal, no shared metric was measured for two objectives.
    """
    whole, folder = read_config(config, settings, trust), check_workdir(str(workdir))
    if controls:
        whole = add_controls(whole, list(settings or ()))
    set_up_jax()
    with terminal(quiet):
        return Comparison(compare_runs(whole, folder, list(settings or ())))


@name_arguments(**{"from": "source"})
def finetune(
    config: Config,
    source: Folder,
    to: Folder,
    settings: Mapping[str, Any] | None = None,
    quiet: bool = False,
    trust: str | Sequence[str] = (),
) -> FineTuning:
    """Fine-tunes a run on a task; returns the result, as in the folder's result.json.

    Args:
      config: such as "configs/tasks/sst2.py:FOLDER".
      source: a run's folder, a folder of transformers, or a name on the Hugging Face
        Hub; "scratch:" before it is the same network with random initialization.
      settings, trust: as of `read_config`.
      quiet: prints no progress.

    Raises:
      UserError: a setting, the data or the source is wrong.

    >>> task = {"data.train": "reviews.tsv", "data.dev": "reviews.tsv"}
    >>> task |= {"task.labels": ("good", "bad"), "task.max_len": 16}
    >>> config = jaxpt.default_finetune_config("classification")
    >>> result = jaxpt.finetune(config, "runs/mlm", "runs/tuned", task, quiet=True)
    >>> result["labels"], result["constant"]["dev"]["accuracy"]
    (['good', 'bad'], 0.5)
    """
    plan = make_finetune_plan(read_config(config, settings, trust))
    set_up_jax()
    with terminal(quiet):
        progress = logging.getLogger(__name__).info
        place = remote.fetch(to)
        result = run_grid(plan, os.fspath(source), place, progress, for_export=True)
    return FineTuning(result)


@name_arguments()
def judge_text(
    samples: Folder | Sequence[str],
    reference: Folder | Sequence[str],
    judge: Folder,
    num_items: int = 0,
    num_clusters: int = 0,
) -> dict[str, Any]:
    """Generated text judged by a model, next to real text.

    Args:
      samples, reference: lists of texts, or files with one on each line, or JSON lines
        with the field "text". At most the number of samples is read of the reference.
      judge: as the source of `jaxpt.load`; its first likelihood of a text is used.
      num_items: at most this many samples, evenly spaced; 0: all.
      num_clusters: of MAUVE; 0: a tenth of the smaller number of texts.

    Returns:
      "measures": by name "value", "low", "high", "method", and "real", the value of
      the reference; "notes"; the numbers of texts.

    Raises:
      UserError: a file or the model cannot be read, or the model has no likelihood.

    >>> texts = ["the union is strong", "we have peace in the world"]
    >>> result = jaxpt.judge_text(["the the the the the"], texts, "runs/clm")
    >>> measures = result["measures"]
    >>> measures["seq_rep_4"]["value"] > measures["seq_rep_4"]["real"]
    True
    """
    compilation_cache.set_up()
    ours, real = (
        os.fspath(each) if isinstance(each, str | os.PathLike) else list(each)
        for each in (samples, reference)
    )
    return judge_texts(ours, real, os.fspath(judge), num_items, num_clusters)


@name_arguments(**{"from": "workdir"})
def evaluate(
    workdir: Folder,
    tasks: str | Sequence[str] = (),
    rule: str = "all",
    num_items: int = 0,
    trust: str | Sequence[str] = (),
    **options: Any,
) -> Any:
    """A run's metrics on held-out text, or its results on zero-shot tasks.

    Args:
      tasks: such as "blimp:blimp.tar.xz"; () returns the metrics.
      rule: that texts are scored by; "all" that the run has, or "auto", the first.
      num_items: at most this many items of each task; 0 is all.
      trust: as of `jaxpt.load`.
      options: the fields of `jaxpt.zero_shot.outcomes.Options`, such as window or
        num_shots.

    Returns:
      {metric: value}; with tasks, a dict for each.

    Raises:
      UserError: the folder holds no run, or a task cannot be read or scored.

    >>> (result,) = jaxpt.evaluate("runs/mlm", "pairs:pairs.tsv", rule="auto")
    >>> list(result["rules"])
    ['pll']
    """
    if not tasks:
        return load(workdir, trust).evaluate()
    compilation_cache.set_up()
    trust_list.trust(trust)
    named = [tasks] if isinstance(tasks, str) else list(tasks)
    return evaluate_tasks(
        check_workdir(str(workdir)),
        named,
        rule,
        num_items,
        TaskOptions(**options),
        load_model=load_model,
    )
