"""A student and the teacher that it learns from: two Transformers."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxpt.errors import ConfigError
from jaxpt.nn import flops, scan
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.abilities import Gap
from jaxpt.nn.networks.network import Network
from jaxpt.nn.networks.one_stack import CausalLM, MaskedLM
from jaxpt.nn.transformer import Transformer
from jaxpt.ops import chunked_loss, masks
from jaxpt.ops.masks import Mask

if TYPE_CHECKING:
    from jaxpt.nn.decoding import Decoder


class StudentTeacher(Network, nn.Module):
    """Both read the same batch with the same mask; no gradient reaches the teacher.

    The student, a network of `KIND`, is evaluated. `is_restricted` (to the masked
    positions), `has_cosine` and `temperature` are for the objective's loss.
    """

    KIND: ClassVar[type[MaskedLM] | type[CausalLM]]
    SCORING: ClassVar[tuple[str, ...]]
    scores_ratio = False

    student_spec: ModelSpec
    teacher_spec: ModelSpec
    temperature: float = 1.0
    is_restricted: bool = False
    has_cosine: bool = False
    freezes_positions: bool = False

    def setup(self) -> None:
        self.student = Transformer(self.student_spec)
        self.teacher = Transformer(self.teacher_spec)

    @property
    def spec(self) -> ModelSpec:
        """The student's sizes."""
        return self.student_spec

    @property
    def frozen(self) -> tuple[str, ...]:
        return "teacher", *(["student/embed/positions"] * self.freezes_positions)

    @property
    def alone(self) -> Any:
        """The student as a separate network."""
        return self.KIND(self.student_spec, parent=None)

    def teacher_outputs(
        self, batch: Mapping[str, Any], masks: dict
    ) -> Float[Array, "B T D"]:
        """Hidden states of the teacher, without dropout and gradient."""
        states = self.teacher.batch_states(batch, masks, deterministic=True)
        return jax.lax.stop_gradient(states)

    def distillation_loss(
        self,
        states: Float[Array, "B *T D"],
        teacher_states: Float[Array, "B *T D"],
        targets: Int[Array, "B *T"],
    ) -> chunked_loss.DistillationScores:
        """The student's scores of targets, and its divergence from the teacher."""
        parts = self.student.read(states), self.teacher.read(teacher_states)
        return chunked_loss.distillation_loss(
            *parts,
            targets,
            self.temperature,
            self.student_spec.loss_chunk,
            (self.student.spec.logit_options, self.teacher.spec.logit_options),
        )

    def __call__(self, ids: Int[Array, "B T"], attn_mask: Mask) -> Array:
        attn_masks = {"self": attn_mask}
        self.teacher(ids, attn_masks, deterministic=True)
        return self.student(ids, attn_masks, deterministic=True)

    def init_params(self, rng: Array) -> Any:
        """Of both networks; `begin` replaces the teacher's by those of its run."""
        ids = jnp.zeros((1, 2), jnp.int32)
        return scan.init_params(self, rng, ids, masks.full())

    @property
    def task_width(self) -> int:
        return self.student_spec.d_model

    def task_part(self, params: Any) -> tuple[Network, Any]:
        """The student alone."""
        return self.alone, params["student"]

    def features(self, params: Any, tokens: Array) -> Array:
        return self.alone.features(params["student"], tokens)

    def layer_features(self, params: Any, tokens: Array) -> Array:
        return self.alone.layer_features(params["student"], tokens)

    def find_transformer(self, params: Any) -> tuple[Any, Any]:
        return self.task_part(params)

    def target_log_probs(
        self, params: Any, batch: dict, view: str, with_ranks: bool = False
    ) -> Any:
        student_params = params["student"]
        return self.alone.target_log_probs(student_params, batch, view, with_ranks)

    def choice_scores(self, params: Any, gap: Gap) -> Array:
        return self.alone.choice_scores(params["student"], gap)

    def count_flops(self, lengths: dict[str, int], num_predictions: float) -> float:
        """Three passes of the student, one of the teacher."""
        student, teacher = (
            flops.transformer_flops(spec, {"own": lengths["student"]}, num_predictions)
            for spec in (self.student_spec, self.teacher_spec)
        )
        return flops.TRAIN_FACTOR * student + teacher

    def count_batch_flops(self) -> float:
        student, teacher = map(
            flops.batch_flops, (self.student_spec, self.teacher_spec)
        )
        return flops.TRAIN_FACTOR * student + teacher

    def export_parts(self, params: Any) -> dict[str, tuple[ModelSpec, Any]]:
        """The student alone: the teacher belongs to another run."""
        return {self.HEADS[0]: (self.student_spec, params["student"])}

    def join_parts(self, parts: dict[str, Any]) -> Any:
        """Without the teacher, which the parts lack."""
        return {"student": parts[self.HEADS[0]]}


class MaskedStudent(StudentTeacher):
    """A masked student (DistilBERT)."""

    KIND = MaskedLM
    HEADS, FILLS_BY = MaskedLM.HEADS, MaskedLM.FILLS_BY
    SCORING = MaskedLM.SCORING

    def fill_logits(self, params: Any, tokens: Array) -> Array:
        return self.alone.fill_logits(params["student"], tokens)


class CausalStudent(StudentTeacher):
    """A causal student."""

    KIND = CausalLM
    HEADS, READS_AHEAD = CausalLM.HEADS, CausalLM.READS_AHEAD
    SCORING = CausalLM.SCORING
    GAP_BY_LIKELIHOOD = CausalLM.GAP_BY_LIKELIHOOD

    def next_logits(self, params: Any, tokens: Array) -> Array:
        return self.alone.next_logits(params["student"], tokens)

    def token_nll(self, params: Any, tokens: Array) -> Array:
        return self.alone.token_nll(params["student"], tokens)

    def make_decoder(self, start_id: int | None = None) -> "Decoder":
        return self.alone.make_decoder(start_id).within("student")


def begin(params: Any, teacher_params: Any, student_layers: tuple[int, ...]) -> dict:
    """The initial parameters of a run: the teacher's, and its layers in the student.

    As in the source (`scripts/extract_distilbert.py`), the student's other parameters
    are the teacher's too: embeddings, norms, head.

    Args:
      params: random ones of both.
      teacher_params: the teacher's, in either form of `jaxpt.nn.scan`.
      student_layers: which of its layers; () leaves the student as it is.
    """
    is_scanned = "layers" in params["teacher"]["encoder"]
    form = scan.stack_layers if is_scanned else lambda tree: tree
    teacher_params = scan.unstack_layers(teacher_params)
    student = params["student"]
    if student_layers:
        student = _pick(scan.unstack_layers(student), teacher_params, student_layers)
        student = form(student)
    return {"student": student, "teacher": form(teacher_params)}


def _pick(student: dict, teacher_params: dict, layers: tuple[int, ...]) -> dict:
    """The teacher's parameters in the student's structure, both unrolled."""
    picked = {f"layer_{i}": f"layer_{layer}" for i, layer in enumerate(layers)}

    def pick(path: tuple, leaf: Array) -> Array:
        keys = [key.key for key in path]
        source: Any = teacher_params
        for key in [picked.get(key, key) for key in keys]:
            source = source.get(key, {})
        shape = "none" if isinstance(source, dict) else list(source.shape)
        if shape != list(leaf.shape):
            raise ConfigError(
                f"student_layers={layers}: the student has {'/'.join(keys)} "
                f"{list(leaf.shape)}, the teacher {shape}"
            )
        return jnp.copy(source)

    return jax.tree_util.tree_map_with_path(pick, student)
