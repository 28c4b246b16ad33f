"""Partitions a step over the cores: every value of the plain graph gets a placement, as in GSPMD, Shardy and DTensor.

The plain step keeps its global batch, so every size is a number. Placements are propagated forward from the input, with one
rule per op type. Where a node needs an operand in another placement, a collective converts it.
"""
