"""A user's torchvision transform becomes a recipe as far as that is known, and says where not."""

import functools
import json
import warnings

import numpy as np
import pytest
import torch
from forebay.transforms import Step, explain, translate
from PIL import Image
from torchvision import transforms as v1
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode, v2

CROP = {"op": "center_crop", "height": 8, "width": 8}
BOTH = [pytest.param(v1, id="v1"), pytest.param(v2, id="v2")]
VARIES = "the size of the result varies from image to image"
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def steps_of(*given, tv=v1):
    """The recipe's steps, of a transform that is native as a whole."""
    made = translate(tv.Compose(list(given)))
    assert made.rest == [], explain(made)
    assert made.steps == tuple(Step(type(step).__name__, True, "") for step in given)
    assert json.loads(json.dumps(made.recipe)) == made.recipe
    return made.recipe["steps"]


def why_not(*given):
    """Why the last of the steps runs in Python, all before it being native."""
    made = translate(v1.Compose(list(given)))
    assert [step.native for step in made.steps] == [True] * (len(given) - 1) + [False]
    return made.steps[-1].why


def only(given, tv=v1):
    """The recipe of one pixel step, behind a crop so that the size is fixed."""
    first, *rest = steps_of(tv.CenterCrop(8), given, tv=tv)
    assert first == CROP
    return rest


# -- every step that is known -------------------------------------------------------------


@pytest.mark.parametrize("tv", BOTH)
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda t: t.Resize((30, 40)), {"op": "resize", "height": 30, "width": 40}),
        (lambda t: t.Resize([30, 40]), {"op": "resize", "height": 30, "width": 40}),
        (lambda t: t.Resize([30, 40], antialias=False), {"op": "resize", "height": 30}),
        (lambda t: t.Resize((9, 9), InterpolationMode.BICUBIC), {"filter": "bicubic"}),
        (lambda t: t.Resize((9, 9), InterpolationMode.NEAREST), {"filter": "nearest"}),
        (lambda t: t.Resize((9, 9), InterpolationMode.NEAREST_EXACT), {"filter": "nearest"}),
        (lambda t: t.Resize((9, 9), InterpolationMode.HAMMING), {"filter": "hamming"}),
        (lambda t: t.Resize((9, 9), InterpolationMode.LANCZOS), {"filter": "lanczos"}),
        (lambda t: t.Resize((9, 9), Image.Resampling.LANCZOS), {"filter": "lanczos"}),
        (lambda t: t.Resize((9, 9), 3), {"filter": "bicubic"}),
        (lambda t: t.CenterCrop(5), {"op": "center_crop", "height": 5, "width": 5}),
        (lambda t: t.CenterCrop([5]), {"op": "center_crop", "height": 5, "width": 5}),
        (lambda t: t.CenterCrop((5, 6)), {"op": "center_crop", "height": 5, "width": 6}),
        (
            lambda t: t.RandomResizedCrop(224),
            {
                "op": "random_resized_crop",
                "height": 224,
                "width": 224,
                "scale": [0.08, 1.0],
                "ratio": [0.75, 4 / 3],
                "filter": "bilinear",
            },
        ),
        (
            lambda t: t.RandomResizedCrop((20, 30), (0.5, 1), [1, 2], InterpolationMode.BICUBIC),
            {
                "op": "random_resized_crop",
                "height": 20,
                "width": 30,
                "scale": [0.5, 1.0],
                "ratio": [1.0, 2.0],
                "filter": "bicubic",
            },
        ),
        (
            lambda t: t.RandomCrop(32),
            {
                "op": "random_crop",
                "height": 32,
                "width": 32,
                "padding": None,
                "pad_if_needed": False,
                "fill": [0, 0, 0],
                "mode": "constant",
            },
        ),
        (lambda t: t.RandomCrop(32, padding=4), {"padding": [4, 4, 4, 4]}),
        (lambda t: t.RandomCrop(32, padding=[4]), {"padding": [4, 4, 4, 4]}),
        (lambda t: t.RandomCrop(32, padding=(1, 2)), {"padding": [1, 2, 1, 2]}),
        (lambda t: t.RandomCrop(32, padding=(1, 2, 3, 4)), {"padding": [1, 2, 3, 4]}),
        (lambda t: t.RandomCrop((3, 4), pad_if_needed=True, fill=7), {"fill": [7, 7, 7]}),
        (lambda t: t.RandomCrop(3, 1, fill=(1, 2, 3)), {"fill": [1, 2, 3]}),
        (lambda t: t.RandomCrop(3, 1, True, padding_mode="edge"), {"mode": "edge"}),
        (lambda t: t.RandomCrop(3, 1, padding_mode="reflect"), {"mode": "reflect"}),
        (lambda t: v2.RandomCrop(3, 1, True, padding_mode="symmetric"), {"mode": "symmetric"}),
    ],
)
def test_a_step_that_fixes_the_size_is_native_by_itself(tv, make, expected):
    (step,) = steps_of(make(tv), tv=tv)
    assert {**step, **expected} == step


