"""MFCN and SFCN with a few channels, on the processor."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")

from cpcapp.splicing.make.stream import SpliceBatch, StreamOptions  # noqa: E402
from cpcapp.splicing.networks import mfcn as module  # noqa: E402
from cpcapp.splicing.networks.loop import (  # noqa: E402
    Photos,
    TrainingPlan,
    learning_rate,
    share_done,
    train_network,
)
from cpcapp.splicing.networks.losses import seam_band  # noqa: E402
from cpcapp.splicing.networks.mfcn import (  # noqa: E402
    MFCN,
    MFCNOptions,
    measure_coarse,
)
from cpcapp.splicing.networks.mfcn_localizer import enlarge  # noqa: E402
from cpcapp.splicing.networks.mfcn_training import (  # noqa: E402
    MFCNRun,
    balanced_cross_entropy,
    class_weights,
    measure_tasks,
)

TINY = MFCNOptions(widths=(2, 3, 4, 5, 6), top=8, window=3)
PLAN = TrainingPlan(
    seconds=1e6,
    batch=4,
    learning_rate=3.0,  # of the first of 300 steps, in which it rises, a hundredth
    weight_decay=5e-4,
    workers=0,
    validate_every=1e6,
    n_validation=4,
    seed=5,
)


def drawn_batch(seed=0, size=64):
    """Noise with a brighter square, which is the pasted part."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.zeros(4, 1, size, size)
    for number in range(4):
        at = 8 * number
        mask[number, :, at : at + 32, 12 : 12 + 28] = 1.0
    image = 60.0 + 40.0 * torch.rand(4, 3, size, size, generator=generator) + 100.0 * mask
    return SpliceBatch(image.round(), mask, torch.zeros(4, 64))


def with_statistics(options, seed=0):
    """A network whose batch normalisation has seen something."""
    torch.manual_seed(seed)
    network = MFCN(options)
    with torch.no_grad():
        for decoder in (network.surface, network.edges):
            if decoder is not None:
                for skip in (decoder.from_pool3, decoder.from_pool4):
                    torch.nn.init.normal_(skip.weight)
        for _ in range(3):
            network(torch.randint(0, 256, (2, 3, 96, 96)).float())
    return network.eval()


def test_the_published_sizes():
    """The convolutions of VGG-16 have 14 710 464 weights, and conv6 and conv7 are these."""
    with torch.device("meta"):
        both, single = MFCN(), MFCN(MFCNOptions(edges=False))
    kernels = [
        layer.weight.numel() for layer in both.modules() if isinstance(layer, torch.nn.Conv2d)
    ]
    assert len(kernels) == 13 + 2 + 6
    assert sum(kernels[:13]) == 14_710_464
    assert kernels[13:15] == [7 * 7 * 512 * 4096, 4096 * 4096]
    sizes = [sum(weight.numel() for weight in net.parameters()) for net in (both, single)]
    # A decoder: three scores with a bias each, two enlargements of 4 x 4.
    assert sizes[0] - sizes[1] == (4096 + 512 + 256 + 3) + 2 * 16


@pytest.mark.parametrize("shape", [(32, 32), (33, 65), (1, 1), (50, 71)])
def test_maps_have_the_size_of_the_photo(shape):
    network = with_statistics(TINY)
    found = network(torch.rand(2, 3, *shape) * 255)
    assert found.surface.shape == found.edges.shape == (2, 1, *shape)
    alone = MFCN(MFCNOptions((2, 3, 4, 5, 6), 8, 3, edges=False)).eval()(torch.zeros(1, 3, *shape))
    assert alone.surface.shape == (1, 1, *shape)
    assert alone.edges is None


