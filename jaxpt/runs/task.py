"""A training task: a plan with its vocabulary, network and optimizer."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import optax

from jaxpt.by_name import load_place
from jaxpt.config.plan import Plan
from jaxpt.dims import PyTree
from jaxpt.errors import ConfigError
from jaxpt.learn.optim_spec import OptimSpec
from jaxpt.learn.optimizer import count_flops, make_optimizer
from jaxpt.learn.skips import SkipRule, make_rule
from jaxpt.learn.state import TrainState, make_state
from jaxpt.learn.update import Update, average_params
from jaxpt.nn.attention import list_requests
from jaxpt.nn.model_spec import LIMITED, ModelSpec
from jaxpt.nn.networks.abilities import WritesText
from jaxpt.nn.networks.network import Network
from jaxpt.objectives.objective import Objective, ObjectiveSpec
from jaxpt.ops.kernel_choice import explain_kernel
from jaxpt.rng import stream
from jaxpt.runs.generation_defaults import Defaults
from jaxpt.text.feed import pad_ranges
from jaxpt.text.phases import Phase, split_steps
from jaxpt.text.rows.rows_spec import SEGMENTED
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.text_form import TextForm, mark_words


@dataclasses.dataclass(frozen=True)
class Task:
    """A plan with everything that its training needs.

    Attributes:
      random_parts: parts of an imported network that the checkpoint lacked and that
        were not trained yet (`jaxpt.runs.random_parts`).
      generation: an imported model's settings of generation.
    """

    plan: Plan
    vocab: Vocab
    model_spec: ModelSpec
    model: Network
    optimizer: optax.GradientTransformation
    random_parts: tuple[str, ...] = ()
    generation: Defaults = ()

    @property
    def objective(self) -> Objective:
        """The objective's module."""
        return self.plan.objective

    @property
    def spec(self) -> ObjectiveSpec:
        """The objective's spec."""
        return self.plan.spec

    @property
    def read_length(self) -> int:
        """The length in tokens of the model's (first stack's) input in training."""
        return next(iter(self.spec.lengths.values()))

    @property
    def nonwords(self) -> list[int]:
        """Ids that are not words: special ones, and padding of the vocabulary."""
        padding = range(self.vocab.size, self.model_spec.vocab_size)
        return [*self.vocab.special_ids.tolist(), *padding]

    @functools.cached_property
    def text_form(self) -> TextForm:
        """How a text is written for the run's network.

        The ids around it are those of an imported model, or else of the objective, or
        else of the rows of training. Before a text that is read from left to right, an
        imported model has the ids around any text, and a run the [EOS] that closed the
        previous text if its rows are joined texts.
        """
        vocab, spec, imported = self.vocab, self.model_spec, self.vocab.text_form
        form, eos = self.spec.text_form(vocab), _list_known(vocab.eos)
        around = imported
        if around is None:
            rows = self.plan.rows.text_form(vocab)
            inner = form if form.before or form.after else rows
            around = TextForm(inner.before, inner.after, bos=rows.bos, ends=eos)
        has_decoder = self.model.HAS_DECODER
        return dataclasses.replace(
            form,
            before=around.before,
            after=around.after,
            lead=around.before + form.lead,
            bos=around.bos,
            start=vocab.start if has_decoder else None,
            first=around.first if has_decoder else None,
            last=around.last,
            ends=around.ends,
            left=around.before or _list_known(around.bos),
            right=eos,
            is_word_start=mark_words(vocab.word_starts, vocab.pieces, spec.vocab_size),
            max_len=spec.max_len if spec.positions in LIMITED else 0,
        )

    def find_banned(self, is_answer: bool) -> tuple[int, ...]:
        """Ids that are never generated: nonwords, except an answer's sentinels."""
        sentinels = self.vocab.sentinels if is_answer else ()
        allowed = {*self.text_form.ends, *sentinels}
        return tuple(sorted(set(self.nonwords) - allowed))

    @property
    def has_sentinels(self) -> bool:
        """Whether sentinels are the gaps of a text that is answered (T5)."""
        return self.spec.needs.num_sentinels > 0 and bool(self.text_form.gap)

    @property
    def has_ema(self) -> bool:
        """Whether the state keeps an average of the parameters, which is evaluated."""
        return self.plan.optim.ema_decay > 0 or self.plan.optim.is_schedule_free

    def average_params(self, state: TrainState) -> TrainState:
        """The state after a step, with the next average of its parameters, if any."""
        optim, frozen = self.plan.optim, self.model.frozen
        if not optim.is_schedule_free:
            return average_params(state, optim.ema_decay, frozen)
        average = load_place("jaxpt.learn.optax_names:average_schedule_free")
        return dataclasses.replace(state, ema=average(state.params, state.opt_state))

    def make_state(self, params: PyTree) -> TrainState:
        """The state before the first step, with these parameters."""
        rule, train = self.skip_rule, self.plan.train
        skipped_batches = None
        if train.rewind or train.skip_batches:
            skipped_batches = jnp.asarray(pad_ranges(train.skip_batches))
        return make_state(
            params,
            self.optimizer,
            self.has_ema,
            self.spec.init_state(self.vocab, params),
            rule.init() if rule else None,
            skipped_batches,
        )

    def make_update(self, axis: str | None = None) -> Update:
        """The update at the end of a train step; `axis` is pmap's."""
        num = self.plan.train.num_microbatches
        return Update(self.optimizer, num, axis, self.model.frozen, self.skip_rule)

    @property
    def skip_rule(self) -> SkipRule | None:
        """Which updates are skipped; None if none is."""
        dtype = self.model_spec.compute_dtype
        return make_rule(self.plan.optim, self.plan.train.steps, dtype)

    @functools.cached_property
    def phases(self) -> tuple["Task", ...]:
        """For each phase of training, the task of a run with its batches alone.

        They have the same parameters and the same optimizer state.
        """
        phases = self.plan.train.phases
        if phases == (Phase(0, self.plan.train.batch_size),):
            return (self,)
        return tuple(self._in_phase(phase) for phase in phases)

    def _in_phase(self, phase: Phase) -> "Task":
        plan, optimizer = self.plan.in_phase(phase), self.optimizer
        model = plan.spec.make_network(self.model_spec, self.vocab)
        if plan.optim != self.plan.optim:  # other learning rates
            optimizer = _make_optimizer(plan, model)
        return dataclasses.replace(self, plan=plan, model=model, optimizer=optimizer)

    def for_batch(self, num_rows: int, length: int) -> "Task":
        """The task of a phase with batches of this shape; this task if none has."""
        for task in self.phases:
            if (task.plan.train.batch_size, task.spec.row_length) == (num_rows, length):
                return task
        return self

    def list_kernels(self) -> list[str]:
        """The attention kernels of training on this machine.

        With the reason if it is not the platform's fused kernel.
        """
        is_packed = self.plan.rows.rows in SEGMENTED
        lengths = [n for task in self.phases for n in task.spec.lengths.values()]
        how = is_packed, self.model.READS_AHEAD, self.plan.train.context
        needs = list_requests(self.model_spec, lengths, *how)
        kernel = self.model_spec.attention
        return list(dict.fromkeys(explain_kernel(kernel, need) for need in needs))

    def count_flops(self) -> float:
        """FLOPs of the network in training on one row, in a batch on one device."""
        num_rows = self.plan.train.batch_size // self.plan.train.num_microbatches
        predictions = self.spec.predictions.mean(num_rows)
        row = self.model.count_flops(self.spec.lengths, predictions)
        return row + self.model.count_batch_flops() / num_rows

    @functools.cached_property
    def _row_flops(self) -> float:
        return self.count_flops()

    @property
    def update_flops(self) -> float:
        """FLOPs of the optimizer in one step, for a batch of any size."""
        if not self.plan.optim.has_products:
            return 0.0
        return _count_update(self.model, self.plan.optim)

    def count_network_flops(self, num_steps: int) -> float:
        """FLOPs of the first steps without the optimizer's, as in MFU."""
        return self.count_costs(num_steps)["flops"] - num_steps * self.update_flops

    def count_costs(self, num_steps: int) -> dict[str, float]:
        """The cost of the first steps: raw and model tokens, and FLOPs.

        FLOPs are those of the network and of the optimizer.
        """
        costs: dict[str, float] = {"raw_tokens": 0, "model_tokens": 0}
        costs["flops"] = num_steps * self.update_flops
        numbers = split_steps(self.plan.train.phases, num_steps)
        for task, num in zip(self.phases, numbers, strict=True):
            rows = num * task.plan.train.batch_size
            costs["raw_tokens"] += rows * task.spec.row_length
            costs["model_tokens"] += rows * sum(task.spec.lengths.values())
            costs["flops"] += rows * task._row_flops
        return costs


