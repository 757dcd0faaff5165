"""The server as programs see it."""

from __future__ import annotations

import io
import json
import re
import socket
from pathlib import Path

import cv2
import httpx
import numpy as np
import pytest
from PIL import Image

from cpcapp.splicing import load_model, read_image
from cpcapp.splicing.output.draw import choose_boundary_white, draw_boundary
from cpcapp.splicing.photo.pixels import as_bytes
from made_photos import exif_with_thumbnail
from serving import EXAMPLES, serving, wait_until

PHOTO = (EXAMPLES / "cat-with-helmet.png").read_bytes()


@pytest.fixture(scope="module")
def server():
    with serving(max_bytes=2_000_000, max_pixels=400_000) as running:
        yield running


@pytest.fixture(scope="module")
def job(server):
    answer = server.post(PHOTO, "cat.png")
    assert answer.status_code == 200, answer.text
    return answer.json()


def assert_error(answer: httpx.Response, status: int, code: str | None = None) -> dict:
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"}
    error = answer.json()["error"]
    assert set(error) == {"code", "message", "help"}
    assert error["message"]
    assert code is None or error["code"] == code
    return error


def picture(server, address: str) -> np.ndarray:
    content = server.client.get(address).content
    return cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_UNCHANGED)


def test_a_photo_gets_what_the_library_finds(server, job):
    image = read_image(PHOTO)
    localizer = load_model("filters")
    found = localizer.localize(image)
    result = job["result"]
    assert job["status"] == "done"
    assert job["name"] == result["file"] == "cat.png"
    assert (result["width"], result["height"]) == image.pixels.shape[1::-1]
    assert result["verdict_code"] == found.verdict_code
    assert result["p_value"] == pytest.approx(found.p_value, rel=1e-4)
    assert (result["genuine_as_high"], result["genuine_photos"]) == found.rank[1:]
    assert result["sentence"] and result["meaning"] and result["limits"]
    assert all(len(row) == 2 for row in result["fact_rows"])
    white = choose_boundary_white(found.boundary, localizer.threshold)
    shown = picture(server, result["pictures"]["boundary"])
    assert (shown == draw_boundary(found.boundary, white=white)).all()
    assert (picture(server, result["pictures"]["region"]) > 0).tolist() == found.mask.tolist()
    photo = server.client.get(result["pictures"]["photo"])
    assert photo.content == PHOTO
    assert photo.headers["content-type"] == "image/png"


def test_a_result_names_no_path_of_the_computer(server, job):
    text = json.dumps(job)
    assert str(server.folder) not in text
    assert not {"overlay", "boundary", "region"} & set(job["result"])


def test_only_files_that_the_result_names_can_be_fetched(server, job):
    base = f"/api/jobs/{job['id']}/files/"
    for address in job["result"]["pictures"].values():
        assert server.client.get(address).status_code == 200
    for name in ("file", "%2e%2e", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "..%5cphoto.png", "photo.jpg"):
        assert server.client.get(base + name).status_code == 404, name


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/%2e%2e/__init__.py",
        "/static//etc/passwd",
        "/api/examples/../README.md",
        "/api/examples/..%2fREADME.md",
        "/api/examples/README.md",
        "/api/jobs/..%2f..%2fetc/files/passwd",
        "/api/jobs/%00/files/x",
    ],
)
def test_no_path_leads_out(server, path):
    """Sent as it stands: clients that tidy paths up would hide a hole."""
    host, port = server.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        head = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.split()[1] == b"404", answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]


