"""Make the demo's committed files: ``rows.jsonl``, ``tokenizer.json``, ``tokenizer_config.json``.

Run ``python -m autotune.demo.make`` after a change here or in ``facts.py``; a test holds the
committed files to what this makes. It builds no model and reads no network. The lengths are the
point: nearly all rows are one short question and answer, about one in twenty is a walkthrough
fifteen times as long, and the longest row is the last, where "the first batches" never see it.
"""

from __future__ import annotations

import json
import random
import re
from typing import Any

from autotune.demo import DEMO_DIR
from autotune.demo.facts import DOMAINS, Domain

SEED = 7
# Room for more merges than the rows hold: the trainer stops at about 1400 tokens, and the rest of
# the model's vocab_size (2048, config.json) is padding, as in many published models.
VOCAB_SIZE = 2048
TWO_TURN_ROWS = 12
# Words and punctuation marks of the walkthroughs. With them the longest row of eight drawn at
# random is about 3.9 times the mean row: what padding costs at TRL's default batch.
WALKTHROUGHS = 31
SHORTEST_WALKTHROUGH = 235
LONGEST_WALKTHROUGH = 370

PAD_TOKEN = "<|pad|>"
END_TOKEN = "<|end|>"
ROLE_TOKENS = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")

# Everything an assistant says, its end token included, lies between the generation markers, so
# that assistant_only_loss trains the model to stop. Every message renders alike wherever it
# stands, so that a prompt is a prefix of its conversation.
CHAT_TEMPLATE = """\
{%- if tools %}
    {{- '<|system|>You can call these tools:' }}
    {%- for tool in tools %}
        {{- '\\n' + (tool | tojson) }}
    {%- endfor %}
    {{- '<|end|>' }}
{%- endif %}
{%- for message in messages %}
    {%- set text = message.content if message.content is string else '' %}
    {%- if message.role == 'assistant' %}
        {{- '<|assistant|>' }}
        {%- generation %}
            {{- text }}
            {%- for call in message.tool_calls or [] %}
                {{- '\\ncall ' + ((call.function if call.function else call) | tojson) }}
            {%- endfor %}
            {{- '<|end|>' }}
        {%- endgeneration %}
    {%- elif message.role in ('system', 'user', 'tool') %}
        {{- '<|' + message.role + '|>' + text + '<|end|>' }}
    {%- else %}
        {{- raise_exception('unknown role ' + (message.role | string)) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>' }}
{%- endif %}"""

Message = dict[str, str]
Row = dict[str, list[Message]]


def rows() -> list[Row]:
    """Return the demo's chat rows in their order: shuffled, the longest walkthrough last."""
    rng = random.Random(SEED)
    made = [row for domain in DOMAINS for row in _short_rows(domain)]
    made += [_two_turns(rng) for _ in range(TWO_TURN_ROWS)]
    step = (LONGEST_WALKTHROUGH - SHORTEST_WALKTHROUGH) / (WALKTHROUGHS - 1)
    made += [
        _walkthrough(DOMAINS[at % len(DOMAINS)], SHORTEST_WALKTHROUGH + round(at * step), at, rng)
        for at in range(WALKTHROUGHS - 1)
    ]
    rng.shuffle(made)
    last = WALKTHROUGHS - 1
    # Well beyond the others, so that no tokenizer can make another row the longest.
    made.append(_walkthrough(DOMAINS[last % len(DOMAINS)], LONGEST_WALKTHROUGH + 15, last, rng))
    return made


def _say(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _short_rows(domain: Domain) -> list[Row]:
    """Ask for every fact of a domain in two ways."""
    made: list[Row] = []
    for thing, answers in domain.things.items():
        for (plain, other, opening), answer in zip(domain.aspects, answers, strict=True):
            for question, reply in ((plain, answer), (other, f"{opening} {answer}")):
                made.append(
                    {
                        "messages": [
                            _say("user", question.format(thing)),
                            _say("assistant", _sentence(reply)),
                        ]
                    }
                )
    return made


def _two_turns(rng: random.Random) -> Row:
    """Ask two things about one thing, one after the other."""
    domain = rng.choice(DOMAINS)
    thing = rng.choice(list(domain.things))
    messages: list[Message] = []
    for at in rng.sample(range(len(domain.aspects)), 2):
        question, _, opening = domain.aspects[at]
        messages.append(_say("user", question.format(thing)))
        messages.append(_say("assistant", _sentence(f"{opening} {domain.things[thing][at]}")))
    return {"messages": messages}


def _walkthrough(domain: Domain, pieces: int, at: int, rng: random.Random) -> Row:
    """Explain many things one by one until the row has the given words and punctuation marks."""
    things = rng.sample(list(domain.things), len(domain.things))
    messages = [_say("system", f"You are {domain.person}.")] if at % 3 == 0 else []
    asked = ", ".join(things[:3])
    question = f"Help me {domain.goal.format(asked)} and more. Go through it step by step."
    messages.append(_say("user", question))
    lines = [f"Gladly. Here is a plan for your {domain.name}, one step for each thing."]
    length = sum(_pieces(message["content"]) for message in messages) + _pieces(lines[0])
    for number, thing in enumerate(things, start=1):
        lines.append(f"{number}. {_sentence(f'now to {thing}')}")
        length += _pieces(lines[-1])
        for (_, _, opening), answer in zip(domain.aspects, domain.things[thing], strict=True):
            if length >= pieces:
                break
            part = _sentence(f"{opening} {answer}")
            lines[-1] += f" {part}"
            length += _pieces(part)
        if length >= pieces:
            break
    return {"messages": [*messages, _say("assistant", "\n".join(lines))]}


def _pieces(text: str) -> int:
    """Count words and punctuation marks: what the tokenizer, trained on them, nearly makes."""
    return len(re.findall(r"\w+|[^\w\s]", text))


def rows_jsonl(made: list[Row]) -> str:
    """Return the rows as JSON lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made)


def tokenizer_json(made: list[Row]) -> str:
    """Train the byte-level BPE tokenizer on the rows; return it as the ``tokenizers`` JSON."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        min_frequency=1,
        show_progress=False,
        special_tokens=[PAD_TOKEN, END_TOKEN, *ROLE_TOKENS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    texts = [message["content"] for row in made for message in row["messages"]]
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer.to_str(pretty=False) + "\n"


def tokenizer_config() -> dict[str, Any]:
    """Return what ``AutoTokenizer`` reads beside ``tokenizer.json``."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 1024,
        "pad_token": PAD_TOKEN,
        "eos_token": END_TOKEN,
        "additional_special_tokens": list(ROLE_TOKENS),
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }


def files() -> dict[str, str]:
    """Return the made files: name -> text."""
    made = rows()
    return {
        "rows.jsonl": rows_jsonl(made),
        "tokenizer.json": tokenizer_json(made),
        "tokenizer_config.json": json.dumps(tokenizer_config(), indent=2) + "\n",
    }


if __name__ == "__main__":
    for name, text in files().items():
        (DEMO_DIR / name).write_text(text, encoding="utf-8")
