//! Invalid ways are filled first: a copy that another CPU has invalidated makes room before a valid one is evicted.
//!
//! Who takes a line away changes the line's word in the directory and touches no cache. So the CPU that fills a full set
//! looks for a copy that no longer matches its word, and removes it; the fill then finds an empty way. A CPU whose copies
//! nobody has ever invalidated does not look.

use std::sync::atomic::AtomicU64;

use super::{Core, Kind};
use crate::directory::{Agent, State, read};
use crate::memory::{LINE_MASK, Memory};

/// Tells valid copies from invalid ones.
#[derive(Clone, Copy)]
struct Validity<'a> {
    memory: &'a Memory,
    directory: &'a [AtomicU64],
    me: Agent,
    /// Whether the copy is in a last level that all nodes share.
    common: bool,
}

impl Validity<'_> {
    /// Whether the copy with this key is valid. Private lines are.
    fn is_valid(self, key: u64) -> bool {
        let line = key & LINE_MASK;
        let place = self.memory.locate(line);
        let Some(word) = place.and_then(|place| self.directory.get(place.index)) else {
            return true;
        };
        let word = read(word);
        let cached = word.shared_by(self.me.node) || self.common && word.state() != State::Uncached;
        cached && word.key(line) == key
    }
}

impl Core<'_> {
    /// How to tell which copies are valid; `None` if all are.
    fn validity(&self, last: bool) -> Option<Validity<'_>> {
        self.disturbed.ever().then_some(Validity {
            memory: &self.memory,
            directory: self.directory,
            me: self.me,
            common: last && self.me.one_last_level,
        })
    }

    /// Removes an invalid copy from the set of `line` in the first level, if that set is full.
    pub(super) fn make_room_first(&mut self, kind: Kind, line: u64) {
        let Some(validity) = self.validity(false) else {
            return;
        };
        let is_valid = |key| validity.is_valid(key);
        if kind == Kind::Fetch {
            if let Some(key) = self.l1i.invalid_in_full_set(line, is_valid) {
                self.l1i.remove(key, u64::MAX);
            }
        } else if let Some(key) = self.l1d.invalid_in_full_set(line, is_valid) {
            self.l1d.remove(key, u64::MAX);
        }
    }

    /// Removes an invalid copy from the set of `line` in the second level, if that set is full.
    pub(super) fn make_room_second(&mut self, line: u64) {
        let Some(validity) = self.validity(false) else {
            return;
        };
        let is_valid = |key| validity.is_valid(key);
        if let Some(key) = self.l2.invalid_in_full_set(line, is_valid) {
            self.l2.remove(key, u64::MAX);
        }
    }

    /// Removes an invalid copy from the set of `line` in the last level, if that set is full.
    pub(super) fn make_room_last(&mut self, line: u64) {
        let Some(validity) = self.validity(true) else {
            return;
        };
        let is_valid = |key| validity.is_valid(key);
        if let Some(key) = self.l3.invalid_in_full_set(line, is_valid) {
            self.l3.remove(key, u64::MAX);
        }
    }
}
