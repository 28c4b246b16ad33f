"""The form of a TPU graph: invariants, the pipeline, the host's side of infeed and outfeed, checkpoints, Program."""
