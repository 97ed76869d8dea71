"""What becomes of a transform as a whole: its parts, its settings, its explanation."""

import pickle

import forebay
import numpy as np
import pytest
import torch
from forebay import transforms
from forebay.transforms import Step, explain, translate
from PIL import Image
from torchvision import transforms as v1
from torchvision import tv_tensors
from torchvision.transforms import v2

CROP = {"op": "center_crop", "height": 8, "width": 8}

BOTH = [pytest.param(v1, id="v1"), pytest.param(v2, id="v2")]
C = v1.CenterCrop(8)


def test_no_transform_is_nothing_native():
    made = translate(None)
    assert (made.recipe, made.rest, made.handed, made.steps) == (None, [], "pil", ())
    assert explain(made).startswith("no transform")


def test_a_step_without_a_compose_is_a_transform():
    assert translate(v1.RandomResizedCrop(8)).recipe["steps"][0]["op"] == "random_resized_crop"


@pytest.mark.parametrize("outer", BOTH)
@pytest.mark.parametrize("inner", BOTH)
def test_a_compose_within_a_compose_is_flattened(outer, inner):
    deep = inner.Compose([inner.CenterCrop(8), inner.Compose([inner.RandomVerticalFlip()])])
    made = translate(outer.Compose([deep, v1.ToTensor()]))
    assert [op["op"] for op in made.recipe["steps"]] == [
        "center_crop",
        "vertical_flip",
        "to_tensor",
    ]
    assert [step.name for step in made.steps] == ["CenterCrop", "RandomVerticalFlip", "ToTensor"]


def test_a_compose_of_ones_own_is_one_python_step():
    class Own(v1.Compose):
        pass

    own = Own([v1.CenterCrop(8)])
    made = translate(own)
    assert (made.recipe, made.rest) == (None, [own])
    assert made.steps == (Step("Own", False, "a class of its own"),)


def test_the_steps_after_the_prefix_are_handed_on_as_they_are():
    flip, mine = v1.RandomHorizontalFlip(), lambda image: image
    made = translate(v1.Compose([v1.CenterCrop(8), mine, flip, v1.ToTensor()]))
    assert made.recipe["steps"] == [CROP]
    assert made.rest[:2] == [mine, flip]
    assert [step.native for step in made.steps] == [True, False, False, False]
    assert made.steps[2].why == "comes after <lambda>, which runs in Python"


@pytest.mark.parametrize(
    ("given", "handed", "order"),
    [
        ([C], "pil", "hwc"),
        ([C, abs], "pil", "hwc"),
        ([C, v1.ToTensor()], "tensor", "chw"),
        ([C, v1.ToTensor(), abs], "tensor", "chw"),
        ([C, v1.PILToTensor(), abs], "tensor", "chw"),
    ],
)
def test_the_rest_gets_what_torchvision_would_have_given_it(given, handed, order):
    made = translate(v1.Compose(given))
    assert (made.handed, made.recipe["order"]) == (handed, order)
    last = translate(v1.Compose(given), channels_last=True)
    assert (last.handed, last.recipe["order"]) == (handed, "hwc")


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ([v2.ToImage()], tv_tensors.Image),
        ([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)], tv_tensors.Image),
        ([v1.ToTensor(), v2.ToImage()], tv_tensors.Image),
        ([v2.ToImage(), v2.ToPureTensor()], torch.Tensor),
        ([v2.PILToTensor()], torch.Tensor),
    ],
)
def test_python_steps_get_an_image_of_v2_where_torchvision_has_one(given, kind):
    made = translate(v2.Compose([v2.CenterCrop(8), *given, type]))
    assert type(v2.Compose([v2.CenterCrop(8), *given])(Image.new("RGB", (9, 9)))) is kind
    rest = pickle.loads(pickle.dumps(made.rest))  # as worker processes get it
    value = torch.zeros(3, 8, 8)
    for step in rest:
        value = step(value)
    assert value is kind


