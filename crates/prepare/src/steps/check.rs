//! Numbers that a recipe may hold. Each message is to follow the step's name.

/// Largest edge that a step may ask for: 16384 x 16384 RGB is 768 MiB.
const LARGEST: u32 = 16384;

pub(super) fn edge(name: &str, edge: u32) -> Result<(), String> {
    match edge {
        1..=LARGEST => Ok(()),
        _ => Err(format!("{name} is {edge}, but must be from 1 to {LARGEST}")),
    }
}

pub(super) fn size(height: u32, width: u32) -> Result<(), String> {
    edge("height", height)?;
    edge("width", width)
}

pub(super) fn probability(p: f64) -> Result<(), String> {
    if (0.0..=1.0).contains(&p) {
        Ok(())
    } else {
        Err(format!("p is {p}, but must be from 0 to 1"))
    }
}

/// A range in order, within limits.
pub(super) fn range(name: &str, [low, high]: [f64; 2], limits: [f64; 2]) -> Result<(), String> {
    if low.is_finite() && high.is_finite() && limits[0] <= low && low <= high && high <= limits[1] {
        return Ok(());
    }
    let [least, most] = limits;
    let limits = if most == f64::MAX {
        format!("at least {least}")
    } else {
        format!("from {least} to {most}")
    };
    Err(format!(
        "{name} is [{low}, {high}], but must be two numbers in order, {limits}"
    ))
}

/// A range of numbers above zero, in order.
pub(super) fn positive_range(name: &str, [low, high]: [f64; 2]) -> Result<(), String> {
    if high.is_finite() && 0.0 < low && low <= high {
        return Ok(());
    }
    Err(format!(
        "{name} is [{low}, {high}], but must be two numbers in order, above 0"
    ))
}

/// One value for each channel, or one for all.
pub(super) fn per_channel(name: &str, values: &[f64], channels: usize) -> Result<(), String> {
    if values.iter().any(|value| !value.is_finite()) {
        return Err(format!("{name} holds a number that is not finite"));
    }
    if values.len() == 1 || values.len() == channels {
        return Ok(());
    }
    let found = values.len();
    Err(format!(
        "{name} has {found} values, but the image has {channels} channels"
    ))
}
