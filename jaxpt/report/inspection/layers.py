"""Compares the layers and attention heads of runs of any objectives on one text.

    analysis.json   all numbers
    analysis.html   a page with the pictures
    cka.svg, contextuality.svg, heads.svg, attention.svg, rollout.svg

Every run reads the same tokens, with the special tokens of its training around them.
Only the states of the text's own tokens are compared.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jaxpt.errors import CheckpointError, ConfigError, argument
from jaxpt.evaluation import attention_maps, similarity
from jaxpt.evaluation.attention_maps import HeadCounter
from jaxpt.files import checksums, disk
from jaxpt.files.folder import check_output, replaced_folder, write_json
from jaxpt.files.stored import to_plain
from jaxpt.nn.networks.abilities import HasTransformer
from jaxpt.report.inspection import layers_page
from jaxpt.runs import inspection
from jaxpt.runs.program import Program
from jaxpt.runs.task import Task
from jaxpt.runs.workdir import load_corpora, load_run, load_task
from jaxpt.text.rows.corpus import split_count
from jaxpt.text.rows.forms import windows
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.version import __version__

NAME = "analysis.json"
LENGTH = 64  # tokens of a row, if all models read that many
MIN_ROWS = 2  # a token needs two contexts


class AnalysisSpec(NamedTuple):
    """The text to read, and the attention to draw.

    Attributes:
      file: a text to read; "" is the first run's held-out text.
      num_tokens: to read of the text.
      length: of the rows in tokens; 0 is `LENGTH`, or the most that all models read.
      text: a sentence to draw attention on; "" is none.
      layer: of the sentence's picture, from 1; 0 is each network's last.
      head: from 1; 0 is the mean of all heads of the layer.
    """

    file: str = ""
    num_tokens: int = 4096
    length: int = 0
    text: str = ""
    layer: int = 0
    head: int = 0


class Member(NamedTuple):
    """One of the runs, before its parameters are read."""

    name: str
    folder: Path
    task: Task
    tokenizer: Tokenizer


def analyse(folders: Sequence[Path], spec: AnalysisSpec, to: Path) -> dict:
    """Analyses all runs on one text, writes the folder and returns analysis.json."""
    _check_flags(spec)
    check_output(to, NAME)
    members = load_members(folders)
    length = choose_length(members, spec.length)
    rows = read_rows(members[0], spec, length)
    sentence = encode_sentence(members, spec)
    runs, states, maps = [], [], []
    for member in members:
        program, _, params, step = load_run(member.folder)
        layers = inspection.read_layers(program, params, rows)
        states += [layer.reshape(-1, layer.shape[-1]) for layer in layers]
        heads = measure_heads(program, params, rows, member.tokenizer)
        run = make_entry(member, step, layers, rows)
        runs.append(run | {"attention": heads})
        if sentence is not None and heads:
            maps.append(draw_from(member, program, params, sentence, spec))
    result = {
        "version": __version__,
        "text": spec.file or f"held-out text of {members[0].folder}",
        "rows": len(rows),
        "row_length": length,
        "runs": runs,
        "cka": {
            "debiased": similarity.cka_matrix(states, is_debiased=True).tolist(),
            "biased": similarity.cka_matrix(states).tolist(),
        },
    }
    if maps:
        result["sentence"] = {"text": spec.text, "maps": maps}
    result = to_plain(result)
    _write(result, to)
    return result


def _write(result: dict, to: Path) -> None:
    """Writes pictures, page and numbers; a killed process leaves the earlier ones."""
    pictures = (f"{name}.svg" for name in layers_page.CAPTIONS)
    own = {NAME, layers_page.NAME, checksums.FILE, *pictures}
    try:
        with replaced_folder(to, NAME, own) as place:
            figures = layers_page.draw(result, place)
            layers_page.write_page(result | {"figures": figures}, place)
            write_json(place / NAME, result | {"figures": figures})
            checksums.record(place, [layers_page.NAME, *figures.values()])
    except OSError as error:
        raise CheckpointError(
            f"{argument('to')}={to}: cannot be written: {error.strerror}"
        ) from None


def _check_flags(spec: AnalysisSpec) -> None:
    """Raises UserError for a flag that is out of range or has no effect."""
    for name in ("num_tokens", "length", "layer", "head"):
        least, value = int(name == "num_tokens"), getattr(spec, name)
        if value < least:
            raise ConfigError(f"{argument(name)}={value}: must be at least {least}")
    for name in ("layer", "head"):
        if getattr(spec, name) and not spec.text:
            raise ConfigError(
                f"{argument(name)}={getattr(spec, name)}: needs {argument('text')}"
            )


def load_members(folders: Sequence[Path]) -> list[Member]:
    """The runs, which must share one tokenizer."""
    members: list[Member] = []
    first = ""
    for folder in folders:
        if any(folder.resolve() == other.folder.resolve() for other in members):
            raise CheckpointError(
                f"{argument('runs')}={folder}: is named twice; name each run once"
            )
        task, tokenizer = load_task(folder)
        sha = tokenizers.fingerprint(tokenizer)
        if first and sha != first:
            raise CheckpointError(
                f"{argument('runs')}={folder}: has another tokenizer than "
                f"{members[0].folder}; states are compared token by token, so all runs "
                "must share one"
            )
        first = sha
        members.append(Member(folder.name, folder, task, tokenizer))
    named = [member.task.plan.objective_name for member in members]
    if len(set(named)) == len(named):
        return [m._replace(name=n) for m, n in zip(members, named, strict=True)]
    if len({member.name for member in members}) == len(members):
        return members
    return [member._replace(name=str(member.folder)) for member in members]


def text_limit(member: Member) -> int:
    """The number of text tokens that a run's network reads at once."""
    return member.task.read_length - member.task.text_form.num_special()


