"""The page in a real browser, as people use it.

Pictures of it go to the folder CPCAPP_SCREENSHOTS, if it is set.
"""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from made_photos import exif_with_thumbnail
from serving import EXAMPLES, PATIENCE, serving, wait_until

CUP = EXAMPLES / "cup-in-the-sky.png"
GENUINE = EXAMPLES / "astronaut.jpg"


@pytest.fixture(scope="module")
def server():
    with serving(jobs=2) as running:
        yield running


@pytest.fixture(scope="module")
def cup(server) -> str:
    """A job that is done."""
    return server.post(CUP.read_bytes(), CUP.name).json()["id"]


@pytest.fixture
def open_page(new_windows):
    """Open the page, as if these jobs had been sent from the same window before."""

    def open_window(*jobs, **options):
        script = (
            "sessionStorage.getItem('cpcapp-jobs') || "
            f"sessionStorage.setItem('cpcapp-jobs', '{json.dumps(jobs)}')"
        )
        page = new_windows.open("/", script if jobs else "", **options)
        page.select_option("#model", "filters")
        if jobs:
            wait_for_result(page)
        return page

    return open_window


def send(page, *files) -> None:
    given = [
        file
        if isinstance(file, dict)
        else {"name": file.name, "mimeType": "image/png", "buffer": file.read_bytes()}
        for file in files
    ]
    page.set_input_files("#files", given)


def wait_for_result(page) -> None:
    expect(page.locator("#result")).to_be_visible(timeout=1000 * PATIENCE)
    drawn(page)


def pixels(page, canvas: str = "layers") -> np.ndarray:
    """What is drawn on a canvas, (height, width, 4)."""
    address = page.evaluate(f"() => document.getElementById('{canvas}').toDataURL()")
    content = np.frombuffer(base64.b64decode(address.partition(",")[2]), np.uint8)
    return cv2.imdecode(content, cv2.IMREAD_UNCHANGED)


def drawn(page) -> None:
    """Wait until what was asked for is on the screen."""
    page.wait_for_selector('#stage[aria-busy="false"]')
    page.evaluate("() => new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")


def test_a_photo_is_checked(open_page, server, take_picture):
    page = open_page()
    take_picture(page, "start.png", full_page=True)
    send(page, CUP)
    expect(page.locator("#message progress")).to_be_visible()
    take_picture(page, "working.png", full_page=True)
    wait_for_result(page)
    take_picture(page, "signs.png", full_page=True)
    expect(page.locator("#sentence")).to_contain_text("signs of splicing")
    expect(page.locator("#live")).to_contain_text("signs of splicing")
    expect(page.locator("#photo-name")).to_have_text("cup-in-the-sky.png")
    expect(page.locator("#facts")).to_contain_text("640 × 427")
    job = server.client.get(page.locator("#overlay-png").get_attribute("href").rsplit("/", 2)[0])
    shown = job.json()["result"]
    assert f"{shown['p_value']:.2g}" in page.locator("#odds-text").inner_text()
    expect(page.locator("#meaning")).not_to_be_empty()
    expect(page.locator("#limits")).not_to_be_empty()

    # The evidence lies where the library found it.
    layer = pixels(page)
    page.locator("#threshold").fill("60")
    drawn(page)
    strongest = pixels(page)
    assert 0 < (strongest[..., 3] > 0).sum() < (layer[..., 3] > 0).sum()
    rows, columns = np.nonzero(strongest[..., 3])
    seam = shown["seam"]
    height, width = layer.shape[:2]
    scale = min(width / shown["width"], height / shown["height"])
    left, top = (width - scale * shown["width"]) / 2, (height - scale * shown["height"]) / 2
    found = np.median((columns - left) / scale), np.median((rows - top) / scale)
    _, _, box_width, box_height = seam["box"]
    assert abs(found[0] - seam["column"]) < box_width
    assert abs(found[1] - seam["row"]) < box_height


def test_sliders_act_at_once(open_page, cup, take_picture):
    page = open_page(cup)
    full = pixels(page)
    page.locator("#opacity").fill("50")
    drawn(page)
    half = pixels(page)
    seen = full[..., 3] > 100
    assert seen.any()
    assert half[seen, 3].astype(float) / full[seen, 3] == pytest.approx(0.5, abs=0.02)
    page.locator("#opacity").fill("0")
    drawn(page)
    assert not pixels(page)[..., 3].any()
    page.locator("#opacity").fill("100")
    page.locator("#layer-region").check(force=True)
    page.locator("#layer-edges").check(force=True)
    drawn(page)
    assert (pixels(page)[..., 3] > 0).sum() > (full[..., 3] > 0).sum()
    page.locator("#swipe").fill("40")
    clip = page.evaluate("() => getComputedStyle(document.getElementById('after')).clipPath")
    assert clip.startswith("inset(") and "40%" in clip
    take_picture(page, "layers-and-swipe.png")
    # The handle can be dragged too.
    page.evaluate("() => document.getElementById('stage').scrollIntoView()")
    box = page.locator("#stage").bounding_box()
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 0.2 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.2 * box["height"], steps=3)
    page.mouse.up()
    assert abs(int(page.locator("#swipe").input_value()) - 70) <= 1


