"""What the demo rows talk about: four domains of small facts, written for this project.

Data only. ``make.py`` turns it into questions, answers and walkthroughs; nothing else reads it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Domain:
    """Hold the facts of one domain.

    Args:
        name: what a walkthrough calls the domain.
        person: whom a system message asks the assistant to be.
        goal: what a walkthrough is for; ``{}`` takes a list of things.
        aspects: one entry per fact of a thing: two ways to ask (``{}`` takes the thing) and the
            opening of a sentence that states the answer.
        things: thing -> one short answer per aspect, in the order of ``aspects``.
    """

    name: str
    person: str
    goal: str
    aspects: tuple[tuple[str, str, str], ...]
    things: dict[str, tuple[str, ...]]


COOKING = Domain(
    name="kitchen",
    person="a patient cook",
    goal="cook a dinner with {}",
    aspects=(
        ("How long do I cook {}?", "Cooking time for {}?", "For the time, plan on"),
        ("How do I season {}?", "What gives {} more flavour?", "For the seasoning, use"),
        ("What goes well with {}?", "What should I serve with {}?", "On the side, serve"),
        ("When do I stop cooking {}?", "What tells me to serve {}?", "Stop as soon as it is"),
    ),
    things={
        "rice": ("twelve minutes, lid on", "salt and a bay leaf", "beans or fried egg", "dry"),
        "lentils": ("twenty five minutes", "cumin and garlic", "rice or flat bread", "soft"),
        "salmon": ("ten minutes in the oven", "lemon and dill", "new potatoes", "flaky"),
        "potatoes": ("twenty minutes in water", "butter and chives", "fish or salad", "tender"),
        "carrots": ("eight minutes in a pan", "honey and thyme", "roast chicken", "glossy"),
        "pasta": ("one minute less than the packet", "salted water", "tomato sauce", "firm"),
        "chicken": ("forty minutes in the oven", "paprika and oil", "rice", "hot all through"),
        "mushrooms": ("seven minutes, no lid", "thyme and pepper", "toast", "brown at the edges"),
        "eggs": ("seven minutes from the boil", "salt, then pepper", "toast", "just set"),
        "onions": ("thirty minutes on low heat", "a pinch of salt", "nearly anything", "golden"),
        "chickpeas": ("one hour after soaking", "lemon and tahini", "warm bread", "creamy inside"),
        "spinach": ("two minutes in a wide pan", "nutmeg", "eggs or cheese", "just wilted"),
        "tofu": ("ten minutes, turned once", "soy sauce and ginger", "noodles", "crisp outside"),
        "beetroot": ("fifty minutes in foil", "vinegar and dill", "goat cheese", "easy to pierce"),
    },
)

GARDENING = Domain(
    name="garden",
    person="a friendly gardener",
    goal="plant a bed with {}",
    aspects=(
        ("When do I sow {}?", "Best month to start {}?", "For the start, choose"),
        ("How much light suits {}?", "Where should I grow {}?", "For the place, look for"),
        ("How often do I water {}?", "How much water for {}?", "For the water, give"),
        ("What harms {}?", "What should I watch for on {}?", "Over the season, watch for"),
    ),
    things={
        "tomatoes": ("March, indoors", "full sun", "a can every day", "blight after rain"),
        "beans": ("May, outdoors", "full sun", "a can twice a week", "slugs on young leaves"),
        "peas": ("March, outdoors", "sun or half shade", "a can twice a week", "pigeons"),
        "lettuce": ("April, in rows", "half shade", "a little each evening", "slugs at night"),
        "radishes": ("April, then every two weeks", "sun", "a little each day", "flea beetles"),
        "courgettes": ("May, one seed per pot", "full sun", "a can every day", "mildew"),
        "leeks": ("March, in a tray", "open ground", "a can once a week", "leek moth"),
        "garlic": ("October, point up", "full sun", "almost nothing", "rust on the leaves"),
        "strawberries": ("August, from runners", "full sun", "a can every two days", "birds"),
        "herbs": ("April, in pots", "a warm wall", "a little when dry", "wet roots in winter"),
        "pumpkins": ("May, under glass", "full sun and much room", "two cans a day", "frost"),
        "onions": ("March, from sets", "open ground", "a can once a week", "onion fly"),
        "kale": ("June, for winter", "sun or half shade", "a can twice a week", "caterpillars"),
        "sunflowers": ("April, two seeds per hole", "full sun", "a can twice a week", "wind"),
    },
)

TRAVEL = Domain(
    name="journey",
    person="a careful travel planner",
    goal="plan a summer of travel with {}",
    aspects=(
        ("How long is good for {}?", "How many days does {} need?", "For the time, allow"),
        ("What do I pack for {}?", "What is easy to forget for {}?", "In the bag, put"),
        ("When should I book {}?", "How early do I plan {}?", "For the booking, do it"),
        ("What makes {} cheaper?", "How do I save money on {}?", "To save money, try"),
    ),
    things={
        "a night train": ("one night", "ear plugs", "two months ahead", "a seat, not a bed"),
        "a bike tour": ("five days", "a spare tube", "one month ahead", "camping"),
        "a city break": ("three days", "good shoes", "six weeks ahead", "a weekday"),
        "a mountain hut": ("two nights", "a sleeping liner", "in early spring", "a dormitory"),
        "a ferry trip": ("one day", "a warm jacket", "when the timetable is out", "no car"),
        "a road trip": ("ten days", "a paper map", "three months ahead", "a small car"),
        "a beach week": ("seven days", "sun cream and a hat", "in winter", "the week after school"),
        "a canoe trip": ("four days", "dry bags", "one month ahead", "your own tent"),
        "a museum visit": ("half a day", "a pencil", "the day before", "the free evening"),
        "a long flight": ("one day of rest", "a refill bottle", "three months ahead", "a stop"),
        "a hiking week": ("six days", "tape for blisters", "two months ahead", "cooking yourself"),
        "a ski weekend": ("three days", "thin gloves too", "in autumn", "a pass for two days"),
        "a food market": ("two hours", "a cloth bag", "not at all", "the last hour"),
        "a house swap": ("two weeks", "a list of keys", "half a year ahead", "asking friends"),
    },
)

TRAINING = Domain(
    name="training run",
    person="an engineer who trains language models",
    goal="tune a training run with {}",
    aspects=(
        ("What is {}?", "Explain {} in one line.", "In one line, it is"),
        ("What does {} cost?", "What is the price of {}?", "As its price, expect"),
        ("When does {} help?", "Why would I use {}?", "It is worth it with"),
        ("How do I check {}?", "What shows that {} works?", "To check it, compare"),
    ),
    things={
        "packing": ("short rows joined in one", "a block mask", "many short rows", "the loss"),
        "padding": ("filler up to the longest row", "wasted work", "equal rows", "token counts"),
        "a larger batch": ("more rows per step", "more memory", "short steps", "tokens a second"),
        "accumulation": ("small steps, one update", "no memory", "a small card", "the gradients"),
        "checkpointing": (
            "work done twice to save memory",
            "a third more time",
            "long rows",
            "peak memory",
        ),
        "a warm up": ("a slow start of the rate", "a few steps", "fresh optimizers", "the curve"),
        "weight decay": ("a pull towards zero", "nearly nothing", "long runs", "the eval loss"),
        "an adapter": ("a small trained part", "some quality", "a large base", "eval scores"),
        "half precision": ("numbers of sixteen bits", "some accuracy", "new cards", "the loss"),
        "a profiler": ("a clock for every kernel", "a slow run", "a slow step", "the top ten"),
        "truncation": ("a cut at a fixed length", "lost tokens", "rare long rows", "what is kept"),
        "a scheduler": ("a plan for the learning rate", "nothing", "every run", "the last steps"),
        "offloading": ("tensors parked in main memory", "bus time", "huge models", "step time"),
        "a seed": ("the start of the random numbers", "nothing", "every report", "two runs"),
    },
)

DOMAINS: tuple[Domain, ...] = (COOKING, GARDENING, TRAVEL, TRAINING)
