"""Benchmarks: how long certified radii take on the machine at hand, against goals and what could be."""
