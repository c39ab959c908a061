"""Evaluates a run with EleutherAI's lm-evaluation-harness, without an export.

    python -m jaxpt.hub.lm_eval run --model jaxpt --model_args workdir=runs/a \\
        --tasks lambada_openai,arc_easy

runs the harness's own program with `jaxpt` added to its models. In Python, use
`lm_eval.simple_evaluate(model=register()(workdir="runs/a"), tasks=[...])`. Needs
`pip install 'jaxpt[lm-eval]'`.

A causal run gets exactly the ids that the harness's `hf` model gives its export: the
special ids that the run puts before a text, and for an empty context [BOS], or else
[EOS]. (`jaxpt evaluate --tasks` also gives a run of joined texts the [EOS] that ended
the previous text.) All other runs are scored by a rule of `zero_shot.score_rows`, such
as pseudo-log-likelihoods, which `hf` cannot do; "greedy" then means that each token is
the likeliest one by that rule. A token that shares the highest score with another is
not greedy here, but can be in the harness.
"""

import dataclasses
import math
import os
import sys
from typing import Any

import numpy as np

import jaxpt.trust
from jaxpt import optional
from jaxpt.errors import DataError, UserError
from jaxpt.evaluation.scores import SampleSpec
from jaxpt.files.copies import printable
from jaxpt.files.remote import fetch
from jaxpt.runs.predictions import continue_texts
from jaxpt.runs.scorer import make_scorer
from jaxpt.runs.workdir import load_run
from jaxpt.runs.writer import Writer
from jaxpt.zero_shot.continuations import pick_rule

NAME = "jaxpt"
# Rules that add no special ids to a text.
BARE = frozenset({"causal", "forward"})
MAX_NEW = 256  # new tokens of a generated text, by default
KNOWN = ("until", "max_gen_toks", "do_sample", "temperature", "top_k", "top_p")


