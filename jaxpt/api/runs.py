"""A trained run in Python: `jaxpt.load` and the class `jaxpt.Run`."""

import dataclasses
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxpt import trust as trust_list
from jaxpt.api.arguments import SettingsDict, name_arguments
from jaxpt.distributed import compilation_cache
from jaxpt.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    RandomWeightsWarning,
)
from jaxpt.files import copies, remote
from jaxpt.hub.opened import is_run, load_model
from jaxpt.hub.shipped import find_model
from jaxpt.logs import terminal
from jaxpt.nn.networks.network import Network
from jaxpt.report.formats import format_number
from jaxpt.report.writers import Grid, make_frame, write_html
from jaxpt.runs.embedding import BATCH_SIZE, TextEmbedder
from jaxpt.runs.predictions import fill_text, generate_texts
from jaxpt.runs.random_parts import describe_random_parts
from jaxpt.runs.result import load_result
from jaxpt.runs.scorer import make_scorer
from jaxpt.runs.task import Task
from jaxpt.runs.workdir import LoadedRun, load_corpora
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.training.measure import measure
from jaxpt.zero_shot.scoring import AUTO, TextScorer

Folder = str | os.PathLike[str]


class Run:
    """A trained run; `jaxpt.load` makes it.

    Attributes:
      params: its parameters, a tree of arrays; with `optim.ema_decay` their mean.
      tokenizer: `encode(text)` int32 [T], `decode(ids)`.
      config: its settings by section: a dict whose items are attributes, too.
      step: of the checkpoint.
      workdir: its folder; None if the model was loaded from transformers.

    >>> run = jaxpt.load("runs/mlm")
    >>> run
    <jaxpt.Run: mlm, 3,136 parameters, step 0 of runs/mlm>
    >>> run.config.model.d_model, run.config["objective"], sorted(run.params)
    (16, 'mlm', ['embed', 'encoder'])
    >>> run.tokenizer.decode(run.tokenizer.encode("the union"))
    'the union'
    """

    def __init__(self, loaded: LoadedRun, workdir: Path | None = None):
        self._loaded = loaded
        self.workdir: Path | None = workdir
        self._embedder: TextEmbedder | None = None
        self._scorer: TextScorer | None = None
        self.params: Any = loaded.params
        self.step: int = loaded.step
        self.tokenizer: Tokenizer = loaded.tokenizer
        self.config: SettingsDict = SettingsDict(loaded.program.task.plan.config)

    @property
    def task(self) -> Task:
        """Objective, spec, vocabulary, network and optimizer."""
        return self._loaded.program.task

    @property
    def model(self) -> Network:
        """The network, a Flax module with the attention mask as an argument."""
        return self.task.model

    @property
    def objective(self) -> str:
        """The name of its objective."""
        return self.task.plan.objective_name

    @property
    def num_params(self) -> int:
        """The number of its parameters."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.params))

    def __repr__(self) -> str:
        num = self.num_params
        where = f" of {copies.with_urls(self.workdir)}" if self.workdir else ""
        text = f"{self.objective}, {num:,} parameters, step {self.step}{where}"
        return f"<jaxpt.Run: {text}>"

    def _describe(self) -> dict[str, str]:
        """What it is, by name."""
        facts = {"objective": self.objective, "parameters": f"{self.num_params:,}"}
        facts |= {"step": f"{self.step:,}", "vocabulary": f"{self.task.vocab.size:,}"}
        if self.workdir:
            facts["folder"] = copies.with_urls(self.workdir)
        return facts

    def _repr_html_(self) -> str:
        result = load_result(self.workdir) if self.workdir else None
        metrics = (result or {"metrics": {}})["metrics"].items()
        measured = [[name, format_number(value)] for name, value in metrics]
        grids = [Grid(["", ""], [[k, v] for k, v in self._describe().items()], (0,))]
        grids += [Grid(["metric", "value"], measured, (0,))] if measured else []
        return write_html(f"jaxpt.Run: {self.objective}", grids, "", [])

    @name_arguments()
    def to_pandas(self, curve: bool = False) -> Any:
        """A pandas DataFrame with a row for each metric.

        Args:
          curve: a row for each evaluation during training instead, with the costs so
            far and the metrics there.

        Raises:
          DataError: the run is not finished, or was imported; or pandas is missing.

        >>> changes = {"train.steps": 4, "data.path": "my.txt"}
        >>> file, folder = "runs/clm/config.json", "runs/measured"
        >>> result = jaxpt.train(file, folder, changes, quiet=True)
        >>> run = jaxpt.load(folder)
        >>> run.to_pandas()["metric"].tolist() == list(result["metrics"])
        True
        >>> run.to_pandas(curve=True)["step"].tolist()
        [0, 4]
        """
        result = load_result(self.workdir) if self.workdir else None
        if result is None:
            place = self.workdir or "a model without a folder"
            raise DataError(f"{place}: has no result.json; only a finished run has one")
        metrics = result["metrics"].items()
        rows = [{"metric": name, "value": value} for name, value in metrics]
        return make_frame(result["curve"] if curve else rows)

    @name_arguments()
    def fill(self, text: str, top_k: int = 5) -> list[list[tuple[str, float]]]:
        """The likeliest tokens at each [MASK] of a text, with their probabilities.

        Raises:
          UserError: the model does not predict masked tokens, or the text has none or
            is too long. A model that writes gaps needs exactly one.

        >>> (tokens,) = jaxpt.load("runs/mlm").fill("the st[MASK]te", top_k=3)
        >>> [0 < probability < 1 for token, probability in tokens]
        [True, True, True]
        """
        return fill_text(self._loaded, text, top_k)

    @name_arguments(prompt="prompts")
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
        """Generates `num_samples` texts for each prompt.

        Args:
          num_tokens: at most this many new tokens; 0: up to the model's maximum length.
            Beyond it, each token follows from the last ones, as in nanoGPT.
          stop: a text that ends generation.
          num_steps: of unmasking, for masked diffusion; 0: one for each token.
          sampling: temperature (0: greedy), top_k, top_p, repetition_penalty,
            num_beams, length_penalty, no_repeat_ngram_size, min_new_tokens,
            suppress_tokens; those of an imported model if not given.

        Raises:
          UserError: the model does not generate, or an argument is out of range.

        >>> run = jaxpt.load("runs/clm")
        >>> texts = run.generate("the ", num_tokens=5, num_samples=2, top_k=20)
        >>> [text.startswith("the ") for text in texts]
        [True, True]
        """
        texts = [prompts] if isinstance(prompts, str) else list(prompts)
        options = num_tokens, num_samples, seed, stop, num_steps
        return generate_texts(self._loaded, texts, *options, **sampling)

    def nll(self, texts: str | Sequence[str], rule: str = AUTO) -> np.ndarray:
        """-log p of each text in nats, float64 [n]: the sum of `token_log_probs`.

        >>> jaxpt.load("runs/clm").nll(["the union", "it"]).shape
        (2,)
        """
        log_probs = self.token_log_probs(texts, rule)
        return np.array([-each.sum(dtype=np.float64) for each in log_probs])

    @name_arguments()
    def token_log_probs(
        self, texts: str | Sequence[str], rule: str = AUTO
    ) -> list[np.ndarray]:
        """The log probability of each token, float32 [T] for each text.

        Args:
          rule: one of `run.rules`; "auto" is the first.

        Raises:
          UserError: the model has no likelihood of texts, or not by this rule; or a
            text is too long.

        >>> run = jaxpt.load("runs/mlm")
        >>> run.rules
        ('pll', 'pll_word_l2r')
        >>> [each.shape for each in run.token_log_probs(["the union", "it"])]
        [(9,), (2,)]
        """
        texts = [texts] if isinstance(texts, str) else texts
        ids = [self.tokenizer.encode(text) for text in texts]
        return self._score().token_log_probs(ids, rule=rule)

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules by which the model can score a text, such as "causal" or "pll"."""
        return self._score().rules

    def _score(self) -> TextScorer:
        if self._scorer is None:
            self._scorer = make_scorer(self._loaded.program, self.params)
        return self._scorer

    @name_arguments()
    def embed(
        self,
        texts: str | Sequence[str],
        pool: str = "mean",
        batch_size: int = BATCH_SIZE,
        normalize: bool = False,
    ) -> np.ndarray | list[np.ndarray]:
        """The embedding of each text, float32 [n, D]; texts may differ in length.

        Args:
          texts: truncated to the model's maximum length. The vector of a text without
            a token is that of the special tokens, or 0 if there are none.
          pool: "mean" of all positions, special tokens included; the "first" or the
            "last" position; "none" gives a list of [T, D], a vector for each token of
            `run.tokenizer.encode(text)`.
          batch_size: texts that are read at once; changes no vector.
          normalize: vectors of length 1, whose products are cosine similarities.

        Raises:
          UserError: an unknown pool, or a batch size below 1.

        >>> run = jaxpt.load("runs/mlm")
        >>> run.embed(["the union", "it"]).shape
        (2, 16)
        >>> [each.shape for each in run.embed(["the union", "it"], pool="none")]
        [(9, 16), (2, 16)]
        """
        if self._embedder is None:
            self._embedder = TextEmbedder.of_run(self._loaded)
        texts = [texts] if isinstance(texts, str) else texts
        return self._embedder.embed(texts, pool, batch_size, normalize)

    @name_arguments()
    def evaluate(self) -> dict[str, float]:
        """Its metrics on held-out text, by name; the text is read again.

        Raises:
          UserError: the text has changed, or the run has no text.

        >>> jaxpt.load("runs/mlm").evaluate()["valid_loss"] > 0
        True
        """
        if self.workdir is None:
            raise DataError("a model loaded from transformers has no held-out text")
        program = self._loaded.program
        with terminal():
            corpora = load_corpora(self.workdir, self.task, self.tokenizer)
        return measure(program, self.params, corpora, self.task.plan.train.seed).metrics


