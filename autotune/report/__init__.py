"""A result, written as something people read."""