@pytest.mark.parametrize("tv", BOTH)
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            lambda t: t.Pad(2),
            {"op": "pad", "padding": [2, 2, 2, 2], "fill": [0, 0, 0], "mode": "constant"},
        ),
        (lambda t: t.Pad([2]), {"padding": [2, 2, 2, 2]}),
        (lambda t: t.Pad((1, 2)), {"padding": [1, 2, 1, 2]}),
        (lambda t: t.Pad((1, 2, 3, 4), fill=9), {"padding": [1, 2, 3, 4], "fill": [9, 9, 9]}),
        (lambda t: t.Pad(1, fill=(1, 2, 3)), {"fill": [1, 2, 3]}),
        (lambda t: t.Pad(1, fill=[255.0]), {"fill": [255, 255, 255]}),
        (lambda t: t.Pad(1, padding_mode="edge"), {"mode": "edge"}),
        (lambda t: t.Pad(1, fill=0.5, padding_mode="reflect"), {"mode": "reflect"}),
        (lambda t: t.Pad(1, padding_mode="symmetric"), {"mode": "symmetric"}),
        (lambda t: t.RandomHorizontalFlip(), {"op": "horizontal_flip", "p": 0.5}),
        (lambda t: t.RandomHorizontalFlip(1), {"op": "horizontal_flip", "p": 1.0}),
        (lambda t: t.RandomVerticalFlip(0.25), {"op": "vertical_flip", "p": 0.25}),
        (
            lambda t: t.ColorJitter(0.4, (0.5, 1.5), 0, 0.1),
            {
                "op": "color_jitter",
                "brightness": [0.6, 1.4],
                "contrast": [0.5, 1.5],
                "saturation": None,
                "hue": [-0.1, 0.1],
            },
        ),
        (lambda t: t.ColorJitter(brightness=2), {"brightness": [0.0, 3.0], "hue": None}),
        (lambda t: t.ColorJitter(hue=(0.1, 0.2)), {"hue": [0.1, 0.2], "brightness": None}),
        (lambda t: t.Grayscale(), {"op": "grayscale", "channels": 1}),
        (lambda t: t.Grayscale(3), {"op": "grayscale", "channels": 3}),
        (lambda t: t.RandomGrayscale(), {"op": "random_grayscale", "p": 0.1}),
        (
            lambda t: t.GaussianBlur((5, 9)),
            {"op": "gaussian_blur", "kernel": [5, 9], "sigma": [0.1, 2.0]},
        ),
        (lambda t: t.GaussianBlur(3, 1.5), {"kernel": [3, 3], "sigma": [1.5, 1.5]}),
        (lambda t: t.GaussianBlur([3], (1, 2)), {"kernel": [3, 3], "sigma": [1.0, 2.0]}),
    ],
)
def test_a_step_that_keeps_the_size_is_native_once_the_size_is_fixed(tv, make, expected):
    (step,) = only(make(tv), tv)
    assert {**step, **expected} == step


@pytest.mark.parametrize(
    ("size", "max_size", "expected"),
    [
        (256, None, {"op": "resize_shorter", "size": 256, "max_size": None, "filter": "bilinear"}),
        ([256], None, {"op": "resize_shorter", "size": 256, "max_size": None}),
        (256, 300, {"op": "resize_shorter", "size": 256, "max_size": 300}),
    ],
)
@pytest.mark.parametrize("tv", BOTH)
def test_a_resize_of_the_shorter_side_is_native_if_a_crop_follows(tv, size, max_size, expected):
    step, crop = steps_of(tv.Resize(size, max_size=max_size), tv.CenterCrop(8), tv=tv)
    assert {**step, **expected} == step
    assert crop == CROP


