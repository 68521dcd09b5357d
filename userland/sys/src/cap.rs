//! Typed handles of capabilities, one method per operation.
//!
//! A [`Cap`] is a number: the index of a slot of the program's capability table, with the type that the
//! program expects in the slot. The kernel checks on every call that the slot has a capability and that it
//! permits an operation of that number. A wrong expectation is usually an error; at worst it is another
//! operation that the program is permitted to carry out. A program with rights by which it can harm itself,
//! over its own address space for example, should therefore name such slots in one place only.
//!
//! | type | methods | what it is |
//! |---|---|---|
//! | [`Captbl`] | [memory](Cap#impl-Cap%3CCaptbl%3E) | a node of a capability table |
//! | [`Memory`] | [memory](Cap#impl-Cap%3CMemory%3E) | a range of frames: the authority to retype them |
//! | [`Frame`], [`PageTable`] | | user memory to be mapped, page tables to be linked |
//! | [`Space`] | [space](Cap#impl-Cap%3CSpace%3E) | an address space |
//! | [`Component`] | [execution](Cap#impl-Cap%3CComponent%3E) | a protection domain |
//! | [`Thread`] | [execution](Cap#impl-Cap%3CThread%3E) | a thread |
//! | [`Sinv`] | [execution](Cap#impl-Cap%3CSinv%3E) | an entry point for synchronous invocation |
//! | [`Send`], [`Receive`] | [execution](Cap#impl-Cap%3CReceive%3E) | the ends of an asynchronous endpoint |
//! | [`Time`] | [execution](Cap#impl-Cap%3CTime%3E) | a budget of processor time |
//! | [`ThreadIds`] | | ids that threads may be given |
//! | [`Hardware`] | [hardware](Cap#impl-Cap%3CHardware%3E) | the hardware of a node |
//! | [`Liveness`] | [memory](Cap#impl-Cap%3CLiveness%3E) | entries that revoke what they guard |
//!
//! # Errors of every operation
//!
//! | error | when |
//! |---|---|
//! | `NoCap` | a slot that is named is empty |
//! | `WrongCap` | an argument names a capability of another type |
//! | `Denied` | the capability does not permit the operation: each method names the right it needs |
//! | `Revoked` | what it referred to has been taken away |
//! | `BadArgument` | an argument is out of range |
//!
//! Methods name the errors they have beyond these. None allocates.
//!
//! # Safety
//!
//! Methods are `unsafe` where they can take memory away from under the calling program, or send one
//! of its threads to an arbitrary place. What services do that a program invokes is not covered:
//! those that can harm their caller are to be wrapped in functions that say so, as
//! [`unmap`](crate::unmap) does.

mod execution;
mod hardware;
mod memory;
mod space;

use core::fmt;
use core::marker::PhantomData;

use dyad_abi::cap::{CapType, INTROSPECT, call_word};
use dyad_abi::{Error, Result};

use crate::raw;

pub use dyad_abi::cap::{
    CapIndex, Event, Guard, Introspection, ObjectKind, RegionKind, Rights, Stopped, Stripes,
    TableAt, Woken,
};
pub use execution::{Stop, ThreadSetup, Until};
pub use hardware::NodeState;
pub use space::{Access, Ticket, Translation, Used};

mod sealed {
    pub trait Sealed {}
}

/// A type of capabilities.
pub trait Kind: sealed::Sealed {
    /// Number of the type in the ABI.
    const TYPE: CapType;
}

