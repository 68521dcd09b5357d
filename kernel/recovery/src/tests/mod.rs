//! Tests of recovery on machines of the host: three nodes of two ISAs, one of which dies. In
//! the tier `long`, second deaths are tried at every step.

mod components;
mod evacuation;
mod events;
mod exchanges;
mod intents;
mod nodes;
mod regions;
mod rows;
mod threads;
mod waking;

use crate::host::{TRIO, Trio};
use dyad_core::host::system::{VA, cpu, cx, node, this};
use dyad_tier::Tier;

/// Whether tests go through everything, not through samples.
fn long() -> bool {
    Tier::now() == Tier::Long
}
