//! Pages of components that the warden has mapped, too: their words are what both tell each other.

#![allow(unsafe_code)]

use core::ptr::with_exposed_provenance;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};

/// The report page of each component.
pub const REPORT: u64 = 0x2_0000_0000;
/// Word of a report page: what the component has found wrong first, by its number in [`wrongs`](crate::wrongs); 0:
/// nothing.
pub const WRONG: usize = 16;
/// Something about that.
pub const WRONG_DETAIL: usize = 17;

/// Word `n` of a mapped page.
pub fn word_of(page: u64, n: usize) -> &'static AtomicU64 {
    let at = page as usize + 8 * (n % 512);
    // SAFETY: 1. Callers name pages that are mapped as long as they run. 2. They are mapped for atomic words only.
    // 3. It is aligned.
    unsafe { &*with_exposed_provenance::<AtomicU64>(at) }
}

/// Word `n` of the report page of the component that this code runs in.
pub fn report(n: usize) -> &'static AtomicU64 {
    word_of(REPORT, n)
}

/// Says what is wrong. The first finding stays.
pub fn found(what: u64, detail: u64) {
    let first = report(WRONG).compare_exchange(0, what, AcqRel, Relaxed);
    if first.is_ok() {
        report(WRONG_DETAIL).store(detail, Relaxed);
    }
}

/// What a component can find wrong: numbers, and what they are in words.
#[macro_export]
macro_rules! wrongs {
    ($($name:ident = $number:literal, $words:literal;)*) => {
        $(#[doc = $words] pub const $name: u64 = $number;)*

        /// What is wrong in words.
        pub const fn name(number: u64) -> &'static str {
            match number {
                $($name => $words,)*
                _ => "something",
            }
        }
    };
}

/// An enumeration whose variants are gone through, and have names.
#[macro_export]
macro_rules! named {
    ($(#[$about:meta])* pub enum $type:ident {
        $($(#[$what:meta])* $variant:ident = $name:literal,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type {
            $($(#[$what])* $variant,)*
        }

        impl $type {
            /// All of them.
            pub const ALL: &'static [$type] = &[$($type::$variant,)*];

            /// The name of one of them.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)*
                }
            }
        }
    };
}
