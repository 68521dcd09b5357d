//! Reads that may be stale: reads of shared words from a node's own copy, for which the protocol says that
//! old bytes do no harm.
//!
//! All other words that other nodes write are read at memory, or after an invalidation that comes after the
//! write-back. The simulator reports reads of older copies (`cargo xtask run --coherence incoherent --sim
//! cache`). Reads of this list, which the kernel makes with `dyad_coherence::load_permitted`, are counted
//! separately.
//!
//! A read belongs here for one of three reasons. The value is only a hint, and any value leads to a correct
//! result. Or the decision is made again at memory, by a read-modify-write that fails if the read was stale.
//! Or the protocol keeps the changed words as they were until every node has completed a round, in which it
//! drops its copy ([`Permitted::until_round`]).

/// The reasons why a read may be stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Permitted {
    /// The choice of a CPU for work on another node.
    Placement = 0,
    /// The announced action of a thread that has been handed over, before it has been taken.
    Announced = 1,
    /// Whether an object still matches a capability.
    Object = 2,
    /// The contents of a capability table.
    Lookup = 3,
    /// Whether a guard is alive.
    Guard = 4,
    /// The stamp of a line that a program reads without dropping it first.
    Stamp = 5,
}

impl Permitted {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Permitted; 6] = [
        Permitted::Placement,
        Permitted::Announced,
        Permitted::Object,
        Permitted::Lookup,
        Permitted::Guard,
        Permitted::Stamp,
    ];

    /// The word that is read, and why old bytes do no harm.
    pub const fn reason(self) -> &'static str {
        match self {
            Permitted::Placement => {
                "what another CPU is doing, to choose one that is free: any CPU will do, and the \
                 doorbell looks at memory"
            }
            Permitted::Object => {
                "the record of an object that is used: what has been given up elsewhere passes until \
                 this node's next round and is not reused before; what seems to be gone is looked at \
                 again, at memory"
            }
            Permitted::Lookup => {
                "entries and slots of capability tables: what has been taken out elsewhere is found \
                 until this node's next round, and neither slot nor object is reused before"
            }
            Permitted::Guard => {
                "the count of a capability's guard: a revocation elsewhere shows in this node's next \
                 round"
            }
            Permitted::Stamp => {
                "the stamp of a line that a program reads in place: a copy with another stamp than the \
                 one that is meant is dropped and read again"
            }
            Permitted::Announced => {
                "what a thread is handed over for, to mark the time: its owner word decides, at \
                 memory, whether it is taken"
            }
        }
    }

    /// Whether the read is permitted until the node's next round only.
    pub const fn until_round(self) -> bool {
        matches!(
            self,
            Permitted::Object | Permitted::Lookup | Permitted::Guard
        )
    }

    /// Whether old bytes of the word can do harm where the new ones are in memory. A lookup of an object does not
    /// depend on the number of references, and an old word that is not that of a kernel object has it looked at again,
    /// at memory.
    pub const fn matters(self, old: u64, new: u64) -> bool {
        match self {
            Permitted::Object => (old ^ new) >> REFERENCES != 0 && may_be_object(old),
            _ => old != new,
        }
    }

    /// The reason with this number.
    pub fn from_number(n: u32) -> Option<Permitted> {
        Permitted::ALL.get(n as usize).copied()
    }
}

/// Lowest bits of the first word of a frame record: the number of references.
const REFERENCES: u32 = 24;
/// The lowest of three bits with the type of a frame, and the types of kernel objects: frozen, and in use.
const TYPE: u32 = 29;
const OBJECTS: [u64; 2] = [3, 5];

/// Whether the first word of a frame record may be that of a kernel object.
const fn may_be_object(word: u64) -> bool {
    let ty = word >> TYPE & 7;
    ty == OBJECTS[0] || ty == OBJECTS[1]
}

/// Section of a kernel's image that lists its permitted reads; it is not loaded. An entry is the
/// address of the load instruction in eight bytes and the number of the reason in eight, both
/// little-endian.
pub const SECTION: &str = ".dyad.permitted";
/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_list() {
        for (n, why) in Permitted::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, n);
            assert_eq!(Permitted::from_number(n as u32), Some(why));
            assert!(!why.reason().is_empty());
        }
        assert_eq!(Permitted::from_number(Permitted::ALL.len() as u32), None);
    }
}
