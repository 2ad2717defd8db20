"""Where peak memory is read: CUDA and CPU; made-up GPUs are in `autotune.testing`."""
