"""Writes encoded tasks to the draft of a store, with a journal of the progress."""

import contextlib
import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from jaxpt.errors import DataError
from jaxpt.text.stores.draft import Draft
from jaxpt.text.stores.layout import Layout
from jaxpt.text.stores.pool import EncodedTasks
from jaxpt.text.stores.store import (
    DTYPES,
    FORMAT,
    TOKENIZER,
    shard_name,
    token_dtype,
)
from jaxpt.text.stores.tasks import EncodingJob, Sizes, Tally
from jaxpt.text.tokens.tokenizer import Tokenizer, save


@dataclasses.dataclass
class TextDigest:
    """The sha256 of a text: of a text in several spans, of those of the spans.

    Attributes:
      span: the number of the last span.
      before: the digest of the spans before it; "" if there are none.
      digest: of the last span, as far as it was added.
    """

    span: int = 0
    before: str = ""
    digest: str = ""

    def add(self, task: EncodingJob) -> None:
        """Adds the text of the next task."""
        if task.span != self.span:
            self.span, self.before = task.span, self.value
        self.digest = task.digest

    @property
    def value(self) -> str:
        """The digest of all text that was added, in hex."""
        pair = self.before + self.digest
        return hashlib.sha256(pair.encode()).hexdigest() if self.before else pair


class StoreWriter:
    """Writes encoded tasks to the draft, and the progress to its journal."""

    def __init__(
        self,
        draft: Draft,
        key: str,
        tokenizer: Tokenizer,
        settings: dict,
        sizes: Sizes,
        state: dict | None,
    ):
        self._draft, self._key, self._tokenizer = draft, key, tokenizer
        self._sizes, self._settings = sizes, settings
        self._sentences = settings.get("sentences", "")
        self._dtype = token_dtype(tokenizer.vocab.size)
        if state is None:
            with draft.writing():
                save(tokenizer, draft.path / TOKENIZER)
            draft.take(TOKENIZER)
            layout = {
                "eos": tokenizer.vocab.eos,
                "has_sentences": bool(self._sentences),
                "has_sizes": not tokenizer.vocab.token_bytes,
            }
            state = {"num_tasks": 0, "text": [0, "", ""], "num_bytes": 0}
            state |= {"layout": layout}
        self._num_tasks, self._text = state["num_tasks"], TextDigest(*state["text"])
        self.num_bytes = state["num_bytes"]  # of text, including dropped documents
        self.num_encoded = 0  # tasks, by this process
        self._committed = self.num_bytes
        self._layout = Layout(**state["layout"])

    def run(
        self,
        tasks: Iterator[EncodingJob],
        encode: Callable[[Iterator[EncodingJob], Path], EncodedTasks],
        path: str,
        progress: Callable | None,
    ) -> None:
        """Encodes and writes all tasks that are not in the journal.

        Args:
          encode: called with the tasks and the path of the tokenizer's file.
          path: of the text, for errors.
        """
        self._skip(tasks, path)
        encoded = encode(tasks, self._draft.path / TOKENIZER)
        with contextlib.closing(encoded):
            for task, result in encoded:
                self._write(*self._layout.add(task.pieces, result))
                self._num_tasks += 1
                self.num_encoded += 1
                self._text.add(task)
                self.num_bytes += int(task.pieces.num_bytes.sum())
                if self.num_bytes - self._committed >= self._sizes.commit_bytes:
                    self._commit()
                if progress:
                    layout = self._layout
                    progress((self.num_bytes, layout.num_documents, layout.num_tokens))
        self._write(*self._layout.finish(self._dtype))
        if not self._layout.num_tokens:
            raise DataError(
                f"data.path={path}: the text has no token; it needs more text, or a "
                "tokenizer that knows its characters"
            )

    def make_card(self, about: dict, tally: Tally, vocab_size: int) -> dict:
        """The card of the store, without its files."""
        layout = self._layout
        names = ("tokens", "documents", "main", "bytes", "unknown")
        return {
            **about,
            **{f"num_{name}": getattr(layout, f"num_{name}") for name in names},
            "num_sentences": layout.num_sentences if self._sentences else None,
            "format": FORMAT,
            "vocab_size": vocab_size,
            "dtype": self._dtype,
            "dropped": tally.dropped + layout.dropped,
            "truncated": tally.truncated,
            "label_names": layout.label_names,
            "text_sha256": self._text.value,
        }

    def describe_unknown(self) -> tuple[str, float]:
        """What the tokenizer does not know of the text ("" for nothing), as a share."""
        layout = self._layout
        if not layout.num_unknown:
            return "", 0.0
        share = layout.unknown_bytes / max(self.num_bytes, 1)
        is_dropped = self._tokenizer.vocab.unk is None
        what = "unknown characters are dropped" if is_dropped else "tokens are [UNK]"
        line = (
            f"{layout.num_unknown:,} {what}, for {layout.unknown_bytes:,} bytes of "
            f"text ({share:.2%})"
        )
        return line, share

    def _skip(self, tasks: Iterator[EncodingJob], path: str) -> None:
        """Skips the tasks that are in the journal."""
        text = TextDigest()
        for task in itertools.islice(tasks, self._num_tasks):
            text.add(task)
        if text != self._text:
            raise DataError(
                f"data.path={path}: has changed since {self._draft.path} was "
                "interrupted; that is removed now, run the same command again"
            )

    def _write(self, tokens: np.ndarray, arrays: dict[str, np.ndarray]) -> None:
        size = self._sizes.shard_tokens
        # `layout` already counts these tokens.
        position = self._layout.num_tokens - len(tokens)
        while len(tokens):
            number, filled = divmod(position, size)
            part = tokens[: size - filled]
            self._draft.append(shard_name(number), np.ascontiguousarray(part))
            if filled + len(part) == size:
                self._draft.end(shard_name(number))
            tokens, position = tokens[len(part) :], position + len(part)
        for name, array in arrays.items():
            self._draft.append(name, array.astype(DTYPES[name]))

    def _commit(self) -> None:
        state = {
            "num_tasks": self._num_tasks,
            "text": dataclasses.astuple(self._text),
            "num_bytes": self.num_bytes,
            "layout": dataclasses.asdict(self._layout),
        }
        self._draft.commit(self._key, state)
        self._committed = self.num_bytes
