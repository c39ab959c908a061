"""From a config to frozen specs, checked before any text is read.

Whatever does not fit is refused with its name.
"""

import dataclasses
from pathlib import Path
from types import ModuleType
from typing import Any

from jaxpt.config.sections import CompareSpec, EvalSpec, RowSpec, TrainSpec
from jaxpt.config.settings import (
    override,
    pick_fields,
    read_sections,
    to_dict,
)
from jaxpt.errors import UserError
from jaxpt.folder import load_config
from jaxpt.learn.optim_spec import OptimSpec
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.objectives import OBJECTIVES
from jaxpt.text.rows.forms import CARRIERS, PACKED, RowsSpec
from jaxpt.text.text_spec import TextSpec
from jaxpt.text.tokens.tokenizer import TokenizerSpec


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
    parts = read_sections(config)
    objective = config.get("objective", "")
    if objective not in OBJECTIVES:
        raise UserError(
            f"objective={objective}: must be one of {', '.join(OBJECTIVES)}"
        )
    module, settings = OBJECTIVES[objective], parts[objective]
    if settings.get("teacher") and not settings.get("teacher_model"):
        settings["teacher_model"] = _read_teacher(objective, settings["teacher"])
        config[objective] |= {"teacher_model": settings["teacher_model"]}
    rows = RowSpec(**pick_fields(RowSpec, parts["data"]))
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
        text=TextSpec(tokenizer=tokenizer, **pick_fields(TextSpec, parts["data"])),
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
    return CompareSpec(**read_sections(to_dict(config))["compare"])


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


def plan_as(config: dict, name: str) -> Plan:
    """The plan of an objective, or of what `compare.overrides` has under the name.

    Raises:
      UserError: a config that does not serve it.
    """
    overrides = config.get("compare", {}).get("overrides", {})
    return make_plan(override(config, {"objective": name} | overrides.get(name, {})))
