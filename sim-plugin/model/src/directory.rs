//! The directory: one word for each view of each fused line says who has it.
//!
//! ```text
//!  63        38 37    17 16     9 8   5 4   2 1   0
//! | version    | unused | sharers | cpu | own | state |
//! ```
//!
//! Versions are where keys of caches have theirs: a key is `word & VERSION | line`. A copy is good
//! if its key has the word's version and its node is among the sharers. Whoever takes a line away
//! from others bumps the version, and their copies are dead without anybody touching their caches;
//! reads of shared lines leave the word alone. Sharers is a superset: shared copies leave silently.
//!
//! The functions on [`Word`] are pure: they say what a request changes and which messages it
//! sends. [`update`] makes the change with one compare-and-swap; who loses looks again, who wins
//! books the messages. A word of zeros is a line that nobody has.
//!
//! A version returns after 2^26 changes; a copy that was neither used nor evicted meanwhile would
//! be taken for good.
//!
//! *Several CPUs in a node.* Sharers are nodes, so a word does not know all CPUs. While a node owns
//! a line, `cpu` is the only CPU that may have it in its own levels, or [`ANY_CPU`]. Where more than
//! one may have it, a write bumps the version, which kills the siblings' copies. It costs a look
//! into the last level, no snoop.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::LINE_BITS;

/// The bits of a word that are a key's version.
pub const VERSION: u64 = u64::MAX << LINE_BITS;
const ONE_VERSION: u64 = 1 << LINE_BITS;

const STATE: u64 = 0b11;
const OWNER_SHIFT: u32 = 2;
const OWNER: u64 = 0b111 << OWNER_SHIFT;
const CPU_SHIFT: u32 = 5;
const CPU: u64 = 0b1111 << CPU_SHIFT;
const SHARERS_SHIFT: u32 = 9;
const SHARERS: u64 = 0xFF << SHARERS_SHIFT;

/// Several CPUs of the owner may have the line.
pub const ANY_CPU: usize = 15;

/// What nodes may do with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// No node has it.
    Uncached,
    /// The sharers may read it.
    Shared,
    /// The owner may read it, and write it without asking.
    Exclusive,
    /// The owner has written it.
    Modified,
}

const SHARED: u64 = 1;
const EXCLUSIVE: u64 = 2;
const MODIFIED: u64 = 3;

/// A word of the directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Word(pub u64);

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Agent {
    /// The node.
    pub node: usize,
    /// The CPU in it.
    pub cpu: usize,
    /// Whether the node has no other.
    pub alone: bool,
    /// Whether all nodes have one last level together.
    pub one_last_level: bool,
    /// Whether a modified line goes through its home on its way to another node that writes it.
    pub through_home: bool,
}

/// What a request changes and which messages it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The word afterwards.
    pub next: Word,
    /// Snoops that read (SnpData).
    pub data: u32,
    /// Snoops that take away (SnpInv): one to each other node that may have copies.
    pub inv: u32,
    /// Another node's modified copy is forwarded in the place of memory.
    pub forward: bool,
    /// A modified line goes to memory.
    pub writeback: bool,
    /// Caches other than the requester's, behind the same last level, must be asked to drop the line.
    pub back: bool,
    /// Other CPUs of the same node may have copies, which die.
    pub sibling: bool,
    /// Another CPU of the same node is asked for what it may have written.
    pub asks: bool,
}

impl Step {
    const fn to(next: Word) -> Self {
        Self {
            next,
            data: 0,
            inv: 0,
            forward: false,
            writeback: false,
            back: false,
            sibling: false,
            asks: false,
        }
    }
}

impl Word {
    /// A word.
    fn make(version: u64, state: u64, owner: usize, cpu: usize, sharers: u64) -> Self {
        Self(
            (version & VERSION)
                | sharers << SHARERS_SHIFT
                | (cpu as u64) << CPU_SHIFT
                | (owner as u64) << OWNER_SHIFT
                | state,
        )
    }

    /// What nodes may do.
    pub const fn state(self) -> State {
        match self.0 & STATE {
            SHARED => State::Shared,
            EXCLUSIVE => State::Exclusive,
            MODIFIED => State::Modified,
            _ => State::Uncached,
        }
    }

