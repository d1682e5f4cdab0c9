"""Nets of whole numbers: how int8 stands for real numbers (scheme.py), and what each operator does with it (ops.py).

Weights are int8 without a zero point, one scale for each output channel; activations int8 with a zero point, one
scale a tensor; sums int32. Between a quantised input and a quantised output there is no floating point, so that every
machine gives the same bytes. runtime_c/FORMAT.md describes the same for other readers.
"""
