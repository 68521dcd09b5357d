// SPDX-License-Identifier: GPL-2.0-or-later
//! Windows of measurement in a running machine: where QEMU's callbacks meet [`crate::windows`].
//!
//! What instructions there are is counted with inline operations all the time. Every access to
//! memory and every marker calls the plugin; outside of windows that costs a look at a flag. Entries into
//! the kernel and returns to user code call it once each.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dyad_abi::Isa;
use dyad_abi::marker::{Decoded, Marker, MarkerOp, WindowId, decode};

use crate::classify::{Kind, is_system_call, kind, may_halt};
use crate::ffi::{Access, Block, Counter, Emulator};
use crate::masked::{CpuStretch, Stretch, Stretches};
use crate::windows::{CpuWindow, Outcome, Running, Samples};

/// A CPU. Only the CPU's own thread uses it, so the lock is never waited for.
#[derive(Default)]
struct Cpu {
    /// What an access looks at first.
    open: AtomicBool,
    window: Mutex<CpuWindow>,
    stretch: Mutex<CpuStretch>,
}

/// All windows of a machine.
pub struct Observer {
    isa: Isa,
    instructions: Counter,
    atomics: Counter,
    flushes: Counter,
    fences: Counter,
    cpus: Vec<Cpu>,
    sites: bool,
    samples: Mutex<Samples>,
    stretches: Mutex<Stretches>,
}

impl Observer {
    /// An observer of this emulator.
    ///
    /// # Errors
    ///
    /// If its ISA is none whose markers are known.
    pub fn new(emulator: &Emulator, sites: bool) -> Result<Observer, String> {
        let isa = Isa::parse(&emulator.target).ok_or_else(|| {
            let target = &emulator.target;
            format!("windows=on does not work on {target:?}; possible: x86_64, aarch64")
        })?;
        Ok(Observer {
            isa,
            instructions: Counter::new(),
            atomics: Counter::new(),
            flushes: Counter::new(),
            fences: Counter::new(),
            cpus: (0..emulator.cpus).map(|_| Cpu::default()).collect(),
            sites,
            samples: Mutex::default(),
            stretches: Mutex::default(),
        })
    }

    /// A block is being translated.
    pub fn translated(&self, block: &Block) {
        let kernel = block.is_of_kernel();
        match kernel {
            true => block.call_on_kernel_entry(),
            false => block.call_on_kernel_exit(),
        }
        for i in 0..block.instructions() {
            let instruction = block.instruction(i);
            let (code, len) = instruction.code();
            match decode(self.isa, &code[..len]) {
                // Not a part of any window, and the clock's business.
                Decoded::Marker(marker) if marker.op == MarkerOp::Clock => continue,
                Decoded::Marker(marker) => {
                    instruction.call_as_marker(marker);
                    continue;
                }
                Decoded::Prefix => continue,
                Decoded::Other => {}
            }
            instruction.add_on_start(self.instructions);
            if self.sites {
                instruction.call_on_start();
            }
            if !kernel && is_system_call(self.isa, &code[..len]) {
                instruction.call_as_system_call();
            }
            if kernel && may_halt(self.isa, &code[..len]) {
                instruction.call_as_halt();
            }
            let kind = kind(self.isa, &code[..len]);
            match kind {
                Kind::Atomic => instruction.add_on_start(self.atomics),
                Kind::Flush => instruction.add_on_start(self.flushes),
                Kind::Fence => instruction.add_on_start(self.fences),
                Kind::Plain => {}
            }
            // QEMU reports the load and the store of an atomic apart, a failed one's too.
            instruction.call_on_access(kind == Kind::Atomic);
        }
    }

    /// A CPU is about to execute a marker.
    pub fn marker(&self, index: u32, marker: Marker) {
        let Some(cpu) = self.cpus.get(index as usize) else {
            return;
        };
        let now = Running {
            instructions: self.instructions.value(index),
            atomics: self.atomics.value(index),
            flushes: self.flushes.value(index),
            fences: self.fences.value(index),
        };
        let mut window = cpu.window.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = window.marker(marker, now);
        let sites = match outcome {
            Outcome::Closed { .. } => window.sites(),
            _ => Vec::new(),
        };
        cpu.open.store(window.is_open(), Ordering::Relaxed);
        let open = window.open_id();
        drop(window);
        if marker.op == MarkerOp::Idle {
            self.idle(cpu, marker, now.instructions, open);
        }
        if let Outcome::Forget(id) = outcome {
            lock(&self.stretches).forget(id);
        }
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.note(outcome);
        if let Outcome::Closed {
            id,
            interrupted: false,
            ..
        } = outcome
        {
            samples.visit(id, &sites);
        }
    }

    /// A wait begins or ends.
    fn idle(&self, cpu: &Cpu, marker: Marker, now: u64, open: Option<WindowId>) {
        let mut stretch = lock(&cpu.stretch);
        match marker {
            Marker::WAITS => self.note(stretch.waits(now)),
            Marker::WORKS => stretch.works(now, open),
            _ => {}
        }
    }

    fn note(&self, ended: Option<Stretch>) {
        if let Some(stretch) = ended {
            lock(&self.stretches).add(&stretch);
        }
    }

    /// A CPU comes into the kernel.
    pub fn enters_kernel(&self, index: u32, at: u64) {
        if let Some(cpu) = self.cpus.get(index as usize) {
            let open = lock(&cpu.window).open_id();
            let now = self.instructions.value(index);
            lock(&cpu.stretch).enters(at, now, open);
        }
    }

    /// A CPU goes back to user code.
    pub fn leaves_kernel(&self, index: u32) {
        if let Some(cpu) = self.cpus.get(index as usize) {
            self.note(lock(&cpu.stretch).leaves(self.instructions.value(index)));
        }
    }

    /// A CPU is about to execute a system call.
    pub fn system_call(&self, index: u32) {
        if let Some(cpu) = self.cpus.get(index as usize) {
            lock(&cpu.stretch).calls();
        }
    }

    /// A CPU halts.
    pub fn halts(&self, index: u32) {
        if let Some(cpu) = self.cpus.get(index as usize) {
            self.note(lock(&cpu.stretch).halts(self.instructions.value(index)));
        }
    }

    /// The longest stretches with interrupts masked.
    pub fn stretches(&self) -> Stretches {
        lock(&self.stretches).clone()
    }

    /// A CPU is about to execute an instruction.
    pub fn executes(&self, index: u32, at: u64) {
        if let Some(cpu) = self.cpus.get(index as usize) {
            lock(&cpu.stretch).executes(at);
        }
        if let Some(cpu) = self.cpus.get(index as usize)
            && cpu.open.load(Ordering::Relaxed)
        {
            let mut window = cpu.window.lock().unwrap_or_else(PoisonError::into_inner);
            window.executes(at);
        }
    }

    /// A CPU has made an access.
    pub fn access(&self, index: u32, access: &Access) {
        let Some(cpu) = self.cpus.get(index as usize) else {
            return;
        };
        if !cpu.open.load(Ordering::Relaxed) {
            return;
        }
        let mut window = cpu.window.lock().unwrap_or_else(PoisonError::into_inner);
        window.access(self.isa, access.place(), access.is_store());
        if let Some(address) = access.second_line() {
            window.touch(address);
        }
    }

    /// What has been counted.
    pub fn samples(&self) -> Samples {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.clone()
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}
