"""The form of a TPU graph: invariants, the pipeline, the cuts between host and device, the outfeed, checkpoints, Program."""
