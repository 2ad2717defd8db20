"""The version of this package, readable without importing the rest of it."""

__version__ = "0.1.0"
