"""Exports runs as folders that transformers loads: config, tensors, tokenizer, card."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxpt.errors import UserError
from jaxpt.files.folder import is_new, load_measured
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
from jaxpt.training.run_framing import NAME, find_framing
from jaxpt.training.task import Task
from jaxpt.training.workdir import load_run


def export_run(workdir: Path, folder: Path, family: str = "") -> list[str]:
    """Writes a run's newest checkpoint; a folder for each network if there are several.

    Args:
      family: a model_type of transformers, such as "bert"; "" is the first that fits.

    Returns:
      Lines to print that name the folders.

    Raises:
      UserError: there is no run, no family fits the model and its tokenizer, a
        parameter is not finite, or the folder is not empty or cannot be written.
    """
    if not is_new(folder):
        raise UserError(f"--to={folder}: must be a new or an empty folder")
    program, tokenizer, params, step = load_run(workdir)
    task = program.task
    parts = task.model.export_parts(params)
    if not parts:
        raise UserError(
            f"--workdir={workdir}: holds a {task.plan.objective_name} run, of which "
            f"transformers has no model"
        )
    planned, framing = [], find_framing(task)
    for head, (spec, part) in parts.items():
        kind, config = write_config(spec, head, family, tokenizer.vocab)
        laid = kind.lay_out(spec, tokenizer.vocab.pad)
        tensors = to_hf(move_places(part, spec, laid), kind, laid, head)
        ids = name_ids(task.vocab, framing, head)
        notes = write_notes(task, task.vocab, head, kind, config | ids)
        generation = ids if head in ("causal", "seq2seq") else None
        made = Model(config | ids, tensors, laid, framing, notes, generation)
        planned.append((head, made))
    path = workdir / "result.json"
    result = load_measured(path) if path.exists() else None
    lines = []
    for head, made in planned:
        into = folder / head if len(planned) > 1 else folder
        card = write_card(task, result, head, made.config, step, made.notes)
        lines += write_model(made, tokenizer, card, into)
    write_origin(folder, task, params, parts)
    return lines


@dataclasses.dataclass(frozen=True)
class Model:
    """What a folder of transformers says of a model, but its tokenizer and its card.

    Attributes:
      config: of config.json, without the dtype, which is float32.
      tensors: by their names in transformers.
      spec: with its positions where the family's code reads them (`Family.lay_out`).
      framing: the ids around a text.
      notes: what whoever uses the model must know.
      generation: of generation_config.json; None for a model that does not generate.
      pair: what stands around two texts, where it is not as `write_template` has it.
    """

    config: dict
    tensors: dict[str, np.ndarray]
    spec: ModelSpec
    framing: Framing
    notes: Sequence[str] = ()
    generation: dict | None = None
    pair: Pair | None = None


def write_model(model: Model, tokenizer: Tokenizer, card: str, to: Path) -> list[str]:
    """Writes the folder of a model that transformers loads, and makes it.

    Returns:
      Lines to print: its class and its size, its notes, and whether it has a tokenizer.

    Raises:
      UserError: the folder cannot be written.
    """
    try:
        to.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--to={to}: {error.strerror}") from error
    write_tensors(to, model.tensors)
    write_json(to, "config.json", model.config | {"dtype": "float32"})
    if model.generation is not None:
        write_json(to, "generation_config.json", model.generation)
    has_tokenizer = write_tokenizer(
        tokenizer, to, model.spec, model.framing, model.pair
    )
    write_file(to, "README.md", card.encode())
    size = sum(int(np.size(tensor)) for tensor in model.tensors.values())
    lines = [f"{to}: {model.config['architectures'][0]}, {size:,} numbers"]
    lines += [f"{to}: {note}" for note in model.notes]
    if not has_tokenizer:
        lines.append(
            f"{to}: no tokenizer: transformers has none of kind {tokenizer.kind}"
        )
    return lines


def name_ids(vocab: Vocab, framing: Framing, head: str) -> dict[str, int | list | None]:
    """The special ids under their names in configs of transformers.

    For a model that generates, ids that it lacks are null, or the defaults of the
    family's class would apply.
    """
    roles = ("pad", "cls", "sep", "mask")
    ids = {f"{role}_token_id": getattr(vocab, role) for role in roles}
    ids = {name: id_ for name, id_ in ids.items() if id_ is not None}
    ends = framing.ends[0] if len(framing.ends) == 1 else list(framing.ends) or None
    told = {"bos_token_id": framing.bos, "eos_token_id": ends}
    if head == "seq2seq":
        told["decoder_start_token_id"] = vocab.start
        told["forced_bos_token_id"] = framing.first
    if head in ("causal", "seq2seq"):
        return ids | told | {"forced_eos_token_id": framing.last}
    return ids | {name: id_ for name, id_ in told.items() if id_ is not None}


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
        # As a plain string, transformers would read it as a token without flags.
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
    """What whoever uses the export must know: how it was read in training."""
    notes, form = [], task.spec.text_form(vocab)
    if head == "causal" and form.mask_note:
        notes.append(
            f"{form.mask_note} {config['architectures'][0]} reads "
            "every text causally, unless this mask is given to it: attention_mask of "
            "shape [batch, 1, queries, keys], 0 where seen, torch.finfo(dtype).min "
            "elsewhere."
        )
    begins = {config.get("decoder_start_token_id")}
    if head == "causal":
        begins |= set(form.before)
    if kind.freezes_pad and vocab.pad in begins - {None}:
        notes.append(
            f"Every text that it writes begins with [PAD] (id {vocab.pad}), whose "
            "embedding PyTorch gives no gradient as an input (padding_idx). Before "
            "training on, thaw it: for module in model.modules(): if isinstance(module,"
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
        f"- Optimizer: {_list(plan.optim.settings())}",
        *(f"- To be known: {note}" for note in notes),
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
