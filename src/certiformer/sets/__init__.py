"""What may vary."""

from .ball import Ball, dual

__all__ = ["Ball", "dual"]
