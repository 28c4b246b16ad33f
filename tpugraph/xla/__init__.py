"""The step as XLA takes it: lowered to StableHLO, and given to the real TPU compiler."""
