"""Languages by name: "hmm:states=64,symbols=128,seed=1", "star:degree=5:valid".

    NAME:PARAMETER=VALUE,...        the training text
    NAME:PARAMETER=VALUE,...:valid  its validation text: documents of another stream

Parameters that are not named have their defaults, those of the module's `Spec`. The
same parameters are the same language: `seed` draws another one of the kind.
"""

import dataclasses
import functools
import hashlib
import json
from typing import Any

import numpy as np

from jaxpt.by_name import load_place
from jaxpt.errors import ConfigError, DataError, suggest
from jaxpt.languages import LANGUAGES, is_language
from jaxpt.languages.language import Language
from jaxpt.languages.spec import MAX_SYMBOLS, LanguageSpec
from jaxpt.setting_types import list_types, split_type

SPLITS = ("train", "valid")
FRESH, FINITE, VALID = range(3)  # streams of documents
MAX_ATTEMPTS = 100  # to draw a document that is not in the validation text
# Documents that are checked, of which at most this share may be about that of
# validation: of 100 attempts, all fail for one document in 10^30.
NUM_CHECKED, MAX_HELD = 256, 0.5
# Of what text is made, in the order of their codes: digits and letters, which no rule
# for sentences or words cuts.
_BLOCKS = ((0x30, 0x3A), (0x41, 0x5B), (0x61, 0x7B), (0xC0, 0x250), (0x4E00, 0xA000))
_CODES = (code for block in _BLOCKS for code in range(*block))
CHARACTERS = "".join(chr(code) for code in _CODES if code not in (0xD7, 0xF7))
# Words for yes and no, as a flag of the command line has them.
_BOOLS = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}


@dataclasses.dataclass(frozen=True, eq=False)
class NamedLanguage:
    """A language with the parameters by which it was named.

    Attributes:
      path: the name with all parameters that are not defaults, without the split.
    """

    path: str
    spec: LanguageSpec
    language: Language

    @property
    def characters(self) -> str:
        """The character of each symbol, in order."""
        return CHARACTERS[: self.language.num_symbols]

    @property
    def fingerprint(self) -> str:
        """The sha256 of the first documents, in hex: it changes with the language."""
        rows = self.read(FINITE, np.arange(64))
        about = [self.path, self.language.num_symbols, rows.tolist()]
        return hashlib.sha256(json.dumps(about).encode()).hexdigest()

    def count_documents(self, split: str) -> int:
        """The documents of the finite text of a split."""
        spec = self.spec
        return spec.valid_documents if split == "valid" else spec.documents

    def read(self, stream: int, numbers: np.ndarray) -> np.ndarray:
        """Documents of a stream, symbols int32 [N, T]: a function of their numbers.

        A document of training that is about the same as one of validation
        (`Language.identify`) is drawn again.
        """
        rows = self.draw(stream, numbers)
        todo = np.arange(len(rows))
        for attempt in range(1, MAX_ATTEMPTS if stream != VALID else 0):
            identities = self.language.identify(rows[todo])
            if identities is None:
                break
            todo = todo[np.isin(identities, self.held)]
            if not len(todo):
                break
            rows[todo] = self.draw(stream, numbers[todo], attempt)
        return rows

    def draw(self, stream: int, numbers: np.ndarray, attempt: int = 0) -> np.ndarray:
        """Documents of a stream, also those that are in the validation text."""
        language = self.language
        if stream == VALID:
            language = language.for_validation()
        length = self.spec.document_length
        num_draws = language.count_draws(length)
        draws = np.empty((len(numbers), num_draws))
        for row, number in zip(draws, numbers.tolist(), strict=True):
            key = np.array([self.spec.seed * 4 + stream, number], np.uint64)
            counter = np.array([0, 0, 0, attempt], np.uint64)
            bits = np.random.Philox(key=key, counter=counter).random_raw(num_draws)
            row[:] = (bits >> np.uint64(11)) * 2.0**-53
        return language.build(draws, length)

    @functools.cached_property
    def held(self) -> np.ndarray:
        """What the validation text is about, which training does not read."""
        rows = self.read(VALID, np.arange(self.spec.valid_documents))
        identities = self.language.identify(rows)
        return np.unique(identities if identities is not None else np.zeros(0))

    def write(self, rows: np.ndarray) -> list[str]:
        """Documents as texts, a character for each symbol."""
        letters = np.array(list(self.characters))
        return ["".join(row) for row in letters[rows].tolist()]


