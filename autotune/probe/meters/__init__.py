"""Where peak memory is read: CUDA, CPU, and a shipped fake."""
