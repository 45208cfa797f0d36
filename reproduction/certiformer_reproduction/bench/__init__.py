"""Benchmarks: how long the certified radii take on the machine at hand, against what was asked and what could be.

certiformer bench gpu-table --device cuda --out results/gpu.json
python -m certiformer_reproduction.bench ...        # the same, without the packages of the command line
"""

from .cases import SUITES, Case, suite
from .measure import Measured, measure
from .run import Settings, run

__all__ = ["SUITES", "Case", "Measured", "Settings", "measure", "run", "suite"]