def test_the_settings_are_in_the_recipe():
    made = translate(C, decode="fast", orient=True, max_pixels=1000)
    assert {**made.recipe, "steps": None} == {
        "decode": "fast",
        "orient": True,
        "max_pixels": 1000,
        "order": "hwc",
        "steps": None,
    }
    usual = translate(C).recipe
    assert (usual["decode"], usual["orient"], usual["max_pixels"]) == ("exact", False, 178956970)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"decode": "quick"}, "decode='quick' is not known; hint: 'exact' or 'fast'"),
        ({"max_pixels": 0}, "max_pixels=0 is not a number of pixels"),
        ({"max_pixels": 1e6}, "max_pixels=1000000.0 is not a number of pixels"),
    ],
)
def test_settings_that_cannot_be_are_refused(options, says):
    with pytest.raises(forebay.InvalidError, match=says):
        translate(C, **options)


def test_a_transform_changed_after_its_translation_is_not_followed():
    flip = v1.RandomHorizontalFlip(0.5)
    made = translate(v1.Compose([C, flip]))
    flip.p = 0.9
    assert made.recipe["steps"][1]["p"] == 0.5


def test_explain_names_each_step_and_the_reason():
    made = translate(v1.Compose([C, v1.RandomRotation(5), v1.ToTensor()]))
    assert explain(made).splitlines() == [
        "1 of 3 steps of the transform are native",
        "  native  CenterCrop",
        "  Python  RandomRotation: not among the steps that run native",
        "  Python  ToTensor: comes after RandomRotation, which runs in Python",
    ]


# -- native_only -----------------------------------------------------------------------------


def test_native_only_turns_a_python_step_into_an_error_that_names_it():
    slow = translate(v1.Compose([C, v1.RandomRotation(5), abs]))
    transforms.require_native(slow)
    with transforms.native_only():
        assert transforms.is_native_only()
        transforms.require_native(translate(v1.Compose([C, v1.ToTensor()])))
        with pytest.raises(forebay.InvalidError, match="RandomRotation: not among the steps"):
            transforms.require_native(slow)
        with pytest.raises(forebay.InvalidError, match="have no transform"):
            transforms.require_native(translate(None))
    assert not transforms.is_native_only()
    transforms.require_native(slow)


def test_native_only_nests():
    with transforms.native_only():
        with transforms.native_only(False):
            assert not transforms.is_native_only()
        assert transforms.is_native_only()
    assert not transforms.is_native_only()


def test_native_only_is_put_back_after_an_error():
    with pytest.raises(KeyError), transforms.native_only():
        raise KeyError
    assert not transforms.is_native_only()


def test_native_only_called_by_itself_stays_on():
    transforms.native_only()
    try:
        assert transforms.is_native_only()
    finally:
        transforms.native_only(False)
    assert not transforms.is_native_only()


# -- torchvision itself ----------------------------------------------------------------------


def test_without_torchvision_everything_is_python(monkeypatch):
    monkeypatch.delitem(transforms.known.sys.modules, "torchvision.transforms")
    monkeypatch.delitem(transforms.known.sys.modules, "torchvision.transforms.v2")
    made = translate(C)
    assert (made.recipe, made.rest) == (None, [C])


@pytest.mark.parametrize(
    "step",
    [
        v2.Resize((50, 61)),
        v2.Resize((150, 161)),
        v2.RandomResizedCrop(32),
        v2.ColorJitter(0.4),
        v2.ColorJitter(contrast=0.4),
        v2.ColorJitter(saturation=0.4),
        v2.Grayscale(3),
        v2.GaussianBlur((5, 9)),
        v2.Pad(3, fill=(1, 2, 3)),
        v2.Pad(3, padding_mode="symmetric"),
        v2.CenterCrop(130),
    ],
)
def test_what_is_native_on_tensors_is_the_same_on_pil_images_in_torchvision(step):
    """The engine works as torchvision on PIL images: the premise for steps after ToImage."""
    across = np.linspace(0, 255, 120)[None, :, None] * [1, 0.5, 0] + [0, 60, 255]
    noise = np.random.default_rng(3).normal(0, 20, (90, 120, 3))
    image = Image.fromarray((across + noise).clip(0, 255).astype(np.uint8))
    assert translate(v2.Compose([v2.ToImage(), v2.CenterCrop(80), step])).is_native
    torch.manual_seed(5)
    pil = np.asarray(step(image)).astype(int)
    torch.manual_seed(5)
    tensor = step(v2.functional.to_image(image)).permute(1, 2, 0).numpy().astype(int)
    assert np.abs(pil - tensor).max() <= 1
