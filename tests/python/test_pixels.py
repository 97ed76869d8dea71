"""The engine's pixels are torchvision's on Pillow, for the same random parameters.

What the engine drew for a sample is in its trace: torchvision's functions are called with
the same numbers on the image that Pillow decodes, and the two results are compared. The
distributions of what is drawn are compared with torchvision's own draws.
"""

from __future__ import annotations

import functools
import io
import json
import struct
import zlib

import numpy as np
import pytest
import torch
from forebay import _forebay
from forebay.transforms import explain, translate
from PIL import Image
from torchvision import transforms as v1
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms import functional as F

SEED, EPOCH = 11, 3
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
FILTERS = [
    InterpolationMode.BILINEAR,
    InterpolationMode.BICUBIC,
    InterpolationMode.LANCZOS,
    InterpolationMode.HAMMING,
    InterpolationMode.NEAREST,
]

# -- pictures ----------------------------------------------------------------------------


def photo(width, height, number):
    """Like a photo to a codec: gradients, a few shapes with edges, grain."""
    rng = np.random.default_rng(number)
    y, x = np.mgrid[0:height, 0:width]
    slopes = rng.uniform(-1, 1, (2, 3)) * 255
    pixels = (
        128 + (x / width - 0.5)[..., None] * slopes[0] + (y / height - 0.5)[..., None] * slopes[1]
    )
    for _ in range(6):
        at, radius = rng.uniform(0, 1, 2) * (height, width), rng.uniform(0.05, 0.3) * min(x.shape)
        inside = (y - at[0]) ** 2 + (x - at[1]) ** 2 < radius**2
        pixels[inside] = 0.3 * pixels[inside] + 0.7 * rng.uniform(0, 255, 3)
    pixels += rng.normal(0, rng.uniform(2, 12), pixels.shape)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def alpha_of(image):
    """A mask with all values, and some places wholly clear."""
    across = np.linspace(-60, 300, image.width).clip(0, 255).astype(np.uint8)
    return Image.fromarray(np.broadcast_to(across, (image.height, image.width)).copy())


def png16(image, gray):
    """A PNG of 16 bits a channel, which Pillow reads but does not write."""
    pixels = np.asarray(image.convert("L" if gray else "RGB")).astype(">u2") * 256 + 77
    rows = b"".join(b"\0" + row.tobytes() for row in pixels.astype(">u2"))
    header = struct.pack(">IIBBBBB", image.width, image.height, 16, 0 if gray else 2, 0, 0, 0)

    def chunk(name, data):
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def saved(image, **options):
    """The encoded file."""
    file = io.BytesIO()
    image.save(file, **options)
    return file.getvalue()


def with_alpha(image, mode):
    """The image in a mode with alpha."""
    image = image.convert(mode[:-1])
    image.putalpha(alpha_of(image))
    return image


def clear_palette(image):
    """A palette in which one colour is clear."""
    return saved(image.quantize(60), format="PNG", transparency=3)


KINDS = {
    "jpeg 4:4:4": lambda i: saved(i, format="JPEG", quality=90, subsampling=0),
    "jpeg 4:2:2": lambda i: saved(i, format="JPEG", quality=85, subsampling=1),
    "jpeg 4:2:0": lambda i: saved(i, format="JPEG", quality=75, subsampling=2),
    "jpeg restarts": lambda i: saved(i, format="JPEG", restart_marker_blocks=3),
    "jpeg progressive": lambda i: saved(i, format="JPEG", quality=80, progressive=True),
    "jpeg gray": lambda i: saved(i.convert("L"), format="JPEG", quality=85),
    "jpeg cmyk": lambda i: saved(i.convert("CMYK"), format="JPEG", quality=90),
    "png": lambda i: saved(i, format="PNG"),
    "png palette": lambda i: saved(i.quantize(200), format="PNG"),
    "png clear palette": clear_palette,
    "png alpha": lambda i: saved(with_alpha(i, "RGBA"), format="PNG"),
    "png gray": lambda i: saved(i.convert("L"), format="PNG"),
    "png gray alpha": lambda i: saved(with_alpha(i, "LA"), format="PNG"),
    "png 1 bit": lambda i: saved(i.convert("1"), format="PNG"),
    "png 16 bits": lambda i: png16(i, gray=False),
    "png gray 16 bits": lambda i: png16(i, gray=True),
    "webp": lambda i: saved(i, format="WEBP", quality=80),
    "webp lossless": lambda i: saved(i, format="WEBP", lossless=True),
    "webp alpha": lambda i: saved(with_alpha(i, "RGBA"), format="WEBP", lossless=True),
}


