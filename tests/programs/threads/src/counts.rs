//! Wake-ups by count: as many threads as there can be wait for one word on all nodes, and just as many are
//! woken as is said.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use dyad::futex;
use dyad::prelude::task::*;
use dyad::{report, sys, thread};
use dyad_abi::clock::KernelCounter;

use crate::nodes;

/// All threads of a program but the one that wakes.
const WAITERS: usize = thread::MAX - 1;
/// The longest wait: a thread that is woken waits less.
const PATIENCE: Duration = Duration::from_secs(20);

struct Crowd {
    word: AtomicU32,
    /// How many have come, and how many have been woken.
    come: AtomicU32,
    out: AtomicU32,
}

/// What wake-ups of this node have cost its kernel.
#[derive(Default)]
struct Cost {
    woken: u64,
    doorbells: u64,
    messages: u64,
}

type Waiter = thread::JoinHandle<Result<(), sys::Error>>;

/// Waits, but not for ever, until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        if Instant::now() > end {
            return Err(Error::msg(format_args!("it does not come to that: {what}")));
        }
        thread::yield_now();
    }
    Ok(())
}

impl Crowd {
    fn new(nodes: &[NodeId]) -> Result<(Arc<Crowd>, Vec<Waiter>)> {
        let crowd = Arc::new(Crowd {
            word: AtomicU32::new(0),
            come: AtomicU32::new(0),
            out: AtomicU32::new(0),
        });
        let waiters = (0..WAITERS)
            .map(|n| {
                let (crowd, node) = (crowd.clone(), nodes[n % nodes.len()]);
                thread::spawn_on(node, move || crowd.wait())
            })
            .collect::<Result<_>>()?;
        until("all wait", || {
            crowd.come.load(Ordering::Acquire) == WAITERS as u32
        })?;
        Ok((crowd, waiters))
    }

    fn wait(&self) -> Result<(), sys::Error> {
        self.come.fetch_add(1, Ordering::AcqRel);
        let end = Instant::now() + PATIENCE;
        futex::wait(&self.word, 0, end.as_nanos())?;
        self.out.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Wakes exactly `count` threads, which wait or are about to. `false`: more were woken.
    fn wake(&self, count: u32, cost: &mut Cost) -> Result<bool> {
        let read = |c| sys::kernel_count(c);
        let mut woken = 0;
        let mut right = true;
        until("so many are woken", || {
            let before = [KernelCounter::Doorbells, KernelCounter::Messages].map(read);
            let more = futex::wake(&self.word, count - woken);
            let after = [KernelCounter::Doorbells, KernelCounter::Messages].map(read);
            if let ([Ok(rung), Ok(sent)], [Ok(rung_then), Ok(sent_then)]) = (before, after) {
                cost.doorbells += rung_then - rung;
                cost.messages += sent_then - sent;
            }
            right &= more <= count - woken;
            woken += more;
            cost.woken += u64::from(more);
            woken >= count
        })?;
        Ok(right && woken == count)
    }

    /// Whether so many are out, and a moment later no more are.
    fn are_out(&self, count: u32) -> Result<bool> {
        until("so many are out", || {
            self.out.load(Ordering::Acquire) >= count
        })?;
        thread::sleep(Duration::from_millis(2));
        Ok(self.out.load(Ordering::Acquire) == count)
    }
}

fn join(waiters: Vec<Waiter>) -> Result<()> {
    for waiter in waiters {
        waiter.join()??;
    }
    Ok(())
}

/// By counts, and then all at once, `rounds` times.
pub fn counts(rounds: u64) -> Result<()> {
    let nodes = nodes()?;
    let (mut right, mut all) = (true, 0);
    let mut cost = Cost::default();
    for _ in 0..rounds {
        let (crowd, waiters) = Crowd::new(&nodes)?;
        let mut sum = 0;
        for count in [1, 3, 17, WAITERS as u32 - 21] {
            right &= crowd.wake(count, &mut cost)?;
            sum += count;
            right &= crowd.are_out(sum)?;
        }
        right &= futex::wake_all(&crowd.word) == 0;
        join(waiters)?;
        let (crowd, waiters) = Crowd::new(&nodes)?;
        let mut woken = 0;
        until("all are out", || {
            woken += futex::wake_all(&crowd.word);
            crowd.out.load(Ordering::Acquire) == WAITERS as u32
        })?;
        all += u64::from(woken);
        right &= woken == WAITERS as u32;
        join(waiters)?;
    }
    report::check(
        "threads.counts",
        right,
        format_args!("{} by counts, {all} at once", cost.woken),
    );
    // At most one for each that is woken, and no message for any of them.
    report::check(
        "threads.counts-cost",
        cost.doorbells <= cost.woken && cost.messages == 0,
        format_args!("{} doorbells, {} messages", cost.doorbells, cost.messages),
    );
    Ok(())
}
