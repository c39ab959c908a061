"""From a config to frozen specs, checked before any text is read.

    config -> COMPLETE -> FILL -> specs -> CHECKS -> Plan

Stages change the config in order, each by what those before it have set. Errors name
the setting that does not fit.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Collection, Iterator
from typing import Any

from jaxpt.by_name import load_place
from jaxpt.config.needs import (
    Filler,
    fill_answers,
    fill_decoder,
    fill_model,
    fill_rows,
    fill_store,
    fill_tokenizer,
    fill_warmup,
    share_text,
)
from jaxpt.config.sections import CompareSpec, EvalSpec, LengthSpec, TrainSpec
from jaxpt.config.settings import (
    AnyConfig,
    default_section,
    list_parts,
    override,
    pick_fields,
    read_sections,
    to_dict,
)
from jaxpt.errors import ConfigError, UserError
from jaxpt.files.folder import load_config
from jaxpt.files.remote import fetch
from jaxpt.learn.optim_spec import OptimSpec
from jaxpt.nn.model_spec import LIMITED, ModelSpec
from jaxpt.objectives import OBJECTIVES, find, find_section
from jaxpt.objectives.objective import Objective, ObjectiveSpec
from jaxpt.text.phases import Phase
from jaxpt.text.rows.rows_spec import CARRIERS, PACKED, PAIRS, RowsSpec
from jaxpt.text.text_spec import TextSpec
from jaxpt.text.tokens.tokenizer import TokenizerSpec


@dataclasses.dataclass(frozen=True)
class Plan:
    """A config as checked specs: everything about a run except the text itself.

    All is derived from `config`; `change` makes another plan from it.

    Attributes:
      config: plain values, with the settings that were filled in.
      filled: these settings, as one line; "" for none.
    """

    objective_name: str
    text: TextSpec
    rows: RowsSpec
    model: ModelSpec
    spec: ObjectiveSpec
    optim: OptimSpec
    train: TrainSpec
    eval: EvalSpec
    config: dict[str, Any]
    filled: str = ""

    @property
    def objective(self) -> Objective:
        """The objective's module."""
        return OBJECTIVES[self.objective_name]

    @property
    def lacks_teacher(self) -> bool:
        """Whether the objective learns from another run, and none is named."""
        teacher = self.spec.needs.teacher
        return teacher is not None and not teacher.run

    @property
    def heads(self) -> tuple[str, ...]:
        """The kinds of model that the network is, as named by `jaxpt.hub.families`."""
        kind = self.spec.kind(self.model.num_decoder_layers)
        return kind.HEADS if kind else ()

    def add_filled(self, filled: str) -> "Plan":
        """The plan with more settings in `filled`."""
        whole = ", ".join(part for part in (self.filled, filled) if part)
        return dataclasses.replace(self, filled=whole)

    def change(
        self, changes: dict[str, Any], place: str = "compare.overrides"
    ) -> "Plan":
        """The plan of the same config with these settings: {section: {field: value}}.

        Args:
          place: where they come from, for errors.
        """
        changed = make_plan(override(self.config, changes, place), is_stored=True)
        return dataclasses.replace(changed, filled=self.filled)

    def in_phase(self, phase: Phase) -> "Plan":
        """The plan of a run that has the batches of one phase from first to last.

        Its `config` is that of the whole run. Learning rates that are set for a number
        of tokens (`optim.lr_tokens`) are those of the phase's batch.
        """
        whole = self.train.batch_size
        num_microbatches = self.train.num_microbatches * phase.num_rows / whole
        train = dataclasses.replace(
            self.train,
            batch_size=phase.batch_size,
            num_microbatches=math.ceil(num_microbatches),
            batch_schedule=(),
            length_schedule=(),
        )
        length, optim = self.spec.row_length // phase.pieces, self.optim
        sizes = {"row_length": length, "batch_size": phase.batch_size}
        if self.config.get("optim", {}).get("lr_tokens"):
            by_rows = dataclasses.replace(optim, lr_tokens=whole)
            optim = by_rows.scale_rates(self.model.d_model, phase.num_rows)
        return dataclasses.replace(
            self,
            rows=dataclasses.replace(self.rows, row_length=length),
            spec=replace_filled(self.spec, sizes),
            optim=optim,
            train=train,
        )


