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
    // To a small size, so that images are scaled too.
    let modes = [
        ("exact", false, 32),
        ("exact", true, 32),
        ("fast", false, 32),
        ("fast", true, 4),
    ];
    let recipes = modes.map(|(decode, orient, edge)| recipe(decode, orient, edge));
    recipes.into()
});

fn recipe(decode: &str, orient: bool, edge: u32) -> Recipe {
    let text = format!(
        r#"{{"decode": "{decode}", "orient": {orient}, "max_pixels": 1048576, "order": "chw",
            "steps": [{{"op": "random_resized_crop", "height": {edge}, "width": {edge},
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
