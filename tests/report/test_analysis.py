"""`jaxpt analyse`: runs of several architectures on one text, and refusals."""

import json
import shutil

import jax
import numpy as np
import pytest
from tiny import claim_run, make_config, write_run

from jaxpt.cli import main as cli
from jaxpt.evaluation import similarity
from jaxpt.evaluation.attention_maps import PLACES
from jaxpt.report.inspection import layers as analysis
from jaxpt.report.inspection.layers import AnalysisSpec
from jaxpt.runs import inspection
from jaxpt.runs.workdir import load_run

KINDS = ("clm", "span_corruption", "skip_gram")
SPECIALS = ("pad", "unk", "mask", "eos")
# Rows of 12 tokens; the speech's characters.
SHORT = {"num_tokens": 96, "length": 12}


@pytest.fixture(scope="module")
def folders(speech, tmp_path_factory):
    """Untrained runs: a causal one, an encoder-decoder, one without heads."""
    folder = tmp_path_factory.mktemp("analysed")
    return [
        write_run(
            make_config(speech, kind, tokenizer__specials=SPECIALS), folder / kind
        )
        for kind in KINDS
    ]


@pytest.fixture(scope="module")
def analysed(folders, tmp_path_factory):
    """The command's folder and its output."""
    to = tmp_path_factory.mktemp("out") / "analysis"
    words = ["--runs", *map(str, folders), f"--to={to}", "--text=the people"]
    words += ["--layer=1", "--head=2", "--num_tokens=96", "--length=12"]
    assert cli.main(["analyse", *words]) == 0
    return to


@pytest.fixture(scope="module")
def result(analysed):
    return json.loads((analysed / "analysis.json").read_text())


@pytest.mark.slow
def test_every_kind_of_run_is_read(result):
    assert [run["name"] for run in result["runs"]] == list(KINDS)
    assert result["rows"] == 8 and result["row_length"] == 12
    assert [list(run["attention"]) for run in result["runs"]] == [
        ["self"],
        ["self", "dec_self", "cross"],
        [],
    ]
    depths = [len(run["contextuality"]) for run in result["runs"]]
    assert depths == [2, 2, 1]
    for form in ("debiased", "biased"):
        values = np.array(result["cka"][form])
        assert values.shape == (5, 5)
        np.testing.assert_allclose(values, values.T)
        np.testing.assert_allclose(np.diag(values), 1)


@pytest.fixture(scope="module")
def seq2seq(folders):
    return load_run(folders[1])


def test_the_numbers_are_those_of_the_runs_own_states(folders, seq2seq, result):
    """Of the text's own tokens, without the special tokens around them."""
    program, tokenizer, params, _ = seq2seq
    members = analysis.load_members(folders)
    rows = analysis.read_rows(members[0], AnalysisSpec(**SHORT), 12)
    after = program.task.text_form.after
    assert after == (tokenizer.vocab.eos,)  # which only this run puts there
    layers = inspection.read_layers(program, params, rows)
    framed = np.concatenate([rows, np.full((8, 1), after[0])], axis=1).astype("int32")
    expected = jax.jit(program.task.model.layer_features)(params, framed)[:, :, :12]
    np.testing.assert_allclose(layers, expected, atol=1e-5)
    other, _, params, _ = load_run(folders[0])
    first = inspection.read_layers(other, params, rows)
    results = similarity.linear_cka(
        first[1].reshape(96, -1), layers[1].reshape(96, -1), is_debiased=True
    )
    assert result["cka"]["debiased"][1][3] == pytest.approx(results, abs=1e-5)
    measured = similarity.measure_contextuality(layers[1], rows)
    output = result["runs"][1]["contextuality"][1]
    assert output["anisotropy"] == pytest.approx(measured.anisotropy, abs=1e-5)
    assert output["num_tokens"] == measured.num_tokens > 0


def test_heads_are_those_of_the_weights(folders, seq2seq, result):
    program, _, params, _ = seq2seq
    members = analysis.load_members(folders)
    rows = analysis.read_rows(members[0], AnalysisSpec(**SHORT), 12)
    results = list(inspection.read_attention(program, params, rows, batch_size=3))
    assert [len(framed) for _, framed in results] == [3, 3, 2]
    weights = np.concatenate([each["cross"] for each, _ in results], axis=1)
    heads = result["runs"][1]["attention"]["cross"]
    assert np.array(heads["entropy"]).shape == (1, 2)
    own = np.trace(weights[0, :, 1], 0, 1, 2).mean() / 13
    assert heads["shares"]["self"][0][1] == pytest.approx(own, abs=1e-5)
    # Thirteen places, the last of which is [EOS], and of special ids no other.
    ends = weights[0, :, 1, :, -1].mean()
    assert heads["shares"]["special"][0][1] == pytest.approx(ends, abs=1e-5)
    assert heads["even"]["special"] == pytest.approx(1 / 13)
    assert heads["even"]["entropy"] == pytest.approx(np.log(13), abs=1e-4)
    assert heads["offset"][0][0] in PLACES
    causal = result["runs"][0]["attention"]["self"]
    assert causal["even"]["next"] == 0 and causal["shares"]["next"] == [[0, 0]]
    assert causal["even"]["special"] == causal["shares"]["special"][0][0] == 0
    assert 0 < causal["even"]["punctuation"] < 0.2