def make_plan(
    config: AnyConfig,
    explicit_names: Collection[str] = (),
    is_stored: bool = False,
    is_run: bool = False,
) -> Plan:
    """Makes the checked specs of a config; fills in what its objective needs.

    Args:
      explicit_names: full names of the settings that flags set, which are never
        changed. Those of a config file are changed if the objective cannot use them.
      is_stored: the config is the stored one of a run: nothing is filled in.
      is_run: the run trains for train.steps, and the warm-up is shortened to fit. In a
        comparison, the budget determines the steps.
    """
    config = to_dict(config)
    read_sections(config)
    name = config.get("objective", "")
    find(name)
    filler = Filler(config, explicit_names)
    fill = () if is_stored else FILL
    for stage in (*COMPLETE, *fill):
        stage(filler, name)
    if is_run and not is_stored:
        fill_warmup(filler)
    plan = _derive(name, config, filler.describe())
    for check in CHECKS:
        check(plan)
    return plan


def _add_section(filler: Filler, name: str) -> None:
    """The sections of the objective and its parts, with the settings they lack."""
    for each in _list_sections(filler.config, name):
        section = find_section(each)
        defaults = to_dict(default_section(OBJECTIVES[each].Spec))
        filler.config[section] = defaults | filler.config.get(section, {})


def _list_sections(config: dict, name: str) -> Iterator[str]:
    """The objective, and its parts, which may be known when its section is whole."""
    yield name
    yield from list_parts(config, name)


def _read_models(filler: Filler, name: str) -> None:
    """The `model` sections of runs that settings of the objective name."""
    settings = filler.config.get(find_section(name), {})
    for field in dataclasses.fields(OBJECTIVES[name].Spec):
        path = settings.get(field.metadata.get("model_of", ""))
        if path and not settings.get(field.name):
            settings[field.name] = _read_model(name, field.metadata["model_of"], path)


def _refuse_unread_length(filler: Filler, name: str) -> None:
    """A flag for the length that a config file's `data.row_length` would hide."""
    row_length, seq_len = filler.get("data.row_length", 0), "data.seq_len"
    is_hidden = row_length and "data.row_length" not in filler.explicit_names
    if is_hidden and seq_len in filler.explicit_names:
        raise ConfigError(
            f"{seq_len}={filler.get(seq_len, 0)}: has no effect with the config's "
            f"data.row_length={row_length}; set that, or set it to 0"
        )


def _take_stored_tokenizer(filler: Filler, name: str) -> None:
    """The tokenizer of a prepared text, in which later stages look for tokens."""
    fill_store(filler)


def _choose_stacks(filler: Filler, name: str) -> None:
    """A decoder or none, by the objective's type: its spec differs with a decoder."""
    parts = [OBJECTIVES[each].Spec for each in list_parts(filler.config, name)]
    fill_decoder(filler, OBJECTIVES[name].Spec, parts)


def _choose_rows(filler: Filler, name: str) -> None:
    """Rows that the objective with this decoder reads: its spec differs with them."""
    spec = _make_spec(name, filler.config)
    fill_rows(filler, spec.needs, spec.READS)
    fill_answers(filler, spec.READS)


def _add_tokens(filler: Filler, name: str) -> None:
    """Special tokens and sentinels, which the rows decide, too."""
    fill_tokenizer(filler, _make_spec(name, filler.config).needs)


def _enlarge_model(filler: Filler, name: str) -> None:
    """Segment types and positions of the longest input."""
    spec = _make_spec(name, filler.config)
    fill_model(filler, spec.needs, spec.lengths)


Stage = Callable[[Filler, str], None]
# What a stored config may lack, too.
COMPLETE: tuple[Stage, ...] = (_add_section, _read_models)
# What a config lacks that its objective needs. A second pass changes nothing.
FILL: tuple[Stage, ...] = (
    _refuse_unread_length,
    _take_stored_tokenizer,
    _choose_stacks,
    _choose_rows,
    _add_tokens,
    _enlarge_model,
)