    /// The node that owns the line, and its CPU that may have it in its own levels ([`ANY_CPU`]:
    /// several).
    pub const fn owner(self) -> Option<(usize, usize)> {
        match self.state() {
            State::Exclusive | State::Modified => Some((
                ((self.0 & OWNER) >> OWNER_SHIFT) as usize,
                ((self.0 & CPU) >> CPU_SHIFT) as usize,
            )),
            _ => None,
        }
    }

    /// The nodes that may have copies, as bits.
    pub const fn sharers(self) -> u64 {
        (self.0 & SHARERS) >> SHARERS_SHIFT
    }

    /// Whether `node` may have a copy.
    pub const fn shared_by(self, node: usize) -> bool {
        self.sharers() & 1 << node != 0
    }

    /// The version, in the bits where keys have it.
    pub const fn version(self) -> u64 {
        self.0 & VERSION
    }

    /// The key of a good copy.
    #[inline(always)]
    pub const fn key(self, line: u64) -> u64 {
        self.version() | line
    }

    const fn bumped(self, bump: bool) -> u64 {
        self.version()
            .wrapping_add(if bump { ONE_VERSION } else { 0 })
    }

    fn owned_by(version: u64, state: u64, me: Agent, cpu: usize) -> Self {
        Self::make(version, state, me.node, cpu, 1 << me.node)
    }

    fn uncached(self, bump: bool) -> Self {
        Self::make(self.bumped(bump), 0, 0, 0, 0)
    }

    /// A read of a line. `held` says whether the node has a good copy.
    pub fn load(self, me: Agent, held: bool) -> Step {
        let mine = 1 << me.node;
        let others = self.sharers() & !mine;
        match (self.state(), self.owner()) {
            (_, Some((node, cpu))) if node == me.node => {
                // A second CPU of the owner is about to have it: the first may have written it.
                let next = if cpu == me.cpu { cpu } else { ANY_CPU };
                Step {
                    asks: cpu != me.cpu && cpu != ANY_CPU,
                    ..Step::to(Self::owned_by(self.0, self.0 & STATE, me, next))
                }
            }
            (state, Some(_)) => Step {
                data: 1,
                forward: state == State::Modified,
                writeback: state == State::Modified,
                ..Step::to(Self::make(self.0, SHARED, 0, 0, self.sharers() | mine))
            },
            (State::Shared, None) if held => Step::to(self),
            (State::Shared, None) if others != 0 => {
                Step::to(Self::make(self.0, SHARED, 0, 0, self.sharers() | mine))
            }
            (state, None) => {
                // Siblings may have shared copies left, which become part of the ownership.
                let siblings = state == State::Shared && !me.alone;
                let cpu = if siblings { ANY_CPU } else { me.cpu };
                Step::to(Self::owned_by(self.0, EXCLUSIVE, me, cpu))
            }
        }
    }

    /// A write, or a read-modify-write, of a line: afterwards the node owns it, modified.
    pub fn store(self, me: Agent) -> Step {
        let take = |bump| Self::owned_by(self.bumped(bump), MODIFIED, me, me.cpu);
        let others = (self.sharers() & !(1 << me.node)).count_ones();
        match (self.state(), self.owner()) {
            (_, Some((node, cpu))) if node == me.node => Step {
                sibling: cpu != me.cpu,
                ..Step::to(take(cpu != me.cpu))
            },
            (state, Some(_)) => Step {
                inv: 1,
                forward: state == State::Modified,
                writeback: state == State::Modified && me.through_home,
                ..Step::to(take(true))
            },
            (State::Shared, None) => Step {
                inv: others,
                // Which of the node's CPUs have it is not known.
                sibling: self.shared_by(me.node) && !me.alone,
                ..Step::to(take(others != 0 || !me.alone))
            },
            (_, None) => Step::to(take(false)),
        }
    }

