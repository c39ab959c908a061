"""What `import jaxpt` offers: runs to use, and what the commands do, as functions.

All take strings and Paths alike. What is wrong with an argument is a `UserError`, in
one line that names it; a flag `--top_k` of the command line is `top_k` here.
"""

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxpt.config.config_files import read_config_file
from jaxpt.config.finetuning import make_finetune_plan
from jaxpt.config.plan import make_plan
from jaxpt.config.settings import (
    default_config,
    default_section,
    list_outside,
    override,
    to_dict,
)
from jaxpt.errors import UserError
from jaxpt.eval.outcomes import Options
from jaxpt.eval.scoring import AUTO, TextScorer
from jaxpt.finetuning.embedding import Embedder
from jaxpt.finetuning.grid import finetune as run_grid
from jaxpt.hub.files import read_json
from jaxpt.hub.imports import import_run
from jaxpt.learn.state import TrainState, make_state
from jaxpt.nn.networks.network import Network
from jaxpt.objectives import find, find_section
from jaxpt.processes import set_cache
from jaxpt.quiet import hushed
from jaxpt.report.compare import compare as compare_runs
from jaxpt.rng import split_step, stream
from jaxpt.run.data import make_feed, with_token_counts
from jaxpt.run.inference import fill_text, generate_texts
from jaxpt.run.measure import measure
from jaxpt.run.scorer import make_scorer
from jaxpt.run.task import Task, make_task
from jaxpt.run.teacher import lacks_teacher
from jaxpt.run.training import train_run
from jaxpt.run.workdir import LoadedRun, load_corpora, load_run
from jaxpt.run.zero_shot import evaluate_tasks
from jaxpt.text.dataset import Split, load_text
from jaxpt.text.feed import Feed
from jaxpt.text.tokens.tokenizer import Tokenizer

Folder = str | os.PathLike
# A config, or the file that makes one: "configs/quickstart.py", "FILE.py:ARGUMENT".
Config = Any


