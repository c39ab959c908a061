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
from sklearn.metrics import f1_score
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    get_linear_schedule_with_warmup,
)


def read(path: str, columns: list[str]) -> list[list[str]]:
    """The columns of a TSV with a header, without quoting."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [[row[name] for name in columns] for row in rows]


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
        labels = torch.tensor([label for *_, label in rows])
        yield (
            {"input_ids": ids, "token_type_ids": types, "attention_mask": seen},
            labels,
        )


def main() -> None:
    """Trains, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model", "train", "dev", "columns"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--lr", type=float, required=True)
    for name in ("batch_size", "epochs", "max_len", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForSequenceClassification.from_pretrained(args.model, num_labels=2)
    columns = args.columns.split(",")
    splits = {}
    for name in ("train", "dev"):
        rows = read(getattr(args, name), columns)
        texts = [[row[i] for row in rows] for i in range(len(columns) - 1)]
        found = tokenizer(*texts, truncation=True, max_length=args.max_len)
        labels = [int(row[-1]) for row in rows]
        splits[name] = list(
            zip(found["input_ids"], found["token_type_ids"], labels, strict=True)
        )
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
    found, wanted = [], []
    with torch.no_grad():
        order = list(range(len(splits["dev"])))
        for inputs, labels in make_batches(splits["dev"], order, 64, pad):
            found += model(**inputs).logits.argmax(-1).tolist()
            wanted += labels.tolist()
    hits = np.mean(np.array(found) == np.array(wanted))
    told = {
        "accuracy": float(hits),
        "f1": float(f1_score(wanted, found)),
        "seconds": seconds,
        "examples_per_second": args.epochs * len(train) / seconds,
        "steps": steps,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
