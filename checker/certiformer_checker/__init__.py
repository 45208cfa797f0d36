"""An independent checker of certiformer's certificates: numpy and nothing else."""

__version__ = "0.1.0"
