"""The family that a dry run names is the one of the export."""

import json
import re
from pathlib import Path

import pytest
from tiny import make_config, prepare, write_run

from jaxpt.config.config_files import read_config_file
from jaxpt.config.plan import make_plan
from jaxpt.errors import UserError
from jaxpt.hub.export import export_run
from jaxpt.hub.exportable import name_families
from jaxpt.runs.task import make_task
from jaxpt.text.tokens.vocab import Vocab

DOCS = Path(__file__).resolve().parents[2] / "docs"
POST = {"model__norm_position": "post", "model__num_types": 1}
HEAD = {"model__head_bias": True, "model__head_transform": True}
NO_PAD = {"tokenizer__specials": ("unk", "mask", "eos")}


@pytest.mark.parametrize(
    "objective, changes",
    [
        ("clm", {"model__activation": "gelu_tanh"}),
        ("clm", {"model__activation": "relu2"}),
        ("mlm", {}),
        ("mlm", POST | HEAD),
        # RoBERTa's form, which counts positions from the id of [PAD].
        ("mlm", POST | HEAD | {"model__position_offset": 2} | NO_PAD),
        ("electra", POST | HEAD),
        ("bilm", {}),
    ],
)
def test_the_name_is_what_the_export_does(objective, changes, speech, tmp_path):
    config = make_config(speech, objective, **changes)
    name = name_families(prepare(config)[0])
    write_run(config, tmp_path / "run")
    try:
        export_run(tmp_path / "run", tmp_path / "out")
    except UserError as error:
        assert name.startswith("none")
        reason = name.partition("none; ")[2]
        assert reason in str(error) and bool(reason) == (objective != "bilm")
        return
    configs = [
        json.loads(path.read_text()) for path in (tmp_path / "out").rglob("config.json")
    ]
    families = {each["model_type"] for each in configs if "model_type" in each}
    assert name == ", ".join(families)


def plan_quickstart(objective, changes=()):
    config = read_config_file(f"quickstart:{objective}")
    config.update_from_flattened_dict(dict(changes))
    plan = make_plan(config, list(dict(changes)))
    ids = {role: id_ for id_, role in enumerate(plan.text.tokenizer.specials)}
    return make_task(plan, Vocab(size=100, sentinels=tuple(range(92, 100)), **ids))


# As in docs/transformers.md.
LEARNED = {"model.positions": "learned"}
ELECTRA = {"model.norm_position": "post", "model.num_types": 1}
ELECTRA |= {"model.head_bias": True, "model.head_transform": True}


@pytest.mark.parametrize(
    "objective, changes, family",
    [
        ("clm", {}, "gpt_neox"),
        ("mlm", {}, "gpt_neox"),
        ("electra", LEARNED | ELECTRA | {"model.activation": "gelu"}, "electra"),
        ("span_corruption", LEARNED, "blenderbot"),
    ],
)
def test_the_quickstarts_models(objective, changes, family):
    assert name_families(plan_quickstart(objective, changes)) == family
    name = name_families(plan_quickstart(objective))
    assert name.startswith(f"none; the nearest, {family}, needs ") == bool(changes)
    named = dict(part.split("=") for part in re.findall(r"[\w.]+=\w+", name))
    assert named == {field: str(value) for field, value in changes.items()}
    text = (DOCS / "transformers.md").read_text(encoding="utf-8")
    section = text.partition("## Models of the quickstart")[2].partition("\n## ")[0]
    (row,) = [x for x in section.splitlines() if x.startswith(f"| `{objective}` |")]
    assert f"`{family}`" in row
    assert all(f"`{name}={value}`" in row for name, value in changes.items())
