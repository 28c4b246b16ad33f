"""Questions about a tensor whose answers follow from those about what it is made of, asked without recursion.

A rule is a generator: it yields the question that it needs answered and is sent the answer; what it returns is its own.
Each question is answered once, so that the way to an answer is never longer than the graph is large.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from tpugraph.ir import Tensor

Rule = Callable[[Tensor], "Answer"]
Question = tuple[Rule, Tensor]
Answer = Generator[Question, Any, Any]


def ask(rule: Rule, tensor: Tensor, known: dict[Question, Any] | None = None) -> Any:
    """The answer that a rule gives for a tensor.

    Args:
        rule: the rule.
        tensor: the tensor.
        known: answers to begin with and to add to; they hold for as long as the graph is not edited.

    Returns:
        The answer. A question that comes back to itself, as in a loop, is answered with None there.
    """
    known = {} if known is None else known
    first = (rule, tensor)
    asked: dict[Question, None] = {}
    stack: list[tuple[Question, Answer]] = []
    following: Question | None = first
    answer = None
    while True:
        if following is not None:
            if following in known or following in asked:
                answer = known.get(following)
            else:
                asked[following] = None
                stack.append((following, following[0](following[1])))
                answer = None
        if not stack:
            return known[first]
        question, work = stack[-1]
        try:
            following = work.send(answer)
        except StopIteration as end:
            stack.pop()
            del asked[question]
            answer = known[question] = end.value
            following = None
