"""What is trained: a plan with its vocabulary, its model and its optimizer."""

import dataclasses
from types import ModuleType

import optax
from flax import linen as nn

from jaxpt.config.plan import Plan
from jaxpt.errors import UserError
from jaxpt.learn.optimizer import make_optimizer
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.text.tokens.vocab import Vocab


@dataclasses.dataclass(frozen=True)
class Task:
    """What is trained: a plan with its vocabulary, its model and its optimizer."""

    plan: Plan
    vocab: Vocab
    model_spec: ModelSpec
    model: nn.Module
    optimizer: optax.GradientTransformation

    @property
    def module(self) -> ModuleType:
        """The objective's module."""
        return self.plan.module

    @property
    def spec(self):
        """The objective's spec."""
        return self.plan.objective_spec

    @property
    def frozen(self) -> tuple[str, ...]:
        """Paths of the parameters that no step changes."""
        return _frozen(self.plan)

    @property
    def read_length(self) -> int:
        """Tokens that the model, or its first stack, reads at once in training."""
        return next(iter(self.module.model_lengths(self.spec).values()))

    @property
    def nonwords(self) -> list[int]:
        """The special ids, and those of the model that the tokenizer lacks."""
        padding = range(self.vocab.size, self.model_spec.vocab_size)
        return [*self.vocab.special_ids.tolist(), *padding]

    @property
    def has_ema(self) -> bool:
        """Whether the state keeps a mean of the parameters."""
        return self.plan.optim.ema_decay > 0


def make_task(plan: Plan, vocab: Vocab) -> Task:
    """The model and optimizer of a plan.

    Raises:
      UserError: the vocabulary or the model does not serve the objective.
    """
    plan = resolve_dtype(plan)
    model_spec = with_vocab(plan.model, vocab)
    return Task(
        plan=plan,
        vocab=vocab,
        model_spec=model_spec,
        model=plan.module.make_model(model_spec, plan.objective_spec, vocab),
        optimizer=make_optimizer(plan.optim, plan.train.steps, _frozen(plan)),
    )


def _frozen(plan: Plan) -> tuple[str, ...]:
    find = getattr(plan.module, "frozen", None)
    return find(plan.objective_spec) if find else ()


def resolve_dtype(plan: Plan) -> Plan:
    """The plan with `model.dtype=auto` as what it means here, in its config as well.

    A run so records what it was computed in, and keeps that wherever it is resumed,
    evaluated or used. Not before the text is read: asking for the device takes it.
    """
    dtype = plan.model.compute_dtype
    section = plan.config.get("model", {}) | {"dtype": dtype}
    return dataclasses.replace(
        plan,
        model=dataclasses.replace(plan.model, dtype=dtype),
        config=plan.config | {"model": section},
    )


def with_vocab(spec: ModelSpec, vocab: Vocab) -> ModelSpec:
    """The model's spec once the vocabulary is known.

    Raises:
      UserError: the model has fewer ids than the vocabulary.
    """
    if 0 < spec.vocab_size < vocab.size:
        raise UserError(
            f"model.vocab_size={spec.vocab_size}: must be at least {vocab.size}, the "
            f"tokenizer's ids, or 0 for just as many"
        )
    return dataclasses.replace(spec, vocab_size=spec.vocab_size or vocab.size)