def test_zoom_by_wheel_keyboard_and_buttons(open_page, cup, take_picture):
    page = open_page(cup)
    whole = pixels(page, "plain")
    stage = page.locator("#stage")
    page.evaluate("() => document.getElementById('stage').scrollIntoView()")
    box = stage.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.wheel(0, -300)
    drawn(page)
    closer = pixels(page, "plain")
    assert (closer != whole).any()
    stage.focus()
    page.keyboard.press("ArrowRight")
    drawn(page)
    moved = pixels(page, "plain")
    assert (moved != closer).any()
    assert (moved[:, :-60] == closer[:, 60:]).mean() > 0.95
    page.keyboard.press("+")
    take_picture(page, "zoomed.png")
    page.keyboard.press("0")
    drawn(page)
    assert (pixels(page, "plain") == whole).all()
    page.click("#zoom-full")
    drawn(page)
    page.keyboard.press("Tab")  # no trap: the focus goes on
    assert page.evaluate("() => document.activeElement.id") != "stage"


def test_a_small_photo_can_be_seen_as_small_as_it_is(open_page, server, cup):
    page = open_page(cup)
    width = server.client.get(f"/api/jobs/{cup}").json()["result"]["width"]
    page.click("#zoom-full")
    drawn(page)
    shown = (pixels(page, "plain")[..., 3] > 0).any(axis=0)
    assert shown.sum() == width
    page.click("#zoom-fit")
    drawn(page)
    assert (pixels(page, "plain")[..., 3] > 0).any(axis=0).sum() > width


def test_single_traces_are_looked_at_alone(open_page, cup):
    page = open_page(cup)
    page.locator("#layer-evidence").uncheck(force=True)
    photo = pixels(page, "under")
    page.locator("#trace-choice").get_by_label("Error level").check(force=True)
    drawn(page)
    assert (pixels(page, "under") != photo).mean() > 0.3
    expect(page.locator("#trace-text")).to_contain_text("saved as JPEG at quality 90")
    # A PNG that never was a JPEG: that is said, and what would be seen is not.
    page.locator("#trace-choice").get_by_label("JPEG grid").check(force=True)
    drawn(page)
    assert (pixels(page, "under") == photo).all()
    expect(page.locator("#trace-text")).to_have_text(re.compile("^Nothing to show. No grid"))
    # What was shown before is shown again.
    page.locator("#trace-choice").get_by_label("None").check(force=True)
    expect(page.locator("#layer-evidence")).not_to_be_checked()
    expect(page.locator("#trace-text")).to_be_hidden()


def test_what_the_file_says_aloud(open_page, take_picture):
    """An editor, and a thumbnail of something else, stand beside the verdict."""
    photo = Image.open(CUP).convert("RGB").resize((160, 120))
    exif = exif_with_thumbnail(photo.transpose(Image.Transpose.ROTATE_180))
    file = io.BytesIO()
    photo.save(file, "JPEG", quality=92, exif=exif, comment=b"Created with GIMP")
    page = open_page()
    send(page, {"name": "edited.jpg", "mimeType": "image/jpeg", "buffer": file.getvalue()})
    wait_for_result(page)
    warnings = page.locator("#verdict #warnings li")
    expect(warnings).to_have_text(
        [
            "The thumbnail in the file shows something else than the photo.",
            "Saved by GIMP.",
        ]
    )
    expect(page.locator("#live")).to_contain_text("Saved by GIMP.")
    assert page.evaluate("() => document.getElementById('thumbnail-picture').naturalWidth") == 160
    take_picture(page, "edited.png", full_page=True)


def test_a_photo_taken_out_while_it_is_sent_is_not_looked_at(open_page, server):
    page = open_page()
    kept = server.health()["kept"]
    held = []
    page.route("**/api/localize*", lambda route: held.append(route))
    send(page, CUP)
    expect(page.locator(".item .state")).to_have_text("Sending")
    page.click(".item-close")
    with page.expect_request(lambda request: request.method == "DELETE"):
        held[0].continue_()
    wait_until(lambda: server.health()["kept"] == kept)
    expect(page.locator("#live")).to_be_empty()


