//! A node's round, in bounded steps. The crate's header has states and order.

use core::sync::atomic::Ordering;

use dyad_abi::ident::MAX_CPUS;
use dyad_abi::{CpuId, NodeId};
use dyad_coherence::GlobalMem;
use dyad_shm::PhysAddr;
use dyad_shm::frame::Epoch;

use crate::error::Error;
use crate::log::{self, LOGS, Read};
use crate::words::Quiescence;

/// The operations of a node's hardware for quiescence. Where caches are coherent the cache operations are
/// empty.
pub trait NodeHardware {
    /// Writes back and drops the node's copies of the lines of a range of shared memory, and
    /// returns when that is done.
    fn writeback_invalidate(&self, at: PhysAddr, len: u64);

    /// Writes back and drops piece number `piece` of all caches, in bounded time. Returns `true` for the last
    /// piece.
    fn flush_everything(&self, piece: u64) -> bool;

    /// Drops this CPU's TLB and walk caches.
    fn flush_tlb(&self);

    /// Checks by version that this CPU's current thread and root are unchanged; otherwise leaves them for the
    /// idle root.
    fn revalidate(&self);

    /// Leaves current thread and root for the idle root.
    fn detach(&self);

    /// Makes another CPU of this node enter the kernel.
    fn call(&self, cpu: CpuId);

    /// How many steps it costs to drop `len` bytes, at least 1.
    fn steps(&self, len: u64) -> u32 {
        let _ = len;
        1
    }

    /// How many steps it costs to drop one piece of all caches, at least 1.
    fn steps_of_everything(&self) -> u32 {
        1
    }
}

/// The progress of [`Round::flush_step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All steps are used up; there is more to do.
    Working,
    /// This CPU has not acknowledged yet; nothing else is left to do.
    Waiting(CpuId),
    /// The round is over.
    Published(Epoch),
}

/// The logged memory that a pass drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// Changed lines and tables, before CPUs read them and flush TLBs.
    Changed,
    /// Untyped and unmapped frames, after the acknowledgements: until then a CPU could fetch their lines
    /// again.
    GivenUp,
}

/// The progress of dropping lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropping {
    /// Reads the logs of this set: the first one up to an end that was fixed when it came to it.
    Logs { left: u64, end: Option<u64> },
    /// Drops everything.
    Full { piece: u64 },
    /// Done.
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Quiet,
    Lines {
        epoch: Epoch,
        drop: Dropping,
    },
    Calling {
        epoch: Epoch,
    },
    Waiting {
        epoch: Epoch,
    },
    Frames {
        epoch: Epoch,
        drop: Dropping,
    },
    /// The last CPU awake goes to sleep; no round is under way.
    Leaving {
        drop: Dropping,
    },
}

/// The rounds of one node, driven by one CPU at a time (the node keeps it behind a private
/// try-lock). Private memory: it is lost with the node.
#[derive(Debug)]
pub struct Round {
    pub(crate) node: NodeId,
    pub(crate) state: State,
    /// The logs that this round reads.
    logs: u64,
    /// The CPUs that have been asked to acknowledge, and have not been seen to be past that.
    asked: u8,
    /// The cursors of the pass over changed memory.
    cursors: [u64; LOGS],
    /// The cursors of the pass over untyped and unmapped memory, which follows the other pass.
    followers: [u64; LOGS],
    /// Whether logs were skipped, and no round has ended since then: both passes then drop everything.
    owed: bool,
}

impl Round {
    /// A round for a node whose caches are empty: log entries so far do not concern it.
    pub fn new<M: GlobalMem>(q: &Quiescence<'_, M>, node: NodeId) -> Round {
        let mut cursors = [0; LOGS];
        // A log that is not in the set was empty when the set was read: its cursor is 0.
        for index in log::indices(log::all(q)) {
            cursors[index] = log::head(q, index);
        }
        Round {
            node,
            state: State::Quiet,
            logs: 0,
            asked: 0,
            cursors,
            followers: cursors,
            owed: false,
        }
    }

