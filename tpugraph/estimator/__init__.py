"""TPUEstimator and the classes of its API: model functions and input functions become graphs, and take the one road."""
