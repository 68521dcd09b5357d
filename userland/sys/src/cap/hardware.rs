//! The hardware of a node.

use dyad_abi::cap::HardwareOp;
use dyad_abi::clock::{KernelCounter, SimCounter};
use dyad_abi::user::{ReportArgs, ReportKind, Where};
use dyad_abi::{CpuId, Error, NodeId, Result};

use super::{Cap, Hardware, Send, Stamp, Thread};

/// State of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeState {
    /// Number of the node's state in the superblock.
    pub state: u32,
    /// Number of times that the node has joined.
    pub incarnation: u32,
}

impl NodeState {
    /// Number of the state in which a node takes part.
    pub const LIVE: u32 = 2;
    /// Number of the state of a node that takes part but has sent no heartbeat for a while.
    pub const SUSPECT: u32 = 3;
    /// Number of the state of a node whose machine has ended; nothing is recovered yet.
    pub const DEAD: u32 = 4;
    /// Number of the state of a node that another node recovers.
    pub const RECOVERING: u32 = 5;

    /// Whether the node takes part.
    pub const fn is_live(self) -> bool {
        matches!(self.state, Self::LIVE | Self::SUSPECT)
    }

    /// Whether the node has died, and its recovery has not ended.
    pub const fn is_in_recovery(self) -> bool {
        matches!(self.state, Self::DEAD | Self::RECOVERING)
    }
}

impl Cap<Hardware> {
    /// Advances this node's quiescence round by at most `steps` steps. Returns the epoch that the round has
    /// published, or `None` if the round is not complete. Needs the right `FlushStep`.
    ///
    /// # Errors
    ///
    /// `NotReady` from another node, and those of
    /// [every operation](super#errors-of-every-operation).
    pub fn flush_step(self, steps: u64) -> Result<Option<Stamp>> {
        let epoch = self.call(HardwareOp::FlushStep as u32, [steps, 0, 0, 0, 0])?;
        Ok((epoch != 0).then_some(Stamp(epoch)))
    }

    /// Drops all translations of this CPU. Needs the right `FlushTlb`.
    ///
    /// # Errors
    ///
    /// As [`flush_step`](Cap::flush_step).
    pub fn flush_tlb(self) -> Result<()> {
        self.call(HardwareOp::FlushTlb as u32, [0; 5]).map(drop)
    }

    /// Makes each interrupt number `interrupt` of this node a message to `to`; with `None`, not any
    /// more. Needs the right `AttachIrq`.
    ///
    /// # Errors
    ///
    /// As [`flush_step`](Cap::flush_step), and those of
    /// [every operation](super#errors-of-every-operation).
    pub fn attach_irq(self, interrupt: u64, to: Option<Cap<Send>>) -> Result<()> {
        let args = [interrupt, to.map_or(0, Cap::number), 0, 0, 0];
        self.call(HardwareOp::AttachIrq as u32, args).map(drop)
    }

    /// Whether the invocation `token` of the calling program may still go on. `false` is for good: a thread that is
    /// stopped in it is ended there. Needs the right `Inside`.
    ///
    /// # Errors
    ///
    /// `BadArgument` if no invocation can have that token, and those of
    /// [every operation](super#errors-of-every-operation).
    pub fn is_inside(self, token: u64) -> Result<bool> {
        let inside = self.call(HardwareOp::Inside as u32, [token, 0, 0, 0, 0])?;
        Ok(inside != 0)
    }

    /// Nanoseconds of fused time since the first node started. Needs the right `Now`.
    ///
    /// # Errors
    ///
    /// Those of [every operation](super#errors-of-every-operation).
    pub fn now(self) -> Result<u64> {
        self.call(HardwareOp::Now as u32, [0; 5])
    }

    /// The simulator's count of events on the CPU that the caller runs on, since the start of the machine.
    /// Needs the right `Count`.
    ///
    /// # Errors
    ///
    /// `NotReady` if the simulator is off or its level does not count these events, and those of [every
    /// operation](super#errors-of-every-operation).
    pub fn count(self, counter: SimCounter) -> Result<u64> {
        self.call(HardwareOp::Count as u32, [counter as u64, 0, 0, 0, 0])
    }

    /// A count that the kernels keep. Needs the right `Count`.
    ///
    /// # Errors
    ///
    /// Those of [every operation](super#errors-of-every-operation).
    pub fn kernel_count(self, counter: KernelCounter) -> Result<u64> {
        self.call(HardwareOp::Count as u32, [counter as u64, 0, 0, 0, 0])
    }