    /// Drives the node's round by at most `steps` steps; the last one may cost more than one
    /// ([`NodeHardware::steps`]). Begins a round if none is under way. Each step takes constant time. A CPU
    /// that was about to sleep with [`idle_step`](Round::idle_step) has to start over.
    pub fn flush_step<M: GlobalMem>(
        &mut self,
        q: &Quiescence<'_, M>,
        hardware: &impl NodeHardware,
        steps: u32,
    ) -> Result<Progress, Error> {
        let mut left = steps;
        while left != 0 {
            let mut cost = 1;
            match self.state {
                State::Quiet | State::Leaving { .. } => {
                    let epoch = self.begin(q)?;
                    let drop = self.first_drop();
                    self.state = State::Lines { epoch, drop };
                }
                State::Lines {
                    epoch,
                    drop: Dropping::Done,
                } => self.state = State::Calling { epoch },
                State::Lines { epoch, drop } => {
                    let drop = self.drop_step(q, hardware, (drop, Pass::Changed), &mut cost);
                    self.state = State::Lines { epoch, drop };
                }
                State::Calling { epoch } => {
                    self.request(q, hardware, epoch);
                    self.state = State::Waiting { epoch };
                }
                State::Waiting { epoch } => match cpus(self.asked).next() {
                    None => {
                        let drop = self.first_drop();
                        self.state = State::Frames { epoch, drop };
                    }
                    Some(c) if q.has_acknowledged(self.node, c, epoch) => {
                        self.asked &= !(1 << c.index());
                    }
                    Some(c) => return Ok(Progress::Waiting(c)),
                },
                State::Frames {
                    epoch,
                    drop: Dropping::Done,
                } => {
                    if self.owed {
                        self.followers = self.cursors;
                        self.owed = false;
                    }
                    self.publish(q, epoch);
                    self.state = State::Quiet;
                    return Ok(Progress::Published(epoch));
                }
                State::Frames { epoch, drop } => {
                    let drop = self.drop_step(q, hardware, (drop, Pass::GivenUp), &mut cost);
                    self.state = State::Frames { epoch, drop };
                }
            }
            left = left.saturating_sub(cost);
        }
        Ok(Progress::Working)
    }

    const fn first_drop(&self) -> Dropping {
        if self.owed {
            return Dropping::Full { piece: 0 };
        }
        Dropping::Logs {
            left: self.logs,
            end: None,
        }
    }

    /// Takes a new epoch, and then looks which logs there are.
    fn begin<M: GlobalMem>(&mut self, q: &Quiescence<'_, M>) -> Result<Epoch, Error> {
        let early = if lacks!("round::begin::logs") {
            Some(log::all(q))
        } else {
            None
        };
        let epoch = q.advance()?;
        self.logs = early.unwrap_or_else(|| log::all(q));
        if asks_early() {
            self.asked = q.publication(self.node).awake();
        }
        Ok(epoch)
    }

    /// Drops what one entry of a log names, or one piece of everything. `cost` becomes what that has cost
    /// in steps.
    fn drop_step<M: GlobalMem>(
        &mut self,
        q: &Quiescence<'_, M>,
        hardware: &impl NodeHardware,
        (drop, pass): (Dropping, Pass),
        cost: &mut u32,
    ) -> Dropping {
        match drop {
            Dropping::Logs { left: 0, .. } | Dropping::Done => Dropping::Done,
            Dropping::Logs { left, end: None } => {
                let index = left.trailing_zeros() as usize;
                let end = match pass {
                    Pass::Changed => log::head(q, index),
                    Pass::GivenUp => self.cursors[index],
                };
                Dropping::Logs {
                    left,
                    end: Some(end),
                }
            }
            Dropping::Logs {
                left,
                end: Some(end),
            } => {
                let index = left.trailing_zeros() as usize;
                let cursor = match pass {
                    Pass::Changed => &mut self.cursors[index],
                    Pass::GivenUp => &mut self.followers[index],
                };
                match log::read(q, index, *cursor, end) {
                    Read::End => Dropping::Logs {
                        left: left & !(1 << index),
                        end: None,
                    },
                    Read::Entry(touched) => {
                        *cursor = cursor.wrapping_add(1);
                        if touched.is_given_up() == (pass == Pass::GivenUp) {
                            let (at, len) = touched.range();
                            hardware.writeback_invalidate(at, len);
                            *cost = hardware.steps(len);
                        }
                        drop
                    }
                    Read::Lapped => {
                        self.give_up_logs(q, pass);
                        Dropping::Full { piece: 0 }
                    }
                }
            }
            Dropping::Full { piece } => {
                *cost = hardware.steps_of_everything();
                Round::drop_everything(hardware, piece)
            }
        }
    }

