"""Labelled pairs whose truth is known because they were made that way."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from _pairs_known import FloatArray, Row, Triple

Maker = Callable[[np.random.Generator], Triple]
_DRAWS = 4
_SIGNAL_DRAWS = 12
_SMALL_SHARES = (0.05, 0.1, 0.2, 0.3)


def generated() -> Iterator[Row]:
    """Yield the pairs, by kind."""
    for kind, make in _KINDS.items():
        for draw in range(_DRAWS):
            seed = [draw, *map(ord, kind)]
            yield (
                kind,
                f"{kind}, draw {draw}",
                lambda make=make, seed=seed: make(np.random.default_rng(seed)),
            )
    for draw in range(_SIGNAL_DRAWS):
        seed = [draw, *map(ord, "Gaussian signals")]
        yield (
            "Gaussian signals",
            f"Gaussian signals, draw {draw}",
            lambda seed=seed: _gaussian_signals(np.random.default_rng(seed)),
        )
    for share in _SMALL_SHARES:
        for draw in range(_DRAWS):
            seed = [draw, round(1000 * share), *map(ord, "small class")]
            yield (
                "small class",
                f"small class of {share:.0%}, draw {draw}",
                lambda share=share, seed=seed: _small_class(np.random.default_rng(seed), share),
            )


def _basis(rng: np.random.Generator, m: int) -> FloatArray:
    """Return a random rotation, (m, m)."""
    q, r = np.linalg.qr(rng.standard_normal((m, m)))
    return np.asarray(q * np.sign(r.diagonal()))


def _classes(rng: np.random.Generator, n: int, n_classes: int) -> Triple:
    """Return centres of classes in the plane by row, nothing, and the labels."""
    labels = rng.integers(n_classes, size=n)
    angle = 2.0 * np.pi * np.arange(n_classes) / n_classes + rng.uniform(0.0, np.pi)
    centres = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return centres[labels], centres, labels


def _needles(rng: np.random.Generator) -> Triple:
    """Classes along directions of small variance, rotated."""
    m, n_f, n_b = (
        int(rng.integers(20, 80)),
        int(rng.integers(300, 900)),
        int(rng.integers(300, 900)),
    )
    thin = 10.0 ** rng.uniform(-2.0, -0.5)
    deviation = np.where(np.arange(m) < 4, thin, rng.uniform(0.5, 2.0, m))
    q = _basis(rng, m)
    centres, _, labels = _classes(rng, n_f, int(rng.integers(2, 5)))
    inner = rng.standard_normal((n_f, m)) * deviation
    inner[:, :2] += 5.0 * thin * centres
    return inner @ q.T, (rng.standard_normal((n_b, m)) * deviation) @ q.T, labels


def _heavy_tails(rng: np.random.Generator) -> Triple:
    """Classes under factors, all noise from Student's t with 3 degrees of freedom."""
    m, n_f, n_b = int(rng.integers(20, 60)), 500, int(rng.integers(150, 600))
    factors = rng.standard_normal((5, m)) * rng.uniform(1.0, 3.0)
    centres, _, labels = _classes(rng, n_f, 3)
    pattern = rng.standard_normal((2, m)) * rng.uniform(0.6, 1.2)

    def noise(n: int) -> FloatArray:
        return rng.standard_t(3, (n, 5)) @ factors + 0.5 * rng.standard_t(3, (n, m))

    return noise(n_f) + 2.0 * centres @ pattern, noise(n_b), labels


def _louder_nuisance(rng: np.random.Generator) -> Triple:
    """The main factors of both sets are louder in the target; classes are fainter."""
    m, n = int(rng.integers(20, 80)), 500
    factors = _basis(rng, m)[:4] * rng.uniform(6.0, 15.0)
    louder = rng.uniform(1.2, 1.8)
    centres, _, labels = _classes(rng, n, int(rng.integers(2, 5)))
    pattern = _basis(rng, m)[:2] * rng.uniform(5.0, 8.0)
    target = louder * rng.standard_normal((n, 4)) @ factors + rng.standard_normal((n, m))
    background = rng.standard_normal((n, 4)) @ factors + rng.standard_normal((n, m))
    return target + centres @ pattern, background, labels


