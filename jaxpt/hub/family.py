"""A family of transformers' models: all that jaxpt knows about one `model_type`.

Each is one module of `jaxpt.hub.families`, and a line of the table there.
"""

import dataclasses
import importlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from jaxpt.errors import ConfigError, DataError, argument
from jaxpt.hub.entries import Computed, Table
from jaxpt.hub.families import FAMILIES, PURPOSES
from jaxpt.hub.fields import Config, FieldRow, Values, check_type
from jaxpt.hub.task_names import HeadNames
from jaxpt.nn.model_spec import LIMITED, ModelSpec
from jaxpt.text_form import TextForm

NONE = "(?!)"  # a pattern that nothing matches
# transformers sets everything that a config.json has as an attribute, even if it is
# not a field of the class; its code reads these attributes in every family.
UNSUPPORTED = (
    "quantization_config",
    "per_layer_config",
    "transformers_weights",
)
# Fields that change no output in any family: where a config comes from, how the model
# is computed, what is returned, labels, and ids that the tokenizer determines.
_INERT = """
    transformers_version name_or_path _name_or_path _commit_hash architectures
    allow_global_per_layer_attribute_access serialize_explicit_per_layer_config
    dtype torch_dtype chunk_size_feed_forward use_cache
    attn_implementation _attn_implementation
    experts_implementation _experts_implementation
    output_hidden_states output_attentions return_dict
    id2label label2id num_labels problem_type
    bos_token_id eos_token_id pad_token_id
"""
# By the type of a field's default, the types that it may have.
_TYPES: dict[type, tuple[Any, str]] = {
    bool: (bool, "true or false"),
    int: (int, "an integer"),
    float: ((int, float), "a number"),
    str: (str, "a text"),
    type(None): ((int, type(None)), "an integer or null"),
}


