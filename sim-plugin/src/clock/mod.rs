// SPDX-License-Identifier: GPL-2.0-or-later
//! The fused clock in a running machine: where QEMU's callbacks and the guest's calls meet
//! [`dyad_sim_model::clock`].
//!
//! Time is counted by inline operations ([`hand`]). What couples this machine's CPUs with those of
//! the others is in the model. Interrupts go through the doorbell device: this process has the
//! descriptors of all machines' vectors ([`doorbells`]) and rings them at the right moment.
//!
//! # An interrupt at an instruction
//!
//! A vector that is rung reaches the CPU through QEMU's main loop, which takes as long as the host
//! pleases. So a CPU that is due an interrupt rings the vector from the middle of its own execution,
//! waits until the main loop has taken that, rings the fence vector, and waits for that too. There is one
//! main loop, and it takes one ring after the other: when the second has been taken, the first has been
//! passed on to the interrupt controller and the CPU. The CPU goes on, and finds the interrupt at the
//! end of the block: at the same instruction in every run.
//!
//! A CPU that sleeps is rung by somebody else, and executes nothing until then.
//!
//! | module | concern |
//! |---|---|
//! | `options` | what stands after the comma |
//! | `hand` | a CPU's time, from what translated code has counted |
//! | `running` | callbacks and calls |
//! | `confirm` | interrupts that the main loop did not take in time |
//! | `doorbells` | descriptors of all machines' vectors |
//! | `host` | what the model needs of this process |

mod confirm;
mod doorbells;
mod hand;
mod host;
mod options;
// Without QEMU there is nothing to run.
#[cfg(not(test))]
mod running;

pub use hand::LIMIT;
pub use options::ClockOptions;
#[cfg(not(test))]
pub use running::{Clock, get, install};
