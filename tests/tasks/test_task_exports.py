"""Fine-tuned taggers, question answerers and writers, as transformers loads them.

Needs torch; `make test-peers` runs it.
"""

import dataclasses

import numpy as np
import pytest

from jaxpt.finetuning.export import export_finetuned, load_finetuned
from jaxpt.nn.presets import get_preset
from tests.tasks.test_fitting import WORDS, write_questions, write_sentences
from tests.tasks.tuned import fit, make_run, write_lines

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.peers
SMALL = {"num_layers": 1, "d_model": 32, "num_heads": 2, "d_ff": 64, "max_len": 64}


def make_family(folder, objective, preset, **changes):
    """A run of a published family's form, before its first step."""
    spec = get_preset(preset, **SMALL, **changes, vocab_size=0)
    model = {f"model__{k}": v for k, v in dataclasses.asdict(spec).items()}
    return make_run(folder, objective, **model)


@pytest.mark.parametrize(
    "task, write, kind, class_name",
    [
        ("tagging", write_sentences, "AutoModelForTokenClassification", "Token"),
        ("span_qa", write_questions, "AutoModelForQuestionAnswering", "Question"),
    ],
)
def test_heads_of_tokens(task, write, kind, class_name, tmp_path):
    run = make_family(tmp_path, "mlm", "bert-base")
    name = "a.conll" if task == "tagging" else "a.jsonl"
    path = write(tmp_path / name)
    more = {"task__has_null": True} if task == "span_qa" else {}
    settings = {"task__max_len": 48, "epochs": 2} | more
    fit(run, task, path, tmp_path / "tuned", **settings)
    lines = export_finetuned(tmp_path / "tuned", tmp_path / "out")
    assert class_name in lines[0]
    model = getattr(transformers, kind).from_pretrained(tmp_path / "out").eval()
    finetuned = load_finetuned(tmp_path / "tuned")
    ids = np.array([[5, 9, 12, 7, 6, 8], [10, 7, 8, 0, 0, 0]])
    real = np.array([[1] * 6, [1] * 3 + [0] * 3])
    batch = {"inputs": ids, "segment_ids": real, "type_ids": 0 * ids}
    ours = np.asarray(finetuned.program.outputs(finetuned.params, batch))
    with torch.no_grad():
        output = model(torch.tensor(ids), attention_mask=torch.tensor(real))
    if task == "tagging":
        reference = output.logits.numpy()
        labels = list(model.config.id2label.values())
        assert labels == ["O", "B-X", "B-Y", "I-X"]
        assert model.config.label2id == {name: i for i, name in enumerate(labels)}
    else:
        reference = torch.stack([output.start_logits, output.end_logits], -1).numpy()
    np.testing.assert_allclose(ours[real > 0], reference[real > 0], atol=1e-4)


def test_a_writer_writes_the_same(tmp_path):
    run = make_family(
        tmp_path, "span_corruption", "t5-small", num_decoder_layers=1, head_dim=16
    )
    rows = [{"sentence": text, "label": label} for text, label in WORDS]
    path = write_lines(tmp_path / "a.jsonl", rows)
    settings = {"task__max_target": 8, "task__max_len": 32, "epochs": 40}
    fit(run, "text_to_text", path, tmp_path / "tuned", **settings)
    lines = export_finetuned(tmp_path / "tuned", tmp_path / "out")
    assert "T5ForConditionalGeneration" in lines[0]
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    reader = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    sources = [f"sentence: {text}" for text, _ in WORDS]
    inputs = reader(sources, return_tensors="pt", padding=True)
    inputs.pop("token_type_ids", None)
    reference = model.generate(**inputs, max_new_tokens=8, do_sample=False)
    texts = reader.batch_decode(reference, skip_special_tokens=True)
    finetuned = load_finetuned(tmp_path / "tuned")
    width = inputs["input_ids"].shape[1]
    batch = {
        "inputs": inputs["input_ids"].numpy()[:, :width],
        "segment_ids": inputs["attention_mask"].numpy()[:, :width],
    }
    outputs = finetuned.program.outputs(finetuned.params, batch)
    answer = finetuned.program.base.encoder.answer
    pairs = zip(np.asarray(outputs["tokens"]), outputs["counts"])
    ours = [answer(tokens[: int(count)]) for tokens, count in pairs]
    assert [text.strip() for text in texts] == ours
