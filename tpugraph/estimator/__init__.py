"""TPUEstimator and the classes of its API: traces model and input functions, and converts and runs their graphs."""
