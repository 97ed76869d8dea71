//! Numbers on the command line: whole, in range, `1_281_167` allowed.

/// A number of samples or ranks: ids are 32 bits wide.
pub(crate) fn u32(text: &str) -> Result<u32, String> {
    whole(text, 0, u64::from(u32::MAX)).map(|number| number as u32)
}

/// As [`u32`], and not nothing.
pub(crate) fn positive_u32(text: &str) -> Result<u32, String> {
    whole(text, 1, u64::from(u32::MAX)).map(|number| number as u32)
}

/// A seed, an epoch, a position.
pub(crate) fn u64(text: &str) -> Result<u64, String> {
    whole(text, 0, u64::MAX)
}

fn whole(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let digits: String = text.chars().filter(|&char| char != '_').collect();
    let number = digits.parse::<u64>().ok();
    number
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| format!("not a whole number from {least} to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_outside_their_range_are_refused() {
        assert_eq!(u32("4_294_967_295"), Ok(u32::MAX));
        for text in ["-1", "4294967296", "1.5", "", "ten", "99999999999999999999"] {
            let error = u32(text).unwrap_err();
            assert_eq!(error, "not a whole number from 0 to 4294967295", "{text}");
        }
        assert!(positive_u32("0").is_err());
        assert_eq!(u64("18446744073709551615"), Ok(u64::MAX));
    }
}
