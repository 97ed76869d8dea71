//! What a recipe may say, and what is said of one that may not.

use forebay_prepare::{Element, Error, Order, Recipe};

const CROP: &str = r#"{"op": "center_crop", "height": 8, "width": 6}"#;

fn read(steps: &[&str]) -> Result<Recipe, Error> {
    Recipe::from_json(&format!(
        r#"{{"decode": "exact", "orient": false, "max_pixels": 1000, "order": "chw",
        "steps": [{}]}}"#,
        steps.join(", ")
    ))
}

fn refusal(steps: &[&str]) -> String {
    match read(steps) {
        Err(Error::Invalid(why)) => why,
        other => panic!("{steps:?} gave {other:?}"),
    }
}

#[test]
fn the_shape_follows_from_the_steps() {
    let shape = read(&[CROP]).unwrap().shape();
    assert_eq!((shape.channels, shape.height, shape.width), (3, 8, 6));
    assert_eq!(
        (shape.element, shape.order, shape.bytes()),
        (Element::U8, Order::Chw, 144)
    );

    let pad = r#"{"op": "pad", "padding": [1, 2, 3, 4], "fill": [0], "mode": "edge"}"#;
    let gray = r#"{"op": "grayscale", "channels": 1}"#;
    let shape = read(&[CROP, pad, gray, r#"{"op": "to_tensor"}"#])
        .unwrap()
        .shape();
    assert_eq!((shape.channels, shape.height, shape.width), (1, 14, 10));
    assert_eq!((shape.element, shape.bytes()), (Element::F32, 560));

    let half = r#"{"op": "to_dtype", "dtype": "bfloat16", "scale": true}"#;
    let shape = read(&[CROP, r#"{"op": "to_image"}"#, half])
        .unwrap()
        .shape();
    assert_eq!((shape.element, shape.bytes()), (Element::Bf16, 288));
}

#[test]
fn an_output_without_fixed_size_is_refused() {
    let shorter = r#"{"op": "resize_shorter", "size": 8, "filter": "bilinear"}"#;
    assert!(refusal(&[]).contains("no fixed size"));
    assert!(refusal(&[CROP.replace("center_crop", "x").as_str()]).contains("no step"));
    assert!(refusal(&[shorter]).contains("no fixed size"));
    assert_eq!(read(&[CROP, shorter]).unwrap().shape().height, 10);
}

#[test]
fn an_error_names_the_step_and_what_is_wrong() {
    let cases = [
        (
            r#"{"op": "horizontal_flip", "p": 1.5}"#,
            "p is 1.5, but must be from 0 to 1",
        ),
        (r#"{"op": "horizontal_flip"}"#, "missing field `p`"),
        (
            r#"{"op": "horizontal_flip", "p": 0.5, "q": 1}"#,
            "unknown field `q`",
        ),
        (
            r#"{"op": "resize", "height": 0, "width": 1, "filter": "bilinear"}"#,
            "height is 0",
        ),
        (
            r#"{"op": "resize", "height": 1, "width": 16385, "filter": "bilinear"}"#,
            "width is 16385",
        ),
        (
            r#"{"op": "resize", "height": 1, "width": 1, "filter": "best"}"#,
            "best",
        ),
        (
            r#"{"op": "resize_shorter", "size": 9, "max_size": 9, "filter": "bilinear"}"#,
            "max_size is 9",
        ),
        (
            r#"{"op": "gaussian_blur", "kernel": [3, 4], "sigma": [1, 2]}"#,
            "kernel holds 4",
        ),
        (
            r#"{"op": "gaussian_blur", "kernel": [3, 3], "sigma": [0, 2]}"#,
            "sigma is [0, 2]",
        ),
        (
            r#"{"op": "gaussian_blur", "kernel": [3, 3], "sigma": [2, 1]}"#,
            "in order",
        ),
        (r#"{"op": "grayscale", "channels": 2}"#, "channels is 2"),
        (
            r#"{"op": "color_jitter", "brightness": [-1, 1], "contrast": null,
            "saturation": null, "hue": null}"#,
            "brightness is [-1, 1]",
        ),
        (
            r#"{"op": "color_jitter", "brightness": null, "contrast": null,
            "saturation": null, "hue": [-0.6, 0]}"#,
            "from -0.5 to 0.5",
        ),
        (
            r#"{"op": "pad", "padding": [1, 1, 1, 1], "fill": [1, 2], "mode": "edge"}"#,
            "fill has 2",
        ),
        (
            r#"{"op": "pad", "padding": [-1, 1, 1, 1], "fill": [1], "mode": "edge"}"#,
            "-1",
        ),
        (
            r#"{"op": "random_resized_crop", "height": 1, "width": 1, "scale": [1, 0.5],
            "ratio": [1, 1], "filter": "bilinear"}"#,
            "scale is [1, 0.5]",
        ),
        (
            r#"{"op": "random_resized_crop", "height": 1, "width": 1, "scale": [0.5, 1],
            "ratio": [0, 1], "filter": "bilinear"}"#,
            "ratio is [0, 1]",
        ),
    ];
    for (step, expected) in cases {
        let why = refusal(&[CROP, step]);
        assert!(why.starts_with("step 1 ("), "{why}");
        assert!(why.contains(expected), "{why}");
    }
}

#[test]
fn steps_follow_each_other_as_torchvision_allows() {
    let (tensor, image) = (r#"{"op": "to_tensor"}"#, r#"{"op": "to_image"}"#);
    let normalize = r#"{"op": "normalize", "mean": [0.5], "std": [0.5]}"#;
    let flip = r#"{"op": "vertical_flip", "p": 0.5}"#;
    let erase = r#"{"op": "random_erasing", "p": 1, "scale": [0.1, 0.2], "ratio": [1, 1],
        "value": "random"}"#;
    assert!(refusal(&[CROP, tensor, flip]).contains("works on bytes"));
    assert!(refusal(&[CROP, image, erase, flip]).contains("works on bytes"));
    assert!(refusal(&[CROP, tensor, image]).contains("became a tensor"));
    assert!(refusal(&[CROP, normalize]).contains("needs a tensor"));
    assert!(refusal(&[CROP, image, normalize]).contains("needs floats"));
    assert!(refusal(&[CROP, erase]).contains("needs a tensor"));
    read(&[CROP, image, flip, erase]).unwrap();
    read(&[CROP, tensor, erase, normalize, erase]).unwrap();
    let zero = r#"{"op": "normalize", "mean": [0.5], "std": [0]}"#;
    assert!(refusal(&[CROP, tensor, zero]).contains("std holds a 0"));
    let two = r#"{"op": "normalize", "mean": [1, 2], "std": [1]}"#;
    assert!(refusal(&[CROP, tensor, two]).contains("mean has 2 values"));
}

#[test]
fn text_that_is_no_recipe_is_refused() {
    for text in ["", "[]", r#"{"steps": []}"#] {
        assert!(
            matches!(Recipe::from_json(text), Err(Error::Invalid(why)) if why.starts_with("recipe: "))
        );
    }
    assert!(refusal(&[r#"{"p": 1}"#]).contains("op is missing"));
}
