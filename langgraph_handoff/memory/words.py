"""How texts are found, whatever their language: words, pairs of words, and SQLite's FTS5 to rank them.

FTS5's `unicode61` tokenizer cuts at everything that is neither letter nor digit and folds case and accents. That fits languages
that put spaces between words, and ids: `inv_2024-11` is three words in a row. Scripts without spaces (Chinese, Japanese, Thai)
are spread to one character a word before they are indexed, and asked for in pairs, which is what search engines do without a
dictionary. Names such as `GetInvoice` are also indexed by their parts. The `trigram` tokenizer was measured and left: it finds
no Chinese word of two characters, had an earlier tool result first less often (for 0.62 to 0.89 of the questions, against 0.75 to
0.93 with words alone and 0.94 to 0.99 with words and pairs), and took twenty times as long over 100,000 texts.
"""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

__all__ = ("TOKENIZER", "WEIGHTS", "Asked", "asked", "quoted", "rank", "spread", "stem")

TOKENIZER: Final = "unicode61 remove_diacritics 2"

WEIGHTS: Final = "3.0, 1.0"
"""A word of the head (who did what) counts as three of the body (what came back): results are long and name many things."""

_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Japanese, Chinese
    "\uac00-\ud7af"  # Korean, which glues endings to its words
)
_SIGN: Final = re.compile(f"[{_UNSPACED}]")
_RUN: Final = re.compile(f"[{_UNSPACED}]+|[^\\W_{_UNSPACED}]+")
_WORD: Final = re.compile(r"\w+")
_ACCENT: Final = re.compile("[\u0300-\u036f]")
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_LONGEST_NAME: Final = 64
_MOST_WORDS: Final = 48
"""Words of a query that count; what comes after them in a pasted page adds time and no aim."""
_MOST_KIN: Final = 8


def spread(text: str) -> str:
    """Return the text as it is indexed."""
    text = _SIGN.sub(r" \g<0> ", unicodedata.normalize("NFKC", text).replace("ß", "ss"))
    return _WORD.sub(lambda found: _with_parts(found.group()), text)


def _with_parts(word: str) -> str:
    if len(word) > _LONGEST_NAME or not _HUMP.search(word):
        return word
    return f"{word} {_HUMP.sub(' ', word)}"


@dataclass(frozen=True, slots=True)
class Asked:
    """A query: what it asks for."""

    words: tuple[str, ...]
    """Words, folded as the index folds them."""
    pairs: tuple[tuple[str, str], ...]
    """Words that stand side by side in it. Where they do so in a text as well, that is no accident."""


def asked(query: str) -> Asked:
    """Return what a query asks for."""
    words: list[str] = []
    pairs: list[tuple[str, str]] = []
    for run in _RUN.findall(unicodedata.normalize("NFKC", query).replace("ß", "ss"))[:_MOST_WORDS]:
        if len(run) > 1 and _SIGN.match(run):
            pairs += pairwise(run)
            continue
        for word in map(_folded, _with_parts(run).split()):
            if words:
                pairs.append((words[-1], word))
            words.append(word)
    return Asked(tuple(dict.fromkeys(words)), tuple(dict.fromkeys(pairs)))


def _folded(word: str) -> str:
    """Return a word without case and accents, as the tokenizer has it."""
    return _ACCENT.sub("", unicodedata.normalize("NFKD", word)).casefold()


def quoted(*words: str) -> str:
    """Return words that stand side by side, as FTS5 asks for them."""
    return f'"{" ".join(words)}"'


def stem(word: str) -> str | None:
    """Return what inflected forms of a word begin with, in whatever language; None for ids and short words."""
    return word[: max(4, len(word) - 2)] if len(word) > 4 and word.isalpha() else None


def rank(texts: Sequence[tuple[str, str]], query: Asked, weights: Sequence[float]) -> list[int]:
    """Return the positions of the texts that fit, the best first, among equals the earlier first.

    The index lives for this one query. A word that no text has stands for the words that it is part of or shares its stem
    with, so that `Erstattung` finds `Rückerstattung` and `Rechnungen` finds `Rechnung`.

    Args:
        texts: Head and body of each, as `spread` returns them.
        query: What is asked for.
        weights: How much each text counts.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as scratch:
        scratch.execute(f"CREATE VIRTUAL TABLE texts USING fts5(head, body, content='', tokenize='{TOKENIZER}')")
        scratch.execute("CREATE VIRTUAL TABLE vocabulary USING fts5vocab(texts, row)")
        scratch.execute("BEGIN")  # FTS5 would write a segment for each text
        numbered = ((number, *text) for number, text in enumerate(texts))
        scratch.executemany("INSERT INTO texts (rowid, head, body) VALUES (?, ?, ?)", numbered)
        phrases = [quoted(*pair) for pair in query.pairs]
        for word in query.words:
            phrases += [quoted(each) for each in _known(scratch, word)]
        if not phrases:
            return []
        found = scratch.execute(f"SELECT bm25(texts, {WEIGHTS}), rowid FROM texts WHERE texts MATCH ?", [" OR ".join(phrases)])
        return [number for _, number in sorted((score * weights[number], number) for score, number in found)]


def _known(scratch: sqlite3.Connection, word: str) -> list[str]:
    """Return the word if a text has it, else the words of the texts that it is part of or shares its stem with."""
    if stem(word) is None or scratch.execute("SELECT 1 FROM vocabulary WHERE term = ?", [word]).fetchone():
        return [word]
    kin = scratch.execute(
        "SELECT term FROM vocabulary WHERE instr(term, ?) OR term GLOB ? ORDER BY length(term) LIMIT ?",
        [word, f"{stem(word)}*", _MOST_KIN],
    )
    return [term for (term,) in kin]
