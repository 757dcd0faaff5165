"""Build the pool of photos that the trace network learns from, out of public repositories.

    python benchmarks/training_photos.py SNAPSHOTS CAMERA_PHOTOS -o POOL [--mebibytes N]

SNAPSHOTS is a folder with a git repository ``OWNER+NAME`` for each name in `COLLECTIONS`, and for
each repository of CAMERA_PHOTOS, the list of photos straight from cameras. Photos are cut to at
most 512 x 512 pixels on the grid of their JPEG blocks, without compressing them again, so that
tables and traces stay those of the camera. Photos that never had losses are stored without.
Where a repository shows people, crops are cut below the faces.

POOL gets folders ``pack-1``, ``pack-2`` and so on, each with a balanced part of the photos and a
list ``photos.json``, and a folder ``unseen`` with the collections that no training sees. What was
taken, by name, hash and crop, is written to benchmarks/results/training_photos.csv. Needs git and
jpegtran.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import random
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from scipy.io import loadmat

LIST = Path(__file__).parent / "results" / "training_photos.csv"
SIDE = 512
# Chrominance of half the size has blocks of 16 pixels.
GRID = 16
LOSSLESS_SIDE = 384
SMALLEST = 208
HELD_OUT_EVERY = 8
# Crops with less contrast than this, in levels, show sky or walls only.
MIN_CONTRAST = 8.0

Labels = NDArray[np.uint8]
Box = tuple[int, int, int, int]  # left, top, right, bottom


class Snapshots:
    """Git repositories in a folder.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cache  # noqa: B019
    def git_folder(self, repository: str) -> Path:
        """Return where the objects of a repository are."""
        base = self.folder / repository.replace("/", "+")
        for place in (base / "repo" / ".git", base / "repo", base / ".git", base):
            if (place / "objects").is_dir():
                return place
        raise FileNotFoundError(f"{base} is no git repository")

    def git(self, repository: str, *arguments: str) -> bytes:
        """Return what a git command prints."""
        command = ["git", "-C", str(self.git_folder(repository)), *arguments]
        return subprocess.run(command, check=True, capture_output=True).stdout

    def blob(self, repository: str, blob: str) -> bytes:
        """Return a file by its hash."""
        return self.git(repository, "cat-file", "blob", blob)

    @cache  # noqa: B019
    def files(self, repository: str) -> dict[str, str]:
        """Return the hash of each file of a repository by its path."""
        found = {}
        for line in self.git(repository, "ls-tree", "-r", "-z", "HEAD").decode().split("\0"):
            if line:
                about, path = line.split("\t", 1)
                found[path] = about.split()[2]
        return found

    def read(self, repository: str, path: str) -> bytes:
        """Return a file by its path."""
        return self.blob(repository, self.files(repository)[path])


@dataclass(frozen=True)
class Candidate:
    """A photo that can be taken.

    Attributes
    ----------
    path, blob : str
    unit : str
        Photos of one unit, such as frames of a scene, are held out together.
    places : int
        Crops to cut, if the photo has room for them.
    objects : str
        The path of what is known of objects in it, or "".
    find : callable or None
        Returns the objects in the photo as numbers from 1, 0 for none, and the box that crops may
        lie in, for the photo's width and height.
    """

    path: str
    blob: str
    unit: str
    places: int = 1
    objects: str = ""
    find: Callable[[int, int], tuple[Labels | None, Box]] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Collection:
    """Photos of one repository.

    Attributes
    ----------
    repository : str
    candidates : callable
        Yields the photos of a repository.
    wanted : int or None
        Photos to try, evenly over the list; None for all. Some have no room for a crop.
    unseen : bool
        Whether no training sees the collection.
    """

    repository: str
    candidates: Callable[[Snapshots, str], Iterator[Candidate]]
    wanted: int | None = None
    unseen: bool = False


# -- what the collections hold ---------------------------------------------------------------


def _files(suffixes: Sequence[str], *folders: str) -> Callable[..., Iterator[Candidate]]:
    """Yield all photos in some folders of a repository."""

    def list_files(snapshots: Snapshots, repository: str) -> Iterator[Candidate]:
        for path, blob in sorted(snapshots.files(repository).items()):
            folder, _, name = path.rpartition("/")
            if folder in folders and Path(name).suffix in suffixes:
                yield Candidate(path, blob, path)

    return list_files


def _numbered(snapshots: Snapshots, repository: str) -> Iterator[Candidate]:
    """Yield the photos of CID22 whose names are numbers, and those of CLIC 2025."""
    for path, blob in sorted(snapshots.files(repository).items()):
        file = Path(path)
        cid22 = path.startswith("CID22/CID22-512/") and file.stem.isdigit()
        clic = path.startswith("clic2025/")
        if file.suffix == ".png" and (cid22 or clic):
            yield Candidate(path, blob, path)


