"""The quickstart's runs as models of transformers: numbers, ids, and the way back.

`make test-peers` runs what needs torch.
"""

import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hub.cases import Ours, find_real
from hub.conftest import same

from jaxpt.config.config_files import read_config_file
from jaxpt.config.plan import make_plan
from jaxpt.config.settings import default_config
from jaxpt.hub.export import export_run
from jaxpt.hub.imports import import_run
from jaxpt.hub.source_folder import read_networks
from jaxpt.learn.state import make_state
from jaxpt.nn.heads import TokenScore
from jaxpt.nn.model_differences import find_differences
from jaxpt.nn.transformer import Transformer
from jaxpt.runs.checkpoint import Checkpointer
from jaxpt.runs.program import Program
from jaxpt.runs.task import make_task
from jaxpt.runs.workdir import load_run, lock_workdir
from jaxpt.text.dataset import load_text

TEXT = "The state of the Union 🙂 is café, cafe\u0301;\n\tde\u0301ja\u0300 vu.\r\n" * 40
# Typed special tokens, newlines, emoji, marks, and characters that are not in the text.
TYPED = (
    "",
    "the sta[MASK]e of the Union",
    "[PAD][EOS] <extra_id_0>a<extra_id_7> [MASK][MASK] [UNK]",
    " the  state\n\n\tof\r\nthe ",
    "cafe\u0301 café 🙂🙂 de\u0301ja\u0300",
    "Ж𝄞 👩\u200d👩\u200d👧 [MASK ]\x00\u2028 <extra_id_8>",
)
# With the settings that docs/transformers.md names for those that do not fit.
LEARNED = {"model.positions": "learned"}
CHANGES = {
    "clm": {},
    "mlm": {},
    "masked_diffusion": {},
    "span_corruption": LEARNED,
    "electra": LEARNED
    | {
        "model.norm_position": "post",
        "model.activation": "gelu",
        "model.num_types": 1,
        "model.head_bias": True,
        "model.head_transform": True,
    },
}
KINDS = ("char", "byte")


def make_run(folder, objective, kind):
    """A run of the quickstart at step 0, none of whose parameters is 0."""
    text = folder / "text.txt"
    text.write_text(TEXT, encoding="utf-8", newline="")
    config = read_config_file(f"quickstart:{objective}")
    changes = CHANGES[objective] | {"tokenizer.kind": kind, "data.path": str(text)}
    config.update_from_flattened_dict(changes)
    plan = make_plan(config, list(changes))
    tokenizer, corpora = load_text(plan.text)
    task = make_task(plan, tokenizer.vocab)
    params = Program(task, is_training=False).init_params(0)
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: x + 0.1 * rng.normal(size=x.shape), params)
    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), params)
    lock_workdir(folder / "run", task.plan, tokenizer, corpora)
    with Checkpointer(folder / "run" / "checkpoints") as checkpointer:
        checkpointer.save(0, make_state(params, task.optimizer))
    export_run(folder / "run", folder / "theirs")


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    """`export(objective, kind)`: the folder with `run` and its export, `theirs`."""
    made = {}

    def get(objective, kind="char"):
        if (objective, kind) not in made:
            folder = tmp_path_factory.mktemp(objective)
            make_run(folder, objective, kind)
            made[objective, kind] = folder
        return made[objective, kind]

    return get


@pytest.mark.parametrize("kind", KINDS)
def test_typed_text_has_the_ids_of_autotokenizer(kind, export):
    transformers = pytest.importorskip("transformers")
    folder = export("mlm", kind)
    program, tokenizer, _, _ = load_run(folder / "run")
    theirs = transformers.AutoTokenizer.from_pretrained(folder / "theirs")
    form = program.task.text_form
    for text in TYPED:
        ids = form.wrap(tokenizer.encode_prompt(text)).tolist()
        assert theirs(text)["input_ids"] == ids, text
        assert theirs.decode(ids) == tokenizer.decode(ids)
        is_known = kind == "byte" or text != TYPED[-1]
        assert (theirs.decode(ids) == text) == is_known
    assert tokenizer.vocab.mask == theirs.mask_token_id
    assert len(theirs) == tokenizer.vocab.size


