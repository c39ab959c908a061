"""Properties of a tokenizer of the `tokenizers` library, whatever its model."""

import json

import tokenizers

from jaxpt.errors import DataError


def check_ids(core: tokenizers.Tokenizer) -> None:
    """Checks that ids are 0, 1, 2, ... and each is used once.

    Before `core.to_str`, whose memory is proportional to the largest id.
    """
    ids = core.get_vocab(with_added_tokens=True).values()
    known = set(ids)
    if missing := [i for i in range(len(known)) if i not in known]:
        # The ids of Unigram are places in a list, and the last of equal pieces counts.
        pieces = core.get_vocab(with_added_tokens=False).values()
        is_list = isinstance(core.model, tokenizers.models.Unigram)
        if is_list and missing[0] < max(pieces, default=0):
            raise DataError("its vocabulary has a piece twice")
        raise DataError(f"its ids have a hole: no token is {missing[0]}")
    if len(known) < len(ids):
        raise DataError("its ids must be used once each: two tokens share one")


def dump_core(data: dict) -> bytes:
    """The bytes of a `tokenizer.json`."""
    return (json.dumps(data, ensure_ascii=False, indent=1) + "\n").encode()


def is_byte_level(data: dict) -> bool:
    """Whether tokens are bytes, each written as one character, as in GPT-2."""
    steps = flatten_steps(data["pre_tokenizer"])
    return any(step["type"] == "ByteLevel" for step in steps)


def flatten_steps(step: dict | None) -> list[dict]:
    """The steps of a normalizer or pre-tokenizer, with sequences flattened."""
    if step is None:
        return []
    if step["type"] != "Sequence":
        return [step]
    inner = step.get("normalizers", step.get("pretokenizers", []))
    return [each for part in inner for each in flatten_steps(part)]