def test_events_tell_how_far_a_job_is(server):
    queued = server.post(PHOTO, wait=False)
    assert queued.status_code == 202
    assert queued.headers["location"] == f"/api/jobs/{queued.json()['id']}"
    with server.client.stream("GET", f"/api/jobs/{queued.json()['id']}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        text = "".join(stream.iter_text())
    found = re.findall(r"event: (\w+)\ndata: (.*)\n\n", text)
    events = [(name, json.loads(data)) for name, data in found]
    names = [name for name, _ in events]
    shares = [state["share"] for _, state in events]
    assert names[-1] == "done" and set(names[:-1]) == {"progress"}
    assert shares == sorted(shares) and shares[-1] == 1.0
    assert len({state["step"] for _, state in events}) > 2
    assert events[-1][1]["result"]["verdict"]


def test_a_failed_job_says_so_by_events(server):
    queued = server.post(b"Dear editor, ...", "letter.jpg", wait=False).json()
    with server.client.stream("GET", f"/api/jobs/{queued['id']}/events") as stream:
        text = "".join(stream.iter_text())
    name, data = re.findall(r"event: (\w+)\ndata: (.*)\n\n", text)[-1]
    assert name == "failed"
    assert json.loads(data)["error"]["code"] == "unreadable"
    assert not list((server.folder / queued["id"]).glob("*"))


def test_a_removed_job_leaves_nothing(server):
    job = server.post(PHOTO).json()
    assert (server.folder / job["id"]).is_dir()
    assert server.client.delete(f"/api/jobs/{job['id']}").status_code == 204
    assert_error(server.client.get(f"/api/jobs/{job['id']}"), 404, "no_job")
    assert_error(server.client.get(job["result"]["pictures"]["photo"]), 404, "no_job")
    assert not (server.folder / job["id"]).exists()


def test_a_photo_that_browsers_do_not_show_becomes_one_that_they_do(server):
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (70, 90, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6  # turned
    Image.fromarray(pixels).save(file, "TIFF", exif=exif)
    result = server.post(file.getvalue(), "scan.tif").json()["result"]
    shown = picture(server, result["pictures"]["photo"])[..., ::-1]
    assert (shown == read_image(file.getvalue()).pixels).all()
    assert (result["width"], result["height"]) == (70, 90)


def test_what_was_done_to_a_photo_on_reading_is_said(server):
    grey = cv2.cvtColor(read_image(PHOTO).pixels, cv2.COLOR_RGB2GRAY)[:80, :80]
    result = server.post(cv2.imencode(".png", grey)[1].tobytes()).json()["result"]
    assert ["When it was read", "grey"] in result["fact_rows"]


def test_sixteen_bits_are_rounded_as_everywhere(server):
    deep = np.random.default_rng(0).integers(0, 65536, (80, 80, 3)).astype(np.uint16)
    result = server.post(cv2.imencode(".png", deep)[1].tobytes()).json()["result"]
    shown = picture(server, result["pictures"]["photo"])
    np.testing.assert_array_equal(shown, as_bytes(deep))


def test_a_thumbnail_of_something_else_can_be_seen(server):
    photo = Image.open(io.BytesIO(PHOTO)).convert("RGB").resize((160, 120))
    answers = []
    for thumbnail in (photo, photo.transpose(Image.Transpose.ROTATE_180)):
        file = io.BytesIO()
        photo.save(file, "JPEG", quality=92, exif=exif_with_thumbnail(thumbnail))
        answers.append(server.post(file.getvalue(), "photo.jpg").json()["result"])
    same, other = answers
    assert same["thumbnail"] is None
    assert other["facts"]["warnings"] == [
        "The thumbnail in the file shows something else than the photo."
    ]
    assert picture(server, other["thumbnail"]).shape == (120, 160, 3)


def test_the_name_of_a_file_is_looked_at_as_by_the_command(server):
    file = io.BytesIO()
    Image.open(io.BytesIO(PHOTO)).convert("RGB").resize((160, 120)).save(file, "JPEG")
    result = server.post(file.getvalue(), "IMG-20240101-WA0007.jpg").json()["result"]
    remark = "Its name is of the kind that WhatsApp gives to photos."
    assert remark in result["facts"]["remarks"]


def test_maps_larger_than_a_screen_have_small_copies(server):
    wide = cv2.resize(read_image(PHOTO).pixels, (2000, 100))
    content = cv2.imencode(".png", wide)[1].tobytes()
    result = server.post(content).json()["result"]
    for name in ("photo", "boundary", "edges"):
        assert picture(server, result["pictures"][name]).shape[:2] == (100, 2000)
        assert picture(server, result["previews"][name]).shape[:2] == (80, 1600)
    large, small = (picture(server, result[k]["boundary"]) for k in ("pictures", "previews"))
    assert small.max() == large.max()


def test_examples_can_be_tried(server):
    listed = server.client.get("/api/examples").json()
    assert len(listed) == 4
    assert (
        server.client.get(listed[0]["url"]).content == (EXAMPLES / listed[0]["name"]).read_bytes()
    )
    answer = server.client.post(f"/api/examples/{listed[1]['name']}?model=filters")
    assert answer.json()["result"]["verdict"]
    assert_error(server.client.post("/api/examples/dog.png"), 404, "no_example")


# --- mistakes of clients


def test_what_is_no_photo_is_refused_in_words(server):
    error = assert_error(server.post(b"Dear editor, ...", "letter.jpg"), 422, "unreadable")
    assert error["message"].startswith("This file is not a JPEG")
    error = assert_error(server.post(PHOTO[:-500]), 422, "unreadable")
    assert "cut off" in error["message"]
    assert assert_error(server.post(b""), 422, "unreadable")["message"] == "This file is empty."


def test_too_many_pixels_are_refused(server):
    content = cv2.imencode(".png", np.zeros((700, 700, 3), np.uint8))[1].tobytes()
    error = assert_error(server.post(content), 413, "too_many_pixels")
    assert "700 × 700" in error["message"] and "0.4 megapixels" in error["message"]


def test_too_many_bytes_are_refused_while_they_come(server):
    assert_error(server.post(bytes(3_500_000)), 413, "too_large")
    sent = 0

    def drip():
        nonlocal sent
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
        while sent < 50_000_000:
            sent += 65536
            yield bytes(65536)

    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    try:
        answer = server.client.post("/api/localize", content=drip(), headers=headers)
        assert_error(answer, 413, "too_large")
    except httpx.WriteError:
        pass  # the server has hung up before the client read its answer
    assert sent < 40_000_000
    wait_until(lambda: server.health()["uploading"] == 0)


@pytest.mark.parametrize(
    ("content", "kind", "status", "code"),
    [
        (b"{}", "application/json", 415, "not_a_form"),
        (b"", "multipart/form-data", 415, "not_a_form"),
        (b"--b--\r\n", "multipart/form-data; boundary=b", 422, "no_file"),
        (b"no form", "multipart/form-data; boundary=b", 400, "broken_form"),
        (
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\nhalf',
            "multipart/form-data; boundary=b",
            400,
            "broken_form",
        ),
        (
            b'--b\r\nContent-Disposition: form-data; name="path"\r\n\r\n/etc\r\n--b--\r\n',
            "multipart/form-data; boundary=b",
            422,
            "unknown_field",
        ),
        (
            b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\n%s\r\n--b--\r\n'
            % (b"x" * 70_000),
            "multipart/form-data; boundary=b",
            400,
            "broken_form",
        ),
        (
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="%s"\r\n\r\n1\r\n'
            % (b"x" * 500_000),
            "multipart/form-data; boundary=b",
            400,
            "broken_form",
        ),
        (
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n1\r\n' * 2
            + b"--b--\r\n",
            "multipart/form-data; boundary=b",
            422,
            "unknown_field",
        ),
    ],
)
def test_broken_forms_are_refused(server, content, kind, status, code):
    headers = {"Content-Type": kind}
    answer = server.client.post("/api/localize", content=content, headers=headers)
    assert_error(answer, status, code)
    assert server.health()["uploading"] == 0


def test_models_are_names_and_never_paths(server):
    for model in ("/etc/passwd", "../filters", "best"):
        assert_error(server.post(PHOTO, model=model), 422, "no_model")
        address = "/api/examples/astronaut.jpg"
        assert_error(server.client.post(address, params={"model": model}), 422, "no_model")


def test_every_error_has_one_shape(server):
    assert_error(server.client.get("/nothing"), 404)
    assert_error(server.client.get("/static/nothing.js"), 404)
    assert_error(server.client.put("/api/localize"), 405)
    assert_error(server.client.get("/api/jobs/unknown"), 404, "no_job")
    assert_error(server.client.get("/api/jobs/unknown/events"), 404, "no_job")
    assert_error(server.client.delete("/api/jobs/unknown"), 404, "no_job")
    error = assert_error(server.client.post("/api/localize?wait=perhaps"), 422, "invalid")
    assert "wait" in error["message"]


def test_a_fault_of_the_server_is_told_and_logged(server, monkeypatch, caplog):
    monkeypatch.setattr(server.server.jobs, "describe", None)
    answer = server.client.get("/api/health")
    assert_error(answer, 500, "internal")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["connection"] == "close"  # which the server drops
    assert "a request to b'/api/health' failed" in caplog.text
    assert "TypeError" in caplog.text


def test_names_are_shown_and_never_used(server):
    name = '../../<img src=x onerror=alert(1)>"\r\nSet-Cookie: a=b.png'
    body = (
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="../../<b>\\"x.png"\r\n\r\n'
    )
    body += (
        PHOTO
        + b'\r\n--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nfilters\r\n--b--\r\n'
    )
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    job = server.client.post("/api/localize", content=body, headers=headers).json()
    assert "/" not in job["name"] and "<b>" in job["name"]
    job = server.post(PHOTO, name).json()
    assert "\n" not in job["name"] and "/" not in job["name"]
    inside = {path.name for path in (server.folder / job["id"]).iterdir()}
    assert {"photo.png", "overlay.png"} <= inside
    assert {path.name for path in server.folder.parent.glob("*onerror*")} == set()


# --- who may ask


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.7", "", "a b"])
def test_other_hosts_are_refused(server, host):
    for path in ("/", "/api/health", "/static/page.css"):
        assert_error(server.client.get(path, headers={"Host": host}), 421, "wrong_host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1", "[::1]:9"])
def test_own_names_are_accepted(server, host):
    assert server.client.get("/api/health", headers={"Host": host}).status_code == 200


def test_pages_of_other_sites_can_send_nothing(server):
    address = "/api/examples/astronaut.jpg?wait=false&model=filters"
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": server.address.replace("http", "https")},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        assert_error(server.client.post(address, headers=headers), 403, "cross_site")
        assert_error(server.client.delete("/api/jobs/x", headers=headers), 403, "cross_site")
    own = {"Origin": server.address, "Sec-Fetch-Site": "same-origin"}
    assert server.client.post(address, headers=own).status_code == 202


def test_every_answer_tells_browsers_to_be_strict(server, job):
    overlay = job["result"]["pictures"]["overlay"]
    for path in ("/", "/static/photos.js", "/api/health", "/nothing", overlay):
        headers = server.client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "sandbox" in server.client.get(overlay).headers["content-security-policy"]
    assert "server" not in headers


def test_the_page_loads_nothing_from_elsewhere(server):
    page = server.client.get("/").text
    static = Path(__file__).parents[2] / "src" / "cpcapp" / "web" / "static"
    texts = [page, *(path.read_text() for path in static.iterdir())]
    for text in texts:
        found = set(re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}", text))
        assert found <= {"http://www.w3.org"}  # the name of SVG, which nobody fetches
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", page)


FORMS = {
    "localize": {"file", "model"},
    "compare": {"target", "background", "columns", "label"},
}


def test_the_api_describes_itself(server):
    described = server.client.get("/api/openapi.json").json()
    assert {"/api/health", "/api/jobs/{job_id}", "/api/tables"} <= set(described["paths"])
    localize, compare = (described["paths"][f"/api/{name}"]["post"] for name in FORMS)
    for route, fields in zip((localize, compare), FORMS.values(), strict=True):
        form = route["requestBody"]["content"]["multipart/form-data"]["schema"]
        assert fields <= set(form["properties"])
    assert "/api/tables/{job_id}/compare" in described["paths"]
    assert {"200", "202", "413", "429", "503"} <= set(localize["responses"])
    schemas = described["components"]["schemas"]
    assert "sentence" in schemas["PhotoResult"]["properties"]
    assert_error(server.client.get("/docs"), 404)
    assert_error(server.client.get("/redoc"), 404)
