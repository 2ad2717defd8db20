"""The options autotune turns: what they are, when they are valid, how TRL spells them."""
