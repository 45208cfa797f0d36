"""The paper's tables run again: `certiformer reproduce tables`."""
