//! Shared memory of this run, with coherent caches or without.
//!
//! The choice is made once, at boot. Operations that are the same in both cases (loads and stores) do not
//! check it.
//!
//! | | coherent | incoherent |
//! |---|---|---|
//! | read, write a shared word | one load (acquire), one store (release) | the line is dropped before, written back after |
//! | change one (exchange, add, bits) | one read-modify-write, acquire and release | a read-modify-write at memory, by the back end: two nodes' caches must not both win |
//! | load, store of [`GlobalMem`] | plain | plain: rows write back and drop lines explicitly |
//! | hand an object over | nothing | all its lines are written back and dropped |
//!
//! There are two interfaces to the same words: [`GlobalMem`], by physical address, for the protocol crates,
//! which name words by address; and the methods of [`Words`], by reference, for kernel objects, whose
//! addresses have been checked when they were found.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_captbl::Line;
use dyad_coherence::incoherent::Unsupported;
use dyad_coherence::{Coherent, GlobalMem, Incoherent, LINE_BYTES, Word, atomic};
use dyad_retype::row::Record;
use dyad_shm::{FrameEntry, FusedMap, PhysAddr};

/// Reads a shared word like [`load_coherent`], without any order.
#[inline(always)]
pub fn look_coherent(word: &AtomicU64) -> u64 {
    before_look(|| word);
    word.load(Ordering::Relaxed)
}

/// Words of shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    map: &'static FusedMap,
    /// Present if caches are not coherent.
    caches: Option<Incoherent<'static>>,
}

impl Words {
    /// Words of a system with coherent caches.
    pub const fn coherent(map: &'static FusedMap) -> Words {
        Words { map, caches: None }
    }

    /// Words of a system whose caches are not coherent.
    ///
    /// # Errors
    ///
    /// [`Unsupported`] if this machine cannot flush lines.
    pub fn incoherent(map: &'static FusedMap) -> Result<Words, Unsupported> {
        Ok(Words {
            map,
            caches: Some(Incoherent::new(map)?),
        })
    }

    /// The pools.
    pub const fn map(&self) -> &'static FusedMap {
        self.map
    }

    /// Whether caches are coherent.
    pub const fn is_coherent(&self) -> bool {
        self.caches.is_none()
    }

    /// Words whose lines never have to be written back or dropped; `None` if caches are not coherent.
    #[inline]
    pub const fn if_coherent(&self) -> Option<CoherentWords> {
        match self.caches {
            None => Some(CoherentWords(())),
            Some(_) => None,
        }
    }

    /// The caches, if they are not coherent and the caller is not the seeded bug ([`seeded`](crate::seeded)).
    #[inline(always)]
    #[cfg_attr(feature = "ktest", track_caller)]
    fn caches(&self) -> Option<&Incoherent<'static>> {
        let caches = self.caches.as_ref();
        #[cfg(feature = "ktest")]
        if caches.is_some() && crate::seeded::left_out() {
            return None;
        }
        caches
    }

    fn plain(&self) -> Coherent<'static> {
        Coherent(self.map)
    }
}

/// Called before every change of a shared word: tests end machines, and let other nodes act, between two
/// changes.
#[inline(always)]
fn before_change<'w>(word: impl FnOnce() -> &'w AtomicU64) {
    #[cfg(any(test, feature = "host"))]
    crate::host::crash::change(word());
    #[cfg(not(any(test, feature = "host")))]
    let _ = word;
}

/// Called before every read of a shared word that other nodes may change: tests let other nodes act between
/// two reads.
#[inline(always)]
fn before_look<'w>(word: impl FnOnce() -> &'w AtomicU64) {
    #[cfg(any(test, feature = "host"))]
    crate::host::crash::look(word());
    #[cfg(not(any(test, feature = "host")))]
    let _ = word;
}

/// Reads a shared word by reference, from this node's copy; acquires. `WHY` is the number of a
/// [`Permitted`](dyad_shm::permitted::Permitted).
#[inline(always)]
pub fn load_permitted<const WHY: u32>(word: &AtomicU64) -> u64 {
    before_look(|| word);
    dyad_coherence::load_permitted::<WHY>(word, Ordering::Acquire)
}

/// Reads a shared word where caches are coherent, or whose line the caller has just refreshed; acquires.
#[inline(always)]
pub fn load_coherent(word: &AtomicU64) -> u64 {
    before_look(|| word);
    word.load(Ordering::Acquire)
}

impl GlobalMem for Words {
    #[inline]
    fn contains(&self, at: PhysAddr, len: u64) -> bool {
        self.plain().contains(at, len)
    }

    #[inline]
    fn load(&self, at: PhysAddr, order: Ordering) -> u64 {
        before_look(|| self.map.word(at));
        self.plain().load(at, order)
    }

