"""What fine-tunings share changes none of their numbers, and is read and made once."""

import pytest

from jaxpt.finetuning import data as datas
from jaxpt.finetuning import program as programs
from jaxpt.finetuning.base import load_base
from jaxpt.finetuning.grid import finetune, make_program
from jaxpt.finetuning.reuse import MAX_KEPT, Reuse
from tests.finetuning.folders import read_all, silent


@pytest.fixture
def counted(monkeypatch):
    """Counts of tables that were read, and of programs that were made."""
    result = {"tables": 0, "programs": 0}

    def count(owner, name, what):
        function = getattr(owner, name)

        def call(*args, **kwargs):
            result[what] += 1
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    count(datas, "read_table", "tables")
    count(programs.TuneProgram, "__init__", "programs")
    return result


def test_what_is_shared_changes_no_number(counted, make_base, make_tune, tmp_path):
    """Two networks, one also fresh, with few labels of two seeds."""
    mlm, clm, reuse = str(make_base("mlm")), str(make_base("clm")), Reuse()
    requests = [
        (make_tune(train__seeds=(seed,), data__num_train=size), source)
        for source, size, seed in (
            *((mlm, 16, 0), (mlm, 24, 1)),
            *((f"scratch:{mlm}", 16, 0), (clm, 24, 1)),
        )
    ]
    shared = []
    for i, (plan, source) in enumerate(requests):
        finetune(plan, source, tmp_path / f"shared{i}", silent, reuse)
        shared.append(read_all(tmp_path / f"shared{i}"))
    assert counted == {"tables": 3, "programs": 2}
    for i in (1, 2):
        plan, source = requests[i]
        finetune(plan, source, tmp_path / f"alone{i}", silent)
        assert read_all(tmp_path / f"alone{i}") == shared[i]
    losses = {(x["source"], x["cells"][0]["history"][0]["loss"]) for x in shared}
    assert len(losses) == 4


def make_untrained(plan, source, reuse):
    """The program of a fine-tuning, which is not trained."""
    data = reuse.read_data(plan)
    options = plan.spec.max_len, plan.train.dropout
    base = load_base(str(source), plan.spec.head, *options)
    splits = reuse.encode_splits(plan, data, base.encoder)
    make_program(plan, base, data.labels, splits["train"], reuse)


def test_programs_of_an_earlier_network_are_dropped(counted, make_base, make_tune):
    """Those of many objectives would exhaust the memory map of the process."""
    reuse, plan = Reuse(), make_tune()
    for source in ("mlm", "mlm", "clm", "mlm"):
        make_untrained(plan, make_base(source), reuse)
    assert counted["programs"] == 3


def test_other_settings_are_others(counted, make_base, make_tune):
    reuse, base = Reuse(), make_base("mlm")
    for changes in (
        *({}, {"train__seeds": (1,)}, {"train__lr": (1e-3,)}),
        *({"task__max_len": 16}, {"task__head": "roberta"}, {"train__dropout": 0.5}),
    ):
        make_untrained(make_tune(**changes), base, reuse)
    assert counted["programs"] == 5  # another seed has the program of the first


def test_the_oldest_goes(make_tune):
    reuse = Reuse()
    for i in range(MAX_KEPT + 3):
        reuse.read_data(make_tune(task__max_len=20 + i))
    assert len(reuse._data) == MAX_KEPT


def test_only_examples_that_are_drawn_are_encoded(make_tune, make_base):
    plan, reuse = make_tune(data__num_train=6), Reuse()
    data = reuse.read_data(plan)
    base = load_base(str(make_base("mlm")), "auto", 32, -1)
    splits = reuse.encode_splits(plan, data, base.encoder)
    assert [len(splits[name].rows) for name in splits] == [6, 16, 16]
    assert len(data.splits["train"]) == 40
