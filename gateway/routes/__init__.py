"""Routes, one module per group."""