class Run:
    """A trained run; `jaxpt.load` makes it.

    Attributes:
      params: its parameters, a tree of arrays; with `optim.ema_decay` their mean.
      model: the network, a Flax module with the mask as an argument.
      tokenizer: `encode(text)` int32 [T], `decode(ids)`.
      config: its settings, plain values by section.
      step: of the checkpoint.
      workdir: its folder; None of a model that was imported to be used.

    >>> run = jaxpt.load("runs/mlm")
    >>> run
    <jaxpt.Run: mlm, 3,136 parameters, step 0 of runs/mlm>
    >>> run.config["model"]["d_model"], sorted(run.params)
    (16, ['embed', 'encoder'])
    >>> run.tokenizer.decode(run.tokenizer.encode("the union"))
    'the union'
    """

    def __init__(self, loaded: LoadedRun, workdir: Path | None = None):
        self._loaded, self.workdir = loaded, workdir
        self._embedder: Embedder | None = None
        self._scorer: TextScorer | None = None
        self.params, self.step = loaded.params, loaded.step
        self.tokenizer: Tokenizer = loaded.tokenizer
        self.config: dict = loaded.program.task.plan.config

    @property
    def task(self) -> Task:
        """What was trained: objective, spec, vocabulary, network, optimizer."""
        return self._loaded.program.task

    @property
    def model(self) -> Network:
        """The network, a Flax module."""
        return self.task.model

    @property
    def objective(self) -> str:
        """The name of its objective."""
        return self.task.plan.objective_name

    def __repr__(self) -> str:
        num = sum(leaf.size for leaf in jax.tree.leaves(self.params))
        where = f" of {self.workdir}" if self.workdir else ""
        told = f"{self.objective}, {num:,} parameters, step {self.step}{where}"
        return f"<jaxpt.Run: {told}>"

    def fill(self, text: str, top_k: int = 5) -> list[list[tuple[str, float]]]:
        """The likeliest tokens for each [MASK] of a text, with their probabilities.

        Raises:
          UserError: the run fills no masks, or the text has none or is too long.

        >>> (found,) = jaxpt.load("runs/mlm").fill("the st[MASK]te", top_k=3)
        >>> [0 < probability < 1 for token, probability in found]
        [True, True, True]
        """
        return fill_text(self._loaded, text, top_k)

    def generate(
        self,
        prompts: str | Sequence[str],
        num_tokens: int = 0,
        num_samples: int = 1,
        seed: int = 0,
        stop: str = "",
        num_steps: int = 0,
        **sampling: Any,
    ) -> list[str]:
        """`num_samples` texts for each prompt in turn.

        Args:
          num_tokens: the most new tokens; 0: up to the model's maximum length.
          stop: text that ends a text.
          num_steps: of a run that writes by unmasking; 0: one for each token.
          sampling: temperature (0: greedy), top_k, top_p, repetition_penalty,
            num_beams, length_penalty.

        Raises:
          UserError: the run does not write, or a setting is out of range.

        >>> run = jaxpt.load("runs/clm")
        >>> texts = run.generate("the ", num_tokens=5, num_samples=2, top_k=20)
        >>> [text.startswith("the ") for text in texts]
        [True, True]
        """
        asked = [prompts] if isinstance(prompts, str) else list(prompts)
        numbers = num_tokens, num_samples, seed, stop, num_steps
        return generate_texts(self._loaded, asked, *numbers, **sampling)

    def nll(self, texts: str | Sequence[str], rule: str = AUTO) -> np.ndarray:
        """-log p of each text in nats, float64 [n]: the sum of `token_log_probs`.

        >>> jaxpt.load("runs/clm").nll(["the union", "it"]).shape
        (2,)
        """
        found = self.token_log_probs(texts, rule)
        return np.array([-each.sum(dtype=np.float64) for each in found])

    def token_log_probs(
        self, texts: str | Sequence[str], rule: str = AUTO
    ) -> list[np.ndarray]:
        """What each token adds to its text's log p, float32 [T] of each text.

        Args:
          rule: one of `run.rules`; "auto" is the first.

        Raises:
          UserError: the network gives texts no likelihood, or not by this rule; or a
            text is too long.

        >>> run = jaxpt.load("runs/mlm")
        >>> run.rules
        ('pll', 'pll_word_l2r')
        >>> [each.shape for each in run.token_log_probs(["the union", "it"])]
        [(9,), (2,)]
        """
        asked = [texts] if isinstance(texts, str) else texts
        ids = [self.tokenizer.encode(text) for text in asked]
        return self._score().token_log_probs(ids, rule=rule)

    @property
    def rules(self) -> tuple[str, ...]:
        """How its network can score a text, such as "causal" or "pll"."""
        return self._score().rules

    def _score(self) -> TextScorer:
        if self._scorer is None:
            self._scorer = make_scorer(self._loaded.program, self.params)
        return self._scorer

    def embed(self, texts: str | Sequence[str], pool: str = "mean"):
        """A vector of each text, float32 [n, D]; of any lengths, padded inside.

        Args:
          texts: cut where they are longer than the model reads.
          pool: "mean" of all positions, special tokens included; the "first" or the
            "last" position; "none" gives a list of [T, D], a vector for each token of
            `run.tokenizer.encode(text)`.

        Raises:
          UserError: there is no such pool.

        >>> run = jaxpt.load("runs/mlm")
        >>> run.embed(["the union", "it"]).shape
        (2, 16)
        >>> [each.shape for each in run.embed(["the union", "it"], pool="none")]
        [(9, 16), (2, 16)]
        """
        if self._embedder is None:
            self._embedder = Embedder(self._loaded)
        asked = [texts] if isinstance(texts, str) else texts
        return self._embedder.embed(asked, pool)

    def evaluate(self) -> dict[str, float]:
        """Its metrics on held-out text, by name; the text is read again.

        Raises:
          UserError: the text is not what it was, or the run has none of its own.

        >>> jaxpt.load("runs/mlm").evaluate()["valid_loss"] > 0
        True
        """
        if self.workdir is None:
            raise UserError(
                "a model that was imported to be used has no text of its own"
            )
        program = self._loaded.program
        corpora = load_corpora(self.workdir, self.task, self.tokenizer)
        return measure(program, self.params, corpora, self.task.plan.train.seed)


