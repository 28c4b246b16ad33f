"""The partition of a step over the cores: a placement for every value of the plain graph, as GSPMD, Shardy and DTensor have it.

The plain step keeps its batch, so every size is a number. Placements are propagated forward from the input by one rule for each
op type; what an operand is wanted as and is not becomes a collective.
"""
