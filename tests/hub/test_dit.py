"""MDLM and BD3-LM against the formulas of their published code in NumPy.

transformers has no class of them, so no test runs the originals: `run_theirs` follows
MDLM's models/dit.py and BD3-LM's models/hf/modeling_bd3lm.py.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hub.cases import Ours, pad_before
from hub.test_peft_adapter import write_adapter
from hub.test_runs import TEXT, make_tokenizer, settings, train_subword
from safetensors.numpy import load_file, save_file
from transformers import CONFIG_MAPPING

from jaxpt.hub.configs import read_config, write_config
from jaxpt.hub.convert import HIDDEN, hide_token, to_hf
from jaxpt.hub.export import export_run
from jaxpt.hub.exportable import name_families
from jaxpt.hub.family import find_family
from jaxpt.hub.imports import import_run
from jaxpt.objectives import block_diffusion
from jaxpt.runs.workdir import load_run
from jaxpt.text.tokens.exported import export_tokenizer

V, MASK, LENGTH = 30, 4, 12
# config.json of kuleshov-group/mdlm-owt and kuleshov-group/bd3lm-owt-block_size4.
MDLM = {
    "architectures": ["MDLM"],
    "auto_map": {"AutoModelForMaskedLM": "modeling_mdlm.MDLM"},
    "cond_dim": 128,
    "dropout": 0.1,
    "hidden_dim": 768,
    "model_length": 1024,
    "model_type": "mdlm",
    "n_blocks": 12,
    "n_heads": 12,
    "return_dict": False,
    "time_conditioning": False,
    "torch_dtype": "float32",
    "transformers_version": "4.38.2",
    "vocab_size": 50258,
}
BD3LM = MDLM | {
    "architectures": ["BD3LM"],
    "attn_backend": "sdpa",
    "block_size": 4,
    "cross_attn": True,
    "model_type": "bd3lm",
    "sampling_eps_max": 0.999,
    "sampling_eps_min": 0.001,
    "var_min": True,
}
PUBLISHED = {"mdlm": MDLM, "bd3lm": BD3LM}
# Of which model, blocks, width, heads, width of the noise; and what differs otherwise.
CASES = {
    "mdlm": ("mdlm", (2, 16, 4, 5), {}),
    "mdlm one head": ("mdlm", (1, 6, 1, 1), {}),
    "mdlm as bd3lm": ("bd3lm", (1, 12, 2, 3), {"cross_attn": False}),
    "bd3lm": ("bd3lm", (2, 16, 4, 5), {"block_size": 3}),
    "bd3lm plain": ("bd3lm", (1, 12, 2, 3), {"adaln": False, "block_size": 5}),
}
BIAS = "backbone.blocks.1.adaLN_modulation.bias"
SIGMA = "backbone.sigma_map.mlp.2.weight"
NORM, OUT = "backbone.blocks.0.norm1.bias", "backbone.blocks.0.attn_out.weight"
MASKED = [name for name in CASES if name.startswith("mdlm")]
BLOCKS = [name for name in CASES if name not in MASKED]


def make(name):
    """A config, and tensors drawn at random."""
    kind, (num, width, heads, noise), more = CASES[name]
    config = PUBLISHED[kind] | {"vocab_size": V, "model_length": LENGTH} | more
    config |= {"hidden_dim": width, "n_blocks": num, "n_heads": heads}
    config["cond_dim"] = noise
    rng, layer = np.random.default_rng(len(name)), "backbone.blocks"
    shapes = {"backbone.vocab_embed.embedding": (V, width)}
    for i in range(num):
        shapes |= {f"{layer}.{i}.norm{j}.weight": (width,) for j in (1, 2)}
        shapes[f"{layer}.{i}.attn_qkv.weight"] = (3 * width, width)
        shapes[f"{layer}.{i}.attn_out.weight"] = (width, width)
        for j, size in ((0, (4 * width, width)), (2, (width, 4 * width))):
            shapes[f"{layer}.{i}.mlp.{j}.weight"] = size
            shapes[f"{layer}.{i}.mlp.{j}.bias"] = size[:1]
    last = "backbone.output_layer"
    shapes |= {f"{last}.norm_final.weight": (width,), f"{last}.linear.bias": (V,)}
    shapes[f"{last}.linear.weight"] = (V, width)
    if config.get("adaln", True):
        for j, size in ((0, 256), (2, noise)):
            shapes[f"backbone.sigma_map.mlp.{j}.weight"] = (noise, size)
            shapes[f"backbone.sigma_map.mlp.{j}.bias"] = (noise,)
        rows = {f"{layer}.{i}": 6 * width for i in range(num)} | {last: 2 * width}
        for each, size in rows.items():
            shapes[f"{each}.adaLN_modulation.weight"] = (size, noise)
            shapes[f"{each}.adaLN_modulation.bias"] = (size,)
    return config, {
        key: rng.standard_normal(shape).astype(np.float32) * 0.5
        for key, shape in shapes.items()
    }


def run_theirs(config, tensors, ids, mask, places, sigma=0.0):
    """The logits [B, T, V] in float64, with a mask [B or 1, T, T]."""
    w = {key: value.astype(np.float64) for key, value in tensors.items()}
    heads, width = config["n_heads"], config["hidden_dim"]

    def dense(x, key):
        bias = w.get(f"backbone.{key}.bias", 0)
        return x @ w[f"backbone.{key}.weight"].T + bias

    def silu(x):
        return x / (1 + np.exp(-x))

    def norm(x, key, shift, scale):
        y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return y * w[f"backbone.{key}.weight"] * (1 + scale) + shift

    def modulate(key, num):
        if not config.get("adaln", True):
            return np.tile([[0.0], [0.0], [1.0]], (2, 1))[:num]
        return dense(noise, f"{key}.adaLN_modulation").reshape(num, width)

    angles = sigma * np.exp(-np.log(10000) * np.arange(128) / 128)
    if config.get("adaln", True):
        noise = np.concatenate([np.cos(angles), np.sin(angles)])
        for layer in (0, 2):
            noise = silu(dense(noise, f"sigma_map.mlp.{layer}"))
    freqs = 10000.0 ** -(np.arange(0, width // heads, 2) / (width // heads))
    angles = places[..., None, None] * np.tile(freqs, 2)

    def rotate(x):
        one, two = np.split(x, 2, -1)
        return x * np.cos(angles) + np.concatenate([-two, one], -1) * np.sin(angles)

    x = w["backbone.vocab_embed.embedding"][ids]
    for i in range(config["n_blocks"]):
        block = f"blocks.{i}"
        m = modulate(block, 6)
        qkv = dense(norm(x, f"{block}.norm1", m[0], m[1]), f"{block}.attn_qkv")
        q, k, v = qkv.reshape(*ids.shape, 3, heads, -1).transpose(2, 0, 1, 3, 4)
        scores = np.einsum("bthd,bshd->bhts", rotate(q), rotate(k))
        scores = np.where(mask[:, None], scores * (width // heads) ** -0.5, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        y = np.einsum("bhts,bshd->bthd", scores, v).reshape(x.shape)
        x = x + m[2] * dense(y, f"{block}.attn_out")
        y = dense(norm(x, f"{block}.norm2", m[3], m[4]), f"{block}.mlp.0")
        y = y * (1 + np.tanh((2 / np.pi) ** 0.5 * (y + 0.044715 * y**3))) / 2
        x = x + m[5] * dense(y, f"{block}.mlp.2")
    last = "output_layer"
    return dense(norm(x, f"{last}.norm_final", *modulate(last, 2)), f"{last}.linear")


def full(num):
    """Every token attends to all, at positions 0, 1, ..."""
    return np.ones((1, num, num), bool), np.arange(num)[None]


def read_ours(name):
    config, tensors = make(name)
    family, _ = read_config(config)
    return config, tensors, Ours(config, family.fold(config, tensors), "masked")


@pytest.mark.slow_except("mdlm")
@pytest.mark.parametrize("name", MASKED)
def test_numbers_are_those_of_their_code(name):
    config, tensors, ours = read_ours(name)
    rng, lengths = np.random.default_rng(0), np.array([9, LENGTH, 5])
    places = np.broadcast_to(np.arange(LENGTH), (3, LENGTH))
    real = places < lengths[:, None]
    ids = rng.integers(1, V, real.shape) * real
    batch = {"input_ids": ids, "lengths": lengths, "labels": ids}
    before = pad_before(batch, 0)
    for rows, seen, positions in (
        (batch, real, places),
        (before, before["seen"], before["position_ids"]),
    ):
        mask = np.broadcast_to(seen[:, None], (3, LENGTH, LENGTH))
        theirs = run_theirs(config, tensors, rows["input_ids"], mask, positions)
        logits = np.asarray(ours.outputs(ours.params, rows)[1])
        np.testing.assert_allclose(logits[seen], theirs[seen], atol=2e-4)


def cut(num, size):
    """[2 n, 2 n]: the mask of a noised and a clean half, from its definition."""
    mask = np.zeros((2 * num, 2 * num), bool)
    for i in range(2 * num):
        for j in range(2 * num):
            one, two = i % num // size, j % num // size
            if j < num:
                mask[i, j] = i < num and one == two
            else:
                mask[i, j] = two < one if i < num else two <= one
    return mask


@pytest.mark.slow
@pytest.mark.parametrize("name", BLOCKS)
def test_block_diffusion_gives_their_logits(name):
    """A noised row after its clean blocks, and a row alone, as in their sampling."""
    config, tensors, ours = read_ours(name)
    size, rng = config["block_size"], np.random.default_rng(0)
    clean = rng.integers(5, V, (2, LENGTH))
    noised = np.where(rng.random(clean.shape) < 0.5, MASK, clean)
    net = block_diffusion.BlockDiffusionLM(ours.spec, mask_id=MASK, block_size=size)
    blocks = jnp.broadcast_to(jnp.arange(LENGTH) // size, clean.shape)
    batch = {"inputs": jnp.asarray(noised), "original": clean, "blocks": blocks}

    def run(model):
        masks = block_diffusion.masks(batch)
        return model.logits(model.batch_states(batch, masks, deterministic=True))

    both, places = np.concatenate([noised, clean], 1), np.arange(2 * LENGTH) % LENGTH
    mask = cut(LENGTH, size)[None]
    theirs = run_theirs(config, tensors, both, mask, places[None])[:, :LENGTH]
    logits = np.asarray(net.apply({"params": ours.params}, method=run))
    np.testing.assert_allclose(logits, theirs, atol=2e-4)
    mask = mask[:, LENGTH:, LENGTH:][:, :10, :10]
    theirs = run_theirs(config, tensors, noised[:, :10], mask, places[None, :10])
    logits = np.asarray(net.fill_logits(ours.params, noised[:, :10]))
    np.testing.assert_allclose(logits, theirs, atol=2e-4)


@pytest.mark.parametrize("name", CASES)
def test_an_export_computes_the_same_at_any_noise(name):
    """Its tensors are those of the class, and reading them gives the same bits."""
    config, tensors, ours = read_ours(name)
    head, kind = "masked", ours.family.name
    back = to_hf(ours.params, ours.family, ours.spec, head)
    assert back.keys() == tensors.keys()
    written = write_config(ours.spec, head, kind)[1]
    for key in written.keys() & config.keys() - {"auto_map", "cond_dim", "var_min"}:
        if name != "mdlm as bd3lm" or key not in ("model_type", "architectures"):
            assert written[key] == config[key], key
    assert read_config(written) == (ours.family, ours.spec)
    again = Ours(written, ours.family.fold(written, back), head)
    jax.tree.map(np.testing.assert_array_equal, again.params, ours.params)
    ids = np.random.default_rng(0).integers(0, V, (2, 7))
    own = run_theirs(config, tensors, ids, *full(7))
    other = run_theirs(written, back, ids, *full(7), sigma=0.7)
    np.testing.assert_allclose(other, own, atol=1e-5)
    if config.get("adaln", True):  # whose noise did change something
        noisy = run_theirs(config, tensors, ids, *full(7), sigma=0.7)
        assert np.abs(noisy - own).max() > 1e-3


def test_published_configs():
    family, spec = read_config(MDLM)
    assert (family.name, spec.vocab_size, spec.d_ff) == ("mdlm", 50258, 3072)
    assert (spec.max_len, spec.norm_epsilon, spec.dropout) == (1024, 1e-5, 0.1)
    assert spec.has_down_bias and not spec.has_qkv_bias and not spec.has_out_bias
    assert read_config(BD3LM) == (find_family("bd3lm"), spec)
    assert read_config(BD3LM | {"cross_attn": False}) == (family, spec)
    assert not PUBLISHED.keys() & CONFIG_MAPPING.keys()


@pytest.mark.parametrize(
    "kind, changes, parts",
    [
        ("mdlm", {"time_conditioning": True}, ["time_conditioning=True", "noise"]),
        ("bd3lm", {"time_conditioning": True}, ["time_conditioning=True", "noise"]),
        ("mdlm", {"causal": True}, ["causal=True", "False"]),
        ("bd3lm", {"causal": True}, ["causal=True", "False"]),
        ("mdlm", {"cross_attn": True}, ["cross_attn=True", "False"]),
        ("mdlm", {"adaln": False}, ["adaln=False", "True"]),
        ("mdlm", {"n_heads": 0}, ["n_heads=0", "at least 1"]),
        ("mdlm", {"n_heads": 256}, ["head_dim=3", "even"]),
        ("mdlm", {"cond_dim": None}, ["cond_dim=None", "an integer"]),
        ("mdlm", {"hidden_dim": "768"}, ["hidden_dim='768'", "an integer"]),
        ("bd3lm", {"block_size": 0}, ["block_size=0", "at least 1"]),
        ("bd3lm", {"block_size": 2.0}, ["block_size=2.0", "an integer"]),
        ("mdlm", {"mlp_ratio": 2}, ["mlp_ratio=2", "not known in a mdlm"]),
        ("bd3lm", {"mlp_ratio": 2}, ["mlp_ratio=2", "not known in a bd3lm"]),
    ],
)
def test_refusals_name_the_field(kind, changes, parts, refuses):
    with refuses(*parts):
        read_config(PUBLISHED[kind] | changes)


@pytest.mark.parametrize("kind", PUBLISHED)
def test_fields_change_what_they_say_or_nothing(kind):
    """`cond_dim` is in tensors alone, `block_size` is the objective's."""
    family, (_, spec) = find_family(kind), read_config(PUBLISHED[kind])
    others = {"dropout": 0.3, "adaln": False}
    beside = {"time_conditioning", "cond_dim", "block_size", "attn_backend", "var_min"}
    for name in family.defaults.keys() - beside:
        value = others.get(name) if name in others else 2 * PUBLISHED[kind][name]
        assert read_config(PUBLISHED[kind] | {name: value})[1] != spec, name
    same = {"attn_backend": "flex", "var_min": False, "block_size": 9, "cond_dim": 7}
    for name in (*family.inert.split(), *(beside & same.keys())):
        value = same.get(name, 3)
        assert read_config(PUBLISHED[kind] | {name: value})[1] == spec, name
    bare = read_config({"model_type": kind})[1]
    assert (bare.d_model, bare.num_layers, bare.vocab_size) == (768, 12, 50258)


