"""Beside the package: the paper's tables run again, the models they need, and benchmarks."""
