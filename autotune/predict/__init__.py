"""Numbers that are not measured; not built yet in this version."""
