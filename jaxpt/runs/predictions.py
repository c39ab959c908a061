"""Text generation, mask filling and nearest words with a trained run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import jax.numpy as jnp
import numpy as np

from jaxpt.by_name import load_place
from jaxpt.errors import ConfigError, argument
from jaxpt.evaluation import neighbours
from jaxpt.evaluation.scores import SampleSpec
from jaxpt.evaluation.unmasking import cut_rows, fill_masks
from jaxpt.files import disk
from jaxpt.nn.networks.abilities import FillsGaps, Unmasks
from jaxpt.runs.data import likelihood_rows
from jaxpt.runs.generation_defaults import Defaults
from jaxpt.runs.program import Program
from jaxpt.runs.random_parts import check_language_model
from jaxpt.runs.task import Task
from jaxpt.runs.workdir import LoadedRun, load_corpora, load_run
from jaxpt.setting_types import Limits, NonNegativeInt, check_value

if TYPE_CHECKING:
    from jaxpt.runs.writer import Writer

# Loaded when text is written: filled masks do without.
WRITER = "jaxpt.runs.writer:Writer"
GAP, GAP_TOKENS = "[MASK]", 64  # of a text with a gap; the longest that is written
NumSamples = Annotated[int, Limits(least=1, most=100_000)]
SIDE = 12  # tokens of context shown on each side of a word
Ability = TypeVar("Ability")


def generate_texts(
    run: LoadedRun,
    prompts: list[str],
    num_tokens: int = 0,
    num_samples: int = 1,
    seed: int = 0,
    stop: str = "",
    num_steps: int = 0,
    **sampling,
) -> list[str]:
    """`num_samples` texts for each prompt in turn, cut at an [EOS] and at `stop`.

    The text of a causal run begins with the prompt; that of an encoder-decoder is its
    output for the prompt.

    Args:
      num_tokens: maximum number of new tokens; 0 for all positions of the model.
      stop: string that ends a text and is left out of it; "" for none.
      num_steps: passes of a model that generates by unmasking; 0 for one per token, or
        from left to right if it can.
      sampling: fields of `SampleSpec`; others are those of an imported model.
    """
    check_draws(num_samples, seed, num_tokens, num_steps)
    spec = _merge_settings(run.program.task.generation, sampling, num_samples)
    if spec.num_beams > 1 and num_samples > 1:
        raise ConfigError(
            f"{argument('num_samples')}={num_samples}: must be 1 with "
            f"{argument('num_beams')}={spec.num_beams}, which finds one text"
        )
    program = run.program
    check_language_model(program.task, "generate")
    writer = load_place(WRITER)(program, run.tokenizer, spec, seed, stop)
    task, params = program.task, run.params
    if isinstance(task.model, Unmasks) and (num_steps or program.decoder is None):
        _check_unmasking(task, spec)
        options = num_tokens, num_samples, num_steps
        samples = [_unmask_texts(writer, params, p, *options) for p in prompts]
        return [text for texts in samples for text in texts]
    if num_steps:
        raise ConfigError(
            f"{argument('num_steps')}={num_steps}: must be 0 for a "
            f"{task.plan.objective_name} run, which does not unmask"
        )
    kind = "causal one or an encoder-decoder"
    _require(program.decoder, program, kind, "clm or span_corruption")
    ids = [run.tokenizer.encode_prompt(prompt) for prompt in prompts]
    return _decode_texts(writer, params, ids, num_tokens, num_samples)


def check_draws(
    num_samples: int = 1, seed: int = 0, num_tokens: int = 0, num_steps: int = 0
) -> None:
    """Raises ConfigError unless these are numbers that generation can have."""
    check_value(argument("num_samples"), num_samples, NumSamples)
    check_value(argument("seed"), seed, int)
    check_value(argument("num_tokens"), num_tokens, NonNegativeInt)
    check_value(argument("num_steps"), num_steps, NonNegativeInt)


def _merge_settings(
    defaults: Defaults, sampling: dict[str, Any], num_samples: int
) -> SampleSpec:
    """The user's settings, and others of the model that do not contradict them."""
    kept = dict(defaults)
    drawn = ("temperature", "top_k", "top_p")
    if "num_beams" in sampling:
        kept = {name: value for name, value in kept.items() if name not in drawn}
    elif num_samples > 1 or any(name in sampling for name in drawn):
        kept.pop("num_beams", None)
    return SampleSpec(**kept | sampling)


