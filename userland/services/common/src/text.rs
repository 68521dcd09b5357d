//! Messages without a heap.

use core::fmt;

/// Text of at most `N` bytes; the rest is cut off.
pub struct Text<const N: usize> {
    bytes: [u8; N],
    used: usize,
}

impl<const N: usize> Text<N> {
    /// The formatted text.
    pub fn of(args: fmt::Arguments<'_>) -> Text<N> {
        let mut text = Text {
            bytes: [0; N],
            used: 0,
        };
        // It never fails: what does not fit is left out.
        let _ = fmt::Write::write_fmt(&mut text, args);
        text
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.used]).unwrap_or("")
    }
}

impl<const N: usize> fmt::Write for Text<N> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let fits = s.floor_char_boundary(N - self.used);
        self.bytes[self.used..self.used + fits].copy_from_slice(&s.as_bytes()[..fits]);
        self.used += fits;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_left_out_at_a_character() {
        let t = Text::<8>::of(format_args!("{} {}", 12, "abcdä"));
        assert_eq!(t.as_str(), "12 abcd");
        assert_eq!(Text::<4>::of(format_args!("")).as_str(), "");
    }
}