@pytest.mark.parametrize(
    "change, parts",
    [
        (lambda w: w.pop(BIAS), [BIAS, "is missing"]),
        (lambda w: w.pop(SIGMA), [SIGMA, "is missing"]),
        (lambda w: w.update({BIAS: w[BIAS][:-1]}), [BIAS, "[95]", "[96]"]),
        (lambda w: w.update({SIGMA: w[SIGMA][:, 1:]}), [SIGMA, "[5, 4]", "[5, 5]"]),
        (lambda w: w.update({NORM: w[BIAS]}), [NORM, "no place"]),
        (lambda w: w.update({OUT: w[OUT][1:]}), [OUT, "[15, 16]", "[16, 16]"]),
        (lambda w: w.update({"more.weight": w[OUT]}), ["more.weight", "no place"]),
    ],
)
def test_wrong_tensors_are_refused(change, parts, refuses):
    config, tensors = make("mdlm")
    change(tensors)
    with refuses(*parts):
        Ours(config, find_family("mdlm").fold(config, tensors), "masked")


def write_folder(folder, name):
    """A checkpoint with a tokenizer and their buffers."""
    config, tensors = make(name)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    buffers = {"backbone.rotary_emb.inv_freq": np.ones(2, np.float32)}
    if config["model_type"] == "bd3lm":
        buffers["sampling_eps_min"] = np.float32([0.1])
    save_file(tensors | buffers, folder / "model.safetensors", {"format": "pt"})
    export_tokenizer(make_tokenizer(V), folder / "tokenizer.json")
    options = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]"}
    options |= {"mask_token": "[MASK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(options))
    return config, tensors


@pytest.mark.slow_except("bd3lm")
@pytest.mark.parametrize("name", ["mdlm", "bd3lm"])
def test_an_import_trains_by_their_objective(name, tmp_path):
    """Objective, blocks and mask are the folder's; [MASK] is never predicted."""
    config, tensors = write_folder(tmp_path / "theirs", name)
    run, objective = tmp_path / "run", find_family(name).objective
    lines = import_run(tmp_path / "theirs", run, settings(tmp_path))
    assert any(f"{objective} from {name}" in line for line in lines)
    loaded = load_run(run)
    task = loaded.program.task
    assert (task.plan.objective_name, task.vocab.mask) == (objective, MASK)
    assert task.text_form.block_size == (3 if name == "bd3lm" else 0)
    ids = np.random.default_rng(0).integers(7, V, (1, 9))
    ids[0, 5] = MASK
    mask, places = full(9)
    if name == "bd3lm":
        mask = cut(9, 3)[None, 9:, 9:]
    theirs = run_theirs(config, tensors, ids, mask, places)[0, 5]
    theirs[MASK] -= 1e6  # their substitution
    theirs -= np.log(np.exp(theirs).sum())
    filled = np.asarray(task.model.fill_logits(loaded.params, ids))[0, 5]
    ours = np.asarray(jax.nn.log_softmax(filled))
    others = np.arange(V) != MASK
    np.testing.assert_allclose(ours[others], theirs[others], atol=2e-4)
    assert np.exp(ours[MASK]) == 0
    assert name_families(task) == name
    export_run(run, tmp_path / "back")  # as the first family that fits
    written = json.loads((tmp_path / "back" / "config.json").read_text())
    assert (written["model_type"], written["mask_token_id"]) == (name, MASK)
    assert written.get("block_size", 3) == 3 and "kuleshov" in str(written["auto_map"])
    file = load_file(tmp_path / "back" / "model.safetensors")
    assert file.keys() == tensors.keys()
    other = run_theirs(written, file, ids, mask, places, sigma=0.2)[0, 5]
    np.testing.assert_allclose(other[others], filled[others], atol=2e-4)
    import_run(tmp_path / "back", tmp_path / "again", settings(tmp_path))
    again = load_run(tmp_path / "again")
    assert again.program.task.spec == task.spec
    jax.tree.map(np.testing.assert_array_equal, again.params, loaded.params)


def test_runs_of_other_objectives_are_not_exported_as_bd3lm(tmp_path, refuses):
    write_folder(tmp_path / "theirs", "mdlm")
    import_run(tmp_path / "theirs", tmp_path / "run", settings(tmp_path))
    with refuses("family=bd3lm", "block_diffusion", "masked_diffusion"):
        export_run(tmp_path / "run", tmp_path / "back", "bd3lm")


@pytest.mark.slow
def test_blocks_of_a_flag_and_another_objective(tmp_path):
    write_folder(tmp_path / "theirs", "bd3lm")
    config = settings(tmp_path)
    config.objective = "block_diffusion"
    config.block_diffusion = {"block_size": 2}
    flags = ["objective", "block_diffusion.block_size"]
    import_run(tmp_path / "theirs", tmp_path / "run", config, flags)
    assert load_run(tmp_path / "run").program.task.spec.block_size == 2
    config = settings(tmp_path)
    config.objective = "mlm"
    import_run(tmp_path / "theirs", tmp_path / "mlm", config, ["objective"])
    assert name_families(load_run(tmp_path / "mlm").program.task) == "mdlm"


def test_a_mask_can_be_added_to_their_tokenizer(tmp_path):
    """The repositories have no tokenizer: it is GPT-2's, and the last id is [MASK]."""
    write_folder(tmp_path / "theirs", "mdlm")
    roles = ("pad", "unk", "bos", "eos")
    tokenizer = train_subword("wordpiece", [TEXT], V - 1, roles, 2)
    export_tokenizer(tokenizer, tmp_path / "theirs" / "tokenizer.json")
    (tmp_path / "theirs" / "tokenizer_config.json").unlink()
    config = settings(tmp_path)
    config.tokenizer.specials = ("mask",)
    flags = ["tokenizer.specials"]
    import_run(tmp_path / "theirs", tmp_path / "run", config, flags)
    run = load_run(tmp_path / "run")
    assert run.program.task.vocab.mask == V - 1
    bias = np.asarray(run.params["head"]["out"]["bias"])
    assert np.flatnonzero(bias == HIDDEN).tolist() == [V - 1]


def test_an_adapter_is_merged_before_modulation(tmp_path):
    """Its update is multiplied by the gate, as the weight is."""
    _, tensors = write_folder(tmp_path / "theirs", "mdlm")
    module = OUT.removesuffix(".weight")
    one, two = write_adapter(tmp_path / "lora", tmp_path / "theirs", module, (16, 16))
    import_run(tmp_path / "lora", tmp_path / "run", settings(tmp_path))
    merged = tensors | {OUT: tensors[OUT] + 3 * two @ one}
    config = make("mdlm")[0]
    folded = find_family("mdlm").fold(config, merged)
    kernel = load_run(tmp_path / "run").params["encoder"]["layer_0"]["attention"]["out"]
    np.testing.assert_allclose(kernel["kernel"].T, folded[OUT], rtol=1e-4, atol=1e-5)


def test_a_hidden_token_has_no_probability():
    for path in ("out", None):
        head = {"bias": np.zeros(3, np.float32)}
        params = {"head": {"out": head} if path else head}
        hidden = hide_token(params, 1)["head"]
        bias = (hidden["out"] if path else hidden)["bias"]
        np.testing.assert_array_equal(bias, np.float32([0, HIDDEN, 0]))
        assert head["bias"][1] == 0 and np.isfinite(np.float16(HIDDEN))
