"""Path-star planning: find the arm of a star graph that ends at the goal.

    nodes 0..N-1,  | = N,  '=' = N+1,  / = N+2,  $ = N+3 (a hidden goal)

    1,9|4,7|7,2|4,1/4,2=4,7,2         degree 2, arms of 3 nodes with the centre, N = 10
    1 9 10 4 7 10 7 2 10 4 1 12 4 2 11 4 7 2

A graph has a centre and `degree` arms of `arm` - 1 further nodes, with names drawn
without replacement. The prefix has all edges, from the centre outwards, in random
order; then the source, which is the centre, and the goal, the end of one arm. The
answer is the path, with both ends. Its first node is the source; given the one before,
each but the second is a look-up of an edge. The second needs the whole arm: guessing it
costs ln(degree).

Only the answer has exact conditionals, given the whole prefix. If the goal is hidden,
every arm is equally likely until a node of the answer is visible.

Source: Bachmann and Nagarajan 2024 (https://arxiv.org/abs/2403.06963), whose token ids
these are.

>>> task = PathStar(degree=2, arm=3, names=10)
>>> x = np.array([[1, 9, 10, 4, 7, 10, 7, 2, 10, 4, 1, 12, 4, 2, 11, 4, 7, 2]])
>>> task.left_to_right(x)[0, 15:].argmax(-1).tolist()
[4, 7, 2]
>>> blind = PathStar(degree=2, arm=3, names=10, shows_goal=False)
>>> x[0, 13] = 13
>>> first, second, third = blind.left_to_right(x)[0, 15:]
>>> second[[1, 7]].tolist(), third[2], blind.given_others(x)[0, 16, 7]
([0.5, 0.5], np.float64(1.0), np.float64(1.0))
"""

import dataclasses
from typing import Annotated, ClassVar

import numpy as np

from jaxpt.languages import ACCURACY, SECOND
from jaxpt.languages.language import (
    Language,
    choose_distinct,
    hash_rows,
    normalise,
    one_hot,
)
from jaxpt.languages.spec import LanguageSpec, NumSymbols
from jaxpt.setting_types import Limits