@name_arguments(workdir="source", **{"from": "source"})
def load(
    source: Folder,
    trust: str | Sequence[str] = (),
    *,
    revision: str = "",
    allow_random: bool = False,
) -> Run:
    """Loads a trained run, or a model of Hugging Face transformers.

    Like the commands, it sets JAX's compilation cache: to ~/.cache/jaxpt/xla, unless
    JAX is given another folder.

    Warns (`RandomWeightsWarning`) of parts that a checkpoint of transformers lacks and
    that are randomly initialized. If the language model's head is one of them, `fill`,
    `generate` and `nll` raise a UserError unless `allow_random`; `embed` does not need
    it. ELECTRA's discriminator alone embeds and detects replaced tokens
    (`token_log_probs`); its generator alone is a masked language model.

    Args:
      source: a run's folder; a folder of transformers or of an adapter of PEFT; a model
        that comes with jaxpt, such as "demo:mlm" (`jaxpt list models`); or a name on
        the Hugging Face Hub, such as "google/electra-small-discriminator", which is
        downloaded.
      trust: code outside jaxpt that the run names and that may be executed: the module
        of its objective, such as "my_package.my_objective"; and remote places that may
        be read, such as its text, "gs://bucket/text".
      revision: of a name: a branch, a tag or a commit; "" is the default branch.
      allow_random: predict tokens also with weights that were randomly initialized, as
        a baseline.

    Raises:
      CheckpointError: the folder holds no run, or is damaged.
      DataError: a model of transformers cannot be downloaded or read.
      UserError: the run names code that is not trusted.

    >>> jaxpt.load("runs/mlm").objective
    'mlm'
    >>> jaxpt.load("my.txt")
    Traceback (most recent call last):
    jaxpt.errors.DataError: source=my.txt: is not a folder; must be that of config.json
    """
    name = remote.localise(find_model(os.fspath(source)))
    folder = Path(name)
    if revision:
        if folder.is_dir() or "@" in name:
            raise ConfigError(
                f"revision={revision}: must be left out for {name}: only a name on the "
                "Hugging Face Hub, without @, has a revision"
            )
        name = f"{name}@{revision}"
    is_own = is_run(name)
    if is_own and not (folder / "config.json").is_file():
        raise CheckpointError(
            f"{source}: must be a run's folder, or one of transformers"
        )
    trust_list.trust(trust)
    compilation_cache.set_up()
    run = Run(load_model(name), folder if is_own else None)
    if text := describe_random_parts(run.task):
        warnings.warn(f"{source}: {text}", RandomWeightsWarning, stacklevel=3)
        if allow_random:
            task = dataclasses.replace(run.task, random_parts=())
            run._loaded.program.task = task
    return run