macro_rules! kinds {
    ($($(#[$m:meta])* $name:ident,)*) => { $(
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {}

        impl sealed::Sealed for $name {}

        impl Kind for $name {
            const TYPE: CapType = CapType::$name;
        }
    )* };
}

kinds! {
    /// A node of a capability table.
    Captbl,
    /// A node of a page table. Only a right: it may be [linked](Cap::link).
    PageTable,
    /// An address space.
    Space,
    /// A protection domain.
    Component,
    /// A thread.
    Thread,
    /// An entry point for synchronous invocation.
    Sinv,
    /// The sending end of an asynchronous endpoint.
    Send,
    /// The receiving end of asynchronous endpoints.
    Receive,
    /// A range of frames, to be retyped.
    Memory,
    /// User memory, to be [mapped](Cap::map).
    Frame,
    /// A budget of processor time.
    Time,
    /// A range of thread ids. Only a right: threads may be [configured](Cap::configure) with them.
    ThreadIds,
    /// The hardware of a node.
    Hardware,
    /// Entries that revoke the capabilities guarded by them.
    Liveness,
}

/// A capability of the calling program. `T` is the type that the program expects.
///
/// ```
/// use dyad_sys::cap::{Cap, Thread};
/// use dyad_abi::service::slot;
///
/// let me = Cap::<Thread>::at(slot::THREAD);
/// me.yield_now()?;
/// # Ok::<(), dyad_sys::Error>(())
/// ```
pub struct Cap<T> {
    index: CapIndex,
    kind: PhantomData<fn() -> T>,
}

impl<T> Clone for Cap<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Cap<T> {}

impl<T> PartialEq for Cap<T> {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}

impl<T> Eq for Cap<T> {}

impl<T: Kind> fmt::Debug for Cap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", T::TYPE.name(), self.index.get())
    }
}

impl<T> Cap<T> {
    /// The capability in slot `index` of the program's table.
    pub const fn at(index: CapIndex) -> Cap<T> {
        Cap {
            index,
            kind: PhantomData,
        }
    }

    /// The slot of the capability.
    pub const fn index(self) -> CapIndex {
        self.index
    }

    /// The capability's rights and the object that it refers to. Needs the right `INTROSPECT`.
    ///
    /// # Errors
    ///
    /// Those of [every operation](self#errors-of-every-operation).
    pub fn introspect(self) -> Result<Introspection> {
        Introspection::from_bits(self.call(INTROSPECT, [0; 5])?).ok_or(Error::Corrupt)
    }

    fn number(self) -> u64 {
        self.index.get().into()
    }

    /// An operation that takes nothing away from the calling program.
    fn call(self, operation: u32, args: [u64; 5]) -> Result<u64> {
        // SAFETY: 1. Methods that can take memory away, or run code at an address, have that as
        // their own contract. 2. All others pass numbers, or addresses of live borrows with their
        // lengths, which the kernel only reads.
        result(unsafe { raw::call_raw(call_word(self.index, operation), args) })
    }
}

/// The result of a call.
pub(crate) fn result(r: raw::SyscallReturn) -> Result<u64> {
    match r.status {
        0 => Ok(r.value),
        // A code this ABI version does not have means the kernel is not the one we know.
        code => Err(Error::from_code(code).unwrap_or(Error::Corrupt)),
    }
}

/// A slot for a new capability: a table and an index in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    table: CapIndex,
    index: CapIndex,
}

impl Place {
    /// Slot `index` of the caller's own table.
    pub const fn own(index: CapIndex) -> Place {
        Place {
            table: CapIndex::NONE,
            index,
        }
    }

    /// Slot `index`, counted from `table` on: 0 to 63 in a leaf, 0 to 32767 below a root. The
    /// capability of the table needs the right `Activate`.
    pub const fn of(table: Cap<Captbl>, index: CapIndex) -> Place {
        Place {
            table: table.index,
            index,
        }
    }

    /// The slot's index within its table.
    pub const fn index(self) -> CapIndex {
        self.index
    }

    fn bits(self) -> u64 {
        (self.table.get() as u64) << 32 | self.index.get() as u64
    }
}

/// A point in the sequence of quiescence epochs. What was taken away at this point can be used again once
/// [`quiesced`](Cap::quiesced) returns `true`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(pub u64);

/// The part of the source's range that a copy refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Narrow {
    first: u64,
    count: u64,
}

impl Narrow {
    /// The whole range.
    pub const ALL: Narrow = Narrow { first: 0, count: 0 };

    /// `count` frames ([`Memory`], [`Frame`]), entries ([`Liveness`]) or ids ([`ThreadIds`]) from number `first` on,
    /// counted within the source.
    pub const fn range(first: u64, count: u64) -> Narrow {
        Narrow { first, count }
    }
}
