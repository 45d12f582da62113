"""Documents without torch: sources, regions, grammars, exports. Imports nothing else of this package but errors."""
