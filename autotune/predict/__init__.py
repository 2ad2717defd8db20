"""Numbers that are not measured: the step traced on fake tensors, without weights or a GPU."""
