"""MFCN as a model for ``cpcapp localize``: maps, files, and files that lie."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import binary_fill_holes

torch = pytest.importorskip("torch", reason="needs the extra torch")

from cpcapp._io.tensor_file import read_format  # noqa: E402
from cpcapp.cli import main  # noqa: E402
from cpcapp.splicing import ModelError, load_model  # noqa: E402
from cpcapp.splicing.networks.mfcn import MFCN, MFCNOptions  # noqa: E402
from cpcapp.splicing.networks.mfcn_localizer import (  # noqa: E402
    MFCNLocalizer,
    fill_holes,
    refine_surface,
)
from cpcapp.splicing.output.batch import open_model  # noqa: E402

SIZES = {"widths": (2, 3, 4, 5, 6), "top": 8, "window": 3}


def tiny(*, edges=True):
    torch.manual_seed(3)
    network = MFCN(MFCNOptions(**SIZES, edges=edges))
    with torch.no_grad():
        for decoder in (network.surface, network.edges):
            if decoder is not None:
                torch.nn.init.normal_(decoder.from_pool3.weight)
        network(torch.randint(0, 256, (2, 3, 64, 64)).float())
    return MFCNLocalizer(network, {"steps": 7})


@pytest.fixture
def photo():
    return np.random.default_rng(0).integers(0, 256, (75, 90, 3), dtype=np.uint8)


# -- edge-enhanced inference ---------------------------------------------------------------


def test_a_surface_is_kept_where_edges_enclose_it():
    """A ring around one half of a surface, an open arc around the other."""
    surface = np.zeros((60, 120), np.float32)
    surface[10:50, 10:110] = 0.9
    edges = np.zeros_like(surface)
    edges[15:45, 15:45] = 0.8  # a ring
    edges[20:40, 20:40] = 0.2
    edges[15:45, 70:100] = 0.8  # with a gap at its right
    edges[20:40, 75:100] = 0.2
    found = refine_surface(surface, edges)
    wanted = np.zeros(surface.shape, bool)
    wanted[15:45, 15:45] = True
    wanted[15:45, 70:100] = True
    wanted[20:40, 75:100] = False
    assert ((found > 0.5) == wanted).all()
    assert found[30, 30] == np.float32(0.9)
    assert found[30, 85] == 0.0
    # What the edges enclose and the surface denies is not in both.
    assert refine_surface(np.float32(0.3) * (surface > 0), edges).max() < 0.5


def test_holes_as_scipy_fills_them():
    rng = np.random.default_rng(1)
    for share in (0.3, 0.5, 0.6, 0.7):
        marked = rng.random((40, 50)) < share
        assert (fill_holes(marked) == binary_fill_holes(marked)).all()
    assert fill_holes(np.ones((3, 4), bool)).all()
    assert not fill_holes(np.zeros((3, 4), bool)).any()


# -- the contract of localize --------------------------------------------------------------


def test_what_is_found(photo):
    found = tiny().localize(photo)
    for values in (found.boundary, found.region, found.edges):
        assert values.shape == photo.shape[:2]
        assert values.dtype == np.float32
        assert 0.0 <= values.min() <= values.max() <= 1.0
    assert found.p_value is found.score is found.rank is None
    assert found.verdict_code == "unknown"
    assert "not learned to judge" in found.verdict
    assert not found.calibrated
    deep = tiny().localize(photo.astype(np.uint16) * 257)
    np.testing.assert_allclose(deep.boundary, found.boundary)


def test_sfcn_marks_where_its_surface_is_near_one_half(photo):
    localizer = tiny(edges=False)
    found = localizer.localize(photo)
    assert localizer.name == "sfcn"
    np.testing.assert_allclose(found.boundary, 4 * found.region * (1 - found.region), atol=1e-6)


# -- files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("edges", [True, False])
def test_a_saved_model_says_the_same(tmp_path, photo, edges):
    localizer, path = tiny(edges=edges), tmp_path / "model.safetensors"
    localizer.save(path)
    assert read_format(path) == "cpcapp-mfcn"
    again, identity = open_model(path)
    assert (again.name, again.facts["steps"]) == ("mfcn" if edges else "sfcn", 7)
    assert again.file_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    # Weights are rounded to 16 bits.
    one, other = localizer.localize(photo), again.localize(photo)
    np.testing.assert_allclose(one.boundary, other.boundary, atol=0.01)
    second = tmp_path / "second.safetensors"
    again.save(second)
    assert second.read_bytes() == path.read_bytes()
    assert open_model(again)[1] == identity
    assert identity["sha256"] == again.file_sha256
    with pytest.raises(ModelError, match="another kind of file of this package"):
        load_model(path)


def rewritten(path, change_header=None, change_tensors=None):
    from safetensors.numpy import load, save

    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["cpcapp"])
    tensors = load(data)
    if change_header:
        change_header(header)
    if change_tensors:
        change_tensors(tensors)
    path.write_bytes(save(tensors, metadata={"cpcapp": json.dumps(header)}))


def set_options(**values):
    return lambda header: header["options"].update(values)


def set_tensor(name, change):
    return lambda tensors: tensors.__setitem__(name, change(tensors[name]))


FIRST = "stages.0.0.weight"
VARIANCE = "stages.0.1.running_var"


@pytest.mark.parametrize(
    ("header", "tensors", "reason"),
    [
        (set_options(top=8192, widths=[8192] * 5), None, "shape"),
        (set_options(top=10**12), None, "8192"),
        (set_options(window="7"), None, "window"),
        (set_options(edges=False), None, "tensors"),
        (lambda h: h.pop("options"), None, "options"),
        (lambda h: h.update(options=[1]), None, "JSON object"),
        (lambda h: h.update(training="x"), None, "JSON object"),
        (lambda h: h.update(format_version=9), None, "newer"),
        (None, set_tensor(FIRST, lambda w: w[:1]), "shape"),
        (None, set_tensor(FIRST, lambda w: w * np.float16(np.nan)), "finite"),
        (None, set_tensor(FIRST, lambda w: w.astype(np.int32)), "float16"),
        (None, set_tensor(VARIANCE, lambda w: -1 - w), "negative"),
        (None, lambda t: t.pop(FIRST), FIRST),
        (None, lambda t: t.update(more=np.zeros(3)), "tensors"),
        (None, set_tensor("surface.from_top.bias", lambda w: w + np.float32(np.inf)), "finite"),
    ],
)
def test_files_that_lie_are_refused_in_one_line(tmp_path, header, tensors, reason):
    path = tmp_path / "model.safetensors"
    tiny().save(path)
    rewritten(path, header, tensors)
    with pytest.raises(ModelError, match=reason) as caught:
        open_model(path)
    assert "\n" not in str(caught.value)


def test_a_cut_file_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    tiny().save(path)
    data = path.read_bytes()
    for length in (0, 5, 100, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(ModelError):
            open_model(path)


# -- the commands --------------------------------------------------------------------------


def test_localize_with_a_saved_model(tmp_path, photo, capsys):
    Image.fromarray(photo).save(tmp_path / "photo.png")
    model = tmp_path / "mfcn.safetensors"
    tiny().save(model)
    arguments = ["localize", str(tmp_path / "photo.png"), "--model", str(model)]
    assert main([*arguments, "-o", str(tmp_path / "out"), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["p_value"] is None
    assert "not learned to judge" in found["verdict"]
    assert found["model"]["name"] == "mfcn"
    with Image.open(tmp_path / "out" / "photo.boundary.png") as boundary:
        assert boundary.size == (90, 75)


def test_without_torch_one_line_says_what_to_install(tmp_path, photo):
    Image.fromarray(photo).save(tmp_path / "photo.png")
    tiny().save(tmp_path / "mfcn.safetensors")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from cpcapp.cli import main\n"
        "sys.exit(main(['localize', 'photo.png', '--model', 'mfcn.safetensors', '-o', 'out']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "needs torch" in line
    assert "pip install 'cpcapp[torch]'" in line


def test_both_are_trained_by_the_command_and_can_be_used(tmp_path, photo, capsys, monkeypatch):
    from cpcapp.splicing.make.stream import StreamOptions
    from cpcapp.splicing.networks import run
    from cpcapp.splicing.networks.loop import TrainingPlan

    monkeypatch.setattr(run, "MFCNOptions", lambda: MFCNOptions(**SIZES))
    monkeypatch.setattr(run, "StreamOptions", lambda group: StreamOptions(size=64, group=8))
    few = {"batch": 8, "n_validation": 8, "validate_every": 1e6}
    monkeypatch.setattr(run, "TrainingPlan", lambda **given: TrainingPlan(**given | few))
    photos = tmp_path / "photos"
    photos.mkdir()
    for seed in range(24):
        noise = np.random.default_rng(seed).integers(0, 256, (120, 160, 3), dtype=np.uint8)
        Image.fromarray(noise).save(photos / f"{seed}.png")
    folder = tmp_path / "run"
    arguments = ["train-network", str(photos), "-o", str(folder), "--workers", "0"]
    timed = ["--seconds", "30", "--piece", "1"]
    assert main([*arguments, *timed, "--architecture", "mfcn"]) == 0
    out = capsys.readouterr().out
    assert "mfcn edge F1" in out
    assert "sfcn surface F1" in out
    state = json.loads((folder / "run.json").read_text())
    assert state["architecture"] == "mfcn"
    assert (folder / "curve.png").stat().st_size > 1000
    for name in ("mfcn", "sfcn"):
        localizer, _ = open_model(folder / f"{name}.safetensors")
        assert localizer.facts["steps"] == state["step"]
        assert localizer.localize(photo).region.shape == photo.shape[:2]
    assert main([*arguments, *timed]) == 2
    assert "architecture='trace' must be 'mfcn'" in capsys.readouterr().err
    assert Path(folder / "mfcn-average.safetensors").is_file()
