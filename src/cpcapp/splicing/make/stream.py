"""A stream of splices with exact masks, made in batches on a GPU. Needs the extra ``torch``.

Two photos get a history each, and a part of one is pasted into the other; then both go through the
same last steps. Often the two histories differ in one step only: a network that learns from splices
whose sides have nothing in common learns little about real ones.
"""

from __future__ import annotations

import bisect
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from cpcapp.splicing.make.histories import (
    DEMOSAICERS,
    KERNELS,
    Step,
    blur,
    quality_tables,
    resize,
)

History = list[Step]

# Things in a photo that are told apart when some of them are blurred.
_MAX_THINGS = 256
# Of small photos that are saved twice.
_HIGH_QUALITIES = (85, 95)
# Photos that are drawn until one is as large as the part that is wanted of it.
_TRIES = 4
# Sides of the boxes around small parts, as shares of a photo's.
_SMALL_BOX = (0.17, 0.3)
_PART_BOX = (0.2, 0.45)


@dataclass(frozen=True)
class StreamOptions:
    """What the splices of a stream are like. All shares were set by hand."""

    # Side of a splice in pixels, a multiple of 8.
    size: int = 256
    # Photos that share the kinds of their steps; a batch has several groups.
    group: int = 8
    # Of photos without a splice.
    authentic_share: float = 0.25
    # Of groups whose two histories differ in one step only.
    one_step_share: float = 0.4
    # Of groups in which the pasted part is the photo itself after one step more.
    same_photo_share: float = 0.08
    # Of groups in which the pasted part comes from another place of the same photo.
    moved_share: float = 0.08
    # How often the blocks of the last JPEG before the splice begin at the upper left corner. A
    # host is mostly opened and saved as it is; a pasted part lies anywhere.
    aligned_hosts: float = 0.75
    aligned_donors: float = 0.2
    # How often a thing that people outlined is pasted, where outlines are known.
    segment_share: float = 0.6
    # Of soft outlines.
    feather_share: float = 0.35
    # Of groups whose seams were smoothed over by hand.
    retouched_share: float = 0.1
    # How often the pasted part takes the mean colour of the host.
    colour_match_share: float = 0.3
    # Of groups in which a part of each photo is out of focus: what lies before or behind.
    focus_share: float = 0.35
    # Of groups whose photos show a collage: parts of other photos, put there before all of the
    # history. They look like splices, and are none.
    collage_share: float = 0.2
    # Of groups whose sources were made larger first and taken by a camera again: photos of many
    # pixels have little detail in each of them.
    large_share: float = 0.35
    # How often the table of the last JPEG is given, as it is in a file.
    known_table_share: float = 0.8
    # Places of a photo that are looked at for a thing that people outlined: where little is
    # outlined, one is mostly beside it.
    outline_tries: int = 1
    # Of groups whose pasted parts are small, about 1 to 3 % of a photo.
    small_share: float = 0.0
    # Of groups with two to five pasted parts, each of another photo.
    several_share: float = 0.0
    # How often what is pasted was resized or turned last, to fit in, and the host was not.
    fitted_share: float = 0.0
    # How often photos of a side are taken as they were found, with the traces of their own
    # cameras and tables, and nothing else.
    as_found_share: float = 0.0
    # Of groups of small photos, saved at a high quality before the splice and after it.
    twice_saved_share: float = 0.0
    # Of splices that were sent on two or three times: each sender makes them smaller and
    # compresses them.
    laundered_share: float = 0.0

    def of_more_kinds(self) -> StreamOptions:
        """Return options with splices of all kinds, about half of them of the kinds above."""
        return replace(
            self,
            outline_tries=4,
            small_share=0.2,
            several_share=0.2,
            fitted_share=0.25,
            as_found_share=0.25,
            twice_saved_share=0.12,
            laundered_share=0.1,
        )


class SpliceBatch(NamedTuple):
    """A batch of splices."""

    # (n, 3, size, size): whole levels from 0 to 255.
    image: Tensor
    # (n, 1, size, size): 1 where something was pasted.
    mask: Tensor
    # (n, 64): steps of the luminance table of the last JPEG, whose blocks begin at the upper left
    # corner; all 0 where it is not known or there was none.
    table: Tensor


