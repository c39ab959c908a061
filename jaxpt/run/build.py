"""From a ConfigDict to frozen specs, and from specs to a model that can be trained.

Every section of the config is a dataclass somewhere below; here they are put together,
and whatever does not fit is refused with its name.
"""

import dataclasses
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_collections
import optax
from flax import linen as nn

from jaxpt.errors import UserError
from jaxpt.learn.optimizer import make_optimizer
from jaxpt.learn.spec import OptimSpec
from jaxpt.nn.spec import ModelSpec
from jaxpt.objectives import OBJECTIVES
from jaxpt.run.folder import load_config
from jaxpt.run.spec import CompareSpec, EvalSpec, RowSpec, TrainSpec
from jaxpt.text.rows.forms import CARRIERS, PACKED, RowsSpec
from jaxpt.text.spec import TextSpec
from jaxpt.text.tokens.tokenizer import TokenizerSpec
from jaxpt.text.tokens.vocab import Vocab

# Sections of the config, each a dataclass; fields set elsewhere are left out.
SECTIONS = {
    "data": (TextSpec, RowSpec),
    "tokenizer": (TokenizerSpec,),
    "model": (ModelSpec,),
    "optim": (OptimSpec,),
    "train": (TrainSpec,),
    "eval": (EvalSpec,),
    "compare": (CompareSpec,),
} | {name: (module.Spec,) for name, module in OBJECTIVES.items()}
# Fields of an objective's Spec that other sections say.
MADE = {"row_length", "max_documents", "is_seq2seq"}
# Fields that `make_plan` writes itself, of what others name.
WRITTEN = {"teacher_model"}
HIDDEN = {
    TextSpec: {"tokenizer"},
} | {module.Spec: MADE for module in OBJECTIVES.values()}


def default_config() -> ml_collections.ConfigDict:
    """Every setting there is, at its default; config files change what they need."""
    config = ml_collections.ConfigDict({"objective": "clm"})
    for name, specs in SECTIONS.items():
        section = {}
        for spec in specs:
            for field in _fields(spec):
                is_made = field.default is dataclasses.MISSING
                section[field.name] = (
                    field.default_factory() if is_made else field.default
                )
        config[name] = section
    return config


def _fields(spec) -> list[dataclasses.Field]:
    hidden = HIDDEN.get(spec, set())
    return [f for f in dataclasses.fields(spec) if f.name not in hidden]


@dataclasses.dataclass(frozen=True)
class Plan:
    """A whole config, checked: everything about a run but the text itself."""

    objective: str
    text: TextSpec
    rows: RowSpec
    model: ModelSpec
    objective_spec: Any
    optim: OptimSpec
    train: TrainSpec
    eval: EvalSpec
    config: dict

    @property
    def module(self) -> ModuleType:
        """The objective's module."""
        return OBJECTIVES[self.objective]

    @property
    def heads(self) -> tuple[str, ...]:
        """What the networks are for: of the objective's HEADS, those of its stacks."""
        is_pair = self.model.num_decoder_layers > 0
        heads = self.module.HEADS
        return tuple(head for head in heads if (head == "seq2seq") == is_pair)

    def rows_spec(self, seed: int) -> RowsSpec:
        """The rows this plan reads; a seed draws what a form draws (pairs)."""
        rows = self.rows
        return RowsSpec(
            row_length=self.objective_spec.row_length,
            form=rows.rows,
            long_documents=rows.long_documents,
            max_documents=rows.max_documents,
            isolate=rows.isolate_documents,
            sentence_ids=rows.sentence_ids,
            dupe_factor=rows.dupe_factor,
            short_seq_prob=rows.short_seq_prob,
            seed=seed,
        )


def make_plan(config) -> Plan:
    """The config as specs.

    Raises:
      UserError: an unknown section or field, or a value that no spec allows.
    """
    config = to_dict(config)
    parts = _read_sections(config)
    objective = config.get("objective", "")
    if objective not in OBJECTIVES:
        raise UserError(
            f"objective={objective}: must be one of {', '.join(OBJECTIVES)}"
        )
    module, settings = OBJECTIVES[objective], parts[objective]
    if settings.get("teacher") and not settings.get("teacher_model"):
        settings["teacher_model"] = _read_teacher(objective, settings["teacher"])
        config[objective] |= {"teacher_model": settings["teacher_model"]}
    rows = RowSpec(**_pick(RowSpec, parts["data"]))
    reads_ahead = getattr(module, "READS_AHEAD", True)
    model = ModelSpec(**parts["model"]).direct(reads_ahead)
    fields = {f.name for f in dataclasses.fields(module.Spec)}
    if "max_documents" in fields:
        settings["max_documents"] = rows.max_documents * (rows.rows in PACKED)
    if "is_seq2seq" in fields:
        settings["is_seq2seq"] = model.num_decoder_layers > 0
    if rows.row_length:
        spec = module.Spec(row_length=rows.row_length, **settings)
    else:
        spec = module.make_spec(rows.seq_len, **settings)
    tokenizer = TokenizerSpec(**parts["tokenizer"])
    optim = OptimSpec(**parts["optim"])
    # What is stored says what an optimizer's own settings were (-1 is no value).
    if "optim" in config:
        config["optim"] = {name: getattr(optim, name) for name in config["optim"]}
    plan = Plan(
        objective=objective,
        text=TextSpec(tokenizer=tokenizer, **_pick(TextSpec, parts["data"])),
        rows=rows,
        model=model,
        objective_spec=spec,
        optim=optim,
        train=TrainSpec(**parts["train"]),
        eval=EvalSpec(**parts["eval"]),
        config=config,
    )
    _check_lengths(plan)
    _check_rows(plan)
    return plan


