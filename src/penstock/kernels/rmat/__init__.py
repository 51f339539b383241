"""Ends of R-MAT edges from random words."""
