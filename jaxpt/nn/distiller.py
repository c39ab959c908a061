"""A student and the teacher that it learns from: two Transformers, side by side."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxpt.errors import UserError
from jaxpt.nn import scan
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.transformer import Transformer
from jaxpt.ops import chunked_loss
from jaxpt.ops.masks import Mask


class Distiller(nn.Module):
    """Both read the same ids under the same mask; no gradient reaches the teacher.

    `is_restricted` and `temperature` are the objective's, which reads them.
    """

    student_spec: ModelSpec
    teacher_spec: ModelSpec
    temperature: float
    is_restricted: bool = False
    has_cosine: bool = False

    def setup(self):
        self.student = Transformer(self.student_spec)
        self.teacher = Transformer(self.teacher_spec)

    def encode(
        self,
        ids: Int[Array, "B T"],
        attn_mask: Mask,
        position_ids: Int[Array, "B T"] | None = None,
        *,
        deterministic: bool,
    ) -> Float[Array, "B T D"]:
        """Hidden states of the student."""
        return self.student.encode(
            ids, attn_mask, position_ids, deterministic=deterministic
        )

    def lecture(
        self,
        ids: Int[Array, "B T"],
        attn_mask: Mask,
        position_ids: Int[Array, "B T"] | None = None,
    ) -> Float[Array, "B T D"]:
        """Hidden states of the teacher, which drops nothing and learns nothing."""
        hidden = self.teacher.encode(ids, attn_mask, position_ids, deterministic=True)
        return jax.lax.stop_gradient(hidden)

    def teach(
        self,
        hidden: Float[Array, "B *T D"],
        lecture: Float[Array, "B *T D"],
        targets: Int[Array, "B *T"],
    ) -> chunked_loss.DistillationScores:
        """The student's scores beside targets and the teacher's."""
        parts = self.student.read(hidden), self.teacher.read(lecture)
        chunk = self.student_spec.loss_chunk
        return chunked_loss.distillation_loss(*parts, targets, self.temperature, chunk)

    def logits(self, hidden: Float[Array, "*B D"]) -> Float[Array, "*B V"]:
        """The student's scores of every token of the vocabulary."""
        return self.student.logits(hidden)

    def __call__(self, ids: Int[Array, "B T"], attn_mask: Mask):
        masks = {"self": attn_mask}
        self.teacher(ids, masks, deterministic=True)
        return self.student(ids, masks, deterministic=True)


def begin(params, taught, spec):
    """The parameters a run begins with: the teacher's, and its layers in the student.

    As in the source (`scripts/extract_distilbert.py`), all that the student has beside
    its layers is the teacher's too: embeddings, norms, head.

    Args:
      params: fresh ones of both.
      taught: the teacher's, in either form of `jaxpt.nn.scan`.
      spec: an objective's; its `student_layers` are read.

    Raises:
      UserError: something of the student's has no like in the teacher.
    """
    is_scanned = "layers" in params["teacher"]["encoder"]
    form = scan.stack_layers if is_scanned else lambda tree: tree
    taught = scan.unstack_layers(taught)
    student = params["student"]
    if spec.student_layers:
        student = _pick(scan.unstack_layers(student), taught, spec.student_layers)
        student = form(student)
    return {"student": student, "teacher": form(taught)}


def _pick(student: dict, taught: dict, layers: tuple[int, ...]) -> dict:
    """The teacher's parameters as the student has them, both unrolled."""
    picked = {f"layer_{i}": f"layer_{layer}" for i, layer in enumerate(layers)}

    def find(path, leaf):
        keys = [key.key for key in path]
        found = taught
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