def test_a_head_is_drawn_on_the_sentence(analysed, result):
    maps = {each["name"]: each for each in result["sentence"]["maps"]}
    assert set(maps) == {"clm", "span_corruption"}
    output = maps["span_corruption"]
    assert (output["layer"], output["head"]) == (1, 2)
    assert len(output["tokens"]) == len("the people") + 1
    assert output["dec_tokens"][1:] == output["tokens"][:-1]
    for weights in output["weights"].values():
        np.testing.assert_allclose(np.sum(weights, axis=1), 1, atol=1e-5)
    rolled = np.array(maps["clm"]["rollout"])
    assert (np.triu(rolled, 1) == 0).all() and (np.diag(rolled) >= 0.5).all()


def test_the_page_has_the_pictures_and_the_tables(analysed, result):
    names = ["cka", "contextuality", "heads", "attention", "rollout"]
    assert list(result["figures"]) == names
    page = (analysed / "analysis.html").read_text(encoding="utf-8")
    assert page.count("<img") == 5 and "http:" not in page and "https:" not in page
    assert "Without attention: skip_gram." in page
    for name in names:
        assert (analysed / f"{name}.svg").read_text().startswith("<svg")


def test_again_into_the_same_folder_and_from_a_file(folders, analysed, tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("the people of the states and the congress " * 9, encoding="utf-8")
    spec = AnalysisSpec(file=str(file), **SHORT)
    to = shutil.copytree(analysed, tmp_path / "again")
    assert (to / "attention.svg").exists()
    results = analysis.analyse(folders[:1], spec, to)
    assert results["text"] == str(file) and "sentence" not in results
    assert json.loads((to / "analysis.json").read_text())["rows"] == 8
    assert not (to / "attention.svg").exists()  # of an earlier call


@pytest.mark.parametrize(
    "words, output",
    [
        (["--length=25"], "--length=25: must be at most 2"),
        (["--num_tokens=20", "--length=12"], "--num_tokens=20: must be at least 24"),
        (["--head=1"], "--head=1: needs --text"),
        (["--text=a", "--head=3"], "--head=3: must be at most 2"),
        (["--text=a", "--layer=2"], "--layer=2: must be at most 1"),
        (["--text=a", "--layer=-1"], "--layer=-1: must be at least 0"),
        (["--text=" + "the " * 9], "--text: has 36 tokens"),
        (["--file=missing.txt"], "--file=missing.txt: cannot be read"),
    ],
)
def test_what_is_refused_in_one_line(folders, tmp_path, words, output, capsys):
    to = tmp_path / "out"
    words = ["--runs", *map(str, folders[:2]), f"--to={to}", *words]
    assert cli.main(["analyse", *words]) == 2
    error = capsys.readouterr().err
    assert output in error and len(error.splitlines()) == 1
    assert not to.exists()


def test_other_tokenizers_and_folders_are_refused(folders, speech, tmp_path, capsys):
    config = make_config(speech, "clm", tokenizer__specials=("pad", "unk", "eos"))
    other = tmp_path / "other"
    claim_run(config, other)
    cases = [
        (["--runs", f"{folders[0]}", f"{other}"], "has another tokenizer than"),
        (["--runs", f"{folders[0]}", f"{folders[0]}"], "is named twice"),
        (["--runs", f"{tmp_path}"], "must be a training run's"),
        ([], "must be folders of finished runs"),
    ]
    for words, output in cases:
        assert cli.main(["analyse", *words, f"--to={tmp_path / 'out'}"]) == 2
        error = capsys.readouterr().err
        assert output in error and len(error.splitlines()) == 1
    assert cli.main(["analyse", "--runs", f"{other}"]) == 2
    assert "--to: must name the folder" in capsys.readouterr().err
    assert cli.main(["analyse", "--runs", f"{folders[0]}", f"--to={other}"]) == 2
    assert "holds other files" in capsys.readouterr().err


def test_a_stopped_analysis_is_repeated(analysed, tmp_path, monkeypatch):
    """Stopped after the pictures and the page."""

    def stop(*args):
        raise KeyboardInterrupt

    result = json.loads((analysed / "analysis.json").read_text())
    to = tmp_path / "new" / "out"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(analysis, "write_json", stop)
        analysis._write(result, to)
    assert not list(tmp_path.iterdir())
    analysis._write(result, to)
    names = {path.name for path in analysed.iterdir()}
    assert {path.name for path in to.iterdir()} == names
    analysis._write({key: result[key] for key in result.keys() - {"sentence"}}, to)
    assert names - {path.name for path in to.iterdir()} == {
        *("attention.svg", "rollout.svg")
    }