def size_of(number):
    """From a single pixel to 700x500, with odd edges and thin strips."""
    strange = [(1, 1), (1, 40), (40, 1), (2, 3), (7, 9), (8, 8), (16, 17), (700, 500), (700, 3)]
    if number % 10 == 0:
        return strange[number // 10 % len(strange)]
    rng = np.random.default_rng(1000 + number)
    return int(rng.integers(10, 701)), int(rng.integers(10, 501))


@functools.cache
def encoded(number, kind=None):
    """Picture ``number``, of its turn's kind if none is said."""
    kind = kind or list(KINDS)[number % len(KINDS)]
    return KINDS[kind](photo(*size_of(number), number))


def by_pillow(data):
    """As torchvision's ImageFolder loads it."""
    with Image.open(io.BytesIO(data)) as image:
        return image.convert("RGB")


# -- the two ways --------------------------------------------------------------------------


def recipe_for(*steps, **options):
    """The recipe of these steps, of which none may be left to Python."""
    made = translate(v1.Compose(list(steps)), **options)
    assert made.is_native, explain(made)
    return _forebay.Recipe(json.dumps(made.recipe))


def engine_tensor(recipe, data, position):
    """What the engine makes of an encoded image, as channels, rows, columns."""
    raw = bytearray(recipe.prepare(data, SEED, EPOCH, position))
    channels, height, width = recipe.shape
    flat = torch.frombuffer(raw, dtype=getattr(torch, recipe.dtype))
    if recipe.order == "hwc":
        return flat.view(height, width, channels).permute(2, 0, 1)
    return flat.view(channels, height, width)


def drawn(recipe, image, position):
    """The parameters drawn for an image of that size: one entry for each step."""
    return json.loads(recipe.trace(image.width, image.height, SEED, EPOCH, position))


def torchvision_tensor(steps, image, trace):
    """The same steps by torchvision, with the parameters that the engine drew."""
    assert len(trace) == len(steps)
    for step, params in zip(steps, trace, strict=True):
        again = REPLAYS.get(type(step).__name__)
        image = step(image) if again is None else again(step, image, params)
    return F.pil_to_tensor(image) if isinstance(image, Image.Image) else image


def box_of(params):
    return [params[name] for name in ("top", "left", "height", "width")]


def replay_resized_crop(step, image, params):
    return F.resized_crop(image, *box_of(params), list(step.size), step.interpolation)


def replay_crop(step, image, params):
    if any(params["padding"]):
        image = F.pad(image, params["padding"], step.fill, step.padding_mode)
    return F.crop(image, params["top"], params["left"], *step.size)


def replay_jitter(step, image, params):
    names = ("brightness", "contrast", "saturation", "hue")
    for which in params["order"]:
        factor = params[names[which]]
        if factor is not None:
            image = getattr(F, f"adjust_{names[which]}")(image, factor)
    return image


def replay_grayscale(step, image, params):
    channels = F.get_dimensions(image)[0]
    return F.rgb_to_grayscale(image, channels) if params["applied"] else image


def replay_erasing(step, image, params):
    if params["box"] is None:
        return image
    value = step.value if isinstance(step.value, list | tuple) else [step.value]
    fill = torch.tensor(value, dtype=torch.float32)[:, None, None]
    return F.erase(image, *box_of(params["box"]), fill)


REPLAYS = {
    "RandomResizedCrop": replay_resized_crop,
    "RandomCrop": replay_crop,
    "ColorJitter": replay_jitter,
    "RandomGrayscale": replay_grayscale,
    "RandomErasing": replay_erasing,
    "RandomHorizontalFlip": lambda step, image, p: F.hflip(image) if p["applied"] else image,
    "RandomVerticalFlip": lambda step, image, p: F.vflip(image) if p["applied"] else image,
    "GaussianBlur": lambda step, image, p: F.gaussian_blur(
        image, step.kernel_size, [p["sigma"]] * 2
    ),
}


class Differences:
    """How far the values of many images are apart, in 255ths."""

    def __init__(self):
        self.counts = np.zeros(256, np.int64)
        self.worst = (0, "")

    def add(self, ours, theirs, name):
        assert ours.shape == theirs.shape, name
        assert ours.dtype == theirs.dtype == torch.uint8, name
        off = (ours.int() - theirs.int()).abs()
        self.counts += np.bincount(off.flatten().numpy(), minlength=256)
        self.worst = max(self.worst, (int(off.max()), name))

    def check(self):
        total = self.counts.sum()
        assert self.worst[0] <= 3, f"{self.worst[0]} off in {self.worst[1]}"
        assert self.counts[2:].sum() <= 0.001 * total, self.counts[:4]


def compare(steps, pictures, **options):
    """The engine and torchvision over some pictures."""
    recipe, differences = recipe_for(*steps, **options), Differences()
    for number in pictures:
        data = encoded(number)
        image = by_pillow(data)
        theirs = torchvision_tensor(steps, image, drawn(recipe, image, number))
        name = f"picture {number}, {list(KINDS)[number % len(KINDS)]}, {image.size}"
        differences.add(engine_tensor(recipe, data, number), theirs, name)
    return differences


# -- pixels --------------------------------------------------------------------------------


def test_500_varied_images_and_equal_crop_boxes_give_torchvisions_pixels():
    compare([v1.RandomResizedCrop(96), v1.RandomHorizontalFlip()], range(500)).check()


def test_500_varied_images_resized_and_cropped_give_torchvisions_pixels():
    compare([v1.Resize(120), v1.CenterCrop((100, 112))], range(500)).check()


@pytest.mark.parametrize("kind", KINDS)
def test_each_format_decodes_as_pillow_converts_it_to_rgb(kind):
    """Whole images, without a resize that would smooth a difference away."""
    for number in (1, 3, 10, 20, 32, 45, 50, 61):
        data = encoded(number, kind)
        image = by_pillow(data)
        recipe = recipe_for(v1.CenterCrop((image.height, image.width)))
        ours, differences = engine_tensor(recipe, data, 0), Differences()
        differences.add(ours, F.pil_to_tensor(image), f"{kind} {image.size}")
        differences.check()
        if kind.startswith("png") or kind == "webp lossless":
            assert differences.worst[0] == 0, f"{kind} {image.size}"


@pytest.mark.parametrize("mode", FILTERS)
def test_each_filter_is_pillows_up_and_down(mode):
    steps = [[v1.Resize((40, 200), mode)], [v1.Resize(300, mode), v1.CenterCrop(280)]]
    for given in [*steps, [v1.RandomResizedCrop((64, 80), interpolation=mode)]]:
        compare(given, range(0, 120, 3)).check()


def test_the_longest_side_is_limited_as_torchvision_does():
    compare([v1.Resize(90, max_size=150), v1.CenterCrop(100)], range(1, 60)).check()


STEPS = [
    v1.RandomHorizontalFlip(0.5),
    v1.RandomVerticalFlip(0.5),
    v1.Pad(5),
    v1.Pad((1, 2, 3, 4), fill=(250, 3, 77)),
    v1.Pad((3, 9), padding_mode="edge"),
    v1.Pad(20, padding_mode="reflect"),
    v1.Pad((70, 3), padding_mode="reflect"),
    v1.Pad((4, 70), padding_mode="symmetric"),
    v1.RandomCrop(32),
    v1.RandomCrop(32, padding=4),
    v1.RandomCrop((50, 20), padding=(1, 2, 3, 4), fill=(9, 8, 7)),
    v1.RandomCrop((90, 75), pad_if_needed=True, fill=200),
    v1.RandomCrop((50, 90), padding=3, pad_if_needed=True, padding_mode="edge"),
    v1.RandomCrop(32, padding=9, padding_mode="reflect"),
    v1.ColorJitter(brightness=0.6),
    v1.ColorJitter(contrast=0.6),
    v1.ColorJitter(saturation=0.9),
    v1.ColorJitter(hue=0.5),
    v1.ColorJitter(0.4, 0.4, 0.4, 0.1),
    v1.Grayscale(1),
    v1.Grayscale(3),
    v1.RandomGrayscale(0.5),
    v1.GaussianBlur(3),
    v1.GaussianBlur((5, 21), sigma=(0.5, 4.0)),
    v1.GaussianBlur((9, 1), sigma=1.3),
]


@pytest.mark.parametrize("step", STEPS, ids=repr)
def test_each_step_by_itself_is_torchvisions(step):
    compare([v1.CenterCrop(64), step], range(60)).check()
    # And first, where the decoder may have to give more than the crop.
    behind = v1.CenterCrop(20)
    compare([step, behind], [number for number in range(60) if min(size_of(number)) > 64]).check()


@pytest.mark.parametrize("step", STEPS, ids=repr)
def test_each_step_on_a_gray_image_is_torchvisions(step):
    if getattr(step, "fill", 0) in ((250, 3, 77), (9, 8, 7)):
        step = v1.Pad(2, fill=99)  # torchvision refuses three values here
    compare([v1.CenterCrop(64), v1.Grayscale(1), step], range(0, 60, 4)).check()


def test_many_steps_one_after_another_are_torchvisions():
    steps = [
        v1.RandomResizedCrop(80, scale=(0.3, 1.0)),
        v1.RandomHorizontalFlip(),
        v1.ColorJitter(0.2, 0.2, 0.2, 0.05),
        v1.RandomGrayscale(0.2),
        v1.GaussianBlur(5),
        v1.RandomCrop(72, padding=4),
        v1.RandomVerticalFlip(),
        v1.Resize(50),
    ]
    differences = compare(steps, range(200))
    # Each step may round by one; together they stay within what one reader would notice.
    assert differences.counts[2:].sum() <= 0.01 * differences.counts.sum(), differences.counts[:8]
    assert differences.counts[9:].sum() == 0, differences.worst


@pytest.mark.parametrize(
    "steps",
    [
        [v1.RandomResizedCrop(96), v1.RandomHorizontalFlip()],
        [v1.Resize(60), v1.CenterCrop(50), v1.ColorJitter(0.2, 0.2), v1.GaussianBlur(3)],
    ],
    ids=["crop", "colours"],
)
def test_fast_pixels_are_near(steps):
    """A smaller scale averages otherwise than the filter does: near, not equal."""
    counts = compare(steps, range(200), decode="fast").counts
    mean = (counts * np.arange(256)).sum() / counts.sum()
    assert mean < 0.8, mean
    assert counts[64:].sum() <= 1e-5 * counts.sum()


# -- values --------------------------------------------------------------------------------


def close(steps, tolerance, pictures=range(0, 100, 7), **options):
    """Floats of lossless pictures, so that only the steps can differ."""
    recipe = recipe_for(*steps, **options)
    for number in pictures:
        data = encoded(number, "png")
        image = by_pillow(data)
        ours = engine_tensor(recipe, data, number)
        theirs = torchvision_tensor(steps, image, drawn(recipe, image, number))
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    ("steps", "tolerance"),
    [
        ([v1.PILToTensor()], 0),
        ([v2.ToImage()], 0),
        ([v1.ToTensor()], 1e-7),
        ([v1.Grayscale(1), v1.ToTensor()], 1e-7),
        ([v1.ToTensor(), v1.Normalize(*IMAGENET)], 2e-6),
        ([v1.ToTensor(), v1.Normalize((0.5,), (0.25,))], 2e-6),
        ([v1.Grayscale(1), v1.ToTensor(), v1.Normalize((0.1307,), (0.3081,))], 2e-6),
        ([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)], 1e-7),
        ([v2.ToImage(), v2.ToDtype(torch.float32, scale=False)], 0),
        ([v2.ToImage(), v2.ToDtype(torch.float16, scale=True)], 2**-11),
        ([v2.ToImage(), v2.ToDtype(torch.bfloat16, scale=True)], 2**-8),
        ([v1.PILToTensor(), v1.ConvertImageDtype(torch.float32), v1.Normalize(*IMAGENET)], 2e-6),
        ([v1.ToTensor(), v1.Normalize(*IMAGENET), v2.ToDtype(torch.float16)], 2**-9),
        ([v1.ToTensor(), v1.RandomErasing(0.5)], 1e-7),
        ([v1.ToTensor(), v1.RandomErasing(0.9, (0.1, 0.5), (0.2, 5), (0.1, 0.2, 0.3))], 1e-7),
        ([v1.ToTensor(), v1.RandomErasing(1, value=2.5), v1.Normalize(*IMAGENET)], 1e-5),
        ([v1.ToTensor(), v1.Normalize(*IMAGENET), v1.RandomErasing(1, value=(1, 2, 3))], 2e-6),
        ([v2.ToImage(), v2.RandomErasing(1, value=(1, 2, 3)), v2.RandomErasing(0.5)], 0),
    ],
    ids=repr,
)
def test_values_in_both_orders_are_torchvisions(steps, tolerance, channels_last):
    close([v1.CenterCrop((40, 56)), *steps], tolerance, channels_last=channels_last)


