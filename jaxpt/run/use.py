"""Using a trained run: its text and its fills, from the last good checkpoint."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxpt.errors import UserError
from jaxpt.eval.filling import fill_masks
from jaxpt.eval.generation import SampleSpec, generate
from jaxpt.rng import stream
from jaxpt.run.parallel import Program
from jaxpt.run.workdir import load_run


def generate_texts(
    workdir: Path,
    prompt: str,
    num_tokens: int,
    num_samples: int = 1,
    seed: int = 0,
    **sampling,
) -> list[str]:
    """`num_samples` continuations of a prompt, each with the prompt, cut at an [EOS].

    Args:
      num_tokens: how many to add; 0 goes on to the model's last position.

    Raises:
      UserError: not a causal run, or a flag that is out of range.
    """
    spec = SampleSpec(**sampling)
    if num_samples < 1:
        raise UserError(f"--num_samples={num_samples}: must be at least 1")
    program, tokenizer, params, _ = load_run(workdir)
    _require(program, "next_logits", workdir, "causal", "clm")
    ids = tokenizer.encode_prompt(prompt)
    max_len = program.task.model_spec.max_len
    banned = set(tokenizer.vocab.special_ids.tolist()) - {tokenizer.vocab.eos}
    tokens = generate(
        program.next_logits,
        params,
        jnp.asarray(np.repeat(ids[None], num_samples, axis=0)),
        num_tokens or max(1, max_len - len(ids)),
        max_len,
        stream(seed, 0, "sample"),
        spec,
        tuple(sorted(banned)),
    )
    return [
        tokenizer.decode(_cut(row, len(ids), tokenizer.vocab.eos))
        for row in np.asarray(jax.device_get(tokens))
    ]


def _cut(ids: np.ndarray, start: int, eos: int | None) -> np.ndarray:
    ends = np.flatnonzero(ids[start:] == eos) if eos is not None else ()
    return ids[: start + ends[0]] if len(ends) else ids


def fill_text(workdir: Path, text: str, k: int) -> list[list[tuple[str, float]]]:
    """The k likeliest tokens and their probabilities for each [MASK] of a text.

    Raises:
      UserError: not a masked run, no [MASK], or a text longer than the model reads.
    """
    if k < 1:
        raise UserError(f"--top_k={k}: must be at least 1")
    program, tokenizer, params, _ = load_run(workdir)
    _require(program, "fill_logits", workdir, "masked", "mlm or electra")
    ids, vocab = tokenizer.encode_prompt(text), tokenizer.vocab
    limit = program.task.model_spec.max_len
    if len(ids) > limit:
        raise UserError(
            f"--text: has {len(ids)} tokens; must have at most the model's {limit}"
        )
    found = fill_masks(
        program.fill_logits, params, ids, vocab.mask, vocab.special_ids, k
    )
    return [[(tokenizer.token_name(i), p) for i, p in best] for best in found]


def _require(program: Program, ability: str, workdir: Path, kind: str, names: str):
    if getattr(program, ability) is None:
        held = program.task.plan.objective
        raise UserError(
            f"--workdir={workdir}: holds a {held} run; must hold a {kind} one ({names})"
        )
