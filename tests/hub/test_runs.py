"""A checkpoint of transformers becomes a run, and a run such a checkpoint."""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from hub.test_families import Fixture, roberta_places
from safetensors.numpy import load_file, save_file
from tiny import slow, slow_but

from jaxpt.cli.main import main
from jaxpt.config.plan import make_plan
from jaxpt.config.settings import default_config
from jaxpt.hub.export import export_run, name_ids, write_notes
from jaxpt.hub.family import find_family
from jaxpt.hub.imports import import_run
from jaxpt.learn.state import make_state
from jaxpt.nn.presets import get_preset
from jaxpt.nn.transformer import Transformer
from jaxpt.ops import masks as attention_masks
from jaxpt.runs.checkpoint import Checkpointer
from jaxpt.runs.task import make_task
from jaxpt.runs.workdir import load_run
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.text.tokens.exported import export_tokenizer
from jaxpt.text.tokens.training import train_subword
from jaxpt.text.tokens.vocab import Vocab

SPECIALS = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")
LETTERS = "abcdefghij"
TEXT = " ".join([*LETTERS, *(a + b for a, b in zip(LETTERS, LETTERS[1:] + "a"))])


def make_tokenizer(size=30, pad=0):
    """A WordPiece tokenizer with the number of ids of the fixtures, or 28."""
    specials = list(SPECIALS[1:])
    specials.insert(pad, "pad")
    return train_subword("wordpiece", [TEXT], size, tuple(specials), size - 27)