def test_a_reload_keeps_photos_that_are_worked_on(open_page, server):
    page = open_page()
    held = []
    page.route("**/events", lambda route: held.append(route))
    send(page, CUP)
    wait_until(lambda: page.evaluate("() => sessionStorage.getItem('cpcapp-jobs')"))
    page.unroute("**/events")
    page.reload()
    wait_for_result(page)
    expect(page.locator(".item .name")).to_have_text([CUP.name])


def test_two_fingers_zoom(open_page, cup):
    page = open_page(cup, has_touch=True)
    whole = pixels(page, "plain")
    session = page.context.new_cdp_session(page)
    page.evaluate("() => document.getElementById('stage').scrollIntoView()")
    box = page.locator("#stage").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def touch(kind: str, reach: float) -> None:
        points = [] if kind == "touchEnd" else [{"x": x - reach, "y": y}, {"x": x + reach, "y": y}]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 40)
    for reach in (60, 90, 120):
        touch("touchMove", reach)
    touch("touchEnd", 0)
    drawn(page)
    assert (pixels(page, "plain") != whole).any()
    assert "zoomed" in page.locator("#stage").get_attribute("class")


def test_large_photos_are_fetched_in_full_only_on_zooming_in(open_page):
    wide = cv2.resize(cv2.imread(str(CUP)), (1900, 380))
    content = cv2.imencode(".png", wide)[1].tobytes()
    page = open_page()
    fetched = []
    page.on("response", lambda r: fetched.append(r.url.rsplit("/", 1)[1]))
    send(page, {"name": "wide.png", "mimeType": "image/png", "buffer": content})
    wait_for_result(page)
    assert "photo_small.jpg" in fetched and "photo.png" not in fetched
    with page.expect_response(re.compile(r"/photo\.png$")):
        page.click("#zoom-full")
        page.click("#zoom-in")
    drawn(page)


def test_many_at_once_and_one_that_is_no_photo(open_page, take_picture):
    page = open_page()
    letter = {"name": "<img src=x>.jpg", "mimeType": "image/jpeg", "buffer": b"Dear editor, ..."}
    send(page, letter, GENUINE, CUP)
    for number in (1, 2, 3):
        page.wait_for_selector(f".item:nth-child({number}) .state[data-code]")
    expect(page.locator(".item:nth-child(1) .name")).to_have_text("<img src=x>.jpg")
    expect(page.locator("#message")).to_be_visible()
    expect(page.locator("#message-text")).to_contain_text("This file is not a JPEG")
    expect(page.locator("#message-help")).not_to_be_empty()
    take_picture(page, "error.png", full_page=True)
    page.click(".item:nth-child(2) .item-open")
    wait_for_result(page)
    expect(page.locator("#sentence")).to_contain_text("o signs")
    take_picture(page, "no-signs.png", full_page=True)
    page.click(".item:nth-child(1) .item-close")
    expect(page.locator(".item")).to_have_count(2)
    # A reload shows the same photos again.
    page.reload()
    expect(page.locator(".item")).to_have_count(2)
    wait_for_result(page)
    page.click(".item:nth-child(1) .item-close")
    page.click(".item:nth-child(1) .item-close")
    expect(page.locator("#start-title")).to_be_visible()


def test_dropping_and_pasting(open_page):
    page = open_page()
    data = page.evaluate_handle(
        """async ([address, name]) => {
            const content = await (await fetch(address)).blob();
            const transfer = new DataTransfer();
            transfer.items.add(new File([content], name, {type: content.type}));
            return transfer;
        }""",
        ["/api/examples/astronaut.jpg", "dropped.jpg"],
    )
    page.dispatch_event("body", "dragenter", {"dataTransfer": data})
    expect(page.locator("#drop-cover")).to_be_visible()
    page.dispatch_event("body", "drop", {"dataTransfer": data})
    expect(page.locator("#drop-cover")).to_be_hidden()
    page.evaluate(
        """(transfer) => {
            const event = new ClipboardEvent("paste", {clipboardData: transfer, bubbles: true});
            document.body.dispatchEvent(event);
        }""",
        data,
    )
    expect(page.locator(".item .name")).to_have_text(["dropped.jpg", "dropped.jpg"])
    wait_for_result(page)