@pytest.mark.parametrize(
    ("size", "shorter", "max_size"),
    [((30, 41), 17, None), ((41, 30), 17, None), ((30, 90), 17, 40), ((8, 8), 20, 30)],
)
def test_the_shorter_side_of_a_known_size_is_a_size_as_torchvision_rounds_it(
    size, shorter, max_size
):
    resize = v1.Resize(shorter, max_size=max_size)
    _, step = steps_of(v1.CenterCrop(size), resize)
    expected = resize(Image.new("RGB", size[::-1]))
    assert (step["op"], step["width"], step["height"]) == ("resize", *expected.size)


# -- from pixels to tensors -----------------------------------------------------------------


def erasing(**changed):
    base = {"op": "random_erasing", "p": 0.5, "scale": [0.02, 0.33], "ratio": [0.3, 3.3]}
    return {**base, "value": [0.0, 0.0, 0.0], **changed}


FLOAT32 = {"op": "to_dtype", "dtype": "float32", "scale": True}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([v1.ToTensor()], [{"op": "to_tensor"}]),
        ([v1.PILToTensor()], [{"op": "to_image"}]),
        ([v1.PILToTensor(), v1.ConvertImageDtype(torch.float32)], [{"op": "to_image"}, FLOAT32]),
        ([v2.PILToTensor()], [{"op": "to_image"}]),
        ([v2.ToImage()], [{"op": "to_image"}]),
        ([v2.ToImage(), v2.ToImage(), v2.PILToTensor()], [{"op": "to_image"}]),
        ([v2.ToImage(), v2.ToPureTensor()], [{"op": "to_image"}]),
        ([v2.ToPureTensor(), v2.ToImage()], [{"op": "to_image"}]),
        ([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)], [{"op": "to_image"}, FLOAT32]),
        (
            [v2.ToImage(), v2.ToDtype(torch.float32)],
            [{"op": "to_image"}, {**FLOAT32, "scale": False}],
        ),
        (
            [v2.ToImage(), v2.ToDtype(torch.float16, scale=True)],
            [{"op": "to_image"}, {**FLOAT32, "dtype": "float16"}],
        ),
        (
            [v2.ToImage(), v2.ConvertImageDtype(torch.bfloat16)],
            [{"op": "to_image"}, {**FLOAT32, "dtype": "bfloat16"}],
        ),
        ([v2.ToImage(), v2.ToDtype(torch.uint8, scale=True)], [{"op": "to_image"}]),
        # torchvision leaves a PIL image as it is here.
        ([v2.ToDtype(torch.float32), v2.ToImage()], [{"op": "to_image"}]),
        ([v2.ConvertImageDtype(torch.float32), v2.ToImage()], [{"op": "to_image"}]),
        (
            [v1.ToTensor(), v1.Normalize(*IMAGENET)],
            [
                {"op": "to_tensor"},
                {"op": "normalize", "mean": list(IMAGENET[0]), "std": list(IMAGENET[1])},
            ],
        ),
        (
            [v1.ToTensor(), v1.Normalize((0.5,), torch.tensor([0.25, 0.25, 0.5]))],
            [
                {"op": "to_tensor"},
                {"op": "normalize", "mean": [0.5] * 3, "std": [0.25, 0.25, 0.5]},
            ],
        ),
        (
            [v1.Grayscale(), v1.ToTensor(), v1.Normalize(np.array([0.5]), 0.25)],
            [
                {"op": "grayscale", "channels": 1},
                {"op": "to_tensor"},
                {"op": "normalize", "mean": [0.5], "std": [0.25]},
            ],
        ),
        ([v1.ToTensor(), v1.RandomErasing()], [{"op": "to_tensor"}, erasing()]),
        (
            [v1.ToTensor(), v1.RandomErasing(1, (0.1, 0.2), (1, 2), 0.5, inplace=True)],
            [{"op": "to_tensor"}, erasing(p=1, scale=[0.1, 0.2], ratio=[1, 2], value=[0.5] * 3)],
        ),
        (
            [v1.ToTensor(), v1.RandomErasing(value="random")],
            [{"op": "to_tensor"}, erasing(value="random")],
        ),
        (
            [v1.ToTensor(), v1.RandomErasing(value=(0.1, 0.2, 0.3))],
            [{"op": "to_tensor"}, erasing(value=[0.1, 0.2, 0.3])],
        ),
        (
            [v2.ToImage(), v2.RandomErasing(value=(1, 2, 3)), v2.ToDtype(torch.float32, True)],
            [{"op": "to_image"}, erasing(value=[1, 2, 3]), FLOAT32],
        ),
        (
            [v2.ToImage(), v2.ToDtype(torch.float32, True), v2.RandomErasing(value="random")],
            [{"op": "to_image"}, FLOAT32, erasing(value="random")],
        ),
        # Pixel steps between ToImage and the floats, as torchvision recommends for v2.
        (
            [v2.ToImage(), v2.RandomHorizontalFlip(), v2.CenterCrop(8)],
            [{"op": "to_image"}, {"op": "horizontal_flip", "p": 0.5}, CROP],
        ),
        (
            [v2.ToImage(), v2.Resize((8, 8), antialias=True)],
            [{"op": "to_image"}, {"op": "resize", "height": 8, "width": 8, "filter": "bilinear"}],
        ),
    ],
)
def test_steps_to_tensors_and_after(given, expected):
    assert steps_of(v1.CenterCrop(8), *given) == [CROP, *expected]


