"""The types of settings, which a spec declares with its fields, and their check.

    class Spec(Settings):
        SECTION: ClassVar[str] = "train"
        steps: PositiveInt = 1000
        backend: Annotated[str, OneOf("jit", "pmap")] = "jit"

A type is bool, int, float, str, dict, a tuple of types, or one of these with limits
(`typing.Annotated`). An int is not a bool, and fits in int32 unless its limits are
others; a float may be a whole number, and is finite in float32; a str can be encoded,
has no NUL and at most MAX_TEXT characters. What depends on several settings is checked
by their spec.

The content of stored files has another check, which says why: `jaxpt.files.schema`.
"""

import dataclasses
import functools
import itertools
import types
import typing
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any, ClassVar

from jaxpt.errors import ConfigError

MAX_INT32, MAX_INT64 = 2**31 - 1, 2**63 - 1
MAX_TEXT = 4096  # characters, as of the longest path
MIN_FLOAT32, MAX_FLOAT32 = 1.1754944e-38, 3.4028234e38  # the least one is normal
NOUNS = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: f"a text of at most {MAX_TEXT} characters, without NUL",
    dict: "sections of settings",
}
PLURALS = {int: "whole numbers", float: "numbers", str: "texts"}
SHOWN, MAX_ALLOWED = 100, 1000  # characters of a value, of allowed values


