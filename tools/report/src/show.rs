//! Numbers as text.

/// A number with as many digits as a reader needs.
pub fn shown(value: f64) -> String {
    let size = value.abs();
    if value.fract() == 0.0 && size < 1e15 {
        return grouped(value);
    }
    match size {
        s if s >= 1000.0 => grouped(value.round()),
        s if s >= 100.0 => format!("{value:.1}"),
        s if s >= 10.0 => format!("{value:.2}"),
        s if s >= 0.001 => format!("{value:.3}"),
        _ => format!("{value:.2e}"),
    }
}

/// A whole number with commas between thousands.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if value < 0.0 { format!("-{out}") } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_with_few_digits() {
        for (value, text) in [
            (207_124.0, "207,124"),
            (0.0, "0"),
            (-1234.5, "-1,235"),
            (1.23456, "1.235"),
            (99.126, "99.13"),
            (0.00001, "1.00e-5"),
        ] {
            assert_eq!(shown(value), text);
        }
    }
}
