//! Figures of other kernels, and what is aimed at.
//!
//! All are instructions per operation, the caller's stub included, counted on QEMU 10.0.2 with a
//! counting plugin between markers, an empty window counting 0:
//!
//! | column | what was measured |
//! |---|---|
//! | seL4 | seL4 16.0.0-dev (commit 1326364bc913), release, fast path on, one core, gcc 12.2 -O2 -fwhole-program, threads without floating-point state; AArch64 non-MCS, x86-64 non-MCS without page-table isolation |
//! | Linux | Linux 6.1, Debian's cloud kernels, mitigations off; for orientation, since its operations do more |
//! | goal | what this kernel is to reach on both ISAs |
//!
//! No other kernel has an operation on the other ISA's page table.

use dyad_abi::Isa;
use dyad_abi::marker::BenchOp;

/// What an operation is to cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// At most so many instructions.
    AtMost(u64),
    /// At most 1.3 times as many as this operation.
    NearlyAs(BenchOp),
}

/// Figures about an operation; per ISA in index order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    sel4: Option<[u64; 2]>,
    linux: Option<[u64; 2]>,
    /// What is aimed at.
    pub goal: Option<Goal>,
}

impl Peers {
    const NONE: Peers = Peers {
        sel4: None,
        linux: None,
        goal: None,
    };

    const fn sel4(x86_64: u64, aarch64: u64) -> Peers {
        Peers {
            sel4: Some([x86_64, aarch64]),
            ..Peers::NONE
        }
    }

    const fn linux(self, x86_64: u64, aarch64: u64) -> Peers {
        Peers {
            linux: Some([x86_64, aarch64]),
            ..self
        }
    }

    const fn goal(self, goal: Goal) -> Peers {
        Peers {
            goal: Some(goal),
            ..self
        }
    }

    const fn at_most(self, instructions: u64) -> Peers {
        self.goal(Goal::AtMost(instructions))
    }

    /// seL4 on this ISA.
    pub fn sel4_on(&self, isa: Isa) -> Option<u64> {
        self.sel4.map(|figures| figures[isa.index()])
    }

    /// Linux on this ISA.
    pub fn linux_on(&self, isa: Isa) -> Option<u64> {
        self.linux.map(|figures| figures[isa.index()])
    }
}

/// What is known about an operation.
pub const fn peers(op: BenchOp) -> Peers {
    match op {
        BenchOp::Empty => Peers::NONE.at_most(0),
        BenchOp::NullSyscall => Peers::sel4(319, 272).linux(327, 401).at_most(90),
        // Four words in registers; without words 419 and 422. Linux: a byte through pipes.
        BenchOp::IpcRoundTrip => Peers::sel4(461, 469).linux(10197, 12434).at_most(210),
        // seL4: Yield with a switch. Linux: sched_yield with a switch.
        BenchOp::Dispatch => Peers::sel4(261, 275).linux(1722, 2469).at_most(140),
        BenchOp::AsyncSend => Peers::sel4(392, 343).at_most(130),
        BenchOp::AsyncSendSwitch => Peers::sel4(539, 501).at_most(220),
        BenchOp::AsyncPingPong => Peers::sel4(2084, 1906).at_most(800),
        BenchOp::CapCopy => Peers::sel4(870, 671).at_most(250),
        BenchOp::CapDeactivate => Peers::sel4(740, 629).at_most(200),
        BenchOp::Revoke0 => Peers::sel4(599, 521).at_most(250),
        BenchOp::Revoke1 => Peers::sel4(879, 747).at_most(250),
        BenchOp::Revoke64 => Peers::sel4(18556, 14989).at_most(250),
        BenchOp::Revoke10000 => Peers::NONE.at_most(250),
        BenchOp::RetypeKernelClean => Peers::sel4(877, 705).at_most(300),
        // As for a clean one, and eight bytes of a page of 4 KiB per instruction.
        BenchOp::RetypeKernelZeroing => Peers::sel4(3787, 2809).at_most(300 + 4096 / 8),
        BenchOp::Map => Peers::sel4(772, 555).linux(5124, 5886).at_most(300),
        BenchOp::Protect => Peers::sel4(773, 564).at_most(300),
        BenchOp::Unmap => Peers::sel4(605, 502).linux(9256, 9842).at_most(300),
        BenchOp::MapForeign => Peers::NONE.goal(Goal::NearlyAs(BenchOp::Map)),
        BenchOp::ProtectForeign => Peers::NONE.goal(Goal::NearlyAs(BenchOp::Protect)),
        BenchOp::UnmapForeign => Peers::NONE.goal(Goal::NearlyAs(BenchOp::Unmap)),
        BenchOp::PageFaultUser => Peers::sel4(2033, 1608).at_most(900),
        // Both machines together. Flick: 18.3 us on real ones.
        BenchOp::CrossingCallRoundTrip => Peers::NONE.at_most(1500),
        BenchOp::PageFaultForeignTable => Peers::NONE.at_most(400),
        BenchOp::Now
        | BenchOp::IpcRoundTripFp
        | BenchOp::PageFaultUserFp
        | BenchOp::FpFirstUse
        | BenchOp::IpcCrossIsaRoundTrip
        | BenchOp::CapActivate
        | BenchOp::RetypeUntyped
        | BenchOp::FlushStep
        | BenchOp::TlbFlush => Peers::NONE,
    }
}
