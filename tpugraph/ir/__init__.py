"""The graph that passes rewrite, its text form, and reading from and writing to TensorFlow's files."""

from tpugraph.ir.graph import Edits, Graph, Node, Output, Tensor, Use, is_back_edge

__all__ = ["Edits", "Graph", "Node", "Output", "Tensor", "Use", "is_back_edge"]
