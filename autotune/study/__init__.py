"""The search: what to try next, what a probe's ending means, which candidate wins."""
