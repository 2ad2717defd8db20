"""What a library says, without what it quotes: names, paths and keys are the user's words."""

from __future__ import annotations

import re

#: A quoted span: opened where no word ends (``can't`` opens nothing) and closed within its line.
_QUOTED = re.compile(r"""(?<!\w)(['"`])(?:(?!\1)[^\n])*\1(?!\w)""")
#: How CUDA's collectives quote the one error whose name is looked for.
_QUOTED_ERROR = re.compile(r"(Cuda failure(?: \d+)?) 'out of memory'", re.IGNORECASE)
#: A path: from the root, from here or from home, or through two folders at least (``is/are`` is
#: none), and a bare file name.
_PATH = re.compile(
    r"<[^<>\n]*/[^<>\n]*>|(?<!\w)(?:~|\.{1,2}|[A-Za-z]:)?[/\\][\w.~-][^\s:,;)\]]*"
    r"|[\w.-]+(?:/[\w.-]+){2,}"
)
_FILE = re.compile(
    r"[\w-]*\w\.(?:jsonl?|csv|tsv|txt|md|ya?ml|parquet|arrow|safetensors|bin|pt|pth|gguf|gz|xz|zst"
    r"|bz2|zip|tar)\b",
    re.IGNORECASE,
)


def bare_words(text: str) -> str:
    """Return a text without quoted spans, paths and file names.

    Args:
        text: an exception's message or a process's last lines.
    """
    for pattern, left in ((_QUOTED_ERROR, r"\1: out of memory"), (_QUOTED, "…"), (_PATH, "…")):
        text = pattern.sub(left, text)
    return _FILE.sub("…", text)
