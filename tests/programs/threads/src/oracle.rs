//! Random accesses of threads on all nodes to the same pages, of which each result is known: cells of 1 to 64 bytes anywhere in
//! pages, each written and read whole under a word of its own, and words that all add to.
//!
//! ```text
//!  data page:  | cells of 1 to 64 bytes, one after the other | 32 words that are added to | cells, also over the end |
//!  word page:  | version << 16 | readers << 1 | writer, one for each cell of some data pages       |
//! ```
//!
//! What is in a cell follows from its number and its version, so a page that is old, torn or another one is found by the next
//! reader. Words and cells are on different pages: who sees a word as its writer left it must see the cell so, too.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use dyad::prelude::task::*;
use dyad::{report, thread};
use dyad_random::{SplitMix64, mix};

use crate::nodes;

/// Bytes of a page.
const PAGE: usize = 4096;
/// Words of each data page that are added to, 8 bytes each: in turn of 1, 2, 4 and 8 bytes.
const SUMS: usize = 32;
/// Where they are: cells are before and behind them, and over the ends of pages.
const MIDDLE: usize = PAGE / 8 / 2;
/// The longest cell.
const LONGEST: usize = 64;
/// Operations on neighbours before a thread goes elsewhere.
const BURST: u64 = 16;
/// How many neighbours these are.
const NEAR: u64 = 24;
const WRITER: u64 = 1;
const READER: u64 = 2;
const READERS: u64 = 0xfffe;
const VERSION: u32 = 16;

#[repr(align(4096))]
struct Page([AtomicU64; PAGE / 8]);

/// A cell: where its bytes are, counted from the first data page.
#[derive(Clone, Copy)]
struct Cell {
    at: usize,
    len: usize,
}

struct Board {
    data: Box<[Page]>,
    words: Box<[AtomicU64]>,
    cells: Vec<Cell>,
}

/// What a thread has done, and the first thing that was wrong.
#[derive(Default)]
struct Done {
    reads: u64,
    writes: u64,
    adds: u64,
    /// What it has added to the words of each width.
    added: [u64; 4],
    wrong: Option<String>,
}