def test_totensor_of_v2_is_native():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        step = v2.ToTensor()
    assert only(step, v2) == [{"op": "to_tensor"}]
    assert steps_of(v1.CenterCrop(8), v1.ToTensor(), step) == [CROP, {"op": "to_tensor"}]


# -- what stays Python, and why --------------------------------------------------------------


class Mine(v1.CenterCrop):
    """A subclass may do anything."""


def hooked():
    step = v1.CenterCrop(8)
    step.register_forward_hook(lambda module, given, out: out)
    return step


def patched():
    step = v1.RandomCrop(8)
    step.get_params = lambda image, size: (0, 0, 8, 8)
    return step


C, T, I = v1.CenterCrop(8), v1.ToTensor(), v2.ToImage()  # noqa: E741


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([Mine(8)], "a class of its own"),
        ([hooked()], "it has hooks or functions of its own"),
        ([patched()], "it has hooks or functions of its own"),
        ([lambda image: image], "not a transform of torchvision's"),
        ([functools.partial(v1.functional.hflip)], "not a transform of torchvision's"),
        ([torch.nn.Sequential(v1.CenterCrop(8))], "not a transform of torchvision's"),
        ([v1.RandomRotation(5)], "not among the steps that run native"),
        ([v1.RandomApply([v1.CenterCrop(8)])], "not among the steps that run native"),
        ([v1.Lambda(abs)], "not among the steps that run native"),
        ([v2.Identity()], "not among the steps that run native"),
        ([v2.Resize(None, max_size=9)], "size=None, for the longer side"),
        ([v1.Resize((8, 8), max_size=9)], "max_size goes with one size only"),
        ([v1.Resize(8, max_size=8)], "max_size=8 is not greater than size=8"),
        ([v1.Resize((0, 8))], "size=0 is less than 1"),
        ([v1.Resize((16385, 8))], "size=16385 is more than 16384"),
        ([v1.CenterCrop((1, 100)), v1.Resize(200)], "a side would be 20000 pixels long"),
        ([v1.CenterCrop((1, 100)), v1.Resize(5, max_size=9)], "a side would be 0 pixels long"),
        ([v1.Resize((8.5, 8))], "size=8.5 is not a whole number"),
        ([v2.Resize((8, 8), "cubic")], "interpolation='cubic' is not one of nearest, bilinear, "),
        ([v1.Resize((8, 8), InterpolationMode.BOX)], "is not one of nearest, bilinear, "),
        ([I, v2.Resize((8, 8), antialias=False)], "without antialias on a tensor; say antialias"),
        ([I, v2.Resize((8, 8), antialias=None)], "without antialias on a tensor; say antialias"),
        ([I, v2.Resize((8, 8), "bicubic")], "bicubic on a tensor is not bicubic on a PIL image"),
        ([I, v2.Resize((8, 8), "nearest")], "nearest on a tensor is not nearest on a PIL image"),
        ([I, v2.RandomResizedCrop(8, antialias=False)], "without antialias on a tensor"),
        ([v1.RandomResizedCrop(8, scale=(-1, 1))], "scale=(-1, 1) starts below 0"),
        ([v1.RandomResizedCrop(8, ratio=(0, 1))], "ratio=(0, 1) starts at or below 0"),
        ([v1.RandomResizedCrop(8, scale=(0.1, 0.2, 0.3))], "is not a range (min, max)"),
        ([v1.RandomHorizontalFlip(1.5)], "p=1.5 is not between 0 and 1"),
        ([v1.RandomHorizontalFlip("often")], "p='often' is not a number"),
        ([v1.Pad(-1)], "padding=-1 is less than 0"),
        ([v1.Pad(1.5)], "padding=1.5 is not a whole number"),
        ([v1.Pad(1, fill=(0.5, 1, 2))], "fill=0.5 is not a whole number from 0 to 255"),
        ([v1.Pad(1, fill=256)], "fill=256 is not a whole number from 0 to 255"),
        ([v1.Pad(1, fill=(1, 2))], "fill has 2 values, the image has 3 channels"),
        ([v2.Pad(1, fill={tv_tensors.Image: 1, "others": 0})], "fill is a dict by type"),
        ([v1.Grayscale(), v1.Pad(1, fill=(1, 2, 3))], "fill has several values, the image has 1"),
        ([v1.PILToTensor(), v1.Pad(1, fill=(1, 2, 3))], "a fill of several values on a tensor"),
        (
            [v1.RandomCrop(8, 1, pad_if_needed=True, padding_mode="reflect")],
            "padding and pad_if_needed together, by reflect",
        ),
        ([v1.Grayscale(2)], "num_output_channels=2 is neither 1 nor 3"),
        ([I, v2.ColorJitter(hue=0.1)], "hue on a tensor is not hue on a PIL image"),
        ([T, v1.RandomHorizontalFlip()], "floats here; put RandomHorizontalFlip before the step"),
        ([T, v1.CenterCrop(8)], "the values are floats here; put CenterCrop before the step"),
        ([T, v1.Grayscale()], "the values are floats here; put Grayscale before the step"),
        ([I, v2.RandomErasing(), v2.CenterCrop(8)], "comes after RandomErasing; put CenterCrop"),
        ([T, v1.ToTensor()], "the image is a tensor already"),
        ([T, v1.PILToTensor()], "the image is a tensor already"),
        ([v1.ConvertImageDtype(torch.float32)], "the image is not a tensor yet"),
        ([I, v2.ToDtype({tv_tensors.Image: torch.float32, "others": None})], "dtype is a dict"),
        ([I, v2.ToDtype(torch.float64, scale=True)], "torch.float64 is not one of torch.uint8, "),
        ([T, v2.ToDtype(torch.uint8, scale=True)], "from floats back to uint8"),
        ([v1.Normalize(*IMAGENET)], "the values are not floats yet; put ToTensor() or"),
        ([I, v2.Normalize(*IMAGENET)], "the values are not floats yet; put ToTensor() or"),
        ([T, v1.Normalize((0, 0), (1, 1))], "mean has 2 values, the image has 3 channels"),
        ([v1.Grayscale(), T, v1.Normalize(*IMAGENET)], "mean has 3 values, the image has 1 ch"),
        ([T, v1.Normalize((0, 0, 0), (1, 0, 1))], "std has a zero"),
        ([T, v1.Normalize((0, 0, float("nan")), (1, 1, 1))], "mean=nan is not finite"),
        ([v1.RandomErasing()], "the image is not a tensor yet; put it after ToTensor()"),
        ([I, v2.RandomErasing(value="random")], "value='random' on uint8 wraps around"),
        ([I, v2.RandomErasing(value=0.5)], "value=0.5 is not a whole number from 0 to 255"),
        ([T, v1.RandomErasing(value=(1, 2))], "value has 2 values, the image has 3 channels"),
    ],
)
def test_what_is_beyond_the_engine_stays_python_and_says_why(given, why):
    assert why in why_not(C, *given)


@pytest.mark.parametrize(
    "given",
    [
        [v1.Resize(256)],
        [v1.Resize(256), v1.ToTensor()],
        [v1.RandomHorizontalFlip(), v1.Pad(4), v1.ToTensor(), v1.Normalize(*IMAGENET)],
        [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)],
        [v1.ColorJitter(0.5)],
    ],
)
def test_a_size_of_each_images_own_makes_nothing_native(given):
    made = translate(v1.Compose(given))
    assert (made.recipe, made.rest, made.handed) == (None, given, "pil")
    assert {(step.native, step.why) for step in made.steps} == {(False, VARIES)}


def test_a_step_that_would_have_fixed_the_size_does_not_help_behind_a_python_step():
    made = translate(v1.Compose([v1.Resize(256), abs, v1.CenterCrop(8)]))
    assert made.recipe is None
    assert [step.why for step in made.steps] == [
        VARIES,
        "not a transform of torchvision's",
        "comes after abs, which runs in Python",
    ]
