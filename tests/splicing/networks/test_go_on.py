from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")
pytest.importorskip("onnx", reason="needs the extra torch")

from cpcapp.splicing.make.stream import SpliceBatch  # noqa: E402
from cpcapp.splicing.networks.export import export_network  # noqa: E402
from cpcapp.splicing.networks.go_on import trainable_network  # noqa: E402
from cpcapp.splicing.networks.loop import TrainingPlan  # noqa: E402
from cpcapp.splicing.networks.losses import measure_losses  # noqa: E402
from cpcapp.splicing.networks.trace_network import NetworkOptions, TraceNetwork  # noqa: E402
from cpcapp.splicing.networks.training import TrainingRun  # noqa: E402

TINY = NetworkOptions(8, 1, 4, 16, 8, (1,), (2,), 3, 2, 8, 4)


def draw_batch(seed):
    torch.manual_seed(seed)
    coarse = torch.randint(40, 216, (4, 3, 12, 12)).float()
    image = torch.nn.functional.interpolate(coarse, size=(96, 96), mode="bicubic")
    image = (image + 6.0 * torch.randn(image.shape)).round().clamp(0.0, 255.0)
    mask = torch.zeros(4, 1, 96, 96)
    mask[:3, :, 24:64, 32:72] = 1.0
    return SpliceBatch(image, mask, torch.zeros(4, 64))


@pytest.fixture(scope="module")
def trained():
    """A network that has left its first weights, and statistics of its own."""
    run = TrainingRun.begin(TINY, TrainingPlan(seconds=1e6, seed=1), "cpu")
    for seed in range(12):
        run.learn(draw_batch(seed), TrainingPlan(seconds=1e6))
    return run.network.eval()


def test_it_measures_what_the_graphs_do(trained):
    meter = export_network(trained)
    network = trainable_network(meter, [draw_batch(seed) for seed in range(20, 23)])
    batch = draw_batch(30)
    with torch.no_grad():
        mine = network(batch.image, batch.table)
    levels = batch.image[0].byte().permute(1, 2, 0).numpy()
    theirs = meter.measure(np.ascontiguousarray(levels))
    assert mine.region[0, 0].numpy() == pytest.approx(theirs.region, abs=2e-3)
    assert mine.pasted[0, 0].numpy() == pytest.approx(theirs.pasted, abs=2e-3)
    assert mine.seam[0, 0].numpy() == pytest.approx(theirs.seam, abs=2e-3)


def test_its_normalizations_are_those_of_its_splices(trained):
    """So the first step of training sees the network that is used, not another one."""
    batch = draw_batch(20)
    network = trainable_network(export_network(trained), [batch])
    with torch.no_grad():
        used = measure_losses(network(batch.image, batch.table), batch.mask)
        learning = measure_losses(network.train()(batch.image, batch.table), batch.mask)
    assert float(learning.seam) == pytest.approx(float(used.seam), rel=0.02)
    assert float(learning.region) == pytest.approx(float(used.region), rel=0.02)
    assert float(learning.pasted) == pytest.approx(float(used.pasted), rel=0.02)


def test_a_training_goes_on_from_its_weights(trained):
    network = trainable_network(export_network(trained), [draw_batch(20)])
    plan = TrainingPlan(seconds=1e6)
    run = TrainingRun.begin(TINY, plan, "cpu", network.state_dict())
    batch = draw_batch(40)
    with torch.no_grad():
        for part, of_start in zip(
            run.average(batch.image, batch.table),
            network.eval()(batch.image, batch.table),
            strict=True,
        ):
            assert torch.equal(part, of_start)
    other = TrainingRun.begin(TINY, plan, "cpu")
    assert not torch.equal(other.network.pixels.mix[0].weight, run.network.pixels.mix[0].weight)
    assert isinstance(run.network, TraceNetwork)
