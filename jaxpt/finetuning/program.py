"""The compiled training and evaluation steps of fine-tuning.

The learning rate is an argument, so the runs of a grid share the compiled programs.
"""

import copy
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxpt.config.finetuning import FinetunePlan
from jaxpt.errors import ConfigError
from jaxpt.finetuning.base import Base
from jaxpt.hub.task_heads import computes
from jaxpt.learn.frozen import is_frozen
from jaxpt.learn.groups import make_grouped_optimizer
from jaxpt.learn.loss_scale import scale_down, scale_up
from jaxpt.learn.skips import SkipRule, Skips, keep_if, make_rule
from jaxpt.learn.update import weigh
from jaxpt.nn.adaptation.adapt import count_trained, find_frozen, find_read, init_extra
from jaxpt.nn.adaptation.prompts import check_length
from jaxpt.nn.networks.abilities import HasLikelihood
from jaxpt.nn.networks.network import TransformerNetwork
from jaxpt.nn.task_heads import TextHead, TokenHead
from jaxpt.rng import stream
from jaxpt.tasks.model import TaskModel
from jaxpt.tasks.task import Labels, Sums

HEADS = {"text": TextHead, "tokens": TokenHead}
LM_WEIGHT = 0.5  # Radford et al. 2018


@dataclasses.dataclass(frozen=True)
class TuneState:
    """The training state.

    Attributes:
      params: {"network", "head", "extra"}.
      opt_state: the optimizer's moments of the trained parameters.
      step: the number of completed steps.
      skips: the skipped updates; None if none may be skipped.
    """

    params: Any
    opt_state: Any
    step: int
    skips: Skips | None = None