def _make_spec(name: str, config: dict) -> ObjectiveSpec:
    parts = read_sections(config)
    settings, spec_type = dict(parts[find_section(name)]), OBJECTIVES[name].Spec
    length = LengthSpec(**pick_fields(LengthSpec, parts["data"]))
    form = parts["data"].get("rows", RowsSpec.rows)
    most = parts["data"].get("max_documents", RowsSpec.max_documents)
    # What other sections determine (`jaxpt.objectives.spec.filled_by`).
    sources = {
        "max_documents": most * (form in PACKED),
        "has_decoder": parts["model"].get("num_decoder_layers", 0) > 0,
        "batch_size": parts["train"].get("batch_size", TrainSpec.batch_size),
        "sections": {each: parts[each] for each in list_parts(config, name)},
    }
    for field in dataclasses.fields(spec_type):
        if (source := field.metadata.get("source")) in sources:
            settings[field.name] = sources[source]
    if length.row_length:
        return spec_type(row_length=length.row_length, **settings)
    return spec_type.for_seq_len(length.seq_len, **settings)


def replace_filled(spec: ObjectiveSpec, values: dict[str, Any]) -> ObjectiveSpec:
    """A spec with other values of what the config determines, by their sources."""
    fields = dataclasses.fields(spec)
    sources = {field.name: field.metadata.get("source") for field in fields}
    changes = {n: values[source] for n, source in sources.items() if source in values}
    return dataclasses.replace(spec, **changes)


def _derive(name: str, config: dict, filled: str) -> Plan:
    parts, spec = read_sections(config), _make_spec(name, config)
    optim, model = OptimSpec(**parts["optim"]), ModelSpec(**parts["model"])
    if model.parametrization != "standard":
        load_place("jaxpt.learn.scales:check_optim")(optim, model.parametrization)
    if kind := spec.kind(model.num_decoder_layers):
        model = model.direct(kind.READS_AHEAD)
    # The stored config has the optimizer's defaults in place of -1.
    if "optim" in config:
        config["optim"] = {name: getattr(optim, name) for name in config["optim"]}
    tokenizer, train = TokenizerSpec(**parts["tokenizer"]), TrainSpec(**parts["train"])
    return Plan(
        objective_name=name,
        text=TextSpec(tokenizer=tokenizer, **pick_fields(TextSpec, parts["data"])),
        rows=RowsSpec(
            spec.row_length, seed=train.seed, **pick_fields(RowsSpec, parts["data"])
        ),
        model=model,
        spec=spec,
        optim=optim.scale_rates(model.d_model, train.batch_size * spec.row_length),
        train=train,
        eval=EvalSpec(**parts["eval"]),
        config=config,
        filled=filled,
    )


def _read_model(objective: str, setting: str, path: str) -> dict:
    """The `model` section of the run that a setting of the objective names."""
    name = f"{find_section(objective)}.{setting}={path}"
    stored = load_config(fetch(path) / "config.json", f"{name} must be a run's folder")
    plan = make_plan(stored, is_stored=True)
    needed_heads = OBJECTIVES[objective].Spec.heads()
    if not needed_heads & {*plan.heads}:
        description = f"{plan.objective_name} run"
        if plan.model.num_decoder_layers:
            description += f" with an encoder and a decoder ({', '.join(plan.heads)})"
        raise ConfigError(
            f"{name}: holds a {description}; must hold one with a "
            f"{' or '.join(sorted(needed_heads))} model"
        )
    return to_dict(dataclasses.asdict(plan.model))


def make_compare_spec(config: AnyConfig) -> CompareSpec:
    """The config's `compare` section, checked."""
    return CompareSpec(**read_sections(to_dict(config))["compare"])


def _check_lengths(plan: Plan) -> None:
    if plan.model.positions not in LIMITED:
        return
    for stack, length in plan.spec.lengths.items():
        if length > plan.model.max_len:
            raise ConfigError(
                f"model.max_len={plan.model.max_len}: must be at least {length}, the "
                f"positions of {plan.objective_name}'s {stack}"
            )


