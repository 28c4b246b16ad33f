"""What a conversion looks like: the data behind its pictures, and the forms in which it is written (a page, DOT, JSON)."""
