//! Two nodes that write one page all the time: one word in turn, then a word each at once. Neither may keep the page from the
//! other one.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad::prelude::task::*;
use dyad::{report, thread};

use crate::nodes;

/// A page of words.
#[repr(align(4096))]
struct Page([AtomicU64; 512]);

static PAGE: Page = Page([const { AtomicU64::new(0) }; 512]);

/// How long a writer may see nothing of the other one.
const PATIENCE: Duration = Duration::from_secs(20);

/// `--turns` of each writer, in either game.
pub fn writers(args: &Args) -> Result<()> {
    let turns = args.number("--turns", 1000, 1..=1_000_000_000)?;
    let nodes = nodes()?;
    let [first, .., last] = nodes[..] else {
        return Err(Error::msg("writers are on two nodes"));
    };
    let word = &PAGE.0[0];
    let play = |game: fn(u64, u64) -> u64| -> Result<Vec<u64>> {
        thread::scope(|s| {
            let both = [(0, first), (1, last)];
            let playing: Vec<_> = both
                .into_iter()
                .map(|(me, node)| s.spawn_on(node, move || game(me, turns)))
                .collect::<Result<_>>()?;
            playing.into_iter().map(|p| p.join()).collect()
        })
    };
    let start = Instant::now();
    let played = play(in_turn)?;
    println!("{} turns at one word in {:?}", 2 * turns, start.elapsed());
    let at = word.load(Ordering::Relaxed);
    report::check(
        "threads.writers-in-turn",
        at == 2 * turns && played.iter().all(|&n| n == turns),
        format_args!("{at}, {played:?}"),
    );
    let start = Instant::now();
    let played = play(at_once)?;
    println!("{} turns at two words in {:?}", 2 * turns, start.elapsed());
    let words = [1, 2].map(|n: usize| PAGE.0[n].load(Ordering::Relaxed));
    report::check(
        "threads.writers-at-once",
        words == [turns; 2] && played.iter().all(|&n| n == turns),
        format_args!("{words:?}, {played:?}"),
    );
    Ok(())
}

/// Each adds 1 when the word is even, or odd. Gives its turns.
fn in_turn(me: u64, turns: u64) -> u64 {
    let word = &PAGE.0[0];
    for n in 0..turns {
        let end = Instant::now() + PATIENCE;
        let mut looks = 0u64;
        while word.load(Ordering::Acquire) != 2 * n + me {
            looks += 1;
            if looks.is_multiple_of(1 << 16) && Instant::now() > end {
                return n;
            }
        }
        word.store(2 * n + me + 1, Ordering::Release);
    }
    turns
}

/// Each adds to its own word, and does not wait. Gives its turns.
fn at_once(me: u64, turns: u64) -> u64 {
    let word = &PAGE.0[1 + me as usize];
    for _ in 0..turns {
        word.fetch_add(1, Ordering::Relaxed);
    }
    turns
}