def write_folder(folder, fixture, changes=None, num_ids=30):
    """A fixture as transformers would have saved it, [PAD] where its places begin."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(fixture.config | (changes or {})))
    save_file(fixture.tensors, folder / "model.safetensors", {"format": "pt"})
    pad = 1 if fixture.config["model_type"] == "roberta" else 0
    export_tokenizer(make_tokenizer(num_ids, pad), folder / "tokenizer.json")
    names = {f"{role}_token": f"[{role.upper()}]" for role in SPECIALS}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))


def settings(tmp_path):
    """Short rows and a text that has words for the tokenizer."""
    config = default_config()
    text = tmp_path / "text.txt"
    text.write_text((TEXT + " ") * 60)
    config.data.path = str(text)
    config.data.seq_len = 16
    config.train.steps, config.train.batch_size = 10, 4
    config.eval.num_rows = config.eval.batch_size = 4
    return config


@pytest.fixture
def make_run(tmp_path):
    """A run imported from a fixture."""

    def make(name):
        write_folder(tmp_path / "theirs", Fixture(name))
        run = tmp_path / "run"
        import_run(tmp_path / "theirs", run, settings(tmp_path))
        return run

    return make


def test_how_a_model_is_computed_is_not_the_checkpoints_to_say(tmp_path):
    write_folder(tmp_path / "theirs", Fixture("gpt2"))
    config = settings(tmp_path)
    config.model.dtype, config.model.loss_chunk = "bfloat16", 5
    config.model.attention = "xla"
    import_run(tmp_path / "theirs", tmp_path / "run", config)
    stored = json.loads((tmp_path / "run" / "config.json").read_text())["model"]
    assert stored["dtype"] == "bfloat16" and stored["loss_chunk"] == 5
    assert stored["attention"] == "xla" and stored["activation"] == "gelu_tanh"


@pytest.mark.slow_except("gpt2")
@pytest.mark.parametrize("name", ["gpt2", "bert", "roberta", "t5", "t5-1.1", "llama"])
def test_import_and_export(name, make_run, tmp_path):
    run = make_run(name)
    export_run(run, tmp_path / "back", Fixture(name).config["model_type"])
    file = load_file(tmp_path / "back" / "model.safetensors")
    expected = load_file(tmp_path / "theirs" / "model.safetensors")
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert config["architectures"] == Fixture(name).config["architectures"]
    pad = Fixture(name).config["pad_token_id"]  # the tokenizer's, too
    assert config["pad_token_id"] == pad and config["mask_token_id"] == 4
    copies = find_family(config["model_type"]).copies
    assert set(expected) - set(file) <= set(copies)
    for key, value in file.items():
        np.testing.assert_array_equal(value, expected[key])
    again = tokenizers.load(tmp_path / "back")
    assert again.encode(TEXT).tolist() == make_tokenizer(pad=pad).encode(TEXT).tolist()
    theirs = tokenizers.load(tmp_path / "theirs")
    assert tokenizers.fingerprint(again) == tokenizers.fingerprint(theirs)
    card = (tmp_path / "back" / "README.md").read_text()
    assert "text.txt" in card and "0 steps of 4 rows" in card


ROBERTA = {
    "model__norm_position": "post",
    "model__norm_epsilon": 1e-12,
    "model__head_transform": True,
    "model__head_bias": True,
    "model__num_types": 1,
    "model__position_offset": 2,
}


def train_briefly(tmp_path, objective, **changes):
    """A run of two steps by the command line."""
    (tmp_path / "text.txt").write_text((TEXT + " ") * 60)
    path, run = tmp_path / "config.py", tmp_path / "run"
    tiny.write_config(
        path, tmp_path / "text.txt", objective=objective, train__steps=2, **changes
    )
    assert main(["train", "--config", str(path), "--workdir", str(run)]) == 0
    return run


@pytest.mark.slow
def test_a_trained_roberta_has_its_places_in_transformers(tmp_path, capsys):
    """Its places begin at row 2, its [PAD] is 0: theirs are counted from there."""
    run = train_briefly(tmp_path, "mlm", **ROBERTA)
    out = tmp_path / "out"
    assert main(["export", "--workdir", str(run), "--to", str(out)]) == 0
    assert "RobertaForMaskedLM" in capsys.readouterr().out
    config = json.loads((out / "config.json").read_text())
    program, tokenizer, params, _ = load_run(run)
    pad, max_len = tokenizer.vocab.pad, program.task.model_spec.max_len
    assert config["pad_token_id"] == pad == 0
    assert config["max_position_embeddings"] == max_len + 1
    tensors = load_file(out / "model.safetensors")
    table = tensors["roberta.embeddings.position_embeddings.weight"]
    assert len(table) == max_len + 1
    ids = np.array([[1, 2, 3, 5, 1, 4], [4, 2, 1, 0, 0, 0]])  # padded behind
    real = ids != pad
    reference = table[roberta_places(ids, pad)]
    ours = np.asarray(params["embed"]["positions"]["table"])[2:][np.arange(6)]
    np.testing.assert_array_equal(reference[real], np.stack([ours, ours])[real])


def test_a_roberta_without_its_padding_is_refused(tmp_path, refuses):
    write_folder(tmp_path / "theirs", Fixture("roberta"))
    config, run = settings(tmp_path), tmp_path / "run"
    output = tmp_path / "theirs" / "tokenizer.json"
    export_tokenizer(make_tokenizer(pad=0), output)
    with refuses("pad_token_id=1", "must be 0", "roberta counts positions"):
        import_run(tmp_path / "theirs", run, config)
    assert not run.exists()


def test_weights_that_are_no_numbers_are_not_exported(make_run, tmp_path, refuses):
    run = make_run("gpt2")
    program, _, params, _ = load_run(run)
    layer = params["encoder"]["layer_1"]["mlp"]["up"]
    layer["kernel"] = layer["kernel"].at[3, 2:4].set(jnp.array([jnp.nan, jnp.inf]))
    state = make_state(params, program.task.optimizer, program.task.has_ema)
    with Checkpointer(run / "checkpoints") as checkpointer:
        checkpointer.save(1, state)
    with refuses("transformer.h.1.mlp.c_fc.weight", "2 of its 1,024", "NaN"):
        export_run(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow_except("nan")
@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_weights_that_are_no_numbers_are_not_imported(bad, tmp_path, refuses):
    fixture, name = Fixture("t5"), "decoder.block.1.layer.2.DenseReluDense.wo.weight"
    fixture.tensors[name] = fixture.tensors[name].copy()
    fixture.tensors[name][0, 1] = bad
    write_folder(tmp_path / "theirs", fixture)
    with refuses(name, "1 of its 384", "NaN or infinite"):
        import_run(tmp_path / "theirs", tmp_path / "run", settings(tmp_path))
    assert not (tmp_path / "run").exists()


def test_quantized_weights_are_not_imported(tmp_path, refuses):
    changes = {"quantization_config": {"quant_method": "bitsandbytes", "bits": 8}}
    write_folder(tmp_path / "theirs", Fixture("gpt2"), changes)
    with refuses("config.json: quantization_config={'quant_method'", "not supported"):
        import_run(tmp_path / "theirs", tmp_path / "run", settings(tmp_path))


def test_an_export_says_what_must_be_known(tmp_path, capsys):
    run, out = tmp_path / "run", tmp_path / "out"
    changes = {"decoder_start_token_id": 0}  # as in a run of jaxpt
    write_folder(tmp_path / "theirs", Fixture("bart"), changes)
    import_run(tmp_path / "theirs", run, settings(tmp_path))
    assert main(["export", "--workdir", str(run), "--to", str(out)]) == 0
    for output in (capsys.readouterr().out, (out / "README.md").read_text()):
        assert "begins with [PAD] (id 0)" in output and "padding_idx = None" in output


VOCAB = Vocab(40, *range(10), sentinels=tuple(range(10, 20)))


@pytest.mark.parametrize(
    "objective, num_decoder_layers, family, expected",
    [
        ("prefix_lm", 0, "gpt2", ["Trained as a prefix LM"]),
        ("prefix_lm", 0, "llama", ["Trained as a prefix LM", "padding_idx"]),
        ("prefix_lm", 1, "t5", []),
        ("prefix_lm", 1, "bart", ["padding_idx"]),
        ("ul2", 0, "gpt2", ["Trained as UL2"]),
        ("ul2", 1, "bart", ["padding_idx"]),
        ("clm_mlm", 0, "gpt2", ["a fraction of 0.75 of the rows"]),
        ("clm", 0, "llama", []),
        ("mlm", 0, "bert", []),
        ("span_corruption", 1, "t5", []),
        ("bart", 1, "bart", ["padding_idx"]),
    ],
)
def test_notes(objective, num_decoder_layers, family, expected):
    """What an export says of its mask, and of a start that PyTorch does not train."""
    config = tiny.make_config("no.txt", objective)
    config.model.num_decoder_layers = num_decoder_layers
    config.clm_mlm.mlm_share = 0.75
    explicit_names = {"model.num_decoder_layers"}
    task = make_task(make_plan(config, explicit_names), VOCAB)
    head = next(iter(task.model.export_parts({})))
    kind = find_family(family)
    ids = name_ids(VOCAB, task.text_form, head)
    written = {"architectures": [kind.heads[head]]} | ids
    notes = write_notes(task, VOCAB, head, kind, written)
    assert len(notes) == len(expected)
    for note, part in zip(notes, expected, strict=True):
        assert part in note and "\n" not in note
        assert ("[batch, 1, queries, keys]" in note) == ("Trained" in note)


def test_electra_is_two_folders(tmp_path, refuses):
    parts = {k: Fixture(f"electra-{k}") for k in ("generator", "discriminator")}
    for head, fixture in parts.items():
        write_folder(tmp_path / "apart" / head, fixture)
    config = settings(tmp_path)
    with refuses("embeddings", "generator and discriminator", "differ"):
        import_run(tmp_path / "apart", tmp_path / "run", config)
    assert not (tmp_path / "run").exists()
    for key, value in parts["discriminator"].tensors.items():
        if key.startswith("electra.embeddings."):
            parts["generator"].tensors[key] = value
    for head, fixture in parts.items():
        write_folder(tmp_path / "theirs" / head, fixture)
    import_run(tmp_path / "theirs", tmp_path / "run", config)
    export_run(tmp_path / "run", tmp_path / "back")
    for head, fixture in parts.items():
        file = load_file(tmp_path / "back" / head / "model.safetensors")
        assert set(fixture.tensors) - set(file) <= set(find_family("electra").copies)
        for key, value in file.items():
            np.testing.assert_array_equal(value, fixture.tensors[key])


@pytest.mark.slow
def test_an_imported_run_is_trained_and_used(make_run, tmp_path, capsys):
    run = make_run("bert")
    before = jax.device_get(load_run(run)[2])
    assert main(["evaluate", "--workdir", str(run)]) == 0
    stdout = capsys.readouterr().out
    assert "step 0" in stdout and "valid_loss" in stdout
    assert main(["fill", "--workdir", str(run), "--text", "a [MASK] b"]) == 0
    assert main(["train", "--workdir", str(run)]) == 0
    _, _, after, step = load_run(run)
    assert step == 10
    moved = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), before, after)
    assert max(jax.tree.leaves(moved)) > 1e-4
    assert main(["export", "--workdir", str(run), "--to", str(tmp_path / "out")]) == 0
    assert "10 steps of 4 rows" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.slow_cases("gpt2")
@pytest.mark.parametrize("name", slow_but(("gpt2",), ("gpt2", "bert", "t5")))
def test_a_vocabulary_padded_beyond_its_tokenizer(name, tmp_path, capsys):
    """Like T5's 32,128 for 32,100 pieces: ids beyond those are never predicted."""
    fixture, reference = Fixture(name), tmp_path / "theirs"
    table = {"gpt2": "transformer.wte.weight", "t5": "shared.weight"}.get(
        name, "bert.embeddings.word_embeddings.weight"
    )
    # The two rows beyond would win every argmax.
    fixture.tensors[table] = fixture.tensors[table].copy()
    fixture.tensors[table][28:] = 3 * fixture.tensors[table][8:10]
    for copy, of in find_family(fixture.config["model_type"]).copies.items():
        if of == table and copy in fixture.tensors:
            fixture.tensors[copy] = fixture.tensors[table]
    write_folder(reference, fixture, num_ids=28)
    run, config = tmp_path / "run", settings(tmp_path)
    import_run(reference, run, config)
    program, tokenizer, _, _ = load_run(run)
    assert program.task.model_spec.vocab_size == 30 and tokenizer.vocab.size == 28
    assert main(["train", "--workdir", str(run)]) == 0
    if name == "bert":
        command = ["fill", "--text", "a [MASK] b", "--top_k", "30"]
    else:
        command = [
            "generate",
            "--prompt",
            "a b",
            "--num_tokens",
            "4",
            "--num_samples=9",
        ]
    assert main([*command, "--workdir", str(run)]) == 0
    assert capsys.readouterr().out
    export_run(run, tmp_path / "back", fixture.config["model_type"])
    assert load_file(tmp_path / "back" / "model.safetensors")[table].shape[0] == 30


