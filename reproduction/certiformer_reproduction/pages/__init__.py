"""What is generated of the documents: the paper's tables, the measurements, the output that the README shows."""
