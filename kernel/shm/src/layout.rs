//! The layout hash: do two kernels agree about every shared structure?
//!
//! [`shared_layout!`](crate::shared_layout) folds the name, size, alignment and every field's
//! name and offset of a structure into a hash at compile time. The hash over all of them is
//! stored in the superblock by the node that formats it; a node whose own hash differs refuses
//! to join. FNV-1a, 64 bits: it guards against mistakes, not against malice.

/// A hash being computed; all methods are `const`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutHash(u64);

impl LayoutHash {
    /// The hash of nothing.
    pub const EMPTY: LayoutHash = LayoutHash(0xcbf2_9ce4_8422_2325);

    /// Adds one byte.
    #[must_use]
    pub const fn byte(self, b: u8) -> LayoutHash {
        LayoutHash((self.0 ^ b as u64).wrapping_mul(0x0000_0100_0000_01b3))
    }

    /// Adds a text and its length.
    #[must_use]
    pub const fn text(self, s: &str) -> LayoutHash {
        let bytes = s.as_bytes();
        let mut h = self.word(bytes.len() as u64);
        let mut i = 0;
        while i < bytes.len() {
            h = h.byte(bytes[i]);
            i += 1;
        }
        h
    }

    /// Adds a 64-bit number.
    #[must_use]
    pub const fn word(self, w: u64) -> LayoutHash {
        let bytes = w.to_le_bytes();
        let mut h = self;
        let mut i = 0;
        while i < 8 {
            h = h.byte(bytes[i]);
            i += 1;
        }
        h
    }

    /// The hash so far.
    pub const fn value(self) -> u64 {
        self.0
    }
}

/// Extends a [`LayoutHash`] by structures: `shared_layout!(hash; Type { field, field }, ...)`.
#[macro_export]
macro_rules! shared_layout {
    ($start:expr; $($ty:ty { $($field:ident),* $(,)? }),* $(,)?) => {{
        let h: $crate::LayoutHash = $start;
        $(
            let h = h
                .text(stringify!($ty))
                .word(core::mem::size_of::<$ty>() as u64)
                .word(core::mem::align_of::<$ty>() as u64);
            $(let h = h.text(stringify!($field)).word(core::mem::offset_of!($ty, $field) as u64);)*
        )*
        h
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(dead_code)]
    mod a {
        #[repr(C)]
        pub struct S {
            pub x: u32,
            pub y: u64,
        }
    }
    #[allow(dead_code)]
    mod b {
        #[repr(C)]
        pub struct S {
            pub y: u64,
            pub x: u32,
        }
    }

    #[test]
    fn order_of_fields_matters() {
        use a::S;
        let one = shared_layout!(LayoutHash::EMPTY; S { x, y });
        use b::S as T;
        let two = shared_layout!(LayoutHash::EMPTY; T { x, y });
        let again = shared_layout!(LayoutHash::EMPTY; S { x, y });
        assert_ne!(one, two);
        assert_eq!(one, again);
    }
}
