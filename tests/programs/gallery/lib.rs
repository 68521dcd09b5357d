//! What the programs of the gallery share: moves, seeded data, digests.
//!
//! Each program of the gallery uses one widely used crate from the registry, unchanged. It computes over seeded
//! data, says its results ([`say!`]), and calls [`hop`] where the crate calls the program: the crate's frames move
//! with the thread. On the host, the emulated system runs the same program; its output must be the same.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

#[doc(hidden)]
pub use alloc::format;
use core::fmt;
use core::hash::{BuildHasherDefault, Hasher};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use dyad::prelude::thread::*;
use dyad::report;
use dyad::sync::Mutex;

/// Moves that each program makes at least.
pub const LEAST_MOVES: u64 = 100;
/// The counter that has the moves of a program.
pub const COUNTER: &str = "gallery.moves";
/// The line before a program's results.
pub const BEGIN: &str = "--- results";
/// The line after a program's results.
pub const END: &str = "--- end of results";

static CALLS: AtomicU64 = AtomicU64::new(0);
static MOVES: AtomicU64 = AtomicU64::new(0);

/// Moves the thread to the other ISA.
///
/// # Panics
///
/// If the thread cannot move.
pub fn hop() {
    let from = here();
    if let Err(e) = migrate(from.other()) {
        panic!("no move: {e}");
    }
    if here() != from {
        MOVES.fetch_add(1, Relaxed);
    }
}

/// Moves the thread to the other ISA at every `n`th call.
pub fn hop_each(n: u64) {
    if CALLS.fetch_add(1, Relaxed).is_multiple_of(n) {
        hop();
    }
}

/// Asks for a move at every `n`th call. The next migration point makes it.
///
/// # Panics
///
/// If there is no node to move to.
pub fn ask_each(n: u64) {
    if !CALLS.fetch_add(1, Relaxed).is_multiple_of(n) {
        return;
    }
    let from = dyad::node();
    let to = dyad::system().ok().and_then(|s| s.partner(from));
    let asked = to.map(|to| request_migration(dyad::thread::current(), to));
    assert!(matches!(asked, Some(Ok(_))), "no move can be asked for");
}

/// Counts a move since the last call, in programs that [ask](ask_each) for theirs.
pub fn count_move() {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = 1 + u64::from(here() == Isa::X86_64);
    let last = LAST.swap(now, Relaxed);
    if last != 0 && last != now {
        MOVES.fetch_add(1, Relaxed);
    }
}

#[inline(never)]
fn here() -> Isa {
    isa()
}

/// What the program has said.
static SAID: Mutex<String> = Mutex::new(String::new());

/// Adds a line to the results.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::add(&$crate::format!($($text)*)) };
}

/// Adds a line to the results: what [`say!`] does.
pub fn add(line: &str) {
    let mut said = SAID.lock();
    said.push_str(line);
    said.push('\n');
}

/// Runs a program of the gallery: prints its results from where it has begun, and reports its moves.
///
/// # Errors
///
/// The program's, or if the thread has moved less than [`LEAST_MOVES`] times. On the host it need not.
pub fn play(program: impl FnOnce() -> Result<()>) -> Result<()> {
    let home = here();
    let outcome = program();
    if here() != home {
        migrate(home)?;
    }
    println!("{BEGIN}");
    print!("{}", SAID.lock().as_str());
    println!("{END}");
    outcome?;
    let moves = MOVES.load(Relaxed);
    report::counter(COUNTER, moves);
    let enough = moves >= LEAST_MOVES || cfg!(not(target_os = "none"));
    match report::check("gallery.moved", enough, moves) {
        true => Ok(()),
        false => Err(Error::msg("the thread has not moved often enough")),
    }
}

/// The error of a program whose crate has refused something.
pub fn failed(e: impl fmt::Debug) -> Error {
    Error::msg(format_args!("{e:?}"))
}

/// Seeded data: SplitMix64.
#[derive(Clone, Debug)]
pub struct Seeded(pub u64);

impl Seeded {
    /// The next word.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.word() % n
    }

    /// A number from 0 to 1, a multiple of 2^-20.
    pub fn unit(&mut self) -> f64 {
        (self.below(1 << 20) as f64) / f64::from(1 << 20)
    }

    /// So many bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.word() as u8).collect()
    }

    /// Words of a small vocabulary, separated by spaces: data that can be compressed.
    pub fn prose(&mut self, words: usize) -> String {
        const ALL: [&str; 12] = [
            "cap", "table", "node", "frame", "thread", "retype", "über", "shared", "memory", "a",
            "of", "the",
        ];
        let one = |_| ALL[self.below(ALL.len() as u64) as usize];
        (0..words).map(one).collect::<Vec<_>>().join(" ")
    }
}

/// A hasher that gives the same numbers in every run: FNV-1a of 64 bits.
#[derive(Clone, Debug)]
pub struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.0 = (self.0 ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

/// What makes hashers for maps.
pub type Build = BuildHasherDefault<Fnv>;

/// A digest of bytes.
pub fn digest(bytes: &[u8]) -> u64 {
    let mut all = Fnv::default();
    all.write(bytes);
    all.finish()
}