class SpliceStream:
    """Makes batches of splices from photos: the same seed and device give the same ones.

    ``photos``: uint8, (3, height, width), on the device that the splices are made on.

    ``segments``: what people outlined in each photo, by number, (height, width); None where nobody
    did.

    ``weights``: how often each photo is drawn, relative to the others.

    Examples
    --------
    >>> photos = [torch.randint(0, 256, (3, 120, 160), dtype=torch.uint8) for _ in range(3)]
    >>> stream = SpliceStream(photos, [None] * 3, StreamOptions(size=64, group=2), seed=1)
    >>> batch = stream.draw(4)
    >>> batch.image.shape, batch.mask.shape, batch.table.shape
    (torch.Size([4, 3, 64, 64]), torch.Size([4, 1, 64, 64]), torch.Size([4, 64]))
    """

    def __init__(
        self,
        photos: Sequence[Tensor],
        segments: Sequence[Tensor | None],
        options: StreamOptions | None = None,
        *,
        seed: int = 0,
        weights: Sequence[float] = (),
    ) -> None:
        self.options = options or StreamOptions()
        self.photos = list(photos)
        self.segments = list(segments)
        self.device = photos[0].device
        self.cumulative = list(itertools.accumulate(weights)) if weights else None
        self.random = random.Random(seed)
        self.generator = torch.Generator(self.device).manual_seed(seed)

    @torch.no_grad()
    def draw(self, n: int) -> SpliceBatch:
        """Return a batch of splices, ``n`` a multiple of the group."""
        groups = [self._group() for _ in range(n // self.options.group)]
        return SpliceBatch(*(torch.cat(parts) for parts in zip(*groups, strict=True)))

    def _rand(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.generator, device=self.device)

    def _randn(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, device=self.device)

    def _randint(self, low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=self.generator, device=self.device)

    # -- one group -------------------------------------------------------------------------

    def _group(self) -> SpliceBatch:
        options, chance = self.options, self.random.random
        saved_twice = self._happens(options.twice_saved_share)
        last, shrink = self._draw_last()
        if saved_twice:
            last, shrink = [self._draw_jpeg(_HIGH_QUALITIES)], 1.0
        canvas = -(-round(options.size / shrink) // 8) * 8
        large = not saved_twice and chance() < options.large_share
        host_history = self._draw_history(large)
        as_found = not saved_twice and self._happens(options.as_found_share)
        if saved_twice:
            host_history = [self._draw_jpeg(_HIGH_QUALITIES)]
        elif as_found:
            host_history = []
        aligned = chance() < options.aligned_hosts
        host = self._draw_photos(host_history, canvas, aligned, large, as_found)
        if saved_twice:
            donor_history = self._fit([self._draw_jpeg(_HIGH_QUALITIES)])
            donor = self._draw_photos(donor_history, canvas, chance() < 0.5, large)
        else:
            donor = self._draw_donor(host, host_history, canvas, aligned, large, as_found)
        small = self._happens(options.small_share)
        mask = self._draw_masks(donor[1], canvas, _SMALL_BOX if small else None)
        pasted = donor[0]
        if self._happens(options.several_share):
            pasted, mask = self._add_parts(donor, mask, _SMALL_BOX if small else _PART_BOX)
        keep = self._rand(options.group, 1, 1, 1)
        mask = mask * (keep >= options.authentic_share)
        alpha = mask
        if chance() < options.feather_share:
            alpha = blur(mask, self.random.uniform(0.5, 2.5 if chance() < 0.75 else 5.0))
        if chance() < options.colour_match_share:
            pasted = self._match_colours(pasted, host[0])
        x = host[0] + alpha * (pasted - host[0])
        if chance() < options.retouched_share:
            share = blur(mask, self.random.uniform(1.0, 3.0))
            near = 4.0 * share * (1.0 - share)  # 1 on the seam
            x = x + near * (blur(x, self.random.uniform(0.6, 1.5)) - x)
        x = x.round().clamp(0.0, 255.0)
        table = torch.zeros(options.group, 64, device=self.device)
        resizes = sum(step.kind == "resize" for step in last)
        for step in last:
            if step.kind == "resize":
                resizes -= 1
                side = round(x.shape[2] * step.scale) if resizes else options.size
                size = (side, side)
                x = resize(x, size, step.values["kernel"], antialias=step.values["antialias"])
                x = x.round().clamp(0.0, 255.0)
                mask = F.interpolate(mask, size=size)
                continue
            x = step.apply(x, self.generator)
        if last and last[-1].kind == "jpeg" and chance() < options.known_table_share:
            table = last[-1].values["luminance"].reshape(options.group, 64)
        x, mask = (part[:, :, : options.size, : options.size] for part in (x, mask))
        return SpliceBatch(x, mask, table)

    def _draw_donor(
        self,
        host: tuple[Tensor, Tensor],
        history: History,
        canvas: int,
        aligned: bool,
        large: bool,
        as_found: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Draw the photos that parts are taken of, and their segments."""
        options, u = self.options, self.random.random()
        if u < options.same_photo_share:
            kind = self.random.choice(["blur", "resize", "noise", "jpeg", "denoise", "sharpen"])
            changed = self._draw_step(kind).apply(host[0], self.generator)
            if changed.shape[2:] != host[0].shape[2:]:
                changed = resize(changed, (canvas, canvas), "bicubic", antialias=True)
            return changed, host[1]
        if u < options.same_photo_share + options.moved_share:
            shift = [self.random.randint(canvas // 8, canvas * 7 // 8) for _ in range(2)]
            photos, labels = (torch.roll(part, shift, (2, 3)) for part in host)
            return photos, labels
        one_step = self.random.random() < options.one_step_share
        if not (one_step and self.random.random() < 0.6):
            aligned = self.random.random() < options.aligned_donors
        if one_step:
            donor_history = self._change_one_step(history)
        else:
            large = self.random.random() < options.large_share
            donor_history = self._draw_history(large)
            as_found = self._happens(options.as_found_share)
            if as_found:
                donor_history = []
        donor_history = self._fit(donor_history)
        return self._draw_photos(donor_history, canvas, aligned, large, as_found)

    def _fit(self, history: History) -> History:
        """Return a history of what is sometimes resized or turned last, to fit into a photo."""
        if not self._happens(self.options.fitted_share):
            return history
        return [*history, self._draw_step(self.random.choice(["resize", "resize", "turn"]))]

    def _add_parts(
        self, donor: tuple[Tensor, Tensor], mask: Tensor, box: tuple[float, float]
    ) -> tuple[Tensor, Tensor]:
        """Return what is pasted, and where, with one to four smaller parts of other photos."""
        pasted = donor[0]
        for number in range(1, self.random.randint(2, 5)):
            photos, labels = (part.roll(number, 0) for part in donor)
            more = self._draw_masks(labels, photos.shape[2], box)
            pasted = torch.where(more > 0, photos, pasted)
            mask = torch.maximum(mask, more)
        return pasted, mask

    def _match_colours(self, pasted: Tensor, host: Tensor) -> Tensor:
        mean, wanted = (x.mean(dim=(2, 3), keepdim=True) for x in (pasted, host))
        return (pasted - mean) * self.random.uniform(0.8, 1.2) + wanted

    # -- histories -------------------------------------------------------------------------

    def _draw_step(self, kind: str) -> Step:
        pick, uniform = self.random, self.random.uniform
        if kind == "noise":
            grain = uniform(0.4, 1.0) if pick.random() < 0.4 else 0.0
            return Step(
                kind, {"read": uniform(0.2, 3.0), "shot": uniform(0.0, 0.06), "grain": grain}
            )
        if kind == "mosaic":
            phase = (pick.randint(0, 1), pick.randint(0, 1))
            return Step(kind, {"phase": phase, "demosaicer": pick.choice(DEMOSAICERS)})
        if kind == "denoise":
            return Step(kind, {"sigma": uniform(0.7, 1.8), "threshold": uniform(1.0, 8.0)})
        if kind == "sharpen":
            # Many cameras sharpen strongly, and only what is stronger than noise.
            amount = uniform(0.2, 1.2) if pick.random() < 0.6 else uniform(1.0, 2.5)
            threshold = uniform(0.5, 5.0) if pick.random() < 0.5 else 0.0
            return Step(
                kind, {"amount": amount, "sigma": uniform(0.6, 2.0), "threshold": threshold}
            )
        if kind == "blur":
            return Step(kind, {"sigma": uniform(0.4, 1.2)})
        if kind == "tone":
            balance = [uniform(0.88, 1.12) for _ in range(3)]
            return Step(kind, {"gamma": uniform(0.75, 1.3), "balance": balance})
        if kind == "jpeg":
            return self._draw_jpeg(pick.choice([(50, 80), (75, 95), (88, 100)]))
        if kind == "turn":
            angle, zoom = (self._rand(self.options.group) for _ in range(2))
            return Step(kind, {"angle": (angle - 0.5) * 0.6, "zoom": 0.85 + 0.4 * zoom})
        return Step(
            "resize",
            {
                "scale": (scale := uniform(0.6, 1.5)),
                # A mean of areas makes photos smaller; larger ones would have steps.
                "kernel": pick.choice(KERNELS if scale < 1.0 else KERNELS[:2]),
                "antialias": pick.random() < 0.7,
            },
        )

    def _draw_jpeg(self, qualities: tuple[int, int]) -> Step:
        """Draw a compression: qualities differ from photo to photo, tables from the standard."""
        group = self.options.group
        quality = self._randint(qualities[0], qualities[1] + 1, group).float()
        tables = quality_tables(quality)
        if self.random.random() < 0.4:
            # Cameras and editors: other slopes over the frequencies, and other single steps.
            slope = self.random.uniform(-0.06, 0.06)
            frequency = torch.arange(8, device=self.device, dtype=torch.float32)
            tilt = torch.exp(slope * (frequency[:, None] + frequency[None]))
            noise = self._rand(8, 8)
            factor = tilt * (0.9 + 0.25 * noise)
            tables = tuple((t * factor).round().clamp(1.0, 255.0) for t in tables)
        return Step(
            "jpeg",
            {
                "luminance": tables[0],
                "chrominance": tables[1],
                "subsample": self.random.random() < 0.6,
            },
        )

    def _draw_history(self, large: bool) -> History:
        """Draw what happened to a photo before it was spliced.

        A ``large`` one, whose source was made larger first, was always taken by a camera: noise and
        mosaic hide that.
        """
        shares = (
            ("noise", 0.95 if large else 0.45),
            ("mosaic", 0.9 if large else 0.45),
            ("denoise", 0.5 if large else 0.2),
            ("sharpen", 0.5 if large else 0.3),
            ("tone", 0.2),
            ("jpeg", 0.8),
            ("resize", 0.4),
            ("turn", 0.12),
            ("blur", 0.08),
            ("jpeg", 0.25),
        )
        return [self._draw_step(kind) for kind, share in shares if self.random.random() < share]

    def _change_one_step(self, history: History) -> History:
        """Return a history that differs from another in one step: left out, added or drawn anew."""
        changed = list(history)
        if changed and self.random.random() < 0.7:
            at = self.random.randrange(len(changed))
            if self.random.random() < 0.5:
                del changed[at]
            else:
                changed[at] = self._draw_step(changed[at].kind)
            return changed
        kinds = ["noise", "mosaic", "denoise", "sharpen", "jpeg", "jpeg", "resize", "turn"]
        kind = self.random.choice(kinds)
        changed.insert(self.random.randint(0, len(changed)), self._draw_step(kind))
        return changed

    def _draw_last(self) -> tuple[History, float]:
        """Draw what happens to the finished splice, and by how much it is made smaller."""
        if self._happens(self.options.laundered_share):
            return self._draw_senders()
        u = self.random.random()
        jpeg = self._draw_jpeg(self.random.choice([(60, 85), (80, 95), (88, 100)]))
        if u < 0.2:
            return [], 1.0
        if u < 0.66:
            return [jpeg], 1.0
        if u < 0.72:
            return [self._draw_step("jpeg"), jpeg], 1.0
        if u < 0.8:
            kind = self.random.choice(["sharpen", "blur", "tone", "denoise"])
            return [self._draw_step(kind), jpeg], 1.0
        shrink = self._draw_shrinking(0.5)
        return ([shrink, jpeg] if self.random.random() < 0.85 else [shrink]), shrink.scale

    def _draw_shrinking(self, least: float) -> Step:
        scale, kernel = self.random.uniform(least, 1.0), self.random.choice(KERNELS)
        return Step("resize", {"scale": scale, "kernel": kernel, "antialias": True})

    def _draw_senders(self) -> tuple[History, float]:
        """Draw what two or three senders do to a splice, and by how much they make it smaller."""
        last: History = []
        shrink = 1.0
        for _ in range(self.random.randint(2, 3)):
            if self.random.random() < 0.7:
                last.append(self._draw_shrinking(0.7))
                shrink *= last[-1].scale
            last.append(self._draw_jpeg((60, 88)))
        return last, shrink

    # -- photos and masks ------------------------------------------------------------------

    def _draw_photos(
        self,
        history: History,
        canvas: int,
        aligned: bool,
        large: bool,
        as_found: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Return photos after a history, and their segments, cropped to a canvas."""
        scale = 1.0
        for step in history:
            scale *= step.scale
        side = -(-round(canvas / scale + 24) // 8) * 8
        # Smaller first: most source photos were once JPEGs themselves.
        if as_found:
            before = 1.0
        elif large:
            before = self.random.uniform(1.2, 2.5)
        else:
            before = 1.0 if self.random.random() < 0.3 else self.random.uniform(0.55, 0.95)
        tries = _TRIES if as_found else 1
        crops = [self._crop(round(side / before), tries) for _ in range(self.options.group)]
        x, labels = (torch.cat(parts) for parts in zip(*crops, strict=True))
        # Resizing and what follows leave no trace of the collage itself.
        if before != 1.0 and self.random.random() < self.options.collage_share:
            shapes = self._draw_masks(labels, x.shape[2])
            x = torch.where(shapes > 0, x.roll(1, 0), x)
        x = F.interpolate(x, size=(side, side), mode="bicubic", antialias=True)
        labels = F.interpolate(labels, size=(side, side))
        if self.random.random() < 0.5:
            x, labels = x.flip(3), labels.flip(3)
        x = x.round().clamp(0.0, 255.0)
        if not as_found and self.random.random() < self.options.focus_share:
            x = self._defocus(x, labels)
        for step in history:
            x = step.apply(x, self.generator)
            if step.kind == "resize":
                labels = F.interpolate(labels, size=x.shape[2:])
        top, left = (
            self.random.randint(0, max(0, length - canvas))
            // (8 if aligned else 1)
            * (8 if aligned else 1)
            for length in x.shape[2:]
        )
        box = (slice(None), slice(None), slice(top, top + canvas), slice(left, left + canvas))
        return _fill(x[box], canvas), _fill(labels[box], canvas)

    def _defocus(self, x: Tensor, labels: Tensor) -> Tensor:
        """Blur some of the things that people outlined, or smooth parts where nobody did."""
        group, (height, width) = len(x), x.shape[2:]
        nodes = self._randn(group, 1, 4, 4)
        weight = torch.sigmoid(4.0 * F.interpolate(nodes, size=(height, width), mode="bicubic"))
        if self.random.random() < 0.6:
            drawn = self._rand(group, _MAX_THINGS)
            number = (labels.flatten(1).long() % _MAX_THINGS).clamp(min=0)
            behind = (drawn < 0.5).float().gather(1, number).view_as(labels)
            weight = torch.where(labels >= 0, blur(behind, self.random.uniform(0.6, 2.5)), weight)
        return x + weight * (blur(x, self.random.uniform(0.6, 3.0)) - x)

    def _draw_index(self) -> int:
        if self.cumulative is None:
            return self.random.randrange(len(self.photos))
        u = self.random.random() * self.cumulative[-1]
        return bisect.bisect_right(self.cumulative, u, hi=len(self.photos) - 1)

    def _happens(self, share: float) -> bool:
        """Return whether something happens; what never does costs no random number."""
        return share > 0.0 and self.random.random() < share

    def _crop(self, whole: int, tries: int = 1) -> tuple[Tensor, Tensor]:
        """Return a square of a photo, and its segments; what is smaller is mirrored."""
        for _ in range(tries):
            index = self._draw_index()
            if min(self.photos[index].shape[1:]) >= whole:
                break
        photo, labels = self.photos[index], self.segments[index]
        height, width = photo.shape[1:]
        top, left = (
            self.random.randrange(max(1, length - whole + 1)) // 8 * 8 for length in (height, width)
        )
        box = (slice(top, top + whole), slice(left, left + whole))
        x = photo[:, box[0], box[1]][None].float()
        if labels is None:
            numbers = torch.full((1, 1, *x.shape[2:]), -1.0, device=self.device)
        else:
            numbers = labels[box][None, None].float()
        return _fill(x, whole), _fill(numbers, whole)

    def _draw_masks(
        self, labels: Tensor, canvas: int, box: tuple[float, float] | None = None
    ) -> Tensor:
        """Draw pasted parts: things that people outlined, or random shapes.

        ``box`` has the sides of a box that smaller ones lie in, as shares of the photo's.
        """
        group = self.options.group
        if box is not None:
            shapes, limits = self._draw_spots(canvas, box), (0.005, 0.5 * box[1] ** 2)
        else:
            blobs = self.random.random() < 0.65
            shapes = self._draw_blobs(canvas) if blobs else self._draw_ellipses(canvas)
            limits = 0.015, 0.6
        if self.random.random() >= self.options.segment_share:
            return shapes
        at = self._randint(0, canvas**2, group, self.options.outline_tries)
        flat = labels.reshape(group, -1)
        numbers = flat.gather(1, at)
        number = numbers.gather(1, (numbers >= 0).int().argmax(dim=1, keepdim=True))
        things = ((flat == number) & (number >= 0)).float().view(group, 1, canvas, canvas)
        share = things.mean(dim=(1, 2, 3), keepdim=True)
        return torch.where((share > limits[0]) & (share < limits[1]), things, shapes)

    def _draw_blobs(self, canvas: int) -> Tensor:
        """Draw smooth noise above a threshold."""
        share = self._rand(self.options.group)
        return _highest(self._draw_field(canvas, self.random.randint(3, 8)), share * 0.42 + 0.03)

    def _draw_spots(self, canvas: int, box: tuple[float, float]) -> Tensor:
        """Draw small shapes with wavy outlines, each anywhere in its photo."""
        group, side = self.options.group, round(canvas * self.random.uniform(*box))
        line = torch.linspace(-1.0, 1.0, side, device=self.device)
        bowl = line[:, None] ** 2 + line**2
        field = self._draw_field(side, self.random.randint(3, 5)) - 3.0 * bowl
        share = self._rand(group)
        spots = torch.zeros(group, 1, canvas, canvas, device=self.device)
        for spot, shape in zip(spots, _highest(field, 0.2 + 0.3 * share), strict=True):
            top, left = (self.random.randint(0, canvas - side) for _ in range(2))
            spot[:, top : top + side, left : left + side] = shape
        return spots

    def _draw_field(self, side: int, nodes: int) -> Tensor:
        """Draw smooth noise."""
        coarse = self._randn(self.options.group, 1, nodes, nodes)
        return F.interpolate(coarse, size=(side, side), mode="bicubic")

    def _draw_ellipses(self, canvas: int) -> Tensor:
        """Draw ellipses and rounded boxes, turned."""
        group = self.options.group
        numbers = self._rand(6, group, 1, 1)
        line = torch.arange(canvas, device=self.device, dtype=torch.float32) / canvas
        y, x = line[:, None] - numbers[0], line[None] - numbers[1]
        angle = numbers[2] * 3.1416
        across = x * torch.cos(angle) + y * torch.sin(angle)
        along = y * torch.cos(angle) - x * torch.sin(angle)
        power = 2.0 + 6.0 * numbers[3] ** 2
        radii = 0.06 + 0.3 * numbers[4], 0.06 + 0.3 * numbers[5]
        inside = (across / radii[0]).abs() ** power + (along / radii[1]).abs() ** power < 1.0
        return inside.float()[:, None]


def _highest(field: Tensor, share: Tensor) -> Tensor:
    """Return 1 where a map has its highest values, a share of each, and 0 elsewhere."""
    ordered = field.flatten(1).sort(dim=1).values
    rank = ((1.0 - share) * (ordered.shape[1] - 1)).long()[:, None]
    return (field > ordered.gather(1, rank)[:, :, None, None]).float()


def _fill(x: Tensor, side: int) -> Tensor:
    """Mirror what is smaller than a square of a side until it fills it."""
    height, width = x.shape[2:]
    while height < side or width < side:
        pad = (0, min(width - 1, max(0, side - width)), 0, min(height - 1, max(0, side - height)))
        x = F.pad(x, pad, mode="reflect")
        height, width = x.shape[2:]
    return x