def _empty() -> Any:
    return dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Family:
    """One `model_type` of transformers.

    Attributes:
      heads: a model's purpose -> its class: "causal", "masked", "pretraining" (with
        BERT's sentence head), "seq2seq", "generator", "discriminator".
      rows: the fields of its config.json.
      tensors: (spec, purpose) -> the names of its tensors and their places in jaxpt.
      body: the prefix of the body's names in a model with a head; a model without a
        head lacks it, as do some published checkpoints with one (GPT-2's). "": there
        is none.
      constants: fields of a spec that have the same value in the whole family.
      aliases: alias -> the field that it sets, even if that is present (transformers'
        `attribute_map`).
      inert: further fields that change no output, separated by spaces: those of other
        heads, of training and of initialization.
      complete: changes a config before defaults and aliases are applied.
      restore: reverses that for an export, which has its purpose's fields.
      older_classes: names of its classes before transformers had them -> purposes.
      by_tensors: how names of tensors end that only another family has, whose config
        and class are the same -> that family.
      unwritten: fields of a spec that only the tensors determine, not the config ->
        (tensors) -> the value, None for that of the config.
      copies: further tensors that a checkpoint may have -> the one that each is equal
        to.
      renamed: how the names of tensors begin in other checkpoints -> how they begin in
        this class.
      fold: (config, tensors) -> the tensors, without those that the one Transformer has
        no place for and that can be added to another one, or multiplied by it.
      unfold: reverses that for an export, if the class has no names for the results.
      buffers: a pattern of tensors that no model uses, such as masks and counters.
      unused: a pattern of weights that a language model does not use but another class
        of the family reads, without `body`; an import reports them.
      computed: (spec) -> the tensors of the class that the spec determines, such as
        biases that are all zero and tables of sinusoidal positions.
      marks: purpose -> how names of tensors begin that only such a model has.
      purpose_fields: purpose -> fields of config.json that only such a model has, if
        its class has another purpose, too.
      ids: special ids of transformers' class, for a config without them.
      stacks: objects of config.json that have the special ids, too. The decoder's first
        input is their `bos_token_id`, and cannot be the padding, which they mask.
      starts_with_last: whether a decoder whose config names no first input begins with
        the last id of its text (mBART's language code).
      task_heads: the end of the name of a class for a downstream task -> the heads that
        it can have; the first is the default's.
      rate: the learning rate with which an imported model is trained further.
      settings: others, by full names.
      counts_from_pad: whether its code counts the rows of a table of positions from
        `pad_token_id` on, over all tokens with another id. Positions are then right
        only if that is the real padding id; with another id, some token of a text would
        have no position.
      mask_advice: how its causal class reads a text in both directions, after "reads
        every text causally".
      freezes_pad: whether PyTorch gives the embedding of `pad_token_id` no gradient
        (`nn.Embedding(padding_idx=...)`).
      hides_mask: whether its code gives [MASK] the probability 0, which an import
        does by the bias of the head (`jaxpt.hub.convert.hide_token`).
      objective: the one that trained its models, if an import does not choose it by the
        purpose.
      own_mask: whether its class has the attention mask of `objective`, with which
        other runs would be other models: Dream's lets tokens attend to later ones,
        although it predicts the next token, BD3-LM's has blocks.
      list_settings: (config.json) -> settings of `objective` by full names.
      form_fields: (how texts are written for a run) -> further fields of config.json.
    """

    name: str
    heads: dict[str, str]
    rows: tuple[FieldRow, ...]
    tensors: Callable[[ModelSpec, str], Table]
    body: str = ""
    constants: Values = _empty()
    aliases: dict[str, str] = _empty()
    inert: str = ""
    complete: Callable[[Config], Config] = lambda config: config
    restore: Callable[[Config], Config] = lambda config: config
    older_classes: Mapping[str, str] = _empty()
    by_tensors: Mapping[str, str] = _empty()
    unwritten: Mapping[str, Callable[[Mapping[str, Any]], Any]] = _empty()
    copies: Mapping[str, str] = _empty()
    renamed: Mapping[str, str] = _empty()
    fold: Callable[[Config, Mapping[str, Any]], Mapping[str, Any]] = lambda _, x: x
    unfold: Callable[[dict[str, Any]], dict[str, Any]] = lambda x: x
    buffers: str = NONE
    unused: str = NONE
    computed: Callable[[ModelSpec], dict[str, Computed]] = lambda spec: {}
    marks: Mapping[str, str] = _empty()
    purpose_fields: Mapping[str, Config] = _empty()
    ids: Mapping[str, int] = _empty()
    stacks: tuple[str, ...] = ()
    starts_with_last: bool = False
    task_heads: Mapping[str, tuple[HeadNames, ...]] = _empty()
    rate: float = 5e-5
    settings: Mapping[str, Any] = _empty()
    counts_from_pad: bool = False
    mask_advice: str = (
        ", unless this mask is given to it: attention_mask of shape [batch, 1, "
        "queries, keys], 0 where seen, torch.finfo(dtype).min elsewhere"
    )
    freezes_pad: bool = False
    hides_mask: bool = False
    objective: str = ""
    own_mask: bool = False
    list_settings: Callable[[Config], Mapping[str, Any]] = lambda config: {}
    form_fields: Callable[[TextForm], Config] = lambda form: {}

    @property
    def class_prefix(self) -> str:
        """What the names of its classes begin with, such as "DistilBert"."""
        return re.split("(?:With)?LMHead|For", next(iter(self.heads.values())))[0]

    @property
    def defaults(self) -> Config:
        """The fields that are used, with the defaults of transformers' class."""
        return {
            name: value for row in self.rows for name, value in row.defaults.items()
        }

    def read(self, config: Config) -> ModelSpec:
        """The spec of a config.json."""
        config = self._with_defaults(self.complete(config))
        values = dict(self.constants)
        for row in self.rows:
            values |= row.read(config)
        return ModelSpec(**values)

    def write(self, spec: ModelSpec) -> Config:
        """The config.json of a spec, without the special ids."""
        return {
            name: value for row in self.rows for name, value in row.write(spec).items()
        }

    @property
    def inert_names(self) -> frozenset[str]:
        """The fields that change no output."""
        return frozenset((_INERT + self.inert).split()) - self.defaults.keys()

    def _with_defaults(self, config: Config) -> Config:
        """A config with all fields that are used, their types checked."""
        for key in UNSUPPORTED:
            if config.get(key):
                text = repr(config[key])
                text = text if len(text) <= 60 else f"{text[:57]}..."
                raise DataError(f"config.json: {key}={text}: is not supported")
        defaults = self.defaults
        filled, names = defaults | config, dict.fromkeys(defaults, "")
        for alias, name in self.aliases.items():
            if alias in config:
                filled[name], names[name] = config[alias], alias
        nullable = {name for row in self.rows for name in row.nullable}
        for name, default in defaults.items():
            kind = type(None) if name in nullable else type(default)
            check_type(names[name] or name, filled[name], *_TYPES[kind])
        return filled

    def check_known(self, config: Config, idle: Collection[str]) -> Config:
        """The config of code that is not run here, if all its fields are known.

        Args:
          idle: fields that change no number, in addition to `inert_names`.
        """
        known = {*self.defaults, *self.inert_names, *idle, "auto_map", "model_type"}
        for name in sorted(config.keys() - known):
            if name.endswith("_token_id"):  # an export has those of the tokenizer
                continue
            raise DataError(
                f"config.json: {name}={config[name]!r}: is not known in a {self.name} "
                "model, so it might change numbers"
            )
        return config

    def fits_objective(self, name: str) -> bool:
        """Whether runs of an objective attend as the class does, as far as it says."""
        return not self.own_mask or name == self.objective

    def check_objective(self, name: str) -> None:
        """Raises UserError for a run whose network does not attend as the class."""
        if not self.fits_objective(name):
            raise ConfigError(
                f"{argument('family')}={self.name}: has the attention mask of "
                f"{self.objective}: must be another family for a run of {name}"
            )

    def name_ids(self, config: Config, ids: Config) -> Config:
        """A config.json of an export with its special ids.

        Raises:
          UserError: the class would not see the decoder's first input.
        """
        start, pad = ids.get("decoder_start_token_id"), ids.get("pad_token_id")
        if self.stacks and start == pad:
            raise ConfigError(
                f"{argument('family')}={self.name}: masks [PAD] in a decoder's input: "
                f"must be another family for a run whose decoder starts with it ({pad})"
            )
        own = {"pad_token_id": pad, "bos_token_id": start}
        own["eos_token_id"] = ids.get("eos_token_id")
        return config | ids | {name: config[name] | own for name in self.stacks}

    def find_other(self, tensors: Collection[str]) -> str:
        """The family of a checkpoint with these tensors; "" if it is this one."""
        others = (
            family
            for end, family in self.by_tensors.items()
            if any(name.endswith(end) for name in tensors)
        )
        return next(others, "")

    def list_purposes(self, config: Config) -> list[str]:
        """The purposes that a model may have by the fields of its config.json."""
        marked = [
            head
            for head, fields in self.purpose_fields.items()
            if fields.items() <= config.items()
        ]
        return marked or [
            head for head in self.heads if head not in self.purpose_fields
        ]

    def lay_out(self, spec: ModelSpec, pad: int | None) -> ModelSpec:
        """The spec with its positions at those rows of the table that the code reads.

        Args:
          pad: the padding id of the tokenizer; None if it has none, which `check_pad`
            refuses.
        """
        is_table = spec.positions == "learned"  # whose rows can be moved
        if not (self.counts_from_pad and is_table) or pad is None:
            return spec
        return dataclasses.replace(spec, position_offset=pad + 1)

    def check_pad(self, spec: ModelSpec, pad: int | None) -> None:
        """Raises UserError unless the spec's positions fit the tokenizer's padding."""
        if not (self.counts_from_pad and spec.positions in LIMITED):
            return
        if pad is None:
            raise DataError(
                f"the tokenizer has no [PAD], and a {self.name} counts positions from "
                "its id: tokenizer.specials must list 'pad' before a run is trained"
            )
        if pad != spec.position_offset - 1:
            raise DataError(
                f"config.json: pad_token_id={spec.position_offset - 1}: must be {pad}, "
                f"the tokenizer's [PAD]: a {self.name} counts positions from it"
            )


def find_family(name: str) -> Family:
    """The family of a `model_type`, a key of `FAMILIES`; its module is loaded."""
    return importlib.import_module(FAMILIES[name]).FAMILY


def list_families(head: str = "") -> Iterator[Family]:
    """The families in the order of an export, each loaded when it is reached.

    Args:
      head: the purpose that they must have; "" for all families.
    """
    families = map(find_family, PURPOSES[head] if head else FAMILIES)
    return (family for family in families if not head or head in family.heads)
