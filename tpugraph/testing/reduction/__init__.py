"""Reduction: the smallest graph that still shows a fault, by delta debugging."""
