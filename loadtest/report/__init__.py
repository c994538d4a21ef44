"""Figures on paper: statistics of samples, rows, tables, a whole report.

Benchmarks and tests may import it; it imports nothing of the project and starts nothing. Begin
with `table`.
"""