@pytest.mark.parametrize(("channels_last", "order"), [(False, "chw"), (True, "hwc")])
def test_the_shape_and_the_order_are_those_of_the_recipe(channels_last, order):
    recipe = recipe_for(v1.CenterCrop((40, 56)), v1.ToTensor(), channels_last=channels_last)
    assert (recipe.shape, recipe.dtype, recipe.order) == ((3, 40, 56), "float32", order)
    assert len(recipe.prepare(encoded(1), SEED, EPOCH, 0)) == 4 * 3 * 40 * 56


def test_erasing_with_random_values_leaves_the_rest_and_fills_in_normal_noise():
    plain = recipe_for(v1.CenterCrop(200), v1.ToTensor())
    recipe = recipe_for(v1.CenterCrop(200), v1.ToTensor(), v1.RandomErasing(1, value="random"))
    noise = []
    for number in range(1, 30):
        data = encoded(number, "png")
        image = by_pillow(data)
        top, left, tall, wide = box_of(drawn(recipe, image, number)[-1]["box"])
        ours = engine_tensor(recipe, data, number).clone()
        before = engine_tensor(plain, data, number)
        inside = ours[:, top : top + tall, left : left + wide]
        noise.append(inside.flatten().clone())
        inside.copy_(before[:, top : top + tall, left : left + wide])
        assert torch.equal(ours, before)
    values = torch.cat(noise).double()
    assert len(values) > 200_000
    assert abs(values.mean()) < 0.01
    assert abs(values.std() - 1) < 0.01
    assert abs((values.abs() < 1).double().mean() - 0.6827) < 0.01


