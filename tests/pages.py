"""Pages and documents as their readers see them."""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from html.parser import HTMLParser

VOID = {"meta", "img", "input"}


class Page(HTMLParser):
    """What a browser would load, follow and read out; badly nested tags are an error."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.sources = [], [], []
        self.styles, self.scripts, self.metas = [], [], {}
        self.text, self.rows, self._open = "", [], []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        assert len(found) == len(attributes), f"{tag} has an attribute twice"
        self.tags.append((tag, found))
        # Code in an attribute would run in spite of all escaping.
        assert not [name for name in found if name.startswith("on") or name == "style"], found
        if tag == "meta":
            self.metas[found.get("name") or found.get("http-equiv") or "charset"] = found
        if tag not in VOID:
            self._open.append(tag)
        self.links += [found["href"]] if "href" in found else []
        self.sources += [found["src"]] if "src" in found else []
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th") and self.rows:
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open[-1:] in (["style"], ["script"]):
            (self.styles if self._open[-1] == "style" else self.scripts).append(data)
            return
        self.text += data
        if {"td", "th"} & set(self._open) and self.rows:
            self.rows[-1][-1] += data

    @property
    def policy(self):
        """The content security policy, as a dict of its parts."""
        parts = self.metas["Content-Security-Policy"]["content"].split("; ")
        return {name: rest for name, _, rest in (part.partition(" ") for part in parts)}

    def check_policy(self):
        """Nothing may run or be loaded but what is inside."""
        assert self.policy["default-src"] == "'none'"
        assert self.policy["base-uri"] == self.policy["form-action"] == "'none'"
        for kind, contents in (("style-src", self.styles), ("script-src", self.scripts)):
            wanted = " ".join(hash_of(text) for text in contents)
            assert self.policy.get(kind, "") == wanted
        assert not [tag for tag, _ in self.tags if tag in ("link", "iframe", "object", "base")]
        for style in self.styles:
            assert "url(" not in style
            assert "@import" not in style


def hash_of(text):
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def pdf_text(document):
    """Return the text of a PDF by reportlab, page after page, without the spaces in it."""
    objects = dict(re.findall(rb"(\d+) 0 obj\s(.*?)endobj", document, re.DOTALL))
    fonts = {}
    for content in objects.values():
        if re.search(rb"/Type /Font\b(?!D)", content):
            name = re.search(rb"/Name /(\S+)", content)[1]
            table = re.search(rb"/ToUnicode (\d+) 0 R", content)
            fonts[name] = {} if table is None else _read_codes(_stream(objects[table[1]]))
    pages = sorted(
        (int(number), int(re.search(rb"/Contents (\d+) 0 R", content)[1]))
        for number, content in objects.items()
        if re.search(rb"/Type /Page\b(?!s)", content)
    )
    return "".join(_read_page(_stream(objects[b"%d" % at]), fonts) for _, at in pages)


def _stream(content):
    head, _, body = content.partition(b"stream\n")
    body = body[: int(re.search(rb"/Length (\d+)", head)[1])]
    if b"/ASCII85Decode" in head:
        body = base64.a85decode(body.strip().removesuffix(b"~>"))
    return zlib.decompress(body) if b"/FlateDecode" in head else body


def _read_codes(table):
    """Return which character each code of a font stands for."""
    return {
        int(code, 16): bytes.fromhex(character.decode()).decode("utf-16-be")
        for code, character in re.findall(rb"^<(\w{2})> <(\w{4,})>$", table, re.MULTILINE)
    }


def _read_page(content, fonts):
    text, codes = "", {}
    for font, string in re.findall(
        rb"/(\S+) [\d.]+ Tf|\(((?:\\.|[^\\)])*)\) Tj", content, re.DOTALL
    ):
        if font:
            codes = fonts[font]
            continue
        raw = re.sub(
            rb"\\(\d{3}|.)",
            lambda match: bytes([int(match[1], 8)]) if match[1].isdigit() else match[1],
            string,
            flags=re.DOTALL,
        )
        text += "".join(codes.get(byte, chr(byte)) for byte in raw)
    return "".join(text.split())
