"""Whole data sets: a plan of equal parts, workers here or on Ray, a store that survives a kill, and a summary.

Nothing is imported here, so that the command line can read its options without torch.
"""
