"""The command line: options in, one use case called, words and exit code out."""
