"""Benchmarks: `make bench` runs all of them, `python -m benchmarks NAME ...` some. Claims are ratios from one run."""
