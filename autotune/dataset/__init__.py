"""Rows: load them, recognise their layout, check them, and prepare them as TRL does."""
