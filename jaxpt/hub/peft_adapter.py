"""Reads LoRA adapters of PEFT, merged into the weights of their base model.

    <folder>/adapter_config.json          rank, alpha, the base model's name
             adapter_model.safetensors    base_model.model.MODULE.lora_A.weight [r, in]
                                          base_model.model.MODULE.lora_B.weight [out, r]

    W + alpha / r * B A         (alpha / sqrt(r) with `use_rslora`)

The names and the formula are those of PEFT's `LoraModel` (Hu et al. 2021, section 4.1).
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxpt.errors import DataError, argument
from jaxpt.hub.files import ADAPTER, LazyTensors, read_file_tensors, read_json

CONFIG = "adapter_config.json"
_NAME = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
# Fields with which the merged weights would be others, and the values that have none.
_PLAIN: dict[str, tuple[Any, ...]] = {
    "bias": ("none", None),
    "use_dora": (False, None),
    "lora_bias": (False, None),
    "alpha_pattern": ({}, None),
    "modules_to_save": ([], None),
    "layer_replication": ([], None),
    "trainable_token_indices": ([], None),
    "target_parameters": ([], None),
    # Others change the base model's weights when training begins.
    "init_lora_weights": (True, False, "gaussian", None),
}


@dataclasses.dataclass(frozen=True)
class Adapter:
    """A LoRA adapter of PEFT.

    Attributes:
      folder: of its files.
      base: the folder of its base model, or the name on the Hub.
      alpha: its updates are divided by the rank, or by its root, and multiplied by it.
      is_root: whether by the root of the rank.
      is_transposed: whether the base's weights are [in, out] (`fan_in_fan_out`: GPT-2).
      matrices: tensor of the base -> A and B.
    """

    folder: Path
    base: str
    alpha: float
    is_root: bool
    is_transposed: bool
    matrices: Mapping[str, tuple[np.ndarray, np.ndarray]]

    def merge(self, tensors: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """The base's tensors with the updates added when they are read."""
        for name, (one, two) in self.matrices.items():
            self._check(name, one, two, tensors)

        def read(name: str) -> np.ndarray:
            value = tensors[name]
            if name not in self.matrices:
                return value
            return value + self._update(*self.matrices[name])

        return LazyTensors({name: name for name in tensors}, read)

    def _update(self, one: np.ndarray, two: np.ndarray) -> np.ndarray:
        rank = one.shape[0]
        scale = self.alpha / (math.sqrt(rank) if self.is_root else rank)
        update = np.float32(scale) * (two @ one)
        return update.T if self.is_transposed else update

    def _check(
        self, name: str, one: np.ndarray, two: np.ndarray, tensors: Mapping
    ) -> None:
        """Raises UserError for matrices that do not fit a tensor of the base model."""
        where = f"{self.folder / ADAPTER}: the update of {name}"
        if name not in tensors:
            raise DataError(f"{where}: {self.base} has no such tensor")
        shapes, expected = [one.shape, two.shape], tensors[name].shape
        is_good = one.ndim == two.ndim == 2 and one.shape[0] == two.shape[1]
        if not is_good or self._update(one, two).shape != expected:
            raise DataError(
                f"{where}: has A, B of shapes {list(map(list, shapes))}, which do not "
                f"make {list(expected)}"
            )


def is_adapter(folder: Path) -> bool:
    """Whether a folder has an adapter and no model."""
    has_model = (folder / "config.json").exists()
    return (folder / CONFIG).is_file() and not has_model


def read_adapter(folder: Path) -> Adapter:
    """Reads an adapter, and checks that it can be merged."""
    config = read_json(folder, CONFIG)
    where, kind = folder / CONFIG, config.get("peft_type")
    if kind != "LORA":
        raise DataError(f"{where}: peft_type={kind!r}: must be 'LORA'; {_advise()}")
    for name, allowed in _PLAIN.items():
        value = config.get(name)
        if not any(value == each and type(value) is type(each) for each in allowed):
            raise DataError(f"{where}: {name}={value!r}: is not supported; {_advise()}")
    base, alpha = config.get("base_model_name_or_path"), config.get("lora_alpha")
    if not isinstance(base, str) or not base:
        raise DataError(
            f"{where}: base_model_name_or_path={base!r}: must be a folder or a name on "
            "the Hub"
        )
    if not isinstance(alpha, int | float):
        raise DataError(f"{where}: lora_alpha={alpha!r}: must be a number")
    is_root, is_transposed = (
        bool(config.get(name)) for name in ("use_rslora", "fan_in_fan_out")
    )
    pairs = _read_pairs(folder)
    return Adapter(folder, base, float(alpha), is_root, is_transposed, pairs)


def _advise() -> str:
    """What to do with an adapter that is not read."""
    return (
        "merge it into its base model first (merge_and_unload of PEFT, save_pretrained)"
        f", and name that folder in {argument('from')}"
    )


def _read_pairs(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The matrices A and B by the name of the tensor that they change."""
    tensors, parts = read_file_tensors(folder / ADAPTER), {}
    for name in tensors:
        match = _NAME.fullmatch(name)
        if match is None:
            raise DataError(
                f"{folder / ADAPTER}: {name}: must be a lora_A or lora_B of a linear "
                f"layer; {_advise()}"
            )
        parts[match[1], match[2]] = tensors[name]
    modules = dict.fromkeys(module for module, _ in parts)
    for module in modules:
        if missing := [letter for letter in "AB" if (module, letter) not in parts]:
            raise DataError(f"{folder / ADAPTER}: {module}: lacks lora_{missing[0]}")
    return {
        f"{module}.weight": (parts[module, "A"], parts[module, "B"])
        for module in modules
    }