def test_the_same_sample_is_the_same_bytes_and_another_place_is_not():
    recipe = recipe_for(v1.RandomResizedCrop(64), v1.ColorJitter(0.4), v1.RandomHorizontalFlip())
    first = recipe.prepare(encoded(1), 1, 2, 3)
    assert recipe.prepare(encoded(1), 1, 2, 3) == first
    for other in [(2, 2, 3), (1, 3, 3), (1, 2, 4)]:
        assert recipe.prepare(encoded(1), *other) != first


# -- distributions ---------------------------------------------------------------------------

DRAWS = 100_000
# Two samples of one distribution are farther apart than this once in a million times; the
# seeds are fixed, so it is the same every time.
FAR = 2.7 * (2 / DRAWS) ** 0.5


def distance(ours, theirs):
    """The two-sample Kolmogorov-Smirnov statistic."""
    ours, theirs = np.sort(ours), np.sort(theirs)
    everything = np.concatenate([ours, theirs])
    below = [np.searchsorted(side, everything, side="right") / len(side) for side in (ours, theirs)]
    return np.abs(below[0] - below[1]).max()


def figures(boxes, width, height):
    """What is looked at in boxes of (top, left, height, width)."""
    top, left, tall, wide = np.asarray(boxes, float).T
    return {
        "area": tall * wide / (width * height),
        "aspect": np.log(wide / tall),
        "height": tall,
        "width": wide,
        "top": top,
        "left": left,
        "across": left / np.maximum(width - wide, 1),
        "down": top / np.maximum(height - tall, 1),
    }


