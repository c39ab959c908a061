"""Exports runs as folders that transformers loads: config, tensors, tokenizer, card."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxpt.errors import CheckpointError
from jaxpt.files.folder import is_new
from jaxpt.hub.convert import move_places, to_hf
from jaxpt.hub.families import Family, write_config
from jaxpt.hub.files import write_file, write_json, write_tensors
from jaxpt.hub.origin import write_origin
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.text.tokens.framing import Framing, Pair
from jaxpt.text.tokens.subword import SubwordTokenizer
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.text.tokens.vocab import MODES, SPECIALS, Vocab
from jaxpt.training.result import load_result
from jaxpt.training.run_framing import NAME, find_framing
from jaxpt.training.task import Task
from jaxpt.training.workdir import load_run


def export_run(workdir: Path, folder: Path, family: str = "") -> list[str]:
    """Writes a run's newest checkpoint as a folder that transformers loads.

    A run of several networks (ELECTRA) becomes a folder with a folder for each.

    Args:
      family: a model_type of transformers, such as "bert"; "" is the first that fits.

    Returns:
      Lines to print that name the folders.

    Raises:
      UserError: there is no run, no family fits the model and its tokenizer, a
        parameter is not finite, or the folder is not empty or cannot be written.
    """
    if not is_new(folder):
        raise CheckpointError(f"--to={folder}: must be a new or an empty folder")
    program, tokenizer, params, step = load_run(workdir)
    task = program.task
    parts = task.model.export_parts(params)
    if not parts:
        raise CheckpointError(
            f"--workdir={workdir}: holds a {task.plan.objective_name} run, which no "
            f"model of transformers can represent"
        )
    models, framing = {}, find_framing(task)
    for head, (spec, part) in parts.items():
        kind, config = write_config(spec, head, family, tokenizer.vocab)
        export_spec = kind.lay_out(spec, tokenizer.vocab.pad)
        tensors = to_hf(move_places(part, spec, export_spec), kind, export_spec, head)
        ids = name_ids(task.vocab, framing, head)
        notes = write_notes(task, task.vocab, head, kind, config | ids)
        generation = ids if head in ("causal", "seq2seq") else None
        models[head] = Model(
            config | ids, tensors, export_spec, framing, notes, generation
        )
    result = load_result(workdir)
    lines = []
    for head, model in models.items():
        place = folder / head if len(models) > 1 else folder
        card = write_card(task, result, head, model.config, step, model.notes)
        lines += write_model(model, tokenizer, card, place)
    write_origin(folder, task, params, parts)
    return lines


@dataclasses.dataclass(frozen=True)
class Model:
    """The content of a folder of transformers, without its tokenizer and model card.

    Attributes:
      config: of config.json, without the dtype, which is float32.
      tensors: by their names in transformers.
      spec: with its positions where the family's code reads them (`Family.lay_out`).
      framing: the special ids around a text.
      notes: for the users of the model.
      generation: of generation_config.json; None for a model that does not generate.
      pair: the special ids around two texts, if not those of `write_template`.
    """

    config: dict
    tensors: dict[str, np.ndarray]
    spec: ModelSpec
    framing: Framing
    notes: Sequence[str] = ()
    generation: dict | None = None
    pair: Pair | None = None


def write_model(model: Model, tokenizer: Tokenizer, card: str, to: Path) -> list[str]:
    """Writes the folder of a model, which transformers loads.

    Returns:
      Lines to print: its class, size and notes, and whether it lacks a tokenizer.

    Raises:
      UserError: the folder cannot be written.
    """
    try:
        to.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(f"--to={to}: {error.strerror}") from error
    write_tensors(to, model.tensors)
    write_json(to, "config.json", model.config | {"dtype": "float32"})
    if model.generation is not None:
        write_json(to, "generation_config.json", model.generation)
    has_tokenizer = write_tokenizer(
        tokenizer, to, model.spec, model.framing, model.pair
    )
    write_file(to, "README.md", card.encode())
    size = sum(int(np.size(tensor)) for tensor in model.tensors.values())
    lines = [f"{to}: {model.config['architectures'][0]}, {size:,} parameters"]
    lines += [f"{to}: {note}" for note in model.notes]
    if not has_tokenizer:
        lines.append(
            f"{to}: no tokenizer: transformers has none of kind {tokenizer.kind}"
        )
    return lines


def name_ids(vocab: Vocab, framing: Framing, head: str) -> dict[str, int | list | None]:
    """The special ids, by their names in configs of transformers.

    For a model that generates, ids that it lacks are null; otherwise the defaults of
    the family's class would apply.
    """
    roles = ("pad", "cls", "sep", "mask")
    ids = {f"{role}_token_id": getattr(vocab, role) for role in roles}
    ids = {name: id_ for name, id_ in ids.items() if id_ is not None}
    ends = framing.ends[0] if len(framing.ends) == 1 else list(framing.ends) or None
    around = {"bos_token_id": framing.bos, "eos_token_id": ends}
    if head == "seq2seq":
        around["decoder_start_token_id"] = vocab.start
        around["forced_bos_token_id"] = framing.first
    if head in ("causal", "seq2seq"):
        return ids | around | {"forced_eos_token_id": framing.last}
    return ids | {name: id_ for name, id_ in around.items() if id_ is not None}


def write_tokenizer(
    tokenizer: Tokenizer,
    folder: Path,
    spec: ModelSpec,
    framing: Framing,
    pair: Pair | None = None,
) -> bool:
    """Writes the files of `AutoTokenizer`; False if transformers has no such kind."""
    if not isinstance(tokenizer, SubwordTokenizer):
        tokenizers.save(tokenizer, folder / "jaxpt_tokenizer.json")
        write_json(folder, NAME, framing.to_json())
        return False
    has_types = spec.num_types > 1
    path = folder / "tokenizer.json"
    tokenizers.export(tokenizer, path, framing, has_types, pair)
    vocab, names = tokenizer.vocab, tokenizer.vocab.special_names

    def describe(id_: int) -> dict:
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
    tokens = {name: describe(id_) for name, id_ in tokens.items() if id_ is not None}
    modes = [getattr(vocab, role) for role in MODES]
    added = [describe(id_) for id_ in (*vocab.sentinels, *modes) if id_ is not None]
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
    return True


def write_notes(
    task: Task, vocab: Vocab, head: str, kind: Family, config: dict
) -> list[str]:
    """Notes for users of an export: attention masks and starts that differ."""
    notes, form = [], task.spec.text_form(vocab)
    if head == "causal" and form.mask_note:
        notes.append(
            f"{form.mask_note} {config['architectures'][0]} reads "
            "every text causally, unless this mask is given to it: attention_mask of "
            "shape [batch, 1, queries, keys], 0 where seen, torch.finfo(dtype).min "
            "elsewhere."
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


def write_card(
    task: Task,
    result: dict | None,
    head: str,
    config: dict,
    step: int,
    notes: Sequence[str],
) -> str:
    """The model card: data, objective, budget and metrics of the run, and notes."""
    plan, spec = task.plan, task.plan.train
    sources = plan.text.mixture or (plan.text.path,)
    schedules = {
        "train.batch_schedule": spec.batch_schedule,
        "train.length_schedule": spec.length_schedule,
    }
    lines = [
        "---",
        "library_name: transformers",
        "tags: [jaxpt]",
        "---",
        "",
        f"# {config['architectures'][0]} pretrained with jaxpt",
        "",
        f"- Objective: {plan.objective_name} ({head})",
        f"- Data: {', '.join(Path(str(source)).name for source in sources)}",
        f"- Rows: {task.spec.row_length} tokens each, `data.rows={plan.rows.rows}`",
        f"- Budget: {step:,} steps of {spec.batch_size} rows, seed {spec.seed}",
        *(f"- Schedule: {name}={pairs}" for name, pairs in schedules.items() if pairs),
        f"- Optimizer: {_list(plan.optim.settings())}",
        *(f"- Note: {note}" for note in notes),
    ]
    if result:
        lines += [
            f"- Cost: {result['flops']:.4g} FLOPs, {result['raw_tokens']:,} raw tokens",
            "",
            "| metric | value |",
            "|---|---|",
            *(f"| {key} | {value:.4f} |" for key, value in result["metrics"].items()),
        ]
    return "\n".join(lines) + "\n"


def _list(values: dict) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())