ArmLength = Annotated[int, Limits(least=2, most=256)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec(LanguageSpec):
    """The parameters of "star:".

    Attributes:
      degree: the number of arms.
      arm: the nodes of an arm, with the centre.
      names: the number of node names.
      goal: whether the goal is written; False hides it (the leak test).
      reversed: whether the answer is written from the goal to the source.
    """

    HAS_ANSWERS: ClassVar[bool] = True

    degree: ArmLength = 2
    arm: ArmLength = 5
    names: NumSymbols = 50
    goal: bool = True
    reversed: bool = False

    @property
    def document_length(self) -> int:
        return 3 * self.degree * (self.arm - 1) + 3 + self.arm

    def make(self, rng: np.random.Generator) -> "PathStar":
        """The task, which has nothing to draw; refuses fewer names than nodes."""
        nodes = 1 + self.degree * (self.arm - 1)
        self.check(
            "names",
            self.names >= nodes,
            f"at least {nodes}, the nodes of a graph of degree={self.degree} and "
            f"arm={self.arm}",
        )
        return PathStar(self.degree, self.arm, self.names, self.goal, self.reversed)


class PathStar(Language):
    """Star graphs, each with the path from its centre to a goal.

    Args:
      degree: the number of arms.
      arm: the nodes of an arm, with the centre.
      names: the number of node names, at least those of a graph.
      shows_goal: whether the goal is written, or $, which leaves the arm unknown.
      is_reversed: whether the answer is written from the goal to the source.
    """

    guess = "a random arm of the graph"

    def __init__(
        self,
        degree: int,
        arm: int,
        names: int,
        shows_goal: bool = True,
        is_reversed: bool = False,
    ):
        self.degree, self.arm, self.names = degree, arm, names
        self.shows_goal, self.is_reversed = shows_goal, is_reversed
        self.num_edges = degree * (arm - 1)
        self.num_prefix = 3 * self.num_edges + 3
        self.num_symbols, self.length = names + 4, self.num_prefix + arm

    def chances(self) -> dict[str, float]:
        """One in `degree`: all nodes but the second follow from the one before."""
        return dict.fromkeys((ACCURACY, SECOND), 1 / self.degree)

    def count_draws(self, length: int) -> int:
        """An order of the names, an order of the edges, and the arm of the goal."""
        return self.names + self.num_edges + 1

    def build(self, draws: np.ndarray, length: int) -> np.ndarray:
        """Documents from uniform numbers, int32 [N, T]."""
        self.check_length(length)
        num, end = len(draws), self.names + self.num_edges
        nodes = choose_distinct(draws[:, : self.names], self.num_edges + 1)
        centre = nodes[:, :1]
        outer = nodes[:, 1:].reshape(num, self.degree, self.arm - 1)
        arms = np.concatenate([np.repeat(centre[:, None], self.degree, 1), outer], 2)
        edges = np.stack([arms[:, :, :-1], arms[:, :, 1:]], -1)
        order = choose_distinct(draws[:, self.names : end], self.num_edges)
        edges = np.take_along_axis(
            edges.reshape(num, self.num_edges, 2), order[..., None], 1
        )
        path = arms[np.arange(num), (draws[:, end] * self.degree).astype(int)]
        rows = np.full((num, length), self.names, np.int32)
        rows[:, 0 : self.num_prefix - 3 : 3] = edges[:, :, 0]
        rows[:, 1 : self.num_prefix - 3 : 3] = edges[:, :, 1]
        at = self.num_prefix
        rows[:, at - 4], rows[:, at - 1] = self.names + 2, self.names + 1
        rows[:, at - 3] = path[:, 0]
        rows[:, at - 2] = path[:, -1] if self.shows_goal else self.names + 3
        rows[:, at:] = path[:, ::-1] if self.is_reversed else path
        return rows

    def asked(self, rows: np.ndarray) -> np.ndarray:
        """The positions of the answer, bool [N, T]."""
        is_answer = np.arange(self.length) >= self.num_prefix
        return np.broadcast_to(is_answer, rows.shape)

    def identify(self, rows: np.ndarray) -> np.ndarray:
        """The graph, with any goal and its edges in any order: its arms, sorted."""
        arms = self.list_arms(rows)
        order = np.argsort(arms[:, :, 1], axis=1)
        arms = np.take_along_axis(arms, order[..., None], 1)
        return hash_rows(arms.reshape(len(rows), -1))

    def given_visible(self, rows: np.ndarray, visible: np.ndarray) -> np.ndarray:
        """p(x_i = v | the visible symbols other than x_i), float64 [N, T, V].

        NaN in the prefix, and in the answer if some of the prefix is hidden.
        """
        at = self.num_prefix
        answers = np.full((*rows.shape, self.num_symbols), np.nan)
        is_whole = visible[:, :at].all(1)
        rows, visible = rows[is_whole], visible[is_whole]
        arms = self.list_arms(rows)
        fits = np.ones(arms.shape[:2], bool)
        if self.shows_goal:
            fits = arms[..., -1] == rows[:, at - 2, None]
        if self.is_reversed:
            arms = arms[..., ::-1]
        clashes = (arms != rows[:, None, at:]) & visible[:, None, at:]  # [N, arms, l]
        others = clashes.sum(2, keepdims=True) - clashes  # at positions other than i
        weights = fits[..., None] & (others == 0)
        shown = one_hot(arms, self.num_symbols) * weights[..., None]
        answers[is_whole, at:] = normalise(shown.sum(1))
        return answers

    def list_arms(self, rows: np.ndarray) -> np.ndarray:
        """The arms of each row's graph, from the source outwards, int [N, degree, l].

        In the order of their first edges in the row.
        """
        end = self.num_prefix - 3
        heads, tails = rows[:, 0:end:3], rows[:, 1:end:3]
        is_first = heads == rows[:, end, None]
        first = np.argsort(~is_first, axis=1, kind="stable")[:, : self.degree]
        nodes = [np.repeat(rows[:, end, None], self.degree, 1)]
        nodes.append(np.take_along_axis(tails, first, 1))
        while len(nodes) < self.arm:
            edge = (heads[:, None] == nodes[-1][..., None]).argmax(2)
            nodes.append(np.take_along_axis(tails, edge, 1))
        return np.stack(nodes, 2)
