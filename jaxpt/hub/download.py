"""Downloads a model of the Hugging Face Hub by name: ORG/NAME or ORG/NAME@REVISION.

Names from before the Hub had organizations ("gpt2") are those of `LEGACY`.

    config.json, tokenizer files         by their exact names, so none of a subfolder
    model.safetensors                    or, without it, the shards that its index
                                         lists, or the only *.safetensors
    generator/, discriminator/, jaxpt/   the same files of these folders, if an export
                                         of jaxpt was uploaded

A LoRA adapter of PEFT is adapter_config.json and adapter_model.safetensors.

Not downloaded: pickles (pytorch_model.bin), which can run code when they are loaded,
and the same weights in other forms (consolidated.safetensors, onnx/, tf_model.h5). The
config is read first, so the weights of an unsupported model are not downloaded.

The files are kept in huggingface_hub's cache. A download that was stopped continues
with the first missing file. A cached model loads without a network: the cached commit
of the revision is used (HF_HUB_OFFLINE=1 asks for this).
"""

import contextlib
import glob
import itertools
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from jaxpt.errors import DataError, UserError, argument
from jaxpt.files.remote import fetch
from jaxpt.hub import chat_templates
from jaxpt.hub.configs import read_config
from jaxpt.hub.files import ADAPTER, INDEX, MODEL, PICKLES, find_other, read_json
from jaxpt.hub.origin import FOLDER, RUN, BaseModel
from jaxpt.hub.peft_adapter import CONFIG as ADAPTER_CONFIG
from jaxpt.hub.peft_adapter import is_adapter
from jaxpt.hub.shipped import find_model
from jaxpt.hub.source_folder import PARTS
from jaxpt.text.tokens.folder_options import NAMES as OPTIONS
from jaxpt.text.tokens.published import FOLDERS

CONFIGS = (
    *("config.json", "generation_config.json", INDEX),
    *(chat_templates.FILE, f"{chat_templates.FOLDER}/*.jinja"),
)
ADAPTERS = (ADAPTER_CONFIG, ADAPTER)  # of PEFT, in a repository without a model
TOKENIZERS = (
    *itertools.chain.from_iterable(FOLDERS),
    *OPTIONS,
)
# By organization, the models that papers and tutorials call by one word.
LEGACY = {
    "openai-community": (
        "gpt2 gpt2-medium gpt2-large gpt2-xl openai-gpt roberta-base-openai-detector "
        "roberta-large-openai-detector"
    ),
    "google-bert": (
        "bert-base-uncased bert-base-cased bert-large-uncased bert-large-cased "
        "bert-base-multilingual-uncased bert-base-multilingual-cased "
        "bert-base-chinese bert-base-german-cased "
        "bert-large-uncased-whole-word-masking bert-large-cased-whole-word-masking"
    ),
    "FacebookAI": (
        "roberta-base roberta-large roberta-large-mnli xlm-roberta-base "
        "xlm-roberta-large"
    ),
    "distilbert": (
        "distilbert-base-uncased distilbert-base-cased "
        "distilbert-base-multilingual-cased distilbert-base-german-cased "
        "distilbert-base-uncased-finetuned-sst-2-english distilroberta-base distilgpt2"
    ),
    "google-t5": "t5-small t5-base t5-large t5-3b t5-11b",
    "albert": (
        "albert-base-v1 albert-large-v1 albert-xlarge-v1 albert-xxlarge-v1 "
        "albert-base-v2 albert-large-v2 albert-xlarge-v2 albert-xxlarge-v2"
    ),
    "almanach": "camembert-base",
    "xlnet": "xlnet-base-cased xlnet-large-cased",
}
_LEGACY = {name: org for org, names in LEGACY.items() for name in names.split()}
LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"


def find_folder(source: str) -> tuple[Path, BaseModel | None]:
    """The folder of a model of transformers, downloaded if it is a name.

    Args:
      source: a folder, `demo:NAME` (`jaxpt.hub.shipped`), or a name on the Hub.

    Returns:
      The folder, and for a name what it was resolved to.
    """
    folder = fetch(find_model(source))
    # Both are false for a name that is too long, which a Path's method would raise.
    if os.path.isdir(folder):
        return folder, None
    if os.path.exists(folder):
        raise DataError(
            f"{argument('from')}={source}: is not a folder; must be that of config.json"
        )
    repository, revision = split_name(source)
    with explain(
        f"{argument('from')}={source}: this folder does not exist; on the Hub"
    ):
        folder = _fetch_all(source, repository, revision)
    return folder, BaseModel(repository, revision, folder.name)


