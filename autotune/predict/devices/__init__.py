"""Devices by name, and how fast they are: a catalogue, and what was measured on this machine."""
