"""Checkpoints on disk: what is in their files, which of a folder are whole, who may write there."""
