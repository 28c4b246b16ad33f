"""What the nodes of a plain graph are there for: loss, train op, step counter, input, metrics - found by structure."""

from tpugraph.roles.training_roles import find, find_step, find_variables, input_reason

__all__ = ["find", "find_step", "find_variables", "input_reason"]