    #[inline(always)]
    fn load_permitted<const WHY: u32>(&self, at: PhysAddr, order: Ordering) -> u64 {
        before_look(|| self.map.word(at));
        dyad_coherence::load_permitted::<WHY>(self.map.word(at), order)
    }

    #[inline(always)]
    fn load_rest_permitted<const WHY: u32>(&self, line: PhysAddr) -> [u64; 6] {
        before_look(|| self.map.word(line));
        let line: &[AtomicU64; 8] = self.map.get(line).expect("a line lies in a pool");
        [2, 3, 4, 5, 6, 7]
            .map(|i| dyad_coherence::load_permitted::<WHY>(&line[i], Ordering::Relaxed))
    }

    #[inline]
    fn store(&self, at: PhysAddr, value: u64, order: Ordering) {
        before_change(|| self.map.word(at));
        self.plain().store(at, value, order);
    }

    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    fn cas(&self, at: PhysAddr, old: u64, new: u64) -> Result<u64, u64> {
        before_change(|| self.map.word(at));
        match self.caches() {
            None => self.plain().cas(at, old, new),
            Some(c) => c.cas(at, old, new),
        }
    }

    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    fn swap(&self, at: PhysAddr, value: u64) -> u64 {
        before_change(|| self.map.word(at));
        match self.caches() {
            None => self.plain().swap(at, value),
            Some(c) => c.swap(at, value),
        }
    }

    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    fn add(&self, at: PhysAddr, n: u64) -> u64 {
        before_change(|| self.map.word(at));
        match self.caches() {
            None => self.plain().add(at, n),
            Some(c) => c.add(at, n),
        }
    }

    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    fn or(&self, at: PhysAddr, bits: u64) -> u64 {
        before_change(|| self.map.word(at));
        match self.caches() {
            None => self.plain().or(at, bits),
            Some(c) => c.or(at, bits),
        }
    }

    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    fn and(&self, at: PhysAddr, bits: u64) -> u64 {
        before_change(|| self.map.word(at));
        match self.caches() {
            None => self.plain().and(at, bits),
            Some(c) => c.and(at, bits),
        }
    }

    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    fn load_fresh(&self, at: PhysAddr, order: Ordering) -> u64 {
        let word = self.map.word(at);
        before_look(|| word);
        if let Some(c) = self.caches() {
            c.invalidate_word(word);
        }
        word.load(order)
    }

    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    fn store_through(&self, at: PhysAddr, value: u64, order: Ordering) {
        before_change(|| self.map.word(at));
        let word = self.map.word(at);
        word.store(value, order);
        if let Some(c) = self.caches() {
            c.writeback_word(word);
        }
    }

    #[inline]
    fn fence(&self) {
        match self.caches() {
            None => self.plain().fence(),
            Some(c) => c.fence(),
        }
    }

    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    fn load_of_frame(&self, frame: PhysAddr, index: usize) -> Option<u64> {
        let words: &[AtomicU64; 512] = self.map.get(frame)?;
        Some(self.read(&words[index % 512]))
    }

    // The first word says that the line is in use: it comes last, and a reader of it, with
    // acquire, sees the others.
    #[inline]
    fn store_line(&self, line: PhysAddr, words: [u64; 4]) {
        before_change(|| self.map.word(line));
        let to: &[AtomicU64; 8] = self.map.get(line).expect("a line lies in a pool");
        to[1].store(words[1], Ordering::Relaxed);
        to[2].store(words[2], Ordering::Relaxed);
        to[3].store(words[3], Ordering::Relaxed);
        to[0].store(words[0], Ordering::Release);
    }

    #[inline]
    fn fill_line(&self, line: PhysAddr, words: &[u64; 6]) {
        before_change(|| self.map.word(line));
        let to: &[AtomicU64; 8] = self.map.get(line).expect("a line lies in a pool");
        for (to, word) in to[2..].iter().zip(words) {
            to.store(*word, Ordering::Relaxed);
        }
    }

    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    fn writeback(&self, at: PhysAddr, len: u64) {
        if let Some(c) = self.caches() {
            c.writeback(at, len);
        }
    }

    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    fn invalidate(&self, at: PhysAddr, len: u64) {
        if let Some(c) = self.caches() {
            c.invalidate(at, len);
        }
    }
}

/// Accesses to shared words by fast paths of rows, where caches are coherent: each is one instruction.
#[derive(Clone, Copy, Debug)]
pub struct CoherentWords(());

impl CoherentWords {
    /// A word for use by rows.
    #[inline(always)]
    pub const fn word(self, at: &'static AtomicU64) -> CoherentWord {
        CoherentWord { words: self, at }
    }