@pytest.mark.parametrize("objective", CHANGES)
def test_the_run_comes_back(objective, export, tmp_path):
    folder = export(objective)
    config = default_config()
    config.data.path = str(folder / "text.txt")
    import_run(folder / "theirs", tmp_path / "again", config)
    one, two = load_run(folder / "run"), load_run(tmp_path / "again")
    same(two[2], one[2])
    old, new = one[0].task, two[0].task
    assert new.plan.objective_name == objective
    assert new.spec == dataclasses.replace(old.spec, row_length=new.spec.row_length)
    assert dataclasses.replace(new.vocab, text_form=None) == old.vocab
    assert new.text_form == old.text_form
    assert not find_differences(new.model_spec, old.model_spec)


def test_an_encoder_is_a_gpt_neox_without_its_causal_mask(export):
    """Said in its config, and to its users."""
    configs = {}
    for objective in ("clm", "mlm"):
        folder = export(objective) / "theirs"
        configs[objective] = json.loads((folder / "config.json").read_text())
        card = (folder / "README.md").read_text()
        assert ("is_causal=False" in card) == (objective == "mlm")
        assert (folder / "generation_config.json").exists() == (objective == "clm")
    differing = {
        name: [each.get(name) for each in configs.values()]
        for name in configs["clm"].keys() | configs["mlm"].keys()
        if configs["clm"].get(name) != configs["mlm"].get(name)
    }
    assert differing == {"is_causal": [None, False]}


@pytest.mark.parametrize("changes, purpose", [({}, "masked"), (None, "causal")])
def test_an_older_config_of_a_decoder_is_causal(changes, purpose, export, tmp_path):
    """Without the field, or a body without a head: what the config says."""
    shutil.copytree(export("mlm") / "theirs", tmp_path / "theirs")
    path = tmp_path / "theirs" / "config.json"
    config = json.loads(path.read_text())
    if changes is None:
        del config["is_causal"]
    for names in (["GPTNeoXForCausalLM"], ["GPTNeoXModel"], None):
        path.write_text(json.dumps(config | {"architectures": names}))
        assert list(read_networks(tmp_path / "theirs")) == [purpose]


def make_ours(spec, head):
    """A network of a run, for `Ours.outputs`."""
    ours = object.__new__(Ours)
    ours.spec, ours.head = spec, head
    ours.model, ours.score = Transformer(spec), TokenScore(spec)
    return ours


@pytest.mark.peers
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("objective", CHANGES)
def test_logits_are_those_of_transformers(objective, attention, export):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = export(objective)
    program, _, params, _ = load_run(folder / "run")
    parts = program.task.model.export_parts(params)
    rng = np.random.default_rng(0)
    size = program.task.vocab.size
    lengths = np.array([30, 64, 7])
    ids = rng.integers(1, size, (3, 64)) * (np.arange(64) < lengths[:, None])
    batch = {"input_ids": ids, "lengths": lengths}
    if "seq2seq" in parts:
        batch["decoder_input_ids"] = rng.integers(1, size, (3, 9))
    for head, (spec, part) in parts.items():
        place = folder / "theirs" / (head if len(parts) > 1 else "")
        config = json.loads((place / "config.json").read_text())
        kind = getattr(transformers, config["architectures"][0])
        theirs = kind.from_pretrained(place, attn_implementation=attention)
        real = find_real(batch)
        inputs = {n: torch.tensor(x) for n, x in batch.items() if n != "lengths"}
        for mask in (real, None):  # None: no padding
            rows = real if mask is not None else np.ones_like(real)
            given = {} if mask is None else {"attention_mask": torch.tensor(mask + 0)}
            with torch.no_grad():
                expected = theirs.eval()(**inputs, **given).logits.numpy()
            seen = batch | {"lengths": rows.sum(1)}
            _, logits = make_ours(spec, head).outputs(part, seen)
            gap = np.abs(np.asarray(logits) - expected)
            gap = gap if "seq2seq" in parts else gap[rows]
            print(f"{objective} {head} {attention}: {gap.max():.1e}")
            assert gap.max() < 1e-5
            assert np.abs(expected).max() > 0.5
