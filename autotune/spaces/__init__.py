"""Search-space files: what to try, never what is valid."""
