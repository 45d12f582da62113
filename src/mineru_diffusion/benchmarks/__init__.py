"""Measurements, one module a question; `mineru-diffusion bench NAME` runs them. Each prints a table, can write JSON,
and compares only what was measured in the same run, the contestants taking turns."""
