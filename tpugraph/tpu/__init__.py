"""The TPU graph: invariants, the pipeline, the cut between host and device, the outfeed, checkpoint ops, Program."""