class RunLM:
    """The harness's model interface for a run; `register` derives its class from this.

    Args:
      workdir: the run's folder.
      rule: the scoring rule; "auto" is the run's best rule for continuations.
      seed: of sampling.
      max_gen_toks: new tokens of a generated text, if a task does not set them.
      batch_size: texts that are generated at once; scoring chooses its own.
      max_batch_size, device: passed by the harness and ignored, as JAX chooses both.
      trust: modules outside jaxpt that the run may import, such as its objective's.
    """

    def __init__(
        self,
        workdir: str,
        rule: str = "auto",
        seed: int = 0,
        max_gen_toks: int = MAX_NEW,
        batch_size: int | str = 1,
        max_batch_size: int | None = None,
        device: str | None = None,
        trust: str | tuple[str, ...] = (),
    ):
        super().__init__()
        if not str(batch_size).isdigit() or int(batch_size) < 1:
            raise DataError(f"batch_size={batch_size}: must be a number of texts")
        self.batch_size, self.seed = int(batch_size), int(seed)
        self.max_gen_toks = int(max_gen_toks)
        jaxpt.trust.trust(trust)
        jaxpt.trust.trust_places(workdir, trust)
        program, tokenizer, params, _ = load_run(fetch(workdir))
        self.program, self.run_tokenizer, self.params = program, tokenizer, params
        scorer = make_scorer(program, params)
        self.rule = (
            pick_rule(scorer.rules) if rule == "auto" else scorer.find_rule(rule)
        )
        self.is_bare = self.rule in BARE
        if self.is_bare:
            form = dataclasses.replace(scorer.form, left=(), right=())
            scorer = scorer.with_form(form)
        self.scorer, self.text_form = scorer, program.task.text_form
        self.max_length = program.task.model_spec.max_len

    @property
    def eot_token_id(self) -> int:
        """The id of [EOS], or else of [BOS]."""
        form = self.text_form
        ids = [id_ for id_ in (*form.ends, form.bos) if id_ is not None]
        if not ids:
            raise DataError(
                "this run's tokenizer has neither [BOS] nor [EOS], one of which the "
                "harness puts before a text that has no context"
            )
        return ids[0]

    @property
    def prefix_token_id(self) -> int:
        """The id of [BOS], or else of [EOS]; -1 for rules that need neither."""
        if not self.is_bare:
            return -1
        bos = self.text_form.bos
        return bos if bos is not None else self.eot_token_id

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_: Any
    ) -> list[int]:
        """Ids of a text, with those before it unless the rule adds them."""
        ids = self.run_tokenizer.encode(string).tolist()
        if self.is_bare and add_special_tokens is not False:
            return [*self.text_form.before, *ids]
        return ids

    def _loglikelihood_tokens(
        self, requests: list[tuple], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        """Returns (log p, is greedy) of each (texts, context ids, continuation ids)."""
        texts, starts, limit = [], [], self._limit()
        for _, context, continuation in requests:
            if not self.is_bare and context == [self.prefix_token_id]:
                context = []  # the rule adds the ids before a text
            elif self.is_bare and not context:
                # Of white space alone, which the harness moves to the continuation.
                context = [self.prefix_token_id]
            ids = np.array([*context, *continuation], np.int32)[-limit:]
            if len(continuation) > limit - self.is_bare:
                raise DataError(
                    f"a continuation of {len(continuation)} tokens: must fit the "
                    f"model's {self.max_length} positions"
                )
            texts.append(ids)
            starts.append(len(ids) - len(continuation))
        scores = self.scorer.score(texts, starts, (self.rule,), with_best=True)
        return [
            (float(values.sum(dtype=np.float64)), bool(best.all()))
            for values, best in zip(scores[self.rule], scores["best"], strict=True)
        ]

    def _limit(self) -> int:
        """The maximum ids of a text; a causal run does not read the last one."""
        if self.is_bare:
            return self.max_length + 1
        return self.scorer.room(self.rule) or self.max_length

    def loglikelihood_rolling(
        self, requests: list, disable_tqdm: bool = False
    ) -> list[float]:
        """Returns log p of whole texts, in windows that overlap by one token.

        The text that an [UNK] replaces is charged as raw bytes (`Vocab.unknown_bits`).
        """
        from lm_eval import utils

        windows, owners = [], []
        length = self._limit() - 1
        for number, request in enumerate(requests):
            (text,) = request.args
            ids = self.tok_encode(text)
            for pair in utils.get_rolling_token_windows(
                ids, self.prefix_token_id, length, context_len=1
            ):
                windows.append((None, *utils.make_disjoint_window(pair)))
                owners.append(number)
        totals = np.zeros(len(requests))
        scores = self._loglikelihood_tokens(windows)
        np.add.at(totals, owners, [log_prob for log_prob, _ in scores])
        for number, request in enumerate(requests):  # the text of [UNK]s, as raw bytes
            sized = self.run_tokenizer.encode_sized(request.args[0])
            bits = self.run_tokenizer.vocab.unknown_bits(*sized)
            totals[number] -= float(bits.sum()) * math.log(2)
        return totals.tolist()

    def generate_until(self, requests: list, disable_tqdm: bool = False) -> list[str]:
        """Returns the continuation of each text, up to the first of its stops."""
        groups: dict[str, list[int]] = {}
        for number, request in enumerate(requests):
            groups.setdefault(repr(request.args[1]), []).append(number)
        texts = [""] * len(requests)
        for numbers in groups.values():
            options = requests[numbers[0]].args[1]
            numbers.sort(key=lambda i: len(requests[i].args[0]))
            for start in range(0, len(numbers), self.batch_size):
                batch = numbers[start : start + self.batch_size]
                prompts = [requests[i].args[0] for i in batch]
                new = self._continue(prompts, options)
                for i, text in zip(batch, new, strict=True):
                    texts[i] = text
        return texts

    def _continue(self, prompts: list[str], options: dict[str, Any]) -> list[str]:
        if unknown := sorted(set(options) - set(KNOWN)):
            raise DataError(
                f"generation_kwargs {unknown[0]}: must be one of {', '.join(KNOWN)}"
            )
        is_sampled = bool(options.get("do_sample"))
        spec = SampleSpec(
            temperature=float(options.get("temperature", 1.0)) if is_sampled else 0.0,
            top_k=int(options.get("top_k", 0)) if is_sampled else 0,
            top_p=float(options.get("top_p", 1.0)) if is_sampled else 1.0,
        )
        num = int(options.get("max_gen_toks", self.max_gen_toks))
        writer = Writer(self.program, self.run_tokenizer, spec, self.seed)
        stops = options.get("until") or []
        stops = [stops] if isinstance(stops, str) else stops
        texts = continue_texts(writer, self.params, prompts, num)
        return [cut_at(text, stops) for text in texts]


def cut_at(text: str, stops: list[str]) -> str:
    """Cuts a text before the first of the stops.

    >>> cut_at("one\\n\\ntwo.", [".", "\\n\\n"])
    'one'
    """
    for stop in stops:
        text = text.split(stop)[0] if stop else text
    return text


def register() -> type:
    """Adds "jaxpt" to the harness's models and returns the class."""
    for module in ("lm_eval.api.registry", "lm_eval.api.model"):
        api = optional.need(module, "lm-eval", "a model of the harness").api
    registry, TemplateLM = api.registry, api.model.TemplateLM
    if NAME in registry.model_registry:
        return registry.get_model(NAME)
    return registry.register_model(NAME)(type("JaxptLM", (RunLM, TemplateLM), {}))


def main() -> int:
    """Runs the harness's own program and returns its exit code."""
    # Its bootstrap would fork, and a copy of JAX's threads can wait for ever.
    os.environ.setdefault("DISABLE_MULTIPROC", "1")
    try:
        register()
        from lm_eval.__main__ import cli_evaluate

        cli_evaluate()
    except UserError as error:
        print(f"jaxpt: error: {printable(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
