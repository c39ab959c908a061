"""Loads the training, validation and held-out splits of a text from stores on disk."""

import dataclasses
import hashlib
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from jaxpt.by_name import load_place
from jaxpt.errors import DataError
from jaxpt.languages import is_language
from jaxpt.text.library import open_stores
from jaxpt.text.mixing import check_weights, expand
from jaxpt.text.rows.corpus import Corpus, cut, select
from jaxpt.text.stores.prepare import Reporter
from jaxpt.text.stores.store import Store
from jaxpt.text.text_spec import TextSpec
from jaxpt.text.tokens.tokenizer import Tokenizer

# Imported for a language only.
FRESH = "jaxpt.text.stores.fresh"


@dataclass(frozen=True, eq=False)
class Split:
    """A split of the text: one source, or a mixture of several.

    Attributes:
      parts: one corpus per source; their labels index the same `label_names`.
      fractions: the fraction of the rows that each part gives; they sum to 1.
      stages: of the training split, the fractions from a fraction of the run on
        (`jaxpt.text.mixing`); () if they are constant.
    """

    parts: tuple[Corpus, ...]
    fractions: tuple[float, ...]
    stages: tuple[tuple[float, tuple[float, ...]], ...] = ()

    @property
    def num_tokens(self) -> int:
        """The number of tokens of all parts."""
        return sum(part.num_tokens for part in self.parts)

    @property
    def num_documents(self) -> int:
        """The number of documents of all parts."""
        return sum(len(part.labels) for part in self.parts)

    def count_tokens(self, size: int, limit: int = 100_000_000) -> np.ndarray:
        """Counts each of `size` ids in the parts, int64 [size].

        Args:
          limit: of more tokens, a sample of about this size is counted, in evenly
            spaced pieces.
        """
        counts, piece = np.zeros(size, np.int64), 1 << 16
        step = max(1, -(-self.num_tokens // limit))
        for part in self.parts:
            for start in range(0, part.num_tokens, piece * step):
                stop = min(start + piece, part.num_tokens)
                counts += np.bincount(part.read(start, stop), minlength=size)
        return counts

    @property
    def labels(self) -> np.ndarray:
        """Every document's label, int32."""
        return np.concatenate([part.labels for part in self.parts])

    @property
    def fingerprint(self) -> str:
        """The sha256 of the parts' contents and their fractions, in hex."""
        if len(self.parts) == 1:
            return self.parts[0].fingerprint
        pairs = zip(self.parts, self.fractions, strict=True)
        text = " ".join(f"{part.fingerprint} {fraction!r}" for part, fraction in pairs)
        text += f" {self.stages!r}" * bool(self.stages)
        return hashlib.sha256(text.encode()).hexdigest()


def load_text(
    spec: TextSpec,
    tokenizer: Tokenizer | None = None,
    *,
    workers: int = 0,
    reporter: Reporter = Reporter(),
) -> tuple[Tokenizer, dict[str, Split]]:
    """Loads the splits "train", "valid" and, if set, "heldout"; prepares the text.

    Args:
      tokenizer: None means the spec's, which is read from a file or trained on the
        training text.
      workers: tokenizing processes; 0 means one per core. The result is independent of
        it.
    """
    tokenizer, stores, valid_store = open_stores(
        spec, tokenizer, workers=workers, reporter=reporter
    )
    corpora = [_split(store, spec, valid_store is not None) for store, _ in stores]
    for (source, _), corpus in zip(spec.sources, corpora, strict=True):
        if is_language(source.path):
            fresh = load_place(f"{FRESH}:find_fresh")(source.path, tokenizer)
            corpus["train"] = dataclasses.replace(corpus["train"], fresh=fresh)
    if valid_store is not None:
        valid = _main(valid_store)
        _check_tokens(valid, "valid", spec.valid_path)
    weights = [weight for _, weight in stores]
    fractions = _fractions(spec, weights, [splits["train"] for splits in corpora])
    splits = {}
    for name in corpora[0]:
        if name == "valid" and valid_store is not None:
            continue
        parts = [corpus[name] for corpus in corpora]
        splits[name] = (parts, fractions)
    if valid_store is not None:
        splits["valid"] = ([valid], (1.0,))
    stages = _stage(spec, [corpus["train"] for corpus in corpora])
    names = sorted(
        {
            label
            for parts, _ in splits.values()
            for part in parts
            for label in part.label_names
        }
    )
    order = ("train", "valid", "heldout")
    return tokenizer, {
        name: Split(
            tuple(_relabel(part, names) for part in splits[name][0]),
            splits[name][1],
            stages if name == "train" else (),
        )
        for name in order
        if name in splits
    }


def hold_out(split: Split, fraction: float) -> tuple[Split, Split]:
    """Splits off a fraction for tuning, which is separate from the validation split.

    It consists of evenly spaced whole documents of each part, or of the end of a part
    with too few documents.
    """
    pairs = [_hold_out(part, Fraction(str(fraction))) for part in split.parts]
    rest, heldout = zip(*pairs, strict=True)
    return (
        Split(rest, split.fractions, split.stages),
        Split(heldout, split.fractions),
    )


def _hold_out(corpus: Corpus, fraction: Fraction) -> tuple[Corpus, Corpus]:
    is_held = _spread(len(corpus.labels), fraction)
    if is_held.any() and not is_held.all():
        parts = select(corpus, ~is_held, "rest"), select(corpus, is_held, "held")
    else:
        size = corpus.num_tokens
        border = int((1 - fraction) * size)
        parts = cut(corpus, 0, border, "rest"), cut(corpus, border, size, "held")
    if not all(part.num_tokens for part in parts):
        raise DataError(
            f"compare.tune_fraction={float(fraction)}: leaves nothing of a text of "
            f"{corpus.num_tokens} tokens for training, or nothing for tuning"
        )
    return parts


def _whole(store: Store) -> Corpus:
    num_tokens, answers = store.tokens.num_tokens, None
    if any("language" in about for about in store.card["sources"]):
        answers = load_place(f"{FRESH}:mark_answers")(store)
    return Corpus(
        stream=store.tokens,
        run_starts=np.zeros(1, np.int64),
        run_offsets=np.array([0, num_tokens], np.int64),
        doc_starts=store.doc_starts,
        labels=store.labels,
        label_names=tuple(store.card["label_names"]),
        sentence_starts=store.sentence_starts,
        byte_stream=store.token_bytes,
        fingerprint=store.fingerprint,
        answers=answers,
    )


def _main(store: Store) -> Corpus:
    """The store's documents except those held out."""
    whole, num_main = _whole(store), store.card["num_main"]
    if num_main == len(whole.labels):
        return whole
    return select(whole, np.arange(len(whole.labels)) < num_main, "main")


def _split(store: Store, spec: TextSpec, has_valid: bool) -> dict[str, Corpus]:
    """Splits a store; one corpus per split."""
    path = store.card["path"]
    main, num_main = _main(store), store.card["num_main"]
    # Exact, as (1 - 0.1) * 80000 and 3 * 0.1 are not whole numbers in floats.
    fraction = Fraction(str(float(spec.valid_fraction)))
    by_documents = spec.split == "documents"
    if spec.split == "auto":
        by_documents = int(num_main * fraction) >= 1 and num_main > 1
    if has_valid:
        splits = {"train": main}
    elif by_documents:
        is_valid = _spread(num_main, fraction)
        if not is_valid.any() or is_valid.all():
            raise DataError(
                f"data.split='documents': {num_main} document(s) leave none for valid "
                f"at data.valid_fraction {float(fraction)}; use data.split=position"
            )
        splits = {
            "train": select(main, ~is_valid, "train"),
            "valid": select(main, is_valid, "valid"),
        }
    else:
        border = int((1 - fraction) * main.num_tokens)
        if border == 0:
            raise DataError(
                f"data.valid_fraction={float(fraction)}: of {main.num_tokens} tokens "
                "nothing is left for train"
            )
        splits = {
            "train": cut(main, 0, border, "train"),
            "valid": cut(main, border, main.num_tokens, "valid"),
        }
    if spec.heldout_chars:
        whole = _whole(store)
        is_out = np.arange(len(whole.labels)) >= num_main
        splits["heldout"] = select(whole, is_out, "heldout")
    for name, part in splits.items():
        _check_tokens(part, name, path)
    return splits


def _check_tokens(part: Corpus, name: str, path: str) -> None:
    if not part.num_tokens:
        raise DataError(
            f"data.path={path}: the {name} split has no token; "
            "it needs more text, or a tokenizer that knows its characters"
        )


def _spread(num: int, fraction: Fraction) -> np.ndarray:
    """A bool array [num] that is True at a fraction of the items, evenly spaced."""
    counts = [i * fraction.numerator // fraction.denominator for i in range(num + 1)]
    return np.diff(np.array(counts, np.int64)) > 0


def _stage(
    spec: TextSpec, trains: list[Corpus]
) -> tuple[tuple[float, tuple[float, ...]], ...]:
    """The sources' fractions from a fraction of the run on; () if they are constant."""
    if not spec.mixture_stages:
        return ()
    stages = [
        (start, _fractions(spec, list(weights), trains))
        for start, weights in spec.mixture_stages
    ]
    for _, fractions in stages:
        check_weights(fractions, "data.mixture_stages", is_stage=True)
    return tuple(expand(stages, spec.mixture_change == "linear"))


def _fractions(
    spec: TextSpec, weights: list[float], trains: list[Corpus]
) -> tuple[float, ...]:
    """Each source's fraction of the rows.

    Weights by documents are multiplied by a source's mean document length.
    """
    if spec.mixture_unit == "documents":
        weights = [
            weight * train.num_tokens / len(train.labels)
            for weight, train in zip(weights, trains, strict=True)
        ]
    return tuple(weight / sum(weights) for weight in weights)


def _relabel(part: Corpus, names: list[str]) -> Corpus:
    """The same documents with labels that index `names`."""
    if list(part.label_names) == names:
        return part
    ids = {name: i for i, name in enumerate(names)}
    new_ids = np.array([ids[n] for n in part.label_names] + [-1], np.int32)
    return dataclasses.replace(
        part, labels=new_ids[part.labels], label_names=tuple(names)
    )


def has_labels(corpora: dict[str, Split]) -> bool:
    """Whether a probe can be trained: the splits have at least two common labels."""
    train, valid = (
        set(corpora[s].labels[corpora[s].labels >= 0]) for s in ("train", "valid")
    )
    return len(train) >= 2 and len(train & valid) >= 2
