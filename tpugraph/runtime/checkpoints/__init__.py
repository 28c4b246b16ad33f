"""Checkpoints on disk: contents, integrity, and the lock of a folder."""
