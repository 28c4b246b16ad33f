"""Loops, conditionals and calls: made, raised to functions, lowered to Switch and Merge, inlined."""
