"""A benchmark in the manner of VNN-COMP's vit: vision Transformers with BatchNorm, and boxes around pictures."""
