//! Capability tables, memory, liveness.

use dyad_abi::cap::{
    CapIndex, CaptblOp, Counted, Guard, Introspection, LivenessOp, MemoryOp, ObjectKind, Rights,
};
use dyad_abi::{Error, Result};

use super::{Cap, Captbl, Kind, Liveness, Memory, Narrow, Place, Stamp};

impl Cap<Captbl> {
    /// Removes the capability in slot `index`, counted from this node on. The slot can be used again
    /// after quiescence. Needs the right `Deactivate`.
    ///
    /// # Errors
    ///
    /// `NotFound` if the slot is empty, and those of
    /// [every operation](super#errors-of-every-operation).
    pub fn deactivate(self, index: CapIndex) -> Result<()> {
        self.call(
            CaptblOp::Deactivate as u32,
            [index.get().into(), 0, 0, 0, 0],
        )
        .map(drop)
    }

    /// Copies `source`, a capability of the caller, to slot `index` counted from this node on, with those of
    /// its rights that are in `rights`, for the part of its range that `narrow` selects. With a `guard`, the
    /// copy and all copies of it die when that entry is [revoked](Cap::revoke). Needs the right `CopyIn` on
    /// this capability and the right to copy on `source`.
    ///
    /// Returns the copy as the owner of this table names it, if this node is the root.
    ///
    /// # Errors
    ///
    /// `Exists` if the slot is in use or `source` has a guard already and is to get another one;
    /// `Again` if the slot was in use a moment ago; and those of
    /// [every operation](super#errors-of-every-operation).
    pub fn copy_in<T: Kind>(
        self,
        index: CapIndex,
        source: Cap<T>,
        rights: Rights,
        guard: Option<Guard>,
        narrow: Narrow,
    ) -> Result<Cap<T>> {
        let rights = u64::from(rights.0) | u64::from(guard.map_or(0, Guard::bits)) << 32;
        let args = [
            index.get().into(),
            source.number(),
            rights,
            narrow.first,
            narrow.count,
        ];
        self.call(CaptblOp::CopyIn as u32, args)?;
        Ok(Cap::at(index))
    }

    /// Hangs `leaf` into entry `entry` of this root: its slots get the indices from `64 * entry` on.
    /// Needs the right `Cons`.
    ///
    /// # Errors
    ///
    /// `Exists` if the entry is in use, `Again` if it was in use a moment ago, and those of
    /// [every operation](super#errors-of-every-operation).
    pub fn cons(self, entry: u32, leaf: Cap<Captbl>) -> Result<()> {
        let args = [entry.into(), leaf.number(), 0, 0, 0];
        self.call(CaptblOp::Cons as u32, args).map(drop)
    }

    /// Takes the leaf in entry `entry` out of this root. Needs the right `Decons`.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is none, and those of
    /// [every operation](super#errors-of-every-operation).
    pub fn decons(self, entry: u32) -> Result<()> {
        self.call(CaptblOp::Decons as u32, [entry.into(), 0, 0, 0, 0])
            .map(drop)
    }

    /// The rights and the object of the capability in slot `index`, counted from this node on, like
    /// [`introspect`](Cap::introspect). Needs the right `Read`.
    ///
    /// # Errors
    ///
    /// `NotFound` if the slot is empty, and those of
    /// [every operation](super#errors-of-every-operation).
    pub fn read(self, index: CapIndex) -> Result<Introspection> {
        let v = self.call(CaptblOp::Read as u32, [index.get().into(), 0, 0, 0, 0])?;
        Introspection::from_bits(v).ok_or(Error::Corrupt)
    }
}

/// `at` counts frames from the start of the range.
impl Cap<Memory> {
    /// Makes user memory of the untyped block at `at`, which has `2^order` frames: zero-filled, to be
    /// [activated](Cap::activate) and [mapped](Cap::map). Needs the right `RetypeUser`.
    ///
    /// # Errors
    ///
    /// `Exists` if the block is not untyped; `Again` if it was something else a moment ago; `TooLarge`
    /// if it has been used and is larger than the kernel zeroes at once; `Denied` for frames of the
    /// system; and those of [every operation](super#errors-of-every-operation).
    pub fn retype_user(self, at: u64, order: u32) -> Result<()> {
        let args = [at, order.into(), 0, 0, 0];
        self.split_and_call(MemoryOp::RetypeUser, args)
    }

