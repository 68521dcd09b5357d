//! What copies are called: a table by the low bits of names.
//!
//! ```text
//!  63  33 32        17  16   15  0
//! | tag  | generation | write | slot |
//! ```
//!
//! The tag is what the place of an entry does not tell of the name. Entries of other generations are
//! forgotten, so that forgetting everything is one addition; an empty entry has generation 0.

use super::Slot;

/// What the driver calls a line: the number of a virtual line, if accesses are to virtual addresses.
/// A name stands for one line until names are forgotten; a line may have several. The low 42 bits
/// tell names apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name(pub u64);

/// What an entry promises of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// It can be read.
    Read,
    /// It can be read and written: the line is this CPU's alone, and modified.
    Write,
}

const PLACE_BITS: u32 = 11;
/// Number of entries.
pub const PLACES: usize = 1 << PLACE_BITS;
const SLOT_BITS: u32 = 16;
/// Number of slots that entries can name: copies in others have none.
pub const SLOTS: usize = 1 << SLOT_BITS;
const WRITE: u64 = 1 << SLOT_BITS;
const GENERATION_SHIFT: u32 = SLOT_BITS + 1;
/// log2 of the number of generations.
pub const GENERATION_BITS: u32 = 16;
const GENERATION: u64 = 1 << GENERATION_SHIFT;
const TAG_SHIFT: u32 = GENERATION_SHIFT + GENERATION_BITS;
const GENERATIONS: u64 = GENERATION << GENERATION_BITS;
/// No entry is made in this generation, the last.
const NOBODY: u64 = GENERATIONS - GENERATION;

const fn place(name: Name) -> usize {
    name.0 as usize & (PLACES - 1)
}

/// Tag and generation, in their bits.
#[inline(always)]
const fn mark(name: Name, generation: u64) -> u64 {
    name.0 >> PLACE_BITS << TAG_SHIFT | generation
}

const fn slot(entry: u64) -> Slot {
    entry as usize & (SLOTS - 1)
}

/// A memo.
#[derive(Clone, Debug)]
pub struct Memo {
    entries: Box<[u64; PLACES]>,
    generation: u64,
    /// The generation that entries are compared with, or [`NOBODY`] while everything is hidden.
    found: u64,
    /// By slot: the place that had an entry for it last.
    places: Box<[u16]>,
}

impl Memo {
    /// The memo of a cache with `slots` slots.
    pub fn new(slots: usize) -> Memo {
        Memo {
            entries: Box::new([0; PLACES]),
            generation: GENERATION,
            found: GENERATION,
            places: vec![0; slots.min(SLOTS)].into_boxed_slice(),
        }
    }

    /// The slot, below [`SLOTS`], of the copy that has this name, if that is promised and `unless`
    /// is 0. `WRITES`: to be written to.
    #[inline(always)]
    pub fn find<const WRITES: bool>(&self, name: Name, unless: u64) -> Option<Slot> {
        let entry = self.entries[place(name)];
        let other = entry ^ mark(name, self.found);
        let other = match WRITES {
            true => (other ^ WRITE) >> SLOT_BITS,
            false => other >> GENERATION_SHIFT,
        };
        // One branch for both, which are nearly never so.
        (other | unless == 0).then_some(slot(entry))
    }

    /// As [`find`](Self::find), of what can be read, hidden or not.
    pub fn remembered(&self, name: Name) -> Option<Slot> {
        let entry = self.entries[place(name)];
        let other = entry ^ mark(name, self.generation);
        (other >> GENERATION_SHIFT == 0).then_some(slot(entry))
    }

    /// Remembers what the copy in a slot is called, and nothing else of that slot.
    #[inline(always)]
    pub fn remember(&mut self, name: Name, slot: Slot, promise: Promise) {
        self.forget(slot);
        if let Some(last) = self.places.get_mut(slot) {
            *last = place(name) as u16;
            let write = match promise {
                Promise::Read => 0,
                Promise::Write => WRITE,
            };
            self.entries[place(name)] = mark(name, self.generation) | write | slot as u64;
        }
    }

    /// Forgets what the copy in a slot is called.
    #[inline(always)]
    pub fn forget(&mut self, of: Slot) {
        if let Some(place) = self.places.get(of) {
            let entry = &mut self.entries[*place as usize & (PLACES - 1)];
            // Since then, the place may have been taken for another copy.
            if slot(*entry) == of {
                *entry = 0;
            }
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        let hidden = self.found == NOBODY;
        self.generation += GENERATION;
        if self.generation == NOBODY {
            *self.entries = [0; PLACES];
            self.generation = GENERATION;
        }
        self.hide(hidden);
    }

    /// Whether [`find`](Self::find) is to find nothing. What is remembered stays.
    pub fn hide(&mut self, hidden: bool) {
        self.found = if hidden { NOBODY } else { self.generation };
    }

    /// The promises and their slots.
    pub fn promises(&self) -> impl Iterator<Item = (Slot, Promise)> {
        let of_now =
            |entry: &&u64| (**entry & (GENERATIONS - 1)) & !(GENERATION - 1) == self.generation;
        self.entries.iter().filter(of_now).map(|&entry| {
            let promise = match entry & WRITE {
                0 => Promise::Read,
                _ => Promise::Write,
            };
            (slot(entry), promise)
        })
    }
}