@pytest.mark.parametrize(
    ("width", "height", "scale", "ratio"),
    [
        (500, 375, (0.08, 1.0), (3 / 4, 4 / 3)),
        # So long that many draws do not fit, and the middle is taken at times.
        (400, 60, (0.5, 1.0), (3 / 4, 4 / 3)),
    ],
)
def test_boxes_of_randomresizedcrop_are_distributed_as_torchvisions(width, height, scale, ratio):
    step = v1.RandomResizedCrop(8, scale, ratio)
    recipe = recipe_for(step)
    ours = []
    for position in range(DRAWS):
        (params,) = json.loads(recipe.trace(width, height, SEED, EPOCH, position))
        ours.append(box_of(params))
    image = Image.new("L", (width, height))
    torch.manual_seed(7)
    theirs = [step.get_params(image, step.scale, step.ratio) for _ in range(DRAWS)]
    ours, theirs = figures(ours, width, height), figures(theirs, width, height)
    apart = {name: distance(ours[name], theirs[name]) for name in ours}
    assert max(apart.values()) < FAR, apart


def test_the_test_of_distributions_tells_a_slightly_other_range_apart():
    rng = np.random.default_rng(0)
    ours, same = rng.uniform(0.08, 1, DRAWS), rng.uniform(0.08, 1, DRAWS)
    assert distance(ours, same) < FAR
    assert distance(ours, rng.uniform(0.1, 1, DRAWS)) > FAR
    assert distance(np.log(ours), np.log(rng.uniform(0.06, 1, DRAWS))) > FAR


