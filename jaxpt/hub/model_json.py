"""The content of `model.json`, which describes an export that runs without jaxpt.

It has the special ids, the ids around a text and how gaps are filled, as plain values.
"""

import jax

from jaxpt.nn.networks.abilities import FillsMasks, name_writing
from jaxpt.nn.networks.electra import ElectraNetwork
from jaxpt.nn.networks.network import Network
from jaxpt.runs.workdir import LoadedRun

VERSION = 1
# The kind of a run by the heads of its networks; a causal one that reads ahead is
# "prefix".
KINDS = {
    ("causal",): "causal",
    ("masked",): "masked",
    ("pretraining",): "masked",
    ("generator", "discriminator"): "electra",
    ("generator", "masked"): "masked",
    ("seq2seq",): "seq2seq",
}


def make_model_json(run: LoadedRun) -> dict:
    """The form of texts for a run's graphs, and the use of their outputs."""
    task, tokenizer = run.program.task, run.tokenizer
    network, vocab, form = task.model, tokenizer.vocab, task.text_form
    parts = network.export_parts(run.params)
    # An encoder-decoder that fills gaps has its mode token before a text (UL2).
    before = form.opening if network.HAS_DECODER else form.before
    is_prefix = "causal" in parts and network.READS_AHEAD
    fills = isinstance(network, FillsMasks)
    has_decoder = network.HAS_DECODER
    size = task.model_spec.vocab_size
    names = [tokenizer.token_name(i) for i in range(vocab.size)]
    return {
        "objective": task.plan.objective_name,
        "kind": "prefix" if is_prefix else KINDS[tuple(parts)],
        "writes": name_writing(network),
        "fills": fills,
        # A causal head fills a mask from the position before it.
        "fill_offset": int(fills and "causal" in parts),
        "generation_prefix": "prompt" if is_prefix and not fills else "none",
        "fake_temperature": _find_fake_temperature(network),
        "parameters": _count_parameters(parts),
        "step": int(run.step),
        "max_length": task.model_spec.max_len,
        "vocab_size": size,
        "before": list(before),
        "after": list(form.after),
        "start": vocab.start if has_decoder else None,
        "first": form.first,
        "last": form.last if has_decoder else None,
        "ends": list(form.ends),
        "banned": [int(i) for i in task.find_banned(has_decoder)],
        "nonwords": [int(i) for i in task.nonwords],
        "mask": vocab.mask,
        "sentinels": list(vocab.sentinels) if task.has_sentinels else [],
        "has_types": task.model_spec.num_types > 1,
        "tokens": names + [f"<unused {i}>" for i in range(len(names), size)],
        "word_starts": "".join("01"[is_start] for is_start in vocab.word_starts),
    }


def _find_fake_temperature(network: Network) -> float:
    """The temperature of a generator's samples in the training of ELECTRA."""
    return network.temperature if isinstance(network, ElectraNetwork) else 1.0


def _count_parameters(parts: dict) -> int:
    """Counts the parameters of all networks; shared ones count once."""
    leaves = jax.tree.leaves([params for _, params in parts.values()])
    return sum(int(leaf.size) for leaf in {id(leaf): leaf for leaf in leaves}.values())
