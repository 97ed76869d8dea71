"""``weights.transforms()`` of torchvision's models: native, with torchvision's pixels."""

import forebay
import pytest
import torch
import torchvision
from PIL import Image
from torchvision import models
from torchvision.transforms._presets import ImageClassification, ObjectDetection

CLASSIFIERS = [
    models.ResNet50_Weights.IMAGENET1K_V2,
    models.EfficientNet_B0_Weights.IMAGENET1K_V1,
    models.ViT_B_16_Weights.IMAGENET1K_SWAG_E2E_V1,
    models.Swin_T_Weights.IMAGENET1K_V1,
    models.MobileNet_V3_Large_Weights.IMAGENET1K_V2,
]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    generator = torch.Generator().manual_seed(0)
    for number in range(6):
        (root / f"class{number % 2}").mkdir(exist_ok=True)
        small = torch.randint(0, 256, (9, 12, 3), dtype=torch.uint8, generator=generator)
        image = Image.fromarray(small.numpy()).resize((300 + number, 260), Image.Resampling.BICUBIC)
        image.save(root / f"class{number % 2}" / f"{number}.jpg", quality=90)
    return root


def compare(photos, transform, std=(1.0, 1.0, 1.0), levels=1):
    """Both loaders' images, to within so many levels of 255 before Normalize, but for single
    values."""
    loader = forebay.DataLoader(forebay.ImageFolder(photos, transform), 3)
    theirs = torchvision.datasets.ImageFolder(str(photos), transform)
    std = torch.tensor(std).view(3, 1, 1)
    for (images, labels), (pixels, targets) in zip(
        loader, torch.utils.data.DataLoader(theirs, 3), strict=True
    ):
        assert images.dtype == pixels.dtype
        assert images.shape == pixels.shape
        off = ((images - pixels) * std * 255).abs().round()
        assert off.max() <= 2 * levels
        assert (off > levels).float().mean() < 1e-4
        assert torch.equal(labels, targets)
    return loader


@pytest.mark.parametrize("weights", CLASSIFIERS, ids=str)
def test_a_classifiers_preset_runs_native_with_torchvisions_pixels(photos, weights):
    preset = weights.transforms()
    loader = compare(photos, preset, preset.std)
    told = loader.explain()
    assert "5 of 5 steps" in told, told


def test_a_detectors_preset_gives_the_decoded_pixels(tmp_path, photos):
    # Its images keep their sizes, so a batch is one image; the values are the decoder's own.
    same = tmp_path / "same"
    (same / "a").mkdir(parents=True)
    for number in range(3):
        Image.open(photos / "class0" / "0.jpg").save(same / "a" / f"{number}.png")
    compare(same, ObjectDetection(), levels=0)
    compare(same, models.detection.FasterRCNN_ResNet50_FPN_Weights.COCO_V1.transforms(), levels=0)


def test_a_segmenters_preset_is_read_as_its_steps(photos):
    weights = models.segmentation.DeepLabV3_ResNet50_Weights.COCO_WITH_VOC_LABELS_V1
    preset = weights.transforms(resize_size=64)
    crop = torchvision.transforms.CenterCrop(200)
    loader = compare(photos, torchvision.transforms.Compose([crop, preset]), preset.std)
    assert "5 of 5 steps" in loader.explain()
    # By itself it leaves images in sizes of their own, which is told and left to Python.
    alone = forebay.DataLoader(forebay.ImageFolder(photos, preset), 1)
    assert "0 of 4 steps" in alone.explain()
    assert "the size of the result varies from image to image" in alone.explain()


def test_a_preset_in_a_compose_is_followed_by_the_other_steps(photos):
    preset = ImageClassification(crop_size=32, resize_size=40)
    both = torchvision.transforms.Compose([preset, torch.neg])
    loader = compare(photos, both, preset.std)
    assert "5 of 6 steps" in loader.explain()


def test_a_preset_that_is_changed_counts_from_the_next_epoch_on(photos):
    preset = ImageClassification(crop_size=32, resize_size=40)
    loader = forebay.DataLoader(forebay.ImageFolder(photos, preset), 3)
    assert next(iter(loader))[0].shape == (3, 3, 32, 32)
    preset.crop_size = [24]
    assert next(iter(loader))[0].shape == (3, 3, 24, 24)
    assert "5 of 5 steps" in loader.explain()


class Own(ImageClassification):
    """A subclass may do anything."""

    def forward(self, image):
        return super().forward(image) * 0


def test_a_subclass_of_a_preset_runs_as_it_is(photos):
    loader = forebay.DataLoader(forebay.ImageFolder(photos, Own(crop_size=8, resize_size=8)), 6)
    ((images, _),) = loader
    assert not images.any()
    assert "0 of 1 steps" in loader.explain()