def test_each_skip_adds_what_its_pool_says():
    """With other scores at 0, the map is that of one pool, enlarged by 8, 16 or 32."""
    network = with_statistics(TINY)
    photo = torch.randint(0, 256, (1, 3, 64, 96)).float()
    decoder = network.surface
    scores = {"from_pool3": 8, "from_pool4": 16, "from_top": 32}
    inputs = {}
    for name in scores:
        getattr(decoder, name).register_forward_hook(
            lambda _, given, out, name=name: inputs.__setitem__(name, out)
        )
    with torch.no_grad():
        for kept, stride in scores.items():
            for name in scores:
                layer = getattr(decoder, name)
                torch.nn.init.constant_(layer.weight, 1.0 if name == kept else 0.0)
                torch.nn.init.zeros_(layer.bias)
            found = network(photo).surface
            assert inputs[kept].shape[2:] == (64 // stride, 96 // stride)
            # Whole enlargements of a bilinear kind keep the mean of what they enlarge, but for
            # the photo's border, where a learned one sees zeros.
            wanted = torch.nn.functional.interpolate(
                inputs[kept], scale_factor=stride, mode="bilinear"
            )
            inner = (slice(None), slice(None), slice(24, -24), slice(24, -24))
            assert torch.corrcoef(torch.stack([found[inner].ravel(), wanted[inner].ravel()]))[
                0, 1
            ] > (0.999 if kept == "from_pool3" else 0.9)


def test_both_tasks_share_the_layers_below_the_decoders():
    torch.manual_seed(0)
    network = MFCN(TINY)
    batch = drawn_batch()
    measure_tasks(network(batch.image), batch.mask)["edge"].backward()
    assert all(weight.grad is None for weight in network.surface.parameters())
    assert network.edges.from_top.weight.grad.abs().sum() > 0
    assert network.stages[0][0].weight.grad.abs().sum() > 0
    assert network.top[0].weight.grad.abs().sum() > 0


def test_class_weights_by_hand():
    truth = torch.zeros(1, 1, 4, 5)
    truth[0, 0, 0, :2] = 1.0  # 2 of 20
    other, sought = class_weights(truth)
    assert float(other) == pytest.approx(0.5 / 0.9)
    assert float(sought) == pytest.approx(5.0)
    logits = torch.randn(1, 1, 4, 5, generator=torch.Generator().manual_seed(1))
    p = 1.0 / (1.0 + np.exp(-logits.numpy().astype(float)))
    t = truth.numpy()
    # Each class counts one half, whatever its share.
    wanted = -0.5 * np.log(p[t == 1]).mean() - 0.5 * np.log(1.0 - p[t == 0]).mean()
    assert float(balanced_cross_entropy(logits, truth)) == pytest.approx(wanted, rel=1e-5)
    nothing = balanced_cross_entropy(logits, torch.zeros_like(truth))
    assert float(nothing) == pytest.approx(-0.5 * np.log(1.0 - p).mean(), rel=1e-3)


def test_losses_of_the_tasks():
    mask = drawn_batch().mask
    perfect = module.MFCNOutput(40.0 * (mask - 0.5), 40.0 * (seam_band(mask) - 0.5))
    assert all(float(loss) < 1e-6 for loss in measure_tasks(perfect, mask).values())
    swapped = module.MFCNOutput(perfect.edges, perfect.surface)
    assert all(float(loss) > 1.0 for loss in measure_tasks(swapped, mask).values())
    assert list(measure_tasks(perfect._replace(edges=None), mask)) == ["surface"]


def test_tiles_give_what_the_whole_photo_gives(monkeypatch):
    network = with_statistics(MFCNOptions((2, 2, 3, 3, 3), 4, window=7))
    photo = np.random.default_rng(0).integers(0, 256, (700, 810, 3), dtype=np.uint8)
    whole = measure_coarse(network, photo)
    monkeypatch.setattr(module, "_WHOLE_PIXELS", 0)
    monkeypatch.setattr(module, "_CORE", 256)
    shares = []
    tiled = measure_coarse(network, photo, shares.append)
    assert len(shares) == 12
    assert shares[-1] == 1.0
    np.testing.assert_allclose(tiled, whole, atol=1e-5)
    # With less around a tile, the field of view is cut.
    monkeypatch.setattr(module, "_MARGIN", 64)
    assert np.abs(measure_coarse(network, photo) - whole).max() > 1e-4


def test_enlarged_maps_are_those_of_the_network():
    network = with_statistics(TINY)
    photo = np.random.default_rng(1).integers(0, 256, (50, 71, 3), dtype=np.uint8)
    maps = enlarge(measure_coarse(network, photo), 50, 71)
    with torch.no_grad():
        found = network(torch.from_numpy(photo.transpose(2, 0, 1).copy())[None].float())
    np.testing.assert_allclose(maps.surface, torch.sigmoid(found.surface[0, 0]), atol=1e-6)
    np.testing.assert_allclose(maps.edges, torch.sigmoid(found.edges[0, 0]), atol=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        {"widths": (2, 3, 4, 5)},
        {"widths": (2, 3, 4, 5, 0)},
        {"top": 10**9},
        {"top": 2.5},
        {"window": 4},
        {"window": 301},
        {"edges": 1},
    ],
)
def test_sizes_that_make_no_sense(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        MFCNOptions(**wrong)


# -- training ------------------------------------------------------------------------------


def test_it_learns_one_batch():
    run, batch = MFCNRun.begin(TINY, PLAN, "cpu"), drawn_batch()
    first = {name: float(loss.detach()) for name, loss in run.learn(batch, PLAN).items()}
    assert list(first) == ["mfcn_surface", "mfcn_edge", "sfcn_surface"]
    for _ in range(40):
        last = run.learn(batch, PLAN)
    for name, loss in last.items():
        assert float(loss.detach()) < 0.7 * first[name], name
    assert run.score([batch])["mfcn_surface_f1"] > 0.6
    assert run.step == 41


def test_the_optimizer_is_the_published_one():
    run = MFCNRun.begin(TINY, PLAN, "cpu")
    for trained in run.networks.values():
        (group,) = trained.optimizer.param_groups
        assert isinstance(trained.optimizer, torch.optim.SGD)
        assert (group["momentum"], group["weight_decay"]) == (0.9, 5e-4)
        assert len(group["params"]) == len(list(trained.network.parameters()))


def test_a_training_that_goes_on_equals_one_that_never_stopped(tmp_path):
    batches = [drawn_batch(seed) for seed in range(6)]
    whole = MFCNRun.begin(TINY, PLAN, "cpu")
    for batch in batches:
        whole.learn(batch, PLAN)
    parts = MFCNRun.begin(TINY, PLAN, "cpu")
    for batch in batches[:3]:
        parts.learn(batch, PLAN)
    parts.seconds, parts.piece, parts.curve = 3.5, 1, [{"seconds": 3.5}]
    parts.save(tmp_path / "run")
    later = MFCNRun.resume(tmp_path / "run", PLAN, "cpu")
    assert (later.step, later.seconds, later.piece) == (3, 3.5, 1)
    assert later.curve == parts.curve
    later.seconds = 0.0  # as that of the other
    for batch in batches[3:]:
        later.learn(batch, PLAN)
    for name in ("mfcn", "sfcn"):
        for kind in ("network", "average"):
            found = getattr(later.networks[name], kind).state_dict()
            for key, value in getattr(whole.networks[name], kind).state_dict().items():
                assert torch.equal(found[key], value), (name, kind, key)


def test_the_loop_trains_both_on_the_same_splices():
    noise = np.random.default_rng(0).integers(0, 256, (24, 3, 90, 100), dtype=np.uint8)
    photos = Photos([torch.from_numpy(one) for one in noise], [None] * len(noise))
    run = MFCNRun.begin(TINY, PLAN, "cpu")
    entries = []
    train_network(
        run,
        photos,
        PLAN,
        piece_seconds=0.01,
        stream=StreamOptions(size=64, group=4),
        report=entries.append,
    )
    assert run.piece == 1
    assert run.step >= 1
    names = {"mfcn_surface_f1", "mfcn_edge_f1", "sfcn_surface_f1"}
    assert names <= set(entries[-1])
    # Same seed, same layers, same first batch: the surface is the same until the edge has a say.
    assert entries[0]["loss_mfcn_surface"] == pytest.approx(
        entries[0]["loss_sfcn_surface"], abs=0.05
    )
    assert json.loads(json.dumps(run.curve)) == run.curve


@pytest.mark.parametrize("name", ["mfcn", "sfcn"])
def test_one_network_can_be_trained_alone_for_some_steps(tmp_path, name):
    noise = np.random.default_rng(0).integers(0, 256, (24, 3, 90, 100), dtype=np.uint8)
    photos = Photos([torch.from_numpy(one) for one in noise], [None] * len(noise))
    plan = replace(PLAN, seconds=1e6, steps=3)
    stream = StreamOptions(size=64, group=4)
    run = MFCNRun.begin(TINY, plan, "cpu", names=(name,))
    train_network(run, photos, plan, piece_seconds=1e6, stream=stream)
    assert run.step == 3
    assert list(run.networks) == [name]
    # All of the plan is done, whatever part of its time is left.
    assert share_done(run, plan) == 1.0
    assert learning_rate(run, plan) == pytest.approx(0.0, abs=1e-12)
    assert learning_rate(run, replace(plan, steps=6)) > 0.0
    run.save(tmp_path / "run")
    assert list(MFCNRun.resume(tmp_path / "run", plan, "cpu").networks) == [name]


def test_a_plan_ends_with_its_time_if_that_comes_before_its_steps():
    plan = TrainingPlan(seconds=10.0, steps=100)
    run = MFCNRun.begin(TINY, plan, "cpu")
    run.step, run.seconds = 50, 2.0
    assert share_done(run, plan) == pytest.approx(0.5)
    run.seconds = 9.0
    assert share_done(run, plan) == pytest.approx(0.9)
    assert share_done(run, replace(plan, steps=None)) == pytest.approx(0.9)
    run.seconds = 12.0
    assert share_done(run, plan) == 1.0


def test_training_and_maps_need_little():
    """Neither OpenCV nor SciPy: a machine with a GPU may have nothing but torch and Pillow."""
    code = (
        "import sys\n"
        "for name in ('cv2', 'scipy', 'sklearn', 'matplotlib', 'onnxruntime', 'jinja2'):\n"
        "    sys.modules[name] = None\n"
        "import cpcapp.splicing.networks.mfcn_training, cpcapp.splicing.networks.loop\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
