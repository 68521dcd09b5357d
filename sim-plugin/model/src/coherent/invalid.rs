//! Invalid ways are filled first: a copy that another CPU has invalidated makes room before a valid one is evicted.
//!
//! Who takes a line away changes the line's word in the directory and touches no cache. So a CPU notes in which sets of its
//! caches a copy may have become invalid, and the next fill of such a set, if it is full, looks for a copy that no longer
//! matches its word and removes it; the fill then finds an empty way. Sets without a note cost a fill one test of a bit.
//!
//! | what may make copies of a CPU invalid | noted are |
//! |---|---|
//! | another CPU changes the word of one line | the line's sets, by [`Invalid::note`] |
//! | other CPUs change several words before this CPU looks | all sets, by [`Invalid::note_all`] |
//! | this CPU changes a word | nothing: it gives its copies the new key, or removes them |

use super::{Core, Kind};
use crate::config::{CacheShape, NodeConfig};
use crate::directory::{Agent, State, read};
use crate::disturb::Disturbance;
use crate::lines::Lines;
use crate::memory::{LINE_MASK, Memory};

/// Sets of a cache: a bit for each.
#[derive(Debug)]
struct SetBits {
    words: Box<[u64]>,
    mask: u64,
}

impl SetBits {
    fn new(shape: CacheShape) -> Self {
        let words = shape.sets().div_ceil(64) as usize;
        Self {
            words: vec![0; words].into(),
            mask: shape.sets() - 1,
        }
    }

    /// The word with the bit of a line's set, and the bit.
    #[inline(always)]
    fn at(&mut self, line: u64) -> Option<(&mut u64, u64)> {
        let set = line & self.mask;
        let word = self.words.get_mut((set / 64) as usize)?;
        Some((word, 1 << (set % 64)))
    }

    fn note(&mut self, line: u64) {
        if let Some((word, bit)) = self.at(line) {
            *word |= bit;
        }
    }

    #[inline(always)]
    fn has(&mut self, line: u64) -> bool {
        self.at(line).is_some_and(|(word, bit)| *word & bit != 0)
    }

    fn clear(&mut self, line: u64) {
        if let Some((word, bit)) = self.at(line) {
            *word &= !bit;
        }
    }
}

/// The sets of a CPU's caches in which there may be invalid copies.
#[derive(Debug)]
pub(super) struct Invalid {
    /// First level, instructions.
    l1i: SetBits,
    /// First level, data.
    l1d: SetBits,
    l2: SetBits,
    l3: SetBits,
}

impl Invalid {
    pub(super) fn new(node: &NodeConfig) -> Self {
        Self {
            l1i: SetBits::new(node.l1i),
            l1d: SetBits::new(node.l1d),
            l2: SetBits::new(node.l2),
            l3: SetBits::new(node.l3),
        }
    }

    const fn levels(&mut self) -> [&mut SetBits; 4] {
        [&mut self.l1i, &mut self.l1d, &mut self.l2, &mut self.l3]
    }

    /// A copy of this line may have become invalid.
    pub(super) fn note(&mut self, line: u64) {
        for level in self.levels() {
            level.note(line);
        }
    }

    /// Any copy may have become invalid.
    pub(super) fn note_all(&mut self) {
        for level in self.levels() {
            level.words.fill(u64::MAX);
        }
    }
}

/// Tells valid copies from invalid ones.
#[derive(Clone, Copy)]
struct Validity<'a> {
    memory: &'a Memory,
    lines: Lines<'a>,
    me: Agent,
    /// Whether the copy is in a last level that all nodes share.
    common: bool,
}

impl Validity<'_> {
    /// Whether the copy with this key is valid. Private lines are.
    fn is_valid(self, key: u64) -> bool {
        let line = key & LINE_MASK;
        let place = self.memory.locate(line);
        let Some(word) = place.and_then(|place| self.lines.word(place.index)) else {
            return true;
        };
        let word = read(word);
        let cached = word.shared_by(self.me.node) || self.common && word.state() != State::Uncached;
        cached && word.key(line) == key
    }
}

/// Removes an invalid copy from the set of a line, if the set has been noted and is full. A set without one is no longer noted.
macro_rules! make_room {
    ($core:ident, $level:ident, $line:expr, $common:expr) => {{
        let line = $line;
        if $core.invalid.$level.has(line) {
            let validity = Validity {
                memory: &$core.memory,
                lines: $core.lines,
                me: $core.me,
                common: $common,
            };
            let found = $core
                .$level
                .invalid_in_full_set(line, |key| validity.is_valid(key));
            match found {
                Some(Some(key)) => {
                    $core.$level.remove(key, u64::MAX);
                }
                Some(None) => $core.invalid.$level.clear(line),
                None => {}
            }
        }
    }};
}

impl Core<'_> {
    /// Others have changed the directory.
    #[cold]
    #[inline(never)]
    pub(super) fn heed(&mut self) {
        match self.disturbed.heed() {
            Disturbance::None => {}
            Disturbance::Line(line) => {
                self.l1d.forget_line(line);
                self.invalid.note(line);
            }
            Disturbance::Lines => {
                self.l1d.forget_names();
                self.invalid.note_all();
            }
        }
    }

    /// Makes room for `line` in the first level.
    #[inline(always)]
    pub(super) fn make_room_first(&mut self, kind: Kind, line: u64) {
        match kind {
            Kind::Fetch => make_room!(self, l1i, line, false),
            Kind::Load | Kind::Store | Kind::Rmw => make_room!(self, l1d, line, false),
        }
    }

    /// Makes room for `line` in the second level.
    #[inline(always)]
    pub(super) fn make_room_second(&mut self, line: u64) {
        make_room!(self, l2, line, false);
    }

    /// Makes room for `line` in the last level.
    #[inline(always)]
    pub(super) fn make_room_last(&mut self, line: u64) {
        make_room!(self, l3, line, self.me.one_last_level);
    }
}
