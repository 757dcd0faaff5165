"""Growing one structured tree: the compiled inner loops of the trainer."""

from __future__ import annotations

import numba
import numpy as np

# Steps of the power iteration, and patches that it sees: a node splits by a rough direction, so
# both were chosen by hand for speed.
_POWER_STEPS = 10
_MAX_FOR_PCA = 1024


@numba.njit(nogil=True, cache=True, fastmath=True)
def gather_bins(
    regular, similar, corner, ids, rows1, cols1, chans, rows2, cols2, n_regular, edges, out, first
):
    """Write the binned features of the patches of one image into ``out[:, first:]``.

    regular, similar : (h, w, channels) float32
    corner : (n, 2) row and column of each patch in the feature maps
    ids : (f,) the features wanted; below ``n_regular`` a value, above a difference
    edges : (f, 255) bin edges, ascending
    out : (f, n_all) uint8
    """
    n = corner.shape[0]
    n_edges = edges.shape[1]
    for f in range(ids.shape[0]):
        k = ids[f]
        r1, c1, z, r2, c2 = rows1[k], cols1[k], chans[k], rows2[k], cols2[k]
        for s in range(n):
            r, c = corner[s, 0], corner[s, 1]
            if k < n_regular:
                value = regular[r + r1, c + c1, z]
            else:
                value = similar[r + r1, c + c1, z] - similar[r + r2, c + c2, z]
            low, high = 0, n_edges
            while low < high:
                middle = (low + high) >> 1
                if value < edges[f, middle]:
                    high = middle
                else:
                    low = middle + 1
            out[f, first + s] = low


@numba.njit(nogil=True, cache=True, fastmath=True)
def gather_values(regular, similar, corner, ids, rows1, cols1, chans, rows2, cols2, n_regular, out):
    """Write the features of patches as they are into ``out`` (n, f)."""
    for s in range(corner.shape[0]):
        r, c = corner[s, 0], corner[s, 1]
        for f in range(ids.shape[0]):
            k = ids[f]
            if k < n_regular:
                out[s, f] = regular[r + rows1[k], c + cols1[k], chans[k]]
            else:
                out[s, f] = (
                    similar[r + rows1[k], c + cols1[k], chans[k]]
                    - similar[r + rows2[k], c + cols2[k], chans[k]]
                )


@numba.njit(nogil=True, cache=True, fastmath=True)
def _two_classes(labels, samples, first, second, classes):
    """Map segmentation patches to two classes by the sign of their first principal component.

    The vector of a patch says for each sampled pair of pixels whether both lie in one segment.
    Returns whether there are two classes at all.
    """
    n, p = samples.shape[0], first.shape[0]
    m = min(n, _MAX_FOR_PCA)
    stride = n / m
    vectors = np.empty((m, p), dtype=np.float32)
    mean = np.zeros(p, dtype=np.float32)
    for i in range(m):
        patch = labels[samples[int(i * stride)]]
        for j in range(p):
            same = np.float32(patch[first[j]] == patch[second[j]])
            vectors[i, j] = same
            mean[j] += same
    mean /= m
    total = np.float32(0.0)
    for i in range(m):
        for j in range(p):
            vectors[i, j] -= mean[j]
            total += vectors[i, j] * vectors[i, j]
    if total < 1e-6:
        return False
    direction = np.empty(p, dtype=np.float32)
    for j in range(p):
        direction[j] = np.random.random() - 0.5
    update = np.empty(p, dtype=np.float32)
    for _ in range(_POWER_STEPS):
        update[:] = 0.0
        for i in range(m):
            dot = np.float32(0.0)
            for j in range(p):
                dot += vectors[i, j] * direction[j]
            for j in range(p):
                update[j] += dot * vectors[i, j]
        norm = np.float32(0.0)
        for j in range(p):
            norm += update[j] * update[j]
        norm = np.sqrt(norm)
        if norm < 1e-12:
            return False
        for j in range(p):
            direction[j] = update[j] / norm
    offset = np.float32(0.0)
    for j in range(p):
        offset += mean[j] * direction[j]
    ones = 0
    for i in range(n):
        patch = labels[samples[i]]
        dot = -offset
        for j in range(p):
            if patch[first[j]] == patch[second[j]]:
                dot += direction[j]
        classes[i] = dot > 0.0
        ones += classes[i]
    return 0 < ones < n


