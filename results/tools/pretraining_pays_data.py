"""Makes the data of results/configs/pretraining_pays.py from two public data sets.

    git clone https://github.com/mhjabreel/CharCnn_Keras
    git clone https://github.com/forest-snow/alps
    git clone https://github.com/UniversalDependencies/UD_English-EWT
    python results/tools/pretraining_pays_data.py --to DIR --ewt UD_English-EWT \
        --ag_train alps/data/agnews/dev.tsv \
        --ag_test CharCnn_Keras/data/ag_news_csv/test.csv

AG News (Zhang et al. 2015; for non-commercial use) has a topic for each description:
9,000 of 10,001 training rows, the other 1,000 for dev, and 2,000 rows of the official
test set. UD English EWT (Silveira et al. 2014; CC BY-SA 4.0) has a part of speech for
each word: its own train, dev and test split, of dev and test every second sentence.
Files may be compressed (.xz).

Writes ag_news-SPLIT.jsonl, with "text" and "label", and ewt-SPLIT.jsonl, with "text",
"words" and "tags". "text" of the two training files is also the text for pretraining,
so training rows with the text of a dev or test row are left out.
"""

import argparse
import csv
import io
import json
import lzma
import random
import re
from pathlib import Path

TOPICS = ("World", "Sports", "Business", "Sci/Tech")
SPLITS = ("train", "dev", "test")
NUM_DEV, NUM_TEST = 1000, 2000


def read(path: Path) -> str:
    """The text of a file."""
    data = path.read_bytes()
    return (lzma.decompress(data) if path.suffix == ".xz" else data).decode()


def clean(text: str) -> str:
    """AG News has backslashes for line breaks, and entities without an ampersand."""
    text = re.sub(r" ?#(\d+);", lambda match: chr(int(match[1])), text)
    return " ".join(text.replace("\\", " ").split())


def read_ag_news(train: Path, test: Path) -> dict[str, list[dict]]:
    """The splits of AG News."""
    pairs = [line.rsplit("\t", 1) for line in read(train).splitlines()]
    rows = [{"text": clean(text), "label": label} for text, label in pairs]
    random.Random(0).shuffle(rows)
    tested = [
        {"text": clean(text), "label": TOPICS[int(number) - 1]}
        for number, _, text in csv.reader(io.StringIO(read(test)))
    ]
    return {
        "train": rows[NUM_DEV:],
        "dev": rows[:NUM_DEV],
        "test": random.Random(0).sample(tested, NUM_TEST),
    }


def read_ewt(path: Path) -> list[dict]:
    """The sentences of a CoNLL-U file; without multiword and empty tokens."""
    rows = []
    for block in read(path).strip().split("\n\n"):
        lines = block.split("\n")
        text = next(x for x in lines if x.startswith("# text = "))
        tokens = [line.split("\t") for line in lines if not line.startswith("#")]
        tokens = [fields for fields in tokens if fields[0].isdigit()]
        words, tags = [x[1] for x in tokens], [x[3] for x in tokens]
        rows.append({"text": text[9:], "words": words, "tags": tags})
    return rows


def main() -> None:
    """Writes the six files and prints the number of rows in each."""
    parser = argparse.ArgumentParser()
    for name in ("ag_train", "ag_test", "ewt", "to"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    paths = parser.parse_args()
    ewt = {x: read_ewt(paths.ewt / f"en_ewt-ud-{x}.conllu") for x in SPLITS}
    ewt |= {"dev": ewt["dev"][::2], "test": ewt["test"][::2]}
    sets = {"ag_news": read_ag_news(paths.ag_train, paths.ag_test), "ewt": ewt}
    held = {row["text"] for own in sets.values() for x in SPLITS[1:] for row in own[x]}
    paths.to.mkdir(parents=True, exist_ok=True)
    for name, own in sets.items():
        own["train"] = [row for row in own["train"] if row["text"] not in held]
        for split, rows in own.items():
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            path = paths.to / f"{name}-{split}.jsonl"
            path.write_text(lines, encoding="utf-8")
            print(f"{path}: {len(rows):,} rows")


if __name__ == "__main__":
    main()
