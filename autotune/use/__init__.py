"""The use cases, one file each; what the command line and Python call is in `autotune.api`."""
