"""Tables that are shared among the cores: each core holds some of the rows of a variable that is read and written by rows."""