def _decode_texts(
    writer: "Writer",
    params: Any,
    prompts: list[np.ndarray],
    num_tokens: int,
    num_samples: int = 1,
) -> list[str]:
    """Texts of the ids of all prompts at once, token by token."""
    rows = [_wrap(writer.task, ids) for ids in prompts for _ in range(num_samples)]
    num_tokens = num_tokens or max(1, writer.room(max(map(len, rows))))
    texts = []
    for i, ids in enumerate(writer.write(params, rows, num_tokens)):
        before = ids[:0] if writer.is_answer else prompts[i // num_samples]
        texts.append(_cut_text(writer, before, ids))
    return texts


def _unmask_texts(
    writer: "Writer", params, prompt: str, num_tokens: int, num_samples, num_steps: int
) -> list[str]:
    """Texts for one prompt, generated by unmasking in any order."""
    task, prompt_ids = writer.task, writer.tokenizer.encode_prompt(prompt)
    ids, limit = _wrap(task, prompt_ids), task.model_spec.max_len
    num_tokens = num_tokens or max(1, min(limit, task.read_length) - len(ids))
    if not len(ids) or num_tokens < 1 or len(ids) + num_tokens > limit:
        raise ConfigError(
            f"{argument('num_tokens')}={num_tokens}: must be at least 1 and, with the "
            f"prompt's {len(ids)} tokens (1 at least), at most the model's {limit} "
            "positions"
        )
    rows = np.repeat(ids[None], num_samples, axis=0)
    tokens = writer.unmask(params, rows, num_tokens, num_steps)
    cut = cut_rows(tokens, writer.stops)
    return [_cut_text(writer, prompt_ids, row) for row in cut]


def _check_unmasking(task: Task, spec: SampleSpec) -> None:
    """Raises UserError for options that need generation from left to right."""
    if spec.num_beams > 1 or spec.repetition_penalty != 1:
        raise ConfigError(
            f"{argument('num_beams')}={spec.num_beams}, "
            f"{argument('repetition_penalty')}={spec.repetition_penalty}: must both be "
            "1 for a "
            f"{task.plan.objective_name} run, which writes by unmasking"
        )


def _wrap(task: Task, ids: np.ndarray) -> np.ndarray:
    """A prompt with the special tokens around a text, unless it is empty."""
    return task.text_form.wrap(ids) if len(ids) else ids


def continue_texts(
    writer: "Writer", params: Any, prompts: list[str], num_tokens: int
) -> list[str]:
    """The continuation of each prompt; long prompts are cut at their beginning."""
    program, tokenizer = writer.program, writer.tokenizer
    prompt_ids = [tokenizer.encode(prompt) for prompt in prompts]
    if program.decoder is None:
        name = program.task.plan.objective_name
        raise ConfigError(f"a {name} run cannot continue a text from its left")
    form = program.task.text_form
    room = writer.room(num_tokens) - len(form.before) - len(form.after)
    if room < 1:
        raise ConfigError(
            f"max_gen_toks={num_tokens}: must leave room for a prompt among the "
            f"model's {program.decoder.max_len} positions"
        )
    cut = [ids[-room:] for ids in prompt_ids]
    continuations = _decode_texts(writer, params, cut, num_tokens)
    if writer.is_answer:
        return continuations
    # The whole text is decoded: its first token may depend on the one before it.
    return [
        text[len(tokenizer.decode(ids)) :]
        for text, ids in zip(continuations, cut, strict=True)
    ]


def read_prompts(prompts: list[str], path: str) -> list[str]:
    """The prompts as given, or the lines of a file; a line end if there is neither."""
    if not path:
        return prompts or ["\n"]
    if prompts:
        raise ConfigError(
            f"{argument('prompt_file')}={path}: must be left out with "
            f"{argument('prompt')}"
        )
    try:
        text = disk.read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8 text"
        raise ConfigError(
            f"{argument('prompt_file')}={path}: cannot be read: {reason}"
        ) from None
    # Not splitlines, which also cuts at U+2028, U+0085 and form feeds.
    lines = text.removesuffix("\n").split("\n")
    if not all(lines):
        raise ConfigError(
            f"{argument('prompt_file')}={path}: must have a prompt on each line, and "
            "no empty one"
        )
    return lines


def _cut_text(writer: "Writer", before: np.ndarray, ids: np.ndarray) -> str:
    """The text of `before` and `ids`, cut at the first `stop` in the new part."""
    decode = writer.tokenizer.decode
    text = decode(np.concatenate([before, ids]))
    if not writer.stop:
        return text
    place = text.find(writer.stop, len(decode(before)))
    return text if place < 0 else text[:place]


def fill_text(run: LoadedRun, text: str, k: int) -> list[list[tuple[str, float]]]:
    """The k likeliest tokens and their probabilities for each [MASK] of a text.

    A network that writes gaps fills one [MASK] by texts of any length.
    """
    if k < 1:
        raise ConfigError(f"{argument('top_k')}={k}: must be at least 1")
    program, tokenizer, params, _ = run
    model = program.task.model
    if isinstance(model, FillsGaps):
        check_language_model(program.task, "fill")
        return [_write_gap(run, model, text, k)]
    kind, names = "masked one", "mlm or electra"
    fill_logits = _require(program.readers.get("fill_logits"), program, kind, names)
    check_language_model(program.task, "fill")
    mask_id = tokenizer.vocab.require("mask")
    ids = program.task.text_form.wrap(tokenizer.encode_prompt(text))
    limit = program.task.model_spec.max_len
    if len(ids) > limit:
        raise ConfigError(
            f"{argument('text')}: has {len(ids)} tokens; must have at most the model's "
            f"{limit}"
        )
    banned = program.task.nonwords
    predictions = fill_masks(fill_logits, params, ids, mask_id, banned, k)
    return [[(tokenizer.token_name(i), p) for i, p in best] for best in predictions]


def _write_gap(
    run: LoadedRun, model: FillsGaps, text: str, k: int
) -> list[tuple[str, float]]:
    """Texts for the [MASK] of a text, and the probabilities of each with its end.

    Each of the k likeliest first tokens is continued by the likeliest ones.
    """
    program, tokenizer, params, _ = run
    task, form = program.task, program.task.text_form
    if text.count(GAP) != 1:
        objective = task.plan.objective_name
        raise ConfigError(
            f"{argument('text')}: must have one {GAP}, as {objective} writes one gap"
        )
    left, right = map(tokenizer.encode, text.split(GAP))
    marked = model.gap_prompt(jnp.array(left)[None], jnp.array(right)[None])[0]
    prompt = np.concatenate([form.before, marked]).astype(np.int32)
    limit = task.model_spec.max_len
    num_tokens = min(GAP_TOKENS, limit - len(prompt) - 1)
    if num_tokens < 1:
        raise ConfigError(
            f"{argument('text')}: has {len(prompt)} tokens; must have at most "
            f"{limit - 2}, two fewer than the model's {limit} positions"
        )
    scores = np.array(
        program.readers["next_logits"](params, prompt[None])[0, -1], np.float64
    )
    scores[list(task.find_banned(is_answer=False))] = -np.inf
    first = np.argsort(-scores, kind="stable")[: min(k, np.isfinite(scores).sum())]
    rows = np.stack([np.append(prompt, id_) for id_ in first]).astype(np.int32)
    writer = load_place(WRITER)(program, tokenizer, SampleSpec(temperature=0.0))
    tokens, counts = writer.decode(params, list(rows), num_tokens)
    counts = np.where(np.isin(first, form.ends), 0, counts) + 1
    answers = np.concatenate([first[:, None], tokens], axis=1).astype(np.int32)
    whole = np.concatenate([rows[:, :-1], answers], axis=1)
    nll = np.asarray(program.readers["token_nll"](params, whole))[:, len(prompt) - 1 :]
    before, fills = len(tokenizer.decode(left)), []
    for ids, count, losses in zip(answers, counts, nll, strict=True):
        new = ids[:count][: count - bool(ids[count - 1] in form.ends)]
        filled = tokenizer.decode(np.concatenate([left, new]))[before:]
        fills.append((filled, float(np.exp(-losses[:count].sum()))))
    return sorted(fills, key=lambda fill: -fill[1])


def neighbour_words(
    workdir: Path, word: str, num_occurrences: int, k: int, num_rows: int = 1024
) -> neighbours.Neighbours:
    """A word's nearest words, for single occurrences and on average.

    Args:
      num_rows: number of rows of training text that are read, spread evenly.
    """
    for name, value in (("sentences", num_occurrences), ("top_k", k)):
        if value < 1:
            raise ConfigError(f"{argument(name)}={value}: must be at least 1")
    if not word.strip(neighbours.MARKS):
        raise ConfigError(f"{argument('word')}={word!r}: must be a word")
    program, tokenizer, params, _ = load_run(workdir)
    if not tokenizer.vocab.word_starts:
        raise ConfigError(
            f"{argument('workdir')}={workdir}: the tokens of its tokenizer do not mark "
            "where words begin; those of tokenizer.kind=bpe, wordpiece and unigram do"
        )
    task, train = program.task, load_corpora(workdir, program.task, tokenizer)["train"]
    limit = max(1, train.num_tokens // task.spec.row_length)
    rows = likelihood_rows(task, train, min(num_rows, limit))
    rows = rows[:, : program.text_length]
    starts = np.array(tokenizer.vocab.word_starts)
    words = neighbours.cut_words(rows, starts, tokenizer.decode)

    def around(word: neighbours.Word) -> str:
        row, span = rows[word.row], slice(word.start, word.stop)
        sides = row[: word.start][-SIDE:], row[word.stop :][:SIDE]
        before, after = map(tokenizer.decode, sides)
        text = f"{before} [{tokenizer.decode(row[span]).strip()}] {after}"
        return " ".join(text.split())

    if not any(each.text.lower() == word.lower() for each in words):
        raise ConfigError(
            f"{argument('word')}={word!r}: must occur in the {len(rows)} rows of text "
            "that were read"
        )
    batch_size = task.plan.eval.batch_size
    vectors = neighbours.word_vectors(
        program.readers["features"], params, rows, words, batch_size
    )
    return neighbours.find_neighbours(words, vectors, word, num_occurrences, k, around)


def _require(
    ability: Ability | None, program: Program, kind: str, names: str
) -> Ability:
    if ability is None:
        objective = program.task.plan.objective_name
        raise ConfigError(
            f"the run's objective={objective}: must be that of a {kind} ({names})"
        )
    return ability
