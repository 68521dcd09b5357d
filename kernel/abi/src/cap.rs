//! Capabilities as programs see them: types, operations, rights, the shape of a call.
//!
//! Every system call names a capability of the caller's component and an operation on it. The
//! first word of the call, in the operation register, is
//!
//! ```text
//! 63            40 39      32 31                     0
//! |      0        | operation |   capability index    |
//! ```
//!
//! and up to five words follow (see [`syscall`](crate::syscall) for registers). An operation's number
//! is also the bit of its *right* in the slot's operation bitmap: a capability permits exactly the
//! operations whose bits it has, copies can only lose bits. Operation 0 is the invocation of a
//! [`Sinv`](CapType::Sinv): no other type has an operation of that number (at most a right). The one
//! call without a capability is [`RETURN`], which ends the invocation the thread is in.
//!
//! # Common rights
//!
//! | bit | right |
//! |---|---|
//! | 31 | [`COPY`]: the capability may be copied |
//! | 30 | [`INTROSPECT`]: `Introspect` tells what it refers to |
//!
//! # Arguments
//!
//! An argument that names a capability is an index into the caller's own table. `table << 32 | index`
//! names a slot: `table` is a capability for a node of a capability table with the right
//! [`CaptblOp::Activate`], `index` counts slots from that node on. There is no short form for the
//! caller's own table, which needs a capability like any other.
//!
//! # What every operation may return
//!
//! Before it begins: [`NoCap`](crate::Error::NoCap) (the slot is empty, or there is no such slot),
//! [`BadSyscall`](crate::Error::BadSyscall) (operation 32 or more),
//! [`Denied`](crate::Error::Denied) (the right is missing), [`Revoked`](crate::Error::Revoked) (the
//! guard is dead, or the object is gone), `BadSyscall` again (the type has no such operation, or the
//! bit is only a right). [`Corrupt`](crate::Error::Corrupt) means damaged shared memory.
//!
//! The reference pages of the book (*Capabilities*) give arguments, results and errors of every
//! operation; the tables here are their summary. A test compares the two.

/// Index of a capability in a component's table: root index in bits 6..15, slot in bits 0..6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct CapIndex(pub u32);

/// Slots of a leaf node of a capability table.
pub const LEAF_SLOTS: u32 = 64;
/// Entries of the root node of a capability table.
pub const ROOT_ENTRIES: u32 = 512;
/// Capabilities a component can have.
pub const TABLE_SLOTS: u32 = LEAF_SLOTS * ROOT_ENTRIES;

impl CapIndex {
    /// No capability: slot 0 of every table stays empty.
    pub const NONE: CapIndex = CapIndex(0);

    /// The index with this number, if there is one.
    pub const fn new(n: u64) -> Option<CapIndex> {
        if n < TABLE_SLOTS as u64 {
            Some(CapIndex(n as u32))
        } else {
            None
        }
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Right to copy a capability.
pub const COPY: u32 = 31;
/// Right to ask what a capability refers to; also the operation that does. Value: see
/// [`Introspection`].
pub const INTROSPECT: u32 = 30;
/// First word of the call that ends the present invocation with up to four result words.
pub const RETURN: u64 = 0;

/// First word of a call.
pub const fn call_word(cap: CapIndex, operation: u32) -> u64 {
    (operation as u64) << 32 | cap.0 as u64
}

macro_rules! numbered {
    ($(#[$m:meta])* $name:ident { $($(#[$v:meta])* $variant:ident = $n:literal,)* }) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$v])* $variant = $n,)* }

        impl $name {
            /// All variants, in the order of their numbers.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The one with this number.
            pub const fn from_number(n: u64) -> Option<$name> {
                match n { $($n => Some($name::$variant),)* _ => None }
            }

            /// Name for reports.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => stringify!($variant),)* }
            }

            /// The right, as a bit of a slot's operation bitmap.
            pub const fn right(self) -> $crate::cap::Rights {
                $crate::cap::Rights(1 << self as u32)
            }
        }
    };
}

// Behind the macro, which they use.
pub mod authority;
mod types;
mod words;

pub use types::*;
pub use words::*;

/// Operation bitmap of a capability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Rights(pub u32);

impl Rights {
    /// No rights.
    pub const NONE: Rights = Rights(0);
    /// Every operation there may be.
    pub const ALL: Rights = Rights(u32::MAX);
    /// The right to copy.
    pub const COPY: Rights = Rights(1 << COPY);
    /// The right to introspect.
    pub const INTROSPECT: Rights = Rights(1 << INTROSPECT);

    /// Whether all rights in `other` are in `self`.
    pub const fn contains(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }

    /// The rights in both.
    #[must_use]
    pub const fn and(self, other: Rights) -> Rights {
        Rights(self.0 & other.0)
    }

    /// The rights in either.
    #[must_use]
    pub const fn or(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}