@functools.lru_cache(maxsize=256)
def _count_update(model: Network, spec: OptimSpec) -> float:
    params = jax.eval_shape(lambda: model.init_params(stream(0, 0, "init")))
    return count_flops(spec, params, model.frozen)


def _list_known(id_: int | None) -> tuple[int, ...]:
    return () if id_ is None else (id_,)


def make_task(plan: Plan, vocab: Vocab) -> Task:
    """The network and optimizer of a plan."""
    plan = resolve_dtype(plan)
    model_spec = with_vocab(plan.model, vocab)
    model = plan.spec.make_network(model_spec, vocab)
    if model_spec.token_dropout >= 0 and isinstance(model, WritesText):
        raise ConfigError(  # the ids of the tokens before are not in a cache
            f"model.token_dropout={model_spec.token_dropout}: must be -1 for "
            f"{plan.objective_name}, which generates text"
        )
    return Task(plan, vocab, model_spec, model, _make_optimizer(plan, model))


def _make_optimizer(plan: Plan, model: Network) -> optax.GradientTransformation:
    """The optimizer of a plan, with the factors of its parametrization."""
    scales = None
    if plan.model.parametrization != "standard":
        scales = load_place("jaxpt.learn.scales:make_scales")(model)
    return make_optimizer(plan.optim, plan.train.steps, model.frozen, scales)


def resolve_dtype(plan: Plan) -> Plan:
    """The plan with `model.dtype=auto` resolved for this machine.

    The run records the dtype and keeps it wherever it is resumed, evaluated or used.
    Called after the text is read, because it initialises the device.
    """
    dtype = plan.model.compute_dtype
    section = plan.config.get("model", {}) | {"dtype": dtype}
    return dataclasses.replace(
        plan,
        model=dataclasses.replace(plan.model, dtype=dtype),
        config=plan.config | {"model": section},
    )


def with_vocab(spec: ModelSpec, vocab: Vocab) -> ModelSpec:
    """The model's spec with the size of the vocabulary."""
    if spec.token_dropout not in (-1, vocab.mask):
        allowed = "" if vocab.mask is None else f"{vocab.mask}, the id of [MASK], or "
        raise ConfigError(
            f"model.token_dropout={spec.token_dropout}: must be {allowed}-1 with this "
            "tokenizer"
        )
    if 0 < spec.vocab_size < vocab.size:
        raise ConfigError(
            f"model.vocab_size={spec.vocab_size}: must be at least {vocab.size}, the "
            f"tokenizer's ids, or 0 for the same number"
        )
    return dataclasses.replace(spec, vocab_size=spec.vocab_size or vocab.size)