class Prepared(NamedTuple):
    """What a training loop of one's own begins with; `jaxpt.prepare` makes it.

    Attributes:
      task: `objective` (corrupt, masks, loss, train_step), `spec`, `vocab`, `model`,
        `optimizer`, `make_update()`.
      corpora: "train" and "valid".
      feed: `feed[step]` is the batch of a step, {"tokens": int32 [B, R], ...}.

    >>> prepared = jaxpt.prepare("runs/clm/config.json")
    >>> prepared.feed[0]["tokens"].shape
    (8, 24)
    >>> state = prepared.init_state(seed=0)
    >>> step = jax.jit(prepared.train_step)
    >>> state, metrics = step(state, prepared.feed[0])
    >>> int(state.step), sorted(metrics)
    (1, ['accuracy', 'grad_norm', 'loss'])
    """

    task: Task
    tokenizer: Tokenizer
    corpora: dict[str, Split]
    feed: Feed

    def init_state(self, seed: int = 0) -> TrainState:
        """Fresh parameters and the optimizer's state."""
        params = self.task.model.init_params(stream(seed, 0, "init"))
        return make_state(params, self.task.optimizer, self.task.has_ema)

    def train_step(
        self, state: TrainState, rows: dict, seed: int = 0
    ) -> tuple[TrainState, dict]:
        """The objective's own train step, to be jitted: the state one step later.

        Its keys come from the seed and the state's step, as in `jaxpt train`.

        Returns:
          The state, and metrics: name -> (sum, weight).
        """
        task, rngs = self.task, split_step(stream(seed, state.step, "train"))
        if "progress" in task.spec.READS:
            share = state.step / task.plan.train.steps
            rows = rows | {"progress": jnp.full(rows["index"].shape, share)}
        parts: dict[str, Any] = {"model": task.model, "vocab": task.vocab}
        parts |= {"spec": task.spec, "update": task.make_update()}
        return task.objective.train_step(state, rows, rngs, **parts)


def read_config(config: Config, settings: Mapping[str, Any] | None = None) -> dict:
    """A config's settings, plain values by section.

    Args:
      config: a ConfigDict, a dict, or the file that makes one, as `--config` has it;
        a run's config.json too.
      settings: full names and values that are put in, as flags do:
        {"train.steps": 100}.

    Raises:
      UserError: there is no such file or setting.

    >>> read_config({"objective": "clm", "train": {"steps": 5}}, {"train.steps": 9})
    {'objective': 'clm', 'train': {'steps': 9}}
    """
    if isinstance(config, str | os.PathLike):
        told = os.fspath(config)
        config = read_json_config(told) if told.endswith(".json") else None
        config = read_config_file(told) if config is None else config
    changes: dict[str, Any] = {}
    for name, value in to_dict(dict(settings or {})).items():
        section, _, field = name.partition(".")
        if field:
            changes.setdefault(section, {})[field] = value
        else:
            changes[section] = value
    return override(_with_outside(to_dict(config), changes), changes, "settings")


def _with_outside(config: dict, changes: dict) -> dict:
    """The config with the settings of objectives of the user's own, at their defaults.

    Raises:
      UserError: one that is named cannot be loaded.
    """
    compare = config.get("compare", {}), changes.get("compare", {})
    named = {"objective": changes.get("objective", config.get("objective"))}
    parts = [part for part in compare if isinstance(part, dict)]
    named["compare"] = {k: v for part in parts for k, v in part.items()}
    for name in list_outside(named):
        section, default = find_section(name), default_section(find(name).Spec)
        config = config | {section: to_dict(default) | config.get(section, {})}
    return config


def read_json_config(told: str) -> dict:
    """The config of a run's config.json: every setting there is."""
    from jaxpt.config.stored import get_config

    return get_config(told)


def load(source: Folder) -> Run:
    """A run, ready to be used.

    Args:
      source: a run's folder; a folder of transformers; or a model's name on the
        Hugging Face Hub, such as "google/electra-small-discriminator", which is
        downloaded.

    Raises:
      UserError: there is none, or it cannot be read.

    >>> jaxpt.load("runs/mlm").objective
    'mlm'
    >>> jaxpt.load("my.txt")
    Traceback (most recent call last):
    jaxpt.errors.UserError: my.txt: is no folder, ...
    """
    folder = Path(source)
    if not folder.is_dir():
        folder = _download(os.fspath(source))
    if not (folder / "config.json").is_file():
        raise UserError(f"{source}: must be a run's folder, or one of transformers")
    if "model_type" in read_json(folder, "config.json"):
        with tempfile.TemporaryDirectory() as place:
            import_run(folder, Path(place) / "run", default_config())
            return Run(load_run(Path(place) / "run"))
    return Run(load_run(folder), folder)


