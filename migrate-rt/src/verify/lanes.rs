//! Sets of register bytes, and sets of bytes of a frame.

/// Number of general-purpose registers in the common numbering.
pub(super) const GENERAL: u16 = 32;
const VECTORS: u16 = GENERAL * 8;
const FLAGS: u16 = VECTORS + 32 * 16;
const WORDS: usize = (FLAGS as usize + 64) / 64;

/// The lane of byte `byte` of general-purpose register `reg`.
///
/// A lane is a byte of a register, or a flag, in a numbering that both ISAs share: 32 general-purpose
/// registers of 8 bytes (the stack pointer of AArch64 is number 31, its zero register has no lanes),
/// 32 vector registers of 16 bytes, and flags.
pub(super) fn general(reg: u8, byte: u16) -> u16 {
    u16::from(reg) * 8 + byte
}

/// The lane of byte `byte` of vector register `reg`.
pub(super) fn vector(reg: u8, byte: u16) -> u16 {
    VECTORS + u16::from(reg) * 16 + byte
}

/// The lane of flag `flag`.
pub(super) fn flag(flag: u16) -> u16 {
    FLAGS + flag
}

/// What a lane belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    /// A general-purpose register.
    General(u8),
    /// A vector register.
    Vector(u8),
    /// The flags.
    Flags,
}

/// Whose lane `lane` is.
pub(super) fn owner(lane: u16) -> Owner {
    match lane {
        l if l < VECTORS => Owner::General((l / 8) as u8),
        l if l < FLAGS => Owner::Vector(((l - VECTORS) / 16) as u8),
        _ => Owner::Flags,
    }
}

/// A set of lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lanes([u64; WORDS]);

impl Lanes {
    /// No lane.
    pub const NONE: Lanes = Lanes([0; WORDS]);

    /// `count` lanes from `first`.
    #[inline]
    pub fn range(first: u16, count: u16) -> Lanes {
        let mut lanes = Lanes::NONE;
        let (mut at, end) = (first, first + count);
        while at < end {
            // As many as there are in this word.
            let bits = (end - at).min(64 - at % 64);
            lanes.0[usize::from(at) / 64] |= u64::MAX >> (64 - bits) << (at % 64);
            at += bits;
        }
        lanes
    }

    /// The low `bytes` bytes of a general-purpose register.
    pub fn general(reg: u8, bytes: u16) -> Lanes {
        Lanes::range(general(reg, 0), bytes)
    }

    /// The low `bytes` bytes of a vector register.
    pub fn vector(reg: u8, bytes: u16) -> Lanes {
        Lanes::range(vector(reg, 0), bytes)
    }

    /// Whole general-purpose registers.
    pub fn generals(regs: impl IntoIterator<Item = u8>) -> Lanes {
        let sets = regs.into_iter().map(|r| Lanes::general(r, 8));
        sets.fold(Lanes::NONE, Lanes::or)
    }

    /// The low `bytes` bytes of vector registers.
    pub fn vectors(regs: impl IntoIterator<Item = u8>, bytes: u16) -> Lanes {
        let sets = regs.into_iter().map(|r| Lanes::vector(r, bytes));
        sets.fold(Lanes::NONE, Lanes::or)
    }

    pub fn insert(&mut self, lane: u16) {
        self.0[usize::from(lane) / 64] |= 1 << (lane % 64);
    }

    pub fn remove(&mut self, lane: u16) {
        self.0[usize::from(lane) / 64] &= !(1 << (lane % 64));
    }

    pub fn set(&mut self, lane: u16, present: bool) {
        if present {
            self.insert(lane)
        } else {
            self.remove(lane)
        }
    }

    #[inline]
    pub fn has(&self, lane: u16) -> bool {
        self.0[usize::from(lane) / 64] >> (lane % 64) & 1 != 0
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        *self == Lanes::NONE
    }

    #[inline]
    fn zip(mut self, other: Lanes, f: impl Fn(u64, u64) -> u64) -> Lanes {
        self.0
            .iter_mut()
            .zip(other.0)
            .for_each(|(a, b)| *a = f(*a, b));
        self
    }

    #[inline]
    pub fn or(self, other: Lanes) -> Lanes {
        self.zip(other, |a, b| a | b)
    }

    #[inline]
    pub fn and(self, other: Lanes) -> Lanes {
        self.zip(other, |a, b| a & b)
    }

