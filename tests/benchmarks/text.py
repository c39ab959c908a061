"""Speed of encoding text and of making rows, compared with other libraries.

    .venv/bin/python tests/benchmarks/text.py --text FILE_OR_FOLDER

Three tables; both sides run alternately in this process, medians of the rounds:

- encode: MB/s of one core; jaxpt, and the `tokenizers` library alone on the same texts
  with the same vocabulary, after checking that both give the same ids. The first round
  of jaxpt begins with an empty cache.
- rows: rows/s of every form, and of nanoGPT's `get_batch` (random positions of a memory
  map, stacked).
- training: rows/s of a compiled step of each objective (the model of
  configs/wikitext2.py), and of its feed, with their ratio.

FILE_OR_FOLDER is plain text, such as the hundred novels that configs/novels.py reads.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "configs"))
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import jax  # noqa: E402
import numpy as np  # noqa: E402
from wikitext2 import get_config  # noqa: E402

from jaxpt.config.plan import make_plan  # noqa: E402
from jaxpt.runs import data  # noqa: E402
from jaxpt.runs.program import Program  # noqa: E402
from jaxpt.runs.task import make_task  # noqa: E402
from jaxpt.text.dataset import load_text  # noqa: E402
from jaxpt.text.feed import Feed, FeedSpec  # noqa: E402
from jaxpt.text.phases import Phase  # noqa: E402
from jaxpt.text.rows.forms import make_rows  # noqa: E402
from jaxpt.text.rows.rows_spec import RowsSpec  # noqa: E402
from jaxpt.text.sources.source import SourceSpec, read_documents  # noqa: E402
from jaxpt.text.tokens import tokenizer as tok  # noqa: E402

FORMS = ("chunks", "windows", "packed", "full_sentences", "doc_sentences", "pairs")
KINDS = ("bpe", "wordpiece", "unigram")
SPECIALS = ("pad", "unk", "cls", "sep", "mask", "eos")
OBJECTIVES = ("clm", "mlm", "span_corruption", "electra")


def seconds_of(function) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def encode(texts: list[str], rounds: int) -> None:
    """The first table."""
    num_mb = sum(len(text.encode()) for text in texts) / 1e6
    print(f"encode, {num_mb:.0f} MB, one core          MB/s    tokenizers    ratio")
    for kind in KINDS:
        spec = tok.TokenizerSpec(
            kind=kind, vocab_size=8192, specials=SPECIALS, num_sentinels=16
        )
        ours = tok.make_tokenizer(spec, texts)
        core = ours._core
        same = [
            ours.encode(text).tolist()
            == core.encode(text, add_special_tokens=False).ids
            for text in texts[:3]
        ]
        if not all(same):
            sys.exit(f"{kind}: the ids differ")
        speeds, reference = [], []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                tok.save(ours, path := Path(folder) / "tokenizer.json")
                fresh = tok.load(path)
            speeds.append(num_mb / seconds_of(lambda: [*map(fresh.encode, texts)]))
            peer = seconds_of(
                lambda: [core.encode(t, add_special_tokens=False).ids for t in texts]
            )
            reference.append(num_mb / peer)
        ratio = statistics.median(a / b for a, b in zip(speeds, reference, strict=True))
        print(
            f"  {kind:30s} {statistics.median(speeds):7.1f} "
            f"{statistics.median(reference):13.1f} {ratio:8.2f}"
        )


def make_config(text: Path, cache: str, objective: str = "clm"):
    """The model of configs/wikitext2.py on another text, with pairs and sentences."""
    config = get_config()
    config.objective = objective
    config.data.path, config.data.valid_path = str(text), ""
    config.data.documents, config.data.sentences = "paragraph", "punctuation"
    config.data.cache_dir = cache
    config.tokenizer.kind, config.tokenizer.specials = "wordpiece", SPECIALS
    return config


def get_batch(path: Path, length: int, size: int, rng) -> np.ndarray:
    """nanoGPT's `get_batch` but for torch: the map is opened anew, as it does."""
    tokens = np.memmap(path, dtype=np.uint16, mode="r")
    places = rng.integers(0, len(tokens) - length, size)
    return np.stack([tokens[i : i + length].astype(np.int64) for i in places])


def measure_rows(config, split, vocab, peer: Path, rounds: int) -> dict[str, float]:
    """The second table; gives the median rows/s of each form."""
    size, length = config.train.batch_size, config.data.row_length
    feeds = {
        form: Feed(
            [(make_rows(split.parts[0], RowsSpec(length, form), vocab), 1.0)],
            FeedSpec((Phase(0, size),), seed=0),
        )
        for form in FORMS
    }
    rng, speeds = np.random.default_rng(0), {}
    for turn in range(rounds):
        for form, feed in feeds.items():
            seconds = seconds_of(lambda: [feed[turn * 200 + i] for i in range(200)])
            speeds.setdefault(form, []).append(200 * size / seconds)
        seconds = seconds_of(
            lambda: [get_batch(peer, length, size, rng) for _ in range(200)]
        )
        speeds.setdefault("(nanoGPT's get_batch)", []).append(200 * size / seconds)
    print(f"rows of {length} tokens, {size} a batch      rows/s")
    medians = {form: statistics.median(results) for form, results in speeds.items()}
    for form, result in medians.items():
        print(f"  {form:30s} {result:9,.0f}")
    return medians


def measure_training(make, tokenizer, split, rounds: int, per_call: int = 5) -> None:
    """The third table: the feed beside the compiled step, one after the other."""
    kind = jax.devices()[0].device_kind
    print(f"training on {kind:20s} rows/s    its feed     ratio")
    for objective in OBJECTIVES:
        task = make_task(make_plan(make(objective)), tokenizer.vocab)
        feed, program = data.make_feed(task, split), Program(task)
        state = program.run_form(program.init_state(0))
        num_rows = per_call * task.plan.train.batch_size
        steps, feeds = [], []
        for turn in range(rounds + 1):  # the first compiles
            start = time.perf_counter()
            stack = feed.stack(turn * per_call, per_call)
            read = time.perf_counter()
            state, metrics = program.train_call(state, program.place(stack), 0)
            jax.block_until_ready(metrics)
            steps.append(num_rows / (time.perf_counter() - read))
            feeds.append(num_rows / (read - start))
        step, fed = statistics.median(steps[1:]), statistics.median(feeds[1:])
        print(f"  {objective:30s} {step:7,.0f} {fed:11,.0f} {fed / step:9,.0f}")


def main() -> None:
    """Prints the three tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--encode_mb", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    if not args.text.exists():
        sys.exit(f"--text={args.text}: not found")

    texts, num_chars = [], 0
    for doc in read_documents(SourceSpec(path=str(args.text))):
        texts.append(doc.text)
        num_chars += len(doc.text)
        if num_chars > args.encode_mb * 1e6:
            break
    encode(texts, args.rounds)
    with tempfile.TemporaryDirectory() as cache:
        config = make_config(args.text, cache)
        tokenizer, splits = load_text(make_plan(config).text)
        train = splits["train"]
        peer = Path(cache) / "train.bin"
        tokens = train.parts[0].read(0, train.num_tokens)
        tokens.astype(np.uint16).tofile(peer)
        measure_rows(config, train, tokenizer.vocab, peer, args.rounds)
        measure_training(
            lambda objective: make_config(args.text, cache, objective),
            tokenizer,
            train,
            args.rounds,
        )


if __name__ == "__main__":
    main()