    /// Writes text to the console device of this node; lines are kept whole. Gives the bytes taken. A call
    /// of the kernel takes at most [`MAX_WRITE`](dyad_abi::user::MAX_WRITE) bytes and one line; this makes as
    /// many calls as it takes. Needs the right `Write`.
    ///
    /// # Errors
    ///
    /// As [`flush_step`](Cap::flush_step).
    pub fn write(self, text: &str) -> Result<usize> {
        let mut rest = text.as_bytes();
        loop {
            let args = [rest.as_ptr() as u64, rest.len() as u64, 0, 0, 0];
            let taken = match self.call(HardwareOp::Write as u32, args) {
                Ok(taken) => (taken as usize).min(rest.len()),
                // Some of it has been written.
                Err(_) if rest.len() < text.len() => 0,
                Err(e) => return Err(e),
            };
            rest = &rest[taken..];
            if taken == 0 || rest.is_empty() {
                return Ok(text.len() - rest.len());
            }
        }
    }

    /// Records a check or a counter of the run. Needs the right `Report`.
    ///
    /// # Errors
    ///
    /// `TooLarge` for a name or a detail beyond its limit; `Full` if no more are kept; `NotReady` from
    /// another node; and those of
    /// [every operation](super#errors-of-every-operation).
    pub fn report(self, kind: ReportKind, value: u64, name: &str, detail: &str) -> Result<()> {
        self.report_of(0, kind, value, name, detail)
    }

    /// Records a check or a counter which a program has reported; 0: the caller itself.
    ///
    /// # Errors
    ///
    /// As [`report`](Cap::report), and `BadArgument` if there is no such program.
    pub fn report_of(
        self,
        program: u64,
        kind: ReportKind,
        value: u64,
        name: &str,
        detail: &str,
    ) -> Result<()> {
        let args = ReportArgs {
            kind: kind.word(program),
            value,
            name: name.as_ptr() as u64,
            name_len: name.len() as u64,
            detail: detail.as_ptr() as u64,
            detail_len: detail.len() as u64,
        };
        self.call(
            HardwareOp::Report as u32,
            [&raw const args as u64, 0, 0, 0, 0],
        )
        .map(drop)
    }

    /// Ends the run on all nodes. Needs the right `Shutdown`.
    ///
    /// # Errors
    ///
    /// Those of [every operation](super#errors-of-every-operation).
    pub fn shutdown(self, code: u32) -> Result<()> {
        self.call(HardwareOp::Shutdown as u32, [code.into(), 0, 0, 0, 0])
            .map(drop)
    }

    /// Makes `thread` the root thread of `cpu`, which runs when no other thread does. Needs the right
    /// `StartCpu`.
    ///
    /// # Errors
    ///
    /// `Exists` if the CPU has a root thread, `NotReady` if the thread cannot run, and those of [every
    /// operation](super#errors-of-every-operation).
    pub fn start_cpu(self, cpu: CpuId, thread: Cap<Thread>) -> Result<()> {
        let args = [cpu.index() as u64, thread.number(), 0, 0, 0];
        self.call(HardwareOp::StartCpu as u32, args).map(drop)
    }

    /// Whether what was taken away at `stamp` can be used again. Needs the right `Quiesced`.
    ///
    /// # Errors
    ///
    /// Those of [every operation](super#errors-of-every-operation).
    pub fn quiesced(self, stamp: Stamp) -> Result<bool> {
        Ok(self.call(HardwareOp::Quiesced as u32, [stamp.0, 0, 0, 0, 0])? != 0)
    }

    /// Node, CPU and ISA the caller runs on. Needs the right `Where`.
    ///
    /// # Errors
    ///
    /// Those of [every operation](super#errors-of-every-operation).
    pub fn where_am_i(self) -> Result<Where> {
        Where::unpack(self.call(HardwareOp::Where as u32, [0; 5])?).ok_or(Error::Corrupt)
    }

    /// State of any node. Needs the right `NodeState`.
    ///
    /// # Errors
    ///
    /// `NoSuchNode`, and those of [every operation](super#errors-of-every-operation).
    pub fn node_state(self, node: NodeId) -> Result<NodeState> {
        let v = self.call(
            HardwareOp::NodeState as u32,
            [node.index() as u64, 0, 0, 0, 0],
        )?;
        Ok(NodeState {
            state: v as u32,
            incarnation: (v >> 32) as u32,
        })
    }
}
