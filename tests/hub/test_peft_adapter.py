"""LoRA adapters of PEFT, merged on import; others are refused."""

import json

import numpy as np
import pytest
from hub.test_families import Fixture
from hub.test_runs import settings, write_folder
from safetensors.numpy import load_file, save_file

import jaxpt
from jaxpt.cli.main import main
from jaxpt.hub.export import export_run
from jaxpt.hub.imports import import_run
from jaxpt.runs.workdir import load_run

BERT = "bert.encoder.layer.1.attention.self.query"
GPT2 = "transformer.h.0.attn.c_attn"
PLAIN = {"peft_type": "LORA", "r": 2, "lora_alpha": 6, "bias": "none"}


def write_adapter(folder, base, module, sizes, **changes):
    """An adapter of one module of (inputs, outputs); its matrices A and B."""
    rng = np.random.default_rng(0)
    one, two = (rng.normal(size=s).astype("f4") for s in ((2, sizes[0]), (sizes[1], 2)))
    folder.mkdir()
    config = PLAIN | {"base_model_name_or_path": str(base)} | changes
    (folder / "adapter_config.json").write_text(json.dumps(config))
    prefix = f"base_model.model.{module}.lora_"
    tensors = {f"{prefix}A.weight": one, f"{prefix}B.weight": two}
    save_file(tensors, folder / "adapter_model.safetensors")
    return one, two


def read_kernel(run, path):
    params = load_run(run)[2]
    for name in path.split("/"):
        params = params[name]
    return np.asarray(params)


@pytest.mark.parametrize("is_root, scale", [(False, 3.0), (True, 6 / np.sqrt(2))])
def test_an_adapter_is_merged(is_root, scale, tmp_path):
    write_folder(tmp_path / "theirs", Fixture("bert"))
    one, two = write_adapter(
        tmp_path / "lora", tmp_path / "theirs", BERT, (16, 16), use_rslora=is_root
    )
    lines = import_run(tmp_path / "lora", tmp_path / "run", settings(tmp_path))
    assert f"{tmp_path / 'lora'}: LoRA, merged into {tmp_path / 'theirs'}" in lines
    import_run(tmp_path / "theirs", tmp_path / "plain", settings(tmp_path))
    path = "encoder/layer_1/attention/query/kernel"
    gap = read_kernel(tmp_path / "run", path) - read_kernel(tmp_path / "plain", path)
    np.testing.assert_allclose(gap, scale * (two @ one).T, rtol=1e-4, atol=1e-5)
    for other in ("layer_0/attention/query", "layer_1/attention/key"):
        path = f"encoder/{other}/kernel"
        np.testing.assert_array_equal(
            *(read_kernel(tmp_path / name, path) for name in ("run", "plain"))
        )


