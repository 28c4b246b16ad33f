"""Roles of a plain graph's nodes, found by structure: loss, train op, step counter, input, metrics."""

from tpugraph.roles.training_roles import find, find_step, find_variables, input_reason

__all__ = ["find", "find_step", "find_variables", "input_reason"]
