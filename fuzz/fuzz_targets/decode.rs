//! Any bytes at all, taken for an image: pixels or an error, never a crash, a hang, or memory
//! beyond `max_pixels`.
//!
//! The first byte chooses the recipe, so that exact and fast, turned and not, parts and wholes
//! are all reached; the rest is the image.
#![no_main]

use std::sync::LazyLock;

use forebay_prepare::{Draw, Recipe, Scratch};
use libfuzzer_sys::fuzz_target;

static RECIPES: LazyLock<Vec<Recipe>> = LazyLock::new(|| {
    let modes = [
        ("exact", false),
        ("exact", true),
        ("fast", false),
        ("fast", true),
    ];
    modes.map(|(decode, orient)| recipe(decode, orient)).into()
});

fn recipe(decode: &str, orient: bool) -> Recipe {
    let text = format!(
        r#"{{"decode": "{decode}", "orient": {orient}, "max_pixels": 1048576, "order": "chw",
            "steps": [{{"op": "random_resized_crop", "height": 32, "width": 32,
                        "scale": [0.08, 1.0], "ratio": [0.75, 1.3333333333333333],
                        "filter": "bilinear"}},
                      {{"op": "to_image"}}]}}"#
    );
    Recipe::from_json(&text).expect("the recipe is right")
}

fuzz_target!(|input: &[u8]| {
    let Some((&choice, encoded)) = input.split_first() else {
        return;
    };
    let recipe = &RECIPES[usize::from(choice) % RECIPES.len()];
    let mut scratch = Scratch::default();
    let mut out = vec![0; recipe.shape().bytes()];
    let draw = Draw {
        seed: 1,
        epoch: 0,
        position: u64::from(choice),
    };
    let _ = recipe.prepare(encoded, draw, &mut scratch, &mut out);
    let _ = recipe.decode(encoded, &mut scratch);
});
