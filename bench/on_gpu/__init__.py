"""Parts of bench.gpu."""