/// What is in a cell with this version.
fn contents(cell: usize, version: u64) -> [u8; LONGEST] {
    let mut bytes = [0; LONGEST];
    for (n, part) in bytes.chunks_mut(8).enumerate() {
        let word = mix(((cell as u64) << 32) ^ (version << 3) ^ n as u64);
        part.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

impl Board {
    fn new(pages: usize, random: &mut SplitMix64) -> Board {
        let page = || Page([const { AtomicU64::new(0) }; PAGE / 8]);
        let mut cells = Vec::new();
        let (mut at, end) = (0, pages * PAGE);
        while at < end {
            // Cells go over ends of pages, but not over words that are added to.
            let words = at / PAGE * PAGE + PAGE / 2;
            let words = if at < words { words } else { words + PAGE };
            let len = (1 + random.below(LONGEST as u64) as usize).min(words.min(end) - at);
            cells.push(Cell { at, len });
            at += len;
            if at == words {
                at += 8 * SUMS;
            }
        }
        let board = Board {
            data: (0..pages).map(|_| page()).collect(),
            words: cells.iter().map(|_| AtomicU64::new(0)).collect(),
            cells,
        };
        for n in 0..board.cells.len() {
            board.write(n, &contents(n, 0));
        }
        board
    }

    /// The bytes of a cell.
    fn bytes(&self, cell: usize) -> *mut u8 {
        let Cell { at, len } = self.cells[cell];
        assert!(at + len <= self.data.len() * PAGE);
        let base = self.data.as_ptr().cast::<u8>().cast_mut();
        base.wrapping_add(at)
    }

    #[allow(unsafe_code)]
    fn write(&self, cell: usize, from: &[u8; LONGEST]) {
        let len = self.cells[cell].len;
        // SAFETY: 1. The cell is within the board's pages. 2. They consist of cells of atomics, which may be changed through a
        // shared reference. 3. The caller is the only thread that has the cell, by its word, or no other thread knows the board.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), self.bytes(cell), len) };
    }

    #[allow(unsafe_code)]
    fn read(&self, cell: usize) -> [u8; LONGEST] {
        let mut to = [0; LONGEST];
        let len = self.cells[cell].len;
        // SAFETY: 1. The cell is within the board's pages. 2. No thread writes to it meanwhile: the caller is a reader or the writer,
        // by the cell's word, or all others have ended.
        unsafe { core::ptr::copy_nonoverlapping(self.bytes(cell), to.as_mut_ptr(), len) };
        to
    }

    /// What is wrong with a cell that has this version.
    fn wrong(&self, cell: usize, version: u64) -> Option<String> {
        let Cell { at, len } = self.cells[cell];
        let (found, expected) = (self.read(cell), contents(cell, version));
        let (found, expected) = (&found[..len], &expected[..len]);
        let old = || {
            (0..version)
                .rev()
                .find(|&v| contents(cell, v)[..len] == *found)
        };
        (found != expected).then(|| {
            let (page, at) = (at / PAGE, at % PAGE);
            format!(
                "cell {cell} of page {page} at {at:#x}, version {version}: {found:x?} instead of {expected:x?}, version {:?}; \
                 thread {} on node {}",
                old(),
                thread::current().number(),
                dyad::node().index()
            )
        })
    }

    /// One operation on a cell; `false` if another thread has it.
    fn access(&self, cell: usize, writes: bool, done: &mut Done) -> bool {
        let word = &self.words[cell];
        let now = word.load(Ordering::Relaxed);
        let (next, free) = match writes {
            true => (now | WRITER, now & (WRITER | READERS) == 0),
            false => (now + READER, now & WRITER == 0),
        };
        let order = (Ordering::Acquire, Ordering::Relaxed);
        if !free || word.compare_exchange(now, next, order.0, order.1).is_err() {
            return false;
        }
        let version = now >> VERSION;
        if let Some(wrong) = self.wrong(cell, version) {
            done.wrong.get_or_insert(wrong);
        }
        if writes {
            self.write(cell, &contents(cell, version + 1));
            word.store((version + 1) << VERSION, Ordering::Release);
            done.writes += 1;
        } else {
            word.fetch_sub(READER, Ordering::Release);
            done.reads += 1;
        }
        true
    }

    /// Adds to a word of a page.
    #[allow(unsafe_code)]
    fn add(&self, page: usize, n: usize, more: u64, done: &mut Done) {
        let word = &self.data[page].0[MIDDLE + n % SUMS];
        let at = core::ptr::from_ref(word);
        let (width, order) = (n % 4, Ordering::Relaxed);
        // SAFETY: 1. The word is aligned for 8 bytes and lives as long as the board. 2. It is accessed in this width only, until
        // all threads have ended.
        unsafe {
            match width {
                0 => _ = (*at.cast::<AtomicU8>()).fetch_add(more as u8, order),
                1 => _ = (*at.cast::<AtomicU16>()).fetch_add(more as u16, order),
                2 => _ = (*at.cast::<AtomicU32>()).fetch_add(more as u32, order),
                _ => _ = word.fetch_add(more, order),
            }
        }
        done.added[width] = done.added[width].wrapping_add(more);
        done.adds += 1;
    }

    /// What a thread does.
    fn play(&self, operations: u64, mut random: SplitMix64) -> Done {
        let mut done = Done::default();
        let mut first = 0;
        for n in 0..operations {
            if n % BURST == 0 {
                first = random.below(self.cells.len() as u64);
            }
            let near = first + random.below(NEAR);
            let cell = (near % self.cells.len() as u64) as usize;
            match random.below(8) {
                0 => {
                    let page = self.cells[cell].at / PAGE;
                    let sum = random.below(SUMS as u64) as usize;
                    self.add(page, sum, random.below(1 << 40), &mut done);
                }
                // Where another thread is, this one does not wait: it looks again later, or elsewhere.
                kind => _ = self.access(cell, kind < 4, &mut done),
            }
            if done.wrong.is_some() {
                break;
            }
        }
        done
    }

    /// The sums of the words by width, as far as the width goes.
    fn sums(&self) -> [u64; 4] {
        let mut sums = [0u64; 4];
        for page in &self.data {
            for (n, word) in page.0[MIDDLE..MIDDLE + SUMS].iter().enumerate() {
                sums[n % 4] = sums[n % 4].wrapping_add(word.load(Ordering::Relaxed));
            }
        }
        sums
    }
}

/// `--operations` of `--players` on each node, on `--pages`.
pub fn oracle(args: &Args) -> Result<()> {
    let operations = args.number("--operations", 20_000, 1..=1_000_000_000)?;
    let players = args.number("--players", 2, 1..=8)? as usize;
    let pages = args.number("--pages", 64, 1..=4096)? as usize;
    let seed = args.number("--seed", 0, 0..=u64::MAX)?;
    let nodes = nodes()?;
    let board = Board::new(pages, &mut SplitMix64(seed));
    println!("threads: {} cells", board.cells.len());
    let start = Instant::now();
    let played = thread::scope(|s| -> Result<Vec<Done>> {
        let all: Vec<_> = (0..players * nodes.len())
            .map(|n| {
                let (board, random) = (&board, SplitMix64(mix(seed) ^ mix(n as u64 + 1)));
                s.spawn_on(nodes[n % nodes.len()], move || {
                    board.play(operations, random)
                })
            })
            .collect::<Result<_>>()?;
        all.into_iter().map(|t| t.join()).collect()
    })?;
    let mut all = Done::default();
    for done in played {
        all.reads += done.reads;
        all.writes += done.writes;
        all.adds += done.adds;
        all.wrong = all.wrong.or(done.wrong);
        let added = all.added.iter_mut().zip(done.added);
        added.for_each(|(all, more)| *all = all.wrapping_add(more));
    }
    println!(
        "{} reads, {} writes, {} additions in {:?}",
        all.reads,
        all.writes,
        all.adds,
        start.elapsed()
    );
    // Now that all have ended.
    let mut versions = 0;
    for (cell, word) in board.words.iter().enumerate() {
        let word = word.load(Ordering::Relaxed);
        versions += word >> VERSION;
        let taken = word & (WRITER | READERS) != 0;
        let taken = taken.then(|| format!("cell {cell} is still taken: {word:#x}"));
        all.wrong = all
            .wrong
            .or(taken)
            .or_else(|| board.wrong(cell, word >> VERSION));
    }
    let narrow = |sums: [u64; 4]| {
        [
            sums[0] as u8 as u64,
            sums[1] as u16 as u64,
            sums[2] as u32 as u64,
            sums[3],
        ]
    };
    let (found, added) = (narrow(board.sums()), narrow(all.added));
    report::check(
        "threads.oracle",
        all.wrong.is_none() && versions == all.writes,
        format_args!(
            "{} reads, {} writes, {versions} versions; {}",
            all.reads,
            all.writes,
            all.wrong.as_deref().unwrap_or("nothing was wrong")
        ),
    );
    report::check(
        "threads.oracle-sums",
        found == added,
        format_args!("{} additions: {found:x?}, {added:x?}", all.adds),
    );
    Ok(())
}