    #[inline]
    pub fn minus(self, other: Lanes) -> Lanes {
        self.zip(other, |a, b| a & !b)
    }

    pub fn iter(self) -> LaneIter {
        LaneIter {
            lanes: self,
            word: 0,
        }
    }

    /// The registers that have a lane in the set, each once.
    pub fn owners(self) -> Vec<Owner> {
        let mut owners: Vec<Owner> = Vec::new();
        for owner in self.iter().map(owner) {
            if owners.last() != Some(&owner) {
                owners.push(owner);
            }
        }
        owners
    }
}

/// The lanes of a set, in order.
#[derive(Clone)]
pub(super) struct LaneIter {
    lanes: Lanes,
    word: usize,
}

impl Iterator for LaneIter {
    type Item = u16;

    fn next(&mut self) -> Option<u16> {
        loop {
            let bits = self.lanes.0.get_mut(self.word)?;
            if *bits != 0 {
                let bit = bits.trailing_zeros() as u16;
                *bits &= *bits - 1;
                return Some(self.word as u16 * 64 + bit);
            }
            self.word += 1;
        }
    }
}

/// The lowest address in a frame that can be spoken of, relative to the CFA.
pub(super) const DEEPEST: i64 = -(1 << 20);

/// A set of bytes of a frame, by distance from the CFA: -1 is the byte below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bytes(Vec<u64>);

impl Bytes {
    fn index(at: i64) -> Option<(usize, u32)> {
        let depth = (DEEPEST..0).contains(&at).then_some(-1 - at)?;
        Some((depth as usize / 64, depth as u32 % 64))
    }

    /// Adds the byte, or takes it out. Bytes that are no frame's are in no set.
    pub fn set(&mut self, at: i64, present: bool) {
        let Some((word, bit)) = Bytes::index(at) else {
            return;
        };
        if present && self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        match self.0.get_mut(word) {
            Some(bits) if present => *bits |= 1 << bit,
            Some(bits) => *bits &= !(1 << bit),
            None => {}
        }
        self.trim();
    }

    pub fn has(&self, at: i64) -> bool {
        Bytes::index(at)
            .is_some_and(|(word, bit)| self.0.get(word).is_some_and(|bits| bits >> bit & 1 != 0))
    }

    /// Keeps what both have.
    pub fn and(&mut self, other: &Bytes) {
        self.0.truncate(other.0.len());
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a &= b);
        self.trim();
    }

    /// Adds what the other has.
    pub fn or(&mut self, other: &Bytes) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }

    /// Takes out everything below `at`.
    pub fn clear_below(&mut self, at: i64) {
        let Some((word, bit)) = Bytes::index(at) else {
            return if at >= 0 {
                self.0.clear()
            };
        };
        self.0.truncate(word + 1);
        if let Some(bits) = self.0.get_mut(word) {
            *bits &= u64::MAX >> (63 - bit);
        }
        self.trim();
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    // Equal sets have equal words.
    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_a_set() {
        let mut lanes = Lanes::general(3, 4).or(Lanes::vector(31, 16));
        lanes.insert(flag(9));
        assert_eq!(lanes.iter().count(), 21);
        assert_eq!(
            lanes.owners(),
            [Owner::General(3), Owner::Vector(31), Owner::Flags]
        );
        assert!(lanes.has(general(3, 3)) && !lanes.has(general(3, 4)));
        lanes.set(flag(9), false);
        assert_eq!(lanes.minus(Lanes::general(3, 8)), Lanes::vector(31, 16));
        assert!(lanes.and(Lanes::general(4, 8)).is_empty());
    }

    #[test]
    fn bytes_are_a_set_with_one_form() {
        let mut bytes = Bytes::default();
        for at in [-1, -64, -65, -200] {
            bytes.set(at, true);
            assert!(bytes.has(at) && !bytes.has(at - 1));
        }
        for at in [0, 8, DEEPEST - 1] {
            bytes.set(at, true);
            assert!(!bytes.has(at));
        }
        let mut upper = Bytes::default();
        upper.set(-1, true);
        upper.set(-64, true);
        let mut below = bytes.clone();
        below.clear_below(-64);
        assert_eq!(below, upper);
        bytes.and(&upper);
        assert_eq!(bytes, upper);
        bytes.clear_below(0);
        assert_eq!(bytes, Bytes::default());
        upper.clear_below(DEEPEST - 5);
        assert!(upper.has(-64));
    }
}
