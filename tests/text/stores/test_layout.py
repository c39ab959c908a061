"""Where documents, [EOS] and sentences fall."""

import dataclasses
import json

import numpy as np

from jaxpt.text.stores.layout import Encoded, Layout, Pieces


def add(layout, pieces):
    """Adds pieces (count, start?, held out?, label, sentence starts)."""
    counts, is_start, is_heldout, labels, sentences = zip(*pieces, strict=True)
    starts = np.cumsum([0, *counts[:-1]])
    tokens, arrays = layout.add(
        Pieces(
            np.array(is_start),
            np.array(is_heldout),
            list(labels),
            np.array(counts, np.int64) * 10,
        ),
        Encoded(
            np.arange(sum(counts), dtype="<u2"),
            np.array(counts, np.int64),
            np.array(
                [
                    s + at
                    for at, some in zip(starts, sentences, strict=True)
                    for s in some
                ],
                np.int64,
            ),
            1,
            np.array([], "<u4"),
        ),
    )
    return tokens.tolist(), to_lists(arrays)


def to_lists(arrays):
    return {name.removesuffix(".bin"): array.tolist() for name, array in arrays.items()}


def test_by_hand():
    layout = Layout(eos=99, has_sentences=True, has_sizes=False)
    # A document of 3 + 2 tokens, one without a token, one of 2 that continues.
    tokens, arrays = add(
        layout,
        [
            (3, True, False, "x", [0, 2]),
            (2, False, False, "x", []),
            (0, True, False, "y", [0]),
            (2, True, False, "z", [0]),
        ],
    )
    assert tokens == [0, 1, 2, 3, 4, 99, 5, 6]
    assert arrays == {
        "documents": [0],
        "doc_bytes": [50],
        "labels": [0],
        "sentences": [0, 2, 6],
    }
    layout = Layout(**json.loads(json.dumps(dataclasses.asdict(layout))))
    tokens, arrays = add(
        layout, [(1, False, False, "z", [0]), (1, True, True, "x", [0])]
    )
    assert tokens == [0, 99, 1]
    assert arrays == {
        "documents": [6],
        "doc_bytes": [30],
        "labels": [1],
        "sentences": [8, 10],
    }
    tokens, arrays = layout.finish("<u2")
    assert tokens.tolist() == [99]
    assert to_lists(arrays) == {
        "documents": [10, 12],
        "doc_bytes": [10],
        "labels": [0],
        "sentences": [12],
    }
    assert layout.label_names == ["x", "z"]
    assert (layout.num_tokens, layout.num_documents, layout.num_main) == (12, 3, 2)
    assert (layout.num_sentences, layout.num_unknown, layout.dropped) == (5, 2, 1)
    assert layout.num_bytes == 90


def test_one_document_has_no_eos():
    layout = Layout(eos=99, has_sentences=False, has_sizes=False)
    assert add(layout, [(2, True, False, "", [])])[0] == [0, 1]
    # Not even where the rest of it is held out.
    assert add(layout, [(2, True, True, "", [])])[0] == [0, 1]
    assert layout.finish("<u2")[0].tolist() == []
    assert (layout.num_documents, layout.num_main) == (2, 1)


def test_a_sentence_waits_for_its_first_token():
    layout = Layout(eos=None, has_sentences=True, has_sizes=False)
    # The second sentence's first tokens come with the piece after the next.
    assert add(layout, [(2, True, False, "", [0, 2])])[1]["sentences"] == [0]
    assert add(layout, [(0, False, False, "", [])])[1]["sentences"] == []
    assert add(layout, [(3, False, False, "", [2])])[1]["sentences"] == [2, 4]
