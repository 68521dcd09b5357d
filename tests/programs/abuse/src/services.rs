//! The services of the system as targets of a program that has been granted nothing: each operation, with owners that are
//! not the caller, and with arguments that nothing has. After each attack everything that the program needs of the
//! system still works.

#![allow(unsafe_code)]

use core::ptr::with_exposed_provenance_mut;

use dyad::prelude::task::*;
use dyad::sys::cap::CapIndex;
use dyad::sys::raw;
use dyad::{report, sys, system, thread};
use dyad_abi::cap::{HardwareOp, ReceiveOp, SinvOp, call_word};
use dyad_abi::record::name;
use dyad_abi::service::{
    CONSOLE_BUFFER, CONSOLE_THREADS, INFO_BASE, INVOKE_STACKS, ReportText, console, memory, pager,
    process, slot, thread_id,
};
use dyad_abi::user::{
    DATA_STACKS_BASE, MAX_PROGRAM_THREADS, MAX_REPORT_DETAIL, MAX_REPORT_NAME, PAGE_SIZE,
    TEXT_BASE, USER_END, tcb_address,
};

use crate::peers;
use sys::Error::{
    Again, BadArgument, Denied, Full, NoCap, NoSuchNode, NotFound, NotReady, TooLarge,
};

/// Numbers that belong to no program, or to another one.
const OTHERS: [u64; 9] = [0, 1, 5, 6, 7, 9, 31, 1 << 32, u64::MAX];
/// Nodes that there never are.
pub const NO_NODES: [u64; 4] = [8, 200, 1 << 32, u64::MAX - 1];
/// One past the last byte of the buffer of the console.
const END: u64 = CONSOLE_THREADS * PAGE_SIZE;
/// How long a service may ask to be tried again.
const PATIENCE: Duration = Duration::from_secs(5);

/// What an attack is made with, and what has come of it.
pub struct Attacker {
    pub nodes: Vec<NodeId>,
    /// Memory of its own.
    pub own: u64,
    /// What has been tried.
    pub tries: u64,
    wrong: Option<String>,
}

/// An attack.
pub struct Attack {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub act: fn(&mut Attacker),
}

