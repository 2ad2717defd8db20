"""Every rule against TRL itself, tried for real on the CPU with TRL's own trainers.

``make audit`` runs it whole and writes reports/rule-audit.md; an integration test runs SFT whole,
a fixed dozen of every other trainer and a handful of every small job.
"""
