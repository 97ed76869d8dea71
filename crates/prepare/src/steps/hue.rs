//! Hue: to HSV bytes and back as Pillow converts, in between the hue byte turns round.
//!
//! Pillow mixes single and double precision; both are kept as they are there, or bytes differ.

/// Turns the hue of RGB pixels by a part of the circle, -0.5 to 0.5.
pub(super) fn turn(pixels: &mut [u8], by: f64) {
    // As torchvision does: cut off to a whole number, then to a byte that wraps round.
    let by = (by * 255.0) as i32 as u8;
    for pixel in pixels.chunks_exact_mut(3) {
        let [hue, saturation, value] = to_hsv([pixel[0], pixel[1], pixel[2]]);
        pixel.copy_from_slice(&to_rgb([hue.wrapping_add(by), saturation, value]));
    }
}

fn to_hsv([red, green, blue]: [u8; 3]) -> [u8; 3] {
    let most = red.max(green).max(blue);
    let least = red.min(green).min(blue);
    if most == least {
        return [0, 0, most];
    }
    let range = f32::from(most - least);
    let saturation = range / f32::from(most);
    let below = |value: u8| f32::from(most - value) / range;
    let (red_below, green_below, blue_below) = (below(red), below(green), below(blue));
    let hue = if red == most {
        blue_below - green_below
    } else if green == most {
        (2.0 + f64::from(red_below) - f64::from(blue_below)) as f32
    } else {
        (4.0 + f64::from(green_below) - f64::from(red_below)) as f32
    };
    // Between 0.8 and 1.9 before the whole part goes: `fract` is `fmod(., 1)`.
    let hue = (f64::from(hue) / 6.0 + 1.0).fract() as f32;
    [
        (f64::from(hue) * 255.0) as u8,
        (f64::from(saturation) * 255.0) as u8,
        most,
    ]
}

fn to_rgb([hue, saturation, value]: [u8; 3]) -> [u8; 3] {
    if saturation == 0 {
        return [value; 3];
    }
    let sixths = f64::from(hue) * 6.0 / 255.0;
    let sector = sixths.floor();
    let part = f64::from((sixths - sector) as f32);
    let saturation = f64::from((f64::from(saturation) / 255.0) as f32);
    let scaled = |by: f64| (f64::from(value) * by).round() as u8;
    let low = scaled(1.0 - saturation);
    let falling = scaled(1.0 - saturation * part);
    let rising = scaled(1.0 - saturation * (1.0 - part));
    match sector as u8 % 6 {
        0 => [value, rising, low],
        1 => [falling, value, low],
        2 => [low, value, rising],
        3 => [low, falling, value],
        4 => [rising, low, value],
        _ => [value, low, falling],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_colours_have_pillows_hsv() {
        assert_eq!(to_hsv([255, 0, 0]), [0, 255, 255]);
        assert_eq!(to_hsv([0, 255, 0]), [85, 255, 255]);
        assert_eq!(to_hsv([0, 0, 255]), [170, 255, 255]);
        assert_eq!(to_hsv([9, 9, 9]), [0, 0, 9]);
        assert_eq!(to_hsv([255, 0, 1]), [254, 255, 255]);
    }

    #[test]
    fn a_turn_wraps_round_and_leaves_grey_alone() {
        let mut pixels = [255, 0, 0, 7, 7, 7];
        turn(&mut pixels, 1.0 / 3.0 + 1e-9);
        assert_eq!(pixels, [0, 255, 0, 7, 7, 7]);
        turn(&mut pixels, -1.0 / 3.0 - 1e-9);
        assert_eq!(pixels, [255, 0, 0, 7, 7, 7]);
    }
}