def is_name(source: str) -> bool:
    """Whether a source has the form of a name: ORG/NAME or ORG/NAME@REVISION.

    >>> [is_name(source) for source in ("a/b", "a/b@v1", "a", "/a/b", "a/b/c", "./b")]
    [True, True, False, False, False, False]
    >>> is_name("gpt2"), is_name("gpt3")
    (True, False)
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    repository, at, revision = _add_organization(source).partition("@")
    if repository.count("/") != 1 or bool(at) != bool(revision):
        return False
    try:
        validate_repo_id(repository)
    except HFValidationError:
        return False
    return True


def split_name(source: str) -> tuple[str, str]:
    """The repository and the revision of a name; "" is the default branch.

    >>> split_name("google-bert/bert-base-uncased@main")
    ('google-bert/bert-base-uncased', 'main')
    >>> split_name("gpt2")
    ('openai-community/gpt2', '')
    """
    if not is_name(source):
        raise DataError(
            f"{argument('from')}={source}: this folder does not exist, and it is not a "
            "name on the Hugging Face Hub (ORG/NAME or ORG/NAME@REVISION)"
        )
    repository, _, revision = _add_organization(source).partition("@")
    return repository, revision


def _add_organization(source: str) -> str:
    """A name of `LEGACY` with its organization; another source as it is."""
    organization = _LEGACY.get(source.partition("@")[0])
    return f"{organization}/{source}" if organization else source


def _fetch_all(source: str, repository: str, revision: str) -> Path:
    """Downloads the configs, then the weights that they need; the cache's folder."""
    small = [f"{FOLDER}/{RUN}", f"{FOLDER}/{MODEL}", *ADAPTERS]
    for part in ("", *(f"{part}/" for part in PARTS)):
        small += [part + name for name in (*CONFIGS, *TOKENIZERS)]
    folder = _fetch(repository, revision, small)
    if is_adapter(folder):
        return folder
    places = [part for part in PARTS if (folder / part / "config.json").exists()]
    places = places or [""]
    if sharded := [place for place in places if (folder / place / INDEX).exists()]:
        # One file has precedence over shards, as in transformers.
        whole = [str(PurePosixPath(place, MODEL)) for place in sharded]
        folder = _fetch(repository, folder.name, [*small, *whole])
    weights = []
    for place in places:
        if not (folder / place / "config.json").exists():
            raise DataError(
                f"{argument('from')}={source}: has no config.json: must be a model of "
                "transformers"
            )
        read_config(read_json(folder / place, "config.json"))
        weights += [
            str(PurePosixPath(place, name)) for name in _list_weights(folder / place)
        ]
    # With the small files: a pattern that no file matches is a warning.
    folder = _fetch(repository, folder.name, [*small, *map(glob.escape, weights)])
    if any((folder / name).exists() for name in weights):
        return folder
    if find_other(os.listdir(folder)):  # of the cache
        return folder
    return _fetch_other(source, repository, folder.name, small)


def _fetch_other(source: str, repository: str, commit: str, small: list[str]) -> Path:
    """Downloads the only weights of a repository, which have another name."""
    from huggingface_hub import HfApi

    names = sorted(HfApi().list_repo_files(repository, revision=commit))
    if name := find_other(names):
        return _fetch(repository, commit, [*small, glob.escape(name)])
    raise _explain_missing(source, names)


def _list_weights(folder: Path) -> list[str]:
    """The names of the weight files: the one file, or the shards of the index."""
    if (folder / MODEL).exists() or not (folder / INDEX).exists():
        return [MODEL]
    places = read_json(folder, INDEX).get("weight_map")
    shards = places.values() if isinstance(places, dict) else ()
    return sorted({shard for shard in shards if isinstance(shard, str)})


def _fetch(repository: str, revision: str, patterns: list[str]) -> Path:
    from huggingface_hub import snapshot_download

    return Path(
        snapshot_download(
            repository, revision=revision or None, allow_patterns=patterns
        )
    )


def _explain_missing(source: str, names: list[str]) -> UserError:
    """The error for a repository without safetensors; names its pickles."""
    pickles = [name for name in names if name.endswith(PICKLES)]
    reason = "it has no weights that jaxpt reads"
    if pickles:
        reason = (
            f"{pickles[0]} is a pickle, which can run code when it is loaded; convert "
            "it with transformers' save_pretrained, or name a revision with safetensors"
        )
    return DataError(f"{argument('from')}={source}: has no safetensors; {reason}")


@contextlib.contextmanager
def explain(label: str, error_type: type[UserError] = DataError) -> Iterator[None]:
    """Turns errors of the Hub and of the network into errors of one line.

    Args:
      label: the flag and its value, which the message begins with.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # of the network library, whose classes change
        raise error_type(f"{label}: {_describe(error)}") from error


def _describe(error: Exception) -> str:
    """What an error of huggingface_hub means, and what to do."""
    from huggingface_hub import constants, errors

    host = constants.ENDPOINT
    if isinstance(error, errors.GatedRepoError):  # a RepositoryNotFoundError, too
        return f"the repository is gated: accept its terms on {host} and {LOG_IN}"
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"{host} has no such repository, or it is private: check the name, or "
            f"{LOG_IN}"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return "the repository has no such revision: name a branch, a tag or a commit"
    is_missing = isinstance(error, errors.LocalEntryNotFoundError)
    cause = error.__cause__ or error if is_missing else error
    if isinstance(cause, errors.OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set, and the files are not in the cache"
    if isinstance(cause, errors.HfHubHTTPError):
        status = cause.response.status_code
        if status in (401, 403):
            return f"{host} refuses the token ({status}): {LOG_IN}"
        return f"{host} answers {status}: {cause.server_message or _first_line(cause)}"
    if is_missing:
        return f"{host} cannot be reached, and the files are not in the cache: " + (
            _first_line(cause)
        )
    return f"{host}: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
