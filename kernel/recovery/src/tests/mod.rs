//! Tests of recovery on machines of the host: three nodes of two ISAs, one of which dies. Second
//! deaths are tried at more steps in the tier `full`, and at every step in the tier `long`.

mod components;
mod evacuation;
mod events;
mod exchanges;
mod intents;
mod nodes;
mod regions;
mod rows;
mod supplies;
mod threads;
mod waking;

use crate::host::{TRIO, Trio};
use dyad_core::host::system::{VA, cpu, cx, node, this};