@numba.njit(nogil=True, cache=True)
def _best_split(binned, samples, classes, candidates, min_child):
    """Return the feature, bin and gain of the split that lowers Gini impurity most."""
    n = samples.shape[0]
    ones = 0
    for i in range(n):
        ones += classes[i]
    best_gain, best_feature, best_bin = 0.0, -1, -1
    parent = (float(ones) * ones + float(n - ones) * (n - ones)) / n
    counts = np.empty((256, 2), dtype=np.int64)
    for feature in candidates:
        counts[:] = 0
        row = binned[feature]
        for i in range(n):
            counts[row[samples[i]], classes[i]] += 1
        left0, left1 = 0, 0
        for b in range(255):
            left0 += counts[b, 0]
            left1 += counts[b, 1]
            left = left0 + left1
            right = n - left
            if left < min_child or right < min_child:
                continue
            right0, right1 = n - ones - left0, ones - left1
            # Gini: the purity Σ p² of both sides, weighted by their sizes.
            gain = (
                (float(left0) * left0 + float(left1) * left1) / left
                + (float(right0) * right0 + float(right1) * right1) / right
                - parent
            )
            if gain > best_gain:
                best_gain, best_feature, best_bin = gain, feature, b
    return best_feature, best_bin, best_gain


@numba.njit(nogil=True, cache=True, fastmath=True)
def _representative(labels, samples, first, second):
    """Return the sample whose vector is nearest to the mean of all."""
    n, p = samples.shape[0], first.shape[0]
    mean = np.zeros(p, dtype=np.float32)
    for i in range(n):
        patch = labels[samples[i]]
        for j in range(p):
            mean[j] += patch[first[j]] == patch[second[j]]
    mean /= n
    best, nearest = np.float32(np.inf), 0
    for i in range(n):
        patch = labels[samples[i]]
        distance = np.float32(0.0)
        for j in range(p):
            gap = mean[j] - np.float32(patch[first[j]] == patch[second[j]])
            distance += gap * gap
        if distance < best:
            best, nearest = distance, i
    return samples[nearest]


@numba.njit(nogil=True, cache=True)
def grow(binned, labels, n_candidates, n_pairs, min_child, max_depth, seed, progress):
    """Grow a tree.

    binned : (f, n) uint8; labels : (n, pixels) uint8; progress : (1,) float64, which rises to 1

    Returns feature (into the rows of ``binned``), bin, left child (0 for a leaf; the right one
    follows it), representative sample and number of samples of each node.
    """
    np.random.seed(seed)
    n_features, n = binned.shape
    n_pixels = labels.shape[1]
    capacity = 2 * (n // min_child) + 3
    feature = np.zeros(capacity, dtype=np.int32)
    split = np.zeros(capacity, dtype=np.int32)
    child = np.zeros(capacity, dtype=np.int32)
    chosen = np.zeros(capacity, dtype=np.int64)
    start = np.zeros(capacity, dtype=np.int64)
    stop = np.zeros(capacity, dtype=np.int64)
    depth = np.zeros(capacity, dtype=np.int32)
    samples = np.arange(n)
    spare = np.empty(n, dtype=np.int64)
    classes = np.empty(n, dtype=np.uint8)
    first = np.empty(n_pairs, dtype=np.int64)
    second = np.empty(n_pairs, dtype=np.int64)
    candidates = np.empty(n_candidates, dtype=np.int64)
    order = np.arange(n_features)
    stop[0] = n
    n_nodes, node, arrived = 1, 0, 0
    while node < n_nodes:
        mine = samples[start[node] : stop[node]]
        size = mine.shape[0]
        for j in range(n_pairs):
            first[j] = np.random.randint(n_pixels)
            second[j] = np.random.randint(n_pixels)
            while second[j] == first[j]:
                second[j] = np.random.randint(n_pixels)
        found = -1
        splits = size >= 2 * min_child and depth[node] < max_depth
        if splits and _two_classes(labels, mine, first, second, classes[:size]):
            for j in range(n_candidates):  # the start of a shuffle: no feature twice
                other = j + np.random.randint(n_features - j)
                order[j], order[other] = order[other], order[j]
                candidates[j] = order[j]
            found, where, _ = _best_split(binned, mine, classes[:size], candidates, min_child)
        if found < 0:
            chosen[node] = _representative(labels, mine, first, second)
            arrived += size
            progress[0] = max(progress[0], arrived / n)
        else:
            row = binned[found]
            left, right = 0, 0
            for i in range(size):
                s = mine[i]
                if row[s] <= where:
                    mine[left] = s
                    left += 1
                else:
                    spare[right] = s
                    right += 1
            for i in range(right):
                mine[left + i] = spare[i]
            feature[node], split[node], child[node] = found, where, n_nodes
            for side in range(2):
                start[n_nodes] = start[node] + (left if side else 0)
                stop[n_nodes] = stop[node] if side else start[node] + left
                depth[n_nodes] = depth[node] + 1
                n_nodes += 1
        node += 1
    n_samples = stop[:n_nodes] - start[:n_nodes]
    return feature[:n_nodes], split[:n_nodes], child[:n_nodes], chosen[:n_nodes], n_samples
