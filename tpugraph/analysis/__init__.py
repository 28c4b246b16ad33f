"""Analyses of a Graph: host and device, loop frames, replica-varying values, shapes and sizes, placements."""

from tpugraph.analysis.sides_of_step import *
from tpugraph.analysis.varying_values import *
from tpugraph.ir.conditionals import conditional as conditional
from tpugraph.ir.conditionals import nested as nested
from tpugraph.ir.loops import frames as frames
from tpugraph.ir.loops import loop_order as loop_order