def find_spec(path: str) -> type[LanguageSpec]:
    """The kind of parameters of a language's path."""
    if not is_language(path):
        names = ", ".join(f"{name}:" for name in LANGUAGES)
        raise DataError(f"data.path={path}: must begin with one of {names}")
    kind: type[LanguageSpec] = load_place(f"{LANGUAGES[path.partition(':')[0]]}:Spec")
    return kind


def split_path(path: str) -> tuple[str, str]:
    """The path without its split, and the split.

    >>> split_path("hmm:states=8:valid"), split_path("copy:")
    (('hmm:states=8', 'valid'), ('copy:', 'train'))
    """
    name, _, rest = path.partition(":")
    parameters, colon, split = rest.partition(":")
    if colon and split not in SPLITS:
        raise DataError(
            f"data.path={path}: the split {split!r} must be one of {', '.join(SPLITS)}"
        )
    return f"{name}:{parameters}", split or "train"


@functools.lru_cache(maxsize=16)
def read_language(path: str) -> NamedLanguage:
    """The language of a path; its split is not read.

    Raises:
      DataError: a parameter is unknown or out of range, or the parameters give no
        language.

    >>> print(read_language("hmm:symbols=16,states=4,seed=0").path)
    hmm:states=4,symbols=16
    >>> read_language("star:names=3")
    Traceback (most recent call last):
    jaxpt.errors.DataError: data.path=star:names=3: names=3: must be at least 9, the \
nodes of a graph of degree=2 and arm=5
    """
    whole, _ = split_path(path)
    name, _, text = whole.partition(":")
    kind = find_spec(path)
    try:
        spec = kind(**_parse(text, kind))
        language = spec.make(np.random.default_rng(spec.seed))
        _check_size(language)
        named = NamedLanguage(f"{name}:{_describe(spec)}", spec, language)
        _check_disjoint(named)
    except ConfigError as error:
        raise DataError(f"data.path={path}: {error}") from error
    return named


def _parse(text: str, kind: type[LanguageSpec]) -> dict[str, Any]:
    types, values = list_types(kind), {}
    for entry in filter(None, text.split(",")):
        name, equals, value = entry.partition("=")
        if name not in types:
            hint = suggest(name, types)
            raise ConfigError(
                f"{name}: unknown parameter{hint}; the parameters are "
                f"{', '.join(types)}"
            )
        if not equals:
            raise ConfigError(f"{entry}: must be PARAMETER=VALUE")
        if name in values:
            raise ConfigError(f"{name}={value}: must be named once")
        values[name] = _read_value(value, split_type(types[name])[0])
    return values


def _read_value(text: str, kind: type) -> Any:
    """A value of a type; the text itself, which the type refuses, if it is none."""
    if kind is bool:
        return _BOOLS.get(text.lower(), text)
    try:
        return kind(text)
    except ValueError:
        return text


def _describe(spec: LanguageSpec) -> str:
    """The parameters that are not defaults, in the order of the spec."""
    default = type(spec)()
    names = [f.name for f in dataclasses.fields(spec)]
    common = [f.name for f in dataclasses.fields(LanguageSpec)]
    ordered = [n for n in names if n not in common] + common
    return ",".join(
        f"{name}={getattr(spec, name)}"
        for name in ordered
        if getattr(spec, name) != getattr(default, name)
    )


def _check_size(language: Language) -> None:
    if language.num_symbols > MAX_SYMBOLS:
        raise ConfigError(
            f"{language.num_symbols} symbols in all: must be at most {MAX_SYMBOLS}"
        )


def _check_disjoint(named: NamedLanguage) -> None:
    """Refuses a task whose validation text has most of what there is."""
    rows = named.draw(FINITE, np.arange(NUM_CHECKED))
    identities = named.language.identify(rows)
    if identities is None:
        return
    share = float(np.isin(identities, named.held).mean())
    named.spec.check(
        "valid_documents",
        share <= MAX_HELD,
        f"fewer, or the other parameters larger: {share:.0%} of all documents are "
        "about what the validation text is about, and training may not read them",
    )
