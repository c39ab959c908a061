"""The peer's side of the fine-tuning benchmark: a plain PyTorch loop.

What `transformers.Trainer` does by default, without its bookkeeping: shuffled batches
that are each padded to their longest text, AdamW without decay of biases and norms, a
linear schedule with warm-up, clipping at 1. Prints a line of JSON.
"""

import argparse
import csv
import json
import time

import numpy as np
import torch
from seqeval.metrics import f1_score as entity_f1
from sklearn.metrics import f1_score
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    get_linear_schedule_with_warmup,
)


def read(path: str, columns: list[str]) -> list[list[str]]:
    """The columns of a TSV with a header, without quoting."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [[row[name] for name in columns] for row in rows]


def read_words(path: str) -> list[tuple[list[str], list[str]]]:
    """The words and tags of sentences, a word a line, an empty line behind each."""
    with open(path, encoding="utf-8") as file:
        parts = file.read().strip().split("\n\n")
    rows = [[line.split("\t") for line in part.split("\n")] for part in parts]
    return [([row[0] for row in part], [row[1] for row in part]) for part in rows]


def encode_texts(tokenizer, rows, max_len: int) -> list:
    """Ids, segment types and label of each row; the label is its last column."""
    texts = [[row[i] for row in rows] for i in range(len(rows[0]) - 1)]
    result = tokenizer(*texts, truncation=True, max_length=max_len)
    labels = [int(row[-1]) for row in rows]
    return list(zip(result["input_ids"], result["token_type_ids"], labels, strict=True))


def encode_words(tokenizer, rows, max_len: int, tags: list[str]) -> list:
    """Ids, segment types and labels of tokens: a word's at its first, else -100."""
    result = tokenizer(
        [words for words, _ in rows],
        is_split_into_words=True,
        truncation=True,
        max_length=max_len,
    )
    encoded = []
    for i, (_, own) in enumerate(rows):
        words = result.word_ids(i)
        labels = [
            tags.index(own[word]) if word is not None and word != before else -100
            for before, word in zip([None, *words], words, strict=False)
        ]
        encoded.append((result["input_ids"][i], result["token_type_ids"][i], labels))
    return encoded


def make_batches(encoded, order, size, pad):
    """Batches in this order, each padded to its longest text."""
    for start in range(0, len(order), size):
        rows = [encoded[i] for i in order[start : start + size]]
        length = max(len(ids) for ids, *_ in rows)
        ids = torch.full((len(rows), length), pad)
        types = torch.zeros((len(rows), length), dtype=torch.long)
        seen = torch.zeros((len(rows), length), dtype=torch.long)
        for i, (row, kinds, _) in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row)
            types[i, : len(row)] = torch.tensor(kinds)
            seen[i, : len(row)] = 1
        expected = [label for *_, label in rows]
        if isinstance(expected[0], list):
            expected = [each + [-100] * (length - len(each)) for each in expected]
        labels = torch.tensor(expected)
        yield (
            {"input_ids": ids, "token_type_ids": types, "attention_mask": seen},
            labels,
        )


def main() -> None:
    """Trains, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model", "train", "dev"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--columns", required=True, help="empty: words and tags")
    parser.add_argument("--lr", type=float, required=True)
    for name in ("batch_size", "epochs", "max_len", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    splits, tags = {}, []
    for name in ("train", "dev"):
        if args.columns:
            rows = read(getattr(args, name), args.columns.split(","))
            splits[name] = encode_texts(tokenizer, rows, args.max_len)
            continue
        words = read_words(getattr(args, name))
        tags = tags or sorted({tag for _, own in words for tag in own})
        splits[name] = encode_words(tokenizer, words, args.max_len, tags)
    kind = (
        AutoModelForTokenClassification if tags else AutoModelForSequenceClassification
    )
    model = kind.from_pretrained(args.model, num_labels=len(tags) or 2)
    plain = ("bias", "LayerNorm.weight")
    groups = [
        {"params": [], "weight_decay": 0.01},
        {"params": [], "weight_decay": 0.0},
    ]
    for name, value in model.named_parameters():
        groups[name.endswith(plain)]["params"].append(value)
    optimizer = torch.optim.AdamW(groups, lr=args.lr)
    train, pad = splits["train"], tokenizer.pad_token_id
    epoch_steps = -(-len(train) // args.batch_size)
    steps = epoch_steps * args.epochs
    schedule = get_linear_schedule_with_warmup(optimizer, round(0.1 * steps), steps)
    draw, seconds = np.random.default_rng(args.seed), 0.0
    model.train()
    start = time.monotonic()
    for _ in range(args.epochs):
        order = draw.permutation(len(train)).tolist()
        for inputs, labels in make_batches(train, order, args.batch_size, pad):
            loss = model(**inputs, labels=labels).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    seconds = time.monotonic() - start
    model.eval()
    result, expected = [], []
    with torch.no_grad():
        order = list(range(len(splits["dev"])))
        for inputs, labels in make_batches(splits["dev"], order, 64, pad):
            guesses = model(**inputs).logits.argmax(-1).tolist()
            if tags:
                pairs = list(zip(labels.tolist(), guesses, strict=True))
                for own, guess in pairs:
                    kept = [(a, b) for a, b in zip(own, guess, strict=True) if a >= 0]
                    expected.append([tags[a] for a, _ in kept])
                    result.append([tags[b] for _, b in kept])
                continue
            result += guesses
            expected += labels.tolist()
    if tags:
        metrics = {"entity_f1": float(entity_f1(expected, result))}
    else:
        hits = np.mean(np.array(result) == np.array(expected))
        metrics = {"accuracy": float(hits), "f1": float(f1_score(expected, result))}
    output = metrics | {
        "seconds": seconds,
        "examples_per_second": args.epochs * len(train) / seconds,
        "steps": steps,
    }
    print(json.dumps(output))


if __name__ == "__main__":
    main()