def _portraits(snapshots: Snapshots, repository: str) -> Iterator[Candidate]:
    """Yield portraits. Masks and points of the face are those of a box, enlarged to 600 x 800."""
    files = snapshots.files(repository)
    for line in snapshots.read(repository, "data/crop.txt").decode().splitlines():
        name, *numbers = line.split()
        stem = Path(name).stem
        path, mask = f"data/images_data/{name}", f"data/images_mask/{stem}_mask.mat"
        face = f"data/images_tracker/{stem}.mat"
        if not all(needed in files for needed in (path, mask, face)):
            continue

        def find(
            width: int, height: int, mask: str = mask, face: str = face, box: Any = numbers
        ) -> tuple[Labels | None, Box]:
            top, bottom, left, right = map(int, box)
            body = loadmat(io.BytesIO(snapshots.read(repository, mask)))["mask"]
            points = loadmat(io.BytesIO(snapshots.read(repository, face)))["tracker"][:, 1]
            size = right - left + 1, bottom - top + 1
            whole = np.zeros((bottom + 1, right + 1), np.uint8)
            whole[top:, left:] = cv2.resize(body, size, interpolation=cv2.INTER_NEAREST)
            labels = np.zeros((height, width), np.uint8)
            part = whole[:height, :width] > 0
            labels[: part.shape[0], : part.shape[1]] = part
            # The lowest points are of the lower lip.
            chin = points.max() + 0.25 * (points.max() - points.min())
            below = top + round(chin / len(body) * size[1])
            return labels, (left, below, min(right, width), min(bottom, height))

        yield Candidate(path, files[path], path, 1, mask, find)


def _pets(snapshots: Snapshots, repository: str) -> Iterator[Candidate]:
    """Yield photos of animals. Their trimaps are 1 in the animal and 3 in a border around it."""
    files = snapshots.files(repository)
    for path, blob in sorted(files.items()):
        mask = f"annotations/trimaps/{Path(path).stem}.png"
        if not path.startswith("images/") or not path.endswith(".jpg") or mask not in files:
            continue

        def find(width: int, height: int, mask: str = mask) -> tuple[Labels | None, Box]:
            with Image.open(io.BytesIO(snapshots.read(repository, mask))) as image:
                trimap = np.array(image)
            inner, outer = (
                cv2.distanceTransform((trimap != side).astype(np.uint8), cv2.DIST_L2, 3)
                for side in (1, 2)
            )
            return (inner < outer).astype(np.uint8), (0, 0, width, height)

        yield Candidate(path, blob, path, 1, mask, find)