def test_an_adapter_of_gpt2s_layers_is_transposed(tmp_path, capsys):
    """Its weights are [in, out]; and a command and jaxpt.load open the adapter."""
    write_folder(tmp_path / "theirs", Fixture("gpt2"))
    base = tmp_path / "theirs"
    args = GPT2, (16, 48)
    one, two = write_adapter(tmp_path / "lora", base, *args, fan_in_fan_out=True)
    import_run(tmp_path / "lora", tmp_path / "run", settings(tmp_path))
    import_run(base, tmp_path / "plain", settings(tmp_path))
    path = "encoder/layer_0/attention/value/kernel"
    gap = read_kernel(tmp_path / "run", path) - read_kernel(tmp_path / "plain", path)
    np.testing.assert_allclose(gap, 3 * (two @ one).T[:, 32:], rtol=1e-4, atol=1e-5)
    texts = []
    for name in ("run", "lora", "plain"):
        flags = [f"--workdir={tmp_path / name}", "--prompt=a b", "--num_tokens=8"]
        assert main(["generate", *flags, "--temperature=0"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]
    loaded = jaxpt.load(tmp_path / "lora")
    (text,) = loaded.generate(["a b"], num_tokens=8, temperature=0)
    assert text and text in texts[1]


@pytest.mark.parametrize(
    "changes, parts",
    [
        ({"peft_type": "IA3"}, ["peft_type='IA3'", "'LORA'", "merge_and_unload"]),
        ({"use_dora": True}, ["use_dora=True"]),
        ({"bias": "all"}, ["bias='all'"]),
        ({"modules_to_save": ["score"]}, ["modules_to_save=['score']"]),
        ({"alpha_pattern": {"query": 3}}, ["alpha_pattern={'query': 3}"]),
        ({"init_lora_weights": "pissa"}, ["init_lora_weights='pissa'"]),
        ({"lora_alpha": None}, ["lora_alpha=None", "number"]),
        ({"base_model_name_or_path": None}, ["name_or_path=None", "folder"]),
        ({"base_model_name_or_path": "/none"}, ["/none", "does not exist"]),
        ({"fan_in_fan_out": True}, ["bert.encoder.layer.1", "[24, 16]"]),
    ],
)
def test_what_cannot_be_merged_is_refused(changes, parts, tmp_path, refuses):
    write_folder(tmp_path / "theirs", Fixture("bert"))
    module = "bert.encoder.layer.1.intermediate.dense"
    base = tmp_path / "theirs"
    write_adapter(tmp_path / "lora", base, module, (16, 24), **changes)
    with refuses(*parts):
        import_run(tmp_path / "lora", tmp_path / "run", settings(tmp_path))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "module, parts",
    [
        ("bert.encoder.layer.7.output.dense", ["layer.7.output", "no such tensor"]),
        ("bert.pooler.dense", ["bert.pooler", "no such tensor"]),
    ],
)
def test_a_module_that_the_base_lacks_is_named(module, parts, tmp_path, refuses):
    write_folder(tmp_path / "theirs", Fixture("bert"))
    write_adapter(tmp_path / "lora", tmp_path / "theirs", module, (16, 16))
    with refuses(*parts):
        import_run(tmp_path / "lora", tmp_path / "run", settings(tmp_path))


@pytest.mark.peers
@pytest.mark.parametrize("is_root", [False, True])
@pytest.mark.parametrize(
    "name, kind, targets",
    [
        ("bert", "AutoModelForMaskedLM", ["query", "dense"]),
        ("gpt2", "AutoModelForCausalLM", ["c_attn", "c_proj"]),
        ("llama", "AutoModelForCausalLM", ["q_proj", "down_proj"]),
    ],
)
def test_adapters_of_peft_are_merged_as_it_does(name, kind, targets, is_root, tmp_path):
    torch = pytest.importorskip("torch")
    peft, transformers = map(pytest.importorskip, ("peft", "transformers"))
    base = tmp_path / "theirs"
    write_folder(base, Fixture(name))
    model = getattr(transformers, kind).from_pretrained(base)
    options = {"target_modules": targets, "use_rslora": is_root}
    options["fan_in_fan_out"] = name == "gpt2"
    config = peft.LoraConfig(r=3, lora_alpha=5, **options)
    tuned = peft.get_peft_model(model, config)
    torch.manual_seed(0)
    for parameter in tuned.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter)
    tuned.save_pretrained(tmp_path / "lora")
    import_run(tmp_path / "lora", tmp_path / "run", settings(tmp_path))
    export_run(tmp_path / "run", tmp_path / "out", name)
    ours = load_file(tmp_path / "out" / "model.safetensors")
    merged = tuned.merge_and_unload().state_dict()
    plain = load_file(base / "model.safetensors")
    assert any(np.abs(ours[n] - plain[n]).max() > 0.1 for n in ours if n in plain)
    for tensor, value in ours.items():
        np.testing.assert_allclose(value, merged[tensor].numpy(), rtol=1e-5, atol=1e-5)
