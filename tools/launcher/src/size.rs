//! Sizes as people write them: `256MiB`, `2GiB`, `512M`, plain bytes.

/// Units, largest first. The short forms mean the same powers of two, as in QEMU.
const UNITS: [(&str, u32); 6] = [
    ("gib", 30),
    ("mib", 20),
    ("kib", 10),
    ("g", 30),
    ("m", 20),
    ("k", 10),
];

/// Parses a size.
///
/// # Errors
///
/// A sentence that says what is possible.
pub fn parse(text: &str) -> Result<u64, String> {
    let bad = || {
        format!("{text:?} is not a size: write a whole number with KiB, MiB or GiB, such as 256MiB")
    };
    let lower = text.trim().to_lowercase();
    let (digits, shift) = UNITS
        .iter()
        .find_map(|&(unit, shift)| lower.strip_suffix(unit).map(|d| (d, shift)))
        .unwrap_or((&lower, 0));
    let n: u64 = digits.trim().replace('_', "").parse().map_err(|_| bad())?;
    n.checked_mul(1 << shift).ok_or_else(bad)
}

/// Shows a size in the largest unit it reaches, with a decimal unless it is a whole number.
pub fn show(bytes: u64) -> String {
    for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        let one = 1u64 << shift;
        if bytes >= one {
            return if bytes.is_multiple_of(one) {
                format!("{} {unit}", bytes >> shift)
            } else {
                format!("{:.1} {unit}", bytes as f64 / one as f64)
            };
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, bytes) in [
            ("256MiB", 256 << 20),
            ("256 MiB", 256 << 20),
            ("2GiB", 2 << 30),
            ("2g", 2 << 30),
            ("512M", 512 << 20),
            ("33554432", 32 << 20),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "MiB", "1.5GiB", "-1M", "12XB", "99999999999999GiB"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(show(256 << 20), "256 MiB");
        assert_eq!(show(3 << 29), "1.5 GiB");
        assert_eq!(show((1 << 20) + 1), "1.0 MiB");
    }
}