def _read_teacher(objective: str, path: str) -> dict:
    """The `model` section of the run that teaches.

    Raises:
      UserError: the folder holds no run, or one of another kind.
    """
    name, wanted = f"{objective}.teacher={path}", OBJECTIVES[objective].TEACHER
    stored = load_config(Path(path) / "config.json", f"{name} must be a run's folder")
    plan = make_plan(stored)
    if wanted not in plan.heads:
        held = f"{plan.objective} run"
        if plan.model.num_decoder_layers:
            held += f" of two stacks ({', '.join(plan.heads)})"
        raise UserError(f"{name}: holds a {held}; must hold one with a {wanted} model")
    return to_dict(dataclasses.asdict(plan.model))


def make_compare_spec(config) -> CompareSpec:
    """The config's `compare` section, checked."""
    return CompareSpec(**_read_sections(to_dict(config))["compare"])


def _read_sections(config: dict) -> dict[str, dict]:
    parts = {}
    for name in config:
        if name not in SECTIONS and name != "objective":
            known = ", ".join(["objective", *SECTIONS])
            raise UserError(f"{name}: unknown section; there are {known}")
    for name, specs in SECTIONS.items():
        known = {field.name for spec in specs for field in _fields(spec)}
        given = config.get(name, {})
        for key in given:
            if key not in known:
                raise UserError(
                    f"{name}.{key}: unknown setting; {name} has "
                    f"{', '.join(sorted(known)) or 'none'}"
                )
        parts[name] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in given.items()
        }
    return parts


def _pick(spec, section: dict) -> dict:
    return {f.name: section[f.name] for f in _fields(spec) if f.name in section}


def _check_lengths(plan: Plan) -> None:
    lengths = plan.module.model_lengths(plan.objective_spec)
    if plan.model.positions not in ("learned", "sinusoidal"):
        return
    for stack, length in lengths.items():
        if length > plan.model.max_len:
            raise UserError(
                f"model.max_len={plan.model.max_len}: must be at least {length}, the "
                f"positions of {plan.objective}'s {stack}"
            )


def _check_rows(plan: Plan) -> None:
    """Refuses rows that carry what the objective does not read, or lack what it needs.

    Before any text is read: a comparison must not find out at its last objective.
    """
    spec, module = plan.rows_spec(plan.train.seed), plan.module
    if unread := sorted(set(spec.keys) - module.READS):
        raise UserError(
            f"data.rows={spec.form}: {plan.objective} does not read {', '.join(unread)}"
        )
    needs = getattr(module, "needs", lambda spec: {})
    for key, setting in needs(plan.objective_spec).items():
        if key not in spec.keys:
            raise UserError(
                f"{setting}: needs rows with {key}, so {CARRIERS[key]} must be set; "
                f"those of data.rows={spec.form} have {', '.join(spec.keys)}"
            )


def to_dict(config) -> dict:
    """A config as plain JSON values, tuples as lists."""
    if isinstance(config, ml_collections.ConfigDict):
        config = config.to_dict()
    return json.loads(json.dumps(config))


def override(config: dict, changes: dict, place: str = "compare.overrides") -> dict:
    """A copy of a plain config with `changes` put in.

    Args:
      changes: {"objective": name, "section": {"field": value}}.
      place: where they come from, as errors name it.

    Raises:
      UserError: a name that is no setting, or a value of another type.
    """
    config = json.loads(json.dumps(config))
    for section, fields in changes.items():
        if section == "objective":
            config[section] = fields
            continue
        if not isinstance(fields, dict):
            raise UserError(
                f"{place}: {section}={fields!r}: must be a section's settings"
            )
        for field, value in fields.items():
            name = f"{place}: {section}.{field}"
            if field not in config.get(section, {}):
                raise UserError(f"{name}: unknown setting")
            old = config[section][field]
            is_number = isinstance(old, float) and type(value) is int
            if type(old) is not type(value) and not is_number:
                raise UserError(f"{name}={value!r}: must be a {type(old).__name__}")
            config[section][field] = value
    return config


def plan_as(config: dict, name: str) -> Plan:
    """The plan of an objective, or of what `compare.overrides` has under the name.

    Raises:
      UserError: a config that does not serve it.
    """
    overrides = config.get("compare", {}).get("overrides", {})
    return make_plan(override(config, {"objective": name} | overrides.get(name, {})))


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
    plan = settle(plan)
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


def settle(plan: Plan) -> Plan:
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
