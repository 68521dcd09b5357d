//! What accesses do. The module header of [`incoherent`](super) has the rules.

use std::sync::atomic::{AtomicU64, Ordering};

use super::GRACE;
use super::findings::{Finding, Kind};
use super::line::{Held, Line, Who};
use super::shape::{FLUSHES, MAX_CPUS, MAX_NODES, ROUNDS, Shape, WORDS};
use crate::config::LINE_BYTES;

/// In the word that counts a node's flushes of everything: one time that it was switched on.
const LIFE: u64 = 1 << 48;
/// Most bytes of an access.
pub const MAX_BYTES: u32 = 16;

/// A part of an access: what of it is in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    /// Physical address of the word.
    at: u64,
    /// The bytes of the word that are accessed.
    mask: u64,
    /// Their values, at their places.
    value: u64,
}

impl Part {
    const fn is_whole(&self) -> bool {
        self.mask == u64::MAX
    }

    const fn differs(&self, word: u64) -> bool {
        (word ^ self.value) & self.mask != 0
    }

    const fn onto(&self, word: u64) -> u64 {
        word & !self.mask | self.value & self.mask
    }

    const fn word(&self) -> usize {
        (self.at % LINE_BYTES / 8) as usize
    }

    const fn bit(&self) -> u8 {
        1 << self.word()
    }
}

/// The parts of an access of `bytes` bytes at `at`, not aligned perhaps.
fn parts(at: u64, bytes: u32, value: u128) -> impl Iterator<Item = Part> {
    let bytes = bytes.min(MAX_BYTES);
    let end = at.wrapping_add(bytes as u64);
    let mask_of_all = u128::MAX.checked_shr(128 - 8 * bytes).unwrap_or(0);
    let (first, last) = (at & !7, end.wrapping_add(7) & !7);
    (0..last.wrapping_sub(first) / 8).filter_map(move |i| {
        let word = first.wrapping_add(8 * i);
        // How far the access begins after the word, in bits: less than 64 or, for later words,
        // negative.
        let shift = 8 * (at as i64).wrapping_sub(word as i64);
        let place = |v: u128| match shift {
            0.. => (v << shift) as u64,
            _ => v.checked_shr(-shift as u32).unwrap_or(0) as u64,
        };
        let (mask, value) = (place(mask_of_all), place(value & mask_of_all));
        let part = Part {
            at: word,
            mask,
            value,
        };
        (mask != 0).then_some(part)
    })
}

/// A read of what its writer had not written back: it becomes a finding unless that happens soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// What it will be.
    pub finding: Finding,
    /// Who owes the write-back.
    writer: Who,
    writebacks: u32,
    since: u64,
}

#[cfg(test)]
impl Pending {
    /// That of an instruction, for tests of what holds such reads.
    pub(super) fn of(who: Who) -> Pending {
        let finding = Finding {
            kind: Kind::StaleRead,
            who,
            at: 0,
            writer: None,
            fetched: None,
            stored: None,
            old: 1,
            new: 2,
            late: false,
        };
        Pending {
            finding,
            writer: who,
            writebacks: 0,
            since: 0,
        }
    }
}

/// What has become of a [`Pending`] read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Nothing yet.
    Open,
    /// Its writer has written the line back.
    Published,
    /// Its writer has had time to, and has not.
    Never,
}

/// What an access leads to.
pub trait Sink {
    /// A finding.
    fn finding(&mut self, finding: Finding);
    /// Perhaps one.
    fn pending(&mut self, pending: Pending);
}

/// Fused memory without coherent caches.
#[derive(Clone, Copy, Debug)]
pub struct Incoherent<'s> {
    shape: &'s Shape,
    words: &'s [AtomicU64],
}

