//! Versions: what an emulator says about itself, and what packages call theirs.

use std::fmt;

/// Major and minor version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major.
    pub major: u32,
    /// Minor.
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The oldest emulator that will do.
pub const MIN_QEMU: Version = Version {
    major: 10,
    minor: 0,
};

impl Version {
    /// From text that starts with digits, a dot and digits.
    pub fn leading(text: &str) -> Option<Version> {
        let (major, rest) = text.split_once('.')?;
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        Some(Version {
            major: major.parse().ok()?,
            minor: rest[..digits].parse().ok()?,
        })
    }

    /// From what `qemu-system-... --version` prints.
    pub fn of_qemu(output: &str) -> Option<Version> {
        let (_, rest) = output.split_once("QEMU emulator version ")?;
        Version::leading(rest)
    }

    /// From a Debian package version, `[epoch:]upstream[-revision]`.
    pub fn of_package(text: &str) -> Option<Version> {
        let upstream = text.split_once(':').map_or(text, |(_, v)| v);
        Version::leading(upstream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_compared_as_numbers() {
        let v = |major, minor| Some(Version { major, minor });
        let debian = "QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)\nCopyright (c)";
        assert_eq!(Version::of_qemu(debian), v(10, 0));
        assert_eq!(Version::of_qemu("QEMU emulator version 9.2.50"), v(9, 2));
        assert_eq!(Version::of_qemu("QEMU emulator version 7.2"), v(7, 2));
        assert_eq!(Version::of_qemu("something else 10.0"), None);
        assert_eq!(Version::of_package("1:7.2+dfsg-7+deb12u18+b3"), v(7, 2));
        assert_eq!(Version::of_package("10.1.0-1ubuntu3"), v(10, 1));
        assert_eq!(Version::of_package("1:10.0~rc3+ds"), v(10, 0));
        assert_eq!(Version::of_package("none"), None);
        assert!(v(9, 2) < Some(MIN_QEMU) && v(10, 0) >= Some(MIN_QEMU));
    }
}
