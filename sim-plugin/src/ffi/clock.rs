// SPDX-License-Identifier: GPL-2.0-or-later
//! What the fused clock uses of QEMU's interface.

use std::ffi::{c_int, c_uint, c_void};

use dyad_abi::clock::ClockCall;

use super::{Block, Counter, ExecCallback, Id, Instruction, NO_REGISTERS, RawBlock, RawU64};
use crate::clock;

const IF_AT_LEAST: c_int = 7;
type CpuCallback = extern "C" fn(Id, c_uint);

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_idle_cb(id: Id, cb: CpuCallback);
    fn qemu_plugin_register_vcpu_resume_cb(id: Id, cb: CpuCallback);
    fn qemu_plugin_register_vcpu_tb_exec_cond_cb(
        tb: *mut RawBlock,
        cb: ExecCallback,
        flags: c_int,
        cond: c_int,
        entry: RawU64,
        imm: u64,
        userdata: *mut c_void,
    );
}

impl Block {
    /// Calls [`clock::Clock::quantum`] when the block, of `n` instructions, is entered and the executing
    /// CPU's word is at least `limit`, with what has been added on entry so far.
    pub fn call_clock_from(&self, word: Counter, limit: u64, n: usize) {
        // SAFETY: 1. The block is valid as long as `self` is lent out, the counter for ever. 2. The
        // callback has the parameters of the supported versions and takes the pointer for the number
        // that it is.
        unsafe {
            qemu_plugin_register_vcpu_tb_exec_cond_cb(
                self.raw,
                quantum,
                NO_REGISTERS,
                IF_AT_LEAST,
                word.0,
                limit,
                std::ptr::without_provenance_mut(n),
            );
        }
    }
}

impl Instruction<'_> {
    /// Tells the clock whenever it starts: it may halt the CPU.
    pub fn tell_of_halt(&self) {
        let nothing = std::ptr::null_mut();
        // SAFETY: 1. The instruction is valid as long as its block. 2. The callback has the
        // parameters of the supported versions.
        unsafe {
            super::qemu_plugin_register_vcpu_insn_exec_cb(self.raw, halts, NO_REGISTERS, nothing);
        }
    }

    /// Calls [`clock::Clock::call`] whenever it starts; `left` instructions of its block follow it.
    pub fn call_clock(&self, call: ClockCall, left: usize) {
        let word = std::ptr::without_provenance_mut(left << 16 | call as usize);
        // SAFETY: 1. The instruction is valid as long as its block. 2. The callback has the
        // parameters of the supported versions and takes the pointer for the number that it is.
        unsafe {
            super::qemu_plugin_register_vcpu_insn_exec_cb(self.raw, called, NO_REGISTERS, word);
        }
    }
}

extern "C" fn halts(cpu: c_uint, _: *mut c_void) {
    if let Some(clock) = clock::get() {
        clock.halts(cpu);
    }
}

extern "C" fn quantum(cpu: c_uint, n: *mut c_void) {
    if let Some(clock) = clock::get() {
        clock.quantum(cpu, n.addr() as u64);
    }
}

extern "C" fn called(cpu: c_uint, word: *mut c_void) {
    let (left, call) = (word.addr() >> 16, word.addr() & 0xffff);
    if let Some(clock) = clock::get()
        && let Some(call) = ClockCall::ALL.into_iter().find(|c| *c as usize == call)
    {
        clock.call(cpu, call, left as u64);
    }
}

/// QEMU initialises a CPU; it has executed nothing.
pub(super) fn initialised(cpu: c_uint) {
    if let Some(clock) = clock::get() {
        clock.cpu_made(cpu);
    }
}

extern "C" fn idle(_: Id, cpu: c_uint) {
    if let Some(clock) = clock::get() {
        clock.idle(cpu);
    }
}

extern "C" fn resumed(_: Id, cpu: c_uint) {
    if let Some(clock) = clock::get() {
        clock.resumed(cpu);
    }
}

/// Has QEMU tell the clock about CPUs, if there is a clock; while the plugin is installed.
pub(super) fn register(id: Id) {
    if clock::get().is_none() {
        return;
    }
    // SAFETY: 1. The callbacks have the parameters of the supported versions. 2. They live as long
    // as the plugin, which is never unloaded.
    unsafe {
        qemu_plugin_register_vcpu_idle_cb(id, idle);
        qemu_plugin_register_vcpu_resume_cb(id, resumed);
    }
}
