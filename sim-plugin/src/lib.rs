// SPDX-License-Identifier: GPL-2.0-or-later
//! QEMU plugin of the simulator. One shared object for both emulators.
//!
//! Loaded with
//! `-plugin libdyad_sim.so,out=FILE[,level=count][,unit=block|instruction][,windows=on|off][,sites=on|off][,node=N]`.
//! The only level so far is `count`: it counts executed instructions per CPU, with inline
//! operations and no call per instruction, and writes them to `out` as JSON when QEMU ends. With
//! `windows=on` it also counts instructions, lines, atomics and more between the markers that the
//! guest executes.
//!
//! | module | what for |
//! |---|---|
//! | `options` | what stands after the comma |
//! | `report` | the JSON |
//! | `count` | the level |
//! | `classify` | atomics, flushes, fences by their machine code |
//! | `windows` | windows of measurement: state machine, samples |
//! | `observe` | windows in a running machine |
//! | `version` | which QEMUs |
//! | `ffi` | QEMU's plugin interface; the only unsafe code |
//!
//! Works with plugin API versions 4 to 6 (QEMU 10.0 and the releases after it) and refuses others:
//! version 7 gives callbacks other parameters.

mod classify;
// Tests link without QEMU, which is what provides the functions that `ffi` declares.
#[cfg(not(test))]
mod count;
#[cfg(not(test))]
mod ffi;
#[cfg(not(test))]
mod observe;
mod options;
mod report;
mod version;
mod windows;
