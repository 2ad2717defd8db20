"""Every rule against TRL itself: a covering sample of all combinations, tried for real on the CPU.

``make audit`` runs it whole and writes reports/rule-audit.md; an integration test runs SFT whole
and a fixed dozen of every other trainer.
"""
