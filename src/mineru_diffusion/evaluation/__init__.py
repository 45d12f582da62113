"""How well a checkpoint reads: metrics, held-out data, threshold sweeps, reports."""