    /// A line leaves the last level and all that is above it. `None` if the last level has no good
    /// copy. The requester removes its own CPU's copies itself.
    pub fn evict(self, me: Agent) -> Option<Step> {
        match (self.state(), self.owner()) {
            (State::Uncached, _) => None,
            (_, Some((node, _))) if node != me.node && !me.one_last_level => None,
            (state, Some((node, cpu))) => {
                let elsewhere = node != me.node || cpu != me.cpu;
                Some(Step {
                    writeback: state == State::Modified,
                    back: elsewhere,
                    ..Step::to(self.uncached(elsewhere))
                })
            }
            (_, None) if me.one_last_level => {
                let others = self.sharers() != 1 << me.node || !me.alone;
                Some(Step {
                    back: others,
                    ..Step::to(if others { self.uncached(true) } else { self })
                })
            }
            // Silent. Copies of siblings stay.
            (_, None) => (self.shared_by(me.node)).then(|| Step::to(self)),
        }
    }

    /// Software flushes a line: it leaves all caches of all nodes. `None` if no cache has it. The requester removes its own
    /// CPU's copies itself.
    pub fn flush(self, me: Agent) -> Option<Step> {
        let others = self.sharers() & !(1 << me.node);
        let mine = self.shared_by(me.node);
        let gone = |bump| Step::to(self.uncached(bump));
        match (self.state(), self.owner()) {
            (State::Uncached, _) => None,
            (state, Some((node, cpu))) => {
                let near = node == me.node || me.one_last_level;
                let elsewhere = node != me.node || cpu != me.cpu;
                Some(Step {
                    inv: u32::from(!near),
                    writeback: state == State::Modified,
                    back: near && elsewhere,
                    ..gone(elsewhere)
                })
            }
            (_, None) => {
                let siblings = mine && !me.alone;
                Some(Step {
                    inv: if me.one_last_level {
                        0
                    } else {
                        others.count_ones()
                    },
                    back: siblings || (me.one_last_level && others != 0),
                    ..gone(siblings || others != 0)
                })
            }
        }
    }

    /// The home of a line takes the line away from all nodes. `None` if no node has it.
    pub fn back_invalidate(self) -> Option<Step> {
        (self.state() != State::Uncached).then(|| Step {
            inv: self.sharers().count_ones(),
            writeback: self.state() == State::Modified,
            ..Step::to(self.uncached(true))
        })
    }

    /// Software has a line written back; it stays where it is. `None` if no node has modified it.
    pub fn clean(self, me: Agent) -> Option<Step> {
        match (self.state(), self.owner()) {
            (State::Modified, Some((node, cpu))) => Some(Step {
                data: u32::from(node != me.node && !me.one_last_level),
                writeback: true,
                ..Step::to(Self::make(self.0, EXCLUSIVE, node, cpu, self.sharers()))
            }),
            _ => None,
        }
    }
}

/// Reads a word.
#[inline(always)]
pub fn read(word: &AtomicU64) -> Word {
    // A word publishes nothing but itself, here and below.
    Word(word.load(Ordering::Relaxed))
}

/// Changes a word as `step` says, which sees the word as it is and may be asked again if others
/// change it. Returns the word before and the step taken; the caller books it. Nothing happens if
/// `step` says `None`.
pub fn update<T>(
    word: &AtomicU64,
    mut step: impl FnMut(Word) -> Option<(Step, T)>,
) -> Option<(Word, Step, T)> {
    let mut seen = read(word);
    loop {
        let (step, extra) = step(seen)?;
        if step.next == seen {
            return Some((seen, step, extra));
        }
        match word.compare_exchange_weak(seen.0, step.next.0, Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => return Some((seen, step, extra)),
            Err(now) => seen = Word(now),
        }
    }
}

/// What the fast path compares words with.
#[derive(Clone, Copy, Debug)]
pub struct Mine {
    sharer: u64,
    modified: u64,
}

impl Mine {
    /// For one CPU.
    pub fn new(me: Agent) -> Self {
        Self {
            sharer: 1 << (me.node + SHARERS_SHIFT as usize),
            modified: Word::owned_by(0, MODIFIED, me, me.cpu).0 & !SHARERS,
        }
    }

    /// Whether the node is among the sharers.
    #[inline(always)]
    pub const fn shared(self, word: Word) -> bool {
        word.0 & self.sharer != 0
    }

    /// Whether this CPU alone has the line, modified.
    #[inline(always)]
    pub const fn modified(self, word: Word) -> bool {
        word.0 & (STATE | OWNER | CPU) == self.modified
    }
}
