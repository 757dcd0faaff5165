"""Names of the results."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cpcapp.splicing.output.files import name_results

NAMES = st.text("aAbй-1", min_size=1, max_size=4) | st.sampled_from(["a" * 240, "й" * 120])
PHOTOS = st.lists(
    st.builds("/{}/{}{}".format, NAMES, NAMES, st.sampled_from([".jpg", ".PNG"])), unique=True
).map(lambda paths: [Path(path) for path in paths])


@given(PHOTOS, st.randoms())
def test_every_photo_has_names_of_its_own_in_whatever_order(photos, random):
    named = {files.photo: files.name for files in name_results(photos, Path("out"))}
    assert len({name.casefold() for name in named.values()}) == len(photos)
    random.shuffle(photos)
    assert {files.photo: files.name for files in name_results(photos, Path("out"))} == named
    for files in name_results(photos, Path("out")):
        assert all(len(path.name.encode()) <= 255 for path in files.all)
        assert all(path.parent == Path("out") for path in files.all)
        assert len(set(files.all)) == 8


def test_a_name_of_its_own_is_kept():
    (files,) = name_results([Path("in/My cat.v2.jpg")], Path("out"))
    assert files.name == "My cat.v2"
    assert files.entry == Path("out/My cat.v2.json")
