"""The user's own config under the rules: refused in one sentence, or remarked with numbers.

Every use case asks here before anything is measured or traced. What a rule means for their own
config is in `autotune.knobs.consequences`, what values of theirs do nothing in
`autotune.knobs.no_effect`.
"""

from __future__ import annotations

from autotune.core.errors import BadInput, EnvironmentUnable
from autotune.knobs.catalog import user_candidate
from autotune.knobs.consequences import CONSEQUENCES, Effect
from autotune.knobs.facts import Facts
from autotune.knobs.rules import RULES, judge
from autotune.knobs.rules_rows import beyond_training
from autotune.knobs.translate import canonical


def require_own(facts: Facts) -> None:
    """Check that the user's own config can be trained.

    Args:
        facts: job, rows and machine.

    Raises:
        BadInput: it cannot, whatever the machine; says why and what to do.
        EnvironmentUnable: this machine cannot train it.
    """
    verdict = judge(canonical(user_candidate(facts), facts), facts, own=True)
    if verdict.valid:
        return
    means = CONSEQUENCES[verdict.rule]
    error = EnvironmentUnable if means.effect is Effect.UNABLE else BadInput
    raise error(f"your config cannot be trained: {verdict.reason}.", means.remedy)


def own_remarks(facts: Facts) -> tuple[str, ...]:
    """Return a sentence for everything in the user's own config that trains and is unwise.

    Args:
        facts: job, rows and machine.
    """
    own = canonical(user_candidate(facts), facts)
    found = dict.fromkeys(
        reason
        for rule in RULES
        if CONSEQUENCES[rule.__name__].effect is Effect.REMARKED
        and rule.__name__ != "versions_want_it"  # said where the options are read
        and (reason := rule(own, facts))
    )
    beyond = beyond_training(own, facts)
    if beyond is not None:
        found |= {f"{beyond}; it computes them, and was not trained on them": None}
        found.pop(beyond, None)
    return tuple(f"Your config: {reason}." for reason in (*found, *_realised(facts)))


def _realised(facts: Facts) -> list[str]:
    """Say where batches come to be other than the config says."""
    batch = int(facts.option("per_device_train_batch_size"))
    accumulation = int(facts.option("gradient_accumulation_steps"))
    length = facts.option("max_length")
    packs = facts.option("packing") and length is not None
    rows = facts.rows_left(length, str(facts.option("packing_strategy")) if packs else "none")
    what = "packed rows" if packs else "rows"
    found = []
    if facts.drops_last and rows % batch:
        found.append(
            f"dataloader_drop_last leaves out {rows % batch} of the {rows} {what} in every epoch"
        )
    elif rows < batch:
        found.append(
            f"per_device_train_batch_size {batch} is more than the {rows} {what} there are: "
            f"batches of {rows} are measured and written"
        )
    if not facts.streams and accumulation > 1 and rows < batch * accumulation:
        found.append(
            f"an optimizer step ends with its epoch and sees {rows} {what}, not the "
            f"{batch * accumulation} of per_device_train_batch_size {batch} x "
            f"gradient_accumulation_steps {accumulation}"
        )
    return found
