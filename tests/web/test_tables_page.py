"""The page of tables in a real browser, as people use it.

Pictures of it go to the folder CPCAPP_SCREENSHOTS, if it is set.
"""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest
from PIL import Image
from playwright.sync_api import expect

import serving

expect.set_options(timeout=1000 * serving.PATIENCE)

EVIL = '<img src=x onerror="window.hit=1">'


@pytest.fixture(scope="module")
def server():
    with serving.serving(max_bytes=500_000) as running:
        yield running


@pytest.fixture
def open_page(new_windows):
    new_windows.expects_errors = True
    return lambda **options: new_windows.open("/tables", **options)


@pytest.fixture(scope="module")
def window(windows, files):
    """A page with a comparison, for tests that only look at it."""
    page = windows.open("/tables")
    send(page, files)
    wait_for_plots(page)
    return page


@pytest.fixture
def page(window):
    """The same page as it was in the beginning."""
    yield window
    window.evaluate(
        """() => { const c = window.cpcappComparison;
        c.select(null);
        c.setAlpha(c.result.methods.cpca.automatic, {animate: false});
        document.activeElement.blur(); }"""
    )
    window.mouse.move(2, 2)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A workbook with a label, ages, an odd name and a bad row; a background as CSV."""
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 4)) * [6, 3, 1, 1]
    X[40:, 2] += 6.0
    book = openpyxl.Workbook()
    book.active.append(["who", "kind", "age", "a", "b", "c", EVIL])
    for i, row in enumerate(X.tolist()):
        kind = "sick" if i >= 40 else EVIL
        book.active.append([f"{EVIL}{i}" if i == 3 else f"m{i}", kind, 20 + i / 2, *row])
    book.active.append(["m80", "sick", 60, 1.0, "n.d.", 1.0, 1.0])
    book.save(folder / "mice.xlsx")
    B = pd.DataFrame(rng.normal(size=(70, 4)) * [6, 3, 1, 1], columns=["a", "b", "c", EVIL])
    B.to_csv(folder / "control.csv", index=False)
    return folder / "mice.xlsx", folder / "control.csv"


def wait_for_drawing(page):
    """Wait until all points have come to rest."""
    code = """() => Object.values(window.cpcappComparison.plots).every(
        ({scatter}) => scatter.share === 1 && scatter.frame === 0)"""
    serving.wait_until(lambda: page.evaluate(code))


def wait_for_plots(page):
    expect(page.locator("#comparison")).to_be_visible()
    expect(page.locator("#message")).to_be_hidden()
    wait_for_drawing(page)


def send(page, files):
    page.set_input_files("#file-target", files[0])
    expect(page.locator("#chosen-target")).to_have_text(Path(files[0]).name)
    page.set_input_files("#file-background", files[1])


def plot(page, method):
    return page.locator(f'[data-method="{method}"] .scatter')


def places(page, method):
    """Where the rows are drawn, in pixels of the plot."""
    code = """(method) => { const s = window.cpcappComparison.plots[method].scatter;
        return Array.from({length: s.target.length / 2}, (_, i) => s.place(i)); }"""
    return np.array(page.evaluate(code, method))


def selected(page, method="pca"):
    code = "(method) => Array.from(window.cpcappComparison.plots[method].scatter.selected || [])"
    return np.flatnonzero(page.evaluate(code, method))


def pixels(page, method):
    """The picture of the points."""
    code = "(m) => window.cpcappComparison.plots[m].scatter.canvas.toDataURL('image/png')"
    data = page.evaluate(code, method).partition(",")[2]
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")).astype(int)


def test_from_files_to_plots(page):
    assert page.inner_text("#setup-title") == "mice.xlsx, Sheet against control.csv"
    assert "81 rows against 70 rows; 4 columns can be compared." in page.inner_text("#setup-text")
    assert "1 row can't be used" in page.inner_text("#setup-problems")
    assert "row 82: column 'b' is 'n.d.', not a number" in page.inner_text("#row-facts")
    assert "80 of 81 rows used" in page.inner_text("#row-facts")
    # Nothing of the names is run or becomes a part of the page.
    assert page.evaluate("window.hit") is None
    assert page.locator("main img").count() == 0
    assert page.locator("#legend button").first.inner_text().startswith(EVIL)
    # cPCA++ finds what only the target has; PCA what is loud in both.
    tops = {
        method: page.locator(f'[data-method="{method}"] .bar-row .name').first.inner_text()
        for method in ("pca", "cpca++")
    }
    assert tops == {"pca": "a", "cpca++": "c"}
    assert re.search(r"\d+ times the variance", page.inner_text('[data-method="cpca++"] .power'))


def test_points_have_the_colour_of_their_label(page):
    picture, where = pixels(page, "cpca++"), places(page, "cpca++")
    for row, colour in ((10, (0, 114, 178)), (60, (213, 94, 0))):
        x, y = np.rint(where[row]).astype(int)
        # The centre of a disc, or another one over it.
        near = picture[y - 3 : y + 4, x - 3 : x + 4].reshape(-1, 3)
        assert np.abs(near - colour).sum(axis=1).min() < 60


def test_a_box_in_one_plot_selects_in_all(page):
    where = places(page, "cpca++")
    low, high = where[40:].min(axis=0) - 6, where[40:].max(axis=0) + 6
    inside = np.flatnonzero(((where >= low) & (where <= high)).all(axis=1))
    plot(page, "cpca++").scroll_into_view_if_needed()
    box = plot(page, "cpca++").locator(".points").bounding_box()
    page.mouse.move(box["x"] + low[0], box["y"] + low[1])
    page.mouse.down()
    page.mouse.move(box["x"] + high[0], box["y"] + high[1], steps=5)
    page.mouse.up()
    for method in ("pca", "cpca", "cpca++"):
        np.testing.assert_array_equal(selected(page, method), inside)
    summary = page.inner_text("#summary")
    assert summary.startswith(f"{len(inside)} of 80 rows selected (kind: sick 40 of 40")
    assert page.locator("#selected-list li").count() == min(len(inside), 51)
    before = pixels(page, "pca")
    page.click("#clear-selection")
    wait_for_drawing(page)
    assert (pixels(page, "pca") != before).any()
    assert "none selected" in page.inner_text("#summary")


def test_everything_can_be_done_by_keyboard(page):
    # By label.
    sick = page.locator("#legend button", has_text="sick")
    sick.focus()
    page.keyboard.press("Enter")
    expect(sick).to_have_attribute("aria-pressed", "true")
    np.testing.assert_array_equal(selected(page), np.arange(40, 80))
    expect(page.locator("#summary")).to_have_text("40 of 80 rows selected (kind: sick 40 of 40).")
    assert page.get_attribute("#summary", "aria-live") == "polite"
    # Row by row, along the first component.
    plot(page, "pca").focus()
    page.keyboard.press("Escape")
    assert len(selected(page)) == 0
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    third = int(np.argsort(places(page, "pca")[:, 0])[2])
    page.keyboard.press("Enter")
    assert selected(page).tolist() == [third]
    assert f"row {third + 2}" in page.inner_text("#live")
    # The slider.
    page.focus("#alpha")
    start = int(page.input_value("#alpha"))
    page.keyboard.press("ArrowLeft")
    assert int(page.input_value("#alpha")) == start - 1
    assert re.match(r"alpha [\d.]+", page.get_attribute("#alpha", "aria-valuetext"))


def test_the_slider_moves_points_and_features(page):
    before, name = places(page, "cpca"), '[data-method="cpca"] .bar-row .name'
    assert page.locator(name).first.inner_text() == "c"
    assert "(automatic)" in page.inner_text("#alpha-value")
    page.fill("#alpha", "0")
    wait_for_drawing(page)
    assert "(as PCA of scaled columns)" in page.inner_text("#alpha-value")
    tops = {page.locator(name).nth(0).inner_text(), page.locator(name).nth(4).inner_text()}
    assert "a" in tops
    assert np.abs(places(page, "cpca") - before).max() > 20
    assert "turned within the plane" in page.inner_text('[data-method="cpca"] .power')
    # The points of PCA and cPCA++ stay.
    page.locator("#offered button").last.click()
    wait_for_drawing(page)
    expect(page.locator("#offered button").last).to_have_attribute("aria-pressed", "true")


def test_hovering_shows_the_row(page):
    plot(page, "cpca++").scroll_into_view_if_needed()
    box = plot(page, "cpca++").locator(".points").bounding_box()
    x, y = places(page, "cpca++")[3]
    page.mouse.move(box["x"] + x, box["y"] + y)
    tip = plot(page, "cpca++").locator(".tip")
    expect(tip).to_be_visible()
    row = page.evaluate("window.cpcappComparison.plots.pca.scatter.hovered")
    near = places(page, "cpca++") - [x, y]
    assert np.hypot(*near[row]) == np.hypot(*near.T).min()
    assert f"row\t{row + 2}" in tip.inner_text()
    assert page.evaluate("window.hit") is None


def test_columns_are_searched_chosen_and_explained(open_page, files):
    page = open_page()
    send(page, files)
    wait_for_plots(page)
    page.click("#toggle-setup")
    boxes = page.locator("#column-list input")
    assert boxes.count() == 7
    who = page.locator("#column-list li", has_text="who")
    expect(who.locator("input")).to_be_disabled()
    assert who.locator(".why").inner_text() == "text"
    age = page.locator("#column-list li", has_text="age")
    assert age.locator(".why").inner_text() == "not in the background"
    page.click("#columns-none")
    expect(page.locator("#compare")).to_be_disabled()
    page.fill("#column-search", "B")
    expect(page.locator('#column-list input[value="a"]')).to_be_hidden()
    page.click("#columns-all")
    page.fill("#column-search", "")
    page.check('#column-list input[value="c"]')
    expect(page.locator("#column-count")).to_have_text("2 chosen")
    # Numbers as a range of colours.
    page.select_option("#label", "age")
    page.click("#compare")
    expect(page.locator("#row-facts")).to_contain_text("2 columns compared")
    wait_for_plots(page)
    inputs = page.locator(".ramp input")
    inputs.nth(0).fill("50")
    inputs.nth(1).fill("52")
    inputs.nth(1).press("Enter")
    np.testing.assert_array_equal(selected(page), np.arange(60, 65))
    expect(page.locator("#summary")).to_have_text("5 of 80 rows selected (age: 50 to 52).")


def test_a_label_that_is_a_feature_is_taken_out(open_page, files):
    page = open_page()
    send(page, files)
    wait_for_plots(page)
    page.click("#toggle-setup")
    page.select_option("#label", "c")
    expect(page.locator('#column-list input[value="c"]')).to_be_disabled()
    expect(page.locator("#column-count")).to_have_text("3 chosen")
    page.select_option("#label", "")
    expect(page.locator('#column-list input[value="c"]')).to_be_enabled()


def test_background_points_are_shown_on_demand(page):
    box = page.locator("#show-background")
    drawn = []
    for shown in (False, True, False):
        box.set_checked(shown, force=True)
        wait_for_drawing(page)
        picture = pixels(page, "cpca++")
        is_paper = (picture == picture[0, 0]).all(axis=2)
        spread = picture.max(axis=2) - picture.min(axis=2)
        drawn.append(int(((spread < 30) & ~is_paper).sum()))  # grey
    assert drawn[1] > drawn[0] + 200
    assert drawn[2] == drawn[0]


def test_downloads(page):
    with page.expect_download() as caught:
        page.click("#download-scores")
    scores = pd.read_csv(caught.value.path())
    assert caught.value.suggested_filename == "mice.scores.csv"
    assert len(scores) == 150
    with page.expect_download() as caught:
        page.click("#download-features")
    assert set(pd.read_csv(caught.value.path())["method"]) == {"pca", "cpca", "cpca++"}
    page.locator("#legend button", has_text="sick").click()
    with page.expect_download() as caught:
        page.click("#download-shown")
    shown = pd.read_csv(caught.value.path())
    assert shown["selected"].tolist() == [0] * 40 + [1] * 40
    np.testing.assert_allclose(
        shown[["cpca++_1", "cpca++_2"]], scores[["cpca++_1", "cpca++_2"]][:80], rtol=1e-4, atol=1e-5
    )


def test_errors_say_what_to_do(open_page, files, tmp_path):
    page = open_page()
    (tmp_path / "twice.csv").write_text("a,a\n1,2\n")
    send(page, (tmp_path / "twice.csv", files[1]))
    message = page.locator("#message")
    expect(message).to_contain_text("twice.csv: two columns are called 'a'.")
    expect(message).to_contain_text("Rename one of them.")
    # The next one goes on from here.
    page.set_input_files("#file-target", files[0])
    wait_for_plots(page)
    page.click("#other-tables")
    expect(page.locator("#start")).to_be_visible()
    (tmp_path / "large.csv").write_bytes(b"a,b\n" + b"1,2\n" * 200_000)
    page.set_input_files("#file-target", tmp_path / "large.csv")
    expect(message).to_contain_text("large.csv is larger than 0.5 MB.")


def test_errors_are_seen_on_a_phone(open_page, files, tmp_path):
    page = open_page(viewport={"width": 390, "height": 844})
    (tmp_path / "empty.csv").write_text("")
    send(page, (tmp_path / "empty.csv", files[1]))
    expect(page.locator("#message-text")).to_have_text("empty.csv is empty.")
    expect(page.locator("#message-text")).to_be_in_viewport()


def test_tables_without_a_common_column(open_page, files, tmp_path):
    page = open_page()
    (tmp_path / "other.csv").write_text("p,q\n1,2\n3,4\n")
    send(page, (files[0], tmp_path / "other.csv"))
    expect(page.locator("#setup-problems li").first).to_have_text(
        "A comparison needs two columns of numbers that both tables have. Only in other.csv: p, q."
    )
    expect(page.locator("#compare")).to_be_disabled()


def test_tables_that_the_server_has_removed(open_page, server, files):
    page = open_page()
    send(page, files)
    wait_for_plots(page)
    (job,) = set(re.findall(r"/api/jobs/([^/]+)/", page.get_attribute("#download-scores", "href")))
    assert server.client.delete(f"/api/jobs/{job}").status_code == 204
    page.click("#toggle-setup")
    page.click("#compare")
    expect(page.locator("#message")).to_contain_text("There is no such job.")
    # From here one can go on.
    expect(page.locator("#start")).to_be_visible()
    expect(page.locator("#setup")).to_be_hidden()
    send(page, files)
    wait_for_plots(page)


def test_large_numbers_fit_beside_the_axis(open_page, files, tmp_path):
    page = open_page()
    rng = np.random.default_rng(0)
    for name in ("target", "background"):
        values = 4e5 * rng.normal(size=(50, 2)) + [0, 1e6]
        pd.DataFrame(values, columns=["income", "debt"]).to_csv(tmp_path / name, index=False)
        (tmp_path / name).rename(tmp_path / f"{name}.csv")
    page.evaluate(
        """() => {
            const draw = CanvasRenderingContext2D.prototype.fillText;
            window.ends = [];
            window.named = {};
            CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
                const size = this.measureText(text);
                const turned = this.getTransform();
                if (text.startsWith("component")) {
                    // Where the letters of a turned name end, beside the numbers.
                    const right = turned.e + size.actualBoundingBoxDescent;
                    window.named[text] = turned.b ? right : null;
                } else {
                    const share = this.textAlign === "right" ? 1 : 0.5;
                    window.ends.push(x - share * size.width);
                }
                draw.call(this, text, x, y);
            };
        }"""
    )
    send(page, (tmp_path / "target.csv", tmp_path / "background.csv"))
    wait_for_plots(page)
    ends, named = page.evaluate("() => [window.ends, window.named]")
    assert ends
    assert named["component 1"] is None  # level
    assert 0 < named["component 2"] <= min(ends)


@pytest.mark.parametrize("example", ["synthetic", "mice"])
def test_examples_are_one_click_away(open_page, example, take_picture):
    page = open_page()
    page.click(f"[data-example={example}]")
    wait_for_plots(page)
    take_picture(page, f"tables-{example}.png", full_page=True)
    assert page.locator("#legend button").count() == {"synthetic": 4, "mice": 2}[example]


def test_it_fits_every_screen(open_page, files, take_picture):
    page = open_page()
    for scheme in ("light", "dark"):
        for width in (390, 768, 1360):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": 844})
            take_picture(page, f"tables-start-{width}-{scheme}.png", full_page=True)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
    send(page, files)
    wait_for_plots(page)
    page.click("#toggle-setup")
    colours = set()
    for scheme in ("light", "dark"):
        for width in (390, 768, 1360):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": 844})
            wait_for_drawing(page)
            take_picture(page, f"tables-{width}-{scheme}.png", full_page=True)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            for method in ("pca", "cpca", "cpca++"):
                box = plot(page, method).bounding_box()
                assert box["x"] >= 0
                assert box["x"] + box["width"] <= width
        colours.add(tuple(pixels(page, "pca")[0, 0].tolist()))
    # Plots follow the colours of the page.
    assert len(colours) == 2
