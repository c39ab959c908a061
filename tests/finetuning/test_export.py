"""A folder of transformers is fine-tuned, exported with its head, and read again."""

import json

import jax
import numpy as np
import pytest

from jaxpt.finetuning.data import read_data
from jaxpt.finetuning.evaluation import read_outputs
from jaxpt.finetuning.export import export_finetuned, is_finetuned, load_finetuned
from jaxpt.finetuning.grid import finetune
from jaxpt.finetuning.reuse import Reuse
from jaxpt.hub.configs import read_config
from jaxpt.hub.convert import to_hf
from jaxpt.hub.family import find_family
from jaxpt.hub.files import read_json, write_json, write_tensors
from jaxpt.nn.networks.one_stack import MaskedLM
from jaxpt.runs.workdir import load_run

WORDS = "the cat sat on a mat and dog ran to it good bad".split()
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
BERT = {
    "model_type": "bert",
    "architectures": ["BertModel"],
    "vocab_size": len(VOCAB),
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
}


@pytest.fixture(scope="session")
def hf_folder(tmp_path_factory):
    """A BERT without a head, as `BertModel.save_pretrained` writes it."""
    folder = tmp_path_factory.mktemp("hf")
    _, spec = read_config(BERT)
    params = jax.jit(MaskedLM(spec).init_params)(jax.random.key(0))
    tensors = to_hf(params, find_family("bert"), spec, "masked")
    body = {
        name.removeprefix("bert."): value
        for name, value in tensors.items()
        if name.startswith("bert.")
    }
    draw = np.random.default_rng(0)
    body["pooler.dense.weight"] = draw.normal(0, 0.1, (16, 16)).astype(np.float32)
    body["pooler.dense.bias"] = np.zeros(16, np.float32)
    write_tensors(folder, body)
    write_json(folder, "config.json", BERT)
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def exported(hf_folder, splits, tmp_path_factory):
    """A fine-tuning of that BERT, its result, and its export."""
    from jaxpt.config.finetuning import default_finetune_config, make_finetune_plan

    config = default_finetune_config("classification")
    for name in ("train", "dev"):
        config.data[name] = str(splits / f"{name}.tsv")
    config.task.max_len = 24
    config.task.labels = ("0", "1")
    config.task.label_names = ("bad", "good")
    config.train.update(lr=(3e-3,), batch_size=(8,), epochs=(2,), num_lengths=1)
    folder = tmp_path_factory.mktemp("exported")
    plan = make_finetune_plan(config)
    result = finetune(plan, str(hf_folder), folder / "to", lambda line: None)
    lines = export_finetuned(folder / "to", folder / "out")
    return config, result, folder, lines


@pytest.mark.slow
def test_the_pooler_of_the_folder_is_read(exported, hf_folder):
    _, result, folder, _ = exported
    assert result["head"] == "bert"
    finetuned = load_finetuned(folder / "to")
    pooler = finetuned.program.base.pooler["pool"]["kernel"]
    assert np.abs(pooler).max() > 0.1
    assert np.isfinite(pooler).all()


def test_an_export_has_the_class_and_the_labels(exported):
    _, _, folder, lines = exported
    config = read_json(folder / "out", "config.json")
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["id2label"] == {"0": "bad", "1": "good"}
    assert config["label2id"] == {"bad": 0, "good": 1}
    assert config["problem_type"] == "single_label_classification"
    assert "BertForSequenceClassification" in lines[0]
    assert is_finetuned(folder / "to") and not is_finetuned(folder / "out")


def test_what_reads_runs_refuses_a_fine_tuned_folder(exported, refuses):
    _, _, folder, _ = exported
    with refuses("holds a fine-tuned model; must be the folder of a training run"):
        load_run(folder / "to")


def test_a_fine_tuned_folder_comes_back_with_its_head(exported, tmp_path):
    from jaxpt.config.finetuning import make_finetune_plan

    config, result, folder, _ = exported
    config = config.copy_and_resolve_references()
    config.train.epochs = (0,)
    lines = []
    again = finetune(
        make_finetune_plan(config), str(folder / "out"), tmp_path / "to", lines.append
    )
    assert any("the checkpoint's own" in line for line in lines)
    assert again["cells"][0]["dev"] == result["cells"][0]["dev"]
    assert again["cells"][0]["steps"] == 0


def test_what_transformers_cannot_say_is_refused(
    make_base, make_tune, tmp_path, refuses
):
    plan = make_tune(train__epochs=(1,))
    finetune(plan, str(make_base("mlm")), tmp_path / "to", lambda line: None)
    with refuses("transformers"):
        export_finetuned(tmp_path / "to", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.peers
def test_transformers_gives_the_same_logits(exported):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    _, _, folder, _ = exported
    finetuned = load_finetuned(folder / "to")
    program = finetuned.program
    data = read_data(program.plan)
    dev = Reuse().encode_splits(program.plan, data, program.base.encoder)["dev"]
    ours = np.stack(read_outputs(program, finetuned.params, dev))
    out = str(folder / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(out)
    texts = [x.text for x in data.splits["dev"]]
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    with torch.no_grad():
        reference = model.eval()(**batch).logits.numpy()
    np.testing.assert_allclose(ours, reference, atol=1e-4)
    assert model.config.id2label == {0: "bad", 1: "good"}
    output = json.loads((folder / "out" / "config.json").read_text())
    assert output["dtype"] == "float32"