    /// Replaces `old` by `new`; returns whether the word was `old`. Acquires and releases.
    #[inline(always)]
    pub fn exchange(self, word: &AtomicU64, old: u64, new: u64) -> bool {
        before_change(|| word);
        atomic::exchange(word, old, new).is_ok()
    }

    /// Replaces `old` by `new`. Acquires and releases.
    ///
    /// # Errors
    ///
    /// The value of the word if it is not `old`.
    #[inline(always)]
    pub fn replace(self, word: &AtomicU64, old: u64, new: u64) -> core::result::Result<u64, u64> {
        before_change(|| word);
        atomic::exchange(word, old, new)
    }

    /// Adds, and returns the old value. Acquires and releases.
    #[inline(always)]
    pub fn increase(self, word: &AtomicU64, n: u64) -> u64 {
        before_change(|| word);
        atomic::add(word, n)
    }

    /// Sets bits. Acquires and releases.
    #[inline(always)]
    pub fn set_bits(self, word: &AtomicU64, bits: u64) {
        before_change(|| word);
        atomic::or(word, bits);
    }

    /// A full fence, like [`GlobalMem::fence`].
    #[inline(always)]
    pub fn fence(self) {
        core::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Stores four words of a line, like [`GlobalMem::store_line`].
    #[inline(always)]
    pub fn store_line(self, line: &[AtomicU64; 8], words: [u64; 4]) {
        before_change(|| &line[0]);
        line[1].store(words[1], Ordering::Relaxed);
        line[2].store(words[2], Ordering::Relaxed);
        line[3].store(words[3], Ordering::Relaxed);
        line[0].store(words[0], Ordering::Release);
    }

    /// Fills the rest of a line, like [`GlobalMem::fill_line`].
    #[inline(always)]
    pub fn fill(self, line: &[AtomicU64; 8], words: [u64; 6]) {
        before_change(|| &line[2]);
        for (to, word) in line[2..].iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
    }

    /// Stores, without any order.
    #[inline(always)]
    pub fn store_relaxed(self, word: &AtomicU64, value: u64) {
        before_change(|| word);
        word.store(value, Ordering::Relaxed);
    }

    /// Stores; releases.
    #[inline(always)]
    pub fn store(self, word: &AtomicU64, value: u64) {
        before_change(|| word);
        word.store(value, Ordering::Release);
    }
}

/// A shared word by reference, where caches are coherent.
#[derive(Clone, Copy, Debug)]
pub struct CoherentWord {
    /// The operations on it.
    pub words: CoherentWords,
    /// The word.
    pub at: &'static AtomicU64,
}

impl Word for CoherentWord {
    #[inline(always)]
    fn load(&self) -> u64 {
        load_coherent(self.at)
    }

    #[inline(always)]
    fn replace(&self, old: u64, new: u64) -> core::result::Result<u64, u64> {
        self.words.replace(self.at, old, new)
    }

    #[inline(always)]
    fn add(&self, n: u64) -> u64 {
        self.words.increase(self.at, n)
    }

    #[inline(always)]
    fn fence(&self) {
        self.words.fence();
    }
}

/// The record of a frame by reference, where caches are coherent.
#[derive(Clone, Copy, Debug)]
pub struct CoherentRecord {
    /// The operations on its words.
    pub words: CoherentWords,
    /// The record of the frame.
    pub at: &'static FrameEntry,
}

impl Record for CoherentRecord {
    #[inline(always)]
    fn w0(&self) -> impl Word {
        self.words.word(&self.at.w0)
    }

    #[inline(always)]
    fn w1(&self) -> impl Word {
        self.words.word(&self.at.w1)
    }
}

/// Accesses to words of structures that several nodes change, anywhere in the pools.
///
/// Each acts at memory where caches are not coherent; otherwise it is one atomic instruction.
impl Words {
    /// The address of a word. Looked up only where caches are not coherent: otherwise the lookup would cost
    /// more than the whole operation.
    #[cold]
    #[inline(never)]
    fn at(&self, word: &AtomicU64) -> PhysAddr {
        self.map
            .physical(core::ptr::from_ref(word) as u64)
            .expect("a shared word lies in a pool")
    }

    /// Reads a word that other nodes write; acquires.
    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    pub fn read(&self, word: &AtomicU64) -> u64 {
        before_look(|| word);
        if let Some(c) = self.caches() {
            c.invalidate_word(word);
        }
        word.load(Ordering::Acquire)
    }

    /// Reads the first word of an object that other nodes change, like [`read`](Words::read); the next
    /// `bytes` bytes are also refreshed from memory.
    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    pub fn read_first(&self, word: &AtomicU64, bytes: u64) -> u64 {
        before_look(|| word);
        self.refresh(word, bytes);
        word.load(Ordering::Acquire)
    }

