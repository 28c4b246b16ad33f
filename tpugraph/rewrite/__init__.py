"""Rewrites the plain graph for the cores by its placements: local sizes, and collectives where placements change."""