def _few_background_rows(rng: np.random.Generator) -> Triple:
    """About as many background rows as features."""
    m, n_f = int(rng.integers(40, 100)), 400
    n_b = int(m * rng.uniform(0.7, 1.6))
    return _factors_and_classes(rng, m, n_f, n_b)


def _wide(rng: np.random.Generator) -> Triple:
    """More features than rows."""
    m = int(rng.integers(300, 600))
    return _factors_and_classes(rng, m, int(rng.integers(80, 200)), int(rng.integers(60, 200)))


def _factors_and_classes(rng: np.random.Generator, m: int, n_f: int, n_b: int) -> Triple:
    factors = rng.standard_normal((8, m)) * rng.uniform(0.5, 3.0, (8, 1))
    centres, _, labels = _classes(rng, n_f, int(rng.integers(2, 5)))
    used = rng.permutation(m) < max(8, m // 4)
    pattern = rng.standard_normal((2, m)) * used * rng.uniform(1.0, 2.0)

    def noise(n: int) -> FloatArray:
        return rng.standard_normal((n, 8)) @ factors + rng.standard_normal((n, m))

    return noise(n_f) + centres @ pattern, noise(n_b), labels


def _counts(rng: np.random.Generator) -> Triple:
    """Sparse counts as of words or genes: topics of both sets, and one that makes the classes."""
    m, n_f, n_b = int(rng.integers(60, 150)), 500, int(rng.integers(200, 600))
    topics = rng.gamma(0.3, 1.0, (6, m))
    own = rng.gamma(0.3, 1.0, (2, m))
    labels = rng.integers(2, size=n_f)

    def rates(n: int) -> FloatArray:
        return rng.gamma(0.7, 0.6, (n, 6)) @ topics + 0.05

    target = rates(n_f) + 0.8 * own[labels]
    return np.log1p(rng.poisson(target)), np.log1p(rng.poisson(rates(n_b))), labels


def _autocorrelated(rng: np.random.Generator) -> Triple:
    """Smooth curves; the classes differ by a bump."""
    m, n_f, n_b = 120, 300, int(rng.integers(60, 300))
    time = np.arange(m)
    kernel = np.exp(-(((time[:, None] - time) / rng.uniform(3.0, 12.0)) ** 2))
    root = np.linalg.cholesky(kernel + 1e-3 * np.eye(m))
    labels = rng.integers(3, size=n_f)
    width = rng.uniform(1.0, 6.0)
    bumps = np.exp(-(((time - rng.uniform(20, 100, (3, 1))) / width) ** 2)) * rng.uniform(0.5, 2.0)
    curves = [rng.standard_normal((n, m)) @ root.T for n in (n_f, n_b)]
    return curves[0] + bumps[labels], curves[1], labels


def _small_class(rng: np.random.Generator, share: float) -> Triple:
    """A class of few rows under factors of both sets, beside directions louder in the target."""
    m, n = int(rng.integers(20, 100)), int(rng.integers(400, 1200))
    q = _basis(rng, m)
    factors = rng.standard_normal((5, m)) * rng.uniform(0.5, 3.0, (5, 1))
    labels = (np.arange(n) < round(share * n)).astype(np.intp)
    # The classes' means lie 5 to 8 deviations apart, along one direction of all features.
    centre = q[0] * rng.uniform(5.0, 8.0)

    def noise(n: int) -> FloatArray:
        return rng.standard_normal((n, 5)) @ factors + rng.standard_normal((n, m))

    louder = rng.standard_normal((n, 3)) @ q[1:4] * rng.uniform(1.0, 2.0)
    return noise(n) + louder + labels[:, None] * centre, noise(n), labels


def _gaussian_signals(rng: np.random.Generator) -> Triple:
    """Two Gaussian signals of the target alone, without any classes; the signals are the truth."""
    m, n_f, n_b = int(rng.integers(20, 200)), int(rng.integers(150, 900)), 500
    factors = rng.standard_normal((6, m)) * rng.uniform(0.5, 4.0, (6, 1))
    signals = rng.standard_normal((n_f, 2))
    pattern = _basis(rng, m)[:2] * rng.uniform(2.0, 5.0, (2, 1))

    def noise(n: int) -> FloatArray:
        return rng.standard_normal((n, 6)) @ factors + rng.standard_normal((n, m))

    return noise(n_f) + signals @ pattern, noise(n_b), signals


def _loud_classes(rng: np.random.Generator) -> Triple:
    """Loud classes beside faint directions in which the target has a far larger contrast."""
    m, n = int(rng.integers(30, 80)), 600
    q = _basis(rng, m)
    deviation = np.geomspace(3.0, 0.03, m)
    centres, _, labels = _classes(rng, n, int(rng.integers(2, 4)))
    inner = rng.standard_normal((n, m)) * deviation
    inner[:, m // 3 : m // 3 + 2] += rng.uniform(2.0, 4.0) * centres
    faint = rng.uniform(4.0, 8.0, 6) * deviation[-6:]
    inner[:, -6:] += rng.standard_normal((n, 6)) * faint
    return inner @ q.T, (rng.standard_normal((n, m)) * deviation) @ q.T, labels


def _in_other_units(rng: np.random.Generator) -> Triple:
    """Factors and classes in features whose units differ by orders of magnitude."""
    target, background, labels = _factors_and_classes(rng, 40, 500, 300)
    units = 10.0 ** rng.uniform(-2.0, 2.0, 40)
    return target * units, background * units, labels


def _documents(rng: np.random.Generator) -> Triple:
    """Roots of the shares of words in short texts, with frequencies as of Zipf's law."""
    m, n_f, n_b = int(rng.integers(100, 200)), 500, int(rng.integers(200, 600))
    usual = 1.0 / np.arange(1, m + 1) ** rng.uniform(0.8, 1.2)
    topics = usual * rng.gamma(0.5, 2.0, (5, m))
    own = usual * rng.gamma(0.5, 2.0, (3, m))
    labels = rng.integers(3, size=n_f)
    part = rng.uniform(0.2, 0.5)

    def words(shares: FloatArray) -> FloatArray:
        shares = shares / shares.sum(axis=1, keepdims=True)
        lengths = rng.integers(40, 200, len(shares))
        return np.sqrt(rng.multinomial(lengths, shares) / lengths[:, None])

    def texts(n: int) -> FloatArray:
        shares = rng.dirichlet(np.full(5, 0.3), n) @ (topics / topics.sum(axis=1, keepdims=True))
        return np.asarray(shares)

    of_class = own[labels] / own[labels].sum(axis=1, keepdims=True)
    return words((1.0 - part) * texts(n_f) + part * of_class), words(texts(n_b)), labels


def _quiet_classes(rng: np.random.Generator) -> Triple:
    """Classes of a contrast of about 4 along quiet directions; some have almost no variance."""
    m, n = int(rng.integers(30, 80)), int(rng.integers(400, 1000))
    q = _basis(rng, m)
    deviation = np.linspace(10.0, 0.01, m)
    centres, _, labels = _classes(rng, n, int(rng.integers(2, 4)))
    first = 2 * m // 3
    inner = rng.standard_normal((n, m)) * deviation
    # Centres have a variance of 1/2 in each direction.
    inner[:, first : first + 2] *= 0.4
    inner[:, first : first + 2] += rng.uniform(2.2, 2.8) * deviation[first] * centres
    return inner @ q.T, (rng.standard_normal((n, m)) * deviation) @ q.T, labels


_KINDS: dict[str, Maker] = {
    "needles": _needles,
    "heavy tails": _heavy_tails,
    "louder nuisance": _louder_nuisance,
    "few background rows": _few_background_rows,
    "more features than rows": _wide,
    "counts": _counts,
    "autocorrelated": _autocorrelated,
    "loud classes": _loud_classes,
    "units of all sizes": _in_other_units,
    "documents": _documents,
    "quiet classes": _quiet_classes,
}
