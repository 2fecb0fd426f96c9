"""The benchmark: grids of cells, each one run with one row of results."""