class TuneProgram:
    """A base with a task's head: initial states and compiled steps.

    Args:
      batch: an example batch, [2, ...], for tracing.
    """

    def __init__(
        self, plan: FinetunePlan, base: Base, labels: Labels, batch: dict
    ) -> None:
        self.plan, self.base, self.labels, self.batch = plan, base, labels, batch
        self.task, self.spec = plan.task, plan.spec
        num = plan.spec.num_outputs(labels)
        head = None
        if num:
            make: Any = HEADS[plan.spec.READS]
            head = make(base.task.model_spec, base.form, num, plan.spec.dropout)
        start_id = 0
        if type(base.task.model).HAS_DECODER:
            start_id = base.task.vocab.start
        self.model = TaskModel(
            base.network,
            head,
            base.form,
            start_id,
            adaptation=plan.adapt,
            writing=base.encoder.writing,
            spec=plan.spec,
        )
        if head is None and plan.adapt.num_prompts:
            raise ConfigError(
                f"adapt.method={plan.adapt.method}: must be another for a task with "
                f"generated answers"
            )
        if plan.adapt.num_prompts:
            check_length(plan.adapt, base.task.model_spec, base.encoder.max_len)
        self.keeps_head = self._can_keep_head(num)
        self.lm_weight = self._find_lm_weight()
        self.abstract = jax.eval_shape(lambda: self.init_params(0))
        self.frozen = self._find_frozen()
        self.counts = count_trained(self.abstract, self.frozen)
        self.optimizers: dict[tuple[int, int], optax.GradientTransformation] = {}
        self._train = jax.jit(
            self._step, static_argnames=("num_steps", "epoch_steps"), donate_argnums=0
        )
        self._read = jax.jit(self._outputs)

    def with_base(self, plan: FinetunePlan, base: Base) -> "TuneProgram":
        """This program with other parameters of the same network.

        Args:
          plan: may differ in the number of examples and the seeds.
        """
        other = copy.copy(self)
        other.plan, other.base = plan, base
        return other

    def _can_keep_head(self, num_outputs: int) -> bool:
        """Whether the base has a head for this task with `num_outputs` outputs."""
        head = self.base.head
        if head is None or head.class_suffix != self.plan.spec.EXPORT:
            return False
        if not computes(head.form, self.base.form):
            return False
        return head.params["out"]["kernel"].shape[-1] == num_outputs

    def _find_lm_weight(self) -> float:
        setting, form = self.plan.train.lm_weight, self.base.form
        weight = LM_WEIGHT * (form == "gpt") if setting == -1 else setting
        can = isinstance(self.base.network, TransformerNetwork)
        can = can and isinstance(self.base.network, HasLikelihood)
        can = can and self.plan.spec.READS == "text"
        if setting > 0 and not can:
            raise ConfigError(
                f"train.lm_weight={setting}: must be 0 for a network that is not a "
                f"causal language model, and for a task that tags tokens or generates"
            )
        return weight if can else 0.0

    def init_params(self, seed: int) -> dict:
        """{"network", "head", "extra"} before the first step."""
        network, pooler = self.base.draw(seed)
        key = stream(seed, 0, "init")
        head: dict = {}
        if self.model.head is not None:
            head = self._init_head(jax.random.fold_in(key, 1))
            head |= {name: x for name, x in (pooler or {}).items() if name in head}
            if self.keeps_head:
                head = self.base.head.params  # type: ignore[union-attr]
        rng = jax.random.fold_in(key, 2)
        read = functools.partial(self._read_network, self.batch)
        names = None
        if self.plan.adapt.method == "prompt" and self.labels:
            names = [self.base.encoder.ids(name).tolist() for name in self.labels]
        extra = init_extra(self.plan.adapt, read, network, rng, names)
        return {"network": network, "head": head, "extra": extra}

    def _init_head(self, rng: jax.Array) -> dict:
        width = self.base.network.task_width
        segment_ids = jnp.ones((1, 2), jnp.int32)
        states = jnp.zeros((1, 2, width))
        if getattr(self.model.head, "mixes_layers", False):
            num = self._count_layers()
            states = jnp.zeros((num, 1, 2, width))
        made = self.model.head.init(rng, states, segment_ids, deterministic=True)
        return made.get("params", {})

    def _count_layers(self) -> int:
        network, _ = jax.eval_shape(lambda: self.base.draw(0))
        read = functools.partial(self._read_network, self.batch)
        return jax.eval_shape(read, network).shape[0]

    def _read_network(self, batch: dict, network: Any) -> Any:
        """The hidden states that the task reads, without added parameters."""
        plain = dataclasses.replace(self.model, adaptation=type(self.plan.adapt)())
        if self.model.head is None:
            params = {"network": network, "head": {}, "extra": {}}
            return self.task.outputs(plain, params, batch, None)
        flat = plain.flatten(batch)
        states = plain.states({"network": network, "extra": {}}, flat, None)
        if self.lm_weight:
            return states, self._lm_loss({"network": network}, flat, states)
        return states

    def _find_frozen(self) -> tuple[str, ...]:
        run = functools.partial(self._read_network, self.batch)
        read = find_read(run, self.abstract["network"])
        return find_frozen(self.plan.adapt, self.abstract, read)

    def _optimizer(
        self, num_steps: int, epoch_steps: int
    ) -> optax.GradientTransformation:
        """The optimizer with learning rate 1; made once for each number of steps."""
        key = num_steps, epoch_steps
        if key not in self.optimizers:
            warmup = round(self.plan.train.warmup_share * num_steps)
            optim = dataclasses.replace(
                self.plan.optim, warmup_steps=min(warmup, num_steps - 1)
            )
            self.optimizers[key] = make_grouped_optimizer(
                optim,
                self.plan.groups,
                self.abstract,
                num_steps,
                epoch_steps,
                self.frozen,
            )
        return self.optimizers[key]

    def make_rule(self, num_steps: int) -> SkipRule | None:
        """Which updates are skipped; None if none is."""
        dtype = self.base.task.model_spec.compute_dtype
        return make_rule(self.plan.optim, num_steps, dtype)

    def init_state(self, seed: int, num_steps: int, epoch_steps: int) -> TuneState:
        """The state before the first step, on the device."""
        params = jax.tree.map(jnp.array, self.init_params(seed))
        optimizer = self._optimizer(num_steps, epoch_steps)
        rule = self.make_rule(num_steps)
        opt_state = jax.jit(optimizer.init)(params)
        return TuneState(params, opt_state, 0, rule.init() if rule else None)

    def train(
        self, state: TuneState, batch: dict, lr: float, seed: int, sizes: dict
    ) -> tuple[TuneState, jax.Array]:
        """One training step: the next state and the loss; `state` is donated.

        The loss of a skipped update is 0.

        Args:
          sizes: "num_steps" and "epoch_steps" of the run.
        """
        trained, frozen = self.split(state.params)
        numbers = np.float32(lr), np.int32(seed), np.int32(state.step)
        donated = trained, state.opt_state, state.skips
        trained, opt_state, skips, loss = self._train(
            donated, frozen, batch, numbers, **sizes
        )
        params = self.join(trained, frozen)
        return TuneState(params, opt_state, state.step + 1, skips), loss

    def _step(
        self,
        donated: tuple,
        frozen: dict,
        batch: dict,
        numbers: tuple,
        *,
        num_steps: int,
        epoch_steps: int,
    ) -> tuple[dict, Any, Skips | None, jax.Array]:
        (trained, old_opt_state, skips), (lr, seed, step) = donated, numbers
        rngs = {"dropout": stream(seed, step, "train")}
        scale = None if skips is None else skips.scale

        def weighed_loss(trained: dict) -> tuple[jax.Array, jax.Array]:
            params = self.join(trained, frozen)
            terms, coefficients = self._terms(params, batch, rngs)
            totals = {name: weight for name, (_, weight) in terms.items()}
            loss = weigh(terms, totals, coefficients)
            return scale_up(loss, scale), loss

        grads, loss = jax.grad(weighed_loss, has_aux=True)(trained)
        grads = scale_down(grads, scale)
        params = self.join(trained, frozen)
        zeros = jax.tree.map(jnp.zeros_like, frozen)
        optimizer = self._optimizer(num_steps, epoch_steps)
        updates, opt_state = optimizer.update(
            self.join(grads, zeros), old_opt_state, params
        )
        moves, _ = self.split(updates)
        moved = jax.tree.map(lambda x, move: x + lr * move, trained, moves)
        rule = self.make_rule(num_steps)
        if rule is None or skips is None:
            return moved, opt_state, skips, loss
        skips = rule.judge(skips, loss, optax.tree.norm(grads))
        old, new = (trained, old_opt_state), (moved, opt_state)
        moved, opt_state = keep_if(skips.is_last, old, new)
        return moved, opt_state, skips, jnp.where(skips.is_last, 0, loss)

    def _terms(
        self, params: dict, batch: dict, rngs: dict
    ) -> tuple[Sums, dict[str, float]]:
        """The loss terms and their coefficients."""
        collected: list = []
        model = dataclasses.replace(self.model, collected=collected)
        outputs = self.task.outputs(model, params, batch, rngs)
        terms = dict(self.task.loss(outputs, batch, self.spec))
        coefficients = dict.fromkeys(terms, 1.0)
        if self.lm_weight:
            (states,) = collected
            terms["lm_loss"] = self._lm_loss(params, self.model.flatten(batch), states)
            coefficients["lm_loss"] = self.lm_weight
        return terms, coefficients

    def _lm_loss(
        self, params: dict, batch: dict, states: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """The causal language modelling loss on the texts: (sum, weight)."""
        segment_ids = batch["segment_ids"]
        weights = (segment_ids[:, 1:] > 0).astype(jnp.float32)
        if "row_weights" in batch:
            each = batch["row_weights"]
            weights *= jnp.repeat(each, len(segment_ids) // len(each))[:, None]
        inputs = states[:, :-1], batch["inputs"][:, 1:], weights
        network: Any = self.base.network
        scores = network.apply({"params": params["network"]}, *inputs, method="score")
        return scores.loss

    def outputs(self, params: dict, batch: dict) -> Any:
        """The task's outputs for a batch, without dropout."""
        return self._read(params, batch)

    def _outputs(self, params: dict, batch: dict) -> Any:
        return self.task.outputs(self.model, params, batch, None)

    def split(self, params: Any) -> tuple[dict, dict]:
        """The trained and the frozen parameters, by path."""
        trained: dict = {}
        frozen: dict = {}
        for path, leaf in jax.tree_util.tree_leaves_with_path(params):
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            (frozen if is_frozen(path, self.frozen) else trained)[name] = leaf
        return trained, frozen

    def join(self, trained: dict, frozen: dict) -> dict:
        """The inverse of `split`."""
        leaves, treedef = jax.tree_util.tree_flatten_with_path(self.abstract)
        whole = trained | frozen
        names = (jax.tree_util.keystr(p, simple=True, separator="/") for p, _ in leaves)
        return jax.tree_util.tree_unflatten(treedef, [whole[name] for name in names])