def _check_rows(plan: Plan) -> None:
    """Refuses rows with fields that the objective does not read or without needed ones.

    Checked before any text is read, so that a comparison does not fail at its last
    objective.
    """
    rows, needs = plan.rows, plan.spec.needs
    if unread := sorted(set(rows.keys) - plan.spec.READS):
        has_setting = unread in (["sentence_ids"], ["answers"])
        name = CARRIERS[unread[0]] if has_setting else f"data.rows={rows.rows}"
        raise ConfigError(
            f"{name}: {plan.objective_name} does not read {', '.join(unread)}"
        )
    if needs.rows and rows.rows not in needs.rows:
        raise ConfigError(
            f"data.rows={rows.rows}: must be {' or '.join(needs.rows)} with "
            f"{needs.asked_by}"
        )
    if needs.sentence_ids and "sentence_ids" not in rows.keys:
        raise ConfigError(
            f"data.sentence_ids=False: must be True with {needs.asked_by}"
        )


def _check_phases(plan: Plan) -> None:
    """Refuses batches that the schedules of batch size and row length cannot have."""
    length, schedule = plan.spec.row_length, plan.train.length_schedule
    name = f"train.length_schedule={schedule}"
    for phase in plan.train.phases:
        has_ends = plan.rows.rows in PAIRS or plan.rows.add_special_tokens
        if phase.pieces > 1 and has_ends:
            raise ConfigError(
                f"{name}: must be () with data.rows={plan.rows.rows} and "
                f"data.add_special_tokens={plan.rows.add_special_tokens}, whose rows "
                f"cannot be cut"
            )
        if length % phase.pieces:
            raise ConfigError(
                f"{name}: {phase.pieces} must divide the {length} tokens of a row of "
                f"{plan.objective_name}; set data.row_length to a multiple"
            )
        try:
            plan.in_phase(phase)
        except ConfigError as error:
            raise ConfigError(
                f"{error} (with train.batch_schedule={plan.train.batch_schedule} and "
                f"{name})"
            ) from error


def _check_stages(plan: Plan) -> None:
    """Refuses milestones by words with mixtures that change the words of a row."""
    if plan.text.mixture_stages and plan.train.checkpoint_words:
        raise ConfigError(
            f"train.checkpoint_words={plan.train.checkpoint_words}: must be () with "
            "data.mixture_stages"
        )


CHECKS: tuple[Callable[[Plan], None], ...] = (
    _check_stages,
    _check_lengths,
    _check_rows,
    _check_phases,
)


def make_plans(
    config: dict, names: Collection[str], explicit_names: Collection[str] = ()
) -> dict[str, Plan]:
    """The plans of several objectives on the same text, with the same tokenizer.

    What one of them needs of text or tokenizer is filled in for all; what one needs of
    rows and model, for it alone.
    """
    shared = Filler(json.loads(json.dumps(config)), explicit_names)
    for _ in range(2):  # the second time with the additions of all
        plans = {}
        for name in names:
            try:
                plans[name] = plan_as(shared.config, name, explicit_names)
            except UserError as error:
                raise type(error)(f"{error} (for {name})") from error
            share_text(shared, plans[name].text)
    filled = shared.describe()
    return {name: plan.add_filled(filled) for name, plan in plans.items()}


def plan_as(config: dict, name: str, explicit_names: Collection[str] = ()) -> Plan:
    """The plan of an objective, or of a name in `compare.overrides`.

    Its overrides count as set by the user.
    """
    overrides = config.get("compare", {}).get("overrides", {}).get(name, {})
    config = override(config, {"objective": name} | overrides)
    return make_plan(config, {*explicit_names, *named_by(overrides)})


def named_by(overrides: dict) -> set[str]:
    """The full names of the settings in an entry of `compare.overrides`.

    >>> named_by({"objective": "mlm", "mlm": {"masking": "words"}})
    {'mlm.masking'}
    """
    named = {k: v for k, v in overrides.items() if isinstance(v, dict)}
    return {f"{section}.{field}" for section in named for field in named[section]}