def test_downloads(open_page, cup, browser, take_picture, tmp_path):
    """The report is one file: it opens from a disk, without the server and without a network."""
    page = open_page(cup)
    with page.expect_download() as waiting:
        page.click("#overlay-png")
    assert waiting.value.suggested_filename == "cup-in-the-sky.overlay.png"
    assert Path(waiting.value.path()).read_bytes().startswith(b"\x89PNG")
    for kind, start in (("pdf", b"%pdf-"), ("html", b"<!doctype html>")):
        with page.expect_download() as waiting:
            page.click(f"#report-{kind}")
        assert waiting.value.suggested_filename == f"cup-in-the-sky.report.{kind}"
        saved = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(saved)
        assert saved.read_bytes()[:20].lower().startswith(start)
    context = browser.new_context(viewport={"width": 1000, "height": 1000}, offline=True)
    try:
        report = context.new_page()
        report.goto(saved.as_uri())
        expect(report.locator("body")).to_contain_text(page.locator("#sentence").inner_text()[:30])
        broken = report.evaluate("() => [...document.images].filter(i => !i.naturalWidth).length")
        assert report.locator("img").count() >= 3
        assert broken == 0
        take_picture(report, "report.png")
    finally:
        context.close()


def test_all_of_it_by_keyboard(open_page):
    page = open_page()
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.className") == "skip"
    reached = []
    for _ in range(14):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "() => document.activeElement.dataset.example || document.activeElement.id"
            )
        )
        if reached[-1] == "cup-in-the-sky.png":
            break
    assert {"files", "model", "cup-in-the-sky.png"} <= set(reached)
    page.keyboard.press("Enter")
    wait_for_result(page)
    wanted = {
        *("stage", "zoom-in", "layer-evidence", "layer-region", "opacity", "threshold", "swipe"),
        "overlay-png",
    }
    seen = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("() => document.activeElement.id"))
        ring = page.evaluate(
            """() => {
                const at = document.activeElement;
                const isChip = at.type === 'checkbox' || at.type === 'radio';
                const shown = isChip || at.type === 'file' ? at.nextElementSibling : at;
                return getComputedStyle(shown).outlineStyle !== 'none';
            }"""
        )
        assert ring or page.evaluate("() => document.activeElement === document.body")
        if wanted <= seen:
            break
    assert wanted <= seen
    page.focus("#threshold")
    before = pixels(page)
    for _ in range(30):
        page.keyboard.press("ArrowRight")
    drawn(page)
    assert (pixels(page) != before).any()
    page.focus("#layer-evidence")
    page.keyboard.press("Space")
    drawn(page)
    assert not pixels(page)[..., 3].any()


def test_screen_readers_find_their_way(open_page, cup):
    page = open_page(cup)
    for role in ("banner", "navigation", "main", "contentinfo"):
        expect(page.get_by_role(role).first).to_be_visible()
    for name in ("Strength of the evidence", "Show evidence from", "Compare with the photo"):
        expect(page.get_by_role("slider", name=name)).to_be_visible()
    for name in ("Evidence", "Region", "Edges"):
        expect(page.get_by_role("checkbox", name=name)).to_have_count(1)
    expect(page.get_by_role("button", name="Zoom in")).to_be_visible()
    expect(page.get_by_role("button", name="Remove cup-in-the-sky.png")).to_be_visible()
    expect(page.locator("#live")).to_have_attribute("aria-live", "polite")
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('button, input, select, a, summary')].filter((e) =>
            !e.closest('[hidden]') && !e.textContent.trim() && !e.getAttribute('aria-label')
            && !(e.labels && e.labels.length)).map((e) => e.outerHTML)"""
    )
    assert unnamed == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_nothing_sticks_out(open_page, cup, take_picture, scheme):
    phone = {
        "viewport": {"width": 390, "height": 844},
        "color_scheme": scheme,
        "is_mobile": True,
        "has_touch": True,
        "device_scale_factor": 2,
    }
    start, page = open_page(**phone), open_page(cup, **phone)
    take_picture(start, f"phone-start-{scheme}.png", full_page=True)
    take_picture(page, f"phone-result-{scheme}.png", full_page=True)
    for window in (start, page):
        assert window.evaluate("() => document.documentElement.scrollWidth") == 390
        small = window.evaluate(
            """() => [...document.querySelectorAll('button, .button, select')].filter((e) => {
                const box = e.getBoundingClientRect();
                return box.width && (box.height < 24 || box.width < 24);
            }).map((e) => e.id || e.className)"""
        )
        assert small == []
    # The verdict comes right after the photo.
    stage, verdict = (page.locator(f"#{name}").bounding_box() for name in ("stage", "verdict"))
    assert 0 <= verdict["y"] - (stage["y"] + stage["height"]) < 40


def test_dark_is_dark(open_page, cup, take_picture):
    page = open_page(cup, color_scheme="dark")
    take_picture(page, "dark.png", full_page=True)
    back, text = page.evaluate(
        """() => ["backgroundColor", "color"].map((name) => getComputedStyle(document.body)[name])
            .map((c) => c.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0) / 3)"""
    )
    assert back < 40 < 200 < text