    /// Drops this node's copy of the first `bytes` bytes of an object, which begins with the word `first`:
    /// later loads see memory.
    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    pub fn refresh(&self, first: &AtomicU64, bytes: u64) {
        if let Some(c) = self.caches() {
            c.invalidate(self.at(first), bytes);
        }
    }

    /// Exchanges the first word of an object, which holds its owner, like [`exchange`](Words::exchange). This
    /// node's stores to the next `bytes()` bytes reach memory before the exchange, and this node keeps no
    /// copy of them.
    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    pub fn exchange_first(
        &self,
        word: &AtomicU64,
        old: u64,
        new: u64,
        bytes: impl FnOnce() -> u64,
    ) -> bool {
        if let Some(c) = self.caches() {
            c.invalidate(self.at(word), bytes());
        }
        self.exchange(word, old, new)
    }

    /// Reads a word from this node's copy; the value may be stale. `WHY` is the number of a
    /// [`Permitted`](dyad_shm::permitted::Permitted).
    #[inline(always)]
    pub fn hint<const WHY: u32>(&self, word: &AtomicU64) -> u64 {
        before_look(|| word);
        dyad_coherence::load_permitted::<WHY>(word, Ordering::Relaxed)
    }

    /// Writes a word that other nodes read, on a line that no other node stores to now; releases.
    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    pub fn write(&self, word: &AtomicU64, value: u64) {
        before_change(|| word);
        word.store(value, Ordering::Release);
        if let Some(c) = self.caches() {
            c.writeback_word(word);
        }
    }

    /// Writes `value`, and returns the old value.
    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    pub fn replace(&self, word: &AtomicU64, value: u64) -> u64 {
        before_change(|| word);
        match self.caches() {
            None => atomic::swap(word, value),
            Some(c) => c.swap_word(word, value),
        }
    }

    /// Sets bits, and returns the old value.
    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    pub fn set_bits(&self, word: &AtomicU64, bits: u64) -> u64 {
        before_change(|| word);
        match self.caches() {
            None => atomic::or(word, bits),
            Some(c) => c.or_word(word, bits),
        }
    }

    /// Adds, and returns the old value.
    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    pub fn increase(&self, word: &AtomicU64, n: u64) -> u64 {
        before_change(|| word);
        match self.caches() {
            None => atomic::add(word, n),
            Some(c) => c.add_word(word, n),
        }
    }

    /// Replaces `old` by `new`; returns whether the word was `old`.
    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    pub fn exchange(&self, word: &AtomicU64, old: u64, new: u64) -> bool {
        before_change(|| word);
        match self.caches() {
            None => atomic::exchange(word, old, new).is_ok(),
            Some(c) => c.cas_word(word, old, new).is_ok(),
        }
    }

    /// Prepares a frame for another owner: this node's stores to it reach memory, and the node keeps no copy.
    #[cfg_attr(feature = "ktest", track_caller)]
    pub fn hand_over<T>(&self, object: &'static T) {
        if let Some(c) = self.caches()
            && let Some(at) = self.map.physical(core::ptr::from_ref(object) as u64)
        {
            c.invalidate(at, size_of::<T>() as u64);
        }
    }
}

/// The line of a slot, looked up once: an operation accesses the slot several times, and the address is
/// checked at the lookup.
pub struct SlotLine {
    words: &'static Words,
    line: &'static [AtomicU64; 8],
}

impl SlotLine {
    /// The line at an address; `None` if it is in no pool.
    #[inline]
    pub fn at(words: &'static Words, at: PhysAddr) -> Option<SlotLine> {
        let line = words.map.get(at)?;
        Some(SlotLine { words, line })
    }
}

impl Line for SlotLine {
    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    fn header(&self) -> u64 {
        self.words.read(&self.line[0])
    }

    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    fn replace(&self, old: u64, new: u64) -> Result<u64, u64> {
        before_change(|| &self.line[0]);
        match self.words.caches() {
            None => atomic::exchange(&self.line[0], old, new),
            Some(c) => c.cas(self.words.at(&self.line[0]), old, new),
        }
    }

    #[inline]
    fn stamp(&self) -> u64 {
        before_look(|| &self.line[1]);
        self.line[1].load(Ordering::Relaxed)
    }

    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    fn set_stamp(&self, stamp: u64) {
        self.words.write(&self.line[1], stamp);
    }

    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    fn fill(&self, words: &[u64; 6]) {
        before_change(|| &self.line[2]);
        for (to, word) in self.line[2..].iter().zip(words) {
            to.store(*word, Ordering::Relaxed);
        }
        if let Some(c) = self.words.caches() {
            c.writeback(self.words.at(&self.line[0]), LINE_BYTES);
        }
    }
}