def test_a_vocabulary_smaller_than_its_tokenizer_is_refused(tmp_path, refuses):
    config = settings(tmp_path)
    config.model.vocab_size = 20
    with refuses("model.vocab_size=20", "at least 30"):
        make_task(make_plan(config), make_tokenizer().vocab)
    config.objective, config.model.vocab_size = "electra", 40
    with refuses("model.vocab_size=40", "0 or 30", "electra"):
        make_task(make_plan(config), make_tokenizer().vocab)
    config.objective = "mlm"
    task = make_task(make_plan(config), make_tokenizer().vocab)
    assert task.model_spec.vocab_size == 40 and {30, 39} <= set(task.nonwords)


def test_bad_imports_are_one_line(make_run, tmp_path, refuses):
    config, run = settings(tmp_path), tmp_path / "run"
    reference = tmp_path / "more"
    write_folder(reference, Fixture("gpt2"), {"n_embd": 32})
    with refuses("transformer.wte.weight", "shape [30, 16]", "[30, 32]"):
        import_run(reference, run, config)
    (reference / "config.json").write_text(json.dumps({"model_type": "flaubert"}))
    with refuses("model_type='flaubert'"):
        import_run(reference, run, config)
    (reference / "config.json").write_text(
        json.dumps(Fixture("gpt2").config | {"vocab_size": 29})
    )
    with refuses("tokenizer has 30 ids", "vocab_size=29"):
        import_run(reference, run, config)
    assert not run.exists()
    made = make_run("gpt2")
    with refuses("workdir", "empty folder"):
        import_run(tmp_path / "theirs", made, config)
    with refuses("to", "empty folder"):
        export_run(made, tmp_path / "theirs")
    with refuses("family=bert", "causal"):
        export_run(made, tmp_path / "new", "bert")


