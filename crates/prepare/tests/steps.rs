//! Whole recipes on decoded images: the same draw gives the same bytes, in the form that is asked.

use forebay_prepare::{Draw, Error, Pixels, Recipe, Scratch};

const DRAW: Draw = Draw {
    seed: 1,
    epoch: 2,
    position: 3,
};
const ALL: &str = r#"
    {"op": "random_resized_crop", "height": 12, "width": 10, "scale": [0.2, 1.0],
        "ratio": [0.75, 1.33], "filter": "bicubic"},
    {"op": "horizontal_flip", "p": 0.5},
    {"op": "color_jitter", "brightness": [0.6, 1.4], "contrast": [0.6, 1.4],
        "saturation": [0.6, 1.4], "hue": [-0.1, 0.1]},
    {"op": "gaussian_blur", "kernel": [3, 5], "sigma": [0.1, 2.0]},
    {"op": "random_grayscale", "p": 0.2},
    {"op": "to_tensor"},
    {"op": "normalize", "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]},
    {"op": "random_erasing", "p": 0.5, "scale": [0.1, 0.3], "ratio": [0.3, 3.3],
        "value": "random"}"#;

fn recipe(order: &str, steps: &str) -> Recipe {
    let head = r#""decode": "exact", "orient": false, "max_pixels": 1000000"#;
    Recipe::from_json(&format!(
        r#"{{{head}, "order": "{order}", "steps": [{steps}]}}"#
    ))
    .unwrap()
}

fn colours(width: u32, height: u32) -> Vec<u8> {
    (0..width * height * 3)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

fn made(recipe: &Recipe, size: (u32, u32), draw: Draw, scratch: &mut Scratch) -> Vec<u8> {
    let rgb = colours(size.0, size.1);
    let mut out = vec![0; recipe.shape().bytes()];
    let image = Pixels {
        width: size.0,
        height: size.1,
        rgb: &rgb,
    };
    recipe
        .prepare_decoded(image, draw, scratch, &mut out)
        .unwrap();
    out
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|&cell| f32::from_ne_bytes(cell))
        .collect()
}

#[test]
fn a_draw_gives_the_same_bytes_whatever_came_before() {
    let recipe = recipe("chw", ALL);
    let fresh = |position| {
        made(
            &recipe,
            (40, 30),
            Draw { position, ..DRAW },
            &mut Scratch::default(),
        )
    };
    let mut used = Scratch::default();
    for position in 0..50 {
        // A larger image in between leaves its pixels in the buffers.
        made(
            &recipe,
            (90, 80),
            Draw {
                position: position + 1000,
                ..DRAW
            },
            &mut used,
        );
        let again = made(&recipe, (40, 30), Draw { position, ..DRAW }, &mut used);
        assert_eq!(again, fresh(position), "position {position}");
    }
    assert_ne!(fresh(0), fresh(1));
}

/// Of a file only the box is decoded, in another form of pixels than a whole image has.
#[test]
fn a_file_gives_what_its_decoded_image_gives() {
    let recipe = recipe("chw", ALL);
    for encoded in [
        &include_bytes!("golden/420.jpg")[..],
        include_bytes!("golden/grey.jpg"),
        include_bytes!("golden/cmyk.jpg"),
        include_bytes!("golden/progressive.jpg"),
    ] {
        let (mut of_file, mut of_image) = (Scratch::default(), Scratch::default());
        for position in 0..40 {
            let draw = Draw { position, ..DRAW };
            let mut made = [(); 2].map(|()| vec![0; recipe.shape().bytes()]);
            let [file, image] = &mut made;
            recipe.prepare(encoded, draw, &mut of_file, file).unwrap();
            let pixels = recipe.decode(encoded, &mut of_file).unwrap();
            recipe
                .prepare_decoded(pixels, draw, &mut of_image, image)
                .unwrap();
            assert_eq!(file, image, "position {position}");
        }
    }
}

#[test]
fn channels_last_holds_the_same_values() {
    let (first, last) = (recipe("chw", ALL), recipe("hwc", ALL));
    for position in 0..20 {
        let draw = Draw { position, ..DRAW };
        let first = floats(&made(&first, (40, 30), draw, &mut Scratch::default()));
        let last = floats(&made(&last, (40, 30), draw, &mut Scratch::default()));
        for (at, value) in last.iter().enumerate() {
            let (pixel, channel) = (at / 3, at % 3);
            assert_eq!(*value, first[channel * 120 + pixel]);
        }
    }
}

#[test]
fn a_mirrored_sample_is_the_sample_mirrored() {
    let crop = r#"{"op": "center_crop", "height": 4, "width": 5}"#;
    for order in ["chw", "hwc"] {
        let flip = |p: u32| {
            recipe(
                order,
                &format!(r#"{crop}, {{"op": "horizontal_flip", "p": {p}}}"#),
            )
        };
        let plain = made(&flip(0), (9, 9), DRAW, &mut Scratch::default());
        let turned = made(&flip(1), (9, 9), DRAW, &mut Scratch::default());
        for (at, value) in turned.iter().enumerate() {
            let mirrored = match order {
                "chw" => at / 5 * 5 + 4 - at % 5,
                _ => at / 15 * 15 + (4 - at % 15 / 3) * 3 + at % 3,
            };
            assert_eq!(*value, plain[mirrored], "{order} {at}");
        }
    }
}

#[test]
fn erased_values_pass_the_steps_after() {
    let steps = r#"{"op": "center_crop", "height": 8, "width": 8}, {"op": "to_tensor"},
        {"op": "random_erasing", "p": 1, "scale": [0.2, 0.3], "ratio": [1, 1], "value": [9, 8, 7]},
        {"op": "normalize", "mean": [1], "std": [2]}"#;
    let recipe = recipe("chw", steps);
    let values = floats(&made(&recipe, (8, 8), DRAW, &mut Scratch::default()));
    let trace: serde_json::Value =
        serde_json::from_str(&recipe.trace((8, 8), DRAW).unwrap()).unwrap();
    let edge = |name: &str| trace[2]["box"][name].as_u64().unwrap() as usize;
    let (rows, columns) = (
        edge("top")..edge("top") + edge("height"),
        edge("left")..edge("left") + edge("width"),
    );
    assert!(rows.len() == 4 && columns.len() == 4, "{trace}");
    for (at, value) in values.iter().enumerate() {
        let inside = rows.contains(&(at / 8 % 8)) && columns.contains(&(at % 8));
        assert_eq!(*value == [4.0, 3.5, 3.0][at / 64], inside, "{at}: {value}");
    }
}

#[test]
fn a_trace_has_all_that_is_drawn() {
    let trace = recipe("chw", ALL).trace((40, 30), DRAW).unwrap();
    let trace: Vec<serde_json::Value> = serde_json::from_str(&trace).unwrap();
    let names: Vec<_> = trace
        .iter()
        .map(|step| step["op"].as_str().unwrap())
        .collect();
    assert_eq!(names[0], "random_resized_crop");
    assert_eq!(names[7], "random_erasing");
    assert!(trace[0]["top"].is_u64() && trace[0]["width"].is_u64());
    assert!(trace[1]["applied"].is_boolean() && trace[4]["applied"].is_boolean());
    assert_eq!(trace[2]["order"].as_array().unwrap().len(), 4);
    assert!(trace[2]["hue"].is_f64() && trace[3]["sigma"].is_f64());
    assert!(trace[7].get("box").is_some());
}

#[test]
fn images_that_a_step_cannot_take_are_refused() {
    let refused = |steps: &str, width: u32, height: u32| {
        let (recipe, rgb) = (recipe("chw", steps), colours(width, height));
        let mut out = vec![0; recipe.shape().bytes()];
        let image = Pixels {
            width,
            height,
            rgb: &rgb,
        };
        recipe
            .prepare_decoded(image, DRAW, &mut Scratch::default(), &mut out)
            .unwrap_err()
    };
    let crop = r#"{"op": "random_crop", "height": 8, "width": 8, "padding": null,
        "pad_if_needed": false, "fill": [0], "mode": "constant"}"#;
    assert!(matches!(refused(crop, 7, 9), Error::TooSmall(why) if why.contains("7x9")));
    let blur = r#"{"op": "gaussian_blur", "kernel": [9, 9], "sigma": [1, 1]},
        {"op": "center_crop", "height": 8, "width": 8}"#;
    assert!(matches!(refused(blur, 4, 9), Error::TooSmall(why) if why.contains("kernel")));
    let long = r#"{"op": "resize_shorter", "size": 2000, "filter": "bilinear"},
        {"op": "center_crop", "height": 8, "width": 8}"#;
    assert!(matches!(
        refused(long, 1, 9),
        Error::TooLarge {
            pixels: 36_000_000,
            limit: 1_000_000
        }
    ));
    let thin = r#"{"op": "resize_shorter", "size": 8, "max_size": 9, "filter": "bilinear"},
        {"op": "center_crop", "height": 8, "width": 8}"#;
    assert!(matches!(refused(thin, 1, 900), Error::TooSmall(why) if why.contains("no pixels")));
}

#[test]
fn a_place_of_the_wrong_length_is_refused() {
    let recipe = recipe("chw", r#"{"op": "center_crop", "height": 2, "width": 2}"#);
    let image = Pixels {
        width: 2,
        height: 2,
        rgb: &[0; 12],
    };
    let error = recipe.prepare_decoded(image, DRAW, &mut Scratch::default(), &mut [0; 11]);
    assert!(matches!(error, Err(Error::Invalid(why)) if why.contains("12 bytes")));
    let image = Pixels {
        rgb: &[0; 11],
        ..image
    };
    let error = recipe.prepare_decoded(image, DRAW, &mut Scratch::default(), &mut [0; 12]);
    assert!(matches!(error, Err(Error::Corrupt(_))));
}