/// How what is refused only because of an argument is refused: kernels that only exchange messages refuse it whatever
/// the arguments, because pages of a group have no home, and no node knows another one's memory.
fn fused_only(with: &'static [sys::Error]) -> &'static [sys::Error] {
    match sys::is_multiple() {
        true => &[Denied],
        false => with,
    }
}

const ATTACKS: [Attack; 22] = [
    Attack {
        name: "pager_end_of_others",
        act: |a| {
            for n in OTHERS.into_iter().chain([8, pager::FAULT | 8]) {
                a.ask(slot::PAGER, [pager::END, n, 0, 0], &[Denied]);
            }
        },
    },
    Attack {
        name: "pager_memory_of_no_node",
        act: |a| {
            for node in NO_NODES {
                let words = [pager::MAP_ANON, PAGE_SIZE, node + 1, 0];
                a.ask(slot::PAGER, words, fused_only(&[NoSuchNode]));
            }
            let beyond = a.nodes.len() as u64 + 1;
            let words = [pager::MAP_ANON, PAGE_SIZE, beyond, 0];
            a.ask(slot::PAGER, words, fused_only(&[NoSuchNode]));
        },
    },
    Attack {
        name: "pager_memory_without_end",
        act: |a| {
            for len in [0, 257 << 30, 1 << 47, 1 << 63, u64::MAX - 4095, u64::MAX] {
                let words = [pager::MAP_ANON, len, 0, 0];
                a.ask(slot::PAGER, words, &[BadArgument, TooLarge]);
            }
        },
    },
    Attack {
        name: "pager_takes_what_it_did_not_give",
        act: |a| {
            let stack = &raw const *a as u64 & !(PAGE_SIZE - 1);
            for at in [
                0,
                TEXT_BASE,
                INFO_BASE,
                CONSOLE_BUFFER,
                INVOKE_STACKS,
                DATA_STACKS_BASE,
                tcb_address(thread_id(8, 0)),
                stack,
                USER_END - PAGE_SIZE,
                0xffff_8000_0000_0000,
            ] {
                a.ask(slot::PAGER, [pager::UNMAP, at, PAGE_SIZE, 0], &[NotFound]);
            }
        },
    },
    Attack {
        name: "pager_takes_more_than_it_gave",
        act: |a| {
            let own = a.own;
            for (at, len) in [
                (own, u64::MAX),
                (own, 0_u64.wrapping_sub(own)),
                (own, 1 << 63),
                (own, 3 * PAGE_SIZE),
                (own - PAGE_SIZE, 3 * PAGE_SIZE),
                (own + 1, PAGE_SIZE),
                (0_u64.wrapping_sub(PAGE_SIZE), 2 * PAGE_SIZE),
            ] {
                a.ask(
                    slot::PAGER,
                    [pager::UNMAP, at, len, 0],
                    &[NotFound, BadArgument],
                );
            }
        },
    },
    Attack {
        name: "pager_faults_that_were_none",
        act: |a| {
            for n in OTHERS {
                let what = pager::FAULT | n & 0x1f;
                a.ask(slot::PAGER, [what, a.own, 1, TEXT_BASE], &[BadArgument]);
                a.ask(slot::PAGER, [what << 32, a.own, 1, 0], &[BadArgument]);
            }
        },
    },
    Attack {
        name: "console_end_of_others",
        act: |a| {
            for n in OTHERS.into_iter().chain([8]) {
                a.ask(slot::CONSOLE, [console::END, n, 0, 0], &[Denied]);
            }
        },
    },
    Attack {
        name: "console_text_beyond_the_buffer",
        act: |a| {
            for (at, len) in [
                (END, 0),
                (END, 1),
                (END - 1, 2),
                (END - PAGE_SIZE + 1, PAGE_SIZE),
                (1 << 32, 8),
                (u64::MAX, 1),
                (u64::MAX - 7, 8),
                (u64::MAX - 4095, 4096),
            ] {
                a.ask(slot::CONSOLE, [console::WRITE, at, len, 0], &[BadArgument]);
            }
            for len in [PAGE_SIZE + 1, 1 << 32, u64::MAX] {
                a.ask(slot::CONSOLE, [console::WRITE, 0, len, 0], &[TooLarge]);
            }
        },
    },
    Attack {
        name: "console_report_beyond_the_buffer",
        act: |a| {
            let size = size_of::<ReportText>() as u64;
            for at in [END, END - 8, END - 24, u64::MAX, u64::MAX - 7, 1 << 40] {
                a.ask(slot::CONSOLE, [console::REPORT, at, 0, 0], &[BadArgument]);
            }
            // Whole, but for a byte: lengths of nothing, then what is not there.
            a.ask(
                slot::CONSOLE,
                [console::REPORT, 0_u64.wrapping_sub(size), 0, 0],
                &[BadArgument],
            );
        },
    },
    Attack {
        name: "console_report_in_the_name_of_the_system",
        act: |a| {
            for name in name::ALL.into_iter().chain(["sim.", "sim.forged"]) {
                a.report(name, Denied);
            }
            for name in ["", "two words", "line\nend", "\u{1e}{}"] {
                a.report(name, BadArgument);
            }
        },
    },
    Attack {
        name: "process_fault_of_others",
        act: |a| {
            for threads in [0, 1, u64::MAX] {
                a.ask(slot::PROCESS, [process::LOST, threads, 0, 0], &[Denied]);
            }
            for n in (0..40).chain([0xff]) {
                let what = process::FAULTED | n << 8;
                for kind in [0, 1, process::FAULT_KIND] {
                    let words = [what | kind << 16, a.own, TEXT_BASE, 0];
                    a.ask(slot::PROCESS, words, &[Denied]);
                }
            }
        },
    },
    Attack {
        name: "process_memory_for_others",
        act: |a| {
            for n in (0..40).chain([0xff]) {
                for node in 0..16 {
                    let words = [process::MEMORY | n << 8 | node << 16, 0, 0, 0];
                    a.ask(slot::PROCESS, words, &[Denied]);
                }
            }
        },
    },
    Attack {
        name: "process_memory_state_of_nothing",
        act: |a| {
            let nodes = a.nodes.len() as u64;
            for node in NO_NODES.into_iter().chain([nodes, u64::MAX]) {
                let words = [process::MEMORY_STATE, 0, node, 0];
                a.ask(slot::PROCESS, words, fused_only(&[NoSuchNode]));
            }
            for question in [memory::Question::ALL.len() as u64, 255, 1 << 32, u64::MAX] {
                let words = [process::MEMORY_STATE, question, 0, 0];
                a.ask(slot::PROCESS, words, fused_only(&[BadArgument]));
            }
        },
    },
    Attack {
        name: "process_start_of_no_thread",
        act: |a| {
            for n in [0, MAX_PROGRAM_THREADS, 4096, 1 << 32, u64::MAX] {
                a.ask(slot::PROCESS, [process::START, n, 0, 0], &[BadArgument]);
            }
        },
    },
    Attack {
        name: "process_start_nowhere",
        act: |a| {
            let n = MAX_PROGRAM_THREADS - 1;
            let nodes = a.nodes.len() as u64;
            for place in [nodes, 7, 8, 0xff] {
                let words = [process::START, n, place, 0];
                a.ask(slot::PROCESS, words, &[NoSuchNode]);
            }
            for cpu in [7, 8, 200, 1 << 32] {
                let words = [process::START, n, cpu << 8, 0];
                a.ask(slot::PROCESS, words, &[BadArgument, NoSuchNode]);
            }
        },
    },
    Attack {
        name: "process_start_of_a_thread_that_runs",
        act: |a| {
            let Some(&node) = a.nodes.last() else {
                return;
            };
            let spins = thread::spawn_on(node, || {
                thread::park_timeout(Duration::from_millis(50));
            });
            match spins {
                Ok(spins) => {
                    let n = spins.thread().number() as u64;
                    for node in 0..a.nodes.len() as u64 {
                        a.ask(slot::PROCESS, [process::START, n, node, 0], &[Again]);
                    }
                    if spins.join().is_err() {
                        a.found(format!("thread {n} did not end"));
                    }
                }
                Err(e) => a.found(format!("no thread: {e}")),
            }
        },
    },
    Attack {
        name: "process_end_of_the_first_thread",
        act: |a| {
            for noise in [0, 1, u64::MAX] {
                let words = [process::END_THREAD, noise, noise, noise];
                a.ask(slot::PROCESS, words, &[Denied]);
            }
        },
    },
    Attack {
        name: "process_exit_with_no_code",
        act: |a| {
            for code in [1 << 32, 1 << 63, u64::MAX] {
                a.ask(slot::PROCESS, [process::EXIT, code, 0, 0], &[BadArgument]);
            }
        },
    },
    Attack {
        name: "process_moves_no_thread",
        act: |a| {
            for n in [
                MAX_PROGRAM_THREADS - 1,
                MAX_PROGRAM_THREADS,
                1 << 32,
                u64::MAX,
            ] {
                let move_it = [process::EMULATE, n, 0, 0];
                a.ask(slot::PROCESS, move_it, fused_only(&[NotFound]));
                let request = [process::REQUEST, n, 0, 0];
                a.ask(slot::PROCESS, request, &[NotFound]);
            }
            let nodes = a.nodes.len() as u64;
            for node in NO_NODES.into_iter().chain([nodes]) {
                let words = [process::EMULATE, 0, node, 0];
                a.ask(slot::PROCESS, words, fused_only(&[NoSuchNode]));
            }
            let late = [process::EMULATE, 0, 0, u64::MAX];
            a.ask(slot::PROCESS, late, fused_only(&[BadArgument, NotReady]));
        },
    },
    Attack {
        name: "services_by_operations_that_they_do_not_have",
        act: |a| {
            for service in [slot::CONSOLE, slot::PAGER, slot::PROCESS] {
                let reserved = [process::FAULTED, process::MEMORY];
                let known = [1, 2, 3, 4, 6, process::LOST, 16, 32, 33];
                let of_peers = |what: u64| {
                    let moves = what & 0xff == process::MOVE;
                    sys::is_multiple() && (moves || (process::ARRIVED..16).contains(&what))
                };
                let none = (0..512)
                    .filter(|what| !known.contains(what) && !reserved.contains(&(what & 0xff)))
                    .filter(|&what| !of_peers(what));
                for what in none {
                    a.ask(service, [what, a.own, 1, 1], &[BadArgument]);
                }
                // To copy, to look into, to call otherwise.
                for operation in 1..30 {
                    a.call(service, operation, [1; 5], &[Denied]);
                }
            }
        },
    },
    Attack {
        name: "capabilities_that_were_not_granted",
        act: |a| {
            let memory = (0..9).map(slot::memory);
            for cap in [slot::TABLE, slot::COMPONENT, slot::TIME, slot::THREAD_IDS]
                .into_iter()
                .chain(memory)
            {
                for operation in 1..30 {
                    a.call(cap, operation, [0, 0, 1, 0, 0], &[NoCap]);
                }
            }
        },
    },
    Attack {
        name: "hardware_and_endpoints_of_the_system",
        act: |a| {
            use HardwareOp::*;
            let own = a.own;
            for node in a.nodes.clone() {
                for o in [
                    Write, Report, Shutdown, StartCpu, FlushStep, FlushTlb, AttachIrq, Inside,
                ] {
                    a.call(slot::hardware(node), o as u32, [own, 1, 0, 0, 0], &[Denied]);
                }
            }
            for o in [ReceiveOp::MakeSend, ReceiveOp::Bind] {
                a.call(slot::ENDPOINT, o as u32, [1, own, 1, 0, 0], &[Denied]);
            }
        },
    },
];

impl Attacker {
    fn new() -> Result<Attacker> {
        Ok(Attacker {
            nodes: system()?.nodes().map(|n| n.id).collect(),
            own: sys::map_anon(2 * PAGE_SIZE)?.as_ptr() as u64,
            tries: 0,
            wrong: None,
        })
    }

    /// Something is as it must not be.
    pub fn found(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    fn refused(&mut self, what: (u64, &[u64]), status: u64, with: &[sys::Error]) {
        self.tries += 1;
        if !with.iter().any(|e| e.code() == status) {
            let (word, args) = what;
            self.found(format!(
                "{word:#x} {args:x?}: status {status}, not {with:?}"
            ));
        }
    }

    /// Invokes a service, which must refuse it with one of these errors.
    pub fn ask(&mut self, service: CapIndex, words: [u64; 4], with: &[sys::Error]) {
        let word = call_word(service, SinvOp::Invoke as u32);
        let answer = raw::request(word, words);
        self.refused((word, &words), answer.status, with);
    }

    /// Makes a system call, which must be refused with one of these errors.
    fn call(&mut self, cap: CapIndex, operation: u32, args: [u64; 5], with: &[sys::Error]) {
        let word = call_word(cap, operation);
        // SAFETY: 1. The program has no capability by which the kernel would write to its memory or take any away.
        let answer = unsafe { raw::call_raw(word, args) };
        self.refused((word, &args), answer.status, with);
    }

    /// Reports a check of this name, which must be refused.
    fn report(&mut self, name: &str, with: sys::Error) {
        let mut r = ReportText {
            kind: 0,
            value: 1,
            name_len: name.len() as u64,
            detail_len: 0,
            name: [0; MAX_REPORT_NAME],
            detail: [0; MAX_REPORT_DETAIL],
        };
        r.name[..name.len()].copy_from_slice(name.as_bytes());
        let page = with_exposed_provenance_mut::<ReportText>(raw::text_buffer() as usize);
        // SAFETY: 1. The first page of the buffer is this thread's, and larger than a report.
        // 2. Nothing is being written to the console.
        unsafe { page.write(r) };
        self.ask(slot::CONSOLE, [console::REPORT, 0, 0, 0], &[with]);
    }

    /// Whether everything that a program needs still works: console, pager, init, and the scheduler of each node.
    fn alive(&mut self) -> sys::Result<()> {
        let end = Instant::now() + PATIENCE;
        while let Err(e) = request(slot::CONSOLE, [console::WRITE, 0, 0, 0]) {
            if e != Again || Instant::now() > end {
                return Err(e);
            }
            thread::sleep(Duration::from_millis(5));
        }
        let at = request(slot::PAGER, [pager::MAP_ANON, PAGE_SIZE, 0, 0])?;
        let word = with_exposed_provenance_mut::<u64>(at as usize);
        // SAFETY: 1. Just mapped, aligned, and used by nothing else.
        unsafe { word.write_volatile(at) };
        // SAFETY: 1. As above.
        if unsafe { word.read_volatile() } != at {
            return Err(sys::Error::Corrupt);
        }
        request(slot::PAGER, [pager::UNMAP, at, PAGE_SIZE, 0])?;
        match request(slot::PROCESS, [process::MEMORY_STATE, 0, 0, 0]) {
            Err(Denied) if sys::is_multiple() => {}
            state => drop(state?),
        }
        for &node in &self.nodes {
            let sleeps = thread::spawn_on(node, || {
                thread::sleep(Duration::from_millis(1));
                dyad::node()
            });
            let was = sleeps.and_then(|t| t.join()).map_err(|_| Full)?;
            if was != node {
                return Err(NoSuchNode);
            }
        }
        // Its own memory is there still.
        let word = with_exposed_provenance_mut::<u64>(self.own as usize);
        // SAFETY: 1. Mapped by this program, aligned, and used by nothing else.
        unsafe { word.write_volatile(self.own) };
        Ok(())
    }
}

/// Invokes a service.
pub fn request(service: CapIndex, words: [u64; 4]) -> sys::Result<u64> {
    let answer = raw::request(call_word(service, SinvOp::Invoke as u32), words);
    match sys::Error::from_code(answer.status) {
        Some(e) => Err(e),
        None => Ok(answer.value),
    }
}

/// Plays all attacks on the node that this is on. Whether all held.
pub fn play() -> Result<bool> {
    let mut good = true;
    let mut attacker = Attacker::new()?;
    let peers = peers::ATTACKS.iter().filter(|_| sys::is_multiple());
    for attack in ATTACKS.iter().chain(peers) {
        (attacker.tries, attacker.wrong) = (0, None);
        (attack.act)(&mut attacker);
        if let Err(e) = attacker.alive() {
            attacker.found(format!("afterwards: {e}"));
        }
        let wrong = attacker.wrong.take();
        let ok = wrong.is_none() && attacker.tries > 0;
        let detail = wrong.unwrap_or(format!("{} attempts", attacker.tries));
        good &= report::check(&format!("abuse.{}.{}", attack.name, isa()), ok, detail);
    }
    Ok(good)
}