@pytest.mark.parametrize(
    "changes, line",
    [
        ({"n_layer": 10**9}, "model.num_layers=1000000000: must be from 1 to 1000"),
        ({"vocab_size": 10**9}, "the config it must be [1000000000, 16]"),
        ({"vocab_size": 10**12}, "vocab_size=1000000000000: must be at most"),
        ({"n_head": 10**9}, "model.num_heads=1000000000: must be from 1 to"),
        ({"model_type": ["gpt2"]}, "model_type=['gpt2']: must be one of"),
        ({"model_type": None}, "model_type=None: must be one of"),
        ({"architectures": [3]}, "architectures=[3]: must be null or a list of names"),
        ({"architectures": 3}, "architectures=3: must be null or a list of names"),
    ],
)
def test_hostile_configs_are_one_line(changes, line, tmp_path, refuses):
    """Before anything of the stated size is allocated or iterated over."""
    write_folder(tmp_path / "theirs", Fixture("gpt2"), changes)
    with refuses(line):
        import_run(tmp_path / "theirs", tmp_path / "run", settings(tmp_path))
    assert not (tmp_path / "run").exists()


def test_too_few_sentinels_are_named_with_the_objective(tmp_path, refuses):
    write_folder(tmp_path / "theirs", Fixture("t5"))
    config = settings(tmp_path)
    config.data.row_length = 141
    with refuses(
        "tokenizer.num_sentinels=3: must be at least 7 for span_corruption in rows of "
        "141 tokens"
    ):
        import_run(tmp_path / "theirs", tmp_path / "run", config)


