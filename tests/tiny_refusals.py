"""Tables of settings that are refused: one parametrized test for a subpackage."""

import functools
import math
import re

import pytest


def refused(make, section, table, *args, **settings):
    """The cases of a table for `parametrize("make, parts", ...)`, one a bad setting.

    Cases are separated by semicolons or line ends. A case is the setting that the
    message begins with, as it is shown there; after "&", settings that are passed with
    it; and what the message has next, ": must " if the case has nothing. " ... "
    stands for any text. `make(*args, **settings)` with the case's settings must raise
    a UserError. The section of arguments is "".

    >>> table = "rate=0.0; size=3 & kind=b: must be 1 ... of kind b; size=4 ... rate="
    >>> for case in refused(dict, "mlm", table):
    ...     make, parts = case.values
    ...     print(make(), parts)
    {'rate': 0.0} ('mlm.rate=0.0: must ',)
    {'size': 3, 'kind': 'b'} ('mlm.size=3: must be 1', 'of kind b')
    {'size': 4} ('mlm.size=4', 'rate=')
    """
    cases = []
    for case in filter(str.strip, table.replace("\n", ";").split(";")):
        assignments, *rest = re.split(r"(: | \.\.\. )", case.strip(), maxsplit=1)
        pairs = [pair.split("=", 1) for pair in assignments.split(" & ")]
        values = {name: _read(value) for name, value in pairs}
        call = functools.partial(make, *args, **settings | values)
        message = "".join(("=".join(pairs[0]), *(rest or [": must "])))
        prefix = f"{section}." if section else ""
        parts = tuple(f"{prefix}{message}".split(" ... "))
        cases.append(pytest.param(call, parts, id=f"{prefix}{assignments}"))
    return cases


def _read(text):
    """A setting's value: a Python literal, with nan and inf, or else a string."""
    names = {"__builtins__": {}, "nan": math.nan, "inf": math.inf}
    try:
        return eval(text, names)
    except (SyntaxError, NameError):
        return text


def check_refusal(make, parts, refuses):
    """The error's message, which begins with the first part and has the others."""
    with refuses(*parts) as caught:
        make()
    assert str(caught.value).startswith(parts[0])
    return str(caught.value)