    /// Everything is about to be dropped: what logs name until now need not be read. What they
    /// name from here on is read next time.
    fn give_up_logs<M: GlobalMem>(&mut self, q: &Quiescence<'_, M>, pass: Pass) {
        self.owed = true;
        if pass == Pass::Changed {
            for index in log::indices(self.logs) {
                self.cursors[index] = log::head(q, index);
            }
        }
        let at = q.full_flushes(self.node);
        let n = q.mem.load(at, Ordering::Relaxed);
        q.mem.store_through(at, n + 1, Ordering::Relaxed);
    }

    fn drop_everything(hardware: &impl NodeHardware, piece: u64) -> Dropping {
        if hardware.flush_everything(piece) {
            Dropping::Done
        } else {
            Dropping::Full { piece: piece + 1 }
        }
    }

    /// Begins to drop everything in order to sleep. Dropping only logged lines would not suffice: other nodes
    /// may unpublish anything else while this one sleeps, and count it as quiet. The next round reads the
    /// logs all the same: if a CPU wakes up meanwhile, its TLB may fetch lines again.
    pub(crate) fn leave(&mut self) {
        let drop = Dropping::Full { piece: 0 };
        self.state = State::Leaving { drop };
    }

    /// One piece of that.
    pub(crate) fn leave_step(&mut self, hardware: &impl NodeHardware, drop: Dropping) {
        if let Dropping::Full { piece } = drop {
            let drop = Round::drop_everything(hardware, piece);
            self.state = State::Leaving { drop };
        }
    }

    /// Asks the CPUs that are awake to acknowledge: not before all lines are dropped, or a TLB that has
    /// been flushed refills from one. A CPU that is not awake now has dropped all it had, and begins anew
    /// without those lines: the round need not wait for it.
    fn request<M: GlobalMem>(
        &mut self,
        q: &Quiescence<'_, M>,
        hardware: &impl NodeHardware,
        epoch: Epoch,
    ) {
        q.mem
            .store_through(q.request(self.node), epoch.get(), Ordering::Release);
        if !asks_early() {
            self.asked = q.publication(self.node).awake();
        }
        for cpu in cpus(self.asked) {
            hardware.call(cpu);
        }
    }

    /// Publishes an epoch, by an addition: CPUs change the bits beside the epoch at the same time, and only
    /// this CPU changes the epoch.
    fn publish<M: GlobalMem>(&self, q: &Quiescence<'_, M>, epoch: Epoch) {
        let step = q.publication(self.node).step(epoch);
        q.mem.add(q.published(self.node), step);
    }
}

/// The CPUs of a bit set.
fn cpus(set: u8) -> impl Iterator<Item = CpuId> {
    CpuId::first(MAX_CPUS).filter(move |c| set >> c.index() & 1 != 0)
}

/// Whether a round looks which CPUs are awake before it drops lines: a mutant.
fn asks_early() -> bool {
    lacks!("round::request::awake")
}

impl<M: GlobalMem> Quiescence<'_, M> {
    /// Called by each CPU when it enters or leaves the kernel and holds no reference to anything
    /// shared: acknowledges the request of its node's round, if there is one. `true` if it did.
    pub fn acknowledge(&self, node: NodeId, cpu: CpuId, hardware: &impl NodeHardware) -> bool {
        let mine = self.acknowledged(node, cpu);
        let request = self.mem.load_fresh(self.request(node), Ordering::Acquire);
        if request <= self.mem.load(mine, Ordering::Relaxed) {
            return false;
        }
        hardware.revalidate();
        hardware.flush_tlb();
        // Everything this CPU has used before is behind it.
        self.mem.fence();
        self.mem.store_through(mine, request, Ordering::Release);
        true
    }

    /// Whether a CPU of a node has passed a request. It has acknowledged it, or it sleeps; a sleeping CPU
    /// holds no reference and cannot wake up to older contents.
    fn has_acknowledged(&self, node: NodeId, cpu: CpuId, epoch: Epoch) -> bool {
        if self.publication(node).awake() >> cpu.index() & 1 == 0 {
            return true;
        }
        let at = self.acknowledged(node, cpu);
        self.mem.load_fresh(at, Ordering::Acquire) >= epoch.get()
    }
}
