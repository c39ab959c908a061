"""A student and the teacher that it learns from: two Transformers, side by side."""

from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxpt.errors import UserError
from jaxpt.nn import flops, scan
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.network import Network, TransformerNetwork
from jaxpt.nn.networks.one_stack import CausalLM, MaskedLM
from jaxpt.nn.transformer import Transformer
from jaxpt.ops import chunked_loss, masks
from jaxpt.ops.masks import Mask


class StudentTeacher(Network, nn.Module):
    """Both read the same batch under the same mask; no gradient reaches the teacher.

    What can be asked of it is asked of the student, which is a network of `KIND`.
    `is_restricted` (to the masked positions), `has_cosine` and `temperature` are the
    objective's, which reads them.
    """

    KIND: ClassVar[type[TransformerNetwork]]
    HAS_ATTENTION = True

    student_spec: ModelSpec
    teacher_spec: ModelSpec
    temperature: float
    is_restricted: bool = False
    has_cosine: bool = False
    freezes_positions: bool = False

    def setup(self):
        self.student = Transformer(self.student_spec)
        self.teacher = Transformer(self.teacher_spec)

    @property
    def spec(self) -> ModelSpec:
        """The student's sizes."""
        return self.student_spec

    @property
    def frozen(self):
        return "teacher", *(["student/embed/positions"] * self.freezes_positions)

    @property
    def alone(self) -> TransformerNetwork:
        """The student as a network of its own."""
        return self.KIND(self.student_spec, parent=None)

    def teacher_outputs(self, batch: dict, masks: dict) -> Float[Array, "B T D"]:
        """Hidden states of the teacher, which has no dropout and is not trained."""
        states = self.teacher.batch_states(batch, masks, deterministic=True)
        return jax.lax.stop_gradient(states)

    def distillation_loss(
        self,
        states: Float[Array, "B *T D"],
        taught: Float[Array, "B *T D"],
        targets: Int[Array, "B *T"],
    ) -> chunked_loss.DistillationScores:
        """The student's scores beside targets and the teacher's."""
        parts = self.student.read(states), self.teacher.read(taught)
        chunk = self.student_spec.loss_chunk
        return chunked_loss.distillation_loss(*parts, targets, self.temperature, chunk)

    def __call__(self, ids: Int[Array, "B T"], attn_mask: Mask):
        seen = {"self": attn_mask}
        self.teacher(ids, seen, deterministic=True)
        return self.student(ids, seen, deterministic=True)

    def init_params(self, rng):
        """Of both networks; `begin` puts the teacher's own in their place."""
        ids = jnp.zeros((1, 2), jnp.int32)
        return scan.init_params(self, rng, ids, masks.full())

    @property
    def task_width(self):
        return self.student_spec.d_model

    def task_part(self, params):
        """The student by itself."""
        return self.alone, params["student"]

    def features(self, params, tokens):
        return self.alone.features(params["student"], tokens)

    def layer_features(self, params, tokens):
        return self.alone.layer_features(params["student"], tokens)

    def find_transformer(self, params):
        """The student."""
        return self.alone, params["student"]

    def fill_logits(self, params, tokens):
        return self.alone.fill_logits(params["student"], tokens)

    def next_logits(self, params, tokens):
        return self.alone.next_logits(params["student"], tokens)

    def token_nll(self, params, tokens):
        return self.alone.token_nll(params["student"], tokens)

    def target_log_probs(self, params, batch, view, with_ranks=False):
        own = params["student"]
        return self.alone.target_log_probs(own, batch, view, with_ranks)

    def choice_scores(self, params, gap):
        return self.alone.choice_scores(params["student"], gap)

    def make_decoder(self, start_id=None):
        return self.alone.make_decoder(start_id).within("student")

    def count_flops(self, lengths, num_predictions):
        """Three passes of the student, one of the teacher."""
        student, teacher = (
            flops.transformer_flops(spec, {"own": lengths["student"]}, num_predictions)
            for spec in (self.student_spec, self.teacher_spec)
        )
        return flops.TRAIN_FACTOR * student + teacher

    def export_parts(self, params):
        """The student alone: the teacher is another run's."""
        return {self.HEADS[0]: (self.student_spec, params["student"])}

    def join_parts(self, parts):
        """They lack the teacher."""
        return {"student": parts[self.HEADS[0]]}


class MaskedStudent(StudentTeacher):
    """A masked student (DistilBERT)."""

    KIND = MaskedLM
    HEADS, ABILITIES, WRITES = MaskedLM.HEADS, MaskedLM.ABILITIES, MaskedLM.WRITES
    READS_AHEAD, SCORING = MaskedLM.READS_AHEAD, MaskedLM.SCORING


class CausalStudent(StudentTeacher):
    """A causal student."""

    KIND = CausalLM
    HEADS, ABILITIES, WRITES = CausalLM.HEADS, CausalLM.ABILITIES, CausalLM.WRITES
    READS_AHEAD, SCORING = CausalLM.READS_AHEAD, CausalLM.SCORING


def begin(params, taught, student_layers: tuple[int, ...]):
    """The parameters a run begins with: the teacher's, and its layers in the student.

    As in the source (`scripts/extract_distilbert.py`), all that the student has beside
    its layers is the teacher's too: embeddings, norms, head.

    Args:
      params: fresh ones of both.
      taught: the teacher's, in either form of `jaxpt.nn.scan`.
      student_layers: which of its layers; () leaves the student as it is.

    Raises:
      UserError: something of the student's has no like in the teacher.
    """
    is_scanned = "layers" in params["teacher"]["encoder"]
    form = scan.stack_layers if is_scanned else lambda tree: tree
    taught = scan.unstack_layers(taught)
    student = params["student"]
    if student_layers:
        student = _pick(scan.unstack_layers(student), taught, student_layers)
        student = form(student)
    return {"student": student, "teacher": form(taught)}


def _pick(student: dict, taught: dict, layers: tuple[int, ...]) -> dict:
    """The teacher's parameters as the student has them, both unrolled."""
    picked = {f"layer_{i}": f"layer_{layer}" for i, layer in enumerate(layers)}

    def find(path, leaf):
        keys = [key.key for key in path]
        found: Any = taught
        for key in [picked.get(key, key) for key in keys]:
            found = found.get(key, {})
        held = "none" if isinstance(found, dict) else list(found.shape)
        if held != list(leaf.shape):
            raise UserError(
                f"student_layers={layers}: the student has {'/'.join(keys)} "
                f"{list(leaf.shape)}, the teacher {held}"
            )
        return jnp.copy(found)

    return jax.tree_util.tree_map_with_path(find, student)
