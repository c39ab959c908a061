"""What a file of JSON must be to be read."""

import json
import math
import numbers

import pytest

from jaxpt.files import schema

FORM = {
    "name": str,
    "step": int,
    "loss": (numbers.Real, None),
    "share?": float,
    "kind?": {"a", "b"},
    "runs?": [{"seed": range(3)}],
    str: object,
}
GOOD = {"name": "x", "step": 0, "loss": None}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"loss": math.nan},
        {"loss": 3},
        {"share": 1},
        {"kind": "b", "runs": []},
        {"runs": [{"seed": 2, "also": 1}]},
        {"new": [[]]},
    ],
)
def test_what_has_the_schema_is_returned(more):
    text = json.dumps(GOOD | more)
    assert str(schema.parse(text, FORM)) == str(GOOD | more)  # NaN is not NaN


@pytest.mark.parametrize(
    "more, message",
    [
        ({"name": 3}, "name is 3; must be a string"),
        ({"step": True}, "step is True; must be a whole number, at least 0"),
        ({"step": -1}, "step is -1"),
        ({"step": 1.0}, "step is 1.0"),
        ({"step": 1 << 63}, "step is 9223372036854775808"),
        ({"loss": "1"}, "loss is '1'; must be a number or null"),
        ({"loss": 10**400}, "loss is 1000"),
        ({"share": math.inf}, "share is inf; must be a finite number"),
        ({"share": False}, "share is False"),
        ({"kind": "c"}, "kind is 'c'; must be one of a, b"),
        ({"runs": {}}, "runs is {}; must be a list"),
        ({"runs": [{"seed": 0}, {"seed": 3}]}, "runs[1].seed is 3; must be a whole"),
        ({"runs": [{}]}, "runs[0] has no seed"),
        ({"name": "x" * 10**6}, ""),
    ],
)
def test_what_has_not_is_named(more, message):
    if not message:
        schema.parse(json.dumps(GOOD | more), FORM)
        return
    with pytest.raises(ValueError) as caught:
        schema.parse(json.dumps(GOOD | more), FORM)
    assert str(caught.value).startswith(message) and len(str(caught.value)) < 200


@pytest.mark.parametrize("name, shown", [("abc", "abc"), ("a\nb", r"a\nb"), ("", "it")])
def test_any_name_is_shown_whole_and_in_one_line(name, shown):
    with pytest.raises(ValueError) as caught:
        schema.check({name: 1}, {str: str})
    assert str(caught.value).startswith(f"{shown} is 1; must be")


@pytest.mark.parametrize("name", ["name", "step", "loss"])
def test_a_name_that_is_missing_is_named(name):
    value = {key: each for key, each in GOOD.items() if key != name}
    with pytest.raises(ValueError, match=f"^has no {name}$"):
        schema.parse(json.dumps(value), FORM)


@pytest.mark.parametrize(
    "text, message",
    [
        ("[]", r"^not a JSON object: \[\]$"),
        ("null", "^not a JSON object: None$"),
        ("", "^not JSON: Expecting value"),
        (b"\xff{}", "^not JSON: "),
        ("[" * 100_000, "^not JSON of at most 64 levels$"),
        ('{"new": ' + "[" * 64 + "]" * 64 + "}", "^not JSON of at most 64 levels$"),
        ("1" * 5000, "^not JSON: Exceeds the limit"),
        (" " * (schema.MAX_BYTES + 1), "^is larger than 256 MiB$"),
    ],
)
def test_what_is_no_object_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        schema.parse(text, FORM)


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"a": NaN}'])
def test_strict_json_is_that_of_others(text):
    schema.parse(text)
    with pytest.raises(ValueError, match="^not JSON: "):
        schema.parse(text, is_strict=True)