    /// Makes a kernel object of the untyped frame at `at`. Needs the right `RetypeKernel`.
    ///
    /// # Errors
    ///
    /// As [`retype_user`](Cap::retype_user).
    pub fn retype_kernel(self, at: u64, kind: ObjectKind) -> Result<()> {
        let args = [at, kind as u64, 0, 0, 0];
        self.split_and_call(MemoryOp::RetypeKernel, args)
    }

    /// A call of the kernel splits a large block a bounded number of times and then fails with `Again`; two
    /// calls are enough for the largest block. A call that fails for another reason fails again.
    fn split_and_call(self, op: MemoryOp, args: [u64; 5]) -> Result<()> {
        match self.call(op as u32, args) {
            Err(Error::Again) => self.call(op as u32, args).map(drop),
            done => done.map(drop),
        }
    }

    /// Makes the block or object at `at` untyped: all capabilities to it become invalid. The memory can be
    /// used again once the returned stamp has [passed](Cap::quiesced). Needs the right `RetypeUntyped`.
    ///
    /// # Errors
    ///
    /// `Exists` while it is still referred to, for example by a mapping or by a table that links it;
    /// `NotReady` for a thread that has not been stopped; `Again` if another CPU is changing it; `Denied` for
    /// frames of the system; and those of [every operation](super#errors-of-every-operation).
    pub fn retype_untyped(self, at: u64) -> Result<Stamp> {
        self.call(MemoryOp::RetypeUntyped as u32, [at, 0, 0, 0, 0])
            .map(Stamp)
    }

    /// Splits the untyped block at `at` into two. Needs the right `Split`.
    ///
    /// # Errors
    ///
    /// `BadArgument` if the block is a single frame, and those of [every
    /// operation](super#errors-of-every-operation).
    pub fn split(self, at: u64) -> Result<()> {
        self.call(MemoryOp::Split as u32, [at, 0, 0, 0, 0])
            .map(drop)
    }

    /// Merges the untyped block at `at` with its neighbour of the same size. Needs the right `Merge`.
    ///
    /// # Errors
    ///
    /// `NotFound` if the neighbour is not untyped or has another size, and those of
    /// [every operation](super#errors-of-every-operation).
    pub fn merge(self, at: u64) -> Result<()> {
        self.call(MemoryOp::Merge as u32, [at, 0, 0, 0, 0])
            .map(drop)
    }

    /// Puts a capability for the object or the user block at `at` into a slot, with those rights of its type
    /// that are in `rights`. Needs the right `Activate`.
    ///
    /// Returns the capability as it is named in that table; the caller asserts its type.
    ///
    /// # Errors
    ///
    /// `Exists` if the slot is in use; `Again` if it was in use a moment ago; `BadArgument` if no object or
    /// block that can have capabilities starts at `at`; and those of [every
    /// operation](super#errors-of-every-operation).
    pub fn activate<T: Kind>(self, at: u64, place: Place, rights: Rights) -> Result<Cap<T>> {
        let args = [at, place.bits(), rights.0.into(), 0, 0];
        self.call(MemoryOp::Activate as u32, args)?;
        Ok(Cap::at(place.index))
    }

    /// The word of the frame table for the frame at `at`. Needs the right `Inspect`.
    ///
    /// # Errors
    ///
    /// Those of [every operation](super#errors-of-every-operation).
    pub fn inspect(self, at: u64) -> Result<u64> {
        self.call(MemoryOp::Inspect as u32, [at, 0, 0, 0, 0])
    }

    /// Counts the uses of up to `frames` frames from `at` on. The result says how many frames were examined.
    /// Needs the right `Count`.
    ///
    /// # Errors
    ///
    /// `BadArgument` for no frames; and those of [every operation](super#errors-of-every-operation).
    pub fn count(self, at: u64, frames: u64) -> Result<Counted> {
        self.call(MemoryOp::Count as u32, [at, frames, 0, 0, 0])
            .map(Counted::from_bits)
    }
}

impl Cap<Liveness> {
    /// The guard that entry `entry` is, for [`copy_in`](Cap::copy_in). Copies need the right `Guard`.
    pub const fn guard(self, entry: u32) -> Guard {
        Guard {
            liveness: self.index(),
            entry,
        }
    }

    /// Takes every capability that is guarded by `entry` away, in one step however many there are.
    /// Needs the right `Revoke`.
    ///
    /// # Errors
    ///
    /// Those of [every operation](super#errors-of-every-operation).
    pub fn revoke(self, entry: u32) -> Result<()> {
        self.call(LivenessOp::Revoke as u32, [entry.into(), 0, 0, 0, 0])
            .map(drop)
    }
}
