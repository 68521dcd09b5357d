//! Memory of the emulated thread.

/// Why memory could not be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The first address of the access, or one in it that is the reason.
    pub va: u64,
    /// What was tried.
    pub access: Access,
    /// What is wrong.
    pub kind: FaultKind,
}

/// What was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// An instruction is read.
    Fetch,
    /// Data is read.
    Load,
    /// Data is written.
    Store,
    /// Data is read and written in one step.
    Update,
}

/// What is wrong with an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// There is nothing at the address.
    Unmapped,
    /// Memory is there, but may not be accessed in this way.
    Protection,
    /// The address is not a multiple of what the instruction, or [`Memory`], needs.
    Unaligned,
}

/// Size of an atomic access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 1 byte.
    B1,
    /// 2 bytes.
    B2,
    /// 4 bytes.
    B4,
    /// 8 bytes.
    B8,
    /// 16 bytes.
    B16,
}

impl Width {
    /// The width of `1 << log2` bytes, for `log2` up to 4.
    pub(crate) fn log2(log2: u32) -> Width {
        match log2 {
            0 => Width::B1,
            1 => Width::B2,
            2 => Width::B4,
            3 => Width::B8,
            _ => Width::B16,
        }
    }

    /// Bytes.
    pub fn bytes(self) -> u32 {
        1 << self as u32
    }

    /// All bits of a value.
    pub fn mask(self) -> u128 {
        u128::MAX >> (128 - 8 * self.bytes())
    }
}

/// The operation of an atomic update: how the new value follows from the old value and an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// The operand.
    Swap,
    /// The sum.
    Add,
    /// Bits in both.
    And,
    /// Bits in either.
    Or,
    /// Bits in exactly one.
    Xor,
    /// The larger one, signed.
    Max,
    /// The smaller one, signed.
    Min,
    /// The larger one, unsigned.
    UMax,
    /// The smaller one, unsigned.
    UMin,
}

impl Update {
    /// The new value, of values of `width` without bits beyond it.
    pub fn apply(self, width: Width, old: u128, operand: u128) -> u128 {
        let unused = 128 - 8 * width.bytes();
        let signed = |v: u128| (v << unused) as i128;
        let new = match self {
            Update::Swap => operand,
            Update::Add => old.wrapping_add(operand),
            Update::And => old & operand,
            Update::Or => old | operand,
            Update::Xor => old ^ operand,
            Update::Max => {
                return if signed(old) >= signed(operand) {
                    old
                } else {
                    operand
                };
            }
            Update::Min => {
                return if signed(old) <= signed(operand) {
                    old
                } else {
                    operand
                };
            }
            Update::UMax => old.max(operand),
            Update::UMin => old.min(operand),
        };
        new & width.mask()
    }
}

/// Memory of the emulated thread, which other threads may use at the same time.
///
/// Accesses are little-endian. One that fails has had no effect, also when only a part of it, such
/// as the second of two pages, is at fault.
///
/// # Order
///
/// The two ISAs' orders are not the same, and the interpreter does not know what the host's is.
/// What is right for both:
///
/// * `load` is an acquire load and `store` a release store. x86-64 code relies on it for each of its
///   loads and stores; for AArch64 code it is more than needed.
/// * The atomic operations are sequentially consistent.
/// * What needs more than that, the interpreter does with [`core::sync::atomic::fence`].
///
/// An access of at most 8 bytes to a multiple of its size happens in one step; a longer one, to a
/// multiple of 8, consists of such accesses of 8 bytes.
pub trait Memory {
    /// Reads code from `va` on, as much as there is of `bytes.len()`, and says how much that is: at
    /// least one byte, all of `bytes` unless code ends before.
    ///
    /// # Errors
    ///
    /// There is no code at `va`.
    fn fetch(&mut self, va: u64, bytes: &mut [u8]) -> Result<usize, Fault>;

    /// Reads `N` bytes, at most 64.
    ///
    /// # Errors
    ///
    /// They cannot be read.
    fn load<const N: usize>(&mut self, va: u64) -> Result<[u8; N], Fault>;

    /// Writes `N` bytes, at most 64.
    ///
    /// # Errors
    ///
    /// They cannot be written; none has been.
    fn store<const N: usize>(&mut self, va: u64, bytes: [u8; N]) -> Result<(), Fault>;

    /// Writes the line of the caches at `va` back to memory, and drops it unless it `stays`. Where caches are coherent, that
    /// changes nothing, and it is looked only whether there is memory.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    fn maintain(&mut self, va: u64, stays: bool) -> Result<(), Fault> {
        let _ = stays;
        self.load::<1>(va).map(drop)
    }

    /// Replaces the value at `va` by `new` if it is `expected`, in one step. Gives the value that
    /// was found. Values have no bits beyond `width`.
    ///
    /// # Errors
    ///
    /// The memory cannot be read and written, or not atomically.
    fn compare_exchange(
        &mut self,
        va: u64,
        width: Width,
        expected: u128,
        new: u128,
    ) -> Result<u128, Fault>;

    /// Replaces the value at `va` by what `update` makes of it and `operand`, in one step. Gives the
    /// old value.
    ///
    /// # Errors
    ///
    /// See [`compare_exchange`](Memory::compare_exchange).
    fn update(
        &mut self,
        va: u64,
        width: Width,
        update: Update,
        operand: u128,
    ) -> Result<u128, Fault> {
        // Any guess will do: a wrong one gives the right one.
        let mut old = 0;
        loop {
            let found = self.compare_exchange(va, width, old, update.apply(width, old, operand))?;
            if found == old {
                return Ok(old);
            }
            old = found;
        }
    }
}
