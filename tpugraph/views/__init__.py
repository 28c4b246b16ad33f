"""Views of a conversion: their data, and how they are written (a page, JSON)."""