def _download(name: str) -> Path:
    """A model's files of the Hub, in its cache.

    Raises:
      UserError: it is no such name, or the Hub does not answer.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    wanted = ["*.json", "*.safetensors", "*.txt", "*.model"]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted))
    except HFValidationError:
        raise UserError(f"{name}: is no folder, and no name of the Hub") from None
    except Exception as error:  # of the network, or of the Hub
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"{name}: is no folder, and cannot be downloaded: {reason}"
        ) from None


def prepare(config: Config, settings: Mapping[str, Any] | None = None) -> Prepared:
    """The task, the text and the batches of a config, for a loop of one's own.

    Args:
      config: as of `read_config`.
      settings: as of `read_config`.

    Raises:
      UserError: a setting is wrong, or the objective needs a teacher and names none.

    >>> task, tokenizer, corpora, feed = jaxpt.prepare("runs/clm/config.json")
    >>> corpora["train"].num_documents
    1
    """
    plan = make_plan(read_config(config, settings), list(settings or ()), is_run=True)
    if lacks_teacher(plan):
        name = f"{plan.objective_name}.teacher"
        raise UserError(f"{name}='': must name a run's folder")
    tokenizer, corpora = load_text(plan.text)
    vocab = with_token_counts(plan, tokenizer.vocab, corpora["train"])
    task = make_task(plan, vocab)
    return Prepared(task, tokenizer, corpora, make_feed(task, corpora["train"]))


def train(
    config: Config,
    workdir: Folder,
    settings: Mapping[str, Any] | None = None,
    quiet: bool = False,
) -> dict:
    """Trains a run, or goes on with it; what it found, as in its result.json.

    Args:
      config: as of `read_config`.
      workdir: the run's folder.
      settings: as of `read_config`.
      quiet: prints no progress.

    Raises:
      UserError: a setting is wrong, or the folder holds another run.
      DivergedError: a loss is not finite.

    >>> changes = {"train.steps": 4, "data.path": "my.txt"}
    >>> result = jaxpt.train("runs/clm/config.json", "runs/mine", changes, quiet=True)
    >>> result["steps"], "bits_per_byte" in result["metrics"]
    (4, True)
    """
    whole = read_config(config, settings)
    set_cache()
    with hushed(quiet):
        return train_run(whole, Path(workdir), list(settings or ()))


def compare(
    config: Config,
    workdir: Folder,
    settings: Mapping[str, Any] | None = None,
    quiet: bool = False,
) -> dict:
    """Trains several objectives at an equal budget and writes a report, which it gives.

    Args, Raises: as of `train`.

    >>> changes = {"compare.objectives": ("clm", "mlm"), "compare.seeds": (0,)}
    >>> changes |= {"compare.budget": "steps", "train.steps": 2}
    >>> file = "runs/clm/config.json"
    >>> report = jaxpt.compare(file, "runs/compared", changes, quiet=True)
    >>> [run["objective"] for run in report["runs"]]
    ['clm', 'mlm']
    """
    whole = read_config(config, settings)
    set_cache()
    with hushed(quiet):
        return compare_runs(whole, Path(workdir), list(settings or ()))


def finetune(
    config: Config,
    source: Folder,
    to: Folder,
    settings: Mapping[str, Any] | None = None,
    quiet: bool = False,
) -> dict:
    """Fine-tunes a run on a task; what was found, as in the folder's result.json.

    Args:
      config: such as "configs/tasks/sst2.py:FOLDER".
      source: a run's folder, "scratch:" and a run's folder, or one of transformers.
      settings: as of `read_config`.
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
    plan = make_finetune_plan(read_config(config, settings))
    set_cache()
    with hushed(quiet):
        return run_grid(plan, os.fspath(source), Path(to), print)


def evaluate(
    workdir: Folder,
    tasks: str | Sequence[str] = (),
    rule: str = "all",
    num_items: int = 0,
    **options: Any,
) -> Any:
    """A run's metrics on held-out text, or what it finds of zero-shot tasks.

    Args:
      tasks: such as "blimp:blimp.tar.xz"; () asks for the metrics.
      rule: that texts are scored by; "all" that the run has, or "auto", the first.
      num_items: the most items of each task; 0 is all.
      options: the fields of `jaxpt.eval.outcomes.Options`, such as window or num_shots.

    Returns:
      {metric: value}; with tasks, a dict for each.

    Raises:
      UserError: there is no run, or a task cannot be asked.

    >>> (found,) = jaxpt.evaluate("runs/mlm", "pairs:pairs.tsv", rule="auto")
    >>> list(found["rules"])
    ['pll']
    """
    if not tasks:
        return load(workdir).evaluate()
    told = [tasks] if isinstance(tasks, str) else list(tasks)
    return evaluate_tasks(Path(workdir), told, rule, num_items, Options(**options))
