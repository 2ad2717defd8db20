"""One isolated child process per measurement."""
