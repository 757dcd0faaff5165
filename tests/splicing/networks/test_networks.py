from __future__ import annotations

import errno
import itertools
import json
import os
import queue
from dataclasses import replace

import pytest

from cpcapp.splicing.examples import example_photos

torch = pytest.importorskip("torch", reason="needs the extra torch")

from cpcapp.splicing.make.stream import SpliceBatch, StreamOptions  # noqa: E402
from cpcapp.splicing.networks.loop import (  # noqa: E402
    Photos,
    TrainingPlan,
    _copied,
    _worker_kind,
    train_network,
)
from cpcapp.splicing.networks.losses import measure_losses, seam_band  # noqa: E402
from cpcapp.splicing.networks.trace_network import (  # noqa: E402
    NetworkOptions,
    NetworkOutput,
    TraceNetwork,
)
from cpcapp.splicing.networks.training import TrainingRun, validate  # noqa: E402

TINY = NetworkOptions(8, 1, 4, 16, 8, (1,), (2,), 3, 2, 8, 4)
STREAM = StreamOptions(size=64, group=4)
PLAN = TrainingPlan(seconds=1e6, batch=8, workers=0, validate_every=1e6, n_validation=4, seed=3)


def half_mask(size=64):
    mask = torch.zeros(2, 1, size, size)
    mask[:, :, :, size // 2 :] = 1.0
    return mask


def output_of(mask, *, sign=1.0):
    """What a perfect network measures."""
    share = torch.nn.functional.avg_pool2d(mask, 8)
    return NetworkOutput(
        20.0 * (seam_band(mask) - 0.5),
        sign * 20.0 * (share - 0.5),
        sign * 20.0 * (share - 0.5),
        torch.cat([4.0 * share, torch.zeros_like(share)], dim=1),
    )


def test_a_perfect_measure_costs_nothing():
    mask = half_mask()
    torch.manual_seed(0)
    perfect = measure_losses(output_of(mask), mask)
    assert perfect.seam < 1e-3
    assert perfect.region < 1e-3
    assert perfect.pasted < 1e-3
    assert perfect.traces < 0.35  # -log σ(1) for blocks of one side
    assert perfect.photo < 0.7  # log 2: the seam runs between blocks and fills half of each
    blind = NetworkOutput(*(torch.zeros_like(part) for part in output_of(mask)))
    wrong = measure_losses(blind, mask)
    assert all(bad > good + 0.2 for bad, good in zip(wrong, perfect, strict=True))


def test_the_other_sign_of_a_region_costs_little_but_an_alarm_much():
    mask = half_mask()
    other = measure_losses(output_of(mask, sign=-1.0), mask)
    assert other.region == pytest.approx(0.05, abs=0.01)
    assert other.pasted > 1.0
    nothing = torch.zeros_like(mask)
    alarm = measure_losses(output_of(mask, sign=1.0), nothing)
    assert alarm.region > 1.0
    assert alarm.photo > 5.0


def test_one_false_seam_is_an_alarm_however_small():
    """Of 64 blocks one: what a verdict rests on, though the mean over pixels hardly notices."""
    nothing = torch.zeros(2, 1, 64, 64)
    quiet = NetworkOutput(*(part - 8.0 for part in output_of(nothing)))
    seam = quiet.seam.clone()
    seam[:, :, 8:16, 8:16] = 6.0
    costs = [measure_losses(quiet._replace(seam=s), nothing) for s in (quiet.seam, seam)]
    assert costs[1].seam - costs[0].seam < 0.2
    assert costs[1].photo - costs[0].photo > 5.0


def test_some_processes_make_larger_splices_of_as_many_pixels():
    plan = TrainingPlan(batch=64, workers=6, large_size=512)
    kinds = [_worker_kind(StreamOptions(group=16), plan, number) for number in range(6)]
    assert [options.size for options, _ in kinds] == [256, 256, 512] * 2
    assert all(batch * options.size**2 == 64 * 256**2 for options, batch in kinds)
    assert all(batch % options.group == 0 for options, batch in kinds)
    tiny = _worker_kind(StreamOptions(group=16), TrainingPlan(batch=16, large_size=1024), 2)
    assert (tiny[0].group, tiny[1]) == (1, 1)
    none = TrainingPlan(batch=64, large_size=None)
    assert _worker_kind(StreamOptions(), none, 2) == (StreamOptions(), 64)


def test_batches_of_several_processes_come_in_turn():
    queues = [queue.SimpleQueue() for _ in range(2)]
    for number in range(6):
        parts = torch.full((2, 3, 8, 8), number), torch.ones(2, 1, 8, 8), torch.zeros(2, 64)
        queues[number % 2].put((parts[0].byte(), parts[1].byte(), parts[2]))
    batches = _copied(itertools.cycle(queues), "cpu")
    taken = [next(batches) for _ in range(6)]
    assert [int(batch.image.mean()) for batch in taken] == list(range(6))
    assert all(part.dtype == torch.float32 for batch in taken for part in batch)


def test_weights_stay_with_their_photos():
    images = [torch.full((3, 8, 8), number) for number in range(10)]
    photos = Photos(images, [None] * 10, weights=tuple(float(n) for n in range(10)))
    for part in photos.to("cpu").split(4):
        assert part.weights == tuple(float(image.max()) for image in part.images)
    assert Photos(images, [None] * 10).split(4)[0].weights == ()


def test_the_band_is_that_of_the_protocol():
    from cpcapp.splicing.score.protocols import boundary_band

    mask = half_mask()[:1]
    found = seam_band(mask)[0, 0].bool().numpy()
    assert (found == boundary_band(mask[0, 0].bool().numpy(), 4)).all()


def test_a_known_table_changes_what_is_measured_and_photos_do_not_mix():
    torch.manual_seed(0)
    network = TraceNetwork(TINY).eval()
    photos = torch.randint(0, 256, (2, 3, 48, 56)).float()
    unknown, known = torch.zeros(2, 64), torch.full((2, 64), 7.0)
    with torch.no_grad():
        both, alone = network(photos, unknown), network(photos[1:], unknown[1:])
        told = network(photos, known)
    torch.testing.assert_close(both.seam[1:], alone.seam, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(told.region, both.region)
    assert both.region.shape == (2, 1, 6, 7)


@pytest.fixture(scope="module")
def photos():
    images = [torch.from_numpy(p.image.copy()).permute(2, 0, 1) for p in example_photos()]
    crops = [image[:, i : i + 150, i : i + 200] for image in images for i in range(0, 120, 20)]
    return Photos(crops, [None] * len(crops))


def step(run, photos, n):
    """Train for some steps."""
    plan = replace(PLAN, steps=run.step + n)
    return train_network(run, photos, plan, piece_seconds=1e6, stream=STREAM)


def test_it_learns_and_goes_on_after_a_stop(photos, tmp_path):
    run = TrainingRun.begin(TINY, PLAN, "cpu")
    mask = half_mask()
    fixed = SpliceBatch(255.0 * mask.repeat(1, 3, 1, 1), mask, torch.zeros(2, 64))
    assert 0.0 <= validate(run.average, [fixed])["seam_f1"] <= 1.0
    start = {name: value.clone() for name, value in run.network.state_dict().items()}
    step(run, photos, 4)
    assert run.step == 4
    changed = run.network.state_dict()
    assert any(not torch.equal(start[name], changed[name]) for name in start)
    run.save(tmp_path / "run")
    later = TrainingRun.resume(tmp_path / "run", PLAN, "cpu")
    assert (later.step, later.piece) == (4, 1)
    for name, value in run.average.state_dict().items():
        assert torch.equal(later.average.state_dict()[name], value)
    states = later.optimizer.state_dict()["state"], run.optimizer.state_dict()["state"]
    torch.testing.assert_close(
        states[0][0]["exp_avg"], states[1][0]["exp_avg"], rtol=0.01, atol=1e-6
    )
    assert step(later, photos, 2).step == 6


def test_options_survive_json():
    content = json.loads(json.dumps(TINY.to_dict()))
    assert NetworkOptions.from_dict(content) == TINY


def test_held_out_photos_are_not_trained_on(photos):
    train, held = photos.split()
    assert len(held.images) == 3
    assert len(train.images) + len(held.images) == len(photos.images)
    assert not any(one is other for one in train.images for other in held.images)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_the_last_state_stays_if_the_next_can_not_be_written(tmp_path, monkeypatch, call):
    """A full disk between two of the files must not leave weights of one step with another's."""
    folder = tmp_path / "run"
    run = TrainingRun.begin(TINY, PLAN, "cpu")
    run.save(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with torch.no_grad():
        for weight in run.network.parameters():
            weight.add_(1.0)
    run.step = 7
    whole = getattr(os, call)
    failed = 0
    while True:
        left = failed

        def fail(*arguments, **options):
            nonlocal left
            left -= 1
            if left == -1:
                raise OSError(errno.ENOSPC, "No space left on device")
            return whole(*arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, fail)
            try:
                run.save(folder)
                break
            except OSError:
                failed += 1
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert failed > 5
    later = TrainingRun.resume(folder, PLAN, "cpu")
    assert later.step == 7
    for name, weight in run.network.state_dict().items():
        assert torch.equal(weight, later.network.state_dict()[name])
