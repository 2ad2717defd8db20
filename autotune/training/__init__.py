"""Builds what TRL trains; shared by the probe child and the tracer, knows nothing of either."""