SMALL = {"num_layers": 2, "d_model": 64, "num_heads": 4, "d_ff": 128}


@pytest.mark.parametrize(
    "name, changes",
    [
        slow("gpt2", {}),
        slow("bert-base", {}),
        slow("roberta-base", {}),
        slow("electra-small-generator", {"embedding_size": 32}),
        slow("t5-small", {"num_decoder_layers": 2, "head_dim": 16}),
        slow("t5-v1.1-small", {"num_decoder_layers": 2, "head_dim": 16}),
        slow("bart-base", {"num_decoder_layers": 2}),
        slow("llama-135m", {"num_kv_heads": 2}),
        ("modern-base", {}),
    ],
)
def test_the_first_loss_is_that_of_a_guess(name, changes):
    """Near ln V, as t5x#1477 wants it, where a wrong head began at 110."""
    spec = get_preset(name, **SMALL, **changes, vocab_size=2000, max_len=32)
    two = spec.num_decoder_layers > 0
    ids = jax.random.randint(jax.random.key(0), (8, 32), 0, 2000)
    targets = jax.random.randint(jax.random.key(1), (8, 32), 0, 2000)
    masks = dict.fromkeys(("self", "dec_self", "cross"), attention_masks.full())
    model = Transformer(spec)
    args = (ids, masks, ids if two else None)
    params = model.init(jax.random.key(2), *args, deterministic=True)
    logits = jax.jit(lambda p: model.apply(p, *args, deterministic=True))(params)
    nll = -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1)
    # T5's logits begin with a spread of one, the others' with nearly none.
    slack = 0.8 if spec.init == "t5" else 0.1
    assert abs(float(nll.mean()) - math.log(2000)) < slack


@pytest.mark.slow
def test_initial_spreads_are_those_of_the_sources():
    spec = dataclasses.replace(get_preset("gpt2", **SMALL), vocab_size=500)
    ids, masks = jnp.zeros((1, 4), int), {"self": attention_masks.full()}

    def init(spec, *args):
        model = Transformer(spec)
        return model.init(jax.random.key(0), *args, deterministic=True)["params"]

    layer = init(spec, ids, masks)["encoder"]["layer_1"]
    assert layer["mlp"]["up"]["kernel"].std() == pytest.approx(0.02, rel=0.05)
    for part in (layer["mlp"]["down"], layer["attention"]["out"]):
        # Two additions to the residual stream in each of two layers.
        assert part["kernel"].std() == pytest.approx(0.02 / 2, rel=0.05)
    spec = dataclasses.replace(get_preset("bert-base", **SMALL), vocab_size=500)
    table = init(spec, ids, masks)["embed"]["tokens"]
    assert 0.035 < float(jnp.abs(table).max()) <= 0.04
    assert table.std() == pytest.approx(0.02 * 0.88, rel=0.02)  # of a cut normal
    changes = {"num_decoder_layers": 1, "head_dim": 16, "vocab_size": 500}
    spec = dataclasses.replace(get_preset("t5-v1.1-small", **SMALL), **changes)
    both = dict.fromkeys(("self", "dec_self", "cross"), attention_masks.full())
    params = init(spec, ids, both, ids)
    attention = params["encoder"]["layer_0"]["attention"]
    for kernel, std in (
        (attention["query"], (64 * 16) ** -0.5),
        (attention["key"], 64**-0.5),
        (params["encoder"]["layer_0"]["mlp"]["down"], 128**-0.5),
        (params["head"]["out"], 64**-0.5),
    ):
        assert kernel["kernel"].std() == pytest.approx(std, rel=0.06)
    assert params["embed"]["tokens"].std() == pytest.approx(1, rel=0.03)
