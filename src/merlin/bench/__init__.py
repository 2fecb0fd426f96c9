"""The benchmark: grids of cells, where each cell is one run and gives one row of results."""
