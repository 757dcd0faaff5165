"""Tables over HTTP, as programs send them."""

from __future__ import annotations

import io
import json

import numpy as np
import openpyxl
import pandas as pd
import pytest

from cpcapp import CPCAPlusPlus

serving = pytest.importorskip("serving", reason="needs the server of the page")

NAMES = [f"f{i}" for i in range(5)]


@pytest.fixture(scope="module")
def server():
    with serving.serving(max_bytes=1_000_000) as running:
        yield running


@pytest.fixture(scope="module")
def frames():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 5)) * [5, 3, 1, 1, 1], columns=NAMES)
    X["kind"] = np.repeat(["sick", "well"], 30)
    return X, pd.DataFrame(rng.normal(size=(50, 5)), columns=NAMES)


def as_csv(frame):
    return frame.to_csv(index=False).encode()


def forms(target, background, names=("x.csv", "b.csv")):
    return {"target": (names[0], target), "background": (names[1], background)}


@pytest.fixture(scope="module")
def tables(server, frames):
    answer = server.client.post("/api/tables", files=forms(*map(as_csv, frames)))
    assert answer.status_code == 200, answer.text
    return answer.json()


def assert_error(answer, status, code):
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["code"] == code
    return error


def test_a_comparison_is_that_of_the_library(server, tables, frames):
    address = f"/api/tables/{tables['id']}/compare"
    answer = server.client.post(address, json={"columns": NAMES, "label": "kind"})
    assert answer.status_code == 200, answer.text
    job = answer.json()
    assert (job["kind"], job["status"], job["name"]) == ("tables", "done", "x.csv")
    result = job["result"]
    content = server.client.get(result["points"]["target"]["cpca++"]).content
    est = CPCAPlusPlus(2).fit(frames[0][NAMES], background=frames[1])
    scores = np.frombuffer(content, "<f4").reshape(-1, 2)
    np.testing.assert_allclose(scores, est.transform(frames[0][NAMES]), rtol=1e-4, atol=1e-5)
    download = server.client.get(result["downloads"]["scores"])
    assert download.headers["content-type"].startswith("text/csv")
    assert "attachment" in download.headers["content-disposition"]
    assert len(pd.read_csv(io.BytesIO(download.content))) == 110
    assert str(server.folder) not in json.dumps(job)


def test_the_same_tables_can_be_compared_again(server, tables):
    address = f"/api/tables/{tables['id']}/compare"
    results = [
        server.client.post(address, json={"columns": columns}).json()["result"]
        for columns in (NAMES, NAMES[:3])
    ]
    assert [result["n_features"] for result in results] == [5, 3]
    # Browsers keep files by their address.
    addresses = {result["points"]["target"]["pca"] for result in results}
    assert len(addresses) == 2
    # A choice that can't be met leaves the tables as they were.
    error = assert_error(
        server.client.post(address, json={"columns": ["f0", "kind"]}), 422, "bad_table"
    )
    assert error["message"] == "x.csv: column 'kind' is not numeric."
    assert "the label" in error["help"]
    assert server.client.post(address, json={"columns": NAMES}).status_code == 200


def test_a_job_that_waits_can_be_followed(server, tables):
    address = f"/api/tables/{tables['id']}/compare?wait=false"
    answer = server.client.post(address, json={"columns": NAMES})
    assert answer.status_code == 202
    assert answer.json()["status"] in ("queued", "running")
    assert_error(server.client.post(address, json={"columns": NAMES}), 409, "busy")
    with server.client.stream("GET", f"/api/jobs/{tables['id']}/events") as events:
        text = "".join(events.iter_text())
    assert "event: done" in text


def test_both_in_one_step(server, frames):
    book = openpyxl.Workbook()
    for row in [list(frames[1].columns), *frames[1].to_numpy().tolist()]:
        book.active.append(row)
    out = io.BytesIO()
    book.save(out)
    parquet = frames[0].to_parquet()
    answer = server.client.post(
        "/api/compare",
        files=forms(parquet, out.getvalue(), ("Mäuse.parquet", "b.XLSX")),
        data={"columns": 'f0, f1,"f2"', "label": "kind", "standardize": "each"},
    )
    assert answer.status_code == 200, answer.text
    result = answer.json()["result"]
    assert (result["n_features"], result["standardize"]) == (3, "each")
    assert result["target"]["table"] == "Mäuse.parquet"
    assert result["background"]["table"] == "b.XLSX, Sheet"


@pytest.mark.parametrize(
    ("names", "target", "status", "code", "words"),
    [
        (("x.exe", "b.csv"), b"a,b\n1,2\n", 415, "unknown_format", "x.exe is not a table"),
        (("x.h5ad", "b.csv"), b"\x89HDF", 415, "unknown_format", "x.h5ad is not a table"),
        (("../x.csv", "b.csv"), b"", 422, "bad_table", "x.csv is empty"),
        (("x.csv", "b.csv"), b"a,a\n1,2\n", 422, "bad_table", "x.csv: two columns are called 'a'"),
        (("x.xlsx", "b.csv"), b"PK no", 422, "bad_table", "x.xlsx is not a readable workbook"),
        (("x.parquet", "b.csv"), b"PAR1", 422, "bad_table", "x.parquet is not a Parquet file"),
        (("x.csv", "b.csv"), b"1" * 1_100_000, 413, "too_large", "larger than 1 MB"),
    ],
)
def test_files_that_can_not_be_read(server, frames, names, target, status, code, words):
    before = set(server.folder.iterdir())
    answer = server.client.post("/api/tables", files=forms(target, as_csv(frames[1]), names))
    error = assert_error(answer, status, code)
    assert set(server.folder.iterdir()) == before
    assert words in error["message"]
    assert str(server.folder) not in answer.text
    # Nothing of it stays.
    assert server.health()["running"] == server.health()["waiting"] == 0


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"columns": "f0"}', "columns"),
        (b'{"colums": ["f0", "f1"]}', "colums"),
        (b'{"missing": "guess"}', "missing"),
        (b"[1", "request"),
    ],
)
def test_requests_that_are_wrong(server, tables, body, words):
    answer = server.client.post(f"/api/tables/{tables['id']}/compare", content=body)
    assert words in assert_error(answer, 422, "invalid")["message"]


def test_bounds_of_what_is_asked(server, tables):
    address = f"/api/tables/{tables['id']}/compare"
    long = json.dumps({"columns": ["x" * 1000] * 5000}).encode()
    assert_error(server.client.post(address, content=long), 413, "too_large")
    assert_error(server.client.post("/api/tables/nobody/compare", json={}), 404, "no_job")
    assert_error(server.client.post("/api/tables/examples/cats"), 404, "no_example")
    photo = (serving.EXAMPLES / "astronaut.jpg").read_bytes()
    job = server.client.post(
        "/api/localize?wait=false", files={"file": ("a.jpg", photo)}, data={"model": "filters"}
    ).json()
    answer = server.client.post(f"/api/tables/{job['id']}/compare", json={})
    assert_error(answer, 404, "no_job")
    server.client.delete(f"/api/jobs/{job['id']}")
