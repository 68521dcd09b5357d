// SPDX-License-Identifier: GPL-2.0-or-later
//! Those who see all accesses before the model does: traces, the sanitizer, the comparison of
//! translations with QEMU's.

use dyad_sim_model::coherent as model;
use dyad_sim_model::memory::physical_of;

use super::{Cpu, Kind, LINE, Line, LineAction, PAGE, Probe, name};
use crate::tlb::Frame;
use crate::windows::Place;

/// An access, for observers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// What it does.
    pub kind: model::Kind,
    /// The address of the instruction.
    pub at: u64,
    /// Where its first byte is: virtual address.
    pub address: u64,
    /// And physical address, with the view of its line.
    pub physical: u64,
    /// Its length.
    pub bytes: u64,
    /// What was loaded or stored, little-endian; what was there before a read-modify-write.
    pub value: u128,
}

/// An observer that sees everything that a CPU does to memory, before the model does. It makes runs slower, and
/// is there only on demand.
pub trait Watcher: Send {
    /// An access.
    fn access(&mut self, access: &Watched);
    /// A walk accesses an entry of a table.
    fn walk(&mut self, _access: &Watched) {}
    /// Lines of instructions are fetched.
    fn fetch(&mut self, lines: &[Line]);
    /// An instruction acts on the line of a virtual and physical address, the latter with the view of the line.
    fn line(&mut self, action: &LineAction, address: u64, physical: u64);
    /// An instruction at an address writes back and drops all that caches hold. `first`: it is not one of a row of such
    /// instructions.
    fn everything(&mut self, _at: u64, _first: bool) {}
    /// In strict order: from here on it is the turn with this number.
    fn turn(&mut self, _number: u64) {}
    /// The machine ends.
    fn finish(&mut self) {}
}

impl Cpu {
    /// As [`access`](Cpu::access), by an instruction at `at`, for observers.
    pub fn watched(&mut self, kind: u8, probe: &impl Probe, at: u64) {
        let address = probe.address();
        if self.mmu.is_some() {
            self.translate_access(kind, probe);
        }
        if self.setup.checks() {
            self.check_translation(probe);
        }
        if let Some(frame) = self.frame_of(probe) {
            let watched = Watched {
                kind: match kind {
                    Kind::LOAD => model::Kind::Load,
                    Kind::STORE => model::Kind::Store,
                    _ => model::Kind::Rmw,
                },
                at,
                address,
                physical: frame.line(address) * LINE + address % LINE,
                bytes: probe.bytes(),
                value: probe.value(),
            };
            let second = (address + watched.bytes - 1) & !(PAGE - 1);
            let rest = match second > address {
                true => self.frame_at(probe, second).map(|frame| Watched {
                    address: second,
                    physical: frame.line(second) * LINE,
                    bytes: address + watched.bytes - second,
                    ..watched
                }),
                false => None,
            };
            for watcher in &mut self.watchers {
                watcher.access(&watched);
                if let Some(rest) = &rest {
                    watcher.access(rest);
                }
            }
        }
        match kind {
            Kind::LOAD => self.access_translated::<{ Kind::LOAD }>(probe),
            Kind::STORE => self.access_translated::<{ Kind::STORE }>(probe),
            _ => self.access_translated::<{ Kind::MODIFY }>(probe),
        }
    }

    /// Compares what the micro-TLB and the model's memo say of an access with what QEMU says.
    fn check_translation(&mut self, probe: &impl Probe) {
        let address = probe.address();
        let Some(place) = probe.place(address) else {
            return;
        };
        let true_frame = match place {
            Place::Memory(physical) => Some(self.setup.frame(address, physical)),
            Place::Device(_) => None,
        };
        // A frame may have changed hands since.
        let physical = |frame: Frame| physical_of(frame.line(address) * LINE);
        if let Some(known) = self.tlb.recall(address) {
            self.checked += 1;
            self.wrong += u64::from(true_frame.map(physical) != Some(physical(known)));
        }
        if let Some(line) = self.core.remembered(name(address)) {
            self.checked += 1;
            let line = physical_of(line * LINE);
            self.wrong += u64::from(true_frame.map(physical) != Some(line));
        }
    }

    /// The frame of an access, unless it is to a device.
    fn frame_of(&mut self, probe: &impl Probe) -> Option<Frame> {
        self.frame_at(probe, probe.address())
    }

    /// The frame of an address on one of its pages, likewise.
    fn frame_at(&mut self, probe: &impl Probe, address: u64) -> Option<Frame> {
        if let Some(frame) = self.tlb.recall(address) {
            return Some(frame);
        }
        match probe.place(address) {
            Some(Place::Memory(physical)) => Some(self.setup.frame(address, physical)),
            _ => None,
        }
    }
}
