"""Exports runs as folders that transformers loads: config, tensors, tokenizer, card."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import ml_dtypes
import numpy as np

from jaxpt.errors import CheckpointError, ConfigError, argument
from jaxpt.files import checksums
from jaxpt.files.folder import new_folder
from jaxpt.hub.card import TASKS, Card, format_card
from jaxpt.hub.chat_templates import export_templates
from jaxpt.hub.configs import write_configs
from jaxpt.hub.convert import move_places, to_hf
from jaxpt.hub.family import Family, find_family
from jaxpt.hub.files import DTYPES, write_file, write_json, write_tensors
from jaxpt.hub.origin import read_base_model, write_origin
from jaxpt.hub.source_folder import main_folder
from jaxpt.hub.specials import write_generation
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.parametrization import fold
from jaxpt.runs.random_parts import list_missing
from jaxpt.runs.result import load_result
from jaxpt.runs.task import Task
from jaxpt.runs.workdir import load_run
from jaxpt.text.text_spec import TextSpec
from jaxpt.text.tokens.exported import export_tokenizer
from jaxpt.text.tokens.symbols import is_byt5
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.text.tokens.vocab import MODES, SPECIALS, Vocab
from jaxpt.text_form import TextForm

DTYPE_NAMES = {str(dtype): dtype for dtype in DTYPES.values()}
# Powers of 1000, as in transformers.
UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """How an export is stored, and what its model card states.

    Attributes:
      dtype: of the tensors, a key of `DTYPE_NAMES`.
      max_shard_size: of a file of tensors, a number and a unit.
      license: as the Hub names it, such as "apache-2.0"; "" states none.
      language: ISO 639 codes of the text's languages.
    """

    dtype: str = "float32"
    max_shard_size: str = "5GB"
    license: str = ""
    language: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.dtype not in DTYPE_NAMES:
            allowed = ", ".join(DTYPE_NAMES)
            raise ConfigError(
                f"{argument('dtype')}={self.dtype}: must be one of {allowed}"
            )
        if self.max_shard_bytes < 1:
            raise ConfigError(
                f"{argument('max_shard_size')}={self.max_shard_size}: must be at least "
                "1 byte"
            )

    @property
    def max_shard_bytes(self) -> int:
        """`max_shard_size` in bytes.

        >>> ExportOptions(max_shard_size="1.5MB").max_shard_bytes
        1500000
        """
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]B)", self.max_shard_size.upper())
        if not match:
            raise ConfigError(
                f"{argument('max_shard_size')}={self.max_shard_size}: must be a number "
                f"and one of the units {', '.join(UNITS)}, such as 5GB"
            )
        return int(float(match[1]) * UNITS[match[2]])


DEFAULT_OPTIONS = ExportOptions()


def export_run(
    workdir: Path,
    folder: Path,
    family: str = "",
    options: ExportOptions = DEFAULT_OPTIONS,
) -> list[str]:
    """Writes a run's newest checkpoint as a folder that transformers loads.

    A run of several networks (ELECTRA) becomes a folder with a folder for each, without
    one that its import drew at random.

    Args:
      family: a model_type of transformers, such as "bert"; "" is the first that fits.

    Returns:
      Lines to print that name the folders.
    """
    with new_folder(folder) as place:
        return write_export(workdir, folder, place, family, options)


def write_export(
    workdir: Path,
    folder: Path,
    place: Path,
    family: str = "",
    options: ExportOptions = DEFAULT_OPTIONS,
    comparison: Sequence[str] = (),
) -> list[str]:
    """Writes the content of a folder to another place, as `export_run` does.

    Args:
      comparison: lines of the model card about the comparison that the run is from.
    """
    program, tokenizer, params, step = load_run(workdir)
    task = program.task
    parts = task.model.export_parts(params)
    for head in list_missing(task):
        del parts[head]
    if not parts:
        raise CheckpointError(
            f"{argument('workdir')}={workdir}: holds a {task.plan.objective_name} run, "
            "which no model of transformers can represent"
        )
    models, form = {}, task.text_form
    folded = {head: fold(spec, part, head) for head, (spec, part) in parts.items()}
    specs = {head: spec for head, (spec, _) in folded.items()}
    objective = task.plan.objective_name
    written = write_configs(specs, family, tokenizer.vocab, objective)
    for head, (kind, config) in written.items():
        kind.check_objective(objective)
        spec, part = folded[head]
        export_spec = kind.lay_out(spec, tokenizer.vocab.pad)
        tensors = to_hf(move_places(part, spec, export_spec), kind, export_spec, head)
        ids = name_ids(task.vocab, form, head, kind.ids)
        config = kind.name_ids(config, ids) | kind.form_fields(form)
        notes = write_notes(task, task.vocab, head, kind, config)
        notes += _list_random(task)
        generation = None
        if head in ("causal", "seq2seq"):
            generation = ids | write_generation(task.generation)
        models[head] = Model(config, tensors, export_spec, form, notes, generation)
    check_range(models, options.dtype)
    result, base = load_result(workdir), read_base_model(workdir)
    data = name_data(task.plan.text)
    lines = []
    for head, model in models.items():
        inner = head if len(models) > 1 else ""
        card = Card(
            title=f"{model.config['architectures'][0]} pretrained with jaxpt",
            name=folder.name,
            task=TASKS[head],
            data=data,
            facts=list_facts(task, result, head, step, list(models), model.notes, data),
            metrics=result["metrics"] if result else {},
            split="held-out text",
            base=base,
            tags=(task.plan.objective_name,),
            comparison=comparison,
        )
        facts = write_model(model, tokenizer, card, place / inner, options)
        export_templates(workdir, place / inner)
        lines += [f"{folder / inner}: {fact}" for fact in facts]
    if len(models) > 1:  # the Hub shows the card at the top
        write_file(place, "README.md", (main_folder(place) / "README.md").read_bytes())
    write_origin(place, task, params, parts, base)
    checksums.record_tree(place)
    return lines


@dataclasses.dataclass(frozen=True)
class Model:
    """The content of a folder of transformers, without its tokenizer and model card.

    Attributes:
      config: of config.json, without the dtype.
      tensors: by their names in transformers.
      spec: with its positions where the family's code reads them (`Family.lay_out`).
      form: how texts are written for it.
      notes: for the users of the model.
      generation: of generation_config.json; None for a model that does not generate.
    """

    config: dict
    tensors: dict[str, np.ndarray]
    spec: ModelSpec
    form: TextForm
    notes: Sequence[str] = ()
    generation: dict | None = None


def check_range(models: Mapping[str, Model], dtype: str) -> None:
    """Raises ConfigError if a parameter is too large for the dtype of the export."""
    if dtype == "float32":  # that of all parameters
        return
    limit = float(ml_dtypes.finfo(DTYPE_NAMES[dtype]).max)
    for model in models.values():
        for name, tensor in model.tensors.items():
            largest = np.max(np.abs(tensor), initial=np.float32(0))
            with np.errstate(over="ignore"):
                is_finite = np.isfinite(largest.astype(DTYPE_NAMES[dtype]))
            if not is_finite:
                raise ConfigError(
                    f"{argument('dtype')}={dtype}: {name} has a value of magnitude "
                    f"{largest:.6g}, and {dtype} holds at most {limit:.6g}; use "
                    "another dtype"
                )


def write_model(
    model: Model,
    tokenizer: Tokenizer,
    card: Card,
    to: Path,
    options: ExportOptions = DEFAULT_OPTIONS,
) -> list[str]:
    """Writes the folder of a model, which transformers loads.

    Returns:
      Facts to print: its class, size and notes.
    """
    try:
        to.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(f"{argument('to')}={to}: {error.strerror}") from error
    dtype = DTYPE_NAMES[options.dtype]
    # What the spec determines is not rounded: an import compares it.
    exact = find_family(model.config["model_type"]).computed(model.spec)
    tensors = {
        name: np.asarray(x).astype(np.float32 if name in exact else dtype, copy=False)
        for name, x in model.tensors.items()
    }
    write_tensors(to, tensors, options.max_shard_bytes)
    write_json(to, "config.json", model.config | {"dtype": options.dtype})
    if model.generation is not None:
        write_json(to, "generation_config.json", model.generation)
    write_tokenizer(tokenizer, to, model.spec, model.form)
    write_file(to, "README.md", _complete_card(card, options).encode())
    size = sum(int(np.size(tensor)) for tensor in model.tensors.values())
    return [f"{model.config['architectures'][0]}, {size:,} parameters", *model.notes]


def _complete_card(card: Card, options: ExportOptions) -> str:
    """The text of a card, with what the options state."""
    facts = list(card.facts)
    if options.dtype != "float32":
        facts.append(
            f"Weights: {options.dtype}, rounded after the metrics were measured"
        )
    card = dataclasses.replace(
        card, facts=facts, license=options.license, language=options.language
    )
    return format_card(card)


def name_ids(
    vocab: Vocab,
    form: TextForm,
    head: str,
    defaults: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, int | list | None]:
    """The special ids, by their names in configs of transformers.

    Ids that the model lacks are null where the defaults of the family's class would
    apply otherwise: if it generates, or if they are in `defaults` (`Family.ids`).
    """
    roles = ("pad", "cls", "sep", "mask")
    ids = {f"{role}_token_id": getattr(vocab, role) for role in roles}
    ids = {name: id_ for name, id_ in ids.items() if id_ is not None}
    ends = form.ends[0] if len(form.ends) == 1 else list(form.ends) or None
    around = {"bos_token_id": form.bos, "eos_token_id": ends}
    if head == "seq2seq":
        around["decoder_start_token_id"] = vocab.start
        around["forced_bos_token_id"] = form.first
    if head in ("causal", "seq2seq"):
        return ids | around | {"forced_eos_token_id": form.last}
    known = {name: id_ for name, id_ in around.items() if id_ is not None}
    return ids | dict.fromkeys(around.keys() & defaults.keys()) | known


def write_tokenizer(
    tokenizer: Tokenizer, folder: Path, spec: ModelSpec, form: TextForm
) -> None:
    """Writes the files of `AutoTokenizer`."""
    if is_byt5(tokenizer) and (form.before, form.after) == (
        (),
        (tokenizer.vocab.eos,),
    ):
        settings = {"tokenizer_class": "ByT5Tokenizer", "extra_ids": 125}
        write_json(folder, "tokenizer_config.json", settings)
        return
    has_types = spec.num_types > 1
    path = folder / "tokenizer.json"
    # config.json may name a start that is the end's id and has no role here.
    export_tokenizer(tokenizer, path, form, has_types, has_roles=True)
    vocab, names = tokenizer.vocab, tokenizer.vocab.special_names

    def write_token(id_: int) -> dict:
        # transformers would read a plain string as a token without flags.
        return {
            "__type": "AddedToken",
            "content": names[id_],
            "lstrip": id_ in tokenizer.strips_left,
            "rstrip": id_ in tokenizer.strips_right,
            "single_word": False,
            "normalized": False,
            "special": True,
        }

    roles = [role for role in SPECIALS if role not in MODES]
    tokens = {f"{role}_token": getattr(vocab, role) for role in roles}
    tokens = {name: write_token(id_) for name, id_ in tokens.items() if id_ is not None}
    modes = [getattr(vocab, role) for role in MODES]
    added = [write_token(id_) for id_ in (*vocab.sentinels, *modes) if id_ is not None]
    more = {"additional_special_tokens": added} if added else {}
    types = ["token_type_ids"] if has_types else []
    write_json(
        folder,
        "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": spec.max_len,
            "model_input_names": ["input_ids", *types, "attention_mask"],
            "clean_up_tokenization_spaces": False,
            **tokens,
            **more,
        },
    )


def write_notes(
    task: Task, vocab: Vocab, head: str, kind: Family, config: dict
) -> list[str]:
    """Notes for users of an export: code it needs, masks and starts that differ."""
    notes, form, name = [], task.text_form, config["architectures"][0]
    if code := config.get("auto_map"):
        repository, _ = next(iter(code.values())).split(2 * "-")  # and its module
        notes.append(
            f"transformers has no class {name}: trust_remote_code=True lets it run the "
            f"code of {repository} (auto_map in config.json)."
        )
    if head in kind.purpose_fields:
        fields = ", ".join(f"{k}={v}" for k, v in kind.purpose_fields[head].items())
        notes.append(
            f"A {head} language model in a class for causal ones: with {fields} in "
            f"config.json, {name} reads a text in both directions and scores each "
            "token at its own position, in transformers 5.2 and newer; older versions "
            "ignore the field. Load it with AutoModelForCausalLM; generate() does not "
            "apply to it."
        )
    if head == "causal" and form.mask_note and not kind.own_mask:
        notes.append(
            f"{form.mask_note} {name} reads every text causally{kind.mask_advice}."
        )
    starts = {config.get("decoder_start_token_id")}
    if head == "causal":
        starts |= set(form.before)
    if kind.freezes_pad and vocab.pad in starts - {None}:
        notes.append(
            f"Every generated text begins with [PAD] (id {vocab.pad}), whose embedding "
            "gets no gradient in PyTorch (padding_idx). Before training it further, "
            "unfreeze it: for module in model.modules(): if isinstance(module,"
            " torch.nn.Embedding): module.padding_idx = None"
        )
    return notes


def _list_random(task: Task) -> list[str]:
    """A note on the exported parts that an import drew at random, if there are any."""
    parts = [part for part in task.random_parts if part not in list_missing(task)]
    names = ", ".join(parts)
    return [f"drawn at random and not trained: {names}"] if parts else []


def name_data(text: TextSpec) -> str:
    """The names of the files that a run was trained on."""
    paths = text.mixture or (text.path,)
    return ", ".join(Path(str(path)).name for path in paths)


def list_facts(
    task: Task,
    result: dict | None,
    head: str,
    step: int,
    heads: Sequence[str],
    notes: Sequence[str],
    data: str,
) -> list[str]:
    """Lines of a card on how the model was trained, and how it is loaded.

    Args:
      heads: the folders of its networks, if there are several.
    """
    plan, spec = task.plan, task.plan.train
    schedules = {
        "train.batch_schedule": spec.batch_schedule,
        "train.length_schedule": spec.length_schedule,
    }
    facts = [
        f"Data: {data}",
        f"Objective: {plan.objective_name} ({head})",
        f"Rows: {task.spec.row_length} tokens each, `data.rows={plan.rows.rows}`",
        f"Budget: {step:,} steps of {spec.batch_size} rows, seed {spec.seed}",
        *(f"Schedule: {name}={pairs}" for name, pairs in schedules.items() if pairs),
        f"Optimizer: {_list(plan.optim.settings())}",
    ]
    if result:
        facts.append(
            f"Cost: {result['flops']:.4g} FLOPs, {result['raw_tokens']:,} raw tokens"
        )
    if len(heads) > 1:
        folders = " and ".join(f'subfolder="{each}"' for each in heads)
        facts.append(f"Load with from_pretrained(..., {folders})")
    return [*facts, *(f"Note: {note}" for note in notes)]


def _list(values: dict) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())
