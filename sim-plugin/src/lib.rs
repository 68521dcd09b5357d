// SPDX-License-Identifier: GPL-2.0-or-later
//! QEMU plugin of the simulator. One shared object for both emulators.
//!
//! Loaded with
//! `-plugin libdyad_sim.so,out=FILE[,level=count|cache|timing][,unit=block|instruction][,windows=on|off][,sites=on|off][,node=N]`
//! and, beyond level `count`, `config=FILE,caches=FILE,pools=FILE:...[,vectors=ADDRESS]`; for the clock
//! `config=FILE,clock=FILE,pages=FILE,doorbells=NAME[,patience_ms=N]`.
//! Level `count` counts executed instructions per CPU, with inline operations and no call per
//! instruction, and writes them to `out` as JSON when QEMU ends. With `windows=on` it also counts
//! instructions, lines, atomics and more between the markers that the guest executes. Levels `cache`
//! and `timing` take every access through the model.
//!
//! | module | what for |
//! |---|---|
//! | `options` | what stands after the comma |
//! | `report` | from counters to the JSON |
//! | `count` | what all levels do |
//! | `cached` | caches: set-up, translation of code |
//! | `cache` | caches: what happens at every access |
//! | `tlb` | where virtual pages are |
//! | `code` | where code is in physical memory |
//! | `maintenance` | instructions that act on caches and translations |
//! | `invalidation` | instructions that change simulated TLBs and the root |
//! | `sanitizer` | without coherent caches: what kernels forget to flush |
//! | `regions` | regions of interest |
//! | `tracer` | traces of everything that is done to memory |
//! | `system` | traps, returns, fences and the like by their machine code |
//! | `prefixes` | prefixes of x86-64's instructions |
//! | `classify` | atomics, flushes, fences by their machine code |
//! | `windows` | windows of measurement: state machine, samples |
//! | `masked` | stretches with interrupts masked: state machine, the longest ones |
//! | `observe` | windows and stretches in a running machine |
//! | `clock` | the fused clock |
//! | `version` | which QEMUs |
//! | `ffi` | QEMU's plugin interface; the only unsafe code |
//!
//! Works with plugin API versions 4 to 6 (QEMU 10.0 and the releases after it) and refuses others:
//! version 7 gives callbacks other parameters.

#[cfg(not(test))]
mod cache;
#[cfg(not(test))]
mod cached;
mod classify;
// Without QEMU not all of it is used.
#[cfg_attr(test, allow(dead_code, unused_imports))]
mod clock;
mod code;
// Tests link without QEMU, which is what provides the functions that `ffi` declares.
#[cfg(not(test))]
mod count;
#[cfg(not(test))]
mod ffi;
mod invalidation;
mod maintenance;
mod masked;
#[cfg(not(test))]
mod observe;
mod options;
mod prefixes;
mod regions;
mod report;
#[cfg(not(test))]
mod sanitizer;
mod system;
mod tlb;
#[cfg(not(test))]
mod tracer;
mod version;
mod windows;
