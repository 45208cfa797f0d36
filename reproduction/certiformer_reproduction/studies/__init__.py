"""Studies behind the notebook: what a recipe does to radii, and how far each method certifies."""