impl<'s> Incoherent<'s> {
    /// Memory whose state is in these words, zero at the start.
    ///
    /// # Panics
    ///
    /// If there are fewer than [`Shape::words`].
    pub fn new(shape: &'s Shape, words: &'s [AtomicU64]) -> Incoherent<'s> {
        assert!(words.len() as u64 >= shape.words(), "too few words");
        Incoherent { shape, words }
    }

    /// The line of an address, locked. Copies that their nodes have flushed with everything else are
    /// written back and gone, and copies from before a node was switched on are gone, which comes to
    /// the same as if they had been at once: nobody has looked at the line since.
    fn line(&self, at: u64, sink: &mut impl Sink) -> Option<Line<'s>> {
        let line = self.lock(at)?;
        for node in 0..self.shape.nodes() {
            let flushes = self.flushes(node).load(Ordering::Relaxed);
            let then = line.flushes(node);
            if !line.held(node).valid || then == flushes {
                continue;
            }
            if then / LIFE != flushes / LIFE {
                lose(&line, node, self.rounds());
            } else {
                let who = line.stored(node).or(line.fetched(node));
                let who = who.unwrap_or(Who {
                    node: node as u8,
                    cpu: 0,
                    pc: 0,
                });
                flush(&line, who, self.rounds(), sink);
            }
        }
        Some(line)
    }

    /// How often a node has flushed everything, and in multiples of [`LIFE`] how often it has been
    /// switched on.
    fn flushes(&self, node: usize) -> &'s AtomicU64 {
        &self.words[FLUSHES + node % MAX_NODES]
    }

    /// A node is switched on, for the first time or again: its caches are empty, whatever they held
    /// when it died.
    pub fn switch_on(&self, node: u8) {
        self.flushes(node as usize)
            .fetch_add(LIFE, Ordering::Relaxed);
    }

    /// A CPU writes back and drops all that its caches, and with them its node's, hold.
    pub fn flush_everything(&self, who: Who) {
        self.count(who);
        self.flushes(who.node as usize)
            .fetch_add(1, Ordering::Relaxed);
    }

    fn lock(&self, at: u64) -> Option<Line<'s>> {
        let first = self.shape.line(at)?;
        let words = &self.words[first..first + self.shape.words_of_line()];
        Line::lock(at & !(LINE_BYTES - 1), words, self.shape.nodes())
    }

    fn accesses(&self, node: u8, cpu: u8) -> &'s AtomicU64 {
        &self.words[node as usize % MAX_NODES * MAX_CPUS + cpu as usize % MAX_CPUS]
    }

    /// Counts an access of a CPU. Only its own thread does.
    fn count(&self, who: Who) {
        let n = self.accesses(who.node, who.cpu);
        n.store(n.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Accesses of a CPU so far.
    pub fn made(&self, node: u8, cpu: u8) -> u64 {
        self.accesses(node, cpu).load(Ordering::Relaxed)
    }

    /// Rounds that nodes have completed, all together.
    fn rounds(&self) -> u64 {
        self.words[ROUNDS].load(Ordering::Relaxed)
    }

    fn rounds_of(&self, node: u8) -> (&'s AtomicU64, &'s AtomicU64) {
        let at = ROUNDS + 1 + 2 * (node as usize % MAX_NODES);
        (&self.words[at], &self.words[at + 1])
    }

    /// A node has completed a round: what logs named before it began is in no copy of the node.
    pub fn round_done(&self, node: u8) {
        let now = self.words[ROUNDS].fetch_add(1, Ordering::Relaxed) + 1;
        let (last, before) = self.rounds_of(node);
        before.store(last.load(Ordering::Relaxed), Ordering::Relaxed);
        last.store(now, Ordering::Relaxed);
    }

    /// Whether a node has completed two rounds since there had been so many: the second has begun
    /// since.
    fn two_rounds_since(&self, node: u8, rounds: u64) -> bool {
        self.rounds_of(node).1.load(Ordering::Relaxed) > rounds
    }

    /// A CPU has loaded `bytes` bytes and got `value`, little-endian.
    pub fn load(&self, who: Who, at: u64, bytes: u32, value: u128, sink: &mut impl Sink) {
        self.count(who);
        for part in parts(at, bytes, value) {
            if let Some(line) = self.line(part.at, sink) {
                self.load_part(&line, who, part, sink);
            }
        }
    }

    fn load_part(&self, line: &Line<'_>, who: Who, part: Part, sink: &mut impl Sink) {
        let (node, word, bit) = (who.node as usize, part.word(), part.bit());
        let fresh = !line.held(node).valid;
        if fresh {
            self.fetch(line, who);
        }
        let mut held = line.held(node);
        let known = held.unknown & bit == 0;
        if known && !part.differs(line.word(node, word)) {
            return;
        }
        let writer = line.others(node).find(|&m| {
            let theirs = line.held(m);
            let stored = theirs.valid && (theirs.dirty | theirs.owed) & bit != 0;
            let newest = (theirs.unknown | theirs.older) & bit == 0;
            stored && newest && !part.differs(line.word(m, word))
        });
        let finding = Finding {
            kind: Kind::StaleRead,
            who,
            at: part.at,
            writer: line.writer(word),
            fetched: line.fetched(node),
            stored: None,
            old: if known { line.word(node, word) } else { 0 },
            new: part.value,
            late: false,
        };
        if fresh {
            if let Some(writer) = writer {
                let finding = Finding {
                    kind: Kind::Unpublished,
                    fetched: None,
                    ..finding
                };
                self.owe(line, writer, finding, sink);
                self.fetch(line, who);
                return;
            }
        } else if known {
            let elsewhere = line.writer(word).is_some_and(|w| w.node != who.node);
            // What this node has stored itself since is newer than memory: that it reads something
            // else is another CPU of it, whose report is on the way.
            let own = held.dirty & !held.older & bit != 0;
            let in_memory = match line.memory(word) {
                Some(memory) => !own && !part.differs(memory),
                None => elsewhere,
            };
            if writer.is_some() || in_memory {
                // What is not in memory yet has only just been stored.
                let late = in_memory && self.two_rounds_since(who.node, line.changed(word));
                sink.finding(Finding { late, ..finding });
            }
            return;
        }
        // Of unknown origin: what has just been read is what has been fetched.
        if part.is_whole() {
            line.set_word(node, word, part.value);
            held.unknown &= !bit;
            line.set_held(node, held);
        }
    }

    fn fetch(&self, line: &Line<'_>, who: Who) {
        let flushes = self.flushes(who.node as usize);
        fetch(line, who, flushes.load(Ordering::Relaxed));
    }

    /// A node reads what another one has stored and not written back: as if the writer's cache had evicted the
    /// line just before.
    fn owe(&self, line: &Line<'_>, writer: usize, finding: Finding, sink: &mut impl Sink) {
        let mut held = line.held(writer);
        // Where memory has something newer, the eviction would be a lost update: that is for the
        // write-back to report.
        let seen = held.dirty & !held.older;
        for word in bits(seen) {
            publish(line, writer, word, held, self.rounds());
        }
        let who = finding.writer.filter(|w| w.node as usize == writer);
        let who = who.unwrap_or(Who {
            node: writer as u8,
            cpu: 0,
            pc: 0,
        });
        if held.owed == 0 {
            line.set_since(writer, self.made(who.node, who.cpu));
        }
        held.owed |= seen;
        held.dirty &= !seen;
        line.set_held(writer, held);
        sink.pending(Pending {
            finding,
            writer: who,
            writebacks: held.writebacks,
            since: line.since(writer),
        });
    }

    /// What has become of a read of what had not been written back.
    pub fn settle(&self, pending: &Pending) -> Settled {
        let at = pending.finding.at;
        let Some(line) = self.lock(at) else {
            return Settled::Published;
        };
        let node = pending.writer.node as usize;
        let held = line.held(node);
        // Flushed with everything else: nobody has come to the line since.
        if line.flushes(node) != self.flushes(node).load(Ordering::Relaxed) {
            return Settled::Published;
        }
        let bit = 1u8 << (at % LINE_BYTES / 8);
        if held.owed & bit == 0 || held.writebacks != pending.writebacks {
            return Settled::Published;
        }
        let made = self.made(pending.writer.node, pending.writer.cpu);
        match made.wrapping_sub(pending.since) > GRACE {
            true => Settled::Never,
            false => Settled::Open,
        }
    }

    /// A CPU has stored `bytes` bytes, little-endian.
    pub fn store(&self, who: Who, at: u64, bytes: u32, value: u128, sink: &mut impl Sink) {
        self.count(who);
        for part in parts(at, bytes, value) {
            let Some(line) = self.line(part.at, sink) else {
                continue;
            };
            let (node, word, bit) = (who.node as usize, part.word(), part.bit());
            if !line.held(node).valid {
                self.fetch(&line, who);
            }
            let mut held = line.held(node);
            line.set_word(node, word, part.onto(line.word(node, word)));
            if part.is_whole() {
                held.unknown &= !bit;
            }
            // The store comes after everything that is in memory by now.
            held.older &= !bit;
            held.dirty |= bit;
            line.set_held(node, held);
            line.set_writer(word, who);
            line.set_stored(node, who);
        }
    }

    /// A CPU has made an atomic read-modify-write of at most eight bytes: it found `old`, and memory
    /// holds `new` now, if that is known.
    pub fn modify(
        &self,
        who: Who,
        at: u64,
        bytes: u32,
        old: u64,
        new: Option<u64>,
        sink: &mut impl Sink,
    ) {
        self.count(who);
        let node = who.node as usize;
        let bytes = bytes.min(8);
        let Some(part) = parts(at, bytes, old as u128).next() else {
            return;
        };
        let new = new.and_then(|new| parts(at, bytes, new as u128).next());
        let Some(line) = self.line(part.at, sink) else {
            return;
        };
        let (word, bit) = (part.word(), part.bit());
        if line.held(node).valid {
            let fetched = line.fetched(node);
            if fetched.is_some_and(|f| f.cpu == who.cpu) {
                sink.finding(Finding {
                    kind: Kind::CachedRmw,
                    who,
                    at: part.at,
                    writer: None,
                    fetched,
                    stored: None,
                    old: line.word(node, word),
                    new: part.value,
                    late: false,
                });
            }
            flush(&line, who, self.rounds(), sink);
        }
        for m in line.others(node) {
            let mut theirs = line.held(m);
            if theirs.valid && theirs.dirty & bit != 0 {
                let unseen = line.memory(word).is_none_or(|memory| part.differs(memory));
                let newest = (theirs.unknown | theirs.older) & bit == 0;
                if unseen && newest && !part.differs(line.word(m, word)) {
                    let finding = Finding {
                        kind: Kind::Unpublished,
                        who,
                        at: part.at,
                        writer: line.writer(word),
                        fetched: None,
                        stored: None,
                        old: line.memory(word).unwrap_or(0),
                        new: part.value,
                        late: false,
                    };
                    self.owe(&line, m, finding, sink);
                } else {
                    theirs.older |= bit;
                    line.set_held(m, theirs);
                }
            } else if theirs.valid && theirs.unknown & bit != 0 && part.is_whole() {
                // It was fetched before this change.
                line.set_word(m, word, part.value);
                theirs.unknown &= !bit;
                line.set_held(m, theirs);
            }
        }
        if new.is_none_or(|new| new.value != part.value) {
            line.set_writer(word, who);
            line.set_changed(word, self.rounds());
        }
        let whole = |new: Part| new.is_whole().then_some(new.value);
        let merged = |new: Part| Some(new.onto(line.memory(word)?));
        line.set_memory(word, new.and_then(|new| whole(new).or_else(|| merged(new))));
    }

    /// A CPU writes the line of an address back; its copy stays.
    pub fn write_back(&self, who: Who, at: u64, sink: &mut impl Sink) {
        self.count(who);
        if let Some(line) = self.line(at, sink) {
            write_back(&line, who, self.rounds(), sink);
        }
    }

    /// A CPU writes the line of an address back and drops it. Instructions that drop without writing
    /// back are taken for this too: kernels may not use them on lines that are dirty, and where they
    /// are trapped or virtualised they do write back.
    pub fn flush(&self, who: Who, at: u64, sink: &mut impl Sink) {
        self.count(who);
        if let Some(line) = self.line(at, sink) {
            flush(&line, who, self.rounds(), sink);
        }
    }
}

/// The words of a set.
fn bits(set: u8) -> impl Iterator<Item = usize> {
    (0..WORDS).filter(move |w| set >> w & 1 != 0)
}

/// The node gets a copy of what memory holds.
fn fetch(line: &Line<'_>, who: Who, flushes: u64) {
    let node = who.node as usize;
    let mut held = Held {
        valid: true,
        writebacks: line.held(node).writebacks,
        ..Held::default()
    };
    for word in 0..WORDS {
        match line.memory(word) {
            Some(value) => line.set_word(node, word, value),
            None => held.unknown |= 1 << word,
        }
    }
    line.set_held(node, held);
    line.set_fetched(node, who);
    line.set_flushes(node, flushes);
}

/// A word that a node has stored comes into memory.
fn publish(line: &Line<'_>, node: usize, word: usize, held: Held, rounds: u64) {
    line.set_changed(word, rounds);
    let known = held.unknown >> word & 1 == 0;
    line.set_memory(word, known.then(|| line.word(node, word)));
    let last = line.writer(word);
    for m in line.others(node) {
        let mut theirs = line.held(m);
        // Stored before: what memory holds now is newer.
        if theirs.dirty >> word & 1 != 0 && last.is_none_or(|w| w.node as usize != m) {
            theirs.older |= 1 << word;
            line.set_held(m, theirs);
        }
    }
}

fn write_back(line: &Line<'_>, who: Who, rounds: u64, sink: &mut impl Sink) {
    let node = who.node as usize;
    let mut held = line.held(node);
    if !held.valid || held.dirty | held.owed == 0 {
        return;
    }
    if held.dirty != 0 {
        for word in 0..WORDS {
            let bit = 1u8 << word;
            if held.dirty & !held.older & bit != 0 {
                publish(line, node, word, held, rounds);
                continue;
            }
            // The line is written as a whole: this word too, although memory has something newer.
            let Some(memory) = line.memory(word) else {
                held.unknown |= bit;
                continue;
            };
            if held.unknown & bit == 0 && line.word(node, word) != memory {
                sink.finding(Finding {
                    kind: Kind::LostUpdate,
                    who,
                    at: line.at + 8 * word as u64,
                    writer: line.writer(word),
                    fetched: line.fetched(node),
                    stored: line.stored(node),
                    old: line.word(node, word),
                    new: memory,
                    late: false,
                });
            }
            line.set_word(node, word, memory);
            held.unknown &= !bit;
        }
    }
    (held.dirty, held.owed, held.older) = (0, 0, 0);
    held.writebacks = held.writebacks.wrapping_add(1) & 0xff_ffff;
    line.set_held(node, held);
}

fn flush(line: &Line<'_>, who: Who, rounds: u64, sink: &mut impl Sink) {
    write_back(line, who, rounds, sink);
    let node = who.node as usize;
    let writebacks = line.held(node).writebacks;
    line.set_held(
        node,
        Held {
            writebacks,
            ..Held::default()
        },
    );
}

/// The copy of a node that has died. What others have seen, or could have, of its stores the
/// emulator's memory keeps: as if its cache had evicted them in time. What memory has newer it loses.
fn lose(line: &Line<'_>, node: usize, rounds: u64) {
    let held = line.held(node);
    for word in bits(held.dirty & !held.older) {
        publish(line, node, word, held, rounds);
    }
    line.set_held(
        node,
        Held {
            writebacks: held.writebacks.wrapping_add(1) & 0xff_ffff,
            ..Held::default()
        },
    );
}
