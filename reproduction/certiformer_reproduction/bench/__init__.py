"""Benchmarks: how long certified radii take on the machine at hand, against what was asked and what could be."""
