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

/// Bytes, as `2GiB`, `1.5 TB` or a number.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 10] = [
        ("", 1),
        ("B", 1),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("KIB", 1 << 10),
        ("MIB", 1 << 20),
        ("GIB", 1 << 30),
        ("TIB", 1 << 40),
    ];
    let wrong = || "not a size; write it as 512MiB or 200GiB".to_owned();
    let text = text.trim();
    let end = text.find(|char: char| !char.is_ascii_digit() && char != '.' && char != '_');
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let unit = unit.trim().to_ascii_uppercase();
    let unit = UNITS.iter().find(|(name, _)| *name == unit);
    let (_, unit) = unit.ok_or_else(wrong)?;
    if !number.contains('.') {
        let bytes = u64(number).map_err(|_| wrong())?.checked_mul(*unit);
        return bytes.filter(|&bytes| bytes < 1 << 63).ok_or_else(wrong);
    }
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = number * *unit as f64;
    (bytes < (1u64 << 63) as f64)
        .then_some(bytes as u64)
        .ok_or_else(wrong)
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
    fn sizes_are_read_as_the_loader_reads_them() {
        for (text, size) in [
            ("0", 0),
            ("123", 123),
            ("1_000kb", 1_000_000),
            ("2GiB", 2 << 30),
            ("1.5 KiB", 1536),
            (" 3tib ", 3 << 40),
        ] {
            assert_eq!(bytes(text), Ok(size), "{text}");
        }
        for text in [
            "",
            "GiB",
            "-1",
            "2 GiBs",
            "1..5",
            "9999999TiB",
            "9999999.0TiB",
            "1e3",
        ] {
            assert_eq!(
                bytes(text).unwrap_err(),
                "not a size; write it as 512MiB or 200GiB"
            );
        }
    }

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