@dataclasses.dataclass(frozen=True)
class Limits:
    """The values of a number.

    Attributes:
      least, most: that are allowed.
      above, below: that are not.
      other: a value outside them that is allowed, too.

    >>> str(Limits(least=0, below=1, other=-1)), Limits(above=0).allows(float("nan"))
    ('-1, or at least 0 and below 1', False)
    """

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    other: float | None = None

    def allows(self, value: float) -> bool:
        """Whether a number is within the limits."""
        return value == self.other or (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    @property
    def is_bounded(self) -> bool:
        """Whether there is a bound on both sides."""
        has_low = self.least is not None or self.above is not None
        return has_low and (self.most is not None or self.below is not None)

    def __str__(self) -> str:
        least, most, above, below = (
            None if x is None else f"{x:.15g}"
            for x in (self.least, self.most, self.above, self.below)
        )
        if least and most:
            text = f"from {least} to {most}"
        elif above and below:
            text = f"between {above} and {below}, both excluded"
        else:
            low = f"at least {least}" if least else f"above {above}"
            text = f"{low} and below {below}" if below else low
            text = f"{low}, at most {most}" if most else text
        return text if self.other is None else f"{self.other:g}, or {text}"


@dataclasses.dataclass(frozen=True, init=False)
class OneOf:
    """The allowed texts.

    >>> str(OneOf("jit", "pmap")), str(OneOf("", "line"))
    ('one of jit, pmap', "one of '', line")
    """

    choices: tuple[str, ...]

    def __init__(self, *choices: str):
        object.__setattr__(self, "choices", choices)

    def allows(self, value: str) -> bool:
        """Whether a text is one of them."""
        return value in self.choices

    def __str__(self) -> str:
        return f"one of {', '.join(each or repr(each) for each in self.choices)}"


@dataclasses.dataclass(frozen=True)
class Length:
    """The number of values in a list, and whether they differ.

    >>> str(Length(1, is_distinct=True)), Length(1).allows(())
    ('one or more, each once', False)
    """

    least: int = 0
    is_distinct: bool = False

    def allows(self, values: tuple) -> bool:
        """Whether a list is of such a length, without repeats."""
        is_good = not self.is_distinct or len(set(values)) == len(values)
        return is_good and len(values) >= self.least

    def __str__(self) -> str:
        numbers = {0: "", 1: "one or more", 2: "two or more"}
        parts = numbers[self.least], "each once" if self.is_distinct else ""
        return ", ".join(filter(None, parts))


@dataclasses.dataclass(frozen=True)
class Rule:
    """Any other condition, and what an error says of it, which then is all it says."""

    allows: Callable[[Any], bool]
    text: str

    def __str__(self) -> str:
        return self.text


PositiveInt = Annotated[int, Limits(least=1)]
NonNegativeInt = Annotated[int, Limits(least=0)]
PositiveFloat = Annotated[float, Limits(above=0)]
NonNegativeFloat = Annotated[float, Limits(least=0)]
Fraction = Annotated[float, Limits(least=0, most=1)]
PositiveFraction = Annotated[float, Limits(above=0, most=1)]
InnerFraction = Annotated[float, Limits(above=0, below=1)]
BelowOne = Annotated[float, Limits(least=0, below=1)]


class Settings:
    """The base of a spec: a frozen dataclass whose fields are settings of a section.

    Fields that are not settings have the metadata "source" (`jaxpt.objectives.spec`),
    or are specs themselves.
    """

    SECTION: ClassVar[str]

    def __post_init__(self) -> None:
        types = list_types(type(self))
        self.check_types({name: getattr(self, name) for name in types})
        for name, kind in types.items():
            object.__setattr__(self, name, convert(getattr(self, name), kind))

    @classmethod
    def full_name(cls, name: str) -> str:
        """The name of a setting with its section."""
        return f"{cls.SECTION}.{name}"

    @classmethod
    def check_types(cls, values: dict[str, Any]) -> None:
        """Raises ConfigError unless settings are of their declared types."""
        kinds = list_types(cls)
        for name, value in values.items():
            if name in kinds:
                check_value(cls.full_name(name), value, kinds[name])

    def changed(self) -> dict[str, Any]:
        """The fields that differ from their defaults, or have none."""
        spec: Any = self
        fields = [(f, getattr(spec, f.name)) for f in dataclasses.fields(spec)]
        return {f.name: value for f, value in fields if value != f.default}

    def check(self, name: str, is_good: bool, allowed: str) -> None:
        """Raises ConfigError with the setting, its value and what is allowed."""
        if not is_good:
            raise refuse(self.full_name(name), getattr(self, name), allowed)

    def check_all(self, rules: typing.Iterable[tuple[str, bool, str]]) -> None:
        """`check` of each (name, is_good, allowed), in order."""
        for rule in rules:
            self.check(*rule)


def list_types(spec: Any) -> dict[str, Any]:
    """The types of a spec's fields that are settings."""
    return _read_types(spec)


@functools.cache
def _read_types(spec: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(spec, include_extras=True)
    fields = [f.name for f in dataclasses.fields(spec) if "source" not in f.metadata]
    return {k: hints[k] for k in fields if not dataclasses.is_dataclass(hints[k])}


def check_value(name: str, value: Any, kind: Any) -> None:
    """Raises ConfigError unless a setting's value is of its declared type.

    Args:
      name: the setting's full name, for errors.

    >>> check_value("train.steps", 0, PositiveInt)
    Traceback (most recent call last):
    jaxpt.errors.ConfigError: train.steps=0: must be at least 1
    >>> check_value("ul2.rates", (1, "a"), tuple[float, ...])
    Traceback (most recent call last):
    jaxpt.errors.ConfigError: ul2.rates=(1, 'a'): must be a list of numbers
    """
    if not fits(value, kind):
        raise refuse(name, value, describe_type(kind, value))


def refuse(name: str, value: Any, allowed: str) -> ConfigError:
    """The error of a value that is not allowed."""
    return ConfigError(f"{name}={show_value(value)}: must be {allowed[:MAX_ALLOWED]}")


def show_value(value: Any) -> str:
    """A value as an error shows it: a flag's text, or a short form of it.

    >>> show_value("words"), show_value(""), show_value("x" * 1000)[-8:]
    ('words', "''", 'xxxxx...')
    """
    try:
        is_plain = isinstance(value, str) and value.isprintable() and value != ""
        text = value if is_plain else repr(as_tuples(value))
    except (RecursionError, ValueError):  # an int of more than 4300 digits
        return f"a very large {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a declared type and within its limits.

    >>> fits(1, float), fits(True, int), fits(2**31, int), fits((1,), tuple[int, int])
    (True, False, False, False)
    """
    base, limits = split_type(kind)
    if isinstance(base, types.UnionType):
        return any(fits(value, each) for each in typing.get_args(base))
    if typing.get_origin(base) is tuple:
        items = _item_types(base, value) if isinstance(value, tuple | list) else None
        if items is None or not all(map(fits, value, items)):
            return False
    elif base is float or base is int:
        if isinstance(value, bool) or not isinstance(value, int | base):
            return False
        if not _fits_number(value, base, limits):
            return False
    elif not isinstance(base, type):  # of a spec outside jaxpt
        return True
    elif not isinstance(value, base):
        return False
    elif isinstance(value, str) and not _is_text(value):
        return False
    elif base is dict and not _is_plain(value):
        return False
    return all(limit.allows(value) for limit in limits)


def _fits_number(value: float, base: type, limits: Collection[Any]) -> bool:
    """Whether a number fits in int32 or float32, or in its own wider limits."""
    of_number = [limit for limit in limits if isinstance(limit, Limits)]
    if base is int:
        most = max([limit.most or 0 for limit in of_number] + [MAX_INT32])
        return -MAX_INT32 <= value <= most
    if any(limit.above == 0 for limit in of_number) and 0 < value < MIN_FLOAT32:
        return False
    return _is_finite(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_finite(value: float) -> bool:
    """In float32."""
    return abs(value) <= MAX_FLOAT32


def _item_types(base: Any, values: tuple | list) -> list | None:
    """The type of each value of a tuple; None if it has another length."""
    items = typing.get_args(base)
    if len(items) == 2 and items[1] is ...:
        return [items[0]] * len(values)
    return list(items) if len(items) == len(values) else None


def _is_text(value: str) -> bool:
    """Whether a text can be written, as the name of a file, too."""
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return "\0" not in value and len(value) <= MAX_TEXT


def _is_plain(value: Any) -> bool:
    """Whether a value is JSON: texts, finite numbers, None, lists or dicts of these."""
    if isinstance(value, dict):
        return all(isinstance(k, str) and _is_plain(v) for k, v in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, str):
        return _is_text(value)
    if isinstance(value, int | float):
        return _is_finite(value)
    return value is None


def split_type(kind: Any) -> tuple[Any, tuple]:
    """A type without its limits, and these.

    >>> split_type(Annotated[int, Limits(least=2)])[0], split_type(str)
    (<class 'int'>, (<class 'str'>, ()))
    """
    if typing.get_origin(kind) is Annotated:
        return kind.__origin__, kind.__metadata__
    return kind, ()


def strip(kind: Any) -> Any:
    """A type in Python's plain syntax, without limits.

    >>> strip(tuple[tuple[Fraction, PositiveInt], ...])
    tuple[tuple[float, int], ...]
    """
    base, _ = split_type(kind)
    if typing.get_origin(base) is tuple:
        items = (x if x is ... else strip(x) for x in typing.get_args(base))
        return types.GenericAlias(tuple, tuple(items))
    return base


def describe_type(kind: Any, value: Any = None) -> str:
    """The allowed values of a type, for an error.

    Args:
      value: that is not allowed; of the type itself if only a limit refuses it.

    >>> describe_type(PositiveInt), describe_type(PositiveInt, 0)
    ('a whole number, at least 1', 'at least 1')
    >>> describe_type(PositiveInt, 10**40), describe_type(tuple[str, ...])
    ('from 1 to 2147483647', 'a list of texts')
    >>> describe_type(tuple[Fraction, Fraction])
    'a list of 2 numbers, each from 0 to 1'
    """
    base, limits = split_type(kind)
    if isinstance(base, types.UnionType):
        base = next(each for each in typing.get_args(base) if each in NOUNS)
    if rules := [limit for limit in limits if isinstance(limit, Rule | OneOf)]:
        return str(rules[0])
    texts = [text for text in map(str, limits) if text]
    if typing.get_origin(base) is tuple:
        return ", ".join([_describe_list(base, value), *texts])
    is_number = base in (int, float)
    is_type = (
        is_number and isinstance(value, int | base) and not isinstance(value, bool)
    )
    if not is_type:
        return ", ".join([NOUNS.get(base, f"a {base}"), *texts])
    if base is int and not -MAX_INT32 <= value <= MAX_INT32:
        own = next((x for x in limits if isinstance(x, Limits)), Limits())
        if own.most is None:
            least = -MAX_INT32 if own.least is own.above is None else own.least
            return str(dataclasses.replace(own, least=least, most=MAX_INT32))
    is_bounded = any(isinstance(x, Limits) and x.is_bounded for x in limits)
    if base is float and not is_bounded and not _is_finite(value):
        texts.append("finite in float32")
    if base is float and 0 < abs(value) < MIN_FLOAT32:
        texts.append(f"normal in float32 (from {MIN_FLOAT32:.3g})")
    return ", ".join(texts)


def _describe_list(base: Any, value: Any) -> str:
    items = typing.get_args(base)
    kinds = [split_type(item) for item in items if item is not ...]
    number = "" if items[-1] is ... else f"{len(items)} "
    inner, limits = kinds[0]
    if typing.get_origin(inner) is tuple:
        return f"a list of {number}lists"
    texts = [f", each {limit}" for limit in limits if str(limit)]
    values = value if isinstance(value, tuple | list) else ()
    if inner is float and not all(_is_finite(x) for x in values if _is_number(x)):
        texts.append(", each finite in float32")
    return f"a list of {number}{PLURALS.get(inner, inner)}{''.join(texts)}"


def convert(value: Any, kind: Any) -> Any:
    """A value of a type as a spec has it: JSON's lists as tuples.

    A whole number that is not in int32, which JAX would not take, is a float if the
    type is.

    >>> convert([[0.5, 2**31]], tuple[tuple[float, float], ...])
    ((0.5, 2147483648.0),)
    """
    base, _ = split_type(kind)
    if typing.get_origin(base) is tuple:
        return tuple(map(convert, value, _item_types(base, value) or ()))
    is_large = isinstance(value, int) and abs(value) > MAX_INT32
    return float(value) if base is float and is_large else value


def as_tuples(value: Any) -> Any:
    """A setting's value, with lists as tuples.

    >>> as_tuples([[0.25, 0], [1, 1]])
    ((0.25, 0), (1, 1))
    """
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value


def is_schedule(pairs: Sequence[tuple[float, float]]) -> bool:
    """Whether `until` rises in pairs (until, value), from above 0 to at most 1."""
    ends = [0, *(until for until, _ in pairs)]
    return all(a < b <= 1 for a, b in itertools.pairwise(ends))