def traces(*steps, count, size=(64, 48)):
    recipe = recipe_for(*steps)
    for position in range(count):
        yield json.loads(recipe.trace(*size, SEED, EPOCH, position))


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(
    "kind", [v1.RandomHorizontalFlip, v1.RandomVerticalFlip, v1.RandomGrayscale]
)
def test_chances_come_as_often_as_they_say(kind, p):
    count = 20_000
    applied = sum(t[1]["applied"] for t in traces(v1.CenterCrop(8), kind(p), count=count))
    assert abs(applied - p * count) <= 5 * (p * (1 - p) * count) ** 0.5


def test_two_flips_do_not_follow_each_other():
    flips = [v1.RandomHorizontalFlip(), v1.RandomVerticalFlip()]
    pairs = [
        (t[1]["applied"], t[2]["applied"]) for t in traces(v1.CenterCrop(8), *flips, count=8000)
    ]
    for pair in [(a, b) for a in (False, True) for b in (False, True)]:
        assert abs(pairs.count(pair) - 2000) < 5 * (8000 * 0.25 * 0.75) ** 0.5


def test_jitter_factors_fill_their_ranges_evenly_in_every_order():
    step = v1.ColorJitter(0.4, (0.5, 2.0), 0.3, (-0.1, 0.3))
    count = 24_000
    drawn_jitters = [t[1] for t in traces(v1.CenterCrop(8), step, count=count)]
    for name in ("brightness", "contrast", "saturation", "hue"):
        low, high = getattr(step, name)
        values = np.array([jitter[name] for jitter in drawn_jitters])
        assert low <= values.min() <= low + 0.01
        assert high - 0.01 <= values.max() <= high
        even = np.linspace(low, high, count)
        assert distance(values, even) < 2.7 * (1 / count) ** 0.5
    orders = [tuple(jitter["order"]) for jitter in drawn_jitters]
    assert len(set(orders)) == 24
    assert all(abs(orders.count(order) - 1000) < 160 for order in set(orders))


def test_sigmas_of_a_blur_fill_their_range_evenly():
    count = 20_000
    blur = v1.GaussianBlur(3, (0.1, 2.0))
    values = np.array([t[1]["sigma"] for t in traces(v1.CenterCrop(8), blur, count=count)])
    assert distance(values, np.linspace(0.1, 2.0, count)) < 2.7 * (1 / count) ** 0.5


def test_places_of_a_random_crop_are_all_as_likely():
    count = 20_000
    places = [
        (t[0]["top"], t[0]["left"])
        for t in traces(v1.RandomCrop((46, 60), padding=1), count=count, size=(64, 48))
    ]
    assert set(places) == {(top, left) for top in range(5) for left in range(7)}
    expected = count / 35
    assert all(abs(places.count(place) - expected) < 6 * expected**0.5 for place in set(places))


def test_boxes_of_erasing_are_distributed_as_torchvisions():
    step, edge = v1.RandomErasing(1), 224
    count = 30_000
    given = traces(v1.CenterCrop(edge), v1.ToTensor(), step, count=count)
    ours = [box_of(t[2]["box"]) for t in given if t[2]["box"] is not None]
    torch.manual_seed(7)
    image = torch.empty(1, edge, edge)
    theirs = [step.get_params(image, step.scale, step.ratio, [0.0])[:4] for _ in range(count)]
    ours, theirs = figures(ours, edge, edge), figures(theirs, edge, edge)
    apart = {name: distance(ours[name], theirs[name]) for name in ours}
    assert max(apart.values()) < 2.7 * (2 / count) ** 0.5, apart
