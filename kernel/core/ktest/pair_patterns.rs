//! The [patterns](dyad_abi::patterns) of access, for the validation of the simulator: made in windows,
//! on nodes that take turns. Interrupts are masked in tests, so nothing else is in the windows.
//!
//! The host asks for these tests by name; they are not part of any suite. What they check by themselves
//! is that loads find what was stored last, across all flushes.

use core::fmt::Write;
use core::sync::atomic::Ordering;

use dyad_abi::patterns::{
    Act, FLUSHES, LINES, MAX_FLUSHES, Pattern, ROUNDS, SHARING, Side, Step, counted, flushes_from,
};
use dyad_coherence::GlobalMem;
use dyad_coherence::incoherent::{Incoherent, Instruction};
use dyad_shm::PhysAddr;
use dyad_shm::superblock::ScratchLine;

use super::{Outcome, Stop, TestCtx, Text, ensure, fail, ktest};

/// Scratch line of what the nodes tell each other, behind the patterns' lines and both nodes' own.
const TOLD: usize = 3 * LINES;
const BYTES: u64 = (LINES * size_of::<ScratchLine>()) as u64;

/// A node in a pattern.
struct Player<'a> {
    cx: &'a TestCtx<'a>,
    side: Side,
    caches: Incoherent<'a>,
    /// The lines that both use, and where they are.
    shared: &'static [ScratchLine],
    shared_at: PhysAddr,
    /// The lines that only this node uses.
    own: &'static [ScratchLine],
    own_at: PhysAddr,
    /// What the first words of the shared lines are.
    value: u64,
}

impl<'a> Player<'a> {
    /// This node with node number `first` as the first one.
    fn new(cx: &'a TestCtx<'a>, first: usize) -> Result<Player<'a>, Stop> {
        ensure!(cx.node.params.coherent, "for coherent caches");
        ensure!(cx.node.params.node_count == 2, "for two nodes");
        let me = cx.node.id().index();
        let scratch = &cx.node.sb.scratch;
        let (shared, own) = (&scratch[..LINES], &scratch[(1 + me) * LINES..][..LINES]);
        let at = |lines: &[ScratchLine]| match cx.node.map.physical(lines.as_ptr() as u64) {
            Some(at) => Ok(at),
            None => fail(format_args!("scratch lines are in no pool")),
        };
        let caches = Incoherent::new(cx.node.map)
            .map_err(|e| Stop::Failed(Text::new(format_args!("{e}"))))?;
        let side = match me == first {
            true => Side::First,
            false => Side::Second,
        };
        Ok(Player {
            cx,
            side,
            caches,
            shared,
            shared_at: at(shared)?,
            own,
            own_at: at(own)?,
            value: shared[0].words[0].load(Ordering::Relaxed),
        })
    }

    /// Does it to all lines; the number of those whose first word was loaded and is right. What else it
    /// does with memory, it does with this machine's own.
    fn act(&self, act: Act, flush: Instruction) -> usize {
        let (lines, word) = match act {
            Act::StoreOwn => (self.own, 0),
            Act::StoreLast => (self.shared, 7),
            _ => (self.shared, 0),
        };
        let words = lines.iter().map(|line| &line.words[word]);
        match act {
            Act::Load => {
                return words
                    .filter(|w| w.load(Ordering::Relaxed) == self.value)
                    .count();
            }
            Act::Store | Act::StoreLast | Act::StoreOwn => {
                words.for_each(|w| w.store(self.value, Ordering::Relaxed));
            }
            Act::Add => words.for_each(|w| {
                w.fetch_add(1, Ordering::Relaxed);
            }),
            Act::Flush => self.caches.execute(flush, self.shared_at, BYTES),
        }
        0
    }

    /// Makes a step, if it is this node's, and keeps in mind what it stores.
    fn step(&mut self, step: Step, flush: Instruction, window: Option<usize>) -> Result<(), Stop> {
        // Another value than the one that the lines have.
        self.value += u64::from(step.act == Act::Store);
        if step.side == self.side {
            let mut right = 0;
            let mut act = || right = self.act(step.act, flush);
            match window {
                Some(number) => self.cx.machine.counted(number, &mut act),
                None => act(),
            }
            ensure!(
                step.act != Act::Load || right == LINES,
                "{right} of {LINES} lines are as they were stored last"
            );
        }
        self.value += u64::from(step.act == Act::Add);
        self.cx.meet()
    }

    /// Makes all patterns of a list; `flush` is for those with flushes, `window` the number of their
    /// first window.
    fn play(
        &mut self,
        list: &[Pattern],
        flush: Instruction,
        mut window: usize,
    ) -> Result<(), Stop> {
        for pattern in list {
            for round in 0..=ROUNDS {
                // No cache has any of the lines.
                self.caches.invalidate(self.shared_at, BYTES);
                self.caches.invalidate(self.own_at, BYTES);
                self.cx.meet()?;
                let mut number = window;
                for &step in pattern.steps {
                    self.step(step, flush, step.counted.then_some(number))?;
                    if step.counted && round == 0 && step.side == self.side {
                        self.cx.machine.forget(number);
                    }
                    number += usize::from(step.counted);
                }
            }
            window += counted(core::slice::from_ref(pattern));
        }
        Ok(())
    }
}

#[ktest(pair)]
fn marked_sharing(cx: &TestCtx<'_>) -> Outcome {
    for first in 0..2 {
        cx.meet()?;
        let mut player = Player::new(cx, first)?;
        let Some(flush) = player.caches.instructions().next() else {
            return fail(format_args!("this CPU cannot flush lines"));
        };
        cx.meet()?;
        player.play(SHARING, flush, 0)?;
    }
    Ok(None)
}

/// All patterns with each instruction of the first node; the second one uses an instruction of its own
/// that does the same. The remark names this node's.
#[ktest(pair)]
fn marked_flushes(cx: &TestCtx<'_>) -> Outcome {
    // How many there are, and which of them keep lines.
    let [count, keep, ..] = &cx.node.sb.scratch[TOLD].words;
    let mut names = Text::new(format_args!(""));
    for first in 0..2 {
        cx.meet()?;
        let mut player = Player::new(cx, first)?;
        let caches = player.caches;
        if player.side == Side::First {
            let kept = caches.instructions().enumerate();
            let bits = kept.fold(0, |bits, (n, i)| bits | u64::from(i.keeps()) << n);
            keep.store(bits, Ordering::Relaxed);
            count.store(caches.instructions().count() as u64, Ordering::Relaxed);
        }
        cx.meet()?;
        let count = count.load(Ordering::Relaxed) as usize;
        ensure!(count <= MAX_FLUSHES, "{count} instructions");
        for n in 0..count {
            let keeps = keep.load(Ordering::Relaxed) >> n & 1 != 0;
            let flush = match player.side {
                Side::First => caches.instructions().nth(n),
                Side::Second => caches.instructions().find(|i| i.keeps() == keeps),
            };
            let Some(flush) = flush else {
                return fail(format_args!("the nodes cannot do the same to a line"));
            };
            if player.side == Side::First {
                // What does not fit is missed by the host.
                let _ = write!(names, "{}{flush}", if n == 0 { "" } else { ", " });
            }
            player.play(FLUSHES, flush, flushes_from(n))?;
        }
    }
    Ok(Some(names))
}
