//! Page-table race: threads on all nodes touch the same new pages and give them back, round after round, so
//! that their kernels install and remove the same entries and tables at once.

#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad::prelude::task::*;
use dyad::{report, sys, thread};

use crate::nodes;

/// Bytes of a round: two leaf tables' worth and a bit, so that there are neighbours of both kinds.
const LEN: u64 = (4 << 20) + (1 << 14);
/// Pages of it that are touched: in both leaf tables, beside each other and far away.
const TOUCHED: [u64; 8] = [0, 1, 2, 3, 511, 512, 513, 1024];

/// What the threads share.
struct Shared {
    /// How many have come to a meeting, ever.
    come: AtomicU64,
    start: AtomicU64,
    wrong: AtomicU64,
    threads: u64,
}

impl Shared {
    /// Waits for all threads, without the kernel: they are to go on at the same time.
    fn meet(&self, meetings: &mut u64) -> Result<()> {
        *meetings += 1;
        self.come.fetch_add(1, Ordering::AcqRel);
        let end = Instant::now() + Duration::from_secs(20);
        while self.come.load(Ordering::Acquire) < *meetings * self.threads {
            if Instant::now() > end {
                return Err(Error::msg("the others do not come"));
            }
            sys::raw::relax();
        }
        Ok(())
    }

    /// A word of a page; each thread has one of its own.
    fn word(&self, page: u64, thread: u64) -> &AtomicU64 {
        let start = self.start.load(Ordering::Acquire);
        let at = core::ptr::with_exposed_provenance::<AtomicU64>(
            (start + page * 4096 + thread * 8) as usize,
        );
        // SAFETY: 1. It lies in what the first thread has mapped, and unmaps only when all have met again.
        // 2. New pages are zeros. 3. It is aligned.
        unsafe { &*at }
    }

    fn play(&self, me: u64, rounds: u64) -> Result<()> {
        let mut meetings = 0;
        for round in 1..=rounds {
            if me == 0 {
                let start = sys::map_anon(LEN)?;
                self.start
                    .store(start.as_ptr().expose_provenance() as u64, Ordering::Release);
            }
            self.meet(&mut meetings)?;
            // All begin at the same page, or each at another one.
            let first = if round.is_multiple_of(3) {
                0
            } else {
                me as usize
            };
            for n in 0..TOUCHED.len() {
                let page = TOUCHED[(n + first) % TOUCHED.len()];
                self.word(page, me).store(round, Ordering::Release);
            }
            self.meet(&mut meetings)?;
            for page in TOUCHED {
                for thread in 0..self.threads {
                    let there = self.word(page, thread).load(Ordering::Acquire);
                    self.wrong
                        .fetch_add(u64::from(there != round), Ordering::Relaxed);
                }
            }
            self.meet(&mut meetings)?;
            if me == 0 {
                let start = self.start.load(Ordering::Acquire) as usize;
                let start = NonNull::new(core::ptr::with_exposed_provenance_mut(start))
                    .ok_or(sys::Error::Corrupt)?;
                // SAFETY: 1. Nobody looks at it before the next meeting.
                unsafe { sys::unmap(start, LEN)? };
            }
        }
        Ok(())
    }
}

/// So many rounds.
pub fn race(rounds: u64) -> Result<()> {
    let nodes = nodes()?;
    let shared = Shared {
        come: AtomicU64::new(0),
        start: AtomicU64::new(0),
        wrong: AtomicU64::new(0),
        threads: nodes.len() as u64,
    };
    thread::scope(|s| -> Result<()> {
        let mut players = Vec::new();
        for (n, &node) in nodes.iter().enumerate() {
            let shared = &shared;
            players.push(s.spawn_on(node, move || shared.play(n as u64, rounds))?);
        }
        for player in players {
            player.join()??;
        }
        Ok(())
    })?;
    let wrong = shared.wrong.into_inner();
    report::counter("threads.races", rounds);
    report::check(
        "threads.page_table_race",
        wrong == 0,
        format_args!("{wrong} words wrong in {rounds} rounds"),
    );
    Ok(())
}
