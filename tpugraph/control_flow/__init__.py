"""Control flow: builds loops, raises TF1 control flow to functions, lowers functions to Switch and Merge, inlines calls."""