def _more_pets(snapshots: Snapshots, repository: str) -> Iterator[Candidate]:
    """Yield what `_pets` has beyond the photos that the first trainings knew.

    As a collection of its own, so that what was held out of those stays so.
    """
    every = list(_pets(snapshots, repository))
    known = {i * len(every) // PETS for i in range(PETS)}
    yield from (candidate for i, candidate in enumerate(every) if i not in known)


def _people(snapshots: Snapshots, repository: str) -> Iterator[Candidate]:
    """Yield people from the web, with masks in black and white."""
    files = snapshots.files(repository)
    for path, blob in sorted(files.items()):
        mask = f"Ground_Truth/{Path(path).stem}.png"
        if not path.startswith("Training_Images/") or mask not in files:
            continue

        def find(width: int, height: int, mask: str = mask) -> tuple[Labels | None, Box]:
            with Image.open(io.BytesIO(snapshots.read(repository, mask))) as image:
                # Some masks are smaller than their photos.
                resized = image.convert("L").resize((width, height))
            labels = (np.array(resized) > 127).astype(np.uint8)
            return labels, _below_heads(labels, width, height, 0.4)

        yield Candidate(path, blob, path, 1, mask, find)


def _clothes(snapshots: Snapshots, repository: str) -> Iterator[Candidate]:
    """Yield people in full length, whose clothes are numbered."""
    files = snapshots.files(repository)
    for path, blob in sorted(files.items()):
        mask = f"annotations/pixel-level/{Path(path).stem}.mat"
        if not path.startswith("photos/") or mask not in files:
            continue

        def find(width: int, height: int, mask: str = mask) -> tuple[Labels | None, Box]:
            clothes = loadmat(io.BytesIO(snapshots.read(repository, mask)))["groundtruth"]
            labels = (clothes > 0).astype(np.uint8)
            return labels, _below_heads(labels, width, height, 0.25)

        yield Candidate(path, blob, path, 1, mask, find)


def _below_heads(labels: Labels, width: int, height: int, share: float) -> Box:
    """Return the box below a share of the height of a person."""
    rows = np.flatnonzero(labels.any(axis=1))
    if not len(rows):
        return 0, height, width, height
    return 0, int(rows[0] + share * (rows[-1] - rows[0])), width, height


def _scenes(snapshots: Snapshots, repository: str) -> Iterator[Candidate]:
    """Yield every fifteenth frame of the scenes of DAVIS, with what moves in them."""
    files = snapshots.files(repository)
    for path, blob in sorted(files.items()):
        if not path.startswith("DAVIS/JPEGImages/480p/") or int(Path(path).stem) % 15:
            continue
        mask = path.replace("JPEGImages", "Annotations").replace(".jpg", ".png")

        def find(width: int, height: int, mask: str = mask) -> tuple[Labels | None, Box]:
            with Image.open(io.BytesIO(snapshots.read(repository, mask))) as image:
                labels = (np.array(image.convert("L")) > 127).astype(np.uint8)
            return labels, (0, 0, width, height)

        yield Candidate(path, blob, Path(path).parent.name, 1, mask, find)


def _grapes(snapshots: Snapshots, repository: str) -> Iterator[Candidate]:
    """Yield photos of vines with each bunch of grapes masked."""
    files = snapshots.files(repository)
    for path, blob in sorted(files.items()):
        mask = path.removesuffix(".jpg") + ".npz"
        if not path.startswith("data/") or not path.endswith(".jpg") or mask not in files:
            continue

        def find(width: int, height: int, mask: str = mask) -> tuple[Labels | None, Box]:
            bunches = np.load(io.BytesIO(snapshots.read(repository, mask)))["arr_0"] > 0
            numbers = np.arange(1, bunches.shape[2] + 1, dtype=np.uint8)
            return (bunches * numbers).max(axis=2), (0, 0, width, height)

        yield Candidate(path, blob, Path(path).stem, 1, mask, find)


def _coco(snapshots: Snapshots, repository: str) -> Iterator[Candidate]:
    """Yield photos of COCO that show no person, with the polygons of things."""
    files = snapshots.files(repository)
    for part in ("train2017", "val2017"):
        listed = f"annotations/instances_{part}.json"
        content = json.loads(snapshots.read(repository, listed))
        things = defaultdict(list)
        for thing in content["annotations"]:
            things[thing["image_id"]].append(thing)
        for photo in sorted(content["images"], key=lambda photo: photo["id"]):
            path, inside = f"{part}/{photo['file_name']}", things[photo["id"]]
            if path not in files or any(thing["category_id"] == 1 for thing in inside):
                continue

            def find(width: int, height: int, inside: Any = inside) -> tuple[Labels | None, Box]:
                image = Image.new("L", (width, height))
                draw = ImageDraw.Draw(image)
                largest_first = sorted(inside, key=lambda thing: -thing["area"])
                for number, thing in enumerate(largest_first[:255], 1):
                    if not thing["iscrowd"]:
                        for polygon in thing["segmentation"]:
                            draw.polygon(polygon, fill=number)
                return np.array(image), (0, 0, width, height)

            yield Candidate(path, files[path], path, 1, listed, find)


PETS = 1200
COLLECTIONS = (
    Collection("bio-punk/AutoPortraitMatting", _portraits),
    Collection("ml4py/dataset-iiit-pet", _pets, PETS),
    Collection("ml4py/dataset-iiit-pet", _more_pets, 800),
    Collection("bearpaw/clothing-co-parsing", _clothes, 200),
    Collection("VikramShenoy97/Human-Segmentation-Dataset", _people),
    Collection("MathLee/EOR-VOS", _scenes),
    Collection("thsant/wgisd", _grapes, 60),
    Collection("imazen/codec-corpus", _numbered),
    Collection("Zelex/images", _files([".png"], "wikipedia-photos")),
    Collection("JingyunLiang/SwinIR", _files([".tif"], "testsets/McMaster")),
    Collection("Obmutescence/COCO-MINI", _coco, unseen=True),
    Collection("zzowenzz/COCO_Tiny", _coco, unseen=True),
    Collection("majedelhelou/denoising_datasets", _files([".png"], "CUrban100"), 100, True),
)
# Crops of a photo straight from a camera: more where a repository shows many things.
PLACES = {
    "esphome/esphome-devices": 3,
    "Annex-Engineering/Annex-Engineering_User_Mods": 3,
    "nasa-jpl/open-source-rover": 3,
    "VzBoT3D/VzBoT-UserMods": 3,
    "merbanan/rtl_433_tests": 2,
    "LonnyGomes/bulbutin": 2,
    "ThousandBuddhaTemple/qianfosi.org_website": 2,
    "mkudija/fh_photos": 2,
    "PX4/PX4-user_guide": 2,
}
# Photos to try where a repository shows one kind of thing again and again.
WANTED = {"santijuradoepn/birds-images-CSU": 150, "thsant/wgisd": 90}
UNSEEN_CAMERAS = "merbanan/rtl_433_tests"


def camera_collections(listed: Path) -> list[Collection]:
    """Return the repositories of a list of photos straight from cameras."""
    rows = defaultdict(list)
    with listed.open(newline="") as file:
        for row in csv.DictReader(file):
            rows[row["repository"]].append(row)

    def candidates(snapshots: Snapshots, repository: str) -> Iterator[Candidate]:
        files = snapshots.files(repository)
        for row in sorted(rows[repository], key=lambda row: row["path"]):
            if f"data/{Path(row['path']).stem}.npz" in files:
                continue  # The same photo, smaller, comes with masks.
            places = PLACES.get(repository, 1)
            yield Candidate(
                row["path"], row["blob"], Path(row["path"]).with_suffix("").name, places
            )

    return [Collection(name, candidates, WANTED.get(name), name == UNSEEN_CAMERAS) for name in rows]


# -- cutting ---------------------------------------------------------------------------------


def choose_boxes(photo: bytes, box: Box, labels: Labels | None, n: int, side: int) -> list[Box]:
    """Return boxes for crops: at objects where they are known, else where there is contrast.

    Parameters
    ----------
    photo : bytes
        A file.
    box : Box
        That crops may lie in.
    labels : ndarray or None
    n : int
        Crops, at most.
    side : int
        Of a crop, at most.

    Returns
    -------
    list of Box
        None of them covers half of another.
    """
    rng = random.Random(hashlib.sha256(photo).hexdigest())
    left, top = (-(-max(0, start) // GRID) * GRID for start in box[:2])
    width, height = (
        min(side, (end - start) // GRID * GRID)
        for start, end in zip((left, top), box[2:], strict=True)
    )
    if min(width, height) < SMALLEST:
        return []
    with Image.open(io.BytesIO(photo)) as image:
        whole = image.width
        image.draft("L", (image.width // 8, image.height // 8))
        small = np.array(image.convert("L"), np.float32)
    scale = small.shape[1] / whole
    kept: list[Box] = []
    for _ in range(24):
        x = left + rng.randrange(0, max(1, box[2] - left - width + 1)) // GRID * GRID
        y = top + rng.randrange(0, max(1, box[3] - top - height + 1)) // GRID * GRID
        crop = x, y, x + width, y + height
        if labels is not None and not 0.02 < (labels[y : crop[3], x : crop[2]] > 0).mean() < 0.9:
            continue
        a, b, c, d = (round(edge * scale) for edge in crop)
        if small[b:d, a:c].std() < MIN_CONTRAST:
            continue
        if all(abs(x - other[0]) > width / 2 or abs(y - other[1]) > height / 2 for other in kept):
            kept.append(crop)
        if len(kept) == n:
            break
    return kept


def cut(photo: bytes, box: Box, folder: Path, name: str) -> str:
    """Write a crop of a photo without compressing it again, and return the name of its file."""
    left, top, right, bottom = box
    if photo[:2] == b"\xff\xd8":
        crop = f"{right - left}x{bottom - top}+{left}+{top}"
        made = subprocess.run(
            ["jpegtran", "-copy", "none", "-progressive", "-crop", crop],
            input=photo,
            check=True,
            capture_output=True,
        ).stdout
        with Image.open(io.BytesIO(made)) as image:
            image.load()
            if image.size != (right - left, bottom - top) or image.mode not in ("RGB", "L"):
                raise ValueError(f"a crop became {image.size} of {image.mode}")
        (folder / f"{name}.jpg").write_bytes(made)
        return f"{name}.jpg"
    with Image.open(io.BytesIO(photo)) as image:
        part = image.convert("RGB").crop(box)
    part.save(folder / f"{name}.webp", lossless=True, quality=90, method=4)
    return f"{name}.webp"


def take_photos(
    snapshots: Snapshots, collection: Collection, folder: Path
) -> Iterator[dict[str, Any]]:
    """Cut the crops of a collection, and yield what the list says of each."""
    repository = collection.repository
    every = list(collection.candidates(snapshots, repository))
    if collection.wanted is not None and len(every) > collection.wanted:
        every = [every[i * len(every) // collection.wanted] for i in range(collection.wanted)]
    units = sorted({candidate.unit for candidate in every})
    held_out = set(units[::HELD_OUT_EVERY])
    for candidate in every:
        use = "unseen" if collection.unseen else "train"
        if use == "train" and candidate.unit in held_out:
            use = "held out"
        try:
            photo = snapshots.blob(repository, candidate.blob)
            found = list(_cut_photo(photo, candidate, folder))
        except (OSError, LookupError, ValueError, subprocess.CalledProcessError) as error:
            print(f"{repository}: {candidate.path} left out: {error}", flush=True)
            continue
        for entry in found:
            entry |= {"repository": repository, "path": candidate.path, "blob": candidate.blob}
            entry |= {"objects": candidate.objects, "use": use}
            yield entry


def _cut_photo(photo: bytes, candidate: Candidate, folder: Path) -> Iterator[dict[str, Any]]:
    with Image.open(io.BytesIO(photo)) as image:
        width, height = image.size
        side = SIDE if image.format == "JPEG" else LOSSLESS_SIDE
    labels, box = None, (0, 0, width, height)
    if candidate.find is not None:
        labels, box = candidate.find(width, height)
        if labels is not None and labels.shape != (height, width):
            raise ValueError(f"its mask is {labels.shape}, the photo {(height, width)}")
    for number, crop in enumerate(choose_boxes(photo, box, labels, candidate.places, side)):
        name = f"{candidate.blob[:12]}-{number}"
        entry: dict[str, Any] = {"file": cut(photo, crop, folder, name), "segments": None}
        if labels is not None:
            entry["segments"] = f"{name}.png"
            part = labels[crop[1] : crop[3], crop[0] : crop[2]]
            Image.fromarray(np.ascontiguousarray(part)).save(folder / f"{name}.png", optimize=True)
        yield entry | dict(zip(("left", "top", "right", "bottom"), crop, strict=True))


# -- packs and list --------------------------------------------------------------------------


def share_out(
    entries: list[dict[str, Any]], pool: Path, mebibytes: float
) -> Iterator[dict[str, Any]]:
    """Move files to packs of at most a size, each with photos of all collections."""
    shuffled = sorted(entries, key=lambda entry: hashlib.sha256(entry["file"].encode()).digest())
    packs: dict[str, list[dict[str, Any]]] = {}
    number, size = 1, 0.0
    for entry in shuffled:
        files = [entry["file"], *([entry["segments"]] if entry["segments"] else [])]
        more = sum((pool / "all" / file).stat().st_size for file in files) / 2**20
        if entry["use"] == "unseen":
            pack = "unseen"
        else:
            if size + more > mebibytes:
                number, size = number + 1, 0.0
            size += more
            pack = f"pack-{number}"
        (pool / pack).mkdir(exist_ok=True)
        for file in files:
            (pool / "all" / file).rename(pool / pack / file)
        packs.setdefault(pack, []).append(entry)
        yield entry | {"pack": pack}
    for pack, listed in packs.items():
        (pool / pack / "photos.json").write_text(json.dumps(listed, indent=1))
    (pool / "all").rmdir()


COLUMNS = (
    *("repository", "path", "blob", "left", "top", "right", "bottom"),
    *("objects", "use", "pack"),
)


def main() -> None:
    """Build the pool."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("snapshots", type=Path)
    parser.add_argument("camera_photos", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--mebibytes", type=float, default=38.0, help="of a pack, at most")
    parser.add_argument("--only", nargs="*", help="repositories, for a first try")
    parser.add_argument("--wanted", type=int, help="photos of each, for a first try")
    arguments = parser.parse_args()
    snapshots = Snapshots(arguments.snapshots)
    (arguments.output / "all").mkdir(parents=True)
    entries, known = [], set()
    for collection in (*COLLECTIONS, *camera_collections(arguments.camera_photos)):
        if arguments.only and collection.repository not in arguments.only:
            continue
        if arguments.wanted:
            collection = replace(collection, wanted=arguments.wanted)
        count = 0
        for entry in take_photos(snapshots, collection, arguments.output / "all"):
            if entry["file"] not in known:
                known.add(entry["file"])
                entries.append(entry)
                count += 1
        print(f"{collection.repository}: {count}", flush=True)
    listed = list(share_out(entries, arguments.output, arguments.mebibytes))
    if arguments.only or arguments.wanted:
        return
    listed.sort(key=lambda entry: (entry["repository"], entry["path"], entry["left"], entry["top"]))
    with LIST.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(listed)


if __name__ == "__main__":
    main()
