"""Scanned runs go in and out of transformers as unrolled ones do."""

import jax
import numpy as np
import pytest
from hub.cases import CASES
from hub.test_families import Fixture
from hub.test_runs import settings, write_folder
from tiny import slow_but

from jaxpt.hub.convert import from_hf, to_hf
from jaxpt.hub.export import export_run
from jaxpt.hub.imports import import_run
from jaxpt.nn.scan import stack_layers, unstack_layers
from jaxpt.runs.workdir import load_run


@pytest.mark.slow_cases("gpt2", "bart", "gpt2-inner", "llama-tied")
@pytest.mark.parametrize("name", CASES)
def test_tensors_and_stacked_parameters(name):
    fixture = Fixture(name)
    ours = fixture.ours
    stacked = stack_layers(ours.params)
    assert "layers" in stacked["encoder"] and "layer_1" not in stacked["encoder"]
    back = unstack_layers(stacked)
    assert jax.tree.structure(back) == jax.tree.structure(ours.params)
    jax.tree.map(np.testing.assert_array_equal, back, ours.params)
    kind = ours.family, ours.spec, ours.head
    result, expected = to_hf(stacked, *kind), to_hf(ours.params, *kind)
    assert list(result) == list(expected)
    jax.tree.map(np.testing.assert_array_equal, result, expected)
    again = from_hf(fixture.tensors, *kind, like=stacked)
    assert jax.tree.structure(again) == jax.tree.structure(stacked)
    jax.tree.map(np.testing.assert_array_equal, again, stacked)


def read_files(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


NAMES = ("modernbert", "t5", "electra")


@pytest.mark.parametrize("name", slow_but(("t5",), NAMES))
def test_imports_and_exports_are_the_same_scanned(name, tmp_path):
    reference = tmp_path / "theirs"
    if name == "electra":
        parts = {k: Fixture(f"electra-{k}") for k in ("generator", "discriminator")}
        for key, value in parts["discriminator"].tensors.items():
            if key.startswith("electra.embeddings."):
                parts["generator"].tensors[key] = value
        for head, fixture in parts.items():
            write_folder(reference / head, fixture)
    else:
        write_folder(reference, Fixture(name))
    params, files = [], []
    for is_scanned in (False, True):
        run = tmp_path / f"{is_scanned}" / "run"
        config = settings(tmp_path)
        config.model.scan_layers = is_scanned
        config.model.remat = "full" if is_scanned else "none"
        import_run(reference, run, config)
        program, _, result, _ = load_run(run)
        assert program.task.model_spec.scan_layers == is_scanned
        params.append(result)
        export_run(run, run.with_name("back"))
        files.append(read_files(run.with_name("back")))
    expected = stack_layers(params[0])
    assert jax.tree.structure(params[1]) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, params[1], expected)
    assert files[0] == files[1]
    assert any(path.endswith("model.safetensors") for path in files[0])
    output = b"".join(v for k, v in files[0].items() if k.endswith("config.json"))
    assert b"scan_layers" not in output and b"remat" not in output
