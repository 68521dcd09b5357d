//! Which walks set accessed or dirty.
//!
//! The simulator sees an entry after the access, when the emulator's walk has set its bits already. So what a walk has left in an
//! entry is remembered, and compared at the next walk:
//!
//! | entry | the walk has stored to it |
//! |---|---|
//! | of the kernel (global) | no: its bits are preset |
//! | never seen, or another mapping than before | if it is accessed: it was made without accessed and dirty |
//! | as before | if it is accessed or dirty now, and was not |

use std::collections::HashMap;

use dyad_pgtbl::Leaf;

/// Leaves as walks have left them, by the addresses of their entries.
#[derive(Debug, Default)]
pub(super) struct Updates(HashMap<u64, Leaf>);

impl Updates {
    /// Takes note of the leaf at an address. Returns whether the walk that has found it has changed it.
    pub fn changes(&mut self, at: u64, leaf: Leaf) -> bool {
        if leaf.global {
            return false;
        }
        match self.0.insert(at, leaf) {
            Some(before) if before.same_mapping(&leaf) => {
                (leaf.accessed && !before.accessed) || (leaf.dirty && !before.dirty)
            }
            _ => leaf.accessed,
        }
    }
}