def choose_length(members: Sequence[Member], length: int) -> int:
    """The length of the rows that all runs read."""
    shortest = min(members, key=text_limit)
    most = text_limit(shortest)
    if length > most:
        raise ConfigError(
            f"{argument('length')}={length}: must be at most {most}, the tokens of "
            f"text that {shortest.folder} reads"
        )
    return length or min(LENGTH, most)


def read_rows(
    member: Member, spec: AnalysisSpec, length: int
) -> Int[np.ndarray, "N T"]:
    """Rows of the text, spread evenly over it."""
    num = spec.num_tokens // length
    if num < MIN_ROWS:
        raise ConfigError(
            f"{argument('num_tokens')}={spec.num_tokens}: must be at least "
            f"{MIN_ROWS * length}, {MIN_ROWS} rows of {length} tokens"
        )
    if spec.file:
        ids = _read_file(spec.file, member.tokenizer)
        whole = len(ids) // length
        rows = ids[: whole * length].reshape(whole, length)
        rows = rows[np.linspace(0, whole - 1, min(num, whole)).round().astype(int)]
    else:
        split = load_corpora(member.folder, member.task, member.tokenizer)["valid"]
        numbers = split_count(min(num, split.num_tokens // length), split.fractions)
        pairs = zip(split.parts, numbers, strict=True)
        parts = [windows(part, length, n) for part, n in pairs if n]
        rows = np.concatenate(parts) if parts else np.zeros((0, length), np.int32)
    if len(rows) < MIN_ROWS:
        flag = (
            f"{argument('file')}={spec.file}"
            if spec.file
            else f"{argument('runs')}={member.folder}"
        )
        raise ConfigError(
            f"{flag}: the text has {len(rows)} rows of {length} tokens; at least "
            f"{MIN_ROWS} are needed (see {argument('length')})"
        )
    return rows


def _read_file(path: str, tokenizer: Tokenizer) -> np.ndarray:
    try:
        text = disk.read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8 text"
        raise ConfigError(
            f"{argument('file')}={path}: cannot be read: {reason}"
        ) from None
    return tokenizer.encode(text)


def encode_sentence(
    members: Sequence[Member], spec: AnalysisSpec
) -> Int[np.ndarray, "T"] | None:
    """The sentence's ids."""
    if not spec.text:
        return None
    ids = members[0].tokenizer.encode_prompt(spec.text)
    most = min(map(text_limit, members))
    if not 0 < len(ids) <= most:
        raise ConfigError(
            f"{argument('text')}: has {len(ids)} tokens; must have 1 to {most}, what "
            "all runs read"
        )
    for member in members:
        limits, model_spec = {}, member.task.model_spec
        if isinstance(member.task.model, HasTransformer):
            depths = (
                model_spec.num_layers,
                model_spec.num_decoder_layers or model_spec.num_layers,
            )
            limits = {"layer": min(depths), "head": model_spec.num_heads}
        for name, limit in limits.items():
            if (value := getattr(spec, name)) > limit:
                raise ConfigError(
                    f"{argument(name)}={value}: must be at most {limit}, those of "
                    f"{member.folder}"
                )
    return ids


def make_entry(
    member: Member,
    step: int,
    layers: Float[np.ndarray, "L N T D"],
    rows: Int[np.ndarray, "N T"],
) -> dict:
    """A run's entry in analysis.json, with the contextuality of each layer."""
    values = [similarity.measure_contextuality(layer, rows) for layer in layers]
    return {
        "name": member.name,
        "folder": str(member.folder),
        "objective": member.task.plan.objective_name,
        "step": step,
        "num_layers": len(layers) - 1,
        "contextuality": [
            each._asdict() | {"adjusted": each.adjusted} for each in values
        ],
    }


def measure_heads(
    program: Program, params, rows: Int[np.ndarray, "N T"], tokenizer: Tokenizer
) -> dict:
    """What the heads of each kind of attention attend to; {} without attention."""
    if not isinstance(program.task.model, HasTransformer):
        return {}
    tables = {
        "special": tokenizer.vocab.is_special,
        "punctuation": _find_punctuation(rows, tokenizer),
    }
    counters: dict[str, HeadCounter] = {}
    evens: dict[str, HeadCounter] = {}
    visible = inspection.read_visible(program, rows.shape[1])
    for weights, framed in inspection.read_attention(program, params, rows):
        marks = {name: table[framed] for name, table in tables.items()}
        for kind, values in weights.items():
            even = attention_maps.spread_evenly(visible[kind])
            whole = np.broadcast_to(even, (1, len(framed), 1, *even.shape))
            counters.setdefault(kind, HeadCounter()).add(values, marks)
            evens.setdefault(kind, HeadCounter()).add(whole, marks)
    return {
        kind: _tabulate(counter.finish())
        | {"even": _flatten_even(evens[kind].finish())}
        for kind, counter in counters.items()
    }


def _tabulate(heads: attention_maps.Heads) -> dict[str, Any]:
    """Lists by layer and head."""
    return {
        "shares": {name: values.tolist() for name, values in heads.shares.items()},
        "entropy": heads.entropy.tolist(),
        "offset": heads.offset.tolist(),
        "offset_share": heads.offset_share.tolist(),
        "is_positional": heads.is_positional.tolist(),
    }


def _flatten_even(heads: attention_maps.Heads) -> dict[str, float]:
    """The values of a head with equal weights on all visible tokens."""
    shares = {name: float(values[0, 0]) for name, values in heads.shares.items()}
    return shares | {"entropy": float(heads.entropy[0, 0])}


def _find_punctuation(rows: np.ndarray, tokenizer: Tokenizer) -> np.ndarray:
    """By id, whether its text is punctuation, for the ids that occur."""
    table = np.zeros(tokenizer.vocab.size, bool)
    for id_ in np.unique(rows):
        table[id_] = attention_maps.is_punctuation(tokenizer.decode(np.array([id_])))
    return table & ~tokenizer.vocab.is_special


def draw_from(
    member: Member, program: Program, params, ids: np.ndarray, spec: AnalysisSpec
) -> dict:
    """A sentence's attention in one run, of the chosen layer and head, and rollout."""
    ((weights, framed),) = inspection.read_attention(program, params, ids[None])
    names = [member.tokenizer.token_name(int(i)) for i in framed[0]]
    maps = {}
    for kind, values in weights.items():
        layer = values[spec.layer - 1, 0]  # layer 0 is the last
        chosen = layer[spec.head - 1] if spec.head else layer.mean(axis=0)
        maps[kind] = np.asarray(chosen, np.float64).tolist()
    whole = weights["self"][:, 0].mean(axis=1)
    layer_number = spec.layer or len(weights["self"])
    return {
        "name": member.name,
        "tokens": names,
        "dec_tokens": _shift(program, names, member.tokenizer),
        "layer": layer_number,
        "head": spec.head,
        "weights": maps,
        "rollout": attention_maps.rollout(np.asarray(whole, np.float64)).tolist(),
    }


def _shift(program: Program, names: list[str], tokenizer: Tokenizer) -> list[str]:
    """The tokens as a decoder reads them: shifted by one."""
    if not program.task.model.HAS_DECODER:
        return []
    return [tokenizer.token_name(program.task.vocab.start), *names[:-1]]
